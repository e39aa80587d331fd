//! Loads and stores of global memory with hints for the caches, and prefetches: see [`crate::cache`].

use super::{GlobalSlice, GlobalSliceMut};
use crate::Element;
use crate::cache::{CoherentLoadHint, LoadHint, StoreHint};
use crate::element::vector::{require_aligned, vector_bytes};

impl<T: Element> GlobalSlice<'_, T> {
    /// Element `index`, or `None` past the end: one load, with a [hint](crate::cache) for the caches.
    ///
    /// # Panics
    /// As for [`GlobalSlice::get`].
    #[inline(always)]
    #[track_caller]
    pub fn get_hinted(&self, index: usize, hint: impl LoadHint) -> Option<T> {
        const { require_aligned::<T>() };
        // No closure: what it reads would be read at its own line, not at the caller's.
        if index < self.len() {
            // SAFETY: the index was compared with the length; an element of a view is aligned as its type, and that is its size.
            Some(unsafe { self.get_hinted_unchecked(index, hint) })
        } else {
            None
        }
    }

    /// Element `index`, of 1, 2, 4, 8 or 16 bytes: one load, with a [hint](crate::cache) for the caches.
    ///
    /// # Safety
    /// As for [`GlobalSlice::get_vector_unchecked`] of one element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_hinted_unchecked(&self, index: usize, hint: impl LoadHint) -> T {
        // SAFETY: the caller's promise.
        let [value] = unsafe { self.get_vector_hinted_unchecked::<1>(index, hint) };
        value
    }

    /// [`GlobalSlice::get_vector_unchecked`] with a [hint](crate::cache) for the caches; of 1, 2, 4, 8 or 16 bytes.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    #[allow(unused_variables, reason = "the CPU has its own caches")]
    pub unsafe fn get_vector_hinted_unchecked<const N: usize>(&self, index: usize, hint: impl LoadHint) -> [T; N] {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view, and aligned, by the caller's promise. That nothing writes to the
        // elements while the kernel runs, which `nc` demands, is what a read-only view promises.
        unsafe {
            load_with(hint, self.pointer.add(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.get_vector_unchecked(index)
        }
    }

    /// Has the second-level cache fetch what is near element `index` (`prefetch.global.L2`). Nothing happens past the end.
    #[inline(always)]
    pub fn prefetch_l2(&self, index: usize) {
        #[cfg(target_arch = "nvptx64")]
        if index < self.len() {
            prefetch_l2(self.pointer.wrapping_add(index));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        let _ = index;
    }
}

impl<T: Element> GlobalSliceMut<'_, T> {
    /// Element `index`, of 1, 2, 4, 8 or 16 bytes: one load, with a [hint](crate::cache) for the caches.
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::get_vector_unchecked`] of one element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_hinted_unchecked(&self, index: usize, hint: impl CoherentLoadHint) -> T {
        // SAFETY: the caller's promise.
        let [value] = unsafe { self.get_vector_hinted_unchecked::<1>(index, hint) };
        value
    }

    /// [`GlobalSliceMut::get_vector_unchecked`] with a [hint](crate::cache) for the caches; of 1, 2, 4, 8 or 16 bytes.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    #[allow(unused_variables, reason = "the CPU has its own caches")]
    pub unsafe fn get_vector_hinted_unchecked<const N: usize>(
        &self,
        index: usize,
        hint: impl CoherentLoadHint,
    ) -> [T; N] {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view, and aligned, by the caller's promise.
        unsafe {
            load_with(hint, self.pointer.cast_const().add(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.get_vector_unchecked(index)
        }
    }

    /// Has the second-level cache fetch what is near element `index` (`prefetch.global.L2`). Nothing happens past the end.
    #[inline(always)]
    pub fn prefetch_l2(&self, index: usize) {
        #[cfg(target_arch = "nvptx64")]
        if index < self.len() {
            prefetch_l2(self.pointer.cast_const().wrapping_add(index));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        let _ = index;
    }

    /// Writes `value`, of 1, 2, 4, 8 or 16 bytes, to element `index`: one store, with a [hint](crate::cache) for the caches.
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::set_vector_unchecked`] of one element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_hinted_unchecked(&self, index: usize, value: T, hint: impl StoreHint) {
        // SAFETY: the caller's promise.
        unsafe { self.set_vector_hinted_unchecked(index, [value], hint) }
    }

    /// [`GlobalSliceMut::set_vector_unchecked`] with a [hint](crate::cache) for the caches; of 1, 2, 4, 8 or 16 bytes.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    #[allow(unused_variables, reason = "the CPU has its own caches")]
    pub unsafe fn set_vector_hinted_unchecked<const N: usize>(
        &self,
        index: usize,
        values: [T; N],
        hint: impl StoreHint,
    ) {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view, and aligned, by the caller's promise.
        unsafe {
            store_with(hint, self.pointer.add(index).cast_const(), values);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.set_vector_unchecked(index, values);
        }
    }
}

/// A load as its hint says.
///
/// # Safety
/// As for [`LoadHint::load`].
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
unsafe fn load_with<T: Element, H: LoadHint, const N: usize>(_hint: H, address: *const T) -> [T; N] {
    // SAFETY: the caller's promise.
    unsafe { H::load(address) }
}

/// A store as its hint says.
///
/// # Safety
/// As for [`StoreHint::store`].
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
unsafe fn store_with<T: Element, H: StoreHint, const N: usize>(_hint: H, address: *const T, values: [T; N]) {
    // SAFETY: the caller's promise.
    unsafe { H::store(address, values) }
}

/// Has the second-level cache fetch what is near an address of global memory.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn prefetch_l2<T>(address: *const T) {
    // SAFETY: it changes nothing but caches.
    unsafe {
        core::arch::asm!("prefetch.global.L2 [{}];", in(reg64) address, options(nomem, nostack, preserves_flags));
    }
}
