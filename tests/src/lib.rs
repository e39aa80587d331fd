//! What the integration tests share: a product with everything around it that a kernel must leave alone, its result in
//! double precision, and the kernels by name.
//!
//! ```text
//!  Shape, Layouts ──► Problem ──run by a Kernel on a Place──► Problem, C changed
//!                        │                                       │
//!                        └── expected() ──► Expected ── check ◄──┘
//! ```

pub mod agreement;
pub mod conformance;
pub mod device_features;
mod expected;
mod kernel;
mod operand;
mod planned;
mod problem;
mod program;
pub mod scaling;
pub mod special;
pub mod special_values;
pub mod suite;
mod tensor_cores;

pub use expected::Expected;
pub use kernel::{Error, Kernel, Place};
pub use operand::{Geometry, Layout, Operand, Order, SENTINEL, View};
pub use planned::{Batch, Planned, Results, check_parts};
pub use problem::{Layouts, Problem, Shape};
pub use program::program;
pub use tensor_cores::{MmaPrecision, launch_mma, run_mma};
