//! Pixels that TMA loads for convolutions: right, and with one thing wrong.

#![allow(clippy::undocumented_unsafe_blocks, reason = "some of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{fault, line_of, succeed};
use cuda_std::executor::{Checks, FaultKind};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{ImageLayout, TileElement, TileSwizzle};

const SOURCE: &str = include_str!("pixels.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// 3 images of 6 rows of 5 pixels of 40 channels.
const EXTENTS: [usize; 4] = [40, 5, 6, 3];
/// Of them 32 channels of 20 pixels are loaded at a time.
const CHANNELS: usize = 32;
const PIXELS: usize = 20;

/// A filter of 2 columns and 3 rows, a dilation of 2 down; a padding of 1 and 2; strides of 1 and 2.
const TAPS: [usize; 2] = [2, 3];
const DILATION: [usize; 2] = [1, 2];
const PADDING: [usize; 2] = [1, 2];
const STRIDE: [usize; 2] = [1, 2];

fn layout(swizzle: TileSwizzle) -> ImageLayout {
    let strides = [1, EXTENTS[0], EXTENTS[0] * EXTENTS[1], EXTENTS[0] * EXTENTS[1] * EXTENTS[2]];
    let reach = |i: usize| (TAPS[i] - 1) * DILATION[i];
    ImageLayout {
        element: TileElement::Bytes4,
        extents: EXTENTS.map(|extent| extent as u64),
        byte_strides: strides.map(|stride| 4 * stride as u64),
        lower: [0, 1].map(|i| -(PADDING[i] as i32)),
        upper: [0, 1].map(|i| PADDING[i] as i32 - reach(i) as i32),
        steps: STRIDE.map(|stride| stride as u32),
        channels: CHANNELS as u32,
        pixels: PIXELS as u32,
        swizzle,
    }
}

fn map(memory: &[f32], swizzle: TileSwizzle) -> ImageMap<'_> {
    // SAFETY: all images are inside; the executor does not look at the words.
    unsafe { ImageMap::from_raw_parts([0; 16], memory.as_ptr().cast(), size_of_val(memory), layout(swizzle)) }
}

fn memory() -> Vec<f32> {
    (0..EXTENTS.iter().product::<usize>()).map(|i| i as f32 + 1.0).collect()
}

/// What a convolution multiplies: channel `channel` under tap `tap` of pixel `pixel` of the result.
fn expected(memory: &[f32], pixel: usize, tap: [usize; 2], channel: usize) -> f32 {
    let out = |i: usize| (EXTENTS[i + 1] + 2 * PADDING[i] - DILATION[i] * (TAPS[i] - 1) - 1) / STRIDE[i] + 1;
    let at = [pixel % out(0), pixel / out(0) % out(1)];
    let image = pixel / out(0) / out(1);
    let place = |i: usize| (at[i] * STRIDE[i] + tap[i] * DILATION[i]).checked_sub(PADDING[i]);
    match (place(0), place(1)) {
        (Some(x), Some(y)) if x < EXTENTS[1] && y < EXTENTS[2] && image < EXTENTS[3] && channel < EXTENTS[0] => {
            memory[((image * EXTENTS[2] + y) * EXTENTS[1] + x) * EXTENTS[0] + channel]
        }
        _ => 0.0,
    }
}

/// A base pixel, as coordinates, and a tap.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
struct At {
    channel: u32,
    column: u32,
    row: u32,
    image: u32,
    across: u32,
    down: u32,
}

/// Copies pixels to `out`, word by word as they lie in shared memory.
#[kernel(block = 64, dynamic_shared = 3072)]
fn loads(map: ImageMap<'_>, at: At, reads_early: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, CHANNELS * PIXELS);
        let full = Barrier::at(dynamic_shared(2560, 1), 0);
        let me = thread::thread_idx_x() as usize;
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        if me == 0 {
            full.arrive_expecting((4 * CHANNELS * PIXELS) as u32);
            let (from, tap) = ([at.channel, at.column, at.row, at.image], [at.across as u16, at.down as u16]);
            hopper::load_pixels(memory, 0, map, from, tap, full); // <load>
        }
        if reads_early == 1 {
            out.set_unchecked(me, memory.read(me)); // <early>
        }
        full.wait(0);
        let mut word = me;
        while word < CHANNELS * PIXELS {
            out.set_unchecked(word, memory.read(word));
            word += 64;
        }
    }
}

fn at(pixel: usize, tap: [usize; 2], channel: usize) -> At {
    let out = |i: usize| (EXTENTS[i + 1] + 2 * PADDING[i] - DILATION[i] * (TAPS[i] - 1) - 1) / STRIDE[i] + 1;
    let place = |at: usize, i: usize| (at * STRIDE[i]).wrapping_sub(PADDING[i]) as u32;
    At {
        channel: channel as u32,
        column: place(pixel % out(0), 0),
        row: place(pixel / out(0) % out(1), 1),
        image: (pixel / out(0) / out(1)) as u32,
        across: (tap[0] * DILATION[0]) as u32,
        down: (tap[1] * DILATION[1]) as u32,
    }
}

#[test]
fn pixels_are_those_that_a_convolution_multiplies() {
    let memory = memory();
    for swizzle in [TileSwizzle::None, TileSwizzle::Bytes128] {
        // Images of 6 × 3 base pixels: tiles in one image, over two, and behind the last one.
        for pixel in [0, 5, 17, 20, 40, 53] {
            for tap in [[0, 0], [1, 0], [0, 2], [1, 1]] {
                for channel in [0, 32] {
                    let mut out = vec![0.0; CHANNELS * PIXELS];
                    let view = GlobalSliceMut::new(&mut out);
                    let map = map(&memory, swizzle);
                    succeed(Checks::Full, loads { map, at: at(pixel, tap, channel), reads_early: 0, out: view }, 1);
                    for place in 0..CHANNELS * PIXELS {
                        let (number, of_pixel) = (place / CHANNELS, place % CHANNELS);
                        let value = expected(&memory, pixel + number, tap, channel + of_pixel);
                        let found = out[swizzle.apply(4 * place) / 4];
                        assert_eq!(
                            found, value,
                            "pixel {pixel} + {number}, tap {tap:?}, channel {channel} + {of_pixel}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn pixels_are_not_there_before_the_barrier_says_so() {
    let memory = memory();
    let mut out = vec![0.0; CHANNELS * PIXELS];
    let view = GlobalSliceMut::new(&mut out);
    let map = map(&memory, TileSwizzle::None);
    let fault = fault(Checks::Full, loads { map, at: at(0, [0, 0], 0), reads_early: 1, out: view }, 1);
    assert!(
        fault.to_string().contains("asked for it to be copied there here, and that has not been waited for"),
        "{fault}"
    );
    assert_eq!(fault.location.as_ref().unwrap().line, line("early"));
    assert!(fault.to_string().contains(&format!("pixels.rs:{}", line("load"))), "{fault}");
}

#[test]
fn channels_begin_at_whole_pieces() {
    let memory = memory();
    let mut out = vec![0.0; CHANNELS * PIXELS];
    let view = GlobalSliceMut::new(&mut out);
    let map = map(&memory, TileSwizzle::None);
    let fault = fault(Checks::Full, loads { map, at: at(0, [0, 0], 2), reads_early: 0, out: view }, 1);
    assert!(matches!(fault.kind, FaultKind::TileMisaligned { coordinate: 2, element_bytes: 4 }), "{fault}");
    assert_eq!(fault.location.as_ref().unwrap().line, line("load"));
}

#[test]
fn loads_begin_at_base_pixels_and_reach_no_further_than_tma() {
    let memory = memory();
    let mut out = vec![0.0; CHANNELS * PIXELS];
    let mut fault_of = |at: At| {
        let (map, view) = (map(&memory, TileSwizzle::None), GlobalSliceMut::new(&mut out));
        let fault = fault(Checks::Full, loads { map, at, reads_early: 0, out: view }, 1);
        assert_eq!(fault.location.as_ref().unwrap().line, line("load"));
        fault.kind
    };
    let first = at(0, [0, 0], 0);
    assert_eq!(fault_of(At { down: 256, ..first }), FaultKind::TapTooFar { tap: [0, 256] });
    // Columns from -1 to 4; rows from -2 in steps of 2, to 2.
    for (column, row) in [(-2, -2), (5, -2), (0, -1), (0, -4), (0, 4)] {
        let at = At { column: column as u32, row: row as u32, ..first };
        assert_eq!(fault_of(at), FaultKind::NotABasePixel { at: [column, row] });
    }
}
