//! A round as text: what is wrong first, then what the kernel was compiled to, then what has changed.

use std::fmt::Write as _;

use super::compiled::Compiled;
use super::host::{Accuracy, Checked, Checks};
use super::round::{Change, More, Round};
use crate::code::{Class, Code, Machine};
use crate::style::{Style, Tone};

/// How many failures of an operation are told in full.
const SHOWN: usize = 1;

/// Where what is said begins, behind what it is about.
const INDENT: usize = 14;

pub(super) fn text(round: &Round, difference: &[Change], style: Style) -> String {
    let mut text = String::new();
    let mut line = |label: &str, what: String| {
        let label = style.paint(Tone::Faint, format!("{label:<width$}", width = INDENT - 2));
        writeln!(text, "  {label}{what}").expect("writing to a String");
    };
    for warning in &round.warnings {
        line("", style.paint(Tone::Warning, warning));
    }
    match &round.checks {
        Checks::Checked { operations, said, .. } => {
            for operation in operations {
                line("checks", checked(operation, style));
            }
            if !said.is_empty() {
                line("", said.trim_end().replace('\n', &format!("\n{}", " ".repeat(INDENT))));
            }
        }
        // As rustc has written it, from the first column on.
        Checks::DoesNotCompile { errors } => {
            line("compile", style.paint(Tone::Bad, "does not compile"));
            text_of_errors(&mut text, errors);
        }
        Checks::DidNotEnd { seconds } => line(
            "checks",
            style.paint(
                Tone::Bad,
                style.wrap(&format!(
                    "have not ended after {seconds} s, and were ended: a loop in the kernel that never ends, or cases that are too large \
                     (`--limit SECONDS` allows more)"
                ), INDENT),
            ),
        ),
        Checks::NoOperation => line(
            "checks",
            style.paint(Tone::Warning, format!("none: no operation of the program launches `{}`", round.kernel)),
        ),
        Checks::NoProgram { why } => line("checks", style.paint(Tone::Warning, style.wrap(&format!("none: {why}"), INDENT))),
        Checks::Failed { why } => {
            line("checks", style.paint(Tone::Bad, "could not be made"));
            text_of_errors(&mut text, std::slice::from_ref(why));
        }
    }
    if !round.has_the_same_errors() {
        compiled(&mut text, &round.compiled, style);
    }
    if !difference.is_empty() {
        let changes: Vec<_> = difference.iter().map(|change| shown(change, style)).collect();
        let label = style.paint(Tone::Faint, format!("{:<width$}", "changed", width = INDENT - 2));
        writeln!(text, "  {label}{}", changes.join(", ")).expect("writing to a String");
    }
    let (tone, verdict) = if round.is_right() { (Tone::Good, "right") } else { (Tone::Bad, "wrong") };
    let head = format!("{}  {}", style.paint(Tone::Strong, &round.kernel), style.paint(tone, verdict));
    let took = format!(
        "{:.1} s (checks {:.1} s, code {:.1} s)",
        round.seconds(),
        round.checked_after.as_secs_f64(),
        round.compiled_after.as_secs_f64()
    );
    format!("{head}  {}\n{text}", style.paint(Tone::Faint, took))
}

/// What a compiler has written, as it is.
fn text_of_errors(text: &mut String, errors: &[String]) {
    for error in errors {
        writeln!(text, "{}", error.trim_end()).expect("writing to a String");
    }
}

fn checked(Checked { operation, cases }: &Checked, style: Style) -> String {
    let right: Vec<Accuracy> = cases.iter().filter_map(|case| case.accuracy).collect();
    let failures: Vec<_> = cases.iter().filter_map(|case| Some((&case.sizes, case.failure.as_ref()?))).collect();
    let part = right.iter().map(|accuracy| accuracy.part_of_bound).fold(0.0, f64::max);
    let elements: u64 = right.iter().map(|accuracy| accuracy.elements).sum();
    let tone = if failures.is_empty() { Tone::Good } else { Tone::Bad };
    let count = style.paint(tone, format!("{} of {} cases right", right.len(), cases.len()));
    let mut text =
        format!("{operation}: {count}, {elements} elements, errors up to {:.0} % of what is allowed", 100.0 * part);
    for (sizes, failure) in failures.iter().take(SHOWN) {
        write!(text, "\n    {} with {sizes}: {failure}", style.paint(Tone::Bad, "FAILED"))
            .expect("writing to a String");
    }
    if failures.len() > SHOWN {
        write!(text, "\n    and {} more", failures.len() - SHOWN).expect("writing to a String");
    }
    text
}

fn compiled(text: &mut String, compiled: &Compiled, style: Style) {
    let mut line = |label: &str, what: &str| {
        let label = style.paint(Tone::Faint, format!("{label:<width$}", width = INDENT - 2));
        writeln!(text, "  {label}{what}").expect("writing to a String");
    };
    match compiled {
        Compiled::Code(code) => {
            let (needs, classes) = needs(code, style);
            line(&code.arch, &needs);
            if let Some(classes) = classes {
                line("", &style.wrap(&classes, INDENT));
            }
            let advice = code.machine.iter().flat_map(|machine| &machine.warnings);
            advice.for_each(|warning| line("", &style.paint(Tone::Warning, style.wrap(warning, INDENT))));
        }
        Compiled::NoToolchain { why } => line("code", &style.paint(Tone::Warning, style.wrap(why, INDENT))),
        Compiled::Failed { why } => {
            line("code", &style.paint(Tone::Bad, "cannot be made"));
            writeln!(text, "{}", why.trim_end()).expect("writing to a String");
        }
    }
}

/// What a kernel needs, and its instructions by class.
fn needs(code: &Code, style: Style) -> (String, Option<String>) {
    let shared = code.static_shared_bytes + u64::from(code.dynamic_shared_bytes);
    let [x, y, z] = code.block;
    let block = format!("{x}×{y}×{z} threads, {shared} B shared memory");
    let machine = match &code.machine {
        Ok(machine) => machine,
        Err(why) => {
            return (
                format!("{block}\n{}{}", " ".repeat(INDENT), style.paint(Tone::Warning, style.wrap(why, INDENT))),
                None,
            );
        }
    };
    let spills = match machine.resources.spill_bytes() {
        0 => "no spills".to_owned(),
        bytes => style.paint(Tone::Warning, format!("{bytes} B of spills")),
    };
    let occupancy = machine.occupancy.as_ref().map_or_else(String::new, |occupancy| {
        let limits: Vec<_> = occupancy.limited_by().collect();
        let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join(", ")) };
        format!(", {} of {} warps on a multiprocessor{limits}", occupancy.warps, occupancy.most_warps)
    });
    (format!("{} registers, {spills}, {block}{occupancy}", machine.resources.registers), Some(classes(machine)))
}

fn classes(machine: &Machine) -> String {
    let of = |class: Class| match machine.of_class(class) {
        0 => None,
        count => Some(format!("{count} {}", class.name())),
    };
    let classes: Vec<_> = Class::ALL.into_iter().filter_map(of).collect();
    format!("{} instructions: {}", machine.instructions, classes.join(", "))
}

fn shown(Change { what, before, now, more }: &Change, style: Style) -> String {
    let tone = match (more, now > before) {
        (More::Neither, _) => Tone::Strong,
        (More::Better, true) | (More::Worse, false) => Tone::Good,
        (More::Better, false) | (More::Worse, true) => Tone::Warning,
    };
    format!("{what} {before} → {}", style.paint(tone, now))
}
