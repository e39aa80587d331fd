//! Tensor maps (`CUtensorMap`): each describes a matrix, or a batch of them, in global memory to TMA, the GPU's Tensor Memory
//! Accelerator. Kernels receive them by value.

use crate::{KernelParam, Layout};

/// How the lines of a tile lie in shared memory, one after the other without gaps.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSwizzle {
    /// As they are.
    None,
    /// In every 128 bytes, which are a line, the pieces of 16 bytes are exchanged: the number of a piece in them is xored with
    /// the number of these 128 bytes modulo 8.
    Bytes128,
}

#[cfg(not(target_arch = "nvptx64"))]
impl TileSwizzle {
    /// Where a byte of a tile is, of which `byte` others come before it. Both are counted from the beginning of the tile.
    pub const fn apply(self, byte: usize) -> usize {
        match self {
            Self::None => byte,
            Self::Bytes128 => byte ^ (byte >> 7 & 7) << 4,
        }
    }

    /// What the address of a tile is a multiple of, in bytes.
    pub const fn alignment(self) -> usize {
        match self {
            Self::None => 128,
            Self::Bytes128 => 1024,
        }
    }
}

/// The elements of a tile.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileElement {
    /// Of 2 bytes, copied as they are.
    Bytes2,
    /// Of 4 bytes, copied as they are.
    Bytes4,
    /// fp32 numbers, rounded to TF32 on their way to shared memory: to nearest, ties to even.
    Tf32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl TileElement {
    /// The size.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes2 => 2,
            Self::Bytes4 | Self::Tf32 => 4,
        }
    }

    /// Whether numbers are rounded to TF32.
    pub const fn is_rounded(self) -> bool {
        matches!(self, Self::Tf32)
    }
}

/// What a tensor map says of an array and its tiles. Of three dimensions each, the fastest-running first.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLayout {
    /// The elements.
    pub element: TileElement,
    /// The extents of the array, in elements.
    pub extents: [u64; 3],
    /// From one element to the next, in bytes.
    pub byte_strides: [u64; 3],
    /// The extents of a tile, in elements.
    pub tile: [u32; 3],
    /// How a tile lies in shared memory.
    pub swizzle: TileSwizzle,
}

#[cfg(not(target_arch = "nvptx64"))]
impl TileLayout {
    /// The bytes of a tile.
    pub const fn bytes(&self) -> usize {
        let [length, lines, matrices] = self.tile;
        length as usize * lines as usize * matrices as usize * self.element.bytes()
    }
}

/// A description of a matrix, or of a batch of them, in global memory, from which TMA loads tiles (sm_90).
///
/// On the host it is what `cuTensorMapEncodeTiled` makes, 128 bytes, together with the memory that it describes; a kernel
/// takes it by value. In the kernel it stands for the address of these bytes among the kernel's parameters, where
/// TMA reads them.
///
/// It is a parameter of the kernel itself: it cannot be inside another struct.
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
unsafe impl KernelParam for TensorMap<'_> {
    const LAYOUT: u64 = Layout::new("TensorMap").fingerprint();
    const IS_TENSOR_MAP: bool = true;
}

/// A description of a matrix, or of a batch of them, in global memory, from which TMA loads tiles (sm_90).
///
/// On the host it is what `cuTensorMapEncodeTiled` makes, 128 bytes, together with the memory that it describes; a kernel
/// takes it by value. In the kernel it stands for the address of these bytes among the kernel's parameters, where
/// TMA reads them.
///
/// It is a parameter of the kernel itself: it cannot be inside another struct.
#[cfg(not(target_arch = "nvptx64"))]
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap<'a> {
    /// What the kernel receives. It comes first: the address of this struct is that of the argument.
    bytes: [u64; 16],
    pointer: *const u8,
    size: usize,
    layout: TileLayout,
    /// The elements of a line that come before those of the memory.
    before: u32,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl TensorMap<'_> {
    /// A tensor map from the bytes that the driver has made of this layout, in the `size` bytes of device memory at `pointer`, with
    /// zeros for what a tile has outside of the array. The executor on the CPU has no use for the bytes.
    ///
    /// # Safety
    /// The bytes say that, the lines of swizzled tiles have 128 bytes, and the layout describes nothing outside of this memory, which for the lifetime of the result is valid for
    /// reads, and is not written to, wherever a kernel with this map runs.
    pub const unsafe fn from_raw_parts(bytes: [u64; 16], pointer: *const u8, size: usize, layout: TileLayout) -> Self {
        Self { bytes, pointer, size, layout, before: 0, lifetime: core::marker::PhantomData }
    }

    /// The same, of which the array begins `before` elements before the memory, and every line as many before what it has there. A GPU loads what is
    /// there, whatever that is, and nobody may make use of it: on the executor all its bits are set, a NaN.
    ///
    /// # Safety
    /// As for [`TensorMap::from_raw_parts`], but that the bytes and the layout describe these elements, too. A GPU can read them.
    #[must_use]
    pub const unsafe fn with_elements_before(self, before: u32) -> Self {
        Self { before, ..self }
    }

    /// The elements of a line that come before those of the memory.
    pub const fn elements_before(&self) -> u32 {
        self.before
    }

    /// The layout.
    pub const fn layout(&self) -> &TileLayout {
        &self.layout
    }

    /// The address of the memory.
    pub(crate) const fn pointer(&self) -> *const u8 {
        self.pointer
    }

    /// The bytes of this memory.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// The bytes of a line of the tiles that are loaded.
    pub const fn line_bytes(&self) -> u64 {
        self.layout.tile[0] as u64 * self.layout.element.bytes() as u64
    }

    /// The 128 bytes, as numbers of 8.
    pub const fn bytes(&self) -> [u64; 16] {
        self.bytes
    }
}

// SAFETY: the memory is valid for reads from any thread: the promise of `from_raw_parts`.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl Send for TensorMap<'_> {}
// SAFETY: as above.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl Sync for TensorMap<'_> {}

// SAFETY: the kernel receives the 128 bytes at the address of the parameter, where this struct has them, and the memory
// that they describe is reported.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl KernelParam for TensorMap<'_> {
    const LAYOUT: u64 = Layout::new("TensorMap").fingerprint();
    const IS_TENSOR_MAP: bool = true;

    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.visit_as(crate::ViewAccess::Read, name, visit);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl TensorMap<'_> {
    /// [`KernelParam::visit_views`] of the memory, with what a kernel may do to it.
    fn visit_as(&self, access: crate::ViewAccess, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        let element_bytes = self.layout().element.bytes();
        visit(crate::View { name, address: self.pointer.addr(), bytes: self.size, element_bytes, access });
    }
}

/// A description of a matrix, or of a batch of them, in global memory, to which TMA stores tiles (sm_90). Otherwise as
/// [`TensorMap`], by whose rules it is passed.
///
/// It is another way to memory of which the kernel has a view before it among its parameters, as a kernel needs for what
/// TMA does not store. Both are of the same launch, so that nothing else can be of this memory.
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
unsafe impl KernelParam for TensorMapMut<'_> {
    const LAYOUT: u64 = Layout::new("TensorMapMut").fingerprint();
    const IS_TENSOR_MAP: bool = true;
}

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
    pub fn address(&self) -> usize {
        self.0.pointer.addr()
    }

    /// The layout.
    pub const fn layout(&self) -> &TileLayout {
        self.0.layout()
    }

    /// The map, for the executor.
    pub(crate) const fn map(&self) -> TensorMap<'a> {
        self.0
    }
}

// SAFETY: as for `TensorMap`.
#[cfg(not(target_arch = "nvptx64"))]
unsafe impl KernelParam for TensorMapMut<'_> {
    const LAYOUT: u64 = Layout::new("TensorMapMut").fingerprint();
    const IS_TENSOR_MAP: bool = true;

    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.0.visit_as(crate::ViewAccess::StoreWithin, name, visit);
    }
}
