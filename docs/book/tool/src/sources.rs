//! Code and pictures in the book come from sources that are compiled and run; nobody copies them.
//!
//! ```text
//!  {{item FILE NAME}}      the function, struct or constant called NAME, with its documentation and attributes
//!  {{picture FILE}}        the first picture of the module's documentation: its first block of text
//! ```
//!
//! FILE is from the repository's root. What is not there, or there twice, ends the build.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use mdbook_preprocessor::book::{Book, BookItem};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

/// Fills in what is named of sources.
pub(crate) struct Sources {
    pub(crate) root: PathBuf,
}

impl Preprocessor for Sources {
    fn name(&self) -> &str {
        "sources"
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

impl Sources {
    fn fill(&self, text: &str) -> anyhow::Result<String> {
        let fill_line = |line: &str| {
            let request = line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}")).unwrap_or_default();
            let words: Vec<_> = request.split_whitespace().collect();
            let filled = match words[..] {
                ["item", file, name] => self.read(file).and_then(|source| item(&source, name)),
                ["picture", file] => self.read(file).and_then(|source| picture(&source)),
                _ => return Ok(line.to_owned()),
            };
            filled.with_context(|| line.to_owned())
        };
        let lines: Vec<_> = text.split('\n').map(fill_line).collect::<anyhow::Result<_>>()?;
        Ok(lines.join("\n"))
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.root.join(file);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}

/// An item of a source that rustfmt has formatted: it ends with the first line that closes it and has its indentation.
fn item(source: &str, name: &str) -> anyhow::Result<String> {
    let lines: Vec<_> = source.lines().collect();
    let is_item = |line: &str| {
        let words = line
            .trim_start()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub ");
        let words = words.trim_start_matches("unsafe ").trim_start_matches("const fn ").trim_start_matches("const ");
        let words = words.trim_start_matches("fn ").trim_start_matches("struct ").trim_start_matches("enum ");
        words.len() < line.trim_start().len()
            && words.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let found: Vec<_> = (0..lines.len()).filter(|at| is_item(lines[*at])).collect();
    ensure!(found.len() == 1, "{} items are called `{name}`", found.len());
    let indentation = lines[found[0]].len() - lines[found[0]].trim_start().len();
    // Documentation and attributes, which may have several lines, end where there is an empty line.
    let belongs = |line: &str| line.len() > indentation && line[..indentation].trim().is_empty();
    let first = (0..=found[0]).rev().take_while(|at| belongs(lines[*at])).last().unwrap_or(found[0]);
    let ends = |line: &str| belongs(line) && line[indentation..].starts_with('}');
    let last = (found[0]..lines.len()).find(|at| lines[*at].ends_with(';') && *at == found[0] || ends(lines[*at]));
    let last = last.with_context(|| format!("`{name}` has no end"))?;
    Ok(lines[first..=last].iter().map(|line| line.get(indentation..).unwrap_or("")).collect::<Vec<_>>().join("\n"))
}

/// The first block of text of a module's documentation, fences included.
fn picture(source: &str) -> anyhow::Result<String> {
    let documentation: Vec<_> = source.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let fence = |line: &&str| line.trim().starts_with("```");
    let start = documentation.iter().position(|line| line.trim() == "```text").context("there is no picture")?;
    let length = documentation[start + 1..].iter().position(fence).context("the picture has no end")?;
    let lines = &documentation[start..=start + 1 + length];
    Ok(lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Title.\n//!\n//! ```text\n//!  a ─▶ b\n//! ```\n\nuse x;\n\n/// Doubles.\n#[kernel(\n    block = 64\n)]\npub fn double(x: u32) {\n    if x > 0 {\n    }\n}\n\nmod y {\n    /// Not it.\n    fn double_twice() {\n        x;\n    }\n}\n";

    #[test]
    fn an_item_has_its_documentation_and_ends_where_it_ends() {
        let expected = "/// Doubles.\n#[kernel(\n    block = 64\n)]\npub fn double(x: u32) {\n    if x > 0 {\n    }\n}";
        assert_eq!(item(SOURCE, "double").unwrap(), expected);
        assert_eq!(item(SOURCE, "double_twice").unwrap(), "/// Not it.\nfn double_twice() {\n    x;\n}");
        assert!(item(SOURCE, "triple").unwrap_err().to_string().contains("0 items are called `triple`"));
    }

    #[test]
    fn a_picture_is_a_block_of_text() {
        assert_eq!(picture(SOURCE).unwrap(), "```text\n a ─▶ b\n```");
        assert!(picture("//! No picture.\n").is_err());
    }
}
