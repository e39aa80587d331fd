//! What the integration tests share: a product with everything around it that a kernel must leave alone, its result in
//! double precision, and the kernels by name.
//!
//! ```text
//!  Sizes, Layouts ──► Problem ──run by a Kernel on a Place──► Problem, C changed
//!                        │                                       │
//!                        └── expected() ──► Expected ── check ◄──┘
//! ```

pub mod accuracy;
pub mod agreement;
pub mod call_time;
pub mod conformance;
pub mod device_features;
pub mod epilogue;
mod expected;
pub mod grouped;
pub mod invariance;
mod kernel;
mod operand;
pub mod packed_once;
mod planned;
mod problem;
mod program;
pub mod scaling;
pub mod special;
pub mod special_values;
pub mod streams;
pub mod suite;
mod tensor_cores;

use cuda_std::Dim3;
use gpu_kernels::Grid;

pub use expected::Expected;
pub use kernel::{Error, Kernel, Place};
pub use operand::{Geometry, Layout, Operand, SENTINEL, View};
pub use planned::{Batch, Planned, Results, check_parts};
pub use problem::{Layouts, Problem};
pub use program::program;
pub use tensor_cores::{MmaPrecision, launch_mma, run_mma};
pub use tilewright::Sizes;

/// The grid of a kernel with half of its blocks, so that each goes on to a second piece of work, as blocks do where there is more of
/// it than a grid has blocks. For kernels along one dimension whose blocks go on. (Plans launch all blocks: `planned.rs`.)
pub fn half_of_the_grid(kernel: &impl Grid) -> Dim3 {
    let grid = kernel.grid();
    Dim3 { x: grid.x.div_ceil(2), ..grid }
}
