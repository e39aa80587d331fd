//! A producer of a ring does not wait for a stage to be full: it is the one that fills it.

use blocks::ring::Ring;

unsafe fn fill(ring: Ring<4>) {
    unsafe { ring.producer().wait() };
}

fn main() {}
