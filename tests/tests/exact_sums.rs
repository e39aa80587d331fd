//! What [`Precision::Fp32Ozaki`](tilewright::Precision::Fp32Ozaki) promises: errors against f64, and bits that do not depend on other rows.

use cuda_std::executor::Checks;
use gpu_kernels::gemm::hopper::digits::MOST_TERMS;
use host::bench::inputs::Inputs;
use tests::Sizes;
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, kernels};

const KERNEL: &str = "gemm_wgmma_packed_fp32_10xint8";

/// The product of A row-major and B column-major, with sums divided among so many blocks.
fn multiply(a: &[f32], b: &[f32], Sizes { m, n, k }: Sizes, splits: u32) -> Vec<f32> {
    let device = Device::cpu(Checks::Bounds);
    let matrix = |numbers: &[f32], rows, cols, strides| {
        DeviceMatrix::new(device.upload(numbers).unwrap(), rows, cols, strides).unwrap()
    };
    let (a, b) = (matrix(a, m, k, [k, 1]), matrix(b, k, n, [1, k]));
    let mut c = matrix(&vec![0.0; m * n], m, n, [n, 1]);
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let options = Options { splits: Some(splits), ..Options::from(kernels::find(KERNEL).unwrap()) };
    let plan = GemmPlan::new(&device, &product, &options).unwrap();
    plan.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut plan.workspace(&device).unwrap()).unwrap();
    let mut results = vec![0.0f32; m * n];
    c.buffer().copy_to(&mut results).unwrap();
    results
}

/// Sums in f64, whose own errors are 2⁻²⁵ of what is looked for.
fn exact(a: &[f32], b: &[f32], Sizes { m, n, k }: Sizes) -> Vec<f64> {
    let sum =
        |row: usize, col: usize| (0..k).map(|l| f64::from(a[row * k + l]) * f64::from(b[col * k + l])).sum::<f64>();
    (0..m * n).map(|index| sum(index / n, index % n)).collect()
}

fn largest(line: &[f32]) -> f64 {
    line.iter().fold(0.0, |largest: f64, &x| largest.max(f64::from(x).abs()))
}

#[test]
fn errors_are_within_the_bound() {
    for inputs in [
        Inputs::Uniform01,
        Inputs::Uniform11,
        Inputs::LogUniform,
        Inputs::Graded,
        Inputs::OneHot,
        Inputs::OneHuge,
        Inputs::Cancelling,
        Inputs::Integers,
    ] {
        for (sizes, splits) in [(Sizes { m: 24, n: 20, k: 640 }, 1), (Sizes { m: 5, n: 30, k: 900 }, 3)] {
            let Sizes { m, n, k } = sizes;
            let (a, b) = (inputs.a(m, k, false, 77), inputs.b(n, k, false, 77));
            let (found, expected) = (multiply(&a, &b, sizes, splits), exact(&a, &b, sizes));
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let (row, col) = (index / n, index % n);
                let lines = largest(&a[row * k..][..k]) * largest(&b[col * k..][..k]);
                let lost = 4.02 * k as f64 * 2f64.powi(-28);
                let bound = expected.abs() * 2f64.powi(-24) + lost * lines;
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= bound, "{inputs}, k={k}, {splits} splits: {row}, {col}: {error:e} of {bound:e}");
            }
        }
    }
}

#[test]
fn results_are_nearly_correctly_rounded() {
    for (inputs, most) in [(Inputs::Uniform01, 3e-8), (Inputs::Uniform11, 3e-8)] {
        for (sizes, splits) in [(Sizes { m: 48, n: 40, k: 1500 }, 1), (Sizes { m: 48, n: 40, k: 1500 }, 2)] {
            let (a, b) = (inputs.a(sizes.m, sizes.k, false, 3), inputs.b(sizes.n, sizes.k, false, 3));
            let (found, expected) = (multiply(&a, &b, sizes, splits), exact(&a, &b, sizes));
            let square = |x: f64| x * x;
            let error: f64 = found.iter().zip(&expected).map(|(&found, &exact)| square(f64::from(found) - exact)).sum();
            let norm: f64 = expected.iter().copied().map(square).sum();
            let frobenius = (error / norm).sqrt();
            assert!(frobenius <= most, "{inputs}, {splits} splits: {frobenius:e}");
        }
    }
    // A matrix that selects gives each bit of what is not much smaller than the largest of its line.
    let sizes = Sizes { m: 50, n: 7, k: 50 };
    let a: Vec<f32> = (0..50 * 50).map(|i| if i % 50 == (i / 50 * 7 + 3) % 50 { 1.0 } else { 0.0 }).collect();
    let b: Vec<f32> = Inputs::Uniform01.b(7, 50, false, 9).into_iter().map(|x| 0.1 + x).collect();
    for (index, found) in multiply(&a, &b, sizes, 1).into_iter().enumerate() {
        let (row, col) = (index / 7, index % 7);
        assert_eq!(found, b[col * 50 + (row * 7 + 3) % 50], "{row}, {col}");
    }
}

#[test]
fn a_row_has_the_same_bits_wherever_it_is() {
    let (m, n, k) = (300, 9, 200);
    let (a, b) = (Inputs::LogUniform.a(m, k, false, 1), Inputs::LogUniform.b(n, k, false, 1));
    let whole = multiply(&a, &b, Sizes { m, n, k }, 1);
    for (first, rows) in [(0, 1), (1, 130), (299, 1), (150, 150)] {
        let part = multiply(&a[first * k..(first + rows) * k], &b, Sizes { m: rows, n, k }, 1);
        assert!(part == whole[first * n..(first + rows) * n], "rows {first} to {}", first + rows);
    }
}

/// Sums as large as any, but for the last digits: 24 bits do not reach them.
#[test]
fn sums_of_the_most_terms_do_not_overflow() {
    let k = MOST_TERMS as usize;
    // Digits 63, 127, 127 and 64.
    let x = 0x3F7F_7F40u32 as f32;
    let found = multiply(&vec![x; k], &vec![x; k], Sizes { m: 1, n: 1, k }, 1)[0];
    let expected = f64::from(x) * f64::from(x) * k as f64;
    assert!((f64::from(found) / expected - 1.0).abs() < 1e-7, "{found} of {expected}");
}
