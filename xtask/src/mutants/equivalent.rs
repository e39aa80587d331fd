//! Sites that are left out of the count, each with the proof that the change changes nothing that matters.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};

use crate::workspace::root;

/// A change that nobody can tell of. Found by what the source says, so that other lines can come and go.
pub(super) struct Equivalent {
    /// The file.
    pub(super) file: &'static str,
    /// The function that the place is in: the last before it.
    pub(super) within: &'static str,
    /// What the line has.
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
        within: "multiply_step",
        line: "warp::sync_warp(warp::ALL_LANES)",
        function: "sync_warp",
        changes: &["omitted"],
        proof: "It orders nothing: it keeps the compiler from moving the loads of a block of columns before it, which saves registers.",
    },
    Equivalent {
        file: "crates/blocks/src/uniform.rs",
        within: "uniform",
        line: "warp::warp_shuffle_idx(warp::ALL_LANES, value, 0, 32)",
        function: "warp_shuffle_idx",
        changes: &["lane+1"],
        proof: "The value is the same in all lanes, as the function demands: from which of them it is taken changes nothing. It is taken from \
                one so that the assembler knows that it is the same.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/narrow/tensor_cores.rs",
        within: "multiply",
        line: "async_copy::wait_group::<0>();",
        function: "wait_group",
        changes: &["omitted", "pending+1"],
        proof: "Round `c` waits for all groups but the latest `STAGES - 1`, of `STAGES + c`: for that of chunk `c`. So all copies of chunks have \
                been waited for when the rounds are over, and the groups behind them are empty.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/sliced.rs",
        within: "multiply",
        line: "(true, true) => slice::<THREADS, LINES, TILES, VectorsOfK, VectorsOfK>(&tile, lines),",
        function: "sync_warp",
        changes: &["omitted"],
        proof: "Where k are neighbours in both operands, lane 4g + q copies elements 4q to 4q + 3 of lines g + 8i, takes the same ones, and is the one \
                that copies over them: it waits for its own copies, and other lanes have nothing to do with these places.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/grouped/teams.rs",
        within: "largest_k",
        line: "warp::warp_shuffle_xor(warp::ALL_LANES, largest, distance, warp::LANES)",
        function: "warp_shuffle_xor",
        changes: &["lane+1"],
        proof: "Lane 0, whose word is that of its warp, takes from lanes (l ^ distance) + 1 and so sees all lanes but 4, 13, 21 and 30. A team has the \
                same k in all of its lanes, which are 4, or more, from a multiple of 4 on: what these lanes have, 5, 12, 20 and 31 have as well.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/mma/mod.rs",
        within: "others",
        line: "scan::others(&[shared.read(place)], &[shared.skip((ROWS * DEPTH) as usize).read(place)])",
        function: "shared-load",
        changes: &["index+1"],
        proof: "Any number of the operand's tile will do. Only its being no power of two is made use of: the operand does not select then, as it does \
                not; otherwise, lines are looked at. The next one is of the same tile: threads look at no more than half of it, and all of it is written.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/divided_steps.rs",
        within: "multiply",
        line: "let of_a = raw.read((stage * RAW_STAGE + fragments) as usize);",
        function: "shared-load",
        changes: &["index+1"],
        proof: "Any number of the tile of A will do, as in `mma`. A thread's first is at k = 0 to 3 of a row, or in line 0 to 55 of 64: the next one \
                in memory is the next k, or the next line.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/divided_steps.rs",
        within: "multiply",
        line: "scan::others(&[of_a], &[parts_of_b.read(thread as usize)])",
        function: "shared-load",
        changes: &["index+1"],
        proof: "Any number of the tile of B will do, as in `mma`: the first 129 of its 2048 high parts are all written.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/few_columns.rs",
        within: "multiply",
        line: "let of_a = raw.read((stage * stage_len::<A, B>() + fragments) as usize);",
        function: "shared-load",
        changes: &["index+1"],
        proof: "Any number of the tile of A will do, as in `mma`. A thread's first is at k = 0 to 3 of a row, or in line 0 to 55 of 64: the next one \
                in memory is the next k, or the next line.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/few_columns.rs",
        within: "multiply",
        line: "scan::others(&[of_a], &[parts_of_b.read(thread as usize)])",
        function: "shared-load",
        changes: &["index+1"],
        proof: "Any number of the tile of B will do, as in `mma`: the first 129 of its 512 high parts are all written.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/decomposed.rs",
        within: "multiply",
        line: "BARRIERS.sums.sync();",
        function: "sync_part",
        changes: &["number+1"],
        proof: "The next number is nobody's: `sums` has the last one that the kernels take. All consumers come there together, as to the right one.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/split_k.rs",
        within: "gemm_split_reduction_many_fp32",
        line: "thread::sync_threads(); // what has been read may be written for the next pieces",
        function: "sync_threads",
        changes: &["omitted"],
        proof: "A block has further pieces only if there are more than a grid of 2^31 - 1 blocks takes. A block's pieces have 256 partials at least, so \
                all partials would take 2 TiB.",
    },
    Equivalent {
        file: "gpu-kernels/src/pack/scaled.rs",
        within: "line_scales_fp32",
        line: "thread::sync_threads(); // what has been read may be written for the next group",
        function: "sync_threads",
        changes: &["omitted"],
        proof: "A block has a second group only if there are more groups than the 2^31 - 1 blocks of a grid: their factors, 256 for each, would take \
                2 TiB.",
    },
    Equivalent {
        file: "gpu-kernels/src/pack/scaled.rs",
        within: "line_scales_fp32",
        line: "begin = begin.min(SEEN.read([warp, 1]));",
        function: "shared-load",
        changes: &["index-1"],
        proof: "The word before is 0, or 1 where a line of the warp is left to the fallback. The terms may begin with zeros, so from 0 on is right. 1 is \
                the least only where every warp has such a line: then all products with the group are left to the fallback, which reads all terms.",
    },
    Equivalent {
        file: "gpu-kernels/src/pack/pairs.rs",
        within: "pack_tiles",
        line: "thread::sync_threads(); // what has been read may be written for the next tile",
        function: "sync_threads",
        changes: &["omitted"],
        proof: "A block has a second tile only if there are more tiles than the 2^31 - 1 blocks of a grid: of 16 KiB each, they would take 32 TiB.",
    },
    Equivalent {
        file: "gpu-kernels/src/pack/pairs.rs",
        within: "pack_tile",
        line: "let next = warp::warp_shuffle_xor(warp::ALL_LANES, factor, TEAM, warp::LANES).0;",
        function: "warp_shuffle_xor",
        changes: &["lane+1"],
        proof: "What comes of it is used by the first of each four lanes, a team, alone. Its number with the bit of `TEAM` changed is that of the first of another \
                team, and the lane behind that is of the same team, all lanes of which have the same factor.",
    },
    Equivalent {
        file: "gpu-kernels/src/pack/group_flags.rs",
        within: "sum_up",
        line: "thread::sync_threads(); // what has been read may be written for the next group",
        function: "sync_threads",
        changes: &["omitted"],
        proof: "A block has a second group only if there are more groups than the 2^31 - 1 blocks of a grid: their factors, 256 for each, would take \
                more than 1 TiB.",
    },
    Equivalent {
        file: "gpu-kernels/patterns/kernels/src/sum.rs",
        within: "sum_fp32",
        line: "done.get_unchecked(0).store(0, Relaxed, Scope::Device)",
        function: "atomic-store",
        changes: &["scope-1"],
        proof: "The block that stores has counted itself as the last one, by an operation that acquires what all others have released; nobody \
                accesses the counter after that until the launch is over, which every later launch sees.",
    },
    Equivalent {
        file: "gpu-kernels/src/gemm/hopper/short_k.rs",
        within: "end",
        line: "unsafe { Staging::wait_until_read() };",
        function: "sync_warp",
        changes: &["omitted"],
        proof: "Nothing comes behind it: the other lanes leave before the one that waits, and the block's memory is there until the last one has left.",
    },
];

/// Files that have been read, by lines without the space around them.
#[derive(Default)]
pub(super) struct Sources(Mutex<HashMap<String, Arc<Vec<String>>>>);

impl Sources {
    /// The line of a place, `FILE:LINE:COLUMN`.
    pub(super) fn of_place(&self, place: &str) -> anyhow::Result<String> {
        let (lines, number) = self.find(place)?;
        Ok(lines.get(number).cloned().unwrap_or_default())
    }

    /// Whether an entry is of a place, as far as the source goes.
    fn has(&self, place: &str, entry: &Equivalent) -> anyhow::Result<bool> {
        let (lines, number) = self.find(place)?;
        let Some(before) = lines.get(..=number) else { return Ok(false) };
        Ok(before[number].contains(entry.line) && function_of(before) == Some(entry.within))
    }

    /// The lines of the file of a place, and the number of its line, counted from 0.
    fn find(&self, place: &str) -> anyhow::Result<(Arc<Vec<String>>, usize)> {
        let [_, line, file] = place.rsplitn(3, ':').collect::<Vec<_>>()[..] else { bail!("`{place}` is no place") };
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
        Ok((lines, line.parse::<usize>()?.wrapping_sub(1)))
    }
}

/// The entry of a site, if it has one.
pub(super) fn of(site: &str, sources: &Sources) -> anyhow::Result<Option<&'static Equivalent>> {
    let [place, function, change] = site.split(' ').collect::<Vec<_>>()[..] else { return Ok(None) };
    let file = place.split(':').next().unwrap_or_default();
    let mut entries = EQUIVALENT
        .iter()
        .filter(|entry| entry.file == file && entry.function == function && entry.changes.contains(&change));
    entries.find_map(|entry| sources.has(place, entry).map(|is_it| is_it.then_some(entry)).transpose()).transpose()
}

/// The name of the last function that begins in these lines.
fn function_of(lines: &[String]) -> Option<&str> {
    let name = |line: &'_ String| -> Option<usize> {
        let at = line.find("fn ").filter(|at| *at == 0 || line[..*at].ends_with(' '))?;
        (!line.starts_with("//")).then_some(at + 3)
    };
    lines.iter().rev().find_map(|line| {
        let rest = &line[name(line)?..];
        rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the line of an entry stands, in its function.
    fn place_of(entry: &Equivalent) -> Option<String> {
        let text = fs::read_to_string(root().join(entry.file)).unwrap_or_default();
        let sources = Sources::default();
        let mut places = (1..=text.lines().count()).map(|line| format!("{}:{line}:9", entry.file));
        places.find(|place| sources.has(place, entry).unwrap())
    }

    #[test]
    fn what_entries_name_is_there() {
        for entry in EQUIVALENT {
            let Equivalent { file, within, line, changes, proof, .. } = entry;
            assert!(place_of(entry).is_some(), "{file} has no `{line}` in `{within}`");
            assert!(!changes.is_empty() && proof.len() > 40, "{file}, `{line}`: {proof}");
        }
    }

    #[test]
    fn sites_are_found_by_their_line_and_function() {
        let entry = &EQUIVALENT[0];
        let place = place_of(entry).unwrap();
        let sources = Sources::default();
        let find = |site: String| of(&site, &sources).unwrap().map(|entry| entry.proof);
        let (function, change) = (entry.function, entry.changes[0]);
        assert_eq!(find(format!("{place} {function} {change}")), Some(entry.proof));
        assert_eq!(find(format!("{}:1:9 {function} {change}", entry.file)), None);
        assert_eq!(find(format!("{place} {function} something-else")), None);
        let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(function_of(&lines("fn one() {\n// fn two\n}")), Some("one"));
        assert_eq!(function_of(&lines("fn one() {}\npub unsafe fn three<T>() {\n  x")), Some("three"));
        assert_eq!(function_of(&lines("let x = 1;")), None);
    }
}
