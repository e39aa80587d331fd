//! # 19. `phases`: a barrier for some, and its phases
//!
//! On Hopper (compute capability 9.0) warps of a block have different *roles*: a *producer*
//! fetches, *consumers* work. They meet at barriers in shared memory (`mbarrier`, here
//! `hopper::Barrier`): some *arrive* and go on, others *wait* for a *phase* to be over. Each phase
//! takes as many arrivals of threads as `init` says, and then the next begins. A wait says which
//! phase it means by its *parity*: 0 for the first, 1 for the second, 0 for the third, …
//!
//! ```text
//!  round                    0                 1                 2
//!  producer    write  full.arrive   empty.wait(0)  write  full.arrive   empty.wait(1) …
//!  consumer           full.wait(0)  read  empty.arrive    full.wait(1)  read  empty.arrive
//!  full        ── phase 0 ──────┤── phase 1 ───────────────────┤── phase 2 …
//! ```
//!
//! A barrier on which nothing has happened counts as having completed a phase of parity 1: so a
//! producer may begin each round with a wait, of which the first, `empty.wait(1)`, returns at once.
//! Its parity in round r is the opposite of the consumer's. A parity is 0 or 1, and nothing else.
//!
//! Barriers are initialized by one thread. Behind that comes a barrier of the block, so that no
//! thread comes to one that is not there yet. (TMA and other blocks need a fence besides, as the
//! next puzzle has it; here nobody comes to the barriers but threads of this block.)
//!
//! **Write:** the initialization with the block's barrier, `thread::sync_threads()`, behind it, and
//! the rounds, in which the two warps meet at `full` and `empty` alone: any other barrier there
//! would stop both warps, where only one has to wait.
//@ hint `full` is complete when all 32 threads of the producer's warp have written: `full.init(32)`. `empty` is when all 32 of the consumer's have read. Behind both lines, once: `thread::sync_threads();`
//@ hint The parity of phase r is r mod 2. The consumer waits in round r for phase r of `full`, and the producer for phase r − 1 of `empty`.
//@ hint Producer: `empty.wait(parity ^ 1)`, the write, `full.arrive()`. Consumer: `full.wait(parity)`, the read, `empty.arrive()`. With `let parity = round & 1;`.

use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;

/// Reverses each 32 elements: warp 0 hands them to warp 1 in one place of shared memory.
#[kernel(
    block = 64,
    arch = "sm_90a",
    dynamic_shared = 128 + 16,
    grid = 1,
    requires(x.len() == y.len(), y.len() % 32 == 0)
)]
pub fn hand_over(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (t, lane) = (thread::thread_idx_x(), warp::lane_id() as usize);
    let rounds = (y.len() / 32) as u32;
    // SAFETY: indices are inside; one thread initializes the barriers, and all threads see it
    // behind the block's barrier. Each round has 32 arrivals at each of the two, and what is
    // written in a round is read before it is written again.
    unsafe {
        let place = dynamic_shared::<f32>(0, 32);
        let barriers = dynamic_shared::<u64>(128, 2);
        let (full, empty) = (Barrier::at(barriers, 0), Barrier::at(barriers, 1));
        //@ blank
        if t == 0 {
            full.init(32);
            empty.init(32);
        }
        thread::sync_threads();
        for round in 0..rounds {
            let (at, parity) = (32 * round as usize, round & 1);
            if t < 32 {
                empty.wait(parity ^ 1);
                place.write(lane, x.get_unchecked(at + lane));
                full.arrive();
            } else {
                full.wait(parity);
                y.set_unchecked(at + lane, place.read(31 - lane));
                empty.arrive();
            }
        }
        //@ instead
        //| if t == 0 {
        //|     full.init(1);
        //|     empty.init(1);
        //| }
        //| for round in 0..rounds {
        //|     let at = 32 * round as usize;
        //|     if t < 32 {
        //|         place.write(lane, x.get_unchecked(at + lane));
        //|     } else {
        //|         y.set_unchecked(at + lane, place.read(31 - lane));
        //|     }
        //| }
        //@ end
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::hand_over;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "phases",
        file: file!(),
        source: include_str!("p19_phases.rs"),
        operation: &HandOver,
        fails: "Race",
        lesson: "Nothing makes one warp wait for the other: the consumer reads before the producer \
                 has written, the producer writes before the consumer has read, or, from element \
                 32 on, where the barriers are, a thread comes to one that is not there yet.",
        reference: Score { sectors: 40, global: 10, shared: 5, conflicts: 0, waits: 12 },
        limits: Limits::NONE,
        judge: Some(warps_meet_at_phases),
    };

    /// When the first number has been written, nobody waits anywhere but at phases.
    fn warps_meet_at_phases(trace: &Trace) -> Result<(), String> {
        let steps = || trace.blocks.iter().flat_map(|block| &block.steps);
        let first = steps().find(|step| step.kind == Kind::SharedStore).map(|step| step.step);
        let is_later = |step: u64| first.is_some_and(|first| first < step);
        let is_phase = |barrier| matches!(barrier, Some(Barrier::Mbarrier(_)));
        let mut waits = steps().filter(|step| step.kind == Kind::Wait && is_later(step.step));
        let Some(wait) = waits.find(|step| !is_phase(step.barrier)) else { return Ok(()) };
        let place = wait.place.and_then(|place| trace.places.get(place));
        Err(format!(
            "in the rounds threads stop at {}, where `full` and `empty` are enough\n  --> {}",
            wait.barrier.map_or("another barrier".to_owned(), |barrier| barrier.to_string()),
            place.map_or("", |place| place)
        ))
    }

    struct HandOver;

    impl Operation for HandOver {
        fn describe(&self) -> Description {
            Description {
                name: "phases",
                idea: "numbers handed from warp to warp",
                sizes: &["rounds"],
                kernels: vec![hand_over::FACTS],
                small: testkit::every(&[&[0, 1, 2, 5]]),
                large: vec![vec![1 << 10]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rounds] = sizes.get(["rounds"])?;
            let x = Argument::input("x", &[32 * rounds], Distribution::Special);
            Ok(vec![x, Argument::output("y", &[32 * rounds])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(hand_over { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let reversed =
                |part: &[f64]| part.iter().rev().map(|x| Expected::exact(*x)).collect::<Vec<_>>();
            Ok(vec![values.of("x")?.chunks(32).flat_map(reversed).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
