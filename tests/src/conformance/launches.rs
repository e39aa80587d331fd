//! What launches choose, clocks, and hints for the caches: what has to come out.

use rand::RngExt;
use rand::rngs::StdRng;

use super::kernels::{cache, launches};
use super::machine::Launch;
use super::words::{Content, Instruction, kernel};
use crate::device_features::Launcher;

/// The block that [`chosen`] launches, and the dynamic shared memory: as many bytes as no unit of hardware has.
const BLOCK: [u32; 3] = [24, 4, 1];
const SHARED_BYTES: u32 = 50_003;

/// What the launches of [`launches::parameters`] give to it: no two are the same.
const TABLES: launches::Tables = {
    let (mut words, mut bytes, mut i) = ([0; 32], [[0; 8]; 8], 0);
    while i < 64 {
        words[i % 32] = (i as u32 + 1).wrapping_mul(2_654_435_761);
        bytes[i / 8][i % 8] = (3 * i + 7) as u8;
        i += 1;
    }
    launches::Tables { first: [5, 0x1001], words, bytes, numbers: [0.1, -2.5, 1e300, f64::INFINITY] }
};
const WEIGHTS: [u32; 20] = {
    let (mut weights, mut i) = ([0; 20], 0);
    while i < 20 {
        weights[i] = (i as u32 + 3).wrapping_mul(0x9E37_79B9);
        i += 1;
    }
    weights
};

/// All of them.
pub(super) fn instructions() -> Vec<Instruction> {
    let thread = Instruction::of_thread;
    let chosen: Launch = |machine, input, output, blocks| {
        let kernel = launches::chosen_launch { input, output, block: BLOCK.into(), dynamic_shared_bytes: SHARED_BYTES };
        // SAFETY: the views are of memory that is there until the kernel has finished: `Machine::run` lends it.
        unsafe { machine.launch(kernel, blocks) }
    };
    let parameters: Launch = |machine, input, output, blocks| {
        let kernel = launches::parameters { tables: TABLES, weights: WEIGHTS, input, output };
        // SAFETY: as above.
        unsafe { machine.launch(kernel, blocks) }
    };
    let threads = (BLOCK[0] * BLOCK[1]) as usize;
    let mut all = vec![
        Instruction {
            name: "chosen_launch",
            launch: chosen,
            inputs: threads,
            outputs: launches::CHOICES * threads,
            cases_of_block: 1,
            content: Content::Bits,
            operands: |rng, _| (0..BLOCK[0] * BLOCK[1]).map(|_| rng.random()).collect(),
            reference: |x| x.iter().rev().flat_map(|&x| [BLOCK[0], BLOCK[1], SHARED_BYTES, x]).collect(),
        },
        thread(
            kernel!(launches::clocks),
            (1, launches::CLOCKS),
            Content::Bits,
            |rng, _| vec![rng.random()],
            |x| vec![1, 1, 1, x[0].count_ones()],
        ),
        thread(
            kernel!(launches::constants),
            (1, launches::CONSTANTS),
            Content::Bits,
            |rng, _| vec![rng.random()],
            |x| {
                let (x, place) = (x[0], (x[0] >> 8 & 15) * 16 + (x[0] >> 16 & 15));
                let number = [0.1f64, -2.5, 1e300, f64::INFINITY][(x >> 24 & 3) as usize].to_bits();
                vec![(x & 255).wrapping_mul(2_654_435_761), place * 7 % 251, number as u32, (number >> 32) as u32]
            },
        ),
        thread(
            ("parameters", parameters),
            (1, launches::PARAMETERS),
            Content::Bits,
            |rng, _| vec![rng.random()],
            |x| {
                let at = x[0] as usize;
                let word = TABLES.words[at % 32].wrapping_mul(TABLES.first[1]).wrapping_add(WEIGHTS[at % 16 + 4]);
                let byte = TABLES.bytes[(at >> 8) % 8][(at >> 16) % 8];
                let number = TABLES.numbers[(at >> 24) % 4].to_bits();
                vec![word, byte.into(), number as u32, (number >> 32) as u32]
            },
        ),
        thread(
            kernel!(launches::local_array),
            (1, launches::LOCALS),
            Content::Bits,
            // Small numbers, too, which come to 1 in few steps.
            |rng, case| vec![rng.random::<u32>() >> (case % 32)],
            |x| {
                let digits = |digit| (0..8).filter(move |i| x[0] >> (4 * i) & 15 == digit);
                vec![steps(x[0]), digits(x[0] >> 13 & 15).map(|i| 1 + i).sum()]
            },
        ),
    ];
    all.extend(
        hints().map(|kernel| thread(kernel, (cache::WORDS, cache::OUTPUTS), Content::Bits, line, |x| x.repeat(4))),
    );
    all
}

/// What `launches::steps` makes of a number, by a loop.
fn steps(x: u32) -> u32 {
    let mut numbers = vec![x];
    while numbers.len() <= launches::DEPTH as usize && numbers[numbers.len() - 1] > 1 {
        let last = numbers[numbers.len() - 1];
        numbers.push(if last.is_multiple_of(2) { last / 2 } else { last.wrapping_mul(3).wrapping_add(1) });
    }
    numbers.pop();
    numbers.into_iter().rev().fold(0, |behind, x| behind + 1 + (behind & x & 1))
}

fn hints() -> [(&'static str, Launch); 9] {
    [
        kernel!(cache::cache_l2_only),
        kernel!(cache::cache_streaming),
        kernel!(cache::cache_last_use),
        kernel!(cache::cache_uncached),
        kernel!(cache::cache_read_only),
        kernel!(cache::cache_read_only_once),
        kernel!(cache::cache_no_allocate),
        kernel!(cache::cache_evict_first),
        kernel!(cache::cache_evict_last),
    ]
}

fn line(rng: &mut StdRng, _: usize) -> Vec<u32> {
    (0..cache::WORDS).map(|_| rng.random()).collect()
}
