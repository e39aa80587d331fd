//! The same numbers in other places: what comes before a product whose kernel cannot load an operand as it lies.
//!
//! ```text
//!  a b c d e · ·     any strides    ┌────────────┐     a f          any strides: by rows, by columns, aligned,
//!  f g h i j · ·   ───────────────► │ tile 64×64 │ ──► b g          whatever the kernel needs
//!                                   └────────────┘     c h …
//! ```
//!
//! Both the loads and the stores of a warp are of 32 neighbours in memory, also where the copy is a transpose: that is what
//! the tile in shared memory is for. What it costs: reading and writing every number once. 16.6 KB of shared memory; any
//! device.
//!
//! What the fallback of a product needs of an operand is copied only where there are flags
//! ([`fallback`](crate::gemm::hopper::fallback)): nothing, usually, and then it costs a launch.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::tile::{self, PITCH, Place, SIDE, Tiles};
use crate::gemm::hopper::fallback::GROUP;
use crate::{MatrixBatch, MatrixBatchMut};

/// Whether there are as many matrices of one kind as of the other, of the same shape.
#[cfg(not(target_arch = "nvptx64"))]
fn are_alike(from: &MatrixBatch<'_>, to: &MatrixBatchMut<'_>) -> bool {
    let (one, other) = (from.first(), to.first());
    (one.rows(), one.cols(), from.count()) == (other.rows(), other.cols(), to.count())
}

/// Copies matrices, from whatever strides to whatever strides.
#[kernel(block = 256, min_blocks = 5, requires(are_alike(&from, &to)))]
pub fn matrix_copy_fp32(from: MatrixBatch<'_>, to: MatrixBatchMut<'_>) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    // SAFETY: all threads of the block come here, for the same tiles. A barrier separates what is written to the tile in
    // shared memory from what others read of it, and another one, in `for_each`, those reads from the next writes. A launch
    // has checked that both batches have as many matrices, of one shape; each of their elements is in one tile.
    unsafe {
        Tiles::of(&from).for_each(|place| {
            tile::load(&from.at(place.matrix), place, &TILE);
            thread::sync_threads();
            tile::store(&to.at(place.matrix), place, &TILE);
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_copy_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(Tiles::of(&self.from).count)
    }
}

/// The most blocks of [`matrix_copy_flagged_fp32`]: enough to keep a GPU busy, and to find out soon that there is nothing to do.
#[cfg(not(target_arch = "nvptx64"))]
const MOST_BLOCKS: u64 = 1024;

/// The flags of the operands of some products, of which one is copied: for each group of [`GROUP`] lines of each matrix, not zero if a line
/// of it is left to the fallback.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Flags<'a> {
    /// Of the operand that is copied.
    pub own: GlobalSlice<'a, u32>,
    /// Of the other operand.
    pub other: GlobalSlice<'a, u32>,
    /// How many of these belong to the products of one matrix of this operand: those of one matrix of the other, or all, if all products share this
    /// operand or the other one.
    pub others_of_one: u32,
}

impl Flags<'_> {
    /// Whether there are flags of `count` matrices of `lines` lines, and of the other ones.
    #[cfg(not(target_arch = "nvptx64"))]
    fn are_of(&self, lines: u32, count: u32) -> bool {
        let (all, of_one) = (self.other.len() as u64, u64::from(self.others_of_one));
        self.own.len() as u64 == u64::from(lines.div_ceil(GROUP)) * u64::from(count)
            && (all == of_one || all == of_one * u64::from(count))
    }

    /// Whether any of some flags is set.
    ///
    /// # Safety
    /// All lanes of the warp come here; there are flags from `first` to `end`.
    #[inline(always)]
    unsafe fn any(flags: GlobalSlice<'_, u32>, first: usize, end: usize) -> bool {
        let (mut any, mut at) = (false, first + warp::lane_id() as usize);
        while at < end {
            // SAFETY: the caller's promise.
            any |= unsafe { flags.get_unchecked(at) } != 0;
            at += warp::LANES as usize;
        }
        // SAFETY: all lanes come here.
        unsafe { warp::warp_vote_any(warp::ALL_LANES, any) }
    }

    /// Whether the fallback needs the lines of a tile: it computes what has a flag of either operand.
    ///
    /// # Safety
    /// All lanes of the warp come here; there are flags of matrices of `lines` lines, of which the tile is one.
    #[inline(always)]
    unsafe fn need(&self, place: Place, lines: u32) -> bool {
        let others = self.others_of_one as usize;
        let first = if others < self.other.len() { place.matrix as usize * others } else { 0 };
        let own = place.matrix as usize * lines.div_ceil(GROUP) as usize + (place.line / GROUP) as usize;
        // SAFETY: the caller's promise.
        unsafe { self.own.get_unchecked(own) != 0 || Self::any(self.other, first, first + others) }
    }
}

/// Copies those groups of [`GROUP`] rows of matrices that the fallback needs, from whatever strides to whatever strides.
#[kernel(block = 256, min_blocks = 5, requires(are_alike(&from, &to), flags.are_of(from.first().rows(), from.count())))]
pub fn matrix_copy_flagged_fp32(from: MatrixBatch<'_>, to: MatrixBatchMut<'_>, flags: Flags<'_>) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    const { assert!(GROUP.is_multiple_of(SIDE), "a tile is of one group") };
    // SAFETY: as in `matrix_copy_fp32`; all threads of a block come to the same conclusions, since all of its warps look at the same flags. A
    // launch has checked that there is one for each group.
    unsafe {
        if !Flags::any(flags.own, 0, flags.own.len()) && !Flags::any(flags.other, 0, flags.other.len()) {
            return;
        }
        Tiles::of(&from).for_each(|place| {
            if flags.need(place, from.first().rows()) {
                tile::load(&from.at(place.matrix), place, &TILE);
                thread::sync_threads();
                tile::store(&to.at(place.matrix), place, &TILE);
            }
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_copy_flagged_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(Tiles::of(&self.from).count.min(MOST_BLOCKS))
    }
}
