//! What the result of a product should be.

use ndarray::Array2;

use crate::{Operand, Problem};

/// The rounding error of one fp32 operation, relative to its result.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// The result of a product in double precision, and what errors are measured by.
///
/// With E the error of the result C, and S = |α|·Σ|a||b| + |β||c| element by element, a result is right if
///
/// ```text
///  ‖E‖ / ‖C‖  ≤  2·√K·2⁻²⁴     (Frobenius norms)          and          max |E| / S  ≤  4·√K·2⁻²⁴
/// ```
///
/// K counts the roundings of an element: one for each term, and one more each for α and for β where they are not 1 and 0.
/// A result of few elements can be near zero by chance, and the first bound then says nothing; there ‖S‖/√K, which is what
/// ‖C‖ is when nothing happens by chance, takes the place of ‖C‖.
#[derive(Clone, Debug)]
pub struct Expected {
    value: Array2<f64>,
    magnitude: Array2<f64>,
    roundings: f64,
}

impl Expected {
    pub(crate) fn of(problem: &Problem) -> Self {
        let Problem { alpha, a, b, beta, c } = problem;
        let (m, n, k) = (c.rows(), c.cols(), a.cols());
        assert_eq!((a.rows(), b.rows(), b.cols()), (m, k, n), "these do not make a product");
        let mut value = Array2::zeros((m, n));
        let mut magnitude = Array2::zeros((m, n));
        let mut roundings = 0;
        if *alpha != 0.0 {
            let (alpha, a, b) = (f64::from(*alpha), a.to_f64(), b.to_f64());
            value.scaled_add(alpha, &a.dot(&b));
            magnitude.scaled_add(alpha.abs(), &a.mapv(f64::abs).dot(&b.mapv(f64::abs)));
            roundings += k + usize::from(alpha != 1.0);
        }
        if *beta != 0.0 {
            let (beta, c) = (f64::from(*beta), c.to_f64());
            value.scaled_add(beta, &c);
            magnitude.scaled_add(beta.abs(), &c.mapv(f64::abs));
            roundings += 1;
        }
        Self { value, magnitude, roundings: roundings.max(1) as f64 }
    }

    /// Compares every element, and looks at what is around the matrix.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self, result: &Operand) -> Result<(), String> {
        result.check_surroundings()?;
        let result = result.to_f64();
        if let Some((index, element)) = result.indexed_iter().find(|(_, element)| !element.is_finite()) {
            return Err(format!("element {index:?} is {element}, and should be {}", self.value[index]));
        }
        let error = &result - &self.value;
        let root = self.roundings.sqrt();

        let bound = 4.0 * root * ROUNDING;
        for (index, &error) in error.indexed_iter() {
            if error.abs() > bound * self.magnitude[index] {
                let (found, should) = (result[index], self.value[index]);
                return Err(format!(
                    "element {index:?} is {found} and should be {should}: the difference is {:.3e} of the sum of \
                     magnitudes, which is beyond {bound:.3e}",
                    error.abs() / self.magnitude[index]
                ));
            }
        }

        let norm = |matrix: &Array2<f64>| matrix.iter().map(|element| element * element).sum::<f64>().sqrt();
        let (error, scale) = (norm(&error), norm(&self.value).max(norm(&self.magnitude) / root));
        let bound = 2.0 * root * ROUNDING;
        if error > bound * scale {
            return Err(format!("the relative Frobenius error is {:.3e}, which is beyond {bound:.3e}", error / scale));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layouts, Sizes};

    /// The result of an exact computation, with `change` done to the operands first.
    fn judged(change: impl Fn(f32) -> f32) -> Result<(), String> {
        let problem = Problem::new(Sizes { m: 13, n: 17, k: 512 }, Layouts::ALL[0], 1);
        let changed = |matrix: &Operand| matrix.to_f64().mapv(|element| f64::from(change(element as f32)));
        let product = changed(&problem.a).dot(&changed(&problem.b));
        let mut result = problem.c.clone();
        for (index, &element) in product.indexed_iter() {
            result.set(index.0, index.1, element as f32);
        }
        problem.expected().check(&result)
    }

    #[test]
    fn a_result_of_tf32_operands_is_wrong_and_the_exact_one_is_right() {
        assert_eq!(judged(|element| element), Ok(()));
        let tf32 = judged(|element| f32::from_bits((element.to_bits() + 0x1000) & !0x1FFF));
        assert!(tf32.is_err_and(|error| error.contains("beyond")));
    }

    #[test]
    fn nan_and_a_write_beside_the_elements_are_wrong() {
        let problem = Problem::new(Sizes { m: 3, n: 4, k: 0 }, Layouts::ALL[0].padded(), 1);
        let mut result = problem.c.clone();
        result.fill(0.0);
        assert_eq!(problem.expected().check(&result), Ok(()));

        let mut with_nan = result.clone();
        with_nan.set(2, 3, f32::NAN);
        assert!(problem.expected().check(&with_nan).is_err_and(|error| error.contains("(2, 3)")));

        for position in [0, result.extent().start + 4, result.memory.len() - 1] {
            let mut written = result.clone();
            written.memory[position] = 0.0;
            assert!(problem.expected().check(&written).is_err_and(|error| error.contains("is no element")));
        }
    }
}
