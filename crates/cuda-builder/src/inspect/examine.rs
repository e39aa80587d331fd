//! What NVIDIA's tools say of many kernels: each assembled and disassembled once, several at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use gpu_facts::Limits;
use serde_json::{Value, json};

use super::assembler::{Assembly, KernelResources};
use super::sass::{self, KernelCode};
use super::tools::{CudaTool, ToolError};
use super::{assemble, assembler};
use crate::{Arch, KernelEntry, parallel, write_atomically};

/// Results that nobody asked for in this time are removed.
const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3600);

/// What is known of a kernel's machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// What it needs.
    pub resources: KernelResources,
    /// The assembler's warnings and performance advice.
    pub warnings: Vec<String>,
    /// Its instructions.
    pub code: KernelCode,
}

/// Assembles and disassembles kernels, each in its own module, as many at a time as there are processors.
///
/// Results are kept in the directory `cache` under the hash of everything that they depend on, so that only what has changed
/// is looked at again.
///
/// # Errors
/// [`ToolError::Missing`] without `ptxas` and `nvdisasm`; [`ToolError::Failed`] with the message of a tool that refuses a
/// kernel.
pub fn examine(kernels: &[(Arch, &KernelEntry)], cache: &Path) -> Result<Vec<Examination>, ToolError> {
    let tools = tools()?;
    let one = |&(arch, kernel): &(Arch, &KernelEntry)| examine_one(&tools, arch, kernel, cache);
    parallel::map(kernels, one).into_iter().collect()
}

/// What identifies the tools: another version gives other results.
pub(super) fn tools() -> Result<String, ToolError> {
    let identity = |tool: CudaTool| -> Result<String, ToolError> {
        let path = tool.find().ok_or(ToolError::Missing(tool))?;
        let metadata = fs::metadata(&path).map_err(|reason| ToolError::Io { path: path.clone(), reason })?;
        Ok(format!("{} {} {:?}\n", path.display(), metadata.len(), metadata.modified().ok()))
    };
    Ok(identity(CudaTool::Ptxas)? + &identity(CudaTool::Nvdisasm)?)
}

fn examine_one(tools: &str, arch: Arch, kernel: &KernelEntry, cache: &Path) -> Result<Examination, ToolError> {
    let entry = cache.join(format!("{}.{arch}.{}.json", kernel.name, key(tools, arch, &kernel.ptx)));
    let kept = fs::read(&entry).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let texts = kept.as_ref().and_then(|kept| Some((kept["report"].as_str()?, kept["listing"].as_str()?)));
    if let Some((report, listing)) = texts {
        return read(&kernel.name, report, listing);
    }
    let of_kernel = |error: ToolError| error.of_kernel(&kernel.name, arch);
    let Assembly { cubin, report, .. } = assemble(&kernel.ptx, arch).map_err(of_kernel)?;
    let listing = sass::listing(&cubin).map_err(of_kernel)?;
    let examination = read(&kernel.name, &report, &listing)?;
    let failed = |reason: io::Error| ToolError::Io { path: entry.clone(), reason };
    write_atomically(&entry, json!({ "report": report, "listing": listing }).to_string().as_bytes())
        .map_err(|error| failed(io::Error::other(error)))?;
    remove_old(cache);
    Ok(examination)
}

/// The hash of everything that a result depends on, in hexadecimal digits.
pub(super) fn key(tools: &str, arch: Arch, ptx: &str) -> String {
    // Two hashes of 64 bits, so that no two kernels ever share one.
    let hash = |half: u8| {
        let mut hasher = DefaultHasher::new();
        (half, tools, arch, ptx, include_str!("assembler.rs"), include_str!("sass.rs")).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", hash(0), hash(1))
}

/// Makes sense of what the two tools have said of one kernel.
pub(super) fn read(name: &str, report: &str, listing: &str) -> Result<Examination, ToolError> {
    let lacking = |tool| ToolError::Unexpected { tool, what: format!("it does not mention the kernel `{name}`") };
    let (kernels, warnings) = assembler::read_report(report)?;
    let resources = kernels.into_iter().find(|kernel| kernel.name == name).ok_or(lacking(CudaTool::Ptxas))?;
    let code = sass::read_listing(listing).into_iter().find(|kernel| kernel.name == name);
    Ok(Examination { resources, warnings, code: code.ok_or(lacking(CudaTool::Nvdisasm))? })
}

/// Removes results that have been there for long: they would be made again. What cannot be removed stays.
pub(super) fn remove_old(cache: &Path) {
    let Some(limit) = SystemTime::now().checked_sub(KEPT_FOR) else { return };
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let old = entries.filter(|entry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        modified.is_ok_and(|modified| modified < limit)
    });
    for path in old.map(|entry| entry.path()).collect::<Vec<PathBuf>>() {
        let _ = fs::remove_file(path);
    }
}

impl Examination {
    /// What is wrong with a kernel that should be fast, in words. The rules hold for all of them:
    ///
    /// - everything is in registers, unless the kernel may have local memory: no stack frame, no spills, no access of local memory. Only where
    ///   `wgmma` has the accumulators of a tile in most registers, a few others may be spilled outside of the loops that multiply: once for a tile;
    /// - a block fits into the registers and the shared memory of a GPU that runs the architecture;
    /// - the assembler has no warning and no advice (C7508: `setmaxnreg` ignored; C7510 to C7514: `wgmma` serialized);
    /// - no access goes through a generic address, unless the kernel has clusters, and no address of shared memory has become one;
    /// - a kernel whose name says `wgmma` or `mma` uses these instructions: `HGMMA` and `HMMA` in the machine code; if it says `10xint8`
    ///   or `fp64`, too, `IGMMA` and `DMMA`.
    pub fn objections(&self, arch: Arch, kernel: &KernelEntry) -> Vec<String> {
        let Self { resources, warnings, code } = self;
        let mut objections = Vec::new();
        let mut require = |fulfilled: bool, what: String| {
            if !fulfilled {
                objections.push(what);
            }
        };
        let (stack, spills) = (resources.stack_bytes, resources.spill_bytes());
        let once_for_a_tile = spills > 0 && spills <= MOST_SPILLED && spills_outside_of_products(code);
        require(stack == 0 || once_for_a_tile || kernel.allows_local, format!("stack frame {stack}"));
        // A function that calls itself keeps its registers so.
        require(spills == 0 || once_for_a_tile || kernel.allows_local, format!("spills {spills}"));
        let local = code.count("LDL") + code.count("STL");
        require(local == 0 || spills > 0 || kernel.allows_local, format!("accesses of local memory {local}"));

        let threads: u32 = kernel.block.iter().product();
        let limit = Limits::of_every_gpu().registers_per_thread(threads, 1);
        require(resources.registers <= limit, format!("{} registers of {limit}", resources.registers));
        if kernel.fits(arch).is_empty() {
            let excess = Limits::of_hopper().check(&kernel.facts()).err().map(|excess| excess.to_string());
            require(false, format!("no GPU that runs {arch} can launch it: {}", excess.unwrap_or_default()));
        }
        for warning in warnings {
            require(false, format!("ptxas says: {warning}"));
        }

        // Those that name their memory have operations of their own: LDG, LDS, ATOMG.
        let generic: usize = ["LD", "ST", "ATOM"].iter().map(|operation| code.count(operation)).sum();
        // Shared memory of another block is reached by such an address; the PTX names it all the same, which is checked.
        require(generic == 0 || kernel.cluster.is_some(), format!("accesses through generic addresses {generic}"));
        let made_generic = kernel.ptx.matches("cvta.shared").count();
        require(made_generic == 0, format!("addresses of shared memory made generic {made_generic}"));

        let name = &kernel.name;
        let has = |part: &str| name.split('_').any(|word| word == part);
        let wgmma = if has("10xint8") { "IGMMA" } else { "HGMMA" };
        require(!has("wgmma") || code.count(wgmma) > 0, format!("no {wgmma}"));
        let mma = if has("fp64") { "DMMA" } else { "HMMA" };
        require(!has("mma") || code.count(mma) > 0, format!("no {mma}"));
        objections
    }
}

/// The most bytes that a thread may store and load of registers that it spills once for a tile.
const MOST_SPILLED: u64 = 60;

/// Whether there are loops with products of `wgmma`, and none of the innermost ones has an access of local memory.
fn spills_outside_of_products(code: &KernelCode) -> bool {
    let multiplying = code.innermost_loops_with("HGMMA");
    !multiplying.is_empty() && multiplying.iter().all(|body| body.count("LDL") + body.count("STL") == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, block: [u32; 3], ptx: &str) -> KernelEntry {
        KernelEntry {
            name: name.to_owned(),
            block,
            min_blocks: None,
            cluster: None,
            shared_bytes: 0,
            dynamic_shared_bytes: 0,
            allows_local: false,
            layout: 0,
            ptx: ptx.to_owned(),
        }
    }

    fn examination(registers: u32, instructions: &[&str]) -> Examination {
        let resources = KernelResources {
            name: "k".to_owned(),
            registers,
            stack_bytes: 0,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
            shared_bytes: 1024,
            barriers: 0,
        };
        let instructions = instructions.iter().map(|&instruction| instruction.to_owned()).collect();
        let code = KernelCode { name: "k".to_owned(), instructions, listing: String::new() };
        Examination { resources, warnings: Vec::new(), code }
    }

    #[test]
    fn a_good_kernel_has_no_objections() {
        let good =
            examination(168, &["LDG.E R0, [R2.64]", "LDS R1, [R2]", "REDG.E.ADD [R2.64], R5", "HGMMA.64x8x8 R0"]);
        assert_eq!(good.objections(Arch::Sm80, &kernel("gemm_wgmma_nn", [384, 1, 1], "")), [""; 0]);
        assert_eq!(
            examination(64, &["HMMA.1688 R0"]).objections(Arch::Sm80, &kernel("gemm_mma_nn", [32, 32, 1], "")),
            [""; 0]
        );
    }

    #[test]
    fn every_rule_objects() {
        let objections = |kernel: &KernelEntry, change: &dyn Fn(&mut Examination)| {
            let mut examination = examination(64, &["LDG.E R0, [R2.64]"]);
            change(&mut examination);
            examination.objections(Arch::Sm80, kernel).join("; ")
        };
        let plain = kernel("plain", [32, 1, 1], "");
        assert_eq!(objections(&plain, &|_| {}), "");
        assert_eq!(objections(&plain, &|e| e.resources.stack_bytes = 8), "stack frame 8");
        assert_eq!(objections(&plain, &|e| e.resources.spill_load_bytes = 4), "spills 4");
        // Once for a tile, and in the loop that multiplies.
        let spilled = |before: &str, within: &str, bytes: u32| {
            let listing = format!(
                ".L_1:\n/*00*/ {before} ;\n.L_2:\n/*10*/ HGMMA.64x8x8 R24 ;\n/*20*/ {within} ;\n/*30*/ @P0 BRA `(.L_2) ;\n\
                 /*40*/ @P1 BRA `(.L_1) ;\n"
            );
            objections(&plain, &|e| {
                (e.resources.stack_bytes, e.resources.spill_load_bytes) = (8, bytes);
                e.code.listing.clone_from(&listing);
            })
        };
        let most = MOST_SPILLED as u32;
        assert_eq!(spilled("LDL R2, [R1]", "NOP", most), "");
        assert_eq!(spilled("LDL R2, [R1]", "NOP", most + 4), format!("stack frame 8; spills {}", most + 4));
        assert_eq!(spilled("NOP", "LDL R2, [R1]", 4), "stack frame 8; spills 4");
        assert_eq!(spilled("NOP", "@!P0 STL.64 [R1], R2", 4), "stack frame 8; spills 4");
        let local = |e: &mut Examination| e.code.instructions.push("@P0 STL.64 [R1], R2".to_owned());
        assert_eq!(objections(&plain, &local), "accesses of local memory 1");
        let allowed = KernelEntry { allows_local: true, ..plain.clone() };
        assert_eq!(objections(&allowed, &local), "");
        assert_eq!(objections(&allowed, &|e| e.resources.stack_bytes = 8), "");
        assert_eq!(objections(&allowed, &|e| e.resources.spill_load_bytes = 4), "");
        // 168 registers for each of 384 threads are all that there are; 65 become 72, for 1024 threads too many.
        let large = |e: &mut Examination| e.resources.registers = 169;
        assert_eq!(objections(&kernel("plain", [384, 1, 1], ""), &large), "169 registers of 168");
        let more = |e: &mut Examination| e.resources.registers = 65;
        assert_eq!(objections(&kernel("plain", [1, 1024, 1], ""), &more), "65 registers of 64");
        let shared = objections(&KernelEntry { dynamic_shared_bytes: 300 << 10, ..plain.clone() }, &|_| {});
        assert!(shared.contains("no GPU that runs sm_80") && shared.contains("307200 bytes"), "{shared}");
        let warned = objections(&plain, &|e| e.warnings.push("(C7514) serialized".to_owned()));
        assert_eq!(warned, "ptxas says: (C7514) serialized");
        for access in ["LD.E.64 R0, [R2]", "@!P1 ST.E desc[UR4][R2.64], R0", "ATOM.E.ADD PT, R9, [R2]"] {
            let generic = |e: &mut Examination| e.code.instructions.push(access.to_owned());
            assert_eq!(objections(&plain, &generic), "accesses through generic addresses 1", "{access}");
            let clustered = KernelEntry { cluster: Some([2, 1, 1]), ..plain.clone() };
            assert_eq!(objections(&clustered, &generic), "", "{access}");
        }
        let converted = kernel("plain", [32, 1, 1], "\tcvta.shared.u64 %rd1, %rd2;\n");
        assert_eq!(objections(&converted, &|_| {}), "addresses of shared memory made generic 1");
        assert_eq!(objections(&kernel("gemm_mma_nn_fp32", [32, 1, 1], ""), &|_| {}), "no HMMA");
        let without_fp64 = |e: &mut Examination| e.code.instructions.push("HMMA.1688 R0".to_owned());
        assert_eq!(objections(&kernel("gemm_mma_nn_fp32_fp64", [32, 1, 1], ""), &without_fp64), "no DMMA");
        let fp64 = |e: &mut Examination| e.code.instructions.push("DMMA.8x8x4 R0".to_owned());
        assert_eq!(objections(&kernel("gemm_mma_nn_fp32_fp64", [32, 1, 1], ""), &fp64), "");
        assert_eq!(objections(&kernel("gemm_wgmma_nn_fp32", [32, 1, 1], ""), &|_| {}), "no HGMMA");
        assert_eq!(objections(&kernel("gemm_wgmma_packed_fp32_10xint8", [32, 1, 1], ""), &|_| {}), "no IGMMA");
    }

    #[test]
    fn results_are_kept_under_what_they_depend_on() {
        let other_tools = key("ptxas 2", Arch::Sm80, "ptx");
        let keys =
            [key("ptxas 1", Arch::Sm80, "ptx"), key("ptxas 1", Arch::Sm90a, "ptx"), key("ptxas 1", Arch::Sm80, "PTX")];
        assert_eq!(keys[0], key("ptxas 1", Arch::Sm80, "ptx"));
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[0] != other_tools);
    }
}
