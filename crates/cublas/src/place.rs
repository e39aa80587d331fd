//! The GPU whose context is current on the calling thread, with tilewright's kernels. Each is opened once, and stays open: it is never dropped,
//! so that threads may multiply while the process ends.
//!
//! CUDA cannot be used in the child of a process that has used it, and what a lock guards may be half changed there. So a child never looks at
//! what its parent has made.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda_driver::{CurrentGpu, Gpu, MemoryPool, current_gpu};
use cuda_std::executor::Checks;
use tilewright::Device;
use tilewright::plan::{DeviceFacts, Machine, Processor};

use crate::settings::{Computes, Settings};
use crate::why::Why;

/// Where products are computed.
pub(crate) struct Place {
    pub(crate) device: Device,
    /// What the model of times knows of it; nothing of the CPU executor.
    pub(crate) machine: Option<Machine>,
    pub(crate) gpu: Option<OpenGpu>,
}

/// A GPU, for memory in the order of streams.
pub(crate) struct OpenGpu {
    pub(crate) gpu: Gpu,
    /// Its primary context.
    context: CurrentGpu,
    /// Memory for workspaces, if the GPU and its driver have pools.
    pub(crate) pool: Option<MemoryPool>,
}

/// The process that has opened something; 0 if none has.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// By number; or why one cannot be used.
static GPUS: Mutex<Vec<Option<Result<&'static Place, String>>>> = Mutex::new(Vec::new());

impl Place {
    /// The place for a call on this thread.
    pub(crate) fn current(settings: &Settings) -> Result<&'static Self, Why> {
        let process = process::id();
        let owner = OWNER.load(Ordering::Acquire);
        if owner != 0 && owner != process {
            return Err(Why::new("this process was forked from one that has used tilewright"));
        }
        match settings.computes {
            Computes::Nothing => Err(Why::new("TILEWRIGHT_CUBLAS is off")),
            Computes::Cpu => {
                static CPU: OnceLock<Place> = OnceLock::new();
                OWNER.store(process, Ordering::Release);
                Ok(CPU.get_or_init(|| Self { device: Device::cpu(Checks::Bounds), machine: None, gpu: None }))
            }
            Computes::Gpu => {
                let Some(current) = current_gpu()? else { return Err(Why::new("no context of CUDA is current")) };
                OWNER.store(process, Ordering::Release);
                let place = Self::gpu(current.ordinal(), settings)?;
                match &place.gpu {
                    Some(gpu) if gpu.context == current => Ok(place),
                    _ => Err(Why::new("the context is not the GPU's primary one")),
                }
            }
        }
    }

    fn gpu(ordinal: usize, settings: &Settings) -> Result<&'static Self, Why> {
        // Nothing that holds the lock leaves the list half changed.
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        if gpus.len() <= ordinal {
            gpus.resize(ordinal + 1, None);
        }
        let place = gpus[ordinal].get_or_insert_with(|| {
            let place = Self::open(ordinal, settings).map_err(|error| error.to_string())?;
            Ok(Box::leak(Box::new(place)))
        });
        place.clone().map_err(|error| Why::with("the GPU cannot be used", error))
    }

    fn open(ordinal: usize, settings: &Settings) -> Result<Self, tilewright::Error> {
        let _kept = cuda_driver::keep_context()?;
        let _relaxed = cuda_driver::relax_capture()?;
        let device = Device::cuda(ordinal)?;
        let gpu = Gpu::open(ordinal)?;
        gpu.make_current()?;
        let context =
            current_gpu()?.ok_or_else(|| tilewright::Error::Usage("its context does not become current".to_owned()))?;
        // Without one, plans that need a workspace are not taken.
        let pool = gpu.new_pool(settings.workspace_bytes as u64).ok();
        Ok(Self { machine: machine(&device), device, gpu: Some(OpenGpu { gpu, context, pool }) })
    }
}

/// What the model of times knows of a GPU.
fn machine(device: &Device) -> Option<Machine> {
    use tilewright::plan::StoredConstants;

    if let StoredConstants::These(measured) = device.stored_constants() {
        return Some(measured.constants.machine);
    }
    let facts = DeviceFacts::of(device);
    match facts.processor {
        Processor::Cpu => None,
        Processor::Gpu { compute_capability, .. } => {
            Some(Machine::built_in(Some(compute_capability), facts.multiprocessors))
        }
    }
}
