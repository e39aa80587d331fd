//! Several neighbouring elements in one access: what PTX calls a vector, whatever the elements are.
//!
//! | bytes | instruction |
//! |---|---|
//! | 2, 4 | `ld.b16`, `ld.b32` |
//! | 8 | `ld.v2.b32`, or `ld.b64` of an element that is aligned to 8 |
//! | 16 | `ld.v4.b32`, or `ld.v2.b64` of elements that are aligned to 8 |
//!
//! and likewise `st`.

use super::Element;

/// The bytes of `N` elements, to which their address has to be aligned. Does not compile unless they can be one access.
pub(crate) const fn vector_bytes<T: Element, const N: usize>() -> usize {
    const {
        assert!(matches!(size_of::<[T; N]>(), 2 | 4 | 8 | 16), "a vector of elements has 2, 4, 8 or 16 bytes");
        size_of::<[T; N]>()
    }
}

/// Defines the accesses to one kind of memory.
#[cfg(target_arch = "nvptx64")]
macro_rules! accesses {
    ($space:literal, $load:ident, $store:ident, ($address:ty), $register:ident, ($($options:ident),*)) => {
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
// either: they may not move across a barrier.
#[cfg(target_arch = "nvptx64")]
accesses!("global", load_global, store_global, (*const T), reg64, (pure, readonly, nostack, preserves_flags));
#[cfg(target_arch = "nvptx64")]
accesses!("shared", load_shared, store_shared, (u32), reg32, (readonly, nostack, preserves_flags));
