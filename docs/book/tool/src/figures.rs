//! Figures in the book come from committed results; nobody types them.
//!
//! ```text
//!  {{figure FILE.json; a/[key=value]/b}}           the value there, as it is written
//!  {{figure FILE.json; a/[key=value]/b; 3}}        rounded to three significant digits; `e2`: like 1.2e-7
//!  {{figure FILE.md; anchor; first cells; column}} the cell of the table under that heading whose row begins so; cells by ` / `
//!  {{figure FILE.md; anchor; first cells; column; 3}} the same, rounded
//!  {{rows FILE.json; a/b; | {key} | {key/key:3} |}}      a line for each element of an array
//!  {{rows FILE.md; anchor; | {column} | {column} |}}     … for each row of a table
//! ```
//!
//! FILE is in `docs/results`. What is not there, or there twice, ends the build.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail, ensure};
use mdbook_preprocessor::book::{Book, BookItem};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use serde_json::Value;

use crate::markdown::{Table, tables};

/// Fills figures in.
pub(crate) struct Figures {
    /// `docs/results`.
    pub(crate) results: PathBuf,
}

impl Preprocessor for Figures {
    fn name(&self) -> &str {
        "figures"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> anyhow::Result<Book> {
        let mut failure = None;
        book.for_each_mut(|item| {
            if let BookItem::Chapter(chapter) = item {
                match self.fill(&chapter.content) {
                    Ok(text) => chapter.content = text,
                    Err(error) => {
                        failure = failure.take().or(Some(error.context(format!("chapter `{}`", chapter.name))))
                    }
                }
            }
        });
        failure.map_or(Ok(book), Err)
    }
}

impl Figures {
    /// The text with all figures filled in.
    fn fill(&self, text: &str) -> anyhow::Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((start, kind)) =
            ["{{figure ", "{{rows "].iter().filter_map(|kind| Some((rest.find(kind)?, *kind))).min()
        {
            let (before, request) = rest.split_at(start);
            let (request, after) =
                request.split_once("}}").with_context(|| format!("`{kind}` without its `}}}}`: {:.60}", request))?;
            let words: Vec<&str> = request[kind.len()..].split(';').map(str::trim).collect();
            filled.push_str(before);
            let text = if kind == "{{rows " { self.rows(&words) } else { self.figure(&words) };
            filled.push_str(&text.with_context(|| format!("{request}}}}}"))?);
            rest = after;
        }
        Ok(filled + rest)
    }

    fn figure(&self, words: &[&str]) -> anyhow::Result<String> {
        match *words {
            [file, path] if file.ends_with(".json") => at(&self.json(file)?, path, ""),
            [file, path, format] if file.ends_with(".json") => at(&self.json(file)?, path, format),
            [file, anchor, row, column] if file.ends_with(".md") => self.of_row(file, anchor, row, column),
            [file, anchor, row, column, digits] if file.ends_with(".md") => {
                let cell = self.of_row(file, anchor, row, column)?;
                let number = cell.parse().map_err(|_| anyhow!("`{cell}` is no number"))?;
                Ok(significant(number, digits.parse().map_err(|_| anyhow!("no format: `{digits}`"))?))
            }
            _ => bail!("a file and a path, or a file, an anchor, a row and a column are expected"),
        }
    }

    /// The cell of a column in the one row of a table that begins so.
    fn of_row(&self, file: &str, anchor: &str, row: &str, column: &str) -> anyhow::Result<String> {
        let table = self.table(file, anchor)?;
        let wanted: Vec<_> = row.split(" / ").map(str::trim).collect();
        let begins_so = |row: &&Vec<String>| {
            row.len() >= wanted.len() && row.iter().zip(&wanted).all(|(cell, wanted)| cell == wanted)
        };
        let rows: Vec<_> = table.rows.iter().filter(begins_so).collect();
        ensure!(rows.len() == 1, "{} rows begin with `{row}`", rows.len());
        cell(&table, rows[0], column)
    }

    fn rows(&self, words: &[&str]) -> anyhow::Result<String> {
        let [file, place, line] = *words else { bail!("a file, a place in it and a line are expected") };
        let mut lines = Vec::new();
        if file.ends_with(".json") {
            let document = self.json(file)?;
            let Value::Array(elements) = find(&document, place)? else { bail!("`{place}` is no array") };
            for element in elements {
                lines.push(with_values(line, |key| at_key(element, key))?);
            }
        } else {
            let table = self.table(file, place)?;
            for row in &table.rows {
                lines.push(with_values(line, |column| cell(&table, row, column))?);
            }
        }
        ensure!(!lines.is_empty(), "there is nothing in `{place}`");
        Ok(lines.join("\n"))
    }

    fn json(&self, file: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.read(file)?)?)
    }

    fn table(&self, file: &str, anchor: &str) -> anyhow::Result<Table> {
        let tables = tables(&self.read(file)?);
        tables.into_iter().find(|table| table.anchor == anchor).with_context(|| format!("no table under `#{anchor}`"))
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.results.join(file);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}

/// A line in which `{key}` is replaced.
fn with_values(line: &str, value: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mut parts = line.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (key, after) = part.split_once('}').with_context(|| format!("`{{` without `}}` in {line}"))?;
        filled.push_str(&value(key)?);
        filled.push_str(after);
    }
    Ok(filled)
}

fn cell(table: &Table, row: &[String], column: &str) -> anyhow::Result<String> {
    let found: Vec<_> = table.columns.iter().zip(row).filter(|(name, _)| *name == column).collect();
    ensure!(found.len() == 1, "{} columns of [{}] are called `{column}`", found.len(), table.columns.join(", "));
    Ok(found[0].1.clone())
}

/// The value at a path, by keys, indices and `[key=value]`.
fn find<'a>(document: &'a Value, path: &str) -> anyhow::Result<&'a Value> {
    let mut value = document;
    for step in path.split('/') {
        let next = if let Some(condition) = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
            let (key, wanted) = condition.split_once('=').context("`[key=value]` is expected")?;
            let elements = value.as_array().map_or(&[][..], Vec::as_slice);
            let found: Vec<_> = elements.iter().filter(|element| plain(&element[key]) == wanted).collect();
            ensure!(found.len() == 1, "{} elements have `{condition}`", found.len());
            Some(found[0])
        } else if let Ok(index) = step.parse::<usize>() {
            value.get(index)
        } else {
            value.get(step)
        };
        value = next.with_context(|| format!("there is no `{step}` of `{path}`"))?;
    }
    Ok(value)
}

/// The value at `path` or `path:format`.
fn at_key(document: &Value, key: &str) -> anyhow::Result<String> {
    let (path, format) = key.split_once(':').unwrap_or((key, ""));
    at(document, path, format)
}

fn at(document: &Value, path: &str, format: &str) -> anyhow::Result<String> {
    let value = find(document, path)?;
    if format.is_empty() {
        ensure!(!value.is_object() && !value.is_array() && !value.is_null(), "`{path}` is no figure");
        return Ok(plain(value));
    }
    let number = value.as_f64().with_context(|| format!("`{path}` is no number"))?;
    if let Some(digits) = format.strip_prefix('e') {
        let digits: usize = digits.parse().map_err(|_| anyhow!("no format: `{format}`"))?;
        return Ok(format!("{number:.*e}", digits.saturating_sub(1)));
    }
    Ok(significant(number, format.parse().map_err(|_| anyhow!("no format: `{format}`"))?))
}

/// A number with so many significant digits, without an exponent.
fn significant(number: f64, digits: i32) -> String {
    let rounded = format!("{number:.*e}", digits.max(1) as usize - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    format!("{number:.*}", (digits - 1 - exponent).max(0) as usize)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with figures of results as small as can be.
    fn fill(text: &str) -> anyhow::Result<String> {
        let results = tempfile::tempdir().unwrap();
        let json = r#"{"results": [{"id": "a b=1", "ms": 0.676512}, {"id": "c", "ms": 16.74}], "error": 1.87e-7}"#;
        std::fs::write(results.path().join("r.json"), json).unwrap();
        std::fs::write(
            results.path().join("r.md"),
            "# Times\n\n| a | b | 7:00 |\n|---|---|---|\n| x | 1 | 7.0 |\n| x | 2 | 8.0 |\n",
        )
        .unwrap();
        Figures { results: results.path().to_owned() }.fill(text)
    }

    #[test]
    fn figures_come_from_results() {
        for (text, expected) in [
            ("{{figure r.json; results/[id=a b=1]/ms; 3}} ms", "0.677 ms"),
            ("a {{figure r.json; results/1/ms; 3}} b {{figure r.json; results/1/ms}}", "a 16.7 b 16.74"),
            ("{{figure r.json; error; e2}}", "1.9e-7"),
            ("{{figure r.md; times; x / 2; 7:00}}", "8.0"),
            ("{{figure r.md; times; x / 2; 7:00; 3}}", "8.00"),
            ("{{rows r.json; results; | {id} | {ms:2} |}}", "| a b=1 | 0.68 |\n| c | 17 |"),
            ("{{rows r.md; times; | {7:00} |}}", "| 7.0 |\n| 8.0 |"),
            ("{{#include x}}", "{{#include x}}"),
        ] {
            assert_eq!(fill(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_not_there_ends_the_build() {
        for (text, expected) in [
            ("{{figure r.json; results/[id=d]/ms}}", "0 elements have `id=d`"),
            ("{{figure r.json; results/0/seconds}}", "there is no `seconds`"),
            ("{{figure r.json; results}}", "is no figure"),
            ("{{figure r.json; results/0/id; 3}}", "is no number"),
            ("{{figure none.json; a}}", "none.json"),
            ("{{figure r.md; times; x; 7:00}}", "2 rows begin with `x`"),
            ("{{figure r.md; times; x / 1; s}}", "0 columns"),
            ("{{figure r.md; others; x / 1; ms}}", "no table under `#others`"),
            ("{{rows r.json; error; {x}}}", "is no array"),
            ("{{figure r.json; error", "without its"),
        ] {
            let error = format!("{:#}", fill(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
