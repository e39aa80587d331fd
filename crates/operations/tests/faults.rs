//! Operations with one fault each: every one is reported, and says what and where.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cuda_std::executor::Checks;
use cuda_std::prelude::*;
use operations::{
    Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Outcome, Sizes, Values,
    Views, agreement, check, check_executor, every, mutants,
};

const THREADS: usize = 64;

/// `y = x + offset` in one thread for each element of the grid, as many as `count`, and backwards within a block.
#[kernel(block = 64, grid = count.div_ceil(64).max(1) as u32)]
fn reverses(offset: f32, count: u64, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 64]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: the barrier, which all threads reach, separates writes of the tile from reads; t < 64. Each element of y has one thread.
    unsafe {
        TILE.write(t, x.get(i).unwrap_or(0.0));
        thread::sync_threads();
        if i < count as usize {
            y.set_unchecked(i, TILE.read(THREADS - 1 - t) + offset);
        }
    }
}

/// The same without the barrier.
#[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32)]
fn reverses_at_once(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 64]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: not fulfilled: this is the fault.
    unsafe {
        TILE.write(t, x.get(i).unwrap_or(0.0));
        y.set_unchecked(i, TILE.read(THREADS - 1 - t));
    }
}

/// The same with a barrier too many.
#[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32)]
fn reverses_slowly(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 64]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: as for `reverses`, with as many elements as threads.
    unsafe {
        TILE.write(t, x.get(i).unwrap_or(0.0));
        thread::sync_threads();
        thread::sync_threads();
        y.set_unchecked(i, TILE.read(THREADS - 1 - t));
    }
}

/// Sets one element.
#[kernel(block = 1, grid = 1, requires(index < y.len() as u64))]
fn sets(index: u64, value: f32, y: GlobalSliceMut<'_, f32>) {
    // SAFETY: the launch has checked the index, and there is one thread.
    unsafe { y.set_unchecked(index as usize, value) };
}

/// Needs more shared memory than most GPUs have.
#[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32, dynamic_shared = 200 << 10)]
fn reverses_largely(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: as for `reverses`, with as many elements as threads; the tile is in the dynamic shared memory.
    unsafe {
        let tile = dynamic_shared::<f32>(0, THREADS);
        tile.write(t, x.get(i).unwrap_or(0.0));
        thread::sync_threads();
        y.set_unchecked(i, tile.read(THREADS - 1 - t));
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    WrongResult,
    Unwritten,
    BehindGuard,
    BeforeGuard,
    OutOfBounds,
    InputChanged,
    MissingBarrier,
    SurplusBarrier,
    Varies,
    LargeShared,
    LargeSharedNotSaid,
    OtherKernelNamed,
    ReferenceTooShort,
    ReferenceMissing,
    BoundIsNan,
    ArgumentMisspelt,
    InputWritten,
    OtherElement,
    SizeMisspelt,
    SurplusSize,
    NoOutput,
    NoCases,
}

/// `y = x`, backwards in blocks of 64, with a fault.
struct Reversed(Fault);

static RUNS: AtomicU32 = AtomicU32::new(0);

impl Operation for Reversed {
    fn describe(&self) -> Description {
        let kernels = match self.0 {
            Fault::MissingBarrier => vec![reverses_at_once::FACTS],
            Fault::SurplusBarrier => vec![reverses_slowly::FACTS],
            Fault::LargeShared => vec![reverses_largely::FACTS],
            Fault::OtherKernelNamed => vec![sets::FACTS],
            _ => vec![reverses::FACTS, sets::FACTS],
        };
        let small = match self.0 {
            Fault::SurplusSize => vec![vec![1], vec![1, 2]],
            Fault::NoCases => Vec::new(),
            _ => every(&[&[1, 3]]),
        };
        let (name, idea) = ("reversed", "y = x, backwards in blocks of 64");
        Description { name, idea, sizes: &["blocks"], kernels, small, large: Vec::new(), bits: Bits::Same }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [blocks] = sizes.get([if self.0 == Fault::SizeMisspelt { "block" } else { "blocks" }])?;
        let extents = [blocks, THREADS];
        let x = Argument::input("x", &extents, Distribution::LogUniform(1e-30, 1e30));
        let y = Argument::output("result", &extents);
        Ok(match self.0 {
            Fault::NoOutput => vec![x, Argument::scratch("result", &extents)],
            Fault::OtherElement => vec![x, y.of(Element::F64)],
            _ => vec![x, y],
        })
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let [blocks] = sizes.get(["blocks"])?;
        let name = if self.0 == Fault::ArgumentMisspelt { "resultt" } else { "result" };
        let name = if self.0 == Fault::InputWritten { "x" } else { name };
        let (x, y) = (views.read::<f32>("x")?, views.write::<f32>(name)?);
        let count = (blocks * THREADS) as u64;
        // SAFETY: memory of the same buffer, but not of the argument: this is the fault.
        let moved = |by: isize| unsafe { GlobalSliceMut::from_raw_parts(y.as_mut_ptr().wrapping_offset(by), y.len()) };
        let result = match self.0 {
            Fault::MissingBarrier => device.launch(reverses_at_once { x, y }),
            Fault::SurplusBarrier => device.launch(reverses_slowly { x, y }),
            Fault::LargeShared | Fault::LargeSharedNotSaid => device.launch(reverses_largely { x, y }),
            Fault::Unwritten => device.launch(reverses { offset: 0.0, count: count - 2, x, y }),
            Fault::OutOfBounds => device.launch(reverses { offset: 0.0, count: count + 1, x, y }),
            Fault::Varies => {
                let offset = if RUNS.fetch_add(1, Ordering::Relaxed) % 3 == 2 { 1.0 } else { 0.0 };
                device.launch(reverses { offset, count, x, y })
            }
            _ => device.launch(reverses { offset: 0.0, count, x, y }),
        };
        result?;
        match self.0 {
            Fault::WrongResult => device.launch(sets { index: count - 7, value: 1e35, y })?,
            Fault::BehindGuard => device.launch(sets { index: count - 1, value: 3.0, y: moved(5) })?,
            Fault::BeforeGuard => device.launch(sets { index: 0, value: 3.0, y: moved(-2) })?,
            Fault::InputChanged => {
                // SAFETY: memory of the input, which is not to be written: this is the fault.
                let y = unsafe { GlobalSliceMut::from_raw_parts(x.as_ptr().cast_mut(), x.len()) };
                device.launch(sets { index: 9, value: 3.0, y })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let bound = if self.0 == Fault::BoundIsNan { f64::NAN } else { 0.0 };
        let reversed = |block: &[f64]| block.iter().rev().map(|&x| Expected::within(x, bound)).collect::<Vec<_>>();
        let mut expected: Vec<_> = values.of("x")?.chunks(THREADS).flat_map(reversed).collect();
        if self.0 == Fault::ReferenceTooShort {
            expected.pop();
        }
        Ok(if self.0 == Fault::ReferenceMissing { Vec::new() } else { vec![expected] })
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}

/// What is said of the first case that fails, on the executor with all checks.
fn reported(fault: Fault) -> Error {
    let report = check_executor(&Reversed(fault), 1).unwrap();
    let text = report.to_string();
    let again = "again: check --op reversed --sizes blocks=1 --seed 1 --device cpu\n";
    assert!(!report.holds() && text.contains(again), "{fault:?}: {text}");
    report.cases.into_iter().find_map(|case| case.failure).unwrap()
}

#[test]
fn nothing_is_said_of_an_operation_that_is_right() {
    operations::assert_checks(&Reversed(Fault::None));
    operations::assert_checks(&Reversed(Fault::SurplusBarrier));
    operations::assert_mutants(&Reversed(Fault::None));
    // Where it does not fit it is refused, as it has to be.
    operations::assert_checks(&Reversed(Fault::LargeShared));
}

#[test]
fn a_wrong_element_is_reported_with_its_place_its_values_and_its_bound() {
    let error = reported(Fault::WrongResult);
    let Error::Wrong { argument, position, found, bound, wrong, len, .. } = &error else { panic!("{error}") };
    assert_eq!((*argument, position.as_str(), *wrong, *len), ("result", "[0, 57]", 1, 64));
    assert!(*found == f64::from(1e35f32) && *bound == 0.0, "{error}");
    assert!(
        error.to_string().contains("element [0, 57]: found 1") && error.to_string().contains("expected "),
        "{error}"
    );
}

#[test]
fn elements_that_nobody_writes_are_reported() {
    let error = reported(Fault::Unwritten);
    assert!(
        matches!(&error, Error::Unwritten { argument: "result", position, count: 2, len: 64 } if position == "[0, 62]"),
        "{error}"
    );
}

#[test]
fn writes_around_an_argument_are_reported() {
    let behind = reported(Fault::BehindGuard).to_string();
    assert!(behind.contains("5 words after the last element of argument `result`"), "{behind}");
    let before = reported(Fault::BeforeGuard).to_string();
    assert!(before.contains("2 words before the first element of argument `result`"), "{before}");
    let out_of_bounds = reported(Fault::OutOfBounds);
    assert!(matches!(&out_of_bounds, Error::Runtime(error) if error.is_kernel_fault()), "{out_of_bounds}");
    assert!(out_of_bounds.to_string().contains("element 64 is out of bounds of view `y`"), "{out_of_bounds}");
}

#[test]
fn a_change_of_an_input_is_reported() {
    let error = reported(Fault::InputChanged);
    assert!(
        matches!(&error, Error::InputChanged { argument: "x", position, after: 3.0, .. } if position == "[0, 9]"),
        "{error}"
    );
}

#[test]
fn a_missing_barrier_is_reported() {
    let error = reported(Fault::MissingBarrier).to_string();
    assert!(error.contains("kernel `reverses_at_once`, block (0, 0, 0)") && error.contains("a race"), "{error}");
}

#[test]
fn a_result_that_varies_is_reported() {
    let report = check(&Reversed(Fault::Varies), &Device::cpu(Checks::Bounds), 1).unwrap();
    assert!(report.to_string().contains("again: run --op reversed --sizes blocks=1 --seed 1"), "{report}");
    let error = report.cases.into_iter().find_map(|case| case.failure).unwrap();
    assert!(matches!(&error, Error::Varies { runs, .. } if runs == "in runs 1 and 3"), "{error}");
}

#[test]
fn what_does_not_fit_has_to_be_said() {
    let error = reported(Fault::LargeSharedNotSaid);
    let Error::OnCapability { capability, .. } = &error else { panic!("{error}") };
    assert!(capability == "8.0" && error.to_string().contains("204800"), "{error}");
}

#[test]
fn a_reference_that_does_not_fit_is_reported() {
    let short = reported(Fault::ReferenceTooShort);
    assert!(matches!(short, Error::ReferenceLength { argument: "result", found: 63, len: 64, .. }), "{short}");
    let missing = reported(Fault::ReferenceMissing);
    assert!(matches!(missing, Error::ReferenceCount { found: 0, outputs: 1, .. }), "{missing}");
    let nan = reported(Fault::BoundIsNan);
    assert!(matches!(&nan, Error::BadBound { position, .. } if position == "[0, 0]"), "{nan}");
}

#[test]
fn names_that_there_are_not_are_reported() {
    let misspelt = reported(Fault::ArgumentMisspelt).to_string();
    assert!(misspelt.contains("`resultt`") && misspelt.contains("did you mean `result`"), "{misspelt}");
    let written = reported(Fault::InputWritten).to_string();
    assert!(written.contains("`x`") && written.contains("inputs are not written"), "{written}");
    let size = reported(Fault::SizeMisspelt).to_string();
    assert!(size.contains("has no size `block`") && size.contains("`blocks`"), "{size}");
    let element = reported(Fault::OtherElement);
    assert!(matches!(element, Error::ElementMismatch { element: Element::F64, asked: Element::F32, .. }), "{element}");
}

#[test]
fn an_operation_that_would_pass_whatever_it_does_is_refused() {
    let no_output = reported(Fault::NoOutput);
    assert!(matches!(no_output, Error::NoOutputs { operation: "reversed" }), "{no_output}");
    let refused = |fault| check_executor(&Reversed(fault), 1).unwrap_err();
    assert!(matches!(refused(Fault::NoCases), Error::NoCases { operation: "reversed" }));
    let sizes = refused(Fault::SurplusSize).to_string();
    assert!(sizes.contains("[1, 2]") && sizes.contains("--sizes blocks=1"), "{sizes}");
}

#[test]
fn mutants_that_survive_and_kernels_that_are_not_named_are_reported() {
    let outcomes = |fault| {
        let operation: &'static Reversed = Box::leak(Box::new(Reversed(fault)));
        mutants(operation, 1, Duration::from_secs(60))
    };
    let caught = outcomes(Fault::None).unwrap();
    assert!(matches!(&caught.mutants[..], [mutant] if matches!(mutant.outcome, Outcome::Check(_))), "{caught}");
    let survived = outcomes(Fault::SurplusBarrier).unwrap();
    assert_eq!(survived.survivors().count(), 2, "{survived}");
    assert!(survived.to_string().contains("SURVIVED crates/operations/tests/faults.rs:"), "{survived}");
    let unlisted = outcomes(Fault::OtherKernelNamed).unwrap_err();
    assert!(matches!(&unlisted, Error::UnlistedKernel { kernel, .. } if kernel == "reverses"), "{unlisted}");
    assert!(outcomes(Fault::WrongResult).is_err(), "wrong without any change");
}

#[test]
fn two_devices_that_do_not_agree_are_reported() {
    let [one, other] = [Device::cpu(Checks::Bounds), Device::cpu(Checks::Bounds)];
    let same = agreement(&Reversed(Fault::None), &one, &other, 1..4).unwrap();
    assert!(same.holds() && (same.cases, same.elements, same.same_bits) == (6, 768, 768), "{same}");
    let wrong = agreement(&Reversed(Fault::WrongResult), &one, &other, 1..2).unwrap();
    assert!(!wrong.holds() && wrong.to_string().contains("FAILED blocks=3, seed 1: output `result`"), "{wrong}");
}
