//! `cargo tilewright trace`: what a block of a kernel does, step by step, in the terminal.
//!
//! ```text
//!  the program of the crate ──▶ trace --format json ──▶ a viewer, in a terminal
//!                           ──▶ trace, as text ───────▶ a pipe, a file
//! ```

mod app;
mod keys;
mod source;
mod view;

use std::io::{IsTerminal as _, Write as _, stdin, stdout};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use kernel_trace::Trace;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::{Place, Project};
use app::App;
use source::Sources;

/// The forms in which a program writes a trace.
const FORMS: [&str; 4] = ["json", "chrome", "html", "text"];

/// What to show.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel [default: the first one that the program launches]
    kernel: Option<String>,
    /// The operation, if several launch the kernel
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// The sizes, as `rows=3,cols=4` [default: the last small case]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<String>,
    /// The block, by its coordinates in the grid; may be given several times [default: the first one]
    #[arg(long, value_name = "X,Y,Z")]
    block: Vec<String>,
    /// What decides the order of blocks that can wait for one another
    #[arg(long, value_name = "NUMBER")]
    schedule_seed: Option<u64>,
    /// Write `json`, `chrome` (for ui.perfetto.dev), `html` or `text`, and show nothing
    #[arg(long, value_name = "FORM", value_parser = FORMS)]
    format: Option<String>,
    /// Write to this file, and show nothing
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show this trace, which `--format json` has written, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "op", "sizes", "block", "schedule_seed", "flags"])]
    from: Option<PathBuf>,
    /// More flags of the program's own task, behind `--`
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

impl Arguments {
    /// What the program is asked for.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["trace".to_owned()];
        let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        let flags =
            [("--kernel", &self.kernel), ("--op", &self.op), ("--sizes", &self.sizes), ("--format", &self.format)];
        flags.into_iter().for_each(|(flag, value)| value.iter().for_each(|value| add(flag, value.clone())));
        self.block.iter().for_each(|block| add("--block", block.clone()));
        self.schedule_seed.iter().for_each(|seed| add("--schedule-seed", seed.to_string()));
        self.output.iter().for_each(|path| add("--output", path.display().to_string()));
        words.extend(self.flags.iter().cloned());
        words
    }

    /// Whether a file or a form was asked for, here or behind `--`.
    fn is_written(&self) -> bool {
        let is_flag = |word: &String| ["--format", "--output"].iter().any(|flag| word.starts_with(flag));
        self.format.is_some() || self.output.is_some() || self.flags.iter().any(is_flag)
    }
}

/// Shows a trace in the terminal, or has the program write it.
pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let is_interactive = stdout().is_terminal() && stdin().is_terminal();
    if let Some(path) = &arguments.from {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let trace = Trace::from_json(&text).with_context(|| path.display().to_string())?;
        if arguments.is_written() || !is_interactive {
            return write(&trace, arguments);
        }
        // Lines of source are those of the crate here, if there is one.
        let root = Project::find(place).map(|project| project.kernels).unwrap_or_default();
        return show(trace, root);
    }
    let project = match &arguments.kernel {
        Some(kernel) => Project::with_kernel(place, kernel)?,
        None => Project::find(place)?,
    };
    let mut words = arguments.words();
    if arguments.is_written() || !is_interactive {
        let mut program = project.program(&words)?;
        let status = program.status().with_context(|| format!("cannot run {}", program.get_program().display()))?;
        return Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    words.splice(1..1, ["--format".to_owned(), "json".to_owned()]);
    let mut program = project.program(&words)?;
    let output = program.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {}", program.get_program().display()))?;
    // A kernel that does something wrong has a trace, and the program fails.
    ensure!(!output.stdout.is_empty(), "the program has written no trace ({})", output.status);
    let trace = Trace::from_json(&String::from_utf8_lossy(&output.stdout))?;
    show(trace, project.kernels)
}

/// Writes a trace that was read from a file in another form.
fn write(trace: &Trace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let text = match arguments.format.as_deref() {
        Some("json") => trace.to_json(),
        Some("chrome") => trace.to_chrome(),
        Some("html") => trace.to_html(),
        _ => trace.to_text(),
    };
    match &arguments.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?,
        // Who has closed the pipe wants no more.
        None => drop(stdout().write_all(text.as_bytes())),
    }
    Ok(ending(trace))
}

/// 1 if the kernel did something wrong.
fn ending(trace: &Trace) -> ExitCode {
    let is_wrong = trace.error.is_some() || trace.blocks.iter().any(|block| block.fault.is_some());
    ExitCode::from(u8::from(is_wrong))
}

/// Has the user look at it, until that is enough. The terminal is as before then, and after a panic: `ratatui::init` sees to that.
fn show(trace: Trace, root: PathBuf) -> anyhow::Result<ExitCode> {
    let ending = ending(&trace);
    ensure!(trace.blocks.iter().any(|block| !block.steps.is_empty()), "nothing was recorded");
    let mut app = App::new(trace, Sources::new(root));
    let is_colored = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let result = (|| {
        while !app.has_ended {
            terminal.draw(|frame| view::draw(frame, &app, is_colored))?;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                keys::press(&mut app, key);
            }
        }
        Ok(ending)
    })();
    ratatui::restore();
    result
}

#[cfg(test)]
mod tests;
