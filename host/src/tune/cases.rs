//! What is measured: shapes in which products come, in all layouts and precisions.

use crate::Error;
use tilewright::plan::{Description, Placement};
use tilewright::{Order, Orders, Precision, Sizes};

/// A product to measure, in one layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The extents.
    pub sizes: Sizes,
    /// The number of products.
    pub batch: usize,
    /// The orders of A and B.
    pub orders: Orders,
}

/// The shapes, m×n with sums over k, and how many of each: square ones, sums that are long or short, results that are high or
/// wide, extents that are multiples of nothing, vectors, batches. Neighbours are at most a factor of four apart where it
/// matters, so that no product between them is further than a factor of two from one.
const SHAPES: [(usize, usize, usize, usize); 36] = [
    (128, 128, 128, 1),
    (256, 256, 256, 1),
    (512, 512, 512, 1),
    (1024, 1024, 1024, 1),
    (2048, 2048, 2048, 1),
    (4096, 4096, 4096, 1),
    (8192, 8192, 8192, 1),
    (2048, 4096, 8192, 1),
    (4096, 2048, 8192, 1),
    (256, 256, 8192, 1),
    (256, 256, 65_536, 1),
    (256, 256, 524_288, 1),
    (1024, 1024, 16_384, 1),
    (4096, 4096, 64, 1),
    (4096, 4096, 256, 1),
    (32_768, 32_768, 32, 1),
    (64, 4096, 4096, 1),
    (4096, 64, 4096, 1),
    (16, 4096, 4096, 1),
    (4096, 16, 4096, 1),
    (64, 16_384, 1024, 1),
    (16_384, 64, 1024, 1),
    (8205, 5921, 2949, 1),
    (2049, 4097, 1023, 1),
    (509, 509, 509, 1),
    (64, 64, 64, 256),
    (128, 128, 128, 256),
    (256, 256, 256, 64),
    (512, 512, 512, 16),
    (1024, 1, 1024, 1),
    (4096, 1, 4096, 1),
    (16_384, 1, 16_384, 1),
    (2048, 1, 65_536, 1),
    (2048, 1, 1_048_576, 1),
    (65_536, 1, 1024, 1),
    (1_048_576, 1, 256, 1),
];

/// All products that are measured. A vector has one layout.
pub fn all() -> Vec<Case> {
    let cases = SHAPES
        .into_iter()
        .flat_map(|(m, n, k, batch)| Orders::ALL.map(|orders| Case { sizes: Sizes { m, n, k }, batch, orders }));
    cases.filter(|case| case.sizes.n > 1 || case.orders.b == Order::RowMajor).collect()
}

/// The precisions that are measured: those that a plan has a choice in.
pub const PRECISIONS: [Precision; 8] = Precision::ALL;

impl Case {
    /// How the operands and the result lie: without gaps, each matrix after the one before.
    pub(crate) fn placements(&self) -> [Placement; 3] {
        let Sizes { m, n, k } = self.sizes;
        let placed = |order, rows, cols| Placement { batch_stride: rows * cols, ..Placement::dense(order, rows, cols) };
        [placed(self.orders.a, m, k), placed(self.orders.b, k, n), placed(Order::RowMajor, m, n)]
    }

    /// The product that is measured.
    ///
    /// # Errors
    /// As for [`Description::new`].
    pub fn description(&self) -> Result<Description, Error> {
        let [a, b, c] = self.placements();
        Ok(Description::new(self.sizes, self.batch, a, b, c)?.with_factors(1.0, 0.0))
    }

    /// The elements of A, of B and of C.
    pub(crate) fn elements(&self) -> [usize; 3] {
        let Sizes { m, n, k } = self.sizes;
        [m * k, k * n, m * n].map(|elements| elements * self.batch)
    }
}
