//! Results on their way to memory: a warpgroup writes them to shared memory, and a warp of its own has the copy engine store them.
//!
//! ```text
//!  warpgroup, 64×128 sums         in shared memory, four boxes of 64×32           global memory
//!                                  ┌──────┬──────┬──────┬──────┐
//!  ─► wait until it is empty,  ──► │  8K  │  8K  │  8K  │  8K  │ ─── copy engine ──►  whole lines of 128 bytes
//!     write, tell that it is full  └──────┴──────┴──────┴──────┘
//!                                       ▲
//!  warp: wait until it is full, have it stored, wait until it has been read, tell that it is empty
//! ```
//!
//! The copy engine takes its time where memory is busy, and whoever asks it for something else meanwhile has to wait: nobody who
//! has products to compute should.
//!
//! Source: the 128-byte swizzle is that of the PTX ISA, "Tensor swizzling modes".

use cuda_std::hopper;
use cuda_std::prelude::*;

use super::pipeline::PART;
use super::scaled::HALF;

/// The columns of a box: 128 bytes.
const COLUMNS: u32 = 32;
/// The part of C that the copy engine stores at a time: columns, rows.
pub const STORED: [u32; 2] = [COLUMNS, PART];
/// The elements of such a part.
const BOX: u32 = COLUMNS * PART;
/// The elements that a warpgroup writes at a time.
const ELEMENTS: u32 = PART * HALF;
/// The shared memory of two warpgroups, in bytes. It begins at a multiple of 1024.
pub(super) const STAGING_BYTES: u32 = 2 * ELEMENTS * 4;
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
    pub(super) unsafe fn wait_empty(self) {
        // SAFETY: the storing warp comes there once for each of its stores, which are as many.
        unsafe { hopper::sync_part::<THREADS>(self.empty()) }
    }

    /// Writes two neighbours.
    ///
    /// # Safety
    /// Between [`Staging::wait_empty`] and [`Staging::filled`], for a row below 64 and an even column below 128, by one thread.
    #[inline(always)]
    pub(super) unsafe fn write(self, row: u32, col: u32, values: [f32; 2]) {
        // SAFETY: inside the memory; nobody else accesses these elements meanwhile.
        unsafe { self.memory.write2(place(row, col) as usize, values) }
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

/// Where an element is: a box of 32 columns after the other, and in the rows of 128 bytes of a box the pieces of 16 bytes exchanged,
/// as the copy engine's swizzle has it.
#[inline(always)]
fn place(row: u32, col: u32) -> u32 {
    let (index, col) = (col / COLUMNS, col % COLUMNS);
    index * BOX + row * COLUMNS + ((col / 4) ^ (row % 8)) * 4 + col % 4
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
}
