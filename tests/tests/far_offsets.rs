//! Elements beyond 2³² elements from the first: offsets are 64-bit all the way.
//!
//! A matrix of that size fits no machine that tests run on, but one that consists of holes does: these have strides so
//! large that there are few elements in gibibytes of address space, which the operating system backs with memory only
//! where something is written.

use std::{io, ptr, slice};

use cuda_std::executor::{Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::batched::TILE_4;
use gpu_kernels::gemm::grouped::{GroupedProduct, Products, gemm_grouped_4_fp32};
use gpu_kernels::gemm::mma::SHAPE_64X64;
use gpu_kernels::gemm::mma::grouped::gemm_grouped_mma_64x64_nn_fp32_3xtf32;
use gpu_kernels::gemv::Gemv;
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;
use gpu_kernels::scaling::{Scaling, matrix_scaling_fp32};
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Vector, VectorMut};
use tests::{Kernel, Place};

/// The elements between neighbours: as many as 31 bits count, and some more. So the third neighbour is beyond 2³² elements,
/// although the index and the stride are not; and an offset that was cut off at 32 bits would be that of a hole.
const STRIDE: usize = (1 << 31) + 1029;

/// The elements along such an axis.
const FAR: usize = 3;

/// Zeros, backed by memory only where they have been written to.
struct Holes {
    address: *mut f32,
    len: usize,
}

impl Holes {
    /// Room for `FAR` times `near` elements.
    fn new(near: usize) -> Self {
        let len = (FAR - 1) * STRIDE + near;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { libc::mmap(ptr::null_mut(), len * size_of::<f32>(), protection, flags, -1, 0) };
        let reason = io::Error::last_os_error();
        assert_ne!(address, libc::MAP_FAILED, "cannot reserve {} GiB of address space: {reason}", (len * 4) >> 30);
        Self { address: address.cast(), len }
    }

    fn as_slice(&self) -> &[f32] {
        // SAFETY: the mapping has this many elements, all readable and zero at first, until it is dropped.
        unsafe { slice::from_raw_parts(self.address, self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.address, self.len) }
    }

    /// `FAR` times `near` elements: [`element`] of both positions.
    fn filled(near: usize) -> Self {
        let mut holes = Self::new(near);
        for (i, j) in (0..FAR).flat_map(|i| (0..near).map(move |j| (i, j))) {
            holes.as_mut_slice()[i * STRIDE + j] = element(i, j);
        }
        holes
    }
}

impl Drop for Holes {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nothing borrows any more.
        unsafe { libc::munmap(self.address.cast(), self.len * size_of::<f32>()) };
    }
}

/// A small number that is not zero, so that sums of a few products are exact, and reading from a hole shows. The same with
/// `i` and `j` exchanged, so that a matrix may be read as its transpose.
fn element(i: usize, j: usize) -> f32 {
    ((i + 2) * (j + 2) + i + j) as f32
}

/// `len`² elements side by side: [`element`] of both positions.
fn near(len: usize) -> Vec<f32> {
    (0..len * len).map(|position| element(position / len, position % len)).collect()
}

/// What the product of `k` terms gives, for operands that are both [`element`] of their rows and columns.
fn product(row: usize, col: usize, k: usize) -> f32 {
    (0..k).map(|l| element(row, l) * element(l, col)).sum()
}

fn launch(kernel: impl Grid) {
    // SAFETY: the kernel's views are of slices that are borrowed until after the launch, the one it writes exclusively.
    unsafe { Executor::new(Checks::Full).launch(kernel, kernel.grid()) }.unwrap();
}

/// Launches each kernel on a product with these operands, and compares the result, which lies in memory with these strides.
fn check_gemm(a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], c_strides: [usize; 2]) {
    let (m, n, k) = (a.rows() as usize, b.cols() as usize, a.cols() as usize);
    for kernel in Kernel::GEMM {
        let offset = |row: usize, col: usize| row * c_strides[0] + col * c_strides[1];
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            c[offset(row, col)] = 0.5;
        }
        let view = MatrixMut::new(GlobalSliceMut::new(c), m, n, c_strides[0], c_strides[1]).unwrap();
        let gemm = Gemm::new(1.0, a, b, 2.0, view).unwrap();
        kernel.launch_gemm(Place::Executor(&Executor::new(Checks::Full)), gemm).unwrap();
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let found = c[offset(row, col)];
            assert_eq!(found, product(row, col, k) + 1.0, "{}, ({row}, {col})", kernel.name());
        }
    }
}

const NEAR: usize = 4;

#[test]
fn gemm_with_far_rows_and_far_columns_of_a_and_b() {
    let (far, near) = (Holes::filled(NEAR), near(NEAR));
    let (far, near) = (GlobalSlice::new(far.as_slice()), GlobalSlice::new(&near));
    let by_rows = Matrix::new(far, FAR, NEAR, STRIDE, 1).unwrap();
    let by_columns = Matrix::new(far, NEAR, FAR, 1, STRIDE).unwrap();
    let mut c = [0.0; NEAR * NEAR];
    check_gemm(by_rows, Matrix::new(near, NEAR, NEAR, NEAR, 1).unwrap(), &mut c, [NEAR, 1]);
    check_gemm(by_rows.transposed(), Matrix::new(near, FAR, NEAR, NEAR, 1).unwrap(), &mut c, [NEAR, 1]);
    check_gemm(by_columns, by_rows, &mut c, [NEAR, 1]);
    check_gemm(Matrix::new(near, NEAR, NEAR, NEAR, 1).unwrap(), by_columns, &mut c, [FAR, 1]);
}

#[test]
fn gemm_with_far_rows_and_far_columns_of_c() {
    let near = near(NEAR);
    let near = GlobalSlice::new(&near);
    let mut far = Holes::new(NEAR);
    let square = Matrix::new(near, NEAR, NEAR, NEAR, 1).unwrap();
    check_gemm(Matrix::new(near, FAR, NEAR, NEAR, 1).unwrap(), square, far.as_mut_slice(), [STRIDE, 1]);
    check_gemm(square, Matrix::new(near, NEAR, FAR, NEAR, 1).unwrap(), far.as_mut_slice(), [1, STRIDE]);
}

/// A product of a group, behind another one: what the table says has 64 bits, too.
#[test]
fn grouped_products_with_far_rows_of_a_and_c() {
    let (far, mut to, near) = (Holes::filled(NEAR), Holes::new(NEAR), near(NEAR));
    let mut little = [0.0; NEAR * NEAR];
    for (round, shape) in [TILE_4, SHAPE_64X64].into_iter().enumerate() {
        to.as_mut_slice()[(FAR - 1) * STRIDE..].fill(0.0);
        let square = Matrix::new(GlobalSlice::new(&near), NEAR, NEAR, NEAR, 1).unwrap();
        let first = MatrixMut::new(GlobalSliceMut::new(&mut little), NEAR, NEAR, NEAR, 1).unwrap();
        let a = Matrix::new(GlobalSlice::new(far.as_slice()), FAR, NEAR, STRIDE, 1).unwrap();
        let c = MatrixMut::new(GlobalSliceMut::new(to.as_mut_slice()), FAR, NEAR, STRIDE, 1).unwrap();
        let products = vec![GroupedProduct { a: square, b: square, c: first }, GroupedProduct { a, b: square, c }];
        let group = Products::new(products).unwrap().group(&[1, 0], shape).unwrap();
        // SAFETY: the table is what the group says, and all memory is this processor's.
        let gemm = unsafe { group.gemm(1.0, GlobalSlice::new(group.words()), 0.0) };
        match round {
            0 => launch(gemm_grouped_4_fp32 { gemm }),
            _ => launch(gemm_grouped_mma_64x64_nn_fp32_3xtf32 { gemm }),
        }
        for (row, col) in (0..FAR).flat_map(|row| (0..NEAR).map(move |col| (row, col))) {
            assert_eq!(to.as_slice()[row * STRIDE + col], product(row, col, NEAR), "({row}, {col})");
        }
    }
}

/// y = A·x + 2·y, with y = 0.5 at first and `element(l, 0)` for x.
fn check_gemv(a: Matrix<'_>, x: Vector<'_>, y: &mut [f32], y_stride: usize) {
    let (m, k) = (a.rows() as usize, a.cols() as usize);
    for row in 0..m {
        y[row * y_stride] = 0.5;
    }
    let view = VectorMut::new(GlobalSliceMut::new(y), m, y_stride).unwrap();
    launch(gemv_block_reduction_fp32 { gemv: Gemv::new(1.0, a, x, 2.0, view).unwrap() });
    for row in 0..m {
        assert_eq!(y[row * y_stride], product(row, 0, k) + 1.0, "row {row}");
    }
}

#[test]
fn gemv_with_far_elements_of_everything() {
    let (far, near) = (Holes::filled(NEAR), near(NEAR));
    let (far, near) = (GlobalSlice::new(far.as_slice()), GlobalSlice::new(&near));
    let mut y = [0.0; NEAR];
    let x = Vector::new(near, NEAR, NEAR).unwrap();
    check_gemv(Matrix::new(far, FAR, NEAR, STRIDE, 1).unwrap(), x, &mut y, 1);
    let far_x = Vector::new(far, FAR, STRIDE).unwrap();
    check_gemv(Matrix::new(near, NEAR, FAR, NEAR, 1).unwrap(), far_x, &mut y, 1);
    let mut far_y = Holes::new(1);
    check_gemv(Matrix::new(near, FAR, NEAR, NEAR, 1).unwrap(), x, far_y.as_mut_slice(), STRIDE);
}

#[test]
fn scaling_with_far_elements_of_everything() {
    let (far, mut to, near) = (Holes::filled(NEAR), Holes::new(NEAR), near(NEAR));
    let (far, near) = (GlobalSlice::new(far.as_slice()), GlobalSlice::new(&near));
    let of_rows = Vector::new(near, FAR, NEAR).unwrap();
    let far_factors = Vector::new(far, FAR, STRIDE).unwrap();
    let from = Matrix::new(far, FAR, NEAR, STRIDE, 1).unwrap();
    let one = Matrix::new(far, 1, NEAR, NEAR, 1).unwrap();
    let expected = |row, col| 2.0 * (element(row, 0) * element(row, col));
    let all = || (0..FAR).flat_map(|row| (0..NEAR).map(move |col| (row, col)));

    for factors in [of_rows, far_factors] {
        let rows = MatrixMut::new(GlobalSliceMut::new(to.as_mut_slice()), FAR, NEAR, STRIDE, 1).unwrap();
        let scaling = Scaling::new(2.0, Some(factors), from.into(), None, rows.into()).unwrap();
        launch(matrix_scaling_fp32 { scaling });
        for (row, col) in all() {
            assert_eq!(to.as_slice()[row * STRIDE + col], expected(row, col), "({row}, {col})");
        }
    }
    let cols = MatrixMut::new(GlobalSliceMut::new(to.as_mut_slice()), NEAR, FAR, 1, STRIDE).unwrap();
    launch(matrix_scaling_fp32 { scaling: Scaling::in_place(0.5, None, Some(of_rows), cols.into()).unwrap() });
    for (row, col) in all() {
        let expected = 0.5 * (element(row, 0) * expected(row, col));
        assert_eq!(to.as_slice()[row * STRIDE + col], expected, "({row}, {col})");
    }
    // A matrix of one row each, far from the one before.
    let first = MatrixMut::new(GlobalSliceMut::new(to.as_mut_slice()), 1, NEAR, NEAR, 1).unwrap();
    let (from, batch) = (MatrixBatch::new(one, STRIDE, FAR).unwrap(), MatrixBatchMut::new(first, STRIDE, FAR).unwrap());
    launch(matrix_scaling_fp32 { scaling: Scaling::new(3.0, None, from, None, batch).unwrap() });
    for (row, col) in all() {
        assert_eq!(to.as_slice()[row * STRIDE + col], 3.0 * element(row, col), "({row}, {col})");
    }
}
