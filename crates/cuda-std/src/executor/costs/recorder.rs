//! Puts together what the lanes of a warp do in one instruction, and counts what it costs.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use std::collections::HashMap;
use std::sync::Arc;
use std::vec::Vec;

use super::super::context::LANES;
use super::{Cost, CostKind, Costs};

/// The bytes of a sector of global memory.
const SECTOR: usize = 32;

/// The banks of shared memory, and the bytes that each has of a line.
const BANKS: usize = 32;
const BANK_BYTES: usize = 4;

/// What a worker notes for the warp that runs, and has counted.
pub(in super::super) struct Recorder {
    costs: Arc<Costs>,
    kernel: &'static str,
    /// Accesses since the warp has last met, by line.
    open: RefCell<HashMap<Key, Open>>,
    counted: RefCell<HashMap<Key, (&'static Location<'static>, Cost)>>,
    /// How many accesses to shared memory that follow are parts of one that has been noted.
    parts: Cell<usize>,
}

/// The address of a location, and what is done there.
type Key = (usize, CostKind);

/// Accesses on one line.
struct Open {
    location: &'static Location<'static>,
    /// How many each lane has made.
    count: [u32; LANES],
    accesses: Vec<Access>,
}

#[derive(Clone, Copy)]
struct Access {
    /// Which one it is of its lane.
    number: u32,
    lane: u16,
    bytes: u16,
    address: usize,
}

impl Recorder {
    pub(in super::super) fn new(costs: &Arc<Costs>, kernel: &'static str) -> Self {
        Self {
            costs: Arc::clone(costs),
            kernel,
            open: RefCell::default(),
            counted: RefCell::default(),
            parts: Cell::new(0),
        }
    }

    /// Notes an access by a lane of the warp that runs: the address of its first byte, or its place in shared memory. A wait has none, and no
    /// bytes.
    pub(in super::super) fn note(
        &self,
        kind: CostKind,
        thread: usize,
        (address, bytes): (usize, usize),
        location: &'static Location<'static>,
    ) {
        let mut open = self.open.borrow_mut();
        let open = open.entry((core::ptr::from_ref(location).addr(), kind)).or_insert_with(|| Open {
            location,
            count: [0; LANES],
            accesses: Vec::new(),
        });
        let lane = thread % LANES;
        let count = &mut open.count[lane];
        open.accesses.push(Access { number: *count, lane: lane as u16, bytes: bytes as u16, address });
        *count += 1;
    }

    /// Notes an access to shared memory, unless it is a part of one that has been noted.
    pub(in super::super) fn note_shared(
        &self,
        kind: CostKind,
        thread: usize,
        place: (usize, usize),
        location: &'static Location<'static>,
    ) {
        match self.parts.get() {
            0 => self.note(kind, thread, place, location),
            parts => self.parts.set(parts - 1),
        }
    }

    /// Notes an access to shared memory that the executor makes in so many parts.
    pub(in super::super) fn note_whole(
        &self,
        kind: CostKind,
        thread: usize,
        place: (usize, usize),
        parts: usize,
        location: &'static Location<'static>,
    ) {
        self.note(kind, thread, place, location);
        self.parts.set(parts);
    }

    /// Notes that a thread has asked TMA for a tile of so many bytes.
    pub(in super::super) fn note_tile(&self, bytes: usize, location: &'static Location<'static>) {
        let sectors = bytes.div_ceil(SECTOR) as u64;
        let cost = Cost { requests: 1, lanes: 1, bytes: bytes as u64, sectors, ..Cost::default() };
        self.add((core::ptr::from_ref(location).addr(), CostKind::Tma), location, &cost);
    }

    /// Counts what the warp has done that has just stopped.
    pub(in super::super) fn end_of_turn(&self) {
        self.parts.set(0);
        for (key, mut open) in self.open.borrow_mut().drain() {
            open.accesses.sort_by_key(|access| access.number);
            let mut cost = Cost::default();
            open.accesses.chunk_by(|a, b| a.number == b.number).for_each(|lanes| cost.add(&of_request(key.1, lanes)));
            self.add(key, open.location, &cost);
        }
    }

    fn add(&self, key: Key, location: &'static Location<'static>, cost: &Cost) {
        self.counted.borrow_mut().entry(key).or_insert((location, Cost::default())).1.add(cost);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end_of_turn();
        for ((_, kind), (location, cost)) in self.counted.take() {
            self.costs.add(self.kernel, location, kind, &cost);
        }
    }
}

/// What one instruction costs, of which these are the accesses of lanes.
fn of_request(kind: CostKind, lanes: &[Access]) -> Cost {
    let mut cost = Cost { requests: 1, lanes: lanes.len() as u64, ..Cost::default() };
    match kind {
        CostKind::Wait | CostKind::Tma => return cost,
        CostKind::GlobalLoad | CostKind::GlobalStore | CostKind::AsyncCopy => cost.sectors = count(lanes, SECTOR),
        CostKind::GlobalAtomic => {
            cost.sectors = count(lanes, SECTOR);
            cost.conflicts = met_by_others(lanes);
        }
        CostKind::SharedAtomic => {
            cost.wavefronts = wavefronts(lanes).0;
            cost.conflicts = met_by_others(lanes);
        }
        CostKind::SharedLoad | CostKind::SharedStore => (cost.wavefronts, cost.conflicts) = wavefronts(lanes),
    }
    cost.bytes = count(lanes, 1);
    cost
}

/// In how many different pieces of memory of so many bytes these accesses are.
fn count(lanes: &[Access], piece: usize) -> u64 {
    let pieces = |access: &Access| access.address / piece..(access.address + usize::from(access.bytes)).div_ceil(piece);
    let mut all: Vec<usize> = lanes.iter().flat_map(pieces).collect();
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// How many of these accesses are to an element that an earlier one is to as well.
fn met_by_others(lanes: &[Access]) -> u64 {
    let mut addresses: Vec<usize> = lanes.iter().map(|access| access.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    (lanes.len() - addresses.len()) as u64
}

/// How many passes through shared memory an instruction takes, and how many more than without conflicts. Accesses of 8 bytes are served for 16
/// lanes at a time, those of 16 bytes for 8.
fn wavefronts(lanes: &[Access]) -> (u64, u64) {
    let widest = lanes.iter().map(|access| usize::from(access.bytes)).max().unwrap_or(BANK_BYTES);
    let at_once = LANES / widest.div_ceil(BANK_BYTES).clamp(1, 4);
    let (mut all, mut conflicts) = (0, 0);
    // They are in the order of the lanes, of which not all need take part.
    for lanes in lanes.chunk_by(|a, b| usize::from(a.lane) / at_once == usize::from(b.lane) / at_once) {
        let words = |access: &Access| {
            access.address / BANK_BYTES..(access.address + usize::from(access.bytes)).div_ceil(BANK_BYTES)
        };
        let mut words: Vec<usize> = lanes.iter().flat_map(words).collect();
        words.sort_unstable();
        words.dedup();
        let mut of_bank = [0u64; BANKS];
        words.into_iter().for_each(|word| of_bank[word % BANKS] += 1);
        let passes = of_bank.into_iter().max().unwrap_or(0);
        all += passes;
        conflicts += passes.saturating_sub(1);
    }
    (all, conflicts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of so many bytes each, by 32 lanes, in the order of the lanes.
    fn lanes(bytes: u16, address: impl Fn(usize) -> usize) -> Vec<Access> {
        (0..LANES).map(|lane| Access { number: 0, lane: lane as u16, bytes, address: address(lane) }).collect()
    }

    fn global(bytes: u16, address: impl Fn(usize) -> usize) -> (u64, u64) {
        let cost = of_request(CostKind::GlobalLoad, &lanes(bytes, address));
        (cost.sectors, cost.bytes)
    }

    #[test]
    fn sectors_are_counted_once_for_a_request() {
        assert_eq!(global(4, |lane| 4096 + 4 * lane), (4, 128), "neighbours");
        assert_eq!(global(4, |lane| 4100 + 4 * lane), (5, 128), "not aligned");
        assert_eq!(global(16, |lane| 4096 + 16 * lane), (16, 512), "vectors");
        assert_eq!(global(4, |lane| 4096 + 8 * lane), (8, 128), "every other one");
        assert_eq!(global(4, |lane| 4096 + 1024 * lane), (32, 128), "a column");
        assert_eq!(global(4, |_| 4096), (1, 4), "one for all");
        assert_eq!(global(1, |lane| 4096 + lane), (1, 32), "bytes");
    }

    #[test]
    fn lanes_that_access_different_words_of_a_bank_wait_for_one_another() {
        let shared = |bytes: u16, address: &dyn Fn(usize) -> usize| wavefronts(&lanes(bytes, address));
        assert_eq!(shared(4, &|lane| 4 * lane), (1, 0), "neighbours");
        assert_eq!(shared(4, &|_| 64), (1, 0), "one for all");
        assert_eq!(shared(4, &|lane| 8 * lane), (2, 1), "every other word");
        assert_eq!(shared(4, &|lane| 128 * lane), (32, 31), "a column");
        assert_eq!(shared(4, &|lane| 132 * lane), (1, 0), "a column, padded");
        assert_eq!(shared(2, &|lane| 2 * lane), (1, 0), "halfwords");
        assert_eq!(shared(8, &|lane| 8 * lane), (2, 0), "pairs");
        assert_eq!(shared(16, &|lane| 16 * lane), (4, 0), "vectors");
        assert_eq!(shared(16, &|lane| 128 * lane), (32, 28), "a column of vectors");
    }

    #[test]
    fn lanes_that_add_to_one_element_are_counted() {
        let cost = of_request(CostKind::GlobalAtomic, &lanes(4, |lane| 4096 + 4 * (lane % 8)));
        assert_eq!((cost.sectors, cost.conflicts, cost.bytes), (1, 24, 32));
    }
}
