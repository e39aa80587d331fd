//! [`Refusal`]: the reason why a kernel cannot compute a product, or is chosen for it only by its name.

use cuda_std::Excess;

use crate::accuracy::{Accuracy, rounded_up};
use crate::{Order, Precision};

/// Why a kernel cannot compute a product, or may not be chosen for it unasked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It computes in another precision than the one asked for.
    #[error("its precision is {has}, and {wanted} is asked for: choose precision {has}, or another kernel")]
    Precision {
        /// Its precision.
        has: Precision,
        /// The precision asked for.
        wanted: Precision,
    },
    /// Its errors may be larger than the one that is asked for.
    #[error("{}, and {wanted} is asked for", match has {
        Some(has) => format!("its errors may be {:.1e} of the sum of |a||b|", rounded_up(*has)),
        None => "it has no bound for the errors of elements".to_owned(),
    })]
    Accuracy {
        /// Its bound, if it has one.
        has: Option<f64>,
        /// What is asked for.
        wanted: Accuracy,
    },
    /// It is for operands that are stored otherwise.
    #[error("it needs {operand} stored {needs}, but {operand} is {has}")]
    Layout {
        /// `A` or `B`.
        operand: &'static str,
        /// What it needs.
        needs: Order,
        /// How the operand is stored, in words.
        has: String,
    },
    /// It is compiled for another architecture.
    #[error("it is compiled for {needs} only, and {device} does not run that")]
    Architecture {
        /// The architecture.
        needs: &'static str,
        /// The device.
        device: String,
    },
    /// A block of it is more than the device offers.
    #[error("{device} cannot launch it: {excess}")]
    Excess {
        /// The device.
        device: String,
        /// What is too much.
        excess: Excess,
    },
    /// The CPU executor's models of its instructions are slow.
    #[error("the CPU executor's models of its instructions are slow: there it is only taken if it is named")]
    SlowOnCpu,
    /// The PTX that the device has loaded does not have it.
    #[error("the PTX that {device} has loaded does not have it")]
    NotInPtx {
        /// The device.
        device: String,
    },
    /// A grid has not enough blocks.
    #[error("it would take {blocks} blocks, and a grid has at most 2147483647: use fewer splits, or a smaller batch")]
    TooManyBlocks {
        /// The blocks.
        blocks: u128,
    },
    /// A grid has not enough rows or layers of blocks.
    #[error(
        "it would take a grid for {m} rows and {results} results, in layers, and a grid has at most 65535 rows of blocks and as many \
         layers: use fewer splits, or a smaller batch"
    )]
    TooManyTiles {
        /// The rows of each result.
        m: usize,
        /// The results: one for each product and split.
        results: u128,
    },
    /// It has no split-K.
    #[error("it has no split-K, but {splits} splits are asked for: leave out the splits")]
    NoSplits {
        /// The splits.
        splits: u32,
    },
    /// There are more splits than k has K-blocks.
    #[error("{splits} splits are asked for, but k can be divided into {most} pieces only: ask for at most that many")]
    TooManySplits {
        /// The splits.
        splits: u32,
        /// The most that there can be.
        most: u32,
    },
    /// Sums of so many terms do not fit its accumulators.
    #[error("{splits} splits are asked for, but its sums have room for so many terms in {fewest} splits only")]
    TooFewSplits {
        /// The splits.
        splits: u32,
        /// The fewest that there have to be.
        fewest: u32,
    },
    /// There is nothing to multiply, and it prepares operands for that.
    #[error("k or α is 0, so that nothing is multiplied, and it is for products only")]
    EmptyK,
    /// It is for small k.
    #[error("it is for k of at most {most}")]
    LongK {
        /// The largest k.
        most: usize,
    },
    /// It is for few columns, or for one.
    #[error("n must be at most {most}, but n is {n}")]
    ManyColumns {
        /// The largest number of columns.
        most: usize,
        /// The columns of the product.
        n: usize,
    },
    /// It is for operands whose lines begin anywhere.
    #[error(
        "lines of A and B begin at multiples of 16 bytes: another kernel loads them as they are, and takes less time"
    )]
    Aligned,
    /// Other kernels are for vectors.
    #[error("B has one column: the kernels for products with vectors read A as fast")]
    OneColumn,
    /// It is for columns of B that are near one another.
    #[error("it is for columns of B that are at most {most} elements apart")]
    FarColumns {
        /// The largest distance.
        most: u64,
    },
    /// It stores C by a tensor map.
    #[error(
        "it stores C by a tensor map: C has to be row-major with rows of a multiple of 4 elements, and its rows and the matrices \
         of a batch have to begin at multiples of 16 bytes"
    )]
    Results,
    /// The workspace would not fit.
    #[error("it needs a workspace of {needs}, and the device has {has} of memory")]
    Workspace {
        /// The size of the workspace.
        needs: crate::Bytes,
        /// The memory of the device.
        has: crate::Bytes,
    },
    /// It takes a launch for each product of a batch. It can be had by its name.
    #[error("it takes a launch for each of the {batch} products of the batch: only by its name")]
    LaunchForEach {
        /// The products.
        batch: usize,
    },
    /// A block has no room for a product.
    #[error("a block has no room for a product of m={m} n={n} k={k} as a whole")]
    NotWhole {
        /// The rows of A and C.
        m: usize,
        /// The columns of B and C.
        n: usize,
        /// The terms of a sum.
        k: usize,
    },
    /// It copies operands as they lie, and they do not lie one after the other.
    #[error("A, B and C have to lie without gaps, row by row or column by column, and one product after the other")]
    Gaps,
    /// It copies rows as they lie, and they do not lie one after the other.
    #[error("B and C have to lie without gaps, C row by row, and A without gaps row by row, or column by column")]
    GapsOfRows,
    /// It is for small products. It can be had by its name.
    #[error("it is for products with at most {most} rows or columns each: for others only by its name")]
    NotSmall {
        /// The most rows, or columns.
        most: u32,
    },
    /// It copies all of B for each part of the rows. It can be had by its name.
    #[error(
        "a block has room for {rows} rows at a time, and copies all of B for so many, which has k={k}: for fewer than k/2 rows only by its name"
    )]
    FewRows {
        /// The rows.
        rows: usize,
        /// The terms of a sum, which are the rows of B.
        k: usize,
    },
    /// Its threads compute a sum each. It can be had by its name.
    #[error("it is for at most {most} multiplications: for more only by its name")]
    NotNaive {
        /// The most multiplications.
        most: f64,
    },
    /// It adds up in another order than the kernels that are taken for invariant rows. (It is none that may be had by its name.)
    #[error(
        "rows are to have the same bits whatever rows come with them, and it adds up in another order than the kernels that are taken \
         for that, or in one that depends on other rows"
    )]
    NotInvariant,
    /// Something of its own, in words, that none of the others says.
    #[error("{0}")]
    Own(String),
    /// It is not deterministic: the order of its additions varies. It can be had by its name.
    #[error(
        "it is not deterministic (the order of its additions varies, and so do the bits of its results): only by its name"
    )]
    NotDeterministic,
}

impl Refusal {
    /// Whether the kernel may be had by its name all the same.
    pub fn yields_to_name(&self) -> bool {
        matches!(
            self,
            Self::NotDeterministic
                | Self::OneColumn
                | Self::Aligned
                | Self::SlowOnCpu
                | Self::LaunchForEach { .. }
                | Self::NotSmall { .. }
                | Self::FewRows { .. }
                | Self::NotNaive { .. }
        )
    }
}
