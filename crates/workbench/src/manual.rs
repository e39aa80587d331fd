//! Completions for shells, and man pages: made from the same description as `--help`.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

/// The options of `completions`.
#[derive(clap::Args)]
pub struct CompletionArguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The options of `man`.
#[derive(clap::Args)]
pub struct ManArguments {
    /// Where to write the pages; made if it is not there.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes a shell's completions of a command to the standard output.
pub(crate) fn completions(mut command: Command, arguments: &CompletionArguments) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "cargo-tilewright", &mut text);
    stdout().write_all(&text).context("cannot write the completions")
}

/// Writes a man page for a command and for each of its tasks.
pub(crate) fn man(command: Command, arguments: &ManArguments) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let written = || format!("cannot write man pages into {}", directory.display());
    clap_mangen::generate_to(command, directory).with_context(written)?;
    println!("wrote cargo-tilewright.1 and a page for each task into {}: `man -l FILE` shows one", directory.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::command;

    #[test]
    fn every_shell_and_the_manual_have_every_task() {
        command().debug_assert();
        let tasks: Vec<String> = command().get_subcommands().map(|task| task.get_name().to_owned()).collect();
        assert!(tasks.iter().any(|task| task == "watch"), "{tasks:?}");
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command(), "cargo-tilewright", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(tasks.iter().all(|task| text.contains(task)), "{shell}");
        }
        let directory = tempfile::tempdir().unwrap();
        man(command(), &ManArguments { directory: directory.path().join("man1") }).unwrap();
        for task in tasks {
            let page = fs::read_to_string(directory.path().join(format!("man1/cargo-tilewright-{task}.1")));
            assert!(page.is_ok_and(|page| page.contains(".SH NAME")), "{task}");
        }
    }
}
