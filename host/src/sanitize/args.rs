//! The command line of `tilewright sanitize`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Options, Tool};
use crate::Error;
use tilewright::device::DeviceChoice;

/// The flags of `sanitize`.
#[derive(Clone, Debug, Args)]
pub struct SanitizeFlags {
    /// A tool to run: memcheck, racecheck, synccheck or initcheck; may be repeated [default: all]
    #[arg(long, value_name = "TOOL")]
    tool: Vec<Tool>,

    /// A kernel to look at; may be repeated [default: all that the GPU runs]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// NVIDIA's compute-sanitizer, by its name or path
    #[arg(long, value_name = "PATH", default_value = "compute-sanitizer")]
    compute_sanitizer: PathBuf,

    /// How long the program may take each time that it is run under a tool, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    tool_limit: u64,

    /// The GPU: auto (the first), cuda, or cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl SanitizeFlags {
    /// Does what the flags say, with the program that runs now. Whether every tool has reported its planted fault, and no other.
    ///
    /// # Errors
    /// [`Error::Usage`] for the CPU executor; those of [`run`](super::run).
    pub fn run(self, print: impl FnMut(&str)) -> Result<bool, Error> {
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
        let program = std::env::current_exe()
            .map_err(|error| Error::Program { program: "tilewright".into(), reason: error.to_string() })?;
        let options = Options {
            tools: self.tool,
            kernels: self.kernel,
            ordinal,
            compute_sanitizer: self.compute_sanitizer,
            program,
            limit: Duration::from_secs(self.tool_limit),
            output: self.output,
        };
        Ok(super::run(&options, print)?.passed())
    }
}
