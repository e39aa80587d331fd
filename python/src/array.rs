//! `tilewright.Array`: a result in memory of our own, for libraries that exchange arrays by protocols.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use tilewright::Buffer;

use crate::dlpack;
use crate::engine::Place;
use crate::error::{Failure, argument};
use crate::process;
use crate::shape::{View, tuple};

/// A float32 array without gaps in the memory of a device, which it owns: what tilewright returns for operands of libraries
/// other than torch. Make an array of your library from it by `from_dlpack`, or by `numpy.asarray`, without copying.
#[pyclass(frozen, module = "tilewright")]
pub(crate) struct Array {
    memory: Arc<Memory>,
    view: View,
}

/// Memory of a device. It is freed when nobody uses it any more, on whatever thread that is.
struct Memory {
    buffer: ManuallyDrop<Buffer<f32>>,
    address: usize,
    place: Place,
    /// The process that has allocated it.
    process: u32,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !process::is_this(self.process) {
            // A forked child has a copy of the parent's memory, or none if it is a GPU's, and of the locks of the parent's device,
            // which nobody may ever release. It leaves the copy as it is.
            return;
        }
        // Without a driver there is no memory of a GPU.
        let _kept = self.place.keep_context();
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.buffer) };
    }
}

impl Array {
    /// Allocates an array, of which no element has been written.
    pub(crate) fn new(place: Place, shape: Vec<usize>) -> Result<Self, Failure> {
        let message = format!("an array of shape {} has more elements than can be counted", tuple(&shape));
        let view = View::contiguous(shape).ok_or_else(|| argument(message))?;
        let len = view.span().unwrap_or(0);
        let device = place.device()?;
        let _kept = place.keep_context()?;
        let mut buffer = device.allocate::<f32>(len)?;
        let address = buffer.view_mut().as_mut_ptr().expose_provenance();
        let memory = Memory { buffer: ManuallyDrop::new(buffer), address, place, process: std::process::id() };
        Ok(Self { memory: Arc::new(memory), view })
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> usize {
        self.memory.address
    }

    /// Where the elements are.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The entries that both array interfaces have.
    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let entries = PyDict::new(py);
        entries.set_item("shape", PyTuple::new(py, &self.view.shape)?)?;
        entries.set_item("typestr", "<f4")?;
        entries.set_item("data", (self.address(), false))?;
        entries.set_item("strides", py.None())?;
        entries.set_item("version", 3)?;
        Ok(entries)
    }
}

#[pymethods]
impl Array {
    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.view.shape)
    }

    /// The type of the elements: always `"float32"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        "float32"
    }

    /// The device that has the memory: `"cpu"` or `"cuda:N"`.
    #[getter]
    fn device(&self) -> String {
        match self.memory.place {
            Place::Cpu => "cpu".to_owned(),
            cuda => cuda.to_string(),
        }
    }

    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.memory.place {
            Place::Cuda(_) => {
                let entries = self.interface(py)?;
                // Everything that writes the array has finished before anybody gets to see it.
                entries.set_item("stream", py.None())?;
                Ok(entries)
            }
            Place::Cpu => Err(PyAttributeError::new_err(
                "this array is in the CPU's memory: numpy.asarray takes it, or from_dlpack of any library",
            )),
        }
    }

    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.memory.place {
            Place::Cpu => self.interface(py),
            Place::Cuda(_) => Err(PyAttributeError::new_err(
                "this array is in a GPU's memory: take it by from_dlpack of a library for GPUs",
            )),
        }
    }

    /// The device in DLPack's numbers: its type, and which one.
    fn __dlpack_device__(&self) -> (i32, usize) {
        match self.memory.place {
            Place::Cpu => (dlpack::CPU, 0),
            Place::Cuda(ordinal) => (dlpack::CUDA, ordinal),
        }
    }

    /// A capsule with the array, for `from_dlpack` of another library. The memory lives as long as that uses it.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, usize)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if copy == Some(true) {
            return Err(PyBufferError::new_err("tilewright.Array makes no copies: copy what you make of it"));
        }
        if let Some(wanted) = dl_device.filter(|&wanted| wanted != self.__dlpack_device__()) {
            let is = self.__dlpack_device__();
            return Err(PyBufferError::new_err(format!(
                "the array is on DLPack device {is:?} and is asked for on {wanted:?}: copy what you make of it there"
            )));
        }
        // Everything that writes the array has finished before anybody gets to see it, so no stream has to wait.
        drop(stream);
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        // SAFETY: the memory is of as many elements as the view has, without gaps; the capsule keeps it.
        unsafe { dlpack::export(py, self.memory.clone(), self.address(), &self.view, self.memory.place, is_versioned) }
    }

    fn __repr__(&self) -> String {
        format!("tilewright.Array(shape={}, dtype=float32, device={})", tuple(&self.view.shape), self.device())
    }
}
