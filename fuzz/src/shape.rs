//! The shapes of the Python package: how a product of tensors becomes products of matrices.

// What knows nothing of Python in a crate that Python has to load.
#[allow(dead_code, reason = "the package uses the rest")]
#[path = "../../python/src/shape.rs"]
mod package;

use std::collections::HashSet;

use arbitrary::{Arbitrary, Unstructured};
use package::{Products, Rule, Scalings, Strides, View};
use tilewright::plan::Triangle;

/// The products of more elements than this are not followed one by one.
const FEW: usize = 1 << 12;

#[derive(Debug, Arbitrary)]
struct Tensor {
    extents: Vec<Extent>,
    /// In place of those of a tensor without gaps.
    strides: Option<Vec<Extent>>,
    /// Has extents exchanged.
    order: u8,
    /// Which extents are repetitions of one element.
    repeated: u8,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Extent {
    One,
    Few(u8),
    Many(u32),
    Any(usize),
}

#[derive(Debug, Arbitrary)]
struct Input {
    a: Tensor,
    b: Tensor,
    rule: u8,
    part: u8,
    /// The extents of b that make it fit to a.
    fits: bool,
    rows_have_factors: bool,
}

/// Shapes are refused with a reason, or their products write each element of the result once, and read what is in the operands.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Ok(mut input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    if input.fits {
        input.fit();
    }
    // As tensors come from Python: nothing ends beyond what can be addressed.
    let (Some(a), Some(b)) = (input.a.view(), input.b.view()) else { return };
    let rule = [Rule::Matmul, Rule::Matvec, Rule::Bmm][usize::from(input.rule) % 3];
    assert_eq!(Rule::of_name(rule.name()), Some(rule));
    scale(&a, input.rows_have_factors);
    let shape = match rule.result(&a.shape, &b.shape) {
        Ok(shape) => shape,
        Err(reason) => return crate::has_reason(reason),
    };
    let Some(c) = View::contiguous(shape).filter(|view| addressable(view).is_some()) else { return };
    if c.is_empty() {
        return;
    }
    let part = [Triangle::All, Triangle::Upper, Triangle::Lower][usize::from(input.part) % 3];
    let invariant = input.part >= 128;
    let products = Products::new(&a, &b, &c, part, invariant);
    let elements: usize = c.shape.iter().product();
    let Products { m, n, k, count, .. } = products;
    if elements > FEW || k > FEW {
        return;
    }
    let mut written = HashSet::new();
    for [of_a, of_b, of_c] in products.offsets() {
        for matrix in 0..count {
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                let to = place(of_c, products.c, matrix, row, col);
                assert!(to < elements, "element {to} of {elements} is written");
                assert!(written.insert(to), "element {to} is written twice");
            }
        }
        // The last terms are the furthest.
        let last = |extent: usize| extent.checked_sub(1);
        if let (Some(term), Some(matrix), Some(row), Some(col)) = (last(k), last(count), last(m), last(n)) {
            assert!(Some(place(of_a, products.a, matrix, row, term)) < a.span(), "a is left");
            assert!(Some(place(of_b, products.b, matrix, term, col)) < b.span(), "b is left");
        }
    }
    assert_eq!(written.len(), elements, "elements are left out");
}

/// The same for matrices whose rows and columns are multiplied by factors.
fn scale(from: &View, rows_have_factors: bool) {
    let Some(to) = View::contiguous(from.shape.clone()).filter(|view| addressable(view).is_some()) else { return };
    if from.shape.len() < 2 || from.is_empty() {
        return;
    }
    let scalings = Scalings::new(from, &to, rows_have_factors);
    let elements: usize = to.shape.iter().product();
    if elements > FEW {
        return;
    }
    let mut written = HashSet::new();
    for [of_from, of_to] in scalings.offsets() {
        for matrix in 0..scalings.count {
            for (row, col) in (0..scalings.m).flat_map(|row| (0..scalings.n).map(move |col| (row, col))) {
                assert!(written.insert(place(of_to, scalings.to, matrix, row, col)), "an element is written twice");
                assert!(Some(place(of_from, scalings.from, matrix, row, col)) < from.span(), "the matrix is left");
            }
        }
    }
    assert_eq!(written.len(), elements, "elements are left out");
}

fn place(first: usize, strides: Strides, matrix: usize, row: usize, col: usize) -> usize {
    first + matrix * strides.batch + row * strides.rows + col * strides.cols
}

/// The elements that a tensor spans, if memory can hold them.
fn addressable(view: &View) -> Option<usize> {
    view.span().filter(|span| *span <= isize::MAX as usize / size_of::<f32>())
}

impl Extent {
    fn value(self) -> usize {
        match self {
            Self::One => 1,
            Self::Few(value) => usize::from(value % 8),
            Self::Many(value) => value as usize,
            Self::Any(value) => value,
        }
    }
}

impl Tensor {
    fn view(&self) -> Option<View> {
        let shape: Vec<usize> = self.extents.iter().take(6).map(|extent| extent.value()).collect();
        let mut view = View::contiguous(shape)?;
        if let Some(strides) = &self.strides {
            view.strides.iter_mut().zip(strides).for_each(|(stride, value)| *stride = value.value());
        }
        if view.shape.len() > 1 {
            let (one, other) =
                (usize::from(self.order) % view.shape.len(), usize::from(self.order / 8) % view.shape.len());
            view.shape.swap(one, other);
            view.strides.swap(one, other);
        }
        for place in (0..view.shape.len()).filter(|place| self.repeated >> place & 1 == 1) {
            view.strides[place] = 0;
        }
        addressable(&view)?;
        Some(view)
    }
}

impl Input {
    /// Gives b the extents that it should have: the terms of a, and its batch.
    fn fit(&mut self) {
        let (a, b) = (&self.a.extents, &mut self.b.extents);
        (self.a.order, self.b.order) = (0, 0);
        b.truncate(6);
        let a = &a[..a.len().min(6)];
        if let (Some(&terms), Some(place)) = (a.last(), b.len().checked_sub(2).or(b.len().checked_sub(1))) {
            b[place] = terms;
        }
        for back in 3..=a.len().min(b.len()) {
            let (of_a, of_b) = (a[a.len() - back], b.len() - back);
            if b[of_b].value() != 1 {
                b[of_b] = of_a;
            }
        }
    }
}
