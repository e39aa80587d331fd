//! What an operand is: memory with a shape, from whatever library.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::dlpack::{self, Taken};
use crate::engine::{Place, Stream, wait_for};
use crate::error::{Failure, argument, operand_type};
use crate::once::name;
use crate::process::initialize_driver;
use crate::shape::{View, tuple};

/// A tensor of float32 elements in memory that is somebody else's.
pub(crate) struct Tensor {
    /// What the caller calls it, such as `a` or `out`.
    pub(crate) name: &'static str,
    /// The address of the first element.
    pub(crate) address: usize,
    /// Where the others are.
    pub(crate) view: View,
    /// The device that has the memory.
    pub(crate) place: Place,
    /// Whether it must not be written to.
    pub(crate) is_read_only: bool,
    /// Whether its memory is a copy that was made for this call, so that nobody would see what is written there.
    pub(crate) is_copy: bool,
    /// What keeps the memory as it is, if that is not the caller's object itself.
    #[expect(dead_code, reason = "it is dropped, and not looked at")]
    pub(crate) keeper: Option<Taken>,
}

/// An object is asked for its memory, which may call this package, which may ask the next one.
struct Within;

/// How many may be asked within each other. Each call takes some of the stack, which Python's own limit knows nothing of.
const MOST_WITHIN: usize = 64;

thread_local! {
    /// How many are.
    static WITHIN: Cell<usize> = const { Cell::new(0) };
}

impl Within {
    /// One more.
    fn another(name: &str) -> Result<Self, Failure> {
        if WITHIN.get() == MOST_WITHIN {
            return Err(argument(format!(
                "{name} is asked for its memory within {MOST_WITHIN} other arrays that are: what it hands over has to be made without \
                 products of arrays that do the same without end"
            )));
        }
        WITHIN.set(WITHIN.get() + 1);
        Ok(Self)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(WITHIN.get() - 1);
    }
}

impl Tensor {
    /// A tensor, if its address and its strides are such as kernels take.
    pub(crate) fn new(name: &'static str, address: usize, view: View, place: Place) -> Result<Self, Failure> {
        let bytes = view.span().and_then(|span| span.checked_mul(size_of::<f32>()));
        if bytes.and_then(|bytes| address.checked_add(bytes)).is_none_or(|end| end > isize::MAX as usize) {
            return Err(argument(format!(
                "{name}, of shape {} with strides {} in elements, ends beyond what can be addressed",
                tuple(&view.shape),
                tuple(&view.strides)
            )));
        }
        if !view.is_empty() && (address == 0 || !address.is_multiple_of(align_of::<f32>())) {
            return Err(argument(format!(
                "{name} begins at address {address:#x}, and float32 elements begin at multiples of 4: pass a copy of it"
            )));
        }
        Ok(Self { name, address, view, place, is_read_only: false, is_copy: false, keeper: None })
    }

    /// The tensor that an object is, of a library other than torch.
    pub(crate) fn import(name: &'static str, object: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let py = object.py();
        let _within = Within::another(name)?;
        // A class has what its objects have, and is no array.
        let is_class = object.is_instance_of::<PyType>();
        if !is_class && object.hasattr(name!(py, "__dlpack__"))? && object.hasattr(name!(py, "__dlpack_device__"))? {
            return dlpack::import(name, object);
        }
        // The attribute may be there, and raise an AttributeError because the array is in the processor's memory.
        let interface = object.getattr_opt(name!(py, "__cuda_array_interface__"))?;
        match interface.filter(|interface| !is_class && !interface.is_none()) {
            Some(interface) => from_cuda_array(name, object, &interface),
            None => Err(operand_type(format!(
                "{name} is of type {}: pass a torch tensor, or an array that has __dlpack__ (NumPy, CuPy, JAX) or \
                 __cuda_array_interface__",
                type_name(object)
            ))),
        }
    }

    /// The bytes from the first element to the last, gaps included.
    fn bytes(&self) -> std::ops::Range<usize> {
        // No overflow: checked when the tensor was made.
        self.address..self.address + self.view.span().unwrap_or(0) * size_of::<f32>()
    }

    /// Whether every element of the one is that of the other.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let strides = self.view.strides.iter().zip(&other.view.strides);
        self.address == other.address
            && self.view.shape == other.view.shape
            && strides.zip(&self.view.shape).all(|((one, other), &extent)| one == other || extent <= 1)
    }

    /// Refuses a tensor that a product of these operands, of this shape, cannot be written to.
    pub(crate) fn check_is_result(&self, shape: &[usize], operands: &[&Self]) -> Result<(), Failure> {
        let name = self.name;
        if self.view.shape != shape {
            let (is, needed) = (tuple(&self.view.shape), tuple(shape));
            return Err(argument(format!(
                "{name} has shape {is}, and the product has shape {needed}: they have to be equal"
            )));
        }
        if self.is_read_only {
            return Err(argument(format!("{name} is read-only: pass an array that may be written to")));
        }
        if self.is_copy {
            return Err(argument(format!(
                "{name} hands over a copy of its memory, in which nobody would find the product: pass an array that hands over its own"
            )));
        }
        check_is_apart(name, &self.view)?;
        let written = self.bytes();
        for operand in operands {
            let read = operand.bytes();
            if read.start < written.end && written.start < read.end {
                let operand = operand.name;
                return Err(argument(format!(
                    "{name} overlaps {operand} in memory, from the first element to the last with all gaps: {operand} is read while \
                     {name} is written, so give {name} memory of its own"
                )));
            }
        }
        Ok(())
    }
}

/// Refuses a result of which elements share a place in memory.
pub(crate) fn check_is_apart(name: &str, view: &View) -> Result<(), Failure> {
    if !view.overlaps_itself() {
        return Ok(());
    }
    Err(argument(format!(
        "{name}, of shape {} with strides {} in elements, overlaps itself: several of its elements are one place in memory, which can \
         have one number only. Pass memory in which each element has a place of its own, such as a new array",
        tuple(&view.shape),
        tuple(&view.strides)
    )))
}

/// Refuses tensors that are not all on one device, and returns that device.
pub(crate) fn common_place(tensors: &[&Tensor]) -> Result<Place, Failure> {
    let first = tensors[0];
    match tensors.iter().find(|other| other.place != first.place) {
        None => Ok(first.place),
        Some(other) => Err(argument(format!(
            "{} is on {} and {} is on {}: move them to one device",
            first.name, first.place, other.name, other.place
        ))),
    }
}

/// The strides as numbers of elements that kernels take.
pub(crate) fn strides(name: &str, shape: &[usize], strides: &[i64]) -> Result<Vec<usize>, Failure> {
    let stride = |(place, (&stride, &extent)): (usize, (&i64, &usize))| match usize::try_from(stride) {
        Ok(stride) => Ok(stride),
        // It means nothing.
        Err(_) if extent <= 1 => Ok(0),
        Err(_) => Err(argument(format!(
            "{name} has shape {} and stride {stride} along extent {place}: kernels do not take negative strides, so pass a copy \
             such as numpy.ascontiguousarray makes it",
            tuple(shape)
        ))),
    };
    strides.iter().zip(shape).enumerate().map(stride).collect()
}

/// What is wrong with elements of another type.
pub(crate) fn wrong_dtype(name: &str, dtype: &str) -> Failure {
    operand_type(format!(
        "{name} has elements of type {dtype}, and tilewright multiplies float32: convert it to float32 where the loss or the cost \
         is acceptable, or multiply with the library that it comes from"
    ))
}

/// The name of an object's type, with its module.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "unknown".to_owned(), |name| name.to_string())
}

/// What an object looks like in a message.
pub(crate) fn shown(object: &Bound<'_, PyAny>) -> String {
    /// Longer ones are cut off.
    const MOST: usize = 200;
    let Ok(text) = object.repr() else { return format!("something of type {}", type_name(object)) };
    let text = text.to_string_lossy();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// The entries of a CUDA array interface.
struct Entries<'a, 'py> {
    /// The array's name.
    name: &'static str,
    entries: &'a Bound<'py, PyDict>,
}

impl<'py> Entries<'_, 'py> {
    /// One that need not be there, or may be None.
    fn optional<T>(&self, key: &str, expected: &str) -> Result<Option<T>, Failure>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let entry = self.entries.get_item(key)?.filter(|entry| !entry.is_none());
        let read = |entry: Bound<'py, PyAny>| {
            entry.extract::<T>().map_err(|_| {
                let Self { name, .. } = self;
                operand_type(format!(
                    "the __cuda_array_interface__ of {name} has {key}={}: expected {expected}",
                    shown(&entry)
                ))
            })
        };
        entry.map(read).transpose()
    }

    /// One that has to be there.
    fn required<T>(&self, key: &str, expected: &str) -> Result<T, Failure>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Self { name, .. } = self;
        self.optional(key, expected)?.ok_or_else(|| {
            argument(format!("the __cuda_array_interface__ of {name} has no `{key}`: expected {expected}"))
        })
    }
}

/// A tensor by the CUDA array interface, versions 2 and 3.
fn from_cuda_array(
    name: &'static str,
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
) -> Result<Tensor, Failure> {
    let entries = interface.cast::<PyDict>().map_err(|_| {
        operand_type(format!("the __cuda_array_interface__ of {name} is {}: expected a dict", shown(interface)))
    })?;
    let entries = Entries { name, entries };
    let dtype: String = entries.required("typestr", "the elements' type, as \"<f4\"")?;
    if dtype != "<f4" {
        return Err(wrong_dtype(name, &dtype));
    }
    if entries.optional::<Bound<'_, PyAny>>("mask", "")?.is_some() {
        return Err(argument(format!(
            "the __cuda_array_interface__ of {name} has a mask, which kernels do not look at: pass an array of which all elements count"
        )));
    }
    let shape: Vec<usize> = entries.required("shape", "a tuple of whole numbers from 0 on")?;
    let (address, is_read_only): (usize, Bound<'_, PyAny>) =
        entries.required("data", "a tuple of an address and whether it is read-only")?;
    let is_read_only = is_read_only.is_truthy()?;
    let view = match entries.optional::<Vec<i64>>("strides", "a tuple of whole numbers")? {
        None => View::contiguous(shape),
        Some(in_bytes) => {
            let size = size_of::<f32>() as i64;
            if in_bytes.len() != shape.len() || in_bytes.iter().any(|stride| stride % size != 0) {
                return Err(argument(format!(
                    "{name} has shape {} and strides {in_bytes:?} in bytes, which are not whole elements of 4 bytes for each extent",
                    tuple(&shape)
                )));
            }
            let in_elements: Vec<i64> = in_bytes.iter().map(|stride| stride / size).collect();
            let strides = strides(name, &shape, &in_elements)?;
            Some(View { shape, strides })
        }
    };
    let view = view.ok_or_else(|| argument(format!("{name} has more elements than can be counted")))?;
    // An array without elements has no memory that would be a GPU's.
    let ordinal = if view.is_empty() { 0 } else { gpu_of_address(address)? };
    if let Some(stream) = entries.optional("stream", "a stream's number")? {
        let stream = Stream(stream);
        // SAFETY: the interface promises that the array can be used behind this stream of its GPU; 1 and 2 stand for the two
        // default streams there as they do for the driver.
        object.py().detach(|| unsafe { wait_for(ordinal, stream) })?;
    }
    let tensor = Tensor::new(name, address, view, Place::Cuda(ordinal))?;
    Ok(Tensor { is_read_only, ..tensor })
}

fn gpu_of_address(address: usize) -> Result<usize, Failure> {
    initialize_driver()?;
    Ok(cuda_driver::gpu_of_address(address)?)
}
