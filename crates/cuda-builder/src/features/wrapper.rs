//! Runs rustc with the unstable features that kernels need: cargo gives it the compiler and the compiler's arguments.
//!
//! `cuda_builder` compiles this file by itself, with the compiler that it runs then. It needs nothing but `std`, so it works wherever a
//! build script does.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// What `#[kernel]` needs, and what `asm!` needs on a GPU.
const FEATURES: [&str; 2] = ["abi_ptx", "asm_experimental_arch"];

/// The target of kernels: build scripts and macros are for another.
const TARGET: &str = "nvptx64-nvidia-cuda";

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let Some(compiler) = words.next() else {
        eprintln!("the first argument is the compiler");
        return ExitCode::FAILURE;
    };
    let mut arguments: Vec<OsString> = words.collect();
    // For members of a workspace cargo runs this twice, the second time by itself.
    if !env::current_exe().is_ok_and(|this| this == Path::new(&compiler)) {
        let more = features(&arguments);
        arguments.extend(more);
    }
    run(Command::new(&compiler).args(&arguments))
}

/// The flags that a compile needs besides.
fn features(arguments: &[OsString]) -> Vec<OsString> {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    // `--cap-lints` stands among the arguments for a published package, the other one for `core`.
    let is_ours = !has("--cap-lints") && !has("-Zforce-unstable-if-unmarked");
    let root = arguments.iter().rev().map(Path::new).find(|path| path.extension() == Some(OsStr::new("rs")));
    let source = root.filter(|_| has(TARGET) && is_ours).and_then(|root| fs::read_to_string(root).ok());
    let Some(source) = source else { return Vec::new() };
    // A crate that names a feature outside of a comment has it already, and twice is an error.
    let code: Vec<_> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names = |feature: &str| code.iter().any(|line| line.split(|c| !is_word(c)).any(|word| word == feature));
    let missing = FEATURES.into_iter().filter(|feature| !names(feature));
    let flags = missing.map(|feature| OsString::from(format!("-Zcrate-attr=feature({feature})")));
    // Not every crate has inline assembly. Older compilers know no such lint.
    flags.chain(cfg!(knows_unused_features).then(|| "-Aunused_features".into())).collect()
}

/// Becomes the other program, so that it gets every signal.
#[cfg(unix)]
fn run(command: &mut Command) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    failed(command, &error)
}

#[cfg(not(unix))]
fn run(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => failed(command, &error),
    }
}

fn failed(command: &Command, error: &std::io::Error) -> ExitCode {
    eprintln!("cannot run {}: {error}", command.get_program().display());
    ExitCode::FAILURE
}
