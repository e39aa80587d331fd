//! A trace as text: what it is of, the tables, and each step.

use std::fmt::Write as _;

use crate::summary::numbers;
use crate::{Block, Summary, Trace};

/// A table with a head: columns as wide as their widest word.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The head of a trace: names and values.
pub(crate) fn head(trace: &Trace, block: &Block) -> Vec<(&'static str, String)> {
    let extents = |[x, y, z]: [u32; 3]| format!("{x}×{y}×{z}");
    let mut head = vec![
        ("kernel", trace.kernel.clone()),
        ("operation", format!("{} with {}, seed {}", trace.operation, trace.sizes, trace.seed)),
        (
            "grid",
            format!("{} blocks of {} threads, {} warps", extents(trace.grid), extents(trace.block), trace.warps()),
        ),
    ];
    if trace.cluster != [1; 3] {
        head.push(("cluster", format!("{} blocks", extents(trace.cluster))));
    }
    if trace.schedule_seed != 0 {
        head.push(("schedule", format!("seed {}", trace.schedule_seed)));
    }
    let [x, y, z] = block.block;
    let mut steps = format!("{} steps", block.steps.len());
    if block.more > 0 {
        let _ = write!(steps, "; {} more of single threads are not kept: the limit was reached", block.more);
    }
    head.push(("block", format!("({x}, {y}, {z}): {steps}")));
    for array in &block.arrays {
        head.push(("shared memory", format!("{}: {} bytes", array.name, array.bytes)));
    }
    head
}

/// The tables of a block. Those without rows are left out.
pub(crate) fn tables(trace: &Trace, block: &Block, summary: &Summary) -> Vec<Table> {
    let counted = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.iter().map(|(role, count)| format!("{role} {count}")).collect::<Vec<_>>().join(", ")
    };
    let roles = summary.roles.iter().map(|role| {
        let counts = role.counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>();
        vec![role.name.clone(), numbers(&role.warps), role.duties.join(", "), counts.join(", ")]
    });
    let storage = summary.storage.iter().map(|storage| {
        let bytes = format!("{}..{}", storage.bytes.start, storage.bytes.end);
        let place = block.memory(storage.memory);
        vec![place, bytes, storage.written_by.join(", "), storage.read_by.join(", ")]
    });
    let handoffs = summary.handoffs.iter().map(|handoff| {
        let mut arrivals = counted(&handoff.arrivals);
        if handoff.bytes > 0 {
            arrivals = [arrivals, format!("TMA {} bytes", handoff.bytes)].join(", ");
        }
        vec![handoff.barrier.to_string(), arrivals, counted(&handoff.waits), handoff.phases.to_string()]
    });
    let lifetimes = summary.stages.iter().enumerate().flat_map(|(number, stage)| {
        let ranges: Vec<_> = stage.ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
        let name = format!("stage {number}: {}", ranges.join(", "));
        stage.fills.iter().enumerate().map(move |(fill, life)| {
            let there = life.there.map_or("never".to_owned(), |there| there.to_string());
            let read = life.read.map_or("never".to_owned(), |(first, last)| format!("{first} to {last}"));
            let name = if fill == 0 { name.clone() } else { String::new() };
            vec![name, fill.to_string(), life.issued.to_string(), there, read]
        })
    });
    let left = block.left.iter().map(|left| {
        let place = trace.place(left.place).to_owned();
        vec![format!("warp {}", left.warp), left.threads.to_string(), left.waits.clone(), place]
    });
    let table = |title, head: &[&'static str], rows: Vec<Vec<String>>| Table { title, head: head.to_vec(), rows };
    let tables = [
        table("Roles", &["role", "warps", "what they do", "steps"], roles.collect()),
        table("Storage", &["memory", "bytes", "written by", "read by"], storage.collect()),
        table("Hand-offs", &["barrier", "arrivals", "waits", "phases"], handoffs.collect()),
        table("Lifetimes", &["stage", "fill", "issued", "there", "read"], lifetimes.collect()),
        table("Threads that have not returned", &["warp", "threads", "where", "line"], left.collect()),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The rows of a table, with columns as wide as they have to be; the last one as it is.
fn lines(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", padded.join("  ")).trim_end().to_owned()
    };
    let all =
        [line(head.to_vec())].into_iter().chain(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    all.collect::<Vec<_>>().join("\n")
}

/// Without the steps, if only the tables are wanted.
pub(crate) fn text(trace: &Trace, has_steps: bool) -> String {
    let mut text = String::new();
    for block in &trace.blocks {
        let summary = Summary::of(block);
        for (name, value) in head(trace, block) {
            let _ = writeln!(text, "{name:<14} {value}");
        }
        for table in tables(trace, block, &summary) {
            let _ = writeln!(text, "\n{}\n{}", table.title, lines(&table.head, &table.rows));
        }
        if has_steps {
            write_steps(&mut text, trace, block);
        }
        if let Some(fault) = &block.fault {
            let _ = writeln!(text, "\n{fault}");
        }
        text.push('\n');
    }
    let is_told = |error: &String| trace.blocks.iter().any(|block| block.fault.as_ref() == Some(error));
    if let Some(error) = trace.error.as_ref().filter(|error| !is_told(error)) {
        let _ = writeln!(text, "{error}");
    }
    text
}

fn write_steps(text: &mut String, trace: &Trace, block: &Block) {
    let row = |step: &crate::Step| {
        let mut place = trace.place(step.place).to_owned();
        if step.caller.is_some() && step.caller != step.place {
            let _ = write!(place, ", from {}", trace.place(step.caller));
        }
        vec![step.step.to_string(), step.who(), step.kind.to_string(), place, block.detail(step)]
    };
    let rows: Vec<_> = block.steps.iter().map(row).collect();
    let _ = writeln!(text, "\nSteps\n{}", lines(&["step", "who", "what", "line", "of what"], &rows));
}
