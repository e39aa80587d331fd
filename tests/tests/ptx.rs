//! The PTX of the kernels, and the machine code that NVIDIA's assembler makes of it: for both architectures, without a GPU.
//!
//! Every kernel of the library is held to the rules for all of them ([`Examination::objections`]) without being named here.
//! Only the kernels of the ladder, whose documentation says more of their machine code, have a line each ([`Claims`]).
//!
//! Every requirement has a kernel in `fixtures` that does not fulfil it, or a test of cuda_builder's that shows a build
//! failing.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cuda_builder::inspect::{self, CheckError, Examination, Function, Ptx, ToolError};
use cuda_builder::{Arch, Build, CudaBuilder, Error, KernelEntry, PassError};
use cuda_std::{Dim3, Kernel, KernelFacts};
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::basic::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;
use tests::device_features::Feature;

/// What the documentation of a kernel says of its machine code.
struct Claims {
    name: &'static str,
    block: Dim3,
    /// Static shared memory, in bytes.
    shared_bytes: u32,
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
    Claims { name: K::NAME, block: K::FACTS.block.into(), shared_bytes, operands }
}

/// The kernels of the ladder.
fn all_claims() -> Vec<Claims> {
    vec![
        claims::<gemv_block_reduction_fp32<'_>>(1024, Operands::Global),
        claims::<gemm_naive_1d_fp32<'_>>(0, Operands::Global),
        claims::<gemm_naive_2d_fp32<'_>>(0, Operands::Global),
        claims::<gemm_tiled_16_fp32<'_>>(2560, Operands::SharedVectors),
        claims::<gemm_tiled_32_fp32<'_>>(9216, Operands::SharedVectors),
    ]
}

/// What is known about one kernel for one architecture.
struct Evidence {
    arch: Arch,
    kernel: KernelEntry,
    ptx: Function,
    examination: Examination,
}

impl Evidence {
    /// Everything that is wrong with it whatever kernel it is, in words.
    fn objections(&self) -> Vec<String> {
        self.examination.objections(self.arch, &self.kernel)
    }
}

impl Claims {
    /// Everything that is not as claimed, in words.
    fn broken(&self, evidence: &Evidence) -> Vec<String> {
        let Evidence { ptx, examination: Examination { resources, code, .. }, .. } = evidence;
        let mut broken = evidence.objections();
        let mut require = |fulfilled: bool, what: String| {
            if !fulfilled {
                broken.push(what);
            }
        };
        let Dim3 { x, y, z } = self.block;
        require(ptx.block == Some([x, y, z]), format!("launch bounds {:?}", ptx.block));
        require(resources.shared_bytes == self.shared_bytes, format!("shared memory {}", resources.shared_bytes));
        require(ptx.shared_bytes == u64::from(self.shared_bytes), format!("shared arrays {}", ptx.shared_bytes));

        let loops = code.loops();
        let mut multiplying = loops.iter().filter(|body| body.count("FFMA") > 0).peekable();
        match self.operands {
            Operands::NoLoop => require(multiplying.peek().is_none(), "a loop with FFMA".to_owned()),
            _ => require(multiplying.peek().is_some(), "no loop with FFMA".to_owned()),
        }
        for body in multiplying {
            require(body.count("FADD") == 0, "FADD in a loop with FFMA".to_owned());
            let loads = match self.operands {
                Operands::Global => body.count("LDG") > 0 && body.count("LDS") == 0,
                Operands::SharedVectors => body.opcodes.iter().any(|opcode| opcode.starts_with("LDS.128")),
                Operands::NoLoop => continue,
            };
            require(loads, "operands loaded in another way".to_owned());
        }
        broken
    }
}

/// The opcodes of a module of PTX with one kernel, with everything that belongs to them: `shfl.sync.up.b32`. Every instruction
/// has a line of its own, perhaps with a guard: `@%p1 bra $L;`.
fn ptx_opcodes(module: &str) -> Vec<String> {
    let statements = module.lines().map(str::trim).filter(|line| line.ends_with(';'));
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
fn examine(crate_dir: &str) -> Vec<Evidence> {
    // A missing toolchain, or a missing assembler, is an error that names `cargo tilewright setup`.
    let build = build(crate_dir).unwrap_or_else(|error| panic!("{error}"));
    let of_module = |module: &cuda_builder::PtxModule| {
        assert!(module.kernels.iter().all(|kernel| kernel.ptx.contains(&format!(".target {}\n", module.arch))));
        module.kernels.iter().map(|kernel| (module.arch, kernel.clone())).collect::<Vec<_>>()
    };
    let kernels: Vec<(Arch, KernelEntry)> = build.modules.iter().flat_map(of_module).collect();
    let references: Vec<_> = kernels.iter().map(|(arch, kernel)| (*arch, kernel)).collect();
    let examined = inspect::examine(&references, &target_dir().join("examined"));
    let examined = examined.unwrap_or_else(|error| panic!("{error}"));
    let evidence = kernels.into_iter().zip(examined).map(|((arch, kernel), examination)| {
        let functions = Ptx::parse(&kernel.ptx).unwrap().functions.into_iter();
        let (mut kernels, others): (Vec<_>, Vec<_>) = functions.partition(|function| function.is_kernel);
        // What one kernel is there for.
        let expected = usize::from(kernel.name == "not_inlined");
        assert_eq!(others.len(), expected, "{} for {arch}: what is not inlined is slow: {others:?}", kernel.name);
        let ptx = kernels.remove(0);
        Evidence { arch, kernel, ptx, examination }
    });
    evidence.collect()
}

/// The kernels of an architecture, and the one of a certain name.
fn of(evidence: &[Evidence], arch: Arch) -> impl Iterator<Item = &Evidence> {
    evidence.iter().filter(move |evidence| evidence.arch == arch)
}

fn find<'a>(evidence: &'a [Evidence], arch: Arch, name: &str) -> &'a Evidence {
    let found = of(evidence, arch).find(|evidence| evidence.kernel.name == name);
    found.unwrap_or_else(|| panic!("there is no kernel `{name}` for {arch}"))
}

static KERNELS: LazyLock<Vec<Evidence>> = LazyLock::new(|| examine("../gpu-kernels"));

/// Whether there is PTX of a kernel for Hopper only.
fn is_for_hopper_alone(name: &str) -> bool {
    name.split('_').any(|word| word == "wgmma")
}

#[test]
fn the_modules_have_all_kernels_and_no_others() {
    for arch in ARCHS {
        let found: Vec<_> = of(&KERNELS, arch).map(|evidence| evidence.kernel.name.as_str()).collect();
        let grouped = tilewright::kernels::GROUPED.iter().map(|kernel| kernel.name);
        for name in tilewright::kernels::ALL.iter().map(|kernel| kernel.name).chain(grouped) {
            assert_eq!(
                found.contains(&name),
                arch == Arch::Sm90a || !is_for_hopper_alone(name),
                "{name} for {arch}: {found:?}"
            );
        }
    }
    // What runs on Hopper alone is not in the portable PTX, and everything that is in there is for Hopper, too.
    for evidence in of(&KERNELS, Arch::Sm80) {
        assert!(!is_for_hopper_alone(&evidence.kernel.name), "{}", evidence.kernel.name);
        find(&KERNELS, Arch::Sm90a, &evidence.kernel.name);
    }
}

/// What a kernel's type says of it on the CPU is what the GPU gets.
#[test]
fn the_facts_of_kernels_are_those_of_their_ptx() {
    let grouped = tilewright::kernels::GROUPED.iter().map(|kernel| kernel.facts);
    let multiplying = tilewright::kernels::ALL.iter().map(|kernel| kernel.facts).chain(grouped);
    let multiplying = multiplying.chain([tilewright::kernels::GROUPED_ROW_TABLE]);
    let helping = tilewright::kernels::AUXILIARY.iter().chain(&tilewright::kernels::SCALING).copied();
    for facts in multiplying.chain(helping) {
        let KernelFacts { name, source, arch, .. } = facts;
        let built_for = arch.map_or(Arch::Sm80, |arch| arch.parse().unwrap());
        let found = &find(&KERNELS, built_for, name).kernel;
        // PTX has no word for the name's architecture, and tensor maps are parameters of 128 bytes there.
        let is_map = |line: &&str| line.contains(".param .align 64 .b8 ") && line.contains("[128]");
        let maps = found.ptx.lines().filter(is_map).count();
        // Nor has it one for the crate.
        assert_eq!(KernelFacts { name, source, arch, tensor_maps: maps as u32, ..found.facts() }, facts);
    }
}

#[test]
fn a_tensor_map_is_one_under_any_name() {
    let evidence = examine("fixtures/weak-kernels");
    let kernel = &find(&evidence, Arch::Sm90a, "aliased_tensor_map").kernel;
    let parameter = ".param .align 64 .b8 aliased_tensor_map_param_1[128]";
    assert!(kernel.ptx.contains(parameter), "{}", kernel.ptx.split_once('{').map_or("", |(head, _)| head));
}

#[test]
fn the_kernels_compile_without_warnings() {
    for crate_dir in ["../gpu-kernels", "fixtures/device-features", "fixtures/weak-kernels"] {
        let build = build(crate_dir).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(build.warnings, [""; 0], "{crate_dir}");
    }
}

#[test]
fn no_kernel_breaks_the_rules_for_all_of_them() {
    let broken: Vec<String> = (KERNELS.iter())
        .flat_map(|evidence| {
            let name = &evidence.kernel.name;
            evidence.objections().into_iter().map(move |what| format!("{name} for {}: {what}", evidence.arch))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_machine_code_is_what_the_ladder_claims() {
    for arch in ARCHS {
        for claims in all_claims() {
            assert_eq!(claims.broken(find(&KERNELS, arch, claims.name)), [""; 0], "{} for {arch}", claims.name);
        }
    }
}

#[test]
fn the_modules_ask_for_no_newer_ptx_than_they_need() {
    let build = build("../gpu-kernels").unwrap_or_else(|error| panic!("{error}"));
    let versions: Vec<_> = build.modules.iter().map(|module| (module.arch, module.ptx_version)).collect();
    assert_eq!(versions, [(Arch::Sm80, (7, 4)), (Arch::Sm90a, (8, 0))]);
}

#[test]
fn what_is_wrong_with_weak_kernels_is_found() {
    let any = |name, x, y, shared_bytes, operands| {
        let block = Dim3::new(x, y, 1);
        Claims { name, block, shared_bytes, operands }
    };
    let evidence = examine("fixtures/weak-kernels");
    for arch in ARCHS {
        let broken = |claims: Claims| claims.broken(find(&evidence, arch, claims.name));
        let without_number = |what: String| what.trim_end_matches(char::is_numeric).trim().to_owned();
        let kinds = |claims: Claims| broken(claims).into_iter().map(without_number).collect::<Vec<_>>();
        let spilling = kinds(any("spilling", 1024, 1, 0, Operands::Global));
        assert_eq!(spilling, ["stack frame", "spills", "no loop with FFMA"], "{arch}");
        assert_eq!(kinds(any("unfused", 256, 1, 0, Operands::Global)), ["no loop with FFMA"], "{arch}");
        let scalar = kinds(any("scalar_loads", 32, 32, 4224, Operands::SharedVectors));
        assert_eq!(scalar, ["operands loaded in another way"], "{arch}");
        // Claims that are not the kernel's: other launch bounds, other shared memory.
        let wrong = broken(any("scalar_loads", 8192, 1, 4096, Operands::Global));
        for what in ["launch bounds Some([32, 32, 1])", "shared memory 4224", "shared arrays 4224"] {
            assert!(wrong.iter().any(|broken| broken.contains(what)), "{arch}: {wrong:?} does not say {what}");
        }

        let objections = |name: &str| -> Vec<_> {
            find(&evidence, arch, name).objections().into_iter().map(without_number).collect()
        };
        assert_eq!(objections("scalar_loads"), [""; 0], "{arch}");
        assert_eq!(objections("generic_shared"), ["addresses of shared memory made generic"], "{arch}");
        assert_eq!(objections("product_without_mma_fp32"), ["no HMMA"], "{arch}");
    }
    // For Hopper alone.
    let objections = |name: &str| find(&evidence, Arch::Sm90a, name).objections();
    assert_eq!(objections("product_without_wgmma_fp32"), ["no HGMMA"]);
    assert!(of(&evidence, Arch::Sm80).all(|evidence| !is_for_hopper_alone(&evidence.kernel.name)));
    let serialized = objections("product_by_serialized_wgmma_fp32");
    assert!(serialized.iter().any(|what| what.contains("(C75")), "{serialized:?}");
}

/// What a build refuses by its PTX would show in the machine code as well: here the build is gone around.
#[test]
fn generic_accesses_show_in_the_machine_code() {
    let evidence = examine("fixtures/weak-kernels");
    for arch in ARCHS {
        let mut kernel = find(&evidence, arch, "unfused").kernel.clone();
        let cache = target_dir().join("examined");
        let good = inspect::examine(&[(arch, &kernel)], &cache).unwrap().remove(0);
        assert_eq!(good.objections(arch, &kernel), [""; 0]);
        for (space, generic) in [("ld.global", "ld"), ("st.global", "st")] {
            kernel.ptx = kernel.ptx.replace(space, generic);
        }
        let bad = inspect::examine(&[(arch, &kernel)], &cache).unwrap().remove(0).objections(arch, &kernel);
        assert!(bad[0].starts_with("accesses through generic addresses"), "{bad:?}");
        let refused = Ptx::parse(&kernel.ptx).unwrap().check(std::slice::from_ref(&kernel.name));
        assert!(matches!(refused, Err(CheckError::Generic { .. })), "{refused:?}");
    }
}

#[test]
fn a_kernel_that_the_assembler_refuses_is_an_error() {
    let evidence = examine("fixtures/weak-kernels");
    let mut kernel = find(&evidence, Arch::Sm80, "unfused").kernel.clone();
    // More than any kernel can have without the launch asking for it.
    let large = "{\n.shared .align 4 .b8 LARGE[50000];\n.reg .b32 %large;\nmov.b32 %large, LARGE;\n\
                 st.shared.b32 [%large], %large;\n";
    kernel.ptx = kernel.ptx.replacen("{\n", large, 1);
    let error = inspect::examine(&[(Arch::Sm80, &kernel)], &target_dir().join("examined")).unwrap_err();
    let ToolError::Failed { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("`unfused` for sm_80") && message.contains("shared data"), "{message}");
}

#[test]
fn a_shared_array_outside_of_a_kernel_fails_the_build() {
    let error = build("fixtures/misplaced-shared").unwrap_err();
    let Error::Pass { reason: PassError::WritableStatic { kernel, name }, .. } = &error else { panic!("{error}") };
    assert_eq!((kernel.as_str(), name.as_str()), ("reverse", "misplaced_shared::OUTSIDE"));
    assert!(error.to_string().contains("src/lib.rs:14:17 (`OUTSIDE.write(t, x.get_unchecked(t))`)"), "{error}");
}

/// The alignment of dynamic shared memory, in bytes: the largest that anything in it can need.
const DYNAMIC_SHARED_ALIGNMENT: u32 = 1024;

/// How opcodes begin, and how many of them there are.
type Instructions = &'static [(&'static str, usize)];

/// The kernels of `fixtures/device-features`: their shared memory in bytes, and the instructions that they are there for.
const FEATURES: [(Feature, u32, Instructions); 11] = [
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
    (
        Feature::Collectives,
        0,
        &[
            ("match.any.sync.b32", 1),
            ("match.any.sync.b64", 1),
            ("match.all.sync.b32", 1),
            ("match.all.sync.b64", 1),
            ("redux.sync.add.", 1),
            ("redux.sync.min.u32", 1),
            ("redux.sync.min.s32", 1),
            ("redux.sync.max.u32", 1),
            ("redux.sync.max.s32", 1),
            ("redux.sync.and.b32", 1),
            ("redux.sync.or.b32", 1),
            ("redux.sync.xor.b32", 1),
            ("bar.red.popc.u32", 1),
            ("bar.red.and.pred", 1),
            ("bar.red.or.pred", 1),
            ("bar.sync", 0),
            ("activemask.b32", 1),
        ],
    ),
    (Feature::WarpBarrier, 256, &[("st.shared.", 1), ("bar.warp.sync", 1), ("ld.shared.", 1), ("bar.sync", 0)]),
    (Feature::LaneNumbers, 0, &[("ld.global.", 1), ("st.global.", 2)]),
    (
        Feature::NotInlined,
        512,
        &[
            ("st.shared.", 3),
            ("ld.shared.", 2),
            ("ld.global.", 2),
            ("call", 2),
            ("bar.sync", 2),
            ("ld.b", 0),
            ("st.b", 0),
        ],
    ),
    (Feature::ParameterLayouts, 0, &[("ld.global.", 1), ("st.global.", 6)]),
];

#[test]
fn features_become_the_instructions_that_they_are_documented_as() {
    assert_eq!(FEATURES.map(|(feature, ..)| feature), Feature::ALL);
    let evidence = examine("fixtures/device-features");
    for arch in ARCHS {
        assert_eq!(of(&evidence, arch).count(), FEATURES.len(), "{arch}");
        for (feature, shared_bytes, instructions) in FEATURES {
            let (name, block) = feature.name_and_block();
            let evidence = find(&evidence, arch, name);
            let claims = Claims { name, block, shared_bytes, operands: Operands::NoLoop };
            // A function that is not inlined is given generic pointers; and dynamic shared memory begins at its alignment, behind arrays.
            let expected: &[&str] = match feature {
                Feature::NotInlined => &["addresses of shared memory made generic 3", "shared memory 1024"],
                _ => &[],
            };
            assert_eq!(claims.broken(evidence), expected, "{name} for {arch}");
            let opcodes = ptx_opcodes(&evidence.kernel.ptx);
            for &(instruction, expected) in instructions {
                let found = opcodes.iter().filter(|opcode| opcode.starts_with(instruction)).count();
                assert_eq!(found, expected, "{instruction} in {name} for {arch}: {opcodes:?}");
            }
        }
        // The numbers that the CPU has for the layouts of parameters are those that the GPU has.
        let ptx = &find(&evidence, arch, "parameter_layouts").kernel.ptx;
        for layout in tests::device_features::kernels::LAYOUTS {
            let is_there = ptx.contains(&layout.to_string()) || ptx.contains(&layout.cast_signed().to_string());
            assert!(is_there, "{layout} is not in the PTX for {arch}: {ptx}");
        }
        let vector_load = find(&evidence, arch, "vector_load");
        assert!(vector_load.examination.code.opcodes().any(|opcode| opcode.starts_with("LDG.E.128")), "{arch}");
    }
}

/// Only in the module of the kernel that uses it, so that it does not align the shared memory of others.
#[test]
fn dynamic_shared_memory_is_external_and_aligned() {
    for module in build("fixtures/device-features").unwrap_or_else(|error| panic!("{error}")).modules {
        for kernel in module.kernels {
            let declarations: Vec<_> = kernel.ptx.lines().filter(|line| line.contains(".extern .shared")).collect();
            let expected =
                format!(".extern .shared .align {DYNAMIC_SHARED_ALIGNMENT} .b8 __tilewright_dynamic_shared[];");
            let has_any = ["launch_sized_memory", "not_inlined"].contains(&kernel.name.as_str());
            let expected = if has_any { vec![expected] } else { Vec::new() };
            assert_eq!(declarations, expected, "{} for {}", kernel.name, module.arch);
        }
    }
}
