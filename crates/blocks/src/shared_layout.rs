//! The dynamic shared memory of a kernel, described once: a constant from which both the size for the launch and the arrays
//! inside the kernel follow.
//!
//! ```text
//!  const MEMORY: Memory = …            SharedLayout::new()
//!                                        .array::<f32>(stages)           bytes 0 …
//!  #[kernel(dynamic_shared =             .array::<u64>(barriers)         bytes 4·stages …
//!           MEMORY.bytes)]               .aligned::<f32>(results, 1024)  the next multiple of 1024 …
//!  fn body() { MEMORY.stages.slice() }   .bytes()                        the end of the last array
//! ```
//!
//! The arrays stand one behind the other in the order in which they are added, each at a multiple of its alignment. The base of
//! the dynamic shared memory is aligned to 1024 bytes, which is what TMA's 128-byte swizzle asks for.

use core::marker::PhantomData;

use cuda_std::{Element, SharedSlice, dynamic_shared};

/// What the base of the dynamic shared memory is aligned to, in bytes; so no array can ask for more.
///
/// ```
/// # use blocks::shared_layout::*;
/// let mut layout = SharedLayout::new();
/// layout.array::<u64>(2);
/// // What TMA's 128-byte swizzle asks for; no array can ask for more.
/// assert_eq!(layout.aligned::<f32>(256, BASE_ALIGNMENT).offset(), 1024);
/// ```
pub const BASE_ALIGNMENT: usize = 1024;

/// Arrays in dynamic shared memory, as far as they have been added.
///
/// ```
/// # use blocks::shared_layout::*;
/// # use cuda_std::{examples::run, prelude::*};
/// struct Memory {
///     tile: SharedArray<f32>,
///     barriers: SharedArray<u64>,
///     bytes: u32,
/// }
/// const MEMORY: Memory = {
///     let mut layout = SharedLayout::new();
///     let (tile, barriers) = (layout.aligned(256, 1024), layout.array(2));
///     Memory { tile, barriers, bytes: layout.bytes() }
/// };
/// assert_eq!((MEMORY.bytes, MEMORY.barriers.offset()), (1024 + 16, 1024)); // `#[kernel(dynamic_shared = MEMORY.bytes)]`
/// run(256, || {
///     // SAFETY: the launch has as much dynamic shared memory; each thread has an element of its own.
///     unsafe { MEMORY.tile.slice().write(thread::index(), 0.0) }
/// });
/// ```
#[derive(Clone, Copy)]
pub struct SharedLayout {
    bytes: usize,
}

/// An array of a [`SharedLayout`]: where it begins, and how many elements it has.
///
/// ```
/// # use blocks::shared_layout::*;
/// # use cuda_std::{examples::run, prelude::*};
/// const NUMBERS: SharedArray<u32> = SharedLayout::new().array(64);
/// let read = run(64, || {
///     let t = thread::index();
///     // SAFETY: the launch has as much dynamic shared memory; a thread writes its own element, and a barrier stands before the reads.
///     unsafe {
///         let numbers = NUMBERS.slice();
///         numbers.write(t, t as u32);
///         thread::sync_threads();
///         numbers.read(63 - t)
///     }
/// });
/// assert_eq!(read[0], 63);
/// ```
pub struct SharedArray<T> {
    offset: usize,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for SharedArray<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedArray<T> {}

impl SharedLayout {
    /// A layout without arrays.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// assert_eq!(SharedLayout::new().bytes(), 0);
    /// ```
    #[allow(clippy::new_without_default, reason = "a trait's function is not const, and this one is for constants")]
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: 0 }
    }

    /// Adds an array of `len` elements, aligned as one is.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// let mut layout = SharedLayout::new();
    /// let (words, barriers) = (layout.array::<u32>(3), layout.array::<u64>(2));
    /// assert_eq!((words.offset(), barriers.offset()), (0, 16), "each at a multiple of its elements' size");
    /// ```
    pub const fn array<T: Element>(&mut self, len: u32) -> SharedArray<T> {
        self.aligned(len, align_of::<T>())
    }

    /// Adds an array of `len` elements that begins at a multiple of `alignment` bytes.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// let mut layout = SharedLayout::new();
    /// let (words, tile) = (layout.array::<u32>(3), layout.aligned::<f32>(64, 128));
    /// assert_eq!((words.offset(), tile.offset(), layout.bytes()), (0, 128, 128 + 256));
    /// ```
    ///
    /// # Panics
    /// At compile time, in a constant: if `alignment` is not a multiple of an element's, or not a power of two of at most
    /// [`BASE_ALIGNMENT`].
    pub const fn aligned<T: Element>(&mut self, len: u32, alignment: usize) -> SharedArray<T> {
        assert!(
            alignment.is_power_of_two() && alignment <= BASE_ALIGNMENT,
            "an alignment is a power of two up to 1024"
        );
        assert!(alignment.is_multiple_of(align_of::<T>()), "an array is aligned to its elements");
        let offset = self.bytes.next_multiple_of(alignment);
        self.bytes = offset + len as usize * size_of::<T>();
        SharedArray { offset, len: len as usize, element: PhantomData }
    }

    /// The bytes of all arrays: what the kernel names as its `dynamic_shared`.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// const BYTES: u32 = {
    ///     let mut layout = SharedLayout::new();
    ///     layout.array::<f32>(1024);
    ///     layout.array::<u64>(4);
    ///     layout.bytes()
    /// };
    /// assert_eq!(BYTES, 4096 + 32); // `#[kernel(dynamic_shared = BYTES)]`
    /// ```
    ///
    /// # Panics
    /// At compile time, in a constant: if the arrays take 4 GiB or more.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        assert!(self.bytes <= u32::MAX as usize, "a block has less than 4 GiB of shared memory");
        self.bytes as u32
    }
}

impl<T: Element> SharedArray<T> {
    /// The number of elements.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// assert_eq!(SharedLayout::new().array::<f32>(96).len(), 96);
    /// ```
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// let mut layout = SharedLayout::new();
    /// // A kernel without a second stage adds an array of no elements, which takes no bytes.
    /// assert!(layout.array::<f32>(0).is_empty() && layout.bytes() == 0);
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the array begins, in bytes.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// let mut layout = SharedLayout::new();
    /// layout.array::<f32>(100);
    /// assert_eq!(layout.array::<f32>(1).offset(), 400);
    /// ```
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The array of this block.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// # use cuda_std::{examples::run, prelude::*};
    /// const COUNTS: SharedArray<u32> = SharedLayout::new().array(32);
    /// let lengths = run(32, || {
    ///     // SAFETY: the launch has as much dynamic shared memory.
    ///     let counts: SharedSlice<u32> = unsafe { COUNTS.slice() };
    ///     counts.len()
    /// });
    /// assert_eq!(lengths, [32; 32]);
    /// ```
    ///
    /// # Safety
    /// The kernel's `dynamic_shared` is the [`SharedLayout::bytes`] of the array's layout, or more.
    #[inline(always)]
    #[track_caller]
    #[must_use]
    pub unsafe fn slice(self) -> SharedSlice<T> {
        // SAFETY: the layout has aligned the array to its elements, and ends behind it.
        unsafe { dynamic_shared(self.offset, self.len) }
    }

    /// `len` elements of the array of this block, from element `first` on.
    ///
    /// ```
    /// # use blocks::shared_layout::*;
    /// # use cuda_std::{examples::run, prelude::*};
    /// // One array for two stages of 32 numbers.
    /// const STAGES: SharedArray<u32> = SharedLayout::new().array(2 * 32);
    /// let read = run(32, || {
    ///     let t = thread::index();
    ///     // SAFETY: the launch has as much dynamic shared memory, and the array both parts; a thread has elements of its own.
    ///     unsafe {
    ///         let (first, second) = (STAGES.part(0, 32), STAGES.part(32, 32));
    ///         first.write(t, 1);
    ///         second.write(t, 2);
    ///         (first.read(t), STAGES.slice().read(32 + t))
    ///     }
    /// });
    /// assert_eq!(read, [(1, 2); 32]);
    /// ```
    ///
    /// # Safety
    /// As for [`SharedArray::slice`]; the array has so many elements.
    #[inline(always)]
    #[track_caller]
    #[must_use]
    pub unsafe fn part(self, first: u32, len: u32) -> SharedSlice<T> {
        // SAFETY: the caller's promise.
        unsafe { dynamic_shared((self.offset as u32 + first * size_of::<T>() as u32) as usize, len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_stand_one_behind_the_other_and_aligned() {
        let mut layout = SharedLayout::new();
        let words = layout.array::<u32>(3);
        let barriers = layout.array::<u64>(2);
        let results = layout.aligned::<f32>(5, 1024);
        let nothing = layout.array::<u32>(0);
        assert_eq!((words.offset(), words.len()), (0, 3));
        assert_eq!((barriers.offset(), barriers.len()), (16, 2));
        assert_eq!((results.offset(), results.len()), (1024, 5));
        assert!(nothing.is_empty() && !results.is_empty());
        assert_eq!(layout.bytes(), 1024 + 20);
        assert_eq!(SharedLayout::new().bytes(), 0);
    }

    /// Three words, which are aligned as one.
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Three(f32, u32, i32);

    #[test]
    fn structs_are_aligned_as_their_fields_are() {
        let mut layout = SharedLayout::new();
        let _ = layout.array::<u32>(1);
        let threes = layout.array::<Three>(2);
        assert_eq!((threes.offset(), layout.bytes()), (4, 28));
    }

    #[test]
    #[should_panic(expected = "aligned to its elements")]
    fn an_array_is_aligned_to_its_elements() {
        let _ = SharedLayout::new().aligned::<u64>(1, 4);
    }

    #[test]
    #[should_panic(expected = "power of two up to 1024")]
    fn no_array_is_aligned_to_more_than_the_base() {
        let _ = SharedLayout::new().aligned::<f32>(1, 2048);
    }
}
