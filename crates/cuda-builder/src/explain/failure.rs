//! From an error of the link step to one that says what it is about, and where in Rust.

use std::path::Path;

use super::source::{pointers_of, with_definition, with_expression};
use super::{Unsupported, math_functions, place, unsupported};
use crate::inspect::CheckError;
use crate::link::{Lines, Link};
use crate::pass::{PassError, rewrite};
use crate::{Arch, Error};

/// Functions of the compiler's own library that rustc calls for what a source says in another way, and what that is.
const LIBRARY: [(&str, &str); 5] = [
    ("memcmp", "compares slices or strings with `==` or `<`"),
    ("bcmp", "compares slices or strings with `==`"),
    ("memcpy", "copies bytes whose number is not known at compile time"),
    ("memmove", "copies bytes whose number is not known at compile time"),
    ("memset", "fills bytes whose number is not known at compile time"),
];

/// The error with what can be found out about it. The crate is linked once more for that, with the lines of its source; if
/// that tells nothing, the error stays as it is.
pub(crate) fn explained(error: Error, arch: Arch, link: Link<'_>) -> Error {
    let directory = link.directory.join("with-lines");
    let with_lines = Link { directory: &directory, lines: Lines::OfTheCrate, ..link };
    let crate_dir = link.crate_dir;
    match error {
        Error::Pass { arch, reason, place: None } => {
            let place = with_lines.linked().ok().and_then(|ir| of_pass(&ir, arch, crate_dir, &reason));
            Error::Pass { arch, reason, place: place.map(Into::into) }
        }
        Error::Tool { log: Some(log), tool, status, message, function, place: None } => {
            let ir = with_lines.optimized(arch).map(|(ir, _)| ir).unwrap_or_default();
            let math = math_functions(link.toolchain, crate_dir);
            let found = unsupported(&ir, crate_dir, math.as_deref());
            if found.is_empty() {
                let place = of_tool(&ir, crate_dir, &message, function.as_deref()).map(Into::into);
                return Error::Tool { log: Some(log), tool, status, message, function, place };
            }
            Error::Unsupported { arch, found, log: log.into() }
        }
        Error::Unsupported { arch, found, log } => {
            let ir = with_lines.optimized(arch).map(|(ir, _)| ir).unwrap_or_default();
            let with_places = unsupported(&ir, crate_dir, math_functions(link.toolchain, crate_dir).as_deref());
            let found = if with_places.is_empty() { found } else { with_places };
            Error::Unsupported { arch, found, log }
        }
        Error::Check { arch, ptx, reason, place: None } => {
            let Ok((ir, _)) = with_lines.optimized(arch) else {
                return Error::Check { arch, ptx, reason, place: None };
            };
            match library_call(&ir, crate_dir, &reason) {
                Some(found) => Error::Unsupported { arch, found: vec![found], log: ptx },
                None => {
                    let (place, reason) = of_check(&ir, crate_dir, reason);
                    Error::Check { arch, ptx, place: place.map(Into::into), reason }
                }
            }
        }
        other => other,
    }
}

/// Where what the pass refuses comes from, in the module that it was given.
fn of_pass(ir: &str, arch: Arch, crate_dir: &Path, reason: &PassError) -> Option<String> {
    let of_static = |kernel, name: &str| {
        place::of_static(ir, crate_dir, kernel, name).map(|place| with_expression(place, crate_dir))
    };
    match reason {
        PassError::ForeignEntry { kernel } | PassError::MalformedEntry { kernel, .. } => {
            place::definition(ir, crate_dir, kernel).map(|place| with_definition(place, crate_dir))
        }
        PassError::NotShareable { name, .. } | PassError::NotConstant { name, .. } => of_static(None, name),
        PassError::SharedAddressInStatic { holder, .. } => of_static(None, holder),
        PassError::WritableStatic { kernel, name } => of_static(Some(kernel), name),
        PassError::UnknownMarkerUse { .. } => {
            // The line that it was about does not know where it comes from; that of the same module with lines does.
            let Err(PassError::UnknownMarkerUse { line, .. }) = rewrite(ir, arch) else { return None };
            place::of_line(ir, crate_dir, &line).map(|place| with_expression(place, crate_dir))
        }
    }
}

/// Where what one of LLVM's tools cannot do comes from: a call of one of LLVM's functions that it names, or else the function.
fn of_tool(ir: &str, crate_dir: &Path, message: &str, function: Option<&str>) -> Option<String> {
    let function = function?;
    let named = message.split_once("%llvm.").map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').unwrap_or(rest.len());
        format!("llvm.{}", rest[..end].trim_end_matches('.'))
    });
    let of_intrinsic = named.and_then(|name| place::intrinsic(ir, crate_dir, function, &name));
    let of_function = || place::definition(ir, crate_dir, function).map(|place| with_definition(place, crate_dir));
    of_intrinsic.map(|place| with_expression(place, crate_dir)).or_else(of_function)
}

/// Where what a check refuses comes from, and what it is with the argument that a pointer comes from.
fn of_check(ir: &str, crate_dir: &Path, mut reason: CheckError) -> (Option<String>, CheckError) {
    let mut function = None;
    let place = match &mut reason {
        CheckError::Generic { function: name, arguments, .. } => {
            let (place, is_of_argument) = place::generic(ir, crate_dir, name).unwrap_or_default();
            if is_of_argument && let Some(definition) = place::definition(ir, crate_dir, name) {
                *arguments = pointers_of(&definition, crate_dir).into();
            }
            function = Some(name.clone());
            place
        }
        CheckError::Local { function: name, is_given, .. } => {
            function = Some(name.clone());
            let (place, given) = place::local(ir, crate_dir, name);
            *is_given = given;
            place
        }
        CheckError::Recursion { circle, .. } => {
            function = circle.first().cloned();
            function.as_ref().and_then(|name| place::call(ir, crate_dir, name, circle.get(1).unwrap_or(name)))
        }
        CheckError::Constant { function: name, .. } => {
            function = Some(name.clone());
            place::constant(ir, crate_dir, name)
        }
        CheckError::Architecture { function: name, instruction, .. } => {
            function = Some(name.clone());
            place::instruction(ir, crate_dir, name, instruction)
        }
        CheckError::Undefined(name) => place::caller_of(ir, crate_dir, name).and_then(|(_, place)| place),
        CheckError::NoLaunchBounds(kernel) => {
            function = Some(kernel.clone());
            None
        }
        CheckError::Malformed(_) | CheckError::Entries { .. } => None,
    };
    let of_function = || {
        let place = place::definition(ir, crate_dir, function.as_deref()?)?;
        Some(with_definition(place, crate_dir))
    };
    (place.map(|place| with_expression(place, crate_dir)).or_else(of_function), reason)
}

/// What a kernel does that rustc has made a call of a library function of, whose accesses are refused.
fn library_call(ir: &str, crate_dir: &Path, reason: &CheckError) -> Option<Unsupported> {
    let CheckError::Generic { function: callee, .. } = reason else { return None };
    let (_, does) = LIBRARY.iter().find(|(name, _)| name == callee)?;
    let (function, place) = place::caller_of(ir, crate_dir, callee)?;
    let place = place.map(|place| with_expression(place, crate_dir));
    let what = format!(
        "it {does}, for which the compiler calls `{callee}`, and that knows nothing of memory spaces: write a loop"
    );
    Some(Unsupported { what, function, place })
}
