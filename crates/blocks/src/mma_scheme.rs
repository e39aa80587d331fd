//! How tensor cores multiply K-major operands of fp32 or of bf16, by `mma.sync`: what a lane makes of the words that `ldmatrix` gives it,
//! and the products that follow.
//!
//! | scheme | element | a step of 16 words | products of tensor cores for 16 words | error of a sum |
//! |---|---|---|---|---|
//! | [`ThreeTf32`] | fp32 | k = 16 | 6 TF32 of k = 8 | that of fp32 sums ([`decompose`](crate::decompose)) |
//! | [`Bf16Products`] | bf16, kept as words of two | k = 32 | 2 bf16 of k = 16 | operands exact, sums cut off at fp32 |
//!
//! **Promotion.** Tensor cores cut off the sums that they keep ([`cuda_std::mma`]), so long ones are biased toward zero by about 2⁻²⁴ of their
//! size for each product. [`ThreeTf32`] has them sum up k = 16 from zero, and adds that to the accumulators by ordinary additions, rounded
//! to nearest. To bf16 results, of 8 bits, the bias makes no difference.
//!
//! **What [`ThreeTf32`] cannot decompose.** An operand that is not finite, or of magnitude 2¹¹⁵ or more, makes every accumulator infinite or
//! NaN that it goes into: a kernel looks at them at the end, and computes again what is not finite. An operand below 2⁻¹⁰² is off by up to
//! 2⁻¹³⁶, because its low part is cut off there: [`ThreeTf32::bound`] has that in it.

use cuda_std::Bf16;
use cuda_std::mma::{mma_m16n8k8_tf32, mma_m16n8k16_bf16};
use cuda_std::prelude::*;

use crate::decompose::decompose_tf32;

/// The tiles of A, and of B, that are multiplied at a time: four products that do not wait for each other.
pub const TILES: usize = 2;

/// Sums by tile of A and by tile of B.
pub type Sums = [[[f32; 4]; TILES]; TILES];

/// A way to multiply.
///
/// ```
/// # use blocks::mma_scheme::*;
/// # use cuda_std::{Bf16, examples::run, warp};
/// /// What lane 0 has of rows of ones times columns of their own numbers: columns 0 and 1 of rows 0 and 8.
/// fn products<S: Scheme>(word_of: impl Fn(f32) -> u32 + Sync) -> [f32; 4] {
///     run(32, || {
///         let row = S::prepare([word_of(1.0); 4]);
///         let column = S::prepare([word_of((warp::lane_id() / 4) as f32); 4]);
///         let mut sums = [[[0.0; 4]; TILES]; TILES];
///         // SAFETY: all lanes come here.
///         unsafe { S::add_products(&mut sums, [[row; 2]; TILES], [column; TILES]) };
///         sums[0][0]
///     })[0]
/// }
///
/// // 16 words are 16 fp32 numbers, or 32 bf16 numbers.
/// assert_eq!(products::<ThreeTf32>(f32::to_bits), [0.0, 16.0, 0.0, 16.0]);
/// let two = |number| u32::from(Bf16::from_f32(number).to_bits()) * 0x1_0001;
/// assert_eq!(products::<Bf16Products>(two), [0.0, 32.0, 0.0, 32.0]);
/// ```
pub trait Scheme {
    /// What the operands are made of.
    type Element: Element;
    /// Four words of a line in a lane, prepared.
    type Parts: Copy;
    /// The elements in a word of 32 bits.
    const PER_WORD: u32;
    /// Whether an accumulator that is not finite may be so for the scheme's sake: then it has to be computed again, in plain fp32.
    const RECOMPUTES: bool;

    /// Prepares the words `q`, `q + 4`, `q + 8` and `q + 12` of a line.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// // fp32 numbers are decomposed; bf16 numbers stay as they are, in words of two.
    /// let words = [1.0 + 2f32.powi(-20), 2.0, 3.0, 4.0].map(f32::to_bits);
    /// let parts = ThreeTf32::prepare(words);
    /// assert_eq!((parts.high, parts.low[0]), ([1.0, 2.0, 3.0, 4.0], 2f32.powi(-20)));
    /// assert_eq!(Bf16Products::prepare(words), words);
    /// ```
    fn prepare(words: [u32; 4]) -> Self::Parts;

    /// Adds the products of two tiles of 16 rows of A with two of 8 columns of B over 16 words. `a[i]` are rows `g` and `g + 8` of tile `i`,
    /// and `b[j]` is column `g` of tile `j`.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// # use cuda_std::examples::run;
    /// // Tiles of ones and of twos, by tiles of ones and of threes, each over 16 words.
    /// let [one, two, three] = [1.0, 2.0, 3.0].map(|number: f32| ThreeTf32::prepare([number.to_bits(); 4]));
    /// let sums = run(32, || {
    ///     let mut sums = [[[0.5; 4]; TILES]; TILES];
    ///     // SAFETY: all lanes come here.
    ///     unsafe { ThreeTf32::add_products(&mut sums, [[one; 2], [two; 2]], [one, three]) };
    ///     sums
    /// });
    /// assert_eq!(sums, [[[[16.5; 4], [48.5; 4]], [[32.5; 4], [96.5; 4]]]; 32]);
    /// ```
    ///
    /// # Safety
    /// The whole warp calls this function together.
    unsafe fn add_products(sums: &mut Sums, a: [[Self::Parts; 2]; TILES], b: [Self::Parts; TILES]);

    /// An element as a number.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// # use cuda_std::Bf16;
    /// assert_eq!(Bf16Products::to_f32(Bf16::from_bits(0x3FC0)), 1.5);
    /// assert_eq!(ThreeTf32::to_f32(0.1), 0.1);
    /// ```
    fn to_f32(element: Self::Element) -> f32;

    /// A number as an element, rounded to nearest.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// fn rounded<S: Scheme>(number: f32) -> f32 {
    ///     S::to_f32(S::from_f32(number))
    /// }
    /// assert_eq!((rounded::<ThreeTf32>(0.1), rounded::<Bf16Products>(0.1)), (0.1, 0.100_097_656_25));
    /// ```
    fn from_f32(number: f32) -> Self::Element;
}

/// fp32 by three TF32 products.
///
/// ```
/// # use blocks::mma_scheme::*;
/// # use cuda_std::examples::run;
/// let x = 0.1f32;
/// let sums = run(32, || {
///     let (line, mut sums) = (ThreeTf32::prepare([x.to_bits(); 4]), [[[0.0; 4]; TILES]; TILES]);
///     // SAFETY: all lanes come here.
///     unsafe { ThreeTf32::add_products(&mut sums, [[line; 2]; TILES], [line; TILES]) };
///     f64::from(sums[0][0][0])
/// });
/// // 16 products: within the bound, which one of TF32 numbers alone is far from.
/// let (exact, high) = (16.0 * f64::from(x) * f64::from(x), f64::from(Decomposed::of([x]).high[0]));
/// let bound = ThreeTf32::bound(16, 0, exact, 32.0 * f64::from(x));
/// assert!((sums[0] - exact).abs() <= bound && (16.0 * high * high - exact).abs() > 100.0 * bound);
/// ```
pub struct ThreeTf32;

/// An operand of [`ThreeTf32`]: fp32 numbers as TF32 numbers, and what that leaves of them.
///
/// ```
/// # use blocks::mma_scheme::*;
/// let numbers = Decomposed::of([1.0, 1.0 + 2f32.powi(-20)]);
/// assert_eq!((numbers.high, numbers.low), ([1.0, 1.0], [0.0, 2f32.powi(-20)]));
/// ```
#[derive(Clone, Copy)]
pub struct Decomposed<const N: usize> {
    /// Rounded to the nearest TF32 number.
    pub high: [f32; N],
    /// What is left, exactly; the hardware cuts it off to TF32.
    pub low: [f32; N],
}

impl<const N: usize> Decomposed<N> {
    /// The parts of these numbers.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// let Decomposed { high: [high], low: [low] } = Decomposed::of([0.1]);
    /// assert!(high != 0.1 && high + low == 0.1);
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn of(numbers: [f32; N]) -> Self {
        let (mut high, mut low) = ([0.0; N], [0.0; N]);
        for i in 0..N {
            (high[i], low[i]) = decompose_tf32(numbers[i]);
        }
        Self { high, low }
    }
}

impl ThreeTf32 {
    /// `sum` and the products of fragments of k = 8, the small ones first.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// # use cuda_std::examples::run;
    /// // Eight products of x and 1/8, which TF32 numbers alone would make 1.
    /// let x = 1.0 + 2f32.powi(-20);
    /// let sums = run(32, || {
    ///     // SAFETY: all lanes come here.
    ///     unsafe { ThreeTf32::product(Decomposed::of([x; 4]), Decomposed::of([0.125; 2]), [1.0; 4]) }
    /// });
    /// assert_eq!(sums, [[1.0 + x; 4]; 32]);
    /// ```
    ///
    /// # Safety
    /// The whole warp calls this function together.
    #[inline(always)]
    #[track_caller]
    #[must_use]
    pub unsafe fn product(a: Decomposed<4>, b: Decomposed<2>, mut sum: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            sum = mma_m16n8k8_tf32(a.low, b.high, sum);
            sum = mma_m16n8k8_tf32(a.high, b.low, sum);
            mma_m16n8k8_tf32(a.high, b.high, sum)
        }
    }

    /// How far from its value a sum of `terms` products may be that was made by products over k = 16 and fp32 additions of those, for
    /// operands that are finite and below 2¹¹⁵. `magnitude` is Σ|a||b| and `operands` is Σ(|a| + |b|).
    ///
    /// With u = 2⁻²⁴: of a product, low·low is left out (2⁻²²), and each of two low parts is cut off (2⁻²²): 12u. Sums of tensor cores of
    /// k = 16: six, cut off at 2u each. Then an addition for every 16 terms, and as many more as the kernel makes, `additions`. Where
    /// operands are small, cut-off low parts are off by 2⁻¹³⁶ at most, and sums by 2⁻¹⁴⁹ for each operation.
    ///
    /// ```
    /// # use blocks::mma_scheme::*;
    /// // 64 products of numbers up to 1: less than what fp32 additions one after the other may be off by.
    /// let bound = ThreeTf32::bound(64, 0, 64.0, 128.0);
    /// assert!(bound < 64.0 * 64.0 * 2f64.powi(-24));
    /// // Added up in 8 parts, they may be off by more.
    /// assert!(ThreeTf32::bound(64, 8, 64.0, 128.0) > bound);
    /// ```
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub fn bound(terms: usize, additions: usize, magnitude: f64, operands: f64) -> f64 {
        const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;
        // 2⁻¹³⁶ and 2⁻¹⁴⁹.
        let (cut, smallest) = (f64::from(f32::from_bits(1 << 13)), f64::from(f32::from_bits(1)));
        let sums = terms.div_ceil(16) + additions;
        let roundings = (12 + 12 + sums) as f64 * ROUNDING;
        let gamma = if roundings < 0.5 { roundings / (1.0 - roundings) } else { 2.0 * roundings };
        gamma * magnitude + cut * operands + smallest * (terms + sums) as f64
    }
}

impl Scheme for ThreeTf32 {
    type Element = f32;
    type Parts = Decomposed<4>;
    const PER_WORD: u32 = 1;
    const RECOMPUTES: bool = true;

    #[inline(always)]
    fn prepare(words: [u32; 4]) -> Decomposed<4> {
        Decomposed::of(words.map(f32::from_bits))
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(sums: &mut Sums, a: [[Decomposed<4>; 2]; TILES], b: [Decomposed<4>; TILES]) {
        let mut products = [[[0.0; 4]; TILES]; TILES];
        // The first product has words q and q + 4, the second one q + 8 and q + 12. Small terms come first, and each product of four does
        // not wait for the others.
        for [of_a, of_b] in [[false, true], [true, false], [true, true]] {
            for half in 0..2 {
                let (first, second) = (2 * half, 2 * half + 1);
                for i in 0..TILES {
                    for j in 0..TILES {
                        let [upper, lower] = a[i].map(|row| if of_a { row.high } else { row.low });
                        let column = if of_b { b[j].high } else { b[j].low };
                        let fragment = [upper[first], lower[first], upper[second], lower[second]];
                        // SAFETY: the caller's promise.
                        products[i][j] =
                            unsafe { mma_m16n8k8_tf32(fragment, [column[first], column[second]], products[i][j]) };
                    }
                }
            }
        }
        for i in 0..TILES {
            for j in 0..TILES {
                for element in 0..4 {
                    sums[i][j][element] += products[i][j][element];
                }
            }
        }
    }

    #[inline(always)]
    fn to_f32(element: f32) -> f32 {
        element
    }

    #[inline(always)]
    fn from_f32(number: f32) -> f32 {
        number
    }
}

/// bf16 by bf16 products with fp32 sums, which tensor cores keep.
///
/// ```
/// # use blocks::mma_scheme::*;
/// # use cuda_std::{Bf16, examples::run};
/// // Two numbers in a word: 1.5 and 2. Twice 16 products of each with itself.
/// let word = u32::from(Bf16::from_f32(1.5).to_bits()) | u32::from(Bf16::from_f32(2.0).to_bits()) << 16;
/// let sums = run(32, || {
///     let (line, mut sums) = (Bf16Products::prepare([word; 4]), [[[0.0; 4]; TILES]; TILES]);
///     // SAFETY: all lanes come here.
///     unsafe { Bf16Products::add_products(&mut sums, [[line; 2]; TILES], [line; TILES]) };
///     sums[1][1]
/// });
/// assert_eq!(sums, [[16.0 * (2.25 + 4.0); 4]; 32]);
/// ```
pub struct Bf16Products;

impl Scheme for Bf16Products {
    type Element = Bf16;
    type Parts = [u32; 4];
    const PER_WORD: u32 = 2;
    const RECOMPUTES: bool = false;

    #[inline(always)]
    fn prepare(words: [u32; 4]) -> [u32; 4] {
        words
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(sums: &mut Sums, a: [[[u32; 4]; 2]; TILES], b: [[u32; 4]; TILES]) {
        for half in 0..2 {
            let (first, second) = (2 * half, 2 * half + 1);
            for i in 0..TILES {
                for j in 0..TILES {
                    let [upper, lower] = a[i];
                    let fragment = [upper[first], lower[first], upper[second], lower[second]];
                    // SAFETY: the caller's promise.
                    sums[i][j] = unsafe { mma_m16n8k16_bf16(fragment, [b[j][first], b[j][second]], sums[i][j]) };
                }
            }
        }
    }

    #[inline(always)]
    fn to_f32(element: Bf16) -> f32 {
        element.to_f32()
    }

    #[inline(always)]
    fn from_f32(number: f32) -> Bf16 {
        Bf16::from_f32(number)
    }
}
