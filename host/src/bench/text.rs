//! A report as people read it: a table, with what needs more words around it.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::accuracy::Errors;
use super::report::{BenchReport, CaseReport, CublasInfo, Measured, Outcome};
use super::roofline::Least;

/// How far cuBLAS's time may be from torch's, as a part of it.
const TORCH_TOLERANCE: f64 = 0.05;

impl BenchReport {
    /// The first lines: program, device and what is compared with.
    pub fn heading(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        let cublas = match &self.cublas {
            Some(CublasInfo { version, path }) => {
                format!("cuBLAS {version} ({path}); fp32 is CUBLAS_DEFAULT_MATH, tf32 CUBLAS_TF32_TENSOR_OP_MATH")
            }
            None => "no baseline".to_owned(),
        };
        let torch = self.torch.as_ref().map(|version| format!("; torch {version}")).unwrap_or_default();
        let table = match &self.table {
            Some(source) => format!("the table of measured times ({source})"),
            None => "the model".to_owned(),
        };
        let state = self.state_before.map(|state| format!("\nBefore: {state}")).unwrap_or_default();
        format!(
            "tilewright {}{commit}, {}\nDevice: {}\nCompared with: {cublas}{torch}\nKernels chosen by: {table}{state}\nTimes: medians of {} runs in \
             turns on {} inputs, seed {}; the spread is the interquartile range\n",
            self.version, self.date, self.device, self.runs, self.timed_inputs, self.seed
        )
    }

    /// All cases in a table, with errors and failures below it.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "problem",
            "m x n x k",
            "precision",
            "kernel",
            "ms",
            "min",
            "spread",
            "rate",
            "share",
            "cuBLAS ms",
            "by",
            "ratio",
            "floor",
        ]);
        for case in &self.results {
            let mut row = vec![
                format!("{} {}", case.problem, case.layout),
                format!("{}x{}x{}", case.m, case.n, case.k),
                case.precision.to_string(),
            ];
            match &case.outcome {
                Outcome::Measured(measured) => row.extend(measured.cells()),
                Outcome::NotRun { .. } => {
                    row.push("not run".to_owned());
                    row.extend((0..8).map(|_| "-".to_owned()));
                }
            }
            row.push(case.verdict());
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("\n{table}\n");
        for case in &self.results {
            match &case.outcome {
                Outcome::Measured(measured) => text += &measured.errors_text(&case.id),
                Outcome::NotRun { reason } => text += &format!("  {}: not run: {reason}\n", case.id),
            }
        }
        text
    }

    /// The last lines: floors, means of groups, and how cuBLAS compares with torch.
    pub fn summary(&self) -> String {
        let verdicts: Vec<bool> = self.results.iter().filter_map(CaseReport::floor_met).collect();
        let mut text = String::new();
        if !verdicts.is_empty() {
            let met = verdicts.iter().filter(|&&met| met).count();
            text += &format!("Floors met: {met} of {}.\n", verdicts.len());
        }
        for (group, wanted, mean) in self.group_means() {
            let verdict = if mean >= wanted { "met" } else { "not met" };
            text += &format!("Geometric mean of the ratios of {group}: {mean:.2}, goal {wanted:.2} {verdict}.\n");
        }
        text += &self.torch_text();
        if let Some(state) = self.state_after {
            text += &format!("After: {state}\n");
        }
        text
    }

    /// How cuBLAS, as it is used here, compares with torch, which uses it too: where the times differ by more than 5 %.
    fn torch_text(&self) -> String {
        let relations: Vec<(&str, f64)> = (self.results.iter())
            .filter_map(|case| Some((case.id.as_str(), case.measured()?.baseline_to_torch()?)))
            .collect();
        if relations.is_empty() {
            return String::new();
        }
        let within = relations.iter().filter(|(_, relation)| (relation - 1.0).abs() <= TORCH_TOLERANCE).count();
        let mut text = format!("cuBLAS within 5 % of torch's time: {within} of {}.\n", relations.len());
        for (id, relation) in relations {
            if relation > 1.0 + TORCH_TOLERANCE {
                text += &format!("  {id}: SLOWER than torch, {relation:.3} of its time\n");
            } else if relation < 1.0 - TORCH_TOLERANCE {
                text += &format!("  {id}: faster than torch, {relation:.3} of its time\n");
            }
        }
        text
    }

    /// Each group with the mean that is wanted and the geometric mean of its ratios, in which what has not run counts as 0.
    pub(super) fn group_means(&self) -> Vec<(String, f64, f64)> {
        let mut groups: Vec<(String, f64, Vec<f64>)> = Vec::new();
        for case in &self.results {
            let Some((name, wanted)) = case.target.as_ref().and_then(|target| target.group.clone()) else { continue };
            let ratio = case.measured().and_then(Measured::ratio).unwrap_or(0.0);
            match groups.iter_mut().find(|(known, ..)| *known == name) {
                Some((_, _, ratios)) => ratios.push(ratio),
                None => groups.push((name, wanted, vec![ratio])),
            }
        }
        let mean = |ratios: &[f64]| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        groups.into_iter().map(|(name, wanted, ratios)| (name, wanted, mean(&ratios))).collect()
    }
}

impl CaseReport {
    /// Floor and goal, and which of them were met, in a few words.
    fn verdict(&self) -> String {
        let (Some(target), Some(met)) = (&self.target, self.floor_met()) else { return "-".to_owned() };
        let ratio = self.measured().and_then(Measured::ratio).unwrap_or(0.0);
        let goal = match target.goal {
            Some(goal) if met && ratio >= goal => format!(", goal {goal:.2} met"),
            Some(goal) => format!(", goal {goal:.2}"),
            None => String::new(),
        };
        format!("{} {:.2}{goal}", if met { "met" } else { "NOT MET" }, target.floor)
    }
}

impl Measured {
    /// From `kernel` to `ratio`.
    fn cells(&self) -> Vec<String> {
        let dash = || "-".to_owned();
        let share = match (&self.least, self.share()) {
            (Some(least), Some(share)) => format!("{:.1} % {}", 100.0 * share, least.bound_by),
            _ => dash(),
        };
        let baseline = self.baselines.first();
        vec![
            if self.splits > 1 { format!("{} /{}", self.kernel, self.splits) } else { self.kernel.clone() },
            milliseconds(self.times.median_ms),
            milliseconds(self.times.min_ms),
            milliseconds(self.times.spread_ms),
            self.rate(),
            share,
            baseline.map_or_else(dash, |baseline| milliseconds(baseline.times.median_ms)),
            baseline.map_or_else(dash, |baseline| baseline.routine.clone()),
            self.ratio().map_or_else(dash, |ratio| format!("{ratio:.2}")),
        ]
    }

    /// By bytes where memory is what bounds it, by operations otherwise.
    fn rate(&self) -> String {
        match &self.least {
            Some(Least { bound_by, .. }) if bound_by == "memory" => format!("{:.2} TB/s", self.tb_per_s),
            _ => format!("{:.1} TFLOP/s", self.tflop_per_s),
        }
    }

    /// The errors on one line, and what is wrong with them on others.
    fn errors_text(&self, id: &str) -> String {
        let of = |errors: &Errors| format!("{:.1e} / {:.1e}", errors.frobenius, errors.max);
        let mut text = format!("  {id}: errors (Frobenius / max)");
        for report in &self.errors {
            let cublas =
                report.cublas.as_ref().map(|(_, errors)| format!(", cuBLAS {}", of(errors))).unwrap_or_default();
            let verdict = if report.passes() { "" } else { " TOO LARGE" };
            text += &format!("; {} {}{verdict}{cublas}", report.inputs, of(&report.ours));
        }
        text + "\n"
    }
}

/// Milliseconds with the digits that matter.
fn milliseconds(value: f64) -> String {
    if value < 0.1 { format!("{value:.5}") } else { format!("{value:.4}") }
}
