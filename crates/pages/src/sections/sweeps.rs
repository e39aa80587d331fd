//! Sizes, and what the other library takes: cuBLAS beside each case, torch beside KernelBench's problems.

use super::names::{provenance, scheme, shape, share, slug};
use crate::draw::{Axis, Chart, Mark, Picture, Point, Row, Rows, Scale, Series, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Bench, Case, KernelBench, Rates, Results, Source, Times};

/// The fewest sizes that make a sweep.
const SIZES: usize = 3;

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "sweeps",
        "Over sizes, and beside cuBLAS",
        "Ours and cuBLAS, measured in turns in one process on the same buffers. Medians, with the interquartile range where it is wider \
         than a mark. cuBLAS is the fastest of its ways.",
    );
    // The newest of each GPU.
    let mut seen: Vec<&str> = Vec::new();
    for (source, bench) in results.benches() {
        if seen.contains(&source.gpu.as_str()) {
            continue;
        }
        seen.push(&source.gpu);
        section.parts.extend(sweeps(source, bench).into_iter().map(|figure| Part::Figure(Box::new(figure))));
        section.parts.extend(beside(source, bench).map(|figure| Part::Figure(Box::new(figure))));
    }
    if seen.is_empty() {
        section.parts.push(Part::Missing {
            what: "No file has products beside cuBLAS.".to_owned(),
            command: "tilewright bench --suite targets --json FILE".to_owned(),
        });
    }
    match results.kernel_benches().first() {
        Some((source, bench)) => {
            section.parts.push(Part::Heading("KernelBench's problems beside torch".to_owned()));
            section.parts.push(Part::Figure(Box::new(kernel_bench(source, bench))));
        }
        None => section.parts.push(Part::Missing {
            what: "No file has KernelBench's problems beside torch.".to_owned(),
            command: "python python/kernelbench/run.py --json FILE".to_owned(),
        }),
    }
    section
}

/// The cases that differ in their size alone: a list for each of what they have in common.
fn groups(bench: &Bench) -> Vec<(String, Vec<(&Case, &Rates)>)> {
    let mut groups: Vec<(String, Vec<_>)> = Vec::new();
    for (case, rates) in bench.results.iter().filter_map(|case| Some((case, case.measured()?))) {
        let size = format!(" m={} n={} k={} ", case.m, case.n, case.k);
        let name = case.id.replacen(&size, " ", 1);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cases)) => cases.push((case, rates)),
            None => groups.push((name, vec![(case, rates)])),
        }
    }
    groups.retain(|(_, cases)| cases.len() >= SIZES);
    groups
        .iter_mut()
        .for_each(|(_, cases)| cases.sort_by(|one, other| operations(one.0).total_cmp(&operations(other.0))));
    groups
}

fn operations(case: &Case) -> f64 {
    2.0 * case.m as f64 * case.n as f64 * case.k as f64
}

fn sweeps(source: &Source, bench: &Bench) -> Vec<Figure> {
    groups(bench).into_iter().map(|(name, cases)| sweep(source, bench, &name, &cases)).collect()
}

fn sweep(source: &Source, bench: &Bench, name: &str, cases: &[(&Case, &Rates)]) -> Figure {
    // Of squares, the side; of others, the side of the cube with as many operations.
    let side = |case: &Case| (operations(case) / 2.0).cbrt();
    let are_squares = cases.iter().all(|(case, _)| case.m == case.n && case.n == case.k);
    let rate = |case: &Case, ms: f64| operations(case) / ms / 1e9;
    let spread = |case: &Case, times: &Times| {
        let half = times.spread_ms / 2.0;
        Some([rate(case, times.median_ms + half), rate(case, (times.median_ms - half).max(times.min_ms))])
    };
    let mut series = [("ours", 0), ("cuBLAS", 1)].map(|(name, look)| Series {
        name: name.to_owned(),
        look,
        joined: true,
        points: Vec::new(),
    });
    let mut table = Table::new(
        format!("{name}, by size, on {}", source.gpu),
        &[
            "m×n×k",
            "kernel",
            "#ms",
            "#± ms",
            "#TFLOP/s",
            "#cuBLAS ms",
            "#± ms",
            "#cuBLAS TFLOP/s",
            "#ratio",
            "#share of the limit",
        ],
    );
    for (case, rates) in cases {
        let size = shape(case.m, case.n, case.k);
        let ours = rate(case, rates.times.median_ms);
        series[0].points.push(Point {
            x: side(case),
            y: ours,
            spread: spread(case, &rates.times),
            label: rates.ratio().map(|ratio| format!("{ratio:.2} ×")).unwrap_or_default(),
            title: format!("{size}: {}, {} TFLOP/s", rates.kernel, figure(ours)),
            key: rates.kernel.clone(),
        });
        let theirs = rates.baselines.first();
        if let Some(baseline) = theirs {
            let theirs = rate(case, baseline.times.median_ms);
            series[1].points.push(Point {
                x: side(case),
                y: theirs,
                spread: spread(case, &baseline.times),
                title: format!("{size}: {}, {} TFLOP/s", baseline.routine, figure(theirs)),
                ..Point::default()
            });
        }
        table.row(
            &rates.kernel,
            [
                Cell { value: Some(operations(case)), ..Cell::text(size) },
                Cell::text(&rates.kernel),
                Cell::number(rates.times.median_ms),
                Cell::number(rates.times.spread_ms),
                Cell::number(ours),
                Cell::number(theirs.map(|baseline| baseline.times.median_ms)),
                Cell::number(theirs.map(|baseline| baseline.times.spread_ms)),
                Cell::number(theirs.map(|baseline| rate(case, baseline.times.median_ms))),
                Cell::number(rates.ratio()),
                share(rates.share()),
            ],
        );
    }
    let ratios: Vec<String> = cases.iter().filter_map(|(_, rates)| Some(figure(rates.ratio()?))).collect();
    let ys: Vec<f64> = series.iter().flat_map(|series| series.points.iter().map(|point| point.y)).collect();
    Figure {
        name: format!("sweep-{}-{}", slug(name), slug(&source.gpu)),
        picture: Picture::Chart(Chart {
            title: format!("{name}, by size"),
            description: format!(
                "{} sizes. Times of cuBLAS divided by ours, from small to large: {}.",
                cases.len(),
                ratios.join(", ")
            ),
            note: format!(
                "{}; {} runs each; at the marks: times of cuBLAS divided by ours",
                provenance(source),
                bench.runs
            ),
            x: Axis {
                name: if are_squares { "m = n = k" } else { "cube root of m·n·k" }.to_owned(),
                scale: Scale::log10(cases.iter().map(|(case, _)| side(case))),
            },
            y: Axis { name: "TFLOP/s".to_owned(), scale: Scale::linear_from_zero(ys) },
            series: series.into(),
            limits: Vec::new(),
            height: 320.0,
        }),
        table,
        from: vec![source.file.clone()],
    }
}

/// Each case's ratio.
fn beside(source: &Source, bench: &Bench) -> Option<Figure> {
    let mut table = Table::new(
        format!("Cases beside cuBLAS on {}", source.gpu),
        &[
            "case",
            "kernel",
            "#ms",
            "#± ms",
            "routine of cuBLAS",
            "#cuBLAS ms",
            "#± ms",
            "#torch ms",
            "#ratio",
            "#share of the limit",
            "bound by",
        ],
    );
    let (mut rows, mut legend): (Vec<Row>, Vec<(usize, String)>) = (Vec::new(), Vec::new());
    for case in &bench.results {
        let Some(rates) = case.measured() else {
            let none = || Cell::number(None);
            let why = format!("not run: {}", case.not_run().unwrap_or_default());
            table.row(
                "",
                [
                    Cell::text(&case.id),
                    Cell::text(why),
                    none(),
                    none(),
                    Cell::text("–"),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    Cell::text("–"),
                ],
            );
            continue;
        };
        let baseline = rates.baselines.first();
        let look = scheme(&rates.kernel);
        if !legend.iter().any(|(known, _)| *known == look.0) {
            legend.push((look.0, look.1.to_owned()));
        }
        if let (Some(ratio), Some(baseline)) = (rates.ratio(), baseline) {
            let relative = (rates.times.spread_ms / rates.times.median_ms)
                .max(baseline.times.spread_ms / baseline.times.median_ms)
                / 2.0;
            rows.push(Row {
                name: case.id.clone(),
                marks: vec![Mark {
                    value: ratio,
                    look: look.0,
                    spread: Some([ratio * (1.0 - relative).max(0.0), ratio * (1.0 + relative)]),
                    title: format!(
                        "{}: {} ms, {} {} ms",
                        rates.kernel,
                        figure(rates.times.median_ms),
                        baseline.routine,
                        figure(baseline.times.median_ms)
                    ),
                    key: rates.kernel.clone(),
                }],
                figures: [format!("{ratio:.2}"), String::new()],
                ..Row::default()
            });
        }
        table.row(
            &rates.kernel,
            [
                Cell::text(&case.id),
                Cell::text(&rates.kernel),
                Cell::number(rates.times.median_ms),
                Cell::number(rates.times.spread_ms),
                Cell::text(baseline.map_or("–", |baseline| &baseline.routine)),
                Cell::number(baseline.map(|baseline| baseline.times.median_ms)),
                Cell::number(baseline.map(|baseline| baseline.times.spread_ms)),
                Cell::number(rates.torch_ms),
                Cell::number(rates.ratio()),
                share(rates.share()),
                Cell::text(rates.least.as_ref().map_or("–", |least| &least.bound_by)),
            ],
        );
    }
    if rows.is_empty() {
        return None;
    }
    let values = || rows.iter().flat_map(|row| row.marks.iter().map(|mark| mark.value));
    let slower = values().filter(|ratio| *ratio < 1.0).count();
    Some(Figure {
        name: format!("cases-{}", slug(&source.gpu)),
        picture: Picture::Rows(Rows {
            title: "Cases beside cuBLAS: to the right of 1, ours is faster".to_owned(),
            description: format!("{} cases, {slower} of them with a ratio below 1.", rows.len()),
            note: provenance(source),
            axis: "time of cuBLAS divided by ours".to_owned(),
            scale: Scale::log2(values(), [-1, 2], [-4, 7]),
            bars: false,
            spread: false,
            line: Some(1.0),
            legend,
            rows,
        }),
        table,
        from: vec![source.file.clone()],
    })
}

fn kernel_bench(source: &Source, bench: &KernelBench) -> Figure {
    let mut table = Table::new(
        "KernelBench's problems",
        &[
            "problem",
            "shape",
            "kernel",
            "#ms",
            "#± ms",
            "#torch ms",
            "#± ms",
            "#torch.compile ms",
            "#ratio to torch",
            "#error",
            "#torch's error",
        ],
    );
    let mut rows = Vec::new();
    for problem in &bench.problems {
        let time = |name: &str| problem.times.get(name).copied();
        let [ours, torch, compiled] = ["tilewright", "torch eager", "torch.compile"].map(time);
        let kernel = if problem.kernel.is_empty() { "–" } else { &problem.kernel };
        let look = if problem.kernel.is_empty() { 6 } else { scheme(&problem.kernel).0 };
        rows.push(Row {
            name: format!("{}, {}", problem.name, problem.shape),
            marks: vec![Mark {
                value: problem.speed_up,
                look,
                title: format!("{kernel}: {:.2}", problem.speed_up),
                key: problem.kernel.clone(),
                spread: None,
            }],
            figures: [format!("{:.2}", problem.speed_up), String::new()],
            ..Row::default()
        });
        table.row(
            &problem.kernel,
            [
                Cell::text(&problem.name),
                Cell::text(&problem.shape),
                Cell::text(kernel),
                Cell::number(ours.map(|times| times.median_ms)),
                Cell::number(ours.map(|times| times.spread_ms)),
                Cell::number(torch.map(|times| times.median_ms)),
                Cell::number(torch.map(|times| times.spread_ms)),
                Cell::number(compiled.map(|times| times.median_ms)),
                Cell::number(problem.speed_up),
                Cell::number(problem.error),
                Cell::number(problem.torch_error),
            ],
        );
    }
    let mut legend: Vec<(usize, String)> = Vec::new();
    for problem in &bench.problems {
        let (look, name) =
            if problem.kernel.is_empty() { (6, "no product of matrices") } else { scheme(&problem.kernel) };
        if !legend.iter().any(|(known, _)| *known == look) {
            legend.push((look, name.to_owned()));
        }
    }
    let speed_ups = bench.problems.iter().map(|problem| problem.speed_up);
    Figure {
        name: "kernelbench".to_owned(),
        picture: Picture::Rows(Rows {
            title: "Times of torch divided by ours, KernelBench's problems".to_owned(),
            description: format!("{} problems, geometric mean {}.", bench.problems.len(), figure(bench.geometric_mean)),
            note: format!("{}; geometric mean {}", provenance(source), figure(bench.geometric_mean)),
            axis: "time of torch, not compiled, divided by ours".to_owned(),
            scale: Scale::log2(speed_ups, [-1, 2], [-4, 7]),
            bars: false,
            spread: false,
            line: Some(1.0),
            legend,
            rows,
        }),
        table,
        from: vec![source.file.clone()],
    }
}
