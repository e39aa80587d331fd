//! The products that are run by name, and the memory that a product needs.

use tilewright::kernels::Family;
use tilewright::plan::{Description, Placement};
use tilewright::{Bytes, Order, Orders, Sizes};

use crate::Error;

/// A product with a name.
#[derive(Debug)]
pub struct Problem {
    /// The name, as `--problem` takes it.
    pub name: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// The sizes on a GPU.
    pub full: Sizes,
    /// The sizes on the CPU executor, which is slower by some orders of magnitude.
    pub reduced: Sizes,
    /// The orders of A and B.
    pub orders: Orders,
    /// The kernels that run it unless others are asked for.
    pub family: Family,
}

/// All problems.
pub static ALL: [Problem; 4] = [
    Problem {
        name: "matvec",
        formula: "A·x",
        full: Sizes { m: 2048, n: 1, k: 1_048_576 },
        reduced: Sizes { m: 256, n: 1, k: 65_536 },
        orders: Orders::NN,
        family: Family::Gemv,
    },
    Problem {
        name: "large-k",
        formula: "A·B",
        full: Sizes { m: 256, n: 256, k: 524_288 },
        reduced: Sizes { m: 64, n: 64, k: 8192 },
        orders: Orders::NN,
        family: Family::Gemm,
    },
    Problem {
        name: "at-b",
        formula: "Aᵀ·B",
        full: Sizes { m: 2048, n: 4096, k: 8192 },
        reduced: Sizes { m: 128, n: 512, k: 512 },
        orders: Orders::TN,
        family: Family::Gemm,
    },
    Problem {
        name: "a-bt",
        formula: "A·Bᵀ",
        full: Sizes { m: 2048, n: 4096, k: 8192 },
        reduced: Sizes { m: 128, n: 512, k: 512 },
        orders: Orders::NT,
        family: Family::Gemm,
    },
];

/// The problem of this name.
///
/// # Errors
/// [`UnknownName`](tilewright::Error::UnknownName), with the name that is most like it.
pub fn find(name: &str) -> Result<&'static Problem, Error> {
    let known = || ALL.iter().map(|problem| problem.name).collect();
    ALL.iter().find(|problem| problem.name == name).ok_or_else(|| Error::unknown_name("problem", name, known()))
}

/// What a user changes about a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "named after what they override")]
pub struct Overrides {
    pub m: Option<usize>,
    pub n: Option<usize>,
    pub k: Option<usize>,
    /// The order of A.
    pub a: Option<Order>,
    /// The order of B.
    pub b: Option<Order>,
    /// The leading dimension of the stored A.
    pub lda: Option<usize>,
    /// The leading dimension of the stored B.
    pub ldb: Option<usize>,
    /// The leading dimension of C.
    pub ldc: Option<usize>,
    /// The number of products, 1 if not given.
    pub batch: Option<usize>,
    /// 1 if not given. It has to be finite.
    pub alpha: Option<f32>,
    /// 0 if not given. It has to be finite.
    pub beta: Option<f32>,
}

impl Problem {
    /// The full or the reduced sizes, with what the user has changed.
    pub fn sizes(&self, reduced: bool, overrides: &Overrides) -> Sizes {
        let Sizes { m, n, k } = if reduced { self.reduced } else { self.full };
        Sizes { m: overrides.m.unwrap_or(m), n: overrides.n.unwrap_or(n), k: overrides.k.unwrap_or(k) }
    }

    /// The product to compute: at full or at reduced sizes, with what the user has changed.
    ///
    /// # Errors
    /// [`ExtentTooLarge`](tilewright::Error::ExtentTooLarge), [`Error::LeadingDimension`], [`Error::SizeOverflow`]; [`Error::Usage`] for a factor that
    /// is not finite, whose results could not be checked.
    pub fn product(&self, reduced: bool, overrides: &Overrides) -> Result<Product, Error> {
        let Sizes { m, n, k } = self.sizes(reduced, overrides);
        let batch = overrides.batch.unwrap_or(1);
        for (what, extent) in [("m", m), ("n", n), ("k", k), ("batch", batch)] {
            if extent > i32::MAX as usize {
                return Err(tilewright::Error::ExtentTooLarge { what, extent }.into());
            }
        }
        let (alpha, beta) = (overrides.alpha.unwrap_or(1.0), overrides.beta.unwrap_or(0.0));
        for (name, factor) in [("alpha", alpha), ("beta", beta)] {
            if !factor.is_finite() {
                return Err(Error::Usage(format!(
                    "{name} is {factor} in fp32: choose a finite number, from {:e} to {:e}",
                    f32::MIN,
                    f32::MAX
                )));
            }
        }
        let orders = Orders { a: overrides.a.unwrap_or(self.orders.a), b: overrides.b.unwrap_or(self.orders.b) };
        Ok(Product {
            sizes: Sizes { m, n, k },
            batch,
            a: Stored::new("A", orders.a, [m, k], overrides.lda, batch)?,
            b: Stored::new("B", orders.b, [k, n], overrides.ldb, batch)?,
            c: Stored::new("C", Order::RowMajor, [m, n], overrides.ldc, batch)?,
            alpha,
            beta,
        })
    }
}

/// How the matrices of a batch lie in memory: in lines, which are rows or columns, one matrix after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whether the lines are rows or columns.
    pub order: Order,
    /// The number of lines.
    pub lines: usize,
    /// The elements of a line.
    pub length: usize,
    /// The elements from one line to the next.
    pub leading_dimension: usize,
}

impl Stored {
    fn new(
        matrix: &'static str,
        order: Order,
        [rows, cols]: [usize; 2],
        leading_dimension: Option<usize>,
        batch: usize,
    ) -> Result<Self, Error> {
        let [lines, length] = order.lines(rows, cols);
        let leading_dimension = leading_dimension.unwrap_or(length);
        if leading_dimension < length {
            return Err(Error::LeadingDimension { matrix, leading_dimension, cols: length });
        }
        // Views of memory, and copies, count in bytes and in isize.
        let bytes = lines.checked_mul(leading_dimension).and_then(|elements| elements.checked_mul(size_of::<f32>()));
        match bytes.and_then(|bytes| bytes.checked_mul(batch.max(1))) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(Self { order, lines, length, leading_dimension }),
            _ => Err(Error::SizeOverflow { matrix, rows: lines, leading_dimension }),
        }
    }

    /// The number of elements of one matrix in memory, those between the lines included.
    pub fn elements(&self) -> usize {
        self.lines * self.leading_dimension
    }

    /// The strides of rows and of columns.
    pub(crate) fn strides(&self) -> [usize; 2] {
        self.order.strides(self.leading_dimension, 1)
    }

    fn bytes(&self) -> u128 {
        self.elements() as u128 * size_of::<f32>() as u128
    }
}

/// A product to compute, `C = α·A·B + β·C`. Its sizes have been checked: they
/// are what kernels count, and every matrix fits into an address range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// The extents.
    pub sizes: Sizes,
    /// The number of products, each of operands of its own.
    pub batch: usize,
    /// A as it is stored.
    pub a: Stored,
    /// B as it is stored.
    pub b: Stored,
    /// C as it is stored.
    pub c: Stored,
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of the old C.
    pub beta: f32,
}

impl Product {
    /// What the planner of products knows of it, in memory of its own.
    ///
    /// # Errors
    /// Those of [`Description::new`].
    pub fn description(&self) -> Result<Description, Error> {
        let [a, b, c] = [self.a, self.b, self.c].map(|stored| {
            let [row_stride, col_stride] = stored.strides();
            Placement { row_stride, col_stride, batch_stride: stored.elements(), alignment: 256 }
        });
        let one = Description::new(self.sizes, self.batch, a, b, c)?;
        Ok(one.with_factors(self.alpha, self.beta))
    }

    /// The orders of A and B.
    pub fn orders(&self) -> Orders {
        Orders { a: self.a.order, b: self.b.order }
    }

    /// The additions and multiplications.
    pub fn operations(&self) -> f64 {
        let Sizes { m, n, k } = self.sizes;
        2.0 * m as f64 * n as f64 * k as f64 * self.batch as f64
    }

    /// The bytes of the operands and the result: what has to move between memory and processor at the least.
    pub fn traffic(&self) -> f64 {
        let Sizes { m, n, k } = self.sizes;
        let reads_c = if self.beta == 0.0 { 0.0 } else { 1.0 };
        let one = m as f64 * k as f64 + k as f64 * n as f64 + (1.0 + reads_c) * m as f64 * n as f64;
        4.0 * one * self.batch as f64
    }

    /// The memory that A, B and C take on a device.
    pub fn device_bytes(&self) -> Bytes {
        Bytes((self.a.bytes() + self.b.bytes() + self.c.bytes()) * self.batch as u128)
    }

    /// The memory that running the product takes on the host: the inputs, the result before and after, the reference and
    /// its bounds in double precision, and what the CPU executor's device would hold.
    pub fn host_bytes(&self, on_cpu: bool) -> Bytes {
        let reference = 2 * size_of::<f64>() as u128 * (self.sizes.m as u128 * self.sizes.n as u128);
        let device = if on_cpu { self.device_bytes().0 } else { 0 };
        Bytes((self.a.bytes() + self.b.bytes() + 2 * self.c.bytes() + reference) * self.batch as u128 + device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(overrides: Overrides) -> String {
        ALL[2].product(false, &overrides).unwrap_err().to_string()
    }

    #[test]
    fn the_four_problems_are_those_of_the_documentation() {
        let product = find("matvec").unwrap().product(false, &Overrides::default()).unwrap();
        assert_eq!(product.a.elements(), 1 << 31);
        assert_eq!(product.sizes.n, 1);
        let product = find("at-b").unwrap().product(false, &Overrides::default()).unwrap();
        assert_eq!((product.a.lines, product.a.length, product.b.lines, product.b.length), (8192, 2048, 8192, 4096));
        assert_eq!((product.orders(), product.c.lines, product.c.length), (Orders::TN, 2048, 4096));
        let product = find("a-bt").unwrap().product(false, &Overrides::default()).unwrap();
        assert_eq!((product.a.lines, product.a.length, product.b.lines, product.b.length), (2048, 8192, 4096, 8192));
        assert_eq!(product.orders(), Orders::NT);
        let product = find("large-k").unwrap().product(false, &Overrides::default()).unwrap();
        assert_eq!((product.operations(), product.orders()), (2.0 * 256.0 * 256.0 * 524_288.0, Orders::NN));
        assert!(find("large-m").unwrap_err().to_string().contains("did you mean `large-k`?"));
    }

    #[test]
    fn sizes_are_checked_before_anything_is_allocated() {
        let most = i32::MAX as usize;
        let message = refusal(Overrides { m: Some(most + 1), ..Overrides::default() });
        assert!(message.contains("m is 2147483648"), "{message}");
        // 2^31 x 2^31 floats are 2^64 bytes.
        let message = refusal(Overrides { m: Some(most), n: Some(1), k: Some(most), ..Overrides::default() });
        assert!(message.contains("more bytes than can be addressed"), "{message}");
        let message = refusal(Overrides { lda: Some(usize::MAX), ..Overrides::default() });
        assert!(message.contains('A') && message.contains("more bytes"), "{message}");
        let message = refusal(Overrides { ldb: Some(4095), ..Overrides::default() });
        assert!(message.contains("of B is 4095") && message.contains("4096"), "{message}");
        // Nothing at all is a size like any other.
        let nothing = Overrides { m: Some(0), n: Some(0), k: Some(0), ..Overrides::default() };
        assert_eq!(ALL[0].product(false, &nothing).unwrap().device_bytes(), Bytes(0));
    }

    #[test]
    fn factors_that_are_not_finite_are_refused() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let message = refusal(Overrides { alpha: Some(wrong), ..Overrides::default() });
            assert!(message.starts_with(&format!("alpha is {wrong} in fp32")), "{message}");
            let message = refusal(Overrides { beta: Some(wrong), ..Overrides::default() });
            assert!(message.starts_with(&format!("beta is {wrong} in fp32")), "{message}");
        }
        let most = Overrides { alpha: Some(f32::MAX), beta: Some(f32::MIN), ..Overrides::default() };
        assert!(ALL[2].product(false, &most).is_ok());
    }

    #[test]
    fn the_memory_counts_what_is_held() {
        let overrides = Overrides { m: Some(3), n: Some(4), k: Some(5), lda: Some(10), ..Overrides::default() };
        let product = find("large-k").unwrap().product(false, &overrides).unwrap();
        assert_eq!(product.device_bytes(), Bytes(4 * (3 * 10 + 5 * 4 + 3 * 4)));
        assert_eq!(product.host_bytes(false), Bytes(4 * (30 + 20 + 2 * 12) + 16 * 12));
        assert_eq!(product.host_bytes(true).0 - product.host_bytes(false).0, product.device_bytes().0);
    }
}
