//! The facts of a device that a plan depends on: compute capability, multiprocessors, memory. Plans can be made from them without the
//! device.

use std::fmt;

use cuda_std::{ComputeCapability, Limits};
use serde::{Deserialize, Serialize};

use crate::Device;

/// A device, as far as a choice of kernel depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The product's name, such as `NVIDIA H200`. Tables of measured choices go by it.
    pub name: String,
    /// What runs kernels.
    pub processor: Processor,
    /// The streaming multiprocessors of a GPU; the threads of the CPU executor.
    pub multiprocessors: u32,
    /// The memory in bytes, where it is known.
    pub memory_bytes: Option<u64>,
    /// What it offers a kernel: the driver's figures where there is a driver, or else those of its compute capability.
    #[serde(default = "Limits::of_every_gpu")]
    pub limits: Limits,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Processor {
    /// The CPU executor.
    Cpu,
    /// A GPU.
    Gpu {
        /// The compute capability, as (major, minor).
        compute_capability: (u32, u32),
        /// Whether kernels compiled for exactly compute capability 9.0 (`sm_90a`) can run: the GPU has it, and its driver
        /// reads the PTX.
        sm_90a: bool,
    },
}

impl DeviceFacts {
    /// The facts of a GPU that need not be there, with the limits of its compute capability. One that nobody knows has what
    /// every GPU has. All kernels can run whose PTX a new driver compiles for it.
    pub fn of_gpu(name: &str, compute_capability: (u32, u32), multiprocessors: u32, memory_bytes: u64) -> Self {
        let (major, minor) = compute_capability;
        Self {
            name: name.to_owned(),
            processor: Processor::Gpu { compute_capability, sm_90a: compute_capability == (9, 0) },
            multiprocessors,
            memory_bytes: Some(memory_bytes),
            limits: Limits::of(ComputeCapability::new(major, minor)).unwrap_or(Limits::of_every_gpu()),
        }
    }

    /// The same GPU with the kernels that any has from compute capability 8.0 on, and no others.
    #[must_use]
    pub fn with_portable_kernels(mut self) -> Self {
        if let Processor::Gpu { sm_90a, .. } = &mut self.processor {
            *sm_90a = false;
        }
        self
    }

    /// The facts of a device.
    pub fn of(device: &Device) -> Self {
        match device.gpu_properties() {
            Some(gpu) => Self {
                name: gpu.name.clone(),
                processor: Processor::Gpu {
                    compute_capability: (gpu.compute_capability.major, gpu.compute_capability.minor),
                    sm_90a: device.takes_ptx_for("sm_90a"),
                },
                multiprocessors: gpu.multiprocessors,
                memory_bytes: Some(gpu.total_memory as u64),
                limits: gpu.limits,
            },
            None => Self {
                name: "CPU executor".to_owned(),
                processor: Processor::Cpu,
                multiprocessors: u32::try_from(rayon::current_num_threads()).unwrap_or(u32::MAX),
                memory_bytes: None,
                limits: device.limits(),
            },
        }
    }

    /// Whether this is the CPU executor.
    pub fn is_cpu(&self) -> bool {
        self.processor == Processor::Cpu
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processor {
            Processor::Cpu => write!(f, "{}", self.name),
            Processor::Gpu { compute_capability: (major, minor), sm_90a } => write!(
                f,
                "{} (compute capability {major}.{minor}, {} multiprocessors, {})",
                self.name,
                self.multiprocessors,
                if sm_90a { "sm_90a kernels too" } else { "portable kernels only" }
            ),
        }
    }
}
