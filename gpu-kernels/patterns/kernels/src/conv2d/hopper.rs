//! Convolution in bf16 on Hopper's tensor cores (`wgmma`, sm_90a): a warpgroup has the pixels of a tap copied to shared memory, and TMA the
//! filters, and other warpgroups multiply them there.
//!
//! ```text
//!  x[n, h₀ + r·d, w₀ + s·d, 64 channels]   a stage, of 4                    registers
//!                                         ┌───────────────────┐
//!  a row of 128 bytes for each pixel ───► │ A   192 × 64      │ ─────────►  3 consumer warpgroups, of 64 pixels each:
//!       (cp.async, 16 bytes or zeros)     ├───────────────────┤  wgmma      64×256 accumulators
//!  w[256 filters, r, s, 64 channels] ───► │ B   256 × 64      │ ─────────►
//!       (TMA)                             └───────────────────┘
//! ```
//!
//! A copy knows where it goes in the swizzle, so rows lie in shared memory as TMA would have them: TMA itself loads boxes of an image, and the
//! pixels of a tile are none. The four warps of the producer's warpgroup take stages in turns: what makes copies visible to tensor cores waits
//! for all copies of a thread, so a warp that had several stages under way would wait for the last of them. Each lane works out where the tap
//! of a pixel is, and eight copy its 128 bytes.
//!
//! Terms come in the order of [`conv2d_bf16`](super::conv2d_bf16), 16 at a time, so results have the same bits. Blocks stay and go from
//! tile to tile: the next tile is copied while the results of this one are stored.

use blocks::ring::{Ring, Unreleased};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{this_thread, uniform, warp_number};
use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Bf16 as OfBf16, Descriptor, Sums};

use super::{Convolution, Pixel, Term, Tile};
use crate::quad::transposed;

/// The channels of a stage, and the words and pieces of 16 bytes of a row of so many.
pub(super) const CHANNELS: u32 = 64;
const ROW_WORDS: u32 = 32;
const PIECES: u32 = 8;
const PIECE_WORDS: u32 = 4;
/// The elements of a piece.
pub(super) const UNIT: u32 = 8;
/// The pixels of a warpgroup, and its warps and threads.
const PIXELS: u32 = 64;
const WARPS: u32 = 4;
const THREADS: u32 = 128;
/// The rows of 128 bytes that a warp copies with an instruction.
const AT_A_TIME: u32 = warp::LANES / PIECES;
/// The bytes of a row that an instruction takes, and the instructions for a row.
const STEP_BYTES: u32 = 32;
const STEPS: u32 = 4;

/// How a convolution is divided: `CONSUMERS` warpgroups, `ACROSS` of which are side by side, have `DOWN` times 64 pixels, and filters of which a
/// thread has `SUMS` accumulators for each of them.
struct Division<
    const CONSUMERS: u32,
    const DOWN: usize,
    const ACROSS: u32,
    const STAGES: u32,
    const SUMS: usize,
    const PARTS: usize,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
>;

/// The dynamic shared memory of a block.
struct Memory {
    stages: SharedArray<f32>,
    words: SharedArray<u32>,
    ring: SharedArray<u64>,
    bytes: u32,
}

/// The tiles of a convolution, of so many pixels and filters, the filters of the same pixels one after the other, so that those are in the
/// second-level cache.
#[derive(Clone, Copy)]
struct Tiles {
    of_tile: [u32; 2],
}

impl Tiles {
    /// Those of a group's filters, and of all groups.
    #[inline(always)]
    fn across(self, conv: &Convolution) -> [u32; 2] {
        let of_group = conv.filters.div_ceil(self.of_tile[1]).max(1);
        [of_group, (of_group * conv.groups).max(1)]
    }

    /// Tile `number`, if it is there.
    #[inline(always)]
    fn tile(self, conv: &Convolution, number: u32) -> Option<Tile> {
        let [of_group, across] = self.across(conv);
        let (pixels, at) = (number / across, number % across);
        let (group, filter) = (at / of_group, at % of_group * self.of_tile[1]);
        let tile = Tile { pixel: pixels * self.of_tile[0], group, filter };
        tile.extent(conv).map(|_| tile)
    }
}

/// The tiles of so many pixels and filters that a convolution has, unless a block's number could not count them.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn tiles(conv: &Convolution, of_tile: [u32; 2]) -> Option<u32> {
    let [down, across] = conv.out();
    let pixels = u64::from(conv.batch) * u64::from(down) * u64::from(across);
    let of_pixels = pixels.div_ceil(u64::from(of_tile[0]));
    let all = of_pixels * u64::from(Tiles { of_tile }.across(conv)[1]);
    // A block counts on from its last tile by the number of blocks.
    u32::try_from(all).ok().filter(|&all| all <= i32::MAX as u32 / 2)
}

/// Whether a map is one of the filters of a convolution, in tiles of 64 terms of so many.
#[cfg(not(target_arch = "nvptx64"))]
fn describes(map: &TensorMap<'_>, conv: &Convolution, lines: u32) -> bool {
    use cuda_std::{TileElement, TileSwizzle};
    let layout = map.layout();
    let [terms, filters, groups] = [conv.terms(), conv.filters, conv.groups].map(u64::from);
    let strides = [2, 2 * terms, 2 * terms * filters];
    let fits = |i: usize| layout.byte_strides[i] == strides[i] || layout.extents[i] == 1;
    layout.element == TileElement::Bytes2
        && layout.swizzle == TileSwizzle::Bytes128
        && layout.extents == [terms, filters, groups]
        && layout.tile == [CHANNELS, lines, 1]
        && (0..3).all(fits)
}

/// A kernel for each size of tiles.
macro_rules! kernels {
    ($(
        $name:ident, block = $block:literal,
        $pixels:literal x $filters:literal, <$consumers:literal, $down:literal, $across:literal, $stages:literal, $sums:literal, $parts:literal, $of_consumers:literal, $of_producer:literal>,
        $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = 1,
            arch = "sm_90a",
            grid = workers,
            dynamic_shared = Division::<$consumers, $down, $across, $stages, $sums, $parts, $of_consumers, $of_producer>::MEMORY.bytes,
            requires(
                conv.fits_without_filters([x.len(), y.len()]),
                conv.has_units(CHANNELS),
                describes(&w, &conv, $filters),
                tiles(&conv, [$pixels, $filters]).is_some(),
                workers > 0 && workers <= i32::MAX as u32 / 2,
                conv.filters.is_multiple_of(UNIT),
                (x.as_ptr().addr() | y.as_mut_ptr().addr()).is_multiple_of(16)
            )
        )]
        pub fn $name(
            w: TensorMap<'_>,
            conv: Convolution,
            workers: u32,
            x: GlobalSlice<'_, Bf16>,
            y: GlobalSliceMut<'_, Bf16>,
        ) {
            _ = workers; // for the grid alone
            const { assert!($block == ($consumers + 1) * THREADS) };
            // SAFETY: a block of so many threads, all of which come here, with its shared memory; the launch has checked the rest.
            unsafe {
                Division::<$consumers, $down, $across, $stages, $sums, $parts, $of_consumers, $of_producer>::convolve(&conv, w, x, y)
            }
        }
    )* };
}

kernels! {
    conv2d_192x256_wgmma_bf16, block = 384, 192 x 256, <2, 3, 2, 4, 64, 6, 232, 40>,
        "`y[n, oh, ow, f] = Σ x[n, oh·stride − padding + r·dilation, …, c] · w[f, r, s, c]` of bf16 numbers, with fp32 sums that are \
         rounded to bf16, by tiles of 192 pixels and 256 filters. `w` is a map of groups × filters × terms in tiles of 64 × 256. Groups have \
         multiples of 64 channels and of 8 filters. `workers` blocks share the tiles.";
    conv2d_128x128_wgmma_bf16, block = 384, 128 x 128, <2, 1, 1, 6, 64, 4, 216, 72>,
        "The same by tiles of 128 pixels and 128 filters.";
    conv2d_128x64_wgmma_bf16, block = 384, 128 x 64, <2, 1, 1, 8, 32, 4, 216, 72>,
        "The same by tiles of 128 pixels and 64 filters.";
}

impl<
    const CONSUMERS: u32,
    const DOWN: usize,
    const ACROSS: u32,
    const STAGES: u32,
    const SUMS: usize,
    const PARTS: usize,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
> Division<CONSUMERS, DOWN, ACROSS, STAGES, SUMS, PARTS, CONSUMER_REGISTERS, PRODUCER_REGISTERS>
where
    [f32; SUMS]: Sums<Number = f32>,
{
    /// The filters of a warpgroup, and the pixels and filters of a block.
    const COLUMNS: u32 = 2 * SUMS as u32;
    const ROWS: u32 = CONSUMERS / ACROSS * DOWN as u32 * PIXELS;
    const FILTERS: u32 = ACROSS * Self::COLUMNS;
    /// The words of the pixels of a stage, and of a stage.
    const A: u32 = Self::ROWS * ROW_WORDS;
    const STAGE: u32 = Self::A + Self::FILTERS * ROW_WORDS;
    const TILES: Tiles = Tiles { of_tile: [Self::ROWS, Self::FILTERS] };

    const MEMORY: Memory = {
        assert!(CONSUMERS.is_multiple_of(ACROSS) && PARTS as u32 * warp::LANES == Self::ROWS && DOWN <= 3);
        let mut layout = SharedLayout::new();
        let stages = layout.aligned(STAGES * Self::STAGE, 1024);
        let ring = Ring::<STAGES>::barriers(&mut layout);
        // The same memory as words: it is the first array of a layout in either case.
        let words = SharedLayout::new().aligned(STAGES * Self::STAGE, 1024);
        Memory { stages, words, ring, bytes: layout.bytes() }
    };

    /// The body of the kernels.
    ///
    /// # Safety
    /// All threads of a block of `CONSUMERS + 1` warpgroups come here, with the shared memory of [`Self::MEMORY`]; the map is of the filters
    /// of this convolution, as [`describes`] says, x and y have as many elements as it says, and are aligned to 16 bytes; filters of a group are a multiple of 8.
    #[inline(always)]
    unsafe fn convolve(conv: &Convolution, w: TensorMap<'_>, x: GlobalSlice<'_, Bf16>, y: GlobalSliceMut<'_, Bf16>) {
        // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and acquire
        // registers together. One thread prepares the barriers, and all wait for it. A stage has an arrival of the warp that copies, and one
        // for the bytes of TMA.
        unsafe {
            let ring = Ring::<STAGES>::new(Self::MEMORY.ring);
            if thread::thread_idx_x() == 0 {
                ring.init(2, CONSUMERS * WARPS);
                hopper::fence_barrier_init();
            }
            thread::sync_threads();
            let warp = warp_number();
            if warp < WARPS {
                hopper::release_registers::<PRODUCER_REGISTERS>();
                Self::copy(conv, ring, warp, w, x);
            } else {
                hopper::acquire_registers::<CONSUMER_REGISTERS>();
                Self::multiply(conv, ring, warp, y);
            }
        }
    }

    /// What a warp of the producer's warpgroup does: every fourth stage of all tiles of the block.
    ///
    /// # Safety
    /// All its lanes come here, and so do those of the other three warps, with their numbers.
    #[inline(always)]
    unsafe fn copy(conv: &Convolution, ring: Ring<STAGES>, warp: u32, w: TensorMap<'_>, x: GlobalSlice<'_, Bf16>) {
        let lane = warp::lane_id();
        // SAFETY: the caller's promise, and that of `convolve`. A stage is acquired before it is written; what a lane has copied has come, and is
        // visible to tensor cores, before the warp commits. One lane issues the load of TMA, and counts its bytes.
        unsafe {
            let (stages, words) = (Self::MEMORY.stages.slice(), Self::MEMORY.words.slice());
            let of_x: GlobalSlice<'_, u32> = GlobalSlice::from_raw_parts(x.as_ptr().cast(), x.len() / 2);
            hopper::prefetch_tensor_map(w);
            let mut ring = ring.producer_after(warp);
            let steps = conv.terms() / CHANNELS;
            let (mut number, mut step) = (thread::block_idx_x(), warp);
            while let Some(tile) = Self::TILES.tile(conv, number) {
                while step < steps {
                    let term = Term::new(conv, step * CHANNELS);
                    let [k, filter, group] = [step * CHANNELS, tile.filter, tile.group].map(|value| uniform(value));
                    // Each lane finds the pixels of some rows, before it waits, and the lanes that copy a row get its place from there.
                    let places: [u32; PARTS] = core::array::from_fn(|part| {
                        let row = part as u32 * warp::LANES + lane;
                        let pixel = Pixel::new(conv, UNIT, tile.pixel + row, tile.group * conv.channels);
                        pixel.at(conv, term.distance(conv), term.channel).unwrap_or(NOWHERE)
                    });
                    ring.acquire();
                    let (stage, at) = (ring.tma_stage(), ring.stage() * Self::STAGE);
                    if hopper::elect_one() {
                        stage.commit_bytes(Self::FILTERS * ROW_WORDS * 4);
                        stage.load_tile(stages, (at + Self::A) as usize, w, [k, filter, group]);
                    }
                    for part in 0..PARTS {
                        for i in 0..PIECES {
                            let (row, piece) = (AT_A_TIME * i + lane / PIECES, lane % PIECES);
                            let place = warp::warp_shuffle_idx(warp::ALL_LANES, places[part], row, warp::LANES).0;
                            let is_inside = place != NOWHERE;
                            let from = if is_inside { (place + piece) as usize } else { 0 };
                            let row = part as u32 * warp::LANES + row;
                            let to = at + row * ROW_WORDS + (piece ^ (row % 8)) * PIECE_WORDS;
                            copy_async::<{ PIECE_WORDS as usize }, _>(
                                &words,
                                to as usize,
                                &of_x,
                                from * PIECE_WORDS as usize,
                                if is_inside { PIECE_WORDS } else { 0 },
                            );
                        }
                    }
                    commit_group();
                    wait_group::<0>();
                    hopper::fence_async_shared();
                    warp::sync_warp(warp::ALL_LANES);
                    ring.commit();
                    for _ in 0..WARPS {
                        ring.advance();
                    }
                    step = hint::keep_rolled(step + WARPS);
                }
                step -= steps;
                number += thread::grid_dim_x();
            }
        }
    }

    /// What a consumer's warpgroup does.
    ///
    /// # Safety
    /// All its threads come here.
    #[inline(always)]
    unsafe fn multiply(conv: &Convolution, ring: Ring<STAGES>, warp: u32, y: GlobalSliceMut<'_, Bf16>) {
        let warpgroup = warp / WARPS - 1;
        // The first pixel and the first filter of the warpgroup, in a tile.
        let (pixel, filter) = (warpgroup / ACROSS * DOWN as u32 * PIXELS, warpgroup % ACROSS * Self::COLUMNS);
        // SAFETY: the caller's promise. A stage is read when it is full, and released when the products that read it have finished, as have
        // the accumulators when they are read.
        unsafe {
            let stages = Self::MEMORY.stages.slice();
            let mut ring = ring.consumer();
            let mut number = thread::block_idx_x();
            while Self::TILES.tile(conv, number).is_some() {
                let mut sums = [[0.0f32; SUMS]; DOWN];
                let mut previous: Option<Unreleased> = None;
                let mut left = conv.terms() / CHANNELS;
                while left > 0 {
                    ring.wait();
                    let at = ring.stage() * Self::STAGE;
                    let a = Descriptor::at(stages, (at + pixel * ROW_WORDS) as usize);
                    let b = Descriptor::at(stages, (at + Self::A + filter * ROW_WORDS) as usize);
                    wgmma::fence();
                    for step in 0..STEPS {
                        for i in 0..DOWN {
                            let a = a.offset(i as u32 * PIXELS * ROW_WORDS * 4 + step * STEP_BYTES);
                            sums[i].add_shared::<OfBf16>(a, b.offset(step * STEP_BYTES));
                        }
                    }
                    wgmma::commit();
                    let read = ring.advance_holding();
                    for i in 0..DOWN {
                        sums[i].wait::<1>();
                    }
                    if let Some(previous) = previous {
                        previous.release();
                    }
                    previous = Some(read);
                    left = hint::keep_rolled(left - 1);
                }
                for i in 0..DOWN {
                    sums[i].wait::<0>();
                }
                if let Some(previous) = previous {
                    previous.release();
                }
                // Found again, rather than kept in registers all the time.
                if let Some(tile) = Self::TILES.tile(conv, number) {
                    let row = pixel + warp % WARPS * 16;
                    // Not a loop: the compiler would not unroll it, and accumulators would lie in memory.
                    if let Some(sums) = sums.first() {
                        store(conv, tile, [row, filter], y, sums);
                    }
                    if let Some(sums) = sums.get(1) {
                        store(conv, tile, [row + PIXELS, filter], y, sums);
                    }
                    if let Some(sums) = sums.get(2) {
                        store(conv, tile, [row + 2 * PIXELS, filter], y, sums);
                    }
                }
                number += thread::grid_dim_x();
            }
        }
    }
}

/// In place of where a tap of a pixel is: it is outside of the image. No x has as many pieces.
const NOWHERE: u32 = u32::MAX;

/// Stores the results of a warp, of its 16 pixels and its filters from these of the tile on, as far as there are pixels and filters.
///
/// # Safety
/// The whole warp comes here together. The tile's pixels and filters are no other warp's; filters of a group are a multiple of 8, and y is
/// aligned to 16 bytes.
#[inline(always)]
unsafe fn store<const SUMS: usize>(
    conv: &Convolution,
    tile: Tile,
    [row, filter]: [u32; 2],
    y: GlobalSliceMut<'_, Bf16>,
    sums: &[f32; SUMS],
) {
    let Some(extent) = tile.extent(conv) else { return };
    // Read anew, rather than kept in registers all the time.
    let lane = this_thread() % warp::LANES;
    let (g, c) = (lane / 4, lane % 4);
    let first_filter = tile.group * conv.filters + tile.filter;
    // SAFETY: the same memory as words, of which pixels have a whole number.
    let words: GlobalSliceMut<'_, u32> = unsafe { GlobalSliceMut::from_raw_parts(y.as_mut_ptr().cast(), y.len() / 2) };
    for half in 0..2 {
        let row = row + g + 8 * half as u32;
        let first = (tile.pixel + row) as usize * conv.all_filters() as usize + first_filter as usize;
        for four in 0..SUMS / 16 {
            let pairs = core::array::from_fn(|i| {
                let at = 4 * (4 * four + i) + 2 * half;
                convert::bf16x2(sums[at], sums[at + 1])
            });
            // SAFETY: all lanes come here. Inside of y, and this thread's alone; the eight begin at a multiple of eight, because filters of
            // groups are such.
            unsafe {
                let piece = transposed(pairs, c);
                let col = filter + (4 * four as u32 + c) * UNIT;
                if row < extent[0] && col < extent[1] {
                    words.set_vector_unchecked((first + col as usize) / 2, piece);
                }
            }
        }
    }
}
