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
//! | `staging` | results in shared memory, which the copy engine stores |
//! | `turn` | whose turn it is to issue products |
//! | `looks` | what cannot be split: who looks for it, and who is told |
//! | `ring` | places in shared memory that one role fills and another empties |
//! | `operand` | how operands lie there, and how threads read them |
//! | `scheme` | how the parts are multiplied |

mod convert;
mod looks;
mod operand;
mod pipeline;
mod ring;
pub mod scaled;
mod scheme;
pub mod short;
pub mod single;
pub mod split;
mod staging;
mod turn;
pub mod unfit;

use cuda_std::prelude::*;

/// The number of this warp in its block. Every call computes it anew, for a role that should not keep it in a register.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn warp_number() -> u32 {
    // SAFETY: the caller's promise.
    unsafe { uniform(thread::thread_idx_x() / 32) }
}

/// A value that is the same in all lanes, from the first of them, so that the assembler knows that it is, and keeps it in a
/// register for the whole warp.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn uniform(value: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { warp::warp_shuffle_idx(warp::ALL_LANES, value, 0, 32).0 }
}
