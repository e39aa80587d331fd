//! Philox against the answers that its authors publish (Random123, `kat_vectors`, `philox4x32` with 10 rounds).

use patterns_kernels::philox::{philox_4x32_10, reference};

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
