//! The command line of the task `sanitize`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use runtime::Device;

use super::{Options, SanitizeReport, Subject, Tool, run, version, what_runs};
use crate::Error;
use crate::runner::{Program, Wanted, device_of, select, show};

/// Operations under the tools of `compute-sanitizer`.
#[derive(Args, Clone, Debug)]
pub struct SanitizeTask {
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub wanted: Wanted,
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub tools: ToolFlags,
    /// What numbers are generated from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// The number of the GPU [default: the first GPU]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Print JSON: one report.
    #[arg(long)]
    pub json: bool,
}

/// Which tools are run, and how.
#[derive(Args, Clone, Debug)]
pub struct ToolFlags {
    /// A tool to run: memcheck, racecheck, synccheck or initcheck; may be repeated [default: all]
    #[arg(long, value_name = "TOOL")]
    tool: Vec<Tool>,

    /// NVIDIA's compute-sanitizer, by its name or path
    #[arg(long, value_name = "PATH", default_value = "compute-sanitizer")]
    compute_sanitizer: PathBuf,

    /// How long the program may take each time that it is run under a tool, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    tool_limit: u64,
}

impl ToolFlags {
    /// What to look with, for the GPU of a number and the program that runs now.
    ///
    /// # Errors
    /// [`Error::Program`] if this program does not know where it is.
    pub fn options(self, ordinal: usize) -> Result<Options, Error> {
        let program = std::env::current_exe()
            .map_err(|error| Error::Program { program: "this program".into(), reason: error.to_string() })?;
        let tools = if self.tool.is_empty() { Tool::ALL.to_vec() } else { self.tool };
        let limit = Duration::from_secs(self.tool_limit);
        Ok(Options { tools, ordinal, compute_sanitizer: self.compute_sanitizer, program, limit })
    }
}

impl Program<'_> {
    /// The operations of this program under the tools, each case in a process of its own.
    pub(crate) fn sanitize(&self, task: SanitizeTask) -> Result<bool, Error> {
        let operations = select(self.operations, &task.wanted)?;
        let subjects =
            operations.into_iter().map(|it| Subject::operation(it, task.seed)).collect::<Result<Vec<_>, _>>()?;
        let needs_gpu = |reason: &str| Error::NeedsGpu { what: "`sanitize`", reason: reason.to_owned() };
        let Some(ordinal) = task.device.as_deref().map_or(Ok(Some(0)), device_of)? else {
            return Err(needs_gpu("compute-sanitizer looks at GPUs only. On the executor, `check` looks for the same"));
        };
        if self.kernel_sets.is_empty() {
            return Err(needs_gpu(Self::NO_KERNEL_SETS));
        }
        // Closed again before the tools run other processes.
        let (device, subjects) = {
            let device = Device::cuda(ordinal, self.kernel_sets)?;
            let is_any = task.wanted.op.is_none() && task.wanted.kernel.is_none();
            (device.name(), what_runs(&device, subjects, is_any)?)
        };
        let options = task.tools.options(ordinal)?;
        let version = version(&options.compute_sanitizer)?;
        let say = |line: &str| {
            if !task.json {
                println!("{line}");
            }
        };
        say(&format!("compute-sanitizer {version}, {device}"));
        let tools = run(self.planted, &subjects, &options, say)?;
        let compute_sanitizer = options.compute_sanitizer;
        let report = SanitizeReport { device, compute_sanitizer, compute_sanitizer_version: version, tools };
        Ok(show(&report, task.json, report.passed()))
    }
}
