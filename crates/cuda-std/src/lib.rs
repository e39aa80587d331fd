//! rust-cuda's `cuda_std` names for kernels that rustc's own NVPTX backend compiles, and that also run on the CPU.
//!
//! A kernel is a plain function under [`kernel`]:
//!
//! ```standalone_crate
//! use cuda_std::prelude::*;
//! # extern crate tilewright_cuda_std as cuda_std;
//!
//! /// `y[i] = a·x[i] + y[i]`, one thread per element.
//! #[kernel(block = 256, requires(x.len() == y.len()))]
//! pub fn axpy_fp32(a: f32, x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
//!     if let Some(y) = y.own()
//!         && let Some(x) = x.get(y.index())
//!     {
//!         y.set(math::fma(a, x, y.get()));
//!     }
//! }
//! ```
//!
//! Compiled for `nvptx64-nvidia-cuda` this is the PTX entry point `axpy_fp32`. Compiled for the CPU it is a struct of the
//! same name whose fields are the arguments: a launch is `axpy_fp32 { a: 2.0, x, y }`, so an argument that is missing or
//! of the wrong type does not compile, and one that breaks `requires` is refused before anything runs.
//!
//! Block, grid and shared memory are the kernel's own, or what a launch chooses, in fields of the same struct. A generic function names its
//! instances, each of which is such a kernel:
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::executor::{Checks, Executor};
//! use cuda_std::prelude::*;
//!
//! /// `x[i] += step`: each launch chooses the shape of its blocks, of at most 1024 threads.
//! #[kernel(block <= 1024, any_grid, instances(add_u32 = <u32>, add_f64 = <f64>))]
//! pub fn add<T: Element + KernelParam + core::ops::Add<Output = T>>(x: DisjointSlice<'_, T>, step: T) {
//!     for x in x.own_elements() {
//!         x.set(x.get() + step);
//!     }
//! }
//!
//! let mut x = [1.0, 2.0, 3.0];
//! let kernel = add_f64 { x: DisjointSlice::new(&mut x), step: 0.5, block: Dim3::from(64) };
//! // SAFETY: the only view is of an array of this program.
//! unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(2))? };
//! assert_eq!(x, [1.5, 2.5, 3.5]);
//! # Ok::<(), cuda_std::executor::LaunchError>(())
//! ```
//!
//! # Two implementations of every item
//!
//! | | GPU (`target_arch = "nvptx64"`) | CPU |
//! |---|---|---|
//! | [`thread`], [`warp`] | special registers, `bar.sync`, `shfl.sync` | the executor's coroutines |
//! | [`GlobalSlice`], [`GlobalSliceMut`] | a pointer and a length; `_unchecked` is a plain load or store | every access checked |
//! | [`DisjointSlice`] | the same, but each thread gets its own elements, chunks or rows only, so that nothing is unsafe | the same |
//! | [`atomic`], [`GlobalAtomics`] | `atom`, `ld.acquire`, `st.release`, `fence` | the same, and clocks that know what is ordered |
//! | [`cluster`] | `mapa`, `barrier.cluster`, `ld`, `st` and `atom` of `.shared::cluster` | the same, with a clock for each thread |
//! | [`grid`] | the same, as the barrier of a cooperative launch | the same |
//! | [`mod@print`], panics | messages in the host's memory, a trap | collected by the launch; a report |
//! | [`mod@constant`] | `.const` memory | a static of the program |
//! | [`Shared`], [`SharedSlice`] | `.shared` memory | a store per block, with a shadow that sees races |
//! | [`Element`]: numbers of 1 to 8 bytes, structs by `#[derive(Element)]` | a load or a store, or one of each field | the same, and races are those of bytes |
//!
//! # The examples
//!
//! Each item has an example that runs on the executor, with all checks. Where that needs a kernel, a closure stands for its body:
//!
//! ```
//! # use tilewright_cuda_std::{examples::{run, run_over}, prelude::*};
//! // A block of 64 threads, and what each of them returns, in the order of `thread::index`.
//! let lanes = run(64, || warp::lane_id());
//! assert_eq!(lanes[33], 1);
//!
//! // A block of 32 threads, whose only argument is a view of a slice.
//! let mut count = [0];
//! run_over(32, &mut count, |count: GlobalAtomics<'_, u32>| {
//!     Some(count.get(0)?.fetch_add(1, atomic::Relaxed, atomic::Scope::Device))
//! });
//! assert_eq!(count, [32]);
//! ```
//!
//! A block of these has 64 KiB of dynamic shared memory. `run_grid` takes a grid besides, and `run_clusters` a cluster. For a GPU the same
//! lines stand in a function under [`kernel`].
//!
//! # Safety
//!
//! What a kernel may do to memory rests on three things. The types of its arguments carry invariants that their safe
//! constructors establish; `requires` states what must hold between arguments and is checked by every launch; and the
//! block always has the shape that [`kernel`] names, or one within the bound that it names. The body's `unsafe` blocks say which of these they rely on.

#![no_std]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_unadjusted, asm_experimental_arch, core_intrinsics, ffi_const, link_llvm_intrinsics, stdarch_nvptx)
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

pub mod async_copy;
pub mod atomic;
pub mod cache;
pub mod cluster;
pub mod constant;
pub mod convert;
mod dim;
mod disjoint;
mod element;
mod global;
pub mod grid;
pub mod hint;
pub mod hopper;
mod image_map;
pub mod ldmatrix;
pub mod math;
pub mod mma;
mod param;
pub mod print;
#[doc(hidden)]
pub mod print_record;
pub mod shared;
mod tensor_map;
pub mod thread;
pub mod warp;
pub mod wgmma;

#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod examples;
#[cfg(not(target_arch = "nvptx64"))]
pub mod executor;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;
#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(not(target_arch = "nvptx64"))]
pub mod tensor_cores;
#[cfg(target_arch = "nvptx64")]
mod trap;

pub use atomic::GlobalAtomics;
pub use constant::Constant;
pub use dim::Dim3;
pub use disjoint::{
    DisjointSlice, OwnChunk, OwnChunks, OwnElement, OwnElements, OwnRow, OwnRows, Partition, PerBlock, PerThread,
    PerWarp,
};
pub use element::{Bf16, E4m3, E5m2, Element, F16};
pub use global::{GlobalSlice, GlobalSliceMut};
#[cfg(not(target_arch = "nvptx64"))]
pub use gpu_facts::{ComputeCapability, Excess, KernelFacts, KernelSource, Limits};
#[cfg(not(target_arch = "nvptx64"))]
pub use image_map::ImageLayout;
pub use image_map::ImageMap;
#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{AnyGrid, ContractViolation, ErasedKernel, Grid, Kernel};
#[doc(hidden)]
pub use param::assert_parameters_fit;
pub use param::{KernelParam, Layout};
#[cfg(not(target_arch = "nvptx64"))]
pub use param::{View, ViewAccess, ViewName};
pub use shared::{Shared, SharedSlice, dynamic_shared};
pub use tensor_map::{TensorMap, TensorMapMut};
#[cfg(not(target_arch = "nvptx64"))]
pub use tensor_map::{TileElement, TileLayout, TileSwizzle};
pub use tilewright_cuda_std_macros::{Element, KernelParam, constant, kernel};

/// What a kernel source imports: `use cuda_std::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Bf16, Dim3, DisjointSlice, E4m3, E5m2, Element, F16, GlobalAtomics, GlobalSlice, GlobalSliceMut, ImageMap,
        KernelParam, PerBlock, PerThread, PerWarp, Shared, SharedSlice, TensorMap, TensorMapMut, atomic, constant,
        convert, dynamic_shared, gpu_assert, gpu_panic, gpu_println, hint, kernel, math, thread, warp,
    };
}

/// What the expansions of the macros refer to.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub mod __private {
    pub use bytemuck;
    pub use std::format;
    pub use std::string::String;
}
