//! Clusters on the CPU: the blocks of one run at the same time, each with a worker of its own, and take turns. A worker whose block can do
//! nothing sleeps until another block of the cluster has done something that it may have waited for.
//!
//! ```text
//!  worker 0   rank 0 ●───╮ sleeps: waits at the barrier of the cluster      ╭──● goes on
//!  worker 1   rank 1     ╰───●──╮ sleeps: waits for an arrival              │
//!  worker 2   rank 2            ╰──●──╮ sleeps                              │
//!  worker 3   rank 3                  ╰──● arrives last, and wakes them ────╯     … or nobody is left awake: a report
//! ```
//!
//! What one block does to the memory of another one is in [`super::remote`].

use core::panic::Location;
use core::ptr;
use std::boxed::Box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::barriers::{Wait, stop_until, wait_for};
use super::context::{Context, LANES, State, current};
use super::exchange::lanes_of_warp;
use super::fault::{Elsewhere, Fault, FaultKind};
use super::known::Known;
use super::remote::Shadow;
use super::steps::{StepBarrier, StepKind};
use super::turns::{self, Turn, Turns};
use super::workers::Launch;
use crate::Dim3;

/// How the blocks of a grid are divided into clusters. Without any, each block is one of its own.
#[derive(Clone, Copy)]
pub(super) struct Clusters {
    grid: Dim3,
    dim: Dim3,
}

impl Clusters {
    pub(super) fn new(grid: Dim3, cluster: Option<[u32; 3]>) -> Self {
        Self { grid, dim: cluster.unwrap_or([1; 3]).into() }
    }

    /// The blocks of a cluster.
    pub(super) fn blocks(&self) -> u64 {
        self.dim.volume() as u64
    }

    pub(super) fn dim(&self) -> Dim3 {
        self.dim
    }

    /// The extents of the grid, in clusters.
    fn grid(&self) -> Dim3 {
        Dim3::new(self.grid.x / self.dim.x, self.grid.y / self.dim.y, self.grid.z / self.dim.z)
    }

    /// The number of the block of a rank in a cluster, both in linear order.
    pub(super) fn block(&self, cluster: u64, rank: usize) -> u64 {
        let (cluster, within) = (position(self.grid(), cluster), position(self.dim, rank as u64));
        let at = |cluster: u32, dim: u32, within: u32| u64::from(cluster) * u64::from(dim) + u64::from(within);
        let (x, y, z) = (
            at(cluster.x, self.dim.x, within.x),
            at(cluster.y, self.dim.y, within.y),
            at(cluster.z, self.dim.z, within.z),
        );
        (z * u64::from(self.grid.y) + y) * u64::from(self.grid.x) + x
    }

    /// The position of the cluster of a block.
    fn of(&self, block: Dim3) -> Dim3 {
        Dim3::new(block.x / self.dim.x, block.y / self.dim.y, block.z / self.dim.z)
    }

    /// Whether two blocks are of the same cluster.
    pub(super) fn are_together(&self, one: u64, other: u64) -> bool {
        one == other || self.blocks() > 1 && self.of(position(self.grid, one)) == self.of(position(self.grid, other))
    }
}

/// The coordinates of a number in linear order.
pub(super) fn position(extents: Dim3, number: u64) -> Dim3 {
    let (x, y) = (u64::from(extents.x), u64::from(extents.y));
    Dim3::new((number % x) as u32, (number / x % y) as u32, (number / x / y) as u32)
}

/// The workers that run clusters together, one after the other.
pub(super) struct Team<'a> {
    clusters: Clusters,
    turns: &'a Turns,
    /// The number of its first worker among those that take turns.
    first: usize,
    /// Whether nobody else takes turns with its workers.
    is_alone: bool,
    seed: u64,
    /// The threads of all blocks of a cluster.
    threads: usize,
    members: Mutex<Members>,
    meeting: Mutex<Meeting>,
    /// Who has accessed what shared memory of the cluster.
    pub(super) shadow: Shadow,
}

struct Members {
    /// How many clusters the team has begun.
    begun: u64,
    /// The cluster that it runs, unless there is none left.
    cluster: Option<u64>,
    /// By rank.
    all: Vec<Member>,
}

struct Member {
    /// Null before the worker has come, and after it has left.
    context: *const Context<'static>,
    /// How many clusters it has begun to run a block of.
    begun: u64,
    stage: Stage,
}

// SAFETY: the pointer is followed by a worker of the team whose turn it is, and by no other: see `Team::context`.
unsafe impl Send for Member {}

/// Where a block of the present cluster stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not begun.
    Before,
    Running,
    Ended,
}

/// The barrier of the cluster.
#[derive(Default)]
struct Meeting {
    /// How often it has completed.
    phase: u64,
    /// The threads that have arrived this time, and those that have returned.
    arrived: usize,
    returned: usize,
    /// What is known to those who have waited, and what those have brought who have arrived this time.
    known: Known,
    brought: Known,
}

/// What a thread has done about the barrier of the cluster.
#[derive(Clone, Copy, Default)]
pub(super) struct Meetings {
    /// The phase in which it has arrived, and where, if it has not waited since.
    arrived: Option<(u64, &'static Location<'static>)>,
    /// How often it has arrived, and come to wait.
    arrivals: u64,
    waits: u64,
    /// How many phases it knows to be over, by its last wait. If there are any, all blocks of the cluster have begun.
    pub(super) met: u64,
}

/// The worker of a rank, until it leaves.
pub(super) struct Joined<'t, 'a> {
    team: &'t Team<'a>,
    rank: usize,
}

impl<'a> Team<'a> {
    /// The workers from `first` on. `is_alone`: nobody else takes turns with them.
    pub(super) fn new(
        clusters: Clusters,
        turns: &'a Turns,
        first: usize,
        is_alone: bool,
        seed: u64,
        threads: usize,
    ) -> Self {
        let blocks = clusters.blocks() as usize;
        let member = |_| Member { context: ptr::null(), begun: 0, stage: Stage::Ended };
        Self {
            clusters,
            turns,
            first,
            is_alone,
            seed,
            threads: threads * blocks,
            members: Mutex::new(Members { begun: 0, cluster: None, all: (0..blocks).map(member).collect() }),
            meeting: Mutex::default(),
            shadow: Shadow::default(),
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.clusters.blocks() as usize
    }

    /// Whether the order in which its blocks run does not depend on other clusters.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Has the others find the context of the worker of a rank, until what is returned is dropped, which is before the context is.
    pub(super) fn join<'t>(&'t self, rank: usize, context: &Context<'_>) -> Joined<'t, 'a> {
        self.members().all[rank].context = ptr::from_ref(context).cast();
        Joined { team: self, rank }
    }

    /// Waits until all blocks of the last cluster have ended. Returns the next one, unless there is none, or the launch is over.
    pub(super) fn next(&self, rank: usize, launch: &Launch) -> Option<u64> {
        loop {
            let mut members = self.members();
            if members.all[rank].begun < members.begun {
                members.all[rank].begun += 1;
                return members.cluster;
            }
            if members.all.iter().all(|member| member.stage == Stage::Ended) {
                members.cluster = launch.next_cluster();
                members.begun += 1;
                let has_blocks = members.cluster.is_some();
                members.all.iter_mut().filter(|_| has_blocks).for_each(|member| member.stage = Stage::Before);
                let cluster = members.cluster;
                drop(members);
                *lock(&self.meeting) = Meeting::default();
                self.shadow.clear();
                if let (true, Some(cluster)) = (self.is_alone, cluster) {
                    self.turns.begin_anew(self.seed ^ cluster.rotate_left(32));
                }
                self.wake();
                // Who begins is not a matter of who has ended last.
                if self.turns.pass(self.first + rank, true, turns::TRY) == Turn::Over {
                    return None;
                }
                continue;
            }
            drop(members);
            if self.turns.sleep(self.first + rank) == Turn::Over {
                return None;
            }
        }
    }

    /// Notes that the block of a rank begins, or has ended.
    pub(super) fn set_stage(&self, rank: usize, stage: Stage) {
        self.members().all[rank].stage = stage;
        self.wake();
    }

    /// Lets the others run until one of them does what this block may wait for. `None`: there is nobody left who could.
    pub(super) fn sleep(&self, rank: usize) -> Option<Turn> {
        let workers = self.first..self.first + self.blocks();
        if self.turns.is_last_awake(self.first + rank, workers) {
            return None;
        }
        Some(self.turns.sleep(self.first + rank))
    }

    /// Wakes all workers: something has happened that a block may wait for.
    pub(super) fn wake(&self) {
        self.turns.wake(self.first..self.first + self.blocks());
    }

    /// The block of a rank: where it stands, and its context while its worker is there.
    pub(super) fn member<'c>(&self, rank: usize) -> (Stage, Option<&'c Context<'c>>) {
        let members = self.members();
        let Member { context, stage, .. } = members.all[rank];
        // SAFETY: only one worker of a team has its turn, and this one has it. So the worker whose context it is does nothing until this one
        // passes its turn on, which no function does that holds what is returned; and the context stays until its worker has taken
        // it out of the list (`Joined`). Turns are passed on by way of a lock, so this worker sees all that the other one has done.
        (stage, unsafe { context.cast::<Context<'c>>().as_ref() })
    }

    /// The rank of a block of the cluster that runs.
    pub(super) fn rank_of(&self, block: u64) -> Option<usize> {
        let cluster = self.members().cluster?;
        (0..self.blocks()).find(|rank| self.clusters.block(cluster, *rank) == block)
    }

    /// How often the barrier of the cluster has completed.
    fn phase(&self) -> u64 {
        lock(&self.meeting).phase
    }

    /// Notes that a thread has arrived, or that it has returned.
    fn note_meeting(&self, note: impl FnOnce(&mut Meeting)) {
        let mut meeting = lock(&self.meeting);
        note(&mut meeting);
        if meeting.arrived > 0 && meeting.arrived + meeting.returned == self.threads {
            meeting.phase += 1;
            meeting.arrived = 0;
            let brought = core::mem::take(&mut meeting.brought);
            meeting.known.join(&brought);
            drop(meeting);
            self.wake();
        }
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Joined<'_, '_> {
    fn drop(&mut self) {
        let mut members = self.team.members();
        members.all[self.rank].context = ptr::null();
        members.all[self.rank].stage = Stage::Ended;
    }
}

// What kernels ask.

/// The number of the running block in its cluster.
#[inline(always)]
#[track_caller]
pub(crate) fn cluster_rank() -> u32 {
    current().team.map_or(0, |(_, rank)| rank as u32)
}

/// The number of blocks of a cluster.
#[inline(always)]
#[track_caller]
pub(crate) fn cluster_blocks() -> u32 {
    current().clusters.blocks() as u32
}

#[inline(always)]
#[track_caller]
pub(crate) fn cluster_dim() -> Dim3 {
    current().clusters.dim()
}

#[inline(always)]
#[track_caller]
pub(crate) fn block_in_cluster() -> Dim3 {
    position(current().clusters.dim(), cluster_rank().into())
}

#[inline(always)]
#[track_caller]
pub(crate) fn cluster_idx() -> Dim3 {
    let context = current();
    context.clusters.of(context.block.get())
}

#[inline(always)]
#[track_caller]
pub(crate) fn grid_of_clusters() -> Dim3 {
    current().clusters.grid()
}

/// Ends the launch unless the kernel says that it has clusters.
#[track_caller]
pub(crate) fn require_cluster() {
    team(current(), Location::caller());
}

/// The workers that run the cluster of the running block, and its rank.
pub(super) fn team<'c>(context: &Context<'c>, location: &'static Location<'static>) -> (&'c Team<'c>, usize) {
    match context.team {
        Some(team) => team,
        None => context.fail(location, FaultKind::NotClustered),
    }
}

// The barrier of the cluster.

/// Arrives, and waits for all.
#[track_caller]
pub(crate) fn cluster_sync() {
    let (context, location) = (current(), Location::caller());
    if !context.leaves_out("cluster::sync", location) {
        arrive(context, true, location);
        wait(context, location);
    }
}

/// Arrives. `releases`: what the thread did before is ordered before what those do who wait.
#[track_caller]
pub(crate) fn cluster_arrive(releases: bool) {
    let (context, location) = (current(), Location::caller());
    if !context.leaves_out("cluster::arrive", location) {
        arrive(context, releases, location);
    }
}

/// Waits for all that have not returned to arrive.
#[track_caller]
pub(crate) fn cluster_wait() {
    let (context, location) = (current(), Location::caller());
    if !context.leaves_out("cluster::wait", location) {
        wait(context, location);
    }
}

fn arrive(context: &Context<'_>, releases: bool, location: &'static Location<'static>) {
    let (team, _) = team(context, location);
    context.require_headroom();
    let mut meetings = context.details().meetings.get();
    if let Some((_, first)) = meetings.arrived {
        context.fail(location, FaultKind::ClusterArrivedTwice { first: first.into() });
    }
    meetings.arrived = Some((team.phase(), location));
    meetings.arrivals += 1;
    context.details().meetings.set(meetings);
    let brought = if releases { super::atomics::everything(context) } else { Known::default() };
    if !releases {
        context.barriers.announce(context.current.get(), team.phase());
    }
    team.note_meeting(|meeting| {
        meeting.arrived += 1;
        meeting.brought.join(&brought);
    });
    context.note_step(StepKind::Arrive, location, |note, _| note.barrier(StepBarrier::Cluster).phase(team.phase()));
    stop_until(context, Wait::ArrivalsOfWarp { count: meetings.arrivals }, location);
}

fn wait(context: &Context<'_>, location: &'static Location<'static>) {
    let (team, _) = team(context, location);
    context.require_headroom();
    let mut meetings = context.details().meetings.get();
    let Some((phase, _)) = meetings.arrived.take() else { context.fail(location, FaultKind::ClusterWaitAlone) };
    meetings.waits += 1;
    context.details().meetings.set(meetings);
    context.note_step(StepKind::Wait, location, |note, _| note.barrier(StepBarrier::Cluster).phase(phase));
    wait_for(context, Wait::Cluster { phase, count: meetings.waits }, location);
    context.note_step(StepKind::Passed, location, |note, _| note.barrier(StepBarrier::Cluster).phase(phase));
    let known = lock(&team.meeting).known.clone();
    super::atomics::learn(context, &known);
    context.details().meetings.set(Meetings { met: phase + 1, ..meetings });
}

/// Ends the launch if the running thread, which returns from the kernel, has arrived at the barrier of the cluster and not waited.
pub(super) fn require_waited() {
    let context = current();
    if let Some((_, location)) = context.details().meetings.take().arrived {
        context.fail(location, FaultKind::ClusterArrivalNotAwaited);
    }
}

/// Notes that a thread has returned: for such, nobody waits at the barrier of the cluster.
pub(super) fn note_return(context: &Context<'_>) {
    if let Some((team, _)) = context.team {
        team.note_meeting(|meeting| meeting.returned += 1);
    }
}

impl Context<'_> {
    /// Whether what a thread waits for at the barrier of the cluster has come.
    pub(super) fn has_met(&self, position: usize, wait: Wait) -> bool {
        let Some((team, _)) = self.team else { return true };
        let warp = position / LANES;
        let lanes = lanes_of_warp(self, warp).iter().zip(&self.details[warp * LANES..]);
        let all_lanes = |count: u64, of: fn(Meetings) -> u64| {
            let mut lanes = lanes.clone();
            lanes.all(|(thread, details)| thread.state.get() == State::Returned || of(details.meetings.get()) >= count)
        };
        match wait {
            Wait::ArrivalsOfWarp { count } => all_lanes(count, |meetings| meetings.arrivals),
            Wait::Cluster { phase, count } => team.phase() > phase && all_lanes(count, |meetings| meetings.waits),
            _ => true,
        }
    }

    /// The blocks of the cluster whose workers are there, by their ranks; none if the kernel has no clusters.
    pub(super) fn blocks_of_cluster<'c>(&self) -> impl Iterator<Item = &'c Context<'c>> + use<'c, '_> {
        let blocks = self.team.map_or(0, |(team, _)| team.blocks());
        (0..blocks).filter_map(|rank| self.team?.0.member(rank).1)
    }

    /// A report that threads of the cluster wait at its barrier for others that never come, if any do.
    pub(super) fn cluster_divergence(&self) -> Option<Box<Fault>> {
        let (team, _) = self.team?;
        let is_here = |context: &Context<'_>, position: &usize| {
            let waits =
                matches!(context.details[*position].wait.get(), Wait::Cluster { .. } | Wait::ArrivalsOfWarp { .. });
            context.threads[*position].state.get() == State::Waiting && waits
        };
        let members: Vec<_> = self.blocks_of_cluster().collect();
        let (context, first) = members.iter().find_map(|context| {
            let first = (0..context.threads.len()).find(|position| is_here(context, position))?;
            Some((context, first))
        })?;
        let mut absent: Vec<(Dim3, Elsewhere)> = Vec::new();
        for context in &members {
            let others = (0..context.threads.len()).filter(|position| !is_here(context, position));
            absent.extend(context.elsewhere(others).into_iter().map(|place| (context.block.get(), place)));
        }
        let Meeting { arrived, returned, .. } = &*lock(&team.meeting);
        let (arrived, threads) = (*arrived, team.threads - returned);
        context.current.set(first);
        let location = context.threads[first].location.get().into();
        Some(context.report(Some(location), FaultKind::ClusterDivergence { arrived, threads, absent }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_of_one_cluster() {
        let clusters = Clusters::new(Dim3::new(4, 6, 2), Some([2, 3, 1]));
        assert_eq!((clusters.blocks(), clusters.grid()), (6, Dim3::new(2, 2, 2)));
        let mut seen: Vec<_> =
            (0..8).flat_map(|cluster| (0..6).map(move |rank| clusters.block(cluster, rank))).collect();
        // The second block of the first cluster is beside the first, the third one is below it.
        assert_eq!(seen[..3], [0, 1, 4]);
        assert_eq!(seen[6], 2);
        assert!(clusters.are_together(0, 9) && !clusters.are_together(1, 2) && !clusters.are_together(0, 12));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..48));
        let none = Clusters::new(Dim3::new(5, 1, 1), None);
        assert!(none.block(3, 0) == 3 && !none.are_together(3, 4) && none.are_together(3, 3));
    }
}
