//! The functions of `cuda_std::math` of numbers of all magnitudes: one thread for each number, one kernel for each family.
//!
//! ```text
//!  bits │ 0 1 2 … 255 │ 256 … 511 │ … │        any 32 bits: all exponents are equally likely, and one
//!       │             │           │            number in 128 is an infinity or a NaN
//!  near │                                      magnitudes from 0.001 to 100, where the functions have most to do
//!  exp, exp2, exp10, …: an array as long for each function
//! ```
//!
//! The functions are Rust of operations that IEEE 754 defines, so that `agreement` has to find the same bits on a GPU and on the CPU,
//! for each number. Inputs are words, not numbers, because nothing may change a NaN on its way. Every other thread takes its number from
//! `near` instead: few of any 32 bits are an argument that, for instance, `acos` has a value for.
//!
//! `further.rs` has functions of other kinds, those of f64, and the approximations of `math::fast`, which `agreement` compares within their bounds.

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The blocks for so many elements. More than a grid can have are refused by the launch.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(elements: usize) -> u32 {
    u32::try_from(elements.div_ceil(256).max(1)).unwrap_or(u32::MAX)
}

/// The number that thread `i` takes.
#[inline(always)]
fn number(i: usize, bits: u32, near: f32) -> f32 {
    if i & 1 == 0 { f32::from_bits(bits) } else { near }
}

/// A kernel for functions of one number.
macro_rules! family {
    ($(#[$doc:meta])* $kernel:ident: $($function:ident)*) => {
        $(#[$doc])*
        #[kernel(
            block = 256,
            grid = blocks(bits.len()),
            requires(near.len() == bits.len(), $($function.len() == bits.len(),)*)
        )]
        pub fn $kernel(
            bits: GlobalSlice<'_, u32>,
            near: GlobalSlice<'_, f32>,
            $($function: GlobalSliceMut<'_, f32>,)*
        ) {
            let i = thread::index_1d();
            if i < bits.len() {
                // SAFETY: i < bits.len(), and the launch has checked that the others are as long; no other thread has this i.
                unsafe {
                    let x = number(i, bits.get_unchecked(i), near.get_unchecked(i));
                    $($function.set_unchecked(i, math::$function(x));)*
                }
            }
        }
    };
}

family! {
    /// Powers of e, 2 and 10.
    exponentials: exp exp2 exp10 expm1
}

family! {
    /// Logarithms.
    logarithms: log log2 log10 log1p
}

family! {
    /// Square and cube roots, and one over them.
    roots: sqrt rsqrt cbrt rcbrt
}

family! {
    /// Sine, cosine, tangent.
    trigonometric: sin cos tan sinpi cospi
}

family! {
    /// Their inverses.
    arcs: asin acos atan
}

family! {
    /// Hyperbolic functions and their inverses.
    hyperbolic: sinh cosh tanh asinh acosh atanh
}

family! {
    /// Error and gamma functions.
    integrals: erf erfc tgamma lgamma
}

family! {
    /// The integers next to a number.
    integers: floor ceil trunc round round_ties_even
}

/// Functions of two numbers: that of the thread, and that of the thread two after it.
#[kernel(
    block = 256,
    grid = blocks(bits.len()),
    requires(
        near.len() == bits.len(), atan2.len() == bits.len(), pow.len() == bits.len(), hypot.len() == bits.len(),
        fmod.len() == bits.len(), remainder.len() == bits.len(), min.len() == bits.len(), max.len() == bits.len(),
    )
)]
pub fn pairs(
    bits: GlobalSlice<'_, u32>,
    near: GlobalSlice<'_, f32>,
    atan2: GlobalSliceMut<'_, f32>,
    pow: GlobalSliceMut<'_, f32>,
    hypot: GlobalSliceMut<'_, f32>,
    fmod: GlobalSliceMut<'_, f32>,
    remainder: GlobalSliceMut<'_, f32>,
    min: GlobalSliceMut<'_, f32>,
    max: GlobalSliceMut<'_, f32>,
) {
    let i = thread::index_1d();
    if i < bits.len() {
        let next = if i + 2 < bits.len() { i + 2 } else { i };
        // SAFETY: both are below bits.len(), and the launch has checked that the others are as long; no other thread has this i.
        unsafe {
            let x = number(i, bits.get_unchecked(i), near.get_unchecked(i));
            let y = number(next, bits.get_unchecked(next), near.get_unchecked(next));
            atan2.set_unchecked(i, math::atan2(x, y));
            pow.set_unchecked(i, math::pow(x, y));
            hypot.set_unchecked(i, math::hypot(x, y));
            fmod.set_unchecked(i, math::fmod(x, y));
            remainder.set_unchecked(i, math::remainder(x, y));
            min.set_unchecked(i, math::min(x, y));
            max.set_unchecked(i, math::max(x, y));
        }
    }
}

mod further;
pub use further::*;

mod speed;
pub use speed::*;

#[cfg(not(target_arch = "nvptx64"))]
mod operation;
#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Functions;
