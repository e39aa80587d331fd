//! Row-major matrices: a block has four rows and a slice of their columns (split-K), and keeps many loads under way.
//!
//! ```text
//!              split 0                    split 1                      every step of a block: 8·lanes columns of 4 rows
//!        ┌────────────────────────┬────────────────────────┐
//!  rows  │ step 0 │ step 1 │ …    │                        │           thread t of a row:  columns 4t … 4t+3  and
//!  0–3   ├────────────────────────┼────────────────────────┤                               4·lanes + 4t … + 3
//!  rows  │                        │                        │
//!  4–7   │                        │                        │           x is loaded once for the four rows
//!        └────────────────────────┴────────────────────────┘
//!
//!  partials   P[0] = (p0 … pm)         P[1] = (p0 … pm)                the second pass adds them in order
//! ```
//!
//! The idea: [`block_reduction`](super::block_reduction) loads an element and waits for it. Here every thread has eight loads
//! of 16 bytes for A under way, and two for x; the next ones are issued before the sum is taken further ("rotated" loop), or
//! the assembler would put each load just before its use. A bypasses the first-level cache, which belongs to x.
//!
//! **Lanes.** A long row takes all 256 threads of the block. Of a short one, as many as have eight columns each; then a block
//! has several groups of four rows, which may be of several products of a batch. The last rows of a matrix whose number is not a multiple of four go one by one.
//!
//! **Splits.** Few rows make few blocks, so the columns are divided too. The partial sums go to a workspace, from which a
//! second pass adds them up in order: the same bits on every run. The one that adds atomically has that in its name.
//!
//! **Alignment.** Loads of A are of 16 bytes from multiples of 16 bytes. Where rows begin between these, a row's columns are counted from
//! the multiple before its first element, so that those of four rows differ by what they are *shifted*, 0 to 3. Then a thread loads seven
//! elements of x, of which each row takes four. Columns before the second multiple, and behind the last, go one by one.
//!
//! ```text
//!  row 0, shift 1     │ · a b c │ d e f g │ h i j k │          row 0:   d·x₃ + e·x₄ + f·x₅ + g·x₆
//!  row 1, shift 3     │ · · · a │ b c d e │ f g h i │          row 1:   b·x₁ + c·x₂ + d·x₃ + e·x₄          the thread: x₁ … x₇
//! ```
//!
//! At most 85 registers, 128 bytes of shared memory; any device from sm_80 on.

use blocks::reduce::sum_of_lanes;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::{ROWS, SplitGemv, SplitProduct, THREADS, WARPS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::geometry::divide;

/// The columns of each row that a thread has in a step.
const COLUMNS: u32 = 8;

/// The threads among which a row of `columns` columns is divided: a power of two.
#[inline(always)]
fn lanes(columns: u32) -> u32 {
    columns.div_ceil(COLUMNS).next_power_of_two().clamp(1, THREADS)
}

/// The blocks of a split, for so many m×k matrices: a block has one or more groups of four rows.
#[cfg(not(target_arch = "nvptx64"))]
pub fn blocks_of_rows(products: u32, m: u32, k: u32) -> u64 {
    (u64::from(products) * u64::from(m.div_ceil(ROWS as u32))).div_ceil(u64::from(THREADS / lanes(k)))
}

/// The number of blocks for `splits` splits.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(gemv: &SplitGemv<'_>, splits: u32) -> u64 {
    blocks_of_rows(gemv.products(), gemv.m(), gemv.k()).saturating_mul(u64::from(splits))
}

/// How many splits make good use of a GPU with so many multiprocessors, for so many m×k matrices: 1 where there are rows enough.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemv_splits(products: u32, m: u32, k: u32, multiprocessors: u32) -> u32 {
    let steps = k.div_ceil(COLUMNS * lanes(k));
    super::balanced_splits(blocks_of_rows(products, m, k), u64::from(steps), multiprocessors)
}

/// `y = α·A·x + β·y` in fp32 for an A row-major, or partial sums of it: one block for each split of some rows.
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_rows(), blocks(&gemv, gemv.splits()) <= MAX_BLOCKS
))]
pub fn gemv_split_fp32(gemv: SplitGemv<'_>) {
    static SUMS: Shared<[[f32; ROWS]; WARPS]> = Shared::new();
    // SAFETY: a block of 256 threads, all of which come here, with sums that nothing else uses. Each row and split is that of
    // one thread alone.
    unsafe {
        let finish = |product, split, row, sum| gemv.product(product, split).epilogue(row, sum);
        split_gemv(&gemv, gemv.splits(), &SUMS, finish)
    }
}

/// `y += α·A·x` in fp32 for an A row-major, in one pass with `splits` splits, each of which adds its sums to y as they
/// come. The result may differ from run to run in the last bits. β is 1: where it is to be another, scale y before, with
/// [`SplitReduction::scaling`](crate::gemm::split_k::SplitReduction::scaling).
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_rows(), gemv.splits() == 1, gemv.beta() == 1.0, splits > 0,
    blocks(&gemv, splits) <= MAX_BLOCKS
))]
pub fn gemv_split_atomic_fp32(gemv: SplitGemv<'_>, splits: u32) {
    static SUMS: Shared<[[f32; ROWS]; WARPS]> = Shared::new();
    if gemv.effective_k() == 0 {
        return; // the whole grid
    }
    // SAFETY: as above; y is only added to.
    unsafe { split_gemv(&gemv, splits, &SUMS, |product, _, row, sum| gemv.product(product, 0).add(row, sum)) }
}

/// The body of both kernels. Calls `finish` with every product, every split, every row below m, and its sum.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`], with an array that nothing else uses. A is contiguous along its rows.
#[inline(always)]
unsafe fn split_gemv(
    gemv: &SplitGemv<'_>,
    splits: u32,
    all_sums: &'static Shared<[[f32; ROWS]; WARPS]>,
    finish: impl Fn(u32, u32, u32, f32),
) {
    let lanes = lanes(gemv.k());
    let block = thread::block_idx_x();
    let rows_of_blocks = block.checked_div(splits).unwrap_or(0);
    let split = block.wrapping_sub(rows_of_blocks.wrapping_mul(splits));
    let t = thread::thread_idx_x();
    let (group, lane) = (t / lanes, t & (lanes - 1));
    let group = u64::from(rows_of_blocks) * u64::from(THREADS / lanes) + u64::from(group);
    // Which product of the batch has the group.
    let groups = u64::from(gemv.m().div_ceil(ROWS as u32));
    let (product, group) = if gemv.products() == 1 { (0, group) } else { divide(group, groups) };
    // What is beyond the last product, or the only one, has no rows, but comes to the barriers all the same.
    let is_inside = product < u64::from(gemv.products()) && group < groups;
    let (product, first_row) = if is_inside { (product as u32, group as u32 * ROWS as u32) } else { (0, gemv.m()) };
    if gemv.products() == 0 {
        return; // the whole grid
    }

    let step = COLUMNS * lanes;
    let part = Part {
        gemv,
        // SAFETY: below the number of products, as compared, or the first of at least one.
        product: unsafe { gemv.product(product, 0) },
        lane,
        lanes,
        begin: gemv.first_column(split, splits, step),
        end: gemv.first_column(split + 1, splits, step),
    };
    // SAFETY: the rows are below m, as compared, and the columns those of a split; A is contiguous along its rows.
    let sums = unsafe { if part.has_vectors() { part.rows::<false>(first_row) } else { part.rows::<true>(first_row) } };

    // SAFETY: all threads of the block come here. Each warp has an element of its own, and where several of them share rows,
    // a barrier separates the writes from the reads.
    unsafe {
        let mut sums = sum_of_lanes(sums, 1, lanes.min(warp::LANES));
        if lanes > warp::LANES {
            let this_warp = (t / warp::LANES) as usize;
            if t.is_multiple_of(warp::LANES) {
                for (row, sum) in sums.into_iter().enumerate() {
                    all_sums.write([this_warp, row], sum);
                }
            }
            thread::sync_threads();
            if lane == 0 {
                sums = [0.0; ROWS];
                for other in this_warp..this_warp + (lanes / warp::LANES) as usize {
                    sums = core::array::from_fn(|row| sums[row] + all_sums.read([other, row]));
                }
            }
        }
        if lane == 0 {
            for (row, sum) in sums.into_iter().enumerate() {
                if first_row + (row as u32) < gemv.m() {
                    finish(product, split, first_row + row as u32, sum);
                }
            }
        }
    }
}

/// A split of the columns, of which this thread is lane `lane`.
struct Part<'a> {
    gemv: &'a SplitGemv<'a>,
    product: SplitProduct<'a>,
    lane: u32,
    lanes: u32,
    /// The first column, a multiple of the columns of a step, or of the end.
    begin: u32,
    /// The column after the last.
    end: u32,
}

impl Part<'_> {
    /// Whether four neighbours in a row of A from a multiple of four on, and those in x, are aligned vectors: the same for all products,
    /// so that the lanes of a warp, which may have several, stay together.
    #[inline(always)]
    fn has_vectors(&self) -> bool {
        self.product.x.stride() == 1 && self.product.a.row_stride().is_multiple_of(4) && self.gemv.is_aligned(true)
    }

    /// The sums of this lane for four rows. Those of rows beyond the last are some number.
    ///
    /// # Safety
    /// Rows are `SHIFTED` unless [`Part::has_vectors`] says otherwise. A is contiguous along its rows.
    #[inline(always)]
    unsafe fn rows<const SHIFTED: bool>(&self, first_row: u32) -> [f32; ROWS] {
        let mut sums = [0.0; ROWS];
        // SAFETY: the caller's promise, for rows below m.
        unsafe {
            if SHIFTED {
                if first_row < self.gemv.m() {
                    self.add_shifted(&mut sums, first_row);
                }
            } else if first_row + ROWS as u32 <= self.gemv.m() {
                sums = self.dot::<ROWS, 2>(first_row);
            } else {
                let mut row = 0;
                while first_row + row < self.gemv.m() {
                    let [sum] = self.dot::<1, 4>(first_row + row);
                    add_to(&mut sums, row, sum);
                    row = hint::keep_rolled(row + 1);
                }
            }
        }
        sums
    }

    /// The sums of this lane for `N` rows, of which it loads `LOADS` vectors at a time.
    ///
    /// # Safety
    /// As for [`Part::rows`], with vectors; `first_row + N <= m`.
    #[inline(always)]
    unsafe fn dot<const N: usize, const LOADS: usize>(&self, first_row: u32) -> [f32; N] {
        let (a, x) = (self.product.a.data(), self.product.x);
        let row_stride = self.product.a.row_stride();
        let row_offset = u64::from(first_row) * row_stride;
        // SAFETY: below k, and aligned, by what the callers below have compared.
        let load_x = |column: u64| -> [f32; WIDTH] { unsafe { x.data().get4_unchecked(column as usize) } };
        let load_a = |row: usize, column: u64| -> [f32; WIDTH] {
            // SAFETY: as above, and a row below m.
            unsafe { a.get4_streaming_unchecked((row_offset + column + row as u64 * row_stride) as usize) }
        };
        let load = |from: u32| -> ([[f32; WIDTH]; LOADS], [[[f32; WIDTH]; N]; LOADS]) {
            let column = |i: usize| self.column(from, i);
            (
                core::array::from_fn(|i| load_x(column(i))),
                core::array::from_fn(|i| core::array::from_fn(|row| load_a(row, column(i)))),
            )
        };

        let mut sums = [0.0; N];
        let step = self.step(LOADS);
        let mut steps = (self.end - self.begin) / step.max(1);
        let mut from = self.begin;
        if steps > 0 {
            let (mut x, mut a) = load(from);
            loop {
                steps -= 1;
                from += step;
                if steps == 0 {
                    break;
                }
                for i in 0..LOADS {
                    add_products(&mut sums, a[i], [x[i]; N]);
                }
                (x, a) = load(from);
                steps = hint::keep_rolled(steps);
            }
            for i in 0..LOADS {
                add_products(&mut sums, a[i], [x[i]; N]);
            }
        }
        // What is left of the last step.
        if from < self.end {
            for i in 0..LOADS {
                let column = self.column(from, i);
                if column + WIDTH as u64 <= u64::from(self.end) {
                    add_products(&mut sums, core::array::from_fn(|row| load_a(row, column)), [load_x(column); N]);
                }
            }
            // Where a column is not enough for a vector, there are at most three more.
            // SAFETY: rows below m, and columns below k.
            unsafe { self.add_columns(&mut sums, first_row, |_| [(0, 0), (self.end & !3, self.end)]) };
        }
        sums
    }

    /// Adds the sums of this lane for four rows that are shifted; beyond the last row, of that one once more. Places are columns, counted
    /// from the multiple of 16 bytes before the first.
    ///
    /// # Safety
    /// As for [`Part::rows`]; `first_row < m`.
    #[inline(always)]
    unsafe fn add_shifted(&self, sums: &mut [f32; ROWS], first_row: u32) {
        let (a, x) = (self.product.a.data(), self.product.x);
        let row = |i: usize| (first_row + i as u32).min(self.gemv.m() - 1);
        let shifts: [u32; ROWS] = core::array::from_fn(|i| self.shift(row(i)));
        let load = |place: u32| -> [[f32; WIDTH]; ROWS] {
            // SAFETY: a row below m, and columns below k, since the place is at least the fourth. Aligned by the definition of the
            // shift.
            core::array::from_fn(|i| unsafe {
                let offset = u64::from(row(i)) * self.product.a.row_stride() + u64::from(place - shifts[i]);
                a.get4_streaming_unchecked(offset as usize)
            })
        };
        // The columns that the four rows have at these places, and their products. x is loaded where it is used, since it is in the
        // cache, and would take registers.
        let mut add = |place: u32, a: [[f32; WIDTH]; ROWS]| {
            // SAFETY: the place is at least the fourth, and a row without a shift has columns below k there.
            let x: [f32; NEAR] = core::array::from_fn(|i| unsafe { x.at(place + i as u32 - 3) });
            add_products(sums, a, core::array::from_fn(|i| shifted(x, shifts[i])));
        };

        // The vectors that all rows have in this split. It may have nothing.
        let (is_first, is_last) = (self.begin == 0, self.begin < self.end && self.end == self.product.k);
        let end = self.end & !3;
        let begin = if is_first { WIDTH as u32 } else { self.begin }.min(end);
        let mut place = begin.saturating_add(self.lane * WIDTH as u32);
        if end.saturating_sub(place) >= WIDTH as u32 {
            let mut vectors = load(place);
            loop {
                add(place, vectors);
                if end - place < self.step(1) + WIDTH as u32 {
                    break;
                }
                place = hint::keep_rolled(place + self.step(1));
                vectors = load(place);
            }
        }
        // What comes before them and after them, one by one.
        // SAFETY: rows below m, and columns below k: places are columns and a shift.
        unsafe {
            self.add_columns(sums, first_row, |row| {
                let shift = self.shift(row);
                let before = if is_first { begin.saturating_sub(shift) } else { 0 };
                let after = if is_last { end.saturating_sub(shift) } else { self.end };
                [(0, before), (after, self.end)]
            });
        }
    }

    /// How many elements before row `row` begins there is a multiple of 16 bytes.
    #[inline(always)]
    fn shift(&self, row: u32) -> u32 {
        let a = &self.product.a;
        (a.data().as_ptr() as u64 / 4 + u64::from(row) * a.row_stride()) as u32 % 4
    }

    /// The first column of this lane in vector `i` of a step from column `from` on.
    #[inline(always)]
    fn column(&self, from: u32, i: usize) -> u64 {
        u64::from(from + self.lane * WIDTH as u32) + i as u64 * u64::from(self.lanes) * WIDTH as u64
    }

    /// The columns of a step with so many vectors for each lane.
    #[inline(always)]
    fn step(&self, loads: usize) -> u32 {
        (loads * WIDTH) as u32 * self.lanes
    }

    /// Adds this lane's products of the columns that each of some rows below m has left, from one to before another, twice.
    ///
    /// # Safety
    /// There are such rows and columns.
    #[inline(always)]
    unsafe fn add_columns<const N: usize>(
        &self,
        sums: &mut [f32; N],
        first_row: u32,
        left: impl Fn(u32) -> [(u32, u32); 2],
    ) {
        let (a, x) = (&self.product.a, &self.product.x);
        let mut row = 0;
        while row < (N as u32).min(self.gemv.m() - first_row) {
            let mut sum = 0.0;
            for (first, end) in left(first_row + row) {
                let mut column = first + self.lane;
                while column < end {
                    // SAFETY: the caller's promise.
                    sum = unsafe { math::fma(a.at(first_row + row, column), x.at(column), sum) };
                    column = hint::keep_rolled(column + self.lanes);
                }
            }
            add_to(sums, row, sum);
            row = hint::keep_rolled(row + 1);
        }
    }
}

/// Adds to sum `row`. (An index that is not known would put the array into memory.)
#[inline(always)]
fn add_to<const N: usize>(sums: &mut [f32; N], row: u32, more: f32) {
    *sums = core::array::from_fn(|i| sums[i] + if i as u32 == row { more } else { 0.0 });
}

/// The elements of a vector.
const WIDTH: usize = 4;
/// The elements of x that are near a vector of a row that is shifted.
const NEAR: usize = 7;

/// The four elements of x for a row with a shift.
#[inline(always)]
fn shifted(x: [f32; NEAR], shift: u32) -> [f32; WIDTH] {
    let choose = |earlier: bool, [first, second]: [f32; 2]| if earlier { first } else { second };
    let by_two: [f32; 5] = core::array::from_fn(|i| choose(shift & 2 != 0, [x[i], x[i + 2]]));
    core::array::from_fn(|i| choose(shift & 1 != 0, [by_two[i], by_two[i + 1]]))
}

/// Adds the products of some columns of rows, and what each takes of x, to the sums of the rows.
#[inline(always)]
fn add_products<const N: usize>(sums: &mut [f32; N], a: [[f32; WIDTH]; N], x: [[f32; WIDTH]; N]) {
    for row in 0..N {
        for i in 0..WIDTH {
            sums[row] = math::fma(a[row][i], x[row][i], sums[row]);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_split_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(blocks(&self.gemv, self.gemv.splits()))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_split_atomic_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(blocks(&self.gemv, self.splits))
    }
}
