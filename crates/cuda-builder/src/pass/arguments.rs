//! Which memory the arguments of functions are pointers to, so that a function that is not inlined knows what its callers know.
//!
//! An array in shared or constant memory has its address space where it is named. A function that is given one has a pointer to no certain
//! memory, unless it is inlined. Where all of its calls agree, the link step says so at its beginning:
//!
//! ```text
//! call float @mirrored(ptr @TILE, i64 %3)
//! define float @mirrored(ptr %0, i64 %1) {
//! start:
//!      →  %tilewright.cast.0 = addrspacecast ptr %0 to ptr addrspace(3)
//!         %tilewright.argument.0 = addrspacecast ptr addrspace(3) %tilewright.cast.0 to ptr
//!   %2 = getelementptr float, ptr %0, i64 %1
//!      →  %2 = getelementptr float, ptr %tilewright.argument.0, i64 %1
//! ```
//!
//! Marks in `cuda_std`, as there are for global memory, would do it too, and change kernels without such functions: LLVM knows more of a
//! variable than of what a mark gives back.

use std::collections::{HashMap, HashSet};

use super::{Placed, entry_name, ir, marker};

/// The address spaces of arguments, of the functions that have any.
pub(super) type Spaces<'a> = HashMap<&'a str, Vec<(&'a str, u32)>>;

/// What is known of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Nothing that it can be has been seen yet.
    Unseen,
    /// It is to this address space.
    Space(u32),
    /// It may be to any memory.
    Any,
}

impl Memory {
    /// What is known of a pointer that is either of two.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unseen, one) | (one, Self::Unseen) => one,
            (one, other) if one == other => one,
            _ => Self::Any,
        }
    }
}

/// A function of the module.
struct Function<'a> {
    name: &'a str,
    /// For each parameter its name, if it is a pointer.
    parameters: Vec<Option<&'a str>>,
    body: Vec<&'a str>,
}

/// A call of a function in another, by their places in the list, with the arguments that are pointers.
struct Call<'a> {
    caller: usize,
    callee: usize,
    arguments: Vec<(usize, &'a str)>,
}

/// The arguments of the functions in a module that are pointers to shared or constant memory in all calls: for each function the names and
/// the address spaces.
pub(super) fn spaces<'a>(ir: &'a str, placed: &Placed<'_>) -> Spaces<'a> {
    let functions = functions(ir);
    let numbers: HashMap<&str, usize> =
        functions.iter().enumerate().map(|(number, function)| (function.name, number)).collect();
    // Of a function that is more than called, not all calls are known, and so it is with a kernel.
    let mut known: Vec<Vec<Memory>> = functions.iter().map(|it| vec![Memory::Unseen; it.parameters.len()]).collect();
    let mut is_open: Vec<bool> = vec![false; functions.len()];
    let mut calls = Vec::new();
    for line in ir.lines().filter(|line| line.starts_with('@')) {
        ir::global_names(line).filter_map(|(_, name)| numbers.get(name)).for_each(|&number| is_open[number] = true);
    }
    for (caller, function) in functions.iter().enumerate() {
        for line in &function.body {
            let called = callee(line);
            for (range, name) in ir::global_names(line) {
                let Some(&callee) = numbers.get(name) else { continue };
                match ir::parenthesized(line, range.end).filter(|_| called == Some(range.start)) {
                    Some(list) => calls.push(Call { caller, callee, arguments: pointers(list) }),
                    None => is_open[callee] = true,
                }
            }
        }
    }
    for (number, memories) in known.iter_mut().enumerate() {
        if is_open[number] {
            memories.fill(Memory::Any);
        }
    }
    loop {
        let before = known.clone();
        for Call { caller, callee, arguments } in &calls {
            for &(index, value) in arguments {
                let memory = functions[*caller].memory_of(value, placed, &known[*caller]);
                if let Some(known) = known[*callee].get_mut(index) {
                    *known = known.or(memory);
                }
            }
        }
        if known == before {
            break;
        }
    }
    let mut spaces = Spaces::new();
    for (function, memories) in functions.iter().zip(known) {
        for (parameter, memory) in function.parameters.iter().zip(memories) {
            if let (Some(name), Memory::Space(space)) = (parameter, memory) {
                spaces.entry(function.name).or_default().push((name, space));
            }
        }
    }
    spaces
}

/// The casts at the beginning of a function.
pub(super) fn casts(arguments: &[(&str, u32)]) -> String {
    let one = |&(name, space): &(&str, u32)| {
        let (cast, argument) = (derived(name, "cast"), derived(name, "argument"));
        format!(
            "  {cast} = addrspacecast ptr {name} to ptr addrspace({space})\n  \
             {argument} = addrspacecast ptr addrspace({space}) {cast} to ptr\n"
        )
    };
    arguments.iter().map(one).collect()
}

/// A line of the function with what the casts give in place of the arguments.
pub(super) fn with_arguments(line: &str, arguments: &[(&str, u32)]) -> String {
    ir::replace_locals(line, |local| {
        arguments.iter().any(|(name, _)| *name == local).then(|| derived(local, "argument"))
    })
}

/// The name of what is made of a local value.
fn derived(name: &str, what: &str) -> String {
    match name.strip_prefix("%\"") {
        Some(rest) => format!("%\"tilewright.{what}.{rest}"),
        None => format!("%tilewright.{what}.{}", name.trim_start_matches('%')),
    }
}

/// The functions that are defined, kernels among them.
fn functions(ir: &str) -> Vec<Function<'_>> {
    let mut functions: Vec<Function<'_>> = Vec::new();
    let mut is_inside = false;
    for line in ir.lines() {
        if line.starts_with("define ") {
            let Some((range, name)) = ir::global_names(line).next() else { continue };
            let list = ir::parenthesized(line, range.end).map(ir::split_list).unwrap_or_default();
            // A kernel's parameters are global memory, or in no memory at all.
            let parameters = match entry_name(line) {
                Some(_) => Vec::new(),
                None => list.into_iter().map(parameter).collect(),
            };
            functions.push(Function { name, parameters, body: Vec::new() });
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if let Some(function) = functions.last_mut().filter(|_| is_inside) {
            function.body.push(line);
        }
    }
    functions
}

/// The name of a parameter that is a pointer, if what is passed is that and not what it points to.
fn parameter(parameter: &str) -> Option<&str> {
    let is_pointer = parameter.starts_with("ptr ") && !["byval(", "sret("].iter().any(|word| parameter.contains(word));
    parameter.rsplit(' ').next().filter(|name| is_pointer && name.starts_with('%'))
}

/// Where the name of the function is that a line calls: nothing else has its arguments behind it.
fn callee(line: &str) -> Option<usize> {
    let call = ir::find(line, "call ")?;
    let called = ir::global_names(line).find(|(range, _)| range.start > call && line[range.end..].starts_with('('))?;
    Some(called.0.start)
}

/// The arguments in a list that are pointers, with their places.
fn pointers(list: &str) -> Vec<(usize, &str)> {
    ir::split_list(list).into_iter().enumerate().filter(|(_, argument)| argument.starts_with("ptr ")).collect()
}

impl<'a> Function<'a> {
    /// What memory a value is a pointer to, if this is known of the function's arguments.
    fn memory_of(&self, value: &'a str, placed: &Placed<'_>, arguments: &[Memory]) -> Memory {
        let (mut memory, mut open, mut seen) = (Memory::Unseen, vec![value], HashSet::new());
        while let Some(value) = open.pop() {
            let value = marker::value(value).unwrap_or(value);
            if !seen.insert(value) || value == "undef" || value == "poison" {
                continue;
            }
            let one = if !value.starts_with('%') {
                memory_of_constant(value, placed)
            } else if let Some(index) = self.parameters.iter().position(|parameter| *parameter == Some(value)) {
                arguments[index]
            } else if let Some(sources) = sources(&self.body, value) {
                open.extend(sources);
                continue;
            } else {
                Memory::Any
            };
            memory = memory.or(one);
        }
        memory
    }
}

/// What memory a variable is in, or a place counted from one.
fn memory_of_constant(value: &str, placed: &Placed<'_>) -> Memory {
    let is_place = value.starts_with('@') || value.starts_with("getelementptr ");
    let space = ir::global_names(value).next().and_then(|(_, name)| placed.space_of(name));
    space.filter(|space| is_place && matches!(space, 3 | 4)).map_or(Memory::Any, Memory::Space)
}

/// What a local pointer is made of, by counting from another or choosing among several; `None` if it is neither.
fn sources<'a>(body: &[&'a str], value: &str) -> Option<Vec<&'a str>> {
    let made_by = body.iter().find_map(|line| line.trim_start().strip_prefix(value)?.strip_prefix(" = "))?;
    let (opcode, operands) = made_by.split_once(' ')?;
    let listed = |list: &'a str, skip: usize, take: usize| ir::split_list(list).into_iter().skip(skip).take(take);
    match opcode {
        "getelementptr" => Some(listed(operands, 1, 1).collect()),
        "select" => Some(listed(operands, 1, 2).collect()),
        "freeze" => Some(listed(operands, 0, 1).collect()),
        "phi" => Some(operands.split("[ ").skip(1).flat_map(|one| listed(one, 0, 1)).collect()),
        _ => None,
    }
}

/// Whether a local pointer comes, perhaps among others, from an argument of its function, whose lines these are.
pub(crate) fn is_of_argument(function: &[&str], pointer: &str) -> bool {
    let Some((head, body)) = function.split_first() else { return false };
    let Some((range, _)) = ir::global_names(head).next() else { return false };
    let list = ir::parenthesized(head, range.end).map(ir::split_list).unwrap_or_default();
    let parameters: Vec<&str> = list.into_iter().filter_map(parameter).collect();
    let (mut open, mut seen) = (vec![pointer], HashSet::new());
    while let Some(pointer) = open.pop() {
        let pointer = marker::value(pointer).unwrap_or(pointer);
        if parameters.contains(&pointer) {
            return true;
        }
        if seen.insert(pointer) {
            open.extend(sources(body, pointer).unwrap_or_default());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"
@TILE = internal global [128 x i8] undef, section ".shared", align 4
@"other tile" = internal global [128 x i8] undef, section ".shared", align 4
@TABLE = internal constant [8 x i8] c"section ", section ".constant", align 4
@PLAIN = internal constant [8 x i8] c"@taken(@", align 4
@FUNCTIONS = internal constant [1 x ptr] [ptr @taken]

define ptx_kernel void @k(ptr noundef %0, i64 %1) {
start:
  %2 = getelementptr inbounds nuw float, ptr @TILE, i64 %1
  %3 = select i1 true, ptr %2, ptr @"other tile"
  %4 = tail call noundef float @direct(ptr noundef nonnull align 4 %3, i64 4, ptr @TABLE) #9, !dbg !7
  %5 = call align 8 dereferenceable(8) ptr @chained(i64 %1, ptr getelementptr inbounds nuw (i8, ptr @TILE, i64 64))
  %6 = call float @direct(ptr @"other tile", i64 4, ptr @TABLE)
  call void @mixed(ptr @TILE, ptr @TABLE, ptr @PLAIN)
  call void @mixed(ptr @TABLE, ptr null, ptr @PLAIN)
  call void @taken(ptr @TILE)
  call void %5(ptr @TILE)
  call void @by_value(ptr byval([8 x i8]) align 8 @TABLE)
  call void @global(ptr %0)
  ret void
}

define internal fastcc noundef float @direct(ptr noundef %tile, i64 %1, ptr %"a+table") #1 {
  %2 = load float, ptr %tile
  ret float %2
}

define internal ptr @chained(i64 %0, ptr %1) {
start:
  br label %bb1
bb1:
  %2 = phi ptr [ %1, %start ], [ %3, %bb1 ]
  %3 = getelementptr { float, [3 x i32] }, ptr %2, i64 %0
  %4 = freeze ptr %3
  call void @recursive(ptr %4, ptr poison)
  br label %bb1
}

define internal void @recursive(ptr %0, ptr %1) {
  call void @recursive(ptr %0, ptr %0), !dbg !3
  ret void
}

define internal void @mixed(ptr %0, ptr %1, ptr %2) {
  ret void
}

define internal void @taken(ptr %0) {
  ret void
}

define internal void @by_value(ptr byval([8 x i8]) align 8 %0) {
  ret void
}

define internal void @global(ptr %0) {
  ret void
}
"#;

    fn spaces_in(ir: &str) -> Vec<(&str, Vec<(&str, u32)>)> {
        let placed = Placed { shared: HashSet::from(["TILE", "other tile"]), constant: HashSet::from(["TABLE"]) };
        let mut found: Vec<_> = spaces(ir, &placed).into_iter().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn arguments_are_known_where_all_calls_agree() {
        let expected = [
            ("chained", vec![("%1", 3)]),
            ("direct", vec![("%tile", 3), ("%\"a+table\"", 4)]),
            ("recursive", vec![("%0", 3), ("%1", 3)]),
        ];
        assert_eq!(spaces_in(MODULE), expected);
        // Another call, of which nothing is known, and functions that are stored somewhere. What one passes on, is then unknown, too.
        for (from, to, known) in [
            (
                "@global(ptr %0)\n  ret",
                "@global(ptr %0)\n  call float @direct(ptr %0, i64 1, ptr @TABLE)\n  ret",
                &["chained", "direct %\"a+table\"", "recursive"][..],
            ),
            ("  call void @by_value", "  store ptr @chained, ptr %0\n  call void @by_value", &["direct"]),
            ("[ptr @taken]", "[ptr @recursive]", &["chained", "direct", "taken"]),
        ] {
            let module = MODULE.replacen(from, to, 1);
            assert_ne!(module, MODULE);
            let found: Vec<String> = spaces_in(&module)
                .into_iter()
                .map(|(name, arguments)| match (name, &arguments[..]) {
                    ("direct", [(argument, _)]) => format!("direct {argument}"),
                    _ => name.to_owned(),
                })
                .collect();
            assert_eq!(found, known);
        }
        assert_eq!(spaces_in(""), []);
    }

    #[test]
    fn a_function_begins_with_its_casts() {
        let rewritten = super::super::rewrite(
            &MODULE.replace("define ptx_kernel", "define").replace("\"other tile\"", "TILE"),
            crate::Arch::Sm80,
        );
        let ir = rewritten.unwrap().ir;
        let expected = "define internal fastcc noundef float @direct(ptr noundef %tile, i64 %1, ptr %\"a+table\") #1 {\n  \
            %tilewright.cast.tile = addrspacecast ptr %tile to ptr addrspace(3)\n  \
            %tilewright.argument.tile = addrspacecast ptr addrspace(3) %tilewright.cast.tile to ptr\n  \
            %\"tilewright.cast.a+table\" = addrspacecast ptr %\"a+table\" to ptr addrspace(4)\n  \
            %\"tilewright.argument.a+table\" = addrspacecast ptr addrspace(4) %\"tilewright.cast.a+table\" to ptr\n  \
            %2 = load float, ptr %tilewright.argument.tile\n  ret float %2\n}\n";
        assert!(ir.contains(expected), "{ir}");
        let expected =
            "define internal ptr @chained(i64 %0, ptr %1) {\nstart:\n  %tilewright.cast.1 = addrspacecast ptr %1 to";
        assert!(ir.contains(expected), "{ir}");
        assert!(ir.contains("%2 = phi ptr [ %tilewright.argument.1, %start ], [ %3, %bb1 ]"), "{ir}");
        assert!(ir.contains("define internal void @mixed(ptr %0, ptr %1, ptr %2) {\n  ret void\n}"), "{ir}");
    }

    #[test]
    fn a_pointer_may_come_from_an_argument() {
        let function: Vec<&str> = MODULE
            .lines()
            .skip_while(|line| !line.contains("@chained(i64 %0"))
            .take_while(|line| *line != "}")
            .collect();
        assert!(["%1", "%2", "%3", "%4"].iter().all(|pointer| is_of_argument(&function, pointer)));
        assert!(!is_of_argument(&function, "%9") && !is_of_argument(&function, "%0") && !is_of_argument(&[], "%1"));
    }
}
