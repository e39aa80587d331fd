//! The shared memory of a block on the CPU, and the race detector: beside each 4 bytes a *shadow* remembers who accessed them last, and
//! beside each byte of those that threads access in parts ([`shadow`]).
//!
//! # What counts as a race
//!
//! Two accesses to the same byte by different threads, at least one of them a write, that nothing orders. A barrier of
//! the block orders everything before it and everything after it. `sync_warp` does so for the lanes it names, and barriers of a
//! part of the block order threads that arrive before threads that wait (`clocks`). Nothing else does: not the order in which this
//! executor happens to run threads, and not shuffles or votes, which do not order memory.
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
//! outside of the two remembered can be lost: a race may then be missed, but none is invented. In a block with barriers of a
//! part of it, any two readers may be ordered before a writer while a third is not: there, all are kept.
//!
//! Ticks are never reused, so a new block needs nothing cleared: what earlier blocks have left in the shadow is too old.

mod shadow;

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec::Vec;
use std::{thread_local, vec};

use super::MAX_THREADS;
use super::clocks::{Clock, Clocks};
use super::context::{LANES, current};
use super::exchange::lanes_in;
use super::fault::AccessKind;
use super::identity::{DYNAMIC, NUMBERS, SharedIdentity};
use super::known::Known;
use shadow::Shadow;
pub(super) use shadow::{Conflict, Content, WordBytes};

/// What shared memory holds before a block has written to it, where that is not reported: NaN as a float.
pub(super) const POISON: u32 = 0x7FFF_7FFF;

/// The size of what one shadow stands for.
pub(super) const WORD: usize = 4;

/// The words that some of these bytes are in.
#[inline]
pub(super) fn words_of(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / WORD..bytes.end.div_ceil(WORD)
}

/// The bytes that words are.
#[inline]
pub(super) fn bytes_of(words: &Range<usize>) -> Range<usize> {
    words.start * WORD..words.end * WORD
}

/// How many words memory is allocated by.
const WORDS_OF_LINE: usize = size_of::<u128>() / WORD;

/// Where the running block has an array.
pub(super) struct Placement {
    /// The data if accesses need not be checked; null otherwise, and until the block uses the array.
    pub(super) unchecked: Cell<*mut u8>,
    /// The data; null until the block uses the array.
    pub(super) data: Cell<*mut u8>,
    /// One key for each word; null if accesses need not be checked.
    pub(super) keys: Cell<*mut u64>,
    /// One shadow for each word, if there are keys.
    shadows: Cell<*mut Shadow>,
}

impl Placement {
    const fn nowhere() -> Self {
        Self {
            unchecked: Cell::new(ptr::null_mut()),
            data: Cell::new(ptr::null_mut()),
            keys: Cell::new(ptr::null_mut()),
            shadows: Cell::new(ptr::null_mut()),
        }
    }
}

/// What a worker has set up for the block that it runs.
struct FastPath {
    /// By number.
    placements: [Placement; NUMBERS],
    /// The tick of the last barrier.
    epoch: Cell<u64>,
    /// The interval of the thread that runs.
    interval: Cell<u64>,
    /// Whether a thread of the block that runs has begun products of a warpgroup.
    has_products: Cell<bool>,
}

thread_local! {
    /// Not reached through the context, because each access to shared memory begins here: there is no pointer to follow,
    /// nothing to drop, and no bounds to check.
    static FAST_PATH: FastPath = const {
        FastPath {
            placements: [const { Placement::nowhere() }; NUMBERS],
            epoch: Cell::new(0),
            interval: Cell::new(0),
            has_products: Cell::new(false),
        }
    };
}

/// Reads where the running block has an array.
#[inline(always)]
pub(super) fn with_placement<R>(array: &SharedIdentity, read: impl FnOnce(&Placement) -> R) -> R {
    let scaled = array.scaled_number.load(Ordering::Relaxed);
    // SAFETY: numbers are less than the length of the table: `assigned_number` gives no others.
    FAST_PATH.with(|path| read(unsafe { &*path.placements.as_ptr().byte_add(scaled) }))
}

/// Whether a key tells that there are readers enough, for what the running thread reads.
#[inline(always)]
pub(super) fn is_read_enough(key: u64) -> bool {
    FAST_PATH.with(|path| key == path.epoch.get() || key == path.interval.get())
}

/// Whether a thread of the block that runs has begun products of a warpgroup.
#[inline(always)]
pub(super) fn has_products() -> bool {
    FAST_PATH.with(|path| path.has_products.get())
}

/// Notes whether one has.
pub(super) fn set_has_products(has_products: bool) {
    FAST_PATH.with(|path| path.has_products.set(has_products));
}

/// The interval of the thread that runs.
pub(super) fn running_interval() -> u64 {
    FAST_PATH.with(|path| path.interval.get())
}

/// Sets the interval of the thread that is going to run.
#[inline(always)]
pub(super) fn set_interval(interval: u64) {
    FAST_PATH.with(|path| path.interval.set(interval));
}

/// The memory behind a [`Placement`]; it stays where it is from block to block.
#[derive(Default)]
struct Storage {
    /// Aligned as much as any element.
    data: Vec<u128>,
    keys: Vec<u64>,
    shadows: Vec<Shadow>,
}

/// All shared arrays that a worker has come across, by their numbers, and the clock.
pub(super) struct SharedMemory {
    storage: RefCell<Vec<Storage>>,
    /// The numbers of the arrays that the running block uses.
    in_use: RefCell<Vec<usize>>,
    /// The size of the static ones among them.
    static_bytes: Cell<usize>,
    clock: Cell<u64>,
    /// The tick at which the running block began.
    block: Cell<u64>,
    /// The tick of its last barrier.
    epoch: Cell<u64>,
    warps: Box<[WarpClock]>,
    /// What threads know of each other by barriers of a part of the block.
    pub(super) clocks: Clocks,
    /// What they know of other blocks, by atomic operations. Nobody knows anything if there is none.
    known: RefCell<Vec<Known>>,
}

/// Which `sync_warp` calls the lanes of a warp have behind them.
struct WarpClock {
    /// The tick of the last one that named all lanes.
    full: Cell<u64>,
    /// `known[me][other]`: the tick of the last one of `other` that comes before what `me` does now. Only where masks name
    /// a part of the warp.
    known: RefCell<Option<Box<[[u64; LANES]; LANES]>>>,
}

impl SharedMemory {
    pub(super) fn new() -> Self {
        let warp = || WarpClock { full: Cell::new(0), known: RefCell::new(None) };
        Self {
            storage: RefCell::default(),
            in_use: RefCell::default(),
            static_bytes: Cell::new(0),
            clock: Cell::new(1),
            block: Cell::new(1),
            epoch: Cell::new(1),
            // The last one is that of TMA, which has the number behind the largest block.
            warps: (0..MAX_THREADS / LANES + 1).map(|_| warp()).collect(),
            clocks: Clocks::default(),
            known: RefCell::default(),
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
        self.clocks.reset();
        self.known.borrow_mut().clear();
        self.begin_epoch();
        self.block.set(self.epoch.get());
    }

    /// Takes the arrays away from the block that used them, so that nobody on this OS thread finds them any more.
    pub(super) fn end_block(&self) {
        self.static_bytes.set(0);
        let numbers = self.in_use.take();
        FAST_PATH.with(|path| {
            for number in numbers {
                let Placement { unchecked, data, keys, shadows } = &path.placements[number];
                unchecked.set(ptr::null_mut());
                data.set(ptr::null_mut());
                keys.set(ptr::null_mut());
                shadows.set(ptr::null_mut());
            }
        });
    }

    /// A barrier: what came before is ordered before everything that follows.
    pub(super) fn begin_epoch(&self) {
        // One tick for the epoch, and one for each warp's interval.
        self.epoch.set(self.advance(1 + self.warps.len() as u64));
        FAST_PATH.with(|path| path.epoch.set(self.epoch.get()));
        self.share_known(0..MAX_THREADS + 1);
    }

    /// The tick of the last barrier.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Has all of these threads know of other blocks what any of them does.
    fn share_known(&self, threads: impl Iterator<Item = usize> + Clone) {
        let mut known = self.known.borrow_mut();
        if known.is_empty() {
            return;
        }
        let mut all = Known::default();
        threads.clone().for_each(|thread| all.join(&known[thread]));
        threads.for_each(|thread| known[thread] = all.clone());
    }

    /// Whether `me` knows of what a thread of another block did in an interval.
    pub(super) fn knows(&self, me: usize, block: u64, thread: usize, interval: u64) -> bool {
        self.known.borrow().get(me).is_some_and(|known| known.includes(block, thread, interval))
    }

    /// Whether `me` knows of anything that another block did.
    pub(super) fn knows_of(&self, me: usize, block: u64) -> bool {
        self.known.borrow().get(me).is_some_and(|known| known.of(block).is_some())
    }

    /// Everything that `thread`, of the running block, did and knows of, and the interval in which it goes on.
    pub(super) fn everything(&self, thread: usize, block: u64) -> (u64, Known) {
        let mut clock = Clock::default();
        let interval = self.release(thread, &mut clock);
        // What came before the last barrier, everybody in the block knows without a clock.
        let ticks = clock.ticks().iter().map(|tick| (*tick).max(self.epoch.get())).collect::<Vec<_>>();
        let mut known = clock.known;
        known.add(block, &std::sync::Arc::new(ticks));
        (interval, known)
    }

    /// Has `thread`, of the running block, know what somebody has released.
    pub(super) fn learn(&self, thread: usize, known: &Known, block: u64) {
        if let Some(ticks) = known.of(block) {
            self.clocks.with_row(thread, |row| row.iter_mut().zip(&**ticks).for_each(|(a, b)| *a = (*a).max(*b)));
        }
        self.learn_of_others(thread, known);
    }

    fn learn_of_others(&self, thread: usize, other: &Known) {
        if !other.is_nothing() {
            let mut known = self.known.borrow_mut();
            if known.is_empty() {
                // One for each thread, and one for TMA.
                known.resize(MAX_THREADS + 1, Known::default());
            }
            known[thread].join(other);
        }
    }

    /// The interval in which the threads of a warp begin an epoch.
    pub(super) fn first_interval(&self, warp: usize) -> u64 {
        self.epoch.get() + 1 + warp as u64
    }

    /// A `sync_warp` of the lanes in `mask`, out of a warp with the lanes in `existing`. Returns their new interval.
    pub(super) fn sync_warp(&self, warp: usize, mask: u32, existing: u32) -> u64 {
        let now = self.advance(1);
        let clock = &self.warps[warp];
        if self.clocks.are_in_use() {
            let first = warp * LANES;
            let threads = (first..first + LANES).filter(|thread| mask & existing & 1 << (thread - first) != 0);
            self.clocks.share(threads.clone());
            self.share_known(threads);
        }
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

    /// Adds to a clock everything that `thread` did and knows of. Returns the interval in which it goes on.
    pub(super) fn release(&self, thread: usize, clock: &mut Clock) -> u64 {
        let now = self.advance(1);
        self.clocks.with_row(thread, |row| {
            // What it knows of its own warp is kept elsewhere.
            let (warp, lane) = (&self.warps[thread / LANES], thread % LANES);
            let known = warp.known.borrow();
            let first = thread - lane;
            for other in first..row.len().min(first + LANES) {
                let partly = known.as_ref().map_or(0, |known| known[lane][other - first]);
                row[other] = row[other].max(warp.full.get()).max(partly);
            }
            row[thread] = now;
            clock.join_ticks(row);
        });
        if let Some(known) = self.known.borrow().get(thread) {
            clock.known.join(known);
        }
        now
    }

    /// Has `thread` know what a clock knows.
    pub(super) fn acquire(&self, thread: usize, clock: &Clock) {
        self.clocks.with_row(thread, |row| {
            for (known, other) in row.iter_mut().zip(clock.ticks()) {
                *known = (*known).max(*other);
            }
        });
        self.learn_of_others(thread, &clock.known);
    }

    /// Gives the running block an array of `bytes` bytes that it has not used before.
    pub(super) fn place(&self, array: &SharedIdentity, bytes: usize, checked: bool) {
        self.prepare(array, bytes, checked);
        let mut storage = self.storage.borrow_mut();
        let Storage { data, keys, shadows } = &mut storage[array.assigned_number()];
        with_placement(array, |placement| {
            let data = data.as_mut_ptr().cast();
            placement.data.set(data);
            if checked {
                placement.keys.set(keys.as_mut_ptr());
                placement.shadows.set(shadows.as_mut_ptr());
            } else {
                placement.unchecked.set(data);
            }
        });
    }

    /// Makes room for an array of `bytes` bytes, unless the block has used it, or another block of its cluster has. Returns the data.
    pub(super) fn prepare(&self, array: &SharedIdentity, bytes: usize, checked: bool) -> *mut u8 {
        let number = array.assigned_number();
        if self.in_use.borrow().contains(&number) {
            return self.storage.borrow_mut()[number].data.as_mut_ptr().cast();
        }
        let mut storage = self.storage.borrow_mut();
        if storage.len() <= number {
            storage.resize_with(number + 1, Storage::default);
        }
        let Storage { data, keys, shadows } = &mut storage[number];
        let words = bytes.div_ceil(WORD);
        let lines = words.div_ceil(WORDS_OF_LINE);
        if data.len() < lines {
            *data = vec![0; lines];
        }
        if checked && keys.len() < words {
            *keys = vec![0; words];
            *shadows = vec![Shadow::NONE; words];
        }
        data[..lines].fill(u128::from_ne_bytes(bytemuck::cast([POISON; WORDS_OF_LINE])));
        self.in_use.borrow_mut().push(number);
        self.static_bytes.set(self.static_bytes.get() + array.static_bytes());
        data.as_mut_ptr().cast()
    }

    /// The size of the static arrays that the running block uses, with this one.
    pub(super) fn static_bytes_with(&self, array: &SharedIdentity) -> usize {
        let is_in_use = self.in_use.borrow().contains(&array.assigned_number());
        self.static_bytes.get() + if is_in_use { 0 } else { array.static_bytes() }
    }

    /// The tick that is next: it tells whether any thread of the block has synchronized.
    pub(super) fn now(&self) -> u64 {
        self.clock.get()
    }

    /// A tick for something that begins now.
    pub(super) fn tick(&self) -> u64 {
        self.advance(1)
    }
}
