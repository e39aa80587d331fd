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

mod panel;

use cuda_std::prelude::*;

use panel::{PADDING, PANEL_K, Panel, ROUND, panel_len, round_len};

use crate::epilogue::{Epilogue, takes_vectors_of};
use crate::major::Major;
use crate::matrix::{Matrix, MatrixMut};
use crate::shared_layout::{SharedArray, SharedLayout};

/// The size of the tile that a block computes.
///
/// ```
/// # use blocks::register_tiled::*;
/// // How many blocks a product of 1000×1000×1000 takes, in four slices of k.
/// let TileShape { m, n, k } = TILE_64X64;
/// let slice = 1000u32.div_ceil(4).next_multiple_of(k);
/// assert_eq!((1000u32.div_ceil(m), 1000u32.div_ceil(n), 1000u32.div_ceil(slice), slice), (16, 16, 4, 256));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Rows of C.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// The K-block: the k that is loaded at a time. Split-K slices begin at multiples of it.
    pub k: u32,
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
///
/// ```
/// # use blocks::register_tiled::*;
/// # use cuda_std::prelude::*;
/// #[kernel(block = 256, dynamic_shared = shared_bytes(TILE_128X256))]
/// fn multiply() {
///     // …
/// }
/// assert_eq!(multiply::DYNAMIC_SHARED_BYTES.div_ceil(1 << 10), 180);
/// // Compute capability 8.6 has 99 KiB for a block.
/// assert!(shared_bytes(TILE_128X128) <= 99 << 10);
/// ```
pub const fn shared_bytes(tile: TileShape) -> u32 {
    memory(tile).bytes
}

/// What a block computes: the tile of `c` whose first element is (`row`, `col`), over k from `k_begin` to `k_end`. Elements of the
/// tile outside of `c` are left out.
///
/// ```
/// # use blocks::{epilogue::Epilogue, major::{KMajor, MnMajor}, matrix::{Matrix, MatrixMut}, register_tiled::*};
/// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
/// /// The accumulators as they are.
/// struct AsTheyAre;
///
/// impl Epilogue for AsTheyAre {
///     unsafe fn value(&self, _row: u32, _col: u32, accumulator: f32) -> f32 {
///         accumulator
///     }
/// }
///
/// /// The part of a small product that comes from k = 16 to 32: what a block of split-K computes.
/// #[kernel(
///     block = 128,
///     dynamic_shared = shared_bytes(TILE_64X64),
///     requires(
///         a.rows() == c.rows() && c.rows() <= TILE_64X64.m,
///         b.cols() == c.cols() && c.cols() <= TILE_64X64.n,
///         a.cols() == b.rows() && a.cols() >= 32,
///         a.is_contiguous_along_rows() && b.is_contiguous_along_rows()
///     )
/// )]
/// fn second_slice(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
///     let tile = ProductTile { a, b, c, row: 0, col: 0, k_begin: TILE_64X64.k, k_end: 2 * TILE_64X64.k };
///     // SAFETY: all threads of the only block come here, with the memory of the tile; the launch has checked the rest.
///     unsafe { tile_64x64::<KMajor, MnMajor>(&tile, &AsTheyAre) }
/// }
///
/// let (a, b, mut c) = (Vec::from_iter((0..40).map(|k| k as f32)), [1.0; 40], [0.0]);
/// let (a, b) = (Matrix::new(GlobalSlice::new(&a), 1, 40, 40, 1)?, Matrix::new(GlobalSlice::new(&b), 40, 1, 1, 1)?);
/// let arguments = second_slice { a, b, c: MatrixMut::new(GlobalSliceMut::new(&mut c), 1, 1, 1, 1)? };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(1)) }?;
/// assert_eq!(c[0], (16..32).sum::<u32>() as f32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
/// ```
/// # use blocks::{epilogue::Epilogue, major::{KMajor, MnMajor}, matrix::{Matrix, MatrixMut}, register_tiled::*};
/// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
/// # struct AsTheyAre;
/// # impl Epilogue for AsTheyAre {
/// #     unsafe fn value(&self, _row: u32, _col: u32, accumulator: f32) -> f32 {
/// #         accumulator
/// #     }
/// # }
/// /// `C = A·Bᵀ` for row-major A and B of one tile.
/// #[kernel(
///     block = 256,
///     min_blocks = 1,
///     dynamic_shared = shared_bytes(TILE_128X256),
///     requires(
///         a.rows() == c.rows() && c.rows() <= TILE_128X256.m,
///         b.rows() == c.cols() && c.cols() <= TILE_128X256.n,
///         a.cols() == b.cols(),
///         a.is_contiguous_along_rows() && b.is_contiguous_along_rows()
///     )
/// )]
/// fn multiply(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
///     // The transpose of a row-major matrix is column-major: as B it is K-major.
///     let tile = ProductTile { a, b: b.transposed(), c, row: 0, col: 0, k_begin: 0, k_end: a.cols() };
///     // SAFETY: all threads of the only block come here, with the memory of the tile; the launch has checked the rest.
///     unsafe { tile_128x256::<KMajor, KMajor>(&tile, &AsTheyAre) }
/// }
///
/// // 100×200, of k = 3.
/// let (a, b) = (Vec::from_iter((0..300).map(|i| (i % 7) as f32)), Vec::from_iter((0..600).map(|i| (i % 5) as f32)));
/// let (mut c, (a_view, b_view)) = (vec![0.0; 100 * 200], (GlobalSlice::new(&a), GlobalSlice::new(&b)));
/// let arguments = multiply {
///     a: Matrix::new(a_view, 100, 3, 3, 1)?,
///     b: Matrix::new(b_view, 200, 3, 3, 1)?,
///     c: MatrixMut::new(GlobalSliceMut::new(&mut c), 100, 200, 200, 1)?,
/// };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(1)) }?;
/// let exact = |row: usize, col: usize| (0..3).map(|l| a[3 * row + l] * b[3 * col + l]).sum::<f32>();
/// assert!(c.iter().enumerate().all(|(i, c)| *c == exact(i / 200, i % 200)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
/// ```
/// # use blocks::{epilogue::Activation, major::{KMajor, MnMajor}, matrix::{Matrix, MatrixMut}, register_tiled::*};
/// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
/// /// `C = max(Aᵀ·B, 0)` for row-major A and B of one tile.
/// #[kernel(
///     block = 256,
///     min_blocks = 1,
///     dynamic_shared = shared_bytes(TILE_128X128),
///     requires(
///         a.cols() == c.rows() && c.rows() <= TILE_128X128.m,
///         b.cols() == c.cols() && c.cols() <= TILE_128X128.n,
///         a.rows() == b.rows(),
///         a.is_contiguous_along_rows() && b.is_contiguous_along_rows()
///     )
/// )]
/// fn multiply(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
///     let tile = ProductTile { a: a.transposed(), b, c, row: 0, col: 0, k_begin: 0, k_end: a.rows() };
///     // SAFETY: all threads of the only block come here, with the memory of the tile; the launch has checked the rest.
///     unsafe { tile_128x128::<MnMajor, MnMajor>(&tile, &Activation::Relu) }
/// }
///
/// // 100×60, of k = 3.
/// let (a, b) = (Vec::from_iter((0..300).map(|i| (i % 7) as f32 - 3.0)), Vec::from_iter((0..180).map(|i| (i % 5) as f32)));
/// let (mut c, (a_view, b_view)) = (vec![9.0; 100 * 60], (GlobalSlice::new(&a), GlobalSlice::new(&b)));
/// let arguments = multiply {
///     a: Matrix::new(a_view, 3, 100, 100, 1)?,
///     b: Matrix::new(b_view, 3, 60, 60, 1)?,
///     c: MatrixMut::new(GlobalSliceMut::new(&mut c), 100, 60, 60, 1)?,
/// };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(1)) }?;
/// let exact = |row: usize, col: usize| (0..3).map(|l| a[100 * l + row] * b[60 * l + col]).sum::<f32>().max(0.0);
/// assert!(c.iter().enumerate().all(|(i, c)| *c == exact(i / 60, i % 60)) && c.contains(&0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
/// ```
/// use blocks::epilogue::Epilogue;
/// use blocks::major::{KMajor, MnMajor};
/// use blocks::matrix::{Matrix, MatrixMut};
/// use blocks::register_tiled::{ProductTile, TILE_64X64, shared_bytes, tile_64x64};
/// use cuda_std::Grid as _;
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// Accumulators times a factor.
/// struct Times(f32);
///
/// impl Epilogue for Times {
///     unsafe fn value(&self, _row: u32, _col: u32, accumulator: f32) -> f32 {
///         self.0 * accumulator
///     }
/// }
///
/// /// `C = alpha·A·B` for row-major A and B, a block for each tile.
/// #[kernel(
///     block = 128,
///     min_blocks = 4,
///     dynamic_shared = shared_bytes(TILE_64X64),
///     grid = (c.cols().div_ceil(TILE_64X64.n).max(1), c.rows().div_ceil(TILE_64X64.m).max(1)),
///     requires(
///         a.rows() == c.rows(),
///         b.cols() == c.cols(),
///         a.cols() == b.rows(),
///         a.is_contiguous_along_rows(),
///         b.is_contiguous_along_rows()
///     )
/// )]
/// fn multiply(alpha: f32, a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
///     let (row, col) = (thread::block_idx_y() * TILE_64X64.m, thread::block_idx_x() * TILE_64X64.n);
///     let tile = ProductTile { a, b, c, row, col, k_begin: 0, k_end: a.cols() };
///     // SAFETY: all threads of the block come here, with the memory of the tile; the launch has checked the rest.
///     unsafe { tile_64x64::<KMajor, MnMajor>(&tile, &Times(alpha)) }
/// }
///
/// // 70×90, of k = 3: four tiles, three of which reach beyond C.
/// let (a, b) = (Vec::from_iter((0..210).map(|i| (i % 7) as f32)), Vec::from_iter((0..270).map(|i| (i % 5) as f32)));
/// let (mut c, (a_view, b_view)) = (vec![0.0; 70 * 90], (GlobalSlice::new(&a), GlobalSlice::new(&b)));
/// let arguments = multiply {
///     alpha: 0.5,
///     a: Matrix::new(a_view, 70, 3, 3, 1)?,
///     b: Matrix::new(b_view, 3, 90, 90, 1)?,
///     c: MatrixMut::new(GlobalSliceMut::new(&mut c), 70, 90, 90, 1)?,
/// };
/// let grid = arguments.grid();
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, grid) }?;
/// let exact = |row: usize, col: usize| 0.5 * (0..3).map(|l| a[3 * row + l] * b[90 * l + col]).sum::<f32>();
/// assert!(c.iter().enumerate().all(|(i, c)| *c == exact(i / 90, i % 90)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

    let mut panel_a = Panel::<A, LOADS_A>::new(tile.a.transposed(), tile.row, tile.k_begin, tile.k_end, t, threads);
    let mut panel_b = Panel::<B, LOADS_B>::new(tile.b, tile.col, tile.k_begin, tile.k_end, t, threads);
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
