//! Torch's tensors: which calls can go straight to a kernel, and what is read of a tensor.
//!
//! Everything is read through Python, by names that are looked up once, so that one build works with any torch.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::dlpack::Exchange;
use crate::engine::{PackedMemory, Place, Stream};
use crate::error::{Failure, argument};
use crate::once::{Once, name};
use crate::shape::{View, tuple};
use crate::tensor::{Tensor, type_name, wrong_dtype};

/// An operand, and what the caller calls it.
pub(crate) type Named<'a, 'py> = (&'static str, &'a Bound<'py, PyAny>);

/// What is needed of torch, looked up once.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    /// What tensors can be read by, in a torch that has it (2.10 and later).
    exchange: Option<Exchange>,
    float32: Py<PyAny>,
    strided: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    increment_version: Py<PyAny>,
    /// `tilewright._torch.dispatch`: calls the operator of products.
    dispatch: Py<PyAny>,
    /// `tilewright._torch.differentiable`: a product that has a derivative, without torch's dispatcher.
    differentiable: Py<PyAny>,
    /// `tilewright._fused.dispatch`: calls the operator of products with steps behind them.
    dispatch_fused: Py<PyAny>,
    /// `tilewright._fused.differentiable`: such a product that has a derivative, without torch's dispatcher.
    differentiable_fused: Py<PyAny>,
    /// `tilewright._scale.dispatch`: calls the operator of products with diagonal matrices.
    pub(crate) dispatch_scale: Py<PyAny>,
    empty_like: Py<PyAny>,
    /// What torch keeps to itself; without it, every call goes through the operator.
    internals: Option<Internals>,
    /// Gives the current stream of a GPU, in a torch that was built for CUDA.
    current_stream: Option<Py<PyAny>>,
}

/// Functions that tell whether somebody wants to see calls before kernels run.
struct Internals {
    /// `__torch_function__` modes.
    has_function_mode: Py<PyAny>,
    /// `__torch_dispatch__` modes, such as that of fake tensors.
    dispatch_modes: Py<PyAny>,
    /// Transformations of functions, such as `vmap`.
    transformations: Py<PyAny>,
    /// `torch.jit.trace`.
    tracing_state: Py<PyAny>,
    /// The module of forward-mode derivatives.
    forward: Py<PyAny>,
}

/// Who wants to see a call with tensors of torch before kernels run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Nobody: no derivative is wanted, no mode and no transformation is active, and the numbers are what is in memory.
    Nobody,
    /// Somebody who wants a derivative, and nobody else.
    Derivative,
    /// Others: the call has to go through torch's dispatcher.
    Others,
}

impl Torch {
    /// Torch, if this process has imported it.
    pub(crate) fn get(py: Python<'_>) -> Result<Option<&'static Self>, Failure> {
        static TORCH: Once<Torch> = Once::new();
        if let Some(torch) = TORCH.get(py) {
            return Ok(Some(torch));
        }
        let modules = py.import(name!(py, "sys"))?.getattr(name!(py, "modules"))?;
        // A name that must not be imported is there as None.
        let Some(torch) = modules.cast::<PyDict>()?.get_item("torch")?.filter(|torch| !torch.is_none()) else {
            return Ok(None);
        };
        // Nobody has a tensor before there is the class: while another thread imports the module, or where it is another one of that name.
        if torch.getattr_opt(name!(py, "Tensor"))?.is_none() {
            return Ok(None);
        }
        Ok(Some(TORCH.get_or_try_init(py, || Self::find(py))?))
    }

    fn find(py: Python<'_>) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let private = torch.getattr("_C")?;
        let class = |object: Bound<'_, PyAny>| -> PyResult<Py<PyType>> { Ok(object.cast_into::<PyType>()?.unbind()) };
        let internals = || -> PyResult<Internals> {
            Ok(Internals {
                has_function_mode: private.getattr("_is_torch_function_mode_enabled")?.unbind(),
                dispatch_modes: private.getattr("_len_torch_dispatch_stack")?.unbind(),
                transformations: private.getattr("_functorch")?.getattr("peek_interpreter_stack")?.unbind(),
                tracing_state: private.getattr("_get_tracing_state")?.unbind(),
                forward: torch.getattr("autograd")?.getattr("forward_ad")?.unbind(),
            })
        };
        let tensor = torch.getattr("Tensor")?.cast_into::<PyType>()?;
        Ok(Self {
            exchange: Exchange::of(&tensor),
            tensor: tensor.unbind(),
            parameter: class(torch.getattr("nn")?.getattr("Parameter")?)?,
            float32: torch.getattr("float32")?.unbind(),
            strided: torch.getattr("strided")?.unbind(),
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            increment_version: torch.getattr("autograd")?.getattr("graph")?.getattr("increment_version")?.unbind(),
            dispatch: py.import("tilewright._torch")?.getattr("dispatch")?.unbind(),
            differentiable: py.import("tilewright._torch")?.getattr("differentiable")?.unbind(),
            dispatch_fused: py.import("tilewright._fused")?.getattr("dispatch")?.unbind(),
            differentiable_fused: py.import("tilewright._fused")?.getattr("differentiable")?.unbind(),
            dispatch_scale: py.import("tilewright._scale")?.getattr("dispatch")?.unbind(),
            empty_like: torch.getattr("empty_like")?.unbind(),
            internals: internals().ok(),
            current_stream: private.getattr_opt("_cuda_getCurrentRawStream")?.map(Bound::unbind),
        })
    }

    /// Torch, if one of the operands is a tensor of it; then all have to be.
    pub(crate) fn of(py: Python<'_>, named: &[Named<'_, '_>]) -> Result<Option<&'static Self>, Failure> {
        let Some(torch) = Self::get(py)? else { return Ok(None) };
        let mut any = false;
        for (_, object) in named {
            any |= torch.is_tensor(object)?;
        }
        if any {
            torch.check_all_are_tensors(named)?;
        }
        Ok(any.then_some(torch))
    }

    /// Whether an object is a tensor, of whatever class.
    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.is_plain(object) || object.is_instance(self.tensor.bind(object.py()))?)
    }

    /// Whether an object is a tensor of a class that torch handles itself.
    fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type();
        class.is(&self.tensor) || class.is(&self.parameter)
    }

    /// Who wants to see a call with these tensors.
    pub(crate) fn audience(&self, tensors: &[&Bound<'_, PyAny>]) -> PyResult<Audience> {
        let py = tensors[0].py();
        let Some(internals) = &self.internals else { return Ok(Audience::Others) };
        if !tensors.iter().all(|tensor| self.is_plain(tensor)) {
            return Ok(Audience::Others);
        }
        let mut wants_derivative = false;
        for tensor in tensors {
            if tensor.call_method0(name!(py, "is_neg"))?.is_truthy()? {
                return Ok(Audience::Others);
            }
            wants_derivative |= tensor.getattr(name!(py, "requires_grad"))?.is_truthy()?;
        }
        let is_watched = internals.has_function_mode.bind(py).call0()?.is_truthy()?
            || internals.dispatch_modes.bind(py).call0()?.is_truthy()?
            || !internals.transformations.bind(py).call0()?.is_none()
            || !internals.tracing_state.bind(py).call0()?.is_none()
            || internals.forward.bind(py).getattr(name!(py, "_current_level"))?.ge(0)?;
        if is_watched {
            return Ok(Audience::Others);
        }
        let is_differentiated = wants_derivative && self.is_grad_enabled.bind(py).call0()?.is_truthy()?;
        Ok(if is_differentiated { Audience::Derivative } else { Audience::Nobody })
    }

    /// Whether nobody wants to see a call with these tensors, so that it need not go through torch's dispatcher.
    pub(crate) fn is_direct(&self, tensors: &[&Bound<'_, PyAny>]) -> PyResult<bool> {
        Ok(self.audience(tensors)? == Audience::Nobody)
    }

    /// Whether all tensors are in the CPU's memory.
    pub(crate) fn are_on_cpu(&self, named: &[Named<'_, '_>]) -> PyResult<bool> {
        for (_, tensor) in named {
            if !tensor.getattr(name!(tensor.py(), "is_cpu"))?.is_truthy()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What computes a product where somebody wants to see it: torch's operator, or only what keeps the derivative, which takes less time. (A
    /// product that overwrites a tensor has none; the operator says so.)
    pub(crate) fn product(&self, audience: Audience, out: Option<&Bound<'_, PyAny>>) -> &Py<PyAny> {
        if audience == Audience::Derivative && out.is_none() { &self.differentiable } else { &self.dispatch }
    }

    /// The same for a product with steps behind it.
    pub(crate) fn fused(&self, audience: Audience, out: Option<&Bound<'_, PyAny>>) -> &Py<PyAny> {
        if audience == Audience::Derivative && out.is_none() {
            &self.differentiable_fused
        } else {
            &self.dispatch_fused
        }
    }

    /// Reads where a tensor is; none if it is on no GPU and not in the processor's memory either. The caller's reference to it
    /// keeps the memory.
    pub(crate) fn read(&self, name: &'static str, tensor: &Bound<'_, PyAny>) -> Result<Option<Tensor>, Failure> {
        let py = tensor.py();
        if let Some(exchange) = self.exchange.filter(|_| self.is_plain(tensor))
            && let Some(read) = exchange.read(name, tensor)?
        {
            return Ok(Some(read));
        }
        let place = if tensor.getattr(name!(py, "is_cuda"))?.is_truthy()? {
            Place::Cuda(tensor.call_method0(name!(py, "get_device"))?.extract()?)
        } else if tensor.getattr(name!(py, "is_cpu"))?.is_truthy()? {
            Place::Cpu
        } else {
            return Ok(None);
        };
        let dtype = tensor.getattr(name!(py, "dtype"))?;
        if !dtype.is(&self.float32) {
            return Err(wrong_dtype(name, &dtype.str()?.to_string()));
        }
        let layout = tensor.getattr(name!(py, "layout"))?;
        if !layout.is(&self.strided) {
            return Err(argument(format!(
                "{name} has layout {}, and tilewright takes torch.strided: call to_dense()",
                layout.str()?
            )));
        }
        let shape = numbers(&tensor.getattr(name!(py, "shape"))?)?;
        let strides = numbers(&tensor.call_method0(name!(py, "stride"))?)?;
        Ok(Some(Tensor::new(name, address(tensor)?, View { shape, strides }, place)?))
    }

    /// Where a tensor is that a matrix has been packed into, if it is on the device of the operands.
    pub(crate) fn read_packed(&self, tensor: &Bound<'_, PyAny>, place: Place) -> Result<PackedMemory, Failure> {
        const NAME: &str = "what is packed";
        let memory = self.read(NAME, tensor)?.ok_or_else(|| argument(format!("{NAME} is no memory")))?;
        if memory.place != place {
            return Err(argument(format!("{NAME} is on {}, and the operands are on {place}", memory.place)));
        }
        let (View { shape, strides }, address) = (&memory.view, memory.address);
        match (&shape[..], &strides[..]) {
            (&[elements], &[1]) if address.is_multiple_of(PackedMemory::ALIGNMENT) => {
                Ok(PackedMemory { address, elements })
            }
            _ => Err(argument(format!(
                "{NAME} has shape {}, strides {} and begins at address {address:#x}, which tilewright.PackedMatrix does not make: pack the \
                 matrix again",
                tuple(shape),
                tuple(strides)
            ))),
        }
    }

    /// A tensor without gaps, whose elements are not set, on the device of `like`: from torch's allocator, in the order of the
    /// current stream.
    pub(crate) fn empty<'py>(&self, like: &Bound<'py, PyAny>, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        let (py, name) = (like.py(), name!(like.py(), "new_empty"));
        // Extents as arguments of their own take torch less time than a tuple of them; but there has to be one.
        let extents = PyTuple::new(py, shape)?;
        if shape.is_empty() { like.call_method1(name, (extents,)) } else { like.call_method1(name, extents) }
    }

    /// The same, of the shape of `like`, and with its extents in the same order in memory, as torch's own functions do it.
    pub(crate) fn empty_like<'py>(&self, like: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.empty_like.bind(like.py()).call1((like,))
    }

    /// The current stream of a device.
    pub(crate) fn current_stream(&self, py: Python<'_>, place: Place) -> Result<Stream, Failure> {
        match (place, &self.current_stream) {
            (Place::Cpu, _) => Ok(Stream::LEGACY),
            (Place::Cuda(ordinal), Some(current)) => Ok(Stream(current.bind(py).call1((ordinal,))?.extract()?)),
            (Place::Cuda(_), None) => Err(argument("this torch has no CUDA, so it has no tensors on GPUs")),
        }
    }

    /// Tells autograd that a tensor has other numbers now.
    pub(crate) fn has_changed(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        // Tensors of the inference mode count no versions.
        if !tensor.call_method0(name!(py, "is_inference"))?.is_truthy()? {
            self.increment_version.bind(py).call1((tensor,))?;
        }
        Ok(())
    }

    /// Refuses tensors beside arrays of other libraries.
    fn check_all_are_tensors(&self, named: &[Named<'_, '_>]) -> Result<(), Failure> {
        for (name, object) in named {
            if !self.is_tensor(object)? {
                return Err(crate::error::operand_type(format!(
                    "{name} is of type {}, and another operand is a torch tensor: pass tensors only, such as torch.from_dlpack \
                     makes",
                    type_name(object)
                )));
            }
        }
        Ok(())
    }
}

/// Refuses tensors on different devices, also on those whose memory cannot be read.
pub(crate) fn check_devices(named: &[Named<'_, '_>]) -> Result<(), Failure> {
    let device = |tensor: &Bound<'_, PyAny>| -> PyResult<String> { Ok(tensor.getattr("device")?.str()?.to_string()) };
    let (first_name, first) = named[0];
    let first = device(first)?;
    for (name, tensor) in &named[1..] {
        let other = device(tensor)?;
        if other != first {
            return Err(argument(format!(
                "{first_name} is on {first} and {name} is on {other}: move them to one device"
            )));
        }
    }
    Ok(())
}

/// What is wrong with tensors on a device that is no GPU of CUDA's.
pub(crate) fn not_in_memory(tensor: &Bound<'_, PyAny>) -> Result<Failure, Failure> {
    let device = tensor.getattr("device")?.str()?;
    Ok(argument(format!("the operands are on device {device}: tilewright takes tensors on CUDA devices")))
}

/// The address of a tensor's first element.
pub(crate) fn address(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    tensor.call_method0(name!(tensor.py(), "data_ptr"))?.extract()
}

/// The numbers of a tuple.
fn numbers(tuple: &Bound<'_, PyAny>) -> Result<Vec<usize>, Failure> {
    let tuple = tuple.cast::<PyTuple>()?;
    Ok(tuple.iter_borrowed().map(|number| number.extract()).collect::<PyResult<_>>()?)
}
