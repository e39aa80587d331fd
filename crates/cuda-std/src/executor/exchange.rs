//! What the lanes of a warp do together: shuffles, votes and the warp's own barrier.

use super::Checks;
use super::context::{Context, LANES, Request, State, Thread};
use super::fault::WarpOperation;
use super::shared_memory::POISON;

/// Carries out the operations of a warp for which all lanes have come that take part, and makes those lanes ready.
/// Returns whether there were any.
///
/// An operation takes place among the lanes that its mask names and that have not returned. Each of them has to wait in
/// the same operation with the same mask; as on the GPU, the calls may stand on different lines.
pub(super) fn exchange(context: &Context<'_>, warp: usize) -> bool {
    let lanes = lanes_of_warp(context, warp);
    let in_state = |state| {
        let is_in_state = |(lane, thread): (usize, &Thread)| u32::from(thread.state.get() == state) << lane;
        lanes.iter().enumerate().map(is_in_state).sum::<u32>()
    };
    let (mut waiting, returned) = (in_state(State::Warp), in_state(State::Returned));
    let mut any = false;
    while waiting != 0 {
        let request = lanes[waiting.trailing_zeros() as usize].request.get();
        let called = lanes_in(waiting).filter(|&lane| meets(&lanes[lane].request.get(), &request));
        let called = called.map(|lane| 1u32 << lane).sum::<u32>();
        if called == request.mask & !returned & existing(lanes) {
            carry_out(context, warp, lanes, called, &request);
            any = true;
        }
        waiting &= !called;
    }
    any
}

/// The threads of a warp: fewer than 32 if it is the last of a block whose size is not a multiple of that.
pub(super) fn lanes_of_warp<'c>(context: &'c Context<'_>, warp: usize) -> &'c [Thread] {
    let first = warp * LANES;
    &context.threads[first..context.threads.len().min(first + LANES)]
}

/// Whether two lanes wait for the same thing.
pub(super) fn meets(one: &Request, other: &Request) -> bool {
    (one.operation, one.bytes, one.mask) == (other.operation, other.bytes, other.mask)
}

fn lanes_in(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// The mask of the lanes that a warp has.
fn existing(lanes: &[Thread]) -> u32 {
    u32::MAX >> (LANES - lanes.len())
}

/// Carries out one operation among the lanes in `mask`, all of which wait for it.
fn carry_out(context: &Context<'_>, warp: usize, lanes: &[Thread], mask: u32, request: &Request) {
    let value = |lane: usize| lanes[lane].request.get().value;
    match request.operation {
        WarpOperation::Sync => {
            if context.checks == Checks::Full {
                let interval = context.memory.shared.sync_warp(warp, mask, existing(lanes));
                lanes_in(mask).for_each(|lane| lanes[lane].interval.set(interval));
            }
        }
        WarpOperation::VoteAll | WarpOperation::VoteAny | WarpOperation::VoteBallot => {
            let ballot = lanes_in(mask).map(|lane| (value(lane) as u32) << lane).sum::<u32>();
            let result = match request.operation {
                WarpOperation::VoteAll => u32::from(ballot == mask),
                WarpOperation::VoteAny => u32::from(ballot != 0),
                _ => ballot,
            };
            lanes_in(mask).for_each(|lane| lanes[lane].response.set((result.into(), true)));
        }
        WarpOperation::ShuffleUp
        | WarpOperation::ShuffleDown
        | WarpOperation::ShuffleXor
        | WarpOperation::ShuffleIdx => {
            let poison = u64::from(POISON) << 32 | u64::from(POISON);
            for lane in lanes_in(mask) {
                let Request { operation, b, c, .. } = lanes[lane].request.get();
                let (source, inside) = source_lane(operation, lane as u32, b, c);
                // What a lane gets from one that does not take part is undefined on the GPU.
                let value = if mask >> source & 1 == 1 { value(source as usize) } else { poison };
                lanes[lane].response.set((value, inside));
            }
        }
    }
    lanes_in(mask).for_each(|lane| lanes[lane].state.set(State::Ready));
}

/// The lane whose value `lane` receives in a shuffle, and the predicate, from the operands `b` and `c` of `shfl.sync` as
/// the PTX ISA defines it: `c` has the clamp value in bits 0 to 4 and the segment mask in bits 8 to 12.
fn source_lane(operation: WarpOperation, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = ((b & 31) as i32, (c & 31) as i32, (c >> 8 & 31) as i32);
    let lane = lane as i32;
    let min_lane = lane & segment;
    let max_lane = min_lane | (clamp & !segment);
    let (source, inside) = match operation {
        WarpOperation::ShuffleUp => (lane - b, lane - b >= max_lane),
        WarpOperation::ShuffleDown => (lane + b, lane + b <= max_lane),
        WarpOperation::ShuffleXor => (lane ^ b, lane ^ b <= max_lane),
        _ => (min_lane | (b & !segment), min_lane | (b & !segment) <= max_lane),
    };
    (if inside { source } else { lane } as u32, inside)
}
