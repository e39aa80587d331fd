//! Image maps: tensor maps that describe images to TMA, which loads from them what a convolution multiplies (its im2col mode).
//!
//! ```text
//!  image n           ◀─── extent 1 ───▶
//!             lower · · ·┌──────────────┐           base pixels: from the lower corner on in steps, row by row, to before the
//!                   · · ·│· · · · · ·   │           upper corner, which is counted from the image's end; then those of image n + 1
//!                        │    · · · · ✕ ✕ ✕ ✕ ✕     ✕: where a load begins, and how it goes on in the next row of base pixels
//!                    ✕ ✕ │✕ ✕ ✕ · · ·   │           Each pixel that is loaded is as far from its base as the tap is; outside of the
//!                        └──────────────┘           image it is zero.
//! ```
//!
//! One load brings the pixels that one tap of a filter meets for consecutive pixels of a result, in whichever rows and images those are: a
//! tile of the left operand of a convolution as a matrix product.

#[cfg(target_arch = "nvptx64")]
use crate::{KernelParam, Layout};
#[cfg(not(target_arch = "nvptx64"))]
use crate::{KernelParam, Layout, TileElement, TileSwizzle};

/// What an image map says of images, and of what is loaded. Of four dimensions: channels, columns, rows, images; numbers of two are those of
/// columns and of rows.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    /// The elements.
    pub element: TileElement,
    /// The extents, in elements.
    pub extents: [u64; 4],
    /// From one element to the next, in bytes.
    pub byte_strides: [u64; 4],
    /// Where base pixels begin, from the first pixel of an image.
    pub lower: [i32; 2],
    /// Where they end, from the end of an image.
    pub upper: [i32; 2],
    /// From one base pixel to the next.
    pub steps: [u32; 2],
    /// The channels of a pixel that are loaded.
    pub channels: u32,
    /// The pixels that are loaded.
    pub pixels: u32,
    /// How they lie in shared memory, one after the other.
    pub swizzle: TileSwizzle,
}

#[cfg(not(target_arch = "nvptx64"))]
impl ImageLayout {
    /// How many columns and how many rows a tap may be from its base at most, by the description of the instruction for four dimensions.
    pub const REACH: u32 = 255;

    /// The bytes that are loaded.
    pub const fn bytes(&self) -> usize {
        self.channels as usize * self.pixels as usize * self.element.bytes()
    }
}

/// A description of images in global memory, from which TMA loads the pixels under a tap of a filter (sm_90).
///
/// On the host it is what `cuTensorMapEncodeIm2col` makes, 128 bytes, together with the memory that it describes; otherwise as
/// [`TensorMap`](crate::TensorMap), by whose rules it is passed.
#[cfg(target_arch = "nvptx64")]
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ImageMap<'a> {
    address: *const u8,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

#[cfg(target_arch = "nvptx64")]
impl ImageMap<'_> {
    /// The address of the description.
    #[inline(always)]
    pub(crate) fn address(&self) -> *const u8 {
        self.address
    }
}

/// A description of images in global memory, from which TMA loads the pixels under a tap of a filter (sm_90).
///
/// On the host it is what `cuTensorMapEncodeIm2col` makes, 128 bytes, together with the memory that it describes; otherwise as
/// [`TensorMap`](crate::TensorMap), by whose rules it is passed.
#[cfg(not(target_arch = "nvptx64"))]
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct ImageMap<'a> {
    /// What the kernel receives. It comes first: the address of this struct is that of the argument.
    bytes: [u64; 16],
    pointer: *const u8,
    size: usize,
    layout: ImageLayout,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl ImageMap<'_> {
    /// An image map from the bytes that the driver has made of this layout, in the `size` bytes of device memory at `pointer`. The executor on
    /// the CPU has no use for the bytes.
    ///
    /// # Safety
    /// The bytes say that; channels that are loaded have a multiple of 16 bytes, or 128 if they are swizzled; steps are 1 at least; and the
    /// layout describes nothing outside of this memory, which for the lifetime of the result is valid for reads, and is not written to,
    /// wherever a kernel with this map runs.
    pub const unsafe fn from_raw_parts(bytes: [u64; 16], pointer: *const u8, size: usize, layout: ImageLayout) -> Self {
        Self { bytes, pointer, size, layout, lifetime: core::marker::PhantomData }
    }

    /// The layout.
    pub const fn layout(&self) -> &ImageLayout {
        &self.layout
    }

    /// The 128 bytes, as numbers of 8.
    pub const fn bytes(&self) -> [u64; 16] {
        self.bytes
    }

    /// The address of the memory.
    pub(crate) const fn pointer(&self) -> *const u8 {
        self.pointer
    }

    /// The bytes of this memory.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }
}

// SAFETY: on a GPU the address of a parameter, which is the same for all threads and to which nothing writes; on the host memory that is
// valid for reads from any thread: the promise of `from_raw_parts`.
unsafe impl Send for ImageMap<'_> {}
// SAFETY: as above.
unsafe impl Sync for ImageMap<'_> {}

// SAFETY: the kernel receives the 128 bytes at the address of the parameter, where the host's struct has them; the link step makes this the
// address of them. The memory that they describe is reported.
unsafe impl KernelParam for ImageMap<'_> {
    const LAYOUT: u64 = Layout::new("ImageMap").fingerprint();
    const IS_TENSOR_MAP: bool = true;

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        let (element_bytes, access) = (self.layout.element.bytes(), crate::ViewAccess::Read);
        visit(crate::View { name, address: self.pointer.addr(), bytes: self.size, element_bytes, access });
    }
}
