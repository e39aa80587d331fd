//! What `#[kernel]` tells the link step about an entry point: the kernel's facts, in a constant beside it.
//!
//! ```text
//! @__tilewright_facts_axpy = constant <{ [136 x i8] }> <{ [136 x i8] c"\05\00…" }>, align 8
//! ```
//!
//! The bytes are 64-bit numbers, lowest byte first: the version of this format, whether the block is a bound (1: launches
//! choose, of at most so many threads), the block along x, y and z, the blocks that shall fit on a multiprocessor (0: not
//! said), the dynamic shared memory in bytes, the only architecture's name (first letter in the lowest byte; 0: any),
//! whether it may have local memory (1: yes; 2: and functions that call themselves, because it has a stack), the blocks of a
//! cluster along x, y and z (0: it has none), the fingerprint of the parameters' layout, the number of parameters, and for each
//! parameter whether it is a tensor map. The compiler has worked them out from types and constants, which no attribute macro could.

use std::collections::HashMap;
use std::str::FromStr;

use gpu_facts::ptx_facts::PtxFacts;

use super::ir::{self, Variable};
use crate::Arch;

/// How the names of the constants begin. The kernel's name follows.
pub(super) const PREFIX: &str = "__tilewright_facts_";
/// The version of the format that is read here.
const VERSION: u64 = 5;

/// The facts of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The shape of every block: x, y, z.
    pub(crate) block: [u32; 3],
    /// Whether launches choose the shape, of at most as many threads.
    pub(crate) is_bound: bool,
    /// How many blocks shall fit on a multiprocessor.
    pub(crate) min_blocks: Option<u32>,
    /// The dynamic shared memory of a block, in bytes.
    pub(crate) dynamic_shared_bytes: u32,
    /// The only architecture that the kernel is for.
    pub(crate) arch: Option<Arch>,
    /// Whether it may have local memory: because it says so, or has a stack.
    pub(crate) allows_local: bool,
    /// Whether it has a stack, so that functions may call themselves.
    pub(crate) has_stack: bool,
    /// The blocks of every cluster, if the kernel has any.
    pub(crate) cluster: Option<[u32; 3]>,
    /// The fingerprint of the parameters' layout.
    pub(crate) layout: u64,
    /// For each parameter whether it is a tensor map, 128 bytes that the kernel uses where they are instead of copying them.
    pub(crate) tensor_maps: Vec<bool>,
}

/// The facts of all kernels in textual LLVM IR, by the kernels' names; or what is wrong with them.
pub(super) fn facts(ir: &str) -> HashMap<&str, Result<Entry, String>> {
    let lines = ir.lines().filter(|line| line.starts_with('@'));
    lines.filter_map(|line| Some((kernel_of(line)?, Entry::parse(line)))).collect()
}

/// The kernel whose facts a line defines.
pub(super) fn kernel_of(line: &str) -> Option<&str> {
    Variable::parse(line)?.name.strip_prefix(PREFIX)
}

impl Entry {
    /// Reads the line that defines the constant.
    fn parse(line: &str) -> Result<Self, String> {
        let bytes = ir::string_constant(line).ok_or("it is no string of bytes")?;
        if bytes.len() % 8 != 0 {
            return Err(format!("it has {} bytes, which are no 64-bit numbers", bytes.len()));
        }
        let numbers: Vec<u64> =
            bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight bytes"))).collect();
        let [
            version,
            is_bound,
            x,
            y,
            z,
            min_blocks,
            dynamic_shared_bytes,
            arch,
            memory,
            cluster_x,
            cluster_y,
            cluster_z,
            layout,
            count,
            tensor_maps @ ..,
        ] = &numbers[..]
        else {
            return Err(format!("it has {} numbers, and there should be 14 or more", numbers.len()));
        };
        if *version != VERSION {
            return Err(format!("it is of version {version}, and this builder reads {VERSION}"));
        }
        if *count != tensor_maps.len() as u64 || tensor_maps.iter().any(|&flag| flag > 1) {
            return Err(format!("it does not say of each of {count} parameters whether it is a tensor map"));
        }
        if *is_bound > 1 {
            return Err(format!("whether its block is a bound is {is_bound}, which is neither 0 nor 1"));
        }
        if *memory > 2 {
            return Err(format!("whether it may have local memory is {memory}, which is neither 0 nor 1 nor 2"));
        }
        let small = |number: &u64, what: &str| u32::try_from(*number).map_err(|_| format!("{what} is {number}"));
        Ok(Self {
            block: [small(x, "the block along x")?, small(y, "the block along y")?, small(z, "the block along z")?],
            is_bound: *is_bound == 1,
            min_blocks: Some(small(min_blocks, "min_blocks")?).filter(|&blocks| blocks != 0),
            dynamic_shared_bytes: small(dynamic_shared_bytes, "the dynamic shared memory")?,
            arch: match arch {
                0 => None,
                code => Some(arch_of(*code)?),
            },
            allows_local: *memory > 0,
            has_stack: *memory == 2,
            cluster: match [cluster_x, cluster_y, cluster_z] {
                [0, 0, 0] => None,
                [x, y, z] => {
                    let [what_x, what_y, what_z] =
                        ["the cluster along x", "the cluster along y", "the cluster along z"];
                    Some([small(x, what_x)?, small(y, what_y)?, small(z, what_z)?])
                }
            },
            layout: *layout,
            tensor_maps: tensor_maps.iter().map(|&flag| flag == 1).collect(),
        })
    }

    /// What PTX has no words for.
    pub(crate) fn ptx_facts(&self) -> PtxFacts {
        let &Self { dynamic_shared_bytes, allows_local, layout, .. } = self;
        PtxFacts { dynamic_shared_bytes, allows_local, layout }
    }

    /// Whether the kernel belongs into a module for an architecture: one with clusters into none that has no such instructions.
    pub(super) fn is_for(&self, arch: Arch) -> bool {
        let has_clusters = arch.compute_capability().blocks_per_cluster() > 0;
        self.arch.is_none_or(|only| only == arch) && (self.cluster.is_none() || has_clusters)
    }

    /// The function attributes from which LLVM makes `.reqntid` or `.maxntid`, `.minnctapersm` and `.reqnctapercluster`.
    pub(super) fn attributes(&self) -> String {
        let [x, y, z] = self.block;
        let bound = if self.is_bound { "maxntid" } else { "reqntid" };
        let mut attributes = format!(r#""nvvm.{bound}"="{x},{y},{z}""#);
        if let Some(blocks) = self.min_blocks {
            attributes += &format!(r#" "nvvm.minctasm"="{blocks}""#);
        }
        if let Some([x, y, z]) = self.cluster {
            attributes += &format!(r#" "nvvm.cluster_dim"="{x},{y},{z}""#);
        }
        attributes
    }

    /// The first line of the kernel's definition with the launch bounds, and with the parameters that are tensor maps passed by
    /// value and read in place. `name_end` is where the kernel's name ends.
    ///
    /// Rust has no type for this: it would pass 128 bytes aligned to 64 by copying them to local memory, so the parameter
    /// is a pointer in Rust, and becomes the pointer to its own bytes here.
    pub(super) fn definition(&self, line: &str, name_end: usize) -> Result<String, String> {
        let list = ir::parenthesized(line, name_end).ok_or("its parameters cannot be read")?;
        let mut parameters: Vec<String> = ir::split_list(list).into_iter().map(str::to_owned).collect();
        for (index, _) in self.tensor_maps.iter().enumerate().filter(|(_, is_map)| **is_map) {
            let parameter = parameters.get_mut(index).ok_or_else(|| format!("there is no parameter {index}"))?;
            let name = parameter.rsplit(' ').next().filter(|name| name.starts_with('%'));
            match name {
                Some(name) if parameter.starts_with("ptr ") && !parameter.contains("byval") => {
                    *parameter = format!("ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" {name}");
                }
                _ => return Err(format!("parameter {index}, `{parameter}`, is no pointer")),
            }
        }
        let (before, mut after) = (&line[..name_end], &line[name_end + list.len() + 2..]);
        // Attributes come after these words and before all others.
        let mut words = String::new();
        while let Some(word) = [" unnamed_addr", " local_unnamed_addr"].into_iter().find(|word| after.starts_with(word))
        {
            words += word;
            after = &after[word.len()..];
        }
        Ok(format!("{before}({}){words} {}{after}", parameters.join(", "), self.attributes()))
    }
}

/// The architecture whose name is written in a number.
fn arch_of(code: u64) -> Result<Arch, String> {
    let bytes = code.to_le_bytes();
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    Arch::from_str(&String::from_utf8_lossy(name)).map_err(|error| error.to_string())
}

/// The line that `#[kernel]` would make for these facts.
#[cfg(test)]
pub(super) fn line(kernel: &str, numbers: &[u64]) -> String {
    let bytes: String =
        numbers.iter().flat_map(|number| number.to_le_bytes()).map(|byte| format!("\\{byte:02X}")).collect();
    let len = numbers.len() * 8;
    format!("@{PREFIX}{kernel} = constant <{{ [{len} x i8] }}> <{{ [{len} x i8] c\"{bytes}\" }}>, align 8\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sm_90a`.
    const SM_90A: u64 = u64::from_le_bytes(*b"sm_90a\0\0");

    fn parsed(numbers: &[u64]) -> Result<Entry, String> {
        let line = line("k", numbers);
        let mut facts = facts(&line);
        facts.remove("k").unwrap()
    }

    #[test]
    fn reads_what_the_macro_writes() {
        let entry = parsed(&[5, 0, 32, 8, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0]).unwrap();
        let plain = Entry {
            block: [32, 8, 1],
            is_bound: false,
            min_blocks: None,
            dynamic_shared_bytes: 0,
            arch: None,
            allows_local: false,
            has_stack: false,
            cluster: None,
            layout: 7,
            tensor_maps: vec![],
        };
        assert_eq!(entry, plain);
        assert_eq!(entry.attributes(), r#""nvvm.reqntid"="32,8,1""#);
        let entry = parsed(&[5, 1, 256, 1, 1, 2, 183_808, SM_90A, 1, 2, 4, 1, u64::MAX, 2, 1, 0]).unwrap();
        let full = Entry {
            block: [256, 1, 1],
            is_bound: true,
            min_blocks: Some(2),
            dynamic_shared_bytes: 183_808,
            arch: Some(Arch::Sm90a),
            allows_local: true,
            has_stack: false,
            cluster: Some([2, 4, 1]),
            layout: u64::MAX,
            tensor_maps: vec![true, false],
        };
        assert_eq!(entry, full);
        assert_eq!(entry.attributes(), r#""nvvm.maxntid"="256,1,1" "nvvm.minctasm"="2" "nvvm.cluster_dim"="2,4,1""#);
        let with = |memory: u64| parsed(&[5, 0, 32, 1, 1, 0, 0, 0, memory, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(
            [0, 1, 2].map(with).map(|it| (it.allows_local, it.has_stack)),
            [(false, false), (true, false), (true, true)]
        );
        let clustered = |arch| Entry { arch: None, ..full.clone() }.is_for(arch);
        assert_eq!(
            [Arch::Sm80, Arch::Sm89, Arch::Sm90, Arch::Sm90a, Arch::Sm120].map(clustered),
            [false, false, true, true, true]
        );
        assert!(full.is_for(Arch::Sm90a) && !full.is_for(Arch::Sm90) && plain.is_for(Arch::Sm80));
        assert!(facts("@x = constant [1 x i8] c\"a\"\ndefine void @__tilewright_facts_f() {").is_empty());
    }

    #[test]
    fn tensor_maps_are_passed_by_value() {
        let entry = parsed(&[5, 0, 128, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 1]).unwrap();
        let head = "define ptx_kernel void @k(ptr noundef readonly captures(none) %map_a, [2 x i64] %x, ptr %0) unnamed_addr #3 {";
        let expected = "define ptx_kernel void @k(ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %map_a, [2 x i64] %x, \
                        ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %0) unnamed_addr \"nvvm.reqntid\"=\"128,1,1\" #3 {";
        let name_end = head.find('(').unwrap();
        assert_eq!(entry.definition(head, name_end).unwrap(), expected);
        let head = "define ptx_kernel void @k(ptr %a, i64 %x, i64 %y) #3 {";
        assert!(entry.definition(head, head.find('(').unwrap()).unwrap_err().contains("`i64 %y`"));
        let head = "define ptx_kernel void @k(ptr %a) #3 {";
        assert!(entry.definition(head, head.find('(').unwrap()).unwrap_err().contains("no parameter 2"));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for (numbers, word) in [
            (&[][..], "0 numbers"),
            (&[1, 2, 3], "3 numbers"),
            (&[1, 0, 32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], "version 1"),
            (&[5, 2, 32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], "block is a bound is 2"),
            (&[5, 0, 32, 1, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0], "local memory is 3"),
            (&[5, 0, 1 << 32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], "block along x"),
            (&[5, 0, 1, 1, 1, 0, 1 << 40, 0, 0, 0, 0, 0, 0, 0], "dynamic shared memory"),
            (&[5, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], "unknown architecture"),
            (&[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0], "each of 2 parameters"),
            (&[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7], "each of 1 parameters"),
        ] {
            let error = parsed(numbers).unwrap_err();
            assert!(error.contains(word), "{numbers:?}: {error}");
        }
        let garbled = "@__tilewright_facts_k = constant i64 7\n";
        assert!(facts(garbled)["k"].as_ref().unwrap_err().contains("no string"));
        let short = "@__tilewright_facts_k = constant [3 x i8] c\"abc\"\n";
        assert!(facts(short)["k"].as_ref().unwrap_err().contains("3 bytes"));
    }
}
