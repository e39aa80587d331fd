//! The operations of this program: what its kernels are for. `run --op`, `bench --op`, `check`, `agreement`, `mutants` and
//! `sanitize` go through this list.

mod product;

use std::sync::LazyLock;

use runtime::KernelSet;
use testkit::{Operation, Program};
use tilewright::Precision;
use tilewright::device::{DeviceChoice, KERNELS};

use crate::Error;

/// All operations: those beside the kernels, then products, which are planned.
pub static ALL: LazyLock<Vec<&'static dyn Operation>> = LazyLock::new(|| {
    let products = product::ALL.iter().map(|product| product as &dyn Operation);
    gpu_kernels::OPERATIONS.iter().copied().chain(products).collect()
});

/// The PTX of all kernels of this program.
static KERNEL_SETS: [&KernelSet; 1] = [&KERNELS];

/// What the command line does with them.
pub fn program() -> Program<'static> {
    Program { operations: &ALL, kernel_sets: &KERNEL_SETS }
}

/// A device as these commands name it.
pub fn device_name(device: DeviceChoice) -> Option<String> {
    match device {
        DeviceChoice::Auto => None,
        DeviceChoice::Cpu => Some("cpu".to_owned()),
        DeviceChoice::Cuda(ordinal) => Some(ordinal.to_string()),
    }
}

/// The precision of an operation that chooses among kernels, which is what `tune` measures: of a product. (That of gemv is
/// fp32-strict, whose tables have its cases.)
///
/// # Errors
/// [`UnknownName`](tilewright::Error::UnknownName), with the operation that is most like it; [`Error::Usage`] for one that has no choice.
pub fn precision_of(operation: &str) -> Result<Precision, Error> {
    if let Some(product) = product::ALL.iter().find(|product| product.name == operation) {
        return Ok(product.precision);
    }
    let names: Vec<&'static str> = ALL.iter().map(|operation| operation.describe().name).collect();
    if names.contains(&operation) {
        let products: Vec<_> = product::ALL.iter().map(|product| product.name).collect();
        let message = format!("`{operation}` has one way to go, and nothing to choose: tune {}", products.join(", "));
        return Err(Error::Usage(message));
    }
    Err(Error::unknown_name("operation", operation, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chooses_among_kernels_can_be_tuned() {
        assert_eq!(precision_of("gemm-tf32").unwrap(), Precision::Tf32);
        assert_eq!(precision_of("gemv").unwrap(), Precision::Fp32Strict);
        let refusal = precision_of("scale").unwrap_err().to_string();
        assert!(refusal.contains("nothing to choose: tune gemv, gemm-fp32-strict"), "{refusal}");
        let unknown = precision_of("gemm-fp31").unwrap_err().to_string();
        assert!(unknown.contains("did you mean `gemm-fp"), "{unknown}");
    }
}
