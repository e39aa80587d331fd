//! A kernel reads a tensor map where the launch has put it, so that has to be a parameter of its own. Under which name does not
//! matter.

use cuda_std::TensorMap as Tiles;
use cuda_std::prelude::*;

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Operand<'a> {
    tiles: Tiles<'a>,
    count: u32,
}

#[kernel(block = 32)]
fn loads(operand: Operand<'_>) {
    let _ = operand.count;
}

fn main() {}
