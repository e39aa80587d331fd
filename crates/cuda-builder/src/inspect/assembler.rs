//! What `ptxas` says of a module: the registers, the stack and the shared memory of every kernel.

use std::io;
use std::path::PathBuf;

use super::tools::{CudaTool, ToolError};
use crate::Arch;

/// The machine code of a module, and what its kernels need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The machine code, an ELF file that the driver loads as it is.
    pub cubin: Vec<u8>,
    /// The kernels, in the order in which ptxas names them.
    pub kernels: Vec<KernelResources>,
    /// The assembler's warnings and performance advice.
    pub warnings: Vec<String>,
    /// Everything that the assembler has said.
    pub report: String,
}

/// What one kernel needs, as `ptxas -v` reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelResources {
    /// The entry point.
    pub name: String,
    /// Registers for each thread.
    pub registers: u32,
    /// The stack frames of each thread, in bytes, those of called functions included. Not zero means that the kernel uses
    /// local memory, with or without spills.
    pub stack_bytes: u32,
    /// Bytes of stores of registers for which there was no room.
    pub spill_store_bytes: u32,
    /// Bytes of loads of such registers.
    pub spill_load_bytes: u32,
    /// Static shared memory of each block, in bytes, including what alignment adds.
    pub shared_bytes: u32,
    /// The barriers that a block uses: `bar.sync` and others, not `mbarrier`.
    pub barriers: u32,
}

impl KernelResources {
    /// Bytes of stores and loads of registers for which there was no room.
    pub fn spill_bytes(&self) -> u64 {
        u64::from(self.spill_store_bytes) + u64::from(self.spill_load_bytes)
    }

    /// Whether everything is in registers: no stack frame, no spills.
    pub fn is_in_registers(&self) -> bool {
        self.stack_bytes == 0 && self.spill_bytes() == 0
    }
}

/// Assembles a module of PTX for `arch`.
///
/// # Errors
/// [`ToolError::Missing`] without ptxas, [`ToolError::Failed`] with its message if it refuses the module.
pub fn assemble(ptx: &str, arch: Arch) -> Result<Assembly, ToolError> {
    let io = |reason: io::Error| ToolError::Io { path: PathBuf::from(CudaTool::Ptxas.name()), reason };
    let directory = tempfile::tempdir().map_err(io)?;
    let (source, result) = (directory.path().join("module.ptx"), directory.path().join("module.cubin"));
    std::fs::write(&source, ptx).map_err(io)?;
    // Lines of source, where the PTX has them.
    let lines = ptx.lines().any(|line| line.trim_start().starts_with(".loc")).then_some("-lineinfo");
    let (_, report) = CudaTool::Ptxas
        .run(|ptxas| ptxas.args(["-v", "-O3", "-arch", arch.name()]).args(lines).arg("-o").args([&result, &source]))?;
    let (kernels, warnings) = read_report(&report)?;
    Ok(Assembly { cubin: std::fs::read(&result).map_err(io)?, kernels, warnings, report })
}

/// The kernels, and the warnings and advice, in a report of `ptxas -v`.
///
/// # Errors
/// [`ToolError::Unexpected`] with what is missing in the report.
pub fn read_report(report: &str) -> Result<(Vec<KernelResources>, Vec<String>), ToolError> {
    let kernels =
        kernels(report).map_err(|what| ToolError::Unexpected { tool: CudaTool::Ptxas, what: what.to_owned() })?;
    let warnings = report.lines().filter(|line| !is_routine(line)).map(|line| line.trim().to_owned()).collect();
    Ok((kernels, warnings))
}

/// Whether a line of the report is one of those that there are for every kernel.
fn is_routine(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.contains(" bytes stack frame") || (line.starts_with("ptxas info") && !line.contains("(C"))
}

/// The kernels in a report of `ptxas -v`.
fn kernels(report: &str) -> Result<Vec<KernelResources>, &'static str> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(KernelResources {
                name,
                registers: 0,
                stack_bytes: 0,
                spill_store_bytes: 0,
                spill_load_bytes: 0,
                shared_bytes: 0,
                barriers: 0,
            });
        } else if line.contains(" bytes stack frame") {
            // A function that was not inlined has such a line of its own, after its kernel's.
            let kernel = kernels.last_mut().ok_or("a stack frame without a kernel")?;
            let bytes = |what| number_before(line, what).ok_or("a stack frame without its numbers");
            kernel.stack_bytes = kernel.stack_bytes.saturating_add(bytes(" bytes stack frame")?);
            kernel.spill_store_bytes = kernel.spill_store_bytes.saturating_add(bytes(" bytes spill stores")?);
            kernel.spill_load_bytes = kernel.spill_load_bytes.saturating_add(bytes(" bytes spill loads")?);
        } else if line.contains(" registers") && line.contains(": Used ") {
            let kernel = kernels.last_mut().ok_or("registers without a kernel")?;
            kernel.registers = number_before(line, " registers").ok_or("registers without a number")?;
            kernel.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
            kernel.barriers = number_before(line, " barriers").unwrap_or(0);
        }
    }
    if kernels.iter().all(|kernel| kernel.registers > 0) { Ok(kernels) } else { Err("a kernel without registers") }
}

/// The number that stands before `what` in a line.
fn number_before(line: &str, what: &str) -> Option<u32> {
    line[..line.find(what)?].rsplit([' ', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'tiled' for 'sm_80'
ptxas info    : Function properties for tiled
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 8192 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 2.464 ms
ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas warning : something
ptxas info    : Compiling entry function 'spilling' for 'sm_80'
ptxas info    : Function properties for spilling
    128 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Function properties for helper
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 144 bytes cumulative stack size, 368 bytes cmem[0]
";

    #[test]
    fn reads_the_report() {
        let kernels = kernels(REPORT).unwrap();
        let tiled = KernelResources {
            name: "tiled".to_owned(),
            registers: 38,
            stack_bytes: 0,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
            shared_bytes: 8192,
            barriers: 1,
        };
        let spilling = KernelResources {
            name: "spilling".to_owned(),
            registers: 255,
            stack_bytes: 144,
            spill_store_bytes: 24,
            spill_load_bytes: 36,
            shared_bytes: 0,
            barriers: 0,
        };
        assert!(tiled.is_in_registers() && !spilling.is_in_registers());
        assert_eq!(kernels, [tiled, spilling]);
    }

    #[test]
    fn keeps_warnings_and_advice() {
        let warnings: Vec<_> = REPORT.lines().filter(|line| !is_routine(line)).collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("C7514") && warnings[1].contains("warning"));
    }

    #[test]
    fn a_report_without_numbers_is_an_error() {
        assert!(kernels("ptxas info : Compiling entry function 'k' for 'sm_80'").is_err());
        assert!(kernels("    many bytes stack frame, 0 bytes spill stores, 0 bytes spill loads").is_err());
    }
}
