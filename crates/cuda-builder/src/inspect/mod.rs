//! Reading PTX, what the assembler says of it, and the machine code that it becomes.
//!
//! [`Ptx`], [`split_by_kernel`], [`normal_form`], [`executed_together`], [`read_report`] and [`read_listing`] need no tool. [`assemble`],
//! [`disassemble`], [`examine`] and [`annotate`] run NVIDIA's `ptxas` and `nvdisasm`, which need no GPU.

mod annotate;
mod assembler;
mod check;
mod check_error;
mod examine;
pub(crate) mod loops;
mod normal;
mod places;
mod ptx;
mod sass;
mod split;
mod targets;
mod text;
mod together;
mod tools;

pub use annotate::{Annotated, Instruction, Live, Mark, annotate};
pub use assembler::{Assembly, KernelResources, assemble, read_report};
pub use check::Allowed;
pub use check_error::CheckError;
pub use examine::{Examination, examine};
pub use loops::{Loop, loops};
pub use normal::normal_form;
pub(crate) use places::numbered;
pub use places::{Place, Places};
pub use ptx::{Function, MemoryInstruction, Ptx};
pub use sass::{CodeLoop, KernelCode, disassemble, read_listing};
pub(crate) use split::split;
pub use split::split_by_kernel;
pub use targets::Needs;
pub(crate) use text::has_opcode;
pub use together::executed_together;
pub use tools::{CUBINS_VARIABLE, CUDA_BIN_VARIABLE, CudaTool, ToolError, user_tools};
