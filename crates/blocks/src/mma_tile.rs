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
///
/// ```
/// # use blocks::mma_tile::*;
/// # use cuda_std::prelude::*;
/// #[kernel(block = THREADS, dynamic_shared = MEMORY.bytes)]
/// fn multiply() {
///     // …
/// }
/// assert_eq!(multiply::DYNAMIC_SHARED_BYTES, 64 << 10);
/// ```
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
///
/// ```
/// use blocks::mma_scheme::ThreeTf32;
/// use blocks::mma_tile::{Accumulators, LINES, MEMORY, PIECE, THREADS, WORDS, own_lines};
/// use cuda_std::async_copy::copy_async;
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// `C = A·Bᵀ`, 128×128, of the bits of fp32 numbers: A and B are 128×k, row by row, for a k that is a multiple of 16.
/// #[kernel(
///     block = THREADS,
///     dynamic_shared = MEMORY.bytes,
///     requires(
///         k % WORDS == 0,
///         a.len() == (LINES * k) as usize && b.len() == a.len() && c.len() == (LINES * LINES) as usize,
///         (a.as_ptr().addr() | b.as_ptr().addr()) % 16 == 0
///     )
/// )]
/// fn multiply(k: u32, a: GlobalSlice<'_, u32>, b: GlobalSlice<'_, u32>, c: GlobalSliceMut<'_, f32>) {
///     let ((lines, word), mut sums, mut first) = (own_lines(thread::thread_idx_x()), Accumulators::ZERO, 0);
///     // SAFETY: all threads of the block come here, with the memory of the main loop; each copies its own words of a step, which are
///     // inside of A and B, and aligned to 16 bytes.
///     unsafe {
///         sums.add_steps::<ThreeTf32, true>(k / WORDS, [LINES; 2], |shared, stage| {
///             for line in lines {
///                 let from = (line * k + first + word) as usize;
///                 copy_async::<4, _>(shared, stage.of_a(line, word), &a, from, PIECE);
///                 copy_async::<4, _>(shared, stage.of_b(line, word), &b, from, PIECE);
///             }
///             first += WORDS;
///         });
///     }
///     sums.for_each_octet(|row, col, values| {
///         for (i, value) in values.into_iter().enumerate() {
///             // SAFETY: inside of C, and this thread's alone.
///             unsafe { c.set_unchecked((row * LINES + col) as usize + i, value) }
///         }
///     });
/// }
///
/// #[repr(align(16))]
/// struct Operand([u32; 128 * 32]);
///
/// let operand = |number: fn(usize) -> usize| Operand(core::array::from_fn(|i| (number(i) as f32).to_bits()));
/// let (a, b, mut c) = (operand(|i| i % 7), operand(|i| i % 5), vec![0.0; 128 * 128]);
/// let (a, b, c_view) = (GlobalSlice::new(&a.0), GlobalSlice::new(&b.0), GlobalSliceMut::new(&mut c));
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(multiply { k: 32, a, b, c: c_view }, Dim3::from(1)) }?;
/// let exact = |row: usize, col: usize| (0..32).map(|l| (row * 32 + l) % 7 * ((col * 32 + l) % 5)).sum::<usize>() as f32;
/// assert!(c.iter().enumerate().all(|(i, c)| *c == exact(i / 128, i % 128)));
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Accumulators([[[f32; 4]; ACROSS]; DOWN]);

/// Where the copies of a step go: the lines of A and of B in one stage.
///
/// ```
/// # use blocks::{mma_scheme::ThreeTf32, mma_tile::*};
/// # use cuda_std::{examples::run, prelude::*};
/// /// Writes a number to the words that a thread has of a step: A is all ones.
/// fn fill(shared: &SharedSlice<u32>, stage: Stage, b: f32) {
///     let (lines, first) = own_lines(thread::thread_idx_x());
///     for (line, word) in lines.into_iter().flat_map(|line| (first..first + PIECE).map(move |word| (line, word))) {
///         // SAFETY: inside of the stage, and this thread's own.
///         unsafe {
///             shared.write(stage.of_a(line, word), 1f32.to_bits());
///             shared.write(stage.of_b(line, word), b.to_bits());
///         }
///     }
/// }
///
/// let sums = run(THREADS, || {
///     let (mut sums, mut step) = (Accumulators::ZERO, 0.0);
///     // SAFETY: all threads come here, with the memory of the main loop.
///     unsafe {
///         sums.add_steps::<ThreeTf32, false>(3, [LINES; 2], |shared, stage| {
///             step += 1.0;
///             fill(shared, stage, step);
///         });
///     }
///     sums.to_array()
/// });
/// assert!(sums.iter().all(|own| *own == [16.0 * (1.0 + 2.0 + 3.0); OWN]));
/// ```
#[derive(Clone, Copy)]
pub struct Stage {
    first: u32,
}

impl Stage {
    /// The shared memory of a block, and the index in it of word `word`, a multiple of 4 for a copy of 16 bytes, of a line of A.
    ///
    /// ```
    /// # use blocks::{mma_scheme::ThreeTf32, mma_tile::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // Row r of A is r, and B is all ones: each sum is 16 times its row.
    /// let sums = run(THREADS, || {
    ///     let ((lines, first), mut sums) = (own_lines(thread::thread_idx_x()), Accumulators::ZERO);
    ///     // SAFETY: all threads come here, with the memory of the main loop, and each writes its own words.
    ///     unsafe {
    ///         sums.add_steps::<ThreeTf32, false>(1, [LINES; 2], |shared, stage| {
    ///             for (line, word) in lines.into_iter().flat_map(|line| (first..first + PIECE).map(move |word| (line, word))) {
    ///                 shared.write(stage.of_a(line, word), (line as f32).to_bits());
    ///                 shared.write(stage.of_b(line, word), 1f32.to_bits());
    ///             }
    ///         });
    ///     }
    ///     let mut rows = Vec::new();
    ///     sums.for_each_octet(|row, _, values| rows.push((row, values)));
    ///     rows
    /// });
    /// assert!(sums.iter().flatten().all(|(row, values)| *values == [16.0 * *row as f32; OCTET]));
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn of_a(self, line: u32, word: u32) -> usize {
        (self.first + lines_of_16(line, word)) as usize
    }

    /// The same of a line of B.
    ///
    /// ```
    /// # use blocks::{mma_scheme::ThreeTf32, mma_tile::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // Column c of B is c, and A is all ones: each sum is 16 times its column.
    /// let sums = run(THREADS, || {
    ///     let ((lines, first), mut sums) = (own_lines(thread::thread_idx_x()), Accumulators::ZERO);
    ///     // SAFETY: all threads come here, with the memory of the main loop, and each writes its own words.
    ///     unsafe {
    ///         sums.add_steps::<ThreeTf32, false>(1, [LINES; 2], |shared, stage| {
    ///             for (line, word) in lines.into_iter().flat_map(|line| (first..first + PIECE).map(move |word| (line, word))) {
    ///                 shared.write(stage.of_a(line, word), 1f32.to_bits());
    ///                 shared.write(stage.of_b(line, word), (line as f32).to_bits());
    ///             }
    ///         });
    ///     }
    ///     let mut columns = Vec::new();
    ///     sums.for_each_octet(|_, col, values| columns.push((col, values)));
    ///     columns
    /// });
    /// assert!(sums.iter().flatten().all(|(col, values)| *values == core::array::from_fn(|i| 16.0 * (*col as f32 + i as f32))));
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn of_b(self, line: u32, word: u32) -> usize {
        (self.first + LINES * WORDS + lines_of_16(line, word)) as usize
    }
}

/// Which of the lines of a stage a thread copies, 16 bytes of each: every one of a block's threads two of A and two of B, at the same
/// words. Four neighbouring threads copy the 64 bytes of a line.
///
/// ```
/// # use blocks::mma_tile::*;
/// // Thread 5 has words 4 to 7 of the lines 1 and 65.
/// assert_eq!(own_lines(5), ([1, 65], 4));
/// // Each piece of a stage has a thread.
/// let mut pieces = Vec::from_iter((0..THREADS).flat_map(|thread| {
///     let (lines, word) = own_lines(thread);
///     lines.map(|line| (line * WORDS + word) / PIECE)
/// }));
/// pieces.sort();
/// assert!(pieces.into_iter().eq(0..LINES * WORDS / PIECE));
/// ```
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
    /// ```
    /// # use blocks::{mma_scheme::Bf16Products, mma_tile::*};
    /// # use cuda_std::{Bf16, async_copy::copy_async, examples::run_over, prelude::*};
    /// // All rows of A, and all columns of B, are this line of 64 bf16 numbers, two in a word: two steps.
    /// let two = |k: u16| u32::from(Bf16::from_f32(f32::from(k)).to_bits()) * 0x1_0001;
    /// let mut line = Vec::from_iter((0..32).map(|k| two(k)));
    /// let sums = run_over(THREADS, &mut line, |line: GlobalSlice<'_, u32>| {
    ///     let ((lines, word), mut sums, mut first) = (own_lines(thread::thread_idx_x()), Accumulators::ZERO, 0);
    ///     // SAFETY: all threads come here, with the memory of the main loop; each copies its own words, 16 bytes at a time, of a line of 32.
    ///     unsafe {
    ///         sums.add_steps::<Bf16Products, true>(2, [LINES; 2], |shared, stage| {
    ///             for own in lines {
    ///                 copy_async::<4, _>(shared, stage.of_a(own, word), &line, (first + word) as usize, PIECE);
    ///                 copy_async::<4, _>(shared, stage.of_b(own, word), &line, (first + word) as usize, PIECE);
    ///             }
    ///             first += WORDS;
    ///         });
    ///     }
    ///     sums.to_array()
    /// });
    /// let squares = (0..32).map(|k| 2 * k * k).sum::<u32>() as f32;
    /// assert!(sums.iter().all(|own| *own == [squares; OWN]));
    /// ```
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
    ///
    /// ```
    /// # use blocks::mma_tile::*;
    /// # use cuda_std::examples::run;
    /// // The threads of a block have each element of the tile once.
    /// let mut places = run(THREADS, || {
    ///     let mut places = Vec::new();
    ///     Accumulators::ZERO.for_each_octet(|row, col, values| {
    ///         assert_eq!(values, [0.0; OCTET]);
    ///         places.extend((0..OCTET as u32).map(|i| row * LINES + col + i));
    ///     });
    ///     places
    /// })
    /// .concat();
    /// places.sort();
    /// assert!(places.into_iter().eq(0..LINES * LINES));
    /// ```
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
    ///
    /// ```
    /// # use blocks::mma_tile::*;
    /// # use cuda_std::examples::run;
    /// let again = run(THREADS, || {
    ///     let (mut sums, mut again) = (Accumulators::ZERO, Vec::new());
    ///     sums.add_fours(|first| if first == 4 { [0.0, f32::NAN, 0.0, f32::INFINITY] } else { [1.0; 4] });
    ///     // A kernel computes these again, in plain fp32.
    ///     sums.for_each_not_finite(|row, col| again.push([row, col]));
    ///     again
    /// });
    /// // The first thread has rows 0 to 3, and from columns 0 and 32 on eight neighbours of each.
    /// assert_eq!(again[0], [[0, 5], [1, 5]]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::mma_tile::*;
    /// # use cuda_std::examples::run;
    /// // What blocks that share a tile hand over: each thread's accumulators, to be added to those of the same thread of another block.
    /// let doubled = run(THREADS, || {
    ///     let mut sums = Accumulators::ZERO;
    ///     sums.add_fours(|first| [0, 1, 2, 3].map(|i| (first + i) as f32));
    ///     let others = sums.to_array();
    ///     sums.add_fours(|first| core::array::from_fn(|i| others[first + i]));
    ///     sums.to_array()
    /// });
    /// assert_eq!(doubled[255], core::array::from_fn(|i| 2.0 * i as f32));
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn to_array(&self) -> [f32; OWN] {
        core::array::from_fn(|i| self.0[i / (4 * ACROSS)][i / 4 % ACROSS][i % 4])
    }

    /// Adds, in the order of [`Accumulators::to_array`], what `other` says of each four from an index on.
    ///
    /// ```
    /// # use blocks::mma_tile::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // What two other blocks have left in global memory: 16 times four accumulators, those of neighbouring threads side by side.
    /// let part = OWN * THREADS as usize;
    /// let mut parts = Vec::from_iter((0..2 * part).map(|i| if i < part { 1000.0 } else { (i - part) as f32 }));
    /// let sums = run_over(THREADS, &mut parts, |parts: GlobalSlice<'_, f32>| {
    ///     let (mut sums, own) = (Accumulators::ZERO, 4 * thread::index());
    ///     for number in 0..2 {
    ///         // SAFETY: there are as many elements, aligned to 16 bytes four by four.
    ///         sums.add_fours(|first| unsafe { parts.get4_unchecked(number * part + first * THREADS as usize + own) });
    ///     }
    ///     sums.to_array()
    /// });
    /// assert_eq!((sums[0][1], sums[0][4], sums[255][63]), (1001.0, 2024.0, 1000.0 + 16_383.0));
    /// ```
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
