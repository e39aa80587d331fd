//! Named barriers: `bar.sync` and `bar.arrive` with a number and a count of threads.
//!
//! A barrier counts whole warps, as a GPU does: all lanes of a warp come by one call, and count as 32 threads even if the block has fewer. It
//! does not know who is meant to meet whom, and takes the first that come. So the arrivals of a meeting have to be ordered behind all those of
//! the meeting before; otherwise chance decides who belongs to which, and in the order of this executor it would always decide the same:
//!
//! ```text
//! barrier 1 for 64 threads     meeting 0          meeting 1
//!                              warp 0, warp 1     warp 2, warp 3       … or 0 and 2, or 0 and 3: nothing holds warp 2 back
//!
//!                              warp 0, warp 1     warp 0, warp 1       warp 0 has waited for meeting 0, and comes behind it
//! ```

use core::mem::swap;
use core::panic::Location;
use std::format;
use std::vec::Vec;

use super::{Barriers, Threads, Wait, bring, clocked, learn, note_wait, wait_for};
use crate::executor::clocks::Clock;
use crate::executor::context::{Context, LANES, Request, State, current};
use crate::executor::exchange::{lanes_in, lanes_of_warp, mask_of};
use crate::executor::fault::{Elsewhere, FaultKind, Place, WarpOperation, counted};
use crate::executor::steps::{StepBarrier, StepKind};

/// The numbers of the barriers of a block. Barrier 0 is that of the whole block.
pub(super) const NUMBERED: usize = 16;

/// A barrier with a number.
#[derive(Default)]
pub(super) struct NumberedBarrier {
    /// How many threads meet this time, and how many have come. Nobody has come if that is zero.
    pub(super) threads: u32,
    pub(super) come: u32,
    /// The warps that have come this time, and those that came the time before.
    arrivals: Vec<Arrival>,
    before: Vec<Arrival>,
    /// Who has ever come.
    pub(super) have_come: Threads,
    /// How often they have met.
    pub(super) times: u64,
    pub(super) known: Clock,
    pub(super) brought: Clock,
}

/// A warp that has come to a barrier.
struct Arrival {
    warp: usize,
    location: &'static Location<'static>,
    /// The tick at which its first lane came: who knows of it, or of a later one of any of its lanes, comes behind the arrival. Nobody asks
    /// for it without `Checks::Full`.
    tick: u64,
}

impl Arrival {
    /// Whether it is ordered before what a warp does now.
    fn is_before(&self, context: &Context<'_>, warp: usize) -> bool {
        let Some(shared) = clocked(context) else { return true };
        if self.warp == warp || self.tick < shared.epoch() {
            return true;
        }
        // A warp comes as a whole, so what one of its lanes knows, it comes behind.
        let lanes = |warp: usize| warp * LANES..warp * LANES + lanes_of_warp(context, warp).len();
        lanes(warp).any(|me| lanes(self.warp).any(|other| shared.clocks.known(me, other) >= self.tick))
    }
}

impl NumberedBarrier {
    /// What is wrong if a warp comes now.
    fn refuse(&self, context: &Context<'_>, warp: usize, id: u32, threads: u32) -> Option<FaultKind> {
        if self.come > 0 && self.threads != threads {
            return Some(FaultKind::BarrierCount { id, threads, others: self.threads });
        }
        if let Some(first) = self.arrivals.iter().find(|arrival| arrival.warp == warp) {
            return Some(FaultKind::BarrierArrivedTwice { id, threads, first: first.location.into() });
        }
        let open = self.before.iter().find(|arrival| !arrival.is_before(context, warp))?;
        let thread = context.threads[open.warp * LANES].index;
        Some(FaultKind::BarrierMeetings { id, threads, thread, location: open.location.into() })
    }
}

impl Barriers {
    /// A numbered barrier to which some threads have come, and others have not, at the end of a block: who has come first and where, and
    /// what is wrong.
    pub(in super::super) fn unmet(&self) -> Option<(usize, &'static Location<'static>, FaultKind)> {
        let numbered = self.numbered.borrow();
        (0..).zip(numbered.iter()).find_map(|(id, barrier)| {
            let first = barrier.arrivals.first()?;
            let kind = FaultKind::BarrierUnmet { id, come: barrier.come, threads: barrier.threads };
            Some((first.warp * LANES, first.location, kind))
        })
    }
}

/// The barrier that a lane has asked for, as a request of its warp carries it.
fn value_of(id: u32, threads: u32) -> u64 {
    u64::from(id) << u32::BITS | u64::from(threads)
}

/// Ends the launch, when all lanes of a warp have come to a barrier, unless they have come to the same one by the same call.
pub(in super::super) fn require_one_call(context: &Context<'_>, warp: usize, requests: &[Request; LANES], mask: u32) {
    let lanes = lanes_of_warp(context, warp);
    let call = |lane: usize| (requests[lane].value, lanes[lane].location.get());
    let Some(first) = lanes_in(mask).next() else { return };
    let (here, others): (Vec<_>, Vec<_>) = lanes_in(mask).partition(|lane| call(*lane) == call(first));
    if others.is_empty() {
        return;
    }
    let mut elsewhere: Vec<Elsewhere> = Vec::new();
    for lane in others {
        let (value, location) = call(lane);
        let waits_for = format!("barrier {}, for {}", value >> u32::BITS, counted(value as u32, "thread"));
        let place = Place::Waiting { waits_for, location: location.into() };
        match elsewhere.iter_mut().find(|known| known.place == place) {
            Some(known) => known.count += 1,
            None => elsewhere.push(Elsewhere { first: lanes[lane].index, count: 1, place }),
        }
    }
    context.fail_later(warp * LANES + first, FaultKind::WarpSplitAtBarriers { waiting: here.len(), elsewhere });
}

/// Comes to the barrier of a number, at which `threads` threads meet, and does not wait for the others.
#[track_caller]
pub(crate) fn arrive_at_number(id: u32, threads: u32) {
    let (context, location) = (current(), Location::caller());
    if let Some((id, threads)) = context.change_numbered("arrive_at_part", location, (id, threads)) {
        come(context, (id, threads), (WarpOperation::ArriveAtPart, StepKind::Arrive), location);
    }
}

/// Comes to the barrier of a number, and waits for the others.
#[track_caller]
pub(crate) fn meet_at_number(id: u32, threads: u32) {
    let (context, location) = (current(), Location::caller());
    let Some((id, threads)) = context.change_numbered("sync_part", location, (id, threads)) else { return };
    let time = come(context, (id, threads), (WarpOperation::SyncPart, StepKind::Wait), location);
    wait_for(context, Wait::Numbered { id: id as usize, time }, location);
    learn(context, &context.barriers.numbered.borrow()[id as usize].known);
    note_wait(context, StepKind::Passed, StepBarrier::Named(id), time, location);
}

/// Comes to the barrier of a number, together with the other lanes of the warp. Returns the time for which the others are awaited.
fn come(
    context: &Context<'_>,
    (id, threads): (u32, u32),
    (operation, step): (WarpOperation, StepKind),
    location: &'static Location<'static>,
) -> u64 {
    context.require_headroom();
    let id_is_free = (1..NUMBERED as u32).contains(&id);
    if !id_is_free || threads == 0 || !threads.is_multiple_of(crate::warp::LANES) {
        context.fail(location, FaultKind::BarrierNumber { id, threads });
    }
    let (warp, lane) = (context.current.get() / LANES, context.current.get() % LANES);
    let lanes = lanes_of_warp(context, warp);
    let request = Request { operation, mask: mask_of(lanes), value: value_of(id, threads), ..Request::NONE };
    context.details().request.set(request);
    context.suspend(State::Warp, location);
    // From here on the lanes run one after the other, and nobody else in between, until the last one has come.
    let mut numbered = context.barriers.numbered.borrow_mut();
    let barrier = &mut numbered[id as usize];
    if lane == 0
        && let Some(kind) = barrier.refuse(context, warp, id, threads)
    {
        drop(numbered);
        context.fail(location, kind);
    }
    let time = barrier.times;
    barrier.threads = threads;
    barrier.have_come.add(context.current.get());
    bring(context, &mut barrier.brought);
    if lane == 0 {
        barrier.arrivals.push(Arrival { warp, location, tick: context.thread().interval.get() });
    }
    if lane + 1 == lanes.len() {
        barrier.come += crate::warp::LANES;
    }
    let is_complete = barrier.come == threads;
    if is_complete {
        barrier.come = 0;
        barrier.times += 1;
        barrier.known.join(&barrier.brought);
        swap(&mut barrier.arrivals, &mut barrier.before);
        barrier.arrivals.clear();
    }
    drop(numbered);
    context.note_step(step, location, |note, _| {
        note.barrier(StepBarrier::Named(id)).phase(time).text(counted(threads, "thread"))
    });
    if is_complete {
        context.note_step(StepKind::Complete, location, |note, _| note.barrier(StepBarrier::Named(id)).phase(time));
    }
    time
}
