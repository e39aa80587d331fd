//! # 26. `pipeline`: two stages, two roles
//!
//! All of it together: a *producer* thread has TMA load the tiles of the next 32 terms while the
//! warpgroup of *consumers* multiplies the ones before. Two *stages* of shared memory take turns.
//! Each has two barriers: `full`, at which the bytes arrive, and `empty`, at which the consumers
//! arrive when they have multiplied.
//!
//! ```text
//!  step        0        1        2        3           stage = step mod 2, round = step / 2
//!  producer    load 0   load 1   ·wait·   load 0 …    waits until stage 0 is empty again
//!                 ╲        ╲
//!  consumers   ·wait·  multiply 0  multiply 1  …      wait until a stage is full, and empty it
//! ```
//!
//! A stage's phases are counted by its rounds: consumers wait for phase `round` of `full`, the
//! producer for phase `round − 1` of `empty`. Its first wait for each stage returns at once (puzzle
//! 19).
//!
//! **Write:** a step of the producer, and a step of the consumers, each with its waits and
//! arrivals. `full` of a stage has one arrival in a phase, that of the producer, and `empty` has
//! 128. The producer shall run ahead: both stages are asked for before the first is multiplied.
//@ hint The producer: wait until the stage is empty, say how many bytes come, load two tiles. In round 0 nobody has emptied a stage: the parity of that wait is 1.
//@ hint The consumers: wait until the stage is full, multiply, wait until the products are over, and only then arrive at `empty`: until then the tiles are read.
//@ hint Producer: `empty.wait((round & 1) ^ 1);`, `full.arrive_expecting(BYTES);`, and two `load_tile`. Consumers: `full.wait(round & 1);`, what puzzle 22 does with a tile, `empty.arrive();`

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums, Tf32};

/// The elements of a tile of A, 64 rows of 32 terms, and of B, 16 columns of 32 terms.
const OF_A: usize = 64 * 32;
const OF_B: usize = 16 * 32;
/// The elements of a stage, and its bytes. Behind two stages are the barriers.
const STAGE: usize = OF_A + OF_B;
const BYTES: u32 = 4 * STAGE as u32;

/// The barrier of the stage of a step.
#[inline(always)]
fn pick(barriers: [Barrier; 2], step: u32) -> Barrier {
    if step.is_multiple_of(2) { barriers[0] } else { barriers[1] }
}

/// `C = A·B`, by tiles of 64 × 16, with two stages; A is a map of m×k by rows, B one of k×n by
/// columns.
#[kernel(
    block = 160,
    arch = "sm_90a",
    dynamic_shared = 2 * BYTES + 32,
    grid = (n.div_ceil(16), m.div_ceil(64)),
    requires(
        m > 0 && n > 0 && k > 0,
        a.layout().tile == [32, 64, 1] && b.layout().tile == [32, 16, 1],
        c.len() == m as usize * n as usize
    )
)]
pub fn product_pipelined(
    a: TensorMap<'_>,
    b: TensorMap<'_>,
    m: u32,
    n: u32,
    k: u32,
    c: GlobalSliceMut<'_, f32>,
) {
    let (t, row, col) =
        (thread::thread_idx_x(), 64 * thread::block_idx_y(), 16 * thread::block_idx_x());
    // SAFETY: one thread prepares the barriers. A stage is read when it is full, and filled when
    // the products that read it are over; all threads of the warpgroup come to the products. Rows
    // and columns are compared before a store.
    unsafe {
        let stages = dynamic_shared::<f32>(0, 2 * STAGE);
        let barriers = dynamic_shared::<u64>(2 * BYTES as usize, 4);
        let full = [Barrier::at(barriers, 0), Barrier::at(barriers, 1)];
        let empty = [Barrier::at(barriers, 2), Barrier::at(barriers, 3)];
        if t == 0 {
            for stage in 0..2 {
                full[stage].init(1);
                empty[stage].init(128);
            }
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        let steps = k.div_ceil(32);
        if t >= 128 {
            if t == 128 {
                let mut step = 0;
                while step < steps {
                    let (full, empty) = (pick(full, step), pick(empty, step));
                    let (at, round) = ((step % 2) as usize * STAGE, step / 2);
                    //@ blank
                    empty.wait((round & 1) ^ 1);
                    full.arrive_expecting(BYTES);
                    hopper::load_tile(stages, at, a, [32 * step, row, 0], full);
                    hopper::load_tile(stages, at + OF_A, b, [32 * step, col, 0], full);
                    //@ instead
                    //| let _ = (empty, round);
                    //| hopper::load_tile(stages, at, a, [32 * step, row, 0], full);
                    //| hopper::load_tile(stages, at + OF_A, b, [32 * step, col, 0], full);
                    //@ end
                    step += 1;
                }
            }
            return;
        }
        let mut sums = [0.0f32; 8];
        let mut step = 0;
        while step < steps {
            let (full, empty) = (pick(full, step), pick(empty, step));
            let (at, round) = ((step % 2) as usize * STAGE, step / 2);
            let (of_a, of_b) = (Descriptor::at(stages, at), Descriptor::at(stages, at + OF_A));
            //@ blank
            full.wait(round & 1);
            wgmma::fence();
            for i in 0..4 {
                sums.add_shared::<Tf32>(of_a.offset(32 * i), of_b.offset(32 * i));
            }
            wgmma::commit();
            sums.wait::<0>();
            empty.arrive();
            //@ instead
            //| let _ = (full, empty, round);
            //| wgmma::fence();
            //| for i in 0..4 {
            //|     sums.add_shared::<Tf32>(of_a.offset(32 * i), of_b.offset(32 * i));
            //| }
            //| wgmma::commit();
            //| sums.wait::<0>();
            //@ end
            step += 1;
        }
        // Warp w has rows 16·w + g and 16·w + g + 8, and of each 8 columns those from 2·q on.
        let (g, q) = (t % 32 / 4, t % 4);
        for i in 0..8u32 {
            let (row, col) =
                (row + t / 32 * 16 + g + i / 2 % 2 * 8, col + i / 4 * 8 + 2 * q + i % 2);
            if row < m && col < n {
                c.set_unchecked(row as usize * n as usize + col as usize, sums[i as usize]);
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use cuda_driver::TensorElement;

    use super::product_pipelined;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "pipeline",
        file: file!(),
        source: include_str!("p26_pipeline.rs"),
        operation: &Product,
        fails: "Race",
        lesson: "Nobody waits for anybody: tiles are multiplied that have not come, and loaded \
                 over others that are still multiplied.",
        reference: Score { sectors: 2176, global: 44, shared: 0, conflicts: 0, waits: 35 },
        limits: Limits::NONE,
        judge: Some(loads_run_ahead),
    };

    /// Before the first product, the tiles of both stages have been asked for.
    fn loads_run_ahead(trace: &Trace) -> Result<(), String> {
        let steps = || trace.blocks.iter().flat_map(|block| &block.steps);
        let first = steps().find(|step| step.kind == Kind::Wgmma).map(|step| step.step);
        let is_before = |step: u64| first.is_none_or(|first| step < first);
        let loads =
            steps().filter(|step| step.kind == Kind::TmaLoad && is_before(step.step)).count();
        // Two tiles for each stage.
        if loads >= 4 {
            return Ok(());
        }
        Err("the first tiles are multiplied before the second stage's have been asked for: the \
             producer waits for the stage that it has just filled, in place of the one that it is \
             about to fill"
            .to_owned())
    }

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "pipeline",
                idea: "C = A·B by TMA and a warpgroup, with two stages",
                sizes: &["m", "n", "k"],
                kernels: vec![product_pipelined::FACTS],
                small: testkit::cases(&[[64, 16, 32], [65, 20, 36], [64, 16, 192]]),
                large: vec![vec![4096, 4096, 4096]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Integers(-8, 8);
            let (a, b) =
                (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let a = swizzled_map(device, views.read("a")?, [m, k], 64, TensorElement::Fp32)?;
            let b = swizzled_map(device, views.read("b")?, [n, k], 16, TensorElement::Fp32)?;
            Ok(device.launch(product_pipelined { a, b, m, n, k, c: views.write("c")? })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            // Sums of small integers: exact.
            let one = |at: usize| {
                Expected::exact(sum((0..k).map(|l| a[at / n * k + l] * b[at % n * k + l])))
            };
            Ok(vec![testkit::each(m * n, one)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * k as f64)
        }

        fn units(&self) -> Units {
            Units::TensorCores
        }
    }
}
