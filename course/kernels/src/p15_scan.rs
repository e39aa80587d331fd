//! # 15. `scan`: running totals within a block
//!
//! A *scan* gives each thread the sum of all numbers up to its own. In step d each thread adds what
//! the thread d before it has so far; d doubles, so 8 steps are enough for 256 numbers.
//!
//! ```text
//!  x          1   1   1   1   1   1   1   1
//!  d = 1      1   2   2   2   2   2   2   2         each adds its neighbour
//!  d = 2      1   2   3   4   4   4   4   4         each adds what is 2 before
//!  d = 4      1   2   3   4   5   6   7   8
//! ```
//!
//! All threads read the sums of the step before, and write their own in the same array. So there
//! are two things to keep apart: who reads must come behind who wrote in the last step, and who
//! writes must come behind who still reads in this one.
//!
//! **Write:** the step. It needs two barriers, which all threads have to reach.
//@ hint As it stands, a thread may write its new sum before the thread `distance` further on has read the old one.
//@ hint First all read into a variable, then a barrier, then all write, then a barrier.
//@ hint Keep `sum` in a variable of the thread: `let before = if t >= distance { SUMS.read(t - distance) } else { 0.0 };`

use cuda_std::prelude::*;

/// The running totals of each block of 256 elements.
#[kernel(
    block = 256,
    grid = crate::puzzle::blocks(y.len(), 256),
    requires(x.len() == y.len(), y.len() % 256 == 0)
)]
pub fn scan_of_blocks(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[f32; 256]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    if i - t >= y.len() {
        return; // the whole block
    }
    // SAFETY: i is below the length, a multiple of 256; t and t − distance are below 256. All
    // threads come to all barriers.
    unsafe {
        SUMS.write(t, x.get_unchecked(i));
        thread::sync_threads();
        let mut distance = 1;
        while distance < 256 {
            //@ blank
            let before = if t >= distance { SUMS.read(t - distance) } else { 0.0 };
            thread::sync_threads();
            SUMS.write(t, SUMS.read(t) + before);
            thread::sync_threads();
            //@ instead
            //| if t >= distance {
            //|     SUMS.write(t, SUMS.read(t) + SUMS.read(t - distance));
            //| }
            //| thread::sync_threads();
            //@ end
            distance *= 2;
        }
        y.set_unchecked(i, SUMS.read(t));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::scan_of_blocks;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "scan",
        file: file!(),
        source: include_str!("p15_scan.rs"),
        operation: &Scan,
        fails: "Race",
        lesson: "In one step a thread overwrites its sum while another one still has to read it.",
        reference: Score { sectors: 192, global: 48, shared: 387, conflicts: 0, waits: 408 },
        limits: Limits { conflicts: Some(0), ..Limits::NONE },
        judge: None,
    };

    struct Scan;

    impl Operation for Scan {
        fn describe(&self) -> Description {
            Description {
                name: "scan",
                idea: "running totals of blocks of 256 elements",
                sizes: &["blocks"],
                kernels: vec![scan_of_blocks::FACTS],
                small: testkit::every(&[&[0, 1, 3]]),
                large: vec![vec![1 << 18]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [blocks] = sizes.get(["blocks"])?;
            let x = Argument::input("x", &[256 * blocks], Distribution::Normal);
            Ok(vec![x, Argument::output("y", &[256 * blocks])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(scan_of_blocks { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let of_block = |block: &[f64]| {
                let (mut total, mut magnitude) = (0.0, 0.0);
                let mut next = |x: &f64| {
                    (total, magnitude) = (total + x, magnitude + x.abs());
                    Expected::rounded(total, 8, magnitude)
                };
                block.iter().map(&mut next).collect::<Vec<_>>()
            };
            Ok(vec![values.of("x")?.chunks(256).flat_map(of_block).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["blocks"]).map_or(0.0, |[blocks]| 256.0 * blocks as f64)
        }
    }
}
