//! Lines of Rust for instructions of LLVM IR.
//!
//! ```text
//! %7 = call float @llvm.sin.f32(float %6), !dbg !31
//! !31 = !DILocation(line: 9, column: 5, scope: !20, inlinedAt: !32)        in core, or in cuda_std
//! !32 = distinct !DILocation(line: 14, column: 32, scope: !8)              in the kernel: this one
//! !8 = distinct !DISubprogram(name: "k", scope: !9, file: !3, …)
//! !3 = !DIFile(filename: "src/lib.rs", directory: "/home/me/kernels")
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::metadata::{reference, text, value};

/// The metadata of a module.
pub(super) struct Lines<'a> {
    nodes: HashMap<u32, &'a str>,
    crate_dir: &'a Path,
}

/// How deep calls may be inlined in each other.
const DEEPEST: usize = 200;

impl<'a> Lines<'a> {
    pub(super) fn of(ir: &'a str, crate_dir: &'a Path) -> Self {
        let node = |line: &'a str| {
            let (number, node) = line.strip_prefix('!')?.split_once(" = ")?;
            Some((number.parse().ok()?, node))
        };
        Self { nodes: ir.lines().filter_map(node).collect(), crate_dir }
    }

    /// The file, line and column of an instruction: the innermost that is in the kernel crate, or else in no library that comes
    /// with the compiler.
    pub(super) fn of_instruction(&self, line: &str) -> Option<String> {
        let mut location = reference(line, "!dbg ")?;
        let mut other = None;
        for _ in 0..DEEPEST {
            let node = self.nodes.get(&location)?;
            // Of what several lines have become one instruction, there is no line.
            let file = self.file(reference(node, "scope: ")?).filter(|_| value(node, "line: ") != "0");
            if let Some(file) = file {
                let place =
                    |file: &Path| format!("{}:{}:{}", file.display(), value(node, "line: "), value(node, "column: "));
                if let Ok(file) = file.strip_prefix(self.crate_dir) {
                    return Some(place(file));
                }
                if !is_library(&file) && other.is_none() {
                    other = Some(place(&file));
                }
            }
            match reference(node, "inlinedAt: ") {
                Some(outer) => location = outer,
                None => break,
            }
        }
        other
    }

    /// The file and line of a function, of which this is the first line, if it is in the kernel crate, or else in no library.
    pub(super) fn of_function(&self, line: &str) -> Option<String> {
        let node = self.nodes.get(&reference(line, "!dbg ")?)?;
        let file = self.file(reference(line, "!dbg ")?)?;
        let file = file.strip_prefix(self.crate_dir).unwrap_or(&file);
        (!is_library(file)).then(|| format!("{}:{}", file.display(), value(node, "line: ")))
    }

    /// The module with its locations, and nothing else that debuggers read, for PTX; and with each location replaced by the innermost one, of those that it is inlined in, that is in the kernel crate. What has
    /// none stays as it is.
    pub(super) fn of_the_crate(ir: &'a str, crate_dir: &'a Path) -> String {
        let lines = Self::of(ir, crate_dir);
        let mut result = String::with_capacity(ir.len());
        for line in ir.lines() {
            if line.contains("!DICompileUnit(") {
                result += &line.replace("emissionKind: LineTablesOnly", "emissionKind: DebugDirectivesOnly");
                result.push('\n');
                continue;
            }
            let own = line
                .strip_prefix('!')
                .and_then(|line| line.split_once(" = "))
                .filter(|(_, node)| node.trim_start_matches("distinct ").starts_with("!DILocation("));
            match own.and_then(|(number, node)| Some((number, lines.innermost_of_the_crate(node)?))) {
                Some((number, node)) => result += &format!("!{number} = {}", node.trim_start_matches("distinct ")),
                None => result += line,
            }
            result.push('\n');
        }
        result
    }

    fn innermost_of_the_crate(&self, mut node: &'a str) -> Option<&'a str> {
        for _ in 0..DEEPEST {
            if self.file(reference(node, "scope: ")?).is_some_and(|file| file.starts_with(self.crate_dir)) {
                return Some(node);
            }
            node = self.nodes.get(&reference(node, "inlinedAt: ")?)?;
        }
        None
    }

    /// The file that a scope is in.
    fn file(&self, mut scope: u32) -> Option<PathBuf> {
        for _ in 0..DEEPEST {
            let node = self.nodes.get(&scope)?;
            if let Some(file) = reference(node, "file: ") {
                let node = self.nodes.get(&file)?;
                return Some(Path::new(text(node, "directory: ")?).join(text(node, "filename: ")?));
            }
            scope = reference(node, "scope: ")?;
        }
        None
    }
}

/// Whether a file is of a library that comes with the compiler, or of the language's.
fn is_library(file: &Path) -> bool {
    ["/rustlib/src/rust/", "/rustc/", "/cuda-std/"].iter().any(|part| file.to_string_lossy().contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"
!2 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !3, emissionKind: LineTablesOnly, nameTableKind: None)
!3 = !DIFile(filename: "src/lib.rs", directory: "/home/me/kernels", checksumkind: CSK_MD5)
!4 = !DIFile(filename: "/usr/lib/rustlib/src/rust/library/core/src/num/f32.rs", directory: "")
!5 = !DIFile(filename: "lower/src/lib.rs", directory: "/home/me")
!8 = distinct !DISubprogram(name: "k", scope: !9, file: !3, line: 12)
!10 = distinct !DILexicalBlock(scope: !8, file: !3, line: 13, column: 9)
!20 = distinct !DISubprogram(name: "sin", scope: !9, file: !4, line: 9)
!21 = distinct !DISubprogram(name: "wave", scope: !9, file: !5, line: 9)
!31 = !DILocation(line: 9, column: 5, scope: !20, inlinedAt: !32)
!32 = distinct !DILocation(line: 14, column: 32, scope: !10)
!33 = !DILocation(line: 9, column: 5, scope: !20, inlinedAt: !34)
!34 = distinct !DILocation(line: 4, column: 7, scope: !21)
!35 = distinct !DILocation(line: 4, column: 7, scope: !21, inlinedAt: !35)
"#;

    #[test]
    fn locations_become_those_of_the_crate() {
        let moved = Lines::of_the_crate(IR, Path::new("/home/me/kernels"));
        for (before, after) in IR.lines().zip(moved.lines()) {
            let expected = match before.split(" = ").next() {
                Some("!31") => "!31 = !DILocation(line: 14, column: 32, scope: !10)",
                Some("!32") => "!32 = !DILocation(line: 14, column: 32, scope: !10)",
                Some("!2") => &before.replace("LineTablesOnly", "DebugDirectivesOnly"),
                _ => before,
            };
            assert_eq!(after, expected);
        }
        assert_eq!(moved.lines().count(), IR.lines().count());
    }

    #[test]
    fn finds_the_line_of_the_crate() {
        let lines = Lines::of(IR, Path::new("/home/me/kernels"));
        let of = |line: &str| lines.of_instruction(line);
        assert_eq!(of("  %7 = call float @llvm.sin.f32(float %6), !dbg !31").as_deref(), Some("src/lib.rs:14:32"));
        assert_eq!(of("  %7 = fadd float %6, %6, !dbg !32, !noundef !1").as_deref(), Some("src/lib.rs:14:32"));
        assert_eq!(of("  ret void, !dbg !33").as_deref(), Some("/home/me/lower/src/lib.rs:4:7"), "of a dependency");
        assert_eq!(of("  ret void"), None);
        assert_eq!(of("  ret void, !dbg !99"), None);
        assert!(of("  ret void, !dbg !35").is_some(), "a circle ends");
    }
}
