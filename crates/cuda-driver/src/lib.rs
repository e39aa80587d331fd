//! [`cust`] behind a driver library that is opened at run time, and a small safe layer on top.
//!
//! A program that uses this crate starts on any machine. Where there is an NVIDIA driver it uses the GPU; where there
//! is none, [`Gpu::open`] returns [`Error::NoDriver`], and the program can go on without one.
//!
//! ```no_run
//! use tilewright_cuda_driver::{Error, Gpu};
//!
//! # fn main() -> Result<(), Error> {
//! # let ptx = "";
//! let gpu = match Gpu::open(0) {
//!     Ok(gpu) => gpu,
//!     Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
//!         println!("{error}");
//!         return Ok(());
//!     }
//!     Err(error) => return Err(error),
//! };
//! let mut x = gpu.allocate::<f32>(1000)?;
//! x.copy_from_host(&[1.0; 1000])?;
//! let scale = gpu.load_ptx(ptx)?.function("scale")?;
//! let (mut address, mut factor) = (x.address(), 2.0f32);
//! // SAFETY: `scale` takes an address and a factor, and touches the 1000 elements behind the address.
//! unsafe { scale.launch(&gpu, [4, 1, 1], [250, 1, 1], 0, &mut [(&raw mut address).cast(), (&raw mut factor).cast()]) }?;
//! let mut result = vec![0.0; 1000];
//! x.copy_to_host(&mut result)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! `cust` declares the driver's functions as external symbols, which the linker would look for in `libcuda.so`: the
//! program would not start without it. This crate *defines* each of these symbols (`forwarders.rs`, generated from the
//! declarations). A forwarder opens `libcuda.so.1` when the first of them is called, looks its function up in it, and
//! calls that. The environment variable `TILEWRIGHT_LIBCUDA` ([`LIBRARY_VARIABLE`]) names another library to open.
//!
//! Forwarders also keep `cust` sound. Its results are a Rust enum of CUDA 11.4, and a driver may return newer ones. To
//! `cust` these become `CUDA_ERROR_UNKNOWN`, while the errors of this crate still show the driver's own code and name.
//! Results are all that is watched: the few other enums that `cust` reads from the driver, none of them used here, reach
//! it as they are.
//!
//! # What a crate outside this workspace has to write
//!
//! `cust` finds CUDA at build time through the crate `find_cuda_helper`, which fails without a CUDA toolkit and links
//! libcuda with one. This workspace replaces it by one that does neither. Cargo applies a `[patch]` only where it
//! stands in the manifest of the workspace that is being built, so a dependent has to repeat it. This manifest is a
//! whole example, which this crate's tests build; from elsewhere than this repository, put `git = "…"` in place of each
//! `path`:
//!
//! ```toml
#![doc = include_str!("../downstream.toml")]
//! ```
//!
//! Use `cust` as [`cuda_driver::cust`](cust) rather than as a dependency of its own: a crate that does not also link
//! this one lacks the driver's functions.
//!
//! # Threads and order
//!
//! A [`Gpu`] has one stream, on which everything runs in the order in which it was started, from whatever thread; handles made by
//! [`Gpu::with_new_stream`] have one of their own instead, those made by [`Gpu::on_stream`] another library's. What runs on different
//! streams runs in no order, unless one waits for an [`Event`] of the other.
//! Copies wait until they are done; launches, fills, events, and copies whose name begins with `start` do not. An error of a kernel is reported by a later call
//! that waits; it ends the GPU's context for the whole process ([`Error::ContextLost`]).

mod call;
mod capture;
mod dependent_launch;
mod driver_call;
mod encode;
mod error;
mod event;
mod forwarders;
mod gpu;
mod graph;
mod host_memory;
mod image_tensor;
mod launches;
mod library;
mod memory;
mod module;
mod pool;
mod ptx;
mod results;
mod stream;
mod tensor_map;
mod version;

pub use cust;
pub use cust::memory::bytemuck::Pod;

pub use capture::{CurrentGpu, RelaxedCapture, current_gpu, gpu_of_address, is_capturing, relax_capture};
pub use driver_call::DriverCall;
pub use error::{Error, LaunchRejected, PtxFault, PtxRejected};
pub use event::Event;
pub use gpu::{Gpu, KeptContext, MemoryInfo, Properties, driver_version, keep_context};
pub use gpu_facts::{ComputeCapability, Excess, KernelFacts, Limits, ptx_facts};
pub use graph::{ExecutableGraph, Graph, GraphLaunch};
pub use host_memory::HostMemory;
pub use image_tensor::ImageTensor;
pub use library::LIBRARY_VARIABLE;
pub use memory::DeviceMemory;
pub use module::{Function, Module, Resources};
pub use pool::{MemoryPool, OrderedMemory};
pub use ptx::{PtxSummary, PtxTarget};
pub use tensor_map::{
    EncodedTensorMap, L2Promotion, TensorDimension, TensorElement, TensorMapFault, TensorMapRejected, TensorSwizzle,
    TiledTensor,
};
pub use version::DriverVersion;
