//! Atomic operations and fences: how threads of different warps and blocks tell one another what they have done.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::atomic::{AcqRel, GlobalAtomics, Scope};
//! use cuda_std::prelude::*;
//!
//! /// Adds up 256 numbers in each block. The block that is done last adds up the sums of all, always in the same order.
//! #[kernel(block = 256, requires(sums.len() == grid_blocks as usize, total.len() == 1, done.len() == 1))]
//! pub fn sum_fp32(
//!     grid_blocks: u32,
//!     x: GlobalSlice<'_, f32>,
//!     sums: GlobalSliceMut<'_, f32>,
//!     done: GlobalAtomics<'_, u32>,
//!     total: GlobalSliceMut<'_, f32>,
//! ) {
//!     static PARTS: Shared<[f32; 256]> = Shared::new();
//!     let thread = thread::thread_idx_x() as usize;
//!     // SAFETY: barriers, which all threads reach, stand between what is written to the array and what is read.
//!     unsafe {
//!         PARTS.write(thread, x.get(thread::index_1d()).unwrap_or(0.0));
//!         thread::sync_threads();
//!     }
//!     if thread != 0 {
//!         return;
//!     }
//!     // SAFETY: a block has a sum of its own. Who counts last, by an operation that acquires what all the others have released,
//!     // is behind all that they have written; nobody else comes here.
//!     unsafe {
//!         let sum = (0..256).map(|i| PARTS.read(i)).sum();
//!         sums.set_unchecked(thread::block_idx_x() as usize, sum);
//!         let Some(done) = done.get(0) else { return };
//!         if done.fetch_add(1, AcqRel, Scope::Device) == grid_blocks - 1 {
//!             total.set_unchecked(0, (0..sums.len()).map(|block| sums.get_unchecked(block)).sum());
//!             // For the next launch.
//!             done.store(0, cuda_std::atomic::Relaxed, Scope::Device);
//!         }
//!     }
//! }
//! ```
//!
//! # Orders and scopes
//!
//! | Rust | PTX | what it orders |
//! |---|---|---|
//! | [`Relaxed`] | `.relaxed` | nothing but the accesses to this one element |
//! | [`Acquire`] | `.acquire` | what follows, behind what the thread did that released the value that is read |
//! | [`Release`] | `.release` | what comes before, before what a thread does that acquires the value that is written |
//! | [`AcqRel`] | `.acq_rel` | both |
//! | [`SeqCst`] | `fence.sc`, then as above | both, and all such operations are in one order for everybody |
//!
//! An order holds between threads within the [`Scope`] of both operations. What a thread knows of others it passes on: by a barrier of
//! its block, or by releasing. On the CPU all of this is checked: an access to memory that another thread has written, with nothing that
//! orders the two, is reported as a race, also where this processor would have done as wanted. So is a loop that waits for a value which
//! nobody is left to write.
//!
//! The names are those of [`core::sync::atomic::Ordering`], but types of their own, so that an operation takes only those that it can
//! have: a load that releases does not compile.
//!
//! # Which operations there are
//!
//! | elements | operations |
//! |---|---|
//! | `u32`, `i32`, `u64`, `i64` | load, store, exchange, compare-exchange, add, sub, min, max, and, or, xor |
//! | `f32`, `f64` | load, store, exchange, compare-exchange of bits, add; min and max by a loop of compare-exchanges |
//! | [`F16x2`], [`Bf16x2`] | load, store, exchange, compare-exchange of bits, add of both halves, each by itself (`Bf16x2`: sm_90) |
//!
//! Additions of pairs in the memory of another block of a cluster are a loop of compare-exchanges: an H200 makes NaN of them otherwise.
//!
//! All return the value before; where that is not used, `ptxas` makes the shorter `red` of it. Whole numbers wrap around.

mod element;
#[cfg(target_arch = "nvptx64")]
mod ptx;

use core::marker::PhantomData;

pub use element::{AtomicElement, AtomicInteger, AtomicNumber, Bf16x2, F16x2};
pub(crate) use element::{Bits, Operation};

use crate::{Element, GlobalSliceMut, KernelParam, Layout};

/// Which threads an operation is atomic and ordered with respect to.
///
/// An operation with a scope that does not include a thread is, to that thread, an ordinary access.
///
/// ```
/// # use tilewright_cuda_std::{atomic::Relaxed, examples::run, prelude::*};
/// let counts = run(64, || {
///     static COUNT: Shared<[u32; 1]> = Shared::new();
///     // SAFETY: one thread writes it before the first barrier, and others access it atomically only.
///     unsafe {
///         if thread::index() == 0 {
///             COUNT.write(0, 0);
///         }
///         thread::sync_threads();
///         // The threads that add to it are all in this block.
///         COUNT.atomic(0).fetch_add(1, Relaxed, atomic::Scope::Block)
///     }
/// });
/// assert_eq!(counts.iter().max(), Some(&63));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// The threads of the block (`.cta`).
    Block,
    /// The threads of the [cluster](crate::cluster) of blocks (`.cluster`, sm_90); of the block, if the kernel has no clusters.
    Cluster,
    /// All threads of the GPU (`.gpu`).
    Device,
    /// Those of other GPUs, and of the host (`.sys`).
    System,
}

/// An order as a value.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Relaxed,
    Acquire,
    Release,
    AcqRel,
    SeqCst,
}

#[doc(hidden)]
impl Order {
    /// Whether what follows is behind what was released.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn acquires(self) -> bool {
        matches!(self, Self::Acquire | Self::AcqRel | Self::SeqCst)
    }

    /// Whether what comes before is before what acquires it.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn releases(self) -> bool {
        matches!(self, Self::Release | Self::AcqRel | Self::SeqCst)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An order that an operation which reads and writes can have.
///
/// ```
/// # use tilewright_cuda_std::{atomic::{self, Atomic, GlobalAtomics, Scope}, examples::run_over};
/// fn count<O: atomic::Ordering>(n: Atomic<'_, u32>, order: O) -> u32 {
///     n.fetch_add(1, order, Scope::Device)
/// }
/// let mut n = [0];
/// run_over(32, &mut n, |n: GlobalAtomics<'_, u32>| Some(count(n.get(0)?, atomic::AcqRel)));
/// assert_eq!(n, [32]);
/// ```
pub trait Ordering: sealed::Sealed + Copy {
    #[doc(hidden)]
    const ORDER: Order;
}

/// An order that a load can have: [`Relaxed`], [`Acquire`], [`SeqCst`].
///
/// ```
/// # use tilewright_cuda_std::{atomic::{self, Atomic, GlobalAtomics, Scope}, examples::run_over};
/// fn is_set<O: atomic::LoadOrdering>(flag: Atomic<'_, u32>, order: O) -> bool {
///     flag.load(order, Scope::Device) != 0
/// }
/// let is_set = run_over(1, &mut [1], |flag: GlobalAtomics<'_, u32>| Some(is_set(flag.get(0)?, atomic::Acquire)));
/// assert_eq!(is_set, [Some(true)]);
/// ```
#[diagnostic::on_unimplemented(message = "a load has no order `{Self}`", note = "it is Relaxed, Acquire or SeqCst")]
pub trait LoadOrdering: Ordering {}

/// An order that a store can have: [`Relaxed`], [`Release`], [`SeqCst`].
///
/// ```
/// # use tilewright_cuda_std::{atomic::{self, Atomic, GlobalAtomics, Scope}, examples::run_over};
/// fn set<O: atomic::StoreOrdering>(flag: Atomic<'_, u32>, order: O) {
///     flag.store(1, order, Scope::Device);
/// }
/// let mut flag = [0];
/// run_over(1, &mut flag, |flag: GlobalAtomics<'_, u32>| Some(set(flag.get(0)?, atomic::Release)));
/// assert_eq!(flag, [1]);
/// ```
#[diagnostic::on_unimplemented(message = "a store has no order `{Self}`", note = "it is Relaxed, Release or SeqCst")]
pub trait StoreOrdering: Ordering {}

/// An order that a fence can have: [`AcqRel`], [`SeqCst`].
///
/// ```
/// # use tilewright_cuda_std::{atomic::{self, GlobalAtomics, Relaxed, Scope}, examples::run_over};
/// fn count_behind_a_fence<O: atomic::FenceOrdering>(n: GlobalAtomics<'_, u32>, order: O) -> Option<u32> {
///     atomic::fence(order, Scope::Device);
///     Some(n.get(0)?.fetch_add(1, Relaxed, Scope::Device))
/// }
/// let mut n = [0];
/// run_over(32, &mut n, |n: GlobalAtomics<'_, u32>| count_behind_a_fence(n, atomic::AcqRel));
/// assert_eq!(n, [32]);
/// ```
#[diagnostic::on_unimplemented(message = "a fence has no order `{Self}`", note = "it is AcqRel or SeqCst")]
pub trait FenceOrdering: Ordering {}

macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident: $($of:ident),*;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl sealed::Sealed for $name {}
        impl Ordering for $name {
            const ORDER: Order = Order::$name;
        }
        $(impl $of for $name {})*
    )* };
}

orders! {
    /// Orders nothing but the accesses to this one element.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// // A counter that is read behind the launch.
    /// let mut n = [0];
    /// run_over(32, &mut n, |n: GlobalAtomics<'_, u32>| Some(n.get(0)?.fetch_add(1, Relaxed, Scope::Device)));
    /// assert_eq!(n, [32]);
    /// ```
    Relaxed: LoadOrdering, StoreOrdering;
    /// What follows is behind what the thread did that released the value that is read.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
    /// let read = run_over(64, &mut [0], |flag: GlobalAtomics<'_, u32>| {
    ///     static MESSAGE: Shared<[u32; 1]> = Shared::new();
    ///     let (flag, t) = (flag.get(0)?, thread::index());
    ///     if t == 0 {
    ///         // SAFETY: written before the flag, and read behind it.
    ///         unsafe { MESSAGE.write(0, 42) };
    ///         flag.store(1, Release, Scope::Block);
    ///     }
    ///     while t == 32 && flag.load(Acquire, Scope::Block) == 0 {}
    ///     // SAFETY: as above.
    ///     (t == 32).then(|| unsafe { MESSAGE.read(0) })
    /// });
    /// assert_eq!(read[32], Some(42));
    /// ```
    Acquire: LoadOrdering;
    /// What comes before is before what a thread does that acquires the value that is written.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
    /// let read = run_over(64, &mut [0], |flag: GlobalAtomics<'_, u32>| {
    ///     static MESSAGE: Shared<[u32; 1]> = Shared::new();
    ///     let (flag, t) = (flag.get(0)?, thread::index());
    ///     if t == 0 {
    ///         // SAFETY: written before the flag, and read behind it.
    ///         unsafe { MESSAGE.write(0, 42) };
    ///         flag.store(1, Release, Scope::Block);
    ///     }
    ///     while t == 32 && flag.load(Acquire, Scope::Block) == 0 {}
    ///     // SAFETY: as above.
    ///     (t == 32).then(|| unsafe { MESSAGE.read(0) })
    /// });
    /// assert_eq!(read[32], Some(42));
    /// ```
    Release: StoreOrdering;
    /// Both.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
    /// // The thread that counts last is behind all others, and adds up what they have written.
    /// let sums = run_over(64, &mut [0], |done: GlobalAtomics<'_, u32>| {
    ///     static PARTS: Shared<[u32; 64]> = Shared::new();
    ///     // SAFETY: a thread writes an element of its own; the last one reads behind all.
    ///     unsafe { PARTS.write(thread::index(), thread::thread_idx_x()) };
    ///     let is_last = done.get(0)?.fetch_add(1, AcqRel, Scope::Block) == 63;
    ///     // SAFETY: as above.
    ///     is_last.then(|| (0..64).map(|i| unsafe { PARTS.read(i) }).sum::<u32>())
    /// });
    /// assert_eq!(sums.into_iter().flatten().collect::<Vec<_>>(), [64 * 63 / 2]);
    /// ```
    AcqRel: FenceOrdering;
    /// Both, and all such operations are in one order for everybody: `fence.sc` stands before the instruction.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// // Threads of two warps each set their own flag, and look at the other's: at least one of them sees it set.
    /// let seen = run_over(64, &mut [0; 2], |flags: GlobalAtomics<'_, u32>| {
    ///     let own = thread::index() / 32;
    ///     flags.get(own)?.store(1, SeqCst, Scope::Block);
    ///     Some(flags.get(1 - own)?.load(SeqCst, Scope::Block))
    /// });
    /// assert!(seen[0] == Some(1) || seen[32] == Some(1));
    /// ```
    SeqCst: LoadOrdering, StoreOrdering, FenceOrdering;
}

/// A fence: what this thread did before is ordered before its atomic stores that follow, and what it does after is ordered behind its
/// atomic loads that came before, as if those released and these acquired (`fence.acq_rel`, `fence.sc`; CUDA's `__threadfence` is
/// `fence(AcqRel, Scope::Device)`).
///
/// ```
/// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
/// let mut flag = [0];
/// let read = run_over(64, &mut flag, |flag: GlobalAtomics<'_, u32>| {
///     static MESSAGE: Shared<[u32; 1]> = Shared::new();
///     let (flag, t) = (flag.get(0)?, thread::index());
///     if t == 0 {
///         // SAFETY: the fences and the flag order this before the read.
///         unsafe { MESSAGE.write(0, 42) };
///         fence(AcqRel, Scope::Block);
///         flag.store(1, Relaxed, Scope::Block);
///     } else if t == 32 {
///         while flag.load(Relaxed, Scope::Block) == 0 {}
///         fence(AcqRel, Scope::Block);
///     }
///     // SAFETY: as above.
///     (t == 32).then(|| unsafe { MESSAGE.read(0) })
/// });
/// assert_eq!(read[32], Some(42));
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn fence<O: FenceOrdering>(_order: O, scope: Scope) {
    #[cfg(target_arch = "nvptx64")]
    ptx::fence(O::ORDER, scope);
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::fence(O::ORDER, scope);
}

/// Where an atomic element is.
#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "not for anybody else")]
pub enum Place {
    Global(*mut u8),
    Shared(u32),
    Cluster(u32),
}

/// Where an atomic element is: its address, or its array and how many bytes into it.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// With whether it is of a [`GlobalAtomics`], so that blocks can wait for one another by it.
    Global(*mut u8, bool),
    Shared(&'static crate::executor::SharedIdentity, usize),
    /// In the shared memory of another block of the cluster, by its rank.
    Remote(u32, &'static crate::executor::SharedIdentity, usize),
}

impl Place {
    /// Element `index` of a view, with whether blocks can wait for one another by it, which only the CPU asks.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    fn in_view<T>(view: &GlobalSliceMut<'_, T>, index: usize, _is_for_waiting: bool) -> Self
    where
        T: Element,
    {
        #[cfg(not(target_arch = "nvptx64"))]
        let index = crate::executor::change_index("global-atomic", index, 1);
        let address = crate::global::element(view.as_mut_ptr(), view.len(), index, 1, size_of::<T>()).cast_mut().cast();
        #[cfg(target_arch = "nvptx64")]
        {
            Self::Global(address)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Self::Global(address, _is_for_waiting)
        }
    }
}

/// An element of global or shared memory that threads may access at once.
///
/// ```
/// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
/// let mut largest = [0];
/// run_over(64, &mut largest, |largest: GlobalAtomics<'_, u32>| {
///     let largest: Atomic<'_, u32> = largest.get(0)?;
///     Some(largest.fetch_max(thread::thread_idx_x(), Relaxed, Scope::Device))
/// });
/// assert_eq!(largest, [63]);
/// ```
#[derive(Clone, Copy)]
pub struct Atomic<'a, T> {
    place: Place,
    element: PhantomData<&'a T>,
}

impl<T: AtomicElement> Atomic<'_, T> {
    /// # Safety
    /// The element is there as long as the lifetime, aligned, and valid for reads and writes. Meanwhile nobody accesses it otherwise than
    /// atomically, unless ordered before or behind all atomic accesses of other threads.
    #[inline(always)]
    pub(crate) unsafe fn new(place: Place) -> Self {
        Self { place, element: PhantomData }
    }

    /// The value (`ld`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let values = run_over(32, &mut [7], |x: GlobalAtomics<'_, u32>| Some(x.get(0)?.load(Acquire, Scope::Device)));
    /// assert_eq!(values, [Some(7); 32]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn load<O: LoadOrdering>(self, _order: O, scope: Scope) -> T {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the element is valid, as `new` was promised.
        let bits = unsafe { ptx::load(self.place, O::ORDER, scope, T::Bits::WIDE) };
        #[cfg(not(target_arch = "nvptx64"))]
        let bits = crate::executor::atomic_load(self.place, size_of::<T>(), O::ORDER, scope);
        let value = T::from_bits(T::Bits::narrow(bits));
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::trace_in(&value, core::panic::Location::caller());
        value
    }

    /// Writes a value (`st`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut x = [7];
    /// run_over(32, &mut x, |x: GlobalAtomics<'_, u32>| Some(x.get(0)?.store(8, Release, Scope::Device)));
    /// assert_eq!(x, [8]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn store<O: StoreOrdering>(self, value: T, _order: O, scope: Scope) {
        let bits = value.to_bits().widen();
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `load`.
        unsafe {
            ptx::store(self.place, O::ORDER, scope, T::Bits::WIDE, bits);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            crate::executor::require_awaited(&value);
            crate::executor::trace_out(&value, "an atomic store", core::panic::Location::caller());
        }
        #[cfg(not(target_arch = "nvptx64"))]
        crate::executor::atomic_store(self.place, size_of::<T>(), O::ORDER, scope, bits);
    }

    /// Writes a value, and returns the one before (`atom.exch`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut x = [100];
    /// let before = run_over(32, &mut x, |x: GlobalAtomics<'_, u32>| {
    ///     Some(x.get(0)?.swap(thread::thread_idx_x(), Relaxed, Scope::Device))
    /// });
    /// // One of the threads got what was there at first, and what the last one has written is left.
    /// assert_eq!(before.iter().filter(|before| **before == Some(100)).count(), 1);
    /// assert!(x[0] < 32);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn swap<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Exchange, value, order, scope)
    }

    /// Writes `new` if the bits are those of `current` (`atom.cas`). Returns the value before: the write took place if it was `current`.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut owner = [0];
    /// let got = run_over(32, &mut owner, |owner: GlobalAtomics<'_, u32>| {
    ///     Some(owner.get(0)?.compare_exchange(0, 1, AcqRel, Scope::Device))
    /// });
    /// // One thread found 0 there, and all others what that one has written.
    /// assert_eq!(got.iter().filter(|got| **got == Some(Ok(0))).count(), 1);
    /// assert_eq!(got.iter().filter(|got| **got == Some(Err(1))).count(), 31);
    /// ```
    ///
    /// # Errors
    /// The value before, if it was another one.
    #[inline(always)]
    #[track_caller]
    pub fn compare_exchange<O: Ordering>(self, current: T, new: T, _order: O, scope: Scope) -> Result<T, T> {
        let (expected, new) = (current.to_bits().widen(), new.to_bits().widen());
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `load`.
        let found = unsafe { ptx::compare_exchange(self.place, O::ORDER, scope, T::Bits::WIDE, expected, new) };
        #[cfg(not(target_arch = "nvptx64"))]
        let found =
            crate::executor::atomic_compare_exchange(self.place, size_of::<T>(), O::ORDER, scope, expected, new);
        let before = T::from_bits(T::Bits::narrow(found));
        if found == expected { Ok(before) } else { Err(before) }
    }

    #[inline(always)]
    #[track_caller]
    fn modify<O: Ordering>(self, operation: Operation, value: T, _order: O, scope: Scope) -> T {
        let bits = value.to_bits();
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `load`. There is an instruction for each operation that this type's methods ask for.
        let before = unsafe { T::instruction(self.place, operation, O::ORDER, scope, bits) };
        #[cfg(not(target_arch = "nvptx64"))]
        let before = {
            crate::executor::require_awaited(&value);
            let is_shared = matches!(self.place, Place::Shared(..) | Place::Remote(..));
            let change = |before| T::apply(operation, T::Bits::narrow(before), bits, is_shared).widen();
            let before =
                T::Bits::narrow(crate::executor::atomic_modify(self.place, size_of::<T>(), O::ORDER, scope, &change));
            if crate::executor::is_tracing() {
                let after = T::apply(operation, before, bits, is_shared);
                let values = [before, bits, after].map(T::from_bits);
                let adds = operation == Operation::Add;
                crate::executor::trace_atomic(values, adds, core::panic::Location::caller());
            }
            before
        };
        T::from_bits(before)
    }
}

impl<T: AtomicNumber> Atomic<'_, T> {
    /// Adds, and returns the value before (`atom.add`). Of numbers with a point each addition is rounded by itself, to nearest, so that a
    /// sum of several threads' depends on the order in which they come. An addition to an `f32` in global memory takes subnormal numbers
    /// for zero, operands and results both, unlike all other arithmetic here and unlike one in shared memory (PTX ISA, `atom`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut sum = [0.0];
    /// run_over(32, &mut sum, |sum: GlobalAtomics<'_, f32>| Some(sum.get(0)?.fetch_add(0.5, Relaxed, Scope::Device)));
    /// assert_eq!(sum, [16.0]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_add<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Add, value, order, scope)
    }
}

impl<T: AtomicInteger> Atomic<'_, T> {
    /// Subtracts, and returns the value before (`atom.add` of the negative).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut left = [40];
    /// run_over(32, &mut left, |left: GlobalAtomics<'_, u32>| Some(left.get(0)?.fetch_sub(1, Relaxed, Scope::Device)));
    /// assert_eq!(left, [8]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_sub<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Add, value.negative(), order, scope)
    }

    /// Writes the smaller value, and returns the one before (`atom.min`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut least = [1000];
    /// run_over(32, &mut least, |least: GlobalAtomics<'_, u32>| {
    ///     Some(least.get(0)?.fetch_min(100 - thread::thread_idx_x(), Relaxed, Scope::Device))
    /// });
    /// assert_eq!(least, [69]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_min<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Min, value, order, scope)
    }

    /// Writes the larger value, and returns the one before (`atom.max`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut largest = [-1];
    /// run_over(32, &mut largest, |largest: GlobalAtomics<'_, i32>| {
    ///     Some(largest.get(0)?.fetch_max(10 * thread::thread_idx_x() as i32, Relaxed, Scope::Device))
    /// });
    /// assert_eq!(largest, [310]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_max<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Max, value, order, scope)
    }

    /// Keeps the bits that are set in `value`, too, and returns the value before (`atom.and`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut bits = [0b1110];
    /// let before = run_over(1, &mut bits, |x: GlobalAtomics<'_, u32>| Some(x.get(0)?.fetch_and(0b0111, Relaxed, Scope::Device)));
    /// assert_eq!((before[0], bits), (Some(0b1110), [0b0110]));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_and<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::And, value, order, scope)
    }

    /// Sets the bits that are set in `value`, and returns the value before (`atom.or`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut has_come = [0];
    /// run_over(32, &mut has_come, |bits: GlobalAtomics<'_, u32>| {
    ///     Some(bits.get(0)?.fetch_or(1 << thread::thread_idx_x(), Relaxed, Scope::Device))
    /// });
    /// assert_eq!(has_come, [u32::MAX]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_or<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Or, value, order, scope)
    }

    /// Inverts the bits that are set in `value`, and returns the value before (`atom.xor`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
    /// let mut bits = [0b1110];
    /// let before = run_over(1, &mut bits, |x: GlobalAtomics<'_, u32>| Some(x.get(0)?.fetch_xor(0b0011, Relaxed, Scope::Device)));
    /// assert_eq!((before[0], bits), (Some(0b1110), [0b1101]));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fetch_xor<O: Ordering>(self, value: T, order: O, scope: Scope) -> T {
        self.modify(Operation::Xor, value, order, scope)
    }
}

macro_rules! fetch_extremes {
    ($($number:ty),*) => { $(
        #[doc = concat!("Extremes of [`", stringify!($number), "`] numbers.")]
        ///
        /// ```
        /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
        #[doc = concat!("let mut largest = [", stringify!($number), "::NEG_INFINITY];")]
        /// run_over(32, &mut largest, |largest: GlobalAtomics<'_, _>| {
        #[doc = concat!("    let own = thread::thread_idx_x() as ", stringify!($number), " / 2.0;")]
        ///     Some(largest.get(0)?.fetch_max(own, Relaxed, Scope::Device))
        /// });
        /// assert_eq!(largest, [15.5]);
        /// ```
        impl Atomic<'_, $number> {
            /// Writes the smaller number, and returns the one before. No GPU has an instruction for it: a loop of compare-exchanges, as
            /// many as other threads come in between. A NaN is no number: what is left is the other; −0 is not below 0.
            ///
            /// ```
            /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
            #[doc = concat!("let mut x: [", stringify!($number), "; 1] = [1.5];")]
            #[doc = concat!(
                "let before = run_over(1, &mut x, |x: GlobalAtomics<'_, _>| Some(x.get(0)?.fetch_min(-2.5, Relaxed, Scope::Device)));"
            )]
            /// assert_eq!((before[0], x), (Some(1.5), [-2.5]));
            /// ```
            #[inline(always)]
            #[track_caller]
            pub fn fetch_min<O: Ordering>(self, value: $number, order: O, scope: Scope) -> $number {
                self.fetch_extreme(value, order, scope, |value, before| value < before)
            }

            /// Writes the larger number, and returns the one before. As for [`Atomic::fetch_min`].
            ///
            /// ```
            /// # use tilewright_cuda_std::{atomic::*, examples::run_over};
            #[doc = concat!("let mut x: [", stringify!($number), "; 1] = [1.5];")]
            #[doc = concat!(
                "let before = run_over(1, &mut x, |x: GlobalAtomics<'_, _>| Some(x.get(0)?.fetch_max(2.5, Relaxed, Scope::Device)));"
            )]
            /// assert_eq!((before[0], x), (Some(1.5), [2.5]));
            /// ```
            #[inline(always)]
            #[track_caller]
            pub fn fetch_max<O: Ordering>(self, value: $number, order: O, scope: Scope) -> $number {
                self.fetch_extreme(value, order, scope, |value, before| value > before)
            }

            #[inline(always)]
            #[track_caller]
            fn fetch_extreme<O: Ordering>(
                self,
                value: $number,
                order: O,
                scope: Scope,
                is_further: fn($number, $number) -> bool,
            ) -> $number {
                let mut before = self.load(Relaxed, scope);
                loop {
                    // Also where nothing changes, it is an operation of this order.
                    let next = if is_further(value, before) || before.is_nan() { value } else { before };
                    match self.compare_exchange(before, next, order, scope) {
                        Ok(_) => return before,
                        Err(other) => before = other,
                    }
                }
            }
        }
    )* };
}

fetch_extremes!(f32, f64);

/// A view of `len` elements of global memory that all threads may access at once, each access being atomic.
///
/// The layout is the same on both sides, an address and a 64-bit length, as a [`GlobalSlice`](crate::GlobalSlice)'s. On the CPU a launch
/// of a kernel with such a parameter runs some blocks at a time and lets them take turns, so that they can wait for one another.
///
/// ```
/// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
/// // A histogram: which of 64 threads counts when does not matter.
/// let mut counts = [0; 4];
/// run_over(64, &mut counts, |counts: GlobalAtomics<'_, u32>| {
///     Some(counts.get(thread::index() % 4)?.fetch_add(1, Relaxed, Scope::Device))
/// });
/// assert_eq!(counts, [16; 4]);
/// ```
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GlobalAtomics<'a, T> {
    /// Nothing of it is accessed but atomically.
    whole: GlobalSliceMut<'a, T>,
}

impl<'a, T: AtomicElement> GlobalAtomics<'a, T> {
    /// The view of a slice in this processor's memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{GlobalAtomics};
    /// let mut counts = [0u32; 4];
    /// assert_eq!(GlobalAtomics::new(&mut counts).len(), 4);
    /// ```
    #[inline(always)]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { whole: GlobalSliceMut::new(slice) }
    }

    /// The view of `len` elements at `pointer`, which may be an address in a GPU's memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{GlobalAtomics};
    /// let mut counts = [0u32; 4];
    /// // SAFETY: an array of this program, which nothing else accesses as long as the view is there.
    /// let view = unsafe { GlobalAtomics::from_raw_parts(counts.as_mut_ptr(), counts.len()) };
    /// assert_eq!(view.len(), 4);
    /// ```
    ///
    /// # Safety
    /// As for [`GlobalSliceMut::from_raw_parts`].
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { whole: unsafe { GlobalSliceMut::from_raw_parts(pointer, len) } }
    }

    /// The number of elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{GlobalAtomics};
    /// assert_eq!(GlobalAtomics::new(&mut [0u32; 4]).len(), 4);
    /// ```
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{GlobalAtomics};
    /// assert!(GlobalAtomics::<u32>::new(&mut []).is_empty());
    /// ```
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// The address of the first element.
    ///
    /// ```
    /// # use tilewright_cuda_std::{GlobalAtomics};
    /// let mut counts = [0u32; 4];
    /// let address = counts.as_ptr();
    /// assert_eq!(GlobalAtomics::new(&mut counts).as_mut_ptr().cast_const(), address);
    /// ```
    #[inline(always)]
    pub fn as_mut_ptr(&self) -> *mut T {
        self.whole.as_mut_ptr()
    }

    /// Element `index`, or `None` past the end.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut x = [5, 6];
    /// let values = run_over(3, &mut x, |x: GlobalAtomics<'_, u32>| {
    ///     x.get(thread::index()).map(|x| x.load(Relaxed, Scope::Device))
    /// });
    /// assert_eq!(values, [Some(5), Some(6), None]);
    /// ```
    ///
    /// # Panics
    /// If there is such an element, but no kernel runs: the memory may be a GPU's.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> Option<Atomic<'a, T>> {
        // No closure: what it reads would be read at its own line, not at the caller's.
        if index < self.len() {
            // SAFETY: the index was compared with the length.
            Some(unsafe { self.get_unchecked(index) })
        } else {
            None
        }
    }

    /// Element `index`.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, thread};
    /// let mut x = [5, 6];
    /// let values = run_over(2, &mut x, |x: GlobalAtomics<'_, u32>| {
    ///     // SAFETY: there are as many threads as elements.
    ///     unsafe { x.get_unchecked(thread::index()).load(Relaxed, Scope::Device) }
    /// });
    /// assert_eq!(values, [5, 6]);
    /// ```
    ///
    /// # Safety
    /// `index < self.len()`. (On the CPU a larger one ends the launch with a report instead.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_unchecked(&self, index: usize) -> Atomic<'a, T> {
        let place = Place::in_view(&self.whole, index, true);
        // SAFETY: in bounds by the caller's promise, and checked on the CPU; a view's memory is valid for its length, and whoever made
        // the view has promised that nothing else accesses it.
        unsafe { Atomic::new(place) }
    }
}

// SAFETY: `repr(C)`, without padding, the same on both sides, and what `visit_views` reports is all the memory it names.
unsafe impl<T: AtomicElement + KernelParam> KernelParam for GlobalAtomics<'_, T> {
    const LAYOUT: u64 = Layout::new("GlobalAtomics").elements::<T>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: crate::ViewName<'_>, visit: &mut dyn FnMut(crate::View<'_>)) {
        self.whole.visit_as(crate::ViewAccess::Atomic, name, visit);
    }
}

impl<'a, T: AtomicElement> GlobalSliceMut<'a, T> {
    /// Element `index` for atomic operations, which are relaxed: what is to order blocks has to be in a [`GlobalAtomics`].
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run_over, prelude::*};
    /// let mut sums = [0.0; 2];
    /// run_over(64, &mut sums, |sums: GlobalSliceMut<'_, f32>| {
    ///     // SAFETY: there are two elements, and nobody accesses them otherwise.
    ///     unsafe { sums.atomic_unchecked(thread::index() % 2).fetch_add(1.0, Relaxed, Scope::Device) }
    /// });
    /// assert_eq!(sums, [32.0; 2]);
    /// ```
    ///
    /// # Safety
    /// `index < self.len()` (checked on the CPU). No thread accesses the element otherwise than atomically without a barrier between.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic_unchecked(&self, index: usize) -> Atomic<'a, T> {
        let place = Place::in_view(self, index, false);
        // SAFETY: in bounds and accessed atomically, by the caller's promise.
        unsafe { Atomic::new(place) }
    }
}

impl<A: crate::shared::SharedArray<Element: AtomicElement>> crate::Shared<A> {
    /// The element at `index` for atomic operations.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run, prelude::*};
    /// let counts = run(32, || {
    ///     static COUNTS: Shared<[u32; 32]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: inside of the array; barriers separate the atomic accesses from the others.
    ///     unsafe {
    ///         COUNTS.write(t, 0);
    ///         thread::sync_threads();
    ///         COUNTS.atomic(t / 8).fetch_add(1, Relaxed, Scope::Block);
    ///         thread::sync_threads();
    ///         COUNTS.read(t)
    ///     }
    /// });
    /// assert_eq!(counts[..5], [8, 8, 8, 8, 0]);
    /// ```
    ///
    /// # Safety
    /// `index` is within the array. No thread accesses the element otherwise than atomically without a barrier between. (Both are checked on
    /// the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic(&'static self, index: A::Index) -> Atomic<'static, A::Element> {
        // SAFETY: in bounds and accessed atomically, by the caller's promise.
        unsafe { Atomic::new(self.place_of(index)) }
    }
}

impl<T: AtomicElement> crate::SharedSlice<T> {
    /// Element `index` for atomic operations.
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, examples::run, prelude::*};
    /// let counts = run(32, || {
    ///     let t = thread::index();
    ///     // SAFETY: inside of the dynamic shared memory; barriers separate the atomic accesses from the others.
    ///     unsafe {
    ///         let counts = dynamic_shared::<u32>(0, 32);
    ///         counts.write(t, 0);
    ///         thread::sync_threads();
    ///         counts.atomic(t / 8).fetch_add(1, Relaxed, Scope::Block);
    ///         thread::sync_threads();
    ///         counts.read(t)
    ///     }
    /// });
    /// assert_eq!(counts[..5], [8, 8, 8, 8, 0]);
    /// ```
    ///
    /// # Safety
    /// As for [`Shared::atomic`](crate::Shared::atomic).
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic(&self, index: usize) -> Atomic<'static, T> {
        #[cfg(target_arch = "nvptx64")]
        let place = Place::Shared(self.shared_address(index));
        #[cfg(not(target_arch = "nvptx64"))]
        let place =
            crate::executor::dynamic_atomic(self.place(), crate::executor::change_index("shared-atomic", index, 1));
        // SAFETY: in bounds and accessed atomically, by the caller's promise.
        unsafe { Atomic::new(place) }
    }
}

impl<A: crate::shared::SharedArray<Element: AtomicElement>> crate::cluster::RemoteShared<A> {
    /// The element at `index` for atomic operations (`atom.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, cluster, examples::run_clusters, prelude::*};
    /// // A cluster of two blocks of one thread: both count in the first one's shared memory.
    /// let counts = run_clusters(2, 2, 1, || {
    ///     static COUNT: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: the cluster meets before and behind all accesses of other blocks, which are atomic.
    ///     unsafe {
    ///         COUNT.write(0, 0);
    ///         cluster::sync();
    ///         COUNT.of_block(0).atomic(0).fetch_add(1, Relaxed, Scope::Cluster);
    ///         cluster::sync();
    ///         COUNT.read(0)
    ///     }
    /// });
    /// assert_eq!(counts, [2, 0]);
    /// ```
    ///
    /// # Safety
    /// There is a block of this rank in the cluster, which has begun and not ended when the operation takes place; `index` is within the
    /// array. No thread accesses the element otherwise than atomically, unless something orders the two accesses. (All of this is checked on
    /// the CPU.)
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic(self, index: A::Index) -> Atomic<'static, A::Element> {
        // SAFETY: in bounds, there, and accessed atomically, by the caller's promise.
        unsafe { Atomic::new(self.atomic_place(index)) }
    }
}

impl<T: AtomicElement> crate::cluster::RemoteSlice<T> {
    /// Element `index` for atomic operations (`atom.shared::cluster`).
    ///
    /// ```
    /// # use tilewright_cuda_std::{atomic::*, cluster, examples::run_clusters, prelude::*};
    /// // A cluster of two blocks of one thread: both count in the first one's shared memory.
    /// let counts = run_clusters(2, 2, 1, || {
    ///     // SAFETY: the cluster meets before and behind all accesses of other blocks, which are atomic.
    ///     unsafe {
    ///         let count = dynamic_shared::<u32>(0, 1);
    ///         count.write(0, 0);
    ///         cluster::sync();
    ///         count.of_block(0).atomic(0).fetch_add(1, Relaxed, Scope::Cluster);
    ///         cluster::sync();
    ///         count.read(0)
    ///     }
    /// });
    /// assert_eq!(counts, [2, 0]);
    /// ```
    ///
    /// # Safety
    /// As for [`RemoteShared::atomic`](crate::cluster::RemoteShared::atomic).
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic(self, index: usize) -> Atomic<'static, T> {
        // SAFETY: as there.
        unsafe { Atomic::new(self.atomic_place(index)) }
    }
}
