//! The race detector's shadow of global memory: for each 4 bytes that a launch touches and may write, who accessed them last, and for each
//! byte or two where a launch accesses parts of 4 bytes.
//!
//! # What counts as a race
//!
//! Two accesses to the same byte by different threads of a launch, at least one of them a write, not both atomic, that nothing orders.
//! Within a block that is what orders accesses to shared memory: see [`super::shared_memory`]. Between blocks nothing does but atomic
//! operations and fences: see [`super::known`].
//!
//! # How it is kept
//!
//! ```text
//!  views that are written   a ├────────────────┤   b ├─────┤
//!                             │ page │ page │ …      │          1024 words each, made when first touched
//!                             ▼
//!  key of each word           enough readers are known for whoever reads now: nothing to do      (read without a lock)
//!  record of each word        the last write │ reads since │ atomic operations since             (with the page's lock)
//! ```
//!
//! Memory that the launch has only views to read of cannot be part of a race, and has no shadow. How many accesses a record keeps is told in
//! [`accesses`]. From the first access to two bytes of a word on, or to one, its page has a record for each two bytes, or each one: a page is seldom of
//! elements of several sizes. Whole words then have several records, with all of which an access is compared.

mod accesses;

use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::vec::Vec;

use super::backtraces::Spot;
use super::context::{Context, current};
use super::costs::CostKind;
use super::fault::{AccessKind, FaultKind};
use super::known::{Carried, Released};
use super::older::{OldValues, Stores};
use super::shared_memory::{WORD, words_of};
use super::spins;
use super::unwritten::{Allocation, Allocations};
use crate::ViewAccess;
use crate::atomic::Place;
pub(super) use accesses::Access;
use accesses::{Enough, Record, needs_all};

/// The words of a page.
const PAGE: usize = 1024;

/// The bytes of a page.
pub(super) const PAGE_BYTES: usize = PAGE * WORD;

/// The key of a word that blocks enough have read.
const BY_BLOCKS: u64 = u64::MAX;

/// What a launch's blocks share of the race detector.
pub(super) struct GlobalMemory {
    regions: Vec<Region>,
    /// Memory that views are of, and parts of which had no values when the launch began.
    without_values: Vec<Arc<Allocation>>,
    /// Atomic elements, by their addresses.
    elements: Mutex<HashMap<usize, AtomicElement>>,
    /// If loads may see old values: what that depends on besides.
    old_values: Option<Mutex<OldValues>>,
}

/// What is known of an element besides its value: what it carries, and which values it has had.
#[derive(Default)]
pub(super) struct AtomicElement {
    pub(super) carried: Carried,
    /// The last operation on it that releases.
    pub(super) released: Option<Released>,
    pub(super) stores: Stores,
}

/// Memory that the launch may write.
struct Region {
    start: usize,
    end: usize,
    pages: Box<[OnceLock<Box<Page>>]>,
}

pub(super) struct Page {
    keys: [AtomicU64; PAGE],
    shadow: Mutex<Shadow>,
}

/// The records of a page.
struct Shadow {
    /// How many bytes each is of: 4, 2 or 1.
    bytes: usize,
    records: Box<[Record]>,
    /// The key of each record, if it is of a part of a word; otherwise those of the page are theirs.
    keys: Box<[u64]>,
}

impl Page {
    pub(super) fn new() -> Self {
        let records = std::vec![Record::NONE; PAGE].into_boxed_slice();
        Self {
            keys: [const { AtomicU64::new(0) }; PAGE],
            shadow: Mutex::new(Shadow { bytes: WORD, records, keys: Box::default() }),
        }
    }

    /// Sets the key of a record. That of a word holds for all of its records, or there is none.
    fn set_key(&self, shadow: &mut Shadow, record: usize, key: u64) {
        if shadow.bytes == WORD {
            self.keys[record].store(key, Ordering::Relaxed);
            return;
        }
        shadow.keys[record] = key;
        let of_word = WORD / shadow.bytes;
        let word = record / of_word;
        let is_same = shadow.keys[word * of_word..][..of_word].iter().all(|other| *other == key);
        self.keys[word].store(if is_same { key } else { 0 }, Ordering::Relaxed);
    }

    /// The last write at a byte.
    pub(super) fn last_write(&self, at: usize) -> Access {
        let shadow = self.lock();
        shadow.records[at / shadow.bytes].write
    }

    /// Enters a write to bytes, which are whole words, that has been compared with other accesses before.
    pub(super) fn overwrite(&self, bytes: core::ops::Range<usize>, me: Access) {
        let mut shadow = self.lock();
        for i in bytes.start / shadow.bytes..bytes.end / shadow.bytes {
            shadow.records[i].enter_write(me);
            self.set_key(&mut shadow, i, 0);
        }
    }

    /// Nothing that holds the lock panics halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has each record be of so few bytes, if they are of more.
    fn divide(&self, shadow: &mut Shadow, bytes: usize) {
        if shadow.bytes <= bytes {
            return;
        }
        if shadow.bytes == WORD {
            shadow.keys = self.keys.iter().map(|key| key.load(Ordering::Relaxed)).collect();
        }
        let times = shadow.bytes / bytes;
        shadow.records = shadow.records.iter().flat_map(|record| core::iter::repeat_n(record.clone(), times)).collect();
        shadow.keys = shadow.keys.iter().flat_map(|key| core::iter::repeat_n(*key, times)).collect();
        shadow.bytes = bytes;
    }
}

impl GlobalMemory {
    /// That of a launch with these views, in which loads see the newest values only, or old ones too.
    pub(super) fn new(
        allocations: &Allocations,
        sees_old_values: bool,
        visit_views: impl FnOnce(&mut dyn FnMut(crate::View<'_>)),
    ) -> Self {
        let (mut ranges, mut without_values) = (Vec::new(), Vec::new());
        visit_views(&mut |view| {
            allocations.find(view.address, view.bytes, &mut without_values);
            if view.bytes > 0 && view.access != ViewAccess::Read {
                ranges.push((view.address / WORD * WORD, view.address.saturating_add(view.bytes)));
            }
        });
        ranges.sort_unstable();
        let mut regions: Vec<Region> = Vec::new();
        for (start, end) in ranges {
            match regions.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => regions.push(Region { start, end, pages: Box::default() }),
            }
        }
        for region in &mut regions {
            let pages = (region.end - region.start).div_ceil(PAGE_BYTES);
            region.pages = (0..pages).map(|_| OnceLock::new()).collect();
        }
        let old_values = sees_old_values.then(Mutex::default);
        Self { regions, without_values, elements: Mutex::default(), old_values }
    }

    /// Looks at what is known of the element at an address.
    pub(super) fn with_element<R>(&self, address: usize, look: impl FnOnce(&mut AtomicElement) -> R) -> R {
        // Nothing that holds the lock panics halfway through a change.
        look(self.elements.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default())
    }

    /// What old values depend on, if loads may see them.
    pub(super) fn old_values(&self) -> Option<MutexGuard<'_, OldValues>> {
        // As above.
        Some(self.old_values.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who has written at an address last: block, thread and line.
    pub(super) fn last_write(&self, address: usize) -> Option<(u64, usize, &'static Location<'static>)> {
        let (page, at) = self.page(address)?;
        let Access { block, thread, location, .. } = page.last_write(at);
        Some((block, thread as usize, location?))
    }

    /// The page of an address, and where in it the address is, in bytes.
    fn page(&self, address: usize) -> Option<(&Page, usize)> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = self.regions[..after].last().filter(|region| address < region.end)?;
        let at = address - region.start;
        Some((region.pages[at / PAGE_BYTES].get_or_init(|| Box::new(Page::new())), at % PAGE_BYTES))
    }
}

/// Whether a launch's blocks can wait for one another.
pub(super) fn is_for_waiting(visit_views: impl FnOnce(&mut dyn FnMut(crate::View<'_>))) -> bool {
    let mut is_for_waiting = false;
    visit_views(&mut |view| is_for_waiting |= view.access == ViewAccess::Atomic);
    is_for_waiting
}

impl Context<'_> {
    /// Enters an access of the running thread to `bytes` bytes of global memory into the shadow, if there is one, and ends the launch if
    /// it is part of a race.
    #[inline]
    pub(super) fn note_global(
        &self,
        address: usize,
        bytes: usize,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) {
        let Some(memory) = self.global else { return };
        match kind {
            AccessKind::Read => self.require_values(address, bytes, location),
            AccessKind::Write => self.note_values(address, bytes),
            // Whoever carries it out knows whether it reads or writes.
            AccessKind::Atomic { .. } => {}
        }
        let (mut address, end) = (address, address + bytes);
        while address < end {
            let Some((page, at)) = memory.page(address) else { return };
            let bytes = (end - address).min(PAGE_BYTES - at);
            self.note_in_page(page, at..at + bytes, address, kind, location);
            address += bytes;
        }
    }

    fn note_in_page(
        &self,
        page: &Page,
        bytes: core::ops::Range<usize>,
        address: usize,
        kind: AccessKind,
        location: &'static Location<'static>,
    ) {
        let thread = self.current.get();
        let me = Access {
            location: Some(location),
            interval: self.threads[thread].interval.get(),
            block: self.block_number.get(),
            thread: thread as u32,
            kind,
        };
        if let Err((at, other)) = self.enter_in_page(page, bytes.clone(), me) {
            self.global_race(address - bytes.start + at, &other, &me);
        }
    }

    /// Enters an access of the running thread to bytes of a page, unless it is part of a race: then it returns the first byte of which it is
    /// one, and the other access.
    pub(super) fn enter_in_page(
        &self,
        page: &Page,
        bytes: core::ops::Range<usize>,
        me: Access,
    ) -> Result<(), (usize, Access)> {
        let kind = me.kind;
        let mine = |tick: u64| (me.block + 1) << 32 | (tick & u64::from(u32::MAX));
        let (of_epoch, of_interval) = (mine(self.memory.shared.epoch()), mine(me.interval));
        let is_enough = |word: usize| {
            let key = page.keys[word].load(Ordering::Relaxed);
            key == BY_BLOCKS || (key == of_epoch || key == of_interval) && !needs_all(self)
        };
        if kind == AccessKind::Read && words_of(&bytes).all(is_enough) {
            return Ok(());
        }
        self.require_headroom();
        let mut shadow = page.lock();
        // As many bytes as both ends are multiples of.
        page.divide(&mut shadow, WORD.min(1 << (bytes.start | bytes.end).trailing_zeros()));
        for i in bytes.start / shadow.bytes..bytes.end / shadow.bytes {
            if let Some(other) = shadow.records[i].conflict(self, &me) {
                return Err((i * shadow.bytes, other));
            }
            let record = &mut shadow.records[i];
            let key = match kind {
                AccessKind::Read => match record.enter_read(self, me) {
                    Some(Enough::ByBlocks) => BY_BLOCKS,
                    Some(Enough::InEpoch) => of_epoch,
                    Some(Enough::InInterval) => of_interval,
                    None => continue,
                },
                AccessKind::Write => {
                    record.enter_write(me);
                    0
                }
                AccessKind::Atomic { .. } => {
                    record.enter_atomic(self, me);
                    0
                }
            };
            page.set_key(&mut shadow, i, key);
        }
        Ok(())
    }

    /// Ends the launch if TMA is to load bytes that the launch has written: it need not see what threads write to global memory, nor what
    /// it has itself stored there, of which nobody knows when it is done.
    pub(super) fn require_not_written(&self, address: usize, bytes: usize, location: &'static Location<'static>) {
        let Some(memory) = self.global.filter(|memory| memory.page(address).is_some()) else { return };
        let words = (address..address + bytes).step_by(WORD);
        let written = words.filter_map(|word| Some((word, memory.last_write(word)?))).next();
        if let Some((word, (block, thread, line))) = written {
            let thread = self.threads.get(thread).map_or(self.thread().index, |thread| thread.index);
            let block = (block != self.block_number.get()).then(|| self.position(block));
            let kind =
                FaultKind::WrittenBeforeLoad { element: self.element_at(word), block, thread, location: line.into() };
            self.fail(location, kind)
        }
    }

    /// Notes that bytes of global memory get values.
    pub(super) fn note_values(&self, address: usize, bytes: usize) {
        for allocation in self.global.iter().flat_map(|memory| &memory.without_values) {
            if allocation.contains(address) {
                allocation.write(address, bytes);
            }
        }
    }

    /// Keeps in mind that the running thread reads bytes of global memory which have no values, if they have none. It is reported when the
    /// launch ends, unless there is a race: then somebody may have been about to write them.
    #[inline]
    pub(super) fn require_values(&self, address: usize, bytes: usize, location: &'static Location<'static>) {
        for allocation in self.global.iter().flat_map(|memory| &memory.without_values) {
            if allocation.contains(address)
                && let Some(unwritten) = allocation.first_unwritten(address, bytes)
            {
                self.read_without_values(allocation, unwritten, location);
            }
        }
    }

    #[cold]
    fn read_without_values(&self, allocation: &Allocation, address: usize, location: &'static Location<'static>) {
        self.require_headroom();
        let earlier = self.read_without_values.take();
        self.read_without_values.set(earlier.or_else(|| {
            let (element, bytes) = (self.element_at(address), allocation.bytes());
            let kind = FaultKind::UnwrittenGlobal { element, bytes, allocated: allocation.allocated() };
            Some(self.report(Some(location.into()), kind))
        }));
    }

    #[cold]
    fn global_race(&self, address: usize, other: &Access, me: &Access) -> ! {
        let (Some(location), Some(other_location)) = (me.location, other.location) else {
            unreachable!("accesses have locations")
        };
        let thread = self.threads.get(other.thread as usize).map_or(self.thread().index, |thread| thread.index);
        let is_of_block = other.block == me.block;
        let kind = FaultKind::GlobalRace {
            element: self.element_at(address),
            access: me.kind,
            block: (!is_of_block).then(|| self.position(other.block)),
            other: self.other_access(thread, other_location, other.kind, Spot::global(address..address + 1)),
            missing: is_of_block.then(|| self.missing(other.thread as usize, other.interval, None)),
        };
        self.fail(location, kind)
    }
}

/// Enters an access to global memory by the running thread, if races are looked for.
#[inline(always)]
pub(crate) fn note_global_access(address: usize, bytes: usize, kind: AccessKind, location: &'static Location<'static>) {
    let context = current();
    if context.global.is_some() {
        enter_global_access(context, address, bytes, kind, location);
    }
}

/// Not inlined: kernels have many accesses, and would take longer to compile.
#[inline(never)]
fn enter_global_access(
    context: &Context<'_>,
    address: usize,
    bytes: usize,
    kind: AccessKind,
    location: &'static Location<'static>,
) {
    context.note_global(address, bytes, kind, location);
    let place = Place::Global(core::ptr::without_provenance_mut(address), false);
    if kind == AccessKind::Read {
        spins::count_read(|| place, bytes, location);
    } else {
        context.note_cost(CostKind::GlobalStore, (address, bytes), location);
        context.note_access(super::steps::Access::Store, place, bytes, location);
        context.note_change();
    }
}
