//! Finds what rustc has copied of what threads have to come to together.
//!
//! rustc's jump threading copies what stands between two branches on the same condition into both arms:
//!
//! ```text
//!  let last = …;              br %c, %then, %else
//!  sync_threads();            then: call @sync_threads(), !dbg !7   ─┬─ one place in the source,
//!  if last { … }              else: call @sync_threads(), !dbg !7   ─┘  twice in one function
//! ```
//!
//! Where only some threads of a block take an arm, these then wait for the others at another barrier, for ever. LLVM can be told of calls
//! that must not be copied, rustc cannot. But before any of LLVM's passes, each place in the source is one call in its function, unless
//! rustc has copied it, or a macro has written it twice.

use std::collections::{HashMap, HashSet};

use super::convergence::{assembly, is_together};
use super::ir::global_names;

/// A call of a function, or inline assembly, and the number of its place in the source.
#[derive(PartialEq, Eq, Hash)]
struct Call<'a> {
    function: &'a str,
    what: What<'a>,
    place: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What<'a> {
    Function(&'a str),
    Assembly(&'a str),
}

/// The functions in which something stands twice that threads have to come to together, in a module that none of LLVM's passes has
/// changed, and that knows the lines of its source.
pub(crate) fn copied(ir: &str) -> Vec<String> {
    let mut calls = HashSet::new();
    let mut twice = Vec::new();
    // Who is called by whom, and in which functions or declarations threads come together.
    let mut callers: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut together: Vec<&str> = Vec::new();
    let [convergent, never_return] = ["convergent", "noreturn"].map(|attribute| groups_with(ir, attribute));
    // Who panics meets nobody any more.
    let mut ending: HashSet<&str> = HashSet::new();
    let mut function = "";
    for line in ir.lines() {
        if let Some(head) = line.strip_prefix("define ").or_else(|| line.strip_prefix("declare ")) {
            function = global_names(head).next().map_or("", |(_, name)| name);
            let is_in = |groups: &HashSet<&str>| head.split(' ').any(|word| groups.contains(word));
            if is_in(&never_return) {
                ending.insert(function);
            }
            // rustc calls every other declaration so, too.
            if line.starts_with("declare ") && function.starts_with("llvm.") && is_in(&convergent) {
                together.push(function);
            }
            continue;
        }
        if !line.contains("call ") {
            continue;
        }
        let what = match assembly(line) {
            Some(text) if is_together(text) => {
                together.push(function);
                What::Assembly(text)
            }
            Some(_) => continue,
            None => {
                let Some((_, callee)) = global_names(line).next() else { continue };
                callers.entry(callee).or_default().push(function);
                What::Function(callee)
            }
        };
        let Some(place) = line.split_once(", !dbg ").map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or(rest))
        else {
            continue;
        };
        if !calls.insert(Call { function, what, place }) {
            twice.push((function, what));
        }
    }
    // All that call something that threads come together in.
    together.retain(|function| !ending.contains(function));
    let mut all: HashSet<&str> = together.iter().copied().collect();
    while let Some(callee) = together.pop() {
        let callers = callers.get(callee).into_iter().flatten().copied();
        let new: Vec<&str> = callers.filter(|caller| !ending.contains(caller) && all.insert(caller)).collect();
        together.extend(new);
    }
    let is_meant = |(function, what): (&str, What<'_>)| match what {
        What::Assembly(_) => Some(function.to_owned()),
        What::Function(callee) => all.contains(callee).then(|| function.to_owned()),
    };
    let mut found: Vec<String> = twice.into_iter().filter_map(is_meant).collect();
    found.sort();
    found.dedup();
    found
}

/// The names of the groups of attributes that have this one: `#3` of `attributes #3 = { convergent nounwind }`.
fn groups_with<'a>(ir: &'a str, attribute: &str) -> HashSet<&'a str> {
    let groups = ir.lines().filter_map(|line| line.strip_prefix("attributes ")?.split_once(" = "));
    groups.filter(|(_, attributes)| attributes.split(' ').any(|word| word == attribute)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"
declare void @llvm.nvvm.barrier0() #3

declare float @llvm.sqrt.f32(float) #4

declare ptr @__marker(ptr) #3

define internal void @meets(ptr %0) #1 !dbg !3 {
  call void @llvm.nvvm.barrier0() #9, !dbg !10
  ret void, !dbg !11
}

define internal void @"by way"() #1 !dbg !4 {
  call void @meets(ptr null), !dbg !20
  ret void
}

define internal void @panics() #5 !dbg !6 {
  call void asm sideeffect "activemask.b32 $0;", "~{memory}"(), !dbg !40
  unreachable
}

define internal void @checks() #1 !dbg !7 {
  call void @panics(), !dbg !41
  ret void
}

define ptx_kernel void @kernel() #1 !dbg !5 {
start:
  call void @panics(), !dbg !36
  call void @panics(), !dbg !36
  call void @checks(), !dbg !37
  call void @checks(), !dbg !37
  %5 = call ptr @__marker(ptr null), !dbg !38
  %6 = call ptr @__marker(ptr null), !dbg !38
  call void asm sideeffect "bar.sync 1;", "~{memory}"(), !dbg !33, !srcloc !4
  %1 = call float @llvm.sqrt.f32(float 2.0), !dbg !30
  %2 = call float @llvm.sqrt.f32(float 2.0), !dbg !30
  call void @"by way"(), !dbg !31
  call void @"by way"(), !dbg !32
  call void asm sideeffect "bar.sync 0;", "~{memory}"(), !dbg !33, !srcloc !4
  call void asm sideeffect "bar.sync 0;", "~{memory}"(), !dbg !34, !srcloc !4
  %3 = call i32 asm "mov.u32 ${0}, %laneid;", "=&r"(), !dbg !35, !srcloc !31
  %4 = call i32 asm "mov.u32 ${0}, %laneid;", "=&r"(), !dbg !35, !srcloc !31
  ret void
}

attributes #1 = { nounwind "target-cpu"="sm_80" }
attributes #3 = { convergent nounwind }
attributes #4 = { nounwind memory(none) }
attributes #5 = { noreturn nounwind "target-cpu"="sm_80" }
"#;

    #[test]
    fn what_stands_twice_is_found_if_threads_come_together_there() {
        assert_eq!(copied(MODULE), [""; 0]);
        // A barrier, a function that leads to one by way of another, and that other's own call.
        for (from, to, function) in [
            ("!dbg !34", "!dbg !33", "kernel"),
            ("!dbg !32", "!dbg !31", "kernel"),
            ("  ret void, !dbg !11", "  call void @llvm.nvvm.barrier0() #9, !dbg !10\n  ret void, !dbg !11", "meets"),
        ] {
            let module = MODULE.replacen(from, to, 1);
            assert_ne!(module, MODULE);
            assert_eq!(copied(&module), [function]);
        }
    }

    #[test]
    fn a_module_without_lines_says_nothing() {
        let without: String =
            MODULE.lines().map(|line| format!("{}\n", line.split(", !dbg").next().unwrap())).collect();
        assert_eq!(copied(&without), [""; 0]);
    }
}
