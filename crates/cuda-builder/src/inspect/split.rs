//! One module of PTX for each kernel.
//!
//! ```text
//!  .version .target .address_size ─────────────┬──────────────────┐
//!  .extern .shared dynamic[]       ──┐         │                  │
//!  .shared TILE[1024]              ──┼──┐      ▼                  ▼
//!  .func helper { … TABLE … }      ──┼──┼─▶  head               head
//!  .global TABLE = { … }           ──┼──┼─▶  TILE               dynamic
//!  .entry a { … TILE … }             │  └─▶  .entry a           TABLE, helper
//!  .entry b { … dynamic … helper … } └────────────────────────▶ .entry b
//! ```
//!
//! A driver compiles a whole module when it loads it, whichever of its kernels is wanted, and dynamic shared memory
//! that one kernel uses raises the alignment of every other one's shared memory. Neither is so for a module of one kernel.

use std::collections::{HashMap, HashSet};

use super::check_error::CheckError;
use super::ptx::Ptx;
use super::text::{Item, head_files_and_code, items, words};

/// The kernels of a module, in its order: the name of each, and a module with that kernel alone and everything that it
/// refers to, directly or through something else: variables, functions, prototypes. What has no name is in every one.
/// Comments are left out.
///
/// A variable that two kernels refer to is in both modules. For shared memory, which each launch has its own of, and for
/// constants that makes no difference; the build refuses writable variables elsewhere.
///
/// # Errors
/// [`CheckError::Malformed`] if it is no PTX, if a kernel would not be the same in its own module, or if two things have
/// one name.
pub fn split_by_kernel(text: &str) -> Result<Vec<(String, String)>, CheckError> {
    split(text, &Ptx::parse(text)?)
}

/// The same, of a module that has been parsed already.
pub(crate) fn split(text: &str, whole: &Ptx) -> Result<Vec<(String, String)>, CheckError> {
    let (head, files, code) = head_files_and_code(text, true);
    let items = items(&code).ok_or_else(|| CheckError::Malformed("it ends in the middle of something".to_owned()))?;
    let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, item) in items.iter().enumerate() {
        if let Some(name) = item.name() {
            // A prototype and its function have one name.
            named.entry(name).or_default().push(position);
        }
    }

    let mut modules = Vec::new();
    for (position, kernel) in items.iter().enumerate().filter(|(_, item)| item.is_kernel()) {
        let malformed = |what: &str| CheckError::Malformed(format!("`{}` {what}", kernel.name().unwrap_or("a kernel")));
        let wanted = closure(position, &items, &named);
        let kernels = wanted.iter().filter(|&&wanted| items[wanted].is_kernel()).count();
        if kernels != 1 {
            return Err(malformed("refers to another kernel by its name"));
        }
        let mut module = head.join("\n") + "\n\n";
        for (_, item) in items.iter().enumerate().filter(|(at, item)| wanted.contains(at) || item.name().is_none()) {
            module += &item.text();
        }
        let used: HashSet<&str> =
            module.lines().filter_map(|line| line.trim_start().strip_prefix(".loc")).filter_map(file_of).collect();
        let files: String = files
            .iter()
            .filter(|file| file.strip_prefix(".file").and_then(file_of).is_some_and(|number| used.contains(number)))
            .map(|file| format!("{file}\n"))
            .collect();
        module += &files;

        let parsed = Ptx::parse(&module)?;
        let mut alone = parsed.kernels();
        let (Some(alone), None) = (alone.next(), alone.next()) else {
            return Err(malformed("is not the one kernel in a module of its own"));
        };
        let same = whole.kernels().find(|kernel| kernel.name == alone.name) == Some(alone);
        if !same || parsed.undefined.iter().any(|name| !whole.undefined.contains(name)) {
            return Err(malformed("is not the same in a module of its own"));
        }
        modules.push((alone.name.clone(), module));
    }
    Ok(modules)
}

/// The number of a file, the first operand of `.loc` and `.file`.
fn file_of(operands: &str) -> Option<&str> {
    operands.split_ascii_whitespace().next()
}

/// The instructions that are one word, which may be a kernel's name, too. All others have a type: no name has a dot.
const BARE_OPCODES: [&str; 6] = ["ret", "exit", "trap", "brkpt", "bra", "call"];

/// The registers that a function declares. Those of inline assembly have names that a kernel may have.
fn registers(text: &str) -> HashSet<&str> {
    let declared = text.split([';', '{', '}']).filter_map(|statement| statement.trim_start().strip_prefix(".reg"));
    declared.flat_map(words).collect()
}

/// The positions of the items that one refers to, itself included.
fn closure(start: usize, items: &[Item<'_>], named: &HashMap<&str, Vec<usize>>) -> HashSet<usize> {
    let mut wanted = HashSet::from([start]);
    let mut open = vec![start];
    while let Some(position) = open.pop() {
        let text = items[position].text();
        let registers = registers(&text);
        let names = words(&text).filter(|word| !BARE_OPCODES.contains(word) && !registers.contains(word));
        for &other in names.filter_map(|word| named.get(word)).flatten() {
            if wanted.insert(other) {
                open.push(other);
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "\
//
// Generated by LLVM
//
.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 dynamic[];
.shared .align 4 .b8 TILE[128];
.shared .align 4 .b8 TILE_2[64];
.global .align 4 .u32 numbers[2] = {1, 2};
.const .align 8 .u64 table[2] = {generic(numbers), 0};
.func (.param .b32 result) helper
(
	.param .b64 p
)
;
.func leaf() { ld.const.u64 %rd1, [table+8]; ret; }
	// .globl	plain // -- Begin function plain
.visible .entry plain(
	.param .u64 plain_param_0
)
.reqntid 32, 8, 1
{
	.shared .align 4 .b8 OWN[16];
	{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd12; }
	st.shared.b32 [TILE_2+4], %r1; // TILE
	ret;
}
.visible .entry large() .reqntid 128
{
	mov.b32 %r1, dynamic;
	call.uni (retval0), helper, (param0);
	ret;
}
.func (.param .b32 result) helper(.param .b64 p)
{
	call.uni leaf;
	ld.shared.b32 %r1, [TILE];
	ret;
}
";

    #[test]
    fn every_kernel_gets_what_it_refers_to_and_nothing_else() {
        let modules = split_by_kernel(MODULE).unwrap();
        let [(plain_name, plain), (large_name, large)] = &modules[..] else { panic!("{modules:?}") };
        assert_eq!((plain_name.as_str(), large_name.as_str()), ("plain", "large"));
        let has = |module: &str, parts: &[&str]| parts.iter().all(|part| module.contains(part));
        assert!(has(plain, &["TILE_2[64]", "OWN[16]", ".param .u64 plain_param_0", ".reqntid 32, 8, 1"]), "{plain}");
        for other in ["TILE[", "dynamic", "helper", "leaf", "numbers", "table", "large"] {
            assert!(!plain.contains(other), "{other} in {plain}");
        }
        assert!(
            has(large, &["dynamic[]", "TILE[128]", "numbers[2] = {1, 2}", "table[2]", "helper", "leaf"]),
            "{large}"
        );
        assert!(!has(large, &["TILE_2"]) && !has(large, &["plain"]), "{large}");
        for (name, module) in &modules {
            let whole = Ptx::parse(MODULE).unwrap();
            let parsed = Ptx::parse(module).unwrap();
            assert_eq!((parsed.version, &parsed.target), (whole.version, &whole.target));
            assert!(module.starts_with(".version 8.0\n.target sm_90a\n.address_size 64\n"), "{module}");
            assert_eq!(parsed.kernels().next(), whole.kernels().find(|kernel| kernel.name == *name));
            assert!(parsed.undefined.is_empty(), "{:?}", parsed.undefined);
        }
    }

    #[test]
    fn a_kernel_may_be_called_as_an_instruction() {
        for name in ["ret", "exit", "trap", "add", "tmp"] {
            let body = "call.uni leaf; { .reg .pred p, tmp; @tmp exit; add.u32 %r1, %r1, 1; trap; }";
            let module = MODULE.replace("entry plain(", &format!("entry {name}(")).replace("call.uni leaf;", body);
            let names: Vec<String> = split_by_kernel(&module).unwrap().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [name, "large"]);
        }
    }

    #[test]
    fn what_has_no_name_is_in_every_module() {
        let modules =
            split_by_kernel(&MODULE.replace(".address_size 64\n", ".address_size 64\n.pragma \"nounroll\";\n"));
        for (_, module) in modules.unwrap() {
            assert!(module.contains(".pragma"), "{module}");
        }
    }

    #[test]
    fn kernels_that_cannot_stand_alone_are_refused() {
        let refused = |module: &str| split_by_kernel(module).unwrap_err().to_string();
        let error = refused(&MODULE.replace("call.uni leaf", "call.uni plain"));
        assert!(error.contains("`large` refers to another kernel"), "{error}");
        let twice = MODULE.replace(".visible .entry large() .reqntid 128", ".visible .entry plain() .reqntid 128");
        assert!(refused(&twice).contains("`plain` refers to another kernel"), "{}", refused(&twice));
        assert!(refused("hello").contains("no `.version`"));
    }

    #[test]
    fn a_module_without_kernels_gives_none() {
        assert_eq!(split_by_kernel(".version 7.0\n.target sm_80\n"), Ok(Vec::new()));
    }
}
