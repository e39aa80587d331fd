//! What a report names: lines of source, arrays and elements, accesses, threads that wait, operations of a warp.

use core::panic::Location;
use std::borrow::Cow;
use std::string::String;
use std::vec::Vec;

use crate::Dim3;
use crate::atomic::Scope;

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was given it.
    pub file: Cow<'static, str>,
    /// The line, counted from 1.
    pub line: u32,
}

impl From<&'static Location<'static>> for SourceLine {
    fn from(location: &'static Location<'static>) -> Self {
        Self { file: Cow::Borrowed(location.file()), line: location.line() }
    }
}

/// Which array in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedArrayName {
    /// A `static` of type `Shared`.
    Static {
        /// The line of its declaration.
        declared: SourceLine,
        /// The type of the array, such as `[[f32; 32]; 32]`.
        type_name: &'static str,
    },
    /// The shared memory whose size the launch chose. Its elements are counted in units of 4 bytes.
    Dynamic,
    /// A slice of it.
    Slice {
        /// Where it begins.
        byte_offset: usize,
        /// Its number of elements.
        len: usize,
        /// The size of one.
        element_bytes: usize,
    },
}

/// An element of a view among the kernel's parameters, or a byte of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewElement {
    /// The view's path among the parameters, such as `gemm.a.data`.
    pub view: String,
    /// Its position in the view.
    pub index: usize,
    /// The byte of the element, counted from 0.
    pub byte: usize,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It is an atomic operation.
    Atomic {
        /// With respect to whom.
        scope: Scope,
        /// The size of the element.
        bytes: u8,
    },
}

/// The earlier of the two accesses of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAccess {
    /// The thread, by its position in the block.
    pub thread: Dim3,
    /// The line of the access.
    pub location: SourceLine,
    /// What it did.
    pub access: AccessKind,
    /// As [`Fault::callers`](super::Fault::callers), of this access.
    pub callers: Vec<SourceLine>,
}

/// A barrier in shared memory (`hopper::Barrier`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierName {
    /// Where it is in the dynamic shared memory.
    pub byte_offset: usize,
    /// The line that initializes it.
    pub initialized: SourceLine,
}

/// What would have ordered the two accesses of a race in one block, as far as its barriers tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// A barrier of the block, or of the warp if both threads are of one. The block has had no barriers for a part of its threads.
    Meeting,
    /// A meeting of the warp that both threads are of, or of more threads. The block has had barriers for a part of its threads, too.
    WarpMeeting,
    /// A barrier of the block between the initialization of a barrier, which is one of the two accesses, and its first use.
    Initialization,
    /// A wait of the thread of the report at this barrier, which comes behind the other access: its thread, or one that is behind it, has arrived.
    Wait(BarrierName),
    /// A wait of the thread of the report at this barrier, which TMA has told of the bytes that it wrote.
    WaitForLoad(BarrierName),
    /// A meeting at the barrier of this number, to which both have come, the other thread behind its access.
    Numbered {
        /// The number.
        id: u32,
    },
    /// An arrival of the other thread, or of its warp, behind its access; or a wait elsewhere.
    LaterArrival {
        /// Where the thread of the report has waited last, and the other one, or its warp, has arrived before its access.
        waited: BarrierName,
        /// A barrier where who waits comes behind the access, if there is one.
        behind: Option<BarrierName>,
    },
    /// An arrival of the other thread, and a wait of the thread of the report: there is neither.
    HandOver,
}

/// What is wrong with a barrier of another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteBarrierProblem {
    /// Nobody has initialized it.
    NotInitialized,
    /// It has not been made visible to TMA.
    NotFenced,
    /// Its present phase expects no more arrivals.
    TooManyArrivals,
}

/// Who has written something last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWrite {
    /// The block.
    pub block: Dim3,
    /// The thread, by its position in the block.
    pub thread: Dim3,
    /// The line of the write.
    pub location: SourceLine,
}

/// Threads that are somewhere else than where others wait for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The first of them in linear order.
    pub first: Dim3,
    /// How many they are.
    pub count: usize,
    /// Where they are.
    pub place: Place,
}

/// Where a thread is that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has returned from the kernel.
    Returned,
    /// It waits at a barrier of the block.
    Barrier(SourceLine),
    /// It waits for other lanes of its warp.
    Warp {
        /// The operation.
        operation: WarpOperation,
        /// The lanes it waits for.
        mask: u32,
        /// The line of the call.
        location: SourceLine,
    },
    /// It has made an atomic operation, and goes on when it is its turn.
    Running(SourceLine),
    /// It waits for something else.
    Waiting {
        /// What, and what is missing.
        waits_for: String,
        /// The line of the call.
        location: SourceLine,
    },
}

/// What the threads of a block do together at its barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the functions of `thread`")]
pub enum BlockOperation {
    Sync,
    SyncCount,
    SyncAnd,
    SyncOr,
}

impl BlockOperation {
    /// The function that a kernel calls.
    pub(in super::super) fn function(self) -> &'static str {
        match self {
            Self::Sync => "sync_threads",
            Self::SyncCount => "sync_threads_count",
            Self::SyncAnd => "sync_threads_and",
            Self::SyncOr => "sync_threads_or",
        }
    }
}

/// An operation that lanes of a warp carry out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the functions of `warp`, `ldmatrix`, `mma`, `hopper` and `wgmma`")]
pub enum WarpOperation {
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    ShuffleIdx,
    VoteAll,
    VoteAny,
    VoteBallot,
    MatchAny,
    MatchAll,
    ReduceAdd,
    ReduceMinU32,
    ReduceMinI32,
    ReduceMaxU32,
    ReduceMaxI32,
    ReduceAnd,
    ReduceOr,
    ReduceXor,
    Sync,
    LoadMatrices,
    MmaTf32,
    MmaBf16,
    MmaFp16,
    MmaFp64,
    Elect,
    SyncPart,
    ArriveAtPart,
    Wgmma,
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
}

impl WarpOperation {
    /// Whether all 32 lanes have to take part (`.aligned`), so that a lane that has returned is missed as well.
    pub(in super::super) fn is_aligned(self) -> bool {
        match self {
            Self::LoadMatrices | Self::MmaTf32 | Self::MmaBf16 | Self::MmaFp16 | Self::MmaFp64 => true,
            Self::Elect | Self::SyncPart | Self::ArriveAtPart => true,
            Self::Wgmma | Self::WgmmaFence | Self::WgmmaCommit | Self::WgmmaWait => true,
            Self::ShuffleUp | Self::ShuffleDown | Self::ShuffleXor | Self::ShuffleIdx => false,
            Self::VoteAll | Self::VoteAny | Self::VoteBallot | Self::Sync => false,
            Self::MatchAny | Self::MatchAll => false,
            Self::ReduceAdd | Self::ReduceMinU32 | Self::ReduceMinI32 | Self::ReduceMaxU32 => false,
            Self::ReduceMaxI32 | Self::ReduceAnd | Self::ReduceOr | Self::ReduceXor => false,
        }
    }
}
