//! The body of matrix products on CUDA cores with tiles in registers: a thread keeps 8×16 accumulators (or fewer), so that what it
//! loads from shared memory once, it multiplies many times.
//!
//! ```text
//!                                   columns of the tile
//!                              ┌──────────────┐
//!                  k = 16 →    │  panel of B  │         for each K-block of 16:
//!                              └──────────────┘         1. every thread loads its part of the next panels into registers
//!                16            ┌──────┬──────┬┄         2. 16 times: 8 elements of a column of the panel of A and 16 of a
//!              ┌─────┐         │ warp │ warp │             row of that of B go to registers, and all 128 products are
//!              │panel│         │ 0    │ 1    │             added to the thread's 8×16 accumulators: an outer product
//!     rows of  │ of  │         ├──────┼──────┼┄         3. the next panels go to the other buffer in shared memory;
//!     the tile │  A  │         │ 4    │ 5    │             one barrier
//!              └─────┘         └──────┴──────┴┄
//!
//!  A warp has 8 lanes down and 4 across. Each lane has two chunks of 4 rows, 32 rows apart, and four chunks of 4 columns, 16
//!  columns apart, so that what the lanes of a warp load at a time lies side by side.
//! ```
//!
//! The body is generic over the operands' order in memory and over the [`Epilogue`]. It knows neither the grid nor the launch: a
//! kernel says which tile its block has, in a [`ProductTile`], and calls the function of a tile's size:
//!
//! | function | tile | threads | shared memory | for |
//! |---|---|---|---|---|
//! | [`tile_128x256`] | [`TILE_128X256`] | 256 of at most 255 registers | 180 KiB, one block on a multiprocessor | compute capability 9.0 to 11.0, which have so much for a block |
//! | [`tile_128x128`] | [`TILE_128X128`] | 256 of at most 255 registers | 98 KiB | every device |
//! | [`tile_64x64`] | [`TILE_64X64`] | 128 of at most 128 registers | 34 KiB, four blocks on a multiprocessor of an H200 | small products |
//!
//! 24 numbers are loaded from shared memory for 128 products, four at a time: 12 of 273 instructions of the inner loop are loads, 256
//! are multiplications.
//!
//! **Panels lie k by k in shared memory**, as the products need them. An operand whose neighbours in memory are neighbours
//! in a row of the panel too (B row-major, A column-major) is copied four elements at a time. The other kind, where
//! neighbours in memory differ in k, is turned on the way: a thread loads four k each of two or four neighbours,
//! and writes these neighbours together, four rows one below the other. A warp writes to rows four apart at a time, so there
//! is a gap after every two rows that shifts these to other banks of shared memory. Every element is loaded once by a block, so
//! loads leave the L1 cache alone.
//!
//! **Banks of registers.** An addition of a product reads three registers. They come from two banks, those with even and those
//! with odd numbers, each of which gives one in a cycle, so that one of the three has to be the same as in the instruction
//! before, and the other two in different banks. The products of a row of A with all of B, back and forth, see to the first: the
//! element of A stays. The second takes accumulators in odd registers where the element of B is in an even one. The assembler numbers
//! accumulators as the vectors need it that they are stored in, in the end: four neighbours begin at a multiple of four, as those of B
//! do, and every addition would wait for a cycle. So the tile of accumulators in shared memory has neighbours exchanged. It took a
//! loop over two k only, whose addresses are two pointers, for the assembler to leave the order as it is: of the 256
//! additions of that loop, 2 wait.
//!
//! **Which lane has which rows**: bits 0 and 2 of its number say which columns, bits 1, 3 and 4 which rows. (Half a per cent
//! faster than lanes numbered row by row.)
//!
//! **Partial accumulators.** The error of a sum grows with what is added up in one place. After every 1024 of k the accumulators are added
//! to others in shared memory and begin again from zero, which costs some 350 instructions in 140,000.
//!
//! **Alignment.** A panel inside its matrix is loaded 16 bytes at a time if the operand's base and strides allow it, else
//! element by element; one at the edge element by element, with zeros outside. Which, is the same for the whole block.
//!
//! Source: V. Volkov, J. Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008), for accumulators in registers; the
//! two-buffered pipeline is that of NVIDIA's CUTLASS ("efficient GEMM").

use core::marker::PhantomData;

use cuda_std::prelude::*;

use crate::epilogue::{Epilogue, takes_vectors_of};
use crate::major::Major;
use crate::matrix::{Matrix, MatrixMut};
use crate::shared_layout::{SharedArray, SharedLayout};

/// The size of the tile that a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Rows of C.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// The K-block: the k that is loaded at a time. Split-K slices begin at multiples of it.
    pub k: u32,
}

/// The k of a panel.
const PANEL_K: usize = 16;

/// The k that a round of the inner loop multiplies: two, so that what is loaded for one goes to other registers than what is
/// loaded for the next, and no more, so that the assembler does not find another order for them.
const ROUND: usize = 2;

/// The elements by which a row of a panel, and of the tile of accumulators, is longer than it has to be.
const PADDING: usize = 4;

/// The elements between the rows of one round and those of the next: so many that what four threads write at a time, which
/// have the same columns of rows four apart, lies in different banks of shared memory.
const GAP: usize = 4;

/// The elements of the rows of a round in a panel of so many columns.
const fn round_len(width: usize) -> usize {
    ROUND * (width + PADDING) + GAP
}

/// The elements of a panel of so many columns.
const fn panel_len(width: usize) -> usize {
    PANEL_K / ROUND * round_len(width)
}

/// After so many panels the accumulators in registers are added to those in shared memory.
const PANELS_PER_PROMOTION: u32 = 1024 / PANEL_K as u32;

/// The lanes of a warp that are below each other, and those that are beside each other.
const LANES_DOWN: usize = 8;
const LANES_ACROSS: usize = 4;

/// The tile of [`tile_128x256`].
pub const TILE_128X256: TileShape = TileShape { m: 128, n: 256, k: PANEL_K as u32 };

/// The tile of [`tile_128x128`].
pub const TILE_128X128: TileShape = TileShape { m: 128, n: 128, k: PANEL_K as u32 };

/// The tile of [`tile_64x64`].
pub const TILE_64X64: TileShape = TileShape { m: 64, n: 64, k: PANEL_K as u32 };

/// The elements from one row of the tile of accumulators to the next, for so many columns. With the padding, a block of 128×128 would
/// need 512 bytes more than compute capability 8.6 has; without, its accumulators meet others in the same banks, once in 1024 of k.
const fn accumulator_pitch(cols: usize) -> usize {
    if cols == TILE_128X128.n as usize { cols } else { cols + PADDING }
}

/// The dynamic shared memory of a block.
struct Memory {
    /// Two buffers of two panels.
    panels: SharedArray<f32>,
    /// The tile of accumulators.
    accumulators: SharedArray<f32>,
    bytes: u32,
}

/// The dynamic shared memory of a block with such a tile.
const fn memory(tile: TileShape) -> Memory {
    let mut layout = SharedLayout::new();
    Memory {
        panels: layout.aligned(2 * (panel_len(tile.m as usize) + panel_len(tile.n as usize)) as u32, 16),
        accumulators: layout.aligned(tile.m * accumulator_pitch(tile.n as usize) as u32, 16),
        bytes: layout.bytes(),
    }
}

/// The dynamic shared memory that a block with such a tile needs, in bytes.
pub const fn shared_bytes(tile: TileShape) -> u32 {
    memory(tile).bytes
}

/// What a block computes: the tile of `c` whose first element is (`row`, `col`), over k from `k_begin` to `k_end`. Elements of the
/// tile outside of `c` are left out.
#[derive(Clone, Copy)]
pub struct ProductTile<'a> {
    /// The operand A, with as many rows as C.
    pub a: Matrix<'a>,
    /// The operand B, with as many columns as C.
    pub b: Matrix<'a>,
    /// The result.
    pub c: MatrixMut<'a>,
    /// The first row of the tile: a multiple of its rows.
    pub row: u32,
    /// The first column of the tile: a multiple of its columns.
    pub col: u32,
    /// The first k: a multiple of the K-block.
    pub k_begin: u32,
    /// The k behind the last: at most the number of columns of A and of rows of B.
    pub k_end: u32,
}

/// Computes a tile of 128×256 by a block of 256 threads.
///
/// # Safety
/// Called by all threads of a one-dimensional block of 256, launched with [`shared_bytes`] of [`TILE_128X256`], which nothing else uses.
/// The tile is as [`ProductTile`] says, the same for all threads, and no other block has elements of it. The strides that `A` and `B`
/// say to be 1 are. The epilogue is one for results of C's shape.
#[inline(always)]
pub unsafe fn tile_128x256<A: Major, B: Major>(tile: &ProductTile<'_>, epilogue: &impl Epilogue) {
    // SAFETY: the caller's promise: 2×4 warps.
    unsafe { compute::<A, B, 8, 16, 2, 4, 2, 4>(tile, epilogue) }
}

/// Computes a tile of 128×128 by a block of 256 threads.
///
/// # Safety
/// Called by all threads of a one-dimensional block of 256, launched with [`shared_bytes`] of [`TILE_128X128`], which nothing else uses.
/// The tile is as [`ProductTile`] says, the same for all threads, and no other block has elements of it. The strides that `A` and `B`
/// say to be 1 are. The epilogue is one for results of C's shape.
#[inline(always)]
pub unsafe fn tile_128x128<A: Major, B: Major>(tile: &ProductTile<'_>, epilogue: &impl Epilogue) {
    // SAFETY: the caller's promise: 2×4 warps.
    unsafe { compute::<A, B, 8, 8, 2, 4, 2, 2>(tile, epilogue) }
}

/// Computes a tile of 64×64 by a block of 128 threads.
///
/// # Safety
/// Called by all threads of a one-dimensional block of 128, launched with [`shared_bytes`] of [`TILE_64X64`], which nothing else uses.
/// The tile is as [`ProductTile`] says, the same for all threads, and no other block has elements of it. The strides that `A` and `B`
/// say to be 1 are. The epilogue is one for results of C's shape.
#[inline(always)]
pub unsafe fn tile_64x64<A: Major, B: Major>(tile: &ProductTile<'_>, epilogue: &impl Epilogue) {
    // SAFETY: the caller's promise: 2×2 warps.
    unsafe { compute::<A, B, 4, 8, 2, 2, 2, 2>(tile, epilogue) }
}

/// The body of all sizes: `WARPS_M`×`WARPS_N` warps, each thread of which has `ROWS`×`COLS` accumulators, and loads `LOADS_A` and
/// `LOADS_B` times four elements of each panel.
///
/// # Safety
/// As for [`tile_64x64`], by all threads of a block of so many warps, with the [`memory`] of the tile that they make.
#[inline(always)]
unsafe fn compute<
    A: Major,
    B: Major,
    const ROWS: usize,
    const COLS: usize,
    const WARPS_M: usize,
    const WARPS_N: usize,
    const LOADS_A: usize,
    const LOADS_B: usize,
>(
    tile: &ProductTile<'_>,
    epilogue: &impl Epilogue,
) {
    let (m, n) = const { (WARPS_M * LANES_DOWN * ROWS, WARPS_N * LANES_ACROSS * COLS) };
    let threads = const { WARPS_M * WARPS_N * 32 };
    const {
        assert!(
            LOADS_A * WARPS_N == ROWS && LOADS_B * WARPS_M * 2 == COLS,
            "the threads load each element of a panel once"
        );
    }
    let (pitch_a, pitch_b) = (m + PADDING, n + PADDING);
    let (panel_a_len, buffer_len) = (panel_len(m), panel_len(m) + panel_len(n));
    let memory = memory(TileShape { m: m as u32, n: n as u32, k: PANEL_K as u32 });
    // SAFETY: the caller's promise.
    let (panels, accumulator_tile) = unsafe { (memory.panels.slice(), memory.accumulators.slice()) };

    let t = thread::thread_idx_x() as usize;
    let (lane, warp) = (t % 32, t / 32);
    let (lane_down, lane_across) = (lane >> 1 & 1 | lane >> 2 & 6, lane & 1 | lane >> 1 & 2);
    let first_row = warp / WARPS_N * (LANES_DOWN * ROWS) + lane_down * 4;
    let first_col = warp % WARPS_N * (LANES_ACROSS * COLS) + lane_across * 4;
    let place = AccumulatorPlace { first: first_row * accumulator_pitch(n) + first_col, pitch: accumulator_pitch(n) };

    let mut panel_a = Panel::<A, LOADS_A>::new(tile.a.transposed(), tile.row, tile, t, threads);
    let mut panel_b = Panel::<B, LOADS_B>::new(tile.b, tile.col, tile, t, threads);
    let mut accumulators = [[0.0; COLS]; ROWS];
    let mut panels_left = (tile.k_end - tile.k_begin).div_ceil(PANEL_K as u32);
    let mut panels_to_promotion = PANELS_PER_PROMOTION;
    let mut has_promoted = false;

    // SAFETY: rows and columns are below the extents of the panels and of the tile, and every thread writes elements of its
    // own. There are two buffers: what is written to one, the barrier before the next iteration separates from the reads
    // that follow, and the one before that separated it from the earlier reads. The number of iterations is the same for all
    // threads of the block, so all of them reach every barrier.
    unsafe {
        if panels_left > 0 {
            let mut buffer = 0;
            panel_a.store(panel_a.load(), panels, 0);
            panel_b.store(panel_b.load(), panels, panel_a_len);
            thread::sync_threads();
            let first = Rows { a: panels.skip(first_row), b: panels.skip(panel_a_len + first_col) };
            let mut rows = first;
            let (mut a, mut b) = rows.fragments::<ROWS, COLS>(0, 0);
            loop {
                panel_a.advance();
                panel_b.advance();
                let (loaded_a, loaded_b) = (panel_a.load(), panel_b.load()); // beyond the last one: zeros
                let mut rounds_left = (PANEL_K / ROUND - 1) as u32;
                while rounds_left > 0 {
                    let (next_a, next_b) = rows.fragments(pitch_a, pitch_b);
                    multiply(&mut accumulators, a, b);
                    (a, b) = rows.fragments(round_len(m), round_len(n));
                    multiply(&mut accumulators, next_a, next_b);
                    rows = rows.skip(round_len(m), round_len(n));
                    rounds_left = hint::keep_rolled(rounds_left - 1);
                }
                let (next_a, next_b) = rows.fragments(pitch_a, pitch_b);
                buffer = buffer_len - buffer;
                panel_a.store(loaded_a, panels, buffer);
                panel_b.store(loaded_b, panels, buffer + panel_a_len);
                thread::sync_threads();
                multiply(&mut accumulators, a, b);
                rows = first.skip(buffer, buffer);
                (a, b) = rows.fragments(0, 0);
                multiply(&mut accumulators, next_a, next_b);
                panels_left -= 1;
                if panels_left == 0 {
                    break;
                }
                panels_to_promotion -= 1;
                if panels_to_promotion == 0 {
                    place.add(accumulator_tile, &accumulators, has_promoted);
                    accumulators = [[0.0; COLS]; ROWS];
                    has_promoted = true;
                    panels_to_promotion = PANELS_PER_PROMOTION;
                }
            }
        }
        place.add(accumulator_tile, &accumulators, has_promoted);
        thread::sync_threads();
    }
    // With 128 accumulators there are no registers for a choice.
    let by_fours = COLS > 8 || takes_vectors_of(&tile.c, 4);
    store_tile(tile, accumulator_tile, n, m * n / 4, threads, by_fours, epilogue);
}

/// A panel of an operand: [`PANEL_K`] rows, each with the tile's rows of A or columns of B, and what of it a thread loads:
/// `LOADS` times four elements that are neighbours in memory. If the operand is K-major, these lie below each other in the panel,
/// else side by side.
struct Panel<'a, O: Major, const LOADS: usize> {
    /// Its rows are k.
    matrix: Matrix<'a>,
    /// The first row of the panel in the matrix, and the row where the block's k ends.
    row: u32,
    row_end: u32,
    /// The first column of the panel in the matrix.
    col: u32,
    /// The offset of this thread's first element.
    offset: u64,
    /// Whether all columns of the panel are inside the matrix.
    is_inside: bool,
    /// Whether four neighbours are one aligned vector.
    has_vectors: bool,
    thread: usize,
    threads: usize,
    order: PhantomData<O>,
}

impl<'a, O: Major, const LOADS: usize> Panel<'a, O, LOADS> {
    /// The first panel of a tile.
    #[inline(always)]
    fn new(matrix: Matrix<'a>, col: u32, tile: &ProductTile<'_>, thread: usize, threads: usize) -> Self {
        let multiple_of_4 = |value: u64| value & 3 == 0;
        let (other_stride, width) =
            (if O::K { matrix.col_stride() } else { matrix.row_stride() }, (LOADS * 4 * threads / PANEL_K) as u32);
        let mut panel = Self {
            matrix,
            row: tile.k_begin,
            row_end: tile.k_end,
            col,
            offset: 0,
            is_inside: matrix.cols() >= width && col <= matrix.cols() - width,
            has_vectors: multiple_of_4(other_stride)
                && multiple_of_4(matrix.data().as_ptr() as u64 / size_of::<f32>() as u64),
            thread,
            threads,
            order: PhantomData,
        };
        let (row, col) = panel.position(0);
        panel.offset = panel.place(panel.row + row as u32, panel.col + col as u32);
        panel
    }

    /// The offset of an element in memory, one of whose strides is known to be 1.
    #[inline(always)]
    fn place(&self, row: u32, col: u32) -> u64 {
        let (row, col) = (u64::from(row), u64::from(col));
        if O::K { row + col * self.matrix.col_stride() } else { row * self.matrix.row_stride() + col }
    }

    /// Where in the panel the first of the four elements of load `load` is.
    #[inline(always)]
    fn position(&self, load: usize) -> (usize, usize) {
        let width = LOADS * 4 * self.threads / PANEL_K;
        let i = self.thread + load * self.threads;
        if O::K {
            (self.thread % 4 * 4, self.thread / 4 * LOADS + load) // four threads for a column
        } else {
            (i / (width / 4), i % (width / 4) * 4)
        }
    }

    /// The distance in memory from the first element of load 0 to that of load `load`: the same for all threads.
    #[inline(always)]
    fn distance(&self, load: usize) -> u64 {
        let width = LOADS * 4 * self.threads / PANEL_K;
        let i = load * self.threads;
        if O::K { load as u64 * self.matrix.col_stride() } else { (i / (width / 4)) as u64 * self.matrix.row_stride() }
    }

    /// Goes to the panel with the following k.
    #[inline(always)]
    fn advance(&mut self) {
        self.row += PANEL_K as u32;
        self.offset += PANEL_K as u64 * if O::K { 1 } else { self.matrix.row_stride() };
    }

    /// Loads this thread's part, with zeros outside the matrix and beyond the block's k.
    ///
    /// # Safety
    /// The stride along which `O` says that elements are neighbours is 1.
    #[inline(always)]
    unsafe fn load(&self) -> [[f32; 4]; LOADS] {
        let data = self.matrix.data();
        let at = |load: usize| (self.offset + self.distance(load)) as usize;
        if self.is_inside && self.row + PANEL_K as u32 <= self.row_end {
            if self.has_vectors {
                // SAFETY: the whole panel is inside the matrix; and aligned: the base is, its stride is a multiple of four
                // elements, and so are the panel's first row, its first column and the position in it.
                return core::array::from_fn(|load| unsafe { data.get4_streaming_unchecked(at(load)) });
            }
            return core::array::from_fn(|load| {
                // SAFETY: the whole panel is inside the matrix.
                core::array::from_fn(|j| unsafe { data.get_unchecked(at(load) + j) })
            });
        }
        core::array::from_fn(|load| {
            let (row, col) = self.position(load);
            let (row, col) = (self.row + row as u32, self.col + col as u32);
            core::array::from_fn(|j| {
                let (row, col) = if O::K { (row + j as u32, col) } else { (row, col + j as u32) };
                if row < self.row_end && col < self.matrix.cols() {
                    // SAFETY: inside the matrix: the block's k ends with its rows or before.
                    unsafe { data.get_unchecked(at(load) + j) }
                } else {
                    0.0
                }
            })
        })
    }

    /// Writes what [`Panel::load`] loaded to the panel that begins at element `first` of `panels`.
    ///
    /// # Safety
    /// The panel lies within `panels`, at a multiple of four elements, and barriers separate this from reads.
    #[inline(always)]
    #[track_caller]
    unsafe fn store(&self, values: [[f32; 4]; LOADS], panels: SharedSlice<f32>, first: usize) {
        let pitch = LOADS * 4 * self.threads / PANEL_K + PADDING;
        let place = |(row, col): (usize, usize)| first + place_of_row(row, pitch) + col;
        // SAFETY: inside the panel, and this thread's own. Aligned: the pitch is a multiple of four, and so is the column, or
        // of two where two elements are written.
        unsafe {
            if O::K {
                let (row, col) = self.position(0);
                for j in 0..4 {
                    let place = place((row + j, col));
                    match LOADS {
                        2 => panels.write2(place, [values[0][j], values[1][j]]),
                        _ => panels.write4(place, core::array::from_fn(|load| values[load][j])),
                    }
                }
            } else {
                for (load, four) in values.into_iter().enumerate() {
                    panels.write4(place(self.position(load)), four);
                }
            }
        }
    }
}

/// The rows of both panels that come next, from this thread's first element on.
#[derive(Clone, Copy)]
struct Rows {
    a: SharedSlice<f32>,
    b: SharedSlice<f32>,
}

impl Rows {
    /// The rows so many elements further on.
    #[inline(always)]
    fn skip(self, a: usize, b: usize) -> Self {
        Self { a: self.a.skip(a), b: self.b.skip(b) }
    }

    /// What this thread multiplies of the rows that are so many elements further on.
    ///
    /// # Safety
    /// As for [`fragment`].
    #[inline(always)]
    #[track_caller]
    unsafe fn fragments<const ROWS: usize, const COLS: usize>(&self, a: usize, b: usize) -> ([f32; ROWS], [f32; COLS]) {
        // SAFETY: the caller's promise.
        unsafe { (fragment::<ROWS, LANES_DOWN>(self.a.skip(a)), fragment::<COLS, LANES_ACROSS>(self.b.skip(b))) }
    }
}

/// Where a row of a panel begins.
#[inline(always)]
fn place_of_row(row: usize, pitch: usize) -> usize {
    row * pitch + row / ROUND * GAP
}

/// `N` elements of a row of a panel, in chunks of four, one chunk for each of `LANES` lanes between one and the next of the
/// same lane.
///
/// # Safety
/// They are in `row`, which begins at a multiple of four elements, and a barrier separates this from the writes.
#[inline(always)]
#[track_caller]
unsafe fn fragment<const N: usize, const LANES: usize>(row: SharedSlice<f32>) -> [f32; N] {
    let mut fragment = [0.0; N];
    for chunk in 0..N / 4 {
        // SAFETY: the caller's promise.
        let four = unsafe { row.read4(chunk * LANES * 4) };
        for (i, element) in four.into_iter().enumerate() {
            fragment[chunk * 4 + i] = element;
        }
    }
    fragment
}

/// Adds all products of a column and a row to the accumulators.
#[inline(always)]
fn multiply<const ROWS: usize, const COLS: usize>(
    accumulators: &mut [[f32; COLS]; ROWS],
    a: [f32; ROWS],
    b: [f32; COLS],
) {
    for row in 0..ROWS {
        for step in 0..COLS {
            // Back and forth, so that from one product to the next one operand stays the same.
            let col = if row % 2 == 0 { step } else { COLS - 1 - step };
            accumulators[row][col] = math::fma(a[row], b[col], accumulators[row][col]);
        }
    }
}

/// Where a thread's accumulators are in the tile of accumulators.
struct AccumulatorPlace {
    first: usize,
    pitch: usize,
}

impl AccumulatorPlace {
    /// Adds the accumulators to those in the tile, or sets them if there are none yet.
    ///
    /// # Safety
    /// The thread's rows and columns are within the tile, and no other thread has them.
    #[inline(always)]
    #[track_caller]
    unsafe fn add<const ROWS: usize, const COLS: usize>(
        &self,
        tile: SharedSlice<f32>,
        accumulators: &[[f32; COLS]; ROWS],
        to_others: bool,
    ) {
        for (row, accumulators) in accumulators.iter().enumerate() {
            for chunk in 0..COLS / 4 {
                let below = row / 4 * LANES_DOWN * 4 + row % 4;
                let place = self.first + below * self.pitch + chunk * LANES_ACROSS * 4;
                // Neighbours exchanged, which decides on their registers: see the module's documentation.
                let mut four: [f32; 4] = core::array::from_fn(|i| accumulators[chunk * 4 + (i ^ 1)]);
                // SAFETY: inside the tile and this thread's own; aligned, because the pitch and the first column are
                // multiples of four.
                unsafe {
                    if to_others {
                        let others = tile.read4(place);
                        four = core::array::from_fn(|i| others[i] + four[i]);
                    }
                    tile.write4(place, four);
                }
            }
        }
    }
}

/// The epilogue of the tile of C: every thread takes four neighbours at a time, or one, and the next thread those beside them, so that a
/// warp stores whole lines of memory.
#[inline(always)]
fn store_tile(
    tile: &ProductTile<'_>,
    accumulators: SharedSlice<f32>,
    width: usize,
    fours: usize,
    threads: usize,
    by_fours: bool,
    epilogue: &impl Epilogue,
) {
    let mut i = thread::thread_idx_x() as usize;
    if !by_fours {
        while i < 4 * fours {
            let (row, col) = (i / width, i % width);
            let place = row * accumulator_pitch(width) + (col ^ 1);
            let (row, col) = (tile.row + row as u32, tile.col + col as u32);
            if row < tile.c.rows() && col < tile.c.cols() {
                // SAFETY: as below, and inside C, as just compared.
                unsafe { tile.c.set(row, col, epilogue.value(row, col, accumulators.read(place))) };
            }
            i += threads;
        }
        return;
    }
    while i < fours {
        let (row, col) = (i / (width / 4), i % (width / 4) * 4);
        // SAFETY: inside the tile of accumulators, aligned, and written before the last barrier. No other thread of the grid has
        // this part of C.
        unsafe {
            let [second, first, fourth, third] = accumulators.read4(row * accumulator_pitch(width) + col);
            let four = [first, second, third, fourth];
            epilogue.store(&tile.c, tile.row + row as u32, tile.col + col as u32, four);
        }
        i += threads;
    }
}
