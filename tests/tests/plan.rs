//! Plans: which kernel is chosen for what on which device, and what is refused and why.

use host::tables;
use std::sync::Arc;

use cuda_std::executor::Checks;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::table::{Entry, KernelTime, TableFault};
use tilewright::plan::{
    self, Description, DeviceFacts, GemmPlan, Options, Placement, Processor, Reason, Refusal, Table, Tables,
};
use tilewright::{Accuracy, Device, Error, Order, Orders, Precision, Sizes, Wanted};

fn gpu(name: &str, compute_capability: (u32, u32), multiprocessors: u32, gibibytes: u64) -> DeviceFacts {
    DeviceFacts::of_gpu(name, compute_capability, multiprocessors, gibibytes << 30)
}

fn h200() -> DeviceFacts {
    gpu("NVIDIA H200", (9, 0), 132, 140)
}

fn a100() -> DeviceFacts {
    gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80)
}

/// An H200 that was opened for portable PTX only.
fn portable_h200() -> DeviceFacts {
    DeviceFacts { processor: Processor::Gpu { compute_capability: (9, 0), sm_90a: false }, ..h200() }
}

fn cpu() -> DeviceFacts {
    DeviceFacts::of(&Device::cpu(Checks::Bounds))
}

/// A product without gaps, in a layout such as `NT`.
fn product(layout: &str, m: usize, n: usize, k: usize) -> Description {
    let Orders { a, b } = layout.parse().unwrap();
    let (a, b) = (Placement::dense(a, m, k), Placement::dense(b, k, n));
    Description::new(Sizes { m, n, k }, 1, a, b, Placement::row_major(n)).unwrap()
}

/// What the model chooses.
fn chosen(device: &DeviceFacts, product: &Description, precision: Precision) -> GemmPlan {
    let options = Options::from(precision);
    plan::plan(device, product, &options).unwrap()
}

fn name(device: &DeviceFacts, product: &Description, precision: Precision) -> &'static str {
    chosen(device, product, precision).kernel().name
}

fn kernel(name: &str) -> &'static KernelInfo {
    kernels::find(name).unwrap()
}

/// What a kernel would do.
fn plan_with(device: &DeviceFacts, product: &Description, name: &str, splits: u32) -> GemmPlan {
    let options = Options { splits: Some(splits), ..Options::from(kernel(name)) };
    plan::plan(device, product, &options).unwrap()
}

fn refusal(device: &DeviceFacts, product: &Description, options: Options) -> Refusal {
    match plan::plan(device, product, &options) {
        Err(Error::Ineligible { reason, .. }) => *reason,
        other => panic!("{:?}", other.map(|plan| plan.explanation().clone())),
    }
}

/// A batch of products that share A, or B, or neither.
fn batch(layout: &str, products: usize, [m, n, k]: [usize; 3], shared: [bool; 2]) -> Description {
    let Orders { a, b } = layout.parse().unwrap();
    let place = |order, rows: usize, cols: usize, shared: bool| Placement {
        batch_stride: if shared { 0 } else { rows * cols },
        ..Placement::dense(order, rows, cols)
    };
    let (a, b) = (place(a, m, k, shared[0]), place(b, k, n, shared[1]));
    let c = Placement { batch_stride: m * n, ..Placement::row_major(n) };
    Description::new(Sizes { m, n, k }, products, a, b, c).unwrap()
}

#[test]
fn an_operand_that_all_products_share_is_packed_once_and_loaded_where_it_is() {
    for layout in ["NN", "NT", "TN", "TT"] {
        let plans = |products, sizes| {
            [[true, false], [false, true], [false; 2]]
                .map(|shared| chosen(&h200(), &batch(layout, products, sizes, shared), Precision::Fp32))
        };
        let [of_a, of_b, of_none] = plans(32, [4096, 512, 4096]);
        let [packed_a, packed_b, packed_both] = [of_a, of_b, of_none].map(|plan| {
            assert_eq!(plan.kernel().name, "gemm_wgmma_packed_staged_fp32_3xfp16");
            plan.explanation().workspace_bytes as f64
        });
        // 31 of 32 matrices are packed no longer, each of which is as large as it was, and a little.
        let [size_a, size_b] = [4096.0 * 4096.0, 512.0 * 4096.0].map(|elements| 31.0 * 4.0 * elements);
        for (packed, size) in [(packed_a, size_a), (packed_b, size_b)] {
            let spared = (packed_both - packed) / size;
            assert!((1.0..1.05).contains(&spared), "{layout}: {spared}");
        }
        for plan in plans(16, [1024, 80, 228]) {
            assert!(plan.kernel().name.starts_with("gemm_wgmma_256x64_"), "{}", plan.kernel().name);
            assert_eq!(plan.explanation().workspace_bytes, 0);
        }
    }
}

/// Large operands whose lines begin anywhere are loaded as they are: neither copied nor packed first.
#[test]
fn operands_that_begin_anywhere_are_loaded_as_they_are() {
    for (layout, products, [m, n, k]) in [
        ("NN", 1, [16384, 59, 5333]),
        ("NT", 1, [96, 240, 787_917]),
        ("TN", 1, [325, 71, 556_944]),
        ("TT", 1, [1313, 83, 20_001]),
        // Matrices that do not begin at multiples of 16 bytes either.
        ("NN", 6, [5539, 128, 5539]),
    ] {
        let product = batch(layout, products, [m, n, k], [false; 2]);
        let plan = chosen(&h200(), &product, Precision::Fp32);
        let explanation = plan.explanation();
        assert!(plan.kernel().name.starts_with("gemm_wgmma_anywhere_"), "{layout} {m} {n} {k}: {}", plan.kernel().name);
        let partials = if plan.splits() > 1 { m * n.next_multiple_of(4) * 4 * plan.splits() as usize } else { 0 };
        assert!(explanation.workspace_bytes as usize <= 2 * partials, "{layout} {m} {n} {k}: {explanation:?}");
    }
    // Of others, a kernel that loads them by one map each takes less time.
    let aligned = batch("NN", 1, [16384, 60, 5336], [false; 2]);
    let refusal =
        kernels::find("gemm_wgmma_anywhere_nn_fp32_3xtf32").unwrap().refusal(&h200(), &aligned, Precision::Fp32, None);
    assert_eq!(refusal, Some(Refusal::Aligned));
}

#[test]
fn every_layout_has_its_kernel_on_every_device() {
    use Precision::{Bf16, Fp16, Fp32, Fp32Normwise, Fp32Ozaki, Fp32Rounded, Fp32Strict, Tf32};
    for layout in ["NN", "NT", "TN", "TT"] {
        let product = product(layout, 2048, 4096, 8192);
        let is = |device: &DeviceFacts, precision, pattern: &str| {
            let expected = pattern.replace("..", &layout.to_lowercase());
            assert_eq!(name(device, &product, precision), expected, "{layout} in {precision} on {device}");
        };
        is(&h200(), Fp32, "gemm_wgmma_packed_staged_fp32_3xfp16");
        is(&h200(), Fp32Normwise, "gemm_wgmma_packed_staged_fp32_normwise");
        is(&h200(), Fp32Ozaki, "gemm_wgmma_packed_fp32_10xint8");
        is(&h200(), Bf16, "gemm_wgmma_packed_bf16");
        is(&h200(), Fp16, "gemm_wgmma_packed_fp16");
        is(&h200(), Tf32, if layout == "NT" { "gemm_wgmma_nt_tf32" } else { "gemm_wgmma_tt_tf32" });
        is(&portable_h200(), Fp32, "gemm_mma_.._fp32_3xtf32");
        // Large tiles are the fastest, or those of 64×64, which leave fewer multiprocessors without one.
        let on_a100 = name(&a100(), &product, Fp32).replace("_64x64", "");
        assert_eq!(on_a100, format!("gemm_mma_{}_fp32_3xtf32", layout.to_lowercase()));
        is(&cpu(), Fp32, "gemm_mma_.._fp32_3xtf32");
        for device in [h200(), portable_h200(), cpu()] {
            is(&device, Fp32Strict, "gemm_register_tiled_.._fp32");
        }
        is(&a100(), Fp32Strict, "gemm_register_tiled_128_.._fp32");
        for device in [h200(), portable_h200(), a100(), cpu()] {
            is(&device, Fp32Rounded, "gemm_mma_128x128_.._fp32_fp64");
        }
        for device in [portable_h200(), a100(), cpu()] {
            is(&device, Tf32, "gemm_mma_.._tf32");
            is(&device, Bf16, "gemm_mma_.._bf16");
            is(&device, Fp16, "gemm_mma_.._fp16");
        }
    }
}

/// Where a tile takes little longer to compute than to store, TMA stores it while the next one is computed; not where rows of results begin anywhere.
#[test]
fn results_of_few_terms_are_stored_by_tma() {
    for (sizes, expected) in [
        ([8192, 8192, 64], "packed_short"),
        ([8192, 8192, 128], "packed_staged"),
        ([4752, 4752, 128], "packed_staged"),
        ([4096, 4096, 1024], "packed_staged"),
        ([8191, 8191, 128], "packed"),
        ([4095, 4095, 1024], "packed"),
    ] {
        let [m, n, k] = sizes;
        for layout in ["NN", "NT", "TN", "TT"] {
            let product = product(layout, m, n, k).with_factors(1.0, 0.0);
            let chosen = name(&h200(), &product, Precision::Fp32);
            assert_eq!(chosen, format!("gemm_wgmma_{expected}_fp32_3xfp16"), "{layout} {sizes:?}");
        }
    }
}

#[test]
fn what_three_fp16_products_are_not_fit_for_is_left_to_three_tf32_products() {
    for k in [512, 65_536] {
        let unfit = plan_with(&h200(), &product("NT", 2048, 2048, k), "gemm_wgmma_packed_fp32_3xfp16", 1);
        let fallback = "with gemm_wgmma_nt_fp32_3xtf32";
        assert!(unfit.explanation().steps.last().unwrap().ends_with(fallback), "k={k}: {}", unfit.explanation());
    }
}

#[test]
fn few_tiles_divide_long_sums_among_all_multiprocessors() {
    let plan = chosen(&h200(), &product("NN", 256, 256, 524_288), Precision::Fp32);
    assert_eq!((plan.kernel().name, plan.splits()), ("gemm_wgmma_nn_fp32_3xtf32", 66));
    assert_eq!(plan.explanation().blocks, 132);
    assert_eq!(plan.workspace_bytes(), 4 * 66 * 256 * 256);
    assert_eq!(plan.explanation().steps.len(), 2, "{}", plan.explanation());
    // Where C need not be kept, and many blocks have the same operands, they share the looking for those that cannot be
    // split: each has a mark, and another kernel looks at these last. Two columns of tiles are too few.
    let steps = |product: Description, splits| {
        plan_with(&h200(), &product.with_factors(1.0, 0.0), "gemm_wgmma_nn_fp32_3xtf32", splits)
    };
    assert_eq!(steps(product("NN", 256, 256, 524_288), 66).workspace_bytes(), 4 * 66 * 256 * 256);
    let plan = steps(product("NN", 2048, 4096, 8192), 1);
    assert_eq!((plan.workspace_bytes(), plan.explanation().blocks), (4 * 256, 256));
    assert!(plan.explanation().steps[1].contains("gemm_repair_fp32"), "{}", plan.explanation());
    // A product that fills the GPU anyway needs no second pass.
    assert_eq!(chosen(&h200(), &product("NN", 8192, 8192, 8192), Precision::Fp32).splits(), 1);
    assert_eq!(chosen(&h200(), &product("NN", 32_768, 32_768, 32), Precision::Fp32).splits(), 1);
}

#[test]
fn vectors_have_their_kernels_from_either_side() {
    let is = |product: Description, expected: &str, transposed: bool| {
        for device in [h200(), a100()] {
            let plan = chosen(&device, &product, Precision::Fp32);
            assert_eq!(plan.kernel().name, expected, "{product} on {device}");
            let told = plan.explanation().notes.iter().any(|note| note.contains("transpose"));
            assert_eq!(told, transposed, "{}", plan.explanation());
        }
    };
    is(product("NN", 2048, 1, 1_048_576), "gemv_split_fp32", false);
    is(product("TN", 2048, 1, 1_048_576), "gemv_transposed_split_fp32", false);
    // A row times a matrix is the matrix' transpose times a column.
    is(product("NN", 1, 2048, 65_536), "gemv_transposed_split_fp32", true);
    is(product("NT", 1, 2048, 65_536), "gemv_split_fp32", true);
    assert_eq!(name(&cpu(), &product("NN", 256, 1, 65_536), Precision::Fp32), "gemv_split_fp32");
}

#[test]
fn what_tensor_maps_cannot_describe_is_copied_first() {
    // Rows of 2949 and 5921 elements do not begin at multiples of 16 bytes.
    let irregular = product("NN", 8205, 5921, 2949);
    let plan = plan_with(&h200(), &irregular, "gemm_wgmma_nn_fp32_3xtf32", 1);
    assert_eq!(plan.explanation().steps.len(), 3, "{}", plan.explanation());
    assert!(plan.workspace_bytes() >= 4 * (8205 * 2952 + 2949 * 5924), "{}", plan.explanation());
    // Other kernels take them as they are.
    assert_eq!(chosen(&a100(), &irregular, Precision::Fp32).workspace_bytes(), 0);
    // An address is part of it.
    let mut aligned = product("NT", 2048, 2048, 2048);
    let three_tf32 = |product: &Description| plan_with(&h200(), product, "gemm_wgmma_nt_fp32_3xtf32", 1);
    assert_eq!(three_tf32(&aligned).explanation().steps.len(), 1);
    aligned.b.alignment = 4;
    let plan = three_tf32(&aligned);
    assert!(plan.explanation().steps[0].starts_with("copy B"), "{}", plan.explanation());
}

#[test]
fn tf32_copies_no_more_than_it_has_to() {
    let plan = |layout: &str, m, n, k| chosen(&h200(), &product(layout, m, n, k), Precision::Tf32);
    let is_transposed = |plan: &GemmPlan| plan.explanation().notes.iter().any(|note| note.contains("transpose"));
    for (layout, name, transposed) in
        [("NT", "gemm_wgmma_nt_tf32", false), ("TT", "gemm_wgmma_tt_tf32", false), ("NN", "gemm_wgmma_tt_tf32", true)]
    {
        let plan = plan(layout, 2048, 4096, 8192);
        assert_eq!((plan.kernel().name, plan.workspace_bytes()), (name, 0), "{}", plan.explanation());
        assert_eq!((is_transposed(&plan), plan.explanation().steps.len()), (transposed, 1), "{}", plan.explanation());
    }
    // One of the two has to be copied, and its copy is a transpose: the smaller one.
    for (m, n, transposed) in [(8192, 1024, false), (1024, 8192, true)] {
        let plan = plan("TN", m, n, 8192);
        assert_eq!(plan.kernel().name, "gemm_wgmma_tt_tf32");
        assert_eq!(
            (is_transposed(&plan), plan.workspace_bytes()),
            (transposed, 4 * 1024 * 8192),
            "{}",
            plan.explanation()
        );
        let copy = match transposed {
            false => "copy B into the workspace, column-major, columns 8192 apart, with matrix_copy_fp32",
            true => "copy A into the workspace, row-major, rows 8192 apart, with matrix_copy_fp32",
        };
        assert_eq!(plan.explanation().steps[0], copy, "{}", plan.explanation());
    }
    // Whatever lies otherwise is copied for a kernel that is named.
    let named = plan_with(&h200(), &product("TN", 300, 200, 4096), "gemm_wgmma_nt_tf32", 1);
    assert!(named.explanation().steps[0].starts_with("copy"), "{}", named.explanation());
    let mut spread = product("NT", 300, 200, 4096);
    spread.b = Placement { row_stride: 3, col_stride: 3 * 4096, ..spread.b };
    let plan = plan_with(&h200(), &spread, "gemm_wgmma_nt_tf32", 1);
    assert_eq!(plan.workspace_bytes(), 4 * 200 * 4096, "{}", plan.explanation());
}

#[test]
fn packed_operands_come_from_anywhere() {
    const NAMES: [&str; 5] = [
        "gemm_wgmma_packed_bf16",
        "gemm_wgmma_packed_fp16",
        "gemm_wgmma_packed_fp32_3xfp16",
        "gemm_wgmma_packed_fp32_normwise",
        "gemm_wgmma_packed_fp32_10xint8",
    ];
    let mut spread = product("NT", 300, 200, 4099);
    spread.a = Placement { row_stride: 3 * 4099, col_stride: 3, alignment: 4, ..spread.a };
    for (index, name) in NAMES.into_iter().enumerate() {
        for layout in ["NN", "NT", "TN", "TT"] {
            let aligned = plan_with(&h200(), &product(layout, 300, 200, 4096), name, 2);
            let steps = &aligned.explanation().steps;
            assert!(steps[0].starts_with("pack A") && steps[1].starts_with("pack B"), "{}", aligned.explanation());
            // Words, partial sums; of what is scaled also what is found on the way, factors of whole groups of lines, and for each
            // group a word, and two for where its zeros end.
            let (a, b, partials) = (300 * 4096, 200 * 4096, 2 * 300 * 200);
            if index < 2 {
                assert_eq!((steps.len(), aligned.workspace_bytes()), (4, 4 * ((a + b) / 2 + partials)));
                continue;
            }
            let fallback = format!("with gemm_wgmma_{}_fp32_3xtf32, to partial sums", layout.to_lowercase());
            assert!(steps[3].contains(&fallback), "{}", aligned.explanation());
            assert!(aligned.explanation().notes.iter().any(|note| note.contains("left to")));
            // Pairs: a word for each tile of 64 lines and 64 terms, and one for two lines' factors for 64 terms. Digits: three words for each
            // line of 8 chunks of 512 terms, and a factor for each line. Pairs also have 33 words for the exceptions of each group. Parts begin at multiples of 64 words.
            let is_pairs = index < 4;
            let scaled = |lines: usize| {
                let (found, of_a_line) = if is_pairs { (lines.div_ceil(64) * 64, 64 / 2) } else { (3 * lines * 8, 1) };
                let exceptions = if is_pairs { 33 * lines.div_ceil(256) } else { 0 };
                found.next_multiple_of(64)
                    + lines.next_multiple_of(256) * of_a_line
                    + 64
                    + 64
                    + exceptions.next_multiple_of(64)
            };
            // Exact sums have low parts, too.
            let partials = if is_pairs { partials } else { 2 * partials };
            assert_eq!(steps[0].contains("pack_pairs_fp16, group_flags_fp16"), is_pairs, "{}", aligned.explanation());
            let (of_a, of_b) = (a + scaled(300), b + scaled(200));
            assert_eq!((steps.len(), aligned.workspace_bytes()), (5, 4 * (of_a + of_b + partials)));
        }
        let irregular = plan_with(&h200(), &spread, name, 1);
        let copies = irregular.explanation().steps.iter().filter(|step| step.starts_with("copy")).count();
        assert_eq!(copies, if index < 2 { 0 } else { 2 }, "{}", irregular.explanation());
        assert_eq!(irregular.explanation().notes.len(), if index < 2 { 0 } else { 3 }, "{}", irregular.explanation());

        let gemm = product("NT", 300, 200, 4096);
        assert!(matches!(refusal(&a100(), &gemm, Options::from(kernel(name))), Refusal::Architecture { .. }));
        assert_eq!(plan_with(&cpu(), &gemm, name, 1).kernel().name, name);
        assert_eq!(refusal(&h200(), &gemm.with_factors(0.0, 1.0), Options::from(kernel(name))), Refusal::EmptyK);
        let most = if index < 4 { 64 } else { 32 };
        let split = Options { splits: Some(most + 1), ..Options::from(kernel(name)) };
        assert_eq!(refusal(&h200(), &gemm, split), Refusal::TooManySplits { splits: most + 1, most });
        let tight = DeviceFacts { memory_bytes: Some(1 << 20), ..h200() };
        assert!(matches!(refusal(&tight, &gemm, Options::from(kernel(name))), Refusal::Workspace { .. }));
    }
}

#[test]
fn sums_that_are_too_long_for_integers_are_divided() {
    let long = product("NT", 64, 64, 70_000);
    let plan = chosen(&h200(), &long, Precision::Fp32Ozaki);
    assert!(plan.splits() >= 3, "{}", plan.explanation());
    let two = Options { splits: Some(2), ..Options::from(plan.kernel()) };
    assert_eq!(refusal(&h200(), &long, two), Refusal::TooFewSplits { splits: 2, fewest: 3 });
    assert_eq!(plan_with(&cpu(), &long, plan.kernel().name, 3).splits(), 3);
    // By the executor, too.
    assert_eq!(plan::plan(&cpu(), &long, &Options::from(plan.kernel())).unwrap().splits(), 3);
}

#[test]
fn unfit_lines_are_left_to_three_tf32_products() {
    let step = |k, splits| {
        let plan = plan_with(&h200(), &product("TN", 512, 512, k), "gemm_wgmma_packed_fp32_normwise", splits);
        plan.explanation().steps.iter().find(|step| step.contains("left to the fallback")).unwrap().clone()
    };
    assert!(step(2560, 1).ends_with("with gemm_wgmma_tn_fp32_3xtf32"));
    assert!(step(5120, 2).contains("gemm_wgmma_tn_fp32_3xtf32, to partial sums"));
}

#[test]
fn few_terms_are_stored_by_tma_where_it_can() {
    const SHORT: &str = "gemm_wgmma_packed_short_fp32_3xfp16";
    for layout in ["NN", "NT", "TN", "TT"] {
        for k in [32, 64] {
            let large = product(layout, 32768, 32768, k).with_factors(1.0, 0.0);
            let plan = chosen(&h200(), &large, Precision::Fp32);
            assert_eq!(plan.kernel().name, SHORT, "{layout} k={k}: {}", plan.explanation());
            let measured = plan::plan(&h200(), &large, &Options::from(Precision::Fp32)).unwrap();
            assert_eq!(measured.kernel().name, SHORT, "{layout} k={k}: {}", measured.explanation());
        }
    }
    // Operands may lie anywhere: it computes by itself what others leave to a fallback, from where that is.
    let spread = Placement { row_stride: 130, col_stride: 2, batch_stride: 0, alignment: 4 };
    let row_major = Placement::row_major;
    let sizes = Sizes { m: 1000, n: 2000, k: 60 };
    let anywhere = Description::new(sizes, 1, spread, row_major(2000), row_major(2000)).unwrap().with_factors(1.0, 0.0);
    let steps = plan_with(&h200(), &anywhere, SHORT, 1).explanation().steps.clone();
    assert!(steps.iter().all(|step| !step.contains("copy") && !step.contains("fallback")), "{steps:?}");
    assert!(steps.iter().any(|step| step.contains(SHORT)), "{steps:?}");

    let overwritten = |n, k| product("NN", 1000, n, k).with_factors(1.0, 0.0);
    let refused = |product: &Description| refusal(&h200(), product, Options::from(kernel(SHORT)));
    assert_eq!(refused(&overwritten(2000, 65)), Refusal::LongK { most: 64 });
    assert_eq!(plan_with(&h200(), &overwritten(2000, 60).with_factors(1.0, 0.5), SHORT, 1).kernel().name, SHORT);
    assert_eq!(refused(&overwritten(2002, 60)), Refusal::Results);
    let with_c = |c| Description::new(sizes, 1, row_major(60), row_major(2000), c).unwrap().with_factors(1.0, 0.0);
    assert_eq!(refused(&with_c(row_major(2001))), Refusal::Results);
    assert_eq!(refused(&with_c(Placement { alignment: 8, ..row_major(2000) })), Refusal::Results);
    // Stored by columns, C is computed as its transpose.
    assert_eq!(plan_with(&h200(), &with_c(Placement::column_major(1000)), SHORT, 1).kernel().name, SHORT);
    // What TMA cannot store, warps do.
    const ROWS: &str = "gemm_wgmma_packed_short_rows_fp32_3xfp16";
    let few_bytes = Placement { alignment: 8, ..row_major(2000) };
    let odd = overwritten(2001, 60);
    for product in [overwritten(2002, 60), with_c(row_major(2001)), with_c(few_bytes), odd.with_factors(1.0, 0.5)] {
        assert_eq!(plan_with(&h200(), &product, ROWS, 1).kernel().name, ROWS);
    }
    let refused_by_rows = |product: &Description| refusal(&h200(), product, Options::from(kernel(ROWS)));
    let with_gaps = with_c(Placement { row_stride: 4000, col_stride: 2, ..row_major(2000) });
    assert_eq!(refused_by_rows(&with_gaps), Refusal::Results);
    let large = product("NT", 16384, 16383, 64).with_factors(1.0, 0.0);
    assert_eq!(chosen(&h200(), &large, Precision::Fp32).kernel().name, ROWS);
    let splits = Options { splits: Some(2), ..Options::from(kernel(SHORT)) };
    assert_eq!(refusal(&h200(), &overwritten(2000, 60), splits), Refusal::NoSplits { splits: 2 });
}

#[test]
fn spread_operands_are_copied_or_read_by_kernels_for_any_layout() {
    let with_gaps = |m, n| {
        let product = product("NN", m, n, 4096);
        Description { a: Placement { row_stride: 3 * 4096, col_stride: 3, ..product.a }, ..product }
    };
    // Smaller ones are for kernels that read operands in any layout.
    let spread = with_gaps(300, 200);
    for (device, [m, n]) in [(h200(), [500, 300]), (a100(), [1200, 800]), (cpu(), [300, 200])] {
        let spread = with_gaps(m, n);
        let plan = chosen(&device, &spread, Precision::Fp32);
        assert!(plan.explanation().steps[0].starts_with("copy A"), "{device}: {}", plan.explanation());
        assert_eq!(chosen(&device, &spread, Precision::Tf32).precision(), Precision::Tf32);
    }
    // α = 0: nothing may be read, so nothing is copied.
    let unread = spread.with_factors(0.0, 1.0);
    let plan = chosen(&h200(), &unread, Precision::Fp32);
    assert_eq!((plan.workspace_bytes(), plan.splits()), (0, 1));
    assert_eq!((plan.kernel().a, plan.kernel().b), (None, None), "{}", plan.explanation());
    // A device without memory for the copy.
    let tight = DeviceFacts { memory_bytes: Some(1 << 20), ..a100() };
    let plan = chosen(&tight, &spread, Precision::Fp32);
    assert_eq!((plan.kernel().a, plan.kernel().b), (None, None), "{}", plan.explanation());
    let refused = refusal(&tight, &spread, Options::from(kernel("gemm_mma_nn_fp32_3xtf32")));
    assert!(matches!(refused, Refusal::Workspace { .. }), "{refused}");
}

/// Their grids have rows of tiles along one axis, and results along another, of which neither is as long as the first one.
#[test]
fn kernels_for_small_products_are_refused_where_a_grid_has_not_enough_rows_or_layers() {
    let sliced = |product: &Description, splits| {
        let options = Options { splits: Some(splits), ..Options::from(kernel("gemm_sliced_16x16_fp32_3xtf32")) };
        plan::plan(&h200(), product, &options)
    };
    let batch = |batch: usize| Description { batch, ..product("NN", 16, 16, 256) };
    for (fits, does_not, splits) in [
        (batch(65_535), batch(65_536), 1),
        (batch(32_767), batch(32_768), 2),
        (product("NN", 65_535 * 16, 16, 256), product("NN", 65_535 * 16 + 1, 16, 256), 1),
    ] {
        assert!(sliced(&fits, splits).is_ok(), "{fits}");
        let error = sliced(&does_not, splits).unwrap_err().to_string();
        assert!(error.contains("at most 65535 rows of blocks"), "{does_not}: {error}");
        // Another kernel computes it.
        assert!(plan::plan(&h200(), &does_not, &Options::default()).is_ok(), "{does_not}");
    }
}

#[test]
fn a_result_that_is_stored_by_columns_is_computed_as_its_transpose() {
    let mut by_columns = product("NN", 2048, 1024, 4096);
    by_columns.c = Placement::column_major(2048);
    let plan = chosen(&a100(), &by_columns, Precision::Fp32);
    assert_eq!(plan.kernel().name, "gemm_mma_tt_fp32_3xtf32");
    // A kernel that is named for the product as it stands does it, too.
    let named = plan::plan(&a100(), &by_columns, &Options::from(kernel("gemm_mma_nn_fp32_3xtf32"))).unwrap();
    assert!(named.explanation().notes.is_empty(), "{}", named.explanation());
}

/// The kernels for few columns on CUDA cores have offsets of 32 bits in B; also in a copy of it.
#[test]
fn columns_that_are_far_from_one_another_are_refused_where_offsets_are_short() {
    let most = 1_usize << 27;
    let of = |b: Placement, k: usize| {
        Description::new(Sizes { m: 64, n: 2, k }, 1, Placement::row_major(k), b, Placement::row_major(2)).unwrap()
    };
    let near = [of(Placement::column_major(most), 64), of(Placement::row_major(2), most)];
    let far = [of(Placement::column_major(most + 4), 64), of(Placement::row_major(2), most + 1)];
    for name in ["gemm_narrow_2_nt_fp32", "gemm_narrow_16_nt_fp32_3xtf32"] {
        let has_short_offsets = name == "gemm_narrow_2_nt_fp32";
        for product in &near {
            plan::plan(&h200(), product, &Options::from(kernel(name))).unwrap();
        }
        for product in &far {
            if has_short_offsets {
                let reason = refusal(&h200(), product, Options::from(kernel(name)));
                assert_eq!(reason, Refusal::FarColumns { most: most as u64 });
            } else {
                plan::plan(&h200(), product, &Options::from(kernel(name))).unwrap();
            }
        }
    }
}

#[test]
fn kernels_are_refused_with_the_reason() {
    let gemm = product("NT", 300, 200, 4096);
    let forced = |name: &str| Options::from(kernel(name));
    let refused = |device: &DeviceFacts, options: Options| refusal(device, &gemm, options);
    assert_eq!(refused(&h200(), forced("gemv_block_reduction_fp32")), Refusal::ManyColumns { most: 1, n: 200 });
    assert_eq!(
        refused(&a100(), forced("gemm_wgmma_nt_fp32_3xtf32")),
        Refusal::Architecture { needs: "sm_90a", device: a100().to_string() }
    );
    assert!(matches!(refused(&portable_h200(), forced("gemm_wgmma_nt_fp32_3xtf32")), Refusal::Architecture { .. }));
    // On the executor, which is slow, kernels of Hopper's instructions have to be named.
    let on_cpu = |options: Options| plan::plan(&cpu(), &gemm, &options).unwrap();
    assert_eq!(on_cpu(forced("gemm_wgmma_nt_fp32_3xtf32")).kernel().name, "gemm_wgmma_nt_fp32_3xtf32");
    let chosen = on_cpu(Options::from(Precision::Fp32));
    assert!(!chosen.kernel().name.contains("wgmma"), "{}", chosen.explanation());
    assert!(chosen.explanation().to_string().contains("only taken if it is named"), "{}", chosen.explanation());
    assert_eq!(
        refused(&h200(), forced("gemm_mma_nn_tf32")),
        Refusal::Layout { operand: "B", needs: Order::RowMajor, has: "column-major".to_owned() }
    );
    let other = Options { precision: Some(Precision::Fp32Strict), ..forced("gemm_mma_nt_tf32") };
    assert_eq!(refused(&h200(), other), Refusal::Precision { has: Precision::Tf32, wanted: Precision::Fp32Strict });
    let split = |name: &str, splits| Options { splits: Some(splits), ..forced(name) };
    assert_eq!(refused(&h200(), split("gemm_tiled_32_fp32", 2)), Refusal::NoSplits { splits: 2 });
    let most = 4096 / kernel("gemm_mma_nt_tf32").tile.unwrap().k;
    let too_many = Refusal::TooManySplits { splits: most + 1, most };
    assert_eq!(refused(&h200(), split("gemm_mma_nt_tf32", most + 1)), too_many);
    let many = Description { batch: 1 << 30, ..gemm };
    assert!(matches!(refusal(&h200(), &many, forced("gemm_mma_nt_tf32")), Refusal::TooManyBlocks { .. }));
    assert_eq!(refusal(&h200(), &gemm.with_factors(0.0, 1.0), forced("gemm_wgmma_nt_fp32_3xtf32")), Refusal::EmptyK);
    assert!(matches!(
        plan::plan(&h200(), &gemm, &Options { splits: Some(0), ..Options::default() }),
        Err(Error::Usage(_))
    ));
}

#[test]
fn refusals_say_what_can_do_it() {
    let gemm = product("NT", 300, 200, 4096);
    let error = plan::plan(&a100(), &gemm, &Options::from(kernel("gemm_wgmma_nt_fp32_3xtf32"))).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("sm_90a") && message.contains("gemm_mma_nt_fp32_3xtf32"), "{message}");

    let splits = Options { splits: Some(3), ..Options::from(Precision::Fp32Strict) };
    let plan = plan::plan(&a100(), &gemm, &splits).unwrap();
    assert_eq!(plan.splits(), 3, "{}", plan.explanation());

    // A kernel of another precision is never taken instead.
    let mut cases = 0;
    for (device, precision) in [(a100(), Precision::Fp32Normwise), (cpu(), Precision::Fp32Normwise)] {
        let Err(error) = plan::plan(&device, &gemm, &Options::from(precision)) else { continue };
        assert!(matches!(error, Error::NoKernel { precision: Precision::Fp32Normwise, .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("fp32-normwise") && message.contains("in fp32-rounded or fp32-strict or fp32"),
            "{message}"
        );
        // Flags are the program's: who calls the library has none.
        assert!(!message.contains("--"), "{message}");
        cases += 1;
    }
    assert_eq!(cases, 2);
}

#[test]
fn the_fastest_kernel_that_is_accurate_enough_is_taken_or_what_can_be_had_is_said() {
    let gemm = product("NT", 2048, 4096, 1024);
    let with = |accuracy: Accuracy| plan::plan(&h200(), &gemm, &Options::from(accuracy));
    let name = |accuracy| with(accuracy).unwrap().kernel().name;
    // 2⁻²⁴ and a little; (57 + K/16 + 1)·2⁻²⁴; 2⁻¹⁰ and a little; anything.
    assert_eq!(name(Accuracy::Guarantee(6e-8)), "gemm_mma_128x128_nt_fp32_fp64");
    assert_eq!(name(Accuracy::Guarantee(1e-5)), "gemm_wgmma_packed_staged_fp32_3xfp16");
    assert_eq!(name(Accuracy::Guarantee(1.1e-3)), "gemm_wgmma_nt_tf32");
    // Packing costs too much for short sums.
    let long = plan::plan(&h200(), &product("NT", 2048, 4096, 4096), &Options::from(Accuracy::Guarantee(0.1)));
    assert_eq!(long.unwrap().kernel().name, "gemm_wgmma_packed_bf16");
    assert_eq!(name(Accuracy::Tolerance(1e-6)), "gemm_mma_128x128_nt_fp32_fp64");
    assert_eq!(name(Accuracy::Tolerance(4e-6)), "gemm_wgmma_packed_staged_fp32_3xfp16");
    let plan = with(Accuracy::Tolerance(4e-6)).unwrap();
    assert_eq!(plan.precision(), Precision::Fp32);
    let text = plan.explanation().to_string();
    assert!(
        text.contains("tolerance=4e-6 is asked for: errors of elements are guaranteed to be at most 7.3e-6"),
        "{text}"
    );
    assert!(text.contains("its errors may be"), "the kernels that are not as accurate say so: {text}");

    let message = with(Accuracy::Guarantee(1e-8)).unwrap_err().to_string();
    assert!(
        message.contains("the smallest bound is 6.0e-8") && message.contains("_fp32_fp64: ask for that or more"),
        "{message}"
    );
    // Of those that can compute it there.
    let long = Description { batch: 1 << 30, ..product("NT", 1 << 20, 1, 1 << 10) };
    let message = plan::plan(&a100(), &long, &Options::from(Accuracy::Guarantee(1e-8))).unwrap_err().to_string();
    assert!(message.contains("the smallest bound is") || message.contains("none that can compute it"), "{message}");
    for error in [0.0, -1e-6, f64::NAN, f64::INFINITY] {
        assert!(matches!(with(Accuracy::Tolerance(error)), Err(Error::Usage(_))), "{error}");
    }
    let both = Options { precision: Some(Precision::Tf32), ..Options::from(Accuracy::Guarantee(1e-3)) };
    assert!(matches!(plan::plan(&h200(), &gemm, &both), Err(Error::Usage(_))));
    // A kernel that is named has to be as accurate, too.
    let named = |name, error| Options { kernel: Some(kernel(name)), ..Options::from(Accuracy::Guarantee(error)) };
    assert!(plan::plan(&h200(), &gemm, &named("gemm_wgmma_nt_tf32", 1.1e-3)).is_ok());
    assert!(matches!(
        refusal(&h200(), &gemm, named("gemm_wgmma_nt_tf32", 1e-6)),
        Refusal::Accuracy { has: Some(_), .. }
    ));
    assert!(matches!(
        refusal(&h200(), &gemm, named("gemm_wgmma_packed_fp16", 1.0)),
        Refusal::Accuracy { has: None, .. }
    ));
}

#[test]
fn only_names_get_what_is_never_chosen() {
    let matvec = product("NN", 512, 1, 4096);
    for device in [h200(), a100(), cpu()] {
        let plan = chosen(&device, &matvec, Precision::Fp32);
        let atomic = plan.explanation().candidates.iter().find(|it| it.kernel == "gemv_split_atomic_fp32").unwrap();
        assert!(atomic.refusal.as_ref().is_some_and(|refusal| refusal.contains("only by its name")));
        let named = plan::plan(&device, &matvec, &Options::from(kernel("gemv_split_atomic_fp32"))).unwrap();
        assert_eq!((named.explanation().steps.len(), named.workspace_bytes()), (2, 0));
    }
}

#[test]
fn an_explanation_says_everything_and_survives_json() {
    let plan = chosen(&h200(), &product("NN", 256, 256, 524_288), Precision::Fp32);
    let explanation = plan.explanation();
    let text = explanation.to_string();
    for part in [
        "m=256 n=256 k=524288",
        "NVIDIA H200",
        "fp32: as accurate as fp32",
        "gemm_wgmma_nn_fp32_3xtf32",
        "the model estimates",
        "256x128",
        "132 blocks, sums divided among 66",
        "16.5 MiB",
        "step 2     add up the partial sums",
        "estimate",
        "gemm_mma_nn_fp32_3xtf32",
        "gemm_mma_nn_tf32, gemm_mma_nt_tf32",
        "its precision is tf32",
    ] {
        assert!(text.contains(part), "{text} does not say {part:?}");
    }
    let json = serde_json::to_string(explanation).unwrap();
    let back: plan::Explanation = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (back.kernel, back.reason, back.candidates.len()),
        (explanation.kernel.clone(), Reason::Model, kernels::ALL.len())
    );
}

#[test]
fn sizes_that_cannot_be_are_refused_before_anything_else() {
    let sizes = |m, n, k| Sizes { m, n, k };
    let new = |sizes, batch, a| Description::new(sizes, batch, a, Placement::row_major(1), Placement::row_major(1));
    let any = Placement::row_major(1);
    assert!(matches!(new(sizes(1 << 31, 1, 1), 1, any), Err(Error::ExtentTooLarge { what: "m", .. })));
    assert!(matches!(new(sizes(1, 1, 1), usize::MAX, any), Err(Error::ExtentTooLarge { what: "batch", .. })));
    let far = Placement { row_stride: usize::MAX, ..any };
    assert!(matches!(new(sizes(2, 1, 2), 1, far), Err(Error::PlacementOverflow { matrix: "A", .. })));
    let far = Placement { batch_stride: usize::MAX / 2, ..any };
    assert!(matches!(new(sizes(1, 1, 1), 3, far), Err(Error::PlacementOverflow { matrix: "A", .. })));
    assert!(matches!(new(sizes(1, 1, 1), 1, Placement { alignment: 12, ..any }), Err(Error::Usage(_))));
    assert!(matches!(new(sizes(1, 1, 1), 1, Placement { alignment: 0, ..any }), Err(Error::Usage(_))));
}

fn table(entries: Vec<Entry>) -> Table {
    let json = serde_json::json!({
        "schema": 1, "gpu": "NVIDIA H200", "driver": "580.1, CUDA 13.0", "version": "0.1.0", "commit": "abc",
        "date": "2026-11-21T00:00:00Z", "entries": entries,
    });
    Table::parse(&json.to_string()).unwrap()
}

fn entry(layout: &str, [m, n, k]: [usize; 3], aligned: bool, times: &[(&str, u32, f64)]) -> Entry {
    let time =
        |&(kernel, splits, median_us): &(&str, u32, f64)| KernelTime { kernel: kernel.to_owned(), splits, median_us };
    let (precision, times) = (Precision::Fp32, times.iter().map(time).collect());
    Entry { precision, layout: layout.parse().unwrap(), m, n, k, batch: 1, aligned, times }
}

#[test]
fn a_table_of_the_gpu_decides_what_it_has_and_nothing_else() {
    let slow = "gemm_mma_nt_fp32_3xtf32";
    // The times of all kernels, of which this one is the fastest.
    let others = kernels::ALL.iter().map(|kernel| (kernel.name, 1, 11.0)).filter(|(name, ..)| *name != slow);
    let times: Vec<_> = [("gemm_that_was", 1, 5.0), (slow, 4, 10.0)].into_iter().chain(others).collect();
    let with = |times: &[(&str, u32, f64)]| {
        let table = Arc::new(table(vec![entry("NT", [1024, 1024, 1024], true, times)]));
        Options { tables: Tables::This(table), ..Options::from(Precision::Fp32) }
    };
    let options = with(&times);
    let plan = |product: &Description, options: &Options| plan::plan(&h200(), product, options).unwrap();

    let square = product("NT", 1024, 1024, 1024);
    let exact = plan(&square, &options);
    assert_eq!((exact.kernel().name, exact.splits()), (slow, 4), "{}", exact.explanation());
    assert!(exact.explanation().to_string().contains("measured as the fastest: 10.0 us for NT m=1024"));
    // A transposed result is the transposed product.
    let mut by_columns = square;
    by_columns.c = Placement::column_major(1024);
    assert_eq!(plan(&by_columns, &options).kernel().name, slow);
    // Another extent, another layout, not aligned: the model.
    let mut unaligned = square;
    unaligned.a.alignment = 4;
    for other in [product("NT", 1024, 1024, 1028), product("NN", 1024, 1024, 1024), unaligned] {
        assert_eq!(plan(&other, &options).explanation().reason, Reason::Model, "{other}");
    }
    // A kernel that has no time, and is faster by far as the model has it, is newer than the table.
    let old = |median_us| plan(&square, &with(&[(slow, 4, median_us)]));
    assert_eq!(old(1000.0).explanation().reason, Reason::Model, "{}", old(1000.0).explanation());
    assert_eq!(old(30.0).kernel().name, slow, "{}", old(30.0).explanation());
    // By its name, a kernel is taken whatever a table says; splits likewise.
    let named = Options { kernel: Some(kernel("gemm_wgmma_nt_fp32_3xtf32")), ..options.clone() };
    assert_eq!(plan(&square, &named).explanation().reason, Reason::Name);
    let split = Options { splits: Some(3), ..options };
    assert_eq!(plan(&square, &split).splits(), 3);
}

#[test]
fn a_table_of_another_gpu_is_refused() {
    let options = Options { tables: Tables::This(Arc::new(table(Vec::new()))), ..Options::default() };
    for device in [a100(), cpu()] {
        let error = plan::plan(&device, &product("NN", 8, 8, 8), &options).unwrap_err();
        assert!(matches!(error, Error::TableForOtherGpu { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("NVIDIA H200") && message.contains(&device.name), "{message}");
    }
    assert!(plan::plan(&h200(), &product("NN", 8, 8, 8), &options).is_ok());
}

#[test]
fn tables_come_back_as_they_were_and_bad_ones_are_refused() {
    let table = table(vec![entry("TN", [1, 2, 3], false, &[("gemm_mma_tn_tf32", 1, 1.5)])]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.json");
    std::fs::write(&path, "old").unwrap();
    tables::write(&path, &table).unwrap();
    assert_eq!(tables::read(&path).unwrap(), table);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");

    let text = serde_json::to_string(&table).unwrap();
    let fault = |from: &str, to: &str| Table::parse(&text.replace(from, to)).unwrap_err();
    assert_eq!(fault("\"schema\":1", "\"schema\":2"), TableFault::Schema(2));
    assert!(matches!(fault("\"m\":1", "\"m\":-1"), TableFault::Json(_)));
    assert!(matches!(fault("{", "["), TableFault::Json(_)));
    assert!(matches!(fault("1.5", "0.0"), TableFault::Time { .. }));
    let unsorted = entry("TN", [1, 2, 3], true, &[("gemm_mma_tn_tf32", 1, 1.5), ("gemm_mma_tn_bf16", 1, 1.0)]);
    let text = serde_json::to_string(&Table { entries: vec![unsorted], ..table }).unwrap();
    assert!(matches!(Table::parse(&text), Err(TableFault::Order(_))));

    std::fs::write(&path, "{}").unwrap();
    let message = tables::read(&path).unwrap_err().to_string();
    assert!(message.contains("table.json is no table") && message.contains("schema"), "{message}");
    let missing = directory.path().join("missing.json");
    assert!(matches!(tables::read(&missing), Err(host::Error::File { action: "read", .. })));
}

fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..200usize,
        Just(0),
        Just(1),
        Just(2048),
        0..=i32::MAX as usize,
        Just(i32::MAX as usize),
        any::<usize>()
    ]
}

fn placement() -> impl Strategy<Value = Placement> {
    let stride = || prop_oneof![Just(0usize), Just(1), 0..10_000usize, any::<usize>()];
    (stride(), stride(), stride(), 2..9u32).prop_map(|(row_stride, col_stride, batch_stride, power)| Placement {
        row_stride,
        col_stride,
        batch_stride,
        alignment: 1 << power,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever the sizes: a plan that keeps its promises, or an error.
    #[test]
    fn planning_never_fails_otherwise_than_by_an_error(
        (m, n, k, batch) in (extent(), extent(), extent(), extent()),
        (a, b, c) in (placement(), placement(), placement()),
        (device, alpha) in (0..4usize, any::<bool>()),
        wanted in prop_oneof![
            3 => (0..Precision::ALL.len()).prop_map(|index| Wanted::from(Precision::ALL[index])),
            1 => (any::<bool>(), -9.0..0.0f64).prop_map(|(is_proven, power)| {
                let error = 10f64.powf(power);
                Wanted::from(if is_proven { Accuracy::Guarantee(error) } else { Accuracy::Tolerance(error) })
            }),
        ],
        splits in prop_oneof![Just(None), (0..5000u32).prop_map(Some), any::<u32>().prop_map(Some)],
        named in prop_oneof![Just(None), any::<usize>().prop_map(Some)],
    ) {
        let Ok(product) = Description::new(Sizes { m, n, k }, batch, a, b, c) else { return Ok(()) };
        let product = product.with_factors(f32::from(u8::from(alpha)), 0.0);
        let device = &[h200(), a100(), portable_h200(), cpu()][device];
        let kernel = named.map(|index| kernels::ALL[index % kernels::ALL.len()]);
        let options = Options { kernel, splits, ..Options::from(wanted) };
        let plan = plan::plan(device, &product, &options);
        if let Err(Error::NoAccuracy { wanted, best: Some((least, _)), .. }) = plan {
            prop_assert!(least > wanted.error());
        }
        if let Ok(plan) = plan {
            let scheme = plan.kernel().scheme;
            let keeps = |accuracy: Accuracy| scheme.bounds(product.terms()).is_some_and(|bounds| accuracy.allows(bounds));
            let is_kept = match wanted {
                Wanted::Precision(precision) => scheme.serves(precision) && plan.precision() == precision,
                Wanted::Accuracy(accuracy) => keeps(accuracy) && plan.precision() == plan.kernel().precision(),
            };
            prop_assert!(is_kept || product.terms() == 0);
            prop_assert!(kernel.is_none_or(|kernel| kernel.name == plan.kernel().name));
            prop_assert!(splits.is_none_or(|splits| splits == plan.splits()));
            prop_assert!(plan.splits() == 1 || plan.kernel().divides_sums);
            prop_assert!(device.memory_bytes.is_none_or(|bytes| plan.workspace_bytes() as u64 <= bytes));
            prop_assert!(plan.explanation().estimated_ms.is_none_or(|time| time.is_finite() && time > 0.0));
            prop_assert!(plan.explanation().to_string().len() > 100);
        }
    }
}
