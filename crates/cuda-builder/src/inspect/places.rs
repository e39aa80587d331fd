//! Which lines of Rust instructions come from, with all that was inlined on the way.
//!
//! ```text
//!  %7 = fadd float %5, %6, !dbg !31
//!  !31 = !DILocation(line: 9, column: 5, scope: !20, inlinedAt: !32)       core/src/ops/arith.rs:9       in add
//!  !32 = distinct !DILocation(line: 14, column: 32, scope: !8)             src/lib.rs:14                 in the kernel
//! ```
//!
//! PTX has room for a file and a line alone (`.loc 1 9 5`), and `ptxas` passes them on. So for those who want to know all, the locations of
//! the IR are numbered, each list of lines once, and in the PTX the number stands in place of the line: `.loc 1 3 0` means the third list.
//! The IR that is kept is the one before that, so the numbers can be worked out again: [`Places::of`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::explain::metadata::{reference, text, value};

/// How deep scopes and calls may be nested.
const DEEPEST: usize = 200;

/// A line of Rust.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the compiler names it: with its whole path.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u32,
    /// The function that it is in, without its path.
    pub function: String,
}

/// The lines that the instructions of a module come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Each list of lines once; the first has the number 1.
    lists: Vec<Vec<Place>>,
    /// The list of each location and its column, by the number of its metadata.
    of_location: HashMap<u32, (u32, u32)>,
}

impl Places {
    /// Reads the locations of a module of LLVM IR, such as the file that [`PtxModule::llvm_ir`](crate::PtxModule::llvm_ir) names.
    pub fn of(ir: &str) -> Self {
        let nodes = nodes(ir);
        let mut files = HashMap::new();
        let mut places = Self::default();
        let mut numbers: HashMap<Vec<Place>, u32> = HashMap::new();
        for line in ir.lines().filter(|line| line.starts_with('!')) {
            let Some((number, node)) = location(line) else { continue };
            let list = list(node, &nodes, &mut files);
            let next = u32::try_from(places.lists.len() + 1).unwrap_or(u32::MAX);
            let of_list = *numbers.entry(list).or_insert_with_key(|list| {
                places.lists.push(list.clone());
                next
            });
            let column = value(node, "column: ").parse().unwrap_or(0);
            places.of_location.insert(number, (of_list, column));
        }
        places
    }

    /// The lines with this number, the innermost first: the last is in the function that was not inlined. None for a number that is none.
    pub fn list(&self, number: u32) -> &[Place] {
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        index.and_then(|index| self.lists.get(index)).map_or(&[], Vec::as_slice)
    }

    /// The number of the lines that an instruction of the IR comes from, if it says so: `…, !dbg !31`.
    pub fn of_instruction(&self, line: &str) -> Option<u32> {
        self.of_location.get(&reference(line, "!dbg ")?).map(|(list, _)| *list)
    }

    /// The innermost line that an instruction of the IR comes from, and the column.
    pub(super) fn innermost(&self, line: &str) -> Option<(&Place, u32)> {
        let (list, column) = self.of_location.get(&reference(line, "!dbg ")?)?;
        Some((self.list(*list).first()?, *column))
    }
}

/// A module whose locations have the numbers of [`Places`] for lines, and nothing else that debuggers read, for PTX.
pub(crate) fn numbered(ir: &str) -> String {
    let places = Places::of(ir);
    let nodes = nodes(ir);
    let mut result = String::with_capacity(ir.len());
    for line in ir.lines() {
        if line.contains("!DICompileUnit(") {
            result += &line.replace("emissionKind: LineTablesOnly", "emissionKind: DebugDirectivesOnly");
        } else if let Some((number, node)) = location(line)
            && let Some((of_list, _)) = places.of_location.get(&number)
            && let Some(scope) = outermost(node, &nodes).and_then(|node| reference(node, "scope: "))
        {
            result += &format!("!{number} = !DILocation(line: {of_list}, scope: !{scope})");
        } else {
            result += line;
        }
        result.push('\n');
    }
    result
}

/// The metadata of a module, by number.
fn nodes(ir: &str) -> HashMap<u32, &str> {
    let node = |line| {
        let (number, node) = split(line)?;
        Some((number, node))
    };
    ir.lines().filter_map(node).collect()
}

/// The number and the text of a line of metadata.
fn split(line: &str) -> Option<(u32, &str)> {
    let (number, node) = line.strip_prefix('!')?.split_once(" = ")?;
    Some((number.parse().ok()?, node))
}

/// The number and the text of a location.
fn location(line: &str) -> Option<(u32, &str)> {
    split(line).filter(|(_, node)| node.trim_start_matches("distinct ").starts_with("!DILocation("))
}

/// The location of the call in the function that was not inlined.
fn outermost<'a>(mut node: &'a str, nodes: &HashMap<u32, &'a str>) -> Option<&'a str> {
    for _ in 0..DEEPEST {
        match reference(node, "inlinedAt: ") {
            Some(outer) => node = nodes.get(&outer)?,
            None => return Some(node),
        }
    }
    None
}

/// The lines of a location, the innermost first. What the compiler made of no line (0) is left out.
fn list<'a>(
    mut node: &'a str,
    nodes: &HashMap<u32, &'a str>,
    files: &mut HashMap<u32, (PathBuf, String)>,
) -> Vec<Place> {
    let mut list = Vec::new();
    for _ in 0..DEEPEST {
        let line = value(node, "line: ").parse().unwrap_or(0);
        if line > 0
            && let Some(scope) = reference(node, "scope: ")
        {
            let (file, function) = files.entry(scope).or_insert_with(|| scope_of(scope, nodes)).clone();
            list.push(Place { file, line, function });
        }
        match reference(node, "inlinedAt: ").and_then(|outer| nodes.get(&outer)) {
            Some(outer) => node = outer,
            None => break,
        }
    }
    list
}

/// The file and the function of a scope.
fn scope_of(mut scope: u32, nodes: &HashMap<u32, &str>) -> (PathBuf, String) {
    let mut found = None;
    for _ in 0..DEEPEST {
        let Some(node) = nodes.get(&scope) else { break };
        // A block may be of another file than its function: the innermost counts.
        found = found.or_else(|| file(node, nodes));
        if node.contains("!DISubprogram(") {
            return (found.unwrap_or_default(), text(node, "name: ").unwrap_or_default().to_owned());
        }
        let Some(outer) = reference(node, "scope: ") else { break };
        scope = outer;
    }
    (found.unwrap_or_default(), String::new())
}

/// The file that a scope names.
fn file(node: &str, nodes: &HashMap<u32, &str>) -> Option<PathBuf> {
    let node = nodes.get(&reference(node, "file: ")?)?;
    Some(Path::new(text(node, "directory: ")?).join(text(node, "filename: ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"define void @k() !dbg !8 {
  %7 = fadd float %5, %6, !dbg !31
  %8 = fadd float %7, %6, !dbg !35
  ret void, !dbg !32
}
!2 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !3, emissionKind: LineTablesOnly, nameTableKind: None)
!3 = !DIFile(filename: "src/lib.rs", directory: "/home/me/kernels", checksumkind: CSK_MD5)
!4 = !DIFile(filename: "/usr/lib/rustlib/src/rust/library/core/src/ops/arith.rs", directory: "")
!8 = distinct !DISubprogram(name: "k", scope: !9, file: !3, line: 12)
!10 = distinct !DILexicalBlock(scope: !8, file: !3, line: 13, column: 9)
!20 = distinct !DISubprogram(name: "add", scope: !9, file: !4, line: 9)
!31 = !DILocation(line: 9, column: 5, scope: !20, inlinedAt: !32)
!32 = distinct !DILocation(line: 14, column: 32, scope: !10)
!35 = !DILocation(line: 9, column: 7, scope: !20, inlinedAt: !36)
!36 = distinct !DILocation(line: 14, column: 40, scope: !8)
!37 = !DILocation(line: 0, scope: !8)
!38 = distinct !DILocation(line: 4, column: 7, scope: !20, inlinedAt: !38)
"#;

    #[test]
    fn a_place_has_all_lines_that_it_was_inlined_in() {
        let places = Places::of(IR);
        let shown = |line: &str| {
            let list = places.list(places.of_instruction(line).unwrap());
            list.iter().map(|it| format!("{}:{} {}", it.file.display(), it.line, it.function)).collect::<Vec<_>>()
        };
        let add = "/usr/lib/rustlib/src/rust/library/core/src/ops/arith.rs:9 add";
        assert_eq!(shown("  %7 = fadd float %5, %6, !dbg !31"), [add, "/home/me/kernels/src/lib.rs:14 k"]);
        assert_eq!(shown("  ret void, !dbg !32"), ["/home/me/kernels/src/lib.rs:14 k"]);
        assert_eq!(shown("  ret void, !dbg !37"), [""; 0], "of no line");
        assert_eq!(places.of_instruction("  ret void"), None);
        let number = |line: &str| places.of_instruction(line).unwrap();
        assert_eq!(number(", !dbg !31"), number(", !dbg !35"), "columns make no difference");
        assert_eq!(shown(", !dbg !38").len(), DEEPEST, "a circle ends");
        assert_eq!((places.list(0), places.list(99)), (&[][..], &[][..]));
    }

    #[test]
    fn numbers_stand_in_place_of_lines() {
        let numbered = numbered(IR);
        assert_eq!(numbered.lines().count(), IR.lines().count());
        let places = Places::of(IR);
        for (before, after) in IR.lines().zip(numbered.lines()) {
            match location(before) {
                // The circle has no outermost line.
                Some((38, _)) => assert_eq!(before, after),
                Some((number, _)) => {
                    let (of_list, _) = places.of_location[&number];
                    let scope = if [31, 32].contains(&number) { 10 } else { 8 };
                    assert_eq!(after, format!("!{number} = !DILocation(line: {of_list}, scope: !{scope})"));
                }
                None => assert_eq!(after, before.replace("LineTablesOnly", "DebugDirectivesOnly")),
            }
        }
    }
}
