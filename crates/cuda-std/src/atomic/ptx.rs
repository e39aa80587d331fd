//! The PTX of atomic loads, stores, read-modify-write operations and fences.
//!
//! A function writes its instruction (`atom.acq_rel.gpu.global.add.u32`) once for every memory order, scope and state space, and chooses by
//! a `match`. Order, scope and space of a call are constants, so the compiler keeps one of the instructions and drops the others.

use core::arch::asm;

use super::{Order, Place, Scope};
use crate::convert;

/// `$instruction!(qualifiers, …)` with the qualifiers of a scope.
macro_rules! with_scope {
    ($instruction:ident, $order:literal, $scope:expr, $($rest:tt)*) => {
        match $scope {
            Scope::Block => $instruction!(concat!($order, ".cta"), $($rest)*),
            Scope::Cluster => $instruction!(concat!($order, ".cluster"), $($rest)*),
            Scope::Device => $instruction!(concat!($order, ".gpu"), $($rest)*),
            Scope::System => $instruction!(concat!($order, ".sys"), $($rest)*),
        }
    };
}

/// Of an instruction that reads and writes.
macro_rules! with_order {
    ($instruction:ident, $order:expr, $scope:expr, $($rest:tt)*) => {{
        if $order == Order::SeqCst {
            fence(Order::SeqCst, $scope);
        }
        match $order {
            Order::Relaxed => with_scope!($instruction, ".relaxed", $scope, $($rest)*),
            Order::Acquire => with_scope!($instruction, ".acquire", $scope, $($rest)*),
            Order::Release => with_scope!($instruction, ".release", $scope, $($rest)*),
            Order::AcqRel | Order::SeqCst => with_scope!($instruction, ".acq_rel", $scope, $($rest)*),
        }
    }};
}

macro_rules! fence_instruction {
    ($qualifiers:expr,) => {
        asm!(concat!("fence", $qualifiers, ";"), options(nostack, preserves_flags))
    };
}

#[inline(always)]
pub(super) fn fence(order: Order, scope: Scope) {
    // SAFETY: a fence has no preconditions. It touches memory as far as the compiler is concerned, so that accesses stay on their side.
    unsafe {
        match order {
            Order::SeqCst => with_scope!(fence_instruction, ".sc", scope,),
            _ => with_scope!(fence_instruction, ".acq_rel", scope,),
        }
    }
}

macro_rules! load_instruction {
    ($qualifiers:expr, $space:literal, $bits:literal, $register:ident, $address:ident, $pointer:expr, $result:ident) => {
        asm!(
            concat!("ld", $qualifiers, $space, $bits, " {result}, [{address}];"),
            result = out($register) $result, address = in($address) $pointer,
            options(nostack, preserves_flags),
        )
    };
}

macro_rules! load_of {
    ($order:expr, $scope:expr, $($rest:tt)*) => {
        match $order {
            Order::Relaxed => with_scope!(load_instruction, ".relaxed", $scope, $($rest)*),
            _ => with_scope!(load_instruction, ".acquire", $scope, $($rest)*),
        }
    };
}

/// # Safety
/// There is an element of 32 bits at the place, or of 64 if `wide`.
#[inline(always)]
pub(super) unsafe fn load(place: Place, order: Order, scope: Scope, wide: bool) -> u64 {
    if order == Order::SeqCst {
        fence(order, scope);
    }
    let (narrow_result, wide_result): (u32, u64);
    // SAFETY: the caller's promise.
    unsafe {
        match (place, wide) {
            (Place::Global(at), false) => load_of!(order, scope, ".global", ".b32", reg32, reg64, at, narrow_result),
            (Place::Shared(at), false) => load_of!(order, scope, ".shared", ".b32", reg32, reg32, at, narrow_result),
            (Place::Cluster(at), false) => {
                load_of!(order, scope, ".shared::cluster", ".b32", reg32, reg32, at, narrow_result);
            }
            (Place::Global(at), true) => {
                load_of!(order, scope, ".global", ".b64", reg64, reg64, at, wide_result);
                return wide_result;
            }
            (Place::Shared(at), true) => {
                load_of!(order, scope, ".shared", ".b64", reg64, reg32, at, wide_result);
                return wide_result;
            }
            (Place::Cluster(at), true) => {
                load_of!(order, scope, ".shared::cluster", ".b64", reg64, reg32, at, wide_result);
                return wide_result;
            }
        }
    }
    narrow_result.into()
}

macro_rules! store_instruction {
    ($qualifiers:expr, $space:literal, $bits:literal, $register:ident, $address:ident, $pointer:expr, $value:expr) => {
        asm!(
            concat!("st", $qualifiers, $space, $bits, " [{address}], {value};"),
            address = in($address) $pointer, value = in($register) $value,
            options(nostack, preserves_flags),
        )
    };
}

macro_rules! store_of {
    ($order:expr, $scope:expr, $($rest:tt)*) => {
        match $order {
            Order::Release => with_scope!(store_instruction, ".release", $scope, $($rest)*),
            // Behind a fence that releases.
            _ => with_scope!(store_instruction, ".relaxed", $scope, $($rest)*),
        }
    };
}

/// # Safety
/// As for [`load`].
#[inline(always)]
pub(super) unsafe fn store(place: Place, order: Order, scope: Scope, wide: bool, bits: u64) {
    if order == Order::SeqCst {
        fence(order, scope);
    }
    let narrow = bits as u32;
    // SAFETY: the caller's promise.
    unsafe {
        match (place, wide) {
            (Place::Global(at), false) => store_of!(order, scope, ".global", ".b32", reg32, reg64, at, narrow),
            (Place::Shared(at), false) => store_of!(order, scope, ".shared", ".b32", reg32, reg32, at, narrow),
            (Place::Global(at), true) => store_of!(order, scope, ".global", ".b64", reg64, reg64, at, bits),
            (Place::Shared(at), true) => store_of!(order, scope, ".shared", ".b64", reg64, reg32, at, bits),
            (Place::Cluster(at), false) => {
                store_of!(order, scope, ".shared::cluster", ".b32", reg32, reg32, at, narrow);
            }
            (Place::Cluster(at), true) => store_of!(order, scope, ".shared::cluster", ".b64", reg64, reg32, at, bits),
        }
    }
}

macro_rules! compare_exchange_instruction {
    (
        $qualifiers:expr, $space:literal, $bits:literal, $register:ident, $address:ident, $pointer:expr, $expected:expr, $new:expr,
        $result:ident
    ) => {
        asm!(
            concat!("atom", $qualifiers, $space, ".cas", $bits, " {result}, [{address}], {expected}, {new};"),
            result = out($register) $result, address = in($address) $pointer,
            expected = in($register) $expected, new = in($register) $new,
            options(nostack, preserves_flags),
        )
    };
}

/// # Safety
/// As for [`load`].
#[inline(always)]
pub(super) unsafe fn compare_exchange(
    place: Place,
    order: Order,
    scope: Scope,
    wide: bool,
    expected: u64,
    new: u64,
) -> u64 {
    let (narrow_expected, narrow_new) = (expected as u32, new as u32);
    let (narrow_result, wide_result): (u32, u64);
    // SAFETY: the caller's promise.
    unsafe {
        match (place, wide) {
            (Place::Global(at), false) => with_order!(
                compare_exchange_instruction,
                order,
                scope,
                ".global",
                ".b32",
                reg32,
                reg64,
                at,
                narrow_expected,
                narrow_new,
                narrow_result
            ),
            (Place::Shared(at), false) => with_order!(
                compare_exchange_instruction,
                order,
                scope,
                ".shared",
                ".b32",
                reg32,
                reg32,
                at,
                narrow_expected,
                narrow_new,
                narrow_result
            ),
            (Place::Cluster(at), false) => with_order!(
                compare_exchange_instruction,
                order,
                scope,
                ".shared::cluster",
                ".b32",
                reg32,
                reg32,
                at,
                narrow_expected,
                narrow_new,
                narrow_result
            ),
            (Place::Global(at), true) => {
                with_order!(
                    compare_exchange_instruction,
                    order,
                    scope,
                    ".global",
                    ".b64",
                    reg64,
                    reg64,
                    at,
                    expected,
                    new,
                    wide_result
                );
                return wide_result;
            }
            (Place::Shared(at), true) => {
                with_order!(
                    compare_exchange_instruction,
                    order,
                    scope,
                    ".shared",
                    ".b64",
                    reg64,
                    reg32,
                    at,
                    expected,
                    new,
                    wide_result
                );
                return wide_result;
            }
            (Place::Cluster(at), true) => {
                with_order!(
                    compare_exchange_instruction,
                    order,
                    scope,
                    ".shared::cluster",
                    ".b64",
                    reg64,
                    reg32,
                    at,
                    expected,
                    new,
                    wide_result
                );
                return wide_result;
            }
        }
    }
    narrow_result.into()
}

macro_rules! atom_instruction {
    ($qualifiers:expr, $space:literal, $operation:literal, $register:ident, $address:ident, $pointer:expr, $value:expr, $result:ident) => {
        asm!(
            concat!("atom", $qualifiers, $space, $operation, " {result}, [{address}], {value};"),
            result = out($register) $result, address = in($address) $pointer, value = in($register) $value,
            options(nostack, preserves_flags),
        )
    };
}

macro_rules! atoms {
    ($($name:ident, $bits:ty, $register:ident, $operation:literal;)*) => { $(
        /// Returns the bits before.
        ///
        /// # Safety
        /// As for [`load`], with an element of as many bits.
        #[inline(always)]
        pub(super) unsafe fn $name(place: Place, order: Order, scope: Scope, value: $bits) -> $bits {
            let before: $bits;
            // SAFETY: the caller's promise.
            unsafe {
                match place {
                    Place::Global(at) => {
                        with_order!(atom_instruction, order, scope, ".global", $operation, $register, reg64, at, value, before);
                    }
                    Place::Shared(at) => {
                        with_order!(atom_instruction, order, scope, ".shared", $operation, $register, reg32, at, value, before);
                    }
                    Place::Cluster(at) => {
                        with_order!(
                            atom_instruction, order, scope, ".shared::cluster", $operation, $register, reg32, at, value, before
                        );
                    }
                }
            }
            before
        }
    )* };
}

atoms! {
    exchange_32, u32, reg32, ".exch.b32";
    exchange_64, u64, reg64, ".exch.b64";
    add_u32, u32, reg32, ".add.u32";
    add_u64, u64, reg64, ".add.u64";
    add_f32, u32, reg32, ".add.f32";
    add_f64, u64, reg64, ".add.f64";
    add_f16x2_near, u32, reg32, ".add.noftz.f16x2";
    add_bf16x2_near, u32, reg32, ".add.noftz.bf16x2";
    min_u32, u32, reg32, ".min.u32";
    min_i32, u32, reg32, ".min.s32";
    min_u64, u64, reg64, ".min.u64";
    min_i64, u64, reg64, ".min.s64";
    max_u32, u32, reg32, ".max.u32";
    max_i32, u32, reg32, ".max.s32";
    max_u64, u64, reg64, ".max.u64";
    max_i64, u64, reg64, ".max.s64";
    and_32, u32, reg32, ".and.b32";
    and_64, u64, reg64, ".and.b64";
    or_32, u32, reg32, ".or.b32";
    or_64, u64, reg64, ".or.b64";
    xor_32, u32, reg32, ".xor.b32";
    xor_64, u64, reg64, ".xor.b64";
}

/// Adds two pairs of 16 bits each: `near` is the instruction. In the memory of another block of the cluster an H200 makes NaN of any sum of
/// bf16 numbers, though PTX has the instruction and `ptxas` takes it: there it is a loop of compare-exchanges.
macro_rules! pairs {
    ($($name:ident, $near:ident, $sum:expr;)*) => { $(
        /// Returns the bits before.
        ///
        /// # Safety
        /// As for [`load`], with an element of as many bits.
        #[inline(always)]
        pub(super) unsafe fn $name(place: Place, order: Order, scope: Scope, value: u32) -> u32 {
            // SAFETY: the caller's promise.
            unsafe {
                let Place::Cluster(_) = place else { return $near(place, order, scope, value) };
                let mut before = load(place, Order::Relaxed, scope, false) as u32;
                loop {
                    let sum = $sum(before, value);
                    let found = compare_exchange(place, order, scope, false, before.into(), u64::from(sum)) as u32;
                    if found == before {
                        return before;
                    }
                    before = found;
                }
            }
        }
    )* };
}

pairs! {
    add_f16x2, add_f16x2_near, |a, b| {
        let ([a, c], [b, d]) = (convert::from_f16x2(a), convert::from_f16x2(b));
        convert::f16x2(a + b, c + d)
    };
    add_bf16x2, add_bf16x2_near, |a: u32, b: u32| {
        let halves = |pair: u32| [f32::from_bits(pair << 16), f32::from_bits(pair & 0xFFFF_0000)];
        let ([a, c], [b, d]) = (halves(a), halves(b));
        convert::bf16x2(a + b, c + d)
    };
}
