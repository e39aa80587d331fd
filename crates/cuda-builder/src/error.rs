//! What can go wrong while kernels are built.

use std::io;
use std::path::{Path, PathBuf};

use crate::explain::Unsupported;
use crate::inspect::{CUBINS_VARIABLE, CheckError, ToolError};
use crate::pass::PassError;
use crate::toolchain::Missing;
use crate::{Arch, UnknownArch};

/// Why there is no PTX.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that compiling kernels needs is not on this machine. The only error that is not the kernels' fault: a
    /// program that can do without PTX goes on.
    #[error(transparent)]
    MissingToolchain(#[from] Missing),
    /// What the kernels are made from cannot be found out.
    #[error(transparent)]
    Digest(#[from] kernel_digest::Error),
    /// The kernel crate does not compile.
    #[error("the kernels in {} do not compile\n{diagnostics}", .crate_dir.display())]
    Compile {
        /// The crate.
        crate_dir: PathBuf,
        /// The compiler's messages; those of cargo itself have gone to the standard error stream.
        diagnostics: String,
    },
    /// What the compiler made of the crate cannot be made device code.
    #[error("the kernels cannot be linked for {arch}: {}{reason}", at(.place))]
    Pass {
        /// The architecture being linked for.
        arch: Arch,
        /// Where in Rust, as far as it is known: file, line, column and the expression there.
        place: Option<Box<str>>,
        /// What is wrong, and where.
        reason: PassError,
    },
    /// The crate has no kernel for an architecture.
    #[error("{} has no kernel for {arch}: a kernel is a function with `#[kernel(block = …)]`", .crate_dir.display())]
    NoKernel {
        /// The crate.
        crate_dir: PathBuf,
        /// The architecture.
        arch: Arch,
    },
    /// Kernels were asked for that the crate does not have.
    #[error("{} has no kernel {}", .crate_dir.display(), with_nearest(.unknown, .kernels))]
    UnknownKernels {
        /// The crate.
        crate_dir: PathBuf,
        /// What was asked for.
        unknown: Vec<String>,
        /// The kernels that there are.
        kernels: Vec<String>,
    },
    /// The PTX is not what this crate promises.
    #[error("the PTX for {arch} is not acceptable: {}{reason} (see {})", at(.place), .ptx.display())]
    Check {
        /// The architecture.
        arch: Arch,
        /// Where in Rust, as far as it is known: file, line, column and the expression there.
        place: Option<Box<str>>,
        /// The rejected PTX, for reading.
        ptx: PathBuf,
        /// What is wrong, and where.
        reason: CheckError,
    },
    /// The kernels do what code for a GPU cannot do.
    #[error(
        "the kernels use what code for {arch} cannot do:\n{}\n(more in {})", lines(.found), .log.display()
    )]
    Unsupported {
        /// The architecture.
        arch: Arch,
        /// What, and where: everything of this kind that there is. Not empty.
        found: Vec<Unsupported>,
        /// The file with what LLVM has said or made.
        log: PathBuf,
    },
    /// The machine code that was asked for cannot be made.
    #[error("{CUBINS_VARIABLE} asks for machine code of the kernels, which cannot be made: {0}")]
    Cubin(#[from] ToolError),
    /// Machine code was asked for, of an architecture that there is no name for.
    #[error("{CUBINS_VARIABLE} names the architectures to make machine code for, separated by commas: {0}")]
    CubinArch(#[from] UnknownArch),
    /// One of LLVM's tools, or cargo outside of a compile, failed.
    #[error("{tool} failed ({status}){}: {}{message}{}", within(.function), at(.place), see(.log))]
    Tool {
        /// Which.
        tool: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Where in Rust, as far as it is known: file, line, column and the expression there.
        place: Option<Box<str>>,
        /// What it said, without what is of use to its authors only.
        message: String,
        /// The function that it was about, if it says so.
        function: Option<String>,
        /// The file with everything that it has said.
        log: Option<Box<Path>>,
    },
    /// A file could not be read or written, or a program not started.
    #[error("cannot {action} {}: {reason}", .path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// With which file or program.
        path: PathBuf,
        /// The operating system's reason.
        reason: io::Error,
    },
}

impl Error {
    /// For `map_err`: an [`Error::Io`].
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |reason| Self::Io { action, path, reason }
    }
}

fn at(place: &Option<Box<str>>) -> String {
    place.as_ref().map_or_else(String::new, |place| format!("{place}: "))
}

fn within(function: &Option<String>) -> String {
    function.as_ref().map_or_else(String::new, |function| format!(" in `{function}`"))
}

fn see(log: &Option<Box<Path>>) -> String {
    log.as_ref().map_or_else(String::new, |log| format!(" (all of it is in {})", log.display()))
}

fn lines(found: &[Unsupported]) -> String {
    found.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n")
}

/// Each unknown name, with the three known ones that it is most like.
fn with_nearest(unknown: &[String], known: &[String]) -> String {
    let one = |name: &String| {
        let mut known: Vec<&String> = known.iter().collect();
        let likeness =
            |other: &str| strsim::jaro_winkler(name, other) + f64::from(u8::from(other.contains(name.as_str())));
        known.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)).then(a.cmp(b)));
        match &known[..] {
            [] => format!("`{name}`, nor any other"),
            [a, b, c, ..] => format!("`{name}`; its names that are most like it are `{a}`, `{b}` and `{c}`"),
            few => {
                let names: Vec<_> = few.iter().map(|name| format!("`{name}`")).collect();
                format!("`{name}`; it has {}", names.join(" and "))
            }
        }
    };
    unknown.iter().map(one).collect::<Vec<_>>().join(", and none ")
}
