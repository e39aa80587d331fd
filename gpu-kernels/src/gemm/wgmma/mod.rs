//! Tensor cores fed by the copy engine: for GPUs of compute capability 9.0 (`sm_90a`).
//!
//! | module | what |
//! |---|---|
//! | [`split`] | fp32-accurate products: operands split into parts on the way to the tensor cores |
//! | [`unfit`] | which tiles alone are to be computed, after a kernel that could not multiply their operands |
//! | [`scaled`] | fp32-accurate products of operands that have been scaled and split before |
//! | [`short`] | the same for few terms, with results that the copy engine stores |
//! | [`single`] | products of rounded operands: TF32, bf16, fp16 |
//! | `pipeline` | the frame of the latter three: the copy engine feeds the tensor cores |
//! | `convert` | the warps that load and convert, in `split` |
//! | `looks` | what cannot be split: who looks for it, and who is told |
//! | `operand` | how operands lie there, and how threads read them |
//! | `scheme` | how the parts are multiplied |

mod convert;
mod looks;
mod operand;
mod pipeline;
pub mod scaled;
mod scheme;
pub mod short;
pub mod single;
pub mod split;
pub mod unfit;
