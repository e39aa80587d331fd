//! Tensor cores: operands that warps load from shared memory, and products of warpgroups, which go on while threads run on.

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums, Tf32};
use cuda_std::{ldmatrix, mma};

use crate::pattern::Class::{TensorCores, WarpDivergence};
use crate::pattern::{Family, Pattern, found, launch, missed};

const RACE: &str = "race in shared memory";

/// A product of two operands that a warp has written to shared memory.
#[kernel(block = 32, dynamic_shared = 512)]
fn product_of_a_warp(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let lane = warp::lane_id() as usize;
    unsafe {
        let rows = dynamic_shared::<f32>(0, 128);
        rows.write4(4 * lane, [1.0; 4]); // <warp product: write>
        if wrong != 1 {
            warp::sync_warp(warp::ALL_LANES);
        }
        // The mistake: rows that begin at an odd word.
        let row = if wrong == 2 { 3 * lane } else { 4 * (31 - lane) };
        let a = ldmatrix::ldmatrix_x4(&rows, row); // <warp product: load>
        // The mistake: the last lanes have no rows, and do not take part.
        if wrong != 3 || lane < 24 {
            let sums = mma::mma_m16n8k8_tf32(a, [1.0; 2], [0.0; 4]); // <warp product: multiply>
            y.set_unchecked(lane, sums[0]);
        }
    }
}

/// Two rounds of operands in the same place.
#[kernel(block = 64, dynamic_shared = 512)]
fn rounds_of_operands(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id() as usize);
    let mut sums = [0.0; 4];
    unsafe {
        let rows = dynamic_shared::<f32>(0, 128);
        for round in 0..2 {
            if me < 32 {
                rows.write4(4 * lane, [round as f32; 4]); // <rounds: write>
            }
            if wrong != 1 {
                thread::sync_threads();
            }
            let a = ldmatrix::ldmatrix_x4(&rows, 4 * lane); // <rounds: load>
            sums = mma::mma_m16n8k8_tf32(a, [1.0; 2], sums);
            if wrong != 2 {
                thread::sync_threads();
            }
        }
        y.set_unchecked(me, sums[0]);
    }
}

/// The words of a row of an operand; the rows of A, and the columns of B.
const ROW: usize = 32;
const ROWS: usize = 64;

/// A product of a warpgroup. A fifth warp overwrites the operands when it is told that they have been read.
#[kernel(block = 160, dynamic_shared = 2 * 64 * 128 + 8)]
fn product_of_a_warpgroup(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, 2 * ROWS * ROW);
        let read = Barrier::at(dynamic_shared(2 * ROWS * ROW * 4, 1), 0);
        if me == 0 {
            read.init(4);
        }
        if me < 128 {
            for i in (me..2 * ROWS * ROW).step_by(128) {
                memory.write(i, 1.0); // <group: write>
            }
            if wrong != 1 {
                hopper::fence_async_shared();
            }
        }
        if wrong != 2 || me >= 128 {
            hopper::sync_part::<160>(1);
        } else {
            hopper::arrive_at_part::<160>(1);
        }
        if me >= 128 {
            read.wait(0);
            memory.write(me - 128, 0.0); // <group: overwrite>
            return;
        }
        let tell = || {
            if hopper::elect_one() {
                read.arrive();
            }
        };
        // The mistake: three warps multiply, and the fourth one has something else to do.
        if wrong == 7 && me >= 96 {
            tell();
            return;
        }
        let (a, b) = (Descriptor::at(memory, 0), Descriptor::at(memory, ROWS * ROW));
        let mut sums = [0f32; ROWS / 2];
        if wrong != 3 {
            wgmma::fence();
        }
        if wrong == 8 {
            sums[0] = 1.0;
        }
        if wrong == 10 && me >= 64 {
            sums.set_shared::<Tf32>(a, b); // <group: branch>
        } else {
            sums.set_shared::<Tf32>(a, b); // <group: product>
        }
        wgmma::commit();
        if wrong == 5 {
            tell();
        }
        if wrong == 9 {
            y.set_unchecked(me, sums[0]); // <group: early>
        }
        let early = sums[1];
        if wrong != 4 {
            sums.wait::<0>();
        }
        if wrong == 11 {
            y.set_unchecked(me, sums[0] - 2.0 * early); // <group: sum>
        }
        if wrong == 12 {
            y.set_unchecked(me, warp::warp_shuffle_xor(warp::ALL_LANES, early, 1, 32).0); // <group: shuffle>
        }
        if wrong == 6 {
            sums[0] = 1.0;
            sums.add_shared::<Tf32>(a, b); // <group: second product>
            wgmma::commit();
            sums.wait::<0>();
        }
        if wrong != 5 {
            tell();
        }
        if wrong != 4 {
            y.set_unchecked(me, sums[0]);
        }
    }
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("products.rs"),
    patterns: &[
        Pattern {
            name: "product_of_a_warp",
            run: |wrong, executor| {
                launch(executor, product_of_a_warp { wrong, y: GlobalSliceMut::new(&mut [0.0; 32]) }, 1)
            },
            mistakes: &[
                found(
                    TensorCores,
                    "no `sync_warp` before operands are loaded",
                    RACE,
                    &["warp product: write", "warp product: load"],
                ),
                found(TensorCores, "a row that is not aligned", "shared misaligned", &["warp product: load"]),
                found(WarpDivergence, "a product without some lanes", "warp divergence", &["warp product: multiply"]),
            ],
        },
        Pattern {
            name: "rounds_of_operands",
            run: |wrong, executor| {
                launch(executor, rounds_of_operands { wrong, y: GlobalSliceMut::new(&mut [0.0; 64]) }, 1)
            },
            mistakes: &[
                found(TensorCores, "no barrier before operands are loaded", RACE, &["rounds: write", "rounds: load"]),
                found(TensorCores, "no barrier before the next operands", RACE, &["rounds: write", "rounds: load"]),
            ],
        },
        Pattern {
            name: "product_of_a_warpgroup",
            run: |wrong, executor| {
                launch(executor, product_of_a_warpgroup { wrong, y: GlobalSliceMut::new(&mut [0.0; 128]) }, 1)
            },
            mistakes: &[
                found(TensorCores, "operands are not made visible", "not fenced", &["group: write", "group: product"]),
                found(TensorCores, "no barrier behind the operands", RACE, &["group: write", "group: product"]),
                found(TensorCores, "no fence of registers", "registers not fenced", &["group: product"]),
                found(TensorCores, "nobody waits for the sums", "product not awaited", &["group: product"]),
                found(
                    TensorCores,
                    "operands are given back before they are read",
                    RACE,
                    &["group: product", "group: overwrite"],
                ),
                found(
                    TensorCores,
                    "no fence behind a change of sums",
                    "registers not fenced",
                    &["group: second product"],
                ),
                found(TensorCores, "three warps of a warpgroup multiply", "warpgroup divergence", &["group: product"]),
                missed(
                    TensorCores,
                    "sums are changed between the fence and the product",
                    "registers are Rust's variables here, whose changes nobody sees",
                ),
                found(
                    TensorCores,
                    "sums are read before they are waited for",
                    "sums not awaited",
                    &["group: product", "group: early"],
                ),
                found(
                    TensorCores,
                    "warps of a warpgroup take two branches",
                    "warpgroup divergence",
                    &["group: branch"],
                ),
                found(
                    TensorCores,
                    "a sum is kept from before the wait, and computed with behind it",
                    "sums not awaited",
                    &["group: product", "group: sum"],
                ),
                found(
                    TensorCores,
                    "a sum from before the wait goes to another lane",
                    "sums not awaited",
                    &["group: product", "group: shuffle"],
                ),
            ],
        },
    ],
};
