//! The CPU model of TMA, the GPU's Tensor Memory Accelerator: loads of tiles into shared memory, which complete bytes of an
//! `mbarrier`, and stores from there.
//!
//! ```text
//! thread         load_tile ── wait for the phase ─────────────────────── reads the tile
//! TMA                └─ under way …                copies, tells the barrier ──┘
//! ```
//!
//! On a GPU a load takes place some time between its issue and the end of the phase that waits for its bytes. Here it takes place
//! when a thread waits for its barrier and no thread can go on without it, which is the latest: an earlier read of the tile is a read
//! of unwritten memory. The race detector has a virtual thread that stands for TMA and writes what it loads. From issue to completion
//! any access to the tile is a fault; after completion the write happened before exactly those accesses whose threads have waited for
//! the barrier's phase, or were ordered after such a wait.
//!
//! A store reads at its issue, and counts as reading until its thread has waited for it: a write there in the meantime is a fault.
//! Writes of what it reads have to be ordered before it, and each thread that wrote has to have made its writes visible to TMA by
//! `fence.proxy.async`.

use core::cell::RefCell;
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};
use std::collections::VecDeque;
use std::vec::Vec;

use super::Checks;
use super::backtraces::Spot;
use super::barriers::{complete_bytes, is_awaited, require_barrier};
use super::context::{Context, LANES, current};
use super::fault::{AccessKind, FaultKind, RemoteBarrierProblem};
use super::hooks::{note_pending_load, require_aligned, slice_out_of_bounds, words_to_access, words_to_read_by_engine};
use super::identity::DYNAMIC;
use super::products;
use super::remote;
use super::shared_memory::{POISON, WORD, bytes_of, set_interval};
use super::steps::{Memory, StepActor, StepBarrier, StepKind};
use crate::{ImageLayout, ImageMap, TensorMap};

mod tile;

use tile::{PIECE_BYTES, Tile};

/// A tile that is being loaded.
struct Load {
    /// The map's lifetime ends with the launch, and so does the load.
    tile: Tile<'static>,
    /// The target, in words of the dynamic shared memory.
    target: Range<usize>,
    barrier: usize,
    issuer: usize,
    /// The number of the block of the issuer.
    block: u64,
    location: &'static Location<'static>,
    /// Its number, if it is recorded.
    transfer: Option<u64>,
}

/// A tile that is being stored: what it is read from.
struct Store {
    source: Range<usize>,
    issuer: usize,
    /// The number of its group, among those of its thread.
    group: u64,
    location: &'static Location<'static>,
}

/// What TMA has to do for the block that a worker runs.
#[derive(Default)]
pub(super) struct Tma {
    loads: RefCell<VecDeque<Load>>,
    stores: RefCell<Vec<Store>>,
    /// Who has issued loads, by their lines, for reports: the thread, and the number of its block.
    issuers: RefCell<Vec<(&'static Location<'static>, (usize, u64))>>,
}

impl Tma {
    /// Forgets what an earlier block has left behind.
    pub(super) fn begin_block(&self) {
        self.loads.borrow_mut().clear();
        self.stores.borrow_mut().clear();
        self.issuers.borrow_mut().clear();
    }

    /// The number that stands for TMA among the threads of a block: the first one behind its last warp.
    pub(super) fn number(threads: usize) -> usize {
        threads.next_multiple_of(LANES)
    }

    /// The thread that issued a load on this line, the last one that did, and the number of its block.
    pub(super) fn issuer(&self, location: &'static Location<'static>) -> Option<(usize, u64)> {
        let issuers = self.issuers.borrow();
        issuers.iter().find(|(line, _)| ptr::eq(*line, location)).map(|(_, issuer)| *issuer)
    }

    /// Ends the launch unless TMA, and the tensor cores, see what was written to words of the dynamic shared memory, which
    /// the running thread has them read, or write. The words are inside.
    pub(super) fn require_visible(context: &Context<'_>, words: Range<usize>, location: &'static Location<'static>) {
        // What TMA itself has written, it sees.
        let is_visible = |thread: usize, interval: u64| {
            context.details.get(thread).is_none_or(|details| details.fenced.get() > interval)
        };
        let of_block = context.memory.shared.writer_unless(words.clone(), is_visible);
        let of_cluster = || {
            context.team?;
            let mut writers = words.filter_map(|word| Some((word, remote::unfenced_writer(context, word)?)));
            writers.next()
        };
        if let Some((word, (thread, line))) = of_block.or_else(of_cluster) {
            let (thread, element) = (context.threads[thread].index, DYNAMIC.index(word));
            context.fail(location, FaultKind::NotFenced { element, thread, location: line.into() });
        }
    }

    /// The load that is to write a word of the dynamic shared memory: its thread and its line.
    pub(super) fn pending_load(&self, word: usize) -> Option<(usize, &'static Location<'static>)> {
        self.pending_load_by(word).map(|(issuer, _, location)| (issuer, location))
    }

    /// The same, with the number of the thread's block.
    pub(super) fn pending_load_by(&self, word: usize) -> Option<(usize, u64, &'static Location<'static>)> {
        let loads = self.loads.borrow();
        let load = loads.iter().find(|load| load.target.contains(&word));
        load.map(|load| (load.issuer, load.block, load.location))
    }

    /// The store that still reads a word of the dynamic shared memory: its thread and its line.
    pub(super) fn pending_store(&self, word: usize) -> Option<(usize, &'static Location<'static>)> {
        let stores = self.stores.borrow();
        stores.iter().find(|store| store.source.contains(&word)).map(|store| (store.issuer, store.location))
    }

    /// Notes who has issued a load on a line.
    fn note_issuer(&self, issuer: (usize, u64), location: &'static Location<'static>) {
        let mut issuers = self.issuers.borrow_mut();
        issuers.retain(|(line, _)| !ptr::eq(*line, location));
        issuers.push((location, issuer));
    }

    /// The first load that has not taken place: its thread and its line.
    pub(super) fn first_load(&self) -> Option<(usize, &'static Location<'static>)> {
        self.loads.borrow().front().map(|load| (load.issuer, load.location))
    }
}

impl Tile<'_> {
    /// Enters an access to what the tile is of into the shadow of global memory, for the thread that issues it.
    fn note_global(&self, context: &Context<'_>, kind: AccessKind, location: &'static Location<'static>) {
        if context.global.is_none() {
            return;
        }
        if let Some(costs) = &context.costs {
            costs.note_tile(self.bytes(), location);
        }
        // Elements of a line lie one behind the other: one access for each line.
        let (bytes, size) = (self.element().bytes(), self.size());
        let base = self.pointer().addr();
        let mut line: Option<(usize, usize)> = None;
        let note = |(start, end): (usize, usize)| {
            context.note_global(base + start, end - start, kind, location);
            if kind == AccessKind::Read {
                context.require_not_written(base + start, end - start, location);
            }
        };
        self.visit(kind, |_, at| {
            // What is behind the memory is reported where it is written.
            if at + bytes > size {
                return;
            }
            match &mut line {
                Some((_, end)) if *end == at => *end += bytes,
                _ => {
                    if let Some(done) = line.replace((at, at + bytes)) {
                        note(done);
                    }
                }
            }
        });
        if let Some(done) = line {
            note(done);
        }
    }
}

/// The words of a tile at an element of a slice. Both begin where TMA can begin.
fn words_of_tile(
    (byte_offset, len, element_bytes): (usize, usize, usize),
    index: usize,
    tile: &Tile<'_>,
    location: &'static Location<'static>,
) -> Range<usize> {
    let coordinate = tile.first_coordinate();
    let element = tile.element().bytes();
    if i64::from(coordinate) * element as i64 % PIECE_BYTES as i64 != 0 {
        current().fail(location, FaultKind::TileMisaligned { coordinate, element_bytes: element });
    }
    let (bytes, first) = (tile.bytes(), byte_offset + index * element_bytes);
    if index >= len || bytes > (len - index) * element_bytes || first + bytes > current().dynamic_bytes {
        slice_out_of_bounds((byte_offset, len, element_bytes), index..index + bytes / element_bytes, location);
    }
    require_aligned((byte_offset, len, element_bytes), index, tile.swizzle().alignment(), location);
    first / WORD..(first + bytes) / WORD
}

/// Issues the load of pixels to an element of a slice of shared memory, to be told to the barrier at byte `barrier`.
#[track_caller]
pub(crate) fn load_pixels(
    slice: (usize, usize, usize),
    index: usize,
    map: ImageMap<'_>,
    (at, tap): ([u32; 4], [u16; 2]),
    barrier: usize,
) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let (index, at, barrier) = context.change_load_of_pixels(location, &map, slice, (index, at, barrier));
    if tap.iter().any(|reach| u32::from(*reach) > ImageLayout::REACH) {
        context.fail(location, FaultKind::TapTooFar { tap });
    }
    if !tile::is_base_pixel(&map, at) {
        context.fail(location, FaultKind::NotABasePixel { at: [at[1], at[2]].map(u32::cast_signed) });
    }
    // SAFETY: only the lifetime changes. The launch outlives the block, and no load outlives that.
    let map = unsafe { core::mem::transmute::<ImageMap<'_>, ImageMap<'static>>(map) };
    let tile = Tile::Pixels { map, at, tap };
    let target = words_of_tile(slice, index, &tile, location);
    issue_load(context, tile, target, barrier, location);
    tile.note_global(context, AccessKind::Read, location);
}

/// Issues the load of a tile to an element of a slice of shared memory, to be told to the barrier at byte `barrier`.
#[track_caller]
pub(crate) fn load_tile(slice: (usize, usize, usize), index: usize, map: TensorMap<'_>, at: [u32; 3], barrier: usize) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let (index, at, barrier) = context.change_load(location, &map, slice, (index, at, barrier));
    // SAFETY: only the lifetime changes. The launch outlives the block, and no load outlives that.
    let map = unsafe { core::mem::transmute::<TensorMap<'_>, TensorMap<'static>>(map) };
    let tile = Tile::Array { map, at };
    let target = words_of_tile(slice, index, &tile, location);
    issue_load(context, tile, target, barrier, location);
    tile.note_global(context, AccessKind::Read, location);
}

/// Issues the load of a tile into the shared memory of the running block.
fn issue_load(
    context: &Context<'_>,
    tile: Tile<'static>,
    target: Range<usize>,
    barrier: usize,
    location: &'static Location<'static>,
) {
    require_barrier(context, barrier, location);
    products::require_read(context, &target, location);
    if context.checks == Checks::Full {
        // What threads have written there might otherwise come behind what TMA writes.
        Tma::require_visible(context, target.clone(), location);
    }
    let data = words_to_access(&DYNAMIC, target.clone(), location, note_pending_load).cast::<u32>();
    for word in target.clone() {
        // SAFETY: inside the dynamic shared memory, as just checked. No other OS thread uses the data.
        unsafe { *data.add(word) = POISON };
    }
    let (issuer, block) = (context.current.get(), context.block_number.get());
    let mut transfer = None;
    context.note_step(StepKind::TmaLoad, location, |note, steps| {
        let number = steps.next_transfer();
        transfer = Some(number);
        let note = note.at(steps, Memory::Shared(&DYNAMIC), [bytes_of(&target)]).transfer(number);
        note.barrier(StepBarrier::Mbarrier(barrier)).text(tile.describe(context))
    });
    context.engine.note_issuer((issuer, block), location);
    context.engine.loads.borrow_mut().push_back(Load { tile, target, barrier, issuer, block, location, transfer });
}

/// Issues the load of a tile to the same element of a slice of shared memory in several blocks of the cluster, by the bits of their ranks, to
/// be told to the barrier at byte `barrier` of each.
#[track_caller]
pub(crate) fn load_tile_to_blocks(
    slice: (usize, usize, usize),
    index: usize,
    map: TensorMap<'_>,
    at: [u32; 3],
    barrier: usize,
    ranks: u16,
) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let (team, own) = super::cluster::team(context, location);
    let blocks = team.blocks() as u32;
    if ranks == 0 || u32::from(ranks) >> blocks != 0 {
        context.fail(location, FaultKind::MulticastRanks { ranks, blocks });
    }
    // SAFETY: only the lifetime changes. The launch outlives the blocks of the cluster, and no load outlives these.
    let map = unsafe { core::mem::transmute::<TensorMap<'_>, TensorMap<'static>>(map) };
    let tile = Tile::Array { map, at };
    let target = words_of_tile(slice, index, &tile, location);
    let (issuer, block) = (context.current.get(), context.block_number.get());
    for rank in (0..blocks).filter(|rank| ranks >> rank & 1 == 1) {
        if rank as usize == own {
            issue_load(context, tile, target.clone(), barrier, location);
            continue;
        }
        let Some(owner) = remote::block_with_barrier(context, rank, barrier, location) else { continue };
        let problem = match owner.barriers.is_fenced(barrier) {
            Some(true) => None,
            Some(false) => Some(RemoteBarrierProblem::NotFenced),
            None => Some(RemoteBarrierProblem::NotInitialized),
        };
        if let Some(problem) = problem {
            let owner = owner.block.get();
            context.fail(location, FaultKind::RemoteBarrier { owner, byte_offset: barrier, problem });
        }
        remote::begin_load(context, rank, target.clone(), location);
        owner.engine.note_issuer((issuer, block), location);
        let target = target.clone();
        context.note_step(StepKind::TmaLoad, location, |note, steps| {
            let note = note.at(steps, Memory::Cluster(rank, &DYNAMIC), [bytes_of(&target)]);
            note.barrier(StepBarrier::Mbarrier(barrier)).text(tile.describe(context))
        });
        let (mut transfer, by) = (None, StepActor::Cluster(context.block.get()));
        owner.note_other_step(by, StepKind::TmaLoad, Some(location), |note, steps| {
            let number = steps.next_transfer();
            transfer = Some(number);
            let note = note.at(steps, Memory::Shared(&DYNAMIC), [bytes_of(&target)]).transfer(number);
            note.barrier(StepBarrier::Mbarrier(barrier)).text(tile.describe(context))
        });
        owner.engine.loads.borrow_mut().push_back(Load { tile, target, barrier, issuer, block, location, transfer });
    }
    tile.note_global(context, AccessKind::Read, location);
    team.wake();
}

/// Has the first load take place that is told to a barrier for which somebody waits. Returns whether there was one. What nobody waits
/// for may come as late as it likes.
pub(super) fn complete_load(context: &Context<'_>) -> bool {
    let mut loads = context.engine.loads.borrow_mut();
    let awaited = loads.iter().position(|load| is_awaited(context, load.barrier));
    let Some(Load { tile, target, barrier, location, transfer, .. }) =
        awaited.and_then(|position| loads.remove(position))
    else {
        return false;
    };
    drop(loads);
    let (shared, engine) = (&context.memory.shared, Tma::number(context.threads.len()));
    let before = context.current.replace(engine);
    if context.checks == Checks::Full {
        set_interval(shared.tick());
    }
    let data = words_to_access(&DYNAMIC, target.clone(), location, |array, word, location| {
        let context = current();
        // SAFETY: the word is inside, and the block uses the array, with keys.
        unsafe { context.memory.shared.note_load(array, word, context.current.get(), location) }
        remote::note_own_load(context, array, word, location);
    });
    context.current.set(before);
    let (first, bytes) = (target.start * WORD, target.len() * WORD);
    // SAFETY: the target is inside the dynamic shared memory, and no other OS thread uses the data.
    unsafe { ptr::write_bytes(data.add(first), 0, bytes) };
    let element = tile.element();
    // SAFETY: as above.
    tile.visit_before(|in_tile| unsafe { ptr::write_bytes(data.add(first + in_tile), 0xFF, element.bytes()) });
    tile.visit(AccessKind::Read, |in_tile, in_array| {
        let source = tile.pointer().wrapping_add(in_array);
        for byte in 0..element.bytes() {
            // SAFETY: inside the array, by its coordinates, whose memory is valid for reads: the promise of who made the map. Other
            // blocks may write nearby, so accesses are atomic. The target as above.
            unsafe {
                *data.add(first + in_tile + byte) = (*source.add(byte).cast::<AtomicU8>()).load(Ordering::Relaxed)
            };
        }
        if element.is_rounded() {
            let place = data.wrapping_add(first + in_tile).cast::<u32>();
            // SAFETY: as above; elements of four bytes are at multiples of four.
            unsafe { *place = rounded_to_tf32(*place) };
        }
    });
    context.note_other_step(StepActor::Tma, StepKind::TmaLoaded, Some(location), |note, steps| {
        let note =
            note.at(steps, Memory::Shared(&DYNAMIC), [bytes_of(&target)]).barrier(StepBarrier::Mbarrier(barrier));
        match transfer {
            Some(number) => note.transfer(number),
            None => note,
        }
    });
    complete_bytes(context, barrier, bytes as u32, engine);
    true
}

/// An fp32 number rounded to TF32 as TMA does it, to nearest, ties to even; every NaN becomes the same one. Of
/// [`crate::convert::tf32`] both are different. Measured on an H200 (2026-11-22).
const fn rounded_to_tf32(bits: u32) -> u32 {
    const NAN: u32 = 0x7FFF_E000;
    const BITS: u32 = 13;
    if f32::from_bits(bits).is_nan() {
        return NAN;
    }
    let is_odd = bits >> BITS & 1;
    (bits + (1 << (BITS - 1)) - 1 + is_odd) >> BITS << BITS
}

/// Issues the store of a tile from an element of a slice of shared memory.
#[track_caller]
pub(crate) fn store_tile(slice: (usize, usize, usize), index: usize, map: TensorMap<'_>, at: [u32; 3]) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let (index, at) = context.change_store(location, &map, slice, (index, at));
    let tile = Tile::Array { map, at };
    let source = words_of_tile(slice, index, &tile, location);
    // Likewise.
    if let Some(dimension) = at.iter().position(|coordinate| coordinate.cast_signed() < 0) {
        context.fail(location, FaultKind::StoreBeforeArray { dimension, coordinate: at[dimension].cast_signed() });
    }
    let data = words_to_read_by_engine(context, source.clone(), location);
    if context.checks == Checks::Full {
        Tma::require_visible(context, source.clone(), location);
    }
    tile.note_global(context, AccessKind::Write, location);
    let first = source.start * WORD;
    let element_bytes = map.layout().element.bytes();
    tile.visit(AccessKind::Write, |in_tile, in_array| {
        if in_array + element_bytes > map.size() {
            context.fail(location, FaultKind::StoreBehindArray { byte: in_array, bytes: map.size() });
        }
        let target = map.pointer().cast_mut().wrapping_add(in_array);
        for byte in 0..element_bytes {
            // SAFETY: inside the array's memory, as just compared, which may be written to: the promise of who made the map. As above.
            unsafe {
                (*target.add(byte).cast::<AtomicU8>()).store(*data.add(first + in_tile + byte), Ordering::Relaxed)
            };
        }
    });
    let (engine, group) = (&context.engine, context.details().store_groups.get());
    context.note_step(StepKind::TmaStore, location, |note, steps| {
        let note = note.at(steps, Memory::Shared(&DYNAMIC), [bytes_of(&source)]).phase(group);
        note.transfer(steps.next_transfer()).text(tile.describe(context))
    });
    engine.stores.borrow_mut().push(Store { source, issuer: context.current.get(), group, location });
}

/// Makes a group of the stores that this thread has issued since the last one.
#[track_caller]
pub(crate) fn commit_stores() {
    if current().leaves_out("commit_stores", Location::caller()) {
        return;
    }
    let groups = &current().details().store_groups;
    current().note_step(StepKind::TmaStoreCommit, Location::caller(), |note, _| note.phase(groups.get()));
    groups.set(groups.get() + 1);
}

/// Waits until no more than the `latest` most recent groups of this thread still read.
#[track_caller]
pub(crate) fn wait_for_stores(latest: u64) {
    let context = current();
    let Some(latest) = context.change_pending("wait_for_stores", Location::caller(), latest) else { return };
    let (me, groups) = (context.current.get(), context.details().store_groups.get());
    context.note_step(StepKind::TmaStoreWait, Location::caller(), |note, _| {
        note.phase(groups.saturating_sub(latest)).until_under_way(latest)
    });
    let mut stores = context.engine.stores.borrow_mut();
    stores.retain(|store| store.issuer != me || store.group + latest >= groups);
}

/// Ends the launch if a word that is about to be written is still read by a store, or is going to be written by a load.
pub(super) fn require_idle(context: &Context<'_>, word: usize, location: &'static Location<'static>) {
    let engine = &context.engine;
    let store = engine.pending_store(word);
    let load = engine.pending_load(word);
    if let Some((issuer, line)) = store.or(load) {
        let (thread, element, access) = (
            context.threads[issuer].index,
            DYNAMIC.index(word),
            match store {
                Some(_) => AccessKind::Read,
                None => AccessKind::Write,
            },
        );
        let other = context.other_access(thread, line, access, Spot::dynamic_word(word));
        context.fail(location, FaultKind::InFlight { element, other });
    }
}

/// Ends the launch if the running thread, which returns from the kernel, has stores that may still read.
pub(super) fn require_no_stores() {
    let context = current();
    let (me, stores) = (context.current.get(), context.engine.stores.borrow());
    if let Some(&Store { location, .. }) = stores.iter().find(|store| store.issuer == me) {
        drop(stores);
        context.fail(location, FaultKind::StoreNotAwaited);
    }
    context.details().store_groups.set(0);
}

/// Makes what the running thread has written, barriers that it has initialized too, visible to TMA, for those who learn of it by a barrier.
#[track_caller]
pub(crate) fn fence_async() {
    let context = current();
    if context.leaves_out("fence_async_shared", Location::caller()) {
        return;
    }
    context.note_step(StepKind::FenceAsync, Location::caller(), |note, _| note);
    context.barriers.show_to_tma(context.current.get());
    if context.checks == Checks::Full {
        let tick = context.memory.shared.tick();
        context.details().fenced.set(tick);
        context.begin_interval(tick);
    }
}
