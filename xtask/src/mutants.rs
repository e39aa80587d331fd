//! `cargo xtask mutants`: changes kernels, one thing at a time, and sees whether the executor's checks or a wrong result tell.
//!
//! In two parts. *Mechanical*: each call by which a kernel orders what its threads do (barrier, fence, arrival, wait, commit) is left
//! out in turn, in one program, at run time. *Chosen*: changes of the source that are listed in [`chosen`], each built anew in a copy
//! of the repository.

mod chosen;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use rayon::prelude::*;

use crate::workspace::{command, root, target_dir};
use chosen::{CHOSEN, Mutant};

/// What the suite returns when it takes too long.
const TOO_LATE: i32 = 124;

/// The options of `mutants`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only leave out calls
    #[arg(long, conflicts_with = "chosen")]
    mechanical: bool,

    /// Only make the changes that have been chosen
    #[arg(long)]
    chosen: bool,

    /// Run this program for the mechanical part, the `suite` of `tests`, rather than build one
    #[arg(long, value_name = "PROGRAM")]
    suite: Option<PathBuf>,

    /// Only what has this in its name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// After how many seconds a kernel counts as one that never ends
    // Within no time nothing ends, and everything would count as caught.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,

    /// How many kernels to run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,

    /// Where to write the report, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What has come of a change.
#[derive(Clone, Debug)]
enum Outcome {
    /// A check of the executor has told, in these words.
    Check(String),
    /// A result was wrong.
    WrongResult(String),
    /// The kernel did not end in time.
    NoEnd,
    /// The compiler has refused the change.
    NotCompiled(String),
    /// Nobody has told.
    Survived,
}

/// A change, and what has come of it.
struct Tried {
    name: String,
    outcome: Outcome,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.into()).build()?;
    let parts = pool.install(|| -> anyhow::Result<_> {
        let mut parts = Vec::new();
        if !arguments.chosen {
            parts.push(("mechanical", mechanical(arguments)?));
        }
        if !arguments.mechanical {
            parts.push(("chosen", of_chosen(arguments)?));
        }
        Ok(parts)
    })?;
    for (part, tried) in &parts {
        let survived: Vec<_> = tried.iter().filter(|tried| matches!(tried.outcome, Outcome::Survived)).collect();
        println!("\n{part}: {} of {} caught", tried.len() - survived.len(), tried.len());
        survived.iter().for_each(|tried| println!("  survived: {}", tried.name));
    }
    if let Some(path) = &arguments.report {
        fs::write(path, report::markdown(&parts)?).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Builds the program that runs the suite, in a copy of the repository or in the repository itself.
fn build(source: &Path, target: &Path) -> anyhow::Result<Result<PathBuf, String>> {
    let mut cargo = command("cargo", &["build", "--package", "tests", "--bin", "suite", "--profile", "mutants"]);
    // Kernels are to run here only.
    cargo.current_dir(source).env("TILEWRIGHT_SKIP_PTX", "1").env("CARGO_TARGET_DIR", target);
    let output = cargo.stdin(Stdio::null()).output().context("cargo cannot be run")?;
    if output.status.success() {
        return Ok(Ok(target.join("mutants/suite")));
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    Ok(Err(messages.lines().find(|line| line.starts_with("error")).unwrap_or("no error").to_owned()))
}

/// Runs the suite with these arguments, for at most so many seconds.
fn run_suite(suite: &Path, arguments: &[&str], limit: u64) -> anyhow::Result<Outcome> {
    let output = Command::new(suite)
        .args(arguments)
        .args(["--limit", &limit.to_string()])
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("{} cannot be run", suite.display()))?;
    let status = output.status;
    let output = String::from_utf8_lossy(&output.stdout);
    let last = output.lines().next_back().unwrap_or_default();
    Ok(match status.code() {
        Some(0) => Outcome::Survived,
        Some(TOO_LATE) => Outcome::NoEnd,
        // The words of a fault begin with the kernel, and go on for several lines.
        Some(1) => match output.rfind(": kernel `") {
            Some(at) => Outcome::Check(output[at + 2..].split_whitespace().collect::<Vec<_>>().join(" ")),
            None => Outcome::WrongResult(last.rsplit("splits").next().unwrap_or(last).to_owned()),
        },
        code => bail!("{} {arguments:?} ends with {code:?}: {last}", suite.display()),
    })
}

/// Runs the suite for something that is expected to pass; what it prints.
fn listing(suite: &Path, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = Command::new(suite).args(arguments).env("RAYON_NUM_THREADS", "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{} {arguments:?}, without any change, fails: {text}", suite.display());
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs the suite of each of these kernels, with these arguments besides, until one tells.
fn run_suites<K: AsRef<str> + Sync>(
    suite: &Path,
    kernels: &[K],
    more: &[&str],
    arguments: &Arguments,
) -> anyhow::Result<Outcome> {
    // What survives in a helper of all kernels takes long: whoever has nothing else to do runs some of them.
    let told = kernels.par_iter().with_max_len(1).find_map_first(|kernel| {
        let run = [&["--kernel", kernel.as_ref()], more].concat();
        let outcome = run_suite(suite, &run, arguments.limit);
        (!matches!(outcome, Ok(Outcome::Survived))).then_some(outcome)
    });
    told.unwrap_or(Ok(Outcome::Survived))
}

/// Leaves out each call in turn.
fn mechanical(arguments: &Arguments) -> anyhow::Result<Vec<Tried>> {
    let suite = match &arguments.suite {
        Some(suite) => suite.clone(),
        None => match build(root(), &target_dir())? {
            Ok(suite) => suite,
            Err(message) => bail!("the suite does not build: {message}"),
        },
    };
    let kernels = listing(&suite, &["--list"])?;
    let calls = kernels.par_iter().map(|kernel| listing(&suite, &["--calls", "--kernel", kernel]));
    let calls: Vec<_> = calls.collect::<anyhow::Result<_>>()?;
    // Helpers run for many kernels: with which kernels a call is met.
    let mut met: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kernel, calls) in kernels.iter().zip(&calls) {
        for call in calls.iter().filter(|call| call.contains(&arguments.filter)) {
            met.entry(call).or_default().push(kernel);
        }
    }
    let met: Vec<_> = met.into_iter().collect();
    println!("{} calls in {} kernels", met.len(), kernels.len());
    met.par_iter()
        .map(|(call, kernels)| {
            let outcome = run_suites(&suite, kernels, &["--without", call], arguments)?;
            println!("{call}: {outcome:?}");
            Ok(Tried { name: (*call).to_owned(), outcome })
        })
        .collect()
}

/// Makes each of the chosen changes in turn.
fn of_chosen(arguments: &Arguments) -> anyhow::Result<Vec<Tried>> {
    let directory = target_dir().join("mutants");
    let (source, target) = (directory.join("source"), directory.join("target"));
    copy_repository(&source)?;
    if let Err(message) = build(&source, &target)? {
        bail!("the suite does not build without any change: {message}");
    }
    let wanted = CHOSEN.iter().filter(|mutant| mutant.name().contains(&arguments.filter));
    wanted.map(|mutant| try_chosen(mutant, &source, &target, arguments)).collect()
}

fn try_chosen(mutant: &Mutant, source: &Path, target: &Path, arguments: &Arguments) -> anyhow::Result<Tried> {
    let Mutant { file, from, to, kernels, .. } = mutant;
    let name = mutant.name();
    let path = source.join(file);
    let original = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let count = original.matches(from).count();
    ensure!(count == 1, "{name}: the file has {count} times what is to be changed: {from}");
    fs::write(&path, original.replacen(from, to, 1))?;
    let built = build(source, target);
    fs::write(&path, original)?;
    let outcome = match built? {
        Err(message) => Outcome::NotCompiled(message),
        Ok(suite) => run_suites(&suite, kernels, &[], arguments)?,
    };
    println!("{name}: {outcome:?}");
    Ok(Tried { name, outcome })
}

/// Copies what git tracks; a file that has not changed is left alone, so that it is not compiled again.
fn copy_repository(to: &Path) -> anyhow::Result<()> {
    let output = command("git", &["ls-files", "-z"]).output().context("git cannot be run")?;
    ensure!(output.status.success(), "git ls-files fails: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout)?;
    for name in names.split_terminator('\0') {
        let (from, to) = (root().join(name), to.join(name));
        let content = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
        fs::write(&to, content).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_changed_is_in_its_file_once() {
        let mut wrong = Vec::new();
        for mutant in CHOSEN {
            let path = root().join(mutant.file);
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if text.matches(mutant.from).count() != 1 || mutant.from == mutant.to || mutant.kernels.is_empty() {
                wrong.push(format!("{}: {}", mutant.name(), mutant.from));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
