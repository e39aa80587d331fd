//! Accesses to the shared memory of another block of the cluster, and the race detector's shadow of it.
//!
//! ```text
//!  rank 0   TILE   word    0     1     2     …         rank 1 reads TILE.of_block(0)[1]:
//!                          ▲     ▲                       is there something?            the block's own shadow of shared memory
//!                          │     ╰── rank 1              is it ordered behind writes?   this shadow: who did what, block by block
//!                          ╰──────── rank 0              has the block begun?           a meeting, or something released there
//!                                                        is it before the block's end?  what the block knows when it ends
//! ```
//!
//! The shadow is that of global memory ([`super::global_memory`]), with an entry for each word of shared memory that a block of the cluster
//! has. A block's accesses to its own memory are entered, too, beside what [`super::shared_memory`] does.

use core::ops::Range;
use core::panic::Location;
use std::boxed::Box;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Checks;
use super::backtraces::Spot;
use super::barriers::{clocked, require_no_barrier};
use super::cluster::{Stage, Team, team};
use super::context::{Context, current};
use super::costs::CostKind;
use super::fault::{AccessKind, Fault, FaultKind};
use super::global_memory::{Access, PAGE_BYTES, Page};
use super::hooks::{self, slice_out_of_bounds};
use super::identity::{DYNAMIC, SharedIdentity};
use super::products::{self, require_awaited};
use super::shared_memory::{POISON, WORD, WordBytes, bytes_of, running_interval, words_of};
use super::spins;
use super::values::{trace_in, trace_out};
use crate::Element;
use crate::atomic::Place;
use crate::element::vector::vector_bytes;
use crate::shared::SharedArray;

/// A page of the shadow: rank, number of the array, number of the page.
type PageOf = (usize, usize, usize);

/// What is known of accesses to the shared memory of a cluster.
#[derive(Default)]
pub(super) struct Shadow {
    pages: Mutex<HashMap<PageOf, Arc<Page>>>,
    /// The last access of each thread to the memory of each other block: rank there, block and thread of who made it. Not those of TMA, for
    /// whose bytes the block waits.
    last: Mutex<HashMap<(usize, u64, usize), LastAccess>>,
}

/// An access to the memory of another block, which has to be there until it has taken place.
#[derive(Clone, Copy)]
struct LastAccess {
    interval: u64,
    location: &'static Location<'static>,
    /// The barrier and its phase, if it is an arrival: who has waited for the phase has waited for it.
    arrival: Option<(usize, u64)>,
}

impl Shadow {
    /// Forgets everything: another cluster begins.
    pub(super) fn clear(&self) {
        lock(&self.pages).clear();
        lock(&self.last).clear();
    }

    fn page(&self, rank: usize, array: &SharedIdentity, byte: usize) -> Arc<Page> {
        let of = (rank, array.assigned_number(), byte / PAGE_BYTES);
        Arc::clone(lock(&self.pages).entry(of).or_insert_with(|| Arc::new(Page::new())))
    }

    /// The last write to a word of a block's array.
    fn last_write(&self, rank: usize, array: &SharedIdentity, word: usize) -> Access {
        let byte = word * WORD;
        self.page(rank, array, byte).last_write(byte % PAGE_BYTES)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block whose memory is accessed from another one.
#[derive(Clone, Copy)]
struct Owner<'c> {
    team: &'c Team<'c>,
    rank: usize,
    context: &'c Context<'c>,
}

/// The block of a rank, which is there; `None` if it is the running one.
fn owner<'c>(context: &Context<'c>, rank: u32, location: &'static Location<'static>) -> Option<Owner<'c>> {
    let (team, own) = team(context, location);
    context.require_headroom();
    let blocks = team.blocks() as u32;
    if rank >= blocks {
        context.fail(location, FaultKind::ClusterRank { rank, blocks });
    }
    let rank = rank as usize;
    if rank == own {
        return None;
    }
    let (block, (stage, owner)) = (context.block_of_rank(rank), team.member(rank));
    // Whether it has begun by chance does not matter where races are looked for.
    let has_begun = match context.checks {
        Checks::Full => {
            context.details().meetings.get().met > 0
                || context.memory.shared.knows_of(context.current.get(), context.number(block))
        }
        Checks::Bounds => stage != Stage::Before,
    };
    match owner {
        _ if !has_begun => context.fail(location, FaultKind::RemoteNotStarted { owner: block }),
        Some(owner) if stage == Stage::Running => Some(Owner { team, rank, context: owner }),
        _ => context.fail(location, FaultKind::RemoteEnded { owner: block }),
    }
}

impl Context<'_> {
    /// The block of a rank in the cluster of the running one.
    fn block_of_rank(&self, rank: usize) -> crate::Dim3 {
        let own = super::cluster::block_in_cluster();
        let (first, other) = (self.block.get(), super::cluster::position(self.clusters.dim(), rank as u64));
        crate::Dim3::new(first.x - own.x + other.x, first.y - own.y + other.y, first.z - own.z + other.z)
    }

    /// An access of the running thread, or of TMA, that happens now.
    fn access_now(&self, kind: AccessKind, location: &'static Location<'static>) -> Access {
        Access {
            location: Some(location),
            interval: running_interval(),
            block: self.block_number.get(),
            thread: self.current.get() as u32,
            kind,
        }
    }

    /// Enters an access of the running thread to bytes of an array of a block of the cluster into the shadow, and ends the launch if it is
    /// part of a race.
    fn note_in_cluster(
        &self,
        rank: usize,
        array: &SharedIdentity,
        bytes: Range<usize>,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) {
        let Some((team, _)) = self.team else { return };
        self.require_headroom();
        let me = self.access_now(kind, location);
        let mut begin = bytes.start;
        while begin < bytes.end {
            let (page, first) = (team.shadow.page(rank, array, begin), begin / PAGE_BYTES * PAGE_BYTES);
            let end = bytes.end.min(first + PAGE_BYTES);
            if let Err((at, other)) = self.enter_in_page(&page, begin - first..end - first, me) {
                self.race_in_cluster(rank, array, first + at, &me, &other);
            }
            begin = end;
        }
    }

    #[cold]
    fn race_in_cluster(&self, rank: usize, array: &SharedIdentity, byte: usize, me: &Access, other: &Access) -> ! {
        let Some(other_location) = other.location else { unreachable!("accesses have locations") };
        let Some(location) = me.location else { unreachable!("accesses have locations") };
        // TMA writes for the thread that has asked it to.
        let (position, other_block) = match self.threads.get(other.thread as usize) {
            Some(_) => (other.thread as usize, other.block),
            None => self.issuer_in(other.block, other_location),
        };
        let thread = self.threads[position].index;
        let kind = FaultKind::ClusterRace {
            owner: self.block_of_rank(rank),
            array: array.name(),
            element: array.index_of_byte(byte),
            access: me.kind,
            block: (other_block != me.block).then(|| self.position(other_block)),
            other: self.other_access(thread, other_location, other.kind, Spot::shared(array, byte..byte + 1)),
        };
        self.fail(location, kind)
    }

    /// Who has issued the load on a line into the memory of a block of the cluster, and the block from which.
    fn issuer_in(&self, block: u64, location: &'static Location<'static>) -> (usize, u64) {
        let member = self.team.and_then(|(team, _)| team.member(team.rank_of(block)?).1);
        member.and_then(|member| member.engine.issuer(location)).unwrap_or((0, block))
    }

    /// The number of a block in linear order.
    fn number(&self, block: crate::Dim3) -> u64 {
        let (x, y) = (u64::from(self.grid.x), u64::from(self.grid.y));
        (u64::from(block.z) * y + u64::from(block.y)) * x + u64::from(block.x)
    }
}

/// Enters an access of the running thread to bytes of a word of its own block's memory into the shadow of the cluster, if there is one.
#[inline]
pub(super) fn note_own(
    context: &Context<'_>,
    array: &SharedIdentity,
    word: usize,
    bytes: WordBytes,
    kind: AccessKind,
    location: &'static Location<'static>,
) {
    if let Some((_, rank)) = context.team {
        context.note_in_cluster(rank, array, bytes.range_in_array(word), kind, location);
    }
}

/// Enters a write by TMA to a word of the running block's memory, which has been compared with other accesses at its issue.
pub(super) fn note_own_load(
    context: &Context<'_>,
    array: &SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    if let Some((team, rank)) = context.team {
        let byte = word * WORD;
        let me = context.access_now(AccessKind::Write, location);
        team.shadow.page(rank, array, byte).overwrite(byte % PAGE_BYTES..byte % PAGE_BYTES + WORD, me);
    }
}

/// Who of another block wrote a word of the running block's dynamic shared memory last and has not made that visible to TMA: thread and line.
pub(super) fn unfenced_writer(context: &Context<'_>, word: usize) -> Option<(usize, &'static Location<'static>)> {
    let (team, rank) = context.team?;
    let write = team.shadow.last_write(rank, &DYNAMIC, word);
    let location = write.location.filter(|_| write.block != context.block_number.get())?;
    let (_, writer) = team.member(team.rank_of(write.block)?);
    let fenced = writer?.details.get(write.thread as usize)?.fenced.get();
    (fenced <= write.interval).then_some((write.thread as usize, location))
}

/// A report if something that another block does to the memory of this one, which ends, is not ordered before its end.
pub(super) fn accessed_behind_the_end(context: &Context<'_>) -> Option<Box<Fault>> {
    let (team, rank) = context.team?;
    let shared = clocked(context)?;
    let last = lock(&team.shadow.last);
    let threads = 0..context.threads.len();
    let is_known = |block, thread, interval| threads.clone().any(|me| shared.knows(me, block, thread, interval));
    let is_awaited = |access: &LastAccess| {
        access.arrival.is_some_and(|(barrier, phase)| context.barriers.has_been_awaited(barrier, phase))
    };
    let of_this = last.iter().filter(|((of, ..), _)| *of == rank);
    let open = of_this
        .filter(|((_, block, thread), access)| !is_known(*block, *thread, access.interval) && !is_awaited(access));
    // The first one: a map has no order.
    let ((_, block, thread), LastAccess { location, .. }) =
        open.min_by_key(|((_, block, thread), _)| (*block, *thread))?;
    Some(Box::new(Fault {
        kernel: context.kernel,
        block: context.position(*block),
        thread: context.threads[*thread].index,
        location: Some((*location).into()),
        callers: std::vec::Vec::new(),
        kind: FaultKind::RemoteEnded { owner: context.block.get() },
        old_value: None,
    }))
}

impl Owner<'_> {
    /// The data of an array of the block, after an access of the running thread to `bytes` of it, which are inside, has been checked.
    fn access(
        self,
        context: &Context<'_>,
        array: &'static SharedIdentity,
        bytes: Range<usize>,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) -> *mut u8 {
        let is_read = kind == AccessKind::Read;
        let data = self.data(context, array, location);
        if spins::looks_at_all() {
            let cost = if is_read { CostKind::SharedLoad } else { CostKind::SharedStore };
            spins::note_remote(cost, (self.rank as u32, array), (bytes.start, bytes.len()), location);
        }
        if context.checks == Checks::Full {
            self.require_idle(context, array, bytes.clone(), kind, location);
            context.note_in_cluster(self.rank, array, bytes.clone(), kind, location);
            if kind != AccessKind::Write && !self.context.memory.shared.is_written_remotely(array, bytes.clone()) {
                self.unwritten(context, array, bytes.start, location);
            }
            if !is_read {
                self.context.memory.shared.note_remote_write(array, bytes.clone());
            }
        }
        if is_read {
            spins::count_read(|| Place::Remote(self.rank as u32, array, bytes.start), bytes.len(), location);
        } else {
            context.note_change();
        }
        data
    }

    /// Ends the launch if bytes that are about to be accessed are of a barrier of the block.
    fn require_no_barrier(
        self,
        context: &Context<'_>,
        array: &SharedIdentity,
        bytes: Range<usize>,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) {
        if context.checks == Checks::Full && core::ptr::eq(array, &DYNAMIC) {
            require_no_barrier(context, self.context, words_of(&bytes), kind, location);
        }
    }

    /// [`Owner::access`], which the block has to be there for.
    fn access_while_there(
        self,
        context: &Context<'_>,
        array: &'static SharedIdentity,
        bytes: Range<usize>,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) -> *mut u8 {
        self.require_no_barrier(context, array, bytes.clone(), kind, location);
        let data = self.access(context, array, bytes, kind, location);
        self.note_last(context, None, location);
        data
    }

    /// Notes that the running thread accesses memory of the block: `arrival` says at which barrier it arrives, and for which phase.
    fn note_last(self, context: &Context<'_>, arrival: Option<(usize, u64)>, location: &'static Location<'static>) {
        if context.checks == Checks::Full {
            let by = (self.rank, context.block_number.get(), context.current.get());
            let access = LastAccess { interval: running_interval(), location, arrival };
            lock(&self.team.shadow.last).insert(by, access);
        }
    }

    /// The data of an array of the block, which may not have used it yet.
    fn data(
        self,
        context: &Context<'_>,
        array: &'static SharedIdentity,
        location: &'static Location<'static>,
    ) -> *mut u8 {
        let shared = &self.context.memory.shared;
        let is_dynamic = core::ptr::eq(array, &DYNAMIC);
        let declared_bytes = context.declared_static_bytes;
        let static_bytes = shared.static_bytes_with(array);
        if static_bytes > declared_bytes {
            context.fail(location, FaultKind::SharedUndeclared { array: array.name(), static_bytes, declared_bytes });
        }
        let bytes = if is_dynamic { context.dynamic_bytes } else { array.static_bytes() };
        shared.prepare(array, bytes, context.checks == Checks::Full)
    }

    /// Ends the launch if TMA still reads or writes what is about to be accessed.
    fn require_idle(
        self,
        context: &Context<'_>,
        array: &SharedIdentity,
        bytes: Range<usize>,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) {
        if !core::ptr::eq(array, &DYNAMIC) {
            return;
        }
        for word in words_of(&bytes) {
            let load = self.context.engine.pending_load_by(word).map(|load| (load, AccessKind::Write));
            let read = self.context.engine.pending_store(word).or_else(|| {
                let (_, thread, line) = products::pending_read(self.context, &(word..word + 1))?;
                Some((thread, line))
            });
            let by_owner = |(thread, line)| ((thread, self.context.block_number.get(), line), AccessKind::Read);
            let read = read.filter(|_| kind != AccessKind::Read).map(by_owner);
            if let Some(((issuer, by, line), access)) = load.or(read) {
                let thread = context.threads[issuer].index;
                let other = context.other_access(thread, line, access, Spot::dynamic_word(word));
                let (owner, element) = (self.context.block.get(), DYNAMIC.index(word));
                let block = (by != context.block_number.get()).then(|| context.position(by));
                let kind = FaultKind::ClusterRace { owner, array: array.name(), element, access: kind, block, other };
                context.fail(location, kind);
            }
        }
    }

    /// Keeps in mind that nobody has written what is read at a byte. It is reported when the launch ends, unless somebody writes it until
    /// then: that is a race.
    #[cold]
    fn unwritten(
        self,
        context: &Context<'_>,
        array: &SharedIdentity,
        byte: usize,
        location: &'static Location<'static>,
    ) {
        let earlier = context.read_without_values.take();
        context.read_without_values.set(earlier.or_else(|| {
            let owner = self.context.block.get();
            let kind = FaultKind::UnwrittenRemote { owner, array: array.name(), element: array.index_of_byte(byte) };
            Some(context.report(Some(location.into()), kind))
        }));
    }
}

// What kernels call.

/// How many bytes into a static array the element at `index` is; ends the launch if there is none.
#[track_caller]
pub(crate) fn offset_in_array<A: SharedArray>(array: &'static SharedIdentity, index: A::Index) -> usize {
    const {
        assert!(
            align_of::<A::Element>() == size_of::<A::Element>(),
            "an element of another block is aligned to its size"
        )
    };
    hooks::static_offset::<A>(array, index, Location::caller())
}

/// The element at an offset of an array of the block of a rank.
#[track_caller]
pub(crate) fn remote_read<T: Element>(rank: u32, (array, offset): (&'static SharedIdentity, usize)) -> T {
    let (context, location) = (current(), Location::caller());
    let data = match owner(context, rank, location) {
        None => hooks::data_to_read::<T>(array, offset, location),
        Some(owner) => {
            owner.access_while_there(context, array, offset..offset + size_of::<T>(), AccessKind::Read, location)
        }
    };
    // SAFETY: the element is inside the array, and aligned. Only the worker whose turn it is uses the data of a cluster.
    let value = unsafe { *data.add(offset).cast() };
    trace_in(&value, location);
    value
}

/// Writes the element at an offset of an array of the block of a rank.
#[track_caller]
pub(crate) fn remote_write<T: Element>(rank: u32, (array, offset): (&'static SharedIdentity, usize), value: T) {
    let (context, location) = (current(), Location::caller());
    require_awaited(&value);
    trace_out(&value, "a store to the shared memory of another block", location);
    let data = match owner(context, rank, location) {
        None => hooks::data_to_write::<T>(array, offset, location),
        Some(owner) => {
            owner.access_while_there(context, array, offset..offset + size_of::<T>(), AccessKind::Write, location)
        }
    };
    // SAFETY: as for `remote_read`.
    unsafe { *data.add(offset).cast() = value };
}

/// How many bytes into the dynamic shared memory `N` elements from `index` of a slice are, which are aligned to their size together.
#[track_caller]
fn offset_in_slice<T: Element, const N: usize>(slice: (usize, usize, usize), index: usize) -> usize {
    let location = Location::caller();
    let (byte_offset, len, element_bytes) = slice;
    if index >= len || N > len - index {
        slice_out_of_bounds(slice, index, location);
    }
    let available = current().dynamic_bytes;
    if byte_offset + len * element_bytes > available {
        current().fail(location, FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes, available });
    }
    hooks::require_aligned(slice, index, vector_bytes::<T, N>(), location);
    byte_offset + index * element_bytes
}

/// `N` elements of a slice of the dynamic shared memory, as the block of a rank has it.
#[track_caller]
pub(crate) fn remote_read_slice<T: Element, const N: usize>(
    rank: u32,
    slice: (usize, usize, usize),
    index: usize,
) -> [T; N] {
    let offset = offset_in_slice::<T, N>(slice, index);
    // SAFETY: every pattern of bits is a value of an element.
    let mut values: [T; N] = unsafe { core::mem::zeroed() };
    // No closure: its accesses would count as made here, not where the kernel makes them.
    for (i, value) in values.iter_mut().enumerate() {
        *value = remote_read(rank, (&DYNAMIC, offset + i * size_of::<T>()));
    }
    values
}

/// Writes `N` elements of a slice of the dynamic shared memory, as the block of a rank has it.
#[track_caller]
pub(crate) fn remote_write_slice<T: Element, const N: usize>(
    rank: u32,
    slice: (usize, usize, usize),
    index: usize,
    values: [T; N],
) {
    let offset = offset_in_slice::<T, N>(slice, index);
    for (i, value) in values.into_iter().enumerate() {
        remote_write(rank, (&DYNAMIC, offset + i * size_of::<T>()), value);
    }
}

/// Where an element of an array of the block of a rank is, for atomic operations.
#[track_caller]
pub(crate) fn remote_place(rank: u32, array: &'static SharedIdentity, offset: usize) -> Place {
    match owner(current(), rank, Location::caller()) {
        None => Place::Shared(array, offset),
        Some(_) => Place::Remote(rank, array, offset),
    }
}

/// Where element `index` of a slice of the dynamic shared memory is, as the block of a rank has it.
#[track_caller]
pub(crate) fn remote_place_in_slice(rank: u32, slice: (usize, usize, usize), index: usize) -> Place {
    let words = hooks::dynamic_words(slice, index, slice.2, Location::caller());
    remote_place(rank, &DYNAMIC, words.start * WORD)
}

// For atomic operations, barriers and TMA.

/// The address of an element of the block of a rank, after an atomic operation on it has been checked. `stores`: it reads nothing.
pub(super) fn atomic_address(
    context: &Context<'_>,
    (rank, array, offset): (u32, &'static SharedIdentity, usize),
    bytes: usize,
    access: AccessKind,
    stores: bool,
    location: &'static Location<'static>,
) -> *mut u8 {
    let Some(owner) = owner(context, rank, location) else {
        unreachable!("the running block's own memory is no other block's")
    };
    let bytes = offset..offset + bytes;
    if stores && context.checks == Checks::Full {
        // Of what nobody had written, it is the first write.
        owner.data(context, array, location);
        owner.context.memory.shared.note_remote_write(array, bytes.clone());
    }
    owner.access_while_there(context, array, bytes, access, location).wrapping_add(offset)
}

/// The context of the block of a rank, while it is there.
pub(super) fn context_of<'c>(context: &Context<'c>, rank: u32) -> Option<&'c Context<'c>> {
    let (team, _) = context.team?;
    team.member(rank as usize).1
}

/// The context of the block of a rank, after the barrier at a byte of its dynamic shared memory has been read by the running thread, if the
/// block has one there; `None` if the block is the running one.
pub(super) fn block_with_barrier<'c>(
    context: &Context<'c>,
    rank: u32,
    at: usize,
    location: &'static Location<'static>,
) -> Option<&'c Context<'c>> {
    let owner = owner(context, rank, location)?;
    if owner.context.barriers.has_unannounced(at, context.details().meetings.get().met) {
        owner.access(context, &DYNAMIC, at..at + 2 * WORD, AccessKind::Read, location);
    }
    Some(owner.context)
}

/// Notes that the running thread arrives at the barrier at a byte of the dynamic shared memory of the block of a rank, another one, for a phase.
pub(super) fn note_arrival(
    context: &Context<'_>,
    rank: u32,
    at: usize,
    phase: u64,
    location: &'static Location<'static>,
) {
    if let Some(owner) = owner(context, rank, location) {
        owner.note_last(context, Some((at, phase)), location);
    }
}

/// Prepares the words of the dynamic shared memory of the block of a rank, another one, for a load by TMA which the running thread issues:
/// until it takes place nobody has written them.
pub(super) fn begin_load(context: &Context<'_>, rank: u32, words: Range<usize>, location: &'static Location<'static>) {
    let Some(owner) = owner(context, rank, location) else { return };
    let bytes = bytes_of(&words);
    owner.require_no_barrier(context, &DYNAMIC, bytes.clone(), AccessKind::Write, location);
    let data = owner.access(context, &DYNAMIC, bytes, AccessKind::Write, location);
    if context.checks == Checks::Full {
        owner.context.memory.shared.forget_remote_writes(words.clone());
    }
    for word in words {
        // SAFETY: inside the dynamic shared memory, by the check of the tile. Only the worker whose turn it is uses the data of a cluster.
        unsafe { *data.cast::<u32>().add(word) = POISON };
    }
}
