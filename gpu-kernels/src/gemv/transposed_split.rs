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
//! the groups of the team, which had different columns of the same rows, add up theirs in shared memory.
//!
//! **Lanes and teams.** A group has a lane for every four rows, at most 32, rounded up to a power of two, and fewer where a GPU would not
//! be full otherwise. A team has a group for every eight columns, as far as there are threads in a block. Where that leaves threads, a
//! block has several teams, which may be of several products of a batch.
//!
//! **Splits** are as in [`split`](super::split).
//!
//! **Alignment.** Where columns begin anywhere, loads are of 16 bytes from multiples of 16 bytes all the same. The columns of a thread are
//! a multiple of four apart, so all of them begin as many elements behind such a multiple: the thread has the four rows that its vectors
//! have, others than the same lane of another group. What it adds up of rows above or below those of the team nobody reads. So a
//! team has three rows less than its lanes. Vectors that begin before the matrix or end behind it are not loaded; their rows go
//! one by one.
//!
//! At most 85 registers, 4 KiB of shared memory; any device from sm_80 on.

use blocks::reduce::sum_of_lanes;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::{ROWS, SplitGemv, SplitProduct, THREADS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::geometry::divide;

/// The columns that a thread loads at a time.
const LOADS: usize = 8;

/// The logarithms of the fewest groups of a team: the columns of a thread are a multiple of four apart.
const FEWEST_GROUPS: u32 = 2;

/// The logarithm of the fewest lanes of a group, if there are rows for them: they load two sectors of memory.
const FEWEST_LANES: u32 = 2;

/// The blocks that run at a time on a GPU of 132 multiprocessors, and a few more.
const ENOUGH: u64 = 420;

/// The logarithm of the elements of a product, about, that is divided among blocks by its columns rather.
const LARGE: u32 = 26;

/// How so many m×k matrices are divided among threads.
#[derive(Clone, Copy)]
struct Division {
    /// The logarithm of the lanes of a group.
    lanes: u32,
    /// The logarithm of the groups of a team.
    groups: u32,
    /// The rows of a team.
    rows: u32,
    /// The teams for all columns of a matrix.
    teams: u32,
}

impl Division {
    #[inline(always)]
    fn new(products: u32, m: u32, k: u32, is_aligned: bool) -> Self {
        // Rows that a team does not have of those of its lanes.
        let lost = if is_aligned { 0 } else { ROWS as u32 - 1 };
        let log = |number: u32| number.max(1).next_power_of_two().ilog2();
        let elements = [products, m, k].map(|extent| extent.max(1).ilog2());
        let mut filling = warp::LANES.ilog2();
        if elements[0] + elements[1] + elements[2] < LARGE {
            // The fewest lanes with which about all blocks run at a time.
            for lanes in (FEWEST_LANES..warp::LANES.ilog2()).rev() {
                let teams = u64::from(products) * u64::from(m.div_ceil(ROWS as u32).div_ceil(1 << lanes));
                filling = if teams <= ENOUGH { lanes } else { filling };
            }
        }
        let lanes = log((m.saturating_add(lost)).div_ceil(ROWS as u32)).min(filling);
        let groups = log(k.div_ceil(LOADS as u32)).clamp(FEWEST_GROUPS, THREADS.ilog2() - lanes);
        let rows = ((ROWS as u32) << lanes) - lost;
        Self { lanes, groups, rows, teams: m.div_ceil(rows) }
    }

    /// The threads of a team.
    #[inline(always)]
    fn team(&self) -> u32 {
        1 << (self.lanes + self.groups)
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

/// The blocks of a split, for so many m×k matrices, whose columns are all vectors or begin anywhere.
#[cfg(not(target_arch = "nvptx64"))]
pub fn blocks_of_rows(products: u32, m: u32, k: u32, is_aligned: bool) -> u64 {
    Division::new(products, m, k, is_aligned).blocks(products)
}

/// The number of blocks.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(gemv: &SplitGemv<'_>) -> u64 {
    gemv.division().blocks(gemv.products()).saturating_mul(u64::from(gemv.splits()))
}

/// How many splits make good use of a GPU with so many multiprocessors, for so many m×k matrices: 1 where there are rows enough.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemv_transposed_splits(products: u32, m: u32, k: u32, multiprocessors: u32) -> u32 {
    let division = Division::new(products, m, k, true);
    super::balanced_splits(division.blocks(products), k.div_ceil(division.step()), [products, m, k], multiprocessors)
}

impl SplitGemv<'_> {
    /// Whether four neighbours in a column of A, from a multiple of four on, are an aligned vector.
    #[inline(always)]
    fn has_aligned_columns(&self) -> bool {
        self.a.first().col_stride().is_multiple_of(4) && self.is_aligned(false)
    }

    #[inline(always)]
    fn division(&self) -> Division {
        Division::new(self.products(), self.m(), self.k(), self.has_aligned_columns())
    }
}

/// `y = α·A·x + β·y` in fp32 for an A column-major, or partial sums of it: one block for each split of some rows.
#[kernel(block = 256, min_blocks = 3, requires(
    gemv.a().first().is_contiguous_along_cols(), blocks(&gemv) <= MAX_BLOCKS
))]
pub fn gemv_transposed_split_fp32(gemv: SplitGemv<'_>) {
    static SUMS: Shared<[f32; ROWS * THREADS as usize]> = Shared::new();
    let division = gemv.division();
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
    let (product, first_row) = if is_inside { (product as u32, place as u32 * division.rows) } else { (0, gemv.m()) };
    let split = split as u32;
    let [begin, end] = super::range_of_split(split, splits, gemv.effective_k(), division.step());
    // SAFETY: below the number of products, as compared, or the first of at least one, and of splits, as a remainder.
    let product = unsafe { gemv.product(product, split) };
    let (lane, group) = (t_of_team & ((1 << division.lanes) - 1), t_of_team >> division.lanes);
    let part = Part { product, m: gemv.m(), first_row, lane, groups: division.groups, column: begin + group, end };

    // Lanes of a warp with the same rows, whose sums are added up at once: those of every group, or of every fourth.
    let is_aligned = gemv.has_aligned_columns();
    let width = division.team().min(warp::LANES);
    let apart = (if is_aligned { 1 } else { 4 } << division.lanes).min(width);
    let (sets_of_warp, lanes) = (apart >> division.lanes, 1 << division.lanes);
    // SAFETY: the launch has checked the layout. All threads of the block come to the shuffles and the barrier. Before it, each thread has
    // elements of its own, those of its set and its rows, in the part of its team; after it, each row is that of one thread.
    unsafe {
        let (sums, shift) = part.sums();
        let sums = sum_of_lanes(sums, apart, width);
        let rows = division.rows;
        let (of_team, in_warp) = (team * (division.team() * ROWS as u32), t_of_team & (width - 1));
        if in_warp < apart {
            let set = (t_of_team / warp::LANES) * sets_of_warp + (in_warp >> division.lanes);
            for i in 0..ROWS {
                let row = (lane * ROWS as u32 + i as u32).wrapping_sub(shift);
                if row < rows {
                    SUMS.write((of_team + set * (lanes * ROWS as u32) + row) as usize, sums[i]);
                }
            }
        }
        thread::sync_threads();
        let sets = division.team() / width * sets_of_warp;
        let mut row = t_of_team;
        while row < rows && first_row + row < gemv.m() {
            let mut sum = SUMS.read((of_team + row) as usize);
            for set in 1..sets {
                sum += SUMS.read((of_team + set * (lanes * ROWS as u32) + row) as usize);
            }
            product.epilogue(first_row + row, sum);
            row += division.team();
        }
    }
}

/// What a thread has of a product: four rows, and a column of as many as its team has groups.
struct Part<'a> {
    product: SplitProduct<'a>,
    m: u32,
    /// The first row of the team.
    first_row: u32,
    lane: u32,
    /// The logarithm of the groups of the team.
    groups: u32,
    /// The first column of this thread.
    column: u32,
    /// The column after the last of the split.
    end: u32,
}

impl Part<'_> {
    /// The sums of this thread for four rows side by side, and how many rows above that of its lane these begin: none where columns are
    /// aligned.
    ///
    /// # Safety
    /// A is contiguous along its columns.
    #[inline(always)]
    unsafe fn sums(&self) -> ([f32; ROWS], u32) {
        let (a, x, width) = (self.product.a, self.product.x, ROWS as u64);
        let (shift, distance) = (self.shift(), 1 << self.groups);
        let mut sums = [0.0; ROWS];
        if self.first_row >= self.m {
            return (sums, shift);
        }
        // The row of the first element of a vector: above the matrix perhaps, below zero.
        let row = u64::from(self.first_row + self.lane * ROWS as u32).wrapping_sub(shift.into());
        let offset = |column: u32| row.wrapping_add(u64::from(column) * a.col_stride());
        // Vectors that begin at most here are inside.
        let extent = u64::from(self.product.k.max(1) - 1) * a.col_stride() + u64::from(self.m);
        let is_inside = |column: u32| extent >= width && offset(column) <= extent - width;
        // The columns of this thread, but for those whose vectors are not inside: the first ones, or the last ones.
        let (mut column, mut end) = (self.column, if (row as i64) < i64::from(self.m) { self.end } else { 0 });
        while column < end && !is_inside(column) {
            // SAFETY: a column below k.
            unsafe { self.add_one_by_one(&mut sums, row, column) };
            column = hint::keep_rolled(column + distance);
        }
        while column < end && !is_inside(column + ((end - 1 - column) & !(distance - 1))) {
            end = column + ((end - 1 - column) & !(distance - 1));
            // SAFETY: as above.
            unsafe { self.add_one_by_one(&mut sums, row, end) };
            end = hint::keep_rolled(end);
        }

        // The columns of this thread in a step from column `from` on, of which `count` columns are left.
        let [to_next, to_next_of_x] = [a.col_stride(), x.stride()].map(|stride| stride << self.groups);
        let load_step = |from: u32, count: u32| -> [([f32; ROWS], f32); LOADS] {
            let (first, first_of_x) = (offset(from), u64::from(from) * x.stride());
            core::array::from_fn(|i| {
                if ((i as u32) << self.groups) >= count {
                    return ([0.0; ROWS], 0.0);
                }
                let place = first.wrapping_add(i as u64 * to_next);
                let place_of_x = first_of_x + i as u64 * to_next_of_x;
                // SAFETY: the column is below k, and its vector inside the matrix, since those are left out whose are not; aligned by the
                // definition of the shift, which is that of all columns of this thread.
                unsafe {
                    (a.data().get4_streaming_unchecked(place as usize), x.data().get_unchecked(place_of_x as usize))
                }
            })
        };
        let step = (LOADS as u32) << self.groups;
        // Whole steps: those whose last column, in this thread, is inside.
        let mut steps = (end + distance).saturating_sub(column + 1) >> self.groups >> LOADS.ilog2();
        if steps > 0 {
            let mut loaded = load_step(column, u32::MAX);
            loop {
                // Not known to the compiler, which would else count on from every column in its own registers.
                column = hint::keep_rolled(column + step);
                steps -= 1;
                if steps == 0 {
                    break;
                }
                add_products(&mut sums, loaded);
                loaded = load_step(column, u32::MAX);
            }
            add_products(&mut sums, loaded);
        }
        // What is left of the last step: all loads before the first product.
        if column < end {
            add_products(&mut sums, load_step(column, end - column));
        }
        (sums, shift)
    }

    /// Adds the products of a column to the sums, those of rows from `row` on that the matrix has.
    ///
    /// # Safety
    /// The column is below k.
    #[inline(always)]
    unsafe fn add_one_by_one(&self, sums: &mut [f32; ROWS], row: u64, column: u32) {
        let (a, x) = (self.product.a, self.product.x);
        for i in 0..ROWS {
            let row = row.wrapping_add(i as u64);
            if row < u64::from(self.m) {
                // SAFETY: a row below m, and a column below k by the caller's promise.
                sums[i] = unsafe { math::fma(a.at(row as u32, column), x.at(column), sums[i]) };
            }
        }
    }

    /// How many elements before the columns of this thread, from the first row of its team on, there is a multiple of 16 bytes.
    #[inline(always)]
    fn shift(&self) -> u32 {
        let a = &self.product.a;
        let place = u64::from(self.column) * a.col_stride() + u64::from(self.first_row);
        (a.data().as_ptr() as u64 / 4 + place) as u32 % ROWS as u32
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
