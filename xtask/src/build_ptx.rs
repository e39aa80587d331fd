//! `cargo xtask build-ptx`: the kernels as PTX, and what each needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use cuda_builder::inspect::{Examination, ToolError, assemble, examine};
use cuda_builder::{Arch, CudaBuilder, KernelEntry, Limits, write_atomically};

use crate::workspace::{examinations, kernel_crate, table, target_dir};

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
    /// Only the kernels whose names contain this, in the table. The files have all.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Fail on a compiler's warning and on anything that a kernel should not do (a stack frame, spills, generic accesses, no
    /// tensor-core instructions where its name says so), and if there are no tools to tell.
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

    let mut files = Vec::new();
    for module in &build.modules {
        if arguments.emit.contains(&Emit::Ptx) {
            files.push(module.path.clone());
        }
        if arguments.emit.contains(&Emit::LlvmIr) {
            let text = std::fs::read(&module.llvm_ir).with_context(|| module.llvm_ir.display().to_string())?;
            files.push(write(&out, &build.name, module.arch, "ll", &text)?);
        }
        if arguments.emit.contains(&Emit::Cubin) {
            let assembly = assemble(&module.ptx, module.arch);
            let assembly = assembly.with_context(|| format!("assembling {}", module.path.display()))?;
            files.push(write(&out, &build.name, module.arch, "cubin", &assembly.cubin)?);
        }
    }

    let wanted = arguments.kernel.as_deref().unwrap_or("");
    let kernels: Vec<(Arch, &KernelEntry)> = (build.modules.iter())
        .flat_map(|module| module.kernels.iter().map(|kernel| (module.arch, kernel)))
        .filter(|(_, kernel)| kernel.name.contains(wanted))
        .collect();
    let examined = match examine(&kernels, &examinations()) {
        Ok(examined) => Some(examined),
        Err(ToolError::Missing(tool)) if !arguments.strict => {
            println!("`{}` is missing, which has more to tell: `cargo xtask setup` gets it.", tool.name());
            None
        }
        Err(error) => return Err(error.into()),
    };
    let mut rows = table(["kernel", "arch", "block", "registers", "stack", "spills", "shared", "fits", "objections"]);
    let mut objections: Vec<String> = Vec::new();
    for (position, (arch, kernel)) in kernels.iter().enumerate() {
        let examination = examined.as_ref().map(|examined| &examined[position]);
        let found = examination.map_or_else(Vec::new, |examination| examination.objections(*arch, kernel));
        rows.add_row(row(kernel, *arch, examination, found.len()));
        objections.extend(found.into_iter().map(|what| format!("{} for {arch}: {what}", kernel.name)));
    }
    println!("{rows}");
    for file in files {
        println!("wrote {}", file.display());
    }
    for objection in &objections {
        eprintln!("{objection}");
    }
    if arguments.strict && !(objections.is_empty() && build.warnings.is_empty()) {
        bail!("{} warnings of the compiler, {} objections to kernels", build.warnings.len(), objections.len());
    }
    Ok(())
}

fn row(kernel: &KernelEntry, arch: Arch, examination: Option<&Examination>, objections: usize) -> [String; 9] {
    let [x, y, z] = kernel.block;
    let of = |show: fn(&Examination) -> String| examination.map_or_else(|| "-".to_owned(), show);
    [
        kernel.name.clone(),
        arch.to_string(),
        format!("{x}x{y}x{z}"),
        of(|examination| examination.resources.registers.to_string()),
        of(|examination| format!("{} B", examination.resources.stack_bytes)),
        of(|examination| format!("{} B", examination.resources.spill_bytes())),
        format!("{} B", kernel.facts().shared_bytes()),
        fits(kernel, arch),
        examination.map_or_else(|| "-".to_owned(), |_| objections.to_string()),
    ]
}

/// The compute capabilities whose GPUs can launch a kernel.
fn fits(kernel: &KernelEntry, arch: Arch) -> String {
    let fits = kernel.fits(arch);
    if fits.len() == Limits::known().filter(|&capability| arch.runs_on(capability)).count() {
        return "all".to_owned();
    }
    fits.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn write(out: &Path, name: &str, arch: Arch, extension: &str, contents: &[u8]) -> anyhow::Result<PathBuf> {
    let path = out.join(format!("{name}.{arch}.{extension}"));
    write_atomically(&path, contents)?;
    Ok(path)
}
