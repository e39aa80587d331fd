//! The main job: problems by name, each computed by one kernel after the other, checked and timed, and one case of every other
//! operation, checked.

use std::path::PathBuf;
use std::time::Instant;

use ndarray::{Array2, ArrayView2, s};
use testkit::Operation;

use crate::Error;
use crate::check::{Outcome, Reference};
use crate::input::{self, Distribution};
use crate::measure::measure;
use crate::problem::{self, Overrides, Problem, Product, Stored};
use crate::report::{KernelReport, OperationReport, ProblemReport, Report};
use crate::{files, operations};
use tilewright::device::Device;
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::{self, GemmPlan};
use tilewright::{Bytes, DeviceError, DeviceMatrix, Order, Sizes, Wanted};

/// How often each kernel can be run for its times. On a GPU, each run has an event that is kept until the last has ended.
const MOST_RUNS: usize = 1_000_000;

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum What {
    /// All problems, and then one case of every operation that is no product.
    Everything,
    /// Problems.
    #[default]
    Problems,
    /// One case of an operation.
    Operation {
        /// Its name.
        name: String,
        /// The sizes, as `rows=3,cols=4`. Without: the last large case on a GPU, the last small one on the executor.
        sizes: Option<String>,
    },
}

/// What to run, and how. The default is all problems, as they are.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What runs. All but `seed`, `note` and `json` is for problems.
    pub what: What,
    /// The names of the problems; all that the kernels are for if there are none.
    pub problems: Vec<String>,
    /// The names of the kernels. If there are none: the ladder and what a plan chooses, or that alone if a precision,
    /// splits, or invariant rows are asked for.
    pub kernels: Vec<String>,
    /// The precision, or how accurate products have to be; if there is none, the precision of each kernel, and for what a plan chooses
    /// [`tilewright::Precision::Fp32`].
    pub precision: Option<Wanted>,
    /// Among how many blocks to divide each sum.
    pub splits: Option<u32>,
    /// Whether rows have bits that do not depend on other rows.
    pub invariant: bool,
    /// Which measured times to go by.
    pub tables: plan::Tables,
    /// The constants that the model goes by.
    pub constants: plan::ConstantsChoice,
    /// Whether to print, and to report, why each plan is what it is.
    pub explain: bool,
    /// What to change about the problems.
    pub overrides: Overrides,
    /// How often to run each kernel for its times, up to a million; see [`measure`].
    pub runs: Option<usize>,
    /// What the operands are made from.
    pub seed: u64,
    /// How the operands are distributed.
    pub inputs: Distribution,
    /// Why the device was taken, on one line, where that needs saying. It is for the report.
    pub note: Option<String>,
    /// Where to write the report as JSON.
    pub json: Option<PathBuf>,
}

/// Runs what `options` ask for on a device, and gives `print` what there is to read, as it comes.
///
/// Names and sizes are checked first; nothing is allocated before the memory is known to suffice. A failed check is no
/// error: the report says so.
///
/// # Errors
/// All of [`Error`]: for options that make no sense, for what cannot run, and for kernels that fail while they run.
pub fn run(device: &Device, options: &Options, mut print: impl FnMut(&str)) -> Result<Report, Error> {
    let selection = if matches!(options.what, What::Operation { .. }) { Vec::new() } else { select(options)? };
    let cases = operation_cases(device, &options.what)?;
    match options.runs {
        Some(0) => return Err(Error::Usage("runs is 0: a measurement needs at least one run".to_owned())),
        Some(runs) if runs > MOST_RUNS => {
            return Err(Error::Usage(format!(
                "runs is {runs}: a measurement can have at most {MOST_RUNS}, because all times are kept for the median"
            )));
        }
        _ => {}
    }
    if let Some(path) = &options.json {
        files::check_writable(path)?;
    }
    let prepared = (selection.into_iter())
        .map(|(problem, choices)| {
            let product = problem.product(device.is_cpu(), &options.overrides)?;
            let plans = plans(device, &product, &choices)?;
            check_memory(device, &product, &plans)?;
            plans.iter().try_for_each(|plan| plan.load(device))?;
            Ok((problem, product, plans))
        })
        .collect::<Result<Vec<_>, Error>>()?;

    let inputs = (!prepared.is_empty()).then_some(options.inputs);
    let mut report = Report::begin(device.describe(), options.note.clone(), inputs, options.seed);
    print(&report.heading());
    for (problem, product, plans) in prepared {
        if options.explain {
            plans.iter().for_each(|plan| print(&format!("\n{}", plan.explanation())));
        }
        let full = problem.sizes(false, &options.overrides);
        let one = run_problem(device, ProblemReport::new(problem, &product, full), &product, &plans, options)?;
        print(&one.table());
        report.problems.push(one);
    }
    for (operation, sizes) in cases {
        let case = testkit::check_case(operation, device, sizes, options.seed);
        report.operations.push(OperationReport::new(operation.describe().name, case));
    }
    print(&report.operations_table());
    print(&format!("\n{}", report.summary()));
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(report)
}

/// The cases of operations that are to be run.
fn operation_cases(device: &Device, what: &What) -> Result<Vec<(&'static dyn Operation, testkit::Sizes)>, Error> {
    match what {
        What::Problems => Ok(Vec::new()),
        What::Everything => {
            let case = |operation: &&'static dyn Operation| Ok((*operation, operation.describe().last_case(device)?));
            gpu_kernels::OPERATIONS.iter().map(case).collect()
        }
        What::Operation { name, sizes } => {
            let operation = operations::program().operation(name)?;
            let description = operation.describe();
            let sizes = match sizes {
                Some(sizes) => description.parse_sizes(sizes)?,
                None => description.last_case(device)?,
            };
            Ok(vec![(operation, sizes)])
        }
    }
}

/// A problem with the ways in which it is to be run.
type Selected = (&'static Problem, Vec<plan::Options>);

/// Which problems and kernels go together: where one of the two is not asked for, what the other is for.
fn select(options: &Options) -> Result<Vec<Selected>, Error> {
    let kernels = options.kernels.iter().map(|name| kernels::find(name)).collect::<Result<Vec<_>, _>>()?;
    let named = options.problems.iter().map(|name| problem::find(name)).collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<&'static Problem> = if named.is_empty() { problem::ALL.iter().collect() } else { named.clone() };
    let with = |kernel: Option<&'static KernelInfo>| plan::Options {
        kernel,
        splits: options.splits,
        invariant: options.invariant,
        tables: options.tables.clone(),
        constants: options.constants.clone(),
        ..options.precision.map(plan::Options::from).unwrap_or_default()
    };
    let pairs = chosen.into_iter().map(|problem| {
        let own = |kernel: &&'static KernelInfo| kernel.family() == problem.family;
        let choices: Vec<_> = match (kernels.is_empty(), named.is_empty()) {
            (true, _) if options.precision.is_some() || options.splits.is_some() || options.invariant => {
                vec![with(None)]
            }
            (true, _) => kernels::BASIC.into_iter().filter(own).map(Some).chain([None]).map(with).collect(),
            (false, true) => kernels.iter().copied().filter(own).map(|kernel| with(Some(kernel))).collect(),
            (false, false) => kernels.iter().map(|kernel| with(Some(kernel))).collect(),
        };
        (problem, choices)
    });
    Ok(pairs.filter(|(_, choices)| !choices.is_empty()).collect())
}

/// The plans for a product; one that says the same as another is left out.
fn plans(device: &Device, product: &Product, choices: &[plan::Options]) -> Result<Vec<GemmPlan>, Error> {
    let description = product.description()?;
    let mut plans: Vec<GemmPlan> = Vec::new();
    for choice in choices {
        let plan = GemmPlan::new(device, &description, choice)?;
        let known = |other: &GemmPlan| other.kernel().name == plan.kernel().name && other.splits() == plan.splits();
        if !plans.iter().any(known) {
            plans.push(plan);
        }
    }
    Ok(plans)
}

/// Refuses a product for which there is not enough memory.
fn check_memory(device: &Device, product: &Product, plans: &[GemmPlan]) -> Result<(), Error> {
    let workspace = plans.iter().map(GemmPlan::workspace_bytes).max().unwrap_or(0) as u128;
    let refuse_unless = |place: String, needs, has| match has {
        Some(has) if needs > has => Err(DeviceError::NotEnoughMemory { place, needs, has }.into()),
        _ => Ok(()),
    };
    let host = runtime::available_host_memory().map(Bytes);
    let (host_bytes, device_bytes) = (product.host_bytes(device.is_cpu()).0, product.device_bytes().0);
    if device.is_cpu() {
        return refuse_unless("on the host".to_owned(), Bytes(host_bytes + workspace), host);
    }
    refuse_unless("on the host".to_owned(), Bytes(host_bytes), host)?;
    refuse_unless(format!("on {}", device.name()), Bytes(device_bytes + workspace), device.free_memory()?)
}

/// The matrices of a batch in this processor's memory, stored by rows, one after the other.
struct HostMatrices {
    elements: Vec<f32>,
    stored: Stored,
    count: usize,
}

impl HostMatrices {
    fn random(stored: Stored, count: usize, options: &Options, operand: u64) -> Self {
        let len = stored.elements() * count;
        Self { elements: input::random(len, options.inputs, options.seed, operand), stored, count }
    }

    /// Matrix `index`.
    fn view(&self, index: usize) -> ArrayView2<'_, f32> {
        let (shape, size) = ((self.stored.lines, self.stored.leading_dimension), self.stored.elements());
        let elements = &self.elements[index * size..(index + 1) * size];
        let whole = ArrayView2::from_shape(shape, elements).expect("there are as many elements as the shape says");
        let lines = whole.slice_move(s![.., ..self.stored.length]);
        if self.stored.order == Order::RowMajor { lines } else { lines.reversed_axes() }
    }

    fn upload(&self, device: &Device) -> Result<DeviceMatrix, Error> {
        let Stored { order, lines, length, .. } = self.stored;
        let (buffer, size) = (device.upload(&self.elements)?, self.stored.elements());
        Ok(DeviceMatrix::new_batch(buffer, order.lines(lines, length), self.stored.strides(), self.count, size)?)
    }
}

/// Runs plans for one product, or a batch of them.
fn run_problem(
    device: &Device,
    mut report: ProblemReport,
    product: &Product,
    plans: &[GemmPlan],
    options: &Options,
) -> Result<ProblemReport, Error> {
    let Product { sizes: Sizes { m, n, .. }, batch, alpha, beta, .. } = *product;
    let a = HostMatrices::random(product.a, batch, options, 0);
    let b = HostMatrices::random(product.b, batch, options, 1);
    let c = HostMatrices::random(product.c, batch, options, 2);

    let start = Instant::now();
    let (a_there, b_there) = (a.upload(device)?, b.upload(device)?);
    report.upload_ms = milliseconds(start);

    let start = Instant::now();
    let references: Vec<_> = (0..batch).map(|i| Reference::new(alpha, a.view(i), b.view(i), beta, c.view(i))).collect();
    report.reference_ms = milliseconds(start);

    let mut c_there = c.upload(device)?;
    for plan in plans {
        if beta == 0.0 {
            // What it held before must not count: a kernel that reads it, or leaves an element out, gives NaN.
            c_there.clear()?;
        } else {
            c_there.buffer_mut().copy_from(&c.elements)?;
        }
        let mut workspace = plan.workspace(device)?;
        workspace.clear()?;
        let mut launch = |c: &mut DeviceMatrix| plan.run(device, alpha, &a_there, &b_there, beta, c, &mut workspace);

        let start = Instant::now();
        launch(&mut c_there)?;
        device.synchronize()?;
        let first_call_ms = milliseconds(start);

        let mut results = vec![Array2::zeros((m, n)); batch];
        let start = Instant::now();
        c_there.download_all(&mut results.iter_mut().map(|result| result.view_mut()).collect::<Vec<_>>())?;
        let download_ms = milliseconds(start);
        let outcomes = references.iter().zip(&results).map(|(reference, result)| {
            // A precision that was asked for is kept by whatever kernel.
            reference.check_in(plan.precision(), result.view())
        });
        let check = outcomes.reduce(Outcome::and).unwrap_or_else(|| Outcome::of_nothing(plan.precision()));

        let timing = measure(device, options.runs, || Ok(launch(&mut c_there)?))?;
        let per_second = |amount: f64| amount / (timing.median_ms * 1e-3).max(f64::MIN_POSITIVE) * 1e-12;
        report.results.push(KernelReport {
            kernel: plan.kernel().name.to_owned(),
            precision: plan.precision(),
            splits: plan.splits(),
            workspace_bytes: plan.workspace_bytes() as u64,
            explanation: options.explain.then(|| plan.explanation().clone()),
            first_call_ms,
            timing,
            tflop_per_s: per_second(product.operations()),
            tb_per_s: per_second(product.traffic()),
            download_ms,
            check,
        });
    }
    Ok(report)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;

    fn selected(problems: &[&str], kernels: &[&str]) -> Vec<(&'static str, Vec<&'static str>)> {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let options = Options { problems: strings(problems), kernels: strings(kernels), ..Options::default() };
        let name = |choice: &plan::Options| choice.kernel.map_or("planned", |kernel| kernel.name);
        let selected = select(&options).unwrap();
        selected.into_iter().map(|(problem, choices)| (problem.name, choices.iter().map(name).collect())).collect()
    }

    #[test]
    fn problems_and_kernels_find_each_other() {
        let everything = selected(&[], &[]);
        assert_eq!(
            everything.iter().map(|(problem, _)| *problem).collect::<Vec<_>>(),
            ["matvec", "large-k", "at-b", "a-bt"]
        );
        assert_eq!(everything.iter().map(|(_, kernels)| kernels.len()).collect::<Vec<_>>(), [2, 5, 5, 5]);
        assert_eq!(selected(&[], &["gemv_block_reduction_fp32"]), [("matvec", vec!["gemv_block_reduction_fp32"])]);
        assert_eq!(selected(&["matvec"], &["gemm_naive_1d_fp32"]), [("matvec", vec!["gemm_naive_1d_fp32"])]);
        assert_eq!(selected(&["at-b"], &[])[0].1.len(), 5);
    }

    fn small() -> Options {
        let overrides = Overrides {
            m: Some(20),
            n: Some(1),
            k: Some(37),
            a: Some(Order::ColumnMajor),
            lda: Some(23),
            ldb: Some(5),
            ldc: Some(3),
            alpha: Some(0.5),
            beta: Some(-2.0),
            ..Overrides::default()
        };
        let problems = vec!["large-k".to_owned()];
        let kernels = kernels::BASIC.iter().map(|kernel| kernel.name.to_owned()).collect();
        Options { problems, kernels, overrides, runs: Some(1), ..Options::default() }
    }

    #[test]
    fn every_kernel_passes_on_a_product_with_gaps_and_factors() {
        let mut printed = String::new();
        let report = run(&Device::cpu(Checks::Full), &small(), |text| printed += text).unwrap();
        assert!(report.passed(), "{printed}");
        assert_eq!(report.problems[0].results.len(), 5);
        assert_eq!(report.problems[0].leading_dimensions, [23, 5, 3]);
        assert!(printed.contains("All 5 checks passed") && printed.contains("CPU executor"), "{printed}");
    }

    #[test]
    fn after_all_problems_comes_one_case_of_every_other_operation() {
        // The problems are small here.
        let overrides = Overrides { m: Some(5), n: Some(1), k: Some(7), ..Overrides::default() };
        let options = Options { what: What::Everything, overrides, runs: Some(1), ..Options::default() };
        let mut printed = String::new();
        let report = run(&Device::cpu(Checks::Full), &options, |text| printed += text).unwrap();
        let operations: Vec<_> = report.operations.iter().map(|one| one.operation.as_str()).collect();
        let all: Vec<_> = gpu_kernels::OPERATIONS.iter().map(|one| one.describe().name).collect();
        assert_eq!(operations, all);
        assert_eq!(report.problems.len(), 4);
        let checks = report.problems.iter().map(|problem| problem.results.len()).sum::<usize>() + all.len();
        assert!(printed.contains(&format!("All {checks} checks passed")) && report.passed(), "{printed}");
        for one in &report.operations {
            let row = printed.lines().find(|line| line.starts_with(&format!("| {} ", one.operation))).unwrap();
            assert!(row.contains(" ok ") && row.contains(&one.sizes) && one.elements > 0, "{row}: {one:?}");
        }
    }

    #[test]
    fn an_operation_runs_alone_at_the_sizes_that_were_asked_for() {
        let options = |name: &str, sizes: Option<&str>| {
            let what = What::Operation { name: name.to_owned(), sizes: sizes.map(str::to_owned) };
            Options { what, seed: 3, ..Options::default() }
        };
        let mut printed = String::new();
        let options_now = options("rms-norm", Some("rows=3,cols=40"));
        let report = run(&Device::cpu(Checks::Full), &options_now, |text| printed += text).unwrap();
        let [one] = &report.operations[..] else { panic!("{report:?}") };
        assert!(report.problems.is_empty() && report.inputs.is_none() && report.passed(), "{report:?}");
        assert_eq!((one.sizes.as_str(), one.elements), ("rows=3,cols=40", 120));
        assert!(printed.contains("All 1 checks passed") && !printed.contains("Inputs"), "{printed}");
        let refusal = |options: Options| {
            run(&Device::cpu(Checks::Bounds), &options, |text| panic!("printed {text}")).unwrap_err().to_string()
        };
        assert!(refusal(options("rms-nrm", None)).contains("did you mean `rms-norm`"));
        assert!(refusal(options("rms-norm", Some("rows=3"))).contains("does not give each of them once"));
    }

    #[test]
    fn options_that_make_no_sense_are_refused_before_anything_runs() {
        let refusal = |options: Options| {
            run(&Device::cpu(Checks::Bounds), &options, |text| panic!("printed {text}")).unwrap_err().to_string()
        };
        let mut options = small();
        options.overrides.n = Some(2);
        options.overrides.ldc = None;
        assert!(refusal(options).contains("n must be at most 1"));
        let mut options = small();
        options.overrides = Overrides { m: Some(1 << 30), n: Some(1), k: Some(1 << 16), ..Overrides::default() };
        let message = refusal(options);
        assert!(
            message.contains("not enough memory on the host: 512.0 TiB") || message.contains("TiB are needed"),
            "{message}"
        );
        assert!(refusal(Options { runs: Some(0), ..small() }).contains("runs is 0"));
        assert!(
            refusal(Options { json: Some("/no such directory/x.json".into()), ..small() }).contains("cannot write")
        );
        assert!(refusal(Options { kernels: vec!["gemv".to_owned()], ..small() }).contains("did you mean"));
    }
}
