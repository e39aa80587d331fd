//! Matrices that are packed once, for many products: `pack` makes what kernels on tensor cores read, in memory of torch's.
//!
//! ```text
//!  pack(w, None, "fp32", …) ─► memory, a tensor of one extent ─┐
//!                                                              ├─► fused(…, packed_b = memory)    plans that read it do not pack w
//!  w ──────────────────────────────────────────────────────────┘                                  the others read w
//! ```
//!
//! Whether the memory has the numbers that the matrix has now is the caller's matter: `tilewright._packed` looks after that.

use pyo3::prelude::*;
use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side, Wanted};

use crate::engine::{PackedMemory, Place, Stream, span};
use crate::error::{Failure, argument};
use crate::once::name;
use crate::process::prepare;
use crate::product::{Given, Options, Request, contiguous};
use crate::shape::{Rule, Strides, tuple};
use crate::tensor::Tensor;
use crate::torch::{Torch, address, not_in_memory};

/// Packs a matrix of torch, whose rows are what vectors are multiplied by, for products in a precision: into new memory from torch's
/// allocator, or into what this has made before for a matrix of the same shape. Queued on the current stream, like a product.
#[pyfunction]
pub(crate) fn pack<'py>(
    w: &Bound<'py, PyAny>,
    memory: Option<&Bound<'py, PyAny>>,
    precision: &str,
    on_cpu: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, options) = (w.py(), Options::parse(Rule::Linear.name(), precision, on_cpu, "all", false)?);
    let Wanted::Precision(precision) = options.wanted else {
        return Err(argument(format!(
            "precision is {precision:?}: a matrix is packed for one of tilewright.Precision"
        ))
        .into());
    };
    let torch = Torch::get(py)?.ok_or_else(|| argument("only tensors of torch can be packed"))?;
    let Some(tensor) = torch.read("w", w)? else { return Err(not_in_memory(w)?.into()) };
    let place = tensor.place;
    options.on_cpu.check(place)?;
    prepare(py, place)?;
    let stream = torch.current_stream(py, place)?;
    // SAFETY: torch's current stream of the device, which torch keeps; nothing reads the matrix here.
    let elements =
        || unsafe { on_device(place, stream, &tensor, |device, matrix| elements(device, precision, &matrix)) };
    let elements = place.compute(py, elements)?;
    let memory = match memory {
        Some(memory) => memory.clone(),
        None => new_memory(torch, w, elements)?,
    };
    let into = torch.read_packed(&memory, place)?;
    if into.elements < elements {
        let has = into.elements;
        return Err(argument(format!(
            "what is packed has {has} elements, and packing w takes {elements}: pack it into new memory"
        ))
        .into());
    }
    let run = |device: &Device, matrix: DeviceMatrix| {
        // SAFETY: as below.
        let memory = unsafe { device.lent(into.address, into.elements) };
        PackedMatrix::new_in(memory, device, precision, Side::Right, matrix).map(drop)
    };
    // SAFETY: the addresses are those of tensors that this call holds. When it returns, what is queued may still be running, and the tensors may go:
    // torch's allocator then gives their memory to nobody but what is queued behind on the stream that they were made for. That nobody writes
    // to the matrix out of the stream's order is the caller's matter, as for every operator of torch; whatever is in new memory is a float32.
    place.compute(py, || unsafe { on_device(place, stream, &tensor, run) })?;
    Ok(memory)
}

/// Whether the product of vectors `x` and a matrix `w`, as `linear` takes them, would read w packed, if it were packed for this precision: not where
/// another kernel is faster.
#[pyfunction]
pub(crate) fn reads_packed(
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    precision: &str,
    on_cpu: &str,
) -> PyResult<bool> {
    let py = x.py();
    let request = Request::bare(Options::parse(Rule::Linear.name(), precision, on_cpu, "all", false)?);
    let torch = Torch::get(py)?.ok_or_else(|| argument("only tensors of torch can be packed"))?;
    let operands = Given::two(x, w, None).read(&request, |name, tensor| torch.read(name, tensor))?;
    let Some(operands) = operands else { return Ok(false) };
    let place = operands.place;
    // Results are aligned as allocations are.
    let c = Tensor::new("the product", 0x1000, contiguous(operands.shape().to_vec())?, place)?;
    if c.view.is_empty() {
        return Ok(false);
    }
    prepare(py, place)?;
    let stream = torch.current_stream(py, place)?;
    let operands = operands.supposed_packed();
    // SAFETY: torch's current stream of the device, which torch keeps; the job is not run.
    let job = || unsafe { operands.job(stream, &request, &c) };
    let job = place.compute(py, job)?;
    Ok(job.reads_packed()[1])
}

/// The matrix that products of vectors and `w` have on their right side, on a device.
///
/// # Safety
/// The stream is the GPU's, and valid; and as for [`Device::lent`], for what `work` does with the matrix.
unsafe fn on_device<R>(
    place: Place,
    stream: Stream,
    w: &Tensor,
    work: impl FnOnce(&Device, DeviceMatrix) -> Result<R, tilewright::Error>,
) -> Result<R, Failure> {
    let (&[rows, cols], &[row_stride, col_stride]) = (&w.view.shape[..], &w.view.strides[..]) else {
        return Err(argument(format!("w has shape {}: only matrices can be packed", tuple(&w.view.shape))));
    };
    let _kept = place.keep_context()?;
    // SAFETY: the caller's promise; the handle does not outlive this.
    let device = unsafe { place.device_on(stream)? };
    let len = span(rows, cols, 1, Strides { rows: row_stride, cols: col_stride, batch: 0 });
    // SAFETY: the caller's promise.
    let buffer = unsafe { device.lent(w.address, len) };
    Ok(work(&device, DeviceMatrix::new(buffer, cols, rows, [col_stride, row_stride])?)?)
}

/// How many elements packing takes.
fn elements(device: &Device, precision: Precision, matrix: &DeviceMatrix) -> Result<usize, tilewright::Error> {
    Ok(PackedMatrix::bytes(device, precision, Side::Right, matrix)?.div_ceil(size_of::<f32>()))
}

/// So many elements from torch's allocator, at a multiple of [`PackedMemory::ALIGNMENT`], as everything is on a GPU.
fn new_memory<'py>(torch: &Torch, like: &Bound<'py, PyAny>, elements: usize) -> PyResult<Bound<'py, PyAny>> {
    let more = PackedMemory::ALIGNMENT / size_of::<f32>() - 1;
    let memory = torch.empty(like, &[elements + more])?;
    let start = address(&memory)?;
    let before = (start.next_multiple_of(PackedMemory::ALIGNMENT) - start) / size_of::<f32>();
    memory.call_method1(name!(like.py(), "narrow"), (0, before, elements))
}
