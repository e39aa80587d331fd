//! A 4 × 4 transpose of words among four lanes of a warp, 4·g to 4·g + 3, which have a row of the accumulators of tensor cores together.

use cuda_std::prelude::*;

/// Of four lanes with four words each, word `c` of all of them, for lane `c` of the four. So pairs of columns that tensor cores have left in
/// each lane become 16 bytes that lie side by side.
///
/// ```text
///  lane        0   1   2   3                 0   1   2   3
///  word 0      a0  b0  c0  d0                a0  a1  a2  a3
///  word 1      a1  b1  c1  d1     ───►       b0  b1  b2  b3
///  word 2      a2  b2  c2  d2                c0  c1  c2  c3
///  word 3      a3  b3  c3  d3                d0  d1  d2  d3
/// ```
///
/// # Safety
/// The whole warp comes here together; `c` is the number of the lane modulo 4.
#[inline(always)]
pub(crate) unsafe fn transposed(words: [u32; 4], c: u32) -> [u32; 4] {
    let exchange = |value: u32, distance: u32| {
        // SAFETY: the caller's promise.
        unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance, warp::LANES) }.0
    };
    // All bits or none. Branches on the same condition before and behind a shuffle would have the compiler copy it into both arms.
    let mut masks = [c & 1, c >> 1].map(|bit| 0u32.wrapping_sub(bit));
    // A selection is one instruction, unless the compiler finds out that the mask's inverse is a number less one, and selects in two.
    hint::pin(&mut masks);
    let [odd, upper] = masks;
    let select = |mask: u32, one: u32, other: u32| one & mask | other & !mask;
    // Words c mod 2 and c mod 2 + 2, of the lower and of the upper lane of two.
    let mut two = [[0; 2]; 2];
    for i in 0..2 {
        let [even_word, odd_word] = [words[2 * i], words[2 * i + 1]];
        let received = exchange(select(odd, even_word, odd_word), 1);
        two[i] = [select(odd, received, even_word), select(odd, odd_word, received)];
    }
    // Word c, of the lower and of the upper two lanes.
    let mut four = [0; 4];
    for i in 0..2 {
        let received = exchange(select(upper, two[0][i], two[1][i]), 2);
        four[i] = select(upper, received, two[0][i]);
        four[2 + i] = select(upper, two[1][i], received);
    }
    four
}
