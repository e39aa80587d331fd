//! What kernels print on a GPU, and the report of one that panics: the host's side, on the driver that only pretends, the one of
//! `cuda_driver`'s tests. Its kernels write to memory what `cuda_std`'s code on a GPU does.
//!
//! A process opens a driver's library only once, so each test runs in a process of its own.

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../cuda-driver/tests/driver/isolated.rs"]
mod isolated;

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use cuda_driver::LIBRARY_VARIABLE;
use cuda_std::executor::Checks;
use cuda_std::prelude::*;
use cuda_std::print::{PrintSink, Printed};
use cuda_std::print_record::LINES;
use tilewright_runtime::{Device, Error, KernelSet};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_prints.so", &[]));

fn isolated(test: &str, body: fn()) {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY);
    };
    isolated::isolated(test, prepare, body);
}

/// As the fake driver's kernel of this name prints it.
#[kernel(block = 1, grid = 1)]
fn prints(count: u32) {
    let mut n = 0;
    while n < count {
        gpu_println!("line {} of {}", n, count);
        n += 1;
    }
}

/// The fake driver has this one fail.
#[kernel(block = 1, grid = 1)]
fn panics() {}

/// And this one before its report is complete.
#[kernel(block = 1, grid = 1)]
fn traps_in_the_middle() {}

/// Neither prints nor panics.
#[kernel(block = 1, grid = 1)]
fn is_quiet() {}

fn ptx(kernel: &str) -> &'static str {
    let variable = if kernel == "is_quiet" { "" } else { ".visible .global .align 8 .b8 __tilewright_channel[32];\n" };
    format!(".version 7.4\n.target sm_80\n{variable}.visible .entry {kernel}() .reqntid 1 {{\n}}\n").leak()
}

fn set() -> &'static KernelSet {
    let kernels = ["prints", "panics", "traps_in_the_middle", "is_quiet"].map(|kernel| (kernel, ptx(kernel)));
    let archs = vec![("sm_80", &*Box::leak(Box::new(kernels)) as &[_])];
    let crate_name = <prints as cuda_std::Kernel>::FACTS.source.crate_name;
    Box::leak(Box::new(KernelSet::embedded(crate_name, None, Ok(archs.leak()), &[])))
}

/// A device, and what its kernels have printed.
fn device() -> (Device, Arc<Mutex<Vec<Printed>>>) {
    let device = Device::cuda(0, &[set()]).unwrap();
    let printed = record(&device);
    (device, printed)
}

fn record(device: &Device) -> Arc<Mutex<Vec<Printed>>> {
    let printed = Arc::<Mutex<Vec<Printed>>>::default();
    let target = printed.clone();
    device.print_to(PrintSink::new(move |line| target.lock().unwrap().push(line.clone())));
    printed
}

fn take(printed: &Mutex<Vec<Printed>>) -> Vec<Printed> {
    std::mem::take(&mut *printed.lock().unwrap())
}

fn lines(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("line {n} of {count}")).collect()
}

fn texts(printed: &[Printed]) -> Vec<String> {
    printed.iter().map(Printed::to_string).collect()
}

#[test]
fn lines_appear_when_the_host_waits() {
    isolated("lines_appear_when_the_host_waits", || {
        let (device, printed) = device();
        device.launch(prints { count: 3 }).unwrap();
        assert_eq!(take(&printed), [], "nobody has waited");
        device.synchronize().unwrap();
        let first = take(&printed);
        assert_eq!(texts(&first), lines(3));
        let Printed::Line { kernel, block, thread, .. } = &first[2] else { panic!("{first:?}") };
        assert_eq!((*kernel, *block, *thread), ("prints", Dim3::new(2, 0, 0), Dim3::new(0, 2, 0)));
        device.synchronize().unwrap();
        assert_eq!(take(&printed), [], "each line appears once");

        device.launch(prints { count: 1 }).unwrap();
        device.launch(prints { count: 2 }).unwrap();
        let buffer = device.upload(&[1.0f32]).unwrap();
        assert_eq!(texts(&take(&printed)), [lines(1), lines(2)].concat(), "a copy waits too");
        device.launch(prints { count: 1 }).unwrap();
        buffer.copy_to(&mut [0.0]).unwrap();
        assert_eq!(texts(&take(&printed)), lines(1));

        device.launch(prints { count: 2 }).unwrap();
        drop((device, buffer));
        assert_eq!(texts(&take(&printed)), lines(2), "the end of a device waits");
    });
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    isolated("what_there_is_no_room_for_is_counted", || {
        let (device, printed) = device();
        let count = LINES as u32 + 5;
        for _ in 0..2 {
            device.launch(prints { count }).unwrap();
            device.synchronize().unwrap();
            let shown = take(&printed);
            assert_eq!(texts(&shown[..LINES]), lines(count)[..LINES]);
            assert_eq!(shown[LINES..], [Printed::Missing { lines: Some(5) }]);
        }
    });
}

/// The error of the first wait after a launch.
fn error_of(launch: fn(&Device) -> Result<(), Error>) -> (Device, Error, Vec<Printed>) {
    let (device, printed) = device();
    launch(&device).unwrap();
    let error = device.synchronize().unwrap_err();
    assert!(error.is_kernel_fault());
    (device, error, take(&printed))
}

#[test]
fn a_panic_is_an_error_with_its_place_and_lines_before_it_appear() {
    isolated("a_panic_is_an_error_with_its_place_and_lines_before_it_appear", || {
        let (device, error, printed) = error_of(|device| device.launch(panics {}));
        let text = error.to_string();
        let report = "kernel `panics`, block (1, 2, 3), thread (4, 5, 6): the kernel panicked: {x} is 7\n  --> src/lib.rs:12\n  help: ";
        assert!(text.starts_with(report), "{text}");
        assert!(text.contains("\nSo the GPU's context is lost: cuStreamSynchronize"), "{text}");
        assert!(!text.contains("A kernel failed on the GPU"), "the cause is known: {text}");
        assert_eq!(texts(&printed[..1]), lines(1));
        assert_eq!(printed[1..], [Printed::Missing { lines: None }]);
        assert_eq!(device.synchronize().unwrap_err().to_string(), text, "ever after");
        assert_eq!(device.check_context().unwrap_err().to_string(), text);
        assert_eq!(device.launch(is_quiet {}).unwrap_err().to_string(), text);
    });
}

#[test]
fn a_trap_without_a_report_is_what_it_was() {
    isolated("a_trap_without_a_report_is_what_it_was", || {
        let (_, error, _) = error_of(|device| device.launch(traps_in_the_middle {}));
        let text = error.to_string();
        assert!(text.starts_with("the GPU's context is lost: cuStreamSynchronize"), "{text}");
        assert!(text.contains("only `traps_in_the_middle` had not been waited for"), "{text}");
    });
}

/// A function of the fake driver's own.
fn fake<F: Copy>(name: &std::ffi::CStr) -> F {
    // SAFETY: the library is the fake driver, whose functions only note something; it stays open.
    let library = unsafe { libloading::Library::new(&*LIBRARY) }.unwrap();
    // SAFETY: the callers name the type that the function has.
    let function = *unsafe { library.get::<F>(name.to_bytes_with_nul()) }.unwrap();
    std::mem::forget(library);
    function
}

#[test]
fn kernels_that_do_neither_cost_nothing_and_all_memory_is_given_back() {
    isolated("kernels_that_do_neither_cost_nothing_and_all_memory_is_given_back", || {
        const HOST_ALLOCATION: usize = 5;
        let live_of = fake::<extern "C" fn(usize) -> i32>(c"fake_live_of");
        let live_objects = fake::<extern "C" fn() -> i32>(c"fake_live_objects");
        let (device, printed) = device();
        device.launch(is_quiet {}).unwrap();
        device.synchronize().unwrap();
        assert_eq!(live_of(HOST_ALLOCATION), 0);
        device.launch(prints { count: 1 }).unwrap();
        assert_eq!(live_of(HOST_ALLOCATION), 2);
        drop(device);
        assert_eq!((texts(&take(&printed)), live_objects()), (lines(1), 0));
    });
}

#[test]
fn the_executor_prints_where_the_device_does() {
    let device = Device::cpu(Checks::Full);
    let printed = record(&device);
    device.launch(prints { count: 3 }).unwrap();
    assert_eq!(texts(&take(&printed)), lines(3));
}
