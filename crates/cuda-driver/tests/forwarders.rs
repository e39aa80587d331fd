//! `src/forwarders.rs` and `src/results.rs` are generated from the declarations of the `cust_raw` that cargo has selected.
//! This test generates them again and fails where they differ. To write them anew:
//!
//! ```text
//! TILEWRIGHT_REGENERATE=1 cargo test -p tilewright-cuda-driver --test forwarders
//! ```
//!
//! Where the crate no longer compiles because `cust_raw` has changed, empty `forward! {…}` by hand first.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{FnArg, ForeignItem, Item, Pat, ReturnType, Type};

const HEADER: &str = "\
// Generated from the declarations of cust_raw {version} by tests/forwarders.rs; do not edit.

//! The functions that `cust_raw` declares, each forwarded to the driver's library.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use cust::sys::*;

use crate::library::Entry;

macro_rules! forward {
    ($(fn $name:ident($($parameter:ident: $kind:ty),* $(,)?);)*) => { $(
        // The declaration and the definition have the same type, or this does not compile.
        const _: unsafe extern \"C\" fn($($kind),*) -> CUresult = cust::sys::$name;

        // SAFETY of the name: it is the driver's own, and no other crate may define it.
        #[unsafe(no_mangle)]
        unsafe extern \"C\" fn $name($($parameter: $kind),*) -> CUresult {
            static ENTRY: Entry = Entry::new(stringify!($name));
            ENTRY.forward(|address| {
                // SAFETY: the driver's function of this name has the declared parameters, and returns a CUresult, which
                // is read as the number that it is because the driver may return one that the enum does not have.
                let function: unsafe extern \"C\" fn($($kind),*) -> u32 = unsafe { std::mem::transmute(address) };
                // SAFETY: the caller keeps the contract of the driver's function.
                unsafe { function($($parameter),*) }
            })
        }
    )* };
}
";

const HEADER_OF_RESULTS: &str = "\
// Generated from the declarations of cust_raw {version} by tests/forwarders.rs; do not edit.

//! The results that `cust_raw` knows.

use cust::sys::CUresult;

/// Every result that `CUresult` has, by ascending code.
pub(crate) const RESULTS: &[CUresult] = &[
";

#[test]
fn forwarders_are_those_that_cust_raw_declares() {
    let (version, source) = cust_raw();
    let file = syn::parse_file(&std::fs::read_to_string(&source).unwrap()).unwrap();
    let (functions, forwarders) = forwarders(&version, &file);
    // What the crate had when this was written: a parser that sees nothing must not pass.
    assert!(functions >= 353, "only {functions} functions found in {}", source.display());

    for (name, generated) in [("forwarders.rs", forwarders), ("results.rs", results(&version, &file))] {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
        if std::env::var_os("TILEWRIGHT_REGENERATE").is_some() {
            std::fs::write(&target, &generated).unwrap();
        }
        let present = std::fs::read_to_string(&target).unwrap_or_default();
        assert!(
            present == generated,
            "src/{name} is not what cust_raw {version} declares; run this test with TILEWRIGHT_REGENERATE=1"
        );
    }
}

/// The version of the selected `cust_raw`, and the file with its declarations.
fn cust_raw() -> (String, PathBuf) {
    // For this platform alone: what only others need may not have been downloaded.
    let platform = output_of(Command::new("rustc").args(["--print", "host-tuple"]));
    let metadata = output_of(
        Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--filter-platform", platform.trim()])
            .current_dir(env!("CARGO_MANIFEST_DIR")),
    );
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let package =
        metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "cust_raw").unwrap();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    (package["version"].as_str().unwrap().to_owned(), manifest.with_file_name("src").join("cuda.rs"))
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The number of functions, and the text of `src/forwarders.rs`.
fn forwarders(version: &str, file: &syn::File) -> (usize, String) {
    let mut functions = 0;
    let mut text = HEADER.replace("{version}", version) + "\nforward! {\n";
    for item in &file.items {
        let Item::ForeignMod(block) = item else { continue };
        for item in &block.items {
            let ForeignItem::Fn(function) = item else { continue };
            functions += 1;
            let name = &function.sig.ident;
            assert!(
                matches!(&function.sig.output, ReturnType::Type(_, kind) if type_text(kind) == "CUresult"),
                "{name}"
            );
            assert!(function.sig.variadic.is_none(), "{name}");
            let parameters: Vec<String> = function.sig.inputs.iter().map(parameter_text).collect();
            push_wrapped(&mut text, &format!("    fn {name}("), &parameters, ");");
        }
    }
    (functions, text + "}\n")
}

/// The text of `src/results.rs`.
fn results(version: &str, file: &syn::File) -> String {
    let mut text = HEADER_OF_RESULTS.replace("{version}", version);
    let results = file
        .items
        .iter()
        .find_map(|item| match item {
            Item::Enum(results) if results.ident == "cudaError_enum" => Some(results),
            _ => None,
        })
        .unwrap();
    for result in &results.variants {
        writeln!(text, "    CUresult::{},", result.ident).unwrap();
    }
    text + "];\n"
}

/// Appends a declaration, in lines of at most 120 columns.
fn push_wrapped(text: &mut String, start: &str, parameters: &[String], end: &str) {
    let mut line = start.to_owned();
    for (index, parameter) in parameters.iter().enumerate() {
        let last = index + 1 == parameters.len();
        let piece = if last { format!("{parameter}{end}") } else { format!("{parameter},") };
        if line.len() + 1 + piece.len() > 120 {
            *text += line.trim_end();
            *text += "\n";
            line = "        ".to_owned();
        }
        line += &piece;
        if !last {
            line += " ";
        }
    }
    if parameters.is_empty() {
        line += end;
    }
    *text += &line;
    *text += "\n";
}

fn parameter_text(parameter: &FnArg) -> String {
    let FnArg::Typed(parameter) = parameter else { panic!("a function with self") };
    let Pat::Ident(name) = &*parameter.pat else { panic!("a parameter that is a pattern") };
    format!("{}: {}", name.ident, type_text(&parameter.ty))
}

/// A type as it is written in the forwarders: pointers and names are all that the declarations have.
fn type_text(kind: &Type) -> String {
    match kind {
        Type::Ptr(pointer) => {
            let mutability = if matches!(pointer.mutability, syn::PointerMutability::Mut(_)) { "mut" } else { "const" };
            format!("*{mutability} {}", type_text(&pointer.elem))
        }
        Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        _ => panic!("a type that the generator does not know; teach type_text"),
    }
}
