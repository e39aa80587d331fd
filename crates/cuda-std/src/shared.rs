//! Shared memory: [`Shared`], a static array (`__shared__`), and [`SharedSlice`], a part of the dynamic shared memory
//! (`extern __shared__`), whose size is the kernel's own or chosen by each launch.

use crate::Element;
#[cfg(target_arch = "nvptx64")]
use crate::element::vector;
use crate::element::vector::vector_bytes;

/// A static array in shared memory, one for each block.
///
/// Declared inside a kernel, where [`kernel`](crate::kernel) places it in the `.shared` address space; the build fails
/// if such an array ends up anywhere else. A block's array holds nothing until the block has written to it.
///
/// ```standalone_crate
/// # extern crate tilewright_cuda_std as cuda_std;
/// use cuda_std::prelude::*;
///
/// /// Reverses blocks of 256 elements.
/// #[kernel(block = 256, requires(x.len() % 256 == 0))]
/// pub fn reverse_blocks_fp32(x: GlobalSliceMut<'_, f32>) {
///     static TILE: Shared<[f32; 256]> = Shared::new();
///     let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
///     if i - t >= x.len() {
///         return; // the same for the whole block
///     }
///     // SAFETY: i < x.len(), because the length is a multiple of the block; t < 256; the barrier, which all threads of
///     // the block reach, separates the writes to the tile from the reads.
///     unsafe {
///         TILE.write(t, x.get_unchecked(i));
///         thread::sync_threads();
///         x.set_unchecked(i, TILE.read(255 - t));
///     }
/// }
/// ```
///
/// `A` is `[T; N]` or an array of such; it is indexed by `usize`, or by `[row, column]`, or by `[plane, row, column]`.
/// A generic function cannot own a static, so a body that several kernels share takes `&'static Shared<…>` parameters.
pub struct Shared<A: SharedArray> {
    #[cfg(target_arch = "nvptx64")]
    array: core::cell::UnsafeCell<core::mem::MaybeUninit<A>>,
    #[cfg(not(target_arch = "nvptx64"))]
    identity: crate::executor::SharedIdentity,
    #[cfg(not(target_arch = "nvptx64"))]
    array: core::marker::PhantomData<fn() -> A>,
}

// SAFETY: every access is unsafe, and its contract rules out concurrent ones that conflict. (On the CPU the value holds no
// array at all, only the key to the block's.)
#[cfg(target_arch = "nvptx64")]
unsafe impl<A: SharedArray> Sync for Shared<A> {}

impl<A: SharedArray> Shared<A> {
    /// What the array takes of a block's static shared memory, in bytes.
    pub const BYTES: u32 = {
        let bytes = A::LEN * size_of::<A::Element>();
        assert!(bytes <= u32::MAX as usize, "a shared array has at most 4 GiB");
        bytes as u32
    };

    /// An array that holds nothing yet.
    ///
    /// ```
    /// # use tilewright_cuda_std::{Shared, examples::run};
    /// run(1, || {
    ///     // Inside of a kernel: 32 rows of 32 elements, and a column more, so that a column is in all banks.
    ///     static TILE: Shared<[[f32; 33]; 32]> = Shared::new();
    ///     // SAFETY: inside of the array, and there is one thread.
    ///     unsafe { TILE.write([31, 32], 1.0) }
    /// });
    /// assert_eq!(Shared::<[[f32; 33]; 32]>::BYTES, 4224);
    /// ```
    #[track_caller]
    #[allow(clippy::new_without_default, reason = "only meant as the initial value of a static")]
    pub const fn new() -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            Self { array: core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Self { identity: crate::executor::SharedIdentity::new::<A>(), array: core::marker::PhantomData }
        }
    }

    /// The element at `index`: one load from shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let mirrored = run((8, 4), || {
    ///     static TILE: Shared<[[u32; 8]; 4]> = Shared::new();
    ///     let (row, column) = (thread::thread_idx_y() as usize, thread::thread_idx_x() as usize);
    ///     // SAFETY: inside of the array; the barrier separates the writes from the reads.
    ///     unsafe {
    ///         TILE.write([row, column], thread::thread_idx_x());
    ///         thread::sync_threads();
    ///         TILE.read([row, 7 - column])
    ///     }
    /// });
    /// assert_eq!(mirrored[..8], [7, 6, 5, 4, 3, 2, 1, 0]);
    /// ```
    ///
    /// # Safety
    /// `index` is within the array; the element has been written, and the write is separated from this read by a barrier
    /// unless this thread made it. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(&'static self, index: A::Index) -> A::Element {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, and free of races, by the caller's promise.
        unsafe {
            A::Element::load(self.array.get().cast::<A::Element>().add(A::offset(index)))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let index = crate::executor::change_array_index::<A>("shared-load", index);
            crate::executor::shared_read::<A>(&self.identity, index)
        }
    }

    /// Writes `value` to the element at `index`: one store to shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let sums = run(32, || {
    ///     static TILE: Shared<[u32; 32]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: a thread has an element of its own; the barrier separates the writes from the reads.
    ///     unsafe {
    ///         TILE.write(t, t as u32);
    ///         thread::sync_threads();
    ///         (0..32).map(|i| TILE.read(i)).sum::<u32>()
    ///     }
    /// });
    /// assert_eq!(sums, [496; 32]);
    /// ```
    ///
    /// # Safety
    /// `index` is within the array, and no other thread accesses the element without a barrier between the two accesses.
    /// (Both are checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(&'static self, index: A::Index, value: A::Element) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, and free of races, by the caller's promise.
        unsafe {
            A::Element::store(self.array.get().cast::<A::Element>().add(A::offset(index)), value);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let index = crate::executor::change_array_index::<A>("shared-store", index);
            crate::executor::shared_write::<A>(&self.identity, index, value);
        }
    }
}

impl<A: SharedArray> Shared<A> {
    /// The address in the shared window, in bytes.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn address(&'static self) -> u32 {
        // SAFETY: the array is in shared memory.
        unsafe { crate::nvptx::shared_address(self.array.get().cast::<A::Element>()) }
    }

    /// By which the executor knows the array.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn identity(&'static self) -> &'static crate::executor::SharedIdentity {
        &self.identity
    }

    /// Where the element at `index` is, for atomic operations.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn place_of(&'static self, index: A::Index) -> crate::atomic::Place {
        #[cfg(target_arch = "nvptx64")]
        {
            let pointer = self.array.get().cast::<A::Element>().wrapping_add(A::offset(index));
            // SAFETY: the array is in shared memory.
            crate::atomic::Place::Shared(unsafe { crate::nvptx::shared_address(pointer) })
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let index = crate::executor::change_array_index::<A>("shared-atomic", index);
            crate::executor::static_atomic::<A>(&self.identity, index)
        }
    }
}

/// `len` elements of the dynamic shared memory. See [`dynamic_shared`] and [`all_dynamic_shared`].
///
/// ```
/// # use tilewright_cuda_std::{examples::run, prelude::*};
/// let values = run(1, || {
///     // SAFETY: inside of the dynamic shared memory, and there is one thread.
///     unsafe {
///         let (keys, counts) = (dynamic_shared::<u64>(0, 16), dynamic_shared::<u32>(128, 16));
///         keys.write(15, u64::MAX);
///         counts.write(0, 7);
///         (keys.read(15), counts.read(0))
///     }
/// });
/// assert_eq!(values, [(u64::MAX, 7)]);
/// ```
#[derive(Clone, Copy)]
pub struct SharedSlice<T> {
    #[cfg(target_arch = "nvptx64")]
    pointer: *mut T,
    #[cfg(not(target_arch = "nvptx64"))]
    byte_offset: usize,
    len: usize,
    #[cfg(not(target_arch = "nvptx64"))]
    element: core::marker::PhantomData<fn() -> T>,
}

/// The `len` elements that begin `byte_offset` bytes into the dynamic shared memory of this block.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, prelude::*};
/// let values = run(1, || {
///     // SAFETY: inside of the dynamic shared memory, at multiples of 4 bytes; there is one thread.
///     unsafe {
///         let (all, second_half) = (dynamic_shared::<f32>(0, 64), dynamic_shared::<f32>(128, 32));
///         all.write(40, 1.5);
///         second_half.read(8)
///     }
/// });
/// assert_eq!(values, [1.5]);
/// ```
///
/// # Safety
/// `byte_offset` is a multiple of the element's alignment, and the end is within the size that the launch was given. (Both are
/// checked on the CPU. Slices may overlap; races between their elements are seen there as between those of one slice.)
#[inline(always)]
#[track_caller]
pub unsafe fn dynamic_shared<T: Element>(byte_offset: usize, len: usize) -> SharedSlice<T> {
    #[cfg(target_arch = "nvptx64")]
    {
        unsafe extern "C" {
            /// The link step makes `.extern .shared` of it: the base of the dynamic shared memory.
            static __tilewright_dynamic_shared: [u8; 0];
        }
        // SAFETY: only the address is taken; the offset stays within the launch's size by the caller's promise.
        let pointer = unsafe { (&raw const __tilewright_dynamic_shared).cast::<u8>().add(byte_offset) };
        SharedSlice { pointer: pointer.cast_mut().cast(), len }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::dynamic_shared_bounds::<T>(byte_offset, len);
        SharedSlice { byte_offset, len, element: core::marker::PhantomData }
    }
}

/// The dynamic shared memory of this block, in bytes: what the kernel says (`dynamic_shared = bytes`), or what the launch has chosen
/// (`dynamic_shared`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, shared};
/// assert_eq!(run(1, || shared::dynamic_shared_bytes()), [64 << 10]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn dynamic_shared_bytes() -> usize {
    #[cfg(target_arch = "nvptx64")]
    {
        let bytes: u32;
        // SAFETY: reading a special register has no preconditions.
        unsafe {
            core::arch::asm!(
                "mov.u32 {}, %dynamic_smem_size;",
                out(reg32) bytes,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        bytes as usize
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::dynamic_shared_bytes()
    }
}

/// All of the dynamic shared memory of this block, as elements; bytes that make no whole element are left out.
///
/// ```standalone_crate
/// # extern crate tilewright_cuda_std as cuda_std;
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
/// use cuda_std::shared::all_dynamic_shared;
///
/// /// Reverses each block of elements. A launch chooses how many there are in one.
/// #[kernel(
///     block <= 1024,
///     dynamic_shared,
///     grid = (x.len() as u32 / block.x).max(1),
///     requires(block.y * block.z == 1, x.len() % block.x as usize == 0, dynamic_shared_bytes == 4 * block.x)
/// )]
/// pub fn reverse_blocks_fp32(x: GlobalSliceMut<'_, f32>) {
///     let (i, t, tile) = (thread::index_1d(), thread::thread_idx_x() as usize, all_dynamic_shared::<f32>());
///     if i - t >= x.len() {
///         return; // the same for the whole block
///     }
///     // SAFETY: i < x.len(), because the length is a multiple of the block; t is less than the block, and the tile has as many
///     // elements; the barrier, which all threads of the block reach, separates the writes to the tile from the reads.
///     unsafe {
///         tile.write(t, x.get_unchecked(i));
///         thread::sync_threads();
///         x.set_unchecked(i, tile.read(tile.len() - 1 - t));
///     }
/// }
///
/// let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let kernel = reverse_blocks_fp32 {
///     x: GlobalSliceMut::new(&mut x),
///     block: Dim3::from(3),
///     dynamic_shared_bytes: 12,
/// };
/// // SAFETY: the only view is of an array of this program.
/// unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(2))? };
/// assert_eq!(x, [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
#[inline(always)]
#[track_caller]
pub fn all_dynamic_shared<T: Element>() -> SharedSlice<T> {
    const { assert!(size_of::<T>() > 0, "an element of shared memory has at least one byte") };
    // SAFETY: it begins where the dynamic shared memory does, and ends within. Who accesses elements promises the rest.
    unsafe { dynamic_shared(0, dynamic_shared_bytes() / size_of::<T>()) }
}

impl<T: Element> SharedSlice<T> {
    /// The number of elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, shared::all_dynamic_shared};
    /// // Of 64 KiB.
    /// assert_eq!(run(1, || all_dynamic_shared::<f64>().len()), [8192]);
    /// ```
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, shared::all_dynamic_shared};
    /// let is_empty = run(1, || all_dynamic_shared::<f64>().skip(8192).is_empty());
    /// assert_eq!(is_empty, [true]);
    /// ```
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part that begins at element `first`; nothing if there is no such element. Where `first` is a constant it costs
    /// nothing: it becomes part of the instructions that access the elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, and there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<u32>(0, 64);
    ///         let second_row = tile.skip(16);
    ///         second_row.write(3, 5);
    ///         (second_row.len(), tile.read(19))
    ///     }
    /// });
    /// assert_eq!(values, [(48, 5)]);
    /// ```
    #[inline(always)]
    pub fn skip(self, first: usize) -> Self {
        Self {
            #[cfg(target_arch = "nvptx64")]
            pointer: self.pointer.wrapping_add(first),
            #[cfg(not(target_arch = "nvptx64"))]
            byte_offset: self.byte_offset + first.min(self.len) * size_of::<T>(),
            len: self.len.saturating_sub(first),
            ..self
        }
    }

    /// The address of element `index` in the shared window, in bytes: what instructions take that read or write shared
    /// memory by themselves. The index is not checked.
    #[inline(always)]
    #[cfg(target_arch = "nvptx64")]
    pub fn shared_address(&self, index: usize) -> u32 {
        // SAFETY: a slice of shared memory points to shared memory.
        unsafe { crate::nvptx::shared_address(self.pointer.wrapping_add(index)) }
    }

    /// Where the slice begins in the dynamic shared memory, in bytes, its number of elements, and the size of one.
    #[inline(always)]
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn place(&self) -> (usize, usize, usize) {
        (self.byte_offset, self.len, size_of::<T>())
    }

    /// Ends the launch unless the `bytes` bytes from element `index` are aligned to their size together, and notes that they are accessed at
    /// once, in `parts`.
    #[inline(always)]
    #[track_caller]
    #[cfg(not(target_arch = "nvptx64"))]
    fn note_vector(&self, kind: crate::executor::AccessKind, index: usize, bytes: usize, parts: usize) {
        let location = core::panic::Location::caller();
        crate::executor::require_aligned(self.place(), index, bytes, location);
        let byte = self.byte_offset.wrapping_add(index.wrapping_mul(size_of::<T>()));
        crate::executor::note_vector(kind, byte, bytes, parts, location);
    }

    /// Element `index`: one load from shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let reversed = run(32, || {
    ///     let t = thread::index();
    ///     // SAFETY: inside of the dynamic shared memory; the barrier separates the writes from the reads.
    ///     unsafe {
    ///         let tile = dynamic_shared::<u32>(0, 32);
    ///         tile.write(t, t as u32);
    ///         thread::sync_threads();
    ///         tile.read(31 - t)
    ///     }
    /// });
    /// assert_eq!((reversed[0], reversed[31]), (31, 0));
    /// ```
    ///
    /// # Safety
    /// As for [`Shared::read`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(&self, index: usize) -> T {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, and free of races, by the caller's promise.
        unsafe {
            T::load(self.pointer.add(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let index = crate::executor::change_index("shared-load", index, 1);
            crate::executor::dynamic_shared_read(self.byte_offset, self.len, index)
        }
    }

    /// Writes `value` to element `index`: one store to shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let sums = run(32, || {
    ///     let t = thread::index();
    ///     // SAFETY: a thread has an element of its own; the barrier separates the writes from the reads.
    ///     unsafe {
    ///         let tile = dynamic_shared::<u32>(0, 32);
    ///         tile.write(t, t as u32);
    ///         thread::sync_threads();
    ///         (0..32).map(|i| tile.read(i)).sum::<u32>()
    ///     }
    /// });
    /// assert_eq!(sums, [496; 32]);
    /// ```
    ///
    /// # Safety
    /// As for [`Shared::write`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(&self, index: usize, value: T) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, and free of races, by the caller's promise.
        unsafe {
            T::store(self.pointer.add(index), value);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let index = crate::executor::change_index("shared-store", index, 1);
            crate::executor::dynamic_shared_write(self.byte_offset, self.len, index, value);
        }
    }

    /// The `N` elements from `index`, of 2, 4, 8 or 16 bytes together: one load (`ld.shared.v4.b32` for 16 bytes).
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 8 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<u16>(0, 64);
    ///         (0..4).for_each(|i| tile.write(8 + i, i as u16));
    ///         tile.read_vector::<4>(8)
    ///     }
    /// });
    /// assert_eq!(values, [[0, 1, 2, 3]]);
    /// ```
    ///
    /// # Safety
    /// As for [`SharedSlice::read`] for all of them; counted from the beginning of the block's dynamic shared memory, the first of them
    /// lies at a multiple of their size together. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read_vector<const N: usize>(&self, index: usize) -> [T; N] {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, aligned and free of races by the caller's promise.
        unsafe {
            vector::load_shared(self.shared_address(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let bytes = vector_bytes::<T, N>();
            let index = crate::executor::change_index("shared-load", index, N);
            self.note_vector(crate::executor::AccessKind::Read, index, bytes, N);
            // SAFETY: every pattern of bits is a value of an element.
            let mut values: [T; N] = unsafe { core::mem::zeroed() };
            // No closure: its accesses would count as made here, not where the kernel makes them.
            for (i, value) in values.iter_mut().enumerate() {
                *value = crate::executor::dynamic_shared_read(self.byte_offset, self.len, index + i);
            }
            values
        }
    }

    /// Writes `N` elements from `index` on, of 2, 4, 8 or 16 bytes together: one store (`st.shared.v4.b32` for 16 bytes).
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 16 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<u32>(0, 64);
    ///         tile.write_vector(4, [1, 2, 3, 4]);
    ///         tile.read(6)
    ///     }
    /// });
    /// assert_eq!(values, [3]);
    /// ```
    ///
    /// # Safety
    /// As for [`SharedSlice::write`] for all of them; counted from the beginning of the block's dynamic shared memory, the first of them
    /// lies at a multiple of their size together. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write_vector<const N: usize>(&self, index: usize, values: [T; N]) {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, aligned and free of races by the caller's promise.
        unsafe {
            vector::store_shared(self.shared_address(index), values);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let bytes = vector_bytes::<T, N>();
            let index = crate::executor::change_index("shared-store", index, N);
            self.note_vector(crate::executor::AccessKind::Write, index, bytes, N);
            for (i, value) in values.into_iter().enumerate() {
                crate::executor::dynamic_shared_write(self.byte_offset, self.len, index + i, value);
            }
        }
    }
}

// As in global memory: by registers of fp32.
impl SharedSlice<f32> {
    /// [`SharedSlice::read_vector`] of two elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 8 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<f32>(0, 64);
    ///         tile.write(6, 0.5);
    ///         tile.write(7, 1.5);
    ///         tile.read2(6)
    ///     }
    /// });
    /// assert_eq!(values, [[0.5, 1.5]]);
    /// ```
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read2(&self, index: usize) -> [f32; 2] {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b): (f32, f32);
            // SAFETY: in bounds, aligned and free of races by the caller's promise. Not `pure`: it may not move across a
            // barrier.
            unsafe {
                core::arch::asm!(
                    "ld.shared.v2.f32 {{{a}, {b}}}, [{address}];",
                    a = out(reg32) a, b = out(reg32) b, address = in(reg32) self.shared_address(index),
                    options(readonly, nostack, preserves_flags),
                );
            }
            [a, b]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.read_vector(index)
        }
    }

    /// [`SharedSlice::read_vector`] of four elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 16 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<f32>(0, 64);
    ///         (0..4).for_each(|i| tile.write(8 + i, i as f32));
    ///         tile.read4(8)
    ///     }
    /// });
    /// assert_eq!(values, [[0.0, 1.0, 2.0, 3.0]]);
    /// ```
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read4(&self, index: usize) -> [f32; 4] {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b, c, d): (f32, f32, f32, f32);
            // SAFETY: as for `read2`.
            unsafe {
                core::arch::asm!(
                    "ld.shared.v4.f32 {{{a}, {b}, {c}, {d}}}, [{address}];",
                    a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                    address = in(reg32) self.shared_address(index),
                    options(readonly, nostack, preserves_flags),
                );
            }
            [a, b, c, d]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.read_vector(index)
        }
    }

    /// [`SharedSlice::write_vector`] of two elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 8 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<f32>(0, 64);
    ///         tile.write2(6, [0.5, 1.5]);
    ///         tile.read(7)
    ///     }
    /// });
    /// assert_eq!(values, [1.5]);
    /// ```
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write2(&self, index: usize, values: [f32; 2]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, aligned and free of races by the caller's promise.
        unsafe {
            core::arch::asm!(
                "st.shared.v2.f32 [{address}], {{{a}, {b}}};",
                address = in(reg32) self.shared_address(index), a = in(reg32) values[0], b = in(reg32) values[1],
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.write_vector(index, values);
        }
    }

    /// [`SharedSlice::write_vector`] of four elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, prelude::*};
    /// let values = run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at a multiple of 16 bytes; there is one thread.
    ///     unsafe {
    ///         let tile = dynamic_shared::<f32>(0, 64);
    ///         tile.write4(8, [1.0, 2.0, 3.0, 4.0]);
    ///         tile.read(9)
    ///     }
    /// });
    /// assert_eq!(values, [2.0]);
    /// ```
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write4(&self, index: usize, values: [f32; 4]) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, aligned and free of races by the caller's promise.
        unsafe {
            core::arch::asm!(
                "st.shared.v4.f32 [{address}], {{{a}, {b}, {c}, {d}}};",
                address = in(reg32) self.shared_address(index),
                a = in(reg32) values[0], b = in(reg32) values[1], c = in(reg32) values[2], d = in(reg32) values[3],
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.write_vector(index, values);
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The arrays that [`Shared`] and [`Constant`](crate::Constant) can hold: `[T; N]`, `[[T; C]; R]` and `[[[T; C]; R]; P]`.
///
/// ```
/// # use tilewright_cuda_std::{shared::SharedArray};
/// assert_eq!(<[f32; 32] as SharedArray>::LEN, 32);
/// assert_eq!(<[[f32; 33]; 32] as SharedArray>::LEN, 32 * 33);
/// // A plane, a row and a column.
/// let index: <[[[u8; 4]; 3]; 2] as SharedArray>::Index = [1, 2, 3];
/// assert_eq!(index.len(), 3);
/// ```
#[diagnostic::on_unimplemented(
    message = "shared memory holds no `{Self}`",
    note = "it holds arrays of one, two or three dimensions of elements: `Shared<[f32; 32]>`, `Shared<[[f32; 33]; 32]>`; a single number is `Shared<[f32; 1]>`"
)]
pub trait SharedArray: sealed::Sealed + 'static {
    /// What the array is made of.
    type Element: Element;
    /// `usize`, `[usize; 2]` or `[usize; 3]`.
    type Index: Copy + core::fmt::Debug;
    /// The number of elements.
    const LEN: usize;
    /// The extents, in the order of the indices.
    #[doc(hidden)]
    const EXTENTS: &'static [usize];

    /// The position of the element at `index` among all elements, the last index running fastest.
    #[doc(hidden)]
    fn offset(index: Self::Index) -> usize;

    /// Whether every coordinate of `index` is within its extent.
    #[doc(hidden)]
    fn contains(index: Self::Index) -> bool;

    /// The index of the element so many further on in its row, or further back; there may be none.
    #[doc(hidden)]
    fn moved(index: Self::Index, by: isize) -> Self::Index;
}

impl<T: Element, const N: usize> sealed::Sealed for [T; N] {}
impl<T: Element, const N: usize> SharedArray for [T; N] {
    type Element = T;
    type Index = usize;
    const LEN: usize = N;
    const EXTENTS: &'static [usize] = &[N];

    #[inline(always)]
    fn offset(index: usize) -> usize {
        index
    }

    #[inline(always)]
    fn contains(index: usize) -> bool {
        index < N
    }

    #[inline(always)]
    fn moved(index: usize, by: isize) -> usize {
        index.wrapping_add_signed(by)
    }
}

impl<T: Element, const C: usize, const R: usize> sealed::Sealed for [[T; C]; R] {}
impl<T: Element, const C: usize, const R: usize> SharedArray for [[T; C]; R] {
    type Element = T;
    type Index = [usize; 2];
    const LEN: usize = R * C;
    const EXTENTS: &'static [usize] = &[R, C];

    #[inline(always)]
    fn offset([row, column]: [usize; 2]) -> usize {
        row * C + column
    }

    #[inline(always)]
    fn contains([row, column]: [usize; 2]) -> bool {
        row < R && column < C
    }

    #[inline(always)]
    fn moved([row, column]: [usize; 2], by: isize) -> [usize; 2] {
        [row, column.wrapping_add_signed(by)]
    }
}

impl<T: Element, const C: usize, const R: usize, const P: usize> sealed::Sealed for [[[T; C]; R]; P] {}
impl<T: Element, const C: usize, const R: usize, const P: usize> SharedArray for [[[T; C]; R]; P] {
    type Element = T;
    type Index = [usize; 3];
    const LEN: usize = P * R * C;
    const EXTENTS: &'static [usize] = &[P, R, C];

    #[inline(always)]
    fn offset([plane, row, column]: [usize; 3]) -> usize {
        (plane * R + row) * C + column
    }

    #[inline(always)]
    fn contains([plane, row, column]: [usize; 3]) -> bool {
        plane < P && row < R && column < C
    }

    #[inline(always)]
    fn moved([plane, row, column]: [usize; 3], by: isize) -> [usize; 3] {
        [plane, row, column.wrapping_add_signed(by)]
    }
}
