//! What the tools have found: as a table for people, and as JSON for machines.

use std::path::PathBuf;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};

use super::tool::Tool;
use crate::planted::Fault;
use crate::provenance::{commit, now};
use tilewright::device::DeviceInfo;

/// A whole run of `tilewright sanitize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SanitizeReport {
    /// When it began, in UTC (RFC 3339).
    pub date: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from, with `-dirty` if files had been changed; none outside a repository.
    pub commit: Option<String>,
    /// The GPU.
    pub device: DeviceInfo,
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
    /// The fault that it had to report.
    pub planted: Fault,
    /// Whether it did, by the kernel's name.
    pub planted_reported: bool,
    /// The first lines that it wrote about that, and the last ones that the program wrote.
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
    /// Whether the tool has reported the planted fault, and no other. Warnings are for people to explain.
    pub fn passed(&self) -> bool {
        self.planted_reported && self.outcome.errors == 0 && self.outcome.problems.is_empty()
    }

    /// One line that says what was found.
    pub(super) fn line(&self) -> String {
        let planted = if self.planted_reported { "reported" } else { "NOT REPORTED" };
        let Outcome { errors, warnings, problems, .. } = &self.outcome;
        format!(
            "{}: planted fault ({}) {planted}; {} kernels, {errors} errors, {warnings} warnings, {} problems",
            self.tool,
            self.planted,
            self.kernels.len(),
            problems.len()
        )
    }
}

impl SanitizeReport {
    /// A report of a run that begins now.
    pub(super) fn begin(device: DeviceInfo, compute_sanitizer: PathBuf, compute_sanitizer_version: String) -> Self {
        Self {
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            device,
            compute_sanitizer,
            compute_sanitizer_version,
            tools: Vec::new(),
        }
    }

    /// Whether every tool has reported its planted fault, and no other.
    pub fn passed(&self) -> bool {
        self.tools.iter().all(ToolReport::passed)
    }

    /// Program, GPU and tool, on some lines.
    pub(super) fn heading(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        format!(
            "tilewright {}{commit}, {}\nDevice: {}\nTool: compute-sanitizer {}\n",
            self.version, self.date, self.device, self.compute_sanitizer_version
        )
    }

    /// All tools in a table, with what they have found below it.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "tool",
            "planted fault",
            "kernels",
            "left out",
            "errors",
            "warnings",
            "problems",
            "s",
            "check",
        ]);
        for tool in &self.tools {
            let Outcome { errors, warnings, problems, .. } = &tool.outcome;
            table.add_row([
                tool.tool.to_string(),
                (if tool.planted_reported { "reported" } else { "NOT REPORTED" }).to_owned(),
                tool.kernels.len().to_string(),
                tool.left_out.len().to_string(),
                errors.to_string(),
                warnings.to_string(),
                problems.len().to_string(),
                format!("{:.0}", tool.seconds),
                (if tool.passed() { "ok" } else { "FAILED" }).to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("\n{table}\n");
        for tool in &self.tools {
            if !tool.planted_reported {
                text += &format!("  {}: the kernel `{}` was to be reported:\n", tool.tool, tool.planted.kernel());
                tool.planted_log.iter().for_each(|line| text += &format!("    {line}\n"));
            }
            tool.outcome.problems.iter().for_each(|problem| text += &format!("  {}: {problem}\n", tool.tool));
            tool.outcome.excerpt.iter().for_each(|line| text += &format!("    {line}\n"));
        }
        text
    }
}
