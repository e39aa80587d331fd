//! The workspace of a plan, device memory besides the operands: copied or packed operands, and the partial results of split-K.
//!
//! ```text
//! │ for A                                                             │ for B │ partials     │ tile mask │ each part aligned to 256 bytes;
//! │ words │ found │ factors │ flags │ nonzero │ exceptions │ copy │ …                                   none of them has to be there
//! ```

use std::ops::Range;

use cuda_std::GlobalSliceMut;

use crate::{Buffer, Bytes, Device, Error};

/// The elements at whose multiples the parts of a workspace begin: 256 bytes.
const ALIGNMENT: usize = 64;

/// Memory for whatever a plan needs besides the operands. It is allocated once, and any plan that needs no more can use it,
/// one after the other.
#[derive(Debug)]
pub struct Workspace {
    buffer: Option<Buffer<f32>>,
    /// The elements of the buffer that plans use.
    range: Range<usize>,
}

impl Workspace {
    /// No memory at all: enough for plans that need none.
    pub fn none() -> Self {
        Self { buffer: None, range: 0..0 }
    }

    /// Allocates at least this many bytes.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) or [`DeviceError::NotEnoughMemory`](runtime::Error::NotEnoughMemory) where the device has too little free memory.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, Error> {
        match bytes.div_ceil(size_of::<f32>()) {
            0 => Ok(Self::none()),
            elements => Ok(Self { buffer: Some(device.allocate(elements)?), range: 0..elements }),
        }
    }

    /// Uses these elements of a buffer, and leaves the others as they are.
    ///
    /// # Panics
    /// If they are not in the buffer, or do not begin at a multiple of 64.
    pub fn within(buffer: Buffer<f32>, range: Range<usize>) -> Self {
        let len = buffer.len();
        assert!(range.start <= range.end && range.end <= len, "elements {range:?} of a buffer of {len}");
        assert!(range.start.is_multiple_of(ALIGNMENT), "a workspace from element {} on is not aligned", range.start);
        Self { buffer: Some(buffer), range }
    }

    /// The same buffer, to be used for something else.
    pub(crate) fn into_buffer(self) -> Option<Buffer<f32>> {
        self.buffer
    }

    /// The whole buffer, if there is one.
    pub fn buffer(&self) -> Option<&Buffer<f32>> {
        self.buffer.as_ref()
    }

    /// The same, to write it.
    pub fn buffer_mut(&mut self) -> Option<&mut Buffer<f32>> {
        self.buffer.as_mut()
    }

    /// The size.
    pub fn bytes(&self) -> usize {
        self.range.len() * size_of::<f32>()
    }

    /// Makes every byte of the whole buffer `0xFF`, so that what is read before it has been written comes out as NaN.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) if an earlier kernel has failed.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.buffer.as_mut().map_or(Ok(()), |buffer| Ok(buffer.fill_bytes(0xFF)?))
    }

    /// These parts, which come one after the other.
    ///
    /// # Errors
    /// [`Error::WorkspaceTooSmall`].
    ///
    /// # Panics
    /// If a part begins before the one before it has ended.
    pub(crate) fn parts<const N: usize>(
        &mut self,
        ranges: [Range<usize>; N],
    ) -> Result<[GlobalSliceMut<'_, f32>; N], Error> {
        let first = self.buffer.as_mut().map_or(std::ptr::null_mut(), |buffer| buffer.view_mut().as_mut_ptr());
        let first = first.wrapping_add(self.range.start);
        // SAFETY: the elements of the range, which the result borrows mutably with the buffer.
        unsafe { parts(first, self.range.len(), ranges) }
    }
}

/// Parts of a buffer, which come one after the other.
///
/// # Errors
/// [`Error::WorkspaceTooSmall`].
///
/// # Panics
/// As [`Workspace::parts`].
pub(crate) fn parts_of<const N: usize>(
    buffer: &mut Buffer<f32>,
    ranges: [Range<usize>; N],
) -> Result<[GlobalSliceMut<'_, f32>; N], Error> {
    let len = buffer.len();
    // SAFETY: the elements of the buffer, which the result borrows mutably.
    unsafe { parts(buffer.view_mut().as_mut_ptr(), len, ranges) }
}

/// # Safety
/// There are `len` elements from `first` on, which nothing else accesses during the lifetime.
unsafe fn parts<'a, const N: usize>(
    first: *mut f32,
    len: usize,
    ranges: [Range<usize>; N],
) -> Result<[GlobalSliceMut<'a, f32>; N], Error> {
    let needs = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.end).max().unwrap_or(0);
    check_room(needs, len)?;
    let mut end = 0;
    Ok(ranges.map(|range| {
        if range.is_empty() {
            return GlobalSliceMut::new(&mut []);
        }
        assert!(end <= range.start, "parts of a workspace do not overlap");
        end = range.end;
        // SAFETY: a part of the elements, by the caller's promise; the parts do not overlap.
        unsafe { GlobalSliceMut::from_raw_parts(first.wrapping_add(range.start), range.len()) }
    }))
}

/// Refuses memory of fewer elements than are needed.
///
/// # Errors
/// [`Error::WorkspaceTooSmall`].
pub(crate) fn check_room(needs: usize, has: usize) -> Result<(), Error> {
    let bytes = |elements: usize| Bytes(elements as u128 * size_of::<f32>() as u128);
    if needs > has { Err(Error::WorkspaceTooSmall { needs: bytes(needs), has: bytes(has) }) } else { Ok(()) }
}

/// Gives out parts of a workspace that has yet to be allocated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    elements: u128,
}

impl Layout {
    /// A part of `elements`, aligned; none if the end is beyond what can be addressed.
    pub(crate) fn part(&mut self, elements: u128) -> Option<Range<usize>> {
        if elements == 0 {
            return Some(0..0);
        }
        let start = self.elements.next_multiple_of(ALIGNMENT as u128);
        let end = start.checked_add(elements).filter(|&end| end <= (isize::MAX as usize / size_of::<f32>()) as u128)?;
        self.elements = end;
        Some(start as usize..end as usize)
    }

    /// The bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.elements as usize * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;

    #[test]
    fn parts_are_aligned_and_do_not_overlap() {
        let mut layout = Layout::default();
        assert_eq!(layout.part(0), Some(0..0));
        assert_eq!(layout.part(5), Some(0..5));
        assert_eq!(layout.part(100), Some(64..164));
        assert_eq!(layout.bytes(), 4 * 164);
        assert_eq!(layout.part(u128::from(u64::MAX)), None);
        assert_eq!(layout.part(u128::MAX), None);
        assert_eq!(layout.bytes(), 4 * 164);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let device = Device::cpu(Checks::Bounds);
        let mut workspace = Workspace::new(&device, 9).unwrap();
        assert_eq!((workspace.bytes(), Workspace::none().bytes()), (12, 0));
        let [one, none, other] = workspace.parts([0..1, 0..0, 1..3]).unwrap();
        assert_eq!((one.len(), none.len(), other.len()), (1, 0, 2));
        let message = workspace.parts([0..4, 4..4]).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("16 bytes") && message.contains("12 bytes"), "{message}");
        assert!(matches!(Workspace::none().parts([0..1, 1..1]), Err(Error::WorkspaceTooSmall { .. })));
        assert!(Workspace::none().parts([0..0, 0..0]).is_ok());
    }
}
