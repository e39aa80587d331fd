//! Puts kernels in the place of torch's own for one dispatch key, and takes them out again.
//!
//! ```text
//!  torch.nn.functional.linear ─► aten::linear ─► aten::addmm ─► autograd, autocast, vmap, modes, …  as ever
//!                                                                 │
//!                                                   the key CUDA: │ ours, registered last, is found first
//!                                                                 ▼
//!                                                    taken: Tilewright's kernel
//!                                                    passed on: the kernel that was there, by its address
//! ```
//!
//! All of torch that is above kernels (derivatives, transformations, compilers, subclasses) stays as it is, and sees nothing. A torch
//! library that is given up takes its kernels with it, and torch goes back to those that were there.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::layouts::{CppFunction, KernelFunction, NoSignature};
use super::symbols::{SUCCESS, Symbols};

/// An operator whose kernel is replaced.
pub(super) struct Operator {
    pub(super) name: &'static CStr,
    pub(super) overload: &'static CStr,
    /// Both, as torch's libraries take it.
    full_name: &'static CStr,
    pub(super) form: Form,
    /// Whether it adds: `β·c + α·a·b` of `(c, a, b, *, beta, alpha)`, rather than `a·b` of `(a, b)`.
    pub(super) adds: bool,
    pub(super) shape: Shape,
}

/// Where an operator puts its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In a new tensor.
    Functional,
    /// In its last argument.
    Out,
    /// In its first argument, which is also added.
    InPlace,
}

/// What an operator multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Two matrices.
    Matrices,
    /// Two batches of matrices.
    Batches,
    /// A matrix and a vector.
    Vector,
}

impl Operator {
    const fn new(
        name: &'static CStr,
        overload: &'static CStr,
        full_name: &'static CStr,
        form: Form,
        adds: bool,
        shape: Shape,
    ) -> Self {
        Self { name, overload, full_name, form, adds, shape }
    }

    /// The name as torch shows it, such as `addmm.out`.
    pub(super) fn shown(&self) -> &'static str {
        self.full_name.to_str().unwrap_or_default()
    }
}

/// How many operators there are.
pub(super) const COUNT: usize = 13;

/// The operators that all of torch's products become: `linear`, `matmul`, `einsum`, `mv` and their derivatives call these.
pub(super) static OPERATORS: [Operator; COUNT] = [
    Operator::new(c"aten::mm", c"", c"mm", Form::Functional, false, Shape::Matrices),
    Operator::new(c"aten::mm", c"out", c"mm.out", Form::Out, false, Shape::Matrices),
    Operator::new(c"aten::bmm", c"", c"bmm", Form::Functional, false, Shape::Batches),
    Operator::new(c"aten::bmm", c"out", c"bmm.out", Form::Out, false, Shape::Batches),
    Operator::new(c"aten::addmm", c"", c"addmm", Form::Functional, true, Shape::Matrices),
    Operator::new(c"aten::addmm", c"out", c"addmm.out", Form::Out, true, Shape::Matrices),
    Operator::new(c"aten::addmm_", c"", c"addmm_", Form::InPlace, true, Shape::Matrices),
    Operator::new(c"aten::baddbmm", c"", c"baddbmm", Form::Functional, true, Shape::Batches),
    Operator::new(c"aten::baddbmm", c"out", c"baddbmm.out", Form::Out, true, Shape::Batches),
    Operator::new(c"aten::baddbmm_", c"", c"baddbmm_", Form::InPlace, true, Shape::Batches),
    Operator::new(c"aten::addmv", c"", c"addmv", Form::Functional, true, Shape::Vector),
    Operator::new(c"aten::addmv", c"out", c"addmv.out", Form::Out, true, Shape::Vector),
    Operator::new(c"aten::addmv_", c"", c"addmv_", Form::InPlace, true, Shape::Vector),
];

/// The kernel that an operator had, which takes what ours pass on.
pub(super) struct Original {
    pub(super) functor: AtomicPtr<c_void>,
    pub(super) boxed: AtomicPtr<c_void>,
    pub(super) unboxed: AtomicPtr<c_void>,
}

/// Those of all operators, set before ours are registered. They stay: a thread may still be in one of our kernels when these are
/// taken out.
pub(super) static ORIGINALS: [Original; COUNT] = [const {
    Original {
        functor: AtomicPtr::new(ptr::null_mut()),
        boxed: AtomicPtr::new(ptr::null_mut()),
        unboxed: AtomicPtr::new(ptr::null_mut()),
    }
}; COUNT];

/// The functions of a kernel of ours.
pub(super) struct Functions {
    pub(super) boxed: *const c_void,
    pub(super) unboxed: *const c_void,
}

/// The dispatch key that kernels are registered for.
pub(super) struct Key {
    pub(super) name: &'static CStr,
    pub(super) number: u16,
}

/// Kernels in the place of torch's, until this is dropped.
pub(super) struct Registration {
    symbols: &'static Symbols,
    library: *mut c_void,
}

// SAFETY: torch's dispatcher has a lock for changes.
unsafe impl Send for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the library was made by torch, and is given up once. Its kernels are functions, which stay.
        unsafe { (self.symbols.library_delete)(self.library) };
    }
}

/// Puts these kernels in the place of torch's.
///
/// # Errors
/// Why this torch cannot have them, in words. All is as it was then.
///
/// # Safety
/// Each function takes what torch gives to a kernel of its operator.
pub(super) unsafe fn register(
    symbols: &'static Symbols,
    key: &Key,
    functions: &[Functions; COUNT],
) -> Result<Registration, String> {
    let key_name = key.name.to_string_lossy();
    let entries = OPERATORS.each_ref().map(|operator| symbols.entry(operator.name, operator.overload));
    for ((operator, entry), original) in OPERATORS.iter().zip(entries).zip(&ORIGINALS) {
        let name = operator.shown();
        // SAFETY: the entry is that of the operator.
        let kernel = unsafe { symbols.kernel(entry, key.number) };
        let kernel = kernel.ok_or_else(|| format!("this torch has no kernel of aten::{name} for {key_name}"))?;
        if kernel.boxed.is_null() || !kernel.symbolic.is_null() {
            return Err(format!(
                "the kernel of aten::{name} for {key_name} is arranged otherwise in memory in this torch than in 2.11"
            ));
        }
        original.functor.store(kernel.functor, Ordering::Relaxed);
        original.boxed.store(kernel.boxed.cast_mut(), Ordering::Relaxed);
        original.unboxed.store(kernel.unboxed.cast_mut(), Ordering::Release);
    }
    // A kernel in Python takes its arguments on a stack alone; then torch has to put them there for ours, too, which may pass them on.
    let is_on_stacks = ORIGINALS.each_ref().map(|original| original.unboxed.load(Ordering::Relaxed).is_null());
    let ours: [KernelFunction; COUNT] = std::array::from_fn(|place| KernelFunction {
        functor: ptr::null_mut(),
        boxed: functions[place].boxed,
        unboxed: if is_on_stacks[place] { ptr::null() } else { functions[place].unboxed },
        symbolic: ptr::null(),
        rest: [0; 8],
    });
    let mut library = ptr::null_mut();
    // SAFETY: all names end with a zero byte, and the library may be written to.
    let made = unsafe {
        (symbols.library_init)(c"aten".as_ptr(), key.name.as_ptr(), c"tilewright".as_ptr(), line!(), &mut library)
    };
    if made != SUCCESS {
        return Err(format!("torch makes no library of kernels for {key_name}"));
    }
    let registration = Registration { symbols, library };
    let silence = Silence::new(symbols);
    for (operator, kernel) in OPERATORS.iter().zip(ours) {
        // SAFETY: the library is there, the operator too, and the caller promises that the functions are kernels of it.
        unsafe { add(symbols, library, operator, kernel) };
    }
    drop(silence);
    for ((operator, entry), ours) in OPERATORS.iter().zip(entries).zip(ours) {
        // SAFETY: the entry is that of the operator.
        if unsafe { symbols.kernel(entry, key.number) } != Some(ours) {
            return Err(format!(
                "torch has not taken our kernel of aten::{} as it was given: it arranges kernels otherwise in memory than 2.11 does",
                operator.shown()
            ));
        }
    }
    Ok(registration)
}

/// Registers a kernel.
///
/// # Safety
/// The library is one of torch's, with the operator's namespace, and the functions are kernels of the operator.
unsafe fn add(symbols: &Symbols, library: *mut c_void, operator: &Operator, mut kernel: KernelFunction) {
    let (mut function, mut schema) = (CppFunction([0; 512]), ptr::null_mut());
    // SAFETY: there is room for the function; the kernel is moved from, and owns nothing; the operator has a schema, so that none is
    // given; what is made is used and ended here. `0` is `_RegisterOrVerify::REGISTER`. Nothing is thrown: the operator is torch's own.
    unsafe {
        (symbols.cpp_function_new)(&mut function, &mut kernel, NoSignature([0; 2]), &mut schema);
        (symbols.library_impl)(library, operator.full_name.as_ptr(), &mut function, 0);
        (symbols.cpp_function_delete)(&mut function);
    }
}

/// While this is there, warnings that torch gives on this thread are not shown: it warns of each kernel that replaces another, which
/// is what is meant here.
struct Silence {
    symbols: &'static Symbols,
    before: *mut c_void,
}

impl Silence {
    fn new(symbols: &'static Symbols) -> Self {
        // SAFETY: the handler is static, and has the functions of one. Torch keeps its address for this thread.
        unsafe {
            let before = (symbols.get_warning_handler)();
            (symbols.set_warning_handler)((&raw const NO_WARNINGS).cast_mut().cast());
            Self { symbols, before }
        }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // SAFETY: the handler that there was before.
        unsafe { (self.symbols.set_warning_handler)(self.before) };
    }
}

/// A `c10::WarningHandler`: an object with a table of its functions, which are two destructors and `process`.
#[repr(C)]
struct WarningHandler(&'static [unsafe extern "C" fn(*mut c_void, *const c_void); 3]);

static NO_WARNINGS: WarningHandler = WarningHandler(&[nothing; 3]);

unsafe extern "C" fn nothing(_handler: *mut c_void, _warning: *const c_void) {}
