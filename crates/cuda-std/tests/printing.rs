//! What kernels print on the CPU executor, in which order, and what is said of lines that there is no room for; assertions with values.

extern crate tilewright_cuda_std as cuda_std;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::executor::{Checks, Executor, FaultKind, LaunchError};
use cuda_std::prelude::*;
use cuda_std::print::{PrintSink, Printed};
use cuda_std::print_record::LINES;
use cuda_std::{Dim3, Kernel};

const SOURCE: &str = include_str!("printing.rs");

/// A sink, and what it has been shown.
fn sink() -> (PrintSink, Arc<Mutex<Vec<Printed>>>) {
    let shown = Arc::<Mutex<Vec<Printed>>>::default();
    let show = shown.clone();
    (PrintSink::new(move |printed| show.lock().unwrap().push(printed.clone())), shown)
}

/// What a launch prints, and how it ends.
fn printed_with(executor: Executor, kernel: impl Kernel, grid: u32) -> (Vec<Printed>, Result<(), LaunchError>) {
    let (sink, shown) = sink();
    // SAFETY: the kernels here have no views, or one of memory of the test that nothing else uses.
    let result = unsafe { executor.print_to(sink).launch(kernel, Dim3::from(grid)) };
    let shown = std::mem::take(&mut *shown.lock().unwrap());
    (shown, result)
}

fn lines(printed: &[Printed]) -> Vec<String> {
    printed.iter().map(Printed::to_string).collect()
}

#[kernel(block = 32)]
fn prints_values(x: f32) {
    if thread::thread_idx_x() == 3 {
        gpu_println!("no value, {{}}");
        gpu_println!("u32 {}, i32 {}, u64 {}, i64 {}", u32::MAX, i32::MIN, u64::MAX, i64::MIN,);
        gpu_println!("{}{}{} {}", x, f64::from(x) / 3.0, x > 0.0, thread::index_1d());
        gpu_println!("{} {} {} {} {} {} {} {}", 1, 2, 3, 4, 5, 6, 7, 8);
    }
}

#[test]
fn values_are_printed_as_rust_prints_them() {
    let (printed, result) = printed_with(Executor::new(Checks::Full), prints_values { x: 1.5 }, 2);
    result.unwrap();
    let of_block = |index: u32| {
        [
            "no value, {}".to_owned(),
            "u32 4294967295, i32 -2147483648, u64 18446744073709551615, i64 -9223372036854775808".to_owned(),
            format!("1.50.5true {index}"),
            "1 2 3 4 5 6 7 8".to_owned(),
        ]
    };
    assert_eq!(lines(&printed), [of_block(3), of_block(35)].concat());
    let Printed::Line { kernel, block, thread, .. } = &printed[4] else { panic!("{printed:?}") };
    assert_eq!((*kernel, *block, *thread), ("prints_values", Dim3::new(1, 0, 0), Dim3::new(3, 0, 0)));
}

/// A line by each thread, before and after a barrier.
#[kernel(block = 64)]
fn prints_of_all_threads() {
    gpu_println!("{} {} first", thread::block_idx_x(), thread::thread_idx_x());
    // SAFETY: all threads of the block come here.
    unsafe { thread::sync_threads() };
    gpu_println!("{} {} second", thread::block_idx_x(), thread::thread_idx_x());
}

#[test]
fn lines_come_in_the_order_of_the_blocks_whoever_runs_them() {
    let expected: Vec<String> = (0..50)
        .flat_map(|block| ["first", "second"].map(|when| (block, when)))
        .flat_map(|(block, when)| (0..64).map(move |thread| format!("{block} {thread} {when}")))
        .collect();
    for workers in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
        let (printed, result) =
            pool.install(|| printed_with(Executor::new(Checks::Bounds), prints_of_all_threads {}, 50));
        result.unwrap();
        assert_eq!(lines(&printed), expected, "{workers} workers");
    }
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let blocks = 100;
    for workers in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
        let (printed, result) =
            pool.install(|| printed_with(Executor::new(Checks::Bounds), prints_of_all_threads {}, blocks));
        result.unwrap();
        let missing = u64::from(blocks) * 128 - LINES as u64;
        assert_eq!((printed.len(), printed.last()), (LINES + 1, Some(&Printed::Missing { lines: Some(missing) })));
        assert_eq!(lines(&printed)[LINES - 1], format!("{} 63 second", LINES / 128 - 1), "the first are kept");
        let text = printed[LINES].to_string();
        assert!(text.contains(&missing.to_string()) && text.contains(&LINES.to_string()), "{text}");
    }
}

/// One thread prints more than there is room for.
#[kernel(block = 1)]
fn prints_without_end(count: u32) {
    let mut i = 0;
    while i < count {
        gpu_println!("{}", i);
        i += 1;
    }
}

#[test]
fn a_block_alone_does_not_take_memory_without_end() {
    let (printed, result) = printed_with(Executor::new(Checks::Bounds), prints_without_end { count: 20_000 }, 1);
    result.unwrap();
    assert_eq!(printed.len(), LINES + 1);
    assert_eq!(lines(&printed)[LINES - 1], (LINES - 1).to_string());
    assert_eq!(printed[LINES], Printed::Missing { lines: Some(20_000 - LINES as u64) });
}

/// Blocks pass a token from the last to the first, and say so.
#[kernel(block = 1)]
fn passes_a_token(turn: GlobalAtomics<'_, u32>) {
    let me = thread::grid_dim_x() - 1 - thread::block_idx_x();
    if let Some(turn) = turn.get(0) {
        while turn.load(Relaxed, Scope::Device) != me {}
        gpu_println!("{}", me);
        turn.store(me + 1, Relaxed, Scope::Device);
    }
}

#[test]
fn blocks_that_wait_for_one_another_print_as_they_run() {
    for seed in 0..4 {
        let mut turn = [0u32];
        let executor = Executor::new(Checks::Full).schedule(seed);
        let (printed, result) = printed_with(executor, passes_a_token { turn: GlobalAtomics::new(&mut turn) }, 4);
        result.unwrap();
        assert_eq!(lines(&printed), ["0", "1", "2", "3"]);
    }
}

/// Whether a block behind the one that fails has printed.
static LATER_HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints, and fails in one block, once a later one has printed too.
#[kernel(block = 32)]
fn fails_in_block(block: u32, x: f32) {
    if thread::thread_idx_x() == 5 {
        gpu_println!("block {}", thread::block_idx_x());
        LATER_HAS_PRINTED.fetch_or(thread::block_idx_x() > block, SeqCst);
        while thread::block_idx_x() == block && !LATER_HAS_PRINTED.load(SeqCst) {
            std::thread::yield_now();
        }
        gpu_assert!(thread::block_idx_x() != block, "x = {}, i = {}, {} {{}}", x, thread::index_1d(), true); // MARK: assert
        gpu_println!("behind");
    }
}

#[test]
fn an_assertion_reports_its_values_and_what_was_printed_before_is_shown() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let kernel = fails_in_block { block: 2, x: 0.5 };
    let (printed, result) = pool.install(|| printed_with(Executor::new(Checks::Full), kernel, 300));
    let LaunchError::Fault(fault) = result.unwrap_err() else { panic!() };
    assert_eq!(fault.kind, FaultKind::Panic { message: "x = 0.5, i = 69, true {}".to_owned() });
    let line = SOURCE.lines().position(|line| line.ends_with("// MARK: assert")).unwrap() as u32 + 1;
    assert_eq!((fault.block, fault.thread), (Dim3::new(2, 0, 0), Dim3::new(5, 0, 0)));
    assert_eq!(fault.location.map(|at| (at.file.into_owned(), at.line)), Some((file!().to_owned(), line)));
    assert_eq!(lines(&printed), ["block 0", "behind", "block 1", "behind", "block 2"], "of later blocks nothing");
}

/// Has more braces than a value needs.
#[kernel(block = 1)]
fn panics(x: u32) {
    gpu_panic!("}}{{{}", x);
}

#[test]
fn a_panic_has_values_too() {
    let (_, result) = printed_with(Executor::new(Checks::Bounds), panics { x: 7 }, 1);
    assert!(result.unwrap_err().to_string().contains(": the kernel panicked: }{7\n"));
}
