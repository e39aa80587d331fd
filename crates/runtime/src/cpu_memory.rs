//! Arrays in this processor's memory, which the CPU executor's kernels use in place of a GPU's.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};
use cuda_std::executor::{Executor, UnwrittenMemory};

use crate::Error;

/// An array in this processor's memory: its own, aligned as GPU memory is, so that what a kernel may assume there holds here; or one that
/// is [lent](CpuMemory::lent).
///
/// Everything that accesses it, kernels' views too, does so by this one pointer. There is no reference to its elements, which would end
/// the right of others to use theirs.
pub(crate) struct CpuMemory<T> {
    first: NonNull<T>,
    pub(crate) len: usize,
    pub(crate) capacity: usize,
    /// What it has to give back, a box, if it is not lent.
    lines: Option<NonNull<[Line]>>,
    /// Which elements somebody has written, as long as that is of interest: known to all that are lent these elements.
    written: Arc<Mutex<Option<UnwrittenMemory>>>,
}

// SAFETY: it owns its elements as a `Vec<T>` does; whoever lent them has promised that nobody else uses them otherwise than in order.
unsafe impl<T: Send> Send for CpuMemory<T> {}
// SAFETY: as for `Vec<T>`: by `&self` elements are written only where the caller of an `unsafe` function sees to the order.
unsafe impl<T: Sync> Sync for CpuMemory<T> {}

/// From this size on, in bytes, an allocation is compared with what is free: to find out takes longer than to allocate little.
const WORTH_ASKING: usize = 64 << 20;

/// CUDA aligns every allocation to at least 256 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Line([u8; 256]);

// SAFETY: bytes, of which all patterns including zero are values.
unsafe impl Zeroable for Line {}

impl<T: Pod> CpuMemory<T> {
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        Self::zeroed_within(len, crate::host_memory::available_host_memory)
    }

    /// `available` tells how many bytes are free, if that is known.
    fn zeroed_within(len: usize, available: impl Fn() -> Option<u128>) -> Result<Self, Error> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize - size_of::<Line>())
            .ok_or(cuda_driver::Error::SizeOverflow { len, element_bytes: size_of::<T>() })?;
        let count = bytes.div_ceil(size_of::<Line>());
        let too_much = |has: Option<u128>| Error::NotEnoughMemory {
            place: "on the host".to_owned(),
            needs: crate::Bytes(bytes as u128),
            has: crate::Bytes(has.unwrap_or(0)),
        };
        // The system may promise more than there is, and end the program when it writes to it.
        if bytes >= WORTH_ASKING
            && let has @ Some(free) = available()
            && bytes as u128 > free
        {
            return Err(too_much(has));
        }
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| too_much(available()))?;
        lines.resize(count, Line::zeroed());
        let lines = NonNull::from(Box::leak(lines.into_boxed_slice()));
        Ok(Self { first: lines.cast(), len, capacity: len, lines: Some(lines), written: Arc::default() })
    }

    /// `len` elements that are somebody else's.
    ///
    /// # Safety
    /// They are initialized, and stay valid while there is this, or a view of it; until then nobody else uses them otherwise than in
    /// order.
    pub(crate) unsafe fn lent(address: usize, len: usize) -> Self {
        let first = NonNull::new(ptr::with_exposed_provenance_mut(address)).filter(|_| len > 0);
        Self { first: first.unwrap_or(NonNull::dangling()), len, capacity: len, lines: None, written: Arc::default() }
    }

    /// The same elements, lent.
    ///
    /// # Safety
    /// As for [`CpuMemory::lent`].
    pub(crate) unsafe fn alias(&self) -> Self {
        Self { first: self.first, len: self.len, capacity: self.len, lines: None, written: self.written.clone() }
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lines.is_none()
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Has an executor with all checks take all elements for unwritten.
    #[track_caller]
    pub(crate) fn take_as_unwritten(&mut self, executor: &Executor) {
        let unwritten = executor.without_values(self.first.addr().get(), self.len * size_of::<T>());
        *self.written() = unwritten;
    }

    /// Notes that the host has written elements.
    pub(crate) fn note_write(&self, elements: Range<usize>) {
        if let Some(written) = &*self.written() {
            written.note_write::<T>(elements);
        }
    }

    /// Refuses elements that nobody has written.
    pub(crate) fn check_read(&self, elements: Range<usize>) -> Result<(), Error> {
        match &*self.written() {
            Some(written) => Ok(written.check_read::<T>(elements)?),
            None => Ok(()),
        }
    }

    /// Writes all elements.
    ///
    /// # Safety
    /// Nobody else accesses them meanwhile.
    ///
    /// # Panics
    /// If there are not as many in `source`.
    pub(crate) unsafe fn write(&self, source: &[T]) {
        assert_eq!(source.len(), self.len);
        // SAFETY: both have this many elements. `source` may be of the memory if that is lent.
        unsafe { ptr::copy(source.as_ptr(), self.as_ptr(), self.len) };
        self.note_write(0..self.len);
    }

    /// Reads all elements.
    ///
    /// # Safety
    /// Nobody writes to them meanwhile.
    ///
    /// # Panics
    /// If there are not as many in `target`.
    pub(crate) unsafe fn read(&self, target: &mut [T]) {
        assert_eq!(target.len(), self.len);
        // SAFETY: both have this many elements, which are initialized.
        unsafe { ptr::copy(self.as_ptr(), target.as_mut_ptr(), self.len) };
    }

    /// Copies all elements of another array of the same length. They count as written, whether those of the other array are or not.
    ///
    /// # Safety
    /// Nobody else accesses these meanwhile, and nobody writes to the others.
    ///
    /// # Panics
    /// If there are not as many.
    pub(crate) unsafe fn copy(&self, source: &Self) {
        assert_eq!(source.len, self.len);
        // SAFETY: both have this many elements, which are initialized. Of what is lent the two may overlap.
        unsafe { ptr::copy(source.as_ptr(), self.as_ptr(), self.len) };
        self.note_write(0..self.len);
    }

    /// Sets every byte.
    ///
    /// # Safety
    /// Nobody else accesses them meanwhile.
    pub(crate) unsafe fn fill_bytes(&self, value: u8) {
        // SAFETY: there are as many elements, and every bit pattern is one.
        unsafe { self.as_ptr().write_bytes(value, self.len) };
        self.note_write(0..self.len);
    }
}

impl<T> CpuMemory<T> {
    /// Has the executor take all elements for written.
    pub(crate) fn take_as_written(&self) {
        *self.written() = None;
    }

    /// Nothing that holds the lock leaves it half changed.
    fn written(&self) -> MutexGuard<'_, Option<UnwrittenMemory>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No elements.
    pub(crate) fn empty() -> Self {
        Self { first: NonNull::dangling(), len: 0, capacity: 0, lines: None, written: Arc::default() }
    }

    /// Leaves the memory allocated for as long as the process runs: for memory that somebody may still use.
    pub(crate) fn leave(mut self) {
        self.lines = None;
    }
}

impl<T> Drop for CpuMemory<T> {
    fn drop(&mut self) {
        if let Some(lines) = self.lines {
            // Before anybody else can have the memory.
            self.take_as_written();
            // SAFETY: it is from a box, and nobody else has it.
            drop(unsafe { Box::from_raw(lines.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_free_is_refused_before_the_system_is_asked() {
        let len = WORTH_ASKING / size_of::<u64>();
        let refused = CpuMemory::<u64>::zeroed_within(len, || Some(WORTH_ASKING as u128 - 1)).err().unwrap();
        assert!(matches!(refused, Error::NotEnoughMemory { needs, has, .. } if needs.0 == has.0 + 1), "{refused}");
        for free in [None, Some(WORTH_ASKING as u128)] {
            assert!(CpuMemory::<u64>::zeroed_within(len, || free).is_ok());
        }
        let little = CpuMemory::<u64>::zeroed_within(len - 1, || panic!("not worth asking")).unwrap();
        assert_eq!(little.len, len - 1);
    }
}
