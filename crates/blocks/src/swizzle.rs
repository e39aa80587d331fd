//! Swizzled tiles: where an element of a tile lies in shared memory, so that the lanes of a warp meet different banks in
//! whichever direction they walk.
//!
//! Shared memory has 32 banks of 4 bytes. An access of 16 bytes is served for 8 lanes at a time, if their pieces lie in different
//! groups of four banks. A swizzle exchanges the pieces of 16 bytes of a row by XOR with some bits of the row's number.
//!
//! ```text
//!  128-byte rows, as TMA writes them         row r, piece p is stored as piece p ^ (r mod 8)
//!
//!            piece 0 1 2 3 4 5 6 7
//!  row 0           0 1 2 3 4 5 6 7
//!  row 1           1 0 3 2 5 4 7 6           a row has all banks once, and so has a column of pieces over eight rows
//!  row 2           2 3 0 1 6 7 4 5
//!  …
//! ```

/// The elements of a 16-byte piece.
///
/// ```
/// # use blocks::swizzle::*;
/// assert_eq!(PIECE * size_of::<f32>() as u32, 16, "what one `ld.shared.v4` loads");
/// ```
pub const PIECE: u32 = 4;
/// The elements of a row of 128 bytes, which is as wide as all banks.
///
/// ```
/// # use blocks::swizzle::*;
/// // A row has eight pieces, one for each group of four banks.
/// assert_eq!(ROW / PIECE, 8);
/// ```
pub const ROW: u32 = 32;
/// The bytes of such a row.
///
/// ```
/// # use blocks::swizzle::*;
/// let rows_of_a_tile = 64;
/// assert_eq!(rows_of_a_tile * ROW_BYTES, 8192);
/// ```
pub const ROW_BYTES: u32 = 128;

/// Where piece `piece` of row `row` begins in a tile with TMA's 128-byte swizzle: from the beginning of the tile, in elements.
///
/// ```
/// # use blocks::swizzle::*;
/// // The first pieces of eight rows, which a column of a tile is read by, lie in eight groups of banks.
/// let groups = std::collections::HashSet::from([0, 1, 2, 3, 4, 5, 6, 7].map(|row| piece_of_row(row, 0) / PIECE % 8));
/// assert_eq!(groups.len(), 8);
/// assert_eq!(piece_of_row(1, 0), ROW + PIECE, "row 1 has its piece 0 in place 1");
/// ```
#[inline(always)]
#[must_use]
pub const fn piece_of_row(row: u32, piece: u32) -> u32 {
    row * ROW + (piece ^ (row % 8)) * PIECE
}

/// Where (`line`, `term`) is in a tile whose lines have 16 terms, which are neighbours: two lines make 128 bytes.
///
/// ```text
///  piece  = (line % 2)·4 + term / 4        stored = piece ^ (line / 4 % 8)
///  `ldmatrix` of the lines 4g + i, g = 0 … 7, at the same four terms meets all banks
/// ```
///
/// ```
/// # use blocks::swizzle::*;
/// // Each element of a tile of 64 lines has a place of its own.
/// let places = (0..64).flat_map(|line| (0..16).map(move |term| lines_of_16(line, term)));
/// let mut places = Vec::from_iter(places);
/// places.sort();
/// assert!(places.into_iter().eq(0..64 * 16));
/// ```
#[inline(always)]
#[must_use]
pub const fn lines_of_16(line: u32, term: u32) -> u32 {
    const TERMS: u32 = 16;
    const LINES: u32 = ROW / TERMS; // in all banks
    let piece = line % LINES * (TERMS / PIECE) + term / PIECE;
    line / LINES * ROW + (piece ^ (line / 4 % 8)) * PIECE + term % PIECE
}

/// Where (`line`, `term`) is in a tile with a row of `lines` lines for each term, a multiple of 32.
///
/// ```text
///  piece  = line / 4                       stored = piece ^ (term % 4 · 2)
///  `ld.shared.v4` of 8 lanes with two g and all q, at lines 4g of terms q + 4h, meets all banks
/// ```
///
/// ```
/// # use blocks::swizzle::*;
/// // Line 0 of four terms: one 128-byte row of lines further each time, and another group of banks.
/// assert_eq!([0, 1, 2, 3].map(|term| terms_of_lines(32, 0, term)), [0, 32 + 8, 64 + 16, 96 + 24]);
/// ```
#[inline(always)]
#[must_use]
pub const fn terms_of_lines(lines: u32, line: u32, term: u32) -> u32 {
    term * lines + ((line / PIECE) ^ (term % 4 * 2)) * PIECE + line % PIECE
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    /// Every element has a place of its own, and each access of 8 lanes meets 8 different groups of banks.
    fn check(lines: u32, terms: u32, place: impl Fn(u32, u32) -> u32, accesses: impl Fn(u32) -> [(u32, u32); 8]) {
        let places: HashSet<u32> =
            (0..lines).flat_map(|line| (0..terms).map(|term| place(line, term)).collect::<HashSet<_>>()).collect();
        assert_eq!(places.len() as u32, lines * terms);
        assert!(places.iter().all(|&place| place < lines * terms));
        for access in 0..16 {
            let banks: HashSet<u32> =
                accesses(access).into_iter().map(|(line, term)| place(line, term) / PIECE % 8).collect();
            assert_eq!(banks.len(), 8, "access {access}");
        }
    }

    #[test]
    fn places_are_distinct_and_free_of_bank_conflicts() {
        for lines in [32, 64, 128, 256] {
            check(lines, 16, lines_of_16, |n| core::array::from_fn(|g| (4 * g as u32 + n % 4, n / 4 * 4)));
            let place = |line, term| terms_of_lines(lines, line, term);
            check(lines, 16, place, |n| {
                core::array::from_fn(|lane| {
                    let (g, q) = (n % 4 * 2 + lane as u32 / 4, lane as u32 % 4);
                    (4 * g, q + n / 4 * 4)
                })
            });
            let place = |row, term| piece_of_row(row, term / PIECE) + term % PIECE;
            check(lines, ROW, place, |n| core::array::from_fn(|row| (row as u32 + n / 8 * 8, n % 8 * PIECE)));
            check(lines, ROW, place, |n| core::array::from_fn(|piece| (n, piece as u32 * PIECE)));
        }
    }
}
