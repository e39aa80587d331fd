//! Shared memory holds arrays of numbers.

use cuda_std::prelude::*;

static NUMBER: Shared<f32> = Shared::new();
static STRINGS: Shared<[String; 4]> = Shared::new();

fn main() {
    let on_the_stack: Shared<[f32; 4]> = Shared::new();
    unsafe { on_the_stack.read(0) };
}
