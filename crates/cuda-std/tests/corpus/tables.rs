//! The tables of what the checker finds and does not find, as the book's chapter on the checker has them (`docs/book/src/checker.md`).

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use crate::pattern::{Class, Expected, Family, Mistake, Pattern};

fn mistakes(families: &[Family]) -> impl Iterator<Item = (&'static Pattern, &'static Mistake)> {
    let patterns = families.iter().flat_map(|family| family.patterns);
    patterns.flat_map(|pattern| pattern.mistakes.iter().map(move |mistake| (pattern, mistake)))
}

/// The classes that there are, in their order.
fn classes(families: &[Family]) -> Vec<Class> {
    let mut classes: Vec<Class> = mistakes(families).map(|(_, mistake)| mistake.class).collect();
    classes.sort();
    classes.dedup();
    classes
}

/// For each class of mistakes, how many are found.
pub(crate) fn by_class(families: &[Family]) -> String {
    let mut text = "| what is wrong | found | not found |\n|---|---:|---:|\n".to_owned();
    for class in classes(families) {
        let of_class = || mistakes(families).filter(|(_, mistake)| mistake.class == class);
        let found = of_class().filter(|(_, mistake)| mistake.is_found()).count();
        _ = writeln!(text, "| {} | {found} | {} |", class.text(), of_class().count() - found);
    }
    text
}

/// What is not found, and why.
fn not_found(families: &[Family]) -> String {
    let mut text = String::new();
    for (pattern, mistake) in mistakes(families) {
        if let Expected::Missed { reason } = mistake.expected {
            _ = writeln!(text, "- `{}`, {}: {reason}.", pattern.name, mistake.what);
        }
    }
    text
}

/// Every mistake, class by class, and the name of the fault that reports it.
fn every_mistake(families: &[Family]) -> String {
    let mut text = String::new();
    for class in classes(families) {
        let text_of_class = class.text();
        let title = text_of_class[..1].to_uppercase() + &text_of_class[1..];
        let gap = if text.is_empty() { "" } else { "\n" };
        _ = writeln!(text, "{gap}{title}:\n\n| kernel | mistake | reported as |\n|---|---|---|");
        for (pattern, mistake) in mistakes(families).filter(|(_, mistake)| mistake.class == class) {
            let report = match mistake.expected {
                Expected::Found { kind, .. } => kind.to_owned(),
                Expected::Sometimes { kind, .. } => format!("{kind}, in some orders"),
                Expected::Missed { .. } => "**not found**".to_owned(),
            };
            _ = writeln!(text, "| `{}` | {} | {report} |", pattern.name, mistake.what);
        }
    }
    text
}

/// How many kernels and mistakes there are.
fn counts(families: &[Family], schedules: u64) -> String {
    let kernels = families.iter().map(|family| family.patterns.len()).sum::<usize>();
    let all = mistakes(families).count();
    let found = mistakes(families).filter(|(_, mistake)| mistake.is_found()).count();
    let is_sometimes = |mistake: &Mistake| matches!(mistake.expected, Expected::Sometimes { .. });
    let sometimes = mistakes(families).filter(|(_, mistake)| is_sometimes(mistake)).count();
    format!(
        "{kernels} kernels, {all} mistakes, {found} of them found, {sometimes} of these in some orders only; {schedules} schedules each; no false \
         report.\n"
    )
}

/// What is different in the documents, after writing them anew if that is asked for.
pub(crate) fn compare_documents(families: &[Family], schedules: u64) -> Vec<String> {
    let parts = [
        ("README.md", "counts", counts(families, schedules)),
        ("README.md", "by class", by_class(families)),
        ("docs/book/src/checker.md", "counts", counts(families, schedules)),
        ("docs/book/src/checker.md", "by class", by_class(families)),
        ("docs/book/src/checker.md", "not found", not_found(families)),
        ("docs/book/src/checker.md", "every mistake", every_mistake(families)),
    ];
    let bless = env::var_os("TILEWRIGHT_BLESS").is_some_and(|value| value == "1");
    let mut differences = Vec::new();
    for (file, name, expected) in parts {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (begin, end) = (format!("<!-- corpus: {name} -->\n"), "<!-- end of corpus -->");
        let expected = format!("\n{expected}\n");
        let Some((before, (found, after))) =
            text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?)))
        else {
            differences.push(format!("{file} has no part `{name}`"));
            continue;
        };
        if bless {
            fs::write(&path, format!("{before}{begin}{expected}{end}{after}")).unwrap();
        } else if found != expected {
            let lines = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
            let (found, expected) = lines.unwrap_or(("fewer lines, or more", "others"));
            differences.push(format!("{file}, `{name}`, has\n  {found}\nwhere the corpus has\n  {expected}"));
        }
    }
    differences
}
