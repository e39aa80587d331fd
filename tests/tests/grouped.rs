//! Grouped products: one launch for each kernel, whatever the number of products, each of which is what it would be alone.

mod fake_driver;
#[path = "fake_driver/log.rs"]
mod log;

use std::sync::Arc;

use cuda_std::executor::{Changes, Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::batched::TILE_16;
use gpu_kernels::gemm::grouped::{GroupedProduct, Products, gemm_grouped_16_fp32};
use gpu_kernels::gemm::mma::SHAPE_64X64;
use gpu_kernels::gemm::mma::grouped::gemm_grouped_mma_64x64_nn_fp32_3xtf32;
use gpu_kernels::{Grid, Matrix, MatrixMut};
use log::Log;
use rayon::prelude::*;
use tests::grouped::{self, Member};
use tests::{Layouts, Operand, Problem, Sizes};
use tilewright::kernels::{self, GROUPED};
use tilewright::plan::{self, Description, DeviceFacts, GroupedPlan, Options, Placement};
use tilewright::{Accuracy, Device, DeviceMatrix, Error, Order, Precision};

/// A product of random matrices, A and B row-major.
fn member(m: usize, n: usize, k: usize, factors: [f32; 2]) -> Member {
    let [alpha, beta] = factors;
    Member { problem: Problem::new(Sizes { m, n, k }, Layouts::ALL[0], (m + n + k) as u64).scaled(alpha, beta) }
}

#[test]
fn every_kernel_gives_each_product_the_bits_that_it_has_alone() {
    let device = Device::cpu(Checks::Full);
    let failures: Vec<String> =
        GROUPED.par_iter().filter_map(|kernel| grouped::check_kernel(&device, kernel).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn groups_of_any_layouts_take_a_launch_for_each_kernel() {
    let device = Device::cpu(Checks::Full);
    for (seed, factors) in [(1, [1.0, 0.0]), (2, [0.5, -1.0])] {
        let members = Member::group(seed, 40, 200, None, factors);
        for precision in [Precision::Fp32, Precision::Fp32Strict] {
            let outcome = grouped::check(&device, &precision.into(), &members).unwrap();
            let names = outcome.kernels.iter().flatten().map(|kernel| kernel.name);
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            names.dedup();
            // On the executor, the last kernel that can: on tensor cores for each layout, and where elements have gaps, another one.
            let expected = if precision == Precision::Fp32 { 5 } else { 1 };
            assert_eq!((outcome.launches, names.len()), (expected, expected), "{names:?}");
        }
    }
}

#[test]
fn a_huge_product_among_tiny_ones_and_equal_ones() {
    let device = Device::cpu(Checks::Full);
    let mut members: Vec<Member> = (0..60).map(|i| member(1 + i % 3, 2 + i % 4, i % 6, [1.0, 1.0])).collect();
    members.insert(17, member(400, 300, 130, [1.0, 1.0]));
    for kernel in ["gemm_batched_4_fp32", "gemm_batched_16_fp32", "gemm_batched_32_fp32"] {
        grouped::check(&device, &kernels::find(kernel).unwrap().into(), &members).unwrap();
    }
    grouped::check(&device, &Options::default(), &members).unwrap();
    // What arrays of pointers are for: as many tiles each, found without a search.
    for side in [4, 7, 40] {
        let members: Vec<Member> = (0..37).map(|_| member(side, side, side, [2.0, 0.0])).collect();
        grouped::check(&device, &Precision::Fp32.into(), &members).unwrap();
        grouped::check(&device, &Precision::Fp32Strict.into(), &members).unwrap();
    }
}

#[test]
fn products_without_results_or_terms_and_groups_without_products() {
    let device = Device::cpu(Checks::Full);
    for factors in [[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]] {
        let sizes = [(0, 5, 4), (5, 0, 4), (6, 5, 0), (0, 0, 0), (3, 4, 5), (70, 1, 0)];
        let mut members: Vec<Member> = sizes.into_iter().map(|(m, n, k)| member(m, n, k, factors)).collect();
        let outcome = grouped::check(&device, &Options::default(), &members).unwrap();
        assert_eq!(outcome.kernels.iter().filter(|kernel| kernel.is_none()).count(), 3);
        members.truncate(2);
        assert_eq!(grouped::check(&device, &Options::default(), &members).unwrap().launches, 0);
    }
    assert_eq!(grouped::check(&device, &Options::default(), &[]).unwrap().launches, 0);
    tilewright::multiply_grouped(&device, Precision::Fp32, 1.0, &[], 0.0, &mut []).unwrap();
}

#[test]
fn what_a_zero_factor_hides_is_not_read() {
    let device = Device::cpu(Checks::Full);
    for precision in [Precision::Fp32, Precision::Fp32Strict] {
        let with_nan = |factors: [f32; 2], of_c: bool| -> Vec<Member> {
            let nan = |mut it: Member| {
                let Problem { a, b, c, .. } = &mut it.problem;
                if of_c {
                    c.fill(f32::NAN)
                } else {
                    [a, b].into_iter().for_each(|operand| operand.fill(f32::NAN))
                }
                it
            };
            [(70, 30, 20), (3, 4, 50)].into_iter().map(|(m, n, k)| nan(member(m, n, k, factors))).collect()
        };
        for (factors, of_c) in [([1.5, 0.0], true), ([0.0, 0.5], false), ([0.0, 0.0], false)] {
            let outcome = grouped::run(&device, &precision.into(), &with_nan(factors, of_c)).unwrap();
            assert!(outcome.results.iter().all(|result| result.elements().all(f32::is_finite)), "{factors:?}");
        }
    }
}

/// Of infinities, NaNs and numbers that cannot be decomposed, in one product of several.
#[test]
fn special_values_are_those_of_the_product_alone() {
    let special = |seed: u64| {
        let values = [f32::INFINITY, f32::NAN, f32::MAX, 1e-42, -0.0, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1.0];
        let mut it = member(70, 66, 40, [1.0, 0.0]);
        for row in 0..8 {
            it.problem.a.set(row * 9, (row + seed as usize) % 40, values[row]);
            it.problem.b.set((3 * row) % 40, row * 8, values[(row + 3) % 8]);
        }
        it
    };
    let tiny = Member { problem: member(65, 64, 33, [1.0, 0.0]).problem.with_tiny_elements() };
    let members = [member(64, 64, 64, [1.0, 0.0]), special(1), tiny, special(5), member(9, 3, 100, [1.0, 0.0])];
    let device = Device::cpu(Checks::Full);
    let names = ["gemm_batched_8_fp32", "gemm_mma_64x64_nn_fp32_3xtf32", "gemm_wgmma_64x64_k32_nn_fp32_3xtf32"];
    names.into_par_iter().for_each(|name| {
        let outcome = grouped::run(&device, &kernels::find(name).unwrap().into(), &members).unwrap();
        grouped::check_bits(&device, &members, &outcome).unwrap();
        // What is in one product is in no other one.
        let is_finite = |result: &Operand| result.elements().all(f32::is_finite);
        assert_eq!(outcome.results.iter().map(is_finite).collect::<Vec<_>>(), [true, false, true, false, true]);
    });
}

/// A sum that is −0 stays −0, also where other teams of the block have more to add up.
#[test]
fn a_team_adds_nothing_behind_its_own_k() {
    let mut short = member(3, 3, 4, [1.0, 0.0]);
    short.problem.a.fill(1e-30);
    short.problem.b.fill(-1e-30);
    let members = [short, member(3, 3, 100, [1.0, 0.0])];
    let device = Device::cpu(Checks::Full);
    for kernel in &kernels::BATCHED {
        let outcome = grouped::run(&device, &kernel.into(), &members).unwrap();
        grouped::check_bits(&device, &members, &outcome).unwrap();
        assert!(outcome.results[0].elements().all(|sum| sum.to_bits() == (-0.0f32).to_bits()), "{}", kernel.name);
    }
}

#[test]
fn messages_name_the_product_and_what_to_do() {
    let device = Device::cpu(Checks::Bounds);
    let refused = |options: Options, members: &[Member]| {
        grouped::run(&device, &options, members).err().expect("it is refused").to_string()
    };
    let contains = |message: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let mut members = [member(8, 8, 8, [1.0, 0.0]), member(8, 9, 7, [1.0, 0.0])];
    for (precision, what) in [(Precision::Tf32, "tf32"), (Precision::Fp32Rounded, "fp32-rounded")] {
        contains(
            refused(precision.into(), &members),
            &["product 0 of the group", what, "It can be computed in fp32-strict or fp32"],
        );
    }
    contains(
        refused(Accuracy::Guarantee(1e-9).into(), &members),
        &["product 0", "guarantee=1e-9", "ask for that or more"],
    );
    let naive = refused((&kernels::GEMM_NAIVE_2D_FP32).into(), &members);
    contains(naive, &["gemm_naive_2d_fp32", "no form for grouped", "gemm_batched_32_fp32"]);
    let splits = Options { splits: Some(4), ..Options::default() };
    contains(refused(splits, &members), &["4 splits", "leave out the splits"]);
    // A kernel by its name, for another layout.
    let tt = kernels::find("gemm_mma_64x64_tt_fp32_3xtf32").unwrap();
    contains(refused(tt.into(), &members), &["product 0", "A stored column-major", "gemm_mma_64x64_nn_fp32_3xtf32"]);
    // Matrices that make no product.
    members[1].problem.b = Operand::random(6, 9, Layouts::ALL[0].b, 1);
    contains(refused(Options::default(), &members), &["product 1 of the group", "columns of A is 7", "rows of B is 6"]);

    let matrix = |device: &Device, rows, cols| {
        DeviceMatrix::new(device.upload(&vec![1.0f32; rows * cols]).unwrap(), rows, cols, [cols, 1]).unwrap()
    };
    let (a, b, mut c) = (matrix(&device, 4, 4), matrix(&device, 4, 4), matrix(&device, 4, 4));
    let mut multiply = |a: &DeviceMatrix| {
        let operands = [(a, &b)];
        tilewright::multiply_grouped(&device, Precision::Fp32, 1.0, &operands, 0.0, &mut [&mut c])
            .unwrap_err()
            .to_string()
    };
    let batch = matrix(&device, 8, 4).narrowed(4, 4).into_batch(2, 16).unwrap();
    contains(multiply(&batch), &["product 0", "A is a batch of 2 matrices"]);
    contains(
        multiply(&matrix(&Device::cpu(Checks::Bounds), 4, 4)),
        &["product 0", "A is in memory of", "upload it there"],
    );
    let none = tilewright::multiply_grouped(&device, Precision::Fp32, 1.0, &[(&a, &b)], 0.0, &mut []);
    contains(none.unwrap_err().to_string(), &["pairs of operands is 1", "results is 0"]);
}

/// Memory of another library, where matrices can lie in each other. `parts` are the places of A, B and C of each product.
fn in_one_tensor(parts: &[[usize; 3]]) -> Result<Vec<f32>, Error> {
    let device = Device::cpu(Checks::Full);
    let mut memory = vec![1.0f32; 64 * 64];
    let address = memory.as_mut_ptr().expose_provenance();
    let lent = |place: usize| {
        // SAFETY: the memory is there until all has been computed, which it is on the executor when a call returns.
        let buffer = unsafe { device.lent::<f32>(address, 64 * 64) };
        DeviceMatrix::new(buffer, 4, 4, [64, 1]).unwrap().moved_by(place).unwrap()
    };
    let mut matrices: Vec<[DeviceMatrix; 3]> = parts.iter().map(|places| places.map(lent)).collect();
    let products = matrices.iter_mut().map(|[a, b, c]| (&*a, &*b, c));
    GroupedPlan::new(&device, &Options::default(), products)?.run(1.0, 0.0)?;
    drop(matrices);
    Ok(memory)
}

#[test]
fn results_may_be_columns_of_one_tensor_and_share_no_element() {
    // Row 20 has the results, side by side.
    let results = in_one_tensor(&[[0, 4, 1280], [8, 12, 1284], [0, 0, 1288]]).unwrap();
    assert_eq!(results[1280..1292], [4.0; 12]);
    assert_eq!(results[1292], 1.0);
    for (parts, first, second) in [
        ([[0, 4, 1280], [8, 12, 1283]], "C of product 0", "C of product 1"),
        ([[0, 4, 1280], [8, 12, 1280]], "C of product 0", "C of product 1"),
        ([[0, 4, 1280], [1280 + 3, 12, 2048]], "C of product 0", "A of product 1"),
        ([[0, 4, 4 + 3 * 64], [8, 12, 1280]], "B of product 0", "C of product 0"),
    ] {
        let message = in_one_tensor(&parts).unwrap_err().to_string();
        assert!(
            message.contains(first) && message.contains(second) && message.contains("memory of its own"),
            "{message}"
        );
    }
}

/// Two products of 20×20 with k = 18 in this processor's memory, whose table `change` changes: what the executor says of a kernel that
/// reads it.
fn with_table(executor: &Executor, is_small: bool, change: impl Fn(&mut [u64])) -> Result<Vec<f32>, String> {
    const SIZES: [usize; 3] = [20, 20, 18];
    let [m, n, k] = SIZES;
    let (a, b, mut c) = (vec![1.0f32; m * k], vec![1.0f32; k * n], vec![0.0f32; 2 * m * n]);
    let (first, second) = c.split_at_mut(m * n);
    let product = |c| GroupedProduct {
        a: Matrix::new(GlobalSlice::new(&a), m, k, k, 1).unwrap(),
        b: Matrix::new(GlobalSlice::new(&b), k, n, n, 1).unwrap(),
        c: MatrixMut::new(GlobalSliceMut::new(c), m, n, n, 1).unwrap(),
    };
    let products = Products::new(vec![product(first), product(second)]).unwrap();
    let group = products.group(&[0, 1], if is_small { TILE_16 } else { SHAPE_64X64 }).unwrap();
    let mut words = group.words().to_vec();
    change(&mut words);
    // SAFETY: what is changed are lengths, by which the executor checks: it ends a kernel before an access beyond.
    let gemm = unsafe { group.gemm(1.0, GlobalSlice::new(&words), 0.0) };
    match is_small {
        true => launch(executor, gemm_grouped_16_fp32 { gemm })?,
        false => launch(executor, gemm_grouped_mma_64x64_nn_fp32_3xtf32 { gemm })?,
    }
    Ok(c)
}

fn launch(executor: &Executor, kernel: impl Grid) -> Result<(), String> {
    let grid = kernel.grid();
    // SAFETY: all views are of memory of the caller, which is borrowed until the launch is over.
    unsafe { executor.launch(kernel, grid) }.map_err(|error| error.to_string())
}

/// Where the length of a matrix is in the table of two products: behind the ends of tiles, in the words of its product.
fn length(product: usize, matrix: usize) -> usize {
    16 + 16 * product + 4 * matrix + 1
}

/// Each access is compared with the memory of its own matrix, also where a whole product has other memory behind it.
#[test]
fn the_executor_knows_where_each_product_ends() {
    let executor = Executor::new(Checks::Full);
    for matrix in 0..3 {
        for product in 0..2 {
            let shorten = |words: &mut [u64]| words[length(product, matrix)] -= 1;
            // A and B have 360 elements, C has 400.
            let len = if matrix == 2 { "399" } else { "359" };
            for is_small in [true, false] {
                let reason = with_table(&executor, is_small, shorten).unwrap_err();
                assert!(reason.contains(len), "{reason}");
            }
        }
    }
    for is_small in [true, false] {
        assert_eq!(with_table(&executor, is_small, |_| ()), Ok(vec![18.0; 800]));
    }
}

/// Without any one of the calls that order threads, a check of the executor tells, or a result is wrong.
#[test]
fn no_call_that_orders_threads_can_be_left_out() {
    let run = |changes: &Arc<Changes>, is_small: bool| {
        with_table(&Executor::new(Checks::Full).with_changes(changes.clone()), is_small, |_| ())
    };
    for is_small in [true, false] {
        let changes = Arc::new(Changes::default());
        assert_eq!(run(&changes, is_small), Ok(vec![18.0; 800]));
        let met = changes.take_met();
        let met: Vec<String> =
            met.iter().filter(|call| call.change.only_orders_less()).map(ToString::to_string).collect();
        assert!(met.len() >= 4, "{met:?}");
        let is_missed = |call: &String| {
            let changes = Changes::making(call).unwrap();
            run(&Arc::new(changes), is_small) != Ok(vec![18.0; 800])
        };
        let survivors: Vec<&String> = met.iter().filter(|call| !is_missed(call)).collect();
        // The body on tensor cores has one that keeps the compiler from moving loads, and no threads in order.
        assert!(survivors.len() <= usize::from(!is_small), "nobody has missed {survivors:?}");
        assert!(survivors.iter().all(|call| call.ends_with("sync_warp omitted")), "{survivors:?}");
    }
}

/// Products of these sizes, row-major.
fn descriptions(sizes: impl IntoIterator<Item = [usize; 3]>) -> Vec<Description> {
    let placed = Placement::row_major;
    let one = |[m, n, k]: [usize; 3]| Description::new(Sizes { m, n, k }, 1, placed(k), placed(n), placed(n)).unwrap();
    sizes.into_iter().map(one).collect()
}

#[test]
fn the_kernels_are_those_that_the_sum_of_tiles_is_fastest_with() {
    let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    let a100 = DeviceFacts::of_gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80 << 30);
    let kernels = |device: &DeviceFacts, sizes: Vec<[usize; 3]>, precision: Precision| {
        let explanation = plan::grouped_plan(device, &descriptions(sizes), &precision.into()).unwrap();
        explanation.launches.iter().map(|launch| launch.kernel.clone()).collect::<Vec<_>>()
    };
    let (tiny, experts) = (vec![[8, 8, 8]; 10_000], (0..64).map(|i| [i * 7, 1024, 512]).collect::<Vec<_>>());
    assert_eq!(kernels(&h200, tiny.clone(), Precision::Fp32), ["gemm_grouped_8_fp32"]);
    assert_eq!(kernels(&a100, tiny.clone(), Precision::Fp32), ["gemm_grouped_8_fp32"]);
    assert_eq!(kernels(&h200, experts.clone(), Precision::Fp32), ["gemm_grouped_wgmma_64x64_k32_nn_fp32_3xtf32"]);
    assert_eq!(kernels(&a100, experts.clone(), Precision::Fp32), ["gemm_grouped_mma_64x64_nn_fp32_3xtf32"]);
    assert_eq!(kernels(&h200, experts.clone(), Precision::Fp32Strict), ["gemm_grouped_32_fp32"]);
    // Both kinds, many of each: two launches, each with what is best for its products.
    let both = kernels(&h200, [tiny, experts].concat(), Precision::Fp32);
    assert_eq!((both.len(), &both[1][..]), (2, "gemm_grouped_wgmma_64x64_k32_nn_fp32_3xtf32"));
    assert!(["gemm_grouped_4_fp32", "gemm_grouped_8_fp32"].contains(&&both[0][..]), "{both:?}");
    // Few of each: one launch.
    assert_eq!(kernels(&h200, vec![[8, 8, 8], [100, 100, 100]], Precision::Fp32).len(), 1);

    let text = plan::grouped_plan(&h200, &descriptions([[64, 64, 64], [0, 3, 4]]), &Options::default()).unwrap();
    let text = text.to_string();
    for part in ["Plan for 2 grouped products", "the model estimates", "no results", "step 1", "tiles of", "estimated"]
    {
        assert!(text.contains(part), "{text}");
    }
}

/// Runs groups of more and more products on a driver that counts.
fn count_launches() {
    let log = Log::of_this_process();
    (log.begin)(0, 0, 0);
    let device = Device::cuda(0).unwrap();
    let calls = |after: usize, name: &str| log.names(after).filter(|called| called.starts_with(name)).count();
    let matrix = |rows: usize, cols: usize, order: Order| {
        let [lines, length] = order.lines(rows, cols);
        DeviceMatrix::new(device.allocate(lines * length).unwrap(), rows, cols, order.strides(length, 1)).unwrap()
    };
    for precision in [Precision::Fp32, Precision::Fp32Strict] {
        let mut launches = Vec::new();
        for count in [1, 10, 400] {
            let mut products: Vec<_> = (0..count)
                .map(|i| {
                    let [m, n, k] = [1 + i % 90, 1 + i % 77, 1 + i % 50];
                    (matrix(m, k, Order::RowMajor), matrix(k, n, Order::RowMajor), matrix(m, n, Order::RowMajor))
                })
                .collect();
            let plan = products.iter_mut().map(|(a, b, c)| (&*a, &*b, c));
            let mut plan = GroupedPlan::new(&device, &precision.into(), plan).unwrap();
            plan.load().unwrap();
            let before = log.count();
            plan.run(1.0, 0.5).unwrap();
            let queued = calls(before, "cuLaunchKernel");
            assert_eq!(queued, plan.kernels().len());
            assert_eq!(
                (calls(before, "cuMem"), calls(before, "cuStreamSynchronize")),
                (0, 0),
                "a run queues launches alone"
            );
            launches.push(queued);
            drop(plan);

            // In one call: the table is copied, in memory that is kept.
            for turn in 0..2 {
                let before = log.count();
                let operands: Vec<_> = products.iter().map(|(a, b, _)| (a, b)).collect();
                let mut results: Vec<_> = (0..count).map(|i| matrix(1 + i % 90, 1 + i % 77, Order::RowMajor)).collect();
                let mut results: Vec<_> = results.iter_mut().collect();
                let allocated = calls(before, "cuMemAlloc");
                tilewright::multiply_grouped(&device, precision, 1.0, &operands, 0.0, &mut results).unwrap();
                let allocated = calls(before, "cuMemAlloc") - allocated;
                assert_eq!((calls(before, "cuLaunchKernel"), calls(before, "cuMemcpyHtoD")), (queued, 1));
                assert!(allocated <= usize::from(turn == 0), "{allocated} allocations, turn {turn}");
            }
        }
        assert!(launches.iter().all(|&count| count <= 9), "{launches:?}");
        assert!(launches[2] <= launches[1] + 4, "they do not grow with the products: {launches:?}");
    }
}

#[test]
fn launches_do_not_grow_with_the_number_of_products() {
    for capability in ["8.0", "9.0"] {
        let variables = [("FAKE_CUDA_CAPABILITY", capability), ("FAKE_CUDA_VERSION", "13000")];
        fake_driver::isolated("launches_do_not_grow_with_the_number_of_products", &variables, count_launches);
    }
}
