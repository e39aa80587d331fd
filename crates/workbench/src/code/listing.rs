//! The code of a kernel by lines, as a whole: Rust, PTX, machine code, loops, registers, local memory.

use std::path::Path;

use cuda_builder::inspect::{Annotated, Instruction, Loop, Places};
use serde::Serialize;

use super::lines::{
    LoopLine, Origin, Origins, PtxLine, RustLine, SassLine, SourceText, read_ptx, sass_line, source,
    with_origins_of_uses,
};
use super::registers::{Peak, Slot};

/// The code of a kernel by lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The lines of Rust of the kernel's crate that instructions come from, and those between them.
    pub source: Vec<SourceText>,
    /// Where instructions come from, each once.
    pub origins: Vec<Origin>,
    /// The PTX.
    pub ptx: Vec<PtxLine>,
    /// The machine code; none without NVIDIA's tools.
    pub sass: Vec<SassLine>,
    /// The loops.
    pub loops: Vec<LoopLine>,
    /// Where most registers are live; none without NVIDIA's tools.
    pub peak: Option<Peak>,
    /// What is in local memory: spilled registers, and arrays.
    pub local: Vec<Slot>,
}

/// What a listing is made of.
pub(super) struct Parts<'a> {
    /// The directory of the kernel's crate.
    pub(super) crate_dir: &'a Path,
    /// The PTX, whose `.loc` have numbers of places.
    pub(super) ptx: &'a str,
    pub(super) places: &'a Places,
    pub(super) loops: &'a [Loop],
    /// What the tools say, if they are there.
    pub(super) annotated: Option<&'a Annotated>,
}

impl Listing {
    pub(super) fn of(parts: &Parts<'_>) -> Self {
        let mut origins = Origins { crate_dir: parts.crate_dir, found: Vec::new() };
        let (ptx, lines) = read_ptx(parts.ptx, |number| origins.of(parts.places.list(number)));
        let ptx = with_origins_of_uses(ptx);
        let instructions = parts.annotated.map_or(&[][..], |annotated| without_padding(&annotated.instructions));
        let sass: Vec<SassLine> = instructions.iter().map(|instruction| sass_line(instruction, &ptx, &lines)).collect();
        let of_loop = |it: &Loop| LoopLine {
            origin: origins.of(&it.place),
            iterations: it.iterations,
            remarks: it.remarks.clone(),
        };
        let loops = parts.loops.iter().map(of_loop).collect();
        let (peak, local) = (Peak::of(instructions, &sass), Slot::all(instructions, &sass));
        let source = source(parts.crate_dir, &origins.found);
        Self { source, origins: origins.found, ptx, sass, loops, peak, local }
    }

    /// The line of Rust that something with this origin comes from.
    pub fn line(&self, origin: Option<usize>) -> Option<&RustLine> {
        origin.and_then(|origin| self.origins.get(origin)).map(|origin| &origin.line)
    }

    /// The text of a line of Rust.
    pub fn text(&self, line: &RustLine) -> Option<&str> {
        self.source.iter().find(|it| it.at == *line).map(|it| it.text.as_str())
    }
}

/// Without what fills the kernel up behind its last instruction.
fn without_padding(instructions: &[Instruction]) -> &[Instruction] {
    let end = instructions.iter().rposition(|instruction| instruction.text != "NOP").map_or(0, |last| last + 1);
    &instructions[..end]
}
