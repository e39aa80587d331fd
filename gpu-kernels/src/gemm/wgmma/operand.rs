//! How operands lie in shared memory, and how threads read them from there.
//!
//! The copy engine writes rows of 128 bytes, eight 16-byte pieces each, with the pieces of row r exchanged by XOR with
//! r mod 8, so that neither a row nor a column of pieces meets in the same banks. What a row is depends on the operand:
//!
//! ```text
//!  K-major: a row of A (a column of B), 32 terms        otherwise: one term, 32 rows of A (columns of B);
//!           one box of all rows                                    a box of 32 such rows for each 32 rows of A
//! ```
//!
//! # The order of the terms
//!
//! The order in which products are added up is free, as long as A and B agree. Tensor cores want 8 terms at a time in
//! positions 0 to 7, of which a thread has q and q + 4:
//!
//! ```text
//!  A is K-major:  ldmatrix gives a thread the terms q and q + 4                  position p holds term p
//!  otherwise:     a thread loads terms 2q and 2q + 1, each for rows 2g, 2g + 1    position p holds term 0 2 4 6 1 3 5 7 [p]
//! ```
//!
//! B follows A. In the bf16 tile, pairs of positions (0, 4), (1, 5), (2, 6), (3, 7) are neighbours, so that what a thread
//! has loaded of A for TF32 packs into the fragments for bf16 without moving between threads.

use cuda_std::ldmatrix::ldmatrix_x4;
use cuda_std::prelude::*;

/// Whether the terms of an operand's sums are neighbours in memory.
pub(super) trait Major {
    /// They are.
    const K: bool;
}

/// The terms are neighbours: A stored by rows, B by columns.
pub(super) struct KMajor;

/// The rows of A (stored by columns), or the columns of B (stored by rows), are neighbours.
pub(super) struct MnMajor;

impl Major for KMajor {
    const K: bool = true;
}

impl Major for MnMajor {
    const K: bool = false;
}

/// The elements of a row of a tile, 128 bytes.
pub(super) const ROW: u32 = 32;
/// The elements of a 16-byte piece.
const PIECE: u32 = 4;
/// The elements of a box of 32 rows.
pub(super) const BOX: u32 = 32 * ROW;

/// What a thread has of a 16×32 part of A: for each 8 terms, four numbers in the order of the fragment.
pub(super) type Fragments<T> = [T; 16];

/// Where this thread's part of 16 rows of A, which begin at `first_row`, begins in a tile. 64 rows further down it is 64
/// rows of elements further on, in either layout.
#[inline(always)]
pub(super) fn fragment_place<A: Major>(first_row: u32, lane: u32) -> u32 {
    let place = if A::K {
        (first_row + (lane & 15)) * ROW + (((lane >> 4) ^ (lane & 7)) * PIECE)
    } else {
        let (g, q) = (lane >> 2, lane & 3);
        let piece = ((first_row & 16) / PIECE + (g >> 1)) ^ (2 * q);
        first_row / 32 * BOX + 2 * q * ROW + piece * PIECE + (g & 1) * 2
    };
    plain([place])[0]
}

/// Reads this thread's part of 16 rows of A, from its place on.
///
/// # Safety
/// The tile is complete and lies at a multiple of 1024 bytes; all lanes of the warp come here.
#[inline(always)]
pub(super) unsafe fn load_fragments<A: Major>(memory: SharedSlice<f32>, place: u32) -> Fragments<f32> {
    let mut fragments = [0.0; 16];
    for step in 0..4 {
        let at = 4 * step;
        // SAFETY: inside the tile; pieces, and even places, because rows and pieces are.
        unsafe {
            if A::K {
                let four = ldmatrix_x4(&memory, (place ^ (step as u32 * 2 * PIECE)) as usize);
                fragments[at..at + 4].copy_from_slice(&four);
            } else {
                let even = memory.skip(step * 8 * ROW as usize).read2(place as usize);
                let odd = memory.skip((step * 8 + 1) * ROW as usize).read2((place ^ PIECE) as usize);
                (fragments[at], fragments[at + 1]) = (even[0], even[1]);
                (fragments[at + 2], fragments[at + 3]) = (odd[0], odd[1]);
            }
        }
    }
    fragments
}

/// Places of which the compiler forgets how they came about. Where it knows which bits are zero, it adds constants by `or`,
/// which does not go into the offset of an instruction as an addition does.
#[inline(always)]
fn plain<const N: usize>(mut places: [u32; N]) -> [u32; N] {
    hint::pin(&mut places);
    places
}

/// The row of C that fragment row `g` of 16 has, and the distance to that of fragment row `g + 8`.
#[inline(always)]
pub(super) fn fragment_rows<A: Major>(lane: u32) -> (u32, u32) {
    let g = lane >> 2;
    if A::K { (g, 8) } else { (2 * g, 1) }
}

/// Eight terms of one column of B, which a lane converts.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    column: u32,
    /// Which eight terms.
    group: u32,
    /// Where the eight are in a tile as it was loaded.
    source: u32,
}

impl Unit {
    /// The unit of a lane in turn `turn` of 16. Together the turns cover a tile, 128 columns of 32 terms, each turn 256
    /// elements of it that are neighbours, without bank conflicts: eight columns of a K-major tile, otherwise eight terms of
    /// 32 columns.
    #[inline(always)]
    pub(super) fn of<B: Major>(turn: u32, lane: u32) -> Self {
        if B::K {
            let unit = Self { column: turn * 8 + (lane & 7), group: lane >> 3, source: 0 };
            Self { source: unit.piece(0), ..unit }
        } else {
            Self { column: turn / 4 * 32 + lane, group: turn % 4, source: turn * 8 * ROW + lane }
        }
    }

    /// Where the unit's numbers begin in the tile at element `tile`.
    #[inline(always)]
    pub(super) fn source<B: Major>(self, tile: u32) -> u32 {
        tile + self.source
    }

    /// Where the first four of the unit's TF32 operands go, in the K-major tile at element `tile`. The other four go
    /// to the piece whose number differs in the lowest bit.
    #[inline(always)]
    pub(super) fn piece(self, tile: u32) -> u32 {
        tile + self.column * ROW + (((2 * self.group) ^ (self.column & 7)) * PIECE)
    }

    /// Where the unit's bf16 operands go, in the K-major tile at element `tile`: a piece in the first half of the column's
    /// row. What is left of them goes to the same piece of the second half.
    #[inline(always)]
    pub(super) fn bf16_piece(self, tile: u32) -> u32 {
        tile + self.column * ROW + ((self.group ^ (self.column & 7)) * PIECE)
    }
}

/// How far the second of a unit's two pieces is from the first, by exclusive or: for TF32 operands.
pub(super) const NEXT_PIECE: u32 = PIECE;
/// The same for bf16 operands and what is left of them.
pub(super) const OTHER_HALF: u32 = ROW / 2;

/// Reads a unit's numbers, which begin at `source`, in the order of the positions for an A of this kind.
///
/// # Safety
/// The tile is complete, and the places are inside of it.
#[inline(always)]
pub(super) unsafe fn load_unit<A: Major, B: Major>(memory: SharedSlice<f32>, source: u32) -> [f32; 8] {
    let mut terms = [0.0; 8];
    if B::K {
        for half in 0..2 {
            // SAFETY: inside the tile, at a piece.
            let four = unsafe { memory.read4((source ^ (half * NEXT_PIECE)) as usize) };
            for i in 0..4 {
                terms[4 * half as usize + i] = four[i];
            }
        }
    } else {
        for term in 0..8 {
            let [at] = plain([source ^ (term * PIECE)]);
            // SAFETY: inside the tile.
            terms[term as usize] = unsafe { memory.read((at + term * ROW) as usize) };
        }
    }
    if A::K { terms } else { [terms[0], terms[2], terms[4], terms[6], terms[1], terms[3], terms[5], terms[7]] }
}

/// Writes eight numbers to two pieces, the second at a distance of `distance` by exclusive or.
///
/// # Safety
/// The pieces are inside the memory, and no other thread accesses them.
#[inline(always)]
pub(super) unsafe fn store_unit(memory: SharedSlice<f32>, piece: u32, distance: u32, values: [f32; 8]) {
    // SAFETY: the caller's promise.
    unsafe {
        memory.write4(piece as usize, [values[0], values[1], values[2], values[3]]);
        memory.write4((piece ^ distance) as usize, [values[4], values[5], values[6], values[7]]);
    }
}
