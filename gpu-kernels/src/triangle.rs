//! The triangle of a result that is wanted: upper, lower, or all of it.
//!
//! ```text
//!  upper: column ≥ row          lower: column ≤ row          tiles that are computed
//!
//!  ■ ■ ■ ■ ■                    ■                            ┌───┬───┬───┐
//!    ■ ■ ■ ■                    ■ ■                          │ ▒ │ ■ │ ■ │     ■ all of it is wanted
//!      ■ ■ ■                    ■ ■ ■                        ├───┼───┼───┤     ▒ some of it: computed whole, and what is
//!        ■ ■                    ■ ■ ■ ■                      │   │ ▒ │ ■ │       not wanted is set to zero afterwards
//!                                                            └───┴───┴───┘
//! ```
//!
//! In a product of two triangular matrices, the further an element is from the diagonal, the more k count. A kernel that knows this
//! begins with the longest tiles: then no block is left with one at the end.

use cuda_std::Layout;
use cuda_std::prelude::*;

use crate::gemm::tiles::TileShape;

/// Which elements of a matrix.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// All of them.
    #[default]
    All = 0,
    /// Those on the diagonal and to the right of it: `triu` of NumPy.
    Upper = 1,
    /// Those on the diagonal and to the left of it: `tril` of NumPy.
    Lower = 2,
}

// SAFETY: `repr(u32)`, the same on the GPU and on the CPU; a launch passes on a value of the host, which is one of these. No
// views.
unsafe impl KernelParam for Triangle {
    const LAYOUT: u64 = Layout::new("Triangle").sized::<Self>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    const HAS_VIEWS: bool = false;

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, _name: cuda_std::ViewName<'_>, _visit: &mut dyn FnMut(cuda_std::View<'_>)) {}
}

impl Triangle {
    /// The same elements of the transpose.
    #[must_use]
    pub fn transposed(self) -> Self {
        match self {
            Self::All => Self::All,
            Self::Upper => Self::Lower,
            Self::Lower => Self::Upper,
        }
    }

    /// Whether an element is wanted.
    #[inline(always)]
    pub fn contains(self, row: u32, col: u32) -> bool {
        match self {
            Self::All => true,
            Self::Upper => col >= row,
            Self::Lower => col <= row,
        }
    }

    /// Whether all elements of `height` rows from `row` on, and `width` columns from `col` on, are wanted.
    #[inline(always)]
    pub(crate) fn contains_all(self, [row, col]: [u32; 2], [height, width]: [u32; 2]) -> bool {
        match self {
            Self::All => true,
            Self::Upper => col >= row + (height - 1),
            Self::Lower => col + (width - 1) <= row,
        }
    }

    /// Of the `down` tiles in column `col` of tiles, the first of which an element is wanted, and the one behind the last.
    #[inline(always)]
    fn of_column(self, shape: TileShape, col: u32, down: u32) -> (u32, u32) {
        match self {
            Self::All => (0, down),
            Self::Upper => (0, down.min(((col + 1) * shape.n).div_ceil(shape.m))),
            Self::Lower => (down.min(col * shape.n / shape.m), down),
        }
    }

    /// Of how many of `down`×`across` tiles an element is wanted.
    #[inline(always)]
    pub(crate) fn tiles(self, shape: TileShape, down: u32, across: u32) -> u32 {
        let mut tiles = 0;
        for col in 0..across {
            let (first, end) = self.of_column(shape, col, down);
            tiles += end - first;
        }
        tiles
    }

    /// The row and the column of tiles of one of those tiles, which is in position `position` among them: first those that are
    /// far from the diagonal.
    #[inline(always)]
    pub(crate) fn tile(self, shape: TileShape, down: u32, across: u32, position: u32) -> (u32, u32) {
        let mut left = position;
        for number in 0..across {
            let col = if self == Self::Upper { across - 1 - number } else { number };
            let (first, end) = self.of_column(shape, col, down);
            if left < end - first {
                return (if self == Self::Lower { end - 1 - left } else { first + left }, col);
            }
            left -= end - first;
        }
        (0, 0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    const SHAPES: [TileShape; 3] =
        [TileShape { m: 128, n: 256, k: 64 }, TileShape { m: 64, n: 32, k: 32 }, TileShape { m: 48, n: 80, k: 8 }];

    #[test]
    fn every_tile_with_a_wanted_element_has_one_position() {
        for triangle in [Triangle::All, Triangle::Upper, Triangle::Lower] {
            for shape in SHAPES {
                for (m, n) in [(1u32, 1u32), (500, 500), (1000, 300), (300, 1000), (128, 513), (1, 700), (700, 1)] {
                    let (down, across) = (m.div_ceil(shape.m), n.div_ceil(shape.n));
                    let wanted: HashSet<_> = (0..down)
                        .flat_map(|row| (0..across).map(move |col| (row, col)))
                        .filter(|&(row, col)| {
                            let rows = row * shape.m..(row + 1) * shape.m;
                            rows.into_iter()
                                .any(|row| (col * shape.n..(col + 1) * shape.n).any(|col| triangle.contains(row, col)))
                        })
                        .collect();
                    let tiles = triangle.tiles(shape, down, across);
                    let found: HashSet<_> = (0..tiles).map(|at| triangle.tile(shape, down, across, at)).collect();
                    assert_eq!((found.len() as u32, &found), (tiles, &wanted), "{triangle:?} of {m}x{n} in {shape:?}");
                }
            }
        }
    }

    #[test]
    fn whole_tiles_are_those_without_an_unwanted_element() {
        for triangle in [Triangle::All, Triangle::Upper, Triangle::Lower] {
            for (row, col) in (0..9).flat_map(|row| (0..9).map(move |col| (row, col))) {
                let wanted = (row..row + 3).all(|row| (col..col + 2).all(|col| triangle.contains(row, col)));
                assert_eq!(triangle.contains_all([row, col], [3, 2]), wanted, "{triangle:?} at {row}, {col}");
                assert_eq!(triangle.contains(row, col), triangle.transposed().contains(col, row));
            }
        }
    }

    #[test]
    fn the_longest_sums_of_triangular_operands_come_first() {
        let shape = SHAPES[0];
        assert_eq!(Triangle::Upper.tile(shape, 32, 16, 0), (0, 15));
        assert_eq!(Triangle::Upper.tile(shape, 32, 16, 1), (1, 15));
        assert_eq!(Triangle::Lower.tile(shape, 32, 16, 0), (31, 0));
        assert_eq!(Triangle::Lower.tile(shape, 32, 16, 1), (30, 0));
        let tiles = Triangle::Upper.tiles(shape, 32, 16);
        assert_eq!((tiles, Triangle::Upper.tile(shape, 32, 16, tiles - 1)), (272, (1, 0)));
    }
}
