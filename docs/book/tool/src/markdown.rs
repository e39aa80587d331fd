//! What is read of a markdown file: its links, its headings' anchors, its tables.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use mdbook_markdown::pulldown_cmark::{Event, Parser, Tag, TagEnd};
use mdbook_markdown::{MarkdownOptions, new_cmark_parser};

/// Templates: no documents before names are put in.
const TEMPLATES: &str = "crates/workbench/src/new/template";

/// The markdown files that are committed or may be, from the repository's root.
pub(crate) fn documents(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]).current_dir(root);
    let output = list.output().context("git cannot be run, which knows the repository's files")?;
    ensure!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("a file whose name is not UTF-8")?;
    let paths = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(paths.filter(|path| !path.starts_with(TEMPLATES) && root.join(path).is_file()).collect())
}

/// The parser that the book has.
pub(crate) fn parser(text: &str) -> Parser<'_> {
    let mut options = MarkdownOptions::default();
    options.smart_punctuation = false;
    new_cmark_parser(text, &options)
}

/// Where links and pictures lead, and where in the text they stand.
pub(crate) fn links(text: &str) -> Vec<(String, Range<usize>)> {
    let mut links = Vec::new();
    for (event, range) in parser(text).into_offset_iter() {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
            links.push((dest_url.into_string(), range));
        }
    }
    links
}

/// The anchor of a heading: as mdBook makes it, and forges.
pub(crate) fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

/// The anchors of a text's headings. The second of two equal headings has `-1` behind it.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => _ = heading.as_mut().map(|heading| heading.push_str(&text)),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let numbered = (1..).map(|number| format!("{slug}-{number}"));
                let free = std::iter::once(slug.clone()).chain(numbered).find(|name| !found.contains(name));
                found.extend(free);
            }
            _ => {}
        }
    }
    found
}

/// A table, and the anchor of the heading that it stands under.
pub(crate) struct Table {
    pub(crate) anchor: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The tables of a text, in their order. Cells are plain text.
pub(crate) fn tables(text: &str) -> Vec<Table> {
    let (mut tables, mut anchor, mut cell) = (Vec::<Table>::new(), String::new(), String::new());
    let mut row = Vec::new();
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::TableCell) => cell.clear(),
            Event::End(TagEnd::Heading(_)) => anchor = slug(&cell),
            Event::Start(Tag::Table(_)) => {
                tables.push(Table { anchor: anchor.clone(), columns: Vec::new(), rows: Vec::new() });
            }
            Event::Text(text) | Event::Code(text) => cell.push_str(&text),
            Event::End(TagEnd::TableCell) => row.push(cell.trim().to_owned()),
            Event::End(TagEnd::TableHead) => tables.last_mut().expect("in a table").columns = std::mem::take(&mut row),
            Event::End(TagEnd::TableRow) => tables.last_mut().expect("in a table").rows.push(std::mem::take(&mut row)),
            _ => {}
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# One `two`, three\n\n| a | b |\n|---|---|\n| `x` | 1 |\n| y | 2 |\n\n## Same\n\n## Same\n[l](f.md#x) `[no](g.md)`\n";

    #[test]
    fn anchors_are_those_of_mdbook() {
        let anchors: Vec<_> = anchors(TEXT).into_iter().collect();
        assert_eq!(anchors, ["one-two-three", "same", "same-1"]);
    }

    #[test]
    fn links_in_code_are_none() {
        let links: Vec<_> = links(TEXT).into_iter().map(|(link, _)| link).collect();
        assert_eq!(links, ["f.md#x"]);
    }

    #[test]
    fn tables_have_the_anchor_of_their_heading() {
        let tables = tables(TEXT);
        assert_eq!(tables.len(), 1);
        assert_eq!(
            (&*tables[0].anchor, &tables[0].columns[..]),
            ("one-two-three", &["a".to_owned(), "b".to_owned()][..])
        );
        assert_eq!(tables[0].rows, [["x", "1"], ["y", "2"]]);
    }
}
