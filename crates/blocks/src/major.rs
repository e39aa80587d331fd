//! Which index of an operand runs fastest in memory, as a type: K-major or MN-major.
//!
//! ```text
//!            A, m×k          B, k×n
//! K-major    row-major       column-major        neighbours in memory differ in k
//! MN-major   column-major    row-major           neighbours in memory are rows of A, or columns of B
//! ```

/// The order of an operand in memory.
///
/// ```
/// # use blocks::major::*;
/// /// The strides of rows and columns of a packed m×k operand A.
/// fn strides_of_a<A: Major>(m: usize, k: usize) -> [usize; 2] {
///     if A::K { [k, 1] } else { [1, m] }
/// }
/// assert_eq!(strides_of_a::<KMajor>(3, 5), [5, 1]);
/// assert_eq!(strides_of_a::<MnMajor>(3, 5), [1, 3]);
/// ```
pub trait Major {
    /// Whether it is K-major.
    const K: bool;
}

/// K-major: A row-major, B column-major.
///
/// ```
/// # use blocks::major::*;
/// const { assert!(KMajor::K) } // a row-major A, a column-major B
/// ```
pub struct KMajor;

/// MN-major: A column-major, B row-major.
///
/// ```
/// # use blocks::major::*;
/// const { assert!(!MnMajor::K) } // a column-major A, a row-major B
/// ```
pub struct MnMajor;

impl Major for KMajor {
    const K: bool = true;
}

impl Major for MnMajor {
    const K: bool = false;
}
