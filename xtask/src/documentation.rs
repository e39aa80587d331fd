//! `cargo xtask documentation`: the documentation of all crates, without warnings, and how many public items have no example.
//!
//! rustdoc counts these itself, by a lint that is unstable (`rustdoc::missing_doc_code_examples`). So this program stands in for rustdoc, as
//! cargo lets it, and starts it with leave to use what is unstable: rustdoc alone, so that nothing else is compiled anew.
//!
//! The lint counts blocks `impl` too, which are not counted here: their methods have the examples. It does not count constants, type aliases,
//! nor what is public only because another module has it in a `pub use`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fmt};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::workspace::cargo;

/// Programs, kernels and tests, whose items are public for one another alone, and may lack examples.
const NOT_COUNTED: &[&str] = &[
    "fuzz",
    "gpu-kernels",
    "host",
    "patterns-kernels",
    "tests",
    "tilewright-book",
    "tilewright-pages",
    "tilewright-python",
    "tilewright-workbench",
    "xtask",
];

/// Names rustdoc to this program where it stands in for it.
const RUSTDOC: &str = "TILEWRIGHT_RUSTDOC";

const LINT: &str = "rustdoc::missing_doc_code_examples";

/// The options of `documentation`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this package; can be given several times.
    #[arg(long, short)]
    package: Vec<String>,
    /// Shows where examples are missing.
    #[arg(long)]
    list: bool,
}

/// Runs rustdoc in place of the task, if cargo takes this program for it.
pub(crate) fn stand_in_for_rustdoc() -> Option<ExitCode> {
    let rustdoc = env::var_os(RUSTDOC)?;
    let status = Command::new(&rustdoc).args(env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").status();
    Some(match status {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("error: {} cannot be run: {error}", rustdoc.display());
            ExitCode::FAILURE
        }
    })
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut command = cargo(&["doc", "--no-deps", "--message-format=json-diagnostic-rendered-ansi"]);
    match &*arguments.package {
        [] => _ = command.arg("--workspace"),
        packages => packages.iter().for_each(|package| _ = command.args(["--package", package])),
    }
    let rustdoc = env::var_os("RUSTDOC").unwrap_or_else(|| OsString::from("rustdoc"));
    let flags = format!("-Dwarnings -Zcrate-attr=feature(rustdoc_missing_doc_code_examples) --force-warn={LINT}");
    command.env(RUSTDOC, rustdoc).env("RUSTDOC", env::current_exe()?).env("RUSTDOCFLAGS", flags);

    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cargo cannot be run")?;
    let output = cargo.stdout.take().context("cargo has no output")?;
    let mut missing = BTreeMap::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let message = serde_json::from_str(&line).with_context(|| format!("cargo says `{line}`"))?;
        match Message::of(&message) {
            Message::Documented(package) => _ = missing.entry(package).or_insert_with(Vec::new),
            Message::MissingExample(package, place) => missing.entry(package).or_insert_with(Vec::new).push(place),
            Message::Other(text) => eprint!("{text}"),
            Message::Nothing => {}
        }
    }
    if !cargo.wait()?.success() {
        bail!("the documentation has errors or warnings");
    }
    if arguments.list {
        missing.values().flatten().for_each(|place| println!("{place}"));
    }
    let faults = faults(missing.iter().map(|(package, places)| (package.as_str(), places.len())));
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// A line of cargo's output, as far as it matters here.
#[derive(Debug, PartialEq)]
enum Message {
    /// A package has documentation.
    Documented(String),
    /// A public item of a package has no example, and where it is.
    MissingExample(String, Place),
    /// Something else that is to be shown.
    Other(String),
    Nothing,
}

/// A line of source.
#[derive(Debug, PartialEq)]
struct Place {
    file: String,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Message {
    fn of(message: &Value) -> Self {
        let package = || package_name(message["package_id"].as_str().unwrap_or_default()).to_owned();
        let diagnostic = &message["message"];
        match message["reason"].as_str() {
            Some("compiler-artifact") if is_documentation(message) => Self::Documented(package()),
            Some("compiler-message") if diagnostic["code"]["code"] == LINT => {
                let span = &diagnostic["spans"][0];
                // Of an item in a macro, the first line is that of the macro's call.
                let first_line = span["text"][0]["text"].as_str().unwrap_or_default().trim_start();
                if first_line.starts_with("impl ") || first_line.starts_with("impl<") {
                    return Self::Nothing;
                }
                let file = span["file_name"].as_str().unwrap_or_default().to_owned();
                Self::MissingExample(package(), Place { file, line: span["line_start"].as_u64().unwrap_or_default() })
            }
            // At the end rustdoc says how many warnings there were.
            Some("compiler-message") if diagnostic["level"] == "warning" && diagnostic["code"].is_null() => {
                Self::Nothing
            }
            Some("compiler-message") => Self::Other(diagnostic["rendered"].as_str().unwrap_or_default().to_owned()),
            _ => Self::Nothing,
        }
    }
}

/// Whether an artifact is documentation, and not what it takes to make it.
fn is_documentation(artifact: &Value) -> bool {
    let files = artifact["filenames"].as_array().map_or(&[][..], Vec::as_slice);
    files.iter().filter_map(Value::as_str).any(|file| file.ends_with("index.html"))
}

/// The name in a package's identifier: `path+file:///…/crates/blocks#tilewright-blocks@0.1.0`, or `…/fuzz#0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// What is wrong with the numbers of items without example.
fn faults<'a>(counts: impl Iterator<Item = (&'a str, usize)>) -> Vec<String> {
    let is_fault = |&(package, count): &(&str, usize)| count > 0 && !NOT_COUNTED.contains(&package);
    let text = |(package, count)| {
        format!(
            "{count} public items of {package} have no example: write one for what is new \
             (`cargo xtask documentation --package {package} --list` says where they are missing)"
        )
    };
    counts.filter(is_fault).map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_without_example_is_a_fault_but_of_programs_and_tests() {
        let faults = faults([("tilewright-blocks", 2), ("tilewright", 0), ("host", 3)].into_iter());
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with("2 public items of tilewright-blocks have no example"), "{faults:?}");
    }

    #[test]
    fn messages_are_told_apart() {
        let lint = |text: &str| {
            let span = json!({ "file_name": "src/lib.rs", "line_start": 7, "text": [{ "text": text }] });
            let message = json!({ "code": { "code": LINT }, "level": "warning", "spans": [span], "rendered": "" });
            Message::of(
                &json!({ "reason": "compiler-message", "package_id": "path+file:///w/a#0.1.0", "message": message }),
            )
        };
        let place = Place { file: "src/lib.rs".to_owned(), line: 7 };
        assert_eq!(lint("    /// What it does."), Message::MissingExample("a".to_owned(), place));
        assert_eq!(lint("impl<T> Shared<T> {"), Message::Nothing);
        let error =
            json!({ "code": { "code": "rustdoc::broken_intra_doc_links" }, "level": "error", "rendered": "broken" });
        let message = Message::of(&json!({ "reason": "compiler-message", "message": error }));
        assert_eq!(message, Message::Other("broken".to_owned()));
        let artifact = |file: &str| {
            let package = "path+file:///w/crates/b#tilewright-b@0.1.0";
            Message::of(&json!({ "reason": "compiler-artifact", "package_id": package, "filenames": [file] }))
        };
        assert_eq!(artifact("/t/doc/b/index.html"), Message::Documented("tilewright-b".to_owned()));
        assert_eq!(artifact("/t/debug/deps/libb.rmeta"), Message::Nothing);
    }
}
