//! Where every figure is from.

use crate::page::{Cell, Part, Row, Section, Table, address, id_of_file};
use crate::results::Results;

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "files",
        "Where the figures are from",
        "Every figure names the files that it is from. What a file does not say is a dash.",
    );
    let mut table = Table::new(
        "Files",
        &[
            "file",
            "!date (UTC)",
            "!commit",
            "GPU",
            "driver",
            "measured beside",
            "clocks before",
            "schema",
            "written by",
        ],
    );
    let said = |text: &str| Cell::text(if text.is_empty() { "–" } else { text });
    for source in results.files.iter().map(|file| &file.source) {
        table.rows.push(Row {
            id: id_of_file(&source.file),
            key: String::new(),
            cells: vec![
                Cell::text(&source.file).linked(address(&source.file)),
                said(&source.date.get(..16).unwrap_or(&source.date).replace('T', " ")),
                said(&source.commit),
                said(&source.gpu),
                said(&source.driver),
                said(&source.beside),
                said(&source.clocks),
                said(&source.schema),
                said(&source.written_by),
            ],
        });
    }
    section.parts.push(Part::Table(table));
    if !results.left_out.is_empty() {
        let mut table = Table::new("Files that were left out", &["file", "why"]);
        for (file, reason) in &results.left_out {
            table.row("", [Cell::text(file), Cell::text(reason)]);
        }
        section.parts.push(Part::Heading("Left out".to_owned()));
        section
            .parts
            .push(Part::Words("These are results files, and none of their figures is on this page.".to_owned()));
        section.parts.push(Part::Table(table));
    }
    if !results.words.is_empty() {
        let mut table = Table::new("Results in words, which are not on this page", &["file", "title"]);
        for (file, title) in &results.words {
            table.row("", [Cell::text(file).linked(address(file)), Cell::text(title)]);
        }
        section.parts.push(Part::Heading("In words".to_owned()));
        section.parts.push(Part::Words("Reports that have no JSON beside them, or say more than it.".to_owned()));
        section.parts.push(Part::Table(table));
    }
    section
}
