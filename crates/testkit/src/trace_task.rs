//! The task `trace` of a program: what a block does, as a file or as text.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use cuda_std::Dim3;
use cuda_std::executor::{Checks, StepOptions};
use kernel_trace::Trace;
use runtime::Device;

use crate::callers::CALLERS;
use crate::runner::{Program, Wanted, select, sizes_for};
use crate::{Error, record_steps};

/// What a block of a kernel does, step by step, on the executor.
#[derive(Args, Clone, Debug)]
pub struct TraceTask {
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub wanted: Wanted,
    /// The sizes, as `rows=3,cols=4` [default: the last small case]
    #[arg(long, value_name = "SIZES")]
    pub sizes: Option<String>,
    /// What numbers are generated from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// The block, by its coordinates in the grid; may be given several times [default: the first one]
    #[arg(long = "block", value_name = "X,Y,Z", value_parser = block)]
    pub blocks: Vec<Dim3>,
    /// Which launch of the kernel, counted from 0.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub launch: u64,
    /// What decides the order of blocks that can wait for one another.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub schedule_seed: u64,
    /// How many steps of a block are kept.
    #[arg(long, value_name = "COUNT", default_value_t = StepOptions::DEFAULT_LIMIT)]
    pub limit: usize,
    /// How many steps the threads of a block make, each for itself, before a kernel counts as one that never ends.
    #[arg(long, value_name = "COUNT", default_value_t = StepOptions::DEFAULT_BUDGET)]
    pub budget: u64,
    /// The form [default: by the end of the file's name (`.json`, `.html`, `.txt`; `.chrome.json` or `.perfetto.json`), or text]
    #[arg(long, value_name = "FORM")]
    pub format: Option<Format>,
    /// The file [default: the standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The file that `cargo tilewright trace` shows, and that everything else is made from.
    Json,
    /// What Perfetto (ui.perfetto.dev) and Chrome's tracing show.
    Chrome,
    /// A page that needs nothing else.
    Html,
    /// Tables, and a line for each step.
    Text,
}

impl Format {
    fn of_file(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        match () {
            () if name.ends_with(".chrome.json") || name.ends_with(".perfetto.json") => Self::Chrome,
            () if name.ends_with(".json") => Self::Json,
            () if name.ends_with(".html") || name.ends_with(".htm") => Self::Html,
            () => Self::Text,
        }
    }

    fn write(self, trace: &Trace) -> String {
        match self {
            Self::Json => trace.to_json(),
            Self::Chrome => trace.to_chrome(),
            Self::Html => trace.to_html(),
            Self::Text => trace.to_text(),
        }
    }
}

/// Coordinates: those that are left out are 0.
fn block(text: &str) -> Result<Dim3, String> {
    let numbers: Result<Vec<u32>, _> = text.split(',').map(|number| number.trim().parse()).collect();
    match numbers.as_deref() {
        Ok([x]) => Ok(Dim3::new(*x, 0, 0)),
        Ok([x, y]) => Ok(Dim3::new(*x, *y, 0)),
        Ok([x, y, z]) => Ok(Dim3::new(*x, *y, *z)),
        _ => Err("write one to three whole numbers, as `2,0,0`".to_owned()),
    }
}

impl Program<'_> {
    /// The task `trace`. Whether the kernel did nothing wrong.
    pub(crate) fn trace(&self, task: &TraceTask) -> Result<bool, Error> {
        let executor = Device::cpu(Checks::Full);
        let mut not_recorded = None;
        for operation in select(self.operations, &task.wanted)? {
            let options = StepOptions {
                kernel: task.wanted.kernel.clone(),
                launch: task.launch,
                blocks: if task.blocks.is_empty() { StepOptions::default().blocks } else { task.blocks.clone() },
                limit: task.limit,
                budget: task.budget,
                callers: Some(CALLERS),
            };
            let sizes = match sizes_for(operation, &executor, task.sizes.as_deref()) {
                // Where several operations are meant, these are the sizes of one of them.
                Err(error) if task.wanted.op.is_none() => {
                    not_recorded.get_or_insert(error);
                    continue;
                }
                sizes => sizes?,
            };
            match record_steps(operation, sizes, task.seed, task.schedule_seed, options) {
                Err(error @ Error::NotRecorded { .. }) => {
                    not_recorded.get_or_insert(error);
                }
                trace => return write(&trace?, task),
            }
        }
        Err(not_recorded.unwrap_or(Error::NothingToTrace))
    }
}

fn write(trace: &Trace, task: &TraceTask) -> Result<bool, Error> {
    let of_file = || task.output.as_deref().map_or(Format::Text, Format::of_file);
    let text = task.format.unwrap_or_else(of_file).write(trace);
    match &task.output {
        Some(path) => {
            let failed = |source| Error::TraceFile { path: path.clone(), source };
            fs::write(path, text).map_err(failed)?;
            eprintln!(
                "{} is a trace of {} steps",
                path.display(),
                trace.blocks.iter().map(|it| it.steps.len()).sum::<usize>()
            );
        }
        None => {
            use io::Write as _;
            // Who has closed the pipe wants no more.
            let _ = io::stdout().write_all(text.as_bytes());
        }
    }
    if let Some(error) = &trace.error {
        eprintln!("{error}");
    }
    Ok(trace.error.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_form_it_has() {
        let of = |name| Format::of_file(Path::new(name));
        assert_eq!(of("a/trace.json"), Format::Json);
        assert_eq!((of("trace.chrome.json"), of("T.PERFETTO.JSON")), (Format::Chrome, Format::Chrome));
        assert_eq!((of("trace.html"), of("trace.txt"), of("trace")), (Format::Html, Format::Text, Format::Text));
    }

    #[test]
    fn a_block_has_one_to_three_coordinates() {
        assert_eq!(
            (block("2"), block("1, 2"), block("1,2,3")),
            (Ok(Dim3::new(2, 0, 0)), Ok(Dim3::new(1, 2, 0)), Ok(Dim3::new(1, 2, 3)))
        );
        assert!(block("").is_err() && block("1,2,3,4").is_err() && block("-1").is_err());
    }
}
