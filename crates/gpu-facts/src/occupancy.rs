//! How many blocks of a kernel a multiprocessor runs at a time: NVIDIA's occupancy calculator.
//!
//! ```text
//!  registers of a multiprocessor: 64 Ki, in 4 parts             shared memory: 100 to 228 KiB
//!  ┌────────┬────────┬────────┬────────┐                        ┌──────────────┬──────────────┬─────┐
//!  │ warp 0 │ warp 1 │ warp 2 │ warp 3 │ in units of 256        │ block 0      │ block 1      │     │ in units of 128 bytes,
//!  │ warp 4 │ …      │        │        │ for each warp          │ + 1 KiB      │ + 1 KiB      │     │ with what the driver takes
//!  └────────┴────────┴────────┴────────┘                        └──────────────┴──────────────┴─────┘
//! ```
//!
//! The formula is that of `cuda_occupancy.h`, which comes with CUDA's toolkit and which Nsight Compute's calculator shows; a test
//! compares the two. As there, all of the shared memory is taken for shared memory that the GPU can set aside for it.

use crate::{ComputeCapability, Limits};

/// The threads of a warp.
const WARP: u32 = 32;

/// Registers are given to warps in such units (`cudaOccRegAllocationGranularity`).
const REGISTER_UNIT: u32 = 256;

/// Each quarter of a multiprocessor has a quarter of the registers, and warps of its own (`cudaOccSubPartitionsPerMultiprocessor`).
const QUARTERS: u32 = 4;

/// Shared memory is given to blocks in such units, in bytes (`cudaOccSMemAllocationGranularity`).
const SHARED_UNIT: u64 = 128;

/// What a block of a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockNeeds {
    /// Its threads.
    pub threads: u32,
    /// The registers of each thread, as `ptxas` tells them.
    pub registers: u32,
    /// Its shared memory, static and dynamic, in bytes, without what the driver adds.
    pub shared_bytes: u64,
    /// The barriers that it uses (`bar.sync` and others, not `mbarrier`), as `ptxas` tells them.
    pub barriers: u32,
}

/// How many blocks and warps a multiprocessor runs at a time, and what limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Occupancy {
    /// The blocks; 0 for a kernel that cannot be launched.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// The warps that a multiprocessor can have.
    pub most_warps: u32,
    /// The registers that each block takes, with what rounding adds.
    pub registers_per_block: u32,
    /// The shared memory that each block takes, in bytes, with what rounding and the driver add.
    pub shared_bytes_per_block: u64,
    /// The blocks that there would be if nothing else were short.
    pub blocks_by: BlocksBy,
}

/// The blocks that each thing which a multiprocessor has leaves room for. `None` where nothing of it is used, or it is no limit on such a
/// GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlocksBy {
    /// Threads, in whole warps.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// Registers.
    pub registers: Option<u32>,
    /// Shared memory.
    pub shared: Option<u32>,
    /// Barriers, of which blocks have a limited number from compute capability 9.0 on.
    pub barriers: Option<u32>,
}

impl Occupancy {
    /// The occupancy on GPUs of a compute capability; `None` for one that the table of [`Limits`] does not have.
    pub fn of(capability: ComputeCapability, needs: &BlockNeeds) -> Option<Self> {
        let limits = Limits::of(capability)?;
        let warps = needs.threads.div_ceil(WARP).max(1);
        let most_warps = limits.threads_per_multiprocessor / WARP;

        let of_warp = needs.registers.saturating_mul(WARP).next_multiple_of(REGISTER_UNIT);
        let registers_per_block = of_warp.saturating_mul(warps);
        // A launch is checked as if each quarter had as many warps of the block as the fullest.
        let assumed = of_warp.saturating_mul(warps.next_multiple_of(QUARTERS));
        let registers = match of_warp {
            0 => None,
            _ if assumed > limits.registers_per_block || needs.registers > limits.max_registers_per_thread => Some(0),
            _ => Some(limits.registers_per_block / QUARTERS / of_warp * QUARTERS / warps),
        };

        let shared_bytes_per_block =
            (needs.shared_bytes + u64::from(limits.reserved_shared_bytes)).next_multiple_of(SHARED_UNIT);
        let shared = match u64::from(limits.shared_bytes_per_multiprocessor).checked_div(shared_bytes_per_block) {
            _ if needs.shared_bytes > u64::from(limits.shared_bytes) => Some(0),
            blocks => blocks.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)),
        };

        let blocks_by = BlocksBy {
            threads: if needs.threads > limits.threads_per_block { 0 } else { most_warps / warps },
            blocks: limits.blocks_per_multiprocessor,
            registers,
            shared,
            barriers: capability
                .barriers_per_block_slot()
                .and_then(|each| (limits.blocks_per_multiprocessor * each).checked_div(needs.barriers)),
        };
        let blocks = blocks_by.each().filter_map(|(_, blocks)| blocks).min().unwrap_or(0);
        Some(Self { blocks, warps: blocks * warps, most_warps, registers_per_block, shared_bytes_per_block, blocks_by })
    }

    /// What there would have to be more of, or what the kernel would have to use less of, for more blocks: `registers`, `shared memory`.
    pub fn limited_by(&self) -> impl Iterator<Item = &'static str> + use<> {
        let blocks = self.blocks;
        self.blocks_by.each().filter(move |(_, limit)| *limit == Some(blocks)).map(|(what, _)| what)
    }
}

impl BlocksBy {
    /// Each, by name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, Option<u32>)> + use<> {
        [
            ("threads", Some(self.threads)),
            ("blocks", Some(self.blocks)),
            ("registers", self.registers),
            ("shared memory", self.shared),
            ("barriers", self.barriers),
        ]
        .into_iter()
    }
}

impl ComputeCapability {
    /// The barriers of a multiprocessor for each block that it can have (`cudaOccMaxBlocksPerSMBlockBarrierLimit`); `None` where they are
    /// no limit.
    const fn barriers_per_block_slot(self) -> Option<u32> {
        match self.major {
            9 | 10 => Some(2),
            11 | 12 => Some(1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `cuda_occupancy.h` says: `tests/occupancy.c` has printed it.
    const TABLE: &str = include_str!("../tests/occupancy.txt");

    #[test]
    fn it_is_that_of_the_occupancy_calculator() {
        let mut rows = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut numbers = line.split(' ').map(|number| number.parse::<u32>().unwrap());
            let [major, minor, threads, registers, shared, barriers, blocks, factors] =
                core::array::from_fn(|_| numbers.next().unwrap());
            let needs = BlockNeeds { threads, registers, shared_bytes: shared.into(), barriers };
            let occupancy = Occupancy::of(ComputeCapability::new(major, minor), &needs).unwrap();
            // The bits of `cudaOccLimitingFactor`.
            let bit = |what: &str| match what {
                "threads" => 1,
                "registers" => 2,
                "shared memory" => 4,
                "blocks" => 8,
                "barriers" => 16,
                other => unreachable!("{other}"),
            };
            let found = occupancy.limited_by().map(bit).sum::<u32>();
            assert_eq!(occupancy.blocks, blocks, "{line}: {occupancy:?}");
            // The header compares with the barriers last, and then still names what was short before.
            let expected = if factors & 16 == 0 { factors } else { factors & found | 16 };
            assert_eq!(found, expected, "{line}: {occupancy:?}");
            assert_eq!(occupancy.warps, blocks * threads.div_ceil(32));
            rows += 1;
        }
        assert!(rows > 1400, "{rows}");
    }

    #[test]
    fn what_limits_is_named() {
        let hopper = ComputeCapability::new(9, 0);
        let needs = |threads, registers, shared_bytes| BlockNeeds { threads, registers, shared_bytes, barriers: 1 };
        let limited = |needs: &BlockNeeds| {
            let mut by = Occupancy::of(hopper, needs).unwrap().limited_by();
            (by.next(), by.next())
        };
        assert_eq!(limited(&needs(256, 33, 0)), (Some("registers"), None), "33 registers are 40: 6 blocks, not 8");
        assert_eq!(limited(&needs(128, 32, 60_000)), (Some("shared memory"), None));
        assert_eq!(limited(&needs(64, 32, 0)), (Some("threads"), Some("blocks")));
        assert_eq!(Occupancy::of(ComputeCapability::new(7, 5), &needs(32, 32, 0)), None);
        assert_eq!(Occupancy::of(hopper, &needs(1024, 72, 0)).unwrap().blocks, 0, "no launch has so many registers");
    }
}
