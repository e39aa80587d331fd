//! From a crate of kernels in Rust to PTX, with rust-cuda's `CudaBuilder` interface and rustc's own NVPTX backend.
//!
//! ```no_run
//! # use tilewright_cuda_builder as cuda_builder;
//! use cuda_builder::{Arch, CudaBuilder};
//!
//! let build = CudaBuilder::new("../gpu-kernels").archs(&[Arch::Sm80, Arch::Sm90a]).build()?;
//! for module in &build.modules {
//!     println!("{}: {} kernels in {}", module.arch, module.kernels.len(), module.path.display());
//! }
//! # Ok::<(), cuda_builder::Error>(())
//! ```
//!
//! A build script that puts the PTX into a program is one line, `cuda_builder::embed("../gpu-kernels", &[Arch::Sm80])`:
//! see [`embed`].
//!
//! # How it works
//!
//! ```text
//!  kernel crate ──cargo rustc──▶ bitcode of the crate, its dependencies and `core`     once for all architectures
//!  bitcode ──llvm-link, address-space pass, opt, llc──▶ PTX                            for each architecture
//!  PTX ──check──▶ Build
//! ```
//!
//! The link step is this crate's own, because it is where Rust's one kind of pointer has to become LLVM's several: see the
//! source of the module `pass`. What it guarantees is checked in the PTX: every load and store names its state space,
//! nothing is in local memory, every kernel has launch bounds. A kernel for which that is not so fails the build.
//!
//! [`toolchain`] says what this needs on the machine, and finds it; [`inspect`] reads PTX, and what ptxas says of it.
//!
//! # Differences from rust-cuda
//!
//! rust-cuda's builder of that name runs a compiler backend of its own, which needs one certain old nightly compiler. This
//! one needs the toolchains that exist, and differs where that makes a difference: there is no `NvvmArch`, but [`Arch`];
//! [`CudaBuilder::build`] returns the modules, not a path; several architectures come out of one build.

mod arch;
mod build_script;
mod builder;
mod compile;
mod cubin;
mod environment;
mod error;
mod explain;
mod features;
mod files;
pub mod inspect;
mod link;
mod metadata;
mod parallel;
mod pass;
pub mod toolchain;

pub use arch::{Arch, UnknownArch};
pub use build_script::{LINES_VARIABLE, SKIP_VARIABLE, embed};
pub use builder::{Build, CudaBuilder, KernelEntry, Pipeline, PtxModule};
pub use error::Error;
pub use explain::Unsupported;
pub use files::write_atomically;
pub use gpu_facts::{ComputeCapability, KernelFacts, Limits};
pub use kernel_digest as digest;
pub use pass::PassError;
