//! Instructions of one thread or of one warp: their operands, and what has to come out.

use rand::RngExt;
use rand::rngs::StdRng;

use super::kernels::warp::COPY_UNTOUCHED;
use super::kernels::{atomics, mma, scalar, warp};
use super::machine::Launch;
use super::number::{Format, Number, Rounding, fused};
use super::numerics::NAN;
use super::operands::{number, special_numbers};
use crate::device_features::Launcher;

/// The lanes of a warp.
pub(super) const LANES: usize = 32;

/// What the words of a result are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bits.
    Bits,
    /// An fp32 number in each.
    Numbers,
    /// Two numbers of 16 bits in each.
    Pairs(Format),
}

/// An instruction whose operands are words.
pub struct Instruction {
    /// The kernel.
    pub name: &'static str,
    /// Runs it.
    pub launch: Launch,
    /// The words of a case.
    pub inputs: usize,
    /// The words of its result.
    pub outputs: usize,
    /// The cases of a block.
    pub cases_of_block: usize,
    /// What the words of the result are.
    pub content: Content,
    /// Random and special operands, of the case with this number.
    pub operands: fn(&mut StdRng, usize) -> Vec<u32>,
    /// What has to come out.
    pub reference: fn(&[u32]) -> Vec<u32>,
}

/// Names the kernel, and wraps its launch.
macro_rules! kernel {
    ($module:ident::$kernel:ident) => {{
        let launch: Launch = |machine, input, output, blocks| {
            // SAFETY: the views are of memory that is there until the kernel has finished: `Machine::run` lends it.
            unsafe { machine.launch($module::$kernel { input, output }, blocks) }
        };
        (stringify!($kernel), launch)
    }};
}
pub(super) use kernel;

impl Instruction {
    pub(super) fn of_thread(
        (name, launch): (&'static str, Launch),
        (inputs, outputs): (usize, usize),
        content: Content,
        operands: fn(&mut StdRng, usize) -> Vec<u32>,
        reference: fn(&[u32]) -> Vec<u32>,
    ) -> Self {
        Self { name, launch, inputs, outputs, cases_of_block: 128, content, operands, reference }
    }

    pub(super) fn of_warp(
        (name, launch): (&'static str, Launch),
        (inputs, outputs): (usize, usize),
        operands: fn(&mut StdRng, usize) -> Vec<u32>,
        reference: fn(&[u32]) -> Vec<u32>,
    ) -> Self {
        Self { name, launch, inputs, outputs, cases_of_block: 1, content: Content::Bits, operands, reference }
    }
}

/// All of them.
pub fn instructions() -> Vec<Instruction> {
    let shuffle_words = (warp::SHUFFLE_INPUTS, warp::SHUFFLE_OUTPUTS);
    let copy_words = (warp::COPY_INPUTS, warp::COPY_OUTPUTS);
    let thread = Instruction::of_thread;
    let of_warp = Instruction::of_warp;
    let numbers = Content::Numbers;
    let mut all = vec![
        thread(kernel!(scalar::convert_bf16x2), (2, 1), Content::Pairs(Format::Bf16), to_round, |x| {
            vec![rounded_pair(x, Format::Bf16)]
        }),
        thread(kernel!(scalar::convert_f16x2), (2, 1), Content::Pairs(Format::Fp16), to_round, |x| {
            vec![rounded_pair(x, Format::Fp16)]
        }),
        thread(
            kernel!(scalar::convert_from_f16x2),
            (1, 2),
            numbers,
            |_, case| vec![((case as u32 % (1 << 16)) * 0x1_0001) ^ 0x8000],
            |x| [x[0] & 0xFFFF, x[0] >> 16].map(|bits| converted(Format::Fp16, bits, Format::Fp32, NEAREST)).to_vec(),
        ),
        thread(
            kernel!(scalar::convert_tf32),
            (1, 1),
            numbers,
            |rng, case| vec![to_round(rng, case)[0]],
            |x| vec![rounded_to_tf32(x[0])],
        ),
        thread(
            kernel!(scalar::convert_nearest_integer),
            (1, 1),
            Content::Bits,
            // Halves of whole numbers, numbers around the largest integers, and anything.
            |rng, case| match case % 3 {
                0 => vec![(rng.random_range(-1_000_000..1_000_000) as f32 / 2.0).to_bits()],
                1 => vec![rng.random_range(0x4E80_0000..0x4F80_0000) | rng.random_range(0..2) << 31],
                _ => vec![to_round(rng, case)[0]],
            },
            |x| {
                let nearest = f64::from(f32::from_bits(x[0])).round_ties_even();
                let limits = (f64::from(i32::MIN), f64::from(i32::MAX));
                vec![if nearest.is_nan() { 0 } else { nearest.clamp(limits.0, limits.1) as i32 as u32 }]
            },
        ),
        thread(
            kernel!(scalar::convert_to_fp64),
            (1, 2),
            Content::Bits,
            // The bits of a NaN are not said.
            |rng, case| vec![Some(to_round(rng, case)[0]).filter(|&x| !f32::from_bits(x).is_nan()).unwrap_or(SIGN)],
            |x| fp64_words(as_fp64(x[0])).to_vec(),
        ),
        thread(
            kernel!(scalar::convert_from_fp64),
            (2, 1),
            numbers,
            |rng, case| {
                // Beside a number of fp32, or half a unit from it; or anything.
                let near = fp64_words(as_fp64(to_round(rng, case)[0]));
                let bits = u64::from(near[1]) << 32 | u64::from(near[0]);
                let bits = bits
                    .wrapping_add(rng.random_range(0..4) << 28)
                    .wrapping_add(rng.random_range(0..3))
                    .wrapping_sub(1);
                fp64_words(f64::from_bits(if case.is_multiple_of(8) { rng.random() } else { bits })).to_vec()
            },
            |x| vec![(fp64(x[0], x[1]) as f32).to_bits()],
        ),
        thread(
            kernel!(scalar::fma_numbers),
            (3, 1),
            numbers,
            |rng, case| to_multiply(rng, case).to_vec(),
            |x| vec![fused(x[0], x[1], x[2])],
        ),
        thread(
            kernel!(scalar::add_numbers),
            (2, 1),
            numbers,
            |rng, case| to_add(rng, case).to_vec(),
            |x| vec![fused(x[0], ONE, x[1])],
        ),
        thread(
            kernel!(scalar::subtract_numbers),
            (2, 1),
            numbers,
            |rng, case| to_add(rng, case).to_vec(),
            |x| vec![fused(x[1], ONE | SIGN, x[0])],
        ),
        thread(
            kernel!(scalar::multiply_numbers),
            (2, 1),
            numbers,
            |rng, case| to_multiply(rng, case)[..2].to_vec(),
            |x| {
                // A zero of the product's sign, which does not change its sign.
                vec![fused(x[0], x[1], (x[0] ^ x[1]) & SIGN)]
            },
        ),
        thread(
            kernel!(scalar::atomic_add),
            (2, 1),
            numbers,
            |rng, case| to_add(rng, case).to_vec(),
            |x| vec![flushed(fused(flushed(x[0]), ONE, flushed(x[1])))],
        ),
        thread(
            kernel!(atomics::atomics_u32),
            (2, 4 * atomics::INTEGER_OPERATIONS),
            Content::Bits,
            |rng, case| near_integers(rng, case, 1),
            |x| twice(integers(u64::from(x[0]), u64::from(x[1]), |x| i128::from(x as u32)).map(|x| vec![x as u32])),
        ),
        thread(
            kernel!(atomics::atomics_i32),
            (2, 4 * atomics::INTEGER_OPERATIONS),
            Content::Bits,
            |rng, case| near_integers(rng, case, 1),
            |x| twice(integers(u64::from(x[0]), u64::from(x[1]), |x| i128::from(x as i32)).map(|x| vec![x as u32])),
        ),
        thread(
            kernel!(atomics::atomics_u64),
            (4, 8 * atomics::INTEGER_OPERATIONS),
            Content::Bits,
            |rng, case| near_integers(rng, case, 2),
            |x| twice(integers(wide(x[0], x[1]), wide(x[2], x[3]), i128::from).map(|x| words(x).to_vec())),
        ),
        thread(
            kernel!(atomics::atomics_i64),
            (4, 8 * atomics::INTEGER_OPERATIONS),
            Content::Bits,
            |rng, case| near_integers(rng, case, 2),
            |x| {
                let results = integers(wide(x[0], x[1]), wide(x[2], x[3]), |x| i128::from(x as i64));
                twice(results.map(|x| words(x).to_vec()))
            },
        ),
        thread(
            kernel!(atomics::atomics_f32),
            (2, 4 * atomics::FLOAT_OPERATIONS),
            numbers,
            |rng, case| to_add(rng, case).to_vec(),
            |x| {
                let (a, b) = (f32::from_bits(x[0]), f32::from_bits(x[1]));
                let of = |sum: u32| {
                    let others = float_results(a, b).map(f32::to_bits);
                    [vec![x[0], sum], others.to_vec()].concat()
                };
                [of(flushed(fused(flushed(x[0]), ONE, flushed(x[1])))), of(fused(x[0], ONE, x[1]))].concat()
            },
        ),
        thread(
            kernel!(atomics::atomics_f64),
            (4, 8 * atomics::FLOAT_OPERATIONS),
            Content::Bits,
            // The bits of a NaN are not said.
            |rng, case| {
                let operands = to_add(rng, case).map(as_fp64).map(|x| if x.is_finite() { x } else { 1.5 });
                operands.map(fp64_words).concat()
            },
            |x| {
                let (a, b) = (fp64(x[0], x[1]), fp64(x[2], x[3]));
                let others = float_results(a, b);
                let once = [[a, a + b].to_vec(), others.to_vec()].concat().into_iter().flat_map(fp64_words);
                let once: Vec<u32> = once.collect();
                [once.clone(), once].concat()
            },
        ),
        thread(
            kernel!(atomics::atomics_f16x2),
            (2, 4 * atomics::SUM_OPERATIONS),
            Content::Pairs(Format::Fp16),
            |rng, case| pairs_to_add(rng, case, Format::Fp16),
            |x| pair_results(x, Format::Fp16),
        ),
        thread(
            kernel!(atomics::atomics_bf16x2),
            (2, 4 * atomics::SUM_OPERATIONS),
            Content::Pairs(Format::Bf16),
            |rng, case| pairs_to_add(rng, case, Format::Bf16),
            |x| pair_results(x, Format::Bf16),
        ),
        thread(
            kernel!(atomics::fences),
            (1, atomics::FENCES),
            Content::Bits,
            |rng, _| vec![rng.random()],
            |x| (0..atomics::FENCES as u32).map(|i| x[0].rotate_left(i)).collect(),
        ),
        of_warp(kernel!(mma::mma_m8n8k4_fp64), (mma::FP64_INPUTS, mma::FP64_OUTPUTS), to_multiply_fp64, |x| {
            let number = |register: usize, lane: usize| {
                fp64(x[2 * register * LANES + lane], x[(2 * register + 1) * LANES + lane])
            };
            let sum = |half: usize, lane: usize| {
                let (row, col) = (lane / 4, lane % 4 * 2 + half);
                // One fused operation for each k, in their order.
                (0..4)
                    .fold(number(2 + half, lane), |sum, k| number(0, 4 * row + k).mul_add(number(1, 4 * col + k), sum))
            };
            (0..4).flat_map(|i| (0..LANES).map(move |lane| fp64_words(sum(i / 2, lane))[i % 2])).collect()
        }),
        of_warp(kernel!(warp::shuffle_down), shuffle_words, to_shuffle, |x| {
            shuffled(x, |lane, b, first, width| (lane + b < first + width).then_some(lane + b))
        }),
        of_warp(kernel!(warp::shuffle_up), shuffle_words, to_shuffle, |x| {
            shuffled(x, |lane, b, first, _| lane.checked_sub(b).filter(|&source| source >= first))
        }),
        of_warp(kernel!(warp::shuffle_xor), shuffle_words, to_shuffle, |x| {
            shuffled(x, |lane, b, first, width| Some(lane ^ b).filter(|&source| source < first + width))
        }),
        of_warp(kernel!(warp::shuffle_idx), shuffle_words, to_shuffle, |x| {
            shuffled(x, |_, b, first, width| Some(first + b % width))
        }),
        of_warp(kernel!(warp::votes), (warp::VOTE_INPUTS, warp::VOTE_OUTPUTS), to_vote, votes),
        of_warp(
            kernel!(warp::elect_lane),
            (warp::ELECT_INPUTS, warp::ELECT_OUTPUTS),
            |_, _| vec![0],
            |_| (0..LANES).map(|lane| u32::from(lane == 0)).collect(),
        ),
        of_warp(
            kernel!(warp::load_matrices),
            (warp::LDMATRIX_INPUTS, warp::LDMATRIX_OUTPUTS),
            |rng, _| random_words(rng, warp::LDMATRIX_INPUTS),
            |x| {
                let row = |matrix: usize, row: usize| x[4 * LANES + 8 * matrix + row] as usize % LANES;
                let word = |i: usize| x[4 * row(i / LANES, i % LANES / 4) + i % 4];
                (0..4 * LANES).map(word).collect()
            },
        ),
        of_warp(kernel!(warp::copy_4_bytes), copy_words, to_copy, |x| copied(x, 1)),
        of_warp(kernel!(warp::copy_8_bytes), copy_words, to_copy, |x| copied(x, 2)),
        of_warp(kernel!(warp::copy_16_bytes), copy_words, to_copy, |x| copied(x, 4)),
    ];
    all.extend(super::collectives::instructions());
    all.extend(super::elements::instructions());
    all.extend(super::partitions::instructions());
    all.extend(super::launches::instructions());
    all.extend(super::clusters::instructions());
    all
}

pub(super) const NEAREST: Rounding = Rounding::TiesToEven;
const ONE: u32 = 0x3F80_0000;
const SIGN: u32 = 1 << 31;

/// All exponents of fp32.
const ALL_EXPONENTS: (i32, i32) = (-149, 127);

fn random_words(rng: &mut StdRng, count: usize) -> Vec<u32> {
    (0..count).map(|_| rng.random()).collect()
}

/// One of the numbers of fp32 that are special.
fn special(rng: &mut StdRng) -> u32 {
    let numbers = special_numbers(Format::Fp32);
    numbers[rng.random_range(0..numbers.len())]
}

/// A number with few bits, or one unit beside such: so that it is a tie of some format, or nearly one.
pub(super) fn nearly_tie(rng: &mut StdRng, exponents: (i32, i32)) -> u32 {
    let bits = rng.random_range(0..=23);
    number(rng, Format::Fp32, exponents, bits).wrapping_add(rng.random_range(0..3)).wrapping_sub(1)
}

/// Two numbers to be rounded.
pub(super) fn to_round(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let mut one = || match case % 4 {
        0 => rng.random(),
        1 => special(rng),
        // Where fp16 is normal, subnormal or too small, and where it ends.
        2 => nearly_tie(rng, (-28, 17)),
        _ => nearly_tie(rng, ALL_EXPONENTS),
    };
    vec![one(), one()]
}

/// Two numbers to be added.
fn to_add(rng: &mut StdRng, case: usize) -> [u32; 2] {
    let near = |rng: &mut StdRng, x: u32| {
        let exponent = (x >> 23 & 0xFF) as i32 - 127;
        number(rng, Format::Fp32, ((exponent - 26).max(-149), (exponent + 2).clamp(-149, 127)), 23)
    };
    match case % 6 {
        0 => [rng.random(), rng.random()],
        1 => [special(rng), special(rng)],
        2 => [special(rng), nearly_tie(rng, ALL_EXPONENTS)],
        3 => {
            let x = nearly_tie(rng, ALL_EXPONENTS);
            [x, near(rng, x)]
        }
        4 => {
            let x: u32 = rng.random();
            [x, (x ^ SIGN).wrapping_add(rng.random_range(0..16))]
        }
        _ => [nearly_tie(rng, (-149, -120)), nearly_tie(rng, (-149, -120))],
    }
}

/// Two factors, and what is added.
fn to_multiply(rng: &mut StdRng, case: usize) -> [u32; 3] {
    match case % 8 {
        0 => [rng.random(), rng.random(), rng.random()],
        1 => [special(rng), special(rng), special(rng)],
        2 => [special(rng), nearly_tie(rng, ALL_EXPONENTS), special(rng)],
        // Cancelled: what is left is the product's low half.
        3 => {
            let [a, b] = [(); 2].map(|()| number(rng, Format::Fp32, (-40, 40), 23));
            [a, b, fused(a, b, 0) ^ SIGN]
        }
        // Ties, as far as the sum goes.
        4 => [nearly_tie(rng, (-12, 12)), nearly_tie(rng, (-12, 12)), nearly_tie(rng, (-24, 24))],
        // Subnormal results, or none.
        5 => [number(rng, Format::Fp32, (-80, -60), 23), number(rng, Format::Fp32, (-80, -60), 23), 0],
        6 => [
            number(rng, Format::Fp32, (-80, -60), 12),
            number(rng, Format::Fp32, (-80, -60), 12),
            nearly_tie(rng, (-149, -120)),
        ],
        // The largest results, or larger.
        _ => [number(rng, Format::Fp32, (60, 66), 23), number(rng, Format::Fp32, (60, 64), 23), special(rng)],
    }
}

/// The results of all operations of `fixtures/instructions/src/atomics.rs` on whole numbers, as bits: what each returns, and what it
/// leaves. `value` is what bits stand for.
fn integers(a: u64, b: u64, value: impl Fn(u64) -> i128) -> impl Iterator<Item = u64> {
    let least = if value(a) < value(b) { a } else { b };
    let most = if value(a) > value(b) { a } else { b };
    let left =
        [a.wrapping_add(b), a.wrapping_sub(b), least, most, a & b, a | b, a ^ b, b, if a == b { a ^ b } else { a }];
    left.into_iter().flat_map(move |left| [a, left])
}

/// The words of a number of 64 bits, the lower one first.
fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The number of 64 bits of two words.
pub(super) fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The words of results, once for global and once for shared memory.
fn twice(results: impl Iterator<Item = Vec<u32>>) -> Vec<u32> {
    let once: Vec<u32> = results.flatten().collect();
    [once.clone(), once].concat()
}

/// An element and an operand of so many words: often equal, near each other, or at the ends.
pub(super) fn near_integers(rng: &mut StdRng, case: usize, words: usize) -> Vec<u32> {
    let ends = [0, 1, u64::MAX, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, u64::from(u32::MAX)];
    let a = if case.is_multiple_of(2) { rng.random() } else { ends[rng.random_range(0..ends.len())] };
    let b = match case % 4 {
        0 => rng.random(),
        1 => ends[rng.random_range(0..ends.len())],
        2 => a,
        _ => a.wrapping_add(rng.random_range(0..5)).wrapping_sub(2),
    };
    [a, b].into_iter().flat_map(|x| self::words(x)[..words].to_vec()).collect()
}

/// What exchanges, minima and maxima of numbers with a point return and leave.
fn float_results<T: Copy + PartialOrd>(a: T, b: T) -> [T; 8] {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    let chosen = |is_further: bool| if is_further || is_nan(a) { b } else { a };
    // An exchange with a comparison, if it takes place, leaves the number that was there.
    [a, b, a, a, a, chosen(b < a), a, chosen(b > a)]
}

/// Two pairs of numbers of 16 bits.
fn pairs_to_add(rng: &mut StdRng, case: usize, format: Format) -> Vec<u32> {
    let mut pair = || {
        let [low, high] = [(); 2].map(|()| match case % 3 {
            0 => rng.random::<u32>() & 0xFFFF,
            1 => converted(Format::Fp32, special(rng), format, NEAREST),
            _ => converted(Format::Fp32, nearly_tie(rng, (-16, 15)), format, NEAREST),
        });
        high << 16 | low
    };
    vec![pair(), pair()]
}

/// What sums of pairs return and leave: a sum of two such numbers has one rounding if it is computed in fp32.
fn pair_results(x: &[u32], format: Format) -> Vec<u32> {
    let of = |bits: u32| f32::from_bits(converted(format, bits & 0xFFFF, Format::Fp32, NEAREST));
    let half = |shift: u32| {
        let sum = of(x[0] >> shift) + of(x[1] >> shift);
        converted(Format::Fp32, sum.to_bits(), format, NEAREST)
    };
    let once = [x[0], half(16) << 16 | half(0), x[0], x[1], x[0], x[0]];
    [once, once].concat()
}

/// An fp32 number as an fp64 one.
fn as_fp64(x: u32) -> f64 {
    f32::from_bits(x).into()
}

/// The words of an fp64 number, the lower one first.
fn fp64_words(x: f64) -> [u32; 2] {
    [x.to_bits() as u32, (x.to_bits() >> 32) as u32]
}

/// The fp64 number of two words.
fn fp64(low: u32, high: u32) -> f64 {
    f64::from_bits(u64::from(high) << 32 | u64::from(low))
}

/// The registers of a product in fp64: numbers of all their bits, or of those of fp32, whose sums round, cancel or are exact. No products
/// without a number, whose bits nobody says.
fn to_multiply_fp64(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let (exponents, bits) = [(0..1, 52), (-30..30, 23), (-30..30, 52), (-400..400, 52), (-1..1, 3)][case % 5].clone();
    let mut number = || {
        let significand = rng.random::<u64>() >> (64 - bits) << (52 - bits);
        let exponent = (1023 + rng.random_range(exponents.clone())) as u64;
        f64::from_bits(u64::from(rng.random::<bool>()) << 63 | exponent << 52 | significand)
    };
    let registers: Vec<Vec<f64>> = (0..4).map(|_| (0..LANES).map(|_| number()).collect()).collect();
    registers
        .iter()
        .flat_map(|lanes| [0, 1].map(|word| lanes.iter().map(move |&x| fp64_words(x)[word])))
        .flatten()
        .collect()
}

/// Values, operands, and a width that there is.
fn to_shuffle(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let mut words = random_words(rng, warp::SHUFFLE_INPUTS);
    if case.is_multiple_of(2) {
        for operand in &mut words[LANES..2 * LANES] {
            *operand %= 32;
        }
    }
    words[2 * LANES] = 1 << rng.random_range(0..=5);
    words
}

/// Predicates of all kinds, and a mask of all lanes, or of some.
pub(super) fn to_vote(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let predicates: u32 = match case % 4 {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.random_range(0..32),
        _ => rng.random(),
    };
    let mask: u32 = match case / 4 % 3 {
        0 => u32::MAX,
        1 => predicates,
        _ => rng.random(),
    };
    (0..LANES).map(|lane| predicates >> lane & 1).chain([mask]).collect()
}

fn to_copy(rng: &mut StdRng, _: usize) -> Vec<u32> {
    let mut words = random_words(rng, warp::COPY_INPUTS);
    words[4 * LANES..].iter_mut().for_each(|word| *word %= 1 << 16);
    words
}

/// A number in another format.
pub(super) fn converted(from: Format, word: u32, to: Format, rounding: Rounding) -> u32 {
    match from.decode(word) {
        Number::Nan => NAN >> (32 - to.word_bits()),
        Number::Infinite { negative } => to.infinity(negative),
        Number::Finite { negative, significand, unit } => {
            to.encode(negative, significand.into(), unit, false, rounding)
        }
    }
}

/// An fp32 number rounded to TF32, ties away from zero. The low bits of a NaN are cut off, as an H200 does it.
pub(super) fn rounded_to_tf32(x: u32) -> u32 {
    match Format::Fp32.decode(x) {
        Number::Nan => x & 0xFFFF_E000,
        _ => converted(Format::Fp32, x, Format::Tf32, Rounding::TiesAway),
    }
}

/// An fp32 number rounded to TF32 by TMA of an H200: ties to even, and one NaN.
pub(super) fn loaded_as_tf32(x: u32) -> u32 {
    match Format::Fp32.decode(x) {
        Number::Nan => 0x7FFF_E000,
        _ => converted(Format::Fp32, x, Format::Tf32, NEAREST),
    }
}

fn rounded_pair(x: &[u32], to: Format) -> u32 {
    converted(Format::Fp32, x[1], to, NEAREST) << 16 | converted(Format::Fp32, x[0], to, NEAREST)
}

/// Zero for a subnormal number.
fn flushed(word: u32) -> u32 {
    if word >> 23 & 0xFF == 0 { word & SIGN } else { word }
}

/// A shuffle: `source` gives the lane to take from, of the lane, its operand modulo 32, and the first lane and the width of its segment.
fn shuffled(x: &[u32], source: impl Fn(usize, usize, usize, usize) -> Option<usize>) -> Vec<u32> {
    let width = x[2 * LANES] as usize;
    let sources: Vec<_> =
        (0..LANES).map(|lane| source(lane, x[LANES + lane] as usize % 32, lane / width * width, width)).collect();
    let values = sources.iter().enumerate().map(|(lane, source)| x[source.unwrap_or(lane)]);
    values.chain(sources.iter().map(|source| source.is_some().into())).collect()
}

fn votes(x: &[u32]) -> Vec<u32> {
    let mask = x[LANES];
    let ballots: Vec<(u32, u32)> = (0..LANES)
        .map(|lane| {
            let mask = if mask >> lane & 1 == 1 { mask } else { !mask };
            let predicates = (0..LANES).filter(|&lane| x[lane] != 0).fold(0, |all, lane| all | 1 << lane);
            (mask, predicates & mask)
        })
        .collect();
    let all = ballots.iter().map(|(mask, ballot)| u32::from(mask == ballot));
    let any = ballots.iter().map(|(_, ballot)| u32::from(*ballot != 0));
    all.chain(any).chain(ballots.iter().map(|(_, ballot)| *ballot)).collect()
}

fn copied(x: &[u32], words: usize) -> Vec<u32> {
    let mut shared = vec![COPY_UNTOUCHED; 4 * LANES];
    for lane in 0..LANES {
        let (unit, count) = (x[4 * LANES + lane] as usize % LANES, x[5 * LANES + lane] as usize % (words + 1));
        for i in 0..words {
            shared[(LANES - 1 - lane) * words + i] = if i < count { x[unit * words + i] } else { 0 };
        }
    }
    shared
}
