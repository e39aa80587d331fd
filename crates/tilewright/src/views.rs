//! Views of a device's memory: the same memory to read, or as numbers of another type.

use cuda_std::{Element, GlobalSlice, GlobalSliceMut};

/// Memory that is read when it has been written. A launch refuses to read and to write it at the same time.
pub(crate) fn read<T: Element>(written: GlobalSliceMut<'_, T>) -> GlobalSlice<'_, T> {
    // SAFETY: the same memory, for the same time.
    unsafe { GlobalSlice::from_raw_parts(written.as_mut_ptr(), written.len()) }
}

/// Memory of an even number of elements, aligned as an allocation is, for numbers of twice the size.
pub(crate) fn doubles(elements: GlobalSliceMut<'_, f32>) -> GlobalSliceMut<'_, u64> {
    assert!(
        elements.as_mut_ptr().addr().is_multiple_of(align_of::<u64>()),
        "allocations are aligned to more than that"
    );
    // SAFETY: the same memory, for the same time, or an element less; all bits are a number of either type, and it is aligned.
    unsafe { GlobalSliceMut::from_raw_parts(elements.as_mut_ptr().cast(), elements.len() / 2) }
}

/// Memory for numbers of another type of the same size.
pub(crate) fn words(elements: GlobalSliceMut<'_, f32>) -> GlobalSliceMut<'_, u32> {
    // SAFETY: the same memory, for the same time; all bits are a number of either type, and they have the same alignment.
    unsafe { GlobalSliceMut::from_raw_parts(elements.as_mut_ptr().cast(), elements.len()) }
}

/// The same of memory that is read.
pub(crate) fn read_words(elements: GlobalSlice<'_, f32>) -> GlobalSlice<'_, u32> {
    // SAFETY: as for `words`.
    unsafe { GlobalSlice::from_raw_parts(elements.as_ptr().cast(), elements.len()) }
}
