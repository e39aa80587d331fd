//! Kernels with an injected fault each. The tools that look for faults are tried on them first: a tool that does not report these faults
//! proves nothing by not reporting others. They compute nothing that anybody wants, and no safe code launches them.
//!
//! | kernel | fault | reported by |
//! |---|---|---|
//! | [`planted_read_out_of_bounds`] | a read far beyond the end of an array | `memcheck`, the executor |
//! | [`planted_race_in_shared_memory`] | no barrier between a write and another warp's read | `racecheck`, the executor |
//! | [`planted_barriers_in_both_branches`] | a barrier that each warp calls from another place | `synccheck` |
//! | [`planted_read_unwritten`] | a read of memory that nobody has written | `initcheck` |
//! | [`planted_trap`] | a thread that gives up, which ends the GPU's context | the driver, the executor |
//! | [`planted_endless`] | threads that never end | a time limit, and nothing else |
//!
//! The first four harm nothing else on the GPU: nothing is written where it should not be, and no thread waits for ever.
//!
//! All have the same parameters: `x`, of which thread `i` reads element `i`, and `y`, of which it writes this element.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

/// The threads of a grid.
pub const THREADS: usize = 192;

/// The threads of a block.
const BLOCK: usize = 64;

/// The thread whose fault it is, where that is not all of them.
const CULPRIT: usize = 5;

/// How far beyond the end of `x` [`planted_read_out_of_bounds`] reads, in elements: far enough for no other array to be there,
/// and not so far that the GPU would have no memory there, and stop.
const BEYOND: usize = 1 << 16;

/// One thread reads beyond the end of `x`.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_read_out_of_bounds(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    // SAFETY: not at all for one thread; that is the fault. Nobody else has this i.
    unsafe { y.set_unchecked(i, x.get_unchecked(if i == CULPRIT { THREADS + BEYOND } else { i })) }
}

/// What another warp writes to shared memory is read without a barrier in between.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_race_in_shared_memory(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static LINE: Shared<[f32; BLOCK]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: in bounds. The barrier that should separate the write from the read is not there; that is the fault.
    unsafe {
        LINE.write(t, x.get_unchecked(i));
        y.set_unchecked(i, LINE.read(BLOCK - 1 - t));
    }
}

/// The two warps of a block wait at different calls of the barrier. To the hardware and to the executor these are one barrier, and
/// no thread waits for ever; the tool wants one call for the whole block, as the rules for `__syncthreads()` have it.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_barriers_in_both_branches(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static LINE: Shared<[f32; BLOCK]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: in bounds. All threads reach a barrier, though not the same call of it; that is the fault.
    unsafe {
        if t < BLOCK / 2 {
            LINE.write(t, x.get_unchecked(i));
            thread::sync_threads();
            y.set_unchecked(i, LINE.read(BLOCK - 1 - t));
        } else {
            LINE.write(t, -x.get_unchecked(i));
            thread::sync_threads();
            y.set_unchecked(i, -LINE.read(BLOCK - 1 - t));
        }
    }
}

/// Copies `x`, to which nobody has written.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_read_unwritten(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    // SAFETY: in bounds. Nobody else has this i.
    unsafe { y.set_unchecked(i, x.get_unchecked(i)) }
}

/// One thread gives up.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_trap(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    if i == CULPRIT {
        trap();
    }
    // SAFETY: in bounds. Nobody else has this i.
    unsafe { y.set_unchecked(i, x.get_unchecked(i)) }
}

/// No thread ends.
#[kernel(block = 64, requires(x.len() == THREADS, y.len() == THREADS))]
pub fn planted_endless(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    // SAFETY: in bounds. Nobody else has this i.
    unsafe { y.set_unchecked(i, x.get_unchecked(i)) }
    loop {
        core::hint::spin_loop();
    }
}

/// Ends the grid, as a panic would.
fn trap() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: ends the grid, whatever its threads are doing; touches no memory.
    unsafe {
        core::arch::asm!("trap;", options(nomem, nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    panic!("this thread gives up");
}

/// The grid of all of them: as many blocks as there are threads for. None has a grid of its own, so that nobody launches it by
/// mistake.
#[cfg(not(target_arch = "nvptx64"))]
pub const GRID: Dim3 = Dim3::new((THREADS / BLOCK) as u32, 1, 1);
