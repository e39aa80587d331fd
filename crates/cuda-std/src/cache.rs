//! Hints for the caches: how a load or a store of global memory uses them, and prefetches. A hint changes no value.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::cache;
//! use cuda_std::prelude::*;
//!
//! /// `y[i] = table[x[i]]`: numbers that are read and written once leave the first-level cache to the table.
//! #[kernel(block = 256, requires(x.len() == y.len()))]
//! pub fn look_up(x: GlobalSlice<'_, u32>, table: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
//!     for y in y.own_elements() {
//!         x.prefetch_l2(y.index() + 4 * thread::count());
//!         if let Some(index) = x.get_hinted(y.index(), cache::Streaming)
//!             && let Some(value) = table.get_hinted(index as usize, cache::EvictLast)
//!         {
//!             y.set_hinted(value, cache::Streaming);
//!         }
//!     }
//! }
//! ```
//!
//! | hint | load | store | what it says | CUDA C++ |
//! |---|---|---|---|---|
//! | [`L2Only`] | `.cg` | `.cg` | keep it in the second-level cache only | `__ldcg`, `__stcg` |
//! | [`Streaming`] | `.cs` | `.cs` | it is accessed once: let it be the first to go, in both caches | `__ldcs`, `__stcs` |
//! | [`LastUse`] | `.lu` | | it is not read again | `__ldlu` |
//! | [`Uncached`] | `.cv` | | fetch it anew, whatever the caches have | `__ldcv` |
//! | [`WriteThrough`] | | `.wt` | write it through the second-level cache | `__stwt` |
//! | [`ReadOnly`] | `.nc` | | nothing writes to it while the kernel runs: it may come by the texture path | `__ldg` |
//! | [`ReadOnlyOnce`] | `.nc.L1::no_allocate` | | the same, and it takes no room in the first-level cache | |
//! | [`NoAllocate`] | `.L1::no_allocate` | `.L1::no_allocate` | it takes no room in the first-level cache | |
//! | [`EvictFirst`] | `.L1::evict_first` | `.L1::evict_first` | let it be the first to go from the first-level cache | |
//! | [`EvictLast`] | `.L1::evict_last` | `.L1::evict_last` | let it be the last to go from there | |
//!
//! A load by [`ReadOnly`] or [`ReadOnlyOnce`] of memory that the kernel writes to would be wrong, so only a [`GlobalSlice`] has those. All
//! hints are for elements and vectors of 1, 2, 4, 8 or 16 bytes: one access, at a multiple of its size. The CPU executor checks these
//! accesses as it does all others, and has no caches.
//!
//! [`GlobalSlice`]: crate::GlobalSlice

#[cfg(target_arch = "nvptx64")]
use crate::Element;
#[cfg(target_arch = "nvptx64")]
use crate::element::vector;

mod sealed {
    pub trait Sealed {}
}

/// How a load uses the caches.
///
/// ```
/// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
/// fn first<H: cache::LoadHint>(x: GlobalSlice<'_, f32>, hint: H) -> Option<f32> {
///     x.get_hinted(0, hint)
/// }
/// let values = run_over(1, &mut [1.5], |x: GlobalSlice<'_, f32>| first(x, cache::ReadOnly));
/// assert_eq!(values, [Some(1.5)]);
/// ```
pub trait LoadHint: Copy + sealed::Sealed {
    /// # Safety
    /// The elements are in global memory that is valid for reads of them, and the address is a multiple of their size together.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn load<T: Element, const N: usize>(address: *const T) -> [T; N];
}

/// How a load uses the caches of memory that the kernel may write to.
///
/// ```
/// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
/// fn own<H: cache::CoherentLoadHint>(x: DisjointSlice<'_, f32>, hint: H) -> Option<f32> {
///     Some(x.own()?.get_hinted(hint)) // of memory that the kernel may write to: not by `ReadOnly`
/// }
/// let values = run_over(1, &mut [1.5], |x: DisjointSlice<'_, f32>| own(x, cache::L2Only));
/// assert_eq!(values, [Some(1.5)]);
/// ```
pub trait CoherentLoadHint: LoadHint {}

/// How a store uses the caches.
///
/// ```
/// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
/// fn clear<H: cache::StoreHint>(x: DisjointSlice<'_, f32>, hint: H) -> Option<()> {
///     Some(x.own()?.set_hinted(0.0, hint))
/// }
/// let mut x = [1.5];
/// run_over(1, &mut x, |x: DisjointSlice<'_, f32>| clear(x, cache::Streaming));
/// assert_eq!(x, [0.0]);
/// ```
pub trait StoreHint: Copy + sealed::Sealed {
    /// # Safety
    /// As for a load, and the memory is valid for writes.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn store<T: Element, const N: usize>(address: *const T, values: [T; N]);
}

macro_rules! hints {
    ($($(#[$doc:meta])* $name:ident $(, load $load:ident $($coherent:ident)?)? $(, store $store:ident)?;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl sealed::Sealed for $name {}

        $(
            impl LoadHint for $name {
                #[inline(always)]
                #[cfg(target_arch = "nvptx64")]
                unsafe fn load<T: Element, const N: usize>(address: *const T) -> [T; N] {
                    // SAFETY: the caller's promise.
                    unsafe { vector::$load(address) }
                }
            }
            $( impl $coherent for $name {} )?
        )?

        $(
            impl StoreHint for $name {
                #[inline(always)]
                #[cfg(target_arch = "nvptx64")]
                unsafe fn store<T: Element, const N: usize>(address: *const T, values: [T; N]) {
                    // SAFETY: the caller's promise.
                    unsafe { vector::$store(address, values) }
                }
            }
        )?
    )* };
}

hints! {
    /// Cached in the second level only (`.cg`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get_hinted(cache::L2Only), cache::L2Only))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    L2Only, load load_l2_only CoherentLoadHint, store store_l2_only;

    /// Accessed once (`.cs`): the first to go from both caches.
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get_hinted(cache::Streaming), cache::Streaming))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    Streaming, load load_streaming CoherentLoadHint, store store_streaming;

    /// Not read again (`.lu`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set(2.0 * x.get_hinted(cache::LastUse)))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    LastUse, load load_last_use CoherentLoadHint;

    /// Fetched anew (`.cv`), whatever the caches have. It orders nothing: what other threads tell one another needs
    /// [atomic operations](crate::atomic).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set(2.0 * x.get_hinted(cache::Uncached)))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    Uncached, load load_uncached CoherentLoadHint;

    /// Written through the second-level cache (`.wt`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get(), cache::WriteThrough))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    WriteThrough, store store_write_through;

    /// Read only while the kernel runs (`.nc`), which is what a [`GlobalSlice`](crate::GlobalSlice) promises.
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let values = run_over(2, &mut [1.0, 2.0], |x: GlobalSlice<'_, f32>| x.get_hinted(thread::index(), cache::ReadOnly));
    /// assert_eq!(values, [Some(1.0), Some(2.0)]);
    /// ```
    ReadOnly, load load_read_only;

    /// As [`ReadOnly`], without room in the first-level cache (`.nc.L1::no_allocate`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let values = run_over(2, &mut [1.0, 2.0], |x: GlobalSlice<'_, f32>| x.get_hinted(thread::index(), cache::ReadOnlyOnce));
    /// assert_eq!(values, [Some(1.0), Some(2.0)]);
    /// ```
    ReadOnlyOnce, load load_read_only_once;

    /// Without room in the first-level cache (`.L1::no_allocate`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get_hinted(cache::NoAllocate), cache::NoAllocate))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    NoAllocate, load load_no_allocate CoherentLoadHint, store store_no_allocate;

    /// The first to go from the first-level cache (`.L1::evict_first`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get_hinted(cache::EvictFirst), cache::EvictFirst))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    EvictFirst, load load_evict_first CoherentLoadHint, store store_evict_first;

    /// The last to go from the first-level cache (`.L1::evict_last`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{cache, examples::run_over, prelude::*};
    /// let mut x = [1.0, 2.0];
    /// run_over(2, &mut x, |x: DisjointSlice<'_, f32>| {
    ///     let x = x.own()?;
    ///     Some(x.set_hinted(2.0 * x.get_hinted(cache::EvictLast), cache::EvictLast))
    /// });
    /// assert_eq!(x, [2.0, 4.0]);
    /// ```
    EvictLast, load load_evict_last CoherentLoadHint, store store_evict_last;
}
