//! `tilewright report`: files of results as one HTML page, and its pictures as SVG. What is on the page and how it looks: [`pages`].
//!
//! ```text
//!  --results DIR | FILES ──read──▶ Results ──pages──▶ --output FILE.html
//!                                                └──▶ --svg DIR: one file for each picture
//! ```

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use pages::results::Results;
use pages::sections;

use crate::Error;
use crate::files::{check_writable, read_text, write};

/// The flags of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportFlags {
    /// The files of results, or directories of them, whose Markdown is listed
    #[arg(long, value_name = "DIR|FILES", num_args = 1.., default_value = "docs/results")]
    results: Vec<PathBuf>,

    /// The page to write
    #[arg(long, value_name = "FILE.html", required_unless_present = "svg")]
    output: Option<PathBuf>,

    /// Also write each picture as an SVG file there, light or dark as its reader has it
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

impl ReportFlags {
    /// Reads, writes, and says what was left out.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Usage`] for what is no results file, by its name.
    pub fn run(&self, print: impl Fn(&str)) -> Result<bool, Error> {
        if let Some(output) = &self.output {
            check_writable(output)?;
        }
        // Names on the page lead from it to the files.
        let from = self.output.as_deref().map(directory_of);
        let results = read(&self.results, from)?;
        for (file, reason) in &results.left_out {
            print(&format!("left out: {file}: {reason}\n"));
        }
        if let Some(output) = &self.output {
            let page = sections::report(&results);
            write(output, page.as_bytes())?;
            print(&format!(
                "{}: {} files of results, {} kB\n",
                output.display(),
                results.files.len(),
                page.len() / 1000
            ));
        }
        if let Some(directory) = &self.svg {
            let failed = |source| Error::File { action: "make", path: directory.clone(), source };
            fs::create_dir_all(directory).map_err(failed)?;
            let pictures = sections::pictures(&results);
            for (name, svg) in &pictures {
                write(&directory.join(name), svg.as_bytes())?;
            }
            print(&format!("{}: {} pictures\n", directory.display(), pictures.len()));
        }
        Ok(true)
    }
}

/// Reads files, and those of directories that are JSON or Markdown, in the order of their names.
fn read(paths: &[PathBuf], from: Option<&Path>) -> Result<Results, Error> {
    let mut texts = Vec::new();
    let mut words = Vec::new();
    for path in paths {
        if !path.is_dir() {
            texts.push(named(path, from)?);
            continue;
        }
        let failed = |source| Error::File { action: "read", path: path.clone(), source };
        let entries = fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
        for file in files {
            match file.extension().and_then(OsStr::to_str) {
                Some("json" | "jsonl") => texts.push(named(&file, from)?),
                Some("md") => words.push((shown(&file, from), read_text(&file)?)),
                _ => {}
            }
        }
    }
    let files = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut results = Results::read(files).map_err(|error| Error::Usage(error.to_string()))?;
    words.iter().for_each(|(name, text)| results.note_words(name, text));
    Ok(results)
}

/// A file's name on the page, and its text. What is no results file is refused by the name that it was given by.
fn named(path: &Path, from: Option<&Path>) -> Result<(String, String), Error> {
    let text = read_text(path)?;
    pages::results::read(&path.to_string_lossy(), &text).map_err(|error| Error::Usage(error.to_string()))?;
    Ok((shown(path, from), text))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file's name on a page in this directory: the way from there, or the name as it was given where there is no way.
fn shown(path: &Path, from: Option<&Path>) -> String {
    let way = || way(&from?.canonicalize().ok()?, &path.canonicalize().ok()?);
    way().unwrap_or_else(|| path.to_owned()).to_string_lossy().into_owned()
}

/// The way from a directory to a file, both of which begin at the root.
fn way(from: &Path, to: &Path) -> Option<PathBuf> {
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common);
    let up = up.map(|component| matches!(component, Component::Normal(_)).then_some(Component::ParentDir));
    Some(up.collect::<Option<Vec<_>>>()?.into_iter().chain(to.components().skip(common)).collect())
}

#[cfg(test)]
mod tests;
