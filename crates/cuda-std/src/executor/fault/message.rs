//! Reports of faults in words, in the manner of a compiler: what went wrong, where, where the other access is, and what to do.
//!
//! ```text
//! kernel `shift`, block (0, 0, 0), thread (1, 0, 0): a race: this thread writes element 1 of …, and thread (0, 0, 0) reads it, …
//!   --> src/shift.rs:12
//!   note: the other access is here: thread (0, 0, 0) reads
//!   --> src/shift.rs:11
//!   help: put `thread::sync_threads()` between the two, …
//! ```
//!
//! The first line stands on its own, for lists and logs.

use core::fmt;
use std::borrow::Cow;
use std::format;
use std::string::{String, ToString};

use super::races::{of_race_in_block, of_race_in_cluster, of_race_of_blocks};
use super::{
    AccessKind, BarrierName, Elsewhere, Fault, FaultKind, LastWrite, OldValue, OtherAccess, Place,
    RemoteBarrierProblem, SharedArrayName, SourceLine, ViewElement, WarpOperation,
};
use crate::Dim3;
use crate::atomic::Scope;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, block, thread, location, callers, kind, old_value } = self;
        write!(f, "kernel `{kernel}`, block {block}, thread {thread}: {kind}")?;
        if let Some(location) = location {
            write!(f, "\n  --> {location}")?;
        }
        called_from(f, callers)?;
        kind.notes(f)?;
        if let Some(OldValue { block, thread, location, seen, newest }) = old_value {
            let what = format_args!(
                "thread {thread} of block {block} has loaded {seen} here, although {newest} had been stored, as it may on a GPU: it had acquired \
                 nothing that comes behind the store. Where each of two sides looks for the other's store, `fence(SeqCst, …)` has to stand \
                 between store and load on both"
            );
            note(f, what, location)?;
        }
        write!(f, "\n  help: {}", kind.help(location.as_ref()))
    }
}

impl core::error::Error for Fault {}

/// A note, and the line of source that it speaks of.
fn note(f: &mut fmt::Formatter<'_>, what: fmt::Arguments<'_>, location: &SourceLine) -> fmt::Result {
    write!(f, "\n  note: {what}\n  --> {location}")
}

/// The functions that have called the one of the line before.
fn called_from(f: &mut fmt::Formatter<'_>, callers: &[SourceLine]) -> fmt::Result {
    callers.iter().try_for_each(|caller| write!(f, "\n      called from {caller}"))
}

/// A note on the other access.
fn of_other(f: &mut fmt::Formatter<'_>, what: fmt::Arguments<'_>, other: &OtherAccess) -> fmt::Result {
    note(f, what, &other.location)?;
    called_from(f, &other.callers)
}

fn other_access(f: &mut fmt::Formatter<'_>, block: &Option<Dim3>, other: &OtherAccess) -> fmt::Result {
    let (thread, verb) = (other.thread, other.access.verb());
    of_other(f, format_args!("the other access is here: thread {thread}{} {verb} it", of_block(block)), other)
}

/// Where those are that are waited for.
fn places(f: &mut fmt::Formatter<'_>, places: &[Elsewhere]) -> fmt::Result {
    places.iter().try_for_each(|place| write!(f, "\n  note: {place}"))
}

impl FaultKind {
    /// A short name, by which the checker's table and the files of its messages call this kind of fault.
    pub fn name(&self) -> &'static str {
        match self {
            Self::OutOfBounds { .. } => "out of bounds",
            Self::Misaligned { .. } => "misaligned",
            Self::SharedOutOfBounds { .. } => "shared out of bounds",
            Self::DynamicSharedBounds { .. } => "dynamic shared bounds",
            Self::SharedUndeclared { .. } => "shared undeclared",
            Self::SharedMisaligned { .. } => "shared misaligned",
            Self::CopyNotAwaited { .. } => "copy not awaited",
            Self::WriteUnderWay { .. } => "write under way",
            Self::Race { .. } => "race in shared memory",
            Self::GlobalRace { .. } => "race in global memory",
            Self::WrittenBeforeLoad { .. } => "written before a load",
            Self::OrderedOutsideOfAtomics => "ordered outside of atomics",
            Self::NotCooperative => "not cooperative",
            Self::NotClustered => "not clustered",
            Self::ClusterRank { .. } => "cluster rank",
            Self::ClusterArrivedTwice { .. } => "cluster arrived twice",
            Self::ClusterWaitAlone => "cluster wait alone",
            Self::ClusterArrivalNotAwaited => "cluster arrival not awaited",
            Self::ClusterDivergence { .. } => "cluster divergence",
            Self::ClusterRace { .. } => "race in the cluster",
            Self::UnwrittenRemote { .. } => "unwritten remote",
            Self::RemoteNotStarted { .. } => "remote not started",
            Self::RemoteEnded { .. } => "remote ended",
            Self::RemoteBarrier { .. } => "remote barrier",
            Self::MulticastRanks { .. } => "multicast ranks",
            Self::Stuck { .. } => "stuck",
            Self::StepBudget { .. } => "step budget",
            Self::ThreadLimit { .. } => "thread limit",
            Self::UnwrittenShared { .. } => "unwritten shared",
            Self::UnwrittenGlobal { .. } => "unwritten global",
            Self::BarrierDivergence { .. } => "barrier divergence",
            Self::BarrierMixed { .. } => "barrier mixed",
            Self::Deadlock { .. } => "deadlock",
            Self::BarrierNotInitialized { .. } => "barrier not initialized",
            Self::BarrierInitialization { .. } => "barrier initialization",
            Self::BarrierParity { .. } => "barrier parity",
            Self::BarrierNotFenced { .. } => "barrier not fenced",
            Self::TooManyArrivals { .. } => "too many arrivals",
            Self::UnbalancedBytes { .. } => "unbalanced bytes",
            Self::InFlight { .. } => "in flight",
            Self::TileMisaligned { .. } => "tile misaligned",
            Self::TapTooFar { .. } => "tap too far",
            Self::NotABasePixel { .. } => "not a base pixel",
            Self::StoreBeforeArray { .. } => "store before array",
            Self::StoreBehindArray { .. } => "store behind array",
            Self::NotFenced { .. } => "not fenced",
            Self::StoreNotAwaited => "store not awaited",
            Self::ProductNotAwaited => "product not awaited",
            Self::SumsNotAwaited { .. } => "sums not awaited",
            Self::LoadNotAwaited => "load not awaited",
            Self::BarrierNumber { .. } => "barrier number",
            Self::BarrierCount { .. } => "barrier count",
            Self::BarrierUnmet { .. } => "barrier unmet",
            Self::BarrierMeetings { .. } => "barrier meetings",
            Self::BarrierArrivedTwice { .. } => "barrier arrived twice",
            Self::BarrierAccess { .. } => "access to a barrier",
            Self::RegistersNotFenced => "registers not fenced",
            Self::WarpgroupDivergence { .. } => "warpgroup divergence",
            Self::Registers { .. } => "registers",
            Self::WarpSplitAtBarriers { .. } => "warp split at barriers",
            Self::WarpDivergence { .. } => "warp divergence",
            Self::LaneNotInMask { .. } => "lane not in mask",
            Self::InactiveLane { .. } => "inactive lane",
            Self::StackOverflow { .. } => "stack overflow",
            Self::Panic { .. } => "panic",
        }
    }

    /// What else there is to say than the first line does: the other access, and who waits where.
    fn notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race { other, .. } | Self::WriteUnderWay { other, .. } => other_access(f, &None, other),
            Self::GlobalRace { block, other, .. } | Self::ClusterRace { block, other, .. } => {
                other_access(f, block, other)
            }
            Self::ClusterArrivedTwice { first } => note(f, format_args!("it arrived here first"), first),
            Self::ClusterDivergence { absent, .. } => {
                absent.iter().try_for_each(|(block, place)| write!(f, "\n  note: in block {block}, {place}"))
            }
            Self::InFlight { other, .. } => {
                of_other(f, format_args!("thread {} asked them to here", other.thread), other)
            }
            Self::WarpgroupDivergence { other: Some(other), .. } => {
                note(f, format_args!("another warp comes to this product in its place"), other)
            }
            Self::UnwrittenShared { pending: Some(other), .. } => {
                let thread = other.thread;
                let what = format_args!(
                    "thread {thread} asked for it to be copied there here, and that has not been waited for"
                );
                of_other(f, what, other)
            }
            Self::UnwrittenGlobal { allocated, .. } => {
                note(f, format_args!("the memory was allocated here"), allocated)
            }
            Self::WrittenBeforeLoad { block, thread, location, .. } => {
                let what = format_args!("it is written here: by thread {thread}{}", of_block(block));
                note(f, what, location)
            }
            Self::NotFenced { thread, location, .. } => {
                note(f, format_args!("the other access is here: thread {thread} writes it"), location)
            }
            Self::BarrierMixed { other, thread, location, .. } => {
                note(f, format_args!("thread {thread} calls `{}` here", other.function()), location)
            }
            Self::BarrierMeetings { thread, location, .. } => note(
                f,
                format_args!("the other arrival is here: thread {thread} comes for the meeting before"),
                location,
            ),
            Self::BarrierArrivedTwice { first, .. } => note(f, format_args!("it came here first"), first),
            Self::BarrierAccess { initialized, .. } => {
                note(f, format_args!("the barrier was initialized here"), initialized)
            }
            Self::ThreadLimit { last_stop: Some(last_stop), .. } => note(f, format_args!("it stopped here"), last_stop),
            Self::SumsNotAwaited { product } => note(f, format_args!("the product is here"), product),
            Self::WarpDivergence { absent, .. } if absent.is_empty() => {
                f.write_str("\n  note: the block has no threads for them")
            }
            Self::Stuck { last_write, others, .. } => {
                if let Some(LastWrite { block, thread, location }) = last_write {
                    note(f, format_args!("thread {thread} of block {block} wrote it last, here"), location)?;
                }
                places(f, others)
            }
            Self::Deadlock { others: elsewhere, .. }
            | Self::BarrierDivergence { absent: elsewhere, .. }
            | Self::WarpDivergence { absent: elsewhere, .. }
            | Self::WarpSplitAtBarriers { elsewhere, .. } => places(f, elsewhere),
            _ => Ok(()),
        }
    }

    /// What to do about it, if it has happened in this line.
    fn help(&self, location: Option<&SourceLine>) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::OutOfBounds { .. } => {
                "compare the index with the length of the view before the access, as `get` does, or have the kernel `requires` \
                 that the view is long enough for the grid"
            }
            Self::Misaligned { .. } => {
                "access single elements, or have the kernel `requires` that the view begins at a multiple of so many bytes, and keep \
                 indices to multiples of the vector's length"
            }
            Self::SharedOutOfBounds { .. } => {
                "make the array larger, or the index smaller: check the last thread and the last round"
            }
            Self::DynamicSharedBounds { .. } => {
                "name more bytes in `#[kernel(dynamic_shared = …)]`, or begin the slice at a multiple of the element's alignment"
            }
            Self::SharedUndeclared { .. } => {
                "declare the array inside the `#[kernel]` function, and pass it to functions as `&'static Shared<…>`"
            }
            Self::SharedMisaligned { .. } => {
                "begin the slice, and each line in it, at a multiple of so many bytes; or access single elements"
            }
            Self::CopyNotAwaited { .. } => {
                "close the group by `commit_group`, and wait for it by `wait_group` before the thread returns"
            }
            Self::WriteUnderWay { .. } => {
                "wait for one copy by `wait_group` before another one, or a store, writes to the same bytes"
            }
            Self::Race { access, by_engine, other, missing, .. } => {
                return of_race_in_block((*access, *by_engine), location, other, missing);
            }
            Self::GlobalRace { access, other, missing: Some(missing), .. } => {
                return of_race_in_block((*access, false), location, other, missing);
            }
            Self::GlobalRace { access, other, .. } => return of_race_of_blocks(*access, other.access),
            Self::WrittenBeforeLoad { .. } => {
                "have TMA load what earlier launches have written, and have threads read what this launch has: no barrier, and no fence for \
                 shared memory, orders what is written to global memory before a load by TMA"
            }
            Self::OrderedOutsideOfAtomics => {
                "make the memory a parameter of type `GlobalAtomics`: by that the launch knows that blocks may wait for one another; or use \
                 `Relaxed` if nothing but the value itself matters"
            }
            Self::NotClustered => "write `cluster = …` among the arguments of `#[kernel]`",
            Self::ClusterRank { .. } => {
                "compute the rank from `cluster::blocks()`, or name more blocks in `#[kernel(cluster = …)]`, 8 at most"
            }
            Self::ClusterArrivedTwice { .. } => "call `cluster::wait()` between the two",
            Self::ClusterWaitAlone => "call `cluster::arrive()` before, or `cluster::sync()` in place of the wait",
            Self::ClusterArrivalNotAwaited => "call `cluster::wait()` before the thread returns",
            Self::ClusterDivergence { .. } => {
                "have all threads of all blocks of the cluster come to the same meetings: move the call out of the branch or loop; only threads \
                 that have returned are not waited for"
            }
            Self::ClusterRace { access, other, .. } => return of_race_in_cluster(*access, other.access),
            Self::UnwrittenRemote { .. } => {
                "have the block whose memory it is, or another one, write all that is read, zeros too, before a `cluster::sync()`"
            }
            Self::RemoteNotStarted { .. } => {
                "put `cluster::sync()` before the first access to another block's memory, or `cluster::arrive_relaxed()` and `cluster::wait()`"
            }
            Self::RemoteEnded { .. } => {
                "put `cluster::sync()`, to which the block comes as well, behind the last access to another block's memory, or have the block wait \
                 for an arrival"
            }
            Self::RemoteBarrier { problem: RemoteBarrierProblem::TooManyArrivals, .. } => {
                "initialize the barrier for as many arrivals as there are from all blocks, or wait for the phase before the next arrival"
            }
            Self::RemoteBarrier { .. } => {
                "have one thread of each block call `Barrier::init` and `fence_barrier_init`, and put `cluster::sync()` between that and the \
                 first use from another block"
            }
            Self::MulticastRanks { .. } => {
                "set a bit for at least one block, and for no rank from `cluster::blocks()` on"
            }
            Self::NotCooperative => "write `cooperative` among the arguments of `#[kernel]`",
            Self::Stuck { access: AccessKind::Read, .. } => {
                "wait by atomic operations: `load(Acquire, …)` in the loop, and `store(…, Release, …)` where the wait is to end, by a thread \
                 that comes there before it waits itself; the compiler may read once what is read plainly, and then the loop never ends"
            }
            Self::Stuck { .. } => {
                "look for the store that should end the wait: whether somebody comes to it, and before waiting; blocks that need one another \
                 must all run at the same time (`#[kernel(cooperative)]`)"
            }
            Self::StepBudget { .. } => {
                "look for a loop that does not end; or allow more steps, or take smaller sizes, if it is only a long one"
            }
            Self::ThreadLimit { .. } => {
                "look for a loop whose condition never changes; if it is only a long one, allow more time (`Executor::thread_limit`; in tests and \
                 programs over operations the variable `TILEWRIGHT_THREAD_LIMIT`, in seconds)"
            }
            Self::UnwrittenShared { .. } => {
                "write all that is read, zeros too, in this block, and let a barrier stand between another thread's write and this read; what an asynchronous copy or TMA writes is there only when it has been \
                 waited for, and no longer when the next one to the same place has begun"
            }
            Self::UnwrittenGlobal { .. } => {
                "write all that is read, zeros too: in an earlier kernel, or by the host, or in this kernel before it is read; or upload values \
                 in place of allocating memory without"
            }
            Self::BarrierDivergence { .. } => {
                "move the barrier out of the branch or loop, and let threads that have nothing to do come to it instead of returning"
            }
            Self::BarrierMixed { .. } => {
                "have all threads of the block come to one barrier by the same function; a thread that has no vote brings `false` (or `true` \
                 where all are asked)"
            }
            Self::Deadlock { .. } => {
                "look for the arrival, the bytes or the threads that are missing: the number of arrivals at `init`, the parity, and who returns \
                 before"
            }
            Self::BarrierNotInitialized { .. } => {
                "have one thread call `Barrier::init`, and put `thread::sync_threads()` between that and the first use"
            }
            Self::BarrierInitialization { .. } => {
                "have one thread initialize each barrier once, for at least one arrival"
            }
            Self::BarrierParity { .. } => {
                "phases are numbered from 0 on, and the parity of a phase is its number modulo 2: write `wait(phase % 2)`"
            }
            Self::BarrierNotFenced { .. } => {
                "have the thread that initializes the barrier call `fence_barrier_init` (or `fence_async_shared`) afterwards, before the barrier of the \
                 block"
            }
            Self::TooManyArrivals { .. } => {
                "initialize the barrier for as many arrivals as there are, or wait for the phase before the next arrival"
            }
            Self::UnbalancedBytes { .. } => {
                "have `arrive_expecting` name as many bytes as the tiles that are loaded for this phase have"
            }
            Self::InFlight { .. } => {
                "wait until they have done: for a load at its barrier, for a store by `wait_for_stores`, for products by `wait`; if this access \
                 is meant to come first, put a barrier between it and the call"
            }
            Self::TileMisaligned { .. } => "begin tiles at coordinates whose bytes are multiples of 16",
            Self::TapTooFar { .. } => "load the pixels of filters that reach further by other means",
            Self::NotABasePixel { .. } => {
                "begin at a whole number of the map's steps from its lower corner, before its upper corner"
            }
            Self::StoreBeforeArray { .. } => {
                "begin tiles that are stored inside of the array: only those that are loaded may begin before it"
            }
            Self::StoreBehindArray { .. } => {
                "allocate the array so that the last piece of 16 bytes of each line has room"
            }
            Self::NotFenced { .. } => {
                "have each thread that writes call `fence_async_shared` after it, before the barrier that the others wait at"
            }
            Self::StoreNotAwaited => "call `commit_stores` and `wait_for_stores::<0>` before the thread returns",
            Self::ProductNotAwaited => {
                "call `wgmma::commit`, and have the sums wait (`wait::<0>`) before the thread returns"
            }
            Self::SumsNotAwaited { .. } => {
                "call `wgmma::commit` behind the product, and have the accumulators wait (`wait::<0>`) before anything reads them"
            }
            Self::LoadNotAwaited => "have a thread wait at the barrier of the load before the block ends",
            Self::BarrierNumber { .. } => {
                "choose a number from 1 to 15, and a count of threads that is a multiple of 32"
            }
            Self::BarrierCount { .. } => "have all that meet at a barrier name the same count of threads",
            Self::BarrierUnmet { .. } => "have the others come, or count fewer threads",
            Self::BarrierMeetings { .. } => {
                "give those that are to meet a number of their own; or have a warp that comes for the next meeting wait before for the last one \
                 (`sync_part`, not `arrive_at_part`), or for somebody who has"
            }
            Self::BarrierArrivedTwice { .. } => {
                "have the warp wait for the others before it comes again: there (`sync_part`), or at another barrier, to which they come behind \
                 this one"
            }
            Self::BarrierAccess { .. } => {
                "put the data elsewhere: from `Barrier::init` on, until the block ends, its 8 bytes are for the functions of `Barrier` and for \
                 TMA's count of bytes alone"
            }
            Self::RegistersNotFenced => {
                "call `wgmma::fence` before the first product, and behind every other access to its registers"
            }
            Self::WarpgroupDivergence { .. } => {
                "have all four warps of a warpgroup, 128 threads from a multiple of 128 on, come to the same products in the same order"
            }
            Self::Registers { .. } => {
                "give up (`release_registers`) down to fewer, and ask (`acquire_registers`) for more than there are"
            }
            Self::WarpSplitAtBarriers { .. } => {
                "have a warp come to a barrier as a whole, by one call: move the barrier out of the branch"
            }
            Self::WarpDivergence { operation, .. } if operation.is_aligned() => {
                "have all 32 lanes of the warp come to this call: move it out of the branch, and let no lane return before"
            }
            Self::WarpDivergence { .. } => {
                "have all lanes that the mask names come to this call with the same mask, or name fewer"
            }
            Self::LaneNotInMask { .. } => "name the calling lane in the mask, or keep it from the call",
            Self::InactiveLane { .. } => {
                "let that lane take part, take the value of one that does, or shuffle in segments (`width`) of lanes that all do"
            }
            Self::StackOverflow { asked: Some(_), .. } => {
                "look for recursion that does not end, or goes deeper than it should; if it is as deep as it has to be, name more bytes in \
                 `#[kernel(stack = …)]`, which a GPU gets, too, or set a larger size with `Executor::stack_bytes` for what functions take \
                 only here"
            }
            Self::StackOverflow { .. } => {
                "look for deep recursion or large local arrays, or set a larger size with `Executor::stack_bytes`"
            }
            Self::Panic { .. } => {
                "the kernel itself has found what it does not expect: look at the values that this line depends on"
            }
        })
    }
}

impl fmt::Display for RemoteBarrierProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInitialized => "is not initialized",
            Self::NotFenced => "is not visible to TMA, which is to tell it of bytes",
            Self::TooManyArrivals => "expects no more arrivals in its present phase, only bytes",
        })
    }
}

impl fmt::Display for BarrierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the barrier at byte {} (initialized at {})", self.byte_offset, self.initialized)
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for SharedArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static { declared, type_name } => write!(f, "the shared array `{type_name}` declared at {declared}"),
            Self::Dynamic => f.write_str("the dynamic shared memory (in units of 4 bytes)"),
            Self::Slice { byte_offset, len, element_bytes } => write!(
                f,
                "the slice of {} of {} from byte {byte_offset} on of the dynamic shared memory",
                counted(len, "element"),
                counted(element_bytes, "byte")
            ),
        }
    }
}

impl AccessKind {
    /// What the thread does to an element: "it …".
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Atomic { scope: Scope::Block, .. } => "atomically, for its own block only, accesses",
            Self::Atomic { scope: Scope::Cluster, .. } => "atomically, for its own cluster only, accesses",
            Self::Atomic { .. } => "atomically accesses",
        }
    }
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, returned, wait) = if self.count == 1 {
            (format!("thread {}", self.first), "has", "waits")
        } else {
            (format!("{} threads, the first of them {},", self.count, self.first), "have", "wait")
        };
        match &self.place {
            Place::Returned => write!(f, "{subject} {returned} returned"),
            Place::Barrier(location) => write!(f, "{subject} {wait} at the barrier at {location}"),
            Place::Warp { operation, mask, location } => {
                write!(f, "{subject} {wait} in {operation} with mask {mask:#010x} at {location}")
            }
            Place::Running(location) if self.count == 1 => write!(f, "{subject} is at {location}"),
            Place::Running(location) => write!(f, "{subject} are at {location}"),
            Place::Waiting { waits_for, location } => write!(f, "{subject} {wait} for {waits_for} at {location}"),
        }
    }
}

impl fmt::Display for WarpOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShuffleUp => "`warp_shuffle_up`",
            Self::ShuffleDown => "`warp_shuffle_down`",
            Self::ShuffleXor => "`warp_shuffle_xor`",
            Self::ShuffleIdx => "`warp_shuffle_idx`",
            Self::VoteAll => "`warp_vote_all`",
            Self::VoteAny => "`warp_vote_any`",
            Self::VoteBallot => "`warp_vote_ballot`",
            Self::MatchAny => "`match_any`",
            Self::MatchAll => "`match_all`",
            Self::ReduceAdd => "`reduce_add`",
            Self::ReduceMinU32 => "`reduce_min` of u32",
            Self::ReduceMinI32 => "`reduce_min` of i32",
            Self::ReduceMaxU32 => "`reduce_max` of u32",
            Self::ReduceMaxI32 => "`reduce_max` of i32",
            Self::ReduceAnd => "`reduce_and`",
            Self::ReduceOr => "`reduce_or`",
            Self::ReduceXor => "`reduce_xor`",
            Self::Sync => "`sync_warp`",
            Self::LoadMatrices => "`ldmatrix_x4`",
            Self::MmaTf32 => "`mma_m16n8k8_tf32`",
            Self::MmaBf16 => "`mma_m16n8k16_bf16`",
            Self::MmaFp16 => "`mma_m16n8k16_fp16`",
            Self::MmaFp64 => "`mma_m8n8k4_fp64`",
            Self::Elect => "`elect_one`",
            Self::SyncPart => "`sync_part`",
            Self::ArriveAtPart => "`arrive_at_part`",
            Self::Wgmma => "a product of a warpgroup",
            Self::WgmmaFence => "`wgmma::fence`",
            Self::WgmmaCommit => "`wgmma::commit`",
            Self::WgmmaWait => "a wait for products of a warpgroup",
        })
    }
}

/// So many of what a noun says whose plural has an `s`: "1 thread", "3 threads".
pub(in super::super) fn counted(count: impl ToString, noun: &str) -> String {
    let count = count.to_string();
    format!("{count} {noun}{}", agreeing(&count, "", "s"))
}

/// The form of a word that goes with a count.
pub(in super::super) fn agreeing<'a>(count: impl ToString, one: &'a str, many: &'a str) -> &'a str {
    if count.to_string() == "1" { one } else { many }
}

/// An element of a view, or a byte of one.
pub(in super::super) fn element_name(element: &Option<ViewElement>) -> String {
    match element {
        Some(ViewElement { view, index, byte: 0 }) => format!("element {index} of view `{view}`"),
        Some(ViewElement { view, index, byte }) => format!("byte {byte} of element {index} of view `{view}`"),
        None => "an element of a view that is not among the kernel's arguments".into(),
    }
}

/// The view, or the part of it that begins at element `first`.
fn view_name(view: &Option<String>, first: usize) -> String {
    match (view, first) {
        (Some(name), 0) => format!("view `{name}`"),
        (Some(name), _) => format!("the part of view `{name}` from element {first} on"),
        (None, _) => "a view that is not among the kernel's arguments".into(),
    }
}

/// Where an element of a part is in the view. Before the part if the index is less than zero, which as a `usize` it cannot show.
fn place_in_view(first: usize, index: usize) -> i128 {
    first as i128 + i128::from(index as i64)
}

/// What an access outside of a view has done.
pub(super) fn out_of_bounds(view: &Option<String>, first: usize, index: usize, count: usize, len: usize) -> String {
    let (name, place) = (view_name(view, first), place_in_view(first, index));
    let what = match count {
        1 => format!("element {index} is out of bounds of {name}, which has {len}"),
        _ => format!("the {count} elements from {index} are not all in bounds of {name}, which has {len}"),
    };
    match (first, count) {
        // What is less than zero has become a large number as a `usize`, which tells a reader nothing.
        (0, _) if place < 0 => format!("{what}: as a signed number the index is {place}"),
        (0, _) => what,
        (_, 1) => format!("{what}: it would be element {place} of the view"),
        _ => format!("{what}: they would begin at element {place} of the view"),
    }
}

/// What a vector access at a wrong address has done.
pub(super) fn misaligned(view: &Option<String>, first: usize, index: usize, bytes: usize) -> String {
    let place = match first {
        0 => String::new(),
        _ => format!(", element {} of the view,", place_in_view(first, index)),
    };
    let view = view_name(view, first);
    format!("the address of element {index} of {view}{place} is not a multiple of {bytes} bytes")
}

/// The block of the other access, if that is another one.
pub(super) fn of_block(block: &Option<Dim3>) -> String {
    block.map_or_else(String::new, |block| format!(" of block {block}"))
}
