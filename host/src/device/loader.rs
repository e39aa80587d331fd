//! Kernels in a GPU: each is compiled and loaded by the driver when it is first used, and kept.
//!
//! ```text
//!                    known  ┌───────────┐
//!  launch, prepare ────────▶│ functions │──▶ Function
//!        │ first use        └───────────┘        ▲
//!        ▼                                       │
//!  best PTX that has the kernel ──load_ptx──▶ Module
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use cuda_driver::{Function, Gpu, Module};

use super::ptx::{self, ArchPtx, Ptx};
use crate::Error;

/// A kernel that has been loaded into a GPU, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedKernel {
    /// Its name.
    pub name: String,
    /// The architecture of the PTX that it was taken from, such as `sm_90a`.
    pub arch: String,
    /// How long the driver took to compile and load that PTX, or to find it in its cache. For kernels of a file it is the
    /// time for the whole file.
    pub load_time: Duration,
    /// The registers of a thread, of 32 bits each.
    pub registers: u32,
    /// The shared memory that the kernel declares, in bytes per block.
    pub static_shared_bytes: u32,
}

/// What the kernels come from.
enum Source {
    /// A module for each kernel of each architecture, the best architecture first.
    Embedded(Vec<ArchPtx>),
    /// One module with all kernels.
    File { module: Module, arch: String },
}

/// The kernels of one GPU.
pub(super) struct Loader {
    gpu: Gpu,
    source: Source,
    functions: RwLock<HashMap<Box<str>, Function>>,
    /// In the order of their loading. Locked while one is loaded, so that no two threads load the same.
    loaded: Mutex<Vec<LoadedKernel>>,
}

impl Loader {
    /// Takes kernels from embedded PTX, of which the best comes first.
    pub(super) fn of_embedded(gpu: Gpu, ptx: Vec<ArchPtx>) -> Self {
        Self::new(gpu, Source::Embedded(ptx))
    }

    /// Takes kernels from one module, which is loaded now.
    pub(super) fn of_file(gpu: Gpu, ptx: Ptx) -> Result<Self, Error> {
        let module = gpu.load_ptx(&ptx.text)?;
        Ok(Self::new(gpu, Source::File { module, arch: ptx.arch }))
    }

    fn new(gpu: Gpu, source: Source) -> Self {
        Self { gpu, source, functions: RwLock::default(), loaded: Mutex::default() }
    }

    /// The architectures that kernels are taken for, the best first.
    pub(super) fn archs(&self) -> Vec<&str> {
        match &self.source {
            Source::Embedded(archs) => archs.iter().map(|(arch, _)| *arch).collect(),
            Source::File { arch, .. } => vec![arch],
        }
    }

    /// Checks that there is a kernel of this name.
    pub(super) fn has_kernel(&self, name: &str) -> Result<(), Error> {
        match &self.source {
            Source::Embedded(archs) => find(archs, name).map(|_| ()).ok_or_else(|| self.missing(name)),
            Source::File { module, .. } if module.kernels().iter().any(|kernel| kernel == name) => Ok(()),
            Source::File { .. } => Err(self.missing(name)),
        }
    }

    /// The kernel of this name, loaded if it has not been.
    pub(super) fn function(&self, name: &str) -> Result<Function, Error> {
        match self.known(name) {
            Some(function) => Ok(function),
            None => self.load(name).map(|(function, _)| function),
        }
    }

    /// As [`Loader::function`], and tells about the kernel.
    pub(super) fn prepare(&self, name: &str) -> Result<LoadedKernel, Error> {
        self.load(name).map(|(_, loaded)| loaded)
    }

    /// Whether the kernel of this name has been loaded.
    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.known(name).is_some()
    }

    /// What has been loaded so far.
    pub(super) fn loaded(&self) -> Vec<LoadedKernel> {
        self.lock().clone()
    }

    /// How many kernels have been loaded so far.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn known(&self, name: &str) -> Option<Function> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Loads a kernel, unless another thread has done so by the time that it is this one's turn. Launches of other kernels
    /// go on meanwhile.
    fn load(&self, name: &str) -> Result<(Function, LoadedKernel), Error> {
        let mut loaded = self.lock();
        let before = loaded.iter().find(|kernel| kernel.name == name);
        if let (Some(function), Some(kernel)) = (self.known(name), before) {
            return Ok((function, kernel.clone()));
        }
        let (module, arch) = match &self.source {
            Source::Embedded(archs) => {
                let (arch, text) = find(archs, name).ok_or_else(|| self.missing(name))?;
                (self.gpu.load_ptx(text)?, arch)
            }
            Source::File { module, arch } => (module.clone(), arch.as_str()),
        };
        let function = module.function(name)?;
        let resources = function.resources();
        let kernel = LoadedKernel {
            name: name.to_owned(),
            arch: arch.to_owned(),
            load_time: module.load_time(),
            registers: resources.registers,
            static_shared_bytes: resources.static_shared_bytes,
        };
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.insert(name.into(), function.clone());
        loaded.push(kernel.clone());
        Ok((function, kernel))
    }

    /// Why there is no kernel of this name.
    fn missing(&self, name: &str) -> Error {
        let available = match &self.source {
            Source::Embedded(archs) => {
                let others = ptx::archs_with(name);
                if !others.is_empty() {
                    let properties = self.gpu.properties();
                    return Error::KernelForOtherGpus {
                        kernel: name.to_owned(),
                        available: others.join(", "),
                        device: format!("CUDA device {} ({})", properties.ordinal, properties.name),
                        taken: self.archs().join(", "),
                    };
                }
                // The same kernel may be there for several architectures.
                let names = archs.iter().flat_map(|(_, kernels)| kernels.iter().map(|(name, _)| (*name).to_owned()));
                names.collect::<BTreeSet<_>>().into_iter().collect()
            }
            Source::File { module, .. } => module.kernels().to_vec(),
        };
        cuda_driver::Error::NoSuchKernel { name: name.to_owned(), available }.into()
    }

    /// Nothing that holds the lock leaves the list half changed, so a poisoned one is in order.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<LoadedKernel>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The architecture and the PTX of a kernel, from the first that has it.
fn find(archs: &[ArchPtx], kernel: &str) -> Option<(&'static str, &'static str)> {
    archs.iter().find_map(|&(arch, kernels)| {
        let (_, text) = kernels.iter().find(|(name, _)| *name == kernel)?;
        Some((arch, *text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_comes_from_the_best_ptx_that_has_it() {
        let archs: [ArchPtx; 2] = [("sm_90a", &[("a", "a90"), ("w", "w90")]), ("sm_80", &[("a", "a80"), ("p", "p80")])];
        assert_eq!(find(&archs, "a"), Some(("sm_90a", "a90")));
        assert_eq!(find(&archs, "w"), Some(("sm_90a", "w90")));
        assert_eq!(find(&archs, "p"), Some(("sm_80", "p80")));
        assert_eq!(find(&archs[1..], "w"), None);
        assert_eq!(find(&archs[1..], "a"), Some(("sm_80", "a80")));
    }
}
