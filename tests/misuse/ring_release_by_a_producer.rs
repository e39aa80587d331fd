//! Only a consumer of a ring releases a stage.

use blocks::ring::Producer;

unsafe fn fill(producer: Producer<4>) {
    unsafe {
        producer.acquire();
        producer.release();
    }
}

fn main() {}
