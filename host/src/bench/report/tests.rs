use super::super::roofline::Ceiling;
use super::super::suite;
use super::*;

pub(crate) fn times(median_ms: f64, spread_ms: f64) -> Times {
    Times { runs: 30, launches_per_run: 1, median_ms, min_ms: 0.9 * median_ms, spread_ms }
}

/// A report on the targets, in which everything takes a millisecond and cuBLAS `ratio` of them.
pub(crate) fn report(ratio: f64) -> BenchReport {
    let ceiling = |per_second| Ceiling { per_second, by: "a probe".to_owned() };
    let results = suite::suite("targets").unwrap().into_iter().map(|case| CaseReport {
        outcome: Outcome::Measured(Box::new(Measured {
            kernel: "gemm_mma_nt_fp32_3xtf32".to_owned(),
            splits: 2,
            workspace_bytes: 0,
            operand_sets: 1,
            times: times(1.0, 0.01),
            tflop_per_s: 100.0,
            tb_per_s: 1.0,
            least: Some(Least { ms: 0.99, bound_by: "memory".to_owned() }),
            baselines: vec![BaselineTimes { routine: "cublasSgemm".to_owned(), times: times(ratio, 0.02) }],
            torch_ms: None,
            errors: vec![ErrorReport {
                inputs: Inputs::Uniform01,
                rows: 7,
                ours: Errors { frobenius: 2e-7, max: 5e-7 },
                cublas: Some(("cublasSgemm".to_owned(), Errors { frobenius: f64::INFINITY, max: 1e-6 })),
                bound: case.error_bounds().map(|(frobenius, max)| Errors { frobenius, max }),
            }],
        })),
        ..CaseReport::new(&case, String::new())
    });
    BenchReport {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        date: "2026-01-01T00:00:00Z".to_owned(),
        version: "0".to_owned(),
        commit: Some("abc".to_owned()),
        table: Some("built in, 2026-01-01T00:00:00Z".to_owned()),
        device: DeviceInfo::Cpu { name: Some("a processor".to_owned()), threads: 2, checks: "full".to_owned() },
        state_before: GpuState::parse("1980, 3201, 1980, 124.96, 30"),
        state_after: None,
        cublas: Some(CublasInfo { version: "13.1.0".to_owned(), path: "/x/libcublas.so.13".to_owned() }),
        torch: None,
        roofline: Roofline {
            read: ceiling(4.0),
            write: ceiling(4.0),
            copy: ceiling(4.0),
            fma: ceiling(60.0),
            tf32: Some(ceiling(400.0)),
            fp64: Some(ceiling(50.0)),
            bf16: None,
        },
        runs: 30,
        seed: 0,
        timed_inputs: Inputs::Uniform01,
        results: results.collect(),
    }
}

fn measured(case: &mut CaseReport) -> &mut Measured {
    match &mut case.outcome {
        Outcome::Measured(measured) => measured,
        Outcome::NotRun { reason } => panic!("{reason}"),
    }
}

#[test]
fn json_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bench.json");
    let mut report = report(2.0);
    report.results[0].outcome = Outcome::NotRun { reason: "no kernel".to_owned() };
    report.write_json(&path).unwrap();
    assert_eq!(BenchReport::read_json(&path).unwrap(), report);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
}

#[test]
fn what_is_no_report_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.json");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        BenchReport::read_json(&path).unwrap_err().to_string()
    };
    assert!(refused("{").contains("no benchmark report"));
    assert!(refused("{\"schema\": \"other\"}").contains("its schema is not"));
    let message = refused(&format!("{{\"schema\": \"{SCHEMA}\", \"schema_version\": 99}}"));
    assert!(message.contains("version 99") && message.contains("measure again"), "{message}");
    assert!(refused(&format!("{{\"schema\": \"{SCHEMA}\", \"schema_version\": 1}}")).contains("missing field"));
    assert!(BenchReport::read_json("/no/such".as_ref()).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn a_floor_is_met_by_time_share_and_error_together() {
    let verdicts =
        |report: &BenchReport| -> Vec<bool> { report.results.iter().map(|case| case.floor_met().unwrap()).collect() };
    assert!(verdicts(&report(4.0)).into_iter().all(|met| met));
    let slow = report(1.1);
    let met: Vec<bool> = slow.results.iter().map(|case| case.target.as_ref().unwrap().floor <= 1.1).collect();
    assert_eq!(verdicts(&slow), met);

    let mut far = report(4.0);
    measured(&mut far.results[0]).least = Some(Least { ms: 0.97, bound_by: "memory".to_owned() });
    assert_eq!(far.results[0].floor_met(), Some(false), "matvec has to reach 98 % of the read probe");
    assert_eq!(far.results[1].floor_met(), Some(true));

    let mut wrong = report(4.0);
    measured(&mut wrong.results[1]).errors[0].ours.max = 2e-6;
    assert_eq!(wrong.results[1].floor_met(), Some(false));
    assert!(wrong.table().contains("TOO LARGE") && wrong.table().contains("NOT MET 3.00"));

    let mut missing = report(4.0);
    missing.results[2].outcome = Outcome::NotRun { reason: "no such kernel".to_owned() };
    assert_eq!(missing.results[2].floor_met(), Some(false));
    assert!(missing.table().contains("not run: no such kernel"));
    assert!(missing.summary().contains(&format!(
        "Floors met: {} of {}",
        missing.results.len() - 1,
        missing.results.len()
    )));
}

#[test]
fn means_of_groups_are_geometric() {
    let mut report = report(2.0);
    let count = report.results.len();
    measured(&mut report.results[count - 1]).baselines[0].times.median_ms = 2f64.powi(8);
    // Six times 2 and once 2^8: 2^(14/7).
    let means = report.group_means();
    assert_eq!(means.len(), 1);
    assert!((means[0].2 - 4.0).abs() < 1e-9, "{means:?}");
    assert!(report.summary().contains("goal 2.50 met"), "{}", report.summary());
}

#[test]
fn torch_is_compared_with_where_it_was_timed() {
    let mut report = report(2.0);
    assert!(!report.summary().contains("torch"));
    measured(&mut report.results[0]).torch_ms = Some(1.95);
    measured(&mut report.results[1]).torch_ms = Some(1.5);
    measured(&mut report.results[2]).torch_ms = Some(4.0);
    let summary = report.summary();
    assert!(summary.contains("cuBLAS within 5 % of torch's time: 1 of 3"), "{summary}");
    assert!(summary.contains("m=256 n=256 k=524288 fp32: SLOWER than torch, 1.333 of its time"), "{summary}");
    assert!(summary.contains("faster than torch, 0.500 of its time"), "{summary}");
}

#[test]
fn the_gpus_state_is_read_from_one_line() {
    let state = GpuState::parse("1755, 3201, 1980, 698.20, 61\n").unwrap();
    assert_eq!((state.sm_mhz, state.temperature_c), (1755, 61));
    assert!(GpuState::parse("1755, [N/A], 1980, 698.20, 61").is_none());
    assert!(report(1.0).heading().contains("1980 of 1980 MHz"));
}

#[test]
fn the_heading_says_what_kernels_were_chosen_by() {
    let mut report = report(1.0);
    assert!(report.heading().contains("chosen by: the table of measured times (built in, 2026-01-01T00:00:00Z)"));
    report.table = None;
    assert!(report.heading().contains("chosen by: the model"));
}
