//! The errors of devices, buffers and launches. Each message names the cause, the values and what to do about it.

use std::fmt;
use std::path::PathBuf;

use cuda_std::ContractViolation;
use cuda_std::executor::{LaunchError, UnwrittenElements};

/// An error of this library. Its message is complete and stands on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments of a launch break a `requires` condition of the kernel.
    #[error("{0}")]
    Contract(#[from] ContractViolation),

    /// The GPU's driver reports a failure.
    #[error("{0}")]
    Driver(#[from] cuda_driver::Error),

    /// The CPU executor could not run a kernel, or caught it doing something that it must not do.
    #[error("{0}")]
    Executor(#[from] LaunchError),

    /// A view among the arguments of a launch is not of memory that this device has allocated.
    #[error(
        "kernel `{kernel}`: the view `{view}` ({bytes} bytes at {address:#x}) is not inside a buffer of {device}: pass \
         views of buffers that were allocated on the device of the launch"
    )]
    ForeignView {
        /// The kernel's name.
        kernel: &'static str,
        /// The path of the view among the kernel's parameters.
        view: String,
        /// Its address.
        address: usize,
        /// Its size in bytes.
        bytes: usize,
        /// The device of the launch.
        device: String,
    },

    /// A view that the kernel writes to overlaps another view of the same launch.
    #[error(
        "kernel `{kernel}`: the view `{written}`, which is written, overlaps the view `{other}`: give the result a \
         buffer of its own"
    )]
    OverlappingViews {
        /// The kernel's name.
        kernel: &'static str,
        /// The view that is written.
        written: String,
        /// The view that it overlaps.
        other: String,
    },

    /// A view that is to be part of another one, which the kernel writes to, is not.
    #[error("kernel `{kernel}`: the view `{view}` has to be of memory that a view before it is of, and is written")]
    AstrayView {
        /// The kernel's name.
        kernel: &'static str,
        /// The view.
        view: String,
    },

    /// No embedded PTX runs on the device.
    #[error(
        "{device} has compute capability {compute_capability}, and the kernels are compiled for {available} only. Use a \
         GPU of compute capability {lowest} or newer, or the CPU executor"
    )]
    IncapableDevice {
        /// The device.
        device: String,
        /// What it can do.
        compute_capability: String,
        /// The architectures that there is PTX for.
        available: String,
        /// The lowest compute capability that one of them runs on.
        lowest: String,
    },

    /// There is PTX of a kernel, but none that this GPU takes.
    #[error(
        "kernel `{kernel}` is compiled for {available} only, and {device} takes PTX for {taken}: choose another kernel"
    )]
    KernelForOtherGpus {
        /// The kernel's name.
        kernel: String,
        /// The architectures that there is PTX of it for.
        available: String,
        /// The device.
        device: String,
        /// The architectures whose PTX the device takes.
        taken: String,
    },

    /// This build has no PTX in it.
    #[error("this build contains no PTX for GPUs: {reason}")]
    NoPtx {
        /// Why, and what to do.
        reason: String,
    },

    /// Machine code of a kernel that is embedded in this program is not what it was when the program was built.
    #[error(
        "the machine code of kernel `{kernel}` for {arch} in this program is damaged: {reason}. Install or build the program again; \
         `TILEWRIGHT_CUBINS=` without a value, when it is built, leaves machine code out"
    )]
    DamagedCubin {
        /// The kernel's name.
        kernel: String,
        /// The architecture.
        arch: &'static str,
        /// What its decompression has found.
        reason: String,
    },

    /// A file that was to be PTX is something else.
    #[error("{} is not PTX: {reason}. Build it with `cargo xtask build-ptx`", .path.display())]
    BadPtxFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// More memory than there is.
    #[error("not enough memory {place}: {needs} are needed, {has} are free. Free memory, or compute less at once")]
    NotEnoughMemory {
        /// Where.
        place: String,
        /// What the problem needs.
        needs: Bytes,
        /// What there is.
        has: Bytes,
    },

    /// A buffer and a slice of different lengths.
    #[error("cannot copy between {host} elements on the host and {device} elements on the device: the lengths differ")]
    LengthMismatch {
        /// The elements on the host.
        host: usize,
        /// The elements on the device.
        device: usize,
    },

    /// An event of another device.
    #[error(
        "an event of {event} cannot be waited for on {device}, nor its time compared: record it by a handle of the same device, or have the \
         host wait (`Event::synchronize`)"
    )]
    ForeignEvent {
        /// The event's device.
        event: String,
        /// The device that was to wait.
        device: String,
    },

    /// A buffer of another device.
    #[error(
        "{what} on {device}: a buffer is of {owner}, opened as another device; allocate it on the device of the operation"
    )]
    ForeignBuffer {
        /// What was to be done.
        what: &'static str,
        /// The device that was to do it.
        device: String,
        /// The buffer's device.
        owner: String,
    },

    /// An operation on the CPU executor uses memory that an operation of the same thread, which has not ended, has claimed.
    #[error(
        "{what} uses memory that a launch of this thread is using, and would wait for itself: start it when that launch has returned, and \
         not from what shows the lines that kernels print"
    )]
    InUse {
        /// The operation.
        what: String,
    },

    /// A graph was launched on a device that it is not of.
    #[error("a graph of {graph} cannot be launched on {device}: make it by a handle of the same device")]
    ForeignGraph {
        /// The graph's device.
        graph: String,
        /// The device of the launch.
        device: String,
    },

    /// A graph uses a buffer that has been dropped, or shortened.
    #[error(
        "{step} of the graph uses `{view}`, {bytes} bytes at {address:#x} of a buffer that has been dropped or shortened since: keep the \
         buffers of a graph as long as it is launched, or make the graph anew"
    )]
    DeadGraphBuffer {
        /// The step: `launch 2 (kernel `axpy`)`.
        step: String,
        /// The view's path among the kernel's parameters, or what the buffer is for.
        view: String,
        /// The address.
        address: usize,
        /// The size in bytes.
        bytes: usize,
    },

    /// A step of a graph cannot be replaced by what it was to be.
    #[error(
        "step {step} of the graph cannot become a launch of kernel `{kernel}`: {reason}. Make a graph with it instead"
    )]
    GraphStep {
        /// The number of the step, from 0.
        step: usize,
        /// The kernel.
        kernel: &'static str,
        /// Why not.
        reason: String,
    },

    /// A graph of which a step could not be added.
    #[error("the graph is not complete, because a step could not be added: {reason}. Make it anew")]
    IncompleteGraph {
        /// The first error.
        reason: String,
    },

    /// The host reads what no kernel has written: the CPU executor with all checks has seen it.
    #[error(transparent)]
    Unwritten(#[from] UnwrittenElements),

    /// The device does not have the kernels of the crate.
    #[error(
        "kernel `{kernel}` is of the crate `{crate_name}`, and {device} has the kernels of {known}: embed that crate's kernels \
         (`cuda_builder::embed` in a build script, `kernel_set!` in the program), and open the device with them"
    )]
    UnknownKernelSet {
        /// The kernel's name.
        kernel: &'static str,
        /// Its crate.
        crate_name: &'static str,
        /// The device.
        device: String,
        /// The crates whose kernels the device has.
        known: String,
    },

    /// The PTX was made from other sources than the kernel.
    #[error(
        "kernel `{kernel}` was compiled from sources with the digest {kernel_digest}, and the PTX of `{crate_name}` was made from \
         sources with the digest {ptx_digest}: build the program again, so that both are made from the same. (A crate of kernels has \
         a digest if its build script is `fn main() {{ kernel_digest::emit() }}`.)"
    )]
    StaleKernels {
        /// The kernel's name.
        kernel: &'static str,
        /// Its crate.
        crate_name: &'static str,
        /// The digest of the sources that the program was compiled from.
        kernel_digest: String,
        /// The digest of the sources that the PTX was made from.
        ptx_digest: String,
    },

    /// The kernel's parameters are laid out otherwise on the GPU than on the CPU.
    #[error(
        "the parameters of kernel `{kernel}` are laid out otherwise in the PTX of `{crate_name}` than in this program: a type among them \
         depends on the target, as by a `#[cfg]` on a field; make it the same for both, and build again"
    )]
    OtherLayout {
        /// The kernel's name.
        kernel: &'static str,
        /// Its crate.
        crate_name: &'static str,
    },

    /// There is PTX, but none for the architecture asked for.
    #[error("this program has no PTX for `{arch}`: it has that for {available}")]
    NoSuchArch {
        /// The architecture asked for.
        arch: String,
        /// The architectures that there is PTX for.
        available: String,
    },

    /// A tensor map would describe elements outside of its array.
    #[error(
        "a tensor map of {matrices} matrices, {matrix_stride} elements apart, of {span} elements each, reaches beyond its array of \
         {len}: describe less, or pass a larger view"
    )]
    TensorOutOfBounds {
        /// The number of matrices.
        matrices: u64,
        /// From one to the next, in elements of the tiles.
        matrix_stride: u64,
        /// From the first to behind the last element of one.
        span: u64,
        /// The elements that the array has.
        len: u64,
    },

    /// Something that only a GPU has was asked of the CPU executor.
    #[error("the CPU executor has no {what}")]
    OnlyOnGpus {
        /// What was asked for.
        what: &'static str,
    },

    /// A file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether there is nothing that could run PTX, or no PTX to run: no driver, no device, or none embedded. All else that
    /// is wrong with a GPU is worth knowing.
    pub fn is_absence_of_gpus(&self) -> bool {
        use cuda_driver::Error::{BadOrdinal, NoDevice, NoDriver};
        match self {
            Self::NoPtx { .. } => true,
            Self::Driver(error) => matches!(error, NoDriver { .. } | NoDevice { .. } | BadOrdinal { count: 0, .. }),
            _ => false,
        }
    }

    /// Whether a device had too little free memory.
    pub fn is_lack_of_memory(&self) -> bool {
        matches!(self, Self::NotEnoughMemory { .. } | Self::Driver(cuda_driver::Error::OutOfMemory { .. }))
    }

    /// Whether a kernel did something wrong, as opposed to a launch or an input that was refused.
    pub fn is_kernel_fault(&self) -> bool {
        match self {
            Self::Executor(error) => matches!(error, LaunchError::Fault(_)),
            Self::Unwritten(_) => true,
            Self::Driver(error) => matches!(error, cuda_driver::Error::ContextLost { .. }),
            _ => false,
        }
    }
}

/// A number of bytes, shown in a unit that a reader takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::{Fault, FaultKind};

    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_told_from_one_that_does_not_work() {
        use cuda_driver::{DriverCall, DriverVersion, Error::*};
        let call = || DriverCall { function: "cuInit", code: 1, name: "N".to_owned(), description: String::new() };
        let no_driver = NoDriver { tried: "libcuda.so.1".to_owned(), reason: "not there".to_owned() };
        for absent in [no_driver, NoDevice { call: call(), visible_devices: None }, BadOrdinal { ordinal: 0, count: 0 }]
        {
            assert!(Error::from(absent.clone()).is_absence_of_gpus(), "{absent}");
        }
        assert!(Error::NoPtx { reason: "no rustc".to_owned() }.is_absence_of_gpus());
        let old = DriverTooOld { found: DriverVersion { major: 10, minor: 2 }, needed: DriverVersion::MINIMUM };
        let full = OutOfMemory { requested: 1, free: 0, total: 1, call: call() };
        let broken = [
            old,
            full,
            ContextLost { call: call(), kernels: Vec::new(), report: None },
            Call { call: call() },
            BadOrdinal { ordinal: 1, count: 1 },
        ];
        for broken in broken {
            assert!(!Error::from(broken.clone()).is_absence_of_gpus(), "{broken}");
        }
    }

    #[test]
    fn bytes_are_shown_in_their_unit() {
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(8 << 30).to_string(), "8.0 GiB");
        assert_eq!(Bytes(1 << 71).to_string(), "2048.0 EiB");
    }

    #[test]
    fn a_fault_of_a_kernel_is_told_from_a_launch_that_was_refused() {
        let (kernel, origin) = ("k", cuda_std::Dim3::new(0, 0, 0));
        let kind = FaultKind::Panic { message: "oh".to_owned() };
        let fault =
            Fault { kernel, block: origin, thread: origin, location: None, callers: Vec::new(), kind, old_value: None };
        assert!(Error::from(LaunchError::Fault(Box::new(fault))).is_kernel_fault());
        let excess = cuda_std::Excess::Grid { grid: [0; 3], limit: [1; 3] };
        assert!(!Error::from(LaunchError::Excess { kernel, excess }).is_kernel_fault());
    }
}
