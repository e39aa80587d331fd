//! The course as this program has it: the files of the directory `course` of the repository, solutions and hints among them.

use super::puzzle::Puzzle;

/// A file: its path in the course, and its text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../../../../course/", $path)))),*] };
}

/// The files of the course besides its puzzles.
const FILES: &[File] = files![
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "build.rs",
    "src/main.rs",
    "src/check.rs",
    "src/progress.rs",
    "kernels/Cargo.toml",
    "kernels/build.rs",
    "kernels/clippy.toml",
    "kernels/rustfmt.toml",
    "kernels/src/lib.rs",
    "kernels/src/puzzle.rs",
];

/// The puzzles, in their order.
const PUZZLES: &[File] = files![
    "kernels/src/p01_axpy.rs",
    "kernels/src/p02_off_by_one.rs",
    "kernels/src/p03_grid_stride.rs",
    "kernels/src/p04_coalesced.rs",
    "kernels/src/p05_shared_tile.rs",
    "kernels/src/p06_barrier.rs",
    "kernels/src/p07_divergence.rs",
    "kernels/src/p08_bank_conflicts.rs",
    "kernels/src/p09_gather.rs",
    "kernels/src/p10_atomics.rs",
    "kernels/src/p11_warp_sum.rs",
    "kernels/src/p12_block_sum.rs",
    "kernels/src/p13_last_block.rs",
    "kernels/src/p14_flags.rs",
    "kernels/src/p15_scan.rs",
    "kernels/src/p16_votes.rs",
    "kernels/src/p17_vectors.rs",
    "kernels/src/p18_double_buffer.rs",
    "kernels/src/p19_phases.rs",
    "kernels/src/p20_tma.rs",
    "kernels/src/p21_mma.rs",
    "kernels/src/p22_wgmma.rs",
    "kernels/src/p23_proxy_fence.rs",
    "kernels/src/p24_low_bits.rs",
    "kernels/src/p25_split.rs",
    "kernels/src/p26_pipeline.rs",
];

/// What a learner's crate has besides, from the repository.
const OF_REPOSITORY: &[File] = &[
    ("rust-toolchain.toml", include_str!("../../../../rust-toolchain.toml")),
    ("rustfmt.toml", include_str!("../../../../rustfmt.toml")),
    (".gitignore", include_str!("../new/template/gitignore")),
];

/// The line by which a directory is known to be a learner's.
pub(super) const MARK: &str = "[package.metadata.tilewright-course]";

/// The heading of README.md from which on it speaks of solutions and marks.
const NOT_FOR_LEARNERS: &str = "## For those who work on the course";

/// All puzzles, in their order.
///
/// # Panics
/// If one of this program's own puzzles cannot be read: a test reads them all.
pub(super) fn puzzles() -> Vec<Puzzle> {
    let read = |(file, text): &File| Puzzle::read(file, text).unwrap_or_else(|why| panic!("course/{file}: {why}"));
    PUZZLES.iter().map(read).collect()
}

/// Stands for this version of the course.
pub(super) fn version() -> String {
    let texts: Vec<_> = FILES.iter().chain(PUZZLES).map(|(path, text)| format!("{path}\n{text}")).collect();
    super::progress::digest(&texts.concat())
}

/// The files of a learner's crate, which depends on the crates of a repository at this path.
pub(super) fn learners_files(repository: &str) -> Vec<(String, String)> {
    let of_course = FILES.iter().map(|(path, text)| {
        let text =
            text.replace("\"../../crates", "\"../crates").replace("\"../crates", &format!("\"{repository}/crates"));
        let mark = format!("\n# Written by `cargo tilewright learn`.\n{MARK}\nversion = \"{}\"\n", version());
        let text = match *path {
            "Cargo.toml" => text + &mark,
            "README.md" => {
                text.split(NOT_FOR_LEARNERS).next().map(|text| format!("{}\n", text.trim_end())).unwrap_or_default()
            }
            _ => text,
        };
        (path, text)
    });
    let of_repository = OF_REPOSITORY.iter().map(|(path, text)| (path, (*text).to_owned()));
    let files = of_course.chain(of_repository).map(|(path, text)| ((*path).to_owned(), text));
    files.chain(puzzles().into_iter().map(|puzzle| (puzzle.file.to_owned(), puzzle.unsolved))).collect()
}
