//! Traces for the book, of which the files in `docs/book/src/traces` are: a small product by tiles in shared memory, and one by the pipeline
//! of TMA, converter warps and tensor cores. They are compared, so that they say what the kernels do today; `TILEWRIGHT_BLESS=1` writes them
//! anew.

use std::path::{Path, PathBuf};

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::epilogue::Steps;
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::tiled::gemm_tiled_32_fp32;
use gpu_kernels::gemm::hopper::decomposed::{BOX_OF_A, TILE, box_of_b, gemm_wgmma_nn_fp32_3xtf32};
use gpu_kernels::gemm::hopper::fallback::Fallback;
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::{Matrix, MatrixMut};
use operations::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};
use runtime::{TensorLayout, TensorTile};

/// `C = A·B`, row-major, by one kernel.
struct Product {
    name: &'static str,
    facts: cuda_std::KernelFacts,
    launch: fn(&Device, [usize; 3], Operands<'_>) -> Result<(), Error>,
}

type Operands<'a> = (GlobalSlice<'a, f32>, GlobalSlice<'a, f32>, GlobalSliceMut<'a, f32>);

/// The matrices of a product.
fn matrices<'a>(
    [m, n, k]: [usize; 3],
    (a, b, c): Operands<'a>,
) -> Result<(Matrix<'a>, Matrix<'a>, MatrixMut<'a>), Error> {
    let a = Matrix::new(a, m, k, k, 1).map_err(Error::operation)?;
    let b = Matrix::new(b, k, n, n, 1).map_err(Error::operation)?;
    Ok((a, b, MatrixMut::new(c, m, n, n, 1).map_err(Error::operation)?))
}

const TILED: Product = Product {
    name: "tiled",
    facts: gemm_tiled_32_fp32::FACTS,
    launch: |device, sizes, operands| {
        let (a, b, c) = matrices(sizes, operands)?;
        let gemm = Gemm::new(1.0, a, b, 0.0, c).map_err(Error::operation)?;
        Ok(device.launch(gemm_tiled_32_fp32 { gemm })?)
    },
};

const PIPELINE: Product = Product {
    name: "pipeline",
    facts: gemm_wgmma_nn_fp32_3xtf32::FACTS,
    launch: |device, sizes @ [m, n, k], operands| {
        let (a, b, c) = matrices(sizes, operands)?;
        let map = |view, rows: usize, cols: usize, lines: u32| {
            let tile = TensorTile { element: TensorElement::Fp32, length: 32, lines, swizzle: TensorSwizzle::Bytes128 };
            let stride = cols as u64;
            let layout = TensorLayout {
                length: stride,
                lines: rows as u64,
                line_stride: stride,
                matrices: 1,
                matrix_stride: rows as u64 * stride,
            };
            device.tensor_map(view, &layout, &tile)
        };
        let (map_a, map_b) = (map(operands.0, m, k, BOX_OF_A.m)?, map(operands.1, k, n, box_of_b(TILE.n, false).k)?);
        let gemm = TiledGemm::new(1.0, a, b, 0.0, c).map_err(Error::operation)?;
        let tile_mask = GlobalSliceMut::new(&mut []);
        Ok(device.launch(gemm_wgmma_nn_fp32_3xtf32 {
            map_a,
            map_b,
            gemm,
            tile_mask,
            only: Fallback::everything(),
            steps: Steps::none(),
        })?)
    },
};

impl Operation for Product {
    fn describe(&self) -> Description {
        Description {
            name: self.name,
            idea: "C = A·B, row-major",
            sizes: &["m", "n", "k"],
            kernels: vec![self.facts],
            small: vec![vec![40, 33, 37], vec![64, 64, 64]],
            large: Vec::new(),
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [m, n, k] = sizes.get(["m", "n", "k"])?;
        let numbers = Distribution::Uniform(-1.0, 1.0);
        Ok(vec![
            Argument::input("a", &[m, k], numbers),
            Argument::input("b", &[k, n], numbers),
            Argument::output("c", &[m, n]),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        (self.launch)(device, sizes.get(["m", "n", "k"])?, (views.read("a")?, views.read("b")?, views.write("c")?))
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let [m, n, k] = sizes.get(["m", "n", "k"])?;
        let (a, b) = (values.of("a")?, values.of("b")?);
        let one = |row: usize, col: usize| {
            let products = || (0..k).map(|l| a[row * k + l] * b[l * n + col]);
            Expected::rounded(products().sum(), k + 2, products().map(f64::abs).sum())
        };
        Ok(vec![(0..m).flat_map(|row| (0..n).map(move |col| one(row, col))).collect()])
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the repository").to_owned()
}

fn compare(operation: &Product, sizes: &str, file: &str) {
    let parsed = operation.describe().parse_sizes(sizes).unwrap();
    let trace = operations::record_steps(operation, parsed, 1, 0, Default::default()).unwrap();
    assert_eq!(trace.error, None);
    operations::assert_trace_files(&trace, &root(), &root().join("docs/book/src/traces").join(file));
}

#[test]
fn the_trace_of_tiles_in_shared_memory_is_that_in_the_book() {
    compare(&TILED, "m=32,n=32,k=64", "gemm_tiled_32_fp32");
}

#[test]
fn the_trace_of_the_pipeline_is_that_in_the_book() {
    compare(&PIPELINE, "m=160,n=32,k=160", "gemm_wgmma_nn_fp32_3xtf32");
}
