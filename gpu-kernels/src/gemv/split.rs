//! Row-major matrices: a group of lanes has up to eight rows and a slice of their columns (split-K), and keeps many loads under way.
//!
//! ```text
//!                  split 0                  split 1
//!          ┌───────────────────────┬──────────────────────┐        group 0: lane 0  lane 1  lane 2  …  lane 0  lane 1  …
//!  row 0   │ step 0 │ step 1 │ …   │                      │        of rows 0, 4, 8 and 12; a vector of 4 columns each, the
//!  row 1   │                       │                      │        lanes' vectors side by side, two of each row in a step
//!  …       │                       │                      │        group 1: rows 1, 5, 9 and 13
//!  row 4   │ step 0 │ step 1 │ …   │                      │        …
//!          └───────────────────────┴──────────────────────┘        x is loaded once for the rows of a group
//!
//!  partials   P[0] = (p0 … pm)        P[1] = (p0 … pm)             the second pass adds them in order
//! ```
//!
//! The idea: [`block_reduction`](super::block_reduction) loads an element and waits for it. Here every thread has eight loads
//! of 16 bytes for A under way, and what they take of x, all before the first product. A bypasses the first-level cache, which belongs
//! to x. A short row is a single step, and its instructions count: a multiprocessor has about 20 bytes of A in a clock, and four instructions.
//! So eight rows of one vector each share what comes before and after, where that leaves no lanes idle.
//!
//! **Lanes.** The rows of a group take a warp, and a block has eight groups of them, which may be of several products of a batch: nobody
//! waits for anybody. Where that would not fill a GPU, or rows are long, up to all threads of a block share the rows, and where rows are
//! short, as many as have a step. Groups that are neighbours have rows that are neighbours, so that short rows are loaded in whole lines
//! of memory.
//!
//! **Splits.** Few rows make few blocks, so the columns are divided too. The partial sums go to a workspace, from which a
//! second pass adds them up in order: the same bits on every run. The one that adds atomically has that in its name.
//!
//! **Alignment.** Loads of A are of 16 bytes from multiples of 16 bytes, wherever rows begin. The rows of a group are four
//! apart, so all of them begin as many elements behind such a multiple, which is their *shift*: counted from there, they have their columns
//! at the same places, and a thread needs the same elements of x for all of them. What a vector has before the first column or behind the
//! last is replaced by zeros. Vectors that begin before the matrix or end behind it are not loaded; their columns go one by one, each to
//! a lane.
//!
//! ```text
//!  row 0, shift 1     │ · a b c │ d e f g │ h i · · │
//!  row 4, shift 1     │ · a b c │ d e f g │ h i · · │          the thread of the second vectors:  x₃ … x₆
//! ```
//!
//! At most 85 registers, 128 of them where sums are added atomically, and 256 bytes of shared memory; any device from sm_80 on.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::{SplitGemv, SplitProduct, THREADS, WARPS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::geometry::divide;

/// The elements of a vector.
const WIDTH: usize = 4;

/// The most rows of which a thread has sums, the fewest rows of a matrix with which it has them, and the fewest and the most columns. Where
/// there are less, too many lanes would be idle; longer rows are as fast with few.
const MANY: usize = 8;
const FEWEST_ROWS_FOR_MANY: u32 = 64;
const COLUMNS_FOR_MANY: [u32; 2] = [128, 320];

/// The rows of which a thread has sums otherwise; or one, where a matrix has no more rows.
const FEW: usize = 4;

/// The vectors that a thread has in a step, of all its rows.
const LOADS: usize = 8;

/// The vectors that it loads at a time where it has a single row, of which x takes as much room.
const LOADS_OF_ONE: usize = 4;

/// The logarithm of the threads that fill a GPU, about.
const ENOUGH: u32 = 17;

/// From one row of a group to the next: as far that all rows of a group have the same shift.
const APART: u32 = WIDTH as u32;

/// How the rows of so many m×k matrices are divided among threads.
#[derive(Clone, Copy)]
struct Division {
    /// The most rows of a group.
    rows: u32,
    /// The vectors of each row that a thread has in a step.
    vectors: u32,
    /// The logarithm of the threads of a group.
    lanes: u32,
    /// The groups of a matrix.
    groups: u32,
}

impl Division {
    #[inline(always)]
    fn new(products: u32, m: u32, k: u32) -> Self {
        let [fewest, most] = COLUMNS_FOR_MANY;
        let rows = match (m <= FEW as u32, m >= FEWEST_ROWS_FOR_MANY && k >= fewest && k <= most) {
            (true, _) => 1,
            (false, false) => FEW as u32,
            (false, true) => MANY as u32,
        };
        // A single row's are divided as those of few rows: more threads with a part of what they could load are faster.
        let vectors = LOADS as u32 / rows.max(FEW as u32);
        let groups = if rows == 1 { m } else { m.div_ceil(rows * APART) * APART };
        let all = u64::from(products) * u64::from(groups);
        let filling = ENOUGH.saturating_sub(all.max(1).ilog2()).clamp(warp::LANES.ilog2(), THREADS.ilog2());
        // Where rows are long, at least four steps each.
        let columns = vectors * WIDTH as u32;
        let long = (k / (4 * columns)).max(1).ilog2().min(THREADS.ilog2());
        let lanes = k.div_ceil(columns).max(1).next_power_of_two().ilog2().min(filling.max(long));
        Self { rows, vectors, lanes, groups }
    }

    /// The first row of a group.
    #[inline(always)]
    fn first_row(&self, group: u32) -> u32 {
        if self.rows == 1 { group } else { group / APART * (self.rows * APART) + group % APART }
    }

    /// The vectors of a row in a step.
    #[inline(always)]
    fn step(&self) -> u32 {
        self.vectors << self.lanes
    }
}

/// The blocks of a split, for so many m×k matrices: a block has one or more groups of rows.
#[cfg(not(target_arch = "nvptx64"))]
pub fn blocks_of_rows(products: u32, m: u32, k: u32) -> u64 {
    let Division { lanes, groups, .. } = Division::new(products, m, k);
    (u64::from(products) * u64::from(groups)).div_ceil(u64::from(THREADS >> lanes))
}

/// The number of blocks for `splits` splits.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(gemv: &SplitGemv<'_>, splits: u32) -> u64 {
    blocks_of_rows(gemv.products(), gemv.m(), gemv.k()).saturating_mul(u64::from(splits))
}

/// How many splits make good use of a GPU with so many multiprocessors, for so many m×k matrices: 1 where there are rows enough.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemv_splits(products: u32, m: u32, k: u32, multiprocessors: u32) -> u32 {
    let steps = k.div_ceil(WIDTH as u32).div_ceil(Division::new(products, m, k).step());
    super::balanced_splits(blocks_of_rows(products, m, k), steps, [products, m, k], multiprocessors)
}

/// `y = α·A·x + β·y` in fp32 for an A row-major, or partial sums of it: one block for each split of some rows.
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_rows(), blocks(&gemv, gemv.splits()) <= MAX_BLOCKS
))]
pub fn gemv_split_fp32(gemv: SplitGemv<'_>) {
    static SUMS: Shared<[[f32; MANY]; WARPS]> = Shared::new();
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
#[kernel(block = 256, min_blocks = 2, requires(
    gemv.a().first().is_contiguous_along_rows(), gemv.splits() == 1, gemv.beta() == 1.0, splits > 0,
    blocks(&gemv, splits) <= MAX_BLOCKS
))]
pub fn gemv_split_atomic_fp32(gemv: SplitGemv<'_>, splits: u32) {
    static SUMS: Shared<[[f32; MANY]; WARPS]> = Shared::new();
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
    all_sums: &'static Shared<[[f32; MANY]; WARPS]>,
    finish: impl Fn(u32, u32, u32, f32),
) {
    let division = Division::new(gemv.products(), gemv.m(), gemv.k());
    let lanes = 1 << division.lanes;
    let block = u64::from(thread::block_idx_x());
    let (rows_of_blocks, split) = if splits == 1 { (block, 0) } else { divide(block, splits.into()) };
    let (t, split) = (thread::thread_idx_x(), split as u32);
    let lane = t & (lanes - 1);
    let group = rows_of_blocks * u64::from(THREADS >> division.lanes) + u64::from(t >> division.lanes);
    // Which product of the batch has the group.
    let groups = u64::from(division.groups);
    let (product, group) = if gemv.products() == 1 { (0, group) } else { divide(group, groups) };
    // What is beyond the last product, or the only one, has no rows, but comes to the barriers all the same.
    let is_inside = product < u64::from(gemv.products()) && group < groups;
    let (product, first_row) =
        if is_inside { (product as u32, division.first_row(group as u32)) } else { (0, gemv.m()) };
    if gemv.products() == 0 {
        return; // the whole grid
    }

    // SAFETY: below the number of products, as compared, or the first of at least one.
    let operands = unsafe { gemv.product(product, 0) };
    let part = Part { product: operands, m: gemv.m(), lanes: division.lanes, lane, first_row };
    // As many as a row has that is shifted by three.
    let vectors = match gemv.effective_k() {
        0 => 0,
        k => (k + WIDTH as u32 - 1).div_ceil(WIDTH as u32),
    };
    let range = super::range_of_split(split, splits, vectors, division.step());
    let is_dense = gemv.x.first().row_stride() == 1;
    // SAFETY: A is contiguous along its rows. All threads of the block take the same way to the shuffles and to the barrier. Each warp has
    // elements of its own, and where several of them share rows, the barrier separates the writes from the reads.
    unsafe {
        let (sums, mut index, mut count) = match (division.rows as usize, is_dense) {
            (MANY, true) => sums_of_rows(part.dot::<MANY, { LOADS / MANY }, true>(range), lane, lanes),
            (MANY, false) => sums_of_rows(part.dot::<MANY, { LOADS / MANY }, false>(range), lane, lanes),
            (FEW, true) => sums_of_rows(part.dot::<FEW, { LOADS / FEW }, true>(range), lane, lanes),
            (FEW, false) => sums_of_rows(part.dot::<FEW, { LOADS / FEW }, false>(range), lane, lanes),
            (_, true) => sums_of_rows(part.dot::<1, LOADS_OF_ONE, true>(range), lane, lanes),
            (_, false) => sums_of_rows(part.dot::<1, LOADS_OF_ONE, false>(range), lane, lanes),
        };
        let mut sum_of_warps = 0.0;
        if lanes > warp::LANES {
            let this_warp = t / warp::LANES;
            if count > 0 {
                all_sums.write([this_warp as usize, index as usize], sums[0]);
            }
            thread::sync_threads();
            (index, count) = (lane, u32::from(lane < division.rows));
            if count > 0 {
                for warp in this_warp..this_warp + lanes / warp::LANES {
                    sum_of_warps += all_sums.read([warp as usize, index as usize]);
                }
            }
        }
        let mut i = 0;
        while i < count {
            let row = first_row.saturating_add((index + i) * APART);
            if row < gemv.m() {
                let sum = if lanes > warp::LANES { sum_of_warps } else { element(sums, i) };
                finish(product, split, row, sum);
            }
            i = hint::keep_rolled(i + 1);
        }
    }
}

/// The sums over `lanes` neighbouring lanes, but no more than a warp, scattered: those that this lane gets, the number of the first of them,
/// and how many they are. Where there are more lanes than sums, one of several neighbours gets one.
///
/// # Safety
/// All lanes of the warp come here, with the same number.
#[inline(always)]
unsafe fn sums_of_rows<const N: usize>(mut sums: [f32; N], lane: u32, lanes: u32) -> ([f32; MANY], u32, u32) {
    let (mut first, mut count) = (0, N as u32);
    let mut distance = lanes.min(warp::LANES) / 2;
    // SAFETY: the caller's promise.
    let other = |value, distance| unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance, warp::LANES) }.0;
    for step in 0..N.ilog2() {
        if distance > 0 {
            let half = N >> (step + 1);
            let is_upper = lane & distance != 0;
            for i in 0..half {
                let (kept, given) = if is_upper { (sums[i + half], sums[i]) } else { (sums[i], sums[i + half]) };
                sums[i] = kept + other(given, distance);
            }
            first += if is_upper { half as u32 } else { 0 };
            count = half as u32;
            distance /= 2;
        }
    }
    let several = distance * 2;
    while distance > 0 {
        sums[0] += other(sums[0], distance);
        distance /= 2;
    }
    let is_first = several == 0 || lane & (several - 1) == 0;
    let mut all = [0.0; MANY];
    all[..N].copy_from_slice(&sums);
    (all, first, if is_first { count } else { 0 })
}

/// One of the elements. (Where the index is not known, the array would be in memory.)
#[inline(always)]
fn element(array: [f32; MANY], index: u32) -> f32 {
    let mut found = array[0];
    for i in 1..MANY {
        found = if index == i as u32 { array[i] } else { found };
    }
    found
}

/// What a thread has of a product: some vectors of some rows.
struct Part<'a> {
    product: SplitProduct<'a>,
    m: u32,
    /// The logarithm of the lanes of its group.
    lanes: u32,
    /// Which of them it is.
    lane: u32,
    /// The first row of the group.
    first_row: u32,
}

impl Part<'_> {
    /// The sums of this lane over some vectors of the group's rows, of which there are at most `N`. Those of rows that the matrix does
    /// not have are some number.
    ///
    /// # Safety
    /// A is contiguous along its rows. `DENSE` says that x is without gaps.
    #[inline(always)]
    unsafe fn dot<const N: usize, const LOADS: usize, const DENSE: bool>(&self, [begin, end]: [u32; 2]) -> [f32; N] {
        let (a, x, k) = (self.product.a, self.product.x, self.product.k);
        let mut sums = [0.0; N];
        if self.first_row >= self.m {
            return sums;
        }
        let shift = self.shift();
        let end = end.min((k + shift).div_ceil(WIDTH as u32));
        if begin >= end {
            return sums;
        }
        let rows = (self.m - self.first_row).div_ceil(APART).min(N as u32);
        let row = |i: usize| self.first_row + i as u32 * APART;
        let first_of_group = u64::from(self.first_row) * a.row_stride();
        let of_x = |column: u32| {
            let place = if DENSE { column as usize } else { (u64::from(column) * x.stride()) as usize };
            // SAFETY: called with columns of the product.
            unsafe { x.data().get_unchecked(place) }
        };

        // The columns of the split, and how many of the first and the last vectors' are to go one by one: those of vectors that, in some
        // row of the group, begin before the matrix or end behind it. (Four rows away from its ends there are none, if rows are apart.)
        let mut columns = [(begin * WIDTH as u32).saturating_sub(shift), (end * WIDTH as u32 - shift).min(k)];
        let behind = (end * WIDTH as u32 - shift).saturating_sub(k);
        let stride = a.row_stride().min(WIDTH as u64) as u32;
        let after = self.m - 1 - (self.first_row + (rows - 1) * APART);
        let is_cut = [
            begin == 0 && self.first_row.min(WIDTH as u32) * stride < shift,
            after.min(WIDTH as u32) * stride < behind,
        ];
        if is_cut[0] || is_cut[1] {
            let [first, last] = columns;
            if is_cut[0] {
                columns[0] = (WIDTH as u32 - shift).min(last);
            }
            if is_cut[1] {
                columns[1] = (last + behind).saturating_sub(WIDTH as u32).max(columns[0]);
            }
            let at_begin = columns[0] - first;
            let mut i = self.lane;
            while i < at_begin + last - columns[1] {
                let column = if i < at_begin { i } else { columns[1] + i - at_begin };
                for i in 0..N {
                    if (i as u32) < rows {
                        // SAFETY: a row below m and a column below k.
                        sums[i] = unsafe { math::fma(a.at(row(i), column), of_x(column), sums[i]) };
                    }
                }
                i = hint::keep_rolled(i + (1 << self.lanes));
            }
            if columns[0] >= columns[1] {
                return sums;
            }
        }

        // The first vector, and the column of its first element: below zero perhaps, which is above all columns.
        let first = (columns[0] + shift) / WIDTH as u32;
        let first_column = (first * WIDTH as u32).wrapping_sub(shift);
        let count = (columns[1] + shift).div_ceil(WIDTH as u32) - first;
        let data: [_; N] = core::array::from_fn(|i| {
            let i = if (i as u32) < rows { i } else { 0 };
            let place = first_of_group + (i as u32 * APART) as u64 * a.row_stride() + u64::from(first * WIDTH as u32);
            // SAFETY: the first vector is inside of the matrix in every row of the group.
            unsafe { a.data().from_unchecked((place - u64::from(shift)) as usize) }
        });
        let mut vector = self.lane;
        while vector < count {
            // All loads of a step before the first product.
            let vectors: [u32; LOADS] = core::array::from_fn(|i| vector + ((i as u32) << self.lanes));
            let column = |vector: u32, i: usize| first_column.wrapping_add(vector * WIDTH as u32 + i as u32);
            let of_a = vectors.map(|vector| -> [[f32; WIDTH]; N] {
                core::array::from_fn(|i| {
                    if (vector >= count) | (i as u32 >= rows) {
                        return [0.0; WIDTH];
                    }
                    // SAFETY: inside the matrix, as those vectors are left out that are not; aligned by the definition of the shift,
                    // which is that of all rows of the group.
                    unsafe { data[i].get4_streaming_unchecked((vector * WIDTH as u32) as usize) }
                })
            });
            let x = vectors.map(|vector| -> [f32; WIDTH] {
                core::array::from_fn(|i| match column(vector, i) {
                    column if column < columns[1] => of_x(column),
                    _ => 0.0,
                })
            });
            for load in 0..LOADS {
                for row in 0..N {
                    for i in 0..WIDTH {
                        let a = if column(vectors[load], i) < columns[1] { of_a[load][row][i] } else { 0.0 };
                        sums[row] = math::fma(a, x[load][i], sums[row]);
                    }
                }
            }
            // Not known to the compiler, which would else count on from every vector in its own registers.
            vector = hint::keep_rolled(vector + ((LOADS as u32) << self.lanes));
        }
        sums
    }

    /// How many elements before the rows of the group begin there is a multiple of 16 bytes.
    #[inline(always)]
    fn shift(&self) -> u32 {
        let a = &self.product.a;
        (a.data().as_ptr() as u64 / 4 + u64::from(self.first_row) * a.row_stride()) as u32 % WIDTH as u32
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
