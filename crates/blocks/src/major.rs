//! Which index of an operand runs fastest in memory, as a type: K-major or MN-major.
//!
//! ```text
//!            A, m×k          B, k×n
//! K-major    row-major       column-major        neighbours in memory differ in k
//! MN-major   column-major    row-major           neighbours in memory are rows of A, or columns of B
//! ```

/// The order of an operand in memory.
pub trait Major {
    /// Whether it is K-major.
    const K: bool;
}

/// K-major: A row-major, B column-major.
pub struct KMajor;

/// MN-major: A column-major, B row-major.
pub struct MnMajor;

impl Major for KMajor {
    const K: bool = true;
}

impl Major for MnMajor {
    const K: bool = false;
}
