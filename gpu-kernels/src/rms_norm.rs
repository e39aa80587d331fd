//! Root mean square normalisation of rows, `y[i, j] = x[i, j] / √(mean of x[i, ·]² + ε) · w[j]`: one block for each row, which it
//! reads twice; the second time, it comes from a cache.
//!
//! ```text
//!  row i   │ 0 1 2 … 255 │ 256 257 … 511 │ …        thread t has elements t, t + 256, t + 512, …
//!            └──────┬──────┘
//!  squares │ Σ of each thread ─► tree in shared memory ─► the sum, known to all threads
//!                   │
//!  row i   │ each element times 1 / √(sum / columns + ε), times its weight
//! ```
//!
//! Squares are added up in fp32: rows whose elements are beyond 2⁶³ in magnitude become zeros, as their sum is infinite; with NaN in a
//! row, all of it is NaN. 1 KB of shared memory; any device.

use cuda_std::prelude::*;

/// The threads of a block.
const THREADS: usize = rms_norm_fp32::BLOCK.x as usize;

/// `y = x / √(mean of squares + ε) · w` in fp32, of each row of `cols` elements.
#[kernel(
    block = 256,
    grid = (x.len() / (cols as usize).max(1)).max(1) as u32,
    requires(
        cols as usize == w.len(),
        x.len() == y.len(),
        x.len().is_multiple_of((cols as usize).max(1)),
        x.len() / (cols as usize).max(1) <= i32::MAX as usize
    )
)]
pub fn rms_norm_fp32(
    cols: u32,
    epsilon: f32,
    x: GlobalSlice<'_, f32>,
    w: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; THREADS]> = Shared::new();
    let (cols, t) = (cols as usize, thread::thread_idx_x() as usize);
    let first = thread::block_idx_x() as usize * cols;
    if first + cols > x.len() {
        return; // the whole block: there are no rows
    }
    let mut sum = 0.0;
    for col in (t..cols).step_by(THREADS) {
        // SAFETY: a whole row from `first` on is inside, as just compared.
        let element = unsafe { x.get_unchecked(first + col) };
        sum = math::fma(element, element, sum);
    }
    // SAFETY: all threads of the block come here, and nothing else uses the array.
    let sum = unsafe { blocks::reduce::sum_of_block(&SUMS, sum) };
    let factor = math::rsqrt(sum / cols as f32 + epsilon);
    for col in (t..cols).step_by(THREADS) {
        // SAFETY: inside x, and y, which is as long; there is a weight for each column. No other thread has this element.
        unsafe { y.set_unchecked(first + col, x.get_unchecked(first + col) * factor * w.get_unchecked(col)) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::RMS_NORM;

/// The operation as the host sees it: rows and columns, x and the weights as inputs, y as output, the launch, and each row in f64 with a bound for
/// each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use alloc::{vec, vec::Vec};

    use operations::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{THREADS, rms_norm_fp32};

    /// What is added to the mean of squares.
    const EPSILON: f32 = 1e-6;

    /// Root mean square normalisation of rows.
    pub static RMS_NORM: RmsNorm = RmsNorm;

    /// `y = x / √(mean of squares + ε) · w`.
    pub struct RmsNorm;

    impl Operation for RmsNorm {
        fn describe(&self) -> Description {
            Description {
                name: "rms-norm",
                idea: "y = x / √(mean of squares + ε) · w: one block for each row",
                sizes: &["rows", "cols"],
                kernels: vec![rms_norm_fp32::FACTS],
                small: operations::every(&[&[0, 1, 3], &[1, 31, 255, 256, 257, 1000]]),
                large: vec![vec![16_384, 4096], vec![1001, 77_777]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("x", &[rows, cols], Distribution::LogUniform(1e-6, 1e6)),
                Argument::input("w", &[cols], Distribution::Normal),
                Argument::output("y", &[rows, cols]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [cols] = sizes.get_u32(["cols"])?;
            let (x, w, y) = (views.read("x")?, views.read("w")?, views.write("y")?);
            Ok(device.launch(rms_norm_fp32 { cols, epsilon: EPSILON, x, w, y })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [cols] = sizes.get(["cols"])?;
            let (x, w) = (values.of("x")?, values.of("w")?);
            // Squares are not negative, so that the relative error of their sum is at most that of all roundings on the way: those of
            // a thread, those of the tree. A square root halves it. The others are a division, an addition, the root (0.501
            // units in the last place count as two roundings), and two multiplications.
            let roundings = (cols.div_ceil(THREADS) + THREADS.ilog2() as usize).div_ceil(2) + 6;
            let expected = x.chunks(cols).flat_map(|row| {
                let mean = row.iter().map(|element| element * element).sum::<f64>() / cols as f64;
                let factor = 1.0 / (mean + f64::from(EPSILON)).sqrt();
                let of = move |(element, weight): (&f64, &f64)| element * factor * weight;
                row.iter().zip(w).map(of).map(|value| Expected::rounded(value, roundings, value.abs()))
            });
            Ok(vec![expected.collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 4.0 * rows as f64 * cols as f64)
        }
    }
}
