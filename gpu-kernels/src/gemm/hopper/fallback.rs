//! Which tiles of a product are left to the fallback: another kernel, launched before, could not multiply their operands.
//!
//! ```text
//!               columns of B, 256 each
//!                0    1    0
//!              ┌────┬────┬────┐
//!  rows      0 │    │ ▒▒ │    │         ▒ computed by the fallback: a row of A or a column of B
//!  of A,       ├────┼────┼────┤           that it needs has a flag
//!  256 each  1 │ ▒▒ │ ▒▒ │ ▒▒ │
//!              └────┴────┴────┘
//! ```

use cuda_std::prelude::*;

use crate::gemm::tiles::Tile;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::TiledGemm;

/// The rows of A, or columns of B, that have one flag.
pub const GROUP: u32 = 256;

/// Which rows of A and columns of B another kernel could not multiply: for each group of 256 rows of every A, and of 256 columns of
/// every B, not zero if any of them. The flags of product `i` begin at `i · ⌈m/256⌉` and `i · ⌈n/256⌉`. Both empty: everything
/// is to be computed.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Fallback<'a> {
    /// The flags of A.
    pub a: GlobalSlice<'a, u32>,
    /// The flags of B.
    pub b: GlobalSlice<'a, u32>,
}

impl Fallback<'_> {
    /// No flags: everything is to be computed.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn everything() -> Self {
        Self { a: GlobalSlice::new(&[]), b: GlobalSlice::new(&[]) }
    }

    /// Whether there are no flags.
    #[inline(always)]
    pub fn is_everything(&self) -> bool {
        self.a.is_empty() && self.b.is_empty()
    }

    /// Whether there are no flags, or one for each group of a product.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn covers(&self, gemm: &TiledGemm<'_>) -> bool {
        self.is_everything() || self.has_flags_of(gemm)
    }

    /// Whether there is a flag for each group of a product.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn has_flags_of(&self, gemm: &TiledGemm<'_>) -> bool {
        let groups = |lines: u32, matrices: u32| u64::from(lines.div_ceil(GROUP)) * u64::from(matrices);
        self.a.len() as u64 >= groups(gemm.m(), gemm.a().distinct())
            && self.b.len() as u64 >= groups(gemm.n(), gemm.b().distinct())
    }

    /// Whether a tile, which lies in one group of rows and one of columns, is to be computed.
    ///
    /// # Safety
    /// [`Fallback::covers`] the product, and the tile is one of it.
    #[inline(always)]
    pub(super) unsafe fn contains(&self, tile: &Tile<'_>) -> bool {
        if self.is_everything() {
            return true;
        }
        let [of_a, of_b] = flags_of(tile);
        // SAFETY: there is a flag for each group, by the caller's promise.
        unsafe { self.a.get_unchecked(of_a) | self.b.get_unchecked(of_b) != 0 }
    }
}

/// Which flags of A and of B a tile has.
#[inline(always)]
pub(super) fn flags_of(tile: &Tile<'_>) -> [usize; 2] {
    let flag = |matrix: u32, lines: u32, first: u32| (matrix * lines.div_ceil(GROUP) + first / GROUP) as usize;
    [flag(tile.matrices[0], tile.c.rows(), tile.row), flag(tile.matrices[1], tile.c.cols(), tile.col)]
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashMap;

    use super::*;
    use crate::gemm::hopper::decomposed::TILE;
    use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

    const ROWS: usize = 600;
    const COLS: usize = 300;

    /// Two products; `shared` says of A and of B whether both have the same.
    fn with_two_products(shared: [bool; 2], test: impl FnOnce(TiledGemm<'_>)) {
        let mut results = std::vec![0.0; ROWS * COLS * 2];
        let a = Matrix::new(GlobalSlice::new(&[0.0; 2 * ROWS]), ROWS, 1, 1, 1).unwrap();
        let b = Matrix::new(GlobalSlice::new(&[0.0; 2 * COLS]), 1, COLS, COLS, 1).unwrap();
        let c = MatrixMut::new(GlobalSliceMut::new(&mut results), ROWS, COLS, COLS, 1).unwrap();
        let c = MatrixBatchMut::new(c, ROWS * COLS, 2).unwrap();
        let [stride_a, stride_b] =
            [(shared[0], ROWS), (shared[1], COLS)].map(|(is, stride)| if is { 0 } else { stride });
        let (a, b) = (MatrixBatch::new(a, stride_a, 2).unwrap(), MatrixBatch::new(b, stride_b, 2).unwrap());
        test(TiledGemm::new(1.0, a, b, 0.0, c).unwrap());
    }

    #[test]
    fn every_group_has_a_flag() {
        for shared in [[false, false], [true, false], [false, true], [true, true]] {
            with_two_products(shared, |gemm| {
                let tiles = (0..gemm.blocks(TILE) as u32).map(|block| gemm.tile(TILE, block).unwrap());
                let flags: HashMap<_, _> =
                    tiles.map(|tile| ((tile.product, tile.row, tile.col), flags_of(&tile))).collect();
                assert_eq!(flags.len(), 2 * 3 * 3);
                assert_eq!((flags[&(0, 0, 0)], flags[&(0, 0, 128)]), ([0, 0], [0, 0]));
                assert_eq!((flags[&(0, 512, 128)], flags[&(0, 256, 256)]), ([2, 0], [1, 1]));
                // Of the second product, those behind the three of the first A and the two of the first B.
                let of_second =
                    |[a, b]: [usize; 2]| [if shared[0] { a } else { 3 + a }, if shared[1] { b } else { 2 + b }];
                assert_eq!((flags[&(1, 0, 0)], flags[&(1, 512, 256)]), (of_second([0, 0]), of_second([2, 1])));
            });
        }
    }

    #[test]
    fn flags_are_enough_or_none() {
        with_two_products([false; 2], |gemm| {
            let flags =
                |of_a, of_b| Fallback { a: GlobalSlice::new(&[1; 9][..of_a]), b: GlobalSlice::new(&[1; 9][..of_b]) };
            assert!(!Fallback::everything().has_flags_of(&gemm));
            assert!(Fallback::everything().covers(&gemm) && flags(6, 4).covers(&gemm) && flags(7, 9).covers(&gemm));
            for (of_a, of_b) in [(5, 4), (6, 3), (6, 0), (0, 4)] {
                assert!(!flags(of_a, of_b).covers(&gemm), "{of_a}, {of_b}");
            }
        });
        with_two_products([true, false], |gemm| {
            let flags =
                |of_a, of_b| Fallback { a: GlobalSlice::new(&[1; 3][..of_a]), b: GlobalSlice::new(&[1; 4][..of_b]) };
            assert!(flags(3, 4).covers(&gemm) && !flags(2, 4).covers(&gemm) && !flags(3, 2).covers(&gemm));
        });
    }
}
