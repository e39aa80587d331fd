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
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// # use std::sync::Arc;
/// # use tilewright::plan::Options;
/// // Plans that go by measured times where there are some.
/// let options = Options { tables: Tables::This(Arc::new(table)), ..Options::from(Precision::Fp32) };
/// assert!(matches!(&options.tables, Tables::This(table) if table.gpu == "NVIDIA H200"));
/// assert!(matches!(Options::default().tables, Tables::None));
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub enum Tables {
    /// None: the model chooses.
    #[default]
    None,
    /// This one, which has to be of the GPU.
    This(Arc<Table>),
}

/// Measured times of one GPU.
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// for entry in &table.entries {
///     println!("{}: {} takes {} us", entry.product(), entry.times[0].kernel, entry.times[0].median_us);
/// }
/// assert_eq!(Table::parse(&text).unwrap(), table);
/// # Ok::<(), tilewright::Error>(())
/// ```
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
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// let Entry { precision, m, n, k, times, .. } = &table.entries[0];
/// assert_eq!((*precision, *m, *n, *k, times.len()), (Precision::Fp32, 16, 48, 32, 1));
/// # Ok::<(), tilewright::Error>(())
/// ```
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
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// // The fastest kernel of an entry comes first.
/// let KernelTime { kernel, splits, median_us } = &table.entries[0].times[0];
/// assert_eq!((&**kernel, *splits, *median_us), ("gemm_tiled_32_fp32", 1, 8.0));
/// # Ok::<(), tilewright::Error>(())
/// ```
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
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// let wrong = text.replace("\"median_us\":8.0", "\"median_us\":-8.0");
/// match Table::parse(&wrong) {
///     Err(TableFault::Time { kernel, median_us, .. }) => assert_eq!((&*kernel, &*median_us), ("gemm_tiled_32_fp32", "-8")),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), tilewright::Error>(())
/// ```
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
///
/// ```
/// # use tilewright::plan::table::*;
/// # use tilewright::plan::{Description, Placement};
/// # use tilewright::{Error, Precision, Sizes};
/// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
/// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
/// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
/// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
/// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
/// # let text = serde_json::to_string(&table).unwrap();
/// // What differs in numbers and addresses alone is one product.
/// let placed = Placement { alignment: 64, ..a };
/// let elsewhere = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, placed, b, c)?;
/// assert_eq!(Key::of(&product), Key::of(&elsewhere));
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    layout: Orders,
    /// m, n, k and the number of products.
    extents: [usize; 4],
    aligned: bool,
}

impl Key {
    /// The key of a product; none if an operand is neither row-major nor column-major, or there is nothing to multiply.
    ///
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// // With operands that are neither row-major nor column-major there is none.
    /// let every_other = Placement { col_stride: 2, row_stride: 64, ..a };
    /// let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, every_other, b, c)?;
    /// assert_eq!(Key::of(&product), None);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// let times = vec![time("gemm_tiled_32_fp32", 8.0), time("gemm_naive_2d_fp32", 21.5)];
    /// let entry = Key::of(&product).unwrap().entry(Precision::Fp32Strict, times);
    /// assert_eq!((entry.m, entry.n, entry.k, entry.batch), (16, 48, 32, 1));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// let table = Table::begin("NVIDIA L4", "570.86".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// assert!(table.entries.is_empty() && table.schema == 1);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn begin(gpu: &str, driver: String, commit: Option<String>, date: String) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema: SCHEMA, gpu: gpu.to_owned(), driver, version, commit, date, entries: Vec::new() }
    }

    /// Reads a table.
    ///
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// assert_eq!(Table::parse(&text).as_ref(), Ok(&table));
    /// let newer = text.replace("\"schema\":1", "\"schema\":2");
    /// assert_eq!(Table::parse(&newer), Err(TableFault::Schema(2)));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// assert!(table.entries[0].product().contains("m=16 n=48 k=32"));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
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
    /// ```
    /// # use tilewright::plan::table::*;
    /// # use tilewright::plan::{Description, Placement};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// # let time = |kernel: &str, median_us| KernelTime { kernel: kernel.to_owned(), splits: 1, median_us };
    /// # let mut table = Table::begin("NVIDIA H200", "580.65.06, CUDA 13.0".to_owned(), None, "2026-11-22T09:00:00Z".to_owned());
    /// # table.entries.push(Key::of(&product).unwrap().entry(Precision::Fp32, vec![time("gemm_tiled_32_fp32", 8.0)]));
    /// # let text = serde_json::to_string(&table).unwrap();
    /// # use std::sync::Arc;
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::Device;
    /// let executor = Device::cpu(Checks::Bounds);
    /// assert_eq!(Tables::None.source(&executor)?, None);
    /// // It is of another device than this one.
    /// let refused = Tables::This(Arc::new(table)).source(&executor);
    /// assert!(matches!(refused, Err(Error::TableForOtherGpu { .. })));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
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
