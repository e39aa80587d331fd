//! How a product is cut into tiles of C, and k into split-K slices: the argument of every kernel that gives each block a tile, and the
//! order of the tiles.
//!
//! ```text
//!        C of each product of the batch                    split-K: k, cut into slices
//!        ┌────┬────┬────┬────┐                             ┌──────────┬──────────┐
//!        │  0 │  2 │  4 │  6 │  ┐ a group of rows of       │ slice 0  │ slice 1  │   each slice makes a partial
//!        ├────┼────┼────┼────┤  │ tiles: the blocks that   └──────────┴──────────┘   result, and another kernel
//!        │  1 │  3 │  5 │  7 │  ┘ run at a time share            multiples of the    adds these up in order
//!        ├────┼────┼────┼────┤    rows of A and columns          K-block
//!        │  8 │ 10 │ 12 │ 14 │    of B in the L2 cache
//!        └────┴────┴────┴────┘
//!
//! block = (product · slices + slice) · tiles of one C + position of the tile in the order above
//! ```

#[cfg(not(target_arch = "nvptx64"))]
use blocks::epilogue::Steps;
use blocks::epilogue::{Epilogue, store_vector, takes_vectors_of};
use blocks::register_tiled::ProductTile;
pub use blocks::register_tiled::TileShape;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::alpha_beta::AlphaBeta;
#[cfg(not(target_arch = "nvptx64"))]
use crate::geometry::MAX_GRID_Y;
use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Triangle};

/// The rows of C that a group of tiles has. At 2048, what the blocks of one wave read of A and of B is about the same.
const GROUP_ROWS: u32 = 2048;

/// CUDA's limit for the blocks of a one-dimensional grid.
pub const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// Products of matrices, `C = α·A·B + β·C` for each of a batch, of which every block computes a tile.
///
/// With more than one split (split-K), k is divided among as many blocks, and what they compute are partial results in a batch of their
/// own: those of product `i` are partials `i · splits` to `(i + 1) · splits - 1`.
///
/// Invariant, which the constructors establish and kernels rely on: every A is m×k, every B is k×n and every C is m×n, and
/// there are as many of A and of B as products, and `splits` times as many of C.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct TiledGemm<'a> {
    a: MatrixBatch<'a>,
    b: MatrixBatch<'a>,
    c: MatrixBatchMut<'a>,
    alpha_beta: AlphaBeta,
    splits: u32,
    /// Not zero if they are.
    exact_selections: u32,
}

/// Whether a grid can have a row of blocks for each row of tiles of results with `m` rows, and a layer for each of so many results:
/// [`TiledGemm::grid_of_tiles`].
#[cfg(not(target_arch = "nvptx64"))]
pub fn is_grid_of_tiles(shape: TileShape, m: u128, results: u128) -> bool {
    m.div_ceil(shape.m.into()) <= MAX_GRID_Y.into() && results <= MAX_GRID_Y.into()
}

/// Whether a kernel may do these steps before it stores the results of a product: they fit, and it stores no partial results.
#[cfg(not(target_arch = "nvptx64"))]
pub fn steps_fit(steps: &Steps<'_>, gemm: &TiledGemm<'_>) -> bool {
    steps.is_empty() || gemm.splits() == 1 && steps.fit(gemm.c().count(), gemm.m(), gemm.n()).is_ok()
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> TiledGemm<'a> {
    /// `C = α·A·B + β·C` for each product of a batch.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless, for some m, n and k, A is m×k, B is k×n and C is m×n, and there are as many of each.
    pub fn new(
        alpha: f32,
        a: impl Into<MatrixBatch<'a>>,
        b: impl Into<MatrixBatch<'a>>,
        beta: f32,
        c: impl Into<MatrixBatchMut<'a>>,
    ) -> Result<Self, ShapeError> {
        Self::with(a.into(), b.into(), c.into(), AlphaBeta { alpha, beta }, 1)
    }

    /// Partial results of `A·B`, for split-K: split `s` of product `i` goes to partial `i · splits + s`.
    ///
    /// # Errors
    /// As for [`TiledGemm::new`], with `splits` times as many partials as products.
    pub fn split_k(
        a: impl Into<MatrixBatch<'a>>,
        b: impl Into<MatrixBatch<'a>>,
        partials: impl Into<MatrixBatchMut<'a>>,
        splits: u32,
    ) -> Result<Self, ShapeError> {
        Self::with(a.into(), b.into(), partials.into(), AlphaBeta { alpha: 1.0, beta: 0.0 }, splits)
    }

    fn with(
        a: MatrixBatch<'a>,
        b: MatrixBatch<'a>,
        c: MatrixBatchMut<'a>,
        alpha_beta: AlphaBeta,
        splits: u32,
    ) -> Result<Self, ShapeError> {
        let (first_a, first_b, first_c) = (a.first(), b.first(), c.first());
        let mismatch = ShapeError::unless_equal;
        mismatch(("the number of columns of A", first_a.cols()), ("the number of rows of B", first_b.rows()))?;
        mismatch(("the number of rows of A", first_a.rows()), ("the number of rows of C", first_c.rows()))?;
        mismatch(("the number of columns of B", first_b.cols()), ("the number of columns of C", first_c.cols()))?;
        mismatch(("the number of matrices A", a.count()), ("the number of matrices B", b.count()))?;
        let outputs = u64::from(a.count()) * u64::from(splits);
        let outputs = ShapeError::dimension("the number of results and splits", outputs as usize)?;
        mismatch(("the number of results and splits", outputs), ("the number of matrices C", c.count()))?;
        Ok(Self { a, b, c, alpha_beta, splits: splits.max(1), exact_selections: 1 })
    }

    /// The same products, computed again in fp32 if A or B [selects](super::scan), or not: then no element depends on whether other lines of its
    /// tile select.
    #[must_use]
    pub fn with_exact_selections(self, exact: bool) -> Self {
        Self { exact_selections: exact.into(), ..self }
    }

    /// The number of blocks that compute the product: one for each tile of each output.
    pub fn blocks(&self, shape: TileShape) -> u64 {
        let tiles = u64::from(self.m().div_ceil(shape.m)) * u64::from(self.n().div_ceil(shape.n));
        tiles.saturating_mul(u64::from(self.c.count()))
    }

    /// The grid of a kernel with a block for each tile: columns of tiles, rows of tiles, outputs. A kernel `requires` that
    /// [`TiledGemm::has_grid_of_tiles`].
    pub fn grid_of_tiles(&self, shape: TileShape) -> Dim3 {
        // A grid without blocks cannot be launched; the one block finds nothing to do.
        let of = |size: u32, side: u32| size.div_ceil(side).max(1);
        Dim3 { x: of(self.n(), shape.n), y: of(self.m(), shape.m), z: self.c.count().max(1) }
    }

    /// Whether there is [such a grid](is_grid_of_tiles).
    pub fn has_grid_of_tiles(&self, shape: TileShape) -> bool {
        is_grid_of_tiles(shape, self.m().into(), self.c.count().into())
    }

    /// The grid for tiles of this shape. A kernel `requires` that [`TiledGemm::blocks`] is at most [`MAX_BLOCKS`].
    pub fn grid(&self, shape: TileShape) -> Dim3 {
        crate::geometry::line_of_blocks(self.blocks(shape))
    }
}

impl<'a> TiledGemm<'a> {
    /// Whether C is only written: β is zero, or what is written are partial results.
    #[inline(always)]
    pub fn overwrites(&self) -> bool {
        self.alpha_beta.beta == 0.0
    }

    /// The results, or partial results of split-K.
    #[inline(always)]
    pub fn c(&self) -> MatrixBatchMut<'a> {
        self.c
    }

    /// The operands A.
    #[inline(always)]
    pub fn a(&self) -> MatrixBatch<'a> {
        self.a
    }

    /// The operands B.
    #[inline(always)]
    pub fn b(&self) -> MatrixBatch<'a> {
        self.b
    }

    /// The number of rows of every A and C.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.c.first().rows()
    }

    /// The number of columns of every B and C.
    #[inline(always)]
    pub fn n(&self) -> u32 {
        self.c.first().cols()
    }

    /// k; but 0 if α is zero, because then neither A nor B may be read.
    #[inline(always)]
    pub fn effective_k(&self) -> u32 {
        self.alpha_beta.effective_k(self.a.first().cols())
    }

    /// The number of splits.
    #[inline(always)]
    pub fn splits(&self) -> u32 {
        self.splits
    }

    /// Whether elements of a product with an operand that [selects](super::scan) are those of the other one to the last bit.
    #[inline(always)]
    pub fn has_exact_selections(&self) -> bool {
        self.exact_selections != 0
    }

    /// The same products, whose partial results are the low parts of these: as many matrices that follow them.
    ///
    /// # Safety
    /// They do: [`MatrixBatchMut::is_followed_by_as_many`].
    #[inline(always)]
    pub(crate) unsafe fn of_low_parts(&self) -> Self {
        // SAFETY: the caller's promise.
        Self { c: unsafe { self.c.following() }, ..*self }
    }

    /// What accumulators are multiplied by.
    #[inline(always)]
    pub(crate) fn factor(&self) -> f32 {
        self.alpha_beta.factor(self.effective_k())
    }

    /// What an element of C becomes: `α·accumulator + β·before()`.
    #[inline(always)]
    pub(crate) fn value(&self, accumulator: f32, before: impl FnOnce() -> f32) -> f32 {
        self.alpha_beta.combine(self.effective_k(), accumulator, before)
    }

    /// `sum + β·before`, for a sum that has been multiplied by α.
    #[inline(always)]
    pub(crate) fn plus_old(&self, sum: f32, before: f32) -> f32 {
        math::fma(self.alpha_beta.beta, before, sum)
    }

    /// The number of tiles of this shape. A kernel `requires` that there are at most [`MAX_BLOCKS`].
    #[inline(always)]
    pub(crate) fn tiles(&self, shape: TileShape) -> u32 {
        self.m().div_ceil(shape.m) * self.n().div_ceil(shape.n) * self.c.count()
    }

    /// The position, among those of a C, of the tile in row `row` and column `col` of tiles.
    #[inline(always)]
    pub(crate) fn position(&self, shape: TileShape, row: u32, col: u32) -> u32 {
        let (down, across) = (self.m().div_ceil(shape.m), self.n().div_ceil(shape.n));
        let height = group_height(shape);
        let first = row / height * height;
        first * across + col * height.min(down - first) + (row - first)
    }

    /// The tile of block `block`, or `None` for the one block of a grid without work.
    #[inline(always)]
    pub(crate) fn tile(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        let place = |position, down, across| place(group_height(shape), position, down, across);
        self.tile_in_order(shape, block, |down, across| down * across, place)
    }

    /// The same, sooner: a division takes some 300 clocks, and there is none where its result is plain, of one product that is not cut
    /// and has few rows. That takes a kernel registers.
    #[inline(always)]
    pub(crate) fn tile_soon(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        let (down, across) = (self.m().div_ceil(shape.m), self.n().div_ceil(shape.n));
        if block >= down * across || down > group_height(shape) || self.splits() > 1 || self.c.count() == 0 {
            return self.tile(shape, block);
        }
        let (col, row) = divide(block, down);
        // SAFETY: there is a tile, so there is a product, and its output.
        let (a, b, c) = unsafe { (self.a.at(0), self.b.at(0), self.c.at(0)) };
        // (Of the first product, the matrices are the first ones.)
        Some(Tile::over_all_k([a, b], c, self.alpha_beta, self.effective_k(), 0, [row * shape.m, col * shape.n]))
    }

    /// The tile of this block of a grid that has a block for each tile, in [rows, columns and outputs](TiledGemm::grid_of_tiles). Without split-K, that
    /// takes no division, each of which is some 150 clocks.
    #[inline(always)]
    pub(crate) fn tile_of_grid(&self, shape: TileShape) -> Option<Tile<'a>> {
        // Pinned, so that a kernel which asks again, at its end, does not keep everything until then.
        let mut numbers = [thread::block_idx_x(), thread::block_idx_y(), thread::block_idx_z()];
        hint::pin(&mut numbers);
        let [x, y, output] = numbers;
        let [row, col] = [y * shape.m, x * shape.n];
        if output >= self.c.count() || row >= self.m() || col >= self.n() {
            return None;
        }
        let (k, splits) = (self.effective_k(), self.splits());
        let (product, [k_begin, k_end]) = if splits > 1 {
            let (product, split) = divide(output, splits);
            (product, [split, split + 1].map(first_k_of_splits(shape, k, splits)))
        } else {
            (output, [0, k])
        };
        // SAFETY: product < products and output < outputs, which is how many there are.
        let (a, b, c) = unsafe { (self.a.at(product), self.b.at(product), self.c.at(output)) };
        let matrices = self.matrices_of(product);
        Some(Tile { matrices, k_begin, k_end, ..Tile::over_all_k([a, b], c, self.alpha_beta, k, product, [row, col]) })
    }

    /// The same, with tiles in the order of the rows of C: what the blocks that run at a time write lies together.
    #[inline(always)]
    pub(crate) fn tile_by_rows(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        self.tile_in_order(shape, block, |down, across| down * across, |at, down, across| place(1, at, down, across))
    }

    /// The same, where only tiles count that have elements in a triangle of C.
    #[inline(always)]
    pub(crate) fn tile_of_triangle(&self, shape: TileShape, triangle: Triangle, block: u32) -> Option<Tile<'a>> {
        if triangle == Triangle::All {
            return self.tile(shape, block);
        }
        let place = |position, down, across| triangle.tile(shape, down, across, position);
        self.tile_in_order(shape, block, |down, across| triangle.tiles(shape, down, across), place)
    }

    /// Tile `number` of all products, those of each row by row, over all k; or `None` beyond the last. Where each product has one tile,
    /// that takes no division.
    #[inline(always)]
    pub(crate) fn tile_of_batch(&self, shape: TileShape, number: u32) -> Option<Tile<'a>> {
        let (down, across) = (self.m().div_ceil(shape.m), self.n().div_ceil(shape.n));
        let (product, position) = if down * across == 1 { (number, 0) } else { divide(number, down * across) };
        if product >= self.a.count() {
            return None;
        }
        let (row, col) = if across == 1 { (position, 0) } else { divide(position, across) };
        let k = self.effective_k();
        // SAFETY: product < products, which is how many there are.
        let (a, b, c) = unsafe { (self.a.at(product), self.b.at(product), self.c.at(product)) };
        let (row, col, matrices) = (row * shape.m, col * shape.n, self.matrices_of(product));
        Some(Tile { matrices, ..Tile::over_all_k([a, b], c, self.alpha_beta, k, product, [row, col]) })
    }

    /// Which of the distinct matrices A and B of a product are.
    #[inline(always)]
    fn matrices_of(&self, product: u32) -> [u32; 2] {
        [self.a.number_of(product), self.b.number_of(product)]
    }

    /// The tile of block `block`, where of `down`×`across` tiles `count(down, across)` are to be computed, and that in position
    /// `position` among them is in row and column `place(position, down, across)` of tiles.
    #[inline(always)]
    fn tile_in_order(
        &self,
        shape: TileShape,
        block: u32,
        count: impl Fn(u32, u32) -> u32,
        place: impl Fn(u32, u32, u32) -> (u32, u32),
    ) -> Option<Tile<'a>> {
        // Pinned, so that a kernel which asks for its tile again, at its end, computes it again: what the compiler would keep
        // until then takes registers.
        let mut numbers = [block, self.m(), self.n(), self.effective_k(), self.c.count(), self.splits()];
        hint::pin(&mut numbers);
        let [block, m, n, k, outputs, splits] = numbers;
        let (down, across) = (m.div_ceil(shape.m), n.div_ceil(shape.n));
        let (output, position) = divide(block, count(down, across));
        if output >= outputs {
            return None;
        }
        let (product, split) = divide(output, splits);
        let (row, col) = place(position, down, across);
        let (row, col) = (row * shape.m, col * shape.n);
        let first_k = first_k_of_splits(shape, k, splits);
        // SAFETY: product < products and output < outputs, which is how many there are.
        let (a, b, c) = unsafe { (self.a.at(product), self.b.at(product), self.c.at(output)) };
        Some(Tile {
            a,
            b,
            c,
            alpha_beta: self.alpha_beta,
            k,
            product,
            matrices: self.matrices_of(product),
            row,
            col,
            k_begin: first_k(split),
            k_end: first_k(split + 1),
        })
    }
}

/// The first k of each split, and for their number, all k. Splits have as many K-blocks, or one more: the first ones.
#[inline(always)]
fn first_k_of_splits(shape: TileShape, k: u32, splits: u32) -> impl Fn(u32) -> u32 {
    let (steps, longer) = divide(k.div_ceil(shape.k), splits);
    move |split| ((split * steps + split.min(longer)) * shape.k).min(k)
}

/// The rows of tiles that a group has.
#[inline(always)]
pub(super) const fn group_height(shape: TileShape) -> u32 {
    let height = GROUP_ROWS / shape.m;
    if height == 0 { 1 } else { height }
}

/// The row and the column of the tile in position `position` of `down`×`across` tiles: groups of `height` rows of tiles, the last
/// of which may have fewer, and the tiles of a group column by column.
#[inline(always)]
pub(super) fn place(height: u32, position: u32, down: u32, across: u32) -> (u32, u32) {
    let (group, place) = divide(position, height * across);
    let (col, row) = divide(place, height.min(down - group * height));
    (group * height + row, col)
}

/// Quotient and remainder. (Written with `/` alone, a divisor that might be zero brings panic code with it.)
#[inline(always)]
pub(super) fn divide(dividend: u32, divisor: u32) -> (u32, u32) {
    let quotient = dividend.checked_div(divisor).unwrap_or(u32::MAX);
    (quotient, dividend.wrapping_sub(quotient.wrapping_mul(divisor)))
}

/// What one block computes: the tile of `c` whose first element is (`row`, `col`), over k from `k_begin` to `k_end`.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) a: Matrix<'a>,
    pub(crate) b: Matrix<'a>,
    pub(crate) c: MatrixMut<'a>,
    alpha_beta: AlphaBeta,
    k: u32,
    /// Which product of the batch.
    pub(crate) product: u32,
    /// Which of the [distinct](MatrixBatch::distinct) matrices A and B are: what tensor maps and packed operands have.
    pub(crate) matrices: [u32; 2],
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) k_begin: u32,
    pub(crate) k_end: u32,
}

/// How many rows or pieces of C a thread reads before it stores the first of them, if there is a β.
pub(crate) const TOGETHER: usize = 4;

impl<'a> Tile<'a> {
    /// The tile of `c` whose first element is (`row`, `col`), over k from 0 to `k`: `[a, b]` are the operands of product number `product`.
    #[inline(always)]
    pub(super) fn over_all_k(
        [a, b]: [Matrix<'a>; 2],
        c: MatrixMut<'a>,
        alpha_beta: AlphaBeta,
        k: u32,
        product: u32,
        [row, col]: [u32; 2],
    ) -> Self {
        Self { a, b, c, alpha_beta, k, product, matrices: [product; 2], row, col, k_begin: 0, k_end: k }
    }
}

impl Tile<'_> {
    /// The number of K-steps.
    #[inline(always)]
    pub(crate) fn steps(&self, shape: TileShape) -> u32 {
        (self.k_end - self.k_begin).div_ceil(shape.k)
    }

    /// The epilogue of one element of C: `C = α·accumulator + β·C`. Nothing happens outside of C. C is not read if β is zero.
    ///
    /// # Safety
    /// No other thread accesses this element of C.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue_element(&self, row: u32, col: u32, accumulator: f32) {
        if row < self.c.rows() && col < self.c.cols() {
            // SAFETY: inside C, and this thread's alone, by the caller's promise.
            unsafe { self.c.set(row, col, self.value(row, col, accumulator)) }
        }
    }

    /// The epilogue of `N` neighbours in a row of C, from (`row`, `col`) on: `C = α·accumulator + β·C`. What lies outside of C is left
    /// out. C is not read if β is zero. Where C allows it, they are one store of `N` elements.
    ///
    /// # Safety
    /// `col` is a multiple of `N`, and no other thread accesses these elements of C.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue<const N: usize>(&self, row: u32, col: u32, accumulators: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.epilogue_groups::<N, 1>(row, col, 0, [accumulators]) }
    }

    /// The same of several rows: where C is read, all of it is under way before the first is stored.
    ///
    /// # Safety
    /// As for [`Tile::epilogue`], for every row.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue_rows<const N: usize, const ROWS: usize>(
        &self,
        rows: [u32; ROWS],
        col: u32,
        accumulators: [[f32; N]; ROWS],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.overwrites() {
                for i in 0..ROWS {
                    self.epilogue(rows[i], col, accumulators[i]);
                }
            } else {
                self.blend(rows.map(|row| [row, col]), accumulators, takes_vectors_of(&self.c, N as u32));
            }
        }
    }

    /// The epilogue of `GROUPS` groups of `N` neighbours in a row of C, the first from (`row`, `col`) on, each `distance` columns
    /// after the one before; otherwise as [`Tile::epilogue`].
    ///
    /// # Safety
    /// As for [`Tile::epilogue`], for every group.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue_groups<const N: usize, const GROUPS: usize>(
        &self,
        row: u32,
        col: u32,
        distance: u32,
        accumulators: [[f32; N]; GROUPS],
    ) {
        if row >= self.c.rows() {
            return;
        }
        let value = |col: u32, accumulator: f32| {
            // SAFETY: only called for elements of C, which are this thread's alone.
            self.alpha_beta.combine(self.k, accumulator, || unsafe { self.c.at(row, col) })
        };
        let has_vectors = takes_vectors_of(&self.c, N as u32);
        if has_vectors && self.alpha_beta.beta == 0.0 {
            // The usual case, without a branch for each element: `combine` would ask the same questions every time.
            // SAFETY: the caller's promise, and as just found.
            unsafe { self.overwrite_groups(row, col, distance, accumulators) };
            return;
        }
        let first = self.c.offset(row, col);
        for group in 0..GROUPS {
            let skipped = group as u32 * distance;
            let col = col + skipped;
            if has_vectors && self.has_columns(col, N) {
                let values: [f32; N] = core::array::from_fn(|i| value(col + i as u32, accumulators[group][i]));
                // SAFETY: inside C, as just found. Aligned: `col` is a multiple of N, by the caller's promise, and so it is what
                // `takes_vectors_of` has found.
                unsafe { store_vector(self.c.data(), first + skipped as usize, values) };
                continue;
            }
            for i in 0..N {
                let col = col + i as u32;
                if col < self.c.cols() {
                    // SAFETY: inside C, and this thread's alone.
                    unsafe { self.c.set(row, col, value(col, accumulators[group][i])) };
                }
            }
        }
    }

    /// The epilogue of `N` neighbours in a row of C from each of some places on, where C is read (β is not zero): all of it is under way before the
    /// first is stored. Places outside of C are left out.
    ///
    /// # Safety
    /// As for [`Tile::epilogue`], for every place; `has_vectors` says what [`takes_vectors_of`] does.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn blend<const N: usize, const PLACES: usize>(
        &self,
        places: [[u32; 2]; PLACES],
        accumulators: [[f32; N]; PLACES],
        has_vectors: bool,
    ) {
        let (rows, cols) = (self.c.rows(), self.c.cols());
        let mut before = [[0.0; N]; PLACES];
        for i in 0..PLACES {
            let [row, col] = places[i];
            if row >= rows || col >= cols {
                continue;
            }
            if has_vectors && cols - col >= N as u32 {
                // SAFETY: inside C, as just found. Aligned: `col` is a multiple of N, by the caller's promise, and so it is what
                // `takes_vectors_of` has found.
                before[i] = unsafe { self.c.data().get_vector_unchecked(self.c.offset(row, col)) };
            } else {
                for j in 0..N {
                    if (j as u32) < cols - col {
                        // SAFETY: inside C, as just found.
                        before[i][j] = unsafe { self.c.at(row, col + j as u32) };
                    }
                }
            }
        }
        for i in 0..PLACES {
            let [row, col] = places[i];
            if row >= rows || col >= cols {
                continue;
            }
            let values: [f32; N] =
                core::array::from_fn(|j| self.alpha_beta.combine(self.k, accumulators[i][j], || before[i][j]));
            if has_vectors && cols - col >= N as u32 {
                // SAFETY: inside C and aligned, as above.
                unsafe { store_vector(self.c.data(), self.c.offset(row, col), values) };
                continue;
            }
            for j in 0..N {
                if (j as u32) < cols - col {
                    // SAFETY: inside C, and this thread's alone.
                    unsafe { self.c.set(row, col + j as u32, values[j]) };
                }
            }
        }
    }

    /// Whether C has `count` columns from column `col` on.
    #[inline(always)]
    fn has_columns(&self, col: u32, count: usize) -> bool {
        // Columns of tiles are far below 2³², so this does not wrap.
        col + (count as u32 - 1) < self.c.cols()
    }

    /// [`Tile::epilogue_groups`], for kernels that have the registers: where C is read, [`TOGETHER`] groups of it are under way at a time.
    ///
    /// # Safety
    /// As for [`Tile::epilogue_groups`].
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue_groups_together<const N: usize, const GROUPS: usize>(
        &self,
        row: u32,
        col: u32,
        distance: u32,
        accumulators: [[f32; N]; GROUPS],
    ) {
        let has_all = row < self.c.rows() && self.has_columns(col + (GROUPS as u32 - 1) * distance, N);
        if self.overwrites() || !has_all || !takes_vectors_of(&self.c, N as u32) {
            // SAFETY: the caller's promise.
            unsafe { self.epilogue_groups(row, col, distance, accumulators) };
            return;
        }
        let first = self.c.offset(row, col);
        let place = |group: usize| first + group * distance as usize;
        for begin in 0..GROUPS.div_ceil(TOGETHER) {
            let groups = begin * TOGETHER..GROUPS.min((begin + 1) * TOGETHER);
            let mut before = [[0.0; N]; TOGETHER];
            for group in groups.clone() {
                // SAFETY: inside C, as just found. Aligned: `col` is a multiple of N, by the caller's promise, and so it is what
                // `takes_vectors_of` has found.
                before[group % TOGETHER] = unsafe { self.c.data().get_vector_unchecked(place(group)) };
            }
            for group in groups {
                let before = before[group % TOGETHER];
                let values = core::array::from_fn::<_, N, _>(|i| self.blended(accumulators[group][i], before[i]));
                // SAFETY: inside C and aligned, as above; these elements are this thread's alone, by the caller's promise.
                unsafe { store_vector(self.c.data(), place(group), values) };
            }
        }
    }

    /// [`Tile::epilogue_groups`] where C takes vectors of `N`, and β is zero: little code.
    ///
    /// # Safety
    /// As for [`Tile::epilogue_groups`], and it is so ([`takes_vectors_of`], [`Tile::overwrites`]).
    #[inline(always)]
    #[track_caller]
    unsafe fn overwrite_groups<const N: usize, const GROUPS: usize>(
        &self,
        row: u32,
        col: u32,
        distance: u32,
        accumulators: [[f32; N]; GROUPS],
    ) {
        if row >= self.c.rows() {
            return;
        }
        let (first, factor) = (self.c.offset(row, col), self.factor());
        for group in 0..GROUPS {
            let skipped = group as u32 * distance;
            let col = col + skipped;
            let values = accumulators[group].map(|accumulator| factor * accumulator);
            if self.has_columns(col, N) {
                // SAFETY: inside C, as just found. Aligned, by the caller's promise.
                unsafe { store_vector(self.c.data(), first + skipped as usize, values) };
                continue;
            }
            // The last columns of C, where they are no whole vector.
            for i in 0..N - 1 {
                if col + (i as u32) < self.c.cols() {
                    // SAFETY: inside C, and this thread's alone.
                    unsafe { self.c.data().set_unchecked(first + skipped as usize + i, values[i]) };
                }
            }
        }
    }

    /// Whether C is not read: β is zero.
    #[inline(always)]
    pub(crate) fn overwrites(&self) -> bool {
        self.alpha_beta.beta == 0.0
    }

    /// What an element of C becomes where C is read, for an accumulator that is zero if k is.
    #[inline(always)]
    pub(crate) fn blended(&self, accumulator: f32, before: f32) -> f32 {
        self.alpha_beta.blend(self.k, accumulator, before)
    }

    /// The same tile for sums that are what is to be stored: with an α of 1, and a β of 0.
    #[inline(always)]
    pub(crate) fn of_finished_sums(self) -> Self {
        Self { alpha_beta: AlphaBeta { alpha: 1.0, beta: 0.0 }, k: 1, ..self }
    }

    /// What accumulators are multiplied by where it is not.
    #[inline(always)]
    pub(crate) fn factor(&self) -> f32 {
        self.alpha_beta.factor(self.k)
    }

    /// The epilogue of 2×2 elements of C for each of `GROUPS` groups, the first from (`row`, `col`) on, each `distance` columns after
    /// the one before; `accumulators` has the rows of each. Where C is column-major and allows it, pairs of rows are one store.
    ///
    /// # Safety
    /// As for [`Tile::epilogue`], for every group; `row` is even, too.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn epilogue_squares<const GROUPS: usize>(
        &self,
        row: u32,
        col: u32,
        distance: u32,
        accumulators: [[[f32; 2]; 2]; GROUPS],
    ) {
        if takes_vectors_of(&self.c.transposed(), 2) && self.alpha_beta.beta == 0.0 && row + 1 < self.c.rows() {
            let factor = self.factor();
            let first = self.c.offset(row, col);
            for group in 0..GROUPS {
                for i in 0..2 {
                    let skipped = group as u32 * distance + i as u32;
                    if col + skipped < self.c.cols() {
                        let offset = first + skipped as usize * self.c.col_stride() as usize;
                        // SAFETY: inside C: the column is, and both rows. Aligned, because the first of them is even, as `takes_vectors_of`
                        // has found.
                        unsafe {
                            store_vector(
                                self.c.data(),
                                offset,
                                [factor * accumulators[group][0][i], factor * accumulators[group][1][i]],
                            )
                        };
                    }
                }
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.epilogue_groups_together::<2, GROUPS>(row, col, distance, row_of::<0, GROUPS>(&accumulators));
            self.epilogue_groups_together::<2, GROUPS>(row + 1, col, distance, row_of::<1, GROUPS>(&accumulators));
        }
    }

    /// The tile as the bodies in [`blocks`] take it.
    #[inline(always)]
    pub(crate) fn product(&self) -> ProductTile<'_> {
        let Self { a, b, c, row, col, k_begin, k_end, .. } = *self;
        ProductTile { a, b, c, row, col, k_begin, k_end }
    }
}

/// `C = α·accumulator + β·C`, for accumulators over k. C is not read if β is zero.
impl Epilogue for Tile<'_> {
    #[inline(always)]
    #[track_caller]
    unsafe fn value(&self, row: u32, col: u32, accumulator: f32) -> f32 {
        // SAFETY: inside C, and this thread's alone, by the caller's promise.
        self.alpha_beta.combine(self.k, accumulator, || unsafe { self.c.at(row, col) })
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store(&self, _: &MatrixMut<'_>, row: u32, col: u32, accumulators: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { self.epilogue::<4>(row, col, accumulators) }
    }
}

/// One of the two rows of each group.
#[inline(always)]
pub(crate) fn row_of<const ROW: usize, const GROUPS: usize>(
    accumulators: &[[[f32; 2]; 2]; GROUPS],
) -> [[f32; 2]; GROUPS] {
    let mut row = [[0.0; 2]; GROUPS];
    for group in 0..GROUPS {
        row[group] = accumulators[group][ROW];
    }
    row
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;
    use std::vec;

    use super::*;

    const SHAPE: TileShape = TileShape { m: 512, n: 128, k: 32 };

    #[test]
    fn every_tile_of_every_split_has_one_block() {
        for (m, n, k, products, splits) in
            [(1, 1, 1, 1, 1), (4000, 500, 100, 1, 1), (5121, 129, 1000, 3, 4), (512, 128, 32, 2, 5), (513, 1, 0, 1, 3)]
        {
            let data = vec![0.0f32; m.max(n) * k.max(1)];
            let a = Matrix::new(GlobalSlice::new(&data), m, k, k, 1).unwrap();
            let b = Matrix::new(GlobalSlice::new(&data), k, n, n, 1).unwrap();
            let mut partials = vec![0.0f32; m * n * products * splits];
            let c = MatrixMut::new(GlobalSliceMut::new(&mut partials), m, n, n, 1).unwrap();
            let a = MatrixBatch::new(a, 0, products).unwrap();
            let b = MatrixBatch::new(b, 0, products).unwrap();
            let c = MatrixBatchMut::new(c, m * n, products * splits).unwrap();
            let gemm = TiledGemm::split_k(a, b, c, splits as u32).unwrap();
            let blocks = gemm.blocks(SHAPE);
            assert_eq!(blocks, (m.div_ceil(512) * n.div_ceil(128) * products * splits) as u64);
            let mut seen = HashSet::new();
            let mut covered = 0;
            for block in 0..blocks as u32 {
                let tile = gemm.tile(SHAPE, block).unwrap();
                assert_eq!(place_of(&gemm.tile_soon(SHAPE, block).unwrap()), place_of(&tile));
                let tiles = (m.div_ceil(512) * n.div_ceil(128)) as u32;
                assert_eq!(gemm.position(SHAPE, tile.row / 512, tile.col / 128), block % tiles);
                assert!(tile.row < m as u32 && tile.row.is_multiple_of(512), "{}", tile.row);
                assert!(tile.col < n as u32 && tile.col.is_multiple_of(128), "{}", tile.col);
                assert!(tile.k_begin.is_multiple_of(32) || tile.k_begin == tile.k_end);
                covered += u64::from(tile.k_end - tile.k_begin);
                let output = tile.c.data().as_mut_ptr().addr();
                assert!(seen.insert((output, tile.row, tile.col)), "two blocks have the same tile");
            }
            assert_eq!(covered, (m.div_ceil(512) * n.div_ceil(128) * products * k) as u64);
            assert!(gemm.tile(SHAPE, blocks as u32).is_none() && gemm.tile_soon(SHAPE, blocks as u32).is_none());
        }
    }

    /// Where a tile is: in k, in C, and in memory.
    fn place_of(tile: &Tile<'_>) -> ([u32; 5], [usize; 3]) {
        let memory = [tile.a.data().as_ptr(), tile.b.data().as_ptr(), tile.c.data().as_mut_ptr().cast_const()];
        ([tile.product, tile.row, tile.col, tile.k_begin, tile.k_end], memory.map(|data| data.addr()))
    }

    #[test]
    fn a_product_without_results_has_no_tiles() {
        let a = Matrix::new(GlobalSlice::new(&[]), 0, 5, 5, 1).unwrap();
        let data = [0.0; 15];
        let b = Matrix::new(GlobalSlice::new(&data), 5, 3, 3, 1).unwrap();
        let mut nothing = [];
        let c = MatrixMut::new(GlobalSliceMut::new(&mut nothing), 0, 3, 3, 1).unwrap();
        let gemm = TiledGemm::new(1.0, a, b, 0.0, c).unwrap();
        assert_eq!((gemm.blocks(SHAPE), gemm.grid(SHAPE)), (0, Dim3::new(1, 1, 1)));
        assert!(gemm.tile(SHAPE, 0).is_none() && gemm.tile_soon(SHAPE, 0).is_none());
    }

    #[test]
    fn partials_are_as_many_as_products_times_splits() {
        let data = [0.0; 15];
        let a = Matrix::new(GlobalSlice::new(&data), 3, 5, 5, 1).unwrap();
        let b = Matrix::new(GlobalSlice::new(&data), 5, 3, 3, 1).unwrap();
        let mut partials = [0.0; 18];
        let c = MatrixMut::new(GlobalSliceMut::new(&mut partials), 3, 3, 3, 1).unwrap();
        let batch = MatrixBatchMut::new(c, 9, 2).unwrap();
        assert!(TiledGemm::split_k(a, b, batch, 2).is_ok());
        for splits in [0, 1, 3] {
            assert!(matches!(TiledGemm::split_k(a, b, batch, splits), Err(ShapeError::Mismatch { .. })));
        }
    }
}
