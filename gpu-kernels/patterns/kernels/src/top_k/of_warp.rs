//! The largest k numbers of short rows, a warp for each: one after the other is taken.
//!
//! ```text
//!  128 columns    4 numbers of each lane, in registers, or 16 of up to 512; the first of them in the order
//!                   │ the first of those of all lanes: 5 shuffles, and 5 more for the index where several lanes have as large a number
//!  lane i         keeps the index of the i-th, and of the (32 + i)-th
//!                   │ the lane that had it looks for its next one
//!                   … k times
//! ```
//!
//! A block would have more to do to begin with than all of this is.

use cuda_std::prelude::*;

use super::{MOST, order_of};
use crate::row::{FOUR, LANES, Needed, Team};

/// The most columns of which lanes have so many groups of four.
pub const fn columns(groups: usize) -> usize {
    groups * FOUR * LANES
}

/// The rows of a block, and its threads.
const ROWS: usize = 8;
const THREADS: usize = ROWS * LANES;

/// The largest number of those of all lanes. All get it.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn largest_of_lanes(mut number: u32) -> u32 {
    for distance in [16, 8, 4, 2, 1] {
        // SAFETY: the caller's promise.
        number = number.max(unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, number, distance, warp::LANES) }.0);
    }
    number
}

/// The largest k numbers of each row of up to 128 or 512, a warp for each.
#[kernel(
    block = THREADS as u32,
    grid = rows.div_ceil(ROWS as u32).max(1),
    requires(
        x.len() == rows as usize * cols as usize, 0 < k, k as usize <= MOST, cols as usize <= columns(GROUPS), k <= cols,
        values.len() == rows as usize * k as usize, indices.len() == values.len()
    ),
    instances(top_k_of_warp_4_fp32 = <1>, top_k_of_warp_16_fp32 = <4>)
)]
pub fn top_k_of_warp<const GROUPS: usize>(
    rows: u32,
    cols: u32,
    k: u32,
    x: GlobalSlice<'_, f32>,
    values: GlobalSliceMut<'_, f32>,
    indices: GlobalSliceMut<'_, u32>,
) {
    let (me, lane, cols) = (thread::thread_idx_x() as usize, warp::lane_id(), cols as usize);
    let row = thread::block_idx_x() as usize * ROWS + me / LANES;
    if row >= rows as usize {
        return; // the same for the whole warp
    }
    let team = Team::<LANES>::new(me % LANES, cols, x.as_ptr().addr());
    // SAFETY: the launch has checked the lengths, and k. A row is one warp's, all of whose lanes come here, and to each shuffle and vote. Indices
    // are those of columns, as there are k.
    unsafe {
        let numbers: [[f32; FOUR]; GROUPS] = team.load(x, row * cols, 0, 0.0, Needed::Once);
        let mut upper = [[0; FOUR]; GROUPS];
        for group in 0..GROUPS {
            for i in 0..FOUR {
                upper[group][i] = if team.has(group, i) { order_of(numbers[group][i]) } else { 0 };
            }
        }
        // Among equals, the first has the lowest index: a lane's columns ascend.
        let first_of_lane = |upper: &[[u32; FOUR]; GROUPS]| {
            let (mut largest, mut lower) = (0, 0);
            for group in 0..GROUPS {
                for i in 0..FOUR {
                    if upper[group][i] > largest {
                        (largest, lower) = (upper[group][i], !team.col(group, i));
                    }
                }
            }
            [largest, lower]
        };
        let [mut largest, mut lower] = first_of_lane(&upper);
        let mut kept = [0; MOST / LANES];
        for number in 0..k {
            let first = largest_of_lanes(largest);
            let lanes = warp::warp_vote_ballot(warp::ALL_LANES, largest == first);
            let first_lower = if lanes.is_power_of_two() {
                warp::warp_shuffle_idx(warp::ALL_LANES, lower, lanes.trailing_zeros(), warp::LANES).0
            } else {
                largest_of_lanes(if largest == first { lower } else { 0 })
            };
            for half in 0..MOST / LANES {
                if number == lane + (half * LANES) as u32 {
                    kept[half] = !first_lower;
                }
            }
            if largest == first && lower == first_lower {
                for group in 0..GROUPS {
                    for i in 0..FOUR {
                        if team.col(group, i) == !first_lower {
                            upper[group][i] = 0;
                        }
                    }
                }
                [largest, lower] = first_of_lane(&upper);
            }
        }
        for half in 0..MOST / LANES {
            let place = lane + (half * LANES) as u32;
            if place < k {
                let to = row * k as usize + place as usize;
                values.set_unchecked(to, x.get_unchecked(row * cols + kept[half] as usize));
                indices.set_unchecked(to, kept[half]);
            }
        }
    }
}
