//! Results on their way to global memory: a warpgroup writes its accumulators to shared memory, and a storing warp of its own
//! issues the TMA stores.
//!
//! ```text
//!  warpgroup, 64×128 results      in shared memory, two boxes of 64×64            global memory
//!                                  ┌─────────────┬─────────────┐
//!  ─► wait until it is empty,  ──► │     16K     │     16K     │ ─── TMA store ──►  pieces of rows of 256 bytes
//!     write, arrive: it is full    └─────────────┴─────────────┘
//!                                       ▲
//!  storing warp: wait until it is full, store, wait until TMA has read it, arrive: it is empty
//! ```
//!
//! A thread that issues a TMA operation while the queue of TMA is full has to wait. The storing warp has nothing else to do; the
//! warpgroup never waits for TMA itself.
//!
//! # The width of a box
//!
//! A box is 64 columns wide: 256 bytes of a row, where a swizzle allows 128. So boxes are not swizzled, all rows begin in the same
//! bank, and it is the warps that see to it that they write to different ones:
//!
//! ```text
//!              columns 0–7  8–15  16–23  24–31         what a warp writes at a time, for the first eight of its pairs of each
//!   row 0, 4:      ■                                   thread: 32 bytes in each of eight rows, in four places of the row
//!   row 1, 5:            ■
//!   row 2, 6:                   ■                      row r begins with pair r mod 4 of each four pairs, which a thread
//!   row 3, 7:                          ■               brings to the same register by exchanging its own registers
//! ```

use cuda_std::hopper;
use cuda_std::prelude::*;

use crate::named_barrier::{NamedBarrier, NamedBarrierIds, NamedBarriers};
use crate::shared_layout::{SharedArray, SharedLayout};

/// The rows that a warpgroup stages at a time.
pub const ROWS: u32 = 64;
/// The columns that a warpgroup stages at a time.
pub const COLS: u32 = 128;
/// The columns of a box.
const BOX_COLS: u32 = 64;
/// The box of a TMA store: columns, rows.
pub const BOX: [u32; 2] = [BOX_COLS, ROWS];
/// The elements of a box.
const BOX_LEN: u32 = BOX_COLS * ROWS;
/// The elements that a warpgroup stages at a time.
const LEN: u32 = ROWS * COLS;
/// The pairs of neighbours that a thread has in a row: 8 columns apart.
pub const PAIRS: usize = (COLS / 8) as usize;
/// The warpgroups that stage results.
const WARPGROUPS: u32 = 2;
/// The threads that meet at a barrier: a warpgroup and a storing warp.
const THREADS: u32 = 128 + warp::LANES;

/// What two warpgroups need to stage results: part of a kernel's constants.
#[derive(Clone, Copy)]
pub struct StagingMemory {
    results: SharedArray<f32>,
    empty: NamedBarriers<WARPGROUPS, THREADS>,
    full: NamedBarriers<WARPGROUPS, THREADS>,
}

impl StagingMemory {
    /// Adds it to a kernel's shared memory and named barriers.
    pub const fn new(layout: &mut SharedLayout, ids: &mut NamedBarrierIds) -> Self {
        Self { results: layout.aligned(WARPGROUPS * LEN, 1024), empty: ids.group(), full: ids.group() }
    }
}

/// Where the results of one warpgroup are in shared memory.
#[derive(Clone, Copy)]
pub struct Staging {
    memory: SharedSlice<f32>,
    empty: NamedBarriers<WARPGROUPS, THREADS>,
    full: NamedBarriers<WARPGROUPS, THREADS>,
    warpgroup: u32,
}

impl Staging {
    /// What belongs to warpgroup `warpgroup`, 0 or 1.
    ///
    /// # Safety
    /// As for [`SharedArray::slice`].
    #[inline(always)]
    pub unsafe fn new(memory: StagingMemory, warpgroup: u32) -> Self {
        // SAFETY: the caller's promise.
        let results = unsafe { memory.results.part(warpgroup * LEN, LEN) };
        Self { memory: results, empty: memory.empty, full: memory.full, warpgroup }
    }

    /// Where the storing warp arrives when TMA has read the results, and the warpgroup waits.
    #[inline(always)]
    fn empty(self) -> NamedBarrier<THREADS> {
        self.empty.at(self.warpgroup)
    }

    /// Where the warpgroup arrives when it has written results, and the storing warp waits.
    #[inline(always)]
    fn full(self) -> NamedBarrier<THREADS> {
        self.full.at(self.warpgroup)
    }

    /// Waits until results may be written.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, once before each [`Staging::commit`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn acquire(self) {
        // SAFETY: the storing warp comes there once for each of its stores, which are as many.
        unsafe { self.empty().sync() }
    }

    /// Writes what a thread has of a row: pair p of it are the columns `8p + 2·(lane mod 4)` and the next.
    ///
    /// # Safety
    /// Between [`Staging::acquire`] and [`Staging::commit`], by all lanes of a warp, for rows below 64: `row` is the sum of a
    /// multiple of 8, the same for all lanes, and `lane / 4`.
    #[inline(always)]
    pub unsafe fn write_row(self, row: u32, mut pairs: [[f32; 2]; PAIRS]) {
        exchange(&mut pairs, 1, row & 1 != 0);
        exchange(&mut pairs, 2, row & 2 != 0);
        for number in 0..PAIRS {
            let col = 8 * (number as u32 ^ (row & 3)) + 2 * (warp::lane_id() & 3);
            // SAFETY: inside the memory; nobody else accesses these elements meanwhile.
            unsafe { self.memory.write2(place(row, col) as usize, pairs[number]) }
        }
    }

    /// The shared memory of the results, for threads that read and write what the warpgroup has written before they commit it.
    ///
    /// ```
    /// use blocks::staging::Staging;
    /// use cuda_std::SharedSlice;
    ///
    /// fn element(staging: Staging, row: u32, col: u32) -> (SharedSlice<f32>, u32) {
    ///     (staging.memory(), Staging::place(row, col))
    /// }
    /// ```
    #[inline(always)]
    pub fn memory(self) -> SharedSlice<f32> {
        self.memory
    }

    /// Where in that memory a result is. From a column on that is a multiple of 4, four neighbours in a row are side by side and aligned.
    ///
    /// ```
    /// use blocks::staging::Staging;
    ///
    /// assert_eq!([Staging::place(0, 3), Staging::place(1, 0)], [3, 64]);
    /// ```
    #[inline(always)]
    pub fn place(row: u32, col: u32) -> u32 {
        place(row, col)
    }

    /// Says that everything has been written.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, once after each [`Staging::acquire`].
    #[inline(always)]
    pub unsafe fn commit(self) {
        hopper::fence_async_shared();
        // SAFETY: the storing warp comes there once for each of its stores, which are as many.
        unsafe { self.full().arrive() }
    }

    /// Stores the next results, at these coordinates of the first: column, row, matrix.
    ///
    /// # Safety
    /// Called by all lanes of the storing warp, as often as the warpgroup calls [`Staging::commit`]. The map's box is [`BOX`].
    /// No other thread accesses these elements of the matrix.
    #[inline(always)]
    pub unsafe fn store(self, map: TensorMapMut<'_>, [col, row, matrix]: [u32; 3]) {
        // SAFETY: all lanes come here. One of them, always the same, issues the stores and waits for them, before the others
        // arrive and the warpgroup writes again. What has been written is visible to TMA: all threads have made it so before
        // they came to the barrier.
        unsafe {
            Self::wait_until_read();
            self.empty().arrive();
            self.full().sync();
            if hopper::elect_one() {
                for index in 0..COLS / BOX_COLS {
                    let at = [col + index * BOX_COLS, row, matrix];
                    hopper::store_tile(self.memory, (index * BOX_LEN) as usize, map, at);
                }
                hopper::commit_stores();
            }
        }
    }

    /// Waits until TMA has read everything that this warp has stored. After the last store, too: the memory of a block that has
    /// ended may be another one's.
    ///
    /// # Safety
    /// Called by all lanes of the storing warp.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait_until_read() {
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
    col / BOX_COLS * BOX_LEN + row * BOX_COLS + col % BOX_COLS
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_element_has_a_place_and_pairs_stay_together() {
        let places: HashSet<u32> = (0..LEN).map(|i| place(i / COLS, i % COLS)).collect();
        assert_eq!(places.len(), LEN as usize);
        assert!(places.iter().all(|&place| place < LEN));
        for i in (0..LEN).step_by(2) {
            assert_eq!(place(i / COLS, i % COLS) + 1, place(i / COLS, i % COLS + 1));
            assert!(place(i / COLS, i % COLS).is_multiple_of(2));
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
