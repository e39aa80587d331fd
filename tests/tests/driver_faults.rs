//! The driver vanishes: everything that is done with a device, again and again, with each call of the driver failing in turn.
//!
//! ```text
//!  open, upload, plan, load, run, time, download, drop        N calls of the driver's functions
//!  ├──┼──┼──✗                                                 call n fails, for every n from 1 to N: an error, and which
//!  ├──┼──┼──✗  ┼  ┼  ┼        ✓ ✓ ✓                           where the context survives, nothing is left behind
//!  ├──┼──┼──✗──✗──✗──✗        ✗ ✗ ✗                           where it does not, the device says so ever after
//! ```
//!
//! And, for every allocation, that there is no memory for it: then nothing is left behind, and the device goes on.
//!
//! The driver is the one of `cuda_driver`'s tests. It begins anew for each n, in one process for each way to fail, which an
//! abort or a call that never returns would end.

mod fake_driver;
#[path = "fake_driver/log.rs"]
mod log;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::basic::tiled::gemm_tiled_32_fp32;
use gpu_kernels::{Matrix, MatrixMut};
use host::planted::Fault;
use ndarray::Array2;
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Buffer, Device, DeviceError, DeviceMatrix, Error, kernels};

use fake_driver::isolated;
use log::Log;

/// What a call that fails means for those after it. The numbers are those of `fake_begin`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    /// Nothing: the next one may succeed.
    Fine = 0,
    /// The context is lost. Whatever needs it fails; things can still be destroyed.
    ContextLost = 1,
    /// Every call fails.
    Gone = 2,
}

/// The fake driver's own functions.
struct Fake {
    log: Log,
    live_objects: extern "C" fn() -> i32,
}

impl Fake {
    fn of_this_process() -> Self {
        let log = Log::of_this_process();
        // SAFETY: this is the type of the function of this name in `fake_faults.rs`.
        Self { log, live_objects: unsafe { fake_driver::function(c"fake_live_objects") } }
    }

    /// The functions that have been called since it began, in their order.
    fn log(&self) -> Vec<&'static str> {
        self.log.names(0).collect()
    }
}

/// The threads that the fake driver lets a block have: some kernels take more than the 256 that it otherwise does.
const THREADS: [(&str, &str); 1] = [("FAKE_CUDA_THREADS", "1024")];

/// Small matrices, but large enough for every kernel to do its work in parts.
const SIZES: [usize; 3] = [64, 48, 256];

/// A kernel, and among how many blocks to divide the sums.
const PRODUCTS: [(&str, Option<u32>); 4] = [
    ("gemm_naive_2d_fp32", None),
    // Packs operands into the workspace, and loads them by tensor maps.
    ("gemm_wgmma_packed_fp32_3xfp16", None),
    // And stores results by one.
    ("gemm_wgmma_packed_staged_fp32_3xfp16", None),
    // Partial sums are in the workspace.
    ("gemm_mma_nn_tf32", Some(2)),
];

/// What a program does with a device, once it is open. The values are the fake driver's, which computes nothing.
fn use_device(device: &Device, products: &[(&str, Option<u32>)]) -> Result<(), Error> {
    let [m, n, k] = SIZES;
    let numbers = |rows, cols| Array2::from_shape_fn((rows, cols), |(row, col)| (row * cols + col) as f32);
    let a = DeviceMatrix::upload(device, numbers(m, k).view())?;
    let b = DeviceMatrix::upload(device, numbers(k, n).view())?;
    let mut c = DeviceMatrix::unwritten(device, numbers(m, n).view())?;
    for &(kernel, splits) in products {
        let options = Options { kernel: Some(kernels::find(kernel)?), splits, ..Options::default() };
        let product = Description::of(1.0, &a, &b, 0.0, &c)?;
        let plan = GemmPlan::new(device, &product, &options)?;
        plan.load(device)?;
        let mut workspace = plan.workspace(device)?;
        workspace.clear()?;
        let times = device.time(2, || plan.run(device, 1.0, &a, &b, 0.0, &mut c, &mut workspace))?;
        assert_eq!(times, [Duration::from_micros(1500); 2], "as the fake driver says");
    }
    // Loaded by its launch.
    device.launch(gemm_naive_1d_fp32 { gemm: small_product(&mut small_buffers(device)?) })?;
    use_what_is_lent(device)?;
    assert!(device.free_memory()?.is_some());
    device.make_current()?;
    device.synchronize()?;
    let mut result = numbers(m, n);
    c.download(result.view_mut())?;
    assert!(result.iter().all(|element| element.is_nan()), "nothing was computed, so nothing is there");
    Ok(())
}

/// Another library's stream, and memory that it has lent: here it is the device's own, lent to another handle.
fn use_what_is_lent(device: &Device) -> Result<(), Error> {
    let theirs = small_buffers(device)?;
    // SAFETY: the fake driver does nothing on any stream.
    let on_stream = unsafe { device.on_stream(std::ptr::without_provenance_mut(0x77)) }?;
    // SAFETY: live buffers of 4 elements each, which nobody else uses meanwhile.
    let mut lent = theirs.each_ref().map(|buffer| unsafe { on_stream.lent(buffer.view().as_ptr().addr(), 4) });
    on_stream.launch(gemm_naive_1d_fp32 { gemm: small_product(&mut lent) })?;
    on_stream.synchronize()?;
    drop(lent);
    // Given back, and not freed.
    Ok(theirs[2].copy_to(&mut [0.0; 4])?)
}

fn small_buffers(device: &Device) -> Result<[Buffer<f32>; 3], Error> {
    Ok([device.upload(&[0.0; 4])?, device.upload(&[0.0; 4])?, device.upload(&[0.0; 4])?])
}

fn small_product([a, b, c]: &mut [Buffer<f32>; 3]) -> Gemm<'_> {
    let matrix = |view| Matrix::new(view, 2, 2, 2, 1).unwrap();
    let c = MatrixMut::new(c.view_mut(), 2, 2, 2, 1).unwrap();
    Gemm::new(1.0, matrix(a.view()), matrix(b.view()), 0.0, c).unwrap()
}

/// Opens a device and uses it. `after` gets the device if something failed after it was open, and what.
fn scenario(after: impl FnOnce(&Device, &Error)) -> Result<(), Error> {
    let device = Device::cuda(0)?;
    let result = use_device(&device, &PRODUCTS);
    if let Err(error) = &result {
        after(&device, error);
    }
    result
}

/// For each call of a log, whether it is for destroying something. What fails there is not reported, since nobody is left to
/// report it to.
fn is_cleaning_up(log: &[&str]) -> Vec<bool> {
    const DESTROYERS: [&str; 5] =
        ["cuMemFree_v2", "cuEventDestroy_v2", "cuModuleUnload", "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"];
    let mut cleaning = vec![false; log.len()];
    for (index, function) in log.iter().enumerate() {
        if !DESTROYERS.contains(function) {
            continue;
        }
        // Before it, the context is made current, and the work that may need the thing is waited for.
        let mut first = index;
        for before in [&["cuStreamSynchronize", "cuCtxSynchronize"][..], &["cuCtxSetCurrent"]] {
            if first > 0 && before.contains(&log[first - 1]) {
                first -= 1;
            }
        }
        cleaning[first..=index].fill(true);
    }
    cleaning
}

/// Whether a call does what the next one does again, so that its failure means nothing: when a context is made, `cust` makes
/// it current and does not look whether it is, and so we do the same, and look.
fn is_repeated(log: &[&str], number: usize) -> bool {
    number > 1
        && log[number - 2] == "cuDevicePrimaryCtxRetain"
        && log[number - 1] == "cuCtxSetCurrent"
        && log[number] == "cuCtxSetCurrent"
}

/// Runs the scenario with each call failing in turn.
fn fail_at_every_call(code: u32, after: After) {
    let fake = Fake::of_this_process();
    let clean_log = || {
        (fake.log.begin)(0, 0, 0);
        scenario(|_, _| ()).unwrap();
        assert_eq!((fake.live_objects)(), 0, "nothing fails, and something is left");
        fake.log()
    };
    let log = clean_log();
    assert_eq!(log, clean_log(), "the same calls each time");
    let cleaning = is_cleaning_up(&log);
    let shutting_down = log.len() - cleaning.iter().rev().take_while(|&&cleaning| cleaning).count();
    println!(
        "{} calls, of which {} destroy something",
        log.len(),
        cleaning.iter().filter(|&&cleaning| cleaning).count()
    );
    assert!(log.len() > 300 && shutting_down < log.len());

    static CALL: AtomicUsize = AtomicUsize::new(0);
    abort_if_stuck(&CALL);
    let mut faults = Vec::new();
    for number in 1..=log.len() {
        CALL.store(number, Ordering::Relaxed);
        let function = log[number - 1];
        let may_succeed = match after {
            After::Fine => cleaning[number - 1] || is_repeated(&log, number),
            After::ContextLost | After::Gone => number > shutting_down,
        };
        (fake.log.begin)(number, code, after as u32);
        let run = catch_unwind(AssertUnwindSafe(|| {
            let result = scenario(|device, error| use_after(device, error, code, after));
            judge(result, code, after, function, may_succeed);
            let left = (fake.live_objects)();
            // What the driver does not destroy stays.
            let may_stay = i32::from(cleaning[number - 1]);
            assert!(after != After::Fine || (0..=may_stay).contains(&left), "{left} objects are left");
        }));
        if run.is_err() {
            faults.push(format!("call {number}, {function}"));
        }
    }
    assert!(faults.is_empty(), "with code {code}, then {after:?}, {} calls:\n{}", faults.len(), faults.join("\n"));
}

/// What a run ended with: success only where the call that failed was to destroy something, otherwise an error of the type that
/// is meant for the code, which names the function.
fn judge(result: Result<(), Error>, code: u32, after: After, function: &str, may_succeed: bool) {
    let error = match result {
        Ok(()) => return assert!(may_succeed, "no error, though {function} failed"),
        Err(error) => error,
    };
    assert!(after != After::Fine || !may_succeed, "{function} was to destroy something, and its failure is reported");
    let call = of_driver(&error, code, after);
    // A failure in the clean-up is reported by the next call.
    assert!(
        call == function || may_succeed || after != After::Fine,
        "{function} failed, and {call} is blamed: {error}"
    );
}

/// Checks the type of an error, and returns the function that it names.
fn of_driver(error: &Error, code: u32, after: After) -> &'static str {
    use cuda_driver::Error::{Call, ContextLost, LaunchRejected, OutOfMemory, TensorMapRejected};
    let Error::Device(DeviceError::Driver(error)) = error else { panic!("not the driver's: {error}") };
    match (error, code) {
        (ContextLost { .. }, 700 | 719) => {}
        (OutOfMemory { .. }, 2) => {}
        (LaunchRejected(_) | TensorMapRejected(_), 1) => {}
        (Call { .. }, _) if !matches!(code, 700 | 719) => {}
        _ => panic!("code {code}, then {after:?}, became {error:?}"),
    }
    let call = error.driver_call().unwrap();
    assert_eq!(call.code, code, "{error}");
    call.function
}

/// What a device does after something has failed.
fn use_after(device: &Device, first: &Error, code: u32, after: After) {
    if after == After::Fine {
        device.check_context().unwrap();
        return use_device(device, &PRODUCTS[..1]).unwrap();
    }
    let launch = || device.launch(gemm_naive_2d_fp32 { gemm: small_product(&mut small_buffers(device)?) });
    let all: [(&str, Result<(), Error>); 8] = [
        ("synchronize", device.synchronize().map_err(Error::from)),
        ("upload", device.upload(&[1.0f32; 4]).map(drop).map_err(Error::from)),
        ("allocate", device.allocate::<u32>(4).map(drop).map_err(Error::from)),
        ("launch", launch()),
        ("prepare", device.prepare(&gemm_tiled_32_fp32::FACTS).map(drop).map_err(Error::from)),
        ("time", device.time(1, || Ok(())).map(drop)),
        ("free memory", device.free_memory().map(drop).map_err(Error::from)),
        ("everything", use_device(device, &PRODUCTS)),
    ];
    for (what, result) in all {
        let error = result.expect_err(what);
        of_driver(&error, code, after);
        if after == After::ContextLost {
            assert_eq!(error.to_string(), first.to_string(), "{what}: the first one, ever after");
        }
    }
    // What asks nothing of a driver knows it, too, once it is known what the code means.
    let is_lost = matches!(first, Error::Device(DeviceError::Driver(cuda_driver::Error::ContextLost { .. })));
    for (what, result) in [
        ("check_context", device.check_context()),
        ("nothing allocated", device.allocate::<f32>(0).map(drop)),
        ("nothing uploaded", device.upload::<f32>(&[]).map(drop)),
    ] {
        assert_eq!(
            result.map_err(|error| error.to_string()),
            if is_lost { Err(first.to_string()) } else { Ok(()) },
            "{what}"
        );
    }
}

/// A product that packs its operands into a workspace, again and again on one device: whichever allocation fails, the device has as
/// much memory as before, and computes the product the next time.
fn no_memory_at_every_allocation() {
    let fake = Fake::of_this_process();
    // The n-th call of the driver fails. How many calls there were before and after the product in which that is.
    let run = |failing: usize| -> ([usize; 2], Result<(), Error>) {
        (fake.log.begin)(failing, 2, After::Fine as u32);
        let device = Device::cuda(0).unwrap();
        let product = || use_device(&device, &PRODUCTS[1..2]);
        let free = || device.free_memory().unwrap().unwrap();
        // Loads what it needs, which stays.
        product().unwrap();
        let (before, first_call) = (free(), fake.log.count());
        let failed = product();
        let last_call = fake.log.count();
        assert_eq!(free(), before, "after {failed:?}");
        product().unwrap();
        assert_eq!(free(), before);
        drop(device);
        assert_eq!((fake.live_objects)(), 0);
        ([first_call, last_call], failed)
    };
    let ([first_call, last_call], result) = run(0);
    result.unwrap();
    let log = fake.log();
    let allocations: Vec<usize> =
        (first_call + 1..=last_call).filter(|number| log[number - 1] == "cuMemAlloc_v2").collect();
    // Three operands, the workspace, and what else is tried.
    assert!(allocations.len() > 4, "{allocations:?}");
    for number in allocations {
        let (_, result) = run(number);
        assert!(
            matches!(result, Err(Error::Device(DeviceError::Driver(cuda_driver::Error::OutOfMemory { .. })))),
            "allocation {number}: {result:?}"
        );
    }
}

/// Ends the process if the same call is at it for too long.
fn abort_if_stuck(call: &'static AtomicUsize) {
    std::thread::spawn(move || {
        let (mut last, mut seconds) = (0, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = call.load(Ordering::Relaxed);
            seconds = if now == last { seconds + 1 } else { 0 };
            last = now;
            if seconds > 60 {
                eprintln!("call {now} failed a minute ago, and what called it does not return");
                std::process::abort();
            }
        }
    });
}

/// A kernel gives up, which ends the context: everything says so ever after, and blames the kernel.
#[test]
fn a_kernel_that_traps_is_blamed_ever_after() {
    isolated("a_kernel_that_traps_is_blamed_ever_after", &THREADS, || {
        let fake = Fake::of_this_process();
        (fake.log.begin)(0, 0, 0);
        let device = Device::cuda(0).unwrap();
        use_device(&device, &PRODUCTS[..1]).unwrap();
        device.check_context().unwrap();
        // SAFETY: the fake driver runs no kernel, and computes nothing.
        let first = unsafe { Fault::Trap.run(&device) }.unwrap_err();
        let Error::Device(DeviceError::Driver(cuda_driver::Error::ContextLost { kernels, .. })) = &first else {
            panic!("{first}")
        };
        assert_eq!(*kernels, [Fault::Trap.kernel()]);
        use_after(&device, &first, 719, After::ContextLost);
        assert!(first.is_kernel_fault());
    });
}

#[test]
fn no_memory_at_any_allocation_of_a_product_with_a_workspace() {
    isolated("no_memory_at_any_allocation_of_a_product_with_a_workspace", &THREADS, no_memory_at_every_allocation);
}

#[test]
fn out_of_memory_at_any_call() {
    isolated("out_of_memory_at_any_call", &THREADS, || fail_at_every_call(2, After::Fine));
}

#[test]
fn an_unknown_error_at_any_call() {
    isolated("an_unknown_error_at_any_call", &THREADS, || fail_at_every_call(999, After::Fine));
}

#[test]
fn an_invalid_value_at_any_call() {
    isolated("an_invalid_value_at_any_call", &THREADS, || fail_at_every_call(1, After::Fine));
}

#[test]
fn an_illegal_address_at_any_call_and_the_context_is_lost() {
    isolated("an_illegal_address_at_any_call_and_the_context_is_lost", &THREADS, || {
        fail_at_every_call(700, After::ContextLost);
    });
}

#[test]
fn a_failed_launch_at_any_call_and_everything_fails() {
    isolated("a_failed_launch_at_any_call_and_everything_fails", &THREADS, || fail_at_every_call(719, After::Gone));
}

#[test]
fn the_driver_is_gone_with_a_code_that_nobody_has_a_name_for() {
    isolated("the_driver_is_gone_with_a_code_that_nobody_has_a_name_for", &THREADS, || {
        fail_at_every_call(4711, After::Gone);
    });
}
