//! Column-major matrices: a block has 128 rows and a slice of the columns, and neighbouring threads have neighbouring rows.
//!
//! ```text
//!                  split 0             split 1
//!         columns  c0 c1 … c7  …
//!        ┌─────────────────────────┬─────────────────────┐         warp w of a block: every 8th column, from c(w) on
//!  rows  │ │  │     │            │                     │         lane of a warp:    4 rows, one load of 16 bytes
//!  0–127 │ ▼  ▼     ▼            │                     │
//!        ├─────────────────────────┼─────────────────────┤         a thread loads 8 columns at a time, and multiplies
//!        │                         │                     │         each with one element of x
//!        └─────────────────────────┴─────────────────────┘
//! ```
//!
//! The idea: Aᵀ·x with Aᵀ read in place, as it lies in memory. A thread's four sums need no other thread's until the end, when
//! the warps of the block, which had different columns of the same rows, add up theirs in shared memory.
//!
//! **Lanes.** If the matrix has few rows, a warp covers several columns at a time: one lane for every four rows, rounded up to
//! a power of two. If it has few columns, the warps of a block have different rows instead of different columns.
//!
//! **Splits** and **alignment** are as in [`split`](super::split): without vectors, the lanes of a warp load neighbouring rows
//! one by one.
//!
//! At most 85 registers, 4 KiB of shared memory; any device from sm_80 on.

use blocks::reduce::sum_of_lanes;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::{ROWS, SplitGemv, SplitProduct, THREADS, WARPS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::geometry::divide;

/// The columns that a thread loads at a time, if a load is a vector.
const LOADS: usize = 8;

/// The lanes among which a block divides its rows, four to each, for an m×k matrix: a power of two. The other threads of the
/// block have other columns.
#[inline(always)]
fn lanes(m: u32, k: u32) -> u32 {
    let columns = k.div_ceil(LOADS as u32).next_power_of_two().clamp(1, WARPS as u32);
    m.div_ceil(ROWS as u32).next_power_of_two().clamp(1, THREADS / columns)
}

/// The columns of a step of a block.
#[inline(always)]
fn columns_of_step(m: u32, k: u32) -> u32 {
    LOADS as u32 * (THREADS / lanes(m, k))
}

/// The groups of rows of a matrix, each of which is a block's.
#[inline(always)]
fn groups_of_rows(m: u32, k: u32) -> u32 {
    m.div_ceil(ROWS as u32 * lanes(m, k))
}

/// The blocks of a split, for so many m×k matrices.
#[cfg(not(target_arch = "nvptx64"))]
pub fn blocks_of_rows(products: u32, m: u32, k: u32) -> u64 {
    u64::from(products) * u64::from(groups_of_rows(m, k))
}

/// The number of blocks.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(gemv: &SplitGemv<'_>) -> u64 {
    blocks_of_rows(gemv.products(), gemv.m(), gemv.k()).saturating_mul(u64::from(gemv.splits()))
}

/// How many splits make good use of a GPU with so many multiprocessors, for so many m×k matrices: 1 where there are rows enough.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemv_transposed_splits(products: u32, m: u32, k: u32, multiprocessors: u32) -> u32 {
    let steps = k.div_ceil(columns_of_step(m, k));
    super::balanced_splits(blocks_of_rows(products, m, k), u64::from(steps), multiprocessors)
}

/// `y = α·A·x + β·y` in fp32 for an A column-major, or partial sums of it: one block for each split of some rows.
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_cols(), blocks(&gemv) <= MAX_BLOCKS
))]
pub fn gemv_transposed_split_fp32(gemv: SplitGemv<'_>) {
    static SUMS: Shared<[f32; ROWS * THREADS as usize]> = Shared::new();
    let (m, k) = (gemv.m(), gemv.k());
    let block = thread::block_idx_x();
    let (group, split) = divide(u64::from(block), gemv.splits().into());
    let groups = u64::from(groups_of_rows(m, k));
    let (product, group) = if gemv.products() == 1 { (0, group) } else { divide(group, groups) };
    if product >= u64::from(gemv.products()) || group >= groups {
        return; // the whole block
    }
    let (split, group) = (split as u32, group as u32);
    // SAFETY: below the number of products, as compared, and of splits, as a remainder.
    let product = unsafe { gemv.product(product as u32, split) };
    let lanes = lanes(m, k);
    let (t, step, rows) = (thread::thread_idx_x(), columns_of_step(m, k), ROWS as u32 * lanes);
    let part = Part {
        gemv,
        product,
        lane: t & (lanes - 1),
        lanes,
        first_row: group * rows,
        first_column: gemv.first_column(split, gemv.splits(), step) + t / lanes,
        end: gemv.first_column(split + 1, gemv.splits(), step),
    };

    // SAFETY: the launch has checked the layout. All threads of the block come to the barrier. Before it, each set of `rows`
    // elements is that of one warp's lanes, or of those of several that have different rows; after it, each row is that of
    // one thread.
    unsafe {
        let (sums, place): (_, [u32; ROWS]) = if part.has_vectors() {
            (part.sums::<true, LOADS>(), core::array::from_fn(|i| part.lane * ROWS as u32 + i as u32))
        } else {
            (part.sums::<false, 4>(), core::array::from_fn(|i| part.lane + i as u32 * lanes))
        };
        let sums = sum_of_lanes(sums, lanes, warp::LANES);
        // Not known to the compiler, which would else tell the cases apart for good, with a barrier for each, and some of the
        // lanes of a warp at either.
        let mut spread = [lanes.max(warp::LANES)];
        hint::pin(&mut spread);
        let [spread] = spread;
        let (set, sets) = (t / spread.max(1), THREADS / spread.max(1));
        if t % warp::LANES < lanes {
            for i in 0..ROWS {
                SUMS.write((set * rows + place[i]) as usize, sums[i]);
            }
        }
        thread::sync_threads();
        let mut row = t;
        while row < rows && part.first_row + row < m {
            let mut sum = SUMS.read(row as usize);
            for set in 1..sets {
                sum += SUMS.read((set * rows + row) as usize);
            }
            product.epilogue(part.first_row + row, sum);
            row += THREADS;
        }
    }
}

/// A split of the columns, of which this thread has every `THREADS / lanes`th.
struct Part<'a> {
    gemv: SplitGemv<'a>,
    product: SplitProduct<'a>,
    lane: u32,
    lanes: u32,
    /// The first row of the block.
    first_row: u32,
    /// The first column of this thread.
    first_column: u32,
    /// The column after the last of the split.
    end: u32,
}

impl Part<'_> {
    /// Whether the block's rows are all inside A, and four neighbours in a column, from a multiple of four on, are an aligned
    /// vector.
    #[inline(always)]
    fn has_vectors(&self) -> bool {
        self.first_row + ROWS as u32 * self.lanes <= self.gemv.m()
            && self.product.a.col_stride().is_multiple_of(4)
            && self.gemv.is_aligned(false)
    }

    /// The sums of this thread, for rows side by side with `VECTORS`, else every `lanes`th; zero for rows beyond the last.
    ///
    /// # Safety
    /// As [`Part::has_vectors`] says. A is contiguous along its columns.
    #[inline(always)]
    unsafe fn sums<const VECTORS: bool, const LOADS: usize>(&self) -> [f32; ROWS] {
        let (a, x) = (self.product.a, self.product.x);
        let row = self.first_row + if VECTORS { self.lane * ROWS as u32 } else { self.lane };
        let load = |column: u64| -> ([f32; ROWS], f32) {
            let offset = column * a.col_stride() + u64::from(row);
            // SAFETY: the column is below k, by what the callers below have compared; with vectors all rows of the block are
            // below m, and aligned, else those that are compared here.
            unsafe {
                let rows = if VECTORS {
                    a.data().get4_streaming_unchecked(offset as usize)
                } else {
                    core::array::from_fn(|i| {
                        let below = i as u32 * self.lanes;
                        if row + below < self.gemv.m() {
                            a.data().get_unchecked((offset + u64::from(below)) as usize)
                        } else {
                            0.0
                        }
                    })
                };
                (rows, x.data().get_unchecked((column * x.stride()) as usize))
            }
        };
        let distance = THREADS / self.lanes;
        let load_step = |from: u32| -> [([f32; ROWS], f32); LOADS] {
            core::array::from_fn(|i| load(u64::from(from) + i as u64 * u64::from(distance)))
        };

        let mut sums = [0.0; ROWS];
        let step = LOADS as u32 * distance;
        let mut column = self.first_column;
        // Whole steps: those whose last column, in this thread, is inside.
        let mut steps = (self.end + distance).saturating_sub(column + 1) / distance / LOADS as u32;
        if steps > 0 {
            let mut loaded = load_step(column);
            loop {
                steps -= 1;
                column += step;
                if steps == 0 {
                    break;
                }
                for (rows, x) in loaded {
                    add_products(&mut sums, rows, x);
                }
                loaded = load_step(column);
                steps = hint::keep_rolled(steps);
            }
            for (rows, x) in loaded {
                add_products(&mut sums, rows, x);
            }
        }
        for i in 0..LOADS {
            let column = column + i as u32 * distance;
            if column < self.end {
                let (rows, x) = load(u64::from(column));
                add_products(&mut sums, rows, x);
            }
        }
        sums
    }
}

/// Adds the products of four rows of a column to their sums.
#[inline(always)]
fn add_products(sums: &mut [f32; ROWS], rows: [f32; ROWS], x: f32) {
    for i in 0..ROWS {
        sums[i] = math::fma(rows[i], x, sums[i]);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_transposed_split_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(blocks(&self.gemv))
    }
}
