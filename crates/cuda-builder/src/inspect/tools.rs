//! Finding and running NVIDIA's tools.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use crate::Arch;
use crate::toolchain::find_on_path;

/// Names the directory of NVIDIA's tools; if it is set, they are looked for nowhere else.
pub const CUDA_BIN_VARIABLE: &str = "TILEWRIGHT_CUDA_BIN";

/// The environment variable that names the architectures whose machine code [`embed`](crate::embed) puts into a program beside the
/// PTX, separated by commas: `sm_80,sm_90a`. Without it, and if it is empty, there is none, and no `ptxas` is needed.
pub const CUBINS_VARIABLE: &str = "TILEWRIGHT_CUBINS";

/// Where, below a target directory, `cargo tilewright setup` puts the tools in Tilewright's repository.
const IN_TARGET: &str = "tools/cuda";
/// Where they are then: the layout of NVIDIA's Python packages.
const INSTALLED: &str = "nvidia/cu13/bin";

/// Where `cargo tilewright setup` puts the tools elsewhere: `~/.local/share/tilewright/tools/cuda`, or the same below `XDG_DATA_HOME`. `None`
/// if neither that nor `HOME` is set.
pub fn user_tools() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
    Some(data.join("tilewright").join(IN_TARGET))
}

/// One of NVIDIA's command line tools that run without a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaTool {
    /// The assembler: PTX to machine code.
    Ptxas,
    /// The disassembler of machine code.
    Nvdisasm,
    /// Takes machine code apart.
    Cuobjdump,
}

/// A tool of NVIDIA's is missing, or refuses its input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// It is nowhere to be found.
    #[error(
        "`{name}` is neither on PATH, nor part of a CUDA toolkit at CUDA_HOME, CUDA_PATH or /usr/local/cuda, nor installed \
         by `cargo tilewright setup`, which gets it", name = .0.name()
    )]
    Missing(CudaTool),
    /// It cannot be run, or its files not be written or read.
    #[error("cannot run {}: {reason}", .path.display())]
    Io {
        /// The tool.
        path: PathBuf,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// It reports an error.
    #[error("`{name}` failed ({status}): {message}", name = .tool.name())]
    Failed {
        /// Which.
        tool: CudaTool,
        /// Its exit status.
        status: ExitStatus,
        /// What it said.
        message: String,
    },
    /// It says something that this version does not understand.
    #[error("`{name}` says something unexpected: {what}", name = .tool.name())]
    Unexpected {
        /// Which.
        tool: CudaTool,
        /// What is missing or strange.
        what: String,
    },
}

impl ToolError {
    /// The same with the kernel that the tool was given.
    pub(crate) fn of_kernel(self, kernel: &str, arch: Arch) -> Self {
        match self {
            Self::Failed { tool, status, message } => {
                Self::Failed { tool, status, message: format!("`{kernel}` for {arch}: {message}") }
            }
            other => other,
        }
    }
}

impl CudaTool {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ptxas, Self::Nvdisasm, Self::Cuobjdump];

    /// The program's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ptxas => "ptxas",
            Self::Nvdisasm => "nvdisasm",
            Self::Cuobjdump => "cuobjdump",
        }
    }

    /// Where the program is: in the directory that [`CUDA_BIN_VARIABLE`] names and then nowhere else; on `PATH`; in a CUDA
    /// toolkit; where `cargo tilewright setup` puts it: in the target directory that the running program is in, or in [`user_tools`].
    pub fn find(self) -> Option<PathBuf> {
        if let Some(directory) = std::env::var_os(CUDA_BIN_VARIABLE) {
            return Some(PathBuf::from(directory).join(self.name())).filter(|path| path.is_file());
        }
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
        let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]).map(|toolkit| toolkit.join("bin"));
        let program = std::env::current_exe().unwrap_or_default();
        let installed = program.ancestors().map(|directory| directory.join(IN_TARGET));
        let installed = installed.chain(user_tools()).map(|directory| directory.join(INSTALLED));
        find_on_path(self.name()).or_else(|| {
            toolkits.chain(installed).map(|directory| directory.join(self.name())).find(|path| path.is_file())
        })
    }

    /// Runs the program; its standard output and standard error.
    pub(super) fn run(self, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Result<(String, String), ToolError> {
        let path = self.find().ok_or(ToolError::Missing(self))?;
        let output = prepare(&mut Command::new(&path)).output().map_err(|reason| ToolError::Io { path, reason })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        if output.status.success() {
            Ok((stdout, stderr))
        } else {
            let message = if stderr.is_empty() { stdout } else { stderr };
            Err(ToolError::Failed { tool: self, status: output.status, message })
        }
    }
}
