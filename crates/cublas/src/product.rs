//! Products as cuBLAS is told of them, column by column, turned into matrices with a stride of rows and one of columns.
//!
//! ```text
//!  C = op(A)·op(B), by columns     op(A)[i, j] at A[i + j·lda], or A[j + i·lda] where it is transposed
//!  Cᵀ = op(B)ᵀ·op(A)ᵀ, by rows     the same memory with strides exchanged: what most kernels are made for
//! ```

use std::ffi::c_int;

use tilewright::Activation;

use crate::abi;
use crate::why::Why;

/// A matrix, or a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) address: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// From one row to the next, and from one column to the next, in elements.
    pub(crate) strides: [usize; 2],
    /// From one matrix to the next.
    pub(crate) batch_stride: usize,
}

/// What is done to `α·A·B + β·C` before it is stored: a column is added to all of its columns, and then an activation is applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finish {
    pub(crate) bias: Option<Operand>,
    pub(crate) activation: Option<Activation>,
}

/// `C = α·A·B + β·C` for each of a batch, with C row by row where it can be seen so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) count: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) c: Operand,
    pub(crate) finish: Finish,
}

/// A matrix as cuBLAS has it: column by column.
pub(crate) struct Columns<T> {
    pub(crate) pointer: *const T,
    pub(crate) leading: i64,
    pub(crate) batch_stride: i64,
}

/// A vector as cuBLAS has it.
pub(crate) struct Vector {
    pub(crate) pointer: *const f32,
    pub(crate) increment: i64,
}

/// What cuBLAS is to answer, because it refuses it or has nothing to do.
fn for_cublas(what: &'static str) -> Why {
    Why::with("its arguments, which cuBLAS answers", what)
}

/// Whether an operation transposes a real matrix.
pub(crate) fn transposes(operation: c_int) -> Result<bool, Why> {
    match operation {
        abi::OP_NONE => Ok(false),
        abi::OP_TRANSPOSE | abi::OP_CONJUGATE_TRANSPOSE => Ok(true),
        _ => Err(for_cublas("an operation that is none of N, T, C")),
    }
}

/// An extent that is neither 0 nor beyond what kernels count.
fn extent(extent: i64) -> Result<usize, Why> {
    match extent {
        1..=0x7FFF_FFFF => Ok(extent as usize),
        _ => Err(for_cublas("an extent or a batch of 0 or less, or beyond 2^31 - 1")),
    }
}

impl Operand {
    /// A matrix of `rows` and `cols` as it lies in memory, column by column.
    pub(crate) fn of_columns<T>(matrix: &Columns<T>, rows: usize, cols: usize, count: usize) -> Result<Self, Why> {
        let Columns { pointer, leading, batch_stride } = *matrix;
        let address = pointer.addr();
        if address == 0 || !address.is_multiple_of(align_of::<f32>()) {
            return Err(for_cublas("a pointer that is null or not aligned"));
        }
        let leading = usize::try_from(leading).ok().filter(|&leading| leading >= rows);
        let leading = leading.ok_or_else(|| for_cublas("a leading dimension that is too small"))?;
        let batch_stride = if count == 1 { Ok(0) } else { usize::try_from(batch_stride) };
        let batch_stride = batch_stride.map_err(|_| for_cublas("a negative stride of a batch"))?;
        Ok(Self { address, rows, cols, strides: [1, leading], batch_stride })
    }

    /// The transpose, in the same memory.
    pub(crate) fn transposed(self) -> Self {
        let [row, col] = self.strides;
        Self { rows: self.cols, cols: self.rows, strides: [col, row], ..self }
    }

    fn transposed_if(self, transposes: bool) -> Self {
        if transposes { self.transposed() } else { self }
    }

    /// The elements from the first to the last of `count` matrices; none if they are more than can be addressed.
    pub(crate) fn span(&self, count: usize) -> Option<usize> {
        let [row, col] = self.strides;
        let along = |extent: usize, stride: usize| extent.checked_sub(1)?.checked_mul(stride);
        let last = along(self.rows, row)?
            .checked_add(along(self.cols, col)?)?
            .checked_add(along(count, self.batch_stride)?)?;
        last.checked_add(1).filter(|&len| len <= isize::MAX as usize / size_of::<f32>())
    }
}

/// The arguments of a product of matrices.
pub(crate) struct Gemm<T> {
    pub(crate) operations: [c_int; 2],
    pub(crate) m: i64,
    pub(crate) n: i64,
    pub(crate) k: i64,
    pub(crate) alpha: f32,
    pub(crate) a: Columns<T>,
    pub(crate) b: Columns<T>,
    pub(crate) beta: f32,
    pub(crate) c: Columns<T>,
    pub(crate) count: i64,
}

impl<T> Gemm<T> {
    /// The product, unless cuBLAS is to answer.
    pub(crate) fn product(&self) -> Result<Product, Why> {
        let [m, n, k] = [extent(self.m)?, extent(self.n)?, extent(self.k)?];
        let count = extent(self.count)?;
        let operand = |operation: c_int, matrix: &Columns<T>, rows: usize, cols: usize| {
            let transposes = transposes(operation)?;
            let (rows, cols) = if transposes { (cols, rows) } else { (rows, cols) };
            Ok::<_, Why>(Operand::of_columns(matrix, rows, cols, count)?.transposed_if(transposes))
        };
        let [a, b] = self.operations;
        let (a, b) = (operand(a, &self.a, m, k)?, operand(b, &self.b, k, n)?);
        let c = Operand::of_columns(&self.c, m, n, count)?;
        Product::new(count, self.alpha, a, b, self.beta, c, Finish::default())
    }
}

/// The arguments of a product of a matrix, of m and n as it lies in memory, and a vector.
pub(crate) struct Gemv {
    pub(crate) operation: c_int,
    pub(crate) m: i64,
    pub(crate) n: i64,
    pub(crate) alpha: f32,
    pub(crate) a: Columns<f32>,
    pub(crate) x: Vector,
    pub(crate) beta: f32,
    pub(crate) y: Vector,
}

impl Gemv {
    /// The product, unless cuBLAS is to answer.
    pub(crate) fn product(&self) -> Result<Product, Why> {
        let (m, n) = (extent(self.m)?, extent(self.n)?);
        let a = Operand::of_columns(&self.a, m, n, 1)?.transposed_if(transposes(self.operation)?);
        let vector = |vector: &Vector, len: usize| {
            // A column of as many elements: its stride is that of rows.
            if vector.increment < 1 {
                return Err(for_cublas("an increment of 0 or less"));
            }
            let columns = Columns { pointer: vector.pointer, leading: vector.increment, batch_stride: 0 };
            Ok(Operand::of_columns(&columns, 1, len, 1)?.transposed())
        };
        let (x, y) = (vector(&self.x, a.cols)?, vector(&self.y, a.rows)?);
        Product::new(1, self.alpha, a, x, self.beta, y, Finish::default())
    }
}

impl Product {
    /// A product of these matrices, whose extents fit together.
    pub(crate) fn new(
        count: usize,
        alpha: f32,
        a: Operand,
        b: Operand,
        beta: f32,
        c: Operand,
        finish: Finish,
    ) -> Result<Self, Why> {
        if alpha == 0.0 {
            return Err(for_cublas("alpha is 0, so nothing is multiplied"));
        }
        let product = Self { count, alpha, beta, a, b, c, finish };
        let lies_by_columns = c.strides[0] == 1 && c.strides[1] != 1;
        Ok(if lies_by_columns { product.transposed() } else { product })
    }

    /// The product of the transposes: the same numbers in the same places.
    fn transposed(self) -> Self {
        let finish = Finish { bias: self.finish.bias.map(Operand::transposed), ..self.finish };
        Self { a: self.b.transposed(), b: self.a.transposed(), c: self.c.transposed(), finish, ..self }
    }
}
