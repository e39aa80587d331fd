//! The errors of this crate. Each message names the cause, the values and what to do about it.

use std::path::PathBuf;

use gpu_kernels::ShapeError;
use gpu_kernels::gemm::grouped::GroupError;

use crate::accuracy::rounded_up;
use crate::constants::ConstantsFault;
use crate::refusal::Refusal;
use crate::{Bytes, Precision};

/// An error of this library. Its message is complete and stands on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device, or a launch on it.
    #[error("{0}")]
    Device(#[from] runtime::Error),

    /// The operands do not make a product, or one of them is no matrix that kernels can take.
    #[error("{0}")]
    Shape(#[from] ShapeError),

    /// Options that contradict each other, or a value that makes no sense.
    #[error("{0}")]
    Usage(String),

    /// There is no kernel or problem of this name.
    #[error("unknown {what} `{name}`{}; there are {}", nearest_hint(.nearest), .known.join(", "))]
    UnknownName {
        /// `kernel` or `problem`.
        what: &'static str,
        /// The name.
        name: String,
        /// The known name that is most like it, if one is.
        nearest: Option<String>,
        /// All known names.
        known: Vec<&'static str>,
    },

    /// The kernel that was asked for cannot compute this product on this device.
    #[error("kernel `{kernel}` cannot compute {product}: {reason}{}", others_hint(.others))]
    Ineligible {
        /// The kernel.
        kernel: &'static str,
        /// The product.
        product: String,
        /// Why.
        reason: Box<Refusal>,
        /// The kernels that can, in the same precision.
        others: Vec<&'static str>,
    },

    /// No kernel of a precision can compute this product on this device.
    #[error("no kernel computes {product} in {precision} on {device}{}", refusals_list(.refusals, .precisions))]
    NoKernel {
        /// The precision asked for.
        precision: Precision,
        /// The product.
        product: String,
        /// The device.
        device: String,
        /// The kernels of the precision, and why each cannot.
        refusals: Vec<(&'static str, Refusal)>,
        /// The precisions in which the product can be computed there.
        precisions: Vec<Precision>,
    },

    /// No kernel's errors are as small as is asked for.
    #[error("no kernel computes {product} on {device} with {wanted}: {}", match best {
        Some((error, kernel)) => format!("the smallest bound is {:.1e}, of {kernel}: ask for that or more", rounded_up(*error)),
        None => "none that can compute it has a bound for the errors of elements".to_owned(),
    })]
    NoAccuracy {
        /// What is asked for.
        wanted: crate::Accuracy,
        /// The product.
        product: String,
        /// The device.
        device: String,
        /// The smallest bound that can be had there, and the kernel that has it.
        best: Option<(f64, &'static str)>,
    },

    /// A plan was given operands other than those it was made for.
    #[error(
        "this plan, for kernel `{kernel}`, does not fit: {what} {given}, and it was made for {planned}: make a plan for them"
    )]
    PlanMismatch {
        /// The kernel of the plan.
        kernel: &'static str,
        /// What differs, in words.
        what: &'static str,
        /// What the plan was made for.
        planned: String,
        /// What it was given.
        given: String,
    },

    /// A workspace is smaller than the plan needs.
    #[error("the workspace has {has}, and the plan needs {needs}: allocate it with `GemmPlan::workspace`")]
    WorkspaceTooSmall {
        /// What the plan needs.
        needs: Bytes,
        /// What there is.
        has: Bytes,
    },

    /// A table of measured times is of another GPU.
    #[error(
        "the table is of {table}, and the device is {device}, on which other kernels may be the fastest: measure one there \
         with `tilewright tune`, or go by no table"
    )]
    TableForOtherGpu {
        /// The GPU of the table.
        table: String,
        /// The device.
        device: String,
    },

    /// Constants of the model are of another GPU, or of other kernels.
    #[error("the constants{} cannot be used: {fault}; or go by those that are built in", in_file(.path))]
    Constants {
        /// The file that they are from, if they are from one.
        path: Option<PathBuf>,
        /// Why.
        fault: Box<ConstantsFault>,
    },

    /// A product of a group cannot be computed.
    #[error("product {product} of the group: {source}")]
    InGroup {
        /// Its number, from 0.
        product: usize,
        /// Why.
        source: Box<Error>,
    },

    /// Products cannot be computed as a group.
    #[error("{0}")]
    Group(#[from] GroupError),

    /// Operands whose shapes do not make a product.
    #[error("{left} is {left_extent}, but {right} is {right_extent}: they must be equal")]
    Operands {
        /// The one extent, in words such as `the number of columns of A`.
        left: &'static str,
        /// Its value.
        left_extent: usize,
        /// The other extent.
        right: &'static str,
        /// Its value.
        right_extent: usize,
    },

    /// Matrices of which an element is not in the buffer.
    #[error(
        "{count} matrices of {rows} x {cols} from element {offset} on, with strides {strides:?} of rows, columns and \
         matrices, end with element {last}, and the buffer has {len}: pass a longer buffer or smaller strides"
    )]
    OutsideBuffer {
        /// The rows of each.
        rows: usize,
        /// The columns of each.
        cols: usize,
        /// The number of matrices.
        count: usize,
        /// The strides of rows, of columns and of matrices.
        strides: [usize; 3],
        /// The place of the first element.
        offset: usize,
        /// The place of the last element.
        last: u128,
        /// The length of the buffer.
        len: usize,
    },

    /// Matrices that end beyond what can be addressed.
    #[error(
        "{matrix}, {batch} of {rows} x {cols} with strides {row_stride} and {col_stride}, each {batch_stride} after the one \
         before, has more bytes than can be addressed: choose smaller sizes"
    )]
    PlacementOverflow {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        cols: usize,
        /// The number of matrices.
        batch: usize,
        /// The elements from one row to the next.
        row_stride: usize,
        /// The elements from one column to the next.
        col_stride: usize,
        /// The elements from one matrix to the next.
        batch_stride: usize,
    },

    /// A problem with an extent beyond what kernels count.
    #[error("{what} is {extent}: it can be at most 2147483647 (2^31 - 1)")]
    ExtentTooLarge {
        /// Which extent.
        what: &'static str,
        /// Its value.
        extent: usize,
    },
}

impl Error {
    /// An error for a name that is not among `known`, with the most similar of these.
    pub fn unknown_name(what: &'static str, name: &str, known: Vec<&'static str>) -> Self {
        let similarity = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), candidate);
        let nearest = known
            .iter()
            .map(|candidate| (similarity(candidate), *candidate))
            .filter(|(similarity, _)| *similarity > 0.7)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, candidate)| candidate.to_owned());
        Self::UnknownName { what, name: name.to_owned(), nearest, known }
    }

    /// Whether there is nothing that could run PTX, or no PTX to run: see [`runtime::Error::is_absence_of_gpus`].
    pub fn is_absence_of_gpus(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_absence_of_gpus())
    }

    /// Whether a kernel did something wrong, as opposed to a launch or an input that was refused.
    pub fn is_kernel_fault(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_kernel_fault())
    }
}

/// What the driver says, or refuses.
impl From<cuda_driver::Error> for Error {
    fn from(error: cuda_driver::Error) -> Self {
        Self::Device(error.into())
    }
}

fn nearest_hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
}

fn in_file(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

fn others_hint(others: &[&str]) -> String {
    if others.is_empty() { String::new() } else { format!(". These can: {}", others.join(", ")) }
}

fn refusals_list(refusals: &[(&str, Refusal)], precisions: &[Precision]) -> String {
    let mut text = String::new();
    for (kernel, refusal) in refusals {
        text += &format!("\n  {kernel}: {refusal}");
    }
    let precisions: Vec<_> = precisions.iter().map(|precision| precision.name()).collect();
    match precisions.is_empty() {
        true => text,
        false => format!("{text}\nIt can be computed in {}", precisions.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one_or_with_none() {
        let known = vec!["matvec", "large-k", "at-b", "a-bt"];
        let message = Error::unknown_name("problem", "matvek", known.clone()).to_string();
        assert!(message.contains("did you mean `matvec`?") && message.contains("large-k"), "{message}");
        let message = Error::unknown_name("problem", "LargeK", known.clone()).to_string();
        assert!(message.contains("did you mean `large-k`?"), "{message}");
        let message = Error::unknown_name("problem", "transpose", known).to_string();
        assert!(!message.contains("did you mean"), "{message}");
    }

    /// The library's callers have no flags; the program adds its own.
    #[test]
    fn messages_name_no_flags() {
        let text = || "T".to_owned();
        let refusals = [
            Refusal::Precision { has: Precision::Tf32, wanted: Precision::Fp32 },
            Refusal::ManyColumns { most: 1, n: 2 },
            Refusal::NoSplits { splits: 2 },
        ];
        let ineligible = refusals.clone().map(|reason| Error::Ineligible {
            kernel: "k",
            product: text(),
            reason: Box::new(reason),
            others: vec!["other"],
        });
        let (needs, has) = (Bytes(2), Bytes(1));
        let others = [
            runtime::Error::NotEnoughMemory { place: text(), needs, has }.into(),
            Error::TableForOtherGpu { table: text(), device: text() },
            Error::Constants {
                path: None,
                fault: Box::new(ConstantsFault::OtherGpu { measured: text(), device: text() }),
            },
            runtime::Error::IncapableDevice {
                device: text(),
                compute_capability: text(),
                available: text(),
                lowest: text(),
            }
            .into(),
            Error::NoKernel {
                precision: Precision::Fp32,
                product: text(),
                device: text(),
                refusals: refusals.map(|refusal| ("k", refusal)).into(),
                precisions: vec![Precision::Tf32],
            },
        ];
        for error in ineligible.into_iter().chain(others) {
            assert!(!error.to_string().contains("--"), "{error}");
        }
    }
}
