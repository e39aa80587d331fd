//! Batches of products so small that a block has several of them as a whole, on CUDA cores: it copies them to shared memory as they lie in
//! memory, and the results back in the same way.
//!
//! ```text
//!  memory          A │ 0   │ 1   │ 2   │ 3   │ 4   │ 5   │ …           matrices follow each other without gaps
//!                    └─ block 0 ───────────────┘
//!                         │ cp.async, 16 bytes at a time, wherever matrices begin
//!                         ▼
//!  shared memory     A 0 … 3   B 0 … 3   C 0 … 3                       a thread: 4 rows × 4 columns of one C, all of its k
//!                                           │
//!  memory                                   └──► C, 16 bytes at a time
//! ```
//!
//! The idea: a matrix of 24×17 has rows that begin anywhere, and every tile of it is cut off at a border; but the batch as a whole is one long
//! vector, which a block reads and writes at the speed of memory. What a product needs of that vector it finds in shared memory, where
//! anything may begin anywhere.
//!
//! The rows of a thread are a quarter of all rows apart, and its columns a quarter of all columns, so that neighbouring threads read
//! neighbours of B from shared memory, and write neighbours of C to it. Where the terms of a column are neighbours, and their number is a multiple
//! of eight, columns get gaps on the way to shared memory, or they would all be in few banks.
//!
//! `gemm_whole_rows_fp32` is the same for tall products: what a block has as a whole are so many rows of one, and all of B.
//!
//! A bias of the columns and a lower bound a thread does with the sums that it has, and a function behind these on the way to memory. Epilogues with other
//! steps are done where the results are in shared memory, step by step.
//!
//! Each sum is one fused operation for each k, in the order of k, as in the [naive kernels](super::basic): the same bits on every run, wherever a
//! product stands in its batch. 256 threads with at most 64 registers, 48 KB of shared memory: four blocks on a multiprocessor of an H200, of
//! which some copy while others multiply. Any device from sm_80 on.

use blocks::epilogue::{InRegisters, Neighbours, Step, Steps, WithFunction, store_vector};
use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::async_copy;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::{MAX_BLOCKS, steps_fit};
use super::tiles::{TiledGemm, divide};
use crate::Matrix;
#[cfg(not(target_arch = "nvptx64"))]
use crate::are_without_gaps;

/// The threads of a block.
const THREADS: u32 = 256;
/// The rows, and the columns, of a thread.
const SIDE: usize = 4;
/// The elements of an asynchronous copy, and of a store.
const FOUR: u32 = 4;
/// The elements that a block has room for.
const ROOM: u32 = 12_160;

struct Memory {
    elements: SharedArray<f32>,
    bytes: u32,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    let elements = layout.aligned(ROOM, 16);
    Memory { elements, bytes: layout.bytes() }
};

/// The sizes of products, and which of their operands have terms that are neighbours in memory.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The rows of A and C.
    pub m: u32,
    /// The columns of B and C.
    pub n: u32,
    /// The terms of a sum.
    pub k: u32,
    /// Whether the terms of a row of A are neighbours.
    pub a_by_rows: bool,
    /// Whether the terms of a column of B are neighbours.
    pub b_by_columns: bool,
}

/// From one row of A (column of B) to the next in shared memory, where its `k` terms are neighbours. Neighbouring threads read neighbouring
/// columns, which would be in one bank, or in few, if they were a multiple of eight elements apart.
#[inline(always)]
const fn pitch(k: u32) -> u32 {
    if k.is_multiple_of(8) { k + 4 } else { k }
}

impl Sizes {
    /// Those of a batch.
    #[inline(always)]
    pub fn of(gemm: &TiledGemm<'_>) -> Self {
        let (a, b) = (gemm.a().first(), gemm.b().first());
        Self {
            m: gemm.m(),
            n: gemm.n(),
            k: a.cols(),
            a_by_rows: a.col_stride() == 1,
            b_by_columns: b.row_stride() == 1,
        }
    }

    /// The same of so many rows of a product.
    #[inline(always)]
    #[must_use]
    pub const fn with_rows(self, rows: u32) -> Self {
        Self { m: rows, ..self }
    }

    /// The most rows of a product that a block has room for: a multiple of four, so that what each block copies begins at a multiple of four elements; or 0.
    pub const fn most_rows(&self) -> u32 {
        if !self.with_rows(FOUR).may_fit() {
            return 0;
        }
        let [of_a, of_b, of_c] = self.with_rows(FOUR).of_one();
        let of_four = of_a as u64 + of_c as u64;
        let room = (ROOM as u64).saturating_sub((of_b as u64).next_multiple_of(FOUR as u64));
        match room.checked_div(of_four) {
            Some(fours) => fours as u32 * FOUR,
            None => FOUR,
        }
    }

    /// From one row of A (or one of its columns, if their elements are neighbours) to the next in shared memory.
    #[inline(always)]
    const fn pitch_of_a(&self) -> u32 {
        if self.a_by_rows { pitch(self.k) } else { self.m }
    }

    /// The same for columns of B, or rows.
    #[inline(always)]
    const fn pitch_of_b(&self) -> u32 {
        if self.b_by_columns { pitch(self.k) } else { self.n }
    }

    /// The elements that A, B and C of a product take of shared memory.
    #[inline(always)]
    const fn of_one(&self) -> [u32; 3] {
        let lines_of_a = if self.a_by_rows { self.m } else { self.k };
        let lines_of_b = if self.b_by_columns { self.n } else { self.k };
        [lines_of_a * self.pitch_of_a(), lines_of_b * self.pitch_of_b(), self.m * self.n]
    }

    /// The elements that `products` products take: all A, all B, then all C, each from a multiple of four on.
    const fn of_all(&self, products: u32) -> u64 {
        let [of_a, of_b, of_c] = self.of_one();
        (products as u64 * of_a as u64).next_multiple_of(FOUR as u64)
            + (products as u64 * of_b as u64).next_multiple_of(FOUR as u64)
            + (products as u64 * of_c as u64).next_multiple_of(FOUR as u64)
    }

    /// Whether a block may have room for a product: only then do its numbers of elements fit.
    const fn may_fit(&self) -> bool {
        self.m <= ROOM && self.n <= ROOM && self.k <= ROOM
    }

    /// The most products that a block has room for: 0 if there is none for one. Four or more are a multiple of four, so that what each block
    /// copies begins at a multiple of four elements.
    pub const fn most_products(&self) -> u32 {
        if !self.may_fit() {
            return 0;
        }
        let [of_a, of_b, of_c] = self.of_one();
        let one = of_a as u64 + of_b as u64 + of_c as u64;
        if one == 0 {
            return FOUR;
        }
        let most = (ROOM as u64 / one) as u32;
        let most = if most >= FOUR { most - most % FOUR } else { most };
        if self.of_all(most) <= ROOM as u64 { most } else { most - 1 }
    }
}

/// `C = α·A·B + β·C` in fp32 for each product of a batch without gaps, `products` of them by a block.
#[kernel(block = 256, min_blocks = 4, dynamic_shared = MEMORY.bytes, requires(
    gemm.splits() == 1,
    gemm.a().is_without_gaps(),
    gemm.b().is_without_gaps(),
    gemm.c().is_without_gaps(),
    products > 0,
    Sizes::of(&gemm).may_fit(),
    Sizes::of(&gemm).of_all(products) <= ROOM.into(),
    steps_fit(&steps, &gemm)
))]
pub fn gemm_whole_fp32(gemm: TiledGemm<'_>, products: u32, steps: Steps<'_>) {
    let first = thread::block_idx_x() * products;
    let count = products.min(gemm.c().count().saturating_sub(first));
    let sizes = Sizes::of(&gemm);
    let [of_a, of_b, of_c] = sizes.of_one();
    let place_b = (products * of_a).next_multiple_of(FOUR);
    let place_c = place_b + (products * of_b).next_multiple_of(FOUR);
    let k = gemm.effective_k();
    // SAFETY: the memory that the kernel names. What is copied are elements of A and B, of products that there are. All threads of
    // the block come to the barriers, which separate copies, products and stores; each thread writes elements of C of its own. The steps fit the results.
    unsafe {
        let shared = MEMORY.elements.slice();
        if k > 0 {
            let a = Copied { data: gemm.a().first().data(), of_one: sizes.m * sizes.k, pitch: sizes.pitch_of_a() };
            a.copy(&shared, 0, first, count, if sizes.a_by_rows { sizes.k } else { sizes.m });
            let b = Copied { data: gemm.b().first().data(), of_one: sizes.k * sizes.n, pitch: sizes.pitch_of_b() };
            b.copy(&shared, place_b, first, count, if sizes.b_by_columns { sizes.k } else { sizes.n });
        }
        async_copy::commit_group();
        async_copy::wait_group::<0>();
        thread::sync_threads();
        let in_passing = InPassing::of(&gemm, &steps, first);
        multiply(&gemm, &shared, sizes, [0, place_b, place_c], count, k, &in_passing);
        thread::sync_threads();
        let c = gemm.c().first();
        let by_rows = c.col_stride() == 1;
        let results = Results {
            data: c.data(),
            from: u64::from(first) * u64::from(of_c),
            shared: &shared,
            place: place_c,
            count: count * of_c,
            extents: if by_rows { [sizes.m, sizes.n] } else { [sizes.n, sizes.m] },
            by_rows,
            first: [first, 0],
        };
        results.finish(&gemm, &steps, &in_passing);
    }
}

/// Whether a block can have rows of a product of m×n×k as a whole, whose A, B and C have these strides of rows and columns: C lies row by row without gaps, B without
/// gaps, and A like either, or column by column.
#[cfg(not(target_arch = "nvptx64"))]
pub fn are_whole_rows([m, n, k]: [u64; 3], [a, b, c]: [[u64; 2]; 3]) -> bool {
    let is_by_rows = |cols: u64, [row_stride, col_stride]: [u64; 2]| {
        (cols <= 1 || col_stride == 1) && (m <= 1 || row_stride == cols)
    };
    let is_a_whole = if a[1] == 1 { is_by_rows(k, a) } else { m <= 1 || a[0] == 1 };
    is_by_rows(n, c) && are_without_gaps([k, n], b, 0, 1) && is_a_whole
}

/// The same of products as they are given.
#[cfg(not(target_arch = "nvptx64"))]
fn have_whole_rows(gemm: &TiledGemm<'_>) -> bool {
    let (a, b, c) = (gemm.a().first(), gemm.b().first(), gemm.c().first());
    are_whole_rows(
        [a.rows(), b.cols(), a.cols()].map(u64::from),
        [[a.row_stride(), a.col_stride()], [b.row_stride(), b.col_stride()], [c.row_stride(), c.col_stride()]],
    )
}

/// `C = α·A·B + β·C` in fp32 for products with many rows, `rows` of one by a block.
#[kernel(block = 256, min_blocks = 4, dynamic_shared = MEMORY.bytes, requires(
    gemm.splits() == 1,
    have_whole_rows(&gemm),
    rows > 0,
    Sizes::of(&gemm).with_rows(rows).may_fit(),
    Sizes::of(&gemm).with_rows(rows).of_all(1) <= ROOM.into(),
    u64::from(gemm.m().div_ceil(rows)) * u64::from(gemm.c().count()) <= MAX_BLOCKS,
    steps_fit(&steps, &gemm)
))]
pub fn gemm_whole_rows_fp32(gemm: TiledGemm<'_>, rows: u32, steps: Steps<'_>) {
    let (whole_parts, rest) = divide(gemm.m(), rows);
    let (product, part) = divide(thread::block_idx_x(), whole_parts + u32::from(rest > 0));
    if product >= gemm.c().count() {
        return;
    }
    let first = part * rows;
    let sizes = Sizes::of(&gemm).with_rows(rows.min(gemm.m() - first));
    let [of_a, of_b, of_c] = sizes.of_one();
    let place_b = of_a.next_multiple_of(FOUR);
    let place_c = place_b + of_b.next_multiple_of(FOUR);
    let k = gemm.effective_k();
    // SAFETY: as in `gemm_whole_fp32`, for some rows of a product that there is.
    unsafe {
        let shared = MEMORY.elements.slice();
        if k > 0 {
            let a = gemm.a().at(product);
            if sizes.a_by_rows {
                let copied = Copied { data: a.data(), of_one: sizes.k, pitch: sizes.pitch_of_a() };
                copied.copy(&shared, 0, first, sizes.m, sizes.k);
            } else {
                copy_columns(&shared, a, first, sizes);
            }
            let data = gemm.b().at(product).data();
            let copied = Copied { data, of_one: sizes.k * sizes.n, pitch: sizes.pitch_of_b() };
            copied.copy(&shared, place_b, 0, 1, if sizes.b_by_columns { sizes.k } else { sizes.n });
        }
        async_copy::commit_group();
        async_copy::wait_group::<0>();
        thread::sync_threads();
        let in_passing = InPassing::of(&gemm, &steps, product);
        multiply(&gemm, &shared, sizes, [0, place_b, place_c], 1, k, &in_passing);
        thread::sync_threads();
        let results = Results {
            data: gemm.c().first().data(),
            from: u64::from(product) * gemm.c().stride() + u64::from(first) * u64::from(sizes.n),
            shared: &shared,
            place: place_c,
            count: of_c,
            extents: [sizes.m, sizes.n],
            by_rows: true,
            first: [product, first],
        };
        results.finish(&gemm, &steps, &in_passing);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_whole_rows_fp32<'_> {
    fn grid(&self) -> Dim3 {
        let parts = self.gemm.m().div_ceil(self.rows.max(1));
        crate::geometry::line_of_blocks(u64::from(parts) * u64::from(self.gemm.c().count()))
    }
}

/// Issues this thread's copies of the rows of A from `first` on, as many as `sizes` says, whose columns are lines of memory.
///
/// # Safety
/// As for [`Copied::copy`].
#[inline(always)]
unsafe fn copy_columns(shared: &SharedSlice<f32>, a: Matrix<'_>, first: u32, sizes: Sizes) {
    // SAFETY: the caller's promise.
    unsafe {
        let data = a.data().from_unchecked(first as usize);
        let is_aligned = (data.as_ptr() as u64).is_multiple_of(16) && a.col_stride().is_multiple_of(FOUR.into());
        if is_aligned && sizes.m.is_multiple_of(FOUR) {
            copy_columns_by::<4>(shared, &data, a.col_stride(), sizes);
        } else {
            copy_columns_by::<1>(shared, &data, a.col_stride(), sizes);
        }
    }
}

/// The same, `N` elements at a time.
///
/// # Safety
/// As there; a column has a multiple of `N`, and begins at a multiple of their size.
#[inline(always)]
unsafe fn copy_columns_by<const N: usize>(
    shared: &SharedSlice<f32>,
    data: &GlobalSlice<'_, f32>,
    stride: u64,
    sizes: Sizes,
) {
    let mut i = thread::thread_idx_x() * N as u32;
    while i < sizes.m * sizes.k {
        let (col, row) = divide(i, sizes.m);
        let from = u64::from(col) * stride + u64::from(row);
        // SAFETY: the caller's promise.
        unsafe { async_copy::copy_async::<N, _>(shared, i as usize, data, from as usize, N as u32) };
        i = hint::keep_rolled(i + THREADS * N as u32);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_whole_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.gemm.c().count().div_ceil(self.products.max(1)).into())
    }
}

/// An operand that is copied.
struct Copied<'a> {
    data: GlobalSlice<'a, f32>,
    /// The elements of one product.
    of_one: u32,
    /// From one line to the next in shared memory.
    pitch: u32,
}

impl Copied<'_> {
    /// Issues this thread's copies of the operands of `count` products, from product `first` on, to the elements from `to` on. Lines have
    /// `length` elements.
    ///
    /// # Safety
    /// There are so many products, and there is room for their operands, rounded up to a multiple of four. Called by all threads of the block,
    /// of which none accesses that room before all have waited for their copies and met.
    #[inline(always)]
    unsafe fn copy(&self, shared: &SharedSlice<f32>, to: u32, first: u32, count: u32, length: u32) {
        let from = u64::from(first) * u64::from(self.of_one);
        // Lines with gaps between them have a multiple of four elements.
        // SAFETY: the caller's promise.
        unsafe {
            if (self.data.as_ptr() as u64 + 4 * from).is_multiple_of(16) {
                self.copy_by::<4>(shared, to, from, count * self.of_one, length);
            } else {
                self.copy_by::<1>(shared, to, from, count * self.of_one, length);
            }
        }
    }

    /// The same for `count` elements from element `from` on, `N` at a time.
    ///
    /// # Safety
    /// As for [`Copied::copy`]; the first element is at a multiple of the size of `N`.
    #[inline(always)]
    unsafe fn copy_by<const N: usize>(&self, shared: &SharedSlice<f32>, to: u32, from: u64, count: u32, length: u32) {
        let mut i = thread::thread_idx_x() * N as u32;
        while i < count {
            let there = (count - i).min(N as u32);
            let place = if self.pitch == length {
                i
            } else {
                let (line, within) = divide(i, length);
                line * self.pitch + within
            };
            // SAFETY: the caller's promise.
            unsafe {
                let from = (from + u64::from(i)) as usize;
                async_copy::copy_async::<N, _>(shared, (to + place) as usize, &self.data, from, there);
            }
            i = hint::keep_rolled(i + THREADS * N as u32);
        }
    }
}

/// The steps of an epilogue that are done in passing, if those are all of them.
struct InPassing<'a> {
    is_all: bool,
    /// Those that a thread does with its sums before they are in shared memory.
    first: InRegisters<'a>,
    /// What is done to results on their way to memory.
    function: Step<'a>,
    /// The first product of the block.
    product: u32,
}

impl<'a> InPassing<'a> {
    #[inline(always)]
    fn of(gemm: &TiledGemm<'_>, steps: &'a Steps<'_>, product: u32) -> Self {
        let (first, mut left) = steps.in_registers(gemm.overwrites());
        let function = left.take_without_operand();
        Self { is_all: gemm.overwrites() && !steps.is_empty() && left.is_empty(), first, function, product }
    }
}

/// Multiplies `count` products that are in shared memory, A, B and C at these places.
///
/// # Safety
/// They are, and there is room for C; the steps fit the results; all threads of the block come here, and barriers separate this from what comes before and after.
#[inline(always)]
unsafe fn multiply(
    gemm: &TiledGemm<'_>,
    shared: &SharedSlice<f32>,
    sizes: Sizes,
    [place_a, place_b, place_c]: [u32; 3],
    count: u32,
    k: u32,
    steps: &InPassing<'_>,
) {
    let c = gemm.c().first();
    let Sizes { m, n, .. } = sizes;
    let [one_a, one_b, one_c] = sizes.of_one();
    let (down, across) = (m.div_ceil(SIDE as u32), n.div_ceil(SIDE as u32));
    let (row_of_a, term_of_a) = if sizes.a_by_rows { (sizes.pitch_of_a(), 1) } else { (1, sizes.pitch_of_a()) };
    let (col_of_b, term_of_b) = if sizes.b_by_columns { (sizes.pitch_of_b(), 1) } else { (1, sizes.pitch_of_b()) };
    let (row_of_c, col_of_c) = (c.row_stride() as u32, c.col_stride() as u32);
    let mut number = thread::thread_idx_x();
    while number < count * down * across {
        let (product, place) = divide(number, down * across);
        let (first_row, first_col) = divide(place, across);
        let rows: [u32; SIDE] = core::array::from_fn(|i| first_row + i as u32 * down);
        let cols: [u32; SIDE] = core::array::from_fn(|j| first_col + j as u32 * across);
        // What lies outside of C is computed of its last row or column, and left out.
        let mut of_a = rows.map(|row| place_a + product * one_a + row.min(m - 1) * row_of_a);
        let mut of_b = cols.map(|col| place_b + product * one_b + col.min(n - 1) * col_of_b);
        let mut sums = [[0.0; SIDE]; SIDE];
        let mut term = 0;
        while term < k {
            // SAFETY: elements of A and B, as the caller promises.
            let (row, col) =
                unsafe { (of_a.map(|at| shared.read(at as usize)), of_b.map(|at| shared.read(at as usize))) };
            for i in 0..SIDE {
                for j in 0..SIDE {
                    sums[i][j] = math::fma(row[i], col[j], sums[i][j]);
                }
            }
            for i in 0..SIDE {
                of_a[i] += term_of_a;
                of_b[i] += term_of_b;
            }
            term = hint::keep_rolled(term + 1);
        }
        if steps.is_all {
            let factor = gemm.factor();
            // SAFETY: the steps fit the results, by the caller's promise.
            let biases = unsafe { steps.first.biases(steps.product + product, cols, n) };
            sums = sums.map(|row| steps.first.compute(biases, row.map(|sum| factor * sum)));
        }
        let of_c = place_c + product * one_c;
        for i in 0..SIDE {
            for j in 0..SIDE {
                if rows[i] < m && cols[j] < n {
                    // SAFETY: an element of C, and this thread's alone.
                    unsafe { shared.write((of_c + rows[i] * row_of_c + cols[j] * col_of_c) as usize, sums[i][j]) };
                }
            }
        }
        number = hint::keep_rolled(number + THREADS);
    }
}

/// Elements of the data of all C: `count` of them, from element `from` on, whose sums are at `place` of the shared memory.
struct Results<'a> {
    data: GlobalSliceMut<'a, f32>,
    from: u64,
    shared: &'a SharedSlice<f32>,
    place: u32,
    count: u32,
    /// The lines of a product, and the elements of a line: rows, or columns where C has these side by side.
    extents: [u32; 2],
    by_rows: bool,
    /// The product of the first element, and its line.
    first: [u32; 2],
}

/// The elements that a thread loads for a step before it computes.
const LOADS: u32 = 8;

impl Results<'_> {
    /// The epilogue: `α·sum + β·C`, the steps that have not been done yet, and the stores.
    ///
    /// # Safety
    /// They are elements of C that no other block accesses; all threads of the block come here, after a barrier. The steps fit the results.
    #[inline(always)]
    unsafe fn finish(&self, gemm: &TiledGemm<'_>, steps: &Steps<'_>, in_passing: &InPassing<'_>) {
        // SAFETY: the caller's promise. Each thread does the steps with sums of its own, and stores what others have left, behind the barrier.
        unsafe {
            if in_passing.is_all {
                in_passing.function.dispatch(Stores(self));
            } else if !steps.is_empty() {
                self.apply(gemm, steps);
                thread::sync_threads();
                self.overwrite(|value| value);
            } else if gemm.overwrites() {
                let factor = gemm.factor();
                self.overwrite(|sum| factor * sum);
            } else {
                self.store(true, |sum, before| gemm.value(sum, || before));
            }
        }
    }

    /// Stores what `value` makes of the sums.
    ///
    /// # Safety
    /// As for [`Results::finish`].
    #[inline(always)]
    #[track_caller]
    unsafe fn overwrite(&self, value: impl Fn(f32) -> f32) {
        // SAFETY: the caller's promise.
        unsafe { self.store(false, |sum, _| value(sum)) };
    }

    /// Element `i`, as steps know it.
    #[inline(always)]
    fn neighbours(&self, i: u32) -> Neighbours {
        let [lines, length] = self.extents;
        let (line, number) = divide(i, length);
        let (product, line) = divide(line, lines);
        let (product, line) = (self.first[0] + product, self.first[1] + line);
        let [row, col] = if self.by_rows { [line, number] } else { [number, line] };
        Neighbours::one(product, row, col)
    }

    /// Makes `α·sum + β·C` of the sums, and does the steps, in place: each thread with elements as many apart as there are threads.
    ///
    /// # Safety
    /// As for [`Results::finish`].
    #[inline(always)]
    unsafe fn apply(&self, gemm: &TiledGemm<'_>, steps: &Steps<'_>) {
        let number = thread::thread_idx_x();
        let place = |i: u32| (self.place + i) as usize;
        let mut i = number;
        while i < self.count {
            // SAFETY: a sum of this thread's, and its element of C.
            unsafe {
                let before = || self.data.get_unchecked((self.from + u64::from(i)) as usize);
                self.shared.write(place(i), gemm.value(self.shared.read(place(i)), before));
            }
            i = hint::keep_rolled(i + THREADS);
        }
        let mut left = steps.left();
        while !left.is_empty() {
            let step = left.take();
            if !step.has_operand() {
                // SAFETY: sums of this thread's.
                unsafe { step.dispatch(OfAll(self)) };
                continue;
            }
            // A residual, most often.
            let is_flat = step.lies_like(&gemm.c().first(), gemm.c().stride());
            let mut i = number;
            while i < self.count {
                // SAFETY: the step has an operand, with an element for each result; sums of this thread's.
                unsafe {
                    let mut loaded = [[0.0]; LOADS as usize];
                    for load in 0..LOADS {
                        if i + load * THREADS < self.count {
                            let i = i + load * THREADS;
                            loaded[load as usize] = match is_flat {
                                true => [step.load_at(self.from + u64::from(i))],
                                false => step.load::<1>(self.neighbours(i)),
                            };
                        }
                    }
                    for load in 0..LOADS {
                        if i + load * THREADS < self.count {
                            let place = place(i + load * THREADS);
                            let [value] = step.combine([self.shared.read(place)], loaded[load as usize]);
                            self.shared.write(place, value);
                        }
                    }
                }
                i = hint::keep_rolled(i + LOADS * THREADS);
            }
        }
    }

    /// Stores what `value` makes of each sum and of what C was; zero, unless `reads` says so.
    ///
    /// # Safety
    /// As for [`Results::finish`].
    #[inline(always)]
    #[track_caller]
    unsafe fn store(&self, reads: bool, value: impl Fn(f32, f32) -> f32) {
        let &Self { data, from, shared, place, count, .. } = self;
        let mut first = 0;
        if (data.as_mut_ptr() as u64 + 4 * from).is_multiple_of(16) {
            first = count / FOUR * FOUR;
            let mut i = thread::thread_idx_x() * FOUR;
            while i < first {
                let at = (from + u64::from(i)) as usize;
                // SAFETY: the caller's promise; both begin at multiples of four elements.
                unsafe {
                    let sums = shared.read4((place + i) as usize);
                    let before = if reads { data.get4_unchecked(at) } else { [0.0; 4] };
                    store_vector(data, at, core::array::from_fn::<_, 4, _>(|j| value(sums[j], before[j])));
                }
                i = hint::keep_rolled(i + THREADS * FOUR);
            }
        }
        let mut i = first + thread::thread_idx_x();
        while i < count {
            let at = (from + u64::from(i)) as usize;
            // SAFETY: the caller's promise.
            unsafe {
                let before = if reads { data.get_unchecked(at) } else { 0.0 };
                data.set_unchecked(at, value(shared.read((place + i) as usize), before));
            }
            i = hint::keep_rolled(i + THREADS);
        }
    }
}

/// A function that is done to results on their way to memory.
struct Stores<'a>(&'a Results<'a>);

impl WithFunction for Stores<'_> {
    type Result = ();

    /// # Safety
    /// As for [`Results::finish`].
    #[inline(always)]
    #[track_caller]
    unsafe fn with(self, function: impl Fn(f32) -> f32) {
        // SAFETY: the caller's promise.
        unsafe { self.0.overwrite(function) };
    }
}

/// A step without an operand, done with all of a thread's results.
struct OfAll<'a>(&'a Results<'a>);

impl WithFunction for OfAll<'_> {
    type Result = ();

    /// # Safety
    /// As for [`Results::apply`].
    #[inline(always)]
    #[track_caller]
    unsafe fn with(self, function: impl Fn(f32) -> f32) {
        let Self(results) = self;
        let mut i = thread::thread_idx_x();
        while i < results.count {
            let place = (results.place + i) as usize;
            // SAFETY: the caller's promise.
            unsafe { results.shared.write(place, function(results.shared.read(place))) };
            i = hint::keep_rolled(i + THREADS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_as_many_rows_as_there_is_room_for() {
        let most = |n, k| Sizes { m: 1, n, k, a_by_rows: false, b_by_columns: false }.most_rows();
        assert_eq!(most(10, 3), (ROOM - 32) / 52 * 4);
        assert_eq!((most(0, 0), most(110, 110), most(u32::MAX, 1)), (4, 0, 0));
        for (n, k) in (1..110).flat_map(|n| (1..110).map(move |k| (n, k))) {
            for (a_by_rows, b_by_columns) in [(false, true), (true, false)] {
                let sizes = Sizes { m: 1, n, k, a_by_rows, b_by_columns };
                let most = sizes.most_rows();
                assert!(most.is_multiple_of(4), "{sizes:?}: {most}");
                assert!(most == 0 || sizes.with_rows(most).of_all(1) <= ROOM.into(), "{sizes:?}: {most}");
                assert!(sizes.with_rows(most + 4).of_all(1) > ROOM.into(), "{sizes:?}: {most}");
            }
        }
    }

    #[test]
    fn a_block_has_as_many_products_as_there_is_room_for() {
        let most = |m, n, k| Sizes { m, n, k, a_by_rows: false, b_by_columns: false }.most_products();
        assert_eq!(most(4, 4, 4), ROOM / 48 / 4 * 4);
        assert_eq!(most(63, 64, 64), 1);
        assert_eq!(most(64, 64, 64), 0);
        assert_eq!(most(u32::MAX, 1, u32::MAX), 0);
        assert!(most(0, 3, 0) > 0);
        for [m, n, k] in (1..40).flat_map(|m| (1..40).map(move |n| [m, n, (m * n) % 37 + 1])) {
            for (a_by_rows, b_by_columns) in [(false, true), (true, false)] {
                let sizes = Sizes { m, n, k, a_by_rows, b_by_columns };
                let most = sizes.most_products();
                assert!(sizes.of_all(most) <= ROOM.into(), "{sizes:?}: {most}");
                assert!(most < 4 || most.is_multiple_of(4), "{sizes:?}: {most}");
            }
        }
    }
}
