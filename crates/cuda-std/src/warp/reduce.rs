//! What all lanes of a warp have together: their sum, the smallest of their numbers, the bits that all of them have.

#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::WarpOperation;

/// LLVM's intrinsics, as those of the module above.
#[cfg(target_arch = "nvptx64")]
mod intrinsic {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.redux.sync.add"]
        pub(super) fn add(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.min"]
        pub(super) fn min_i32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.umin"]
        pub(super) fn min_u32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.max"]
        pub(super) fn max_i32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.umax"]
        pub(super) fn max_u32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.and"]
        pub(super) fn and(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.or"]
        pub(super) fn or(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.xor"]
        pub(super) fn xor(value: u32, mask: u32) -> u32;
    }
}

mod of_32_bits {
    /// A whole number of 32 bits.
    pub trait Whole: Copy {
        const IS_SIGNED: bool;
        fn to_bits(self) -> u32;
        fn from_bits(bits: u32) -> Self;
    }

    impl Whole for u32 {
        const IS_SIGNED: bool = false;
        #[inline(always)]
        fn to_bits(self) -> u32 {
            self
        }
        #[inline(always)]
        fn from_bits(bits: u32) -> Self {
            bits
        }
    }

    impl Whole for i32 {
        const IS_SIGNED: bool = true;
        #[inline(always)]
        fn to_bits(self) -> u32 {
            self.cast_unsigned()
        }
        #[inline(always)]
        fn from_bits(bits: u32) -> Self {
            bits.cast_signed()
        }
    }
}

/// What lanes of a warp can reduce by one instruction: [`u32`] and [`i32`].
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// /// How far the numbers of a warp are apart.
/// ///
/// /// # Safety
/// /// All lanes come here together.
/// unsafe fn range<T: warp::Reduced + core::ops::Sub<Output = T>>(x: T) -> T {
///     // SAFETY: the caller's promise.
///     unsafe { warp::reduce_max(warp::ALL_LANES, x) - warp::reduce_min(warp::ALL_LANES, x) }
/// }
/// // SAFETY: all lanes come here together.
/// assert_eq!(run(32, || unsafe { range(warp::lane_id() as i32 * 3 - 50) }), [93; 32]);
/// ```
pub trait Reduced: of_32_bits::Whole {}

impl Reduced for u32 {}
impl Reduced for i32 {}

/// Stamps reductions: the name, the operation (of unsigned, and of signed numbers), an example.
macro_rules! reductions {
    ($($name:ident, $what:literal, $opcode:literal, ($unsigned:ident, $of_unsigned:ident), ($signed:ident, $of_signed:ident),
        $value:literal => $result:literal;)*) => { $(
        #[doc = $what]
        ///
        #[doc = concat!("`redux.sync.", $opcode, "`, from compute capability 8.0 on. All lanes in `mask` have the result.")]
        ///
        /// ```
        /// # use tilewright_cuda_std::{examples::run, warp};
        /// // SAFETY: all lanes come here together.
        #[doc = concat!("let results = run(32, || unsafe { warp::", stringify!($name), "(warp::ALL_LANES, ", $value, ") });")]
        #[doc = concat!("assert_eq!(results, [", $result, "; 32]);")]
        /// ```
        ///
        /// # Safety
        /// `mask` names the calling lane, and every lane that it names and that has not returned calls this function with the same mask and
        /// a value of the same type, if the result depends on that. (The executor on the CPU reports it if not.)
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Reduced>(mask: u32, value: T) -> T {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: the caller's promise is the instruction's condition.
            let bits = unsafe {
                match T::IS_SIGNED {
                    false => intrinsic::$unsigned(value.to_bits(), mask),
                    true => intrinsic::$signed(value.to_bits(), mask),
                }
            };
            #[cfg(not(target_arch = "nvptx64"))]
            let bits = {
                let operation = if T::IS_SIGNED { WarpOperation::$of_signed } else { WarpOperation::$of_unsigned };
                crate::executor::reduce(operation, mask, value.to_bits())
            };
            T::from_bits(bits)
        }
    )* };
}

reductions! {
    reduce_add, "The sum of the values of all lanes in `mask` that have not returned, without what is beyond 32 bits.", "add",
        (add, ReduceAdd), (add, ReduceAdd), "warp::lane_id()" => "496";
    reduce_min, "The smallest of the values of all lanes in `mask` that have not returned.", "min",
        (min_u32, ReduceMinU32), (min_i32, ReduceMinI32), "5 - warp::lane_id() as i32" => "-26";
    reduce_max, "The largest of the values of all lanes in `mask` that have not returned.", "max",
        (max_u32, ReduceMaxU32), (max_i32, ReduceMaxI32), "5 - warp::lane_id() as i32" => "5";
    reduce_and, "The bits that the values of all lanes in `mask` have that have not returned.", "and",
        (and, ReduceAnd), (and, ReduceAnd), "!warp::lane_id()" => "!31";
    reduce_or, "The bits that any of the values of the lanes in `mask` has that have not returned.", "or",
        (or, ReduceOr), (or, ReduceOr), "1 << warp::lane_id()" => "u32::MAX";
    reduce_xor, "The bits that an odd number of the values of the lanes in `mask` have that have not returned.", "xor",
        (xor, ReduceXor), (xor, ReduceXor), "warp::lane_id() & 16 | u32::from(warp::lane_id() == 9)" => "1";
}
