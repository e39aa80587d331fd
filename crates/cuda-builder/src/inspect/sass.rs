//! Machine code as text (SASS), to see which instructions a kernel has become.

use std::io;
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
        self.opcodes().filter(|opcode| opcode.split('.').next() == Some(operation)).count()
    }

    /// The opcodes with their modifiers: `LDG.E.128`.
    pub fn opcodes(&self) -> impl Iterator<Item = &str> {
        self.instructions.iter().filter_map(|instruction| {
            instruction
                .split_ascii_whitespace()
                .find(|word| !word.starts_with('@'))
                .map(|word| word.trim_end_matches(';'))
        })
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
}
