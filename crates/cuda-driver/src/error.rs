//! The errors of this crate. Each message names the cause, the values and what to do about it.

use std::fmt;

use gpu_facts::{ComputeCapability, Excess};

use crate::driver_call::DriverCall;
use crate::library::{self, LIBRARY_VARIABLE};
use crate::tensor_map::{TensorMapFault, TensorMapRejected};
use crate::version::DriverVersion;

/// An error of this crate. Its message is complete: cause, values, the driver's own code and name, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library cannot be opened, or is no driver: none is installed, or it is not visible here.
    #[error(
        "no CUDA driver: cannot use {tried} ({reason}). Install the NVIDIA driver; in a container, pass the GPU \
         through (for example `docker run --gpus all`); a driver in an unusual place is named by the environment \
         variable {LIBRARY_VARIABLE}"
    )]
    NoDriver {
        /// The library's name or path.
        tried: String,
        /// Why it could not be opened or used.
        reason: String,
    },

    /// The driver is older than anything this crate can work with.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {found}, and {needed} or newer is needed. Update the NVIDIA \
         driver"
    )]
    DriverTooOld {
        /// The CUDA version that the driver supports.
        found: DriverVersion,
        /// The lowest that is needed.
        needed: DriverVersion,
    },

    /// The driver lacks a function: it is older or newer than the interface that `cust` was written for.
    #[error(
        "the CUDA driver ({library}) has no function {function}. If the NVIDIA driver is old, update it; otherwise it \
         no longer offers this function"
    )]
    MissingFunction {
        /// The function.
        function: &'static str,
        /// The library it was looked for in.
        library: String,
    },

    /// There is a driver, but no GPU that it can use.
    #[error("no CUDA device: {}{}", .call, no_device_advice(.visible_devices.as_deref()))]
    NoDevice {
        /// The call that says so.
        call: DriverCall,
        /// The value of `CUDA_VISIBLE_DEVICES`, which hides devices, if it is set.
        visible_devices: Option<String>,
    },

    /// There is no GPU of this number.
    #[error("there is no CUDA device {ordinal}: {}", available_devices(*.count))]
    BadOrdinal {
        /// The number that was asked for.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },

    /// The driver does not accept a PTX module.
    #[error("{0}")]
    PtxRejected(Box<PtxRejected>),

    /// The driver does not accept a cubin, as an older one than the assembler that wrote it, or one of another GPU. PTX of the
    /// kernel may do in its place.
    #[error(
        "the driver (CUDA {driver}) does not accept the machine code of `{kernel}`, which is for a newer driver or another GPU: load \
         PTX of the kernel in its place ({call})"
    )]
    CubinRejected {
        /// The kernel's name.
        kernel: String,
        /// The CUDA version that the driver supports.
        driver: DriverVersion,
        /// The call that failed.
        call: DriverCall,
    },

    /// The module has no kernel of this name.
    #[error("the module has no kernel named `{name}`; it has {}", listed(.available))]
    NoSuchKernel {
        /// The name that was asked for.
        name: String,
        /// The kernels that the module has.
        available: Vec<String>,
    },

    /// The GPU gives threads no stack of this size.
    #[error(
        "this GPU gives threads no stack of {requested} bytes, for which it needs memory for all threads that can run at a time; they have \
         {available} bytes. Ask for less, or free memory ({call})"
    )]
    StackRejected {
        /// The bytes that were asked for, for each thread.
        requested: usize,
        /// The bytes that each thread has.
        available: usize,
        /// The call that failed.
        call: DriverCall,
    },

    /// The GPU has too little free memory.
    #[error(
        "out of GPU memory: {requested} bytes ({}) were requested, {free} ({}) are free of {total} ({}) on this GPU. \
         Use a smaller problem, or free memory: `nvidia-smi` lists the processes that hold it ({call})",
        Size(*.requested), Size(*.free), Size(*.total)
    )]
    OutOfMemory {
        /// The bytes that were asked for.
        requested: usize,
        /// The bytes that were free after the request had failed.
        free: usize,
        /// The bytes that the GPU has.
        total: usize,
        /// The call that failed.
        call: DriverCall,
    },

    /// An allocation's size in bytes does not fit in memory's address range, on any GPU.
    #[error("{len} elements of {element_bytes} bytes each are more than any GPU can address. Use a smaller problem")]
    SizeOverflow {
        /// The number of elements.
        len: usize,
        /// The size of one.
        element_bytes: usize,
    },

    /// A copy between slices of different lengths.
    #[error(
        "cannot copy between {host_len} elements on the host and {device_len} elements on the GPU: the lengths have to \
         be equal"
    )]
    LengthMismatch {
        /// The elements on the host.
        host_len: usize,
        /// The elements on the GPU.
        device_len: usize,
    },

    /// A launch asks for more than the GPU offers. Nothing ran, and the GPU can be used further.
    #[error("cannot launch `{kernel}` on {device} (compute capability {compute_capability}): {excess}")]
    LaunchExceeds {
        /// The kernel's name.
        kernel: String,
        /// The GPU.
        device: String,
        /// Its generation.
        compute_capability: ComputeCapability,
        /// What is too much.
        excess: Excess,
    },

    /// The driver refused to launch a kernel. Nothing ran, and the GPU can be used further.
    #[error("{0}")]
    LaunchRejected(Box<LaunchRejected>),

    /// An array cannot be described by a tensor map.
    #[error("{0}")]
    TensorMapRejected(Box<TensorMapRejected>),

    /// A kernel, or the hardware, failed in a way that ends the GPU's context. From then on everything that needs the GPU
    /// returns this same error, and asks nothing of the driver.
    #[error(
        "{}the GPU's context is lost: {call}. {}All GPU memory of this process is gone with it: start the program again",
        reported(.report.as_deref()), causes(.report.as_deref(), .call.code, .kernels)
    )]
    ContextLost {
        /// The call that reported it first, which need not be the one that caused it.
        call: DriverCall,
        /// The kernels that had been launched and not been waited for, in the order of their first launches, as far as is
        /// known. One of them has failed, if it was a kernel of this program.
        kernels: Vec<String>,
        /// What is known of the cause, if [`Gpu::explain_loss`](crate::Gpu::explain_loss) knows it.
        report: Option<Box<str>>,
    },

    /// Any other failure of a driver function.
    #[error("{call}{}", advice(.call.code))]
    Call {
        /// The call that failed.
        call: DriverCall,
    },
}

impl Error {
    /// The error for a driver that cannot be opened.
    pub(crate) fn no_driver() -> Error {
        let (tried, reason) = library::missing_driver().unwrap_or(("the driver", "it was not there at first"));
        Error::NoDriver { tried: tried.to_owned(), reason: reason.to_owned() }
    }

    /// The call that failed, if it was one of the driver's.
    pub fn driver_call(&self) -> Option<&DriverCall> {
        match self {
            Error::NoDevice { call, .. }
            | Error::OutOfMemory { call, .. }
            | Error::StackRejected { call, .. }
            | Error::ContextLost { call, .. }
            | Error::CubinRejected { call, .. }
            | Error::Call { call } => Some(call),
            Error::PtxRejected(rejected) => rejected.call.as_ref(),
            Error::LaunchRejected(rejected) => Some(&rejected.call),
            Error::TensorMapRejected(rejected) => match &rejected.fault {
                TensorMapFault::Refused(call) => Some(call),
                _ => None,
            },
            Error::NoDriver { .. }
            | Error::DriverTooOld { .. }
            | Error::MissingFunction { .. }
            | Error::BadOrdinal { .. }
            | Error::NoSuchKernel { .. }
            | Error::SizeOverflow { .. }
            | Error::LengthMismatch { .. }
            | Error::LaunchExceeds { .. } => None,
        }
    }
}

/// A PTX module that the driver does not accept.
#[derive(Clone, Debug)]
pub struct PtxRejected {
    /// What is wrong with it.
    pub fault: PtxFault,
    /// The PTX language version that the module's `.version` names.
    pub ptx_version: Option<(u32, u32)>,
    /// The architecture that the module's `.target` names, such as `sm_90a`.
    pub target: Option<String>,
    /// The name of the GPU.
    pub device: String,
    /// Its compute capability.
    pub compute_capability: ComputeCapability,
    /// The CUDA version that the driver supports.
    pub driver: DriverVersion,
    /// What the driver's PTX compiler wrote; empty if it wrote nothing.
    pub log: String,
    /// The call that failed; none if the driver was not asked.
    pub call: Option<DriverCall>,
}

/// What is wrong with a PTX module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PtxFault {
    /// It is written in a newer version of the PTX language than the driver reads.
    TooNew,
    /// It is for another GPU architecture.
    WrongArchitecture,
    /// It contains a NUL byte, where the driver would stop reading.
    ContainsNul {
        /// The offset of the first one, in bytes.
        offset: usize,
    },
    /// It is not valid PTX.
    Invalid,
}

impl fmt::Display for PtxRejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version =
            self.ptx_version.map_or("without .version".to_owned(), |(major, minor)| format!("{major}.{minor}"));
        let target = self.target.as_deref().unwrap_or("without .target");
        let PtxRejected { device, compute_capability, driver, .. } = self;
        match self.fault {
            PtxFault::TooNew => write!(
                f,
                "the NVIDIA driver supports CUDA {driver} and does not read PTX {version}, which is newer. Update the \
                 NVIDIA driver, or build the PTX for an older version"
            ),
            PtxFault::WrongArchitecture => write!(
                f,
                "PTX for {target} does not run on {device}, which is sm_{}{}. Build the PTX for that architecture",
                compute_capability.major, compute_capability.minor
            ),
            PtxFault::ContainsNul { offset } => {
                write!(f, "the PTX is damaged: it has a NUL byte at offset {offset}. Build it again")
            }
            PtxFault::Invalid => write!(
                f,
                "the driver (CUDA {driver}) does not accept the PTX ({version}, {target}) on {device} (compute \
                 capability {compute_capability}). The PTX is damaged or wrong: build it again"
            ),
        }?;
        if let Some(call) = &self.call {
            write!(f, " ({call})")?;
        }
        let log = self.log.trim();
        if log.is_empty() { Ok(()) } else { write!(f, "\nthe driver's PTX compiler says:\n{log}") }
    }
}

/// A launch that the driver refused.
#[derive(Clone, Debug)]
pub struct LaunchRejected {
    /// The kernel's name.
    pub kernel: String,
    /// The number of blocks along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads of a block along x, y and z.
    pub block: [u32; 3],
    /// The shared memory requested by the launch, in bytes.
    pub dynamic_shared_bytes: u32,
    /// The shared memory that the kernel itself declares, in bytes.
    pub static_shared_bytes: u32,
    /// The threads that a block of this kernel may have.
    pub max_threads_per_block: u32,
    /// The call that failed.
    pub call: DriverCall,
}

impl fmt::Display for LaunchRejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot launch `{}` with a grid of {:?} blocks of {:?} threads and {} + {} bytes of dynamic and \
             static shared memory ({}). On this GPU a block of this kernel has at most {} threads",
            self.kernel,
            self.grid,
            self.block,
            self.dynamic_shared_bytes,
            self.static_shared_bytes,
            self.call,
            self.max_threads_per_block,
        )
    }
}

/// The driver's codes that this crate tells apart. They are numbers, because `cust` lacks the newer ones.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const DEVICE_UNAVAILABLE: u32 = 46;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const ECC_UNCORRECTABLE: u32 = 214;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const NVLINK_UNCORRECTABLE: u32 = 220;
    pub(crate) const JIT_COMPILER_NOT_FOUND: u32 = 221;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const JIT_COMPILATION_DISABLED: u32 = 223;
    pub(crate) const CONTAINED: u32 = 226;
    pub(crate) const INVALID_SOURCE: u32 = 300;
    pub(crate) const SHARED_OBJECT_SYMBOL_NOT_FOUND: u32 = 302;
    pub(crate) const OPERATING_SYSTEM: u32 = 304;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    pub(crate) const LAUNCH_TIMEOUT: u32 = 702;
    pub(crate) const CONTEXT_IS_DESTROYED: u32 = 709;
    pub(crate) const ASSERT: u32 = 710;
    pub(crate) const HARDWARE_STACK_ERROR: u32 = 714;
    pub(crate) const ILLEGAL_INSTRUCTION: u32 = 715;
    pub(crate) const MISALIGNED_ADDRESS: u32 = 716;
    pub(crate) const INVALID_ADDRESS_SPACE: u32 = 717;
    pub(crate) const INVALID_PC: u32 = 718;
    pub(crate) const LAUNCH_FAILED: u32 = 719;
    pub(crate) const SYSTEM_NOT_READY: u32 = 802;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub(crate) const COMPAT_NOT_SUPPORTED_ON_DEVICE: u32 = 804;
    pub(crate) const INVALID_CLUSTER_SIZE: u32 = 912;
    pub(crate) const UNKNOWN: u32 = 999;

    /// After one of these, every call in the same process returns it again.
    pub(crate) const CONTEXT_LOST: &[u32] = &[
        ECC_UNCORRECTABLE,
        NVLINK_UNCORRECTABLE,
        CONTAINED,
        ILLEGAL_ADDRESS,
        LAUNCH_TIMEOUT,
        CONTEXT_IS_DESTROYED,
        ASSERT,
        HARDWARE_STACK_ERROR,
        ILLEGAL_INSTRUCTION,
        MISALIGNED_ADDRESS,
        INVALID_ADDRESS_SPACE,
        INVALID_PC,
        LAUNCH_FAILED,
    ];

    /// The machine code is at fault: its format is newer than the driver, it is for another GPU, or the driver has been told to
    /// use none (`CUDA_FORCE_PTX_JIT`).
    pub(crate) const CUBIN_REJECTED: &[u32] =
        &[INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION, INVALID_SOURCE];

    /// The module is at fault, and the driver's PTX compiler may have more to say about it.
    pub(crate) const PTX_REJECTED: &[u32] = &[
        INVALID_IMAGE,
        NO_BINARY_FOR_GPU,
        INVALID_PTX,
        UNSUPPORTED_PTX_VERSION,
        INVALID_SOURCE,
        SHARED_OBJECT_SYMBOL_NOT_FOUND,
    ];

    /// The launch's shape or resources are at fault.
    pub(crate) const LAUNCH_REJECTED: &[u32] = &[INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, INVALID_CLUSTER_SIZE];
}

/// What is known of the cause of a loss, before anything else.
fn reported(report: Option<&str>) -> String {
    report.map_or_else(String::new, |report| format!("{report}\nSo "))
}

/// What may have ended a context, where nobody knows.
fn causes(report: Option<&str>, code: u32, kernels: &[String]) -> String {
    match report {
        Some(_) => String::new(),
        None => format!("{}{} ", lost_context_cause(code), suspects(kernels)),
    }
}

/// What ended a context.
fn lost_context_cause(code: u32) -> &'static str {
    match code {
        code::ILLEGAL_ADDRESS => {
            "A kernel accessed memory that does not belong to it; run it on the CPU executor with its checks to see \
             where."
        }
        code::MISALIGNED_ADDRESS => {
            "A kernel accessed memory at an address that is not a multiple of the access's size; run it on the CPU \
             executor with its checks to see where."
        }
        code::ASSERT => "A kernel's assertion failed.",
        code::LAUNCH_TIMEOUT => {
            "A kernel ran longer than the display's watchdog allows; use a smaller problem, or a GPU without a display."
        }
        code::ECC_UNCORRECTABLE | code::NVLINK_UNCORRECTABLE | code::CONTAINED => {
            "The hardware reported an error; `nvidia-smi -q` shows its error counters, and the GPU may need a reset."
        }
        code::CONTEXT_IS_DESTROYED => "The context was destroyed by other code in this process.",
        _ => "A kernel failed on the GPU; run it on the CPU executor with its checks to see where.",
    }
}

/// Which kernels may have failed.
fn suspects(kernels: &[String]) -> String {
    match kernels {
        [] => String::new(),
        [one] => format!(" Of the kernels launched here, only `{one}` had not been waited for."),
        several => format!(" Of the kernels launched here, these had not been waited for: {}.", listed(several)),
    }
}

/// What to do about a code, as the end of a message.
fn advice(code: u32) -> &'static str {
    match code {
        code::OUT_OF_MEMORY => {
            ". The GPU has too little free memory even to begin; `nvidia-smi` lists the processes that hold it"
        }
        code::DEVICE_UNAVAILABLE => {
            ". Another process holds the GPU for itself; `nvidia-smi` lists the processes and the GPU's compute mode"
        }
        code::JIT_COMPILER_NOT_FOUND => {
            ". The driver's PTX compiler, libnvidia-ptxjitcompiler.so.1, is missing: install the whole NVIDIA driver; \
             in a container, allow the `compute` driver capability"
        }
        code::JIT_COMPILATION_DISABLED => ". Unset the environment variable CUDA_DISABLE_PTX_JIT",
        code::OPERATING_SYSTEM => {
            ". The driver's device files may be missing or closed to this user; `ls -l /dev/nvidia*` shows them"
        }
        code::SYSTEM_NOT_READY => {
            ". On machines with NVSwitch the service nvidia-fabricmanager has to run; start it and try again"
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            ". The driver's library and the kernel's driver have different versions; after an update of the driver, \
             restart the machine"
        }
        code::COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            ". The CUDA compatibility package does not support this GPU; take it out of LD_LIBRARY_PATH, and update \
             the NVIDIA driver instead"
        }
        code::UNKNOWN => {
            ". The driver does not say why. Often its device files are missing or the kernel module needs to be loaded \
             again: see whether `nvidia-smi` works, and restart the machine if it does not"
        }
        _ => ". This program does not expect this code here: please report it, with the output of `nvidia-smi`",
    }
}

fn no_device_advice(visible_devices: Option<&str>) -> String {
    match visible_devices {
        Some(value) => format!(
            ". CUDA_VISIBLE_DEVICES is set to \"{value}\", which hides all other devices: unset it, or name a device"
        ),
        None => {
            ". See whether `nvidia-smi` lists a GPU; in a container, pass it through (for example `docker run --gpus \
                 all`)"
                .to_owned()
        }
    }
}

fn available_devices(count: usize) -> String {
    match count {
        0 => "there are none".to_owned(),
        1 => "the only one is device 0".to_owned(),
        _ => format!("the devices are 0 to {}", count - 1),
    }
}

/// The first names of a list, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// A number of bytes in a unit that a reader takes in.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..=1023 => write!(f, "{bytes} B"),
            1024..=1_048_575 => write!(f, "{:.1} KiB", bytes / 1024.0),
            1_048_576..=1_073_741_823 => write!(f, "{:.1} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.1} GiB", bytes / 1_073_741_824.0),
        }
    }
}
