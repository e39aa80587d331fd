//! A shape: the extents of a product, how many of them there are, and where each matrix lies.

use serde::{Deserialize, Serialize};

use crate::Error;
use tilewright::plan::{Description, Placement};
use tilewright::{Order, Orders, Sizes};

/// A matrix in memory, or the matrices of a batch. All distances are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// The rows.
    pub rows: usize,
    /// The columns.
    pub cols: usize,
    /// From an address that is a multiple of 256 bytes to the first element.
    pub offset: usize,
    /// From one row to the next.
    pub row_stride: usize,
    /// From one column to the next.
    pub col_stride: usize,
    /// From one matrix to the next; 0 if all products share one.
    pub batch_stride: usize,
}

impl Operand {
    /// A matrix without gaps, each of a batch right after the one before.
    pub fn dense(order: Order, rows: usize, cols: usize) -> Self {
        Self::with_gaps(order, rows, cols, 0)
    }

    /// The same with `gap` unused elements between stored rows, or between stored columns.
    pub fn with_gaps(order: Order, rows: usize, cols: usize, gap: usize) -> Self {
        let [lines, length] = order.lines(rows, cols);
        let [row_stride, col_stride] = order.strides(length + gap, 1);
        Self { rows, cols, offset: 0, row_stride, col_stride, batch_stride: lines * (length + gap) }
    }

    /// The same, `offset` elements further on.
    pub fn moved_by(self, offset: usize) -> Self {
        Self { offset: self.offset + offset, ..self }
    }

    /// The same with only every `step`-th element of its memory used.
    pub fn spread(self, step: usize) -> Self {
        let [row_stride, col_stride, batch_stride] =
            [self.row_stride, self.col_stride, self.batch_stride].map(|stride| stride * step);
        Self { row_stride, col_stride, batch_stride, ..self }
    }

    /// One matrix for all products.
    pub fn shared(self) -> Self {
        Self { batch_stride: 0, ..self }
    }

    /// Row-major or column-major; none if the neighbours in a row, and those in a column, are apart.
    pub fn order(&self) -> Option<Order> {
        match (self.row_stride, self.col_stride) {
            (_, 1) => Some(Order::RowMajor),
            (1, _) => Some(Order::ColumnMajor),
            _ => None,
        }
    }

    /// From one stored row, or stored column, to the next.
    pub fn leading_dimension(&self) -> usize {
        if self.order() == Some(Order::ColumnMajor) { self.col_stride } else { self.row_stride }
    }

    /// Whether a batch of these has neither gaps nor an offset, nor elements that stand for several.
    pub fn is_dense(&self, batch: usize) -> bool {
        let batch_stride = if batch == 1 { self.batch_stride } else { self.rows * self.cols };
        Order::ALL.into_iter().any(|order| Self { batch_stride, ..Self::dense(order, self.rows, self.cols) } == *self)
    }

    /// The elements from the aligned address to the end of the last matrix.
    pub fn span(&self, batch: usize) -> u64 {
        let along = |extent: usize, stride: usize| (extent as u64 - 1) * stride as u64;
        let last = along(self.rows, self.row_stride) + along(self.cols, self.col_stride);
        self.offset as u64 + last + along(batch, self.batch_stride) + 1
    }

    /// The elements of a batch that are different ones: a stride of 0 repeats one.
    pub fn elements(&self, batch: usize) -> u64 {
        let along = |extent: usize, stride: usize| if stride == 0 { 1 } else { extent as u64 };
        along(self.rows, self.row_stride) * along(self.cols, self.col_stride) * along(batch, self.batch_stride)
    }

    /// How it lies, in a letter with what is special about it: `N` for row-major, `T` for column-major, `S` for strides along
    /// rows and columns; then `+1` for an offset, `/520` for rows that are further apart than long, `*` for a stride of 0.
    pub fn layout(&self, batch: usize) -> String {
        let mut text = match self.order() {
            Some(Order::RowMajor) => "N".to_owned(),
            Some(Order::ColumnMajor) => "T".to_owned(),
            None => "S".to_owned(),
        };
        if self.offset > 0 {
            text += &format!("+{}", self.offset);
        }
        match self.order() {
            Some(order) => {
                let [lines, length] = order.lines(self.rows, self.cols);
                if lines > 1 && self.leading_dimension() > length {
                    text += &format!("/{}", self.leading_dimension());
                }
            }
            None => text += &format!("({},{})", self.row_stride, self.col_stride),
        }
        if self.elements(batch) < self.elements_named(batch) {
            text += "*";
        }
        text
    }

    /// The elements that products name, however many of them are the same.
    fn elements_named(&self, batch: usize) -> u64 {
        self.rows as u64 * self.cols as u64 * batch as u64
    }

    /// The same for the planner of products.
    fn placement(&self) -> Placement {
        let Self { row_stride, col_stride, batch_stride, .. } = *self;
        // Allocations begin at multiples of 256 bytes, and offsets move by 4.
        let alignment = 1 << (256 | (4 * self.offset)).trailing_zeros();
        Placement { row_stride, col_stride, batch_stride, alignment }
    }
}

/// The products of a batch, C = A·B each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// The rows of A and C.
    pub m: usize,
    /// The columns of B and C.
    pub n: usize,
    /// The columns of A and rows of B.
    pub k: usize,
    /// The number of products.
    pub batch: usize,
    /// The left operand.
    pub a: Operand,
    /// The right operand.
    pub b: Operand,
    /// The result.
    pub c: Operand,
}

impl Shape {
    /// Products of matrices without gaps, with a row-major result.
    pub fn dense(batch: usize, [m, n, k]: [usize; 3], orders: Orders) -> Self {
        let (a, b) = (Operand::dense(orders.a, m, k), Operand::dense(orders.b, k, n));
        Self { m, n, k, batch, a, b, c: Operand::dense(Order::RowMajor, m, n) }
    }

    /// The same with a column-major result.
    pub fn into_columns(self) -> Self {
        Self { c: Operand::dense(Order::ColumnMajor, self.m, self.n), ..self }
    }

    /// The extents.
    pub fn extents(&self) -> [usize; 3] {
        [self.m, self.n, self.k]
    }

    /// A, B and C.
    pub fn operands(&self) -> [Operand; 3] {
        [self.a, self.b, self.c]
    }

    /// The product as the planner takes it.
    ///
    /// # Errors
    /// As for [`Description::new`].
    pub fn description(&self) -> Result<Description, Error> {
        let [a, b, c] = self.operands().map(|operand| operand.placement());
        let sizes = Sizes { m: self.m, n: self.n, k: self.k };
        Ok(Description::new(sizes, self.batch, a, b, c)?.with_factors(1.0, 0.0))
    }

    /// The bytes of memory that A, B and C lie in, gaps included.
    pub fn bytes(&self) -> u64 {
        4 * self.operands().iter().map(|operand| operand.span(self.batch)).sum::<u64>()
    }

    /// The bytes that have to be read, and those that have to be written.
    pub fn traffic(&self) -> [f64; 2] {
        let bytes = |operand: Operand| 4.0 * operand.elements(self.batch) as f64;
        [bytes(self.a) + bytes(self.b), bytes(self.c)]
    }

    /// The multiplications and additions.
    pub fn operations(&self) -> f64 {
        2.0 * self.extents().map(|extent| extent as f64).iter().product::<f64>() * self.batch as f64
    }

    /// Whether no operand has gaps, an offset or a stride of 0.
    pub fn is_dense(&self) -> bool {
        self.operands().iter().all(|operand| operand.is_dense(self.batch))
    }

    /// How A, B and C lie: see [`Operand::layout`].
    pub fn layout(&self) -> String {
        let of = |operand: Operand| operand.layout(self.batch);
        let [a, b, c] = self.operands().map(of);
        if [&a, &b, &c].iter().all(|letter| letter.len() == 1) { a + &b + &c } else { format!("{a} {b} {c}") }
    }

    /// The extents in one word: `16 of 512x512x64`, m by n by k.
    pub fn extents_text(&self) -> String {
        let [m, n, k] = self.extents();
        if self.batch == 1 { format!("{m}x{n}x{k}") } else { format!("{} of {m}x{n}x{k}", self.batch) }
    }

    /// What tells it from all others of its class.
    pub fn id(&self) -> String {
        format!("{} {}", self.extents_text(), self.layout())
    }
}
