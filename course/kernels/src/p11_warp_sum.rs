//! # 11. `warp-sum`: lanes tell one another
//!
//! The lanes of a warp can pass numbers to one another without memory: a *shuffle* gives each lane
//! the value of another one. Five of them add up 32 numbers.
//!
//! ```text
//!  lane        0     1     2     3   …  16    17   …  31
//!  own         x₀    x₁    x₂    x₃     x₁₆   x₁₇
//!  down 16     x₀+x₁₆      …            each lane adds what the lane 16 further on has
//!  down 8      …                        then 8, 4, 2, 1: lane 0 has the sum
//! ```
//!
//! `warp::warp_shuffle_down(mask, value, distance, 32)` is `__shfl_down_sync`. It gives the other
//! lane's value, and whether there is such a lane. The mask names the lanes that take part:
//! `warp::ALL_LANES`. All of them have to call it together, also those whose own sum nobody needs
//! any more.
//!
//! **Write:** the loop, so that all lanes shuffle in each step.
//@ hint Lanes behind `distance` do not call the shuffle here, and the mask says that they do.
//@ hint Take the shuffle out of the `if`. May lanes 16 to 31 add what they get, too? What is in their sums is not used.

use cuda_std::prelude::*;

/// The sum of each row of 32 numbers, by a warp for each.
#[kernel(
    block = 128,
    grid = crate::puzzle::blocks(sums.len(), 4),
    requires(x.len() == 32 * sums.len())
)]
pub fn row_sums_32(x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    let (row, lane) = (thread::index_1d() / 32, warp::lane_id());
    if row >= sums.len() {
        return; // the whole warp
    }
    // SAFETY: row < sums.len() and lane < 32, so the index is inside of x; all lanes of the warp
    // come here.
    let mut sum = unsafe { x.get_unchecked(32 * row + lane as usize) };
    let mut distance = 16;
    while distance > 0 {
        //@ blank
        // SAFETY: all lanes of the warp come here together.
        let (other, _) = unsafe { warp::warp_shuffle_down(warp::ALL_LANES, sum, distance, 32) };
        sum += other;
        //@ instead
        //| if lane < distance {
        //|     // SAFETY: do all lanes come here that the mask names?
        //|     let all = warp::ALL_LANES;
        //|     let (other, _) = unsafe { warp::warp_shuffle_down(all, sum, distance, 32) };
        //|     sum += other;
        //| }
        //@ end
        distance /= 2;
    }
    if lane == 0 {
        // SAFETY: row < sums.len(); no other warp has this row.
        unsafe { sums.set_unchecked(row, sum) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::row_sums_32;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "warp-sum",
        file: file!(),
        source: include_str!("p11_warp_sum.rs"),
        operation: &RowSums,
        fails: "InactiveLane",
        lesson: "A lane takes the value of one that does not come to this shuffle, or is not in \
                 its mask: in each step all 32 lanes have to call it.",
        reference: Score { sectors: 35, global: 14, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct RowSums;

    impl Operation for RowSums {
        fn describe(&self) -> Description {
            Description {
                name: "warp-sum",
                idea: "sums of rows of 32 numbers, a warp for each",
                sizes: &["rows"],
                kernels: vec![row_sums_32::FACTS],
                small: testkit::every(&[&[0, 1, 4, 7]]),
                large: vec![vec![1 << 20]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows] = sizes.get(["rows"])?;
            let x = Argument::input("x", &[rows, 32], Distribution::Normal);
            Ok(vec![x, Argument::output("sums", &[rows])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(row_sums_32 { x: views.read("x")?, sums: views.write("sums")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let one = |row: &[f64]| {
                Expected::rounded(row.iter().sum(), 5, row.iter().map(|x| x.abs()).sum())
            };
            Ok(vec![values.of("x")?.chunks(32).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows"]).map_or(0.0, |[rows]| 32.0 * rows as f64)
        }
    }
}
