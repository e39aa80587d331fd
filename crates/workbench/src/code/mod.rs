//! What one kernel was compiled to for one architecture: registers, spills, shared memory, occupancy, and what its instructions are for.
//!
//! ```text
//!  crate of kernels ──cuda-builder──▶ PTX of the kernel ──ptxas──▶ registers, spills, shared memory, barriers ──▶ occupancy
//!                                                       └─nvdisasm─▶ instructions ──▶ counts by class
//! ```
//!
//! Nothing here needs a GPU. Without NVIDIA's tools there is the PTX, and [`Code::machine`] says what is missing. Everything can be written as
//! JSON ([`serde::Serialize`]).
//!
//! ```no_run
//! use cuda_builder::Arch;
//! use workbench::code::{Code, Compile};
//!
//! let code = Code::compile(&Compile::new("kernels", "axpy", Arch::Sm90a))?;
//! if let Ok(machine) = &code.machine {
//!     println!("{} registers, {} warps", machine.resources.registers, machine.occupancy.map_or(0, |it| it.warps));
//! }
//! # Ok::<(), cuda_builder::Error>(())
//! ```

mod classes;

use std::path::{Path, PathBuf};

use cuda_builder::inspect::{Examination, KernelResources, ToolError, examine};
use cuda_builder::{Arch, CudaBuilder, KernelEntry};
use gpu_facts::{BlockNeeds, Occupancy};
use serde::{Serialize, Serializer};

pub use classes::{Class, Count, count, name};

/// Which kernel is to be compiled, and for what.
#[derive(Clone, Debug)]
pub struct Compile {
    /// The directory of the crate of kernels.
    pub kernels: PathBuf,
    /// The kernel's name.
    pub kernel: String,
    /// The architecture.
    pub arch: Arch,
    /// Where cargo and the builder keep what they make: by default in the target directory of the crate's workspace.
    pub target_dir: Option<PathBuf>,
}

impl Compile {
    /// A kernel of the crate in a directory, for an architecture.
    pub fn new(kernels: impl Into<PathBuf>, kernel: impl Into<String>, arch: Arch) -> Self {
        Self { kernels: kernels.into(), kernel: kernel.into(), arch, target_dir: None }
    }

    /// The builder of this kernel alone.
    fn builder(&self) -> CudaBuilder {
        let builder = CudaBuilder::new(&self.kernels).arch(self.arch).kernels(&[&self.kernel]);
        match &self.target_dir {
            Some(directory) => builder.target_dir(directory.join("cuda-builder")),
            None => builder,
        }
    }
}

/// What one kernel was compiled to for one architecture.
#[derive(Clone, Debug, Serialize)]
pub struct Code {
    /// The kernel's name.
    pub kernel: String,
    /// The architecture: `sm_90a`.
    pub arch: String,
    /// The threads of a block along x, y and z; where launches choose it, the most threads that it can have, along x.
    pub block: [u32; 3],
    /// How many blocks the kernel asks to fit on a multiprocessor, if it does.
    pub min_blocks: Option<u32>,
    /// The shared arrays of a block, in bytes.
    pub static_shared_bytes: u64,
    /// The dynamic shared memory of a block, in bytes; 0 where each launch chooses.
    pub dynamic_shared_bytes: u32,
    /// The compiler's warnings about the crate, as it shows them.
    pub warnings: Vec<String>,
    /// What NVIDIA's tools say, or, without them, which is missing and how to get it: in JSON the key `error`.
    #[serde(serialize_with = "machine_or_error")]
    pub machine: Result<Machine, String>,
}

/// The machine code of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// What each thread and block needs.
    pub resources: Resources,
    /// How many blocks a multiprocessor runs at a time; `None` for a GPU that there are no figures of.
    pub occupancy: Option<Occupancy>,
    /// How many instructions there are.
    pub instructions: usize,
    /// How many of each kind, class by class, the most frequent first.
    pub counts: Vec<Count>,
    /// The assembler's warnings and advice.
    pub warnings: Vec<String>,
}

/// What each thread and block needs, as `ptxas -v` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// The registers of a thread.
    pub registers: u32,
    /// The local memory of a thread, in bytes: its stack frame.
    pub stack_bytes: u32,
    /// Bytes of stores of registers for which there was no room.
    pub spill_store_bytes: u32,
    /// Bytes of loads of such registers.
    pub spill_load_bytes: u32,
    /// The barriers of a block.
    pub barriers: u32,
}

impl Resources {
    /// Bytes of stores and loads of registers for which there was no room.
    pub const fn spill_bytes(&self) -> u64 {
        self.spill_store_bytes as u64 + self.spill_load_bytes as u64
    }
}

impl From<&KernelResources> for Resources {
    fn from(it: &KernelResources) -> Self {
        Self {
            registers: it.registers,
            stack_bytes: it.stack_bytes,
            spill_store_bytes: it.spill_store_bytes,
            spill_load_bytes: it.spill_load_bytes,
            barriers: it.barriers,
        }
    }
}

impl Code {
    /// Compiles a kernel, and asks NVIDIA's tools what became of it, if they are there. With nothing changed since the last time this takes
    /// a fraction of a second.
    ///
    /// # Errors
    /// Those of [`CudaBuilder::build`]: what is wrong with the crate or the kernel, with the compiler's own message, or no kernel of that name.
    pub fn compile(request: &Compile) -> Result<Self, cuda_builder::Error> {
        let build = request.builder().build()?;
        let [module] = &build.modules[..] else { unreachable!("one architecture was asked for") };
        let [kernel] = &module.kernels[..] else { unreachable!("one kernel was asked for, and the builder found it") };
        // Beside what the builder keeps: `TARGET/cuda-builder/ptx/NAME/sm_90a.ptx`.
        let cache = module.path.ancestors().nth(3).unwrap_or(Path::new(".")).join("examined");
        Ok(Self::of(kernel, request.arch, build.warnings.clone(), &cache))
    }

    /// What there is to say of a kernel that has been compiled. What the tools say of it is kept in the directory `cache`.
    pub fn of(kernel: &KernelEntry, arch: Arch, warnings: Vec<String>, cache: &Path) -> Self {
        let machine = examine(&[(arch, kernel)], cache)
            .map(|examinations| Machine::of(kernel, arch, &examinations[0]))
            .map_err(|error| without_tools(&error));
        Self {
            kernel: kernel.name.clone(),
            arch: arch.to_string(),
            block: kernel.block,
            min_blocks: kernel.min_blocks,
            static_shared_bytes: kernel.shared_bytes,
            dynamic_shared_bytes: kernel.dynamic_shared_bytes,
            warnings,
            machine,
        }
    }
}

fn machine_or_error<S: Serializer>(machine: &Result<Machine, String>, serializer: S) -> Result<S::Ok, S::Error> {
    match machine {
        Ok(machine) => machine.serialize(serializer),
        Err(error) => serializer.collect_map([("error", error)]),
    }
}

impl Machine {
    fn of(kernel: &KernelEntry, arch: Arch, examination: &Examination) -> Self {
        let Examination { resources, warnings, code } = examination;
        let needs = BlockNeeds {
            threads: u32::try_from(kernel.facts().threads()).unwrap_or(u32::MAX),
            registers: resources.registers,
            shared_bytes: u64::from(resources.shared_bytes) + u64::from(kernel.dynamic_shared_bytes),
            barriers: resources.barriers,
        };
        Self {
            resources: resources.into(),
            occupancy: Occupancy::of(arch.compute_capability(), &needs),
            instructions: code.instructions.len(),
            counts: count(code.opcodes()),
            warnings: warnings.clone(),
        }
    }

    /// How many instructions of a class there are.
    pub fn of_class(&self, class: Class) -> usize {
        self.counts.iter().filter(|count| count.class == class).map(|count| count.count).sum()
    }
}

/// Why there is no machine code, and what to do about it.
fn without_tools(error: &ToolError) -> String {
    match error {
        ToolError::Missing(tool) => format!(
            "`{}` is missing, which needs no GPU: `cargo xtask setup` in Tilewright's repository gets it (or set {} to a directory that has it)",
            tool.name(),
            cuda_builder::inspect::CUDA_BIN_VARIABLE
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_builder::inspect::KernelCode;

    fn kernel() -> KernelEntry {
        KernelEntry {
            name: "k".to_owned(),
            block: [128, 2, 1],
            min_blocks: Some(2),
            shared_bytes: 1000,
            allows_local: false,
            cluster: None,
            dynamic_shared_bytes: 60_000,
            layout: 0,
            ptx: String::new(),
        }
    }

    fn examination() -> Examination {
        let resources = KernelResources {
            name: "k".to_owned(),
            registers: 40,
            stack_bytes: 16,
            spill_store_bytes: 8,
            spill_load_bytes: 12,
            shared_bytes: 1024,
            barriers: 1,
        };
        let instructions =
            ["LDG.E.128 R4, [R2.64]", "@P0 FFMA R1, R2, R3, R1", "@!PT EXIT"].map(str::to_owned).to_vec();
        Examination {
            resources,
            warnings: vec!["advice".to_owned()],
            code: KernelCode { name: "k".to_owned(), instructions, listing: String::new() },
        }
    }

    #[test]
    fn a_kernel_has_resources_occupancy_and_counts() {
        let machine = Machine::of(&kernel(), Arch::Sm90a, &examination());
        assert_eq!((machine.resources.registers, machine.resources.spill_bytes()), (40, 20));
        let occupancy = machine.occupancy.unwrap();
        // 61 024 bytes and 1 KiB are 62 080 in units of 128: three of 228 KiB. 40 registers for 8 warps would leave room for six blocks.
        assert_eq!((occupancy.blocks, occupancy.warps, occupancy.shared_bytes_per_block), (3, 24, 62_080));
        assert_eq!(occupancy.limited_by().collect::<Vec<_>>(), ["shared memory"]);
        assert_eq!((machine.instructions, machine.of_class(Class::Fp32), machine.of_class(Class::Control)), (3, 1, 1));
        let json = serde_json::to_value(&machine).unwrap();
        assert_eq!((&json["resources"]["registers"], &json["counts"][0]["name"]), (&40.into(), &"LDG.128".into()));
        assert_eq!(json["occupancy"]["blocks_by"]["registers"], 6);
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_gets_it() {
        let message = without_tools(&ToolError::Missing(cuda_builder::inspect::CudaTool::Ptxas));
        assert!(message.contains("`ptxas`") && message.contains("cargo xtask setup"), "{message}");
    }
}
