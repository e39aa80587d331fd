//! Products with diagonal matrices and with numbers, on the CPU executor with all its checks.

use cuda_std::executor::Checks;
use cuda_std::{GlobalSlice, GlobalSliceMut, Kernel};
use gpu_kernels::scaling::{Scaling, matrix_scaling_fp32};
use gpu_kernels::{Grid, Matrix, MatrixMut, ShapeError, Vector};
use tests::scaling::Scaled;
use tilewright::Device;

#[test]
fn every_element_is_scaled_and_nothing_else_is_written() {
    let device = Device::cpu(Checks::Full);
    for scaled in Scaled::all() {
        scaled.check(&device).unwrap();
    }
}

#[test]
fn as_many_factors_as_lines_or_none() {
    let (b, mut c, factors) = ([0.0; 12], [0.0; 12], [1.0; 9]);
    let b = Matrix::new(GlobalSlice::new(&b), 3, 4, 4, 1).unwrap();
    let mut scaling = |of_rows: Option<usize>, of_cols: Option<usize>| {
        let [of_rows, of_cols] =
            [of_rows, of_cols].map(|len| len.map(|len| Vector::new(GlobalSlice::new(&factors), len, 1).unwrap()));
        let c = MatrixMut::new(GlobalSliceMut::new(&mut c), 3, 4, 4, 1).unwrap();
        Scaling::new(1.0, of_rows, b.into(), of_cols, c.into()).map(drop)?;
        Scaling::in_place(1.0, of_rows, of_cols, c.into()).map(drop)
    };
    assert_eq!(scaling(Some(3), Some(4)), Ok(()));
    assert_eq!(scaling(None, None), Ok(()));
    for (of_rows, of_cols) in [(Some(4), None), (None, Some(3)), (Some(0), None), (None, Some(0))] {
        assert!(matches!(scaling(of_rows, of_cols), Err(ShapeError::Mismatch { .. })), "{of_rows:?} {of_cols:?}");
    }
}

/// Memory of which nothing is looked at.
fn nowhere<'a>(len: usize) -> GlobalSliceMut<'a, f32> {
    // SAFETY: no kernel is launched with it.
    unsafe { GlobalSliceMut::from_raw_parts(std::ptr::without_provenance_mut(256), len) }
}

#[test]
fn blocks_are_as_many_as_a_grid_can_have() {
    let kernel = |rows, cols| {
        let c = MatrixMut::new(nowhere(rows * cols), rows, cols, cols, 1).unwrap();
        matrix_scaling_fp32 { scaling: Scaling::in_place(1.0, None, None, c.into()).unwrap() }
    };
    let large = kernel(65_536, 16_384);
    assert!(large.check().is_ok() && large.grid().x == 1 << 20);
    // 1024 elements are a block's. A result of more than that takes 8 TiB.
    let most = kernel((1 << 31) - 1, 1024);
    assert!(most.check().is_ok() && most.grid().x == (1 << 31) - 1);
    let message = kernel((1 << 31) - 1, 1025).check().unwrap_err().to_string();
    assert!(message.contains("scaling.blocks() <= MAX_BLOCKS"), "{message}");
}
