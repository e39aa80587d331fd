//! A product to compute.

use crate::{Expected, Layout, Operand};

/// The extents of a product: an m×k matrix times a k×n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// How the three matrices lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Layouts {
    pub a: Layout,
    pub b: Layout,
    pub c: Layout,
}

impl Layouts {
    /// A and B each as they are and transposed, with C by rows: NN, NT, TN, TT.
    pub const ALL: [Self; 4] = [
        Self { a: Layout::ROWS, b: Layout::ROWS, c: Layout::ROWS },
        Self { a: Layout::ROWS, b: Layout::COLUMNS, c: Layout::ROWS },
        Self { a: Layout::COLUMNS, b: Layout::ROWS, c: Layout::ROWS },
        Self { a: Layout::COLUMNS, b: Layout::COLUMNS, c: Layout::ROWS },
    ];

    /// The same with leading dimensions larger than the extents, by different numbers.
    pub const fn padded(self) -> Self {
        Self { a: self.a.padded(3), b: self.b.padded(5), c: self.c.padded(7) }
    }
}

/// `C = α·A·B + β·C`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Problem {
    pub alpha: f32,
    pub a: Operand,
    pub b: Operand,
    pub beta: f32,
    pub c: Operand,
}

impl Problem {
    /// A product of random matrices, with α = 1 and β = 0.
    pub fn new(shape: Shape, layouts: Layouts, seed: u64) -> Self {
        let Shape { m, n, k } = shape;
        let a = Operand::random(m, k, layouts.a, seed);
        let b = Operand::random(k, n, layouts.b, seed.wrapping_add(1));
        let c = Operand::random(m, n, layouts.c, seed.wrapping_add(2));
        Self { alpha: 1.0, a, b, beta: 0.0, c }
    }

    /// The same with other factors.
    pub fn scaled(self, alpha: f32, beta: f32) -> Self {
        Self { alpha, beta, ..self }
    }

    /// The same with a row of A, and an element of B, that are far smaller than the others.
    pub fn with_tiny_elements(mut self) -> Self {
        let tiny = 2f32.powi(-100);
        for l in 0..self.a.cols() {
            self.a.set(self.a.rows() / 2, l, self.a.at(self.a.rows() / 2, l) * tiny);
        }
        self.b.set(self.b.rows() / 2, 0, tiny);
        self
    }

    /// The same with the magnitudes of all elements of A and B.
    pub fn with_magnitudes(mut self) -> Self {
        for operand in [&mut self.a, &mut self.b] {
            let (rows, cols) = (operand.rows(), operand.cols());
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                operand.set(row, col, operand.at(row, col).abs());
            }
        }
        self
    }

    /// What the result should be.
    pub fn expected(&self) -> Expected {
        Expected::of(self)
    }
}
