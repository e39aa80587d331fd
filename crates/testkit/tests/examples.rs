//! Builds, tests and runs every crate in `examples`, and the kernels of patterns: each is outside the workspace, as a user's is.

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../workbench/tests/repository/mod.rs"]
mod repository;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use repository::target;

/// The crates in `examples`, and `gpu-kernels/patterns`.
fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("examples");
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut examples: Vec<_> = entries.filter(|path| path.join("Cargo.toml").is_file()).collect();
    examples.sort();
    assert!(!examples.is_empty(), "{} has no example", directory.display());
    examples.push(root.join("gpu-kernels/patterns"));
    examples
}

/// Runs cargo in an example. The committed lock file is right.
fn cargo(example: &Path, arguments: &[&str], of_program: &[&str]) -> Output {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--offline", "--target-dir"]).arg(target()).arg("--").args(of_program);
    cargo.current_dir(example).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_example_passes_its_tests_and_runs() {
    for example in examples() {
        let name = example.file_name().unwrap_or_default().display().to_string();
        let mut format = Command::new(env!("CARGO"));
        let format = format.args(["fmt", "--all", "--check"]).current_dir(&example).output().unwrap();
        assert!(format.status.success(), "{name}: {}{}", text(&format.stdout), text(&format.stderr));

        let tests = cargo(&example, &["test", "--workspace"], &[]);
        let (output, messages) = (text(&tests.stdout), text(&tests.stderr));
        assert!(tests.status.success(), "{name}: {output}\n{messages}");
        assert!(output.contains("test every_case_is_right ... ok"), "{name} has no test of its operation: {output}");
        assert!(!messages.contains("warning"), "{name}: {messages}");

        // Of the many patterns one: the tests have just run all of their cases.
        let of_one: &[&str] = if name == "patterns" { &["--op", "sum"] } else { &[] };
        let on_cpu = cargo(&example, &["run"], &[&["check", "--device", "cpu"], of_one].concat());
        let output = text(&on_cpu.stdout);
        assert!(
            on_cpu.status.success() && output.contains("cases right"),
            "{name}: {output}\n{}",
            text(&on_cpu.stderr)
        );
        let unknown = cargo(&example, &["run"], &["run", "--op", "nothing"]);
        let message = text(&unknown.stderr);
        assert!(unknown.status.code() == Some(2), "{name}: {message}");
        assert!(message.contains("there is no operation `nothing` (did you mean"), "{name}: {message}");
        // Where there is a GPU, there is no such tool.
        let sanitize = cargo(&example, &["run"], &["sanitize", "--compute-sanitizer", "/no/such/tool"]);
        let message = text(&sanitize.stderr);
        assert!(sanitize.status.code() == Some(2) && sanitize.stdout.is_empty(), "{name}: {message}");
        let reasons = ["no CUDA driver", "no CUDA device", "no PTX", "cannot use /no/such/tool"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{name}: {message}");
    }
}

/// A stand-in for `compute-sanitizer`. It runs no program: it notes what it was told to run, finds nothing, and waits if it is to.
const COMPUTE_SANITIZER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 'Version 2025.3.1.0'; exit 0; fi
tool=$2 log=$6
shift 7
echo "$tool: $*" >> "$TOLD"
[ -z "$WAITS" ] || sleep 1000
if [ $tool = racecheck ]; then echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" >> "$log"
else echo "========= ERROR SUMMARY: 0 errors" >> "$log"; fi
"#;

/// On a driver that only pretends.
#[test]
fn every_program_has_the_task_sanitize_and_ends_with_what_it_has_started() {
    let example = &examples()[0];
    let built = cargo(example, &["build"], &[]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let directory = tempfile::tempdir().unwrap();
    let (stand_in, told) = (directory.path().join("compute-sanitizer"), directory.path().join("told"));
    fs::write(&stand_in, COMPUTE_SANITIZER).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    // The other test may just have begun a process that still has it open for writing.
    while Command::new(&stand_in).arg("--version").output().is_err() {
        std::thread::yield_now();
    }
    let driver = fake_library::compile("libcuda_fake_for_examples.so", &[]);
    let sanitize = |more: &[&str]| {
        let mut program = Command::new(target().join("debug/axpy"));
        program.args(["sanitize", "--compute-sanitizer"]).arg(&stand_in).args(more);
        program.env("TILEWRIGHT_LIBCUDA", &driver).env_remove("CUDA_VISIBLE_DEVICES").env("TOLD", &told);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    };
    let all = sanitize(&[]).output().unwrap();
    let (output, message) = (text(&all.stdout), text(&all.stderr));
    if message.contains("TILEWRIGHT_SKIP_PTX was set") {
        assert_eq!(all.status.code(), Some(2), "{message}");
        return;
    }
    assert!(all.status.success() && message.is_empty(), "{output}{message}");
    let tools = ["memcheck", "racecheck", "synccheck", "initcheck"];
    let lines = tools.map(|tool| format!("{tool}: run --op axpy --sizes n=1000 --seed 1 --device cuda:0\n"));
    assert_eq!(fs::read_to_string(&told).unwrap(), lines.concat());
    assert_eq!(output.lines().filter(|line| line.ends_with("|    ok |")).count(), 4, "{output}");
    assert!(output.contains("no planted fault for memcheck, racecheck, synccheck, initcheck"), "{output}");

    fs::remove_file(&told).unwrap();
    let mut waiting = sanitize(&["--tool", "memcheck"]).env("WAITS", "1").spawn().unwrap();
    let start = Instant::now();
    while fs::read_to_string(&told).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the tool does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = libc::pid_t::try_from(waiting.id()).unwrap();
    // SAFETY: sends a signal to a child that has not been waited for, so the number is still its.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    // Whatever runs for the program has the script's path, or its log, among its words. All of it has been told to end, but only the
    // first process has been waited for: the system ends the others in its own time.
    let left = || {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let words = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        words.filter(|words| words.contains(stand_in.to_str().unwrap())).collect::<Vec<_>>()
    };
    let start = Instant::now();
    while !left().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}
