//! Runs wheels: each with every version of Python that can be had, the package's tests and the bits of some products.
//!
//! ```text
//!  for each wheel and version:  pip install --target, for that version ─► pytest python/tests
//!                                                                     └─► python/tests/bits.py ─► the same text everywhere
//! ```
//!
//! Interpreters for this machine are those on `PATH`, by their names, such as `python3.12`; what is not there comes from Debian, and so does
//! everything for another machine, which runs under qemu. A version that is nowhere is shown as not tried.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use super::contents::Contents;
use super::debian::Root;
use super::{Machine, OLDEST_GLIBC};
use crate::python::{Environment, Requirements};
use crate::workspace::{command, first_line, root, table, target_dir};

/// The versions of Python 3 that wheels are for, each with Debian's suite that has it, if one has.
const VERSIONS: [(u32, Option<&str>); 6] =
    [(10, None), (11, Some("bookworm")), (12, None), (13, Some("trixie")), (14, Some("forky")), (15, Some("forky"))];

/// The suite that qemu is taken from: there it is linked statically.
const EMULATOR: (&str, &str) = ("trixie", "qemu-user");

/// Tests that cannot be run under qemu, each with the reason.
const LEFT_OUT: [(&str, &str); 5] = [
    (
        "test_importing_it_loads_no_driver",
        "it looks into the memory map of its process, in which the emulator shows other names",
    ),
    ("test_a_child_of_a_process_that_has_used_a_gpu", "the library in the driver's place is compiled for this machine"),
    ("test_a_child_may_be_the_first_to_use_a_gpu", "likewise"),
    ("test_ctrl_c_ends_a_product_on_the_executor", "it measures time"),
    ("test_forks_while_other_threads_are_in_calls", "it has a limit of time, and the emulator takes most of it"),
];

impl Machine {
    /// Its name at Debian.
    fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The program that loads programs and libraries, in a root of Debian's.
    fn loader(self) -> &'static str {
        match self {
            Self::X86_64 => "lib64/ld-linux-x86-64.so.2",
            Self::Aarch64 => "lib/ld-linux-aarch64.so.1",
        }
    }
}

/// A Python that can be run here.
struct Interpreter {
    program: PathBuf,
    /// Where from, for people.
    origin: String,
}

/// What came of a wheel with a Python.
struct Trial {
    machine: Machine,
    version: String,
    origin: String,
    /// What pytest says at its end, if it was run.
    tests: String,
    /// What `bits.py` prints.
    bits: Option<String>,
    seconds: f64,
}

/// Tries wheels, and shows what came out.
///
/// # Errors
/// If a test fails, bits differ, or there is no Python for a wheel.
pub(super) fn run(wheels: &[Contents]) -> anyhow::Result<()> {
    let environment = Environment::create(Requirements::Wheels)?;
    let mut trials = Vec::new();
    for wheel in wheels {
        let mut tested = false;
        for (minor, suite) in VERSIONS {
            // Under qemu the tests take minutes, so one version has to do.
            let with_tests = wheel.machine.is_this() || !tested;
            let trial = try_with(&environment, wheel, (minor, suite), with_tests)?;
            tested |= trial.bits.is_some();
            trials.push(trial);
        }
    }
    let mut rows = table(["wheel for", "Python", "from", "tests", "bits", "time"]);
    for trial in &trials {
        let Trial { machine, version, origin, tests, bits, seconds } = trial;
        let compared = match bits {
            None => "",
            Some(_) if differs(trial, &trials) => "DIFFERENT",
            Some(_) => "the same",
        };
        rows.add_row([machine.name(), version, origin, tests, compared, &format!("{seconds:.0} s")]);
    }
    println!("\n{rows}");
    judge(&wheels.iter().map(|wheel| wheel.machine).collect::<Vec<_>>(), &trials)
}

/// Whether products have other bits in a trial than in the first one.
fn differs(trial: &Trial, trials: &[Trial]) -> bool {
    let first = trials.iter().find_map(|trial| trial.bits.as_ref());
    trial.bits.is_some() && trial.bits.as_ref() != first
}

/// What is wrong with the trials of wheels for these machines.
fn judge(machines: &[Machine], trials: &[Trial]) -> anyhow::Result<()> {
    for machine in machines {
        let tried = trials.iter().any(|trial| trial.machine == *machine && trial.bits.is_some());
        ensure!(tried, "there is no Python for the wheel for {}, so nothing is known of it", machine.name());
    }
    let different: Vec<_> = trials.iter().filter(|trial| differs(trial, trials)).collect();
    let texts =
        trials.iter().find(|trial| trial.bits.is_some()).into_iter().chain(different.iter().copied()).map(|trial| {
            let Trial { machine, version, bits, .. } = trial;
            format!("{}, Python {version}:\n{}", machine.name(), bits.as_deref().unwrap_or_default())
        });
    ensure!(different.is_empty(), "products have different bits.\n{}", texts.collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// Tries a wheel with a version of Python.
fn try_with(
    environment: &Environment,
    wheel: &Contents,
    (minor, suite): (u32, Option<&str>),
    with_tests: bool,
) -> anyhow::Result<Trial> {
    let start = Instant::now();
    let machine = wheel.machine;
    let mut trial = Trial {
        machine,
        version: format!("3.{minor}"),
        origin: "nowhere".to_owned(),
        tests: String::new(),
        bits: None,
        seconds: 0.0,
    };
    let Some(Interpreter { program, origin }) = find(machine, minor, suite)? else { return Ok(trial) };
    let packages = install(environment, wheel, minor)?;
    let python = |arguments: &[&str]| {
        let mut python = Command::new(&program);
        python.args(arguments).env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
        // Beside the tests, for what they import of one another; not in the package's directory.
        python.current_dir(root().join("python/tests"));
        python
    };
    let version = first_line(python(&["-c", "import sys; print(sys.version.split()[0])"]));
    trial.version = version.with_context(|| format!("{} does not run", program.display()))?;
    trial.origin = origin;
    println!("\n{} with Python {} from {}", wheel.wheel.display(), trial.version, trial.origin);

    if with_tests {
        trial.tests = test(python(&["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]), machine)?;
        println!("{}", trial.tests);
    }
    let output = python(&["-W", "error", "bits.py"]).output().context("bits.py cannot be run")?;
    if !output.status.success() {
        bail!("bits.py fails ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    trial.bits = Some(String::from_utf8_lossy(&output.stdout).into_owned());
    trial.seconds = start.elapsed().as_secs_f64();
    Ok(trial)
}

/// Runs pytest, and returns its last line.
fn test(mut pytest: Command, machine: Machine) -> anyhow::Result<String> {
    if !machine.is_this() {
        for (test, why) in LEFT_OUT {
            println!("left out: {test}: {why}");
        }
        pytest.args(["-k", &LEFT_OUT.map(|(test, _)| format!("not {test}")).join(" and ")]);
    }
    let output = pytest.output().with_context(|| format!("{} cannot be run", pytest.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("tests fail ({}):\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text.trim_end().lines().last().unwrap_or_default().to_owned())
}

/// A Python of a version for a machine, if there is one.
fn find(machine: Machine, minor: u32, suite: Option<&str>) -> anyhow::Result<Option<Interpreter>> {
    let name = format!("python3.{minor}");
    if machine.is_this() && first_line(command(&name, &["--version"])).is_some() {
        return Ok(Some(Interpreter { program: name.into(), origin: "PATH".to_owned() }));
    }
    let Some(suite) = suite else { return Ok(None) };
    // The C++ library is for NumPy.
    let packages: Vec<_> = VERSIONS
        .iter()
        .filter(|(_, other)| *other == Some(suite))
        .flat_map(|(minor, _)| [format!("python3.{minor}-minimal"), format!("libpython3.{minor}-stdlib")])
        .chain(["libstdc++6".to_owned()])
        .collect();
    let packages: Vec<_> = packages.iter().map(String::as_str).collect();
    let root = Root::get(suite, machine.debian(), &packages)?.path;
    let program = start_script(machine, &root, &name)?;
    let how = if machine.is_this() { String::new() } else { ", under qemu".to_owned() };
    Ok(Some(Interpreter { program, origin: format!("Debian's {suite}{how}") }))
}

/// Writes a program that runs a Python of a root of Debian's, and that this Python takes for itself, so that it can start others.
fn start_script(machine: Machine, root: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let (loader, libraries) =
        (root.join(machine.loader()), root.join("usr/lib").join(format!("{}-linux-gnu", machine.name())));
    let python = root.join("usr/bin").join(name);
    let run = if machine.is_this() {
        format!("'{}' --argv0 \"$0\" --library-path '{}'", loader.display(), libraries.display())
    } else {
        let (suite, package) = EMULATOR;
        let host = Machine::of_host()?.debian();
        let emulator =
            Root::get(suite, host, &[package])?.path.join("usr/bin").join(format!("qemu-{}", machine.name()));
        format!("'{}' -0 \"$0\" -L '{}'", emulator.display(), root.display())
    };
    let script = root.with_file_name(name);
    let text =
        format!("#!/bin/sh\nPYTHONHOME='{}' exec {run} '{}' \"$@\"\n", root.join("usr").display(), python.display());
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// Installs a wheel, and what its tests need, for a version of Python, into a directory of its own. pip decides whether the wheel is for that
/// version and machine, as it would there.
fn install(environment: &Environment, wheel: &Contents, minor: u32) -> anyhow::Result<PathBuf> {
    let machine = wheel.machine.name();
    let directory = target_dir().join("wheels/installed").join(format!("{machine}-3.{minor}"));
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    let mut arguments: Vec<String> =
        ["install", "--quiet", "--only-binary=:all:", "--implementation", "cp"].map(str::to_owned).into();
    // pip takes this one's version for what a package says of versions; the tags of wheels tell.
    arguments.push("--ignore-requires-python".to_owned());
    arguments.extend(["--target".to_owned(), directory.to_string_lossy().into_owned()]);
    arguments.extend(["--python-version".to_owned(), format!("3.{minor}")]);
    for abi in [format!("cp3{minor}"), "abi3".to_owned(), "none".to_owned()] {
        arguments.extend(["--abi".to_owned(), abi]);
    }
    // NumPy's are for one of these.
    for glibc in 17..=OLDEST_GLIBC.minor {
        arguments.extend(["--platform".to_owned(), format!("manylinux_2_{glibc}_{machine}")]);
    }
    arguments.extend(["--platform".to_owned(), format!("manylinux2014_{machine}")]);
    arguments.push(wheel.wheel.to_string_lossy().into_owned());
    arguments.extend(["numpy", "pytest", "typing_extensions", "exceptiongroup", "tomli"].map(str::to_owned));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    environment.execute("pip", &arguments)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(machine: Machine, bits: Option<&str>) -> Trial {
        let [version, origin, tests] = ["3.13.5", "PATH", "9 passed"].map(str::to_owned);
        Trial { machine, version, origin, tests, bits: bits.map(str::to_owned), seconds: 1.0 }
    }

    #[test]
    fn other_bits_and_wheels_that_were_not_tried_are_errors() {
        let (x86_64, aarch64) = (Machine::X86_64, Machine::Aarch64);
        let same = [trial(x86_64, None), trial(x86_64, Some("a")), trial(aarch64, Some("a"))];
        assert!(judge(&[x86_64, aarch64], &same).is_ok());
        let error = judge(&[x86_64, aarch64], &same[..2]).unwrap_err().to_string();
        assert!(error.contains("no Python for the wheel for aarch64"), "{error}");
        let other = [trial(x86_64, Some("a")), trial(aarch64, Some("b"))];
        let error = judge(&[x86_64, aarch64], &other).unwrap_err().to_string();
        assert!(error.contains("x86_64, Python 3.13.5:\na\naarch64, Python 3.13.5:\nb"), "{error}");
        assert!(!differs(&other[0], &other) && differs(&other[1], &other));
    }
}
