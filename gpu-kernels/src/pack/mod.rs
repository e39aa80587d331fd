//! Kernels that bring an operand into another form before it is multiplied, or its result afterwards.
//!
//! ```text
//!             terms                                       words
//!         ┌───────────────┐                       ┌───────────────────┐
//!   lines │ any strides,  │  ──► tiles of 64×64   │ line 0            │   every line a multiple of 128 bytes,
//!         │ rows of A or  │      through shared   ├───────────────────┤   zeros behind the last term:
//!         │ columns of B  │      memory           │ line 1            │   what TMA loads best
//!         └───────────────┘                       └───────────────────┘
//! ```
//!
//! The *lines* of an operand are what a product multiplies with one another: the rows of A, the columns of B. Each has the k
//! *terms* of its sums.
//!
//! | module | what |
//! |---|---|
//! | [`clear`] | zeros in the part of a result that is not wanted |
//! | [`copy`] | the same numbers, in other places |
//! | [`digits`] | lines scaled by powers of two, each number in four digits of 8 bits |
//! | [`exceptions`] | numbers that are not packed with their lines |
//! | [`group_flags`] | what is to be known of 256 lines of pairs: fallback, exceptions, zeros at both ends |
//! | [`half`] | numbers rounded to bf16 or fp16, two to a word |
//! | [`pairs`] | blocks of lines scaled by powers of two, each number in two fp16 parts |
//! | [`scaled`] | the power of two that a whole line is scaled by |
//! | `tile` | how a tile gets from memory with any strides to shared memory |

pub mod clear;
pub mod copy;
pub mod digits;
pub mod exceptions;
pub mod group_flags;
pub mod half;
#[cfg(not(target_arch = "nvptx64"))]
mod operation;
pub mod pairs;
pub mod scaled;
mod tile;

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::{COPY, PACK_BF16, PACK_FP16};
