//! The kernels of `fixtures/instructions`, and their PTX.

#![allow(missing_docs, reason = "stamped structs")]
#![allow(clippy::needless_range_loop, reason = "device code: plain indexing keeps arrays in registers")]

// The source itself, because a crate with a workspace of its own cannot be a dependency.
#[path = "../../fixtures/instructions/src/atomics.rs"]
pub mod atomics;

#[path = "../../fixtures/instructions/src/cache.rs"]
pub mod cache;

#[path = "../../fixtures/instructions/src/clusters.rs"]
pub mod clusters;

#[path = "../../fixtures/instructions/src/elements.rs"]
pub mod elements;

#[path = "../../fixtures/instructions/src/launches.rs"]
pub mod launches;

#[path = "../../fixtures/instructions/src/mma.rs"]
pub mod mma;

#[path = "../../fixtures/instructions/src/partitions.rs"]
pub mod partitions;

#[path = "../../fixtures/instructions/src/scalar.rs"]
pub mod scalar;

#[path = "../../fixtures/instructions/src/tiles.rs"]
pub mod tiles;

#[path = "../../fixtures/instructions/src/warp.rs"]
pub mod warp;

#[path = "../../fixtures/instructions/src/wgmma.rs"]
pub mod wgmma;

include!(concat!(env!("OUT_DIR"), "/instructions.rs"));
