//! What to do about a race: what would have ordered the two accesses.

use std::borrow::Cow;
use std::format;
use std::string::String;

use super::{AccessKind, Missing, OtherAccess, SourceLine};

/// What to do where atomic operations are of two sizes.
fn of_two_sizes(one: u8, other: u8) -> Cow<'static, str> {
    format!(
        "access an element by atomic operations of one size only: this one is of {one} bytes, the other one of {other}, and to one another \
         such are ordinary accesses"
    )
    .into()
}

/// What to do about a race of two threads of a block, for one of which TMA or tensor cores may make the access; and in which line it is.
pub(super) fn of_race_in_block(
    (access, by_engine): (AccessKind, bool),
    location: Option<&SourceLine>,
    OtherAccess { thread, access: other, location: of_other, .. }: &OtherAccess,
    missing: &Missing,
) -> Cow<'static, str> {
    use AccessKind::{Atomic, Read, Write};
    if let (Atomic { bytes: one, .. }, Atomic { bytes: other, .. }) = (access, *other) {
        return of_two_sizes(one, other);
    }
    if matches!((access, other), (Atomic { .. }, _) | (_, Atomic { .. })) {
        return "make both accesses atomic, or put a barrier between them".into();
    }
    let order: Cow<'static, str> = match missing {
        Missing::Meeting => {
            "put `thread::sync_threads()` between the two, or `warp::sync_warp` if both threads are of one warp; a sum in one place needs an \
             atomic operation"
                .into()
        }
        Missing::WarpMeeting => {
            "put `warp::sync_warp` between the two, which are of one warp, or a barrier that orders them with other warps as well".into()
        }
        Missing::Initialization => {
            "put `thread::sync_threads()` between `Barrier::init` and the first use of the barrier by another thread".into()
        }
        Missing::Wait(barrier) => format!(
            "who waits at {barrier} comes behind the access of thread {thread}: have this thread wait for that phase before its own"
        )
        .into(),
        Missing::WaitForLoad(barrier) => {
            format!("TMA has told {barrier} of what it wrote: have this thread wait for that phase before its access").into()
        }
        Missing::Numbered { id } => format!(
            "thread {thread} has come to barrier {id} behind its access: have this thread meet it there (`sync_part`) before its own"
        )
        .into(),
        Missing::LaterArrival { waited, behind } => {
            let elsewhere = behind.as_ref().map_or_else(String::new, |behind| format!("; who waits at {behind} comes behind it"));
            format!(
                "this thread has waited last at {waited}, and no arrival there is ordered behind the access of thread {thread}: have that \
                 thread arrive behind its access (behind the wait for it, if it is a product), or a lane of its warp behind a \
                 `sync_warp`{elsewhere}"
            )
            .into()
        }
        Missing::HandOver => format!(
            "have thread {thread} arrive at a `Barrier` behind its access, and this thread wait for that phase before its own, or both meet \
             at a barrier for a part of the block (`sync_part`); `thread::sync_threads()` is for what all threads of the block come to"
        )
        .into(),
    };
    match (by_engine, access, other, missing) {
        // Mostly an index that two threads share, or one that runs over into the next row: no barrier makes that right.
        (false, Write, Write, Missing::Meeting | Missing::WarpMeeting) if location == Some(of_other) => format!(
            "both write in this line: if they come to it together, give each thread an element of its own, keep out of it those that have \
             nothing to write, or have one thread alone write; if one after the other, {order}"
        )
        .into(),
        (true, Read, Write, missing) if !matches!(missing, Missing::WaitForLoad(_)) => {
            format!("{order}; thread {thread} has to call `fence_async_shared` behind its access as well").into()
        }
        (true, Write, Read, missing) if !matches!(missing, Missing::Wait(_)) => {
            format!("{order}; if it is to read what TMA loads here, have it wait at the barrier of the load before")
                .into()
        }
        _ => order,
    }
}

/// What to do about a race of threads of two blocks.
pub(super) fn of_race_of_blocks(access: AccessKind, other: AccessKind) -> Cow<'static, str> {
    use AccessKind::Atomic;
    match (access, other) {
        (Atomic { bytes: one, .. }, Atomic { bytes: other, .. }) if one != other => of_two_sizes(one, other),
        (Atomic { .. }, Atomic { .. }) => {
            "use a scope that includes both threads: `Scope::Device` for those of two blocks".into()
        }
        (Atomic { .. }, _) | (_, Atomic { .. }) => {
            "make both accesses atomic, or let each block have elements of its own".into()
        }
        _ => {
            "let each block have elements of its own, or order the two: an atomic operation that releases behind the first, and one that \
             acquires before the second, both of `Scope::Device`; a sum in one place needs an atomic operation"
                .into()
        }
    }
}

/// What to do about a race of two blocks of a cluster.
pub(super) fn of_race_in_cluster(access: AccessKind, other: AccessKind) -> Cow<'static, str> {
    use AccessKind::Atomic;
    match (access, other) {
        (Atomic { bytes: one, .. }, Atomic { bytes: other, .. }) if one != other => of_two_sizes(one, other),
        (Atomic { .. }, Atomic { .. }) => {
            "use a scope that includes both threads: `Scope::Cluster` for those of a cluster".into()
        }
        (Atomic { .. }, _) | (_, Atomic { .. }) => {
            "make both accesses atomic, or put `cluster::sync()` between the two".into()
        }
        _ => {
            "put `cluster::sync()` between the two, or have the second thread wait for the first by `Barrier::wait_for_cluster`; a sum in one \
             place needs an atomic operation"
                .into()
        }
    }
}
