//! Every block of code of the book is one that something compiles or runs, or one that says why not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use book::CHAPTERS;

/// What is not run, how often in a chapter, and why. Of each other block of commands, `tests/commands.rs` runs all.
const NOT_RUN: &[(&str, &str, usize, &str)] = &[
    (
        "checker.md",
        "sh,in-ci",
        3,
        "the test of the corpus, which CI runs; `cost`, which `first-kernel.md` runs; `trace`, which tests of testkit and of the workbench run",
    ),
    ("checker.md", "sh,needs-gpu", 1, "counters of a GPU"),
    ("compiling.md", "sh,in-ci", 1, "`build-ptx` is a step of `cargo xtask test`"),
    ("compiling.md", "sh,slow", 4, "the library in release, with machine code; two commits' kernels"),
    ("cublas.md", "sh,in-ci", 2, "`cargo xtask test` builds the library and runs its tests"),
    ("cublas.md", "sh,needs-gpu", 1, "torch on a GPU"),
    ("first-kernel.md", "sh,needs-gpu", 1, "times, a GPU's bits, sanitizers"),
    (
        "install.md",
        "sh,in-ci",
        3,
        "`setup` is a step of `cargo xtask test`; tests run the program, and build `cargo tilewright`",
    ),
    ("ladder.md", "sh,in-ci", 1, "tests run every kernel and the program's options"),
    ("performance.md", "sh,needs-gpu", 2, "times"),
    ("products.md", "sh,in-ci", 1, "tests run the program's options"),
    ("python.md", "python,needs-gpu", 3, "torch on a GPU"),
    ("python.md", "sh,slow", 1, "the library in release, for two machines"),
    (
        "python.md",
        "sh,in-ci",
        1,
        "`python` is a step of `cargo xtask test`, there with a wheel that is not optimized in full",
    ),
    ("testing.md", "sh,in-ci", 2, "tests run each of these in the examples and in what `new` writes"),
];

/// A block of a text between fences.
struct Block {
    line: usize,
    /// What stands behind the fence.
    kind: String,
    text: String,
}

/// The blocks of a text, and the lines that would be code by their indentation alone.
fn blocks(text: &str) -> (Vec<Block>, Vec<usize>) {
    let (mut blocks, mut indented) = (Vec::<Block>::new(), Vec::new());
    let (mut inside, mut before_is_empty) = (false, true);
    for (number, line) in text.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            inside = !inside;
            if inside {
                blocks.push(Block { line: number + 1, kind: kind.to_owned(), text: String::new() });
            }
        } else if inside {
            let block = blocks.last_mut().expect("a fence has opened it");
            block.text += line;
            block.text.push('\n');
        } else if line.starts_with("    ") && before_is_empty {
            indented.push(number + 1);
        }
        before_is_empty = line.trim().is_empty();
    }
    (blocks, indented)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Whether a block is nothing but what is taken from a source that CI compiles, which is there.
fn is_taken_from_a_source(text: &str) -> bool {
    let compiled = ["crates/", "examples/", "gpu-kernels/"];
    let line = text.trim();
    let Some(words) = line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}")) else { return false };
    let file = match words.split_whitespace().collect::<Vec<_>>()[..] {
        ["item", file, _] => file,
        ["#include", file] => file.split(':').next().unwrap_or(file).trim_start_matches("../../../"),
        _ => return false,
    };
    compiled.iter().any(|directory| file.starts_with(directory)) && repository().join(file).is_file()
}

#[test]
fn every_block_is_compiled_or_run_or_says_why_not() {
    let (mut wrong, mut not_run, mut doctests) = (Vec::new(), BTreeMap::<(&str, String), usize>::new(), 0);
    for (chapter, text) in CHAPTERS {
        let (blocks, indented) = blocks(text);
        wrong.extend(
            indented.iter().map(|line| format!("{chapter}:{line}: code by its indentation: put it between fences")),
        );
        for Block { line, kind, text } in blocks {
            let mut complain = |what: &str| wrong.push(format!("{chapter}:{line}: `{kind}`: {what}"));
            match &*kind {
                "rust" | "rust,should_panic" | "rust,compile_fail" => doctests += 1,
                "rust,ignore" if is_taken_from_a_source(&text) => {}
                "rust,ignore" => {
                    complain("nothing runs it: take it from a source (`{{item …}}`, `{{#include …}}`), or let it run")
                }
                "toml" if is_taken_from_a_source(&text) => {}
                "cpp" if text.starts_with("// CUDA C++\n") => {}
                "cpp" => {
                    complain("say that it is CUDA C++, which nothing compiles here: `// CUDA C++` in the first line")
                }
                "sh" | "sh,fails" | "text" => {}
                _ if NOT_RUN.iter().any(|(of, tag, ..)| of == chapter && *tag == kind) => {
                    *not_run.entry((chapter, kind)).or_default() += 1;
                }
                _ => complain("nothing runs it, and `NOT_RUN` does not say why"),
            }
        }
    }
    for (chapter, kind, count, _) in NOT_RUN {
        let found = not_run.get(&(*chapter, (*kind).to_owned())).copied().unwrap_or(0);
        if found != *count {
            wrong.push(format!("{chapter}: {found} blocks `{kind}`, where `NOT_RUN` has {count}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(doctests >= 12, "{doctests} blocks of Rust");
}

#[test]
fn every_chapter_of_the_summary_is_tested() {
    let summary = std::fs::read_to_string(repository().join("docs/book/src/SUMMARY.md")).unwrap();
    let mut named: Vec<_> =
        summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(file, _)| file).collect();
    let mut tested: Vec<_> = CHAPTERS.iter().map(|(file, _)| *file).collect();
    named.sort_unstable();
    tested.sort_unstable();
    assert_eq!(named, tested);
}
