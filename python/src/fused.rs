//! Products with steps behind them, such as a bias and an activation: one call, from operands of any kind to a result that is queued.
//!
//! Python hands steps over as text, because torch has to be able to keep them in its graphs: with `;` between them, each a name, and what the
//! caller calls the tensor that it reads, if it reads one. Beside it come the numbers and the tensors of all steps, in their order.
//!
//! ```text
//!  add bias;gelu;clamp;add residual        numbers 1.0, 0.0, 6.0, 1.0; tensors bias, residual
//! ```

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use tilewright::Activation;

use crate::engine::Step;
use crate::error::{Failure, argument};
use crate::product::{Given, Options, Request, compute, compute_tensors, flag, text};

/// What the caller may call a tensor that a step reads.
const NAMES: [&str; 5] = ["bias", "input", "residual", "operand_of_add", "operand_of_mul"];

/// `alpha·a·b` and then the steps, of operands of any kind: see `tilewright.linear`. `packed_a` and `packed_b` are what [`crate::packed::pack`] has made of a
/// and of b, for this precision.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "those of `linear`, in the order in which Python gives them")]
pub(crate) fn fused<'py>(
    function: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    operands: Vec<Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    alpha: f64,
    steps: &str,
    numbers: Vec<f64>,
    precision: &Bound<'py, PyAny>,
    on_cpu: &Bound<'py, PyAny>,
    invariant: &Bound<'py, PyAny>,
    packed_a: Option<&Bound<'py, PyAny>>,
    packed_b: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (precision, on_cpu) = (text("precision", precision)?, text("on_cpu", on_cpu)?);
    let invariant = flag("invariant", invariant)?;
    let request = request(function, operands.len(), alpha, (steps, &numbers), precision, on_cpu, invariant)?;
    compute(Given { a, b, operands: &operands, out, packed: [packed_a, packed_b] }, &request, |torch, audience| {
        let options = [("packed_a", packed_a), ("packed_b", packed_b)].into_py_dict(a.py())?;
        let arguments = (function, a, b, &operands, out, alpha, steps, &numbers, precision, on_cpu, invariant);
        torch.fused(audience, out).bind(a.py()).call(arguments, Some(&options))
    })
}

/// The same of torch tensors as they are in memory: what the operator does after everything else that torch wants to do.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "those of `linear`, in the order in which Python gives them")]
pub(crate) fn fused_tensors<'py>(
    function: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    operands: Vec<Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    alpha: f64,
    steps: &str,
    numbers: Vec<f64>,
    precision: &str,
    on_cpu: &str,
    invariant: bool,
    packed_a: Option<&Bound<'py, PyAny>>,
    packed_b: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let request = request(function, operands.len(), alpha, (steps, &numbers), precision, on_cpu, invariant)?;
    compute_tensors(Given { a, b, operands: &operands, out, packed: [packed_a, packed_b] }, &request)
}

fn request(
    function: &str,
    operands: usize,
    alpha: f64,
    (steps, numbers): (&str, &[f64]),
    precision: &str,
    on_cpu: &str,
    invariant: bool,
) -> Result<Request, Failure> {
    let options = Options::parse(function, precision, on_cpu, "all", invariant)?;
    let (steps, names) = parse(steps, numbers)?;
    if names.len() != operands {
        return Err(argument(format!("the steps read {} tensors, and {operands} are given", names.len())));
    }
    Request::new(options, alpha as f32, steps, names)
}

/// The steps, and what the caller calls what they read.
fn parse(text: &str, numbers: &[f64]) -> Result<(Vec<Step>, Vec<&'static str>), Failure> {
    let (mut names, mut numbers) = (Vec::new(), numbers.iter());
    let mut step = |text: &str| {
        let (name, read) = text.split_once(' ').map_or((text, None), |(name, read)| (name, Some(read)));
        if let Some(read) = read {
            names.push(NAMES.into_iter().find(|known| *known == read)?);
        }
        let mut number = || numbers.next().map(|&number| number as f32);
        Some(match (name, read) {
            ("add", Some(_)) => Step::Add(number()?),
            ("multiply", Some(_)) => Step::Multiply,
            (_, Some(_)) => return None,
            ("scale", _) => Step::Scale(number()?),
            ("offset", _) => Step::Offset(number()?),
            ("relu", _) => Step::Activation(Activation::Relu),
            ("leaky_relu", _) => Step::Activation(Activation::LeakyRelu(number()?)),
            ("clamp" | "hardtanh", _) => Step::Activation(Activation::Clamp { least: number()?, most: number()? }),
            ("sigmoid", _) => Step::Activation(Activation::Sigmoid),
            ("silu", _) => Step::Activation(Activation::Silu),
            ("tanh", _) => Step::Activation(Activation::Tanh),
            ("gelu", _) => Step::Activation(Activation::Gelu),
            ("gelu_tanh", _) => Step::Activation(Activation::GeluTanh),
            ("mish", _) => Step::Activation(Activation::Mish),
            _ => return None,
        })
    };
    let wrong = |what: &str| argument(format!("{what}: call tilewright.linear, which makes steps of its arguments"));
    let steps = text.split(';').filter(|step| !step.is_empty());
    let steps = steps.map(|text| step(text).ok_or_else(|| wrong(&format!("{text:?} is no step, or lacks a number"))));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    match numbers.len() {
        0 => Ok((steps, names)),
        left => Err(wrong(&format!("{left} numbers are left that no step takes"))),
    }
}
