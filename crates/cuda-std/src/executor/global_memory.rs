//! The race detector's shadow of global memory: for each 4 bytes that a launch touches, who accessed them last.
//!
//! # What counts as a race
//!
//! Two accesses to the same 4 bytes by different threads of a launch, at least one of them a write, not both atomic, that nothing orders.
//! Within a block that is what orders accesses to shared memory: see [`super::shared_memory`]. Between blocks nothing does but atomic
//! operations and fences: see [`super::known`].
//!
//! # How it is kept
//!
//! ```text
//!  views of the launch      a ├────────────────┤   b ├─────┤
//!                             │ page │ page │ …      │          1024 words each, made when first touched
//!                             ▼
//!  key of each word           enough readers are known for whoever reads now: nothing to do      (read without a lock)
//!  shadow of each word        the last write │ two reads since │ two atomic operations since     (with the page's lock)
//! ```
//!
//! Two readers are enough for the same reasons as in shared memory; once there are some of two blocks, no more are kept. A writer that is
//! ordered behind these two and not behind a third may be missed; a race that is none is never reported.

use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::vec::Vec;

use super::context::{Context, LANES, current};
use super::fault::{AccessKind, FaultKind, OtherAccess};
use super::known::{Carried, is_wide};
use super::shared_memory::WORD;
use crate::ViewAccess;

/// The words of a page.
const PAGE: usize = 1024;

/// The key of a word that blocks enough have read.
const BY_BLOCKS: u64 = u64::MAX;

/// What a launch's blocks share of the race detector.
pub(super) struct GlobalMemory {
    regions: Vec<Region>,
    /// What atomic elements carry, by their addresses.
    carried: Mutex<HashMap<usize, Carried>>,
}

/// Memory that views of the launch are of.
struct Region {
    start: usize,
    end: usize,
    pages: Box<[OnceLock<Box<Page>>]>,
}

struct Page {
    keys: [AtomicU64; PAGE],
    words: Mutex<Box<[Word]>>,
}

/// An access, as the shadow remembers it.
#[derive(Clone, Copy)]
struct Access {
    /// `None` only if there was no access.
    location: Option<&'static Location<'static>>,
    interval: u64,
    block: u64,
    thread: u32,
    kind: AccessKind,
}

impl Access {
    const NONE: Self = Self { location: None, interval: 0, block: 0, thread: 0, kind: AccessKind::Read };
}

#[derive(Clone, Copy)]
struct Word {
    write: Access,
    reads: [Access; 2],
    atomics: [Access; 2],
}

impl Word {
    const NONE: Self = Self { write: Access::NONE, reads: [Access::NONE; 2], atomics: [Access::NONE; 2] };
}

impl GlobalMemory {
    /// That of a launch with these views.
    pub(super) fn new(visit_views: impl FnOnce(&mut dyn FnMut(crate::View<'_>))) -> Self {
        let mut ranges = Vec::new();
        visit_views(&mut |view| {
            if view.bytes > 0 {
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
            let pages = (region.end - region.start).div_ceil(PAGE * WORD);
            region.pages = (0..pages).map(|_| OnceLock::new()).collect();
        }
        Self { regions, carried: Mutex::default() }
    }

    /// Looks at what the element at an address carries.
    pub(super) fn with_carried<R>(&self, address: usize, look: impl FnOnce(&mut Carried) -> R) -> R {
        // Nothing that holds the lock panics halfway through a change.
        look(self.carried.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default())
    }

    /// The page of an address, the position of its word there, and how many bytes from it on are in the page.
    fn page(&self, address: usize) -> Option<(&Page, usize, usize)> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = self.regions[..after].last().filter(|region| address < region.end)?;
        let word = (address - region.start) / WORD;
        let page = region.pages[word / PAGE].get_or_init(|| {
            Box::new(Page {
                keys: [const { AtomicU64::new(0) }; PAGE],
                words: Mutex::new(std::vec![Word::NONE; PAGE].into_boxed_slice()),
            })
        });
        let page_end = region.start + (word / PAGE + 1) * PAGE * WORD;
        Some((page, word % PAGE, page_end - address))
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
        let (mut address, end) = (address, address + bytes);
        while address < end {
            let Some((page, word, left)) = memory.page(address) else { return };
            let words = (end - address).min(left).div_ceil(WORD);
            self.note_in_page(page, word..word + words, address, kind, location);
            address = address / WORD * WORD + words * WORD;
        }
    }

    fn note_in_page(
        &self,
        page: &Page,
        words: core::ops::Range<usize>,
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
        let mine = |tick: u64| (me.block + 1) << 32 | (tick & u64::from(u32::MAX));
        let (of_epoch, of_interval) = (mine(self.memory.shared.epoch()), mine(me.interval));
        let is_enough = |word: usize| {
            let key = page.keys[word].load(Ordering::Relaxed);
            key == BY_BLOCKS || key == of_epoch || key == of_interval
        };
        if kind == AccessKind::Read && words.clone().all(is_enough) {
            return;
        }
        self.require_headroom();
        let mut shadows = page.words.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, word) in words.enumerate() {
            let known = shadows[word];
            let conflict = |other: &Access| other.location.is_some() && self.is_conflict(other, &me);
            let others = [known.write, known.reads[0], known.reads[1], known.atomics[0], known.atomics[1]];
            if let Some(other) = others.into_iter().find(conflict) {
                drop(shadows);
                self.global_race(address / WORD * WORD + i * WORD, &other, &me);
            }
            let shadow = &mut shadows[word];
            let key = match kind {
                AccessKind::Read => match self.add(&mut shadow.reads, me) {
                    Some(Enough::ByBlocks) => BY_BLOCKS,
                    Some(Enough::InEpoch) => of_epoch,
                    Some(Enough::InInterval) => of_interval,
                    None => continue,
                },
                AccessKind::Write => {
                    *shadow = Word { write: me, ..Word::NONE };
                    0
                }
                AccessKind::Atomic { .. } => {
                    shadow.reads = [Access::NONE; 2];
                    self.add(&mut shadow.atomics, me);
                    0
                }
            };
            page.keys[word].store(key, Ordering::Relaxed);
        }
    }

    /// Whether two accesses, the second of the running thread, are a race.
    fn is_conflict(&self, other: &Access, me: &Access) -> bool {
        let may_meet = match (other.kind, me.kind) {
            (AccessKind::Read, AccessKind::Read) => true,
            (AccessKind::Atomic { scope: one }, AccessKind::Atomic { scope: two }) => {
                other.block == me.block || is_wide(one) && is_wide(two)
            }
            _ => false,
        };
        !may_meet && self.is_unordered(other, me)
    }

    /// Whether nothing orders an earlier access before what the running thread does.
    fn is_unordered(&self, other: &Access, me: &Access) -> bool {
        if other.block == me.block {
            return self.memory.shared.is_unordered(other.thread as usize, other.interval, me.thread as usize);
        }
        !self.memory.shared.knows(me.thread as usize, other.block, other.thread as usize, other.interval)
    }

    /// Adds an access to up to two others of its kind since the last write, so that a writer which conflicts with any conflicts with one
    /// that is kept. Returns for whom there are enough.
    fn add(&self, known: &mut [Access; 2], me: Access) -> Option<Enough> {
        let mut open = known.iter().copied().filter(|other| other.location.is_some() && self.is_unordered(other, &me));
        let is_far =
            |other: &Access| other.block != me.block || other.thread as usize / LANES != me.thread as usize / LANES;
        let enough = |other: &Access| {
            if other.block != me.block {
                Some(Enough::ByBlocks)
            } else if is_far(other) {
                Some(Enough::InEpoch)
            } else {
                (other.interval == me.interval).then_some(Enough::InInterval)
            }
        };
        match (open.next(), open.next()) {
            (None, _) => {
                *known = [me, Access::NONE];
                None
            }
            (Some(other), None) => {
                *known = [other, me];
                enough(&other)
            }
            (Some(first), Some(second)) if is_far(&first) => {
                // Of two blocks they stay so.
                let of_two_blocks = first.block != second.block;
                *known = if of_two_blocks { [first, second] } else { [first, me] };
                if of_two_blocks { Some(Enough::ByBlocks) } else { enough(&first) }
            }
            (Some(_), Some(_)) => None,
        }
    }

    #[cold]
    fn global_race(&self, address: usize, other: &Access, me: &Access) -> ! {
        let (Some(location), Some(other_location)) = (me.location, other.location) else {
            unreachable!("accesses have locations")
        };
        let (view, element) = match self.element_at(address) {
            Some((name, element)) => (Some(name), element),
            None => (None, 0),
        };
        let thread = self.threads.get(other.thread as usize).map_or(self.thread().index, |thread| thread.index);
        let kind = FaultKind::GlobalRace {
            view,
            element,
            access: me.kind,
            block: (other.block != me.block).then(|| self.position(other.block)),
            other: OtherAccess { thread, location: other_location.into(), access: other.kind },
        };
        self.fail(location, kind)
    }
}

/// For whom there are readers enough.
enum Enough {
    /// For everybody.
    ByBlocks,
    /// For the block, until its next barrier.
    InEpoch,
    /// For the warp, until it synchronizes.
    InInterval,
}

/// Enters an access to global memory by the running thread, if races are looked for.
#[inline(always)]
pub(crate) fn note_global_access(address: usize, bytes: usize, kind: AccessKind, location: &'static Location<'static>) {
    let context = current();
    if context.global.is_some() {
        context.note_global(address, bytes, kind, location);
    }
}
