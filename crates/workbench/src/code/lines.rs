//! The code of a kernel by lines: which line of Rust each instruction of PTX and SASS comes from, and what is live there.
//!
//! ```text
//!  Rust              src/lib.rs:40    sum += x[i] * y[j];           the line of the kernel's crate
//!                      └ inner        core/src/ops/arith.rs:90      what was inlined there
//!  PTX               fma.rn.f32  %f9, %f7, %f8, %f3;                .loc ─▶ Places
//!  SASS              FFMA R4, R2, R3, R4          28 registers      nvdisasm -gp ─▶ the line of PTX
//! ```
//!
//! What is inlined from a library (`core`, `cuda_std`, `blocks`) counts as the kernel's line that called it: the innermost that is in the
//! kernel's crate.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use cuda_builder::inspect::{Instruction, Place};
use serde::Serialize;

use super::classes::{Class, operation};

/// A line of Rust.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RustLine {
    /// The file: as seen from the kernel's crate if it is in that, else with the name of the crate before it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

/// Where instructions come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Origin {
    /// The line of the kernel's crate.
    pub line: RustLine,
    /// Lines of libraries that were inlined there, the innermost first, each with its function.
    pub inner: Vec<(RustLine, String)>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceText {
    /// Which.
    #[serde(flatten)]
    pub at: RustLine,
    /// As it is written.
    pub text: String,
}

/// A line of PTX: an instruction, or a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PtxLine {
    /// As it is written, without the space around it.
    pub text: String,
    /// Where it comes from: an index into [`Listing::origins`](super::Listing::origins).
    pub origin: Option<usize>,
    /// Whether the compiler has moved it, out of a loop for example, and says no line: then the origin is that of its first use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_moved: bool,
}

/// A machine instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SassLine {
    /// Where it is, in bytes from the kernel's first.
    pub address: u32,
    /// The instruction with its guard.
    pub text: String,
    /// The labels that stand before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What it is for.
    pub class: Class,
    /// The PTX that it comes from: an index into [`Listing::ptx`](super::Listing::ptx).
    pub ptx: Option<usize>,
    /// Where it comes from: an index into [`Listing::origins`](super::Listing::origins).
    pub origin: Option<usize>,
    /// The registers that are live at it.
    pub registers: u32,
    /// The uniform registers that are live at it.
    pub uniform_registers: u32,
    /// The predicates that are live at it.
    pub predicates: u32,
}

/// A loop that is still a loop in what the kernel was compiled to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoopLine {
    /// Where it is in Rust, if the compiler says so.
    pub origin: Option<usize>,
    /// How often it goes round, where the compiler knows.
    pub iterations: Option<u64>,
    /// What LLVM's unrolling and vectorisation say of it.
    pub remarks: Vec<String>,
}

/// Two places of one function that are no further apart than this are shown with what is between them.
const BETWEEN: u32 = 6;

/// Origins by index, each once.
pub(super) struct Origins<'a> {
    pub(super) crate_dir: &'a Path,
    pub(super) found: Vec<Origin>,
}

impl Origins<'_> {
    /// The index of a list of lines, the innermost first; none of no line.
    pub(super) fn of(&mut self, list: &[Place]) -> Option<usize> {
        let is_own = |place: &Place| place.file.starts_with(self.crate_dir);
        // A kernel of which nothing is in its crate is made by another crate's macro: then the outermost line counts.
        let own = list.iter().position(is_own).or_else(|| list.len().checked_sub(1))?;
        let line = |place: &Place| RustLine { file: short(&place.file, self.crate_dir), line: place.line };
        let inner = list[..own].iter().map(|place| (line(place), place.function.clone())).collect();
        let origin = Origin { line: line(&list[own]), inner };
        Some(self.found.iter().position(|found| *found == origin).unwrap_or_else(|| {
            self.found.push(origin);
            self.found.len() - 1
        }))
    }
}

/// A file as it is shown: without the directories of this machine.
pub(super) fn short(file: &Path, crate_dir: &Path) -> String {
    if let Ok(own) = file.strip_prefix(crate_dir) {
        return own.display().to_string();
    }
    // `core/src/../../stdarch/crates/core_arch/src/nvptx/mod.rs`: of the standard library, whose parts are in one another's directories.
    let mut parts: Vec<&str> = Vec::new();
    let text = file.display().to_string();
    for part in text.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // `crates/cuda-std/src/shared.rs`: from the directory of the package on.
    let package = parts.iter().rposition(|part| *part == "src").and_then(|src| src.checked_sub(1)).unwrap_or(0);
    parts[package..].join("/")
}

/// For a line of the text of PTX: the last instruction that has begun, and where it comes from.
pub(super) type OfText = (Option<usize>, Option<usize>);

/// The instructions and labels of PTX; for each of its lines, the last of them that has begun, and where it comes from.
pub(super) fn read_ptx(ptx: &str, mut origin_of: impl FnMut(u32) -> Option<usize>) -> (Vec<PtxLine>, Vec<OfText>) {
    let (mut found, mut lines) = (Vec::new(), Vec::new());
    let (mut origin, mut last, mut depth) = (None, None, 0usize);
    for line in ptx.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let was_outside = depth == 0;
        if code.starts_with('{') && code.len() == 1 {
            depth += 1;
        }
        if was_outside && depth > 0 {
            (origin, last) = (None, None);
        }
        if let Some(location) = code.strip_prefix(".loc") {
            // `.loc FILE LINE COLUMN`.
            let number = location.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok());
            origin = number.and_then(&mut origin_of);
        } else if depth > 0 && !code.is_empty() && !code.starts_with('.') && !matches!(code, "{" | "}") {
            last = Some(found.len());
            let text = without_hashes(&code.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
            found.push(PtxLine { text, origin, is_moved: false });
        }
        lines.push((last, origin));
        if code == "}" {
            depth = depth.saturating_sub(1);
        }
    }
    // A label belongs to what comes behind it.
    for index in (0..found.len().saturating_sub(1)).rev() {
        if found[index].text.ends_with(':') {
            found[index].origin = found[index + 1].origin;
        }
    }
    (found, lines)
}

/// Names of Rust without the hashes of their crates, which depend on the directory that these are in: `_RNvCs4xC6Ap7PfL1_3lib4TILE` becomes
/// `_RNvC3lib4TILE`, as rustc writes a crate without one.
fn without_hashes(text: &str) -> String {
    let mut pieces = text.split("Cs");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(piece.len());
        match piece[end..].strip_prefix('_') {
            Some(rest) if text.contains("_R") && rest.starts_with(|c: char| c.is_ascii_digit()) => {
                result += "C";
                result += rest;
            }
            _ => {
                result += "Cs";
                result += piece;
            }
        }
    }
    result
}

/// PTX in which what has no line has that of its first use: the compiler drops the lines of what it moves, and an address that is worked out
/// before a loop is still for the load in it.
pub(super) fn with_origins_of_uses(mut ptx: Vec<PtxLine>) -> Vec<PtxLine> {
    let mut first_use: HashMap<String, usize> = HashMap::new();
    // Twice, because blocks do not stand in the order in which they run.
    for _ in 0..2 {
        for line in ptx.iter_mut().rev() {
            let mut registers = registers(&line.text).into_iter();
            let is_store = ["st.", "red.", "@", "bra"].iter().any(|begin| line.text.starts_with(begin));
            let result = if is_store { None } else { registers.next() };
            if line.origin.is_none() {
                line.origin = result.and_then(|result| first_use.get(result).copied());
                line.is_moved = line.origin.is_some();
            }
            if let Some(origin) = line.origin {
                first_use.extend(registers.map(|register| (register.to_owned(), origin)));
            }
        }
    }
    ptx
}

/// The virtual registers in a line of PTX, in order: `%rd7`, `%p1`.
fn registers(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    text.match_indices('%')
        .filter_map(|(begin, _)| {
            let rest = &text[begin..];
            let end = rest[1..].find(|c| !is_part(c)).map_or(rest.len(), |end| end + 1);
            Some(&rest[..end]).filter(|register| register.len() > 1)
        })
        .collect()
}

pub(super) fn sass_line(instruction: &Instruction, ptx: &[PtxLine], lines: &[OfText]) -> SassLine {
    let opcode = instruction.text.split_ascii_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    let number = instruction.ptx_line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
    let (ptx_line, origin) = number.and_then(|number| lines.get(number)).copied().unwrap_or_default();
    SassLine {
        address: instruction.address,
        text: instruction.text.clone(),
        labels: instruction.labels.clone(),
        class: Class::of(operation(opcode)),
        ptx: ptx_line,
        origin: ptx_line.map_or(origin, |line| ptx[line].origin),
        registers: instruction.live.registers,
        uniform_registers: instruction.live.uniform,
        predicates: instruction.live.predicates,
    }
}

/// The text of the lines of the kernel's crate that there is code of, and of the few between them. Behind them come the lines of libraries that are
/// nobody's of the crate, as those of a function that is called: without text, which is not looked for.
pub(super) fn source(crate_dir: &Path, origins: &[Origin]) -> Vec<SourceText> {
    let mut wanted: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for origin in origins {
        wanted.entry(&origin.line.file).or_default().push(origin.line.line);
    }
    let with_text = |(file, lines)| (file, lines, std::fs::read_to_string(crate_dir.join(file)).ok());
    let mut files: Vec<(&str, Vec<u32>, Option<String>)> = wanted.into_iter().map(with_text).collect();
    files.sort_by_key(|(_, _, text)| text.is_none());
    let mut source = Vec::new();
    for (file, mut lines, text) in files {
        lines.sort_unstable();
        lines.dedup();
        let is_known = text.is_some();
        let text = text.unwrap_or_default();
        let text: Vec<&str> = text.lines().collect();
        let mut next = 0;
        for line in lines {
            let begin = if is_known && line - next <= BETWEEN && next > 0 { next } else { line };
            for line in begin..=line {
                let written = usize::try_from(line - 1).ok().and_then(|index| text.get(index)).unwrap_or(&"");
                let at = RustLine { file: file.to_owned(), line };
                source.push(SourceText { at, text: (*written).to_owned() });
            }
            next = line + 1;
        }
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn files_are_shown_without_the_machines_directories() {
        let short = |file: &str| short(Path::new(file), Path::new("/home/me/mine/kernels"));
        assert_eq!(short("/home/me/mine/kernels/src/lib.rs"), "src/lib.rs");
        assert_eq!(short("/usr/lib/rustlib/src/rust/library/core/src/ops/arith.rs"), "core/src/ops/arith.rs");
        let core_arch = "/usr/lib/rustlib/src/rust/library/core/src/../../stdarch/crates/core_arch/src/nvptx/mod.rs";
        assert_eq!(short(core_arch), "core_arch/src/nvptx/mod.rs");
        assert_eq!(short("/opt/tilewright/crates/cuda-std/src/shared.rs"), "cuda-std/src/shared.rs");
        assert_eq!(
            short("/home/me/.cargo/registry/src/index/libm-0.2.1/src/math/exp.rs"),
            "libm-0.2.1/src/math/exp.rs"
        );
    }

    #[test]
    fn a_list_of_lines_belongs_to_the_innermost_of_the_crate() {
        let place = |file: &str, line| Place { file: PathBuf::from(file), line, function: "f".to_owned() };
        let mut origins = Origins { crate_dir: Path::new("/k"), found: Vec::new() };
        let list = [place("/x/library/core/src/a.rs", 9), place("/k/src/b.rs", 4), place("/k/src/lib.rs", 2)];
        assert_eq!((origins.of(&list), origins.of(&list), origins.of(&[])), (Some(0), Some(0), None));
        assert_eq!(origins.of(&list[..1]), Some(1), "nothing of the crate");
        let shown = |origin: &Origin| format!("{}:{} {}", origin.line.file, origin.line.line, origin.inner.len());
        assert_eq!(origins.found.iter().map(shown).collect::<Vec<_>>(), ["src/b.rs:4 1", "core/src/a.rs:9 0"]);
    }

    #[test]
    fn the_crates_own_lines_come_before_those_of_libraries() {
        let crate_dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(crate_dir.path().join("src")).unwrap();
        std::fs::write(crate_dir.path().join("src/lib.rs"), "one\ntwo\nthree\n").unwrap();
        let origin = |(file, line): (&str, u32)| {
            let line = RustLine { file: file.to_owned(), line };
            Origin { line, inner: Vec::new() }
        };
        let lines = [("cuda-std/src/trap.rs", 7), ("src/lib.rs", 3), ("cuda-std/src/trap.rs", 5), ("src/lib.rs", 1)];
        let shown = |it: SourceText| format!("{}:{} {}", it.at.file, it.at.line, it.text);
        let found: Vec<_> = source(crate_dir.path(), &lines.map(origin)).into_iter().map(shown).collect();
        let own = ["src/lib.rs:1 one", "src/lib.rs:2 two", "src/lib.rs:3 three"];
        assert_eq!(found[..3], own, "with those between");
        assert_eq!(found[3..], ["cuda-std/src/trap.rs:5 ", "cuda-std/src/trap.rs:7 "], "without those between");
    }

    #[test]
    fn what_was_moved_counts_for_its_first_use() {
        let line = |(text, origin): (&str, Option<usize>)| PtxLine { text: text.to_owned(), origin, is_moved: false };
        let ptx = [
            ("mul.wide.u32 %rd2, %r1, 4;", None),
            ("add.s64 %rd3, %rd1, %rd2;", None),
            ("mov.u32 %r9, %tid.x;", None),
            ("ld.global.b32 %r5, [%rd3];", Some(7)),
            ("st.global.b32 [%rd3], %r5;", Some(8)),
            ("ret;", None),
        ];
        let found = with_origins_of_uses(ptx.map(line).to_vec());
        let shown: Vec<_> = found.iter().map(|line| (line.origin, line.is_moved)).collect();
        let (used, unused) = ((Some(7), true), (None, false));
        assert_eq!(shown, [used, used, unused, (Some(7), false), (Some(8), false), unused]);
        assert_eq!(registers("mad.lo.s32 %r23, %r20, %tid.x, %r22;"), ["%r23", "%r20", "%tid.x", "%r22"]);
    }

    #[test]
    fn names_do_not_tell_where_a_crate_is() {
        let shown =
            without_hashes("mov.b64 %rd26, _RNvNvNtCs4xC6Ap7PfL1_11gpu_kernels4gemm4TILENtCskpy3v48k4rj_4core;");
        assert_eq!(shown, "mov.b64 %rd26, _RNvNvNtC11gpu_kernels4gemm4TILENtC4core;");
        assert_eq!(without_hashes("add %Cs, Cs1_2;"), "add %Cs, Cs1_2;");
    }

    #[test]
    fn every_line_of_ptx_has_its_instruction_and_origin() {
        let ptx = "\
.version 8.0
.visible .entry k(
\t.param .u64 k_param_0
)
{
\t.reg .b32 \t%r<3>;
\t.loc\t1 7 0 // x
\tmov.u32 \t%r1, %tid.x;
\t// begin inline asm
\t{
\tbar.sync 0;
\t}
\t// end inline asm
\t.loc\t1 8 0
$L__BB0_2:
\tret;
}
";
        let (found, lines) = read_ptx(ptx, |number| usize::try_from(number).ok());
        let shown: Vec<_> = found.iter().map(|it| format!("{} {:?}", it.text, it.origin)).collect();
        assert_eq!(
            shown,
            ["mov.u32 %r1, %tid.x; Some(7)", "bar.sync 0; Some(7)", "$L__BB0_2: Some(8)", "ret; Some(8)"]
        );
        assert_eq!(lines.len(), ptx.lines().count());
        assert_eq!((lines[5], lines[7], lines[15]), ((None, None), (Some(0), Some(7)), (Some(3), Some(8))));
    }
}
