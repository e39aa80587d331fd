//! What has come of it, as Markdown: counts, and every site that nobody has told of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::equivalent::{Equivalent, Sources};
use super::sites::{Found, Site};
use super::{Outcome, Tried};

/// What the parts of the report begin with.
pub(super) const SITES: &str = "## By site";
pub(super) const CHOSEN: &str = "## Chosen changes of the source";

const INTRODUCTION: &str = "\
# Changes of the kernels, and what tells of them

Written by `cargo xtask mutants --report`: every kernel computes its products of `tests/src/suite.rs` on the executor, and each operation
of other kernels, those of `gpu-kernels/patterns` among them, its small cases, with one thing done in another way.

A *site* is a place in the kernels' source, what is asked for there (a barrier, a load, …), and one way to do something else: every change that
the executor knows (`cuda_std::executor::Change`), at every place that any case comes to. A site counts once, whatever kernels come to it. Cases are
run for it, those first that take least, until a check of the executor tells, or a result is wrong. *Chosen* changes are of what is no operation of a
GPU, but arithmetic or control flow; they are listed in `xtask/src/mutants/chosen.rs`.
";

/// Counts of sites.
#[derive(Default)]
struct Counts {
    check: usize,
    result: usize,
    time: usize,
    equivalent: usize,
    survived: usize,
}

impl Counts {
    fn add(&mut self, site: &Site) {
        *match (&site.outcome, site.equivalent) {
            (_, Some(_)) => &mut self.equivalent,
            (Outcome::Check(_) | Outcome::NotCompiled(_), _) => &mut self.check,
            (Outcome::WrongResult(_), _) => &mut self.result,
            (Outcome::NoEnd, _) => &mut self.time,
            (Outcome::Survived, _) => &mut self.survived,
        } += 1;
    }

    fn cells(&self) -> [usize; 7] {
        let Self { check, result, time, equivalent, survived } = *self;
        let caught = check + result + time;
        [caught + survived + equivalent, caught, check, result, time, equivalent, survived]
    }
}

const HEADINGS: [&str; 7] =
    ["sites", "caught", "by a check", "by a wrong result", "by the time limit", "equivalent", "survived"];

/// The counts of each group of sites, and of all.
fn counted<'a>(found: &'a Found, group: impl Fn(&'a Site) -> String) -> Vec<(String, [usize; 7])> {
    let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
    let mut all = Counts::default();
    for site in &found.sites {
        groups.entry(group(site)).or_default().add(site);
        all.add(site);
    }
    let groups = groups.into_iter().map(|(name, counts)| (name, counts.cells()));
    groups.chain([("all".to_owned(), all.cells())]).collect()
}

/// What a change is about.
fn kind(site: &Site) -> String {
    let [_, function, change] = site.parts();
    let kind = change.split(|sign: char| !sign.is_alphabetic()).next().unwrap_or_default();
    if kind == "index" { format!("{kind}, {function}") } else { kind.to_owned() }
}

/// What is printed at the end.
pub(super) fn summary(found: &Found) -> String {
    let mut text = String::new();
    let mut table = crate::workspace::table([&["change"], &HEADINGS[..]].concat().try_into().unwrap_or([""; 8]));
    for (name, cells) in counted(found, kind) {
        table.add_row([name].into_iter().chain(cells.map(|cell| cell.to_string())));
    }
    _ = writeln!(text, "{table}");
    found.survivors().for_each(|site| _ = writeln!(text, "  survived: {}", site.name));
    let counted = found.counted().count();
    _ = write!(
        text,
        "{} of {counted} sites caught, {:.1} %; {} more are equivalent",
        counted - found.survivors().count(),
        found.caught(),
        found.sites.len() - counted
    );
    if let Some(seed) = found.seed {
        _ = write!(text, " (a sample of {}, with seed {seed})", found.of);
    }
    text
}

/// The part about sites.
pub(super) fn of_sites(found: &Found) -> String {
    let (counted_sites, survivors) = (found.counted().count(), found.survivors().count());
    let mut text = format!(
        "{SITES}: {} of {counted_sites} caught, {:.1} %\n\n{} more are left out of the count: they are equivalent, with a proof each.\n",
        counted_sites - survivors,
        found.caught(),
        found.sites.len() - counted_sites
    );
    for (title, rows) in
        [("kind of change", counted(found, kind)), ("file", counted(found, |site| format!("`{}`", site.file())))]
    {
        _ = writeln!(text, "\n| {title} | {} |\n|---|{}", HEADINGS.join(" | "), "---:|".repeat(HEADINGS.len()));
        for (name, cells) in rows {
            _ = writeln!(text, "| {name} | {} |", cells.map(|cell| cell.to_string()).join(" | "));
        }
    }
    let sources = Sources::default();
    if survivors > 0 {
        text += "\nNobody has told of these:\n\n| file | line | what | change |\n|---|---|---|---|\n";
        for site in found.survivors() {
            let [place, function, change] = site.parts();
            let line = sources.of_place(place).unwrap_or_default();
            _ = writeln!(text, "| `{}` | `{}` | {function} | {change} |", site.file(), cell(&line));
        }
    }
    let mut entries: BTreeMap<(&str, &str, &str), (usize, &Equivalent)> = BTreeMap::new();
    for entry in found.sites.iter().filter_map(|site| site.equivalent) {
        entries.entry((entry.file, entry.line, entry.function)).or_insert((0, entry)).0 += 1;
    }
    if !entries.is_empty() {
        text +=
            "\nThese are equivalent:\n\n| file | line | what | changes | sites | why |\n|---|---|---|---|---:|---|\n";
        for (count, Equivalent { file, line, function, changes, proof, .. }) in entries.values() {
            let line = cell(line);
            _ = writeln!(text, "| `{file}` | `{line}` | {function} | {} | {count} | {proof} |", changes.join(", "));
        }
    }
    text
}

/// The part about changes that have been chosen.
pub(super) fn of_chosen(tried: &[Tried]) -> String {
    let caught = tried.iter().filter(|tried| !matches!(tried.outcome, Outcome::Survived)).count();
    let share = 100.0 * caught as f64 / tried.len().max(1) as f64;
    let mut text = format!("{CHOSEN}: {caught} of {} caught, {share:.1} %\n\n", tried.len());
    let mut files: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for Tried { name, outcome } in tried {
        let counts = files.entry(name.split(": ").next().unwrap_or_default()).or_default();
        counts[0] += 1;
        match outcome {
            Outcome::Check(_) | Outcome::NotCompiled(_) => counts[1] += 1,
            Outcome::WrongResult(_) | Outcome::NoEnd => counts[2] += 1,
            Outcome::Survived => counts[3] += 1,
        }
    }
    text += "| file | changes | by a check | by a wrong result, or no end | survived |\n|---|---:|---:|---:|---:|\n";
    for (file, counts) in files {
        _ = writeln!(text, "| `{file}` | {} |", counts.map(|count| count.to_string()).join(" | "));
    }
    for Tried { name, .. } in tried.iter().filter(|tried| matches!(tried.outcome, Outcome::Survived)) {
        _ = writeln!(text, "\nNobody has told of: {name}.");
    }
    text
}

/// Writes a part of a report, and leaves the other as it is.
pub(super) fn write(path: &Path, heading: &str, part: &str) -> anyhow::Result<()> {
    let before = fs::read_to_string(path).unwrap_or_default();
    fs::write(path, with_part(&before, heading, part)).with_context(|| format!("writing {}", path.display()))
}

fn with_part(before: &str, heading: &str, part: &str) -> String {
    let of = |wanted: &str| match (wanted == heading, before.split_once(wanted)) {
        (true, _) => part.trim_end().to_owned(),
        (false, Some((_, rest))) => format!("{wanted}{}", rest.split("\n## ").next().unwrap_or_default().trim_end()),
        (false, None) => String::new(),
    };
    let parts = [INTRODUCTION.trim_end().to_owned(), of(SITES), of(CHOSEN)];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}\n", parts.join("\n\n"))
}

/// The words of a cell: no more than fit, and nothing that means something in a table.
fn cell(words: &str) -> String {
    const MOST: usize = 120;
    let short: String = words.chars().take(MOST).collect();
    let dots = if short.len() < words.len() { " …" } else { "" };
    format!("{}{dots}", short.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_and_the_other_stays() {
        let first = with_part("something older", SITES, &format!("{SITES}: 1 of 2\n\na table\n"));
        assert!(first.starts_with(INTRODUCTION) && first.ends_with("## By site: 1 of 2\n\na table\n"), "{first}");
        let both = with_part(&first, CHOSEN, &format!("{CHOSEN}: 3 of 3\n"));
        assert!(both.contains("1 of 2\n\na table\n\n## Chosen changes of the source: 3 of 3\n"), "{both}");
        let again = with_part(&both, SITES, &format!("{SITES}: 2 of 2"));
        assert!(
            again.contains("2 of 2\n\n## Chosen") && again.contains("3 of 3\n") && !again.contains("table"),
            "{again}"
        );
    }

    #[test]
    fn chosen_changes_are_counted_by_file() {
        let of = |name: &str, outcome| Tried { name: name.to_owned(), outcome };
        let told = || Outcome::Check("a race".to_owned());
        let text = of_chosen(&[of("a.rs: stops early", told()), of("a.rs: goes on", Outcome::Survived)]);
        assert!(text.contains("1 of 2 caught, 50.0 %") && text.contains("| `a.rs` | 2 | 1 | 0 | 1 |"), "{text}");
        assert!(text.contains("Nobody has told of: a.rs: goes on."), "{text}");
    }
}
