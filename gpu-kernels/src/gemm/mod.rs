//! General matrix products, `C = α·A·B + β·C`: from one thread for each element to tensor cores fed by TMA.
//!
//! ```text
//!                    n
//!              ┌───────────┐
//!            k │     B     │         C[i, j] = α · Σ A[i, l] · B[l, j]  +  β · C[i, j]
//!              └───────────┘                       l
//!       k
//!    ┌─────┐   ┌───────────┐
//!  m │  A  │ m │     C     │
//!    └─────┘   └───────────┘
//! ```
//!
//! | module | what | a kernel takes |
//! |---|---|---|
//! | [`basic`] | the first kernels: one thread for each element of C, then tiles in shared memory | a [`Gemm`] |
//! | [`batched`] | batches of small products: several in a block | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`whole`] | batches of products so small that a block has several as a whole | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`grouped`] | lists of products that differ in everything, one launch for all | a [`GroupedGemm`](grouped::GroupedGemm) |
//! | [`register_tiled`] | a tile of C in the registers of each thread: the fastest on CUDA cores | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`narrow`] | few columns, so that the time is that of reading A once | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`sliced`] | small products, whose time is that of a few trips to memory | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`outer`] | sums of few terms, so that the time is that of writing C | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`mma`] | tensor cores by `mma.sync`, from sm_80 on | a [`TiledGemm`](tiles::TiledGemm) |
//! | [`hopper`] | tensor cores by `wgmma`, fed by TMA, for sm_90a | the same, with tensor maps or packed operands |
//! | [`tiles`] | how a product is cut into tiles and split-K slices, and which tile a block has | |
//! | [`split_k`] | the second pass of split-K, which adds up partial results | |
//! | [`decompose`] | an fp32 number as a high and a low part that tensor cores multiply | |
//! | [`scan`] | what kernels notice of the numbers that they decompose |
//! | [`repair`] | the fallback of tiles whose operands could not be decomposed, as a launch of its own | |
//!
//! The kernels that take a [`Gemm`], which is one product, do so for any m, n and k from 0, any strides of A and B (so all of NN,
//! NT, TN and TT), and any strides of C that keep its elements apart. The others take batches, and demand of strides what their
//! attribute lists under `requires`; for what they do not take, a plan copies or packs operands first.
//!
//! On CUDA cores, one thread's loads are hidden by the others, so a multiprocessor should hold as many threads as it can schedule:
//! 2048. The `min_blocks` of the naive and the tiled kernels keeps their registers few enough for that, 32 for each thread. Left alone,
//! the compiler takes up to 88, for addresses that it could as well compute again, and a quarter of the threads are left. The
//! kernels with tiles of C in registers do the opposite: few threads, with many registers, and loads that are issued ahead.

pub mod basic;
pub mod batched;
pub mod chunk;
mod fp32_tile;
pub mod grouped;
pub mod hopper;
pub mod mma;
pub mod narrow;
pub mod outer;
pub mod register_tiled;
pub mod repair;
pub mod scan;
pub mod sliced;
pub mod split_k;
pub(crate) mod staged_steps;
mod sum_lines;
mod tile_source;
pub mod tiles;
pub mod whole;

pub use blocks::decompose;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::alpha_beta::AlphaBeta;
use crate::{Matrix, MatrixMut};

/// A matrix product to compute: what the kernels without batches take.
///
/// Invariant, which the constructor establishes and kernels rely on: A is m×k, B is k×n and C is m×n. The kernel takes
/// those from [`Gemm::m`], [`Gemm::n`] and [`Gemm::effective_k`].
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Gemm<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    c: MatrixMut<'a>,
    alpha_beta: AlphaBeta,
}

impl<'a> Gemm<'a> {
    /// `C = α·A·B + β·C`.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is m×k, B is k×n and C is m×n for some m, n, k.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn new(alpha: f32, a: Matrix<'a>, b: Matrix<'a>, beta: f32, c: MatrixMut<'a>) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(("the number of columns of A", a.cols()), ("the number of rows of B", b.rows()))?;
        ShapeError::unless_equal(("the number of rows of A", a.rows()), ("the number of rows of C", c.rows()))?;
        ShapeError::unless_equal(("the number of columns of B", b.cols()), ("the number of columns of C", c.cols()))?;
        Ok(Self { a, b, c, alpha_beta: AlphaBeta { alpha, beta } })
    }

    /// The number of rows of A and of C.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.c.rows()
    }

    /// The number of columns of B and of C.
    #[inline(always)]
    pub fn n(&self) -> u32 {
        self.c.cols()
    }

    /// k, the number of columns of A and of rows of B; but 0 if α is zero, because then the product does not count, and neither A
    /// nor B may be read.
    #[inline(always)]
    pub fn effective_k(&self) -> u32 {
        self.alpha_beta.effective_k(self.a.cols())
    }

    /// The dot product of row `row` of A and column `col` of B, from the first k to the last, by this thread alone.
    ///
    /// A load takes hundreds of cycles, a multiplication four. Eight elements of each are loaded before the first of them is
    /// multiplied, so that a thread has sixteen loads under way at a time, which is more than the compiler's own order has.
    ///
    /// # Safety
    /// `row < self.m()` and `col < self.n()`.
    #[inline(always)]
    #[track_caller]
    unsafe fn dot(&self, row: u32, col: u32) -> f32 {
        const BATCH: usize = 8;
        let k = self.effective_k();
        let mut sum = 0.0;
        let (mut first, mut batches) = (0, k / BATCH as u32);
        while batches > 0 {
            // SAFETY: inside A, for a row below m and an index below the number of columns.
            let a: [f32; BATCH] = core::array::from_fn(|i| unsafe { self.a.at(row, first + i as u32) });
            // SAFETY: inside B, likewise.
            let b: [f32; BATCH] = core::array::from_fn(|i| unsafe { self.b.at(first + i as u32, col) });
            for i in 0..BATCH {
                sum = math::fma(a[i], b[i], sum);
            }
            first += BATCH as u32;
            batches = hint::keep_rolled(batches - 1);
        }
        for l in first..k {
            // SAFETY: as above.
            sum = unsafe { math::fma(self.a.at(row, l), self.b.at(l, col), sum) };
        }
        sum
    }

    /// The epilogue of one element: `C[row, col] = α·accumulator + β·C[row, col]`. C is not read if β is zero, so that what it held
    /// before, NaN even, does not matter.
    ///
    /// # Safety
    /// `row < self.m()` and `col < self.n()`, and no other thread accesses this element of C.
    #[inline(always)]
    #[track_caller]
    unsafe fn epilogue(&self, row: u32, col: u32, accumulator: f32) {
        // SAFETY: inside C, and this thread's alone, by the caller's promise.
        let value = self.alpha_beta.combine(self.effective_k(), accumulator, || unsafe { self.c.at(row, col) });
        // SAFETY: as above.
        unsafe { self.c.set(row, col, value) }
    }
}
