//! Products with diagonal matrices and with numbers, on the CPU executor with all its checks: every element is what the same
//! multiplications give on this processor, bit by bit, and nothing else is written.

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::scaling::{Scaling, matrix_scaling_fp32};
use gpu_kernels::{Grid, Matrix, MatrixMut, ShapeError, Vector};

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

/// What stands where nothing may be written, or read.
const GAP: f32 = f32::from_bits(0x7FC0_DEAD);

/// Numbers of which no two are alike, with some that are special.
fn numbers(len: usize) -> Vec<f32> {
    const SPECIAL: [f32; 6] = [-0.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-42, f32::MAX, f32::NAN];
    let number = |i: usize| if i % 23 == 5 { SPECIAL[i / 23 % 6] } else { (i as f32 - 40.0) * 0.37 };
    (0..len).map(number).collect()
}

/// Memory aligned as a GPU's, for matrices that begin `first` elements behind its beginning.
struct Memory {
    elements: Vec<f32>,
    first: usize,
}

impl Memory {
    fn new(first: usize, len: usize) -> Self {
        let elements = vec![GAP; len + first + 64];
        let first = first + elements.as_ptr().align_offset(256);
        Self { elements, first }
    }

    fn slice(&mut self) -> &mut [f32] {
        &mut self.elements[self.first..]
    }
}

/// Scales a matrix with these strides to one with others, and compares every word of the result's memory.
fn check(shape: (usize, usize), from: [usize; 2], to: [usize; 2], first: usize, has: [bool; 2], alpha: f32) {
    let (rows, cols) = shape;
    let len = |strides: [usize; 2]| match rows * cols {
        0 => 0,
        _ => (rows - 1) * strides[0] + (cols - 1) * strides[1] + 1,
    };
    let (mut b, mut c) = (Memory::new(first, len(from)), Memory::new(0, len(to) + 3));
    let values = numbers(rows * cols);
    for row in 0..rows {
        for col in 0..cols {
            b.slice()[row * from[0] + col * from[1]] = values[row * cols + col];
        }
    }
    let [of_rows, of_cols] = [(has[0], rows), (has[1], cols)].map(|(has, len)| numbers(if has { 3 * len } else { 0 }));
    let mut expected = c.slice().to_vec();
    for row in 0..rows {
        for col in 0..cols {
            let mut value = values[row * cols + col];
            if has[0] {
                value *= of_rows[3 * row];
            }
            if has[1] {
                value *= of_cols[3 * col];
            }
            expected[row * to[0] + col * to[1]] = alpha * value;
        }
    }
    let vector =
        |factors, has: bool, len| Vector::new(GlobalSlice::new(factors), if has { len } else { 0 }, 3).unwrap();
    let b = Matrix::new(GlobalSlice::new(b.slice()), rows, cols, from[0], from[1]).unwrap();
    let result = MatrixMut::new(GlobalSliceMut::new(c.slice()), rows, cols, to[0], to[1]).unwrap();
    let (of_rows, of_cols) = (vector(&of_rows, has[0], rows), vector(&of_cols, has[1], cols));
    let kernel = matrix_scaling_fp32 { scaling: Scaling::new(alpha, of_rows, b, of_cols, result).unwrap() };
    let grid = kernel.grid();
    // SAFETY: the views are of slices that outlive the launch, the one that is written borrowed mutably.
    unsafe { EXECUTOR.launch(kernel, grid) }.unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    for (index, (found, expected)) in c.slice().iter().zip(&expected).enumerate() {
        let is_right = found.to_bits() == expected.to_bits()
            || (expected.is_nan() && expected.to_bits() != GAP.to_bits() && found.is_nan());
        assert!(is_right, "{shape:?} {from:?} {to:?} {has:?}: word {index} is {found:e}, should be {expected:e}");
    }
}

#[test]
fn every_element_is_scaled_and_nothing_else_is_written() {
    for shape in [(0, 5), (5, 0), (1, 1), (1, 4), (3, 7), (2, 1023), (2, 1024), (1, 1028), (3, 2049), (40, 64)] {
        let (rows, cols) = shape;
        for (from, first) in [
            ([cols, 1], 0),
            ([cols, 1], 1),
            ([cols + 4, 1], 4),
            ([cols + 3, 1], 0),
            ([1, rows + 1], 0),
            ([3 * cols, 2], 2),
        ] {
            for to in [[cols, 1], [cols + 4, 1], [cols + 1, 1], [1, rows]] {
                for has in [[false, false], [true, false], [false, true], [true, true]] {
                    check(shape, from, to, first, has, -1.5);
                }
            }
        }
    }
}

#[test]
fn a_factor_of_one_changes_nothing() {
    check((3, 1025), [1025, 1], [1025, 1], 0, [false, false], 1.0);
    check((3, 1028), [1028, 1], [1028, 1], 0, [false, false], 1.0);
}

#[test]
fn as_many_factors_as_lines_or_none() {
    let (b, mut c) = ([0.0; 12], [0.0; 12]);
    let b = Matrix::new(GlobalSlice::new(&b), 3, 4, 4, 1).unwrap();
    let mut scaling = |of_rows, of_cols| {
        let factors = [1.0; 9];
        let vector = |len| Vector::new(GlobalSlice::new(&factors), len, 1).unwrap();
        let c = MatrixMut::new(GlobalSliceMut::new(&mut c), 3, 4, 4, 1).unwrap();
        Scaling::new(1.0, vector(of_rows), b, vector(of_cols), c).map(drop)
    };
    assert_eq!(scaling(3, 4), Ok(()));
    assert_eq!(scaling(0, 0), Ok(()));
    assert!(matches!(scaling(4, 4), Err(ShapeError::Mismatch { .. })));
    assert!(matches!(scaling(3, 3), Err(ShapeError::Mismatch { .. })));
}
