//! Products with few columns, `C = α·A·B + β·C` in fp32 for an n of at most 16: the time is that of reading A once.
//!
//! ```text
//!  A row-major (`nt`)                                     A column-major (`tt`)
//!
//!             k: 128 at a time                                       k: 128 at a time, 4 for each of 32 groups of lanes
//!         ┌──────────────────────────┐                           ┌───────┬───────┬─ … ─┐
//!  4 rows │ lane: 4 k of each row    │ warp 0            32 rows │ group │ group │     │   8 lanes have 4 rows each
//!         ├──────────────────────────┤                           └───────┴───────┴─ … ─┘
//!  4 rows │                          │ warp 1
//!         └──────────────────────────┘ …
//!
//!  A lane has 4 rows × n accumulators, and uses what it has loaded of A for all n columns. B comes from the first-level cache:
//!  a block has 32 rows, so it reads n elements of B for 32 of A.
//! ```
//!
//! The idea is that of [`gemv`](crate::gemv), for several vectors at a time: an element of A is loaded once, in vectors of 16 bytes
//! and past the first-level cache, and many such loads are under way before the first is used. At n = 16 the fused multiply-adds take
//! two thirds of a Hopper GPU's time; beyond that, tensor cores have to do it.
//!
//! B is column-major, so that a lane loads four k of a column in one instruction. Columns of B beyond the last are read as the
//! last one, and rows of A likewise: what is computed of them is not stored. In the end lanes that have the same elements add up
//! theirs by shuffles; where A is column-major, the warps do so in shared memory.
//!
//! Rows of a row-major A may begin anywhere, and are read in vectors all the same: where they are not a multiple of four elements apart, a
//! warp has every second or fourth row, all of which begin equally far behind a multiple of 16 bytes. That is their *shift*. Of a
//! column of B whose shift is another one, two vectors are loaded, and the four elements that belong to A's are selected of both. For 16
//! columns there are not enough registers for that: elements are loaded one by one.
//!
//! ```text
//!  rows of 4j + 1 elements: warp 0 has rows 0, 4, 8, 12              four elements of B for d e f g of A
//!
//!   row 0, shift 1     │ · a b c │ d e f g │ h i · · │                         lower       upper
//!   row 4, shift 1     │ · a b c │ d e f g │ h i · · │                     │ · · · d │ e f g · │
//!                        by single lanes: a b c, h i
//! ```
//!
//! Where columns of a column-major A do not begin at multiples of 16 bytes, elements are loaded one by one.
//!
//! At most 255 registers, 16 KB of shared memory; any device from sm_80 on.

use blocks::reduce::sum_and_scatter;
use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::Matrix;
use crate::gemm::narrow::{WARPS, store_sums_of_warps};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The rows of which a lane has accumulators.
const ROWS: usize = 4;
/// The rows of a block.
const BLOCK_ROWS: u32 = 32;
/// The parts of a block that have k of their own: the lanes of a warp for a row-major A, else groups of eight lanes.
const PARTS: u32 = 32;
/// The loads that a lane has under way for each of its rows of A, where elements are loaded one by one.
const LOADS_OF_ONE: usize = 8;

/// The most elements from one column of B to the next: offsets in B have 32 bits.
pub const MAX_PITCH_OF_B: u64 = 1 << 27;

/// The tile of a block, for at most `columns` columns.
pub const fn tile_on_cuda_cores(columns: u32) -> TileShape {
    TileShape { m: BLOCK_ROWS, n: columns, k: 128 }
}

/// What a lane loads of its rows of A at a time: all rows of each of `WIDTH` k.
type Loaded<const WIDTH: usize> = [[f32; ROWS]; WIDTH];
/// The accumulators of a lane.
type Accumulators<const N: usize> = [[f32; N]; ROWS];

/// The k that are read in vectors, of those of a block, and the others.
#[derive(Clone, Copy)]
struct Terms {
    /// All.
    begin: u32,
    end: u32,
    /// In vectors: a multiple of four.
    first: u32,
    last: u32,
}

impl Terms {
    /// Those from `begin` to before `end`, where vectors may begin `head` k behind the first one. Where columns of B are shifted, no
    /// vector of theirs has elements of other columns.
    #[inline(always)]
    fn new(begin: u32, end: u32, head: u32, are_shifted: bool) -> Self {
        let [before, behind] = if are_shifted { [4, 4] } else { [0, 0] };
        let first = (begin + head + before).min(end);
        let last = first + (end - first).saturating_sub(behind) / 4 * 4;
        Self { begin, end, first, last }
    }

    /// The k number `i` of those that are not read in vectors, of which there are less than 32: three or seven before the vectors, and as many
    /// behind.
    #[inline(always)]
    fn rest(&self, i: u32) -> Option<u32> {
        let before = self.first - self.begin;
        let k = if i < before { self.begin + i } else { self.last + (i - before) };
        (k < self.end).then_some(k)
    }
}

/// What a lane reads: four rows of A, and all columns of B.
#[derive(Clone, Copy)]
struct Source<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    /// The first of the rows of A.
    row: u32,
    /// From one of the rows to the next.
    distance: u32,
    /// The k after the last that the loop reads.
    end: u32,
}

impl Source<'_> {
    /// The row of A that row `i` of the lane reads: for one beyond the last the first of the lane, which has the same shift, if A has that.
    #[inline(always)]
    fn row(&self, i: u32) -> u64 {
        let (row, rows) = (self.row + i * self.distance, self.a.rows());
        u64::from(if row < rows { row } else { self.row.min(rows.wrapping_sub(1)) })
    }

    /// `WIDTH` elements of a column of B from `k` on: four, or the same one in all places.
    ///
    /// # Safety
    /// B is column-major and has a column, and `k + WIDTH` is at most its k. Four elements begin at a multiple of 16 bytes, or, if they are
    /// `SHIFTED`, anywhere, but B has four more before and behind them.
    #[inline(always)]
    unsafe fn load_b<const WIDTH: usize, const SHIFTED: bool>(&self, k: u32, col: u32) -> [f32; WIDTH] {
        let data = self.b.data();
        let mut numbers = [self.b.cols().wrapping_sub(1), self.b.col_stride() as u32];
        if SHIFTED {
            // Or the compiler keeps the place of each column, and has no registers for anything else.
            hint::pin(&mut numbers);
        }
        let [last, stride] = numbers;
        // No overflow: a launch has checked the stride. (Offsets of 64 bits would take twice as many registers.)
        let offset = col.min(last) * stride + k;
        // SAFETY: the caller's promise: a column and a k of B; what a shifted vector has beside them are of the same column.
        unsafe {
            if WIDTH == 1 {
                [data.get_unchecked(offset as usize); WIDTH]
            } else if SHIFTED {
                let shift = ((data.as_ptr() as u64 / 4) as u32).wrapping_add(offset) % 4;
                let lower = data.get4_unchecked((offset - shift) as usize);
                let upper = data.get4_unchecked((offset - shift + 4) as usize);
                vector(select(lower, upper, shift))
            } else {
                vector(data.get4_unchecked(offset as usize))
            }
        }
    }
}

/// The four elements from number `shift` on, 0 to 3, of eight, the last of which is never one of them.
#[inline(always)]
fn select([a, b, c, d]: [f32; 4], [e, f, g, _]: [f32; 4], shift: u32) -> [f32; 4] {
    // Compared, where a bit could be looked at, because of a fault of ptxas (CUDA 13.0): of two bits of a register it makes predicates by one
    // instruction (R2P), and in a chain of several such selections it writes those of the next one before the last use of these.
    let mut numbers = [shift];
    hint::pin(&mut numbers);
    let [shift] = numbers;
    let [a, b, c, d, e] = if shift >= 2 { [c, d, e, f, g] } else { [a, b, c, d, e] };
    if shift == 1 || shift == 3 { [b, c, d, e] } else { [a, b, c, d] }
}

/// Four elements as an array of as many.
#[inline(always)]
fn vector<const WIDTH: usize>(four: [f32; 4]) -> [f32; WIDTH] {
    core::array::from_fn(|i| four[i % 4])
}

/// A loop over k, in which part `part` of 32 parts of the threads has `WIDTH` k at a time. In a step a lane calls `load(k)`, which loads
/// `WIDTH` k from `k` on of its rows of A, `LOADS` times: as soon as what has been loaded is used, the same load of the next step is
/// issued. What is left in the end is done with a step for each load.
///
/// # Safety
/// What [`Source::load_b`] asks of B, for k up to the end; `begin` is below 2^32 - 2^16.
#[inline(always)]
unsafe fn steps<const N: usize, const WIDTH: usize, const LOADS: usize, const SHIFTED: bool>(
    source: Source<'_>,
    part: u32,
    begin: u32,
    load: impl Fn(u32) -> Loaded<WIDTH>,
) -> Accumulators<N> {
    let (width, end) = (WIDTH as u32, source.end);
    let (first, distance) = (begin + part * width, PARTS * width);
    let mut accumulators = [[0.0; N]; ROWS];
    let add = |accumulators: &mut Accumulators<N>, a: Loaded<WIDTH>, k: u32| {
        for col in 0..N {
            // SAFETY: the caller's promise.
            let b = unsafe { source.load_b::<WIDTH, SHIFTED>(k, col as u32) };
            for i in 0..WIDTH {
                for row in 0..ROWS {
                    accumulators[row][col] = math::fma(a[i][row], b[i], accumulators[row][col]);
                }
            }
        }
    };
    let load_step = |k: u32| -> [Loaded<WIDTH>; LOADS] { core::array::from_fn(|i| load(k + i as u32 * distance)) };
    // Whole steps: those whose last load, in this lane, is inside.
    let (step, mut k) = (LOADS as u32 * distance, first);
    let mut left = (end + distance).saturating_sub(first + width) / distance / LOADS as u32;
    if left > 0 {
        let mut loaded = load_step(k);
        left -= 1;
        while left > 0 {
            for i in 0..LOADS {
                let k = k + i as u32 * distance;
                add(&mut accumulators, loaded[i], k);
                loaded[i] = load(k + step);
            }
            k += step;
            left = hint::keep_rolled(left - 1);
        }
        for i in 0..LOADS {
            add(&mut accumulators, loaded[i], k + i as u32 * distance);
        }
        k += step;
    }
    while k + width <= end {
        add(&mut accumulators, load(k), k);
        k = hint::keep_rolled(k + distance);
    }
    accumulators
}

/// The accumulators of a lane for a row-major A: lane `lane` of 32 has `WIDTH` k at a time.
///
/// # Safety
/// A is row-major, B is column-major, and neither is empty; `begin` is where vectors of A begin, if `WIDTH` is 4, and the end of `source` at
/// most k. What [`Source::load_b`] asks for each k.
#[inline(always)]
unsafe fn row_major<const N: usize, const WIDTH: usize, const LOADS: usize, const SHIFTED: bool>(
    source: Source<'_>,
    lane: u32,
    begin: u32,
) -> Accumulators<N> {
    let (data, pitch) = (source.a.data(), source.a.row_stride());
    let rows: [u64; ROWS] = core::array::from_fn(|i| source.row(i as u32) * pitch);
    let load = |k: u32| -> Loaded<WIDTH> {
        let by_row: [[f32; WIDTH]; ROWS] = rows.map(|row| {
            let offset = (row + u64::from(k)) as usize;
            // SAFETY: a row of A, and k below the end; aligned, by the definition of the shift.
            unsafe {
                if WIDTH == 4 {
                    vector(data.get4_streaming_unchecked(offset))
                } else {
                    [data.get_unchecked(offset); WIDTH]
                }
            }
        });
        core::array::from_fn(|i| core::array::from_fn(|row| by_row[row][i]))
    };
    // SAFETY: the caller's promise; `load` is called for k below the end.
    unsafe { steps::<N, WIDTH, LOADS, SHIFTED>(source, lane, begin, load) }
}

/// The accumulators of a lane for a column-major A: those of group `group` of 32 have `WIDTH` k at a time. Lane `lane` of 8 in a
/// group has four rows side by side with vectors, else every eighth.
///
/// # Safety
/// As for [`row_major`], but A is column-major. With vectors, all four rows are rows of A.
#[inline(always)]
unsafe fn column_major<const N: usize, const WIDTH: usize, const LOADS: usize, const SHIFTED: bool>(
    source: Source<'_>,
    group: u32,
    begin: u32,
) -> Accumulators<N> {
    let (data, pitch) = (source.a.data(), source.a.col_stride());
    let load = |k: u32| -> Loaded<WIDTH> {
        core::array::from_fn(|i| {
            let column = u64::from(k + i as u32) * pitch;
            // SAFETY: rows of A, and a k below the end.
            unsafe {
                if WIDTH == 4 {
                    data.get4_streaming_unchecked((column + u64::from(source.row)) as usize)
                } else {
                    core::array::from_fn(|row| data.get_unchecked((column + source.row(row as u32)) as usize))
                }
            }
        })
    };
    // SAFETY: the caller's promise; `load` is called for k below the end.
    unsafe { steps::<N, WIDTH, LOADS, SHIFTED>(source, group, begin, load) }
}

/// Adds the products of one k.
///
/// # Safety
/// As for [`row_major`], but in any layout of A.
#[inline(always)]
unsafe fn add_rest<const N: usize>(source: Source<'_>, accumulators: &mut Accumulators<N>, k: u32) {
    let (data, row_stride, col_stride) = (source.a.data(), source.a.row_stride(), source.a.col_stride());
    for i in 0..ROWS {
        // SAFETY: a row of A, and a k below the end.
        let a = unsafe { data.get_unchecked((source.row(i as u32) * row_stride + u64::from(k) * col_stride) as usize) };
        for col in 0..N {
            // SAFETY: likewise.
            let [b] = unsafe { source.load_b::<1, false>(k, col as u32) };
            accumulators[i][col] = math::fma(a, b, accumulators[i][col]);
        }
    }
}

/// The accumulators that are added up at a time, for so many columns: a sum for each lane at most.
const fn chunk(columns: usize) -> usize {
    if ROWS * columns < warp::LANES as usize { ROWS * columns } else { warp::LANES as usize }
}

/// Adds up the accumulators of the lanes whose numbers differ in the bits from `first` on, and calls `store` with the row, of the four,
/// the column, and the sum of each element that is this lane's. `CHUNK` of the accumulators are added up at a time.
///
/// # Safety
/// Called by all lanes of the warp, with the same `first`, a power of two below the number of lanes.
#[inline(always)]
unsafe fn sums<const N: usize, const CHUNK: usize>(
    accumulators: &Accumulators<N>,
    first: u32,
    store: impl Fn(u32, u32, f32),
) {
    const { assert!(ROWS * N == CHUNK || ROWS * N == 2 * CHUNK, "all of them are added up") };
    // One after the other, and not in a loop: an array that is indexed by a loop's counter might end up in memory.
    // SAFETY: the caller's promise.
    unsafe {
        sums_of_chunk::<N, CHUNK>(accumulators, 0, first, &store);
        if ROWS * N > CHUNK {
            sums_of_chunk::<N, CHUNK>(accumulators, 1, first, &store);
        }
    }
}

/// The same for one chunk of the accumulators.
///
/// # Safety
/// As for [`sums`].
#[inline(always)]
unsafe fn sums_of_chunk<const N: usize, const CHUNK: usize>(
    accumulators: &Accumulators<N>,
    chunk: usize,
    first: u32,
    store: &impl Fn(u32, u32, f32),
) {
    let (lanes, values) = (warp::LANES / first, CHUNK as u32);
    // How many sums a lane has, and how many lanes have the same.
    let (share, same) = ((values / lanes).max(1), (lanes / values).max(1));
    let lane = warp::lane_id() / first;
    let mut of_chunk = [0.0; CHUNK];
    for i in 0..CHUNK {
        let place = chunk * CHUNK + i;
        of_chunk[i] = accumulators[place / N][place % N];
    }
    // SAFETY: the caller's promise.
    let sums = unsafe { sum_and_scatter(of_chunk, first) };
    if lane.is_multiple_of(same) {
        for i in 0..share {
            let place = chunk as u32 * values + lane / same * share + i;
            store(place / N as u32, place % N as u32, sums[i as usize]);
        }
    }
}

/// How far apart rows are that have the same [shift](Matrix::shift), if each begins `pitch` elements behind the one before: 1, 2 or 4.
#[inline(always)]
fn distance(pitch: u64) -> u32 {
    match pitch % 4 {
        0 => 1,
        2 => 2,
        _ => 4,
    }
}

/// The body for a row-major A. A warp has rows of its own, so no warp waits for another.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`]; A is row-major, B column-major.
#[inline(always)]
unsafe fn multiply_row_major<const N: usize, const CHUNK: usize, const LOADS: usize, const SHIFTED_LOADS: usize>(
    gemm: TiledGemm<'_>,
) {
    let (warp, lane) = (thread::thread_idx_x() / warp::LANES, warp::lane_id());
    let Some(tile) = gemm.tile(tile_on_cuda_cores(N as u32), thread::block_idx_x()) else { return };
    // The rows of as many warps as rows with the same shift are apart lie side by side. That is a power of two, and a division takes long.
    let distance = distance(tile.a.row_stride());
    let among = warp & (distance - 1);
    let first_row = tile.row + (warp - among) * ROWS as u32 + among;
    if first_row >= tile.c.rows() {
        return; // the whole warp
    }
    let Tile { a, b, k_begin, k_end, .. } = tile;
    let head = a.shift(a.row_stride(), first_row).wrapping_neg() % 4;
    let is_shifted = head > 0 || !b.has_lines_of_vectors(b.col_stride());
    let is_single = is_shifted && SHIFTED_LOADS == 0;
    let terms = if is_single {
        Terms { begin: k_begin, end: k_end, first: k_begin, last: k_end }
    } else {
        Terms::new(k_begin, k_end, head, is_shifted)
    };
    let source = Source { a, b, row: first_row, distance, end: terms.last };
    // SAFETY: the caller's promise; there are rows and columns, because there is a tile, and k below the end are k of the product.
    let accumulators = unsafe {
        let mut accumulators = if is_single {
            row_major::<N, 1, LOADS_OF_ONE, false>(source, lane, terms.first)
        } else if is_shifted {
            row_major::<N, 4, SHIFTED_LOADS, true>(source, lane, terms.first)
        } else {
            row_major::<N, 4, LOADS, false>(source, lane, terms.first)
        };
        if let Some(k) = terms.rest(lane) {
            add_rest(source, &mut accumulators, k);
        }
        accumulators
    };
    // SAFETY: all lanes of the warp come here. Each element has one lane that stores it.
    unsafe {
        sums::<N, CHUNK>(&accumulators, 1, |row, col, sum| {
            tile.epilogue_element(first_row + row * distance, col, sum);
        });
    }
}

/// The shared memory for a column-major A, and so many columns: the sums of each warp.
struct SharedSums {
    sums: SharedArray<f32>,
    bytes: u32,
}

impl SharedSums {
    const fn new(columns: u32) -> Self {
        let mut layout = SharedLayout::new();
        let sums = layout.array(WARPS * BLOCK_ROWS * columns);
        Self { sums, bytes: layout.bytes() }
    }
}

/// The body for a column-major A.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`], with the shared memory of [`SharedSums`]; A and B are column-major.
#[inline(always)]
unsafe fn multiply_column_major<const N: usize, const CHUNK: usize, const LOADS: usize, const SHIFTED_LOADS: usize>(
    gemm: TiledGemm<'_>,
) {
    let shape = const { tile_on_cuda_cores(N as u32) };
    let Some(tile) = gemm.tile(shape, thread::block_idx_x()) else { return };
    // SAFETY: the shared memory that the kernel names.
    let shared = unsafe { const { SharedSums::new(N as u32) }.sums.slice() };
    let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
    let (group, lane_of_group) = (t / 8, lane % 8);
    let Tile { a, b, k_begin, k_end, .. } = tile;
    let is_shifted = !b.has_lines_of_vectors(b.col_stride());
    let has_vectors = tile.row + BLOCK_ROWS <= a.rows()
        && a.has_lines_of_vectors(a.col_stride())
        && !(is_shifted && SHIFTED_LOADS == 0);
    let terms = Terms::new(k_begin, k_end, 0, is_shifted);
    // SAFETY: the caller's promise; there are rows and columns, because there is a tile, and k below the end are k of the product.
    let accumulators = unsafe {
        if has_vectors {
            let source = Source { a, b, row: tile.row + lane_of_group * ROWS as u32, distance: 1, end: terms.last };
            let mut accumulators = if is_shifted {
                column_major::<N, 4, SHIFTED_LOADS, true>(source, group, terms.first)
            } else {
                column_major::<N, 4, LOADS, false>(source, group, terms.first)
            };
            if let Some(k) = terms.rest(group) {
                add_rest(source, &mut accumulators, k);
            }
            accumulators
        } else {
            let source = Source { a, b, row: tile.row + lane_of_group, distance: 8, end: k_end };
            column_major::<N, 1, LOADS_OF_ONE, false>(source, group, k_begin)
        }
    };
    // SAFETY: all threads of the block come here. Each warp writes elements of its own.
    unsafe {
        // The four groups of a warp have the same rows: lanes 8 apart.
        let of_warp = t / warp::LANES * BLOCK_ROWS;
        sums::<N, CHUNK>(&accumulators, 8, |row, col, sum| {
            let row = if has_vectors { lane_of_group * ROWS as u32 + row } else { lane_of_group + 8 * row };
            shared.write(((of_warp + row) * N as u32 + col) as usize, sum);
        });
        store_sums_of_warps(&tile, shape, &shared);
    }
}

/// The entry points: for so many columns at most, with so many loads of 16 bytes under way for each row of a lane, and so many where columns of
/// B are shifted (none if elements are loaded one by one there), with A row-major and column-major.
macro_rules! kernels {
    ($($columns:literal $loads:literal $shifted:literal $nt:ident $tt:ident $nt_doc:literal $tt_doc:literal;)*) => { $(
        #[doc = $nt_doc]
        #[kernel(block = 256, min_blocks = 1, requires(
            gemm.n() <= $columns,
            gemm.a().first().is_contiguous_along_rows(),
            gemm.b().first().is_contiguous_along_cols(),
            gemm.b().first().col_stride() <= MAX_PITCH_OF_B,
            gemm.blocks(tile_on_cuda_cores($columns)) <= MAX_BLOCKS
        ))]
        pub fn $nt(gemm: TiledGemm<'_>) {
            // SAFETY: all threads of a block of 256; the layouts are as the launch has checked.
            unsafe { multiply_row_major::<$columns, { chunk($columns) }, $loads, $shifted>(gemm) }
        }

        #[doc = $tt_doc]
        #[kernel(block = 256, min_blocks = 1, dynamic_shared = SharedSums::new($columns).bytes, requires(
            gemm.n() <= $columns,
            gemm.a().first().is_contiguous_along_cols(),
            gemm.b().first().is_contiguous_along_cols(),
            gemm.b().first().col_stride() <= MAX_PITCH_OF_B,
            gemm.blocks(tile_on_cuda_cores($columns)) <= MAX_BLOCKS
        ))]
        pub fn $tt(gemm: TiledGemm<'_>) {
            // SAFETY: all threads of a block of 256, with the shared memory that the kernel names; the layouts are as the launch has
            // checked.
            unsafe { multiply_column_major::<$columns, { chunk($columns) }, $loads, $shifted>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $nt<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_on_cuda_cores($columns))
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $tt<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_on_cuda_cores($columns))
            }
        }
    )* };
}

kernels! {
    2 4 4 gemm_narrow_2_nt_fp32 gemm_narrow_2_tt_fp32
        "`C = α·A·B + β·C` in fp32 for at most 2 columns, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 for at most 2 columns, with A and B column-major.";
    4 4 2 gemm_narrow_4_nt_fp32 gemm_narrow_4_tt_fp32
        "`C = α·A·B + β·C` in fp32 for at most 4 columns, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 for at most 4 columns, with A and B column-major.";
    8 4 2 gemm_narrow_8_nt_fp32 gemm_narrow_8_tt_fp32
        "`C = α·A·B + β·C` in fp32 for at most 8 columns, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 for at most 8 columns, with A and B column-major.";
    16 2 0 gemm_narrow_16_nt_fp32 gemm_narrow_16_tt_fp32
        "`C = α·A·B + β·C` in fp32 for at most 16 columns, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 for at most 16 columns, with A and B column-major.";
}
