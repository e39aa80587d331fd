//! The GPU's side of [`print`](crate::print): a thread writes a line to the GPU's memory, or a report to the host's, and ends the grid.
//!
//! ```text
//!  print:  n = lines++  ─▶  n < LINES?  ─▶  lines[n] = text, values       the host reads `lines` and knows how many are missing
//!  fail:   was has_failed 0?  ─ yes ▶  report, fence.sys, is_complete, fence.sys, trap
//!                             └ no ─▶  wait for the trap
//! ```
//!
//! The trap takes all of the GPU's memory from this process, also from the host that would look at it. Hence the report in the host's
//! memory, and the fence before the trap, so that it has arrived there.

use core::arch::asm;
use core::panic::Location;

use crate::nvptx::global;
use crate::print::Value;
use crate::print_record::{Channel, LINES, Line, Origin, PrintHead, REPORT_VALUES, Report, TEXT_BYTES};
use crate::thread::{block_idx_x, block_idx_y, block_idx_z, thread_idx_x, thread_idx_y, thread_idx_z};

unsafe extern "C" {
    /// Made by the link step (`cuda_builder`), in the module of each kernel that uses it. The host writes to it before the first launch.
    #[link_name = "__tilewright_channel"]
    static CHANNEL: Channel;
}

/// What the host has told this module.
#[inline(always)]
fn channel() -> Channel {
    // SAFETY: the link step makes the variable, with room for this type, and zeros in it, which are a value. Nobody writes to it while a
    // kernel runs.
    unsafe { CHANNEL }
}

#[inline(always)]
fn origin(channel: &Channel) -> Origin {
    Origin {
        module: channel.module,
        block: [block_idx_x(), block_idx_y(), block_idx_z()],
        thread: [thread_idx_x(), thread_idx_y(), thread_idx_z()],
    }
}

/// The kinds of values as memory has them.
#[inline(always)]
fn kinds<const N: usize>(values: &[Value; N]) -> u64 {
    values.iter().rev().fold(0, |all, value| all << 8 | value.kind as u64)
}

/// Writes a line, if there is room.
#[inline(always)]
pub(crate) fn print<const N: usize>(text: &'static str, values: [Value; N]) {
    let channel = channel();
    if channel.prints == 0 {
        return;
    }
    let head = core::ptr::with_exposed_provenance_mut::<PrintHead>(channel.prints as usize);
    // SAFETY: the host has put the address of a head in the channel, with `LINES` lines behind it, in memory of this GPU. The number of the
    // line is one that no other thread gets, so nobody else writes to it; the host reads when no kernel runs that prints.
    unsafe {
        let head = global(head).cast_mut();
        let number: u64;
        asm!(
            "atom.relaxed.gpu.global.add.u64 {number}, [{address}], 1;",
            number = out(reg64) number, address = in(reg64) &raw mut (*head).lines,
            options(nostack, preserves_flags),
        );
        if number < LINES as u64 {
            let line = head.add(1).cast::<Line>().add(number as usize);
            (*line).origin = origin(&channel);
            (*line).text = text.as_ptr().expose_provenance() as u64;
            (*line).text_bytes = text.len() as u64;
            (*line).kinds = kinds(&values);
            for (place, value) in (*line).values.iter_mut().zip(values) {
                *place = value.bits;
            }
        }
    }
}

/// Leaves a report and ends the grid.
#[inline(always)]
pub(crate) fn fail<const N: usize>(location: &'static Location<'static>, text: &'static str, values: [Value; N]) -> ! {
    let mut bits = [0; REPORT_VALUES];
    for (bits, value) in bits.iter_mut().zip(values) {
        *bits = value.bits;
    }
    let [first, second, third, fourth] = bits;
    end(location, text, kinds(&values), first, second, third, fourth)
}

/// One function for all places that fail. What it is given fits into registers: an array would be in local memory.
#[cold]
#[inline(never)]
fn end(
    location: &'static Location<'static>,
    text: &'static str,
    kinds: u64,
    first: u64,
    second: u64,
    third: u64,
    fourth: u64,
) -> ! {
    let channel = channel();
    if channel.report != 0 {
        let head = core::ptr::with_exposed_provenance::<PrintHead>(channel.prints as usize);
        let report = core::ptr::with_exposed_provenance::<Report>(channel.report as usize);
        // SAFETY: the host has put the addresses of a head and of a report in the channel, which this GPU can access. Only the thread
        // that finds that none has failed writes to the report; the host reads it when it is complete.
        unsafe {
            let has_failed: u64;
            asm!(
                "atom.relaxed.gpu.global.exch.b64 {has_failed}, [{address}], 1;",
                has_failed = out(reg64) has_failed, address = in(reg64) &raw const (*global(head)).has_failed,
                options(nostack, preserves_flags),
            );
            while has_failed != 0 {
                asm!("nanosleep.u32 1000;", options(nostack, preserves_flags));
            }
            let report = global(report).cast_mut();
            // A location is a constant, and constants are in global memory.
            let location = &*global(location);
            (*report).origin = origin(&channel);
            (*report).line = location.line().into();
            (*report).kinds = kinds;
            (*report).values = [first, second, third, fourth];
            let file = location.file().as_bytes();
            (*report).file_bytes = file.len() as u64;
            let cut = file.len().saturating_sub(TEXT_BYTES);
            copy(file.as_ptr().add(cut), file.len() - cut, (&raw mut (*report).file).cast());
            (*report).text_bytes = text.len() as u64;
            copy(text.as_ptr(), text.len().min(TEXT_BYTES), (&raw mut (*report).text).cast());
            asm!("fence.sc.sys;", options(nostack, preserves_flags));
            (&raw mut (*report).is_complete).write_volatile(1);
            asm!("fence.sc.sys;", options(nostack, preserves_flags));
        }
    }
    // SAFETY: `trap` has no preconditions.
    unsafe { core::arch::nvptx::trap() }
}

/// # Safety
/// `source` is a constant of this many bytes, and as many can be written to `target`, which is in the host's memory.
#[inline(always)]
unsafe fn copy(source: *const u8, bytes: usize, target: *mut u8) {
    for byte in 0..bytes {
        // SAFETY: the caller's promise. Volatile, so that it does not become a call that takes generic pointers.
        unsafe { target.add(byte).write_volatile(global(source.add(byte)).read_volatile()) };
    }
}
