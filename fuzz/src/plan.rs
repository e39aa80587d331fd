//! Planning: any sizes, any places of the operands, any device; and the matrices on a device that such numbers would make.

use arbitrary::{Arbitrary, Unstructured};
use cuda_std::executor::Checks;
use tilewright::Sizes;
use tilewright::plan::{Description, DeviceFacts, Options, Placement, Processor, Triangle, plan};
use tilewright::{Device, DeviceMatrix, Error, Precision, kernels};

/// A number at which something changes, or any other.
#[derive(Clone, Copy, Debug)]
struct Extent(usize);

impl<'a> Arbitrary<'a> for Extent {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        const EDGES: [usize; 10] = [64, 128, 512, 4096, 1 << 16, 1 << 31, 1 << 32, 1 << 38, 1 << 62, usize::MAX];
        Ok(Self(match bytes.int_in_range(0..=5u8)? {
            0..=2 => usize::from(u8::arbitrary(bytes)?),
            3 | 4 => {
                let (edge, steps) = (*bytes.choose(&EDGES)?, i8::arbitrary(bytes)?);
                edge.wrapping_add_signed(steps.into())
            }
            _ => usize::arbitrary(bytes)?,
        }))
    }
}

#[derive(Debug, Arbitrary)]
struct Place {
    row_stride: Extent,
    col_stride: Extent,
    batch_stride: Extent,
    alignment: Extent,
    is_aligned: bool,
    /// A matrix without gaps, in place of these strides.
    dense: Option<bool>,
}

impl Place {
    fn placement(&self, rows: usize, cols: usize) -> Placement {
        let strides = match self.dense {
            Some(true) => Placement::row_major(cols),
            Some(false) => Placement::column_major(rows),
            None => {
                Placement { row_stride: self.row_stride.0, col_stride: self.col_stride.0, ..Placement::row_major(1) }
            }
        };
        let alignment = if self.is_aligned { 256 } else { self.alignment.0 };
        Placement { batch_stride: self.batch_stride.0, alignment, ..strides }
    }
}

#[derive(Debug, Arbitrary)]
struct Input {
    sizes: [Extent; 3],
    batch: Extent,
    places: [Place; 3],
    factors: [f32; 2],
    part: u8,
    gpu: Option<(u8, u8)>,
    name_is_known: bool,
    multiprocessors: u32,
    memory_bytes: Option<u64>,
    precision: Option<u8>,
    kernel: Option<u8>,
    splits: Option<u32>,
    offset: Extent,
    elements: u8,
}

/// What is described is refused with a reason, or there is a plan whose workspace is large enough for its parts.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    matrix(&input);
    let [m, n, k] = input.sizes.map(|extent| extent.0);
    let [a, b, c] = &input.places;
    let (a, b, c) = (a.placement(m, k), b.placement(k, n), c.placement(m, n));
    let product = match Description::new(Sizes { m, n, k }, input.batch.0, a, b, c) {
        Ok(product) => product,
        Err(error) => return crate::has_reason(error),
    };
    let part = [Triangle::All, Triangle::Upper, Triangle::Lower][usize::from(input.part) % 3];
    let [alpha, beta] = input.factors;
    let product = product.with_factors(alpha, beta).with_part(part);
    let kernel = input.kernel.map(|index| kernels::ALL[usize::from(index) % kernels::ALL.len()]);
    let precision = input.precision.map(|index| Precision::ALL[usize::from(index) % Precision::ALL.len()]);
    match plan(&input.device(), &product, &Options { precision, kernel, splits: input.splits, ..Options::default() }) {
        Ok(plan) => {
            assert!(plan.splits() >= 1 && *plan.product() == product);
            assert!(precision.is_none_or(|precision| plan.precision() == precision));
            assert!(kernel.is_none_or(|kernel| kernel.name == plan.kernel().name));
            assert!(plan.explanation().to_string().contains(plan.kernel().name));
            for kernel in plan.kernels() {
                assert_eq!(input.device().limits.check(&kernel), Ok(()), "{}", kernel.name);
            }
            let mut end = 0;
            for part in plan.workspace_parts() {
                assert!(part.start <= part.end, "{part:?}");
                if !part.is_empty() {
                    assert!(part.start >= end && part.start.is_multiple_of(64), "{part:?} after {end}");
                    end = part.end;
                }
            }
            let bytes = end.checked_mul(size_of::<f32>()).expect("the workspace can be addressed");
            assert!(bytes <= plan.workspace_bytes(), "parts of {bytes} bytes in {}", plan.workspace_bytes());
        }
        Err(error) => {
            assert!(matches!(error, Error::NoKernel { .. } | Error::Ineligible { .. } | Error::Usage(_)), "{error}");
            crate::has_reason(error);
        }
    }
}

impl Input {
    fn device(&self) -> DeviceFacts {
        let processor = match self.gpu {
            None => Processor::Cpu,
            Some((major, minor)) => Processor::Gpu {
                compute_capability: (u32::from(major % 16), u32::from(minor % 16)),
                sm_90a: (major % 16, minor % 16) == (9, 0),
            },
        };
        let name = if self.name_is_known { "NVIDIA H200" } else { "unknown" };
        let (multiprocessors, memory_bytes) = (self.multiprocessors, self.memory_bytes);
        let capability = match processor {
            Processor::Cpu => (9, 0),
            Processor::Gpu { compute_capability, .. } => compute_capability,
        };
        DeviceFacts { processor, memory_bytes, ..DeviceFacts::of_gpu(name, capability, multiprocessors, 0) }
    }
}

/// A matrix of these numbers lies inside its buffer, or is refused.
fn matrix(input: &Input) {
    let len = usize::from(input.elements);
    let [rows, cols, count] = input.sizes.map(|extent| extent.0);
    let Place { row_stride, col_stride, batch_stride, .. } = &input.places[0];
    let device = Device::cpu(Checks::Bounds);
    let buffer = device.allocate::<f32>(len).expect("a kilobyte");
    let made = DeviceMatrix::new(buffer, rows, cols, [row_stride.0, col_stride.0])
        .and_then(|matrix| matrix.moved_by(input.offset.0))
        .and_then(|matrix| matrix.into_batch(count, batch_stride.0));
    let mut matrix = match made {
        Ok(matrix) => matrix,
        Err(error) => return crate::has_reason(error),
    };
    assert!(matrix.placement().alignment.is_power_of_two());
    for result in [
        matrix.matrix().map(|it| it.data().len()),
        matrix.batch().map(|it| it.first().data().len()),
        matrix.transposed_batch().map(|it| it.first().data().len()),
        matrix.matrix_mut().map(|it| it.data().len()),
        matrix.batch_mut(false).map(|it| it.first().data().len()),
        matrix.batch_mut(true).map(|it| it.first().data().len()),
    ] {
        match result {
            Ok(visible) => assert!(visible <= len),
            Err(error) => assert!(matches!(error, Error::Shape(_)), "{error}"),
        }
    }
}
