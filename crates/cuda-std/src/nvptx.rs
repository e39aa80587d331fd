//! The parts of this crate that exist on the GPU only: the panic handler, and the markers that the link step replaces by casts
//! between address spaces.

/// A panic in a kernel stops the grid: the launch fails with `CUDA_ERROR_LAUNCH_FAILED`.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `trap` has no preconditions.
    unsafe { core::arch::nvptx::trap() }
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
