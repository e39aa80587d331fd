//! Keys of 32 bits in ascending order, and a value with each: four passes by 8 bits, each of which reads and writes everything once.
//!
//! ```text
//!  once       how often each of 256 digits occurs, at each of the four places ─► where the keys with a digit begin in the result
//!
//!  each pass  keys, values ─► tiles of 4096, taken by blocks in this order
//!               │ a key's rank: how many of the same digit come before it in its warp     8 ballots say which lanes have the same
//!               │ counts of a tile, a thread for each digit ─► a state of the tile and the digit:
//!               │                                              its own count, or that of all tiles up to it
//!               │ each thread looks back at the tiles before, eight at a time, until one says "up to"     (decoupled look-back)
//!               │ shared memory: the tile's keys in order, then its values
//!             keys, values ◄─ runs of the same digit, side by side
//! ```
//!
//! Keys with the same digit stay in their order, in each pass, and so equal keys do in the result. A state is one word, written at once:
//! whoever sees the flag sees the count, and nothing else has to be ordered. A block takes its tile from a counter, so a tile that is waited
//! for has a block that runs.
//!
//! Source: A. Adinets and D. Merrill, "Onesweep: a faster least significant digit radix sort for GPUs" (NVIDIA, 2022).

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::row::{FOUR, LANES};
use crate::words::{get4, is_aligned};

/// The passes.
pub const PASSES: usize = 4;

/// The digits that a pass can tell apart.
pub const DIGITS: usize = 256;

/// The threads of a block: one for each digit.
const THREADS: usize = DIGITS;

/// The warps of a block.
const WARPS: usize = THREADS / LANES;

/// The keys of a thread.
const OWN: usize = 16;

/// The keys of a tile.
pub const TILE: usize = OWN * THREADS;

/// The states that a thread looks at together.
const STATES_AT_ONCE: usize = 8;

/// The vectors that a thread loads at once to count digits.
const VECTORS: usize = 2;

/// The flag of a state, above its count, that says that it is the tile's own. Nothing is known at zero.
pub const OF_TILE: u32 = 1 << 30;

/// The flag that says that the count is that of all tiles up to this one.
pub const UP_TO_TILE: u32 = 2 << 30;

/// The most keys: a count has to leave room for the flags.
pub const MOST_KEYS: usize = OF_TILE as usize - 1;

/// The blocks that count digits: until there are more than run at the same time on any GPU.
#[cfg(not(target_arch = "nvptx64"))]
fn counting_blocks(keys: usize) -> u32 {
    keys.div_ceil(FOUR * VECTORS * THREADS).clamp(1, 2048) as u32
}

/// The digit of a key in a pass.
#[inline(always)]
fn digit_of(key: u32, pass: usize) -> usize {
    (key >> (8 * pass)) as usize % DIGITS
}

/// The sum of a number of each thread before this one.
///
/// # Safety
/// All threads of the block come here together, with memory that nobody accesses without a barrier before and behind.
#[inline(always)]
unsafe fn sum_before(memory: &'static Shared<[u32; WARPS]>, own: u32) -> u32 {
    let me = thread::thread_idx_x() as usize;
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: all threads come here; each element has one writer, and the barrier is between writes and reads.
    unsafe {
        let mut up_to_lane = own;
        for distance in [1, 2, 4, 8, 16] {
            let (before, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, up_to_lane, distance, warp::LANES);
            up_to_lane += if is_there { before } else { 0 };
        }
        if lane == LANES - 1 {
            memory.write(warp, up_to_lane);
        }
        thread::sync_threads();
        let mut before = up_to_lane - own;
        for other in 0..WARPS {
            before += if other < warp { memory.read(other) } else { 0 };
        }
        before
    }
}

/// Adds to `counts` how often each digit occurs at each place: the 256 of a pass after those of the pass before.
#[kernel(block = 256, grid = counting_blocks(keys.len()), requires(counts.len() == PASSES * DIGITS, keys.len() <= MOST_KEYS))]
pub fn radix_count_u32(keys: GlobalSlice<'_, u32>, counts: GlobalSliceMut<'_, u32>) {
    static COUNTS: Shared<[[u32; DIGITS]; PASSES]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let by_vectors = is_aligned(keys.as_ptr().addr());
    let count = |key: u32| {
        for pass in 0..PASSES {
            // SAFETY: a digit is below `DIGITS`.
            unsafe { COUNTS.atomic([pass, digit_of(key, pass)]).fetch_add(1, Relaxed, Scope::Block) };
        }
    };
    // SAFETY: the indices are within the arrays' shapes. What threads do to counts atomically is separated by barriers, which all threads
    // reach, from what is written before and read behind. The counts in global memory are only added to.
    unsafe {
        for pass in 0..PASSES {
            COUNTS.write([pass, me], 0);
        }
        thread::sync_threads();
        let step = thread::grid_dim_x() as usize * THREADS * FOUR;
        let mut index = thread::index_1d() * FOUR;
        while index < keys.len() {
            // Both loads are under way before the first key is counted.
            let is_whole = |vector: usize| by_vectors && index + vector * step + FOUR <= keys.len();
            let vectors: [[u32; FOUR]; VECTORS] =
                core::array::from_fn(
                    |vector| {
                        if is_whole(vector) { get4(keys, index + vector * step) } else { [0; FOUR] }
                    },
                );
            for vector in 0..VECTORS {
                for i in 0..FOUR {
                    if is_whole(vector) {
                        count(vectors[vector][i]);
                    } else if let Some(key) = keys.get(index + vector * step + i) {
                        count(key);
                    }
                }
            }
            index += VECTORS * step;
        }
        thread::sync_threads();
        for pass in 0..PASSES {
            let count = COUNTS.read([pass, me]);
            if count > 0 {
                counts.atomic_unchecked(pass * DIGITS + me).fetch_add(count, Relaxed, Scope::Device);
            }
        }
    }
}

/// Makes of the counts of each pass where the keys with a digit begin.
#[kernel(block = 256, grid = PASSES as u32, requires(counts.len() == PASSES * DIGITS))]
pub fn radix_begin_u32(counts: GlobalSliceMut<'_, u32>) {
    static SUMS: Shared<[u32; WARPS]> = Shared::new();
    let at = thread::block_idx_x() as usize * DIGITS + thread::thread_idx_x() as usize;
    // SAFETY: a block has the digits of a pass, a thread one of them. All threads come to the sum.
    unsafe {
        let before = sum_before(&SUMS, counts.get_unchecked(at));
        counts.set_unchecked(at, before);
    }
}

/// How many keys with a digit the tiles before this one have. A tile has a state for each digit, the first tile's are from `first` on.
///
/// # Safety
/// Every tile before has a block that will say what its count is; states of all of them are inside.
#[inline(always)]
pub unsafe fn look_back(states: &GlobalAtomics<'_, u32>, first: usize, tile: usize, digit: usize) -> u32 {
    let (mut end, mut sum) = (tile, 0);
    loop {
        // Before the first tile, nothing more comes.
        let found: [u32; STATES_AT_ONCE] = core::array::from_fn(|i| {
            if i < end {
                // SAFETY: a tile before this one, which is inside.
                let state = unsafe { states.get_unchecked(first + (end - 1 - i) * DIGITS + digit) };
                state.load(Relaxed, Scope::Device)
            } else {
                UP_TO_TILE
            }
        });
        // Those up to one that says nothing yet: it is looked at again.
        let (mut known, mut is_last) = (0, false);
        for i in 0..STATES_AT_ONCE {
            if known == i && found[i] != 0 && !is_last {
                sum += found[i] % OF_TILE;
                is_last = found[i] >= UP_TO_TILE;
                known += 1;
            }
        }
        if is_last {
            return sum;
        }
        end -= known;
    }
}

/// This thread's words of a tile, of which there are `len`; behind the last one it is `filler`. A warp has 512 in a row.
///
/// # Safety
/// So many words from `first` on are inside.
#[inline(always)]
unsafe fn load(words: GlobalSlice<'_, u32>, first: usize, len: usize, filler: u32) -> [u32; OWN] {
    let me = thread::thread_idx_x() as usize;
    let own = me / LANES * OWN * LANES + me % LANES;
    // SAFETY: the caller's promise.
    let get = |place: usize| unsafe { words.get_unchecked(first + place) };
    if len >= TILE {
        // The whole block comes here or not: loads without a question, one after the other.
        return core::array::from_fn(|i| get(own + i * LANES));
    }
    core::array::from_fn(|i| if own + i * LANES < len { get(own + i * LANES) } else { filler })
}

/// The lanes of the warp whose digit is this one's.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn lanes_with(digit: usize) -> u32 {
    let mut lanes = warp::ALL_LANES;
    for bit in 0..DIGITS.ilog2() {
        // All bits of a word are those of the digit: one operation of three operands takes the lanes out that differ.
        let all = ((digit as u32) << (31 - bit)) as i32 >> 31;
        // SAFETY: the caller's promise.
        let set = unsafe { warp::warp_vote_ballot(warp::ALL_LANES, all != 0) };
        lanes &= !(set ^ all as u32);
    }
    lanes
}

/// Puts keys, and their values, in the order of the digit of a pass. Those with the same one stay in their order.
#[kernel(
    block = 256,
    min_blocks = 3,
    grid = keys.len().div_ceil(TILE).max(1) as u32,
    requires(
        pass < PASSES as u32, keys.len() <= MOST_KEYS, values.len() == keys.len(),
        to_keys.len() == keys.len(), to_values.len() == keys.len(),
        begin.len() == PASSES * DIGITS, states.len() == PASSES * keys.len().div_ceil(TILE) * DIGITS, next.len() == PASSES
    )
)]
pub fn radix_pass_u32(
    pass: u32,
    keys: GlobalSlice<'_, u32>,
    values: GlobalSlice<'_, u32>,
    begin: GlobalSlice<'_, u32>,
    states: GlobalAtomics<'_, u32>,
    next: GlobalAtomics<'_, u32>,
    to_keys: GlobalSliceMut<'_, u32>,
    to_values: GlobalSliceMut<'_, u32>,
) {
    static RANKS: Shared<[[u32; DIGITS]; WARPS]> = Shared::new();
    static SUMS: Shared<[u32; WARPS]> = Shared::new();
    static TARGETS: Shared<[u32; DIGITS]> = Shared::new();
    static ORDERED: Shared<[u32; TILE]> = Shared::new();
    static ORDERED_VALUES: Shared<[u32; TILE]> = Shared::new();
    static TAKEN: Shared<[u32; 1]> = Shared::new();
    let (me, pass) = (thread::thread_idx_x() as usize, pass as usize);
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: all threads reach the barriers, which are between what is written to shared memory and what is read by others; ranks of a
    // warp are added to atomically meanwhile. The indices are within the arrays' shapes: a place in the order of a tile is below `TILE`. Each
    // key has a target of its own: those of a digit are counted from where they begin, over tiles, warps and lanes. That it is inside follows
    // from what other launches have written, and so is asked.
    unsafe {
        if me == 0 {
            TAKEN.write(0, next.get_unchecked(pass).fetch_add(1, Relaxed, Scope::Device));
        }
        for other in 0..WARPS {
            RANKS.write([other, me], 0);
        }
        thread::sync_threads();
        let tile = TAKEN.read(0) as usize;
        if tile * TILE >= keys.len() {
            return; // the same for the whole block
        }
        let len = (keys.len() - tile * TILE).min(TILE);
        // Behind the last key there are some that come last, and are left out in the end.
        let mut own = load(keys, tile * TILE, len, u32::MAX);
        let mut ranks = [0; OWN];
        for i in 0..OWN {
            let digit = digit_of(own[i], pass);
            let lanes = lanes_with(digit);
            let leader = lanes.trailing_zeros();
            let mut before = 0;
            if lane as u32 == leader {
                before = RANKS.atomic([warp, digit]).fetch_add(lanes.count_ones(), Relaxed, Scope::Block);
            }
            let before = warp::warp_shuffle_idx(warp::ALL_LANES, before, leader, warp::LANES).0;
            ranks[i] = before + (lanes & ((1 << lane) - 1)).count_ones();
            // The sum, and not what it is made of, is what a register holds.
            hint::pin(&mut ranks);
        }
        thread::sync_threads();

        // This thread's digit from here on.
        let mut of_tile = 0;
        for other in 0..WARPS {
            let of_warp = RANKS.read([other, me]);
            RANKS.write([other, me], of_tile);
            of_tile += of_warp;
        }
        let tiles = keys.len().div_ceil(TILE);
        let first = pass * tiles * DIGITS;
        let state = states.get_unchecked(first + tile * DIGITS + me);
        if tile > 0 {
            state.store(OF_TILE | of_tile, Relaxed, Scope::Device);
        }
        let in_tile = sum_before(&SUMS, of_tile);
        for other in 0..WARPS {
            RANKS.write([other, me], RANKS.read([other, me]) + in_tile);
        }
        let before = look_back(&states, first, tile, me);
        state.store(UP_TO_TILE | (before + of_tile), Relaxed, Scope::Device);
        TARGETS.write(me, (begin.get_unchecked(pass * DIGITS + me) + before).wrapping_sub(in_tile));
        thread::sync_threads();

        // Digits and places are computed again: kept since they were counted, they would take more registers than there are.
        hint::pin(&mut own);
        for i in 0..OWN {
            ranks[i] += RANKS.read([warp, digit_of(own[i], pass)]);
            ORDERED.write(ranks[i] as usize, own[i]);
        }
        // Values are on their way while keys are written.
        let own_values = load(values, tile * TILE, len, 0);
        thread::sync_threads();
        let target = |place: usize, key: u32| TARGETS.read(digit_of(key, pass)).wrapping_add(place as u32) as usize;
        for i in 0..OWN {
            let place = i * THREADS + me;
            let key = ORDERED.read(place);
            let target = target(place, key);
            if place < len && target < keys.len() {
                to_keys.set_unchecked(target, key);
            }
        }
        for i in 0..OWN {
            ORDERED_VALUES.write(ranks[i] as usize, own_values[i]);
        }
        thread::sync_threads();
        for i in 0..OWN {
            let place = i * THREADS + me;
            let target = target(place, ORDERED.read(place));
            if place < len && target < keys.len() {
                to_values.set_unchecked(target, ORDERED_VALUES.read(place));
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::RadixSort;

/// What the kernels are for. No GPU sees this.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{DIGITS, PASSES, TILE, radix_begin_u32, radix_count_u32, radix_pass_u32};
    use crate::zero::zero_u32;

    /// Keys in ascending order, and a value with each.
    pub struct RadixSort {
        name: &'static str,
        keys: Distribution,
    }

    impl RadixSort {
        /// Of any keys.
        pub const ANY: Self = Self { name: "radix-sort", keys: Distribution::Integers(0, u32::MAX as i64) };
        /// Of few different keys, so that most have equals: their values show the order.
        pub const TIES: Self = Self { name: "radix-sort-ties", keys: Distribution::Integers(0xFFFE, 0x1_0001) };
    }

    impl Operation for RadixSort {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "four passes by 8 bits; each tile waits for the counts of those before it (decoupled look-back)",
                sizes: &["n"],
                kernels: vec![zero_u32::FACTS, radix_count_u32::FACTS, radix_begin_u32::FACTS, radix_pass_u32::FACTS],
                small: [0, 1, 33, 4095, 4096, 4097, 30_001].map(|n| vec![n]).to_vec(),
                large: vec![vec![1 << 20], vec![(1 << 28) + 5]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let scratch = |name, len| Argument::scratch(name, &[len]).of(Element::U32);
            Ok(vec![
                Argument::input("keys", &[n], self.keys).of(Element::U32),
                Argument::input("values", &[n], Distribution::Integers(0, u32::MAX.into())).of(Element::U32),
                Argument::output("sorted_keys", &[n]).of(Element::U32),
                Argument::output("sorted_values", &[n]).of(Element::U32),
                scratch("other_keys", n),
                scratch("other_values", n),
                scratch("counts", PASSES * DIGITS),
                scratch("states", PASSES * n.div_ceil(TILE) * DIGITS),
                scratch("next", PASSES),
            ])
        }

        fn launch(&self, device: &Device, _sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            for words in ["counts", "states", "next"] {
                device.launch(zero_u32 { words: views.disjoint(words)? })?;
            }
            device.launch(radix_count_u32 { keys: views.read("keys")?, counts: views.write("counts")? })?;
            device.launch(radix_begin_u32 { counts: views.write("counts")? })?;
            let mut from = ["keys", "values"];
            for pass in 0..PASSES {
                // The last one ends where the result shall be.
                let is_result = (PASSES - pass) % 2 == 1;
                let to = if is_result { ["sorted_keys", "sorted_values"] } else { ["other_keys", "other_values"] };
                device.launch(radix_pass_u32 {
                    pass: pass as u32,
                    keys: views.read(from[0])?,
                    values: views.read(from[1])?,
                    begin: views.read("counts")?,
                    states: views.atomics("states")?,
                    next: views.atomics("next")?,
                    to_keys: views.write(to[0])?,
                    to_values: views.write(to[1])?,
                })?;
                from = to;
            }
            Ok(())
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([n], keys, values) = (sizes.get(["n"])?, values.of("keys")?, values.of("values")?);
            // A key and its index as one word: no two are the same, and of equal keys the one with the lower index is less.
            let mut order = testkit::each(n, |index| u64::from(keys[index] as u32) << 32 | index as u64);
            testkit::sort(&mut order);
            let index_of = |word: u64| (word % (1 << 32)) as usize;
            let of = |numbers: &[f64]| testkit::each(n, |place| Expected::exact(numbers[index_of(order[place])]));
            Ok(vec![of(keys), of(values)])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }

        fn bytes(&self, sizes: &Sizes) -> Result<f64, Error> {
            // Keys are read once to be counted; each pass reads and writes keys and values.
            let [n] = sizes.get(["n"])?;
            Ok((4 + PASSES * 16) as f64 * n as f64)
        }
    }
}
