//! What kernels that decompose operands notice of them on the way: whether a number is too small to be decomposed, and whether an operand may
//! *select*.
//!
//! ```text
//!  every thread                                          the block: found, the OR of all bits
//!  ┌─────────────────────────────────┐                   ┌──────────────────────────────────────────────────────────────┐
//!  │ the smallest magnitude but zero │ ─ TOO_SMALL_… ──► │ of any thread:  there are rows, columns to be computed again │
//!  │ any number that is no power of 2│ ─ OTHER_… ──────► │ of no thread:   the operand may select: look at a line of it │
//!  │ its sums                        │ ─ NOT_… ────────► └──────────────────────────────────────────────────────────────┘
//!  └─────────────────────────────────┘
//! ```
//!
//! **Too small** is what is below 2⁻¹⁰⁰ without being zero ([`decompose`](super::decompose)).
//!
//! **An operand selects** if each of its lines (rows of A, columns of B) has one number other than zero at most, and that is a power of two: identity,
//! permutations, selections of rows or columns. Then elements of the product are elements of the other operand, and shall be so to the last bit, of which
//! two parts of 11 bits do not keep all 24. So such products are computed again in fp32. That an operand does *not* select, its first number tells that is no
//! power of two, in one of some thousand that a thread has; so it is enough to look at some of them. Where all are powers of two and the product is not
//! zero, a look at one line tells (`fp32_tile`).

use blocks::reduce::Finite;
use cuda_std::hint;

/// The bit of an A with a number that is too small to be decomposed.
pub const TOO_SMALL_A: u32 = 1 << TOO_SMALL;
/// The bit of such a B.
pub const TOO_SMALL_B: u32 = TOO_SMALL_A << B;
/// The bit of an A with a number that is neither zero nor a power of two.
pub const OTHER_A: u32 = 1 << OTHER;
/// The bit of such a B.
pub const OTHER_B: u32 = OTHER_A << B;
/// The bits of A.
pub const OF_A: u32 = TOO_SMALL_A | OTHER_A;
/// The bits of B.
pub const OF_B: u32 = OF_A << B;
/// The bit of sums that are infinite or NaN.
pub const NOT_FINITE: u32 = 1 << 4;
/// The bit of sums that are not zero.
pub const NOT_ZERO: u32 = 1 << 5;
/// How many bits there are.
pub const BITS: u32 = 6;

/// Which bit of an operand says what.
const TOO_SMALL: u32 = 0;
const OTHER: u32 = 1;
/// By how much further up the bits of an operand are.
pub const A: u32 = 0;
/// See there.
pub const B: u32 = 2;

/// Whether an operand, [`A`] or [`B`], of which a block has found this may select, and it matters.
#[inline(always)]
pub fn may_select(found: u32, operand: u32) -> bool {
    found & (OTHER_A << operand | NOT_ZERO) == NOT_ZERO
}

/// Whether a number is neither zero nor a power of two.
#[inline(always)]
fn is_other(x: f32) -> bool {
    x.to_bits() & ((1 << 23) - 1) != 0
}

/// 2⁻¹⁰⁰ in the form that [`Scan`] keeps.
const SMALLEST: u32 = ((127 - 100) << 24) - 1;

/// What all powers of two, and zero, have in their lowest bits in that form, and nothing else.
const BITS_OF_POWERS: u32 = (1 << 24) - 1;

/// Twice the bits of the magnitude, less one: the order of magnitudes, but for zero, which comes last.
#[inline(always)]
fn order_of_magnitude(x: f32) -> u32 {
    x.to_bits().wrapping_mul(2).wrapping_sub(1)
}

/// Whether a number is too small to be decomposed, as a [`Scan`] has it.
#[inline(always)]
pub fn is_too_small(x: f32) -> bool {
    order_of_magnitude(x) < SMALLEST
}

/// Notices what numbers an operand has, or both have: two integer instructions for each.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The [`order_of_magnitude`] of the smallest, apart from zero.
    smallest: u32,
}

impl Scan {
    /// Nothing seen yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self { smallest: u32::MAX }
    }

    /// Takes a number into account.
    #[inline(always)]
    pub fn see(&mut self, x: f32) {
        self.smallest = self.smallest.min(order_of_magnitude(x));
    }

    /// Takes numbers into account, here rather than wherever the compiler would find it convenient: it would keep them in
    /// registers until then.
    #[inline(always)]
    pub fn scan_now<const N: usize>(&mut self, numbers: &[f32; N]) {
        for i in 0..N {
            self.see(numbers[i]);
        }
        let mut smallest = [self.smallest];
        hint::pin(&mut smallest);
        self.smallest = smallest[0];
    }

    /// The bits of one operand, [`A`] or [`B`], whose numbers these were. (Whether the smallest is a power of two costs nothing.)
    #[inline(always)]
    pub fn found_of(&self, operand: u32) -> u32 {
        let is_other = self.smallest & BITS_OF_POWERS != BITS_OF_POWERS;
        (if self.smallest < SMALLEST { TOO_SMALL_A } else { 0 } | if is_other { OTHER_A } else { 0 }) << operand
    }

    /// The bits of both, if the numbers were of either, beside what [`others`] says.
    #[inline(always)]
    pub fn found_of_both(&self, others: [bool; 2]) -> u32 {
        let bit = |is_so, bit| if is_so { bit } else { 0 };
        bit(self.smallest < SMALLEST, TOO_SMALL_A | TOO_SMALL_B) | bit(others[0], OTHER_A) | bit(others[1], OTHER_B)
    }
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether there are numbers other than zero and powers of two among some of A, and of B.
#[inline(always)]
pub fn others<const M: usize, const N: usize>(of_a: &[f32; M], of_b: &[f32; N]) -> [bool; 2] {
    [of_a.iter().any(|&x| is_other(x)), of_b.iter().any(|&x| is_other(x))]
}

/// Notices what sums are like.
#[derive(Clone, Copy)]
pub struct ScanOfSums {
    finite: Finite,
    /// The OR of the bits of all.
    bits: u32,
}

impl ScanOfSums {
    /// Nothing seen yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self { finite: Finite::new(), bits: 0 }
    }

    /// Takes a sum into account.
    #[inline(always)]
    pub fn see(&mut self, sum: f32) {
        self.finite.see(sum);
        self.bits |= sum.to_bits();
    }

    /// The bits of what has been seen.
    #[inline(always)]
    pub fn found(&self) -> u32 {
        let not_finite = if self.finite.all() { 0 } else { NOT_FINITE };
        not_finite | if self.bits << 1 == 0 { 0 } else { NOT_ZERO }
    }
}

impl Default for ScanOfSums {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test, which no GPU sees")]
    const POWER_OF_TWO: fn(i32) -> f32 = |exponent| 2f32.powi(exponent);

    fn scan(numbers: &[f32]) -> Scan {
        let mut scan = Scan::new();
        numbers.iter().for_each(|&x| scan.see(x));
        scan
    }

    /// The bits of an A with these numbers, and of a B, and whether both may have numbers that are too small.
    fn seen(numbers: &[f32]) -> [u32; 3] {
        let scan = scan(numbers);
        [scan.found_of(A), scan.found_of(B), scan.found_of_both([false; 2])]
    }

    #[test]
    fn notices_exactly_what_is_too_small() {
        let least = POWER_OF_TWO(-100);
        assert_eq!(seen(&[0.0, -0.0, 1.0, -1.0, least, -least, f32::MAX, f32::INFINITY, f32::NAN]), [0; 3]);
        for x in [f32::MIN_POSITIVE, 0.5 * least] {
            let expected = [TOO_SMALL_A, TOO_SMALL_B, TOO_SMALL_A | TOO_SMALL_B];
            assert_eq!([seen(&[1.0, x, 0.0]), seen(&[0.0, -x, 2.0])], [expected; 2], "{x:e}");
        }
        for x in [least.next_down(), 1e-44] {
            assert_eq!(seen(&[1.0, x]), [OF_A, OF_B, TOO_SMALL_A | TOO_SMALL_B], "{x:e}");
            assert!(is_too_small(x) && !is_too_small(least));
        }
    }

    #[test]
    fn notices_numbers_that_are_no_power_of_two() {
        for exponent in -100..128 {
            let power = POWER_OF_TWO(exponent);
            assert_eq!([seen(&[power, 0.0]), seen(&[-power, 1.5 * power])], [[0; 3]; 2], "2^{exponent}");
            for other in [power.next_up(), -1.5 * power] {
                assert_eq!(seen(&[0.0, other])[..2], [OTHER_A, OTHER_B], "{other:e}");
                assert_eq!(others(&[0.0, other], &[power]), [true, false], "{other:e}");
                assert_eq!(others(&[-power], &[other]), [false, true], "{other:e}");
            }
        }
        assert_eq!([seen(&[]), seen(&[0.0, -0.0])], [[0; 3]; 2]);
        assert_eq!(others(&[0.0, -0.0, 1.0], &[]), [false; 2]);
        assert_eq!(
            Scan::new().found_of_both([true, false]) | scan(&[3.0]).found_of_both([false, true]),
            OTHER_A | OTHER_B
        );
    }

    #[test]
    fn an_operand_may_select_if_it_has_nothing_else_and_there_is_a_product() {
        for (found, expected) in [
            (NOT_ZERO, [true, true]),
            (0, [false, false]),
            (NOT_ZERO | OTHER_A, [false, true]),
            (NOT_ZERO | OTHER_B | NOT_FINITE | TOO_SMALL_A, [true, false]),
        ] {
            assert_eq!([A, B].map(|operand| may_select(found, operand)), expected, "{found:b}");
        }
        let all = [TOO_SMALL_A, TOO_SMALL_B, OTHER_A, OTHER_B, NOT_FINITE, NOT_ZERO];
        assert_eq!(all.iter().sum::<u32>(), (1 << BITS) - 1);
    }

    #[test]
    fn notices_sums_that_are_not_finite_and_sums_that_are_not_zero() {
        let found = |sums: &[f32]| {
            let mut scan = ScanOfSums::new();
            sums.iter().for_each(|&sum| scan.see(sum));
            scan.found()
        };
        assert_eq!([found(&[]), found(&[0.0, -0.0])], [0; 2]);
        assert_eq!([found(&[0.0, 1e-45]), found(&[-1.0, 0.0])], [NOT_ZERO; 2]);
        assert_eq!([found(&[0.0, f32::NAN]), found(&[f32::INFINITY, 1.0])], [NOT_FINITE | NOT_ZERO; 2]);
    }
}
