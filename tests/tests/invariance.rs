//! Invariant plans: a row has the same bits whatever rows come with it. And what they rest on: kernels with one order of sums make the same bits.

use std::collections::HashMap;

use cuda_std::executor::Checks;
use ndarray::Array2;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rayon::prelude::*;
use tests::invariance;
use tilewright::kernels::{self, SumOrder};
use tilewright::plan::{Description, DeviceFacts, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, Order, Precision};

const H200: fn() -> DeviceFacts = || DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
const A100: fn() -> DeviceFacts = || DeviceFacts::of_gpu("NVIDIA A100", (8, 0), 108, 80 << 30);
const L4: fn() -> DeviceFacts = || DeviceFacts::of_gpu("NVIDIA L4", (8, 9), 58, 24 << 30);

/// On the kernels that plans for these GPUs take, which the executor runs.
#[test]
fn rows_keep_their_bits_on_every_gpu() {
    let device = Device::cpu(Checks::Bounds);
    use Precision::*;
    let cases = [
        (H200(), Fp32, [130, 700], 0),
        (H200(), Fp32, [30, 90], 3),
        (H200(), Fp32Strict, [90, 150], 2),
        (H200(), Fp32Rounded, [70, 150], 1),
        (H200(), Tf32, [70, 300], 2),
        (H200(), Bf16, [70, 300], 1),
        (A100(), Fp32, [130, 300], 1),
        (L4(), Fp32, [130, 300], 2),
        (L4(), Fp16, [70, 150], 3),
    ];
    let compared: Vec<_> = cases
        .into_par_iter()
        .map(|(gpu, precision, sizes, seed)| {
            let compared =
                invariance::check(&device, &gpu, precision, sizes, seed).unwrap_or_else(|why| panic!("{gpu}: {why}"));
            println!("{gpu}, {precision}, {sizes:?}: {compared:?}");
            compared
        })
        .collect();
    assert!(compared.iter().any(|it| it.kernels.len() > 2), "kernels with other tiles have to be among them");
    assert!(compared.iter().any(|it| it.splits > 1), "sums have to be divided in some");
}

/// Each kernel's bits are those of the first one with its scheme and order, for each number of splits, on rows that need the fallback, too.
#[test]
fn kernels_with_one_order_make_the_same_bits() {
    let device = Device::cpu(Checks::Bounds);
    let mut generator = StdRng::seed_from_u64(7);
    for [m, n, k] in [[70, 72, 520], [260, 40, 70], [37, 300, 7]] {
        let a = invariance::rows_of_a(m, k, &mut generator);
        let b = invariance::columns_of_b(k, n, &mut generator);
        let orders = [Order::RowMajor, Order::ColumnMajor];
        let there = |it: &Array2<f32>| {
            orders.map(|order| invariance::upload(&device, std::slice::from_ref(it), order, 0).unwrap())
        };
        let (a, b) = (there(&a), there(&b));
        let mut first: HashMap<_, (Array2<f32>, &str)> = HashMap::new();
        let mut compared = 0;
        for kernel in kernels::ALL.iter().filter(|kernel| kernel.sums != SumOrder::Own) {
            for (splits, a, b) in [1, 2, 5].into_iter().flat_map(|splits| {
                let b = &b;
                a.iter().flat_map(move |a| b.iter().map(move |b| (splits, a, b)))
            }) {
                let mut c = Array2::ones((m, n));
                let mut c_there = DeviceMatrix::upload(&device, c.view()).unwrap();
                let product = Description::of(1.5, a, b, 0.5, &c_there).unwrap();
                let options = Options { splits: Some(splits), ..Options::from(*kernel) };
                let Ok(plan) = GemmPlan::new(&device, &product, &options) else {
                    continue; // It has no splits, or is for another layout, or for fewer terms.
                };
                let mut workspace = plan.workspace(&device).unwrap();
                plan.run(&device, 1.5, a, b, 0.5, &mut c_there, &mut workspace).unwrap();
                c_there.download(c.view_mut()).unwrap();
                let is_transposed = plan.explanation().notes.iter().any(|note| note.contains("as the transpose"));
                let order = if is_transposed { kernel.sums.of_transposes() } else { kernel.sums };
                if order == SumOrder::Own {
                    continue; // Computed as the transposes, it has an order that no other kernel has.
                }
                let by = (c.clone(), kernel.name);
                let (expected, name) = first.entry((kernel.scheme, order, splits)).or_insert(by);
                let differs =
                    |one: f32, other: f32| one.to_bits() != other.to_bits() && !(one.is_nan() && other.is_nan());
                for ((place, &one), &other) in c.indexed_iter().zip(expected.iter()) {
                    let by = kernel.name;
                    assert!(
                        !differs(one, other),
                        "{place:?}: {one:e} by {by}, {other:e} by {name}, {order:?}, {splits} splits"
                    );
                }
                compared += usize::from(*name != kernel.name);
            }
        }
        println!("{m}x{n}x{k}: {} orders, {compared} products compared", first.len());
        assert!(compared > 40, "{compared}");
    }
}

/// Where nothing can keep its bits, that is an error that says what can.
#[test]
fn what_depends_on_other_rows_is_refused() {
    let product = invariance::product(300, 100, 200);
    let options = Options { invariant: true, ..Options::from(Precision::Fp32Normwise) };
    let error = tilewright::plan::plan(&H200(), &product, &options).unwrap_err().to_string();
    assert!(error.contains("whatever rows come with them") && error.contains("fp32-rounded"), "{error}");
    let named = kernels::find("gemm_wgmma_packed_fp32_3xfp16").unwrap();
    let error = tilewright::plan::plan(&H200(), &product, &Options { invariant: true, ..named.into() }).unwrap_err();
    assert!(error.to_string().contains("whatever rows come with them"), "{error}");
}
