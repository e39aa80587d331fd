//! The second pass of split-K: adds up the partial results that the blocks of a product have made, always in the same order.
//!
//! ```text
//!  partials of product i     P[i · splits]   P[i · splits + 1]   …   P[i · splits + splits - 1]       each m×n
//!                                 │                │                        │
//!  C of product i   =  β·C + α · ( +  ──────────►  +  ──────────►  …  ───►  + )  ──► the epilogue's steps
//! ```
//!
//! Each thread has four neighbours of C, or one where the layouts do not allow that, and loads eight partials of them before
//! it adds the first, so that there are enough loads under way. Of many partials, which are another kernel's, each of four threads adds up a
//! quarter, or each of 32 or 128 threads its share, and what they have is added by shuffles in a warp and then over the warps: a single
//! result waits for few loads and additions one after the other. It does not depend on how blocks were scheduled: the same bits on every run.
//!
//! What it costs: every partial is read once, C is written once and, unless β is zero, read once. At most 2 KB of shared memory; any
//! device.

use blocks::epilogue::{Neighbours, Steps};
use blocks::reduce::sum_of_lanes;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::alpha_beta::AlphaBeta;
use crate::geometry::divide;
use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

/// The neighbours in a line of C that a thread has.
const WIDTH: usize = 4;

/// The vectors of partials that a thread loads before it adds the first of them, and of single elements.
const VECTORS_AT_A_TIME: usize = 8;
const ELEMENTS_AT_A_TIME: usize = 2;

/// The threads of a block, and its warps.
const THREADS: usize = gemm_split_reduction_many_fp32::BLOCK.x as usize;
const WARPS: usize = THREADS / warp::LANES as usize;

/// So many splits are many: threads share the partials of a piece of work.
pub const MANY_SPLITS: u32 = 16;

/// The logarithm of the threads that share the partials of a piece of work, where there are many.
const fn log_of_sharers(splits: u64) -> u32 {
    match splits {
        ..64 => 2,
        64..256 => 5,
        256.. => THREADS.ilog2(),
    }
}

/// Sums of partial results: `C = α·Σ P[s] + β·C` for each of a batch, where those of product `i` are partials `i · splits` to
/// `(i + 1) · splits - 1`, as [`TiledGemm::split_k`](super::tiles::TiledGemm::split_k) has them written.
///
/// Invariant, which the constructors establish and kernels rely on: every P and every C is m×n, and there are `splits` times
/// as many of P as of C; or α is zero, and there are no partials. The steps fit the results.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct SplitReduction<'a> {
    partials: MatrixBatch<'a>,
    c: MatrixBatchMut<'a>,
    alpha_beta: AlphaBeta,
    splits: u64,
    steps: Steps<'a>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> SplitReduction<'a> {
    /// `C = α·Σ P[s] + β·C` over `splits` partials for each result.
    ///
    /// If α is zero, no partial is read; if β is zero, C is not. (A product with k = 0 needs no split-K: computed in one
    /// pass, it ignores even an infinite α, which here multiplies the partial sums, zeros.)
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless all partials and results have the same shape, and there are `splits` times as many
    /// partials as results; [`ShapeError::TooLarge`] if that many cannot be counted.
    pub fn new(
        alpha: f32,
        partials: impl Into<MatrixBatch<'a>>,
        splits: u32,
        beta: f32,
        c: impl Into<MatrixBatchMut<'a>>,
    ) -> Result<Self, ShapeError> {
        let (partials, c) = (partials.into(), c.into());
        let mismatch = ShapeError::unless_equal;
        let (first_partial, first_c) = (partials.first(), c.first());
        mismatch(("the number of rows of the partials", first_partial.rows()), ("that of C", first_c.rows()))?;
        mismatch(("the number of columns of the partials", first_partial.cols()), ("that of C", first_c.cols()))?;
        let expected = u64::from(c.count()) * u64::from(splits);
        let expected = ShapeError::dimension("the number of results and splits", expected as usize)?;
        mismatch(("the number of partials", partials.count()), ("the number of results and splits", expected))?;
        Ok(Self { partials, c, alpha_beta: AlphaBeta { alpha, beta }, splits: u64::from(splits), steps: Steps::none() })
    }

    /// The same, and then these steps of what results.
    ///
    /// # Errors
    /// As for [`Steps::fit`].
    pub fn with_steps(self, steps: Steps<'a>) -> Result<Self, ShapeError> {
        let first = self.c.first();
        steps.fit(self.c.count(), first.rows(), first.cols())?;
        Ok(Self { steps, ..self })
    }

    /// `C = β·C`, which is zero if β is, whatever C held: what has to come before a kernel that only adds to its result. With steps and a β
    /// of 1, what comes after a kernel that knows no epilogue.
    ///
    /// # Errors
    /// None that is known: the results have been checked already.
    pub fn scaling(beta: f32, c: impl Into<MatrixBatchMut<'a>>) -> Result<Self, ShapeError> {
        let nothing = Matrix::new(GlobalSlice::new(&[]), 0, 0, 0, 1)?;
        let partials = MatrixBatch::new(nothing, 0, 0)?;
        Ok(Self { partials, c: c.into(), alpha_beta: AlphaBeta { alpha: 0.0, beta }, splits: 0, steps: Steps::none() })
    }
}

impl<'a> SplitReduction<'a> {
    /// The shape of a result, and its lines: those of its rows and columns whose elements are neighbours in memory.
    #[inline(always)]
    fn lines(&self) -> Lines {
        let c = self.c.first();
        let are_columns = !(c.is_contiguous_along_rows() && c.cols() > 1) && c.row_stride() == 1;
        let (number, length) = if are_columns { (c.cols(), c.rows()) } else { (c.rows(), c.cols()) };
        Lines { are_columns, number, length, pieces: length.div_ceil(WIDTH as u32) }
    }

    /// The number of pieces of work: for each line of each result, one for every [`WIDTH`] elements.
    #[inline(always)]
    fn pieces(&self) -> u64 {
        let lines = self.lines();
        u64::from(self.c.count()) * u64::from(lines.number) * u64::from(lines.pieces)
    }

    /// The partials of each result; none where results are scaled alone.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn splits(&self) -> u32 {
        self.splits as u32
    }

    /// How many threads share the partials of a piece.
    #[cfg(not(target_arch = "nvptx64"))]
    fn sharers(&self) -> u32 {
        1 << log_of_sharers(self.splits)
    }

    /// The place of a piece: its result, and the row and column of its first element, in lines; and its number of elements.
    #[inline(always)]
    fn place(&self, lines: &Lines, piece: u64) -> (u64, u32, u32, usize) {
        // (A division takes some 300 clocks.)
        let (line, place) = if lines.pieces == 1 { (piece, 0) } else { divide(piece, u64::from(lines.pieces)) };
        let (result, row) = if self.c.count() == 1 { (0, line) } else { divide(line, u64::from(lines.number)) };
        let col = place as u32 * WIDTH as u32;
        (result, row as u32, col, (lines.length - col).min(WIDTH as u32) as usize)
    }

    /// Adds up a part of the partials of [`WIDTH`] neighbours of a result, or of those of them that are inside: part `part` of `1 <<
    /// log_of_parts`.
    ///
    /// # Safety
    /// `piece < self.pieces()`, and there is such a part.
    #[inline(always)]
    unsafe fn sum(&self, piece: u64, part: u32, log_of_parts: u32) -> [f32; WIDTH] {
        if self.alpha_beta.effective_k(1) == 0 {
            return [0.0; WIDTH];
        }
        let lines = self.lines();
        let (result, row, col, count) = self.place(&lines, piece);
        let partial = lines.of_input(self.partials.first());
        let begin = |part: u32| (self.splits * u64::from(part)) >> log_of_parts;
        let (first, splits) = (result * self.splits + begin(part), begin(part + 1) - begin(part));
        let base = partial.offset(row, col) as u64;
        let of = |split: u64| base + (first + split) * self.partials.stride();
        let is_aligned =
            self.partials.stride().is_multiple_of(4) && (lines.number == 1 || partial.row_stride().is_multiple_of(4));
        // SAFETY: the line and `count` elements of it from `col` on are inside each partial, and the partials are all there;
        // aligned as just found.
        unsafe {
            if is_aligned && count == WIDTH && has_vectors(partial.col_stride(), partial.data().as_ptr()) {
                let load = |split| partial.data().get4_unchecked(of(split) as usize);
                return add_in_order::<VECTORS_AT_A_TIME>(splits, load);
            }
            add_in_order::<ELEMENTS_AT_A_TIME>(splits, |split| {
                let load =
                    |i: usize| partial.data().get_unchecked((of(split) + i as u64 * partial.col_stride()) as usize);
                core::array::from_fn(|i| if i < count { load(i) } else { 0.0 })
            })
        }
    }

    /// The epilogue of [`WIDTH`] neighbours of a result, or what of them is inside.
    ///
    /// # Safety
    /// `piece < self.pieces()`, and no other thread has the same piece.
    #[inline(always)]
    unsafe fn epilogue(&self, piece: u64, sums: [f32; WIDTH]) {
        let lines = self.lines();
        let (result, row, col, count) = self.place(&lines, piece);
        // SAFETY: there are as many results.
        let c = lines.of_output(unsafe { self.c.at(result as u32) });
        let k = self.alpha_beta.effective_k(1);
        let mut values = [0.0; WIDTH];
        for i in 0..WIDTH {
            if i < count {
                // SAFETY: inside C and this thread's own.
                values[i] = unsafe { self.alpha_beta.combine(k, sums[i], || c.at(row, col + i as u32)) };
            }
        }
        if !self.steps.is_empty() {
            let (product, count, in_column) = (result as u32, count as u32, lines.are_columns);
            let (row, col) = if in_column { (col, row) } else { (row, col) };
            // SAFETY: inside C, and the steps fit it.
            values = unsafe { self.steps.apply(Neighbours { product, row, col, count, in_column }, values) };
        }
        let place = c.offset(row, col);
        // SAFETY: as above; the place is a multiple of four elements from an aligned base.
        unsafe {
            if count == WIDTH && place.is_multiple_of(4) && has_vectors(c.col_stride(), c.data().as_mut_ptr()) {
                c.data().set4_unchecked(place, values);
            } else {
                for i in 0..WIDTH {
                    if i < count {
                        c.set(row, col + i as u32, values[i]);
                    }
                }
            }
        }
    }
}

impl SplitReduction<'_> {
    /// Adds up the partials of [`WIDTH`] neighbours of a result in fp64, high and low parts, and rounds the sums.
    ///
    /// # Safety
    /// `piece < self.pieces()`, and the low parts are there.
    #[inline(always)]
    unsafe fn sum_of_both_parts(&self, piece: u64) -> [f32; WIDTH] {
        let mut sums = [0.0f64; WIDTH];
        if self.alpha_beta.effective_k(1) == 0 {
            return [0.0; WIDTH];
        }
        let lines = self.lines();
        let (result, row, col, count) = self.place(&lines, piece);
        let partial = lines.of_input(self.partials.first());
        // SAFETY: the caller's promise.
        let low_parts = lines.of_input(unsafe { self.partials.following() }.first());
        let mut offset = partial.offset(row, col) as u64 + result * self.splits * self.partials.stride();
        let mut left = self.splits;
        while left > 0 {
            for i in 0..WIDTH {
                if i < count {
                    let place = (offset + i as u64 * partial.col_stride()) as usize;
                    // SAFETY: the line and `count` elements of it from `col` on are inside each partial, and all are there.
                    let parts = unsafe { [partial, low_parts].map(|part| part.data().get_unchecked(place)) };
                    sums[i] += f64::from(parts[0]) + f64::from(parts[1]);
                }
            }
            offset += self.partials.stride();
            left = hint::keep_rolled(left as u32 - 1).into();
        }
        sums.map(|sum| sum as f32)
    }
}

/// The lines of a result, along which threads have neighbours.
struct Lines {
    are_columns: bool,
    number: u32,
    length: u32,
    /// The pieces of a line.
    pieces: u32,
}

impl Lines {
    /// A partial with its lines as rows.
    #[inline(always)]
    fn of_input<'a>(&self, partial: Matrix<'a>) -> Matrix<'a> {
        if self.are_columns { partial.transposed() } else { partial }
    }

    /// A result with its lines as rows.
    #[inline(always)]
    fn of_output<'a>(&self, c: MatrixMut<'a>) -> MatrixMut<'a> {
        if self.are_columns { c.transposed() } else { c }
    }
}

/// Whether neighbours in a line are neighbours in memory, and four of them from an aligned place on are a vector.
#[inline(always)]
fn has_vectors(stride: u64, base: *const f32) -> bool {
    stride == 1 && (base as u64).is_multiple_of(16)
}

/// The sums of `count` vectors, in their order, several of which are loaded before the first is added.
#[inline(always)]
fn add_in_order<const AT_A_TIME: usize>(count: u64, load: impl Fn(u64) -> [f32; WIDTH]) -> [f32; WIDTH] {
    let mut sums = [0.0; WIDTH];
    let mut next = 0;
    while next + AT_A_TIME as u64 <= count {
        let loaded: [[f32; WIDTH]; AT_A_TIME] = core::array::from_fn(|i| load(next + i as u64));
        for partial in loaded {
            sums = core::array::from_fn(|j| sums[j] + partial[j]);
        }
        next += AT_A_TIME as u64;
    }
    while next < count {
        let last = load(next);
        sums = core::array::from_fn(|j| sums[j] + last[j]);
        next += 1;
    }
    sums
}

/// `C = α·Σ P[s] + β·C` in fp32, each sum in the order of its partials.
#[kernel(block = 128, min_blocks = 8)]
pub fn gemm_split_reduction_fp32(reduction: SplitReduction<'_>) {
    // SAFETY: each piece has one thread.
    unsafe { for_own_pieces(reduction.pieces(), |piece| reduction.epilogue(piece, reduction.sum(piece, 0, 0))) };
}

/// The same where there are [`MANY_SPLITS`]: each sum in an order that depends on the number of partials alone.
#[kernel(block = 128, min_blocks = 8)]
pub fn gemm_split_reduction_many_fp32(reduction: SplitReduction<'_>) {
    // What each warp has found of the pieces that warps share: a row for each element.
    static FOUND: Shared<[[[f32; warp::LANES as usize]; WARPS]; WIDTH]> = Shared::new();
    let (pieces, log_of_parts) = (reduction.pieces(), log_of_sharers(reduction.splits));
    let log_of_pieces = THREADS.ilog2() - log_of_parts;
    let pieces_of_block = 1 << log_of_pieces;
    let t = thread::thread_idx_x();
    let (part, place, this_warp) = (t >> log_of_pieces, t & (pieces_of_block - 1), (t / warp::LANES) as usize);
    let mut first = u64::from(thread::block_idx_x()) * u64::from(pieces_of_block);
    while first < pieces {
        let piece = first + u64::from(place);
        let is_inside = piece < pieces;
        // SAFETY: just compared; the blocks of the grid take pieces that are different, and so do their threads, apart from
        // those who share one. All threads of the block reach the shuffles and every barrier. Each warp has written to places of its own
        // before the first one reads there, and it has read before anyone writes again.
        unsafe {
            let mut sums = if is_inside { reduction.sum(piece, part, log_of_parts) } else { [0.0; WIDTH] };
            // The sharers of a piece are as far apart as there are pieces: lanes of a warp first, and then the warps.
            sums = sum_of_lanes(sums, pieces_of_block, warp::LANES);
            if this_warp > 0 && t % warp::LANES < pieces_of_block {
                for i in 0..WIDTH {
                    FOUND.write([i, this_warp, place as usize], sums[i]);
                }
            }
            thread::sync_threads();
            // By all, though the first part's count alone: behind a branch, the compiler would have a barrier on either side of it.
            for warp in 1..WARPS {
                for i in 0..WIDTH {
                    sums[i] += FOUND.read([i, warp, place as usize]);
                }
            }
            thread::sync_threads(); // what has been read may be written for the next pieces
            if is_inside && part == 0 {
                reduction.epilogue(piece, sums);
            }
        }
        first += u64::from(thread::grid_dim_x()) * u64::from(pieces_of_block);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_split_reduction_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.reduction.pieces().div_ceil(u64::from(Self::BLOCK.x)))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_split_reduction_many_fp32<'_> {
    fn grid(&self) -> Dim3 {
        let threads = self.reduction.pieces() * u64::from(self.reduction.sharers());
        crate::geometry::line_of_blocks(threads.div_ceil(u64::from(Self::BLOCK.x)))
    }
}

/// `C = α·Σ P[s] + β·C` of partials with low parts: as many matrices that follow them. Added up in fp64, in order, and rounded once
/// before α and β.
#[kernel(
    block = 128,
    min_blocks = 4,
    requires(reduction.partials.count() == 0 || reduction.partials.is_followed_by_as_many())
)]
pub fn gemm_split_reduction_fp64(reduction: SplitReduction<'_>) {
    // SAFETY: a launch has looked for the low parts; each piece has one thread.
    unsafe {
        for_own_pieces(reduction.pieces(), |piece| reduction.epilogue(piece, reduction.sum_of_both_parts(piece)))
    };
}

/// Does something for each piece of work, below `pieces`, that is this thread's alone.
#[inline(always)]
fn for_own_pieces(pieces: u64, mut work: impl FnMut(u64)) {
    let threads = u64::from(thread::block_dim_x());
    let mut piece = u64::from(thread::block_idx_x()) * threads + u64::from(thread::thread_idx_x());
    while piece < pieces {
        work(piece);
        piece += u64::from(thread::grid_dim_x()) * threads;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_split_reduction_fp64<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.reduction.pieces().div_ceil(u64::from(Self::BLOCK.x)))
    }
}
