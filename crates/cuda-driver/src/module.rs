//! Modules, which the driver loads into a GPU, of PTX, which it compiles, or of machine code; and the kernels in them, with their
//! launch.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cust::memory::bytemuck::Pod;
use cust::sys::{self, CUfunction, CUfunction_attribute as Attribute, CUjit_option, CUmodule};

use gpu_facts::KernelFacts;

use crate::call::CallError;
use crate::dependent_launch;
use crate::driver_call::DriverCall;
use crate::error::{Error, LaunchRejected, PtxFault, PtxRejected, code};
use crate::gpu::Gpu;
use crate::ptx::PtxSummary;

/// The room for what the driver's PTX compiler writes about a module that it rejects, in bytes.
const LOG_BYTES: usize = 64 * 1024;

/// A module of PTX, compiled by the driver, or of machine code, loaded into a GPU. A handle: clones are of the same module, and it stays
/// loaded while there are any, or functions of it.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<LoadedModule>,
}

struct LoadedModule {
    raw: CUmodule,
    gpu: Gpu,
    load_time: Duration,
    kernels: Vec<String>,
    is_cubin: bool,
}

// SAFETY: the driver's functions may be called with a module from any thread on which its context is current.
unsafe impl Send for LoadedModule {}
// SAFETY: as for `Send`; none of the functions used here changes a module.
unsafe impl Sync for LoadedModule {}

impl fmt::Debug for LoadedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedModule")
            .field("kernels", &self.kernels)
            .field("is_cubin", &self.is_cubin)
            .field("load_time", &self.load_time)
            .finish_non_exhaustive()
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // Waits for all streams, because a kernel of this module may be running on any; where nobody can tell, it stays. Errors
        // stay unseen here: a lost context has no modules any more, and the next use of the GPU reports the same error.
        if self.gpu.bind().is_err() {
            return;
        }
        // SAFETY: it has no arguments.
        if self.gpu.call(|| unsafe { sys::cuCtxSynchronize() }).is_ok() {
            // SAFETY: the module is loaded in this GPU's context, which has been made current. This was the last handle of it,
            // and none of its kernels is running: everything in the context has just been waited for.
            let _ = self.gpu.call(|| unsafe { sys::cuModuleUnload(self.raw) });
        }
    }
}

impl Gpu {
    /// Has the driver compile PTX for this GPU, and loads it. The driver keeps compiled modules in a cache on disk, so
    /// the first load of a module can take much longer than later ones; see [`Module::load_time`].
    ///
    /// # Errors
    /// [`Error::PtxRejected`], with what the driver's compiler wrote; [`Error::ContextLost`] after a kernel has failed.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module, Error> {
        let summary = PtxSummary::of(ptx);
        let image = CString::new(ptx).map_err(|error| {
            let fault = PtxFault::ContainsNul { offset: error.nul_position() };
            self.ptx_rejected(fault, &summary, String::new(), None)
        })?;
        self.bind()?;
        let start = Instant::now();
        // SAFETY: it is text that ends with a NUL.
        match unsafe { self.load(image.as_bytes_with_nul(), None) } {
            Ok(raw) => Ok(self.module(raw, start.elapsed(), summary.kernels, false)),
            Err(error) => {
                let call = error.returned_any(code::PTX_REJECTED)?;
                let fault = match call.code {
                    code::UNSUPPORTED_PTX_VERSION => PtxFault::TooNew,
                    _ if summary.excludes(self.properties().compute_capability) => PtxFault::WrongArchitecture,
                    _ => PtxFault::Invalid,
                };
                Err(self.ptx_rejected(fault, &summary, self.compiler_log(&image), Some(call)))
            }
        }
    }

    /// Loads the machine code of a kernel, a cubin. Nothing is compiled, so this takes a fraction of the time of
    /// [`Gpu::load_ptx`].
    ///
    /// # Errors
    /// [`Error::CubinRejected`] if the driver does not accept it, here or in [`Module::function`]: PTX of the kernel may do in its
    /// place. [`Error::ContextLost`] after a kernel has failed.
    ///
    /// # Safety
    /// `cubin` is a whole file that an assembler of NVIDIA's has written: its length is nowhere told the driver, which reads what the
    /// file's own header says there is.
    pub unsafe fn load_cubin(&self, kernel: &str, cubin: &[u8]) -> Result<Module, Error> {
        self.bind()?;
        let start = Instant::now();
        // SAFETY: it is a whole cubin, as the caller promises.
        match unsafe { self.load(cubin, None) } {
            Ok(raw) => Ok(self.module(raw, start.elapsed(), vec![kernel.to_owned()], true)),
            Err(error) => Err(self.cubin_rejected(kernel, error.returned_any(code::CUBIN_REJECTED)?)),
        }
    }

    fn module(&self, raw: CUmodule, load_time: Duration, kernels: Vec<String>, is_cubin: bool) -> Module {
        Module { inner: Arc::new(LoadedModule { raw, gpu: self.clone(), load_time, kernels, is_cubin }) }
    }

    fn cubin_rejected(&self, kernel: &str, call: DriverCall) -> Error {
        Error::CubinRejected { kernel: kernel.to_owned(), driver: self.properties().driver, call }
    }

    fn ptx_rejected(&self, fault: PtxFault, summary: &PtxSummary, log: String, call: Option<DriverCall>) -> Error {
        let properties = self.properties();
        Error::PtxRejected(Box::new(PtxRejected {
            fault,
            ptx_version: summary.version,
            target: summary.target.clone(),
            device: properties.name.clone(),
            compute_capability: properties.compute_capability,
            driver: properties.driver,
            log,
            call,
        }))
    }

    /// Loads a module into the context, which is current, and lets the driver's compiler write about its errors into `log`.
    ///
    /// This does not go through `cust`, which has no option for the log, and whose option to take the target from the
    /// context must not be used: the driver reads past the end of the options that it makes.
    ///
    /// # Safety
    /// The image is text that ends with a NUL, or a whole cubin.
    unsafe fn load(&self, image: &[u8], log: Option<&mut [u8]>) -> Result<CUmodule, CallError> {
        let mut options = Vec::new();
        let mut values: Vec<*mut c_void> = Vec::new();
        if let Some(log) = log {
            options.push(CUjit_option::CU_JIT_ERROR_LOG_BUFFER);
            values.push(log.as_mut_ptr().cast());
            // Numbers are passed in place of the pointer.
            options.push(CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
            values.push(ptr::without_provenance_mut(log.len()));
        } else if has_lines(image) {
            options.push(CUjit_option::CU_JIT_GENERATE_LINE_INFO);
            values.push(ptr::without_provenance_mut(1));
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the image says by itself where it ends, as the caller promises; there are as many values as options; the log
        // may be written to, in the size given.
        self.call(|| unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        })?;
        Ok(raw)
    }

    /// What the driver's compiler writes about a module that could not be loaded. Only such a module is loaded with a log,
    /// and so a second time: all others are loaded in the plainest way there is.
    fn compiler_log(&self, image: &CString) -> String {
        let mut log = vec![0; LOG_BYTES];
        // SAFETY: it is text that ends with a NUL.
        if let Ok(raw) = unsafe { self.load(image.as_bytes_with_nul(), Some(&mut log)) } {
            // Against all odds it did load this time. The error is reported all the same, so the module is not needed.
            // SAFETY: it was loaded just now, and nobody has it.
            let _ = self.call(|| unsafe { sys::cuModuleUnload(raw) });
        }
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        String::from_utf8_lossy(&log[..end]).into_owned()
    }
}

impl Module {
    /// How long the driver took to compile and load the module, or to find it in its cache. A driver that loads lazily
    /// (`CUDA_MODULE_LOADING`) does a part of that only in [`Module::function`].
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }

    /// The names of the module's kernels, in the order of its source; of machine code, the name that it was loaded by.
    pub fn kernels(&self) -> &[String] {
        &self.inner.kernels
    }

    /// Writes the value of a variable in global memory, and waits for that.
    ///
    /// # Errors
    /// [`Error::Call`] if the module has no such variable, or it is of another size; [`Error::ContextLost`] after a kernel has failed.
    ///
    /// # Safety
    /// No kernel of the module runs, and those that will run find a value there that they can use.
    pub unsafe fn write_variable<T: Pod>(&self, name: &CStr, value: T) -> Result<(), Error> {
        let gpu = &self.inner.gpu;
        gpu.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: both may be written to, the module is loaded, and the name ends with a NUL.
        gpu.call(|| unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.inner.raw, name.as_ptr()) })?;
        if bytes != size_of::<T>() {
            let call = DriverCall::new("cuModuleGetGlobal_v2", code::INVALID_VALUE);
            return Err(Error::Call { call });
        }
        // SAFETY: the variable has so many bytes, and stays while the module is loaded; nobody else uses it, as the caller promises.
        unsafe { gpu.lent(address, 1) }.copy_from_host(&[value])
    }

    /// Finds a kernel by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`]; [`Error::CubinRejected`] from a driver that reads machine code only now;
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let no_such_kernel = || Error::NoSuchKernel { name: name.to_owned(), available: self.kernels().to_vec() };
        let c_name = CString::new(name).map_err(|_| no_such_kernel())?;
        self.inner.gpu.bind()?;
        let mut raw = ptr::null_mut();
        let c_name: *const c_char = c_name.as_ptr();
        // SAFETY: `raw` may be written to, the module is loaded, and the name ends with a NUL.
        let found = self.inner.gpu.call(|| unsafe { sys::cuModuleGetFunction(&mut raw, self.inner.raw, c_name) });
        found.map_err(|error| match error.returned_any(&[code::NOT_FOUND]) {
            Ok(_) => no_such_kernel(),
            Err(error) => match error.returned_any(code::CUBIN_REJECTED) {
                Ok(call) if self.inner.is_cubin => self.inner.gpu.cubin_rejected(name, call),
                Ok(call) => Error::Call { call },
                Err(error) => error.into(),
            },
        })?;
        let (name, resources, module) = (name.into(), Resources::query(&self.inner.gpu, raw)?, self.clone());
        let asked_for_shared_memory = AtomicBool::new(false);
        let inner = Arc::new(LoadedFunction { raw, name, resources, asked_for_shared_memory, module });
        Ok(Function { inner, start: Start::BehindOthers, cluster: None })
    }
}

/// Whether an image is PTX that says which lines of source its instructions come from: profilers show them if the driver keeps them.
fn has_lines(image: &[u8]) -> bool {
    const LINE: &[u8] = b"\n\t.loc\t";
    image.is_ascii() && image.windows(LINE.len()).any(|part| part == LINE)
}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The registers of a thread, of 32 bits each.
    pub registers: u32,
    /// The shared memory that the kernel declares, in bytes per block.
    pub static_shared_bytes: u32,
    /// The local memory of a thread, in bytes: its stack frame and spilled registers.
    pub local_bytes: u32,
    /// The threads that a block of this kernel may have.
    pub max_threads_per_block: u32,
}

impl Resources {
    /// Asks for the resources of a function in the context, which is current.
    fn query(gpu: &Gpu, function: CUfunction) -> Result<Resources, Error> {
        let number = |attribute: Attribute| -> Result<u32, Error> {
            let mut value = 0;
            // SAFETY: `value` may be written to, and the function's module is loaded.
            gpu.call(|| unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(Resources {
            registers: number(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: number(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: number(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads_per_block: number(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }
}

/// A kernel of a loaded module. A handle: clones are of the same kernel.
#[derive(Clone)]
pub struct Function {
    inner: Arc<LoadedFunction>,
    start: Start,
    cluster: Option<[u32; 3]>,
}

/// When the blocks of a launch start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// When the kernels before it have ended, and as there is room.
    BehindOthers,
    /// While the kernels before it end: it waits for them by itself.
    WhileOthersEnd,
    /// All at the same time: a cooperative launch.
    Together,
}

struct LoadedFunction {
    raw: CUfunction,
    name: Arc<str>,
    resources: Resources,
    /// Whether the driver has been asked for more dynamic shared memory than a block gets without.
    asked_for_shared_memory: AtomicBool,
    module: Module,
}

// SAFETY: the driver's functions may be called with a function from any thread on which its context is current.
unsafe impl Send for LoadedFunction {}
// SAFETY: as for `Send`; what `launch` changes of a function, it always changes to the same value.
unsafe impl Sync for LoadedFunction {}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadedFunction { name, resources, .. } = &*self.inner;
        f.debug_struct("Function").field("name", name).field("resources", resources).finish_non_exhaustive()
    }
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the kernel takes of a multiprocessor.
    pub fn resources(&self) -> Resources {
        self.inner.resources
    }

    /// The same kernel, which waits for the kernels before it by itself: a launch sends its blocks to the multiprocessors while the last
    /// of these ends (programmatic dependent launch), where GPU and driver can do that.
    ///
    /// # Safety
    /// It does: every thread comes to `griddepcontrol.wait` before it accesses memory that other kernels access.
    #[must_use]
    pub unsafe fn that_waits(self) -> Self {
        let properties = self.inner.module.inner.gpu.properties();
        let waits = properties.compute_capability.launches_overlap() && properties.driver >= dependent_launch::DRIVER;
        let start = if waits && self.start == Start::BehindOthers { Start::WhileOthersEnd } else { self.start };
        Self { start, ..self }
    }

    /// The same kernel, of which all blocks of a launch run at the same time: a cooperative launch, which is refused where there is
    /// no room for that.
    #[must_use]
    pub fn that_meets(self) -> Self {
        Self { start: Start::Together, ..self }
    }

    /// The same kernel, whose PTX says that its blocks run in clusters of this shape (`.reqnctapercluster`): a launch whose grid is not made
    /// of whole clusters is refused before the driver is called.
    #[must_use]
    pub fn in_clusters(self, cluster: [u32; 3]) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// How many blocks of this shape, with so many bytes of dynamic shared memory, run at the same time on the GPU: the largest grid of
    /// a cooperative launch.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if an earlier kernel has failed; [`Error::Call`].
    pub fn resident_blocks(&self, block: [u32; 3], dynamic_shared_bytes: u32) -> Result<u64, Error> {
        let LoadedFunction { raw, module, .. } = &*self.inner;
        let gpu = &module.inner.gpu;
        gpu.bind()?;
        // Without that the driver finds no room for more than a block gets unasked.
        self.ask_for_shared_memory()?;
        let threads = KernelFacts { block, ..KernelFacts::new("") }.threads().min(i32::MAX as u64) as i32;
        let mut blocks = 0;
        // SAFETY: `blocks` may be written to, and the function's module is loaded.
        gpu.call(|| unsafe {
            let bytes = dynamic_shared_bytes as usize;
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, *raw, threads, bytes)
        })?;
        Ok(u64::try_from(blocks).unwrap_or(0) * u64::from(gpu.properties().multiprocessors))
    }

    /// Launches the kernel on the stream of `gpu`, after everything that was started there before. This does not wait.
    ///
    /// `grid` and `block` are numbers of blocks and threads along x, y and z. `params` holds the address of each
    /// argument; the arguments are copied before this function returns.
    ///
    /// # Errors
    /// [`Error::LaunchExceeds`] where the GPU does not offer what the launch asks for, before the driver is called;
    /// [`Error::LaunchRejected`] where the driver refuses it; [`Error::ContextLost`] if an earlier kernel has failed. That this kernel fails is reported by a later call.
    ///
    /// # Safety
    /// - `gpu` is a handle of the GPU that the kernel was loaded into.
    /// - There are as many addresses as the kernel has parameters, and each is that of a readable value of its
    ///   parameter's type.
    /// - What the kernel does with these arguments, in this grid and with this much shared memory, is defined: all that
    ///   it reads or writes is memory of this GPU that stays allocated until the kernel has finished (dropping a
    ///   [`DeviceMemory`](crate::DeviceMemory) waits for that), and there are no data races.
    pub unsafe fn launch(
        &self,
        gpu: &Gpu,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: u32,
        params: &mut [*mut c_void],
    ) -> Result<(), Error> {
        self.prepare_launch(gpu, grid, block, dynamic_shared_bytes)?;
        let LoadedFunction { raw, .. } = &*self.inner;
        // SAFETY: the caller's promise is about the arguments and what the kernel does with them; function and stream
        // are of the current context, and the driver only reads the addresses.
        let launched = gpu.call(|| unsafe {
            let (stream, bytes) = (gpu.stream(), dynamic_shared_bytes);
            let ([x, y, z], [threads_x, threads_y, threads_z]) = (grid, block);
            let arguments = params.as_mut_ptr();
            match self.start {
                Start::WhileOthersEnd => dependent_launch::launch(*raw, grid, block, bytes, stream, params),
                Start::BehindOthers => {
                    let extra = ptr::null_mut();
                    sys::cuLaunchKernel(*raw, x, y, z, threads_x, threads_y, threads_z, bytes, stream, arguments, extra)
                }
                Start::Together => sys::cuLaunchCooperativeKernel(
                    *raw, x, y, z, threads_x, threads_y, threads_z, bytes, stream, arguments,
                ),
            }
        });
        launched.map_err(|error| self.launch_error(error, grid, block, dynamic_shared_bytes))?;
        gpu.has_launched(&self.inner.name);
        Ok(())
    }

    /// Checks that the GPU offers what a launch asks for, makes its context current, and asks it for the shared memory.
    pub(crate) fn prepare_launch(
        &self,
        gpu: &Gpu,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: u32,
    ) -> Result<(), Error> {
        let limits = &gpu.properties().limits;
        let static_shared_bytes = self.inner.resources.static_shared_bytes;
        let is_cooperative = self.is_cooperative();
        let cluster = self.cluster;
        let needs = KernelFacts {
            block,
            static_shared_bytes,
            dynamic_shared_bytes,
            is_cooperative,
            cluster,
            ..KernelFacts::new("")
        };
        let mut checked = limits.check(&needs).and(limits.check_grid(grid)).and(needs.check_clusters(grid));
        if checked.is_ok() && is_cooperative {
            checked = needs.check_cooperative(grid, self.resident_blocks(block, dynamic_shared_bytes)?);
        }
        if let Err(excess) = checked {
            let (kernel, device) = (self.inner.name.to_string(), gpu.properties().name.clone());
            let compute_capability = gpu.properties().compute_capability;
            return Err(Error::LaunchExceeds { kernel, device, compute_capability, excess });
        }
        gpu.bind()?;
        // What a kernel can declare, a block gets without asking the driver for more.
        if needs.shared_bytes() > limits.static_shared_bytes.into() {
            self.ask_for_shared_memory()?;
        }
        Ok(())
    }

    /// What it means that the driver did not launch the kernel.
    pub(crate) fn launch_error(
        &self,
        error: CallError,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: u32,
    ) -> Error {
        let resources = &self.inner.resources;
        match error.returned_any(code::LAUNCH_REJECTED) {
            Ok(call) => Error::LaunchRejected(Box::new(LaunchRejected {
                kernel: self.inner.name.to_string(),
                grid,
                block,
                dynamic_shared_bytes,
                static_shared_bytes: resources.static_shared_bytes,
                max_threads_per_block: resources.max_threads_per_block,
                call,
            })),
            Err(error) => error.into(),
        }
    }

    /// Whether all blocks of a launch run at the same time.
    pub(crate) fn is_cooperative(&self) -> bool {
        self.start == Start::Together
    }

    /// The name, which is kept of what has been launched.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.inner.name
    }

    pub(crate) fn raw(&self) -> CUfunction {
        self.inner.raw
    }

    /// Asks the driver, once, for all the dynamic shared memory that this kernel can have: always the most that there
    /// is, so that launches on several threads do not take it from each other. The context is current.
    fn ask_for_shared_memory(&self) -> Result<(), CallError> {
        let LoadedFunction { raw, resources, asked_for_shared_memory, module, .. } = &*self.inner;
        // Relaxed is enough: a thread that does not see it yet asks again, for the same.
        if asked_for_shared_memory.load(Ordering::Relaxed) {
            return Ok(());
        }
        let gpu = &module.inner.gpu;
        let max_bytes = gpu.properties().limits.shared_bytes;
        let limit = i32::try_from(max_bytes.saturating_sub(resources.static_shared_bytes)).unwrap_or(i32::MAX);
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        gpu.call(|| unsafe { sys::cuFuncSetAttribute(*raw, attribute, limit) })?;
        asked_for_shared_memory.store(true, Ordering::Relaxed);
        Ok(())
    }
}
