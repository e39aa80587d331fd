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
mod place;
mod source;

use std::path::Path;

use rustc_demangle::demangle;

use crate::pass::global_names;
pub(crate) use diagnostics::{math_functions, with_hints};
pub(crate) use failure::explained;
use lines::Lines;
pub(crate) use log::{LlvmLog, is_crash};
use source::with_expression;

/// Something that code for a GPU cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// What it is, and what to do instead.
    pub what: String,
    /// The kernel, or the function that is called by one.
    pub function: String,
    /// The file, line and column in Rust, and the expression there: ``src/lib.rs:14:32 (`x.sin()`)``. Not all code has one.
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
            let place = lines.of_instruction(line).map(|place| with_expression(place, crate_dir));
            let one = Unsupported { what, function: readable(function), place };
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
    if has("fp128") {
        return Some("there is no arithmetic with `f128`".to_owned());
    }
    is_remainder(line).then(|| {
        let (kind, instead) = match has("double") {
            false => ("f32", "write `cuda_std::math::fmod(x, y)`, which is exact and has the same bits on the CPU"),
            true => ("f64", "`cuda_std::math` has `fmod` for f32, and none for f64: write `x - y * math::trunc_f64(x / y)` if that is near enough"),
        };
        format!(
            "`%` of {kind} is exact on the CPU, and on a GPU LLVM makes a division of it, which is rounded, so that it has other bits: {instead}"
        )
    })
}

/// Whether an instruction is the remainder of floating-point numbers.
fn is_remainder(line: &str) -> bool {
    line.split_once(" = ").is_some_and(|(_, operation)| operation.starts_with("frem "))
}

/// Whether a module has remainders of floating-point numbers: the one operation that LLVM has for a GPU, and not with the bits of the CPU.
pub(crate) fn has_remainders(ir: &str) -> bool {
    ir.lines().any(is_remainder)
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

/// LLVM IR whose instructions come from lines of the kernel crate, wherever these have been inlined: what a kernel calls of other crates
/// counts as the line that calls it.
pub(crate) fn with_lines_of_the_crate(ir: &str, crate_dir: &Path) -> String {
    Lines::of_the_crate(ir, crate_dir)
}

fn readable(name: &str) -> String {
    format!("{:#}", demangle(name))
}
