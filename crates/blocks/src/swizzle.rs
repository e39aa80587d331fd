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
pub const PIECE: u32 = 4;
/// The elements of a row of 128 bytes, which is as wide as all banks.
pub const ROW: u32 = 32;
/// The bytes of such a row.
pub const ROW_BYTES: u32 = 128;

/// Where piece `piece` of row `row` begins in a tile with TMA's 128-byte swizzle: from the beginning of the tile, in elements.
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
