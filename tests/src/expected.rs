//! What the result of a product should be.

use host::check::Reference;
use ndarray::Array2;

use crate::{Operand, Problem};

/// The result of a product in double precision, and what is around it in memory.
#[derive(Clone, Debug)]
pub struct Expected(Reference);

impl Expected {
    pub(crate) fn of(problem: &Problem) -> Self {
        let Problem { alpha, a, b, beta, c } = problem;
        let [a, b, c] = [a, b, c].map(elements);
        Self(Reference::new(*alpha, a.view(), b.view(), *beta, c.view()))
    }

    /// Compares every element by the bounds of [`Reference::check`], and looks at what is around the matrix.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self, result: &Operand) -> Result<(), String> {
        result.check_surroundings()?;
        let outcome = self.0.check(elements(result).view());
        if outcome.passed {
            return Ok(());
        }
        Err(match outcome.worst {
            Some(worst) if outcome.max_error > outcome.max_bound => format!(
                "element {:?} is {} and should be {}: the difference is {:.3e} of the sum of magnitudes, which is beyond {:.3e}",
                (worst.row, worst.col),
                worst.value,
                worst.expected,
                outcome.max_error,
                outcome.max_bound
            ),
            _ => format!(
                "the relative Frobenius error is {:.3e}, which is beyond {:.3e}",
                outcome.frobenius_error, outcome.frobenius_bound
            ),
        })
    }
}

fn elements(operand: &Operand) -> Array2<f32> {
    Array2::from_shape_fn((operand.rows(), operand.cols()), |(row, col)| operand.at(row, col))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layouts, Sizes};

    /// The result of an exact computation, with `change` done to the operands first.
    fn judged(change: impl Fn(f32) -> f32) -> Result<(), String> {
        let problem = Problem::new(Sizes { m: 13, n: 17, k: 512 }, Layouts::ALL[0], 1);
        let changed = |matrix: &Operand| elements(matrix).mapv(|element| f64::from(change(element)));
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
