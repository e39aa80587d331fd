//! Products with an operand that selects: the identity, permutations, columns or rows of another matrix. What they make is the other operand's elements to
//! the last bit, whatever kernel is chosen.

use cuda_std::executor::Checks;
use ndarray::Array2;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use tests::invariance::upload;
use tests::{Layouts, Planned, Problem, Sizes};
use tilewright::plan::{Description, DeviceFacts, Options, plan};
use tilewright::{Device, Order, Precision, kernels};

/// A matrix of so many rows, each of which has one number other than zero at most, and that a power of two.
fn selecting([rows, cols]: [usize; 2], generator: &mut StdRng) -> Array2<f32> {
    let mut places: Vec<usize> = (0..rows).map(|row| row % cols).collect();
    if generator.random() {
        places.shuffle(generator);
    }
    let (scaled, with_zeros) = (generator.random::<bool>(), generator.random::<bool>());
    let mut matrix = Array2::zeros([rows, cols]);
    for (row, place) in places.into_iter().enumerate() {
        if !(with_zeros && row % 3 == 1) {
            matrix[[row, place]] = if scaled { 2f32.powi(generator.random_range(-30..30)) } else { 1.0 }
                * if row % 2 == 0 { 1.0 } else { -1.0 };
        }
    }
    matrix
}

/// Numbers with all 24 bits, of very different magnitudes.
fn numbers([rows, cols]: [usize; 2], generator: &mut StdRng) -> Array2<f32> {
    Array2::from_shape_fn([rows, cols], |_| {
        generator.random_range(-1.0..1.0f32) * 2f32.powi(generator.random_range(-8..9))
    })
}

/// By plans for these GPUs, of shapes by chance.
#[test]
fn what_is_selected_keeps_its_bits_whatever_is_planned() {
    let device = Device::cpu(Checks::Bounds);
    let gpus = [
        DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30),
        DeviceFacts::of_gpu("NVIDIA A100", (8, 0), 108, 80 << 30),
        DeviceFacts::of_gpu("NVIDIA L4", (8, 9), 58, 24 << 30),
    ];
    let cases: Vec<_> = gpus.iter().flat_map(|gpu| (0..16).map(move |seed| (gpu, seed))).collect();
    let mut planned: Vec<&str> = (cases.into_par_iter())
        .map(|(gpu, seed)| {
            let mut generator = StdRng::seed_from_u64(seed);
            let mut size = |most| generator.random_range(1..most);
            let [m, n, k] =
                if seed % 4 == 3 { [size(700), size(700), size(300)] } else { [size(150), size(150), size(900)] };
            let in_a = generator.random();
            let [a, b] = match in_a {
                true => [selecting([m, k], &mut generator), numbers([k, n], &mut generator)],
                false => [numbers([m, k], &mut generator), selecting([n, k], &mut generator).reversed_axes()],
            };
            let mut order = || if generator.random() { Order::RowMajor } else { Order::ColumnMajor };
            let there = |it: &Array2<f32>, order| upload(&device, std::slice::from_ref(it), order, 0).unwrap();
            let (on_a, on_b, mut on_c) =
                (there(&a, order()), there(&b, order()), there(&Array2::zeros([m, n]), order()));
            let product = Description::of(1.0, &on_a, &on_b, 0.0, &on_c).unwrap();
            let plan = plan(gpu, &product, &Options::from(Precision::Fp32)).unwrap();
            plan.run(&device, 1.0, &on_a, &on_b, 0.0, &mut on_c, &mut plan.workspace(&device).unwrap()).unwrap();
            let mut results = Array2::zeros([m, n]);
            on_c.download(results.view_mut()).unwrap();
            // In double precision, sums of one product are exact.
            let expected = a.mapv(f64::from).dot(&b.mapv(f64::from)).mapv(|x| x as f32);
            let name = plan.kernel().name;
            let differing = results.indexed_iter().find(|(at, result)| **result != expected[*at]);
            assert_eq!(differing, None, "{gpu}, seed {seed}, {m}x{n}x{k}, selects in A: {in_a}: {name}");
            name
        })
        .collect();
    planned.sort_unstable();
    planned.dedup();
    assert!(planned.len() > 7, "different kernels have to be among them: {planned:?}");
}

/// So many columns and terms that blocks share the scan of their operands, and another kernel computes elements again.
#[test]
fn blocks_that_share_a_scan_find_out_together() {
    let device = Device::cpu(Checks::Bounds);
    let shape = Sizes { m: 40, n: 900, k: 1024 };
    let cases: Vec<_> =
        ["nn", "tt"].into_iter().flat_map(|layouts| [true, false].map(|in_a| (layouts, in_a))).collect();
    cases.into_par_iter().for_each(|(layouts, in_a)| {
        let kernel = kernels::find(&format!("gemm_wgmma_{layouts}_fp32_3xtf32")).unwrap();
        let layouts = Layouts::ALL[if layouts == "nn" { 0 } else { 3 }];
        let batch = Problem::new(shape, layouts, 21).selecting(in_a).into();
        assert_eq!(Planned::check_closely(&device, kernel, Some(1), &batch, 0.0), Ok(true), "{}, {in_a}", kernel.name);
    });
}
