//! Reading PTX: what a module defines, and every instruction in it that touches memory.
//!
//! PTX is a list of statements, each ended by `;`, and of functions, each with a body in braces. An instruction that
//! touches memory says in its opcode which memory: `ld.global.b32`, `st.shared.b32`. Without that word it is generic, and
//! finds out at run time from the address: slower, and a sign that the compiler lost track of a pointer.

use std::collections::HashSet;

use super::check_error::CheckError;
use super::targets::Needs;
use super::text::{Item, array, function_name, head_and_code, instruction, items, parse_version, words};

/// A module of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// The version of the language, as `.version` says.
    pub version: (u32, u32),
    /// The architecture, as `.target` says.
    pub target: String,
    /// The kernels and the functions that they call.
    pub functions: Vec<Function>,
    /// Functions that are called but not defined.
    pub undefined: Vec<String>,
    /// Functions that are named other than in calls, so that there may be pointers to them.
    pub pointed_to: Vec<String>,
}

/// A kernel, or a function that was not inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in the PTX.
    pub name: String,
    /// Whether it is an entry point.
    pub is_kernel: bool,
    /// The shape of a block (`.reqntid`); where launches choose it, the most threads that it can have, in a row (`.maxntid`).
    pub block: Option<[u32; 3]>,
    /// How many blocks have to fit on a multiprocessor (`.minnctapersm`).
    pub min_blocks: Option<u32>,
    /// The blocks of a cluster (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// The sizes of the static shared arrays that the body names, added up, in bytes.
    pub shared_bytes: u64,
    /// The sizes of the arrays in constant memory that the body names, added up, in bytes.
    pub constant_bytes: u64,
    /// Local memory: arrays that are not in registers, in bytes.
    pub local_bytes: u64,
    /// Every load, store, atomic operation and reduction, in order.
    pub memory: Vec<MemoryInstruction>,
    /// What instructions need that not all architectures have: of each need the first instruction.
    pub needs: Vec<(Needs, String)>,
    /// The names in its calls, those of the functions among them.
    pub calls: Vec<String>,
}

/// A load, store, atomic operation or reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryInstruction {
    /// The opcode with everything that belongs to it: `ld.global.v4.b32`.
    pub opcode: String,
    /// The whole instruction, without guard and label.
    pub text: String,
}

impl MemoryInstruction {
    /// The state space that the opcode names: `global`, `shared`, `param`, `local` or `const`; `None` if it is generic.
    pub fn space(&self) -> Option<&str> {
        let spaces = ["global", "shared", "param", "local", "const"];
        // `.shared::cta`, `.param::entry` and the like name a part of a space.
        self.opcode
            .split('.')
            .skip(1)
            .map(|part| part.split(':').next().unwrap_or(part))
            .find(|part| spaces.contains(part))
    }
}

impl Ptx {
    /// Reads a module as LLVM writes it.
    ///
    /// # Errors
    /// [`CheckError::Malformed`] if it is no PTX, or ends in the middle.
    pub fn parse(text: &str) -> Result<Self, CheckError> {
        let malformed = |what: &str| CheckError::Malformed(what.to_owned());
        let (head, code) = head_and_code(text);
        let operand = |directive: &str| {
            head.iter().find_map(|line| line.strip_prefix(directive)?.split_ascii_whitespace().next())
        };
        let version = operand(".version").and_then(parse_version).ok_or_else(|| malformed("there is no `.version`"))?;
        let target = operand(".target").ok_or_else(|| malformed("there is no `.target`"))?;
        let target = target.trim_end_matches(',').to_owned();
        let mut module = Self { version, target, functions: Vec::new(), undefined: Vec::new(), pointed_to: Vec::new() };
        let (mut shared, mut constant) = (Vec::new(), Vec::new());
        // What is named other than in calls: of a function there may be a pointer to it.
        let mut named: HashSet<&str> = HashSet::new();
        for item in items(&code).ok_or_else(|| malformed("it ends in the middle of something"))? {
            match item {
                Item::Function { header, body } => {
                    let function = Function::parse(header, body, &shared, &constant)
                        .ok_or_else(|| CheckError::Malformed(format!("what function is this: `{}`", header.trim())))?;
                    module.functions.push(function);
                    let others = body.split(';').filter(|statement| !is_call(instruction(statement)));
                    named.extend(others.flat_map(words).filter(|word| !word.starts_with(['%', '$', '.'])));
                }
                Item::Statement(statement) if words(statement).any(|word| word == ".func") => {
                    module.undefined.extend(function_name(statement, ".func").map(str::to_owned));
                }
                Item::Statement(statement) if words(statement).any(|word| word == ".shared") => {
                    shared.extend(array(statement));
                }
                Item::Statement(statement) if words(statement).any(|word| word == ".const") => {
                    constant.extend(array(statement.split('=').next().unwrap_or(statement)));
                }
                // Its value may have pointers to functions.
                Item::Statement(statement) => named.extend(words(statement)),
            }
        }
        let names = module.functions.iter().map(|function| &function.name);
        module.pointed_to = names.filter(|name| named.contains(name.as_str())).cloned().collect();
        // A prototype may stand before a definition.
        module.undefined.retain(|name| module.functions.iter().all(|function| function.name != *name));
        Ok(module)
    }

    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_kernel)
    }
}

impl Function {
    fn parse(header: &str, body: &str, shared: &[(String, u64)], constant: &[(String, u64)]) -> Option<Self> {
        let is_kernel = words(header).any(|word| word == ".entry");
        let name = function_name(header, if is_kernel { ".entry" } else { ".func" })?.to_owned();
        let numbers = |directive: &str| -> Vec<u32> {
            let after = header.split_once(directive).map_or("", |(_, after)| after);
            let list = after.split(['\n', '.']).next().unwrap_or("");
            list.split(',').map_while(|number| number.trim().parse().ok()).collect()
        };
        let extents = |numbers: &[u32]| match *numbers {
            [] => None,
            [x] => Some([x, 1, 1]),
            [x, y] => Some([x, y, 1]),
            [x, y, z, ..] => Some([x, y, z]),
        };
        let block = extents(&numbers(".reqntid")).or_else(|| extents(&numbers(".maxntid")));
        let mut function = Self {
            name,
            is_kernel,
            block,
            min_blocks: numbers(".minnctapersm").first().copied(),
            cluster: extents(&numbers(".reqnctapercluster")),
            shared_bytes: 0,
            constant_bytes: 0,
            local_bytes: 0,
            memory: Vec::new(),
            needs: Vec::new(),
            calls: Vec::new(),
        };
        for statement in body.split(';') {
            let statement = instruction(statement);
            if statement.starts_with(".shared") {
                // LLVM moves an array that one function alone uses into that function.
                let bytes = array(statement).map_or(0, |(_, bytes)| bytes);
                function.shared_bytes = function.shared_bytes.saturating_add(bytes);
            }
            if statement.starts_with(".local") {
                // An array without a size that can be read is still in local memory.
                let bytes = array(statement).map_or(1, |(_, bytes)| bytes.max(1));
                function.local_bytes = function.local_bytes.saturating_add(bytes);
            }
            let opcode = statement.split_ascii_whitespace().next().unwrap_or("");
            if is_call(statement) {
                function.calls.extend(words(statement).skip(1).map(str::to_owned));
            }
            if let Some(needs) = Needs::of(statement)
                && function.needs.iter().all(|(known, _)| *known != needs)
            {
                function.needs.push((needs, statement.split_ascii_whitespace().collect::<Vec<_>>().join(" ")));
            }
            if matches!(opcode.split('.').next(), Some("ld" | "ldu" | "st" | "atom" | "red")) {
                let text = statement.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
                function.memory.push(MemoryInstruction { opcode: opcode.to_owned(), text });
            }
        }
        let named: HashSet<&str> = words(body).collect();
        let named = |arrays: &[(String, u64)], own: u64| {
            let named = arrays.iter().filter(|(name, _)| named.contains(name.as_str()));
            named.map(|&(_, bytes)| bytes).fold(own, u64::saturating_add)
        };
        function.shared_bytes = named(shared, function.shared_bytes);
        function.constant_bytes = named(constant, 0);
        Some(function)
    }
}

/// Whether an instruction is a call.
fn is_call(instruction: &str) -> bool {
    instruction.starts_with("call.") || instruction.starts_with("call ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The PTX of a kernel with this body, beside some arrays.
    pub(in super::super) fn module(body: &str) -> Ptx {
        let text = format!(
            ".version 7.8\n.target sm_90a\n.address_size 64\n\n\t// .globl k\n\
             .extern .shared .align 1024 .b8 dynamic[];\n.shared .align 4 .b8 TILE[128];\n.shared .align 4 .b8 TILE2[64];\n\
             .global .align 4 .u32 table[2] = {{1, 2}};\n\
             .visible .entry k(\n\t.param .u64 .ptr .align 1 k_param_0\n)\n.reqntid 32, 8, 1\n.minnctapersm 2\n\
             {{\n{body}\n}}\n"
        );
        Ptx::parse(&text).unwrap()
    }

    #[test]
    fn reads_a_kernel() {
        let module =
            module(".shared .align 4 .b8 OWN[16];\n\tmov.b64 %rd1, TILE;\n\tld.param.b64 %rd2, [k_param_0];\n\tret;");
        assert_eq!((module.version, module.target.as_str()), ((7, 8), "sm_90a"));
        let kernel = module.kernels().next().unwrap();
        assert_eq!((kernel.name.as_str(), kernel.block, kernel.min_blocks), ("k", Some([32, 8, 1]), Some(2)));
        assert_eq!((kernel.shared_bytes, kernel.local_bytes, kernel.cluster), (144, 0, None));
    }

    #[test]
    fn reads_the_blocks_of_a_cluster() {
        let text = ".version 7.8\n.target sm_90\n.visible .entry k()\n.reqntid 32, 1, 1\n.explicitcluster\n.reqnctapercluster 4, 2, 3 // @k\n\
                    {\n\tret;\n}\n";
        assert_eq!(Ptx::parse(text).unwrap().kernels().next().unwrap().cluster, Some([4, 2, 3]));
    }

    #[test]
    fn reads_the_bound_of_a_block() {
        let text = ".version 7.4\n.target sm_80\n.visible .entry k()\n.maxntid 256\n{\n\tret;\n}\n";
        let module = Ptx::parse(text).unwrap();
        assert_eq!(module.kernels().next().unwrap().block, Some([256, 1, 1]));
        let unbounded = Ptx::parse(&text.replace(".maxntid 256\n", "")).unwrap();
        assert_eq!(unbounded.check(&["k".to_owned()]), Err(CheckError::NoLaunchBounds("k".to_owned())));
    }

    #[test]
    fn finds_every_memory_instruction() {
        let body = "$L__BB0_1: // a label\n\t@%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];\n\t{ // inline asm\n\
                    \tst.shared.b32 [%r1], %r2; red.global.add.f32 [%rd1], %f1;\n\t}\n\tatom.shared::cta.add.u32 %r1, [%r2], 1;\n\
                    \tld.volatile.global.b32 %r1, [%rd1];\n\tcvta.shared.u64 %rd1, %rd2;\n\tset.eq.u32.u32 %r1, %r2, %r3;";
        let module = module(body);
        let kernel = module.kernels().next().unwrap();
        let found: Vec<_> =
            kernel.memory.iter().map(|access| (access.opcode.as_str(), access.space().unwrap())).collect();
        let expected = [
            ("ld.global.v4.b32", "global"),
            ("st.shared.b32", "shared"),
            ("red.global.add.f32", "global"),
            ("atom.shared::cta.add.u32", "shared"),
            ("ld.volatile.global.b32", "global"),
        ];
        assert_eq!(found, expected);
        assert_eq!(kernel.memory[0].text, "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]");
    }

    #[test]
    fn refuses_what_is_no_ptx() {
        for text in ["", "hello", ".version 7.0\n", ".version 7.0\n.target sm_80\n.visible .entry k()\n{ ret;"] {
            assert!(matches!(Ptx::parse(text), Err(CheckError::Malformed(_))), "{text}");
        }
    }
}
