//! Lines of source that steps name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files that have been looked for: their lines, if they were found.
pub(super) struct Sources {
    root: PathBuf,
    files: RefCell<HashMap<String, Option<Vec<String>>>>,
}

impl Sources {
    /// Names are relative to this directory, or one above: the compiler names files as it was given them, which is by the root of their
    /// workspace.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, files: RefCell::default() }
    }

    /// The lines around one, with their numbers: so many before, and so many behind. Nothing if there is no such file here.
    pub(super) fn around(&self, place: &str, before: usize, behind: usize) -> Vec<(usize, String)> {
        let Some((file, line)) =
            place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<usize>().ok()?)))
        else {
            return Vec::new();
        };
        let mut files = self.files.borrow_mut();
        let lines = files.entry(file.to_owned()).or_insert_with(|| self.read(file));
        let Some(lines) = lines else { return Vec::new() };
        let first = line.saturating_sub(before).max(1);
        (first..=line + behind).filter_map(|number| Some((number, lines.get(number - 1)?.clone()))).collect()
    }

    fn read(&self, file: &str) -> Option<Vec<String>> {
        // The innermost first: a workspace may have another one around it.
        let mut places = self.root.ancestors().map(|directory| directory.join(file));
        let text = places.find_map(|path| std::fs::read_to_string(path).ok());
        let text = text.or_else(|| std::fs::read_to_string(Path::new(file)).ok())?;
        Some(text.lines().map(|line| line.replace('\t', "    ")).collect())
    }
}
