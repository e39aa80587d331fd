//! Constant memory (`__constant__`): arrays with values that are known at compile time, which all threads read.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::executor::{Checks, Executor};
//! use cuda_std::prelude::*;
//!
//! #[constant]
//! static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
//!
//! /// `y[i]` is a weighted sum of `x[i]` and its neighbours.
//! #[kernel(block = 128, any_grid, requires(x.len() == y.len() + 2))]
//! pub fn smooth(x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
//!     for y in y.own_elements() {
//!         let mut sum = 0.0;
//!         for k in 0..3 {
//!             if let (Some(weight), Some(x)) = (WEIGHTS.get(k), x.get(y.index() + k)) {
//!                 sum = math::fma(weight, x, sum);
//!             }
//!         }
//!         y.set(sum);
//!     }
//! }
//!
//! let (x, mut y) = ([1.0, 2.0, 3.0, 5.0], [0.0; 2]);
//! let kernel = smooth { x: GlobalSlice::new(&x), y: DisjointSlice::new(&mut y) };
//! // SAFETY: the views are of arrays of this program, and do not overlap.
//! unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(1))? };
//! assert_eq!(y, [2.0, 3.25]);
//! assert_eq!(WEIGHTS.values(), &[0.25, 0.5, 0.25]);
//! # Ok::<(), cuda_std::executor::LaunchError>(())
//! ```
//!
//! A read is fast where all lanes of a warp read the same element; where they read different ones, these come one after the other, and a
//! [`GlobalSlice`](crate::GlobalSlice) is better. There are 64 KiB for all constant arrays of a kernel. What the host works out before a
//! launch goes into the kernel's parameters, which are in constant memory too: numbers, or a struct of up to 4 KiB.

use crate::shared::SharedArray;

/// An array in constant memory: `#[constant] static NAME: [T; N] = …;` makes one, of this type.
///
/// `A` is `[T; N]` or an array of such; it is indexed by `usize`, or by `[row, column]`, or by `[plane, row, column]`.
///
/// ```standalone_crate
/// # use cuda_std::{Constant, constant};
/// # extern crate tilewright_cuda_std as cuda_std;
/// #[constant]
/// static TABLE: [[u32; 4]; 2] = [[1, 2, 3, 4], [5, 6, 7, 8]];
///
/// let table: &Constant<[[u32; 4]; 2]> = &TABLE;
/// assert_eq!((table.len(), table.values()[1][0]), (8, 5));
/// ```
pub struct Constant<A: SharedArray>(A);

impl<A: SharedArray> Constant<A> {
    /// With these values. What [`constant`](macro@crate::constant) makes of a static; a static without the attribute is in global memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{Constant};
    /// let weights = Constant::new([0.25, 0.5, 0.25]);
    /// assert_eq!(weights.len(), 3);
    /// ```
    pub const fn new(values: A) -> Self {
        const { assert!(size_of::<A>() <= 64 << 10, "constant memory has 64 KiB: keep a larger array in global memory") };
        Self(values)
    }

    /// Element `index`, or `None` outside of the array.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{examples::run, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// #[constant]
    /// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
    ///
    /// let values = run(4, || WEIGHTS.get(thread::index()));
    /// assert_eq!(values, [Some(0.25), Some(0.5), Some(0.25), None]);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn get(&'static self, index: A::Index) -> Option<A::Element> {
        // No closure: what it reads would be read at its own line, not at the caller's.
        if A::contains(index) {
            // SAFETY: the index was compared with the extents.
            Some(unsafe { self.get_unchecked(index) })
        } else {
            None
        }
    }

    /// Element `index`: one load (`ld.const`).
    ///
    /// ```standalone_crate
    /// # use cuda_std::{examples::run, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// #[constant]
    /// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
    ///
    /// // SAFETY: there are three elements, and as many threads.
    /// let values = run(3, || unsafe { WEIGHTS.get_unchecked(thread::index()) });
    /// assert_eq!(values, [0.25, 0.5, 0.25]);
    /// ```
    ///
    /// # Panics
    /// On the CPU, if there is no such element: in a kernel that ends the launch with a report.
    ///
    /// # Safety
    /// `index` is within the array.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_unchecked(&'static self, index: A::Index) -> A::Element {
        #[cfg(not(target_arch = "nvptx64"))]
        let index = crate::executor::change_array_index::<A>("constant-load", index);
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            A::contains(index),
            "index {index:?} is out of bounds of a constant array with extents {:?}",
            A::EXTENTS
        );
        // SAFETY: in bounds by the caller's promise, and checked on the CPU; nobody writes to it.
        unsafe { <A::Element as crate::Element>::load((&raw const self.0).cast::<A::Element>().add(A::offset(index))) }
    }

    /// The number of elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{Constant};
    /// assert_eq!(Constant::new([[0u8; 4]; 3]).len(), 12);
    /// ```
    #[inline(always)]
    pub const fn len(&self) -> usize {
        A::LEN
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// # use tilewright_cuda_std::{Constant};
    /// assert!(!Constant::new([[0u8; 4]; 3]).is_empty());
    /// ```
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        A::LEN == 0
    }

    /// The values, for the host.
    ///
    /// ```standalone_crate
    /// # use cuda_std::constant;
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// #[constant]
    /// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
    ///
    /// assert_eq!(WEIGHTS.values().iter().sum::<f32>(), 1.0);
    /// ```
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn values(&self) -> &A {
        &self.0
    }
}
