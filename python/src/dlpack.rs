//! DLPack: how libraries hand each other tensors without copying. The declarations are those of `dlpack.h`, version 1.
//!
//! ```text
//!  object.__dlpack__()  ──►  capsule "dltensor_versioned"  ──►  DLManagedTensorVersioned ──► data, shape, strides
//!                            or "dltensor", of version 0        DLManagedTensor
//! ```
//!
//! A capsule that is taken over gets another name, and whoever took it calls the deleter. Here, a tensor is taken over for as long
//! as a call lasts: who else has the capsule may take it over, too, and delete the tensor while it is read.
//!
//! A type may offer the same as functions of C, `__dlpack_c_exchange_api__`, since version 1.3: these fill in a `DLTensor` and
//! make no objects, which takes a tenth of the time that questions through Python take.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyType};

use crate::engine::Place;
use crate::error::{Failure, argument, operand_type};
use crate::once::name;
use crate::shape::{View, tuple};
use crate::tensor::{Tensor, shown, strides, type_name, wrong_dtype};

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// `kDLCUDA`.
pub(crate) const CUDA: i32 = 2;
/// `kDLFloat`.
const FLOAT: u8 = 2;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
const IS_COPIED: u64 = 2;
/// The legacy default stream, as `__dlpack__` counts streams.
const LEGACY_STREAM: i64 = 1;

/// The major version that these declarations are of.
const MAJOR: u32 = 1;

const NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";
/// What a capsule is called whose tensor was taken over.
const USED_NAME: &CStr = c"used_dltensor";
const USED_VERSIONED_NAME: &CStr = c"used_dltensor_versioned";

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    ordinal: i32,
}

impl Device {
    /// The place that it is, if kernels can use its memory.
    fn place(self) -> Option<Place> {
        match (self.kind, usize::try_from(self.ordinal)) {
            // There is one, whatever its number.
            (CPU, _) => Some(Place::Cpu),
            (CUDA, Ok(ordinal)) => Some(Place::Cuda(ordinal)),
            _ => None,
        }
    }
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DataType {
    fn is_float32(self) -> bool {
        (self.code, self.bits, self.lanes) == (FLOAT, 32, 1)
    }
}

/// `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    rank: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// `DLPackExchangeAPI`, as far as it is used here.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    older: *const ExchangeApi,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    object_from_managed: *const c_void,
    tensor_from_object: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int>,
}

/// The functions of C that a type offers.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    tensor_from_object: unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int,
}

impl Exchange {
    /// Those of a type; none if it has none, or of another version.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> Option<Self> {
        let capsule = class.getattr_opt(name!(class.py(), "__dlpack_c_exchange_api__")).ok()??;
        let api = capsule.cast::<PyCapsule>().ok()?.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        let api = api.cast::<ExchangeApi>();
        // SAFETY: a capsule of this name points to such functions, which stay as long as the process; the major version comes
        // first in all versions.
        let major = unsafe { (&raw const (*api.as_ptr()).major).read() };
        if major != MAJOR {
            return None;
        }
        // SAFETY: likewise, and the version is the one that the type is of.
        Some(Self { tensor_from_object: unsafe { api.as_ref() }.tensor_from_object? })
    }

    /// The tensor that an object is, of just the type that the functions are of, or one that is handled as that. None if it is
    /// nothing of float32 elements in the processor's memory or a GPU's. The caller's reference to it keeps the memory.
    pub(crate) fn read(self, name: &'static str, object: &Bound<'_, PyAny>) -> Result<Option<Tensor>, Failure> {
        let mut tensor = DlTensor {
            data: std::ptr::null_mut(),
            device: Device { kind: 0, ordinal: 0 },
            rank: 0,
            dtype: DataType { code: 0, bits: 0, lanes: 0 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        // SAFETY: the function is of this object's type, and fills in what may be written to. This thread holds the interpreter.
        if unsafe { (self.tensor_from_object)(object.as_ptr(), &mut tensor) } != 0 {
            // Whoever asks through Python instead finds out what is wrong, and says it better.
            drop(PyErr::take(object.py()));
            return Ok(None);
        }
        let Some(place) = tensor.device.place() else { return Ok(None) };
        if !tensor.dtype.is_float32() {
            return Ok(None);
        }
        read(name, &tensor, place).map(Some)
    }
}

/// A tensor that was taken over from its capsule, and is deleted with this.
pub(crate) struct Taken {
    managed: Owned,
}

/// Of whatever version.
enum Owned {
    Plain(NonNull<Managed>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: a deleter may be called by any thread; nothing else is done with the pointer.
unsafe impl Send for Taken {}
// SAFETY: a shared one offers nothing.
unsafe impl Sync for Taken {}

impl Owned {
    /// Takes the tensor over.
    ///
    /// # Safety
    /// It is the one of this capsule, which nobody has taken over. Since that was seen, no Python code has run.
    unsafe fn take(self, capsule: &Bound<'_, PyCapsule>) -> PyResult<Taken> {
        let used = match self {
            Self::Plain(_) => USED_NAME,
            Self::Versioned(_) => USED_VERSIONED_NAME,
        };
        // SAFETY: it is a capsule, and the name lives as long as the program.
        match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } {
            0 => Ok(Taken { managed: self }),
            _ => Err(PyErr::fetch(capsule.py())),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken over from its capsule, which leaves it alone since then, so that it lives; this is the only time
        // that its deleter is called.
        unsafe {
            match self.managed {
                Owned::Plain(managed) => {
                    if let Some(deleter) = (*managed.as_ptr()).deleter {
                        deleter(managed.as_ptr());
                    }
                }
                Owned::Versioned(managed) => {
                    if let Some(deleter) = (*managed.as_ptr()).deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// The tensor that an object offers by `__dlpack__`, taken over.
pub(crate) fn import(name: &'static str, object: &Bound<'_, PyAny>) -> Result<Tensor, Failure> {
    let py = object.py();
    let device = object.call_method0(name!(py, "__dlpack_device__"))?;
    let (kind, ordinal): (i32, i32) = device.extract().map_err(|_| {
        operand_type(format!(
            "{name}.__dlpack_device__() has returned {}, and not a tuple of two whole numbers, a device's type and which one it is",
            shown(&device)
        ))
    })?;
    let arguments = PyDict::new(py);
    arguments.set_item(name!(py, "max_version"), (1, 0))?;
    let Some(place) = (Device { kind, ordinal }).place() else {
        return Err(argument(format!(
            "{name} is on a device of DLPack type {kind}, number {ordinal}: tilewright takes tensors on CUDA devices (type {CUDA}) \
             and, for tests, on the CPU (type {CPU})"
        )));
    };
    if let Place::Cuda(_) = place {
        arguments.set_item(name!(py, "stream"), LEGACY_STREAM)?;
    }
    let method = object.getattr(name!(py, "__dlpack__"))?;
    let capsule = method.call((), Some(&arguments)).or_else(|error| {
        // A library from before version 1 has no such argument.
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        arguments.del_item(name!(py, "max_version"))?;
        method.call((), Some(&arguments))
    });
    let capsule = capsule.map_err(|error| not_handed_over(name, object, error))?;
    let capsule = capsule.cast_into::<PyCapsule>().map_err(|error| {
        let given = type_name(&error.into_inner());
        operand_type(format!("{name}.__dlpack__() has returned something of type {given}, and not a capsule"))
    })?;
    let (tensor, flags, owned) = if capsule.is_valid_checked(Some(VERSIONED_NAME)) {
        let managed = capsule.pointer_checked(Some(VERSIONED_NAME))?.cast::<Versioned>();
        // SAFETY: a capsule of this name points to a tensor of this type while it lives; the major version comes first in
        // all versions.
        let major = unsafe { (&raw const (*managed.as_ptr()).major).read() };
        if major != MAJOR {
            return Err(argument(format!("{name} comes by DLPack {major}, and tilewright reads version {MAJOR}")));
        }
        // SAFETY: likewise, and the version is the one that the type is of.
        let versioned = unsafe { managed.as_ref() };
        (&versioned.tensor, versioned.flags, Owned::Versioned(managed))
    } else if capsule.is_valid_checked(Some(NAME)) {
        let managed = capsule.pointer_checked(Some(NAME))?.cast::<Managed>();
        // SAFETY: likewise.
        (unsafe { &managed.as_ref().tensor }, 0, Owned::Plain(managed))
    } else {
        return Err(argument(format!(
            "{name}.__dlpack__() has returned {}, which is none of a tensor, or was taken over before: it has to return a new capsule \
             each time",
            capsule.repr()?
        )));
    };
    let is = tensor.device;
    if is.place() != Some(place) {
        return Err(argument(format!(
            "{name} says by __dlpack_device__ that it is on device ({kind}, {ordinal}), and its capsule says ({}, {}): they have to \
             be the same, or its memory would be taken for another device's",
            is.kind, is.ordinal
        )));
    }
    let tensor = read(name, tensor, place)?;
    let (is_read_only, is_copy) = (flags & READ_ONLY != 0, flags & IS_COPIED != 0);
    // SAFETY: it is, and nothing above has called Python since the name was compared, but to fail.
    let keeper = Some(unsafe { owned.take(&capsule)? });
    Ok(Tensor { is_read_only, is_copy, keeper, ..tensor })
}

/// What is wrong with an array that its library does not hand over: a `BufferError`, as the protocol has it. Other errors stay what they are.
fn not_handed_over(name: &str, object: &Bound<'_, PyAny>, error: PyErr) -> Failure {
    if !error.is_instance_of::<PyBufferError>(object.py()) {
        return error.into();
    }
    // DLPack has no types such as those of another order of bytes.
    let dtype = object.getattr("dtype").and_then(|dtype| Ok(dtype.str()?.to_string()));
    match dtype {
        Ok(dtype) if dtype != "float32" => wrong_dtype(name, &dtype),
        _ => argument(format!(
            "{name}.__dlpack__() does not hand the memory over ({}): pass a copy of it, such as numpy.ascontiguousarray makes it",
            error.value(object.py())
        )),
    }
}

/// Looks at a tensor.
fn read(name: &'static str, tensor: &DlTensor, place: Place) -> Result<Tensor, Failure> {
    if !tensor.dtype.is_float32() {
        return Err(wrong_dtype(name, &dtype_name(tensor.dtype)));
    }
    let rank = match usize::try_from(tensor.rank) {
        Ok(rank) if rank == 0 || !tensor.shape.is_null() => rank,
        _ => return Err(argument(format!("{name} has {} extents by DLPack, and no list of them", tensor.rank))),
    };
    // SAFETY: there are as many extents; only a tensor of rank 0 may have none.
    let extents = unsafe { numbers(tensor.shape, rank) }.unwrap_or_default();
    let extent = |&extent: &i64| {
        usize::try_from(extent)
            .map_err(|_| argument(format!("{name} has an extent of {extent} elements: DLPack has none below 0")))
    };
    let shape = extents.iter().map(extent).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: there are as many strides, or none at all.
    let view = match unsafe { numbers(tensor.strides, rank) } {
        Some(given) => Some(View { strides: strides(name, &shape, given)?, shape }),
        None => View::contiguous(shape),
    };
    let view = view.ok_or_else(|| argument(format!("{name} has more elements than can be counted")))?;
    if tensor.data.is_null() && !view.is_empty() {
        return Err(argument(format!("{name} has elements, of shape {}, and no address", tuple(&view.shape))));
    }
    // What is beyond all addresses is refused there.
    let address = tensor.data.expose_provenance().saturating_add(tensor.byte_offset as usize);
    Tensor::new(name, address, view, place)
}

/// An array of DLPack's; none if it is not there.
///
/// # Safety
/// If the pointer is not null, there are as many numbers, and they live while the result is used.
unsafe fn numbers<'a>(first: *const i64, len: usize) -> Option<&'a [i64]> {
    // SAFETY: the caller's promise.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, len) })
}

fn dtype_name(DataType { code, bits, lanes }: DataType) -> String {
    let family = match code {
        0 => "int",
        1 => "uint",
        2 => "float",
        4 => "bfloat",
        5 => "complex",
        6 => "bool",
        _ => return format!("DLPack code {code}, {bits} bits, {lanes} lanes"),
    };
    if lanes == 1 { format!("{family}{bits}") } else { format!("{family}{bits}x{lanes}") }
}

/// What an exported tensor points to.
struct Exported<T> {
    /// Keeps the memory.
    _owner: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A capsule for a tensor at `address`, of version 1 or 0, that keeps `owner`.
///
/// # Safety
/// The memory that the view spans from the address on is of float32 elements on the device, and stays so while `owner` lives.
pub(crate) unsafe fn export<'py, T: Send + 'static>(
    py: Python<'py>,
    owner: T,
    address: usize,
    view: &View,
    place: Place,
    is_versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let whole = |values: &[usize]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
    let mut exported = Box::new(Exported { _owner: owner, shape: whole(&view.shape), strides: whole(&view.strides) });
    let device = match place {
        Place::Cpu => Device { kind: CPU, ordinal: 0 },
        Place::Cuda(ordinal) => Device { kind: CUDA, ordinal: ordinal as i32 },
    };
    let tensor = DlTensor {
        data: std::ptr::with_exposed_provenance_mut(address),
        device,
        rank: view.shape.len() as i32,
        dtype: DataType { code: FLOAT, bits: 32, lanes: 1 },
        shape: exported.shape.as_mut_ptr(),
        strides: exported.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(exported).cast();
    let (pointer, name, destructor): (_, _, ffi::PyCapsule_Destructor) = if is_versioned {
        let deleter = Some(delete_versioned::<T> as unsafe extern "C" fn(*mut Versioned));
        let managed = Versioned { major: MAJOR, minor: 0, context, deleter, flags: 0, tensor };
        (NonNull::from(Box::leak(Box::new(managed))).cast(), VERSIONED_NAME, forget_versioned)
    } else {
        let deleter = Some(delete_managed::<T> as unsafe extern "C" fn(*mut Managed));
        (NonNull::from(Box::leak(Box::new(Managed { tensor, context, deleter }))).cast(), NAME, forget_managed)
    };
    // SAFETY: the pointer is to a tensor of the type that the name says, and lives until its deleter is called: by the
    // destructor, or by whoever takes it over.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

/// Frees a tensor of version 1 that [`export`] has made.
///
/// # Safety
/// It is one, with an owner of this type, and is not used again.
unsafe extern "C" fn delete_versioned<T>(managed: *mut Versioned) {
    // SAFETY: `export` has made both boxes, and each is freed once: the caller's promise.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Exported<T>>())) }
}

/// As [`delete_versioned`], of version 0.
///
/// # Safety
/// As for [`delete_versioned`].
unsafe extern "C" fn delete_managed<T>(managed: *mut Managed) {
    // SAFETY: as in `delete_versioned`.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Exported<T>>())) }
}

/// The end of a capsule: deletes its tensor, unless that was taken over, which has changed the name.
///
/// # Safety
/// The object is a capsule that [`export`] has made.
unsafe extern "C" fn forget_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule, whose pointer is to a live tensor as long as its name is the first one.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED_NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule, VERSIONED_NAME.as_ptr()).cast::<Versioned>();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}

/// As [`forget_versioned`], of version 0.
///
/// # Safety
/// As for [`forget_versioned`].
unsafe extern "C" fn forget_managed(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `forget_versioned`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Managed>();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}
