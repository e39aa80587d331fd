//! Reading PTX, what the assembler says of it, and the machine code that it becomes.
//!
//! [`Ptx`] needs no tool. [`assemble`] and [`disassemble`] run NVIDIA's `ptxas` and `nvdisasm`, which need no GPU.

mod assembler;
mod ptx;
mod sass;
mod tools;

pub use assembler::{Assembly, KernelResources, assemble};
pub use ptx::{CheckError, Function, MemoryInstruction, Ptx};
pub use sass::{KernelCode, disassemble};
pub use tools::{CUDA_BIN_VARIABLE, CudaTool, ToolError};
