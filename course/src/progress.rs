//! Which puzzles have been solved, and how many hints have been shown: a small file of JSON beside the course.
//!
//! ```text
//!  { "version": 1, "solved": { "axpy": "digest of the file that passed" }, "hints": { "axpy": 2 } }
//! ```
//!
//! A puzzle counts as solved while its file is the one that passed: an edit makes it one to check again. The program of the course writes what has
//! passed, and `cargo tilewright learn` reads it; both are compiled from this file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};

/// The name of the file.
pub(crate) const FILE: &str = "progress.json";

/// What this program understands.
const VERSION: u64 = 1;

/// What has been done so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// For each puzzle that has passed, the digest of its file.
    pub(crate) solved: BTreeMap<String, String>,
    /// For each puzzle, how many hints have been shown.
    pub(crate) hints: BTreeMap<String, usize>,
}

impl Progress {
    /// That of the course in a directory; nothing done if there is no file yet.
    ///
    /// # Errors
    /// Why the file cannot be read, and what to do.
    pub(crate) fn read(course: &Path) -> Result<Self, String> {
        let path = course.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        Self::parse(&text).map_err(|why| {
            let path = path.display();
            format!("{path} {why}: remove it, and check your puzzles again, `cargo run -- all`; nothing else is lost")
        })
    }

    /// That of a text; what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON ({error})"))?;
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(version) => return Err(format!("is of version {version}, and this program reads version {VERSION}")),
            None => return Err("does not say of which version it is".to_owned()),
        }
        let mut progress = Self::default();
        for (name, digest) in object(&value, "solved")? {
            let digest = digest.as_str().ok_or_else(|| format!("has no digest of `{name}`"))?;
            progress.solved.insert(name.clone(), digest.to_owned());
        }
        for (name, shown) in object(&value, "hints")? {
            let shown = shown.as_u64().and_then(|shown| usize::try_from(shown).ok());
            progress.hints.insert(name.clone(), shown.ok_or_else(|| format!("has no count of hints of `{name}`"))?);
        }
        Ok(progress)
    }

    /// Writes it. Who reads meanwhile finds the file as it was, or as it is.
    ///
    /// # Errors
    /// Why the file cannot be written.
    pub(crate) fn write(&self, course: &Path) -> Result<(), String> {
        let value = json!({ "version": VERSION, "solved": self.solved, "hints": self.hints });
        let (path, beside) = (course.join(FILE), PathBuf::from(format!("{FILE}.{}", std::process::id())));
        let beside = course.join(beside);
        let written = fs::write(&beside, format!("{value:#}\n")).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// The entries of an object in an object; none if it is not there.
fn object<'a>(value: &'a Value, name: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, String> {
    match &value[name] {
        Value::Null => Ok(None.into_iter().flatten()),
        Value::Object(entries) => Ok(Some(entries).into_iter().flatten()),
        _ => Err(format!("has something else than puzzles as `{name}`")),
    }
}

/// Stands for a text: FNV-1a of 64 bits. It tells an edit; it is not made to withstand who wants to deceive himself.
pub(crate) fn digest(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    format!("{:016x}", text.bytes().fold(0xCBF2_9CE4_8422_2325, step))
}
