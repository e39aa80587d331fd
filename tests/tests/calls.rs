//! What a call costs that comes again: `tilewright::multiply`, `gemm` and `gemv` plan nothing, and allocate nothing on the device
//! or on the heap. On the driver that only pretends, whose launches cost next to nothing.

mod fake_driver;
#[path = "fake_driver/log.rs"]
mod log;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;

use ndarray::{Array1, Array2, ShapeBuilder, s};
use tests::call_time;
use tilewright::plan::Options;
use tilewright::{Device, DeviceMatrix, Order, Orders, Precision, Sizes, kernels};

use fake_driver::isolated;
use log::Log;

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is the system allocator's own doing. A cell without a destructor can be used while a thread ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What this thread asks of the heap meanwhile.
fn heap_allocations(body: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    body();
    ALLOCATIONS.get() - before
}

/// How often a function was called after so many calls.
fn count_of(log: &Log, function: &str, after: usize) -> usize {
    log.names(after).filter(|name| *name == function).count()
}

/// A batch of matrices on the device, whatever is in them.
fn matrix(device: &Device, order: Order, rows: usize, cols: usize, gap: usize, count: usize) -> DeviceMatrix {
    let [lines, length] = order.lines(rows, cols);
    let pitch = length + gap;
    let buffer = device.allocate(lines * pitch * count).unwrap();
    DeviceMatrix::new_batch(buffer, [rows, cols], order.strides(pitch, 1), count, lines * pitch).unwrap()
}

/// Every kernel, in every layout, of operands that have to be prepared in every way that there is.
fn calls_again() {
    let log = Log::of_this_process();
    (log.begin)(0, 0, 0);
    let device = Device::cuda(0).unwrap();
    let mut calls = 0;
    for precision in Precision::ALL {
        for kernel in kernels::ALL.iter().filter(|kernel| kernel.scheme.serves(precision)) {
            for (orders, (gap, count)) in Orders::ALL.into_iter().zip([(0, 1), (1, 1), (0, 3), (4, 1)]) {
                let Sizes { m, n, k } = kernel.within(Sizes { m: 300, n: 200, k: 500 });
                let a = matrix(&device, orders.a, m, k, gap, count);
                let b = matrix(&device, orders.b, k, n, gap, count);
                let mut c = matrix(&device, Order::RowMajor, m, n, 0, count);
                let options = Options { precision: Some(precision), ..Options::from(*kernel) };
                let mut multiply = || tilewright::multiply(&device, options.clone(), 1.5, &a, &b, 0.0, &mut c);
                if multiply().is_err() {
                    // The kernel cannot compute this.
                    continue;
                }
                let (made, asked) = (device.plans_made(), log.count());
                let on_heap = heap_allocations(|| multiply().unwrap());
                assert_eq!(device.plans_made(), made, "{}", kernel.name);
                assert_eq!(count_of(&log, "cuMemAlloc_v2", asked), 0, "{}", kernel.name);
                let launched = ["cuLaunchKernel", "cuLaunchKernelEx"].map(|name| count_of(&log, name, asked));
                assert!(launched.iter().sum::<usize>() > 0, "{}", kernel.name);
                assert_eq!(on_heap, 0, "{} in {precision}", kernel.name);
                calls += 1;
            }
        }
    }
    assert!(calls >= 80, "{calls} calls");
}

#[test]
fn a_call_that_comes_again_plans_nothing_and_allocates_nothing() {
    let test = "a_call_that_comes_again_plans_nothing_and_allocates_nothing";
    for capability in ["8.6", "9.0"] {
        isolated(test, &[("FAKE_CUDA_CAPABILITY", capability), ("FAKE_CUDA_VERSION", "13000")], calls_again);
    }
}

#[test]
fn products_of_views_use_the_memory_of_earlier_ones() {
    isolated("products_of_views_use_the_memory_of_earlier_ones", &[], || {
        let log = Log::of_this_process();
        (log.begin)(0, 0, 0);
        let device = Device::cuda(0).unwrap();
        let (a, b) = (Array2::<f32>::ones((300, 100)), Array2::<f32>::ones((100, 200).f()));
        let (mut c, x, mut y) = (Array2::zeros((300, 200)), Array1::ones(100), Array1::zeros(300));
        for turn in 0..3 {
            let (asked, made) = (log.count(), device.plans_made());
            let on_heap = heap_allocations(|| {
                for precision in [Precision::Fp32, Precision::Fp16] {
                    tilewright::gemm(&device, precision, 1.0, a.view(), b.view(), 0.5, c.view_mut()).unwrap();
                }
                tilewright::gemv(&device, Precision::Fp32, 1.0, a.view(), x.view(), 0.0, y.view_mut()).unwrap();
            });
            let calls = (count_of(&log, "cuMemAlloc_v2", asked), device.plans_made() - made);
            match turn {
                0 => assert_eq!(calls.1, 3),
                _ => assert_eq!((calls, on_heap), ((0, 0), 0)),
            }
        }
        // Of smaller ones, too.
        let asked = log.count();
        let (a, mut c) = (a.slice(s![..200, ..90]), c.slice_mut(s![..200, ..50]));
        let b = b.slice(s![..90, ..50]);
        tilewright::gemm(&device, &kernels::GEMM_NAIVE_2D_FP32, 1.0, a, b, 0.5, c.view_mut()).unwrap();
        assert_eq!(count_of(&log, "cuMemAlloc_v2", asked), 0);

        let kept = device.kept_memory().0;
        assert!((4 * 110_000..1 << 22).contains(&kept), "{kept}");
        let asked = log.count();
        device.free_kept_memory();
        assert_eq!(device.kept_memory().0, 0);
        assert!(count_of(&log, "cuMemFree_v2", asked) >= 3);
    });
}

/// The fake GPU has 7 GiB that are free.
#[test]
fn what_is_kept_makes_way_where_memory_is_short() {
    isolated("what_is_kept_makes_way_where_memory_is_short", &[], || {
        let device = Device::cuda(0).unwrap();
        let options = || Options::from(&kernels::GEMM_NAIVE_2D_FP32);
        let multiply = |size: usize| {
            let (a, b) = (Array2::<f32>::zeros((size, 1)), Array2::<f32>::zeros((1, size)));
            let mut c = Array2::zeros((size, size));
            tilewright::gemm(&device, options(), 1.0, a.view(), b.view(), 0.0, c.view_mut())
        };
        multiply(10_000).unwrap();
        let kept = device.kept_memory().0 as usize;
        assert!(kept >= 400_000_000, "{kept}");
        // All that is free, and then as much as is kept.
        let free = device.free_memory().unwrap().unwrap().0 as usize;
        let most = device.allocate::<f32>(free / 4).unwrap();
        let more = device.upload(&vec![0.0f32; kept / 4]).unwrap();
        assert_eq!(device.kept_memory().0, 0);
        let error = device.allocate::<f32>(kept).unwrap_err();
        assert!(error.is_lack_of_memory(), "{error}");
        drop(more);
        // A product that needs what another one has left.
        multiply(9_000).unwrap();
        multiply(10_000).unwrap();
        assert!(multiply(10_500).unwrap_err().to_string().contains("memory"));
        drop(most);
    });
}

/// On different streams, nothing says which product comes first.
#[test]
fn streams_share_plans_and_never_a_workspace() {
    isolated("streams_share_plans_and_never_a_workspace", &[], || {
        let log = Log::of_this_process();
        (log.begin)(0, 0, 0);
        let device = Device::cuda(0).unwrap();
        let stream = |number: usize| {
            // SAFETY: the fake driver takes any number for a stream.
            unsafe { device.on_stream(std::ptr::without_provenance_mut::<c_void>(number)) }.unwrap()
        };
        let (a, b) =
            (matrix(&device, Order::RowMajor, 512, 512, 0, 1), matrix(&device, Order::RowMajor, 512, 512, 0, 1));
        let mut c = matrix(&device, Order::RowMajor, 512, 512, 0, 1);
        let mut multiply =
            |device: &Device| tilewright::multiply(device, Precision::Fp16, 1.0, &a, &b, 0.0, &mut c).unwrap();
        multiply(&device);
        let (asked, of_one) = (log.count(), device.kept_memory());
        assert!(of_one.0 > 0);
        let handles = [stream(16), stream(32)];
        for handle in &handles {
            assert_eq!(handle.kept_memory().0, 0);
            multiply(handle);
            multiply(&handle.clone());
            assert_eq!(handle.kept_memory(), of_one);
        }
        assert_eq!(
            (device.plans_made(), count_of(&log, "cuMemAlloc_v2", asked)),
            (1, 2),
            "a plan for all, memory for each"
        );
        // Memory goes with the last handle of its stream.
        let [one, other] = handles;
        let asked = log.count();
        let clone = one.clone();
        drop(one);
        assert_eq!(count_of(&log, "cuMemFree_v2", asked), 0);
        drop((clone, other));
        assert_eq!(count_of(&log, "cuMemFree_v2", asked), 2);
        assert_eq!(device.kept_memory(), of_one);
    });
}

/// `cargo test --release -p tests --test calls -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, of an optimized build"]
fn the_time_of_a_call() {
    isolated("the_time_of_a_call", &[], || println!("{}", call_time::report(&Device::cuda(0).unwrap()).unwrap()));
}
