//! What a convolution in fp32 makes of numbers that three TF32 products cannot decompose: what fp32 makes of them. And what groups make of
//! each other's infinities: nothing.

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::Grid;
use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::conv2d::{
    Convolution, conv2d_128x64_wgmma_bf16, conv2d_256x2x32_wgmma_bf16, conv2d_256x4x16_wgmma_bf16,
    conv2d_any_fp32_3xtf32,
};
use runtime::{ConvolvedImages, Device, PixelTile, TensorLayout, TensorTile};

/// The result of a row of three pixels with two channels, and one filter of three taps and padding, at each pixel.
fn convolved(x: [[f32; 2]; 3], w: [[f32; 2]; 3]) -> Vec<f32> {
    let conv = Convolution { taps_across: 3, padding_across: 1, ..Convolution::of_row(3, [2, 1], 1) };
    let mut y = vec![0.0; 3];
    let kernel = conv2d_any_fp32_3xtf32 {
        conv,
        x: GlobalSlice::new(x.as_flattened()),
        w: GlobalSlice::new(w.as_flattened()),
        y: GlobalSliceMut::new(&mut y),
    };
    let grid = kernel.grid();
    // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
    unsafe { Executor::new(Checks::Full).launch(kernel, grid) }.unwrap();
    y
}

#[test]
fn infinities_nan_and_large_numbers_do_what_they_do_in_fp32() {
    let (infinity, large) = (f32::INFINITY, (1u128 << 120) as f32);
    let one = [[1.0, 2.0]; 3];
    // Only the pixels whose taps meet it.
    let y = convolved([[infinity, 0.0], [1.0, 1.0], [1.0, 1.0]], one);
    assert_eq!((y[0], y[1], y[2]), (infinity, infinity, 6.0));
    let y = convolved([[infinity, 0.0], [0.0, 0.0], [-infinity, 0.0]], one);
    assert!(y[0] == infinity && y[1].is_nan() && y[2] == -infinity, "{y:?}");
    let y = convolved([[f32::NAN, 0.0], [1.0, 1.0], [1.0, 1.0]], one);
    assert!(y[0].is_nan() && y[1].is_nan() && y[2] == 6.0, "{y:?}");
    // Their parts are not finite: 8193 · 2¹²⁰ is too large.
    assert_eq!(
        convolved([[large, 0.0], [large, 1.0], [0.0, 0.0]], [[0.0; 2], [0.5, 0.0], [0.0; 2]]),
        [large / 2.0, large / 2.0, 0.0]
    );
    assert_eq!(convolved([[large, 0.0]; 3], [[large, 0.0]; 3]), [infinity; 3]);
    // The smallest ones are kept, too.
    let tiny = f32::from_bits(1 << 13);
    assert_eq!(convolved([[tiny, 0.0]; 3], [[0.0; 2], [2.0, 0.0], [0.0; 2]]), [2.0 * tiny; 3]);
}

/// A convolution of 1×1 in groups by Hopper's kernel of a tile, of ones, but for one group's channels, which are infinite: the filters' results of
/// each pixel.
fn of_groups(groups: u32, channels: u32, filters: u32, infinite: u32, [pixels, lines]: [u32; 2]) -> Vec<f32> {
    const WIDTH: u32 = 5;
    let conv = Convolution::of_row(WIDTH, [channels, filters], groups);
    let (all_channels, all_filters) = (groups * channels, groups * filters);
    let of_pixel = |channel: u32| if channel / channels == infinite { f32::INFINITY } else { 1.0 };
    let x = Vec::from_iter((0..WIDTH * all_channels).map(|i| Bf16::from_f32(of_pixel(i % all_channels))));
    let w = vec![Bf16::from_f32(1.0); (all_filters * channels) as usize];

    let device = Device::cpu(Checks::Full);
    let (x, w) = (device.upload(&x).unwrap(), device.upload(&w).unwrap());
    let mut y = device.allocate::<Bf16>((WIDTH * all_filters) as usize).unwrap();
    let images = ConvolvedImages {
        channels: all_channels.into(),
        extents: [WIDTH.into(), 1],
        images: 1,
        taps: [1; 2],
        dilation: [1; 2],
        padding: [0; 2],
        stride: [1; 2],
    };
    let (element, swizzle) = (TensorElement::Bf16, TensorSwizzle::Bytes128);
    let x = device.image_map(x.view(), &images, &PixelTile { element, channels: 64, pixels, swizzle }).unwrap();
    let layout = TensorLayout {
        length: channels.into(),
        lines: all_filters.into(),
        line_stride: channels.into(),
        matrices: 1,
        matrix_stride: channels.into(),
    };
    let w = device.tensor_map(w.view(), &layout, &TensorTile { element, length: 64, lines, swizzle }).unwrap();
    let (y_view, workers) = (y.view_mut(), 1);
    match [pixels, groups] {
        [128, _] => device.launch(conv2d_128x64_wgmma_bf16 { x, w, conv, workers, pixels, y: y_view }),
        [_, 2] => device.launch(conv2d_256x2x32_wgmma_bf16 { x, w, conv, workers, pixels, y: y_view }),
        _ => device.launch(conv2d_256x4x16_wgmma_bf16 { x, w, conv, workers, pixels, y: y_view }),
    }
    .unwrap();
    let mut results = vec![Bf16::from_f32(0.0); y.len()];
    y.copy_to(&mut results).unwrap();
    results.into_iter().map(Bf16::to_f32).collect()
}

#[test]
fn infinities_stay_in_their_group() {
    for (groups, channels, filters, tile) in
        [(2, 48, 8, [128, 8]), (2, 32, 32, [256, 64]), (2, 16, 32, [256, 64]), (4, 16, 16, [256, 64])]
    {
        for infinite in 0..groups {
            for (i, y) in of_groups(groups, channels, filters, infinite, tile).into_iter().enumerate() {
                let group = i as u32 % (groups * filters) / filters;
                let expected = if group == infinite { f32::INFINITY } else { channels as f32 };
                assert_eq!(y, expected, "{groups} groups of {channels} channels, {infinite} is infinite, element {i}");
            }
        }
    }
}
