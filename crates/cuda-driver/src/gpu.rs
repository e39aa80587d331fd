//! An open GPU: its primary context and one stream.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cust::context::{Context, CurrentContext};
use cust::device::Device;
use cust::stream::{Stream, StreamFlags};
use cust::sys::{self, CUcontext, CUdevice_attribute as Attribute, CUstream};
use cust::{CudaApiVersion, CudaFlags};
use gpu_facts::{ComputeCapability, Limits};

use crate::call::{CallError, Outcome, call};
use crate::error::{Error, code};
use crate::launches::Launches;
use crate::version::DriverVersion;

/// The CUDA version that the installed driver supports. Opens the driver's library, but no GPU.
///
/// # Errors
/// [`Error::NoDriver`] without a driver.
pub fn driver_version() -> Result<DriverVersion, Error> {
    let version = call(CudaApiVersion::get)?;
    Ok(DriverVersion { major: version.major().unsigned_abs(), minor: version.minor().unsigned_abs() })
}

/// Initializes the driver. Every call after the first that succeeds returns at once.
fn initialize() -> Result<DriverVersion, Error> {
    let found = driver_version()?;
    if found < DriverVersion::MINIMUM {
        return Err(Error::DriverTooOld { found, needed: DriverVersion::MINIMUM });
    }
    call(|| cust::init(CudaFlags::empty()))?;
    Ok(found)
}

/// What does not change about a GPU and its driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Properties {
    /// The number that [`Gpu::open`] takes.
    pub ordinal: usize,
    /// The product's name, such as `NVIDIA H200`.
    pub name: String,
    /// The identifier that `nvidia-smi -L` shows: `GPU-` and a UUID.
    pub uuid: String,
    /// The address on the PCI bus, such as `0000:1b:00.0`.
    pub pci_bus_id: String,
    /// The generation.
    pub compute_capability: ComputeCapability,
    /// The memory, in bytes.
    pub total_memory: usize,
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The second-level cache, in bytes.
    pub l2_bytes: u32,
    /// What it offers a kernel, a block, a grid: the driver's own figures.
    pub limits: Limits,
    /// The multiprocessors' highest clock, in kHz.
    pub clock_khz: u32,
    /// The memory's highest clock, in kHz. Most memories transfer twice per cycle.
    pub memory_clock_khz: u32,
    /// The width of the memory's bus, in bits.
    pub memory_bus_bits: u32,
    /// The CUDA version that the driver supports.
    pub driver: DriverVersion,
    /// The release of the NVIDIA driver, such as `580.95.05`, where the kernel module tells.
    pub driver_release: Option<String>,
}

impl Properties {
    fn query(ordinal: usize, device: Device, driver: DriverVersion) -> Result<Properties, Error> {
        let number = |attribute: Attribute| -> Result<u32, Error> {
            let mut value = 0;
            // SAFETY: `value` may be written to.
            call(|| unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let compute_capability = ComputeCapability {
            major: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        };
        Ok(Properties {
            ordinal,
            name: call(|| device.name())?,
            uuid: uuid(device)?,
            pci_bus_id: pci_bus_id(device)?,
            compute_capability,
            total_memory: call(|| device.total_memory())?,
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            limits: Limits {
                threads_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
                block: [
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
                ],
                grid: [
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                    number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
                ],
                static_shared_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
                shared_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
                shared_bytes_per_multiprocessor: number(
                    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                )?,
                reserved_shared_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
                registers_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
                // The driver has no word for it: it is in the encoding of instructions.
                max_registers_per_thread: Limits::of_every_gpu().max_registers_per_thread,
                threads_per_multiprocessor: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
                blocks_per_multiprocessor: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
                // Nor for this one, but whether there are any.
                blocks_per_cluster: compute_capability.blocks_per_cluster(),
            },
            clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            driver,
            driver_release: driver_release(),
        })
    }
}

fn uuid(device: Device) -> Result<String, Error> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` may be written to.
    call(|| unsafe { sys::cuDeviceGetUuid(&mut uuid, device.as_raw()) })?;
    let mut text = "GPU".to_owned();
    for (index, byte) in uuid.bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        // A `c_char`, which has a sign on some machines.
        text += &format!("{:02x}", byte.to_ne_bytes()[0]);
    }
    Ok(text)
}

fn pci_bus_id(device: Device) -> Result<String, Error> {
    let mut text = [0u8; 32];
    // SAFETY: the driver writes at most as many bytes as it is told there are.
    call(|| unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, device.as_raw()) })?;
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// The driver's interface does not tell its own release; the kernel module does.
fn driver_release() -> Option<String> {
    let release = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(release.trim().to_owned()).filter(|release| !release.is_empty())
}

/// How much memory a GPU has, and how much of it no process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The free memory, in bytes.
    pub free: usize,
    /// All memory, in bytes.
    pub total: usize,
}

/// An open GPU: its primary context, and the stream on which everything that is started here runs in order.
///
/// A `Gpu` is a handle: clones are of the same open GPU, and may be used from any thread. The driver's functions act on
/// the context that is current on the calling thread, so every method makes this GPU's context current first, and
/// leaves it so ([`keep_context`] is for threads on which that matters). The GPU is closed when the last handle and the last
/// thing made from it are dropped.
#[derive(Clone, Debug)]
pub struct Gpu {
    inner: Arc<OpenGpu>,
    /// The stream on which things are to run, if that is not the GPU's own.
    other_stream: Option<OtherStream>,
}

/// A stream besides the GPU's own.
#[derive(Clone, Debug)]
enum OtherStream {
    Lent(LentStream),
    Further(Arc<FurtherStream>),
}

/// A stream that is somebody else's.
#[derive(Clone, Copy, Debug)]
struct LentStream(CUstream);

// SAFETY: the driver's functions may be called with a stream from any thread on which its context is current.
unsafe impl Send for LentStream {}
// SAFETY: as for `Send`.
unsafe impl Sync for LentStream {}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// A stream that ends with this.
#[derive(Debug)]
struct FurtherStream {
    raw: CUstream,
    /// A handle by which things run on the GPU's own stream.
    gpu: Gpu,
}

// SAFETY: the driver's functions may be called with a stream from any thread on which its context is current.
unsafe impl Send for FurtherStream {}
// SAFETY: as for `Send`.
unsafe impl Sync for FurtherStream {}

impl FurtherStream {
    fn new(gpu: Gpu, priority: i32) -> Result<Self, Error> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` may be written to.
        gpu.call(|| unsafe { sys::cuStreamCreateWithPriority(&mut raw, NON_BLOCKING, priority) })?;
        Ok(Self { raw, gpu })
    }
}

impl Drop for FurtherStream {
    /// Waits for nothing: the driver ends the stream when what was started there has finished. Errors stay unseen: nobody is left to
    /// tell, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the stream is of the context that is current now, and this was its last use.
            let _ = self.gpu.call(|| unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// Dropped from the top: the stream before the context.
#[derive(Debug)]
struct OpenGpu {
    stream: Stream,
    context: Context,
    properties: Properties,
    /// The first error that said that the context is lost.
    lost: OnceLock<Error>,
    /// Knows more of the cause.
    explanation: OnceLock<Explanation>,
    launches: Mutex<Launches>,
    /// Locked while the size of stacks is changed.
    stack: Mutex<()>,
}

/// See [`Gpu::explain_loss`].
struct Explanation(Box<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explanation").finish_non_exhaustive()
    }
}

impl Drop for OpenGpu {
    fn drop(&mut self) {
        // The stream's destruction needs the context. If this fails, so does that, and nobody is left to tell.
        let _ = CurrentContext::set_current(&self.context);
    }
}

impl Gpu {
    /// The number of GPUs that the driver can use. `CUDA_VISIBLE_DEVICES` limits it.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::NoDevice`], or [`Error::Call`] where the driver cannot be
    /// initialized.
    pub fn count() -> Result<usize, Error> {
        initialize()?;
        Ok(call(Device::num_devices)? as usize)
    }

    /// Opens a GPU by its number, from 0. The first time in a process, the driver sets up its context, which takes a
    /// while.
    ///
    /// # Errors
    /// Those of [`Gpu::count`], and [`Error::BadOrdinal`].
    pub fn open(ordinal: usize) -> Result<Gpu, Error> {
        let driver = initialize()?;
        let count = call(Device::num_devices)?;
        let device_number = u32::try_from(ordinal)
            .ok()
            .filter(|&number| number < count)
            .ok_or(Error::BadOrdinal { ordinal, count: count as usize })?;
        let device = call(|| Device::get_device(device_number))?;
        let properties = Properties::query(ordinal, device, driver)?;
        let context = call(|| Context::new(device))?;
        call(|| CurrentContext::set_current(&context))?;
        let stream = call(|| Stream::new(StreamFlags::DEFAULT, None))?;
        let (lost, explanation, launches) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Ok(Gpu {
            inner: Arc::new(OpenGpu {
                stream,
                context,
                properties,
                lost,
                explanation,
                launches,
                stack: Mutex::default(),
            }),
            other_stream: None,
        })
    }

    /// A handle of the same GPU by which everything is started on another library's stream, a `CUstream`; null is the default
    /// stream.
    ///
    /// # Safety
    /// The stream is of this GPU's primary context, and stays valid while there are handles made from this one, or anything
    /// made by them.
    pub unsafe fn on_stream(&self, stream: *mut c_void) -> Gpu {
        Gpu { inner: self.inner.clone(), other_stream: Some(OtherStream::Lent(LentStream(stream.cast()))) }
    }

    /// A handle of the same GPU by which everything is started on a new stream, which runs beside all others, also beside the default
    /// stream (`CU_STREAM_NON_BLOCKING`). Of a lower `priority` the GPU takes blocks first; 0 is the usual one. What is
    /// beyond [`Gpu::stream_priorities`] becomes the nearest that there is. The stream ends with its last handle; what has been started
    /// there goes on.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    pub fn with_new_stream(&self, priority: i32) -> Result<Gpu, Error> {
        let stream = Arc::new(FurtherStream::new(self.on_own_stream(), priority)?);
        Ok(Gpu { inner: self.inner.clone(), other_stream: Some(OtherStream::Further(stream)) })
    }

    /// A handle of the same GPU by which everything is started on the GPU's own stream.
    fn on_own_stream(&self) -> Gpu {
        Gpu { inner: self.inner.clone(), other_stream: None }
    }

    /// What this GPU is.
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// How much memory is free now.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn memory(&self) -> Result<MemoryInfo, Error> {
        self.bind()?;
        let mut info = MemoryInfo { free: 0, total: 0 };
        // SAFETY: both numbers may be written to.
        self.call(|| unsafe { sys::cuMemGetInfo_v2(&mut info.free, &mut info.total) })?;
        Ok(info)
    }

    /// Has each thread of all kernels that are launched from now on have a stack of at least so many bytes, for functions that call
    /// themselves. The driver sets memory aside for all threads that the GPU runs at a time; it may wait for kernels before. The stack of
    /// a GPU only grows: others may have asked for more.
    ///
    /// # Errors
    /// [`Error::StackRejected`] if there is not as much memory, or a thread cannot have as much; [`Error::ContextLost`] after a kernel has
    /// failed.
    pub fn require_stack(&self, bytes: usize) -> Result<(), Error> {
        self.bind()?;
        // Two threads at a time could make the stack smaller again.
        let _asking = self.inner.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, mut available) = (sys::CUlimit_enum::CU_LIMIT_STACK_SIZE, 0);
        // SAFETY: the number may be written to.
        self.call(|| unsafe { sys::cuCtxGetLimit(&mut available, limit) })?;
        if available >= bytes {
            return Ok(());
        }
        // SAFETY: it has no pointers.
        let set = self.call(|| unsafe { sys::cuCtxSetLimit(limit, bytes) });
        set.map_err(|error| match error.returned_any(&[code::INVALID_VALUE, code::OUT_OF_MEMORY]) {
            Ok(call) => Error::StackRejected { requested: bytes, available, call },
            Err(error) => error.into(),
        })
    }

    /// Waits until everything that was started by such handles, of the same stream, has finished.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.bind()?;
        Ok(self.wait()?)
    }

    /// Waits until everything has finished that was started in this GPU's context, on all streams and by whomever.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed.
    pub fn synchronize_all(&self) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: it has no arguments.
        Ok(self.call(|| unsafe { sys::cuCtxSynchronize() })?)
    }

    /// Has `explain` say what it knows of the cause when this GPU's context is lost, for the error. It is called when that is first
    /// noticed, and must not use the GPU. Only the first such function counts; it stays as long as the GPU is open, so it should not
    /// hold anything made from it.
    pub fn explain_loss(&self, explain: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.inner.explanation.get_or_init(|| Explanation(Box::new(explain)));
    }

    /// Why nothing can be done with this GPU any more, if that is so and has been noticed: [`Error::ContextLost`]. Asks nothing
    /// of the driver. What needs the driver returns this error by itself.
    ///
    /// # Errors
    /// [`Error::ContextLost`].
    pub fn check_context(&self) -> Result<(), Error> {
        self.inner.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// The stream on which everything runs, a `CUstream`, for libraries such as cuBLAS that are to work in the same order.
    /// It is valid as long as this GPU is open.
    ///
    /// What is started there through other interfaces runs between what is started here before and after. Who does so sees
    /// to it that the memory it uses is not freed until it has finished, and that this GPU's context is current on the
    /// thread ([`Gpu::make_current`]).
    pub fn raw_stream(&self) -> *mut c_void {
        self.stream().cast()
    }

    /// Makes this GPU's context current on the calling thread, for libraries that expect it so. The methods of this crate
    /// see to it themselves.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn make_current(&self) -> Result<(), Error> {
        Ok(self.bind()?)
    }

    /// Makes the context current on this thread, unless it is lost.
    pub(crate) fn bind(&self) -> Result<(), CallError> {
        self.check_context().map_err(CallError::Typed)?;
        self.call(|| CurrentContext::set_current(&self.inner.context))
    }

    /// Runs an operation in this GPU's context, which [`Gpu::bind`] has made current. An error that ends the context is
    /// remembered, with the kernels that may have caused it.
    pub(crate) fn call<R: Outcome>(&self, operation: impl FnOnce() -> R) -> Result<R::Value, CallError> {
        call(operation).map_err(|error| match error.returned_any(code::CONTEXT_LOST) {
            Ok(call) => {
                // Before the error is set, because what the explanation drops may use the GPU, and find that it is lost.
                let report = match self.inner.lost.get() {
                    None => self
                        .inner
                        .explanation
                        .get()
                        .and_then(|Explanation(explain)| explain())
                        .map(String::into_boxed_str),
                    Some(_) => None,
                };
                let lost = || Error::ContextLost { call, kernels: self.launches().unfinished(), report };
                CallError::Typed(self.inner.lost.get_or_init(lost).clone())
            }
            Err(other) => other,
        })
    }

    /// Waits for everything on this handle's stream. The context is current.
    pub(crate) fn wait(&self) -> Result<(), CallError> {
        let (stream, before) = (self.stream(), self.launches().count());
        // SAFETY: the stream is of the context that is current now.
        self.call(|| unsafe { sys::cuStreamSynchronize(stream) })?;
        self.launches().have_finished(stream, before);
        Ok(())
    }

    /// Notes that a kernel has been launched on this handle's stream.
    pub(crate) fn has_launched(&self, kernel: &Arc<str>) {
        self.launches().add(kernel, self.stream());
    }

    /// Nothing that holds the lock leaves the list half changed, so a poisoned one is in order.
    fn launches(&self) -> MutexGuard<'_, Launches> {
        self.inner.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream on which everything runs.
    pub(crate) fn stream(&self) -> CUstream {
        match &self.other_stream {
            None => self.inner.stream.as_inner(),
            Some(OtherStream::Lent(LentStream(stream))) => *stream,
            Some(OtherStream::Further(stream)) => stream.raw,
        }
    }
}

/// Notes which context is current on this thread, and makes it so again when the result is dropped: for calls from code that
/// works with a GPU of its own, as CUDA's runtime does.
///
/// # Errors
/// [`Error::NoDriver`] without a driver; [`Error::Call`] before any GPU was opened.
pub fn keep_context() -> Result<KeptContext, Error> {
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` may be written to.
    call(|| unsafe { sys::cuCtxGetCurrent(&mut context) })?;
    Ok(KeptContext { context })
}

/// Makes a context current again when it is dropped: see [`keep_context`]. It stays on its thread.
#[derive(Debug)]
#[must_use = "the context is made current again when this is dropped"]
pub struct KeptContext {
    context: CUcontext,
}

impl Drop for KeptContext {
    fn drop(&mut self) {
        // SAFETY: it was current on this thread; if it has been destroyed meanwhile, the driver says so, and nobody is left to
        // tell.
        let _ = call(|| unsafe { sys::cuCtxSetCurrent(self.context) });
    }
}
