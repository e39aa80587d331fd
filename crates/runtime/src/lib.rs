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
//! # Streams, and what a program cannot get wrong with them
//!
//! A launch returns at once, on a GPU. [`Device::new_stream`] makes a [`Stream`]: what is started by it runs beside what is started by the
//! device and by other streams, so that copies and kernels overlap. [`HostBuffer`] is the host's side of copies that nobody waits for, [`Event`]
//! tells when something has finished and how long it took, [`Graph`] starts many things by one call.
//!
//! None of that changes what comes out. Buffers remember what uses them, and what conflicts (of two operations that use a byte, at least
//! one writes it) runs in the order in which the program has started it, whatever streams it is on: the later one waits on the GPU. So safe
//! code can have
//!
//! - no race between streams: an operation waits for those before it that it conflicts with;
//! - no race between host and device: the host gets at page-locked memory by methods that wait, and as long as it borrows it, no copy that
//!   conflicts with that can be started; it has no reference to a device's memory at all;
//! - no use after free: a buffer that is dropped waits for what uses it, and a graph whose buffer is gone is refused by name
//!   ([`Error::DeadGraphBuffer`]).
//!
//! Nothing of that rests on a guard or a token: a buffer or a stream that is forgotten ([`std::mem::forget`]) stays allocated, with what is noted of
//! it. On the CPU executor everything is done when the call returns, with the same results, so a program with streams is tested without a GPU.
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | `device` | [`Device`]: opening, launching, waiting, measuring |
//! | `kernel_set`, `loader` | [`KernelSet`], [`kernel_set!`]: embedded PTX, and what of it is loaded |
//! | `buffer`, `allocations` | [`Buffer`], and what a launch checks of views |
//! | `stream`, `lane` | [`Stream`], [`Event`] |
//! | `order`, `claims` | who waits for whom: on a GPU, on the executor |
//! | `host_buffer`, `host_use`, `copies` | [`HostBuffer`], and copies and fills for which the host does not wait |
//! | `graph` | [`GraphBuilder`], [`Graph`] |
//! | `cpu_memory` | buffers in this processor's memory |
//! | `prints` | what kernels print on a GPU, and the report of one that panics |
//! | `short_list` | the lists that every launch makes |
//! | `tensor_map` | [`TensorLayout`], [`TensorTile`]: arrays as TMA sees them |
//! | `image_map` | [`ConvolvedImages`], [`PixelTile`]: images as TMA sees them |
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
mod image_map;
mod info;
mod kernel_set;
mod lane;
mod loader;
mod order;
mod prints;
mod short_list;
mod stream;
mod tensor_map;

pub use buffer::Buffer;
pub use device::Device;
pub use error::{Bytes, Error};
pub use graph::{Graph, GraphBuilder};
pub use host_buffer::HostBuffer;
pub use host_memory::available_host_memory;
pub use image_map::{ConvolvedImages, PixelTile};
pub use info::DeviceInfo;
pub use kernel_set::KernelSet;
pub use loader::LoadedKernel;
pub use stream::{Event, Stream, StreamPriority};
pub use tensor_map::{TensorLayout, TensorTile};
