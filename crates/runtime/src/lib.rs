//! Launches the kernels of any crate, on an NVIDIA GPU or, from the same source, on the CPU executor: devices, buffers, streams,
//! tensor maps, times. Knows nothing of what the kernels are for.
//!
//! ```
//! # use tilewright_runtime as runtime;
//! use cuda_std::prelude::*;
//! use cuda_std::{Dim3, Grid, executor::Checks};
//! use runtime::Device;
//!
//! /// `y[i] = a·x[i] + y[i]`, one thread per element.
//! #[kernel(block = 256, requires(x.len() == y.len()))]
//! pub fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
//!     if let Some(y) = y.own()
//!         && let Some(x) = x.get(y.index())
//!     {
//!         y.set(math::fma(a, x, y.get()));
//!     }
//! }
//!
//! impl Grid for axpy<'_> {
//!     fn grid(&self) -> Dim3 {
//!         Dim3::from((self.x.len().div_ceil(256)).max(1) as u32)
//!     }
//! }
//!
//! // A program with embedded PTX says `Device::open(&[&KERNELS])`, and gets a GPU if there is one.
//! let device = Device::cpu(Checks::Full);
//! let (x, mut y) = (device.upload(&[1.0; 1000])?, device.upload(&[0.5; 1000])?);
//! device.launch(axpy { a: 2.0, x: x.view(), y: y.view_disjoint() })?;
//! let mut result = [0.0; 1000];
//! y.copy_to(&mut result)?;
//! assert_eq!(result, [2.5; 1000]);
//! # Ok::<(), runtime::Error>(())
//! ```
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | `device` | [`Device`]: opening, launching, waiting, measuring |
//! | `kernel_set`, `loader` | [`KernelSet`], [`kernel_set!`]: embedded PTX, and what of it is loaded |
//! | `buffer`, `allocations` | [`Buffer`], and what a launch checks of views |
//! | `prints` | what kernels print on a GPU, and the report of one that panics |
//! | `short_list` | the lists that every launch makes |
//! | `tensor_map` | [`TensorLayout`], [`TensorTile`]: arrays as TMA sees them |
//! | `info`, `host_memory` | [`DeviceInfo`], [`available_host_memory`] |

mod allocations;
mod buffer;
mod claims;
mod copies;
mod cpu_memory;
mod device;
mod error;
mod graph;
mod host_buffer;
mod host_memory;
mod host_use;
mod info;
mod kernel_set;
mod lane;
mod loader;
mod order;
mod prints;
mod short_list;
mod stream;
mod tensor_map;

/// The kernels of the page for authors of CUDA C++ are compiled, and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-cuda.md")]
mod from_cuda {}

pub use buffer::Buffer;
pub use device::Device;
pub use error::{Bytes, Error};
pub use graph::{Graph, GraphBuilder};
pub use host_buffer::HostBuffer;
pub use host_memory::available_host_memory;
pub use info::DeviceInfo;
pub use kernel_set::KernelSet;
pub use loader::LoadedKernel;
pub use stream::{Event, Stream, StreamPriority};
pub use tensor_map::{TensorLayout, TensorTile};
