//! Where a block finds its tile: in one product or a batch of equal ones ([`TiledGemm`]), or in a
//! [group](super::grouped) of products that differ. The kernels' bodies ask a [`TileSource`], and are the same for both.

use super::tiles::{Tile, TileShape, TiledGemm};
use crate::Matrix;

/// Products of which every block computes a tile.
pub(crate) trait TileSource<'a>: Copy {
    /// The tile of block `block`, or `None` for a block without one. A body that asks again at its end computes it again: what would
    /// be kept until then takes registers.
    fn tile(&self, shape: TileShape, block: u32) -> Option<Tile<'a>>;

    /// The same, sooner, at the cost of registers.
    fn tile_soon(&self, shape: TileShape, block: u32) -> Option<Tile<'a>>;

    /// [`TiledGemm::has_exact_selections`].
    fn has_exact_selections(&self) -> bool;

    /// A and B of product `product`, which are `operands`, for a step of the body's loop. Those of one product alone are parameters of the
    /// kernel, which cost no registers; those of a group are read again, because there are no registers to keep them in.
    fn operands_in_loop(&self, product: u32, operands: [Matrix<'a>; 2]) -> [Matrix<'a>; 2];

    /// The tile to which the low parts of block `block`'s sums go, if what it computes are partial sums of two parts.
    ///
    /// # Safety
    /// There is room for the low parts of partial sums, if there are partial sums.
    unsafe fn tile_of_low_parts(&self, shape: TileShape, block: u32) -> Option<Tile<'a>>;
}

impl<'a> TileSource<'a> for TiledGemm<'a> {
    #[inline(always)]
    fn tile(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        TiledGemm::tile(self, shape, block)
    }

    #[inline(always)]
    fn tile_soon(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        TiledGemm::tile_soon(self, shape, block)
    }

    #[inline(always)]
    fn has_exact_selections(&self) -> bool {
        TiledGemm::has_exact_selections(self)
    }

    #[inline(always)]
    fn operands_in_loop(&self, _: u32, operands: [Matrix<'a>; 2]) -> [Matrix<'a>; 2] {
        operands
    }

    #[inline(always)]
    unsafe fn tile_of_low_parts(&self, shape: TileShape, block: u32) -> Option<Tile<'a>> {
        if self.splits() <= 1 {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.of_low_parts() }.tile(shape, block)
    }
}
