//! # 16. `votes`: a place for each number that is kept
//!
//! Often some numbers of many are kept, and those that are kept move together (*compaction*:
//! filters, sparse matrices, queues of work). The place of a number is how many were kept before
//! it. A warp finds that without memory, by a *vote*: `warp::warp_vote_ballot` gives all lanes one
//! word, in which bit i is what lane i has said.
//!
//! ```text
//!  lane             0     1     2     3     4     5   …
//!  x                7    −1     2     3    −5     4
//!  x > 0            1     0     1     1     0     1        votes = …101101 in binary
//!  kept before      0           1     2           3        ones of votes below the lane's own bit
//!  y                7     2     3     4                    and in the next round: 4 further on
//! ```
//!
//! `bits.count_ones()` is `__popc(bits)`. All lanes that the mask names have to come to the vote,
//! those that have no element among them.
//!
//! The other lesson is the sum over all rows: additions to one address take place one after the
//! other, so a warp adds once, by one of its lanes, what all of its lanes have counted.
//!
//! The result is right as it stands: one lane does it all. What fails is the score.
//!
//! **Write:** the rounds, 32 columns in each, in which all lanes take part, so that `kept` is in
//! the end how many numbers of the row were kept, in all lanes; and one addition to `total`.
//@ hint A round: each lane reads one element, or takes 0 where there is none; all vote; who keeps stores; all add to `kept` how many have.
//@ hint The lanes before lane i are the bits below bit i: `votes & ((1 << lane) - 1)`.
//@ hint Loop while `round < cols`, which is the same for all lanes, and not while the lane's own column is inside: else some lanes do not come to the last vote.
//@ hint `let votes = warp::warp_vote_ballot(warp::ALL_LANES, value > 0.0);`, then the store at `first + kept + before`, then `kept += votes.count_ones() as usize`.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

/// Sets the total to zero, before the launch.
#[kernel(block = 32, grid = 1)]
pub fn reset_total(total: DisjointSlice<'_, u32>) {
    total.own_elements().for_each(|total| total.set(0));
}

/// Moves the positive numbers of each row to its beginning, in their order, with zeros behind, and
/// counts those of all rows. A warp has a row.
#[kernel(
    block = 128,
    grid = crate::puzzle::blocks(rows as usize, 4),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len(), total.len() == 1)
)]
pub fn keep_positive(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
    total: GlobalAtomics<'_, u32>,
) {
    let (row, cols, lane) = (thread::index_1d() / 32, cols as usize, warp::lane_id() as usize);
    if row >= rows as usize {
        return; // the whole warp
    }
    let first = row * cols;
    let mut kept = 0;
    // SAFETY: columns are below cols, and as many numbers were kept as there are columns at most;
    // no two lanes store at one place. All lanes take as many rounds, and come to all votes.
    unsafe {
        //@ blank
        let mut round = 0;
        while round < cols {
            let col = round + lane;
            let value = if col < cols { x.get_unchecked(first + col) } else { 0.0 };
            let votes = warp::warp_vote_ballot(warp::ALL_LANES, value > 0.0);
            if value > 0.0 {
                let before = (votes & ((1 << lane) - 1)).count_ones() as usize;
                y.set_unchecked(first + kept + before, value);
            }
            kept += votes.count_ones() as usize;
            round += 32;
        }
        if lane == 0 {
            total.get_unchecked(0).fetch_add(kept as u32, Relaxed, Scope::Device);
        }
        //@ instead
        //| if lane == 0 {
        //|     for col in 0..cols {
        //|         let value = x.get_unchecked(first + col);
        //|         if value > 0.0 {
        //|             y.set_unchecked(first + kept, value);
        //|             kept += 1;
        //|             total.get_unchecked(0).fetch_add(1, Relaxed, Scope::Device);
        //|         }
        //|     }
        //| }
        //| // The other lanes are told.
        //| kept = warp::warp_shuffle_idx(warp::ALL_LANES, kept as u32, 0, 32).0 as usize;
        //@ end
        let mut col = kept + lane;
        while col < cols {
            y.set_unchecked(first + col, 0.0);
            col += 32;
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{keep_positive, reset_total};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "votes",
        file: file!(),
        source: include_str!("p16_votes.rs"),
        operation: &KeepPositive,
        fails: "Score",
        lesson: "A lane that works alone needs an instruction for each number, where a warp needs \
                 one for 32; and it adds to the total once for each number that it keeps.",
        reference: Score { sectors: 301, global: 95, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits { global: Some(95), ..Limits::NONE },
        judge: None,
    };

    struct KeepPositive;

    impl Operation for KeepPositive {
        fn describe(&self) -> Description {
            Description {
                name: "votes",
                idea: "the positive numbers of each row, moved to its beginning",
                sizes: &["rows", "cols"],
                kernels: vec![reset_total::FACTS, keep_positive::FACTS],
                small: testkit::cases(&[[0, 3], [1, 0], [2, 1], [1, 32], [3, 33], [5, 200]]),
                large: vec![vec![16_384, 4096]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("x", &[rows, cols], Distribution::Uniform(-1.0, 1.0)),
                Argument::output("y", &[rows, cols]),
                Argument::output("total", &[1]).of(Element::U32),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            device.launch(reset_total { total: views.disjoint("total")? })?;
            let (x, y) = (views.read("x")?, views.write("y")?);
            Ok(device.launch(keep_positive { rows, cols, x, y, total: views.atomics("total")? })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], x) = (sizes.get(["rows", "cols"])?, values.of("x")?);
            let kept_of = |row: usize| x[row * cols..][..cols].iter().copied().filter(|x| *x > 0.0);
            let of_row = |row: usize| {
                let zeros = std::iter::repeat(0.0);
                kept_of(row).chain(zeros).take(cols).map(Expected::exact).collect::<Vec<_>>()
            };
            let total: usize = (0..rows).map(|row| kept_of(row).count()).sum();
            let y = (0..rows).flat_map(of_row).collect();
            Ok(vec![y, vec![Expected::exact(total as f64)]])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
