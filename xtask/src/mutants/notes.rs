//! Files in which a run notes what it has found, so that one that was ended goes on where it was.
//!
//! An entry is written as a whole, by whichever thread has it. Whatever stands behind the last whole entry of a file is of a run that was ended
//! while it wrote, and is cut off.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::Outcome;

/// Where entries are added: nowhere, if there is no file.
struct Notes(Option<Mutex<fs::File>>);

impl Notes {
    /// What a file has in whole entries, each of which ends with a line of that kind, and where to add more.
    fn open(path: Option<&Path>, is_last: impl Fn(&str) -> bool) -> anyhow::Result<(String, Self)> {
        let Some(path) = path else { return Ok((String::new(), Self(None))) };
        let mut text = if path.is_file() { fs::read_to_string(path)? } else { String::new() };
        let (mut whole, mut at) = (0, 0);
        for line in text.split_inclusive('\n') {
            at += line.len();
            if line.strip_suffix('\n').is_some_and(&is_last) {
                whole = at;
            }
        }
        text.truncate(whole);
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        file.set_len(whole as u64)?;
        Ok((text, Self(Some(Mutex::new(file)))))
    }

    fn add(&self, entry: &str) -> anyhow::Result<()> {
        match &self.0 {
            Some(file) => Ok(file.lock().unwrap_or_else(PoisonError::into_inner).write_all(entry.as_bytes())?),
            None => Ok(()),
        }
    }
}

/// Which cases come to which sites: for each kernel or operation what the suite prints, and a line that says that this is all.
pub(super) struct Met {
    before: String,
    notes: Notes,
}

/// What follows the name of a kernel or an operation when all its cases are noted.
const ALL: &str = ": all cases";

impl Met {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let (before, notes) = Notes::open(path, |line| line.ends_with(ALL))?;
        Ok(Self { before, notes })
    }

    /// Whether a kernel or an operation has been noted.
    pub(super) fn has(&self, subject: &str) -> bool {
        self.before.lines().any(|line| line.strip_suffix(ALL) == Some(subject))
    }

    /// What the suite has printed before.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.before.lines().filter(|line| !line.ends_with(ALL))
    }

    pub(super) fn add(&self, subject: &str, lines: &[String]) -> anyhow::Result<()> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.notes.add(&format!("{text}{subject}{ALL}\n"))
    }
}

/// What has come of sites.
pub(super) struct Done {
    before: HashMap<String, Outcome>,
    notes: Notes,
}

impl Done {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let (text, notes) = Notes::open(path, |_| true)?;
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let before = lines.filter_map(|(site, outcome)| Some((site.to_owned(), Outcome::parse(outcome)?))).collect();
        Ok(Self { before, notes })
    }

    /// What came of a site before.
    pub(super) fn of(&self, site: &str) -> Option<Outcome> {
        self.before.get(site).cloned()
    }

    pub(super) fn add(&self, site: &str, outcome: &Outcome) -> anyhow::Result<()> {
        self.notes.add(&format!("{site}\t{outcome}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds to a file, as a run does that is ended while it writes.
    fn cut_off(file: &Path, entry: &str) {
        fs::write(file, fs::read_to_string(file).unwrap() + entry).unwrap();
    }

    #[test]
    fn what_has_come_of_sites_is_read_as_it_is_noted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let outcomes = [
            Outcome::Check("a race".to_owned()),
            Outcome::WrongResult("0.5".to_owned()),
            Outcome::NoEnd,
            Outcome::NotCompiled("error".to_owned()),
            Outcome::Survived,
        ];
        for (number, outcome) in outcomes.iter().enumerate() {
            Done::open(Some(file.path())).unwrap().add(&number.to_string(), outcome).unwrap();
            cut_off(file.path(), "9\ta check: a");
        }
        let done = Done::open(Some(file.path())).unwrap();
        assert_eq!(done.before.len(), outcomes.len());
        assert!(outcomes.iter().enumerate().all(|(number, outcome)| {
            done.of(&number.to_string()).is_some_and(|noted| noted.to_string() == outcome.to_string())
        }));
    }

    #[test]
    fn cases_are_noted_once_all_of_a_kernel_are_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = |name: &str| vec![format!("{name}/0: 0.010 s"), "  a.rs:1:2 shared-load index+1".to_owned()];
        Met::open(Some(file.path())).unwrap().add("scan", &lines("scan")).unwrap();
        cut_off(file.path(), "sum/0: 0.010 s\n  a.rs:1:2 sha");
        let met = Met::open(Some(file.path())).unwrap();
        assert!(met.has("scan") && !met.has("sum") && met.lines().eq(lines("scan")));
        met.add("sum", &lines("sum")).unwrap();
        let met = Met::open(Some(file.path())).unwrap();
        assert!(met.has("scan") && met.has("sum") && met.lines().eq([lines("scan"), lines("sum")].concat()));
        let nowhere = Met::open(None).unwrap();
        nowhere.add("scan", &lines("scan")).unwrap();
        assert!(!nowhere.has("scan"));
    }
}
