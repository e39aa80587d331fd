//! Where in Rust something is that is refused.

use std::collections::HashSet;
use std::path::Path;

use super::lines::Lines;
use super::{each_instruction, readable};
use crate::inspect::has_opcode;
use crate::pass::arguments::is_of_argument;
use crate::pass::convergence::assembly;
use crate::pass::global_names;

/// Where in Rust a function first accesses memory through a pointer to no certain memory, and whether that is one of its arguments or comes
/// from one.
pub(super) fn generic(ir: &str, crate_dir: &Path, function: &str) -> Option<(Option<String>, bool)> {
    let lines = Lines::of(ir, crate_dir);
    let whole: Vec<&str> = body_of(ir, function).collect();
    // What is passed in memory itself is read where it is, although its pointer does not say so.
    let mut arguments: Vec<&str> = Vec::new();
    for &line in &whole {
        if line.starts_with("define ") {
            arguments = line.split(", ").filter(|part| part.contains("byval(")).filter_map(last_value).collect();
            continue;
        }
        let pointers = pointer_operands(line);
        let is_argument = pointers.iter().any(|pointer| arguments.contains(pointer));
        if let Some((result, _)) = line.trim_start().split_once(" = getelementptr ").filter(|_| is_argument) {
            arguments.push(result);
        }
        let accesses =
            ["load ", "store ", "atomicrmw ", "cmpxchg ", "@llvm.mem"].iter().any(|word| line.contains(word));
        if accesses && !pointers.is_empty() && !is_argument {
            let is_of_argument = pointers.iter().any(|pointer| is_of_argument(&whole, pointer));
            return Some((lines.of_instruction(line), is_of_argument));
        }
    }
    None
}

/// Where in Rust a function indexes an array in local memory by what is not known at compile time; or else calls a function with a pointer to
/// something there, of which the second value tells; or else accesses it.
pub(super) fn local(ir: &str, crate_dir: &Path, function: &str) -> (Option<String>, bool) {
    let lines = Lines::of(ir, crate_dir);
    let mut accesses = body_of(ir, function).filter(|line| line.contains("ptr addrspace(5) %")).peekable();
    let first = accesses.peek().copied();
    // The last operand is the index: `getelementptr float, ptr addrspace(5) %4, i64 %22, !dbg !7`.
    let indexed = accesses.find(|line| {
        let operands = line.split(", !dbg").next().unwrap_or(line);
        line.contains(" = getelementptr ")
            && operands.rsplit(", ").next().is_some_and(|index| index.contains('%') && !index.contains("ptr"))
    });
    if let Some(place) = indexed.and_then(|line| lines.of_instruction(line)) {
        return (Some(place), false);
    }
    match call_with_local(ir, function) {
        Some(call) => (lines.of_instruction(call), true),
        None => (first.and_then(|line| lines.of_instruction(line)), false),
    }
}

/// The first call of a function with a pointer to local memory, among the lines of its caller.
fn call_with_local<'a>(ir: &'a str, function: &'a str) -> Option<&'a str> {
    let body: Vec<&str> = body_of(ir, function).skip(1).collect();
    let mut pointers: HashSet<&str> = HashSet::new();
    loop {
        let known = pointers.len();
        for line in &body {
            let Some((result, operation)) = line.trim_start().split_once(" = ") else { continue };
            let keeps =
                ["addrspacecast ", "getelementptr ", "select ", "phi "].iter().any(|word| operation.starts_with(word));
            if operation.starts_with("alloca ") || keeps && values(operation).any(|value| pointers.contains(value)) {
                pointers.insert(result);
            }
        }
        if pointers.len() == known {
            break;
        }
    }
    // LLVM's own functions, such as the one that says where a variable's life begins, need no address.
    let calls = |line: &&&str| {
        let is_own = global_names(line).any(|(_, name)| name.starts_with("llvm."));
        line.contains("call ") && !is_own && assembly(line).is_none()
    };
    body.iter().filter(calls).find(|line| values(line).any(|value| pointers.contains(value))).copied()
}

/// The values that an instruction names, its own result included.
fn values(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', ',', '(', ')', '[', ']']).filter(|word| word.starts_with('%'))
}

/// Where a function calls another, or through a pointer.
pub(super) fn call(ir: &str, crate_dir: &Path, function: &str, callee: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    let calls = || body_of(ir, function).filter(|line| line.starts_with("  ") && line.contains("call "));
    let names = |line: &&str| global_names(line).any(|(_, name)| name == callee || readable(name) == callee);
    let is_through_pointer = |line: &&str| {
        assembly(line).is_none() && !global_names(line).any(|(range, _)| line[range.end..].starts_with('('))
    };
    let call = calls().find(names).or_else(|| calls().find(is_through_pointer))?;
    lines.of_instruction(call)
}

/// Where a function has an instruction of PTX as inline assembly.
pub(super) fn instruction(ir: &str, crate_dir: &Path, function: &str, instruction: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    let opcode = instruction.split(' ').next()?;
    let mut found = body_of(ir, function).filter(|line| assembly(line).is_some_and(|text| has_opcode(text, opcode)));
    found.find_map(|line| lines.of_instruction(line))
}

/// Where a function first reads constant memory.
pub(super) fn constant(ir: &str, crate_dir: &Path, function: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    body_of(ir, function).filter(|line| line.contains("ptr addrspace(4) ")).find_map(|line| lines.of_instruction(line))
}

/// Where a function first calls one of LLVM's own.
pub(super) fn intrinsic(ir: &str, crate_dir: &Path, function: &str, name: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    let mut calls = body_of(ir, function).filter(|line| global_names(line).any(|(_, called)| called == name));
    calls.find_map(|line| lines.of_instruction(line))
}

/// The file and the line where a function is defined.
pub(super) fn definition(ir: &str, crate_dir: &Path, function: &str) -> Option<String> {
    Lines::of(ir, crate_dir).of_function(body_of(ir, function).next()?)
}

/// Where a static is first used, by itself or by way of other statics: in this kernel, if it is there and is named.
pub(super) fn of_static(ir: &str, crate_dir: &Path, kernel: Option<&str>, name: &str) -> Option<String> {
    let lines = Lines::of(ir, crate_dir);
    let mut names: HashSet<&str> = HashSet::new();
    let defined = || ir.lines().filter(|line| line.starts_with('@'));
    names.extend(defined().flat_map(global_names).map(|(_, one)| one).filter(|one| readable(one) == name));
    loop {
        let known = names.len();
        for line in defined() {
            let mut named = global_names(line).map(|(_, name)| name);
            // Lists of what has to stay use nothing.
            let Some(holder) = named.next().filter(|holder| !holder.starts_with("llvm.")) else { continue };
            if named.any(|name| names.contains(name)) {
                names.insert(holder);
            }
        }
        if names.len() == known {
            break;
        }
    }
    let (mut in_kernel, mut anywhere) = (None, None);
    each_instruction(ir, |function, line| {
        if anywhere.is_some() && (in_kernel.is_some() || Some(function) != kernel) {
            return;
        }
        if global_names(line).any(|(_, name)| names.contains(name))
            && let Some(place) = lines.of_instruction(line)
        {
            if Some(function) == kernel {
                in_kernel.get_or_insert_with(|| place.clone());
            }
            anywhere.get_or_insert(place);
        }
    });
    in_kernel.or(anywhere)
}

/// Where an instruction of LLVM IR comes from.
pub(super) fn of_line(ir: &str, crate_dir: &Path, line: &str) -> Option<String> {
    Lines::of(ir, crate_dir).of_instruction(line)
}

/// Who calls a function first, and where in Rust.
pub(super) fn caller_of(ir: &str, crate_dir: &Path, callee: &str) -> Option<(String, Option<String>)> {
    let lines = Lines::of(ir, crate_dir);
    let mut found = None;
    each_instruction(ir, |function, line| {
        let calls = line.contains("call ") && global_names(line).any(|(_, name)| name == callee);
        if calls && function != callee && found.is_none() {
            found = Some((readable(function), lines.of_instruction(line)));
        }
    });
    found
}

/// The lines of a function, the first included.
fn body_of<'a>(ir: &'a str, function: &'a str) -> impl Iterator<Item = &'a str> {
    let begins = move |line: &&str| {
        let name = line.strip_prefix("define ").and_then(|line| global_names(line).next()).map(|(_, name)| name);
        name.is_some_and(|name| name == function || readable(name) == function)
    };
    ir.lines().skip_while(move |line| !begins(line)).take_while(|line| *line != "}")
}

/// The pointers that an instruction reads through, writes through or counts from, if they are to no certain memory.
fn pointer_operands(line: &str) -> Vec<&str> {
    let one = |(at, _): (usize, &'_ str)| -> Option<&str> {
        // Before the value there may be attributes: `ptr nonnull align 4 %1`. Memory is certain in `ptr addrspace(1) %1`.
        let operand = line[at..].split([',', ')', '(']).next()?;
        operand.split(' ').next_back().filter(|word| word.starts_with('%'))
    };
    let pointers: Vec<&str> = line.match_indices("ptr ").filter_map(one).collect();
    match line.trim_start() {
        // What is stored may be a pointer itself.
        store if store.starts_with("store ") => pointers.last().copied().into_iter().collect(),
        other if other.contains(" = getelementptr ") => pointers.first().copied().into_iter().collect(),
        _ => pointers,
    }
}

fn last_value(parameter: &str) -> Option<&str> {
    parameter.split([' ', ')']).rfind(|word| word.starts_with('%'))
}
