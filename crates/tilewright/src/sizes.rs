//! The extents of a product.

/// The extents of a product: an m×k matrix times a k×n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The rows of op(A) and of C.
    pub m: usize,
    /// The columns of op(B) and of C.
    pub n: usize,
    /// The columns of op(A) and the rows of op(B).
    pub k: usize,
}
