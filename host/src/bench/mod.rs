//! `tilewright bench`: our kernels and cuBLAS on the same products, in the same memory, in one run.
//!
//! ```text
//!  ceilings of the GPU       roofline   read, write and copy probes; CUDA cores; tensor cores
//!        │
//!  each product of a suite   suite      the plan's kernel, or one by name
//!        ├─ operands         inputs     four kinds; as many sets as exceed twice the second-level cache
//!        ├─ errors           accuracy   of ours and of cuBLAS's, against f64, on every kind of inputs
//!        └─ times            timing     ours and cuBLAS's two or three ways in turns, after a warm-up
//!        │
//!  report                    report     a table, JSON; compare: what got slower since an older one
//! ```
//!
//! `epilogue` measures what a bias and an activation add. [`atlas`] measures many more shapes, each in less time: the same machinery, another report.
//!
//! A GPU is needed: times of the CPU executor say nothing about any.

pub mod accuracy;
pub mod args;
pub mod atlas;
pub mod compare;
mod epilogue;
mod gpu;
pub mod inputs;
mod options;
pub mod report;
pub mod roofline;
mod run;
pub mod suite;
mod text;
pub mod timing;
pub mod torch;

pub use options::BenchOptions;

use compare::Comparison;
use gpu::refuse_cpu;
use report::{BenchReport, CublasInfo, GpuState, SCHEMA, SCHEMA_VERSION};
use roofline::Stall;
use run::{Context, Opened};
use suite::Case;
use torch::TorchTimes;

use crate::Error;
use crate::baseline::CuBlas;
use crate::files;
use crate::provenance::{commit, now};
use tilewright::device::Device;

/// Measures what `options` ask for on a device, and gives `print` what there is to read, as it comes. The report comes with
/// the comparison, if one was asked for.
///
/// Files are looked at first. What one case cannot do is in its report, and the others go on.
///
/// # Errors
/// [`Error::Usage`] for the CPU executor, and for files that are no reports; [`Error::File`]; [`TableForOtherGpu`](tilewright::Error::TableForOtherGpu);
/// [`Error::Baseline`] where
/// there is no cuBLAS and a baseline is wanted; [`DeviceError::Driver`](runtime::Error::Driver) where the GPU fails, or has too little memory.
pub fn bench(
    device: &Device,
    options: &BenchOptions,
    mut print: impl FnMut(&str),
) -> Result<(BenchReport, Option<Comparison>), Error> {
    refuse_cpu(device)?;
    let old = options.compare.as_deref().map(BenchReport::read_json).transpose()?;
    let torch = options.torch.as_deref().map(TorchTimes::read).transpose()?;
    if let Some(path) = &options.json {
        files::check_writable(path)?;
    }
    let Some(&timed_inputs) = options.inputs.first() else {
        return Err(Error::Usage("no inputs are named: a benchmark needs some, such as uniform-01".to_owned()));
    };
    let table = options.tables.source(device)?;
    let open_blas = |device: &Device| options.baseline.then(|| CuBlas::open(device)).transpose();
    let blas = open_blas(device)?;
    let info = device.describe();
    let mut report = BenchReport {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        date: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        state_before: GpuState::read(&info),
        state_after: None,
        device: info,
        cublas: blas
            .as_ref()
            .map(|blas| CublasInfo { version: blas.version().to_owned(), path: blas.path().display().to_string() }),
        table,
        torch: torch.as_ref().map(|torch| format!("{} on {}", torch.torch, torch.device)),
        roofline: roofline::measure(device, blas.as_ref())?,
        runs: options.runs,
        seed: options.seed,
        timed_inputs,
        results: Vec::new(),
    };
    print(&report.heading());
    print(&report.roofline.text());

    let context = Context { options, roofline: &report.roofline, torch: torch.as_ref() };
    let own = Opened { stall: Stall::new(device, &report.roofline.fma)?, device: device.clone(), blas };
    // The same GPU with portable kernels only, where a case wants these.
    let portable = match options.cases.iter().any(|case| case.portable) {
        true => {
            let device = gpu::portable(device)?;
            Some(Opened { stall: Stall::new(&device, &report.roofline.fma)?, blas: open_blas(&device)?, device })
        }
        false => None,
    };
    let mut opened = (own, portable);
    let mut results = Vec::new();
    for group in run::groups(&options.cases) {
        let opened = match &mut opened {
            (_, Some(portable)) if group[0].portable => portable,
            (own, _) => own,
        };
        for case in run::run_group(&context, opened, &group)? {
            print(&run::progress_line(&case));
            results.push(case);
        }
    }
    report.results = in_order(&options.cases, results);
    report.state_after = GpuState::read(&report.device);
    print(&report.table());
    print(&report.summary());
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    let comparison = old.map(|old| Comparison::new(&old, &report));
    if let Some(comparison) = &comparison {
        print(&comparison.text());
    }
    Ok((report, comparison))
}

/// Reports in the order of the cases.
fn in_order(cases: &[Case], mut results: Vec<report::CaseReport>) -> Vec<report::CaseReport> {
    let ids: Vec<String> = cases.iter().map(Case::id).collect();
    results.sort_by_key(|result| ids.iter().position(|id| *id == result.id));
    results
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use inputs::Inputs;
    use tilewright::device::DeviceChoice;
    use tilewright::plan::{ConstantsChoice, Tables};

    use super::*;

    fn options() -> BenchOptions {
        BenchOptions {
            cases: suite::suite("targets").unwrap(),
            inputs: Inputs::ORDINARY.to_vec(),
            seed: 0,
            runs: 30,
            device: DeviceChoice::Auto,
            baseline: true,
            torch: None,
            json: None,
            compare: None,
            tables: Tables::None,
            constants: ConstantsChoice::Stored,
        }
    }

    #[test]
    fn the_cpu_executor_is_refused_with_the_reason() {
        let device = Device::cpu(Checks::Bounds);
        let message = bench(&device, &options(), |_| ()).unwrap_err().to_string();
        assert!(message.contains("needs a CUDA GPU") && message.contains("--device cpu"), "{message}");
    }

    #[test]
    fn reports_come_in_the_order_of_the_cases() {
        let cases = suite::suite("targets").unwrap();
        let mut results: Vec<_> =
            cases.iter().map(|case| report::CaseReport::new(case, "no reason".to_owned())).collect();
        results.reverse();
        let ordered = in_order(&cases, results);
        assert!(ordered.iter().zip(&cases).all(|(result, case)| result.id == case.id()));
    }
}
