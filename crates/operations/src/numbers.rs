//! The numbers of an input: drawn from a distribution, or given.

use std::sync::Arc;

use crate::argument::{Argument, Distribution, Element};
use crate::error::Error;

/// The numbers of an input: drawn from a [`Distribution`], or given one by one.
///
/// ```
/// # use operations::{Argument, Distribution, Element, Numbers};
/// let offsets = vec![0.0, 2.0, 2.0, 5.0]; // where the rows of a sparse matrix begin
/// assert_eq!(Numbers::from(offsets.clone()), Numbers::Given([0.0, 2.0, 2.0, 5.0].into()));
/// assert_eq!(Numbers::from(Distribution::Normal), Numbers::Drawn(Distribution::Normal));
/// // An argument takes either.
/// let arguments = [
///     Argument::input("offsets", &[4], offsets).of(Element::U32),
///     Argument::input("values", &[5], Distribution::Normal),
/// ];
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Drawn, by the seed of a case.
    Drawn(Distribution),
    /// These, for each element one, in the order of memory, and rounded to its type: for what no distribution has, such as offsets that
    /// ascend, indices that are in bounds, a permutation, a matrix that is positive definite.
    Given(Arc<[f64]>),
}

impl From<Distribution> for Numbers {
    fn from(distribution: Distribution) -> Self {
        Self::Drawn(distribution)
    }
}

impl From<Vec<f64>> for Numbers {
    fn from(numbers: Vec<f64>) -> Self {
        Self::Given(numbers.into())
    }
}

/// The least and the greatest number that can be given for an element, if elements are whole numbers. Beyond 2⁵³ doubles are no longer all whole
/// numbers, and what was meant cannot be known.
pub(crate) fn given_whole_numbers(element: Element) -> Option<(f64, f64)> {
    element.whole_numbers().map(|(least, greatest)| (least as f64, greatest.min(1 << 53) as f64))
}

/// Whether there is a number for each element, and each is one that an element can be.
pub(crate) fn check_given(argument: &Argument, numbers: &[f64], len: usize) -> Result<(), Error> {
    if numbers.len() != len {
        let (extents, given) = (argument.extents.clone(), numbers.len());
        return Err(Error::GivenCount { argument: argument.name, extents, given, len });
    }
    let is_possible = |number: f64| {
        given_whole_numbers(argument.element)
            .is_none_or(|(least, greatest)| number.fract() == 0.0 && (least..=greatest).contains(&number))
    };
    match numbers.iter().position(|number| !is_possible(*number)) {
        None => Ok(()),
        Some(index) => {
            let (element, position, number) = (argument.element, argument.position(index), numbers[index]);
            Err(Error::GivenNumber { argument: argument.name, element, position, number })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_numbers_are_the_elements_and_have_to_be_as_many_and_possible() {
        let given = |element: Element, extents: &[usize], numbers: &[f64]| {
            let words = Argument::input("x", extents, numbers.to_vec()).of(element).memory(7)?;
            Ok::<_, Error>(words.chunks(element.words()).map(|words| element.number(words)).collect::<Vec<_>>())
        };
        let offsets = [0.0, 2.0, 2.0, 4_294_967_295.0];
        assert_eq!(given(Element::U32, &[2, 2], &offsets).unwrap(), offsets);
        assert_eq!(given(Element::U64, &[1], &[9_007_199_254_740_992.0]).unwrap(), [9_007_199_254_740_992.0]);
        assert_eq!(given(Element::I32, &[2], &[-2_147_483_648.0, 3.0]).unwrap(), [-2_147_483_648.0, 3.0]);
        assert_eq!(given(Element::F16, &[2], &[1.0 + 2f64.powi(-11), -3.5]).unwrap(), [1.0, -3.5]);
        assert_eq!(given(Element::F32, &[2], &[0.1, f64::INFINITY]).unwrap(), [f64::from(0.1f32), f64::INFINITY]);
        assert_eq!(given(Element::Bf16, &[2], &[1.0, -257.0]).unwrap(), [1.0, -256.0]);
        assert!(given(Element::F64, &[0], &[]).unwrap().is_empty());

        let error = given(Element::U32, &[2, 3], &offsets).unwrap_err().to_string();
        assert!(
            error.contains("`x`") && error.contains("[2, 3]") && error.contains('6') && error.contains('4'),
            "{error}"
        );
        for (element, number) in [
            (Element::U32, -1.0),
            (Element::U32, 0.5),
            (Element::U32, f64::NAN),
            (Element::U32, 4_294_967_296.0),
            (Element::U64, 1e16),
            (Element::I32, 2_147_483_648.0),
            (Element::I32, -0.5),
        ] {
            let error = given(element, &[2, 2], &[0.0, 1.0, number, 0.0]).unwrap_err();
            assert!(
                matches!(&error, Error::GivenNumber { argument: "x", position, .. } if position == "[1, 0]"),
                "{error}"
            );
        }
    }
}
