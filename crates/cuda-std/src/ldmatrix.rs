//! Loads that bring tiles from shared memory into registers as tensor cores want them (`ldmatrix`, sm_75).
//!
//! The instruction knows matrices of 8 rows of 16 bytes, eight 16-bit numbers each. Seen as 32-bit words they are 8×4, and a
//! warp receives one word in each lane:
//!
//! ```text
//!            word 0    1    2    3
//! row 0   lane    0    1    2    3         lane (g, q) = 4·g + q gets word q of row g: the place that it has
//! row 1           4    5    6    7         in the fragments of `mma`, be the words fp32 numbers or pairs of
//!  …                                       16-bit ones
//! row 7          28   29   30   31
//! ```

use crate::{Element, SharedSlice};

/// Loads four matrices of 8 rows of 4 words: lane `4·g + q` receives word `q` of row `g` of each.
/// (`ldmatrix.sync.aligned.m8n8.x4.shared.b16`, sm_75.)
///
/// `row` is the index of the first of the 4 words of a row, a different one in each lane: lanes 0 to 7 name the rows of the
/// first matrix, lanes 8 to 15 those of the second, and so on.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, ldmatrix::ldmatrix_x4, prelude::*};
/// let words = run(32, || {
///     let lane = warp::lane_id();
///     // SAFETY: inside of the dynamic shared memory, rows at multiples of 16 bytes; a barrier separates writes from reads.
///     unsafe {
///         let tile = dynamic_shared::<u32>(0, 128);
///         (0..4).for_each(|i| tile.write((32 * i + lane) as usize, 32 * i + lane));
///         thread::sync_threads();
///         ldmatrix_x4(&tile, 4 * lane as usize)
///     }
/// });
/// // Lane 4·g + q has word q of row g of each matrix.
/// assert_eq!(words[5], [5, 32 + 5, 64 + 5, 96 + 5]);
/// ```
///
/// # Safety
/// - All 32 lanes of the warp call this function together.
/// - The 4 elements from `row` on are inside the slice; the first of them lies at a multiple of 16 bytes of the dynamic
///   shared memory.
/// - They have been written, and a barrier (or a `sync_warp`) separates the writes of other lanes from this call.
///
/// (All of this is checked on the CPU.)
#[inline(always)]
#[track_caller]
pub unsafe fn ldmatrix_x4<T: Element>(rows: &SharedSlice<T>, row: usize) -> [T; 4] {
    const { assert!(size_of::<T>() == 4, "ldmatrix is wrapped for elements of 4 bytes") };
    #[cfg(target_arch = "nvptx64")]
    {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: in bounds, aligned, free of races, and executed by the whole warp, by the caller's promise. Not `pure`: it
        // may not move across a barrier.
        unsafe {
            core::arch::asm!(
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{a}, {b}, {c}, {d}}}, [{address}];",
                a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                address = in(reg32) rows.shared_address(row),
                options(readonly, nostack, preserves_flags),
            );
        }
        // SAFETY: an element of 4 bytes, of which every pattern of bits is a value.
        [a, b, c, d].map(|word| unsafe { core::mem::transmute_copy(&word) })
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        use crate::executor::{self, PAYLOAD, WarpOperation};
        let mut payload = [0; PAYLOAD];
        let row = executor::change_index("ldmatrix", row, 4);
        payload[0] = executor::dynamic_shared_place(rows.place(), row, 16) as u32;
        let row = payload[0] as usize;
        let places = executor::collective(WarpOperation::LoadMatrices, payload, |lanes| {
            let rows: [u32; 32] = core::array::from_fn(|lane| lanes[lane][0]);
            for (lane, places) in lanes.iter_mut().enumerate() {
                (0..4).for_each(|matrix| places[matrix] = rows[8 * matrix + lane / 4]);
            }
        });
        // Its row is what a lane has read for all of them.
        executor::note_vector(executor::AccessKind::Read, row, 16, 4, core::panic::Location::caller());
        let word = crate::warp::lane_id() as usize % 4;
        // Each lane reads what it receives. (Written out, so that a fault is reported at the caller's line.)
        [
            executor::dynamic_shared_read(places[0] as usize, 4, word),
            executor::dynamic_shared_read(places[1] as usize, 4, word),
            executor::dynamic_shared_read(places[2] as usize, 4, word),
            executor::dynamic_shared_read(places[3] as usize, 4, word),
        ]
    }
}
