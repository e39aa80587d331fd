//! What machine instructions are for: a class and a name for each, and how many of each a kernel has.
//!
//! ```text
//!  @P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64]      class memory, name LDG.128: what is accessed, and how many bits each thread does
//!      HGMMA.64x128x8.F32.TF32 R24, …               class tensor cores, name HGMMA
//!      QZAP R1, R2                                  class other, name QZAP: no table has it
//! ```
//!
//! The operations are those of NVIDIA's "CUDA Binary Utilities", from Ampere to Blackwell, and those that `ptxas` makes besides. Nothing
//! falls through: what the table does not have is counted as [`Class::Other`], by its name.

use serde::Serialize;

/// What an instruction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// Loads, stores, copies and atomic operations, of any memory.
    Memory,
    /// Products of matrices on tensor cores.
    TensorCores,
    /// Arithmetic in fp32.
    Fp32,
    /// Arithmetic in fp64.
    Fp64,
    /// Arithmetic in fp16 and bf16.
    Fp16,
    /// Arithmetic and logic on integers, addresses among them.
    Integer,
    /// From one type of number to another.
    Conversion,
    /// Special functions: reciprocals, roots, exponentials, sines.
    SpecialFunctions,
    /// Values that go from one register to another, predicates, special registers.
    Moves,
    /// Values that go from one lane of a warp to another.
    Lanes,
    /// Barriers, fences, and waits for what is asynchronous.
    Barriers,
    /// Branches, loops, ends, and what does nothing.
    Control,
    /// What this table does not have.
    Other,
}

impl Class {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 13] = [
        Self::Memory,
        Self::TensorCores,
        Self::Fp32,
        Self::Fp64,
        Self::Fp16,
        Self::Integer,
        Self::Conversion,
        Self::SpecialFunctions,
        Self::Moves,
        Self::Lanes,
        Self::Barriers,
        Self::Control,
        Self::Other,
    ];

    /// The name: `tensor cores`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::TensorCores => "tensor cores",
            Self::Fp32 => "fp32",
            Self::Fp64 => "fp64",
            Self::Fp16 => "fp16, bf16",
            Self::Integer => "integer",
            Self::Conversion => "conversion",
            Self::SpecialFunctions => "special functions",
            Self::Moves => "moves",
            Self::Lanes => "between lanes",
            Self::Barriers => "barriers",
            Self::Control => "control",
            Self::Other => "other",
        }
    }

    /// The operations of the class, apart from those on uniform registers that have the same name with a `U` before it.
    const fn operations(self) -> &'static str {
        match self {
            Self::Memory => {
                "LD LDC LDCU LDG LDGMC LDGSTS LDL LDS LDSM LDT LDTM LDTRAM ST STAS STG STL STS STSM STT STTM ATOM ATOMG ATOMS RED REDG \
                 REDAS SUATOM SULD SUQUERY SURED SUST TEX TLD TLD4 TMML TXD TXQ UBLKCP UBLKPF UBLKRED UTMALDG UTMAPF UTMAREDG UTMASTG \
                 UTMACCTL UTCCP UTCSHIFT UTCATOMSWS CCTL CCTLL CCTLT QSPC"
            }
            Self::TensorCores => {
                "HMMA BMMA IMMA DMMA QMMA OMMA HGMMA BGMMA IGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA"
            }
            Self::Fp32 => {
                "FADD FADD32I FADD2 FCHK FFMA FFMA32I FFMA2 FHADD FHFMA FMNMX FMNMX3 FMUL FMUL32I FMUL2 FSEL FSET FSETP FSWZADD"
            }
            Self::Fp64 => "DADD DFMA DMNMX DMUL DSETP",
            Self::Fp16 => "HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2",
            Self::Integer => {
                "BMSK BREV CLEA FLO IABS IADD IADD2 IADD3 IADD32I IADD64 IDP IDP4A IMAD IMAD32I IMNMX IMUL IMUL32I ISCADD ISCADD32I \
                 ISETP LEA LOP LOP3 LOP32I POPC SGXT SHF SHL SHR VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3"
            }
            Self::Conversion => "F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP",
            Self::SpecialFunctions => "MUFU",
            Self::Moves => {
                "CS2R MOV MOV32I MOVM P2R P2UR PLOP3 PRMT PSETP R2P R2UR S2R S2UR SEL UP2UR UPLOP3 UPSETP UR2UP LEPC \
                 SETCTAID SETLMEMBASE GETLMEMBASE B2R R2B"
            }
            Self::Lanes => "CREDUX ELECT MATCH REDUX SHFL VOTE VOTEU",
            Self::Barriers => {
                "ACQBULK ACQSHMINIT ARRIVES BAR CGAERRBAR DEPBAR ERRBAR FENCE LDGDEPBAR MEMBAR SYNCS UCGABAR_ARV UCGABAR_GET UCGABAR_SET \
                 UCGABAR_WAIT UTCBAR UTMACMDFLUSH WARPGROUP WARPGROUPSET WARPSYNC"
            }
            Self::Control => {
                "BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL ENDCOLLECTIVE EXIT JMP JMX JMXU KILL NANOSLEEP NOP PREEXIT PMTRIG RET RPCMOV \
                 RTT USETMAXREG UVIRTCOUNT WARPEXIT YIELD"
            }
            Self::Other => "",
        }
    }

    /// The class of an operation, which is an opcode without its modifiers.
    pub fn of(operation: &str) -> Self {
        let find = |operation: &str| {
            Self::ALL
                .into_iter()
                .find(|class| class.operations().split_ascii_whitespace().any(|known| known == operation))
        };
        // `UIADD3` is `IADD3` of uniform registers, which a warp has once.
        find(operation).or_else(|| find(operation.strip_prefix('U')?)).unwrap_or(Self::Other)
    }
}

/// Accesses that say how many bits each thread accesses.
const WITH_WIDTH: [&str; 15] =
    ["LD", "LDC", "LDCU", "LDG", "LDGMC", "LDGSTS", "LDL", "LDS", "ST", "STAS", "STG", "STL", "STS", "ULDC", "TEX"];

/// How many instructions of one name there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// What they are for.
    pub class: Class,
    /// Their name: the operation, and for accesses of memory the bits that each thread accesses: `LDG.128`.
    pub name: String,
    /// How many of them the code has. How often they run is another matter.
    pub count: usize,
}

/// The operation of an opcode: what stands before its first modifier.
pub(super) fn operation(opcode: &str) -> &str {
    opcode.split('.').next().unwrap_or(opcode)
}

/// The name under which an opcode is counted.
pub fn name(opcode: &str) -> String {
    let operation = operation(opcode);
    if !WITH_WIDTH.contains(&operation) {
        return operation.to_owned();
    }
    let width = opcode.split('.').skip(1).find_map(|modifier| match modifier {
        "U8" | "S8" => Some("8"),
        "U16" | "S16" => Some("16"),
        "64" | "128" | "256" => Some(modifier),
        _ => None,
    });
    format!("{operation}.{}", width.unwrap_or("32"))
}

/// Counts opcodes: class by class, the most frequent first.
pub fn count<'a>(opcodes: impl Iterator<Item = &'a str>) -> Vec<Count> {
    let mut counts: Vec<Count> = Vec::new();
    for opcode in opcodes {
        let name = name(opcode);
        match counts.iter_mut().find(|count| count.name == name) {
            Some(count) => count.count += 1,
            None => counts.push(Count { class: Class::of(operation(opcode)), name, count: 1 }),
        }
    }
    counts.sort_by(|a, b| (a.class, b.count, &a.name).cmp(&(b.class, a.count, &b.name)));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_operation_is_in_two_classes() {
        let all: Vec<_> =
            Class::ALL.into_iter().flat_map(|class| class.operations().split_ascii_whitespace()).collect();
        for (at, operation) in all.iter().enumerate() {
            assert!(!all[..at].contains(operation), "{operation}");
        }
    }

    #[test]
    fn opcodes_have_classes_and_names() {
        for (opcode, class, named) in [
            ("LDG.E.128.CONSTANT", Class::Memory, "LDG.128"),
            ("LDG.E.U8", Class::Memory, "LDG.8"),
            ("LDS", Class::Memory, "LDS.32"),
            ("ULDC.64", Class::Memory, "ULDC.64"),
            ("LDGSTS.E.BYPASS.128", Class::Memory, "LDGSTS.128"),
            ("LDSM.16.M88.4", Class::Memory, "LDSM"),
            ("UTMALDG.2D", Class::Memory, "UTMALDG"),
            ("ATOMG.E.ADD.STRONG.GPU", Class::Memory, "ATOMG"),
            ("HGMMA.64x128x8.F32.TF32", Class::TensorCores, "HGMMA"),
            ("HMMA.1688.F32.TF32", Class::TensorCores, "HMMA"),
            ("HFMA2.MMA", Class::Fp16, "HFMA2"),
            ("FFMA", Class::Fp32, "FFMA"),
            ("DFMA", Class::Fp64, "DFMA"),
            ("UIADD3", Class::Integer, "UIADD3"),
            ("IMAD.MOV.U32", Class::Integer, "IMAD"),
            ("I2F.U32.RP", Class::Conversion, "I2F"),
            ("MUFU.RCP", Class::SpecialFunctions, "MUFU"),
            ("UMOV", Class::Moves, "UMOV"),
            ("SHFL.BFLY", Class::Lanes, "SHFL"),
            ("BAR.SYNC.DEFER_BLOCKING", Class::Barriers, "BAR"),
            ("SYNCS.PHASECHK.TRANS64.TRYWAIT", Class::Barriers, "SYNCS"),
            ("BRA", Class::Control, "BRA"),
            ("QZAP.X", Class::Other, "QZAP"),
            ("U", Class::Other, "U"),
        ] {
            assert_eq!((Class::of(operation(opcode)), name(opcode).as_str()), (class, named), "{opcode}");
        }
    }

    #[test]
    fn every_instruction_is_counted_once() {
        let opcodes = ["LDG.E.128", "FFMA", "LDG.E", "LDG.E.128", "QZAP", "FFMA", "FFMA", "FADD"];
        let counts = count(opcodes.into_iter());
        assert_eq!(counts.iter().map(|count| count.count).sum::<usize>(), opcodes.len());
        let shown: Vec<_> = counts.iter().map(|count| format!("{} {}", count.name, count.count)).collect();
        assert_eq!(shown, ["LDG.128 2", "LDG.32 1", "FFMA 3", "FADD 1", "QZAP 1"]);
        assert_eq!(counts[4].class, Class::Other);
    }
}
