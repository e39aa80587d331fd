//! The exported `dlsym`: who looks up a function of cuBLAS that this library stands in for gets the one here. Everything else is the loader's.
//!
//! ```text
//!  dlsym(handle, name) ── ours? ── yes ─► the address of the function here
//!                            └── no ──► jump to the loader's dlsym, with the caller's arguments and return address:
//!                                       RTLD_NEXT and RTLD_DEFAULT mean places that the loader finds by the latter
//! ```
//!
//! It runs before anything else of the process, and in threads that are about to end, so it allocates nothing and cannot panic.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use crate::exports::ORIGINALS;
use crate::loader::{DLSYM, WAS_LOOKED_UP, find_dlsym, symbol};

/// The address of the function here, if a name is that of one, and the handle's library has what it stands in for; null otherwise, with the loader's
/// `dlsym` found.
///
/// # Safety
/// The arguments are those of `dlsym`.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    find_dlsym();
    // Places to begin are for the loader: in the order of libraries, this one is before cuBLAS if it was loaded so.
    if name.is_null() || handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT {
        return ptr::null_mut();
    }
    // SAFETY: a string.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"cublas") {
        return ptr::null_mut();
    }
    let Some(original) = ORIGINALS.iter().find(|original| original.name == name) else { return ptr::null_mut() };
    // SAFETY: the handle is `dlopen`'s, as the caller promises.
    let found = unsafe { symbol(handle, name) };
    if found.is_null() || found == original.ours() || !original.adopt(found) {
        return ptr::null_mut();
    }
    WAS_LOOKED_UP.store(true, Ordering::Relaxed);
    original.ours()
}

/// `dlsym`.
///
/// # Safety
/// As for the loader's.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        // The stack is at a multiple of 16 for a call: 8 for the return address, 16 for the arguments.
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {dlsym}]",
        choose = sym choose,
        dlsym = sym DLSYM,
    )
}

/// `dlsym`.
///
/// # Safety
/// As for the loader's.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {choose}",
        "mov x9, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x9, 2f",
        "mov x0, x9",
        "ret",
        "2:",
        "adrp x16, {dlsym}",
        "ldr x16, [x16, :lo12:{dlsym}]",
        "br x16",
        choose = sym choose,
        dlsym = sym DLSYM,
    )
}
