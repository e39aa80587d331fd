//! Structures without locks: a deque that others steal from, a ring between two blocks, a stack, a hash table, sums that are handed over in one word
//! or in two; each with one order, fence, step or count that is wrong.
//!
//! After D. Chase and Y. Lev, "Dynamic Circular Work-Stealing Deque" (2005), N. Lê et al., "Correct and Efficient Work-Stealing for Weak Memory
//! Models" (2013), L. Lamport's ring ("Specifying Concurrent Program Modules", 1983) and R. Treiber's stack (1986).

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, SeqCst, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::{Bounds, EndlessWait, GlobalRace, Order};
use crate::pattern::{Family, Pattern, Report, found, launch, sometimes};

const RACE: &str = "race in global memory";

/// Block 0 puts items into its deque and takes some back; others steal. Each item is worked at once.
#[kernel(block = 32)]
fn deque(wrong: u32, flags: GlobalAtomics<'_, u32>, items: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    const ITEMS: u32 = 6;
    if thread::thread_idx_x() != 0 {
        return;
    }
    // One more than what the algorithm has, so that `bottom - 1` is never negative.
    let (Some(top), Some(bottom), Some(taken)) = (flags.get(0), flags.get(1), flags.get(2)) else { return };
    let work = |item: u32| unsafe {
        y.set_unchecked(item as usize, y.get_unchecked(item as usize) + 1); // <deque: work>
        taken.fetch_add(1, Relaxed, Scope::Device);
    };
    unsafe {
        if thread::block_idx_x() != 0 {
            while taken.load(Relaxed, Scope::Device) < ITEMS {
                let first = top.load(Acquire, Scope::Device);
                if wrong != 4 {
                    fence(SeqCst, Scope::Device);
                }
                let behind = match wrong {
                    2 => bottom.load(Relaxed, Scope::Device),
                    _ => bottom.load(Acquire, Scope::Device),
                };
                if first < behind {
                    let item = items.get_unchecked(first as usize); // <deque: steal>
                    if top.compare_exchange(first, first + 1, SeqCst, Scope::Device).is_ok() {
                        work(item);
                    }
                }
            }
            return;
        }
        for item in 0..ITEMS {
            items.set_unchecked(item as usize, item); // <deque: put>
            match wrong {
                1 => bottom.store(item + 1, Relaxed, Scope::Device),
                _ => bottom.store(item + 1, Release, Scope::Device),
            }
        }
        while taken.load(Relaxed, Scope::Device) < ITEMS {
            let behind = bottom.load(Relaxed, Scope::Device);
            if behind == 0 {
                continue;
            }
            let last = behind - 1;
            bottom.store(last, Relaxed, Scope::Device);
            match wrong {
                3 => fence(AcqRel, Scope::Device),
                _ => fence(SeqCst, Scope::Device),
            }
            let first = top.load(Relaxed, Scope::Device);
            if first > last {
                bottom.store(behind, Relaxed, Scope::Device);
                continue;
            }
            // The mistake: for the last item others may be there, too.
            if first < last || wrong == 5 {
                work(items.get_unchecked(last as usize));
                continue;
            }
            let is_ours = top.compare_exchange(first, first + 1, SeqCst, Scope::Device).is_ok();
            bottom.store(behind, Relaxed, Scope::Device);
            if is_ours {
                work(items.get_unchecked(last as usize));
            }
        }
    }
}

/// A ring of four places between two blocks, with 12 items.
#[kernel(block = 32)]
fn ring_of_blocks(
    wrong: u32,
    flags: GlobalAtomics<'_, u32>,
    places: GlobalSliceMut<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(put), Some(taken)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            for item in 0..12 {
                // The mistakes: one too many; nobody looks.
                let most = if wrong == 1 { 4 } else { 3 };
                while match wrong {
                    4 => item - taken.load(Relaxed, Scope::Device),
                    6 => 0,
                    _ => item - taken.load(Acquire, Scope::Device),
                } > most
                {}
                places.set_unchecked(item as usize % 4, item); // <blocks' ring: put>
                match wrong {
                    3 => put.store(item + 1, Relaxed, Scope::Device),
                    _ => put.store(item + 1, Release, Scope::Device),
                }
            }
        } else {
            for item in 0..12 {
                // The mistake: one that is not there yet.
                let enough = if wrong == 2 { item } else { item + 1 };
                // The mistake: it waits for one more than there will be.
                let enough = if wrong == 7 { enough + 1 } else { enough };
                while put.load(Acquire, Scope::Device) < enough {} // <blocks' ring: wait>
                // The mistake: a place that is off by one.
                let place = if wrong == 8 { (item as usize + 1) % 4 } else { item as usize % 4 };
                // The mistake: it is given back before it is read.
                if wrong == 5 {
                    taken.store(item + 1, Release, Scope::Device);
                }
                y.set_unchecked(item as usize, places.get_unchecked(place)); // <blocks' ring: take>
                if wrong != 5 {
                    taken.store(item + 1, Release, Scope::Device);
                }
            }
        }
    }
}

/// Blocks push a node each, and then pop one and read what is in it. The head has a count beside it, so that no head is like an earlier one.
#[kernel(block = 32)]
fn stack_of_nodes(
    wrong: u32,
    head: GlobalAtomics<'_, u64>,
    nodes: GlobalSliceMut<'_, u32>,
    next: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    let Some(head) = head.get(0) else { return };
    unsafe {
        nodes.set_unchecked(block, 7); // <stack: node>
        let mut before = head.load(Relaxed, Scope::Device);
        loop {
            next.get_unchecked(block).store(before as u32, Relaxed, Scope::Device);
            let new = ((before >> 32) + 1) << 32 | (block as u64 + 1);
            let result = match wrong {
                1 => head.compare_exchange(before, new, Relaxed, Scope::Device),
                _ => head.compare_exchange(before, new, Release, Scope::Device),
            };
            match result {
                Ok(_) => break,
                Err(other) => before = other,
            }
        }
        let mut before = match wrong {
            2 => head.load(Relaxed, Scope::Device),
            _ => head.load(Acquire, Scope::Device),
        };
        let node = loop {
            let node = before as u32 as usize;
            if node == 0 {
                return;
            }
            let new = ((before >> 32) + 1) << 32 | u64::from(next.get_unchecked(node - 1).load(Relaxed, Scope::Device));
            let result = match wrong {
                2 => head.compare_exchange(before, new, Relaxed, Scope::Device),
                _ => head.compare_exchange(before, new, Acquire, Scope::Device),
            };
            match result {
                Ok(_) => break node - 1,
                Err(other) => before = other,
            }
        };
        y.set_unchecked(node, nodes.get_unchecked(node)); // <stack: read>
    }
}

/// A table of keys and counts: who has put a key, writes its value, which others look at.
#[kernel(block = 64)]
fn hash_table(wrong: u32, keys: GlobalAtomics<'_, u32>, values: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    let key = i as u32 % 8 + 1;
    let mut place = 12;
    unsafe {
        loop {
            // The mistake: it runs out at the end of the table.
            let at = if wrong == 2 { place } else { place % 16 };
            let slot = keys.get_unchecked(at); // <table: slot>
            match slot.compare_exchange(0, key, AcqRel, Scope::Device) {
                Ok(_) => {
                    values.set_unchecked(at, 10 * key); // <table: put>
                    break;
                }
                Err(other) if other == key => {
                    // The mistake: the key is there, the value need not be.
                    if wrong == 1 {
                        y.set_unchecked(i, values.get_unchecked(at)); // <table: get>
                    }
                    break;
                }
                Err(_) => place += 1,
            }
        }
    }
}

/// What blocks hand over to the next one, sum and state: in one word of 64 bits, or in two of which one may be late.
#[kernel(block = 32)]
fn sum_and_state(wrong: u32, both: GlobalAtomics<'_, u64>, parts: GlobalAtomics<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    unsafe {
        let sum = if block == 0 {
            0
        } else if wrong == 0 {
            let before = both.get_unchecked(block - 1);
            let mut word = before.load(Relaxed, Scope::Device);
            while word >> 32 == 0 {
                word = before.load(Relaxed, Scope::Device);
            }
            word as u32
        } else {
            while parts.get_unchecked(2 * block - 2).load(Relaxed, Scope::Device) == 0 {}
            if wrong == 3 {
                fence(AcqRel, Scope::Device);
            }
            parts.get_unchecked(2 * block - 1).load(Relaxed, Scope::Device)
        };
        assert!(sum as usize == 5 * block, "a sum that is not there yet"); // <state: assert>
        if wrong == 0 {
            both.get_unchecked(block).store(1 << 32 | u64::from(sum + 5), Relaxed, Scope::Device);
            return;
        }
        let (state, of_block) = (parts.get_unchecked(2 * block), parts.get_unchecked(2 * block + 1));
        // The mistake: the state is told first.
        if wrong == 2 {
            state.store(1, Relaxed, Scope::Device);
        }
        of_block.store(sum + 5, Relaxed, Scope::Device);
        if wrong != 2 {
            state.store(1, Relaxed, Scope::Device);
        }
    }
}

/// All blocks count; the last one tells what it has found, and makes the counter ready for the next launch.
#[kernel(block = 32)]
fn last_of_two_launches(
    wrong: u32,
    done: GlobalAtomics<'_, u32>,
    parts: GlobalSliceMut<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    let (block, blocks) = (thread::block_idx_x() as usize, thread::grid_dim_x());
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(done) = done.get(0) else { return };
    unsafe {
        parts.set_unchecked(block, 1);
        // The mistake: two operations, between which others come.
        let is_last = if wrong == 2 {
            done.fetch_add(1, AcqRel, Scope::Device);
            done.load(Acquire, Scope::Device) == blocks
        } else {
            done.fetch_add(1, AcqRel, Scope::Device) + 1 == blocks
        };
        if is_last {
            y.set_unchecked(0, (0..blocks as usize).map(|i| parts.get_unchecked(i)).sum()); // <two launches: result>
            if wrong != 1 {
                done.store(0, Relaxed, Scope::Device);
            }
        }
    }
}

fn run_deque(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut items = [0; 8];
    with_flags(8, |_, flags, y| launch(executor, deque { wrong, flags, items: GlobalSliceMut::new(&mut items), y }, 3))
}

fn run_ring(wrong: u32, executor: &Executor) -> Result<(), Report> {
    with_flags(12, |places, flags, y| launch(executor, ring_of_blocks { wrong, flags, places, y }, 2))
}

fn run_stack(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut head = [0];
    with_flags(4, |nodes, next, y| {
        launch(executor, stack_of_nodes { wrong, head: GlobalAtomics::new(&mut head), nodes, next, y }, 4)
    })
}

fn run_sums(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut both = [0; 4];
    with_flags(8, |_, parts, _| {
        launch(executor, sum_and_state { wrong, both: GlobalAtomics::new(&mut both), parts }, 4)
    })
}

fn run_two_launches(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut counter, mut parts) = ([0], [0; 4]);
    for _ in 0..2 {
        let mut y = [0];
        let unwritten = executor.without_values(y.as_ptr().addr(), size_of_val(&y)); // <two launches: allocated>
        let (parts, y) = (GlobalSliceMut::new(&mut parts), GlobalSliceMut::new(&mut y));
        launch(executor, last_of_two_launches { wrong, done: GlobalAtomics::new(&mut counter), parts, y }, 4)?;
        if let Some(unwritten) = unwritten {
            unwritten.check_read::<u32>(0..1)?;
        }
    }
    Ok(())
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("lock_free.rs"),
    patterns: &[
        Pattern {
            name: "deque",
            run: run_deque,
            mistakes: &[
                found(Order, "`bottom` is stored relaxed", RACE, &["deque: put", "deque: steal"]),
                found(Order, "`bottom` is loaded relaxed", RACE, &["deque: put", "deque: steal"]),
                sometimes(Order, "the owner's fence is not `SeqCst`", RACE, &["deque: work", "deque: work"]),
                sometimes(Order, "the thief has no fence", RACE, &["deque: work", "deque: work"]),
                sometimes(
                    GlobalRace,
                    "the owner takes the last item without asking",
                    RACE,
                    &["deque: work", "deque: work"],
                ),
            ],
        },
        Pattern {
            name: "ring_of_blocks",
            run: run_ring,
            mistakes: &[
                sometimes(
                    GlobalRace,
                    "one more item than there are places",
                    RACE,
                    &["blocks' ring: put", "blocks' ring: take"],
                ),
                found(GlobalRace, "an item that is not there yet", RACE, &["blocks' ring: put", "blocks' ring: take"]),
                found(Order, "items are announced relaxed", RACE, &["blocks' ring: put", "blocks' ring: take"]),
                found(Order, "waits for a place relaxed", RACE, &["blocks' ring: put", "blocks' ring: take"]),
                found(
                    Order,
                    "a place is given back before it is read",
                    RACE,
                    &["blocks' ring: put", "blocks' ring: take"],
                ),
                sometimes(GlobalRace, "does not wait for a place", RACE, &["blocks' ring: put", "blocks' ring: take"]),
                found(EndlessWait, "waits for one item more", "stuck", &["blocks' ring: wait"]),
                found(GlobalRace, "the place is off by one", RACE, &["blocks' ring: put", "blocks' ring: take"]),
            ],
        },
        Pattern {
            name: "stack_of_nodes",
            run: run_stack,
            mistakes: &[
                sometimes(Order, "pushes relaxed", RACE, &["stack: node", "stack: read"]),
                sometimes(Order, "pops relaxed", RACE, &["stack: node", "stack: read"]),
            ],
        },
        Pattern {
            name: "hash_table",
            run: |wrong, executor| {
                with_flags(128, |values, keys, y| {
                    let keys = unsafe { GlobalAtomics::from_raw_parts(keys.as_mut_ptr(), 16) };
                    launch(executor, hash_table { wrong, keys, values, y }, 2)
                })
            },
            mistakes: &[
                found(Order, "a value that need not be there yet", RACE, &["table: put", "table: get"]),
                found(Bounds, "past the end of the table", "out of bounds", &["table: slot"]),
            ],
        },
        Pattern {
            name: "sum_and_state",
            run: run_sums,
            mistakes: &[
                sometimes(Order, "two words in place of one", "panic", &["state: assert"]),
                sometimes(Order, "two words, of which the state comes first", "panic", &["state: assert"]),
                sometimes(Order, "two words and a fence on one side", "panic", &["state: assert"]),
            ],
        },
        Pattern {
            name: "last_of_two_launches",
            run: run_two_launches,
            mistakes: &[
                found(Order, "the counter is not made ready", "unwritten elements", &["two launches: allocated"]),
                sometimes(
                    GlobalRace,
                    "counts and looks in two steps",
                    RACE,
                    &["two launches: result", "two launches: result"],
                ),
            ],
        },
    ],
};
