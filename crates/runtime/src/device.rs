//! One type for where kernels run: a CUDA GPU, or the CPU executor.
//!
//! ```text
//!  Device ──allocate──► Buffer ──view──► GlobalSlice ─► kernel { … }
//!     ▲                                                      │
//!     └──────────────────────── launch ◄─────────────────────┘
//! ```
//!
//! # Why a launch is safe
//!
//! The arguments' types say what they refer to, and [`Device::launch`] checks the rest: the kernel's `requires`, that all
//! views are of live buffers *of this device*, that what is written overlaps nothing else, and that block, shared memory and
//! grid are within the device's limits. The block shape and the grid are the kernel's own. That the PTX has been compiled from
//! the kernel in question is seen from the digests of both.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuda_driver::{Event, Gpu, Properties};
use cuda_std::executor::{Checks, Executor};
use cuda_std::print::PrintSink;
use cuda_std::{AnyGrid, Dim3, ErasedKernel, Grid, Kernel, KernelFacts, Limits};

use crate::allocations::{Allocations, Live, uses};
use crate::claims::Claims;
use crate::host_use::HostUse;
use crate::kernel_set::KernelSet;
use crate::lane::Lane;
use crate::loader::{LoadedKernel, Loader};
use crate::order::{LENT, Operation, Order, Use};
use crate::prints::Prints;
use crate::short_list::ShortList;
use crate::{Bytes, Error};

/// Where kernels run. A handle: clones are of the same device.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
    pub(crate) lane: Lane,
}

pub(crate) struct Inner {
    pub(crate) backend: Backend,
    pub(crate) allocations: Arc<Allocations>,
    /// What is being used on the CPU executor.
    pub(crate) claims: Claims,
    /// Where lines of kernels go on the CPU executor, if not where it would show them itself.
    sink: Mutex<Option<PrintSink>>,
}

impl Inner {
    /// The executor, which shows lines of kernels where the device does.
    pub(crate) fn printing(&self, executor: &Executor) -> Executor {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let executor = executor.clone();
        match sink {
            Some(sink) => executor.print_to(sink),
            None => executor,
        }
    }
}

pub(crate) enum Backend {
    Cuda(Cuda),
    Cpu(Executor),
}

pub(crate) struct Cuda {
    /// With the device's own stream.
    pub(crate) gpu: Gpu,
    /// One for each kernel set.
    pub(crate) loaders: Vec<Loader>,
    pub(crate) prints: Arc<Prints>,
    pub(crate) order: Order,
}

impl Cuda {
    /// The kernels of the crate that a kernel is of, which have been made from the same sources.
    pub(crate) fn loader(&self, kernel: &KernelFacts) -> Result<&Loader, Error> {
        let source = kernel.source;
        let Some(loader) = self.loaders.iter().find(|loader| loader.set().crate_name() == source.crate_name) else {
            let known: Vec<_> = self.loaders.iter().map(|loader| format!("`{}`", loader.set().crate_name())).collect();
            let properties = self.gpu.properties();
            return Err(Error::UnknownKernelSet {
                kernel: kernel.name,
                crate_name: source.crate_name,
                device: format!("CUDA device {} ({})", properties.ordinal, properties.name),
                known: if known.is_empty() { "no crate".to_owned() } else { known.join(", ") },
            });
        };
        match (source.digest, loader.set().digest()) {
            (kernel_digest, ptx_digest) if kernel_digest == ptx_digest => Ok(loader),
            // A file brings no digest: who opened the device with it has promised what the digest would say.
            (_, None) if loader.set().is_from_file() => Ok(loader),
            (kernel_digest, ptx_digest) => {
                let shown = |digest: Option<&str>| digest.unwrap_or("(none)").to_owned();
                Err(Error::StaleKernels {
                    kernel: kernel.name,
                    crate_name: source.crate_name,
                    kernel_digest: shown(kernel_digest),
                    ptx_digest: shown(ptx_digest),
                })
            }
        }
    }
}

impl Cuda {
    /// How many kernels have been loaded so far.
    fn count(&self) -> usize {
        self.loaders.iter().map(Loader::count).sum()
    }
}

impl Device {
    /// The first CUDA GPU, with these kernels. Where there is none to use, the CPU executor with bounds checks, and the reason:
    /// no driver, no device, or no PTX in this program.
    ///
    /// # Errors
    /// Those of [`Device::cuda`] for a GPU that is there and does not work: [`Error::IncapableDevice`] and
    /// [`Error::Driver`], as for a driver that is too old. [`Device::cpu`] is there all the same.
    pub fn open(sets: &[&'static KernelSet]) -> Result<(Self, Option<Error>), Error> {
        match Self::cuda(0, sets) {
            Ok(device) => Ok((device, None)),
            Err(reason) if reason.is_absence_of_gpus() => Ok((Self::cpu(Checks::Bounds), Some(reason))),
            Err(error) => Err(error),
        }
    }

    /// The CUDA GPU of this number, counted from 0, with the best that it can run of the PTX of each kernel. What the driver
    /// makes of a kernel is loaded when it is first used: see [`Device::prepare`].
    ///
    /// # Errors
    /// [`Error::Driver`] where there is no driver or no such GPU, or where the driver refuses the PTX of a file;
    /// [`Error::NoPtx`]; [`Error::IncapableDevice`].
    pub fn cuda(ordinal: usize, sets: &[&'static KernelSet]) -> Result<Self, Error> {
        Self::cuda_with_arch(ordinal, sets, None)
    }

    /// The same with the PTX for one architecture and no other, if `arch` names one: `sm_80` has the portable kernels, which
    /// any GPU since then runs, to see how they do there.
    ///
    /// # Errors
    /// Those of [`Device::cuda`], [`Error::IncapableDevice`] also for a GPU that runs other PTX only; [`Error::NoSuchArch`].
    pub fn cuda_with_arch(ordinal: usize, sets: &[&'static KernelSet], arch: Option<&str>) -> Result<Self, Error> {
        let gpu = Gpu::open(ordinal)?;
        let allocations = Arc::<Allocations>::default();
        let prints = Prints::new(gpu.clone(), allocations.clone());
        let load = |set: &&'static KernelSet| Loader::new(gpu.clone(), set, arch, prints.clone());
        let loaders = sets.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Self::new(Backend::Cuda(Cuda { gpu, loaders, prints, order: Order::default() }), allocations))
    }

    /// The CPU executor.
    pub fn cpu(checks: Checks) -> Self {
        Self::with_executor(Executor::new(checks))
    }

    /// The CPU executor, as this one is.
    pub fn with_executor(executor: Executor) -> Self {
        Self::new(Backend::Cpu(executor), Arc::default())
    }

    fn new(backend: Backend, allocations: Arc<Allocations>) -> Self {
        let (claims, sink) = (Claims::default(), Mutex::default());
        Self { inner: Arc::new(Inner { backend, allocations, claims, sink }), lane: Lane::Own }
    }

    /// A handle of the same GPU by which everything runs on another library's stream, a `CUstream`, in the order of that; null
    /// is the default stream. Buffers of either handle are for both.
    ///
    /// # Errors
    /// [`Error::OnlyOnGpus`] on the CPU executor, which has no streams.
    ///
    /// # Safety
    /// The stream is of this GPU's primary context, and stays valid while there are handles made from this one, or buffers made
    /// by them. What runs on different streams with the same buffers is made to run in order by the caller.
    pub unsafe fn on_stream(&self, stream: *mut c_void) -> Result<Self, Error> {
        let Backend::Cuda(cuda) = &self.inner.backend else {
            return Err(Error::OnlyOnGpus { what: "streams" });
        };
        // SAFETY: the caller's promise.
        Ok(Self { inner: self.inner.clone(), lane: Lane::Lent(unsafe { cuda.gpu.on_stream(stream) }) })
    }

    /// The GPU, with the stream on which things are to run.
    pub(crate) fn gpu<'a>(&'a self, cuda: &'a Cuda) -> &'a Gpu {
        self.lane.gpu().unwrap_or(&cuda.gpu)
    }

    /// Runs a kernel on its own grid. On a GPU it is queued behind everything launched before, and this does not wait for it;
    /// [`Device::synchronize`] and copies of buffers do.
    ///
    /// # Errors
    /// [`Error::Contract`], [`Error::ForeignView`] and [`Error::OverlappingViews`] for arguments that the kernel cannot be
    /// launched with, [`Error::UnknownKernelSet`] and [`Error::StaleKernels`] for a kernel whose PTX the device does not
    /// have: then nothing runs. Those of [`Device::prepare`]; [`Error::Driver`] for a block or a grid beyond the GPU's limits, or
    /// if an earlier kernel failed. [`Error::Executor`] if the CPU executor refused the launch, or caught the kernel doing
    /// something wrong.
    pub fn launch<K: Grid>(&self, kernel: K) -> Result<(), Error> {
        self.check(&kernel)?;
        let grid = kernel.grid();
        // SAFETY: the arguments are checked. The grid is the kernel's own, on which its body is defined for all arguments that
        // safe code can make and its conditions let through: that is what a kernel without `unsafe` in its signature says.
        unsafe { self.launch_checked(grid, &kernel) }
    }

    /// Runs a kernel that is right on every grid, on this one. Otherwise as [`Device::launch`].
    ///
    /// # Errors
    /// Those of [`Device::launch`].
    pub fn launch_any_grid<K: AnyGrid>(&self, grid: impl Into<Dim3>, kernel: K) -> Result<(), Error> {
        // SAFETY: as for `launch`; the kernel says that it does not matter which grid it runs on.
        unsafe { self.launch_on(grid.into(), kernel) }
    }

    /// Runs a kernel on a grid for which nobody vouches. Otherwise as [`Device::launch`].
    ///
    /// # Errors
    /// Those of [`Device::launch`].
    ///
    /// # Safety
    /// What the kernel does with these arguments, on this grid, is defined; or it is known what it does instead, and that nothing
    /// comes of it.
    pub unsafe fn launch_on<K: Kernel>(&self, grid: Dim3, kernel: K) -> Result<(), Error> {
        self.check(&kernel)?;
        // SAFETY: the arguments are checked; the rest is the caller's promise.
        unsafe { self.launch_checked(grid, &kernel) }
    }

    /// Whether both are handles of one device, on whatever streams: what is in the memory of the one is in that of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Refuses arguments that the kernel cannot be launched with.
    pub(crate) fn check(&self, kernel: &dyn ErasedKernel) -> Result<(), Error> {
        kernel.check()?;
        self.inner.allocations.check(kernel, || self.name())
    }

    /// # Safety
    /// As for [`Device::launch_on`], and [`Device::check`] has passed the arguments.
    unsafe fn launch_checked(&self, grid: Dim3, kernel: &dyn ErasedKernel) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let function = cuda.loader(kernel.declared())?.function(kernel.declared())?;
                let _launching = cuda.prints.launching(self.gpu(cuda), self.lane.number() == LENT)?;
                let mut params = ShortList::<*mut c_void, 16>::new(ptr::null_mut());
                kernel.visit_params(&mut |address| params.push(address.cast_mut()));
                let facts = kernel.facts();
                // SAFETY: the function is the one that the kernel names, compiled from its source (equal digests; a set from a file is
                // the promise of `KernelSet::from_file`), so these are its parameters. All views among them are of buffers of
                // this GPU, and what is written overlaps nothing: `check`. A buffer waits for the GPU before it is
                // freed, and its views borrow it; what else uses it comes before or after: `in_order`. Block and shared memory
                // are the kernel's own, or the launch's choice, which the kernel's conditions let through; the grid is the caller's promise.
                self.in_order(
                    cuda,
                    || uses(kernel),
                    None,
                    |gpu| unsafe {
                        let (block, bytes) = (facts.block, facts.dynamic_shared_bytes);
                        Ok(function.launch(gpu, grid.into(), block, bytes, params.as_mut_slice())?)
                    },
                )
            }
            Backend::Cpu(executor) => {
                let _claim =
                    self.inner.claims.claim(format_args!("kernel `{}`", kernel.declared().name), uses(kernel))?;
                // SAFETY: the arguments fulfil the kernel's conditions, all views are of live buffers in this processor's
                // memory, which their lifetimes borrow, and what is written overlaps nothing: `check`. Nobody else uses it
                // otherwise: the claim. The executor checks what the body does.
                Ok(unsafe { self.inner.printing(executor).launch_erased(kernel, grid) }?)
            }
        }
    }

    /// Starts something on this handle's stream that uses this memory, and memory of the host: behind everything that has to come
    /// before it, and with a note for what has to come after it. See [`order`](crate::order).
    pub(crate) fn in_order(
        &self,
        cuda: &Cuda,
        uses: impl FnOnce() -> Vec<Use>,
        host: Option<HostUse<'_>>,
        start: impl FnOnce(&Gpu) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (number, gpu) = (self.lane.number(), self.gpu(cuda));
        // On another library's stream, whoever made the handle sees to the order of buffers; not so to that of the host.
        let uses = if number == LENT {
            Vec::new()
        } else {
            let is_tracked = cuda.order.is_tracked.read().unwrap_or_else(PoisonError::into_inner);
            if !*is_tracked {
                // Who makes a first other stream waits for the lock, and so until this is started.
                return start(gpu);
            }
            uses()
        };
        if number == LENT && host.is_none() {
            return start(gpu);
        }
        self.in_recorded_order(cuda, uses, host, |_| Ok(()), start).map(|_| ())
    }

    /// As [`Device::in_order`], where operations are recorded, and if `check` finds nothing in the way.
    pub(crate) fn in_recorded_order(
        &self,
        cuda: &Cuda,
        uses: Vec<Use>,
        host: Option<HostUse<'_>>,
        check: impl FnOnce(&Live) -> Result<(), Error>,
        start: impl FnOnce(&Gpu) -> Result<(), Error>,
    ) -> Result<Arc<Operation>, Error> {
        let stream = (self.lane.number(), self.gpu(cuda));
        let mut live = self.inner.allocations.lock();
        live.streams.check()?;
        check(&live)?;
        let mut before = Vec::new();
        uses.iter().for_each(|use_| live.conflicts(use_, &mut before));
        if let Some(host) = &host {
            before.extend(host.conflicts());
        }
        live.streams.wait(stream, before)?;
        let operation = live.streams.start(stream, &cuda.order.events, || start(stream.1))?;
        uses.into_iter().for_each(|use_| live.note(use_, &operation));
        if let Some(host) = host {
            host.note(&operation);
        }
        Ok(operation)
    }

    /// Checks that the device has a kernel, and loads nothing. The CPU executor has all.
    ///
    /// # Errors
    /// [`Error::UnknownKernelSet`], [`Error::StaleKernels`]; [`Error::KernelForOtherGpus`] if there is PTX of the kernel, but
    /// none that this GPU runs; [`Error::Driver`] if there is none at all.
    pub fn has_kernel(&self, kernel: &KernelFacts) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.loader(kernel)?.has_kernel(kernel.name),
            Backend::Cpu(_) => Ok(()),
        }
    }

    /// Makes a kernel ready for its first launch: has the driver compile and load its PTX, if that has not been done, which
    /// takes from a millisecond to some seconds. Otherwise the first launch does that. It tells what was loaded; `None` on
    /// the CPU executor.
    ///
    /// # Errors
    /// Those of [`Device::has_kernel`]; [`Error::Driver`] if the driver refuses the PTX, or an earlier kernel has failed.
    pub fn prepare(&self, kernel: &KernelFacts) -> Result<Option<LoadedKernel>, Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                // A kernel that is there already is no longer of use in a context that is lost.
                cuda.gpu.check_context()?;
                Ok(Some(cuda.loader(kernel)?.prepare(kernel)?))
            }
            Backend::Cpu(_) => Ok(None),
        }
    }

    /// Whether a kernel is ready for a launch: always on the CPU executor.
    pub fn is_prepared(&self, kernel: &KernelFacts) -> bool {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.loader(kernel).is_ok_and(|loader| loader.is_loaded(kernel.name)),
            Backend::Cpu(_) => true,
        }
    }

    /// The kernels that were loaded so far, in the order of their loading, one set after the other. None on the CPU executor.
    pub fn loaded_kernels(&self) -> Vec<LoadedKernel> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.loaders.iter().flat_map(Loader::loaded).collect(),
            Backend::Cpu(_) => Vec::new(),
        }
    }

    /// What the device offers a kernel: the driver's figures, or those that the executor was given.
    pub fn limits(&self) -> Limits {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.gpu.properties().limits,
            Backend::Cpu(executor) => *executor.limits(),
        }
    }

    /// How many blocks of a kernel run at the same time: the largest grid of a cooperative launch. On a GPU that takes account of the
    /// kernel's registers, and loads the kernel as [`Device::prepare`] does; on the CPU executor it is
    /// [`Executor::resident_blocks`].
    ///
    /// # Errors
    /// Those of [`Device::prepare`].
    pub fn resident_blocks(&self, kernel: &KernelFacts) -> Result<u64, Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let function = cuda.loader(kernel)?.function(kernel)?;
                Ok(function.resident_blocks(kernel.block, kernel.dynamic_shared_bytes)?)
            }
            Backend::Cpu(executor) => Ok(executor.resident_blocks(kernel)),
        }
    }

    /// What the driver says of the GPU: compute capability, multiprocessors, second-level cache, shared memory of a block.
    /// `None` for the CPU executor.
    pub fn gpu_properties(&self) -> Option<&Properties> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Some(cuda.gpu.properties()),
            Backend::Cpu(_) => None,
        }
    }

    /// How many streaming multiprocessors a GPU has; 1 for the CPU executor: for grids that are to fill the device.
    pub fn multiprocessors(&self) -> u32 {
        self.gpu_properties().map_or(1, |gpu| gpu.multiprocessors)
    }

    /// Whether kernels that there are for one architecture only, such as `sm_90a`, can run: the device takes PTX for exactly
    /// this one. Never on the CPU executor, nor on a GPU that was opened for another architecture.
    pub fn takes_ptx_for(&self, arch: &str) -> bool {
        match &self.inner.backend {
            Backend::Cuda(cuda) => !cuda.loaders.is_empty() && cuda.loaders.iter().all(|it| it.archs().contains(&arch)),
            Backend::Cpu(_) => false,
        }
    }

    /// The stream on which the GPU runs what is started by this handle, a `CUstream`, for libraries such as cuBLAS: what they are told to do on
    /// it runs between what was launched before and after. `None` on the CPU executor. It is valid while the device is open; that of a
    /// [`Stream`](crate::Stream), while that is there. What a library does is not noted: who calls it sees to it that buffers are not dropped
    /// before it has finished, and to the order of what else uses them on other streams ([`Device::record_event`], [`Device::wait_for`]).
    ///
    /// The library needs the GPU's context to be current on the thread: see [`Device::make_current`].
    pub fn raw_stream(&self) -> Option<*mut c_void> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Some(self.gpu(cuda).raw_stream()),
            Backend::Cpu(_) => None,
        }
    }

    /// Makes the GPU's context current on this thread, for other libraries; the methods of this crate need no such call.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn make_current(&self) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Ok(cuda.gpu.make_current()?),
            Backend::Cpu(_) => Ok(()),
        }
    }

    /// Has lines that kernels [print](cuda_std::print) shown by `sink`, in place of the standard output, from now on and for all handles.
    /// The CPU executor shows them when a launch ends, a GPU when the host waits for it: in [`Device::synchronize`], and in copies of
    /// buffers.
    pub fn print_to(&self, sink: PrintSink) {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.prints.print_to(sink),
            Backend::Cpu(_) => *self.inner.sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(sink),
        }
    }

    /// Shows what kernels of a GPU have printed, after a wait that has ended like this.
    pub(crate) fn after(&self, waited: Result<(), cuda_driver::Error>) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => cuda.prints.after(Some(self.gpu(cuda)), waited),
            Backend::Cpu(_) => Ok(waited?),
        }
    }

    /// As [`Device::after`], of something that has waited.
    pub(crate) fn after_in_order(&self, waited: Result<(), Error>) -> Result<(), Error> {
        match waited {
            Ok(()) => self.after(Ok(())),
            Err(Error::Driver(error)) => self.after(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Waits until everything launched so far has finished: by the device, on all of its streams; by a [`Stream`](crate::Stream), there.
    /// What kernels have printed is shown then.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed; if that was by a panic, it names block, thread, file and line.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => {
                let streams = match &self.lane {
                    Lane::Own => self.inner.allocations.lock().streams.last(),
                    Lane::Lent(_) | Lane::Stream(_) => Vec::new(),
                };
                let of_all = || streams.iter().try_for_each(|last| last.synchronize());
                self.after(self.gpu(cuda).synchronize().and_then(|()| of_all()))
            }
            Backend::Cpu(_) => Ok(()),
        }
    }

    /// Whether the device can still be used, as far as is known: asks nothing of a GPU. Once a kernel has failed on a GPU,
    /// nothing else runs there in this process. Everything that needs the GPU then returns this same error, for every handle
    /// and buffer.
    ///
    /// # Errors
    /// [`Error::Driver`] with [`ContextLost`](cuda_driver::Error::ContextLost), which has the failed call and the kernels that may
    /// have been the cause. Never on the CPU executor.
    pub fn check_context(&self) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Cuda(cuda) => Ok(cuda.gpu.check_context()?),
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
            Backend::Cpu(_) => Ok(crate::host_memory::available_host_memory().map(Bytes)),
        }
    }

    /// Has `launch` queue the same work `runs` times, and returns what each took on the device. On a GPU the times are
    /// measured there, between events, and nothing waits before the last run is queued; on the CPU they are wall-clock
    /// times. If a kernel was loaded meanwhile, which belongs to no run, all of it is measured again.
    ///
    /// # Errors
    /// Those of `launch`; [`Error::Driver`] if a kernel has failed.
    pub fn time<E: From<Error>>(
        &self,
        runs: usize,
        mut launch: impl FnMut() -> Result<(), E>,
    ) -> Result<Vec<Duration>, E> {
        match &self.inner.backend {
            // Every kernel is loaded once, so this ends.
            Backend::Cuda(cuda) => loop {
                let loads = cuda.count();
                let event = || self.gpu(cuda).record_event().map_err(Error::from);
                let mut events = vec![event()?];
                for _ in 0..runs {
                    launch()?;
                    events.push(event()?);
                }
                let elapsed = |pair: &[Event]| Ok(pair[1].elapsed_since(&pair[0]).map_err(Error::from)?);
                let times = events.windows(2).map(elapsed).collect();
                if cuda.count() == loads {
                    return times;
                }
            },
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

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}
