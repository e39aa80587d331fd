//! One type for where kernels run: a CUDA GPU, or the CPU executor.
//!
//! ```text
//!  Device ──allocate──► Buffer ──view──► GlobalSlice ─┐
//!     ▲                                               ├─► Gemm, Gemv ─► kernel { … }
//!     └──────────────────── launch ◄──────────────────┴──────────────────────┘
//! ```
//!
//! # Why a launch is safe
//!
//! The arguments' types say what they refer to, and [`Device::launch`] checks the rest: the kernel's `requires`, that all
//! views are of live buffers *of this device*, and that what is written overlaps nothing else. The block shape and the
//! grid are the kernel's own. [`Embedded`] says that the device's PTX has been compiled from the kernel in question.

mod allocations;
mod buffer;
mod ptx;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuda_driver::{Function, Gpu, Module};
use cuda_std::executor::{Checks, Executor};
use gpu_kernels::Grid;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Error};
use allocations::Allocations;
pub use buffer::Buffer;
pub use ptx::missing_ptx;

/// A kernel that a [`Device`] can launch.
///
/// # Safety
/// - The embedded PTX has been compiled from the source of this kernel, under its [`NAME`](cuda_std::Kernel::NAME).
/// - Its body, run on [`Grid::grid`], is defined for all arguments that safe code can make and [`check`](cuda_std::Kernel::check) accepts,
///   if the views are valid and those that are written overlap no other.
pub unsafe trait Embedded: Grid {}

/// Where kernels run. A handle: clones are of the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    allocations: Allocations,
}

enum Backend {
    Cuda(Cuda),
    Cpu(Cpu),
}

struct Cuda {
    gpu: Gpu,
    module: Module,
    arch: String,
    /// The kernels that were launched before, by name.
    functions: Mutex<HashMap<&'static str, Function>>,
}

struct Cpu {
    executor: Executor,
    checks: Checks,
}

impl Device {
    /// The first CUDA GPU. Where there is none to use, the CPU executor with bounds checks, and the reason: no driver, no
    /// device, or no PTX in this build.
    ///
    /// # Errors
    /// Those of [`Device::cuda`] for a GPU that is there and does not work: [`Error::IncapableDevice`] and
    /// [`Error::Driver`], as for a driver that is too old. [`Device::cpu`] is there all the same.
    pub fn open() -> Result<(Self, Option<Error>), Error> {
        match Self::cuda(0) {
            Ok(device) => Ok((device, None)),
            Err(reason) if reason.is_absence_of_gpus() => Ok((Self::cpu(Checks::Bounds), Some(reason))),
            Err(error) => Err(error),
        }
    }

    /// The CUDA GPU of this number, counted from 0, with the best of the embedded PTX loaded.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is no driver or no such GPU, or where the driver refuses the PTX; [`Error::NoPtx`];
    /// [`Error::IncapableDevice`].
    pub fn cuda(ordinal: usize) -> Result<Self, Error> {
        let gpu = Gpu::open(ordinal)?;
        let ptx = ptx::embedded_for(gpu.properties())?;
        Self::load(gpu, ptx)
    }

    /// The CUDA GPU of this number, counted from 0, with PTX from a file instead of the embedded one.
    ///
    /// # Errors
    /// Those of [`Device::cuda`], [`Error::File`] and [`Error::BadPtxFile`]. The file is looked at first.
    ///
    /// # Safety
    /// Kernels in the file whose names are those of [`Embedded`] kernels have been compiled from the same source as these.
    pub unsafe fn cuda_with_ptx(ordinal: usize, path: &Path) -> Result<Self, Error> {
        let ptx = ptx::from_file(path)?;
        Self::load(Gpu::open(ordinal)?, ptx)
    }

    fn load(gpu: Gpu, ptx: ptx::Ptx) -> Result<Self, Error> {
        let module = gpu.load_ptx(&ptx.text)?;
        let cuda = Cuda { gpu, module, arch: ptx.arch, functions: Mutex::default() };
        Ok(Self::new(Backend::Cuda(cuda)))
    }

    /// The CPU executor.
    pub fn cpu(checks: Checks) -> Self {
        Self::new(Backend::Cpu(Cpu { executor: Executor::new(checks), checks }))
    }

    fn new(backend: Backend) -> Self {
        Self { inner: Arc::new(Inner { backend, allocations: Allocations::default() }) }
    }

    /// Runs a kernel. On a GPU it is queued behind everything launched before, and this does not wait for it;
    /// [`Device::synchronize`] and copies of buffers do.
    ///
    /// # Errors
    /// [`Error::Contract`], [`Error::ForeignView`] and [`Error::OverlappingViews`] for arguments that the kernel cannot be
    /// launched with: then nothing runs. [`Error::Driver`] if the PTX does not have the kernel, or an earlier one failed on
    /// the GPU. [`Error::Executor`] if the CPU executor caught the kernel doing something wrong.
    pub fn launch<K: Embedded>(&self, kernel: K) -> Result<(), Error> {
        kernel.check()?;
        self.inner.allocations.check(&kernel, || self.name())?;
        let grid = kernel.grid();
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let block = K::BLOCK;
                let mut params = kernel.param_addresses();
                // SAFETY: the function is the one that K names, compiled from K's source (`Embedded`; a module from a
                // file is the promise of `cuda_with_ptx`), so these are its parameters. All views among them are of
                // buffers of this GPU, and what is written overlaps nothing: just checked. A buffer waits for the GPU
                // before it is freed, and its views borrow it. The grid and the block are the kernel's own.
                unsafe {
                    cuda.function(K::NAME)?.launch(
                        [grid.x, grid.y, grid.z],
                        [block.x, block.y, block.z],
                        K::DYNAMIC_SHARED_BYTES,
                        &mut params,
                    )?;
                }
            }
            // SAFETY: the arguments fulfil the kernel's conditions, all views are of live buffers in this processor's
            // memory, which their lifetimes borrow, and what is written overlaps nothing: just checked.
            Backend::Cpu(cpu) => unsafe { cpu.executor.launch(kernel, grid)? },
        }
        Ok(())
    }

    /// Whether the device has a kernel of this name. The CPU executor has all.
    ///
    /// # Errors
    /// [`Error::Driver`] if the PTX that was loaded lacks it.
    pub fn has_kernel(&self, name: &str) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) if !cuda.module.kernels().iter().any(|kernel| kernel == name) => {
                let available = cuda.module.kernels().to_vec();
                Err(cuda_driver::Error::NoSuchKernel { name: name.to_owned(), available }.into())
            }
            Backend::Cuda(_) | Backend::Cpu(_) => Ok(()),
        }
    }

    /// Waits until everything launched so far has finished.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Ok(cuda.gpu.synchronize()?),
            Backend::Cpu(_) => Ok(()),
        }
    }

    /// Whether this is the CPU executor.
    pub fn is_cpu(&self) -> bool {
        matches!(self.inner.backend, Backend::Cpu(_))
    }

    /// The device in a few words: `CUDA device 0 (NVIDIA H200)`.
    pub fn name(&self) -> String {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let properties = cuda.gpu.properties();
                format!("CUDA device {} ({})", properties.ordinal, properties.name)
            }
            Backend::Cpu(_) => "the CPU executor".to_owned(),
        }
    }

    /// The free memory, in bytes; `None` where the system does not tell.
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed.
    pub fn free_memory(&self) -> Result<Option<Bytes>, Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Ok(Some(Bytes(cuda.gpu.memory()?.free as u128))),
            Backend::Cpu(_) => Ok(crate::problem::available_host_memory().map(Bytes)),
        }
    }

    /// What there is to know about the device.
    pub fn describe(&self) -> DeviceInfo {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let properties = cuda.gpu.properties();
                DeviceInfo::Cuda {
                    ordinal: properties.ordinal,
                    name: properties.name.clone(),
                    uuid: properties.uuid.clone(),
                    compute_capability: properties.compute_capability.to_string(),
                    multiprocessors: properties.multiprocessors,
                    memory_bytes: properties.total_memory as u64,
                    driver_cuda_version: properties.driver.to_string(),
                    driver_release: properties.driver_release.clone(),
                    ptx_arch: cuda.arch.clone(),
                    ptx_load_ms: cuda.module.load_time().as_secs_f64() * 1e3,
                }
            }
            Backend::Cpu(cpu) => DeviceInfo::Cpu {
                name: processor_name(),
                threads: rayon::current_num_threads(),
                checks: match cpu.checks {
                    Checks::Full => "full".to_owned(),
                    Checks::Bounds => "bounds".to_owned(),
                },
            },
        }
    }

    /// Has `launch` queue the same work `runs` times, and returns what each took on the device. On a GPU the times are
    /// measured there, between events, and nothing waits before the last run is queued; on the CPU they are wall-clock
    /// times.
    ///
    /// # Errors
    /// Those of `launch`; [`Error::Driver`] if a kernel has failed.
    pub fn time(&self, runs: usize, mut launch: impl FnMut() -> Result<(), Error>) -> Result<Vec<Duration>, Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let mut events = vec![cuda.gpu.record_event()?];
                for _ in 0..runs {
                    launch()?;
                    events.push(cuda.gpu.record_event()?);
                }
                events.windows(2).map(|pair| Ok(pair[1].elapsed_since(&pair[0])?)).collect()
            }
            Backend::Cpu(_) => (0..runs)
                .map(|_| {
                    let start = Instant::now();
                    launch()?;
                    Ok(start.elapsed())
                })
                .collect(),
        }
    }
}

impl Cuda {
    fn function(&self, name: &'static str) -> Result<Function, Error> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(function.clone());
        }
        let function = self.module.function(name)?;
        functions.insert(name, function.clone());
        Ok(function)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// What there is to know about a device, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DeviceInfo {
    /// A CUDA GPU.
    Cuda {
        /// Its number, counted from 0.
        ordinal: usize,
        /// The product's name.
        name: String,
        /// What `nvidia-smi -L` shows.
        uuid: String,
        /// Its generation, such as `9.0`.
        compute_capability: String,
        /// The number of streaming multiprocessors.
        multiprocessors: u32,
        /// Its memory in bytes.
        memory_bytes: u64,
        /// The CUDA version that the driver supports.
        driver_cuda_version: String,
        /// The release of the NVIDIA driver, where the system tells.
        driver_release: Option<String>,
        /// The architecture that the loaded PTX is for.
        ptx_arch: String,
        /// How long the driver took to compile and load the PTX, in milliseconds.
        ptx_load_ms: f64,
    },
    /// The CPU executor.
    Cpu {
        /// The processor's name, where the system tells.
        name: Option<String>,
        /// The number of threads that run blocks.
        threads: usize,
        /// `bounds` or `full`.
        checks: String,
    },
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda {
                ordinal,
                name,
                compute_capability,
                multiprocessors,
                memory_bytes,
                driver_cuda_version,
                driver_release,
                ptx_arch,
                ptx_load_ms,
                ..
            } => {
                let release = driver_release.as_ref().map(|release| format!(" {release}")).unwrap_or_default();
                write!(
                    f,
                    "CUDA device {ordinal}: {name} (compute capability {compute_capability}, {multiprocessors} \
                     multiprocessors, {}), driver{release} (CUDA {driver_cuda_version}), PTX for {ptx_arch} loaded in \
                     {ptx_load_ms:.1} ms",
                    Bytes(u128::from(*memory_bytes))
                )
            }
            Self::Cpu { name, threads, checks } => {
                let name = name.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
                let plural = if *threads == 1 { "" } else { "s" };
                write!(f, "CPU executor{name} ({threads} thread{plural}, checks: {checks})")
            }
        }
    }
}

fn processor_name() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Which device a user asks for: `auto`, `cpu`, `cuda` or `cuda:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// [`Device::open`].
    #[default]
    Auto,
    /// [`Device::cpu`].
    Cpu,
    /// [`Device::cuda`].
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| "expected `auto`, `cpu`, `cuda` or `cuda:N` with the number of a GPU".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
