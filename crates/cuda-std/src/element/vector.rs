//! Several neighbouring elements in one access: what PTX calls a vector, whatever the elements are.
//!
//! | bytes | instruction |
//! |---|---|
//! | 1, 2, 4 | `ld.b8`, `ld.b16`, `ld.b32` |
//! | 8 | `ld.v2.b32`, or `ld.b64` of an element that is aligned to 8 |
//! | 16 | `ld.v4.b32`, or `ld.v2.b64` of elements that are aligned to 8 |
//!
//! and likewise `st`.

use super::Element;

/// The bytes of `N` elements, to which their address has to be aligned. Does not compile unless they can be one access: what kernels call says so
/// first, in a constant of its own, because the compiler names the line that calls the function whose constant it is.
pub(crate) const fn vector_bytes<T: Element, const N: usize>() -> usize {
    assert!(matches!(size_of::<[T; N]>(), 1 | 2 | 4 | 8 | 16), "a vector of elements has 1, 2, 4, 8 or 16 bytes");
    size_of::<[T; N]>()
}

/// Does not compile unless an element is aligned to its size, so that wherever a view begins, each is one access.
pub(crate) const fn require_aligned<T: Element>() {
    assert!(
        align_of::<T>() == size_of::<T>(),
        "an element that is loaded or stored with a hint is a number, or a struct that is aligned to its size: \
         `#[repr(C, align(8))]`"
    );
}

/// Defines loads from one kind of memory, in one way.
#[cfg(target_arch = "nvptx64")]
macro_rules! loads {
    ($space:literal, $load:ident, ($address:ty), $register:ident, ($($options:ident),*)) => {
        /// The elements at an address.
        ///
        /// # Safety
        /// They are in the memory that the name says, which is valid for reads of them, and the address is a multiple of their size
        /// together.
        #[inline(always)]
        pub(crate) unsafe fn $load<T: Element, const N: usize>(address: $address) -> [T; N] {
            use core::arch::asm;
            use core::mem::transmute_copy;
            // SAFETY: a load from where the caller promises that there is something. Elements have as many bytes as the registers, and
            // every pattern of bits is a value.
            unsafe {
                match (const { vector_bytes::<T, N>() }, const { align_of::<T>() >= 8 }) {
                    (1, _) => {
                        // A register has 16 bits at least.
                        let a: u16;
                        asm!(
                            concat!("ld.", $space, ".b8 {a}, [{address}];"),
                            a = out(reg16) a, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&(a as u8))
                    }
                    (2, _) => {
                        let a: u16;
                        asm!(
                            concat!("ld.", $space, ".b16 {a}, [{address}];"),
                            a = out(reg16) a, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&a)
                    }
                    (4, _) => {
                        let a: u32;
                        asm!(
                            concat!("ld.", $space, ".b32 {a}, [{address}];"),
                            a = out(reg32) a, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&a)
                    }
                    (8, false) => {
                        let (a, b): (u32, u32);
                        asm!(
                            concat!("ld.", $space, ".v2.b32 {{{a}, {b}}}, [{address}];"),
                            a = out(reg32) a, b = out(reg32) b, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&[a, b])
                    }
                    (8, true) => {
                        let a: u64;
                        asm!(
                            concat!("ld.", $space, ".b64 {a}, [{address}];"),
                            a = out(reg64) a, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&a)
                    }
                    (_, false) => {
                        let (a, b, c, d): (u32, u32, u32, u32);
                        asm!(
                            concat!("ld.", $space, ".v4.b32 {{{a}, {b}, {c}, {d}}}, [{address}];"),
                            a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                            address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&[a, b, c, d])
                    }
                    (_, true) => {
                        let (a, b): (u64, u64);
                        asm!(
                            concat!("ld.", $space, ".v2.b64 {{{a}, {b}}}, [{address}];"),
                            a = out(reg64) a, b = out(reg64) b, address = in($register) address,
                            options($($options),*),
                        );
                        transmute_copy(&[a, b])
                    }
                }
            }
        }

    };
}

/// Defines stores, likewise.
#[cfg(target_arch = "nvptx64")]
macro_rules! stores {
    ($space:literal, $store:ident, ($address:ty), $register:ident) => {
        /// Writes elements to an address.
        ///
        /// # Safety
        /// As for the load, and the memory is valid for writes.
        #[inline(always)]
        pub(crate) unsafe fn $store<T: Element, const N: usize>(address: $address, values: [T; N]) {
            use core::arch::asm;
            use core::mem::transmute_copy;
            // SAFETY: a store to where the caller promises that there is room. Elements have as many bytes as the registers, none of
            // them padding.
            unsafe {
                match (const { vector_bytes::<T, N>() }, const { align_of::<T>() >= 8 }) {
                    (1, _) => {
                        let a = u16::from(transmute_copy::<[T; N], u8>(&values));
                        asm!(
                            concat!("st.", $space, ".b8 [{address}], {a};"),
                            address = in($register) address, a = in(reg16) a,
                            options(nostack, preserves_flags),
                        );
                    }
                    (2, _) => {
                        let a: u16 = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".b16 [{address}], {a};"),
                            address = in($register) address, a = in(reg16) a,
                            options(nostack, preserves_flags),
                        );
                    }
                    (4, _) => {
                        let a: u32 = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".b32 [{address}], {a};"),
                            address = in($register) address, a = in(reg32) a,
                            options(nostack, preserves_flags),
                        );
                    }
                    (8, false) => {
                        let [a, b]: [u32; 2] = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".v2.b32 [{address}], {{{a}, {b}}};"),
                            address = in($register) address, a = in(reg32) a, b = in(reg32) b,
                            options(nostack, preserves_flags),
                        );
                    }
                    (8, true) => {
                        let a: u64 = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".b64 [{address}], {a};"),
                            address = in($register) address, a = in(reg64) a,
                            options(nostack, preserves_flags),
                        );
                    }
                    (_, false) => {
                        let [a, b, c, d]: [u32; 4] = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".v4.b32 [{address}], {{{a}, {b}, {c}, {d}}};"),
                            address = in($register) address,
                            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
                            options(nostack, preserves_flags),
                        );
                    }
                    (_, true) => {
                        let [a, b]: [u64; 2] = transmute_copy(&values);
                        asm!(
                            concat!("st.", $space, ".v2.b64 [{address}], {{{a}, {b}}};"),
                            address = in($register) address, a = in(reg64) a, b = in(reg64) b,
                            options(nostack, preserves_flags),
                        );
                    }
                }
            }
        }
    };
}

// Loads are `readonly` rather than `nomem`: they may not move above a store to the same memory. Those from shared memory are not `pure`
// either: they may not move across a barrier. Nor are those that fetch anew: each is one more.
#[cfg(target_arch = "nvptx64")]
loads!("shared", load_shared, (u32), reg32, (readonly, nostack, preserves_flags));
#[cfg(target_arch = "nvptx64")]
stores!("shared", store_shared, (u32), reg32);
#[cfg(target_arch = "nvptx64")]
loads!("shared::cluster", load_cluster, (u32), reg32, (readonly, nostack, preserves_flags));
#[cfg(target_arch = "nvptx64")]
stores!("shared::cluster", store_cluster, (u32), reg32);

/// Defines loads of global memory with a hint each.
#[cfg(target_arch = "nvptx64")]
macro_rules! global_loads {
    ($($space:literal, $load:ident;)*) => {
        $( loads!($space, $load, (*const T), reg64, (pure, readonly, nostack, preserves_flags)); )*
    };
}

/// Defines stores to global memory with a hint each.
#[cfg(target_arch = "nvptx64")]
macro_rules! global_stores {
    ($($space:literal, $store:ident;)*) => { $( stores!($space, $store, (*const T), reg64); )* };
}

#[cfg(target_arch = "nvptx64")]
global_loads! {
    "global", load_global;
    "global.cg", load_l2_only;
    "global.cs", load_streaming;
    "global.lu", load_last_use;
    "global.nc", load_read_only;
    "global.nc.L1::no_allocate", load_read_only_once;
    "global.L1::no_allocate", load_no_allocate;
    "global.L1::evict_first", load_evict_first;
    "global.L1::evict_last", load_evict_last;
}
#[cfg(target_arch = "nvptx64")]
loads!("global.cv", load_uncached, (*const T), reg64, (readonly, nostack, preserves_flags));

#[cfg(target_arch = "nvptx64")]
global_stores! {
    "global", store_global;
    "global.cg", store_l2_only;
    "global.cs", store_streaming;
    "global.wt", store_write_through;
    "global.L1::no_allocate", store_no_allocate;
    "global.L1::evict_first", store_evict_first;
    "global.L1::evict_last", store_evict_last;
}
