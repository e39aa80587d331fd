//! Convolution of 1×1 in bf16 with few channels, which is a matter of memory: each warp goes on for itself, from load to store.
//!
//! ```text
//!   32 pixels of x, as they lie           w in shared memory                32 pixels of y, as they lie
//!                                       ┌───────────────────┐
//!   lane (g, c): 4 channels of pixel g  │ 32 filters        │ tile j:    lane (g, c): 8 filters of pixel g
//!   in each step of 16 ──► registers    │ 4 tiles of 8      │ columns    of each 32 ──► 16 bytes
//!                                       └───────────────────┘ 8c + 2j …
//! ```
//!
//! Tensor cores sum up 16 channels in any order, as long as both operands have the same, and columns may be any filters. So a lane's part of
//! a step is 8 bytes of a pixel as it lies in memory, and the columns of four tiles are chosen such that a lane has eight neighbours of a
//! pixel of the result. Pixels pass through no shared memory, and no warp waits for another one.
//!
//! Sums have the same terms in the same order as those of [`conv2d_bf16`](super::conv2d_bf16), and the same bits.

use blocks::shared_layout::{SharedArray, SharedLayout};
use cuda_std::mma::mma_m16n8k16_bf16;
use cuda_std::prelude::*;

use super::Convolution;

/// The channels of a step, and the words of a filter for it.
const STEP_CHANNELS: u32 = 16;
const STEP_WORDS: u32 = 8;
/// The filters of four tiles, and the most filters of a block.
const GROUP: u32 = 32;
const FILTERS: u32 = 256;
/// The rows of a tile of tensor cores, and those of a warp.
const ROWS: u32 = 16;
const TILES: usize = 1;
const PIXELS: u32 = TILES as u32 * ROWS;
/// The words of a load of x and of w, and the elements.
const WORDS: u32 = 2;
const UNIT: u32 = 4;
const THREADS: u32 = 256;

/// The filters of a block, for `STEPS` steps, in shared memory.
struct Filters<const STEPS: usize>;

struct Memory {
    words: SharedArray<u32>,
    bytes: u32,
}

/// Whether these kernels compute a convolution, with so many steps: of single taps, without padding or groups, with whole loads of a pixel's
/// channels, and whole stores of its filters.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn takes(conv: &Convolution, steps: u32) -> bool {
    [conv.taps_down, conv.taps_across, conv.groups] == [1; 3]
        && [conv.padding_down, conv.padding_across] == [0; 2]
        && conv.channels.is_multiple_of(8)
        && conv.channels <= steps * STEP_CHANNELS
        && conv.filters.is_multiple_of(8)
}

/// The blocks, for so many of the same filters.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(conv: &Convolution, workers: u32) -> u32 {
    workers * conv.filters.div_ceil(FILTERS).max(1)
}

/// The most blocks of the same filters that a convolution has work for.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn most_workers(conv: &Convolution) -> u32 {
    let [down, across] = conv.out();
    (conv.batch * down * across).div_ceil(PIXELS * (THREADS / warp::LANES)).max(1)
}

/// A kernel for each number of steps.
macro_rules! kernels {
    ($($name:ident, $steps:literal, $doc:expr;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 256,
            min_blocks = 4,
            grid = blocks(&conv, workers),
            dynamic_shared = Filters::<$steps>::MEMORY.bytes,
            requires(
                conv.fits([x.len(), w.len(), y.len()]),
                takes(&conv, $steps),
                workers > 0 && workers <= most_workers(&conv),
                (x.as_ptr().addr() | w.as_ptr().addr() | y.as_mut_ptr().addr()).is_multiple_of(16)
            )
        )]
        pub fn $name(
            conv: Convolution,
            workers: u32,
            x: GlobalSlice<'_, Bf16>,
            w: GlobalSlice<'_, Bf16>,
            y: GlobalSliceMut<'_, Bf16>,
        ) {
            // SAFETY: a block of 256 threads, all of which come here, with its shared memory; the launch has checked the rest.
            unsafe { Filters::<$steps>::convolve(&conv, workers, x, w, y) }
        }
    )* };
}

kernels! {
    conv2d_1x1_of_16_bf16, 1,
        "`y[n, oh, ow, f] = Σ x[n, oh·stride, …, c] · w[f, c]` of bf16 numbers, with fp32 sums that are rounded to bf16: a convolution of single \
         taps, without padding or groups. Channels are 8 or 16, filters a multiple of 8. `workers` blocks share the pixels.";
    conv2d_1x1_of_32_bf16, 2, "The same of up to 32 channels.";
    conv2d_1x1_of_64_bf16, 4, "The same of up to 64 channels.";
}

impl<const STEPS: usize> Filters<STEPS> {
    /// The words of a filter: such that the same words of four filters are in all banks.
    const PITCH: u32 = STEP_WORDS * (STEPS as u32 | 1);
    const MEMORY: Memory = {
        let mut layout = SharedLayout::new();
        let words = layout.aligned(FILTERS * Self::PITCH, 16);
        Memory { words, bytes: layout.bytes() }
    };

    /// The body of the kernels.
    ///
    /// # Safety
    /// All threads of a block of [`THREADS`] come here, with the shared memory of [`Self::MEMORY`]; the convolution
    /// [fits](Convolution::fits) the arrays, which are aligned to 16 bytes, and is one that [`takes`] these steps.
    #[inline(always)]
    unsafe fn convolve(
        conv: &Convolution,
        workers: u32,
        x: GlobalSlice<'_, Bf16>,
        w: GlobalSlice<'_, Bf16>,
        y: GlobalSliceMut<'_, Bf16>,
    ) {
        // SAFETY: the same memory as words, of which pixels and filters have a whole number.
        let (x, w, y) = unsafe {
            (
                GlobalSlice::<u32>::from_raw_parts(x.as_ptr().cast(), x.len() / 2),
                GlobalSlice::<u32>::from_raw_parts(w.as_ptr().cast(), w.len() / 2),
                GlobalSliceMut::<u32>::from_raw_parts(y.as_mut_ptr().cast(), y.len() / 2),
            )
        };
        let (block, thread) = (thread::block_idx_x(), thread::thread_idx_x());
        let (lane, warps, workers) = (thread % warp::LANES, THREADS / warp::LANES, workers.max(1));
        let (worker, first_filter) = (block % workers, block / workers * FILTERS);
        let filters = (conv.filters - first_filter).min(FILTERS);
        let [down, across] = conv.out();
        let pixels = conv.batch * down * across;
        // SAFETY: all threads come here. The barrier is between the writes to shared memory and the reads. A warp's pixels are no other
        // one's, and a block has its own filters of them.
        unsafe {
            Self::bring(conv, w, first_filter, filters);
            thread::sync_threads();
            let mut first = (worker * warps + thread / warp::LANES) * PIXELS;
            while first < pixels {
                let rows = Self::load(conv, x, first, pixels, lane);
                let mut group = 0;
                while group < filters {
                    let sums = Self::multiply(&rows, group, lane);
                    let filter = group + lane % 4 * 8;
                    for half in 0..2 * TILES {
                        let pixel = first + half as u32 * 8 + lane / 4;
                        if pixel < pixels && filter < filters {
                            let place = pixel as usize * conv.filters as usize + (first_filter + filter) as usize;
                            let word = |tile: usize| {
                                let at = half % 2 * 2;
                                convert::bf16x2(sums[half / 2][tile][at], sums[half / 2][tile][at + 1])
                            };
                            y.set_vector_unchecked(place / 2, [word(0), word(1), word(2), word(3)]);
                        }
                    }
                    group = hint::keep_rolled(group + GROUP);
                }
                first += workers * warps * PIXELS;
            }
        }
    }

    /// Brings the block's filters to shared memory, each to the row of the tile and the column that has it; what is not there is zero.
    ///
    /// # Safety
    /// All threads of the block come here; nobody reads the words before a barrier.
    #[inline(always)]
    unsafe fn bring(conv: &Convolution, w: GlobalSlice<'_, u32>, first_filter: u32, filters: u32) {
        let units = STEPS as u32 * STEP_CHANNELS / UNIT;
        let mut number = thread::thread_idx_x();
        // SAFETY: the filter is there, and so are these of its channels; each unit has one thread.
        unsafe {
            let words = Self::MEMORY.words.slice();
            while number < filters.next_multiple_of(GROUP) * units {
                let (filter, channel) = (number / units, number % units * UNIT);
                let unit = if filter < filters && channel < conv.channels {
                    let place = (first_filter + filter) as usize * conv.channels as usize + channel as usize;
                    w.get_vector_unchecked::<{ WORDS as usize }>(place / 2)
                } else {
                    [0; WORDS as usize]
                };
                // Filter 8c + 2j + e of 32 is column 2c + e of tile j.
                let row = filter / GROUP * GROUP + filter % 8 / 2 * 8 + filter % GROUP / 8 * 2 + filter % 2;
                words.write_vector((row * Self::PITCH + channel / 2) as usize, unit);
                number += THREADS;
            }
        }
    }

    /// The channels of 32 pixels, as tensor cores take them: zeros where there are none.
    ///
    /// # Safety
    /// As for [`Self::convolve`].
    #[inline(always)]
    unsafe fn load(
        conv: &Convolution,
        x: GlobalSlice<'_, u32>,
        first: u32,
        pixels: u32,
        lane: u32,
    ) -> [[[u32; 4]; STEPS]; TILES] {
        let mut rows = [[[0; 4]; STEPS]; TILES];
        for half in 0..2 * TILES {
            let pixel = first + half as u32 * 8 + lane / 4;
            let base = place(conv, pixel) * conv.channels as usize;
            for step in 0..STEPS {
                let channel = step as u32 * STEP_CHANNELS + lane % 4 * UNIT;
                if pixel < pixels && channel < conv.channels {
                    // SAFETY: the pixel is there, and so are these of its channels, at a multiple of as many.
                    let unit = unsafe { x.get_vector_unchecked::<{ WORDS as usize }>((base + channel as usize) / 2) };
                    [rows[half / 2][step][half % 2], rows[half / 2][step][half % 2 + 2]] = unit;
                }
            }
        }
        rows
    }

    /// The sums of 32 pixels and of 32 filters, by tile of pixels and by tile of filters.
    ///
    /// # Safety
    /// All lanes of the warp come here; the filters are in shared memory.
    #[inline(always)]
    unsafe fn multiply(rows: &[[[u32; 4]; STEPS]; TILES], group: u32, lane: u32) -> [[[f32; 4]; 4]; TILES] {
        let mut sums = [[[0.0; 4]; 4]; TILES];
        // SAFETY: the caller's promise.
        unsafe {
            let words = Self::MEMORY.words.slice();
            for step in 0..STEPS {
                for tile in 0..4 {
                    let row = group + tile as u32 * 8 + lane / 4;
                    let at = row * Self::PITCH + step as u32 * STEP_WORDS + lane % 4 * WORDS;
                    let column = words.read_vector(at as usize);
                    for i in 0..TILES {
                        sums[i][tile] = mma_m16n8k16_bf16(rows[i][step], column, sums[i][tile]);
                    }
                }
            }
        }
        sums
    }
}

/// Where the pixel of x is that a pixel of the result is computed from.
#[inline(always)]
fn place(conv: &Convolution, pixel: u32) -> usize {
    let [down, across] = conv.out().map(|extent| extent.max(1));
    if conv.stride_down == 1 && conv.stride_across == 1 {
        return pixel as usize; // without padding, results have the pixels' places
    }
    let (image, row, column) = (pixel / across / down, pixel / across % down, pixel % across);
    let line = image as usize * conv.height as usize + (row * conv.stride_down) as usize;
    line * conv.width as usize + (column * conv.stride_across) as usize
}
