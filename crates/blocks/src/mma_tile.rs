//! The main loop of a block that multiplies a tile of 128×128 by `mma.sync`, for any GPU from sm_80 on: `cp.async` fills a ring of four
//! stages in shared memory, `ldmatrix` brings operands to registers, tensor cores multiply. Where the operands come from is the kernel's
//! matter: it issues the copies of a step, and takes the accumulators at the end.
//!
//! ```text
//!                    128 columns
//!               ┌─────────┬─────────┐             a block: 8 warps
//!         16 words        │         │ B           a stage: 128 rows and 128 columns of 16 words, 16 KB
//!               └─────────┴─────────┘
//!     16 words  ┌─────────┬─────────┐             step t:  its copies have arrived
//!      ┌────┐   │   w0    │   w4    │                      barrier
//!      ├────┤   ├─────────┼─────────┤                      issue the copies of step t + 3, to the stage of step t - 1
//! 128  ├────┤   │   w1    │   w5    │                      multiply
//! rows ├────┤   ├─────────┼─────────┤
//!      └────┘   │   w2    │   w6    │             a warp: 32 rows and 64 columns, 64 accumulators of each lane
//!        A      ├─────────┼─────────┤
//!               │   w3    │   w7    │
//!               └─────────┴─────────┘
//! ```
//!
//! Both operands are K-major: a *line*, which is a row of A or a column of B, has its k side by side. A word of 32 bits is one fp32 number
//! or two bf16 numbers, so a step is 16 or 32 of k, and all of this file but [`Scheme`] is the same for both. Lines are swizzled by
//! [`lines_of_16`], and row `g` of tile `j` of tensor cores is line `4g + j` of a block of 32: so a lane's columns of a block are eight
//! neighbours, which it can store by vectors.

use cuda_std::prelude::*;
use cuda_std::{async_copy, ldmatrix};

use crate::mma_scheme::Scheme;
use crate::shared_layout::{SharedArray, SharedLayout};
use crate::swizzle::lines_of_16;

/// The rows of A, and the columns of B, of a block's tile.
pub const LINES: u32 = 128;
/// The words of a line in a step.
pub const WORDS: u32 = 16;
/// The words of a copy of 16 bytes.
pub const PIECE: u32 = 4;
/// The threads of a block.
pub const THREADS: u32 = 256;
/// The accumulators of a thread.
pub const OWN: usize = 64;
/// The neighbouring columns of a row that a thread has, and how many times it has as many.
pub const OCTET: usize = 8;

/// The steps whose copies may be under way when another one is waited for, and those that are in shared memory at a time.
const PENDING: u32 = 2;
const STAGES: u32 = PENDING + 2;
/// The words of a stage, A before B.
const STAGE: u32 = 2 * LINES * WORDS;
/// The lines of a block of lines that a warp loads together.
const BLOCK_LINES: u32 = 32;
/// The rows and columns of a warp, and the warps one below the other.
const WARP_ROWS: u32 = 32;
const WARP_COLS: u32 = 64;
const WARPS_DOWN: u32 = LINES / WARP_ROWS;
/// The tiles of tensor cores of a warp: 16 rows down, 8 columns across.
const DOWN: usize = WARP_ROWS as usize / 16;
const ACROSS: usize = WARP_COLS as usize / 8;
const _: () = assert!(DOWN * ACROSS * 4 == OWN && WARPS_DOWN * (LINES / WARP_COLS) * warp::LANES == THREADS);

/// The dynamic shared memory of a block.
pub struct Memory {
    stages: SharedArray<u32>,
    /// What the kernel names as its `dynamic_shared`.
    pub bytes: u32,
}

/// The dynamic shared memory of a block: 64 KB, which every GPU from sm_80 on has.
pub const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    let stages = layout.aligned(STAGES * STAGE, 128);
    Memory { stages, bytes: layout.bytes() }
};

/// The accumulators of a thread: by tile of 16 rows and tile of 8 columns of its warp, as tensor cores have them.
#[derive(Clone, Copy)]
pub struct Accumulators([[[f32; 4]; ACROSS]; DOWN]);

/// Where the copies of a step go: the lines of A and of B in one stage.
#[derive(Clone, Copy)]
pub struct Stage {
    first: u32,
}

impl Stage {
    /// The shared memory of a block, and the index in it of word `word`, a multiple of 4 for a copy of 16 bytes, of a line of A.
    #[inline(always)]
    #[must_use]
    pub fn of_a(self, line: u32, word: u32) -> usize {
        (self.first + lines_of_16(line, word)) as usize
    }

    /// The same of a line of B.
    #[inline(always)]
    #[must_use]
    pub fn of_b(self, line: u32, word: u32) -> usize {
        (self.first + LINES * WORDS + lines_of_16(line, word)) as usize
    }
}

/// Which of the lines of a stage a thread copies, 16 bytes of each: every one of a block's threads two of A and two of B, at the same
/// words. Four neighbouring threads copy the 64 bytes of a line.
#[inline(always)]
#[must_use]
pub fn own_lines(thread: u32) -> ([u32; 2], u32) {
    let (line, piece) = (thread / (WORDS / PIECE), thread % (WORDS / PIECE));
    ([line, line + LINES / 2], piece * PIECE)
}

impl Accumulators {
    /// Sums of nothing.
    pub const ZERO: Self = Self([[[0.0; 4]; ACROSS]; DOWN]);

    /// Multiplies `steps` steps and adds the products. `copy` brings the next step to a stage, all words of it: by asynchronous copies,
    /// which it does not commit, or, unless `ASYNC`, by plain writes. It is called as many times as there are steps. `extent` are the rows
    /// and columns of the tile that are wanted: a warp that has none of them multiplies nothing.
    ///
    /// # Safety
    /// - All [`THREADS`] threads of the block come here together, with the dynamic shared memory of [`MEMORY`], the same number of steps
    ///   and the same extent.
    /// - `copy` writes to the shared memory that it is given where [`Stage`] says, each word by one thread, by asynchronous copies if
    ///   `ASYNC`, and has no barrier.
    #[inline(always)]
    pub unsafe fn add_steps<S: Scheme, const ASYNC: bool>(
        &mut self,
        steps: u32,
        extent: [u32; 2],
        mut copy: impl FnMut(&SharedSlice<u32>, Stage),
    ) {
        // SAFETY: the caller's promise.
        let shared = unsafe { MEMORY.stages.slice() };
        let [row, col] = warp_origin(thread::thread_idx_x());
        let has_work = row < extent[0] && col < extent[1];
        if steps == 0 {
            return;
        }
        // SAFETY: all threads come here. What was read of the stages before is read.
        unsafe { thread::sync_threads() };
        // The step after which `left` are left, itself among them, is in stage `left` modulo their number: one number is all that has to be
        // kept.
        let stage = |left: u32| Stage { first: left % STAGES * STAGE };
        let mut ahead = 0;
        while ahead < STAGES - 1 {
            if ahead < steps {
                copy(&shared, stage(steps - ahead));
            }
            if ASYNC {
                async_copy::commit_group();
            }
            ahead = hint::keep_rolled(ahead + 1);
        }
        let mut left = steps;
        while left > 0 {
            // Each step so far, and each of those ahead, has committed a group, which may be empty; those of the latest two may still be
            // under way.
            if ASYNC {
                async_copy::wait_group::<PENDING>();
            }
            // SAFETY: the number of steps is the same for all threads of the block. The barrier makes the copies of all threads visible to
            // all, and separates the reads of the stage that is copied to next from these copies.
            unsafe { thread::sync_threads() };
            if left > STAGES - 1 {
                copy(&shared, stage(left - (STAGES - 1)));
            }
            if ASYNC {
                async_copy::commit_group();
            }
            if has_work {
                // SAFETY: `has_work` is the same for the warp, and the copies of this stage were waited for before the barrier.
                unsafe { self.add_step::<S>(&shared, stage(left).first) };
            }
            left = hint::keep_rolled(left - 1);
        }
    }

    /// Multiplies the step in the stage that begins at `stage`.
    ///
    /// # Safety
    /// The whole warp calls this function together; the stage is written, and a barrier separates the writes from this call.
    #[inline(always)]
    unsafe fn add_step<S: Scheme>(&mut self, shared: &SharedSlice<u32>, stage: u32) {
        let thread = thread::thread_idx_x();
        let ([row, col], lane) = (warp_origin(thread), thread % warp::LANES);
        // SAFETY: the caller's promise.
        let rows = unsafe { load_lines(shared, stage, row, lane) }.map(S::prepare);
        // Line 4g + 2i is row g of tile i, and line 4g + 2i + 1 is row g + 8.
        let rows = [[rows[0], rows[1]], [rows[2], rows[3]]];
        for block in 0..ACROSS / 4 {
            let first = col + block as u32 * BLOCK_LINES;
            // SAFETY: the caller's promise; B comes after A.
            let words = unsafe { load_lines(shared, stage + LINES * WORDS, first, lane) };
            for pair in 0..2 {
                let columns = [S::prepare(words[2 * pair]), S::prepare(words[2 * pair + 1])];
                let first = 4 * block + 2 * pair;
                let mut sums = self.0.each_ref().map(|row| [row[first], row[first + 1]]);
                // SAFETY: the caller's promise.
                unsafe { S::add_products(&mut sums, rows, columns) };
                for i in 0..DOWN {
                    [self.0[i][first], self.0[i][first + 1]] = sums[i];
                }
            }
        }
    }

    /// What this thread has of the tile: `visit(row, column, values)` for each row of it that it has neighbouring columns of.
    #[inline(always)]
    pub fn for_each_octet(&self, mut visit: impl FnMut(u32, u32, [f32; OCTET])) {
        for octet in 0..OWN / OCTET {
            let [row, col] = place_of_octet(octet as u32);
            visit(row, col, self.octet(octet));
        }
    }

    /// The neighbouring columns of one row: column 2q + e of tile j of a block is line 4(2q + e) + j of it.
    #[inline(always)]
    fn octet(&self, octet: usize) -> [f32; OCTET] {
        let (line, block) = (octet % 4, octet / 4);
        core::array::from_fn(|i| self.0[line / 2][4 * block + i % 4][line % 2 * 2 + i / 4])
    }

    /// Calls `visit(row, column)` for each accumulator of this thread that is infinite or NaN. The loop is not unrolled: it is for what
    /// is rare, and may be long.
    #[inline(always)]
    pub fn for_each_not_finite(&self, mut visit: impl FnMut(u32, u32)) {
        let mut found = [0u32; 2];
        for octet in 0..OWN / OCTET {
            let values = self.octet(octet);
            for i in 0..OCTET {
                let element = octet * OCTET + i;
                found[element / 32] |= u32::from(!values[i].is_finite()) << (element % 32);
            }
        }
        let mut left = u64::from(found[1]) << 32 | u64::from(found[0]);
        while left != 0 {
            let element = left.trailing_zeros();
            left &= left - 1;
            let [row, col] = place_of_octet(element / OCTET as u32);
            visit(row, col + element % OCTET as u32);
        }
    }

    /// All accumulators of this thread, in an order that is the same for every thread of every block.
    #[inline(always)]
    #[must_use]
    pub fn to_array(&self) -> [f32; OWN] {
        core::array::from_fn(|i| self.0[i / (4 * ACROSS)][i / 4 % ACROSS][i % 4])
    }

    /// Adds, in the order of [`Accumulators::to_array`], what `other` says of each four from an index on.
    #[inline(always)]
    pub fn add_fours(&mut self, mut other: impl FnMut(usize) -> [f32; 4]) {
        for i in 0..DOWN {
            for j in 0..ACROSS {
                let others = other(4 * (i * ACROSS + j));
                for element in 0..4 {
                    self.0[i][j][element] += others[element];
                }
            }
        }
    }
}

/// The row and the first column of one of the octets of this thread.
#[inline(always)]
fn place_of_octet(octet: u32) -> [u32; 2] {
    let lane = thread::thread_idx_x() % warp::LANES;
    let [row, col] = warp_origin(thread::thread_idx_x());
    let (g, q) = (lane / 4, lane % 4);
    [row + 4 * g + octet % 4, col + BLOCK_LINES * (octet / 4) + 8 * q]
}

/// The first row and the first column of the warp of a thread in the tile of its block.
#[inline(always)]
fn warp_origin(thread: u32) -> [u32; 2] {
    let warp = thread / warp::LANES;
    [warp % WARPS_DOWN * WARP_ROWS, warp / WARPS_DOWN * WARP_COLS]
}

/// Of the block of 32 lines from line `first` on, a multiple of 32, of lines that begin at `lines` in shared memory: for lane `4g + q`, `lane`, the
/// words `q`, `q + 4`, `q + 8` and `q + 12` of the lines `4g` to `4g + 3`.
///
/// # Safety
/// As for [`ldmatrix::ldmatrix_x4`]: the whole warp calls this function together, and the lines are written, before a barrier.
#[inline(always)]
#[track_caller]
unsafe fn load_lines(shared: &SharedSlice<u32>, lines: u32, first: u32, lane: u32) -> [[u32; 4]; 4] {
    // Lane 8·i + g names line 4g of matrix i, words from 4i on.
    core::array::from_fn(|i| {
        let place = lines_of_16(first + lane % 8 * 4 + i as u32, lane / 8 * 4);
        // SAFETY: the caller's promise; a place whose word is a multiple of 4 is one of 16 bytes.
        unsafe { ldmatrix::ldmatrix_x4(shared, (lines + place) as usize) }
    })
}
