//! A kernel's code as one page, which needs no network, and no JavaScript to be read: that only marks what belongs together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::costs::Costs;
use super::view::{Finding, Row, classes, facts, findings, inner, rows, shown};
use crate::code::{Code, Listing, RustLine};

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The page of a kernel.
pub(super) fn page(code: &Code, costs: Option<&Costs>) -> String {
    let mut body = format!("<h1>{} <small>for {}</small></h1>\n", escape(&code.kernel), escape(&code.arch));
    let facts = facts(code).into_iter();
    let facts: String = facts.map(|(what, said)| format!("<dt>{what}</dt><dd>{}</dd>\n", escape(&said))).collect();
    body += &format!("<dl>\n{facts}</dl>\n");
    match &code.machine {
        Err(error) => body += &format!("<p class=\"warning\">{}</p>\n", escape(error)),
        Ok(machine) => {
            for warning in &machine.warnings {
                body += &format!("<p class=\"warning\">{}</p>\n", escape(warning));
            }
            body += &format!(
                "<h2>{} instructions</h2>\n<table>\n<caption>By what they are for. How often they run is another matter.</caption>\n",
                machine.instructions
            );
            body += "<thead><tr><th scope=\"col\">class</th><th scope=\"col\" class=\"number\">instructions</th><th scope=\"col\">share</th><th scope=\"col\">which</th></tr></thead>\n<tbody>\n";
            for (class, count, names) in classes(machine) {
                let share = count * 100 / machine.instructions.max(1);
                body += &format!(
                    "<tr><th scope=\"row\">{}</th><td class=\"number\">{count}</td><td><span class=\"bar\" style=\"width:{}px\"></span> {share} %</td><td>{}</td></tr>\n",
                    class.name(),
                    share * 2,
                    escape(&names)
                );
            }
            body += "</tbody></table>\n";
        }
    }
    if let Some(listing) = &code.listing {
        let lines = Lines::of(listing);
        body += &registers(listing);
        body += &found(listing, &lines);
        body += &by_line(listing, costs, &lines);
        body += &in_order(listing, &lines);
    }
    document(&format!("{} for {}", code.kernel, code.arch), &body)
}

/// A whole document.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script>\n{JS}</script>\n</body>\n</html>\n",
        escape(title)
    )
}

/// Text that means itself in a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number for each line of Rust, which what belongs to it bears.
struct Lines<'a>(BTreeMap<&'a RustLine, usize>);

impl<'a> Lines<'a> {
    fn of(listing: &'a Listing) -> Self {
        Self(listing.source.iter().enumerate().map(|(number, source)| (&source.at, number)).collect())
    }

    /// The attribute of what belongs to a line.
    fn attribute(&self, line: Option<&RustLine>) -> String {
        line.and_then(|line| self.0.get(line)).map_or_else(String::new, |number| format!(" data-l=\"{number}\""))
    }

    /// A link to a line.
    fn link(&self, line: &RustLine) -> String {
        match self.0.get(line) {
            Some(number) => format!("<a href=\"#l{number}\">{}</a>", escape(&shown(line))),
            None => escape(&shown(line)),
        }
    }
}

fn registers(listing: &Listing) -> String {
    let Some(peak) = &listing.peak else { return String::new() };
    let (width, height) = (listing.sass.len(), peak.registers.max(1));
    let mut path = format!("M0 {height}");
    for (index, line) in listing.sass.iter().enumerate() {
        let _ = write!(path, "V{}H{}", height - line.registers.min(height), index + 1);
    }
    path += &format!("V{height}Z");
    let first = &listing.sass[peak.at[0]];
    format!(
        "<h2>Registers live along the code</h2>\n<svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Registers live at each instruction, from the first to the last: at most {} at address {:04x}\"><path d=\"{path}\"/></svg>\n\
         <p class=\"note\">From the first instruction to the last. At most {} are live, at {:04x} <code>{}</code>.</p>\n",
        peak.registers,
        first.address,
        peak.registers,
        first.address,
        escape(&first.text)
    )
}

fn found(listing: &Listing, lines: &Lines<'_>) -> String {
    let mut out = String::new();
    for Finding { what, items } in findings(listing) {
        if items.is_empty() {
            continue;
        }
        let mut letters = what.chars();
        let heading: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        out += &format!(
            "<h2>{}</h2>\n<table>\n<thead><tr><th scope=\"col\">line</th><th scope=\"col\">Rust</th><th scope=\"col\">what</th></tr></thead>\n<tbody>\n",
            escape(&heading)
        );
        for (line, said) in items {
            let place = line.as_ref().map_or_else(|| "no line".to_owned(), |line| lines.link(line));
            let text = line.as_ref().and_then(|line| listing.text(line)).map_or("", str::trim);
            out += &format!(
                "<tr{}><td>{place}</td><td><code>{}</code></td><td>{}</td></tr>\n",
                lines.attribute(line.as_ref()),
                escape(text),
                escape(&said)
            );
        }
        out += "</tbody></table>\n";
    }
    out
}

fn by_line(listing: &Listing, costs: Option<&Costs>, lines: &Lines<'_>) -> String {
    let counted = costs.map_or_else(String::new, |costs| {
        format!(" Below lines of Rust: what the executor counts in one launch of {}.", escape(&costs.case))
    });
    let mut out = format!(
        "<h2>Line by line</h2>\n<table class=\"code\">\n<caption>The number behind a machine instruction is that of the registers live there; what is marked ~ the \
         compiler has moved. Up and down go from line to line.{counted}</caption>\n<colgroup><col class=\"line\"><col class=\"rust\"><col><col></colgroup>\n\
         <thead><tr><th scope=\"col\">line</th><th scope=\"col\">Rust</th><th scope=\"col\">PTX</th><th scope=\"col\">SASS</th></tr></thead>\n<tbody>\n"
    );
    let (mut file, mut last) = (None, None);
    for row in rows(listing) {
        let of_row = row.line.map(|line| line.file.as_str());
        if of_row != file || row.line.is_none() {
            (file, last) = (of_row, None);
            let heading = of_row.unwrap_or("Of no line: what the compiler has made, moved or put together");
            out += &format!("<tr class=\"file\"><th scope=\"rowgroup\" colspan=\"4\">{}</th></tr>\n", escape(heading));
        }
        let number = row.line.map(|line| line.line);
        if last.zip(number).is_some_and(|(last, number): (u32, u32)| number != last + 1) {
            out += "<tr class=\"gap\"><th colspan=\"4\">⋮</th></tr>\n";
        }
        last = number;
        out += &line(&row, listing, costs, lines);
    }
    out + "</tbody></table>\n"
}

fn line(row: &Row<'_>, listing: &Listing, costs: Option<&Costs>, lines: &Lines<'_>) -> String {
    let has_code = !row.ptx.is_empty() || !row.sass.is_empty();
    let id =
        row.line.and_then(|line| lines.0.get(line)).map_or_else(String::new, |number| format!(" id=\"l{number}\""));
    let attributes = if has_code { format!("{id} tabindex=\"0\"{}", lines.attribute(row.line)) } else { id };
    let counted: String = row
        .line
        .into_iter()
        .flat_map(|line| costs.map_or_else(Vec::new, |costs| costs.at(line)))
        .map(|cost| {
            let class = if cost.is_wasteful() { "bad" } else { "good" };
            format!("<span class=\"cost {class}\">▏{}</span>", escape(&cost.words()))
        })
        .collect();
    let mut ptx = String::new();
    let mut origin = None;
    for &index in &row.ptx {
        let line = &listing.ptx[index];
        if line.origin != origin {
            origin = line.origin;
            let via = origin.map(|origin| inner(&listing.origins[origin])).unwrap_or_default();
            if !via.is_empty() {
                ptx += &format!("<li class=\"in\">in {}</li>", escape(&via));
            }
        }
        let moved = if line.is_moved { "<span class=\"moved\">~ </span>" } else { "" };
        ptx += &format!("<li>{moved}{}</li>", escape(&line.text));
    }
    let sass: String = row
        .sass
        .iter()
        .map(|&index| {
            let line = &listing.sass[index];
            format!(
                "<li><span class=\"live\">{}</span><span class=\"in\">{:04x}</span> {}</li>",
                line.registers,
                line.address,
                escape(&line.text)
            )
        })
        .collect();
    let list = |items: String| if items.is_empty() { items } else { format!("<ol>{items}</ol>") };
    format!(
        "<tr{attributes}><th scope=\"row\" class=\"line\">{}</th><td>{}{counted}</td><td>{}</td><td>{}</td></tr>\n",
        row.line.map_or_else(|| "—".to_owned(), |line| line.line.to_string()),
        escape(row.text),
        list(ptx),
        list(sass)
    )
}

/// PTX and machine code as they stand.
fn in_order(listing: &Listing, lines: &Lines<'_>) -> String {
    let place = |origin: Option<usize>| listing.line(origin).map_or_else(String::new, |line| lines.link(line));
    let mut sass = String::new();
    for line in &listing.sass {
        for label in &line.labels {
            sass += &format!("<tr><td></td><td colspan=\"3\">{}:</td></tr>\n", escape(label));
        }
        sass += &format!(
            "<tr{}><td class=\"note\">{:04x}</td><td>{}</td><td class=\"number\">{}</td><td>{}</td></tr>\n",
            lines.attribute(listing.line(line.origin)),
            line.address,
            escape(&line.text),
            line.registers,
            place(line.origin)
        );
    }
    let ptx: String = listing
        .ptx
        .iter()
        .map(|line| {
            format!(
                "<tr{}><td>{}</td><td>{}</td></tr>\n",
                lines.attribute(listing.line(line.origin)),
                escape(&line.text),
                place(line.origin)
            )
        })
        .collect();
    let table = |name: &str, heading: &str, rows: String| {
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table class=\"order\">\n<thead><tr>{heading}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        )
    };
    let heading =
        |names: &[&str]| names.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect::<String>();
    let mut out = "<h2>In the order of the code</h2>\n<div class=\"columns\">\n".to_owned();
    out += &table("PTX in order", &heading(&["PTX", "Rust"]), ptx);
    if !sass.is_empty() {
        out += &table("SASS in order", &heading(&["address", "SASS", "registers", "Rust"]), sass);
    }
    out + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::code;

    #[test]
    fn a_page_stands_alone_and_marks_what_belongs_together() {
        let page = page(&code(&[(7, "if x < y && s == \"a\" {", &["ISETP R0, R1"]), (8, "}", &["EXIT"])]), None);
        assert!(page.contains("if x &lt; y &amp;&amp; s == &quot;a&quot; {"), "{page}");
        // The row, its PTX, its machine code.
        assert_eq!(page.matches("data-l=\"0\"").count(), 3);
        assert!(page.contains("<tr id=\"l0\" tabindex=\"0\" data-l=\"0\">") && page.contains("href=\"#l0\""));
        for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
