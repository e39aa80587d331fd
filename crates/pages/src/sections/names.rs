//! What several sections say in the same way: where a figure is from, shapes, kernels, shares, what is missing.

use crate::page::{Cell, Part};
use crate::results::{Results, Source};

/// `NVIDIA H200, commit 460ebb0b225d, 2026-11-21, driver …`: under the title of a picture.
pub(super) fn provenance(source: &Source) -> String {
    let parts = [
        source.gpu.clone(),
        source.beside.clone(),
        if source.commit.is_empty() { String::new() } else { format!("commit {}", source.commit) },
        source.date.get(..10).unwrap_or_default().to_owned(),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// What is missing, with the reports in words about it.
pub(super) fn missing(what: &str, command: &str, results: &Results, word: &str) -> Vec<Part> {
    let mut parts = vec![Part::Missing { what: what.to_owned(), command: command.to_owned() }];
    let reports = results.in_words(word);
    if !reports.is_empty() {
        parts.push(Part::InWords(reports));
    }
    parts
}

/// Text that a figure's name may have.
pub(super) fn slug(text: &str) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' };
    let mut slug: String = text.chars().map(safe).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    slug.trim_matches('-').to_owned()
}

/// `2048×4096×8192`.
pub(super) fn shape(m: u64, n: u64, k: u64) -> String {
    if m == n && n == k { format!("{m}³") } else { format!("{m}×{n}×{k}") }
}

/// How kernels multiply, by the end of their names, which says so: a name for the legend, and a look.
pub(super) fn scheme(kernel: &str) -> (usize, &'static str) {
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
pub(super) fn short(kernel: &str) -> &str {
    kernel.strip_prefix("gemm_").unwrap_or(kernel)
}

/// A part as percents.
pub(super) fn share(share: Option<f64>) -> Cell {
    let text = share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    Cell { text, value: share, link: String::new() }
}
