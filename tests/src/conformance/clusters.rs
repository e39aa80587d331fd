//! Clusters of blocks: what has to come out. Of each case, a cluster, threads are counted over its blocks.

use rand::RngExt;
use rand::rngs::StdRng;

use super::kernels::clusters::{self, BLOCKS, INPUTS, THREADS};
use super::machine::Launch;
use super::words::{Content, Instruction};
use crate::device_features::Launcher;

/// A kernel that is launched with a cluster for each case.
macro_rules! cluster_kernel {
    ($kernel:ident) => {{
        let launch: Launch = |machine, input, output, cases| {
            // SAFETY: the views are of memory that is there until the kernel has finished: `Machine::run` lends it.
            unsafe { machine.launch(clusters::$kernel { input, output }, BLOCKS * cases) }
        };
        (stringify!($kernel), launch)
    }};
}

/// All of them.
pub(super) fn instructions() -> Vec<Instruction> {
    let of_cluster = |(name, launch), outputs: usize, reference| Instruction {
        name,
        launch,
        inputs: INPUTS,
        outputs: outputs * INPUTS,
        cases_of_block: 1,
        content: Content::Bits,
        operands,
        reference,
    };
    vec![
        of_cluster(cluster_kernel!(cluster_positions), clusters::POSITIONS, |x| {
            by_thread(x, |thread| {
                let rank = (thread / THREADS) as u32;
                vec![rank, BLOCKS, rank, 0, BLOCKS, 2, 1, x[thread]]
            })
        }),
        of_cluster(cluster_kernel!(cluster_elements), clusters::ELEMENTS, |x| {
            by_thread(x, |thread| {
                let wide = |x: u32| (u64::from(x) << 32 | u64::from(x)) ^ 0xFF00_FF00;
                let [low, high] = [|x: u64| x as u32, |x: u64| (x >> 32) as u32];
                // What the block before has stored here.
                let y = x[(thread + INPUTS - THREADS) % INPUTS];
                let own = [y & 255, y >> 8 & 0xFFFF, y, low(wide(y)), !y, y ^ 2, low(wide(y)), high(!wide(y))];
                let x = x[thread];
                let back = [x & 255, x >> 8 & 0xFFFF, x, high(wide(x)), x, x ^ 1, high(wide(x)), low(!wide(x))];
                [own, back].concat()
            })
        }),
        of_cluster(cluster_kernel!(cluster_atomics), clusters::ATOMICS, |x| by_thread(x, |thread| atomics(x[thread]))),
        of_cluster(cluster_kernel!(cluster_contended), clusters::CONTENDED, |x| {
            let sum = x.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
            let (max, xor) = (x.iter().fold(0, |max, x| max.max(*x)), x.iter().fold(0, |xor, x| xor ^ x));
            by_thread(x, |_| vec![sum, max, xor, 1])
        }),
        of_cluster(cluster_kernel!(cluster_arrivals), clusters::ARRIVALS, |x| {
            by_thread(x, |thread| {
                let y = x[((thread ^ 5) + INPUTS - THREADS) % INPUTS];
                vec![y, y.wrapping_add(1)]
            })
        }),
        of_cluster(cluster_kernel!(cluster_meetings), clusters::MEETINGS, |x| {
            // Ranks and threads the other way round.
            let told = |thread: usize| x[INPUTS - 1 - thread];
            let told_by_same_thread = |thread: usize| told(thread) ^ x[thread].count_ones();
            let last = INPUTS - THREADS;
            by_thread(x, |thread| {
                if thread >= last {
                    return vec![told(thread), x[thread].count_ones()];
                }
                vec![told(thread), told_by_same_thread((thread + THREADS) % last)]
            })
        }),
    ]
}

/// A word for each thread.
fn operands(rng: &mut StdRng, _: usize) -> Vec<u32> {
    (0..INPUTS).map(|_| rng.random()).collect()
}

/// What each thread of a cluster makes.
fn by_thread(x: &[u32], of: impl Fn(usize) -> Vec<u32>) -> Vec<u32> {
    (0..x.len()).flat_map(of).collect()
}

/// What atomic operations on one element return, and what they leave.
fn atomics(a: u32) -> Vec<u32> {
    let b = a.rotate_left(11);
    let mut words = Vec::new();
    let steps: [fn(u32, u32, u32) -> u32; 9] = [
        |x, _, b| x.wrapping_add(b),
        |x, _, b| x.wrapping_sub(b),
        |x, _, b| x.min(b),
        |x, a, _| x.max(a),
        |x, _, b| x & b,
        |x, a, _| x | a,
        |x, _, b| x ^ b,
        |_, _, b| b,
        |x, a, b| if x == b { a } else { x },
    ];
    steps.iter().fold(a, |before, step| {
        let after = step(before, a, b);
        words.extend([before, after]);
        after
    });
    let (wide_a, wide_b) = (u64::from(a) << 20 | u64::from(b), u64::from(b) << 32);
    let before = wide_a.wrapping_add(wide_b);
    let sum = (f64::from(a) + f64::from(b) / 8.0).to_bits();
    let halves = |wide: u64| [wide as u32, (wide >> 32) as u32];
    words.extend(halves(before));
    words.extend(halves(before.max(wide_a)));
    words.push(((a >> 8) as f32 + (b >> 8) as f32).to_bits());
    words.extend(halves(sum));
    // 1 + 3 and 2 + 1.5.
    words.extend([0x4060_4080, a, b]);
    words
}
