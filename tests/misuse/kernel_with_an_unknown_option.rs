//! What `#[kernel]` does not know, it refuses.

use cuda_std::prelude::*;

#[kernel(block = 32, blocks = 2)]
fn misspelled() {}

#[kernel(block = 32, block = 64)]
fn twice() {}

#[kernel(block = 32, arch = "ampere")]
fn no_architecture() {}

fn main() {}
