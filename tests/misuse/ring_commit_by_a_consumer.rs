//! Only a producer of a ring commits a stage.

use blocks::ring::Consumer;

unsafe fn read(consumer: Consumer<4>) {
    unsafe {
        consumer.wait();
        consumer.commit();
    }
}

fn main() {}
