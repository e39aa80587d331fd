//! Memory that was allocated without values, and which bytes of it somebody has written since: kernels that read others are reported, and
//! so is a host that does.
//!
//! ```text
//!  allocated without values      ░░░░░░░░░░░░░░░░      a bit for each byte
//!  a launch writes elements      ████████████░░░░      a kernel that reads the rest now is reported at the end of its launch,
//!  the host reads all                        ▲         a host that reads it at once
//! ```
//!
//! Whoever allocates says so, as `Device::allocate` of the crate `runtime` does. Of all other memory, such as that of slices, the executor
//! takes for granted that it has values.

use core::ops::Range;
use core::panic::Location;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::fault::SourceLine;
use super::{Checks, Executor};

/// How many bytes have their bits in one word.
const BYTES: usize = u64::BITS as usize;

/// The allocations that executors know of, by their addresses.
#[derive(Default)]
pub(super) struct Allocations(Mutex<BTreeMap<usize, Arc<Allocation>>>);

/// Memory that had no values when it was allocated.
pub(super) struct Allocation {
    start: usize,
    bytes: usize,
    allocated: &'static Location<'static>,
    /// A bit for each byte: whether somebody has written it.
    written: Vec<AtomicU64>,
    /// How many bytes nobody has written.
    left: AtomicUsize,
}

impl Allocations {
    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Allocation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to `found` the allocations that these bytes are of, as far as not all of them are written.
    pub(super) fn find(&self, address: usize, bytes: usize, found: &mut Vec<Arc<Allocation>>) {
        let end = address.saturating_add(bytes);
        for allocation in self.lock().range(..end).rev().map(|(_, allocation)| allocation) {
            if allocation.end() <= address {
                return;
            }
            let is_known = found.iter().any(|known| Arc::ptr_eq(known, allocation));
            if !is_known && allocation.left.load(Ordering::Relaxed) > 0 {
                found.push(Arc::clone(allocation));
            }
        }
    }
}

impl Allocation {
    pub(super) fn end(&self) -> usize {
        self.start + self.bytes
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        self.start <= address && address < self.end()
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it was allocated.
    pub(super) fn allocated(&self) -> SourceLine {
        self.allocated.into()
    }

    /// The words with the bits of bytes, which are counted from the first one of the allocation, and which of their bits they are.
    fn words(&self, bytes: Range<usize>) -> impl Iterator<Item = (usize, &AtomicU64, u64)> {
        let Range { start, end } = bytes.start..bytes.end.min(self.bytes);
        (start / BYTES..end.div_ceil(BYTES)).map(move |word| {
            let (first, last) = (start.max(word * BYTES) % BYTES, (end.min((word + 1) * BYTES) - 1) % BYTES);
            (word, &self.written[word], u64::MAX << first & u64::MAX >> (BYTES - 1 - last))
        })
    }

    /// Notes that bytes at an address have been written.
    pub(super) fn write(&self, address: usize, bytes: usize) {
        let first = address - self.start;
        for (_, word, bits) in self.words(first..first + bytes) {
            // Mostly they have been before, and then nobody has to wait for the word.
            if word.load(Ordering::Relaxed) & bits != bits {
                let before = word.fetch_or(bits, Ordering::Relaxed);
                self.left.fetch_sub((bits & !before).count_ones() as usize, Ordering::Relaxed);
            }
        }
    }

    /// The address of the first of these bytes that nobody has written.
    pub(super) fn first_unwritten(&self, address: usize, bytes: usize) -> Option<usize> {
        let first = address - self.start;
        self.words(first..first + bytes).find_map(|(word, written, bits)| {
            let missing = bits & !written.load(Ordering::Relaxed);
            (missing != 0).then(|| self.start + word * BYTES + missing.trailing_zeros() as usize)
        })
    }
}

/// Memory that an [`Executor`] with [`Checks::Full`] takes for unwritten until somebody has written it: [`Executor::without_values`].
///
/// It says nothing of the memory when it is dropped, so that it can be freed.
pub struct UnwrittenMemory {
    allocation: Arc<Allocation>,
    allocations: Arc<Allocations>,
}

impl Executor {
    /// Says that the `bytes` bytes at `address` have no values yet: a kernel that reads one before somebody has written it is reported, with
    /// the line of this call. It holds for all clones of this executor. `None`, and nothing is looked at, without [`Checks::Full`], and
    /// for no bytes.
    ///
    /// ```standalone_crate
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// use cuda_std::executor::{Checks, Executor};
    /// use cuda_std::prelude::*;
    ///
    /// #[kernel(block = 32)]
    /// pub fn squares(y: GlobalSliceMut<'_, u32>) {
    ///     let i = thread::index_1d();
    ///     // SAFETY: no other thread has this i. But are there as many threads as elements?
    ///     unsafe { y.set_unchecked(i, (i * i) as u32) }
    /// }
    ///
    /// let executor = Executor::new(Checks::Full);
    /// let mut y = vec![0u32; 40];
    /// let unwritten = executor.without_values(y.as_ptr().addr(), 160).unwrap();
    /// // SAFETY: the only view is of a slice of this program.
    /// unsafe { executor.launch(squares { y: GlobalSliceMut::new(&mut y) }, Dim3::from(1)) }.unwrap();
    /// let error = unwritten.check_read::<u32>(0..40).unwrap_err();
    /// assert_eq!((error.first, error.count), (32, 8));
    /// ```
    ///
    /// # Panics
    /// If the bytes reach beyond the end of all memory.
    #[track_caller]
    pub fn without_values(&self, address: usize, bytes: usize) -> Option<UnwrittenMemory> {
        if self.checks != Checks::Full || bytes == 0 {
            return None;
        }
        assert!(address.checked_add(bytes).is_some(), "{bytes} bytes at address {address:#x}");
        let written = (0..bytes.div_ceil(BYTES)).map(|_| AtomicU64::new(0)).collect();
        let allocated = Location::caller();
        let allocation = Arc::new(Allocation { start: address, bytes, allocated, written, left: bytes.into() });
        self.allocations.lock().insert(address, Arc::clone(&allocation));
        Some(UnwrittenMemory { allocation, allocations: Arc::clone(&self.allocations) })
    }

    /// Says that the `bytes` bytes at `address` have values, or are about to get some from the host: for a part of memory
    /// [without values](Executor::without_values), known by its address alone.
    ///
    /// ```
    /// # use tilewright_cuda_std::{executor::{Checks, Executor}};
    /// let (executor, x) = (Executor::new(Checks::Full), [0u32; 8]);
    /// let unwritten = executor.without_values(x.as_ptr().addr(), 32).unwrap();
    /// executor.has_values(x.as_ptr().addr(), 16);
    /// assert!(unwritten.check_read::<u32>(0..4).is_ok());
    /// assert_eq!(unwritten.check_read::<u32>(0..8).unwrap_err().first, 4);
    /// ```
    pub fn has_values(&self, address: usize, bytes: usize) {
        let mut found = Vec::new();
        self.allocations.find(address, bytes, &mut found);
        for allocation in found {
            let (start, end) = (address.max(allocation.start), (address + bytes).min(allocation.end()));
            allocation.write(start, end - start);
        }
    }
}

impl UnwrittenMemory {
    /// Says that the host has written elements, which are counted from the beginning of the memory.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn note_write<T>(&self, elements: Range<usize>) {
        let bytes = self.bytes_of::<T>(&elements);
        self.allocation.write(self.allocation.start + bytes.start, bytes.len());
    }

    /// Whether somebody has written all of these elements, which the host is about to read, and are counted from the beginning of the
    /// memory.
    ///
    /// # Errors
    /// [`UnwrittenElements`], if not.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn check_read<T>(&self, elements: Range<usize>) -> Result<(), UnwrittenElements> {
        let bytes = self.bytes_of::<T>(&elements);
        let start = self.allocation.start;
        if self.allocation.first_unwritten(start + bytes.start, bytes.len()).is_none() {
            return Ok(());
        }
        let is_unwritten =
            |index: &usize| self.allocation.first_unwritten(start + index * size_of::<T>(), size_of::<T>()).is_some();
        let len = elements.len();
        let mut unwritten = elements.filter(is_unwritten);
        let Some(first) = unwritten.next() else { return Ok(()) };
        Err(UnwrittenElements { first, count: 1 + unwritten.count(), len, allocated: self.allocation.allocated() })
    }

    fn bytes_of<T>(&self, elements: &Range<usize>) -> Range<usize> {
        let bytes = elements.start * size_of::<T>()..elements.end * size_of::<T>();
        assert!(
            bytes.start <= bytes.end && bytes.end <= self.allocation.bytes,
            "elements {elements:?} of {} bytes each are not in memory of {} bytes",
            size_of::<T>(),
            self.allocation.bytes
        );
        bytes
    }
}

impl Drop for UnwrittenMemory {
    fn drop(&mut self) {
        let mut allocations = self.allocations.lock();
        // Somebody may have said the same of the memory once more since.
        if allocations.get(&self.allocation.start).is_some_and(|known| Arc::ptr_eq(known, &self.allocation)) {
            allocations.remove(&self.allocation.start);
        }
    }
}

/// The host reads elements that nobody has written, of memory that was allocated without values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} of {len} elements that the host reads have never been written, the first of them element {first}, in memory that was allocated \
     without values at {allocated}: have the kernel write all of its output, or fill it before the launch"
)]
pub struct UnwrittenElements {
    /// The first of them, counted from the beginning of the memory.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// How many are read.
    pub len: usize,
    /// Where the memory was allocated.
    pub allocated: SourceLine,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_one_by_one() {
        let executor = Executor::new(Checks::Full);
        let memory = executor.without_values(1000, 200).unwrap();
        let allocation = &memory.allocation;
        allocation.write(1000 + 3, 2);
        allocation.write(1000 + 60, 70);
        allocation.write(1000 + 60, 1);
        assert_eq!(allocation.left.load(Ordering::Relaxed), 200 - 72);
        assert_eq!(allocation.first_unwritten(1000, 200), Some(1000));
        assert_eq!(allocation.first_unwritten(1003, 2), None);
        assert_eq!(allocation.first_unwritten(1003, 3), Some(1005));
        assert_eq!(allocation.first_unwritten(1060, 70), None);
        assert_eq!(allocation.first_unwritten(1060, 71), Some(1130));
        let error = memory.check_read::<u32>(0..50).unwrap_err();
        // Bytes 60 to 129 are elements 15 to 31, and half of element 32.
        assert_eq!((error.first, error.count, error.len), (0, 50 - 17, 50));
        memory.note_write::<u32>(0..50);
        assert_eq!(memory.check_read::<u32>(0..50), Ok(()));
    }

    #[test]
    fn allocations_are_found_by_any_of_their_bytes_until_all_are_written() {
        let executor = Executor::new(Checks::Full);
        let memory = [executor.without_values(1000, 100), executor.without_values(1100, 100)].map(Option::unwrap);
        let found = |address: usize, bytes: usize| {
            let mut found = Vec::new();
            executor.allocations.find(address, bytes, &mut found);
            found.iter().map(|allocation| allocation.start).collect::<Vec<_>>()
        };
        assert_eq!(found(900, 100), []);
        assert_eq!(found(900, 101), [1000]);
        assert_eq!(found(1099, 1), [1000]);
        assert_eq!(found(1050, 100), [1100, 1000]);
        assert_eq!(found(1200, 100), []);
        memory[1].note_write::<u8>(0..100);
        assert_eq!(found(1050, 100), [1000]);
        executor.has_values(900, 150);
        assert_eq!(memory[0].check_read::<u8>(0..50), Ok(()));
        assert_eq!(memory[0].check_read::<u8>(0..100).unwrap_err().first, 50);
        drop(memory);
        assert_eq!(found(1050, 100), []);
        assert!(Executor::new(Checks::Bounds).without_values(1000, 100).is_none());
    }
}
