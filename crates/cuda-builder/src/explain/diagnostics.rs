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
    hints.extend(messages.iter().filter_map(|message| in_cuda(message)).map(str::to_owned));
    hints.extend(messages.iter().filter_map(|message| indexed(message)).map(str::to_owned));
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

/// Names of CUDA C++ that are not there, and what is called so here. The book has all of them ("From CUDA C++ to Rust").
const OF_CUDA: [(&[&str], &str); 8] = [
    (
        &["threadIdx", "blockIdx", "blockDim", "gridDim"],
        "`threadIdx.x` is `thread::thread_idx_x()`; so are `block_idx_x()`, `block_dim_x()` and `grid_dim_x()`; `thread::index_1d()` is \
         `blockIdx.x * blockDim.x + threadIdx.x`",
    ),
    (&["__syncthreads"], "`__syncthreads()` is `thread::sync_threads()`"),
    (&["__syncwarp"], "`__syncwarp(mask)` is `warp::sync_warp(mask)`"),
    (
        &["__shfl_sync", "__shfl_down_sync", "__shfl_up_sync", "__shfl_xor_sync"],
        "shuffles are `warp::warp_shuffle_down(mask, x, d, 32)`, `_up`, `_xor` and `_idx`, which also tell whether the value is another lane's",
    ),
    (
        &["__ballot_sync", "__any_sync", "__all_sync"],
        "votes are `warp::warp_vote_ballot(mask, p)`, `warp_vote_any` and `warp_vote_all`",
    ),
    (
        &["atomicAdd", "atomicMin", "atomicMax", "atomicExch", "atomicCAS", "atomicOr", "atomicAnd", "atomicXor"],
        "atomic operations are those of an element: `x.get(i)` of a `GlobalAtomics`, `S.atomic(i)` of a shared array; then \
         `.fetch_add(value, Relaxed, Scope::Device)` and its like",
    ),
    (&["__ldg"], "`__ldg(&x[i])` is `x.get_hinted(i, cache::ReadOnly)` of a `GlobalSlice`"),
    (
        &[
            "sqrtf", "rsqrtf", "expf", "exp2f", "logf", "log2f", "sinf", "cosf", "tanhf", "powf", "fabsf", "floorf",
            "ceilf", "fmaf", "fminf", "fmaxf", "fmodf",
        ],
        "the functions of `cuda_std::math` are called as CUDA's without the `f`: `math::sqrt(x)`; `fminf`, `fmaxf` and `fabsf` are `math::min`, \
         `max` and `abs`",
    ),
];

/// What is here for a name that only CUDA C++ has.
fn in_cuda(message: &str) -> Option<&'static str> {
    let missing = message.lines().next()?.split_once("cannot find ")?.1;
    let name = missing.split('`').nth(1)?;
    OF_CUDA.iter().find(|(names, _)| names.contains(&name)).map(|(_, hint)| *hint)
}

/// What is there in place of `x[i]`, which rustc only says cannot be.
fn indexed(message: &str) -> Option<&'static str> {
    let of = message.lines().next()?.split_once("error[E0608]: cannot index into a value of type `")?.1;
    // The name without its path and what stands in angle brackets: of `&tilewright_cuda_std::Shared<[f32; 8]>` it is `Shared`.
    let name = of.split(['<', '`']).next()?.rsplit([':', '&', ' ']).next()?;
    match name {
        "GlobalSlice" => Some(
            "a `GlobalSlice` is read by `x.get(i)`, which is `None` past its end, or in `unsafe` by `x.get_unchecked(i)`",
        ),
        "GlobalSliceMut" => Some(
            "a `GlobalSliceMut` is read by `y.get_unchecked(i)` and written by `y.set_unchecked(i, value)`, in `unsafe`, because two threads could \
             have the same `i`; a `DisjointSlice` gives each thread its own element, by `y.own()`, and needs none",
        ),
        "DisjointSlice" => Some(
            "a `DisjointSlice` gives a thread its own element: `if let Some(y) = y.own() { y.set(value) }`; a `GlobalSliceMut` has any element",
        ),
        "GlobalAtomics" => {
            Some("`x.get(i)` of a `GlobalAtomics` is an element, with `load`, `store`, `fetch_add` and its like")
        }
        "Shared" | "SharedSlice" => Some(
            "shared memory is read by `S.read(i)` and written by `S.write(i, value)`, in `unsafe`; of a `Shared<[[f32; 33]; 32]>` the index is \
             `[i, j]`",
        ),
        _ => None,
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
    fn names_of_cuda_come_with_what_they_are_here() {
        let hint = |message: &str| with_hints(&[message.to_owned()], || panic!("not needed")).replacen(message, "", 1);
        for (name, is) in [
            ("value `threadIdx`", "`thread::thread_idx_x()`"),
            ("function `__syncthreads`", "`thread::sync_threads()`"),
            ("function `__shfl_down_sync`", "`warp::warp_shuffle_down(mask, x, d, 32)`"),
            ("function `atomicAdd`", ".fetch_add(value, Relaxed, Scope::Device)"),
            ("function `sqrtf`", "`math::sqrt(x)`"),
        ] {
            let hint = hint(&format!("error[E0425]: cannot find {name} in this scope\n --> src/lib.rs:5:2"));
            assert!(hint.starts_with("\nhint: ") && hint.contains(is), "{name}: {hint}");
        }
        assert_eq!(hint("error[E0425]: cannot find value `thread` in this scope\n 5 | let threadIdx = thread;"), "");
    }

    #[test]
    fn what_cannot_be_indexed_comes_with_what_to_call() {
        let hint = |of: &str| {
            let message = format!("error[E0608]: cannot index into a value of type `{of}`\n --> src/lib.rs:94:115");
            with_hints(std::slice::from_ref(&message), || panic!("not needed")).replacen(&message, "", 1)
        };
        for (of, is) in [
            ("tilewright_cuda_std::GlobalSlice<'_, f32>", "`x.get(i)`"),
            ("tilewright_cuda_std::GlobalSliceMut<'_, f32>", "`y.set_unchecked(i, value)`"),
            ("&GlobalSliceMut<'_, f32>", "`y.set_unchecked(i, value)`"),
            ("DisjointSlice<'_, u32>", "Some(y) = y.own()"),
            ("GlobalAtomics<'_, u32>", "`fetch_add`"),
            ("tilewright_cuda_std::Shared<[[f32; 33]; 32]>", "`S.read(i)`"),
            ("&'static tilewright_cuda_std::Shared<[f32; 256]>", "`S.read(i)`"),
            ("SharedSlice<f32>", "`S.write(i, value)`"),
        ] {
            let hint = hint(of);
            assert!(hint.starts_with("\nhint: ") && hint.contains(is), "{of}: {hint}");
        }
        assert_eq!(hint("Vec<tilewright_cuda_std::GlobalSlice<'_, f32>>"), "");
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
