//! Grouped products: `C = α·A·B + β·C` for each product of a list, by one launch, where every product has an m, n and k, memory, strides
//! and a layout of its own. A batch that is given as arrays of pointers is the case of equal sizes.
//!
//! ```text
//!  products     0: 100×70, k = 33     1: 8×8, k = 5     2: 64×200, k = 9          tiles of 64×64
//!
//!  tiles        ┌───┬───┐             ┌───┐             ┌───┬───┬───┬───┐
//!               │ 0 │ 2 │             │ 4 │             │ 5 │ 6 │ 7 │ 8 │         one block for each; a block of
//!               ├───┼───┤             └───┘             └───┴───┴───┴───┘         small tiles has several
//!               │ 1 │ 3 │
//!               └───┴───┘
//!
//!  table        ends of tiles      4   5   9            block 6: 5 ≤ 6 < 9, so it is tile 1 of product 2
//!  in memory    products           A, B and C: address, length, strides; m, n, k
//! ```
//!
//! A block finds its product by a binary search over the ends of tiles, or by a division where all products have as many tiles. It
//! makes [`Matrix`] views of what the table says, and goes on as in a product alone: the kernels here have the bodies of
//! [`batched`](super::batched), of [`mma`](super::mma) with tiles of 64×64, and of `wgmma` with tiles of 64×64. So every element has the
//! bits that the kernel of the same body gives it in a product alone.
//!
//! | kernels | the body of |
//! |---|---|
//! | `gemm_grouped_4_fp32` to `gemm_grouped_32_fp32` | `gemm_batched_4_fp32` to `gemm_batched_32_fp32`: any layout |
//! | `gemm_grouped_mma_64x64_*_fp32_3xtf32` | `gemm_mma_64x64_*_fp32_3xtf32`: one for each layout |
//! | `gemm_grouped_wgmma_64x64_k32_*_fp32_3xtf32` | `gemm_wgmma_64x64_k32_*_fp32_3xtf32`: one for each layout |
//! | `grouped_row_table` | none: it makes the table where only the device knows the sizes ([`RowGroups`]) |
//!
//! The order of the products in a table is the caller's. Those with the largest k should come first: then no block with much to do begins
//! last, and the teams of a block, which wait for each other, have as much to do.
//!
//! **Safety.** A table names memory by its address, so no type of the kernel's says that it is there. [`Products`], which a table is
//! made from, does: it borrows the operands' memory and, mutably, the results', and has found that no result shares an element with
//! another matrix. A [`GroupedGemm`] borrows what its `Products` do. On the CPU executor, each access is compared with the length of its
//! own matrix's memory.

#[cfg(not(target_arch = "nvptx64"))]
mod disjoint;
#[cfg(not(target_arch = "nvptx64"))]
mod operation;
#[cfg(not(target_arch = "nvptx64"))]
mod products;
mod row_groups;
mod teams;

use core::ptr;

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::GROUPED;
#[cfg(not(target_arch = "nvptx64"))]
pub use products::{Group, GroupError, GroupedProduct, Products};
pub use row_groups::{RowGroups, grouped_row_table};
pub use teams::*;

use super::tile_source::TileSource;
use super::tiles::{Tile, TileShape, divide, group_height, place};
use crate::alpha_beta::AlphaBeta;
use crate::{Matrix, MatrixMut};

/// The words of a product in a table: 128 bytes.
const WORDS: u64 = 16;

/// Where the words of A, of B and of C are: the address, the length of the memory from there on in elements, the strides of rows and of
/// columns.
const MATRICES: [u64; 3] = [0, 4, 8];

/// Where m and, in the upper half, n are.
const ROWS_AND_COLS: u64 = 12;

/// Where k is: behind them.
const K: u64 = ROWS_AND_COLS + 1;

/// The bits of [`GroupedGemm::contiguous`]: whether neighbours in memory are neighbours in a row, or in a column, of every A and every B.
#[cfg(not(target_arch = "nvptx64"))]
mod contiguous {
    pub(super) const ROWS_OF_A: u64 = 1;
    pub(super) const COLS_OF_A: u64 = 2;
    pub(super) const ROWS_OF_B: u64 = 4;
    pub(super) const COLS_OF_B: u64 = 8;
    pub(super) const ALL: u64 = 15;

    /// Those of one A and one B.
    pub(super) fn of(a: &crate::Matrix<'_>, b: &crate::Matrix<'_>) -> u64 {
        let bits = [
            (a.is_contiguous_along_rows(), ROWS_OF_A),
            (a.is_contiguous_along_cols(), COLS_OF_A),
            (b.is_contiguous_along_rows(), ROWS_OF_B),
            (b.is_contiguous_along_cols(), COLS_OF_B),
        ];
        bits.into_iter().map(|(is_so, bit)| if is_so { bit } else { 0 }).sum()
    }
}

/// A group of products, of whose tiles every block computes one, or several: the argument of every grouped kernel.
///
/// Invariant, which [`Group::gemm`] and [`RowGroups::gemm`] establish and kernels rely on: the table, at a multiple of 16 bytes, holds the ends of the tiles of
/// `products` products, in ascending order, the last of which is at most `tiles`, and behind them the products. Each names memory that is borrowed for `'a`, has an A of
/// m×k, a B of k×n and a C of m×n in it, and no element of any C is one of another matrix.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct GroupedGemm<'a> {
    table: GlobalSlice<'a, u64>,
    alpha_beta: AlphaBeta,
    products: u64,
    /// Of all products together, at most.
    tiles: u64,
    /// Of each product, where all have as many; otherwise 0.
    tiles_each: u64,
    tile_rows: u32,
    tile_cols: u32,
    /// See [`contiguous`].
    contiguous: u64,
}

#[cfg(not(target_arch = "nvptx64"))]
impl GroupedGemm<'_> {
    /// The tiles of all products, at most. A kernel `requires` that they are at most [`MAX_BLOCKS`](super::tiles::MAX_BLOCKS).
    pub fn tiles(&self) -> u64 {
        self.tiles
    }

    /// Whether the tiles are of this shape.
    pub fn has_tiles_of(&self, shape: TileShape) -> bool {
        (self.tile_rows, self.tile_cols) == (shape.m, shape.n)
    }

    /// Whether the elements of every row of every A are neighbours in memory.
    pub fn a_is_contiguous_along_rows(&self) -> bool {
        self.contiguous & contiguous::ROWS_OF_A != 0
    }

    /// Whether the elements of every column of every A are neighbours in memory.
    pub fn a_is_contiguous_along_cols(&self) -> bool {
        self.contiguous & contiguous::COLS_OF_A != 0
    }

    /// Whether the elements of every row of every B are neighbours in memory.
    pub fn b_is_contiguous_along_rows(&self) -> bool {
        self.contiguous & contiguous::ROWS_OF_B != 0
    }

    /// Whether the elements of every column of every B are neighbours in memory.
    pub fn b_is_contiguous_along_cols(&self) -> bool {
        self.contiguous & contiguous::COLS_OF_B != 0
    }

    /// The grid of a kernel whose blocks compute so many tiles each.
    pub(crate) fn grid(&self, tiles_of_a_block: u32) -> Dim3 {
        crate::geometry::line_of_blocks(self.tiles.div_ceil(tiles_of_a_block.into()))
    }
}

impl<'a> GroupedGemm<'a> {
    /// The product that has this tile, and the number of its first tile.
    ///
    /// # Safety
    /// There is such a tile.
    #[inline(always)]
    #[track_caller]
    unsafe fn product_of(&self, tile: u32) -> (u32, u32) {
        let each = self.tiles_each as u32;
        if each == 1 {
            return (tile, tile);
        }
        if each > 1 {
            let (product, _) = divide(tile, each);
            return (product, product * each);
        }
        // The product is among those from `low` to `high`; the tiles of those before it end at `first`.
        let (mut low, mut high, mut first) = (0, self.products as u32 - 1, 0);
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: below `high`, so a product.
            let end = unsafe { self.table.get_unchecked(middle as usize) } as u32;
            if tile < end {
                high = middle;
            } else {
                (low, first) = (middle + 1, end);
            }
            high = hint::keep_rolled(high);
        }
        (low, first)
    }

    /// Two neighbouring words of a product, by one load.
    ///
    /// # Safety
    /// There is such a product, and `word < WORDS` is even.
    #[inline(always)]
    #[track_caller]
    unsafe fn words(&self, product: u32, word: u64) -> [u64; 2] {
        let place = first_word(self.products) + u64::from(product) * WORDS + word;
        // SAFETY: inside the table, and at a multiple of 16 bytes, as the invariant has it.
        unsafe { self.table.get_vector_unchecked(place as usize) }
    }

    /// The memory of an operand, and its strides.
    ///
    /// # Safety
    /// There is such a product; `first` is where the words of A or of B are.
    #[inline(always)]
    #[track_caller]
    unsafe fn operand(&self, product: u32, first: u64, extents: [u32; 2]) -> Matrix<'a> {
        // SAFETY: the words are there, by the caller's promise. The address and the length are those of a view that is borrowed for
        // 'a, in memory of the device on which this kernel runs: `Group::gemm` and `RowGroups::gemm` ask their callers for both. Nothing writes to the
        // memory meanwhile: the results of the group share no element with it, as `Products` has found, and nothing else can
        // have a mutable view of what is borrowed. The extents and strides are those of the matrix that the view was made for,
        // all of whose elements are inside.
        unsafe {
            let [address, len] = self.words(product, first);
            let data = GlobalSlice::from_raw_parts(ptr::with_exposed_provenance(address as usize), len as usize);
            Matrix::from_parts(data, extents, self.words(product, first + 2))
        }
    }

    /// A and B of a product.
    ///
    /// # Safety
    /// There is such a product.
    #[inline(always)]
    #[track_caller]
    unsafe fn operands(&self, product: u32) -> [Matrix<'a>; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [extents, k] = self.words(product, ROWS_AND_COLS);
            let (m, n, k) = (extents as u32, (extents >> 32) as u32, k as u32);
            let [of_a, of_b, _] = MATRICES;
            [self.operand(product, of_a, [m, k]), self.operand(product, of_b, [k, n])]
        }
    }

    /// Tile `tile` of the group, where of `down`×`across` tiles of a product that in position `position` is in row and column
    /// `place(position, down, across)` of tiles; or `None` beyond the last.
    #[inline(always)]
    #[track_caller]
    fn tile_in_order(
        &self,
        shape: TileShape,
        tile: u32,
        place: impl Fn(u32, u32, u32) -> (u32, u32),
    ) -> Option<Tile<'a>> {
        // Pinned, so that a kernel which asks for its tile again, at its end, computes it again.
        let mut numbers = [tile];
        hint::pin(&mut numbers);
        let tile = numbers[0];
        if u64::from(tile) >= self.tiles {
            return None;
        }
        // SAFETY: where there can be a tile, there is a product, and the ends of tiles are the first words of the table.
        let end = unsafe { self.table.get_unchecked(self.products as usize - 1) };
        // A table that the device has made may have fewer tiles than there can be.
        if u64::from(tile) >= end {
            return None;
        }
        // SAFETY: there is such a tile, so there is a product that has it, whose words are in the table. What is said of operands
        // holds for the result, which is borrowed mutably for 'a; it shares no element with any other matrix of the group, and no
        // other block has this tile of it.
        unsafe {
            let (product, first) = self.product_of(tile);
            let operands = self.operands(product);
            let (m, n, k) = (operands[0].rows(), operands[1].cols(), operands[0].cols());
            let [_, _, of_c] = MATRICES;
            let [address, len] = self.words(product, of_c);
            let data = GlobalSliceMut::from_raw_parts(ptr::with_exposed_provenance_mut(address as usize), len as usize);
            let strides = self.words(product, of_c + 2);
            let c = MatrixMut::from_parts(data, [m, n], strides);
            let (row, col) = place(tile - first, m.div_ceil(shape.m), n.div_ceil(shape.n));
            let (row, col) = (row * shape.m, col * shape.n);
            Some(Tile::over_all_k(operands, c, self.alpha_beta, self.alpha_beta.effective_k(k), product, [row, col]))
        }
    }

    /// Tile `tile` of the group, those of each product row by row; or `None` beyond the last.
    #[inline(always)]
    #[track_caller]
    pub(super) fn tile_by_rows(&self, shape: TileShape, tile: u32) -> Option<Tile<'a>> {
        self.tile_in_order(
            shape,
            tile,
            |position, _, across| if across == 1 { (position, 0) } else { divide(position, across) },
        )
    }
}

impl<'a> TileSource<'a> for GroupedGemm<'a> {
    #[inline(always)]
    fn has_exact_selections(&self) -> bool {
        true
    }

    #[inline(always)]
    fn tile(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        self.tile_in_order(shape, block, |position, down, across| place(group_height(shape), position, down, across))
    }

    #[inline(always)]
    fn tile_soon(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        self.tile(shape, block)
    }

    #[inline(always)]
    fn operands_in_loop(&self, product: u32, _: [Matrix<'a>; 2]) -> [Matrix<'a>; 2] {
        let mut numbers = [product];
        hint::pin(&mut numbers);
        // SAFETY: the product is that of a tile, so it is in the table.
        unsafe { self.operands(numbers[0]) }
    }

    /// Sums of groups are not divided among blocks.
    #[inline(always)]
    unsafe fn tile_of_low_parts(&self, _: TileShape, _: u32) -> Option<Tile<'a>> {
        None
    }
}

/// Where the words of the first product are: behind the ends of tiles, at a multiple of 128 bytes.
#[inline(always)]
const fn first_word(products: u64) -> u64 {
    products.next_multiple_of(WORDS)
}
