//! Fills an array with the n random numbers of a stream from position `offset` on: 32-bit words, fp32 numbers uniform in [0, 1), or normally
//! distributed ones. Each is a function of a key, the stream and its position (Philox 4x32-10). A thread makes four at a time, up to 4096 blocks
//! of 256 threads share the array. Words and uniform numbers are exact; normal ones have a bound.
//!
//! ```text
//!  position        4·b    4·b + 1   4·b + 2   4·b + 3
//!                  └──────────┬──────────────────┘
//!  counter       (b low, b high, stream low, stream high), key       10 rounds ─► 4 words
//!  uniform         the upper 24 bits of a word, times 2⁻²⁴
//!  normal          of words w, v:  r = √(−2·ln((w + ½)·2⁻³²)),   r·cos(π·v·2⁻³¹) and r·sin(π·v·2⁻³¹)
//! ```
//!
//! Whatever part of a stream is asked for, from whichever offset on, has the same numbers as when all of it is: no thread has a state. A thread
//! writes its four numbers by one store, where the array is aligned. Where the offset is not a multiple of four, they come from two counters, of
//! which the lane before has one:
//!
//! ```text
//!  counters of a warp     b │ b + 1   b + 2   b + 3   …   b + 32 │ b + 33 …                 offset % 4 = 1
//!  made by lanes          – │   0       1       2     …     31   │   0                      b by all of them, once
//!  stored by lanes        │     0   │   1   │   2   │ …  │  31   │   0
//! ```
//!
//! Of a normal number, (w + ½)·2⁻³² is rounded to fp32 first. The bits are the same on a GPU and on the executor: all is made of operations
//! that are, and of logarithms and square roots of `cuda_std::math`. Normal numbers are below 6.77 in magnitude, as there are no more than 32
//! bits.
//!
//! Sources: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011); G. E. P. Box and
//! M. E. Muller, "A note on the generation of random normal deviates" (1958).

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES};
use crate::words::is_aligned;

/// The threads of a block.
const THREADS: usize = 256;

/// The warps of a block.
const WARPS: usize = THREADS / LANES;

/// The blocks for so many numbers: four for each thread, until there are more blocks than run at the same time on any GPU.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(len: usize) -> u32 {
    len.div_ceil(FOUR * THREADS).clamp(1, 4096) as u32
}

/// Four words of a counter and a key: `Philox4x32` with ten rounds.
#[inline(always)]
pub fn philox_4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    // Multipliers that were searched for; the golden ratio, and √3 − 1, as fractions of 2³².
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        // Words in registers: LLVM would join those of two rounds to 64 bits, and multiply all of them.
        hint::pin(&mut counter);
        let products =
            [u64::from(MULTIPLIERS[0]) * u64::from(counter[0]), u64::from(MULTIPLIERS[1]) * u64::from(counter[2])];
        let (high, low) = (products.map(|product| (product >> 32) as u32), products.map(|product| product as u32));
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]];
    }
    counter
}

/// Which numbers of which stream.
#[derive(Clone, Copy)]
struct Stream {
    key: u64,
    stream: u64,
}

impl Stream {
    /// The words of the positions `4·block` to `4·block + 3`.
    #[inline(always)]
    fn words(self, block: u64) -> [u32; 4] {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let ([b, c], [d, e]) = (halves(block), halves(self.stream));
        philox_4x32_10([b, c, d, e], halves(self.key))
    }
}

/// A number of [0, 1) for each word: a multiple of 2⁻²⁴.
#[inline(always)]
fn uniform(words: [u32; 4]) -> [f32; 4] {
    words.map(|word| (word >> 8) as f32 * (1.0 / (1 << 24) as f32))
}

/// The cosine and the sine of `angle` times 2π/2³², off by at most 3 units of 2⁻²⁴ of themselves, and by the rounding of an angle to fp32.
///
/// The nearest quarter turn is subtracted from the word, exactly; then minimax polynomials in the relative error, for at most an eighth of
/// a turn. `math::sincospi` does the same to numbers, of which an integer needs none of the special cases.
#[inline(always)]
fn cos_and_sin(angle: u32) -> [f32; 2] {
    const EIGHTH: u32 = 1 << 29;
    let turned = angle.wrapping_add(EIGHTH);
    // In half turns.
    let r = ((turned % (2 * EIGHTH)) as i32 - EIGHTH as i32) as f32 * (1.0 / (1u32 << 31) as f32);
    let s = r * r;
    let p = math::fma(s, -5.994_676_4e-1, 2.550_773_9);
    let p = math::fma(s, p, -5.167_732_7);
    let near_0 = r * math::fma(s, p, core::f32::consts::PI);
    let p = math::fma(s, -1.306_529_9, 4.057_638);
    let p = math::fma(s, p, -4.934_790_6);
    let near_1 = math::fma(s, p, 1.0);
    let is_odd = turned & (2 * EIGHTH) != 0;
    let [cos, sin] = if is_odd { [near_0, near_1] } else { [near_1, near_0] };
    // The cosine is negative in quarters 1 and 2, the sine in quarters 2 and 3.
    let with_sign = |number: f32, sign: u32| f32::from_bits(number.to_bits() ^ sign & (1 << 31));
    [with_sign(cos, turned.wrapping_add(2 * EIGHTH)), with_sign(sin, turned)]
}

/// Two normally distributed numbers for two words.
#[inline(always)]
fn normal_pair(word: u32, angle: u32) -> [f32; 2] {
    const STEP: f32 = 1.0 / (1u64 << 32) as f32;
    let from_0_to_1 = math::fma(word as f32, STEP, STEP / 2.0);
    // SAFETY: a word is neither negative nor above 2³² as a number, so that this is from 2⁻³³ to 1.
    unsafe {
        core::hint::assert_unchecked(from_0_to_1 >= f32::MIN_POSITIVE);
        core::hint::assert_unchecked(from_0_to_1 > 0.0);
        core::hint::assert_unchecked(from_0_to_1 < f32::INFINITY);
    }
    let radius = math::sqrt(-2.0 * math::log(from_0_to_1));
    cos_and_sin(angle).map(|number| radius * number)
}

/// Four normally distributed numbers for four words.
#[inline(always)]
fn normal([a, b, c, d]: [u32; 4]) -> [f32; 4] {
    let ([a, b], [c, d]) = (normal_pair(a, b), normal_pair(c, d));
    [a, b, c, d]
}

/// The four elements from number `shift` of the first four on.
#[inline(always)]
fn shifted<T: Copy>(first: [T; 4], then: [T; 4], shift: u64) -> [T; 4] {
    let ([_, b, c, d], [e, f, g, _]) = (first, then);
    match shift {
        0 => first,
        1 => [b, c, d, e],
        2 => [c, d, e, f],
        _ => [d, e, f, g],
    }
}

/// Numbers of a stream from position `offset` on, `len` of them: what four words make, handed to `set4` or, one by one, to `set`.
#[inline(always)]
fn fill<T: Element>(
    stream: Stream,
    offset: u64,
    len: usize,
    of_words: impl Fn([u32; 4]) -> [T; 4],
    by_vectors: bool,
    set4: impl Fn(usize, [T; 4]),
    set: impl Fn(usize, T),
) {
    let (shift, vectors) = (offset % 4, len.div_ceil(FOUR));
    let of_counter = |vector: usize| of_words(stream.words((offset / 4).wrapping_add(vector as u64)));
    let store = |vector: usize, numbers: [T; 4]| {
        let index = vector * FOUR;
        if by_vectors && index + FOUR <= len {
            set4(index, numbers);
        } else {
            for i in 0..FOUR {
                if index + i < len {
                    set(index + i, numbers[i]);
                }
            }
        }
    };
    // The same for all threads.
    if shift == 0 {
        let step = thread::grid_dim_x() as usize * THREADS;
        let mut vector = thread::index_1d();
        while vector < vectors {
            store(vector, of_counter(vector));
            vector += step;
        }
        return;
    }
    // A warp has vectors in a row, as many as each other one.
    let lane = thread::thread_idx_x() % warp::LANES;
    let warps = thread::grid_dim_x() as usize * WARPS;
    let of_warp = vectors.div_ceil(warps * LANES) * LANES;
    let mut from = thread::index_1d() / LANES * of_warp;
    let end = (from + of_warp).min(vectors);
    let mut last = of_counter(from);
    // The same for all lanes.
    while from < end {
        let vector = from + lane as usize;
        let own = of_counter(vector + 1);
        // SAFETY: all lanes come here together.
        let of_lane_before = own.map(|number| unsafe {
            warp::warp_shuffle_idx(warp::ALL_LANES, number, lane.wrapping_sub(1) % warp::LANES, warp::LANES).0
        });
        let before = if lane == 0 { last } else { of_lane_before };
        // Those of lane 31, for lane 0.
        last = of_lane_before;
        if vector < end {
            store(vector, shifted(before, own, shift));
        }
        from += LANES;
    }
}

/// The words of a stream, from position `offset` on.
#[kernel(block = 256, grid = blocks(y.len()), requires(offset.checked_add(y.len() as u64).is_some()))]
pub fn philox_words_u32(key: u64, stream: u64, offset: u64, y: GlobalSliceMut<'_, u32>) {
    fill(
        Stream { key, stream },
        offset,
        y.len(),
        |words| words,
        is_aligned(y.as_mut_ptr().addr()),
        // SAFETY: the indices are below the length, each of them is one thread's, and they begin at multiples of four.
        |index, words| unsafe { y.set_vector_unchecked(index, words) },
        // SAFETY: likewise.
        |index, word| unsafe { y.set_unchecked(index, word) },
    );
}

/// Numbers that are uniform in [0, 1), from position `offset` of a stream on.
#[kernel(block = 256, grid = blocks(y.len()), requires(offset.checked_add(y.len() as u64).is_some()))]
pub fn philox_uniform_fp32(key: u64, stream: u64, offset: u64, y: GlobalSliceMut<'_, f32>) {
    fill(
        Stream { key, stream },
        offset,
        y.len(),
        uniform,
        is_aligned(y.as_mut_ptr().addr()),
        // SAFETY: the indices are below the length, each of them is one thread's, and they begin at multiples of four.
        |index, numbers| unsafe { y.set4_unchecked(index, numbers) },
        // SAFETY: likewise.
        |index, number| unsafe { y.set_unchecked(index, number) },
    );
}

/// Normally distributed numbers, with mean 0 and variance 1, from position `offset` of a stream on.
#[kernel(block = 256, grid = blocks(y.len()), requires(offset.checked_add(y.len() as u64).is_some()))]
pub fn philox_normal_fp32(key: u64, stream: u64, offset: u64, y: GlobalSliceMut<'_, f32>) {
    fill(
        Stream { key, stream },
        offset,
        y.len(),
        normal,
        is_aligned(y.as_mut_ptr().addr()),
        // SAFETY: the indices are below the length, each of them is one thread's, and they begin at multiples of four.
        |index, numbers| unsafe { y.set4_unchecked(index, numbers) },
        // SAFETY: likewise.
        |index, number| unsafe { y.set_unchecked(index, number) },
    );
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::{Philox, reference};

/// The operations as the host sees them: how many numbers from which offset on, y as output, the launch, and Philox written once more on
/// the host: words and uniform numbers have to be equal, normal ones within a bound. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{Argument, Bits, Description, Device, Element, Error, Expected, Operation, Sizes, Values, Views};

    use super::{philox_normal_fp32, philox_uniform_fp32, philox_words_u32};

    /// Of which the two halves, and the words of the stream, are different.
    const KEY: u64 = 0x2545_F491_4F6C_DD1D;
    const STREAM: u64 = 0x0000_0007_DEAD_BEEF;

    /// What is made of words.
    #[derive(Clone, Copy)]
    enum Made {
        Words,
        Uniform,
        Normal,
    }

    /// Numbers of a stream.
    pub struct Philox {
        name: &'static str,
        made: Made,
    }

    impl Philox {
        /// Its words.
        pub const WORDS: Self = Self { name: "philox-words", made: Made::Words };
        /// Uniform in [0, 1).
        pub const UNIFORM: Self = Self { name: "philox-uniform", made: Made::Uniform };
        /// Normally distributed.
        pub const NORMAL: Self = Self { name: "philox-normal", made: Made::Normal };
    }

    /// Four words of a counter and a key, as the paper has it: two Feistel networks, a round after the other, in 64-bit arithmetic. Not the
    /// kernel's code: the two are compared.
    pub fn reference(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
        const WORD: u64 = 1 << 32;
        let ([mut r0, mut l0, mut r1, mut l1], key) = (counter.map(u64::from), key.map(u64::from));
        for round in 0u64..10 {
            let (k0, k1) = ((key[0] + round * 0x9E37_79B9) % WORD, (key[1] + round * 0xBB67_AE85) % WORD);
            let (product0, product1) = (r0 * 0xD251_1F53, r1 * 0xCD9E_8D57);
            // The two networks change places.
            (r0, r1) = ((product1 / WORD) ^ l0 ^ k0, (product0 / WORD) ^ l1 ^ k1);
            (l0, l1) = (product1 % WORD, product0 % WORD);
        }
        [r0, l0, r1, l1].map(|word| word as u32)
    }

    /// The word of the stream at a position.
    fn word(position: u64) -> u32 {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let ([a, b], [c, d]) = (halves(position / 4), halves(STREAM));
        reference([a, b, c, d], halves(KEY))[(position % 4) as usize]
    }

    /// The normally distributed number at a position. The rounding of the first word is part of the definition. To that come a logarithm,
    /// whose error (less than 2u, u = 2⁻²⁴) a root halves, the root (u), an angle (u), its sine or cosine (3u) and a product (u).
    fn normal(position: u64) -> Expected {
        let (first, second) = (word(position - position % 2), word(position - position % 2 + 1));
        let from_0_to_1 = (f64::from(first as f32) / 2f64.powi(32) + 2f64.powi(-33)) as f32;
        let half_turns = f64::from(second as i32) / 2f64.powi(31);
        let radius = (-2.0 * f64::from(from_0_to_1).ln()).sqrt();
        let (sin, cos) = (half_turns * std::f64::consts::PI).sin_cos();
        let value = radius * if position.is_multiple_of(2) { cos } else { sin };
        // Sine and cosine of a multiple of π in double precision are off by 2⁻⁵² of one, not of themselves.
        let rounded = Expected::rounded(value, 7, value.abs());
        Expected::within(value, rounded.bound + radius * 2f64.powi(-50))
    }

    impl Operation for Philox {
        fn describe(&self) -> Description {
            let (idea, kernel) = match self.made {
                Made::Words => ("random words, each a function of its position", philox_words_u32::FACTS),
                Made::Uniform => ("random numbers, uniform in [0, 1)", philox_uniform_fp32::FACTS),
                Made::Normal => ("random numbers, normally distributed", philox_normal_fp32::FACTS),
            };
            Description {
                name: self.name,
                idea,
                sizes: &["n", "offset"],
                kernels: vec![kernel],
                // Nothing, one, offsets of all remainders, and counters that leave 32 bits.
                small: testkit::cases(&[
                    [0, 0],
                    [1, 0],
                    [1, 3],
                    [7, 2],
                    [1023, 1],
                    [1024, 0],
                    [5000, 0],
                    [4099, 4],
                    [50, (1 << 34) - 9],
                    [33, usize::MAX - 40],
                ]),
                large: testkit::cases(&[[1 << 20, 0], [1 << 28, 1], [(1 << 28) + 3, 1 << 33]]),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let y = Argument::output("y", &[n]);
            Ok(vec![if matches!(self.made, Made::Words) { y.of(Element::U32) } else { y }])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [offset] = sizes.get(["offset"])?;
            let (key, stream, offset) = (KEY, STREAM, offset as u64);
            match self.made {
                Made::Words => device.launch(philox_words_u32 { key, stream, offset, y: views.write("y")? })?,
                Made::Uniform => device.launch(philox_uniform_fp32 { key, stream, offset, y: views.write("y")? })?,
                Made::Normal => device.launch(philox_normal_fp32 { key, stream, offset, y: views.write("y")? })?,
            }
            Ok(())
        }

        fn expected(&self, sizes: &Sizes, _values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [n, offset] = sizes.get(["n", "offset"])?;
            let word = |position| f64::from(word(position));
            Ok(vec![testkit::each(n, |index| {
                let position = (offset + index) as u64;
                match self.made {
                    Made::Words => Expected::exact(word(position)),
                    Made::Uniform => Expected::exact((word(position) / 256.0).floor() / 2f64.powi(24)),
                    Made::Normal => normal(position),
                }
            })])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
