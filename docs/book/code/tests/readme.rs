//! What the README shows: a kernel with a mistake, and the report that the executor makes of it.

use std::path::Path;

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;

/// `C = A·B`, n×n, by tiles of 16×16 in shared memory.
#[kernel(block = (16, 16), grid = (n / 16, n / 16), requires(n % 16 == 0, a.len() == (n * n) as usize))]
pub fn multiply(n: u32, a: GlobalSlice<'_, f32>, b: GlobalSlice<'_, f32>, c: GlobalSliceMut<'_, f32>) {
    static TILE_A: Shared<[[f32; 16]; 16]> = Shared::new();
    static TILE_B: Shared<[[f32; 16]; 16]> = Shared::new();
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (row, col) = (16 * thread::block_idx_y() as usize + y, 16 * thread::block_idx_x() as usize + x);
    let (n, mut sum) = (n as usize, 0.0);
    for k in (0..n).step_by(16) {
        // SAFETY: all indices are inside; each thread writes its own elements.
        unsafe {
            TILE_A.write([y, x], a.get_unchecked(row * n + k + x));
            TILE_B.write([y, x], b.get_unchecked((k + y) * n + col));
            thread::sync_threads();
            for l in 0..16 {
                sum = math::fma(TILE_A.read([y, l]), TILE_B.read([l, x]), sum);
            }
        }
    }
    // SAFETY: no other thread has this row and this column.
    unsafe { c.set_unchecked(row * n + col, sum) };
}

/// The blocks of a kind in the README.
fn shown(kind: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = format!("```{kind}\n");
    text.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_report_is_that_of_a_run() {
    let (a, b, mut c) = (vec![1.0; 32 * 32], vec![1.0; 32 * 32], vec![0.0; 32 * 32]);
    let (a, b) = (GlobalSlice::new(&a), GlobalSlice::new(&b));
    let kernel = multiply { n: 32, a, b, c: GlobalSliceMut::new(&mut c) };
    // SAFETY: the views are of memory of this program, and do not overlap.
    let report = unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(2, 2, 1)) }.unwrap_err().to_string();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let blocks = shown("text");
    assert!(
        blocks.len() == 1 && words(&blocks[0]) == words(&report),
        "let the README show, lines broken as you like:\n{report}"
    );
}
