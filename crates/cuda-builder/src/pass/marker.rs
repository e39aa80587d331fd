//! The markers by which `cuda_std` says what a pointer is to: calls of functions that do not exist.

use super::{PassError, Placed, ir};

/// What the names of all markers begin with.
pub(super) const PREFIX: &str = "__tilewright_address_";
/// The function that gives back its argument, a pointer to global memory.
const GLOBAL: &str = "__tilewright_address_space_global";
/// The function that gives the 32-bit address of a pointer to shared memory, as instructions take it that name an address in
/// the shared window.
const SHARED: &str = "__tilewright_address_in_shared";

/// Attributes of an argument that are words of their own.
const WORDS: &[&str] =
    &["noundef", "nonnull", "readonly", "writeonly", "readnone", "nocapture", "noalias", "nofree", "returned"];
/// Attributes of an argument that have parentheses.
const FUNCTIONS: &[&str] = &["captures", "dereferenceable", "dereferenceable_or_null"];

/// Whether a `declare` line declares a marker.
pub(super) fn is_declaration(line: &str) -> bool {
    ir::global_names(line).next().is_some_and(|(_, name)| name == GLOBAL || name == SHARED)
}

/// Replaces the call on `line`: by a cast to address space 1 and one back, or by a cast to address space 3 and the number
/// that the address is there.
pub(super) fn replace_call(line: &str, placed: &Placed<'_>) -> Result<String, PassError> {
    let refuse = |reason| PassError::UnknownMarkerUse { reason, line: line.trim().to_owned() };
    let (result, call) = line.trim_start().split_once(" = ").ok_or_else(|| refuse("the result has no name"))?;
    let name = result.strip_prefix('%').ok_or_else(|| refuse("the result has no name"))?;
    let (range, callee) = ir::global_names(call).next().ok_or_else(|| refuse("no function is named"))?;
    let before: Vec<&str> = call[..range.start].split_ascii_whitespace().collect();
    let is_call = matches!(before[..], ["call", ..] | ["tail" | "notail", "call", ..]);
    if !is_call || (callee != GLOBAL && callee != SHARED) {
        return Err(refuse("it is not called"));
    }
    let argument =
        ir::parenthesized(call, range.end).ok_or_else(|| refuse("the arguments do not end where the line does"))?;
    let value = value(argument).ok_or_else(|| refuse("the argument has attributes that are not known"))?;
    let cast = match name.strip_prefix('"') {
        Some(rest) => format!("%\"tilewright.cast.{rest}"),
        None => format!("%tilewright.cast.{name}"),
    };
    if callee == SHARED {
        return Ok(format!(
            "  {cast} = addrspacecast ptr {} to ptr addrspace(3)\n  {result} = ptrtoint ptr addrspace(3) {cast} to i32",
            super::with_casts(value, placed)
        ));
    }
    match ir::global_names(value).find_map(|(_, name)| placed.space_of(name)) {
        Some(3) => return Err(refuse("the argument is in shared memory")),
        Some(4) => return Err(refuse("the argument is in constant memory")),
        _ => {}
    }
    Ok(format!(
        "  {cast} = addrspacecast ptr {value} to ptr addrspace(1)\n  {result} = addrspacecast ptr addrspace(1) {cast} to ptr"
    ))
}

/// The value of the one pointer argument, without its type and attributes.
pub(super) fn value(argument: &str) -> Option<&str> {
    let mut rest = argument.strip_prefix("ptr ")?;
    loop {
        if let Some(after) = WORDS.iter().find_map(|word| rest.strip_prefix(word)?.strip_prefix(' ')) {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("align ") {
            rest = after.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(' ')?;
        } else if let Some(word) = FUNCTIONS.iter().find(|word| rest[..].starts_with(&format!("{word}("))) {
            let inside = ir::parenthesized(rest, word.len())?;
            rest = rest[word.len() + inside.len() + 2..].strip_prefix(' ')?;
        } else {
            break;
        }
    }
    let is_constant = ["getelementptr ", "inttoptr ", "addrspacecast "].iter().any(|opcode| rest.starts_with(opcode));
    let is_value = rest.starts_with(['%', '@']) || is_constant || ["null", "undef", "poison"].contains(&rest);
    is_value.then_some(rest)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn replaced(line: &str) -> Result<String, PassError> {
        replace_call(line, &Placed { shared: HashSet::from(["TILE"]), constant: HashSet::from(["TABLE"]) })
    }

    #[test]
    fn becomes_two_casts() {
        let line = "  %6 = tail call noundef ptr @__tilewright_address_space_global(ptr noundef %0) #28, !dbg !7";
        let expected = "  %tilewright.cast.6 = addrspacecast ptr %0 to ptr addrspace(1)\n  \
                        %6 = addrspacecast ptr addrspace(1) %tilewright.cast.6 to ptr";
        assert_eq!(replaced(line).unwrap(), expected);
    }

    #[test]
    fn takes_any_argument_and_name() {
        let line = r#"  %"a b" = call ptr @__tilewright_address_space_global(ptr nonnull align 4 dereferenceable(8) getelementptr (i8, ptr @C, i64 4))"#;
        let expected = "  %\"tilewright.cast.a b\" = addrspacecast ptr getelementptr (i8, ptr @C, i64 4) to ptr addrspace(1)\n  \
                        %\"a b\" = addrspacecast ptr addrspace(1) %\"tilewright.cast.a b\" to ptr";
        assert_eq!(replaced(line).unwrap(), expected);
        let line = "  %x.i = call ptr @__tilewright_address_space_global(ptr null)";
        assert!(replaced(line).unwrap().contains("addrspacecast ptr null to ptr addrspace(1)"));
    }

    #[test]
    fn an_address_in_shared_memory_becomes_a_number() {
        let line = "  %6 = call noundef i32 @__tilewright_address_in_shared(ptr noundef %0) #28";
        let expected = "  %tilewright.cast.6 = addrspacecast ptr %0 to ptr addrspace(3)\n  \
                        %6 = ptrtoint ptr addrspace(3) %tilewright.cast.6 to i32";
        assert_eq!(replaced(line).unwrap(), expected);
        let line = "  %6 = call i32 @__tilewright_address_in_shared(ptr getelementptr (i8, ptr @TILE, i64 16))";
        let cast = "addrspacecast ptr getelementptr (i8, ptr addrspacecast (ptr addrspace(3) @TILE to ptr), i64 16) to";
        assert!(replaced(line).unwrap().contains(cast));
    }

    #[test]
    fn refuses_other_shapes() {
        for (line, reason) in [
            ("  store ptr @__tilewright_address_space_global, ptr %1, align 8", "no name"),
            ("  %1 = load ptr, ptr @__tilewright_address_space_global", "not called"),
            ("  %1 = musttail call ptr @__tilewright_address_space_global(ptr %0)", "not called"),
            ("  %1 = call ptr @other(ptr @__tilewright_address_space_global)", "not called"),
            ("  %1 = call ptr @__tilewright_address_space_global(ptr strange %0)", "attributes"),
            ("  %1 = call ptr @__tilewright_address_space_global(i64 %0)", "attributes"),
            ("  %1 = call ptr @__tilewright_address_space_global(ptr @TILE)", "shared memory"),
            ("  %1 = call ptr @__tilewright_address_space_global(ptr @TABLE)", "constant memory"),
        ] {
            let error = replaced(line).unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
