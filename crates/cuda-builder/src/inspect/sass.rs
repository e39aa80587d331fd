//! Machine code as text (SASS), to see which instructions a kernel has become.

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::tools::{CudaTool, ToolError};

/// The machine code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCode {
    /// The entry point.
    pub name: String,
    /// The instructions with their guards: `@P0 LDG.E.128 R4, desc[UR4][R2.64]`.
    pub instructions: Vec<String>,
    /// The disassembler's lines, labels and addresses included.
    pub listing: String,
}

impl KernelCode {
    /// How many instructions have this operation, the part of the opcode before the first dot: `LDG`, `FFMA`.
    pub fn count(&self, operation: &str) -> usize {
        self.opcodes().filter(|opcode| is_of(opcode, operation)).count()
    }

    /// The opcodes with their modifiers: `LDG.E.128`.
    pub fn opcodes(&self) -> impl Iterator<Item = &str> {
        self.instructions.iter().filter_map(|instruction| opcode(instruction))
    }

    /// The loops. A branch back that can be come to without what it goes back to is none: what waits for long stands behind everything else, and ends with
    /// a branch to where it came from.
    pub fn loops(&self) -> Vec<CodeLoop<'_>> {
        let lines: Vec<_> = self.listing.lines().map(str::trim).collect();
        let labels: HashMap<&str, usize> =
            lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
        let target = |line: &&str| {
            let (_, target) = line.split_once("BRA")?;
            let name = target.rsplit([' ', ',']).find(|word| word.contains("L_"))?;
            labels.get(name.trim_matches(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_'))).copied()
        };
        let targets: Vec<Option<usize>> = lines.iter().map(target).collect();
        let mut loops = Vec::new();
        for (end, line) in lines.iter().enumerate() {
            if let Some(start) = targets[end]
                && start < end
                && line.contains("BRA ")
                && goes_through(&lines, &targets, start, end)
            {
                let opcodes = lines[start..=end].iter().filter_map(|line| opcode(instruction(line)?)).collect();
                loops.push(CodeLoop { opcodes, lines: start..=end });
            }
        }
        loops
    }

    /// The loops with an instruction of an operation, but for those that have such a loop in them.
    pub fn innermost_loops_with(&self, operation: &str) -> Vec<CodeLoop<'_>> {
        let all: Vec<_> = self.loops().into_iter().filter(|body| body.count(operation) > 0).collect();
        all.iter().filter(|body| !all.iter().any(|other| body.has(other))).cloned().collect()
    }
}

/// Whether all ways from the first line to line `to` go through line `through`; `targets` are where lines branch to.
fn goes_through(lines: &[&str], targets: &[Option<usize>], through: usize, to: usize) -> bool {
    let ends = |line: &str| {
        let opcode =
            instruction(line).filter(|instruction| !instruction.trim_start().starts_with('@')).and_then(opcode);
        opcode.is_some_and(|opcode| matches!(opcode, "BRA" | "EXIT") || is_of(opcode, "RET"))
    };
    let (mut seen, mut open) = (vec![false; lines.len()], vec![0]);
    while let Some(line) = open.pop() {
        if line == through || line >= lines.len() || seen[line] {
            continue;
        }
        seen[line] = true;
        open.extend(targets[line]);
        if !ends(lines[line]) {
            open.push(line + 1);
        }
    }
    !seen[to]
}

/// The instruction in a line of a listing, which begins with its address: `/*0010*/ @!P0 LDG.E R0, desc[UR6][R2.64] ;`.
fn instruction(line: &str) -> Option<&str> {
    Some(line.strip_prefix("/*")?.split_once("*/")?.1)
}

/// The opcode of an instruction with its modifiers: of `@!P0 LDG.E R0, desc[UR6][R2.64] ;` it is `LDG.E`.
fn opcode(instruction: &str) -> Option<&str> {
    let word = instruction.split_ascii_whitespace().find(|word| !word.starts_with('@'))?;
    Some(word.trim_end_matches(';'))
}

/// Whether an opcode is of this operation, whatever its modifiers.
fn is_of(opcode: &str, operation: &str) -> bool {
    opcode.split('.').next() == Some(operation)
}

/// A loop in the listing of a kernel: everything between a label and a branch back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLoop<'a> {
    /// The opcodes in it with their modifiers.
    pub opcodes: Vec<&'a str>,
    /// Its lines in the listing.
    lines: RangeInclusive<usize>,
}

impl CodeLoop<'_> {
    /// How many of the opcodes are of this operation, whatever their modifiers.
    pub fn count(&self, operation: &str) -> usize {
        self.opcodes.iter().filter(|opcode| is_of(opcode, operation)).count()
    }

    /// Whether another loop is a part of it.
    fn has(&self, other: &Self) -> bool {
        self.lines != other.lines && self.lines.start() <= other.lines.start() && other.lines.end() <= self.lines.end()
    }
}

/// Disassembles the machine code of [`assemble`](super::assemble).
///
/// # Errors
/// [`ToolError::Missing`] without nvdisasm, [`ToolError::Failed`] with its message if it refuses the file.
pub fn disassemble(cubin: &[u8]) -> Result<Vec<KernelCode>, ToolError> {
    Ok(read_listing(&listing(cubin)?))
}

/// What nvdisasm writes of machine code.
pub(super) fn listing(cubin: &[u8]) -> Result<String, ToolError> {
    let io = |reason: io::Error| ToolError::Io { path: PathBuf::from(CudaTool::Nvdisasm.name()), reason };
    let directory = tempfile::tempdir().map_err(io)?;
    let path = directory.path().join("module.cubin");
    std::fs::write(&path, cubin).map_err(io)?;
    let (listing, _) = CudaTool::Nvdisasm.run(|nvdisasm| nvdisasm.arg("-c").arg(&path))?;
    Ok(listing)
}

/// The kernels in what nvdisasm writes.
pub fn read_listing(listing: &str) -> Vec<KernelCode> {
    let mut kernels: Vec<KernelCode> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix(".text.").and_then(|label| label.strip_suffix(':')) {
            let (instructions, listing) = (Vec::new(), String::new());
            kernels.push(KernelCode { name: name.to_owned(), instructions, listing });
            continue;
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        if line.starts_with("//-----") {
            continue;
        }
        kernel.listing += line;
        kernel.listing.push('\n');
        if let Some((address, instruction)) = line.trim().split_once("*/")
            && address.starts_with("/*")
        {
            kernel.instructions.push(instruction.trim().trim_end_matches(';').trim_end().to_owned());
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_listing() {
        let listing = "\t.target\tsm_90a\n//---- .text.k ----\n\t.section\t.text.k\nk:\n.text.k:\n\
                       \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
                       .L_x_1:\n\
                       \x20       /*0010*/              @!P0 LDG.E.128 R0, desc[UR6][R2.64] ;\n\
                       \x20       /*0020*/                   LDGSTS.E [R1], desc[UR6][R2.64] ;\n\
                       \x20       /*0030*/                   NOP;\n";
        let kernels = read_listing(listing);
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].name, "k");
        assert_eq!(kernels[0].opcodes().collect::<Vec<_>>(), ["LDC", "LDG.E.128", "LDGSTS.E", "NOP"]);
        assert_eq!((kernels[0].count("LDG"), kernels[0].count("LDGSTS"), kernels[0].count("STG")), (1, 1, 0));
        assert!(kernels[0].listing.contains(".L_x_1:"));
    }

    #[test]
    fn what_waits_behind_everything_else_makes_no_loop() {
        let listing = "\
            /*00*/ LDC R1, c[0x0][0x28] ;\n.L_0:\n/*10*/ HGMMA R0 ;\n/*20*/ @!P0 BRA `(.L_2) ;\n.L_1:\n/*30*/ HGMMA R0 ;\n/*40*/ @P1 BRA `(.L_0) ;\n\
            /*50*/ STL [R1], R2 ;\n/*60*/ EXIT ;\n.L_2:\n/*70*/ NOP ;\n/*80*/ BRA `(.L_1) ;\n";
        let code = KernelCode { name: "k".to_owned(), instructions: Vec::new(), listing: listing.to_owned() };
        let loops = code.loops();
        assert_eq!(loops.len(), 1, "{loops:?}");
        assert_eq!((loops[0].count("HGMMA"), loops[0].count("STL")), (2, 0));
        // Where it is come to from what it goes back to alone, it is one.
        let listing = listing.replace("@!P0 BRA `(.L_2)", "NOP").replace("STL [R1], R2 ;", "@P2 BRA `(.L_2) ;");
        assert_eq!(KernelCode { listing, ..code }.loops().len(), 2);
    }
}
