//! Products with diagonal matrices and with numbers, `C = α·diag(r)·B·diag(c)`: each element of B read once, and one of C written.
//!
//! ```text
//!            c₀   c₁   c₂   c₃  …                  a block: 1024 neighbours in a row of C
//!          ┌────────────────────┐
//!   r₀     │ r₀·b·c₀   …        │    α             a thread: four of them, with one load and one store of 16 bytes
//!   r₁     │                    │                            where memory allows, otherwise 256 columns apart
//!   …      └────────────────────┘
//! ```
//!
//! It takes as long as a copy of B. Many small blocks are the fastest way to copy on an H200 (the probes of `tilewright bench`),
//! and a thread with a single access of 16 bytes each. Factors come from the first-level cache.
//!
//! Each element is multiplied in this order, and rounded each time: by its row's factor, by its column's, by α. Any device; no
//! shared memory.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::{Matrix, MatrixMut, Vector};

/// The threads of a block.
const THREADS: u32 = 256;
/// The elements of a thread.
const EACH: u32 = 4;
/// The elements of a block.
const CHUNK: u32 = THREADS * EACH;

/// A matrix to be multiplied by a number, and each row and each column by a factor of its own: `C = α·diag(r)·B·diag(c)`.
///
/// Invariant: B and C have the same shape, there are as many factors of rows as rows or none, and of columns likewise.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Scaling<'a> {
    alpha: f32,
    rows: Vector<'a>,
    b: Matrix<'a>,
    cols: Vector<'a>,
    c: MatrixMut<'a>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> Scaling<'a> {
    /// `C = α·diag(rows)·B·diag(cols)`, where an empty vector stands for factors of one.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] if C has another shape than B, or there are another number of factors, and some.
    pub fn new(
        alpha: f32,
        rows: Vector<'a>,
        b: Matrix<'a>,
        cols: Vector<'a>,
        c: MatrixMut<'a>,
    ) -> Result<Self, ShapeError> {
        let mismatch = ShapeError::unless_equal;
        mismatch(("the number of rows of B", b.rows()), ("the number of rows of C", c.rows()))?;
        mismatch(("the number of columns of B", b.cols()), ("the number of columns of C", c.cols()))?;
        if !rows.is_empty() {
            mismatch(("the number of factors of rows", rows.len()), ("the number of rows of C", c.rows()))?;
        }
        if !cols.is_empty() {
            mismatch(("the number of factors of columns", cols.len()), ("the number of columns of C", c.cols()))?;
        }
        Ok(Self { alpha, rows, b, cols, c })
    }

    /// The blocks that the kernel takes.
    fn blocks(&self) -> u64 {
        u64::from(self.c.rows()) * u64::from(self.c.cols().div_ceil(CHUNK))
    }
}

impl Scaling<'_> {
    /// Whether four neighbours in a row, from a multiple of four on, are one access of 16 bytes in both matrices.
    #[inline(always)]
    fn takes_vectors(&self) -> bool {
        let (b, c) = (self.b, self.c);
        let addresses = b.data().as_ptr() as u64 | c.data().as_mut_ptr() as u64;
        let distances = b.row_stride() | c.row_stride() | u64::from(c.cols());
        b.is_contiguous_along_rows()
            && c.is_contiguous_along_rows()
            && addresses.is_multiple_of(u64::from(EACH) * size_of::<f32>() as u64)
            && distances.is_multiple_of(u64::from(EACH))
    }

    /// An element of C.
    ///
    /// # Safety
    /// There are such a row and such a column, and `value` is that element of B.
    #[inline(always)]
    #[track_caller]
    unsafe fn scaled(&self, row: u32, col: u32, value: f32) -> f32 {
        // SAFETY: there are as many factors, or none.
        unsafe {
            let value = if self.rows.is_empty() { value } else { self.rows.at(row) * value };
            let value = if self.cols.is_empty() { value } else { value * self.cols.at(col) };
            self.alpha * value
        }
    }
}

/// `C = α·diag(r)·B·diag(c)` in fp32.
#[kernel(block = 256, min_blocks = 8, requires(scaling.blocks() <= MAX_BLOCKS))]
pub fn matrix_scaling_fp32(scaling: Scaling<'_>) {
    let (b, c) = (scaling.b, scaling.c);
    let chunks = c.cols().div_ceil(CHUNK);
    let row = thread::block_idx_x().checked_div(chunks).unwrap_or(u32::MAX);
    if row >= c.rows() {
        return; // the one block of a grid without work
    }
    let first = (thread::block_idx_x() - row * chunks) * CHUNK;
    if scaling.takes_vectors() {
        let col = first + EACH * thread::thread_idx_x();
        if col < c.cols() {
            // SAFETY: the row and the column are inside, and the number of columns is a multiple of four, as is the column.
            // Aligned, as has been asked for. No other thread has these elements.
            unsafe {
                let four = b.data().get4_unchecked(b.offset(row, col));
                let four = core::array::from_fn(|i| scaling.scaled(row, col + i as u32, four[i]));
                c.data().set4_unchecked(c.offset(row, col), four);
            }
        }
        return;
    }
    for i in 0..EACH {
        let col = first + i * THREADS + thread::thread_idx_x();
        if col < c.cols() {
            // SAFETY: the row and the column are inside; no other thread has this element.
            unsafe { c.set(row, col, scaling.scaled(row, col, b.at(row, col))) };
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_scaling_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.scaling.blocks())
    }
}
