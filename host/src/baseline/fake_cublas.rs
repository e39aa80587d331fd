//! A stand-in for libcublas and libcublasLt that computes on the host, as their documentation says: matrices by columns.
//! The tests of the parent module compile it with rustc alone. It refuses results with an extent of 13, and fails at the call that
//! `fake_begin` names, which counts those of the calling thread.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_longlong, c_void};

const SUCCESS: c_int = 0;
const EXECUTION_FAILED: c_int = 13;
const NOT_SUPPORTED: c_int = 15;
const REFUSED_EXTENT: c_int = 13;
const INTERNAL_ERROR: c_int = 14;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// The call that fails, from 1; 0 for none.
    static FAIL_AT: Cell<usize> = const { Cell::new(0) };
    /// Handles and descriptors that nobody has destroyed.
    static LIVE: Cell<i32> = const { Cell::new(0) };
}

/// Everything on this thread as at first; then call number `fail_at` fails, or none if that is 0.
#[unsafe(no_mangle)]
extern "C" fn fake_begin(fail_at: usize) {
    CALLS.set(0);
    FAIL_AT.set(fail_at);
    LIVE.set(0);
}
#[unsafe(no_mangle)]
extern "C" fn fake_calls() -> usize {
    CALLS.get()
}
#[unsafe(no_mangle)]
extern "C" fn fake_live() -> i32 {
    LIVE.get()
}

/// Counts a call, and whether it is to fail: then it has done nothing.
fn fails() -> bool {
    CALLS.set(CALLS.get() + 1);
    CALLS.get() == FAIL_AT.get()
}

macro_rules! count {
    () => {
        if fails() {
            return INTERNAL_ERROR;
        }
    };
}

/// Layouts and descriptors: numbers by attribute, after what they were created with.
#[derive(Clone, Copy, Default)]
struct Described {
    rows: u64,
    cols: u64,
    leading: i64,
    attributes: [i64; 9],
}

fn made(described: Described, object: *mut *mut c_void) -> c_int {
    LIVE.set(LIVE.get() + 1);
    unsafe { *object = Box::into_raw(Box::new(described)).cast() };
    SUCCESS
}

fn set(object: *mut c_void, attribute: c_int, value: *const c_void, size: usize) -> c_int {
    let value = match size {
        4 => i64::from(unsafe { *value.cast::<i32>() }),
        _ => unsafe { *value.cast::<i64>() },
    };
    unsafe { (*object.cast::<Described>()).attributes[attribute as usize] = value };
    SUCCESS
}

fn drop_object(object: *mut c_void) -> c_int {
    LIVE.set(LIVE.get() - 1);
    drop(unsafe { Box::from_raw(object.cast::<Described>()) });
    SUCCESS
}

macro_rules! objects {
    ($($create:ident, $destroy:ident, $set:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $destroy(object: *mut c_void) -> c_int {
    count!();
            drop_object(object)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $set(object: *mut c_void, attribute: c_int, value: *const c_void, size: usize) -> c_int {
    count!();
            set(object, attribute, value, size)
        }
    )* };
}
objects! {
    desc, cublasLtMatmulDescDestroy, cublasLtMatmulDescSetAttribute;
    layout, cublasLtMatrixLayoutDestroy, cublasLtMatrixLayoutSetAttribute;
    preference, cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreferenceSetAttribute;
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescCreate(object: *mut *mut c_void, _compute: c_int, _scale: c_int) -> c_int {
    count!();
    made(Described::default(), object)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutCreate(
    object: *mut *mut c_void,
    _kind: c_int,
    rows: u64,
    cols: u64,
    leading: i64,
) -> c_int {
    count!();
    let mut described = Described { rows, cols, leading, ..Described::default() };
    described.attributes[5] = 1;
    made(described, object)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceCreate(object: *mut *mut c_void) -> c_int {
    count!();
    made(Described::default(), object)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _lt: *mut c_void,
    _desc: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    c: *mut c_void,
    _d: *mut c_void,
    preference: *mut c_void,
    _requested: c_int,
    _results: *mut c_void,
    found: *mut c_int,
) -> c_int {
    count!();
    let (result, preference) = unsafe { (*c.cast::<Described>(), *preference.cast::<Described>()) };
    if [result.rows, result.cols].contains(&(REFUSED_EXTENT as u64)) || preference.attributes[1] != 32 << 20 {
        return NOT_SUPPORTED;
    }
    unsafe { *found = 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmul(
    _lt: *mut c_void,
    desc: *mut c_void,
    alpha: *const f32,
    a: *const f32,
    layout_a: *mut c_void,
    b: *const f32,
    layout_b: *mut c_void,
    beta: *const f32,
    _c: *const f32,
    _layout_c: *mut c_void,
    d: *mut f32,
    layout_d: *mut c_void,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    count!();
    let described = |object: *mut c_void| unsafe { *object.cast::<Described>() };
    let (desc, la, lb, ld) = (described(desc), described(layout_a), described(layout_b), described(layout_d));
    let (op_a, op_b) = (desc.attributes[3] as c_int, desc.attributes[4] as c_int);
    let k = if op_a == 0 { la.cols } else { la.rows };
    let of_b = if op_b == 0 { (lb.rows, lb.cols) } else { (lb.cols, lb.rows) };
    assert_eq!(of_b, (k, ld.cols), "the descriptors make no product");
    for i in 0..ld.attributes[5] {
        let offset = |layout: Described| (i * layout.attributes[6]) as usize;
        unsafe {
            multiply(
                [op_a, op_b],
                [ld.rows as usize, ld.cols as usize, k as usize],
                *alpha,
                (a.add(offset(la)), la.leading as usize),
                (b.add(offset(lb)), lb.leading as usize),
                *beta,
                (d.add(offset(ld)), ld.leading as usize),
            );
        }
    }
    SUCCESS
}

unsafe fn multiply(
    operations: [c_int; 2],
    [m, n, k]: [usize; 3],
    alpha: f32,
    (a, lda): (*const f32, usize),
    (b, ldb): (*const f32, usize),
    beta: f32,
    (c, ldc): (*mut f32, usize),
) {
    let place = |operation: c_int, row: usize, col: usize, leading: usize| match operation {
        0 => row + col * leading,
        _ => col + row * leading,
    };
    for i in 0..m {
        for j in 0..n {
            let products = (0..k)
                .map(|l| unsafe { *a.add(place(operations[0], i, l, lda)) * *b.add(place(operations[1], l, j, ldb)) });
            let target = unsafe { &mut *c.add(i + j * ldc) };
            *target = alpha * products.sum::<f32>() + beta * *target;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
    count!();
    made(Described::default(), handle)
}
#[unsafe(no_mangle)]
extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> c_int {
    count!();
    made(Described::default(), handle)
}
#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: *mut c_void) -> c_int {
    count!();
    drop_object(handle)
}
#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: *mut c_void) -> c_int {
    count!();
    drop_object(handle)
}
#[unsafe(no_mangle)]
extern "C" fn cublasGetVersion_v2(_handle: *mut c_void, version: *mut c_int) -> c_int {
    count!();
    unsafe { *version = 130_100 };
    SUCCESS
}
#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(_handle: *mut c_void, _stream: *mut c_void) -> c_int {
    count!();
    SUCCESS
}
#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(_handle: *mut c_void, _memory: *mut c_void, _bytes: usize) -> c_int {
    count!();
    SUCCESS
}
#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(_handle: *mut c_void, _mode: c_int) -> c_int {
    count!();
    SUCCESS
}
#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(_status: c_int) -> *const c_char {
    c"the stand-in's status".as_ptr()
}
#[unsafe(no_mangle)]
extern "C" fn cublasGemmEx() -> c_int {
    count!();
    EXECUTION_FAILED
}

#[unsafe(no_mangle)]
extern "C" fn cublasSgemm_v2(
    handle: *mut c_void,
    op_a: c_int,
    op_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: *const f32,
    lda: c_int,
    b: *const f32,
    ldb: c_int,
    beta: *const f32,
    c: *mut f32,
    ldc: c_int,
) -> c_int {
    count!();
    batched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1)
}

#[unsafe(no_mangle)]
extern "C" fn cublasSgemmStridedBatched(
    handle: *mut c_void,
    op_a: c_int,
    op_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: *const f32,
    lda: c_int,
    stride_a: c_longlong,
    b: *const f32,
    ldb: c_int,
    stride_b: c_longlong,
    beta: *const f32,
    c: *mut f32,
    ldc: c_int,
    stride_c: c_longlong,
    count: c_int,
) -> c_int {
    count!();
    batched(handle, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, count)
}

fn batched(
    _handle: *mut c_void,
    op_a: c_int,
    op_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: *const f32,
    lda: c_int,
    stride_a: c_longlong,
    b: *const f32,
    ldb: c_int,
    stride_b: c_longlong,
    beta: *const f32,
    c: *mut f32,
    ldc: c_int,
    stride_c: c_longlong,
    count: c_int,
) -> c_int {
    let least = |operation, rows: c_int, cols: c_int| if operation == 0 { rows } else { cols };
    if m == REFUSED_EXTENT || n == REFUSED_EXTENT {
        return EXECUTION_FAILED;
    }
    assert!(lda >= least(op_a, m, k) && ldb >= least(op_b, k, n) && ldc >= m, "a leading dimension is too small");
    for i in 0..i64::from(count) {
        unsafe {
            multiply(
                [op_a, op_b],
                [m as usize, n as usize, k as usize],
                *alpha,
                (a.offset((i * stride_a) as isize), lda as usize),
                (b.offset((i * stride_b) as isize), ldb as usize),
                *beta,
                (c.offset((i * stride_c) as isize), ldc as usize),
            );
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasSgemv_v2(
    _handle: *mut c_void,
    operation: c_int,
    m: c_int,
    n: c_int,
    alpha: *const f32,
    a: *const f32,
    lda: c_int,
    x: *const f32,
    incx: c_int,
    beta: *const f32,
    y: *mut f32,
    incy: c_int,
) -> c_int {
    count!();
    let (rows, terms) = if operation == 0 { (m, n) } else { (n, m) };
    for i in 0..rows {
        let products = (0..terms).map(|l| {
            let place = if operation == 0 { i + l * lda } else { l + i * lda };
            unsafe { *a.add(place as usize) * *x.add((l * incx) as usize) }
        });
        let target = unsafe { &mut *y.add((i * incy) as usize) };
        *target = unsafe { *alpha } * products.sum::<f32>() + unsafe { *beta } * *target;
    }
    SUCCESS
}
