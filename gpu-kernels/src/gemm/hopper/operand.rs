//! How TMA lays operands out in shared memory, and how threads read fragments of them from there.
//!
//! TMA writes rows of 128 bytes, eight 16-byte pieces each, swizzled: the pieces of row r are exchanged by XOR with r mod 8
//! ([`blocks::swizzle`]). What a row is depends on the operand:
//!
//! ```text
//!  K-major: a row of A (a column of B), 32 numbers      MN-major: one k, 32 rows of A (columns of B);
//!           one box of all rows                                   a box of 32 such rows for each 32 rows of A
//! ```
//!
//! # The order of k
//!
//! The order in which products are added up is free, as long as A and B agree. Tensor cores want 8 numbers at a time in
//! positions 0 to 7, of which a thread has q and q + 4:
//!
//! ```text
//!  A is K-major:   ldmatrix gives a thread k = q and q + 4                        position p holds k = p
//!  A is MN-major:  a thread loads k = 2q and 2q + 1, each for rows 2g, 2g + 1     position p holds k = 0 2 4 6 1 3 5 7 [p]
//! ```
//!
//! B follows A.

pub(super) use blocks::swizzle::ROW;
use blocks::swizzle::{PIECE, piece_of_row};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::TileSwizzle;
use cuda_std::ldmatrix::ldmatrix_x4;
use cuda_std::prelude::*;

pub(super) use blocks::major::{KMajor, Major, MnMajor};

/// The bytes of a row of a tile.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const LINE_BYTES: u64 = blocks::swizzle::ROW_BYTES as u64;
/// The elements of a box of 32 rows.
pub(super) const BOX: u32 = 32 * ROW;

/// What a thread has of a 16×32 part of A: for each 8 of k, four numbers in the order of the fragment.
pub(super) type Fragments<T> = [T; 16];

/// Where this thread's part of 16 rows of A, which begin at `first_row`, begins in a tile. 64 rows further down it is 64
/// rows of elements further on, in either layout.
#[inline(always)]
pub(super) fn fragment_offset<A: Major>(first_row: u32, lane: u32) -> u32 {
    let offset = if A::K {
        (first_row + (lane & 15)) * ROW + (((lane >> 4) ^ (lane & 7)) * PIECE)
    } else {
        let (g, q) = (lane >> 2, lane & 3);
        let piece = ((first_row & 16) / PIECE + (g >> 1)) ^ (2 * q);
        first_row / 32 * BOX + 2 * q * ROW + piece * PIECE + (g & 1) * 2
    };
    plain([offset])[0]
}

/// Reads this thread's part of 16 rows of A, from its offset on.
///
/// # Safety
/// The tile is complete and lies at a multiple of 1024 bytes; all lanes of the warp come here.
#[inline(always)]
pub(super) unsafe fn load_fragments<A: Major>(memory: SharedSlice<f32>, offset: u32) -> Fragments<f32> {
    let mut fragments = [0.0; 16];
    for step in 0..4 {
        let at = 4 * step;
        // SAFETY: inside the tile; pieces, and even offsets, because rows and pieces are.
        unsafe {
            if A::K {
                let four = ldmatrix_x4(&memory, (offset ^ (step as u32 * 2 * PIECE)) as usize);
                fragments[at..at + 4].copy_from_slice(&four);
            } else {
                let even = memory.skip(step * 8 * ROW as usize).read2(offset as usize);
                let odd = memory.skip((step * 8 + 1) * ROW as usize).read2((offset ^ PIECE) as usize);
                (fragments[at], fragments[at + 1]) = (even[0], even[1]);
                (fragments[at + 2], fragments[at + 3]) = (odd[0], odd[1]);
            }
        }
    }
    fragments
}

/// Offsets of which the compiler forgets how they came about. Where it knows which bits are zero, it adds constants by `or`,
/// which does not go into the offset of an instruction as an addition does.
#[inline(always)]
fn plain<const N: usize>(mut offsets: [u32; N]) -> [u32; N] {
    hint::pin(&mut offsets);
    offsets
}

/// Which of 16 rows of C fragment row `i` of them is.
#[inline(always)]
pub(super) fn row_of_fragment<A: Major>(i: u32) -> u32 {
    if A::K { i } else { 2 * (i % 8) + i / 8 }
}

/// The rounds in which a warp converts its 32 columns of B.
pub(super) const ROUNDS: u32 = 4;
/// The elements of its columns in a tile, in either layout, and those that it converts in a round.
pub(super) const COLUMNS: u32 = 32 * ROW;
const ROUND: u32 = COLUMNS / ROUNDS;

/// What a lane converts of a tile of B: in each round, eight k of one column.
///
/// ```text
///  K-major: round t has columns 8t to 8t + 7 of the 32,      otherwise: round t has k = 8t to 8t + 7 of all 32 columns,
///           a lane eight k of one of them                              a lane those of one of them
/// ```
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Where the warp's columns are in a tile.
    columns: u32,
    /// Where this lane's column is in a K-major tile, with the number that its pieces are exchanged by as a distance.
    column: u32,
    /// Which eight k round 0 has.
    group: u32,
    lane: u32,
}

/// From the first piece of eight k of a K-major tile to that of the next eight. The second piece is the next one.
const EIGHT: u32 = 2 * PIECE;

impl Share {
    /// That of a lane of warp `warp` of those that convert.
    #[inline(always)]
    pub(super) fn of<B: Major>(warp: u32, lane: u32) -> Self {
        let (row, group) = if B::K { (lane & 7, lane >> 3) } else { (lane, 0) };
        Self { columns: warp * COLUMNS, column: piece_of_row(row, 0), group, lane }
    }

    /// The same, with what is round `round` of that as round 0, where several warps share the 32 columns: it has to be a multiple of the
    /// rounds of a warp.
    #[inline(always)]
    pub(super) fn beginning_at<B: Major>(self, round: u32) -> Self {
        if B::K { Self { columns: self.columns + round * ROUND, ..self } } else { Self { group: round, ..self } }
    }

    /// Where the numbers of round 0 are in the tile at element `tile`, as loaded: K-major two pieces, otherwise the first four
    /// of eight k.
    #[inline(always)]
    pub(super) fn sources<B: Major>(self, tile: u32) -> [u32; 4] {
        if B::K {
            let first = self.target(tile);
            plain([first, first ^ PIECE, 0, 0])
        } else {
            let first = tile + self.columns + self.group * ROUND + self.lane;
            plain(core::array::from_fn(|term| first ^ (term as u32 * PIECE)))
        }
    }

    /// Where the operands of round 0 go in the K-major tile at element `tile`.
    #[inline(always)]
    pub(super) fn target(self, tile: u32) -> u32 {
        plain([(tile + self.columns + self.column) ^ (self.group * EIGHT)])[0]
    }
}

/// Reads the numbers of a round, from those of round 0 at `sources` on, in the order of the positions for an A of this kind.
///
/// # Safety
/// The tile is complete, and the offsets are those of a [`Share`] of it.
#[inline(always)]
pub(super) unsafe fn load_unit<A: Major, B: Major>(
    memory: SharedSlice<f32>,
    sources: &[u32; 4],
    round: u32,
) -> [f32; 8] {
    let mut values = [0.0; 8];
    for term in 0..8 {
        // SAFETY: inside the tile, at a piece if four are read.
        unsafe {
            if !B::K {
                let source = if term < 4 { sources[term] } else { plain([sources[term - 4] ^ (4 * PIECE)])[0] };
                values[term] = memory.skip((round * ROUND + term as u32 * ROW) as usize).read(source as usize);
            } else if term % 4 == 0 {
                let four = memory.skip((round * ROUND) as usize).read4(sources[term / 4] as usize);
                values[term..term + 4].copy_from_slice(&four);
            }
        }
    }
    if A::K { values } else { [0, 2, 4, 6, 1, 3, 5, 7].map(|i| values[i]) }
}

/// Writes the operands of a round to their pieces, those of round 0 being at `target`.
///
/// # Safety
/// The tile is this one's to write, the offset that of a [`Share`] of it, and no other thread accesses the pieces.
#[inline(always)]
pub(super) unsafe fn store_unit<B: Major>(memory: SharedSlice<f32>, target: u32, round: u32, values: [f32; 8]) {
    // Computed here and now: the pieces of all rounds would take registers.
    let (skipped, [piece]) = if B::K { (round * ROUND, [target]) } else { (0, plain([target ^ (round * EIGHT)])) };
    let memory = memory.skip(skipped as usize);
    // SAFETY: the caller's promise.
    unsafe {
        memory.write4(piece as usize, [values[0], values[1], values[2], values[3]]);
        memory.write4((piece ^ PIECE) as usize, [values[4], values[5], values[6], values[7]]);
    }
}

/// Whether a tensor map is of an operand with `lines` rows of A, or columns of B, with `k` numbers each, of `count` products, in
/// boxes of `box_lines` lines and `box_k` numbers.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describes<O: Major>(
    map: &TensorMap<'_>,
    [lines, k, count]: [u32; 3],
    box_lines: u32,
    box_k: u32,
) -> bool {
    let (extents, tile) = if O::K { ([k, lines], [box_k, box_lines]) } else { ([lines, k], [32, box_k]) };
    map.line_bytes() == LINE_BYTES
        && map.layout().extents == [u64::from(extents[0]), u64::from(extents[1]), u64::from(count)]
        && map.layout().tile == [tile[0], tile[1], 1]
        && map.layout().swizzle == TileSwizzle::Bytes128
}

#[cfg(test)]
mod tests {
    use cuda_std::{TileElement, TileLayout};

    use super::*;

    /// A tensor map that says what it describes, and describes nothing.
    fn map(element_bytes: u32, extents: [u64; 3], tile: [u32; 3]) -> TensorMap<'static> {
        let element = if element_bytes == 2 { TileElement::Bytes2 } else { TileElement::Bytes4 };
        let layout = TileLayout { element, extents, byte_strides: [0; 3], tile, swizzle: TileSwizzle::Bytes128 };
        // SAFETY: of no memory at all; nothing loads by it.
        unsafe { TensorMap::from_raw_parts([0; 16], core::ptr::null(), 0, layout) }
    }

    #[test]
    fn a_tensor_map_has_to_be_of_the_operand_in_boxes_of_128_bytes() {
        let k_major = |map: &TensorMap<'_>| describes::<KMajor>(map, [7, 100, 2], 128, 32);
        assert!(k_major(&map(4, [100, 7, 2], [32, 128, 1])));
        for (element_bytes, extents, tile) in [
            (2, [100, 7, 2], [32, 128, 1]),
            (4, [7, 100, 2], [32, 128, 1]),
            (4, [100, 7, 1], [32, 128, 1]),
            (4, [100, 7, 2], [32, 64, 1]),
            (4, [100, 7, 2], [16, 128, 1]),
        ] {
            assert!(!k_major(&map(element_bytes, extents, tile)), "{element_bytes} {extents:?} {tile:?}");
        }
        assert!(describes::<KMajor>(&map(2, [100, 7, 2], [64, 128, 1]), [7, 100, 2], 128, 64));
        let mn_major = |map: &TensorMap<'_>| describes::<MnMajor>(map, [7, 100, 2], 128, 32);
        assert!(mn_major(&map(4, [7, 100, 2], [32, 32, 1])));
        assert!(!mn_major(&map(4, [100, 7, 2], [32, 32, 1])) && !mn_major(&map(4, [7, 100, 2], [32, 128, 1])));
    }
}
