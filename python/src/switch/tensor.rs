//! What is read of torch's tensors.

use std::ops::Range;
use std::ptr;

use super::decision::Layout;
use super::layouts::{Handle, TensorPointer};
use super::symbols::{Owned, SUCCESS, Symbols};

/// A tensor of torch that somebody else holds.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    symbols: &'static Symbols,
    handle: Handle,
}

// SAFETY: torch's tensors can be read by any thread.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}

/// Where a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TorchDevice {
    /// As torch numbers types of devices.
    pub(super) kind: i32,
    pub(super) ordinal: i32,
}

impl Tensor {
    /// # Safety
    /// It is a tensor, which somebody holds as long as this or a copy of it is used.
    pub(super) unsafe fn new(symbols: &'static Symbols, handle: Handle) -> Self {
        Self { symbols, handle }
    }

    fn pointer(self) -> TensorPointer {
        // SAFETY: it is a tensor: the promise of `new`.
        unsafe { *self.handle }
    }

    /// Whether two are one tensor.
    pub(super) fn is(self, other: Self) -> bool {
        self.pointer() == other.pointer()
    }

    /// Whether the elements are of float32.
    pub(super) fn is_float32(self) -> bool {
        self.number(self.symbols.get_dtype) == Some(self.symbols.float32)
    }

    /// Whether extents have names.
    pub(super) fn has_names(self) -> bool {
        // SAFETY: it is a tensor: the promise of `new`.
        unsafe { self.symbols.has_names(self.pointer()) }
    }

    pub(super) fn device(self) -> Option<TorchDevice> {
        let kind = self.number(self.symbols.get_device_type)?;
        Some(TorchDevice { kind, ordinal: self.number(self.symbols.get_device_index)? })
    }

    fn number(self, function: unsafe extern "C" fn(Handle, *mut i32) -> i32) -> Option<i32> {
        let mut number = 0;
        // SAFETY: it is a tensor, and the number may be written to.
        (unsafe { function(self.handle, &mut number) } == SUCCESS).then_some(number)
    }

    /// The extents, without strides; none if there are more than three.
    pub(super) fn extents(self) -> Option<Layout> {
        let (mut rank, mut first) = (0, ptr::null());
        // SAFETY: it is a tensor, and both may be written to.
        let known = unsafe {
            (self.symbols.get_dim)(self.handle, &mut rank) == SUCCESS
                && (self.symbols.get_sizes)(self.handle, &mut first) == SUCCESS
        };
        let mut layout = Layout { rank: usize::try_from(rank).ok()?, ..Layout::default() };
        let extents = layout.sizes.get_mut(..layout.rank).filter(|_| known)?;
        for (place, extent) in extents.iter_mut().enumerate() {
            // SAFETY: a tensor has as many extents.
            *extent = unsafe { first.add(place).read() };
        }
        Some(layout)
    }

    /// Where the elements lie, if there are no more than three extents.
    pub(super) fn layout(self) -> Option<Layout> {
        let (mut layout, mut first) = (self.extents()?, ptr::null());
        // SAFETY: it is a tensor, and the pointer may be written to.
        if unsafe { (self.symbols.get_strides)(self.handle, &mut first) } != SUCCESS {
            return None;
        }
        for (place, stride) in layout.strides[..layout.rank].iter_mut().enumerate() {
            // SAFETY: a tensor has as many strides.
            *stride = unsafe { first.add(place).read() };
        }
        Some(layout)
    }

    /// The address of the first element, if it is one for float32; of memory that is only read.
    pub(super) fn address(self) -> Option<usize> {
        let mut address = ptr::null();
        // SAFETY: it is a tensor, and the pointer may be written to.
        let known = unsafe { (self.symbols.get_const_data)(self.handle, &mut address) } == SUCCESS;
        Some(address.addr()).filter(|address| known && is_of_float32(*address))
    }

    /// The same of memory that is written to: a copy that torch has put off is made.
    pub(super) fn address_to_write(self) -> Option<usize> {
        let mut address = ptr::null_mut();
        // SAFETY: it is a tensor, and the pointer may be written to.
        let known = unsafe { (self.symbols.get_data)(self.handle, &mut address) } == SUCCESS;
        Some(address.addr()).filter(|address| known && is_of_float32(*address))
    }

    /// Copies another tensor, which is broadcast, on torch's current stream. False if torch cannot.
    pub(super) fn copy_from(self, other: Self) -> bool {
        // SAFETY: both are tensors.
        unsafe { (self.symbols.copy)(self.handle, other.handle, 0) == SUCCESS }
    }
}

impl Owned {
    /// The tensor, to be used as long as this is there.
    pub(super) fn tensor(&self) -> Tensor {
        Tensor { symbols: self.symbols, handle: self.handle() }
    }
}

fn is_of_float32(address: usize) -> bool {
    address != 0 && address.is_multiple_of(align_of::<f32>())
}

/// The bytes from the first element to the last of a tensor that has some.
pub(super) fn bytes(address: usize, layout: &Layout) -> Range<usize> {
    address..address + layout.span() * size_of::<f32>()
}
