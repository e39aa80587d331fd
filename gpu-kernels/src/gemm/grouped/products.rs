//! Grouped products on the host: which matrices make a group, and the table that a kernel reads.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use cuda_std::GlobalSlice;

use super::disjoint::{Extent, sharing};
use super::{GroupedGemm, K, MATRICES, ROWS_AND_COLS, WORDS, contiguous, first_word};
use crate::alpha_beta::AlphaBeta;
use crate::gemm::tiles::{MAX_BLOCKS, TileShape};
use crate::{Matrix, MatrixMut, ShapeError};

/// One product of a group: `C = α·A·B + β·C`.
#[derive(Clone, Copy)]
pub struct GroupedProduct<'a> {
    /// m×k.
    pub a: Matrix<'a>,
    /// k×n.
    pub b: Matrix<'a>,
    /// m×n.
    pub c: MatrixMut<'a>,
}

/// Why matrices make no group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The matrices of a product do not make one.
    #[error("product {product} of the group: {source}")]
    Shape {
        /// Its number, from 0.
        product: usize,
        /// What does not fit.
        source: ShapeError,
    },
    /// A result shares elements with another matrix.
    #[error(
        "{first} of product {first_product} and {second} of product {second_product} of the group share elements, or lie between \
         each other's rows with different strides: the products run at the same time, so give each C memory of its own"
    )]
    Overlap {
        /// `A`, `B` or `C`.
        first: &'static str,
        /// Whose it is.
        first_product: usize,
        /// `A`, `B` or `C`.
        second: &'static str,
        /// Whose it is.
        second_product: usize,
    },
    /// There are more tiles than a grid has blocks.
    #[error(
        "the products of the group have {tiles} tiles of {rows} x {cols}, which are more than the blocks of a grid, 2147483647 (2^31 - \
         1): make two groups of them"
    )]
    TooManyTiles {
        /// The tiles.
        tiles: u64,
        /// The rows of a tile.
        rows: u32,
        /// The columns of a tile.
        cols: u32,
    },
}

impl<'a> GroupedProduct<'a> {
    /// The product of the transposes, `Cᵀ = α·Bᵀ·Aᵀ + β·Cᵀ`: the same numbers in the same places.
    pub fn transposed(self) -> Self {
        Self { a: self.b.transposed(), b: self.a.transposed(), c: self.c.transposed() }
    }

    /// The rows of C, its columns, and the terms of its sums.
    fn sizes(&self) -> [u32; 3] {
        [self.c.rows(), self.c.cols(), self.a.cols()]
    }

    fn check(&self) -> Result<(), ShapeError> {
        let Self { a, b, c } = self;
        let equal = ShapeError::unless_equal;
        equal(("the number of columns of A", a.cols()), ("the number of rows of B", b.rows()))?;
        equal(("the number of rows of A", a.rows()), ("the number of rows of C", c.rows()))?;
        equal(("the number of columns of B", b.cols()), ("the number of columns of C", c.cols()))
    }

    /// The matrices that have elements which a kernel reads or writes.
    fn extents(&self, product: usize) -> impl Iterator<Item = Extent> {
        let [m, n, k] = self.sizes();
        let extent = |address: usize, extents, strides, is_result, name| {
            let first = (address / size_of::<f32>()) as u64;
            Extent { first, extents, strides, is_result, product, name }
        };
        let strides = |matrix: &Matrix<'_>| [matrix.row_stride(), matrix.col_stride()];
        let a = extent(self.a.data().as_ptr().addr(), [m, k], strides(&self.a), false, "A");
        let b = extent(self.b.data().as_ptr().addr(), [k, n], strides(&self.b), false, "B");
        let of_c = [self.c.row_stride(), self.c.col_stride()];
        let c = extent(self.c.data().as_mut_ptr().addr(), [m, n], of_c, true, "C");
        let has_results = m > 0 && n > 0;
        [a, b, c].into_iter().filter(move |matrix| has_results && !matrix.extents.contains(&0))
    }

    /// Which neighbours in memory are neighbours in a row or a column of A and of B; all of them where nothing is read.
    fn contiguous(&self) -> u64 {
        if self.sizes().contains(&0) {
            return contiguous::ALL;
        }
        contiguous::of(&self.a, &self.b)
    }

    /// How many tiles of a shape C has.
    fn tiles(&self, shape: TileShape) -> u64 {
        u64::from(self.c.rows().div_ceil(shape.m)) * u64::from(self.c.cols().div_ceil(shape.n))
    }

    /// The words of a table.
    fn words(&self) -> [u64; WORDS as usize] {
        let mut words = [0; WORDS as usize];
        let [m, n, k] = self.sizes();
        // The kernel makes pointers of the addresses, so the provenance of these is exposed.
        let memory = |matrix: &Matrix<'a>| (matrix.data().as_ptr().expose_provenance(), matrix.data().len());
        let of_c = (self.c.data().as_mut_ptr().expose_provenance(), self.c.data().len());
        let strides = [
            [self.a.row_stride(), self.a.col_stride()],
            [self.b.row_stride(), self.b.col_stride()],
            [self.c.row_stride(), self.c.col_stride()],
        ];
        for ((place, (address, len)), strides) in
            MATRICES.into_iter().zip([memory(&self.a), memory(&self.b), of_c]).zip(strides)
        {
            words[place as usize..][..4].copy_from_slice(&[address as u64, len as u64, strides[0], strides[1]]);
        }
        words[ROWS_AND_COLS as usize] = u64::from(m) | u64::from(n) << 32;
        words[K as usize] = k.into();
        words
    }
}

/// Products that may run at the same time.
///
/// Invariant: the matrices of each make a product, and no element of any C is one of another matrix.
pub struct Products<'a> {
    all: Vec<GroupedProduct<'a>>,
}

impl<'a> Products<'a> {
    /// These products, which are numbered from 0.
    ///
    /// # Errors
    /// [`GroupError::Shape`] unless A is m×k, B is k×n and C is m×n for some m, n and k; [`GroupError::Overlap`] if an element of
    /// a C is one of another matrix.
    pub fn new(all: Vec<GroupedProduct<'a>>) -> Result<Self, GroupError> {
        for (product, matrices) in all.iter().enumerate() {
            matrices.check().map_err(|source| GroupError::Shape { product, source })?;
        }
        let extents = all.iter().enumerate().flat_map(|(product, matrices)| matrices.extents(product)).collect();
        if let Some([first, second]) = sharing(extents) {
            return Err(GroupError::Overlap {
                first: first.name,
                first_product: first.product,
                second: second.name,
                second_product: second.product,
            });
        }
        Ok(Self { all })
    }

    /// The table of some of the products, in this order, for tiles of a shape. Products without results have no place in it.
    ///
    /// # Errors
    /// [`GroupError::TooManyTiles`].
    ///
    /// # Panics
    /// If there is no product of one of the numbers, or if one is there twice.
    pub fn group(&self, numbers: &[usize], shape: TileShape) -> Result<Group<'a>, GroupError> {
        let mut seen = vec![false; self.all.len()];
        for &number in numbers {
            assert!(!core::mem::replace(&mut seen[number], true), "product {number} is to be computed twice");
        }
        let with_results =
            || numbers.iter().map(|&number| &self.all[number]).filter(|product| product.tiles(shape) > 0);
        let products = with_results().count() as u64;
        let mut words = Vec::with_capacity((first_word(products) + products * WORDS) as usize);
        let (mut tiles, mut tiles_each, mut is_contiguous) = (0u64, None, contiguous::ALL);
        for product in with_results() {
            let own = product.tiles(shape);
            tiles = tiles.saturating_add(own);
            words.push(tiles);
            tiles_each = Some(if tiles_each.is_none_or(|each| each == own) { own } else { 0 });
            is_contiguous &= product.contiguous();
        }
        if tiles > MAX_BLOCKS {
            return Err(GroupError::TooManyTiles { tiles, rows: shape.m, cols: shape.n });
        }
        words.resize(first_word(products) as usize, 0);
        with_results().for_each(|product| words.extend(product.words()));
        let tiles_each = tiles_each.unwrap_or(0);
        Ok(Group { words, products, tiles, tiles_each, shape, is_contiguous, borrowed: PhantomData })
    }
}

/// Products that one launch computes, and the table of them.
pub struct Group<'a> {
    words: Vec<u64>,
    products: u64,
    tiles: u64,
    tiles_each: u64,
    shape: TileShape,
    is_contiguous: u64,
    borrowed: PhantomData<(Matrix<'a>, MatrixMut<'a>)>,
}

impl<'a> Group<'a> {
    /// The table, to be copied to the device.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The tiles of all products.
    pub fn tiles(&self) -> u64 {
        self.tiles
    }

    /// `C = α·A·B + β·C` for each product, by a kernel that reads the table.
    ///
    /// # Safety
    /// Wherever a kernel with this argument runs, `table`, which begins at a multiple of 16 bytes, holds [`Group::words`], and the memory of every matrix
    /// is that device's.
    pub unsafe fn gemm<'t>(&self, alpha: f32, table: GlobalSlice<'t, u64>, beta: f32) -> GroupedGemm<'t>
    where
        'a: 't,
    {
        GroupedGemm {
            table,
            alpha_beta: AlphaBeta { alpha, beta },
            products: self.products,
            tiles: self.tiles,
            tiles_each: self.tiles_each,
            tile_rows: self.shape.m,
            tile_cols: self.shape.n,
            contiguous: self.is_contiguous,
        }
    }
}
