//! Epilogues: what happens to an accumulator before it is stored. A body of a kernel, such as
//! [`register_tiled`](crate::register_tiled), computes accumulators; an [`Epilogue`] says what becomes of them.
//!
//! ```text
//!  accumulator of (row, col) ──► Epilogue::value ──► C[row, col]
//!                                     ▲
//!              what it reads besides: the old C, a bias, a factor of the row …
//! ```
//!
//! A kernel of one's own is a body with an epilogue of one's own (`examples/03-outer-product-bias-relu` is one). What is done one after
//! the other is put together by [`Epilogue::then`]; an [`Activation`] is an epilogue, too:
//!
//! ```
//! use blocks::epilogue::{Activation, Epilogue};
//! use cuda_std::{examples, prelude::*};
//!
//! struct Bias<'a>(GlobalSlice<'a, f32>);
//!
//! impl Epilogue for Bias<'_> {
//!     unsafe fn value(&self, _: u32, col: u32, accumulator: f32) -> f32 {
//!         // SAFETY: the caller's promise: the column is one of C, and there are as many biases.
//!         accumulator + unsafe { self.0.get_unchecked(col as usize) }
//!     }
//! }
//!
//! let values = examples::run_over(2, &mut [1.0, -2.0], |biases: GlobalSlice<f32>| {
//!     let epilogue = Bias(biases).then(Activation::Relu);
//!     // SAFETY: there are two threads, and a bias for each.
//!     unsafe { epilogue.value(0, thread::thread_idx_x(), 0.5) }
//! });
//! assert_eq!(values, [1.5, 0.0]);
//! ```
//!
//! [`Steps`] is the epilogue that is known at run time only, the one of this repository's kernels: what `tilewright::Epilogue` becomes.

mod activation;
mod steps;

pub use activation::Activation;
#[cfg(not(target_arch = "nvptx64"))]
pub use steps::TooManySteps;
pub use steps::{
    InRegisters, MOST_OPERANDS, MOST_STEPS, Neighbours, Step, StepOperand, Steps, StepsLeft, WithFunction,
};

use cuda_std::prelude::*;

use crate::matrix::MatrixMut;

/// What happens to an accumulator before it is stored.
///
/// ```
/// # use blocks::{epilogue::*, matrix::MatrixMut};
/// # use cuda_std::{examples::run_over, prelude::*};
/// /// Accumulators that are not negative, and zeros in place of the others.
/// struct Relu;
///
/// impl Epilogue for Relu {
///     unsafe fn value(&self, _row: u32, _col: u32, accumulator: f32) -> f32 {
///         math::max(accumulator, 0.0)
///     }
/// }
///
/// // A thread for each four neighbours of a 2×6 matrix: the last two columns of a row are fewer.
/// let mut data = [9.0; 12];
/// run_over((2, 2), &mut data, |data: GlobalSliceMut<'_, f32>| {
///     let c = MatrixMut::new(data, 2, 6, 6, 1).unwrap();
///     let (row, col) = (thread::thread_idx_y(), 4 * thread::thread_idx_x());
///     // SAFETY: the column is a multiple of four, and each element has one thread.
///     unsafe { Relu.store(&c, row, col, [-1.0, 2.0, -3.0, 4.0]) }
/// });
/// assert_eq!(data, [0.0, 2.0, 0.0, 4.0, 0.0, 2.0, 0.0, 2.0, 0.0, 4.0, 0.0, 2.0]);
/// ```
pub trait Epilogue {
    /// What is stored at (`row`, `col`) of the result, for this accumulator.
    ///
    /// ```
    /// # use blocks::{epilogue::*, matrix::MatrixMut};
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// /// `C = alpha·accumulator + C`, which reads the old element.
    /// struct AddTo<'a> {
    ///     alpha: f32,
    ///     c: MatrixMut<'a>,
    /// }
    ///
    /// impl Epilogue for AddTo<'_> {
    ///     unsafe fn value(&self, row: u32, col: u32, accumulator: f32) -> f32 {
    ///         // SAFETY: inside the result, and this thread's alone, by the caller's promise.
    ///         math::fma(self.alpha, accumulator, unsafe { self.c.at(row, col) })
    ///     }
    /// }
    ///
    /// let mut data = [1.0; 4];
    /// run_over(1, &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let c = MatrixMut::new(data, 1, 4, 4, 1).unwrap();
    ///     // SAFETY: there is one thread, and C has these four elements.
    ///     unsafe { AddTo { alpha: 0.5, c }.store(&c, 0, 0, [2.0, 4.0, 6.0, 8.0]) }
    /// });
    /// assert_eq!(data, [2.0, 3.0, 4.0, 5.0]);
    /// ```
    ///
    /// # Safety
    /// The element is inside the result, and no other thread accesses it: so the result's old element may be read, and whatever has
    /// one element for each row or column of the result.
    unsafe fn value(&self, row: u32, col: u32, accumulator: f32) -> f32;

    /// This epilogue, and then `next` of what comes of it.
    ///
    /// ```
    /// use blocks::epilogue::{Activation, Epilogue};
    ///
    /// let hardtanh = Activation::Clamp { least: -1.0, most: 1.0 };
    /// let both = Activation::LeakyRelu(2.0).then(hardtanh);
    /// // SAFETY: they look at no matrix.
    /// assert_eq!(unsafe { [both.value(0, 0, -0.25), both.value(0, 0, 3.0)] }, [-0.5, 1.0]);
    /// ```
    #[inline(always)]
    fn then<E: Epilogue>(self, next: E) -> Then<Self, E>
    where
        Self: Sized,
    {
        Then { first: self, next }
    }

    /// Stores what becomes of four neighbours in a row of C, from (`row`, `col`) on. What lies outside of C is left out. Where C
    /// allows it, they are one store of four elements.
    ///
    /// ```
    /// # use blocks::{epilogue::*, matrix::MatrixMut};
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// struct AsTheyAre;
    /// impl Epilogue for AsTheyAre {
    ///     unsafe fn value(&self, _row: u32, _col: u32, accumulator: f32) -> f32 {
    ///         accumulator
    ///     }
    /// }
    /// // A column-major C of 3×2: what lies outside of it is left out.
    /// let mut data = [0.0; 6];
    /// run_over((1, 4), &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let c = MatrixMut::new(data, 3, 2, 1, 3).unwrap();
    ///     let row = thread::thread_idx_y();
    ///     // SAFETY: each row has one thread.
    ///     unsafe { AsTheyAre.store(&c, row, 0, [row as f32, 10.0, 20.0, 30.0]) }
    /// });
    /// assert_eq!(data, [0.0, 1.0, 2.0, 10.0, 10.0, 10.0]);
    /// ```
    ///
    /// # Safety
    /// `col` is a multiple of four, and no other thread accesses these elements of C. The epilogue is one for results of C's shape.
    #[inline(always)]
    #[track_caller]
    unsafe fn store(&self, c: &MatrixMut<'_>, row: u32, col: u32, accumulators: [f32; 4]) {
        if row >= c.rows() || col >= c.cols() {
            return;
        }
        if takes_vectors_of(c, 4) && col + 3 < c.cols() {
            // SAFETY: all four are inside C; aligned, because the column is a multiple of four, as `takes_vectors_of` has found.
            unsafe {
                let values: [f32; 4] = core::array::from_fn(|i| self.value(row, col + i as u32, accumulators[i]));
                store_vector(c.data(), c.offset(row, col), values);
            }
            return;
        }
        for i in 0..4 {
            let col = col + i as u32;
            if col < c.cols() {
                // SAFETY: inside C, and this thread's alone.
                unsafe { c.set(row, col, self.value(row, col, accumulators[i])) };
            }
        }
    }
}

/// One epilogue, and then another: [`Epilogue::then`].
///
/// ```
/// use blocks::epilogue::{Activation, Epilogue, Then};
///
/// fn is_twice<E: Epilogue>(_: &Then<E, E>) {}
/// is_twice(&Activation::Tanh.then(Activation::Relu));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Then<A, B> {
    first: A,
    next: B,
}

impl<A: Epilogue, B: Epilogue> Epilogue for Then<A, B> {
    #[inline(always)]
    #[track_caller]
    unsafe fn value(&self, row: u32, col: u32, accumulator: f32) -> f32 {
        // SAFETY: the caller's promise, which is the same for both.
        unsafe { self.next.value(row, col, self.first.value(row, col, accumulator)) }
    }
}

/// Whether `count` neighbours in a row of C, from a multiple of `count` on, are one aligned vector, if all of them are inside C.
///
/// ```
/// # use blocks::{epilogue::*, matrix::MatrixMut};
/// # use cuda_std::{examples::run_over, prelude::*};
/// let mut data = vec![0.0; 64];
/// let takes = run_over(1, &mut data, |data: GlobalSliceMut<'_, f32>| {
///     // Rows of 8 elements side by side; rows of 7, which begin at odd places; columns.
///     [(8, 1), (7, 1), (1, 8)].map(|(row, col)| takes_vectors_of(&MatrixMut::new(data, 4, 4, row, col).unwrap(), 2))
/// });
/// assert_eq!(takes, [[true, false, false]]);
/// ```
#[inline(always)]
pub fn takes_vectors_of(c: &MatrixMut<'_>, count: u32) -> bool {
    let multiple = |value: u64| value & u64::from(count - 1) == 0;
    c.is_contiguous_along_rows()
        && multiple(c.row_stride())
        && multiple(c.data().as_mut_ptr() as u64 / size_of::<f32>() as u64)
}

/// Stores 1, 2 or 4 elements at once.
///
/// ```
/// # use blocks::{epilogue::*, matrix::MatrixMut};
/// # use cuda_std::{examples::run_over, prelude::*};
/// let mut data = vec![0.0; 8];
/// run_over(4, &mut data, |data: GlobalSliceMut<'_, f32>| {
///     let t = thread::index();
///     // SAFETY: each thread has two elements of its own, from a multiple of two on.
///     unsafe { store_vector(data, 2 * t, [t as f32, 0.5]) }
/// });
/// assert_eq!(data, [0.0, 0.5, 1.0, 0.5, 2.0, 0.5, 3.0, 0.5]);
/// ```
///
/// # Safety
/// They are inside the view, aligned to their size together, and this thread's alone.
#[inline(always)]
#[track_caller]
pub unsafe fn store_vector<const N: usize>(data: GlobalSliceMut<'_, f32>, offset: usize, values: [f32; N]) {
    const { assert!(N == 1 || N == 2 || N == 4, "vectors have 1, 2 or 4 elements") };
    // SAFETY: the caller's promise.
    unsafe {
        match N {
            1 => data.set_unchecked(offset, values[0]),
            2 => data.set2_unchecked(offset, [values[0], values[N - 1]]),
            _ => data.set4_unchecked(offset, [values[0], values[N - 3], values[N - 2], values[N - 1]]),
        }
    }
}
