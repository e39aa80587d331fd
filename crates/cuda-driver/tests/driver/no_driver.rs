//! Without a driver everything returns a typed error, at once and as often as it is asked.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::{isolated, no_library};
use tilewright_cuda_driver::cust::error::CudaError;
use tilewright_cuda_driver::{Error, Gpu, cust, driver_version};

fn assert_no_driver(error: Error) {
    let Error::NoDriver { tried, reason } = &error else { panic!("{error}") };
    assert_eq!(tried, "/nonexistent/libcuda.so.1");
    assert!(reason.contains("No such file"), "{reason}");
    let message = error.to_string();
    assert!(message.contains("no CUDA driver") && message.contains("Install the NVIDIA driver"), "{message}");
    assert_eq!(error.driver_call(), None);
}

#[test]
fn every_way_in_says_that_there_is_no_driver() {
    isolated("every_way_in_says_that_there_is_no_driver", no_library, &[], || {
        assert_no_driver(driver_version().unwrap_err());
        assert_no_driver(Gpu::count().unwrap_err());
        assert_no_driver(Gpu::open(0).unwrap_err());
        assert_no_driver(Gpu::open(usize::MAX).unwrap_err());
    });
}

#[test]
fn many_threads_ask_at_once() {
    isolated("many_threads_ask_at_once", no_library, &[], || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| (0..100).for_each(|_| assert_no_driver(Gpu::open(0).unwrap_err())));
            }
        });
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(2), "3200 attempts took {elapsed:?}");
    });
}

#[test]
fn cust_itself_gets_a_code_it_knows() {
    isolated("cust_itself_gets_a_code_it_knows", no_library, &[], || {
        assert_eq!(cust::init(cust::CudaFlags::empty()), Err(CudaError::NoDevice));
        assert_eq!(cust::device::Device::num_devices(), Err(CudaError::NoDevice));
    });
}

#[test]
fn this_program_neither_needs_the_driver_nor_hides_its_functions() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("ldd").arg(&program).output().unwrap();
    let libraries = String::from_utf8(output.stdout).unwrap();
    assert!(libraries.contains("libc.so"), "ldd does not tell: {libraries}");
    assert!(!libraries.contains("libcuda"), "{libraries}");

    // A forwarder that other libraries can see would be called in place of the driver's function, by the driver too.
    let output = Command::new("nm").args(["--dynamic", "--format=posix"]).arg(&program).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    assert!(symbols.contains("dlopen"), "nm does not tell: {symbols}");
    let visible: Vec<&str> = symbols.lines().filter(|line| line.starts_with("cu")).collect();
    assert!(visible.is_empty(), "{visible:?}");
}
