//! HTML: one page that needs nothing else, neither a network nor a script.
//!
//! ```text
//!  skip link ─ header: title, contents, colours, filter ─ main: a section for each question ─ footer
//!                                                           └ figure: picture, caption, where from ─ the same numbers as a table
//! ```
//!
//! Without the script, all tables are open. With it, those of figures are closed until asked for, tables are sorted by a click on
//! a heading, a kernel is highlighted in all figures, and rows are filtered. The switch of colours is CSS alone.

use crate::draw::{CHART_STYLE, Picture, Style, page_colours};
use crate::escaped;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it is of.
    pub caption: String,
    /// The names of the columns. The first one names rows.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// Whether it has numbers, which stand at the right.
    pub is_number: bool,
    /// Whether its cells stay on one line.
    pub is_whole: bool,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What it is found by from elsewhere on the page; empty for most.
    pub id: String,
    /// What it is highlighted by: the kernel.
    pub key: String,
    /// As many as there are columns.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What it shows.
    pub text: String,
    /// What it is sorted by, where that is a number.
    pub value: Option<f64>,
    /// Where it leads to, beside the page or on it.
    pub link: String,
}

impl Cell {
    /// A cell of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number with three digits; a dash for none.
    pub fn number(value: impl Into<Option<f64>>) -> Self {
        let value = value.into();
        Self { text: value.map_or_else(|| "–".to_owned(), crate::draw::figure), value, link: String::new() }
    }

    /// A count, with all digits.
    pub fn count(value: u64) -> Self {
        Self { text: value.to_string(), value: Some(value as f64), link: String::new() }
    }

    /// The same with a link.
    pub fn linked(self, link: impl Into<String>) -> Self {
        Self { link: link.into(), ..self }
    }
}

impl Table {
    /// A table without rows. A `#` before a column's name says that it has numbers, a `!` that its cells stay on one line.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let column = |name: &&str| Column {
            name: name.trim_start_matches(['#', '!']).to_owned(),
            is_number: name.starts_with('#'),
            is_whole: name.starts_with('!'),
        };
        Self { caption: caption.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, key: &str, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "{}", self.caption);
        self.rows.push(Row { id: String::new(), key: key.to_owned(), cells: cells.into() });
    }
}

/// A picture with its numbers.
#[derive(Clone, Debug)]
pub struct Figure {
    /// A name that no other figure has, of letters, digits and hyphens: of the file, and of the element.
    pub name: String,
    /// The picture.
    pub picture: Picture,
    /// The same numbers.
    pub table: Table,
    /// The files that they are from.
    pub from: Vec<String>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Part {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Words(String),
    /// What is not there, and the command that makes it.
    Missing {
        /// A sentence.
        what: String,
        /// The command.
        command: String,
    },
    /// Reports in words about the same: file names and titles.
    InWords(Vec<(String, String)>),
    /// A picture with a table.
    Figure(Box<Figure>),
    /// A table alone.
    Table(Table),
}

/// What there is to say about one question.
#[derive(Clone, Debug)]
pub struct Section {
    /// What links name.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// What it consists of.
    pub parts: Vec<Part>,
}

impl Section {
    /// A section with a first paragraph.
    pub fn new(id: &'static str, title: &str, words: &str) -> Self {
        Self { id, title: title.to_owned(), parts: vec![Part::Words(words.to_owned())] }
    }

    /// Its figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().filter_map(|part| if let Part::Figure(figure) = part { Some(&**figure) } else { None })
    }
}

/// The id of a file's row in the table of files.
pub fn id_of_file(name: &str) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    format!("file-{}", name.chars().map(safe).collect::<String>())
}

/// Where a file is, from the page beside it: its name, with what an address cannot have in percents.
pub fn address(file: &str) -> String {
    let mut address = String::new();
    for byte in file.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => address.push(byte as char),
            other => address += &format!("%{other:02X}"),
        }
    }
    // A name with a colon in front would lead elsewhere.
    if address.starts_with('/') { address } else { format!("./{address}") }
}

/// The whole page.
pub fn page(title: &str, about: &str, sections: &[Section]) -> String {
    let contents: String = (sections.iter())
        .map(|section| format!("<li><a href=\"#{}\">{}</a></li>\n", section.id, escaped(&section.title)))
        .collect();
    let mut figures = 0;
    let body: String = sections.iter().map(|section| shown_section(section, &mut figures)).collect();
    let mut keys: Vec<&str> = (sections.iter())
        .flat_map(|section| section.figures())
        .flat_map(|figure| figure.table.rows.iter().map(|row| row.key.as_str()))
        .filter(|key| !key.is_empty())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let options: String = keys.iter().map(|key| format!("<option>{}</option>\n", escaped(key))).collect();
    let (title, about) = (escaped(title), escaped(about));
    let colours = page_colours();
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{colours}{STYLE}{CHART_STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>{title}</h1>
<p>{about}</p>
<nav aria-label="Contents">
<ul>
{contents}</ul>
</nav>
<div class="controls">
<fieldset>
<legend>Colours</legend>
<label><input type="radio" name="theme" id="theme-system" checked> as the system has them</label>
<label><input type="radio" name="theme" id="theme-light"> light</label>
<label><input type="radio" name="theme" id="theme-dark"> dark</label>
</fieldset>
<div class="scripted" id="scripted" hidden>
<p><label for="kernel">Highlight a kernel</label> <select id="kernel"><option value="">none</option>
{options}</select></p>
<p><label for="filter">Only rows with</label> <input type="search" id="filter" autocomplete="off" spellcheck="false"> <button type="button" id="tables" aria-pressed="false">Show all tables</button></p>
<p id="status" role="status"></p>
</div>
</div>
</header>
<main id="main" tabindex="-1">
{body}</main>
<footer>
<p>Made by <code>tilewright report</code> from the files in the <a href="#files">table of files</a>; the page loads nothing from elsewhere.</p>
</footer>
<script>
{SCRIPT}</script>
</body>
</html>
"##
    )
}

/// A section, after so many figures.
fn shown_section(section: &Section, figures: &mut usize) -> String {
    let mut tables = 0;
    let parts: String = (section.parts.iter())
        .map(|part| match part {
            Part::Heading(text) => format!("<h3>{}</h3>\n", escaped(text)),
            Part::Words(text) => format!("<p>{}</p>\n", with_code(text)),
            Part::Missing { what, command } => format!(
                "<p class=\"missing\">{} This makes it: <code>{}</code></p>\n",
                with_code(what),
                escaped(command)
            ),
            Part::InWords(reports) => {
                let link = |(file, title): &(String, String)| {
                    format!("<a href=\"{}\">{}</a>", escaped(&address(file)), escaped(title))
                };
                format!("<p>In words: {}.</p>\n", reports.iter().map(link).collect::<Vec<_>>().join("; "))
            }
            Part::Figure(figure) => {
                *figures += 1;
                shown_figure(figure, *figures)
            }
            Part::Table(table) => {
                tables += 1;
                shown_table(table, &format!("{}-table-{tables}", section.id))
            }
        })
        .collect();
    let (id, title) = (section.id, escaped(&section.title));
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{title}</h2>\n{parts}</section>\n"
    )
}

/// Text in which what stands between backticks is code.
fn with_code(text: &str) -> String {
    let part = |(number, part): (usize, &str)| match number % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    };
    text.split('`').enumerate().map(part).collect()
}

fn shown_figure(figure: &Figure, number: usize) -> String {
    let Figure { name, picture, table, from } = figure;
    let from: Vec<_> =
        from.iter().map(|file| format!("<a href=\"#{}\">{}</a>", id_of_file(file), escaped(file))).collect();
    let title = escaped(picture.title());
    format!(
        "<figure id=\"{name}\">\n<div class=\"scroll\" role=\"region\" aria-label=\"Figure {number}: {title}\" tabindex=\"0\">\n{}</div>\n\
         <figcaption>Figure {number}, from {}</figcaption>\n<details open>\n<summary>The numbers of figure {number} as a table</summary>\n{}</details>\n</figure>\n",
        picture.svg(name, Style::OfPage),
        from.join(", "),
        shown_table(table, &format!("{name}-table"))
    )
}

fn shown_table(table: &Table, id: &str) -> String {
    let heads: String = (table.columns.iter())
        .map(|column| {
            let class = if column.is_number { " class=\"number\"" } else { "" };
            format!("<th scope=\"col\"{class}>{}</th>", escaped(&column.name))
        })
        .collect();
    let rows: String = table.rows.iter().map(|row| shown_row(row, &table.columns)).collect();
    format!(
        "<div class=\"scroll\" role=\"region\" aria-labelledby=\"{id}-caption\" tabindex=\"0\">\n<table id=\"{id}\">\n\
         <caption id=\"{id}-caption\">{}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n",
        escaped(&table.caption)
    )
}

fn shown_row(row: &Row, columns: &[Column]) -> String {
    let cells: String = (row.cells.iter().zip(columns).enumerate())
        .map(|(number, (cell, column))| {
            let class = match (column.is_number, column.is_whole) {
                (true, _) => " class=\"number\"",
                (false, true) => " class=\"whole\"",
                (false, false) => "",
            };
            let value = match cell.value {
                Some(value) if value.is_finite() => format!(" data-value=\"{value}\""),
                _ => String::new(),
            };
            let text = match cell.link.is_empty() {
                true => escaped(&cell.text),
                false => format!("<a href=\"{}\">{}</a>", escaped(&cell.link), escaped(&cell.text)),
            };
            match number {
                0 => format!("<th scope=\"row\"{class}{value}>{text}</th>"),
                _ => format!("<td{class}{value}>{text}</td>"),
            }
        })
        .collect();
    let id = if row.id.is_empty() { String::new() } else { format!(" id=\"{}\"", escaped(&row.id)) };
    let key = if row.key.is_empty() { String::new() } else { format!(" data-key=\"{}\"", escaped(&row.key)) };
    format!("<tr{id}{key}>{cells}</tr>\n")
}

#[cfg(test)]
mod tests;
