//! A product to compute.

use tilewright::{Orders, Sizes};

use crate::{Expected, Layout, Operand};

/// How the three matrices lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Layouts {
    pub a: Layout,
    pub b: Layout,
    pub c: Layout,
}

impl Layouts {
    /// The orders of A and B.
    pub fn orders(&self) -> Orders {
        Orders { a: self.a.order, b: self.b.order }
    }

    /// NN, NT, TN and TT, with C row-major.
    pub const ALL: [Self; 4] = [
        Self { a: Layout::ROWS, b: Layout::ROWS, c: Layout::ROWS },
        Self { a: Layout::ROWS, b: Layout::COLUMNS, c: Layout::ROWS },
        Self { a: Layout::COLUMNS, b: Layout::ROWS, c: Layout::ROWS },
        Self { a: Layout::COLUMNS, b: Layout::COLUMNS, c: Layout::ROWS },
    ];

    /// The same with leading dimensions such as tensor maps and vectors allow: multiples of four elements, larger than the extents.
    pub fn aligned(self, Sizes { m, n, k }: Sizes) -> Self {
        let aligned = |layout: Layout, rows: usize, cols: usize| {
            let [_, length] = layout.order.lines(rows, cols);
            layout.padded(length.next_multiple_of(4) - length + 4)
        };
        Self { a: aligned(self.a, m, k), b: aligned(self.b, k, n), c: self.c }
    }

    /// The same with leading dimensions larger than the extents, by different numbers.
    pub const fn padded(self) -> Self {
        Self { a: self.a.padded(3), b: self.b.padded(5), c: self.c.padded(7) }
    }

    /// The same with matrices that begin at no multiple of four elements.
    pub const fn moved(self) -> Self {
        Self { a: self.a.moved(1), b: self.b.moved(2), c: self.c.moved(3) }
    }

    /// The same with A and B that have gaps between all elements.
    pub const fn spread(self) -> Self {
        Self { a: self.a.spread(2), b: self.b.spread(3), c: self.c }
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
    pub fn new(shape: Sizes, layouts: Layouts, seed: u64) -> Self {
        let Sizes { m, n, k } = shape;
        let a = Operand::random(m, k, layouts.a, seed);
        let b = Operand::random(k, n, layouts.b, seed.wrapping_add(1));
        let c = Operand::random(m, n, layouts.c, seed.wrapping_add(2));
        Self { alpha: 1.0, a, b, beta: 0.0, c }
    }

    /// The same with other factors.
    pub fn scaled(self, alpha: f32, beta: f32) -> Self {
        Self { alpha, beta, ..self }
    }

    /// The same with a row of subnormal numbers in A, a column of them in B, and a small element of B. All other numbers are so large that no
    /// result is subnormal.
    pub fn with_tiny_elements(mut self) -> Self {
        let power = |exponent: i32| 2f32.powi(exponent);
        let (tiny_row, tiny_col) = (self.a.rows() / 2, self.b.cols() * 2 / 3);
        // What the two have in common would be below all numbers, so every other term is zero.
        let factor = |is_tiny: bool, l: usize, of_tiny: usize| match (is_tiny, l % 2 == of_tiny) {
            (false, _) => power(50),
            (true, true) => power(-128),
            (true, false) => 0.0,
        };
        for (row, l) in self.a.indices() {
            self.a.set(row, l, self.a.at(row, l) * factor(row == tiny_row, l, 0));
        }
        for (l, col) in self.b.indices() {
            self.b.set(l, col, self.b.at(l, col) * factor(col == tiny_col, l, 1));
        }
        // A term that the row does not have.
        self.b.set(((self.b.rows() / 2) | 1).min(self.b.rows() - 1), 0, power(-128));
        self
    }

    /// The same with one row of A, or one column of B, of zeros but for a subnormal number. It meets such large numbers that no
    /// result is subnormal, and nobody who looks at other terms finds it.
    pub fn with_rare_tiny_elements(mut self, in_a: bool) -> Self {
        let power = |exponent: i32| 2f32.powi(exponent);
        for operand in [&mut self.a, &mut self.b] {
            for (row, col) in operand.indices() {
                operand.set(row, col, operand.at(row, col) * power(50));
            }
        }
        let (row, col, terms) = (self.a.rows() / 4, self.b.cols() / 2, self.a.cols());
        for l in 0..terms {
            // Not powers of two, which would not have to be split.
            let value = if l == terms / 3 { 1.37 * power(-128) } else { 0.0 };
            if in_a { self.a.set(row, l, value) } else { self.b.set(l, col, value) }
        }
        self
    }

    /// The same with single elements that are too small beside their neighbours for a kernel of scaled operands: one in each 64 rows of A and each 64
    /// columns of B, the first ones among them. Some elements of C have no other terms than those of such elements, and one has those of two that meet.
    pub fn with_single_tiny_elements(mut self) -> Self {
        let (rows, terms, cols) = (self.a.rows(), self.a.cols(), self.b.cols());
        // Beside each is a zero, so that a line of the other operand which has numbers at these two places alone meets nothing else.
        let only_there = |l: usize, there: usize| match l {
            l if l == there => 3.0,
            l if l == there + 1 => 5.0,
            _ => 0.0,
        };
        for (i, row) in (0..rows).step_by(71).enumerate() {
            let there = (3 + 67 * i) % (terms - 1);
            self.a.set(row, there, (1.0 + i as f32 / 3.0) * 1e-12);
            self.a.set(row, there + 1, 0.0);
            (0..terms).for_each(|l| self.b.set(l, 7 + i, only_there(l, there)));
        }
        for (i, col) in (0..cols).step_by(71).enumerate() {
            let there = (5 + 71 * i) % (terms - 1);
            self.b.set(there, col, (1.0 + i as f32 / 3.0) * -1e-12);
            self.b.set(there + 1, col, 0.0);
            (0..terms).for_each(|l| self.a.set(50 + i, l, only_there(l, there)));
        }
        let (row, col, there) = (rows - 2, cols - 3, terms / 2);
        for l in 0..terms {
            self.a.set(row, l, if l == there { 1e-12 } else { f32::from(u8::from(l == there + 1)) });
            self.b.set(l, col, if l == there { 3e-12 } else { f32::from(u8::from(l == there + 2)) });
        }
        self
    }

    /// The same with rows of A and columns of B that differ by powers of two, and one element in each that is larger than the others.
    pub fn graded(mut self) -> Self {
        let grade = |line: usize| 2f32.powi((line % 5) as i32 - 2);
        for (operand, are_rows) in [(&mut self.a, true), (&mut self.b, false)] {
            let (rows, cols) = (operand.rows(), operand.cols());
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let (line, term, terms) = if are_rows { (row, col, cols) } else { (col, row, rows) };
                let peak = if term == 7 * line % terms { 256.0 } else { 1.0 };
                operand.set(row, col, operand.at(row, col) * grade(line) * peak);
            }
        }
        self
    }

    /// The same with a B whose columns have one number other than zero at most, a power of two; or with such rows of A. The numbers of the other
    /// operand are such that two parts of 11 bits do not keep them.
    pub fn selecting(mut self, in_a: bool) -> Self {
        let selected = if in_a { &mut self.b } else { &mut self.a };
        let (rows, cols) = (selected.rows(), selected.cols());
        (0..rows)
            .flat_map(|row| (0..cols).map(move |col| (row, col)))
            .for_each(|(row, col)| selected.set(row, col, of_24_bits(selected.at(row, col))));
        let operand = if in_a { &mut self.a } else { &mut self.b };
        let (rows, cols) = (operand.rows(), operand.cols());
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            let (line, term, terms) = if in_a { (row, col, cols) } else { (col, row, rows) };
            let power = 2f32.powi((line % 9) as i32 - 4) * if line % 2 == 0 { 1.0 } else { -1.0 };
            // Not the first term of the first line, so that whoever looks at the next one of each finds something else.
            operand.set(row, col, if term == (11 * line + 3) % terms && line % 13 != 5 { power } else { 0.0 });
        }
        self
    }

    /// The same with one number in A, a power of two, and one in B which that selects: zeros otherwise. What a block finds of its operands and
    /// sums, one warp alone finds.
    pub fn selecting_one(mut self, [row, term, col]: [usize; 3]) -> Self {
        let selected = of_24_bits(self.b.at(term, col));
        for operand in [&mut self.a, &mut self.b] {
            let (rows, cols) = (operand.rows(), operand.cols());
            (0..rows)
                .flat_map(|row| (0..cols).map(move |col| (row, col)))
                .for_each(|(row, col)| operand.set(row, col, 0.0));
        }
        self.a.set(row, term, -2.0);
        self.b.set(term, col, selected);
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

/// A number near another one whose two parts of 11 bits lose its last bit: random numbers have fewer bits.
fn of_24_bits(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0x1FFF | 0x801)
}
