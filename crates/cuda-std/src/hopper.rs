//! Instructions that only compute capability 9.0 has (`sm_90a`), beside the warpgroup products of [`wgmma`](crate::wgmma):
//! barriers in shared memory (`mbarrier`), TMA loads and stores of tiles, registers moved between warpgroups
//! (`setmaxnreg`), and named barriers of a part of a block.
//!
//! ```text
//!  producer                     barrier `full`                       consumers
//!  arrive_expecting(bytes) ───► 1 arrival, bytes to come
//!  load_tile(…, full) ────────► … bytes have come: phase over ─────► wait(parity) returns: the tile is there
//!                               barrier `empty`
//!  wait(parity) ◄────────────── all arrivals: phase over ◄────────── arrive(): the tile has been read
//! ```
//!
//! A barrier has phases. `wait(parity)` waits until the phase of that parity is over; the first phase has parity 0. A
//! barrier on which nothing has happened counts as having completed the phase of parity 1, so the producer's first wait
//! for an empty stage returns at once.
//!
//! On the CPU, all of them are modelled.

use crate::{SharedSlice, TensorMap, TensorMapMut};

mod pixels;

pub use pixels::load_pixels;

/// A barrier of the kind `mbarrier`: 8 bytes of shared memory.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::{Barrier, fence_barrier_init}, prelude::*};
/// let read = run(64, || {
///     static MAIL: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: one thread initializes the barrier before the block meets, and arrives once, which the phase expects.
///     unsafe {
///         let written = Barrier::at(dynamic_shared(0, 1), 0);
///         if thread::index() == 0 {
///             written.init(1);
///             fence_barrier_init();
///         }
///         thread::sync_threads();
///         if thread::index() == 0 {
///             MAIL.write(0, 42);
///             written.arrive();
///         }
///         written.wait(0);
///         MAIL.read(0)
///     }
/// });
/// assert_eq!(read, [42; 64]);
/// ```
#[derive(Clone, Copy)]
pub struct Barrier {
    #[cfg(target_arch = "nvptx64")]
    address: u32,
    /// Where it is in the dynamic shared memory, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    place: usize,
}

/// Waits for the end of a phase of the barrier at an address: `mbarrier.try_wait.parity` with these qualifiers until it succeeds.
#[cfg(target_arch = "nvptx64")]
macro_rules! wait_for_phase {
    ($qualifiers:literal, $address:expr, $parity:expr) => {
        loop {
            let over: u32;
            core::arch::asm!(
                "{{ .reg .pred over;",
                concat!("mbarrier.try_wait.parity", $qualifiers, ".shared::cta.b64 over, [{address}], {parity};"),
                "selp.u32 {over}, 1, 0, over; }}",
                over = out(reg32) over, address = in(reg32) $address, parity = in(reg32) $parity,
                options(nostack, preserves_flags),
            );
            if over != 0 {
                break;
            }
        }
    };
}

impl Barrier {
    /// The barrier at element `index` of a slice.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, hopper::{Barrier, fence_barrier_init}, prelude::*};
    /// run(1, || {
    ///     // SAFETY: inside of the dynamic shared memory; there is one thread, and a phase of each barrier has one arrival.
    ///     unsafe {
    ///         let barriers = dynamic_shared::<u64>(1024, 2);
    ///         let (full, empty) = (Barrier::at(barriers, 0), Barrier::at(barriers, 1));
    ///         full.init(1);
    ///         empty.init(1);
    ///         fence_barrier_init();
    ///         full.arrive();
    ///         full.wait(0); // a wait for `empty` would never end, and be reported
    ///     }
    /// });
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn at(slice: SharedSlice<u64>, index: usize) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            Self { address: slice.shared_address(index) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Self { place: crate::executor::dynamic_shared_place(slice.place(), index, size_of::<u64>()) }
        }
    }

    /// Prepares the barrier for phases of `arrivals` arrivals (`mbarrier.init`, sm_80).
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, hopper::{Barrier, fence_barrier_init}, prelude::*};
    /// run(1, || {
    ///     // SAFETY: there is one thread, and it arrives as often as the phase expects.
    ///     unsafe {
    ///         let barrier = Barrier::at(dynamic_shared(0, 1), 0);
    ///         barrier.init(2);
    ///         fence_barrier_init();
    ///         barrier.arrive();
    ///         barrier.arrive();
    ///         barrier.wait(0); // with one arrival less it would never end, and be reported
    ///     }
    /// });
    /// ```
    ///
    /// # Safety
    /// One thread calls this, once, and a barrier of the block separates it from what other threads of the block do with this barrier. Before
    /// TMA tells it of bytes, [`fence_barrier_init`] or [`fence_async_shared`] has made it visible to TMA. Before another block of the cluster
    /// uses it, the cluster meets: by [`cluster::sync`](crate::cluster::sync), or by
    /// [`arrive_relaxed`](crate::cluster::arrive_relaxed) behind [`fence_barrier_init`] and [`wait`](crate::cluster::wait).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn init(self, arrivals: u32) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the address is that of 8 bytes of shared memory which nothing else uses, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "mbarrier.init.shared::cta.b64 [{address}], {arrivals};",
                address = in(reg32) self.address, arrivals = in(reg32) arrivals,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::init_barrier(self.place, arrivals);
    }

    /// Arrives (`mbarrier.arrive`, sm_80). What this thread did before is seen by those who wait for the phase.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, hopper::{Barrier, fence_barrier_init}, prelude::*};
    /// let read = run(64, || {
    ///     static MAIL: Shared<[u32; 64]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: one thread initializes the barrier before the block meets; each thread arrives once, which the phase expects.
    ///     unsafe {
    ///         let barrier = Barrier::at(dynamic_shared(0, 1), 0);
    ///         if t == 0 {
    ///             barrier.init(64);
    ///             fence_barrier_init();
    ///         }
    ///         thread::sync_threads();
    ///         MAIL.write(t, t as u32);
    ///         barrier.arrive();
    ///         barrier.wait(0);
    ///         MAIL.read(63 - t)
    ///     }
    /// });
    /// assert_eq!((read[0], read[63]), (63, 0));
    /// ```
    ///
    /// # Safety
    /// The barrier has been initialized, and the phase expects this arrival.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive(self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: an initialized barrier, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "mbarrier.arrive.shared::cta.b64 _, [{address}];",
                address = in(reg32) self.address,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::arrive_at_barrier(self.place, 0);
    }

    /// Arrives, and makes the phase wait for `bytes` bytes from TMA besides (`mbarrier.arrive.expect_tx`,
    /// sm_90).
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
    /// // A matrix with rows of 32 numbers, of which TMA loads 8 at a time: 1024 bytes.
    /// let mut x = Vec::from_iter((0..512).map(|i| i as f32));
    /// let values = run_over(1, &mut x, |Matrix { map, .. }: Matrix<'_>| {
    ///     // SAFETY: there is one thread, which waits for the tile before it reads it.
    ///     unsafe {
    ///         let (tile, loaded) = (dynamic_shared::<f32>(0, 256), Barrier::at(dynamic_shared(1024, 1), 0));
    ///         loaded.init(1);
    ///         fence_barrier_init();
    ///         loaded.arrive_expecting(1024);
    ///         load_tile(tile, 0, map, [0, 0, 0], loaded);
    ///         loaded.wait(0);
    ///         tile.read(33)
    ///     }
    /// });
    /// assert_eq!(values, [33.0]);
    /// ```
    ///
    /// # Safety
    /// As for [`Barrier::arrive`]; copies of exactly so many bytes complete on the barrier in this phase.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: an initialized barrier, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{address}], {bytes};",
                address = in(reg32) self.address, bytes = in(reg32) bytes,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::arrive_at_barrier(self.place, bytes);
    }

    /// Waits until the phase of this parity is over (`mbarrier.try_wait.parity` until it succeeds, sm_90). What those who arrived
    /// had done before is seen after.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::run, hopper::{Barrier, fence_barrier_init}, prelude::*};
    /// run(1, || {
    ///     // SAFETY: there is one thread, and it arrives once in each phase.
    ///     unsafe {
    ///         let barrier = Barrier::at(dynamic_shared(0, 1), 0);
    ///         barrier.init(1);
    ///         fence_barrier_init();
    ///         barrier.wait(1); // returns at once: as if the phase before the first were over
    ///         for phase in 0..3 {
    ///             barrier.arrive();
    ///             barrier.wait(phase % 2);
    ///         }
    ///     }
    /// });
    /// ```
    ///
    /// # Safety
    /// The barrier has been initialized; the parity is 0 or 1, and that of the current phase or of the one before.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(self, parity: u32) {
        // SAFETY: an initialized barrier, by the caller's promise.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            wait_for_phase!("", self.address, parity);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::wait_for_phase(self.place, parity);
    }
}

impl Barrier {
    /// [`Barrier::wait`], after which is also seen what threads of other blocks of the cluster had done that
    /// [arrived](RemoteBarrier::arrive) (`mbarrier.try_wait.parity.acquire.cluster`, sm_90).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, hopper::*, prelude::*};
    /// // Two blocks of one thread: each writes to the other, and tells it by its barrier.
    /// let read = run_clusters(2, 2, 1, || {
    ///     static MAIL: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: the cluster meets when barriers are initialized, and before a block ends; a phase has one arrival.
    ///     unsafe {
    ///         let (written, other) = (Barrier::at(dynamic_shared(0, 1), 0), 1 - cluster::rank());
    ///         written.init(1);
    ///         fence_barrier_init();
    ///         cluster::sync();
    ///         MAIL.of_block(other).write(0, 10 + cluster::rank());
    ///         written.of_block(other).arrive();
    ///         written.wait_for_cluster(0);
    ///         cluster::sync();
    ///         MAIL.read(0)
    ///     }
    /// });
    /// assert_eq!(read, [11, 10]);
    /// ```
    ///
    /// # Safety
    /// As for [`Barrier::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait_for_cluster(self, parity: u32) {
        // SAFETY: an initialized barrier, by the caller's promise.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            wait_for_phase!(".acquire.cluster", self.address, parity);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::wait_for_phase_of_cluster(self.place, parity);
    }

    /// The barrier at the same place in the shared memory of the block of this rank in the [cluster](crate::cluster).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, hopper::*, prelude::*};
    /// run_clusters(4, 4, 1, || {
    ///     // SAFETY: the cluster meets when barriers are initialized, and before a block ends; the first one's has four arrivals.
    ///     unsafe {
    ///         let barrier = Barrier::at(dynamic_shared(0, 1), 0);
    ///         barrier.init(4);
    ///         fence_barrier_init();
    ///         cluster::sync();
    ///         barrier.of_block(0).arrive();
    ///         if cluster::rank() == 0 {
    ///             barrier.wait_for_cluster(0); // until all four blocks have arrived
    ///         }
    ///         cluster::sync();
    ///     }
    /// });
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn of_block(self, rank: u32) -> RemoteBarrier {
        #[cfg(target_arch = "nvptx64")]
        {
            RemoteBarrier { address: crate::cluster::address_in_block(self.address, rank) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::require_cluster();
            RemoteBarrier { rank, place: self.place }
        }
    }
}

/// A barrier of another block of the cluster, or of this one: [`Barrier::of_block`]. Threads of other blocks can arrive there, and not wait.
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::run_clusters, hopper::*, prelude::*};
/// run_clusters(2, 2, 1, || {
///     // SAFETY: the cluster meets when barriers are initialized, and before a block ends; a phase has one arrival.
///     unsafe {
///         let own = Barrier::at(dynamic_shared(0, 1), 0);
///         own.init(1);
///         fence_barrier_init();
///         cluster::sync();
///         let other: RemoteBarrier = own.of_block(1 - cluster::rank());
///         other.arrive();
///         own.wait_for_cluster(0);
///         cluster::sync();
///     }
/// });
/// ```
#[derive(Clone, Copy)]
pub struct RemoteBarrier {
    #[cfg(target_arch = "nvptx64")]
    address: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    rank: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    place: usize,
}

impl RemoteBarrier {
    /// Arrives (`mbarrier.arrive.release.cluster.shared::cluster`, sm_90). What this thread did before is seen by those who wait for the phase
    /// by [`Barrier::wait_for_cluster`].
    ///
    /// ```
    /// # use tilewright_cuda_std::{cluster, examples::run_clusters, hopper::*, prelude::*};
    /// // The first block writes to the second, and tells it.
    /// let read = run_clusters(2, 2, 1, || {
    ///     static MAIL: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: the cluster meets when barriers are initialized, and before a block ends; a phase has one arrival.
    ///     unsafe {
    ///         let written = Barrier::at(dynamic_shared(0, 1), 0);
    ///         written.init(1);
    ///         fence_barrier_init();
    ///         cluster::sync();
    ///         if cluster::rank() == 0 {
    ///             MAIL.of_block(1).write(0, 42);
    ///             written.of_block(1).arrive();
    ///         } else {
    ///             written.wait_for_cluster(0);
    ///         }
    ///         cluster::sync();
    ///         (cluster::rank() == 1).then(|| MAIL.read(0))
    ///     }
    /// });
    /// assert_eq!(read, [None, Some(42)]);
    /// ```
    ///
    /// # Safety
    /// There is a block of this rank in the cluster, which has begun and not ended; the barrier has been initialized, which is ordered before
    /// this, and the phase expects this arrival.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive(self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: an initialized barrier of a block that is there, by the caller's promise.
        unsafe {
            core::arch::asm!(
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{address}];",
                address = in(reg32) self.address,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::arrive_at_remote_barrier(self.rank, self.place);
    }
}

/// Makes the barriers that this thread has initialized visible to TMA, and to the cluster behind a barrier of it, even one at which the
/// thread [arrives relaxed](crate::cluster::arrive_relaxed) (`fence.mbarrier_init.release.cluster`, sm_90). Threads of the block need no fence:
/// a barrier of the block orders the initialization before what they do.
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// let mut x = [1.5; 256];
/// let values = run_over(1, &mut x, |Matrix { map, .. }: Matrix<'_>| {
///     // SAFETY: there is one thread, which waits for the tile before it reads it.
///     unsafe {
///         let (tile, loaded) = (dynamic_shared::<f32>(0, 256), Barrier::at(dynamic_shared(1024, 1), 0));
///         loaded.init(1);
///         fence_barrier_init(); // without it TMA might find no barrier there: the executor reports the load
///         loaded.arrive_expecting(1024);
///         load_tile(tile, 0, map, [0, 0, 0], loaded);
///         loaded.wait(0);
///         tile.read(255)
///     }
/// });
/// assert_eq!(values, [1.5]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn fence_barrier_init() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: a fence has no preconditions.
    unsafe {
        core::arch::asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::fence_barriers();
}

/// Makes what this thread has written to shared memory visible to TMA and to the tensor cores, once a barrier
/// has told them (`fence.proxy.async`, sm_90).
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// let mut y = [0.0; 512];
/// run_over(32, &mut y, |Matrix { map_mut, .. }: Matrix<'_>| {
///     // SAFETY: threads have elements of their own, which are visible to TMA when the block has met; one thread stores them.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 256);
///         (thread::index()..256).step_by(32).for_each(|i| tile.write(i, i as f32));
///         fence_async_shared();
///         thread::sync_threads();
///         if thread::index() == 0 {
///             store_tile(tile, 0, map_mut, [0, 8, 0]);
///             commit_stores();
///             wait_for_stores::<0>();
///         }
///     }
/// });
/// assert_eq!((y[255], y[256], y[511]), (0.0, 0.0, 255.0));
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn fence_async_shared() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: a fence has no preconditions.
    unsafe {
        core::arch::asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::fence_async();
}

/// Fetches a tensor map ahead of its first use (`prefetch.tensormap`, sm_90).
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*};
/// // It changes nothing but the time that the first tile takes on a GPU.
/// run_over(1, &mut [0.0; 256], |Matrix { map, .. }: Matrix<'_>| prefetch_tensor_map(map));
/// ```
#[inline(always)]
pub fn prefetch_tensor_map(map: TensorMap<'_>) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the address is that of a tensor map; fetching it changes nothing.
    unsafe {
        core::arch::asm!("prefetch.tensormap [{map}];", map = in(reg64) map.address(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        _ = map;
    }
}

/// Issues a TMA load of the tile at the coordinates `at` (the fastest-running first) of a three-dimensional tensor map
/// to the address of element `index` of `target`, and tell `barrier` of the bytes (`cp.async.bulk.tensor.3d`, sm_90). The
/// shape of the tile is the map's box; what lies outside of the matrix is filled with zeros. Coordinates are signed (`as u32`): a tile
/// may begin before the matrix. The first one is a multiple of 16 bytes; with another, an H200 ends the kernel for an illegal
/// instruction.
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// // A matrix with rows of 32 numbers, of which TMA loads 8 at a time: 1024 bytes.
/// let mut x = Vec::from_iter((0..512).map(|i| i as f32));
/// let values = run_over(1, &mut x, |Matrix { map, .. }: Matrix<'_>| {
///     // SAFETY: there is one thread, which waits for the tile before it reads it.
///     unsafe {
///         let (tile, loaded) = (dynamic_shared::<f32>(0, 256), Barrier::at(dynamic_shared(1024, 1), 0));
///         loaded.init(1);
///         fence_barrier_init();
///         loaded.arrive_expecting(1024);
///         load_tile(tile, 0, map, [4, 10, 0], loaded);
///         loaded.wait(0);
///         (tile.read(0), tile.read(31))
///     }
/// });
/// assert_eq!(values, [(324.0, 0.0)], "row 10, column 4, and zeros beyond the last column");
/// ```
///
/// # Safety
/// One thread calls this. The target is as large as the box, aligned as its swizzle needs (1024 bytes for 128-byte rows),
/// and nothing accesses it until the phase of the barrier that counts these bytes is over.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn load_tile(target: SharedSlice<f32>, index: usize, map: TensorMap<'_>, at: [u32; 3], barrier: Barrier) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes \
             [{target}], [{map}, {{{x}, {y}, {z}}}], [{barrier}];",
            target = in(reg32) target.shared_address(index), map = in(reg64) map.address(),
            x = in(reg32) at[0], y = in(reg32) at[1], z = in(reg32) at[2], barrier = in(reg32) barrier.address,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::load_tile(target.place(), index, map, at, barrier.place);
}

/// [`load_tile`] into the shared memory of several blocks of the [cluster](crate::cluster): of those of the ranks whose bits are set in
/// `ranks`, each at the place of `target` and to its own barrier at the place of `barrier` (`cp.async.bulk.tensor.3d.multicast::cluster`,
/// sm_90). The tile is read once.
///
/// ```
/// # use tilewright_cuda_std::{cluster, examples::{Matrix, run_over_cluster}, hopper::*, prelude::*};
/// // Two blocks of one thread: the first loads a tile for both.
/// let mut x = Vec::from_iter((0..256).map(|i| i as f32));
/// let values = run_over_cluster(2, 1, &mut x, |Matrix { map, .. }: Matrix<'_>| {
///     // SAFETY: the cluster meets when both barriers expect the bytes, and before a block ends.
///     unsafe {
///         let (tile, loaded) = (dynamic_shared::<f32>(0, 256), Barrier::at(dynamic_shared(1024, 1), 0));
///         loaded.init(1);
///         fence_barrier_init();
///         loaded.arrive_expecting(1024);
///         cluster::sync();
///         if cluster::rank() == 0 {
///             load_tile_to_blocks(tile, 0, map, [0, 0, 0], loaded, 0b11);
///         }
///         loaded.wait(0);
///         cluster::sync();
///         tile.read(255)
///     }
/// });
/// assert_eq!(values, [255.0; 2]);
/// ```
///
/// # Safety
/// As for [`load_tile`], for each of these blocks: it has begun and not ended, its barrier counts the bytes, and nothing accesses its target
/// until the phase is over. `ranks` names at least one block, and no rank that there is not.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn load_tile_to_blocks(
    target: SharedSlice<f32>,
    index: usize,
    map: TensorMap<'_>,
    at: [u32; 3],
    barrier: Barrier,
    ranks: u16,
) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster \
             [{target}], [{map}, {{{x}, {y}, {z}}}], [{barrier}], {ranks};",
            target = in(reg32) target.shared_address(index), map = in(reg64) map.address(),
            x = in(reg32) at[0], y = in(reg32) at[1], z = in(reg32) at[2], barrier = in(reg32) barrier.address,
            ranks = in(reg16) ranks,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::load_tile_to_blocks(target.place(), index, map, at, barrier.place, ranks);
}

/// Issues a TMA store of the tile from the address of element `index` of `source` to the coordinates `at` (the
/// fastest-running first) of a three-dimensional tensor map (`cp.async.bulk.tensor.3d`, sm_90). The shape of the tile is the
/// map's box; what lies behind the end of the matrix is not stored, by pieces of 16 bytes. Coordinates are not negative, and the first
/// one is a multiple of 16 bytes; with others, an H200 ends the kernel for an illegal instruction. [`commit_stores`] and [`wait_for_stores`] tell when it is
/// done.
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// // A matrix with rows of 32 numbers, of which TMA stores 8 at a time.
/// let mut y = [0.0; 512];
/// run_over(1, &mut y, |Matrix { map_mut, .. }: Matrix<'_>| {
///     // SAFETY: there is one thread, and what it has written is visible to TMA.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 256);
///         (0..256).for_each(|i| tile.write(i, i as f32));
///         fence_async_shared();
///         store_tile(tile, 0, map_mut, [0, 8, 0]);
///         commit_stores();
///         wait_for_stores::<0>();
///     }
/// });
/// assert_eq!((y[255], y[256], y[511]), (0.0, 0.0, 255.0));
/// ```
///
/// # Safety
/// One thread calls this. The source is as large as the box, aligned as its swizzle needs (1024 bytes for 128-byte rows), and
/// nothing writes to it until the store has read it; what was written there by whatever thread is followed by a
/// [`fence_async_shared`] of that thread, and that by a barrier. No other thread accesses what is stored.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn store_tile(source: SharedSlice<f32>, index: usize, map: TensorMapMut<'_>, at: [u32; 3]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [{map}, {{{x}, {y}, {z}}}], [{source}];",
            source = in(reg32) source.shared_address(index), map = in(reg64) map.address(),
            x = in(reg32) at[0], y = in(reg32) at[1], z = in(reg32) at[2],
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::store_tile(source.place(), index, map.map(), at);
}

/// [`store_tile`] of what is not read soon, because all that is stored is more than the second-level cache holds: that is told to let go of it first
/// (`evict_first`).
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// let mut y = [0.0; 512];
/// run_over(1, &mut y, |Matrix { map_mut, .. }: Matrix<'_>| {
///     // SAFETY: there is one thread, and what it has written is visible to TMA.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 256);
///         (0..256).for_each(|i| tile.write(i, 2.5));
///         fence_async_shared();
///         store_tile_streamed(tile, 0, map_mut, [0, 8, 0]);
///         commit_stores();
///         wait_for_stores::<0>();
///     }
/// });
/// assert_eq!((y[255], y[256]), (0.0, 2.5));
/// ```
///
/// # Safety
/// As for [`store_tile`].
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn store_tile_streamed(source: SharedSlice<f32>, index: usize, map: TensorMapMut<'_>, at: [u32; 3]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 policy;",
            "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;",
            "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint \
             [{map}, {{{x}, {y}, {z}}}], [{source}], policy; }}",
            source = in(reg32) source.shared_address(index), map = in(reg64) map.address(),
            x = in(reg32) at[0], y = in(reg32) at[1], z = in(reg32) at[2],
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::store_tile(source.place(), index, map.map(), at);
}

/// Makes a group of the stores that this thread has had made since the last one (`cp.async.bulk.commit_group`, sm_90).
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, prelude::*};
/// let mut y = [0.0; 512];
/// run_over(1, &mut y, |Matrix { map_mut, .. }: Matrix<'_>| {
///     // SAFETY: there is one thread, and what it has written is visible to TMA.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 256);
///         (0..256).for_each(|i| tile.write(i, 1.5));
///         fence_async_shared();
///         store_tile(tile, 0, map_mut, [0, 0, 0]);
///         store_tile(tile, 0, map_mut, [0, 8, 0]);
///         commit_stores(); // both
///         wait_for_stores::<0>();
///     }
/// });
/// assert_eq!(y, [1.5; 512]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn commit_stores() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: it has no preconditions.
    unsafe {
        core::arch::asm!("cp.async.bulk.commit_group;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::commit_stores();
}

/// Waits until no more than `PENDING` of this thread's latest groups of stores still read shared memory
/// (`cp.async.bulk.wait_group.read`, sm_90).
///
/// ```
/// # use tilewright_cuda_std::{examples::{Matrix, run_over}, hopper::*, shared};
/// let mut y = [0.0; 512];
/// run_over(1, &mut y, |Matrix { map_mut, .. }: Matrix<'_>| {
///     let tile = shared::all_dynamic_shared::<f32>();
///     for row in [0, 8] {
///         // SAFETY: there is one thread, which writes to the tile when TMA has read it, and makes it visible to TMA.
///         unsafe {
///             wait_for_stores::<0>();
///             (0..256).for_each(|i| tile.write(i, row as f32));
///             fence_async_shared();
///             store_tile(tile, 0, map_mut, [0, row, 0]);
///         }
///         commit_stores();
///     }
///     wait_for_stores::<0>();
/// });
/// assert_eq!((y[0], y[511]), (0.0, 8.0));
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn wait_for_stores<const PENDING: u32>() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: it has no preconditions.
    unsafe {
        core::arch::asm!("cp.async.bulk.wait_group.read {pending};", pending = const PENDING, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::wait_for_stores(PENDING.into());
}

/// Gives up registers of this warp, down to `N` for each thread (`setmaxnreg.dec`, sm_90a).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::*, thread};
/// // Two warpgroups of 168 registers a thread to begin with: the second multiplies, with what the first does not need.
/// run(384, || {
///     // SAFETY: whole warpgroups come here, once; what they ask for is not more than there is.
///     unsafe {
///         match thread::index() / 128 {
///             0 => release_registers::<40>(),
///             _ => acquire_registers::<232>(),
///         }
///     }
/// });
/// ```
///
/// # Safety
/// All warps of the warpgroup call this once, before they need as many; `N` is a multiple of 8 from 24 to 256 and at most
/// what a thread has now.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn release_registers<const N: u32>() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("setmaxnreg.dec.sync.aligned.u32 {count};", count = const N, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::release_registers(N);
}

/// Asks for registers that others have given up, up to `N` for each thread, and waits for them (`setmaxnreg.inc`, sm_90a).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::*, thread};
/// run(384, || {
///     // SAFETY: whole warpgroups come here, once; 40 + 2·232 is not more than the 3·168 that the block begins with.
///     unsafe {
///         match thread::index() / 128 {
///             0 => release_registers::<40>(),
///             _ => acquire_registers::<232>(), // waits for the first; with 240 it would wait forever, and be reported
///         }
///     }
/// });
/// ```
///
/// # Safety
/// As for [`release_registers`], with `N` at least what a thread has now; the registers of all warps together are not more
/// than the block was launched with.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn acquire_registers<const N: u32>() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("setmaxnreg.inc.sync.aligned.u32 {count};", count = const N, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::acquire_registers(N);
}

/// Waits until `THREADS` threads of the block have come to barrier `id`, here or to [`arrive_at_part`] (`bar.sync`). Barrier 0 is
/// that of [`sync_threads`](crate::thread::sync_threads).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::sync_part, prelude::*};
/// // Four warps, of which each two exchange numbers.
/// let read = run(128, || {
///     static TILE: Shared<[u32; 128]> = Shared::new();
///     let t = thread::index();
///     // SAFETY: a thread has an element of its own; both warps of a part come to its barrier, 1 or 2.
///     unsafe {
///         TILE.write(t, t as u32);
///         sync_part::<64>(1 + t as u32 / 64);
///         TILE.read(t ^ 63)
///     }
/// });
/// assert_eq!((read[0], read[127]), (63, 64));
/// ```
///
/// # Safety
/// `id` is below 16. Exactly `THREADS` threads meet, in whole warps, of which each comes by one call; and whoever comes for the next
/// meeting, the same warp or another one, is ordered behind the arrivals of all of them.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn sync_part<const THREADS: u32>(id: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "bar.sync {id}, {threads};",
            id = in(reg32) id, threads = const THREADS,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::meet_at_number(id, THREADS);
}

/// Comes to barrier `id`, at which `THREADS` threads of the block meet, without waiting for the others (`bar.arrive`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::{arrive_at_part, sync_part}, prelude::*};
/// // The first warp writes and goes on; the second waits for it.
/// let read = run(64, || {
///     static TILE: Shared<[u32; 32]> = Shared::new();
///     let t = thread::index();
///     // SAFETY: both warps come to barrier 1, once, before the second one reads.
///     unsafe {
///         if t < 32 {
///             TILE.write(t, t as u32);
///             arrive_at_part::<64>(1);
///             return None;
///         }
///         sync_part::<64>(1);
///         Some(TILE.read(t - 32))
///     }
/// });
/// assert_eq!((read[0], read[63]), (None, Some(31)));
/// ```
///
/// # Safety
/// As for [`sync_part`].
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn arrive_at_part<const THREADS: u32>(id: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "bar.arrive {id}, {threads};",
            id = in(reg32) id, threads = const THREADS,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::arrive_at_number(id, THREADS);
}

/// True for one lane of the warp, always the same one (`elect.sync`, sm_90). Unlike a comparison of the lane's number it
/// takes no register.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hopper::elect_one};
/// // SAFETY: all lanes come here together.
/// let elected = run(64, || unsafe { elect_one() });
/// assert_eq!(elected.iter().filter(|elected| **elected).count(), 2, "one in each warp");
/// ```
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn elect_one() -> bool {
    #[cfg(target_arch = "nvptx64")]
    {
        let elected: u32;
        // SAFETY: the caller's promise.
        unsafe {
            core::arch::asm!(
                "{{ .reg .pred elected;",
                "elect.sync _|elected, 0xFFFFFFFF;",
                "selp.u32 {elected}, 1, 0, elected; }}",
                elected = out(reg32) elected,
                options(nomem, nostack, preserves_flags),
            );
        }
        elected != 0
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::elect()
}
