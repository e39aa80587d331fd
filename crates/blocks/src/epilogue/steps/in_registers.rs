//! The first steps of an epilogue, done with accumulators in registers: a bias of the columns, a lower bound (relu), or both, which most epilogues
//! begin with. They cost an instruction or two for an element; the biases are on their way while the product is computed.
//!
//! ```text
//!  before the main loop    fetch    bias[col …] ─── cp.async ───► shared memory, for each warp its own
//!  behind it               apply    accumulators ──► fma(factor, bias, ·) ──► max(·, least)
//!  then                             the steps that are left, as with any other kernel
//! ```

use cuda_std::async_copy;
use cuda_std::prelude::*;

use super::{BITS, StepOperand, Steps, StepsLeft, code};

impl Steps<'_> {
    /// The first steps, if they are ones that warps do with accumulators in registers, and if so wanted; and the others.
    ///
    /// ```
    /// use blocks::epilogue::{Activation, Steps};
    ///
    /// let steps = Steps::none().activation(Activation::Relu)?.scale(-1.0)?;
    /// let (first, left) = steps.in_registers(true);
    /// assert!(first.is_any() && !left.is_empty());
    /// let steps = Steps::none().activation(Activation::Gelu)?;
    /// assert!(!steps.in_registers(true).0.is_any());
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn in_registers(&self, is_wanted: bool) -> (InRegisters<'_>, StepsLeft<'_>) {
        // Found out where it is asked for: the compiler would keep it in registers from the beginning of a kernel on.
        let mut codes = [if is_wanted { self.codes } else { 0 }];
        hint::pin(&mut codes);
        let [mut codes] = codes;
        let is_first = |codes: u32, code: u32| codes & ((1 << BITS) - 1) == code;
        let StepOperand { first, stride, .. } = self.operands[0];
        let has_bias = is_first(codes, code::ADD) && first.row_stride() == 0;
        codes = if has_bias { codes >> BITS } else { codes };
        let has_bound = is_first(codes, code::AT_LEAST);
        codes = if has_bound { codes >> BITS } else { codes };
        let steps = InRegisters {
            data: first.data(),
            distance: first.col_stride(),
            stride,
            has_bias,
            factor: self.numbers[0],
            has_bound,
            least: self.numbers[usize::from(has_bias)],
        };
        let codes = if is_wanted { codes } else { self.codes };
        let number = u32::from(has_bias) + u32::from(has_bound);
        (steps, StepsLeft { steps: self, codes, number, operand: has_bias.into() })
    }
}

/// The first steps, which are done with accumulators in registers: [`Steps::in_registers`]. There may be none.
///
/// ```
/// use blocks::epilogue::{Activation, StepOperand, Steps};
/// use blocks::matrix::Matrix;
/// use cuda_std::prelude::*;
/// use cuda_std::{async_copy, examples};
///
/// // A warp, with accumulators of 16 rows and eight columns of 0.5.
/// let mut bias = [3.0, -5.0, 3.0, -5.0, 3.0, -5.0, 3.0, -5.0];
/// let values = examples::run_over(32, &mut bias, |bias: GlobalSlice<'_, f32>| {
///     let bias = StepOperand::new(Matrix::new(bias, 16, 8, 0, 1).unwrap(), 0, 1).unwrap();
///     let steps = Steps::none().add(2.0, bias).unwrap().activation(Activation::Relu).unwrap();
///     let (first, left) = steps.in_registers(true);
///     assert!(left.is_empty());
///     let mut accumulators = [0.5; 4];
///     // SAFETY: there is so much memory, and the operand fits; all lanes come here.
///     unsafe {
///         let memory = dynamic_shared::<f32>(0, 8);
///         first.fetch(&memory, 8, [0, 0], 8);
///         async_copy::wait_group::<0>();
///         first.apply(&memory, &mut accumulators);
///     }
///     accumulators
/// });
/// assert_eq!(values[0], [6.5, 0.0, 6.5, 0.0]);
/// ```
#[derive(Clone, Copy)]
pub struct InRegisters<'a> {
    data: GlobalSlice<'a, f32>,
    /// The elements from one column to the next, and from one product to the next.
    distance: u64,
    stride: u64,
    has_bias: bool,
    factor: f32,
    has_bound: bool,
    least: f32,
}

impl InRegisters<'_> {
    /// Whether there is one.
    ///
    /// ```
    /// assert!(!blocks::epilogue::Steps::none().in_registers(true).0.is_any());
    /// ```
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.has_bias || self.has_bound
    }

    /// Has the biases of `count` columns of the results of a product copied to shared memory, from column `col` of them on, of which there are `cols`;
    /// zeros for columns that there are not. If there is no bias, nothing is copied.
    ///
    /// # Safety
    /// All lanes of a warp come here, with `count` elements of `memory` that nobody else writes, and then wait for the copies by
    /// [`async_copy::wait_group`]. What others read there, they have read before. The steps [fit](Steps::fit) results with so many columns, and
    /// this product.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn fetch(&self, memory: &SharedSlice<f32>, count: u32, [product, col]: [u32; 2], cols: u32) {
        if !self.has_bias {
            return;
        }
        let first = u64::from(product) * self.stride;
        let mut number = warp::lane_id();
        while number < count {
            let col = col + number;
            let (place, is_there) = (first + u64::from(col) * self.distance, col < cols);
            // SAFETY: the operand has an element for each column of each product, by the caller's promise, and each lane has elements of its own of
            // the memory. It waits for them before the warp, or more warps, meet.
            unsafe {
                async_copy::copy_async::<1, _>(memory, number as usize, &self.data, place as usize, is_there.into());
            }
            number += warp::LANES;
        }
        async_copy::commit_group();
    }

    /// Does them: `values` are those of this lane of some groups of eight columns, as `wgmma` and `mma` leave accumulators, and `memory` has the
    /// biases of these columns. Each step rounds as [`Steps`] has it.
    ///
    /// # Safety
    /// All lanes of a warp come here, behind [`InRegisters::fetch`] and the wait for it: of their own, or of another warp, and then a barrier. If there is a
    /// bias, `memory` begins at a multiple of 8 bytes and has those of `2·N` columns.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn apply<const N: usize>(&self, memory: &SharedSlice<f32>, values: &mut [f32; N]) {
        const { assert!(N.is_multiple_of(4)) };
        if self.has_bias {
            // SAFETY: all lanes come here, by the caller's promise, behind the wait of those that have copied; what is read is inside the memory, which
            // begins at a multiple of 8 bytes.
            unsafe {
                warp::sync_warp(warp::ALL_LANES);
                let first = 2 * (warp::lane_id() & 3);
                for group in 0..N / 4 {
                    let biases = memory.skip(8 * group).read2(first as usize);
                    for i in 0..4 {
                        let value = &mut values[4 * group + i];
                        *value = math::fma(self.factor, biases[i % 2], *value);
                    }
                }
            }
        }
        if self.has_bound {
            for i in 0..N {
                values[i] = math::maximum(values[i], self.least);
            }
        }
    }

    /// The biases of `N` columns of the results of a product, of which there are `count`, for a thread that has values of these columns only; zeros for
    /// columns that there are not, and if there is no bias.
    ///
    /// ```
    /// use blocks::epilogue::{StepOperand, Steps};
    /// use blocks::matrix::Matrix;
    /// use cuda_std::{GlobalSlice, examples};
    ///
    /// let values = examples::run_over(1, &mut [3.0, 5.0, 7.0], |biases: GlobalSlice<f32>| {
    ///     let bias = StepOperand::new(Matrix::new(biases, 9, 3, 0, 1).unwrap(), 0, 1).unwrap();
    ///     let steps = Steps::none().add(2.0, bias).unwrap();
    ///     let (first, _) = steps.in_registers(true);
    ///     // SAFETY: there is a bias for each of the three columns.
    ///     first.compute(unsafe { first.biases(0, [2, 3], 3) }, [0.5, 0.25])
    /// });
    /// assert_eq!(values, [[14.5, 0.25]]);
    /// ```
    ///
    /// # Safety
    /// The steps [fit](Steps::fit) results with so many columns, and this product.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn biases<const N: usize>(&self, product: u32, cols: [u32; N], count: u32) -> [f32; N] {
        let mut biases = [0.0; N];
        if self.has_bias {
            for i in 0..N {
                if cols[i] < count {
                    let place = u64::from(product) * self.stride + u64::from(cols[i]) * self.distance;
                    // SAFETY: the operand has an element for each column of each product, by the caller's promise.
                    biases[i] = unsafe { self.data.get_unchecked(place as usize) };
                }
            }
        }
        biases
    }

    /// Does them with values of columns whose [biases](InRegisters::biases) are these.
    ///
    /// ```
    /// use blocks::epilogue::{Activation, Steps};
    ///
    /// let steps = Steps::none().activation(Activation::Relu)?;
    /// assert_eq!(steps.in_registers(true).0.compute([0.0; 2], [3.0, -1.0]), [3.0, 0.0]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn compute<const N: usize>(&self, biases: [f32; N], mut values: [f32; N]) -> [f32; N] {
        if self.has_bias {
            for i in 0..N {
                values[i] = math::fma(self.factor, biases[i], values[i]);
            }
        }
        if self.has_bound {
            for i in 0..N {
                values[i] = math::maximum(values[i], self.least);
            }
        }
        values
    }
}
