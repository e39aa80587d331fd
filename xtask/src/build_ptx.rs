//! `cargo xtask build-ptx`: the kernels as PTX, and what each needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use cuda_builder::inspect::{CudaTool, KernelResources, ToolError, assemble, examine};
use cuda_builder::{Arch, CudaBuilder, KernelEntry, Limits, write_atomically};
use rayon::prelude::*;

use crate::workspace::{examinations, kernel_crate, table, target_dir};

/// The options of `build-ptx`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The architectures, separated by commas [default: sm_80,sm_90a; with --kernel sm_90a].
    #[arg(long, value_delimiter = ',')]
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
    /// Only these kernels, separated by commas: nothing else is compiled.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Say for each instruction which line of Rust it comes from (`.loc`), for profilers and disassemblers.
    #[arg(long)]
    lines: bool,
    /// Fail on a compiler's warning and on anything that a kernel should not do (a stack frame, spills, generic accesses, no
    /// tensor-core instructions where its name says so), and if there are no tools to tell.
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// PTX, as `<crate>.<arch>.ptx`, or `<crate>.<kernel>.<arch>.ptx`.
    Ptx,
    /// The LLVM IR it is made from, as `….ll`.
    LlvmIr,
    /// Machine code, as `….cubin`.
    Cubin,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let out = arguments.out.clone().unwrap_or_else(|| target_dir().join("ptx"));
    let crate_dir = arguments.crate_dir.clone().unwrap_or_else(kernel_crate);
    let archs: &[Arch] = match (&arguments.arch[..], &arguments.kernel[..]) {
        ([], []) => &[Arch::Sm80, Arch::Sm90a],
        // It has all kernels, those that run on any architecture too.
        ([], _) => &[Arch::Sm90a],
        (archs, _) => archs,
    };
    let mut builder =
        CudaBuilder::new(crate_dir).archs(archs).target_dir(target_dir().join("cuda-builder")).lines(arguments.lines);
    if !arguments.kernel.is_empty() {
        builder = builder.kernels(&arguments.kernel);
    }
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
            files.push(write(&out, &build.title, module.arch, "ll", &text)?);
        }
        if arguments.emit.contains(&Emit::Cubin) {
            let assembly = assemble(&module.ptx, module.arch);
            let assembly = assembly.with_context(|| format!("assembling {}", module.path.display()))?;
            files.push(write(&out, &build.title, module.arch, "cubin", &assembly.cubin)?);
        }
    }

    let kernels: Vec<(Arch, &KernelEntry)> =
        (build.modules.iter()).flat_map(|module| module.kernels.iter().map(|kernel| (module.arch, kernel))).collect();
    let examined = match look_at(arguments, &kernels) {
        Ok(examined) => examined.into_iter().map(Some).collect(),
        Err(ToolError::Missing(tool)) if !arguments.strict => {
            println!("`{}` is missing, which has more to tell: `cargo tilewright setup` gets it.", tool.name());
            vec![None; kernels.len()]
        }
        Err(error) => return Err(error.into()),
    };
    let mut rows = table(["kernel", "arch", "block", "registers", "stack", "spills", "shared", "fits", "objections"]);
    let mut objections: Vec<String> = Vec::new();
    for ((arch, kernel), examined) in kernels.iter().zip(&examined) {
        rows.add_row(row(kernel, *arch, examined.as_ref()));
        let found = examined.iter().flat_map(|examined| examined.objections.iter().flatten());
        objections.extend(found.map(|what| format!("{} for {arch}: {what}", kernel.name)));
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

/// What is known of a kernel's machine code.
#[derive(Clone)]
struct Examined {
    resources: KernelResources,
    /// Only where the code has been looked at.
    objections: Option<Vec<String>>,
}

/// Assembles the kernels. Their code is looked at if all of them were built or it is asked for: that takes another half second.
fn look_at(arguments: &Arguments, kernels: &[(Arch, &KernelEntry)]) -> Result<Vec<Examined>, ToolError> {
    if arguments.kernel.is_empty() || arguments.strict {
        let both = examine(kernels, &examinations())?.into_iter().zip(kernels);
        return Ok(both
            .map(|(examination, (arch, kernel))| {
                let objections = Some(examination.objections(*arch, kernel));
                Examined { resources: examination.resources, objections }
            })
            .collect());
    }
    let one = |&(arch, kernel): &(Arch, &KernelEntry)| {
        let first = assemble(&kernel.ptx, arch)?.kernels.into_iter().next();
        let what = || format!("it does not mention the kernel `{}`", kernel.name);
        let resources = first.ok_or_else(|| ToolError::Unexpected { tool: CudaTool::Ptxas, what: what() })?;
        Ok(Examined { resources, objections: None })
    };
    kernels.par_iter().map(one).collect()
}

fn row(kernel: &KernelEntry, arch: Arch, examined: Option<&Examined>) -> [String; 9] {
    let [x, y, z] = kernel.block;
    let of = |show: fn(&KernelResources) -> String| {
        examined.map_or_else(|| "-".to_owned(), |examined| show(&examined.resources))
    };
    let objections = examined.and_then(|examined| examined.objections.as_ref());
    [
        kernel.name.clone(),
        arch.to_string(),
        format!("{x}x{y}x{z}"),
        of(|resources| resources.registers.to_string()),
        of(|resources| format!("{} B", resources.stack_bytes)),
        of(|resources| format!("{} B", resources.spill_bytes())),
        format!("{} B", kernel.facts().shared_bytes()),
        fits(kernel, arch),
        objections.map_or_else(|| "-".to_owned(), |objections| objections.len().to_string()),
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
