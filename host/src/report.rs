//! What a run found: as a table for people, and as JSON for machines.

use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};
use testkit::Accuracy;

use crate::Error;
use crate::check::Outcome;
use crate::files::write_json;
use crate::input::Distribution;
use crate::measure::Timing;
use crate::problem::{Problem, Product};
use crate::provenance::{commit, now};
use tilewright::Precision;
use tilewright::Sizes;
use tilewright::device::DeviceInfo;
use tilewright::plan::Explanation;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it began, in UTC (RFC 3339).
    pub date: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from, with `-dirty` if files had been changed; none outside a repository.
    pub commit: Option<String>,
    /// Where the kernels ran.
    pub device: DeviceInfo,
    /// Why the CPU executor was taken where any device would do, on one line.
    pub note: Option<String>,
    /// How the operands of problems were distributed, if there were problems. Operations have inputs of their own.
    pub inputs: Option<Distribution>,
    /// The seed that they were made from.
    pub seed: u64,
    /// The problems, in the order in which they ran.
    pub problems: Vec<ProblemReport>,
    /// One case of each operation that ran, in that order.
    #[serde(default)]
    pub operations: Vec<OperationReport>,
}

/// One case of an operation, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Its name.
    pub operation: String,
    /// The sizes, as `--sizes` takes them.
    pub sizes: String,
    /// Whether the result is right.
    pub passed: bool,
    /// How many elements were compared, if all of them were right.
    pub elements: usize,
    /// The largest error of these.
    pub max_error: f64,
    /// The same as a part of what was allowed.
    pub part_of_bound: f64,
    /// What is wrong, if something is.
    pub failure: Option<String>,
}

/// One problem, and what each kernel made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemReport {
    /// Its name.
    pub problem: String,
    /// Its formula.
    pub formula: String,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The length of the sums.
    pub k: usize,
    /// The number of products.
    pub batch: usize,
    /// The full m, n and k, if smaller ones ran.
    pub reduced_from: Option<[usize; 3]>,
    /// `NN`, `NT`, `TN` or `TT`.
    pub layout: String,
    /// The leading dimensions of the stored A, B and C.
    pub leading_dimensions: [usize; 3],
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of the old C.
    pub beta: f32,
    /// How long A and B took to the device, in milliseconds.
    pub upload_ms: f64,
    /// How long the reference took, in milliseconds.
    pub reference_ms: f64,
    /// The kernels.
    pub results: Vec<KernelReport>,
}

/// What one kernel made of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Its name.
    pub kernel: String,
    /// The precision that was asked for.
    pub precision: Precision,
    /// Among how many blocks each sum was divided.
    pub splits: u32,
    /// The memory that it took besides the operands.
    pub workspace_bytes: u64,
    /// Why this kernel, if that was asked for.
    pub explanation: Option<Explanation>,
    /// The first launch until its end, in milliseconds: with what the driver does on a kernel's first use.
    pub first_call_ms: f64,
    /// The times after that.
    pub timing: Timing,
    /// 10¹² operations per second at the median.
    pub tflop_per_s: f64,
    /// 10¹² bytes of operands and result per second at the median.
    pub tb_per_s: f64,
    /// How long C took from the device, in milliseconds.
    pub download_ms: f64,
    /// Whether the result is right.
    pub check: Outcome,
}

impl Report {
    /// A report without results, of a run that begins now.
    pub(crate) fn begin(device: DeviceInfo, note: Option<String>, inputs: Option<Distribution>, seed: u64) -> Self {
        Self {
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            device,
            note,
            inputs,
            seed,
            problems: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Whether every result passed its check.
    pub fn passed(&self) -> bool {
        self.checks().all(|passed| passed)
    }

    /// Of every result, whether it passed its check.
    fn checks(&self) -> impl Iterator<Item = bool> {
        let of_problems = self.problems.iter().flat_map(|problem| &problem.results).map(|result| result.check.passed);
        of_problems.chain(self.operations.iter().map(|operation| operation.passed))
    }

    /// What holds for all results: device and inputs, on some lines.
    pub fn heading(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        let note = self.note.as_ref().map(|note| format!("{note}\n")).unwrap_or_default();
        let inputs = match self.inputs {
            Some(inputs) => format!("Inputs: {inputs}, seed {}. Operands and results are fp32.", self.seed),
            None => format!("Seed {}.", self.seed),
        };
        format!(
            "{note}tilewright {}{commit}, {}\nDevice: {}\n{inputs} Every element is checked.\n",
            self.version, self.date, self.device
        )
    }

    /// The last line: how many results passed.
    pub fn summary(&self) -> String {
        let (passed, all) = (self.checks().filter(|passed| *passed).count(), self.checks().count());
        if passed == all {
            format!("All {all} checks passed, on {}.\n", self.place())
        } else {
            format!("{} of {all} checks FAILED, on {}.\n", all - passed, self.place())
        }
    }

    /// The operations in a table, if there are any: a row for each, and below what is wrong.
    pub fn operations_table(&self) -> String {
        if self.operations.is_empty() {
            return String::new();
        }
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["operation", "sizes", "elements", "max error", "of bound", "check"]);
        for operation in &self.operations {
            let OperationReport { operation, sizes, passed, elements, max_error, part_of_bound, .. } = operation;
            // What is wrong has no such figures.
            let figure = |text: String| if *passed { text } else { "-".to_owned() };
            table.add_row([
                operation.clone(),
                sizes.clone(),
                figure(elements.to_string()),
                figure(error_figure(*max_error)),
                figure(format!("{:.0} %", 100.0 * part_of_bound)),
                (if *passed { "ok" } else { "FAILED" }).to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("\noperations: one case of each, with inputs of its own\n{table}\n");
        for operation in &self.operations {
            let OperationReport { operation, sizes, failure, .. } = operation;
            if let Some(failure) = failure {
                let again = format!("tilewright run --op {operation} --sizes {sizes} --seed {}", self.seed);
                text += &format!("  FAILED: {operation}: {failure}\n    again: {again}\n");
            }
        }
        text
    }

    fn place(&self) -> &str {
        match &self.device {
            DeviceInfo::Cuda { name, .. } => name,
            DeviceInfo::Cpu { .. } => "the CPU executor",
        }
    }

    /// Writes the report as JSON. A file is complete, or as it was.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write_json(&self, path: &Path) -> Result<(), Error> {
        write_json(path, self)
    }
}

impl OperationReport {
    /// What came of a case.
    pub(crate) fn new(operation: &str, case: testkit::Case) -> Self {
        let testkit::Case { sizes, accuracy, failure, .. } = case;
        let Accuracy { elements, error, part_of_bound } = accuracy.unwrap_or_default();
        Self {
            operation: operation.to_owned(),
            sizes,
            passed: accuracy.is_some() && failure.is_none(),
            elements,
            max_error: error,
            part_of_bound,
            failure: failure.map(|failure| failure.to_string()),
        }
    }
}

impl ProblemReport {
    /// A report that has no results yet. `full` are the sizes that would have run on a GPU.
    pub(crate) fn new(problem: &Problem, product: &Product, full: Sizes) -> Self {
        let Sizes { m, n, k } = product.sizes;
        Self {
            problem: problem.name.to_owned(),
            formula: problem.formula.to_owned(),
            m,
            n,
            k,
            batch: product.batch,
            reduced_from: (full != product.sizes).then_some([full.m, full.n, full.k]),
            layout: product.orders().to_string(),
            leading_dimensions: [product.a, product.b, product.c].map(|stored| stored.leading_dimension),
            alpha: product.alpha,
            beta: product.beta,
            upload_ms: 0.0,
            reference_ms: 0.0,
            results: Vec::new(),
        }
    }

    /// The table, with what it needs to be understood.
    pub fn table(&self) -> String {
        let Self { problem, formula, m, n, k, layout, leading_dimensions: [lda, ldb, ldc], .. } = self;
        let reduced = match self.reduced_from {
            Some([m, n, k]) => format!(" (reduced for the CPU executor from m={m} n={n} k={k})"),
            None => String::new(),
        };
        let batch = if self.batch == 1 { String::new() } else { format!(" batch={}", self.batch) };
        let mut text = format!("\n{problem}: {formula}, m={m} n={n} k={k}{batch}{reduced}\n");
        text += &format!("  layout {layout}, lda={lda} ldb={ldb} ldc={ldc}");
        if (self.alpha, self.beta) != (1.0, 0.0) {
            text += &format!(", alpha={} beta={}", self.alpha, self.beta);
        }
        text += &format!("; upload {} ms, reference {} ms\n", figure(self.upload_ms), figure(self.reference_ms));
        let mut bounds: Vec<_> = (self.results.iter())
            .map(|result| (result.precision, result.check.frobenius_bound, result.check.max_bound))
            .collect();
        bounds.dedup();
        for (precision, frobenius, max) in bounds {
            text += &format!(
                "  bounds for {precision}: relative Frobenius error {frobenius:.2e}, largest |error| / sum of |a||b| \
                 {max:.2e}\n"
            );
        }

        let by_bytes = *n == 1;
        let rate = if by_bytes { "TB/s" } else { "TFLOP/s" };
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "kernel",
            "precision",
            "median ms",
            "min ms",
            "p90 ms",
            rate,
            "rel. error",
            "max error",
            "check",
        ]);
        for result in &self.results {
            let KernelReport { timing, check, .. } = result;
            table.add_row([
                result.kernel.clone(),
                result.precision.to_string(),
                figure(timing.median_ms),
                figure(timing.min_ms),
                figure(timing.p90_ms),
                figure(if by_bytes { result.tb_per_s } else { result.tflop_per_s }),
                error_figure(check.frobenius_error),
                error_figure(check.max_error),
                (if check.passed { "ok" } else { "FAILED" }).to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        text += &format!("{table}\n");
        for result in &self.results {
            text += &format!(
                "  {}: first call {} ms, download {} ms, runs: {}\n",
                result.kernel,
                figure(result.first_call_ms),
                figure(result.download_ms),
                result.timing.runs
            );
        }
        self.results.iter().for_each(|result| text += &result.failure());
        text
    }
}

impl KernelReport {
    /// What is wrong, if something is, on some lines.
    fn failure(&self) -> String {
        let check = &self.check;
        if check.passed {
            return String::new();
        }
        let mut text = format!(
            "  FAILED: {}: {} of {} elements are wrong; relative Frobenius error {:.3e} (at most {:.3e}), largest error \
             {:.3e} (at most {:.3e})\n",
            self.kernel,
            check.bad,
            check.elements,
            check.frobenius_error,
            check.frobenius_bound,
            check.max_error,
            check.max_bound
        );
        let named = check.worst.iter().map(|element| ("worst", element));
        for (what, element) in named.chain(check.first_bad.iter().map(|element| ("wrong", element))) {
            let crate::check::Element { row, col, value, expected } = element;
            text += &format!("    {what}: ({row}, {col}) is {value:e}, should be {expected:e}\n");
        }
        text
    }
}

/// An error: with its power of ten, because it is read beside its bound.
fn error_figure(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") }
}

/// A number with three to four digits that matter.
fn figure(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value.abs() < 0.001 => format!("{value:.1e}"),
        _ if value.abs() < 1.0 => format!("{value:.4}"),
        _ if value.abs() < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// JSON has no infinity and no NaN: those are written as strings.
pub(crate) mod number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(number),
            Either::Text(text) => text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a number"))),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::check::Element;
    use crate::problem::{Overrides, find};

    pub(crate) fn report() -> Report {
        let device = DeviceInfo::Cpu { name: Some("a processor".to_owned()), threads: 2, checks: "full".to_owned() };
        let mut report = Report::begin(device, Some("No GPU".to_owned()), Some(Distribution::Uniform01), 9);
        let problem = find("at-b").unwrap();
        let (product, full) = (problem.product(true, &Overrides::default()).unwrap(), problem.full);
        let mut one = ProblemReport::new(problem, &product, full);
        let wrong = Element { row: 3, col: 4, value: f64::INFINITY, expected: 0.125 };
        let timing = Timing { runs: 3, median_ms: 2.0, min_ms: 1.5, p90_ms: 2.5, max_ms: 2.5 };
        one.results.push(KernelReport {
            kernel: "gemm_tiled_32_fp32".to_owned(),
            precision: Precision::Fp32Strict,
            splits: 1,
            workspace_bytes: 0,
            explanation: None,
            first_call_ms: 123.4,
            timing,
            tflop_per_s: 0.067,
            tb_per_s: 0.5,
            download_ms: 0.01,
            check: Outcome {
                passed: false,
                frobenius_error: f64::INFINITY,
                frobenius_bound: 1e-6,
                max_error: f64::INFINITY,
                max_bound: 2e-6,
                worst: Some(wrong),
                elements: 100,
                bad: 1,
                first_bad: vec![wrong],
            },
        });
        report.problems.push(one);
        report.operations.push(OperationReport {
            operation: "rms-norm".to_owned(),
            sizes: "rows=3,cols=4".to_owned(),
            passed: true,
            elements: 12,
            max_error: 1.5e-7,
            part_of_bound: 0.25,
            failure: None,
        });
        report
    }

    /// Written before operations ran after problems.
    #[test]
    fn older_json_is_read() {
        let mut report = report();
        let mut older = serde_json::to_value(&report).unwrap();
        older.as_object_mut().unwrap().remove("operations").unwrap();
        report.operations.clear();
        assert_eq!(serde_json::from_value::<Report>(older).unwrap(), report);
    }

    #[test]
    fn an_operation_that_is_wrong_is_counted_and_told() {
        let mut report = report();
        report.problems.clear();
        assert!(report.passed() && report.summary().contains("All 1 checks passed"), "{}", report.summary());
        let failure = Some(testkit::Error::NoCases { operation: "scale" });
        let case = testkit::Case { sizes: "rows=1".to_owned(), accuracy: None, failure, schedules: None };
        report.operations.push(OperationReport::new("scale", case));
        assert!(!report.passed() && report.summary().contains("1 of 2 checks FAILED"), "{}", report.summary());
        let table = report.operations_table();
        let row = |name: &str| table.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
        assert!(row("rms-norm").contains(" 25 % |") && row("rms-norm").ends_with(" ok |"), "{table}");
        assert!(row("scale").ends_with("| FAILED |"), "{table}");
        assert!(table.contains("FAILED: scale: operation `scale` has no cases"), "{table}");
        assert!(table.contains("again: tilewright run --op scale --sizes rows=1 --seed 9"), "{table}");
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        std::fs::write(&path, "old").unwrap();
        let report = report();
        report.write_json(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert!(text.contains("\"inf\"") && text.contains("\"kind\": \"cpu\""), "{text}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn what_cannot_be_written_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let message = report().write_json(directory.path()).unwrap_err().to_string();
        assert!(
            message.contains("cannot write") && message.contains(&directory.path().display().to_string()),
            "{message}"
        );
        let missing = directory.path().join("no such directory").join("report.json");
        let message = report().write_json(&missing).unwrap_err().to_string();
        assert!(message.ends_with("report.json: No such file or directory (os error 2)"), "{message}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_table_fits_and_says_what_is_wrong() {
        let report = report();
        let table = report.problems[0].table();
        assert!(table.lines().filter(|line| line.starts_with('|')).all(|line| line.chars().count() <= 120), "{table}");
        assert!(
            table.contains("m=128 n=512 k=512 (reduced for the CPU executor from m=2048 n=4096 k=8192)"),
            "{table}"
        );
        assert!(table.contains("FAILED") && table.contains("(3, 4) is inf, should be 1.25e-1"), "{table}");
        assert!(report.heading().contains("CPU executor") && report.heading().starts_with("No GPU"));
        assert!(report.summary().contains("1 of 2 checks FAILED"));
    }

    #[test]
    fn figures_keep_the_digits_that_matter() {
        assert_eq!(
            [0.0, 0.00012, 0.1234, 1.96, 17.25, 273.4].map(figure),
            ["0", "1.2e-4", "0.1234", "1.96", "17.25", "273"]
        );
    }
}
