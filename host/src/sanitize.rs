//! `tilewright sanitize`: the kernels of products by themselves, and the operations of all others, under the tools of NVIDIA's
//! `compute-sanitizer`. What that is, how a tool is run and judged: [`testkit::sanitize`].

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use testkit::sanitize::{self, Subject, ToolFlags, ToolReport};

use crate::provenance::{commit, now};
use crate::{Error, files, planted};
use tilewright::device::{Device, DeviceChoice, DeviceInfo};
use tilewright::kernels::{self, KernelInfo};
use tilewright::{Order, Sizes};

/// What the numbers of operations are generated from.
const SEED: u64 = 1;

/// The flags of `sanitize`.
#[derive(Clone, Debug, Args)]
pub struct SanitizeFlags {
    #[command(flatten)]
    tools: ToolFlags,

    /// A kernel to look at; may be repeated [default: all that the GPU runs]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// The GPU: auto (the first), cuda, or cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A whole run of `tilewright sanitize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SanitizeReport {
    /// When it began, in UTC (RFC 3339).
    pub date: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from, with `-dirty` if files had been changed; none outside a repository.
    pub commit: Option<String>,
    /// The GPU.
    pub device: DeviceInfo,
    /// `compute-sanitizer`, as it was called.
    pub compute_sanitizer: PathBuf,
    /// Its version.
    pub compute_sanitizer_version: String,
    /// The tools, in the order in which they ran.
    pub tools: Vec<ToolReport>,
}

impl SanitizeReport {
    /// Program, GPU and tool, on some lines.
    fn heading(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        format!(
            "tilewright {}{commit}, {}\nDevice: {}\nTool: compute-sanitizer {}\n",
            self.version, self.date, self.device, self.compute_sanitizer_version
        )
    }
}

impl SanitizeFlags {
    /// Does what the flags say, with the program that runs now, and gives `print` what there is to read, as it comes. Whether every tool
    /// has reported its planted fault, and no other.
    ///
    /// # Errors
    /// [`Error::Usage`] for the CPU executor, [`UnknownName`](tilewright::Error::UnknownName), [`Error::File`] and
    /// [`testkit::Error::Program`], before anything runs; [`DeviceError::Driver`](runtime::Error::Driver) where there is no GPU;
    /// [`DeviceError::KernelForOtherGpus`](runtime::Error::KernelForOtherGpus) for a kernel that was asked for and does not run on this
    /// one.
    pub fn run(self, mut print: impl FnMut(&str)) -> Result<bool, Error> {
        let ordinal = match self.device {
            DeviceChoice::Auto => 0,
            DeviceChoice::Cuda(ordinal) => ordinal,
            DeviceChoice::Cpu => {
                return Err(Error::Usage(
                    "compute-sanitizer looks at GPUs only: on the CPU, `tilewright run --check` looks for the same"
                        .to_owned(),
                ));
            }
        };
        let subjects = subjects(&self.kernel)?;
        if let Some(path) = &self.output {
            files::check_writable(path)?;
        }
        // Closed again before the tools run other processes.
        let (device, subjects) = {
            let device = Device::cuda(ordinal)?;
            (device.describe(), sanitize::what_runs(&device, subjects, self.kernel.is_empty())?)
        };
        let options = self.tools.options(ordinal)?;
        let mut report = SanitizeReport {
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            device,
            compute_sanitizer: options.compute_sanitizer.clone(),
            compute_sanitizer_version: sanitize::version(&options.compute_sanitizer)?,
            tools: Vec::new(),
        };
        print(&report.heading());
        report.tools = sanitize::run(&planted::FOR_TOOLS, &subjects, &options, |line| print(&format!("{line}\n")))?;
        print(&sanitize::table(&report.tools));
        if let Some(path) = &self.output {
            files::write_json(path, &report)?;
        }
        Ok(sanitize::passed(&report.tools))
    }
}

/// The kernels of products by themselves, and the operations of other kernels; of both only those in which a kernel of these names
/// runs, if there are any.
fn subjects(names: &[String]) -> Result<Vec<Subject>, Error> {
    let products = kernels::ALL.iter().map(|kernel| {
        Ok(Subject {
            kernels: vec![kernel.facts],
            arguments: product_arguments(kernel).split(' ').map(Into::into).collect(),
        })
    });
    let operations = gpu_kernels::OPERATIONS.iter().map(|operation| Subject::operation(*operation, SEED));
    let all: Vec<Subject> = products.chain(operations).collect::<Result<_, testkit::Error>>()?;
    let known = || all.iter().flat_map(|subject| &subject.kernels).map(|kernel| kernel.name);
    if let Some(name) = names.iter().find(|name| !known().any(|known| known == *name)) {
        return Err(Error::unknown_name("kernel", name, known().collect()));
    }
    let is_wanted =
        |subject: &Subject| subject.kernels.iter().any(|kernel| names.iter().any(|name| name == kernel.name));
    Ok(all.into_iter().filter(|subject| names.is_empty() || is_wanted(subject)).collect())
}

/// What the program is told to run a kernel on a small product of odd shape.
fn product_arguments(kernel: &KernelInfo) -> String {
    let is_transposed = |needs: Option<Order>| (needs == Some(Order::ColumnMajor)).to_string();
    let Sizes { m, n, k } = kernel.within(Sizes { m: 131, n: 68, k: 131 });
    let (a, b) = (is_transposed(kernel.a), is_transposed(kernel.b));
    format!(
        "run --problem large-k --kernel {} --precision {} --m {m} --n {n} --k {k} --trans-a {a} --trans-b {b} --runs 1",
        kernel.name,
        kernel.scheme.precision().name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_products_and_every_operation_is_looked_at() {
        let all = subjects(&[]).unwrap();
        let told: Vec<String> =
            (all.iter()).map(|subject| subject.arguments.join(" ".as_ref()).into_string().unwrap()).collect();
        for kernel in kernels::ALL.iter() {
            assert!(told.iter().any(|told| told.contains(&format!("--kernel {} ", kernel.name))), "{}", kernel.name);
        }
        for operation in gpu_kernels::OPERATIONS {
            let name = operation.describe().name;
            assert!(told.iter().any(|told| told.starts_with(&format!("run --op {name} --sizes "))), "{name}");
        }
        assert_eq!(subjects(&["gemm_naive_2d_fp32".to_owned(), "matrix_scaling_fp32".to_owned()]).unwrap().len(), 2);
    }

    #[test]
    fn every_tool_has_a_fault_that_this_program_runs() {
        let tools: Vec<_> = planted::FOR_TOOLS.iter().map(|planted| planted.tool).collect();
        assert_eq!(tools, sanitize::Tool::ALL);
        for planted in planted::FOR_TOOLS.iter() {
            assert_eq!(planted.arguments, ["planted", planted.fault]);
            assert_eq!(planted.kernel, format!("planted_{}", planted.fault.replace('-', "_")));
        }
    }

    /// Written by version 0.1, before other programs had this task.
    #[test]
    fn older_reports_are_read() {
        let report = r#"{
            "date": "2026-11-22T00:00:00Z", "version": "0.1.0", "commit": null,
            "device": {"kind": "cpu", "name": null, "threads": 1, "checks": "full"},
            "compute_sanitizer": "compute-sanitizer", "compute_sanitizer_version": "2025.3.1.0",
            "tools": [{
                "tool": "memcheck", "planted": "read-out-of-bounds", "planted_reported": true, "planted_log": [],
                "kernels": ["k"], "left_out": [], "seconds": 1.5,
                "outcome": {"errors": 0, "warnings": 0, "problems": [], "excerpt": []}
            }]
        }"#;
        let report: SanitizeReport = serde_json::from_str(report).unwrap();
        assert!(sanitize::passed(&report.tools) && report.heading().contains("compute-sanitizer 2025.3.1.0"));
    }
}
