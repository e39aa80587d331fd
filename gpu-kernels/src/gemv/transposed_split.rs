//! Column-major matrices: a team of threads has up to 128 rows and a slice of the columns, and neighbouring threads have neighbouring rows.
//!
//! ```text
//!                  split 0             split 1
//!         columns  c0 c1 … c7  …
//!        ┌─────────────────────────┬─────────────────────┐         lane of a group:   4 rows, one load of 16 bytes
//!  rows  │ │  │     │            │                     │         group of a team:   every 8th column, for eight groups
//!  0–127 │ ▼  ▼     ▼            │                     │
//!        ├─────────────────────────┼─────────────────────┤         a thread loads 8 columns at a time, and multiplies
//!        │                         │                     │         each with one element of x
//!        └─────────────────────────┴─────────────────────┘
//! ```
//!
//! The idea: Aᵀ·x with Aᵀ read in place, as it lies in memory. A thread's four sums need no other thread's until the end, when
//! the groups of the team, which had different columns of the same rows, add up theirs: by shuffles in a warp, and in shared memory among
//! several.
//!
//! **Lanes and teams.** A group has a lane for every four rows, at most 32, rounded up to a power of two, and fewer where a GPU would not
//! be full otherwise. A team has as many groups as fill a GPU, as far as there are eight columns for each and threads in a block; one
//! has all the columns where there are teams enough and columns are few. Where that leaves threads, a
//! block has several teams, which may be of several products of a batch.
//!
//! **Splits** are as in [`split`](super::split).
//!
//! **Alignment.** The four rows of a thread are neighbours where that makes each column's an aligned vector. Columns that begin anywhere
//! are loaded in vectors, too: every fourth of them, which is what a group has, begins as many elements behind an aligned
//! one, its *shift*, and the group has the rows of the vectors from there on. Teams have four rows less than vectors, so that all of
//! their rows are in those whatever the shift, and add up through shared memory, where rows have their places again.
//!
//! ```text
//!                     rows of the team:     0 1 2 3 4 5 6 7 8 9 …
//!  group 0, shift 0   vectors of lanes     │0 0 0 0│1 1 1 1│2 2 2 2│
//!  group 1, shift 3                  │0 0 0 0│1 1 1 1│2 2 2 2│            what is not of the team's rows is not used
//! ```
//!
//! Where a team has fewer than four groups, or a group fewer than eight lanes, the rows of a thread are as far apart as there are lanes,
//! and loaded one by one. A sum is the same, bit by bit, in all three ways.
//!
//! At most 85 registers, 4 KiB of shared memory; any device from sm_80 on.

use blocks::reduce::sum_of_lanes;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::{SplitGemv, SplitProduct, THREADS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::geometry::divide;

/// The rows of a thread.
const ROWS: usize = 4;

/// The columns that a thread loads at a time.
const LOADS: usize = 8;

/// The logarithm of the fewest lanes of a group, if there are rows for them: they load two sectors of memory.
const FEWEST_LANES: u32 = 2;

/// The logarithm of elements so many that bytes count which are loaded with those of a group, where columns are vectors and where they begin
/// anywhere, and that of the fewest lanes then: they load two lines. Fewer are still better than the second pass of splits, but not where each
/// load has parts of sectors.
const MANY: [u32; 2] = [24, 21];
const FEWEST_LANES_OF_MANY: u32 = 4;

/// The logarithm of elements so many that this counts more than the second pass, even if there are blocks enough without it.
const VERY_MANY: u32 = 25;

/// The logarithm of the fewest lanes of a group whose vectors are shifted: one of them is needed for what the first leaves out.
const FEWEST_LANES_SHIFTED: u32 = 3;

/// The blocks that run at a time on a GPU of 132 multiprocessors.
const ENOUGH: u64 = 396;

/// The logarithm of threads so many that groups of more columns are better than more groups.
const ENOUGH_THREADS: u32 = 16;

/// The logarithm of the elements of a product, about, that is divided among blocks by its columns rather.
const LARGE: u32 = 26;

/// How so many m×k matrices are divided among threads.
#[derive(Clone, Copy)]
struct Division {
    /// The logarithm of the lanes of a group.
    lanes: u32,
    /// The logarithm of the groups of a team.
    groups: u32,
    /// The teams for all rows of a matrix.
    teams: u32,
    /// How columns are loaded.
    columns: Columns,
}

/// How the columns of a matrix are loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// As vectors, which they are made of.
    Vectors,
    /// As aligned vectors, wherever they begin.
    Shifted,
    /// By single elements.
    Elements,
}

impl Division {
    #[inline(always)]
    fn new(products: u32, m: u32, k: u32) -> Self {
        let log = |number: u32| number.max(1).next_power_of_two().ilog2();
        let elements = [products, m, k].map(|extent| extent.max(1).ilog2());
        let lanes_for_all = m.div_ceil(ROWS as u32);
        let mut lanes = warp::LANES.ilog2();
        let elements = elements[0] + elements[1] + elements[2];
        if elements < LARGE {
            // The fewest lanes with which about all blocks run at a time.
            let many = MANY[usize::from(!m.is_multiple_of(ROWS as u32))];
            for fewer in (FEWEST_LANES..warp::LANES.ilog2()).rev() {
                let teams = u64::from(products) * u64::from(lanes_for_all.div_ceil(1 << fewer));
                let are_enough = teams >= ENOUGH / 3 && m.is_multiple_of(ROWS as u32) && elements < VERY_MANY;
                let are_wide = fewer >= FEWEST_LANES_OF_MANY || elements < many || are_enough;
                lanes = if are_wide && teams <= ENOUGH { fewer } else { lanes };
            }
        }
        let lanes = log(lanes_for_all).min(lanes);
        let teams = lanes_for_all.div_ceil(1 << lanes);
        // As many groups as there are columns for, or as fill a GPU, because what they have has to be added up; but none with more than
        // four steps, or eight.
        let threads = ((u64::from(products) * u64::from(teams)) << lanes).max(1).ilog2();
        let filling = ENOUGH_THREADS.saturating_sub(threads);
        let long = (k / (4 * LOADS as u32)).max(1).ilog2();
        // (Half as many columns for each, if a warp has all groups.)
        let in_warp = log(k.div_ceil(LOADS as u32 / 2)).min(warp::LANES.ilog2() - lanes);
        let groups = log(k.div_ceil(LOADS as u32)).max(in_warp).min(filling.max(long)).min(THREADS.ilog2() - lanes);
        Self { lanes, groups, teams, columns: Columns::Vectors }
    }

    /// The same for the matrices of a product.
    #[inline(always)]
    fn of(gemv: &SplitGemv<'_>) -> Self {
        let division = Self::new(gemv.products(), gemv.m(), gemv.k());
        if gemv.has_aligned_columns() && gemv.m().is_multiple_of(ROWS as u32) {
            return division;
        }
        // (The first column's vector alone begins before the matrix, and the last one's ends behind it.)
        let are_apart = gemv.a.first().col_stride() >= ROWS as u64;
        if division.groups < ROWS.ilog2() || division.lanes < FEWEST_LANES_SHIFTED || !are_apart {
            return Self { columns: Columns::Elements, ..division };
        }
        let shifted = Self { columns: Columns::Shifted, ..division };
        Self { teams: gemv.m().div_ceil(shifted.rows()), ..shifted }
    }

    /// The threads of a team.
    #[inline(always)]
    fn team(&self) -> u32 {
        1 << (self.lanes + self.groups)
    }

    /// The rows of a team.
    #[inline(always)]
    fn rows(&self) -> u32 {
        let rows = (ROWS as u32) << self.lanes;
        if self.columns == Columns::Shifted { rows - ROWS as u32 } else { rows }
    }

    /// The columns of a step of a team.
    #[inline(always)]
    fn step(&self) -> u32 {
        (LOADS as u32) << self.groups
    }

    /// The blocks of a split, for so many products.
    #[cfg(not(target_arch = "nvptx64"))]
    fn blocks(&self, products: u32) -> u64 {
        (u64::from(products) * u64::from(self.teams)).div_ceil(u64::from(THREADS / self.team()))
    }
}

/// The blocks of a split, for so many m×k matrices.
#[cfg(not(target_arch = "nvptx64"))]
pub fn blocks_of_rows(products: u32, m: u32, k: u32) -> u64 {
    Division::new(products, m, k).blocks(products)
}

/// The number of blocks.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(gemv: &SplitGemv<'_>) -> u64 {
    Division::of(gemv).blocks(gemv.products()).saturating_mul(u64::from(gemv.splits()))
}

/// How many splits make good use of a GPU with so many multiprocessors, for so many m×k matrices: 1 where there are rows enough.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemv_transposed_splits(products: u32, m: u32, k: u32, multiprocessors: u32) -> u32 {
    let division = Division::new(products, m, k);
    super::balanced_splits(division.blocks(products), k.div_ceil(division.step()), [products, m, k], multiprocessors)
}

impl SplitGemv<'_> {
    /// Whether four neighbours in a column of A, from a multiple of four on, are an aligned vector.
    #[inline(always)]
    fn has_aligned_columns(&self) -> bool {
        let a = self.a.first();
        (a.data().as_ptr() as u64).is_multiple_of(16)
            && a.col_stride().is_multiple_of(4)
            && (self.a.count() <= 1 || self.a.stride().is_multiple_of(4))
    }
}

/// `y = α·A·x + β·y` in fp32 for an A column-major, or partial sums of it: one block for each split of some rows.
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_cols(), blocks(&gemv) <= MAX_BLOCKS
))]
pub fn gemv_transposed_split_fp32(gemv: SplitGemv<'_>) {
    static SUMS: Shared<[f32; ROWS * THREADS as usize]> = Shared::new();
    let division = Division::of(&gemv);
    let (t, block, splits) = (thread::thread_idx_x(), u64::from(thread::block_idx_x()), gemv.splits());
    let (teams_of_blocks, split) = if splits == 1 { (block, 0) } else { divide(block, splits.into()) };
    let (team, t_of_team) = (t >> (division.lanes + division.groups), t & (division.team() - 1));
    let number = teams_of_blocks * u64::from(THREADS / division.team()) + u64::from(team);
    let teams = u64::from(division.teams);
    let (product, place) = if gemv.products() == 1 { (0, number) } else { divide(number, teams) };
    if gemv.products() == 0 {
        return; // the whole grid
    }
    // A team beyond the last product, or the only one, has no rows, but comes to the barrier all the same.
    let is_inside = product < u64::from(gemv.products()) && place < teams;
    let (product, first_row) = if is_inside { (product as u32, place as u32 * division.rows()) } else { (0, u32::MAX) };
    let split = split as u32;
    let [begin, end] = super::range_of_split(split, splits, gemv.effective_k(), division.step());
    // SAFETY: below the number of products, as compared, or the first of at least one, and of splits, as a remainder.
    let product = unsafe { gemv.product(product, split) };
    let (lane, group) = (t_of_team & ((1 << division.lanes) - 1), t_of_team >> division.lanes);

    // The four rows of the thread: neighbours if they are a vector, or else each the neighbour of one of the next lane's.
    let column = begin + group;
    let (row_of_lane, apart, shift) = match division.columns {
        Columns::Vectors => (lane * ROWS as u32, 0, 0),
        Columns::Shifted => (lane * ROWS as u32, 0, product.shift(column)),
        Columns::Elements => (lane, division.lanes, 0),
    };
    let row = first_row.saturating_add(row_of_lane);
    let part = Part { product, m: gemv.m(), row, shift, apart, groups: division.groups, column, end };
    // SAFETY: the launch has checked the layout; where columns are vectors, the four rows are one in every column; where they are shifted, a
    // thread has every fourth column, or fewer, all of which have the shift of its first.
    let sums = unsafe {
        match division.columns {
            Columns::Vectors => part.sums::<{ Columns::Vectors as u8 }>(),
            Columns::Shifted => part.sums::<{ Columns::Shifted as u8 }>(),
            Columns::Elements => part.sums::<{ Columns::Elements as u8 }>(),
        }
    };

    // Groups of a warp add up theirs at once, and those of other warps through shared memory.
    let rows = division.rows();
    let width = division.team().min(warp::LANES);
    let warps = division.team() / width;
    let is_first = t_of_team & (width - 1) < 1 << division.lanes;
    // SAFETY: all threads of the block come to the shuffles, and to the barrier if there is one: they have the same division. Before it,
    // each thread has elements of its own in the part of its team; after it, and where there is none, each row is that of one thread.
    unsafe {
        if division.columns == Columns::Shifted {
            // Groups whose rows are not the same add up in the order of the others.
            let of_team = team * (rows << division.groups);
            for i in 0..ROWS as u32 {
                let row = (row_of_lane + i).wrapping_sub(shift);
                if row < rows {
                    SUMS.write((of_team + group * rows + row) as usize, sums[i as usize]);
                }
            }
            thread::sync_threads();
            let groups_of_warp = width >> division.lanes;
            let mut row = t_of_team;
            while row < rows && first_row.saturating_add(row) < part.m {
                let of_group = |group: u32| SUMS.read((of_team + group * rows + row) as usize);
                let mut sum = sum_of_groups(0, groups_of_warp, of_group);
                for warp in 1..warps {
                    sum += sum_of_groups(warp * groups_of_warp, groups_of_warp, of_group);
                }
                part.product.epilogue(first_row + row, sum);
                row += division.team();
            }
            return; // the whole block
        }
        let sums = sum_of_lanes(sums, 1 << division.lanes, width);
        if division.team() <= warp::LANES {
            for i in 0..ROWS {
                let row = part.row.saturating_add((i as u32) << apart);
                if is_first && row < part.m {
                    part.product.epilogue(row, sums[i]);
                }
            }
            return; // the whole block
        }
        let of_team = team * (warps * rows);
        if is_first {
            let of_warp = of_team + t_of_team / warp::LANES * rows;
            for i in 0..ROWS {
                SUMS.write((of_warp + row_of_lane + ((i as u32) << apart)) as usize, sums[i]);
            }
        }
        thread::sync_threads();
        let mut row = t_of_team;
        while row < rows && first_row.saturating_add(row) < part.m {
            let mut sum = SUMS.read((of_team + row) as usize);
            for warp in 1..warps {
                sum += SUMS.read((of_team + warp * rows + row) as usize);
            }
            part.product.epilogue(first_row + row, sum);
            row += division.team();
        }
    }
}

/// What one, two or four groups have together, from group `first` on, in the order in which [`sum_of_lanes`] adds them up.
#[inline(always)]
fn sum_of_groups(first: u32, groups: u32, of_group: impl Fn(u32) -> f32) -> f32 {
    let pair = |group: u32, apart: u32| of_group(group) + of_group(group + apart);
    match groups {
        1 => of_group(first),
        2 => pair(first, 1),
        _ => pair(first, 2) + pair(first + 1, 2),
    }
}

impl SplitProduct<'_> {
    /// How many elements the first row of a column is behind a multiple of 16 bytes.
    #[inline(always)]
    fn shift(&self, column: u32) -> u32 {
        let elements = self.a.data().as_ptr() as u64 / size_of::<f32>() as u64;
        elements.wrapping_add(u64::from(column) * self.a.col_stride()) as u32 % ROWS as u32
    }
}

/// What a thread has of a product: four rows, and a column of as many as its team has groups.
struct Part<'a> {
    product: SplitProduct<'a>,
    m: u32,
    /// The first row of this thread, but for the shift.
    row: u32,
    /// By how many rows its rows come before that.
    shift: u32,
    /// The logarithm of the rows from one of its rows to the next.
    apart: u32,
    /// The logarithm of the groups of the team.
    groups: u32,
    /// The first column of this thread.
    column: u32,
    /// The column after the last of the split.
    end: u32,
}

impl Part<'_> {
    /// The sums of this thread for its rows.
    ///
    /// # Safety
    /// A is contiguous along its columns. `COLUMNS` is one of [`Columns`]. Of `Vectors`, the rows are neighbours, all of the matrix or none, and
    /// an aligned vector in every column; of `Shifted`, they are neighbours, and such a vector in every column of this thread.
    #[inline(always)]
    unsafe fn sums<const COLUMNS: u8>(&self) -> [f32; ROWS] {
        let (is_shifted, are_vectors) = (COLUMNS == Columns::Shifted as u8, COLUMNS != Columns::Elements as u8);
        let (a, x) = (self.product.a, self.product.x);
        let mut sums = [0.0; ROWS];
        if self.row >= self.m.saturating_add(self.shift) {
            return sums;
        }
        // As many rows as the matrix has of them.
        let is_row = |i: usize| match is_shifted {
            // (Before the matrix, it is no small number.)
            true => self.row.wrapping_sub(self.shift).wrapping_add(i as u32) < self.m,
            false => ((i as u32) << self.apart) < self.m - self.row,
        };
        let [to_next, to_next_of_x] = [a.col_stride(), x.stride()].map(|stride| stride << self.groups);
        let place_of_column = |column: u32| {
            u64::from(self.row).wrapping_sub(self.shift.into()).wrapping_add(u64::from(column) * a.col_stride())
        };
        let elements = |place: u64| -> [f32; ROWS] {
            core::array::from_fn(|i| {
                let place = place.wrapping_add((i as u64) << self.apart) as usize;
                // SAFETY: a row of the matrix, and a column that the caller of this has found to be one of the split.
                if is_row(i) { unsafe { a.data().get_unchecked(place) } } else { 0.0 }
            })
        };
        // The columns of this thread in a step from column `from` on, of which `left` columns are left.
        let load = |from: u32, left: u32| -> [([f32; ROWS], f32); LOADS] {
            // From column to column by additions: else all multiples of the distances would stay in registers.
            let mut place = place_of_column(from);
            let mut place_of_x = u64::from(from) * x.stride();
            core::array::from_fn(|i| {
                let (of_this, of_this_of_x) = (place, place_of_x as usize);
                (place, place_of_x) = (place.wrapping_add(to_next), place_of_x.wrapping_add(to_next_of_x));
                if ((i as u32) << self.groups) >= left {
                    return ([0.0; ROWS], 0.0);
                }
                // SAFETY: a column of the split, and an aligned vector, which ends behind the first element of the matrix and begins before
                // its last.
                unsafe {
                    let of_a = match are_vectors {
                        true => a.data().from_unchecked(of_this as usize).get4_streaming_unchecked(0),
                        false => elements(of_this),
                    };
                    (of_a, x.data().get_unchecked(of_this_of_x))
                }
            })
        };
        // A vector that begins before the matrix, or ends behind it, is not loaded: of the first column or of the last.
        let single = |column: u32| {
            // SAFETY: a column of the split.
            let of_x = unsafe { x.data().get_unchecked((u64::from(column) * x.stride()) as usize) };
            [(elements(place_of_column(column)), of_x)]
        };
        let (mut column, mut end) = (self.column, self.end);
        if is_shifted && self.row < self.shift && column == 0 && end > 0 {
            add_products(&mut sums, single(0));
            column = 1 << self.groups;
        }
        let ends_behind = is_shifted && self.row.saturating_add(ROWS as u32) > self.m.saturating_add(self.shift);
        let last = end.wrapping_sub(1);
        let is_last = |column: u32| last >= column && (last - column) & ((1 << self.groups) - 1) == 0;
        let is_single = ends_behind && end == self.product.k && end > column && is_last(column);
        if is_single {
            end = last;
        }
        let step = (LOADS as u32) << self.groups;
        // Whole steps: those whose last column, in this thread, is of the split.
        let left = (end.saturating_sub(column) + ((1 << self.groups) - 1)) >> self.groups;
        let mut steps = left / LOADS as u32;
        // (The assembler would put some loads of vectors behind the first products, if they were in one iteration. With single elements it
        // does not, and has no registers for two of their steps.)
        while !are_vectors && steps > 0 {
            add_products(&mut sums, load(column, u32::MAX));
            // Not known to the compiler, which would else count on from every column in its own registers.
            column = hint::keep_rolled(column.saturating_add(step));
            steps -= 1;
        }
        if are_vectors && steps > 0 {
            let mut loaded = load(column, u32::MAX);
            loop {
                column = hint::keep_rolled(column.saturating_add(step));
                steps -= 1;
                if steps == 0 {
                    break;
                }
                add_products(&mut sums, loaded);
                loaded = load(column, u32::MAX);
            }
            add_products(&mut sums, loaded);
        }
        // What is left of the last step.
        if column < end {
            add_products(&mut sums, load(column, end - column));
        }
        if is_single {
            add_products(&mut sums, single(last));
        }
        sums
    }
}

/// Adds the products of four rows of some columns to their sums.
#[inline(always)]
fn add_products<const LOADS: usize>(sums: &mut [f32; ROWS], loaded: [([f32; ROWS], f32); LOADS]) {
    for (rows, x) in loaded {
        for i in 0..ROWS {
            sums[i] = math::fma(rows[i], x, sums[i]);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_transposed_split_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(blocks(&self.gemv))
    }
}
