//! The shared memory of the block that a worker runs, and the shadow in which races show.
//!
//! # What counts as a race
//!
//! Two accesses to the same 4 bytes by different threads, at least one of them a write, that nothing orders. A barrier of
//! the block orders everything before it and everything after it. `sync_warp` does so for the lanes it names. Nothing else
//! does: not the order in which this executor happens to run threads, and not shuffles or votes, which do not order memory.
//!
//! # How it is found
//!
//! Time is counted in *ticks*: a barrier takes some, and so does a `sync_warp`. Each thread knows the tick at which its
//! present *interval* began, the time since it last synchronized with anybody. The shadow of 4 bytes remembers the last
//! write and two reads since, each with thread, interval and source line:
//!
//! ```text
//! tick      epoch            warp 0's interval    warp 1's interval   …
//!           │ S              │ S + 1              │ S + 2
//! access    { thread: 37, interval: S + 2, line }
//!             happened before this access  ⇔  its interval is older than the epoch, or it was made by a lane of this
//!                                             warp in an interval older than the last `sync_warp` with that lane
//! ```
//!
//! Two readers are enough. If readers come from two warps, any writer is in another warp than one of them; if they all
//! belong to one warp and interval, any writer differs from one of the two. So once two readers are there, the others need
//! no record, and a *key* per 4 bytes tells so in one comparison: it is the epoch (readers in two warps) or the interval
//! (two lanes of one warp). Where `sync_warp` names only a part of a warp, intervals of its lanes differ, and a read
//! outside of the two remembered can be lost: a race may then be missed, but none is invented.
//!
//! Ticks are never reused, so a new block needs nothing cleared: what earlier blocks have left in the shadow is too old.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::boxed::Box;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{thread_local, vec};

use super::MAX_THREADS;
use super::context::LANES;
use super::fault::{AccessKind, SharedArrayName};

/// What shared memory holds before a block has written to it, where that is not reported: NaN as a float.
pub(super) const POISON: u32 = 0x7FFF_7FFF;

/// The size of what one shadow stands for.
pub(super) const WORD: usize = 4;

/// Which array a `Shared` static is: where it was declared, and the number under which workers keep it.
#[derive(Debug)]
pub(crate) struct SharedIdentity {
    /// [`UNNUMBERED`] until first used.
    number: AtomicUsize,
    declared: &'static Location<'static>,
}

/// How many numbers there are. Each takes 32 bytes in every thread of the process.
const NUMBERS: usize = 512;

/// The number of arrays that have not been used yet. No block uses this one.
const UNNUMBERED: usize = 0;

/// The number of the launch-sized memory.
pub(super) const DYNAMIC: usize = 1;

impl SharedIdentity {
    #[track_caller]
    pub(crate) const fn new() -> Self {
        Self { number: AtomicUsize::new(UNNUMBERED), declared: Location::caller() }
    }

    /// Less than [`NUMBERS`].
    #[inline(always)]
    fn number(&self) -> usize {
        // Relaxed: nothing but the number itself depends on it.
        self.number.load(Ordering::Relaxed)
    }

    /// The number, which this array gets now if it has none.
    pub(super) fn assigned_number(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(DYNAMIC + 1);
        if self.number() != UNNUMBERED {
            return self.number();
        }
        let new = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(new < NUMBERS, "a program can use at most {} different shared arrays", NUMBERS - DYNAMIC - 1);
        match self.number.compare_exchange(UNNUMBERED, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => new,
            Err(other_thread_was_first) => other_thread_was_first,
        }
    }
}

/// What the executor knows of an array from its type.
#[derive(Clone, Copy)]
pub(super) struct Declaration {
    /// `None` for the launch-sized memory.
    pub(super) declared: Option<&'static Location<'static>>,
    pub(super) type_name: &'static str,
    pub(super) extents: &'static [usize],
    pub(super) element_bytes: usize,
    pub(super) bytes: usize,
}

impl Declaration {
    pub(super) fn of_static<A: crate::shared::SharedArray>(identity: &SharedIdentity) -> Self {
        let element_bytes = size_of::<A::Element>();
        Self {
            declared: Some(identity.declared),
            type_name: core::any::type_name::<A>(),
            extents: A::EXTENTS,
            element_bytes,
            bytes: A::LEN * element_bytes,
        }
    }

    pub(super) fn of_dynamic(bytes: usize) -> Self {
        Self { declared: None, type_name: "", extents: &[], element_bytes: WORD, bytes }
    }

    pub(super) fn name(&self) -> SharedArrayName {
        match self.declared {
            Some(declared) => SharedArrayName::Static { declared: declared.into(), type_name: self.type_name },
            None => SharedArrayName::Dynamic,
        }
    }

    /// The position of a word as the source indexes the array: `5`, or `[3, 17]`.
    pub(super) fn index(&self, word: usize) -> String {
        let mut rest = word * WORD / self.element_bytes;
        let Some((_, faster)) = self.extents.split_first().filter(|(_, faster)| !faster.is_empty()) else {
            return rest.to_string();
        };
        let mut coordinates = Vec::new();
        for axis in 0..faster.len() {
            let stride: usize = faster[axis..].iter().product();
            coordinates.push(rest / stride);
            rest %= stride;
        }
        coordinates.push(rest);
        format!("{coordinates:?}")
    }
}

/// Where the running block has an array.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    /// Null until the block uses the array.
    pub(super) data: *mut u8,
    /// One key for each word; null if accesses are not to be checked.
    pub(super) keys: *mut u64,
    /// One shadow for each word, as there are keys.
    shadows: *mut Shadow,
}

impl Placement {
    const NONE: Self = Self { data: ptr::null_mut(), keys: ptr::null_mut(), shadows: ptr::null_mut() };
}

/// What a worker has set up for the block that it runs.
struct FastPath {
    /// The data of the arrays whose accesses need not be checked, at their numbers; null for all others.
    unchecked: [Cell<*mut u8>; NUMBERS],
    placements: [Cell<Placement>; NUMBERS],
    /// The tick of the last barrier.
    epoch: Cell<u64>,
    /// The interval of the thread that runs.
    interval: Cell<u64>,
}

thread_local! {
    /// Not reached through the context, because each access to shared memory begins here: there is no pointer to follow,
    /// nothing to drop, and no bounds to check.
    static FAST_PATH: FastPath = const {
        FastPath {
            unchecked: [const { Cell::new(ptr::null_mut()) }; NUMBERS],
            placements: [const { Cell::new(Placement::NONE) }; NUMBERS],
            epoch: Cell::new(0),
            interval: Cell::new(0),
        }
    };
}

/// The data of an array in the running block; null if the block has not used it yet, or accesses are to be checked.
#[inline(always)]
pub(super) fn unchecked_data(identity: &SharedIdentity) -> *mut u8 {
    // SAFETY: the number is less than the length: `assigned_number` gives no others.
    FAST_PATH.with(|path| unsafe { path.unchecked.get_unchecked(identity.number()) }.get())
}

/// Where the running block has a static array, or without an identity the launch-sized memory. No data if the block has
/// not used it yet.
#[inline(always)]
pub(super) fn placement(identity: Option<&SharedIdentity>) -> Placement {
    let number = identity.map_or(DYNAMIC, SharedIdentity::number);
    // SAFETY: as above.
    FAST_PATH.with(|path| unsafe { path.placements.get_unchecked(number) }.get())
}

/// Whether a key tells that there are readers enough, for what the running thread reads.
#[inline(always)]
pub(super) fn is_read_enough(key: u64) -> bool {
    FAST_PATH.with(|path| key == path.epoch.get() || key == path.interval.get())
}

/// Sets the interval of the thread that is going to run.
#[inline(always)]
pub(super) fn set_interval(interval: u64) {
    FAST_PATH.with(|path| path.interval.set(interval));
}

/// When and by whom an access was made. Zero is never: there is no tick 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp(u64);

impl Stamp {
    const THREAD_BITS: u32 = MAX_THREADS.ilog2();
    const NEVER: Self = Self(0);

    #[inline]
    fn new(interval: u64, thread: usize) -> Self {
        Self(interval << Self::THREAD_BITS | thread as u64)
    }

    #[inline]
    fn interval(self) -> u64 {
        self.0 >> Self::THREAD_BITS
    }

    #[inline]
    fn thread(self) -> usize {
        (self.0 & ((1 << Self::THREAD_BITS) - 1)) as usize
    }
}

/// An access, as the shadow remembers it.
#[derive(Clone, Copy)]
struct Access {
    stamp: Stamp,
    /// `None` only if there was no access.
    location: Option<&'static Location<'static>>,
}

impl Access {
    const NONE: Self = Self { stamp: Stamp::NEVER, location: None };
}

/// The shadow of one word, apart from its key: the last write, and up to two reads after it. If one of the reads belongs
/// to the present epoch, the first does.
#[derive(Clone)]
struct Shadow {
    write: Access,
    reads: [Access; 2],
}

/// The memory behind a [`Placement`]; it stays where it is from block to block.
#[derive(Default)]
struct Storage {
    declaration: Option<Declaration>,
    data: Vec<u64>,
    keys: Vec<u64>,
    shadows: Vec<Shadow>,
}

/// All shared arrays that a worker has come across, by their numbers, and the clock.
pub(super) struct SharedMemory {
    storage: RefCell<Vec<Storage>>,
    /// The numbers of the arrays that the running block uses.
    in_use: RefCell<Vec<usize>>,
    clock: Cell<u64>,
    /// The tick at which the running block began.
    block: Cell<u64>,
    /// The tick of its last barrier.
    epoch: Cell<u64>,
    warps: Box<[WarpClock]>,
}

/// Which `sync_warp` calls the lanes of a warp have behind them.
struct WarpClock {
    /// The tick of the last one that named all lanes.
    full: Cell<u64>,
    /// `known[me][other]`: the tick of the last one of `other` that comes before what `me` does now. Only where masks name
    /// a part of the warp.
    known: RefCell<Option<Box<[[u64; LANES]; LANES]>>>,
}

/// A conflict that the shadow has shown.
pub(super) struct Conflict {
    pub(super) thread: usize,
    pub(super) location: &'static Location<'static>,
    pub(super) access: AccessKind,
}

/// Whether a word had been written before it was read.
#[derive(PartialEq, Eq)]
pub(super) enum Content {
    Written,
    Unwritten,
}

impl SharedMemory {
    pub(super) fn new() -> Self {
        let warp = || WarpClock { full: Cell::new(0), known: RefCell::new(None) };
        Self {
            storage: RefCell::default(),
            in_use: RefCell::default(),
            clock: Cell::new(1),
            block: Cell::new(1),
            epoch: Cell::new(1),
            warps: (0..MAX_THREADS / LANES).map(|_| warp()).collect(),
        }
    }

    fn advance(&self, ticks: u64) -> u64 {
        let now = self.clock.get();
        self.clock.set(now + ticks);
        now
    }

    /// Makes all arrays those of a new block, which has written to none of them.
    pub(super) fn begin_block(&self) {
        self.end_block();
        self.begin_epoch();
        self.block.set(self.epoch.get());
    }

    /// Takes the arrays away from the block that used them, so that nobody on this OS thread finds them any more.
    pub(super) fn end_block(&self) {
        let numbers = self.in_use.take();
        FAST_PATH.with(|path| {
            for number in numbers {
                path.unchecked[number].set(ptr::null_mut());
                path.placements[number].set(Placement::NONE);
            }
        });
    }

    /// A barrier: what came before is ordered before everything that follows.
    pub(super) fn begin_epoch(&self) {
        // One tick for the epoch, and one for each warp's interval.
        self.epoch.set(self.advance(1 + self.warps.len() as u64));
        FAST_PATH.with(|path| path.epoch.set(self.epoch.get()));
    }

    /// The interval in which the threads of a warp begin an epoch.
    pub(super) fn first_interval(&self, warp: usize) -> u64 {
        self.epoch.get() + 1 + warp as u64
    }

    /// A `sync_warp` of the lanes in `mask`, out of a warp with the lanes in `existing`. Returns their new interval.
    pub(super) fn sync_warp(&self, warp: usize, mask: u32, existing: u32) -> u64 {
        let now = self.advance(1);
        let clock = &self.warps[warp];
        if mask & existing == existing {
            clock.full.set(now);
            return now;
        }
        let mut known = clock.known.borrow_mut();
        let known = known.get_or_insert_with(|| Box::new([[0; LANES]; LANES]));
        let lanes = || (0..LANES).filter(|lane| mask >> lane & 1 == 1);
        let mut joint = [0; LANES];
        for lane in lanes() {
            for (joint, known) in joint.iter_mut().zip(&known[lane]) {
                *joint = (*joint).max(*known);
            }
        }
        for lane in lanes() {
            joint[lane] = now;
        }
        for lane in lanes() {
            known[lane] = joint;
        }
        now
    }

    /// Gives the running block an array that it has not used before: a static one, or without an identity the launch-sized
    /// memory.
    pub(super) fn place(
        &self,
        identity: Option<&SharedIdentity>,
        declaration: Declaration,
        checked: bool,
    ) -> Placement {
        let number = identity.map_or(DYNAMIC, SharedIdentity::assigned_number);
        let mut storage = self.storage.borrow_mut();
        if storage.len() <= number {
            storage.resize_with(number + 1, Storage::default);
        }
        let array = &mut storage[number];
        array.declaration = Some(declaration);
        let words = declaration.bytes.div_ceil(WORD);
        if array.data.len() * 2 < words {
            array.data = vec![0; words.div_ceil(2)];
        }
        if checked && array.keys.len() < words {
            array.keys = vec![0; words];
            array.shadows = vec![Shadow { write: Access::NONE, reads: [Access::NONE; 2] }; words];
        }
        let poison = u64::from(POISON);
        array.data[..words.div_ceil(2)].fill(poison << 32 | poison);
        let mut placement = Placement { data: array.data.as_mut_ptr().cast(), ..Placement::NONE };
        if checked {
            placement.keys = array.keys.as_mut_ptr();
            placement.shadows = array.shadows.as_mut_ptr();
        }
        FAST_PATH.with(|path| {
            path.unchecked[number].set(if checked { ptr::null_mut() } else { placement.data });
            path.placements[number].set(placement);
        });
        self.in_use.borrow_mut().push(number);
        placement
    }

    /// The size of the static arrays that the running block uses.
    pub(super) fn static_bytes(&self) -> usize {
        let (storage, in_use) = (self.storage.borrow(), self.in_use.borrow());
        let arrays = in_use.iter().filter(|&&number| number != DYNAMIC);
        arrays.filter_map(|&number| storage[number].declaration).map(|array| array.bytes).sum()
    }

    /// Enters what `thread`, which runs, does to one word into the shadow.
    ///
    /// # Safety
    /// `placement` is the running block's, with keys, and `word` is one of the array's words.
    #[inline]
    pub(super) unsafe fn note_write(
        &self,
        placement: Placement,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<(), Conflict> {
        // SAFETY: the shadow exists, and no other reference to any is held when a thread runs.
        let shadow = unsafe { &mut *placement.shadows.add(word) };
        let me = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        let epoch = Stamp::new(self.epoch.get(), 0);
        if shadow.write.stamp >= epoch || shadow.reads[0].stamp >= epoch {
            self.conflict(shadow.write, me, AccessKind::Write)?;
            self.conflict(shadow.reads[0], me, AccessKind::Read)?;
            self.conflict(shadow.reads[1], me, AccessKind::Read)?;
            shadow.reads = [Access::NONE; 2];
        }
        shadow.write = Access { stamp: me, location: Some(location) };
        // SAFETY: the key exists.
        unsafe { *placement.keys.add(word) = 0 };
        Ok(())
    }

    /// Enters a read of one word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    #[inline]
    pub(super) unsafe fn note_read(
        &self,
        placement: Placement,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<Content, Conflict> {
        // SAFETY: as for `note_write`.
        let shadow = unsafe { &mut *placement.shadows.add(word) };
        let me = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        let epoch = self.epoch.get();
        if shadow.write.stamp >= Stamp::new(epoch, 0) {
            self.conflict(shadow.write, me, AccessKind::Write)?;
        }
        let read = Access { stamp: me, location: Some(location) };
        if shadow.reads[0].stamp < Stamp::new(epoch, 0) {
            shadow.reads[0] = read;
        } else if let Some(key) = self.add_read(&mut shadow.reads, read) {
            // SAFETY: the key exists.
            unsafe { *placement.keys.add(word) = key };
        }
        let written = shadow.write.stamp >= Stamp::new(self.block.get(), 0);
        Ok(if written { Content::Written } else { Content::Unwritten })
    }

    /// Adds a read to others of the same epoch. Returns the key if with it there are enough.
    fn add_read(&self, reads: &mut [Access; 2], read: Access) -> Option<u64> {
        let me = read.stamp;
        // The reads that a writer may conflict with although it is ordered after this one.
        let mut open = reads.iter().copied().filter(|other| self.unordered(other.stamp, me));
        match (open.next(), open.next()) {
            (None, _) => {
                *reads = [read, Access::NONE];
                None
            }
            (Some(other), None) => {
                *reads = [other, read];
                if other.stamp.thread() / LANES != me.thread() / LANES {
                    Some(self.epoch.get())
                } else {
                    (other.stamp.interval() == me.interval()).then_some(me.interval())
                }
            }
            (Some(first), Some(_)) if first.stamp.thread() / LANES != me.thread() / LANES => {
                *reads = [first, read];
                Some(self.epoch.get())
            }
            // Two lanes of this warp are enough.
            (Some(_), Some(_)) => None,
        }
    }

    /// Whether nothing orders an earlier access before what `me` is doing.
    fn unordered(&self, other: Stamp, me: Stamp) -> bool {
        if other.interval() < self.epoch.get() || other.thread() == me.thread() {
            return false;
        }
        let warp = me.thread() / LANES;
        if other.thread() / LANES != warp {
            return true;
        }
        let clock = &self.warps[warp];
        other.interval() >= clock.full.get()
            && clock
                .known
                .borrow()
                .as_ref()
                .is_none_or(|known| other.interval() >= known[me.thread() % LANES][other.thread() % LANES])
    }

    fn conflict(&self, other: Access, me: Stamp, access: AccessKind) -> Result<(), Conflict> {
        match other.location {
            Some(location) if self.unordered(other.stamp, me) => {
                Err(Conflict { thread: other.stamp.thread(), location, access })
            }
            _ => Ok(()),
        }
    }
}
