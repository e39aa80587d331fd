//! How the scan and the sort look back where tiles long before have said no more than their own sums: on the executor, which runs few blocks at a time,
//! no tile has to look far.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::radix_sort::{self, DIGITS};
use patterns_kernels::scan::{OF_TILE, UP_TO_TILE, WINDOW, look_back};

/// The sum of all tiles before a tile, for each lane of a warp.
#[kernel(block = 32, grid = 1, requires(0 < tile, tile as usize <= states.len(), sums.len() == 32))]
fn looks_back(tile: u32, states: GlobalAtomics<'_, u64>, sums: DisjointSlice<'_, u32>) {
    // SAFETY: all lanes come here, and the states are there before the launch.
    let sum = unsafe { look_back(&states, tile as usize) };
    sums.own_elements().for_each(|of_lane| of_lane.set(sum));
}

/// The counts of all tiles before a tile, for the first digits, a thread for each.
#[kernel(
    block = 32,
    grid = 1,
    requires(tile as usize * radix_sort::DIGITS <= states.len(), counts.len() == 32)
)]
fn counts_back(tile: u32, states: GlobalAtomics<'_, u32>, counts: DisjointSlice<'_, u32>) {
    for count in counts.own_elements() {
        // SAFETY: the states are there before the launch.
        count.set(unsafe { radix_sort::look_back(&states, 0, tile as usize, count.index()) });
    }
}

#[test]
fn a_digit_counts_what_lies_before_its_tile_as_far_as_one_that_says_up_to() {
    for tiles in 1..=19 {
        let digits = 0..DIGITS as u32;
        // Each digit has its own tile that says "up to".
        let up_to = |digit: u32| digit as usize % tiles;
        let count = |tile: usize, digit: u32| 1 + tile as u32 * 1000 + digit;
        let state = |tile: usize, digit: u32| {
            count(tile, digit) | if tile == up_to(digit) { radix_sort::UP_TO_TILE } else { radix_sort::OF_TILE }
        };
        let mut states: Vec<u32> =
            (0..tiles).flat_map(|tile| digits.clone().map(move |digit| state(tile, digit))).collect();
        let expected: Vec<u32> =
            digits.take(32).map(|digit| (up_to(digit)..tiles).map(|tile| count(tile, digit)).sum()).collect();
        let mut counts = vec![0; 32];
        let kernel = counts_back {
            tile: tiles as u32,
            states: GlobalAtomics::new(&mut states),
            counts: DisjointSlice::new(&mut counts),
        };
        // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
        unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
        assert_eq!(counts, expected, "{tiles} tiles");
    }
}

#[test]
fn a_tile_adds_up_what_lies_before_it_as_far_as_one_that_says_up_to() {
    let tiles = 3 * WINDOW + 5;
    for up_to in [0, 1, WINDOW - 1, WINDOW, 2 * WINDOW + 3, tiles - 40, tiles - 1] {
        // Before it, sums that must not be added: it has them.
        let mut states: Vec<u64> = (0..tiles as u64).map(|tile| OF_TILE | ((tile * 0x0123_4567) % (1 << 32))).collect();
        states[up_to] = UP_TO_TILE | 0xFFFF_FFF0;
        let expected = states[up_to..].iter().fold(0u32, |sum, state| sum.wrapping_add(*state as u32));
        let mut sums = vec![0; 32];
        let kernel = looks_back {
            tile: tiles as u32,
            states: GlobalAtomics::new(&mut states),
            sums: DisjointSlice::new(&mut sums),
        };
        // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
        unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
        assert_eq!(sums, vec![expected; 32], "tile {up_to} of {tiles} says \"up to\"");
    }
}
