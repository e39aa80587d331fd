//! Kernels with a fault each, to see whether what looks for faults finds them: see [`gpu_kernels::planted`].

use std::fmt;
use std::sync::LazyLock;

use cuda_std::Kernel;
use gpu_kernels::planted::{
    GRID, THREADS, planted_barriers_in_both_branches, planted_endless, planted_race_in_shared_memory,
    planted_read_out_of_bounds, planted_read_unwritten, planted_trap,
};
use testkit::sanitize::{Planted, Tool};

use crate::Error;
use tilewright::Buffer;
use tilewright::device::Device;

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read far beyond the end of an array.
    ReadOutOfBounds,
    /// No barrier between a write to shared memory and another warp's read.
    RaceInSharedMemory,
    /// A barrier that each warp of a block calls from another place.
    BarriersInBothBranches,
    /// A read of memory that nobody has written.
    ReadUnwritten,
    /// A thread that gives up, which ends the GPU's context.
    Trap,
    /// Threads that never end.
    Endless,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ReadOutOfBounds,
        Self::RaceInSharedMemory,
        Self::BarriersInBothBranches,
        Self::ReadUnwritten,
        Self::Trap,
        Self::Endless,
    ];

    /// The fault in a word or two, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOutOfBounds => "read-out-of-bounds",
            Self::RaceInSharedMemory => "race-in-shared-memory",
            Self::BarriersInBothBranches => "barriers-in-both-branches",
            Self::ReadUnwritten => "read-unwritten",
            Self::Trap => "trap",
            Self::Endless => "endless",
        }
    }

    /// The kernel with this fault: its name, and that of the PTX entry point.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::ReadOutOfBounds => planted_read_out_of_bounds::NAME,
            Self::RaceInSharedMemory => planted_race_in_shared_memory::NAME,
            Self::BarriersInBothBranches => planted_barriers_in_both_branches::NAME,
            Self::ReadUnwritten => planted_read_unwritten::NAME,
            Self::Trap => planted_trap::NAME,
            Self::Endless => planted_endless::NAME,
        }
    }

    /// The tool that has to report it, if one of `compute-sanitizer` is for it.
    pub fn tool(self) -> Option<Tool> {
        match self {
            Self::ReadOutOfBounds => Some(Tool::Memcheck),
            Self::RaceInSharedMemory => Some(Tool::Racecheck),
            Self::BarriersInBothBranches => Some(Tool::Synccheck),
            Self::ReadUnwritten => Some(Tool::Initcheck),
            Self::Trap | Self::Endless => None,
        }
    }

    /// Runs the kernel with this fault, and waits for it: for [`Fault::Endless`] without an end.
    ///
    /// # Errors
    /// What the device reports of the fault, and [`DeviceError::Driver`](runtime::Error::Driver) if the GPU has failed before.
    ///
    /// # Safety
    /// Nobody goes by what the GPU computes for this process afterwards: what a kernel does that reads where it should not, or
    /// races, is not defined. The CPU executor stops before that.
    pub unsafe fn run(self, device: &Device) -> Result<(), tilewright::Error> {
        let x: Buffer<f32> = match self {
            Self::ReadUnwritten => device.allocate(THREADS)?,
            _ => device.upload(&std::array::from_fn::<f32, THREADS, _>(|i| i as f32))?,
        };
        let mut written = device.upload(&[0.0f32; THREADS])?;
        let (x, y) = (x.view(), written.view_mut());
        // SAFETY: all of them write within
        // `y`, each thread its own element. What else they do is the caller's promise.
        unsafe {
            match self {
                Self::ReadOutOfBounds => device.launch_on(GRID, planted_read_out_of_bounds { x, y }),
                Self::RaceInSharedMemory => device.launch_on(GRID, planted_race_in_shared_memory { x, y }),
                Self::BarriersInBothBranches => device.launch_on(GRID, planted_barriers_in_both_branches { x, y }),
                Self::ReadUnwritten => device.launch_on(GRID, planted_read_unwritten { x, y }),
                Self::Trap => device.launch_on(GRID, planted_trap { x, y }),
                Self::Endless => device.launch_on(GRID, planted_endless { x, y }),
            }?;
        }
        Ok(device.synchronize()?)
    }
}

/// The faults that the tools of `compute-sanitizer` have to report: what this program is told to run them.
pub static FOR_TOOLS: LazyLock<Vec<Planted>> = LazyLock::new(|| {
    let one = |fault: Fault| {
        let arguments = vec!["planted".into(), fault.name().into()];
        Some(Planted { tool: fault.tool()?, fault: fault.name(), kernel: fault.kernel(), arguments })
    };
    Fault::ALL.into_iter().filter_map(one).collect()
});

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Fault {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == name);
        found.ok_or_else(|| Error::unknown_name("fault", name, Self::ALL.map(Self::name).to_vec()))
    }
}
