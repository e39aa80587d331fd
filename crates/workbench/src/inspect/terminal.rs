//! A kernel's code in the terminal.

use super::costs::Costs;
use super::view::{Finding, Row, classes, facts, findings, inner, pairs, rows, shown, summary};
use crate::code::{Code, Listing, RustLine};
use crate::style::{Style, Tone};

/// Which instructions are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A line for each line of Rust, with what its instructions are for.
    Lines,
    /// All PTX and machine code.
    Instructions,
}

/// Up to so many machine instructions are printed unless told otherwise.
pub(super) const FEW: usize = 400;

/// How many of the items of a finding are printed.
const ITEMS: usize = 8;

pub(super) fn text(code: &Code, costs: Option<&Costs>, how: Shown, style: &Style) -> String {
    let mut out = format!("{} for {}\n", style.paint(Tone::Strong, &code.kernel), code.arch);
    for (what, said) in facts(code) {
        out += &format!("  {what:<15} {}\n", style.wrap(&said, 18));
    }
    match &code.machine {
        Err(error) => out += &format!("\n{}\n", style.paint(Tone::Warning, style.wrap(error, 0))),
        Ok(machine) => {
            for warning in &machine.warnings {
                out += &format!("  {}\n", style.paint(Tone::Warning, style.wrap(warning, 2)));
            }
            out += &format!("\n{} instructions\n", machine.instructions);
            for (class, count, names) in classes(machine) {
                out += &format!("  {:<17} {count:>5}  {}\n", class.name(), style.wrap(&names, 27));
            }
        }
    }
    let Some(listing) = &code.listing else { return out };
    out += &registers(listing, style);
    for Finding { what, items } in findings(listing) {
        if items.is_empty() {
            continue;
        }
        out += &format!("\n{what}\n");
        for (line, said) in items.iter().take(ITEMS) {
            let place = line.as_ref().map_or_else(|| "no line".to_owned(), shown);
            let text = line.as_ref().and_then(|line| listing.text(line)).map_or("", str::trim);
            out += &format!("  {}\n", style.wrap(&format!("{place}: {said}"), 6));
            if !text.is_empty() {
                out += &format!("      {}\n", style.paint(Tone::Faint, cut(text, style.width.saturating_sub(6))));
            }
        }
        if items.len() > ITEMS {
            out += &format!("  and {} more (`--json` has all)\n", items.len() - ITEMS);
        }
    }
    if let Some(costs) = costs {
        out += &format!("\nin the margin: what the executor counts in one launch of {}\n", costs.case);
    }
    out += &lines(listing, costs, how, style);
    out
}

/// The machine code in its own order, or the PTX where there is none.
pub(super) fn sass(code: &Code, style: &Style) -> String {
    let mut out = format!("{} for {}\n", style.paint(Tone::Strong, &code.kernel), code.arch);
    let Some(listing) = &code.listing else { return out };
    if let Err(error) = &code.machine {
        out += &format!("{}\n", style.paint(Tone::Warning, style.wrap(error, 0)));
    }
    let place = |origin| style.paint(Tone::Faint, listing.line(origin).map_or_else(String::new, shown));
    for line in &listing.sass {
        for label in &line.labels {
            out += &format!("{label}:\n");
        }
        let text = format!("  {:04x} {:>3}  {:<70}", line.address, line.registers, line.text);
        out += &format!("{text} {}\n", place(line.origin));
    }
    if listing.sass.is_empty() {
        listing.ptx.iter().for_each(|line| out += &format!("  {:<70} {}\n", line.text, place(line.origin)));
    }
    out
}

/// The registers that are live along the code, as a row of bars.
fn registers(listing: &Listing, style: &Style) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(peak) = &listing.peak else { return String::new() };
    let width = style.width.saturating_sub(4).min(listing.sass.len()).max(1);
    let bars = (0..width).map(|column| {
        let range = column * listing.sass.len() / width..((column + 1) * listing.sass.len()).div_ceil(width);
        let most = listing.sass[range].iter().map(|line| line.registers).max().unwrap_or(0);
        let level = usize::try_from(most * 7 / peak.registers.max(1)).unwrap_or(0);
        BARS[level.min(7)]
    });
    format!("\nregisters live along the code, up to {}\n  {}\n", peak.registers, bars.collect::<String>())
}

fn lines(listing: &Listing, costs: Option<&Costs>, how: Shown, style: &Style) -> String {
    let mut out = String::new();
    let mut file = None;
    let mut last: Option<&RustLine> = None;
    for row in rows(listing) {
        let of_row = row.line.map(|line| line.file.as_str());
        if of_row != file || row.line.is_none() {
            file = of_row;
            last = None;
            let heading = of_row.unwrap_or("of no line: what the compiler has made, moved or put together");
            out += &format!("\n{}\n", style.paint(Tone::Strong, heading));
        }
        if let (Some(line), Some(last)) = (row.line, last)
            && line.line != last.line + 1
        {
            out += &format!("{}\n", style.paint(Tone::Faint, "    ⋮"));
        }
        last = row.line;
        out += &line(&row, listing, costs, how, style);
    }
    out
}

fn line(row: &Row<'_>, listing: &Listing, costs: Option<&Costs>, how: Shown, style: &Style) -> String {
    let number = row.line.map_or_else(|| " ".repeat(5), |line| format!("{:>5}", line.line));
    let text = format!("{number} {}", cut(row.text, style.width.saturating_sub(6)));
    let mut out = if row.line.is_some() { text.trim_end().to_owned() + "\n" } else { String::new() };
    for cost in row.line.into_iter().flat_map(|line| costs.map_or_else(Vec::new, |costs| costs.at(line))) {
        let tone = if cost.is_wasteful() { Tone::Bad } else { Tone::Good };
        out += &format!("      {}\n", style.paint(tone, format!("▏{}", cost.words())));
    }
    if row.ptx.is_empty() && row.sass.is_empty() {
        return out;
    }
    match how {
        Shown::Lines => {
            let most = row.sass.iter().map(|&sass| listing.sass[sass].registers).max().unwrap_or(0);
            let said = if listing.sass.is_empty() {
                format!("{} of PTX", row.ptx.len())
            } else {
                let live = if most > 0 { format!("; {most} registers") } else { String::new() };
                format!("{} of PTX, {} of SASS{live}: {}", row.ptx.len(), row.sass.len(), summary(row, listing))
            };
            out += &format!(
                "      {}\n",
                style.paint(Tone::Faint, format!("│ {}", style.wrap(&said, 8).replace("\n      ", "\n      │")))
            );
        }
        Shown::Instructions => out += &instructions(row, listing, style),
    }
    out
}

/// PTX on the left, machine code on the right, with its address and the registers that are live.
fn instructions(row: &Row<'_>, listing: &Listing, style: &Style) -> String {
    let mut out = String::new();
    let inside = style.width.saturating_sub(8);
    let left = if listing.sass.is_empty() { inside } else { inside * 45 / 100 };
    let right = inside.saturating_sub(left + 3 + 5 + 4);
    let mut origin = None;
    for (ptx, sass) in pairs(row, listing) {
        let of_pair =
            ptx.map_or_else(|| sass.and_then(|sass| listing.sass[sass].origin), |ptx| listing.ptx[ptx].origin);
        if of_pair != origin {
            origin = of_pair;
            let via = of_pair.map(|origin| inner(&listing.origins[origin])).unwrap_or_default();
            if !via.is_empty() {
                out += &format!(
                    "      {}\n",
                    style.paint(Tone::Faint, cut(&format!("│ in {via}"), style.width.saturating_sub(6)))
                );
            }
        }
        let moved = |ptx: usize| if listing.ptx[ptx].is_moved { "~ " } else { "" };
        let ptx = ptx.map_or_else(String::new, |ptx| format!("{}{}", moved(ptx), listing.ptx[ptx].text));
        let mut text = format!("{:<left$}", cut(&ptx, left));
        if let Some(sass) = sass.map(|sass| &listing.sass[sass]) {
            text += &format!(" │ {:04x} {:<right$} {:>3}", sass.address, cut(&sass.text, right), sass.registers);
        }
        out += &format!("      │ {}\n", text.trim_end());
    }
    out
}

/// A text that fits into so many columns.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::code;

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let long = "let value = matrix.at_or_zero(first_row + row, first_col + col) + another.at_or_zero(row, col);";
        let code = code(&[
            (
                1,
                long,
                &[
                    "IADD3 R29, R20, UR4, RZ",
                    "HGMMA.64x128x8.F32.TF32 R24, R132, gdesc[UR36], RZ, !UPT, gsb0, and more",
                ],
            ),
            (2, "x < y && z > w", &["EXIT"]),
        ]);
        for width in [50, 80, 120] {
            let style = Style { colours: false, width };
            for how in [Shown::Lines, Shown::Instructions] {
                let text = text(&code, None, how, &style);
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width, "{widest} of {width}:\n{text}");
                assert!(text.contains("let value") && text.contains("no tools"), "{text}");
            }
        }
        let wide = text(&code, None, Shown::Instructions, &Style { colours: false, width: 160 });
        assert!(wide.contains("~ ptx.of.line 2;") && wide.contains("in core/src/ops/arith.rs:90 add"), "{wide}");
        let coloured = Style { colours: true, width: 120 };
        assert!(text(&code, None, Shown::Lines, &coloured).contains('\u{1b}'));
        assert!(!wide.contains('\u{1b}'));
        assert!(sass(&code, &Style::plain()).contains("src/lib.rs:2"));
    }
}
