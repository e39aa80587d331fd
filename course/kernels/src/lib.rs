//! The puzzles of the course, in their order: a file for each, with what to learn, the kernel, and
//! the operation that it is for.

#![cfg_attr(target_arch = "nvptx64", no_std)]
#![allow(
    clippy::needless_range_loop,
    reason = "arrays of a thread are registers, which loops unroll to by their numbers"
)]

#[cfg(not(target_arch = "nvptx64"))]
pub mod puzzle;

pub mod p01_axpy;
pub mod p02_off_by_one;
pub mod p03_grid_stride;
pub mod p04_coalesced;
pub mod p05_shared_tile;
pub mod p06_barrier;
pub mod p07_divergence;
pub mod p08_bank_conflicts;
pub mod p09_gather;
pub mod p10_atomics;
pub mod p11_warp_sum;
pub mod p12_block_sum;
pub mod p13_last_block;
pub mod p14_flags;
pub mod p15_scan;
pub mod p16_votes;
pub mod p17_vectors;
pub mod p18_double_buffer;
pub mod p19_phases;
pub mod p20_tma;
pub mod p21_mma;
pub mod p22_wgmma;
pub mod p23_proxy_fence;
pub mod p24_low_bits;
pub mod p25_split;
pub mod p26_pipeline;

/// All puzzles, in their order.
#[cfg(not(target_arch = "nvptx64"))]
pub static PUZZLES: &[&puzzle::Puzzle] = &[
    &p01_axpy::PUZZLE,
    &p02_off_by_one::PUZZLE,
    &p03_grid_stride::PUZZLE,
    &p04_coalesced::PUZZLE,
    &p05_shared_tile::PUZZLE,
    &p06_barrier::PUZZLE,
    &p07_divergence::PUZZLE,
    &p08_bank_conflicts::PUZZLE,
    &p09_gather::PUZZLE,
    &p10_atomics::PUZZLE,
    &p11_warp_sum::PUZZLE,
    &p12_block_sum::PUZZLE,
    &p13_last_block::PUZZLE,
    &p14_flags::PUZZLE,
    &p15_scan::PUZZLE,
    &p16_votes::PUZZLE,
    &p17_vectors::PUZZLE,
    &p18_double_buffer::PUZZLE,
    &p19_phases::PUZZLE,
    &p20_tma::PUZZLE,
    &p21_mma::PUZZLE,
    &p22_wgmma::PUZZLE,
    &p23_proxy_fence::PUZZLE,
    &p24_low_bits::PUZZLE,
    &p25_split::PUZZLE,
    &p26_pipeline::PUZZLE,
];
