//! The second pass of a product whose sums were split: adds up the rows of partial sums, always in the same way.
//!
//! ```text
//!  partials, splits×m        ┌─ rows of y: lanes ─┐
//!  split 0, 1, 2, …      s0  │ thread 0 … L-1     │     thread set i adds up splits i, i + sets, i + 2·sets, … in order,
//!                        s1  │ thread L … 2L-1    │     the sets are added up as a tree in shared memory
//!                        …   │ …                  │
//! ```
//!
//! A block of 256 threads has up to 32 elements of y, so that what a warp loads lies side by side; of a shorter y, it has
//! fewer, and more threads share the splits of each: one long row, split over the whole GPU, has hundreds of partial sums.
//!
//! The order of the additions depends on m and on the number of splits alone: the same bits on every run.
//!
//! 1 KiB of shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::scale::Scale;
use crate::{Matrix, VectorMut};

/// The threads of a block.
const THREADS: u32 = gemv_split_reduction_fp32::BLOCK.x;

/// The partial sums that a thread loads before it adds the first of them.
const AT_A_TIME: usize = 8;

/// Sums of partial results: `y = α·Σ P[s] + β·y`, where P has a row for each split.
///
/// Invariant, which the constructor establishes and kernels rely on: P has as many columns as y has elements.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct GemvReduction<'a> {
    partials: Matrix<'a>,
    y: VectorMut<'a>,
    scale: Scale,
}

impl<'a> GemvReduction<'a> {
    /// `y = α·Σ P[s] + β·y` over the rows of `partials`, as [`SplitGemv::split`](super::SplitGemv::split) has them written.
    ///
    /// If α is zero, no partial is read; if β is zero, y is not. (A product without terms needs no splits: computed in one
    /// pass, it ignores even an infinite α, which here multiplies the partial sums, zeros.)
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless the partials have as many columns as y has elements.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn new(alpha: f32, partials: Matrix<'a>, beta: f32, y: VectorMut<'a>) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(
            ("the number of columns of the partials", partials.cols()),
            ("the length of y", y.len()),
        )?;
        Ok(Self { partials, y, scale: Scale { alpha, beta } })
    }

    /// The number of elements of y.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.y.len()
    }
}

/// The elements of y that a block has: a power of two.
#[inline(always)]
fn lanes(m: u32) -> u32 {
    m.next_power_of_two().clamp(1, warp::LANES)
}

/// `y = α·Σ P[s] + β·y` in fp32.
#[kernel(block = 256, min_blocks = 8)]
pub fn gemv_split_reduction_fp32(reduction: GemvReduction<'_>) {
    static SUMS: Shared<[f32; THREADS as usize]> = Shared::new();
    let lanes = lanes(reduction.m());
    let (t, sets) = (thread::thread_idx_x(), THREADS / lanes);
    let row = thread::block_idx_x() * lanes + t % lanes;
    let terms = reduction.scale.terms(reduction.partials.rows());

    let mut sum = 0.0;
    let mut first = t / lanes;
    while first < terms && row < reduction.m() {
        let loaded: [f32; AT_A_TIME] = core::array::from_fn(|i| {
            let split = first + i as u32 * sets;
            // SAFETY: a row below the number of splits, and a column below m.
            if split < terms { unsafe { reduction.partials.at(split, row) } } else { 0.0 }
        });
        for partial in loaded {
            sum += partial;
        }
        first += AT_A_TIME as u32 * sets;
    }

    // SAFETY: t < THREADS, and what is read at t + distance is below THREADS too. A thread writes only its own element; a
    // barrier, which all threads of the block reach, lies between any write and a read by another thread, and the other way
    // round: in one step the threads below `distance` write, and what they read of others is from `distance` up.
    let sum = unsafe {
        SUMS.write(t as usize, sum);
        thread::sync_threads();
        let mut distance = THREADS / 2;
        while distance >= lanes {
            if t < distance {
                SUMS.write(t as usize, SUMS.read(t as usize) + SUMS.read((t + distance) as usize));
            }
            thread::sync_threads();
            distance /= 2;
        }
        SUMS.read(t as usize)
    };
    if t < lanes && row < reduction.m() {
        // SAFETY: inside y, and this thread's alone.
        unsafe {
            let value = reduction.scale.combine(reduction.scale.terms(1), sum, || reduction.y.at(row));
            reduction.y.set(row, value);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_split_reduction_fp32<'_> {
    fn grid(&self) -> Dim3 {
        let m = self.reduction.m();
        crate::geometry::line_of_blocks(u64::from(m.div_ceil(lanes(m))))
    }
}
