//! The ladder of kernels: what each step gains, on the same problem.

use super::names::{provenance, scheme, shape, slug};
use crate::draw::{Mark, Picture, Row, Rows, Scale, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Results, RunProblem, Source};

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "ladder",
        "The ladder of kernels",
        "From one thread for each element to tiles in shared memory and registers and to tensor cores: the same problem by each \
         kernel. The length of a bar is a logarithm: the same distance is the same factor.",
    );
    // The newest run of each problem with several kernels.
    let mut seen: Vec<String> = Vec::new();
    for (source, run) in results.runs() {
        for problem in run.problems.iter().filter(|problem| problem.results.len() > 1) {
            let name = format!("{} {} on {}", problem.problem, shape(problem.m, problem.n, problem.k), source.gpu);
            if !seen.contains(&name) {
                section.parts.push(Part::Figure(Box::new(figure_of(source, problem))));
                seen.push(name);
            }
        }
    }
    if seen.is_empty() {
        section.parts.push(Part::Missing {
            what: "No file has a problem by several kernels.".to_owned(),
            command: "tilewright run --json FILE".to_owned(),
        });
    }
    section
}

fn figure_of(source: &Source, problem: &RunProblem) -> Figure {
    let RunProblem { problem: name, formula, m, n, k, layout, results } = problem;
    let size = shape(*m, *n, *k);
    let title = format!("{name}: {formula}, {size}, {layout}");
    let mut table = Table::new(
        format!("{title}: kernels on {}", source.gpu),
        &[
            "kernel",
            "precision",
            "#median ms",
            "#least ms",
            "#90th percentile ms",
            "#TFLOP/s",
            "#relative error",
            "check",
        ],
    );
    let mut rows = Vec::new();
    let mut legend: Vec<(usize, String)> = Vec::new();
    let first = results.first().map_or(1.0, |first| first.timing.median_ms);
    for result in results {
        let (look, of_look) = scheme(&result.kernel);
        if !legend.iter().any(|(known, _)| *known == look) {
            legend.push((look, of_look.to_owned()));
        }
        let gain = first / result.timing.median_ms;
        rows.push(Row {
            name: result.kernel.clone(),
            marks: vec![Mark {
                value: result.tflop_per_s,
                look,
                title: format!(
                    "{}: {} TFLOP/s, {} ms",
                    result.kernel,
                    figure(result.tflop_per_s),
                    figure(result.timing.median_ms)
                ),
                key: result.kernel.clone(),
                spread: None,
            }],
            figures: [
                format!("{} TFLOP/s", figure(result.tflop_per_s)),
                format!("{} ms, {} × the first", figure(result.timing.median_ms), figure(gain)),
            ],
            ..Row::default()
        });
        table.row(
            &result.kernel,
            [
                Cell::text(&result.kernel),
                Cell::text(&result.precision),
                Cell::number(result.timing.median_ms),
                Cell::number(result.timing.min_ms),
                Cell::number(result.timing.p90_ms),
                Cell::number(result.tflop_per_s),
                Cell::number(result.check.frobenius_error),
                Cell::text(if result.check.passed { "passed" } else { "FAILED" }),
            ],
        );
    }
    let fastest = results.iter().min_by(|one, other| one.timing.median_ms.total_cmp(&other.timing.median_ms));
    let fastest = fastest.map(|one| format!("The fastest is {} with {} ms.", one.kernel, figure(one.timing.median_ms)));
    Figure {
        name: format!("ladder-{}-{}-{}", slug(name), slug(&format!("{m} {n} {k}")), slug(&source.gpu)),
        picture: Picture::Rows(Rows {
            description: format!("{} kernels. {}", results.len(), fastest.unwrap_or_default()),
            title,
            note: provenance(source),
            axis: "TFLOP/s at the median time".to_owned(),
            scale: Scale::log10(results.iter().map(|result| result.tflop_per_s).flat_map(|rate| [rate, rate / 2.0])),
            bars: true,
            spread: false,
            line: None,
            legend,
            rows,
        }),
        table,
        from: vec![source.file.clone()],
    }
}
