//! Cases, one group with the same operands after the other.

use std::cell::RefCell;

use ndarray::{Array2, ArrayView2, ShapeBuilder};

use super::accuracy::{Errors, Sample, sampled_rows};
use super::inputs::Inputs;
use super::options::BenchOptions;
use super::report::{BaselineTimes, CaseReport, ErrorReport, Measured, Outcome};
use super::roofline::{Roofline, Stall, Work};
use super::suite::Case;
use super::timing::{Contestant, Race, sets_for};
use super::torch::TorchTimes;
use crate::Error;
use crate::baseline::{BaselineError, CuBlas, Math, Prepared, Routine};
use tilewright::device::Device;
use tilewright::kernels;
use tilewright::plan::{ConstantsChoice, Description, GemmPlan, Options, Tables, Workspace};
use tilewright::{Bytes, DeviceError, DeviceMatrix, Order, Orders, Sizes};

/// What holds for all cases.
pub(super) struct Context<'a> {
    pub(super) options: &'a BenchOptions,
    pub(super) roofline: &'a Roofline,
    pub(super) torch: Option<&'a TorchTimes>,
}

/// A device with what is opened on it.
pub(super) struct Opened {
    // Dropped from the top: what works in the device's memory before the device.
    pub(super) blas: Option<CuBlas>,
    pub(super) stall: Stall,
    pub(super) device: Device,
}

/// The part of the free memory that operand sets may take: plans and cuBLAS need some, too.
const SHARE_OF_MEMORY: f64 = 0.6;

/// The cases by their operands, in the order in which these come first.
pub(super) fn groups(cases: &[Case]) -> Vec<Vec<&Case>> {
    let mut groups: Vec<Vec<&Case>> = Vec::new();
    let operands = |case: &Case| (case.sizes, case.orders, case.portable);
    for case in cases {
        match groups.iter_mut().find(|group| operands(group[0]) == operands(case)) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    groups
}

/// One line about a case that is done.
pub(super) fn progress_line(case: &CaseReport) -> String {
    match &case.outcome {
        Outcome::Measured(measured) => {
            let ratio = measured.ratio().map(|ratio| format!(", {ratio:.2} times cuBLAS")).unwrap_or_default();
            format!("  {}: {:.4} ms by {}{ratio}\n", case.id, measured.times.median_ms, measured.kernel)
        }
        Outcome::NotRun { reason } => format!("  {}: not run: {reason}\n", case.id),
    }
}

/// Operands in this processor's memory, each in its order: A, m×k, and B, k×n.
struct Host {
    a: Array2<f32>,
    b: Array2<f32>,
}

impl Host {
    fn new(case: &Case, inputs: Inputs, seed: u64) -> Self {
        let Sizes { m, n, k } = case.sizes;
        let Orders { a, b } = case.orders;
        let matrix = |order, rows: usize, cols: usize, elements| {
            let shape = (rows, cols).set_f(order == Order::ColumnMajor);
            Array2::from_shape_vec(shape, elements).expect("there are as many elements as the shape says")
        };
        let ([lines_a, length_a], [lines_b, length_b]) = (a.lines(m, k), b.lines(k, n));
        Self {
            a: matrix(a, m, k, inputs.a(lines_a, length_a, a == Order::ColumnMajor, seed)),
            b: matrix(b, k, n, inputs.b(lines_b, length_b, b == Order::RowMajor, seed)),
        }
    }
}

/// Operands and result in a device's memory.
struct Set {
    a: DeviceMatrix,
    b: DeviceMatrix,
    c: DeviceMatrix,
}

impl Set {
    fn new(device: &Device, host: &Host, result: ArrayView2<'_, f32>) -> Result<Self, Error> {
        Ok(Self {
            a: DeviceMatrix::upload(device, host.a.view())?,
            b: DeviceMatrix::upload(device, host.b.view())?,
            c: DeviceMatrix::unwritten(device, result)?,
        })
    }
}

/// Ours: a plan with its workspace.
struct Ours {
    plan: GemmPlan,
    workspace: RefCell<Workspace>,
}

impl Ours {
    fn new(device: &Device, case: &Case, choice: (&Tables, &ConstantsChoice), set: &Set) -> Result<Self, Error> {
        let kernel = case.kernel.as_deref().map(kernels::find).transpose()?;
        let product = Description::of(1.0, &set.a, &set.b, 0.0, &set.c)?;
        let (tables, constants) = (choice.0.clone(), choice.1.clone());
        let options = Options { precision: Some(case.precision), kernel, tables, constants, ..Options::default() };
        let plan = GemmPlan::new(device, &product, &options)?;
        let workspace = RefCell::new(plan.workspace(device)?);
        Ok(Self { plan, workspace })
    }

    fn launch(&self, device: &Device, set: &mut Set) -> Result<(), Error> {
        let Set { a, b, c } = set;
        Ok(self.plan.run(device, 1.0, a, b, 0.0, c, &mut self.workspace.borrow_mut())?)
    }
}

/// Theirs: one of cuBLAS's ways.
struct Theirs<'blas> {
    call: Prepared<'blas>,
}

impl Theirs<'_> {
    fn launch(&self, set: &mut Set) -> Result<(), Error> {
        let Set { a, b, c } = set;
        let (a, b, c) = (a.batch()?, b.batch()?, c.batch_mut(false)?);
        // SAFETY: the set's three buffers are of the device that cuBLAS was opened on, borrowed for as long as the views live;
        // their end waits for what is queued.
        unsafe { self.call.run(1.0, a, b, 0.0, c) }
    }
}

/// cuBLAS's ways for some operands, as far as it has them.
fn ways<'blas>(blas: Option<&'blas CuBlas>, math: Math, set: &mut Set) -> Result<Vec<Theirs<'blas>>, Error> {
    let Some(blas) = blas else { return Ok(Vec::new()) };
    let mut ways = Vec::new();
    let routines: &[Routine] = match (math, set.c.cols()) {
        (Math::Fp32, 1) => &[Routine::Gemv, Routine::Gemm, Routine::Lt],
        _ => &[Routine::Gemm, Routine::Lt],
    };
    for &routine in routines {
        let (a, b, c) = (set.a.batch()?, set.b.batch()?, set.c.batch_mut(false)?);
        match blas.prepare(routine, math, a, b, c) {
            Ok(call) => ways.push(Theirs { call }),
            Err(Error::Baseline(BaselineError::NoAlgorithm)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ways)
}

/// Errors of cuBLAS's ways on some inputs, by what they may do.
type TheirErrors = Vec<(Math, Vec<(Routine, Errors)>)>;

/// Runs cases that have the same operands.
///
/// # Errors
/// [`DeviceError::Driver`](runtime::Error::Driver) where the GPU fails, or has too little memory for the operands; those of cuBLAS. What ours cannot
/// compute is in the case's report.
pub(super) fn run_group(context: &Context<'_>, opened: &mut Opened, group: &[&Case]) -> Result<Vec<CaseReport>, Error> {
    let BenchOptions { inputs, seed, tables, constants, .. } = context.options;
    let choice = (tables, constants);
    let case = group[0];
    let Sizes { m, n, k } = case.sizes;
    let Opened { blas, stall, device } = opened;
    let mut result = Array2::<f32>::zeros((m, n));
    let set_bytes = 4 * (m as u128 * k as u128 + k as u128 * n as u128 + m as u128 * n as u128);
    let free = device.free_memory()?.unwrap_or(Bytes(0));
    if set_bytes > free.0 {
        let reason =
            DeviceError::NotEnoughMemory { place: format!("on {}", device.name()), needs: Bytes(set_bytes), has: free };
        return Ok(group.iter().map(|case| CaseReport::new(case, reason.to_string())).collect());
    }
    let usable = (free.0 as f64 * SHARE_OF_MEMORY) as u128;
    let l2_bytes = device.gpu_properties().map_or(0, |properties| u128::from(properties.l2_bytes));
    let count = sets_for(set_bytes, l2_bytes, usable);

    let mut reports: Vec<CaseReport> = group.iter().map(|case| CaseReport::new(case, String::new())).collect();
    let mut ours: Vec<Option<Ours>> = Vec::new();
    for (index, &inputs) in inputs.iter().enumerate() {
        let host = Host::new(case, inputs, *seed);
        let (a, b) = (host.a.view(), host.b.view());
        let sample = Sample::new(sampled_rows(m, n, k, *seed), a, b);
        let sets = if index == 0 { count } else { 1 };
        let mut sets =
            (0..sets).map(|_| Set::new(device, &host, result.view())).collect::<Result<Vec<Set>, Error>>()?;
        if index == 0 {
            for (case, report) in group.iter().zip(&mut reports) {
                ours.push(match Ours::new(device, case, choice, &sets[0]) {
                    Ok(ours) => Some(ours),
                    Err(error) => {
                        report.outcome = Outcome::NotRun { reason: one_line(&error) };
                        None
                    }
                });
            }
        }
        let mut errors_of = |set: &mut Set, launch: &mut dyn FnMut(&mut Set) -> Result<(), Error>| {
            set.c.clear()?;
            launch(set)?;
            set.c.download(result.view_mut())?;
            Ok::<_, Error>(sample.errors(result.view()))
        };
        let mut theirs: TheirErrors = Vec::new();
        for position in 0..group.len() {
            let (case, Some(own)) = (group[position], &ours[position]) else { continue };
            let math = case.math();
            if theirs.iter().all(|(known, _)| *known != math) {
                let mut found = Vec::new();
                for way in ways(blas.as_ref(), math, &mut sets[0])? {
                    let errors = errors_of(&mut sets[0], &mut |set| way.launch(set))?;
                    found.push((way.call.routine(), errors));
                }
                theirs.push((math, found));
            }
            let measured = errors_of(&mut sets[0], &mut |set| own.launch(device, set));
            let errors = match measured {
                Ok(errors) => errors,
                // What a kernel does wrong ends the GPU's context, and with it the run.
                Err(error) if error.is_kernel_fault() => return Err(error),
                Err(error) => {
                    reports[position].outcome = Outcome::NotRun { reason: one_line(&error) };
                    ours[position] = None;
                    continue;
                }
            };
            if index == 0 {
                let taken = RefCell::new(sets);
                let outcome = times(context, case, (device, blas.as_ref(), stall), own, &taken)?;
                sets = taken.into_inner();
                reports[position].outcome = Outcome::Measured(Box::new(outcome));
            }
            if let Outcome::Measured(measured) = &mut reports[position].outcome {
                let of_math = theirs.iter().find(|(known, _)| *known == math).map(|(_, found)| found.as_slice());
                let error = error_report(case, inputs, sample.rows(), errors, measured, of_math.unwrap_or_default());
                measured.errors.push(error);
            }
        }
    }
    Ok(reports)
}

/// An error on one line: reasons can quote what others have written, such as a table of kernels.
fn one_line(error: &Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Our errors beside those of the baseline that was the fastest, and the bound where there is one.
fn error_report(
    case: &Case,
    inputs: Inputs,
    rows: usize,
    ours: Errors,
    measured: &Measured,
    theirs: &[(Routine, Errors)],
) -> ErrorReport {
    let fastest = measured.baselines.first().map(|baseline| baseline.routine.as_str());
    let cublas = (theirs.iter().find(|(routine, _)| Some(routine.name()) == fastest))
        .map(|(routine, errors)| (routine.name().to_owned(), *errors));
    let bound = case.error_bounds().map(|(frobenius, max)| match &cublas {
        Some((_, theirs)) => Errors { frobenius: frobenius.max(theirs.frobenius), max: max.max(theirs.max) },
        None => Errors { frobenius, max },
    });
    ErrorReport { inputs, rows, ours, cublas, bound }
}

/// The times of ours and of all of cuBLAS's ways, in turns.
fn times(
    context: &Context<'_>,
    case: &Case,
    (device, blas, stall): (&Device, Option<&CuBlas>, &mut Stall),
    own: &Ours,
    sets: &RefCell<Vec<Set>>,
) -> Result<Measured, Error> {
    let ways = ways(blas, case.math(), &mut sets.borrow_mut()[0])?;
    let mut contestants: Vec<Contestant<'_>> = vec![Box::new(|set| own.launch(device, &mut sets.borrow_mut()[set]))];
    for way in &ways {
        contestants.push(Box::new(|set| way.launch(&mut sets.borrow_mut()[set])));
    }
    let operand_sets = sets.borrow().len();
    let mut race = Race { device, runs: context.options.runs, sets: operand_sets, busy: Box::new(|ms| stall.run(ms)) };
    let times = race.run(&mut contestants)?;
    let mut baselines: Vec<BaselineTimes> = ways
        .iter()
        .zip(&times[1..])
        .map(|(way, &times)| BaselineTimes { routine: way.call.routine().name().to_owned(), times })
        .collect();
    baselines.sort_by(|a, b| a.times.median_ms.total_cmp(&b.times.median_ms));
    let Sizes { m, n, k } = case.sizes;
    let [m, n, k] = [m, n, k].map(|extent| extent as f64);
    let (read, written, operations) = (4.0 * (m * k + k * n), 4.0 * m * n, case.operations());
    let kernel = own.plan.kernel();
    let per_second = |amount: f64| amount / (times[0].median_ms * 1e-3).max(f64::MIN_POSITIVE) * 1e-12;
    Ok(Measured {
        kernel: kernel.name.to_owned(),
        splits: own.plan.splits(),
        workspace_bytes: own.plan.workspace_bytes() as u64,
        operand_sets,
        times: times[0],
        tflop_per_s: per_second(operations),
        tb_per_s: per_second(read + written),
        least: context.roofline.least(Work { read, written, operations, scheme: kernel.scheme }),
        baselines,
        torch_ms: context.torch.and_then(|torch| torch.median_ms(case)),
        errors: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::super::suite::suite;
    use super::*;
    use tilewright::Precision;

    #[test]
    fn cases_with_the_same_operands_run_together() {
        let cases = suite("targets").unwrap();
        let groups = groups(&cases);
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), cases.len());
        let a_bt = groups.iter().find(|group| group[0].problem == "a-bt").unwrap();
        assert_eq!(a_bt.len(), 5, "fp32, 3xTF32, normwise, tf32, strict");
        assert!(groups.iter().any(|group| group.len() == 1 && group[0].portable));
        assert!(groups.iter().all(|group| group.iter().all(|case| case.orders == group[0].orders)));
    }

    #[test]
    fn operands_are_stored_as_the_layout_says_and_make_the_product() {
        let device = Device::cpu(Checks::Bounds);
        let sizes = Sizes { m: 5, n: 3, k: 4 };
        for orders in Orders::ALL {
            let case = Case {
                problem: "custom".to_owned(),
                sizes,
                orders,
                precision: Precision::Fp32Strict,
                kernel: None,
                portable: false,
                target: None,
            };
            for inputs in Inputs::ALL {
                let host = Host::new(&case, inputs, 3);
                let (a, b) = (host.a.view(), host.b.view());
                assert_eq!((a.dim(), b.dim()), ((5, 4), (4, 3)));
                let mut result = Array2::zeros((5, 3));
                let mut set = Set::new(&device, &host, result.view()).unwrap();
                let own = Ours::new(&device, &case, (&Tables::None, &ConstantsChoice::BuiltIn), &set).unwrap();
                own.launch(&device, &mut set).unwrap();
                set.c.download(result.view_mut()).unwrap();
                let errors = Sample::new(sampled_rows(5, 3, 4, 0), a, b).errors(result.view());
                assert!(errors.frobenius < 1e-6 && errors.max < 1e-6, "{orders} {inputs}: {errors:?}");
            }
        }
    }

    #[test]
    fn the_bound_is_the_larger_of_the_promise_and_cublas() {
        let case = &suite("targets").unwrap()[1];
        let mut measured = super::super::report::tests::report(2.0).results[1].measured().unwrap().clone();
        let ours = Errors { frobenius: 6e-7, max: 2e-6 };
        let theirs = [
            (Routine::Lt, Errors { frobenius: 9e-6, max: 9e-6 }),
            (Routine::Gemm, Errors { frobenius: 1e-7, max: 3e-6 }),
        ];
        let report = error_report(case, Inputs::Graded, 5, ours, &measured, &theirs);
        assert_eq!(report.bound, Some(Errors { frobenius: 7e-7, max: 3e-6 }), "by the fastest way, not by any");
        assert!(report.passes());
        measured.baselines.clear();
        let alone = error_report(case, Inputs::Graded, 5, ours, &measured, &theirs);
        assert!(alone.cublas.is_none() && !alone.passes(), "without cuBLAS the promise counts");
    }
}
