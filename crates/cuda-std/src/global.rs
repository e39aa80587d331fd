//! Views of global memory: what a kernel receives instead of a bare pointer.

mod hinted;

use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::element::vector;
use crate::element::vector::vector_bytes;
use crate::{Element, KernelParam, Layout};

/// A read-only view of `len` elements of global memory.
///
/// The layout is the same on both sides, an address and a 64-bit length, so that the host can pass it to a launch as it
/// stands. On the CPU every access checks its index, also the `_unchecked` ones; on the GPU those are plain loads.
///
/// The memory may be a GPU's, which this processor cannot read. So the elements are there only for a kernel that was
/// launched with the view: outside of a kernel every access panics, also to a view of this processor's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GlobalSlice<'a, T> {
    pointer: *const T,
    len: u64,
    lifetime: PhantomData<&'a [T]>,
}

/// A view of `len` elements of global memory that a kernel may write to.
///
/// Every thread of a launch holds the same view, so it can be copied, unlike a `&mut [T]`. That no two threads access an
/// element at once, unless both only read, is the kernel's to arrange, and why writing is `unsafe`. As with
/// [`GlobalSlice`], every access outside of a kernel panics.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GlobalSliceMut<'a, T> {
    pointer: *mut T,
    len: u64,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: a view is a slice reference in all but name. Writing through the mutable one is unsafe, with the contract that
// makes sharing it sound.
unsafe impl<T: Element> Send for GlobalSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for GlobalSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Send for GlobalSliceMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for GlobalSliceMut<'_, T> {}

impl<'a, T: Element> GlobalSlice<'a, T> {
    /// The view of a slice in this processor's memory.
    #[inline(always)]
    pub fn new(slice: &'a [T]) -> Self {
        Self { pointer: slice.as_ptr(), len: slice.len() as u64, lifetime: PhantomData }
    }

    /// The view of `len` elements at `pointer`, which may be an address in a GPU's memory.
    ///
    /// # Safety
    /// For the lifetime of the view, wherever a kernel with this view runs, `pointer` is aligned for `T` and valid for
    /// reads of `len` elements, and nothing writes to them.
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *const T, len: usize) -> Self {
        Self { pointer, len: len as u64, lifetime: PhantomData }
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    #[inline(always)]
    pub fn as_ptr(&self) -> *const T {
        self.pointer
    }

    /// Element `index`, or `None` past the end.
    ///
    /// # Panics
    /// If there is such an element, but no kernel runs: the memory may be a GPU's.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> Option<T> {
        // No closure: what it reads would be read at its own line, not at the caller's.
        if index < self.len() {
            // SAFETY: the index was compared with the length.
            Some(unsafe { self.get_unchecked(index) })
        } else {
            None
        }
    }

    /// Element `index`: one load.
    ///
    /// # Safety
    /// `index < self.len()`. (On the CPU a larger one ends the launch with a report instead.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_unchecked(&self, index: usize) -> T {
        // SAFETY: in bounds by the caller's promise, and checked on the CPU; a view's memory is valid for its length.
        let value = unsafe { T::load(to_read(self.pointer, self.len(), index, 1, align_of::<T>())) };
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::trace_in(&value, core::panic::Location::caller());
        value
    }

    /// The part that begins at element `first`. Its length is what is left.
    ///
    /// # Safety
    /// `first <= self.len()`. (On the CPU a larger one gives an empty slice, whose every access is reported, as
    /// one at the end of this view.)
    #[inline(always)]
    pub unsafe fn from_unchecked(self, first: usize) -> Self {
        #[cfg(not(target_arch = "nvptx64"))]
        let first = first.min(self.len());
        Self { pointer: self.pointer.wrapping_add(first), len: self.len - first as u64, lifetime: PhantomData }
    }

    /// The `N` elements from `index`, of 2, 4, 8 or 16 bytes together: one load (`ld.global.v4.b32` for 16 bytes).
    ///
    /// ```standalone_crate
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// use cuda_std::prelude::*;
    ///
    /// /// `y[i] = -x[i]`, eight numbers of fp16 to a thread.
    /// #[kernel(block = 128, requires(x.len() == y.len(), x.len() % 8 == 0))]
    /// pub fn negate_fp16(x: GlobalSlice<'_, F16>, y: GlobalSliceMut<'_, F16>) {
    ///     let first = 8 * thread::index();
    ///     if first < x.len() {
    ///         // SAFETY: in bounds, because there are multiples of 8, and each thread has 8 of its own. A buffer begins at a
    ///         // multiple of 256 bytes.
    ///         unsafe {
    ///             let negative = x.get_vector_unchecked::<8>(first).map(|x| F16::from_f32(-x.to_f32()));
    ///             y.set_vector_unchecked(first, negative);
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// `index + N <= self.len()`, and the address of element `index` is a multiple of the size of the `N` elements. (Both are checked on
    /// the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_vector_unchecked<const N: usize>(&self, index: usize) -> [T; N] {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view, and aligned, by the caller's promise.
        unsafe {
            vector::load_global(self.pointer.add(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let first = to_read(self.pointer, self.len(), index, N, vector_bytes::<T, N>());
            // SAFETY: the elements are in bounds: just checked.
            let values = core::array::from_fn(|i| unsafe { T::load(first.add(i)) });
            let location = core::panic::Location::caller();
            values.iter().for_each(|value| crate::executor::trace_in(value, location));
            values
        }
    }
}

// Vectors of fp32 numbers have instructions of their own, by registers of fp32: with those of any elements, which go by way of the numbers'
// bits, kernels with few registers to spare spill.
impl GlobalSlice<'_, f32> {
    /// [`GlobalSlice::get_vector_unchecked`] of two elements.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get2_unchecked(&self, index: usize) -> [f32; 2] {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b): (f32, f32);
            // SAFETY: a load from inside the view, aligned, by the caller's promise. It is `readonly` rather than `nomem`:
            // it may not move above a store to the same memory.
            unsafe {
                core::arch::asm!(
                    "ld.global.v2.f32 {{{a}, {b}}}, [{address}];",
                    a = out(reg32) a, b = out(reg32) b,
                    address = in(reg64) self.pointer.add(index),
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [a, b]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.get_vector_unchecked(index)
        }
    }

    /// [`GlobalSlice::get_vector_unchecked`] of four elements.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get4_unchecked(&self, index: usize) -> [f32; 4] {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b, c, d): (f32, f32, f32, f32);
            // SAFETY: as for `get2_unchecked`.
            unsafe {
                core::arch::asm!(
                    "ld.global.v4.f32 {{{a}, {b}, {c}, {d}}}, [{address}];",
                    a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                    address = in(reg64) self.pointer.add(index),
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [a, b, c, d]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.get_vector_unchecked(index)
        }
    }

    /// The four elements from `index`, which this kernel reads only once: one 16-byte load that leaves the first-level cache
    /// to others (`ld.global.nc.L1::no_allocate.v4.f32`). Other elements and vectors have the [hint](crate::cache::ReadOnlyOnce).
    ///
    /// # Safety
    /// As for [`GlobalSlice::get_vector_unchecked`]. That nothing writes to the elements while the kernel runs, which `nc` demands,
    /// is what a read-only view promises.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get4_streaming_unchecked(&self, index: usize) -> [f32; 4] {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b, c, d): (f32, f32, f32, f32);
            // SAFETY: a load from inside the view, aligned, by the caller's promise.
            unsafe {
                core::arch::asm!(
                    "ld.global.nc.L1::no_allocate.v4.f32 {{{a}, {b}, {c}, {d}}}, [{address}];",
                    a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                    address = in(reg64) self.pointer.add(index),
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [a, b, c, d]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.get4_unchecked(index)
        }
    }
}

impl GlobalSliceMut<'_, f32> {
    /// [`GlobalSliceMut::get_vector_unchecked`] of four elements.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get4_unchecked(&self, index: usize) -> [f32; 4] {
        let read: GlobalSlice<'_, f32> = GlobalSlice { pointer: self.pointer, len: self.len, lifetime: PhantomData };
        // SAFETY: the caller's promise. The load is an ordinary one, which stays between the stores before and behind it; that
        // nothing writes to the elements meanwhile is all that it needs of a read-only view.
        unsafe { read.get4_unchecked(index) }
    }

    /// [`GlobalSliceMut::set_vector_unchecked`] of two elements.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set2_unchecked(&self, index: usize, values: [f32; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view and aligned, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "st.global.v2.f32 [{address}], {{{a}, {b}}};",
                address = in(reg64) self.pointer.add(index), a = in(reg32) values[0], b = in(reg32) values[1],
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.set_vector_unchecked(index, values);
        }
    }

    /// [`GlobalSliceMut::set_vector_unchecked`] of four elements.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set4_unchecked(&self, index: usize, values: [f32; 4]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view and aligned, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "st.global.v4.f32 [{address}], {{{a}, {b}, {c}, {d}}};",
                address = in(reg64) self.pointer.add(index),
                a = in(reg32) values[0], b = in(reg32) values[1], c = in(reg32) values[2], d = in(reg32) values[3],
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.set_vector_unchecked(index, values);
        }
    }
}

impl<'a, T: Element> GlobalSliceMut<'a, T> {
    /// The view of a slice in this processor's memory.
    #[inline(always)]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), len: slice.len() as u64, lifetime: PhantomData }
    }

    /// The view of `len` elements at `pointer`, which may be an address in a GPU's memory.
    ///
    /// # Safety
    /// For the lifetime of the view, wherever a kernel with this view runs, `pointer` is aligned for `T` and valid for
    /// reads and writes of `len` elements, and nothing else accesses them.
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        Self { pointer, len: len as u64, lifetime: PhantomData }
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    #[inline(always)]
    pub fn as_mut_ptr(&self) -> *mut T {
        self.pointer
    }

    /// Element `index`: one load.
    ///
    /// # Safety
    /// `index < self.len()` (checked on the CPU), and no other thread writes the element without a barrier between.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_unchecked(&self, index: usize) -> T {
        // SAFETY: in bounds by the caller's promise, and checked on the CPU; a view's memory is valid for its length.
        let value = unsafe { T::load(to_read(self.pointer, self.len(), index, 1, align_of::<T>())) };
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::trace_in(&value, core::panic::Location::caller());
        value
    }

    /// Writes `value` to element `index`: one store.
    ///
    /// # Safety
    /// `index < self.len()` (checked on the CPU), and no other thread accesses the element without a barrier between.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_unchecked(&self, index: usize, value: T) {
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::require_awaited(&value);
            crate::executor::trace_out(&value, "a store to global memory", core::panic::Location::caller());
        }
        // SAFETY: in bounds by the caller's promise, and checked on the CPU; a view's memory is valid for its length.
        unsafe { T::store(to_write(self.pointer, self.len(), index, 1, align_of::<T>()), value) }
    }

    /// The part that begins at element `first`. Its length is what is left.
    ///
    /// # Safety
    /// `first <= self.len()`. (On the CPU a larger one gives an empty slice, whose every access is reported, as
    /// one at the end of this view.)
    #[inline(always)]
    pub unsafe fn from_unchecked(self, first: usize) -> Self {
        #[cfg(not(target_arch = "nvptx64"))]
        let first = first.min(self.len());
        Self { pointer: self.pointer.wrapping_add(first), len: self.len - first as u64, lifetime: PhantomData }
    }

    /// The `N` elements from `index`, of 2, 4, 8 or 16 bytes together: one load (`ld.global.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::get_unchecked`] for all of them; the address of element `index` is a multiple of the size of the `N`
    /// elements. (Bounds and alignment are checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_vector_unchecked<const N: usize>(&self, index: usize) -> [T; N] {
        const { vector_bytes::<T, N>() };
        let read: GlobalSlice<'_, T> = GlobalSlice { pointer: self.pointer, len: self.len, lifetime: PhantomData };
        // SAFETY: the caller's promise. The load is an ordinary one, which stays between the stores before and behind it; that
        // nothing writes to the elements meanwhile is all that it needs of a read-only view.
        unsafe { read.get_vector_unchecked(index) }
    }

    /// Writes `N` elements from `index` on, of 2, 4, 8 or 16 bytes together: one store (`st.global.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::set_unchecked`] for all of them; the address of element `index` is a multiple of the size of the `N`
    /// elements. (Bounds and alignment are checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_vector_unchecked<const N: usize>(&self, index: usize, values: [T; N]) {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: inside the view, and aligned, by the caller's promise.
        unsafe {
            vector::store_global(self.pointer.add(index).cast_const(), values);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let first = to_write(self.pointer, self.len(), index, N, vector_bytes::<T, N>());
            for (i, value) in values.into_iter().enumerate() {
                crate::executor::require_awaited(&value);
                crate::executor::trace_out(&value, "a store to global memory", core::panic::Location::caller());
                // SAFETY: the elements are in bounds: just checked.
                unsafe { T::store(first.add(i), value) };
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<T> GlobalSliceMut<'_, T> {
    /// [`KernelParam::visit_views`] of this view, or of one that is made of it, with what a kernel may do to it.
    pub(crate) fn visit_as(
        &self,
        access: crate::ViewAccess,
        name: crate::ViewName<'_>,
        visit: &mut dyn FnMut(crate::View<'_>),
    ) {
        let (bytes, element_bytes) = (self.len as usize * size_of::<T>(), size_of::<T>());
        visit(crate::View { name, address: self.pointer.addr(), bytes, element_bytes, access });
    }
}

/// [`element`], for a read; ends the launch if it is part of a race.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn to_read<T>(pointer: *const T, len: usize, index: usize, count: usize, alignment: usize) -> *const T {
    #[cfg(not(target_arch = "nvptx64"))]
    let index = crate::executor::change_index("global-load", index, count);
    let address = element(pointer, len, index, count, alignment);
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::note_global_access(
        address.addr(),
        count * size_of::<T>(),
        crate::executor::AccessKind::Read,
        core::panic::Location::caller(),
    );
    address
}

/// [`element`], for a write; ends the launch if it is part of a race.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn to_write<T>(pointer: *mut T, len: usize, index: usize, count: usize, alignment: usize) -> *mut T {
    #[cfg(not(target_arch = "nvptx64"))]
    let index = crate::executor::change_index("global-store", index, count);
    let address = element(pointer.cast_const(), len, index, count, alignment).cast_mut();
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::note_global_access(
        address.addr(),
        count * size_of::<T>(),
        crate::executor::AccessKind::Write,
        core::panic::Location::caller(),
    );
    address
}

/// The address of the `count` elements from `index` of a view of `len` elements at `pointer`.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
pub(crate) fn element<T>(pointer: *const T, _len: usize, index: usize, _count: usize, _alignment: usize) -> *const T {
    // SAFETY: a view's pointer is to global memory. The addition may leave the view only where the caller breaks the
    // contract of the accessor.
    unsafe { crate::nvptx::global(pointer).add(index) }
}

/// The address of the `count` elements from `index` of a view of `len` elements at `pointer`; ends the launch with a
/// report unless they are in bounds and the address is a multiple of `alignment`.
///
/// Outside of a kernel it panics, because a view can be of a GPU's memory, and reading it is safe. Inside, the views are
/// those of the launch, which this processor can access: that is the contract of
/// [`Executor::launch`](crate::executor::Executor::launch).
#[inline(always)]
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
pub(crate) fn element<T>(pointer: *const T, len: usize, index: usize, count: usize, alignment: usize) -> *const T {
    if !crate::executor::is_in_kernel() {
        crate::executor::view_outside_of_a_kernel();
    }
    if index >= len || count > len.wrapping_sub(index) {
        crate::executor::out_of_bounds(pointer, len, index, count);
    }
    // In bounds; and the alignment is a power of two.
    let address = pointer.wrapping_add(index);
    if address.addr() & alignment.wrapping_sub(1) != 0 {
        crate::executor::misaligned(pointer, len, index, alignment);
    }
    address
}

// SAFETY: `repr(C)`, without padding, the same on both sides, and what `visit_views` reports is all the memory it names.
unsafe impl<T: Element + KernelParam> KernelParam for GlobalSlice<'_, T> {
    const LAYOUT: u64 = Layout::new("GlobalSlice").elements::<T>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        let (bytes, element_bytes) = (self.len() * size_of::<T>(), size_of::<T>());
        let (address, access) = (self.pointer.addr(), crate::ViewAccess::Read);
        visit(crate::View { name, address, bytes, element_bytes, access });
    }
}

// SAFETY: as above.
unsafe impl<T: Element + KernelParam> KernelParam for GlobalSliceMut<'_, T> {
    const LAYOUT: u64 = Layout::new("GlobalSliceMut").elements::<T>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.visit_as(crate::ViewAccess::ReadWrite, name, visit);
    }
}
