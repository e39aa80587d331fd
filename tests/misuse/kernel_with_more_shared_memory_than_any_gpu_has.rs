//! What no GPU has is refused before there is anything to launch.

use cuda_std::prelude::*;

const STAGES: u32 = 4;

#[kernel(block = 256, dynamic_shared = STAGES * 75 * 1024)]
fn too_many_stages() {}

#[kernel(block = 256)]
fn too_large_an_array() {
    static TILE: Shared<[[f64; 100]; 100]> = Shared::new();
    let _ = &TILE;
}

#[kernel(block = 256, dynamic_shared = 200 * 1024)]
fn too_much_together() {
    const ROWS: usize = 64;
    static TILE: Shared<[[f32; 128]; ROWS]> = Shared::new();
    let _ = &TILE;
}

fn main() {}
