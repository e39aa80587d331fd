//! The PTX of the kernels, and the machine code that NVIDIA's assembler makes of it: for both architectures, without a GPU.
//!
//! Every requirement has a kernel in `fixtures` that does not fulfil it, or a test of cuda_builder's that shows a build
//! failing.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cuda_builder::inspect::{self, Function, KernelCode, KernelResources, Ptx};
use cuda_builder::{Arch, Build, CudaBuilder, Error, PassError};
use cuda_std::{Dim3, Kernel};
use gpu_kernels::gemm::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;
use tests::device_features::Feature;

/// What the documentation of a kernel says of its machine code.
struct Claims {
    name: &'static str,
    block: Dim3,
    /// Static shared memory, in bytes.
    shared_bytes: u32,
    /// What the assembler rounds that up to a multiple of: the alignment of launch-sized shared memory, if any kernel of the
    /// module has such.
    shared_alignment: u32,
    /// From where the loop that multiplies loads its operands.
    operands: Operands,
}

#[derive(PartialEq)]
enum Operands {
    Global,
    /// Shared memory, in fours.
    SharedVectors,
    /// There is no such loop.
    NoLoop,
}

fn claims<K: Kernel>(shared_bytes: u32, operands: Operands) -> Claims {
    Claims { name: K::NAME, block: K::BLOCK, shared_bytes, shared_alignment: 1, operands }
}

fn all_claims() -> Vec<Claims> {
    vec![
        claims::<gemv_block_reduction_fp32<'_>>(1024, Operands::Global),
        claims::<gemm_naive_1d_fp32<'_>>(0, Operands::Global),
        claims::<gemm_naive_2d_fp32<'_>>(0, Operands::Global),
        claims::<gemm_tiled_16_fp32<'_>>(2560, Operands::SharedVectors),
        claims::<gemm_tiled_32_fp32<'_>>(9216, Operands::SharedVectors),
    ]
}

/// What is known about one kernel in one module.
struct Evidence {
    ptx: Function,
    /// The opcodes of all instructions of the PTX, with everything that belongs to them: `shfl.sync.up.b32`.
    opcodes: Vec<String>,
    resources: KernelResources,
    code: KernelCode,
}

impl Claims {
    /// Everything that is not as claimed, in words.
    fn broken(&self, evidence: &Evidence) -> Vec<String> {
        let Evidence { ptx, resources, code, .. } = evidence;
        let mut broken = Vec::new();
        let mut require = |fulfilled: bool, what: String| {
            if !fulfilled {
                broken.push(what);
            }
        };
        let Dim3 { x, y, z } = self.block;
        require(ptx.block == Some([x, y, z]), format!("launch bounds {:?}", ptx.block));
        require(resources.stack_bytes == 0, format!("stack frame {}", resources.stack_bytes));
        let spills = resources.spill_store_bytes + resources.spill_load_bytes;
        require(spills == 0, format!("spills {spills}"));
        let limit = 65_536 / (x * y * z);
        require(resources.registers <= limit, format!("{} registers of {limit}", resources.registers));
        let rounded_bytes = self.shared_bytes.next_multiple_of(self.shared_alignment);
        require(resources.shared_bytes == rounded_bytes, format!("shared memory {}", resources.shared_bytes));
        require(ptx.shared_bytes == u64::from(self.shared_bytes), format!("shared arrays {}", ptx.shared_bytes));
        let generic = ptx.memory.iter().find(|access| access.space().is_none());
        require(generic.is_none(), format!("generic access {generic:?}"));
        require(code.count("LD") + code.count("ST") == 0, "generic access in the machine code".to_owned());

        let loops = loops(code);
        let mut multiplying = loops.iter().filter(|body| count(body, "FFMA") > 0).peekable();
        match self.operands {
            Operands::NoLoop => require(multiplying.peek().is_none(), "a loop with FFMA".to_owned()),
            _ => require(multiplying.peek().is_some(), "no loop with FFMA".to_owned()),
        }
        for body in multiplying {
            require(count(body, "FADD") == 0, "FADD in a loop with FFMA".to_owned());
            let loads = match self.operands {
                Operands::Global => count(body, "LDG") > 0 && count(body, "LDS") == 0,
                Operands::SharedVectors => body.iter().any(|opcode| opcode.starts_with("LDS.128")),
                Operands::NoLoop => continue,
            };
            require(loads, "operands loaded in another way".to_owned());
        }
        broken
    }
}

/// The opcodes of each loop: of everything between a label and a branch back to it.
fn loops(code: &KernelCode) -> Vec<Vec<&str>> {
    let lines: Vec<_> = code.listing.lines().map(str::trim).collect();
    let label = |line: &&str, name: &str| line.strip_suffix(':') == Some(name);
    let mut loops = Vec::new();
    for (end, line) in lines.iter().enumerate() {
        let Some((_, target)) = line.split_once("BRA ") else { continue };
        let name = target.trim_matches(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_'));
        if let Some(start) = lines[..end].iter().position(|line| label(line, name)) {
            loops.push(lines[start..=end].iter().filter_map(|line| opcode(line)).collect());
        }
    }
    loops
}

/// The opcode in a line of a listing: `/*0010*/ @!P0 LDG.E R0, desc[UR6][R2.64] ;`.
fn opcode(line: &str) -> Option<&str> {
    let instruction = line.strip_prefix("/*")?.split_once("*/")?.1;
    instruction.split_ascii_whitespace().find(|word| !word.starts_with('@'))
}

/// How many opcodes are of this operation, whatever their modifiers.
fn count(opcodes: &[&str], operation: &str) -> usize {
    opcodes.iter().filter(|opcode| opcode.split('.').next() == Some(operation)).count()
}

/// The opcodes of a kernel in a module of PTX. Every instruction has a line of its own, perhaps with a guard: `@%p1 bra $L;`.
fn ptx_opcodes(module: &str, kernel: &str) -> Vec<String> {
    let (_, kernel) = module.split_once(&format!(".entry {kernel}(")).expect("the kernel is in the module");
    let (body, _) = kernel.split_once("\n}").expect("the kernel has an end");
    let statements = body.lines().map(str::trim).filter(|line| line.ends_with(';'));
    let instructions = statements.filter(|line| !line.starts_with('.'));
    let opcodes = instructions.filter_map(|line| line.split_ascii_whitespace().find(|word| !word.starts_with('@')));
    opcodes.map(|opcode| opcode.trim_end_matches(';').to_owned()).collect()
}

const ARCHS: [Arch; 2] = [Arch::Sm80, Arch::Sm90a];

/// The workspace's own target directory of kernels, so that `core` is compiled once for everything.
fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory").join("cuda-builder")
}

fn build(crate_dir: &str) -> Result<Build, Error> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_dir);
    CudaBuilder::new(crate_dir).archs(&ARCHS).target_dir(target_dir()).build()
}

/// What is known about all kernels of a crate, for each architecture.
fn examine(crate_dir: &str) -> Vec<(Arch, Vec<Evidence>)> {
    // A missing toolchain, or a missing assembler, is an error that names `cargo xtask setup`.
    let build = build(crate_dir).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(build.warnings, [""; 0]);
    let modules = build.modules.iter().map(|module| {
        let arch = module.arch;
        let assembly = inspect::assemble(&module.ptx, arch).unwrap_or_else(|error| panic!("{arch}: {error}"));
        assert_eq!(assembly.warnings, [""; 0], "{arch}");
        let code = inspect::disassemble(&assembly.cubin).unwrap_or_else(|error| panic!("{arch}: {error}"));
        let parsed = Ptx::parse(&module.ptx).unwrap();
        assert_eq!(parsed.target, arch.name());
        let evidence = parsed.functions.into_iter().map(|ptx| {
            assert!(ptx.is_kernel, "{arch}: `{}` was not inlined", ptx.name);
            let resources = assembly.kernels.iter().find(|kernel| kernel.name == ptx.name).unwrap().clone();
            let code = code.iter().find(|kernel| kernel.name == ptx.name).unwrap().clone();
            let opcodes = ptx_opcodes(&module.ptx, &ptx.name);
            Evidence { ptx, opcodes, resources, code }
        });
        (arch, evidence.collect())
    });
    modules.collect()
}

static KERNELS: LazyLock<Vec<(Arch, Vec<Evidence>)>> = LazyLock::new(|| examine("../gpu-kernels"));

#[test]
fn the_modules_have_all_kernels_and_no_others() {
    let mut expected: Vec<_> = tilewright::kernels::ALL.iter().map(|kernel| kernel.name).collect();
    expected.sort_unstable();
    let mut claimed: Vec<_> = all_claims().iter().map(|claims| claims.name).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, expected);
    for (arch, kernels) in KERNELS.iter() {
        let mut found: Vec<_> = kernels.iter().map(|evidence| evidence.ptx.name.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{arch}");
    }
}

#[test]
fn the_machine_code_is_what_the_kernels_claim() {
    for (arch, kernels) in KERNELS.iter() {
        for claims in all_claims() {
            let evidence = kernels.iter().find(|evidence| evidence.ptx.name == claims.name).unwrap();
            assert_eq!(claims.broken(evidence), [""; 0], "{} for {arch}", claims.name);
        }
    }
}

#[test]
fn the_modules_ask_for_no_newer_ptx_than_their_architecture() {
    let build = build("../gpu-kernels").unwrap_or_else(|error| panic!("{error}"));
    let versions: Vec<_> = build.modules.iter().map(|module| (module.arch, module.ptx_version)).collect();
    assert_eq!(versions, [(Arch::Sm80, (7, 0)), (Arch::Sm90a, (8, 0))]);
}

#[test]
fn what_is_wrong_with_weak_kernels_is_found() {
    let any = |name, x, y, shared_bytes, operands| {
        let block = Dim3::new(x, y, 1);
        Claims { name, block, shared_bytes, shared_alignment: 1, operands }
    };
    for (arch, kernels) in examine("fixtures/weak-kernels") {
        let broken = |claims: Claims| {
            let evidence = kernels.iter().find(|evidence| evidence.ptx.name == claims.name).unwrap();
            claims.broken(evidence)
        };
        let kinds = |claims: Claims| {
            let words =
                broken(claims).into_iter().map(|what| what.trim_end_matches(char::is_numeric).trim().to_owned());
            words.collect::<Vec<_>>()
        };
        let spilling = kinds(any("spilling", 1024, 1, 0, Operands::Global));
        assert_eq!(spilling, ["stack frame", "spills", "no loop with FFMA"], "{arch}");
        assert_eq!(kinds(any("unfused", 256, 1, 0, Operands::Global)), ["no loop with FFMA"], "{arch}");
        let scalar = kinds(any("scalar_loads", 32, 32, 4224, Operands::SharedVectors));
        assert_eq!(scalar, ["operands loaded in another way"], "{arch}");
        // Claims that are not the kernel's: other launch bounds, too many threads for its registers, other shared memory.
        let wrong = broken(any("scalar_loads", 8192, 1, 4096, Operands::Global));
        for what in ["launch bounds Some([32, 32, 1])", "registers of 8", "shared memory 4224", "shared arrays 4224"] {
            assert!(wrong.iter().any(|broken| broken.contains(what)), "{arch}: {wrong:?} does not say {what}");
        }
    }
}

#[test]
fn a_shared_array_outside_of_a_kernel_fails_the_build() {
    let error = build("fixtures/misplaced-shared").unwrap_err();
    let Error::Pass { source: PassError::WritableStatic { kernel, name }, .. } = &error else { panic!("{error}") };
    assert_eq!((kernel.as_str(), name.as_str()), ("reverse", "misplaced_shared::OUTSIDE"));
}

/// The alignment of launch-sized shared memory, in bytes: the largest that anything in it can need.
const LAUNCH_SIZED_ALIGNMENT: u32 = 1024;

/// How opcodes begin, and how many of them there are.
type Instructions = &'static [(&'static str, usize)];

/// The kernels of `fixtures/device-features`: their shared memory in bytes, and the instructions that they are there for.
const FEATURES: [(Feature, u32, Instructions); 8] = [
    (Feature::VectorLoad, 0, &[("ld.global.v4.", 1)]),
    (Feature::ReverseInThreeDimensions, 320, &[("st.shared.", 1), ("bar.sync", 1), ("ld.shared.", 1)]),
    (Feature::LaunchSizedMemory, 0, &[("st.shared.", 2), ("bar.sync", 1), ("ld.shared.", 2)]),
    (
        Feature::ShufflesOf4Bytes,
        0,
        &[("shfl.sync.down.", 1), ("shfl.sync.up.", 1), ("shfl.sync.bfly.", 1), ("shfl.sync.idx.", 1)],
    ),
    (
        Feature::ShufflesOf8Bytes,
        0,
        &[("shfl.sync.down.", 2), ("shfl.sync.up.", 2), ("shfl.sync.bfly.", 2), ("shfl.sync.idx.", 2)],
    ),
    (Feature::Votes, 0, &[("vote.sync.all.", 1), ("vote.sync.any.", 2), ("vote.sync.ballot.", 2)]),
    (Feature::WarpBarrier, 256, &[("st.shared.", 1), ("bar.warp.sync", 1), ("ld.shared.", 1), ("bar.sync", 0)]),
    (Feature::LaneNumbers, 0, &[("ld.global.", 1), ("st.global.", 2)]),
];

#[test]
fn features_become_the_instructions_that_they_are_documented_as() {
    assert_eq!(FEATURES.map(|(feature, ..)| feature), Feature::ALL);
    for (arch, kernels) in examine("fixtures/device-features") {
        assert_eq!(kernels.len(), FEATURES.len(), "{arch}");
        for (feature, shared_bytes, instructions) in FEATURES {
            let (name, block) = feature.name_and_block();
            let evidence = kernels.iter().find(|evidence| evidence.ptx.name == name).unwrap();
            let shared_alignment = LAUNCH_SIZED_ALIGNMENT;
            let claims = Claims { name, block, shared_bytes, shared_alignment, operands: Operands::NoLoop };
            assert_eq!(claims.broken(evidence), [""; 0], "{name} for {arch}");
            for &(instruction, expected) in instructions {
                let found = evidence.opcodes.iter().filter(|opcode| opcode.starts_with(instruction)).count();
                assert_eq!(found, expected, "{instruction} in {name} for {arch}: {:?}", evidence.opcodes);
            }
        }
        let vector_load = kernels.iter().find(|evidence| evidence.ptx.name == "vector_load").unwrap();
        assert!(vector_load.code.opcodes().any(|opcode| opcode.starts_with("LDG.E.128")), "{arch}");
    }
}

#[test]
fn launch_sized_shared_memory_is_external_and_aligned() {
    for module in build("fixtures/device-features").unwrap_or_else(|error| panic!("{error}")).modules {
        let declarations: Vec<_> = module.ptx.lines().filter(|line| line.contains(".extern .shared")).collect();
        let expected = format!(".extern .shared .align {LAUNCH_SIZED_ALIGNMENT} .b8 __tilewright_dynamic_shared[];");
        assert_eq!(declarations, [expected], "{}", module.arch);
    }
}
