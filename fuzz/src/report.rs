//! Reports, of `run` and of `bench`: JSON, and the page that is made of such files.

use std::sync::LazyLock;

use host::bench::compare::Comparison;
use host::bench::report::BenchReport;
use host::report::Report;
use pages::results::Results;
use pages::sections;

/// A report that was written by a measurement.
static MEASURED: LazyLock<BenchReport> = LazyLock::new(|| {
    BenchReport::parse(include_str!("../../docs/results/2026-11-21-h200-targets.json"))
        .expect("a report of this schema")
});

/// A text is refused with a reason, or is a report that can be shown, compared, and written and read again.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    page(text);
    match BenchReport::parse(text) {
        Ok(report) => bench(&report),
        Err(reason) => crate::has_reason(reason),
    }
    match serde_json::from_str::<Report>(text) {
        Ok(report) => run(&report),
        Err(error) => crate::has_reason(error),
    }
}

/// A text is refused with a reason, or is on a page whose only script is the page's own.
fn page(text: &str) {
    match Results::read([("a file", text)]) {
        Ok(results) => {
            let page = sections::report(&results);
            assert!(page.ends_with("</html>\n") && page.matches("<script").count() == 1, "{page}");
            assert!(sections::pictures(&results).iter().all(|(_, svg)| svg.ends_with("</svg>\n")));
        }
        Err(error) => crate::has_reason(error),
    }
}

fn bench(report: &BenchReport) {
    for (old, new) in [(report, &*MEASURED), (&*MEASURED, report), (report, report)] {
        let comparison = Comparison::new(old, new);
        assert!(!comparison.text().is_empty());
        let _ = comparison.passes();
    }
    assert!(!report.heading().is_empty() && !report.table().is_empty());
    // There may be nothing to sum up.
    let _ = report.summary();
    assert!(report.results.iter().all(|case| case.floor_met().is_some() == case.target.is_some()));
    let written = serde_json::to_string(report).expect("a report can be written");
    let again = BenchReport::parse(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("a report can be written"), written);
}

fn run(report: &Report) {
    let _ = report.passed();
    assert!(!report.heading().is_empty() && !report.summary().is_empty());
    assert!(report.problems.iter().all(|problem| !problem.table().is_empty()));
    let written = serde_json::to_string(report).expect("a report can be written");
    let again: Report = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("a report can be written"), written);
}
