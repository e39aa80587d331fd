//! `C = max(A·B + bias, 0)` in fp32, of row-major matrices A (m × k) and B (k × n): a matrix product whose epilogue adds a bias for each
//! column and cuts off what is negative, before C is stored for the first and only time. A block of 128 threads computes a tile of 64 × 64
//! of C.
//!
//! ```text
//!                    B  k×n              bias  n
//!                  ┌───┬────┬───┐      ┌───┬────┬───┐
//!                  │   │ 64 │   │      │   │ 64 │   │
//!                  └───┴────┴───┘      └───┴────┴───┘
//!      A  m×k      ┌───┬────┬───┐            │
//!     ┌───────┐    │   │    │   │            ▼
//!     │  64   │    ├───┼────┼───┤     accumulators ──► + bias ──► max(…, 0) ──► a tile of C, 64×64
//!     └───────┘    └───┴────┴───┘
//! ```
//!
//! The product is a sum of outer products, of a column of A and a row of B for each k, in the registers of 128 threads:
//! [`blocks::register_tiled`]. What happens to its accumulators is the [`Epilogue`], and that is all there is to write.

#![cfg_attr(target_arch = "nvptx64", no_std)]

use blocks::epilogue::Epilogue;
use blocks::major::{KMajor, MnMajor};
use blocks::matrix::{Matrix, MatrixMut};
use blocks::register_tiled::{ProductTile, TILE_64X64, shared_bytes, tile_64x64};
use cuda_std::prelude::*;

/// The largest of `accumulator + bias[col]` and 0; NaN stays NaN.
struct BiasRelu<'a> {
    bias: GlobalSlice<'a, f32>,
}

impl Epilogue for BiasRelu<'_> {
    #[inline(always)]
    unsafe fn value(&self, _row: u32, col: u32, accumulator: f32) -> f32 {
        // SAFETY: the caller's promise: the column is one of C, and the launch has checked that there are as many biases.
        let sum = accumulator + unsafe { self.bias.get_unchecked(col as usize) };
        if sum < 0.0 { 0.0 } else { sum }
    }
}

/// `C = max(A·B + bias, 0)` for row-major A and B, by tiles of 64×64.
#[kernel(
    block = 128,
    min_blocks = 4,
    dynamic_shared = shared_bytes(TILE_64X64),
    grid = (c.cols().div_ceil(TILE_64X64.n).max(1), c.rows().div_ceil(TILE_64X64.m).max(1)),
    requires(
        a.rows() == c.rows(),
        b.cols() == c.cols(),
        a.cols() == b.rows(),
        bias.len() == c.cols() as usize,
        a.is_contiguous_along_rows(),
        b.is_contiguous_along_rows(),
    )
)]
pub fn outer_product_bias_relu(a: Matrix<'_>, b: Matrix<'_>, bias: GlobalSlice<'_, f32>, c: MatrixMut<'_>) {
    let (row, col) = (thread::block_idx_y() * TILE_64X64.m, thread::block_idx_x() * TILE_64X64.n);
    let tile = ProductTile { a, b, c, row, col, k_begin: 0, k_end: a.cols() };
    // SAFETY: all threads of the block come here, with the shared memory of the tile, which is this block's alone; the launch has
    // checked the extents and the layouts.
    unsafe { tile_64x64::<KMajor, MnMajor>(&tile, &BiasRelu { bias }) }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::OuterProductBiasRelu;

/// The operation as the host sees it: m, n and k, A, B and the bias as inputs, C as output, the launch, and the same in f64 with a bound
/// for each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use blocks::matrix::{Matrix, MatrixMut};
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::outer_product_bias_relu;

    /// The largest of `A·B + bias` and 0.
    pub struct OuterProductBiasRelu;

    impl Operation for OuterProductBiasRelu {
        fn describe(&self) -> Description {
            let mut small = testkit::every(&[&[0, 1, 64, 130], &[1, 64, 67], &[0, 1, 33]]);
            small.push(vec![3, 5, 1100]); // more than the k after which accumulators are added up in shared memory
            Description {
                name: "outer-product-bias-relu",
                idea: "a body of crates/blocks with an epilogue of its own, so that C is stored once",
                sizes: &["m", "n", "k"],
                kernels: vec![outer_product_bias_relu::FACTS],
                small,
                large: vec![vec![4096, 4096, 128], vec![16_384, 8192, 1]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            Ok(vec![
                Argument::input("a", &[m, k], Distribution::Normal),
                Argument::input("b", &[k, n], Distribution::Normal),
                Argument::input("bias", &[n], Distribution::Normal),
                Argument::output("c", &[m, n]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let a = Matrix::new(views.read("a")?, m, k, k, 1).map_err(Error::operation)?;
            let b = Matrix::new(views.read("b")?, k, n, n, 1).map_err(Error::operation)?;
            let c = MatrixMut::new(views.write("c")?, m, n, n, 1).map_err(Error::operation)?;
            Ok(device.launch(outer_product_bias_relu { a, b, bias: views.read("bias")?, c })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let (a, b, bias) = (values.of("a")?, values.of("b")?, values.of("bias")?);
            let mut expected = Vec::with_capacity(m * n);
            for row in 0..m {
                let (mut sums, mut magnitudes) = (bias.to_vec(), bias.iter().map(|x| x.abs()).collect::<Vec<_>>());
                for l in 0..k {
                    for col in 0..n {
                        let product = a[row * k + l] * b[l * n + col];
                        sums[col] += product;
                        magnitudes[col] += product.abs();
                    }
                }
                // One for each k, one for the bias, and one for each 1024 of k that are added up. What is cut off is no farther from 0.
                let roundings = k + 1 + k.div_ceil(1024);
                let element = |(sum, magnitude): (f64, f64)| Expected::rounded(sum.max(0.0), roundings, magnitude);
                expected.extend(sums.into_iter().zip(magnitudes).map(element));
            }
            Ok(vec![expected])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * (k as f64 + 1.0))
        }
    }
}
