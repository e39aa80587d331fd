//! Constant arrays, and kernels whose functions call themselves.

extern crate tilewright_cuda_std as cuda_std;

mod common;

use cuda_std::executor::{Checks, FaultKind};
use cuda_std::prelude::*;

use common::{ALL_CHECKS, fault, line_of, succeed};

#[constant]
static SQUARES: [u64; 8] = [0, 1, 4, 9, 16, 25, 36, 49];

/// Rows and columns.
#[constant]
pub(crate) static TABLE: [[u8; 3]; 2] = [[1, 2, 3], [4, 5, 6]];

#[kernel(block = 32, requires(y.len() == 32))]
fn reads_constants(y: DisjointSlice<'_, u64>) {
    let Some(y) = y.own() else { return };
    let i = y.index();
    let byte = TABLE.get([i % 2, i % 3]).map_or(0, u64::from);
    y.set(SQUARES.get(i).unwrap_or(1000) + 100 * byte);
}

#[test]
fn constants_have_the_same_values_for_kernels_and_host() {
    for checks in ALL_CHECKS {
        let mut y = [0; 32];
        succeed(checks, reads_constants { y: DisjointSlice::new(&mut y) }, 1);
        for (i, y) in (0..).zip(y) {
            let square = if i < 8 { SQUARES.values()[i] } else { 1000 };
            assert_eq!(y, square + 100 * u64::from(TABLE.values()[i % 2][i % 3]));
        }
    }
    assert_eq!((SQUARES.len(), TABLE.len(), SQUARES.is_empty()), (8, 6, false));
}

#[kernel(block = 32)]
fn reads_past_the_end(row: u32) {
    // SAFETY: none: that is the caller's.
    let _ = unsafe { TABLE.get_unchecked([row as usize, 1]) }; // <past>
}

#[test]
fn a_read_outside_of_a_constant_array_is_reported() {
    succeed(Checks::Bounds, reads_past_the_end { row: 1 }, 1);
    let fault = fault(Checks::Bounds, reads_past_the_end { row: 2 }, 1);
    let FaultKind::Panic { message } = &fault.kind else { panic!("{fault}") };
    assert_eq!(message, "index [2, 1] is out of bounds of a constant array with extents [2, 3]");
    let line = line_of(include_str!("constants_and_stacks.rs"), "past");
    assert_eq!(fault.location.as_ref().map(|location| location.line), Some(line));
}

/// Adds up the numbers to `n`, and needs some KiB of the stack for each.
fn sum_to(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 512]);
    if n == 0 { 0 } else { frame[(n % 512) as usize] + sum_to(n - 1) }
}

#[kernel(block = 2)]
fn recurses(n: u64) {
    gpu_assert!(sum_to(n) == n * (n + 1) / 2, "the sum to {} is wrong", n);
}

#[kernel(block = 2, stack = 512 << 10)]
fn recurses_deeply(n: u64) {
    gpu_assert!(sum_to(n) == n * (n + 1) / 2, "the sum to {} is wrong", n);
}

#[kernel(block = 2, stack = 256)]
fn recurses_a_little(n: u64) {
    gpu_assert!(sum_to(n) == n * (n + 1) / 2, "the sum to {} is wrong", n);
}

#[test]
fn a_kernel_has_the_stack_that_it_says() {
    assert_eq!((recurses::FACTS.stack_bytes, recurses_deeply::FACTS.stack_bytes), (0, 512 << 10));
    for checks in ALL_CHECKS {
        succeed(checks, recurses { n: 2 }, 1);
        let overflow = fault(checks, recurses { n: 30 }, 1);
        assert!(matches!(overflow.kind, FaultKind::StackOverflow { asked: None, .. }), "{overflow}");
        succeed(checks, recurses_deeply { n: 30 }, 3);
        let overflow = fault(checks, recurses_deeply { n: 1000 }, 1);
        let FaultKind::StackOverflow { bytes, asked } = overflow.kind else { panic!("{overflow}") };
        assert!(bytes >= 512 << 10 && asked == Some(512 << 10), "{overflow}");
        // Functions take more of a stack here than on a GPU: less than the executor has in any case is not held against a kernel.
        succeed(checks, recurses_a_little { n: 2 }, 1);
        let overflow = fault(checks, recurses_a_little { n: 30 }, 1);
        assert!(overflow.to_string().contains("and the kernel asks for 256 (`stack = …`)\n"), "{overflow}");
    }
}

#[kernel(block = 2, instances(of_one = <1>, of_two = <2>), local_memory, stack = N << 10)]
fn with_a_stack<const N: u32>() {}

#[test]
fn instances_have_stacks_of_their_own() {
    assert_eq!((of_one::FACTS.stack_bytes, of_two::FACTS.stack_bytes), (1 << 10, 2 << 10));
}
