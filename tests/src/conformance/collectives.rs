//! What lanes of a warp, and threads of a block, find out together: their operands, and what has to come out.

use rand::RngExt;
use rand::rngs::StdRng;

use super::kernels::warp::{self, COPY_UNTOUCHED};
use super::machine::Launch;
use super::words::{Instruction, LANES, kernel, near_integers, to_vote, wide};
use crate::device_features::Launcher;

/// All of them.
pub(super) fn instructions() -> Vec<Instruction> {
    let of_warp = Instruction::of_warp;
    vec![
        of_warp(kernel!(warp::matches), (warp::MATCH_INPUTS, warp::MATCH_OUTPUTS), to_match, matches),
        of_warp(kernel!(warp::reductions), (warp::REDUCE_INPUTS, warp::REDUCE_OUTPUTS), to_reduce, reductions),
        of_warp(
            kernel!(warp::active_lanes),
            (warp::ACTIVE_INPUTS, warp::ACTIVE_OUTPUTS),
            |rng, _| vec![rng.random()],
            |x| {
                let gone = x[0] as usize % LANES;
                [vec![COPY_UNTOUCHED; gone], vec![1; LANES - gone]].concat()
            },
        ),
        of_warp(kernel!(warp::block_votes), (warp::BLOCK_INPUTS, warp::BLOCK_OUTPUTS), to_vote_in_block, |x| {
            let count = x.iter().filter(|x| **x != 0).count();
            let results = [count as u32, (count == warp::BLOCK).into(), (count > 0).into()];
            results.iter().flat_map(|&result| [result; warp::BLOCK]).collect()
        }),
    ]
}

/// Values of few kinds, or all the same, or random ones; and a mask.
fn to_match(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let kinds: [u32; 4] = [rng.random(), rng.random(), 1 << 31, 0];
    let differs = 1u32 << rng.random_range(0..32);
    let mut half = |of_lane: usize, half: usize| match case % 4 {
        // All the same, or all but one lane's, in the lower or the upper half.
        0 => kinds[half],
        1 if (of_lane, half) == (case / 4 % LANES, case % 2) => kinds[half] ^ differs,
        1 => kinds[half],
        2 => kinds[rng.random_range(0..4)],
        _ => rng.random(),
    };
    let values: Vec<u32> = (0..2 * LANES).map(|i| half(i % LANES, i / LANES)).collect();
    values.into_iter().chain([to_vote(rng, case)[LANES]]).collect()
}

/// The lanes of the part of a warp that a lane is of: those that the mask names, or the others.
fn part_of(mask: u32, lane: usize) -> impl Iterator<Item = usize> + Clone {
    let part = if mask >> lane & 1 == 1 { mask } else { !mask };
    (0..LANES).filter(move |lane| part >> lane & 1 == 1)
}

fn matches(x: &[u32]) -> Vec<u32> {
    let whole = |lane: usize| wide(x[lane], x[LANES + lane]);
    let which = |lane: usize, same: &dyn Fn(usize) -> bool| {
        part_of(x[2 * LANES], lane).filter(|&other| same(other)).fold(0, |all, lane| all | 1 << lane)
    };
    let of_lane = |i: usize, lane: usize| -> u32 {
        let mut part = part_of(x[2 * LANES], lane);
        match i {
            0 => which(lane, &|other| x[other] == x[lane]),
            1 => which(lane, &|other| whole(other) == whole(lane)),
            2 => which(lane, &|other| x[other] as u8 == x[lane] as u8),
            3 => part.all(|other| x[other] == x[lane]).into(),
            _ => part.all(|other| whole(other) == whole(lane)).into(),
        }
    };
    (0..5).flat_map(|i| (0..LANES).map(move |lane| (i, lane))).map(|(i, lane)| of_lane(i, lane)).collect()
}

/// Random numbers, or some around the ends, and a mask.
fn to_reduce(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let values: Vec<u32> = (0..LANES).map(|_| near_integers(rng, case, 1)[1]).collect();
    values.into_iter().chain([to_vote(rng, case)[LANES]]).collect()
}

fn reductions(x: &[u32]) -> Vec<u32> {
    let of_lane = |i: usize, lane: usize| -> u32 {
        let values = part_of(x[LANES], lane).map(|lane| x[lane]);
        let signed = values.clone().map(u32::cast_signed);
        match i {
            0 | 3 => values.fold(0, u32::wrapping_add),
            1 => values.min().unwrap_or(0),
            2 => values.max().unwrap_or(0),
            4 => signed.min().unwrap_or(0).cast_unsigned(),
            5 => signed.max().unwrap_or(0).cast_unsigned(),
            6 => values.fold(u32::MAX, |all, x| all & x),
            7 => values.fold(0, |all, x| all | x),
            _ => values.fold(0, |all, x| all ^ x),
        }
    };
    (0..warp::REDUCTIONS)
        .flat_map(|i| (0..LANES).map(move |lane| (i, lane)))
        .map(|(i, lane)| of_lane(i, lane))
        .collect()
}

/// No predicate, all, all but one, one, or any.
fn to_vote_in_block(rng: &mut StdRng, case: usize) -> Vec<u32> {
    let one = rng.random_range(0..warp::BLOCK);
    let mut predicate = |thread: usize| match case % 5 {
        0 => false,
        1 => true,
        2 => thread != one,
        3 => thread == one,
        _ => rng.random(),
    };
    // Whatever is not 0 is true.
    (0..warp::BLOCK).map(|thread| u32::from(predicate(thread)) << (thread % 32)).collect()
}
