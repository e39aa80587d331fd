//! From an error of the link step to one that says what it is about, and where in Rust.

use std::path::Path;

use super::{Unsupported, caller_of, math_functions, place_of_generic, place_of_local, unsupported, with_expression};
use crate::inspect::CheckError;
use crate::link::{Lines, Link};
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
    if !matches!(error, Error::Check { .. } | Error::Tool { log: Some(_), .. }) {
        return error;
    }
    let directory = link.directory.join("with-lines");
    let Ok((ir, _)) = (Link { directory: &directory, lines: Lines::OfTheCrate, ..link }).optimized(arch) else {
        return error;
    };
    let crate_dir = link.crate_dir;
    match error {
        Error::Tool { log: Some(log), tool, status, message, function } => {
            let math = math_functions(link.toolchain, crate_dir);
            let found = unsupported(&ir, crate_dir, math.as_deref());
            if found.is_empty() {
                return Error::Tool { log: Some(log), tool, status, message, function };
            }
            Error::Unsupported { arch, found, log }
        }
        Error::Check { arch, ptx, reason, .. } => {
            let place = place(&ir, crate_dir, &reason).map(|place| with_expression(place, crate_dir));
            match library_call(&ir, crate_dir, &reason) {
                Some(found) => Error::Unsupported { arch, found: vec![found], log: ptx },
                None => Error::Check { arch, ptx, place, reason },
            }
        }
        other => other,
    }
}

/// Where what a check refuses comes from.
fn place(ir: &str, crate_dir: &Path, reason: &CheckError) -> Option<String> {
    match reason {
        CheckError::Generic { function, .. } => place_of_generic(ir, crate_dir, function),
        CheckError::Local { function, .. } => place_of_local(ir, crate_dir, function),
        CheckError::Undefined(name) => caller_of(ir, crate_dir, name)?.1,
        _ => None,
    }
}

/// What a kernel does that rustc has made a call of a library function of, whose accesses are refused.
fn library_call(ir: &str, crate_dir: &Path, reason: &CheckError) -> Option<Unsupported> {
    let CheckError::Generic { function: callee, .. } = reason else { return None };
    let (_, does) = LIBRARY.iter().find(|(name, _)| name == callee)?;
    let (function, place) = caller_of(ir, crate_dir, callee)?;
    let what = format!(
        "it {does}, for which the compiler calls `{callee}`, and that knows nothing of memory spaces: write a loop"
    );
    Some(Unsupported { what, function, place })
}
