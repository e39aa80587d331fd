//! The barrier of a whole grid, for cooperative launches: all blocks run at the same time, and meet.
//!
//! ```text
//!  block 0   write ─┐ sync ┌─ read what block 1 wrote …
//!  block 1   write ─┤      ├─ read what block 0 wrote …
//!  block 2   write ─┘      └─ …
//! ```
//!
//! CUDA C++ writes `cooperative_groups::this_grid().sync()`. Here the kernel says that it is `cooperative`, and brings the number at
//! which its blocks meet as an argument: a [`GlobalAtomics`] of one `u32` that was zero when it was allocated.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::{grid, prelude::*};
//!
//! /// Adds up 64 numbers of each block, and divides them all by the sum.
//! #[kernel(block = 64, cooperative, any_grid, requires(met.len() == 1, sums.len() == 1))]
//! pub fn normalize(x: DisjointSlice<'_, f32>, sums: GlobalAtomics<'_, f32>, met: GlobalAtomics<'_, u32>) {
//!     let Some(sum) = sums.get(0) else { return };
//!     for x in x.own_elements() {
//!         sum.fetch_add(x.get(), atomic::Relaxed, atomic::Scope::Device);
//!     }
//!     // SAFETY: all threads come here, once.
//!     unsafe { grid::sync(met) };
//!     let sum = sum.load(atomic::Relaxed, atomic::Scope::Device);
//!     for x in x.own_elements() {
//!         x.set(x.get() / sum);
//!     }
//! }
//! ```

use crate::atomic::{Acquire, GlobalAtomics, Release, Scope};
use crate::thread;

/// Flips at each meeting, when the last block has come.
const TURN: u32 = 1 << 31;

/// Waits until all threads of the grid have come here. What they wrote to global memory before, all of them see after.
///
/// `met` has one element that nothing else accesses. It is zero before the first meeting; a meeting leaves it ready for the next,
/// in this launch or a later one.
///
/// ```standalone_crate
/// # use cuda_std::{executor::{Checks, Executor}, grid, prelude::*};
/// # extern crate tilewright_cuda_std as cuda_std;
/// /// What the next block has written.
/// #[kernel(block = 32, cooperative, any_grid)]
/// fn exchange(x: GlobalSliceMut<'_, u32>, met: GlobalAtomics<'_, u32>) {
///     let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
///     // SAFETY: an element for each thread; the grid meets between what one block does with it and what another does.
///     unsafe {
///         x.set_unchecked(thread::index(), block);
///         grid::sync(met);
///         let next = x.get_unchecked((thread::index() + 32) % x.len());
///         gpu_assert!(next == (block + 1) % blocks, "{} is not the next", next);
///     }
/// }
/// # let (mut x, mut met) = ([0; 96], [0]);
/// # let kernel = exchange { x: GlobalSliceMut::new(&mut x), met: GlobalAtomics::new(&mut met) };
/// # // SAFETY: the views are of arrays of this program.
/// # unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(3)) }.unwrap();
/// # assert_eq!((x[0], x[32], x[64]), (0, 1, 2));
/// ```
///
/// # Safety
/// The kernel is `cooperative`, and all threads of the grid reach the same calls in the same order: the call does not stand in a
/// branch that only some of them take, and none has returned before.
///
/// # Panics
/// On the CPU, as a report, if the kernel is not `cooperative` or `met` is empty.
///
/// Source of the algorithm: the grid barrier of CUDA's cooperative groups (NVIDIA), a counter whose highest bit changes when the
/// last block has been counted.
#[inline(always)]
#[track_caller]
pub unsafe fn sync(met: GlobalAtomics<'_, u32>) {
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::require_cooperative();
    // SAFETY: the caller's promise.
    unsafe { thread::sync_threads() };
    if thread::thread_idx_x() + thread::thread_idx_y() + thread::thread_idx_z() == 0 {
        let blocks = thread::grid_dim_x() * thread::grid_dim_y() * thread::grid_dim_z();
        let is_first = thread::block_idx_x() + thread::block_idx_y() + thread::block_idx_z() == 0;
        // All together add 2³¹: the lower bits are zero again, and the highest is not what it was.
        let own = if is_first { TURN - (blocks - 1) } else { 1 };
        // SAFETY: there is an element, by the caller's promise.
        let met = unsafe { met.get_unchecked(0) };
        let before = met.fetch_add(own, Release, Scope::Device);
        while (before ^ met.load(Acquire, Scope::Device)) & TURN == 0 {}
    }
    // SAFETY: as above.
    unsafe { thread::sync_threads() };
}
