//! A device that has Tilewright's kernels.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use cuda_std::executor::{Checks, Executor};
use cuda_std::{Element, Grid};
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use runtime::{Bytes, KernelSet};

use crate::Error;
use crate::constants::MeasuredOn;
use crate::memory::Memory;
use crate::stored::StoredConstants;
pub use runtime::{Buffer, DeviceInfo, LoadedKernel, TensorLayout, TensorTile};

/// The kernels of `gpu-kernels`, as this program has embedded them.
///
/// ```
/// # use tilewright::device::{KERNELS, missing_ptx};
/// // A `runtime::Device` that has them besides those of other crates: `runtime::Device::cuda(0, &[&KERNELS, &MINE])`.
/// assert_eq!(KERNELS.crate_name(), "gpu_kernels");
/// assert_eq!(KERNELS.missing(), missing_ptx());
/// ```
pub static KERNELS: KernelSet = runtime::kernel_set!("gpu_kernels");

/// Why this program has no PTX, if it has none.
///
/// ```
/// # use tilewright::{Device, device::missing_ptx};
/// // A build without PTX opens no GPU.
/// if let Some(why) = missing_ptx() {
///     println!("{why}");
///     assert!(Device::cuda(0).is_err());
/// }
/// ```
pub fn missing_ptx() -> Option<&'static str> {
    KERNELS.missing()
}

/// A [`runtime::Device`] that has the kernels of this library: a GPU, or the CPU executor. A handle: clones are of the same
/// device.
///
/// ```
/// # use ndarray::{Array2, array};
/// # use tilewright::{Device, Precision};
/// let (device, _why_no_gpu) = Device::open()?;
/// let (a, mut c) = (array![[1.0, 2.0], [3.0, 4.0]], Array2::zeros((2, 2)));
/// for _ in 0..3 {
///     tilewright::gemm(&device, Precision::Fp32, 1.0, a.view(), a.view(), 0.0, c.view_mut())?;
/// }
/// assert_eq!(c, array![[7.0, 10.0], [15.0, 22.0]]);
/// // The plan was made once, and all handles of the device have it.
/// assert_eq!(device.clone().plans_made(), 1);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # What a device keeps
///
/// | what | for whom | how much | until when |
/// |---|---|---|---|
/// | [plans](Device::plan) | all handles | 1024 | a plan that was used later needs the place |
/// | workspaces of [`multiply`](crate::multiply()) and [`gemm`](crate::gemm()) | handles of one stream | one for each call at a time, as large as the largest that was needed | [`Device::free_kept_memory`] |
/// | buffers of matrices of [`gemm`](crate::gemm()) and [`gemv`](crate::gemv()) | handles of one stream | 512 MiB, 16 buffers | likewise, or later ones need the place |
///
/// Besides, it has the [constants](crate::plan::Constants) that are stored for the GPU, which are read when it is opened.
///
/// Everything goes with the last handle: of the device, or of the stream. Memory goes, too, when there is too little free for
/// [`Device::allocate`] and everything that uses it.
///
/// Clones of a handle, and handles made by [`From`] of one, differ: the clones share what is kept, the others begin with nothing.
#[derive(Clone)]
pub struct Device {
    runtime: runtime::Device,
    shared: Arc<Shared>,
    /// The memory that is kept for another library's stream, if things run there.
    of_stream: Option<Arc<Memory>>,
}

/// What all handles of a device share.
#[derive(Default)]
struct Shared {
    /// For handles of the device's own stream.
    memory: Memory,
    /// The plans, of a type that this module, which is below those of plans, does not know.
    plans: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The constants that were stored for the GPU when it was opened.
    constants: StoredConstants,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.runtime.name()).finish()
    }
}

impl Deref for Device {
    type Target = runtime::Device;

    fn deref(&self) -> &runtime::Device {
        &self.runtime
    }
}

/// A device that has been opened with [`KERNELS`], and maybe others. Launches on one that has not are refused.
impl From<runtime::Device> for Device {
    fn from(runtime: runtime::Device) -> Self {
        let constants = measured_on(&runtime).map(|here| StoredConstants::of(&here)).unwrap_or_default();
        Self { runtime, shared: Arc::new(Shared { constants, ..Shared::default() }), of_stream: None }
    }
}

impl Device {
    /// The first CUDA GPU. Where there is none to use, the CPU executor with bounds checks, and the reason: no driver, no
    /// device, or no PTX in this build.
    ///
    /// ```
    /// # use tilewright::Device;
    /// let (device, why_no_gpu) = Device::open()?;
    /// println!("{}", device.name());
    /// if let Some(reason) = &why_no_gpu {
    ///     println!("no GPU: {reason}");
    /// }
    /// assert_eq!(device.is_cpu(), why_no_gpu.is_some());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::open`].
    pub fn open() -> Result<(Self, Option<Error>), Error> {
        let (device, reason) = runtime::Device::open(&[&KERNELS])?;
        Ok((device.into(), reason.map(Error::from)))
    }

    /// The CUDA GPU of this number, counted from 0.
    ///
    /// ```
    /// # use tilewright::{Device, Error};
    /// // The first GPU, or a message why not.
    /// match Device::cuda(0) {
    ///     Ok(gpu) => assert!(!gpu.is_cpu()),
    ///     Err(reason) => println!("{reason}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda`].
    pub fn cuda(ordinal: usize) -> Result<Self, Error> {
        Self::cuda_with(ordinal, &[])
    }

    /// The same with kernels of other crates besides.
    ///
    /// ```
    /// # use tilewright::{Device, Error};
    /// # use runtime::KernelSet;
    /// fn open(mine: &'static KernelSet) -> Result<Device, Error> {
    ///     // Products of this library, and the kernels of one's own crate, on one GPU.
    ///     Device::cuda_with(0, &[mine])
    /// }
    /// # if let Ok(gpu) = open(&tilewright::device::KERNELS) {
    /// #     assert!(!gpu.is_cpu());
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda`].
    pub fn cuda_with(ordinal: usize, others: &[&'static KernelSet]) -> Result<Self, Error> {
        Ok(runtime::Device::cuda(ordinal, &[&[&KERNELS], others].concat())?.into())
    }

    /// The CUDA GPU of this number, with the PTX for one architecture and no other: see
    /// [`runtime::Device::cuda_with_arch`].
    ///
    /// ```
    /// # use tilewright::{Device, Error};
    /// // The PTX for compute capability 8.0, also on a newer GPU: to see whether it runs there.
    /// match Device::cuda_with_arch(0, "sm_80") {
    ///     Ok(gpu) => assert!(!gpu.is_cpu()),
    ///     Err(reason) => println!("{reason}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda_with_arch`].
    pub fn cuda_with_arch(ordinal: usize, arch: &str) -> Result<Self, Error> {
        Ok(runtime::Device::cuda_with_arch(ordinal, &[&KERNELS], Some(arch))?.into())
    }

    /// The CUDA GPU of this number, with PTX from a file instead of the embedded one, loaded at once.
    ///
    /// ```
    /// # use tilewright::{Device, Error};
    /// # use std::path::Path;
    /// // SAFETY: there is no such file.
    /// let opened = unsafe { Device::cuda_with_ptx(0, Path::new("no-such-file.ptx")) };
    /// assert!(opened.unwrap_err().to_string().contains("no-such-file.ptx"));
    /// ```
    ///
    /// # Errors
    /// Those of [`KernelSet::from_file`] and [`runtime::Device::cuda`].
    ///
    /// # Safety
    /// As for [`KernelSet::from_file`].
    pub unsafe fn cuda_with_ptx(ordinal: usize, path: &Path) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let set = unsafe { KernelSet::from_file(KERNELS.crate_name(), path) }?;
        Ok(runtime::Device::cuda(ordinal, &[set])?.into())
    }

    /// Runs a kernel: see [`runtime::Device::launch`].
    ///
    /// ```standalone_crate
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// # use cuda_std::prelude::*;
    /// /// `y = 2·y`, one thread for each element.
    /// #[kernel(block = 128, grid = y.len().div_ceil(128).max(1) as u32)]
    /// fn doubles(y: DisjointSlice<'_, f32>) {
    ///     if let Some(y) = y.own() {
    ///         y.set(2.0 * y.get());
    ///     }
    /// }
    /// let device = Device::cpu(Checks::Full);
    /// let mut y = device.upload(&[1.5f32; 200])?;
    /// device.launch(doubles { y: y.view_disjoint() })?;
    /// let mut doubled = [0.0; 200];
    /// y.copy_to(&mut doubled)?;
    /// assert_eq!(doubled, [3.0; 200]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::launch`], as errors of this library.
    pub fn launch<K: Grid>(&self, kernel: K) -> Result<(), Error> {
        Ok(self.runtime.launch(kernel)?)
    }

    /// The CPU executor.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// // For tests: with all checks of the executor.
    /// let device = Device::cpu(Checks::Full);
    /// assert!(device.is_cpu());
    /// ```
    pub fn cpu(checks: Checks) -> Self {
        runtime::Device::cpu(checks).into()
    }

    /// The CPU executor, as this one is.
    ///
    /// ```
    /// # use cuda_std::{ComputeCapability, Limits, executor::{Checks, Executor}};
    /// # use tilewright::Device;
    /// // The executor with the limits of an RTX 4090: kernels that do not fit there are not chosen.
    /// let limits = Limits::of(ComputeCapability::new(8, 9)).unwrap();
    /// let device = Device::with_executor(Executor::new(Checks::Bounds).with_limits(limits));
    /// assert_eq!(device.limits().shared_bytes, 99 << 10);
    /// ```
    pub fn with_executor(executor: Executor) -> Self {
        runtime::Device::with_executor(executor).into()
    }

    /// A handle of the same GPU by which everything runs on another library's stream: see [`runtime::Device::on_stream`]. It
    /// shares the plans, and keeps memory of its own, also if there is another handle of that stream that is no clone of it.
    ///
    /// ```
    /// # use tilewright::{Device, Error};
    /// # use std::ffi::c_void;
    /// /// A product behind what another library has queued on its stream, and before what it queues afterwards.
    /// ///
    /// /// # Safety
    /// /// The stream is one of this GPU, and not captured.
    /// unsafe fn on_their_stream(device: &Device, stream: *mut c_void) -> Result<Device, Error> {
    ///     // SAFETY: the caller's promise.
    ///     unsafe { device.on_stream(stream) }
    /// }
    /// # let executor = Device::cpu(cuda_std::executor::Checks::Bounds);
    /// # // SAFETY: the executor has no streams of other libraries.
    /// # assert!(unsafe { on_their_stream(&executor, std::ptr::null_mut()) }.is_err());
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::on_stream`].
    ///
    /// # Safety
    /// As for [`runtime::Device::on_stream`]. While the stream is captured, nothing is called that uses memory which the handle
    /// keeps: [`multiply`](crate::multiply()), [`gemm`](crate::gemm()), [`gemv`](crate::gemv()). What was captured would use that
    /// memory whenever it is replayed, and it may be in use elsewhere then, or be freed. Run a
    /// [plan](crate::plan::GemmPlan::run) with a workspace that lives as long as the capture.
    pub unsafe fn on_stream(&self, stream: *mut c_void) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let runtime = unsafe { self.runtime.on_stream(stream) }?;
        Ok(Self { runtime, shared: self.shared.clone(), of_stream: Some(Arc::default()) })
    }

    /// Allocates memory: see [`runtime::Device::allocate`]. If there is too little free, what is kept is freed first.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// let device = Device::cpu(Checks::Full);
    /// let mut buffer = device.allocate::<f32>(3)?; // its elements have no values yet
    /// buffer.copy_from(&[1.0, 2.0, 3.0])?;
    /// let mut back = [0.0; 3];
    /// buffer.copy_to(&mut back)?;
    /// assert_eq!(back, [1.0, 2.0, 3.0]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::allocate`].
    #[track_caller]
    pub fn allocate<T: Element + Pod>(&self, len: usize) -> Result<Buffer<T>, runtime::Error> {
        match self.runtime.allocate(len) {
            Err(error) if error.is_lack_of_memory() && self.free_kept() => self.runtime.allocate(len),
            result => result,
        }
    }

    /// Allocates memory for a copy of `data`, and copies it there, as [`Device::allocate`] does.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// let device = Device::cpu(Checks::Full);
    /// let buffer = device.upload(&[3u32, 4, 5])?;
    /// let mut back = [0; 3];
    /// buffer.copy_to(&mut back)?;
    /// assert_eq!(back, [3, 4, 5]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`runtime::Device::upload`].
    #[track_caller]
    pub fn upload<T: Element + Pod>(&self, data: &[T]) -> Result<Buffer<T>, runtime::Error> {
        let mut buffer = self.allocate(data.len())?;
        buffer.copy_from(data)?;
        Ok(buffer)
    }

    /// The memory that is kept for handles of this one's stream, and not in use now.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// # use ndarray::Array2;
    /// let device = Device::cpu(Checks::Bounds);
    /// assert_eq!(device.kept_memory().0, 0);
    /// let (a, mut c) = (Array2::ones((4, 4)), Array2::zeros((4, 4)));
    /// tilewright::gemm(&device, tilewright::Precision::Fp32, 1.0, a.view(), a.view(), 0.0, c.view_mut())?;
    /// // The buffers of the three matrices, for the next call.
    /// assert!(device.kept_memory().0 >= 3 * 64);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn kept_memory(&self) -> Bytes {
        Bytes(self.memory().bytes() as u128)
    }

    /// Frees the memory that is kept for handles of this one's stream, and for those of the device's own. Waits for what was
    /// queued there. What calls on other threads are using stays theirs, and is kept afterwards.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// # use ndarray::Array2;
    /// let device = Device::cpu(Checks::Bounds);
    /// let (a, mut c) = (Array2::ones((4, 4)), Array2::zeros((4, 4)));
    /// tilewright::gemm(&device, tilewright::Precision::Fp32, 1.0, a.view(), a.view(), 0.0, c.view_mut())?;
    /// device.free_kept_memory();
    /// assert_eq!(device.kept_memory().0, 0);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn free_kept_memory(&self) {
        self.free_kept();
    }

    /// The same, and tells whether there was any.
    fn free_kept(&self) -> bool {
        // The memory of other libraries' streams is left to their handles: with the last of these such a stream may end, and
        // memory that was used on it is freed before.
        let of_stream = self.of_stream.as_ref().is_some_and(|memory| memory.free());
        self.shared.memory.free() || of_stream
    }

    /// The memory that is kept for this handle's stream.
    fn memory(&self) -> &Memory {
        self.of_stream.as_deref().unwrap_or(&self.shared.memory)
    }

    /// Memory for a workspace of `len` elements at least.
    pub(crate) fn take_workspace(&self, len: usize) -> Result<Buffer<f32>, Error> {
        Ok(self.memory().take_workspace(len, || self.allocate(len))?)
    }

    /// Keeps a workspace for the next call.
    pub(crate) fn give_workspace(&self, buffer: Buffer<f32>) {
        self.memory().give_workspace(buffer);
    }

    /// A buffer of `len` elements, of which nothing is known.
    pub(crate) fn take_buffer(&self, len: usize) -> Result<Buffer<f32>, Error> {
        Ok(self.memory().take_buffer(len, || self.allocate(len))?)
    }

    /// Keeps a buffer for the next call.
    pub(crate) fn give_buffer(&self, buffer: Buffer<f32>) {
        self.memory().give_buffer(buffer);
    }

    /// The [constants](crate::plan::Constants) that were stored for this GPU when it was opened, by which plans go unless their
    /// [options](crate::plan::Options::constants) say otherwise. None of the CPU executor.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// # use tilewright::plan::StoredConstants;
    /// let device = Device::cpu(Checks::Bounds);
    /// // Those that `tilewright tune` has stored for a GPU; of the executor there are none, and plans go by those that are built in.
    /// assert!(matches!(device.stored_constants(), StoredConstants::None));
    /// ```
    pub fn stored_constants(&self) -> &StoredConstants {
        &self.shared.constants
    }

    /// What constants hold for that are measured on this GPU; none on the CPU executor.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// assert!(Device::cpu(Checks::Bounds).measured_on().is_none());
    /// if let Ok(gpu) = Device::cuda(0) {
    ///     let here = gpu.measured_on().unwrap();
    ///     println!("{} with {} multiprocessors", here.gpu, here.multiprocessors);
    /// }
    /// ```
    pub fn measured_on(&self) -> Option<MeasuredOn> {
        measured_on(&self.runtime)
    }

    /// What the modules of plans keep with the device. It is of one type.
    pub(crate) fn kept<T: Any + Default + Send + Sync>(&self) -> &T {
        let kept = self.shared.plans.get_or_init(|| Box::<T>::default());
        kept.downcast_ref().expect("all who ask for it ask for one type")
    }
}

/// What constants hold for that are measured on a device, if it is a GPU.
fn measured_on(device: &runtime::Device) -> Option<MeasuredOn> {
    let gpu = device.gpu_properties()?;
    Some(MeasuredOn {
        gpu: gpu.name.clone(),
        compute_capability: (gpu.compute_capability.major, gpu.compute_capability.minor),
        multiprocessors: gpu.multiprocessors,
        // The digest of all kernels of their crate.
        kernels_digest: gemm_naive_1d_fp32::FACTS.source.digest.unwrap_or_default().to_owned(),
    })
}

/// Which device a user asks for: `auto`, `cpu`, `cuda` or `cuda:N`.
///
/// ```
/// # use cuda_std::executor::Checks;
/// # use tilewright::{Device, Error, device::DeviceChoice};
/// fn open(choice: DeviceChoice) -> Result<Device, Error> {
///     match choice {
///         DeviceChoice::Auto => Ok(Device::open()?.0),
///         DeviceChoice::Cpu => Ok(Device::cpu(Checks::Bounds)),
///         DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal),
///     }
/// }
/// assert!(open("cpu".parse().unwrap())?.is_cpu());
/// assert_eq!("cuda:2".parse(), Ok(DeviceChoice::Cuda(2)));
/// assert!("gpu".parse::<DeviceChoice>().is_err());
/// # Ok::<(), tilewright::Error>(())
/// ```
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
mod tests {
    use super::*;

    #[test]
    fn device_names_are_read() {
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda3"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_gpu_the_cpu_is_opened_and_the_reason_is_told() {
        match Device::open() {
            Ok((device, None)) => assert!(!device.is_cpu()),
            Ok((device, Some(reason))) => assert!(device.is_cpu() && reason.is_absence_of_gpus(), "{reason}"),
            Err(error) => assert!(!error.is_absence_of_gpus(), "{error}"),
        }
    }
}
