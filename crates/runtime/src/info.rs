//! A description of a device for reports and JSON: its name, compute capability, memory, driver.

use std::fmt;

use cuda_std::executor::Checks;

use serde::{Deserialize, Serialize};

use crate::Bytes;
use crate::device::{Backend, Device};

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
        /// The newest architecture that the device takes kernels for. Those that there are none of for it are taken from an
        /// older one.
        ptx_arch: String,
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
                ..
            } => {
                let release = driver_release.as_ref().map(|release| format!(" {release}")).unwrap_or_default();
                write!(
                    f,
                    "CUDA device {ordinal}: {name} (compute capability {compute_capability}, {multiprocessors} \
                     multiprocessors, {}), driver{release} (CUDA {driver_cuda_version}), PTX for {ptx_arch}",
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

impl Device {
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
                    ptx_arch: cuda
                        .loaders
                        .first()
                        .and_then(|it| it.archs().first().copied())
                        .unwrap_or_default()
                        .to_owned(),
                }
            }
            Backend::Cpu(executor) => DeviceInfo::Cpu {
                name: processor_name(),
                threads: rayon::current_num_threads(),
                checks: match executor.checks() {
                    Checks::Full => "full".to_owned(),
                    Checks::Bounds => "bounds".to_owned(),
                },
            },
        }
    }
}

fn processor_name() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
