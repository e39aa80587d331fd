//! `C = A·Bᵀ` in fp32, A m × k and B n × k, row by row, on tensor cores by Stream-K. Blocks of 256 threads compute tiles of 128 × 128. As
//! many blocks as run at the same time, the workers, share by steps of k the tiles that would not fill a wave, so that no multiprocessor is
//! idle while others compute those. Partial sums are handed over by flags, and added in an order that is always the same.
//!
//! ```text
//!  tiles      │ tile 0            │ tile 1            │ tile 2            │ … whole tiles, a block each
//!  steps of k │ 0 1 2 3 4 5 6 7 8 │ 0 1 2 3 4 5 6 7 8 │ 0 1 2 3 4 5 6 7 8 │
//!  workers    │ w₀          │ w₁              │ w₂            │ w₃        │
//!                           │ ◄── w₁ begins behind its end: steps 0 1 2 3 of tile 1, which are w₂'s to add: it stores them, and sets its flag
//!             w₁ ends with steps 6 7 8 of tile 0, the last ones of a tile that it has: it waits for w₀'s flag, and adds what w₀ has stored
//! ```
//!
//! As many tiles as there are beyond whole waves of workers, and one wave more, are divided among the workers by steps of 16 of k: each has
//! between one tile and two. The other tiles are one block's each, as ever.
//!
//! **Nobody waits long, and nobody for ever.** A worker goes through its steps backwards. So the part of a tile that it has to hand over
//! comes first, long before the worker behind, which has the last step of that tile, comes to its own end and needs it. Blocks take
//! their numbers from a counter, and a worker waits for lower numbers only: those have begun, and a worker stores its part before it
//! waits. So a grid ends in whatever order and however few at a time its blocks run.
//!
//! **Hand over.** All threads store their accumulators; behind a barrier one thread stores the flag with `Release`, and one of those who
//! wait loads it with `Acquire`, before a barrier of its own. Barriers and the flag together order what one thread has written before what
//! another reads. The worker with the last steps adds to its own sums those of the worker before, then of the one before that: so the
//! bits depend on the number of workers, and not on who is done first.
//!
//! Products are three TF32 products, as accurate as fp32 sums ([`blocks::mma_scheme`]). An element that comes out infinite or NaN is
//! computed again in plain fp32.
//!
//! Source: M. Osama et al., "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU", PPoPP 2023,
//! arXiv:2301.03598; there the worker with the first steps of a tile waits.

use blocks::mma_scheme::ThreeTf32;
use blocks::mma_tile::{Accumulators, LINES, MEMORY, OCTET, OWN, PIECE, Stage, THREADS, WORDS, own_lines};
use blocks::uniform::this_thread;
use cuda_std::async_copy::copy_async;
use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::prelude::*;

/// The elements of a tile, which is what a worker hands over.
pub const TILE: usize = OWN * THREADS as usize;

/// A product and its division.
#[derive(Clone, Copy)]
struct Product {
    m: u32,
    n: u32,
    k: u32,
    workers: u32,
}

impl Product {
    /// The tiles across, and all of them.
    #[inline(always)]
    fn tiles(self) -> [u32; 2] {
        let across = self.n.div_ceil(LINES);
        [across, across * self.m.div_ceil(LINES)]
    }

    /// The steps of a tile: one at least, of zeros where there is no k.
    #[inline(always)]
    fn steps(self) -> u32 {
        self.k.div_ceil(WORDS).max(1)
    }

    /// The tiles that workers share: those beyond whole waves, and a wave more, unless there is none.
    #[inline(always)]
    fn shared_tiles(self) -> u32 {
        let ([_, tiles], workers) = (self.tiles(), self.workers.max(1));
        if tiles.is_multiple_of(workers) {
            0
        } else if tiles < workers {
            tiles
        } else {
            workers + tiles % workers
        }
    }

    /// The steps of all shared tiles before those of a worker.
    #[inline(always)]
    fn first_step(self, worker: u32) -> u32 {
        let steps = u64::from(self.shared_tiles()) * u64::from(self.steps());
        (steps * u64::from(worker) / u64::from(self.workers.max(1))) as u32
    }

    /// The first row and the first column of a tile.
    #[inline(always)]
    fn first_lines(self, tile: u32) -> [u32; 2] {
        let across = self.n.div_ceil(LINES).max(1);
        [tile / across * LINES, tile % across * LINES]
    }

    /// The blocks: workers, if tiles are shared, and one for each other tile.
    #[inline(always)]
    fn blocks(self) -> u32 {
        let ([_, tiles], shared) = (self.tiles(), self.shared_tiles());
        if shared == 0 { tiles } else { self.workers + tiles - shared }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Product {
    /// Whether numbers of rows, columns, tiles, steps and blocks fit, and arrays of so many elements are those of A, B, C, of what workers
    /// hand over, of their flags, and the counter.
    fn fits(self, [a, b, c, parts, flags, next]: [usize; 6]) -> bool {
        let len = |rows: u32, cols: u32| (rows as usize).checked_mul(cols as usize);
        let most = (i32::MAX - 1024) as u32;
        let tiles = u64::from(self.m.div_ceil(LINES)) * u64::from(self.n.div_ceil(LINES));
        self.m.max(self.n).max(self.k) <= most
            && self.workers > 0
            && tiles + u64::from(self.workers) <= u64::from(most)
            && u64::from(self.shared_tiles()) * u64::from(self.steps()) <= u64::from(most)
            && len(self.m, self.k) == Some(a)
            && len(self.n, self.k) == Some(b)
            && len(self.m, self.n) == Some(c)
            && parts == self.workers as usize * TILE
            && flags == self.workers as usize
            && next == 1
    }
}

/// A kernel for each way to copy.
macro_rules! kernels {
    ($($name:ident, $by_pieces:literal, $doc:expr;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 256,
            min_blocks = 1,
            grid = Product { m, n, k, workers }.blocks().max(1),
            dynamic_shared = MEMORY.bytes,
            requires(
                Product { m, n, k, workers }.fits([a.len(), b.len(), c.len(), parts.len(), flags.len(), next.len()]),
                !$by_pieces || k.is_multiple_of(PIECE),
                !$by_pieces || (a.as_ptr().addr() | b.as_ptr().addr()).is_multiple_of(16),
                parts.as_mut_ptr().addr().is_multiple_of(16)
            )
        )]
        pub fn $name(
            m: u32,
            n: u32,
            k: u32,
            workers: u32,
            a: GlobalSlice<'_, f32>,
            b: GlobalSlice<'_, f32>,
            c: GlobalSliceMut<'_, f32>,
            parts: GlobalSliceMut<'_, f32>,
            flags: GlobalAtomics<'_, u32>,
            next: GlobalAtomics<'_, u32>,
        ) {
            static TAKEN: Shared<[u32; 1]> = Shared::new();
            // SAFETY: all threads come here. One writes the number, and the barrier is between that and the reads.
            let number = unsafe {
                if thread::thread_idx_x() == 0 {
                    TAKEN.write(0, next.get_unchecked(0).fetch_add(1, Relaxed, Scope::Device));
                }
                thread::sync_threads();
                TAKEN.read(0)
            };
            let product = Product { m, n, k, workers };
            // SAFETY: a block of 256 threads, all of which come here, with the shared memory of the main loop and a number of its own; the
            // launch has checked the rest.
            unsafe { work::<$by_pieces>(product, number, [a, b], c, parts, flags) };
        }
    )* };
}

kernels! {
    gemm_stream_k_mma_nt_fp32_3xtf32, true,
        "`C = A·Bᵀ` in fp32 by three TF32 products. `a` is m × k, `b` is n × k, `c` is m × n, row by row; k is a multiple of 4. `workers` blocks \
         share the tiles beyond whole waves: as many as run at a time. `parts` has a tile for each worker; `flags`, a word for each, and `next` \
         are zero before.";
    gemm_stream_k_any_mma_nt_fp32_3xtf32, false, "The same of any k, copied element by element.";
}

/// The body of both kernels, for block `number` in the order in which blocks begin.
///
/// # Safety
/// All threads of a block of [`THREADS`] come here together, with the shared memory of [`MEMORY`]; no other block has this number, and
/// lower ones have begun; the product [fits](Product::fits) the arrays, which are aligned to 16 bytes if `BY_PIECES`, as `parts` is.
#[inline(always)]
unsafe fn work<const BY_PIECES: bool>(
    product: Product,
    number: u32,
    operands: [GlobalSlice<'_, f32>; 2],
    c: GlobalSliceMut<'_, f32>,
    parts: GlobalSliceMut<'_, f32>,
    flags: GlobalAtomics<'_, u32>,
) {
    let (shared, steps) = (product.shared_tiles(), product.steps());
    if number >= product.blocks() {
        return; // the same for the whole block
    }
    // Steps are counted from tile `base` on.
    let (base, begin, mut end) = if shared > 0 && number < product.workers {
        (0, product.first_step(number), product.first_step(number + 1))
    } else {
        (if shared > 0 { shared + number - product.workers } else { number }, 0, steps)
    };
    while end > begin {
        let in_order = (end - 1) / steps;
        let (tile, first) = (base + in_order, in_order * steps);
        let from = first.max(begin);
        // SAFETY: all threads of the block come here, with the same numbers; a step is one worker's. The accumulators of a worker that ends
        // inside of a tile are in its own part, which nobody reads before the flag says so. Whoever has the last step of a tile waits for
        // workers of lower numbers, which have begun, and whose first part is that of this tile; nobody else writes the tile.
        unsafe {
            let mut sums = multiply::<BY_PIECES>(product, operands, tile, [from - first, end - first]);
            if end < first + steps {
                hand_over(parts, flags, number, &sums);
            } else {
                let (mut from, mut other) = (from, number);
                while from > first {
                    other -= 1;
                    let others = product.first_step(other);
                    // One with fewer steps than workers has none at all.
                    if others < from {
                        take_over(parts, flags, other, &mut sums);
                        from = others;
                    }
                }
                store(product, operands, c, tile, &sums);
            }
        }
        end = hint::keep_rolled(from);
    }
}

/// The sums of the steps of a tile from one to another.
///
/// # Safety
/// As for [`work`].
#[inline(always)]
unsafe fn multiply<const BY_PIECES: bool>(
    product: Product,
    operands: [GlobalSlice<'_, f32>; 2],
    tile: u32,
    [from, to]: [u32; 2],
) -> Accumulators {
    let first = product.first_lines(tile);
    let extents = [product.m, product.n];
    let mut sums = Accumulators::ZERO;
    let mut k = from * WORDS;
    // SAFETY: all threads come here; each copies its own words, all of them.
    unsafe {
        sums.add_steps::<ThreeTf32, true>(
            to - from,
            [extents[0] - first[0], extents[1] - first[1]],
            |shared, stage| {
                // Found anew, rather than kept in registers all the time.
                let thread = this_thread();
                for operand in 0..2 {
                    let (source, to) = (&operands[operand], as_numbers(shared));
                    let at = |line: u32, word: u32| {
                        let is_there = first[operand] + line < extents[operand] && k + word < product.k;
                        (is_there, (first[operand] + line) as usize * product.k as usize + (k + word) as usize)
                    };
                    if BY_PIECES {
                        let (lines, word) = own_lines(thread);
                        for line in lines {
                            let (from, count) = if let (true, at) = at(line, word) { (at, PIECE) } else { (0, 0) };
                            // SAFETY: four words of a line that is there, up to k, aligned as k is; or nothing is read.
                            copy_async::<4, _>(&to, place(stage, operand, line, word), source, from, count);
                        }
                    } else {
                        // Neighbouring threads copy neighbouring words: half a warp a line's.
                        let word = thread % WORDS;
                        for i in 0..LINES * WORDS / THREADS {
                            let line = thread / WORDS + i * (THREADS / WORDS);
                            let (from, count) = if let (true, at) = at(line, word) { (at, 1) } else { (0, 0) };
                            // SAFETY: a word of a line that is there, up to k; or nothing is read.
                            copy_async::<1, _>(&to, place(stage, operand, line, word), source, from, count);
                        }
                    }
                }
                k += WORDS;
            },
        );
    }
    sums
}

/// Stores the accumulators of all threads in a worker's part, and sets its flag.
///
/// # Safety
/// All threads of the block come here together; nobody else writes the part, and nobody reads it before the flag is set.
#[inline(always)]
unsafe fn hand_over(parts: GlobalSliceMut<'_, f32>, flags: GlobalAtomics<'_, u32>, worker: u32, sums: &Accumulators) {
    let (values, first) = (sums.to_array(), own_part(worker));
    // SAFETY: the caller's promise; a part has room for all threads' accumulators. The barrier orders their stores before that of the flag.
    unsafe {
        for i in 0..OWN / 4 {
            let four = [values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]];
            parts.set4_unchecked(first + i * 4 * THREADS as usize, four);
        }
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            flags.get_unchecked(worker as usize).store(1, Release, Scope::Device);
        }
    }
}

/// Waits for a worker's flag, and adds what is in its part.
///
/// # Safety
/// All threads of the block come here together; the worker has begun, and will set its flag.
#[inline(always)]
unsafe fn take_over(
    parts: GlobalSliceMut<'_, f32>,
    flags: GlobalAtomics<'_, u32>,
    worker: u32,
    sums: &mut Accumulators,
) {
    let first = own_part(worker);
    // SAFETY: the flag was set behind the stores; the barrier orders it before the loads of all threads.
    unsafe {
        if thread::thread_idx_x() == 0 {
            while flags.get_unchecked(worker as usize).load(Acquire, Scope::Device) == 0 {}
        }
        thread::sync_threads();
        sums.add_fours(|element| parts.get4_unchecked(first + element * THREADS as usize));
    }
}

/// Where this thread's accumulators are in a worker's part: four by four, those of neighbouring threads side by side.
#[inline(always)]
fn own_part(worker: u32) -> usize {
    worker as usize * TILE + thread::thread_idx_x() as usize * 4
}

/// Stores a tile. What is not finite is computed again, in plain fp32.
///
/// # Safety
/// As for [`work`]; the tile is this block's alone.
#[inline(always)]
unsafe fn store(
    product: Product,
    [a, b]: [GlobalSlice<'_, f32>; 2],
    c: GlobalSliceMut<'_, f32>,
    tile: u32,
    sums: &Accumulators,
) {
    let [first_row, first_col] = product.first_lines(tile);
    let has_vectors = product.n.is_multiple_of(4) && c.as_mut_ptr().addr().is_multiple_of(16);
    let place = |row: u32, col: u32| row as usize * product.n as usize + col as usize;
    sums.for_each_octet(|row, col, values| {
        let (row, col) = (first_row + row, first_col + col);
        if row >= product.m || col >= product.n {
            return;
        }
        // SAFETY: the row and the columns are there, this thread's alone, and fours of them aligned where rows are.
        unsafe {
            if has_vectors && product.n - col >= OCTET as u32 {
                let [a, b, c0, d, e, f, g, h] = values;
                c.set4_unchecked(place(row, col), [a, b, c0, d]);
                c.set4_unchecked(place(row, col) + 4, [e, f, g, h]);
            } else {
                for i in 0..OCTET {
                    if col + (i as u32) < product.n {
                        c.set_unchecked(place(row, col) + i, values[i]);
                    }
                }
            }
        }
    });
    sums.for_each_not_finite(|row, col| {
        let (row, col) = (first_row + row, first_col + col);
        if row >= product.m || col >= product.n {
            return;
        }
        let (of_a, of_b) = (row as usize * product.k as usize, col as usize * product.k as usize);
        let (mut sum, mut k) = (0.0, 0);
        while k < product.k {
            // SAFETY: a row of either, which is there.
            let [x, y] = unsafe { [a.get_unchecked(of_a + k as usize), b.get_unchecked(of_b + k as usize)] };
            sum = math::fma(x, y, sum);
            k = hint::keep_rolled(k + 1);
        }
        // SAFETY: the element is this thread's alone.
        unsafe { c.set_unchecked(place(row, col), sum) };
    });
}

/// Where a word of a line of an operand is in a stage.
#[inline(always)]
fn place(stage: Stage, operand: usize, line: u32, word: u32) -> usize {
    if operand == 0 { stage.of_a(line, word) } else { stage.of_b(line, word) }
}

/// The words of the stages as the numbers that they are.
#[inline(always)]
fn as_numbers(words: &SharedSlice<u32>) -> SharedSlice<f32> {
    // SAFETY: the same bytes of the dynamic shared memory, from its beginning on, where the main loop has its stages.
    unsafe { dynamic_shared(0, words.len()) }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::StreamK;

/// The operation as the host sees it: m, n, k and the number of workers, A and B as inputs, C as output, the launches (zeros, product), and
/// products in f64 with a bound for each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use blocks::mma_scheme::ThreeTf32;
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Units, Values,
        Views,
    };

    use super::{Product, TILE, gemm_stream_k_any_mma_nt_fp32_3xtf32, gemm_stream_k_mma_nt_fp32_3xtf32};
    use crate::zero::zero_u32;

    /// The product of a matrix with the transposed of another one, both row by row. PyTorch's is `linear` without a bias, with
    /// `torch.backends.cuda.matmul.allow_tf32 = False`.
    pub struct StreamK {
        name: &'static str,
        numbers: Distribution,
        large: &'static [[usize; 4]],
    }

    impl StreamK {
        /// Of numbers as they come. Workers are the multiprocessors of an H100; with one, each tile is a block's.
        pub const NORMAL: Self = Self {
            name: "gemm-stream-k",
            numbers: Distribution::Normal,
            large: &[
                [1536, 1536, 8192, 1],
                [1536, 1536, 8192, 132],
                [1024, 1024, 16_384, 1],
                [1024, 1024, 16_384, 132],
                [2304, 2304, 4096, 1],
                [2304, 2304, 4096, 132],
                [2000, 2000, 4095, 132],
                [4096, 4096, 4096, 1],
                [4096, 4096, 4096, 132],
            ],
        };
        /// Of numbers of all magnitudes.
        pub const WIDE: Self = Self {
            name: "gemm-stream-k-wide",
            numbers: Distribution::LogUniform(1e-30, 1e16),
            large: &[[1000, 1100, 1200, 132]],
        };
    }

    impl Operation for StreamK {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "workers share the k of the last tiles, and hand partial sums over by flags, in an order that is always the same",
                sizes: &["m", "n", "k", "workers"],
                kernels: vec![
                    zero_u32::FACTS,
                    gemm_stream_k_mma_nt_fp32_3xtf32::FACTS,
                    gemm_stream_k_any_mma_nt_fp32_3xtf32::FACTS,
                ],
                // Nothing of each kind; one; a tile for several workers, some of which have nothing; a part of a tile, a whole one and a part
                // again; whole tiles behind; no sharing.
                small: testkit::cases(&[
                    [0, 5, 3, 2],
                    [5, 0, 3, 2],
                    [3, 2, 0, 3],
                    [1, 1, 1, 1],
                    [33, 20, 48, 5],
                    [130, 60, 100, 4],
                    [130, 60, 97, 3],
                    [140, 150, 64, 3],
                    [260, 140, 80, 5],
                    [260, 260, 52, 4],
                    [129, 129, 36, 2],
                    [260, 140, 79, 5],
                    [33, 20, 160, 4],
                ]),
                large: testkit::cases(self.large),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k, workers] = sizes.get(["m", "n", "k", "workers"])?;
            Ok(vec![
                Argument::input("a", &[m, k], self.numbers),
                Argument::input("b", &[n, k], self.numbers),
                Argument::output("c", &[m, n]),
                Argument::scratch("parts", &[workers, TILE]),
                Argument::scratch("flags", &[workers]).of(Element::U32),
                Argument::scratch("next", &[1]).of(Element::U32),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k, workers] = sizes.get_u32(["m", "n", "k", "workers"])?;
            device.launch(zero_u32 { words: views.disjoint("flags")? })?;
            device.launch(zero_u32 { words: views.disjoint("next")? })?;
            let (a, b, c) = (views.read("a")?, views.read("b")?, views.write("c")?);
            let (parts, flags, next) = (views.write("parts")?, views.atomics("flags")?, views.atomics("next")?);
            if k.is_multiple_of(4) {
                let kernel = gemm_stream_k_mma_nt_fp32_3xtf32 { m, n, k, workers, a, b, c, parts, flags, next };
                return Ok(device.launch(kernel)?);
            }
            let kernel = gemm_stream_k_any_mma_nt_fp32_3xtf32 { m, n, k, workers, a, b, c, parts, flags, next };
            Ok(device.launch(kernel)?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let [workers] = sizes.get_u32(["workers"])?;
            let product = Product { m: m as u32, n: n as u32, k: k as u32, workers };
            let (a, b) = (values.of("a")?, values.of("b")?);
            // The workers that have a part of a tile.
            let parts = workers.min(product.steps()) as usize;
            let one = |row: &[f64], col: &[f64]| {
                let (mut sum, mut magnitude, mut operands) = (0.0, 0.0, 0.0);
                for (a, b) in row.iter().zip(col) {
                    sum += a * b;
                    magnitude += (a * b).abs();
                    operands += a.abs() + b.abs();
                }
                Expected::within(sum, ThreeTf32::bound(k, parts, magnitude, operands))
            };
            let row =
                |row: usize| (0..n).map(|col| one(&a[row * k..(row + 1) * k], &b[col * k..(col + 1) * k])).collect();
            Ok(vec![testkit::each_row(m, row)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * k as f64)
        }

        fn units(&self) -> Units {
            Units::TensorCores
        }
    }

    #[test]
    fn each_step_of_a_shared_tile_is_one_workers() {
        for (m, n, k, workers) in
            [(1, 1, 1, 1), (300, 300, 100, 7), (128, 128, 33, 9), (1536, 1536, 8192, 132), (640, 128, 16, 4)]
        {
            let product = Product { m, n, k, workers };
            let ([_, tiles], shared) = (product.tiles(), product.shared_tiles());
            assert!(shared <= tiles && (tiles - shared).is_multiple_of(workers), "the others are whole waves");
            assert_eq!((product.first_step(0), product.first_step(workers)), (0, shared * product.steps()));
            let counts = (0..workers).map(|worker| product.first_step(worker + 1) - product.first_step(worker));
            let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
            assert!(most - least <= 1, "nobody has more than a step more");
        }
    }
}
