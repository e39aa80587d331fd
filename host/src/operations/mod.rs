//! The operations of this program: what its kernels are for. `run --op`, `bench --op`, `check`, `agreement`, `mutants` and
//! `sanitize` go through this list; `tune` through those that are planned.

mod product;

use std::sync::LazyLock;

use runtime::KernelSet;
use testkit::{Operation, Program};
use tilewright::device::{DeviceChoice, KERNELS};

use crate::planted::FOR_TOOLS;
pub use product::Tunable;

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
