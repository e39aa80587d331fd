//! `cargo xtask book`: the book, from docs/book.
//!
//! ```text
//!  docs/book/tool (mdBook's library, built on its own) ──▶ target/book/index.html ──▶ --check: every link leads somewhere
//! ```
//!
//! The tool is a crate outside of the workspace: what mdBook depends on, nobody needs who builds kernels. Chapters' code is compiled and run
//! by the tests of the package `tilewright-book`.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::workspace::{cargo, command, root, target_dir};

/// The options of `book`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Show it in the browser.
    #[arg(long)]
    open: bool,
    /// Check every link of the book and of all other documents, and the tool itself.
    #[arg(long)]
    check: bool,
    /// Ask for every address outside of the repository that documents name. Needs a network and curl.
    #[arg(long)]
    external: bool,
}

/// The manifest of the tool.
const MANIFEST: &str = "docs/book/tool/Cargo.toml";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.external {
        return external();
    }
    if arguments.check {
        let status = of_tool("test", &[]).status().context("cargo cannot be run")?;
        ensure!(status.success(), "the tests of the book's tool failed: {status}");
    }
    let output = target_dir().join("book");
    let output = output.to_string_lossy();
    let root = root().to_string_lossy();
    let mut words = vec!["--", &*root, &*output];
    words.extend(arguments.check.then_some("--check"));
    let status = of_tool("run", &words).status().context("cargo cannot be run")?;
    ensure!(status.success(), "the book is not as it should be: {status}");
    if arguments.open {
        let page = format!("{output}/index.html");
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let opened = command(opener, &[&page]).status().is_ok_and(|status| status.success());
        ensure!(opened, "`{opener}` cannot show it: open {page} in a browser");
    }
    Ok(())
}

/// A command of cargo for the tool, which has a target directory of its own.
fn of_tool(task: &str, words: &[&str]) -> Command {
    let directory = target_dir().join("book-tool");
    let directory = directory.to_string_lossy();
    cargo(&[&[task, "--quiet", "--locked", "--manifest-path", MANIFEST, "--target-dir", &directory], words].concat())
}

fn external() -> anyhow::Result<()> {
    let output = of_tool("run", &["--", &root().to_string_lossy(), "", "--external"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut wrong = Vec::new();
    for address in String::from_utf8_lossy(&output.stdout).lines() {
        // Some servers refuse to be asked for the head alone.
        let words =
            ["--silent", "--show-error", "--fail", "--location", "--max-time", "30", "--output", "/dev/null", address];
        let answer =
            command("curl", &words).output().context("curl cannot be run: install it (apt-get install curl)")?;
        let message = String::from_utf8_lossy(&answer.stderr);
        println!("{} {address}", if answer.status.success() { "  ok" } else { "FAIL" });
        if !answer.status.success() {
            wrong.push(format!("  {address}: {}", message.trim()));
        }
    }
    if !wrong.is_empty() {
        bail!("{} addresses do not answer:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}
