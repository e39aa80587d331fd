//! `cargo xtask mutants`: changes what kernels do, one thing at a time, and sees whether the executor's checks or a wrong result tell.
//!
//! In two parts. *By site*: each operation that orders threads or accesses memory is carried out in another way in turn, at every place of
//! the kernels' source, by one program, at run time ([`sites`]). *Chosen*: changes of the source that are listed in [`chosen`], each built
//! anew in a copy of the repository.

mod chosen;
mod equivalent;
mod notes;
mod report;
mod sites;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use rayon::prelude::*;

use crate::workspace::{command, root, target_dir};
use chosen::{CHOSEN, Mutant};
use notes::Met;
use sites::{Found, Sites};

/// For programs that are built again and again.
const PROFILE: &str = "mutants";
/// What the suite returns when it takes too long.
const TOO_LATE: i32 = 124;
/// What the suite returns when no thread has come to the place of the change.
const NOT_MADE: i32 = 3;
/// Which changes a sample has, if nobody asks for other ones: a date would do, but not for finding the same ones again.
const SEED: u64 = 0x7119_4217;

/// The options of `mutants`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only change what is done at sites
    #[arg(long, conflicts_with = "chosen")]
    sites: bool,

    /// Only make the changes that have been chosen
    #[arg(long)]
    chosen: bool,

    /// Of the sites, only so many, drawn by chance, and only by cases that come to all of them quickly; fails if too few are caught
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["chosen", "report"], value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,

    /// Which ones a sample has
    #[arg(long, value_name = "SEED", default_value_t = SEED, requires = "sample")]
    seed: u64,

    /// Run this program for the sites, the `suite` of `tests`, rather than build one
    #[arg(long, value_name = "PROGRAM")]
    suite: Option<PathBuf>,

    /// Only what has this in its name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// After how many seconds a case counts as one that never ends
    // Within no time nothing ends, and everything would count as caught.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,

    /// How many seconds cases may take together, before a site counts as one that nobody tells of
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,

    /// How many programs to run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,

    /// Take from this file which cases come to which sites, and add to it what it lacks: a run that was ended goes on
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    met: Option<PathBuf>,

    /// Take from this file what has come of sites, and add to it what comes of the others: a run that was ended goes on
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    done: Option<PathBuf>,

    /// Where to write the report, as Markdown; a part that is not run stays as it is there
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(words) => write!(f, "a check: {words}"),
            Self::WrongResult(words) => write!(f, "a wrong result: {words}"),
            Self::NoEnd => f.write_str("the time limit"),
            Self::NotCompiled(words) => write!(f, "the compiler: {words}"),
            Self::Survived => f.write_str("NOBODY"),
        }
    }
}

impl Outcome {
    /// From what it is displayed like.
    fn parse(text: &str) -> Option<Self> {
        let words = |start| text.strip_prefix(start).map(str::to_owned);
        let known = match text {
            "the time limit" => Some(Self::NoEnd),
            "NOBODY" => Some(Self::Survived),
            _ => None,
        };
        known
            .or_else(|| words("a check: ").map(Self::Check))
            .or_else(|| words("a wrong result: ").map(Self::WrongResult))
            .or_else(|| words("the compiler: ").map(Self::NotCompiled))
    }
}

/// A change, and what has come of it.
struct Tried {
    name: String,
    outcome: Outcome,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.into()).build()?;
    let of_sites = !arguments.chosen;
    let of_chosen = !arguments.sites && arguments.sample.is_none();
    pool.install(|| -> anyhow::Result<_> {
        let mut failure = None;
        if of_sites {
            let found = by_site(arguments)?;
            println!("\n{}", report::summary(&found));
            failure = found.failure();
            if let Some(path) = &arguments.report {
                report::write(path, report::SITES, &report::of_sites(&found))?;
                found.write_cover()?;
            }
        }
        if of_chosen {
            let tried = self::of_chosen(arguments)?;
            let survived: Vec<_> = tried.iter().filter(|tried| matches!(tried.outcome, Outcome::Survived)).collect();
            println!("\nchosen: {} of {} caught", tried.len() - survived.len(), tried.len());
            survived.iter().for_each(|tried| println!("  survived: {}", tried.name));
            if let Some(path) = &arguments.report {
                report::write(path, report::CHOSEN, &report::of_chosen(&tried))?;
            }
        }
        failure.map_or(Ok(()), |failure| bail!(failure))
    })
}

/// Carries out each operation in another way in turn, or a sample of them.
fn by_site(arguments: &Arguments) -> anyhow::Result<Found> {
    let suite = match &arguments.suite {
        // Programs are run in the repository's root.
        Some(suite) => fs::canonicalize(suite).with_context(|| format!("{} is not there", suite.display()))?,
        None => match build(root(), &target_dir(), "dev")? {
            Ok(suite) => suite,
            Err(message) => bail!("the suite does not build: {message}"),
        },
    };
    let sites = match arguments.sample {
        Some(_) => Sites::of_cover(&suite)?,
        None => Sites::of_all(&suite, &Met::open(arguments.met.as_deref())?)?,
    };
    sites.try_all(&suite, arguments)
}

/// Builds the program that runs the suite, in a copy of the repository or in the repository itself.
fn build(source: &Path, target: &Path, profile: &str) -> anyhow::Result<Result<PathBuf, String>> {
    let mut cargo = command("cargo", &["build", "--package", "tests", "--bin", "suite", "--profile", profile]);
    // Kernels are to run here only.
    cargo.current_dir(source).env("TILEWRIGHT_SKIP_PTX", "1").env("CARGO_TARGET_DIR", target);
    let output = cargo.stdin(Stdio::null()).output().context("cargo cannot be run")?;
    if output.status.success() {
        let directory = if profile == "dev" { "debug" } else { profile };
        return Ok(Ok(target.join(directory).join("suite")));
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    Ok(Err(messages.lines().find(|line| line.starts_with("error")).unwrap_or("no error").to_owned()))
}

/// Runs the suite with these arguments; each case for at most so many seconds.
fn run_suite(suite: &Path, arguments: &[String], limit: u64) -> anyhow::Result<Outcome> {
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
        Some(NOT_MADE) => bail!("no thread has come to the place of {arguments:?}"),
        // The words of a fault begin with the kernel, and go on for several lines.
        Some(1) => match output.rfind(": kernel `") {
            Some(at) => Outcome::Check(output[at + 2..].split_whitespace().collect::<Vec<_>>().join(" ")),
            None => Outcome::WrongResult(last.rsplit("splits").next().unwrap_or(last).to_owned()),
        },
        code => bail!("{} {arguments:?} ends with {code:?}: {last}", suite.display()),
    })
}

/// Runs the suite for something that is expected to pass; what it prints.
fn listing(suite: &Path, arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let output = Command::new(suite).args(arguments).env("RAYON_NUM_THREADS", "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{} {arguments:?}, without any change, fails: {text}", suite.display());
    Ok(text.lines().map(str::to_owned).collect())
}

/// Makes each of the chosen changes in turn.
fn of_chosen(arguments: &Arguments) -> anyhow::Result<Vec<Tried>> {
    let directory = target_dir().join("mutants");
    let (source, target) = (directory.join("source"), directory.join("target"));
    copy_repository(&source)?;
    if let Err(message) = build(&source, &target, PROFILE)? {
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
    let built = build(source, target, PROFILE);
    fs::write(&path, original)?;
    let outcome = match built? {
        Err(message) => Outcome::NotCompiled(message),
        Ok(suite) => {
            let told = kernels.par_iter().find_map_first(|kernel| {
                let outcome = run_suite(&suite, &["--kernel".to_owned(), (*kernel).to_owned()], arguments.limit);
                (!matches!(outcome, Ok(Outcome::Survived))).then_some(outcome)
            });
            told.unwrap_or(Ok(Outcome::Survived))?
        }
    };
    println!("{name}: {outcome}");
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
