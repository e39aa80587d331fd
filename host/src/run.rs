//! The main job: problems by name, each computed by one kernel after the other, checked and timed.

use std::path::PathBuf;
use std::time::Instant;

use ndarray::{Array2, ArrayView2, s};

use crate::check::Reference;
use crate::device::Device;
use crate::input::{self, Distribution};
use crate::kernels::{self, KernelInfo};
use crate::measure::measure;
use crate::problem::{self, Overrides, Problem, Product, Sizes, Stored};
use crate::report::{KernelReport, ProblemReport, Report, temporary_beside};
use crate::{DeviceMatrix, Error};

/// What to run, and how. The default is everything, as it is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The names of the problems; all that the kernels are for if there are none.
    pub problems: Vec<String>,
    /// The names of the kernels; all that are for the problem if there are none.
    pub kernels: Vec<String>,
    /// What to change about the problems.
    pub overrides: Overrides,
    /// How often to run each kernel for its times; see [`measure`].
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
    let selection = select(&options.problems, &options.kernels)?;
    if options.runs == Some(0) {
        return Err(Error::Usage("a measurement needs at least one run: choose --runs 1 or more".to_owned()));
    }
    if let Some(path) = &options.json {
        temporary_beside(path)?;
    }
    let plan = (selection.into_iter())
        .map(|(problem, kernels)| {
            let product = problem.product(device.is_cpu(), &options.overrides)?;
            let Sizes { m, n, k } = product.sizes;
            for kernel in &kernels {
                kernel.eligible(m, n, k)?;
                device.has_kernel(kernel.name)?;
            }
            check_memory(device, &product)?;
            Ok((problem, product, kernels))
        })
        .collect::<Result<Vec<_>, Error>>()?;

    let mut report = Report::begin(device.describe(), options.note.clone(), options.inputs, options.seed);
    print(&report.heading());
    for (problem, product, kernels) in plan {
        let full = problem.sizes(false, &options.overrides);
        let one = run_problem(device, ProblemReport::new(problem, &product, full), &product, &kernels, options)?;
        print(&one.table());
        report.problems.push(one);
    }
    print(&format!("\n{}", report.summary()));
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(report)
}

/// A problem with the kernels that are to run it.
type Selected = (&'static Problem, Vec<&'static KernelInfo>);

/// Which problems and kernels go together: where one of the two is not asked for, what the other is for.
fn select(problems: &[String], kernels: &[String]) -> Result<Vec<Selected>, Error> {
    let kernels = kernels.iter().map(|name| kernels::find(name)).collect::<Result<Vec<_>, _>>()?;
    let named = problems.iter().map(|name| problem::find(name)).collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<&'static Problem> = if named.is_empty() { problem::ALL.iter().collect() } else { named.clone() };
    let pairs = chosen.into_iter().map(|problem| {
        let own = |kernel: &&'static KernelInfo| kernel.family() == problem.family;
        let kernels: Vec<_> = match (kernels.is_empty(), named.is_empty()) {
            (true, _) => kernels::ALL.into_iter().filter(own).collect(),
            (false, true) => kernels.iter().copied().filter(own).collect(),
            (false, false) => kernels.clone(),
        };
        (problem, kernels)
    });
    Ok(pairs.filter(|(_, kernels)| !kernels.is_empty()).collect())
}

/// Refuses a product for which there is not enough memory.
fn check_memory(device: &Device, product: &Product) -> Result<(), Error> {
    let refuse_unless = |place: String, needs, has| match has {
        Some(has) if needs > has => Err(Error::NotEnoughMemory { place, needs, has }),
        _ => Ok(()),
    };
    let host = problem::available_host_memory().map(crate::Bytes);
    refuse_unless("on the host".to_owned(), product.host_bytes(device.is_cpu()), host)?;
    if device.is_cpu() {
        return Ok(());
    }
    refuse_unless(format!("on {}", device.name()), product.device_bytes(), device.free_memory()?)
}

/// A matrix in this processor's memory, stored by rows.
struct HostMatrix {
    elements: Vec<f32>,
    stored: Stored,
}

impl HostMatrix {
    fn random(stored: Stored, options: &Options, operand: u64) -> Self {
        Self { elements: input::random(stored.elements(), options.inputs, options.seed, operand), stored }
    }

    /// All elements, those between the rows included.
    fn whole(&self) -> ArrayView2<'_, f32> {
        let shape = (self.stored.rows, self.stored.leading_dimension);
        ArrayView2::from_shape(shape, &self.elements).expect("there are as many elements as the shape says")
    }

    fn view(&self) -> ArrayView2<'_, f32> {
        self.whole().slice_move(s![.., ..self.stored.cols])
    }

    fn upload(&self, device: &Device) -> Result<DeviceMatrix, Error> {
        Ok(DeviceMatrix::upload(device, self.whole())?.narrowed(self.stored.rows, self.stored.cols))
    }
}

/// Runs kernels on one product.
fn run_problem(
    device: &Device,
    mut report: ProblemReport,
    product: &Product,
    kernels: &[&KernelInfo],
    options: &Options,
) -> Result<ProblemReport, Error> {
    let a = HostMatrix::random(product.a, options, 0);
    let b = HostMatrix::random(product.b, options, 1);
    let c = HostMatrix::random(product.c, options, 2);

    let start = Instant::now();
    let (a_there, b_there) = (a.upload(device)?, b.upload(device)?);
    report.upload_ms = milliseconds(start);
    let a_there = if product.trans_a { a_there.transposed() } else { a_there };
    let b_there = if product.trans_b { b_there.transposed() } else { b_there };

    let start = Instant::now();
    let a_used = if product.trans_a { a.view().reversed_axes() } else { a.view() };
    let b_used = if product.trans_b { b.view().reversed_axes() } else { b.view() };
    let reference = Reference::new(product.alpha, a_used, b_used, product.beta, c.view());
    report.reference_ms = milliseconds(start);

    let mut c_there = c.upload(device)?;
    for kernel in kernels {
        if product.beta == 0.0 {
            // What it held before must not count: a kernel that reads it, or leaves an element out, gives NaN.
            c_there.clear()?;
        } else {
            c_there.buffer_mut().copy_from(&c.elements)?;
        }
        let launch = |c: &mut DeviceMatrix| kernel.launch(device, product.alpha, &a_there, &b_there, product.beta, c);

        let start = Instant::now();
        launch(&mut c_there)?;
        device.synchronize()?;
        let first_call_ms = milliseconds(start);

        let mut result = Array2::zeros((product.sizes.m, product.sizes.n));
        let start = Instant::now();
        c_there.download(result.view_mut())?;
        let download_ms = milliseconds(start);
        let check = reference.check(result.view());

        let timing = measure(device, options.runs, || launch(&mut c_there))?;
        let per_second = |amount: f64| amount / (timing.median_ms * 1e-3).max(f64::MIN_POSITIVE) * 1e-12;
        report.results.push(KernelReport {
            kernel: kernel.name.to_owned(),
            precision: "fp32".to_owned(),
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
        let selected = select(&strings(problems), &strings(kernels)).unwrap();
        selected
            .into_iter()
            .map(|(problem, kernels)| (problem.name, kernels.iter().map(|k| k.name).collect()))
            .collect()
    }

    #[test]
    fn problems_and_kernels_find_each_other() {
        let everything = selected(&[], &[]);
        assert_eq!(
            everything.iter().map(|(problem, _)| *problem).collect::<Vec<_>>(),
            ["matvec", "large-k", "at-b", "a-bt"]
        );
        assert_eq!(everything.iter().map(|(_, kernels)| kernels.len()).collect::<Vec<_>>(), [1, 4, 4, 4]);
        assert_eq!(selected(&[], &["gemv_block_reduction_fp32"]), [("matvec", vec!["gemv_block_reduction_fp32"])]);
        assert_eq!(selected(&["matvec"], &["gemm_naive_1d_fp32"]), [("matvec", vec!["gemm_naive_1d_fp32"])]);
        assert_eq!(selected(&["at-b"], &[])[0].1.len(), 4);
    }

    fn small() -> Options {
        let overrides = Overrides {
            m: Some(20),
            n: Some(1),
            k: Some(37),
            trans_a: Some(true),
            lda: Some(23),
            ldb: Some(5),
            ldc: Some(3),
            alpha: Some(0.5),
            beta: Some(-2.0),
            ..Overrides::default()
        };
        let problems = vec!["large-k".to_owned()];
        let kernels = kernels::ALL.iter().map(|kernel| kernel.name.to_owned()).collect();
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
    fn options_that_make_no_sense_are_refused_before_anything_runs() {
        let refusal = |options: Options| {
            run(&Device::cpu(Checks::Bounds), &options, |text| panic!("printed {text}")).unwrap_err().to_string()
        };
        let mut options = small();
        options.overrides.n = Some(2);
        options.overrides.ldc = None;
        assert!(refusal(options).contains("n must be 1"));
        let mut options = small();
        options.overrides = Overrides { m: Some(1 << 30), n: Some(1), k: Some(1 << 16), ..Overrides::default() };
        let message = refusal(options);
        assert!(
            message.contains("not enough memory on the host: 512.0 TiB") || message.contains("TiB are needed"),
            "{message}"
        );
        assert!(refusal(Options { runs: Some(0), ..small() }).contains("--runs 1"));
        assert!(
            refusal(Options { json: Some("/no such directory/x.json".into()), ..small() }).contains("cannot write")
        );
        assert!(refusal(Options { kernels: vec!["gemv".to_owned()], ..small() }).contains("did you mean"));
    }
}
