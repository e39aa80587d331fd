//! How the elements of a view are dealt out to threads.

use core::marker::PhantomData;

use crate::{Layout, thread};

/// How the elements of a [`DisjointSlice`](crate::DisjointSlice) are dealt out: [`PerThread`], [`PerWarp`] or [`PerBlock`].
pub trait Partition: Copy + sealed::Sealed {
    /// What a view carries to the kernel beside the memory: the same bytes on both sides, without padding, or none at all.
    #[doc(hidden)]
    type Rows: Copy + Send + Sync;

    /// Stands for the partition.
    #[doc(hidden)]
    const LAYOUT: Layout;

    /// For a view of so many elements.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn rows_of(self, len: usize) -> Self::Rows;
}

mod sealed {
    pub trait Sealed {}
}

/// Chunks of `N` neighbouring elements, to each thread of the grid in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerThread<const N: usize = 1>;

impl<const N: usize> sealed::Sealed for PerThread<N> {}

impl<const N: usize> Partition for PerThread<N> {
    type Rows = PhantomData<()>;

    const LAYOUT: Layout = Layout::new("PerThread").sized::<[u8; N]>();

    #[cfg(not(target_arch = "nvptx64"))]
    fn rows_of(self, _len: usize) -> PhantomData<()> {
        PhantomData
    }
}

/// Rows of equal length, of which the last may be shorter. How many there are is worked out once, so that a kernel neither divides nor
/// overflows: the first element of a row whose number is below it is in the view.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub(super) len: u64,
    pub(super) count: u64,
}

impl Rows {
    /// Rows of `row` elements of a view of `len`.
    #[cfg(not(target_arch = "nvptx64"))]
    fn of(row: usize, len: usize) -> Self {
        assert!(row > 0 || len == 0, "rows of no elements do not divide a view of {len}: say how long a row is");
        // A row that is longer than the view is the view.
        let row = row.clamp(1, len.max(1));
        Self { len: row as u64, count: len.div_ceil(row) as u64 }
    }
}

macro_rules! in_rows {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<const N: usize = 1> {
            row: usize,
        }

        impl<const N: usize> $name<N> {
            /// Rows of so many elements.
            pub const fn rows(len: usize) -> Self {
                Self { row: len }
            }
        }

        impl<const N: usize> sealed::Sealed for $name<N> {}

        impl<const N: usize> Partition for $name<N> {
            type Rows = Rows;

            const LAYOUT: Layout = Layout::new(stringify!($name)).sized::<[u8; N]>();

            #[cfg(not(target_arch = "nvptx64"))]
            fn rows_of(self, len: usize) -> Rows {
                Rows::of(self.row, len)
            }
        }
    )* };
}

in_rows! {
    /// Rows to each block of the grid in turn; the chunks of `N` neighbours of a row, to each thread of the block in turn.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerBlock};
    /// let mut matrix = [0.0f32; 12];
    /// let by_rows: DisjointSlice<'_, f32, PerBlock> = DisjointSlice::new(&mut matrix).divided(PerBlock::rows(4));
    /// assert_eq!(by_rows.len(), 12);
    /// ```
    PerBlock;
    /// Rows to each warp of the grid in turn; the chunks of `N` neighbours of a row, to each lane in turn.
    ///
    /// ```
    /// # use tilewright_cuda_std::{DisjointSlice, PerWarp};
    /// let mut matrix = [0.0f32; 64];
    /// let by_rows: DisjointSlice<'_, f32, PerWarp<4>> = DisjointSlice::new(&mut matrix).divided(PerWarp::rows(32));
    /// assert!(!by_rows.is_empty());
    /// ```
    PerWarp;
}

/// A thread among those that share rows, and its group among all.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The number of the block or warp, and how many there are.
    pub(super) group: usize,
    pub(super) groups: usize,
    /// The number of the thread in it, and how many it has.
    pub(super) thread: usize,
    pub(super) threads: usize,
}

/// That of this thread in its block.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub(super) fn of_block() -> Place {
    let (x, y, z) = (thread::block_dim_x(), thread::block_dim_y(), thread::block_dim_z());
    let (columns, rows) = (thread::grid_dim_x() as usize, thread::grid_dim_y() as usize);
    let row = thread::block_idx_z() as usize * rows + thread::block_idx_y() as usize;
    Place {
        group: row * columns + thread::block_idx_x() as usize,
        groups: columns * rows * thread::grid_dim_z() as usize,
        thread: ((thread::thread_idx_z() * y + thread::thread_idx_y()) * x + thread::thread_idx_x()) as usize,
        threads: (x * y * z) as usize,
    }
}

/// That of this thread in its warp. The last warp of a block may have fewer lanes than 32.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub(super) fn of_warp() -> Place {
    let Place { group: block, groups: blocks, thread, threads } = of_block();
    let (warp, warps) = (thread / 32, threads.div_ceil(32));
    let lanes = (threads - 32 * warp).min(32);
    Place { group: block * warps + warp, groups: blocks * warps, thread: thread % 32, threads: lanes }
}
