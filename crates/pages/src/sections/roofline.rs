//! How far each kernel is from what the GPU can do: rates by intensity, below the limits of memory and arithmetic.

use std::collections::BTreeMap;

use super::names::{scheme, shape, share, short, slug};
use crate::draw::{Axis, Chart, Limit, Picture, Point, Scale, Series, figure};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Ceiling, Results, Roofline, Source};

/// A kernel on a case.
struct Measured {
    kernel: String,
    case: String,
    file: String,
    tflop_per_s: f64,
    tb_per_s: f64,
    share: Option<f64>,
}

/// The limits of a GPU.
struct Limits {
    /// Bytes of memory in a second, 10¹², and the name.
    memory: (f64, String),
    /// Operations in a second, 10¹², and names.
    arithmetic: Vec<(f64, String)>,
    /// What they are from, in words.
    from: String,
    /// The file.
    file: String,
}

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "roofline",
        "The roofline",
        "Each mark is a kernel on one case: to the right, more operations for each byte that has to be moved; up, more operations in a \
         second. Nothing gets above the lines. Limits are what probes reached in the same run: reading memory, fp32 on CUDA cores, and \
         tensor cores; three products for each one of fp32 have a third of these.",
    );
    let mut gpus: Vec<&str> = Vec::new();
    for source in results.files.iter().map(|file| &file.source) {
        if !source.gpu.is_empty() && !gpus.contains(&source.gpu.as_str()) {
            gpus.push(&source.gpu);
        }
    }
    let figures: Vec<_> = gpus.into_iter().filter_map(|gpu| of_gpu(results, gpu)).collect();
    if figures.is_empty() {
        section.parts.push(Part::Missing {
            what: "No file has rates of kernels on a GPU.".to_owned(),
            command: "tilewright bench --suite targets --json FILE".to_owned(),
        });
    }
    section.parts.extend(figures.into_iter().map(|figure| Part::Figure(Box::new(figure))));
    section
}

fn of_gpu(results: &Results, gpu: &str) -> Option<Figure> {
    // Kernels go and others take their cases: of each kind of files, those of the newest commit count. Among these, the newest
    // measurement of a kernel on a case.
    let mut newest: BTreeMap<(String, String), Measured> = BTreeMap::new();
    let mut add = |one: Measured| {
        if one.tflop_per_s > 0.0 && one.tb_per_s > 0.0 {
            newest.entry((one.kernel.clone(), one.case.clone())).or_insert(one);
        }
    };
    for (source, bench) in of_newest_commit(results.benches(), gpu) {
        for (case, measured) in bench.results.iter().filter_map(|case| Some((case, case.measured()?))) {
            add(Measured {
                kernel: measured.kernel.clone(),
                case: format!("{} {}, {}", case.problem, case.layout, shape(case.m, case.n, case.k)),
                file: source.file.clone(),
                tflop_per_s: measured.tflop_per_s,
                tb_per_s: measured.tb_per_s,
                share: measured.share(),
            });
        }
    }
    for (source, run) in of_newest_commit(results.runs(), gpu) {
        for problem in &run.problems {
            for result in problem.results.iter().filter(|result| result.check.passed) {
                add(Measured {
                    kernel: result.kernel.clone(),
                    case: format!("{} {}, {}", problem.problem, problem.layout, shape(problem.m, problem.n, problem.k)),
                    file: source.file.clone(),
                    tflop_per_s: result.tflop_per_s,
                    tb_per_s: result.tb_per_s,
                    share: None,
                });
            }
        }
    }
    for (source, operations) in of_newest_commit(results.operations(), gpu) {
        for one in operations.iter().filter(|one| !one.is_of_executor) {
            add(Measured {
                kernel: one.operation.clone(),
                case: one.sizes.clone(),
                file: source.file.clone(),
                tflop_per_s: one.operations / one.times.median_ms / 1e9,
                tb_per_s: one.bytes / one.times.median_ms / 1e9,
                share: one.least.as_ref().map(|least| least.ms / one.times.median_ms),
            });
        }
    }
    let all: Vec<Measured> = newest.into_values().collect();
    if all.is_empty() {
        return None;
    }
    let limits = limits(results, gpu);
    Some(figure_of(gpu, &all, limits.as_ref()))
}

/// Of files of one kind, the newest first, those on this GPU that are of the newest one's commit.
fn of_newest_commit<'a, T>(files: Vec<(&'a Source, T)>, gpu: &str) -> Vec<(&'a Source, T)> {
    let of_gpu: Vec<_> = files.into_iter().filter(|(source, _)| source.gpu == gpu).collect();
    let newest = of_gpu.first().map(|(source, _)| source.commit.clone());
    of_gpu.into_iter().filter(|(source, _)| newest.as_ref() == Some(&source.commit)).collect()
}

/// The limits by the newest probes on this GPU, or by its driver's figures.
fn limits(results: &Results, gpu: &str) -> Option<Limits> {
    let probes = results.benches().into_iter().find(|(source, _)| source.gpu == gpu);
    if let Some((source, bench)) = probes {
        let Roofline { read, fma, tf32, fp64, bf16, .. } = &bench.roofline;
        let mut arithmetic = vec![(fma.per_second, "fp32, CUDA cores".to_owned())];
        let mut add = |ceiling: &Option<Ceiling>, part: f64, name: &str| {
            arithmetic.extend(ceiling.as_ref().map(|ceiling| (ceiling.per_second / part, name.to_owned())));
        };
        add(tf32, 1.0, "TF32");
        add(tf32, 3.0, "a third of TF32");
        add(bf16, 1.0, "bf16, fp16");
        add(bf16, 3.0, "a third of fp16");
        add(fp64, 1.0, "fp64");
        return Some(Limits {
            memory: (read.per_second, format!("reading, {} TB/s", figure(read.per_second))),
            arithmetic: arithmetic
                .into_iter()
                .map(|(rate, name)| (rate, format!("{name}, {}", figure(rate))))
                .collect(),
            from: format!(
                "limits: probes of commit {}, {}",
                if source.commit.is_empty() { "unknown" } else { &source.commit },
                source.date.get(..10).unwrap_or_default()
            ),
            file: source.file.clone(),
        });
    }
    let operations = results.operations().into_iter().filter(|(source, _)| source.gpu == gpu);
    let peak = operations.flat_map(|(source, operations)| operations.iter().map(move |one| (source, one.peak)));
    let (source, peak) = peak.filter_map(|(source, peak)| Some((source, peak?))).next()?;
    let (memory, fp32) = (peak.bytes_per_second / 1e12, peak.fp32_per_second.map(|rate| rate / 1e12));
    Some(Limits {
        memory: (memory, format!("memory, {} TB/s", figure(memory))),
        arithmetic: fp32.into_iter().map(|rate| (rate, format!("fp32, CUDA cores, {}", figure(rate)))).collect(),
        from: "limits: the driver's figures, which no program reaches".to_owned(),
        file: source.file.clone(),
    })
}

fn figure_of(gpu: &str, all: &[Measured], limits: Option<&Limits>) -> Figure {
    let intensity = |one: &Measured| one.tflop_per_s / one.tb_per_s;
    let x = Scale::log10(all.iter().map(intensity).chain([0.5, 2000.0]));
    let rates = limits.iter().flat_map(|limits| limits.arithmetic.iter().map(|(rate, _)| *rate));
    let y = Scale::log10(all.iter().map(|one| one.tflop_per_s).chain(rates));

    let mut series: BTreeMap<usize, Series> = BTreeMap::new();
    // Of each kernel, the best case has its name.
    let best =
        |kernel: &str| all.iter().filter(|one| one.kernel == kernel).map(|one| one.tflop_per_s).fold(0.0, f64::max);
    let mut named: Vec<&str> = Vec::new();
    let mut table = Table::new(
        format!("Rates of kernels on {gpu}"),
        &["kernel", "case", "#operations per byte", "#TFLOP/s", "#TB/s", "#share of the limit", "file"],
    );
    for one in all {
        let (look, name) = scheme(&one.kernel);
        let of_look = series.entry(look).or_insert_with(|| Series { name: name.to_owned(), look, ..Series::default() });
        let is_best = one.tflop_per_s == best(&one.kernel) && !named.contains(&one.kernel.as_str());
        if is_best {
            named.push(&one.kernel);
        }
        of_look.points.push(Point {
            x: intensity(one),
            y: one.tflop_per_s,
            label: if is_best { short(&one.kernel).to_owned() } else { String::new() },
            title: format!(
                "{}, {}: {} TFLOP/s, {} TB/s",
                one.kernel,
                one.case,
                figure(one.tflop_per_s),
                figure(one.tb_per_s)
            ),
            key: one.kernel.clone(),
            spread: None,
        });
        table.row(
            &one.kernel,
            [
                Cell::text(&one.kernel),
                Cell::text(&one.case),
                Cell::number(intensity(one)),
                Cell::number(one.tflop_per_s),
                Cell::number(one.tb_per_s),
                share(one.share),
                Cell::text(&one.file),
            ],
        );
    }
    let lines = limits.map(|limits| {
        let [left, right] = x.ends();
        let bottom = y.ends()[0];
        let (memory, name) = &limits.memory;
        // The line of memory goes as far up as the highest of the others, and is named there if there is none.
        let most = limits.arithmetic.iter().map(|(rate, _)| *rate).fold(f64::NAN, f64::max);
        let most = if most.is_nan() { y.ends()[1] } else { most };
        let first = left.max(bottom / memory);
        let slope = Limit { name: name.clone(), corners: vec![(first, first * memory), (most / memory, most)] };
        let flat = limits.arithmetic.iter().map(|(rate, name)| Limit {
            name: name.clone(),
            corners: vec![((rate / memory).max(left), *rate), (right, *rate)],
        });
        let flat: Vec<_> = flat.collect();
        (slope, flat)
    });
    let mut note = limits.map_or("No file has the limits of this GPU.".to_owned(), |limits| limits.from.clone());
    let mut drawn = Vec::new();
    if let Some((slope, flat)) = lines {
        // At its end the line of memory meets the highest of the others, which has its name there.
        note = format!("{}; slope: {}", note, slope.name);
        drawn.push(Limit { name: String::new(), ..slope });
        drawn.extend(flat);
    }
    let mut from: Vec<String> =
        all.iter().map(|one| one.file.clone()).chain(limits.map(|limits| limits.file.clone())).collect();
    from.sort();
    from.dedup();
    let fastest = all.iter().max_by(|one, other| one.tflop_per_s.total_cmp(&other.tflop_per_s));
    let fastest = fastest.map(|one| format!("The fastest is {} with {} TFLOP/s.", one.kernel, figure(one.tflop_per_s)));
    Figure {
        name: format!("roofline-{}", slug(gpu)),
        picture: Picture::Chart(Chart {
            title: format!("Kernels below the roofline of {gpu}"),
            description: format!("{} kernels and cases. {}", all.len(), fastest.unwrap_or_default()),
            note,
            x: Axis { name: "operations per byte of operands and result".to_owned(), scale: x },
            y: Axis { name: "TFLOP/s".to_owned(), scale: y },
            series: series.into_values().collect(),
            limits: drawn,
            height: 520.0,
        }),
        table,
        from,
    }
}
