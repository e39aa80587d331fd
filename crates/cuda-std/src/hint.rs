//! Hints to the compiler about code, not about values.

/// Returns `counter`, and keeps the loop that counts with it from being unrolled, by LLVM and by `ptxas`.
///
/// For loops whose body already does several steps at once, in an order that was chosen: unrolled further, their loads are
/// moved in between the multiplications again, and fewer of them are under way at a time. Call it once at the end of the
/// loop's body, on a counter that has no other use. It costs no instruction.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, hint};
/// let sums = run(32, || {
///     let (mut i, mut sum) = (0, 0);
///     while i < 10 {
///         sum += i;
///         i = hint::keep_rolled(i + 1);
///     }
///     sum
/// });
/// assert_eq!(sums, [45; 32]);
/// ```
#[inline(always)]
pub fn keep_rolled(counter: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        // LLVM cannot count the iterations of a loop whose counter it does not know; the directive tells ptxas.
        let mut counter = counter;
        // SAFETY: a directive and a comment, no instruction.
        unsafe {
            core::arch::asm!(
                ".pragma \"nounroll\"; // {0}",
                inout(reg32) counter,
                options(nomem, nostack, preserves_flags),
            );
        }
        counter
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        counter
    }
}

/// Has the compiler compute the values before this point, and have them in registers here. Left to itself it moves
/// arithmetic to where its results are needed, past asynchronous products that it does not know of, and then lacks registers.
///
/// ```
/// # use tilewright_cuda_std::{hint};
/// let mut products = [1.5 * 2.0, 2.5 * 2.0];
/// hint::pin(&mut products);
/// assert_eq!(products, [3.0, 5.0], "as they were");
/// ```
#[inline(always)]
pub fn pin<T: Register, const N: usize>(values: &mut [T; N]) {
    for value in values {
        value.pin();
    }
}

/// A number that fits a register of 32 bits.
///
/// ```
/// # use tilewright_cuda_std::{hint::{Register, pin}};
/// fn pinned<T: Register>(value: T) -> T {
///     let mut values = [value];
///     pin(&mut values);
///     values[0]
/// }
/// assert_eq!((pinned(1.5f32), pinned(7u32)), (1.5, 7));
/// ```
pub trait Register: Copy {
    #[doc(hidden)]
    fn pin(&mut self);
}

macro_rules! register {
    ($($number:ty),*) => { $(
        impl Register for $number {
            #[inline(always)]
            fn pin(&mut self) {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: a comment, through which the value passes unchanged.
                unsafe {
                    core::arch::asm!("// {0}", inout(reg32) *self, options(nomem, nostack, preserves_flags));
                }
            }
        }
    )* };
}

register!(f32, u32, i32);
