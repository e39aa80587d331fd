//! Tensor cores fed by the copy engine: for GPUs of compute capability 9.0 (`sm_90a`).
//!
//! | module | what |
//! |---|---|
//! | [`split`] | fp32-accurate products: operands split into parts on the way to the tensor cores |
//! | `looks` | what cannot be split: who looks for it, and who is told |
//! | `ring` | places in shared memory that one role fills and another empties |
//! | `operand` | how operands lie there, and how threads read them |
//! | `scheme` | how the parts are multiplied |

mod looks;
mod operand;
mod ring;
mod scheme;
pub mod split;
