//! A view of global memory that safe code can write to: each element belongs to one thread.

use crate::element::vector::require_aligned;
use crate::{Element, GlobalSliceMut, KernelParam, Layout, thread};

/// A view of `len` elements of global memory, each of which one thread alone may read and write.
///
/// ```text
///  element   0   1   2   …   T−1 │ T   T+1   …                 T threads in the grid, counted in linear order
///  thread    0   1   2   …   T−1 │ 0   1     …
/// ```
///
/// Which elements are a thread's own follows from its number, which nobody can choose. So there is nothing to promise, and nothing
/// to check but the length:
///
/// ```standalone_crate
/// # extern crate tilewright_cuda_std as cuda_std;
/// use cuda_std::prelude::*;
///
/// /// `y[i] = a·x[i] + y[i]`
/// #[kernel(block = 256, requires(x.len() == y.len()))]
/// pub fn axpy_fp32(a: f32, x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
///     for y in y.own_elements() {
///         y.set(math::fma(a, x.get(y.index()).unwrap_or(0.0), y.get()));
///     }
/// }
/// ```
///
/// The layout is that of a [`GlobalSliceMut`], to which a kernel turns that leaves the pattern.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DisjointSlice<'a, T> {
    /// Of what can be reached through it, a thread gets its own elements only.
    whole: GlobalSliceMut<'a, T>,
}

impl<'a, T: Element> DisjointSlice<'a, T> {
    /// The view of a slice in this processor's memory.
    #[inline(always)]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { whole: GlobalSliceMut::new(slice) }
    }

    /// The view of `len` elements at `pointer`, which may be an address in a GPU's memory.
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::from_raw_parts`].
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { whole: unsafe { GlobalSliceMut::from_raw_parts(pointer, len) } }
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// The address of the first element.
    #[inline(always)]
    pub fn as_mut_ptr(&self) -> *mut T {
        self.whole.as_mut_ptr()
    }

    /// The first element that is this thread's own: the one with the [number of the thread](thread::index). `None` if there are fewer.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own(&self) -> Option<OwnElement<'a, T>> {
        let index = thread::index();
        (index < self.len()).then_some(OwnElement { view: self.whole, index })
    }

    /// All elements that are this thread's own: the one with its number, and those that come so many later as there are threads.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own_elements(&self) -> OwnElements<'a, T> {
        OwnElements { view: self.whole, next: thread::index(), step: thread::count() }
    }
}

/// An element that is this thread's own.
#[derive(Clone, Copy)]
pub struct OwnElement<'a, T> {
    view: GlobalSliceMut<'a, T>,
    index: usize,
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

/// The elements that are this thread's own, in order: [`DisjointSlice::own_elements`].
#[derive(Clone)]
pub struct OwnElements<'a, T> {
    view: GlobalSliceMut<'a, T>,
    next: usize,
    step: usize,
}

impl<'a, T: Element> Iterator for OwnElements<'a, T> {
    type Item = OwnElement<'a, T>;

    #[inline(always)]
    fn next(&mut self) -> Option<OwnElement<'a, T>> {
        let index = self.next;
        // No overflow: a view has less than 2⁶³ elements, and a grid less than 2⁶³ threads that are numbered within it.
        self.next = index.wrapping_add(self.step);
        (index < self.view.len()).then_some(OwnElement { view: self.view, index })
    }
}

// SAFETY: `repr(C)`, without padding, the same on both sides, and what `visit_views` reports is all the memory it names.
unsafe impl<T: Element + KernelParam> KernelParam for DisjointSlice<'_, T> {
    const LAYOUT: u64 = Layout::new("DisjointSlice").elements::<T>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.whole.visit_as(crate::ViewAccess::ReadWrite, name, visit);
    }
}
