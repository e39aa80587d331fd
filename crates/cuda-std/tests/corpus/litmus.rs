//! Litmus tests of memory models: what two, three or four threads may see of one another's stores, at each scope, and one order, fence or scope too
//! weak.
//!
//! After D. Lustig, S. Sahasrabuddhe and O. Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model" (2019), and J. Alglave et
//! al., "GPU Concurrency: Weak Behaviours and Programming Assumptions" (2015).

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, SeqCst, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::{GlobalRace, Order, Scope as TooSmall};
use crate::pattern::{Family, Pattern, Report, found, launch, missed, sometimes};

const RACE: &str = "race in global memory";

/// Two blocks: each sets its own flag, and looks at the other's. The second to be done asserts that one of them has seen the other.
#[kernel(block = 32)]
fn store_buffering(wrong: u32, flags: GlobalAtomics<'_, u32>, seen: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(own), Some(other), Some(done)) = (flags.get(block), flags.get(1 - block), flags.get(2)) else { return };
    unsafe {
        let value = match wrong {
            1 => {
                own.store(1, Release, Scope::Device);
                other.load(Acquire, Scope::Device)
            }
            2 => {
                own.store(1, Relaxed, Scope::Device);
                fence(AcqRel, Scope::Device);
                other.load(Relaxed, Scope::Device)
            }
            3 => {
                own.store(1, Relaxed, Scope::Device);
                fence(SeqCst, Scope::Block);
                other.load(Relaxed, Scope::Device)
            }
            _ => {
                own.store(1, Relaxed, Scope::Device);
                fence(SeqCst, Scope::Device);
                other.load(Relaxed, Scope::Device)
            }
        };
        seen.set_unchecked(block, value);
        if done.fetch_add(1, AcqRel, Scope::Device) == 1 {
            assert!(seen.get_unchecked(0) + seen.get_unchecked(1) > 0, "neither has seen the other"); // <buffering: assert>
        }
    }
}

/// Two writers of a place each, and two readers that look at both, in opposite orders: they must not disagree on who was first.
#[kernel(block = 32)]
fn independent_reads(wrong: u32, flags: GlobalAtomics<'_, u32>, seen: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(x), Some(y), Some(done)) = (flags.get(0), flags.get(1), flags.get(2)) else { return };
    unsafe {
        match block {
            0 => x.store(1, Relaxed, Scope::Device),
            1 => y.store(1, Relaxed, Scope::Device),
            _ => {
                let (first, second) = if block == 2 { (x, y) } else { (y, x) };
                let one = first.load(Relaxed, Scope::Device);
                if wrong == 1 {
                    fence(AcqRel, Scope::Device);
                } else {
                    fence(SeqCst, Scope::Device);
                }
                let two = second.load(Relaxed, Scope::Device);
                seen.set_unchecked(block, 2 * one + two);
                if done.fetch_add(1, AcqRel, Scope::Device) == 1 {
                    let disagree = seen.get_unchecked(2) == 2 && seen.get_unchecked(3) == 2;
                    assert!(!disagree, "the readers disagree"); // <independent: assert>
                }
            }
        }
    }
}

/// One thread writes values that rise, the others never see them fall.
#[kernel(block = 32)]
fn coherence(wrong: u32, flags: GlobalAtomics<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(x) = flags.get(0) else { return };
    if thread::block_idx_x() == 0 {
        for value in 1..8 {
            // The mistake: the narrow store is an ordinary one to the others.
            if wrong == 1 {
                x.store(value, Relaxed, Scope::Block); // <coherence: narrow store>
            } else {
                x.store(value, Relaxed, Scope::Device);
            }
        }
    } else {
        let mut before = 0;
        for _ in 0..8 {
            let value = x.load(Relaxed, Scope::Device); // <coherence: load>
            assert!(value >= before, "a value from before");
            before = value;
        }
    }
}

/// A number goes from block 0 to block 2 by a flag that block 1 adds to: what the first has released, the sum still carries.
#[kernel(block = 32)]
fn release_sequence(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flags.get(0) else { return };
    unsafe {
        match thread::block_idx_x() {
            0 => {
                data.set_unchecked(0, 9); // <sequence: write>
                flag.store(1, Release, Scope::Device);
            }
            1 => {
                while flag.load(Relaxed, Scope::Device) == 0 {}
                // The mistake: a store begins anew.
                if wrong == 1 {
                    flag.store(2, Relaxed, Scope::Device);
                } else {
                    flag.fetch_add(1, Relaxed, Scope::Device);
                }
            }
            _ => {
                while flag.load(Relaxed, Scope::Device) < 2 {}
                flag.load(Acquire, Scope::Device);
                y.set_unchecked(0, data.get_unchecked(0)); // <sequence: read>
            }
        }
    }
}

/// A warp tells another one of its block, for the block, and that one tells another block.
#[kernel(block = 64)]
fn scopes_in_a_chain(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    let (Some(near), Some(far)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        match (thread::block_idx_x(), thread::thread_idx_x()) {
            (0, 0) => {
                data.set_unchecked(0, 9); // <scopes: write>
                near.store(1, Release, Scope::Block);
            }
            (0, 32) => {
                while near.load(Acquire, Scope::Block) == 0 {}
                match wrong {
                    1 => far.store(1, Release, Scope::Block), // <scopes: narrow store>
                    2 => far.store(1, Relaxed, Scope::Device),
                    _ => far.store(1, Release, Scope::System), // <scopes: store>
                }
            }
            (1, 0) => {
                while match wrong {
                    3 => far.load(Acquire, Scope::Block),  // <scopes: narrow load>
                    _ => far.load(Acquire, Scope::Device), // <scopes: load>
                } == 0
                {}
                y.set_unchecked(0, data.get_unchecked(0)); // <scopes: read>
            }
            _ => {}
        }
    }
}

/// A message whose two fences reach as far as they have to, on both sides.
#[kernel(block = 32)]
fn fences_of_two_scopes(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flags.get(0) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            data.set_unchecked(0, 42); // <two scopes: write>
            fence(AcqRel, if wrong == 1 { Scope::Cluster } else { Scope::System });
            // The mistake: the fence orders what follows it in another thread's eyes, not what came between.
            if wrong == 3 {
                data.set_unchecked(1, 43); // <two scopes: late>
            }
            flag.store(1, Relaxed, Scope::System);
        } else {
            while flag.load(Relaxed, Scope::Device) == 0 {}
            fence(SeqCst, if wrong == 2 { Scope::Block } else { Scope::Device });
            let read = data.get_unchecked(usize::from(wrong == 3)); // <two scopes: read>
            y.set_unchecked(0, read);
        }
    }
}

/// A message within a cluster, whose blocks run together.
#[kernel(block = 32, cluster = 2)]
fn message_in_a_cluster(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let cluster = thread::block_idx_x() as usize / 2;
    let Some(flag) = flags.get(cluster) else { return };
    unsafe {
        if cuda_std::cluster::rank() == 0 {
            data.set_unchecked(cluster, 42); // <in a cluster: write>
            match wrong {
                1 => flag.store(1, Relaxed, Scope::Cluster),
                2 => flag.store(1, Release, Scope::Block), // <in a cluster: narrow store>
                _ => flag.store(1, Release, Scope::Cluster),
            }
        } else {
            while flag.load(Acquire, Scope::Cluster) == 0 {} // <in a cluster: load>
            y.set_unchecked(cluster, data.get_unchecked(cluster)); // <in a cluster: read>
        }
    }
}

/// Two blocks look at the other's place before they set their own: on a GPU, relaxed loads may come behind the stores that follow them.
#[kernel(block = 32)]
fn load_buffering(wrong: u32, flags: GlobalAtomics<'_, u32>, seen: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(own), Some(other), Some(done)) = (flags.get(block), flags.get(1 - block), flags.get(2)) else { return };
    unsafe {
        let value = if wrong == 1 { other.load(Relaxed, Scope::Device) } else { other.load(Acquire, Scope::Device) };
        own.store(1, Relaxed, Scope::Device);
        seen.set_unchecked(block, value);
        if done.fetch_add(1, AcqRel, Scope::Device) == 1 {
            assert!(seen.get_unchecked(0) + seen.get_unchecked(1) < 2, "both have seen what comes behind");
        }
    }
}

/// A flag that other blocks look at through a view of plain numbers.
#[kernel(block = 32)]
fn plain_look_at_a_flag(wrong: u32, flags: GlobalAtomics<'_, u32>, plain: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flags.get(0) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            flag.store(1, Release, Scope::Device); // <plain look: store>
        } else if wrong == 1 {
            while plain.get_unchecked(0) == 0 {} // <plain look: read>
        } else {
            while flag.load(Acquire, Scope::Device) == 0 {}
        }
    }
}

fn run_with_seen(
    run: impl FnOnce(GlobalAtomics<'_, u32>, GlobalSliceMut<'_, u32>) -> Result<(), Report>,
) -> Result<(), Report> {
    with_flags(4, |_, flags, seen| run(flags, seen))
}

/// One array behind two views, which a `Device` would refuse.
fn run_plain_look(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut flags = [0];
    let plain = unsafe { GlobalSliceMut::from_raw_parts(flags.as_mut_ptr(), 1) };
    launch(executor, plain_look_at_a_flag { wrong, flags: GlobalAtomics::new(&mut flags), plain }, 2)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("litmus.rs"),
    patterns: &[
        Pattern {
            name: "store_buffering",
            run: |wrong, executor| {
                run_with_seen(|flags, seen| launch(executor, store_buffering { wrong, flags, seen }, 2))
            },
            mistakes: &[
                sometimes(
                    Order,
                    "release and acquire, where all have to agree on one order",
                    "panic",
                    &["buffering: assert"],
                ),
                sometimes(Order, "a fence that is not `SeqCst`", "panic", &["buffering: assert"]),
                sometimes(TooSmall, "a `SeqCst` fence for the own block", "panic", &["buffering: assert"]),
            ],
        },
        Pattern {
            name: "independent_reads",
            run: |wrong, executor| {
                run_with_seen(|flags, seen| launch(executor, independent_reads { wrong, flags, seen }, 4))
            },
            mistakes: &[sometimes(Order, "fences that are not `SeqCst`", "panic", &["independent: assert"])],
        },
        Pattern {
            name: "coherence",
            run: |wrong, executor| run_with_seen(|flags, _| launch(executor, coherence { wrong, flags }, 3)),
            mistakes: &[found(
                TooSmall,
                "stores for the own block",
                RACE,
                &["coherence: narrow store", "coherence: load"],
            )],
        },
        Pattern {
            name: "release_sequence",
            run: |wrong, executor| {
                with_flags(1, |data, flags, y| launch(executor, release_sequence { wrong, data, flags, y }, 3))
            },
            mistakes: &[found(Order, "a relaxed store in between", RACE, &["sequence: write", "sequence: read"])],
        },
        Pattern {
            name: "scopes_in_a_chain",
            run: |wrong, executor| {
                with_flags(2, |data, flags, y| launch(executor, scopes_in_a_chain { wrong, data, flags, y }, 2))
            },
            mistakes: &[
                found(TooSmall, "passed on for the own block", RACE, &["scopes: narrow store", "scopes: load"]),
                found(Order, "passed on relaxed", RACE, &["scopes: write", "scopes: read"]),
                found(TooSmall, "loaded for the own block", RACE, &["scopes: store", "scopes: narrow load"]),
            ],
        },
        Pattern {
            name: "fences_of_two_scopes",
            run: |wrong, executor| {
                with_flags(2, |data, flags, y| launch(executor, fences_of_two_scopes { wrong, data, flags, y }, 2))
            },
            mistakes: &[
                found(TooSmall, "the first fence is for a cluster", RACE, &["two scopes: write", "two scopes: read"]),
                found(TooSmall, "the second fence is for a block", RACE, &["two scopes: write", "two scopes: read"]),
                found(Order, "written between the fence and the flag", RACE, &["two scopes: late", "two scopes: read"]),
            ],
        },
        Pattern {
            name: "message_in_a_cluster",
            run: |wrong, executor| {
                with_flags(2, |data, flags, y| launch(executor, message_in_a_cluster { wrong, data, flags, y }, 4))
            },
            mistakes: &[
                found(Order, "the flag is stored relaxed", RACE, &["in a cluster: write", "in a cluster: read"]),
                found(
                    TooSmall,
                    "the flag is stored for the own block",
                    RACE,
                    &["in a cluster: narrow store", "in a cluster: load"],
                ),
            ],
        },
        Pattern {
            name: "load_buffering",
            run: |wrong, executor| {
                run_with_seen(|flags, seen| launch(executor, load_buffering { wrong, flags, seen }, 2))
            },
            mistakes: &[missed(
                Order,
                "relaxed loads before a relaxed store",
                "loads read here what was stored before them, and never what will be; a GPU may have them wait",
            )],
        },
        Pattern {
            name: "plain_look_at_a_flag",
            run: run_plain_look,
            mistakes: &[found(GlobalRace, "plain reads of a flag", RACE, &["plain look: store", "plain look: read"])],
        },
    ],
};
