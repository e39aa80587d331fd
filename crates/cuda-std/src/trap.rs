//! The GPU's side of [`print`](crate::print): a thread writes a line, or a report and ends the grid.
//!
//! ```text
//!  print:  n = lines++  ─▶  n < LINES?  ─▶  messages[n], fence.sys, is_complete
//!  fail:   was has_failed 0?  ─ yes ▶  report, fence.sys, is_complete, fence.sys, trap
//!                             └ no ─▶  wait for the trap
//! ```
//!
//! The trap takes the GPU's context from this process. Hence the fence before it, so that the report has arrived in the host's memory.

use core::arch::asm;
use core::panic::Location;

use crate::nvptx::global;
use crate::print::{Text, Value};
use crate::print_record::{
    Channel, FILE_BYTES, LINES, Message, PrintHead, REPORT_VALUES, Report, TEXT_BYTES, VERBATIM,
};
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

/// A pointer to global memory that the host has given as a number.
///
/// # Safety
/// The address is in global memory, of which the host's page-locked memory is a part.
#[inline(always)]
unsafe fn pointer<T>(address: u64) -> *mut T {
    // SAFETY: the caller's promise.
    unsafe { global(core::ptr::with_exposed_provenance::<T>(address as usize)).cast_mut() }
}

/// Writes all of a message but its text and its end.
///
/// # Safety
/// The message can be written to, and nobody else accesses it.
#[inline(always)]
unsafe fn begin<const N: usize>(message: *mut Message, module: u64, kinds: u64, values: [u64; N]) {
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    message.module = module;
    message.block = [block_idx_x(), block_idx_y(), block_idx_z()];
    message.thread = [thread_idx_x(), thread_idx_y(), thread_idx_z()];
    message.kinds = kinds;
    for (place, value) in message.values.iter_mut().zip(&values) {
        *place = *value;
    }
}

/// Says that a message is complete, once everything else of it is in the host's memory.
///
/// # Safety
/// As for [`begin`].
#[inline(always)]
unsafe fn complete(message: *mut Message) {
    // SAFETY: a fence has no preconditions; the rest is the caller's promise.
    unsafe {
        asm!("fence.acq_rel.sys;", options(nostack, preserves_flags));
        (&raw mut (*message).is_complete).write_volatile(1);
    }
}

/// The kinds of values as memory has them.
#[inline(always)]
fn kinds<const N: usize>(values: &[Value; N]) -> u64 {
    values.iter().rev().fold(0, |all, value| all << 8 | value.kind as u64)
}

/// Writes a line, if there is room.
#[inline(always)]
pub(crate) fn print<const N: usize>(text: &'static Text, values: [Value; N]) {
    let channel = channel();
    if channel.head == 0 {
        return;
    }
    // SAFETY: the host has put the address of a head in the channel, in memory of this GPU, and that of `LINES` messages in its own. No
    // other thread gets the same number, so nobody else writes to this message; and the host reads when no kernel runs that prints, or
    // what is complete.
    unsafe {
        let head = pointer::<PrintHead>(channel.head);
        let number: u64;
        asm!(
            "atom.relaxed.gpu.global.add.u64 {number}, [{address}], 1;",
            number = out(reg64) number, address = in(reg64) &raw mut (*head).lines,
            options(nostack, preserves_flags),
        );
        if number < LINES as u64 {
            let message = pointer::<Message>(channel.messages).add(number as usize);
            begin(message, channel.module, kinds(&values), values.map(|value| value.bits));
            (*message).text_bytes = text.text.len() as u64;
            // Words that are known when the kernel is compiled: nothing is read.
            let words = (&raw mut (*message).text).cast::<u64>();
            for (index, word) in text.words.iter().enumerate() {
                if index < text.text.len().div_ceil(8) {
                    *words.add(index) = *word;
                }
            }
            complete(message);
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

/// The same with a text that is a message as it stands.
#[inline(always)]
pub(crate) fn fail_verbatim(location: &'static Location<'static>, message: &'static str) -> ! {
    end(location, message, VERBATIM, 0, 0, 0, 0)
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
    if channel.head != 0 {
        // SAFETY: the host has put the address of a head in the channel, in memory of this GPU, and that of a report in its own. Only the
        // thread that finds that none has failed writes to the report; the host reads it when it is complete.
        unsafe {
            let head = pointer::<PrintHead>(channel.head);
            let has_failed: u64;
            asm!(
                "atom.relaxed.gpu.global.exch.b64 {has_failed}, [{address}], 1;",
                has_failed = out(reg64) has_failed, address = in(reg64) &raw mut (*head).has_failed,
                options(nostack, preserves_flags),
            );
            while has_failed != 0 {
                asm!("nanosleep.u32 1000;", options(nostack, preserves_flags));
            }
            let report = pointer::<Report>(channel.report);
            let message = &raw mut (*report).message;
            begin(message, channel.module, kinds, [first, second, third, fourth]);
            (*message).text_bytes = text.len() as u64;
            copy(text.as_ptr(), text.len().min(TEXT_BYTES), (&raw mut (*message).text).cast());
            // A location is a constant, and constants are in global memory.
            let location = &*global(location);
            (*report).line = location.line().into();
            let file = location.file().as_bytes();
            (*report).file_bytes = file.len() as u64;
            let cut = file.len().saturating_sub(FILE_BYTES);
            copy(file.as_ptr().add(cut), file.len() - cut, (&raw mut (*report).file).cast());
            complete(message);
            // Until that has arrived.
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
