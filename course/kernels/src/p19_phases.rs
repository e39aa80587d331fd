//! # 19. `phases`: a barrier for some, and its phases
//!
//! On Hopper (compute capability 9.0) warps of a block have different *roles*: a *producer* fetches, *consumers* work. They meet at barriers in shared
//! memory (`mbarrier`, here `hopper::Barrier`): some *arrive* and go on, others *wait* for a *phase* to be over. Each phase takes as many arrivals as
//! `init` says, and then the next begins. A wait says which phase it means by its *parity*: 0 for the first, 1 for the second, 0 for the third, …
//!
//! ```text
//!  round                    0                 1                 2
//!  producer    write  full.arrive   empty.wait(0)  write  full.arrive   empty.wait(1) …
//!  consumer           full.wait(0)  read  empty.arrive    full.wait(1)  read  empty.arrive
//!  full        ── phase 0 ──────┤── phase 1 ───────────────────┤── phase 2 …
//! ```
//!
//! A barrier on which nothing has happened counts as having completed a phase of parity 1: so the producer's first `empty.wait(1)` returns at once, and
//! its parity in round r is the opposite of the consumer's.
//!
//! **Write:** the parity that a consumer waits for in round r, and the producer's.
//@ hint The parity of phase r is r mod 2. Which phase of `full` does the consumer wait for in round r?
//@ hint The producer waits in round r until phase r − 1 of `empty` is over.
//@ hint `let (of_consumer, of_producer) = (round & 1, (round & 1) ^ 1);`

use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;

/// Reverses each 32 elements: warp 0 hands them to warp 1 in one place of shared memory.
#[kernel(block = 64, arch = "sm_90a", dynamic_shared = 128 + 16, grid = 1, requires(x.len() == y.len(), y.len() % 32 == 0))]
pub fn hand_over(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (lane, rounds) = (warp::lane_id() as usize, (y.len() / 32) as u32);
    // SAFETY: indices are inside; one thread initializes the barriers, and all threads see it behind the block's barrier. Each round has 32
    // arrivals at each of the two, and what is written in a round is read before it is written again.
    unsafe {
        let place = dynamic_shared::<f32>(0, 32);
        let barriers = dynamic_shared::<u64>(128, 2);
        let (full, empty) = (Barrier::at(barriers, 0), Barrier::at(barriers, 1));
        if thread::thread_idx_x() == 0 {
            full.init(32);
            empty.init(32);
        }
        thread::sync_threads();
        for round in 0..rounds {
            //@ blank
            let (of_consumer, of_producer) = (round & 1, (round & 1) ^ 1);
            //@ instead
            //| let (of_consumer, of_producer) = (0, 1);
            //@ end
            let at = 32 * round as usize;
            if thread::thread_idx_x() < 32 {
                empty.wait(of_producer);
                place.write(lane, x.get_unchecked(at + lane));
                full.arrive();
            } else {
                full.wait(of_consumer);
                y.set_unchecked(at + lane, place.read(31 - lane));
                empty.arrive();
            }
        }
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
        fails: "Deadlock",
        lesson: "With the same parity in each round, a wait is for a phase that was over before, or for one that nobody is left to complete.",
        best: Score { sectors: 40, global: 10, shared: 5, conflicts: 0, waits: 12 },
        limits: Limits::NONE,
    };

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
            let reversed = |part: &[f64]| part.iter().rev().map(|x| Expected::exact(*x)).collect::<Vec<_>>();
            Ok(vec![values.of("x")?.chunks(32).flat_map(reversed).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
