//! Operations beside their baselines, and what a GPU counts beside what the executor counts.

use super::names::{missing, provenance, share};
use crate::draw::{Mark, Picture, Row, Rows, Scale, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Counted, CountersInGroup, Operation, Results, Source};

const BENCH: &str = "cargo run --release --manifest-path gpu-kernels/patterns/Cargo.toml -- bench --json > FILE";
const COST: &str = "cargo run --release --manifest-path gpu-kernels/patterns/Cargo.toml -- cost --ncu --json > FILE";

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "operations",
        "Other operations",
        "Scans, sorts, softmax, convolution, attention and whatever a crate has: their share of the limit, and the program that they \
         were measured beside, if there is one.",
    );
    // The newest measurement of an operation with these sizes on a GPU.
    let mut newest: Vec<(&Source, &Operation)> = Vec::new();
    for (source, operations) in results.operations() {
        for one in operations.iter().filter(|one| !one.is_of_executor) {
            let is_same = |(known_source, known): &(&Source, &Operation)| {
                (known_source.gpu.as_str(), &known.operation, &known.sizes)
                    == (source.gpu.as_str(), &one.operation, &one.sizes)
            };
            if !newest.iter().any(is_same) {
                newest.push((source, one));
            }
        }
    }
    if newest.is_empty() {
        section.parts.extend(missing("No file has operations on a GPU.", BENCH, results, "patterns"));
    } else {
        section.parts.push(Part::Figure(Box::new(of_operations(&newest))));
    }
    section.parts.push(Part::Heading("Counters of a GPU beside the executor's".to_owned()));
    match results.counters().first() {
        Some((source, counted)) => {
            section.parts.extend(counted.summary.iter().map(|group| Part::Words(in_words(group))));
            section.parts.push(Part::Table(counters(source, counted)));
        }
        None => section.parts.extend(missing("No file has counters of a GPU.", COST, results, "counters")),
    }
    section
}

fn of_operations(newest: &[(&Source, &Operation)]) -> Figure {
    let mut table = Table::new(
        "Operations",
        &[
            "operation",
            "sizes",
            "GPU",
            "#ms",
            "#± ms",
            "#GB/s",
            "#GFLOP/s",
            "#share of the limit",
            "bound by",
            "baseline",
            "#its ms",
            "#ratio",
            "file",
        ],
    );
    let mut rows = Vec::new();
    for (source, one) in newest {
        let ms = one.times.median_ms;
        let limit = one.least.as_ref().map(|least| least.ms / ms);
        let baseline = one.baseline.as_ref();
        let ratio = baseline.map(|baseline| baseline.times.median_ms / ms);
        let mut marks = Vec::new();
        let mut mark = |value: Option<f64>, look: usize, what: &str| {
            marks.extend(value.map(|value| Mark {
                value,
                look,
                title: format!("{} {}, {what}: {}", one.operation, one.sizes, figure(value)),
                key: one.operation.clone(),
                spread: None,
            }));
        };
        mark(limit, 0, "share of the limit");
        mark(ratio, 1, "time of the baseline divided by ours");
        let beside = baseline.map(|baseline| format!("{} by {}", figure(baseline.times.median_ms / ms), baseline.name));
        rows.push(Row {
            name: format!("{} {}", one.operation, one.sizes),
            marks,
            figures: [
                format!(
                    "{} ms{}",
                    figure(ms),
                    limit.map(|limit| format!(", {:.0} %", 100.0 * limit)).unwrap_or_default()
                ),
                beside.unwrap_or_default(),
            ],
            ..Row::default()
        });
        let named = match (baseline, &one.no_baseline) {
            (Some(baseline), _) => match &baseline.wrong {
                Some(wrong) => format!("{}, whose results are not within the bound: {wrong}", baseline.name),
                None => baseline.name.clone(),
            },
            (None, Some(why)) => format!("none: {why}"),
            (None, None) => "–".to_owned(),
        };
        table.row(
            &one.operation,
            [
                Cell::text(&one.operation),
                Cell::text(&one.sizes),
                Cell::text(&source.gpu),
                Cell::number(ms),
                Cell::number(one.times.spread_ms),
                Cell::number(one.bytes / ms / 1e6),
                Cell::number(one.operations / ms / 1e6),
                share(limit),
                Cell::text(one.least.as_ref().map_or("–", |least| &least.bound_by)),
                Cell::text(named),
                Cell::number(baseline.map(|baseline| baseline.times.median_ms)),
                Cell::number(ratio),
                Cell::text(&source.file),
            ],
        );
    }
    let mut from: Vec<String> = newest.iter().map(|(source, _)| source.file.clone()).collect();
    from.sort();
    from.dedup();
    let values = rows.iter().flat_map(|row: &Row| row.marks.iter().map(|mark| mark.value)).collect::<Vec<_>>();
    Figure {
        name: "operations-and-baselines".to_owned(),
        picture: Picture::Rows(Rows {
            title: "Operations: share of the limit, and beside their baselines".to_owned(),
            description: format!("{} operations and sizes.", rows.len()),
            note: newest.first().map(|(source, _)| provenance(source)).unwrap_or_default(),
            axis: "1 is the limit for circles, and the baseline's time for triangles; to the right is faster"
                .to_owned(),
            scale: Scale::log2(values, [-4, 1], [-8, 7]),
            bars: false,
            spread: false,
            line: Some(1.0),
            legend: vec![(0, "share of the limit".to_owned()), (1, "time of the baseline divided by ours".to_owned())],
            rows,
        }),
        table,
        from,
    }
}

fn in_words(group: &CountersInGroup) -> String {
    let CountersInGroup { group, kernels, equal, near } = group;
    format!("{group}: equal for {equal} of {kernels} kernels, equal or near for {near}.")
}

fn counters(source: &Source, counted: &Counted) -> Table {
    let mut table = Table::new(
        format!("Counters by Nsight Compute and by the executor ({})", source.file),
        &[
            "kernel",
            "operations",
            "counter",
            "#executor",
            "#GPU",
            "#executor / GPU",
            "#launches on the executor",
            "#launches on the GPU",
        ],
    );
    for kernel in &counted.kernels {
        for counter in kernel.counters.iter().filter(|counter| counter.executor != 0 || counter.gpu != 0) {
            let quotient = (counter.gpu != 0).then(|| counter.executor as f64 / counter.gpu as f64);
            table.row(
                &kernel.kernel,
                [
                    Cell::text(&kernel.kernel),
                    Cell::text(kernel.operations.join(", ")),
                    Cell::text(&counter.what),
                    Cell::count(counter.executor),
                    Cell::count(counter.gpu),
                    Cell::number(quotient),
                    Cell::count(kernel.launches[0]),
                    Cell::count(kernel.launches[1]),
                ],
            );
        }
    }
    table
}
