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

mod against;
mod compare;
mod costs;
mod html;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cuda_builder::{Arch, Error, write_atomically};
use serde::Serialize;

use crate::code::{Code, Compile};
use crate::style::Style;
use crate::{Place, Project};
use against::Worktree;
use compare::Comparison;
use costs::Costs;
use terminal::Shown;

/// The options of `inspect`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel; with `--all` a part of its name
    #[arg(required_unless_present = "all")]
    kernel: Option<String>,
    /// The architecture
    #[arg(long, default_value_t = Arch::Sm90a)]
    arch: Arch,
    /// All kernels of the crate, or all whose names contain KERNEL: a line for each
    #[arg(long)]
    all: bool,
    /// A table of what the kernel needs and of the instructions that matter
    #[arg(long, conflicts_with_all = ["html", "compare", "against", "cost", "full", "sass"])]
    table: bool,
    /// Compare with another kernel of the crate
    #[arg(long, value_name = "KERNEL", conflicts_with_all = ["all", "against", "cost"])]
    compare: Option<String>,
    /// Compare with the same kernel at another commit
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["all", "cost"])]
    against: Option<String>,
    /// Print every instruction, however many there are
    #[arg(long)]
    full: bool,
    /// Print the machine code in its own order, with the line of Rust of each instruction
    #[arg(long, conflicts_with_all = ["full", "html", "compare", "against", "all"])]
    sass: bool,
    /// Have the program count sectors and bank conflicts on the executor, for the margin: cargo builds it first
    #[arg(long, conflicts_with = "all")]
    cost: bool,
    /// Write one page of HTML, which needs nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "all"])]
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

/// Two pieces of code, and how they differ.
#[derive(Serialize)]
struct Compared {
    before: Code,
    after: Code,
    comparison: Comparison,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { kernel, arch, .. } = arguments;
    let project = match kernel {
        Some(kernel) if !arguments.all => Project::with_kernel(place, kernel)?,
        _ => Project::find(place)?,
    };
    let name = kernel.as_deref().unwrap_or("");
    if arguments.all || arguments.table {
        let codes = table::codes(&project, name, !arguments.all, *arch)?;
        if arguments.json {
            let codes: Vec<_> = codes.iter().map(|(code, _)| code).collect();
            println!("{}", serde_json::to_string(&codes)?);
        } else {
            print!("{}", table::text(&codes));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let code = match compile(&project.kernels, &project.target_dir, name, *arch) {
        // The messages name their files: nothing else is to be said.
        Err(Error::Compile { diagnostics, .. }) => {
            eprintln!("error: `{name}` does not compile\n{diagnostics}");
            return Ok(ExitCode::FAILURE);
        }
        code => code?,
    };
    if let Some((before, names)) = other(&project, arguments, name)? {
        return compared(arguments, before, code, &names);
    }
    let costs = match (&code.listing, arguments.cost) {
        (Some(listing), true) => Some(Costs::of(&project, &code.kernel, listing)?),
        _ => None,
    };
    shown(arguments, &Inspected { code, costs })
}

/// Shows one kernel.
fn shown(arguments: &Arguments, inspected: &Inspected) -> anyhow::Result<ExitCode> {
    let Inspected { code, costs } = inspected;
    let style = Style::of_stdout();
    let lines = code.listing.as_ref().map_or(0, |listing| listing.ptx.len());
    let few = code.machine.as_ref().map_or(lines, |machine| machine.instructions) <= terminal::FEW;
    let how = if arguments.full || few { Shown::Instructions } else { Shown::Lines };
    if arguments.json {
        println!("{}", serde_json::to_string(inspected)?);
    } else if let Some(path) = &arguments.html {
        write(path, &html::page(code, costs.as_ref()))?;
    } else if arguments.sass {
        print!("{}", terminal::sass(code, &style));
    } else {
        print!("{}", terminal::text(code, costs.as_ref(), how, &style));
        if how == Shown::Lines {
            println!("\n`--full` prints every instruction.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the kernel is to be compared with, if anything, and what the two are called.
fn other(project: &Project, arguments: &Arguments, kernel: &str) -> anyhow::Result<Option<(Code, [String; 2])>> {
    let Arguments { arch, compare, against, .. } = arguments;
    if let Some(other) = compare {
        let code = compile(&project.kernels, &project.target_dir, other, *arch)?;
        return Ok(Some((code, [other.clone(), kernel.to_owned()])));
    }
    let Some(commit) = against else { return Ok(None) };
    // Apart from what is built of the working tree, which stays as it is.
    let place = project.target_dir.join("inspect-against");
    let (_worktree, kernels) = Worktree::new(&project.kernels, commit, &place)?;
    let code = compile(&kernels, &place, kernel, *arch)?;
    Ok(Some((code, [format!("{kernel} at {commit}"), format!("{kernel} now")])))
}

/// Shows two.
fn compared(arguments: &Arguments, before: Code, after: Code, names: &[String; 2]) -> anyhow::Result<ExitCode> {
    let comparison = Comparison::of(&before, &after);
    let names = [names[0].as_str(), names[1].as_str()];
    if arguments.json {
        println!("{}", serde_json::to_string(&Compared { before, after, comparison })?);
    } else if let Some(path) = &arguments.html {
        write(path, &compare::page(names, &comparison))?;
    } else {
        print!("{}", compare::text(names, &comparison, &Style::of_stdout()));
        for error in [&before, &after].iter().filter_map(|code| code.machine.as_ref().err()).take(1) {
            println!("\n{error}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, page: &str) -> anyhow::Result<()> {
    write_atomically(path, page.as_bytes())?;
    println!("wrote {}", path.display());
    Ok(())
}

/// Compiles a kernel with its lines.
fn compile(kernels: &Path, target_dir: &Path, kernel: &str, arch: Arch) -> Result<Code, Error> {
    let request = Compile { target_dir: Some(target_dir.to_owned()), ..Compile::new(kernels, kernel, arch) };
    Code::compile(&request.lines())
}
