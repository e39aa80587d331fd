//! Measures which kernel is the fastest for which product, and writes it down: `tilewright tune`.
//!
//! It goes by the operations that are planned ([`operations::tunable`]): for each shape and layout of a list ([`cases`]), every kernel that can compute the product is timed, with the
//! numbers of splits that might suit it. What the model has far behind is left out. The result is a [`Table`] of this GPU;
//! `crates/tilewright/src/plan/tables` has those that are built in.
//!
//! A table says nothing of products that it does not have. [`constants`] are for these: what the model has to know of a GPU.
//!
//! A time is the median of several, each of as many runs in a row as make 200 µs, with all steps of the plan. Operands that
//! fit into the GPU's cache stay there from run to run. That is enough to compare kernels; `tilewright bench` is for figures.

pub mod cases;
pub mod constants;

use std::path::PathBuf;
use std::time::Duration;

use cases::Case;

use crate::Error;
use crate::input::{self, Distribution};
use crate::provenance::{commit, now};
use crate::{files, operations, tables};
use tilewright::device::{Device, DeviceInfo};
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::table::{Entry, KernelTime, Key};
use tilewright::plan::{self, Description, DeviceFacts, GemmPlan, Table, candidate_splits};
use tilewright::{DeviceMatrix, Precision};

/// Ways that the model expects to take so many times as long as the fastest are not measured.
const FAR_BEHIND: f64 = 5.0;

/// How long the runs of one time are together, at least, and how many they are at most.
const TOGETHER: Duration = Duration::from_micros(200);
const MOST_TOGETHER: usize = 64;

/// Times that differ by less than this factor are about the same.
const ABOUT: f64 = 1.02;

/// How many times are taken for a median.
const TIMES: usize = 7;

/// Products to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// Their precision.
    pub precision: Precision,
    /// Whether only those of matrices with vectors are meant.
    pub by_vectors: bool,
}

impl Products {
    /// All products of a precision.
    pub fn all(precision: Precision) -> Self {
        Self { precision, by_vectors: false }
    }

    fn has(self, case: &Case) -> bool {
        !self.by_vectors || case.sizes.n == 1
    }
}

/// The products of operations that have something to tune.
///
/// # Errors
/// [`testkit::Error::UnknownOperation`], with the names that are nearest; [`Error::Usage`] for an operation that has nothing to tune.
pub fn products_of(names: &[String]) -> Result<Vec<Products>, Error> {
    let one = |name: &String| {
        let found = operations::tunable().find(|tunable| tunable.name == name);
        if let Some(operations::Tunable { precision, by_vectors, .. }) = found {
            return Ok(Products { precision, by_vectors });
        }
        operations::program().operation(name)?;
        let tunable: Vec<_> = operations::tunable().map(|tunable| tunable.name).collect();
        Err(Error::Usage(format!(
            "operation `{name}` has nothing to tune: its kernels are launched in one way only. Those that have are {}",
            tunable.join(", ")
        )))
    };
    names.iter().map(one).collect()
}

/// What to measure, and where to write it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The products; all if there are none.
    pub products: Vec<Products>,
    /// The file that is written. What has been measured so far is written after every shape, but to a pipe.
    pub output: PathBuf,
}

/// Measures on a GPU, gives `print` a line for each product as it comes, and writes the table.
///
/// # Errors
/// [`Error::Usage`] on the CPU executor, whose times say nothing; [`Error::File`], before anything is measured where possible;
/// [`DeviceError::NotEnoughMemory`](runtime::Error::NotEnoughMemory) and [`DeviceError::Driver`](runtime::Error::Driver) if the GPU fails.
pub fn run(device: &Device, options: &Options, mut print: impl FnMut(&str)) -> Result<Table, Error> {
    let DeviceInfo::Cuda { name, driver_release, driver_cuda_version, .. } = device.describe() else {
        return Err(Error::Usage(
            "times on the CPU executor say nothing about a GPU: `tilewright tune` needs one".to_owned(),
        ));
    };
    files::check_writable(&options.output)?;
    let release = driver_release.map(|release| format!("{release}, ")).unwrap_or_default();
    let mut table = Table::begin(&name, format!("{release}CUDA {driver_cuda_version}"), commit(), now());
    for case in cases::all() {
        for entry in measure_case(device, &case, &precisions_of(&case, &options.products))? {
            let best = entry.times.first().map_or("no kernel".to_owned(), |best| {
                format!("{} with {} splits: {:.1} us", best.kernel, best.splits, best.median_us)
            });
            print(&format!("{}: {best}\n", entry.product()));
            table.entries.push(entry);
        }
        if files::is_replaced(&options.output) {
            tables::write(&options.output, &table)?;
        }
    }
    tables::write(&options.output, &table)?;
    Ok(table)
}

/// The precisions in which a case is measured, each once.
fn precisions_of(case: &Case, products: &[Products]) -> Vec<Precision> {
    if products.is_empty() {
        return cases::PRECISIONS.to_vec();
    }
    let mut precisions = Vec::new();
    for products in products.iter().filter(|products| products.has(case)) {
        if !precisions.contains(&products.precision) {
            precisions.push(products.precision);
        }
    }
    precisions
}

/// Measures one product in some precisions. What no kernel can compute gives no entry.
fn measure_case(device: &Device, case: &Case, precisions: &[Precision]) -> Result<Vec<Entry>, Error> {
    let product = case.description()?;
    let Some(key) = Key::of(&product).filter(|_| !precisions.is_empty()) else { return Ok(Vec::new()) };
    let facts = DeviceFacts::of(device);
    let [a, b, c] = case.placements();
    let [a_len, b_len, c_len] = case.elements();
    let (m, n, k) = (product.m, product.n, product.k);
    let there = |len: usize, number| {
        let elements = input::random(len, Distribution::Uniform11, 0, number);
        device.upload(&elements)
    };
    let placed = |buffer, rows, cols, place: plan::Placement| {
        let strides = [place.row_stride, place.col_stride];
        DeviceMatrix::new(buffer, rows, cols, strides)?.into_batch(product.batch, place.batch_stride)
    };
    let a = placed(there(a_len, 0)?, m, k, a)?;
    let b = placed(there(b_len, 1)?, k, n, b)?;
    let mut c = placed(device.allocate(c_len)?, m, n, c)?;

    let mut entries = Vec::new();
    for &precision in precisions {
        let mut times = Vec::new();
        for plan in candidates(device, &facts, &product, precision)? {
            let mut workspace = plan.workspace(device)?;
            let median = time(device, || plan.run(device, 1.0, &a, &b, 0.0, &mut c, &mut workspace))?;
            let median_us = (median.as_secs_f64() * 1e6).max(1e-3);
            times.push(KernelTime { kernel: plan.kernel().name.to_owned(), splits: plan.splits(), median_us });
        }
        let mut times = best_splits(times);
        times.sort_by(|one, other| one.median_us.total_cmp(&other.median_us));
        if !times.is_empty() {
            entries.push(key.entry(precision, times));
        }
    }
    Ok(entries)
}

/// Of each kernel the best splits: the fewest among those that are about as fast as the fastest.
fn best_splits(times: Vec<KernelTime>) -> Vec<KernelTime> {
    let mut best: Vec<KernelTime> = Vec::new();
    for time in &times {
        if best.iter().any(|best| best.kernel == time.kernel) {
            continue;
        }
        let of_kernel = || times.iter().filter(|other| other.kernel == time.kernel);
        let least = of_kernel().map(|time| time.median_us).fold(f64::INFINITY, f64::min);
        best.extend(of_kernel().filter(|time| time.median_us <= ABOUT * least).min_by_key(|time| time.splits).cloned());
    }
    best
}

/// The plans to measure: every kernel that may be chosen unasked, with the splits that might suit it.
fn candidates(
    device: &Device,
    facts: &DeviceFacts,
    product: &Description,
    precision: Precision,
) -> Result<Vec<GemmPlan>, Error> {
    let plan = |kernel: &'static KernelInfo, splits: u32| -> Result<Option<GemmPlan>, Error> {
        let options = plan::Options { kernel: Some(kernel), splits: Some(splits), ..plan::Options::from(precision) };
        match GemmPlan::new(device, product, &options) {
            Ok(plan) => Ok(Some(plan)),
            Err(tilewright::Error::Ineligible { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let mut plans = Vec::new();
    for &kernel in kernels::ALL.iter() {
        if kernel.refusal(facts, product, precision, None).is_some() {
            continue;
        }
        for splits in splits_to_try(kernel, facts, product) {
            plans.extend(plan(kernel, splits)?);
        }
    }
    let estimate = |plan: &GemmPlan| plan.explanation().estimated_ms.unwrap_or(0.0);
    let least = plans.iter().map(estimate).fold(f64::INFINITY, f64::min);
    plans.retain(|plan| estimate(plan) <= FAR_BEHIND * least);
    Ok(plans)
}

/// Those that the model knows, and some more and fewer.
fn splits_to_try(kernel: &KernelInfo, facts: &DeviceFacts, product: &Description) -> Vec<u32> {
    let modelled = candidate_splits(kernel, facts, product);
    let most = kernel.pieces(product);
    let mut splits: Vec<u32> =
        modelled.iter().flat_map(|&splits| [splits / 2, splits, splits.saturating_mul(2)]).collect();
    splits.push(1);
    splits.retain(|&splits| (1..=most).contains(&splits));
    splits.sort_unstable();
    splits.dedup();
    splits
}

/// The median time of a run on the device.
fn time(device: &Device, mut run: impl FnMut() -> Result<(), tilewright::Error>) -> Result<Duration, Error> {
    // The first run has the driver load kernels.
    run()?;
    let once = device.time(2, &mut run)?.into_iter().min().unwrap_or_default();
    let together = TOGETHER.as_nanos().div_ceil(once.as_nanos().max(1)).clamp(1, MOST_TOGETHER as u128) as usize;
    let mut times = device.time(TIMES, || (0..together).try_for_each(|_| run()))?;
    times.sort();
    Ok(times[times.len() / 2] / together as u32)
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;
    use tilewright::{Orders, Sizes};

    #[test]
    fn all_cases_are_products_and_no_two_are_the_same() {
        let cases = cases::all();
        for (index, case) in cases.iter().enumerate() {
            let product = case.description().unwrap();
            assert!(Key::of(&product).is_some(), "{case:?}");
            assert!(!cases[..index].contains(case), "{case:?}");
            let bytes: usize = case.elements().iter().map(|elements| 4 * elements).sum();
            assert!(bytes <= 16 << 30, "{case:?} has {bytes} bytes");
        }
    }

    #[test]
    fn the_fewest_splits_are_taken_among_those_that_are_about_as_fast() {
        let time = |kernel: &str, splits, median_us| KernelTime { kernel: kernel.to_owned(), splits, median_us };
        let times =
            vec![time("a", 1, 12.0), time("a", 2, 10.1), time("a", 4, 10.0), time("b", 8, 5.0), time("b", 1, 6.0)];
        assert_eq!(best_splits(times), [time("a", 2, 10.1), time("b", 8, 5.0)]);
        assert_eq!(best_splits(Vec::new()), []);
    }

    #[test]
    fn a_case_is_measured_with_every_kernel_that_can_compute_it() {
        let device = Device::cpu(Checks::Bounds);
        let case = Case { sizes: Sizes { m: 5, n: 1, k: 70 }, batch: 2, orders: Orders::NN };
        let entries = measure_case(&device, &case, &[Precision::Fp32Strict]).unwrap();
        let [Entry { times, batch: 2, m: 5, n: 1, k: 70, aligned: false, .. }] = &entries[..] else {
            panic!("{entries:?}");
        };
        let names: Vec<_> = times.iter().map(|time| time.kernel.as_str()).collect();
        for kernel in ["gemv_split_fp32", "gemm_batched_8_fp32", "gemm_register_tiled_nt_fp32"] {
            assert_eq!(names.iter().filter(|name| **name == kernel).count(), 1, "{names:?}");
        }
        assert!(!names.contains(&"gemv_split_atomic_fp32"), "its bits vary");
        assert!(!names.contains(&"gemv_block_reduction_fp32"), "it has a launch for each product");
        assert!(times.is_sorted_by(|one, other| one.median_us <= other.median_us && one.median_us > 0.0));
    }

    #[test]
    fn operations_that_are_planned_are_tuned() {
        let of = |names: &[&str]| products_of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        let vectors = Case { sizes: Sizes { m: 8, n: 1, k: 8 }, batch: 1, orders: Orders::NN };
        let matrices = Case { sizes: Sizes { m: 8, n: 8, k: 8 }, ..vectors };
        let both = of(&["gemv", "gemm-tf32", "gemm-tf32", "gemm-fp32-strict"]).unwrap();
        let (strict, tf32) = (Precision::Fp32Strict, Precision::Tf32);
        assert_eq!(precisions_of(&vectors, &both), [strict, tf32]);
        assert_eq!(precisions_of(&matrices, &both), [tf32, strict]);
        assert_eq!(precisions_of(&matrices, &both[..1]), []);
        // Together they are what is tuned by default.
        let all: Vec<_> = operations::tunable().map(|tunable| tunable.name).collect();
        let mut precisions = precisions_of(&vectors, &of(&all).unwrap());
        assert!(precisions_of(&matrices, &of(&all).unwrap()).len() == precisions.len());
        precisions.sort_by_key(|precision| precision.name());
        let mut default = precisions_of(&vectors, &[]);
        default.sort_by_key(|precision| precision.name());
        assert_eq!(precisions, default);

        let refusal = of(&["rms-norm"]).unwrap_err().to_string();
        assert!(refusal.contains("`rms-norm` has nothing to tune") && all.iter().all(|name| refusal.contains(name)));
        let unknown = of(&["gemm-fp31"]).unwrap_err().to_string();
        assert!(unknown.contains("there is no operation `gemm-fp31` (did you mean `gemm-fp"), "{unknown}");
    }

    #[test]
    fn the_cpu_is_not_measured_for_a_table() {
        let options = Options { products: Vec::new(), output: "/no such directory/table.json".into() };
        let error = run(&Device::cpu(Checks::Bounds), &options, |_| ()).unwrap_err();
        assert!(error.to_string().contains("needs one"), "{error}");
    }
}
