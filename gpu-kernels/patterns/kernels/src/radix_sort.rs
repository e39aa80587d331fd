//! Sorts n < 2³⁰ pairs of a 32-bit key and a 32-bit value in ascending order of keys; pairs with equal keys keep their order. Four passes
//! by 8 bits, the lowest first, each of which reads and writes every pair once. A block of 384 threads has a tile of 9216 pairs, 24 for
//! each thread.
//!
//! ```text
//!  once       how often each of 256 digits occurs, at each of the four places ─► where the keys with a digit begin in the result
//!
//!  each pass  keys, values ─► tiles of 9216, taken by blocks in this order
//!               │ counts of a warp, of the tile, a thread for each digit ─► a state of the tile and the digit: its own count
//!               │ a key's place in the tile: before it are lower digits, and the same in warps before, and in this warp
//!               │                                                              8 ballots say which lanes have the same
//!               │ shared memory: the tile's keys in order
//!               │ each thread looks back at the tiles before, eight at a time, until one says "up to"     (decoupled look-back)
//!               │                                                            ─► the state: the count of all tiles up to it
//!               │ shared memory: the tile's values in the same order
//!             keys, values ◄─ runs of the same digit, side by side
//! ```
//!
//! A tile says its counts before it knows where its keys belong, so those behind it seldom wait. The larger a tile is, the longer are the
//! runs that are written, and the fewer the states.
//!
//! Keys with the same digit stay in their order, in each pass, and so equal keys do in the result. A state is one word, written at once:
//! whoever sees the flag sees the count, and nothing else has to be ordered. A block takes its tile from a counter, so a tile that is waited
//! for has a block that runs.
//!
//! Source: A. Adinets and D. Merrill, "Onesweep: a faster least significant digit radix sort for GPUs" (NVIDIA, 2022).

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::cache;
use cuda_std::prelude::*;

use crate::counters::for_each_word;
use crate::row::{FOUR, LANES};

/// The passes.
pub const PASSES: usize = 4;

/// The digits that a pass can tell apart.
pub const DIGITS: usize = 256;

/// The warps that have digits, a thread for each: the first ones of a block.
const DIGIT_WARPS: usize = DIGITS / LANES;

/// The threads of a block.
const THREADS: usize = radix_pass_u32::BLOCK.x as usize;

/// The warps of a block.
const WARPS: usize = THREADS / LANES;

/// The keys of a thread, in two halves: the places of two keys are in one register.
const OWN: usize = 2 * HALF;
const HALF: usize = 12;

/// The keys of a tile.
pub const TILE: usize = OWN * THREADS;

/// The keys that are prefetched together: a line of a cache.
const LINE: usize = 128 / size_of::<u32>();

/// The states that a thread looks at together.
const STATES_AT_ONCE: usize = 8;

/// The threads of a block that counts digits.
const COUNTING_THREADS: usize = radix_count_u32::BLOCK.x as usize;

/// The counters of all digits at all places: a block has 64 KiB of them.
type Counters = crate::counters::Counters<{ PASSES * DIGITS }, 16>;

/// The flag of a state, above its count, that says that it is the tile's own. Nothing is known at zero.
pub const OF_TILE: u32 = 1 << 30;

/// The flag that says that the count is that of all tiles up to this one.
pub const UP_TO_TILE: u32 = 2 << 30;

/// The most keys: a count has to leave room for the flags.
pub const MOST_KEYS: usize = OF_TILE as usize - 1;

/// The blocks that count digits: 8 keys for each thread, until there are more than run at the same time on any GPU.
#[cfg(not(target_arch = "nvptx64"))]
fn counting_blocks(keys: usize) -> u32 {
    keys.div_ceil(8 * COUNTING_THREADS).clamp(1, 1024) as u32
}

/// The digit of a key in a pass.
#[inline(always)]
fn digit_of(key: u32, pass: usize) -> usize {
    (key >> (8 * pass)) as usize % DIGITS
}

/// The sum of a number of each thread before this one, which is one of the first 256. The others get something.
///
/// # Safety
/// All threads of the block come here together, with memory that nobody accesses without a barrier before and behind.
#[inline(always)]
unsafe fn sum_before(memory: &'static Shared<[u32; DIGIT_WARPS]>, own: u32) -> u32 {
    let me = thread::thread_idx_x() as usize;
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: all threads come here; each element has one writer, and the barrier is between writes and reads.
    unsafe {
        let mut up_to_lane = own;
        for distance in [1, 2, 4, 8, 16] {
            let (before, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, up_to_lane, distance, warp::LANES);
            up_to_lane += if is_there { before } else { 0 };
        }
        if lane == LANES - 1 && warp < DIGIT_WARPS {
            memory.write(warp, up_to_lane);
        }
        thread::sync_threads();
        let mut before = up_to_lane - own;
        for other in 0..DIGIT_WARPS {
            before += if other < warp { memory.read(other) } else { 0 };
        }
        before
    }
}

/// Adds to `counts` how often each digit occurs at each place: the 256 of a pass after those of the pass before.
#[kernel(
    block = 512,
    min_blocks = 3,
    grid = counting_blocks(keys.len()),
    dynamic_shared = Counters::BYTES,
    requires(counts.len() == PASSES * DIGITS, keys.len() <= MOST_KEYS)
)]
pub fn radix_count_u32(keys: GlobalSlice<'_, u32>, counts: GlobalSliceMut<'_, u32>) {
    // SAFETY: all threads come here, with the shared memory of the counters; a digit is below `DIGITS`. The barrier is between additions and
    // sums. The counts in global memory are only added to.
    unsafe {
        let counters = Counters::new();
        for_each_word(keys, |key| {
            for pass in 0..PASSES {
                counters.add_one(pass * DIGITS + digit_of(key, pass));
            }
        });
        thread::sync_threads();
        let mut counter = thread::thread_idx_x() as usize;
        while counter < PASSES * DIGITS {
            let count = counters.sum(counter);
            if count > 0 {
                counts.atomic_unchecked(counter).fetch_add(count, Relaxed, Scope::Device);
            }
            counter += COUNTING_THREADS;
        }
    }
}

/// Makes of the counts of each pass where the keys with a digit begin.
#[kernel(block = 256, grid = PASSES as u32, requires(counts.len() == PASSES * DIGITS))]
pub fn radix_begin_u32(counts: GlobalSliceMut<'_, u32>) {
    static SUMS: Shared<[u32; DIGIT_WARPS]> = Shared::new();
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

/// Half of this thread's words of a tile, of which there are `len`, all from the first of `words` on; behind the last one it is `filler`. A
/// warp has 768 in a row.
///
/// # Safety
/// So many words are inside.
#[inline(always)]
unsafe fn load(words: GlobalSlice<'_, u32>, half: usize, len: u32, filler: u32) -> [u32; HALF] {
    let me = thread::thread_idx_x();
    let first = me / warp::LANES * (OWN * LANES) as u32 + (half * HALF * LANES) as u32 + me % warp::LANES;
    let own = |i: usize| first + (i * LANES) as u32;
    // SAFETY: the caller's promise.
    let get = |place: u32| unsafe { words.get_hinted_unchecked(place as usize, cache::ReadOnlyOnce) };
    if len == TILE as u32 {
        // The whole block comes here or not: loads without a question, one after the other.
        return core::array::from_fn(|i| get(own(i)));
    }
    core::array::from_fn(|i| if own(i) < len { get(own(i)) } else { filler })
}

/// The lanes of the warp whose digit is this one's.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn lanes_with(digit: usize) -> u32 {
    let mut others = 0;
    for bit in 0..DIGITS.ilog2() {
        // The bit as a number that the compiler knows nothing of: it would shift it to where it needs it, where a predicate does.
        let mut own = [digit as u32 & (1 << bit)];
        hint::pin(&mut own);
        let is_set = own[0] != 0;
        // SAFETY: the caller's promise.
        let set = unsafe { warp::warp_vote_ballot(warp::ALL_LANES, is_set) };
        others |= set ^ if is_set { !0 } else { 0 };
    }
    !others
}

/// The place of a key in the order of its tile, which is one more for the next one of the warp with the same digit.
///
/// # Safety
/// All lanes of the warp come here together, with the places of their warp for all digits, which nobody else accesses.
#[inline(always)]
unsafe fn place_of(places: SharedSlice<u32>, digit: usize) -> u32 {
    let lane = warp::lane_id();
    // SAFETY: the caller's promise; a digit is below `DIGITS`. One lane writes what all have read.
    unsafe {
        let lanes = lanes_with(digit);
        let place = places.read(digit) + (lanes & ((1 << lane) - 1)).count_ones();
        // The sum, and not what it is made of, is what a register holds.
        let mut place = [place];
        hint::pin(&mut place);
        warp::sync_warp(warp::ALL_LANES);
        let is_last = lanes >> lane == 1;
        if is_last {
            places.write(digit, place[0] + 1);
        }
        warp::sync_warp(warp::ALL_LANES);
        place[0]
    }
}

/// The dynamic shared memory of a block: counts of the warps, in whose place there are values later, and keys.
const VALUES_AT: usize = 0;
const COUNTS_AT: usize = 0;
const KEYS_AT: usize = TILE * size_of::<u32>();
const MEMORY: usize = 2 * KEYS_AT;
const _: () = assert!(WARPS * DIGITS <= TILE, "counts have room where values are later");

/// Puts keys, and their values, in the order of the digit of a pass. Those with the same one stay in their order.
#[kernel(
    block = 384,
    min_blocks = 2,
    grid = keys.len().div_ceil(TILE).max(1) as u32,
    dynamic_shared = MEMORY as u32,
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
    static SUMS: Shared<[u32; DIGIT_WARPS]> = Shared::new();
    static TARGETS: Shared<[u32; DIGITS]> = Shared::new();
    static TAKEN: Shared<[u32; 1]> = Shared::new();
    let (me, pass) = (thread::thread_idx_x() as usize, pass as usize);
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: all threads reach the barriers, which are between what is written to shared memory and what is read by others; counts of a
    // warp are added to atomically meanwhile. The indices are within the arrays' shapes: a place in the order of a tile is below `TILE`. Each
    // key has a target of its own: those of a digit are counted from where they begin, over tiles, warps and lanes. That it is inside follows
    // from what other launches have written, and so is asked.
    unsafe {
        let counts = dynamic_shared::<u32>(COUNTS_AT, WARPS * DIGITS);
        let ordered = dynamic_shared::<u32>(KEYS_AT, TILE);
        let ordered_values = dynamic_shared::<u32>(VALUES_AT, TILE);
        if me == 0 {
            TAKEN.write(0, next.get_unchecked(pass).fetch_add(1, Relaxed, Scope::Device));
        }
        for i in 0..DIGITS / (FOUR * LANES) {
            counts.write_vector(warp * DIGITS + (i * LANES + lane) * FOUR, [0; FOUR]);
        }
        thread::sync_threads();
        let tile = TAKEN.read(0) as usize;
        let first = tile * TILE;
        if first >= keys.len() {
            return; // the same for the whole block
        }
        let len = (keys.len() - first).min(TILE) as u32;
        // Behind the last key there are some that come last, and are left out in the end.
        let tile_keys = keys.from_unchecked(first);
        let mut own = [load(tile_keys, 0, len, u32::MAX), load(tile_keys, 1, len, u32::MAX)];
        // Values are needed when all is known of the keys, and then come from the second-level cache.
        if me < TILE / LINE {
            values.prefetch_l2(first + me * LINE);
        }
        let of_warp = counts.skip(warp * DIGITS);
        for half in 0..2 {
            for i in 0..HALF {
                of_warp.atomic(digit_of(own[half][i], pass)).fetch_add(1, Relaxed, Scope::Block);
            }
            // Digits are computed again: kept, they would take more registers than there are.
            hint::pin(&mut own[half]);
        }
        thread::sync_threads();

        // The first threads have a digit each.
        let has_digit = me < DIGITS;
        let tiles = keys.len().div_ceil(TILE);
        let first_state = pass * tiles * DIGITS;
        let mut of_tile = 0;
        if has_digit {
            for other in 0..WARPS {
                of_tile += counts.read(other * DIGITS + me);
            }
            if tile > 0 {
                let state = states.get_unchecked(first_state + tile * DIGITS + me);
                state.store(OF_TILE | of_tile, Relaxed, Scope::Device);
            }
        }
        let in_tile = sum_before(&SUMS, of_tile);
        // By the same condition as above, the compiler would copy what stands between, a barrier, to either side of it.
        let mut threads = [me as u32];
        hint::pin(&mut threads);
        if (threads[0] as usize) < DIGITS {
            // From counts to the places at which those of a warp begin.
            let mut begin = in_tile;
            for other in 0..WARPS {
                let count = counts.read(other * DIGITS + me);
                counts.write(other * DIGITS + me, begin);
                begin += count;
            }
        }
        thread::sync_threads();

        let mut places = [0; HALF];
        for i in 0..HALF {
            places[i] = place_of(of_warp, digit_of(own[0][i], pass));
            ordered.write(places[i] as usize, own[0][i]);
        }
        for i in 0..HALF {
            let place = place_of(of_warp, digit_of(own[1][i], pass));
            ordered.write(place as usize, own[1][i]);
            let mut both = [places[i] | place << 16];
            hint::pin(&mut both);
            [places[i]] = both;
        }
        // Nobody counts any more where values are from here on.
        thread::sync_threads();
        let tile_values = values.from_unchecked(first);
        let own_values = [load(tile_values, 0, len, 0), load(tile_values, 1, len, 0)];
        if has_digit {
            let before = look_back(&states, first_state, tile, me);
            let state = states.get_unchecked(first_state + tile * DIGITS + me);
            state.store(UP_TO_TILE | (before + of_tile), Relaxed, Scope::Device);
            TARGETS.write(me, (begin.get_unchecked(pass * DIGITS + me) + before).wrapping_sub(in_tile));
        }
        for i in 0..HALF {
            ordered_values.write((places[i] & 0xFFFF) as usize, own_values[0][i]);
            ordered_values.write((places[i] >> 16) as usize, own_values[1][i]);
        }
        thread::sync_threads();
        for i in 0..OWN {
            let place = i * THREADS + me;
            let key = ordered.read(place);
            let target = TARGETS.read(digit_of(key, pass)).wrapping_add(place as u32);
            if (place as u32) < len && target < keys.len() as u32 {
                to_keys.set_unchecked(target as usize, key);
                to_values.set_unchecked(target as usize, ordered_values.read(place));
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::RadixSort;

/// The operation as the host sees it: keys and values as inputs, both in order as outputs, the launches (zeros, counts, beginnings, four
/// passes), and a sort on the host, to which keys and values have to be equal. It is compiled for the host only.
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
                small: [0, 1, 33, 9215, 9216, 9217, 30_001].map(|n| vec![n]).to_vec(),
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
