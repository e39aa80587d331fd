//! What the tools have found: as a table for people, and as JSON for machines.

use std::path::PathBuf;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};
use testkit::sanitize::{Outcome, ToolReport};

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
            "injected fault",
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
                tool.planted_words().to_owned(),
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
        self.tools.iter().for_each(|tool| text += &tool.details());
        text
    }
}
