//! Makes the book, as `cargo xtask book` asks for it.
//!
//! ```text
//!  docs/book/src/*.md ─▶ figures ─▶ sources ─▶ repository ─▶ mdBook ─▶ OUTPUT/*.html, OUTPUT/repository/*.html ─▶ links
//!                          ▲          ▲            │
//!     docs/results/*.{json,md}     *.rs      links to files outside of the book: each gets a page, so that the book needs nothing else
//! ```
//!
//! `tilewright-book-tool ROOT OUTPUT` builds, `… --check` then checks every link of the book and of all other documents, and
//! `… --external` lists the addresses outside, for a command that has a network.

mod figures;
mod links;
mod markdown;
mod repository;
mod sources;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use mdbook_driver::MDBook;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [root, output, flags @ ..] = words.as_slice() else {
        bail!("the repository's root and a directory for the book are expected: `cargo xtask book` gives both");
    };
    let root = PathBuf::from(root).canonicalize().context("the repository's root")?;
    let documents = markdown::documents(&root)?;
    if flags.iter().any(|flag| flag == "--external") {
        links::external(&root, &documents)?.iter().for_each(|address| println!("{address}"));
        return Ok(());
    }

    let mut book = MDBook::load(root.join("docs/book"))?;
    // From the current directory, where mdBook would take it from the book's.
    let output = std::path::absolute(output)?;
    book.config.build.build_dir.clone_from(&output);
    book.with_preprocessor(figures::Figures { results: root.join("docs/results") });
    book.with_preprocessor(sources::Sources { root: root.clone() });
    let pages = repository::Pages::new(&root);
    book.with_preprocessor(pages.clone());
    book.build()?;
    pages.write(&output)?;
    if flags.iter().any(|flag| flag == "--check") {
        let mut wrong = links::wrong_in_documents(&root, &documents)?;
        wrong.extend(links::wrong_in_pages(&output)?);
        if !wrong.is_empty() {
            bail!("{} links lead nowhere:\n{}", wrong.len(), wrong.join("\n"));
        }
        println!("every link of {} documents and of the book leads somewhere", documents.len());
    }
    println!("{}", output.join("index.html").display());
    Ok(())
}
