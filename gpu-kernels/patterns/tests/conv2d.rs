//! What a convolution in fp32 makes of numbers that three TF32 products cannot decompose: what fp32 makes of them.

use cuda_std::Grid;
use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::conv2d::{Convolution, conv2d_any_fp32_3xtf32};

/// The result of a row of three pixels with two channels, and one filter of three taps and padding, at each pixel.
fn convolved(x: [[f32; 2]; 3], w: [[f32; 2]; 3]) -> Vec<f32> {
    let conv = Convolution {
        batch: 1,
        height: 1,
        width: 3,
        channels: 2,
        filters: 1,
        taps_down: 1,
        taps_across: 3,
        stride_down: 1,
        stride_across: 1,
        padding_down: 0,
        padding_across: 1,
        dilation_down: 1,
        dilation_across: 1,
        groups: 1,
    };
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
