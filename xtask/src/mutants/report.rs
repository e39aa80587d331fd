//! The report, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;

use super::{Outcome, Tried};
use crate::workspace::root;

/// What nobody tells of, and why it is right to survive: a file of gpu-kernels, and which of its calls that order threads.
const EXPLAINED: [(&str, usize, &str); 4] = [
    (
        "gemm/mma/mod.rs",
        2,
        "It orders nothing: the loads of a block of columns are not to be moved before it by the compiler, which saves registers.",
    ),
    (
        "gemm/split_k.rs",
        2,
        "For blocks that compute more than one piece: that takes more of them than a grid has blocks. `tests/tests/gemv.rs` launches \
         fewer, and tells.",
    ),
    (
        "pack/scaled.rs",
        3,
        "For blocks that have more than one group of lines: that takes more of them than a grid has blocks. `tests/tests/pack.rs` \
         launches fewer, and tells.",
    ),
    (
        "pack/pairs.rs",
        4,
        "For blocks that have more than one group of lines: that takes more of them than a grid has blocks. `tests/tests/pack.rs` \
         launches fewer, and tells.",
    ),
];

/// The places of [`EXPLAINED`], as names of changes have them, with the reasons.
fn explained() -> anyhow::Result<Vec<(String, &'static str)>> {
    let place = |&(file, number, why): &(&'static str, usize, &'static str)| {
        let text =
            fs::read_to_string(root().join("gpu-kernels/src").join(file)).with_context(|| format!("reading {file}"))?;
        let orders = |line: &str| line.contains("sync_threads()") || line.contains("sync_warp(");
        let found = text.lines().enumerate().filter(|(_, line)| orders(line)).nth(number - 1);
        let (line, _) = found.with_context(|| format!("{file} has fewer than {number} calls that order threads"))?;
        Ok((format!("{file}:{}:", line + 1), why))
    };
    EXPLAINED.iter().map(place).collect()
}

const INTRODUCTION: &str = "\
# Changes of the kernels, and what tells of them

Written by `cargo xtask mutants --report`: each kernel computes its products of `tests/src/suite.rs` on the executor, and each operation
of other kernels its small cases, with something left out or changed. *Mechanical*: each call by which a kernel orders what its threads do, by its place in the source, once for each
kernel that makes it. *Chosen*: changes of the source, listed in `xtask/src/mutants/chosen.rs`.
";

/// What each part has come to.
/// # Errors
/// Those of reading the kernels' sources.
pub(super) fn markdown(parts: &[(&str, Vec<Tried>)]) -> anyhow::Result<String> {
    let explained = explained()?;
    let mut text = INTRODUCTION.to_owned();
    for (part, tried) in parts {
        let caught = tried.iter().filter(|tried| !matches!(tried.outcome, Outcome::Survived)).count();
        let share = 100.0 * caught as f64 / tried.len().max(1) as f64;
        _ = writeln!(text, "\n## {part}: {caught} of {} caught, {share:.1} %\n", tried.len());
        let places = places(tried);
        if !places.is_empty() {
            let caught = places.values().filter(|caught| **caught).count();
            _ = writeln!(text, "Of {} places in the source, {caught} are caught in every kernel.\n", places.len());
        }
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        tried.iter().for_each(|tried| *by.entry(kind(&tried.outcome)).or_default() += 1);
        text += "| told by | |\n|---|---:|\n";
        by.iter().for_each(|(kind, count)| _ = writeln!(text, "| {kind} | {count} |"));
        text += "\n| change | told by | in these words |\n|---|---|---|\n";
        for Tried { name, outcome } in tried {
            let explanation = explained.iter().find(|(place, _)| name.contains(place)).map(|(_, why)| *why);
            let words = match outcome {
                Outcome::Survived => explanation.unwrap_or("not explained").to_owned(),
                _ => cell(words(outcome)),
            };
            _ = writeln!(text, "| {} | {} | {words} |", cell(name), kind(outcome));
        }
    }
    Ok(text)
}

/// The places in the source whose calls were left out, and whether that was caught in every kernel that makes the call.
fn places(tried: &[Tried]) -> BTreeMap<&str, bool> {
    let mut places = BTreeMap::new();
    for Tried { name, outcome } in tried {
        // A kernel, a place and a function.
        if let [_, place, _] = name.split(' ').collect::<Vec<_>>()[..]
            && place.contains(".rs:")
        {
            *places.entry(place).or_insert(true) &= !matches!(outcome, Outcome::Survived);
        }
    }
    places
}

fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Check(_) => "a check",
        Outcome::WrongResult(_) => "a wrong result",
        Outcome::NoEnd => "the time limit",
        Outcome::NotCompiled(_) => "the compiler",
        Outcome::Survived => "**nobody**",
    }
}

fn words(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Check(words) | Outcome::WrongResult(words) | Outcome::NotCompiled(words) => words,
        Outcome::NoEnd | Outcome::Survived => "",
    }
}

/// The words of a cell: no more than fit, and nothing that means something in a table.
fn cell(words: &str) -> String {
    const MOST: usize = 220;
    let short: String = words.chars().take(MOST).collect();
    let dots = if short.len() < words.len() { " …" } else { "" };
    format!("{}{dots}", short.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn what_is_explained_is_there() {
        let explained = explained().unwrap();
        assert_eq!(explained.len(), EXPLAINED.len());
        let (place, why) = &explained[0];
        let name = format!("gemm_mma_nn_fp32_3xtf32 gpu-kernels/src/{place}17 sync_warp");
        let text = markdown(&[("Mechanical", vec![Tried { name, outcome: Outcome::Survived }])]).unwrap();
        assert!(text.contains(why) && !text.contains("not explained"), "{text}");
    }

    #[test]
    fn calls_are_counted_by_kernel_and_by_place() {
        let of = |name: &str, outcome| Tried { name: name.to_owned(), outcome };
        let told = || Outcome::Check("a race".to_owned());
        let mechanical = vec![
            of("one a.rs:1:2 sync_threads", told()),
            of("two a.rs:1:2 sync_warp", Outcome::Survived),
            of("two a.rs:3:4 sync_threads", told()),
        ];
        let chosen = vec![of("a.rs: stops early", told())];
        let text = markdown(&[("mechanical", mechanical), ("chosen", chosen)]).unwrap();
        assert!(
            text.contains("mechanical: 2 of 3 caught, 66.7 %\n\nOf 2 places in the source, 1 are caught"),
            "{text}"
        );
        assert!(text.contains("chosen: 1 of 1 caught, 100.0 %\n\n| told by"), "{text}");
    }
}
