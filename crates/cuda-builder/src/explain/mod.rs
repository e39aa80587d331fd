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
    let is_f64 = has("double");
    if is_remainder(line) {
        let (kind, instead) = match is_f64 {
            false => ("f32", "write `cuda_std::math::fmod(x, y)`, which is exact and has the same bits on the CPU"),
            true => (
                "f64",
                "`cuda_std::math` has `fmod` for f32, and none for f64: write `x - y * math::trunc_f64(x / y)` if that is near enough",
            ),
        };
        return Some(format!(
            "`%` of {kind} is exact on the CPU, and on a GPU LLVM makes a division of it, which is rounded, so that it has other bits: {instead}"
        ));
    }
    which_zero(line).map(|name| {
        let (kind, function) = if is_f64 { ("f64", format!("{name}_f64")) } else { ("f32", name.to_owned()) };
        format!(
            "`{name}` of {kind} leaves open which zero it is of +0 and −0, and a GPU and a CPU choose differently: write \
             `cuda_std::math::{function}(x, y)`, which has the same bits on both"
        )
    })
}

/// Whether an instruction is the remainder of floating-point numbers.
fn is_remainder(line: &str) -> bool {
    line.split_once(" = ").is_some_and(|(_, operation)| operation.starts_with("frem "))
}

/// The method, `max` or `min`, if an instruction is one of Rust's that leaves open which zero it is of +0 and −0. Those of `cuda_std::math`
/// are no such instructions. Where one of the two numbers is a constant and no zero, there is nothing to choose: the result is a zero only if
/// the other one is that zero.
fn which_zero(line: &str) -> Option<&'static str> {
    const INTRINSICS: [(&str, &str); 4] = [
        ("@llvm.maxnum.", "max"),
        ("@llvm.minnum.", "min"),
        ("@llvm.maximumnum.", "max"),
        ("@llvm.minimumnum.", "min"),
    ];
    let (_, call) = line.split_once(" = ")?;
    let (at, name) = INTRINSICS.into_iter().find_map(|(intrinsic, name)| Some((call.find(intrinsic)?, name)))?;
    let arguments = &call[at..];
    let (_, arguments) = arguments.split_once('(')?;
    let (arguments, _) = arguments.rsplit_once(')')?;
    // A register, or what is made of one; vectors of several numbers, any of which may be a zero.
    let open = ["%", "zeroinitializer", "poison", "undef", " 0.000000e+00", "-0.000000e+00"];
    let is_open = |argument: &str| open.iter().any(|word| argument.contains(word));
    arguments_of(arguments).all(is_open).then_some(name)
}

/// The arguments of a call, in which commas stand between brackets, too.
fn arguments_of(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    text.split(move |c| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Whether a module has operations that LLVM has for a GPU, and not with the bits of the CPU: remainders of floating-point numbers, and minima
/// and maxima that leave the zero open.
pub(crate) fn has_other_bits(ir: &str) -> bool {
    ir.lines().any(|line| is_remainder(line) || which_zero(line).is_some())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leaves_a_zero_open_is_found() {
        let call = |intrinsic: &str, arguments: &str| {
            format!("  %3 = tail call float @llvm.{intrinsic}({arguments}), !dbg !7")
        };
        for (intrinsic, arguments) in [
            ("maxnum.f32", "float %1, float %2"),
            ("maximumnum.f32", "float noundef %1, float 0.000000e+00"),
            ("maxnum.f64", "double -0.000000e+00, double %2"),
            ("maximumnum.v2f32", "<2 x float> %1, <2 x float> <float 1.000000e+00, float 0.000000e+00>"),
            ("maximumnum.v2f32", "<2 x float> zeroinitializer, <2 x float> %2"),
        ] {
            assert_eq!(which_zero(&call(intrinsic, arguments)), Some("max"), "{intrinsic}({arguments})");
            assert_eq!(which_zero(&call(&intrinsic.replace("max", "min"), arguments)), Some("min"));
        }
        for (intrinsic, arguments) in [
            ("maximumnum.f32", "float %1, float 1.450000e+01"),
            ("minnum.f64", "double 0x3FB99999A0000000, double %2"),
            ("minimumnum.v2f32", "<2 x float> %1, <2 x float> splat (float 1.450000e+01)"),
            ("minimumnum.v2f32", "<2 x float> <float 1.000000e+00, float 2.000000e+00>, <2 x float> %2"),
            // These say which zero it is.
            ("maximum.f32", "float %1, float %2"),
            ("minimum.f32", "float %1, float %2"),
            ("umax.i32", "i32 %1, i32 %2"),
        ] {
            assert_eq!(which_zero(&call(intrinsic, arguments)), None, "{intrinsic}({arguments})");
        }
    }
}
