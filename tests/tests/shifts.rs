//! Operands whose rows of memory begin anywhere: kernels that copy them in pieces of 16 bytes from multiples of 16 bytes on. What they compute is,
//! bit by bit, what they compute of the same numbers in rows that begin at multiples of 16 bytes, and they read nothing but the operands, of
//! which the first element is the first of the memory that they may read, and the last one the last.

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor, LaunchError};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::mma::*;
use gpu_kernels::gemm::narrow::tensor_cores::*;
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};
use rayon::prelude::*;
use tests::{Layout, SENTINEL, Sizes};
use tilewright::Order;

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

type Launch = for<'a> fn(TiledGemm<'a>) -> Result<(), LaunchError>;

/// A kernel, and the layouts of A and B that it takes.
struct Kernel {
    name: &'static str,
    launch: Launch,
    a: Layout,
    b: Layout,
}

/// The kernels of these names, in which `nt` and the like name layouts.
macro_rules! kernels {
    ($($name:ident)*) => {
        [$({
            let layout_of = |place: usize| {
                let letters = stringify!($name).split('_').find(|part| ["nn", "nt", "tn", "tt"].contains(part)).unwrap();
                if letters.as_bytes()[place] == b'n' { Layout::ROWS } else { Layout::COLUMNS }
            };
            Kernel { name: stringify!($name), launch: |gemm| launch($name { gemm }), a: layout_of(0), b: layout_of(1) }
        }),*]
    };
}

fn launch(kernel: impl Grid) -> Result<(), LaunchError> {
    // SAFETY: the views are of slices that are borrowed for as long as the kernel value lives, the one of C mutably.
    unsafe { EXECUTOR.launch(kernel, kernel.grid()) }
}

/// Numbers in memory, from the first to the last, `shift` elements behind a multiple of 16 bytes.
struct Operand {
    memory: Vec<f32>,
    begin: usize,
    extents: [usize; 2],
    strides: [usize; 2],
}

impl Operand {
    fn new(extents: [usize; 2], layout: Layout, shift: usize, element: impl Fn(usize, usize) -> f32) -> Self {
        let [rows, cols] = extents;
        let strides = layout.strides(rows, cols);
        let len = (rows - 1) * strides[0] + (cols - 1) * strides[1] + 1;
        let mut memory = vec![SENTINEL; len + 8];
        let begin = (0..4).find(|&i| memory[i..].as_ptr().addr().is_multiple_of(16)).unwrap() + shift;
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            memory[begin + row * strides[0] + col * strides[1]] = element(row, col);
        }
        memory.truncate(begin + len);
        Self { memory, begin, extents, strides }
    }

    fn matrix(&self) -> Matrix<'_> {
        let ([rows, cols], [row_stride, col_stride]) = (self.extents, self.strides);
        Matrix::new(GlobalSlice::new(&self.memory[self.begin..]), rows, cols, row_stride, col_stride).unwrap()
    }
}

/// How an operand lies: its shift, and the elements by which its leading dimension is larger than a multiple of 4.
type Place = (usize, usize);

/// The bits of a product, or of its partial sums.
fn compute(kernel: &Kernel, Sizes { m, n, k }: Sizes, splits: usize, [a, b]: [Place; 2]) -> Vec<u32> {
    let number = |row: usize, col: usize, seed: usize| {
        let mixed = (row * 7919 + col * 104_729 + seed * 31).wrapping_mul(2_654_435_761) >> 7 & 0xFFFF;
        mixed as f32 / 32768.0 - 1.0
    };
    let layout = |layout: Layout, extents: [usize; 2], remainder: usize| {
        let length = if layout.order == Order::RowMajor { extents[1] } else { extents[0] };
        layout.padded(length.next_multiple_of(4) - length + remainder)
    };
    let (extents_a, extents_b) = ([m, k], [k, n]);
    let a = Operand::new(extents_a, layout(kernel.a, extents_a, a.1), a.0, |row, col| number(row, col, 1));
    let b = Operand::new(extents_b, layout(kernel.b, extents_b, b.1), b.0, |row, col| number(row, col, 2));
    let mut memory = vec![f32::NAN; m * n * splits];
    let c = MatrixMut::new(GlobalSliceMut::new(&mut memory), m, n, n, 1).unwrap();
    let gemm = if splits == 1 {
        TiledGemm::new(1.0, a.matrix(), b.matrix(), 0.0, c).unwrap()
    } else {
        let batch = |matrix| MatrixBatch::new(matrix, 0, 1).unwrap();
        let c = MatrixBatchMut::new(c, m * n, splits).unwrap();
        TiledGemm::split_k(batch(a.matrix()), batch(b.matrix()), c, splits as u32).unwrap()
    };
    (kernel.launch)(gemm).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
    memory.into_iter().map(f32::to_bits).collect()
}

/// Compares products of operands in all places.
fn check(kernels: &[Kernel], shapes: &[Sizes], splits: usize) {
    let places: Vec<Place> = (0..4).flat_map(|shift| (0..4).map(move |remainder| (shift, remainder))).collect();
    kernels.par_iter().for_each(|kernel| {
        for &shape in shapes {
            let aligned = compute(kernel, shape, splits, [(0, 0); 2]);
            assert!(aligned.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{}", kernel.name);
            // Each place of A meets one of B, which is another one each time, and the aligned one.
            for (i, &place) in places.iter().enumerate() {
                let other = places[(7 * i + 3) % places.len()];
                for places in [[place, other], [place, (0, 0)], [(0, 0), place]] {
                    let found = compute(kernel, shape, splits, places);
                    let differs = (0..found.len()).find(|&i| found[i] != aligned[i]);
                    assert_eq!(differs, None, "{} of {shape:?} by {splits} with A and B at {places:?}", kernel.name);
                }
            }
        }
    });
}

/// Sizes that end in the middle of pieces, of tiles and of steps; and that are less than a piece.
const SHAPES: [Sizes; 4] = [
    Sizes { m: 70, n: 39, k: 117 },
    Sizes { m: 65, n: 66, k: 33 },
    Sizes { m: 3, n: 2, k: 1 },
    Sizes { m: 6, n: 9, k: 100 },
];

/// The kernels whose blocks copy tiles together.
fn shared_tiles() -> [Kernel; 14] {
    kernels! {
        gemm_mma_64x64_nn_fp32_3xtf32 gemm_mma_64x64_nt_fp32_3xtf32
        gemm_mma_64x64_tn_fp32_3xtf32 gemm_mma_64x64_tt_fp32_3xtf32
        gemm_mma_64x64_nn_fp32_fp64 gemm_mma_64x64_nt_fp32_fp64
        gemm_mma_64x64_tn_fp32_fp64 gemm_mma_64x64_tt_fp32_fp64
        gemm_mma_128x128_nn_fp32_fp64 gemm_mma_128x128_nt_fp32_fp64
        gemm_mma_128x128_tn_fp32_fp64 gemm_mma_128x128_tt_fp32_fp64
        gemm_mma_nn_fp32_3xtf32 gemm_mma_tt_tf32
    }
}

#[test]
fn tiles_of_rows_that_begin_anywhere() {
    check(&shared_tiles(), &SHAPES, 1);
}

#[test]
fn parts_of_k_of_rows_that_begin_anywhere() {
    let kernels: Vec<Kernel> = shared_tiles().into_iter().filter(|kernel| !kernel.name.ends_with("fp64")).collect();
    check(&kernels, &[Sizes { m: 35, n: 34, k: 217 }, Sizes { m: 9, n: 7, k: 75 }], 3);
}

#[test]
fn narrow_products_of_rows_that_begin_anywhere() {
    let kernels = kernels! {
        gemm_narrow_16_nt_fp32_3xtf32 gemm_narrow_16_tt_fp32_3xtf32
        gemm_narrow_32_nt_fp32_3xtf32 gemm_narrow_32_tt_fp32_3xtf32
    };
    check(&kernels, &SHAPES, 1);
    check(&kernels, &[Sizes { m: 35, n: 14, k: 419 }, Sizes { m: 9, n: 7, k: 75 }], 3);
}
