//! Whether a GPU and the executor agree: generated products, by every kernel of the registry on both, compared with each other bit by
//! bit and with double precision.

use std::fmt::Write as _;

use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::plan::Triangle;
use tilewright::{Device, Order};

use crate::planned::error_of;
use crate::{Batch, Error, Layout, Layouts, Planned, Results, Sizes};

/// How many products may be generated for each that a kernel can compute.
const MOST_TRIES: usize = 60;

/// What has come out of a kernel's products.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// The kernel.
    pub kernel: &'static str,
    /// What it makes of two operands.
    pub scheme: Scheme,
    /// The products that both have computed.
    pub products: usize,
    /// The elements of their results.
    pub elements: usize,
    /// Those of which both have the same bits.
    pub same_bits: usize,
    /// Those that the GPU has computed with other bits when it computed the product again, in all repetitions.
    pub unsteady: usize,
    /// Those that are NaN on both, with other bits.
    pub other_nans: usize,
    /// The largest difference of the two, as a part of the sum of magnitudes; 0 if all bits are the same.
    pub difference: f64,
    /// The largest error on the GPU, against double precision, as a part of the sum of magnitudes.
    pub error_of_gpu: f64,
    /// And that on the executor.
    pub error_of_executor: f64,
    /// What an error may be, for the product in which it came closest to that.
    pub bound: f64,
    /// Products whose results differ by more than they may, or that failed, in words: the first few.
    pub failures: Vec<String>,
}

impl Agreement {
    /// Whether nothing is wrong.
    pub fn holds(&self) -> bool {
        self.failures.is_empty() && self.products > 0
    }
}

/// A number that is often special to kernels: small, or about a multiple of a power of two.
fn extent(generator: &mut StdRng, most: usize) -> usize {
    match generator.random_range(0..10) {
        0 => generator.random_range(0..4),
        1..5 => {
            let unit = 1usize << generator.random_range(2..9);
            let near = unit * generator.random_range(1..=(most / unit).max(1));
            (near + generator.random_range(0..3)).saturating_sub(1).min(most)
        }
        _ => generator.random_range(1..=most),
    }
}

/// Where a matrix lies: without gaps, with any gaps, or with such as tensor maps allow; a few begin anywhere.
fn layout(generator: &mut StdRng, order: Order, rows: usize, cols: usize) -> Layout {
    let [_, length] = order.lines(rows, cols);
    let padding = match generator.random_range(0..4) {
        0 => 0,
        1 => generator.random_range(1..9),
        _ => length.next_multiple_of(4) - length + 4 * generator.random_range(0..3),
    };
    let offset = if generator.random_range(0..8) == 0 { generator.random_range(1..4) } else { 0 };
    Layout { order, step: 1, padding, offset }
}

/// Any product, and among how many blocks to divide its sums.
fn product(generator: &mut StdRng, kernel: &KernelInfo) -> (Batch, u32) {
    let most = kernel.within(Sizes { m: 300, n: 300, k: 400 });
    let shape = Sizes { m: extent(generator, most.m), n: extent(generator, most.n), k: extent(generator, most.k) };
    let mut order = || Order::of_transposed(!generator.random::<bool>());
    let orders = [order(), order(), order()];
    // Not too many elements: the executor is slow.
    let shape = if shape.m * shape.n > 40_000 { Sizes { k: shape.k.min(130), ..shape } } else { shape };
    let layouts = Layouts {
        a: layout(generator, orders[0], shape.m, shape.k),
        b: layout(generator, orders[1], shape.k, shape.n),
        c: layout(generator, orders[2], shape.m, shape.n),
    };
    let count = [1, 1, 1, 2, 3][generator.random_range(0..5)];
    let shared = [generator.random_range(0..3) == 0, generator.random_range(0..3) == 0];
    let alpha = [1.0, 1.0, -1.0, 0.37, -0.7, 0.0][generator.random_range(0..6)];
    let beta = [0.0, 0.0, 0.0, 1.0, -0.4, 0.3][generator.random_range(0..6)];
    let part = [Triangle::All, Triangle::All, Triangle::All, Triangle::All, Triangle::Upper, Triangle::Lower]
        [generator.random_range(0..6)];
    let batch = Batch::new(count, shared, shape, layouts, generator.random()).scaled(alpha, beta);
    (batch.with_operands_of_part(part).with_part(part), generator.random_range(1..6))
}

/// Whether results of a kernel have to have the same bits. Atomic additions come in any order, and the executor's tensor cores are those
/// of compute capability 9.0, but for fp64, which is the same everywhere.
fn must_have_same_bits(gpu: &Device, kernel: &KernelInfo) -> bool {
    let is_modelled =
        gpu.gpu_properties().map(|gpu| gpu.compute_capability).is_none_or(|c| (c.major, c.minor) == (9, 0));
    !kernel.name.contains("_atomic_") && (matches!(kernel.scheme, Scheme::Fp32 | Scheme::Fp32Fp64) || is_modelled)
}

/// Has a kernel compute `count` products on both, by the plans of the GPU, and each `times` times there.
pub fn compare(
    gpu: &Device,
    executor: &Device,
    kernel: &'static KernelInfo,
    count: usize,
    times: usize,
    seed: u64,
) -> Agreement {
    const MOST_FAILURES: usize = 5;
    let same_bits = must_have_same_bits(gpu, kernel);
    let mut agreement = Agreement {
        kernel: kernel.name,
        scheme: kernel.scheme,
        products: 0,
        elements: 0,
        same_bits: 0,
        unsteady: 0,
        other_nans: 0,
        difference: 0.0,
        error_of_gpu: 0.0,
        error_of_executor: 0.0,
        bound: 0.0,
        failures: Vec::new(),
    };
    let mut generator = StdRng::seed_from_u64(seed);
    for _ in 0..MOST_TRIES * count {
        if agreement.products == count {
            break;
        }
        let (batch, splits) = product(&mut generator, kernel);
        let what = format!("{batch:?}, splits {splits}");
        let both = || -> Result<Option<(Vec<Results>, Results)>, Error> {
            let Some(mut there) = Planned::new(gpu, kernel, Some(splits), &batch)? else { return Ok(None) };
            let here = there.on(executor)?.run()?;
            Ok(Some(((0..times).map(|_| there.run()).collect::<Result<_, _>>()?, here)))
        };
        match both() {
            Ok(None) => continue,
            Ok(Some((there, here))) => {
                let results = agreement.add(&batch, &there[0], &here, same_bits);
                let again = agreement.add_again(&there, same_bits);
                if let Err(reason) = results.and(again) {
                    agreement.failures.push(format!("{what}: {reason}"));
                }
            }
            Err(error) => agreement.failures.push(format!("{what}: {error}")),
        }
        agreement.products += 1;
        if agreement.failures.len() == MOST_FAILURES {
            break;
        }
    }
    agreement
}

impl Agreement {
    /// Takes into account what a GPU has computed of one batch, again and again.
    fn add_again(&mut self, times: &[Results], same_bits: bool) -> Result<(), String> {
        let bits: Vec<_> = times.iter().map(Results::bits).collect();
        let others = |again: &&Vec<u32>| again.iter().zip(&bits[0]).filter(|(again, first)| again != first).count();
        let different: usize = bits.iter().skip(1).map(|again| others(&again)).sum();
        self.unsteady += different;
        if same_bits && different > 0 {
            let repetitions = times.len() - 1;
            return Err(format!(
                "in {repetitions} repetitions the GPU itself has computed {different} elements with other bits"
            ));
        }
        Ok(())
    }

    /// Takes the results of one batch into account, which may have to have the same bits.
    fn add(&mut self, batch: &Batch, there: &Results, here: &Results, same_bits: bool) -> Result<(), String> {
        const MOST_NAMED: usize = 20;
        let (mut different, mut named) = (0, String::new());
        for (number, ((there, here), problem)) in there.iter().zip(here.iter()).zip(batch.problems()).enumerate() {
            let (errors_there, bound) = error_of(self.scheme, problem, batch.part(), there)?;
            let (errors_here, _) = error_of(self.scheme, problem, batch.part(), here)?;
            for (row, column) in there.indices() {
                let (there, here) = (there.at(row, column), here.at(row, column));
                let are_same = there.to_bits() == here.to_bits();
                let are_nan = there.is_nan() && here.is_nan();
                self.elements += 1;
                self.same_bits += usize::from(are_same);
                self.other_nans += usize::from(are_nan && !are_same);
                if !are_same && !are_nan {
                    different += 1;
                    if different <= MOST_NAMED {
                        _ = write!(
                            named,
                            "; [{number}][{row}, {column}] {there:e} ({:08x}) and {here:e} ({:08x})",
                            there.to_bits(),
                            here.to_bits()
                        );
                    }
                }
            }
            let largest = |errors: &Array2<f64>| errors.iter().fold(0.0, |most: f64, &error| most.max(error.abs()));
            let difference = largest(&(&errors_there - &errors_here));
            self.difference = self.difference.max(difference);
            self.error_of_executor = self.error_of_executor.max(largest(&errors_here));
            self.error_of_gpu = self.error_of_gpu.max(largest(&errors_there));
            self.bound = self.bound.max(bound);
            if difference > bound {
                return Err(format!(
                    "the two differ by {difference:.3e} of the sum of magnitudes, more than {bound:.3e}"
                ));
            }
        }
        if same_bits && different > 0 {
            return Err(format!("{different} elements have other bits on the GPU, and should have the same{named}"));
        }
        Ok(())
    }
}

/// The report, as Markdown.
pub fn markdown(agreements: &[Agreement], gpu: &str, seed: u64) -> String {
    let mut text = format!(
        "# Every kernel on a GPU and on the executor\n\n{gpu}; products generated from seed {seed}. Errors and differences are parts of \
         the sum of magnitudes, |α|·Σ|a||b| + |β||c|, the largest of all elements.\n\n\
         | kernel | products | elements | same bits | unsteady | GPU − executor | GPU − f64 | executor − f64 | allowed |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for agreement in agreements {
        let Agreement {
            kernel,
            products,
            elements,
            same_bits,
            unsteady,
            difference,
            error_of_gpu,
            error_of_executor,
            bound,
            ..
        } = agreement;
        let share = if same_bits == elements {
            "all".to_owned()
        } else {
            format!("{:.3} %", 100.0 * *same_bits as f64 / *elements as f64)
        };
        _ = writeln!(
            text,
            "| {kernel} | {products} | {elements} | {share} | {unsteady} | {difference:.2e} | {error_of_gpu:.2e} | {error_of_executor:.2e} | {bound:.2e} |"
        );
    }
    let failed: Vec<_> = agreements.iter().filter(|agreement| !agreement.holds()).collect();
    _ = writeln!(text, "\n{} of {} kernels agree.", agreements.len() - failed.len(), agreements.len());
    for Agreement { kernel, failures, products, .. } in failed {
        _ = writeln!(text, "\n## {kernel}\n\n{products} products.\n");
        failures.iter().for_each(|failure| _ = writeln!(text, "- {failure}"));
    }
    text
}
