//! One call: from operands of any kind to a result that is queued.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tilewright::plan::{self, Triangle};
use tilewright::{Precision, Wanted};

use crate::array::Array;
use crate::engine::{Job, Place, Stream};
use crate::error::{Failure, argument};
use crate::process::prepare;
use crate::shape::{Products, Rule, View, tuple};
use crate::tensor::{self, Tensor, common_place};
use crate::torch::{self, Named, Torch, check_devices, not_in_memory};

/// What happens to operands in the CPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCpu {
    /// An error.
    Refuse,
    /// They are moved to a GPU, and the result back.
    Move,
    /// The CPU executor computes the product.
    Emulate,
}

impl OnCpu {
    pub(crate) fn parse(name: &str) -> Result<Self, Failure> {
        match name {
            "refuse" => Ok(Self::Refuse),
            "move" => Ok(Self::Move),
            "emulate" => Ok(Self::Emulate),
            _ => Err(argument(format!("on_cpu is {name:?}: expected one of refuse, move, emulate"))),
        }
    }

    /// Refuses a device that the caller has not asked for.
    pub(crate) fn check(self, place: Place) -> Result<(), Failure> {
        match (place, self) {
            (Place::Cuda(_), _) | (Place::Cpu, Self::Emulate) => Ok(()),
            (Place::Cpu, Self::Refuse) => Err(argument(
                "the operands are in the CPU's memory, and tilewright computes on CUDA devices: move them there (in torch, \
                 a.cuda(); in CuPy, cupy.asarray(a)), have torch tensors moved for each call by on_cpu=\"move\", or use the slow \
                 executor for tests by on_cpu=\"emulate\"",
            )),
            (Place::Cpu, Self::Move) => Err(argument(
                "on_cpu=\"move\" is for products of torch tensors: move other arrays to a CUDA device by their library, such as \
                 cupy.asarray(a)",
            )),
        }
    }
}

/// How a product is computed.
#[derive(Clone, Copy)]
struct Options {
    rule: Rule,
    /// The precision, or how accurate it has to be.
    wanted: Wanted,
    on_cpu: OnCpu,
    /// What is wanted of each matrix of the result.
    part: Triangle,
    /// Whether rows have bits that do not depend on other rows.
    invariant: bool,
}

impl Options {
    fn parse(rule: &str, precision: &str, on_cpu: &str, part: &str, invariant: bool) -> Result<Self, Failure> {
        let refused = |what: &str, value: &str, why: &str| argument(format!("{what} is {value:?}: {why}"));
        Ok(Self {
            rule: Rule::of_name(rule).ok_or_else(|| refused("the rule", rule, "expected matmul, matvec or bmm"))?,
            wanted: precision.parse().map_err(|why: String| refused("precision", precision, &why))?,
            on_cpu: OnCpu::parse(on_cpu)?,
            part: match part {
                "all" => Triangle::All,
                "upper" => Triangle::Upper,
                "lower" => Triangle::Lower,
                _ => return Err(refused("part", part, "expected one of all, upper, lower")),
            },
            invariant,
        })
    }
}

/// The product of `a` and `b`, of any kind: see `tilewright.matmul`.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "those of `matmul`, in the order in which Python gives them")]
pub(crate) fn multiply<'py>(
    rule: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    precision: &str,
    on_cpu: &str,
    part: &str,
    invariant: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options::parse(rule, precision, on_cpu, part, invariant)?;
    let named = named(a, b, out);
    let Some(torch) = Torch::of(a.py(), &named)? else { return Ok(multiply_arrays(a, b, out, options)?) };
    let tensors: Vec<_> = named.iter().map(|(_, tensor)| *tensor).collect();
    if torch.is_direct(&tensors)?
        && let Some(result) = multiply_in_memory(torch, a, b, out, options)?
    {
        return Ok(result);
    }
    if options.rule != Rule::Matmul {
        let shape = |tensor: &Bound<'py, PyAny>| tensor.getattr("shape")?.extract::<Vec<usize>>();
        options.rule.result(&shape(a)?, &shape(b)?).map_err(argument)?;
    }
    check_devices(&named)?;
    torch.dispatch(a, b, out, [("precision", precision), ("on_cpu", on_cpu), ("part", part)], invariant)
}

/// The product of torch tensors as they are in memory: what the operator does after everything else that torch wants to do.
#[pyfunction]
#[pyo3(signature = (a, b, out, *, precision = "fp32", on_cpu = "refuse", part = "all", invariant = false))]
pub(crate) fn multiply_tensors<'py>(
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    precision: &str,
    on_cpu: &str,
    part: &str,
    invariant: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options::parse(Rule::Matmul.name(), precision, on_cpu, part, invariant)?;
    let named = named(a, b, out);
    let torch = Torch::of(a.py(), &named)?.ok_or_else(|| argument("these are no torch tensors"))?;
    multiply_in_memory(torch, a, b, out, options)?.map_or_else(
        || {
            check_devices(&named)?;
            Err(not_in_memory(a)?.into())
        },
        Ok,
    )
}

/// How the product of `a` and `b` would be computed: see `tilewright.explain`.
#[pyfunction]
pub(crate) fn explain<'py>(
    rule: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    precision: &str,
    on_cpu: &str,
    part: &str,
    invariant: bool,
) -> PyResult<String> {
    let options = Options::parse(rule, precision, on_cpu, part, invariant)?;
    let named = named(a, b, None);
    let (left, right) = match Torch::of(a.py(), &named)? {
        Some(torch) => {
            check_devices(&named)?;
            let read = |name, tensor| torch.read(name, tensor)?.map_or_else(|| Err(not_in_memory(tensor)?), Ok);
            (read("a", a)?, read("b", b)?)
        }
        None => (Tensor::import("a", a)?, Tensor::import("b", b)?),
    };
    let (place, shape) = checked(&[&left, &right], options)?;
    // Results are aligned as allocations are.
    let c = Tensor::new("the product", 0x1000, contiguous(shape)?, place)?;
    if c.view.is_empty() {
        return Ok("The product has no elements: there is nothing to compute.\n".to_owned());
    }
    prepare(a.py(), place)?;
    // SAFETY: the default stream is valid; the job is not run.
    let job = place.on_its_threads(|| unsafe { job(place, Stream::LEGACY, options, &left, &right, &c) })?;
    Ok(job.explanation())
}

/// The operands that there are, with their names.
fn named<'a, 'py>(
    a: &'a Bound<'py, PyAny>,
    b: &'a Bound<'py, PyAny>,
    out: Option<&'a Bound<'py, PyAny>>,
) -> Vec<Named<'a, 'py>> {
    let all = [("a", Some(a)), ("b", Some(b)), ("out", out)];
    all.into_iter().filter_map(|(name, object)| Some((name, object?))).collect()
}

/// Checks operands, and gives the device and the shape of the product.
fn checked(tensors: &[&Tensor], options: Options) -> Result<(Place, Vec<usize>), Failure> {
    let (a, b) = (&tensors[0].view.shape, &tensors[1].view.shape);
    let shape = options.rule.result(a, b).map_err(argument)?;
    if options.part != Triangle::All && (a.len() < 2 || b.len() < 2) {
        let (a, b) = (tuple(a), tuple(b));
        return Err(argument(format!(
            "matmul: a has shape {a}, b has shape {b}: only matrices have triangles, and a product with a vector is none; leave \
             out part"
        )));
    }
    let place = common_place(tensors)?;
    options.on_cpu.check(place)?;
    Ok((place, shape))
}

fn contiguous(shape: Vec<usize>) -> Result<View, Failure> {
    let message = format!("the product, of shape {shape:?}, has more elements than can be counted");
    View::contiguous(shape).ok_or_else(|| argument(message))
}

/// Plans `c = a·b`.
///
/// # Safety
/// As for [`Job::new`].
unsafe fn job(
    place: Place,
    stream: Stream,
    options: Options,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
) -> Result<Job, Failure> {
    let products = Products::new(&a.view, &b.view, &c.view, options.part, options.invariant);
    let options = plan::Options { invariant: options.invariant, ..options.wanted.into() };
    // SAFETY: the caller's promise.
    unsafe { Job::new(place, stream, &options, products, [a.address, b.address, c.address]) }
}

/// The product of tensors that are plain memory; none if they are on a device whose memory kernels cannot use, or are to be
/// moved.
fn multiply_in_memory<'py>(
    torch: &Torch,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    options: Options,
) -> Result<Option<Bound<'py, PyAny>>, Failure> {
    let py = a.py();
    let (Some(left), Some(right)) = (torch.read("a", a)?, torch.read("b", b)?) else { return Ok(None) };
    // The operator moves tensors.
    if options.on_cpu == OnCpu::Move && (left.place, right.place) == (Place::Cpu, Place::Cpu) {
        return Ok(None);
    }
    let (result, c) = match out {
        Some(out) => {
            let Some(given) = torch.read("out", out)? else { return Ok(None) };
            let (_, shape) = checked(&[&left, &right, &given], options)?;
            given.check_is_result(&shape, &[&left, &right])?;
            (out.clone(), given)
        }
        None => {
            let (place, shape) = checked(&[&left, &right], options)?;
            let result = torch.empty(a, &shape)?;
            let c = Tensor::new("the product", torch::address(&result)?, contiguous(shape)?, place)?;
            (result, c)
        }
    };
    let place = c.place;
    if c.view.is_empty() {
        return Ok(Some(result));
    }
    let stream = torch.current_stream(py, place)?;
    prepare(py, place)?;
    // SAFETY: torch's current stream of the device, which torch keeps.
    let job = || unsafe { job(place, stream, options, &left, &right, &c) };
    let job = py.detach(|| place.on_its_threads(job))?;
    let bytes = job.workspace_bytes();
    let workspace = match place {
        Place::Cuda(_) if bytes > 0 => Some(torch.empty(a, &[bytes.div_ceil(size_of::<f32>())])?),
        // The executor wants its memory aligned as a GPU's is, which torch's is not.
        _ => None,
    };
    let address = workspace.as_ref().map(torch::address).transpose()?;
    // SAFETY: the addresses are those of tensors that this call holds, of the sizes that they have been read with. When it
    // returns, what is queued may still be running, and the tensors may go: torch's allocator then gives their memory to nobody
    // but what is queued behind on the stream that they were made for. The result and the workspace were made just now, for
    // the current stream, which is the one used here; whatever is in them is a float32. An operand made for another stream is
    // the caller's to record there, as for every operator of torch. That nobody writes to operands, or reads the result, out
    // of the stream's order, too.
    let run = || unsafe { job.run(address) };
    place.compute(py, run)?;
    if let Some(out) = out {
        torch.has_changed(out)?;
    }
    Ok(Some(result))
}

/// The product of arrays of any other library.
fn multiply_arrays<'py>(
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    options: Options,
) -> Result<Bound<'py, PyAny>, Failure> {
    let py = a.py();
    let (left, right) = (Tensor::import("a", a)?, Tensor::import("b", b)?);
    let given = out.map(|out| Tensor::import("out", out)).transpose()?;
    let tensors: Vec<&Tensor> = [Some(&left), Some(&right), given.as_ref()].into_iter().flatten().collect();
    let (place, shape) = checked(&tensors, options)?;
    if let Some(given) = &given {
        given.check_is_result(&shape, &[&left, &right])?;
    }
    prepare(py, place)?;
    let (result, c) = match (out, given) {
        (Some(out), Some(given)) => (out.clone(), given),
        _ => {
            let array = py.detach(|| Array::new(place, shape))?;
            let c = Tensor::new("out", array.address(), array.view().clone(), place)?;
            (Bound::new(py, array)?.into_any(), c)
        }
    };
    if c.view.is_empty() {
        return Ok(result);
    }
    let compute = || -> Result<(), Failure> {
        // SAFETY: the default stream is valid always.
        let job = unsafe { job(place, Stream::LEGACY, options, &left, &right, &c)? };
        // SAFETY: the memory is that of objects which the caller holds and of capsules which the tensors hold, and the result's
        // own; the libraries have made it ready for that stream, and whatever is in it is a float32. All that was queued has
        // finished before this returns, also after an error: on other streams, which a library may use, nothing would wait
        // for it. That no other thread writes to operands meanwhile is the caller's matter, as for every function of
        // these libraries.
        let queued = unsafe { job.run(None) };
        let finished = job.wait();
        queued.and(finished)
    };
    place.compute(py, compute)?;
    Ok(result)
}

/// Refuses a result of which elements share a place in memory: for results that torch copies to.
#[pyfunction]
pub(crate) fn check_is_apart(name: &str, shape: Vec<usize>, strides: Vec<usize>) -> PyResult<()> {
    Ok(tensor::check_is_apart(name, &View { shape, strides })?)
}

/// The names of all precisions, for a test that compares them with those that Python's types name.
#[pyfunction]
pub(crate) fn precisions(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, Precision::ALL.map(Precision::name))
}
