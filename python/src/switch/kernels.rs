//! The kernels that stand in the place of torch's: each looks at its arguments, and computes the product or calls torch's kernel.
//!
//! ```text
//!  two, two_out                    (a, b), (a, b, out)                             arguments as C++ passes them
//!  three, three_out, three_in_place   (c, a, b, beta, alpha) and the same with out
//!  boxed                           all of them on a stack, from Python's `torch.ops` and from interpreters
//!           │
//!           ▼
//!      attempt ── Err(reason) ─► counted, and the arguments go to torch's kernel untouched
//!           └──── Ok ──────────► counted
//! ```
//!
//! What torch throws, for shapes that do not fit or where memory is out, goes through these functions as it comes from its own kernel:
//! they are of the ABI `C-unwind`, and hold nothing while they call it. Nothing here needs the interpreter, whose lock threads that
//! compute derivatives do not hold.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::attempt::attempt;
use super::dispatcher::{COUNT, Form, Functions, OPERATORS, ORIGINALS, Operator};
use super::layouts::{Handle, Scalar, Stack, TensorPointer, Value};
use super::symbols::Symbols;

/// The kernels of all operators.
pub(super) fn all() -> [Functions; COUNT] {
    [
        functions::<0>(),
        functions::<1>(),
        functions::<2>(),
        functions::<3>(),
        functions::<4>(),
        functions::<5>(),
        functions::<6>(),
        functions::<7>(),
        functions::<8>(),
        functions::<9>(),
        functions::<10>(),
        functions::<11>(),
        functions::<12>(),
    ]
}

fn functions<const OPERATOR: usize>() -> Functions {
    let operator = &OPERATORS[OPERATOR];
    let unboxed = match (operator.adds, operator.form) {
        (false, Form::Functional) => two::<OPERATOR> as *const c_void,
        (false, _) => two_out::<OPERATOR> as *const c_void,
        (true, Form::Functional) => three::<OPERATOR> as *const c_void,
        (true, Form::Out) => three_out::<OPERATOR> as *const c_void,
        (true, Form::InPlace) => three_in_place::<OPERATOR> as *const c_void,
    };
    Functions { boxed: boxed::<OPERATOR> as *const c_void, unboxed }
}

type Functor = *mut c_void;

/// `at::Tensor kernel(OperatorKernel*, DispatchKeySet, const at::Tensor& a, const at::Tensor& b)`
type Two = unsafe extern "C-unwind" fn(*mut TensorPointer, Functor, u64, Handle, Handle) -> *mut TensorPointer;
/// `at::Tensor& kernel(OperatorKernel*, DispatchKeySet, const at::Tensor& a, const at::Tensor& b, at::Tensor& out)`
type TwoOut = unsafe extern "C-unwind" fn(Functor, u64, Handle, Handle, Handle) -> Handle;
/// As `Two`, with `const at::Tensor& c` before a, and `const at::Scalar& beta, const at::Scalar& alpha` behind b.
type Three = unsafe extern "C-unwind" fn(
    *mut TensorPointer,
    Functor,
    u64,
    Handle,
    Handle,
    Handle,
    *const Scalar,
    *const Scalar,
) -> *mut TensorPointer;
/// As `TwoOut`, with the same.
type ThreeOut =
    unsafe extern "C-unwind" fn(Functor, u64, Handle, Handle, Handle, *const Scalar, *const Scalar, Handle) -> Handle;
/// The same without a last argument.
type ThreeInPlace =
    unsafe extern "C-unwind" fn(Functor, u64, Handle, Handle, Handle, *const Scalar, *const Scalar) -> Handle;
/// `void kernel(OperatorKernel*, const OperatorHandle&, DispatchKeySet, Stack*)`
type Boxed = unsafe extern "C-unwind" fn(Functor, *const c_void, u64, *mut Stack);

/// Torch's own kernel of an operator.
///
/// # Safety
/// The type is that of the operator's kernels.
unsafe fn original<F: Copy>(operator: usize) -> (F, Functor) {
    let original = &ORIGINALS[operator];
    let function = original.unboxed.load(Ordering::Acquire);
    // SAFETY: the caller's promise; it was set before this kernel was registered.
    (unsafe { std::mem::transmute_copy::<*mut c_void, F>(&function) }, original.functor.load(Ordering::Relaxed))
}

unsafe extern "C-unwind" fn two<const OPERATOR: usize>(
    result: *mut TensorPointer,
    _: Functor,
    keys: u64,
    a: Handle,
    b: Handle,
) -> *mut TensorPointer {
    // SAFETY: torch calls this with what it calls its own kernel with, and with room for a result.
    unsafe {
        match attempt(OPERATOR, a, b, None, None) {
            Some(Some(product)) => {
                result.write(product);
                result
            }
            _ => {
                let (kernel, functor) = original::<Two>(OPERATOR);
                kernel(result, functor, keys, a, b)
            }
        }
    }
}

unsafe extern "C-unwind" fn two_out<const OPERATOR: usize>(
    _: Functor,
    keys: u64,
    a: Handle,
    b: Handle,
    out: Handle,
) -> Handle {
    // SAFETY: torch calls this with what it calls its own kernel with.
    unsafe {
        match attempt(OPERATOR, a, b, None, Some(out)) {
            Some(_) => out,
            None => {
                let (kernel, functor) = original::<TwoOut>(OPERATOR);
                kernel(functor, keys, a, b, out)
            }
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "those of torch's kernels")]
unsafe extern "C-unwind" fn three<const OPERATOR: usize>(
    result: *mut TensorPointer,
    _: Functor,
    keys: u64,
    c: Handle,
    a: Handle,
    b: Handle,
    beta: *const Scalar,
    alpha: *const Scalar,
) -> *mut TensorPointer {
    // SAFETY: as for `two`; the factors are there.
    unsafe {
        let added = Some((c, (*beta).number(), (*alpha).number()));
        match attempt(OPERATOR, a, b, added, None) {
            Some(Some(product)) => {
                result.write(product);
                result
            }
            _ => {
                let (kernel, functor) = original::<Three>(OPERATOR);
                kernel(result, functor, keys, c, a, b, beta, alpha)
            }
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "those of torch's kernels")]
unsafe extern "C-unwind" fn three_out<const OPERATOR: usize>(
    _: Functor,
    keys: u64,
    c: Handle,
    a: Handle,
    b: Handle,
    beta: *const Scalar,
    alpha: *const Scalar,
    out: Handle,
) -> Handle {
    // SAFETY: as for `two_out`; the factors are there.
    unsafe {
        let added = Some((c, (*beta).number(), (*alpha).number()));
        match attempt(OPERATOR, a, b, added, Some(out)) {
            Some(_) => out,
            None => {
                let (kernel, functor) = original::<ThreeOut>(OPERATOR);
                kernel(functor, keys, c, a, b, beta, alpha, out)
            }
        }
    }
}

unsafe extern "C-unwind" fn three_in_place<const OPERATOR: usize>(
    _: Functor,
    keys: u64,
    c: Handle,
    a: Handle,
    b: Handle,
    beta: *const Scalar,
    alpha: *const Scalar,
) -> Handle {
    // SAFETY: as for `three_out`.
    unsafe {
        let added = Some((c, (*beta).number(), (*alpha).number()));
        match attempt(OPERATOR, a, b, added, Some(c)) {
            Some(_) => c,
            None => {
                let (kernel, functor) = original::<ThreeInPlace>(OPERATOR);
                kernel(functor, keys, c, a, b, beta, alpha)
            }
        }
    }
}

unsafe extern "C-unwind" fn boxed<const OPERATOR: usize>(
    _: Functor,
    operator: *const c_void,
    keys: u64,
    stack: *mut Stack,
) {
    // SAFETY: torch calls this with what it calls its own kernel with: the operator's arguments are the last ones on the stack.
    unsafe {
        if !attempt_boxed(OPERATOR, stack) {
            let original = &ORIGINALS[OPERATOR];
            let kernel = original.boxed.load(Ordering::Acquire);
            let kernel = std::mem::transmute::<*mut c_void, Boxed>(kernel);
            kernel(original.functor.load(Ordering::Relaxed), operator, keys, stack);
        }
    }
}

/// Takes a product whose operands are on a stack, and puts the result in their place; false if it is not taken.
///
/// # Safety
/// The operator's arguments are the last ones on the stack.
unsafe fn attempt_boxed(operator: usize, stack: *mut Stack) -> bool {
    let Operator { adds, form, .. } = OPERATORS[operator];
    let Some(symbols) = Symbols::get() else { return false };
    let count = if adds { 5 } else { 2 } + usize::from(form == Form::Out);
    // SAFETY: the caller's promise.
    let first = unsafe { (*stack).end.sub(count) };
    // SAFETY: as many values begin there.
    let values = unsafe { std::slice::from_raw_parts_mut(first, count) };
    // A handle is the address of a pointer, and a value that is a tensor begins with one.
    let tensor = |place: usize| (values[place].tag == Value::TENSOR).then(|| (&raw const values[place]).cast());
    let operands = if adds { [1, 2] } else { [0, 1] };
    let [Some(a), Some(b)] = operands.map(tensor) else { return false };
    let added = if adds {
        let Some(c) = tensor(0) else { return false };
        Some((c, values[3].number(), values[4].number()))
    } else {
        None
    };
    let (out, kept) = match form {
        Form::Functional => (None, None),
        Form::Out => (tensor(count - 1), Some(count - 1)),
        Form::InPlace => (tensor(0), Some(0)),
    };
    if kept.is_some() && out.is_none() {
        return false;
    }
    // SAFETY: all of them are tensors.
    let Some(product) = (unsafe { attempt(operator, a, b, added, out) }) else { return false };
    let result = match (product, kept) {
        (Some(product), _) => product.to_bits(),
        (None, Some(kept)) => values[kept].content,
        (None, None) => return false,
    };
    for (place, value) in values.iter().enumerate() {
        if value.tag == Value::TENSOR && kept != Some(place) {
            // SAFETY: the stack owned the pointer, and forgets it below.
            unsafe { symbols.release(TensorPointer::from_bits(value.content)) };
        }
    }
    values[0] = Value { content: result, tag: Value::TENSOR };
    // SAFETY: the stack is torch's, and what is behind the result owns nothing any more.
    unsafe { (*stack).end = first.add(1) };
    true
}
