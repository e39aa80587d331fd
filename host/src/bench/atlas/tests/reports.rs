//! Reports, made by hand.

use super::super::super::accuracy::Errors;
use super::super::super::report::BaselineTimes;
use super::super::super::roofline::Least;
use super::super::super::timing::Times;
use super::super::replan::replan;
use super::super::report::{AtlasReport, Measured, Outcome, PlanTime, Regret, Row, Summary};
use super::super::*;
use super::roofline;
use tilewright::device::DeviceInfo;
use tilewright::plan::{ConstantsChoice, Tables};
use tilewright::{Orders, Precision};

fn times(median_ms: f64) -> Times {
    Times { runs: 5, launches_per_run: 1, median_ms, min_ms: median_ms, spread_ms: 0.0 }
}

/// A row whose ratio is this, or that cuBLAS has no way for.
pub(super) fn row(class: &str, size: usize, ratio: Option<f64>) -> Row {
    let shape = Shape::dense(1, [size; 3], Orders::NN);
    let (ours, fast) = (2.0, ratio.map(|ratio| 2.0 * ratio));
    let baseline = |routine: &str, ms| BaselineTimes { routine: routine.to_owned(), times: times(ms) };
    let measured = Measured {
        kernel: "gemm_x".to_owned(),
        kernels: vec!["pack_x".to_owned(), "gemm_x".to_owned()],
        splits: 4,
        chosen_by: "model".to_owned(),
        estimated_ms: Some(1.5),
        workspace_bytes: 0,
        operand_sets: 3,
        times: times(ours),
        call_us: 12.34,
        least: Some(Least { ms: 1.0, bound_by: "memory".to_owned() }),
        baselines: fast
            .iter()
            .flat_map(|&ms| [baseline("cublasSgemm", ms), baseline("cublasLtMatmul", ms + 1.0)])
            .collect(),
        no_baseline: ratio.is_none().then(|| "cuBLAS cannot take A".to_owned()),
        compared: 32,
        error: Errors { frobenius: 1e-7, max: 2e-7 },
        cublas_error: None,
        regret: None,
    };
    Row { class: class.to_owned(), id: shape.id(), shape, outcome: Outcome::Measured(Box::new(measured)) }
}

pub(super) fn failed(class: &str, size: usize) -> Row {
    Row { outcome: Outcome::NotRun { reason: "no kernel".to_owned() }, ..row(class, size, None) }
}

pub(super) fn report(results: Vec<Row>) -> AtlasReport {
    AtlasReport {
        schema: report::SCHEMA.to_owned(),
        schema_version: report::SCHEMA_VERSION,
        date: "2026-01-01T00:00:00Z".to_owned(),
        version: "0".to_owned(),
        commit: Some("abc".to_owned()),
        device: DeviceInfo::Cpu { name: Some("a processor".to_owned()), threads: 2, checks: "full".to_owned() },
        state_before: None,
        state_after: None,
        cublas: None,
        table: None,
        constants: None,
        roofline: roofline(),
        precision: Precision::Fp32,
        beta: 0.0,
        seed: 0,
        sample: Some(2),
        runs: 30,
        left_out: 3,
        summary: Summary::of(&results),
        results,
    }
}

#[test]
fn a_summary_has_means_and_leasts_of_classes_and_the_mean_of_means() {
    let rows = [
        row("one", 8, Some(0.5)),
        row("one", 16, Some(8.0)),
        row("two", 8, Some(0.97)),
        row("one", 32, Some(0.25)),
        row("two", 16, None),
        failed("two", 32),
        failed("three", 8),
    ];
    let Summary { classes, mean } = Summary::of(&rows);
    let close = |one: Option<f64>, other: f64| (one.unwrap() - other).abs() < 1e-12;
    let [one, two, three] = &classes[..] else { panic!("{classes:?}") };
    assert_eq!((one.class.as_str(), one.measured, one.not_run, one.compared, one.slower), ("one", 3, 0, 3, 2));
    assert_eq!((two.class.as_str(), two.measured, two.not_run, two.compared, two.slower), ("two", 2, 1, 1, 0));
    assert_eq!((three.measured, three.not_run, three.mean, three.least.clone()), (0, 1, None, None));
    assert!(close(one.mean, 1.0) && close(two.mean, 0.97) && close(mean, 0.985), "{classes:?} {mean:?}");
    assert_eq!(one.least, Some((0.25, "32x32x32 NNN".to_owned())));
    assert!(close(one.share, 0.5) && three.share.is_none());
    assert_eq!(Summary::of(&[]), Summary::default());
    assert_eq!(Summary::of(&[failed("one", 4)]).mean, None);
}

#[test]
fn regrets_are_summed_up_where_there_are_some() {
    let with = |ratio: f64| {
        let mut row = row("one", 8, Some(1.0));
        let Outcome::Measured(measured) = &mut row.outcome else { panic!() };
        let best_kernel = "gemm_y".to_owned();
        measured.regret = Some(Regret {
            plans: 5,
            ratio,
            best_kernel,
            best_splits: 2,
            best_ms: 1.0,
            chosen_ms: ratio,
            times: Vec::new(),
        });
        row
    };
    let rows = [with(1.0), with(4.0), row("one", 16, Some(1.0))];
    let [mean, largest] = Summary::of(&rows).classes[0].regret.unwrap();
    assert!((mean - 2.0).abs() < 1e-12 && largest == 4.0, "{mean} {largest}");
    let text = text::class_table("one", &rows.iter().collect::<Vec<_>>());
    assert!(text.contains("4.00 gemm_y /2") && text.contains("regret"), "{text}");
}

#[test]
fn the_fastest_of_cublas_counts() {
    let Outcome::Measured(measured) = row("one", 8, Some(1.5)).outcome else { panic!() };
    assert_eq!((measured.ratio(), measured.share()), (Some(1.5), Some(0.5)));
    let none = Measured { baselines: Vec::new(), least: None, ..*measured.clone() };
    assert_eq!((none.ratio(), none.share()), (None, None));
    let at_once = Measured { times: times(0.0), ..*measured };
    assert_eq!((at_once.ratio(), at_once.share()), (None, None), "no number is infinite");
}

#[test]
fn a_report_reads_back_and_tells_all() {
    let report = report(vec![row("one", 8, Some(1.25)), row("one", 16, None), failed("two", 512)]);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<AtlasReport>(&json).unwrap(), report);
    let rows: Vec<&Row> = report.results.iter().collect();
    let table = text::class_table("one", &rows);
    for part in
        ["8x8x8", "NNN", "1.25", "50 %", "memory", "12.3", "2.0e-7", "gemm_x /4", "no cuBLAS: cuBLAS cannot take A"]
    {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    assert!(table.contains("512x512x512 NNN: not run: no kernel") && !table.contains("regret"), "{table}");
    let summary = report.summary.text();
    assert!(summary.contains("Mean of the classes' means: 1.250"), "{summary}");
    let (heading, ending) = (report.heading(), report.ending());
    assert!(heading.contains("no baseline") && heading.contains("commit abc"), "{heading}");
    assert!(ending.contains("3 shapes were left out"), "{ending}");
}

#[test]
fn a_report_with_times_of_plans_is_planned_again_without_a_gpu() {
    let time =
        |kernel: &str, median_ms| PlanTime { kernel: kernel.to_owned(), splits: 1, estimated_ms: None, median_ms };
    let times =
        [("gemm_tiled_16_fp32", 0.003), ("gemm_naive_1d_fp32", 0.001), ("gemm_wgmma_packed_staged_fp32_3xfp16", 0.6)];
    let mut small = row("one", 16, Some(1.0));
    let mut large = row("other", 4096, None);
    for row in [&mut small, &mut large] {
        let Outcome::Measured(measured) = &mut row.outcome else { panic!() };
        let times = times.map(|(kernel, median_ms)| time(kernel, median_ms)).to_vec();
        let (best_kernel, best_splits) = ("gemm_naive_1d_fp32".to_owned(), 1);
        measured.regret =
            Some(Regret { plans: 3, ratio: 3.0, best_kernel, best_splits, best_ms: 1.0, chosen_ms: 3.0, times });
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |report: &AtlasReport| std::fs::write(file.path(), serde_json::to_string(report).unwrap()).unwrap();
    let again = || replan(file.path(), &Tables::None, &ConstantsChoice::BuiltIn);

    let mut report = report(vec![small, large]);
    write(&report);
    assert!(again().unwrap_err().to_string().contains("not of a GPU"));
    let gpu = ("NVIDIA H200".to_owned(), "9.0".to_owned());
    report.device = DeviceInfo::Cuda {
        ordinal: 0,
        name: gpu.0,
        uuid: String::new(),
        compute_capability: gpu.1,
        multiprocessors: 132,
        memory_bytes: 141 << 30,
        driver_cuda_version: "13.0".to_owned(),
        driver_release: None,
        ptx_arch: "sm_90a".to_owned(),
    };
    write(&report);
    let text = again().unwrap();
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("one").contains("largest 3.000") && line("other").contains("largest 600.000"), "{text}");
    assert!(text.contains("gemm_tiled_16_fp32 /1, not gemm_naive_1d_fp32 /1 (0.0010 ms)"), "{text}");
    assert!(line("  gemm_wgmma_packed_staged_fp32_3xfp16").contains("2 times"), "{text}");

    // With portable kernels only, the plans are others.
    if let DeviceInfo::Cuda { ptx_arch, .. } = &mut report.device {
        *ptx_arch = "sm_80".to_owned();
    }
    write(&report);
    assert_ne!(again().unwrap(), text);

    report.results.truncate(0);
    write(&report);
    assert!(again().unwrap_err().to_string().contains("measure with --regret"));
    std::fs::write(file.path(), "{}").unwrap();
    assert!(again().unwrap_err().to_string().contains("cannot be planned again: missing field"));
}
