//! Memory in the order of streams, and the context that is current, on the driver that only pretends.

use crate::fake_driver::{assert_says, counter};
use crate::{fake_library, isolated};
use tilewright_cuda_driver::{Gpu, current_gpu};

#[test]
fn memory_is_freed_on_its_stream_and_no_pool_is_left() {
    isolated("memory_is_freed_on_its_stream_and_no_pool_is_left", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let before = counter::<i32>("fake_live_objects");
        let pool = gpu.new_pool(1 << 20).unwrap();
        // SAFETY: to the fake driver a stream is any number.
        let there = unsafe { gpu.on_stream(std::ptr::without_provenance_mut(4712)) };
        let memory = pool.allocate(&there, 1000).unwrap();
        assert!(memory.address() != 0 && memory.address().is_multiple_of(256));
        assert_eq!(counter::<usize>("fake_last_stream"), 4712);
        assert_eq!(counter::<i32>("fake_live_objects"), before + 2);
        gpu.synchronize().unwrap();
        drop(memory);
        assert_eq!(counter::<usize>("fake_last_stream"), 4712);
        drop((pool, there));
        assert_eq!(counter::<i32>("fake_live_objects"), before);
    });
}

#[test]
fn too_little_memory_is_an_error() {
    isolated("too_little_memory_is_an_error", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let pool = gpu.new_pool(0).unwrap();
        assert_says(&pool.allocate(&gpu, 1 << 40).unwrap_err(), &["cuMemAllocFromPoolAsync", "2"]);
    });
}

#[test]
fn a_gpu_without_pools_says_so() {
    isolated("a_gpu_without_pools_says_so", fake_library, &[("FAKE_CUDA", "cuMemPoolCreate=801")], || {
        assert_says(&Gpu::open(0).unwrap().new_pool(0).unwrap_err(), &["cuMemPoolCreate", "801"]);
    });
}

#[test]
fn the_current_context_is_told_from_others() {
    isolated("the_current_context_is_told_from_others", fake_library, &[], || {
        let first = Gpu::open(0).unwrap();
        let of_first = current_gpu().unwrap().unwrap();
        let _second = Gpu::open(1).unwrap();
        let of_second = current_gpu().unwrap().unwrap();
        assert_eq!((of_first.ordinal(), of_second.ordinal()), (0, 1));
        first.make_current().unwrap();
        assert_eq!(current_gpu().unwrap(), Some(of_first));
        assert_eq!(std::thread::spawn(|| current_gpu().unwrap()).join().unwrap(), None);
    });
}
