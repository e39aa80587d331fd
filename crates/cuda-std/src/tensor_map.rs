//! Tensor maps: the descriptions of matrices by which the GPU's copy engine (TMA) finds tiles of them.

use crate::KernelParam;

/// How the lines of a tile lie in shared memory, one after the other.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSwizzle {
    /// As they are.
    None,
    /// Lines of at most 128 bytes, whose pieces of 16 bytes are exchanged: the number of a piece in its line is xored with the
    /// line's number modulo 8.
    Bytes128,
}

/// A description of a matrix, or of a batch of them, in global memory, from which the copy engine loads tiles (sm_90).
///
/// On the host it is what `cuTensorMapEncodeTiled` makes, 128 bytes, together with the memory that it describes; a kernel
/// takes it by value. In the kernel it stands for the address of these bytes among the kernel's parameters, where the copy
/// engine reads them.
///
/// `#[kernel]` recognizes a parameter of this type by its name; it cannot be inside another struct.
#[cfg(target_arch = "nvptx64")]
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct TensorMap<'a> {
    address: *const u8,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

#[cfg(target_arch = "nvptx64")]
impl TensorMap<'_> {
    /// The address of the description.
    #[inline(always)]
    pub(crate) fn address(&self) -> *const u8 {
        self.address
    }
}

// SAFETY: the address of a parameter is the same for all threads, and nothing writes there.
#[cfg(target_arch = "nvptx64")]
unsafe impl Send for TensorMap<'_> {}
// SAFETY: as above.
#[cfg(target_arch = "nvptx64")]
unsafe impl Sync for TensorMap<'_> {}

// SAFETY: the link step makes the parameter the 128 bytes that the host passes, and this the address of them.
#[cfg(target_arch = "nvptx64")]
unsafe impl KernelParam for TensorMap<'_> {}

/// A description of a matrix, or of a batch of them, in global memory, from which the copy engine loads tiles (sm_90).
///
/// On the host it is what `cuTensorMapEncodeTiled` makes, 128 bytes, together with the memory that it describes; a kernel
/// takes it by value. In the kernel it stands for the address of these bytes among the kernel's parameters, where the copy
/// engine reads them.
///
/// `#[kernel]` recognizes a parameter of this type by its name; it cannot be inside another struct.
#[cfg(not(target_arch = "nvptx64"))]
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap<'a> {
    /// What the kernel receives. It comes first: the address of this struct is that of the argument.
    bytes: [u64; 16],
    address: usize,
    size: usize,
    element_bytes: u32,
    extents: [u64; 3],
    tile: [u32; 3],
    swizzle: TileSwizzle,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl TensorMap<'_> {
    /// A tensor map from the bytes that the driver has made of a description of the `size` bytes of device memory at
    /// `address`: of an array with these extents, in elements of so many bytes, the fastest-running first, from which tiles of
    /// `tile` elements are loaded, with this swizzle and zeros outside of the array.
    ///
    /// # Safety
    /// The bytes say that, and describe nothing outside of this memory, which for the lifetime of the result is valid for
    /// reads, and is not written to, wherever a kernel with this map runs.
    pub const unsafe fn from_raw_parts(
        bytes: [u64; 16],
        address: usize,
        size: usize,
        element_bytes: u32,
        extents: [u64; 3],
        tile: [u32; 3],
        swizzle: TileSwizzle,
    ) -> Self {
        Self { bytes, address, size, element_bytes, extents, tile, swizzle, lifetime: core::marker::PhantomData }
    }

    /// The extents of the array, in elements, the fastest-running first.
    pub const fn extents(&self) -> [u64; 3] {
        self.extents
    }

    /// The extents of the tiles that are loaded, in elements, the fastest-running first.
    pub const fn tile(&self) -> [u32; 3] {
        self.tile
    }

    /// How the tiles lie in shared memory.
    pub const fn swizzle(&self) -> TileSwizzle {
        self.swizzle
    }

    /// The bytes of a line of the tiles that are loaded.
    pub const fn line_bytes(&self) -> u64 {
        self.tile[0] as u64 * self.element_bytes as u64
    }

    /// The 128 bytes, as numbers of 8.
    pub const fn bytes(&self) -> [u64; 16] {
        self.bytes
    }
}

// SAFETY: the kernel receives the 128 bytes at the address of the parameter, where this struct has them, and the memory
// that they describe is reported.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl KernelParam for TensorMap<'_> {
    fn visit_views(&self, name: &str, visit: &mut dyn FnMut(crate::View<'_>)) {
        visit(crate::View { name, address: self.address, bytes: self.size, access: crate::ViewAccess::Read });
    }
}

/// A description of a matrix, or of a batch of them, in global memory, to which the copy engine stores tiles (sm_90). Otherwise as
/// [`TensorMap`], by whose rules it is passed.
///
/// It is another way to memory of which the kernel has a view before it among its parameters, as a kernel needs for what the
/// copy engine does not store. Both are of the same launch, so that nothing else can be of this memory.
#[repr(transparent)]
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(Debug))]
pub struct TensorMapMut<'a>(TensorMap<'a>);

#[cfg(target_arch = "nvptx64")]
impl TensorMapMut<'_> {
    /// The address of the description.
    #[inline(always)]
    pub(crate) fn address(&self) -> *const u8 {
        self.0.address
    }
}

// SAFETY: as for `TensorMap`, which it consists of.
#[cfg(target_arch = "nvptx64")]
unsafe impl KernelParam for TensorMapMut<'_> {}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> TensorMapMut<'a> {
    /// The tensor map of memory that is written.
    ///
    /// # Safety
    /// Unlike that of a [`TensorMap`], the memory may be written to as well, in the order of the launches, and nobody but these
    /// accesses it.
    pub const unsafe fn new(map: TensorMap<'a>) -> Self {
        Self(map)
    }

    /// The address of the first byte of the memory.
    pub const fn address(&self) -> usize {
        self.0.address
    }

    /// The extents of the array, in elements, the fastest-running first.
    pub const fn extents(&self) -> [u64; 3] {
        self.0.extents()
    }

    /// The extents of the tiles that are stored, in elements, the fastest-running first.
    pub const fn tile(&self) -> [u32; 3] {
        self.0.tile()
    }

    /// How the tiles lie in shared memory.
    pub const fn swizzle(&self) -> TileSwizzle {
        self.0.swizzle()
    }
}

// SAFETY: as for `TensorMap`.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl KernelParam for TensorMapMut<'_> {
    fn visit_views(&self, name: &str, visit: &mut dyn FnMut(crate::View<'_>)) {
        let TensorMap { address, size, .. } = self.0;
        visit(crate::View { name, address, bytes: size, access: crate::ViewAccess::StoreWithin });
    }
}
