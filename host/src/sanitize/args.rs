//! The command line of `tilewright sanitize`.

use std::path::PathBuf;

use clap::Args;
use testkit::ToolFlags;

use super::Options;
use crate::Error;
use tilewright::device::DeviceChoice;

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

impl SanitizeFlags {
    /// Does what the flags say, with the program that runs now. Whether every tool has reported its injected fault, and no other.
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
        let (tools, how) = (self.tools.tools().to_vec(), self.tools.options()?);
        let options = Options { tools, how, kernels: self.kernel, ordinal, output: self.output };
        Ok(super::run(&options, print)?.passed())
    }
}
