//! Computes elements of a tile of C again in plain fp32, straight from global memory: the fallback of kernels that have met operands that
//! they cannot decompose.
//!
//! ```text
//!             4 columns
//!            ┌─────────┐          each thread: 4×4 elements of C at a time, 8 loads for 16 multiplications, straight
//!            │    B    │          from global memory; its neighbours in the warp load from the same rows of A, so the
//!            └─────────┘          first-level cache serves most of it
//!   ┌─────┐  ┌─────────┐
//! 4 │  A  │  │    C    │          32 products are added up, each one fused operation after the other, and then added
//!   └─────┘  └─────────┘          to the accumulator
//! ```
//!
//! **Which elements.** Those whose row of A, or column of B, has a number that is too small to be decomposed, and those that tensor cores
//! have made infinite or NaN of. The others are what tensor cores have made of them. So what a row of C becomes depends on that row of A and
//! on B, and not on the rows that happen to be in the same tile. But for one thing: where all rows of A, or all columns of B, of a tile
//! [select](super::scan), elements of these lines are computed again, too. A plan for invariant rows leaves that out.
//!
//! Infinities and NaNs come out in the class that an fp32 sum gives, because this is one. The code is kept small rather than
//! fast: it stands in every kernel that decomposes operands, and runs for the tiles that need it only.

use cuda_std::prelude::*;

use super::scan::{self, NOT_FINITE, TOO_SMALL_A, TOO_SMALL_B, is_too_small, may_select};
use super::tiles::{Tile, TileShape};
use crate::Matrix;

/// The rows and the columns of C that a thread computes at a time.
pub(crate) const SIDE: usize = 4;

/// The rows and the columns of C that a warp computes at a time, 8 threads below and 4 beside each other. The fewer different
/// rows of A and columns of B a load touches, the fewer accesses to the cache it makes.
const WARP_ROWS: u32 = 8 * SIDE as u32;
/// See [`WARP_ROWS`].
const WARP_COLS: u32 = 4 * SIDE as u32;

/// The k that are added up before their sum is added to the accumulator.
const CHUNK: u32 = 32;

/// What there is of an element before it is computed again.
#[derive(Clone, Copy)]
pub(crate) enum Made {
    /// Nothing: it is computed in any case.
    Nothing,
    /// Its sum, from tensor cores.
    Sum(f32),
    /// Its sum, from tensor cores, which is finite and has been stored already.
    Stored,
}

/// What is to be computed again, besides elements that are not finite.
#[derive(Clone, Copy)]
pub(crate) struct Again {
    /// Whether elements of lines that have numbers which are too small.
    too_small: bool,
    /// Whether elements of rows of A that have one number alone, and of such columns of B.
    selects: [bool; 2],
}

impl Again {
    /// For elements of which [`Made::Nothing`] is there.
    pub(crate) const ALL: Self = Self { too_small: true, selects: [false; 2] };

    /// What follows from what a block has [found](scan) of a tile; nothing if it is to be stored as it is. `exact_selections` is
    /// [`TiledGemm::has_exact_selections`](super::tiles::TiledGemm::has_exact_selections).
    ///
    /// # Safety
    /// All lanes of the warp call this function together, with the same arguments.
    #[inline(always)]
    pub(crate) unsafe fn of(tile: &Tile<'_>, shape: TileShape, found: u32, exact_selections: bool) -> Option<Self> {
        let mut selects = [false; 2];
        if exact_selections {
            // Found anew, as in `recompute_lines`.
            let mut numbers = [tile.row, tile.col, tile.k_begin, tile.k_end];
            hint::pin(&mut numbers);
            let [row, col, k_begin, k_end] = numbers;
            let lines = [(scan::A, tile.a, row, shape.m), (scan::B, tile.b.transposed(), col, shape.n)];
            for i in 0..2 {
                let (operand, matrix, first, count) = lines[i];
                // SAFETY: the caller's promise.
                selects[i] = may_select(found, operand)
                    && unsafe { first_line_selects(&matrix, [first, count], [k_begin, k_end]) };
            }
        }
        let too_small = found & (TOO_SMALL_A | TOO_SMALL_B) != 0;
        (too_small || found & NOT_FINITE != 0 || selects[0] || selects[1]).then_some(Self { too_small, selects })
    }
}

/// How many numbers other than zero there are between two k of a line, if not more than one; and where the first one is.
#[derive(Clone, Copy)]
struct Alone {
    numbers: u32,
    k: u32,
}

/// How many k are loaded at a time, by a lane.
const LOADS: u32 = 8;
/// The lines of which a warp finds the numbers at a time, where it is to do so for all lines.
const LINES: u32 = 8;

impl Alone {
    const NOTHING: Self = Self { numbers: 0, k: 0 };

    /// Of a line, by a warp.
    ///
    /// # Safety
    /// All lanes of the warp call this function together, with the same arguments; the matrix has the line, and as many k.
    #[inline(always)]
    unsafe fn by_warp(matrix: &Matrix<'_>, line: u32, [k_begin, k_end]: [u32; 2]) -> Self {
        let (mut found, mut k) = (Self::NOTHING, k_begin);
        while k < k_end && found.numbers < 2 {
            let numbers: [bool; LOADS as usize] = core::array::from_fn(|i| {
                let k = k + i as u32 * warp::LANES + warp::lane_id();
                // SAFETY: inside, as just compared.
                k < k_end && unsafe { matrix.at(line, k) } != 0.0
            });
            for i in 0..LOADS {
                // SAFETY: all lanes come here as often.
                let ballot = unsafe { warp::warp_vote_ballot(warp::ALL_LANES, numbers[i as usize]) };
                if found.numbers == 0 && ballot != 0 {
                    found.k = k + i * warp::LANES + ballot.trailing_zeros();
                }
                found.numbers += ballot.count_ones();
            }
            k = hint::keep_rolled(k + LOADS * warp::LANES);
        }
        found
    }

    /// Of [`LINES`] lines, of which lane `l` has line `l mod 8` and every fourth piece of [`LOADS`] k, which are a sector of memory where k are
    /// neighbours; where lines are neighbours, eight of them are.
    ///
    /// # Safety
    /// All lanes of the warp call this function together; the matrix has the line of each, and as many k.
    #[inline(always)]
    unsafe fn of_lines(matrix: &Matrix<'_>, line: u32, [k_begin, k_end]: [u32; 2]) -> Self {
        let (mut found, mut k) = (Self::NOTHING, k_begin + warp::lane_id() / LINES * LOADS);
        while k < k_end && found.numbers < 2 {
            let numbers: [bool; LOADS as usize] = core::array::from_fn(|i| {
                let k = k + i as u32;
                // SAFETY: inside, as just compared.
                k < k_end && unsafe { matrix.at(line, k) } != 0.0
            });
            for i in 0..LOADS {
                if numbers[i as usize] {
                    found = Self { numbers: found.numbers + 1, k: k + i };
                }
            }
            k = hint::keep_rolled(k + warp::LANES / LINES * LOADS);
        }
        // Of four lanes that have a line together, one has the k of its number, if that is its only one, and the others have none.
        let mut distance = LINES;
        while distance < warp::LANES {
            // SAFETY: all lanes come here.
            let of_other =
                |word: u32| unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, word, distance, warp::LANES).0 };
            let other = Self { numbers: of_other(found.numbers), k: of_other(found.k) };
            found = Self { numbers: found.numbers + other.numbers, k: found.k.wrapping_add(other.k) };
            distance *= 2;
        }
        found
    }
}

/// Whether, of `count` rows of a matrix from `first` on, the first one with a number other than zero between two k has only that one.
/// (Of rows of which every one has at most one, it has. Of others it hardly ever has, and what follows is that work is done for nothing.)
///
/// # Safety
/// All lanes of the warp call this function together, with the same arguments; the matrix has as many k.
#[inline(always)]
unsafe fn first_line_selects(matrix: &Matrix<'_>, [first, count]: [u32; 2], range: [u32; 2]) -> bool {
    let (mut line, end) = (first, (first + count).min(matrix.rows()));
    while line < end {
        // SAFETY: the caller's promise; the line is inside.
        let found = unsafe { Alone::by_warp(matrix, line, range) };
        if found.numbers > 0 {
            return found.numbers == 1;
        }
        line = hint::keep_rolled(line + 1);
    }
    false
}

/// A part of C: `rows` by `cols` elements, the first of which is (`row`, `col`).
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
}

impl Region {
    /// All of a tile.
    #[inline(always)]
    pub(crate) fn all_of(tile: &Tile<'_>, shape: TileShape) -> Self {
        Self { row: tile.row, col: tile.col, rows: shape.m, cols: shape.n }
    }
}

/// Where sums go that have been made again, or are as they were. Rows and columns are counted from the first of the region.
pub(crate) trait Results {
    /// Takes the sums of four neighbours in a row, from a multiple of four on.
    ///
    /// # Safety
    /// The first of them is inside C; nothing else accesses these elements, in C or wherever sums are meanwhile.
    unsafe fn take4(&self, row: u32, col: u32, sums: [f32; SIDE]);

    /// Takes the sum of one element.
    ///
    /// # Safety
    /// As for [`Results::take4`].
    unsafe fn take(&self, row: u32, col: u32, sum: f32);
}

/// Straight to C.
struct ToC<'a> {
    tile: &'a Tile<'a>,
    region: Region,
}

impl Results for ToC<'_> {
    #[inline(always)]
    #[track_caller]
    unsafe fn take4(&self, row: u32, col: u32, sums: [f32; SIDE]) {
        // SAFETY: the caller's promise. The column is a multiple of 4, because the region begins at one.
        unsafe { self.tile.epilogue(self.region.row + row, self.region.col + col, sums) }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn take(&self, row: u32, col: u32, sum: f32) {
        // SAFETY: the caller's promise.
        unsafe { self.tile.epilogue_element(self.region.row + row, self.region.col + col, sum) }
    }
}

/// To shared memory, times a factor, each where `place` says.
pub(crate) struct ToShared<P> {
    pub(crate) memory: SharedSlice<f32>,
    pub(crate) factor: f32,
    pub(crate) place: P,
}

impl<P: Fn(u32, u32) -> u32> Results for ToShared<P> {
    #[inline(always)]
    #[track_caller]
    unsafe fn take4(&self, row: u32, col: u32, sums: [f32; SIDE]) {
        for i in 0..SIDE {
            // SAFETY: the caller's promise.
            unsafe { self.take(row, col + i as u32, sums[i]) }
        }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn take(&self, row: u32, col: u32, sum: f32) {
        // SAFETY: inside the sums of the region, by the caller's promise.
        unsafe { self.memory.write((self.place)(row, col) as usize, self.factor * sum) }
    }
}

/// Stores the elements of a region of a tile, those that need it `again` in fp32, by `threads` threads of which this is number `thread`.
/// `made(row, col)` says what there is of an element, whose row and column are counted from the first of the region.
///
/// # Safety
/// All of these threads call this function with the same tile and region, which is one of the tile's, begins at a column that is a multiple
/// of 4, and whose `rows` are 16 or a multiple of 32 and whose `cols` are a multiple of 16; and no other thread accesses these elements of C.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn recompute(
    tile: &Tile<'_>,
    region: Region,
    thread: u32,
    threads: u32,
    again: Again,
    made: impl Fn(u32, u32) -> Made,
) {
    // SAFETY: the caller's promise.
    unsafe { recompute_to(tile, region, thread, threads, again, made, &ToC { tile, region }) }
}

/// The same, but the sums go to `results`, those with [`Made::Sum`] that stay as they are among them.
///
/// # Safety
/// As for [`recompute`]. What `made` reads of an element, no thread but that with the element gives to `results`.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn recompute_to(
    tile: &Tile<'_>,
    region: Region,
    thread: u32,
    threads: u32,
    again: Again,
    made: impl Fn(u32, u32) -> Made,
    results: &impl Results,
) {
    if again.selects[0] || again.selects[1] {
        // SAFETY: the caller's promise.
        unsafe { recompute_lines(tile, region, thread, threads, again, made, results) };
        return;
    }
    let across = region.cols / WARP_COLS;
    let pieces = region.rows.div_ceil(WARP_ROWS) * across * warp::LANES;
    let mut piece = thread;
    while piece < pieces {
        let (part, lane) = (piece / warp::LANES, piece % warp::LANES);
        let down = part / across * WARP_ROWS + lane / 4 * SIDE as u32;
        let right = part % across * WARP_COLS + lane % 4 * SIDE as u32;
        let (row, col) = (region.row + down, region.col + right);
        if down < region.rows && row < tile.c.rows() && col < tile.c.cols() {
            // SAFETY: the first row and the first column are inside, as just compared.
            let Sums { sums, too_small } = unsafe { sums(tile, row, col) };
            for i in 0..SIDE {
                let mut is_stored = [false; SIDE];
                let values: [f32; SIDE] = core::array::from_fn(|j| {
                    let is_too_small = too_small & (1 << i | 1 << (SIDE + j)) != 0;
                    match made(down + i as u32, right + j as u32) {
                        Made::Sum(sum) if sum.is_finite() && !is_too_small => return sum,
                        Made::Stored => is_stored[j] = !is_too_small,
                        Made::Nothing | Made::Sum(_) => {}
                    }
                    sums[i][j]
                });
                // SAFETY: the column is a multiple of 4, and the pieces do not overlap.
                unsafe {
                    if is_stored == [false; SIDE] {
                        results.take4(down + i as u32, right, values);
                    } else {
                        for j in 0..SIDE {
                            if !is_stored[j] {
                                results.take(down + i as u32, right + j as u32, values[j]);
                            }
                        }
                    }
                }
            }
        }
        piece = hint::keep_rolled(piece + threads);
    }
}

/// The same where rows of A select, or columns of B: a warp has [`LINES`] of these lines at a time, finds for each the number that it has
/// alone, and makes the elements of the line: one product each. What else has to be computed again, is so by one lane for each element.
///
/// # Safety
/// As for [`recompute`], by whole warps.
#[inline(always)]
#[track_caller]
unsafe fn recompute_lines(
    tile: &Tile<'_>,
    region: Region,
    thread: u32,
    threads: u32,
    again: Again,
    made: impl Fn(u32, u32) -> Made,
    results: &impl Results,
) {
    // Found anew, rather than kept, in registers that there are not, from where they were computed first.
    let mut numbers = [region.row, region.col, thread];
    hint::pin(&mut numbers);
    let [first_row, first_col, thread] = numbers;
    let region = Region { row: first_row, col: first_col, ..region };
    // Where both select, elements of rows that do are all that are not zero.
    let by_rows = again.selects[0];
    let b = tile.b.transposed();
    let (m, n) = (tile.c.rows().saturating_sub(region.row), tile.c.cols().saturating_sub(region.col));
    let (lines, others) = (region.rows.min(m), region.cols.min(n));
    let (lines, others) = if by_rows { (lines, others) } else { (others, lines) };
    let mut first = thread / warp::LANES * LINES;
    while first < lines {
        let (range, of_lane) = ([tile.k_begin, tile.k_end], first + warp::lane_id() % LINES);
        // SAFETY: all lanes come here, with a line that there is, or the last one.
        let of_lanes = unsafe {
            match by_rows {
                true => Alone::of_lines(&tile.a, (region.row + of_lane).min(tile.a.rows() - 1), range),
                false => Alone::of_lines(&b, (region.col + of_lane).min(b.rows() - 1), range),
            }
        };
        let mut line = first;
        while line < lines && line < first + LINES {
            // SAFETY: all lanes come here.
            let of_line =
                |word: u32| unsafe { warp::warp_shuffle_idx(warp::ALL_LANES, word, line - first, warp::LANES).0 };
            let found = Alone { numbers: of_line(of_lanes.numbers), k: of_line(of_lanes.k) };
            let mut other = warp::lane_id();
            while other < others {
                let (down, right) = if by_rows { (line, other) } else { (other, line) };
                let (row, col) = (region.row + down, region.col + right);
                let before = made(down, right);
                // SAFETY: the element is inside C, and no other thread's; k is one of the tile.
                unsafe {
                    let is_finite = match before {
                        Made::Sum(sum) => sum.is_finite(),
                        Made::Stored => tile.c.at(row, col).is_finite(),
                        Made::Nothing => false,
                    };
                    if found.numbers == 1 && is_finite {
                        let product = tile.a.at(row, found.k) * tile.b.at(found.k, col);
                        results.take(down, right, product);
                    } else if is_finite && !(again.too_small && found.numbers > 1) {
                        if let Made::Sum(sum) = before {
                            results.take(down, right, sum);
                        }
                    } else {
                        results.take(down, right, dot(tile, row, col));
                    }
                }
                other = hint::keep_rolled(other + warp::LANES);
            }
            line = hint::keep_rolled(line + 1);
        }
        first = hint::keep_rolled(first + threads / warp::LANES * LINES);
    }
}

/// The sum of an element, as [`sums`] has it.
///
/// # Safety
/// (`row`, `col`) is inside C.
#[inline(always)]
#[track_caller]
unsafe fn dot(tile: &Tile<'_>, row: u32, col: u32) -> f32 {
    let (mut sum, mut first) = (0.0, tile.k_begin);
    while first < tile.k_end {
        let end = (first + CHUNK).min(tile.k_end);
        let (mut chunk, mut l) = (0.0, first);
        while l < end {
            // SAFETY: the caller's promise, and l is below k.
            chunk = unsafe { math::fma(tile.a.at(row, l), tile.b.at(l, col), chunk) };
            l = hint::keep_rolled(l + 1);
        }
        sum += chunk;
        first = end;
    }
    sum
}

/// The sums of 4×4 elements, and which of the rows of A and columns of B have numbers that are too small to be decomposed.
struct Sums {
    sums: [[f32; SIDE]; SIDE],
    /// A bit for each row, then one for each column: kernels call this with hardly a register left.
    too_small: u32,
}

/// The sums of the 4×4 elements from (`row`, `col`) on. Those outside of C are of other elements of A and B.
///
/// # Safety
/// (`row`, `col`) is inside C.
#[inline(always)]
#[track_caller]
unsafe fn sums(tile: &Tile<'_>, row: u32, col: u32) -> Sums {
    // The last row and the last column stand for those that do not exist.
    let rows: [u32; SIDE] = core::array::from_fn(|i| (row + i as u32).min(tile.c.rows() - 1));
    let cols: [u32; SIDE] = core::array::from_fn(|i| (col + i as u32).min(tile.c.cols() - 1));
    let mut sums = [[0.0; SIDE]; SIDE];
    let mut too_small = 0;
    let mut first = tile.k_begin;
    while first < tile.k_end {
        let end = (first + CHUNK).min(tile.k_end);
        let mut chunk = [[0.0; SIDE]; SIDE];
        let mut l = first;
        while l < end {
            // SAFETY: rows of A and columns of B are those of C, and l is below k.
            let a: [f32; SIDE] = core::array::from_fn(|i| unsafe { tile.a.at(rows[i], l) });
            // SAFETY: as above.
            let b: [f32; SIDE] = core::array::from_fn(|j| unsafe { tile.b.at(l, cols[j]) });
            for i in 0..SIDE {
                too_small |= u32::from(is_too_small(a[i])) << i | u32::from(is_too_small(b[i])) << (SIDE + i);
                for j in 0..SIDE {
                    chunk[i][j] = math::fma(a[i], b[j], chunk[i][j]);
                }
            }
            l = hint::keep_rolled(l + 1);
        }
        for i in 0..SIDE {
            for j in 0..SIDE {
                sums[i][j] += chunk[i][j];
            }
        }
        first = end;
    }
    Sums { sums, too_small }
}
