//! A trace as an HTML page that needs nothing else: a timeline, the tables, and each step.
//!
//! Everything is there without JavaScript. With it, the arrow keys go from step to step, `b` to the next barrier, `/` looks for a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::text::{Table, head, tables};
use crate::{Block, Kind, Step, Summary, Trace, replay};

/// The most steps that the timeline has marks for, and that are listed: a page with more takes a browser too long.
const MOST: usize = 20_000;

/// The height of a row of the timeline, its left margin, and the least and the greatest width that it takes.
const ROW: usize = 18;
const LEFT: usize = 250;
const WIDTHS: [usize; 2] = [700, 24_000];

const STYLE: &str = include_str!("html.css");
const SCRIPT: &str = include_str!("html.js");

/// Text as HTML has it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

pub(crate) fn html(trace: &Trace) -> String {
    let title = escaped(&format!("{}, step by step", trace.kernel));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n"
    );
    for (number, block) in trace.blocks.iter().enumerate() {
        of_block(&mut page, trace, block, number);
    }
    if let Some(error) =
        trace.error.as_ref().filter(|error| trace.blocks.iter().all(|block| block.fault.as_ref() != Some(error)))
    {
        let _ = writeln!(page, "<pre class=\"fault\">{}</pre>", escaped(error));
    }
    let _ = write!(page, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

fn of_block(page: &mut String, trace: &Trace, block: &Block, number: usize) {
    let summary = Summary::of(block);
    let [x, y, z] = block.block;
    let _ = writeln!(
        page,
        "<section aria-labelledby=\"block-{number}\">\n<h2 id=\"block-{number}\">Block ({x}, {y}, {z})</h2>\n<dl>"
    );
    for (name, value) in head(trace, block) {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(&value));
    }
    page.push_str("</dl>\n");
    if let Some(fault) = &block.fault {
        let _ = writeln!(page, "<pre class=\"fault\">{}</pre>", escaped(fault));
    }
    timeline(page, trace, block, &summary, number);
    for table in tables(trace, block, &summary) {
        write_table(page, &table);
    }
    steps(page, trace, block, number);
    page.push_str("</section>\n");
}

fn write_table(page: &mut String, Table { title, head, rows }: &Table) {
    let cells = |tag: &str, cells: &[String]| {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect::<String>()
    };
    let head: String = head.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escaped(cell))).collect();
    let _ = writeln!(
        page,
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<caption>{title}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>"
    );
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells("td", row));
    }
    page.push_str("</tbody></table></div>\n");
}

fn steps(page: &mut String, trace: &Trace, block: &Block, number: usize) {
    page.push_str("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Steps\"><table class=\"steps\">\n<caption>Steps</caption>\n<thead><tr><th scope=\"col\">step</th><th scope=\"col\">who</th><th scope=\"col\">what</th><th scope=\"col\">line</th><th scope=\"col\">of what</th></tr></thead>\n<tbody>\n");
    for step in block.steps.iter().take(MOST) {
        let mut place = escaped(trace.place(step.place));
        if step.caller.is_some() && step.caller != step.place {
            let _ = write!(place, "<br>from {}", escaped(trace.place(step.caller)));
        }
        let _ = writeln!(
            page,
            "<tr id=\"s{number}-{}\" class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{place}</td><td>{}</td></tr>",
            step.step,
            class(step.kind),
            step.step,
            escaped(&step.who()),
            step.kind,
            escaped(&block.detail(step)),
        );
    }
    page.push_str("</tbody></table></div>\n");
    if let Some(more) = block.steps.len().checked_sub(MOST).filter(|more| *more > 0) {
        let _ = writeln!(page, "<p>{more} more steps are in the JSON of this trace.</p>");
    }
}

/// What kinds of steps are drawn alike.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::GlobalLoad | Kind::SharedLoad | Kind::ClusterLoad | Kind::Ldmatrix => "load",
        Kind::GlobalStore | Kind::SharedStore | Kind::ClusterStore => "store",
        Kind::GlobalAtomic | Kind::SharedAtomic | Kind::ClusterAtomic => "atomic",
        Kind::Arrive | Kind::Wait | Kind::Complete | Kind::Passed | Kind::SyncWarp => "barrier",
        Kind::TmaLoad | Kind::TmaLoaded | Kind::TmaStore | Kind::TmaStoreCommit | Kind::TmaStoreWait => "tma",
        Kind::AsyncCopy | Kind::AsyncCopyCommit | Kind::AsyncCopyWait => "tma",
        Kind::Wgmma | Kind::Mma | Kind::WgmmaCommit | Kind::WgmmaFence | Kind::WgmmaWait => "product",
        Kind::Fault => "fault",
        _ => "other",
    }
}

/// The timeline: a row for each warp, one for TMA and barriers, and a counter of bytes in flight.
fn timeline(page: &mut String, trace: &Trace, block: &Block, summary: &Summary, number: usize) {
    let shown = &block.steps[..block.steps.len().min(MOST)];
    let (Some(first), Some(last)) = (shown.first(), shown.last()) else { return };
    let count = (last.step - first.step + 1) as f64;
    let width = ((count * 6.0) as usize).clamp(WIDTHS[0], WIDTHS[1]);
    let rows = trace.warps() + 2;
    let height = (rows + 1) * ROW;
    let at = |step: u64| LEFT as f64 + (step - first.step) as f64 / count * width as f64;
    let each = (width as f64 / count).max(1.0);
    let total = LEFT + width + 10;
    let _ = writeln!(
        page,
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Timeline\"><svg class=\"timeline\" role=\"img\" \
         aria-labelledby=\"t{number}\" viewBox=\"0 0 {total} {height}\" width=\"{total}\" height=\"{height}\">\n\
         <title id=\"t{number}\">Steps {} to {} of each warp, from left to right; the tables below say the same in words</title>",
        first.step, last.step
    );
    let middle = |row: usize| row * ROW + ROW * 3 / 4;
    for row in 0..rows {
        let label = match row {
            0 => "TMA and barriers".to_owned(),
            _ if row == rows - 1 => "bytes in flight".to_owned(),
            _ => {
                let role = summary.role(row - 1).map_or("", |role| role.name.as_str());
                format!("warp {}: {role}", row - 1)
            }
        };
        let _ = writeln!(
            page,
            "<text x=\"4\" y=\"{}\">{}</text><line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
            middle(row),
            escaped(&label),
            LEFT + width,
            y = (row + 1) * ROW
        );
    }
    for (warp, wait, end) in waits(shown, last.step + 1) {
        let y = (warp + 1) * ROW + 6;
        let what = escaped(&format!("warp {warp} waits: {}", block.detail(wait)));
        let _ = writeln!(
            page,
            "<rect class=\"wait\" x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"6\"><title>{what}</title></rect>",
            at(wait.step),
            at(end) - at(wait.step)
        );
    }
    let mut loads: BTreeMap<u64, &Step> = BTreeMap::new();
    for step in shown {
        match (step.kind, step.transfer) {
            (Kind::TmaLoad, Some(transfer)) => drop(loads.insert(transfer, step)),
            (Kind::TmaLoaded, Some(transfer)) => {
                let Some(load) = loads.remove(&transfer) else { continue };
                let what = escaped(&format!("TMA: {}", block.detail(load)));
                let (begin, width) = (at(load.step), at(step.step) - at(load.step));
                let _ = writeln!(
                    page,
                    "<rect class=\"transfer\" x=\"{begin:.1}\" y=\"3\" width=\"{width:.1}\" height=\"5\"><title>{what}</title></rect>"
                );
            }
            _ => {}
        }
    }
    for step in shown.iter().filter(|step| step.kind != Kind::Wait) {
        let row = step.warp.map_or(0, |warp| warp + 1);
        let what = escaped(&format!("{}: {} {} {}", step.step, step.who(), step.kind, block.detail(step)));
        let _ = writeln!(
            page,
            "<rect class=\"{}\" data-step=\"s{number}-{}\" x=\"{:.1}\" y=\"{}\" width=\"{each:.1}\" height=\"12\"><title>{what}</title></rect>",
            class(step.kind),
            step.step,
            at(step.step),
            row * ROW + 3
        );
    }
    let counters = replay::counters(block, summary);
    let most = counters.iter().map(|(_, bytes, _)| *bytes).max().unwrap_or(0).max(1);
    let base = rows * ROW - 2;
    let mut points = format!("{LEFT},{base}");
    let mut y = base as f64;
    for (step, bytes, _) in counters.iter().filter(|(step, ..)| *step <= last.step) {
        let next = base as f64 - *bytes as f64 / most as f64 * (ROW as f64 - 5.0);
        let _ = write!(points, " {x:.1},{y:.1} {x:.1},{next:.1}", x = at(*step));
        y = next;
    }
    let _ = writeln!(
        page,
        "<polyline class=\"counter\" points=\"{points} {},{y:.1}\"><title>bytes in flight, {most} at most</title></polyline>\n</svg></div>",
        LEFT + width
    );
}

/// From where to where warps wait.
fn waits(steps: &[Step], end: u64) -> Vec<(usize, &Step, u64)> {
    let (mut open, mut waits) = (BTreeMap::<usize, &Step>::new(), Vec::new());
    for step in steps {
        match (step.kind, step.warp) {
            (Kind::Wait, Some(warp)) => {
                open.entry(warp).or_insert(step);
            }
            (Kind::Passed | Kind::RegistersAcquired, Some(warp)) => {
                waits.extend(open.remove(&warp).map(|wait| (warp, wait, step.step)));
            }
            _ => {}
        }
    }
    waits.extend(open.into_iter().map(|(warp, wait)| (warp, wait, end)));
    waits
}
