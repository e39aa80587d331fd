//! Who does what: roles of warps, storage, hand-offs and lifetimes, all of it found from the steps of a block.
//!
//! ```text
//!  roles       warps that do the same kinds of things            warps 0–3 multiply by wgmma, warp 4 issues TMA loads
//!  storage     what TMA, or asynchronous copies, fill together   stage 0: 16384 bytes, told to the mbarrier at byte 32768
//!  hand-offs   for each barrier who arrives and who waits        mbarrier at byte 32784: 4 arrivals of consumers, 1 wait of the producer
//!  lifetimes   of each fill of a stage                           issued at 12, there at 40, read from 44 to 61
//! ```
//!
//! A stage of a pipeline is what is filled for one barrier; of asynchronous copies, what one group fills.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Barrier, Block, Kind, Memory, Step};

/// Warps that do what is called the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// What they are called.
    pub name: String,
    /// Their numbers.
    pub warps: Vec<usize>,
    /// What they do.
    pub duties: Vec<&'static str>,
    /// How often each kind of step comes, of all of them.
    pub counts: BTreeMap<Kind, u64>,
}

/// What is filled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The memory.
    pub memory: Memory,
    /// Its bytes.
    pub ranges: Vec<Range<usize>>,
    /// The barrier that is told, of loads by TMA.
    pub barrier: Option<Barrier>,
    /// Each time that it was filled.
    pub fills: Vec<Fill>,
}

/// A stage that was filled once. All numbers are those of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// The first transfer or copy.
    pub issued: u64,
    /// When all of it was there.
    pub there: Option<u64>,
    /// The first read, and the last one: of products, the step that issues them.
    pub read: Option<(u64, u64)>,
}

/// Memory, and who writes and reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The memory.
    pub memory: Memory,
    /// Its bytes.
    pub bytes: Range<usize>,
    /// Who writes it: names of roles, and `TMA`.
    pub written_by: Vec<String>,
    /// Who reads it, and how.
    pub read_by: Vec<String>,
}

/// A barrier, and who hands what to whom by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// The barrier.
    pub barrier: Barrier,
    /// How often each role arrives.
    pub arrivals: BTreeMap<String, u64>,
    /// How often each role waits.
    pub waits: BTreeMap<String, u64>,
    /// How often it was complete.
    pub phases: u64,
    /// The bytes that TMA has told it of.
    pub bytes: u64,
}

/// What follows from the steps of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Roles, by their first warps.
    pub roles: Vec<Role>,
    /// Stages, by their first bytes.
    pub stages: Vec<Stage>,
    /// Shared memory beside the stages.
    pub storage: Vec<Storage>,
    /// Barriers.
    pub handoffs: Vec<Handoff>,
}

impl Summary {
    /// Of a block.
    pub fn of(block: &Block) -> Self {
        let roles = roles(block);
        let stages = stages(block);
        let storage = storage(block, &roles, &stages);
        let handoffs = handoffs(block, &roles);
        Self { roles, stages, storage, handoffs }
    }

    /// The role of a warp.
    pub fn role(&self, warp: usize) -> Option<&Role> {
        role_of(&self.roles, warp)
    }

    /// Whether warps differ in what they do.
    pub fn is_specialized(&self) -> bool {
        self.roles.len() > 1
    }
}

impl Stage {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    fn is_touched(&self, step: &Step) -> bool {
        self.ranges.iter().any(|range| step.touches(self.memory, range))
    }
}

/// The numbers of warps, neighbours taken together: `0–3, 5`.
pub(crate) fn numbers(warps: &[usize]) -> String {
    let mut runs: Vec<[usize; 2]> = Vec::new();
    for &warp in warps {
        match runs.last_mut() {
            Some([_, last]) if *last + 1 == warp => *last = warp,
            _ => runs.push([warp, warp]),
        }
    }
    let run = |[first, last]: [usize; 2]| if first == last { first.to_string() } else { format!("{first}–{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(", ")
}

fn role_of(roles: &[Role], warp: usize) -> Option<&Role> {
    roles.iter().find(|role| role.warps.contains(&warp))
}

/// What is done by whoever does one of these kinds of things.
const DUTIES: [(&str, &[Kind]); 9] = [
    ("issues TMA loads", &[Kind::TmaLoad]),
    ("copies asynchronously", &[Kind::AsyncCopy]),
    ("writes tiles for tensor cores", &[Kind::FenceAsync]),
    ("multiplies by wgmma", &[Kind::Wgmma]),
    ("multiplies by mma", &[Kind::Mma]),
    ("stores by TMA", &[Kind::TmaStore]),
    ("stores to global memory", &[Kind::GlobalStore]),
    ("loads from global memory", &[Kind::GlobalLoad]),
    ("updates global memory atomically", &[Kind::GlobalAtomic]),
];

fn roles(block: &Block) -> Vec<Role> {
    let mut counts: BTreeMap<usize, BTreeMap<Kind, u64>> = BTreeMap::new();
    for step in &block.steps {
        if let Some(warp) = step.warp {
            *counts.entry(warp).or_default().entry(step.kind).or_default() += step.times;
        }
    }
    let mut roles: Vec<Role> = Vec::new();
    for (warp, counts) in counts {
        let has = |kind: &Kind| counts.contains_key(kind);
        let duties: Vec<_> = DUTIES.iter().filter(|(_, kinds)| kinds.iter().any(has)).map(|(duty, _)| *duty).collect();
        let name = name(&counts);
        match roles.iter_mut().find(|role| role.name == name) {
            Some(role) => {
                role.warps.push(warp);
                counts.into_iter().for_each(|(kind, count)| *role.counts.entry(kind).or_default() += count);
                role.duties.extend(duties.into_iter().filter(|duty| !role.duties.contains(duty)).collect::<Vec<_>>());
            }
            None => roles.push(Role { name: name.to_owned(), warps: vec![warp], duties, counts }),
        }
    }
    roles
}

fn name(counts: &BTreeMap<Kind, u64>) -> &'static str {
    let has = |kind: Kind| counts.contains_key(&kind);
    let multiplies = has(Kind::Wgmma) || has(Kind::Mma);
    match () {
        () if multiplies && (has(Kind::TmaLoad) || has(Kind::AsyncCopy) || has(Kind::GlobalLoad)) => {
            "loader and consumer"
        }
        () if multiplies => "consumer",
        () if has(Kind::TmaLoad) && has(Kind::FenceAsync) => "producer and converter",
        () if has(Kind::TmaLoad) => "producer",
        () if has(Kind::FenceAsync) => "converter",
        () if has(Kind::TmaStore) => "storer",
        () if has(Kind::GlobalLoad) || has(Kind::GlobalStore) || has(Kind::SharedStore) || has(Kind::GlobalAtomic) => {
            "worker"
        }
        () => "idle",
    }
}

/// Adds a range to others that are in order and apart.
fn add(ranges: &mut Vec<Range<usize>>, new: &Range<usize>) {
    ranges.push(new.clone());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}

fn stages(block: &Block) -> Vec<Stage> {
    let mut stages = stages_of_tma(block);
    stages.extend(stages_of_copies(block));
    for stage in &mut stages {
        let touches: Vec<_> = block.steps.iter().filter(|step| stage.is_touched(step)).collect();
        let (mut fill, mut is_overwritten) = (0, false);
        for step in touches {
            while stage.fills.get(fill + 1).is_some_and(|next| next.issued <= step.step) {
                (fill, is_overwritten) = (fill + 1, false);
            }
            let Some(fill) = stage.fills.get_mut(fill).filter(|fill| fill.there.is_some_and(|there| there < step.step))
            else {
                continue;
            };
            // What threads write there themselves, at the end of a product say, is another use of the memory.
            is_overwritten |= step.kind == Kind::SharedStore;
            if is_read(step.kind) && !is_overwritten {
                let first = fill.read.map_or(step.step, |(first, _)| first);
                fill.read = Some((first, step.step));
            }
        }
    }
    stages.sort_by_key(|stage| (stage.memory, stage.ranges.first().map_or(0, |range| range.start)));
    stages
}

fn is_read(kind: Kind) -> bool {
    matches!(kind, Kind::SharedLoad | Kind::Wgmma | Kind::TmaStore | Kind::SharedAtomic)
}

fn stages_of_tma(block: &Block) -> Vec<Stage> {
    let mut stages: BTreeMap<(Memory, Barrier), Stage> = BTreeMap::new();
    // The phase that the transfers of the last fill are for is over when it is complete.
    for step in &block.steps {
        let own = matches!(step.memory, Some(Memory::Shared(_)));
        match (step.kind, step.memory, step.barrier) {
            (Kind::TmaLoad, Some(memory), Some(barrier)) if own => {
                let none = || Stage { memory, ranges: Vec::new(), barrier: Some(barrier), fills: Vec::new() };
                let stage = stages.entry((memory, barrier)).or_insert_with(none);
                step.ranges().for_each(|range| add(&mut stage.ranges, &range));
                if stage.fills.last().is_none_or(|fill| fill.there.is_some()) {
                    stage.fills.push(Fill { issued: step.step, ..Fill::default() });
                }
            }
            (Kind::Complete, _, Some(barrier)) => {
                for stage in stages.values_mut().filter(|stage| stage.barrier == Some(barrier)) {
                    if let Some(fill) = stage.fills.last_mut() {
                        fill.there.get_or_insert(step.step);
                    }
                }
            }
            _ => {}
        }
    }
    stages.into_values().collect()
}

fn stages_of_copies(block: &Block) -> Vec<Stage> {
    /// What a group fills, and its first step.
    type Group = (Vec<Range<usize>>, u64);
    let mut groups: BTreeMap<(Memory, u64), Group> = BTreeMap::new();
    for step in block.steps.iter().filter(|step| step.kind == Kind::AsyncCopy) {
        if let (Some(memory), Some(group)) = (step.memory, step.phase) {
            let (ranges, _) = groups.entry((memory, group)).or_insert((Vec::new(), step.step));
            step.ranges().for_each(|range| add(ranges, &range));
        }
    }
    let mut stages: Vec<Stage> = Vec::new();
    for ((memory, group), (ranges, issued)) in groups {
        let is_over = |step: &&Step| step.kind == Kind::AsyncCopyWait && step.phase.is_some_and(|end| end > group);
        let there = block.steps.iter().filter(|step| step.step > issued).find(is_over).map(|step| step.step);
        let fill = Fill { issued, there, read: None };
        match stages.iter_mut().find(|stage| stage.memory == memory && stage.ranges == ranges) {
            Some(stage) => stage.fills.push(fill),
            None => stages.push(Stage { memory, ranges, barrier: None, fills: vec![fill] }),
        }
    }
    stages
}

/// How far apart parts may lie that are one part: rows of a tile have gaps, so that they begin in different banks.
const GAP: usize = 128;

/// Shared memory that threads write, and stages: who writes, who reads.
fn storage(block: &Block, roles: &[Role], stages: &[Stage]) -> Vec<Storage> {
    let mut written: BTreeMap<Memory, Vec<Range<usize>>> = BTreeMap::new();
    for step in block.steps.iter().filter(|step| matches!(step.kind, Kind::SharedStore | Kind::SharedAtomic)) {
        if let Some(memory) = step.memory {
            step.ranges().for_each(|range| add(written.entry(memory).or_default(), &range));
        }
    }
    let mut parts: Vec<(Memory, Range<usize>)> = Vec::new();
    for stage in stages {
        parts.extend(stage.ranges.iter().map(|range| (stage.memory, range.clone())));
    }
    // What is written to a stage besides, its row says.
    let of_stages = parts.clone();
    for (memory, ranges) in written {
        for range in ranges {
            let overlaps = |(other, stage): &(Memory, Range<usize>)| {
                *other == memory && stage.start < range.end && range.start < stage.end
            };
            let mut first = range.start;
            let mut inside: Vec<_> = of_stages.iter().filter(|part| overlaps(part)).map(|(_, stage)| stage).collect();
            inside.sort_unstable_by_key(|stage| stage.start);
            for stage in inside {
                if first < stage.start {
                    parts.push((memory, first..stage.start));
                }
                first = first.max(stage.end);
            }
            if first < range.end {
                parts.push((memory, first..range.end));
            }
        }
    }
    parts.sort_unstable_by_key(|(memory, range)| (*memory, range.start, range.end));
    parts.dedup();
    let who = |step: &Step| {
        let role = step.warp.and_then(|warp| role_of(roles, warp)).map_or(step.by.as_str(), |role| role.name.as_str());
        match step.kind {
            Kind::SharedLoad | Kind::SharedStore => role.to_owned(),
            Kind::TmaLoaded => "TMA".to_owned(),
            kind => format!("{role} by {kind}"),
        }
    };
    let mut all: Vec<Storage> = Vec::new();
    // What a stage is, stays one.
    let mut was_stage = true;
    for (memory, bytes) in parts {
        let by = |is_meant: fn(Kind) -> bool| {
            let steps = block.steps.iter().filter(|step| is_meant(step.kind) && step.touches(memory, &bytes));
            steps.map(who).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let written_by =
            by(|kind| matches!(kind, Kind::SharedStore | Kind::SharedAtomic | Kind::TmaLoaded | Kind::AsyncCopy));
        let read_by = by(is_read);
        let is_stage = of_stages.iter().any(|(of, stage)| *of == memory && *stage == bytes);
        match all.last_mut() {
            Some(last)
                if !is_stage
                    && !was_stage
                    && last.memory == memory
                    && bytes.start - last.bytes.end.min(bytes.start) <= GAP
                    && (&last.written_by, &last.read_by) == (&written_by, &read_by) =>
            {
                last.bytes.end = last.bytes.end.max(bytes.end);
            }
            _ => all.push(Storage { memory, bytes, written_by, read_by }),
        }
        was_stage = is_stage;
    }
    all
}

fn handoffs(block: &Block, roles: &[Role]) -> Vec<Handoff> {
    let mut handoffs: BTreeMap<Barrier, Handoff> = BTreeMap::new();
    for step in &block.steps {
        let Some(barrier) = step.barrier else { continue };
        let handoff = handoffs.entry(barrier).or_insert_with(|| Handoff {
            barrier,
            arrivals: BTreeMap::new(),
            waits: BTreeMap::new(),
            phases: 0,
            bytes: 0,
        });
        let role = step.warp.and_then(|warp| role_of(roles, warp)).map_or(step.by.clone(), |role| role.name.clone());
        match step.kind {
            // Each lane arrives by itself.
            Kind::Arrive => {
                *handoff.arrivals.entry(role).or_default() += step.times * u64::from(step.lanes.count_ones())
            }
            Kind::Wait => *handoff.waits.entry(role).or_default() += step.times,
            Kind::Complete => handoff.phases += 1,
            Kind::TmaLoaded => handoff.bytes += step.bytes,
            _ => {}
        }
    }
    handoffs.into_values().collect()
}
