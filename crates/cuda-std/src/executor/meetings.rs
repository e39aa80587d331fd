//! The CPU side of what threads wait for one another in: the barrier of the block, and operations of a warp.

use core::cell::Cell;
use core::panic::Location;
use std::format;
use std::string::ToString;

use super::changes::{change_mask, change_shuffle, change_sync_warp};
use super::context::{Collective, Context, LANES, Payload, Request, State, current};
use super::costs::CostKind;
use super::fault::{BlockOperation, FaultKind, WarpOperation};
use super::hooks::lane;
use super::products::{require_awaited, require_words_awaited};
use super::shared_memory::has_products;
use super::steps::{StepBarrier, StepKind};

/// Waits for all threads of the block, and returns what their votes come to: see [`BlockVotes`].
#[inline(always)]
#[track_caller]
pub(crate) fn barrier(operation: BlockOperation, vote: bool) -> u32 {
    let location = Location::caller();
    if current().leaves_out(operation.function(), location) {
        return vote.into();
    }
    current().note_cost(CostKind::Wait, (0, 0), location);
    let context = current();
    if let Err(other) = context.votes.come(operation, vote, context.current.get()) {
        mixed(context, operation, other, location);
    }
    context.note_step(StepKind::Wait, location, |note, steps| note.barrier(StepBarrier::Block).phase(steps.epoch()));
    context.suspend(State::Barrier, location);
    context.note_step(StepKind::Passed, location, |note, steps| {
        note.barrier(StepBarrier::Block).phase(steps.epoch().saturating_sub(1))
    });
    context.votes.result(operation, context.threads.len())
}

/// Ends the launch: a thread comes to the barrier of the block by one function, and another one has come by another function.
#[cold]
#[inline(never)]
fn mixed(
    context: &Context<'_>,
    operation: BlockOperation,
    (other, position): (BlockOperation, usize),
    location: &'static Location<'static>,
) -> ! {
    let first = &context.threads[position];
    let kind = FaultKind::BarrierMixed { operation, other, thread: first.index, location: first.location.get().into() };
    context.fail(location, kind)
}

/// How the threads of a block vote at its barrier: those that have come, and, until all have come the next time, those before.
///
/// ```text
/// come: count of true votes ── all have come ──▶ met: what each of them finds when it goes on
/// ```
#[derive(Default)]
pub(super) struct BlockVotes {
    /// What the first one has come for, and its position in the block.
    first: Cell<Option<(BlockOperation, usize)>>,
    come: Cell<u32>,
    met: Cell<u32>,
}

impl BlockVotes {
    /// A new block begins.
    pub(super) fn begin_block(&self) {
        self.first.set(None);
        self.come.set(0);
    }

    /// All threads have come.
    pub(super) fn meet(&self) {
        self.met.set(self.come.take());
        self.first.set(None);
    }

    /// A thread comes with its vote. An error if the first one has come for another operation.
    #[inline(always)]
    fn come(&self, operation: BlockOperation, vote: bool, position: usize) -> Result<(), (BlockOperation, usize)> {
        match self.first.get() {
            None => self.first.set(Some((operation, position))),
            Some(first) if first.0 != operation => return Err(first),
            Some(_) => {}
        }
        self.come.set(self.come.get() + u32::from(vote));
        Ok(())
    }

    /// What the votes of the last meeting come to: a number, or 0 or 1.
    #[inline(always)]
    fn result(&self, operation: BlockOperation, threads: usize) -> u32 {
        let votes = self.met.get();
        match operation {
            BlockOperation::Sync => 0,
            BlockOperation::SyncCount => votes,
            BlockOperation::SyncAnd => u32::from(votes as usize == threads),
            BlockOperation::SyncOr => u32::from(votes > 0),
        }
    }
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
    let mask = change_mask(operation, mask);
    warp_operation(Request { operation, mask, value: predicate.into(), ..Request::NONE }).0 as u32
}

/// Waits for the lanes in `mask`, and returns the mask of those that have the same value of `bytes` bytes as this one, or, for a match of
/// all, the mask of all of them or 0.
#[inline(always)]
#[track_caller]
pub(crate) fn matched(operation: WarpOperation, mask: u32, bytes: usize, value: u64) -> u32 {
    require_awaited(&value);
    let mask = change_mask(operation, mask);
    // Smaller values are compared as those of 4 bytes are, by the same instruction.
    warp_operation(Request { operation, bytes: bytes.max(4) as u8, mask, value, ..Request::NONE }).0 as u32
}

/// Waits for the lanes in `mask`, and returns what their values come to together.
#[inline(always)]
#[track_caller]
pub(crate) fn reduce(operation: WarpOperation, mask: u32, value: u32) -> u32 {
    require_awaited(&value);
    let mask = change_mask(operation, mask);
    warp_operation(Request { operation, mask, value: value.into(), ..Request::NONE }).0 as u32
}

/// The lanes of the warp that execute this together: the running one alone, or those that `tell_who_is_active` says.
#[inline(always)]
pub(crate) fn active_mask(location: &'static Location<'static>) -> u32 {
    let context = current();
    if !context.finds_active_lanes {
        return 1 << lane();
    }
    context.suspend(State::Asking, location);
    context.details().response.get().0 as u32
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
    if context.is_recording.get() {
        note_operation(context, &request, Location::caller());
    }
    context.suspend(State::Warp, Location::caller());
    context.details().response.get()
}

/// Records that a lane comes to an operation of its warp.
#[cold]
#[inline(never)]
fn note_operation(context: &Context<'_>, request: &Request, location: &'static Location<'static>) {
    use WarpOperation as W;
    let kind = match request.operation {
        W::ShuffleUp | W::ShuffleDown | W::ShuffleXor | W::ShuffleIdx => StepKind::Shuffle,
        W::VoteAll | W::VoteAny | W::VoteBallot | W::MatchAny | W::MatchAll => StepKind::Vote,
        W::ReduceAdd | W::ReduceMinU32 | W::ReduceMinI32 | W::ReduceMaxU32 | W::ReduceMaxI32 => StepKind::Vote,
        W::ReduceAnd | W::ReduceOr | W::ReduceXor => StepKind::Vote,
        W::Sync => StepKind::SyncWarp,
        W::LoadMatrices => StepKind::LoadMatrices,
        W::MmaTf32 | W::MmaBf16 | W::MmaFp16 | W::MmaFp64 => StepKind::Mma,
        W::Elect => StepKind::Elect,
        W::WgmmaFence => StepKind::WgmmaFence,
        // These say more where they are made.
        W::Wgmma | W::WgmmaCommit | W::WgmmaWait | W::SyncPart | W::ArriveAtPart => return,
    };
    context.note_step(kind, location, |note, _| match request.operation {
        W::WgmmaFence | W::Elect => note,
        operation if operation.is_aligned() => note.text(operation.to_string()),
        operation => note.text(format!("{operation}, mask {:#010x}", request.mask)),
    });
}
