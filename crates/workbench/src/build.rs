//! The program of the user's crate, built by cargo, with each message of the compiler once.
//!
//! Cargo compiles the kernels for the host, and at the same time runs the build script of the program, which has them compiled for a GPU. What
//! is wrong with a kernel's source both find, and cargo prints both. Here the host's words are shown, and the build script's only if the
//! host has nothing to say.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::Context as _;
use serde_json::Value;

use crate::place::cargo;
use crate::project::Project;

/// What cargo has made of a program.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// The program, if it was built.
    pub(crate) program: Option<PathBuf>,
    /// The compiler's errors, as it shows them.
    pub(crate) errors: Vec<String>,
    /// Its warnings.
    pub(crate) warnings: Vec<String>,
    /// What cargo, and build scripts that have failed, say.
    pub(crate) said: String,
}

impl Built {
    /// Reads cargo's messages about the program of a package.
    pub(crate) fn read(stdout: &[u8], manifest: &Path) -> Self {
        let mut built = Self::default();
        let lines = stdout.split(|&byte| byte == b'\n');
        for value in lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
            match value["reason"].as_str() {
                Some("compiler-message") => {
                    let message = &value["message"];
                    let text = message["rendered"].as_str().unwrap_or_default().trim_end().to_owned();
                    // A message about no place is the count at the end.
                    let is_count = message["spans"].as_array().is_none_or(Vec::is_empty) && message["code"].is_null();
                    let list = match message["level"].as_str() {
                        Some("warning") if !is_count => &mut built.warnings,
                        Some(level) if level.starts_with("error") && !text.contains("error: aborting due to") => {
                            &mut built.errors
                        }
                        _ => continue,
                    };
                    if !list.contains(&text) {
                        list.push(text);
                    }
                }
                Some("compiler-artifact") if value["manifest_path"].as_str().map(Path::new) == Some(manifest) => {
                    built.program = value["executable"].as_str().map(PathBuf::from).or(built.program);
                }
                _ => {}
            }
        }
        built
    }

    /// What is wrong, each thing once.
    pub(crate) fn failure(&self) -> String {
        if self.errors.is_empty() { self.said.clone() } else { self.errors.join("\n\n") }
    }
}

/// Builds the program of a project with its kernels, and meanwhile shows what cargo compiles. Warnings and errors go to the standard error
/// stream. None, if something does not compile.
///
/// # Errors
/// If there is no program, or cargo cannot be run.
pub(crate) fn build(project: &Project, flags: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Option<PathBuf>> {
    let manifest = project.program_manifest()?;
    let style = crate::style::Style::of_stderr();
    let format = if style.colours { "json-diagnostic-rendered-ansi" } else { "json" };
    let mut command = Command::new(cargo());
    command.arg("build").args(flags).arg(format!("--message-format={format}")).args(project.program_flags()?);
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run cargo")?;
    let stderr = child.stderr.take().map(BufReader::new);
    let said = thread::spawn(move || {
        let mut kept = String::new();
        for line in stderr.into_iter().flat_map(|stderr| stderr.lines()).map_while(Result::ok) {
            // From its first error on it is not known yet whether it is to be shown.
            if kept.is_empty() && !line.starts_with("error") && !line.starts_with("warning") {
                eprintln!("{line}");
            } else {
                kept += &format!("{line}\n");
            }
        }
        kept
    });
    let mut stdout = Vec::new();
    // What was read before an error is what there is.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout));
    let status = child.wait().context("cannot wait for cargo")?;
    let mut built = Built::read(&stdout, manifest);
    built.said = said.join().unwrap_or_default();
    built.warnings.iter().for_each(|warning| eprintln!("{warning}\n"));
    if status.success() {
        let program = built.program.with_context(|| format!("{} has no program", manifest.display()))?;
        return Ok(Some(program));
    }
    eprintln!("{}", built.failure().trim_end());
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_read_once_each_and_what_counts_them_is_not() {
        let message = |level: &str, text: &str, spans: &str, code: &str| {
            format!(
                r#"{{"reason":"compiler-message","message":{{"level":"{level}","rendered":"{text}\n","spans":[{spans}],"code":{code}}}}}"#
            )
        };
        let lines = [
            message("warning", "unused", "{}", r#"{"code":"unused"}"#),
            message("warning", "unused", "{}", r#"{"code":"unused"}"#),
            message("warning", "1 warning emitted", "", "null"),
            message("error", "error: mismatched", "{}", "null"),
            message("error", "error: aborting due to 1 previous error", "", "null"),
            r#"{"reason":"compiler-artifact","manifest_path":"/m/kernels/Cargo.toml","executable":"/t/other"}"#
                .to_owned(),
            r#"{"reason":"compiler-artifact","manifest_path":"/m/Cargo.toml","executable":"/t/mine"}"#.to_owned(),
            r#"{"reason":"compiler-artifact","manifest_path":"/m/Cargo.toml","executable":null}"#.to_owned(),
            "not json".to_owned(),
        ];
        let mut built = Built::read(lines.join("\n").as_bytes(), Path::new("/m/Cargo.toml"));
        assert_eq!(
            (built.warnings.as_slice(), built.errors.as_slice()),
            (&["unused".to_owned()][..], &["error: mismatched".to_owned()][..])
        );
        assert_eq!(built.program.as_deref(), Some(Path::new("/t/mine")));
        built.said = "error: failed to run custom build command: error: mismatched".to_owned();
        assert_eq!(built.failure(), "error: mismatched");
        built.errors.clear();
        assert_eq!(built.failure(), built.said);
    }
}
