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
pub use steps::{MOST_OPERANDS, MOST_STEPS, Neighbours, StepOperand, Steps};

use cuda_std::prelude::*;

use crate::matrix::MatrixMut;

/// What happens to an accumulator before it is stored.
pub trait Epilogue {
    /// What is stored at (`row`, `col`) of the result, for this accumulator.
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
#[inline(always)]
pub fn takes_vectors_of(c: &MatrixMut<'_>, count: u32) -> bool {
    let multiple = |value: u64| value & u64::from(count - 1) == 0;
    c.is_contiguous_along_rows()
        && multiple(c.row_stride())
        && multiple(c.data().as_mut_ptr() as u64 / size_of::<f32>() as u64)
}

/// Stores 1, 2 or 4 elements at once.
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
