//! Two kernels, or two builds of one: what they need, what they are made of, and where their machine code differs.
//!
//! ```text
//!  before                     after
//!  src/lib.rs:40  LDG.E  ──── src/lib.rs:42  LDG.E.128        lines are paired by what is written in them,
//!                             src/lib.rs:43  FFMA             instructions by what is left of them when registers and labels
//!                                                             are numbered as they come: FFMA r0, r1, r2, r0
//! ```

use std::collections::HashMap;

use serde::Serialize;

use super::html::{document, escape};
use super::view::{Row, rows, shown};
use crate::code::{Class, Code, Listing, RustLine};
use crate::style::{Style, Tone};

/// What one of two pieces of code has, and the other has not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// What can be counted: a name, before, after.
    pub(super) figures: Vec<(String, u64, u64)>,
    /// Lines of Rust whose machine code differs.
    pub(super) lines: Vec<Difference>,
    /// How many lines of Rust have the same machine code.
    pub(super) same: usize,
}

/// A line of Rust whose machine code differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// The line before, if there was one.
    pub(super) before: Option<RustLine>,
    /// The line after, if there is one.
    pub(super) after: Option<RustLine>,
    /// What is written there.
    pub(super) text: String,
    /// The instructions: ` ` for what both have, `-` and `+` for what only one has; with the registers and labels of the code that it is of.
    pub(super) code: Vec<(char, String)>,
}

/// So many cells of a table are worked out to find what two lists have in common, and no more.
const MOST_CELLS: usize = 16 << 20;

/// Which elements of two lists are the same, in order: the longest such sequence, or that of equal beginnings and ends if the lists are long.
fn longest<T: PartialEq>(a: &[T], b: &[T]) -> Vec<(usize, usize)> {
    let begin = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let end = a[begin..].iter().rev().zip(b[begin..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (middle_a, middle_b) = (&a[begin..a.len() - end], &b[begin..b.len() - end]);
    let mut pairs: Vec<_> = (0..begin).map(|index| (index, index)).collect();
    let (n, m) = (middle_a.len(), middle_b.len());
    if (n + 1).saturating_mul(m + 1) <= MOST_CELLS {
        let at = |i: usize, j: usize| i * (m + 1) + j;
        let mut lengths = vec![0u32; (n + 1) * (m + 1)];
        for i in (0..n).rev() {
            for j in (0..m).rev() {
                lengths[at(i, j)] = if middle_a[i] == middle_b[j] {
                    lengths[at(i + 1, j + 1)] + 1
                } else {
                    lengths[at(i + 1, j)].max(lengths[at(i, j + 1)])
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < n && j < m {
            if middle_a[i] == middle_b[j] {
                pairs.push((begin + i, begin + j));
                (i, j) = (i + 1, j + 1);
            } else if lengths[at(i + 1, j)] >= lengths[at(i, j + 1)] {
                i += 1;
            } else {
                j += 1;
            }
        }
    }
    pairs.extend((0..end).map(|index| (a.len() - end + index, b.len() - end + index)));
    pairs
}

/// Instructions with registers, predicates and labels numbered in the order in which they come.
fn normalized<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut number = |kind: &'static str, name: &str| {
        let next = counts.entry(kind).or_insert(0);
        let number = *numbers.entry(name.to_owned()).or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        format!("{kind}{number}")
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    texts
        .map(|text| {
            let mut out = String::new();
            let mut rest = text;
            while let Some(first) = rest.chars().next() {
                let label =
                    rest.strip_prefix(".L_").map(|after| 3 + after.find(|c| !is_word(c)).unwrap_or(after.len()));
                let end =
                    label.or_else(|| Some(rest.find(|c| !is_word(c)).unwrap_or(rest.len())).filter(|&end| end > 0));
                let (word, after) = rest.split_at(end.unwrap_or(first.len_utf8()));
                let kind = match word.trim_end_matches(|c: char| c.is_ascii_digit()) {
                    _ if label.is_some() => Some("label"),
                    "R" if word.len() > 1 => Some("r"),
                    "UR" if word.len() > 2 => Some("ur"),
                    "P" if word.len() > 1 => Some("p"),
                    "UP" if word.len() > 2 => Some("up"),
                    _ => None,
                };
                // `.reuse` is a hint of the assembler's about which it chose.
                match kind {
                    Some(kind) => out += &number(kind, word),
                    None => out += word,
                }
                rest = after.strip_prefix(".reuse").unwrap_or(after);
            }
            out
        })
        .collect()
}

impl Comparison {
    pub(super) fn of(before: &Code, after: &Code) -> Self {
        let figures = figures(before, after);
        let (Some(a), Some(b)) = (&before.listing, &after.listing) else { return Self { figures, ..Self::default() } };
        let with_code =
            |listing| rows(listing).into_iter().filter(|row: &Row<'_>| !row.sass.is_empty()).collect::<Vec<_>>();
        let (rows_a, rows_b) = (with_code(a), with_code(b));
        let key = |row: &Row<'_>| (row.line.map(|line| line.file.clone()), row.text.trim().to_owned());
        let (keys_a, keys_b): (Vec<_>, Vec<_>) = (rows_a.iter().map(key).collect(), rows_b.iter().map(key).collect());
        let (mut lines, mut same) = (Vec::new(), 0);
        let mut add = |row_a: Option<&Row<'_>>, row_b: Option<&Row<'_>>| match difference((a, row_a), (b, row_b)) {
            Some(difference) => lines.push(difference),
            None => same += 1,
        };
        let (mut i, mut j) = (0, 0);
        for (pair_a, pair_b) in longest(&keys_a, &keys_b).into_iter().chain([(rows_a.len(), rows_b.len())]) {
            for (row_a, row_b) in edited(&rows_a[i..pair_a], &rows_b[j..pair_b]) {
                add(row_a, row_b);
            }
            if pair_a < rows_a.len() {
                add(Some(&rows_a[pair_a]), Some(&rows_b[pair_b]));
            }
            (i, j) = (pair_a + 1, pair_b + 1);
        }
        Self { figures, lines, same }
    }
}

/// Lines that are alike, in order: those that were edited. The others alone.
fn edited<'a, 'b>(a: &'b [Row<'a>], b: &'b [Row<'a>]) -> Vec<(Option<&'b Row<'a>>, Option<&'b Row<'a>>)> {
    let file = |row: &Row<'_>| row.line.map(|line| line.file.clone());
    let mut pairs = Vec::new();
    let mut next = 0;
    for row_a in a {
        let is_alike = |row_b: &Row<'_>| {
            file(row_a) == file(row_b) && strsim::normalized_levenshtein(row_a.text.trim(), row_b.text.trim()) > ALIKE
        };
        match b[next..].iter().position(is_alike) {
            Some(at) => {
                pairs.extend(b[next..next + at].iter().map(|row| (None, Some(row))));
                pairs.push((Some(row_a), Some(&b[next + at])));
                next += at + 1;
            }
            None => pairs.push((Some(row_a), None)),
        }
    }
    pairs.extend(b[next..].iter().map(|row| (None, Some(row))));
    pairs
}

/// How much of a line stays when it is edited.
const ALIKE: f64 = 0.4;

/// Where the machine code of two lines differs; nothing if it does not.
fn difference(
    (a, row_a): (&Listing, Option<&Row<'_>>),
    (b, row_b): (&Listing, Option<&Row<'_>>),
) -> Option<Difference> {
    let texts = |listing: &Listing, row: Option<&Row<'_>>| -> Vec<String> {
        row.map_or_else(Vec::new, |row| row.sass.iter().map(|&sass| listing.sass[sass].text.clone()).collect())
    };
    let (before, after) = (texts(a, row_a), texts(b, row_b));
    let (normal_before, normal_after) =
        (normalized(before.iter().map(String::as_str)), normalized(after.iter().map(String::as_str)));
    if normal_before == normal_after {
        return None;
    }
    let mut code = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (pair_a, pair_b) in longest(&normal_before, &normal_after).into_iter().chain([(before.len(), after.len())]) {
        code.extend(before[i..pair_a].iter().map(|text| ('-', text.clone())));
        code.extend(after[j..pair_b].iter().map(|text| ('+', text.clone())));
        code.extend(after.get(pair_b).map(|text| (' ', text.clone())));
        (i, j) = (pair_a + 1, pair_b + 1);
    }
    let line = |row: Option<&Row<'_>>| row.and_then(|row| row.line).cloned();
    let text = row_b.or(row_a).map_or("", |row| row.text.trim()).to_owned();
    Some(Difference { before: line(row_a), after: line(row_b), text, code })
}

fn figures(before: &Code, after: &Code) -> Vec<(String, u64, u64)> {
    type Figure = (&'static str, fn(&Code) -> u64);
    let of_machine: [Figure; 8] = [
        ("registers", |code| code.machine.as_ref().map_or(0, |it| it.resources.registers.into())),
        ("spilled bytes", |code| code.machine.as_ref().map_or(0, |it| it.resources.spill_bytes())),
        ("stack bytes", |code| code.machine.as_ref().map_or(0, |it| it.resources.stack_bytes.into())),
        ("static shared bytes", |code| code.static_shared_bytes),
        ("dynamic shared bytes", |code| code.dynamic_shared_bytes.into()),
        ("blocks on a multiprocessor", |code| occupancy(code).map_or(0, |it| it.blocks.into())),
        ("warps on a multiprocessor", |code| occupancy(code).map_or(0, |it| it.warps.into())),
        ("instructions", |code| code.machine.as_ref().map_or(0, |it| it.instructions as u64)),
    ];
    let mut figures: Vec<_> = of_machine.iter().map(|(what, of)| ((*what).to_owned(), of(before), of(after))).collect();
    let count = |code: &Code, class: Class, name: Option<&str>| -> u64 {
        let counts = code.machine.as_ref().map_or(&[][..], |machine| &machine.counts);
        let wanted = counts.iter().filter(|count| count.class == class && name.is_none_or(|name| count.name == name));
        wanted.map(|count| count.count as u64).sum()
    };
    for class in Class::ALL {
        let of_class = (class.name().to_owned(), count(before, class, None), count(after, class, None));
        if (of_class.1, of_class.2) == (0, 0) {
            continue;
        }
        figures.push(of_class);
        let mut names: Vec<&str> = [before, after]
            .into_iter()
            .flat_map(|code| code.machine.as_ref().map_or(&[][..], |machine| &machine.counts))
            .filter(|count| count.class == class)
            .map(|count| count.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let of_name =
            |name: &str| (format!("  {name}"), count(before, class, Some(name)), count(after, class, Some(name)));
        figures.extend(names.into_iter().map(of_name).filter(|(_, before, after)| before != after));
    }
    figures
}

fn occupancy(code: &Code) -> Option<&gpu_facts::Occupancy> {
    code.machine.as_ref().ok()?.occupancy.as_ref()
}

/// Where a difference is: `src/lib.rs:40 → src/lib.rs:42`.
fn place(difference: &Difference) -> String {
    match (&difference.before, &difference.after) {
        (Some(before), Some(after)) if before == after => shown(after),
        (Some(before), Some(after)) => format!("{} → {}", shown(before), shown(after)),
        (Some(before), None) => format!("{}, before only", shown(before)),
        (None, Some(after)) => format!("{}, after only", shown(after)),
        (None, None) => "of no line".to_owned(),
    }
}

/// A comparison in the terminal.
pub(super) fn text(names: [&str; 2], comparison: &Comparison, style: &Style) -> String {
    let mut out = format!("{}\n\n", style.paint(Tone::Strong, format!("{} → {}", names[0], names[1])));
    for (what, before, after) in &comparison.figures {
        let line = format!("  {what:<28}{before:>9}{after:>9}");
        let change = i128::from(*after) - i128::from(*before);
        let tone = if change == 0 { Tone::Faint } else { Tone::Strong };
        let change = if change == 0 { String::new() } else { format!("{change:>+9}") };
        out += &format!("{}\n", style.paint(tone, line + &change));
    }
    out += &format!(
        "\nmachine code, with registers and labels numbered as they come: {} lines of Rust have the same, {} have not\n",
        comparison.same,
        comparison.lines.len()
    );
    for difference in &comparison.lines {
        out += &format!("\n{}  {}\n", style.paint(Tone::Strong, place(difference)), difference.text);
        for (sign, text) in &difference.code {
            let tone = match sign {
                '-' => Tone::Bad,
                '+' => Tone::Good,
                _ => Tone::Faint,
            };
            out += &format!("  {}\n", style.paint(tone, format!("{sign} {text}")));
        }
    }
    out
}

/// A comparison as a page.
pub(super) fn page(names: [&str; 2], comparison: &Comparison) -> String {
    let title = format!("{} → {}", names[0], names[1]);
    let mut body = format!(
        "<h1>{}</h1>\n<h2>What they need, and what they are made of</h2>\n<table>\n<thead><tr><th scope=\"col\">what</th><th scope=\"col\" class=\"number\">before</th>\
         <th scope=\"col\" class=\"number\">after</th><th scope=\"col\" class=\"number\">change</th></tr></thead>\n<tbody>\n",
        escape(&title)
    );
    for (what, before, after) in &comparison.figures {
        let change = i128::from(*after) - i128::from(*before);
        let change = if change == 0 { String::new() } else { format!("{change:+}") };
        body += &format!(
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{before}</td><td class=\"number\">{after}</td><td class=\"number\">{change}</td></tr>\n",
            escape(what).replace("  ", "&emsp;")
        );
    }
    body += &format!(
        "</tbody></table>\n<h2>Machine code by line</h2>\n<p class=\"note\">Registers and labels are numbered as they come. {} lines of Rust have the same machine code, \
         {} have not.</p>\n<table class=\"code\">\n<thead><tr><th scope=\"col\">line</th><th scope=\"col\">Rust</th><th scope=\"col\">SASS</th></tr></thead>\n<tbody>\n",
        comparison.same,
        comparison.lines.len()
    );
    for difference in &comparison.lines {
        let code = difference.code.iter().map(|(sign, text)| {
            let text = escape(text);
            match sign {
                '-' => format!("<li><del>- {text}</del></li>"),
                '+' => format!("<li><ins>+ {text}</ins></li>"),
                _ => format!("<li>&nbsp; {text}</li>"),
            }
        });
        body += &format!(
            "<tr><td>{}</td><td>{}</td><td><ol>{}</ol></td></tr>\n",
            escape(&place(difference)),
            escape(&difference.text),
            code.collect::<String>()
        );
    }
    document(&title, &(body + "</tbody></table>\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::code;

    #[test]
    fn what_two_lists_have_in_common() {
        let common = |a: &str, b: &str| {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            longest(&a, &b).into_iter().map(|(i, j)| (a[i] == b[j]).then_some(a[i]).unwrap()).collect::<String>()
        };
        assert_eq!(common("abcdef", "abxcdyef"), "abcdef");
        assert_eq!(common("abc", "xyz"), "");
        assert_eq!(common("", "a"), "");
        assert_eq!(common("xaybzc", "1a2b3c"), "abc");
    }

    #[test]
    fn registers_and_labels_lose_their_names() {
        let normal = |texts: &[&str]| normalized(texts.iter().copied()).join("; ");
        let one = normal(&["@!P0 FFMA R4, R9.reuse, c[0x0][0x28c], R4", "BRA `(.L_x_12)", "MOV R5, UR4"]);
        assert_eq!(one, "@!p0 FFMA r0, r1, c[0x0][0x28c], r0; BRA `(label0); MOV r2, ur0");
        assert_eq!(one, normal(&["@!P3 FFMA R7, R1, c[0x0][0x28c], R7", "BRA `(.L_x_3)", "MOV R8, UR6"]));
        assert_ne!(one, normal(&["@!P3 FFMA R7, R1, c[0x0][0x28c], R1", "BRA `(.L_x_3)", "MOV R8, UR6"]));
        assert_eq!(normal(&["HMMA.1688.F32.TF32 R4, R8, RZ, PT"]), "HMMA.1688.F32.TF32 r0, r1, RZ, PT");
    }

    #[test]
    fn lines_are_paired_by_what_is_written_there() {
        let before = code(&[(1, "let x = a;", &["LDG R1, [R2]"]), (2, "x + x", &["FADD R3, R1, R1", "EXIT"])]);
        let after = code(&[
            (1, "// new", &["NOP"]),
            (2, "let x = a;", &["LDG R7, [R4]"]),
            (3, "x + x", &["FMUL R3, R1, 2", "EXIT"]),
        ]);
        let comparison = Comparison::of(&before, &after);
        assert_eq!((comparison.same, comparison.lines.len()), (1, 2));
        let shown: Vec<_> = comparison.lines.iter().map(|it| (place(it), it.code.clone())).collect();
        assert_eq!(shown[0], ("src/lib.rs:1, after only".to_owned(), vec![('+', "NOP".to_owned())]));
        let changed = [('-', "FADD R3, R1, R1"), ('+', "FMUL R3, R1, 2"), (' ', "EXIT")];
        assert_eq!(
            shown[1],
            ("src/lib.rs:2 → src/lib.rs:3".to_owned(), changed.map(|(sign, text)| (sign, text.to_owned())).to_vec())
        );
        assert_eq!(Comparison::of(&before, &before).lines, []);
        let text = text(["k", "k"], &comparison, &Style::plain());
        assert!(text.contains("- FADD R3") && text.contains("1 lines of Rust have the same, 2 have not"), "{text}");
        assert!(page(["k", "k"], &comparison).contains("<del>- FADD R3, R1, R1</del>"));
        let edited = code(&[
            (1, "let x = a;", &["LDG R1, [R2]"]),
            (2, "x + x + 1.0", &["FADD R3, R1, R1", "FADD R3, R3, 1", "EXIT"]),
        ]);
        let comparison = Comparison::of(&before, &edited);
        assert_eq!(comparison.lines.len(), 1);
        assert_eq!((place(&comparison.lines[0]), comparison.lines[0].code.len()), ("src/lib.rs:2".to_owned(), 3));
    }
}
