//! Sites that are left out of the count, each with the proof that the change changes nothing that matters.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::workspace::root;

/// A change that nobody can tell of. Found by what the source says, so that other lines can come and go.
pub(super) struct Equivalent {
    /// The file.
    pub(super) file: &'static str,
    /// What the line has, without the space around it; in whatever places it stands.
    pub(super) line: &'static str,
    /// What is asked for there, and the changes that are equivalent.
    pub(super) function: &'static str,
    pub(super) changes: &'static [&'static str],
    /// Why nothing that matters is changed.
    pub(super) proof: &'static str,
}

#[rustfmt::skip]
pub(super) const EQUIVALENT: &[Equivalent] = &[
    Equivalent {
        file: "gpu-kernels/src/gemm/mma/mod.rs",
        line: "warp::sync_warp(warp::ALL_LANES)",
        function: "sync_warp",
        changes: &["omitted"],
        proof: "It orders nothing: it keeps the compiler from moving the loads of a block of columns before it, which saves registers.",
    },
    Equivalent {
        file: "gpu-kernels/patterns/kernels/src/sum.rs",
        line: "done.get_unchecked(0).store(0, Relaxed, Scope::Device)",
        function: "atomic-store",
        changes: &["scope-1"],
        proof: "The block that stores has counted itself as the last one, by an operation that acquires what all others have released; nobody \
                accesses the counter after that until the launch is over, which every later launch sees.",
    },
];

/// Files that have been read, by lines.
#[derive(Default)]
pub(super) struct Sources(Mutex<HashMap<String, Arc<Vec<String>>>>);

impl Sources {
    /// The line of a place, `FILE:LINE:COLUMN`, without the space around it.
    pub(super) fn of_place(&self, place: &str) -> anyhow::Result<String> {
        match place.rsplitn(3, ':').collect::<Vec<_>>()[..] {
            [_, line, file] => self.line(file, line.parse()?),
            _ => Ok(String::new()),
        }
    }

    /// A line, counted from 1, without the space around it.
    fn line(&self, file: &str, line: usize) -> anyhow::Result<String> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = match files.get(file) {
            Some(lines) => lines.clone(),
            None => {
                let text = fs::read_to_string(root().join(file)).with_context(|| format!("reading {file}"))?;
                let lines: Arc<Vec<String>> = Arc::new(text.lines().map(|line| line.trim().to_owned()).collect());
                files.insert(file.to_owned(), lines.clone());
                lines
            }
        };
        Ok(lines.get(line.wrapping_sub(1)).cloned().unwrap_or_default())
    }
}

/// The entry of a site, if it has one.
pub(super) fn of(site: &str, sources: &Sources) -> anyhow::Result<Option<&'static Equivalent>> {
    let [place, function, change] = site.split(' ').collect::<Vec<_>>()[..] else { return Ok(None) };
    let file = place.split(':').next().unwrap_or_default();
    let mut candidates = EQUIVALENT
        .iter()
        .filter(|entry| entry.file == file && entry.function == function && entry.changes.contains(&change))
        .peekable();
    if candidates.peek().is_none() {
        return Ok(None);
    }
    let text = sources.of_place(place)?;
    Ok(candidates.find(|entry| text.contains(entry.line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_entries_name_is_there() {
        for Equivalent { file, line, changes, proof, .. } in EQUIVALENT {
            let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(line), "{file} has no `{line}`");
            assert!(!changes.is_empty() && proof.len() > 40, "{file}, `{line}`: {proof}");
        }
    }

    #[test]
    fn sites_are_found_by_their_line() {
        let Equivalent { file, line, function, changes, proof } = &EQUIVALENT[0];
        let text = fs::read_to_string(root().join(file)).unwrap();
        let number = 1 + text.lines().position(|text| text.contains(line)).unwrap();
        let sources = Sources::default();
        let find = |site: String| of(&site, &sources).unwrap().map(|entry| entry.proof);
        assert_eq!(find(format!("{file}:{number}:9 {function} {}", changes[0])), Some(*proof));
        assert_eq!(find(format!("{file}:1:9 {function} {}", changes[0])), None);
        assert_eq!(find(format!("{file}:{number}:9 {function} something-else")), None);
    }
}
