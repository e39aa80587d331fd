//! The shared memory of a block on the CPU, and the race detector: beside each 4 bytes a *shadow* remembers who accessed them last.
//!
//! # What counts as a race
//!
//! Two accesses to the same 4 bytes by different threads, at least one of them a write, that nothing orders. A barrier of
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

use core::cell::{Cell, RefCell};
use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec::Vec;
use std::{thread_local, vec};

use super::MAX_THREADS;
use super::clocks::{Clock, Clocks};
use super::context::LANES;
use super::exchange::lanes_in;
use super::fault::AccessKind;
use super::identity::{DYNAMIC, NUMBERS, SharedIdentity};
use super::known::Known;

/// What shared memory holds before a block has written to it, where that is not reported: NaN as a float.
pub(super) const POISON: u32 = 0x7FFF_7FFF;

/// The size of what one shadow stands for.
pub(super) const WORD: usize = 4;

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
}

thread_local! {
    /// Not reached through the context, because each access to shared memory begins here: there is no pointer to follow,
    /// nothing to drop, and no bounds to check.
    static FAST_PATH: FastPath = const {
        FastPath {
            placements: [const { Placement::nowhere() }; NUMBERS],
            epoch: Cell::new(0),
            interval: Cell::new(0),
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

/// Reads by lanes of a warp, in one interval, on one line.
#[derive(Clone, Copy)]
struct WarpReads {
    location: &'static Location<'static>,
    interval: u64,
    warp: u32,
    lanes: u32,
}

impl WarpReads {
    fn accesses(self) -> impl Iterator<Item = Access> {
        let thread = move |lane: usize| self.warp as usize * LANES + lane;
        lanes_in(self.lanes)
            .map(move |lane| Access { stamp: Stamp::new(self.interval, thread(lane)), location: Some(self.location) })
    }
}

/// The shadow of one word, apart from its key: the last write, and up to two reads and two atomic operations after it. If one of the reads
/// belongs to the present epoch, the first does, and likewise of the atomic operations.
#[derive(Clone)]
struct Shadow {
    write: Access,
    reads: [Access; 2],
    /// All reads, where two do not tell enough. They are of the epoch that the two are of.
    more_reads: Vec<WarpReads>,
    atomics: [Access; 2],
    /// The last atomic operation that left something in the word.
    stored: Stamp,
}

impl Shadow {
    const NONE: Self = Self {
        write: Access::NONE,
        reads: [Access::NONE; 2],
        more_reads: Vec::new(),
        atomics: [Access::NONE; 2],
        stored: Stamp::NEVER,
    };
}

/// The memory behind a [`Placement`]; it stays where it is from block to block.
#[derive(Default)]
struct Storage {
    data: Vec<u64>,
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

/// A conflict that the shadow has shown.
pub(super) struct Conflict {
    pub(super) thread: usize,
    pub(super) location: &'static Location<'static>,
    pub(super) access: AccessKind,
}

/// How an atomic operation on shared memory is called: whoever can reach it is in the block.
const ATOMIC: AccessKind = AccessKind::Atomic { scope: crate::atomic::Scope::Device };

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
            static_bytes: Cell::new(0),
            clock: Cell::new(1),
            block: Cell::new(1),
            epoch: Cell::new(1),
            warps: (0..MAX_THREADS / LANES).map(|_| warp()).collect(),
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
        let number = array.assigned_number();
        let mut storage = self.storage.borrow_mut();
        if storage.len() <= number {
            storage.resize_with(number + 1, Storage::default);
        }
        let Storage { data, keys, shadows } = &mut storage[number];
        let words = bytes.div_ceil(WORD);
        if data.len() * 2 < words {
            *data = vec![0; words.div_ceil(2)];
        }
        if checked && keys.len() < words {
            *keys = vec![0; words];
            *shadows = vec![Shadow::NONE; words];
        }
        let poison = u64::from(POISON);
        data[..words.div_ceil(2)].fill(poison << 32 | poison);
        self.in_use.borrow_mut().push(number);
        self.static_bytes.set(self.static_bytes() + array.static_bytes());
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

    /// The size of the static arrays that the running block uses.
    pub(super) fn static_bytes(&self) -> usize {
        self.static_bytes.get()
    }

    /// Enters a write of one word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// The running block uses the array, which has keys, and `word` is one of its words.
    #[inline]
    pub(super) unsafe fn note_write(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<(), Conflict> {
        let (keys, shadows) = with_placement(array, |placement| (placement.keys.get(), placement.shadows.get()));
        // SAFETY: the key and the shadow exist. No other references to keys or shadows are held when a thread runs.
        let (key, shadow) = unsafe { (&mut *keys.add(word), &mut *shadows.add(word)) };
        let me = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        let epoch = Stamp::new(self.epoch.get(), 0);
        if shadow.write.stamp >= epoch || shadow.reads[0].stamp >= epoch || shadow.atomics[0].stamp >= epoch {
            self.conflict(shadow.write, me, AccessKind::Write)?;
            self.conflict(shadow.atomics[0], me, ATOMIC)?;
            self.conflict(shadow.atomics[1], me, ATOMIC)?;
            self.conflict(shadow.reads[0], me, AccessKind::Read)?;
            self.conflict(shadow.reads[1], me, AccessKind::Read)?;
            self.conflict_with_any(&mut shadow.more_reads, me)?;
            (shadow.reads, shadow.atomics) = ([Access::NONE; 2], [Access::NONE; 2]);
        }
        shadow.write = Access { stamp: me, location: Some(location) };
        *key = 0;
        Ok(())
    }

    /// Enters an atomic operation on one word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(super) unsafe fn note_atomic(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<Content, Conflict> {
        let (keys, shadows) = with_placement(array, |placement| (placement.keys.get(), placement.shadows.get()));
        // SAFETY: as for `note_write`.
        let (key, shadow) = unsafe { (&mut *keys.add(word), &mut *shadows.add(word)) };
        let me = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        let epoch = Stamp::new(self.epoch.get(), 0);
        if shadow.write.stamp >= epoch || shadow.reads[0].stamp >= epoch {
            self.conflict(shadow.write, me, AccessKind::Write)?;
            self.conflict(shadow.reads[0], me, AccessKind::Read)?;
            self.conflict(shadow.reads[1], me, AccessKind::Read)?;
            self.conflict_with_any(&mut shadow.more_reads, me)?;
            shadow.reads = [Access::NONE; 2];
        }
        let access = Access { stamp: me, location: Some(location) };
        if shadow.atomics[0].stamp < epoch {
            shadow.atomics = [access, Access::NONE];
        } else {
            self.add_read(&mut shadow.atomics, access);
        }
        *key = 0;
        let is_written = self.is_written(shadow);
        shadow.stored = me;
        Ok(if is_written { Content::Written } else { Content::Unwritten })
    }

    /// Whether the running block has written a word.
    fn is_written(&self, shadow: &Shadow) -> bool {
        shadow.write.stamp.max(shadow.stored) >= Stamp::new(self.block.get(), 0)
    }

    /// Enters a write by TMA, which `thread` stands for. It has been compared with other accesses at its issue.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(super) unsafe fn note_load(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) {
        let (keys, shadows) = with_placement(array, |placement| (placement.keys.get(), placement.shadows.get()));
        // SAFETY: as for `note_write`.
        let (key, shadow) = unsafe { (&mut *keys.add(word), &mut *shadows.add(word)) };
        let stamp = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        shadow.write = Access { stamp, location: Some(location) };
        (shadow.reads, shadow.atomics) = ([Access::NONE; 2], [Access::NONE; 2]);
        shadow.more_reads.clear();
        *key = 0;
    }

    /// Who wrote a word of the dynamic shared memory last in this block, and where, unless `is_fine` with that thread and interval. The
    /// word is inside, and has been read by the running thread just now.
    pub(super) fn writer_unless(
        &self,
        word: usize,
        is_fine: impl Fn(usize, u64) -> bool,
    ) -> Option<(usize, &'static Location<'static>)> {
        let shadows = with_placement(&DYNAMIC, |placement| placement.shadows.get());
        // SAFETY: the read has found a shadow there. No other references to shadows are held when a thread runs.
        let Access { stamp, location } = unsafe { (*shadows.add(word)).write };
        let is_of_block = stamp >= Stamp::new(self.block.get(), 0);
        location
            .filter(|_| is_of_block && !is_fine(stamp.thread(), stamp.interval()))
            .map(|line| (stamp.thread(), line))
    }

    /// A tick for something that begins now.
    pub(super) fn tick(&self) -> u64 {
        self.advance(1)
    }

    /// Makes a word one that nobody has written.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(super) unsafe fn forget_write(&self, array: &SharedIdentity, word: usize) {
        let shadows = with_placement(array, |placement| placement.shadows.get());
        // SAFETY: as for `note_write`.
        unsafe { ((*shadows.add(word)).write, (*shadows.add(word)).stored) = (Access::NONE, Stamp::NEVER) };
    }

    /// Enters a read of one word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    #[inline]
    pub(super) unsafe fn note_read(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<Content, Conflict> {
        let (keys, shadows) = with_placement(array, |placement| (placement.keys.get(), placement.shadows.get()));
        // SAFETY: as for `note_write`.
        let (key, shadow) = unsafe { (&mut *keys.add(word), &mut *shadows.add(word)) };
        let me = Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread);
        let epoch = Stamp::new(self.epoch.get(), 0);
        if shadow.write.stamp >= epoch || shadow.atomics[0].stamp >= epoch {
            self.conflict(shadow.write, me, AccessKind::Write)?;
            self.conflict(shadow.atomics[0], me, ATOMIC)?;
            self.conflict(shadow.atomics[1], me, ATOMIC)?;
        }
        let read = Access { stamp: me, location: Some(location) };
        if shadow.reads[0].stamp < epoch {
            shadow.reads[0] = read;
            shadow.more_reads.clear();
            if self.clocks.are_in_use() {
                self.add_read_to_all(shadow, read);
            }
        } else if self.clocks.are_in_use() {
            self.add_read_to_all(shadow, read);
        } else if let Some(enough) = self.add_read(&mut shadow.reads, read) {
            *key = enough;
        }
        Ok(if self.is_written(shadow) { Content::Written } else { Content::Unwritten })
    }

    /// Adds a read to others of the same epoch, all of which are kept: a writer may be ordered after any of them and not after
    /// the rest. Those of a warp are one entry, so that they are as quickly found as few.
    fn add_read_to_all(&self, shadow: &mut Shadow, read: Access) {
        let Some(location) = read.location else { return };
        let (warp, lane) = ((read.stamp.thread() / LANES) as u32, read.stamp.thread() % LANES);
        let interval = read.stamp.interval();
        let is_same =
            |known: &WarpReads| known.interval == interval && known.warp == warp && ptr::eq(known.location, location);
        if let Some(known) = shadow.more_reads.iter_mut().find(|known| is_same(known)) {
            known.lanes |= 1 << lane;
            return;
        }
        // What is ordered before this read is ordered before every writer that is ordered after it.
        shadow.more_reads.retain(|known| known.accesses().any(|known| self.unordered(known.stamp, read.stamp)));
        shadow.more_reads.push(WarpReads { location, interval, warp, lanes: 1 << lane });
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

    /// Whether nothing orders what a thread did in an interval before what `me` is doing, both of the running block.
    pub(super) fn is_unordered(&self, thread: usize, interval: u64, me: usize) -> bool {
        self.unordered(Stamp::new(interval, thread), Stamp::new(0, me))
    }

    /// Whether nothing orders an earlier access before what `me` is doing.
    fn unordered(&self, other: Stamp, me: Stamp) -> bool {
        if other.interval() < self.epoch.get() || other.thread() == me.thread() {
            return false;
        }
        if self.clocks.known(me.thread(), other.thread()) > other.interval() {
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

    /// Compares a write with all reads, and forgets them.
    fn conflict_with_any(&self, reads: &mut Vec<WarpReads>, me: Stamp) -> Result<(), Conflict> {
        let mut all = reads.drain(..).flat_map(WarpReads::accesses);
        all.try_for_each(|read| self.conflict(read, me, AccessKind::Read))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_every_writer_conflicts_with_are_kept() {
        let memory = SharedMemory::new();
        memory.begin_block();
        let mut reads = [Access::NONE; 2];
        let mut read = |thread: usize| {
            let stamp = Stamp::new(memory.first_interval(thread / LANES), thread);
            let key = memory.add_read(&mut reads, Access { stamp, location: Some(Location::caller()) });
            (key, reads.map(|read| read.stamp.thread()))
        };
        assert_eq!(read(3), (None, [3, 0]));
        assert_eq!(read(3), (None, [3, 0]));
        assert_eq!(read(4), (Some(memory.first_interval(0)), [3, 4]));
        assert_eq!(read(5), (None, [3, 4]));
        // A writer in warp 0 may be ordered after the others, but not after this one.
        assert_eq!(read(40), (Some(memory.epoch.get()), [3, 40]));
    }
}
