//! Exceptions: single numbers that pairs of fp16 numbers cannot hold, in lines that can be packed otherwise.
//!
//! ```text
//!  64 terms of a line        1.3   0.2   1e-12   0.7  …      1e-12 is too small beside 1.3: its bits are below those of a pair
//!  as pairs                  1.3   0.2     0     0.7  …
//!  the list of 256 lines     1 │ line 5, term 2 │ …          the kernel that multiplies adds A[5, 2] · B[2, j] to row 5 by itself
//! ```
//!
//! One in some ten millions of random numbers is such a number. What it would cost to leave whole tiles to another kernel is the time of a tile, which is
//! long where sums are; an exception costs a row or a column of fused operations.
//!
//! A [`GROUP`] of lines has a list of at most [`MOST`] of them, and each 64 terms of 64 of its lines at most one: a line with more of them is left to the
//! fallback. The lists are in an order that follows from the numbers alone, so that sums are rounded in the same order each time.

use cuda_std::prelude::*;

use super::tile::SIDE;
#[cfg(not(target_arch = "nvptx64"))]
use crate::Matrix;
use crate::MatrixBatch;
use crate::gemm::hopper::fallback::GROUP;

/// The most exceptions of a group.
pub const MOST: u32 = 16;
/// The words of a list: how many exceptions there are, and a line in the group and a term of each.
pub const LIST: u32 = 1 + 2 * MOST;

/// The words of the lists of so many matrices.
pub fn list_words(lines: u32, matrices: u32) -> u128 {
    u128::from(lines.div_ceil(GROUP)) * u128::from(LIST) * u128::from(matrices)
}

/// The exceptions of an operand, and the operand.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Exceptions<'a> {
    /// A list of [`LIST`] words for each group of [`GROUP`] lines of each matrix.
    pub lists: GlobalSlice<'a, u32>,
    /// The operand that was packed, whose rows are lines.
    pub source: MatrixBatch<'a>,
}

impl Exceptions<'_> {
    /// None, of an operand that is not packed.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn nothing() -> Self {
        // SAFETY: a matrix of no elements.
        let none = unsafe { Matrix::from_parts(GlobalSlice::new(&[]), [0, 0], [0, 0]) };
        Self { lists: GlobalSlice::new(&[]), source: MatrixBatch::of_one(none) }
    }

    /// Whether there is a list for each group of `count` matrices of `lines` lines of `terms` terms, and the source is these matrices.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn are_of(&self, count: u32, lines: u32, terms: u32) -> bool {
        let first = self.source.first();
        self.lists.len() as u128 >= list_words(lines, count)
            && [self.source.count(), first.rows(), first.cols()] == [count, lines, terms]
    }

    /// How many exceptions a group has.
    ///
    /// # Safety
    /// There is such a group.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn count(&self, group: usize) -> u32 {
        // SAFETY: the caller's promise. (A list has no more than there is room for.)
        unsafe { self.lists.get_unchecked(group * LIST as usize) }.min(MOST)
    }

    /// The line of an exception, counted from the first one of its group, and the term.
    ///
    /// # Safety
    /// There is such a group, and it has so many exceptions.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn get(&self, group: usize, exception: u32) -> [u32; 2] {
        let first = group * LIST as usize + 1 + 2 * exception as usize;
        // SAFETY: the caller's promise.
        [0, 1].map(|i| unsafe { self.lists.get_unchecked(first + i) })
    }

    /// Whether a number is one of the exceptions of a group.
    ///
    /// # Safety
    /// There is such a group.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn contains(&self, group: usize, number: [u32; 2]) -> bool {
        let (mut found, mut exception) = (false, 0);
        // SAFETY: the caller's promise.
        unsafe {
            while exception < self.count(group) {
                found |= self.get(group, exception) == number;
                exception = hint::keep_rolled(exception + 1);
            }
        }
        found
    }
}

/// Where a tile has its exception: the line and the term, counted from its first ones, as one number below 2¹².
#[derive(Clone, Copy)]
pub(super) struct InTile(pub(super) u32);

impl InTile {
    #[inline(always)]
    pub(super) fn new(line: u32, term: u32) -> Self {
        Self(line * SIDE + term)
    }

    #[inline(always)]
    pub(super) fn line(self) -> u32 {
        self.0 / SIDE
    }

    #[inline(always)]
    pub(super) fn term(self) -> u32 {
        self.0 % SIDE
    }
}
