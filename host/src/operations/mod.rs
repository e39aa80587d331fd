//! The operations of this program: what its kernels are for. `run --op`, `bench --op`, `check`, `agreement`, `mutants` and
//! `sanitize` go through this list; `tune` through those that are planned.

mod product;

use std::sync::LazyLock;

use runtime::KernelSet;
use testkit::{Operation, Program};
use tilewright::Precision;
use tilewright::device::{DeviceChoice, KERNELS};

use crate::planted::FOR_TOOLS;

/// All operations: those beside the kernels, then products, which are planned.
pub static ALL: LazyLock<Vec<&'static dyn Operation>> = LazyLock::new(|| {
    let products = product::ALL.iter().map(|product| product as &dyn Operation);
    gpu_kernels::OPERATIONS.iter().copied().chain(products).collect()
});

/// The PTX of all kernels of this program.
static KERNEL_SETS: [&KernelSet; 1] = [&KERNELS];

/// What the command line does with them.
pub fn program() -> Program<'static> {
    Program { operations: &ALL, kernel_sets: &KERNEL_SETS, planted: &FOR_TOOLS }
}

/// What there is to tune about an operation: by which kernel its products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// The operation.
    pub name: &'static str,
    /// The precision of its products.
    pub precision: Precision,
    /// Whether they are products of matrices with vectors only.
    pub by_vectors: bool,
}

/// The operations that have something to tune: those that are planned.
pub fn tunable() -> impl Iterator<Item = Tunable> {
    product::ALL.iter().map(product::Product::tunable)
}

/// A device as these commands name it.
pub fn device_name(device: DeviceChoice) -> Option<String> {
    match device {
        DeviceChoice::Auto => None,
        DeviceChoice::Cpu => Some("cpu".to_owned()),
        DeviceChoice::Cuda(ordinal) => Some(ordinal.to_string()),
    }
}
