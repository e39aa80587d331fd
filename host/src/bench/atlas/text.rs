//! A report as people read it: a table for each class, and one for all of them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::super::report::CublasInfo;
use super::report::{AtlasReport, ClassSummary, Measured, Outcome, Row, SLOWER, Summary};

/// What stands where there is nothing to say.
const NOTHING: &str = "-";

impl AtlasReport {
    /// The first lines: program, device and what is compared with.
    pub fn heading(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        let cublas = match &self.cublas {
            Some(CublasInfo { version, path }) => format!("cuBLAS {version} ({path}), the fastest of its ways"),
            None => "no baseline".to_owned(),
        };
        let table = self.table.as_ref().map_or("the model".to_owned(), |source| {
            format!("the table of measured times ({source}), or the model where it says nothing")
        });
        let added = if self.beta == 0.0 { String::new() } else { format!("plus {} times C, ", self.beta) };
        let state = self.state_before.map(|state| format!("\nBefore: {state}")).unwrap_or_default();
        format!(
            "tilewright {}{commit}, {}\nDevice: {}\nCompared with: {cublas}\nKernels chosen by: {table}{state}\nPrecision {}, {}seed {}, up to \
             {} runs in turns; errors are the largest of some elements, against f64 and Σ|a||b|\n",
            self.version, self.date, self.device, self.precision, added, self.seed, self.runs
        )
    }

    /// The last lines: what was left out, and the state of the GPU.
    pub fn ending(&self) -> String {
        let mut text = String::new();
        if self.left_out > 0 {
            text += &format!("{} shapes were left out: time was up, or the run has ended early.\n", self.left_out);
        }
        if let Some(state) = self.state_after {
            text += &format!("After: {state}\n");
        }
        text
    }
}

/// The rows of a class in a table, with what could not run below it.
pub(super) fn class_table(class: &str, rows: &[&Row]) -> String {
    let with_regret = rows.iter().any(|row| row.measured().is_some_and(|measured| measured.regret.is_some()));
    let mut table = new_table();
    let mut header = vec!["m x n x k", "A B C", "ours ms", "cuBLAS ms", "ratio", "share", "bound by", "call us"];
    header.extend(with_regret.then_some("regret"));
    header.extend(["error", "kernel"]);
    let right = 2..header.len() - 1;
    table.set_header(header);
    let mut remarks = String::new();
    for row in rows {
        let named = [row.shape.extents_text(), row.shape.layout()];
        match &row.outcome {
            Outcome::Measured(measured) => {
                table.add_row(named.into_iter().chain(measured.cells(with_regret)));
                if let Some(reason) = &measured.no_baseline {
                    remarks += &format!("  {}: no cuBLAS: {reason}\n", row.id);
                }
            }
            Outcome::NotRun { reason } => remarks += &format!("  {}: not run: {reason}\n", row.id),
        }
    }
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("\n{class}\n{table}\n{remarks}")
}

impl Measured {
    /// From `ours ms` to `kernel`.
    fn cells(&self, with_regret: bool) -> Vec<String> {
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
        let cublas = self.baselines.first().map(|baseline| milliseconds(baseline.times.median_ms));
        let mut cells = vec![
            milliseconds(self.times.median_ms),
            or_nothing(cublas),
            or_nothing(self.ratio().map(|ratio| format!("{ratio:.2}"))),
            or_nothing(self.share().map(|share| format!("{:.0} %", 100.0 * share))),
            or_nothing(self.least.as_ref().map(|least| least.bound_by.clone())),
            format!("{:.1}", self.call_us),
        ];
        if with_regret {
            cells.push(or_nothing(self.regret.as_ref().map(|regret| match regret.ratio {
                ratio if ratio > 1.0 => format!("{ratio:.2} {}", with_splits(&regret.best_kernel, regret.best_splits)),
                ratio => format!("{ratio:.2}"),
            })));
        }
        cells.push(format!("{:.1e}", self.error.max));
        cells.push(with_splits(&self.kernel, self.splits));
        cells
    }
}

impl Summary {
    /// A row for each class, and the mean of their means.
    pub fn text(&self) -> String {
        let mut table = new_table();
        let slower = format!("below {SLOWER}");
        let header = [
            "class",
            "shapes",
            "not run",
            "ratios",
            "mean",
            "least",
            slower.as_str(),
            "share",
            "regret",
            "largest",
            "least of",
        ];
        table.set_header(header);
        for class in &self.classes {
            table.add_row(class.cells());
        }
        for column in 1..header.len() - 1 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mean = self.mean.map(|mean| format!("{mean:.3}")).unwrap_or_else(|| NOTHING.to_owned());
        format!(
            "\nRatios: the time of cuBLAS divided by ours. Means are geometric.\n{table}\nMean of the classes' means: {mean}\n"
        )
    }
}

impl ClassSummary {
    fn cells(&self) -> Vec<String> {
        let number = |number: Option<f64>| number.map_or(NOTHING.to_owned(), |number| format!("{number:.2}"));
        vec![
            self.class.clone(),
            self.measured.to_string(),
            self.not_run.to_string(),
            self.compared.to_string(),
            number(self.mean),
            number(self.least.as_ref().map(|(ratio, _)| *ratio)),
            self.slower.to_string(),
            self.share.map_or(NOTHING.to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            number(self.regret.map(|[mean, _]| mean)),
            number(self.regret.map(|[_, largest]| largest)),
            self.least.as_ref().map_or(NOTHING.to_owned(), |(_, id)| id.clone()),
        ]
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn with_splits(kernel: &str, splits: u32) -> String {
    if splits > 1 { format!("{kernel} /{splits}") } else { kernel.to_owned() }
}

/// Milliseconds with the digits that matter.
fn milliseconds(value: f64) -> String {
    if value < 0.1 { format!("{value:.5}") } else { format!("{value:.4}") }
}
