//! The operations that the lanes of a warp carry out together on the CPU: shuffles, votes, matches, reductions and `sync_warp`. Each lane's coroutine
//! stops until every lane of the mask has come; then the operation is computed for all of them.

use super::Checks;
use super::barriers::require_one_call;
use super::context::{Context, Details, LANES, Request, State, Thread};
use super::fault::{FaultKind, WarpOperation};
use super::values;
use crate::warp::{Shuffle, source_lane};

/// Carries out the operations of a warp for which all lanes have come that take part. Returns the mask of those lanes, which
/// can go on.
///
/// An operation takes place among the lanes that its mask names and that have not returned. Each of them has to wait in
/// the same operation with the same mask; as on the GPU, the calls may stand on different lines. An aligned operation takes
/// all lanes, and none may have returned.
pub(super) fn exchange(context: &Context<'_>, warp: usize) -> u32 {
    let (lanes, details) = (lanes_of_warp(context, warp), &context.details[warp * LANES..]);
    let mut requests = [Request::NONE; LANES];
    let (mut waiting, mut alive) = (0u32, 0u32);
    for (lane, thread) in lanes.iter().enumerate() {
        requests[lane] = details[lane].request.get();
        waiting |= u32::from(thread.state.get() == State::Warp) << lane;
        alive |= u32::from(thread.state.get() != State::Returned) << lane;
    }
    let mut ready = 0;
    while waiting != 0 {
        let first = &requests[waiting.trailing_zeros() as usize];
        let same = |lane: usize| u32::from(meets(&requests[lane], first)) << lane;
        let called = lanes_in(waiting).map(same).fold(0, |called, lane| called | lane);
        let expected = if first.operation.is_aligned() { first.mask } else { first.mask & alive };
        if called == expected {
            carry_out(context, warp, &requests, called, first.operation);
            ready |= called;
        }
        waiting &= !called;
    }
    ready
}

/// The threads of a warp: fewer than 32 if it is the last of a block whose size is not a multiple of that.
pub(super) fn lanes_of_warp<'c>(context: &'c Context<'_>, warp: usize) -> &'c [Thread] {
    let first = warp * LANES;
    &context.threads[first..context.threads.len().min(first + LANES)]
}

/// The mask that names all threads of a warp.
pub(super) fn mask_of(lanes: &[Thread]) -> u32 {
    u32::MAX >> (LANES - lanes.len())
}

/// Whether two lanes wait for the same thing.
pub(super) fn meets(one: &Request, other: &Request) -> bool {
    (one.operation, one.bytes, one.mask) == (other.operation, other.bytes, other.mask)
}

/// The lanes that a mask names.
pub(super) fn lanes_in(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        let lane = (rest != 0).then(|| rest.trailing_zeros() as usize);
        rest &= rest.wrapping_sub(1);
        lane
    })
}

/// Tells the lanes in `asking` which of them are active together: those in one place, or some of these and the others, as the seed decides.
/// A GPU promises no more, and often does less. Returns `asking`: they can go on.
pub(super) fn tell_who_is_active(context: &Context<'_>, warp: usize, asking: u32) -> u32 {
    let (lanes, details) = (lanes_of_warp(context, warp), &context.details[warp * LANES..]);
    let mut random = context.random.get();
    let mut rest = asking;
    while rest != 0 {
        let place = lanes[rest.trailing_zeros() as usize].location.get();
        let is_here = |lane: usize| u32::from(lanes[lane].location.get() == place) << lane;
        let here = lanes_in(rest).map(is_here).fold(0, |here, lane| here | lane);
        let drawn = random.next();
        let some = if drawn >> 32 & 1 == 0 { here } else { here & drawn as u32 };
        for together in [some, here & !some] {
            lanes_in(together).for_each(|lane| details[lane].response.set((together.into(), true)));
        }
        rest &= !here;
    }
    context.random.set(random);
    asking
}

/// Carries out one operation among the lanes in `mask`, all of which wait for it.
fn carry_out(context: &Context<'_>, warp: usize, requests: &[Request; LANES], mask: u32, operation: WarpOperation) {
    let (lanes, details) = (lanes_of_warp(context, warp), &context.details[warp * LANES..]);
    match operation {
        WarpOperation::Sync => {
            if context.checks == Checks::Full {
                let interval = context.memory.shared.sync_warp(warp, mask, mask_of(lanes));
                lanes_in(mask).for_each(|lane| lanes[lane].interval.set(interval));
            }
        }
        WarpOperation::SyncPart | WarpOperation::ArriveAtPart => require_one_call(context, warp, requests, mask),
        // Which lane it is, each of them knows.
        WarpOperation::Elect => {}
        WarpOperation::VoteAll | WarpOperation::VoteAny | WarpOperation::VoteBallot => {
            let ballot = lanes_in(mask).fold(0, |ballot, lane| ballot | (requests[lane].value as u32) << lane);
            let result = match operation {
                WarpOperation::VoteAll => u32::from(ballot == mask),
                WarpOperation::VoteAny => u32::from(ballot != 0),
                _ => ballot,
            };
            lanes_in(mask).for_each(|lane| details[lane].response.set((result.into(), true)));
        }
        WarpOperation::MatchAny => {
            let same = |value: u64| lanes_in(mask).filter(move |&lane| requests[lane].value == value);
            let matched = |value: u64| same(value).fold(0u64, |matched, lane| matched | 1 << lane);
            lanes_in(mask).for_each(|lane| details[lane].response.set((matched(requests[lane].value), true)));
        }
        WarpOperation::MatchAll => {
            let first = lanes_in(mask).next().map(|lane| requests[lane].value);
            let are_same = lanes_in(mask).all(|lane| Some(requests[lane].value) == first);
            let result = if are_same { mask } else { 0 };
            lanes_in(mask).for_each(|lane| details[lane].response.set((result.into(), true)));
        }
        WarpOperation::ReduceAdd => reduce(details, requests, mask, u32::wrapping_add),
        WarpOperation::ReduceMinU32 => reduce(details, requests, mask, u32::min),
        WarpOperation::ReduceMinI32 => {
            reduce(details, requests, mask, |one, other| one.cast_signed().min(other.cast_signed()).cast_unsigned())
        }
        WarpOperation::ReduceMaxU32 => reduce(details, requests, mask, u32::max),
        WarpOperation::ReduceMaxI32 => {
            reduce(details, requests, mask, |one, other| one.cast_signed().max(other.cast_signed()).cast_unsigned())
        }
        WarpOperation::ReduceAnd => reduce(details, requests, mask, |one, other| one & other),
        WarpOperation::ReduceOr => reduce(details, requests, mask, |one, other| one | other),
        WarpOperation::ReduceXor => reduce(details, requests, mask, |one, other| one ^ other),
        WarpOperation::LoadMatrices
        | WarpOperation::MmaTf32
        | WarpOperation::MmaBf16
        | WarpOperation::MmaFp16
        | WarpOperation::MmaFp64
        | WarpOperation::Wgmma
        | WarpOperation::WgmmaFence
        | WarpOperation::WgmmaCommit
        | WarpOperation::WgmmaWait => {
            let collective = lanes_in(mask).find_map(|lane| requests[lane].collective);
            let collective = collective.expect("an aligned operation comes with what it does");
            let mut payloads = core::array::from_fn(|lane| details[lane].payload.get());
            collective(&mut payloads);
            if let Some(first) = lanes_in(mask).next() {
                let (position, location) = (warp * LANES + first, lanes[first].location.get());
                values::made_by_sums(context, position, "a product of tensor cores", location);
            }
            details.iter().zip(payloads).for_each(|(lane, payload)| lane.payload.set(payload));
        }
        WarpOperation::ShuffleUp => shuffle(context, warp, requests, mask, Shuffle::Up),
        WarpOperation::ShuffleDown => shuffle(context, warp, requests, mask, Shuffle::Down),
        WarpOperation::ShuffleXor => shuffle(context, warp, requests, mask, Shuffle::Xor),
        WarpOperation::ShuffleIdx => shuffle(context, warp, requests, mask, Shuffle::Idx),
    }
}

/// Gives all lanes what their values come to, two by two.
fn reduce(details: &[Details], requests: &[Request; LANES], mask: u32, both: fn(u32, u32) -> u32) {
    let values = lanes_in(mask).map(|lane| requests[lane].value as u32);
    let result = values.reduce(both).unwrap_or(0);
    lanes_in(mask).for_each(|lane| details[lane].response.set((result.into(), true)));
}

fn shuffle(context: &Context<'_>, warp: usize, requests: &[Request; LANES], mask: u32, shuffle: Shuffle) {
    let details = &context.details[warp * LANES..];
    let mut inactive = None;
    for lane in lanes_in(mask) {
        let (source, inside) = source_lane(shuffle, lane as u32, requests[lane].b, requests[lane].c);
        if mask >> source & 1 == 0 {
            inactive = inactive.or(Some((lane, source)));
        }
        details[lane].response.set((requests[source as usize].value, inside));
    }
    if let Some((lane, source_lane)) = inactive {
        let Request { operation, mask, .. } = requests[lane];
        let kind = FaultKind::InactiveLane { operation, mask, lane: lane as u32, source_lane };
        context.fail_later(warp * LANES + lane, kind);
    }
}
