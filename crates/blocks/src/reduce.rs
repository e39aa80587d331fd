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
pub trait Combine<const WORDS: usize>: Copy {
    /// Takes another one into account. The order may not matter: the operation is associative and commutative.
    fn and(&mut self, other: Self);

    /// It, as words that a shuffle moves.
    fn words(self) -> [u32; WORDS];

    /// That of these words.
    fn of_words(words: [u32; WORDS]) -> Self;
}

/// What all of `width` neighbouring lanes have together; `width` is a power of two. All of them get it.
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
#[derive(Clone, Copy)]
pub struct Finite {
    /// Zero times anything finite is zero; with an infinity or a NaN it is NaN, and stays so.
    zero: f32,
}

impl Finite {
    /// Nothing seen yet.
    #[inline(always)]
    #[must_use]
    pub fn new() -> Self {
        Self { zero: 0.0 }
    }

    /// Takes a number into account.
    #[inline(always)]
    pub fn see(&mut self, x: f32) {
        self.zero = math::fma(x, 0.0, self.zero);
    }

    /// Whether all of them are finite.
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
