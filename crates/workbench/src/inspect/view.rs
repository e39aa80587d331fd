//! A kernel's code as it is shown, in the terminal and on a page alike: line by line of Rust, with the PTX and the machine code of each.

use std::collections::BTreeMap;

use crate::code::{Class, Code, Listing, Machine, Origin, RustLine, count};

/// A line of Rust, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    /// The line; none for what the compiler gives no line.
    pub(super) line: Option<&'a RustLine>,
    pub(super) text: &'a str,
    /// Its PTX: indices into [`Listing::ptx`].
    pub(super) ptx: Vec<usize>,
    /// Its machine code: indices into [`Listing::sass`].
    pub(super) sass: Vec<usize>,
}

/// The lines of Rust that there is code of, and those between them, in the order of the source; last what has no line.
pub(super) fn rows(listing: &Listing) -> Vec<Row<'_>> {
    let mut ptx: BTreeMap<Option<&RustLine>, Vec<usize>> = BTreeMap::new();
    let mut sass: BTreeMap<Option<&RustLine>, Vec<usize>> = BTreeMap::new();
    for (index, line) in listing.ptx.iter().enumerate() {
        ptx.entry(listing.line(line.origin)).or_default().push(index);
    }
    for (index, line) in listing.sass.iter().enumerate() {
        sass.entry(listing.line(line.origin)).or_default().push(index);
    }
    let mut rows = Vec::new();
    for (line, text) in listing.source.iter().map(|source| (Some(&source.at), source.text.as_str())).chain([(None, "")])
    {
        let (ptx, sass) = (ptx.remove(&line).unwrap_or_default(), sass.remove(&line).unwrap_or_default());
        if line.is_some() || !ptx.is_empty() || !sass.is_empty() {
            rows.push(Row { line, text, ptx, sass });
        }
    }
    rows
}

/// A pair of cells: a line of PTX, and a machine instruction that comes from it.
pub(super) type Pair = (Option<usize>, Option<usize>);

/// The PTX and the machine code of a row side by side: what comes from a line of PTX stands beside it.
pub(super) fn pairs(row: &Row<'_>, listing: &Listing) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut left = row.sass.clone();
    for &ptx in &row.ptx {
        let of_it: Vec<usize> = left.iter().copied().filter(|&sass| listing.sass[sass].ptx == Some(ptx)).collect();
        left.retain(|sass| !of_it.contains(sass));
        pairs.push((Some(ptx), of_it.first().copied()));
        pairs.extend(of_it.iter().skip(1).map(|&sass| (None, Some(sass))));
    }
    pairs.extend(left.into_iter().map(|sass| (None, Some(sass))));
    pairs
}

/// What a row's instructions are for: `LDS.128×4, FFMA×32`, the most frequent first within each class.
pub(super) fn summary(row: &Row<'_>, listing: &Listing) -> String {
    let counts = count(row.sass.iter().map(|&sass| opcode(&listing.sass[sass].text)));
    let one =
        |it: &crate::code::Count| if it.count == 1 { it.name.clone() } else { format!("{}×{}", it.name, it.count) };
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The opcode of a machine instruction, behind its guard.
pub(super) fn opcode(text: &str) -> &str {
    text.split_ascii_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default()
}

/// Where something was inlined from: `cuda-std/src/shared.rs:120 get ‹ blocks/src/tile.rs:9 load`.
pub(super) fn inner(origin: &Origin) -> String {
    let one = |(at, function): &(RustLine, String)| format!("{}:{} {function}", at.file, at.line);
    origin.inner.iter().map(one).collect::<Vec<_>>().join(" ‹ ")
}

pub(super) fn shown(line: &RustLine) -> String {
    format!("{}:{}", line.file, line.line)
}

/// What a kernel needs, in short sentences: the name of each, and what it says.
pub(super) fn facts(code: &Code) -> Vec<(&'static str, String)> {
    let [x, y, z] = code.block;
    let mut facts = vec![("block", format!("{x}×{y}×{z} threads"))];
    if let Some(blocks) = code.min_blocks {
        facts[0].1 += &format!(", {blocks} or more blocks asked for on a multiprocessor");
    }
    let dynamic = if code.dynamic_shared_bytes > 0 {
        format!(" + {} B dynamic", code.dynamic_shared_bytes)
    } else {
        String::new()
    };
    facts.push(("shared memory", format!("{} B static{dynamic}", code.static_shared_bytes)));
    let Ok(machine) = &code.machine else { return facts };
    let it = &machine.resources;
    let spills = match it.spill_bytes() {
        0 => "no spills".to_owned(),
        _ => format!("spills: {} B stored, {} B loaded", it.spill_store_bytes, it.spill_load_bytes),
    };
    let stack = if it.stack_bytes > 0 { format!(", stack frame {} B", it.stack_bytes) } else { String::new() };
    facts.push(("registers", format!("{} for each thread, {spills}{stack}", it.registers)));
    if let Some(occupancy) = &machine.occupancy {
        let by: Vec<_> = occupancy.limited_by().collect();
        let each = occupancy.blocks_by.each().filter_map(|(what, blocks)| Some(format!("{what} {}", blocks?)));
        facts.push((
            "occupancy",
            format!(
                "{} blocks, {} of {} warps ({} %), limited by {} (blocks by each: {})",
                occupancy.blocks,
                occupancy.warps,
                occupancy.most_warps,
                100 * occupancy.warps / occupancy.most_warps,
                by.join(" and "),
                each.collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    facts
}

/// How many instructions of each class there are, and their names.
pub(super) fn classes(machine: &Machine) -> Vec<(Class, usize, String)> {
    let of = |class: Class| {
        let names = machine.counts.iter().filter(|count| count.class == class);
        let names: Vec<_> = names.map(|count| format!("{} {}", count.name, count.count)).collect();
        (class, machine.of_class(class), names.join(", "))
    };
    Class::ALL.into_iter().map(of).filter(|(_, count, _)| *count > 0).collect()
}

/// Something that was found in the code.
pub(super) struct Finding {
    /// What: a heading.
    pub(super) what: String,
    /// Where, if it is at a line, and what is to be said of it.
    pub(super) items: Vec<(Option<RustLine>, String)>,
}

/// Where most registers are live, which lines hold them, which loops remain, and what is in local memory. There may be no items of something.
pub(super) fn findings(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(peak) = &listing.peak {
        let first = &listing.sass[peak.at[0]];
        let what = format!(
            "most registers live: {} at {:04x} `{}`, held by values of",
            peak.registers, first.address, first.text
        );
        let mut by_line: BTreeMap<Option<RustLine>, usize> = BTreeMap::new();
        for (origin, count) in &peak.held {
            *by_line.entry(listing.line(*origin).cloned()).or_default() += count;
        }
        let mut by_line: Vec<_> = by_line.into_iter().collect();
        by_line.sort_by_key(|(line, count)| (std::cmp::Reverse(*count), line.clone()));
        let item = |(line, count): (Option<RustLine>, usize)| {
            let text = if line.is_some() {
                format!("{count} registers")
            } else {
                format!("{count} registers of no line, or with no value yet")
            };
            (line, text)
        };
        findings.push(Finding { what, items: by_line.into_iter().map(item).collect() });
    }
    let loops = listing.loops.iter().map(|it| {
        let times = it
            .iterations
            .map_or_else(|| "how often is not known when it is compiled".to_owned(), |times| format!("{times} times"));
        let remarks = remarks(&it.remarks);
        let via = it.origin.map(|origin| inner(&listing.origins[origin])).filter(|via| !via.is_empty());
        let via = via.map_or_else(String::new, |via| format!(" (in {via})"));
        (listing.line(it.origin).cloned(), format!("{times}{via}{remarks}"))
    });
    findings.push(Finding { what: "loops that are not unrolled".to_owned(), items: loops.collect() });
    for (is_spill, what) in
        [(true, "registers spilled to local memory, by the value"), (false, "arrays in local memory")]
    {
        let slots = listing.local.iter().filter(|slot| slot.is_spill == is_spill).map(|slot| {
            let lines = |indices: &[usize]| {
                let mut lines: Vec<_> =
                    indices.iter().filter_map(|&index| listing.line(listing.sass[index].origin)).map(shown).collect();
                lines.sort();
                lines.dedup();
                if lines.is_empty() { String::new() } else { format!(" ({})", lines.join(", ")) }
            };
            let place = slot.offset.map_or_else(|| "indexed at run time".to_owned(), |offset| format!("at {offset}"));
            let value = slot.values.first().and_then(|&value| listing.line(Some(value))).cloned();
            let text = format!(
                "{} B {place}: {} × STL{}, {} × LDL{}",
                slot.bytes,
                slot.stores.len(),
                lines(&slot.stores),
                slot.loads.len(),
                lines(&slot.loads)
            );
            let mut others: Vec<_> =
                slot.values.iter().filter_map(|&value| listing.line(Some(value))).map(shown).collect();
            others.retain(|other| value.as_ref().is_none_or(|value| *other != shown(value)));
            others.dedup();
            let others =
                if others.is_empty() { others.concat() } else { format!("; also values of {}", others.join(", ")) };
            (value, text + &others)
        });
        findings.push(Finding { what: what.to_owned(), items: slots.collect() });
    }
    findings
}

/// What LLVM's passes say of a loop, the reasons of one of them together.
fn remarks(remarks: &[String]) -> String {
    const VECTOR: &str = "loop-vectorize: loop not vectorized: ";
    let (vector, others): (Vec<&String>, Vec<&String>) = remarks.iter().partition(|remark| remark.starts_with(VECTOR));
    let mut said: String = others.iter().map(|remark| format!("; LLVM's {remark}")).collect();
    if !vector.is_empty() {
        let reasons: Vec<_> = vector.iter().map(|remark| &remark[VECTOR.len()..]).collect();
        said += &format!("; LLVM has not vectorised it: {}", reasons.join("; "));
    }
    said
}
