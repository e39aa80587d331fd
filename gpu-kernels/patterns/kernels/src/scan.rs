//! Inclusive scan: `y[i] = x[0] + … + x[i]` of n 32-bit words, modulo 2³², in one launch that reads and writes every number once. A block of 256
//! threads has a tile of 8192 numbers. It publishes the tile's sum, and gets the sum of all tiles before from what their blocks have published
//! (decoupled look-back). The result is exact.
//!
//! ```text
//!  tiles        0             1             2             3               8192 numbers each, taken by blocks in this order
//!  own sum      a₀            a₁            a₂            a₃              known as soon as the tile is read
//!  up to it     a₀            a₀+a₁         …                             known when what comes before is
//!
//!  states     │ up to, a₀ │ own, a₁ │ own, a₂ │ nothing │                 a word each: a flag and a sum
//!                  ╰──────────┴────────┴──── a warp of tile 3 looks back, 256 tiles at a time, until it meets one that says "up to"
//! ```
//!
//! A state is one word, written at once, so whoever sees the flag sees the sum as well, and nothing else has to be ordered: all operations
//! are relaxed. A block takes its tile from a counter, so a tile that is waited for has a block that runs, in whatever order the GPU starts
//! them.
//!
//! ```text
//!  a warp's 1024 numbers      chunk 0                       chunk 1                 … chunk 7
//!                           │ l₀ l₀ l₀ l₀ │ l₁ l₁ l₁ l₁ │ … │ l₀ l₀ l₀ l₀ │ …        copies and stores of 16 bytes, side by side for the lanes
//!                             Σ             Σ                 Σ                      a scan of lanes for each chunk
//! ```
//!
//! Numbers wait in shared memory, to which asynchronous copies bring them, and not in registers, of which there are too few: a multiprocessor
//! has six tiles there, some of which are read while others look back or are written. A lane has no numbers but those that it copied itself.
//! Tiles are so large that looking back keeps up: what a GPU of 4 TB/s makes in the time of a trip to its memory are some 60 tiles. Where
//! there are few numbers, up to 2¹⁷, a tile of 2048 is done sooner.
//!
//! Source: D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled look-back" (NVIDIA, 2016).

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::row::{FOUR, LANES};
use crate::words::is_aligned;

/// The numbers of a chunk: four of each lane.
const CHUNK: usize = FOUR * LANES;

/// The numbers of a tile of so many warps, each of which has so many chunks.
const fn tile_of(warps: usize, chunks: usize) -> usize {
    warps * chunks * CHUNK
}

/// The states that a lane looks at together.
const STATES: usize = 8;

/// The tiles that a warp looks back at together.
pub const WINDOW: usize = STATES * LANES;

/// The flag of a state that says that the sum in its lower half is the tile's own. Nothing is known at zero.
pub const OF_TILE: u64 = 1 << 32;

/// The flag that says that the sum is that of all numbers up to the tile's end.
pub const UP_TO_TILE: u64 = 2 << 32;

/// From a number of each lane, the sum of those of all lanes up to this one. Sums wrap around.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn scan_of_lanes(mut value: u32) -> u32 {
    for distance in [1, 2, 4, 8, 16] {
        // SAFETY: the caller's promise.
        let (before, is_there) = unsafe { warp::warp_shuffle_up(warp::ALL_LANES, value, distance, warp::LANES) };
        value = value.wrapping_add(if is_there { before } else { 0 });
    }
    value
}

/// The sum of all tiles before this one. All lanes get it.
///
/// # Safety
/// All lanes of the warp come here together. Every tile before has a block that will say what its sum is.
#[inline(always)]
pub unsafe fn look_back(states: &GlobalAtomics<'_, u64>, tile: usize) -> u32 {
    let lane = warp::lane_id() as usize;
    let (mut end, mut sum) = (tile, 0u32);
    loop {
        // Number 0 is the last tile before the end; before the first tile, nothing more comes.
        let look = |number: usize| {
            if number < end {
                // SAFETY: below the tile, which is inside.
                unsafe { states.get_unchecked(end - 1 - number) }.load(Relaxed, Scope::Device)
            } else {
                UP_TO_TILE
            }
        };
        let mut found: [u64; STATES] = core::array::from_fn(|i| look(i * LANES + lane));
        for i in 0..STATES {
            while found[i] == 0 {
                found[i] = look(i * LANES + lane);
            }
            // SAFETY: all lanes come here, by the caller's promise.
            let complete = unsafe { warp::warp_vote_ballot(warp::ALL_LANES, found[i] >= UP_TO_TILE) };
            // What lies behind the first that says "up to" is in its sum.
            let last = if complete == 0 { LANES - 1 } else { complete.trailing_zeros() as usize };
            sum = sum.wrapping_add(if lane <= last { found[i] as u32 } else { 0 });
            if complete != 0 {
                for distance in [16, 8, 4, 2, 1] {
                    // SAFETY: likewise; what was found complete is the same for all lanes.
                    let other = unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, sum, distance, warp::LANES) }.0;
                    sum = sum.wrapping_add(other);
                }
                return sum;
            }
        }
        end -= WINDOW;
    }
}

/// `y[i] = x[0] + … + x[i]`, modulo 2³². `states` has a word for each tile, and one more, the counter: all zero before.
#[kernel(
    block = (WARPS * LANES) as u32,
    min_blocks = 6,
    grid = x.len().div_ceil(tile_of(WARPS, CHUNKS)).max(1) as u32,
    dynamic_shared = (tile_of(WARPS, CHUNKS) * size_of::<u32>()) as u32,
    requires(y.len() == x.len(), states.len() == x.len().div_ceil(tile_of(WARPS, CHUNKS)) + 1),
    instances(inclusive_scan_u32 = <8, 8>, inclusive_scan_few_u32 = <8, 2>)
)]
pub fn inclusive_scan<const WARPS: usize, const CHUNKS: usize>(
    x: GlobalSlice<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
    states: GlobalAtomics<'_, u64>,
) {
    static SUMS: Shared<[u32; WARPS]> = Shared::new();
    static TAKEN: Shared<[u64; 1]> = Shared::new();
    static BEFORE: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let (warp, lane) = (me / LANES, me % LANES);
    let tiles = states.len() - 1;
    // SAFETY: all threads reach the barriers, which are between what is written to shared memory and what is read by others. The indices are
    // within the arrays' shapes, and those of vectors are multiples of four. A tile is one block's. Where all of it is there, and begins
    // where vectors do, so do a lane's four numbers, and no other lane has them in shared memory. Elsewhere lanes have other numbers on the
    // way to shared memory, and from it, than between: those of their warp, all of whose lanes meet there.
    unsafe {
        if me == 0 {
            TAKEN.write(0, states.get_unchecked(tiles).fetch_add(1, Relaxed, Scope::Device));
        }
        thread::sync_threads();
        let tile = TAKEN.read(0) as usize;
        if tile >= tiles {
            return; // the same for the whole block
        }
        let len = tile_of(WARPS, CHUNKS);
        let first = tile * len;
        let numbers = dynamic_shared::<u32>(0, len);
        // The first number of this lane's warp, and of its four of a chunk.
        let of_warp = warp * CHUNKS * CHUNK;
        let of_lane = |chunk: usize| of_warp + chunk * CHUNK + lane * FOUR;
        let by_vectors = first + len <= x.len() && is_aligned(x.as_ptr().addr() | y.as_mut_ptr().addr());
        if by_vectors {
            for chunk in 0..CHUNKS {
                copy_async::<FOUR, _>(&numbers, of_lane(chunk), &x, first + of_lane(chunk), FOUR as u32);
            }
            commit_group();
            wait_group::<0>();
        } else {
            let mut place = of_warp + lane;
            while place < of_warp + CHUNKS * CHUNK {
                numbers.write(place, x.get(first + place).unwrap_or(0));
                place += hint::keep_rolled(warp::LANES) as usize;
            }
            warp::sync_warp(warp::ALL_LANES);
        }
        let mut sum = 0u32;
        for chunk in 0..CHUNKS {
            let mut own = numbers.read_vector::<FOUR>(of_lane(chunk));
            for i in 1..FOUR {
                own[i] = own[i].wrapping_add(own[i - 1]);
            }
            let up_to_lane = scan_of_lanes(own[FOUR - 1]);
            // What comes before this lane's numbers, in its warp.
            let before = sum.wrapping_add(up_to_lane).wrapping_sub(own[FOUR - 1]);
            numbers.write_vector(of_lane(chunk), own.map(|number| number.wrapping_add(before)));
            sum = sum.wrapping_add(warp::warp_shuffle_idx(warp::ALL_LANES, up_to_lane, 31, warp::LANES).0);
        }
        if lane == 0 {
            SUMS.write(warp, sum);
        }
        thread::sync_threads();
        if warp == 0 {
            let of_tile = (0..WARPS).fold(0u32, |sum, other| sum.wrapping_add(SUMS.read(other)));
            let state = states.get_unchecked(tile);
            if lane == 0 && tile > 0 {
                state.store(OF_TILE | u64::from(of_tile), Relaxed, Scope::Device);
            }
            let before = look_back(&states, tile);
            // By the same condition as above, the compiler would copy what stands between, a vote, to either side of it.
            let mut lanes = [lane as u32];
            hint::pin(&mut lanes);
            if lanes[0] == 0 {
                state.store(UP_TO_TILE | u64::from(before.wrapping_add(of_tile)), Relaxed, Scope::Device);
                BEFORE.write(0, before);
            }
        }
        thread::sync_threads();
        let mut before = BEFORE.read(0);
        for other in 0..WARPS {
            before = before.wrapping_add(if other < warp { SUMS.read(other) } else { 0 });
        }
        for chunk in 0..CHUNKS {
            let own = numbers.read_vector::<FOUR>(of_lane(chunk)).map(|number| number.wrapping_add(before));
            if by_vectors {
                y.set_vector_unchecked(first + of_lane(chunk), own);
            } else {
                numbers.write_vector(of_lane(chunk), own);
            }
        }
        if !by_vectors {
            warp::sync_warp(warp::ALL_LANES);
            let mut place = of_warp + lane;
            while place < of_warp + CHUNKS * CHUNK {
                if first + place < y.len() {
                    y.set_unchecked(first + place, numbers.read(place));
                }
                place += hint::keep_rolled(warp::LANES) as usize;
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Scan;

/// The operation as the host sees it: x as input, y as output, the launches (zeros, scan), and sums made on the host, which have to be
/// equal. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{inclusive_scan_few_u32, inclusive_scan_u32, tile_of};
    use crate::zero::zero_u64;

    /// The sums of all numbers up to each.
    pub struct Scan;

    /// As many numbers are few: tiles are small.
    const FEW: usize = 1 << 17;

    /// The numbers of a tile, of so many.
    fn tile(n: usize) -> usize {
        tile_of(8, if n <= FEW { 2 } else { 8 })
    }

    impl Operation for Scan {
        fn describe(&self) -> Description {
            Description {
                name: "inclusive-scan",
                idea: "each tile waits for the sums of those before it, and says its own first (decoupled look-back)",
                sizes: &["n"],
                kernels: vec![zero_u64::FACTS, inclusive_scan_u32::FACTS, inclusive_scan_few_u32::FACTS],
                small: [0, 1, 2047, 2048, 2049, 20_001, 131_072, 139_264, 200_001].map(|n| vec![n]).to_vec(),
                large: vec![vec![1 << 20], vec![(1 << 28) + 5]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![
                Argument::input("x", &[n], Distribution::Integers(0, u32::MAX.into())).of(Element::U32),
                Argument::output("y", &[n]).of(Element::U32),
                // The tiles' and the counter.
                Argument::scratch("states", &[n.div_ceil(tile(n)) + 1]).of(Element::U64),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(zero_u64 { words: views.disjoint("states")? })?;
            let ([n], x, y) = (sizes.get(["n"])?, views.read("x")?, views.write("y")?);
            let states = views.atomics("states")?;
            if n <= FEW {
                device.launch(inclusive_scan_few_u32 { x, y, states })?;
            } else {
                device.launch(inclusive_scan_u32 { x, y, states })?;
            }
            Ok(())
        }

        fn expected(&self, _sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            // The sum of each part, of all before it, and then of each number.
            let parts: Vec<_> = values.of("x")?.chunks(1 << 16).collect();
            let plus = |sum: u32, x: &f64| sum.wrapping_add(*x as u32);
            let of_part = testkit::each(parts.len(), |part| parts[part].iter().fold(0, plus));
            let mut before = vec![0u32];
            for sum in of_part {
                before.push(before[before.len() - 1].wrapping_add(sum));
            }
            Ok(vec![testkit::each_row(parts.len(), |part| {
                let mut sum = before[part];
                let sums = parts[part].iter().map(|x| {
                    sum = plus(sum, x);
                    Expected::exact(sum.into())
                });
                sums.collect()
            })])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
