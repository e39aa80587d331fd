//! Philox against the answers that its authors publish (Random123, `kat_vectors`, `philox4x32` with 10 rounds), and where warps make many numbers.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::philox::{philox_4x32_10, philox_words_u32, reference};

/// Counter, key, words.
const KNOWN: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
    ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
    ([u32::MAX; 4], [u32::MAX; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
    (
        [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
        [0xA409_3822, 0x299F_31D0],
        [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
    ),
];

#[test]
fn the_words_are_those_that_the_authors_publish() {
    for (counter, key, words) in KNOWN {
        assert_eq!(philox_4x32_10(counter, key), words, "the kernels': counter {counter:X?}, key {key:X?}");
        assert_eq!(reference(counter, key), words, "the reference's: counter {counter:X?}, key {key:X?}");
    }
}

/// By so few blocks that each warp comes to the next counters again and again.
#[test]
fn warps_go_on_with_what_the_last_lane_had() {
    const VECTOR: usize = 4;
    let (key, stream) = (0x0123_4567_89AB_CDEF, 0x0FED_CBA9_8765_4321);
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    for (blocks, len, offset) in [(1, 5000, 1), (1, 4096, 2), (2, 10_001, 3), (3, 6143, 0), (1, 5000, (1 << 34) - 2003)]
    {
        let mut words = vec![[0u32; VECTOR]; usize::div_ceil(len, VECTOR)];
        let words = &mut words.as_flattened_mut()[..len];
        let kernel = philox_words_u32 { key, stream, offset, y: GlobalSliceMut::new(words) };
        // SAFETY: the view is of memory of this processor, which nobody else accesses meanwhile.
        unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(blocks)) }.unwrap();
        for (index, word) in words.iter().enumerate() {
            let position = offset + index as u64;
            let ([a, b], [c, d]) = (halves(position / 4), halves(stream));
            let expected = reference([a, b, c, d], halves(key))[(position % 4) as usize];
            assert_eq!(*word, expected, "number {index} of {len} from {offset} on, by {blocks} blocks");
        }
    }
}
