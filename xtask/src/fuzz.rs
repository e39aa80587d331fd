//! `cargo xtask fuzz`: runs the fuzz targets, each for some time, and keeps what they find.
//!
//! ```text
//!  fuzz/corpus/TARGET          committed: read, and replayed by an ordinary test; inputs that once failed have names
//!  target/fuzz/TARGET          what runs on this machine have added; `--minimize` moves what is worth it to the committed one
//!  fuzz/artifacts/TARGET       inputs that fail: mend the fault, then add the input to the committed corpus
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::workspace::{command, first_line, root, target_dir};

/// The options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The target; all of them, one after the other, if none is named.
    target: Option<String>,
    /// How long to run each, in seconds.
    // Without any, the engine would run until somebody ends it.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=MAX_SECONDS))]
    seconds: u32,
    /// Instead of running it: choose the committed corpus anew, from the least that leads to all places that were reached.
    #[arg(long)]
    minimize: bool,
}

/// The engine counts in an `int`.
const MAX_SECONDS: i64 = i32::MAX as i64;
/// How much of a corpus is committed besides the inputs that have names, in bytes.
const MAX_CORPUS: u64 = 40 << 10;
/// No input is longer, in bytes: long ones only repeat what short ones do.
const MAX_LENGTH: u32 = 4096;
/// What no single allocation for such an input may reach, in MiB.
const MAX_ALLOCATION: u32 = 64;
/// What the whole process may not reach, in MiB.
const MAX_MEMORY: u32 = 2048;
/// How long one input may take, in seconds.
const MAX_TIME: u32 = 10;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    check_tools()?;
    let all = targets()?;
    let chosen: Vec<&String> = match &arguments.target {
        Some(name) => vec![
            all.iter()
                .find(|target| *target == name)
                .with_context(|| format!("there is no fuzz target `{name}`; there are {}", all.join(", ")))?,
        ],
        None => all.iter().collect(),
    };
    chosen.into_iter().try_for_each(|target| match arguments.minimize {
        true => minimize(target),
        false => fuzz(target, arguments.seconds),
    })
}

/// The names of the targets: those of their programs.
fn targets() -> anyhow::Result<Vec<String>> {
    let directory = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn check_tools() -> anyhow::Result<()> {
    if first_line(command("cargo", &["fuzz", "--version"])).is_none() {
        bail!("cargo-fuzz is missing: `cargo install cargo-fuzz --locked` gets it");
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if first_line(command(&compiler, &["--version"])).is_none() {
        bail!(
            "the C++ compiler `{compiler}` cannot be run, and the fuzzing engine is in C++: install one (on Debian and Ubuntu: \
             apt-get install g++), or name another one by the environment variable CXX"
        );
    }
    Ok(())
}

fn fuzz(target: &str, seconds: u32) -> anyhow::Result<()> {
    println!("\n==> {target}, {seconds} s");
    let found = found(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut engine = engine(target);
    // The first directory is written to.
    engine.arg(found).arg(committed(target)).args(limits(target));
    engine.args([&format!("-max_total_time={seconds}"), "-print_final_stats=1", "-use_value_profile=1"]);
    execute(engine)
}

fn minimize(target: &str) -> anyhow::Result<()> {
    println!("\n==> {target}");
    let (committed, found) = (committed(target), found(target));
    let least = found.with_extension("least");
    // What an interrupted run has left.
    let _ = fs::remove_dir_all(&least);
    for directory in [&found, &least, &committed] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut engine = engine(target);
    // Which places are reached, and not how often, which would keep many more inputs.
    engine.arg(&least).args([&committed, &found]).args(limits(target)).args(["-merge=1", "-use_counters=0"]);
    execute(engine)?;
    for path in inputs(&committed)?.into_iter().filter(|path| is_made_up(path)) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    // Names are hashes: the first of them are a sample.
    let mut bytes = 0;
    for path in inputs(&least)? {
        bytes += fs::metadata(&path)?.len();
        if bytes > MAX_CORPUS {
            break;
        }
        fs::copy(&path, committed.join(path.file_name().unwrap_or_default())).context("cannot write to the corpus")?;
    }
    fs::remove_dir_all(&least).with_context(|| format!("cannot remove {}", least.display()))
}

/// The files of a corpus, in the order of their names.
fn inputs(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether the engine has named an input, by its hash. One that has a name of its own stands for a fault that was found, and stays.
fn is_made_up(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The engine with a target in it: compiled with the address sanitizer, overflow checks and debug assertions.
fn engine(target: &str) -> Command {
    let mut engine = command("cargo", &["fuzz", "run", "--features", "engine", target]);
    // The sanitizer's runtime comes with stable releases; the option that links it does not. Kernels are not run.
    engine.env("RUSTC_BOOTSTRAP", "1").env("TILEWRIGHT_SKIP_PTX", "1").env_remove("RUSTUP_TOOLCHAIN");
    engine
}

fn limits(target: &str) -> Vec<String> {
    let mut limits = vec![
        "--".to_owned(),
        format!("-max_len={MAX_LENGTH}"),
        format!("-malloc_limit_mb={MAX_ALLOCATION}"),
        format!("-rss_limit_mb={MAX_MEMORY}"),
        format!("-timeout={MAX_TIME}"),
    ];
    let words = root().join(format!("fuzz/dictionaries/{target}.dict"));
    if words.is_file() {
        limits.push(format!("-dict={}", words.display()));
    }
    limits
}

fn committed(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

fn found(target: &str) -> PathBuf {
    target_dir().join("fuzz").join(target)
}

fn execute(mut engine: Command) -> anyhow::Result<()> {
    let status = engine.status().context("cargo-fuzz cannot be run")?;
    if status.success() {
        return Ok(());
    }
    bail!(
        "the fuzzer has stopped ({status}). An input that fails is in fuzz/artifacts, and what is wrong with it is said above"
    )
}
