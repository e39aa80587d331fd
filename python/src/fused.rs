//! Products with steps behind them, such as a bias and an activation: one call, from operands of any kind to a result that is queued.
//!
//! Python hands steps over as text, because torch has to be able to keep them in its graphs: steps with `;` between them, each a name, its
//! numbers, and what the caller calls the tensor that it reads, if it reads one.
//!
//! ```text
//!  add 1.0 bias;gelu;clamp 0.0 6.0;add 1.0 residual        two operands: bias and residual
//! ```

use pyo3::prelude::*;
use tilewright::Activation;

use crate::engine::Step;
use crate::error::{Failure, argument};
use crate::product::{Given, Options, Request, compute, compute_tensors};

/// What the caller may call a tensor that a step reads.
const NAMES: [&str; 5] = ["bias", "input", "residual", "operand_of_add", "operand_of_mul"];

/// `alpha·a·b` and then the steps, of operands of any kind: see `tilewright.linear`.
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
    precision: &str,
    on_cpu: &str,
    invariant: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let request = request(function, operands.len(), alpha, steps, precision, on_cpu, invariant)?;
    compute(Given { a, b, operands: &operands, out }, &request, |torch| {
        let arguments = (function, a, b, &operands, out, alpha, steps, precision, on_cpu, invariant);
        torch.dispatch_fused.bind(a.py()).call1(arguments)
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
    precision: &str,
    on_cpu: &str,
    invariant: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let request = request(function, operands.len(), alpha, steps, precision, on_cpu, invariant)?;
    compute_tensors(Given { a, b, operands: &operands, out }, &request)
}

fn request(
    function: &str,
    operands: usize,
    alpha: f64,
    steps: &str,
    precision: &str,
    on_cpu: &str,
    invariant: bool,
) -> Result<Request, Failure> {
    let options = Options::parse(function, precision, on_cpu, "all", invariant)?;
    let (steps, names) = parse(steps)?;
    if names.len() != operands {
        return Err(argument(format!("the steps read {} tensors, and {operands} are given", names.len())));
    }
    Request::new(options, alpha as f32, steps, names)
}

/// The steps, and what the caller calls what they read.
fn parse(text: &str) -> Result<(Vec<Step>, Vec<&'static str>), Failure> {
    let mut names = Vec::new();
    let mut step = |text: &str| {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut words = rest.splitn(2, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<f64>().ok()).map(|number| number as f32);
        let mut read = |name: Option<&str>| {
            names.push(NAMES.into_iter().find(|known| Some(*known) == name)?);
            Some(())
        };
        Some(match name {
            "scale" => Step::Scale(number()?),
            "offset" => Step::Offset(number()?),
            "add" => {
                let factor = number()?;
                read(words.next())?;
                Step::Add(factor)
            }
            "multiply" => {
                read(Some(rest))?;
                Step::Multiply
            }
            "relu" => Step::Activation(Activation::Relu),
            "leaky_relu" => Step::Activation(Activation::LeakyRelu(number()?)),
            "clamp" | "hardtanh" => Step::Activation(Activation::Clamp { least: number()?, most: number()? }),
            "sigmoid" => Step::Activation(Activation::Sigmoid),
            "silu" => Step::Activation(Activation::Silu),
            "tanh" => Step::Activation(Activation::Tanh),
            "gelu" => Step::Activation(Activation::Gelu),
            "gelu_tanh" => Step::Activation(Activation::GeluTanh),
            "mish" => Step::Activation(Activation::Mish),
            _ => return None,
        })
    };
    let steps = text.split(';').filter(|step| !step.is_empty()).map(|text| {
        step(text).ok_or_else(|| {
            argument(format!("{text:?} is no step: pass what tilewright.linear takes as `activation` to that function"))
        })
    });
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    Ok((steps, names))
}
