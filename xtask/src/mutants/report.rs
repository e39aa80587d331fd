//! The report, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Outcome, Tried};

/// What each part has come to.
pub(super) fn markdown(parts: &[(&str, Vec<Tried>)]) -> String {
    let mut text =
        "# Changes of the kernels, and what tells of them\n\nWritten by `cargo xtask mutants --report`.\n".to_owned();
    for (part, tried) in parts {
        let caught = tried.iter().filter(|tried| !matches!(tried.outcome, Outcome::Survived)).count();
        let share = 100.0 * caught as f64 / tried.len().max(1) as f64;
        _ = writeln!(text, "\n## {part}: {caught} of {} caught, {share:.1} %\n", tried.len());
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        tried.iter().for_each(|tried| *by.entry(kind(&tried.outcome)).or_default() += 1);
        text += "| told by | |\n|---|---:|\n";
        by.iter().for_each(|(kind, count)| _ = writeln!(text, "| {kind} | {count} |"));
        text += "\n| change | told by | in these words |\n|---|---|---|\n";
        for Tried { name, outcome } in tried {
            _ = writeln!(text, "| {} | {} | {} |", cell(name), kind(outcome), cell(words(outcome)));
        }
    }
    text
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
