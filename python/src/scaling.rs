//! Products with diagonal matrices and with numbers: one call, from operands of any kind to a result that is queued.

use std::iter;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use tilewright::{Device, DeviceMatrix, kernels};

use crate::array::Array;
use crate::engine::{Place, Stream, load, span};
use crate::error::{Failure, argument, operand_type};
use crate::once::Once;
use crate::process::prepare;
use crate::product::{OnCpu, text};
use crate::shape::{Scalings, Strides, tuple};
use crate::tensor::{Tensor, common_place, type_name};
use crate::torch::{Named, Torch, check_devices, not_in_memory};

/// What is to be multiplied, as Python has it.
#[derive(Clone, Copy)]
struct Objects<'a, 'py> {
    matrix: &'a Bound<'py, PyAny>,
    rows: Option<&'a Bound<'py, PyAny>>,
    columns: Option<&'a Bound<'py, PyAny>>,
    out: Option<&'a Bound<'py, PyAny>>,
}

impl<'a, 'py> Objects<'a, 'py> {
    /// Those that there are.
    fn named(self) -> Vec<Named<'a, 'py>> {
        let optional = [("rows", self.rows), ("columns", self.columns), ("out", self.out)];
        let optional = optional.into_iter().filter_map(|(name, object)| Some((name, object?)));
        iter::once(("matrix", self.matrix)).chain(optional).collect()
    }
}

/// The same as tensors in memory.
struct Operands {
    matrix: Tensor,
    rows: Option<Tensor>,
    columns: Option<Tensor>,
    out: Option<Tensor>,
}

impl Operands {
    /// Reads all that there are; none, if one of them cannot be read.
    fn read<'a, 'py>(
        objects: Objects<'a, 'py>,
        read: impl Fn(&'static str, &'a Bound<'py, PyAny>) -> Result<Option<Tensor>, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let mut tensors = [None, None, None, None];
        for (name, object) in objects.named() {
            let Some(tensor) = read(name, object)? else { return Ok(None) };
            let place = ["matrix", "rows", "columns", "out"].into_iter().position(|known| known == name);
            tensors[place.unwrap_or_default()] = Some(tensor);
        }
        let [matrix, rows, columns, out] = tensors;
        Ok(matrix.map(|matrix| Self { matrix, rows, columns, out }))
    }

    fn all(&self) -> Vec<&Tensor> {
        let optional = [&self.rows, &self.columns, &self.out];
        iter::once(&self.matrix).chain(optional.into_iter().flatten()).collect()
    }

    /// Checks that they go together and where they are, which it gives.
    fn check(&self, on_cpu: OnCpu) -> Result<Place, Failure> {
        let shape = &self.matrix.view.shape;
        let [.., m, n] = shape[..] else {
            return Err(argument(format!(
                "matrix has shape {}: it needs two extents at least, of which the last two are its rows and columns",
                tuple(shape)
            )));
        };
        for (factors, extent, lines) in [(&self.rows, m, "rows"), (&self.columns, n, "columns")] {
            if let Some(Tensor { name, view, .. }) = factors
                && view.shape != [extent]
            {
                return Err(argument(format!(
                    "{name} has shape {}, and matrix has shape {}, so {extent} {lines}: pass a vector of a factor for each",
                    tuple(&view.shape),
                    tuple(shape)
                )));
            }
        }
        let place = common_place(&self.all())?;
        on_cpu.check(place)?;
        if let Some(out) = &self.out {
            // Every element is read before it is written, by the thread that writes it.
            let matrix = (!out.is_same_as(&self.matrix)).then_some(&self.matrix);
            let read = [matrix, self.rows.as_ref(), self.columns.as_ref()].into_iter().flatten();
            out.check_is_result(shape, &read.collect::<Vec<_>>())?;
        }
        Ok(place)
    }

    /// Queues the multiplication on the device's stream; on the CPU executor, computes it.
    ///
    /// # Safety
    /// For all memory of the operands, and of the result, what [`Device::lent`] demands.
    unsafe fn scale(&self, device: &Device, place: Place, by: f32, result: &Tensor) -> Result<(), Failure> {
        let _kept = place.keep_context()?;
        let scalings = Scalings::new(&self.matrix.view, &result.view, self.rows.is_some());
        let Scalings { m, n, count, from, to, .. } = scalings;
        let matrices = |first: usize, rows, cols, count, strides: Strides| {
            // SAFETY: the caller's promise. These elements are among those that the view spans.
            let buffer = unsafe { device.lent(first, span(rows, cols, count, strides)) };
            DeviceMatrix::new(buffer, rows, cols, [strides.rows, strides.cols])?.into_batch(count, strides.batch)
        };
        let rows = self
            .rows
            .as_ref()
            .map(|rows| matrices(rows.address, m, 1, 1, Strides { rows: rows.view.strides[0], cols: 1, batch: 0 }));
        let columns = self.columns.as_ref().map(|columns| {
            matrices(columns.address, 1, n, 1, Strides { rows: 1, cols: columns.view.strides[0], batch: 0 })
        });
        let (rows, columns) = (rows.transpose()?, columns.transpose()?);
        for [of_matrix, of_result] in scalings.offsets() {
            let at = |tensor: &Tensor, offset: usize| tensor.address + offset * size_of::<f32>();
            let mut c = matrices(at(result, of_result), m, n, count, to)?;
            if result.is_same_as(&self.matrix) {
                tilewright::scale_in_place(device, by, rows.as_ref(), columns.as_ref(), &mut c)?;
            } else {
                let b = matrices(at(&self.matrix, of_matrix), m, n, count, from)?;
                tilewright::scale(device, by, rows.as_ref(), &b, columns.as_ref(), &mut c)?;
            }
        }
        Ok(())
    }
}

/// The device, with everything on a stream of it, and with the kernels loaded.
///
/// # Safety
/// As for [`Place::device_on`].
unsafe fn loaded(place: Place, stream: Stream) -> Result<Device, Failure> {
    // SAFETY: the caller's promise.
    let device = unsafe { place.device_on(stream)? };
    if !kernels::SCALING.iter().all(|kernel| device.is_prepared(kernel)) {
        let prepare = || Ok(kernels::SCALING.iter().try_for_each(|kernel| device.prepare(kernel).map(drop))?);
        // SAFETY: the caller's promise.
        unsafe { load(place, &device, stream, prepare)? };
    }
    Ok(device)
}

/// `by·diag(rows)·matrix·diag(columns)`, of operands of any kind: see `tilewright.scale`.
#[pyfunction]
pub(crate) fn scale<'py>(
    matrix: &Bound<'py, PyAny>,
    by: &Bound<'py, PyAny>,
    rows: Option<&Bound<'py, PyAny>>,
    columns: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    on_cpu: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let on_cpu = text("on_cpu", on_cpu)?;
    let objects = Objects { matrix, rows, columns, out };
    let (number, place) = (number(by)?, OnCpu::parse(on_cpu)?);
    let named = objects.named();
    let Some(torch) = Torch::of(matrix.py(), &named)? else { return Ok(scale_arrays(objects, number, place)?) };
    let tensors: Vec<_> = named.iter().map(|(_, tensor)| *tensor).collect();
    if torch.is_direct(&tensors)?
        && let Some(result) = scale_in_memory(torch, objects, number, place)?
    {
        return Ok(result);
    }
    check_devices(&named)?;
    torch.dispatch_scale.bind(matrix.py()).call1((matrix, by, rows, columns, out, on_cpu))
}

/// The same of torch tensors as they are in memory: what the operator does after everything else that torch wants to do.
#[pyfunction]
pub(crate) fn scale_tensors<'py>(
    matrix: &Bound<'py, PyAny>,
    by: &Bound<'py, PyAny>,
    rows: Option<&Bound<'py, PyAny>>,
    columns: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    on_cpu: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let objects = Objects { matrix, rows, columns, out };
    let named = objects.named();
    let torch = Torch::of(matrix.py(), &named)?.ok_or_else(|| argument("these are no torch tensors"))?;
    match scale_in_memory(torch, objects, number(by)?, OnCpu::parse(on_cpu)?)? {
        Some(result) => Ok(result),
        None => {
            check_devices(&named)?;
            Err(not_in_memory(matrix)?.into())
        }
    }
}

/// The number that all elements are multiplied by. Not a tensor: its number may be in a GPU's memory.
fn number(by: &Bound<'_, PyAny>) -> Result<f32, Failure> {
    static REAL: Once<Py<PyType>> = Once::new();
    if !by.is_instance(REAL.class(by.py(), "numbers", "Real")?)? {
        return Err(operand_type(format!(
            "by is of type {}: pass a number of Python; vectors of factors are rows and columns",
            type_name(by)
        )));
    }
    match by.extract::<f64>() {
        Ok(number) => Ok(number as f32),
        Err(error) if error.is_instance_of::<PyOverflowError>(by.py()) => {
            Err(argument("by is a number beyond all of float's: pass one of those, such as math.inf"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Scales tensors that are plain memory; gives none if they are on a device whose memory kernels cannot use, or are to be
/// moved.
fn scale_in_memory<'py>(
    torch: &Torch,
    objects: Objects<'_, 'py>,
    by: f32,
    on_cpu: OnCpu,
) -> Result<Option<Bound<'py, PyAny>>, Failure> {
    let py = objects.matrix.py();
    let Some(operands) = Operands::read(objects, |name, tensor| torch.read(name, tensor))? else { return Ok(None) };
    // The operator moves tensors.
    if on_cpu == OnCpu::Move && operands.all().iter().all(|tensor| tensor.place == Place::Cpu) {
        return Ok(None);
    }
    let place = operands.check(on_cpu)?;
    let made = match objects.out {
        Some(_) => None,
        None => Some(torch.empty_like(objects.matrix)?),
    };
    let made_tensor = made.as_ref().map(|made| torch.read("the product", made)).transpose()?.flatten();
    let (Some(result), Some(tensor)) = (objects.out.or(made.as_ref()), operands.out.as_ref().or(made_tensor.as_ref()))
    else {
        return Ok(None);
    };
    if !tensor.view.is_empty() {
        let stream = torch.current_stream(py, place)?;
        prepare(py, place)?;
        // SAFETY: torch's current stream of the device, which torch keeps.
        let device = py.detach(|| unsafe { loaded(place, stream) })?;
        // SAFETY: the addresses are those of tensors that this call holds, of the sizes that they have been read with. When it
        // returns, what is queued may still be running, and the tensors may go: torch's allocator then gives their memory to
        // nobody but what is queued behind on the stream that they were made for. The result was made just now, for the current
        // stream; whatever is in it is a float32. An operand made for another stream is the caller's to record there, as for
        // every operator of torch. That nobody writes to operands, or reads the result, out of the stream's order, too.
        let scale = || unsafe { operands.scale(&device, place, by, tensor) };
        place.compute(py, scale)?;
        if let Some(out) = objects.out {
            torch.has_changed(out)?;
        }
    }
    Ok(Some(result.clone()))
}

/// Scales arrays of any other library.
fn scale_arrays<'py>(objects: Objects<'_, 'py>, by: f32, on_cpu: OnCpu) -> Result<Bound<'py, PyAny>, Failure> {
    let py = objects.matrix.py();
    let operands = Operands::read(objects, |name, array| Tensor::import(name, array).map(Some))?;
    let operands = operands.ok_or_else(|| argument("these are no arrays"))?;
    let place = operands.check(on_cpu)?;
    prepare(py, place)?;
    let made;
    let (result, tensor) = match (objects.out, &operands.out) {
        (Some(out), Some(given)) => (out.clone(), given),
        _ => {
            let array = py.detach(|| Array::new(place, operands.matrix.view.shape.clone()))?;
            made = Tensor::new("out", array.address(), array.view().clone(), place)?;
            (Bound::new(py, array)?.into_any(), &made)
        }
    };
    if tensor.view.is_empty() {
        return Ok(result);
    }
    let compute = || -> Result<(), Failure> {
        // SAFETY: the default stream is valid always.
        let device = unsafe { loaded(place, Stream::LEGACY)? };
        // SAFETY: the memory is that of objects which the caller holds and of capsules which
        // the tensors hold, and the result's own; the libraries have made it ready for that stream, and whatever is in it is a
        // float32. All that was queued has finished before this returns, also after an error: on other streams, which a library
        // may use, nothing would wait for it. That no other thread writes to operands meanwhile is the caller's matter, as for
        // every function of these libraries.
        let queued = unsafe { operands.scale(&device, place, by, tensor) };
        let _kept = place.keep_context()?;
        let finished = device.synchronize();
        queued?;
        Ok(finished?)
    };
    place.compute(py, compute)?;
    Ok(result)
}
