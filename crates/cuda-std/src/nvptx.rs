//! The parts of this crate that exist on the GPU only: the panic handler, and the markers that the link step replaces by casts
//! between address spaces.

use crate::print::Value;

/// A panic in a kernel leaves a report with its place and its message, if that is a constant text, and ends the grid. The link step
/// inlines the functions of `core` that call it: then no message is ever put together in memory.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    const LEFT_OUT: &str = "(a message with values, which a GPU leaves out: `gpu_assert!` and `gpu_panic!` bring them)";
    let text = info.message().as_str().unwrap_or(LEFT_OUT);
    match info.location() {
        // SAFETY: all locations are constants that the compiler has made; the type of the reference does not say so.
        Some(location) => crate::trap::fail_verbatim(unsafe { &*core::ptr::from_ref(location).cast() }, text),
        // SAFETY: `trap` has no preconditions.
        None => unsafe { core::arch::nvptx::trap() },
    }
}

/// Stands in for the function of `core` that panics because of an index: the link step replaces its body by a call of this one. So the
/// two numbers need not be in memory.
#[cold]
#[unsafe(no_mangle)]
extern "C" fn __tilewright_panic_bounds_check(
    index: u64,
    len: u64,
    location: &'static core::panic::Location<'static>,
) -> ! {
    const TEXT: &str = "index out of bounds: the len is {} but the index is {}";
    crate::trap::fail(location, TEXT, [Value::of(len), Value::of(index)])
}

/// The same of the function that panics with the text that `Option::expect` was given.
#[cold]
#[unsafe(no_mangle)]
extern "C" fn __tilewright_expect_failed(
    text: *const u8,
    bytes: usize,
    location: &'static core::panic::Location<'static>,
) -> ! {
    // SAFETY: the function that this one stands in for is given a text as a pointer and a length. Kernels have no texts but constants: the
    // link step refuses what would be in local memory.
    let text = unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(text, bytes)) };
    crate::trap::fail_verbatim(location, text)
}

/// Never called. Two places with different values call these functions of `core`, so no compiler puts into them what all others have in
/// common.
#[unsafe(no_mangle)]
extern "C" fn __tilewright_keep_parameters(index: u64, len: u64, text: *const u8) {
    // SAFETY: a slice of nothing can be as long as one likes.
    let nothing: &[()] = unsafe { core::slice::from_raw_parts(core::ptr::dangling(), len as usize) };
    nothing[index as usize];
    // SAFETY: never called.
    let text = unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(text, len as usize)) };
    (index == 0).then_some(()).expect(text);
}

unsafe extern "C" {
    /// Not a function that exists: the link step (`cuda_builder`) replaces each call by a cast of the pointer to LLVM's
    /// address space 1 and back, from which address-space inference makes `ld.global` and `st.global` of the accesses.
    /// Rust pointers have no address space, so without the mark they would be generic `ld` and `st`.
    ///
    /// `ffi_const` lets LLVM merge, move and drop the calls until then: the result depends on the argument alone.
    #[unsafe(ffi_const)]
    fn __tilewright_address_space_global(pointer: *const u8) -> *const u8;

    /// Replaced by the link step, by a cast to address space 3 and the number that the address is there.
    #[unsafe(ffi_const)]
    fn __tilewright_address_in_shared(pointer: *const u8) -> u32;
}

/// The 32-bit address in the shared window of a pointer to shared memory, as `ldmatrix`, `cp.async` and their like take it.
///
/// # Safety
/// The pointer is to shared memory.
#[inline(always)]
pub(crate) unsafe fn shared_address<T>(pointer: *const T) -> u32 {
    // SAFETY: the link step replaces the call by a cast, which the caller vouches for.
    unsafe { __tilewright_address_in_shared(pointer.cast()) }
}

/// Tells the compiler that `pointer` points to global memory.
///
/// # Safety
/// It does.
#[inline(always)]
pub(crate) unsafe fn global<T>(pointer: *const T) -> *const T {
    // SAFETY: the link step replaces the call by the identity; the caller vouches for the address space it names.
    unsafe { __tilewright_address_space_global(pointer.cast()).cast() }
}
