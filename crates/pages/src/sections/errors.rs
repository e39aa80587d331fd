//! How wrong results are, against f64: ours beside cuBLAS's, kernel by kernel, and instruction by instruction.

use super::names::{provenance, slug};
use crate::draw::{Mark, Picture, Row, Rows, Scale, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Agreeing, Bench, Conformance, ErrorOn, Errors, Results, Source};

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "errors",
        "Errors",
        "Against the product in f64. The relative error is that of the whole result, in Frobenius norms; the largest one is that of an element as \
         a part of its Σ|a||b|. Each kind of inputs has a mark.",
    );
    match results.benches().first() {
        Some((source, bench)) => {
            let figures = [
                (
                    "Relative errors of results, Frobenius norm",
                    "frobenius",
                    (|errors: &Errors| errors.frobenius) as fn(&Errors) -> f64,
                ),
                ("Largest errors of elements, as parts of Σ|a||b|", "largest", |errors: &Errors| errors.max),
            ];
            for (title, name, which) in figures {
                section
                    .parts
                    .extend(beside(source, bench, title, name, which).map(|figure| Part::Figure(Box::new(figure))));
            }
        }
        None => section.parts.push(Part::Missing {
            what: "No file has errors beside cuBLAS's.".to_owned(),
            command: "tilewright bench --suite targets --json FILE".to_owned(),
        }),
    }
    section.parts.push(Part::Heading("Every kernel on a GPU and on the executor".to_owned()));
    match results.agreements().first() {
        Some((source, kernels)) => section.parts.push(Part::Figure(Box::new(agreement(source, kernels)))),
        None => section.parts.push(Part::Missing {
            what: "No file compares kernels on a GPU with the executor.".to_owned(),
            command: "target/release/agreement --output DIRECTORY".to_owned(),
        }),
    }
    section.parts.push(Part::Heading("Single instructions".to_owned()));
    match results.conformances().first() {
        Some((source, it)) => section.parts.extend(conformance(source, it)),
        None => section.parts.push(Part::Missing {
            what: "No file compares single instructions.".to_owned(),
            command: "target/release/conformance --output DIRECTORY".to_owned(),
        }),
    }
    section
}

fn beside(source: &Source, bench: &Bench, title: &str, name: &str, which: fn(&Errors) -> f64) -> Option<Figure> {
    let mut table =
        Table::new(title, &["case", "kernel", "inputs", "#ours", "routine of cuBLAS", "#cuBLAS", "#allowed"]);
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (case, rates) in bench.results.iter().filter_map(|case| Some((case, case.measured()?))) {
        let mut marks = Vec::new();
        for ErrorOn { inputs, ours, cublas, bound } in &rates.errors {
            let mine = which(ours);
            values.push(mine);
            if let Some((routine, theirs)) = cublas {
                let theirs = which(theirs);
                values.push(theirs);
                marks.push(Mark {
                    value: theirs,
                    look: 1,
                    title: format!("{routine} on {inputs}: {}", figure(theirs)),
                    ..Mark::default()
                });
            }
            marks.push(Mark {
                value: mine,
                look: 0,
                title: format!("{} on {inputs}: {}", rates.kernel, figure(mine)),
                key: rates.kernel.clone(),
                spread: None,
            });
            table.row(
                &rates.kernel,
                [
                    Cell::text(&case.id),
                    Cell::text(&rates.kernel),
                    Cell::text(inputs),
                    Cell::number(mine),
                    Cell::text(cublas.as_ref().map_or("–", |(routine, _)| routine)),
                    Cell::number(cublas.as_ref().map(|(_, theirs)| which(theirs))),
                    Cell::number(bound.as_ref().map(which)),
                ],
            );
        }
        let largest = rates.errors.iter().map(|on| which(&on.ours)).fold(f64::NAN, f64::max);
        if !marks.is_empty() {
            rows.push(Row {
                name: case.id.clone(),
                marks,
                figures: [figure(largest), String::new()],
                ..Row::default()
            });
        }
    }
    if rows.is_empty() {
        return None;
    }
    let (mut smaller, mut compared) = (0, 0);
    for on in bench.results.iter().filter_map(|case| case.measured()).flat_map(|rates| &rates.errors) {
        if let Some((_, theirs)) = &on.cublas {
            compared += 1;
            smaller += usize::from(which(&on.ours) <= which(theirs));
        }
    }
    let summary = format!("Ours is not larger than cuBLAS's in {smaller} of {compared} comparisons");
    Some(Figure {
        name: format!("errors-{name}-{}", slug(&source.gpu)),
        picture: Picture::Rows(Rows {
            title: title.to_owned(),
            description: format!("{} cases. {summary}.", rows.len()),
            note: format!("{}. {summary}; at the right, our largest", provenance(source)),
            axis: "error against f64".to_owned(),
            scale: Scale::log10(values),
            bars: false,
            spread: false,
            line: None,
            legend: vec![(0, "ours".to_owned()), (1, "cuBLAS".to_owned())],
            rows,
        }),
        table,
        from: vec![source.file.clone()],
    })
}

fn agreement(source: &Source, kernels: &[Agreeing]) -> Figure {
    let mut table = Table::new(
        "Kernels on a GPU and on the executor",
        &[
            "kernel",
            "#products",
            "#elements",
            "#the same bits",
            "#GPU − executor",
            "#GPU − f64",
            "#executor − f64",
            "#allowed",
        ],
    );
    let mut rows = Vec::new();
    for it in kernels {
        let mark = |value: f64, look: usize, what: &str| Mark {
            value,
            look,
            title: format!("{}, {what}: {}", it.kernel, figure(value)),
            key: it.kernel.clone(),
            spread: None,
        };
        let others = it.elements.saturating_sub(it.same_bits);
        let bits = if others == 0 { "the same bits".to_owned() } else { format!("{others} of {} differ", it.elements) };
        rows.push(Row {
            name: it.kernel.clone(),
            // The GPU's above the executor's: where one mark is seen, they are equal.
            marks: vec![mark(it.error_of_executor, 1, "executor"), mark(it.error_of_gpu, 0, "GPU")],
            stroke: Some(it.bound),
            figures: [bits, String::new()],
            ..Row::default()
        });
        table.row(
            &it.kernel,
            [
                Cell::text(&it.kernel),
                Cell::count(it.products),
                Cell::count(it.elements),
                Cell::count(it.same_bits),
                Cell::number(it.difference),
                Cell::number(it.error_of_gpu),
                Cell::number(it.error_of_executor),
                Cell::number(it.bound),
            ],
        );
    }
    let same = kernels.iter().filter(|it| it.same_bits == it.elements).count();
    let values = kernels.iter().flat_map(|it| [it.error_of_gpu, it.error_of_executor, it.bound]);
    Figure {
        name: "agreement".to_owned(),
        picture: Picture::Rows(Rows {
            title: "Largest errors of kernels on a GPU and on the executor".to_owned(),
            description: format!(
                "{} kernels, {same} of which have the same bits on both in every element.",
                kernels.len()
            ),
            note: format!(
                "{same} of {} kernels have the same bits on both; strokes are what is allowed. Parts of |α|·Σ|a||b| + |β||c|.",
                kernels.len()
            ),
            axis: "largest error of an element against f64".to_owned(),
            scale: Scale::log10(values),
            bars: false,
            spread: false,
            line: None,
            legend: vec![
                (0, "on the GPU (over the executor's where both are equal)".to_owned()),
                (1, "on the executor".to_owned()),
            ],
            rows,
        }),
        table,
        from: vec![source.file.clone()],
    }
}

fn conformance(source: &Source, it: &Conformance) -> [Part; 2] {
    let different = it.outcomes.iter().filter(|one| one.different > 0 || one.error.is_some()).count();
    let mut table = Table::new(
        format!("Instructions on {} and on the executor ({})", source.gpu, source.file),
        &["instruction", "#results", "#equal", "#equal but for a NaN's payload", "#different", "error"],
    );
    for one in &it.outcomes {
        table.row(
            "",
            [
                Cell::text(&one.instruction),
                Cell::count(one.elements),
                Cell::count(one.equal),
                Cell::count(one.equal_but_for_nan_payload),
                Cell::count(one.different),
                Cell::text(one.error.as_deref().unwrap_or("none")),
            ],
        );
    }
    let words =
        format!("{} instructions with random and special values: {different} of them differ.", it.outcomes.len());
    [Part::Words(words), Part::Table(table)]
}
