//! Products whose rows are divided by offsets in device memory: each is what it would be alone, and the host never asks for the offsets.

mod fake_driver;
#[path = "fake_driver/log.rs"]
mod log;

use cuda_std::executor::Checks;
use log::Log;
use rayon::prelude::*;
use tests::{Layout, Operand};
use tilewright::kernels::{self, GROUPED};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, Order, Precision, Sizes};

/// Rows that are divided among products, their operands, and what C was before.
struct Case {
    sizes: Sizes,
    orders: [Order; 3],
    ends: Vec<i32>,
    factors: [f32; 2],
}

impl Case {
    fn operand(&self, rows: usize, cols: usize, of: usize, seed: u64) -> Operand {
        Operand::random(rows, cols, Layout { order: self.orders[of], padding: of % 2, ..Layout::ROWS }, seed)
    }

    /// The elements of a matrix, gaps included, and its strides.
    fn memory(operand: &Operand) -> (Vec<f32>, [usize; 2]) {
        let [row_stride, col_stride] = operand.strides();
        let (rows, cols) = (operand.rows(), operand.cols());
        let mut memory = vec![0.0; (rows * row_stride).max(cols * col_stride).max(1)];
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            memory[row * row_stride + col * col_stride] = operand.at(row, col);
        }
        (memory, [row_stride, col_stride])
    }

    /// Rows `first` to below `end` of a matrix.
    fn rows(operand: &Operand, first: usize, end: usize, order: Order) -> Operand {
        Operand::from_fn(end - first, operand.cols(), Layout { order, ..Layout::ROWS }, |row, col| {
            operand.at(first + row, col)
        })
    }

    fn on(device: &Device, operand: &Operand) -> DeviceMatrix {
        let (memory, strides) = Self::memory(operand);
        DeviceMatrix::new(device.upload(&memory).unwrap(), operand.rows(), operand.cols(), strides).unwrap()
    }

    /// Computes it, and compares each product with what the kernel of the same body gives alone, bit by bit.
    fn check(&self, device: &Device, options: &Options) {
        let Sizes { m: rows, n, k } = self.sizes;
        let [alpha, beta] = self.factors;
        let (a, before) = (self.operand(rows, k, 0, 1), self.operand(rows, n, 2, 2));
        let of_b: Vec<Operand> = (0..self.ends.len()).map(|i| self.operand(k, n, 1, 3 + i as u64)).collect();
        let all: Vec<(Vec<f32>, [usize; 2])> = of_b.iter().map(Self::memory).collect();
        let (len, strides) = (all[0].0.len(), all[0].1);
        let memory: Vec<f32> = all.iter().flat_map(|(memory, _)| memory.clone()).collect();
        let b = DeviceMatrix::new(device.upload(&memory).unwrap(), k, n, strides).unwrap();
        let b = b.into_batch(self.ends.len(), len).unwrap();
        let (on_a, mut c) = (Self::on(device, &a), Self::on(device, &before));
        let ends = device.upload(&self.ends).unwrap();
        tilewright::multiply_row_groups(device, options.clone(), alpha, &on_a, &b, &ends, beta, &mut c).unwrap();
        let mut result = ndarray::Array2::zeros((rows, n));
        c.download(result.view_mut()).unwrap();

        let mut first = 0;
        let name = |row: usize| format!("row {row}, ends {:?}, {:?}, {:?}", self.ends, self.sizes, self.orders);
        for (&end, of_b) in self.ends.iter().zip(&of_b) {
            let end = (end.max(0) as usize).clamp(first, rows);
            if end > first && k > 0 {
                let own_a = Self::on(device, &Self::rows(&a, first, end, self.orders[0]));
                let mut own_c = Self::on(device, &Self::rows(&before, first, end, self.orders[2]));
                let own_b = Self::on(device, of_b);
                let product = Description::of(alpha, &own_a, &own_b, beta, &own_c).unwrap();
                let plan = GemmPlan::new(device, &product, &Options { splits: Some(1), ..options.clone() }).unwrap();
                let mut workspace = plan.workspace(device).unwrap();
                plan.run(device, alpha, &own_a, &own_b, beta, &mut own_c, &mut workspace).unwrap();
                let mut alone = ndarray::Array2::zeros((end - first, n));
                own_c.download(alone.view_mut()).unwrap();
                for ((row, col), &element) in alone.indexed_iter() {
                    let is = result[[first + row, col]];
                    assert_eq!(is.to_bits(), element.to_bits(), "{}: {is} for {element}", name(first + row));
                }
            }
            first = end;
        }
        for (row, col) in (first..rows).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let expected = if beta == 0.0 { 0.0 } else { beta * before.at(row, col) };
            assert_eq!(result[[row, col]], expected, "{}", name(row));
        }
    }
}

#[test]
fn each_product_has_the_rows_up_to_its_end_and_the_bits_that_it_has_alone() {
    let device = Device::cpu(Checks::Full);
    GROUPED.par_iter().for_each(|kernel| {
        let (Some(of_a), Some(of_b)) = (kernel.single.a, kernel.single.b) else { return };
        let orders = [of_a, of_b, Order::RowMajor];
        let is_slow = kernel.facts.arch.is_some();
        // Two rows at least: one alone may be computed as the transpose, which rounds otherwise.
        let ends: &[&[i32]] = &[&[10, 10, 75, 90], &[0, 0, 0], &[100], &[3, 5, 7, 9, 11, 13, 15, 17]];
        for &ends in if is_slow { &ends[..1] } else { ends } {
            for factors in [[1.0, 0.0], [-0.5, 2.0]] {
                let sizes = Sizes { m: 100, n: 70, k: 37 };
                Case { sizes, orders, ends: ends.to_vec(), factors }.check(&device, &kernel.single.into());
            }
        }
    });
    // In any layout, by tiles for several products in a block; more products than a warp has lanes; nothing to add up.
    for (index, sizes) in [[100, 7, 5], [33, 20, 40], [64, 3, 0], [5, 1, 9]].into_iter().enumerate() {
        let [m, n, k] = sizes;
        let orders = [0, 1, 2].map(|bit| Order::of_transposed(index >> bit & 1 == 1));
        let ends = (0..70).map(|i| i * m as i32 / 68).collect();
        for kernel in &kernels::BATCHED {
            let case = Case { sizes: Sizes { m, n, k }, orders, ends: Vec::clone(&ends), factors: [1.5, -1.0] };
            case.check(&device, &kernel.into());
        }
    }
}

/// Nothing is written twice or outside, whatever the offsets are.
#[test]
fn ends_that_are_none_count_as_what_they_can_be() {
    let device = Device::cpu(Checks::Full);
    for ends in [[5, 3, 5], [-7, 20, 9], [i32::MAX, i32::MIN, 4], [i32::MIN, -1, 1 << 30], [9, 9, 8]] {
        let sizes = Sizes { m: 12, n: 5, k: 6 };
        let case = Case { sizes, orders: [Order::RowMajor; 3], ends: ends.to_vec(), factors: [1.0, 0.0] };
        case.check(&device, &(&kernels::BATCHED[0]).into());
    }
    // An end that is less than those of 32 products before it, which other lanes had.
    let ends = (0..70).map(|i| if i < 32 { i } else { i - 20 }).collect();
    let sizes = Sizes { m: 60, n: 3, k: 4 };
    let case = Case { sizes, orders: [Order::RowMajor; 3], ends, factors: [1.0, 0.0] };
    case.check(&device, &(&kernels::BATCHED[0]).into());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let matrix = |rows: usize, cols: usize| {
        DeviceMatrix::new(device.upload(&vec![1.0f32; rows * cols]).unwrap(), rows, cols, [cols, 1]).unwrap()
    };
    let (a, b) = (matrix(6, 4), matrix(8, 3).narrowed(4, 3).into_batch(2, 12).unwrap());
    let refused = |a: &DeviceMatrix, ends: &[i32], precision: Precision| {
        let ends = device.upload(ends).unwrap();
        let refused = tilewright::multiply_row_groups(&device, precision, 1.0, a, &b, &ends, 0.0, &mut matrix(6, 3));
        refused.unwrap_err().to_string()
    };
    for (message, parts) in [
        (refused(&a, &[1, 2, 3], Precision::Fp32), ["the number of ends is 3", "matrices B is 2"]),
        (refused(&matrix(6, 5), &[1, 2], Precision::Fp32), ["columns of A is 5", "rows of B is 4"]),
        (refused(&matrix(5, 4), &[1, 2], Precision::Fp32), ["rows of A is 5", "rows of C is 6"]),
        (refused(&matrix(6, 4).into_batch(1, 0).unwrap(), &[1, 2], Precision::Bf16), ["bf16", "fp32-strict or fp32"]),
        (
            refused(&matrix(12, 4).narrowed(6, 4).into_batch(2, 24).unwrap(), &[1, 2], Precision::Fp32),
            ["A is a batch", "2"],
        ),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

/// Two launches, and nothing that the host waits for or copies.
fn count_calls() {
    let log = Log::of_this_process();
    (log.begin)(0, 0, 0);
    let device = Device::cuda(0).unwrap();
    let matrix = |rows: usize, cols: usize| {
        DeviceMatrix::new(device.allocate(rows * cols).unwrap(), rows, cols, [cols, 1]).unwrap()
    };
    for products in [1, 64] {
        let (a, b, mut c) = (matrix(500, 64), matrix(64 * products, 32), matrix(500, 32));
        let b = b.narrowed(64, 32).into_batch(products, 64 * 32).unwrap();
        let ends = device.allocate::<i32>(products).unwrap();
        let mut multiply =
            || tilewright::multiply_row_groups(&device, Precision::Fp32, 1.0, &a, &b, &ends, 0.0, &mut c).unwrap();
        multiply();
        let before = log.count();
        multiply();
        let calls = |name: &str| log.names(before).filter(|called| called.starts_with(name)).count();
        assert_eq!((calls("cuLaunchKernel"), calls("cuMem"), calls("cuStreamSynchronize")), (2, 0, 0));
    }
}

#[test]
fn the_host_never_asks_for_the_ends() {
    let variables = [("FAKE_CUDA_CAPABILITY", "9.0"), ("FAKE_CUDA_VERSION", "13000")];
    fake_driver::isolated("the_host_never_asks_for_the_ends", &variables, count_calls);
}
