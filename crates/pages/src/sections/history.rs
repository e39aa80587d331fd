//! What has changed from commit to commit: the fastest of each problem in each file.

use super::names::{shape, slug};
use crate::draw::{Axis, Chart, Picture, Point, SERIES, Scale, Series, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Results, Source};

/// A measurement of a problem in a file.
struct Entry<'a> {
    source: &'a Source,
    kernel: &'a str,
    ms: f64,
    tflop_per_s: f64,
}

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "history",
        "From commit to commit",
        "The fastest kernel for a problem in each file that has it, by the day of the measurement. Files name the commit that their program was \
         built from.",
    );
    let mut gpus: Vec<&str> = Vec::new();
    for file in &results.files {
        if !gpus.contains(&file.source.gpu.as_str()) && !file.source.gpu.is_empty() {
            gpus.push(&file.source.gpu);
        }
    }
    let figures: Vec<Figure> = gpus.into_iter().filter_map(|gpu| of_gpu(results, gpu)).collect();
    if figures.is_empty() {
        section.parts.push(Part::Missing {
            what: "No problem was measured at two commits: files of another commit are needed.".to_owned(),
            command: "tilewright bench --suite targets --json FILE".to_owned(),
        });
    }
    section.parts.extend(figures.into_iter().map(|figure| Part::Figure(Box::new(figure))));
    section
}

fn of_gpu(results: &Results, gpu: &str) -> Option<Figure> {
    let mut problems: Vec<(String, Vec<Entry<'_>>)> = Vec::new();
    let mut add = |name: String, entry| {
        let at = problems.iter().position(|(known, _)| *known == name).unwrap_or(problems.len());
        if at == problems.len() {
            problems.push((name, Vec::new()));
        }
        let entries: &mut Vec<Entry<'_>> = &mut problems[at].1;
        let entry: Entry<'_> = entry;
        match entries.iter_mut().find(|known| known.source == entry.source) {
            Some(known) if known.ms <= entry.ms => {}
            Some(known) => *known = entry,
            None => entries.push(entry),
        }
    };
    let is_dated = |source: &Source| source.gpu == gpu && !source.date.is_empty();
    for (source, run) in results.runs().into_iter().rev().filter(|(source, _)| is_dated(source)) {
        for problem in &run.problems {
            for result in problem.results.iter().filter(|result| result.check.passed) {
                let name = format!(
                    "{} {}, {}, {}",
                    problem.problem,
                    shape(problem.m, problem.n, problem.k),
                    problem.layout,
                    result.precision
                );
                add(
                    name,
                    Entry {
                        source,
                        kernel: &result.kernel,
                        ms: result.timing.median_ms,
                        tflop_per_s: result.tflop_per_s,
                    },
                );
            }
        }
    }
    for (source, bench) in results.benches().into_iter().rev().filter(|(source, _)| is_dated(source)) {
        for (case, rates) in bench.results.iter().filter_map(|case| Some((case, case.measured()?))) {
            let name =
                format!("{} {}, {}, {}", case.problem, shape(case.m, case.n, case.k), case.layout, case.precision);
            add(
                name,
                Entry { source, kernel: &rates.kernel, ms: rates.times.median_ms, tflop_per_s: rates.tflop_per_s },
            );
        }
    }
    problems.retain(|(_, entries)| entries.len() > 1);
    if problems.is_empty() {
        return None;
    }
    problems.iter_mut().for_each(|(_, entries)| entries.sort_by(|one, other| one.source.date.cmp(&other.source.date)));

    let mut table = Table::new(
        format!("Problems at several commits on {gpu}"),
        &["problem", "date", "commit", "kernel", "#ms", "#TFLOP/s", "#times as fast as before", "file"],
    );
    let (mut series, mut from, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (name, entries)) in problems.iter().enumerate() {
        let mut points = Vec::new();
        let mut before: Option<f64> = None;
        for entry in entries {
            let Entry { source, kernel, ms, tflop_per_s } = entry;
            from.push(source.file.clone());
            if let Some(day) = crate::draw::days_of(&source.date) {
                points.push(Point {
                    x: day,
                    y: *tflop_per_s,
                    label: if before.is_none() || problems.len() <= SERIES { String::new() } else { name.clone() },
                    title: format!("{name}: {kernel}, {} ms, commit {}, {}", figure(*ms), source.commit, source.date),
                    key: (*kernel).to_owned(),
                    spread: None,
                });
            }
            table.row(
                kernel,
                [
                    Cell::text(name),
                    Cell::text(source.date.get(..10).unwrap_or(&source.date)),
                    Cell::text(&source.commit),
                    Cell::text(*kernel),
                    Cell::number(*ms),
                    Cell::number(*tflop_per_s),
                    Cell::number(before.map(|before| before / ms)),
                    Cell::text(&source.file),
                ],
            );
            before = Some(*ms);
        }
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            words.push(format!("{name}: {} times as fast", figure(first.ms / last.ms)));
        }
        // More problems than looks are drawn in those again: then names at the marks tell them apart.
        series.push(Series { name: name.clone(), look: number % SERIES, joined: true, points });
    }
    from.sort();
    from.dedup();
    let points = || series.iter().flat_map(|series: &Series| &series.points);
    let (days, rates): (Vec<f64>, Vec<f64>) = points().map(|point| (point.x, point.y)).unzip();
    Some(Figure {
        name: format!("history-{}", slug(gpu)),
        picture: Picture::Chart(Chart {
            title: format!("Problems from commit to commit on {gpu}"),
            description: format!("From the first file to the last one, {}.", words.join("; ")),
            note: "the fastest kernel in each file".to_owned(),
            x: Axis { name: "date of the measurement (UTC)".to_owned(), scale: Scale::days(days) },
            y: Axis { name: "TFLOP/s".to_owned(), scale: Scale::log10(rates) },
            series,
            limits: Vec::new(),
            height: 300.0,
        }),
        table,
        from,
    })
}
