//! 2-D convolution of a batch of images, `y[n, oh, ow, f] = Σ x[n, h₀ + r·d, w₀ + s·d, c] · w[f, r, s, c]` over r, s and c, in fp32 or
//! bf16, with stride, padding, dilation d and groups: as a matrix product whose left operand is never built (implicit GEMM), on tensor
//! cores from sm_80 on. A block of 256 threads computes 128 pixels of up to 128 filters.
//!
//! ```text
//!                                     k = (r, s, c): taps, and channels within a tap
//!   x[n, h, w, c]                    ┌───────────────┐
//!   ┌─────────────┐   row = (n,      │ x[n, h₀ + r·d,│        w[f, r, s, c], K-major as it is         y[n, oh, ow, f]
//!   │ · · ▪ · ▪ · │    oh, ow)  ───► │   w₀ + s·d, c]│   ×   ┌──────────┐ᵀ                    =       ┌──────────┐
//!   │ · · ▪ · ▪ · │                  │  0 outside    │       │ filter f │                             │          │
//!   └─────────────┘                  └───────────────┘       └──────────┘                             └──────────┘
//! ```
//!
//! Tensors lie as `torch.channels_last` has them (NHWC, and filters likewise), which is what PyTorch advises for tensor cores: then k of both
//! operands are neighbours in memory, 16 bytes of channels are one copy, and a tap that lies outside of the image is a copy of nothing,
//! which makes zeros. In NCHW a copy would have 4 bytes, and none would do for bf16.
//!
//! The filters of a block are of one group; its main loop is that of [`blocks::mma_tile`]. A thread copies 16 bytes of two
//! pixels and of two filters in each step; it knows its pixels' first tap and walks through the taps by addition, without a division.
//! Where channels of a group are not whole copies (3 channels of a photograph), it copies element by element, and finds out the tap of
//! each.
//!
//! Hopper has kernels of its own for bf16 (`hopper`), where channels and filters are multiples of 8, and of groups channels of 16. Their sums
//! have the same terms in the same order, and the same bits where channels are multiples of 16.
//!
//! Single taps with few channels, which are a matter of memory, have kernels of their own, too (`pointwise`), with the same bits.
//!
//! fp32 is computed by three TF32 products, as accurately as fp32 sums ([`blocks::mma_scheme`]); what comes out infinite or NaN is computed
//! again in plain fp32, so that infinities and NaN, and numbers from 2¹¹⁵ on, do what they do in fp32. bf16 has fp32 sums.
//!
//! Source: S. Chetlur et al., "cuDNN: efficient primitives for deep learning", arXiv:1410.0759 (2014), section 3, for the product whose
//! operand is not built.

mod convolution;
mod hopper;
mod pointwise;
mod tiles;

use blocks::mma_scheme::{Bf16Products, Scheme, ThreeTf32};
use blocks::mma_tile::{Accumulators, LINES, MEMORY, OCTET, PIECE, Stage, WORDS, own_lines};
use blocks::uniform::this_thread;
use cuda_std::async_copy::copy_async;
use cuda_std::prelude::*;

/// A kernel for each element and each way to copy.
macro_rules! kernels {
    ($($name:ident, $element:ty, $scheme:ty, $source:ident, $min_blocks:literal, $doc:expr;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 256,
            min_blocks = $min_blocks,
            grid = conv.blocks().unwrap_or(1),
            dynamic_shared = MEMORY.bytes,
            requires(
                conv.fits([x.len(), w.len(), y.len()]),
                conv.has_units(<$source<'_, $scheme> as Source<'_, $scheme>>::UNIT),
                <$source<'_, $scheme> as Source<'_, $scheme>>::UNIT == 1 || (x.as_ptr().addr() | w.as_ptr().addr()).is_multiple_of(16)
            )
        )]
        pub fn $name(
            conv: Convolution,
            x: GlobalSlice<'_, $element>,
            w: GlobalSlice<'_, $element>,
            y: GlobalSliceMut<'_, $element>,
        ) {
            static PIXELS: Pixels = Shared::new();
            // SAFETY: a block of 256 threads, all of which come here, with the shared memory of the main loop; the launch has checked the
            // rest.
            unsafe { convolve::<$scheme, $source<'_, $scheme>>(&conv, &PIXELS, x, w, y) }
        }
    )* };
}

kernels! {
    conv2d_fp32_3xtf32, f32, ThreeTf32, Pieces, 1,
        "`y[n, oh, ow, f] = Σ x[n, oh·stride − padding + r·dilation, …, c] · w[f, r, s, c]` in fp32, by three TF32 products. Groups have multiples of 4 channels.";
    conv2d_any_fp32_3xtf32, f32, ThreeTf32, Elements, 1,
        "The same of any number of channels, element by element.";
    conv2d_bf16, Bf16, Bf16Products, Pieces, 2,
        "The same of bf16 numbers, with fp32 sums that are rounded to bf16. Groups have multiples of 8 channels.";
    conv2d_any_bf16, Bf16, Bf16Products, Elements, 1,
        "The same of any number of channels, element by element.";
}

/// A pixel of the result, as a place in x: where channel 0 of its group is at its first tap, counted in units of so many elements, and the
/// row and column of that. Each may lie before the image, and is a number below zero then, modulo 2³².
#[derive(Clone, Copy)]
struct Pixel {
    unit: u32,
    first: u32,
    row: u32,
    col: u32,
}

/// The pixels of a block, each in a column: a thread has no registers for those that it copies. Nobody writes them after the first barrier.
type Pixels = Shared<[[u32; LINES as usize]; 3]>;

impl Pixel {
    /// Writes it to its line.
    ///
    /// # Safety
    /// No other thread has the line; a barrier comes before it is read.
    #[inline(always)]
    unsafe fn keep(self, pixels: &'static Pixels, line: u32) {
        for (row, word) in [self.first, self.row, self.col].into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { pixels.write([row, line as usize], word) };
        }
    }

    /// That of a line.
    ///
    /// # Safety
    /// It was written with the same unit, before a barrier.
    #[inline(always)]
    unsafe fn kept(pixels: &'static Pixels, unit: u32, line: u32) -> Self {
        // SAFETY: the caller's promise.
        let [first, row, col] = core::array::from_fn(|row| unsafe { pixels.read([row, line as usize]) });
        Self { unit, first, row, col }
    }

    /// Pixel `number` of all images. One that is not there has all its taps outside.
    #[inline(always)]
    fn new(conv: &Convolution, unit: u32, number: u32, channel: u32) -> Self {
        let [down, across] = conv.out().map(|extent| extent.max(1));
        let (image, row, col) = (number / across / down, number / across % down, number % across);
        let row = (row * conv.stride_down).wrapping_sub(conv.padding_down);
        let col = (col * conv.stride_across).wrapping_sub(conv.padding_across);
        let pixel = image.wrapping_mul(conv.height).wrapping_add(row).wrapping_mul(conv.width).wrapping_add(col);
        let first = pixel.wrapping_mul(conv.all_channels() / unit).wrapping_add(channel / unit);
        // A row that no image has, whichever tap.
        Self { unit, first, row: if image < conv.batch { row } else { 1 << 31 }, col }
    }

    /// Where channel `channel` of a tap is in x, in units, if it is inside of the image. `down` and `across` are the tap times the dilation.
    #[inline(always)]
    fn at(self, conv: &Convolution, [down, across]: [u32; 2], channel: u32) -> Option<u32> {
        let is_inside = self.row.wrapping_add(down) < conv.height && self.col.wrapping_add(across) < conv.width;
        let tap = down.wrapping_mul(conv.width).wrapping_add(across).wrapping_mul(conv.all_channels() / self.unit);
        is_inside.then_some(self.first.wrapping_add(tap).wrapping_add(channel / self.unit))
    }
}

/// Where k is: a tap, and a channel of its group.
#[derive(Clone, Copy)]
struct Term {
    row: u32,
    col: u32,
    channel: u32,
}

impl Term {
    /// That of term `k`, which need not be there.
    #[inline(always)]
    fn new(conv: &Convolution, k: u32) -> Self {
        let (channels, taps) = (conv.channels.max(1), conv.taps_across.max(1));
        Self { row: k / channels / taps, col: k / channels % taps, channel: k % channels }
    }

    /// That of the next term.
    #[inline(always)]
    fn next(self, conv: &Convolution) -> Self {
        let ends_tap = self.channel + 1 == conv.channels;
        let ends_row = ends_tap && self.col + 1 == conv.taps_across;
        Self {
            row: self.row + u32::from(ends_row),
            col: if ends_row { 0 } else { self.col + u32::from(ends_tap) },
            channel: if ends_tap { 0 } else { self.channel + 1 },
        }
    }

    /// That of so many terms further.
    #[inline(always)]
    fn plus(mut self, conv: &Convolution, terms: u32) -> Self {
        let channels = conv.channels;
        self.channel += terms;
        while self.channel >= channels {
            self.channel -= channels;
            self.col += 1;
            if self.col == conv.taps_across {
                (self.row, self.col) = (self.row + 1, 0);
            }
            self.channel = hint::keep_rolled(self.channel);
        }
        self
    }

    /// How far it is from the first tap, in pixels.
    #[inline(always)]
    fn distance(self, conv: &Convolution) -> [u32; 2] {
        [self.row * conv.dilation_down, self.col * conv.dilation_across]
    }
}

/// What a block computes: from which pixel on, of which group, from which of its filters on.
#[derive(Clone, Copy)]
struct Tile {
    pixel: u32,
    group: u32,
    filter: u32,
}

impl Tile {
    /// That of a block. Blocks that follow one another have the same pixels, so that those are in the second-level cache.
    #[inline(always)]
    fn own(conv: &Convolution, block: u32) -> Self {
        let of_group = conv.filters.div_ceil(LINES).max(1);
        let across = (of_group * conv.groups).max(1);
        let (pixels, at) = (block / across, block % across);
        Self { pixel: pixels * LINES, group: at / of_group, filter: at % of_group * LINES }
    }

    /// The pixels and the filters of its group that are left from its first ones on, unless there are none.
    #[inline(always)]
    fn extent(self, conv: &Convolution) -> Option<[u32; 2]> {
        let ([down, across], filters) = (conv.out(), conv.filters);
        let pixels = conv.batch * down * across;
        let is_there = self.pixel < pixels && self.filter < filters;
        is_there.then(|| [pixels - self.pixel, filters - self.filter])
    }
}

/// The body of all kernels.
///
/// # Safety
/// All threads of a block of 256 come here, with the shared memory of [`MEMORY`]; the convolution [fits](Convolution::fits) the arrays, and they are as
/// the source needs them.
#[inline(always)]
#[track_caller]
unsafe fn convolve<'a, S: Scheme, F: Source<'a, S>>(
    conv: &Convolution,
    pixels: &'static Pixels,
    x: GlobalSlice<'a, S::Element>,
    w: GlobalSlice<'a, S::Element>,
    y: GlobalSliceMut<'_, S::Element>,
) {
    let tile = Tile::own(conv, thread::block_idx_x());
    let Some(extent) = tile.extent(conv) else { return }; // the same for the whole block
    let mut sums = Accumulators::ZERO;
    let line = thread::thread_idx_x();
    if line < LINES {
        let pixel = Pixel::new(conv, F::UNIT, tile.pixel + line, tile.group * conv.channels);
        // SAFETY: one thread for each line. The main loop has a barrier before the first copy.
        unsafe { pixel.keep(pixels, line) };
    }
    let mut source = F::new(conv, pixels, x, w, tile);
    let steps = conv.terms().div_ceil(WORDS * S::PER_WORD);
    // SAFETY: all threads of the block come here, with equal numbers; each copies all words of a stage that are its own.
    unsafe {
        if F::ASYNC {
            sums.add_steps::<S, true>(steps, extent, |shared, stage| source.copy_next(conv, shared, stage));
        } else {
            sums.add_steps::<S, false>(steps, extent, |shared, stage| source.copy_next(conv, shared, stage));
        }
    }

    // Found again, rather than kept in registers all the time.
    let mut block = [thread::block_idx_x()];
    hint::pin(&mut block);
    let tile = Tile::own(conv, block[0]);
    let Some(extent) = tile.extent(conv) else { return };
    let filters = conv.filters;
    let (first_channel, first_filter) = (tile.group * conv.channels, tile.group * filters + tile.filter);
    let by_vectors = filters.is_multiple_of(OCTET as u32) && y.as_mut_ptr().addr().is_multiple_of(16);
    let place =
        |row: u32, col: u32| (tile.pixel + row) as usize * conv.all_filters() as usize + (first_filter + col) as usize;
    sums.for_each_octet(|row, col, values| {
        if row < extent[0] && col < extent[1] {
            let count = (extent[1] - col).min(OCTET as u32) as usize;
            // SAFETY: inside of y, and this thread's alone; the eight begin at a multiple of eight where filters of groups are such.
            unsafe { store_octet::<S>(y, place(row, col), count, by_vectors, values) };
        }
    });
    if S::RECOMPUTES {
        sums.for_each_not_finite(|row, col| {
            if row < extent[0] && col < extent[1] {
                let pixel = Pixel::new(conv, F::UNIT, tile.pixel + row, first_channel);
                // SAFETY: the pixel and the filter are there, and the element is this thread's alone.
                unsafe {
                    let sum = plain_sum::<S>(conv, x, w, pixel, first_filter + col);
                    y.set_unchecked(place(row, col), S::from_f32(sum));
                }
            }
        });
    }
}

/// Stores up to eight neighbours.
///
/// # Safety
/// `count` elements of y from `place` on are this thread's alone; where they are stored by vectors they begin at a multiple of 8 of an array
/// that is aligned to 16 bytes.
#[inline(always)]
#[track_caller]
unsafe fn store_octet<S: Scheme>(
    y: GlobalSliceMut<'_, S::Element>,
    place: usize,
    count: usize,
    by_vectors: bool,
    values: [f32; OCTET],
) {
    let elements = values.map(S::from_f32);
    // SAFETY: the caller's promise.
    unsafe {
        if by_vectors && count == OCTET {
            if S::PER_WORD == 1 {
                let [a, b, c, d, e, f, g, h] = elements;
                y.set_vector_unchecked(place, [a, b, c, d]);
                y.set_vector_unchecked(place + 4, [e, f, g, h]);
            } else {
                let words = |i: usize| convert::bf16x2(values[2 * i], values[2 * i + 1]);
                let y: GlobalSliceMut<'_, u32> = GlobalSliceMut::from_raw_parts(y.as_mut_ptr().cast(), y.len() / 2);
                y.set_vector_unchecked(place / 2, [words(0), words(1), words(2), words(3)]);
            }
            return;
        }
        for i in 0..OCTET {
            if i < count {
                y.set_unchecked(place + i, elements[i]);
            }
        }
    }
}

/// One element of the result in plain fp32, term by term.
///
/// # Safety
/// The pixel and the filter are there.
#[inline(always)]
unsafe fn plain_sum<S: Scheme>(
    conv: &Convolution,
    x: GlobalSlice<'_, S::Element>,
    w: GlobalSlice<'_, S::Element>,
    pixel: Pixel,
    filter: u32,
) -> f32 {
    let (terms, mut term, mut sum) = (conv.terms(), Term::new(conv, 0), 0.0);
    let mut k = 0;
    while k < terms {
        let number = match pixel.at(conv, term.distance(conv), 0) {
            Some(first) => {
                let place = first as usize * pixel.unit as usize + term.channel as usize;
                // SAFETY: inside of the image.
                S::to_f32(unsafe { x.get_unchecked(place) })
            }
            None => 0.0,
        };
        // SAFETY: the filter is there, and has so many terms.
        let weight = S::to_f32(unsafe { w.get_unchecked(filter as usize * terms as usize + k as usize) });
        sum = math::fma(number, weight, sum);
        term = term.plus(conv, 1);
        k = hint::keep_rolled(k + 1);
    }
    sum
}

/// How a thread brings two pixels and two filters to a stage, at the words that are its own.
trait Source<'a, S: Scheme> {
    /// Whether it issues asynchronous copies, rather than write.
    const ASYNC: bool;
    /// The elements that are always together: channels of a group are a multiple of so many.
    const UNIT: u32;

    /// For a tile.
    fn new(
        conv: &Convolution,
        pixels: &'static Pixels,
        x: GlobalSlice<'a, S::Element>,
        w: GlobalSlice<'a, S::Element>,
        tile: Tile,
    ) -> Self;

    /// Issues the copies of the next step, or writes it.
    ///
    /// # Safety
    /// As for [`copy_async`] where it says who accesses the stage. For [`Pieces`], channels of a group are whole pieces, and the arrays
    /// aligned to 16 bytes.
    unsafe fn copy_next(&mut self, conv: &Convolution, shared: &SharedSlice<u32>, stage: Stage);
}

/// By asynchronous copies of 16 bytes.
struct Pieces<'a, S: Scheme> {
    x: GlobalSlice<'a, u32>,
    w: GlobalSlice<'a, u32>,
    pixels: &'static Pixels,
    /// The piece of the first filter at the step's terms. The second one is `LINES / 2` filters further on.
    piece: u32,
    /// Whether the filters are there.
    are_there: u32,
    term: Term,
    scheme: core::marker::PhantomData<S>,
}

impl<'a, S: Scheme> Source<'a, S> for Pieces<'a, S> {
    const ASYNC: bool = true;
    const UNIT: u32 = PIECE * S::PER_WORD;

    #[inline(always)]
    fn new(
        conv: &Convolution,
        pixels: &'static Pixels,
        x: GlobalSlice<'a, S::Element>,
        w: GlobalSlice<'a, S::Element>,
        tile: Tile,
    ) -> Self {
        let (lines, word) = own_lines(thread::thread_idx_x());
        let k = word * S::PER_WORD;
        let first = tile.group * conv.filters + tile.filter + lines[0];
        let [one, other] = lines.map(|line| u32::from(tile.filter + line < conv.filters));
        // SAFETY: the same memory as words: those are aligned where arrays of 16-byte pieces are, and no longer.
        let words = |source: GlobalSlice<'a, S::Element>| unsafe {
            GlobalSlice::from_raw_parts(source.as_ptr().cast(), source.len() / S::PER_WORD as usize)
        };
        Self {
            x: words(x),
            w: words(w),
            pixels,
            piece: (first * (conv.terms() / Self::UNIT)).wrapping_add(k / Self::UNIT),
            are_there: one | other << 1,
            term: Term::new(conv, k),
            scheme: core::marker::PhantomData,
        }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn copy_next(&mut self, conv: &Convolution, shared: &SharedSlice<u32>, stage: Stage) {
        // Found anew, rather than kept in registers all the time.
        let (lines, word) = own_lines(this_thread());
        let (is_there, distance) = (self.term.row < conv.taps_down, self.term.distance(conv));
        for half in 0..2 {
            // SAFETY: kept before the first barrier.
            let pixel = unsafe { Pixel::kept(self.pixels, Self::UNIT, lines[half]) };
            let place = if is_there { pixel.at(conv, distance, self.term.channel) } else { None };
            let count = if place.is_some() { PIECE } else { 0 };
            let from = place.unwrap_or(0) as usize * PIECE as usize;
            // SAFETY: a piece is of one tap, inside of the image, and aligned, because channels are whole pieces; or nothing is read.
            unsafe { copy_async::<4, _>(shared, stage.of_a(lines[half], word), &self.x, from, count) };
            let piece = self.piece.wrapping_add(half as u32 * (LINES / 2) * (conv.terms() / Self::UNIT));
            let is_there = is_there && self.are_there >> half & 1 != 0;
            let (piece, count) = if is_there { (piece, PIECE) } else { (0, 0) };
            let from = piece as usize * PIECE as usize;
            // SAFETY: a piece of a filter that is there, aligned likewise; or nothing is read.
            unsafe { copy_async::<4, _>(shared, stage.of_b(lines[half], word), &self.w, from, count) };
        }
        self.piece = self.piece.wrapping_add(WORDS / PIECE);
        self.term = self.term.plus(conv, WORDS * S::PER_WORD);
    }
}

/// Element by element, for any number of channels: words by asynchronous copies, smaller elements through registers.
struct Elements<'a, S: Scheme> {
    x: GlobalSlice<'a, S::Element>,
    w: GlobalSlice<'a, S::Element>,
    pixels: &'static Pixels,
    tile: Tile,
    k: u32,
}

impl<'a, S: Scheme> Source<'a, S> for Elements<'a, S> {
    const ASYNC: bool = S::PER_WORD == 1;
    const UNIT: u32 = 1;

    #[inline(always)]
    fn new(
        _: &Convolution,
        pixels: &'static Pixels,
        x: GlobalSlice<'a, S::Element>,
        w: GlobalSlice<'a, S::Element>,
        tile: Tile,
    ) -> Self {
        let (_, word) = own_lines(thread::thread_idx_x());
        Self { x, w, pixels, tile, k: word * S::PER_WORD }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn copy_next(&mut self, conv: &Convolution, shared: &SharedSlice<u32>, stage: Stage) {
        let ([mut line, _], word) = own_lines(this_thread());
        let first = Term::new(conv, self.k);
        // One of both lines after the other: as code for both, this would not be part of the main loop.
        while line < LINES {
            // SAFETY: the caller's promise: the words are this thread's own.
            unsafe { self.copy_line(conv, shared, first, line, [stage.of_a(line, word), stage.of_b(line, word)]) };
            line = hint::keep_rolled(line + LINES / 2);
        }
        self.k += WORDS * S::PER_WORD;
    }
}

impl<S: Scheme> Elements<'_, S> {
    /// Copies a piece of a pixel and one of a filter, from a term on, to places in shared memory.
    ///
    /// # Safety
    /// As for [`Source::copy_next`]; the places are this thread's own.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_line(&self, conv: &Convolution, shared: &SharedSlice<u32>, term: Term, line: u32, to: [usize; 2]) {
        let (filter, terms) = (self.tile.filter + line, conv.terms());
        let mut walk = Walk {
            // SAFETY: kept before the first barrier.
            pixel: unsafe { Pixel::kept(self.pixels, 1, line) },
            term,
            k: self.k,
            terms: [terms, if filter < conv.filters { terms } else { 0 }],
            filter: (self.tile.group * conv.filters + filter) as usize * terms as usize,
        };
        if Self::ASYNC {
            for i in 0..PIECE as usize {
                let [x, w] = walk.next(conv);
                // SAFETY: elements are words; inside of the image, and of a filter that is there, or nothing is read.
                unsafe {
                    copy_word::<S>(shared, to[0] + i, self.x, x);
                    copy_word::<S>(shared, to[1] + i, self.w, w);
                }
            }
        } else {
            // All are loaded before one is written.
            let words: [[u32; 2]; PIECE as usize] = core::array::from_fn(|_| {
                let mut word = [0; 2];
                for part in 0..S::PER_WORD {
                    let [x, w] = walk.next(conv);
                    // SAFETY: likewise.
                    let [x, w] = unsafe { [element::<S>(self.x, x), element::<S>(self.w, w)] };
                    word = [with_part::<S>(word[0], part, x), with_part::<S>(word[1], part, w)];
                }
                word
            });
            for i in 0..PIECE as usize {
                // SAFETY: the words of the stage are this thread's own.
                unsafe {
                    shared.write(to[0] + i, words[i][0]);
                    shared.write(to[1] + i, words[i][1]);
                }
            }
        }
    }
}

/// Term by term, where a pixel and a filter have their elements.
struct Walk {
    pixel: Pixel,
    term: Term,
    k: u32,
    /// How many terms the pixel has, and the filter: none if it is not there.
    terms: [u32; 2],
    /// Where the filter begins.
    filter: usize,
}

impl Walk {
    /// The places in x and in w, unless what is there is zero, and one term further.
    #[inline(always)]
    fn next(&mut self, conv: &Convolution) -> [Option<usize>; 2] {
        let (k, term) = (self.k, self.term);
        (self.k, self.term) = (k + 1, term.next(conv));
        let x = if k < self.terms[0] { self.pixel.at(conv, term.distance(conv), term.channel) } else { None };
        [x.map(|place| place as usize), (k < self.terms[1]).then_some(self.filter + k as usize)]
    }
}

/// Copies the word at a place, or zero where there is none.
///
/// # Safety
/// Elements are words, and the place is inside; for the rest, as for [`copy_async`].
#[inline(always)]
#[track_caller]
unsafe fn copy_word<S: Scheme>(
    shared: &SharedSlice<u32>,
    to: usize,
    from: GlobalSlice<'_, S::Element>,
    place: Option<usize>,
) {
    // SAFETY: the caller's promise: the same memory.
    unsafe {
        let words: GlobalSlice<'_, u32> = GlobalSlice::from_raw_parts(from.as_ptr().cast(), from.len());
        copy_async::<1, _>(shared, to, &words, place.unwrap_or(0), u32::from(place.is_some()));
    }
}

/// The element at a place, or zero where there is none.
///
/// # Safety
/// The place is inside.
#[inline(always)]
#[track_caller]
unsafe fn element<S: Scheme>(from: GlobalSlice<'_, S::Element>, place: Option<usize>) -> S::Element {
    match place {
        // SAFETY: the caller's promise.
        Some(place) => unsafe { from.get_unchecked(place) },
        None => S::from_f32(0.0),
    }
}

/// A word with one of its elements, the first of which come first.
#[inline(always)]
fn with_part<S: Scheme>(word: u32, part: u32, element: S::Element) -> u32 {
    let bits = S::to_f32(element).to_bits();
    // A bf16 number is the upper half of an fp32 number.
    if S::PER_WORD == 1 { bits } else { word | bits >> 16 << (16 * part) }
}

#[cfg(not(target_arch = "nvptx64"))]
mod operation;

pub use convolution::Convolution;
pub use hopper::{
    conv2d_128x64_wgmma_bf16, conv2d_128x128_wgmma_bf16, conv2d_128x192_wgmma_bf16, conv2d_192x256_wgmma_bf16,
    conv2d_256x2x32_wgmma_bf16, conv2d_256x4x16_wgmma_bf16, conv2d_256x128_wgmma_bf16,
};
#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Conv2d;
