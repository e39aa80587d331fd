//! Tables of measured times, by which plans choose kernels on a GPU that has been measured (`tilewright tune`).
//!
//! A table is of one GPU, by the name of the product, and a plan goes by one if it is told to. Where it has an entry for the very product that is planned (its precision,
//! extents and layout, and whether tensor maps can describe both operands), the fastest kernel of the entry that can compute it is
//! chosen, with split-K as was measured. For all other products, and where a kernel that the entry has no time of should be faster
//! by far, the [model](crate::plan) chooses: its constants are fitted to measurements of many shapes, and say more of a product
//! than the times of another one do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::order::{Order, Orders};
use crate::{Device, Error, Precision};

/// The version of the format.
const SCHEMA: u32 = 1;

/// Which tables a plan may use.
#[derive(Clone, Debug, Default)]
pub enum Tables {
    /// None: the model chooses.
    #[default]
    None,
    /// This one, which has to be of the GPU.
    This(Arc<Table>),
}

/// Measured times of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The version of the format.
    pub schema: u32,
    /// The name of the GPU, such as `NVIDIA H200`.
    pub gpu: String,
    /// The release of its driver, and the CUDA version that it supports.
    pub driver: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from; none outside a repository.
    pub commit: Option<String>,
    /// When the measurement began, in UTC (RFC 3339).
    pub date: String,
    /// What was measured.
    pub entries: Vec<Entry>,
}

/// The times of one product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The precision.
    pub precision: Precision,
    /// The orders of A and B.
    pub layout: Orders,
    /// The rows of A and C.
    pub m: usize,
    /// The columns of B and C.
    pub n: usize,
    /// The columns of A and rows of B.
    pub k: usize,
    /// The number of products.
    pub batch: usize,
    /// Whether tensor maps can describe both operands.
    pub aligned: bool,
    /// The kernels, the fastest first.
    pub times: Vec<KernelTime>,
}

/// The time of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTime {
    /// Its name.
    pub kernel: String,
    /// Among how many blocks each sum was divided.
    pub splits: u32,
    /// The median, in microseconds, with all steps of the plan.
    pub median_us: f64,
}

/// What is wrong with a file that should be a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// It is not JSON, or lacks something.
    #[error("{0}")]
    Json(String),
    /// It has another format.
    #[error("its format is version {0}, and this program reads version 1: measure again with `tilewright tune`")]
    Schema(u32),
    /// A time that is none.
    #[error("the time of {kernel} for {product} is {median_us} us: it has to be a positive number")]
    Time {
        /// The kernel.
        kernel: String,
        /// The product.
        product: String,
        /// What it says.
        median_us: String,
    },
    /// Sums that are divided among no blocks.
    #[error("the time of {kernel} for {product} is of sums divided among 0 blocks: it has to be at least one")]
    Splits {
        /// The kernel.
        kernel: String,
        /// The product.
        product: String,
    },
    /// The kernels of an entry are not in order.
    #[error("the kernels for {0} are not in the order of their times")]
    Order(String),
}

/// What a product is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    layout: Orders,
    /// m, n, k and the number of products.
    extents: [usize; 4],
    aligned: bool,
}

impl Key {
    /// The key of a product; none if an operand is neither row-major nor column-major, or there is nothing to multiply.
    pub fn of(product: &Description) -> Option<Self> {
        let by_rows = product.n == 1 || product.m == 1 || product.c.order() != Some(Order::ColumnMajor);
        let product = if by_rows { *product } else { product.transposed() };
        let Description { m, n, k, batch, a, b, .. } = product;
        let layout = match (a.order(), b.order()) {
            _ if product.is_empty() || product.terms() == 0 => return None,
            (Some(a), Some(b)) => Orders { a, b },
            (None, _) | (_, None) => return None,
        };
        Some(Self { layout, extents: [m, n, k, batch], aligned: product.is_aligned() })
    }

    /// An entry for this product.
    pub fn entry(&self, precision: Precision, times: Vec<KernelTime>) -> Entry {
        let Self { layout, extents: [m, n, k, batch], aligned } = *self;
        Entry { precision, layout, m, n, k, batch, aligned, times }
    }

    /// Whether an entry is of this product.
    fn is_of(&self, entry: &Entry, precision: Precision) -> bool {
        let extents = [entry.m, entry.n, entry.k, entry.batch];
        (entry.precision, entry.layout, entry.aligned, extents) == (precision, self.layout, self.aligned, self.extents)
    }
}

impl Table {
    /// An empty table of a GPU, measured by the program of this commit from this moment on.
    pub fn begin(gpu: &str, driver: String, commit: Option<String>, date: String) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema: SCHEMA, gpu: gpu.to_owned(), driver, version, commit, date, entries: Vec::new() }
    }

    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TableFault> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let bad = |error: serde_json::Error| TableFault::Json(error.to_string());
        let Version { schema } = serde_json::from_str(text).map_err(bad)?;
        if schema != SCHEMA {
            return Err(TableFault::Schema(schema));
        }
        let table: Self = serde_json::from_str(text).map_err(bad)?;
        for entry in &table.entries {
            for KernelTime { kernel, splits, median_us } in &entry.times {
                if *splits == 0 {
                    return Err(TableFault::Splits { kernel: kernel.clone(), product: entry.product() });
                }
                if !(median_us.is_finite() && *median_us > 0.0) {
                    let (kernel, product, median_us) = (kernel.clone(), entry.product(), median_us.to_string());
                    return Err(TableFault::Time { kernel, product, median_us });
                }
            }
            if !entry.times.is_sorted_by(|one, other| one.median_us <= other.median_us) {
                return Err(TableFault::Order(entry.product()));
            }
        }
        Ok(table)
    }

    /// Where the table is from, for explanations.
    pub(crate) fn source(&self) -> String {
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        format!("{}{commit}", self.date)
    }

    /// The entry of a product, if it has been measured.
    pub(crate) fn entry(&self, product: &Description, precision: Precision) -> Option<&Entry> {
        let key = Key::of(product)?;
        self.entries.iter().find(|entry| key.is_of(entry, precision))
    }
}

impl Entry {
    /// The product in a few words.
    pub fn product(&self) -> String {
        let Self { precision, layout, m, n, k, batch, aligned, .. } = self;
        let batch = if *batch == 1 { String::new() } else { format!("{batch} times ") };
        let aligned = if *aligned { "" } else { ", not aligned" };
        format!("{batch}{layout} m={m} n={n} k={k} in {precision}{aligned}")
    }
}

impl Tables {
    /// Where the table for a device is from, in words, if there is one.
    ///
    /// # Errors
    /// [`Error::TableForOtherGpu`] if a certain table is to be used, and is not of this device.
    pub fn source(&self, device: &Device) -> Result<Option<String>, Error> {
        Ok(self.table(&DeviceFacts::of(device))?.map(Table::source))
    }

    /// The table for a device, if there is one.
    ///
    /// # Errors
    /// [`Error::TableForOtherGpu`] if a certain table is to be used, and is not of this device.
    pub(crate) fn table(&self, device: &DeviceFacts) -> Result<Option<&Table>, Error> {
        match self {
            Self::None => Ok(None),
            Self::This(table) if table.gpu == device.name && !device.is_cpu() => Ok(Some(table)),
            Self::This(table) => Err(Error::TableForOtherGpu { table: table.gpu.clone(), device: device.name.clone() }),
        }
    }
}
