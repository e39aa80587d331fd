//! Matrix products on kernels written in Rust, on an NVIDIA GPU or, from the same source, on the CPU.
//!
//! ```
//! use ndarray::array;
//! use tilewright::{Device, Precision};
//!
//! // A CUDA GPU if there is one, otherwise the CPU executor and the reason.
//! let (device, _why_no_gpu) = Device::open()?;
//! let a = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];
//! let b = array![[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]];
//! let mut c = ndarray::Array2::zeros((3, 3));
//! tilewright::gemm(&device, Precision::Fp32, 1.0, a.view(), b.view(), 0.0, c.view_mut())?;
//! assert_eq!(c, a.dot(&b));
//! # Ok::<(), tilewright::Error>(())
//! ```
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | [`device`] | where kernels run, and launches that are safe |
//! | [`kernels`] | the kernels by name, and what each can compute |
//! | [`plan`] | which kernel computes a product, and why |
//! | [`operand`] | `ndarray` views to a device and back |
//!
//! The program over it, which checks, times and tunes the kernels, is the package `host`.

pub mod device;
mod error;
pub mod kernels;
mod multiply;
pub mod operand;
pub mod plan;
mod precision;
mod scale;
mod sizes;
mod tensor_map;

pub use device::{Buffer, Device};
pub use error::Error;
pub use multiply::{Packed, gemm, gemv};
pub use operand::DeviceMatrix;
pub use precision::{Precision, Tolerance};
pub use runtime::{Bytes, Error as DeviceError};
pub use scale::{scale, scale_in_place};
pub use sizes::Sizes;

/// The examples in the README, which have to compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
