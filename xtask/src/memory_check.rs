//! `cargo xtask memory-check`: the tests of the crates with the most `unsafe` under AddressSanitizer.
//!
//! It sees accesses outside of allocations and of stack frames, use after free, double frees and leaks, in the tests' own process
//! and in those that they start: the driver's functions behind a fake driver, the executor's stacks and shared memory, and what
//! the library lends to both. First of all it has to see a fault that is there on purpose.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::workspace::{cargo, command, host_triple, root, target_dir};

/// The options of `memory-check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only tests whose names contain this.
    filter: Option<String>,
}

/// What is checked, apart from documentation tests, which rustdoc does not compile for the sanitizer.
const PACKAGES: [&str; 4] = ["tilewright-cuda-driver", "tilewright-cuda-std", "tilewright", "host"];

/// Tests that cannot be run, each with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    (
        "a_crate_outside_the_workspace_builds_and_runs_without_a_driver",
        "it runs cargo, and nothing that touches memory",
    ),
    (
        "nothing_is_left_behind_by_launches_that_fail",
        "it measures resident memory, in which the sanitizer keeps what was freed",
    ),
    (
        "an_overflowing_stack_is_reported",
        "it overflows stacks on purpose, and with the sanitizer's code in them that ends the process; why, is not known",
    ),
];

/// How the sanitizer works:
///
/// - The executor asks how much of a thread's stack is left by the addresses of variables, which have to be there therefore, and
///   not in memory of the sanitizer's that shows their use after a return.
/// - The executor handles accesses of the guard pages of its stacks. Any other access of memory that is not there ends a test all
///   the same.
const SANITIZER: &str =
    "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0";

/// Functions whose leaks are wanted.
const LEAKS: &str = "xtask/leaks-on-purpose.txt";

/// Lets the code say when it switches stacks; the runtime has to be told.
const FEATURE: &str = "tilewright-cuda-std/sanitizer";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let triple = host_triple()?;
    find_planted_fault(&triple)?;
    let mut tests = cargo(&["test", "--no-fail-fast", "--lib", "--bins", "--tests", "--features", FEATURE]);
    tests.args(["--target", &triple, "--target-dir"]).arg(directory());
    tests.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    tests.env("RUSTFLAGS", "-Zsanitizer=address").env("TILEWRIGHT_SKIP_PTX", "1");
    sanitized(&mut tests);
    tests.arg("--").args(&arguments.filter);
    for (test, why) in LEFT_OUT {
        println!("left out: {test}: {why}");
        tests.args(["--skip", test]);
    }
    let status = tests.status().context("cargo cannot be run")?;
    if !status.success() {
        bail!("there are tests that failed, or memory errors: see above");
    }
    println!("No memory errors.");
    Ok(())
}

/// Compiles and runs a program that reads what it has freed. A check that does not see that says nothing about anything else.
fn find_planted_fault(triple: &str) -> anyhow::Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let program = directory.join("planted-fault");
    let source = root().join("tests/fixtures/planted-fault/main.rs");
    let mut compile = command("rustc", &["--edition=2024", "-Zsanitizer=address", "--target", triple, "-o"]);
    sanitized(&mut compile).args([&program, &source]);
    let compiled = compile.output().context("rustc cannot be run")?;
    if !compiled.status.success() {
        bail!(
            "AddressSanitizer cannot be linked. It comes with rustup's toolchains for x86_64-unknown-linux-gnu and \
             aarch64-unknown-linux-gnu, and this is {triple}: {}",
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
    let output = sanitized(&mut Command::new(&program)).output().context("the planted fault cannot be run")?;
    let report = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !report.contains("AddressSanitizer: heap-use-after-free") {
        bail!("the planted fault has not been found ({}), so the check would find nothing: {report}", output.status);
    }
    println!("The planted fault was found: heap-use-after-free.");
    Ok(())
}

/// The environment in which the compiler takes the option, and the sanitizer looks at everything.
fn sanitized(command: &mut Command) -> &mut Command {
    // The runtime comes with stable releases; the option that links it is not stable.
    let leaks = format!("suppressions={}:print_suppressions=0", root().join(LEAKS).display());
    command.env("RUSTC_BOOTSTRAP", "1").env("ASAN_OPTIONS", SANITIZER).env("LSAN_OPTIONS", leaks)
}

fn directory() -> PathBuf {
    target_dir().join("memory-check")
}
