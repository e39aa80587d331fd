//! Reading PTX: what a module defines, and every instruction in it that touches memory.
//!
//! PTX is a list of statements, each ended by `;`, and of functions, each with a body in braces. An instruction that
//! touches memory says in its opcode which memory: `ld.global.b32`, `st.shared.b32`. Without that word it is generic, and
//! finds out at run time from the address: slower, and a sign that the compiler lost track of a pointer.

use std::collections::HashSet;

use rustc_demangle::demangle;

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
    /// The first instruction that only some architectures have, and the lowest of them: `90` is `sm_90`.
    pub needs: Option<(u32, String)>,
    /// The names in its calls, those of the functions among them.
    pub calls: Vec<String>,
}

/// The constant memory of a kernel, in bytes.
const CONSTANT_BYTES: u64 = 64 << 10;

/// A load, store, atomic operation or reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryInstruction {
    /// The opcode with everything that belongs to it: `ld.global.v4.b32`.
    pub opcode: String,
    /// The whole instruction, without guard and label.
    pub text: String,
}

/// What is not acceptable about PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It cannot be read at all.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// An access that does not name its state space.
    #[error(
        "`{function}` accesses memory through a generic pointer: `{instruction}`. Global memory is accessed through \
         `GlobalSlice`, shared memory through `Shared`; a function that takes one of them has to be `#[inline(always)]`"
    )]
    Generic {
        /// The function.
        function: String,
        /// The first such instruction.
        instruction: String,
    },
    /// Something is in local memory.
    #[error(
        "`{function}` keeps {bytes} bytes in local memory: an array is indexed by a value that is not known at compile time. Unroll the \
         loop, so that it is, keep the array in shared memory, or allow it: `#[kernel(local_memory)]`"
    )]
    Local {
        /// The function.
        function: String,
        /// How much.
        bytes: u64,
    },
    /// More constant memory than there is.
    #[error(
        "`{function}` reads {bytes} bytes of constant memory, and there are {CONSTANT_BYTES} for all arrays of a kernel: keep some of them in \
         global memory"
    )]
    Constant {
        /// The kernel, or a function that is called by one.
        function: String,
        /// How much.
        bytes: u64,
    },
    /// An instruction that the architecture does not have.
    #[error(
        "`{function}` has an instruction that GPUs have from sm_{lowest} on, and is compiled for sm_{target}: `{instruction}`. A kernel with it \
         says `#[kernel(arch = \"sm_90a\")]`, or does without"
    )]
    Architecture {
        /// The function.
        function: String,
        /// The instruction.
        instruction: String,
        /// The lowest architecture that has it.
        lowest: u32,
        /// The one that the module is for.
        target: u32,
    },
    /// A function is called that no crate defines.
    #[error("`{0}` is called and not defined by any crate")]
    Undefined(String),
    /// A kernel has no launch bounds.
    #[error("kernel `{0}` has neither `.reqntid` nor `.maxntid`")]
    NoLaunchBounds(String),
    /// The entry points are not the kernels that were linked.
    #[error("the entry points are {found:?}, the kernels are {expected:?}")]
    Entries {
        /// In the PTX.
        found: Vec<String>,
        /// In the crate.
        expected: Vec<String>,
    },
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
        let mut module = Self { version, target, functions: Vec::new(), undefined: Vec::new() };
        let (mut shared, mut constant) = (Vec::new(), Vec::new());
        for item in items(&code).ok_or_else(|| malformed("it ends in the middle of something"))? {
            match item {
                Item::Function { header, body } => {
                    let function = Function::parse(header, body, &shared, &constant)
                        .ok_or_else(|| CheckError::Malformed(format!("what function is this: `{}`", header.trim())))?;
                    module.functions.push(function);
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
                Item::Statement(_) => {}
            }
        }
        // A prototype may stand before a definition.
        module.undefined.retain(|name| module.functions.iter().all(|function| function.name != *name));
        Ok(module)
    }

    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_kernel)
    }

    /// Checks what every module promises: each access names its state space, nothing is in local memory, every kernel has
    /// launch bounds, and the entry points are the `kernels`.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self, kernels: &[String]) -> Result<(), CheckError> {
        self.check_with_local(kernels, &[])
    }

    /// The same of a module of which some kernels, and what these alone call, may have local memory.
    ///
    /// # Errors
    /// As for [`Ptx::check`].
    pub fn check_with_local(&self, kernels: &[String], with_local: &[String]) -> Result<(), CheckError> {
        let strict = self.called_by(|kernel| !with_local.contains(&kernel.name));
        for function in &self.functions {
            let name = || format!("{:#}", demangle(&function.name));
            let allows_local = !strict.contains(function.name.as_str());
            // First, because an array in local memory is accessed through a generic pointer to it.
            let is_local = function.local_bytes > 0 || function.memory.iter().any(|it| it.space() == Some("local"));
            if is_local && !allows_local {
                return Err(CheckError::Local { function: name(), bytes: function.local_bytes });
            }
            if function.constant_bytes > CONSTANT_BYTES {
                return Err(CheckError::Constant { function: name(), bytes: function.constant_bytes });
            }
            if let Some(generic) = function.memory.iter().find(|instruction| instruction.space().is_none()) {
                return Err(CheckError::Generic { function: name(), instruction: generic.text.clone() });
            }
            let target = architecture(&self.target).unwrap_or(0);
            if let Some((lowest, instruction)) = &function.needs
                && target < *lowest
            {
                let (instruction, lowest) = (instruction.clone(), *lowest);
                return Err(CheckError::Architecture { function: name(), instruction, lowest, target });
            }
            if function.is_kernel && function.block.is_none() {
                return Err(CheckError::NoLaunchBounds(name()));
            }
        }
        if let Some(name) = self.undefined.first() {
            return Err(CheckError::Undefined(format!("{:#}", demangle(name))));
        }
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let found = sorted(self.kernels().map(|kernel| kernel.name.clone()).collect());
        let expected = sorted(kernels.to_vec());
        if found == expected { Ok(()) } else { Err(CheckError::Entries { found, expected }) }
    }
}

impl Ptx {
    /// Such kernels, and the functions that they call, directly or through others.
    fn called_by(&self, kernels: impl Fn(&Function) -> bool) -> HashSet<&str> {
        let mut open: Vec<&Function> = self.kernels().filter(|kernel| kernels(kernel)).collect();
        let mut found: HashSet<&str> = open.iter().map(|kernel| kernel.name.as_str()).collect();
        while let Some(function) = open.pop() {
            for callee in self.functions.iter().filter(|callee| function.calls.contains(&callee.name)) {
                if found.insert(&callee.name) {
                    open.push(callee);
                }
            }
        }
        found
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
            needs: None,
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
            if opcode.split('.').next() == Some("call") {
                function.calls.extend(words(statement).skip(1).map(str::to_owned));
            }
            if function.needs.is_none()
                && let Some(lowest) = lowest_architecture(opcode)
            {
                function.needs = Some((lowest, statement.split_ascii_whitespace().collect::<Vec<_>>().join(" ")));
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

/// The lowest architecture that has an instruction, of those with which threads tell one another something, if not all have it that kernels
/// are compiled for (PTX ISA, `atom`, `red`, `ld`, `st`, `fence`, `mapa`, `barrier.cluster`, `mbarrier`).
fn lowest_architecture(opcode: &str) -> Option<u32> {
    let mut parts = opcode.split('.');
    let is_later = match parts.next() {
        Some("mapa") => true,
        Some("atom" | "red" | "ld" | "st" | "fence" | "barrier" | "mbarrier") => {
            parts.any(|part| matches!(part, "cluster" | "shared::cluster" | "bf16x2" | "bf16"))
        }
        _ => false,
    };
    is_later.then_some(90)
}

/// The number of an architecture: `90` of `sm_90a`.
fn architecture(target: &str) -> Option<u32> {
    target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(body: &str) -> Ptx {
        let text = format!(
            ".version 7.8\n.target sm_90a\n.address_size 64\n\n\t// .globl k\n\
             .extern .shared .align 1024 .b8 dynamic[];\n.shared .align 4 .b8 TILE[128];\n.shared .align 4 .b8 TILE2[64];\n\
             .global .align 4 .u32 table[2] = {{1, 2}};\n\
             .visible .entry k(\n\t.param .u64 .ptr .align 1 k_param_0\n)\n.reqntid 32, 8, 1\n.minnctapersm 2\n\
             {{\n{body}\n}}\n"
        );
        Ptx::parse(&text).unwrap()
    }

    fn check(body: &str) -> Result<(), CheckError> {
        module(body).check(&["k".to_owned()])
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
    fn constant_arrays_are_added_up() {
        let check = |bytes: u64| {
            let head =
                ".version 7.4\n.target sm_80\n.const .align 4 .b8 A[65000] = {1, 2};\n.const .align 4 .b8 C[9];\n";
            let text = format!(
                "{head}.const .align 1 .b8 B[{bytes}];\n.visible .entry k() .reqntid 32 {{\n\tld.const.b8 %r1, [A];\n\tld.const.b8 %r1, [B];\n}}\n"
            );
            Ptx::parse(&text).unwrap().check(&["k".to_owned()])
        };
        assert_eq!(check(536), Ok(()));
        assert_eq!(check(537), Err(CheckError::Constant { function: "k".to_owned(), bytes: 65_537 }));
    }

    #[test]
    fn local_memory_is_for_kernels_that_may_have_it() {
        let function = |kind: &str, name: &str, bounds: &str, body: &str| {
            format!("{kind} {name}() {bounds} {{\n{body}\n\tret;\n}}\n")
        };
        let helper = function(".func", "helper", "", ".local .align 4 .b8 depot[64];\n\tst.local.b32 [%r1], %r2;");
        let calls = "\t{\n\tcall.uni helper, ();\n\t}";
        let kernel = |name, body| function(".visible .entry", name, ".reqntid 32", body);
        let head = ".version 7.4\n.target sm_80\n.func helper();\n";
        let (a, b, other) = (kernel("a", calls), kernel("b", calls), kernel("other", ""));
        let module = Ptx::parse(&format!("{head}{helper}{a}{b}{other}")).unwrap();
        let names = ["a", "b", "other"].map(str::to_owned);
        let check = |allowed: &[usize]| {
            module.check_with_local(&names, &allowed.iter().map(|&i| names[i].clone()).collect::<Vec<_>>())
        };
        assert_eq!(check(&[0, 1]), Ok(()));
        let refused = Err(CheckError::Local { function: "helper".to_owned(), bytes: 64 });
        assert_eq!((check(&[0]), check(&[1, 2]), module.check(&names)), (refused.clone(), refused.clone(), refused));
    }

    #[test]
    fn accepts_what_names_its_space() {
        assert_eq!(check("ld.param.b64 %rd1, [k_param_0]; ld.const.b32 %r1, [c]; st.global.b32 [%rd1], %r1;"), Ok(()));
    }

    #[test]
    fn refuses_generic_accesses() {
        for access in [
            "ld.b32 %r1, [%rd1]",
            "st.v2.b32 [%rd1], {%r1, %r2}",
            "atom.add.u32 %r1, [%rd1], 1",
            "@%p1 red.add.u32 [%rd1], 1",
        ] {
            let error = check(&format!("\tld.global.b32 %r1, [%rd1];\n\t{access};")).unwrap_err();
            let instruction = access.trim_start_matches("@%p1 ").to_owned();
            assert_eq!(error, CheckError::Generic { function: "k".to_owned(), instruction });
        }
    }

    #[test]
    fn refuses_what_the_architecture_does_not_have() {
        let check = |target: &str, body: &str| {
            let text = module(body);
            Ptx { target: target.to_owned(), ..text }.check(&["k".to_owned()])
        };
        for instruction in [
            "atom.relaxed.gpu.global.add.noftz.bf16x2 %r1, [%rd1], %r2;",
            "@%p1 atom.acq_rel.cluster.shared.add.u32 %r1, [%r2], %r3;",
            "fence.acq_rel.cluster;",
            "mapa.shared::cluster.u32 %r1, %r2, %r3;",
            "ld.shared::cluster.b32 %r1, [%r2];",
            "barrier.cluster.arrive;",
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
        ] {
            let CheckError::Architecture { lowest: 90, target, .. } = check("sm_80", instruction).unwrap_err() else {
                panic!("{instruction}")
            };
            assert_eq!(target, 80);
            assert_eq!(check("sm_90a", instruction), Ok(()));
            assert_eq!(check("sm_120", instruction), Ok(()));
        }
        assert_eq!(check("sm_80", "fence.acq_rel.gpu;\nld.acquire.gpu.global.b32 %r1, [%rd1];"), Ok(()));
    }

    #[test]
    fn refuses_local_memory() {
        let error = check(".local .align 8 .b8 \t__local_depot0[16];\n.reg .b32 %r<3>;").unwrap_err();
        assert_eq!(error, CheckError::Local { function: "k".to_owned(), bytes: 16 });
        // What LLVM makes of an array that is indexed: its address is a generic one.
        let error =
            check(".local .align 4 .b8 __local_depot0[64];\n\tcvta.local.u64 %SP, %SPL;\n\tst.b32 [%rd1], %r1;");
        assert_eq!(error.unwrap_err(), CheckError::Local { function: "k".to_owned(), bytes: 64 });
        let error = check("st.local.b32 [%rd1], %r1;").unwrap_err();
        assert_eq!(error, CheckError::Local { function: "k".to_owned(), bytes: 0 });
    }

    #[test]
    fn refuses_what_is_not_defined_or_not_expected() {
        let header = ".version 7.0\n.target sm_80\n";
        let prototype = ".func (.param .b32 result) helper\n(\n.param .b64 p\n)\n";
        let undefined = Ptx::parse(&format!("{header}.extern {prototype};")).unwrap();
        assert_eq!(undefined.check(&[]), Err(CheckError::Undefined("helper".to_owned())));
        let defined = Ptx::parse(&format!("{header}{prototype};\n{prototype}{{ ret; }}")).unwrap();
        assert_eq!(defined.check(&[]), Ok(()));
        assert!(matches!(defined.check(&["k".to_owned()]), Err(CheckError::Entries { .. })));
        let unbounded = Ptx::parse(&format!("{header}.visible .entry k()\n{{ ret; }}")).unwrap();
        assert_eq!(unbounded.check(&["k".to_owned()]), Err(CheckError::NoLaunchBounds("k".to_owned())));
    }

    #[test]
    fn refuses_what_is_no_ptx() {
        for text in ["", "hello", ".version 7.0\n", ".version 7.0\n.target sm_80\n.visible .entry k()\n{ ret;"] {
            assert!(matches!(Ptx::parse(text), Err(CheckError::Malformed(_))), "{text}");
        }
    }
}
