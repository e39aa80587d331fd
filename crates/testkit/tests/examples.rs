//! Builds, tests and runs every crate in `examples`: each is outside the workspace, as a user's is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The crates in `examples`.
fn examples() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut examples: Vec<_> = entries.filter(|path| path.join("Cargo.toml").is_file()).collect();
    examples.sort();
    assert!(!examples.is_empty(), "{} has no example", directory.display());
    examples
}

/// Runs cargo in an example, with a target directory that all of them share, and no other. The committed lock file is right.
fn cargo(example: &Path, arguments: &[&str], of_program: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("examples");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--offline", "--target-dir"]).arg(target).arg("--").args(of_program);
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

        let on_cpu = cargo(&example, &["run"], &["check", "--device", "cpu"]);
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
