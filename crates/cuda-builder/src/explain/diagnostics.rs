//! What to add to messages of rustc that mislead where the code is for a GPU.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::compile::TARGET;
use crate::metadata::metadata;
use crate::toolchain::Toolchain;

/// rustc's messages, with hints where it does not know better.
///
/// `math` gives the names of the functions in `cuda_std::math`.
pub(crate) fn with_hints(messages: &[String], math: impl FnOnce() -> Option<Vec<String>>) -> String {
    let methods: Vec<(&str, &str)> = messages.iter().filter_map(|message| float_method(message)).collect();
    let math = if methods.is_empty() { None } else { math() };
    let mut hints: Vec<String> =
        methods.iter().map(|(name, kind)| for_float_method(name, kind, math.as_deref())).collect();
    hints.extend(messages.iter().filter_map(|message| feature(message)));
    hints.extend(messages.iter().filter_map(|message| of_std(message)).map(str::to_owned));
    hints.extend(messages.iter().filter_map(|message| same_name(message)));
    let mut text = messages.iter().map(|message| without_internals(message)).collect::<Vec<_>>().join("\n");
    let mut given = HashSet::new();
    for hint in hints.iter().filter(|hint| given.insert(*hint)) {
        text += &format!("\nhint: {hint}");
    }
    text
}

/// The message without the advice to import a trait of the compiler's own library, which nobody can.
fn without_internals(message: &str) -> &str {
    match message.find("help: trait `Float` which provides").filter(|at| message[*at..].contains("compiler_builtins::"))
    {
        Some(at) => message[..at].trim_end_matches(|c: char| c.is_whitespace() || c == '|'),
        None => message,
    }
}

/// `no method named `exp` found for type `f32` in the current scope`: std has it, and core has not. Its name and the type.
fn float_method(message: &str) -> Option<(&str, &'static str)> {
    let (_, rest) = message.split_once("error[E0599]: no ")?;
    let rest = rest.split_once("named `")?.1;
    let (name, rest) = rest.split_once('`')?;
    let rest = rest.lines().next()?;
    let has = |kind: &&str| {
        ["type `", "reference `&", "reference `&mut "].iter().any(|of| rest.contains(&format!("{of}{kind}`")))
    };
    Some((name, ["f32", "f64"].into_iter().find(has)?))
}

/// What `cuda_std::math` calls a method of std.
fn name_in_math(method: &str) -> &str {
    match method {
        "mul_add" => "fma",
        "ln" => "log",
        "exp_m1" => "expm1",
        "ln_1p" => "log1p",
        "powf" => "pow",
        "sin_cos" => "sincos",
        _ => method,
    }
}

fn for_float_method(name: &str, kind: &str, math: Option<&[String]>) -> String {
    let function = name_in_math(name);
    let has = |function: &str| math.map(|math| math.iter().any(|known| known == function));
    let of_f64 = format!("{function}_f64");
    let advice = match has(function) {
        Some(_) if kind == "f64" && has(&of_f64) == Some(true) => format!("write `cuda_std::math::{of_f64}(…)`"),
        None => "`cuda_std::math` has what kernels can use".to_owned(),
        Some(true) if kind == "f32" => {
            format!("write `cuda_std::math::{function}(…)`, which has the same bits on the CPU")
        }
        Some(true) => format!("`cuda_std::math::{function}(…)` is for f32, and there is none for {kind}"),
        Some(false) => format!("`cuda_std::math` has what kernels can use, and no `{name}`"),
    };
    format!("the methods of {kind} that are std's, such as `{name}`, are not there on a GPU: {advice}")
}

/// rustc's advice to enable a feature, which a stable compiler refuses where the same crate is compiled for the CPU.
fn feature(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("add `#![feature(")?;
    let name = rest.split_once(')')?.0;
    match name {
        "f16" => {
            return Some(
                "no stable compiler has `f16`: `cuda_std::F16` is for memory, and `to_f32` of it for arithmetic"
                    .to_owned(),
            );
        }
        "f128" => return Some("no GPU has `f128`: `f64` is the largest".to_owned()),
        _ => {}
    }
    Some(format!(
        "for the GPU alone, so that the crate still compiles for the CPU: `#![cfg_attr(target_arch = \"nvptx64\", \
         feature({name}))]`"
    ))
}

/// Two kernels of one name: the compiler knows them by a static beside the entry point.
fn same_name(message: &str) -> Option<String> {
    let name = message.split_once("symbol `__tilewright_facts_")?.1.split_once("` is already defined")?.0;
    Some(format!(
        "two kernels are called `{name}`: that is the name of an entry point, of which there is one in a crate, whatever module the function is in"
    ))
}

/// What there is in the place of something of std that kernels have not: macros that print, what lies in a heap, the crate itself.
fn of_std(message: &str) -> Option<&'static str> {
    let first = message.lines().next()?;
    let is_missing =
        ["cannot find ", "undeclared type ", "unresolved ", "unlinked crate "].iter().any(|word| first.contains(word));
    let has = |names: &[&str]| is_missing && names.iter().any(|name| first.contains(&format!("`{name}`")));
    if has(&["println", "print", "eprintln", "eprint", "dbg"]) {
        Some(
            "threads of a GPU print by `gpu_println!(\"x = {}\", x)`, with a constant text and numbers; the CPU has it, too",
        )
    } else if has(&["vec", "format", "Vec", "String", "Box", "Rc", "Arc", "HashMap", "BTreeMap", "VecDeque", "alloc"]) {
        Some(
            "kernels have no heap: an array has a length that is known at compile time (`[f32; 8]`), what is larger is in shared memory \
             (`Shared`, `SharedSlice`) or comes as a view of global memory",
        )
    } else if has(&["std"]) {
        Some(
            "on a GPU there is `core` and no `std`: what is for the CPU alone stands behind `#[cfg(not(target_arch = \"nvptx64\"))]`",
        )
    } else {
        None
    }
}

/// The functions in the `cuda_std::math` that a crate uses; none if they cannot be found out.
pub(crate) fn math_functions(toolchain: &Toolchain, crate_dir: &Path) -> Option<Vec<String>> {
    // Of the packages of all platforms, some have perhaps never been downloaded.
    let options = ["--offline", "--filter-platform", TARGET];
    let metadata = metadata(toolchain, crate_dir, &options).ok()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let library = packages.filter(|package| package["name"] == "tilewright-cuda-std");
    let manifest = library.filter_map(|package| package["manifest_path"].as_str()).next()?;
    let source = Path::new(manifest).with_file_name("src");
    let files = fs::read_dir(source.join("math")).into_iter().flatten().flatten().map(|entry| entry.path());
    // Those of the hardware have names of their own, or those of the others.
    let files = files.filter(|file| file.file_name().is_some_and(|name| name != "fast.rs"));
    let text: String = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    Some(functions(&text))
}

/// The public functions at the top of a source file.
fn functions(text: &str) -> Vec<String> {
    let declared =
        text.lines().filter_map(|line| line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("pub unsafe fn ")));
    declared.filter_map(|rest| Some(rest.split(['(', '<']).next()?.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_METHOD: &str =
        "error[E0599]: no method named `exp` found for type `f32` in the current scope\n --> src/lib.rs:5:2";

    #[test]
    fn names_the_function_for_a_method_of_std() {
        let text = with_hints(&[NO_METHOD.to_owned()], || Some(vec!["exp".to_owned()]));
        assert!(
            text.starts_with(NO_METHOD) && text.contains("hint:") && text.contains("`cuda_std::math::exp(…)`"),
            "{text}"
        );
        let text = with_hints(&[NO_METHOD.to_owned(), NO_METHOD.to_owned()], || Some(vec!["fma".to_owned()]));
        assert!(text.contains("no `exp`") && text.matches("hint:").count() == 1, "{text}");
        let text = with_hints(&[NO_METHOD.replace("type `f32`", "type `f64`")], || Some(vec!["exp".to_owned()]));
        assert!(text.contains("`cuda_std::math::exp(…)` is for f32, and there is none for f64"), "{text}");
        let text = with_hints(&[NO_METHOD.replace("`exp`", "`mul_add`")], || Some(vec!["fma".to_owned()]));
        assert!(text.contains("write `cuda_std::math::fma(…)`"), "{text}");
        let of_f64 = NO_METHOD.replace("`exp`", "`sqrt`").replace("type `f32`", "type `f64`");
        let text = with_hints(&[of_f64], || Some(vec!["sqrt".to_owned(), "sqrt_f64".to_owned()]));
        assert!(text.contains("write `cuda_std::math::sqrt_f64(…)`"), "{text}");
        let text = with_hints(&[NO_METHOD.replace("`exp`", "`ln_1p`")], || Some(vec!["log1p".to_owned()]));
        assert!(text.contains("write `cuda_std::math::log1p(…)`"), "{text}");
        let text = with_hints(&[NO_METHOD.to_owned()], || None);
        assert!(text.contains("`cuda_std::math` has what kernels can use") && !text.contains("no `exp`"), "{text}");
        let ambiguous = NO_METHOD.replace("type `f32`", "type `{float}`");
        assert_eq!(with_hints(std::slice::from_ref(&ambiguous), || panic!("not needed")), ambiguous);
        let other = NO_METHOD.replace("type `f32`", "struct `Vec<f32>`");
        assert_eq!(with_hints(std::slice::from_ref(&other), || panic!("not needed")), other);
    }

    #[test]
    fn features_are_for_the_gpu() {
        let message = "error[E0658]: use of unstable library feature `stdarch_nvptx`\n\
                       = help: add `#![feature(stdarch_nvptx)]` to the crate attributes to enable";
        let text = with_hints(&[message.to_owned()], || panic!("not needed"));
        assert!(text.contains("cfg_attr(target_arch = \"nvptx64\", feature(stdarch_nvptx))"), "{text}");
    }

    #[test]
    fn what_only_std_has_comes_with_what_to_write() {
        let hint = |message: &str| with_hints(&[message.to_owned()], || panic!("not needed")).replacen(message, "", 1);
        assert!(hint("error: cannot find macro `println` in this scope").contains("`gpu_println!("));
        for name in ["macro `vec`", "type `String`", "type `Box`"] {
            assert!(hint(&format!("error: cannot find {name} in this scope")).contains("no heap"), "{name}");
        }
        assert!(hint("error[E0433]: failed to resolve: use of undeclared type `Vec`").contains("no heap"));
        assert!(hint("error[E0433]: cannot find module or crate `std` in this scope").contains("`core` and no `std`"));
        let help = "error[E0658]: the type `f16` is unstable\n= help: add `#![feature(f16)]` to the crate attributes to enable";
        assert!(hint(help).contains("`cuda_std::F16`") && !hint(help).contains("cfg_attr"), "{}", hint(help));
        for other in ["error: cannot find value `vec_len` in this scope", "error[E0308]: mismatched types\n `Vec`"] {
            assert_eq!(hint(other), "");
        }
    }

    #[test]
    fn kernels_of_one_name_are_told_as_such() {
        let text = with_hints(
            &["error: symbol `__tilewright_facts_k` is already defined\n --> src/b.rs:9:1".to_owned()],
            || None,
        );
        assert!(text.contains("hint: two kernels are called `k`"), "{text}");
    }

    #[test]
    fn finds_functions() {
        assert_eq!(
            functions("pub fn fma(a: f32) {}\n    pub fn inner() {}\npub fn exp<T>(x: T)\nfn no()\n"),
            ["fma", "exp"]
        );
    }
}
