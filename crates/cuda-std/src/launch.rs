//! The traits that connect a kernel to its launch: `#[kernel]` makes of each kernel, or of each instance of a generic one, a struct of its
//! arguments, which implements them.

use core::ffi::c_void;
use std::string::String;
use std::vec::Vec;

use gpu_facts::KernelFacts;

use crate::{Dim3, View};

/// A kernel with its arguments, ready to be launched. `#[kernel]` implements this for the struct it makes.
///
/// # Safety
/// [`Kernel::FACTS`] are those of a PTX entry point whose parameters are those that [`Kernel::visit_params`] reports, in that order,
/// compiled from the same source as [`Kernel::run_thread`]; every view among them is reported by [`Kernel::visit_views`].
pub unsafe trait Kernel: Copy + Send + Sync {
    /// What the kernel needs of a GPU: the block, the shared memory, the architecture. Where launches choose the block, it has as many
    /// threads as it can have, in a row; where they choose the dynamic shared memory, there is none. What a launch has chosen,
    /// [`Kernel::facts`] says.
    const FACTS: KernelFacts;

    /// The name of the entry point in the PTX.
    const NAME: &'static str = Self::FACTS.name;

    /// What this launch needs of a GPU: [`Kernel::FACTS`], with the block and the dynamic shared memory that it has chosen, of a kernel that
    /// leaves these to its launches.
    fn facts(&self) -> KernelFacts {
        Self::FACTS
    }

    /// Whether the arguments fulfil the `requires` conditions of the kernel.
    ///
    /// # Errors
    /// The first condition that does not hold, with the kernel's name and the values in question.
    fn check(&self) -> Result<(), ContractViolation>;

    /// Calls `visit` with the address of every argument, in the order of the PTX parameters.
    fn visit_params(&self, visit: &mut dyn FnMut(*const c_void));

    /// Calls `visit` for every view of memory among the arguments.
    fn visit_views(&self, visit: &mut dyn FnMut(View<'_>));

    /// Runs the kernel's body as one thread of a block, on the CPU.
    ///
    /// # Safety
    /// Called by the executor, which has set up the thread's context, and only after [`Kernel::check`] succeeded. The
    /// views are of memory that this processor can access, and mutable ones overlap no other.
    unsafe fn run_thread(self);

    /// The addresses of the arguments, as `cuLaunchKernel` takes them. They are valid while `self` is borrowed.
    fn param_addresses(&self) -> Vec<*mut c_void> {
        let mut addresses = Vec::new();
        self.visit_params(&mut |address| addresses.push(address.cast_mut()));
        addresses
    }
}

/// A kernel with its arguments, whichever it is: every [`Kernel`] behind a reference. What launches and checks is compiled once for all
/// kernels by it, and not again for each of them, of which a crate may have hundreds.
///
/// ```standalone_crate
/// # extern crate tilewright_cuda_std as cuda_std;
/// use cuda_std::{ErasedKernel, executor::{Checks, Executor}, prelude::*};
///
/// #[kernel(block = 4)]
/// fn ones(x: DisjointSlice<'_, f32>) {
///     x.own_elements().for_each(|x| x.set(1.0));
/// }
///
/// #[kernel(block = 4)]
/// fn doubles(x: DisjointSlice<'_, f32>) {
///     x.own_elements().for_each(|x| x.set(2.0 * x.get()));
/// }
///
/// let (mut x, mut y) = ([0.0; 4], [3.0; 4]);
/// let (first, second) = (ones { x: DisjointSlice::new(&mut x) }, doubles { x: DisjointSlice::new(&mut y) });
/// let both: [&dyn ErasedKernel; 2] = [&first, &second];
/// for kernel in both {
///     // SAFETY: the only view is of an array of this program.
///     unsafe { Executor::new(Checks::Full).launch_erased(kernel, Dim3::from(1)) }?;
/// }
/// assert_eq!((x, y), ([1.0; 4], [6.0; 4]));
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
///
/// # Safety
/// As for [`Kernel`], whose items of the same names these are.
pub unsafe trait ErasedKernel: Send + Sync {
    /// [`Kernel::FACTS`].
    fn declared(&self) -> &'static KernelFacts;

    /// [`Kernel::facts`].
    fn facts(&self) -> KernelFacts;

    /// [`Kernel::check`].
    ///
    /// # Errors
    /// Its errors.
    fn check(&self) -> Result<(), ContractViolation>;

    /// [`Kernel::visit_params`].
    fn visit_params(&self, visit: &mut dyn FnMut(*const c_void));

    /// [`Kernel::visit_views`].
    fn visit_views(&self, visit: &mut dyn FnMut(View<'_>));

    /// [`Kernel::run_thread`], of a copy.
    ///
    /// # Safety
    /// As for that.
    unsafe fn run_thread(&self);
}

// SAFETY: all of it is the kernel's own.
unsafe impl<K: Kernel> ErasedKernel for K {
    fn declared(&self) -> &'static KernelFacts {
        &K::FACTS
    }

    fn facts(&self) -> KernelFacts {
        Kernel::facts(self)
    }

    fn check(&self) -> Result<(), ContractViolation> {
        Kernel::check(self)
    }

    fn visit_params(&self, visit: &mut dyn FnMut(*const c_void)) {
        Kernel::visit_params(self, visit);
    }

    fn visit_views(&self, visit: &mut dyn FnMut(View<'_>)) {
        Kernel::visit_views(self, visit);
    }

    unsafe fn run_thread(&self) {
        // SAFETY: the caller's promise.
        unsafe { Kernel::run_thread(*self) }
    }
}

/// A kernel that knows the grid its arguments call for. The kernel's own crate says so: which thread has which element is what
/// the body's `unsafe` blocks rely on.
pub trait Grid: Kernel {
    /// The grid, in blocks; it is asked for once [`Kernel::check`] has passed. Every extent is at least 1 and within CUDA's limits; a problem
    /// without any output gives one block, which finds nothing to do.
    fn grid(&self) -> Dim3;
}

/// A kernel that is right on every grid: `#[kernel(…, any_grid)]`. A launch takes the grid as an argument, and checks it against
/// the device's limits.
pub trait AnyGrid: Kernel {}

/// A `requires` condition of a kernel that the arguments of a launch do not fulfil.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` cannot be launched with these arguments: it requires `{condition}`{values}")]
pub struct ContractViolation {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The condition, as written in the source.
    pub condition: &'static str,
    /// The values of the two sides where the condition is a comparison (` (4 against 5)`), otherwise empty.
    pub values: String,
}
