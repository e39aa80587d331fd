//! Puts together what the lanes of a warp do in one instruction, and counts what it costs.

mod in_step;

use core::cell::{Cell, RefCell};
use core::panic::Location;
use std::collections::HashMap;
use std::sync::Arc;
use std::vec::Vec;

use super::super::context::LANES;
use super::{Cost, CostKind, Costs};

/// The bytes of a sector of global memory.
const SECTOR: usize = 32;

/// The lanes whose asynchronous copies of 16 bytes ask for sectors together: an H200 counts a sector twice of which two such parts of a warp copy
/// 16 bytes each. Of smaller copies all lanes ask together, as of loads.
const COPYING: u16 = 8;
const COPIED: u16 = 16;

/// The banks of shared memory, and the bytes that each has of a line.
const BANKS: usize = 32;
const BANK_BYTES: usize = 4;

/// What a worker notes for the warps of its block, and has counted.
pub(in super::super) struct Recorder {
    costs: Arc<Costs>,
    kernel: &'static str,
    /// What each warp has done since it has last met.
    open: RefCell<Vec<Warp>>,
    counted: RefCell<HashMap<Key, (&'static Location<'static>, Cost)>>,
    /// How many accesses to shared memory that follow are parts of one that has been noted.
    parts: Cell<usize>,
}

/// The address of a location, and what is done there.
type Key = (usize, CostKind);

/// What a warp has done since it has last met.
#[derive(Default)]
struct Warp {
    lines: HashMap<Key, Open>,
    /// The round of each lane's last access, whatever line it was on.
    rounds: [u32; LANES],
}

/// Accesses on one line.
struct Open {
    location: &'static Location<'static>,
    /// How many each lane has made.
    count: [u32; LANES],
    /// The round that each lane's next one is in at the earliest.
    round: [u32; LANES],
    accesses: Vec<Access>,
}

#[derive(Clone, Copy)]
struct Access {
    /// Which one it is of its lane.
    number: u32,
    /// The same, but not less than the round of the lane's access before, on whatever line: a lane that leaves out a line in some rounds of a
    /// loop is then still in the round of the others, if there is another line that none leaves out. No lane has a round of a line twice.
    round: u32,
    lane: u16,
    bytes: u16,
    address: usize,
}

/// What puts accesses of a line together to requests.
type Together = fn(&Access) -> u32;

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
        let (warp, lane) = (thread / LANES, thread % LANES);
        if open.len() <= warp {
            open.resize_with(warp + 1, Warp::default);
        }
        let Warp { lines, rounds } = &mut open[warp];
        let line = lines.entry((core::ptr::from_ref(location).addr(), kind)).or_insert_with(|| Open {
            location,
            count: [0; LANES],
            round: [0; LANES],
            accesses: Vec::new(),
        });
        let number = line.count[lane];
        let round = line.round[lane].max(rounds[lane]);
        line.count[lane] = number + 1;
        line.round[lane] = round + 1;
        rounds[lane] = round;
        line.accesses.push(Access { number, round, lane: lane as u16, bytes: bytes as u16, address });
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

    /// Counts what a warp has done whose lanes have just met, or ended.
    pub(in super::super) fn have_met(&self, warp: usize) {
        self.parts.set(0);
        let Some(warp) = self.open.borrow_mut().get_mut(warp).map(core::mem::take) else { return };
        for (key, Open { location, accesses, .. }) in warp.lines {
            self.add(key, location, &of_line(key.1, accesses));
        }
    }

    fn add(&self, key: Key, location: &'static Location<'static>, cost: &Cost) {
        self.counted.borrow_mut().entry(key).or_insert((location, Cost::default())).1.add(cost);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let warps = self.open.borrow().len();
        (0..warps).for_each(|warp| self.have_met(warp));
        for ((_, kind), (location, cost)) in self.counted.take() {
            self.costs.add(self.kernel, location, kind, &cost);
        }
    }
}

/// What accesses on one line cost. What belongs together is, as a rule, close together: of the ways to put accesses together, the one counts
/// by which they cost less.
fn of_line(kind: CostKind, mut accesses: Vec<Access>) -> Cost {
    let by_step =
        in_step::in_step(&accesses).map(|mut accesses| put_together(kind, &mut accesses, |access| access.round));
    let by_number = put_together(kind, &mut accesses, |access| access.number);
    let by_round = put_together(kind, &mut accesses, |access| access.round);
    let price = |cost: &Cost| (cost.sectors + cost.wavefronts, cost.requests);
    // The first of those that cost the same.
    [Some(by_number), Some(by_round), by_step].into_iter().flatten().min_by_key(price).unwrap_or_default()
}

/// What accesses cost that are put together in this way.
fn put_together(kind: CostKind, accesses: &mut [Access], way: Together) -> Cost {
    // By lanes within: a line may have come to some of them in another order.
    accesses.sort_by_key(|access| (way(access), access.lane));
    let mut cost = Cost::default();
    accesses.chunk_by(|a, b| way(a) == way(b)).for_each(|lanes| cost.add(&of_request(kind, lanes)));
    cost
}

/// What one instruction costs, of which these are the accesses of lanes.
fn of_request(kind: CostKind, lanes: &[Access]) -> Cost {
    let mut cost = Cost { requests: 1, lanes: lanes.len() as u64, ..Cost::default() };
    match kind {
        CostKind::Wait | CostKind::Tma => return cost,
        CostKind::AsyncCopy if lanes.iter().any(|access| access.bytes == COPIED) => {
            let together = |a: &Access, b: &Access| a.lane / COPYING == b.lane / COPYING;
            cost.sectors = lanes.chunk_by(together).map(|lanes| count(lanes, SECTOR)).sum();
        }
        CostKind::GlobalLoad | CostKind::GlobalAtomicLoad | CostKind::GlobalStore | CostKind::AsyncCopy => {
            cost.sectors = count(lanes, SECTOR);
        }
        CostKind::GlobalAtomic => {
            cost.sectors = count(lanes, SECTOR);
            cost.conflicts = met_by_others(lanes);
        }
        CostKind::SharedAtomic => {
            cost.wavefronts = wavefronts(kind, lanes).0;
            cost.conflicts = met_by_others(lanes);
        }
        CostKind::SharedLoad | CostKind::SharedStore => (cost.wavefronts, cost.conflicts) = wavefronts(kind, lanes),
    }
    cost.bytes = count(lanes, 1);
    cost
}

/// In how many different pieces of memory of so many bytes these accesses are. A copy of nothing, which only fills in zeros, is in none.
fn count(lanes: &[Access], piece: usize) -> u64 {
    let pieces = |access: &Access| access.address / piece..(access.address + usize::from(access.bytes)).div_ceil(piece);
    let mut all: Vec<usize> = lanes.iter().filter(|access| access.bytes > 0).flat_map(pieces).collect();
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

/// Whether lanes read in pairs from the same address, each with its neighbour or each with the one after that.
fn is_in_pairs(lanes: &[Access]) -> bool {
    let mut address = [None; LANES];
    lanes.iter().for_each(|access| address[usize::from(access.lane) % LANES] = Some(access.address));
    let has_partner = |distance: usize| {
        let is_same =
            |(lane, address_of_lane): (usize, &Option<usize>)| match (address_of_lane, address[lane ^ distance]) {
                (Some(one), Some(other)) => *one == other,
                _ => true,
            };
        address.iter().enumerate().all(is_same)
    };
    has_partner(1) || has_partner(2)
}

/// How many passes through shared memory an instruction takes, and how many more than without conflicts.
///
/// A pass gives each lane of 32 four bytes. So accesses of 8 bytes are served for 16 lanes at a time, those of 16 bytes for 8; loads in
/// pairs from the same addresses for twice as many.
fn wavefronts(kind: CostKind, lanes: &[Access]) -> (u64, u64) {
    let widest = lanes.iter().map(|access| usize::from(access.bytes)).max().unwrap_or(BANK_BYTES);
    let passes = match widest.div_ceil(BANK_BYTES).clamp(1, 4) {
        passes if passes > 1 && kind == CostKind::SharedLoad && is_in_pairs(lanes) => passes.div_ceil(2),
        passes => passes,
    };
    let at_once = LANES / passes;
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
        (0..LANES)
            .map(|lane| Access { number: 0, round: 0, lane: lane as u16, bytes, address: address(lane) })
            .collect()
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
        assert_eq!(global(0, |lane| 4112 + 16 * lane), (0, 0), "nothing, wherever that begins");
        let copies = |bytes: u16, first: usize| {
            of_request(CostKind::AsyncCopy, &lanes(bytes, |lane| first + usize::from(bytes) * lane)).sectors
        };
        assert_eq!((global(16, |lane| 4112 + 16 * lane).0, copies(16, 4112)), (17, 20), "not aligned, by eight lanes");
        assert_eq!(copies(16, 4096), 16, "copies of 128 bytes by eight lanes");
        assert_eq!(copies(4, 4100), 5, "copies of elements, by all lanes");
    }

    #[test]
    fn lanes_that_access_different_words_of_a_bank_wait_for_one_another() {
        let shared =
            |bytes: u16, address: &dyn Fn(usize) -> usize| wavefronts(CostKind::SharedLoad, &lanes(bytes, address));
        assert_eq!(shared(4, &|lane| 4 * lane), (1, 0), "neighbours");
        assert_eq!(shared(4, &|_| 64), (1, 0), "one for all");
        assert_eq!(shared(4, &|lane| 8 * lane), (2, 1), "every other word");
        assert_eq!(shared(4, &|lane| 128 * lane), (32, 31), "a column");
        assert_eq!(shared(4, &|lane| 132 * lane), (1, 0), "a column, padded");
        assert_eq!(shared(2, &|lane| 2 * lane), (1, 0), "halfwords");
        assert_eq!(shared(8, &|lane| 8 * lane), (2, 0), "pairs");
        assert_eq!(shared(16, &|lane| 16 * lane), (4, 0), "vectors");
        assert_eq!(shared(16, &|lane| 128 * lane), (32, 28), "a column of vectors");
        assert_eq!(shared(16, &|_| 64), (2, 0), "one vector for all");
        assert_eq!(shared(8, &|_| 64), (1, 0), "one pair for all");
        assert_eq!(shared(16, &|lane| 16 * (lane / 2)), (2, 0), "vectors for neighbours");
        assert_eq!(shared(16, &|lane| 16 * (lane / 4 * 2 + lane % 2)), (2, 0), "vectors for every other lane");
        assert_eq!(wavefronts(CostKind::SharedStore, &lanes(16, |_| 64)), (4, 0), "stores");
    }

    /// Lanes that leave out what is behind a branch in some rounds of a loop: rounds are told by what is before the branch.
    #[test]
    fn a_lane_that_leaves_out_a_round_is_in_step_with_the_others() {
        let costs = Arc::<Costs>::default();
        let recorder = Recorder::new(&costs, "kernel");
        let (before, behind) = (Location::caller(), here());
        for lane in 0..LANES {
            for round in 0..8 {
                recorder.note(CostKind::SharedLoad, lane, (4 * lane, 4), before);
                // Each lane leaves out another one.
                if lane % 8 != round {
                    recorder.note(CostKind::GlobalStore, lane, (4096 * round + 4 * lane, 4), behind);
                }
            }
        }
        drop(recorder);
        let kernels = costs.kernels();
        assert_eq!(kernels[0].total(CostKind::SharedLoad).requests, 8);
        assert_eq!(kernels[0].total(CostKind::GlobalStore).requests, 8);
        assert_eq!(kernels[0].total(CostKind::GlobalStore).sectors, 8 * 4);
    }

    /// Two parts of each line, of which the second is not there for all lanes, as at the edge of a matrix: nothing is between them that would
    /// tell rounds, and the numbers of lanes' accesses run apart.
    #[test]
    fn a_lane_that_leaves_out_every_other_access_of_a_line_is_in_step_with_the_others() {
        let costs = Arc::<Costs>::default();
        let recorder = Recorder::new(&costs, "kernel");
        let at = |line: usize, part: usize, lane: usize| 4096 + 1024 * line + 128 * part + 4 * lane;
        for lane in 0..LANES {
            for line in 0..8 {
                for part in 0..if lane < 6 { 2 } else { 1 } {
                    recorder.note(CostKind::GlobalLoad, lane, (at(line, part, lane), 4), Location::caller());
                }
            }
        }
        drop(recorder);
        let loads = costs.kernels()[0].total(CostKind::GlobalLoad);
        assert_eq!((loads.requests, loads.sectors), (16, 8 * (4 + 1)));
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    /// Warps of a block take turns, and each lane of one may stop at an atomic operation: what belongs together is counted together.
    #[test]
    fn warps_that_take_turns_are_counted_apart() {
        let costs = Arc::<Costs>::default();
        let recorder = Recorder::new(&costs, "kernel");
        for lane in 0..LANES {
            for warp in [1, 0] {
                recorder.note(
                    CostKind::GlobalLoad,
                    warp * LANES + lane,
                    (4096 * warp + 4 * lane, 4),
                    Location::caller(),
                );
            }
        }
        recorder.have_met(1);
        drop(recorder);
        let loads = costs.kernels()[0].total(CostKind::GlobalLoad);
        assert_eq!((loads.requests, loads.sectors, loads.lanes), (2, 8, 64));
    }

    #[test]
    fn lanes_that_add_to_one_element_are_counted() {
        let cost = of_request(CostKind::GlobalAtomic, &lanes(4, |lane| 4096 + 4 * (lane % 8)));
        assert_eq!((cost.sectors, cost.conflicts, cost.bytes), (1, 24, 32));
    }
}
