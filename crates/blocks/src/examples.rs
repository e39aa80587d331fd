//! What the examples of this documentation have in common: parts that are ready for use, in a block that [`cuda_std::examples`] runs.

use cuda_std::hopper;
use cuda_std::prelude::*;

use crate::named_barrier::{NamedBarrierIds, NamedBarriers};
use crate::ping_pong::{PingPong, THREADS};
use crate::ring::Ring;
use crate::shared_layout::SharedLayout;
use crate::staging::{Staging, StagingMemory};

/// A ring whose barriers, in the first 128 bytes of the dynamic shared memory, all threads of the block initialize together: a stage is full after
/// `producers` arrivals, and empty after `consumers`. TMA sees them, too.
pub fn ring<const STAGES: u32>(producers: u32, consumers: u32) -> Ring<STAGES> {
    const { assert!(STAGES <= 8, "the barriers of a ring of an example have 128 bytes") };
    // SAFETY: blocks of examples have as much memory. One thread initializes the barriers before the block meets.
    unsafe {
        let ring = Ring::new(Ring::<STAGES>::barriers(&mut SharedLayout::new()));
        if thread::index() == 0 {
            ring.init(producers, consumers);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        ring
    }
}

/// The alternation of two warpgroups, as the warpgroup of this thread sees it.
pub fn ping_pong() -> PingPong {
    const BARRIERS: NamedBarriers<2, THREADS> = {
        // SAFETY: the kernels of examples have no others.
        let mut ids = unsafe { NamedBarrierIds::new() };
        ids.group()
    };
    // SAFETY: all threads of a block of two warpgroups come here.
    unsafe { PingPong::new(BARRIERS, thread::thread_idx_x() / 128) }
}

/// Where a warpgroup stages results, in the 64 KiB of a block.
pub fn staging(warpgroup: u32) -> Staging {
    const MEMORY: StagingMemory = {
        // SAFETY: the kernels of examples have no others.
        let mut ids = unsafe { NamedBarrierIds::new() };
        StagingMemory::new(&mut SharedLayout::new(), &mut ids)
    };
    // SAFETY: blocks of examples have as much memory.
    unsafe { Staging::new(MEMORY, warpgroup) }
}
