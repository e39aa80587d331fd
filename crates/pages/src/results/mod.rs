//! Reads what programs leave of their measurements.
//!
//! | content | written by | known by |
//! |---|---|---|
//! | [`Bench`] | `tilewright bench --json FILE` | schema `tilewright-bench` |
//! | [`Atlas`] | `tilewright bench --suite atlas --json FILE` | schema `tilewright-atlas` |
//! | [`Operations`](Content::Operations) | `bench --json` of a program over operations, a line for each | schema `tilewright-operation`, or none in older ones |
//! | [`Counters`](Content::Counters) | `cost --ncu --json` | kernels with counters, and a summary |
//! | [`Run`] | `tilewright run --json FILE` | problems and a device |
//! | [`KernelBench`] | `python kernelbench/run.py --json FILE` in `python` | problems and a method |
//! | [`Agreement`](Content::Agreement) | `agreement --output DIRECTORY` of the tests | kernels with equal bits |
//! | [`Conformance`] | `conformance --output DIRECTORY` of the tests | instructions and their outcomes |
//!
//! Fields that are not needed are not read, so what later versions add does no harm. A file of a version that cannot be read is
//! [left out](Reading::LeftOut) with the reason; what is no results file at all is an [`Error`].

mod content;
mod kinds;
mod read;

pub use content::{Content, File, Source};
pub use kinds::{
    Agreeing, Atlas, AtlasRow, Baseline, Bench, Case, Ceiling, Conformance, Counted, Counter, CountersInGroup, ErrorOn,
    Errors, Instruction, KernelBench, KernelBenchProblem, Least, OfKernel, Operation, Peak, Rates, Roofline, Run,
    RunProblem, RunResult, Times,
};
pub use read::{Error, Reading, read};

/// All files of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Those that were read, the oldest first; those without a date before them.
    pub files: Vec<File>,
    /// Those that were not, by name, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Results in words, which have a page of their own: file name and title.
    pub words: Vec<(String, String)>,
}

impl Results {
    /// Reads files by name and text.
    ///
    /// # Errors
    /// [`Error`] for the first that is no results file.
    pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let mut results = Self::default();
        for (name, text) in files {
            match read(name, text)? {
                Reading::Results(file) => results.files.push(*file),
                Reading::LeftOut { file, reason } => results.left_out.push((file, reason)),
            }
        }
        let key = |file: &File| (file.source.date.clone(), file.source.file.clone());
        results.files.sort_by_key(key);
        Ok(results)
    }

    /// Notes a file in words: Markdown, whose first heading is its title.
    pub fn note_words(&mut self, name: &str, text: &str) {
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name);
        self.words.push((name.to_owned(), title.replace('`', "")));
    }

    /// The reports in words whose titles have this word.
    pub(crate) fn in_words(&self, word: &str) -> Vec<(String, String)> {
        self.words.iter().filter(|(_, title)| title.to_lowercase().contains(word)).cloned().collect()
    }

    /// The files of one kind, the newest first.
    pub(crate) fn of<'a, T: 'a>(&'a self, kind: impl Fn(&'a Content) -> Option<&'a T>) -> Vec<(&'a Source, &'a T)> {
        self.files.iter().rev().filter_map(|file| Some((&file.source, kind(&file.content)?))).collect()
    }

    /// Products beside cuBLAS, the newest file first.
    pub fn benches(&self) -> Vec<(&Source, &Bench)> {
        self.of(|content| if let Content::Bench(it) = content { Some(it) } else { None })
    }

    /// Runs, the newest first.
    pub fn runs(&self) -> Vec<(&Source, &Run)> {
        self.of(|content| if let Content::Run(it) = content { Some(it) } else { None })
    }

    /// Atlases, the newest first.
    pub fn atlases(&self) -> Vec<(&Source, &Atlas)> {
        self.of(|content| if let Content::Atlas(it) = content { Some(it) } else { None })
    }

    /// Operations, the newest file first.
    pub fn operations(&self) -> Vec<(&Source, &Vec<Operation>)> {
        self.of(|content| if let Content::Operations(it) = content { Some(it) } else { None })
    }

    /// Counters, the newest file first.
    pub fn counters(&self) -> Vec<(&Source, &Counted)> {
        self.of(|content| if let Content::Counters(it) = content { Some(it) } else { None })
    }

    /// KernelBench's problems, the newest file first.
    pub fn kernel_benches(&self) -> Vec<(&Source, &KernelBench)> {
        self.of(|content| if let Content::KernelBench(it) = content { Some(it) } else { None })
    }

    /// Kernels on a GPU and on the executor, the newest file first.
    pub fn agreements(&self) -> Vec<(&Source, &Vec<Agreeing>)> {
        self.of(|content| if let Content::Agreement(it) = content { Some(it) } else { None })
    }

    /// Instructions on both, the newest file first.
    pub fn conformances(&self) -> Vec<(&Source, &Conformance)> {
        self.of(|content| if let Content::Conformance(it) = content { Some(it) } else { None })
    }
}

/// Files of every kind with figures that nobody has measured, to try pages with: names and texts.
pub const SAMPLES: [(&str, &str); 7] = [
    ("samples/atlas.json", include_str!("../../samples/atlas.json")),
    ("samples/bench-1.json", include_str!("../../samples/bench-1.json")),
    ("samples/bench-2.json", include_str!("../../samples/bench-2.json")),
    ("samples/bench-3.json", include_str!("../../samples/bench-3.json")),
    ("samples/counters.json", include_str!("../../samples/counters.json")),
    ("samples/newer.json", include_str!("../../samples/newer.json")),
    ("samples/operations.jsonl", include_str!("../../samples/operations.jsonl")),
];

#[cfg(test)]
pub(crate) mod tests;
