//! All kernels of a crate, a line for each: what they need, and how many of the instructions that matter they have.

use anyhow::ensure;
use cuda_builder::inspect::{Examination, examine};
use cuda_builder::{Arch, CudaBuilder, KernelEntry};

use crate::Project;
use crate::code::Code;

/// What is counted: accesses of global and of shared memory, copies between them, fused multiply-adds, tensor cores, and the generic and local
/// accesses that no kernel should have. The first two are of a width, by the opcode's modifier.
const OPERATIONS: [&str; 18] = [
    "LDG.128", "LDS.128", "LDG", "STG", "LDGSTS", "UTMALDG", "LDS", "STS", "LDSM", "FFMA", "HMMA", "DMMA", "HGMMA",
    "IGMMA", "LD", "ST", "LDL", "STL",
];

/// The kernels of the crate whose names contain a part, or that are called so if `is_whole`.
pub(super) fn codes(
    project: &Project,
    part: &str,
    is_whole: bool,
    arch: Arch,
) -> anyhow::Result<Vec<(Code, Examination)>> {
    let directory = project.target_dir.join("cuda-builder");
    let builder = CudaBuilder::new(&project.kernels).arch(arch).target_dir(&directory).quiet(true);
    let build = if is_whole { builder.kernels(&[part]).build()? } else { builder.build()? };
    let all = build.modules.iter().flat_map(|module| &module.kernels);
    let chosen: Vec<_> = all.filter(|kernel| kernel.name.contains(part)).map(|kernel| (arch, kernel)).collect();
    if chosen.is_empty() {
        let names: Vec<_> =
            build.modules.iter().flat_map(|module| &module.kernels).map(|it| it.name.as_str()).collect();
        ensure!(false, "no kernel's name contains `{part}`; for {arch} there are: {}", names.join(", "));
    }
    let examinations = examine(&chosen, &directory.join("examined"))?;
    let of = |((arch, kernel), examination): (&(Arch, &KernelEntry), Examination)| {
        (Code::with(kernel, *arch, Vec::new(), Ok(&examination)), examination)
    };
    Ok(chosen.iter().zip(examinations).map(of).collect())
}

/// The table.
pub(super) fn text(codes: &[(Code, Examination)]) -> String {
    let mut rows =
        vec![["kernel", "registers", "spills", "stack", "shared", "warps", "instructions"].map(str::to_owned).to_vec()];
    rows[0].extend(OPERATIONS.map(str::to_owned));
    for (code, examination) in codes {
        let mut row = vec![code.kernel.clone()];
        if let Ok(machine) = &code.machine {
            let it = &machine.resources;
            let shared = code.static_shared_bytes + u64::from(code.dynamic_shared_bytes);
            let warps = machine.occupancy.map_or_else(|| "-".to_owned(), |occupancy| occupancy.warps.to_string());
            let figures =
                [u64::from(it.registers), it.spill_bytes(), it.stack_bytes.into(), shared].map(|it| it.to_string());
            row.extend(figures.into_iter().chain([warps, machine.instructions.to_string()]));
        }
        row.extend(OPERATIONS.map(|operation| counted(examination, operation).to_string()));
        rows.push(row);
    }
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cell = |(column, text): (usize, &String)| {
            let width = widths[column];
            if column == 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

/// How many instructions have an operation, of a width if it says one.
fn counted(examination: &Examination, operation: &str) -> usize {
    let (operation, width) = operation.split_once('.').unwrap_or((operation, ""));
    let has_width = |opcode: &str| width.is_empty() || opcode.split('.').any(|part| part == width);
    examination.code.opcodes().filter(|opcode| opcode.split('.').next() == Some(operation) && has_width(opcode)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_builder::inspect::{KernelCode, KernelResources};

    #[test]
    fn a_kernel_is_a_line() {
        let resources = KernelResources {
            name: "k".to_owned(),
            registers: 8,
            stack_bytes: 0,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
            shared_bytes: 0,
            barriers: 0,
        };
        let instructions =
            ["LDG.E.128 R4, [R2]", "LDG.E R4, [R2]", "@P0 STG.E [R2], R4", "EXIT"].map(str::to_owned).to_vec();
        let code = KernelCode { name: "k".to_owned(), instructions, listing: String::new() };
        let examination = Examination { resources, warnings: Vec::new(), code };
        let count = |operation| counted(&examination, operation);
        assert_eq!([count("LDG.128"), count("LDG"), count("STG"), count("LD"), count("ST")], [1, 2, 1, 0, 0]);
        let code = Code {
            kernel: "k".to_owned(),
            arch: "sm_80".to_owned(),
            block: [1; 3],
            min_blocks: None,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            warnings: Vec::new(),
            machine: Err(String::new()),
            listing: None,
        };
        let text = text(&[(code, examination)]);
        assert!(text.starts_with("kernel  registers  spills") && text.lines().count() == 2, "{text}");
    }
}
