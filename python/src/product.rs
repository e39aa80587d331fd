//! One call: from operands of any kind to a result that is queued.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString, PyTuple};
use tilewright::plan::{self, Triangle};
use tilewright::{Precision, Wanted};

use crate::array::Array;
use crate::engine::{Finish, Job, PackedMemory, Place, Step, Stream};
use crate::error::{Failure, argument, operand_type};
use crate::process::prepare;
use crate::shape::{MOST_OPERANDS, Products, Rule, View, tuple};
use crate::tensor::{self, Tensor, common_place, shown};
use crate::torch::{self, Audience, Named, Torch, check_devices, not_in_memory};

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

/// An option that is text.
pub(crate) fn text<'a>(name: &str, value: &'a Bound<'_, PyAny>) -> Result<&'a str, Failure> {
    let text = value.cast::<PyString>();
    let text = text.map_err(|_| operand_type(format!("{name} is {}: pass a string", shown(value))))?;
    text.to_str().map_err(|_| argument(format!("{name} is {}, which is no text", shown(value))))
}

/// An option that is true or false.
pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> Result<bool, Failure> {
    value.extract().map_err(|_| operand_type(format!("{name} is {}: pass True or False", shown(value))))
}

/// How a product is computed.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    rule: Rule,
    /// The precision, or how accurate it has to be.
    pub(crate) wanted: Wanted,
    pub(crate) on_cpu: OnCpu,
    /// What is wanted of each matrix of the result.
    part: Triangle,
    /// Whether rows have bits that do not depend on other rows.
    invariant: bool,
}

impl Options {
    pub(crate) fn parse(
        rule: &str,
        precision: &str,
        on_cpu: &str,
        part: &str,
        invariant: bool,
    ) -> Result<Self, Failure> {
        let refused = |what: &str, value: &str, why: &str| argument(format!("{what} is {value:?}: {why}"));
        Ok(Self {
            rule: Rule::of_name(rule).ok_or_else(|| refused("the rule", rule, "no function is called so"))?,
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

/// What is to be computed: how, what the product is multiplied by, and what is done behind it.
pub(crate) struct Request {
    options: Options,
    alpha: f32,
    steps: Vec<Step>,
    /// What the caller calls what the steps read.
    names: Vec<&'static str>,
}

impl Request {
    /// A product and nothing else.
    pub(crate) fn bare(options: Options) -> Self {
        Self { options, alpha: 1.0, steps: Vec::new(), names: Vec::new() }
    }

    /// A product times α, and steps behind it, as many of which read something as there are names.
    pub(crate) fn new(
        options: Options,
        alpha: f32,
        steps: Vec<Step>,
        names: Vec<&'static str>,
    ) -> Result<Self, Failure> {
        if names.len() > MOST_OPERANDS {
            return Err(argument(format!(
                "{} reads {} tensors behind the product ({}), and can read {MOST_OPERANDS}: leave something to another operation",
                options.rule.name(),
                names.len(),
                names.join(", ")
            )));
        }
        Ok(Self { options, alpha, steps, names })
    }
}

/// The operands and the result, as Python has them.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a, 'py> {
    pub(crate) a: &'a Bound<'py, PyAny>,
    pub(crate) b: &'a Bound<'py, PyAny>,
    /// What the steps behind the product read.
    pub(crate) operands: &'a [Bound<'py, PyAny>],
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    /// What a and b were packed into before, if they were.
    pub(crate) packed: [Option<&'a Bound<'py, PyAny>>; 2],
}

impl<'a, 'py> Given<'a, 'py> {
    /// Operands and nothing else.
    pub(crate) fn two(a: &'a Bound<'py, PyAny>, b: &'a Bound<'py, PyAny>, out: Option<&'a Bound<'py, PyAny>>) -> Self {
        Self { a, b, operands: &[], out, packed: [None; 2] }
    }

    /// All that there are, with what the caller calls them.
    pub(crate) fn named(self, request: &Request) -> Vec<Named<'a, 'py>> {
        let [a, b] = request.options.rule.operands();
        let operands = request.names.iter().copied().zip(self.operands);
        [(a, self.a), (b, self.b)].into_iter().chain(operands).chain(self.out.map(|out| ("out", out))).collect()
    }

    /// Reads all that there are; none, if one of them cannot be read.
    pub(crate) fn read(
        self,
        request: &Request,
        read: impl Fn(&'static str, &'a Bound<'py, PyAny>) -> Result<Option<Tensor>, Failure>,
    ) -> Result<Option<Operands>, Failure> {
        let mut tensors = Vec::with_capacity(3);
        for (name, object) in self.named(request) {
            let Some(tensor) = read(name, object)? else { return Ok(None) };
            tensors.push(tensor);
        }
        let out = self.out.and_then(|_| tensors.pop());
        let mut operands = Operands::new(request, tensors, out)?;
        if let Some(torch) = Torch::get(self.a.py())? {
            let packed = |tensor: Option<_>| tensor.map(|tensor| torch.read_packed(tensor, operands.place)).transpose();
            let [a, b] = self.packed;
            operands.packed = [packed(a)?, packed(b)?];
        }
        Ok(Some(operands))
    }
}

/// The same as tensors in memory.
pub(crate) struct Operands {
    /// a and b, and then what the steps read.
    read: Vec<Tensor>,
    out: Option<Tensor>,
    /// The shape of the result.
    shape: Vec<usize>,
    /// The strides of what the steps read, as if it had that shape.
    strides: Vec<Vec<usize>>,
    pub(crate) place: Place,
    packed: [Option<PackedMemory>; 2],
}

impl Operands {
    /// Tensors that go together, on a device that may be used.
    fn new(request: &Request, read: Vec<Tensor>, out: Option<Tensor>) -> Result<Self, Failure> {
        let Request { options, .. } = request;
        let shape = options.rule.result(&read[0].view.shape, &read[1].view.shape).map_err(argument)?;
        let is_vector = |tensor: &Tensor| tensor.view.shape.len() < 2;
        if options.part != Triangle::All && (is_vector(&read[0]) || is_vector(&read[1])) {
            let (a, b) = (tuple(&read[0].view.shape), tuple(&read[1].view.shape));
            return Err(argument(format!(
                "matmul: a has shape {a}, b has shape {b}: only matrices have triangles, and a product with a vector is none; leave \
                 out part"
            )));
        }
        let strides = |operand: &Tensor| {
            operand.view.broadcast_to(&shape).ok_or_else(|| {
                let (name, is, needed) = (operand.name, tuple(&operand.view.shape), tuple(&shape));
                argument(format!(
                    "{name} has shape {is}, and the product has shape {needed}: each extent, counted from the last one, has to be equal \
                     or 1"
                ))
            })
        };
        let strides = read[2..].iter().map(strides).collect::<Result<Vec<_>, _>>()?;
        let place = common_place(&read.iter().chain(&out).collect::<Vec<_>>())?;
        options.on_cpu.check(place)?;
        if let Some(out) = &out {
            out.check_is_result(&shape, &read.iter().collect::<Vec<_>>())?;
        }
        Ok(Self { read, out, shape, strides, place, packed: [None; 2] })
    }

    /// Plans what was asked for, with the result in `c`.
    ///
    /// # Safety
    /// As for [`Job::new`].
    pub(crate) unsafe fn job(&self, stream: Stream, request: &Request, c: &Tensor) -> Result<Job, Failure> {
        let Request { options, alpha, steps, .. } = request;
        let (a, b) = (&self.read[0], &self.read[1]);
        let right = if options.rule.transposes() { b.view.clone().transposed() } else { b.view.clone() };
        let mut products =
            Products::with_operands(&a.view, &right, &c.view, &self.strides, options.part, options.invariant);
        if *alpha == 0.0 {
            products = products.without_terms();
        }
        products.has_steps = Finish::has_effect(steps);
        products.packed = self.packed_for(options, &products);
        let plan = plan::Options { invariant: options.invariant, ..options.wanted.into() };
        // SAFETY: the caller's promise.
        unsafe { Job::new(self.place, stream, &plan, products, [a.address, b.address, c.address]) }
    }

    /// The shape of the result.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same, as if b had been packed before: to be planned, and not to be run.
    pub(crate) fn supposed_packed(self) -> Self {
        Self { packed: [None, Some(PackedMemory::NOWHERE)], ..self }
    }

    /// The precision that a and b were packed for, of those that are multiplied as the one matrix that they are: in a batch, or without terms, they
    /// are not.
    fn packed_for(&self, options: &Options, products: &Products) -> [Option<Precision>; 2] {
        let Wanted::Precision(precision) = options.wanted else { return [None; 2] };
        let Products { m, n, k, count, .. } = *products;
        let lines = [m, n];
        let is_whole = |operand: usize| {
            let elements = self.read[operand].view.shape.iter().product::<usize>();
            k > 0 && count == 1 && Some(elements) == lines[operand].checked_mul(k)
        };
        [0, 1].map(|operand| (self.packed[operand].is_some() && is_whole(operand)).then_some(precision))
    }

    /// What is done behind the product.
    fn finish(&self, request: &Request) -> Finish {
        let addresses = self.read[2..].iter().map(|operand| operand.address).collect();
        // Without terms, the product is zero.
        let alpha = if request.alpha == 0.0 { 1.0 } else { request.alpha };
        Finish { alpha, steps: request.steps.clone(), addresses }
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
    precision: &Bound<'py, PyAny>,
    on_cpu: &Bound<'py, PyAny>,
    part: &Bound<'py, PyAny>,
    invariant: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (precision, on_cpu, part) = (text("precision", precision)?, text("on_cpu", on_cpu)?, text("part", part)?);
    let invariant = flag("invariant", invariant)?;
    let request = Request::bare(Options::parse(rule, precision, on_cpu, part, invariant)?);
    compute(Given::two(a, b, out), &request, |torch, audience| {
        let options = [("precision", precision), ("on_cpu", on_cpu), ("part", part)].into_py_dict(a.py())?;
        options.set_item("invariant", invariant)?;
        torch.product(audience, out).bind(a.py()).call((a, b, out), Some(&options))
    })
}

/// Computes what is asked for: at once where nobody wants to see the call, otherwise as `dispatch` does for who wants to.
pub(crate) fn compute<'py>(
    given: Given<'_, 'py>,
    request: &Request,
    dispatch: impl FnOnce(&Torch, Audience) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (Given { a, b, .. }, named) = (given, given.named(request));
    let Some(torch) = Torch::of(a.py(), &named)? else { return Ok(compute_arrays(given, request)?) };
    let tensors: Vec<_> = named.iter().map(|(_, tensor)| *tensor).collect();
    let audience = torch.audience(&tensors)?;
    if audience == Audience::Nobody
        && let Some(result) = compute_in_memory(torch, given, request)?
    {
        return Ok(result);
    }
    if request.options.rule != Rule::Matmul {
        let shape = |tensor: &Bound<'py, PyAny>| tensor.getattr("shape")?.extract::<Vec<usize>>();
        request.options.rule.result(&shape(a)?, &shape(b)?).map_err(argument)?;
    }
    check_devices(&named)?;
    dispatch(torch, audience)
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
    compute_tensors(Given::two(a, b, out), &Request::bare(options))
}

/// Computes what is asked for with torch tensors as they are in memory.
pub(crate) fn compute_tensors<'py>(given: Given<'_, 'py>, request: &Request) -> PyResult<Bound<'py, PyAny>> {
    let named = given.named(request);
    let torch = Torch::of(given.a.py(), &named)?.ok_or_else(|| argument("these are no torch tensors"))?;
    compute_in_memory(torch, given, request)?.map_or_else(
        || {
            check_devices(&named)?;
            Err(not_in_memory(given.a)?.into())
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
    precision: &Bound<'py, PyAny>,
    on_cpu: &Bound<'py, PyAny>,
    part: &Bound<'py, PyAny>,
    invariant: &Bound<'py, PyAny>,
) -> PyResult<String> {
    let (precision, on_cpu, part) = (text("precision", precision)?, text("on_cpu", on_cpu)?, text("part", part)?);
    let invariant = flag("invariant", invariant)?;
    let request = Request::bare(Options::parse(rule, precision, on_cpu, part, invariant)?);
    let given = Given::two(a, b, None);
    let named = given.named(&request);
    let operands = match Torch::of(a.py(), &named)? {
        Some(torch) => {
            check_devices(&named)?;
            given.read(&request, |name, tensor| torch.read(name, tensor))?
        }
        None => given.read(&request, |name, array| Tensor::import(name, array).map(Some))?,
    };
    let Some(operands) = operands else { return Err(not_in_memory(a)?.into()) };
    let place = operands.place;
    // Results are aligned as allocations are.
    let c = Tensor::new("the product", 0x1000, contiguous(operands.shape.clone())?, place)?;
    if c.view.is_empty() {
        return Ok("The product has no elements: there is nothing to compute.\n".to_owned());
    }
    let py = a.py();
    prepare(py, place)?;
    let explanation = || {
        // SAFETY: the default stream is valid; the job is not run.
        let job = unsafe { operands.job(Stream::LEGACY, &request, &c)? };
        Ok(job.explanation())
    };
    Ok(place.compute(py, explanation)?)
}

pub(crate) fn contiguous(shape: Vec<usize>) -> Result<View, Failure> {
    let message = format!("the product, of shape {shape:?}, has more elements than can be counted");
    View::contiguous(shape).ok_or_else(|| argument(message))
}

/// Computes what is asked for with tensors that are plain memory; gives none if they are on a device whose memory kernels cannot use,
/// or are to be moved.
fn compute_in_memory<'py>(
    torch: &Torch,
    given: Given<'_, 'py>,
    request: &Request,
) -> Result<Option<Bound<'py, PyAny>>, Failure> {
    let (py, a) = (given.a.py(), given.a);
    // The operator moves tensors.
    if request.options.on_cpu == OnCpu::Move && torch.are_on_cpu(&given.named(request))? {
        return Ok(None);
    }
    let Some(operands) = given.read(request, |name, tensor| torch.read(name, tensor))? else { return Ok(None) };
    let place = operands.place;
    let made;
    let (result, c) = match (given.out, &operands.out) {
        (Some(out), Some(c)) => (out.clone(), c),
        _ => {
            let result = torch.empty(a, &operands.shape)?;
            made = Tensor::new("the product", torch::address(&result)?, contiguous(operands.shape.clone())?, place)?;
            (result, &made)
        }
    };
    if c.view.is_empty() {
        return Ok(Some(result));
    }
    let stream = torch.current_stream(py, place)?;
    prepare(py, place)?;
    // SAFETY: torch's current stream of the device, which torch keeps.
    let job = || unsafe { operands.job(stream, request, c) };
    let job = place.compute(py, job)?;
    let bytes = job.workspace_bytes();
    let workspace = match place {
        Place::Cuda(_) if bytes > 0 => Some(torch.empty(a, &[bytes.div_ceil(size_of::<f32>())])?),
        // The executor wants its memory aligned as a GPU's is, which torch's is not.
        _ => None,
    };
    let address = workspace.as_ref().map(torch::address).transpose()?;
    let finish = operands.finish(request);
    // SAFETY: the addresses are those of tensors that this call holds, of the sizes that they have been read with. When it
    // returns, what is queued may still be running, and the tensors may go: torch's allocator then gives their memory to nobody
    // but what is queued behind on the stream that they were made for. The result and the workspace were made just now, for
    // the current stream, which is the one used here; whatever is in them is a float32. An operand made for another stream is
    // the caller's to record there, as for every operator of torch. That nobody writes to operands, or reads the result, out
    // of the stream's order, too.
    let run = || unsafe { job.run(operands.packed, &finish, address) };
    place.compute(py, run)?;
    if let Some(out) = given.out {
        torch.has_changed(out)?;
    }
    Ok(Some(result))
}

/// Computes what is asked for with arrays of any other library.
fn compute_arrays<'py>(given: Given<'_, 'py>, request: &Request) -> Result<Bound<'py, PyAny>, Failure> {
    let py = given.a.py();
    let operands = given.read(request, |name, array| Tensor::import(name, array).map(Some))?;
    let operands = operands.ok_or_else(|| argument("these are no arrays"))?;
    let place = operands.place;
    prepare(py, place)?;
    let made;
    let (result, c) = match (given.out, &operands.out) {
        (Some(out), Some(c)) => (out.clone(), c),
        _ => {
            let array = py.detach(|| Array::new(place, operands.shape.clone()))?;
            made = Tensor::new("out", array.address(), array.view().clone(), place)?;
            (Bound::new(py, array)?.into_any(), &made)
        }
    };
    if c.view.is_empty() {
        return Ok(result);
    }
    let finish = operands.finish(request);
    let compute = || -> Result<(), Failure> {
        // SAFETY: the default stream is valid always.
        let job = unsafe { operands.job(Stream::LEGACY, request, c)? };
        // SAFETY: the memory is that of objects which the caller holds and of capsules which the tensors hold, and the result's
        // own; the libraries have made it ready for that stream, and whatever is in it is a float32. All that was queued has
        // finished before this returns, also after an error: on other streams, which a library may use, nothing would wait
        // for it. That no other thread writes to operands meanwhile is the caller's matter, as for every function of
        // these libraries.
        let queued = unsafe { job.run([None; 2], &finish, None) };
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
