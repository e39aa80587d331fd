//! What a kernel needs of a GPU, and what may be too much.

use core::fmt;

use crate::{ComputeCapability, Limits};

/// What a kernel needs of a GPU, as far as its source says. `#[kernel]` makes this from the kernel's own arguments, types and
/// shared arrays, so that it is never typed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFacts {
    /// The name of the entry point.
    pub name: &'static str,
    /// The crate whose kernel it is.
    pub source: KernelSource,
    /// The threads of every block along x, y and z; where launches choose it, the most threads of a block, along x.
    pub block: [u32; 3],
    /// How many blocks shall fit on a multiprocessor at a time; 0 if the kernel does not say. The compiler keeps the registers
    /// of a thread below what that leaves, so it is no limit for a launch.
    pub min_blocks: u32,
    /// The only architecture that the kernel is compiled for, such as `sm_90a`; `None` for any from sm_80 on.
    pub arch: Option<&'static str>,
    /// The shared arrays that the kernel declares, in bytes for each block.
    pub static_shared_bytes: u32,
    /// The dynamic shared memory that a launch gives each block, in bytes; 0 where each launch chooses.
    pub dynamic_shared_bytes: u32,
    /// The stack that each thread needs for functions that call themselves, in bytes; 0 if the kernel does not say.
    pub stack_bytes: u32,
    /// Whether all blocks of a launch run at the same time, so that they can wait for one another: a cooperative launch.
    pub is_cooperative: bool,
    /// The blocks of every cluster along x, y and z; `None` if the kernel does not say, and has no business with clusters.
    pub cluster: Option<[u32; 3]>,
    /// How many of the parameters are tensor maps.
    pub tensor_maps: u32,
    /// Stands for the layout of the parameters: what was compiled for a GPU and what was compiled for the CPU only fit if it is
    /// the same.
    pub layout: u64,
}

/// Which crate a kernel is of, and what that was when it was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSource {
    /// The name of the crate, with underscores.
    pub crate_name: &'static str,
    /// What its sources were: a digest that PTX made from the same sources has, too. `None` if the crate has no build script
    /// that works it out.
    pub digest: Option<&'static str>,
}

impl KernelSource {
    /// That of a kernel which is of no crate: one that is never launched on a GPU.
    pub const UNKNOWN: Self = Self { crate_name: "", digest: None };
}

impl KernelFacts {
    /// The most local memory that a thread can have, its stack included, in bytes, on every GPU.
    pub const MAX_STACK_BYTES: u32 = 512 << 10;

    /// The facts of a kernel with blocks of one thread that needs nothing else.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            source: KernelSource::UNKNOWN,
            block: [1; 3],
            min_blocks: 0,
            arch: None,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            stack_bytes: 0,
            is_cooperative: false,
            cluster: None,
            tensor_maps: 0,
            layout: 0,
        }
    }

    /// The threads of a block.
    pub const fn threads(&self) -> u64 {
        // Three factors of 32 bits: saturates, because whatever is beyond is too much everywhere.
        let [x, y, z] = self.block;
        (x as u64 * y as u64).saturating_mul(z as u64)
    }

    /// Fails to compile, where it is called in a constant, if no GPU can run the kernel.
    ///
    /// # Panics
    /// If a block is more than every GPU's limits allow.
    pub const fn assert_possible(&self) {
        match Limits::of_hopper().check(self) {
            Ok(()) => {}
            Err(
                Excess::Threads { .. } | Excess::BlockExtent { .. } | Excess::Grid { .. } | Excess::Cooperative { .. },
            ) => {
                panic!("a block has more threads, or a longer side, than on any GPU")
            }
            Err(Excess::StaticShared { .. }) => {
                panic!("a block declares more than 48 KiB of shared arrays: use `dynamic_shared` for more")
            }
            Err(Excess::Shared { .. }) => {
                panic!("a block needs more than the 227 KiB of shared memory that any GPU has")
            }
            Err(Excess::Stack { .. }) => {
                panic!("a thread needs a larger stack than the 512 KiB that any GPU gives it")
            }
            Err(Excess::Cluster { .. } | Excess::GridOfClusters { .. }) => {
                panic!("a cluster has no blocks, or more than the 8 that every GPU with clusters runs together")
            }
        }
    }

    /// Whether all blocks of a grid run at the same time, if they have to and `resident` blocks of the kernel do.
    ///
    /// # Errors
    /// [`Excess::Cooperative`].
    pub const fn check_cooperative(&self, grid: [u32; 3], resident: u64) -> Result<(), Excess> {
        // Three factors of 32 bits: saturates, because whatever is beyond is too much everywhere.
        let blocks = (grid[0] as u64 * grid[1] as u64).saturating_mul(grid[2] as u64);
        if self.is_cooperative && blocks > resident {
            return Err(Excess::Cooperative { grid, limit: resident });
        }
        Ok(())
    }

    /// The blocks of a cluster; `None` if the kernel has none.
    pub const fn blocks_of_cluster(&self) -> Option<u64> {
        match self.cluster {
            // As for `threads`.
            Some([x, y, z]) => Some((x as u64 * y as u64).saturating_mul(z as u64)),
            None => None,
        }
    }

    /// Whether a grid is made of whole clusters, if the kernel has any.
    ///
    /// # Errors
    /// [`Excess::GridOfClusters`].
    pub const fn check_clusters(&self, grid: [u32; 3]) -> Result<(), Excess> {
        let Some(cluster) = self.cluster else { return Ok(()) };
        let mut axis = 0;
        while axis < 3 {
            if cluster[axis] == 0 || !grid[axis].is_multiple_of(cluster[axis]) {
                return Err(Excess::GridOfClusters { grid, cluster });
            }
            axis += 1;
        }
        Ok(())
    }

    /// The shared memory of a block, static and dynamic, in bytes.
    pub const fn shared_bytes(&self) -> u64 {
        self.static_shared_bytes as u64 + self.dynamic_shared_bytes as u64
    }
}

/// What of a launch is beyond what a GPU offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// A block has too many threads, or none.
    Threads {
        /// The shape of the block.
        block: [u32; 3],
        /// The most threads.
        limit: u32,
    },
    /// A block is too long in one direction.
    BlockExtent {
        /// The shape of the block.
        block: [u32; 3],
        /// The largest extents.
        limit: [u32; 3],
    },
    /// The shared arrays that a kernel declares are too large.
    StaticShared {
        /// What they take.
        bytes: u32,
        /// What a block can have of such.
        limit: u32,
    },
    /// Static and dynamic shared memory together are too much.
    Shared {
        /// What the kernel declares.
        static_bytes: u32,
        /// What the launch adds.
        dynamic_bytes: u32,
        /// What a block can have.
        limit: u32,
    },
    /// The stack of a thread is too large.
    Stack {
        /// What the kernel says.
        bytes: u32,
        /// What a thread can have.
        limit: u32,
    },
    /// A grid has too many blocks in one direction, or none.
    Grid {
        /// The grid.
        grid: [u32; 3],
        /// The largest extents.
        limit: [u32; 3],
    },
    /// A cluster has too many blocks, or none, or the GPU has no clusters.
    Cluster {
        /// The blocks of a cluster.
        cluster: [u32; 3],
        /// The most blocks of a cluster: 0 where there are none.
        limit: u32,
    },
    /// A grid is not made of whole clusters.
    GridOfClusters {
        /// The grid.
        grid: [u32; 3],
        /// The blocks of a cluster.
        cluster: [u32; 3],
    },
    /// A cooperative launch has more blocks than run at the same time.
    Cooperative {
        /// The grid.
        grid: [u32; 3],
        /// The blocks of this kernel that run at the same time.
        limit: u64,
    },
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Threads { block: [x, y, z], limit } => {
                write!(f, "a block has {x}x{y}x{z} threads, and there can be 1 to {limit}: choose a smaller block")
            }
            Self::BlockExtent { block: [x, y, z], limit: [a, b, c] } => write!(
                f,
                "a block has {x}x{y}x{z} threads, and there can be at most {a} along x, {b} along y and {c} along z: \
                 choose a block of another shape"
            ),
            Self::StaticShared { bytes, limit } => write!(
                f,
                "a block declares {bytes} bytes of shared arrays, and there can be {limit}: use dynamic shared memory for more"
            ),
            Self::Shared { static_bytes, dynamic_bytes, limit } => write!(
                f,
                "a block needs {} bytes of shared memory ({static_bytes} static, {dynamic_bytes} dynamic), and there are \
                 {limit}: choose smaller tiles or fewer stages",
                u64::from(static_bytes) + u64::from(dynamic_bytes)
            ),
            Self::Stack { bytes, limit } => write!(
                f,
                "a thread needs a stack of {bytes} bytes, and there can be {limit}: have functions call themselves less deeply, or a loop \
                 in place of the calls"
            ),
            Self::Cluster { cluster: [x, y, z], limit: 0 } => write!(
                f,
                "its blocks run in clusters of {x}x{y}x{z}, and there are clusters from compute capability 9.0 on: have another kernel do \
                 the same on this GPU"
            ),
            Self::Cluster { cluster: [x, y, z], limit } => {
                write!(f, "a cluster has {x}x{y}x{z} blocks, and there can be 1 to {limit}: choose a smaller cluster")
            }
            Self::GridOfClusters { grid: [x, y, z], cluster: [a, b, c] } => write!(
                f,
                "the grid has {x}x{y}x{z} blocks, which are no whole clusters of {a}x{b}x{c}: launch a multiple of the cluster along each \
                 axis, and let blocks without work return after the last meeting of their cluster"
            ),
            Self::Cooperative { grid: [x, y, z], limit } => write!(
                f,
                "the grid of a cooperative launch has {x}x{y}x{z} blocks, and {limit} of this kernel run at the same time: launch \
                 no more, and have a block do more"
            ),
            Self::Grid { grid: [x, y, z], limit: [a, b, c] } => write!(
                f,
                "the grid has {x}x{y}x{z} blocks, and there can be 1 to {a} along x, {b} along y and {c} along z: launch several \
                 grids, or have a block do more"
            ),
        }
    }
}

impl core::error::Error for Excess {}

impl Limits {
    /// Whether a block of a kernel fits.
    ///
    /// # Errors
    /// The first thing that is too much.
    pub const fn check(&self, kernel: &KernelFacts) -> Result<(), Excess> {
        let block = kernel.block;
        let threads = kernel.threads();
        if threads == 0 || threads > self.threads_per_block as u64 {
            return Err(Excess::Threads { block, limit: self.threads_per_block });
        }
        if block[0] > self.block[0] || block[1] > self.block[1] || block[2] > self.block[2] {
            return Err(Excess::BlockExtent { block, limit: self.block });
        }
        if kernel.static_shared_bytes > self.static_shared_bytes {
            return Err(Excess::StaticShared { bytes: kernel.static_shared_bytes, limit: self.static_shared_bytes });
        }
        if kernel.shared_bytes() > self.shared_bytes as u64 {
            return Err(Excess::Shared {
                static_bytes: kernel.static_shared_bytes,
                dynamic_bytes: kernel.dynamic_shared_bytes,
                limit: self.shared_bytes,
            });
        }
        if kernel.stack_bytes > KernelFacts::MAX_STACK_BYTES {
            return Err(Excess::Stack { bytes: kernel.stack_bytes, limit: KernelFacts::MAX_STACK_BYTES });
        }
        if let (Some(cluster), Some(blocks)) = (kernel.cluster, kernel.blocks_of_cluster())
            && (blocks == 0 || blocks > self.blocks_per_cluster as u64)
        {
            return Err(Excess::Cluster { cluster, limit: self.blocks_per_cluster });
        }
        Ok(())
    }

    /// Whether a grid can be launched.
    ///
    /// # Errors
    /// [`Excess::Grid`].
    pub const fn check_grid(&self, grid: [u32; 3]) -> Result<(), Excess> {
        let mut axis = 0;
        while axis < 3 {
            if grid[axis] == 0 || grid[axis] > self.grid[axis] {
                return Err(Excess::Grid { grid, limit: self.grid });
            }
            axis += 1;
        }
        Ok(())
    }

    /// The blocks of a kernel that a multiprocessor can run at a time, as far as shared memory, threads and blocks say. Registers
    /// may leave fewer.
    pub const fn resident_blocks(&self, kernel: &KernelFacts) -> u32 {
        let shared = kernel.shared_bytes() + self.reserved_shared_bytes as u64;
        let threads = kernel.threads().next_multiple_of(32);
        let mut blocks = self.blocks_per_multiprocessor as u64;
        if shared > 0 && self.shared_bytes_per_multiprocessor as u64 / shared < blocks {
            blocks = self.shared_bytes_per_multiprocessor as u64 / shared;
        }
        if threads > 0 && self.threads_per_multiprocessor as u64 / threads < blocks {
            blocks = self.threads_per_multiprocessor as u64 / threads;
        }
        blocks as u32
    }

    /// The registers that a thread can have in a block of so many threads, if so many blocks shall be on a multiprocessor.
    pub const fn registers_per_thread(&self, threads: u32, blocks: u32) -> u32 {
        let warps = if threads == 0 { 1 } else { threads.div_ceil(32) };
        let blocks = if blocks == 0 { 1 } else { blocks };
        // Handed out to warps, eight for each thread at a time.
        let fair = self.registers_per_block / (warps.saturating_mul(32).saturating_mul(blocks)) / 8 * 8;
        if fair < self.max_registers_per_thread { fair } else { self.max_registers_per_thread }
    }
}

impl ComputeCapability {
    /// Whether GPUs of this compute capability have the TMA unit, which tensor maps are for.
    pub const fn has_tensor_maps(self) -> bool {
        self.major >= 9
    }

    /// The most blocks of a cluster that every GPU of this compute capability runs together; 0 where there are no clusters. (A larger
    /// cluster, "non-portable" in the CUDA C++ Programming Guide, "Thread Block Clusters", may find no room on a GPU.)
    pub const fn blocks_per_cluster(self) -> u32 {
        if self.major >= 9 { 8 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: Limits = Limits::of(ComputeCapability::new(9, 0)).unwrap();

    #[test]
    fn every_limit_refuses_what_is_one_more() {
        let kernel = KernelFacts { block: [32, 32, 1], ..KernelFacts::new("k") };
        let full = KernelFacts { static_shared_bytes: 48 << 10, dynamic_shared_bytes: 179 << 10, ..kernel };
        assert_eq!(HOPPER.check(&full), Ok(()));
        let more = KernelFacts { dynamic_shared_bytes: (179 << 10) + 1, ..full };
        let (static_bytes, dynamic_bytes) = (48 << 10, (179 << 10) + 1);
        assert_eq!(HOPPER.check(&more), Err(Excess::Shared { static_bytes, dynamic_bytes, limit: 227 << 10 }));
        let declared = KernelFacts { static_shared_bytes: (48 << 10) + 1, ..kernel };
        assert_eq!(HOPPER.check(&declared), Err(Excess::StaticShared { bytes: (48 << 10) + 1, limit: 48 << 10 }));
        for block in [[1025, 1, 1], [33, 32, 1], [0, 1, 1], [u32::MAX; 3]] {
            let block = KernelFacts { block, ..kernel };
            assert!(matches!(HOPPER.check(&block), Err(Excess::Threads { limit: 1024, .. })), "{block:?}");
        }
        let deep = KernelFacts { block: [1, 1, 65], ..kernel };
        assert!(matches!(HOPPER.check(&deep), Err(Excess::BlockExtent { limit: [1024, 1024, 64], .. })));
        let deep = KernelFacts { stack_bytes: 512 << 10, ..kernel };
        assert_eq!(HOPPER.check(&deep), Ok(()));
        let deeper = KernelFacts { stack_bytes: (512 << 10) + 1, ..kernel };
        assert_eq!(HOPPER.check(&deeper), Err(Excess::Stack { bytes: (512 << 10) + 1, limit: 512 << 10 }));
        let huge = KernelFacts { static_shared_bytes: 1, dynamic_shared_bytes: u32::MAX, ..kernel };
        assert!(matches!(HOPPER.check(&huge), Err(Excess::Shared { .. })), "the sum does not wrap around");
    }

    #[test]
    fn grids_have_limits_of_their_own() {
        assert_eq!(HOPPER.check_grid([i32::MAX as u32, 65_535, 65_535]), Ok(()));
        for grid in [[1 << 31, 1, 1], [1, 65_536, 1], [1, 1, 65_536], [1, 0, 1]] {
            assert_eq!(HOPPER.check_grid(grid), Err(Excess::Grid { grid, limit: HOPPER.grid }));
        }
    }

    #[test]
    fn clusters_have_at_most_eight_blocks_and_grids_are_made_of_whole_ones() {
        let of = |cluster| KernelFacts { cluster: Some(cluster), ..KernelFacts::new("k") };
        for cluster in [[1, 1, 1], [8, 1, 1], [2, 2, 2]] {
            assert_eq!(HOPPER.check(&of(cluster)), Ok(()));
        }
        for cluster in [[9, 1, 1], [4, 3, 1], [0, 1, 1], [u32::MAX; 3]] {
            assert_eq!(HOPPER.check(&of(cluster)), Err(Excess::Cluster { cluster, limit: 8 }));
        }
        let ampere = Limits::of(ComputeCapability::new(8, 6)).unwrap();
        let refused = ampere.check(&of([2, 1, 1])).unwrap_err();
        assert_eq!(refused, Excess::Cluster { cluster: [2, 1, 1], limit: 0 });
        assert!(std::format!("{refused}").contains("from compute capability 9.0 on"), "{refused}");
        assert_eq!(ampere.check(&KernelFacts::new("k")), Ok(()));
        assert_eq!(of([2, 3, 1]).check_clusters([4, 9, 5]), Ok(()));
        assert_eq!(KernelFacts::new("k").check_clusters([7, 1, 1]), Ok(()));
        let (grid, cluster) = ([4, 8, 1], [2, 3, 1]);
        assert_eq!(of(cluster).check_clusters(grid), Err(Excess::GridOfClusters { grid, cluster }));
    }

    #[test]
    fn a_multiprocessor_runs_as_many_blocks_as_fit() {
        let resident = |block: [u32; 3], dynamic_shared_bytes| {
            HOPPER.resident_blocks(&KernelFacts { block, dynamic_shared_bytes, ..KernelFacts::new("k") })
        };
        assert_eq!([resident([256, 1, 1], 0), resident([32, 1, 1], 0), resident([1024, 1, 1], 0)], [8, 32, 2]);
        assert_eq!([resident([128, 1, 1], 56 << 10), resident([128, 1, 1], (56 << 10) + 1)], [4, 3]);
        assert_eq!([resident([384, 1, 1], 227 << 10), resident([384, 1, 1], 228 << 10)], [1, 0]);
    }

    #[test]
    fn registers_are_shared_by_the_warps_of_all_blocks() {
        assert_eq!(HOPPER.registers_per_thread(384, 1), 168);
        assert_eq!(HOPPER.registers_per_thread(1024, 1), 64);
        assert_eq!(HOPPER.registers_per_thread(128, 4), 128);
        assert_eq!(HOPPER.registers_per_thread(256, 1), 255);
        assert_eq!(HOPPER.registers_per_thread(33, 16), 64, "two warps");
    }

    #[test]
    fn messages_say_what_is_needed_and_what_there_is() {
        let message = |excess: Excess| std::format!("{excess}");
        let shared = message(Excess::Shared { static_bytes: 8, dynamic_bytes: 183_808, limit: 101_376 });
        assert!(shared.contains("183816 bytes") && shared.contains("101376"), "{shared}");
        assert!(message(Excess::Threads { block: [32, 33, 1], limit: 1024 }).contains("32x33x1"));
        assert!(message(Excess::Grid { grid: [1, 65_536, 1], limit: HOPPER.grid }).contains("1x65536x1"));
    }

    extern crate std;
}
