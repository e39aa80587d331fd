//! Whether links lead somewhere: those of every markdown file of the repository, as a forge shows them, and those of the book's pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use crate::markdown::{anchors, links};

/// Whether an address is outside of the repository.
pub(crate) fn is_external(address: &str) -> bool {
    ["http:", "https:", "mailto:"].iter().any(|scheme| address.starts_with(scheme))
}

/// A path without `.` and `..`, as far as there is something to leave out.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => _ = normal.pop(),
            other => normal.push(other),
        }
    }
    normal
}

/// Links of documents that lead to no file, or to no heading of one.
pub(crate) fn wrong_in_documents(root: &Path, documents: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for document in documents {
        let text = fs::read_to_string(root.join(document)).with_context(|| document.display().to_string())?;
        for (link, range) in links(&text) {
            if is_external(&link) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let directory = document.parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { document.clone() } else { normal(&directory.join(path)) };
            let is_heading = || {
                let is_text = target.extension().is_some_and(|extension| extension == "md");
                let text = fs::read_to_string(root.join(&target)).unwrap_or_default();
                is_text && anchors(&text).contains(anchor)
            };
            if !root.join(&target).exists() || !(anchor.is_empty() || is_heading()) {
                let line = text[..range.start].matches('\n').count() + 1;
                wrong.push(format!("  {}:{line}: {link}", document.display()));
            }
        }
    }
    Ok(wrong)
}

/// Links of pages that lead nowhere, and anything that a page would load from a network.
pub(crate) fn wrong_in_pages(output: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(output, output, &mut pages)?;
    let names: BTreeMap<_, BTreeSet<_>> = pages
        .iter()
        .map(|(path, text)| (path, attributes(text, &["id", "name"]).map(|(_, id)| id).collect()))
        .collect();
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        // mdBook only logs it where what is to be included is not there.
        let requests = ["{{#", "{{figure ", "{{rows ", "{{item ", "{{picture "];
        if !page.starts_with("repository")
            && let Some(request) = requests.iter().find_map(|request| Some(&text[text.find(request)?..]))
        {
            wrong.push(format!(
                "  {}: nothing has filled in {}",
                page.display(),
                request.lines().next().unwrap_or_default()
            ));
        }
        for (tag, link) in attributes(text, &["href", "src"]) {
            if is_external(&link) || link.starts_with("data:") || link.starts_with("javascript:") {
                if tag != "a" {
                    wrong.push(format!("  {}: <{tag}> loads {link} from a network", page.display()));
                }
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let mut target = if path.is_empty() { page.clone() } else { normal(&page.with_file_name("").join(path)) };
            if output.join(&target).is_dir() {
                target.push("index.html");
            }
            let has_anchor = || anchor.is_empty() || names.get(&target).is_some_and(|names| names.contains(anchor));
            if !output.join(&target).exists() || !has_anchor() {
                wrong.push(format!("  {}: {link}", page.display()));
            }
        }
    }
    Ok(wrong)
}

/// Every page of the book but the one for addresses that there are not, whose links are a server's.
fn collect(output: &Path, directory: &Path, pages: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(output, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") && !path.ends_with("404.html") {
            pages.insert(path.strip_prefix(output)?.to_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The values of attributes, each with its tag's name.
fn attributes<'a>(page: &'a str, names: &'a [&str]) -> impl Iterator<Item = (&'a str, String)> {
    // Text has no `<`: it is written `&lt;`. Scripts have, but no tags that end.
    let tags = page.split('<').skip(1).filter_map(|tag| Some(tag.split_once('>')?.0));
    tags.flat_map(move |tag| {
        let name = tag.split_whitespace().next().unwrap_or_default();
        names.iter().filter_map(move |attribute| {
            let (_, value) = tag.split_once(&format!(" {attribute}=\""))?;
            Some((name, value.split_once('"')?.0.replace("&amp;", "&")))
        })
    })
}

/// The addresses outside of the repository that documents name.
pub(crate) fn external(root: &Path, documents: &[PathBuf]) -> anyhow::Result<BTreeSet<String>> {
    let mut addresses = BTreeSet::new();
    for document in documents {
        let text = fs::read_to_string(root.join(document)).with_context(|| document.display().to_string())?;
        addresses.extend(links(&text).into_iter().map(|(link, _)| link).filter(|link| link.starts_with("http")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn a_link_of_a_document_to_no_file_or_no_heading_is_named_with_its_line() {
        let a = "# A\n[x](b.md#b) [x](#a) [x](../c)\n\n[x](b.md#c) [x](d.md) [x](#none) [x](https://example.com)\n";
        let root = directory(&[("docs/a.md", a), ("docs/b.md", "# B\n"), ("c/x", "")]);
        let wrong = wrong_in_documents(root.path(), &[PathBuf::from("docs/a.md")]).unwrap();
        assert_eq!(wrong, ["  docs/a.md:4: b.md#c", "  docs/a.md:4: d.md", "  docs/a.md:4: #none"]);
    }

    #[test]
    fn a_link_of_a_page_to_nowhere_and_what_comes_from_a_network_are_named() {
        let page = r##"<h2 id="x"></h2><a href="#x"></a><a href="sub/"></a><a href="https://example.com"></a>
            <a class="y" href="#z"></a><a href="none.html"></a><script src="https://example.com/x.js"></script>{{#include none}}"##;
        let output = directory(&[("index.html", page), ("sub/index.html", r#"<a href="../index.html#x"></a>"#)]);
        let wrong = wrong_in_pages(output.path()).unwrap();
        let expected = [
            "  index.html: nothing has filled in {{#include none}}",
            "  index.html: #z",
            "  index.html: none.html",
            "  index.html: <script> loads https://example.com/x.js from a network",
        ];
        assert_eq!(wrong, expected);
    }
}
