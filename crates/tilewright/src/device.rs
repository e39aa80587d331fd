//! A device that has Tilewright's kernels.

use std::ffi::c_void;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;

use cuda_std::Grid;
use cuda_std::executor::{Checks, Executor};
use runtime::KernelSet;

use crate::Error;
pub use crate::tensor_map::Lines;
pub use runtime::{Buffer, DeviceInfo, LoadedKernel, TensorLayout, TensorTile};

/// The kernels of `gpu-kernels`, as this program has embedded them.
pub static KERNELS: KernelSet = runtime::kernel_set!("gpu_kernels");

/// Why this program has no PTX, if it has none.
pub fn missing_ptx() -> Option<&'static str> {
    KERNELS.missing()
}

/// A [`runtime::Device`] that has the kernels of this library: a GPU, or the CPU executor. A handle: clones are of the same
/// device.
#[derive(Clone, Debug)]
pub struct Device(runtime::Device);

impl Deref for Device {
    type Target = runtime::Device;

    fn deref(&self) -> &runtime::Device {
        &self.0
    }
}

impl Device {
    /// The first CUDA GPU. Where there is none to use, the CPU executor with bounds checks, and the reason: no driver, no
    /// device, or no PTX in this build.
    ///
    /// # Errors
    /// Those of [`runtime::Device::open`].
    pub fn open() -> Result<(Self, Option<Error>), Error> {
        let (device, reason) = runtime::Device::open(&[&KERNELS])?;
        Ok((Self(device), reason.map(Error::from)))
    }

    /// The CUDA GPU of this number, counted from 0.
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda`].
    pub fn cuda(ordinal: usize) -> Result<Self, Error> {
        Self::cuda_with(ordinal, &[])
    }

    /// The same with kernels of other crates besides.
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda`].
    pub fn cuda_with(ordinal: usize, others: &[&'static KernelSet]) -> Result<Self, Error> {
        Ok(Self(runtime::Device::cuda(ordinal, &[&[&KERNELS], others].concat())?))
    }

    /// The CUDA GPU of this number, with the PTX for one architecture and no other: see
    /// [`runtime::Device::cuda_with_arch`].
    ///
    /// # Errors
    /// Those of [`runtime::Device::cuda_with_arch`].
    pub fn cuda_with_arch(ordinal: usize, arch: &str) -> Result<Self, Error> {
        Ok(Self(runtime::Device::cuda_with_arch(ordinal, &[&KERNELS], Some(arch))?))
    }

    /// The CUDA GPU of this number, with PTX from a file instead of the embedded one, loaded at once.
    ///
    /// # Errors
    /// Those of [`KernelSet::from_file`] and [`runtime::Device::cuda`].
    ///
    /// # Safety
    /// As for [`KernelSet::from_file`].
    pub unsafe fn cuda_with_ptx(ordinal: usize, path: &Path) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let set = unsafe { KernelSet::from_file(KERNELS.crate_name(), path) }?;
        Ok(Self(runtime::Device::cuda(ordinal, &[set])?))
    }

    /// Runs a kernel: see [`runtime::Device::launch`].
    ///
    /// # Errors
    /// Those of [`runtime::Device::launch`], as errors of this library.
    pub fn launch<K: Grid>(&self, kernel: K) -> Result<(), Error> {
        Ok(self.0.launch(kernel)?)
    }

    /// The CPU executor.
    pub fn cpu(checks: Checks) -> Self {
        Self(runtime::Device::cpu(checks))
    }

    /// The CPU executor, as this one is.
    pub fn with_executor(executor: Executor) -> Self {
        Self(runtime::Device::with_executor(executor))
    }

    /// A handle of the same GPU by which everything runs on another library's stream: see [`runtime::Device::on_stream`].
    ///
    /// # Errors
    /// Those of [`runtime::Device::on_stream`].
    ///
    /// # Safety
    /// As for [`runtime::Device::on_stream`].
    pub unsafe fn on_stream(&self, stream: *mut c_void) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { self.0.on_stream(stream) }?))
    }
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
