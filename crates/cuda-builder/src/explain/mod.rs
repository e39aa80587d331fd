//! What is behind a failure of LLVM or of a check, in words, with the line of Rust that it comes from.
//!
//! LLVM's own messages name neither, and stop at the first thing that it cannot do. So the crate is compiled once more with line
//! numbers, which the code that programs run does without, and the LLVM IR is searched for everything that a GPU does not have:
//!
//! ```text
//! %7 = call float @llvm.sin.f32(float %6), !dbg !31         `sin` of f32, in kernel `k`, src/lib.rs:14:32
//! %9 = sitofp i128 %8 to float, !dbg !40                    from i128 to f32, in kernel `k`, src/lib.rs:20:9
//! ```

mod diagnostics;
mod failure;
mod lines;
mod log;
pub(crate) mod metadata;

use std::path::Path;

use rustc_demangle::demangle;

use crate::pass::global_names;
pub(crate) use diagnostics::{math_functions, with_hints};
pub(crate) use failure::explained;
use lines::Lines;
pub(crate) use log::{LlvmLog, is_crash};

/// Something that code for a GPU cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// What it is, and what to do instead.
    pub what: String,
    /// The kernel, or the function that is called by one.
    pub function: String,
    /// The file, line and column in Rust: `src/lib.rs:14:32`. Not all code has one.
    pub place: Option<String>,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in `{}`", self.function)?;
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Functions of numbers that LLVM has intrinsics for, and code for our target has not.
const NO_MATH: [&str; 19] = [
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "exp2", "exp10", "log",
    "log2", "log10", "pow", "powi", "sincos",
];

/// The one of them that there is: for f32.
const MATH: &str = "llvm.exp2.f32";

/// What no code for a GPU can be made of in a module of LLVM IR, each once.
pub(crate) fn unsupported(ir: &str, crate_dir: &Path, math: Option<&[String]>) -> Vec<Unsupported> {
    let lines = Lines::of(ir, crate_dir);
    let mut found: Vec<Unsupported> = Vec::new();
    each_instruction(ir, |function, line| {
        if let Some(what) = what_is_missing(line, math) {
            let one = Unsupported { what, function: readable(function), place: lines.of_instruction(line) };
            if !found.contains(&one) {
                found.push(one);
            }
        }
    });
    found
}

/// Calls `f` with each instruction of each function and the function's name.
fn each_instruction<'a>(ir: &'a str, mut f: impl FnMut(&'a str, &'a str)) {
    let mut function = "";
    for line in ir.lines() {
        if line.starts_with("define ") {
            function = global_names(line).next().map_or("", |(_, name)| name);
        } else if line.starts_with("  ") {
            f(function, line);
        }
    }
}

/// What an instruction wants that there is not, and what to do.
fn what_is_missing(line: &str, math: Option<&[String]>) -> Option<String> {
    if let Some((_, intrinsic)) = global_names(line).find(|(_, name)| name.starts_with("llvm.")) {
        let (name, kind) = intrinsic["llvm.".len()..].split_once('.')?;
        if NO_MATH.contains(&name) && intrinsic != MATH {
            let kind = kind.split('.').next().unwrap_or(kind);
            return Some(format!("LLVM has no `{name}` of {kind} for a GPU: {}", instead(name, kind, math)));
        }
    }
    let has = |word: &str| line.split([' ', ',', '(', ')']).any(|found| found == word);
    let converts = ["uitofp", "sitofp", "fptoui", "fptosi"].iter().any(|opcode| has(opcode));
    let saturates = line.contains("@llvm.fptoui.sat.i128") || line.contains("@llvm.fptosi.sat.i128");
    if has("i128") && (converts || saturates) {
        return Some(
            "there is no conversion between a number of 128 bits and a floating-point number: convert by way of 64 bits".to_owned(),
        );
    }
    has("fp128").then(|| "there is no arithmetic with `f128`".to_owned())
}

/// What to write for a function of numbers of a kind.
fn instead(name: &str, kind: &str, math: Option<&[String]>) -> String {
    match math.map(|math| math.iter().any(|known| known == name)) {
        None => "`cuda_std::math` has what kernels can use".to_owned(),
        Some(true) if kind == "f32" => format!("write `cuda_std::math::{name}`"),
        Some(true) => format!("`cuda_std::math::{name}` is for f32, and there is none for {kind}"),
        Some(false) => format!("`cuda_std::math` has what kernels can use, and no `{name}`"),
    }
}

/// Where in Rust a function first accesses memory through a pointer to no certain memory.
pub(crate) fn place_of_generic(ir: &str, crate_dir: &Path, function: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    // What is passed in memory itself is read where it is, although its pointer does not say so.
    let mut arguments: Vec<&str> = Vec::new();
    for line in body_of(ir, function) {
        if line.starts_with("define ") {
            arguments = line.split(", ").filter(|part| part.contains("byval(")).filter_map(last_value).collect();
            continue;
        }
        let pointers = pointer_operands(line);
        let is_argument = pointers.iter().any(|pointer| arguments.contains(pointer));
        if let Some((result, _)) = line.trim_start().split_once(" = getelementptr ").filter(|_| is_argument) {
            arguments.push(result);
        }
        let accesses =
            ["load ", "store ", "atomicrmw ", "cmpxchg ", "@llvm.mem"].iter().any(|word| line.contains(word));
        if accesses && !pointers.is_empty() && !is_argument {
            return lines.of_instruction(line);
        }
    }
    None
}

/// Where in Rust a function indexes an array in local memory by what is not known at compile time, or else accesses one.
pub(crate) fn place_of_local(ir: &str, crate_dir: &Path, function: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    let mut accesses = body_of(ir, function).filter(|line| line.contains("ptr addrspace(5) %")).peekable();
    let first = accesses.peek().copied();
    // The last operand is the index: `getelementptr float, ptr addrspace(5) %4, i64 %22, !dbg !7`.
    let indexed = accesses.find(|line| {
        let operands = line.split(", !dbg").next().unwrap_or(line);
        line.contains(" = getelementptr ")
            && operands.rsplit(", ").next().is_some_and(|index| index.contains('%') && !index.contains("ptr"))
    });
    indexed.and_then(|line| lines.of_instruction(line)).or_else(|| lines.of_instruction(first?))
}

/// LLVM IR whose instructions come from lines of the kernel crate, wherever these have been inlined: what a kernel calls of other crates
/// counts as the line that calls it.
pub(crate) fn with_lines_of_the_crate(ir: &str, crate_dir: &Path) -> String {
    Lines::of_the_crate(ir, crate_dir)
}

/// A place, `src/lib.rs:11:24`, with the expression that begins there, as it is written: up to where what it is part of goes on, and no
/// further than its line.
pub(crate) fn with_expression(place: String, crate_dir: &Path) -> String {
    let expression = || {
        let mut parts = place.rsplitn(3, ':');
        let (column, line): (usize, usize) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let text = std::fs::read_to_string(crate_dir.join(parts.next()?)).ok()?;
        let rest = text.lines().nth(line.checked_sub(1)?)?.get(column.checked_sub(1)?..)?;
        Some(expression(rest).to_owned()).filter(|expression| !expression.is_empty())
    };
    match expression() {
        Some(expression) => format!("{place} (`{expression}`)"),
        None => place,
    }
}

/// The expression that a line begins with.
fn expression(line: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in line.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return line[..at].trim_end(),
            ')' | ']' | '}' => depth -= 1,
            ';' | ',' | ' ' if depth == 0 => return line[..at].trim_end(),
            _ => {}
        }
    }
    line.trim_end()
}

/// Who calls a function first, and where in Rust.
pub(crate) fn caller_of(ir: &str, crate_dir: &Path, callee: &str) -> Option<(String, Option<String>)> {
    let lines = Lines::of(ir, crate_dir);
    let mut found = None;
    each_instruction(ir, |function, line| {
        let calls = line.contains("call ") && global_names(line).any(|(_, name)| name == callee);
        if calls && function != callee && found.is_none() {
            found = Some((readable(function), lines.of_instruction(line)));
        }
    });
    found
}

/// The lines of a function, the first included.
fn body_of<'a>(ir: &'a str, function: &'a str) -> impl Iterator<Item = &'a str> {
    let begins = move |line: &&str| {
        let name = line.strip_prefix("define ").and_then(|line| global_names(line).next()).map(|(_, name)| name);
        name.is_some_and(|name| name == function || readable(name) == function)
    };
    ir.lines().skip_while(move |line| !begins(line)).take_while(|line| *line != "}")
}

/// The pointers that an instruction reads through, writes through or counts from, if they are to no certain memory.
fn pointer_operands(line: &str) -> Vec<&str> {
    let one = |(at, _): (usize, &'_ str)| -> Option<&str> {
        // Before the value there may be attributes: `ptr nonnull align 4 %1`. Memory is certain in `ptr addrspace(1) %1`.
        let operand = line[at..].split([',', ')', '(']).next()?;
        operand.split(' ').next_back().filter(|word| word.starts_with('%'))
    };
    let pointers: Vec<&str> = line.match_indices("ptr ").filter_map(one).collect();
    match line.trim_start() {
        // What is stored may be a pointer itself.
        store if store.starts_with("store ") => pointers.last().copied().into_iter().collect(),
        other if other.contains(" = getelementptr ") => pointers.first().copied().into_iter().collect(),
        _ => pointers,
    }
}

fn last_value(parameter: &str) -> Option<&str> {
    parameter.split([' ', ')']).rfind(|word| word.starts_with('%'))
}

fn readable(name: &str) -> String {
    format!("{:#}", demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_ends_where_its_brackets_do() {
        for (line, found) in [
            ("w[b as usize]);", "w[b as usize]"),
            ("values[f(i, 3)] + 1.0;", "values[f(i, 3)]"),
            ("x.get([i, j]), 7", "x.get([i, j])"),
            ("values[", "values["),
            (")", ""),
        ] {
            assert_eq!(expression(line), found);
        }
        assert_eq!(with_expression("src/none.rs:1:1".to_owned(), Path::new("/nowhere")), "src/none.rs:1:1");
    }
}
