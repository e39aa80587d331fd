//! Convolution in bf16 on Hopper's tensor cores (`wgmma`, sm_90a): TMA loads the pixels of a tap and the filters to shared memory, and two
//! warpgroups multiply them there.
//!
//! ```text
//!  x[n, h₀ + r·d, w₀ + s·d, 64 channels]   a stage, of 4              registers of 2 consumer warpgroups
//!                                         ┌──────────────────┐
//!  a row of 128 bytes for each pixel ───► │ A   192 × 64     │ ──────►  each has 192 pixels
//!       (TMA of an image map)             ├──────────────────┤  wgmma   of 128 filters
//!  w[256 filters, r, s, 64 channels] ───► │ B   256 × 64     │ ──────►
//!       (TMA of a tensor map)             └──────────────────┘
//! ```
//!
//! One load brings the pixels that a tap meets for all pixels of a tile, in whichever rows and images those are, and zeros for those outside of
//! the image ([`hopper::load_pixels`]). Steps go through the taps, and through a tap's channels by 64: behind the last channel there are zeros,
//! in both operands, which are not multiplied where there are 16 of them. (In groups there would be the next group's channels, of which an
//! infinity times zero is NaN; so channels of a group are a multiple of 16 if there are several.)
//!
//! Small groups share a stage: two of 32 channels, or four of 16. Their filters are side by side in B, each with the channels of its own
//! group from the row's beginning on, and each group's are multiplied with its part of A alone:
//!
//! ```text
//!                A: 64 channels            B: a row is a filter              the products of 16 of k
//!            ┌────────┬────────┐          ┌────────┐
//!   pixels   │group 0 │group 1 │          │ w[0]   │ group 0's 32 filters    group 0's channels × its filters
//!            │        │        │          ├────────┤
//!            └────────┴────────┘          │ w[1]   │ group 1's               group 1's channels × its filters
//!                                         └────────┘
//! ```
//!
//! Terms come in the order of [`conv2d_bf16`](super::conv2d_bf16), 16 at a time, so results have the same bits where channels are multiples of
//! 16. Blocks stay and go from tile to tile: the next tile is loaded while the results of this one are stored.

use blocks::ring::{Ring, Unreleased};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{this_thread, uniform, warp_number};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Bf16 as OfBf16, Descriptor, Sums};

#[cfg(not(target_arch = "nvptx64"))]
use runtime::PixelTile;

#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::tiles;
use super::tiles::{CHANNELS, STEP_CHANNELS, Tiles, UNIT, joined, sharing};
use super::{Convolution, Tile};
use crate::quad::transposed;

/// The words of a row of a stage.
const ROW_WORDS: u32 = 32;
/// The pixels of a warpgroup, and its warps and threads.
const PIXELS: u32 = 64;
const WARPS: u32 = 4;
const THREADS: u32 = 128;
/// The blocks at most: so many tiles behind the last one, pixels are still below 2³².
#[cfg(not(target_arch = "nvptx64"))]
const MOST_WORKERS: u32 = i32::MAX as u32 / 256;
/// The bytes of a row that an instruction takes, and the instructions for a row.
const STEP_BYTES: u32 = 32;
const STEPS: u32 = 4;

/// How a convolution is divided: `CONSUMERS` warpgroups, `ACROSS` of which are side by side, have `DOWN` times 64 pixels, and `PARTS` times
/// filters of which a thread has `SUMS` accumulators for each of them. A part's filters are of one group; those of two or four parts may be of
/// several.
struct Division<
    const CONSUMERS: u32,
    const DOWN: usize,
    const ACROSS: u32,
    const PARTS: usize,
    const STAGES: u32,
    const SUMS: usize,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
>;

/// The dynamic shared memory of a block.
struct Memory {
    stages: SharedArray<f32>,
    ring: SharedArray<u64>,
    bytes: u32,
}

/// The steps of 64 channels of a sum.
#[inline(always)]
pub(super) fn steps(conv: &Convolution) -> u32 {
    conv.taps_down * conv.taps_across * conv.channels.div_ceil(CHANNELS)
}

/// Whether these kernels compute a convolution whose images TMA can load: filters of a group are stored by eight, and a group's channels do not
/// end in 16 that are multiplied with the next group's.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn takes(conv: &Convolution) -> bool {
    conv.filters.is_multiple_of(UNIT) && (conv.groups == 1 || conv.channels.is_multiple_of(STEP_CHANNELS))
}

/// The pixels that are loaded at a time.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn pixel_tile(pixels: u32) -> PixelTile {
    PixelTile { element: TensorElement::Bf16, channels: CHANNELS, pixels, swizzle: TensorSwizzle::Bytes128 }
}

/// Whether a map is one of the filters of a convolution, in tiles of 64 channels of so many of a tap.
#[cfg(not(target_arch = "nvptx64"))]
fn describes_filters(map: &TensorMap<'_>, conv: &Convolution, lines: u32) -> bool {
    use cuda_std::{TileElement, TileSwizzle};
    let layout = map.layout();
    let taps = u64::from(conv.taps_down) * u64::from(conv.taps_across);
    let [terms, filters, channels] = [conv.terms(), conv.all_filters(), conv.channels].map(u64::from);
    let strides = [2, 2 * terms, 2 * channels];
    let fits = |i: usize| layout.byte_strides[i] == strides[i] || layout.extents[i] == 1;
    layout.element == TileElement::Bytes2
        && layout.swizzle == TileSwizzle::Bytes128
        && layout.extents == [channels, filters, taps]
        && layout.tile == [CHANNELS, lines, 1]
        && (0..3).all(fits)
}

/// Whether a map is one of the images of a convolution, of which 64 channels of so many pixels are loaded.
#[cfg(not(target_arch = "nvptx64"))]
fn describes_images(map: &ImageMap<'_>, conv: &Convolution, pixels: u32) -> bool {
    conv.images().layout(&pixel_tile(pixels)).is_ok_and(|layout| *map.layout() == layout)
}

/// A kernel for each size of tiles.
macro_rules! kernels {
    ($(
        $name:ident, block = $block:literal,
        $pixels:literal x $filters:literal, <$consumers:literal, $down:literal, $across:literal, $parts:literal, $stages:literal, $sums:literal, $of_consumers:literal, $of_producer:literal>,
        $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = 1,
            arch = "sm_90a",
            grid = workers,
            dynamic_shared = Division::<$consumers, $down, $across, $parts, $stages, $sums, $of_consumers, $of_producer>::MEMORY.bytes,
            requires(
                conv.fits_result(y.len()),
                takes(&conv),
                pixels > 0 && pixels <= $pixels,
                describes_images(&x, &conv, pixels),
                describes_filters(&w, &conv, tiles(&conv, $parts, [pixels, $filters], $across).of_tile),
                tiles(&conv, $parts, [pixels, $filters], $across).count().is_some(),
                workers > 0 && workers <= MOST_WORKERS,
                y.as_mut_ptr().addr().is_multiple_of(16)
            )
        )]
        pub fn $name(
            x: ImageMap<'_>,
            w: TensorMap<'_>,
            conv: Convolution,
            workers: u32,
            pixels: u32,
            y: GlobalSliceMut<'_, Bf16>,
        ) {
            _ = workers; // for the grid alone
            const { assert!($block == ($consumers + 1) * THREADS) };
            // SAFETY: a block of so many threads, all of which come here, with its shared memory; the launch has checked the rest.
            unsafe {
                Division::<$consumers, $down, $across, $parts, $stages, $sums, $of_consumers, $of_producer>::convolve(&conv, x, w, pixels, y)
            }
        }
    )* };
}

kernels! {
    conv2d_192x256_wgmma_bf16, block = 384, 192 x 256, <2, 3, 2, 1, 4, 64, 240, 24>,
        "`y[n, oh, ow, f] = Σ x[n, oh·stride − padding + r·dilation, …, c] · w[f, r, s, c]` of bf16 numbers, with fp32 sums that are \
         rounded to bf16, by tiles of `pixels` pixels, 192 at most, and up to 256 filters. `x` is an image map of the convolution, of 64 channels of \
         so many pixels, and `w` a map of taps × filters of all groups × channels in tiles of 64 channels of the filters of a tile, into as few of \
         which those of a group are divided evenly. Filters of a group are a multiple of 8, and so are channels: of several groups, of 16. \
         `workers` blocks share the tiles.";
    conv2d_256x160_wgmma_bf16, block = 384, 256 x 160, <2, 2, 1, 1, 4, 80, 240, 24>,
        "The same by tiles of up to 256 pixels and 160 filters.";
    conv2d_128x192_wgmma_bf16, block = 384, 128 x 192, <2, 1, 1, 1, 5, 96, 240, 24>,
        "The same by tiles of up to 128 pixels and 192 filters.";
    conv2d_256x128_wgmma_bf16, block = 384, 256 x 128, <2, 2, 1, 1, 4, 64, 240, 24>,
        "The same by tiles of up to 256 pixels and 128 filters.";
    conv2d_128x128_wgmma_bf16, block = 384, 128 x 128, <2, 1, 1, 1, 6, 64, 240, 24>,
        "The same by tiles of up to 128 pixels and 128 filters.";
    conv2d_128x64_wgmma_bf16, block = 384, 128 x 64, <2, 1, 1, 1, 8, 32, 240, 24>,
        "The same by tiles of up to 128 pixels and 64 filters.";
    conv2d_256x2x32_wgmma_bf16, block = 384, 256 x 64, <2, 2, 1, 2, 5, 16, 240, 24>,
        "The same by tiles of up to 256 pixels and the filters of two groups, which are 32 each; there are 16 or 32 channels.";
    conv2d_256x4x16_wgmma_bf16, block = 384, 256 x 64, <2, 2, 1, 4, 5, 8, 240, 24>,
        "The same by tiles of up to 256 pixels and the filters of four groups, which are 16 each: those of two if there are 32 channels.";
}

impl<
    const CONSUMERS: u32,
    const DOWN: usize,
    const ACROSS: u32,
    const PARTS: usize,
    const STAGES: u32,
    const SUMS: usize,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
> Division<CONSUMERS, DOWN, ACROSS, PARTS, STAGES, SUMS, CONSUMER_REGISTERS, PRODUCER_REGISTERS>
where
    [f32; SUMS]: Sums<Number = f32>,
{
    /// The filters of a warpgroup, and the pixels and filters of a block.
    const COLUMNS: u32 = PARTS as u32 * 2 * SUMS as u32;
    const ROWS: u32 = CONSUMERS / ACROSS * DOWN as u32 * PIXELS;
    const FILTERS: u32 = ACROSS * Self::COLUMNS;
    /// The words of the pixels of a stage, and of a stage.
    const A: u32 = Self::ROWS * ROW_WORDS;
    const STAGE: u32 = Self::A + Self::FILTERS * ROW_WORDS;

    const MEMORY: Memory = {
        assert!(CONSUMERS.is_multiple_of(ACROSS) && DOWN <= 3);
        assert!(PARTS == 1 || ACROSS == 1);
        let mut layout = SharedLayout::new();
        let stages = layout.aligned(STAGES * Self::STAGE, 1024);
        let ring = Ring::<STAGES>::barriers(&mut layout);
        Memory { stages, ring, bytes: layout.bytes() }
    };

    /// The body of the kernels.
    ///
    /// # Safety
    /// All threads of a block of `CONSUMERS + 1` warpgroups come here, with the shared memory of [`Self::MEMORY`]; the maps are of the images and
    /// the filters of this convolution, as [`describes_images`] and [`describes_filters`] say, y has as many elements as it says, and is
    /// aligned to 16 bytes; filters of a group are a multiple of 8.
    #[inline(always)]
    unsafe fn convolve(
        conv: &Convolution,
        x: ImageMap<'_>,
        w: TensorMap<'_>,
        pixels: u32,
        y: GlobalSliceMut<'_, Bf16>,
    ) {
        // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and acquire
        // registers together. One thread prepares the barriers, and all wait for it.
        unsafe {
            let groups = sharing(conv, PARTS as u32);
            let conv = &joined(conv, groups);
            let tiles = &Tiles::new(conv, [pixels, Self::FILTERS], ACROSS);
            let ring = Ring::<STAGES>::new(Self::MEMORY.ring);
            if thread::thread_idx_x() == 0 {
                ring.init(1, CONSUMERS * WARPS);
            }
            Self::clear(tiles);
            // Of the barriers and of the zeros.
            hopper::fence_async_shared();
            thread::sync_threads();
            let warp = warp_number();
            if warp < WARPS {
                hopper::release_registers::<PRODUCER_REGISTERS>();
                if warp == 0 {
                    Self::load(conv, tiles, ring, x, w);
                }
            } else {
                hopper::acquire_registers::<CONSUMER_REGISTERS>();
                Self::multiply(conv, tiles, groups, ring, warp, y);
            }
        }
    }

    /// Writes zeros where no stage is loaded to, for pixels and filters that a tile does not have: they are multiplied, too, for results that
    /// nobody stores.
    ///
    /// # Safety
    /// All threads of the block come here, fence what they have written, and meet, before anything is multiplied.
    #[inline(always)]
    unsafe fn clear(tiles: &Tiles) {
        // SAFETY: the block has the shared memory of this kernel.
        let stages = unsafe { Self::MEMORY.stages.slice() };
        for stage in 0..STAGES {
            let at = stage * Self::STAGE;
            let rests = [[tiles.rows * ROW_WORDS, Self::A], [Self::A + tiles.of_tile * ROW_WORDS, Self::STAGE]];
            for [first, end] in rests {
                let mut word = first + 4 * thread::thread_idx_x();
                while word < end {
                    // SAFETY: inside of the stage, at multiples of 16 bytes, of this thread alone.
                    unsafe { stages.write_vector((at + word) as usize, [0.0; 4]) };
                    word = hint::keep_rolled(word + 4 * (CONSUMERS + 1) * THREADS);
                }
            }
        }
    }

    /// What the producer's warp does: the stages of all tiles of the block.
    ///
    /// # Safety
    /// All lanes of one warp come here.
    #[inline(always)]
    unsafe fn load(conv: &Convolution, tiles: &Tiles, ring: Ring<STAGES>, x: ImageMap<'_>, w: TensorMap<'_>) {
        // SAFETY: a stage is acquired before it is written, and is full when all its bytes have come. One lane issues the loads, to multiples
        // of 1024 bytes.
        unsafe {
            let stages = Self::MEMORY.stages.slice();
            hopper::prefetch_tensor_map(w);
            let mut ring = ring.producer();
            let mut number = thread::block_idx_x();
            while let Some(tile) = tiles.tile(conv, number) {
                let [column, row, image] = base_pixel(conv, tile.pixel).map(|value| uniform(value));
                let [filter, of_x] =
                    [tile.group * conv.filters + tile.filter, tile.group * conv.channels].map(|value| uniform(value));
                let (mut tap, mut across, mut down, mut channel) = (0, 0, 0, 0);
                let mut left = steps(conv);
                while left > 0 {
                    ring.acquire();
                    let (stage, at) = (ring.tma_stage(), ring.stage() * Self::STAGE);
                    if hopper::elect_one() {
                        stage.commit_bytes(4 * ROW_WORDS * (tiles.rows + tiles.of_tile));
                        let reach =
                            [across * conv.dilation_across, down * conv.dilation_down].map(|reach| reach as u16);
                        stage.load_pixels(stages, at as usize, x, [of_x + channel, column, row, image], reach);
                        stage.load_tile(stages, (at + Self::A) as usize, w, [channel, filter, tap]);
                    }
                    ring.advance();
                    channel += CHANNELS;
                    if channel >= conv.channels {
                        (channel, tap, across) = (0, tap + 1, across + 1);
                    }
                    if across == conv.taps_across {
                        (across, down) = (0, down + 1);
                    }
                    left = hint::keep_rolled(left - 1);
                }
                number += thread::grid_dim_x();
            }
        }
    }

    /// Issues the products of 16 channels of a stage; `of_part` is how far a part's channels are from the beginning of a row of A, in bytes.
    ///
    /// # Safety
    /// All threads of the warpgroup come here; the descriptors are of a stage that is full, and sums are not touched until the products are
    /// waited for.
    #[inline(always)]
    unsafe fn add(sums: &mut [[[f32; SUMS]; PARTS]; DOWN], [a, b]: [Descriptor; 2], of_part: &[u32; PARTS], step: u32) {
        for i in 0..DOWN {
            for part in 0..PARTS {
                // SAFETY: the caller's promise.
                unsafe {
                    let a = a.offset(i as u32 * PIXELS * ROW_WORDS * 4 + of_part[part] + step * STEP_BYTES);
                    let b = b.offset(part as u32 * 2 * SUMS as u32 * ROW_WORDS * 4 + step * STEP_BYTES);
                    sums[i][part].add_shared::<OfBf16>(a, b);
                }
            }
        }
    }

    /// What a consumer's warpgroup does, for a convolution in which so many groups have been joined.
    ///
    /// # Safety
    /// All its threads come here.
    #[inline(always)]
    unsafe fn multiply(
        conv: &Convolution,
        tiles: &Tiles,
        joined: u32,
        ring: Ring<STAGES>,
        warp: u32,
        y: GlobalSliceMut<'_, Bf16>,
    ) {
        let warpgroup = warp / WARPS - 1;
        let own_channels = conv.channels / joined;
        // Parts without a group have the last one's channels, and are not stored.
        let of_part: [u32; PARTS] =
            core::array::from_fn(|part| (part as u32).min(joined - 1) * (own_channels / STEP_CHANNELS) * STEP_BYTES);
        // The first pixel and the first filter of the warpgroup, in a tile.
        let pixel = warpgroup / ACROSS * DOWN as u32 * PIXELS;
        let filter = warpgroup % ACROSS * tiles.of_warpgroup;
        // SAFETY: the caller's promise. A stage is read when it is full, and released when the products that read it have finished, as have
        // the accumulators when they are read.
        unsafe {
            let stages = Self::MEMORY.stages.slice();
            let mut ring = ring.consumer();
            let mut number = thread::block_idx_x();
            while tiles.tile(conv, number).is_some() {
                let mut sums = [[[0.0f32; SUMS]; PARTS]; DOWN];
                let mut previous: Option<Unreleased> = None;
                let (mut left, mut channels) = (steps(conv), own_channels);
                while left > 0 {
                    ring.wait();
                    let at = ring.stage() * Self::STAGE;
                    let operands = [at + pixel * ROW_WORDS, at + Self::A + filter * ROW_WORDS]
                        .map(|at| Descriptor::at(stages, at as usize));
                    wgmma::fence();
                    if PARTS > 1 && joined > 1 {
                        // One or two.
                        Self::add(&mut sums, operands, &of_part, 0);
                        if channels > STEP_CHANNELS {
                            Self::add(&mut sums, operands, &of_part, 1);
                        }
                    } else if channels >= CHANNELS {
                        for step in 0..STEPS {
                            Self::add(&mut sums, operands, &of_part, step);
                        }
                    } else {
                        let (mut step, steps) = (0, channels.div_ceil(STEP_CHANNELS));
                        while step < steps {
                            Self::add(&mut sums, operands, &of_part, step);
                            step = hint::keep_rolled(step + 1);
                        }
                    }
                    wgmma::commit();
                    channels = if channels > CHANNELS { channels - CHANNELS } else { own_channels };
                    let read = ring.advance_holding();
                    for i in 0..DOWN {
                        for part in 0..PARTS {
                            sums[i][part].wait::<1>();
                        }
                    }
                    if let Some(previous) = previous {
                        previous.release();
                    }
                    previous = Some(read);
                    left = hint::keep_rolled(left - 1);
                }
                for i in 0..DOWN {
                    for part in 0..PARTS {
                        sums[i][part].wait::<0>();
                    }
                }
                if let Some(previous) = previous {
                    previous.release();
                }
                // Found again, rather than kept in registers all the time.
                if let Some(tile) = tiles.tile(conv, number) {
                    let own = Own::new(conv, tiles, tile, pixel + warp % WARPS * 16, filter);
                    // Not a loop: the compiler would not unroll it, and accumulators would lie in memory.
                    if let Some(sums) = sums.first() {
                        own.store(conv, 0, y, sums);
                    }
                    if let Some(sums) = sums.get(1) {
                        own.store(conv, PIXELS, y, sums);
                    }
                    if let Some(sums) = sums.get(2) {
                        own.store(conv, 2 * PIXELS, y, sums);
                    }
                }
                number += thread::grid_dim_x();
            }
        }
    }
}

/// The column, the row and the image of the first tap of a pixel of the result; column and row may be before the image.
#[inline(always)]
fn base_pixel(conv: &Convolution, number: u32) -> [u32; 3] {
    let [down, across] = conv.out().map(|extent| extent.max(1));
    let column = (number % across * conv.stride_across).wrapping_sub(conv.padding_across);
    let row = (number / across % down * conv.stride_down).wrapping_sub(conv.padding_down);
    [column, row, number / across / down]
}

/// What a thread stores: eight filters of a pixel, those 32 further, and so on; and the same of the pixel eight further.
#[derive(Clone, Copy)]
struct Own {
    /// The number of the lane modulo 4.
    c: u32,
    /// The pixels of the tile that are left from its first one on.
    rows: u32,
    /// The filters that are left of the warpgroup from its first one on, or of the group.
    filters: u32,
    /// Its first number in y.
    place: usize,
}

impl Own {
    /// That of a warp that has 16 pixels from `row` on and the filters from `filter` on of a tile.
    #[inline(always)]
    fn new(conv: &Convolution, tiles: &Tiles, tile: Tile, row: u32, filter: u32) -> Self {
        // Read anew, rather than kept in registers all the time.
        let lane = this_thread() % warp::LANES;
        let c = lane % 4;
        let (row, of_filters) = (row + lane / 4, c * UNIT);
        let rows = tiles.rows.min(tiles.pixels - tile.pixel).saturating_sub(row);
        let filters =
            tiles.of_warpgroup.min((conv.filters - tile.filter).saturating_sub(filter)).saturating_sub(of_filters);
        let first = tile.group * conv.filters + tile.filter + filter + of_filters;
        let place = (tile.pixel + row) as usize * conv.all_filters() as usize + first as usize;
        Self { c, rows, filters, place }
    }

    /// Stores the results of a warp `down` pixels further, as far as there are pixels and filters.
    ///
    /// # Safety
    /// The whole warp comes here together. The tile's pixels and filters are no other warp's; filters of a group are a multiple of 8, and y is
    /// aligned to 16 bytes.
    #[inline(always)]
    unsafe fn store<const SUMS: usize, const PARTS: usize>(
        self,
        conv: &Convolution,
        down: u32,
        y: GlobalSliceMut<'_, Bf16>,
        sums: &[[f32; SUMS]; PARTS],
    ) {
        // SAFETY: the same memory as words, of which pixels have a whole number.
        let words: GlobalSliceMut<'_, u32> =
            unsafe { GlobalSliceMut::from_raw_parts(y.as_mut_ptr().cast(), y.len() / 2) };
        for half in 0..2 {
            let down = down + 8 * half as u32;
            let place = (self.place + down as usize * conv.all_filters() as usize) / 2;
            let filters = if down < self.rows { self.filters } else { 0 };
            for four in 0..PARTS * SUMS / 16 {
                let pairs = core::array::from_fn(|i| {
                    let at = 4 * (4 * four + i) + 2 * half;
                    let sums = &sums[at / SUMS];
                    convert::bf16x2(sums[at % SUMS], sums[at % SUMS + 1])
                });
                // SAFETY: all lanes come here. Inside of y, and this thread's alone; the eight begin at a multiple of eight, because filters
                // of groups are such.
                unsafe {
                    let mut piece = transposed(pairs, self.c);
                    // Done before the branch, which is a predicate of the store then.
                    hint::pin(&mut piece);
                    if 4 * four as u32 * UNIT < filters {
                        words.set_vector_unchecked(place + 2 * four * UNIT as usize, piece);
                    }
                }
            }
        }
    }
}
