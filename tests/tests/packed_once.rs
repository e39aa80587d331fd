//! Matrices that are packed once, on the CPU executor, by plans for an H200.

use cuda_std::executor::Checks;
use ndarray::Array2;
use tests::packed_once::{KERNELS, check};
use tilewright::plan::{Description, GemmPlan, Options, Workspace};
use tilewright::{Device, DeviceMatrix, Error, PackedMatrix, Precision, Side, kernels};

#[test]
fn products_have_the_bits_of_those_that_pack_by_themselves() {
    let device = Device::cpu(Checks::Bounds);
    let gpu = tilewright::plan::DeviceFacts::of(&device);
    for name in KERNELS {
        let kernel = kernels::find(name).unwrap();
        let compared = check(&device, &gpu, kernel, 12).unwrap_or_else(|error| panic!("{error}"));
        // One of them stores C by tensor maps, which not every C has.
        assert!(compared.products >= 9, "{name}: {compared:?}");
        assert!(compared.products == 36 || name.contains("short"), "{name}: {compared:?}");
    }
}

#[test]
fn a_packed_matrix_is_for_its_side_its_precision_and_its_plans() {
    let device = Device::cpu(Checks::Full);
    let matrix = |rows: usize, cols: usize| {
        let numbers = Array2::from_shape_fn((rows, cols), |(row, col)| (row * 3 + col) as f32 - 4.0);
        DeviceMatrix::upload(&device, numbers.view()).unwrap()
    };
    let packed = |precision| PackedMatrix::new(&device, precision, Side::Right, matrix(5, 3));
    let (a, b, mut c) = (matrix(2, 5), packed(Precision::Fp32).unwrap(), matrix(2, 3));

    let error = Description::of(1.0, &b, &matrix(3, 2), 0.0, &matrix(5, 2)).unwrap_err().to_string();
    assert!(error.contains("A stands on the left side") && error.contains("for the right side"), "{error}");

    // No kernel reads what is packed in TF32, and the message says which precisions there are.
    let error = packed(Precision::Tf32).unwrap_err().to_string();
    assert!(error.contains("packed matrices in tf32") && error.contains("fp32-normwise"), "{error}");

    // A plan for one is not a plan for the matrix itself, nor the other way round.
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let plain = Description::of(1.0, &a, b.matrix(), 0.0, &c).unwrap();
    assert_eq!(product.packed, [None, Some(Precision::Fp32)]);
    assert_eq!(plain.packed, [None, None]);
    let options = Options::from(Precision::Fp32);
    let [of_packed, of_plain] = [product, plain].map(|product| GemmPlan::new(&device, &product, &options).unwrap());
    let mut workspace = Workspace::new(&device, of_plain.workspace_bytes()).unwrap();
    let error = of_packed.run(&device, 1.0, &a, b.matrix(), 0.0, &mut c, &mut workspace).unwrap_err();
    assert!(matches!(error, Error::PlanMismatch { .. }) && error.to_string().contains("B, for fp32"), "{error}");
    let error = of_plain.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut workspace).unwrap_err();
    assert!(matches!(error, Error::PlanMismatch { .. }), "{error}");

    // In another precision, the matrix itself is read; it is whole numbers here, so the result is the same.
    let mut results = Vec::new();
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp32Strict] {
        tilewright::multiply(&device, precision, 1.0, &a, &b, 0.0, &mut c).unwrap();
        let mut result = Array2::zeros((2, 3));
        c.download(result.view_mut()).unwrap();
        results.push(result);
    }
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    assert_eq!(b.into_matrix().rows(), 5);
}

#[test]
fn matrices_without_elements_and_memory_that_is_too_small() {
    let device = Device::cpu(Checks::Full);
    let empty = |rows, cols| DeviceMatrix::upload(&device, Array2::zeros((rows, cols)).view()).unwrap();
    for (rows, cols) in [(0, 3), (3, 0), (0, 0)] {
        let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, empty(rows, cols)).unwrap();
        let (a, mut c) = (empty(2, rows), empty(2, cols));
        tilewright::multiply(&device, Precision::Fp32, 1.0, &a, &packed, 0.0, &mut c).unwrap();
        let mut result = Array2::from_elem((2, cols), 7.0);
        c.download(result.view_mut()).unwrap();
        assert!(result.iter().all(|&element| element == 0.0));
    }
    let bytes = PackedMatrix::bytes(&device, Precision::Fp32, Side::Right, &empty(7, 5)).unwrap();
    let small = device.allocate(bytes / 4 - 1).unwrap();
    let error = PackedMatrix::new_in(small, &device, Precision::Fp32, Side::Right, empty(7, 5)).unwrap_err();
    assert!(matches!(error, Error::WorkspaceTooSmall { .. }), "{error}");
}
