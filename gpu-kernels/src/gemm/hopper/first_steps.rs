//! The beginning of the epilogue of [`super::fp16_pairs`] and [`super::staged_pairs`]: what is done with accumulators before they leave the registers.
//!
//! ```text
//!  accumulators of a warpgroup,    · units ──► + bias ──► relu ──► a function, if one is next ──► shared memory
//!  128×128, 64×32 at a time
//! ```

use blocks::epilogue::{InRegisters, Step, Steps, StepsLeft};
use cuda_std::prelude::*;

use super::pairs_frame::HALF;
use super::promotion::ACCUMULATORS;
use crate::gemm::tiles::Tile;

/// The columns of results that a warpgroup brings to shared memory at a time: as many as there is room for beside the stages.
pub(super) const COLUMNS_AT_A_TIME: u32 = HALF / PARTS_OF_HALF;
pub(super) const PARTS_OF_HALF: u32 = 4;
/// The sums of them that a thread has.
const SUMS_AT_A_TIME: usize = ACCUMULATORS / PARTS_OF_HALF as usize;
const _: () = assert!(COLUMNS_AT_A_TIME == warp::LANES, "a lane adds the exceptions of a column");

/// What is done with the accumulators of a warp while they are in registers, part by part.
pub(super) struct FirstSteps<'a> {
    in_registers: InRegisters<'a>,
    /// Those of the columns of a half.
    biases: SharedSlice<f32>,
    /// Whether a function is done behind them.
    has_function: bool,
    function: Step<'a>,
}

impl<'a> FirstSteps<'a> {
    /// Has the biases of the columns of a warpgroup copied to `biases`, if there are any: [`InRegisters::fetch`].
    ///
    /// # Safety
    /// As there, with `warpgroup` that of the columns; there is room for those of a half.
    #[inline(always)]
    pub(super) unsafe fn fetch(tile: &Tile<'_>, warpgroup: u32, steps: &Steps<'_>, biases: &SharedSlice<f32>) {
        // SAFETY: the caller's promise.
        unsafe {
            steps.in_registers(true).0.fetch(biases, HALF, [tile.product, tile.col + warpgroup * HALF], tile.c.cols());
        }
    }

    /// The first steps of a tile, and those that are left. `is_sum`: whether nothing else comes before the steps; otherwise all are left.
    #[inline(always)]
    pub(super) fn of(steps: &'a Steps<'_>, is_sum: bool, biases: SharedSlice<f32>) -> (Self, StepsLeft<'a>) {
        let (in_registers, left) = steps.in_registers(is_sum);
        let has_function = is_sum && left.begin_with_function();
        let mut behind = left;
        let function = behind.take_without_operand();
        (Self { in_registers, biases, has_function, function }, if has_function { behind } else { left })
    }

    /// What they make of a part of the accumulators, in the units of the two rows of this thread.
    ///
    /// # Safety
    /// Called by all lanes of a consumer warp, for each of which the biases have been [fetched](Self::fetch) and are there.
    #[inline(always)]
    pub(super) unsafe fn sums(
        &self,
        part: u32,
        units: [[f32; 2]; 2],
        accumulators: &[[f32; ACCUMULATORS]; 2],
    ) -> [f32; SUMS_AT_A_TIME] {
        // (Accumulators that a number chooses would be in memory.)
        let mut sums = match part {
            0 => sums_of_part::<0>(units[0], &accumulators[0]),
            1 => sums_of_part::<1>(units[0], &accumulators[0]),
            2 => sums_of_part::<2>(units[0], &accumulators[0]),
            3 => sums_of_part::<3>(units[0], &accumulators[0]),
            4 => sums_of_part::<0>(units[1], &accumulators[1]),
            5 => sums_of_part::<1>(units[1], &accumulators[1]),
            6 => sums_of_part::<2>(units[1], &accumulators[1]),
            _ => sums_of_part::<3>(units[1], &accumulators[1]),
        };
        if self.in_registers.is_any() {
            // SAFETY: the caller's promise; the biases of a part are inside those of the half.
            unsafe {
                let biases = self.biases.skip((part % PARTS_OF_HALF * COLUMNS_AT_A_TIME) as usize);
                self.in_registers.apply(&biases, &mut sums);
            }
        }
        if self.has_function { self.function.compute(sums) } else { sums }
    }
}

/// The sums of part `PART` of the columns of a half: accumulators, in the units of the two rows of this thread.
#[inline(always)]
fn sums_of_part<const PART: usize>(units: [f32; 2], accumulators: &[f32; ACCUMULATORS]) -> [f32; SUMS_AT_A_TIME] {
    core::array::from_fn(|i| accumulators[PART * SUMS_AT_A_TIME + i] * units[i / 2 % 2])
}
