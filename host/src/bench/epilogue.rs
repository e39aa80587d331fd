//! `tilewright bench --suite epilogue`: what a bias and an activation cost beside the product that they come after.
//!
//! ```text
//!  product alone        multiply                            ┐
//!  for each activation                                      ├ in turns, on operands that no cache has
//!    with an epilogue   multiply_with: bias, activation     │
//!    two launches       multiply, then bias and activation  ┘
//! ```
//!
//! Before times are taken, the results of the last two are compared bit by bit.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::PathBuf;

use gpu_kernels::Matrix;
use gpu_kernels::epilogue::{StepOperand, Steps};
use gpu_kernels::gemm::split_k::{SplitReduction, gemm_split_reduction_fp32};
use ndarray::Array2;
use serde::Serialize;

use super::gpu::{open, refuse_cpu};
use super::inputs::Inputs;
use super::roofline::{self, Stall};
use super::timing::{Contestant, Race, Times, sets_for};
use crate::Error;
use crate::files::{check_writable, write_json};
use tilewright::device::{Device, DeviceChoice};
use tilewright::plan::{ConstantsChoice, Description, GemmPlan, Options, Tables, Workspace};
use tilewright::{Activation, DeviceMatrix, Epilogue, Precision, Sizes};

/// What is measured if no sizes are given: squares, sums that are long or short, results that are high or wide.
const SIZES: [[usize; 3]; 16] = [
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [1024, 8192, 8192],
    [8192, 1024, 8192],
    [4096, 4096, 64],
    [16384, 16384, 64],
    [16384, 16384, 32],
    [4095, 4095, 1024],
    [65536, 64, 1024],
    [2048, 4096, 8192],
    [1048576, 256, 3],
    [16384, 16384, 8],
    [500000, 64, 16],
    [300000, 45, 12],
];

/// What comes after a product: a bias for each column, and then, if any, an activation.
const ACTIVATIONS: [(&str, Option<Activation>); 6] = [
    ("bias", None),
    ("bias, relu", Some(Activation::Relu)),
    ("bias, gelu", Some(Activation::Gelu)),
    ("bias, gelu-tanh", Some(Activation::GeluTanh)),
    ("bias, silu", Some(Activation::Silu)),
    ("bias, tanh", Some(Activation::Tanh)),
];

/// The part of the free memory that operands may take.
const SHARE_OF_MEMORY: f64 = 0.6;

/// What to measure.
pub(super) struct EpilogueOptions {
    pub(super) sizes: Option<Sizes>,
    pub(super) precision: Precision,
    pub(super) runs: usize,
    pub(super) seed: u64,
    pub(super) device: DeviceChoice,
    pub(super) tables: Tables,
    pub(super) constants: ConstantsChoice,
    pub(super) json: Option<PathBuf>,
}

/// What has been measured of a product.
#[derive(Debug, Serialize)]
struct Row {
    sizes: [usize; 3],
    kernel: String,
    /// Whether the plan does the epilogue in a launch of its own.
    launches_epilogue: bool,
    alone: Times,
    epilogues: Vec<Both>,
}

/// What has been measured of an epilogue.
#[derive(Debug, Serialize)]
struct Both {
    epilogue: &'static str,
    with_epilogue: Times,
    two_launches: Times,
}

impl Row {
    /// By how much longer it takes than the product alone, in percent.
    fn percent(&self, times: &Times) -> f64 {
        100.0 * (times.median_ms / self.alone.median_ms.max(f64::MIN_POSITIVE) - 1.0)
    }

    fn text(&self) -> String {
        let [m, n, k] = self.sizes;
        let microseconds = |times: &Times| format!("{:9.2} ±{:5.2}", times.median_ms * 1e3, times.spread_ms * 5e2);
        let how = if self.launches_epilogue { ", and a launch" } else { "" };
        let name = format!("{m}x{n}x{k}");
        let mut text =
            format!("{name:>20}  {:>15}  {}  {:>9}  {}{how}\n", "", microseconds(&self.alone), "", self.kernel);
        for Both { epilogue, with_epilogue, two_launches } in &self.epilogues {
            _ = write!(text, "{:>20}  {epilogue:>15}", "");
            for times in [with_epilogue, two_launches] {
                _ = write!(text, "  {} {:+7.2} %", microseconds(times), self.percent(times));
            }
            text.push('\n');
        }
        text
    }
}

/// Operands and result in a device's memory.
struct Set {
    a: DeviceMatrix,
    b: DeviceMatrix,
    bias: DeviceMatrix,
    c: DeviceMatrix,
}

/// A plan with its workspace.
struct Planned {
    plan: GemmPlan,
    workspace: RefCell<Workspace>,
}

impl Planned {
    fn new(device: &Device, options: &EpilogueOptions, set: &Set, with_epilogue: bool) -> Result<Self, Error> {
        let product = Description::of(1.0, &set.a, &set.b, 0.0, &set.c)?.with_epilogue(with_epilogue);
        let (tables, constants) = (options.tables.clone(), options.constants.clone());
        let options = Options { precision: Some(options.precision), tables, constants, ..Options::default() };
        let plan = GemmPlan::new(device, &product, &options)?;
        let workspace = RefCell::new(plan.workspace(device)?);
        Ok(Self { plan, workspace })
    }

    fn launch(
        &self,
        device: &Device,
        set: &mut Set,
        epilogue: impl FnOnce(&DeviceMatrix) -> Epilogue<'_>,
    ) -> Result<(), Error> {
        let Set { a, b, bias, c } = set;
        Ok(self.plan.run_with(device, &epilogue(bias), 1.0, a, b, 0.0, c, &mut self.workspace.borrow_mut())?)
    }
}

/// A bias and an activation as the epilogue of a product.
fn epilogue(bias: &DeviceMatrix, activation: Option<Activation>) -> Epilogue<'_> {
    let biased = Epilogue::new().add(1.0, bias);
    activation.map_or_else(|| biased.clone(), |activation| biased.clone().activation(activation))
}

/// The same in a launch of its own.
fn launch_epilogue(device: &Device, set: &mut Set, activation: Option<Activation>) -> Result<(), Error> {
    let Set { bias, c, .. } = set;
    let (m, n) = (c.rows(), c.cols());
    let bias = bias.batch()?.first();
    let operand = StepOperand::new(Matrix::new(bias.data(), m, n, 0, 1)?, 0, 1)?;
    let biased = Steps::none().add(1.0, operand);
    let steps = biased.and_then(|steps| activation.map_or(Ok(steps), |activation| steps.activation(activation)));
    let steps = steps.map_err(|error| Error::Usage(error.to_string()))?;
    let reduction = SplitReduction::scaling(1.0, c.batch_mut(false)?)?.with_steps(steps)?;
    Ok(device.launch(gemm_split_reduction_fp32 { reduction })?)
}

/// Measures, and gives `print` what there is to read, as it comes.
///
/// # Errors
/// [`Error::Usage`] for the CPU executor, and where results differ; [`Error::File`];
/// [`DeviceError::Driver`](tilewright::DeviceError::Driver) where the GPU fails, or has too little memory.
pub(super) fn run(options: &EpilogueOptions, mut print: impl FnMut(&str)) -> Result<(), Error> {
    let device = open(options.device)?;
    refuse_cpu(&device)?;
    options.json.iter().try_for_each(|path| check_writable(path))?;
    let roofline = roofline::measure(&device, None)?;
    let mut stall = Stall::new(&device, &roofline.fma)?;
    print(&format!(
        "{} on {}: microseconds, ± half the interquartile range, and what is added to the product alone\n{:>20}  {:>15}  {:>26}  {:>26}\n",
        options.precision,
        device.name(),
        "m x n x k",
        "",
        "one launch",
        "two launches",
    ));
    let mut rows = Vec::new();
    let sizes = match options.sizes {
        Some(sizes) => vec![sizes],
        None => SIZES.map(|[m, n, k]| Sizes { m, n, k }).to_vec(),
    };
    for sizes in sizes {
        let row = measure(&device, options, &mut stall, sizes)?;
        print(&row.text());
        rows.push(row);
    }
    options.json.as_ref().map_or(Ok(()), |path| write_json(path, &rows))
}

/// Measures one product.
fn measure(device: &Device, options: &EpilogueOptions, stall: &mut Stall, sizes: Sizes) -> Result<Row, Error> {
    let Sizes { m, n, k } = sizes;
    let inputs = Inputs::Uniform11;
    let matrix = |rows, cols, elements| {
        Array2::from_shape_vec((rows, cols), elements).expect("there are as many elements as the shape says")
    };
    let a = matrix(m, k, inputs.a(m, k, false, options.seed));
    let b = matrix(k, n, inputs.b(k, n, true, options.seed));
    // On both sides of zero, and of no size that hides what it is added to.
    let bias = Array2::from_shape_fn((1, n), |(_, col)| (col % 17) as f32 * 0.25 - 2.0);
    let mut results = [Array2::<f32>::zeros((m, n)), Array2::zeros((m, n))];
    let set_bytes = 4 * (m as u128 * k as u128 + k as u128 * n as u128 + m as u128 * n as u128);
    let usable = device.free_memory()?.map_or(0, |free| (free.0 as f64 * SHARE_OF_MEMORY) as u128);
    let l2_bytes = device.gpu_properties().map_or(0, |properties| u128::from(properties.l2_bytes));
    let sets = (0..sets_for(set_bytes, l2_bytes, usable)).map(|_| {
        Ok(Set {
            a: DeviceMatrix::upload(device, a.view())?,
            b: DeviceMatrix::upload(device, b.view())?,
            bias: DeviceMatrix::upload(device, bias.view())?,
            c: DeviceMatrix::unwritten(device, results[0].view())?,
        })
    });
    let sets = RefCell::new(sets.collect::<Result<Vec<Set>, Error>>()?);
    let [alone, fused] = [false, true].map(|with| Planned::new(device, options, &sets.borrow()[0], with));
    let (alone, fused) = (alone?, fused?);
    let product_alone = |set: usize| alone.launch(device, &mut sets.borrow_mut()[set], |_| Epilogue::new());
    let mut contestants: Vec<Contestant<'_>> = vec![Box::new(product_alone)];
    for (name, activation) in ACTIVATIONS {
        let (sets, alone, fused) = (&sets, &alone, &fused);
        let with_epilogue =
            move |set: usize| fused.launch(device, &mut sets.borrow_mut()[set], |bias| epilogue(bias, activation));
        let two_launches = move |set: usize| {
            let set = &mut sets.borrow_mut()[set];
            alone.launch(device, set, |_| Epilogue::new())?;
            launch_epilogue(device, set, activation)
        };
        let ways: [&dyn Fn(usize) -> Result<(), Error>; 2] = [&with_epilogue, &two_launches];
        for (way, result) in ways.into_iter().zip(&mut results) {
            way(0)?;
            sets.borrow()[0].c.download(result.view_mut())?;
        }
        let differ = results[0].iter().zip(&results[1]).filter(|(x, y)| x.to_bits() != y.to_bits()).count();
        if differ > 0 {
            return Err(Error::Usage(format!(
                "{m}x{n}x{k}, {name}: {differ} elements are others with an epilogue than by two launches: a kernel is wrong"
            )));
        }
        contestants.push(Box::new(with_epilogue));
        contestants.push(Box::new(two_launches));
    }
    let count = sets.borrow().len();
    let mut race = Race { device, runs: options.runs, sets: count, busy: Box::new(|ms| stall.run(ms)) };
    let times = race.run(&mut contestants)?;
    let (alone_times, pairs) = times.split_first().expect("the product alone has been measured");
    let both = ACTIVATIONS.iter().zip(pairs.chunks_exact(2));
    Ok(Row {
        sizes: [m, n, k],
        kernel: fused.plan.kernel().name.to_owned(),
        launches_epilogue: fused.plan.launches() > alone.plan.launches(),
        alone: *alone_times,
        epilogues: both
            .map(|((epilogue, _), times)| Both { epilogue, with_epilogue: times[0], two_launches: times[1] })
            .collect(),
    })
}
