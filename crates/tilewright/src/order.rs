//! Row-major or column-major: in which order the elements of a matrix lie in memory, and those of both operands of a product.
//!
//! ```text
//!          A row-major    A column-major
//!  B row-major      NN          TN            T, as in a BLAS: the matrix is the transpose of what is stored row by row
//!  B column-major   NT          TT
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// In which order the elements of a matrix lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The elements of a row are neighbours: `N` in the name of a layout.
    RowMajor,
    /// The elements of a column are neighbours, as in a transposed matrix that is read in place: `T` in the name of a layout.
    ColumnMajor,
}

impl Order {
    /// Both.
    pub const ALL: [Self; 2] = [Self::RowMajor, Self::ColumnMajor];

    /// Column-major if the matrix is the transpose of what is stored row by row.
    pub const fn of_transposed(transposed: bool) -> Self {
        if transposed { Self::ColumnMajor } else { Self::RowMajor }
    }

    /// The order of the transpose in the same memory.
    pub const fn transposed(self) -> Self {
        match self {
            Self::RowMajor => Self::ColumnMajor,
            Self::ColumnMajor => Self::RowMajor,
        }
    }

    /// How a `rows`×`cols` matrix is stored: in how many lines, rows or columns, each of how many neighbours.
    pub const fn lines(self, rows: usize, cols: usize) -> [usize; 2] {
        match self {
            Self::RowMajor => [rows, cols],
            Self::ColumnMajor => [cols, rows],
        }
    }

    /// The strides of rows and of columns: neighbours are `step` elements apart, lines `leading_dimension`.
    pub const fn strides(self, leading_dimension: usize, step: usize) -> [usize; 2] {
        match self {
            Self::RowMajor => [leading_dimension, step],
            Self::ColumnMajor => [step, leading_dimension],
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RowMajor => "row-major",
            Self::ColumnMajor => "column-major",
        })
    }
}

/// The orders of the operands of a product, m×k and k×n: `NN`, `NT`, `TN` or `TT` in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Orders {
    pub a: Order,
    pub b: Order,
}

/// A name that is none of [`Orders`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no layout of A and B: choose NN, NT, TN or TT")]
pub struct UnknownOrders(String);

impl Orders {
    /// Both row-major.
    pub const NN: Self = Self { a: Order::RowMajor, b: Order::RowMajor };
    /// A row-major, B column-major.
    pub const NT: Self = Self { a: Order::RowMajor, b: Order::ColumnMajor };
    /// A column-major, B row-major.
    pub const TN: Self = Self { a: Order::ColumnMajor, b: Order::RowMajor };
    /// Both column-major.
    pub const TT: Self = Self { a: Order::ColumnMajor, b: Order::ColumnMajor };

    /// All, in the order of their names.
    pub const ALL: [Self; 4] = [Self::NN, Self::NT, Self::TN, Self::TT];

    /// `NN`, `NT`, `TN` or `TT`.
    pub const fn name(self) -> &'static str {
        match (self.a, self.b) {
            (Order::RowMajor, Order::RowMajor) => "NN",
            (Order::RowMajor, Order::ColumnMajor) => "NT",
            (Order::ColumnMajor, Order::RowMajor) => "TN",
            (Order::ColumnMajor, Order::ColumnMajor) => "TT",
        }
    }
}

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Orders {
    type Err = UnknownOrders;

    /// In capital or small letters.
    fn from_str(name: &str) -> Result<Self, UnknownOrders> {
        let is_this = |orders: &Self| orders.name().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(is_this).ok_or_else(|| UnknownOrders(name.to_owned()))
    }
}

impl TryFrom<String> for Orders {
    type Error = UnknownOrders;

    fn try_from(name: String) -> Result<Self, UnknownOrders> {
        name.parse()
    }
}

impl From<Orders> for &'static str {
    fn from(orders: Orders) -> Self {
        orders.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_layout() {
        for orders in Orders::ALL {
            assert_eq!(orders.name().parse::<Orders>().unwrap(), orders);
            assert_eq!(orders.name().to_lowercase().parse::<Orders>().unwrap(), orders);
            let text = serde_json::to_string(&orders).unwrap();
            assert_eq!(text, format!("\"{orders}\""));
            assert_eq!(serde_json::from_str::<Orders>(&text).unwrap(), orders);
        }
        let error = "TX".parse::<Orders>().unwrap_err().to_string();
        assert!(error.contains("TX") && error.contains("TT"), "{error}");
    }
}
