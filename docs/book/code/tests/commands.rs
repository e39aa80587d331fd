//! Runs the commands of the chapters as a reader would: in an empty directory, block after block.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use book::CHAPTERS;

/// The commands of a chapter as a script, which ends where one of them fails that should not, or does not fail that should.
fn script(text: &str) -> Option<String> {
    let (mut script, mut kind) = ("set -eu\n".to_owned(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), kind) {
            (Some(of), None) => {
                kind = Some(of);
                if of == "sh,fails" {
                    // A shell of its own: in a condition, `set -e` of this one has no effect.
                    script += "if bash -eu <<'END OF BLOCK'\n";
                }
            }
            (Some(_), Some(of)) => {
                if of == "sh,fails" {
                    script += "END OF BLOCK\nthen echo 'this should have failed'; exit 1; fi\n";
                }
                kind = None;
            }
            (None, Some("sh" | "sh,fails")) => _ = writeln!(script, "{line}"),
            _ => {}
        }
    }
    (script.lines().count() > 1).then_some(script)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

#[test]
fn commands_do_what_chapters_say() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(repository());
        cargo
    };
    // Of the whole workspace, as its tests are built: alone it would have other features, and be compiled anew with all that it depends on.
    let built = cargo().args(["build", "--quiet", "--workspace", "--bin", "cargo-tilewright"]).status().unwrap();
    assert!(built.success(), "cargo tilewright is not built");
    let programs = [target.join("debug"), std::env::var_os("PATH").map_or_else(PathBuf::new, PathBuf::from)];
    let path = format!("{}:{}", programs[0].display(), programs[1].display());

    let mut ran = 0;
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    // What the tests of this repository run anyway.
    let readme = readme.split("## Everything else").next().unwrap();
    for (chapter, text) in CHAPTERS.iter().chain(&[("README.md", readme)]) {
        let Some(script) = script(text) else { continue };
        let directory = tempfile::tempdir().unwrap();
        // The README's commands are those of somebody in a clone, who writes beside it.
        let place = directory.path().join("empty");
        fs::create_dir(&place).unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(&place);
        // What crates of kernels depend on is built once, for this and for the examples.
        shell.env("PATH", &path).env("CARGO_TARGET_DIR", target).env("TILEWRIGHT_SKIP_PTX", "1");
        let output = shell.env("CARGO_NET_OFFLINE", "true").output().unwrap();
        let (out, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{chapter}:\n{script}\n{out}\n{messages}");
        if script.contains("every_case_is_right") {
            assert!(
                out.contains("a race: this thread"),
                "{chapter}: the report of a race is expected:\n{out}\n{messages}"
            );
        }
        ran += 1;
    }
    assert!(ran >= 3, "{ran} chapters have commands");
}

#[test]
fn a_command_that_fails_ends_the_script() {
    let run = |text: &str| Command::new("bash").args(["-c", &script(text).unwrap()]).output().unwrap().status.success();
    assert!(run("```sh\ntrue\n```\n```sh,fails\nfalse\ntrue\n```\n"));
    assert!(!run("```sh\nfalse\ntrue\n```\n"));
    assert!(!run("```sh,fails\ntrue\n```\n"));
    assert!(script("```sh,needs-gpu\nfalse\n```\n```text\nx\n```\n").is_none());
}
