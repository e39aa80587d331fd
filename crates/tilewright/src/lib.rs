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
//!
//! # The order of the modules
//!
//! A module knows those in the lines above its own, and none below. In a line, none knows another, but for an arrow.
//!
//! ```text
//!  precision   sizes   views                       words that everything is said in; views of a device's memory
//!  constants ◄─ stored                             what the model of times knows of a GPU, and where that is stored
//!  refusal ◄─ error                                why a kernel is not taken, and what else can go wrong
//!  memory ◄─ device ◄─ tensor_map   placement      what a device keeps, where kernels run, where matrices lie
//!  operand ◄─ packed_matrix ◄─ description         matrices on a device, those that are packed once, the product of some
//!  device_facts                                    what a plan knows of a device
//!  epilogue                                        what is done to results before they are stored
//!  ── kernels ──────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  scheme   auxiliary ◄─ scaling                   arithmetic; kernels before and after a product, and beside it
//!  contract                                        what a kernel is to a plan
//!  tiled   eligibility                             registering kernels in a row; whether one can compute a product
//!  basic   gemv   register_tiled   mma             the kernels, a family in each file
//!  wgmma ◄─ packed ◄─ short_k, staged   batched
//!  registry   grouped                              all of them, and those for products that differ
//!  ── plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  workspace   table   explanation                 memory, measured times, what a plan says of itself
//!  preparation ◄─ packing   options                what happens to operands first, or once; what a user wants
//!  kernel_candidate                                a kernel with all that comes before and after it
//!  gemm_plan ◄─ model                              a plan; how long it should take
//!  fit   used_constants                            constants from measured times; those that a plan goes by
//!  invariance                                      which order of sums rows keep their bits with
//!  choose   run                                    making one, running one
//!  cache                                           keeping those that were made
//!  grouped_explanation ◄─ grouped_choice ◄─ grouped   the same for products that differ
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  multiply   grouped   row_groups   scale         products in one call, products with diagonal matrices
//! ```

mod accuracy;
mod constants;
mod description;
pub mod device;
mod device_facts;
mod epilogue;
mod error;
mod grouped;
pub mod kernels;
mod memory;
mod multiply;
pub mod operand;
mod order;
mod packed_matrix;
mod placement;
pub mod plan;
mod precision;
mod refusal;
mod row_groups;
mod scale;
mod sizes;
mod stored;
mod tensor_map;
mod views;

pub use accuracy::{Accuracy, Bounds, Wanted};
pub use device::{Buffer, Device};
pub use epilogue::{Activation, Epilogue, EpilogueMatrix};
pub use error::Error;
pub use grouped::multiply_grouped;
pub use multiply::{Packed, gemm, gemv, multiply, multiply_with};
pub use operand::DeviceMatrix;
pub use order::{Order, Orders, UnknownOrders};
pub use packed_matrix::{Operand, PackedMatrix, Side};
pub use precision::{Precision, Tolerance};
pub use row_groups::multiply_row_groups;
pub use runtime::{Bytes, Error as DeviceError};
pub use scale::{scale, scale_in_place};
pub use sizes::Sizes;

/// The examples in the README, which have to compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
