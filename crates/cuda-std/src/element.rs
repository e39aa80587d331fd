//! The types that global and shared memory can hold: numbers of 1, 2, 4 or 8 bytes, and structs of such numbers.

mod floats;
pub(crate) mod vector;

pub use floats::{Bf16, E4m3, E5m2, F16};

/// What an element of global or shared memory can be: a number, which a thread loads or stores in one access, or a struct of
/// elements, which it loads or stores field by field (`#[derive(Element)]`).
///
/// # Safety
/// Every bit pattern of the type's size is a value, the type has no padding, it is aligned to at most 16 bytes, and
/// [`Element::load`] and [`Element::store`] access each of its bytes, and no others.
#[diagnostic::on_unimplemented(
    message = "global and shared memory hold no `{Self}`",
    note = "they hold numbers of 1 to 8 bytes (u64 for usize, u8 for bool), `F16`, `Bf16`, `E4m3`, `E5m2`, and structs of such: \
            `#[derive(Clone, Copy, Element, KernelParam)] #[repr(C)]`; several neighbours at once are read by `get_vector_unchecked`"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// Reads the value at `source`, each number in it in one access. On the CPU the access is a relaxed atomic one, so that a
    /// kernel with a race between blocks gives one of the values written instead of undefined behaviour.
    ///
    /// # Safety
    /// `source` is aligned, and valid for reads of one element; where other threads may write to it, they do so with
    /// [`Element::store`].
    #[doc(hidden)]
    unsafe fn load(source: *const Self) -> Self;

    /// Writes `value` to `target`, each number in it in one access; atomic on the CPU, as [`Element::load`] is.
    ///
    /// # Safety
    /// `target` is aligned, and valid for writes of one element; where other threads may access it, they do so with
    /// [`Element::load`] and [`Element::store`].
    #[doc(hidden)]
    unsafe fn store(target: *mut Self, value: Self);
}

macro_rules! element {
    ($($number:ty, $bits:ty, $atomic:ident;)*) => { $(
        // SAFETY: a primitive number, all of whose bit patterns are values.
        unsafe impl Element for $number {
            #[inline(always)]
            unsafe fn load(source: *const Self) -> Self {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: the caller's promise is the pointer's validity.
                unsafe {
                    *source
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    use core::sync::atomic::{$atomic, Ordering};
                    // SAFETY: the pointer is valid and aligned, the number and its bits have the same layout, and all
                    // concurrent accesses are atomic by the caller's promise.
                    let bits = unsafe { (*source.cast::<$atomic>()).load(Ordering::Relaxed) };
                    <$number>::from_ne_bytes(bits.to_ne_bytes())
                }
            }

            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: the caller's promise is the pointer's validity.
                unsafe {
                    *target = value
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    use core::sync::atomic::{$atomic, Ordering};
                    let bits = <$bits>::from_ne_bytes(value.to_ne_bytes());
                    // SAFETY: as for `load`.
                    unsafe { (*target.cast::<$atomic>()).store(bits, Ordering::Relaxed) };
                }
            }
        }
    )* };
}

element! {
    u8, u8, AtomicU8;
    i8, u8, AtomicU8;
    u16, u16, AtomicU16;
    i16, u16, AtomicU16;
    f32, u32, AtomicU32;
    u32, u32, AtomicU32;
    i32, u32, AtomicU32;
    f64, u64, AtomicU64;
    u64, u64, AtomicU64;
    i64, u64, AtomicU64;
}
