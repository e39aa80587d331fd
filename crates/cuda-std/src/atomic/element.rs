//! What can be an atomic element, and what the operations do to its bits.

use super::sealed::Sealed;
#[cfg(target_arch = "nvptx64")]
use super::{Order, Place, Scope, ptx};
use crate::{Element, KernelParam, Layout};

/// What an operation makes of the value before and its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
pub enum Operation {
    Exchange,
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// The bits of an element, as a register holds them.
#[doc(hidden)]
pub trait Bits: Copy {
    /// Whether they are 64.
    const WIDE: bool;

    fn widen(self) -> u64;
    fn narrow(bits: u64) -> Self;
}

impl Bits for u32 {
    const WIDE: bool = false;

    #[inline(always)]
    fn widen(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(bits: u64) -> Self {
        bits as Self
    }
}

impl Bits for u64 {
    const WIDE: bool = true;

    #[inline(always)]
    fn widen(self) -> u64 {
        self
    }

    #[inline(always)]
    fn narrow(bits: u64) -> Self {
        bits
    }
}

/// What threads can access at once: 32 or 64 bits.
#[diagnostic::on_unimplemented(
    message = "there are no atomic operations on `{Self}`",
    note = "there are on u32, i32, u64, i64, f32, f64, `F16x2` and `Bf16x2`; smaller numbers are a part of a u32, changed by `compare_exchange`"
)]
pub trait AtomicElement: Element + Sealed {
    #[doc(hidden)]
    type Bits: Bits;

    #[doc(hidden)]
    fn to_bits(self) -> Self::Bits;

    #[doc(hidden)]
    fn from_bits(bits: Self::Bits) -> Self;

    /// What the operation leaves of `before`. Shared memory and global memory treat subnormal numbers differently.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn apply(operation: Operation, before: Self::Bits, operand: Self::Bits, is_shared: bool) -> Self::Bits;

    /// # Safety
    /// The place is valid, and the operation one that the type has.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn instruction(
        place: Place,
        operation: Operation,
        order: Order,
        scope: Scope,
        operand: Self::Bits,
    ) -> Self::Bits;
}

/// What can be added to.
pub trait AtomicNumber: AtomicElement {}

/// Whole numbers.
pub trait AtomicInteger: AtomicNumber {
    #[doc(hidden)]
    fn negative(self) -> Self;
}

macro_rules! integers {
    ($($number:ty, $bits:ty, $add:ident, $min:ident, $max:ident, $and:ident, $or:ident, $xor:ident, $exchange:ident;)*) => { $(
        impl Sealed for $number {}

        impl AtomicElement for $number {
            type Bits = $bits;

            #[inline(always)]
            fn to_bits(self) -> $bits {
                self as $bits
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                bits as Self
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn apply(operation: Operation, before: $bits, operand: $bits, _is_shared: bool) -> $bits {
                let (a, b) = (before as $number, operand as $number);
                let result = match operation {
                    Operation::Exchange => b,
                    Operation::Add => a.wrapping_add(b),
                    Operation::Min => a.min(b),
                    Operation::Max => a.max(b),
                    Operation::And => a & b,
                    Operation::Or => a | b,
                    Operation::Xor => a ^ b,
                };
                result as $bits
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn instruction(
                place: Place,
                operation: Operation,
                order: Order,
                scope: Scope,
                operand: $bits,
            ) -> $bits {
                // SAFETY: the caller's promise.
                unsafe {
                    match operation {
                        Operation::Exchange => ptx::$exchange(place, order, scope, operand),
                        Operation::Add => ptx::$add(place, order, scope, operand),
                        Operation::Min => ptx::$min(place, order, scope, operand),
                        Operation::Max => ptx::$max(place, order, scope, operand),
                        Operation::And => ptx::$and(place, order, scope, operand),
                        Operation::Or => ptx::$or(place, order, scope, operand),
                        Operation::Xor => ptx::$xor(place, order, scope, operand),
                    }
                }
            }
        }

        impl AtomicNumber for $number {}

        impl AtomicInteger for $number {
            #[inline(always)]
            fn negative(self) -> Self {
                self.wrapping_neg()
            }
        }
    )* };
}

integers! {
    u32, u32, add_u32, min_u32, max_u32, and_32, or_32, xor_32, exchange_32;
    i32, u32, add_u32, min_i32, max_i32, and_32, or_32, xor_32, exchange_32;
    u64, u64, add_u64, min_u64, max_u64, and_64, or_64, xor_64, exchange_64;
    i64, u64, add_u64, min_i64, max_i64, and_64, or_64, xor_64, exchange_64;
}

/// Elements of which there are sums, and no other operations but [`Operation::Exchange`].
macro_rules! sums {
    ($($number:ty, $bits:ty, $to:expr, $from:expr, $add:ident, $exchange:ident, $sum:expr;)*) => { $(
        impl Sealed for $number {}

        impl AtomicElement for $number {
            type Bits = $bits;

            #[inline(always)]
            fn to_bits(self) -> $bits {
                $to(self)
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                $from(bits)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn apply(operation: Operation, before: $bits, operand: $bits, is_shared: bool) -> $bits {
                match operation {
                    Operation::Add => $sum(before, operand, is_shared),
                    _ => operand,
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn instruction(
                place: Place,
                operation: Operation,
                order: Order,
                scope: Scope,
                operand: $bits,
            ) -> $bits {
                // SAFETY: the caller's promise.
                unsafe {
                    match operation {
                        Operation::Add => ptx::$add(place, order, scope, operand),
                        _ => ptx::$exchange(place, order, scope, operand),
                    }
                }
            }
        }

        impl AtomicNumber for $number {}
    )* };
}

sums! {
    f32, u32, f32::to_bits, f32::from_bits, add_f32, exchange_32, add_f32;
    f64, u64, f64::to_bits, f64::from_bits, add_f64, exchange_64, add_f64;
    F16x2, u32, |pair: F16x2| pair.0, F16x2, add_f16x2, exchange_32, add_f16x2;
    Bf16x2, u32, |pair: Bf16x2| pair.0, Bf16x2, add_bf16x2, exchange_32, add_bf16x2;
}

#[cfg(not(target_arch = "nvptx64"))]
fn add_f32(before: u32, operand: u32, is_shared: bool) -> u32 {
    let kept = |x: f32| if x.is_subnormal() && !is_shared { 0.0f32.copysign(x) } else { x };
    let sum = kept(kept(f32::from_bits(before)) + kept(f32::from_bits(operand)));
    if sum.is_nan() { 0x7FFF_FFFF } else { sum.to_bits() }
}

#[cfg(not(target_arch = "nvptx64"))]
fn add_f64(before: u64, operand: u64, _is_shared: bool) -> u64 {
    let sum = f64::from_bits(before) + f64::from_bits(operand);
    if sum.is_nan() { 0x7FFF_FFFF_FFFF_FFFF } else { sum.to_bits() }
}

/// The halves of both, added one by one. `add` gives the bits of one sum.
#[cfg(not(target_arch = "nvptx64"))]
fn by_halves(before: u32, operand: u32, add: impl Fn(u16, u16) -> u16) -> u32 {
    let [low, high] = [0, 16].map(|shift| u32::from(add((before >> shift) as u16, (operand >> shift) as u16)));
    high << 16 | low
}

// A sum of two numbers of 16 bits has one rounding if it is computed in fp32: that has more than twice as many bits and two more.

#[cfg(not(target_arch = "nvptx64"))]
fn add_f16x2(before: u32, operand: u32, _is_shared: bool) -> u32 {
    by_halves(before, operand, |a, b| {
        let [a, b] = [a, b].map(|bits| half::f16::from_bits(bits).to_f32());
        let sum = half::f16::from_f32(a + b);
        if sum.is_nan() { 0x7FFF } else { sum.to_bits() }
    })
}

#[cfg(not(target_arch = "nvptx64"))]
fn add_bf16x2(before: u32, operand: u32, _is_shared: bool) -> u32 {
    by_halves(before, operand, |a, b| {
        let [a, b] = [a, b].map(|bits| half::bf16::from_bits(bits).to_f32());
        let sum = half::bf16::from_f32(a + b);
        if sum.is_nan() { 0x7FFF } else { sum.to_bits() }
    })
}

macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name(pub u32);

        // SAFETY: 4 bytes, all of whose bit patterns are values.
        unsafe impl Element for $name {
            #[inline(always)]
            unsafe fn load(source: *const Self) -> Self {
                // SAFETY: the caller's promise; the same layout.
                Self(unsafe { u32::load(source.cast()) })
            }

            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                // SAFETY: the caller's promise; the same layout.
                unsafe { u32::store(target.cast(), value.0) }
            }
        }

        // SAFETY: 4 bytes: the same on both sides, and no view.
        unsafe impl KernelParam for $name {
            const LAYOUT: u64 = Layout::new(stringify!($name)).fingerprint();

            #[cfg(not(target_arch = "nvptx64"))]
            const HAS_VIEWS: bool = false;

            #[cfg(not(target_arch = "nvptx64"))]
            fn visit_views(&self, _name: crate::ViewName<'_>, _visit: &mut dyn FnMut(crate::View<'_>)) {}
        }
    )* };
}

pairs! {
    /// Two fp16 numbers, the first in the lower half: what [`convert::f16x2`](crate::convert::f16x2) makes.
    F16x2;
    /// Two bf16 numbers, the first in the lower half: what [`convert::bf16x2`](crate::convert::bf16x2) makes.
    Bf16x2;
}
