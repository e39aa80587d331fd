//! The mistakes that are made most often in kernels like ours: the executor reports each with block, thread and line,
//! and the same kernel without the mistake runs.

use cuda_std::Kernel;
use cuda_std::executor::{AccessKind, Checks, Elsewhere, Executor, Fault, FaultKind, LaunchError, Place};
use cuda_std::prelude::*;
use gpu_kernels::{Matrix, MatrixMut};
use tests::{Layouts, Problem, Sizes};

/// A tile of `gemm::basic::tiled`.
type Tile = Shared<[[f32; 36]; 32]>;

/// The body of `gemm_tiled_32_fp32`, with two places to go wrong.
///
/// # Safety
/// Called by all threads of a block of 32×32, with tiles that nothing else uses. With all barriers and without the early
/// return, that is.
#[inline(always)]
unsafe fn tiled<const SECOND_BARRIER: bool, const EARLY_RETURN: bool>(
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: MatrixMut<'_>,
    tile_a: &'static Tile,
    tile_b: &'static Tile,
) {
    let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
    let (row, col) = (thread::block_idx_y() * 32 + y, thread::block_idx_x() * 32 + x);
    let inside = row < c.rows() && col < c.cols();
    if EARLY_RETURN && !inside {
        return; // but the others wait for this thread
    }
    let (x, y) = (x as usize, y as usize);
    let mut sum = 0.0;
    for k0 in (0..a.cols()).step_by(32) {
        // SAFETY: as in the original: own elements are written, and barriers lie between those writes and the reads of
        // other threads. Where they do not, the executor catches it.
        unsafe {
            tile_a.write([y, x], a.at_or_zero(row, k0 + x as u32)); // <write a>
            tile_b.write([y, x], b.at_or_zero(k0 + y as u32, col));
            thread::sync_threads(); // <first barrier>
            for l in 0..32 {
                let element_of_a = tile_a.read([y, l]); // <read a>
                sum = math::fma(element_of_a, tile_b.read([l, x]), sum);
            }
            if SECOND_BARRIER {
                thread::sync_threads();
            }
        }
    }
    if inside {
        // SAFETY: inside C; no other thread of the grid has this row and this column.
        unsafe { c.set(row, col, sum) };
    }
}

/// The right one.
#[kernel(block = (32, 32))]
fn tiled_right(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
    static TILE_A: Tile = Shared::new();
    static TILE_B: Tile = Shared::new();
    // SAFETY: a block of 32×32 threads, all of which come here, with tiles that nothing else uses.
    unsafe { tiled::<true, false>(a, b, c, &TILE_A, &TILE_B) }
}

/// The one that everybody copies.
#[kernel(block = (32, 32))]
fn tiled_without_second_barrier(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
    static TILE_A: Tile = Shared::new(); // <tile a>
    static TILE_B: Tile = Shared::new();
    // SAFETY: none: that is the mistake.
    unsafe { tiled::<false, false>(a, b, c, &TILE_A, &TILE_B) }
}

/// Threads without an element of C return at once, and never reach the barrier.
#[kernel(block = (32, 32))]
fn tiled_with_early_return(a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
    static TILE_A: Tile = Shared::new();
    static TILE_B: Tile = Shared::new();
    // SAFETY: none: that is the mistake.
    unsafe { tiled::<true, true>(a, b, c, &TILE_A, &TILE_B) }
}

/// The number of the line that has the comment `// <mark>`.
fn line(mark: &str) -> u32 {
    let comment = format!("// <{mark}>");
    let mut lines = (1..).zip(include_str!("faults.rs").lines()).filter(|(_, line)| line.ends_with(&comment));
    match (lines.next(), lines.next()) {
        (Some((number, _)), None) => number,
        _ => panic!("there should be one line with the mark `{mark}`"),
    }
}

/// Launches a kernel whose views are of slices that the caller has borrowed, mutably where they are mutable.
fn launch(kernel: impl Kernel, grid: impl Into<Dim3>) -> Result<(), LaunchError> {
    // SAFETY: as the caller has it.
    unsafe { Executor::new(Checks::Full).launch(kernel, grid.into()) }
}

fn fault<K: Kernel>(kernel: K, grid: impl Into<Dim3>) -> Fault {
    match launch(kernel, grid) {
        Err(LaunchError::Fault(fault)) => {
            let message = fault.to_string();
            let parts = [K::NAME, &format!("block {}", fault.block), &format!("thread {}", fault.thread), "faults.rs:"];
            for part in parts {
                assert!(message.contains(part), "{message:?} does not say {part:?}");
            }
            *fault
        }
        other => panic!("expected a fault of `{}`, got {other:?}", K::NAME),
    }
}

fn source_line(fault: &Fault) -> u32 {
    let location = fault.location.as_ref().expect("a line");
    assert_eq!(location.file, file!());
    location.line
}

/// Has `run` compute a product of these extents, and judges the result.
fn multiply<T>(
    shape: Sizes,
    run: impl FnOnce(Matrix<'_>, Matrix<'_>, MatrixMut<'_>, Dim3) -> T,
) -> (T, Result<(), String>) {
    let mut problem = Problem::new(shape, Layouts::ALL[0], 1);
    let expected = problem.expected();
    let grid = Dim3::new(shape.n.div_ceil(32) as u32, shape.m.div_ceil(32) as u32, 1);
    let (a, b) = (problem.a.view().matrix().unwrap(), problem.b.view().matrix().unwrap());
    let outcome = run(a, b, problem.c.view_mut().matrix_mut().unwrap(), grid);
    (outcome, expected.check(&problem.c))
}

/// Two tiles of K: one alone cannot race.
const TWO_TILES: Sizes = Sizes { m: 40, n: 33, k: 64 };

#[test]
fn the_tiled_kernel_without_its_second_barrier_is_caught() {
    let (fault, _) = multiply(TWO_TILES, |a, b, c, grid| fault(tiled_without_second_barrier { a, b, c }, grid));
    let FaultKind::Race { array, element, access, other, .. } = &fault.kind else { panic!("expected a race: {fault}") };
    // The first thread has gone on to the next tile and overwrites what the second still reads.
    assert_eq!((fault.block, fault.thread, other.thread), (Dim3::new(0, 0, 0), Dim3::new(1, 0, 0), Dim3::new(0, 0, 0)));
    assert_eq!((*access, source_line(&fault)), (AccessKind::Read, line("read a")));
    assert_eq!((other.access, other.location.line), (AccessKind::Write, line("write a")));
    assert_eq!(element, "[0, 0]");
    let declared = format!("faults.rs:{}", line("tile a"));
    assert!(array.to_string().contains(&declared), "{array} is not declared at {declared}");

    let (outcome, verdict) = multiply(TWO_TILES, |a, b, c, grid| launch(tiled_right { a, b, c }, grid));
    outcome.unwrap();
    verdict.unwrap();
}

#[test]
fn a_barrier_that_some_threads_have_returned_before_is_caught() {
    let (fault, _) = multiply(TWO_TILES, |a, b, c, grid| fault(tiled_with_early_return { a, b, c }, grid));
    let FaultKind::BarrierDivergence { waiting, absent } = &fault.kind else { panic!("expected divergence: {fault}") };
    // The second block has but one column of C: of its 32×32 threads the others have returned.
    assert_eq!((fault.block, fault.thread), (Dim3::new(1, 0, 0), Dim3::new(0, 0, 0)));
    assert_eq!((source_line(&fault), *waiting), (line("first barrier"), 32));
    assert_eq!(*absent, [Elsewhere { first: Dim3::new(1, 0, 0), count: 31 * 32, place: Place::Returned }]);

    // Where every thread has an element, nothing is wrong: why the mistake goes unnoticed.
    let whole = Sizes { m: 32, n: 64, k: 64 };
    let (outcome, verdict) = multiply(whole, |a, b, c, grid| launch(tiled_with_early_return { a, b, c }, grid));
    outcome.unwrap();
    verdict.unwrap();
}

/// Each thread with an odd number takes over the value of the one before it; with the barrier in the branch of those that
/// do, or before it.
#[kernel(block = 64, requires(x.len() >= 64))]
fn pairs(barrier_in_branch: u32, x: GlobalSliceMut<'_, f32>) {
    static VALUES: Shared<[f32; 64]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    // SAFETY: t < 64; own elements are written, and read by others after a barrier. Right with the barrier before the
    // branch.
    unsafe {
        VALUES.write(t, x.get_unchecked(t));
        if barrier_in_branch == 0 {
            thread::sync_threads();
        }
        if t % 2 == 1 {
            if barrier_in_branch != 0 {
                thread::sync_threads(); // <barrier of some>
            }
            x.set_unchecked(t, VALUES.read(t - 1));
        }
    }
}

#[test]
fn a_barrier_in_a_divergent_branch_is_caught() {
    let mut values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let fault = fault(pairs { barrier_in_branch: 1, x: GlobalSliceMut::new(&mut values) }, 1);
    let FaultKind::BarrierDivergence { waiting, absent } = &fault.kind else { panic!("expected divergence: {fault}") };
    assert_eq!((fault.block, fault.thread), (Dim3::new(0, 0, 0), Dim3::new(1, 0, 0)));
    assert_eq!((source_line(&fault), *waiting), (line("barrier of some"), 32));
    assert_eq!(*absent, [Elsewhere { first: Dim3::new(0, 0, 0), count: 32, place: Place::Returned }]);

    launch(pairs { barrier_in_branch: 0, x: GlobalSliceMut::new(&mut values) }, 1).unwrap();
    assert_eq!(values[..4], [0.0, 0.0, 2.0, 2.0]);
}

/// `y[i] = x[i]`, for indices up to and including `last`.
#[kernel(block = 32)]
fn copy_up_to(last: u64, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    if i <= last as usize {
        // SAFETY: right if `last` is the last index.
        unsafe {
            let value = x.get_unchecked(i); // <global read>
            y.set_unchecked(i, value); // <global write>
        }
    }
}

#[test]
fn a_global_index_one_past_the_end_is_caught() {
    let run = |last, x_len: usize, y_len: usize| {
        let (x, mut y) = (vec![1.0; x_len], vec![0.0; y_len]);
        let kernel = copy_up_to { last, x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) };
        launch(kernel, 3).map(|()| y)
    };
    let fault = |last, x_len, y_len| match run(last, x_len, y_len) {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("expected a fault, got {other:?}"),
    };
    // The element after the 70th belongs to thread 6 of the third block.
    for (x_len, y_len, view, mark) in [(70, 71, "x", "global read"), (71, 70, "y", "global write")] {
        let fault = fault(70, x_len, y_len);
        assert_eq!((fault.block, fault.thread), (Dim3::new(2, 0, 0), Dim3::new(6, 0, 0)));
        assert_eq!(source_line(&fault), line(mark));
        assert_eq!(
            fault.kind,
            FaultKind::OutOfBounds { view: Some(view.to_owned()), first: 0, index: 70, count: 1, len: 70 }
        );
    }
    assert_eq!(run(69, 70, 70).unwrap(), [1.0; 70]);
}

/// Writes elements 0 to 31 of a shared array, or elements 1 to 32, of which the last is none.
#[kernel(block = 32, requires(y.len() == 32))]
fn shift(first: u32, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[[f32; 8]; 4]> = Shared::new();
    let t = thread::thread_idx_x();
    let place = (t + first) as usize;
    // SAFETY: right if `first` is zero: then the element is the thread's own.
    unsafe {
        TILE.write([place / 8, place % 8], t as f32); // <shared write>
        y.set_unchecked(t as usize, TILE.read([place / 8, place % 8]));
    }
}

#[test]
fn a_shared_index_one_past_the_end_is_caught() {
    let mut y = [0.0f32; 32];
    let fault = fault(shift { first: 1, y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!((fault.block, fault.thread), (Dim3::new(0, 0, 0), Dim3::new(31, 0, 0)));
    assert_eq!(source_line(&fault), line("shared write"));
    let FaultKind::SharedOutOfBounds { index, .. } = &fault.kind else { panic!("expected out of bounds: {fault}") };
    assert_eq!(index, "[4, 0]");

    launch(shift { first: 0, y: GlobalSliceMut::new(&mut y) }, 1).unwrap();
    assert_eq!(y[31], 31.0);
}
