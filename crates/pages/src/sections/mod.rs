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
pub mod operations;
pub mod roofline;
pub mod sweeps;

use crate::page::{Part, Section, page};
use crate::results::{Results, Source};

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

/// `NVIDIA H200, commit 460ebb0b225d, 2026-11-21, driver …`: under the title of a picture.
fn provenance(source: &Source) -> String {
    let parts = [
        source.gpu.clone(),
        source.beside.clone(),
        if source.commit.is_empty() { String::new() } else { format!("commit {}", source.commit) },
        source.date.get(..10).unwrap_or_default().to_owned(),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// What is missing, with the reports in words about it.
fn missing(what: &str, command: &str, results: &Results, word: &str) -> Vec<Part> {
    let mut parts = vec![Part::Missing { what: what.to_owned(), command: command.to_owned() }];
    let reports = results.in_words(word);
    if !reports.is_empty() {
        parts.push(Part::InWords(reports));
    }
    parts
}

/// Text that a figure's name may have.
fn slug(text: &str) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' };
    let mut slug: String = text.chars().map(safe).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    slug.trim_matches('-').to_owned()
}

/// `2048×4096×8192`.
fn shape(m: u64, n: u64, k: u64) -> String {
    if m == n && n == k { format!("{m}³") } else { format!("{m}×{n}×{k}") }
}

/// How kernels multiply, by the end of their names, which says so: a name for the legend, and a look.
fn scheme(kernel: &str) -> (usize, &'static str) {
    const SCHEMES: [(&[&str], usize, &str); 5] = [
        (&["_3xtf32"], 1, "fp32 as three products in TF32"),
        (&["_3xfp16", "_mixed", "_scaled_fp16"], 2, "fp32 as three products in fp16, or mixed"),
        (&["_normwise", "_fp64", "_int8"], 3, "fp32 otherwise: normwise, fp64, int8"),
        (&["_tf32"], 4, "TF32"),
        (&["_bf16", "_fp16"], 5, "bf16 or fp16"),
    ];
    let found = SCHEMES.into_iter().find(|(ends, ..)| ends.iter().any(|end| kernel.ends_with(end)));
    match found {
        Some((_, look, name)) => (look, name),
        None if kernel.ends_with("_fp32") => (0, "fp32 on CUDA cores"),
        None => (6, "others"),
    }
}

/// A kernel's name for pictures, without what all have.
fn short(kernel: &str) -> &str {
    kernel.strip_prefix("gemm_").unwrap_or(kernel)
}

#[cfg(test)]
mod tests;
