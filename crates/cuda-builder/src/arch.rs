//! The GPU architectures that kernels can be compiled for.

use std::fmt;
use std::str::FromStr;

use gpu_facts::ComputeCapability;

/// A GPU architecture, as the PTX directive `.target` names it.
///
/// PTX for `sm_80` also runs on every later architecture, because the driver compiles it for the device at hand. The `a`
/// of `sm_90a` asks for instructions of exactly that architecture (wgmma, for one): such PTX runs nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Arch {
    /// Ampere data-centre GPUs (A100).
    Sm80,
    /// Ampere workstation and consumer GPUs.
    Sm86,
    /// Ada Lovelace.
    Sm89,
    /// Hopper (H100, H200), only what later architectures have too.
    Sm90,
    /// Hopper with the instructions that no other architecture has.
    Sm90a,
    /// Blackwell data-centre GPUs (B200), only what later architectures have too.
    Sm100,
    /// Blackwell data-centre GPUs with the instructions that no other architecture has.
    Sm100a,
    /// Blackwell workstation and consumer GPUs.
    Sm120,
}

impl Arch {
    /// Every architecture that there is a name for, oldest first.
    pub const ALL: &'static [Self] =
        &[Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90, Self::Sm90a, Self::Sm100, Self::Sm100a, Self::Sm120];

    /// The name in LLVM, PTX and ptxas: `sm_90a`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90 => "sm_90",
            Self::Sm90a => "sm_90a",
            Self::Sm100 => "sm_100",
            Self::Sm100a => "sm_100a",
            Self::Sm120 => "sm_120",
        }
    }
}

impl Arch {
    /// The version of the PTX language that modules are written in unless asked for a newer one: what the architecture needs,
    /// and at least 7.4. That is the language of CUDA 11.4, which drivers have to support in any case, so inline assembly may
    /// use what it has.
    pub const fn ptx_version(self) -> (u32, u32) {
        match self {
            Self::Sm80 | Self::Sm86 => (7, 4),
            Self::Sm89 => (7, 8),
            // Clusters, and barriers that they arrive at.
            Self::Sm90 | Self::Sm90a => (8, 0),
            Self::Sm100 | Self::Sm100a => (8, 6),
            Self::Sm120 => (8, 7),
        }
    }
}

impl Arch {
    /// The compute capability that the architecture is named after: the lowest on which its PTX runs.
    pub const fn compute_capability(self) -> ComputeCapability {
        match self {
            Self::Sm80 => ComputeCapability::new(8, 0),
            Self::Sm86 => ComputeCapability::new(8, 6),
            Self::Sm89 => ComputeCapability::new(8, 9),
            Self::Sm90 | Self::Sm90a => ComputeCapability::new(9, 0),
            Self::Sm100 | Self::Sm100a => ComputeCapability::new(10, 0),
            Self::Sm120 => ComputeCapability::new(12, 0),
        }
    }

    /// Whether its PTX runs on GPUs of a compute capability: on all from its own on, or on none but its own if it asks for the
    /// instructions of exactly that one.
    pub fn runs_on(self, capability: ComputeCapability) -> bool {
        match self {
            Self::Sm90a | Self::Sm100a => capability == self.compute_capability(),
            _ => capability >= self.compute_capability(),
        }
    }
}

impl Arch {
    /// Whether `ptxas` makes machine code for `other` of its PTX: for itself and, unless it asks for the instructions of exactly
    /// one, for all later ones.
    pub fn assembles_to(self, other: Self) -> bool {
        let is_for_later_ones = !matches!(self, Self::Sm90a | Self::Sm100a);
        self == other || (is_for_later_ones && self.runs_on(other.compute_capability()))
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(name: &str) -> Result<Self, UnknownArch> {
        Self::ALL.iter().copied().find(|arch| arch.name() == name).ok_or_else(|| UnknownArch(name.to_owned()))
    }
}

/// The name is not that of an [`Arch`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{0}`: expected one of {known}", known = known())]
pub struct UnknownArch(pub String);

fn known() -> String {
    Arch::ALL.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_becomes_machine_code_of_later_architectures() {
        assert!(Arch::ALL.iter().all(|&arch| arch.assembles_to(arch) && Arch::Sm80.assembles_to(arch)));
        assert!(Arch::Sm90.assembles_to(Arch::Sm90a) && !Arch::Sm90a.assembles_to(Arch::Sm90));
        assert!(!Arch::Sm90a.assembles_to(Arch::Sm100) && !Arch::Sm86.assembles_to(Arch::Sm80));
    }

    #[test]
    fn names_parse_back_and_others_do_not() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(*arch));
        }
        let error = "sm_90A".parse::<Arch>().unwrap_err().to_string();
        assert!(error.contains("sm_90A") && error.contains("sm_90a"), "{error}");
    }
}
