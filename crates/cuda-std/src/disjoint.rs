//! A view of global memory that safe code can write to: each element belongs to one thread.

mod own;
mod partition;

pub use own::{OwnChunk, OwnChunks, OwnElement, OwnElements, OwnRow, OwnRows};
pub use partition::{Partition, PerBlock, PerThread, PerWarp};

use core::marker::PhantomData;

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
/// # Other partitions
///
/// The type says how the elements are dealt out, for all threads of a launch alike: `DisjointSlice<'_, f32, PerThread<4>>`.
///
/// | partition | who has what | in a kernel |
/// |---|---|---|
/// | [`PerThread`] | thread `t` elements `t`, `t + T`, … | [`own`](Self::own), [`own_elements`](Self::own_elements) |
/// | [`PerThread<N>`](PerThread) | the same of chunks of `N` neighbours: vectors, or the coordinates of a body | [`own_chunks`](Self::own_chunks) |
/// | [`PerBlock`], [`PerWarp`] | a row at a time to each block, or warp; its threads have every `n`-th element of the row, where they are `n` | [`own_rows`](Self::own_rows) |
/// | [`PerBlock<N>`](PerBlock), [`PerWarp<N>`](PerWarp) | rows, whose chunks of `N` neighbours are dealt out to the threads | [`own_rows`](Self::own_rows), [`OwnRow::own_chunks`] |
///
/// The host divides a view: [`divided`](Self::divided). A launch refuses two views of the same memory, so no memory is dealt out in two ways
/// at once. The layout is that of a [`GlobalSliceMut`] with the length and number of rows behind it, if there are rows; [`whole`](Self::whole) is for a kernel that leaves the pattern.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DisjointSlice<'a, T, P: Partition = PerThread<1>> {
    /// Of what can be reached through it, a thread gets its own elements only.
    whole: GlobalSliceMut<'a, T>,
    rows: P::Rows,
}

impl<'a, T: Element> DisjointSlice<'a, T> {
    /// The view of a slice in this processor's memory.
    #[inline(always)]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { whole: GlobalSliceMut::new(slice), rows: PhantomData }
    }

    /// The view of `len` elements at `pointer`, which may be an address in a GPU's memory.
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::from_raw_parts`].
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { whole: unsafe { GlobalSliceMut::from_raw_parts(pointer, len) }, rows: PhantomData }
    }

    /// The first element that is this thread's own: the one with the [number of the thread](thread::index). `None` if there are fewer.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own(&self) -> Option<OwnElement<'a, T>> {
        let index = thread::index();
        if index < self.len() { Some(OwnElement::new(self.whole, index)) } else { None }
    }

    /// All elements that are this thread's own: the one with its number, and those that come so many later as there are threads.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own_elements(&self) -> OwnElements<'a, T> {
        OwnElements::new(self.whole, thread::index(), thread::count(), self.len())
    }
}

impl<'a, T: Element, P: Partition> DisjointSlice<'a, T, P> {
    /// The same memory, dealt out in another way.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{PerBlock, executor::{Checks, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// /// Each row with its number.
    /// #[kernel(block = 4)]
    /// fn number_rows(y: DisjointSlice<'_, u32, PerBlock>) {
    ///     for row in y.own_rows() {
    ///         row.own_elements().for_each(|y| y.set(row.index() as u32));
    ///     }
    /// }
    /// let mut y = [9; 15];
    /// let kernel = number_rows { y: DisjointSlice::new(&mut y).divided(PerBlock::rows(6)) };
    /// // SAFETY: the only view is of an array of this program.
    /// unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(2)) }.unwrap();
    /// assert_eq!(y, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// In a kernel, where threads could disagree on it. If rows have no elements, but the view has.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn divided<Q: Partition>(self, partition: Q) -> DisjointSlice<'a, T, Q> {
        assert!(
            !crate::executor::is_in_kernel(),
            "the host divides a view before a launch: threads could disagree on it"
        );
        DisjointSlice { whole: self.whole, rows: partition.rows_of(self.len()) }
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

    /// All elements, for what leaves the pattern: for instance to read those of other threads behind a barrier. What can be done with them is
    /// unsafe, and has to be in order with what threads do with their own elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, examples::run_over, thread};
    /// // The left neighbour's element.
    /// let values = run_over(4, &mut [0; 4], |x: DisjointSlice<'_, u32>| {
    ///     let own = x.own()?;
    ///     own.set(10 * own.index() as u32);
    ///     // SAFETY: all threads come here.
    ///     unsafe { thread::sync_threads() };
    ///     // SAFETY: the index is below that of the own element, and nobody writes behind the barrier.
    ///     own.index().checked_sub(1).map(|left| unsafe { x.whole().get_unchecked(left) })
    /// });
    /// assert_eq!(values, [None, Some(0), Some(10), Some(20)]);
    /// ```
    #[inline(always)]
    pub fn whole(&self) -> GlobalSliceMut<'a, T> {
        self.whole
    }
}

impl<'a, T: Element, const N: usize> DisjointSlice<'a, T, PerThread<N>> {
    /// All chunks of `N` neighbours that are this thread's own: the one with its number, and those that come so many later as there are
    /// threads. The last one of the view may be shorter.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerThread, examples::run_over};
    /// // Two threads, and chunks of four.
    /// let mut x = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, u32, PerThread<4>>| {
    ///     for chunk in x.own_chunks() {
    ///         let values = chunk.get_vector(0);
    ///         chunk.set_vector(values.map(|x| x * 10)); // and nothing behind the end
    ///     }
    /// });
    /// assert_eq!(x, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own_chunks(&self) -> OwnChunks<'a, T, N> {
        OwnChunks::new(self.whole, 0, self.len(), thread::index(), thread::count())
    }
}

impl<'a, T: Element, const N: usize> DisjointSlice<'a, T, PerBlock<N>> {
    /// All rows of which this thread has elements: those of its block.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own_rows(&self) -> OwnRows<'a, T, N> {
        OwnRows::new(self.whole, self.rows, partition::of_block())
    }
}

impl<'a, T: Element, const N: usize> DisjointSlice<'a, T, PerWarp<N>> {
    /// All rows of which this thread has elements: those of its warp.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerWarp, examples::run_over, thread};
    /// // A block of two warps, and rows of 40.
    /// let mut x = [0; 120];
    /// run_over(64, &mut x, |x: DisjointSlice<'_, u32, PerWarp>| {
    ///     for row in x.own_rows() {
    ///         row.own_elements().for_each(|x| x.set(thread::thread_idx_x()));
    ///     }
    /// });
    /// assert_eq!((x[0], x[31], x[32], x[40], x[80]), (0, 31, 0, 32, 0));
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn own_rows(&self) -> OwnRows<'a, T, N> {
        OwnRows::new(self.whole, self.rows, partition::of_warp())
    }
}

// SAFETY: `repr(C)`, without padding, the same on both sides, and what `visit_views` reports is all the memory it names.
unsafe impl<T: Element + KernelParam, P: Partition> KernelParam for DisjointSlice<'_, T, P> {
    const LAYOUT: u64 = Layout::new("DisjointSlice").elements::<T>().with(P::LAYOUT).fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.whole.visit_as(crate::ViewAccess::ReadWrite, name, visit);
    }
}
