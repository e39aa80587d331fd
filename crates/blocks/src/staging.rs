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
//! warpgroup never waits for TMA itself. Rows that TMA cannot store, the storing warp stores itself ([`Staging::store_rows`]).
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

use crate::matrix::MatrixMut;
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
///
/// ```
/// # use blocks::{named_barrier::*, shared_layout::*, staging::*};
/// /// The shared memory and the named barriers of a kernel.
/// struct Memory {
///     results: StagingMemory,
///     bytes: u32,
/// }
///
/// const MEMORY: Memory = {
///     let mut layout = SharedLayout::new();
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     Memory { results: StagingMemory::new(&mut layout, &mut ids), bytes: layout.bytes() }
/// };
/// // Of each of two warpgroups 64×128 results: `#[kernel(dynamic_shared = MEMORY.bytes, …)]`.
/// assert_eq!(MEMORY.bytes, 2 * 64 * 128 * 4);
/// # let _ = MEMORY.results;
/// ```
#[derive(Clone, Copy)]
pub struct StagingMemory {
    results: SharedArray<f32>,
    empty: NamedBarriers<WARPGROUPS, THREADS>,
    full: NamedBarriers<WARPGROUPS, THREADS>,
}

impl StagingMemory {
    /// Adds it to a kernel's shared memory and named barriers.
    ///
    /// ```
    /// # use blocks::{named_barrier::*, shared_layout::*, staging::*};
    /// let mut layout = SharedLayout::new();
    /// // SAFETY: there is no kernel.
    /// let mut ids = unsafe { NamedBarrierIds::new() };
    /// StagingMemory::new(&mut layout, &mut ids);
    /// StagingMemory::new(&mut layout, &mut ids);
    /// // Each has taken 64 KiB, and four of the 15 barriers: there are seven for something else.
    /// assert_eq!(layout.bytes(), 2 * (64 << 10));
    /// let _: NamedBarriers<7, 64> = ids.group();
    /// ```
    pub const fn new(layout: &mut SharedLayout, ids: &mut NamedBarrierIds) -> Self {
        Self { results: layout.aligned(WARPGROUPS * LEN, 1024), empty: ids.group(), full: ids.group() }
    }
}

/// Where the results of one warpgroup are in shared memory.
///
/// ```
/// # use blocks::{named_barrier::*, shared_layout::*, staging::*};
/// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
/// const MEMORY: StagingMemory = {
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     StagingMemory::new(&mut SharedLayout::new(), &mut ids)
/// };
/// // One warpgroup and its storing warp, for two pieces of 64×128 of a matrix with 128 columns. TMA's boxes are 64×64.
/// let mut c = vec![9.0; 2 * 64 * 128];
/// run_over(128 + 32, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 128, { BOX[0] }, { BOX[1] }>| {
///     let t = thread::thread_idx_x();
///     // SAFETY: the launch has as much memory. Both roles go through both pieces, and all lanes of their warps come here.
///     unsafe {
///         let staging = Staging::new(MEMORY, 0);
///         for piece in 0..2 {
///             if t >= 128 {
///                 staging.store(map_mut, [0, 64 * piece, 0]);
///                 continue;
///             }
///             staging.acquire();
///             for half in 0..2 {
///                 // Tensor cores leave the columns 8p + 2·(lane mod 4) and the next, for each p, of two rows of 16 in a thread.
///                 let row = t / 32 * 16 + half * 8 + t % 32 / 4;
///                 let number = |col: u32| ((64 * piece + row) * 128 + col) as f32;
///                 let pairs = core::array::from_fn(|p| [0, 1].map(|i| number(8 * p as u32 + t % 4 * 2 + i)));
///                 staging.write_row(row, pairs);
///             }
///             staging.commit();
///         }
///         if t >= 128 {
///             Staging::wait_until_read();
///         }
///     }
/// });
/// assert!(c.into_iter().eq((0..2 * 64 * 128).map(|i| i as f32)));
/// ```
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
    /// ```
    /// # use blocks::{named_barrier::*, shared_layout::*, staging::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// const MEMORY: StagingMemory = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     StagingMemory::new(&mut SharedLayout::new(), &mut ids)
    /// };
    /// // Each warpgroup has memory of its own.
    /// let read = run(256, || {
    ///     let (warpgroup, t) = (thread::thread_idx_x() / 128, thread::index() % 128);
    ///     // SAFETY: the launch has as much memory; a thread reads what it has written.
    ///     unsafe {
    ///         let memory = Staging::new(MEMORY, warpgroup).memory();
    ///         memory.write(t, warpgroup as f32);
    ///         memory.read(t)
    ///     }
    /// });
    /// assert_eq!((read[5], read[128 + 5]), (0.0, 1.0));
    /// ```
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
    /// ```
    /// # use blocks::{examples::staging, staging::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
    /// let mut c = vec![9.0; 64 * 128];
    /// run_over(128 + 32, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 128, 64, 64>| {
    ///     let t = thread::thread_idx_x();
    ///     // SAFETY: a warpgroup writes twice, and its storing warp stores twice.
    ///     unsafe {
    ///         let staging = staging(0);
    ///         for round in 1..3 {
    ///             if t >= 128 {
    ///                 staging.store(map_mut, [0, 0, 0]);
    ///                 Staging::wait_until_read();
    ///                 continue;
    ///             }
    ///             staging.acquire(); // in round 2 until TMA has read what was written in round 1: without it that is a race
    ///             for row in (t / 32 * 16 + t % 32 / 4..).step_by(8).take(2) {
    ///                 staging.write_row(row, [[round as f32; 2]; PAIRS]);
    ///             }
    ///             staging.commit();
    ///         }
    ///     }
    /// });
    /// assert!(c.iter().all(|c| *c == 2.0));
    /// ```
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
    /// ```
    /// # use blocks::{examples::staging, staging::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
    /// let mut c = vec![9.0; 64 * 128];
    /// run_over(128 + 32, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 128, 64, 64>| {
    ///     let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
    ///     // SAFETY: a warpgroup writes once, and its storing warp stores once.
    ///     unsafe {
    ///         let staging = staging(0);
    ///         if t >= 128 {
    ///             staging.store(map_mut, [0, 0, 0]);
    ///             return Staging::wait_until_read();
    ///         }
    ///         staging.acquire();
    ///         // A warp has 16 rows, and a lane two of them: in each element of a row its number.
    ///         for row in [t / 32 * 16 + lane / 4, t / 32 * 16 + lane / 4 + 8] {
    ///             staging.write_row(row, core::array::from_fn(|p| [0, 1].map(|i| (8 * p as u32 + lane % 4 * 2 + i) as f32)));
    ///         }
    ///         staging.commit();
    ///     }
    /// });
    /// assert!(c.iter().enumerate().all(|(i, c)| *c == (i % 128) as f32));
    /// ```
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
    /// ```
    /// # use blocks::{examples::staging, staging::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
    /// let mut c = vec![9.0; 64 * 128];
    /// run_over(128 + 32, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 128, 64, 64>| {
    ///     let t = thread::thread_idx_x();
    ///     // SAFETY: a warpgroup writes once, each thread one column, and its storing warp stores once.
    ///     unsafe {
    ///         let staging = staging(0);
    ///         if t >= 128 {
    ///             staging.store(map_mut, [0, 0, 0]);
    ///             return Staging::wait_until_read();
    ///         }
    ///         staging.acquire();
    ///         (0..64).for_each(|row| staging.memory().write(Staging::place(row, t) as usize, row as f32));
    ///         staging.commit(); // makes it visible to TMA, too
    ///     }
    /// });
    /// assert!(c.iter().enumerate().all(|(i, c)| *c == (i / 128) as f32));
    /// ```
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
    /// ```
    /// # use blocks::{examples::staging, staging::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
    /// // Rows of 256, of which the right half is stored; there are 60 of them, and TMA leaves out what is beyond.
    /// let mut c = vec![9.0; 60 * 256];
    /// run_over(128 + 32, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 256, 64, 64>| {
    ///     let t = thread::thread_idx_x();
    ///     // SAFETY: a warpgroup writes once, each thread one column, and its storing warp stores once.
    ///     unsafe {
    ///         let staging = staging(0);
    ///         if t >= 128 {
    ///             staging.store(map_mut, [128, 0, 0]);
    ///             return Staging::wait_until_read();
    ///         }
    ///         staging.acquire();
    ///         (0..64).for_each(|row| staging.memory().write(Staging::place(row, t) as usize, t as f32));
    ///         staging.commit();
    ///     }
    /// });
    /// assert!(c.iter().enumerate().all(|(i, c)| *c == if i % 256 < 128 { 9.0 } else { (i % 128) as f32 }));
    /// ```
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
                    hopper::store_tile_streamed(self.memory, (index * BOX_LEN) as usize, map, at);
                }
                hopper::commit_stores();
            }
        }
    }

    /// Stores the next results without TMA, for a C whose rows may begin anywhere: those inside C, from this row and column on.
    ///
    /// ```
    /// # use blocks::{examples::staging, matrix::MatrixMut, staging::*};
    /// # use cuda_std::{GlobalSliceMut, examples::run_over, prelude::*};
    /// // Rows of 67 elements; there are 60 of them.
    /// let mut c = vec![9.0; 60 * 67];
    /// run_over(128 + 32, &mut c, |data: GlobalSliceMut<'_, f32>| {
    ///     let (t, c) = (thread::thread_idx_x(), MatrixMut::new(data, 60, 67, 67, 1).unwrap());
    ///     // SAFETY: a warpgroup writes once, each thread one column, and its storing warp stores once.
    ///     unsafe {
    ///         let staging = staging(0);
    ///         if t >= 128 {
    ///             return staging.store_rows(&c, [0, 64]);
    ///         }
    ///         staging.acquire();
    ///         (0..64).for_each(|row| staging.memory().write(Staging::place(row, t) as usize, t as f32));
    ///         staging.commit();
    ///     }
    /// });
    /// assert!(c.iter().enumerate().all(|(i, c)| *c == if i % 67 < 64 { 9.0 } else { (i % 67 - 64) as f32 }));
    /// ```
    ///
    /// # Safety
    /// As for [`Staging::store`], which this warp does not call for the same staging. C is contiguous along its rows.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_rows(self, c: &MatrixMut<'_>, [row, col]: [u32; 2]) {
        /// How many rows are read before they are stored: as many as few registers have room for.
        const AT_A_TIME: u32 = 2;
        const PIECES: u32 = COLS / warp::LANES;
        let lane = warp::lane_id();
        // SAFETY: all lanes come here. They have read what was there when the warp arrives, and read what is there when the warpgroup has.
        unsafe {
            warp::sync_warp(warp::ALL_LANES);
            self.empty().arrive();
            self.full().sync();
            let rows = c.rows().saturating_sub(row).min(ROWS);
            // How many columns there are from this lane's first one on.
            let cols = c.cols().saturating_sub(col + lane);
            let (mut down, mut offset) = (0, c.offset(row, col + lane));
            while down < rows {
                let mut values = [[0.0; PIECES as usize]; AT_A_TIME as usize];
                for i in 0..AT_A_TIME {
                    for piece in 0..PIECES {
                        let at = place(down + i, warp::LANES * piece + lane);
                        values[i as usize][piece as usize] = self.memory.read(at as usize);
                    }
                }
                for i in 0..AT_A_TIME {
                    for piece in 0..PIECES {
                        if down + i < rows && warp::LANES * piece < cols {
                            let place = offset + (warp::LANES * piece) as usize;
                            c.data().set_unchecked(place, values[i as usize][piece as usize]);
                        }
                    }
                    offset += c.row_stride() as usize;
                }
                down = hint::keep_rolled(down + AT_A_TIME);
            }
        }
    }

    /// Waits until TMA has read everything that this warp has stored. After the last store, too: the memory of a block that has
    /// ended may be another one's.
    ///
    /// ```
    /// # use blocks::{examples::staging, staging::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, prelude::*};
    /// // Two warpgroups, each with a storing warp.
    /// let mut c = vec![9.0; 2 * 64 * 128];
    /// run_over(256 + 64, &mut c, |Matrix { map_mut, .. }: Matrix<'_, 128, 64, 64>| {
    ///     let t = thread::thread_idx_x();
    ///     // SAFETY: each warpgroup writes once, each thread one column, and its storing warp stores once.
    ///     unsafe {
    ///         if t >= 256 {
    ///             let warpgroup = t / 32 - 8;
    ///             staging(warpgroup).store(map_mut, [0, 64 * warpgroup, 0]);
    ///             Staging::wait_until_read(); // a block that ends before is reported
    ///             return;
    ///         }
    ///         let staging = staging(t / 128);
    ///         staging.acquire();
    ///         (0..64).for_each(|row| staging.memory().write(Staging::place(row, t % 128) as usize, (t / 128) as f32));
    ///         staging.commit();
    ///     }
    /// });
    /// assert!(c[..64 * 128].iter().all(|c| *c == 0.0) && c[64 * 128..].iter().all(|c| *c == 1.0));
    /// ```
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
