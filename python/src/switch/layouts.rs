//! How torch arranges what its functions take, as far as kernels have to know: in C++ on Linux on x86-64. `Symbols::check` and
//! `dispatcher::register` compare it with what the torch at hand does.

use std::ffi::c_void;
use std::ptr;

/// What an `at::Tensor` is: a counted pointer to the tensor, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct TensorPointer(*const c_void);

impl TensorPointer {
    /// As it stands in memory, in a value of 64 bits.
    pub(super) fn to_bits(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The pointer that [`TensorPointer::to_bits`] was given, or torch has put there.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(ptr::with_exposed_provenance(bits as usize))
    }
}

/// A `const at::Tensor&`, which is what torch's C interface calls a handle.
pub(super) type Handle = *const TensorPointer;

/// The beginning of a `c10::KernelFunction`. What is behind that is zero in one that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct KernelFunction {
    /// What a kernel may keep, a counted pointer; ours keep nothing.
    pub(super) functor: *mut c_void,
    /// Takes arguments on a stack, `Tensor` and `Scalar` in one form.
    pub(super) boxed: *const c_void,
    /// Takes arguments as C++ passes them.
    pub(super) unboxed: *const c_void,
    /// The same for sizes that are symbols.
    pub(super) symbolic: *const c_void,
    pub(super) rest: [usize; 8],
}

/// Memory for a `torch::CppFunction`, which has 104 bytes in torch 2.11.
#[repr(C, align(16))]
pub(super) struct CppFunction(pub(super) [u8; 512]);

/// A `std::optional<CppSignature>` without one.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct NoSignature(pub(super) [usize; 2]);

/// Memory for a `c10::OperatorHandle`, of which the first word is the address of the operator's entry.
#[repr(C, align(16))]
pub(super) struct OperatorHandle(pub(super) [*const c_void; 8]);

/// A `c10::Scalar`: which type it has, and the value, which may be a complex number, aligned to 16 bytes.
#[repr(C)]
pub(super) struct Scalar {
    pub(super) tag: i32,
    pub(super) value: ScalarValue,
}

#[repr(C, align(16))]
pub(super) struct ScalarValue(pub(super) [u64; 2]);

impl Scalar {
    const DOUBLE: i32 = 0;
    const INTEGER: i32 = 1;

    /// The number, if it is a real one.
    pub(super) fn number(&self) -> Option<f64> {
        match self.tag {
            Self::DOUBLE => Some(f64::from_bits(self.value.0[0])),
            Self::INTEGER => Some(self.value.0[0] as i64 as f64),
            _ => None,
        }
    }
}

/// A `std::vector<c10::IValue>`.
#[repr(C)]
pub(super) struct Stack {
    begin: *mut Value,
    pub(super) end: *mut Value,
    capacity: *mut Value,
}

/// A `c10::IValue`: a tensor's pointer or a number, and what it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Value {
    pub(super) content: u64,
    pub(super) tag: u32,
}

impl Value {
    pub(super) const TENSOR: u32 = 1;
    pub(super) const DOUBLE: u32 = 3;
    pub(super) const INTEGER: u32 = 5;

    /// The number, if it is a real one.
    pub(super) fn number(self) -> Option<f64> {
        match self.tag {
            Self::DOUBLE => Some(f64::from_bits(self.content)),
            Self::INTEGER => Some(self.content as i64 as f64),
            _ => None,
        }
    }
}
