//! What is a thread's own of a view: elements, chunks of neighbours, rows.
//!
//! All of these stay with their thread: they are neither `Send` nor `Sync`, and no element of shared memory.

use core::marker::PhantomData;

use super::partition::{Place, Rows};
use crate::element::vector::{require_aligned, vector_bytes};
use crate::{Element, GlobalSliceMut};

/// Keeps what it is in from other threads.
type OfThread = PhantomData<*mut ()>;

/// An element that is this thread's own.
#[derive(Clone, Copy)]
pub struct OwnElement<'a, T> {
    view: GlobalSliceMut<'a, T>,
    index: usize,
    thread: OfThread,
}

impl<'a, T> OwnElement<'a, T> {
    /// `index` is below the length of the view, and no other thread gets it.
    #[inline(always)]
    pub(super) const fn new(view: GlobalSliceMut<'a, T>, index: usize) -> Self {
        Self { view, index, thread: PhantomData }
    }
}

impl<T: Element> OwnElement<'_, T> {
    /// Its position in the view.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The value: one load.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self) -> T {
        // SAFETY: the index was compared with the length, and no other thread gets this element.
        unsafe { self.view.get_unchecked(self.index) }
    }

    /// Writes a value: one store.
    #[inline(always)]
    #[track_caller]
    pub fn set(&self, value: T) {
        // SAFETY: as for `get`.
        unsafe { self.view.set_unchecked(self.index, value) }
    }
}

impl<T: Element> OwnElement<'_, T> {
    /// The value, of 1, 2, 4, 8 or 16 bytes: one load, with a [hint](crate::cache) for the caches.
    #[inline(always)]
    #[track_caller]
    pub fn get_hinted(&self, hint: impl crate::cache::CoherentLoadHint) -> T {
        const { require_aligned::<T>() };
        // SAFETY: as for `get`, and the element is aligned to its size.
        unsafe { self.view.get_hinted_unchecked(self.index, hint) }
    }

    /// Writes a value, of 1, 2, 4, 8 or 16 bytes: one store, with a [hint](crate::cache) for the caches.
    #[inline(always)]
    #[track_caller]
    pub fn set_hinted(&self, value: T, hint: impl crate::cache::StoreHint) {
        const { require_aligned::<T>() };
        // SAFETY: as for `get_hinted`.
        unsafe { self.view.set_hinted_unchecked(self.index, value, hint) }
    }
}

/// The elements that are this thread's own, in order: [`DisjointSlice::own_elements`](crate::DisjointSlice::own_elements).
#[derive(Clone)]
pub struct OwnElements<'a, T> {
    view: GlobalSliceMut<'a, T>,
    next: usize,
    step: usize,
    end: usize,
    thread: OfThread,
}

impl<'a, T> OwnElements<'a, T> {
    /// Those from `next` on, `step` apart, below `end`, which is at most the length of the view. No other thread gets any of them.
    #[inline(always)]
    pub(super) const fn new(view: GlobalSliceMut<'a, T>, next: usize, step: usize, end: usize) -> Self {
        Self { view, next, step, end, thread: PhantomData }
    }
}

impl<'a, T: Element> Iterator for OwnElements<'a, T> {
    type Item = OwnElement<'a, T>;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnElement<'a, T>> {
        let index = self.next;
        if index < self.end {
            // No overflow: a view has less than 2⁶³ elements, and a grid less than 2⁶³ threads. What is behind the end stays there.
            self.next = index.wrapping_add(self.step);
            Some(OwnElement::new(self.view, index))
        } else {
            None
        }
    }
}

/// Up to `N` neighbouring elements that are this thread's own.
#[derive(Clone, Copy)]
pub struct OwnChunk<'a, T, const N: usize> {
    view: GlobalSliceMut<'a, T>,
    first: usize,
    /// At least 1 and at most `N`; so many elements from `first` on are in the view.
    len: usize,
    thread: OfThread,
}

impl<T: Element, const N: usize> OwnChunk<'_, T, N> {
    /// The position of the first of them in the view.
    #[inline(always)]
    pub fn first(&self) -> usize {
        self.first
    }

    /// How many they are: `N`, or less at the end of the view, or of a row.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// One of them, counted from 0: one load. `None` behind the last one.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> Option<T> {
        // No closure: what it reads would be read at its own line, not at the caller's.
        if index < self.len {
            // SAFETY: that many elements are in the view, and no other thread gets them.
            Some(unsafe { self.view.get_unchecked(self.first + index) })
        } else {
            None
        }
    }

    /// Writes one of them, counted from 0: one store, and nothing behind the last one. Whether it was written.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerThread, examples::run_over};
    /// let written = run_over(2, &mut [0; 5], |x: DisjointSlice<'_, u32, PerThread<3>>| {
    ///     let chunk = x.own_chunks().next()?;
    ///     Some([0, 1, 2, 3].map(|i| chunk.set(i, 7)))
    /// });
    /// assert_eq!(written, [Some([true, true, true, false]), Some([true, true, false, false])]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) -> bool {
        let is_inside = index < self.len;
        if is_inside {
            // SAFETY: as for `get`.
            unsafe { self.view.set_unchecked(self.first + index, value) };
        }
        is_inside
    }

    /// All of them, of 2, 4, 8 or 16 bytes together, with `otherwise` behind the last one: one load where there are `N`, and the view
    /// begins at a multiple of the bytes of a chunk, and one for each element otherwise.
    #[inline(always)]
    #[track_caller]
    pub fn get_vector(&self, otherwise: T) -> [T; N] {
        const { vector_bytes::<T, N>() };
        if self.is_vector() {
            // SAFETY: `N` elements are in the view, aligned, and no other thread gets them.
            return unsafe { self.view.get_vector_unchecked(self.first) };
        }
        let mut values = [otherwise; N];
        let mut index = 0;
        while index < N {
            if let Some(value) = self.get(index) {
                values[index] = value;
            }
            index += 1;
        }
        values
    }

    /// Writes all of them, of 2, 4, 8 or 16 bytes together, and nothing behind the last one: one store where there are `N`, and the view
    /// begins at a multiple of the bytes of a chunk, and one for each element otherwise.
    #[inline(always)]
    #[track_caller]
    pub fn set_vector(&self, values: [T; N]) {
        const { vector_bytes::<T, N>() };
        if self.is_vector() {
            // SAFETY: as for `get_vector`.
            unsafe { self.view.set_vector_unchecked(self.first, values) };
            return;
        }
        let mut index = 0;
        while index < N {
            self.set(index, values[index]);
            index += 1;
        }
    }

    /// Whether one access can take all of them. In a row, chunks are aligned only if the row is.
    #[inline(always)]
    fn is_vector(&self) -> bool {
        self.len == N && self.view.as_mut_ptr().wrapping_add(self.first).addr() & (vector_bytes::<T, N>() - 1) == 0
    }
}

/// The chunks that are this thread's own, in order: [`DisjointSlice::own_chunks`](crate::DisjointSlice), [`OwnRow::own_chunks`].
#[derive(Clone)]
pub struct OwnChunks<'a, T, const N: usize> {
    view: GlobalSliceMut<'a, T>,
    /// Where the first chunk begins, and how many elements there are from there on.
    first: usize,
    len: usize,
    next: usize,
    step: usize,
    thread: OfThread,
}

impl<'a, T, const N: usize> OwnChunks<'a, T, N> {
    /// Of the chunks of `len` elements from `first` on, which are in the view, those with numbers from `next` on, `step` apart. No other
    /// thread gets any of them.
    #[inline(always)]
    pub(super) fn new(view: GlobalSliceMut<'a, T>, first: usize, len: usize, next: usize, step: usize) -> Self {
        const { assert!(N > 0, "a chunk has an element at least") };
        Self { view, first, len, next, step, thread: PhantomData }
    }
}

impl<'a, T: Element, const N: usize> Iterator for OwnChunks<'a, T, N> {
    type Item = OwnChunk<'a, T, N>;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnChunk<'a, T, N>> {
        let chunk = self.next;
        // Compared before it is multiplied: a chunk that begins in the view has a number below this.
        if chunk < self.len.div_ceil(N) {
            // No overflow, as for elements.
            self.next = chunk.wrapping_add(self.step);
            let before = chunk * N;
            let len = (self.len - before).min(N);
            Some(OwnChunk { view: self.view, first: self.first + before, len, thread: PhantomData })
        } else {
            None
        }
    }

    #[inline(always)]
    fn nth(&mut self, n: usize) -> Option<OwnChunk<'a, T, N>> {
        let Some(next) = n.checked_mul(self.step).and_then(|by| by.checked_add(self.next)) else {
            // Far behind the last one, where it stays.
            self.len = 0;
            return None;
        };
        self.next = next;
        self.next()
    }
}

/// A row of which this thread has elements.
#[derive(Clone, Copy)]
pub struct OwnRow<'a, T, const N: usize = 1> {
    view: GlobalSliceMut<'a, T>,
    index: usize,
    first: usize,
    len: usize,
    place: Place,
    thread: OfThread,
}

impl<'a, T: Element, const N: usize> OwnRow<'a, T, N> {
    /// Its number in the view: the same for all threads that share it.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The position of its first element in the view.
    #[inline(always)]
    pub fn first(&self) -> usize {
        self.first
    }

    /// How many elements it has, with those of other threads. The last one of the view may be shorter than others.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The chunks of it that are this thread's own.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerBlock, examples::run_over};
    /// // Of rows of six, a thread of two has four elements, and the other has two.
    /// let lens = run_over(2, &mut [0; 6], |x: DisjointSlice<'_, u32, PerBlock<4>>| {
    ///     x.own_rows().flat_map(|row| row.own_chunks().map(|chunk| chunk.len())).collect::<Vec<_>>()
    /// });
    /// assert_eq!(lens, [[4], [2]]);
    /// ```
    #[inline(always)]
    pub fn own_chunks(&self) -> OwnChunks<'a, T, N> {
        OwnChunks::new(self.view, self.first, self.len, self.place.thread, self.place.threads)
    }
}

impl<'a, T: Element> OwnRow<'a, T, 1> {
    /// The elements of it that are this thread's own.
    #[inline(always)]
    pub fn own_elements(&self) -> OwnElements<'a, T> {
        OwnElements::new(self.view, self.first + self.place.thread, self.place.threads, self.first + self.len)
    }
}

/// The rows of which this thread has elements, in order: `own_rows` of a [`DisjointSlice`](crate::DisjointSlice).
#[derive(Clone)]
pub struct OwnRows<'a, T, const N: usize = 1> {
    view: GlobalSliceMut<'a, T>,
    rows: Rows,
    next: usize,
    place: Place,
    thread: OfThread,
}

impl<'a, T, const N: usize> OwnRows<'a, T, N> {
    /// The rows of a group of threads, which no other group gets.
    #[inline(always)]
    pub(super) const fn new(view: GlobalSliceMut<'a, T>, rows: Rows, place: Place) -> Self {
        Self { view, rows, next: place.group, place, thread: PhantomData }
    }
}

impl<'a, T: Element, const N: usize> Iterator for OwnRows<'a, T, N> {
    type Item = OwnRow<'a, T, N>;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnRow<'a, T, N>> {
        let index = self.next;
        if index < self.rows.count as usize {
            // No overflow, as for elements.
            self.next = index.wrapping_add(self.place.groups);
            // Inside the view, because there are as many rows.
            let first = index * self.rows.len as usize;
            let len = (self.view.len() - first).min(self.rows.len as usize);
            Some(OwnRow { view: self.view, index, first, len, place: self.place, thread: PhantomData })
        } else {
            None
        }
    }
}
