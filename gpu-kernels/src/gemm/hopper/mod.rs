//! Kernels for compute capability 9.0 (`sm_90a`): TMA, in one of them `cp.async`, loads operands into shared memory, `wgmma` multiplies
//! them. The warps of most have roles ("warp-specialized").
//!
//! README.md in this directory describes the protocol between the roles of a block: which barrier says what, and who makes
//! which transition. The modules, in the order in which to read them:
//!
//! | module | what |
//! |---|---|
//! | `operand` | how operands lie in shared memory, and how threads read them |
//! | `pipeline` | the main loop's frame for operands that are multiplied as TMA has loaded them |
//! | [`rounded`] | products of rounded operands (TF32, bf16, fp16): the frame and one product |
//! | [`fp16_pairs`] | fp32-accurate products of operands that [`crate::pack`] has made pairs of fp16 numbers |
//! | `exceptions` | numbers that these pairs leave out: their products are added to the sums |
//! | `promotion` | how partial sums of these get to the accumulators: times factors, and in units of their rows |
//! | [`digits`] | nearly correctly rounded products of operands that [`crate::pack`] has made digits of 8 bits |
//! | [`staged_pairs`] | the same, with results that TMA stores while consumers go on |
//! | `pairs_frame`, `first_steps` | what these two have in common: tile, shared memory, factors; the beginning of the epilogue |
//! | [`pairs_info`] | what goes with a packed operand: factors, lines left to the fallback, where there are zeros |
//! | [`short_k`] | products of pairs of fp16 numbers for small k, with results that TMA stores |
//! | `scheme` | which products of high and low parts make an fp32-accurate product |
//! | [`decomposed`] | fp32-accurate products in one pass: converter warps and consumers decompose the operands on the way |
//! | [`divided_steps`] | the same without TMA, for smaller tiles and any alignment: warpgroups with k, or tiles, of their own |
//! | [`few_columns`] | the same for 16 columns |
//! | `lines` | the operands of these two: copied from wherever their rows begin |
//! | `decomposed_block` | what the roles of such a block share |
//! | `converter` | the converter warps of `decomposed` |
//! | [`anywhere`] | the kernels of `decomposed` for operands whose rows of memory begin anywhere |
//! | `shifted` | what loads these |
//! | `whole_rows` | results stored row by row, by way of shared memory |
//! | `scan_schedule` | which operands a block scans, and when |
//! | [`fallback`] | which tiles another kernel has left to be computed |

pub mod anywhere;
mod converter;
pub mod decomposed;
pub(super) mod decomposed_block;
pub mod digits;
pub mod divided_steps;
mod exceptions;
pub mod fallback;
pub mod few_columns;
mod first_steps;
pub mod fp16_pairs;
mod lines;
mod operand;
mod pairs_frame;
pub mod pairs_info;
mod pipeline;
mod promotion;
pub mod rounded;
pub(super) mod scan_schedule;
mod scheme;
mod shifted;
pub mod short_k;
pub mod staged_pairs;
mod whole_rows;
