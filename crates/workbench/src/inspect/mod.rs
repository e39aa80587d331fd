//! `cargo tilewright inspect`: Rust, PTX and machine code side by side, and what the machine code is made of.
//!
//! ```text
//!  inspect KERNEL                   in the terminal
//!  inspect KERNEL --html FILE       one page, which needs nothing else
//!  inspect KERNEL --compare OTHER   two kernels; --against COMMIT: two builds of one
//!  inspect --all --table            all kernels of the crate, a line for each
//! ```
//!
//! No GPU is needed. What is shown is worked out in [`code`](crate::code).

mod costs;
mod html;
mod terminal;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use cuda_builder::{Arch, Error, write_atomically};
use serde::Serialize;

use crate::code::{Code, Compile};
use crate::style::Style;
use crate::{Place, Project};
use costs::Costs;
use terminal::Shown;

/// The options of `inspect`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel
    kernel: String,
    /// The architecture
    #[arg(long, default_value_t = Arch::Sm90a)]
    arch: Arch,
    /// Print every instruction, however many there are
    #[arg(long)]
    full: bool,
    /// Have the program count sectors and bank conflicts on the executor, for the margin: cargo builds it first
    #[arg(long)]
    cost: bool,
    /// Write one page of HTML, which needs nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that is known of a kernel.
#[derive(Serialize)]
struct Inspected {
    #[serde(flatten)]
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<Costs>,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let project = Project::with_kernel(place, &arguments.kernel)?;
    let code = compile(&project, &arguments.kernel, arguments.arch)?;
    let costs = match (&code.listing, arguments.cost) {
        (Some(listing), true) => Some(Costs::of(&project, &code.kernel, listing)?),
        _ => None,
    };
    let inspected = Inspected { code, costs };
    if arguments.json {
        println!("{}", serde_json::to_string(&inspected)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &arguments.html {
        write_atomically(path, html::page(&inspected.code, inspected.costs.as_ref()).as_bytes())?;
        println!("wrote {}", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let few = inspected.code.machine.as_ref().is_ok_and(|machine| machine.instructions <= terminal::FEW);
    let how = if arguments.full || few { Shown::Instructions } else { Shown::Lines };
    print!("{}", terminal::text(&inspected.code, inspected.costs.as_ref(), how, &Style::of_stdout()));
    if how == Shown::Lines {
        println!("\n`--full` prints every instruction.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Compiles a kernel with its lines.
fn compile(project: &Project, kernel: &str, arch: Arch) -> anyhow::Result<Code> {
    let request =
        Compile { target_dir: Some(project.target_dir.clone()), ..Compile::new(&project.kernels, kernel, arch) };
    Code::compile(&request.lines()).map_err(|error| match error {
        // The messages name their files: nothing else is to be said.
        Error::Compile { diagnostics, .. } => anyhow!("`{kernel}` does not compile\n{diagnostics}"),
        other => anyhow!(other),
    })
}
