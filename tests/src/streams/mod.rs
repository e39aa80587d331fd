//! Programs on several streams: whatever they do, what comes out is what comes out if everything runs in the order of the program.
//!
//! [`programs`] makes them from a seed; [`overlap`] measures that copies and kernels run beside each other.

pub mod overlap;
pub mod programs;

use runtime::KernelSet;

// The source itself, because a crate with a workspace of its own cannot be a dependency.
#[path = "../../fixtures/streams/src/kernels.rs"]
pub mod kernels;

#[allow(dead_code, unreachable_pub, reason = "the generated items are `pub`, for whoever wants them so")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/streams.rs"));
}

/// The PTX of [`kernels`], made of this very source, so no digest has to say so.
pub static KERNELS: KernelSet = KernelSet::embedded(env!("CARGO_CRATE_NAME"), None, embedded::PTX, embedded::CUBINS);
