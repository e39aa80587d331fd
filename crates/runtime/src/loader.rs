//! Loads kernels into a GPU, each at its first use: machine code, or PTX, which the driver compiles. The loaded function is kept.
//!
//! ```text
//!                    known  ┌───────────┐
//!  launch, prepare ────────▶│ functions │──▶ Function
//!        │ first use        └───────────┘        ▲
//!        ▼                                       │
//!  best PTX that has the kernel ──load_ptx──▶ Module
//!        │                  no ▲                 ▲
//!        └─▶ machine code of it? ── load_cubin ──┘
//! ```
//!
//! "No" is also the driver's answer to machine code that it does not accept: an old one, or one that is told to compile all PTX.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use cuda_driver::{Function, Gpu, KernelFacts, Module, ptx_facts};
use miniz_oxide::inflate::decompress_to_vec_zlib;

use crate::Error;
use crate::kernel_set::{ArchPtx, KernelSet, Source};
use crate::prints::Prints;

/// A kernel that has been loaded into a GPU, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedKernel {
    /// Its name.
    pub name: String,
    /// The architecture of its PTX, such as `sm_90a`.
    pub arch: String,
    /// The architecture of its machine code, if that was embedded in the program: the driver has not compiled the PTX.
    pub cubin: Option<&'static str>,
    /// How long the driver took to load its machine code, or to compile and load its PTX, or to find that in its cache. For kernels
    /// of a file it is the time for the whole file.
    pub load_time: Duration,
    /// The registers of a thread, of 32 bits each.
    pub registers: u32,
    /// The shared memory that the kernel declares, in bytes per block.
    pub static_shared_bytes: u32,
}

/// What the kernels of a GPU come from.
enum Modules {
    /// A module for each kernel of each architecture, the best architecture first.
    Embedded(Vec<ArchPtx>),
    /// One module with all kernels, for this architecture.
    File { module: Module, arch: &'static str },
}

/// The kernels of one set on one GPU.
pub(crate) struct Loader {
    gpu: Gpu,
    set: &'static KernelSet,
    prints: Arc<Prints>,
    modules: Modules,
    functions: RwLock<HashMap<Box<str>, Function>>,
    /// In the order of their loading. Locked while one is loaded, so that no two threads load the same.
    loaded: Mutex<Vec<LoadedKernel>>,
}

impl Loader {
    /// Takes what a GPU runs of a set: all of its architectures, or one. A set from a file is loaded now.
    pub(crate) fn new(
        gpu: Gpu,
        set: &'static KernelSet,
        arch: Option<&str>,
        prints: Arc<Prints>,
    ) -> Result<Self, Error> {
        let modules = match set.source() {
            Source::File { arch, text } => {
                let module = gpu.load_ptx(text)?;
                prints.connect(&module, text, None)?;
                Modules::File { module, arch }
            }
            Source::Embedded(_) | Source::Missing(_) => Modules::Embedded(set.runnable(gpu.properties(), arch)?),
        };
        Ok(Self { gpu, set, prints, modules, functions: RwLock::default(), loaded: Mutex::default() })
    }

    /// The set.
    pub(crate) fn set(&self) -> &'static KernelSet {
        self.set
    }

    /// The architectures that kernels are taken for, the best first.
    pub(crate) fn archs(&self) -> Vec<&str> {
        match &self.modules {
            Modules::Embedded(archs) => archs.iter().map(|(arch, _)| *arch).collect(),
            Modules::File { arch, .. } => vec![arch],
        }
    }

    /// Checks that there is a kernel of this name.
    pub(crate) fn has_kernel(&self, name: &str) -> Result<(), Error> {
        match &self.modules {
            Modules::Embedded(archs) => find(archs, name).map(|_| ()).ok_or_else(|| self.missing(name)),
            Modules::File { module, .. } if module.kernels().iter().any(|kernel| kernel == name) => Ok(()),
            Modules::File { .. } => Err(self.missing(name)),
        }
    }

    /// The kernel of this name, loaded if it has not been.
    pub(crate) fn function(&self, kernel: &KernelFacts) -> Result<Function, Error> {
        match self.known(kernel.name) {
            Some(function) => Ok(function),
            None => self.load(kernel).map(|(function, _)| function),
        }
    }

    /// As [`Loader::function`], and tells about the kernel.
    pub(crate) fn prepare(&self, kernel: &KernelFacts) -> Result<LoadedKernel, Error> {
        self.load(kernel).map(|(_, loaded)| loaded)
    }

    /// Whether the kernel of this name has been loaded.
    pub(crate) fn is_loaded(&self, name: &str) -> bool {
        self.known(name).is_some()
    }

    /// What has been loaded so far.
    pub(crate) fn loaded(&self) -> Vec<LoadedKernel> {
        self.lock().clone()
    }

    /// How many kernels have been loaded so far.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn known(&self, name: &str) -> Option<Function> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Loads a kernel, unless another thread has done so by the time that it is this one's turn. Launches of other kernels
    /// go on meanwhile.
    fn load(&self, facts: &KernelFacts) -> Result<(Function, LoadedKernel), Error> {
        let name = facts.name;
        let mut loaded = self.lock();
        let before = loaded.iter().find(|kernel| kernel.name == name);
        if let (Some(function), Some(kernel)) = (self.known(name), before) {
            return Ok((function, kernel.clone()));
        }
        let ((module, function), arch, cubin) = match &self.modules {
            Modules::Embedded(archs) => {
                let (arch, text) = find(archs, name).ok_or_else(|| self.missing(name))?;
                check_layout(facts, text)?;
                let (mut loaded, cubin) = match self.load_cubin(name, arch)? {
                    Some((cubin, loaded)) => (loaded, Some(cubin)),
                    None => (with_function(self.gpu.load_ptx(text)?, name)?, None),
                };
                self.prints.connect(&loaded.0, text, Some(name))?;
                if waits(text) {
                    // SAFETY: it is PTX, or machine code of it, as the builder wrote it (the promise of `KernelSet::embedded`), which puts
                    // the instruction before all others of the kernel, of which there is but one.
                    loaded.1 = unsafe { loaded.1.that_waits() };
                }
                (loaded, arch, cubin)
            }
            Modules::File { module, arch } => {
                if let Source::File { text, .. } = self.set.source() {
                    check_layout(facts, text)?;
                }
                (with_function(module.clone(), name)?, *arch, None)
            }
        };
        if facts.stack_bytes > 0 {
            self.gpu.require_stack(facts.stack_bytes as usize)?;
        }
        let function = if facts.is_cooperative { function.that_meets() } else { function };
        let function = match facts.cluster {
            Some(cluster) => function.in_clusters(cluster),
            None => function,
        };
        let resources = function.resources();
        let kernel = LoadedKernel {
            name: name.to_owned(),
            arch: arch.to_owned(),
            cubin,
            load_time: module.load_time(),
            registers: resources.registers,
            static_shared_bytes: resources.static_shared_bytes,
        };
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.insert(name.into(), function.clone());
        loaded.push(kernel.clone());
        Ok((function, kernel))
    }

    /// The machine code of a kernel, made of its PTX for an architecture: its own architecture, and what has been loaded. `None` if
    /// there is none for this GPU, or the driver does not accept it.
    fn load_cubin(&self, name: &str, ptx_arch: &str) -> Result<Option<(&'static str, Loaded)>, Error> {
        let gpu = self.gpu.properties().compute_capability;
        let Some((arch, compressed)) = self.set.cubin(name, ptx_arch, gpu) else { return Ok(None) };
        let damaged = |reason: String| Error::DamagedCubin { kernel: name.to_owned(), arch, reason };
        let cubin = decompress_to_vec_zlib(compressed).map_err(|error| damaged(error.to_string()))?;
        // SAFETY: it is what the set was made with, a file as `ptxas` wrote it (the promise of `KernelSet::embedded`): the
        // decompression has come to its end, and found the checksum that it was compressed with.
        let module = unsafe { self.gpu.load_cubin(name, &cubin) };
        match module.and_then(|module| with_function(module, name)) {
            Ok(loaded) => Ok(Some((arch, loaded))),
            Err(cuda_driver::Error::CubinRejected { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Why there is no kernel of this name.
    fn missing(&self, name: &str) -> Error {
        let available = match &self.modules {
            Modules::Embedded(archs) => {
                let others = self.set.archs_with(name);
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
            Modules::File { module, .. } => module.kernels().to_vec(),
        };
        cuda_driver::Error::NoSuchKernel { name: name.to_owned(), available }.into()
    }

    /// Nothing that holds the lock leaves the list half changed, so a poisoned one is in order.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<LoadedKernel>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A module, and the one kernel of it that is wanted.
type Loaded = (Module, Function);

fn with_function(module: Module, name: &str) -> Result<Loaded, cuda_driver::Error> {
    let function = module.function(name)?;
    Ok((module, function))
}

/// Whether the kernel of a module waits for the kernels before it by itself.
fn waits(ptx: &str) -> bool {
    ptx.contains("griddepcontrol.wait;")
}

/// Checks that the parameters are laid out as the PTX says, if it does.
fn check_layout(kernel: &KernelFacts, ptx: &str) -> Result<(), Error> {
    match ptx_facts::find(ptx, kernel.name) {
        Some(facts) if facts.layout != kernel.layout => {
            Err(Error::OtherLayout { kernel: kernel.name, crate_name: kernel.source.crate_name })
        }
        _ => Ok(()),
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
    fn a_kernel_waits_if_its_ptx_says_so() {
        assert!(waits(".visible .entry k() {\n\t// begin inline asm\n\tgriddepcontrol.wait;\n\tret;\n}"));
        assert!(!waits(".visible .entry k() {\n\tret;\n}"));
    }

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
