//! Machine code with the line of PTX that each instruction comes from, and the registers that are live at it.
//!
//! ```text
//!  ptxas -lineinfo ──▶ cubin ──nvdisasm -gp──────────▶ //## File ".nv_debug_ptx_txt", line 49
//!                            │                         /*0010*/   S2R R3, SR_CTAID.Y ;
//!                            └─nvdisasm -lrm narrow──▶ /*0010*/   S2R R3, SR_CTAID.Y ;    // |  5  : ^      : : : |  …
//! ```
//!
//! What nvdisasm takes to be live is by its own analysis of the machine code: `^` a register gets a value, `v` it is read for the last time or
//! not, `x` both, `:` it keeps its value.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use serde_json::{Value, json};

use super::assemble;
use super::examine::{Examination, key, read, remove_old, tools};
use super::tools::{CudaTool, ToolError};
use crate::{Arch, KernelEntry, write_atomically};

/// The machine code of a kernel, instruction by instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotated {
    /// What the kernel needs, and its code as a whole.
    pub examination: Examination,
    /// Its instructions.
    pub instructions: Vec<Instruction>,
}

/// A machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Where it is, in bytes from the kernel's first.
    pub address: u32,
    /// The instruction with its guard: `@P0 LDG.E.128 R4, desc[UR4][R2.64]`.
    pub text: String,
    /// What nvdisasm notes of it: `SpillRefill` of a store or load of a register for which there was no room.
    pub note: Option<String>,
    /// The labels that stand before it.
    pub labels: Vec<String>,
    /// The line of the PTX that it comes from, counted from 1, where the assembler says so.
    pub ptx_line: Option<u32>,
    /// What is live at it.
    pub live: Live,
}

/// What is live at an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// How many registers.
    pub registers: u32,
    /// How many predicates.
    pub predicates: u32,
    /// How many uniform registers, which a warp has once.
    pub uniform: u32,
    /// The registers, by number, and what happens to them there.
    pub marks: Vec<(u16, Mark)>,
}

/// What an instruction does with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It keeps its value.
    Kept,
    /// It gets a value.
    Written,
    /// It is read.
    Read,
    /// It is read, and gets another value.
    ReadAndWritten,
}

/// Assembles and disassembles a kernel. Results are kept in the directory `cache`, as those of [`examine`](super::examine).
///
/// # Errors
/// As for [`examine`](super::examine).
pub fn annotate(kernel: &KernelEntry, arch: Arch, cache: &Path) -> Result<Annotated, ToolError> {
    // Only what is assembled with lines knows them.
    let entry = cache.join(format!(
        "{}.{arch}.{}.lines.json",
        kernel.name,
        key(&(tools()? + include_str!("annotate.rs")), arch, &kernel.ptx)
    ));
    let kept = fs::read(&entry).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let text = |name: &str| kept.as_ref().and_then(|kept| kept[name].as_str());
    if let (Some(report), Some(lines), Some(ranges)) = (text("report"), text("lines"), text("ranges")) {
        return annotated(&kernel.name, report, lines, ranges);
    }
    let of_kernel = |error: ToolError| error.of_kernel(&kernel.name, arch);
    let assembly = assemble(&kernel.ptx, arch).map_err(of_kernel)?;
    let (lines, ranges) = listings(&assembly.cubin).map_err(of_kernel)?;
    let result = annotated(&kernel.name, &assembly.report, &lines, &ranges)?;
    let failed = |error: crate::Error| ToolError::Io { path: entry.clone(), reason: io::Error::other(error) };
    let kept = json!({ "report": assembly.report, "lines": lines, "ranges": ranges });
    write_atomically(&entry, kept.to_string().as_bytes()).map_err(failed)?;
    remove_old(cache);
    Ok(result)
}

/// What nvdisasm writes of the lines of PTX, and of the registers that are live.
fn listings(cubin: &[u8]) -> Result<(String, String), ToolError> {
    let io = |reason: io::Error| ToolError::Io { path: PathBuf::from(CudaTool::Nvdisasm.name()), reason };
    let directory = tempfile::tempdir().map_err(io)?;
    let path = directory.path().join("module.cubin");
    fs::write(&path, cubin).map_err(io)?;
    let run = |options: &'static [&str]| {
        CudaTool::Nvdisasm.run(|nvdisasm| nvdisasm.arg("-c").args(options).arg(&path)).map(|(listing, _)| listing)
    };
    thread::scope(|scope| {
        let ranges = scope.spawn(|| run(&["-lrm", "narrow"]));
        let lines = run(&["-gp"])?;
        Ok((lines, ranges.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
    })
}

/// Puts together what the tools have said of a kernel.
fn annotated(name: &str, report: &str, lines: &str, ranges: &str) -> Result<Annotated, ToolError> {
    let examination = read(name, report, lines)?;
    let mut instructions = read_lines(lines, name);
    let mut live = read_ranges(ranges, name);
    let mut met = 0;
    for instruction in &mut instructions {
        if let Some(of_instruction) = live.remove(&instruction.address) {
            instruction.live = of_instruction;
            met += 1;
        }
    }
    // Of the instructions behind the last, which fill the kernel up, only one of the listings has all.
    let reached = instructions.iter().rposition(|instruction| instruction.text != "NOP").map_or(0, |last| last + 1);
    if !live.is_empty() || met < reached {
        let what = format!("{reached} instructions of `{name}` with lines, {met} of them with registers");
        return Err(ToolError::Unexpected { tool: CudaTool::Nvdisasm, what });
    }
    Ok(Annotated { examination, instructions })
}

/// The lines of a listing that are of one kernel.
fn section<'a>(listing: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(".text.{name}:");
    let is_begin = move |line: &&str| line.split_ascii_whitespace().next() == Some(begin.as_str());
    let mut lines = listing.lines().skip_while(move |line| !is_begin(line));
    lines.next();
    lines.take_while(|line| !line.starts_with("//-----"))
}

/// The address of a line with an instruction, and what follows it.
fn address(line: &str) -> Option<(u32, &str)> {
    let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    Some((u32::from_str_radix(address, 16).ok()?, rest))
}

fn read_lines(listing: &str, name: &str) -> Vec<Instruction> {
    let (mut instructions, mut labels, mut ptx_line) = (Vec::new(), Vec::new(), None);
    for line in section(listing, name) {
        if let Some(rest) = line.trim_start().strip_prefix("//## File ") {
            // Of the PTX there is one file; another is that of the source, which `-gp` does not show.
            ptx_line = rest.split_once("line ").and_then(|(_, number)| number.trim().parse().ok());
        } else if let Some((address, rest)) = address(line) {
            let (text, note) = without_note(rest.trim().trim_end_matches(';').trim_end());
            let labels = std::mem::take(&mut labels);
            instructions.push(Instruction { address, text, note, labels, ptx_line, live: Live::default() });
        } else if let Some(label) = line.trim_end().strip_suffix(':')
            && label.starts_with('.')
        {
            labels.push(label.to_owned());
        }
    }
    instructions
}

/// An instruction, and what stands behind it in `(*"…"*)`.
fn without_note(text: &str) -> (String, Option<String>) {
    match text.split_once("(*\"") {
        Some((text, note)) => (text.trim_end().to_owned(), note.split_once("\"*)").map(|(note, _)| note.to_owned())),
        None => (text.to_owned(), None),
    }
}

/// Where the columns of a kind of registers are in a line.
#[derive(Debug, Default)]
struct Columns {
    begin: usize,
    end: usize,
    /// The position of each register, and its number.
    registers: Vec<(usize, u16)>,
}

/// What is live at each instruction of a kernel, by its address.
fn read_ranges(listing: &str, name: &str) -> HashMap<u32, Live> {
    let heading: Vec<&str> = listing.lines().take_while(|line| address(line).is_none()).collect();
    let kinds = columns(&heading);
    let of = |kind: &str| kinds.iter().find(|(name, _)| name == kind).map(|(_, columns)| columns);
    let count = |line: &str, columns: Option<&Columns>| {
        let text = columns.and_then(|columns| line.get(columns.begin..columns.end.min(line.len())));
        text.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    section(listing, name)
        .filter_map(|line| Some((address(line)?.0, line)))
        .map(|(address, line)| {
            let bytes = line.as_bytes();
            let mark = |&(position, register): &(usize, u16)| {
                let mark = match bytes.get(position)? {
                    b':' => Mark::Kept,
                    b'^' => Mark::Written,
                    b'v' => Mark::Read,
                    b'x' => Mark::ReadAndWritten,
                    _ => return None,
                };
                Some((register, mark))
            };
            let live = Live {
                registers: count(line, of("GPR")),
                predicates: count(line, of("PRED")),
                uniform: count(line, of("UGPR")),
                marks: of("GPR").map_or_else(Vec::new, |columns| columns.registers.iter().filter_map(mark).collect()),
            };
            (address, live)
        })
        .collect()
}

/// The kinds of registers in a heading: their names stand in its first line between bars, the registers' numbers below, digit by digit.
fn columns(heading: &[&str]) -> Vec<(String, Columns)> {
    let Some(first) = heading.iter().position(|line| line.contains("// |") && line.contains("GPR")) else {
        return Vec::new();
    };
    let bars: Vec<usize> = heading[first].match_indices('|').map(|(position, _)| position).collect();
    let digits: Vec<&[u8]> =
        heading[first + 1..].iter().take_while(|line| !line.contains("// +")).map(|line| line.as_bytes()).collect();
    bars.windows(2)
        .map(|bars| {
            let (begin, end) = (bars[0] + 1, bars[1]);
            let name = heading[first].get(begin..end).unwrap_or_default().trim().to_owned();
            let number = |position: usize| {
                let digits = digits.iter().filter_map(|row| row.get(position)).filter(|digit| digit.is_ascii_digit());
                let text: String = digits.map(|&digit| char::from(digit)).collect();
                Some((position, text.parse().ok()?))
            };
            (name, Columns { begin, end, registers: (begin..end).filter_map(number).collect() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
//--------------------- .text.k  --------------------------
.text.k:
\t//## File \".nv_debug_ptx_txt\", line 20
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
\t//## File \".nv_debug_ptx_txt\", line 49
        /*0010*/              @!P0 LDG.E R11, [R2.64] ;
        /*0020*/                   BRA `(.L_x_1) ;
//--------------------- .nv.shared.other --------------------------
        /*0030*/                   NOP ;
";

    const RANGES: &str = "\
                                                       // +---------------------+---------+
                                                       // |        GPR          |  PRED   |
                                                       // |    000000000011     |         |
                                                       // |  # 012345678901     | # 0     |
                                                       // +---------------------+---------+
.text.k:                                               // |                     |         |
        /*0000*/                   LDC R1, c[0x0][0x28] ; // |
        /*0010*/              @!P0 LDG.E R11, [R2.64] ;
";

    #[test]
    fn instructions_have_labels_and_lines_of_ptx() {
        let instructions = read_lines(LINES, "k");
        let shown: Vec<_> = instructions
            .iter()
            .map(|it| format!("{:x} {} {:?} {}", it.address, it.text, it.ptx_line, it.labels.join(" ")))
            .collect();
        assert_eq!(
            shown,
            [
                "0 LDC R1, c[0x0][0x28] Some(20) ",
                "10 @!P0 LDG.E R11, [R2.64] Some(49) .L_x_1",
                "20 BRA `(.L_x_1) Some(49) "
            ]
        );
        assert_eq!(read_lines(LINES, "other"), []);
        let spill = without_note("STL [R1+0x8], R29                    (*\"SpillRefill\"*)");
        assert_eq!(spill, ("STL [R1+0x8], R29".to_owned(), Some("SpillRefill".to_owned())));
    }

    #[test]
    fn registers_have_their_numbers_from_the_heading() {
        let line = |instruction: &str, ranges: &str| format!("{instruction:<55}// |{ranges}\n");
        let heading: String = RANGES.lines().take(6).map(|line| format!("{line}\n")).collect();
        let listing = heading
            + &line("        /*0000*/   LDC R1, c[0x0][0x28] ;", "  1  ^              |         |")
            + &line("        /*0010*/   LDG.E R11, [R2.64] ;", "  3  :v        ^    | 1 v     |");
        let live = read_ranges(&listing, "k");
        assert_eq!(live[&0], Live { registers: 1, predicates: 0, uniform: 0, marks: vec![(1, Mark::Written)] });
        assert_eq!((live[&16].registers, live[&16].predicates), (3, 1));
        assert_eq!(live[&16].marks, [(1, Mark::Kept), (2, Mark::Read), (11, Mark::Written)]);
    }

    #[test]
    fn listings_that_do_not_agree_are_refused() {
        let report = "Compiling entry function 'k'\n: Used 8 registers\n";
        let error = annotated("k", report, LINES, "").unwrap_err().to_string();
        assert!(error.contains("3 instructions of `k` with lines, 0 of them with registers"), "{error}");
    }
}
