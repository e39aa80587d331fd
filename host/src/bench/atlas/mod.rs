//! The atlas: products of every kind that programs compute, ours beside cuBLAS. `tilewright bench --suite atlas`.
//!
//! ```text
//!  classes   class, classes      kinds of shapes: those of the atlas itself, and others by a seed
//!     │      rules, places       the rule of each kind
//!     │
//!  shape     shape                    extents, number of products, strides and offsets of A, B and C
//!     ├─ operands    arena            memory for all shapes, allocated and filled once
//!     ├─ errors      errors           of some elements, against f64
//!     ├─ times       run              ours and cuBLAS's ways in turns, for a fraction of a second; the time of a call
//!     └─ regret      regret           the chosen plan beside all others
//!     │
//!  report    report, text, picture    tables, JSON, a picture
//!  list      list                     shapes alone, for which no GPU is needed
//!  replan    replan                   the regret of other plans by times that a report has: no GPU either
//! ```
//!
//! A benchmark of a few shapes shows how fast these are. Kernels and their choice are made by people who know such a list, so it says
//! little of any other shape. The atlas has some hundreds, and by `--seed` as many more as anyone likes that nobody has looked at.

mod arena;
mod args;
mod class;
mod classes;
mod errors;
mod list;
mod picture;
mod places;
mod regret;
mod replan;
pub mod report;
mod rules;
mod run;
mod shape;
#[cfg(test)]
pub(crate) mod tests;
mod text;

pub(crate) use arena::{Arena, Sets, elements_for};
pub use args::AtlasOptions;
pub(super) use args::{AtlasFlags, Common};
pub use class::{Chosen, Class, LIMIT_BYTES};
pub use classes::CLASSES;
pub use list::ShapeList;
pub use shape::{Operand, Shape};

use std::time::{Duration, Instant};

use super::gpu::{open, portable, refuse_cpu};
use super::report::{CublasInfo, GpuState};
use super::roofline;
use crate::Error;
use crate::baseline::CuBlas;
use crate::files::{check_writable, is_replaced, write, write_json};
use crate::progress::Progress;
use crate::provenance::{commit, now};
use report::{AtlasReport, Outcome, Row, Summary};
use run::Bench;
use tilewright::plan::source_of_constants;
use tilewright::{Bytes, Device, DeviceError};

/// The part of the free memory that operands may take: plans and cuBLAS need some, too.
const SHARE_OF_MEMORY: f64 = 0.6;

/// What was measured is written at least so often, for whoever ends the program early.
const WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// Measures the shapes that `options` ask for, or lists them, and gives `print` what there is to read, as it comes.
///
/// # Errors
/// [`Error::Usage`] for the CPU executor; [`Error::File`]; [`Error::Baseline`] where there is no cuBLAS and a baseline is wanted;
/// [`DeviceError::Driver`](runtime::Error::Driver) where the GPU fails. What was measured until then is in the file of `--json`.
pub fn run(options: &AtlasOptions, mut print: impl FnMut(&str)) -> Result<(), Error> {
    if let Some(report) = &options.replan {
        print(&replan::replan(report, &options.tables, &options.constants)?);
        return Ok(());
    }
    let chosen = options.chosen();
    if options.list {
        let list = ShapeList::new(options.seed, options.sample, &chosen);
        return match &options.json {
            Some(path) => write_json(path, &list),
            None => {
                print(&list.text());
                Ok(())
            }
        };
    }
    let device = open(options.device)?;
    refuse_cpu(&device)?;
    let device = if options.portable { portable(&device)? } else { device };
    options.json.iter().chain(&options.svg).try_for_each(|path| check_writable(path))?;
    measure(&device, options, &chosen, &mut print).map(drop)
}

/// Measures shapes on a GPU.
fn measure(
    device: &Device,
    options: &AtlasOptions,
    chosen: &[Chosen],
    print: &mut dyn FnMut(&str),
) -> Result<AtlasReport, Error> {
    let start = Instant::now();
    let table = options.tables.source(device)?;
    let constants = source_of_constants(device, &options.constants)?;
    let blas = options.baseline.then(|| CuBlas::open(device)).transpose()?;
    let info = device.describe();
    let mut report = AtlasReport {
        schema: report::SCHEMA.to_owned(),
        schema_version: report::SCHEMA_VERSION,
        date: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        state_before: GpuState::read(&info),
        state_after: None,
        device: info,
        cublas: blas
            .as_ref()
            .map(|blas| CublasInfo { version: blas.version().to_owned(), path: blas.path().display().to_string() }),
        table,
        constants,
        roofline: roofline::measure(device, blas.as_ref())?,
        precision: options.precision,
        beta: options.beta,
        seed: options.seed,
        sample: options.sample,
        runs: options.runs,
        left_out: chosen.iter().map(|chosen| chosen.shapes.len()).sum(),
        summary: Summary::default(),
        results: Vec::new(),
    };
    print(&report.heading());
    print(&report.roofline.text());
    let roofline = report.roofline.clone();
    let (elements, room) = memory_for(device, chosen)?;
    let bench = Bench::new((device, blas.as_ref()), &roofline, options, elements)?;

    let outcome = measure_all(&bench, room, chosen, start, &mut report, print);
    report.state_after = GpuState::read(&report.device);
    report.summary = Summary::of(&report.results);
    print(&report.summary.text());
    print(&report.ending());
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    if let Some(path) = &options.svg {
        write(path, report.svg().as_bytes())?;
    }
    outcome.map(|()| report)
}

/// The elements that the operands of all shapes need, and the most bytes that a shape may have: where the free memory is not enough
/// for all, the largest shapes go without.
fn memory_for(device: &Device, chosen: &[Chosen]) -> Result<([u64; 3], u64), Error> {
    let free = device.free_memory()?.unwrap_or(Bytes(0)).0 as f64;
    let l2_bytes = device.gpu_properties().map_or(0, |properties| properties.l2_bytes);
    Ok(largest_that_fit(chosen, l2_bytes.into(), (SHARE_OF_MEMORY * free) as u64))
}

/// The same for so many bytes of memory.
fn largest_that_fit(chosen: &[Chosen], l2_bytes: u64, usable: u64) -> ([u64; 3], u64) {
    let mut room = LIMIT_BYTES;
    loop {
        let fitting = || chosen.iter().flat_map(|chosen| &chosen.shapes).filter(|shape| shape.bytes() <= room);
        let elements = elements_for(fitting(), l2_bytes);
        match fitting().map(Shape::bytes).max() {
            Some(largest) if 4 * elements.iter().sum::<u64>() > usable => room = largest - 1,
            _ => return (elements, room),
        }
    }
}

/// Measures one shape after the other, class by class, until time is up.
fn measure_all(
    bench: &Bench<'_>,
    room: u64,
    chosen: &[Chosen],
    start: Instant,
    report: &mut AtlasReport,
    print: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let options = bench.options;
    let is_late = || options.limit.is_some_and(|limit| start.elapsed() >= limit);
    let mut written = Instant::now();
    for Chosen { class, shapes } in chosen {
        let first = report.results.len();
        let progress = Progress::new(class.name, shapes.len());
        for shape in shapes {
            if is_late() {
                break;
            }
            let outcome = match shape.bytes() <= room {
                true => bench.measure(shape, report.results.len())?,
                false => {
                    let (place, has) = (format!("on {}", bench.device().name()), Bytes(room.into()));
                    let needs = Bytes(shape.bytes().into());
                    Outcome::NotRun { reason: DeviceError::NotEnoughMemory { place, needs, has }.to_string() }
                }
            };
            report.results.push(Row { class: class.name.to_owned(), id: shape.id(), shape: *shape, outcome });
            report.left_out -= 1;
            progress.step();
            if let Some(path) =
                options.json.as_ref().filter(|path| written.elapsed() > WRITTEN_EVERY && is_replaced(path))
            {
                report.summary = Summary::of(&report.results);
                write_json(path, report)?;
                written = Instant::now();
            }
        }
        drop(progress);
        let rows: Vec<&Row> = report.results[first..].iter().collect();
        if !rows.is_empty() {
            print(&text::class_table(class.name, &rows));
        }
    }
    Ok(())
}
