//! The faults that the CPU executor reports: an out-of-bounds access, a race, a barrier that a thread never reaches, and the others.
//! What is written about each in one line stands beside it here; the rest of a report is in `message`.

mod message;
mod places;
mod races;

use std::boxed::Box;
use std::format;
use std::string::String;
use std::vec::Vec;

use gpu_facts::Excess;

use crate::{ContractViolation, Dim3};
pub(super) use message::{agreeing, counted, element_name};
use message::{misaligned, of_block, out_of_bounds};
pub use places::{
    AccessKind, BarrierName, BlockOperation, Elsewhere, LastWrite, Missing, OtherAccess, Place, RemoteBarrierProblem,
    SharedArrayName, SourceLine, ViewElement, WarpOperation,
};

/// Why a launch did not run, or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The arguments break a `requires` condition of the kernel.
    #[error(transparent)]
    Contract(#[from] ContractViolation),
    /// The grid or a block is more than the limits allow: see [`Executor::with_limits`](super::Executor::with_limits).
    #[error("kernel `{kernel}` cannot be launched: {excess}")]
    Excess {
        /// The kernel's name.
        kernel: &'static str,
        /// What is too much.
        excess: Excess,
    },
    /// The operating system refused the memory for the threads' stacks.
    #[error("cannot reserve {bytes} bytes for the stacks of a block's threads: {source}")]
    Stacks {
        /// The size of the reservation.
        bytes: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It was [asked](super::Stop) to end.
    #[error("kernel `{kernel}` was stopped before all of its blocks had run")]
    Stopped {
        /// The kernel's name.
        kernel: &'static str,
    },
    /// The kernel did something that it must not do.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

/// The first thing that a kernel did wrong, and where.
///
/// When blocks fail, the one with the lowest index in linear order (x fastest) is reported, whatever the number of
/// workers; within a block, what the executor met first in its fixed order.
///
/// Written out, it is a report of several lines: what went wrong, the line of source where, the other access if there is one, who waits
/// where, and what to do. The first line stands on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The block.
    pub block: Dim3,
    /// The thread, by its position in the block.
    pub thread: Dim3,
    /// The line of the access or of the call; `None` where it is not known, as for an overflowing stack.
    pub location: Option<SourceLine>,
    /// The lines of the kernel's functions from which the function of `location` was called, the innermost first, the kernel itself last: none
    /// if it is the kernel itself, and where nobody has looked for them ([`Backtraces`](super::Backtraces)).
    pub callers: Vec<SourceLine>,
    /// What happened.
    pub kind: FaultKind,
    /// An atomic load of the launch that has seen an old value, which may be why: the last one whose thread has not seen a newer one since.
    pub old_value: Option<OldValue>,
}

/// An atomic load that has seen an older value than the newest, as it may on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldValue {
    /// The block of the thread that has loaded it.
    pub block: Dim3,
    /// The thread, by its position in the block.
    pub thread: Dim3,
    /// The line of the load.
    pub location: SourceLine,
    /// The bits that it has seen.
    pub seen: u64,
    /// The bits that had been stored last.
    pub newest: u64,
}

/// What a kernel did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access past the end of a view of global memory.
    #[error("{}", out_of_bounds(view, *first, *index, *count, *len))]
    OutOfBounds {
        /// The view's path among the kernel's parameters, such as `gemm.a.data`; `None` if it is not one of them, nor a part
        /// of one.
        view: Option<String>,
        /// Where the accessed part of the view begins: 0 if it is the view as the kernel was given it. Indices and the number
        /// of elements are of the part. One that was to begin behind the end of the view begins at its end.
        first: usize,
        /// The first element of the access.
        index: usize,
        /// The number of elements of the access.
        count: usize,
        /// The number of elements of the view.
        len: usize,
    },
    /// A vector access to global memory at an address that is not a multiple of its size.
    #[error("{}", misaligned(view, *first, *index, *bytes))]
    Misaligned {
        /// The view's path among the kernel's parameters; `None` if it is not one of them, nor a part of one.
        view: Option<String>,
        /// As for [`FaultKind::OutOfBounds`].
        first: usize,
        /// The first element of the access.
        index: usize,
        /// The size of the access.
        bytes: usize,
    },
    /// An index outside a shared array.
    #[error("index {index} is out of bounds of {array}")]
    SharedOutOfBounds {
        /// The array.
        array: SharedArrayName,
        /// The index, as in the source.
        index: String,
    },
    /// A slice of dynamic shared memory that is misaligned or does not fit into what the launch was given.
    #[error(
        "a slice of {} of {} at byte {byte_offset} of the dynamic shared memory does not fit: the launch was given {}, and the offset has \
         to be a multiple of the element's alignment",
        counted(len, "element"),
        counted(element_bytes, "byte"),
        counted(available, "byte")
    )]
    DynamicSharedBounds {
        /// Where the slice was to begin.
        byte_offset: usize,
        /// Its number of elements.
        len: usize,
        /// The size of one.
        element_bytes: usize,
        /// The size that the launch was given, in bytes.
        available: usize,
    },
    /// The block uses a shared array that the kernel does not declare. The build for a GPU refuses it.
    #[error(
        "with {array} the block uses {} of static shared memory, and the kernel declares {declared_bytes}",
        counted(static_bytes, "byte")
    )]
    SharedUndeclared {
        /// An array that is too much.
        array: SharedArrayName,
        /// The size of the static arrays that the block has used, including this one.
        static_bytes: usize,
        /// The size of those that the kernel declares.
        declared_bytes: usize,
    },
    /// An access to several neighbours in shared memory at an address that is not a multiple of their size together.
    #[error("the address of element {index} of {array} is not a multiple of {bytes} bytes")]
    SharedMisaligned {
        /// The array.
        array: SharedArrayName,
        /// The first element of the access.
        index: usize,
        /// The size of the access.
        bytes: usize,
    },
    /// A thread returns from the kernel before it has waited for a copy that it has issued.
    #[error(
        "the thread returns without having waited for an asynchronous copy of {} to byte {byte_offset} of the dynamic shared memory, which \
         it issued here",
        counted(bytes, "byte")
    )]
    CopyNotAwaited {
        /// Where the copy goes.
        byte_offset: usize,
        /// Its size.
        bytes: usize,
    },
    /// A thread writes to where an asynchronous copy goes that is under way.
    #[error(
        "this copy writes bytes {byte_offset} to {} of the dynamic shared memory some time until the wait for it, and thread {} writes there, \
         too, before that wait: which of the two comes last is not defined",
        .byte_offset + .bytes, .other.thread
    )]
    WriteUnderWay {
        /// Where the copy goes.
        byte_offset: usize,
        /// Its size.
        bytes: usize,
        /// The other write: a store, or another copy.
        other: OtherAccess,
    },
    /// Two threads access an element of shared memory without a barrier between them, and at least one of them writes.
    #[error(
        "a race: this thread {} element {element} of {array}, and thread {} {} it, with no barrier between them",
        .access.verb(), .other.thread, .other.access.verb()
    )]
    Race {
        /// The array.
        array: SharedArrayName,
        /// The position in the array, as it is indexed: `5`, or `[3, 17]`.
        element: String,
        /// What the thread of the report did.
        access: AccessKind,
        /// Whether TMA or tensor cores access it for the thread of the report.
        by_engine: bool,
        /// The access that it conflicts with.
        other: OtherAccess,
        /// What would have ordered the two.
        missing: Missing,
    },
    /// Two threads access global memory with nothing that orders the two accesses, at least one of them writes, and they are not both
    /// atomic.
    #[error(
        "a race: this thread {} {}, and thread {}{} {} it, with nothing that orders the two",
        .access.verb(), element_name(element), .other.thread, of_block(block), .other.access.verb()
    )]
    GlobalRace {
        /// The element; `None` if it is of no view among the kernel's parameters.
        element: Option<ViewElement>,
        /// What the thread of the report did.
        access: AccessKind,
        /// The block of the other thread, if it is another one.
        block: Option<Dim3>,
        /// The access that it conflicts with.
        other: OtherAccess,
        /// What would have ordered the two, if they are of one block.
        missing: Option<Missing>,
    },
    /// TMA loads from global memory what the launch itself has written there.
    #[error(
        "TMA loads {} here, which thread {thread}{} has written in this launch: TMA need not see that",
        element_name(element),
        of_block(block)
    )]
    WrittenBeforeLoad {
        /// The element; `None` if it is of no view among the kernel's parameters.
        element: Option<ViewElement>,
        /// The block of the thread that has written it, if it is another one.
        block: Option<Dim3>,
        /// The thread that has written it.
        thread: Dim3,
        /// The line where.
        location: SourceLine,
    },
    /// An atomic operation that orders what threads do, on memory by which the launch does not know that blocks may wait for one another.
    #[error("an atomic operation that is not relaxed, on an element of a view that is not of type `GlobalAtomics`")]
    OrderedOutsideOfAtomics,
    /// All blocks were to meet, but the kernel does not say that they run at the same time.
    #[error("all blocks of the grid meet here, but they need not run at the same time: the kernel is not cooperative")]
    NotCooperative,
    /// The kernel uses what clusters have, but does not say that it has any.
    #[error("this needs a cluster of blocks, and the kernel does not say how many there are in one")]
    NotClustered,
    /// A rank that no block of the cluster has.
    #[error("there is no block of rank {rank} in a cluster of {blocks}")]
    ClusterRank {
        /// The rank.
        rank: u32,
        /// The blocks of a cluster.
        blocks: u32,
    },
    /// A thread arrives at the barrier of the cluster again and has not waited there since it arrived.
    #[error("the thread arrives at the barrier of the cluster twice and does not wait in between")]
    ClusterArrivedTwice {
        /// Where it arrived first.
        first: SourceLine,
    },
    /// A thread waits at the barrier of the cluster and has not arrived there.
    #[error("the thread waits at the barrier of the cluster and has not arrived there: it waits for itself")]
    ClusterWaitAlone,
    /// A thread returns from the kernel, has arrived at the barrier of the cluster, and has not waited there.
    #[error("the thread returns without having waited at the barrier of the cluster, at which it arrived here")]
    ClusterArrivalNotAwaited,
    /// Threads wait at the barrier of the cluster for others that never arrive.
    #[error(
        "{arrived} of {threads} threads {} arrived at the barrier of the cluster, and the others never do",
        agreeing(arrived, "has", "have")
    )]
    ClusterDivergence {
        /// How many have arrived.
        arrived: usize,
        /// How many there are in the cluster that have not returned.
        threads: usize,
        /// Where those are that do not wait there, by their blocks.
        absent: Vec<(Dim3, Elsewhere)>,
    },
    /// Threads of two blocks of a cluster access an element of shared memory, nothing orders the two accesses, at least one of them writes,
    /// and they are not both atomic.
    #[error(
        "a race: this thread {} element {element} of {array} of block {owner}, and thread {}{} {} it, with nothing that orders the two",
        .access.verb(), .other.thread, of_block(block), .other.access.verb()
    )]
    ClusterRace {
        /// The block whose memory it is.
        owner: Dim3,
        /// The array.
        array: SharedArrayName,
        /// The position in the array, as it is indexed.
        element: String,
        /// What the thread of the report did.
        access: AccessKind,
        /// The block of the other thread, if it is another one.
        block: Option<Dim3>,
        /// The access that it conflicts with.
        other: OtherAccess,
    },
    /// A read of the shared memory of another block that nobody has written.
    #[error("element {element} of {array} of block {owner} is read, but nobody has written it")]
    UnwrittenRemote {
        /// The block whose memory it is.
        owner: Dim3,
        /// The array.
        array: SharedArrayName,
        /// The position in the array.
        element: String,
    },
    /// An access to the shared memory of another block that may not have begun.
    #[error(
        "this accesses the shared memory of block {owner}, which need not have begun: nothing that it has done is ordered before"
    )]
    RemoteNotStarted {
        /// The block whose memory it is.
        owner: Dim3,
    },
    /// An access to the shared memory of another block that may have ended.
    #[error(
        "this accesses the shared memory of block {owner}, which may have ended: nothing orders the access before its end"
    )]
    RemoteEnded {
        /// The block whose memory it is.
        owner: Dim3,
    },
    /// An arrival, or bytes by TMA, for a barrier of another block that is not ready for it.
    #[error("the barrier at byte {byte_offset} of the dynamic shared memory of block {owner} {problem}")]
    RemoteBarrier {
        /// The block whose barrier it is.
        owner: Dim3,
        /// Where it is.
        byte_offset: usize,
        /// What is wrong.
        problem: RemoteBarrierProblem,
    },
    /// A tile for blocks that there are not, or for none.
    #[error(
        "a tile is loaded to the blocks of the ranks {ranks:#b} (a bit for each), and the cluster has {}",
        counted(blocks, "block")
    )]
    MulticastRanks {
        /// A bit for each rank.
        ranks: u16,
        /// The blocks of a cluster.
        blocks: u32,
    },
    /// Threads wait for a value that nobody is left to write.
    #[error(
        "this thread {} {place} again and again, and nothing changes: nobody is left who writes it, {}",
        .access.verb(),
        match blocks {
            1 => "and no other block runs at the same time".into(),
            _ => format!("among the {blocks} blocks that run at the same time"),
        }
    )]
    Stuck {
        /// How many blocks ran at the same time at most.
        blocks: usize,
        /// What it waits for: an element, and of what.
        place: String,
        /// How it looks whether it has come.
        access: AccessKind,
        /// The last write there, if it was no atomic operation.
        last_write: Option<LastWrite>,
        /// Where the other threads of the block are.
        others: Vec<Elsewhere>,
    },
    /// A thread of a block that is recorded, whose threads have made more steps than they may.
    #[error("the threads of this block have made {}, and have not come to an end", counted(steps, "step"))]
    StepBudget {
        /// How many they may make.
        steps: u64,
    },
    /// A thread that has run for longer than [`Executor::thread_limit`](super::Executor::thread_limit) allows, and has not stopped. The process
    /// ends with this report: no launch returns it.
    #[error(
        "this thread has run for {seconds} s since it {}, and comes to no barrier, no wait, no atomic operation and not to its end",
        if .last_stop.is_some() { "last stopped" } else { "began" }
    )]
    ThreadLimit {
        /// For how long it may run, in whole seconds.
        seconds: u64,
        /// Where it stopped last, in this block.
        last_stop: Option<SourceLine>,
    },
    /// A read of shared memory that no thread of the block had written. An asynchronous copy has written its target only
    /// when the thread that issued it has waited for it.
    #[error("element {element} of {array} is read, but no thread of this block has written it before")]
    UnwrittenShared {
        /// The array.
        array: SharedArrayName,
        /// The position in the array.
        element: String,
        /// The asynchronous copy, or the load by TMA, that is to write it, if there is one: who asked for it, and where.
        pending: Option<OtherAccess>,
    },
    /// A read of global memory that was allocated without values, and that nobody has written since.
    #[error(
        "{} is read, and nobody has written it: its memory, of {}, was allocated without values",
        element_name(element),
        counted(bytes, "byte")
    )]
    UnwrittenGlobal {
        /// The element; `None` if it is of no view among the kernel's parameters.
        element: Option<ViewElement>,
        /// The size of the allocation.
        bytes: usize,
        /// Where it was made.
        allocated: SourceLine,
    },
    /// A barrier that some threads of the block reach and others never do.
    #[error(
        "{} {} at a barrier that the others never reach",
        counted(waiting, "thread"),
        agreeing(waiting, "waits", "wait")
    )]
    BarrierDivergence {
        /// How many threads wait.
        waiting: usize,
        /// Where the other threads are: those in the same place together, in the order of their first thread.
        absent: Vec<Elsewhere>,
    },
    /// Threads that come to the barrier of the block by different functions: one barrier of a GPU either waits or takes one kind of vote.
    #[error(
        "this thread comes to the barrier of the block by `{}`, and thread {thread} has come to it by `{}`",
        .operation.function(), .other.function()
    )]
    BarrierMixed {
        /// What this thread calls.
        operation: BlockOperation,
        /// What the other one has called.
        other: BlockOperation,
        /// The first thread that has come.
        thread: Dim3,
        /// Where it waits.
        location: SourceLine,
    },
    /// Nobody can go on: each thread waits for others, or has returned.
    #[error("this thread waits for {waits_for}, and nobody can go on")]
    Deadlock {
        /// What it waits for, and what is missing.
        waits_for: String,
        /// Where the other threads are.
        others: Vec<Elsewhere>,
    },
    /// A barrier in shared memory that nobody has initialized in this block.
    #[error("the barrier at byte {byte_offset} of the dynamic shared memory is not initialized")]
    BarrierNotInitialized {
        /// Where it is.
        byte_offset: usize,
    },
    /// A barrier in shared memory that is initialized for a second time, or for no arrivals.
    #[error(
        "the barrier at byte {byte_offset} of the dynamic shared memory is initialized for {}: it has to be at least one, and once in \
         a block",
        counted(arrivals, "arrival")
    )]
    BarrierInitialization {
        /// Where it is.
        byte_offset: usize,
        /// The arrivals of a phase.
        arrivals: u32,
    },
    /// A wait at a barrier in shared memory for a parity that is neither 0 nor 1: `mbarrier.try_wait.parity` takes no other.
    #[error(
        "the wait at the barrier at byte {byte_offset} of the dynamic shared memory is for a phase of parity {parity}: a parity is 0 or 1"
    )]
    BarrierParity {
        /// Where it is.
        byte_offset: usize,
        /// What the wait names.
        parity: u32,
    },
    /// A barrier in shared memory that TMA is to tell of bytes, and that has not been made visible to it.
    #[error(
        "TMA is to tell the barrier at byte {byte_offset} of the dynamic shared memory of bytes, and it is not visible to TMA"
    )]
    BarrierNotFenced {
        /// Where it is.
        byte_offset: usize,
    },
    /// An arrival at a barrier whose present phase expects no more, but bytes.
    #[error("the present phase of the barrier at byte {byte_offset} expects no more arrivals, only bytes")]
    TooManyArrivals {
        /// Where it is.
        byte_offset: usize,
    },
    /// A barrier that expects bytes that never come, or has got more than it expects.
    #[error(
        "the bytes of the barrier at byte {byte_offset}, which is initialized here, do not add up: at the end of the block it {} {}{}",
        if *.missing < 0 { "has got" } else { "lacks" },
        counted(.missing.unsigned_abs(), "byte"),
        if *.missing < 0 { " more than it expects" } else { "" }
    )]
    UnbalancedBytes {
        /// Where it is.
        byte_offset: usize,
        /// What it lacks; less than 0 if it has got more than it expects.
        missing: i64,
    },
    /// A write to shared memory that TMA still reads or writes, or that products of a warpgroup still read.
    #[error(
        "element {element} of the dynamic shared memory (in units of 4 bytes) is written while TMA, or tensor cores, still {} it",
        match .other.access { AccessKind::Read => "read", _ => "write" }
    )]
    InFlight {
        /// The position in the dynamic shared memory.
        element: String,
        /// Whether it is read or written there, and who asked for that.
        other: OtherAccess,
    },
    /// A tile that begins where TMA cannot begin. A GPU ends such a kernel for an illegal instruction.
    #[error(
        "a tile of {element_bytes}-byte elements begins at coordinate {coordinate} of a line, {} from its beginning, which is no multiple \
         of 16", counted(i64::from(*.coordinate) * *.element_bytes as i64, "byte")
    )]
    TileMisaligned {
        /// The first coordinate.
        coordinate: i32,
        /// The size of an element.
        element_bytes: usize,
    },
    /// Pixels of a tap that is further from its base than TMA reaches.
    #[error("pixels are loaded {} columns and {} rows from their bases: TMA reaches 255", tap[0], tap[1])]
    TapTooFar {
        /// The columns and the rows.
        tap: [u16; 2],
    },
    /// Pixels that are loaded from where there is no base pixel on.
    #[error("pixels are loaded from column {} and row {} on, where the map has no base pixel", at[0], at[1])]
    NotABasePixel {
        /// The column and the row.
        at: [i32; 2],
    },
    /// A tile to store that begins before the array. A GPU ends such a kernel for an illegal instruction.
    #[error("a tile is stored to coordinate {coordinate} of dimension {dimension}, before the array")]
    StoreBeforeArray {
        /// The dimension, the fastest-running being 0.
        dimension: usize,
        /// The coordinate, which is negative.
        coordinate: i32,
    },
    /// A tile to store whose last piece of a line would go beyond the array's memory.
    #[error("TMA stores whole pieces of 16 bytes, here also byte {byte} of an array that has {bytes}")]
    StoreBehindArray {
        /// The byte, from the beginning of the array.
        byte: usize,
        /// The bytes of the array.
        bytes: usize,
    },
    /// TMA is to store, or tensor cores are to read, what a thread has written and not made visible to them.
    #[error(
        "element {element} of the dynamic shared memory (in units of 4 bytes) is for TMA or tensor cores here, and \
         thread {thread}, which wrote it, has not made it visible to them"
    )]
    NotFenced {
        /// The position in the dynamic shared memory.
        element: String,
        /// Who wrote it.
        thread: Dim3,
        /// Where.
        location: SourceLine,
    },
    /// A thread returns from the kernel while TMA may still read what it was asked to store.
    #[error("the thread returns without having waited until TMA has read what it was asked to store here")]
    StoreNotAwaited,
    /// A thread returns from the kernel before it has waited for accumulators of a warpgroup's products.
    #[error("the thread returns without having waited for the products that it began here")]
    ProductNotAwaited,
    /// A thread uses accumulators of a warpgroup's product before it has waited for the product.
    #[error(
        "this value is an accumulator of a product of a warpgroup, or has been computed from one, and the product had not been waited for"
    )]
    SumsNotAwaited {
        /// The line of the product.
        product: SourceLine,
    },
    /// A block ends while TMA still loads.
    #[error("the block ends while TMA still loads this tile")]
    LoadNotAwaited,
    /// A barrier of a number, or for a number of threads, that there is none of.
    #[error(
        "there is no barrier {id} for {}: barriers for a part of a block are 1 to 15 (0 is that of the whole block), and for whole warps",
        counted(threads, "thread")
    )]
    BarrierNumber {
        /// The number.
        id: u32,
        /// How many threads are to meet there.
        threads: u32,
    },
    /// Threads that come to the same barrier for another number of threads.
    #[error(
        "this thread comes to barrier {id} for {}, and others have come to it for {others}",
        counted(threads, "thread")
    )]
    BarrierCount {
        /// The number of the barrier.
        id: u32,
        /// How many threads are to meet, as this one says.
        threads: u32,
        /// As the others say.
        others: u32,
    },
    /// A block ends, and to a barrier for a part of it some have come, and others have not.
    #[error(
        "the block ends when {come} of {threads} threads {} come to barrier {id}, and the others never do",
        agreeing(come, "has", "have")
    )]
    BarrierUnmet {
        /// The number of the barrier.
        id: u32,
        /// How many threads have come.
        come: u32,
        /// How many were to meet.
        threads: u32,
    },
    /// A warp comes to a barrier for a part of the block, and an arrival of the meeting before is not ordered before: chance decides who
    /// belongs to which of the two meetings.
    #[error(
        "nothing orders this arrival at barrier {id} behind that of thread {thread} for the meeting before: which {threads} threads meet is \
         left to chance"
    )]
    BarrierMeetings {
        /// The number of the barrier.
        id: u32,
        /// How many threads meet there.
        threads: u32,
        /// The first thread of the warp that has come for the meeting before.
        thread: Dim3,
        /// Where it has.
        location: SourceLine,
    },
    /// A warp comes to a barrier for a part of the block twice for one meeting.
    #[error(
        "the warp comes to barrier {id} twice before {threads} threads have met there: a GPU counts it for two warps"
    )]
    BarrierArrivedTwice {
        /// The number of the barrier.
        id: u32,
        /// How many threads meet there.
        threads: u32,
        /// Where it came first.
        first: SourceLine,
    },
    /// An access to the memory of an initialized barrier by something else than its own operations.
    #[error(
        "this thread {} the memory of the barrier at byte {byte_offset} of the dynamic shared memory{}",
        .access.verb(), of_block(owner)
    )]
    BarrierAccess {
        /// The block whose barrier it is, if it is another one.
        owner: Option<Dim3>,
        /// Where it is.
        byte_offset: usize,
        /// What the thread, or TMA or tensor cores for it, did.
        access: AccessKind,
        /// Where the barrier was initialized.
        initialized: SourceLine,
    },
    /// A product of a warpgroup, and no fence orders it behind what its threads have done with the registers that it reads or writes.
    #[error(
        "the threads may have accessed the registers of this product, and nothing orders that before it: its first operand, or sums that \
         are not under way"
    )]
    RegistersNotFenced,
    /// A product of a warpgroup that not all of its four warps come to.
    #[error(
        "{come} of the four warps of the warpgroup {} to this product, and {}",
        agreeing(come, "comes", "come"),
        if other.is_some() { "another one comes to another product in its place" } else { "the others never do" }
    )]
    WarpgroupDivergence {
        /// How many warps come to it.
        come: usize,
        /// The line of the product that another warp has come to in its place.
        other: Option<SourceLine>,
    },
    /// Registers that are given up although there are fewer, or asked for although there are more.
    #[error("the thread has {}: it cannot give some up, or get more, to have {wanted}", counted(has, "register"))]
    Registers {
        /// What it has.
        has: u32,
        /// What it is to have.
        wanted: u32,
    },
    /// Threads of one warp wait at barriers in different places of the source.
    #[error(
        "{} of the warp {} at this barrier, and others of the same warp at another",
        counted(waiting, "thread"),
        agreeing(waiting, "waits", "wait")
    )]
    WarpSplitAtBarriers {
        /// How many threads of the warp wait where the thread of the report does.
        waiting: usize,
        /// Where those wait that are at other barriers. The line is the same if two calls stand on one line.
        elsewhere: Vec<Elsewhere>,
    },
    /// An operation of a warp that some of the lanes named in its mask never reach.
    #[error("{operation} with mask {mask:#010x} waits for lanes that never come")]
    WarpDivergence {
        /// The operation that waits.
        operation: WarpOperation,
        /// The lanes that were to take part.
        mask: u32,
        /// Where the others of these lanes are.
        absent: Vec<Elsewhere>,
    },
    /// A lane calls an operation of a warp with a mask that does not name the lane itself.
    #[error("lane {lane} calls {operation} with mask {mask:#010x}, which does not name it")]
    LaneNotInMask {
        /// The operation.
        operation: WarpOperation,
        /// The mask.
        mask: u32,
        /// The calling lane.
        lane: u32,
    },
    /// A shuffle gives a lane the value of one that does not take part in it, which may be anything.
    #[error(
        "{operation} with mask {mask:#010x} gives lane {lane} the value of lane {source_lane}, which does not take part: it {}",
        if mask >> source_lane & 1 == 0 { "is not in the mask" } else { "has returned, or the block does not have it" }
    )]
    InactiveLane {
        /// The shuffle.
        operation: WarpOperation,
        /// The mask.
        mask: u32,
        /// The lane that gets the value.
        lane: u32,
        /// The lane that it would come from.
        source_lane: u32,
    },
    /// The thread needs more stack than the executor gives it.
    #[error(
        "the stack overflowed: a thread has {}{}",
        counted(bytes, "byte"),
        .asked.map_or_else(String::new, |asked| format!(" here, and the kernel asks for {asked} (`stack = …`)"))
    )]
    StackOverflow {
        /// The size of a thread's stack.
        bytes: usize,
        /// What the kernel asks for, if it does: `#[kernel(stack = …)]`. The executor has no fewer bytes for it.
        asked: Option<u32>,
    },
    /// A panic in the kernel.
    #[error("the kernel panicked: {message}")]
    Panic {
        /// The panic's message.
        message: String,
    },
}

impl FaultKind {
    /// Whether it is a race, of accesses or of arrivals, so that what a thread has read may be what another one was about to write.
    pub(super) fn is_race(&self) -> bool {
        matches!(
            self,
            Self::Race { .. } | Self::GlobalRace { .. } | Self::ClusterRace { .. } | Self::BarrierMeetings { .. }
        )
    }
}
