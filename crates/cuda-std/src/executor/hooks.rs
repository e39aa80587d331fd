//! The CPU side of the functions that kernels call: on a GPU each is an instruction or two, here it is a function of the executor.
//! The functions that stand in an inner loop do nothing but check an index and load or
//! store; everything else is out of line. Here are positions and global memory; shared memory has a module of its own.

mod shared;

use core::panic::Location;
use std::string::String;

use super::context::{LANES, current, try_current};
use super::fault::FaultKind;
use super::steps::StepKind;
use crate::Dim3;

pub(crate) use shared::*;

// Positions.

#[inline(always)]
#[track_caller]
pub(crate) fn thread_idx() -> Dim3 {
    current().thread().index
}

#[inline(always)]
#[track_caller]
pub(crate) fn block_idx() -> Dim3 {
    current().block.get()
}

#[inline(always)]
#[track_caller]
pub(crate) fn block_dim() -> Dim3 {
    current().block_dim
}

#[inline(always)]
#[track_caller]
pub(crate) fn grid_dim() -> Dim3 {
    current().grid
}

#[inline(always)]
#[track_caller]
pub(crate) fn lane() -> u32 {
    (current().current.get() % LANES) as u32
}

/// What this thread's clock says. Each reading is one more.
#[inline(always)]
#[track_caller]
pub(crate) fn clock() -> u64 {
    current().note_step(StepKind::Clock, Location::caller(), |note, _| note);
    let clock = &current().details().clock;
    clock.replace(clock.get() + 1)
}

// Global memory.

/// Whether a kernel runs on this OS thread.
#[inline(always)]
pub(crate) fn is_in_kernel() -> bool {
    try_current().is_some()
}

/// Panics: a view is accessed where no kernel runs.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn view_outside_of_a_kernel() -> ! {
    panic!(
        "a view can only be read or written inside a kernel: its memory may be a GPU's, and no kernel is running on this \
         thread; on the host, use what the view was made of"
    )
}

/// Ends the launch: an access to `count` elements from `index` of a view that begins at `base` and has `len`.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn out_of_bounds<T>(base: *const T, len: usize, index: usize, count: usize) -> ! {
    global_fault(base, len, |view, first| FaultKind::OutOfBounds { view, first, index, count, len })
}

/// Ends the launch: an access of `bytes` bytes at element `index` of a view that begins at `base` and has `len`, at an address
/// that is not a multiple of `bytes`.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn misaligned<T>(base: *const T, len: usize, index: usize, bytes: usize) -> ! {
    global_fault(base, len, |view, first| FaultKind::Misaligned { view, first, index, bytes })
}

/// Ends the launch with a report that names the view among the kernel's parameters which the accessed one is, or is a part of,
/// and the element where the part begins.
#[track_caller]
fn global_fault<T>(base: *const T, len: usize, kind: impl FnOnce(Option<String>, usize) -> FaultKind) -> ! {
    let context = current();
    context.require_headroom();
    let kind = match context.view_of(base.addr(), len * size_of::<T>()) {
        Some((name, bytes)) => kind(Some(name), bytes / size_of::<T>()),
        None => kind(None, 0),
    };
    context.fail(Location::caller(), kind)
}
