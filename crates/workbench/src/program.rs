//! Tasks that the program of the user's crate does itself.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::{Place, Project};

/// The kernel, and flags for the program.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the operations that launch this kernel.
    kernel: Option<String>,
    /// Print JSON, one line for each operation.
    #[arg(long)]
    json: bool,
    /// Flags of the program's own task, behind `--`.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Has the program do it, and ends as that does.
pub(crate) fn run(place: &Place, task: &str, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let project = match &arguments.kernel {
        Some(kernel) => Project::with_kernel(place, kernel)?,
        None => Project::find(place)?,
    };
    let mut words = vec![task.to_owned()];
    if let Some(kernel) = &arguments.kernel {
        words.extend(["--kernel".to_owned(), kernel.clone()]);
    }
    if arguments.json {
        words.push("--json".to_owned());
    }
    words.extend(arguments.flags.iter().cloned());
    let mut program = project.program(&words)?;
    let status = program.status().with_context(|| format!("cannot run {}", program.get_program().display()))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
