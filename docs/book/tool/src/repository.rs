//! Pages for what the book links to and does not contain: results, sources, documents of the repository.
//!
//! A chapter links to files beside it in the repository, as a forge shows them. In the rendered book such a link leads to a page of its own
//! below `repository/`, so that a folder with the book needs nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use mdbook_markdown::pulldown_cmark::{CowStr, Event, Tag, TagEnd, html::push_html};
use mdbook_preprocessor::book::{Book, BookItem};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

use crate::links::{is_external, normal};
use crate::markdown::{links, parser, slug};

/// Where the chapters are.
const CHAPTERS: &str = "docs/book/src";

/// The pages that are needed.
#[derive(Clone)]
pub(crate) struct Pages {
    root: PathBuf,
    wanted: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Preprocessor for Pages {
    fn name(&self) -> &str {
        "repository"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> anyhow::Result<Book> {
        book.for_each_mut(|item| {
            if let BookItem::Chapter(chapter) = item
                && let Some(path) = &chapter.source_path
            {
                // What is another chapter, mdBook sees to.
                chapter.content = self.with_pages(&chapter.content, &Path::new(CHAPTERS).join(path), false);
            }
        });
        Ok(book)
    }
}

impl Pages {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), wanted: Arc::default() }
    }

    /// A document whose links lead to pages. `document` is from the repository's root.
    fn with_pages(&self, text: &str, document: &Path, chapters_too: bool) -> String {
        let mut changed = text.to_owned();
        for (link, range) in links(text).into_iter().rev() {
            let (path, anchor) = link.split_once('#').map_or((&*link, None), |(path, anchor)| (path, Some(anchor)));
            let target = normal(&document.with_file_name("").join(path));
            if is_external(&link) || path.is_empty() || !self.root.join(&target).exists() {
                continue; // The check of links tells of what there is not.
            }
            if !chapters_too && target.starts_with(CHAPTERS) {
                continue;
            }
            let depth = self.page(document).components().count() - 1;
            let anchor = anchor.map_or(String::new(), |anchor| format!("#{anchor}"));
            let address = format!("{}{}{anchor}", "../".repeat(depth), self.page(&target).display());
            if !target.starts_with(CHAPTERS) {
                self.wanted.lock().expect("nobody has panicked").insert(target);
            }
            if let Some(place) = changed[range.clone()].rfind(&link) {
                changed.replace_range(range.start + place..range.start + place + link.len(), &address);
            }
        }
        changed
    }

    /// Where the page of a file is, from the book's root.
    fn page(&self, file: &Path) -> PathBuf {
        if let Ok(chapter) = file.strip_prefix(CHAPTERS) {
            return chapter.with_extension("html");
        }
        let page = Path::new("repository").join(file);
        if self.root.join(file).is_dir() {
            return page.join("index.html");
        }
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("svg" | "json" | "png") => page, // A browser shows them.
            Some("md") => page.with_extension("html"),
            _ => page.with_file_name(format!("{}.html", file.file_name().unwrap_or_default().display())),
        }
    }

    /// Writes the pages that chapters want, and those that these want.
    pub(crate) fn write(&self, output: &Path) -> anyhow::Result<()> {
        let mut written = BTreeSet::new();
        loop {
            let next =
                self.wanted.lock().expect("nobody has panicked").iter().find(|file| !written.contains(*file)).cloned();
            let Some(file) = next else { return Ok(()) };
            self.write_page(output, &file).with_context(|| file.display().to_string())?;
            written.insert(file);
        }
    }

    fn write_page(&self, output: &Path, file: &Path) -> anyhow::Result<()> {
        let (source, page) = (self.root.join(file), output.join(self.page(file)));
        fs::create_dir_all(page.parent().context("a page has a directory")?)?;
        let body = if source.is_dir() {
            let names = fs::read_dir(&source)?.map(|entry| Ok(entry?.file_name().display().to_string()));
            let mut names = names.collect::<anyhow::Result<Vec<_>>>()?;
            names.sort();
            let item = |name: &String| format!("<li><code>{}</code></li>\n", escaped(name));
            format!("<ul>\n{}</ul>", names.iter().map(item).collect::<String>())
        } else if self.page(file) == Path::new("repository").join(file) {
            fs::copy(&source, &page)?;
            return Ok(());
        } else {
            let text = fs::read_to_string(&source)?;
            match file.extension().is_some_and(|extension| extension == "md") {
                true => rendered(&self.with_pages(&text, file, true)),
                false => format!("<pre><code>{}</code></pre>", escaped(&text)),
            }
        };
        let to_root = "../".repeat(self.page(file).components().count() - 1);
        let name = escaped(&file.display().to_string());
        fs::write(page, format!(include_str!("page.html"), name = name, to_root = to_root, body = body))?;
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A document as HTML, whose headings have anchors.
fn rendered(text: &str) -> String {
    let mut events: Vec<Event<'_>> = parser(text).collect();
    let mut heading: Option<(usize, String)> = None;
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => heading = Some((at, String::new())),
            Event::Text(text) | Event::Code(text) => _ = heading.as_mut().map(|(_, heading)| heading.push_str(text)),
            Event::End(TagEnd::Heading(_)) => {
                if let Some((start, text)) = heading.take()
                    && let Event::Start(Tag::Heading { id, .. }) = &mut events[start]
                {
                    *id = Some(CowStr::from(slug(&text)));
                }
            }
            _ => {}
        }
    }
    let mut html = String::new();
    push_html(&mut html, events.into_iter());
    html
}
