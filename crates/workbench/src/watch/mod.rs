//! `cargo tilewright watch KERNEL`: after every save, what the kernel does wrong, what it was compiled to, and what has become of that
//! since it was last right.
//!
//! ```text
//!  a file is saved ─┬─▶ cargo builds the program, without PTX ─▶ `check --kernel … --device cpu` ─┐
//!                   │                                                                             ├─▶ a report, the difference
//!                   └─▶ CudaBuilder: this kernel alone ─▶ PTX ─▶ ptxas ─▶ what it needs ──────────┘
//! ```
//!
//! Both halves run at the same time. The host's needs no PTX, so the program's build script is told to make none; the device's compiles no
//! other kernel. A save while a round is under way ends that round: what it would say is of no interest any more.

mod changes;
mod compiled;
mod host;
mod round;
mod show;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use cuda_builder::Arch;

use crate::nearest::{Kind, unknown};
use crate::style::Style;
use crate::{Place, Project};
use changes::Changes;
use round::{Last, Round, Wanted};

/// The options of `watch`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel.
    kernel: String,
    /// Only this operation of those that launch the kernel [default: all].
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// The architecture that the kernel is compiled for.
    #[arg(long, default_value = "sm_90a")]
    arch: Arch,
    /// After how many seconds of checks a kernel counts as one that never ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Do it once, and end: with 0 if everything is right, with 1 if not.
    #[arg(long)]
    once: bool,
    /// Print JSON, one line for each round.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { kernel, op, arch, limit, once, json } = arguments;
    let project = Project::with_kernel(place, kernel)?;
    let wanted =
        Wanted { project: &project, kernel, operation: op.as_deref(), arch: *arch, limit: Duration::from_secs(*limit) };
    let style = Style::of_stdout();
    // From before the first round: what is saved during it is not missed.
    let mut changes = if *once { None } else { Some(Changes::of(&project.packages)?) };
    let mut last = Last::default();
    loop {
        let is_superseded = || changes.as_ref().is_some_and(Changes::has_some);
        if let Some(round) = Round::run(&wanted, &is_superseded) {
            if let Some(known) = &round.refused {
                anyhow::bail!(unknown(Kind::Operation, op.as_deref().unwrap_or_default(), known));
            }
            let difference = last.difference(&round);
            if *json {
                println!("{}", round.json(&difference)?);
            } else {
                print!("{}", show::text(&round, &difference, style));
            }
            let is_right = round.is_right();
            last.remember(round);
            if *once {
                return Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
        // To a pipe, lines do not go by themselves.
        std::io::stdout().flush().context("cannot write what has come of it")?;
        if let Some(changes) = &mut changes {
            changes.wait()?;
        }
    }
}
