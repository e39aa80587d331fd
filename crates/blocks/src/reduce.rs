//! Reductions: over the lanes of a warp as a tree of shuffles, over a block as a tree in shared memory, and of the question
//! whether all numbers are finite.
//!
//! ```text
//!  lanes     0   1   2   3   4   5   6   7         a butterfly: in every step each lane combines its value with that of the
//!  distance 4: 0↔4  1↔5  2↔6  3↔7                  lane whose number differs in one bit; in the end all have the same, and
//!           2: 0↔2  1↔3  4↔6  5↔7                  the order of combination depends on the lanes' numbers alone
//!           1: 0↔1  2↔3  4↔5  6↔7
//! ```

use cuda_std::prelude::*;

/// The sums over all lanes of a warp whose numbers differ only in the bits of `first`, 2·`first`, 4·`first` … up to those below
/// `end`, both powers of two. All lanes get the sums of their own set.
///
/// ```
/// # use blocks::reduce::*;
/// # use cuda_std::{examples::run, prelude::*};
/// // A warp as 8 rows of 4 lanes, as tensor cores see it: the sums of each row, and of each column.
/// let sums = run(32, || {
///     let own = [warp::lane_id() as f32, 1.0];
///     // SAFETY: all lanes come here.
///     unsafe { (sum_of_lanes(own, 1, 4), sum_of_lanes(own, 4, 32)) }
/// });
/// // Lane 5 is in the row of the lanes 4 to 7, and in the column of 1, 5, 9, …, 29.
/// assert_eq!(sums[5], ([22.0, 4.0], [120.0, 8.0]));
/// ```
///
/// # Safety
/// Called by all lanes of the warp, with the same numbers.
#[inline(always)]
#[track_caller]
pub unsafe fn sum_of_lanes<const N: usize>(mut sums: [f32; N], first: u32, end: u32) -> [f32; N] {
    let mut distance = end / 2;
    while distance >= first.max(1) {
        for sum in &mut sums {
            // SAFETY: by the caller's promise, all lanes come here.
            *sum += unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, *sum, distance, warp::LANES) }.0;
        }
        distance /= 2;
    }
    sums
}

/// The sums of `VALUES` numbers over the lanes of a warp whose numbers differ only in the bits from `first` on, scattered: each of
/// those `LANES / first` lanes gets its share of the sums, in order, in the first elements of what is returned. Where there are
/// fewer sums than lanes, neighbouring lanes get the same one.
///
/// ```text
///  8 sums, lanes that differ in bits 8 and 16:     lanes 0 … 7     8 … 15     16 … 23     24 … 31
///                                                  0 1             2 3        4 5         6 7
/// ```
///
/// Half of the shuffles that are left go with every step: for as many sums as lanes one for each sum, and not one for each sum
/// and step.
///
/// ```
/// # use blocks::reduce::*;
/// # use cuda_std::{examples::run, prelude::*};
/// // Number i of each lane is i, and four lanes differ in the bits 8 and 16.
/// let sums = run(32, || {
///     let numbers: [f32; 8] = core::array::from_fn(|i| i as f32);
///     // SAFETY: all lanes come here.
///     let own = unsafe { sum_and_scatter(numbers, 8) };
///     [own[0], own[1]]
/// });
/// assert_eq!([sums[0], sums[8], sums[31]], [[0.0, 4.0], [8.0, 12.0], [24.0, 28.0]]);
/// ```
///
/// # Safety
/// Called by all lanes of the warp, with the same `first`, a power of two below the number of lanes.
#[inline(always)]
#[track_caller]
pub unsafe fn sum_and_scatter<const VALUES: usize>(mut values: [f32; VALUES], first: u32) -> [f32; VALUES] {
    const { assert!(VALUES.is_power_of_two(), "every step halves the number of values") };
    let lane = warp::lane_id();
    let mut width = VALUES;
    for distance in [16u32, 8, 4, 2, 1] {
        if distance < first {
            continue;
        }
        // SAFETY: by the caller's promise, all lanes come here.
        let other = |value| unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance, warp::LANES) }.0;
        if width == 1 {
            values[0] += other(values[0]);
            continue;
        }
        width /= 2;
        let is_upper = lane & distance != 0;
        for i in 0..width {
            let (kept, given) = if is_upper { (values[i + width], values[i]) } else { (values[i], values[i + width]) };
            values[i] = kept + other(given);
        }
    }
    values
}

/// Something of `WORDS` words that two threads make one of.
///
/// ```
/// # use blocks::reduce::*;
/// # use cuda_std::{examples::run, prelude::*};
/// /// The largest of some numbers, and where it is.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Largest {
///     number: f32,
///     at: u32,
/// }
///
/// impl Combine<2> for Largest {
///     fn and(&mut self, other: Self) {
///         // Of equal numbers the first, so that the order does not matter.
///         if (other.number, self.at) > (self.number, other.at) {
///             *self = other;
///         }
///     }
///     fn words(self) -> [u32; 2] {
///         [self.number.to_bits(), self.at]
///     }
///     fn of_words([number, at]: [u32; 2]) -> Self {
///         Self { number: f32::from_bits(number), at }
///     }
/// }
///
/// let found = run(32, || {
///     let at = warp::lane_id();
///     // SAFETY: all lanes come here.
///     unsafe { combine_lanes(Largest { number: [3.0, 9.0, 1.0, 9.0][at as usize % 4], at }, 32) }
/// });
/// assert_eq!(found, [Largest { number: 9.0, at: 1 }; 32]);
/// ```
pub trait Combine<const WORDS: usize>: Copy {
    /// Takes another one into account. The order may not matter: the operation is associative and commutative.
    ///
    /// ```
    /// # use blocks::reduce::*;
    /// #[derive(Clone, Copy)]
    /// struct Range {
    ///     least: i32,
    ///     most: i32,
    /// }
    ///
    /// impl Combine<2> for Range {
    ///     fn and(&mut self, other: Self) {
    ///         *self = Self { least: self.least.min(other.least), most: self.most.max(other.most) };
    ///     }
    /// #     fn words(self) -> [u32; 2] {
    /// #         [self.least as u32, self.most as u32]
    /// #     }
    /// #     fn of_words([least, most]: [u32; 2]) -> Self {
    /// #         Self { least: least as i32, most: most as i32 }
    /// #     }
    ///     // …
    /// }
    ///
    /// let mut range = Range { least: 3, most: 5 };
    /// range.and(Range { least: -1, most: 4 });
    /// assert_eq!([range.least, range.most], [-1, 5]);
    /// ```
    fn and(&mut self, other: Self);

    /// It, as words that a shuffle moves.
    ///
    /// ```
    /// # use blocks::reduce::*;
    /// #[derive(Clone, Copy)]
    /// struct Sum(f64);
    ///
    /// impl Combine<2> for Sum {
    ///     fn words(self) -> [u32; 2] {
    ///         let bits = self.0.to_bits();
    ///         [bits as u32, (bits >> 32) as u32]
    ///     }
    /// #     fn and(&mut self, other: Self) {
    /// #         self.0 += other.0;
    /// #     }
    /// #     fn of_words([low, high]: [u32; 2]) -> Self {
    /// #         Self(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
    /// #     }
    ///     // …
    /// }
    ///
    /// assert_eq!(Sum(2.0).words(), [0, 0x4000_0000]);
    /// ```
    fn words(self) -> [u32; WORDS];

    /// That of these words.
    ///
    /// ```
    /// # use blocks::reduce::*;
    /// #[derive(Clone, Copy)]
    /// struct Sum(f64);
    ///
    /// impl Combine<2> for Sum {
    ///     fn of_words([low, high]: [u32; 2]) -> Self {
    ///         Self(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
    ///     }
    /// #     fn and(&mut self, other: Self) {
    /// #         self.0 += other.0;
    /// #     }
    /// #     fn words(self) -> [u32; 2] {
    /// #         let bits = self.0.to_bits();
    /// #         [bits as u32, (bits >> 32) as u32]
    /// #     }
    ///     // …
    /// }
    ///
    /// assert_eq!(Sum::of_words(Sum(0.1).words()).0, 0.1);
    /// ```
    fn of_words(words: [u32; WORDS]) -> Self;
}

/// What all of `width` neighbouring lanes have together; `width` is a power of two. All of them get it.
///
/// ```
/// # use blocks::reduce::*;
/// # use cuda_std::{examples::run, prelude::*};
/// /// Which digits there are: a bit for each.
/// #[derive(Clone, Copy)]
/// struct Digits(u32);
/// # impl Combine<1> for Digits {
/// #     fn and(&mut self, other: Self) {
/// #         self.0 |= other.0;
/// #     }
/// #     fn words(self) -> [u32; 1] {
/// #         [self.0]
/// #     }
/// #     fn of_words([digits]: [u32; 1]) -> Self {
/// #         Self(digits)
/// #     }
/// # }
///
/// let found = run(32, || {
///     let own = Digits(1 << (warp::lane_id() % 10));
///     // SAFETY: all lanes come here.
///     unsafe { combine_lanes(own, 4) }.0
/// });
/// // The lanes 0 to 3 have the digits 0 to 3, the lanes 8 to 11 have 8, 9, 0 and 1.
/// assert_eq!((found[0], found[11]), (0b1111, 0b11_0000_0011));
/// ```
///
/// # Safety
/// All lanes of the warp come here together, with the same width.
#[inline(always)]
#[track_caller]
pub unsafe fn combine_lanes<const WORDS: usize, T: Combine<WORDS>>(mut value: T, width: u32) -> T {
    for distance in [16, 8, 4, 2, 1] {
        if distance >= width {
            continue;
        }
        // SAFETY: the caller's promise.
        let other = |word| unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, word, distance, 32).0 };
        value.and(T::of_words(value.words().map(other)));
    }
    value
}

/// The sum over a one-dimensional block of `THREADS` threads, a power of two: a tree in shared memory, in which the lower half of
/// the threads that are left adds what the upper half has.
///
/// Source: M. Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA, 2007), with sequential addressing.
///
/// ```
/// use blocks::reduce::sum_of_block;
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// The sums of rows of 128 numbers, a block for each.
/// #[kernel(block = 128, grid = sums.len() as u32, requires(x.len() == 128 * sums.len()))]
/// fn sums_of_rows(x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
///     static MEMORY: Shared<[f32; 128]> = Shared::new();
///     let row = thread::block_idx_x() as usize;
///     // SAFETY: the grid has a block for each row, and all threads of it come here; nothing else uses the array.
///     unsafe {
///         let sum = sum_of_block(&MEMORY, x.get_unchecked(thread::index_1d()));
///         if thread::thread_idx_x() == 0 {
///             sums.set_unchecked(row, sum);
///         }
///     }
/// }
///
/// let x = Vec::from_iter((0..256).map(|i| i as f32));
/// let mut sums = [0.0; 2];
/// let arguments = sums_of_rows { x: GlobalSlice::new(&x), sums: GlobalSliceMut::new(&mut sums) };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(2)) }?;
/// assert_eq!(sums, [8128.0, 24_512.0]);
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
///
/// # Safety
/// Called by all threads of such a block, with an array that nothing else uses.
#[inline(always)]
#[track_caller]
pub unsafe fn sum_of_block<const THREADS: usize>(memory: &'static Shared<[f32; THREADS]>, value: f32) -> f32 {
    const { assert!(THREADS.is_power_of_two(), "every step halves the number of threads") };
    let t = thread::thread_idx_x();
    // SAFETY: t < THREADS, and what is read at t + half is below THREADS too. A thread writes only its own element; a barrier,
    // which all threads of the block reach, lies between any write and a read by another thread, and the other way round:
    // in one step the threads below `half` write, and what they read of others is from `half` up.
    unsafe {
        memory.write(t as usize, value);
        thread::sync_threads();
        let mut half = THREADS as u32 / 2;
        while half > 0 {
            if t < half {
                memory.write(t as usize, memory.read(t as usize) + memory.read((t + half) as usize));
            }
            thread::sync_threads();
            half /= 2;
        }
        memory.read(0)
    }
}

/// Whether all numbers that were seen are finite: one fused operation for each.
///
/// ```
/// # use blocks::reduce::*;
/// # use cuda_std::{examples::run_over, prelude::*};
/// // A block of two threads, each of which looks at two numbers.
/// let all_finite = run_over(2, &mut [1.0, f32::INFINITY, 3.0, f32::MAX], |x: GlobalSlice<'_, f32>| {
///     let mut finite = Finite::new();
///     (thread::index()..4).step_by(2).filter_map(|i| x.get(i)).for_each(|x| finite.see(x));
///     finite.all()
/// });
/// assert_eq!(all_finite, [true, false]);
/// ```
#[derive(Clone, Copy)]
pub struct Finite {
    /// Zero times anything finite is zero; with an infinity or a NaN it is NaN, and stays so.
    zero: f32,
}

impl Finite {
    /// Nothing seen yet.
    ///
    /// ```
    /// assert!(blocks::reduce::Finite::new().all());
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn new() -> Self {
        Self { zero: 0.0 }
    }

    /// Takes a number into account.
    ///
    /// ```
    /// # use blocks::reduce::*;
    /// let mut finite = Finite::new();
    /// finite.see(f32::NAN);
    /// finite.see(1.0);
    /// assert!(!finite.all());
    /// ```
    #[inline(always)]
    pub fn see(&mut self, x: f32) {
        self.zero = math::fma(x, 0.0, self.zero);
    }

    /// Whether all of them are finite.
    ///
    /// ```
    /// # use blocks::reduce::*;
    /// let mut finite = Finite::new();
    /// [f32::MAX, -0.0, 1e-45].map(|x| finite.see(x));
    /// assert!(finite.all());
    /// finite.see(f32::NEG_INFINITY);
    /// assert!(!finite.all());
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn all(self) -> bool {
        self.zero == 0.0
    }
}

impl Default for Finite {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_that_is_not_finite_is_enough() {
        let all_finite = |numbers: &[f32]| {
            let mut finite = Finite::new();
            numbers.iter().for_each(|&x| finite.see(x));
            finite.all()
        };
        assert!(all_finite(&[]) && all_finite(&[0.0, -0.0, f32::MAX, -f32::MAX, 1e-45]));
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(!all_finite(&[x]) && !all_finite(&[1.0, x, 2.0]), "{x}");
        }
    }
}
