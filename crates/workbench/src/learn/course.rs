//! A learner's course: a directory, its files, and what has been done in it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::Serialize;

use super::embedded::{self, MARK};
use super::progress::{Progress, digest};
use super::puzzle::Puzzle;
use crate::nearest::{Kind, unknown};

/// A learner's course.
pub(super) struct Course {
    /// Its directory.
    pub(super) directory: PathBuf,
    /// The puzzles of this program.
    pub(super) puzzles: Vec<Puzzle>,
}

/// How a puzzle stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It has not passed yet.
    Open,
    /// Its file is the one that has passed.
    Solved,
    /// Its file has changed since it has passed.
    Changed,
    /// It has no file.
    Missing,
}

/// What has come of a reset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// The file was as at first.
    Unchanged,
    /// The file was not there.
    Restored,
    /// The learner's file is here now, from the directory of the course.
    Kept(PathBuf),
}

impl Course {
    /// The course that a directory is in, if it is in one.
    pub(super) fn around(directory: &Path) -> Option<Self> {
        let is_course = |directory: &&Path| {
            fs::read_to_string(directory.join("Cargo.toml")).is_ok_and(|text| text.lines().any(|line| line == MARK))
        };
        let directory = directory.ancestors().find(is_course)?.to_owned();
        Some(Self { directory, puzzles: embedded::puzzles() })
    }

    /// Writes a course into a directory, which is not there yet or empty; with `cargo tilewright` as an alias in it, if it is no command.
    ///
    /// # Errors
    /// If it is not empty, or cannot be made.
    pub(super) fn write(directory: &Path, repository: &Path, with_alias: bool) -> anyhow::Result<Self> {
        let directory = std::path::absolute(directory).context("the directory has no name")?;
        let repository = crate::new::writing::for_manifest(repository)?;
        let mut files = embedded::learners_files(repository);
        files.extend(with_alias.then(|| crate::new::alias(repository)).map(|(path, text)| (path.to_owned(), text)));
        crate::new::writing::write_crate(&directory, &files)?;
        Ok(Self { directory, puzzles: embedded::puzzles() })
    }

    /// Whether this program has written it, and not another version with other puzzles.
    pub(super) fn is_of_this_version(&self) -> bool {
        let version = format!("version = \"{}\"", embedded::version());
        let text = fs::read_to_string(self.directory.join("Cargo.toml")).unwrap_or_default();
        text.lines().skip_while(|line| *line != MARK).any(|line| line == version)
    }

    /// The puzzle of this name, number (`16` or `p16`) or file.
    ///
    /// # Errors
    /// If there is none, with the three names that are nearest.
    pub(super) fn puzzle(&self, name: &str) -> anyhow::Result<&Puzzle> {
        let number = name.strip_prefix('p').unwrap_or(name).parse::<usize>().ok();
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str());
        let is_it = |puzzle: &&Puzzle| {
            puzzle.name == name
                || number == Some(puzzle.number)
                || Path::new(puzzle.file).file_stem().map(|it| it.to_str()) == Some(stem)
        };
        self.puzzles.iter().find(is_it).ok_or_else(|| {
            let known: Vec<_> = self.puzzles.iter().map(|puzzle| puzzle.name.clone()).collect();
            anyhow!("{}: `cargo tilewright learn list` shows all", unknown(Kind::Puzzle, name, &known))
        })
    }

    /// How a puzzle stands.
    pub(super) fn state(&self, puzzle: &Puzzle, progress: &Progress) -> State {
        let Ok(text) = fs::read_to_string(self.directory.join(puzzle.file)) else { return State::Missing };
        match progress.solved.get(&puzzle.name) {
            None => State::Open,
            Some(solved) if *solved == digest(&text) => State::Solved,
            Some(_) => State::Changed,
        }
    }

    /// The first puzzle that is not solved.
    pub(super) fn next(&self, progress: &Progress) -> Option<&Puzzle> {
        self.puzzles.iter().find(|puzzle| self.state(puzzle, progress) != State::Solved)
    }

    /// Makes a puzzle's file what it was at first. What the learner wrote goes to `backups`, under a name that nothing had there.
    ///
    /// # Errors
    /// If a file cannot be read or written. The learner's file is then where it was.
    pub(super) fn reset(&self, puzzle: &Puzzle) -> anyhow::Result<Reset> {
        let path = self.directory.join(puzzle.file);
        let shown = path.display();
        let mine = match fs::read(&path) {
            Ok(mine) => Some(mine),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => bail!("cannot read {shown}: {error}"),
        };
        if mine.as_deref() == Some(puzzle.unsolved.as_bytes()) {
            return Ok(Reset::Unchanged);
        }
        let backup = mine.map(|mine| self.back_up(puzzle, &mine)).transpose()?;
        cuda_builder::write_atomically(&path, puzzle.unsolved.as_bytes())
            .with_context(|| format!("cannot write {shown}"))?;
        Ok(backup.map_or(Reset::Restored, Reset::Kept))
    }

    /// Writes what a learner wrote to a file that is not there yet; its path from the course.
    fn back_up(&self, puzzle: &Puzzle, mine: &[u8]) -> anyhow::Result<PathBuf> {
        let stem = Path::new(puzzle.file).file_stem().and_then(|stem| stem.to_str()).unwrap_or(&puzzle.name);
        fs::create_dir_all(self.directory.join("backups")).context("cannot make the directory `backups`")?;
        for number in 1u32.. {
            let path = Path::new("backups").join(format!("{stem}-{number}.rs"));
            match File::create_new(self.directory.join(&path)) {
                Ok(mut file) => {
                    let written = file.write_all(mine).and_then(|()| file.sync_all());
                    written.with_context(|| format!("cannot write {}", path.display()))?;
                    return Ok(path);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => bail!("cannot write {}: {error}", path.display()),
            }
        }
        bail!("`backups` has no number left for {stem}: remove some")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn written() -> (tempfile::TempDir, Course) {
        let place = tempfile::tempdir().unwrap();
        let course = Course::write(&place.path().join("mine"), crate::place::repository(), true).unwrap();
        (place, course)
    }

    fn all_files(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn a_course_has_every_file_of_the_repositorys_and_no_solution_and_no_hint() {
        let (_place, course) = written();
        let repository = crate::place::repository().join("course");
        let names = |directory: &Path| -> BTreeSet<PathBuf> {
            let inside = |path: PathBuf| path.strip_prefix(directory).unwrap().to_owned();
            let is_source = |path: &PathBuf| !path.starts_with("target") && !path.starts_with("progress.json");
            all_files(directory).into_iter().map(inside).filter(is_source).collect()
        };
        let of_repository = names(&repository);
        let written = names(&course.directory);
        assert_eq!(of_repository.difference(&written).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
        assert_eq!(written.len(), of_repository.len() + 4, "and three of the repository's own, and the alias");
        let all: String = all_files(&course.directory).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        for puzzle in &course.puzzles {
            // However far it is indented.
            let mine = fs::read_to_string(course.directory.join(puzzle.file)).unwrap();
            let mine: Vec<_> = mine.lines().map(str::trim_start).collect();
            assert!(!puzzle.solution.is_empty(), "{}", puzzle.name);
            assert!(!mine.join("\n").contains(&puzzle.solution.join("\n")), "{} has its solution", puzzle.name);
            assert!(puzzle.hints.iter().all(|hint| !all.contains(&**hint)), "{} has a hint", puzzle.name);
            let long = puzzle.unsolved.lines().find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "{} has lines of at most 100 columns", puzzle.file);
        }
        assert!(!all.contains("//@") && !all.contains("//|"), "marks of the course");
    }

    #[test]
    fn puzzles_are_in_their_order_and_found_by_name_number_and_file() {
        let (_place, course) = written();
        for (index, puzzle) in course.puzzles.iter().enumerate() {
            assert_eq!(puzzle.number, index + 1, "{}", puzzle.name);
            assert!(puzzle.file.contains(&format!("/p{:02}_", index + 1)), "{}", puzzle.file);
        }
        for name in ["barrier", "6", "06", "p06", "p06_barrier", "kernels/src/p06_barrier.rs"] {
            assert_eq!(course.puzzle(name).unwrap().name, "barrier", "{name}");
        }
        let message = course.puzzle("barier").unwrap_err().to_string();
        assert!(message.contains("there is no puzzle `barier` (did you mean `barrier`"), "{message}");
        assert!(course.puzzle("27").is_err() && course.puzzle("0").is_err() && course.puzzle("").is_err());
    }

    #[test]
    fn a_course_is_found_from_within_and_nowhere_else() {
        let (place, course) = written();
        let inside = Course::around(&course.directory.join("kernels/src")).unwrap();
        assert!(inside.directory == course.directory && inside.is_of_this_version());
        assert!(Course::around(place.path()).is_none());
        assert!(Course::around(&crate::place::repository().join("course")).is_none(), "that has the solutions");
        let manifest = course.directory.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap().replace("\nversion = \"", "\nversion = \"9");
        fs::write(&manifest, text).unwrap();
        assert!(!Course::around(&course.directory).unwrap().is_of_this_version());
        assert!(
            Course::write(&course.directory, crate::place::repository(), false).is_err(),
            "what is there is left alone"
        );
    }

    #[test]
    fn a_puzzle_is_solved_while_its_file_is_the_one_that_passed() {
        let (_place, course) = written();
        let puzzle = course.puzzle("axpy").unwrap();
        let path = course.directory.join(puzzle.file);
        let mut progress = Progress::default();
        assert_eq!(course.state(puzzle, &progress), State::Open);
        let solved = fs::read_to_string(&path).unwrap();
        progress.solved.insert("axpy".to_owned(), digest(&solved));
        assert_eq!(course.state(puzzle, &progress), State::Solved);
        assert_eq!(course.next(&progress).unwrap().number, 2);
        progress.write(&course.directory).unwrap();
        assert_eq!(Progress::read(&course.directory).unwrap(), progress);
        fs::write(&path, format!("{solved} ")).unwrap();
        assert_eq!(course.state(puzzle, &progress), State::Changed);
        assert_eq!(course.next(&progress).unwrap().number, 1);
        fs::remove_file(&path).unwrap();
        assert_eq!(course.state(puzzle, &progress), State::Missing);
    }

    #[test]
    fn a_progress_file_that_cannot_be_read_is_told_and_left_alone() {
        let (_place, course) = written();
        assert_eq!(Progress::read(&course.directory).unwrap(), Progress::default());
        let path = course.directory.join(super::super::progress::FILE);
        for (text, told) in [
            ("{", "is no JSON"),
            ("[]", "does not say of which version"),
            (r#"{ "version": 2 }"#, "is of version 2"),
            (r#"{ "version": 1, "solved": [] }"#, "as `solved`"),
            (r#"{ "version": 1, "solved": { "axpy": 3 } }"#, "no digest of `axpy`"),
            (r#"{ "version": 1, "hints": { "axpy": -3 } }"#, "no count of hints of `axpy`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Progress::read(&course.directory).unwrap_err();
            assert!(error.contains(told) && error.contains("remove it"), "{text}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // Of a course with other puzzles.
        fs::write(&path, r#"{ "version": 1, "solved": { "other": "00" } }"#).unwrap();
        assert_eq!(course.next(&Progress::read(&course.directory).unwrap()).unwrap().number, 1);
    }

    #[test]
    fn a_reset_loses_nothing() {
        let (_place, course) = written();
        let puzzle = course.puzzle("axpy").unwrap();
        let path = course.directory.join(puzzle.file);
        assert_eq!(course.reset(puzzle).unwrap(), Reset::Unchanged);
        for (number, mine) in [(1, "mine"), (2, "mine again")] {
            fs::write(&path, mine).unwrap();
            let backup = PathBuf::from(format!("backups/p01_axpy-{number}.rs"));
            assert_eq!(course.reset(puzzle).unwrap(), Reset::Kept(backup.clone()));
            assert_eq!(fs::read_to_string(course.directory.join(backup)).unwrap(), mine);
            assert_eq!(fs::read_to_string(&path).unwrap(), puzzle.unsolved);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(course.reset(puzzle).unwrap(), Reset::Restored);
        assert_eq!(fs::read_dir(course.directory.join("backups")).unwrap().count(), 2);
    }
}
