//! Views whose elements are dealt out to threads: what has to come out.

use cuda_std::{DisjointSlice, PerBlock, PerThread, PerWarp};
use rand::RngExt;

use super::kernels::partitions::{self, ROW};
use super::machine::Launch;
use super::words::{Content, Instruction};
use crate::device_features::Launcher;

/// Names the kernel, and wraps its launch on fewer blocks than there are cases, with the output divided.
macro_rules! divided {
    ($kernel:ident, $partition:expr) => {{
        let launch: Launch = |machine, input, output, blocks| {
            // SAFETY: the views are of memory that is there until the kernel has finished: `Machine::run` lends it, and nothing else uses
            // the one of the output.
            unsafe {
                let output = DisjointSlice::from_raw_parts(output.as_mut_ptr(), output.len()).divided($partition);
                machine.launch(partitions::$kernel { input, output }, blocks.div_ceil(3))
            }
        };
        Instruction {
            name: stringify!($kernel),
            launch,
            inputs: ROW,
            outputs: ROW,
            cases_of_block: 8,
            content: Content::Bits,
            operands: |rng, _| (0..ROW).map(|_| rng.random()).collect(),
            reference: |x| x.iter().zip(0..).map(|(x, column)| x ^ column).collect(),
        }
    }};
}

/// All of them.
pub(super) fn instructions() -> Vec<Instruction> {
    vec![
        divided!(partition_chunks, PerThread),
        divided!(partition_rows_of_blocks, PerBlock::rows(ROW)),
        divided!(partition_rows_of_warps, PerWarp::rows(ROW)),
    ]
}
