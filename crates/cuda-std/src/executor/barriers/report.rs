//! What reports say of barriers: what a thread waits for, and what would have ordered the two accesses of a race.
//!
//! ```text
//! thread 3   writes x ── arrives at b ── …       b knows of the write: a wait there would have ordered the two
//! thread 40  reads x, and has not waited at b
//! ```

use core::ops::Range;
use std::format;
use std::string::String;

use super::{Barriers, Clock, NumberedBarrier, PhaseBarrier, Wait, words_of_barrier};
use crate::executor::context::{Context, LANES};
use crate::executor::fault::{BarrierName, Missing, agreeing, counted};
use crate::executor::tma::Tma;

impl Barriers {
    /// What a thread waits for, and what is missing, in words.
    pub(in super::super) fn describe(&self, wait: Wait) -> String {
        match wait {
            Wait::Phase { barrier: at, parity } => match self.phases.borrow().get(&at) {
                Some(barrier) => {
                    let PhaseBarrier { arrivals, missing, bytes, over, .. } = barrier;
                    format!(
                        "the phase of parity {parity} of {}, which is in its phase {over}, of parity {}, and lacks {missing} of {arrivals} arrivals{}",
                        barrier.name(at),
                        over % 2,
                        match bytes {
                            0 => String::new(),
                            1.. => format!(" and {}", counted(*bytes, "byte")),
                            _ => format!(" and has got {} more than it expects", counted(bytes.unsigned_abs(), "byte")),
                        }
                    )
                }
                None => format!("a phase of the barrier at byte {at}"),
            },
            Wait::Numbered { id, .. } => {
                let NumberedBarrier { threads, come, .. } = &self.numbered.borrow()[id];
                let have = agreeing(come, "has", "have");
                format!("barrier {id}, to which {come} of {threads} threads {have} come")
            }
            Wait::Registers { count } => {
                let free = self.free_registers.get();
                format!("{}, of which {free} {} free", counted(count, "more register"), agreeing(free, "is", "are"))
            }
            Wait::ArrivalsOfWarp { .. } => {
                "the other threads of its warp to arrive at the barrier of the cluster".into()
            }
            Wait::Cluster { .. } => "the barrier of the cluster".into(),
        }
    }
}

impl PhaseBarrier {
    /// What the barrier at a byte is called.
    fn name(&self, byte_offset: usize) -> BarrierName {
        BarrierName { byte_offset, initialized: self.initialized.into() }
    }
}

/// The tick before which those know of everything that a thread did who wait at a barrier; 0 if nobody does.
fn known_of(thread: usize, [known, brought]: [&Clock; 2]) -> u64 {
    let of = |clock: &Clock| clock.ticks().get(thread).copied().unwrap_or(0);
    of(known).max(of(brought))
}

impl Context<'_> {
    /// What would have ordered an earlier access, which a thread, or TMA, has made in an interval, before one that the running thread makes
    /// now. `words` are those of the dynamic shared memory, if the accesses are there.
    pub(in super::super) fn missing(&self, thread: usize, interval: u64, words: Option<Range<usize>>) -> Missing {
        let (phases, numbered) = (self.barriers.phases.borrow(), self.barriers.numbered.borrow());
        let is_of = |at: usize, words: &Range<usize>| {
            let barrier = words_of_barrier(at);
            barrier.start < words.end && words.start < barrier.end
        };
        if words.is_some_and(|words| phases.keys().any(|at| is_of(*at, &words))) {
            return Missing::Initialization;
        }
        if phases.is_empty() && numbered.iter().all(|barrier| barrier.times == 0 && barrier.come == 0) {
            return Missing::Meeting;
        }
        let me = self.current.get();
        let is_tma = thread == Tma::number(self.threads.len());
        // The first meeting behind the access is the one that is meant for it.
        let of_phases = phases.iter().map(|(at, barrier)| {
            let name = barrier.name(*at);
            let missing = if is_tma { Missing::WaitForLoad(name) } else { Missing::Wait(name) };
            (known_of(thread, [&barrier.known, &barrier.brought]), missing)
        });
        let both_come = |barrier: &NumberedBarrier| barrier.have_come.include(me) && barrier.have_come.include(thread);
        let of_numbered = (0..).zip(numbered.iter()).filter(|(_, barrier)| both_come(barrier));
        let of_numbered = of_numbered
            .map(|(id, barrier)| (known_of(thread, [&barrier.known, &barrier.brought]), Missing::Numbered { id }));
        let behind = of_phases.chain(of_numbered).filter(|(tick, _)| *tick > interval);
        let behind = behind.min_by_key(|(tick, _)| *tick).map(|(_, missing)| missing);
        let waited = match self.details().wait.get() {
            Wait::Phase { barrier: at, .. } => phases.get(&at).map(|barrier| (at, barrier)),
            _ => None,
        };
        // One lane may arrive for its warp.
        match waited.filter(|(_, barrier)| !is_tma && barrier.have_come.include_warp(thread)) {
            Some((at, barrier)) => {
                let behind = match behind {
                    Some(Missing::Wait(behind)) => Some(behind),
                    _ => None,
                };
                Missing::LaterArrival { waited: barrier.name(at), behind }
            }
            None if !is_tma && thread / LANES == me / LANES => Missing::WarpMeeting,
            None => behind.unwrap_or(Missing::HandOver),
        }
    }
}
