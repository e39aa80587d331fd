//! Products of lists of matrices, each of sizes and a layout of its own: one call, and a launch for each kernel.

use pyo3::prelude::*;
use tilewright::plan::{GroupedPlan, Options};
use tilewright::{DeviceMatrix, Wanted};

use crate::array::Array;
use crate::engine::{Place, Stream, load, span};
use crate::error::{Failure, argument};
use crate::process::prepare;
use crate::product::{OnCpu, text};
use crate::shape::{Strides, tuple};
use crate::tensor::{Tensor, common_place};
use crate::torch::{self, Named, Torch, check_devices, not_in_memory};

/// The matrices of a product.
struct Product {
    a: Tensor,
    b: Tensor,
    c: Tensor,
}

/// What the lists have of a product: a, b and, if results are given, out.
#[derive(Clone, Copy)]
struct Objects<'a, 'py> {
    a: &'a Bound<'py, PyAny>,
    b: &'a Bound<'py, PyAny>,
    out: Option<&'a Bound<'py, PyAny>>,
}

impl<'a, 'py> Objects<'a, 'py> {
    fn named(self) -> impl Iterator<Item = Named<'a, 'py>> {
        [("a", Some(self.a)), ("b", Some(self.b)), ("out", self.out)]
            .into_iter()
            .filter_map(|(name, it)| Some((name, it?)))
    }
}

/// All products, as tensors in memory, and the results as Python has them.
struct Read<'py> {
    place: Place,
    products: Vec<Product>,
    results: Vec<Bound<'py, PyAny>>,
}

/// Which product of the lists an error is about.
fn of_product(number: usize, failure: Failure) -> Failure {
    match failure {
        Failure::Ours(kind, message) => Failure::new(kind, format!("product {number} of the group: {message}")),
        python @ Failure::Python(_) => python,
    }
}

/// The rows of the product of two matrices, and its columns.
fn shape_of(a: &Tensor, b: &Tensor) -> Result<[usize; 2], Failure> {
    match (&a.view.shape[..], &b.view.shape[..]) {
        (&[m, of_a], &[of_b, n]) if of_a == of_b => Ok([m, n]),
        (of_a, of_b) => Err(argument(format!(
            "a has shape {}, b has shape {}: they have to be matrices, and the last extent of a and the first of b the same",
            tuple(of_a),
            tuple(of_b)
        ))),
    }
}

/// The products of `a[i]` and `b[i]`, of any kind: see `tilewright.grouped_matmul`.
#[pyfunction]
pub(crate) fn grouped<'py>(
    py: Python<'py>,
    a: Vec<Bound<'py, PyAny>>,
    b: Vec<Bound<'py, PyAny>>,
    out: Option<Vec<Bound<'py, PyAny>>>,
    precision: &Bound<'py, PyAny>,
    on_cpu: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (precision, on_cpu) = (text("precision", precision)?, text("on_cpu", on_cpu)?);
    let wanted: Wanted =
        precision.parse().map_err(|why: String| argument(format!("precision is {precision:?}: {why}")))?;
    let on_cpu = OnCpu::parse(on_cpu)?;
    if a.len() != b.len() || out.as_ref().is_some_and(|out| out.len() != a.len()) {
        let given = out.as_ref().map_or("no".to_owned(), |out| out.len().to_string());
        return Err(argument(format!(
            "a has {} matrices, b has {}, and there are {given} results: each product has one of each",
            a.len(),
            b.len()
        ))
        .into());
    }
    if on_cpu == OnCpu::Move {
        return Err(argument(
            "on_cpu=\"move\" is for matmul: move the matrices to a CUDA device by their library, such as torch's cuda()",
        )
        .into());
    }
    let out_of = |number: usize| out.as_ref().map(|out| &out[number]);
    let objects: Vec<Objects<'_, 'py>> =
        a.iter().zip(&b).enumerate().map(|(number, (a, b))| Objects { a, b, out: out_of(number) }).collect();
    let named: Vec<Named<'_, 'py>> = objects.iter().flat_map(|objects| objects.named()).collect();
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    match Torch::of(py, &named)? {
        Some(torch) => {
            check_devices(&named)?;
            let tensors: Vec<_> = named.iter().map(|(_, tensor)| *tensor).collect();
            if !torch.is_direct(&tensors)? {
                return Err(argument(
                    "grouped_matmul has no derivative, and no torch function or mode sees it: call it under torch.no_grad(), or \
                     multiply by matmul",
                )
                .into());
            }
            Ok(of_tensors(py, torch, &objects, wanted, on_cpu)?)
        }
        None => Ok(of_arrays(py, &objects, wanted, on_cpu)?),
    }
}

/// Reads all matrices, and has `result` make those results that are not given. `place` is where all of them are.
fn read<'py>(
    objects: &[Objects<'_, 'py>],
    on_cpu: OnCpu,
    read: impl Fn(&'static str, &Bound<'py, PyAny>) -> Result<Tensor, Failure>,
    result: impl Fn(Place, &Bound<'py, PyAny>, [usize; 2]) -> Result<(Bound<'py, PyAny>, Tensor), Failure>,
) -> Result<Read<'py>, Failure> {
    let operands = |(number, objects): (usize, &Objects<'_, 'py>)| {
        let both = || Ok((read("a", objects.a)?, read("b", objects.b)?));
        both().map_err(|failure| of_product(number, failure))
    };
    let operands = objects.iter().enumerate().map(operands).collect::<Result<Vec<_>, _>>()?;
    let place = common_place(&operands.iter().flat_map(|(a, b)| [a, b]).collect::<Vec<_>>())?;
    on_cpu.check(place)?;
    let (mut products, mut results) = (Vec::new(), Vec::new());
    for (number, ((a, b), objects)) in operands.into_iter().zip(objects).enumerate() {
        let one = || {
            let shape = shape_of(&a, &b)?;
            let Some(out) = objects.out else { return result(place, objects.a, shape) };
            let c = read("out", out)?;
            common_place(&[&a, &c])?;
            c.check_is_result(&shape, &[&a, &b])?;
            Ok((out.clone(), c))
        };
        let (object, c) = one().map_err(|failure| of_product(number, failure))?;
        products.push(Product { a, b, c });
        results.push(object);
    }
    Ok(Read { place, products, results })
}

/// Queues the products on a stream; on the CPU executor, computes them. `tables` is the address of memory for the tables; without it,
/// memory is allocated, and this waits before it is freed.
///
/// # Safety
/// The stream is the GPU's, and valid. For all memory of the matrices, and for the tables, what
/// [`Device::lent`](tilewright::Device) demands.
unsafe fn multiply(
    place: Place,
    stream: Stream,
    wanted: Wanted,
    products: &[Product],
    tables: Option<usize>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let device = unsafe { place.device_on(stream)? };
    let _kept = place.keep_context()?;
    let matrix = |tensor: &Tensor| {
        let &[rows, cols] = &tensor.view.shape[..] else { return Err(argument("a matrix has two extents")) };
        let &[row_stride, col_stride] = &tensor.view.strides[..] else {
            return Err(argument("a matrix has two strides"));
        };
        let strides = Strides { rows: row_stride, cols: col_stride, batch: 0 };
        // SAFETY: the caller's promise. These elements are those that the view spans.
        let buffer = unsafe { device.lent(tensor.address, span(rows, cols, 1, strides)) };
        Ok(DeviceMatrix::new(buffer, rows, cols, [row_stride, col_stride])?)
    };
    let of_product = |it: &Product| Ok([matrix(&it.a)?, matrix(&it.b)?, matrix(&it.c)?]);
    let mut matrices = products.iter().map(of_product).collect::<Result<Vec<_>, Failure>>()?;
    let buffer = |elements| match tables {
        // SAFETY: the caller's promise.
        Some(address) => Ok(unsafe { device.lent(address, elements) }),
        None => Ok(device.allocate(elements)?),
    };
    let triples = matrices.iter_mut().map(|[a, b, c]| (&*a, &*b, c));
    let mut plan = GroupedPlan::new_in(&device, buffer, &Options::from(wanted), triples)?;
    // SAFETY: the caller's promise.
    unsafe { load(place, &device, stream, || Ok(plan.load()?))? };
    plan.run(1.0, 0.0)?;
    if tables.is_none() {
        device.synchronize()?;
    }
    Ok(())
}

/// The products of torch tensors as they are in memory.
fn of_tensors<'py>(
    py: Python<'py>,
    torch: &Torch,
    objects: &[Objects<'_, 'py>],
    wanted: Wanted,
    on_cpu: OnCpu,
) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
    let read_tensor = |name, tensor: &Bound<'py, PyAny>| match torch.read(name, tensor)? {
        Some(read) => Ok(read),
        None => Err(not_in_memory(tensor)?),
    };
    let result = |_: Place, like: &Bound<'py, PyAny>, shape: [usize; 2]| {
        let made = torch.empty(like, &shape)?;
        let read = read_tensor("the product", &made)?;
        Ok((made, read))
    };
    let Read { place, products, results } = read(objects, on_cpu, read_tensor, result)?;
    let stream = torch.current_stream(py, place)?;
    prepare(py, place)?;
    let elements = GroupedPlan::most_table_elements(products.len());
    let tables = match place {
        Place::Cuda(_) => Some(torch.empty(objects[0].a, &[elements])?),
        // The executor wants its memory aligned as a GPU's is, which torch's is not.
        Place::Cpu => None,
    };
    let address = tables.as_ref().map(torch::address).transpose()?;
    // SAFETY: torch's current stream of the device, which torch keeps. The addresses are those of tensors that this call holds, of the
    // sizes that they have been read with. When it returns, what is queued may still be running, and the tensors may go: torch's
    // allocator then gives their memory to nobody but what is queued behind on the stream that they were made for. The results and the
    // tables were made just now, for the current stream, which is the one used here; whatever is in them is a float32. An operand
    // made for another stream is the caller's to record there, as for every operator of torch. That nobody writes to operands, or
    // reads results, out of the stream's order, too.
    let run = || unsafe { multiply(place, stream, wanted, &products, address) };
    place.compute(py, run)?;
    for objects in objects {
        if let Some(out) = objects.out {
            torch.has_changed(out)?;
        }
    }
    Ok(results)
}

/// The products of arrays of any other library.
fn of_arrays<'py>(
    py: Python<'py>,
    objects: &[Objects<'_, 'py>],
    wanted: Wanted,
    on_cpu: OnCpu,
) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
    let result = |place: Place, _: &Bound<'py, PyAny>, shape: [usize; 2]| {
        let array = py.detach(|| Array::new(place, shape.to_vec()))?;
        let c = Tensor::new("out", array.address(), array.view().clone(), place)?;
        Ok((Bound::new(py, array)?.into_any(), c))
    };
    let Read { place, products, results } = read(objects, on_cpu, |name, object| Tensor::import(name, object), result)?;
    prepare(py, place)?;
    let run = || {
        // SAFETY: the default stream is valid always. The memory is that of objects which the caller holds and of capsules which
        // the tensors hold, and the results' own; the libraries have made it ready for that stream, and whatever is in it is a
        // float32. Without memory for the tables, all that was queued has finished before this returns, also after an error: a
        // buffer waits before it is freed. That no other thread writes to operands meanwhile is the caller's matter, as for every
        // function of these libraries.
        unsafe { multiply(place, Stream::LEGACY, wanted, &products, None) }
    };
    place.compute(py, run)?;
    Ok(results)
}
