//! What files of results have to say, question by question.
//!
//! | section | question | from |
//! |---|---|---|
//! | [`roofline`] | how far is each kernel from what the GPU can do? | bench, run, operations |
//! | [`ladder`] | what does each step of the ladder of kernels gain? | run |
//! | [`sweeps`] | how does the size matter, and what does the other library take? | bench, KernelBench |
//! | [`errors`] | how wrong are results? | bench, KernelBench, agreement, conformance |
//! | [`atlas`] | where is it slower? | atlas |
//! | [`operations`] | other operations beside their baselines, and counters | operations, counters |
//! | [`history`] | what has changed from commit to commit? | bench, run |
//! | [`files`] | where is every figure from? | all |

pub mod atlas;
pub mod errors;
pub mod files;
pub mod history;
pub mod ladder;
mod names;
pub mod operations;
pub mod roofline;
pub mod sweeps;

use crate::page::{Section, page};
use crate::results::Results;

/// All sections, in order.
pub fn all(results: &Results) -> Vec<Section> {
    vec![
        roofline::section(results),
        ladder::section(results),
        sweeps::section(results),
        errors::section(results),
        atlas::section(results),
        operations::section(results),
        history::section(results),
        files::section(results),
    ]
}

/// The page of these results.
pub fn report(results: &Results) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut gpus: Vec<&str> =
        results.files.iter().map(|file| file.source.gpu.as_str()).filter(|gpu| !gpu.is_empty()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let dates: Vec<&str> = results.files.iter().filter_map(|file| file.source.date.get(..10)).collect();
    let when = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first == last => format!(", {first}"),
        (Some(first), Some(last)) => format!(", {first} to {last}"),
        _ => String::new(),
    };
    let mut about =
        format!("{} of results from {}{when}.", count(results.files.len(), "file"), joined(&gpus, "no GPU"));
    if !results.left_out.is_empty() {
        about += &format!(" {} left out: the table of files says why.", count(results.left_out.len(), "file"));
    }
    page("Tilewright: results", &about, &all(results))
}

/// The pictures of these results as files: names and texts.
pub fn pictures(results: &Results) -> Vec<(String, String)> {
    let of_section = |section: &Section| -> Vec<_> {
        let file = |figure: &crate::page::Figure| {
            (format!("{}.svg", figure.name), figure.picture.svg(&figure.name, crate::draw::Style::OfFile))
        };
        section.figures().map(file).collect()
    };
    all(results).iter().flat_map(of_section).collect()
}

fn joined(names: &[&str], none: &str) -> String {
    if names.is_empty() { none.to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests;
