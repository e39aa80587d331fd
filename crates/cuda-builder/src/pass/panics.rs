//! What makes a panic a report that the host can read, and not a message in memory that kernels do not have.
//!
//! `core` puts a message with values together in two steps: the function that panics writes pointers to the values to its stack, and
//! calls `panic_fmt`, which is never inlined and calls the panic handler. That of `cuda_std` looks only whether the message is a constant
//! text. With all of it in one function, LLVM sees that, and nothing is left of the stack:
//!
//! ```text
//! define internal void @panic_fmt(ptr %template, ptr %args, ptr %location) #7 {       #7 = { cold noinline noreturn … }
//!      →  define internal void @panic_fmt(ptr %template, ptr %args, ptr %location) alwaysinline cold noreturn … {
//! define internal void @panic_bounds_check(i64 %index, i64 %len, ptr %location) #7 { … }
//!      →  the same, with a call of `cuda_std`'s function, which takes the two numbers along; `expect_failed` likewise, with its text
//! @__tilewright_channel = external global [32 x i8], align 8                           (see `cuda_std::print_record`)
//!      →  @__tilewright_channel = external addrspace(1) global [32 x i8], align 8
//!      →  @__tilewright_channel = addrspace(1) externally_initialized global [32 x i8] zeroinitializer, align 8
//! ```
//!
//! The handler itself is inlined too; and calls that say `noinline` lose it.
//!
//! The variable is defined after LLVM's passes: a declaration that nobody uses goes by itself, and of a variable that nobody in the
//! module writes to LLVM would know what is in it.

use std::collections::{HashMap, HashSet};

use rustc_demangle::demangle;

use super::ir::{Variable, global_names, parenthesized, split_list};

/// The variable that the host tells modules by where to print and report to, as `cuda_std` declares it.
pub(super) const CHANNEL: &str = "__tilewright_channel";
/// Functions of `core` that others of `cuda_std` take the place of: the names of both, and the types of the parameters that both have.
const REPLACED: [(&str, &str, [&str; 3]); 2] = [
    ("core::panicking::panic_bounds_check", "__tilewright_panic_bounds_check", ["i64", "i64", "ptr"]),
    ("core::option::expect_failed", "__tilewright_expect_failed", ["ptr", "i64", "ptr"]),
];

/// The name that rustc gives to the panic handler.
const HANDLER: &str = "rust_begin_unwind";

/// The module with the functions of `core` that panic as this module's documentation says.
pub(crate) fn with_reports(ir: &str) -> String {
    let groups: HashMap<&str, &str> = ir.lines().filter_map(attributes).collect();
    let defined = ir.lines().filter(|line| line.starts_with("define ")).filter_map(name_of);
    let replacements: HashSet<&str> = defined.filter(|name| REPLACED.iter().any(|(_, ours, _)| ours == name)).collect();
    let mut result = String::with_capacity(ir.len());
    let mut is_replaced = false;
    for line in ir.lines() {
        match panic_function(line) {
            Some(PanicFunction::Formatted) if line.starts_with("define ") => {
                result.push_str(&with_group(line, &groups, |group| {
                    format!("alwaysinline {}", group.replace("noinline", ""))
                }));
            }
            // Calls from cold places say that nothing is to be inlined there.
            Some(PanicFunction::Formatted) if !is_replaced => {
                result.push_str(&with_group(line, &groups, |group| group.replace("noinline", "")));
            }
            Some(PanicFunction::Replaced(ours, kinds))
                if line.starts_with("define ") && replacements.contains(ours) =>
            {
                let replacement = arguments(line, kinds);
                is_replaced = replacement.is_some();
                // Without lines of source, which a call in a function with them would have to have.
                result.push_str(&if is_replaced { without_lines(line) } else { line.to_owned() });
                if let Some(arguments) = replacement {
                    result.push_str(&format!("\n  call void @{ours}({arguments})\n  unreachable"));
                }
            }
            _ if is_replaced && line != "}" => continue,
            _ => {
                is_replaced = false;
                result.push_str(line);
            }
        }
        result.push('\n');
    }
    result
}

/// The functions that the module's documentation speaks of.
enum PanicFunction {
    /// Is given a message with values, which are in memory.
    Formatted,
    /// One of [`REPLACED`]: by which function, and what that takes.
    Replaced(&'static str, [&'static str; 3]),
}

/// Which of them a line defines or calls.
fn panic_function(line: &str) -> Option<PanicFunction> {
    // Most lines are not worth reading.
    if !["9panicking", "13expect_failed", HANDLER].iter().any(|name| line.contains(name)) {
        return None;
    }
    let is_call = line.contains("call ");
    let (_, name) = global_names(line).next().filter(|_| is_call || line.starts_with("define "))?;
    let readable = format!("{:#}", demangle(name));
    let is = |name: &str| readable == name || readable.strip_prefix(name).is_some_and(|rest| rest.starts_with("::"));
    let formats = ["core::panicking::panic_fmt", "core::panicking::panic_nounwind_fmt"].into_iter().any(is);
    if formats || readable.rsplit("::").next() == Some(HANDLER) {
        return Some(PanicFunction::Formatted);
    }
    let (_, ours, kinds) = REPLACED.iter().find(|(core, ..)| readable == *core)?;
    Some(PanicFunction::Replaced(ours, *kinds))
}

/// The name and the contents of a group of attributes.
fn attributes(line: &str) -> Option<(&str, &str)> {
    let (name, group) = line.strip_prefix("attributes ")?.split_once(" = { ")?;
    Some((name, group.strip_suffix(" }")?))
}

fn name_of(line: &str) -> Option<&str> {
    global_names(line).next().map(|(_, name)| name)
}

/// A definition or a call with other attributes in the place of its group.
fn with_group(line: &str, groups: &HashMap<&str, &str>, change: impl Fn(&str) -> String) -> String {
    let word = |word: &str| match groups.get(word.trim_end_matches(',')) {
        Some(group) => change(group) + if word.ends_with(',') { "," } else { "" },
        None => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The first line of a function that says nothing of its lines of source.
fn without_lines(line: &str) -> String {
    let Some((before, after)) = line.split_once(" !dbg ") else { return line.to_owned() };
    let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
    format!("{before} {rest}")
}

/// What a function passes on of parameters of these types, as a call is written; `None` if it has others.
fn arguments(line: &str, kinds: [&str; 3]) -> Option<String> {
    let (range, _) = global_names(line).next()?;
    let parameters = split_list(parenthesized(line, range.end)?);
    let one = |(parameter, kind): (&&str, &str)| {
        let name = parameter.strip_prefix(kind)?.strip_prefix(' ')?.split(' ').next_back()?;
        Some(format!("{kind} {name}"))
    };
    let passed = parameters.iter().zip(kinds).map(one).collect::<Option<Vec<String>>>()?;
    (parameters.len() == kinds.len()).then(|| passed.join(", "))
}

/// The line that declares the channel, in global memory.
pub(super) fn declaration(line: &str, variable: &Variable<'_>) -> String {
    let (before, declaration) = line.split_at(variable.keyword);
    format!("{before}addrspace(1) {declaration}")
}

/// The module with the channel defined, if it is declared.
pub(crate) fn with_channel(ir: &str) -> String {
    let declared = format!("@{CHANNEL} = ");
    let mut result = String::with_capacity(ir.len());
    for line in ir.lines() {
        match line.strip_prefix(&declared).and_then(|rest| rest.split_once(" global ")) {
            Some((_, kind)) => {
                let (kind, alignment) = kind.split_once(", align").unwrap_or((kind, " 8"));
                result += &format!(
                    "{declared}addrspace(1) externally_initialized global {kind} zeroinitializer, align{alignment}"
                );
            }
            None => result += line,
        }
        result.push('\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANIC_FMT: &str = "_RNvNtCsg7HgK5wDDxb_4core9panicking9panic_fmt";
    const PANIC_BOUNDS_CHECK: &str = "_RNvNtCsg7HgK5wDDxb_4core9panicking18panic_bounds_check";

    #[test]
    fn what_formats_is_inlined_and_nothing_else() {
        let module = |name: &str| {
            format!(
                "define hidden void @{name}(ptr noundef %0, ptr noundef %1, ptr align 8 %2) unnamed_addr #7 !dbg !3 {{\n  \
                 unreachable\n}}\nattributes #7 = {{ cold noinline noreturn \"target-cpu\"=\"sm_80\" }}\n"
            )
        };
        let inlined = with_reports(&module(PANIC_FMT));
        let expected = "%2) unnamed_addr alwaysinline cold  noreturn \"target-cpu\"=\"sm_80\" !dbg !3 {\n";
        assert!(inlined.contains(expected), "{inlined}");
        assert!(inlined.contains("attributes #7 = { cold noinline"), "others have it too: {inlined}");
        let call = format!("  tail call fastcc void @{PANIC_FMT}(ptr %3, ptr null, ptr @x) #31, !dbg !158\n");
        let groups = "attributes #31 = { noinline noreturn nounwind }\n";
        let inlined = with_reports(&format!("{call}{groups}"));
        assert_eq!(inlined, format!("{}{groups}", call.replace("#31", " noreturn nounwind")));
        let handler = module("_RNvCsfgHYwM92fyn_7___rustc17rust_begin_unwind").replace("noinline ", "");
        assert!(with_reports(&handler).contains("%2) unnamed_addr alwaysinline cold noreturn"), "{handler}");
        for other in ["_RNvNtCsg7HgK5wDDxb_4core9panicking5panic", "_RNvNtCsg7HgK5wDDxb_4mine9panicking9panic_fmt"] {
            assert_eq!(with_reports(&module(other)), module(other));
        }
    }

    #[test]
    fn an_index_out_of_bounds_takes_its_numbers_along() {
        const BOUNDS_CHECK: &str = REPLACED[0].1;
        let (head, body) = (
            format!(
                "define internal void @{PANIC_BOUNDS_CHECK}(i64 noundef %0, i64 noundef %1, ptr noalias align 8 %2) #7 {{\n"
            ),
            "start:\n  %a = alloca [16 x i8]\n  unreachable\n}\n",
        );
        let ours = format!("define void @{BOUNDS_CHECK}(i64 %0, i64 %1, ptr %2) #7 {{\n  unreachable\n}}\n");
        let call = format!("  call void @{BOUNDS_CHECK}(i64 %0, i64 %1, ptr %2)\n  unreachable\n}}\n");
        assert_eq!(with_reports(&format!("{head}{body}{ours}")), format!("{head}{call}{ours}"));
        let with_lines = head.replace("#7 {", "#7 !dbg !42 {");
        assert_eq!(with_reports(&format!("{with_lines}{body}{ours}")), format!("{head}{call}{ours}"));
        assert_eq!(with_reports(&format!("{head}{body}")), format!("{head}{body}"), "there is nothing to call");
        let other = head.replace("i64 noundef %1, ", "");
        assert_eq!(
            with_reports(&format!("{other}{body}{ours}")),
            format!("{other}{body}{ours}"),
            "it is given something else"
        );
    }

    #[test]
    fn an_expectation_takes_its_text_along() {
        let head = "define internal void @_RNvNtCsg7HgK5wDDxb_4core6option13expect_failed(ptr %0, i64 %1, ptr align 8 %2) #7 {\n";
        let ours = "define void @__tilewright_expect_failed(ptr %0, i64 %1, ptr %2) #7 {\n  unreachable\n}\n";
        let call = "  call void @__tilewright_expect_failed(ptr %0, i64 %1, ptr %2)\n  unreachable\n}\n";
        assert_eq!(with_reports(&format!("{head}  ret void\n}}\n{ours}")), format!("{head}{call}{ours}"));
    }

    #[test]
    fn a_channel_is_defined_where_it_is_declared() {
        let declared = "@__tilewright_channel = external addrspace(1) global [24 x i8], align 8\ndefine void @f() {\n";
        let defined = "@__tilewright_channel = addrspace(1) externally_initialized global [24 x i8] zeroinitializer, align 8\n\
                       define void @f() {\n";
        assert_eq!(with_channel(declared), defined);
        assert_eq!(with_channel("@x = external global i8\n"), "@x = external global i8\n");
    }
}
