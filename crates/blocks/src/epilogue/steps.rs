//! The built-in epilogue: steps that a kernel reads from its argument, so that one kernel has every one of them.
//!
//! ```text
//!  accumulator ──► · 2 ──► + D[row, col] ──► gelu ──► … ──► C[row, col]       up to 8 steps, in this order
//!
//!  codes     │ 1 │ 12 │ 6 │ 0 │ …     four bits each, the first step lowest; 0 is the end
//!  numbers   │ 2 │ 1  │   │   │ …     one for each step
//!  operands  │ D │                    one for each step that has one, in their order: at most three
//! ```
//!
//! An operand has an element for each element of C; with a stride of 0 along the rows, one for each column (a bias), and so on.
//!
//! The threads of a grid all do the same steps, so their branches do not diverge. Each function stands once in a kernel's code, for as many
//! neighbours as it is called for: a loop over the steps is kept rolled. What a step is, is found out each time: some sixty instructions for
//! one with an operand. So threads with many elements, which they have in shared memory, do a step for all of them before the next one
//! ([`Steps::left`]).

mod in_registers;

use cuda_std::prelude::*;
pub use in_registers::InRegisters;

use super::Epilogue;
#[cfg(not(target_arch = "nvptx64"))]
use super::activation::Activation;
use super::activation::{ByExponential, by_exponential, gelu, gelu_tanh, leaky_relu, tanh};
#[cfg(not(target_arch = "nvptx64"))]
use crate::matrix::ShapeError;
use crate::matrix::{Matrix, MatrixMut};

/// The most steps.
///
/// ```
/// assert_eq!(blocks::epilogue::MOST_STEPS, 8);
/// ```
pub const MOST_STEPS: usize = 8;

/// The most steps with an operand.
///
/// ```
/// assert_eq!(blocks::epilogue::MOST_OPERANDS, 3);
/// ```
pub const MOST_OPERANDS: usize = 3;

/// The bits of a code.
const BITS: u32 = 4;

/// What a step does, as a kernel reads it.
#[cfg_attr(
    target_arch = "nvptx64",
    expect(dead_code, reason = "a kernel knows the last of each group of codes by its being none of the others")
)]
mod code {
    pub(super) const SCALE: u32 = 1;
    pub(super) const OFFSET: u32 = 2;
    pub(super) const AT_LEAST: u32 = 3;
    pub(super) const AT_MOST: u32 = 4;
    pub(super) const LEAKY_RELU: u32 = 5;
    pub(super) const GELU: u32 = 6;
    pub(super) const TANH: u32 = 7;
    pub(super) const SIGMOID: u32 = 8;
    pub(super) const SILU: u32 = 9;
    pub(super) const GELU_TANH: u32 = 10;
    pub(super) const MISH: u32 = 11;
    pub(super) const ADD: u32 = 12;
    pub(super) const MULTIPLY: u32 = 13;
}

/// What a step reads besides: a matrix for each product of a batch, or one for all.
///
/// Invariant, which the constructor establishes and kernels rely on: every element of every matrix lies inside the data.
///
/// ```
/// use blocks::epilogue::StepOperand;
/// use blocks::matrix::Matrix;
/// use cuda_std::GlobalSlice;
///
/// // A bias for each of three columns, of ten rows and four products.
/// let bias = Matrix::new(GlobalSlice::new(&[1.0, 2.0, 3.0]), 10, 3, 0, 1)?;
/// assert!(StepOperand::new(bias, 0, 4).is_ok());
/// # Ok::<(), blocks::matrix::ShapeError>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct StepOperand<'a> {
    first: Matrix<'a>,
    stride: u64,
    products: u64,
}

/// What is done to each element of the results of some products, one step after the other.
///
/// Invariant, which the methods establish and kernels rely on: there are as many operands as steps that have one.
///
/// ```
/// use blocks::epilogue::{Activation, Epilogue, Steps};
///
/// let steps = Steps::none().scale(3.0)?.offset(-1.0)?.activation(Activation::Relu)?;
/// // SAFETY: there are no operands.
/// assert_eq!(unsafe { [steps.value(0, 0, 2.0), steps.value(0, 0, 0.0)] }, [5.0, 0.0]);
/// # Ok::<(), blocks::epilogue::TooManySteps>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Steps<'a> {
    operands: [StepOperand<'a>; MOST_OPERANDS],
    numbers: [f32; MOST_STEPS],
    codes: u32,
}

/// Neighbours in a row of C, or in a column.
///
/// ```
/// use blocks::epilogue::Neighbours;
///
/// let column = Neighbours { product: 0, row: 4, col: 7, count: 4, in_column: true };
/// assert_eq!(column.row + column.count, 8);
/// ```
#[derive(Clone, Copy)]
pub struct Neighbours {
    /// Which product of the batch.
    pub product: u32,
    /// The row of the first of them.
    pub row: u32,
    /// Its column.
    pub col: u32,
    /// How many of them are inside C.
    pub count: u32,
    /// Whether they are in a column.
    pub in_column: bool,
}

impl Neighbours {
    /// One element.
    ///
    /// ```
    /// use blocks::epilogue::Neighbours;
    ///
    /// assert_eq!(Neighbours::one(0, 1, 2).count, 1);
    /// ```
    #[inline(always)]
    pub fn one(product: u32, row: u32, col: u32) -> Self {
        Self { product, row, col, count: 1, in_column: false }
    }
}

impl Steps<'_> {
    /// Whether there are none.
    ///
    /// ```
    /// assert!(blocks::epilogue::Steps::none().is_empty());
    /// ```
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.codes == 0
    }

    /// What becomes of neighbours. What is beyond those inside C is of no use.
    ///
    /// ```
    /// use blocks::epilogue::{Neighbours, Steps};
    ///
    /// let at = Neighbours { product: 0, row: 0, col: 0, count: 2, in_column: false };
    /// // SAFETY: there are no operands.
    /// let values = unsafe { Steps::none().scale(2.0)?.apply(at, [1.0, -3.0]) };
    /// assert_eq!(values, [2.0, -6.0]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    ///
    /// # Safety
    /// The first [`count`](Neighbours::count) neighbours are elements of results that [fit](Steps::fit).
    #[inline(always)]
    #[track_caller]
    pub unsafe fn apply<const N: usize>(&self, at: Neighbours, mut values: [f32; N]) -> [f32; N] {
        let mut left = self.left();
        while !left.is_empty() {
            let step = left.take();
            values = match step.has_operand() {
                // SAFETY: the caller's promise.
                true => step.combine(values, unsafe { step.load(at) }),
                false => step.compute(values),
            };
        }
        values
    }

    /// All of them, to be [taken](StepsLeft::take) one after the other: for threads that do a step for all of their elements before the next one.
    ///
    /// ```
    /// use blocks::epilogue::Steps;
    ///
    /// let (steps, mut values) = (Steps::none().scale(2.0)?.offset(1.0)?, [3.0, -5.0]);
    /// let mut left = steps.left();
    /// while !left.is_empty() {
    ///     values = left.take().compute(values);
    /// }
    /// assert_eq!(values, [7.0, -9.0]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn left(&self) -> StepsLeft<'_> {
        StepsLeft { steps: self, codes: self.codes, number: 0, operand: 0 }
    }

    /// The number of a step: chosen from all of them, because what is indexed at run time has to be in memory.
    #[inline(always)]
    fn number(&self, step: u32) -> f32 {
        let mut number = self.numbers[0];
        for i in 1..MOST_STEPS {
            number = if step == i as u32 { self.numbers[i] } else { number };
        }
        number
    }

    /// An operand, likewise: each number of it that a step needs.
    #[inline(always)]
    fn operand(&self, number: u32) -> StepOperand<'_> {
        let of = |i: usize| {
            let StepOperand { first, stride, .. } = self.operands[i];
            (first.data(), first.row_stride(), first.col_stride(), stride)
        };
        let (mut data, mut row_stride, mut col_stride, mut stride) = of(0);
        for i in 1..MOST_OPERANDS {
            let is_this = number == i as u32;
            let of_this = of(i);
            data = if is_this { of_this.0 } else { data };
            row_stride = if is_this { of_this.1 } else { row_stride };
            col_stride = if is_this { of_this.2 } else { col_stride };
            stride = if is_this { of_this.3 } else { stride };
        }
        // SAFETY: a matrix of no elements: how many there are, a step does not ask.
        let first = unsafe { Matrix::from_parts(data, [0, 0], [row_stride, col_stride]) };
        StepOperand { first, stride, products: 0 }
    }
}

/// The steps that are left, as [`Steps::left`] gives them.
///
/// ```
/// assert!(blocks::epilogue::Steps::none().left().is_empty());
/// ```
#[derive(Clone, Copy)]
pub struct StepsLeft<'a> {
    steps: &'a Steps<'a>,
    codes: u32,
    number: u32,
    operand: u32,
}

impl<'a> StepsLeft<'a> {
    /// Whether none is left.
    ///
    /// ```
    /// assert!(blocks::epilogue::Steps::none().left().is_empty());
    /// ```
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.codes == 0
    }

    /// The first of them, which then is left no longer; of no use if there is none. (No `Option`: LLVM would keep it in memory.)
    ///
    /// ```
    /// use blocks::epilogue::Steps;
    ///
    /// let steps = Steps::none().scale(2.0)?;
    /// assert_eq!(steps.left().take().compute([3.0]), [6.0]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn take(&mut self) -> Step<'a> {
        let code = self.codes & ((1 << BITS) - 1);
        let step = Step { code, number: self.steps.number(self.number), operand: self.steps.operand(self.operand) };
        self.operand += u32::from(step.has_operand());
        self.number += 1;
        self.codes = hint::keep_rolled(self.codes >> BITS);
        step
    }

    /// Whether there is one, and the first has no operand, so that [`StepsLeft::take_without_operand`] takes it.
    ///
    /// ```
    /// use blocks::epilogue::Steps;
    ///
    /// assert!(Steps::none().scale(2.0)?.left().begin_with_function() && !Steps::none().left().begin_with_function());
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn begin_with_function(&self) -> bool {
        let code = self.codes & ((1 << BITS) - 1);
        code != 0 && code < code::ADD
    }

    /// The first of them as [`StepsLeft::take`] does it, if it has no operand; otherwise, or if none is left, a step that changes nothing.
    ///
    /// ```
    /// use blocks::epilogue::Steps;
    ///
    /// let steps = Steps::none().scale(2.0)?;
    /// let mut left = steps.left();
    /// assert_eq!([0; 2].map(|_| left.take_without_operand().compute([3.0])), [[6.0], [3.0]]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn take_without_operand(&mut self) -> Step<'a> {
        if !self.begin_with_function() {
            return Step { code: code::SCALE, number: 1.0, operand: self.steps.operand(0) };
        }
        self.take()
    }
}

/// One of the steps: [`Steps::left`].
///
/// ```
/// let steps = blocks::epilogue::Steps::none().offset(1.0)?;
/// let step = steps.left().take();
/// assert!(!step.has_operand());
/// # Ok::<(), blocks::epilogue::TooManySteps>(())
/// ```
#[derive(Clone, Copy)]
pub struct Step<'a> {
    code: u32,
    number: f32,
    /// Of no use if the step has none.
    operand: StepOperand<'a>,
}

impl Step<'_> {
    /// Whether it is done by [`Step::load`] and [`Step::combine`]. If not, it is done by [`Step::compute`].
    ///
    /// ```
    /// let steps = blocks::epilogue::Steps::none().scale(1.0)?;
    /// let step = steps.left().take();
    /// assert!(!step.has_operand());
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    pub fn has_operand(&self) -> bool {
        self.code >= code::ADD
    }

    /// Whether the operand has the same elements for all rows of C; or, if so asked, for all columns: a bias.
    ///
    /// ```
    /// use blocks::epilogue::{StepOperand, Steps};
    /// use blocks::matrix::Matrix;
    /// use cuda_std::GlobalSlice;
    ///
    /// let bias = Matrix::new(GlobalSlice::new(&[1.0, 2.0]), 5, 2, 0, 1)?;
    /// let of_both = |step: &blocks::epilogue::Step<'_>| [false, true].map(|columns| step.repeats(columns));
    /// let steps = Steps::none().add(1.0, StepOperand::new(bias, 0, 1)?)?;
    /// let step = steps.left().take();
    /// assert_eq!(of_both(&step), [true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn repeats(&self, for_all_columns: bool) -> bool {
        let first = self.operand.first;
        (if for_all_columns { first.col_stride() } else { first.row_stride() }) == 0
    }

    /// What a step without an operand makes of some numbers.
    ///
    /// ```
    /// let steps = blocks::epilogue::Steps::none().scale(3.0)?;
    /// let step = steps.left().take();
    /// assert_eq!(step.compute([2.0]), [6.0]);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn compute<const N: usize>(&self, values: [f32; N]) -> [f32; N] {
        struct OfEach<const N: usize>([f32; N]);
        impl<const N: usize> WithFunction for OfEach<N> {
            type Result = [f32; N];
            #[inline(always)]
            unsafe fn with(self, function: impl Fn(f32) -> f32) -> [f32; N] {
                // (No `map`: that of many is not inlined.)
                let Self(mut values) = self;
                for i in 0..N {
                    values[i] = function(values[i]);
                }
                values
            }
        }
        // SAFETY: nothing is asked for.
        unsafe { self.dispatch(OfEach(values)) }
    }

    /// Calls `then` with what a step without an operand makes of a number: with one function, whose code stands there, so that a loop over many numbers
    /// need not find out each time.
    ///
    /// ```
    /// use blocks::epilogue::{Steps, WithFunction};
    ///
    /// struct Sum<'a>(&'a [f32]);
    /// impl WithFunction for Sum<'_> {
    ///     type Result = f32;
    ///     unsafe fn with(self, function: impl Fn(f32) -> f32) -> f32 {
    ///         self.0.iter().map(|x| function(*x)).sum()
    ///     }
    /// }
    /// let steps = Steps::none().scale(3.0)?;
    /// // SAFETY: nothing is asked for.
    /// assert_eq!(unsafe { steps.left().take().dispatch(Sum(&[2.0, 5.0])) }, 21.0);
    /// # Ok::<(), blocks::epilogue::TooManySteps>(())
    /// ```
    ///
    /// # Safety
    /// As `then` says of [`WithFunction::with`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dispatch<T: WithFunction>(&self, then: T) -> T::Result {
        let (code, number) = (self.code, self.number);
        // SAFETY: the caller's promise.
        unsafe {
            if code >= code::SIGMOID {
                match code {
                    code::SIGMOID => then.with(|x| by_exponential(ByExponential::Sigmoid, x)),
                    code::SILU => then.with(|x| by_exponential(ByExponential::Silu, x)),
                    code::GELU_TANH => then.with(gelu_tanh),
                    _ => then.with(|x| by_exponential(ByExponential::Mish, x)),
                }
            } else if code >= code::GELU {
                if code == code::GELU { then.with(gelu) } else { then.with(tanh) }
            } else if code >= code::AT_LEAST {
                match code {
                    code::AT_LEAST => then.with(|x| math::maximum(x, number)),
                    code::AT_MOST => then.with(|x| math::minimum(x, number)),
                    _ => then.with(|x| leaky_relu(x, number)),
                }
            } else {
                let [factor, summand] = if code == code::SCALE { [number, -0.0] } else { [1.0, number] };
                // (A product by a sum with -0 is the product itself.)
                then.with(|x| math::fma(x, factor, summand))
            }
        }
    }

    /// The elements of the operand that belong to neighbours; zeros for those outside of C.
    ///
    /// ```
    /// use blocks::epilogue::{Neighbours, StepOperand, Steps};
    /// use blocks::matrix::Matrix;
    /// use cuda_std::{GlobalSlice, examples};
    ///
    /// let values = examples::run_over(1, &mut [3.0, 5.0, 7.0], |data: GlobalSlice<f32>| {
    ///     let operand = StepOperand::new(Matrix::new(data, 1, 3, 3, 1).unwrap(), 0, 1).unwrap();
    ///     let at = Neighbours { product: 0, row: 0, col: 1, count: 2, in_column: false };
    ///     // SAFETY: the operand has an element for each of these two.
    ///     unsafe { Steps::none().multiply(operand).unwrap().left().take().load(at) }
    /// });
    /// assert_eq!(values, [[5.0, 7.0, 0.0, 0.0]]);
    /// ```
    ///
    /// # Safety
    /// The step has an operand, and the first [`count`](Neighbours::count) neighbours are elements of results that the steps [fit](Steps::fit).
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<const N: usize>(&self, at: Neighbours) -> [f32; N] {
        let StepOperand { first, stride, .. } = self.operand;
        let data = first.data();
        let distance = if at.in_column { first.row_stride() } else { first.col_stride() };
        let place = first.offset(at.row, at.col) as u64 + u64::from(at.product) * stride;
        let mut loaded = [0.0; N];
        if N == 4 && distance == 1 && at.count >= 4 && (data.as_ptr() as u64 / 4 + place).is_multiple_of(4) {
            // SAFETY: the operand has four elements side by side, by the caller's promise; aligned, as just found.
            let four = unsafe { data.get4_unchecked(place as usize) };
            for i in 0..N {
                loaded[i] = four[i % 4];
            }
            return loaded;
        }
        for i in 0..N {
            if (i as u32) < at.count {
                // SAFETY: the operand has an element for each of the results, by the caller's promise.
                loaded[i] = unsafe { data.get_unchecked((place + i as u64 * distance) as usize) };
            }
        }
        loaded
    }

    /// Whether the operand's elements lie as those of these results do, of which each product is `stride` elements behind the one before: then an element of the
    /// results and the one of the operand that belongs to it are at the same place of their data.
    ///
    /// ```
    /// use blocks::epilogue::{StepOperand, Steps};
    /// use blocks::matrix::{Matrix, MatrixMut};
    /// use cuda_std::{GlobalSlice, GlobalSliceMut};
    ///
    /// let residual = Matrix::new(GlobalSlice::new(&[0.0; 6]), 2, 3, 3, 1)?;
    /// let steps = Steps::none().add(1.0, StepOperand::new(residual, 6, 1)?)?;
    /// let mut results = [0.0; 6];
    /// let results = MatrixMut::new(GlobalSliceMut::new(&mut results), 2, 3, 3, 1)?;
    /// assert!(steps.left().take().lies_like(&results, 6) && !steps.left().take().lies_like(&results, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn lies_like(&self, results: &MatrixMut<'_>, stride: u64) -> bool {
        let StepOperand { first, stride: own, .. } = self.operand;
        first.row_stride() == results.row_stride() && first.col_stride() == results.col_stride() && own == stride
    }

    /// The element at a place of the operand's data.
    ///
    /// ```
    /// use blocks::epilogue::{StepOperand, Steps};
    /// use blocks::matrix::Matrix;
    /// use cuda_std::{GlobalSlice, examples};
    ///
    /// let value = examples::run_over(1, &mut [3.0, 5.0], |data: GlobalSlice<f32>| {
    ///     let operand = StepOperand::new(Matrix::new(data, 1, 2, 2, 1).unwrap(), 0, 1).unwrap();
    ///     // SAFETY: there are two elements.
    ///     unsafe { Steps::none().multiply(operand).unwrap().left().take().load_at(1) }
    /// });
    /// assert_eq!(value, [5.0]);
    /// ```
    ///
    /// # Safety
    /// The step has an operand, and its data so many elements.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_at(&self, place: u64) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.operand.first.data().get_unchecked(place as usize) }
    }

    /// What the step makes of some numbers and what has been [loaded](Step::load) for them.
    ///
    /// ```
    /// use blocks::epilogue::{StepOperand, Steps};
    /// use blocks::matrix::Matrix;
    /// use cuda_std::GlobalSlice;
    ///
    /// let operand = StepOperand::new(Matrix::new(GlobalSlice::new(&[0.5]), 1, 1, 1, 1)?, 0, 1)?;
    /// let steps = Steps::none().add(2.0, operand)?;
    /// let step = steps.left().take();
    /// assert_eq!(step.combine([1.0], [0.5]), [2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn combine<const N: usize>(&self, values: [f32; N], loaded: [f32; N]) -> [f32; N] {
        let mut results = values;
        for i in 0..N {
            results[i] = match self.code {
                code::ADD => math::fma(self.number, loaded[i], values[i]),
                _ => values[i] * loaded[i],
            };
        }
        results
    }
}

/// What is done with the function of a step: [`Step::dispatch`].
///
/// ```
/// use blocks::epilogue::WithFunction;
///
/// struct Of(f32);
/// impl WithFunction for Of {
///     type Result = f32;
///     unsafe fn with(self, function: impl Fn(f32) -> f32) -> f32 {
///         function(self.0)
///     }
/// }
/// // SAFETY: nothing is asked for.
/// assert_eq!(unsafe { Of(2.0).with(|x| x + 1.0) }, 3.0);
/// ```
pub trait WithFunction {
    /// What comes of it.
    type Result;

    /// Does it.
    ///
    /// # Safety
    /// As an implementation says.
    unsafe fn with(self, function: impl Fn(f32) -> f32) -> Self::Result;
}

/// The steps of the first product.
impl Epilogue for Steps<'_> {
    #[inline(always)]
    unsafe fn value(&self, row: u32, col: u32, accumulator: f32) -> f32 {
        // SAFETY: the caller's promise.
        let [value] = unsafe { self.apply(Neighbours::one(0, row, col), [accumulator]) };
        value
    }
}

impl<'a> Steps<'a> {
    /// No steps.
    ///
    /// ```
    /// assert_eq!(blocks::epilogue::Steps::none().len(), 0);
    /// ```
    #[inline(always)]
    pub fn none() -> Self {
        let nothing = GlobalSlice::new(&[]);
        // SAFETY: a matrix of no elements.
        let first = unsafe { Matrix::from_parts(nothing, [0, 0], [0, 0]) };
        let operand = StepOperand { first, stride: 0, products: 0 };
        Self { operands: [operand; MOST_OPERANDS], numbers: [0.0; MOST_STEPS], codes: 0 }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod construct {
    //! The constructors, which only the host calls.

    use super::*;

    /// There are too many steps, or too many of them have operands.
    ///
    /// ```
    /// use blocks::epilogue::{Steps, TooManySteps};
    ///
    /// let eight = (0..8).try_fold(Steps::none(), |steps, _| steps.offset(1.0))?;
    /// assert_eq!(eight.offset(1.0).err(), Some(TooManySteps { steps: 9, operands: 0 }));
    /// # Ok::<(), TooManySteps>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error(
        "an epilogue has {steps} steps, {operands} of them with a matrix: at most {MOST_STEPS} and {MOST_OPERANDS} can be \
         (a clamp takes two): leave something to another kernel"
    )]
    pub struct TooManySteps {
        /// The steps.
        pub steps: usize,
        /// Those of them that have an operand.
        pub operands: usize,
    }

    impl<'a> StepOperand<'a> {
        /// `products` matrices like `first`, each `stride` elements after the one before, in the same data. Strides may be zero.
        ///
        /// ```
        /// use blocks::epilogue::StepOperand;
        /// use blocks::matrix::Matrix;
        /// use cuda_std::GlobalSlice;
        ///
        /// let matrix = Matrix::new(GlobalSlice::new(&[0.0; 12]), 2, 3, 3, 1)?;
        /// assert!(StepOperand::new(matrix, 6, 2).is_ok() && StepOperand::new(matrix, 7, 2).is_err());
        /// # Ok::<(), blocks::matrix::ShapeError>(())
        /// ```
        ///
        /// # Errors
        /// [`ShapeError::BatchOutOfBounds`] if the last one is not inside the data.
        pub fn new(first: Matrix<'a>, stride: usize, products: usize) -> Result<Self, ShapeError> {
            let along = |extent: u32, stride: u64| u64::from(extent.saturating_sub(1)) * stride;
            let is_empty = first.rows() == 0 || first.cols() == 0 || products == 0;
            // It fits: a matrix that exists lies inside its data.
            let span = along(first.rows(), first.row_stride()) + along(first.cols(), first.col_stride()) + 1;
            let last = (products as u64).saturating_sub(1).checked_mul(stride as u64);
            let (count, stride, len) = (products as u64, stride as u64, first.data().len() as u64);
            match last.and_then(|last| last.checked_add(span)) {
                Some(end) if end <= len => Ok(Self { first, stride, products: count }),
                _ if is_empty => Ok(Self { first, stride, products: count }),
                _ => Err(ShapeError::BatchOutOfBounds { count, stride, span, len }),
            }
        }
    }

    impl<'a> Steps<'a> {
        /// These, and then another one.
        fn and(mut self, code: u32, number: f32, operand: Option<StepOperand<'a>>) -> Result<Self, TooManySteps> {
            let (steps, operands) = (self.len(), self.operands().len());
            let too_many = TooManySteps { steps: steps + 1, operands: operands + usize::from(operand.is_some()) };
            *self.numbers.get_mut(steps).ok_or(too_many)? = number;
            if let Some(operand) = operand {
                *self.operands.get_mut(operands).ok_or(too_many)? = operand;
            }
            self.codes |= code << (BITS * steps as u32);
            Ok(self)
        }

        /// And then the product with a number.
        ///
        /// ```
        /// use blocks::epilogue::{Epilogue, Steps};
        ///
        /// // SAFETY: there are no operands.
        /// assert_eq!(unsafe { Steps::none().scale(2.0)?.value(0, 0, 1.5) }, 3.0);
        /// # Ok::<(), blocks::epilogue::TooManySteps>(())
        /// ```
        ///
        /// # Errors
        /// [`TooManySteps`].
        pub fn scale(self, factor: f32) -> Result<Self, TooManySteps> {
            self.and(code::SCALE, factor, None)
        }

        /// And then the sum with a number.
        ///
        /// ```
        /// use blocks::epilogue::{Epilogue, Steps};
        ///
        /// // SAFETY: there are no operands.
        /// assert_eq!(unsafe { Steps::none().offset(2.0)?.value(0, 0, 1.5) }, 3.5);
        /// # Ok::<(), blocks::epilogue::TooManySteps>(())
        /// ```
        ///
        /// # Errors
        /// [`TooManySteps`].
        pub fn offset(self, summand: f32) -> Result<Self, TooManySteps> {
            self.and(code::OFFSET, summand, None)
        }

        /// And then the sum with `factor` times an element of an operand, in one fused operation.
        ///
        /// ```
        /// use blocks::epilogue::{Epilogue, StepOperand, Steps};
        /// use blocks::matrix::Matrix;
        /// use cuda_std::{GlobalSlice, examples};
        ///
        /// let values = examples::run_over(1, &mut [3.0, 5.0], |data: GlobalSlice<f32>| {
        ///     let operand = StepOperand::new(Matrix::new(data, 1, 2, 2, 1).unwrap(), 0, 1).unwrap();
        ///     // SAFETY: the operand has an element for this one.
        ///     unsafe { Steps::none().add(2.0, operand).unwrap().value(0, 1, 1.5) }
        /// });
        /// assert_eq!(values, [11.5]);
        /// ```
        ///
        /// # Errors
        /// [`TooManySteps`].
        pub fn add(self, factor: f32, operand: StepOperand<'a>) -> Result<Self, TooManySteps> {
            self.and(code::ADD, factor, Some(operand))
        }

        /// And then the product with an element of an operand.
        ///
        /// ```
        /// use blocks::epilogue::{Epilogue, StepOperand, Steps};
        /// use blocks::matrix::Matrix;
        /// use cuda_std::{GlobalSlice, examples};
        ///
        /// let values = examples::run_over(1, &mut [3.0, 5.0], |data: GlobalSlice<f32>| {
        ///     let operand = StepOperand::new(Matrix::new(data, 1, 2, 2, 1).unwrap(), 0, 1).unwrap();
        ///     // SAFETY: the operand has an element for this one.
        ///     unsafe { Steps::none().multiply(operand).unwrap().value(0, 1, 1.5) }
        /// });
        /// assert_eq!(values, [7.5]);
        /// ```
        ///
        /// # Errors
        /// [`TooManySteps`].
        pub fn multiply(self, operand: StepOperand<'a>) -> Result<Self, TooManySteps> {
            self.and(code::MULTIPLY, 0.0, Some(operand))
        }

        /// And then an activation. A clamp is two steps.
        ///
        /// ```
        /// use blocks::epilogue::{Activation, Steps};
        ///
        /// let hardtanh = Activation::Clamp { least: -1.0, most: 1.0 };
        /// assert_eq!(Steps::none().activation(hardtanh)?.len(), 2);
        /// # Ok::<(), blocks::epilogue::TooManySteps>(())
        /// ```
        ///
        /// # Errors
        /// [`TooManySteps`].
        pub fn activation(self, activation: Activation) -> Result<Self, TooManySteps> {
            let (code, number) = match activation {
                Activation::Relu => (code::AT_LEAST, 0.0),
                Activation::LeakyRelu(slope) => (code::LEAKY_RELU, slope),
                Activation::Clamp { least, most } => {
                    return self.and(code::AT_LEAST, least, None)?.and(code::AT_MOST, most, None);
                }
                Activation::Sigmoid => (code::SIGMOID, 0.0),
                Activation::Silu => (code::SILU, 0.0),
                Activation::Tanh => (code::TANH, 0.0),
                Activation::Gelu => (code::GELU, 0.0),
                Activation::GeluTanh => (code::GELU_TANH, 0.0),
                Activation::Mish => (code::MISH, 0.0),
            };
            self.and(code, number, None)
        }

        /// How many there are.
        ///
        /// ```
        /// assert_eq!(blocks::epilogue::Steps::none().len(), 0);
        /// ```
        pub fn len(&self) -> usize {
            (u32::BITS - self.codes.leading_zeros()).div_ceil(BITS) as usize
        }

        /// The operands, in the order of their steps.
        pub(super) fn operands(&self) -> &[StepOperand<'a>] {
            let have = (0..MOST_STEPS as u32).filter(|step| self.codes >> (BITS * step) & 15 >= code::ADD).count();
            &self.operands[..have]
        }

        /// The steps for the transposes of the results.
        ///
        /// ```
        /// assert!(blocks::epilogue::Steps::none().transposed().is_empty());
        /// ```
        #[must_use]
        pub fn transposed(mut self) -> Self {
            for operand in &mut self.operands {
                operand.first = operand.first.transposed();
            }
            self
        }

        /// Whether there is an element of each operand for each of so many results of so many rows and columns.
        ///
        /// ```
        /// assert!(blocks::epilogue::Steps::none().fit(1, 2, 3).is_ok());
        /// ```
        ///
        /// # Errors
        /// [`ShapeError::Mismatch`] if there is not.
        pub fn fit(&self, products: u32, rows: u32, cols: u32) -> Result<(), ShapeError> {
            self.operands().iter().try_for_each(|operand| {
                let extent =
                    |extent: u64| ShapeError::dimension("the number of matrices of an epilogue", extent as usize);
                let mismatch = ShapeError::unless_equal;
                let first = operand.first;
                mismatch(("the number of rows of a matrix of an epilogue", first.rows()), ("that of C", rows))?;
                mismatch(("the number of columns of a matrix of an epilogue", first.cols()), ("that of C", cols))?;
                let products_of_operand = extent(operand.products)?;
                mismatch(("the number of matrices of an epilogue", products_of_operand), ("that of products", products))
            })
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use construct::TooManySteps;

#[cfg(test)]
mod tests {
    extern crate std;

    use cuda_std::examples;
    use std::vec::Vec;

    use super::*;

    const ROWS: usize = 3;
    const COLS: usize = 5;
    const PRODUCTS: usize = 2;

    /// One of the steps, and what it makes of a number in f64, with the element of its operand.
    type Kind = (for<'a> fn(Steps<'a>, StepOperand<'a>) -> Steps<'a>, fn(f64, f64) -> f64);

    const KINDS: [Kind; 6] = [
        (|steps, _| steps.scale(-1.5).unwrap(), |x, _| -1.5 * x),
        (|steps, _| steps.offset(0.75).unwrap(), |x, _| x + 0.75),
        (|steps, operand| steps.add(2.0, operand).unwrap(), |x, operand| x + 2.0 * operand),
        (|steps, operand| steps.multiply(operand).unwrap(), |x, operand| x * operand),
        (|steps, _| steps.activation(Activation::LeakyRelu(0.5)).unwrap(), |x, _| x.max(0.0) + 0.5 * x.min(0.0)),
        (|steps, _| steps.activation(Activation::Tanh).unwrap(), |x, _| x.tanh()),
    ];

    /// Operand `number` of three: a matrix, a column of one number for each row, and one row for all products.
    fn operand(data: GlobalSlice<'_, f32>, number: usize) -> StepOperand<'_> {
        let ([row_stride, col_stride], stride) = [([COLS, 1], ROWS * COLS), ([1, 0], 7), ([0, 2], 0)][number];
        let first = Matrix::new(data, ROWS, COLS, row_stride, col_stride).unwrap();
        StepOperand::new(first, stride, PRODUCTS).unwrap()
    }

    /// Its element.
    fn element(data: &[f32], number: usize, [product, row, col]: [usize; 3]) -> f64 {
        f64::from(data[[product * ROWS * COLS + row * COLS + col, product * 7 + row, col * 2][number]])
    }

    #[test]
    fn all_lists_of_three_steps_are_done_in_their_order() {
        let mut data: Vec<f32> = (0..PRODUCTS * ROWS * COLS).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect();
        let before = data.clone();
        let mut tried = 0;
        for list in 0..KINDS.len().pow(3) {
            let kinds = [0, 1, 2].map(|place| list / KINDS.len().pow(place) % KINDS.len());
            for [product, row, col] in [[0, 0, 0], [1, 2, 1], [1, 0, 4]] {
                let in_column = row == 0 && list % 2 == 0;
                let count = if in_column { ROWS - row } else { COLS - col }.min(4);
                let found = examples::run_over(1, &mut data, |data: GlobalSlice<'_, f32>| {
                    let mut steps = Steps::none();
                    for kind in kinds {
                        let next = steps.operands().len().min(MOST_OPERANDS - 1);
                        steps = KINDS[kind].0(steps, operand(data, next));
                    }
                    steps.fit(PRODUCTS as u32, ROWS as u32, COLS as u32).unwrap();
                    let [product, row, col] = [product, row, col].map(|at| at as u32);
                    let at = Neighbours { product, row, col, count: count as u32, in_column };
                    // SAFETY: elements of results that fit.
                    unsafe { steps.apply(at, [0.5, -1.0, 2.0, -0.25]) }
                })[0];
                for i in 0..count {
                    let [row, col] = if in_column { [row + i, col] } else { [row, col + i] };
                    let (mut expected, mut operands) = ([0.5, -1.0, 2.0, -0.25][i], 0);
                    for kind in kinds {
                        let has_operand = matches!(kind, 2 | 3);
                        let of = if has_operand { element(&before, operands, [product, row, col]) } else { 0.0 };
                        expected = KINDS[kind].1(expected, of);
                        operands += usize::from(has_operand);
                    }
                    assert!(
                        (f64::from(found[i]) - expected).abs() < 1e-5,
                        "{kinds:?}: {found:?}, not {expected} at {i}"
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 1_500, "{tried}");
    }

    #[test]
    fn activations_are_those_of_their_names() {
        let all = [
            Activation::Relu,
            Activation::LeakyRelu(0.125),
            Activation::Clamp { least: -0.5, most: 0.75 },
            Activation::Sigmoid,
            Activation::Silu,
            Activation::Tanh,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Mish,
        ];
        for activation in all {
            for x in [-3.0, -0.3, 0.0, 0.6, 2.0, f32::NAN, f32::INFINITY] {
                let steps = Steps::none().activation(activation).unwrap();
                // SAFETY: there are no operands.
                let found = unsafe { steps.value(0, 0, x) };
                let expected = activation.of(x);
                let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(is_same, "{activation:?}({x}) is {expected}, and as a step {found}");
            }
        }
    }

    #[test]
    fn steps_are_as_many_as_there_is_room_for() {
        let data = [0.0; 6];
        let matrix = Matrix::new(GlobalSlice::new(&data), 2, 3, 3, 1).unwrap();
        let operand = StepOperand::new(matrix, 0, 4).unwrap();
        let mut steps = Steps::none();
        assert!(steps.is_empty());
        for _ in 0..MOST_OPERANDS {
            steps = steps.multiply(operand).unwrap();
        }
        assert_eq!(steps.add(1.0, operand).err(), Some(TooManySteps { steps: 4, operands: 4 }));
        for _ in MOST_OPERANDS..MOST_STEPS {
            steps = steps.offset(1.0).unwrap();
        }
        assert_eq!((steps.len(), steps.is_empty()), (MOST_STEPS, false));
        assert_eq!(steps.scale(1.0).err(), Some(TooManySteps { steps: 9, operands: 3 }));
        assert!(steps.fit(4, 2, 3).is_ok() && steps.transposed().fit(4, 3, 2).is_ok());
        for (products, rows, cols) in [(5, 2, 3), (4, 1, 3), (4, 2, 2)] {
            assert!(matches!(steps.fit(products, rows, cols), Err(ShapeError::Mismatch { .. })));
        }
        assert!(matches!(StepOperand::new(matrix, 1, 2), Err(ShapeError::BatchOutOfBounds { span: 6, .. })));
    }
}
