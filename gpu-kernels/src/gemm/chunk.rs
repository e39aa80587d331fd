//! What a warp makes of 16 k at a time, straight from the registers of its lanes: three TF32 products by `mma.sync`, in the kernels whose
//! warps have k for themselves.
//!
//! ```text
//!  lane 4g + q of a warp                 8 columns of B: g                       two rows of A for each tile of 16 rows, one column of B
//!                                       ┌─────────────────┐                      for each tile of 8 columns, four k of each:
//!                        k = 4q … 4q + 3│                 │                      k = 4q, 4q + 1 for a product over 8 k, and
//!        16 rows of A    ┌─────────┐    ├─────────────────┤                      k = 4q + 2, 4q + 3 for another one
//!        two of each     │         │    │  16×8 sums      │
//!        lane            └─────────┘    └─────────────────┘
//! ```
//!
//! Which k is in which position of a fragment is free, as long as A and B agree, and so is which row of A is in which row of a fragment. So
//! lanes have four neighbouring k, which they load as a vector where k are neighbours in memory; where rows of A (columns of B) are, they load
//! vectors of rows.
//!
//! Tensor cores truncate the sums that they keep, so they add up 16 k, and these sums are added to the accumulators by ordinary additions
//! ([`mma`](super::mma) does the same).

use cuda_std::mma::mma_m16n8k8_tf32;

use super::decompose::decompose_tf32;
use super::mma::found_in_sums;
use super::scan::{self, Scan};

/// The k of a chunk.
pub(super) const CHUNK: u32 = 16;
/// The k that a lane has of a row or a column.
pub(super) const WIDTH: usize = 4;

/// What a warp has computed of `TILES` times 16 rows and `ACROSS` times 8 columns.
pub(super) struct ChunkSums<const TILES: usize, const ACROSS: usize> {
    sums: [[[f32; 4]; ACROSS]; TILES],
    scan: Scan,
    /// Whether there were numbers other than zero and powers of two among those that have been looked at, of A and of B.
    others: [bool; 2],
}

impl<const TILES: usize, const ACROSS: usize> ChunkSums<TILES, ACROSS> {
    /// Nothing yet.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { sums: [[[0.0; 4]; ACROSS]; TILES], scan: Scan::new(), others: [false; 2] }
    }

    /// This lane's sums, of each tile of 16 rows and 8 columns: columns 2q and 2q + 1 of its first row, then of its second one.
    #[inline(always)]
    pub(super) fn sums(&self) -> &[[[f32; 4]; ACROSS]; TILES] {
        &self.sums
    }

    /// Multiplies what the lanes have of A and B, which has been [seen](ChunkSums::see).
    ///
    /// # Safety
    /// All lanes of the warp come here together.
    #[inline(always)]
    pub(super) unsafe fn multiply(&mut self, a: [[[f32; WIDTH]; 2]; TILES], b: [[f32; WIDTH]; ACROSS]) {
        let (mut high_a, mut low_a) = (a, a);
        for i in 0..TILES {
            for row in 0..2 {
                for j in 0..WIDTH {
                    (high_a[i][row][j], low_a[i][row][j]) = decompose_tf32(a[i][row][j]);
                }
            }
        }
        for tile in 0..ACROSS {
            let (mut high_b, mut low_b) = (b[tile], b[tile]);
            for j in 0..WIDTH {
                (high_b[j], low_b[j]) = decompose_tf32(b[tile][j]);
            }
            // Two products over 8 k: positions q and q + 4 have the lane's first two k in one, and the others in the other.
            let mut sums = [[0.0; 4]; TILES];
            for (a, b) in [(&low_a, &high_b), (&high_a, &low_b), (&high_a, &high_b)] {
                for half in 0..2 {
                    let (first, second) = (2 * half, 2 * half + 1);
                    for i in 0..TILES {
                        let [upper, lower] = a[i];
                        let fragment = [upper[first], lower[first], upper[second], lower[second]];
                        // SAFETY: the caller's promise.
                        sums[i] = unsafe { mma_m16n8k8_tf32(fragment, [b[first], b[second]], sums[i]) };
                    }
                }
            }
            for i in 0..TILES {
                for element in 0..4 {
                    self.sums[i][tile][element] += sums[i][element];
                }
            }
        }
    }

    /// Scans what the lanes have of A and B, here and now: after this they are in registers.
    #[inline(always)]
    pub(super) fn see<const ROWS: usize>(&mut self, a: &[[f32; WIDTH]; ROWS], b: &[[f32; WIDTH]; ACROSS]) {
        for i in 0..ROWS {
            self.scan.scan_now(&a[i]);
        }
        for i in 0..ACROSS {
            self.scan.scan_now(&b[i]);
        }
        // It is enough to look at one of each.
        let others = scan::others(&[a[0][0]], &[b[0][0]]);
        self.others = [self.others[0] | others[0], self.others[1] | others[1]];
    }

    /// What has been [found](scan) of the operands and the sums.
    #[inline(always)]
    pub(super) fn found(&self) -> u32 {
        self.scan.found_of_both(self.others) | found_in_sums(&self.sums)
    }
}
