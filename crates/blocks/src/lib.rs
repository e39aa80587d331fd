//! Parts that kernels are built from, for the kernels of any crate; and generic bodies, of which an [`epilogue`] of one's own makes
//! a kernel of one's own.
//!
//! | module | what |
//! |---|---|
//! | [`shared_layout`] | the dynamic shared memory of a kernel, described once for the launch and for the kernel |
//! | [`named_barrier`] | the named barriers of a block, each handed out once, at compile time |
//! | [`ring`] | a ring of stages in shared memory that producers fill and consumers read |
//! | [`ping_pong`] | two warpgroups that issue their tensor-core products in alternation |
//! | [`staging`] | results that a warpgroup leaves in shared memory for TMA to store |
//! | [`block_or`] | what any thread of a block has found |
//! | [`reduce`] | sums and other combinations over a warp or a block |
//! | [`swizzle`] | where the elements of a tile lie, so that no access meets a bank twice |
//! | [`uniform`] | values that are the same in a whole warp |
//! | [`matrix`] | matrices in global memory, in any layout |
//! | [`major`] | which index of an operand runs fastest in memory, as a type |
//! | [`decompose`] | an fp32 number as a high and a low part that tensor cores multiply |
//! | [`mma_scheme`] | products of fp32 or bf16 operands by `mma.sync` |
//! | [`mma_tile`] | the main loop of a block that multiplies a tile of 128×128 by `mma.sync`, from wherever its operands come |
//! | [`epilogue`] | what happens to an accumulator before it is stored |
//! | [`register_tiled`] | a body: matrix products on CUDA cores, with tiles in registers |
//!
//! Like kernels, they are compiled twice: for the GPU, and for the CPU executor, which checks them. The crate has no kernel of
//! its own.
//!
//! # The examples
//!
//! They run on the executor, in the manner of those of [`cuda_std`](cuda_std#the-examples). Where an example is about one method, it begins with
//! parts that are ready for use: `ring::<2>(1, 1)` is a ring of two stages, each with one producer and one consumer, whose barriers are
//! initialized; `ping_pong()` is the alternation of two warpgroups, and `staging(0)` what belongs to the first warpgroup. How a kernel makes
//! them, the example of [`Ring`](ring::Ring), [`PingPong`](ping_pong::PingPong) or [`Staging`](staging::Staging) shows.

#![no_std]
#![allow(
    clippy::needless_range_loop,
    reason = "an array stays in registers only if it is indexed by constants, which iterators over it hide"
)]

pub mod block_or;
pub mod decompose;
pub mod epilogue;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod examples;
pub mod major;
pub mod matrix;
pub mod mma_scheme;
pub mod mma_tile;
pub mod named_barrier;
#[cfg(not(target_arch = "nvptx64"))]
mod overlap;
pub mod ping_pong;
pub mod reduce;
pub mod register_tiled;
pub mod ring;
pub mod shared_layout;
pub mod staging;
pub mod swizzle;
pub mod uniform;

#[cfg(not(target_arch = "nvptx64"))]
pub use overlap::elements_overlap;
