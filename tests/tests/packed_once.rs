//! Matrices that are packed once, on the CPU executor, by plans for an H200.

use cuda_std::executor::Checks;
use ndarray::{Array2, s};
use tests::packed_once::{KERNELS, check};
use tilewright::plan::{Description, GemmPlan, Options, Workspace};
use tilewright::{Device, DeviceMatrix, Error, Operand, PackedMatrix, Precision, Side, kernels};

#[test]
fn products_have_the_bits_of_those_that_pack_by_themselves() {
    let device = Device::cpu(Checks::Bounds);
    let gpu = tilewright::plan::DeviceFacts::of(&device);
    for name in KERNELS {
        let kernel = kernels::find(name).unwrap();
        let compared = check(&device, &gpu, kernel, 12).unwrap_or_else(|error| panic!("{error}"));
        // Some store whole rows of C, or by tensor maps: not every C can be stored so.
        assert!(compared.products >= 9, "{name}: {compared:?}");
        assert!(
            compared.products == 36 || ["short", "staged"].iter().any(|kind| name.contains(kind)),
            "{name}: {compared:?}"
        );
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

/// How results are stored changes none: with numbers that are added as exceptions, with lines that are left to the fallback, and without.
#[test]
fn results_that_tma_stores_have_the_bits_of_those_that_consumers_store() {
    let device = Device::cpu(Checks::Bounds);
    let (m, n, k) = (290, 268, 200);
    let cases = [(None, 1.0, 0.0), (Some(1e-30), -0.7, 0.3), (Some(f32::INFINITY), 1.0, 0.0), (None, 1.0, -1.5)];
    for (special, alpha, beta) in cases {
        let numbers = |seed: usize, rows: usize, cols: usize| {
            let number = |row, col| ((row * 29 + col * 13 + seed * 5) % 31) as f32 / 9.0 - 1.4;
            let mut matrix = Array2::from_shape_fn((rows, cols), |(row, col)| number(row, col));
            matrix[[rows / 3, cols / 2]] = special.unwrap_or(1.0);
            DeviceMatrix::upload(&device, matrix.view()).unwrap()
        };
        let (a, b) = (numbers(1, m, k), numbers(2, k, n));
        for precision in ["3xfp16", "normwise"] {
            let [stored, by_tma] = ["", "_staged"].map(|how| {
                let kernel = kernels::find(&format!("gemm_wgmma_packed{how}_fp32_{precision}")).unwrap();
                let mut c = numbers(3, m, n);
                tilewright::multiply(&device, kernel, alpha, &a, &b, beta, &mut c).unwrap();
                let mut results = vec![0.0; m * n];
                c.buffer().copy_to(&mut results).unwrap();
                results.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
            });
            assert!(stored == by_tma, "{precision}, {special:?}, {alpha}, {beta}");
        }
    }
}

#[test]
fn one_matrix_packed_once_or_not_serves_all_products_of_a_batch() {
    const PRODUCTS: usize = 3;
    let device = Device::cpu(Checks::Bounds);
    let numbers = |seed: usize, rows: usize, cols: usize| {
        Array2::from_shape_fn((rows, cols), |(row, col)| ((row * 31 + col * 17 + seed * 7) % 23) as f32 / 7.0 - 1.3)
    };
    let (m, n, k) = (37, 36, 70);
    let [weights, others] = [numbers(1, m, k), numbers(2, PRODUCTS * k, n)];
    let upload = |matrix: &Array2<f32>| DeviceMatrix::upload(&device, matrix.view()).unwrap();
    let batch = |matrix: &Array2<f32>, rows: usize| {
        let buffer = device.upload(matrix.as_slice().unwrap()).unwrap();
        DeviceMatrix::new_batch(buffer, [rows, n], [n, 1], PRODUCTS, rows * n).unwrap()
    };
    let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Left, upload(&weights)).unwrap();
    for name in [
        "gemm_wgmma_packed_fp32_3xfp16",
        "gemm_wgmma_packed_staged_fp32_3xfp16",
        "gemm_wgmma_nn_fp32_3xtf32",
        "gemm_batched_32_fp32",
        "gemm_naive_2d_fp32",
    ] {
        let kernel = kernels::find(name).unwrap();
        let product = |a: Operand<'_>, b: &DeviceMatrix, c: &mut DeviceMatrix, rows: usize| {
            tilewright::multiply(&device, kernel, 1.0, a, b, 0.0, c).unwrap();
            let mut results = vec![0.0; rows * n];
            c.buffer().copy_to(&mut results).unwrap();
            results
        };
        let one_by_one: Vec<f32> = (0..PRODUCTS)
            .flat_map(|number| {
                let b = upload(&others.slice(s![number * k..(number + 1) * k, ..]).to_owned());
                product((&upload(&weights)).into(), &b, &mut upload(&Array2::zeros((m, n))), m)
            })
            .collect();
        let b = batch(&others, k);
        for a in [Operand::from(&upload(&weights)), Operand::from(&packed)] {
            let mut c = batch(&Array2::zeros((PRODUCTS * m, n)), m);
            assert_eq!(product(a, &b, &mut c, PRODUCTS * m), one_by_one, "{name}, {a:?}");
        }
    }
    // Two are not one for each of three, nor one for all.
    let (two, b) = (upload(&weights).into_batch(2, 0).unwrap(), batch(&others, k));
    let c = batch(&Array2::zeros((PRODUCTS * m, n)), m);
    let error = Description::of(1.0, &two, &b, 0.0, &c).unwrap_err().to_string();
    assert!(error.contains("the number of matrices A, not being 1, is 2") && error.contains('3'), "{error}");
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
