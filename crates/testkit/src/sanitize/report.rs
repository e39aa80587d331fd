//! What the tools have found: as a table for people, and as JSON for machines.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tool::Tool;

/// What the tools have found in the operations of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SanitizeReport {
    /// The GPU.
    pub device: String,
    /// `compute-sanitizer`, as it was called.
    pub compute_sanitizer: PathBuf,
    /// Its version.
    pub compute_sanitizer_version: String,
    /// The tools, in the order in which they ran.
    pub tools: Vec<ToolReport>,
}

/// What one tool has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolReport {
    /// The tool.
    pub tool: Tool,
    /// The planted fault that it had to report. Without one, nothing shows that the tool finds anything here.
    pub planted: Option<String>,
    /// The kernel with that fault.
    #[serde(default)]
    pub planted_kernel: Option<String>,
    /// Whether it was reported, by the kernel's name.
    pub planted_reported: bool,
    /// The first lines that the tool wrote about the planted fault, and the last ones that the program wrote.
    pub planted_log: Vec<String>,
    /// The kernels that it has looked at.
    pub kernels: Vec<String>,
    /// Those of which it does not see enough.
    pub left_out: Vec<String>,
    /// What it has found in the kernels.
    pub outcome: Outcome,
    /// How long the kernels took.
    pub seconds: f64,
}

/// What has been found in kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The errors that the tool counts.
    pub errors: u64,
    /// Its warnings.
    pub warnings: u64,
    /// What else went wrong: a program that did not end well, a log that cannot be read.
    pub problems: Vec<String>,
    /// Lines of logs, and of what the program wrote, where something was found.
    pub excerpt: Vec<String>,
}

impl Outcome {
    /// Adds what was found in another run.
    pub(super) fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.warnings += other.warnings;
        self.problems.extend(other.problems);
        self.excerpt.extend(other.excerpt);
    }
}

impl ToolReport {
    /// Whether the tool has reported its planted fault, if there is one, and no other. Warnings are for people to explain.
    pub fn passed(&self) -> bool {
        let is_shown_to_work = self.planted.is_none() || self.planted_reported;
        is_shown_to_work && self.outcome.errors == 0 && self.outcome.problems.is_empty()
    }

    /// What became of the planted fault.
    fn planted_word(&self) -> &'static str {
        match (&self.planted, self.planted_reported) {
            (None, _) => "none",
            (Some(_), true) => "reported",
            (Some(_), false) => "NOT REPORTED",
        }
    }

    /// One line that says what was found.
    pub fn line(&self) -> String {
        let fault = self.planted.as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default();
        let Outcome { errors, warnings, problems, .. } = &self.outcome;
        format!(
            "{}: planted fault{fault} {}; {} kernels, {errors} errors, {warnings} warnings, {} problems",
            self.tool,
            self.planted_word(),
            self.kernels.len(),
            problems.len()
        )
    }
}

/// Whether every tool has reported its planted fault and no other, and one of them has looked at a kernel.
pub fn passed(tools: &[ToolReport]) -> bool {
    tools.iter().all(ToolReport::passed) && tools.iter().any(|tool| !tool.kernels.is_empty())
}

/// All tools in a table, with what they have found below it.
pub fn table(tools: &[ToolReport]) -> String {
    let heads = ["tool", "planted fault", "kernels", "left out", "errors", "warnings", "problems", "s", "check"];
    let rows = tools.iter().map(|tool| {
        let Outcome { errors, warnings, problems, .. } = &tool.outcome;
        let check = match (tool.passed(), tool.kernels.is_empty()) {
            (false, _) => "FAILED",
            (true, true) => "nothing",
            (true, false) => "ok",
        };
        [
            tool.tool.to_string(),
            tool.planted_word().to_owned(),
            tool.kernels.len().to_string(),
            tool.left_out.len().to_string(),
            errors.to_string(),
            warnings.to_string(),
            problems.len().to_string(),
            format!("{:.0}", tool.seconds),
            check.to_owned(),
        ]
    });
    let mut text = format!("\n{}", aligned(&heads, &rows.collect::<Vec<_>>()));
    for tool in tools {
        if let (Some(fault), false) = (&tool.planted, tool.planted_reported) {
            let kernel = tool.planted_kernel.as_ref().unwrap_or(fault);
            text += &format!("  {}: the kernel `{kernel}` was to be reported:\n", tool.tool);
            tool.planted_log.iter().for_each(|line| text += &format!("    {line}\n"));
        }
        tool.outcome.problems.iter().for_each(|problem| text += &format!("  {}: {problem}\n", tool.tool));
        tool.outcome.excerpt.iter().for_each(|line| text += &format!("    {line}\n"));
    }
    let unproven: Vec<_> = tools.iter().filter(|tool| tool.planted.is_none()).map(|tool| tool.tool.name()).collect();
    if !unproven.is_empty() {
        text += &format!(
            "  The program has no planted fault for {}: nothing shows that {} would find one here.\n",
            unproven.join(", "),
            if unproven.len() == 1 { "it" } else { "they" }
        );
    }
    if tools.iter().all(|tool| tool.kernels.is_empty()) {
        text += "  FAILED: no tool has looked at a kernel.\n";
    }
    text
}

/// A Markdown table, aligned for people too. All columns but the first two, which are words, are to the right.
fn aligned<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!(" {cell:<width$} |"),
            _ => format!(" {cell:>width$} |"),
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let rows: String = rows.iter().map(|row| line(std::array::from_fn(|column| row[column].as_str()))).collect();
    format!("{}|{rule}\n{rows}", line(*heads))
}

impl SanitizeReport {
    /// Whether every tool has reported its planted fault and no other, and one of them has looked at a kernel.
    pub fn passed(&self) -> bool {
        passed(&self.tools)
    }
}

impl fmt::Display for SanitizeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", table(&self.tools).trim_end())
    }
}
