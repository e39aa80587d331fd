//! Machine code of kernels, in place of what the driver would compile at their first use.
//!
//! ```text
//!  TILEWRIGHT_CUBINS=sm_80,sm_90a        PTX for sm_80 ──ptxas──▶ sm_80            each kernel by itself,
//!                                        PTX for sm_90a ─ptxas──▶ sm_90a           then compressed
//! ```

use miniz_oxide::deflate::compress_to_vec_zlib;

use crate::inspect::{CUBINS_VARIABLE, CudaTool, ToolError, assemble};
use crate::{Arch, KernelEntry, PtxModule, UnknownArch, parallel};

/// How hard the compressor tries, of 10. The last step takes longer, and gains one part in a thousand.
const LEVEL: u8 = 9;

/// The machine code of one kernel.
#[derive(Debug)]
pub(crate) struct Cubin<'a> {
    /// The architecture of the PTX that it was made of.
    pub(crate) ptx_arch: Arch,
    /// Its own.
    pub(crate) arch: Arch,
    pub(crate) kernel: &'a str,
    /// The file that `ptxas` has written, compressed: zlib's format, with its checksum.
    pub(crate) compressed: Vec<u8>,
}

/// The architectures that the environment asks for.
pub(crate) fn wanted() -> Result<Vec<Arch>, UnknownArch> {
    let value = std::env::var_os(CUBINS_VARIABLE).unwrap_or_default();
    parse(&value.to_string_lossy())
}

fn parse(value: &str) -> Result<Vec<Arch>, UnknownArch> {
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut archs = names.map(str::parse).collect::<Result<Vec<Arch>, _>>()?;
    archs.sort();
    archs.dedup();
    Ok(archs)
}

/// Assembles and compresses the kernels for these architectures, several at a time. Those of one architecture, from PTX of one
/// other, follow one another.
///
/// # Errors
/// [`ToolError::Missing`] without `ptxas`; [`ToolError::Failed`] with its message if it refuses a kernel.
pub(crate) fn make<'a>(modules: &'a [PtxModule], archs: &[Arch]) -> Result<Vec<Cubin<'a>>, ToolError> {
    let work = work(modules, archs);
    if !work.is_empty() && CudaTool::Ptxas.find().is_none() {
        return Err(ToolError::Missing(CudaTool::Ptxas));
    }
    let one = |&(ptx_arch, arch, kernel): &(Arch, Arch, &'a KernelEntry)| {
        let assembly = assemble(&kernel.ptx, arch).map_err(|error| error.of_kernel(&kernel.name, arch))?;
        let compressed = compress_to_vec_zlib(&assembly.cubin, LEVEL);
        Ok(Cubin { ptx_arch, arch, kernel: &kernel.name, compressed })
    };
    parallel::map(&work, one).into_iter().collect()
}

/// What is to be assembled: the architecture of the PTX, that of the machine code, the kernel. For each architecture, every kernel
/// once: from the PTX that a GPU of it would be given, which is that for the newest architecture that fits.
fn work<'a>(modules: &'a [PtxModule], archs: &[Arch]) -> Vec<(Arch, Arch, &'a KernelEntry)> {
    let mut work = Vec::new();
    for &arch in archs {
        let mut fitting: Vec<_> = modules.iter().filter(|module| module.arch.assembles_to(arch)).collect();
        fitting.sort_by_key(|module| std::cmp::Reverse(module.arch));
        for (position, module) in fitting.iter().enumerate() {
            let has = |other: &&PtxModule, name: &str| other.kernels.iter().any(|kernel| kernel.name == name);
            let is_better = |kernel: &&KernelEntry| fitting[..position].iter().any(|other| has(other, &kernel.name));
            let kernels = module.kernels.iter().filter(|kernel| !is_better(kernel));
            work.extend(kernels.map(|kernel| (module.arch, arch, kernel)));
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(arch: Arch, kernels: &[&str]) -> PtxModule {
        let kernel = |name: &&str| KernelEntry {
            name: (*name).to_owned(),
            block: [32, 1, 1],
            min_blocks: None,
            cluster: None,
            shared_bytes: 0,
            dynamic_shared_bytes: 0,
            allows_local: false,
            layout: 0,
            ptx: String::new(),
        };
        PtxModule {
            arch,
            ptx: String::new(),
            path: "x.ptx".into(),
            llvm_ir: "x.ll".into(),
            ptx_version: arch.ptx_version(),
            kernels: kernels.iter().map(kernel).collect(),
        }
    }

    #[test]
    fn the_variable_names_architectures() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert_eq!(parse("sm_90a, sm_80,sm_90a,"), Ok(vec![Arch::Sm80, Arch::Sm90a]));
        assert_eq!(parse("sm_80,sm_91"), Err(UnknownArch("sm_91".to_owned())));
    }

    #[test]
    fn a_kernel_is_assembled_from_the_best_ptx_that_fits() {
        let modules = [module(Arch::Sm80, &["a", "p"]), module(Arch::Sm90a, &["a", "w"])];
        let work = |archs: &[Arch]| {
            let name = |(ptx, arch, kernel): (Arch, Arch, &KernelEntry)| format!("{} {ptx} {arch}", kernel.name);
            work(&modules, archs).into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(work(&[Arch::Sm86]), ["a sm_80 sm_86", "p sm_80 sm_86"]);
        assert_eq!(work(&[Arch::Sm90a]), ["a sm_90a sm_90a", "w sm_90a sm_90a", "p sm_80 sm_90a"]);
        assert_eq!(work(&[Arch::Sm90, Arch::Sm120]).len(), 4, "what is for sm_90a alone does not become it");
        assert_eq!(work(&[]), [""; 0]);
    }
}
