//! `cargo xtask build-ptx`: the kernels as PTX, and what each needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use cuda_builder::inspect::{CudaTool, KernelResources, ToolError, assemble};
use cuda_builder::{Arch, CudaBuilder, KernelEntry, write_atomically};

use crate::workspace::{kernel_crate, table, target_dir};

/// The options of `build-ptx`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The architectures, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [Arch::Sm80, Arch::Sm90a])]
    arch: Vec<Arch>,
    /// Where the files go [default: ptx in the target directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What to write, separated by commas. A cubin needs ptxas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Emit::Ptx])]
    emit: Vec<Emit>,
    /// The crate with the kernels [default: gpu-kernels].
    #[arg(long, value_name = "DIR")]
    crate_dir: Option<PathBuf>,
    /// Fail on a compiler's warning, a stack frame or a spill, and if there is no ptxas to tell.
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// PTX, as `<crate>.<arch>.ptx`.
    Ptx,
    /// The LLVM IR it is made from, as `<crate>.<arch>.ll`.
    LlvmIr,
    /// Machine code, as `<crate>.<arch>.cubin`.
    Cubin,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let out = arguments.out.clone().unwrap_or_else(|| target_dir().join("ptx"));
    let crate_dir = arguments.crate_dir.clone().unwrap_or_else(kernel_crate);
    let mut builder = CudaBuilder::new(crate_dir).archs(&arguments.arch).target_dir(target_dir().join("cuda-builder"));
    if arguments.emit.contains(&Emit::Ptx) {
        builder = builder.copy_to(&out);
    }
    let build = builder.build()?;
    for warning in &build.warnings {
        eprintln!("{warning}");
    }

    let mut rows = table(["kernel", "arch", "block", "registers", "stack", "spills", "shared"]);
    let mut objections: Vec<String> = Vec::new();
    let mut files = Vec::new();
    for module in &build.modules {
        if arguments.emit.contains(&Emit::Ptx) {
            files.push(module.path.clone());
        }
        if arguments.emit.contains(&Emit::LlvmIr) {
            let text = std::fs::read(&module.llvm_ir).with_context(|| module.llvm_ir.display().to_string())?;
            files.push(write(&out, &build.name, module.arch, "ll", &text)?);
        }
        let assembly = match assemble(&module.ptx, module.arch) {
            Ok(assembly) => Some(assembly),
            // Everything else goes without.
            Err(ToolError::Missing(_)) if !(arguments.strict || arguments.emit.contains(&Emit::Cubin)) => None,
            Err(error) => return Err(error).with_context(|| format!("assembling {}", module.path.display())),
        };
        if let Some(assembly) = &assembly {
            objections.extend(assembly.warnings.iter().map(|warning| format!("{}: {warning}", module.arch)));
            if arguments.emit.contains(&Emit::Cubin) {
                files.push(write(&out, &build.name, module.arch, "cubin", &assembly.cubin)?);
            }
        }
        for kernel in &module.kernels {
            let resources =
                assembly.iter().flat_map(|assembly| &assembly.kernels).find(|other| other.name == kernel.name);
            rows.add_row(row(kernel, module.arch, resources));
            if let Some(resources) = resources.filter(|resources| !resources.is_in_registers()) {
                objections.push(format!("{} for {} has a stack frame or spills", resources.name, module.arch));
            }
        }
    }
    println!("{rows}");
    if CudaTool::Ptxas.find().is_none() {
        println!("What is not shown is for ptxas to say, which is missing: `cargo xtask setup` gets it.");
    }
    for file in files {
        println!("wrote {}", file.display());
    }
    for objection in &objections {
        eprintln!("{objection}");
    }
    if arguments.strict && !(objections.is_empty() && build.warnings.is_empty()) {
        bail!("{} warnings of the compiler, {} objections of the assembler", build.warnings.len(), objections.len());
    }
    Ok(())
}

fn row(kernel: &KernelEntry, arch: Arch, resources: Option<&KernelResources>) -> [String; 7] {
    let [x, y, z] = kernel.block;
    let of = |show: fn(&KernelResources) -> String| resources.map_or_else(|| "-".to_owned(), show);
    [
        kernel.name.clone(),
        arch.to_string(),
        format!("{x}x{y}x{z}"),
        of(|resources| resources.registers.to_string()),
        of(|resources| format!("{} B", resources.stack_bytes)),
        of(|resources| format!("{} B", resources.spill_store_bytes + resources.spill_load_bytes)),
        of(|resources| format!("{} B", resources.shared_bytes)),
    ]
}

fn write(out: &Path, name: &str, arch: Arch, extension: &str, contents: &[u8]) -> anyhow::Result<PathBuf> {
    let path = out.join(format!("{name}.{arch}.{extension}"));
    write_atomically(&path, contents)?;
    Ok(path)
}
