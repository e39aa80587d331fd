//! Kernels whose blocks tell one another what they have done, one pattern in each module, and the operation beside it.
//!
//! | module | pattern | what orders the blocks |
//! |---|---|---|
//! | [`histogram`] | many threads add to few elements: first in shared memory, then in global memory | nothing has to |
//! | [`relax`] | all blocks of a cooperative launch meet, again and again | a counter that is acquired and released |
//! | [`sum`] | the block that is done last adds up what all have found | a counter that each acquires and releases |
//! | [`scan`] | a block waits for those before it (decoupled look-back) | what is waited for is one word, and carries the value itself |

#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod histogram;
pub mod relax;
pub mod scan;
pub mod sum;
mod zero;

/// All of them.
#[cfg(not(target_arch = "nvptx64"))]
pub const OPERATIONS: &[&dyn testkit::Operation] = &[&histogram::Histogram, &relax::Relax, &scan::Scan, &sum::Sum];
