//! Clusters: a few blocks that run at the same time, beside one another, and reach one another's shared memory (sm_90).
//!
//! ```text
//!  cluster of 4 blocks      rank 0        rank 1        rank 2        rank 3
//!                           ┌──────┐      ┌──────┐      ┌──────┐      ┌──────┐
//!  shared memory            │ TILE │◄──┐  │ TILE │      │ TILE │      │ TILE │        each block has its own …
//!                           └──────┘   │  └──────┘      └──────┘      └──────┘
//!  threads                  ● ● ● ●    └─ ● ● ● ●       ● ● ● ●       ● ● ● ●         … TILE.of_block(0) is the first one's
//!                           ═══════════════════ sync ═══════════════════════
//! ```
//!
//! A kernel says how many blocks there are in one: `#[kernel(cluster = 4)]`. CUDA C++ writes `__cluster_dims__(4)`,
//! `cooperative_groups::this_cluster().sync()` and `cluster.map_shared_rank(TILE, 0)`.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::atomic::{Relaxed, Scope};
//! use cuda_std::executor::{Checks, Executor};
//! use cuda_std::{cluster, prelude::*};
//!
//! /// Counts bytes. The counters of a cluster are divided among its four blocks.
//! #[kernel(block = 64, cluster = 4, any_grid, requires(counts.len() == 256))]
//! pub fn histogram(bytes: GlobalSlice<'_, u8>, counts: GlobalSliceMut<'_, u32>) {
//!     static OWN: Shared<[u32; 64]> = Shared::new();
//!     let thread = thread::thread_idx_x() as usize;
//!     // SAFETY: a thread has its own counter at the beginning and at the end, between which the cluster meets: then all blocks of it have
//!     // begun, and none has ended. All other accesses are atomic.
//!     unsafe {
//!         OWN.write(thread, 0);
//!         cluster::sync();
//!         for at in (thread::index()..bytes.len()).step_by(thread::count()) {
//!             let byte = bytes.get_unchecked(at);
//!             let counters = OWN.of_block(u32::from(byte) / 64);
//!             counters.atomic(usize::from(byte) % 64).fetch_add(1, Relaxed, Scope::Cluster);
//!         }
//!         cluster::sync();
//!         let counter = counts.atomic_unchecked(64 * cluster::rank() as usize + thread);
//!         counter.fetch_add(OWN.read(thread), Relaxed, Scope::Device);
//!     }
//! }
//!
//! let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i >> 3) as u8).collect();
//! let mut counts = vec![0; 256];
//! let kernel = histogram { bytes: GlobalSlice::new(&bytes), counts: GlobalSliceMut::new(&mut counts) };
//! // SAFETY: the views are of slices of this program.
//! unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(8))? };
//! assert!((0..256).all(|value| counts[value] as usize == bytes.iter().filter(|byte| **byte as usize == value).count()));
//! # Ok::<(), cuda_std::executor::LaunchError>(())
//! ```
//!
//! # What orders the blocks of a cluster
//!
//! | | orders | completes |
//! |---|---|---|
//! | [`sync`], or [`arrive`] and [`wait`] | what each thread did before it arrived, before what each does after it has waited | when all threads of the cluster that have not returned have arrived |
//! | [`arrive_relaxed`] and [`wait`] | nothing; all blocks have begun | the same |
//! | atomic operations of [`Scope::Cluster`](crate::atomic::Scope::Cluster) | as their orders say | |
//! | [`RemoteBarrier::arrive`](crate::hopper::RemoteBarrier::arrive) and [`Barrier::wait_for_cluster`](crate::hopper::Barrier::wait_for_cluster) | what a thread did before it arrived, before what those do that waited | when the barrier's phase is over |
//!
//! Shared memory of another block is there from when the block has begun until it has ended. So a cluster meets before the first access
//! and after the last one. On the CPU all of this is checked: accesses of two blocks that nothing orders, an access that may come before
//! the block has begun or after it has ended, a rank that there is none of, threads that wait at the barrier of the cluster for others that
//! never come.

use crate::Element;
#[cfg(target_arch = "nvptx64")]
use crate::element::vector;
use crate::element::vector::vector_bytes;
use crate::shared::SharedArray;

macro_rules! registers {
    ($($name:ident, $last:literal, $register:literal, $on_cpu:expr, $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        /// ```
        /// # use tilewright_cuda_std::{cluster, examples::run_clusters};
        /// // A grid of 4×9×4 blocks of 32 threads, in clusters of 2×3×1.
        #[doc = concat!("let values = run_clusters((4, 9, 4), (2, 3, 1), 32, || cluster::", stringify!($name), "());")]
        #[doc = concat!("assert_eq!(values.last(), Some(&", $last, "));")]
        /// ```
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $name() -> u32 {
            #[cfg(target_arch = "nvptx64")]
            {
                let value: u32;
                // SAFETY: reading a special register has no preconditions.
                unsafe {
                    core::arch::asm!(
                        concat!("mov.u32 {}, %", $register, ";"),
                        out(reg32) value,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                value
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                $on_cpu
            }
        }
    )* };
}

registers! {
    rank, 5, "cluster_ctarank", crate::executor::cluster_rank(), "The number of this block in its cluster, x running fastest (`%cluster_ctarank`).";
    blocks, 6, "cluster_nctarank", crate::executor::cluster_blocks(), "The number of blocks of a cluster (`%cluster_nctarank`).";
    block_idx_x, 1, "cluster_ctaid.x", crate::executor::block_in_cluster().x, "The x coordinate of this block in its cluster (`%cluster_ctaid.x`).";
    block_idx_y, 2, "cluster_ctaid.y", crate::executor::block_in_cluster().y, "The y coordinate of this block in its cluster (`%cluster_ctaid.y`).";
    block_idx_z, 0, "cluster_ctaid.z", crate::executor::block_in_cluster().z, "The z coordinate of this block in its cluster (`%cluster_ctaid.z`).";
    dim_x, 2, "cluster_nctaid.x", crate::executor::cluster_dim().x, "The x extent of a cluster, in blocks (`%cluster_nctaid.x`).";
    dim_y, 3, "cluster_nctaid.y", crate::executor::cluster_dim().y, "The y extent of a cluster, in blocks (`%cluster_nctaid.y`).";
    dim_z, 1, "cluster_nctaid.z", crate::executor::cluster_dim().z, "The z extent of a cluster, in blocks (`%cluster_nctaid.z`).";
    idx_x, 1, "clusterid.x", crate::executor::cluster_idx().x, "The x coordinate of this cluster in the grid (`%clusterid.x`).";
    idx_y, 2, "clusterid.y", crate::executor::cluster_idx().y, "The y coordinate of this cluster in the grid (`%clusterid.y`).";
    idx_z, 3, "clusterid.z", crate::executor::cluster_idx().z, "The z coordinate of this cluster in the grid (`%clusterid.z`).";
    grid_dim_x, 2, "nclusterid.x", crate::executor::grid_of_clusters().x, "The x extent of the grid, in clusters (`%nclusterid.x`).";
    grid_dim_y, 3, "nclusterid.y", crate::executor::grid_of_clusters().y, "The y extent of the grid, in clusters (`%nclusterid.y`).";
    grid_dim_z, 4, "nclusterid.z", crate::executor::grid_of_clusters().z, "The z extent of the grid, in clusters (`%nclusterid.z`).";
}

/// Waits until all threads of the cluster that have not returned have come here: [`arrive`], and then [`wait`]. What they did to memory
/// before, all of them see after.
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
/// // Two blocks of one thread: each reads what the other has written.
/// let read = run_clusters(2, 2, 1, || {
///     static MAIL: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: the cluster meets between the writes and the reads, and before a block ends.
///     unsafe {
///         MAIL.write(0, 10 + cluster::rank());
///         cluster::sync();
///         let other = MAIL.of_block(1 - cluster::rank()).read(0);
///         cluster::sync();
///         other
///     }
/// });
/// assert_eq!(read, [11, 10]);
/// ```
///
/// # Safety
/// As for both.
#[inline(always)]
#[track_caller]
pub unsafe fn sync() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        arrive();
        wait();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::cluster_sync();
}

/// Arrives at the barrier of the cluster, and waits for the other threads of its warp that have not returned, and for nobody else
/// (`barrier.cluster.arrive.release`). What this thread did before, those see that [`wait`]; of what it does between the two, they may see
/// anything.
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
/// let read = run_clusters(2, 2, 1, || {
///     static MAIL: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: the cluster meets between the writes and the reads, and before a block ends; who arrives waits.
///     unsafe {
///         MAIL.write(0, 10 + cluster::rank());
///         cluster::arrive();
///         let other = 1 - cluster::rank(); // and whatever else needs nothing of other blocks
///         cluster::wait();
///         let read = MAIL.of_block(other).read(0);
///         cluster::sync();
///         read
///     }
/// });
/// assert_eq!(read, [11, 10]);
/// ```
///
/// # Safety
/// The thread [waits](wait) before it arrives again, and before it returns. All threads of its warp that have not returned come to a call
/// that arrives.
#[inline(always)]
#[track_caller]
pub unsafe fn arrive() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition. It touches memory as far as the compiler is concerned.
    unsafe {
        core::arch::asm!("barrier.cluster.arrive.release;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::cluster_arrive(true);
}

/// [`arrive`], which orders nothing (`barrier.cluster.arrive.relaxed`): who waits only knows that the threads have come, so that their blocks
/// have begun, and the barriers that they have initialized before they called [`fence_barrier_init`](crate::hopper::fence_barrier_init).
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
/// let received = run_clusters(2, 2, 1, || {
///     static MAIL: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: all blocks have begun when one writes to another; the cluster meets between the writes and the reads.
///     unsafe {
///         cluster::arrive_relaxed();
///         cluster::wait();
///         MAIL.of_block(1 - cluster::rank()).write(0, cluster::rank());
///         cluster::sync();
///         MAIL.read(0)
///     }
/// });
/// assert_eq!(received, [1, 0]);
/// ```
///
/// # Safety
/// As for [`arrive`].
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_relaxed() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `arrive`.
    unsafe {
        core::arch::asm!("barrier.cluster.arrive.relaxed;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::cluster_arrive(false);
}

/// Waits until all threads of the cluster that have not returned have arrived (`barrier.cluster.wait.acquire`).
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
/// let received = run_clusters(4, 4, 1, || {
///     static MAIL: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: all blocks have begun when one writes to another; the cluster meets between the writes and the reads.
///     unsafe {
///         cluster::sync();
///         MAIL.of_block((cluster::rank() + 1) % 4).write(0, cluster::rank());
///         cluster::arrive();
///         cluster::wait();
///         MAIL.read(0)
///     }
/// });
/// assert_eq!(received, [3, 0, 1, 2]);
/// ```
///
/// # Safety
/// The thread has arrived, and has not waited since. All threads of its warp that have not returned come to a call that waits.
#[inline(always)]
#[track_caller]
pub unsafe fn wait() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `arrive`.
    unsafe {
        core::arch::asm!("barrier.cluster.wait.acquire;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::cluster_wait();
}

/// The address in the shared window of the cluster at which the block of a rank has what this block has at `address` (`mapa`).
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn address_in_block(address: u32, rank: u32) -> u32 {
    let mapped: u32;
    // SAFETY: it computes an address. Which it is depends on the operands alone.
    unsafe {
        core::arch::asm!(
            "mapa.shared::cluster.u32 {mapped}, {address}, {rank};",
            mapped = out(reg32) mapped, address = in(reg32) address, rank = in(reg32) rank,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    mapped
}

/// A static shared array of another block of the cluster, or of this one: [`Shared::of_block`](crate::Shared::of_block).
///
/// An element is loaded and stored in one access, so it has 1, 2, 4, 8 or 16 bytes.
///
/// ```
/// # use tilewright_cuda_std::{cluster::{self, RemoteShared}, examples::run_clusters, prelude::*};
/// let sums = run_clusters(4, 4, 1, || {
///     static PART: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: the cluster meets between the writes and the reads, and before a block ends.
///     unsafe {
///         PART.write(0, 1 + cluster::rank());
///         cluster::sync();
///         let parts: [RemoteShared<[u32; 1]>; 4] = [0, 1, 2, 3].map(|rank| PART.of_block(rank));
///         let sum = parts.into_iter().map(|part| part.read(0)).sum::<u32>();
///         cluster::sync();
///         sum
///     }
/// });
/// assert_eq!(sums, [10; 4]);
/// ```
pub struct RemoteShared<A: SharedArray> {
    #[cfg(target_arch = "nvptx64")]
    address: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    array: &'static crate::executor::SharedIdentity,
    #[cfg(not(target_arch = "nvptx64"))]
    rank: u32,
    elements: core::marker::PhantomData<fn() -> A>,
}

impl<A: SharedArray> Clone for RemoteShared<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: SharedArray> Copy for RemoteShared<A> {}

impl<A: SharedArray> crate::Shared<A> {
    /// The array of the block of this rank in the cluster. What may be done with it, its methods say.
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let leaders = run_clusters(4, 4, 1, || {
    ///     static LEADER: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: the cluster meets between the writes and the reads, and before a block ends.
    ///     unsafe {
    ///         LEADER.write(0, thread::block_idx_x());
    ///         cluster::sync();
    ///         let leader = LEADER.of_block(0).read(0);
    ///         cluster::sync();
    ///         leader
    ///     }
    /// });
    /// assert_eq!(leaders, [0; 4]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn of_block(&'static self, rank: u32) -> RemoteShared<A> {
        #[cfg(target_arch = "nvptx64")]
        {
            let address = address_in_block(self.address(), rank);
            RemoteShared { address, elements: core::marker::PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::require_cluster();
            RemoteShared { array: self.identity(), rank, elements: core::marker::PhantomData }
        }
    }
}

impl<A: SharedArray> RemoteShared<A> {
    /// The element at `index`: one load (`ld.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let read = run_clusters(2, 2, 1, || {
    ///     static ROWS: Shared<[[u32; 2]; 2]> = Shared::new();
    ///     // SAFETY: the cluster meets between the writes and the reads, and before a block ends.
    ///     unsafe {
    ///         ROWS.write([1, 0], 10 + cluster::rank());
    ///         cluster::sync();
    ///         let read = ROWS.of_block(1 - cluster::rank()).read([1, 0]);
    ///         cluster::sync();
    ///         read
    ///     }
    /// });
    /// assert_eq!(read, [11, 10]);
    /// ```
    ///
    /// # Safety
    /// There is a block of this rank in the cluster, which has begun and not ended; `index` is within the array; the element has been
    /// written, and the write is ordered before this read. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(self, index: A::Index) -> A::Element {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, there, and free of races, by the caller's promise. An element is aligned to its size, or a multiple of it.
        unsafe {
            let [value] = vector::load_cluster::<A::Element, 1>(self.address_of(index));
            value
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::remote_read::<A::Element>(self.rank, self.place_of(index))
        }
    }

    /// Writes `value` to the element at `index`: one store (`st.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let received = run_clusters(2, 2, 1, || {
    ///     static MAIL: Shared<[u32; 2]> = Shared::new();
    ///     // SAFETY: the cluster meets before the writes, and between them and the reads; each thread writes an element of its own.
    ///     unsafe {
    ///         cluster::sync();
    ///         (0..2).for_each(|rank| MAIL.of_block(rank).write(cluster::rank() as usize, 10 + cluster::rank()));
    ///         cluster::sync();
    ///         (MAIL.read(0), MAIL.read(1))
    ///     }
    /// });
    /// assert_eq!(received, [(10, 11); 2]);
    /// ```
    ///
    /// # Safety
    /// There is a block of this rank in the cluster, which has begun and not ended; `index` is within the array; no other thread accesses
    /// the element without something that orders the two accesses. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(self, index: A::Index, value: A::Element) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `read`.
        unsafe {
            vector::store_cluster(self.address_of(index), [value]);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::remote_write(self.rank, self.place_of(index), value);
        }
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn address_of(self, index: A::Index) -> u32 {
        const {
            assert!(
                align_of::<A::Element>() == size_of::<A::Element>(),
                "an element of another block is aligned to its size"
            )
        };
        self.address.wrapping_add((A::offset(index) * size_of::<A::Element>()) as u32)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    #[track_caller]
    fn place_of(self, index: A::Index) -> (&'static crate::executor::SharedIdentity, usize) {
        (self.array, crate::executor::offset_in_array::<A>(self.array, index))
    }

    /// Where the element at `index` is, for atomic operations.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(crate) fn atomic_place(self, index: A::Index) -> crate::atomic::Place {
        #[cfg(target_arch = "nvptx64")]
        {
            crate::atomic::Place::Cluster(self.address_of(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let (array, offset) = self.place_of(index);
            crate::executor::remote_place(self.rank, array, offset)
        }
    }
}

/// A part of the dynamic shared memory of another block of the cluster, or of this one: [`SharedSlice::of_block`](crate::SharedSlice::of_block).
///
/// ```
/// # use tilewright_cuda_std::{cluster::{self, RemoteSlice}, examples::run_clusters, prelude::*};
/// let read = run_clusters(2, 2, 1, || {
///     // SAFETY: inside of the dynamic shared memory; the cluster meets between writes and reads, and before a block ends.
///     unsafe {
///         let own = dynamic_shared::<u32>(0, 8);
///         let other: RemoteSlice<u32> = own.of_block(1 - cluster::rank());
///         own.write(7, 10 + cluster::rank());
///         cluster::sync();
///         let read = other.read(7);
///         cluster::sync();
///         read
///     }
/// });
/// assert_eq!(read, [11, 10]);
/// ```
#[derive(Clone, Copy)]
pub struct RemoteSlice<T> {
    #[cfg(target_arch = "nvptx64")]
    address: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    slice: crate::SharedSlice<T>,
    #[cfg(not(target_arch = "nvptx64"))]
    rank: u32,
    len: usize,
    elements: core::marker::PhantomData<fn() -> T>,
}

impl<T: Element> crate::SharedSlice<T> {
    /// The slice at the same place in the shared memory of the block of this rank in the cluster. What may be done with it, its methods
    /// say.
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let lens = run_clusters(2, 2, 1, || {
    ///     // SAFETY: inside of the dynamic shared memory.
    ///     unsafe { dynamic_shared::<u32>(0, 8) }.of_block(1 - cluster::rank()).len()
    /// });
    /// assert_eq!(lens, [8, 8]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn of_block(self, rank: u32) -> RemoteSlice<T> {
        #[cfg(target_arch = "nvptx64")]
        {
            let address = address_in_block(self.shared_address(0), rank);
            RemoteSlice { address, len: self.len(), elements: core::marker::PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::require_cluster();
            RemoteSlice { slice: self, rank, len: self.len(), elements: core::marker::PhantomData }
        }
    }
}

impl<T: Element> RemoteSlice<T> {
    /// The number of elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run_clusters, shared::all_dynamic_shared};
    /// let lens = run_clusters(2, 2, 1, || all_dynamic_shared::<u64>().of_block(0).len());
    /// assert_eq!(lens, [8192; 2]);
    /// ```
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run_clusters, shared::all_dynamic_shared};
    /// let are_empty = run_clusters(2, 2, 1, || all_dynamic_shared::<u64>().of_block(0).is_empty());
    /// assert_eq!(are_empty, [false; 2]);
    /// ```
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `index`: one load (`ld.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let read = run_clusters(2, 2, 1, || {
    ///     // SAFETY: inside of the dynamic shared memory; the cluster meets between writes and reads, and before a block ends.
    ///     unsafe {
    ///         let mail = dynamic_shared::<u32>(0, 1);
    ///         mail.write(0, 10 + cluster::rank());
    ///         cluster::sync();
    ///         let read = mail.of_block(1 - cluster::rank()).read(0);
    ///         cluster::sync();
    ///         read
    ///     }
    /// });
    /// assert_eq!(read, [11, 10]);
    /// ```
    ///
    /// # Safety
    /// As for [`RemoteShared::read`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(self, index: usize) -> T {
        // SAFETY: the caller's promise; an element is aligned to its own size.
        let [value] = unsafe { self.read_vector(index) };
        value
    }

    /// Writes `value` to element `index`: one store (`st.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let received = run_clusters(2, 2, 1, || {
    ///     // SAFETY: inside of the dynamic shared memory; the cluster meets before the writes, and between them and the reads.
    ///     unsafe {
    ///         let mail = dynamic_shared::<u32>(0, 1);
    ///         cluster::sync();
    ///         mail.of_block(1 - cluster::rank()).write(0, cluster::rank());
    ///         cluster::sync();
    ///         mail.read(0)
    ///     }
    /// });
    /// assert_eq!(received, [1, 0]);
    /// ```
    ///
    /// # Safety
    /// As for [`RemoteShared::write`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(self, index: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.write_vector(index, [value]) }
    }

    /// The `N` elements from `index`, of 1, 2, 4, 8 or 16 bytes together: one load (`ld.shared::cluster.v4.b32` for 16 bytes).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let read = run_clusters(2, 2, 1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at its beginning; the cluster meets between writes and reads, and at the end.
    ///     unsafe {
    ///         let mail = dynamic_shared::<u32>(0, 4);
    ///         (0..4).for_each(|i| mail.write(i, 10 * cluster::rank() + i as u32));
    ///         cluster::sync();
    ///         let read = mail.of_block(1 - cluster::rank()).read_vector::<4>(0);
    ///         cluster::sync();
    ///         read
    ///     }
    /// });
    /// assert_eq!(read, [[10, 11, 12, 13], [0, 1, 2, 3]]);
    /// ```
    ///
    /// # Safety
    /// As for [`RemoteShared::read`] for all of them; counted from the beginning of the block's dynamic shared memory, the first of them
    /// lies at a multiple of their size together. (All of this is checked on the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read_vector<const N: usize>(self, index: usize) -> [T; N] {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: in bounds, there, aligned and free of races by the caller's promise.
        unsafe {
            vector::load_cluster(self.address_of(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::remote_read_slice(self.rank, self.slice.place(), index)
        }
    }

    /// Writes `N` elements from `index` on, of 1, 2, 4, 8 or 16 bytes together: one store (`st.shared::cluster.v4.b32` for 16 bytes).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, prelude::*};
    /// let received = run_clusters(2, 2, 1, || {
    ///     // SAFETY: inside of the dynamic shared memory, at its beginning; the cluster meets before the writes and the reads.
    ///     unsafe {
    ///         let mail = dynamic_shared::<u32>(0, 4);
    ///         cluster::sync();
    ///         mail.of_block(1 - cluster::rank()).write_vector(0, [cluster::rank(); 4]);
    ///         cluster::sync();
    ///         mail.read(3)
    ///     }
    /// });
    /// assert_eq!(received, [1, 0]);
    /// ```
    ///
    /// # Safety
    /// As for [`RemoteShared::write`] for all of them, and as for [`RemoteSlice::read_vector`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write_vector<const N: usize>(self, index: usize, values: [T; N]) {
        const { vector_bytes::<T, N>() };
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `read_vector`.
        unsafe {
            vector::store_cluster(self.address_of(index), values);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::remote_write_slice(self.rank, self.slice.place(), index, values);
        }
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn address_of(self, index: usize) -> u32 {
        self.address.wrapping_add((index * size_of::<T>()) as u32)
    }

    /// Where element `index` is, for atomic operations.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(crate) fn atomic_place(self, index: usize) -> crate::atomic::Place {
        #[cfg(target_arch = "nvptx64")]
        {
            crate::atomic::Place::Cluster(self.address_of(index))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::remote_place_in_slice(self.rank, self.slice.place(), index)
        }
    }
}
