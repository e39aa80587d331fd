//! `cargo xtask sass`: which machine instructions the kernels become.

use anyhow::bail;
use cuda_builder::inspect::examine;
use cuda_builder::{Arch, CudaBuilder};

use crate::workspace::{examinations, kernel_crate, table, target_dir};

/// The options of `sass`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the kernels whose names contain this.
    kernel: Option<String>,
    /// The architecture.
    #[arg(long, default_value_t = Arch::Sm90a)]
    arch: Arch,
    /// Print the whole listing.
    #[arg(long)]
    full: bool,
}

/// The operations that are counted: accesses of global and of shared memory, copies between them, fused multiply-adds, tensor
/// cores, and the generic and local accesses that no kernel should have.
const OPERATIONS: [&str; 16] = [
    "LDG", "STG", "LDGSTS", "UTMALDG", "LDS", "STS", "LDSM", "FFMA", "HMMA", "DMMA", "HGMMA", "IGMMA", "LD", "ST",
    "LDL", "STL",
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let build =
        CudaBuilder::new(kernel_crate()).arch(arguments.arch).target_dir(target_dir().join("cuda-builder")).build()?;
    let all = &build.modules[0].kernels;
    let wanted = arguments.kernel.as_deref().unwrap_or("");
    let chosen: Vec<_> =
        all.iter().filter(|kernel| kernel.name.contains(wanted)).map(|kernel| (arguments.arch, kernel)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all.iter().map(|kernel| kernel.name.as_str()).collect();
        bail!("no kernel's name contains `{wanted}`; there are: {}", names.join(", "));
    }
    let kernels: Vec<_> = examine(&chosen, &examinations())?.into_iter().map(|examined| examined.code).collect();

    let mut heading = vec!["kernel", "instructions", "LDG.128", "LDS.128"];
    heading.extend(OPERATIONS);
    let mut rows = table([]);
    rows.set_header(heading);
    for kernel in &kernels {
        let wide = |operation: &str| {
            kernel
                .opcodes()
                .filter(|opcode| opcode.split('.').next() == Some(operation) && opcode.contains(".128"))
                .count()
        };
        let mut row = vec![kernel.name.clone()];
        row.extend([kernel.instructions.len(), wide("LDG"), wide("LDS")].map(|count| count.to_string()));
        row.extend(OPERATIONS.map(|operation| kernel.count(operation).to_string()));
        rows.add_row(row);
    }
    println!("{rows}");
    if arguments.full {
        for kernel in kernels {
            println!("\n{} for {}:\n{}", kernel.name, arguments.arch, kernel.listing.trim_end());
        }
    }
    Ok(())
}
