//! The CPU side of what threads wait for one another in: the barrier of the block, and operations of a warp.

use core::panic::Location;

use super::changes::{change_shuffle, change_sync_warp, change_vote};
use super::context::{Collective, LANES, Payload, Request, State, current};
use super::costs::CostKind;
use super::fault::{FaultKind, WarpOperation};
use super::hooks::lane;
use super::products::{require_awaited, require_words_awaited};
use super::shared_memory::has_products;

/// Waits for all threads of the block.
#[inline(always)]
#[track_caller]
pub(crate) fn barrier() {
    if current().leaves_out("sync_threads", Location::caller()) {
        return;
    }
    current().note_cost(CostKind::Wait, (0, 0), Location::caller());
    current().suspend(State::Barrier, Location::caller());
}

/// Waits for the lanes in `mask`, and with them carries out a shuffle of values of `bytes` bytes with the operands `b` and
/// `c` of `shfl.sync`. Returns the value and the predicate.
#[inline(always)]
#[track_caller]
pub(crate) fn shuffle(operation: WarpOperation, mask: u32, bytes: usize, value: u64, b: u32, c: u32) -> (u64, bool) {
    require_awaited(&value);
    let (mask, b) = change_shuffle(operation, mask, b);
    warp_operation(Request { operation, bytes: bytes as u8, mask, value, b, c, collective: None })
}

/// Waits for the lanes in `mask`, and returns the mask of those with a true predicate, for a ballot; otherwise 0 or 1.
#[inline(always)]
#[track_caller]
pub(crate) fn vote(operation: WarpOperation, mask: u32, predicate: bool) -> u32 {
    let mask = change_vote(operation, mask);
    warp_operation(Request { operation, mask, value: predicate.into(), ..Request::NONE }).0 as u32
}

/// Waits for the lanes in `mask`; what they wrote before, all of them see after.
#[inline(always)]
#[track_caller]
pub(crate) fn sync_warp(mask: u32) {
    let Some(mask) = change_sync_warp(mask) else { return };
    warp_operation(Request { mask, ..Request::NONE });
}

/// Waits for all lanes of the warp. True for the first of them.
#[inline(always)]
#[track_caller]
pub(crate) fn elect() -> bool {
    warp_operation(Request { operation: WarpOperation::Elect, mask: u32::MAX, ..Request::NONE });
    lane() == 0
}

/// Waits for all lanes of the warp, and lets `collective` make what each of them takes out of what all of them bring.
#[inline(always)]
#[track_caller]
pub(crate) fn collective(operation: WarpOperation, payload: Payload, collective: Collective) -> Payload {
    if has_products() {
        require_words_awaited(&payload, Location::caller());
    }
    current().details().payload.set(payload);
    warp_operation(Request { operation, mask: u32::MAX, collective: Some(collective), ..Request::NONE });
    current().details().payload.get()
}

/// Inlined into the kernel: a processor predicts badly where functions return to when it has come to them by a switch.
#[inline(always)]
#[track_caller]
fn warp_operation(request: Request) -> (u64, bool) {
    let context = current();
    let lane = (context.current.get() % LANES) as u32;
    if request.mask >> lane & 1 == 0 {
        let Request { operation, mask, .. } = request;
        context.fail(Location::caller(), FaultKind::LaneNotInMask { operation, mask, lane });
    }
    context.details().request.set(request);
    context.suspend(State::Warp, Location::caller());
    context.details().response.get()
}
