//! Probes: kernels that do one thing and nothing else, to measure what a GPU can do at most. What other kernels reach is
//! told as a share of that.
//!
//! ```text
//!  memory   │ block 0: chunk │ block 1: chunk │ … │ rest │        each block takes `chunk` elements in a row
//!             │
//!             └► 256·WIDTH elements │ 256·WIDTH │ …              a step: UNROLL accesses of WIDTH elements by each
//!                t0 t1 t2 … t255      t0 t1 …                    thread, all of them under way before the first is used
//! ```
//!
//! | kernel | what it does | bytes or operations |
//! |---|---|---|
//! | `probe_read_*` | adds up what it reads, one sum for each thread | 4 bytes for each element |
//! | `probe_write_*` | writes one value everywhere | 4 bytes for each element |
//! | `probe_copy_*` | reads and writes | 8 bytes for each element |
//! | [`probe_fma_fp32`] | eight independent chains of fused multiplications and additions in each thread | [`FMA_OPERATIONS`] for each thread and round |
//!
//! No one shape of access is the fastest on every GPU, so there are some of each, and `chunk` is the caller's: few large
//! chunks are blocks that stay, many small ones are blocks that come and go. The best of all of them is the measurement.
//!
//! | | elements of an access | accesses of a thread under way |
//! |---|---|---|
//! | `_fp32` | 4 | 4 |
//! | `_deep_fp32` | 4 | 8 |
//! | `_single_fp32` | 4 | 1 |
//! | `_scalar_fp32` | 1 | 8 |
//!
//! Arrays are of any length. Loads go past the first-level cache, which nothing that is read once can use. At most 32
//! registers, 64 for `deep`; no shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::geometry::line_of_blocks;

/// The threads of a block of every probe.
pub const THREADS: u32 = 256;

/// Every chunk is a multiple of this many elements, so that it begins where an access of four elements may begin.
pub const CHUNK_MULTIPLE: u64 = 4;

/// The largest chunk: its steps are counted in 32 bits.
#[cfg(not(target_arch = "nvptx64"))]
const MAX_CHUNK: u64 = 1 << 38;

/// The chains of [`probe_fma_fp32`] in each thread: more than the four cycles that a multiplication takes.
const CHAINS: usize = 8;
/// The operations of each chain in a round.
const LINKS: usize = 16;

/// The multiplications and additions of one thread in one round of [`probe_fma_fp32`].
pub const FMA_OPERATIONS: u64 = 2 * (CHAINS * LINKS) as u64;

/// The blocks that a memory probe has on an array of `len` elements, which is also what its grid is, within CUDA's limit.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn blocks(len: usize, chunk: u64) -> u64 {
    (len as u64).div_ceil(chunk)
}

/// Whether a view begins where an access of four elements may begin.
#[cfg(not(target_arch = "nvptx64"))]
fn aligned(pointer: *const f32) -> bool {
    pointer.addr().is_multiple_of(16)
}

/// Whether `chunk` is one that a probe can take for an array of this length.
#[cfg(not(target_arch = "nvptx64"))]
fn takes(len: usize, chunk: u64) -> bool {
    chunk > 0 && chunk <= MAX_CHUNK && chunk.is_multiple_of(CHUNK_MULTIPLE) && blocks(len, chunk) <= i32::MAX as u64
}

/// The elements of this block's chunk: the first, and the one after the last. The chunk is empty in a block too many.
#[inline(always)]
fn chunk_of_block(len: usize, chunk: u64) -> (usize, usize) {
    let first = u64::from(thread::block_idx_x()) * chunk;
    let end = first + chunk;
    let len = len as u64;
    (first.min(len) as usize, end.min(len) as usize)
}

/// `WIDTH` (1 or 4) elements from `index`.
///
/// # Safety
/// They are inside the view; for a width of 4 the view is aligned to 16 bytes and `index` is a multiple of 4.
#[inline(always)]
#[track_caller]
unsafe fn load<const WIDTH: usize>(data: GlobalSlice<'_, f32>, index: usize) -> [f32; WIDTH] {
    if WIDTH == 4 {
        // SAFETY: the caller's promise.
        let values = unsafe { data.get4_streaming_unchecked(index) };
        core::array::from_fn(|i| values[i])
    } else {
        // SAFETY: the caller's promise.
        core::array::from_fn(|i| unsafe { data.get_unchecked(index + i) })
    }
}

/// Writes `WIDTH` (1 or 4) elements from `index` on.
///
/// # Safety
/// As for [`load`], and no other thread accesses the elements.
#[inline(always)]
#[track_caller]
unsafe fn store<const WIDTH: usize>(data: GlobalSliceMut<'_, f32>, index: usize, values: [f32; WIDTH]) {
    if WIDTH == 4 {
        // SAFETY: the caller's promise.
        unsafe { data.set4_unchecked(index, core::array::from_fn(|i| values[i])) }
    } else {
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { data.set_unchecked(index + i, value) }
        }
    }
}

/// Calls `steps` with the first element of this thread in each full step of `WIDTH`·`UNROLL` elements for each thread, and
/// `rest` with each element of this thread after those.
#[inline(always)]
#[track_caller]
fn walk<const WIDTH: usize, const UNROLL: usize>(
    (first, end): (usize, usize),
    mut step: impl FnMut(usize),
    mut rest: impl FnMut(usize),
) {
    let elements = THREADS as usize * WIDTH * UNROLL;
    let t = thread::thread_idx_x() as usize;
    let mut steps = ((end - first) / elements) as u32;
    let mut index = first + t * WIDTH;
    while steps > 0 {
        step(index);
        index += elements;
        steps = hint::keep_rolled(steps - 1);
    }
    let mut index = first + (end - first) / elements * elements + t;
    while index < end {
        rest(index);
        index += THREADS as usize;
    }
}

/// The body of the probes that read.
#[inline(always)]
#[track_caller]
fn read<const WIDTH: usize, const UNROLL: usize>(
    data: GlobalSlice<'_, f32>,
    chunk: u64,
    sums: GlobalSliceMut<'_, f32>,
) {
    let part = chunk_of_block(data.len(), chunk);
    if part.0 == part.1 {
        return; // the whole block
    }
    let (mut sum, mut sum_of_rest) = ([0.0; WIDTH], 0.0);
    walk::<WIDTH, UNROLL>(
        part,
        |index| {
            // SAFETY: a full step lies inside the chunk, and the chunk inside the view; the launch has checked that the view
            // and the chunks are aligned, and steps are multiples of the width.
            let values: [[f32; WIDTH]; UNROLL] =
                core::array::from_fn(|u| unsafe { load(data, index + u * THREADS as usize * WIDTH) });
            for value in values {
                for i in 0..WIDTH {
                    sum[i] += value[i];
                }
            }
        },
        // SAFETY: below the end of the chunk.
        |index| sum_of_rest += unsafe { data.get_unchecked(index) },
    );
    for part in sum {
        sum_of_rest += part;
    }
    let thread = thread::block_idx_x() as usize * THREADS as usize + thread::thread_idx_x() as usize;
    // SAFETY: the launch has checked that there is a sum for each thread of each block, and this one is this thread's.
    unsafe { sums.set_unchecked(thread, sum_of_rest) }
}

/// The body of the probes that write.
#[inline(always)]
#[track_caller]
fn write<const WIDTH: usize, const UNROLL: usize>(value: f32, chunk: u64, target: GlobalSliceMut<'_, f32>) {
    walk::<WIDTH, UNROLL>(
        chunk_of_block(target.len(), chunk),
        |index| {
            for u in 0..UNROLL {
                // SAFETY: as in `read`; steps, threads and blocks have different elements.
                unsafe { store(target, index + u * THREADS as usize * WIDTH, [value; WIDTH]) }
            }
        },
        // SAFETY: below the end of the chunk, and this thread's alone.
        |index| unsafe { target.set_unchecked(index, value) },
    );
}

/// The body of the probes that copy.
#[inline(always)]
#[track_caller]
fn copy<const WIDTH: usize, const UNROLL: usize>(
    source: GlobalSlice<'_, f32>,
    chunk: u64,
    target: GlobalSliceMut<'_, f32>,
) {
    walk::<WIDTH, UNROLL>(
        chunk_of_block(source.len(), chunk),
        |index| {
            // SAFETY: as in `read`; the target is as long as the source and aligned likewise: the launch has checked it.
            let values: [[f32; WIDTH]; UNROLL] =
                core::array::from_fn(|u| unsafe { load(source, index + u * THREADS as usize * WIDTH) });
            for (u, value) in values.into_iter().enumerate() {
                // SAFETY: as above; steps, threads and blocks have different elements.
                unsafe { store(target, index + u * THREADS as usize * WIDTH, value) }
            }
        },
        // SAFETY: below the end of the chunk, and this thread's alone.
        |index| unsafe { target.set_unchecked(index, source.get_unchecked(index)) },
    );
}

/// Stamps the entry points of the memory probes: each is its body with the width and the number of accesses filled in.
macro_rules! memory_probes {
    ($($read:ident, $write:ident, $copy:ident, $min_blocks:literal, $width:literal, $unroll:literal, $access:literal;)*) => { $(
        #[doc = concat!("Adds up an array by ", $access, ": `sums` gets the sum of each thread, by blocks.")]
        #[kernel(block = 256, min_blocks = $min_blocks, requires(
            takes(data.len(), chunk),
            aligned(data.as_ptr()),
            sums.len() as u64 >= blocks(data.len(), chunk) * u64::from(THREADS),
        ))]
        pub fn $read(data: GlobalSlice<'_, f32>, chunk: u64, sums: GlobalSliceMut<'_, f32>) {
            read::<$width, $unroll>(data, chunk, sums)
        }

        #[doc = concat!("Writes `value` to an array by ", $access, ".")]
        #[kernel(block = 256, min_blocks = $min_blocks, requires(
            takes(target.len(), chunk),
            aligned(target.as_mut_ptr()),
        ))]
        pub fn $write(value: f32, chunk: u64, target: GlobalSliceMut<'_, f32>) {
            write::<$width, $unroll>(value, chunk, target)
        }

        #[doc = concat!("Copies an array by ", $access, ".")]
        #[kernel(block = 256, min_blocks = $min_blocks, requires(
            takes(source.len(), chunk),
            source.len() == target.len(),
            aligned(source.as_ptr()),
            aligned(target.as_mut_ptr()),
        ))]
        pub fn $copy(source: GlobalSlice<'_, f32>, chunk: u64, target: GlobalSliceMut<'_, f32>) {
            copy::<$width, $unroll>(source, chunk, target)
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $read<'_> {
            fn grid(&self) -> Dim3 {
                line_of_blocks(blocks(self.data.len(), self.chunk))
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $write<'_> {
            fn grid(&self) -> Dim3 {
                line_of_blocks(blocks(self.target.len(), self.chunk))
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $copy<'_> {
            fn grid(&self) -> Dim3 {
                line_of_blocks(blocks(self.source.len(), self.chunk))
            }
        }
    )* };
}

memory_probes! {
    probe_read_fp32, probe_write_fp32, probe_copy_fp32, 8, 4, 4, "accesses of 16 bytes, four at a time";
    probe_read_deep_fp32, probe_write_deep_fp32, probe_copy_deep_fp32, 4, 4, 8, "accesses of 16 bytes, eight at a time";
    probe_read_single_fp32, probe_write_single_fp32, probe_copy_single_fp32, 8, 4, 1, "accesses of 16 bytes, one at a time";
    probe_read_scalar_fp32, probe_write_scalar_fp32, probe_copy_scalar_fp32, 8, 1, 8,
        "accesses of 4 bytes, eight at a time";
}

/// Multiplies and adds, and nothing else: `rounds` times 16 links of eight chains `x ↦ factor·x + offset` in each thread,
/// which begin at 0, 1, …, 7. `results` gets the sum of the chains' ends of each of its threads, by blocks; it has a whole
/// number of blocks.
#[kernel(block = 256, min_blocks = 8, requires(
    results.len() % THREADS as usize == 0,
    results.len() / THREADS as usize <= i32::MAX as usize,
))]
pub fn probe_fma_fp32(factor: f32, offset: f32, rounds: u32, results: GlobalSliceMut<'_, f32>) {
    let thread = thread::block_idx_x() as usize * THREADS as usize + thread::thread_idx_x() as usize;
    if thread >= results.len() {
        return;
    }
    let mut chains: [f32; CHAINS] = core::array::from_fn(|i| i as f32);
    let mut left = rounds;
    while left > 0 {
        for _ in 0..LINKS {
            for chain in &mut chains {
                *chain = math::fma(factor, *chain, offset);
            }
        }
        left = hint::keep_rolled(left - 1);
    }
    let mut sum = 0.0;
    for chain in chains {
        sum += chain;
    }
    // SAFETY: inside the view, as just compared, and this thread's alone.
    unsafe { results.set_unchecked(thread, sum) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for probe_fma_fp32<'_> {
    fn grid(&self) -> Dim3 {
        line_of_blocks(self.results.len() as u64 / u64::from(THREADS))
    }
}
