//! A test kernel that the registry does not have is planned and run by its contract alone; what the model counts, by estimates of kernels that there are.

use cuda_std::executor::Checks;
use gpu_kernels::Matrix;
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::tiles::TileShape;
use ndarray::{Array2, s};

use super::choose::choose;
use super::*;
use crate::kernels::contract::{Call, Contract, KernelInfo, Performance};
use crate::kernels::{ALL, GEMM_TILED_32_FP32, Scheme, SumOrder};
use crate::order::Order;
use crate::{Device, DeviceMatrix, Error, Sizes};

/// Computes one slice of k after the other, each by a launch; of products with an even number of rows.
#[derive(Debug)]
struct Slices;

impl Contract for Slices {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        let (splits, next) = (call.gemm.splits(), call.gemm.c().stride());
        for (a, b, c) in call.products() {
            let (rows, cols, k) = (a.rows() as usize, b.cols() as usize, a.cols());
            for split in 0..splits {
                let (begin, end) = (k * split / splits, k * (split + 1) / splits);
                let terms = (end - begin) as usize;
                // SAFETY: the slices are inside A and B, and there are as many partial sums as splits.
                let (a_slice, b_slice, c) = unsafe {
                    let a = a.moved_by(u64::from(begin) * a.col_stride());
                    (a, b.moved_by(u64::from(begin) * b.row_stride()), c.moved_by(u64::from(split) * next))
                };
                let [a_row, a_col] = [a.row_stride() as usize, a.col_stride() as usize];
                let [b_row, b_col] = [b.row_stride() as usize, b.col_stride() as usize];
                let a = Matrix::new(a_slice.data(), rows, terms, a_row, a_col)?;
                let b = Matrix::new(b_slice.data(), terms, cols, b_row, b_col)?;
                device.launch(gemm_naive_2d_fp32 { gemm: Gemm::new(call.alpha, a, b, call.beta, c)? })?;
            }
        }
        Ok(())
    }

    fn is_batched(&self) -> bool {
        false
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        (!product.m.is_multiple_of(2)).then(|| Refusal::Own("it is for an even number of rows".to_owned()))
    }

    fn best_splits(&self, _product: &Description, _multiprocessors: u32) -> Option<u32> {
        Some(5)
    }
}

static SLICES: KernelInfo = KernelInfo {
    name: "slices",
    facts: gemm_naive_2d_fp32::FACTS,
    idea: "one slice of k after the other",
    scheme: Scheme::Fp32,
    sums: SumOrder::Own,
    a: Some(Order::RowMajor),
    b: None,
    tile: Some(TileShape { m: 8, n: 32, k: 1 }),
    divides_sums: true,
    deterministic: true,
    performance: Performance::new(8, 1.0),
    contract: &Slices,
};

/// What there is to choose from.
const KERNELS: [&KernelInfo; 2] = [&GEMM_TILED_32_FP32, &SLICES];

fn product(m: usize) -> Description {
    let sizes = Sizes { m, n: 33, k: 4000 };
    Description::new(sizes, 1, Placement::row_major(4000), Placement::row_major(33), Placement::row_major(33)).unwrap()
}

#[test]
fn a_contract_decides_what_is_planned() {
    let gpu = DeviceFacts::of_gpu("NVIDIA L4", (8, 9), 58, 24 << 30);
    let plan = choose(&KERNELS, &gpu, &product(64), &Options::default(), |_| true).unwrap();
    assert_eq!((plan.kernel().name, plan.splits()), ("slices", 5), "{}", plan.explanation());
    let odd = choose(&KERNELS, &gpu, &product(65), &Options::default(), |_| true).unwrap();
    assert_eq!(odd.kernel().name, "gemm_tiled_32_fp32", "{}", odd.explanation());
    let error = choose(&KERNELS, &gpu, &product(65), &Options::from(&SLICES), |_| true).unwrap_err();
    assert!(error.to_string().contains("it is for an even number of rows"), "{error}");
}

/// As the steps have it.
#[test]
fn kernels_of_a_plan_are_in_the_order_in_which_they_run() {
    let gpu = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    for kernel in ALL.iter() {
        let Sizes { m, n, k } = kernel.within(Sizes { m: 500, n: 1212, k: 5001 });
        // The lines of operands begin where no tensor map can have them; those of a kernel that takes none with gaps, without.
        let gap = usize::from(!kernel.name.starts_with("gemm_whole"));
        let operand = |needs: Option<Order>, rows: usize, cols: usize| {
            let placed = match needs {
                Some(Order::ColumnMajor) => Placement::column_major(rows + gap),
                _ => Placement::row_major(cols + gap),
            };
            Placement { batch_stride: (rows + gap) * (cols + gap), ..placed }
        };
        let (a, b) = (operand(kernel.a, m, k), operand(kernel.b, k, n));
        let c = Placement { batch_stride: m * n, ..Placement::row_major(n) };
        let product = Description::new(Sizes { m, n, k }, 2, a, b, c).unwrap().with_part(Triangle::Upper);
        let product = product.with_factors(1.0, 0.0);
        let plan = plan(&gpu, &product, &Options::from(*kernel)).unwrap();
        let steps = plan.explanation().steps.join("\n");
        let mut rest = steps.as_str();
        for kernel in plan.kernels() {
            let (_, after) =
                rest.split_once(kernel.name).unwrap_or_else(|| panic!("{} too late:\n{steps}", kernel.name));
            rest = after;
        }
    }
}

#[test]
fn a_contract_is_all_that_a_run_needs() {
    let device = Device::cpu(Checks::Full);
    let (m, n, k, batch) = (6, 7, 23, 3);
    let numbers = |rows: usize, cols: usize, seed: usize| {
        Array2::from_shape_fn((rows, cols), |(row, col)| ((7 * row + 3 * col + seed) % 11) as f32 - 5.0)
    };
    // A has gaps between all elements, so it is copied first.
    let (a, b, c) = (numbers(batch * m, 2 * k, 0), numbers(batch * k, n, 1), numbers(batch * m, n, 2));
    let there = |matrix: &Array2<f32>, rows: usize, cols: usize, step: usize| {
        let (buffer, line) = (device.upload(matrix.as_slice().unwrap()).unwrap(), matrix.ncols());
        DeviceMatrix::new_batch(buffer, [rows, cols], [line, step], batch, rows * line).unwrap()
    };
    for splits in [1, 4] {
        let (a_there, b_there, mut c_there) = (there(&a, m, k, 2), there(&b, k, n, 1), there(&c, m, n, 1));
        let product = Description::of(2.0, &a_there, &b_there, -1.0, &c_there).unwrap();
        let options = Options { splits: Some(splits), ..Options::from(&SLICES) };
        let plan = choose(&KERNELS, &DeviceFacts::of(&device), &product, &options, |_| true).unwrap();
        let mut workspace = plan.workspace(&device).unwrap();
        plan.run(&device, 2.0, &a_there, &b_there, -1.0, &mut c_there, &mut workspace).unwrap();
        let mut results = vec![Array2::zeros((m, n)); batch];
        c_there.download_all(&mut results.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>()).unwrap();
        for (i, result) in results.iter().enumerate() {
            let (a, b) = (a.slice(s![i * m..(i + 1) * m, ..;2]), b.slice(s![i * k..(i + 1) * k, ..]));
            let expected = 2.0 * &a.dot(&b) - c.slice(s![i * m..(i + 1) * m, ..]);
            assert_eq!(result, expected, "{}", plan.explanation());
        }
        let kernels: Vec<_> = plan.kernels().iter().map(|kernel| kernel.name).collect();
        let reduction = if splits > 1 { &["gemm_split_reduction_fp32"][..] } else { &[] };
        assert_eq!(kernels, [&["matrix_copy_fp32", "gemm_naive_2d_fp32"], reduction].concat());
    }
}

/// What the model estimates for a kernel on an H200, undivided, in milliseconds.
fn estimated(kernel: &str, sizes: [usize; 3], placed: [Placement; 3]) -> f64 {
    estimated_in(1, kernel, sizes, placed)
}

/// The same in so many splits.
fn estimated_in(splits: u32, kernel: &str, [m, n, k]: [usize; 3], [a, b, c]: [Placement; 3]) -> f64 {
    let product = Description::new(Sizes { m, n, k }, 1, a, b, c).unwrap().with_factors(1.0, 0.0);
    estimated_of(splits, kernel, &product)
}

/// The same of a product.
fn estimated_of(splits: u32, kernel: &str, product: &Description) -> f64 {
    let gpu = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    let kernel = crate::kernels::find(kernel).unwrap();
    let plan = plan(&gpu, product, &Options { splits: Some(splits), ..Options::from(kernel) }).unwrap();
    plan.explanation().estimated_ms.unwrap()
}

#[test]
fn a_last_wave_of_few_blocks_takes_less_than_a_full_one_and_more_than_its_part() {
    // A multiprocessor has three blocks.
    let time = |blocks: usize| {
        let placed = [Placement::row_major(4096), Placement::row_major(64), Placement::row_major(64)];
        estimated("gemm_wgmma_64x64_k32_nn_fp32_3xtf32", [64 * blocks, 64, 4096], placed)
    };
    let wave = time(2 * 396) - time(396);
    for (blocks, least, most) in [(1, 0.5, 0.7), (132, 0.5, 0.7), (133, 0.7, 0.9), (265, 0.95, 1.0)] {
        let part = (time(396 + blocks) - time(396)) / wave;
        assert!(part > least && part < most, "{blocks} blocks take {part:.2} of what a wave takes");
    }
}

#[test]
fn unaligned_operands_count_by_what_a_tile_has_of_them() {
    let time = |kernel: &str, a: usize, b: usize| {
        let placed = [Placement::row_major(a), Placement::row_major(b), Placement::row_major(1024)];
        estimated(kernel, [1024, 1024, 1024], placed)
    };
    let square = |a, b| time("gemm_wgmma_64x64_nn_fp32_3xtf32", a, b);
    // Lines at multiples of 16, 8 and 4 bytes: what is not one of 16 is copied in one more piece.
    let [aligned, of_eight, of_four, both] =
        [square(1024, 1024), square(1026, 1024), square(1025, 1024), square(1025, 1025)];
    assert!(aligned < of_eight && of_eight < both, "{aligned} {of_eight} {of_four} {both}");
    assert!((of_eight - of_four).abs() < 1e-9 && (square(1024, 1025) - of_four).abs() < 1e-9 * of_four);
    // Or in pairs where it is one of 8, and by elements else.
    let in_pairs = |a| {
        let placed = [Placement::row_major(a), Placement::column_major(1024), Placement::row_major(16)];
        estimated("gemm_narrow_16_nt_fp32_3xtf32", [1024, 16, 1024], placed)
    };
    let [aligned, of_eight, of_four] = [in_pairs(1024), in_pairs(1026), in_pairs(1025)];
    assert!(aligned < of_eight && of_eight - aligned < 0.4 * (of_four - aligned), "{aligned} {of_eight} {of_four}");
    // A tile has 64 rows of A and 16 columns of B.
    let narrow =
        |a, b| time("gemm_wgmma_64x16_nn_fp32_3xtf32", a, b) - time("gemm_wgmma_64x16_nn_fp32_3xtf32", 1024, 1024);
    let (of_a, of_b) = (narrow(1025, 1024), narrow(1024, 1025));
    assert!((of_a / of_b - 4.0).abs() < 0.1, "{of_a} {of_b}");
    // What is copied first is not.
    let copied = "gemm_wgmma_nn_fp32_3xtf32";
    assert!((time(copied, 1025, 1024) - time(copied, 1026, 1024)).abs() < 1e-9);
}

#[test]
fn operands_without_neighbours_are_slower_to_read_than_any_others() {
    let time = |row_stride, col_stride| {
        let a = Placement { row_stride, col_stride, batch_stride: 0, alignment: 256 };
        let placed = [a, Placement::row_major(512), Placement::row_major(512)];
        estimated("gemm_sliced_32x32_fp32_3xtf32", [512, 512, 512], placed)
    };
    let [aligned, unaligned, spread] = [time(512, 1), time(513, 1), time(1024, 2)];
    assert!(aligned < unaligned && unaligned < spread, "{aligned} {unaligned} {spread}");
}

#[test]
fn one_line_in_place_of_all_is_slow_to_read_by_many_blocks_unless_it_is_copied_first() {
    let time = |kernel: &str, row_stride| {
        let a = Placement { row_stride, ..Placement::row_major(512) };
        estimated(kernel, [128, 864, 512], [a, Placement::column_major(512), Placement::row_major(864)])
    };
    for (kernel, least) in [("gemm_narrow_16_nt_fp32_3xtf32", 1.4), ("gemm_wgmma_64x64_k32_nt_fp32_3xtf32", 1.6)] {
        let [apart, one] = [time(kernel, 512), time(kernel, 0)];
        assert!(one > least * apart, "{kernel}: {apart} {one}");
    }
    // This one reads a column-major A: that of rows is copied, whatever there is of it.
    let [apart, one] = [512, 0].map(|stride| time("gemm_narrow_16_tt_fp32_3xtf32", stride));
    assert!(one < 1.1 * apart, "{apart} {one}");
}

#[test]
fn few_blocks_do_not_read_as_fast_as_the_memory_can() {
    // 64 blocks and 128: those of half of all multiprocessors take as long for half of the rows.
    let time = |m, splits| {
        let placed = [Placement::column_major(m), Placement::column_major(8192), Placement::row_major(4)];
        estimated_in(splits, "gemm_narrow_4_tt_fp32", [m, 4, 8192], placed)
    };
    let [half, all] = [time(2048, 1), time(4096, 1)];
    assert!(half > 0.8 * all && half <= all, "{half} {all}");
    // Measured on an H200: 33.2 µs, and 24.1 by twice as many blocks.
    let [one, two] = [time(2048, 1), time(2048, 2)];
    assert!(one > 1.2 * two, "{one} {two}");
}

#[test]
fn blocks_that_copy_the_same_pay_for_it_each() {
    // 479 blocks copy all of B, 18 KB for six terms more: 8.6 MB, of which the memory has 64 KB.
    let (m, n) = (1916, 752);
    let time = |k| {
        let placed = [Placement::column_major(m), Placement::row_major(n), Placement::row_major(n)];
        estimated("gemm_whole_rows_fp32", [m, n, k], placed)
    };
    let [few, many] = [time(1), time(7)];
    assert!(many - few > 2e-3, "{few} {many}");
}

#[test]
fn lines_of_results_may_be_columns() {
    // Computed as its transpose, whose results lie by columns; and as it is, by rows.
    let (m, n, k) = (241_616, 16, 84);
    let by_columns = [Placement::column_major(m), Placement::row_major(n), Placement::column_major(m)];
    let by_rows = [Placement::column_major(m), Placement::row_major(n), Placement::row_major(n)];
    let [by_columns, by_rows] =
        [by_columns, by_rows].map(|it| estimated("gemm_wgmma_64x16_tn_fp32_3xtf32", [m, n, k], it));
    assert!(by_columns > by_rows && by_columns < 1.25 * by_rows, "{by_columns} {by_rows}");
}

#[test]
fn operands_that_begin_anywhere_cost_instructions_which_the_memory_may_hide() {
    // Two columns of B: reading A is all that takes long. Sixteen: multiplying does.
    let times = |kernel: &str, n: usize| {
        let time = |pitch| {
            let placed = [Placement::row_major(pitch), Placement::column_major(8192), Placement::row_major(n)];
            estimated(kernel, [8192, n, 8192], placed)
        };
        time(8193) / time(8192)
    };
    let [two, sixteen] = [times("gemm_narrow_2_nt_fp32", 2), times("gemm_narrow_16_nt_fp32", 16)];
    assert!(two > 1.0 && two < 1.05 && sixteen > 1.3, "{two} {sixteen}");
    // Columns are then loaded element by element: less is under way at a time.
    let by_columns = |pitch| {
        let placed = [Placement::column_major(pitch), Placement::column_major(8192), Placement::row_major(2)];
        estimated("gemm_narrow_2_tt_fp32", [8192, 2, 8192], placed)
    };
    assert!(by_columns(8193) > 1.5 * by_columns(8192), "{} {}", by_columns(8193), by_columns(8192));
}

#[test]
fn nothing_hides_what_a_block_costs_that_has_a_multiprocessor_for_itself() {
    // Ten waves of blocks of 32 rows, which read 692 MB.
    let (m, k) = (10 * 132 * 32, 4096);
    let placed = [Placement::row_major(k), Placement::column_major(k), Placement::row_major(2)];
    let ms = estimated("gemm_narrow_2_nt_fp32", [m, 2, k], placed);
    let reading = 4e-9 * (m * k) as f64 / 4.2;
    assert!(ms - reading > 15e-3, "{ms} {reading}");
}

#[test]
fn warps_that_divide_a_step_take_as_long_as_what_a_short_sum_has_of_it() {
    let time = |kernel: &str, k: usize| estimated(kernel, [512, 512, k], [Placement::row_major(512); 3]);
    // A step has 128 terms, 16 for each of eight warps.
    let sliced = |k| time("gemm_sliced_32x32_fp32_3xtf32", k);
    let eighth = sliced(32) - sliced(16);
    assert!(eighth > 1e-4 && (sliced(30) - sliced(32)).abs() < 0.05 * eighth, "{eighth}");
    assert!(((sliced(128) - sliced(16)) / eighth - 7.0).abs() < 0.3, "{} {eighth}", sliced(128) - sliced(16));
    // One of 32, which one warpgroup multiplies.
    let whole = |k| time("gemm_wgmma_64x64_k32_nn_fp32_3xtf32", k);
    assert!((whole(8) - whole(32)).abs() < 0.02 * whole(32), "{} {}", whole(8), whole(32));
}

#[test]
fn copies_take_whole_tiles_however_few_columns_there_are() {
    // B has two columns, which lie side by side: 2 MB, in 4096 tiles.
    let (m, n, k) = (128, 2, 262_144);
    let time = |b| estimated("gemm_narrow_2_nt_fp32", [m, n, k], [Placement::row_major(k), b, Placement::row_major(n)]);
    let [copied, read] = [time(Placement::row_major(n)), time(Placement::column_major(k))];
    assert!(copied - read > 20e-3, "{copied} {read}");
}

#[test]
fn partial_sums_lie_by_rows_wherever_results_lie() {
    let (m, n, k) = (512, 512, 4096);
    let time = |row_stride, col_stride| {
        let c = Placement { row_stride, col_stride, batch_stride: 0, alignment: 256 };
        let placed = [Placement::row_major(k), Placement::row_major(n), c];
        estimated_in(16, "gemm_mma_64x64_nn_fp32_3xtf32", [m, n, k], placed)
    };
    // Of every other element of a row a sector has half as many; of a column, each has a sector of its own in every partial result.
    let [rows, every_other, columns] = [time(512, 1), time(1024, 2), time(1, 512)];
    let results = 4e-9 * (m * n) as f64 / 4.2;
    assert!(((every_other - rows) / results - 1.0).abs() < 0.01, "{rows} {every_other}");
    assert!(columns - rows > 50.0 * results, "{rows} {columns}");
}

#[test]
fn partial_sums_beside_whole_vectors_take_trips_of_their_own() {
    let time = |splits: u32, n: usize| {
        let k = 32_768;
        let placed = [Placement::row_major(k), Placement::column_major(k), Placement::row_major(n)];
        estimated_in(splits, "gemm_sliced_16x16_k16_fp32_3xtf32", [8, n, k], placed)
    };
    // Of 2048 partial results, a thread adds up 16: eight pairs, one after the other.
    for (splits, least) in [(8, 1e-3), (2048, 2e-3)] {
        let [vectors, elements] = [time(splits, 8), time(splits, 7)];
        assert!(elements - vectors > least, "{splits} splits: {vectors} {elements}");
    }
}

#[test]
fn lines_of_results_that_begin_anywhere_take_longer_to_store() {
    let time = |kernel: &str, pitch: usize| {
        let placed = [Placement::row_major(64), Placement::column_major(64), Placement::row_major(pitch)];
        estimated(kernel, [16_384, 2352, 64], placed)
    };
    for kernel in ["gemm_wgmma_nt_fp32_3xtf32", "gemm_wgmma_64x64_k32_nt_fp32_3xtf32"] {
        let [whole, anywhere] = [time(kernel, 2352), time(kernel, 2353)];
        assert!(anywhere > 1.05 * whole && anywhere < 1.3 * whole, "{kernel}: {whole} {anywhere}");
    }
}

#[test]
fn small_products_whose_operands_meet_in_a_bank_take_longer_as_a_whole() {
    // Both operands of a product have 32 elements, or 28.
    let time = |k: usize| {
        let placed = |rows: usize, cols: usize| Placement { batch_stride: rows * cols, ..Placement::row_major(cols) };
        let (a, b) = (Placement { batch_stride: 4 * k, ..Placement::column_major(4) }, placed(k, 4));
        let product = Description::new(Sizes { m: 4, n: 4, k }, 65_536, a, b, placed(4, 4)).unwrap();
        estimated_of(1, "gemm_whole_fp32", &product.with_factors(1.0, 0.0))
    };
    let [apart, meeting] = [time(7), time(8)];
    assert!(meeting > 1.7 * apart, "{apart} {meeting}");
}
