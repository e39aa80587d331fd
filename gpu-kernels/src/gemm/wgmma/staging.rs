//! Results on their way to memory: a warpgroup writes them to shared memory, and a warp of its own has the copy engine store them.
//!
//! ```text
//!  warpgroup, 64×128 sums         in shared memory, two boxes of 64×64            global memory
//!                                  ┌─────────────┬─────────────┐
//!  ─► wait until it is empty,  ──► │     16K     │     16K     │ ─── copy engine ──►  pieces of rows of 256 bytes
//!     write, tell that it is full  └─────────────┴─────────────┘
//!                                       ▲
//!  warp: wait until it is full, have it stored, wait until it has been read, tell that it is empty
//! ```
//!
//! The copy engine takes its time where memory is busy, and whoever asks it for something else meanwhile has to wait: nobody who
//! has products to compute should.
//!
//! # The width of a box
//!
//! On an H200, storing 32768×32768 elements takes 1.00 ms in boxes of 64 columns, without anything else, and 1.08 ms in boxes of 32,
//! as wide as a swizzle allows; where operands are loaded meanwhile, the difference is larger (2026-11-21). So boxes are not
//! swizzled, all rows begin in the same bank, and it is the warps that see to it that they write to different ones:
//!
//! ```text
//!              columns 0–7  8–15  16–23  24–31         what a warp writes at a time, for the first eight of its pairs of each
//!   row 0, 4:      ■                                   thread: 32 bytes in each of eight rows, in four places of the row
//!   row 1, 5:            ■
//!   row 2, 6:                   ■                      row r begins with pair r mod 4 of each four pairs, which threads bring
//!   row 3, 7:                          ■               to the same register by exchanges in themselves
//! ```

use cuda_std::hopper;
use cuda_std::prelude::*;

use super::pipeline::PART;
use super::scaled::HALF;

/// The columns of a box.
const COLUMNS: u32 = 64;
/// The part of C that the copy engine stores at a time: columns, rows.
pub const STORED: [u32; 2] = [COLUMNS, PART];
/// The elements of such a part.
const BOX: u32 = COLUMNS * PART;
/// The elements that a warpgroup writes at a time.
const ELEMENTS: u32 = PART * HALF;
/// The shared memory of two warpgroups, in bytes. It begins at a multiple of 1024.
pub(super) const STAGING_BYTES: u32 = 2 * ELEMENTS * 4;
/// The pairs of neighbours that a thread has in a row: 8 columns apart.
pub(super) const PAIRS: usize = (HALF / 8) as usize;
/// The threads that meet at a barrier: a warpgroup and a warp.
const THREADS: u32 = 128 + warp::LANES;

/// Where the results of one warpgroup are in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Staging {
    memory: SharedSlice<f32>,
    part: u32,
}

impl Staging {
    /// What belongs to warpgroup `part`, of 0 and 1, in the shared memory from byte `offset` on.
    ///
    /// # Safety
    /// The block has [`STAGING_BYTES`] there, and uses the barriers 1 to 4 for nothing else.
    #[inline(always)]
    pub(super) unsafe fn new(offset: u32, part: u32) -> Self {
        // SAFETY: the caller's promise.
        let memory = unsafe { dynamic_shared((offset + part * ELEMENTS * 4) as usize, ELEMENTS as usize) };
        Self { memory, part }
    }

    /// The barrier that the warpgroup passes when the copy engine has read what there was.
    #[inline(always)]
    fn empty(self) -> u32 {
        1 + self.part
    }

    /// The barrier that the storing warp passes when everything has been written.
    #[inline(always)]
    fn full(self) -> u32 {
        3 + self.part
    }

    /// Waits until results may be written.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, once before each [`Staging::filled`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait_empty(self) {
        // SAFETY: the storing warp comes there once for each of its stores, which are as many.
        unsafe { hopper::sync_part::<THREADS>(self.empty()) }
    }

    /// Writes what a thread has of a row: pair p of it are the columns `8p + 2·(lane mod 4)` and the next.
    ///
    /// # Safety
    /// Between [`Staging::wait_empty`] and [`Staging::filled`], by all lanes of a warp, for rows below 64: `row` is the sum of a
    /// multiple of 8, the same for all lanes, and `lane / 4`.
    #[inline(always)]
    pub(super) unsafe fn write_row(self, row: u32, mut pairs: [[f32; 2]; PAIRS]) {
        exchange(&mut pairs, 1, row & 1 != 0);
        exchange(&mut pairs, 2, row & 2 != 0);
        for number in 0..PAIRS {
            let col = 8 * (number as u32 ^ (row & 3)) + 2 * (warp::lane_id() & 3);
            // SAFETY: inside the memory; nobody else accesses these elements meanwhile.
            unsafe { self.memory.write2(place(row, col) as usize, pairs[number]) }
        }
    }

    /// Tells that everything has been written.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, once after each [`Staging::wait_empty`].
    #[inline(always)]
    pub(super) unsafe fn filled(self) {
        hopper::fence_async_shared();
        // SAFETY: the storing warp comes there once for each of its stores, which are as many.
        unsafe { hopper::arrive_at_part::<THREADS>(self.full()) }
    }

    /// Has the next results stored, at these coordinates of the first: column, row, product.
    ///
    /// # Safety
    /// Called by all lanes of the storing warp, as often as the warpgroup calls [`Staging::filled`]. The map's box is [`STORED`].
    /// No other thread accesses these elements of C.
    #[inline(always)]
    pub(super) unsafe fn store(self, map: TensorMapMut<'_>, [col, row, product]: [u32; 3]) {
        // SAFETY: all lanes come here. One of them, always the same, has the stores made and waits for them, before the others say
        // so and the warpgroup writes again. What has been written can be seen by the copy engine: all threads have made it so
        // before they came to the barrier.
        unsafe {
            Self::wait_until_read();
            hopper::arrive_at_part::<THREADS>(self.empty());
            hopper::sync_part::<THREADS>(self.full());
            if hopper::elect_one() {
                for index in 0..HALF / COLUMNS {
                    let at = [col + index * COLUMNS, row, product];
                    hopper::store_tile(self.memory, (index * BOX) as usize, map, at);
                }
                hopper::commit_stores();
            }
        }
    }

    /// Waits until the copy engine has read everything that this warp has had stored. After the last store, too: the memory of a
    /// block that has ended may be another one's.
    ///
    /// # Safety
    /// Called by all lanes of the storing warp.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait_until_read() {
        // SAFETY: all lanes come here.
        unsafe {
            if hopper::elect_one() {
                hopper::wait_for_stores::<0>();
            }
            warp::sync_warp(warp::ALL_LANES);
        }
    }
}

/// Exchanges each element with the one `distance` further on, of twice as many at a time, if `wanted`.
#[inline(always)]
fn exchange(pairs: &mut [[f32; 2]; PAIRS], distance: usize, wanted: bool) {
    for one in 0..PAIRS {
        if one & distance == 0 {
            let (near, far) = (pairs[one], pairs[one + distance]);
            for i in 0..2 {
                pairs[one][i] = if wanted { far[i] } else { near[i] };
                pairs[one + distance][i] = if wanted { near[i] } else { far[i] };
            }
        }
    }
}

/// Where an element is: one box after the other, and in a box one row after the other.
#[inline(always)]
fn place(row: u32, col: u32) -> u32 {
    col / COLUMNS * BOX + row * COLUMNS + col % COLUMNS
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_element_has_a_place_and_pairs_stay_together() {
        let places: HashSet<u32> = (0..ELEMENTS).map(|i| place(i / HALF, i % HALF)).collect();
        assert_eq!(places.len(), ELEMENTS as usize);
        assert!(places.iter().all(|&place| place < ELEMENTS));
        for i in (0..ELEMENTS).step_by(2) {
            assert_eq!(place(i / HALF, i % HALF) + 1, place(i / HALF, i % HALF + 1));
            assert!(place(i / HALF, i % HALF).is_multiple_of(2));
        }
    }

    #[test]
    fn exchanges_bring_each_pair_to_where_its_row_has_it() {
        for row in 0..8u32 {
            let mut pairs = core::array::from_fn(|number| [number as f32, -(number as f32)]);
            exchange(&mut pairs, 1, row & 1 != 0);
            exchange(&mut pairs, 2, row & 2 != 0);
            for (number, [one, other]) in pairs.into_iter().enumerate() {
                assert_eq!(one, (number as u32 ^ (row & 3)) as f32);
                assert_eq!(other, -one);
            }
        }
    }

    #[test]
    fn half_a_warp_writes_to_every_bank_once() {
        for (number, half) in (0..PAIRS as u32).flat_map(|number| [(number, 0), (number, 1)]) {
            let words = (16 * half..16 * half + 16).flat_map(|lane: u32| {
                let row = lane / 4;
                let first = place(row, 8 * (number ^ (row & 3)) + 2 * (lane & 3));
                [first, first + 1]
            });
            let banks: HashSet<u32> = words.map(|word| word % 32).collect();
            assert_eq!(banks.len(), 32, "pair {number}, half {half}");
        }
    }
}
