//! `cargo xtask first-path`: what somebody does who begins, in an empty folder, with the time that each step takes.
//!
//! ```text
//!  new ─▶ a barrier is taken out ─▶ check: the race, with both lines ─▶ put back ─▶ check ─▶ inspect ─▶ run ─▶ watch, some edits
//! ```
//!
//! Every step has to do what it should, or the task fails. What was printed is a transcript without paths of the machine, for the book.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Subcommand as _;

use crate::workspace::{root, target_dir};

/// The options of `first-path`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The form for CI: what the examples were built with is not built again, three edits, nothing on a GPU.
    #[arg(long)]
    short: bool,
    /// How often the kernel is edited under `watch` [default: 10, or 3 with --short].
    #[arg(long, value_name = "COUNT")]
    edits: Option<usize>,
    /// Only watch and edit: the kernel of this crate, which is left as it was.
    #[arg(long, value_name = "CRATE")]
    only_edits: Option<PathBuf>,
    /// Write the transcript here, too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The crate's name, and its kernel's.
const NAME: &str = "mine";
const KERNEL: &str = "row_sums";

/// The line of the kernel that is taken out.
const BARRIER: &str = "            thread::sync_threads();\n";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("there is no directory for temporary files")?;
    let mut path = Walk::new(folder.path(), arguments.short)?;
    let edits = arguments.edits.unwrap_or(if arguments.short { 3 } else { 10 });
    match &arguments.only_edits {
        Some(directory) => {
            let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
            path.edit(&directory, edits)?;
        }
        None => path.walk(edits, !arguments.short)?,
    }
    if let Some(out) = &arguments.out {
        fs::write(out, &path.transcript).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(())
}

/// The folder, and what was done in it.
struct Walk {
    folder: PathBuf,
    target: Option<PathBuf>,
    transcript: String,
}

impl Walk {
    fn new(folder: &Path, short: bool) -> anyhow::Result<Self> {
        let folder = fs::canonicalize(folder).context("the folder is gone")?;
        Ok(Self { folder, target: short.then(target_dir), transcript: String::new() })
    }

    fn walk(&mut self, edits: usize, with_gpu: bool) -> anyhow::Result<()> {
        let folder = self.folder.clone();
        self.tilewright(&folder, &["new", NAME, "--kernel", "reduce"], 0)?;
        let directory = folder.join(NAME);
        let source = directory.join("kernels/src/lib.rs");
        let right = fs::read_to_string(&source).context("the kernel's source")?;
        ensure!(right.contains(BARRIER), "the kernel has no such line: {BARRIER}");
        let line = 1 + right[..right.find(BARRIER).unwrap_or_default()].lines().count();

        fs::write(&source, right.replacen(BARRIER, "", 1))?;
        self.say(&format!("# line {line} of kernels/src/lib.rs is taken out: `{}`", BARRIER.trim()));
        let found = self.tilewright(&directory, &["check", KERNEL], 1)?;
        // Both accesses, each with its line.
        let lines = found.matches("--> kernels/src/lib.rs:").count();
        ensure!(found.contains("a race") && lines >= 2, "the race is not shown with both lines: {found}");

        fs::write(&source, &right)?;
        self.say("# the line is put back");
        let found = self.tilewright(&directory, &["check", KERNEL], 0)?;
        ensure!(found.contains("24 of 24 cases right"), "the kernel is not right again: {found}");
        if has_task("inspect") {
            self.tilewright(&directory, &["inspect", KERNEL], 0)?;
        }
        if with_gpu && workbench::has_driver() {
            self.cargo(&directory, &["run", "--release", "--", "run", "--op", "row-sums"])?;
        } else {
            self.say("# no GPU here: on one, `cargo run --release -- run --op row-sums` runs a large case of the same program");
        }
        self.edit(&directory, edits)
    }

    /// Watches a kernel while its source is edited, and says how long each edit took from the save to the report.
    fn edit(&mut self, directory: &Path, edits: usize) -> anyhow::Result<()> {
        let source = directory.join("kernels/src/lib.rs");
        let original = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
        let kernel = kernel_of(&original).context("the source has no kernel")?;
        self.say(&format!("$ cargo tilewright watch {kernel} --json"));
        let mut watch = Watch::start(self.command(directory, &["watch", &kernel, "--json"]))?;
        let edited = (|| {
            let (first, _) = watch.round()?;
            self.say(&format!("# the first report after {:.1} s", first.as_secs_f64()));
            let (mut times, before) = (Vec::new(), watch.processor_seconds());
            for edit in 0..edits {
                // Another kernel each time: a constant in its block, which the compiler has to keep, and which changes no result.
                let start = Instant::now();
                fs::write(&source, edited(&original, &kernel, edit)?)?;
                let (_, line) = watch.round()?;
                let report: serde_json::Value = serde_json::from_str(&line).context("a line of `watch --json`")?;
                ensure!(report["right"] == true, "an edit that changes no result is not right: {line}");
                times.push(start.elapsed().as_secs_f64());
            }
            let after = watch.processor_seconds();
            let each = before.zip(after).map(|(before, after)| (after - before) / edits.max(1) as f64);
            Ok((times, each))
        })();
        // Whatever has happened, the source is as it was, and nothing goes on running.
        watch.end();
        fs::write(&source, original)?;
        let (mut times, processor): (Vec<f64>, Option<f64>) = edited?;
        times.sort_by(f64::total_cmp);
        let all = times.iter().map(|time| format!("{time:.2}")).collect::<Vec<_>>().join(" ");
        let median = times.get(times.len() / 2).context("no edit was made")?;
        self.say(&format!("# {} edits, seconds from the save to the report: {all}; median {median:.2}", times.len()));
        if let Some(processor) = processor {
            // Where others use the machine, too, an edit takes as long as they let it; this is what it costs.
            self.say(&format!("# seconds of processor time for each, of both processors together: {processor:.2}"));
        }
        Ok(())
    }

    fn say(&mut self, line: &str) {
        println!("{line}");
        writeln!(self.transcript, "{line}").expect("writing to a String");
    }

    /// A task of `cargo tilewright`, which this program has, too.
    fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_default());
        command.args(words).current_dir(directory).env("NO_COLOR", "1");
        command.envs(self.target.iter().map(|target| ("CARGO_TARGET_DIR", target)));
        command
    }

    fn tilewright(&mut self, directory: &Path, words: &[&str], code: i32) -> anyhow::Result<String> {
        let command = self.command(directory, words);
        self.step(&format!("cargo tilewright {}", words.join(" ")), command, code)
    }

    fn cargo(&mut self, directory: &Path, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        command.args(words).current_dir(directory);
        self.step(&format!("cargo {}", words.join(" ")), command, 0)
    }

    /// Runs a command to its end, which has to be with this code; what it has printed to its standard output.
    fn step(&mut self, shown: &str, mut command: Command, code: i32) -> anyhow::Result<String> {
        self.say(&format!("$ {shown}"));
        let start = Instant::now();
        let output = command.output().with_context(|| format!("cannot run `{shown}`"))?;
        let took = start.elapsed();
        let text = String::from_utf8_lossy(&output.stdout).replace(&format!("{}/", self.folder.display()), "");
        let text = text.replace(&root().display().to_string(), "tilewright");
        self.say(text.trim_end());
        self.say(&format!("# {:.1} s", took.as_secs_f64()));
        if output.status.code() != Some(code) {
            bail!(
                "`{shown}` has ended with {}, not with {code}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(text)
    }
}

/// The first kernel of a source.
fn kernel_of(source: &str) -> Option<String> {
    let rest = &source[source.find("#[kernel(")?..];
    Some(rest[rest.find("pub fn ")? + 7..].split(['(', '<']).next()?.to_owned())
}

/// The source with one more statement at the beginning of its kernel.
fn edited(source: &str, kernel: &str, edit: usize) -> anyhow::Result<String> {
    let begin = source.find(&format!("pub fn {kernel}(")).context("the kernel's function")?;
    let body = begin + source[begin..].find("{\n").context("the kernel's body")? + 2;
    let statement = format!("    if thread::block_dim_x() == {} {{\n        return;\n    }}\n", 2000 + edit);
    Ok(format!("{}{statement}{}", &source[..body], &source[body..]))
}

/// Whether `cargo tilewright` has a task.
fn has_task(name: &str) -> bool {
    workbench::Task::augment_subcommands(clap::Command::new("tilewright")).find_subcommand(name).is_some()
}

/// `watch --json`, while it runs.
struct Watch {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Watch {
    /// How long a round may take before this gives up.
    const LIMIT: Duration = Duration::from_secs(900);

    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run `watch`")?;
        let stdout = child.stdout.take().context("`watch` has no output")?;
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The next report, and how long it was waited for.
    fn round(&mut self) -> anyhow::Result<(Duration, String)> {
        let start = Instant::now();
        let line = self.lines.recv_timeout(Self::LIMIT).context("`watch` says nothing")?;
        Ok((start.elapsed(), line))
    }

    /// The processor time of `watch` and of what it has started and waited for, where the system tells.
    fn processor_seconds(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // Behind the name, which may have spaces: utime, stime, cutime and cstime are fields 14 to 17 of the line, in hundredths.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: Option<Vec<f64>> = fields.get(11..15)?.iter().map(|field| field.parse().ok()).collect();
        Some(ticks?.into_iter().sum::<f64>() / 100.0)
    }

    fn end(&mut self) {
        // It may have ended by itself, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_other_kernels() {
        let source = "use x;\n#[kernel(block = 256)]\npub fn sums(x: f32) {\n    body();\n}\n";
        assert_eq!(kernel_of(source).as_deref(), Some("sums"));
        let [first, second] = [0, 1].map(|edit| edited(source, "sums", edit).unwrap());
        assert!(
            first.contains("pub fn sums(x: f32) {\n    if thread::block_dim_x() == 2000 {") && first != second,
            "{first}"
        );
        assert!(edited(source, "other", 0).is_err());
    }
}
