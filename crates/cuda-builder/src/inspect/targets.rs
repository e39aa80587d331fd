//! Which GPUs have an instruction, of those that not all have that kernels are compiled for.
//!
//! From "Target ISA Notes" of each instruction in the PTX ISA. A test compares the table with what `ptxas` takes for every architecture:
//! `tests/targets.rs`. What is not in it counts as there everywhere.

use std::fmt;

use super::text::words;
use crate::Arch;

/// The architectures whose names end in `a`.
const ACCELERATED: [Arch; 2] = [Arch::Sm90a, Arch::Sm100a];

/// The GPUs that have an instruction.
///
/// ```
/// # use tilewright_cuda_builder::{Arch, inspect::Needs};
/// assert_eq!(Needs::From(Arch::Sm90).to_string(), "GPUs have from sm_90 on");
/// assert_eq!(Needs::Only(Arch::Sm90a).to_string(), "only sm_90a has");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Those of an architecture, and all later ones.
    From(Arch),
    /// Those of an architecture whose name ends in `a`, and no others, later ones neither.
    Only(Arch),
    /// Those of each architecture whose name ends in `a`.
    Accelerated,
}

impl Needs {
    /// What an instruction needs that not all GPUs from compute capability 8.0 on have; `None` if these have it.
    pub(super) fn of(instruction: &str) -> Option<Self> {
        let (opcode, operands) = instruction.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((instruction, ""));
        let parts: Vec<&str> = opcode.split('.').collect();
        let has = |part: &str| parts[1..].contains(&part);
        let has_any = |wanted: &[&str]| parts[1..].iter().any(|part| wanted.contains(part));
        let is_bf16 = has_any(&["bf16", "bf16x2"]);
        let is_for_clusters = has_any(&["cluster", "shared::cluster"]);
        let is_of_16_bits_twice = has_any(&["u16x2", "s16x2"]);
        let is_fp8 = has_any(&["e4m3", "e5m2", "e4m3x2", "e5m2x2"]);
        let from = |arch, is_needed: bool| is_needed.then_some(Self::From(arch));
        let sm_90 = |is_needed| from(Arch::Sm90, is_needed);
        match parts[0] {
            "mapa" | "getctarank" | "elect" | "griddepcontrol" | "multimem" => sm_90(true),
            "wgmma" => Some(Self::Only(Arch::Sm90a)),
            "setmaxnreg" => Some(Self::Accelerated),
            "tcgen05" => Some(Self::Only(Arch::Sm100a)),
            "clusterlaunchcontrol" => from(Arch::Sm100, true),
            "tensormap" if has("replace") => Some(Self::Accelerated),
            "tensormap" => sm_90(true),
            "mov" => sm_90(words(operands).any(is_of_clusters)),
            "isspacep" | "barrier" => sm_90(is_for_clusters),
            "fence" => sm_90(
                is_for_clusters || has("mbarrier_init") || has("proxy") && !has("alias") || opcode.contains("::shared"),
            ),
            "mbarrier" => {
                // Without `.noComplete` a number of arrivals is the third operand.
                let is_arrival = has_any(&["arrive", "arrive_drop"]) && !has("noComplete");
                let counts = is_arrival && operands.split(',').count() > 2;
                sm_90(is_for_clusters || counts || has_any(&["try_wait", "expect_tx", "complete_tx"]))
            }
            "cp" if !has("bulk") => None,
            "cp" if opcode.contains("::gather4") || opcode.contains(".cta_group::") => Some(Self::Only(Arch::Sm100a)),
            "cp" => from(if has("cp_mask") { Arch::Sm100 } else { Arch::Sm90 }, true),
            "prefetch" => sm_90(has("tensormap")),
            "stmatrix" if has("b8") => Some(Self::Only(Arch::Sm100a)),
            "stmatrix" => sm_90(true),
            "ldmatrix" => has_any(&["m16n16", "m8n16"]).then_some(Self::Only(Arch::Sm100a)),
            "redux" => has("f32").then_some(Self::Only(Arch::Sm100a)),
            "st" if has("bulk") || has("async") && has("mmio") => from(Arch::Sm100, true),
            "ld" | "st" if has("v8") || has("v4") && has_any(&["b64", "u64", "s64", "f64"]) => from(Arch::Sm100, true),
            "ld" | "st" => sm_90(is_for_clusters || has("async")),
            "atom" | "red" => sm_90(is_for_clusters || is_bf16 || has_any(&["async", "v2", "v4", "v8", "b128"])),
            "mma" if is_fp8 => from(Arch::Sm89, true),
            "mma" => sm_90(has("f64") && !has("m8n8k4")),
            "cvt" if is_fp8 => from(Arch::Sm89, true),
            "cvt" => sm_90(is_bf16 && !has("f32") || has("tf32") && !has("rna")),
            "add" | "sub" | "mul" | "fma" if has("f32x2") => from(Arch::Sm100, true),
            "add" | "sub" | "mul" => sm_90(is_bf16 || is_of_16_bits_twice),
            "fma" => sm_90(has("oob")),
            "min" | "max" if has("xorsign") => from(Arch::Sm86, true),
            "min" | "max" => sm_90(is_of_16_bits_twice || has("relu")),
            "set" | "setp" | "tanh" | "ex2" => sm_90(is_bf16),
            _ => None,
        }
    }

    /// Whether GPUs that run PTX for an architecture have it.
    ///
    /// ```
    /// # use tilewright_cuda_builder::{Arch, inspect::Needs};
    /// assert!(Needs::From(Arch::Sm90).is_met_by(Arch::Sm90a) && !Needs::From(Arch::Sm90).is_met_by(Arch::Sm89));
    /// assert!(!Needs::Only(Arch::Sm90a).is_met_by(Arch::Sm90));
    /// ```
    pub fn is_met_by(self, arch: Arch) -> bool {
        match self {
            Self::From(first) => arch.compute_capability() >= first.compute_capability(),
            Self::Only(only) => arch == only,
            Self::Accelerated => ACCELERATED.contains(&arch),
        }
    }

    /// An architecture with the instructions of its own that has it.
    pub(super) fn example(self) -> Arch {
        ACCELERATED.into_iter().find(|&arch| self.is_met_by(arch)).unwrap_or(Arch::Sm100a)
    }
}

impl fmt::Display for Needs {
    /// What follows "an instruction that".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(arch) => write!(f, "GPUs have from {arch} on"),
            Self::Only(arch) => write!(f, "only {arch} has"),
            Self::Accelerated => write!(f, "only {} or {} has", ACCELERATED[0], ACCELERATED[1]),
        }
    }
}

/// Whether it is a special register that tells of clusters.
fn is_of_clusters(word: &str) -> bool {
    let names = ["%cluster", "%nclusterid", "%is_explicit_cluster", "%aggr_smem_size"];
    names.iter().any(|name| word.starts_with(name))
}
