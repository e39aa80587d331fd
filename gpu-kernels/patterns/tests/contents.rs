//! Kernels that find indices in memory that other launches have written: whatever is there, nothing outside of a view is accessed.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::radix_sort::{DIGITS, PASSES, radix_pass_u32};
use patterns_kernels::top_k::top_k_of_parts_fp32;

#[test]
fn a_pass_of_the_sort_writes_nothing_outside() {
    let (keys, values) = ([3, 1, 2], [30, 10, 20]);
    let begin = [0xF000_0000; PASSES * DIGITS];
    let (mut states, mut next) = ([0; PASSES * DIGITS], [0; PASSES]);
    let (mut to_keys, mut to_values) = ([7; 3], [7; 3]);
    let kernel = radix_pass_u32 {
        pass: 0,
        keys: GlobalSlice::new(&keys),
        values: GlobalSlice::new(&values),
        begin: GlobalSlice::new(&begin),
        states: GlobalAtomics::new(&mut states),
        next: GlobalAtomics::new(&mut next),
        to_keys: GlobalSliceMut::new(&mut to_keys),
        to_values: GlobalSliceMut::new(&mut to_values),
    };
    // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
    assert_eq!((to_keys, to_values), ([7; 3], [7; 3]));
}

#[test]
fn the_largest_of_parts_reads_nothing_outside() {
    let x = [1.0, 2.0, 3.0];
    // The index of the first is the last one, 2; the second has one beyond the row, and the third is none.
    let keys = [9 << 32 | u64::from(!2u32), 8 << 32 | u64::from(!3u32), 0];
    let (mut values, mut indices) = ([0.0; 3], [0; 3]);
    let kernel = top_k_of_parts_fp32 {
        rows: 1,
        cols: 3,
        k: 3,
        candidates: 3,
        x: GlobalSlice::new(&x),
        keys: GlobalSlice::new(&keys),
        values: GlobalSliceMut::new(&mut values),
        indices: GlobalSliceMut::new(&mut indices),
    };
    // SAFETY: likewise.
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
    assert_eq!(values[0], 3.0);
    assert!(values[1].is_nan() && values[2].is_nan(), "{values:?}");
}
