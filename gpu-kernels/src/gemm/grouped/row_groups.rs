//! Grouped products of which only the device knows the sizes, as in a mixture of experts: the rows of A and C are divided among the
//! products by offsets in device memory. A small kernel makes the table, so that the host neither reads the offsets nor waits.
//!
//! ```text
//!            k                n
//!  ends    ┌───┐            ┌───┐
//!          │   │  · B of 0  │   │  product 0: rows 0 to below ends[0]
//!    3 ──► ├───┤            ├───┤
//!          │   │  · B of 1  │   │  product 1: rows ends[0] to below ends[1]
//!    7 ──► ├───┤            ├───┤
//!          │   │            │ 0 │  what is behind the last end: zeros, or β·C
//!          └───┘            └───┘
//!            A                C
//! ```
//!
//! Whatever the offsets are, each row of C belongs to one product: an end that is less than one before it, or more than there are rows,
//! counts as that. So the kernel that multiplies writes no element twice, and none outside of C.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::{GroupedGemm, contiguous};
use super::{K, MATRICES, ROWS_AND_COLS, WORDS, first_word};
#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
#[cfg(not(target_arch = "nvptx64"))]
use crate::alpha_beta::AlphaBeta;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::TileShape;
use crate::gemm::tiles::divide;
use crate::{Matrix, MatrixBatch, MatrixMut};

/// Products whose rows are divided by offsets: `C[rows of i] = α·A[rows of i]·B[i] + β·C[rows of i]`.
///
/// Invariant: A is rows×k, every B is k×n, C is rows×n, and there are as many ends as B. The tiles are square if the products are
/// computed as those of the transposes.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct RowGroups<'a> {
    a: Matrix<'a>,
    b: MatrixBatch<'a>,
    c: MatrixMut<'a>,
    /// The number of rows up to the end of each product.
    ends: GlobalSlice<'a, i32>,
    tile_rows: u32,
    tile_cols: u32,
    /// Not zero: the table is of `Cᵀ = α·Bᵀ·Aᵀ + β·Cᵀ`.
    transposed: u64,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> RowGroups<'a> {
    /// The rows of `a` and `c` up to `ends[0]` times the first of `b`, those from there up to `ends[1]` times the second, and so on; for a
    /// kernel with tiles of this shape, as the products of the transposes or not.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is rows×k, every B is k×n and C is rows×n, for some k and n, and there are as many ends as B.
    ///
    /// # Panics
    /// If the products are to be those of the transposes, and the tiles are not square.
    pub fn new(
        a: Matrix<'a>,
        b: MatrixBatch<'a>,
        c: MatrixMut<'a>,
        ends: GlobalSlice<'a, i32>,
        shape: TileShape,
        transposed: bool,
    ) -> Result<Self, ShapeError> {
        let equal = ShapeError::unless_equal;
        let first = b.first();
        equal(("the number of columns of A", a.cols()), ("the number of rows of B", first.rows()))?;
        equal(("the number of rows of A", a.rows()), ("the number of rows of C", c.rows()))?;
        equal(("the number of columns of B", first.cols()), ("the number of columns of C", c.cols()))?;
        let count = ShapeError::dimension("the number of ends", ends.len())?;
        equal(("the number of ends", count), ("the number of matrices B", b.count()))?;
        assert!(!transposed || shape.m == shape.n, "tiles of {}x{} are not square", shape.m, shape.n);
        let (tile_rows, tile_cols) = (shape.m, shape.n);
        Ok(Self { a, b, c, ends, tile_rows, tile_cols, transposed: transposed.into() })
    }

    /// The products of the table: one for each B, and one without terms for the rows behind the last end.
    fn products(&self) -> u64 {
        u64::from(self.b.count()) + 1
    }

    /// The words of the table.
    pub fn words(&self) -> usize {
        (first_word(self.products()) + self.products() * WORDS) as usize
    }

    /// The tiles that the products have at most, whatever the ends are.
    pub fn most_tiles(&self) -> u64 {
        let down = u64::from(self.c.rows() / self.tile_rows) + self.products();
        down * u64::from(self.c.cols().div_ceil(self.tile_cols))
    }

    /// The products, by a kernel that reads the table.
    ///
    /// # Safety
    /// Wherever a kernel with this argument runs, [`grouped_row_table`] has run before with `self` and the memory that `table` is a
    /// view of, at a multiple of 16 bytes, and nothing else has written to it since.
    pub unsafe fn gemm<'t>(&self, alpha: f32, table: GlobalSlice<'t, u64>, beta: f32) -> GroupedGemm<'t>
    where
        'a: 't,
    {
        let (a, b) = match self.transposed != 0 {
            false => (self.a, self.b.first()),
            true => (self.b.first().transposed(), self.a.transposed()),
        };
        let is_read = a.rows() > 0 && a.cols() > 0 && b.cols() > 0;
        GroupedGemm {
            table,
            alpha_beta: AlphaBeta { alpha, beta },
            products: self.products(),
            tiles: self.most_tiles(),
            tiles_each: 0,
            tile_rows: self.tile_rows,
            tile_cols: self.tile_cols,
            contiguous: if is_read { contiguous::of(&a, &b) } else { contiguous::ALL },
        }
    }
}

impl RowGroups<'_> {
    /// Writes the words of product `product`, whose rows are those from `first` to below `end`.
    ///
    /// # Safety
    /// There is such a product and there are such rows; the table has room for all products, and no other thread writes these words.
    #[inline(always)]
    #[track_caller]
    unsafe fn write(&self, table: &GlobalSliceMut<'_, u64>, product: u32, first: u32, end: u32) {
        let (count, n) = (self.b.count(), self.c.cols());
        let products = u64::from(count) + 1;
        let (m, k) = (end - first, if product < count { self.a.cols() } else { 0 });
        let skipped = u64::from(first);
        // SAFETY: the first row is a row, or the end of the matrix, where there may be no element: then nothing is read or written. A
        // B that is not there is not read, because the product has no terms.
        let (a, b, c) = unsafe {
            let none_is_left = m == 0;
            let a = self.a.moved_by(if none_is_left { 0 } else { skipped * self.a.row_stride() });
            let c = self.c.moved_by(if none_is_left { 0 } else { skipped * self.c.row_stride() });
            (a, if product < count { self.b.at(product) } else { self.b.first() }, c)
        };
        let of_a =
            [a.data().as_ptr().expose_provenance() as u64, a.data().len() as u64, a.row_stride(), a.col_stride()];
        let of_b =
            [b.data().as_ptr().expose_provenance() as u64, b.data().len() as u64, b.row_stride(), b.col_stride()];
        let of_c =
            [c.data().as_mut_ptr().expose_provenance() as u64, c.data().len() as u64, c.row_stride(), c.col_stride()];
        let turned = |[address, len, rows, cols]: [u64; 4]| [address, len, cols, rows];
        let (matrices, rows, cols) = match self.transposed != 0 {
            false => ([of_a, of_b, of_c], m, n),
            true => ([turned(of_b), turned(of_a), turned(of_c)], n, m),
        };
        let place = (first_word(products) + u64::from(product) * WORDS) as usize;
        // SAFETY: the words are this thread's, by the caller's promise.
        unsafe {
            for matrix in 0..3 {
                for word in 0..4 {
                    table.set_unchecked(place + MATRICES[matrix] as usize + word, matrices[matrix][word]);
                }
            }
            table.set_unchecked(place + ROWS_AND_COLS as usize, u64::from(rows) | u64::from(cols) << 32);
            table.set_unchecked(place + K as usize, k.into());
        }
    }
}

/// Makes the table of products whose rows are divided by offsets: one warp, a lane for each product, 32 at a time.
#[kernel(block = 32, requires(table.len() == groups.words()))]
pub fn grouped_row_table(groups: RowGroups<'_>, table: GlobalSliceMut<'_, u64>) {
    let lane = thread::thread_idx_x();
    let (count, rows) = (groups.b.count(), groups.c.rows());
    let across = tiles_along(groups.c.cols(), groups.tile_cols);
    // Where the products before these 32 end: in rows, and in tiles.
    let (mut end_before, mut tiles_before, mut first) = (0, 0, 0);
    while first <= count {
        let product = first + lane;
        let mut end = match product < count {
            // SAFETY: there are as many ends as B.
            true => (unsafe { groups.ends.get_unchecked(product as usize) }).max(0).min(rows as i32) as u32,
            false => rows,
        };
        // The largest end up to this one, and then the tiles up to this one.
        // SAFETY: all lanes come here, as often.
        let (start, tiles) = unsafe {
            let mut distance = 1;
            while distance < warp::LANES {
                let (other, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, end, distance, warp::LANES);
                end = if is_there { end.max(other) } else { end };
                distance *= 2;
            }
            end = end.max(end_before);
            let (before, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, end, 1, warp::LANES);
            let start = if is_there { before } else { end_before };
            let mut tiles = tiles_along(end - start, groups.tile_rows) * across;
            let mut distance = 1;
            while distance < warp::LANES {
                let (other, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, tiles, distance, warp::LANES);
                tiles += if is_there { other } else { 0 };
                distance *= 2;
            }
            (start, tiles + tiles_before)
        };
        if product <= count {
            // SAFETY: there is such a product, and this lane alone writes its words and its end.
            unsafe {
                table.set_unchecked(product as usize, tiles.into());
                groups.write(&table, product, start, end);
            }
        }
        // SAFETY: all lanes come here, as often.
        unsafe {
            (end_before, _) = warp::warp_shuffle_idx(warp::ALL_LANES, end, warp::LANES - 1, warp::LANES);
            (tiles_before, _) = warp::warp_shuffle_idx(warp::ALL_LANES, tiles, warp::LANES - 1, warp::LANES);
        }
        first = hint::keep_rolled(first + warp::LANES);
    }
}

/// How many tiles of a length there are along an extent, which is below 2³¹. (`div_ceil` brings panic code for a length of zero with it.)
#[inline(always)]
fn tiles_along(extent: u32, length: u32) -> u32 {
    divide(extent.wrapping_add(length).wrapping_sub(1), length).0
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for grouped_row_table<'_> {
    fn grid(&self) -> Dim3 {
        Dim3::new(1, 1, 1)
    }
}
