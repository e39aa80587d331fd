//! What GPUs offer, by compute capability.

use core::fmt;

/// The generation of a GPU: `9.0` is what `sm_90` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The part before the point.
    pub major: u32,
    /// The part after the point.
    pub minor: u32,
}

impl ComputeCapability {
    /// The compute capability `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl ComputeCapability {
    /// Whether a kernel can be launched while the one before it ends, for which it waits by `griddepcontrol.wait` (programmatic dependent
    /// launch).
    pub const fn launches_overlap(self) -> bool {
        self.major >= 9
    }

    /// The fp32 operations that the CUDA cores of a multiprocessor begin in one clock: two for each core, of which a fused
    /// multiply-add is one instruction. `None` where the table does not have the compute capability.
    pub const fn fp32_per_clock(self) -> Option<u32> {
        match Row::of(self) {
            Some(row) => Some(2 * row.cores),
            None => None,
        }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a GPU offers a kernel, a block, a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// The most threads of a block.
    pub threads_per_block: u32,
    /// The largest extents of a block.
    pub block: [u32; 3],
    /// The largest extents of a grid, in blocks.
    pub grid: [u32; 3],
    /// The shared memory that a kernel can declare, in bytes for each block.
    pub static_shared_bytes: u32,
    /// The shared memory of a block, static and dynamic, that a launch can ask for, in bytes.
    pub shared_bytes: u32,
    /// The shared memory of a multiprocessor, in bytes. Each block takes [`Limits::reserved_shared_bytes`] more of it than it
    /// asks for.
    pub shared_bytes_per_multiprocessor: u32,
    /// What the driver takes of it for each block, in bytes.
    pub reserved_shared_bytes: u32,
    /// The registers of a block, of 32 bits each.
    pub registers_per_block: u32,
    /// The most registers of a thread.
    pub max_registers_per_thread: u32,
    /// The threads that a multiprocessor runs at a time.
    pub threads_per_multiprocessor: u32,
    /// The blocks that it runs at a time.
    pub blocks_per_multiprocessor: u32,
    /// The most blocks of a cluster; 0 where there are no clusters.
    #[cfg_attr(feature = "serde", serde(default))]
    pub blocks_per_cluster: u32,
}

/// The rows of the table: what differs between compute capabilities, as in the CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability" and "Throughput of Native Arithmetic Instructions", and in libcu++'s `arch_traits`.
const TABLE: &[((u32, u32), Row)] = &[
    ((8, 0), Row { shared_kib: 164, threads: 2048, blocks: 32, cores: 64 }),
    ((8, 6), Row { shared_kib: 100, threads: 1536, blocks: 16, cores: 128 }),
    ((8, 7), Row { shared_kib: 164, threads: 1536, blocks: 16, cores: 128 }),
    ((8, 9), Row { shared_kib: 100, threads: 1536, blocks: 24, cores: 128 }),
    ((9, 0), HOPPER),
    ((10, 0), Row { shared_kib: 228, threads: 2048, blocks: 32, cores: 128 }),
    ((10, 3), Row { shared_kib: 228, threads: 2048, blocks: 32, cores: 128 }),
    ((11, 0), Row { shared_kib: 228, threads: 1536, blocks: 24, cores: 128 }),
    ((12, 0), Row { shared_kib: 100, threads: 1536, blocks: 24, cores: 128 }),
    ((12, 1), Row { shared_kib: 100, threads: 1536, blocks: 24, cores: 128 }),
];

/// Compute capability 9.0.
const HOPPER: Row = Row { shared_kib: 228, threads: 2048, blocks: 32, cores: 128 };

/// What differs between compute capabilities, of a multiprocessor.
struct Row {
    shared_kib: u32,
    threads: u32,
    blocks: u32,
    /// CUDA cores for fp32.
    cores: u32,
}

impl Row {
    const fn of(capability: ComputeCapability) -> Option<&'static Self> {
        let mut index = 0;
        while index < TABLE.len() {
            let ((major, minor), row) = &TABLE[index];
            if *major == capability.major && *minor == capability.minor {
                return Some(row);
            }
            index += 1;
        }
        None
    }

    const fn limits(&self, capability: ComputeCapability) -> Limits {
        let reserved_shared_bytes = 1 << 10;
        let shared_bytes_per_multiprocessor = self.shared_kib << 10;
        Limits {
            threads_per_block: 1024,
            block: [1024, 1024, 64],
            grid: [i32::MAX as u32, 65_535, 65_535],
            static_shared_bytes: 48 << 10,
            shared_bytes: shared_bytes_per_multiprocessor - reserved_shared_bytes,
            shared_bytes_per_multiprocessor,
            reserved_shared_bytes,
            registers_per_block: 64 << 10,
            max_registers_per_thread: 255,
            threads_per_multiprocessor: self.threads,
            blocks_per_multiprocessor: self.blocks,
            blocks_per_cluster: capability.blocks_per_cluster(),
        }
    }
}

impl Limits {
    /// The limits of GPUs of this compute capability; `None` for one that the table does not have.
    pub const fn of(capability: ComputeCapability) -> Option<Self> {
        match Row::of(capability) {
            Some(row) => Some(row.limits(capability)),
            None => None,
        }
    }

    /// The compute capabilities that the table has, lowest first.
    pub fn known() -> impl Iterator<Item = ComputeCapability> {
        TABLE.iter().map(|((major, minor), _)| ComputeCapability::new(*major, *minor))
    }

    /// What every GPU from compute capability 8.0 on offers: a kernel that fits these limits fits everywhere.
    pub const fn of_every_gpu() -> Self {
        let mut least = Self::of_row(0);
        let mut index = 1;
        while index < TABLE.len() {
            let other = Self::of_row(index);
            if other.shared_bytes < least.shared_bytes {
                least.shared_bytes = other.shared_bytes;
                least.shared_bytes_per_multiprocessor = other.shared_bytes_per_multiprocessor;
            }
            if other.threads_per_multiprocessor < least.threads_per_multiprocessor {
                least.threads_per_multiprocessor = other.threads_per_multiprocessor;
            }
            if other.blocks_per_multiprocessor < least.blocks_per_multiprocessor {
                least.blocks_per_multiprocessor = other.blocks_per_multiprocessor;
            }
            if other.blocks_per_cluster < least.blocks_per_cluster {
                least.blocks_per_cluster = other.blocks_per_cluster;
            }
            index += 1;
        }
        least
    }

    /// The most that any GPU offers a block, which is what one of compute capability 9.0 does.
    pub const fn of_hopper() -> Self {
        HOPPER.limits(ComputeCapability::new(9, 0))
    }

    const fn of_row(index: usize) -> Self {
        let ((major, minor), row) = &TABLE[index];
        row.limits(ComputeCapability::new(*major, *minor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_the_programming_guide_says() {
        let shared = |major, minor| Limits::of(ComputeCapability::new(major, minor)).map(|it| it.shared_bytes);
        for (major, minor) in [(8, 0), (8, 7)] {
            assert_eq!(shared(major, minor), Some(163 << 10));
        }
        for (major, minor) in [(8, 6), (8, 9), (12, 0), (12, 1)] {
            assert_eq!(shared(major, minor), Some(99 << 10));
        }
        for (major, minor) in [(9, 0), (10, 0), (10, 3), (11, 0)] {
            assert_eq!(shared(major, minor), Some(227 << 10));
        }
        assert_eq!((shared(7, 5), shared(8, 1), shared(13, 0)), (None, None, None));
        assert_eq!(Limits::known().count(), 10);
        let rate = |major, minor| ComputeCapability::new(major, minor).fp32_per_clock();
        assert_eq!([rate(8, 0), rate(8, 9), rate(9, 0), rate(13, 0)], [Some(128), Some(256), Some(256), None]);
    }

    #[test]
    fn what_fits_every_gpu_fits_each() {
        let least = Limits::of_every_gpu();
        let most = Limits::of_hopper();
        for limits in Limits::known().filter_map(Limits::of) {
            assert!(least.shared_bytes <= limits.shared_bytes && limits.shared_bytes <= most.shared_bytes);
            assert!(least.threads_per_multiprocessor <= limits.threads_per_multiprocessor);
            assert!(least.blocks_per_multiprocessor <= limits.blocks_per_multiprocessor);
            assert_eq!((least.threads_per_block, least.grid), (limits.threads_per_block, limits.grid));
        }
        assert_eq!((least.shared_bytes, least.blocks_per_multiprocessor), (99 << 10, 16));
    }
}
