//! Products with steps behind them: each element shall have the bits that the steps make of what the kernel computes without them.
//!
//! ```text
//!  kernel without steps ──► C ──► the steps, one after the other, here ──┐
//!  kernel with steps    ──► C ───────────────────────────────────────────┴── compared bit by bit
//! ```

use tilewright::kernels::KernelInfo;
use tilewright::{Activation, Device, Epilogue};

use super::{Batch, Planned, upload};
use crate::{Layout, Operand};

/// The factors of the bias and of the residual.
const FACTORS: [f32; 2] = [1.5, -0.5];
const OFFSET: f32 = 0.25;

impl<'a> Planned<'a> {
    /// Plans products with a bias, relu, gelu, a residual and an offset behind them, and compares them with those without; whether the kernel could
    /// compute them.
    ///
    /// # Errors
    /// As for [`Planned::new`] and [`Planned::run`]; the first element that is another one, in words, with the products.
    pub fn check_steps(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
    ) -> Result<bool, String> {
        Self::try_one(device, kernel, splits, batch, |alone| {
            let Some(mut planned) = Self::described(device, kernel, splits, batch, true)? else {
                return Err(format!("{} takes no steps", kernel.name).into());
            };
            let row_major = |rows, cols, seed| {
                let layout = Layout::ROWS;
                (0..batch.problems.len() as u64).map(move |i| Operand::random(rows, cols, layout, seed + i)).collect()
            };
            let [m, n] = batch.problems.first().map_or([0; 2], |problem| [problem.c.rows(), problem.c.cols()]);
            let (biases, residuals): (Vec<_>, Vec<_>) = (row_major(1, n, 71), row_major(m, n, 72));
            let there = |matrices: &[Operand]| upload(device, &matrices.iter().collect::<Vec<_>>(), false);
            let [bias, residual] = [there(&biases)?, there(&residuals)?];
            let without = alone.run()?;
            // What is added first is a bias, which kernels may add in registers; or it is not.
            for begins_with_bias in [true, false] {
                let (first, last) = if begins_with_bias { (&bias, &residual) } else { (&residual, &bias) };
                let epilogue = Epilogue::new()
                    .add(FACTORS[0], first)
                    .activation(Activation::Relu)
                    .activation(Activation::Gelu)
                    .add(FACTORS[1], last)
                    .offset(OFFSET);
                let with = planned.run_with(&epilogue)?;
                for (product, (without, with)) in without.iter().zip(with.iter()).enumerate() {
                    for (row, col) in with.indices() {
                        let (bias, residual) = (biases[product].at(0, col), residuals[product].at(row, col));
                        let (first, last) = if begins_with_bias { (bias, residual) } else { (residual, bias) };
                        let x = FACTORS[0].mul_add(first, without.at(row, col));
                        let x = Activation::Gelu.of(Activation::Relu.of(x));
                        let (expected, found) = (FACTORS[1].mul_add(last, x) + OFFSET, with.at(row, col));
                        if found.to_bits() != expected.to_bits() {
                            return Err(format!(
                                "element ({row}, {col}) of product {product} is {found:e} with steps, and {expected:e} is what they make of {:e}",
                                without.at(row, col)
                            )
                            .into());
                        }
                    }
                }
            }
            Ok(())
        })
    }
}
