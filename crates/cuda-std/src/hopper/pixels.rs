//! Loads of pixels by TMA, for convolutions.

use super::Barrier;
use crate::{ImageMap, SharedSlice};

/// Issues a TMA load of the pixels that a tap of a filter meets, for as many base pixels of an [image map](ImageMap) as it says, to the address
/// of element `index` of `target`, and tells `barrier` of the bytes (`cp.async.bulk.tensor.4d.im2col`, sm_90).
///
/// `at` is the first channel, and the column, the row and the image of the first base pixel, which may lie before the image (as `u32`); `tap`
/// says how many columns and rows from its base each pixel is. Pixels and channels that are not there are zeros. The first channel is a multiple of 16 bytes.
///
/// ```
/// # use tilewright_cuda_std::{examples::{Images, run_over}, hopper::*, prelude::*};
/// // An image of 4 × 4 pixels of 8 numbers, of which TMA loads 16 pixels at a time. Base pixels begin one before the image, and the last
/// // one is two before its end: those of a filter of 3 × 3 with a padding of one.
/// let mut x = Vec::from_iter((0..128).map(|i| i as f32));
/// let values = run_over(1, &mut x, |Images { map, .. }: Images<'_>| {
///     // SAFETY: there is one thread, which waits for the pixels before it reads them.
///     unsafe {
///         let (pixels, loaded) = (dynamic_shared::<f32>(0, 128), Barrier::at(dynamic_shared(512, 1), 0));
///         loaded.init(1);
///         fence_barrier_init();
///         loaded.arrive_expecting(512);
///         load_pixels(pixels, 0, map, [0, -1i32 as u32, -1i32 as u32, 0], [1, 2], loaded);
///         loaded.wait(0);
///         [pixels.read(0), pixels.read(8), pixels.read(32), pixels.read(120)]
///     }
/// });
/// assert_eq!(values, [[32.0, 40.0, 64.0, 0.0]], "row 1 and column 0, a column and a row further, and below the image");
/// ```
///
/// # Safety
/// As for [`load_tile`](super::load_tile): one thread calls this, and the target is as large as these pixels, aligned as their swizzle needs,
/// and nothing accesses it until the phase of the barrier that counts these bytes is over. `at` is a base pixel, and the numbers of `tap` are
/// below 256.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn load_pixels(
    target: SharedSlice<f32>,
    index: usize,
    map: ImageMap<'_>,
    at: [u32; 4],
    tap: [u16; 2],
    barrier: Barrier,
) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \
             [{target}], [{map}, {{{channel}, {column}, {row}, {image}}}], [{barrier}], {{{across}, {down}}};",
            target = in(reg32) target.shared_address(index), map = in(reg64) map.address(),
            channel = in(reg32) at[0], column = in(reg32) at[1], row = in(reg32) at[2], image = in(reg32) at[3],
            across = in(reg16) tap[0], down = in(reg16) tap[1], barrier = in(reg32) barrier.address,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::load_pixels(target.place(), index, map, (at, tap), barrier.place);
}
