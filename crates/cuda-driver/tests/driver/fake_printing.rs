//! What the fake driver's kernels print and report, through the channel of their module, as `cuda_std`'s code on a GPU does.
//!
//! `prints(count)` prints so many lines, by block (n, 0, 0) and thread (0, n, 0) the line "line n of {}" with the count; `panics` fails at
//! `src/lib.rs:12` with a value, in block (1, 2, 3) and thread (4, 5, 6), after a line; `traps_in_the_middle` before its report is complete.

use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::fake_faults::{Kind, made};
use crate::fake_kernels::Module;
use crate::print_record::{CHANNEL, Channel, LINES, Message, PrintHead, Report};
use crate::{
    INVALID_VALUE, NOT_FOUND, SUCCESS, check, destroyed, fake_memory, prescribed_in_context, refusal_to_destroy,
};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: *mut u64,
    bytes: *mut usize,
    module: usize,
    name: *const c_char,
) -> u32 {
    check!(prescribed_in_context("cuModuleGetGlobal_v2"));
    let (module, name) = unsafe { (&*(module as *const Module), CStr::from_ptr(name).to_str().unwrap()) };
    if name != CHANNEL || !module.has_channel() {
        return NOT_FOUND;
    }
    unsafe {
        *address = module.channel.get() as u64;
        *bytes = size_of::<Channel>();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    check!(prescribed_in_context("cuMemHostAlloc"));
    assert_eq!(flags, 3, "for all contexts, and with an address on the GPU");
    made(Kind::HostAllocation);
    unsafe { *pointer = fake_memory::allocate_on_host(bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: c_uint) -> u32 {
    check!(prescribed_in_context("cuMemHostGetDevicePointer_v2"));
    if flags != 0 {
        return INVALID_VALUE;
    }
    unsafe { *address = pointer as u64 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> u32 {
    check!(refusal_to_destroy("cuMemFreeHost"));
    fake_memory::free_on_host(pointer);
    destroyed(Kind::HostAllocation)
}

/// As a thread of a GPU does it: `bytes` of the text as it stands, and one value of kind `u32`.
fn write(message: &mut Message, module: u64, block: [u32; 3], thread: [u32; 3], text: &str, value: u32) {
    message.module = module;
    message.block = block;
    message.thread = thread;
    message.kinds = 1;
    message.values[0] = value.into();
    message.text_bytes = text.len() as u64;
    message.text[..text.len()].copy_from_slice(text.as_bytes());
}

/// # Safety
/// The addresses in the channel are valid, or zero.
pub(crate) unsafe fn print(channel: &Channel, count: u32) {
    if channel.head == 0 {
        return;
    }
    for n in 0..count {
        unsafe {
            let head = &mut *(channel.head as *mut PrintHead);
            let number = head.lines as usize;
            head.lines += 1;
            if number < LINES {
                let message = &mut *(channel.messages as *mut Message).add(number);
                assert_eq!(message.is_complete, 0, "the host has made room");
                write(message, channel.module, [n, 0, 0], [0, n, 0], &format!("line {n} of {{}}"), count);
                message.is_complete = 1;
            }
        }
    }
}

/// # Safety
/// As for [`print`].
pub(crate) unsafe fn fail(channel: &Channel, is_complete: bool) {
    if channel.head == 0 {
        return;
    }
    unsafe {
        print(channel, 1);
        let head = &mut *(channel.head as *mut PrintHead);
        assert_eq!(std::mem::replace(&mut head.has_failed, 1), 0, "nobody fails twice");
        let report = &mut *(channel.report as *mut Report);
        assert_eq!(report.message.is_complete, 0);
        write(&mut report.message, channel.module, [1, 2, 3], [4, 5, 6], "{{x}} is {}", 7);
        report.line = 12;
        let file = b"src/lib.rs";
        report.file_bytes = file.len() as u64;
        report.file[..file.len()].copy_from_slice(file);
        report.message.is_complete = is_complete.into();
    }
}
