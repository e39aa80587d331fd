//! What is to be known of each 256 lines of an operand that has been packed as [`pairs`](super::pairs): a launch after the one that packs.
//!
//! ```text
//!  what each tile has                            of each 256 lines
//!
//!  ┌────┬────┬────┬────┐
//!  │    │    │  x │    │   64 lines              left to the fallback?
//!  ├────┼────┼────┼────┤                  ──►    a list of exceptions (x)
//!  │    │  x │    │    │                         the first and the last terms that are not zero
//!  └────┴────┴────┴────┘
//!    64 terms
//! ```
//!
//! A block for each 256 lines, a thread for each column of tiles. The order of a list follows from where its exceptions are.

use blocks::reduce::{Combine, combine_lanes};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::exceptions::list_words;
use super::exceptions::{LIST, MOST};
#[cfg(not(target_arch = "nvptx64"))]
use super::pairs::tiles;
use super::pairs::{BLOCK, Contents, WARPS};
use super::tile::{SIDE, THREADS};
use crate::gemm::hopper::fallback::GROUP;

/// What [`pack_pairs_fp16`](super::pairs::pack_pairs_fp16) has found in each tile of an operand, and where what that says of each [`GROUP`] lines goes: whether any is left to the
/// fallback, and two words: all lines are zero at every term below the first one, and from the second one on. They are multiples of [`BLOCK`].
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct ToFlags<'a> {
    /// A word for each tile.
    pub contents: GlobalSlice<'a, u32>,
    /// The extents of each matrix of the operand, and how many there are.
    pub lines: u32,
    /// See there.
    pub terms: u32,
    /// See there.
    pub matrices: u32,
    /// A word for each group.
    pub fallback: GlobalSliceMut<'a, u32>,
    /// Two for each.
    pub nonzero: GlobalSliceMut<'a, u32>,
    /// The [lists](super::exceptions) of exceptions, [`LIST`] words for each group.
    pub exceptions: GlobalSliceMut<'a, u32>,
}

impl ToFlags<'_> {
    /// The groups of all matrices.
    #[inline(always)]
    fn groups(&self) -> u64 {
        u64::from(self.lines.div_ceil(GROUP)) * u64::from(self.matrices)
    }

    /// Whether there is a word for every tile, and room for what is said of every group.
    #[cfg(not(target_arch = "nvptx64"))]
    fn have_room(&self) -> bool {
        self.fallback.len() as u64 == self.groups()
            && self.nonzero.len() == self.fallback.len() * 2
            && self.exceptions.len() as u128 >= list_words(self.lines, self.matrices)
            && self.contents.len() as u128 >= tiles(self.lines, self.terms, self.matrices)
    }
}

/// The tiles of a group, one below the other.
const TILES: u32 = GROUP / SIDE;

/// Sums up what the tiles have of group `group` of an operand.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`] together, for a group that there is of an operand for which there is room, with memory that nothing else uses.
#[inline(always)]
unsafe fn sum_up(operand: &ToFlags<'_>, group: u64, memory: &'static Shared<[[u32; Found::WORDS]; WARPS]>) {
    let &ToFlags { contents, lines, terms, fallback, nonzero, exceptions, .. } = operand;
    let thread = thread::thread_idx_x();
    let (of_a_matrix, blocks, tile_rows) = (lines.div_ceil(GROUP), terms.div_ceil(BLOCK), lines.div_ceil(SIDE));
    let matrix = group.checked_div(of_a_matrix.into()).unwrap_or(0);
    let first = (group - matrix * u64::from(of_a_matrix)) as u32 * TILES;
    // Of a group with fewer tiles, its last one comes more than once, which changes nothing but the count of exceptions.
    let rows = (tile_rows - first).min(TILES);
    // SAFETY: there is a word for every tile, and there are words for every group. Each is written by one
    // thread. All threads of the block come here for the same groups; barriers separate what is written to shared memory from the
    // reads, and the reads from the next writes.
    unsafe {
        let contents_of = |i: u32, block: u32| {
            let row = matrix * u64::from(tile_rows) + u64::from(first + i.min(rows - 1));
            contents.get_unchecked((row * u64::from(blocks) + u64::from(block)) as usize)
        };
        let mut found = Found::NOTHING;
        let mut block = thread;
        while block < blocks {
            let words: [u32; TILES as usize] = core::array::from_fn(|i| contents_of(i as u32, block));
            for i in 0..TILES {
                found.see(Contents::of_word(words[i as usize]), block, i < rows);
            }
            block += THREADS;
        }
        let of_thread = found.exceptions;
        let found = combine_lanes(found, warp::LANES);
        if warp::lane_id() == 0 {
            let words = found.words();
            for i in 0..Found::WORDS {
                memory.write([(thread / warp::LANES) as usize, i], words[i]);
            }
        }
        thread::sync_threads();
        let mut all = Found::NOTHING;
        let mut before = 0;
        for warp in 0..WARPS {
            let of_warp = Found::of_words(core::array::from_fn(|i| memory.read([warp, i])));
            before += if (warp as u32) < thread / warp::LANES { of_warp.exceptions } else { 0 };
            all.and(of_warp);
        }
        let fallback_needed = all.is_left_to_fallback();
        let count = if fallback_needed { 0 } else { all.exceptions };
        let list = exceptions.from_unchecked((group * u64::from(LIST)) as usize);
        if thread == 0 {
            fallback.set_unchecked(group as usize, fallback_needed.into());
            nonzero.set_unchecked(2 * group as usize, all.begin);
            nonzero.set_unchecked(2 * group as usize + 1, all.end);
            list.set_unchecked(0, count);
        }
        if count != 0 {
            // Those of threads before this one come before its own.
            for lane in 0..warp::LANES {
                let of_lane = warp::warp_shuffle_idx(warp::ALL_LANES, of_thread, lane, warp::LANES).0;
                before += if lane < warp::lane_id() { of_lane } else { 0 };
            }
            let mut block = if of_thread == 0 { blocks } else { thread };
            while block < blocks {
                for i in 0..rows {
                    if let Some(exception) = Contents::of_word(contents_of(i, block)).exception {
                        list.set_unchecked(1 + 2 * before as usize, i * SIDE + exception.line());
                        list.set_unchecked(2 + 2 * before as usize, block * BLOCK + exception.term());
                        before += 1;
                    }
                }
                block += THREADS;
            }
        }
        thread::sync_threads(); // what has been read may be written for the next group
    }
}

/// Sums up what the tiles of two operands have.
#[kernel(block = 256, requires(a.have_room(), b.have_room()))]
pub fn group_flags_fp16(a: ToFlags<'_>, b: ToFlags<'_>) {
    static FOUND: Shared<[[u32; Found::WORDS]; WARPS]> = Shared::new();
    let (of_a, all) = (a.groups(), a.groups() + b.groups());
    let mut group = u64::from(thread::block_idx_x());
    while group < all {
        // SAFETY: all threads of the block come here for the same groups, the memory is theirs, and a launch has checked that there is room.
        unsafe { if group < of_a { sum_up(&a, group, &FOUND) } else { sum_up(&b, group - of_a, &FOUND) } }
        group += u64::from(thread::grid_dim_x());
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for group_flags_fp16<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.a.groups() + self.b.groups())
    }
}

/// What some tiles of a group have.
#[derive(Clone, Copy)]
struct Found {
    /// Not zero if a line is left to the fallback.
    unfit: u32,
    /// Not zero if there are numbers that no operand has which selects.
    other: u32,
    /// Everything before this term is zero.
    begin: u32,
    /// Everything from this one on is.
    end: u32,
    /// How many exceptions there are.
    exceptions: u32,
}

impl Found {
    /// How many words they are.
    const WORDS: usize = 5;

    const NOTHING: Self = Self { unfit: 0, other: 0, begin: u32::MAX, end: 0, exceptions: 0 };

    /// Whether the lines are left to the fallback: one of them that cannot be packed, more exceptions than a list has room for, or all because
    /// they may select.
    #[inline(always)]
    fn is_left_to_fallback(&self) -> bool {
        self.unfit != 0 || self.exceptions > MOST || self.other == 0 && self.begin < self.end
    }

    /// Sees a tile, whose exception counts the first time.
    #[inline(always)]
    fn see(&mut self, contents: Contents, block: u32, first_time: bool) {
        self.unfit |= u32::from(contents.unfit);
        self.other |= u32::from(contents.other);
        self.exceptions += u32::from(first_time && contents.exception.is_some());
        if contents.any {
            self.begin = self.begin.min(block * BLOCK);
            self.end = self.end.max((block + 1) * BLOCK);
        }
    }
}

impl Combine<{ Found::WORDS }> for Found {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        self.unfit |= other.unfit;
        self.other |= other.other;
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.exceptions += other.exceptions;
    }

    #[inline(always)]
    fn words(self) -> [u32; Self::WORDS] {
        [self.unfit, self.other, self.begin, self.end, self.exceptions]
    }

    #[inline(always)]
    fn of_words([unfit, other, begin, end, exceptions]: [u32; Self::WORDS]) -> Self {
        Self { unfit, other, begin, end, exceptions }
    }
}
