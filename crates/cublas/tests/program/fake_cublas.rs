//! A stand-in for libcublas and, with `--cfg lt`, for libcublasLt, which computes on the host and writes down what it is called with.
//! `library.rs` compiles it with rustc alone, and gives its symbols the versions that NVIDIA's have.

#![allow(non_snake_case, clippy::all)]

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const NOT_SUPPORTED: c_int = 15;

static CALLS: AtomicU64 = AtomicU64::new(0);
static LAST: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// How many products were asked for.
#[unsafe(no_mangle)]
extern "C" fn fake_calls() -> u64 {
    CALLS.load(SeqCst)
}

/// Argument `index` of the last of them, as 64 bits; the pattern of what it is not.
#[unsafe(no_mangle)]
extern "C" fn fake_argument(index: usize) -> i64 {
    LAST.lock().unwrap().get(index).copied().unwrap_or(i64::MIN)
}

trait Word {
    fn word(self) -> i64;
}
macro_rules! words { ($($kind:ty),*) => { $(impl Word for $kind { fn word(self) -> i64 { self as i64 } })* } }
words!(
    c_int,
    i64,
    usize,
    *const f32,
    *mut f32,
    *const c_void,
    *mut c_void,
    *const *const f32,
    *const *mut f32,
    *const *const c_void,
    *const *mut c_void
);

macro_rules! record {
    ($($argument:ident),*) => {
        CALLS.fetch_add(1, SeqCst);
        *LAST.lock().unwrap() = vec![$(Word::word($argument)),*];
    };
}

/// A matrix by columns, or by rows.
#[derive(Clone, Copy)]
struct Matrix {
    pointer: *mut f32,
    row_stride: i64,
    col_stride: i64,
    batch_stride: i64,
}

impl Matrix {
    fn columns(pointer: *const f32, leading: i64, batch_stride: i64) -> Self {
        Self { pointer: pointer.cast_mut(), row_stride: 1, col_stride: leading, batch_stride }
    }
    fn op(self, operation: c_int) -> Self {
        if operation == 0 { self } else { Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self } }
    }
    fn at(self, batch: i64, row: i64, col: i64) -> *mut f32 {
        self.pointer
            .wrapping_offset((batch * self.batch_stride + row * self.row_stride + col * self.col_stride) as isize)
    }
}

fn multiply([m, n, k, count]: [i64; 4], alpha: f32, a: Matrix, b: Matrix, beta: f32, c: Matrix) -> c_int {
    // It would take for ever.
    if m * n * k * count > 1 << 24 {
        return NOT_SUPPORTED;
    }
    for batch in 0..count {
        for row in 0..m {
            for col in 0..n {
                let sum: f64 =
                    (0..k).map(|i| unsafe { f64::from(*a.at(batch, row, i)) * f64::from(*b.at(batch, i, col)) }).sum();
                let old =
                    if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(unsafe { *c.at(batch, row, col) }) };
                unsafe { *c.at(batch, row, col) = (f64::from(alpha) * sum + old) as f32 };
            }
        }
    }
    SUCCESS
}

#[cfg(not(lt))]
mod cublas {
    use super::*;

    struct Handle {
        stream: usize,
        pointer_mode: c_int,
        math_mode: c_int,
        sm_count: c_int,
    }

    static CALLS_ITSELF: AtomicBool = AtomicBool::new(false);

    /// From now on `cublasSgemm_v2` calls `cublasSgemmStridedBatched`, as a program would.
    #[unsafe(no_mangle)]
    extern "C" fn fake_call_itself(yes: c_int) {
        CALLS_ITSELF.store(yes != 0, SeqCst);
    }

    /// What comes behind this library: the loader tells which that is by who calls.
    #[unsafe(no_mangle)]
    extern "C" fn fake_next() -> *mut c_void {
        // Not by a jump, which would have the caller of this function call.
        std::hint::black_box(unsafe { dlsym(-1isize as *mut c_void, c"fake_calls".as_ptr()) })
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
        let made = Handle { stream: 0, pointer_mode: 0, math_mode: 0, sm_count: 0 };
        unsafe { *handle = Box::into_raw(Box::new(made)).cast() };
        SUCCESS
    }

    macro_rules! properties {
        ($($set:ident, $get:ident, $field:ident: $kind:ty;)*) => { $(
            #[unsafe(no_mangle)]
            extern "C" fn $set(handle: *mut c_void, value: $kind) -> c_int {
                unsafe { (*handle.cast::<Handle>()).$field = value };
                SUCCESS
            }
            #[unsafe(no_mangle)]
            extern "C" fn $get(handle: *mut c_void, value: *mut $kind) -> c_int {
                if handle.is_null() {
                    return NOT_INITIALIZED;
                }
                unsafe { *value = (*handle.cast::<Handle>()).$field };
                SUCCESS
            }
        )* };
    }
    properties! {
        cublasSetStream_v2, cublasGetStream_v2, stream: usize;
        cublasSetPointerMode_v2, cublasGetPointerMode_v2, pointer_mode: c_int;
        cublasSetMathMode, cublasGetMathMode, math_mode: c_int;
        cublasSetSmCountTarget, cublasGetSmCountTarget, sm_count: c_int;
    }

    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    fn gemm(
        handle: *mut c_void,
        [ta, tb]: [c_int; 2],
        [m, n, k, count]: [i64; 4],
        alpha: *const f32,
        (a, lda, sa): (*const f32, i64, i64),
        (b, ldb, sb): (*const f32, i64, i64),
        beta: *const f32,
        (c, ldc, sc): (*mut f32, i64, i64),
    ) -> c_int {
        if handle.is_null() {
            return NOT_INITIALIZED;
        }
        let (rows_a, rows_b) = (if ta == 0 { m } else { k }, if tb == 0 { k } else { n });
        if m < 0
            || n < 0
            || k < 0
            || count < 0
            || lda < rows_a.max(1)
            || ldb < rows_b.max(1)
            || ldc < m.max(1)
            || alpha.is_null()
            || beta.is_null()
        {
            return INVALID_VALUE;
        }
        if !(0..=2).contains(&ta) || !(0..=2).contains(&tb) {
            return NOT_SUPPORTED;
        }
        let (a, b) = (Matrix::columns(a, lda, sa).op(ta), Matrix::columns(b, ldb, sb).op(tb));
        multiply([m, n, k, count], unsafe { *alpha }, a, b, unsafe { *beta }, Matrix::columns(c, ldc, sc))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemm_v2(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
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
        record!(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        if CALLS_ITSELF.load(SeqCst) {
            type Function = extern "C" fn(
                *mut c_void,
                c_int,
                c_int,
                c_int,
                c_int,
                c_int,
                *const f32,
                *const f32,
                c_int,
                c_longlong,
                *const f32,
                c_int,
                c_longlong,
                *const f32,
                *mut f32,
                c_int,
                c_longlong,
                c_int,
            ) -> c_int;
            // The first function of this name in the process: the one that was preloaded.
            let function: Function =
                unsafe { std::mem::transmute(dlsym(std::ptr::null_mut(), c"cublasSgemmStridedBatched".as_ptr())) };
            return function(handle, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
        }
        let extents = [m.into(), n.into(), k.into(), 1];
        gemm(handle, [ta, tb], extents, alpha, (a, lda.into(), 0), (b, ldb.into(), 0), beta, (c, ldc.into(), 0))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemm_v2_64(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: i64,
        n: i64,
        k: i64,
        alpha: *const f32,
        a: *const f32,
        lda: i64,
        b: *const f32,
        ldb: i64,
        beta: *const f32,
        c: *mut f32,
        ldc: i64,
    ) -> c_int {
        record!(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        gemm(handle, [ta, tb], [m, n, k, 1], alpha, (a, lda, 0), (b, ldb, 0), beta, (c, ldc, 0))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemmStridedBatched(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const f32,
        a: *const f32,
        lda: c_int,
        sa: c_longlong,
        b: *const f32,
        ldb: c_int,
        sb: c_longlong,
        beta: *const f32,
        c: *mut f32,
        ldc: c_int,
        sc: c_longlong,
        count: c_int,
    ) -> c_int {
        record!(handle, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count);
        let extents = [m.into(), n.into(), k.into(), count.into()];
        gemm(handle, [ta, tb], extents, alpha, (a, lda.into(), sa), (b, ldb.into(), sb), beta, (c, ldc.into(), sc))
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemmBatched(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const f32,
        a: *const *const f32,
        lda: c_int,
        b: *const *const f32,
        ldb: c_int,
        beta: *const f32,
        c: *const *mut f32,
        ldc: c_int,
        count: c_int,
    ) -> c_int {
        record!(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count);
        let extents = [m.into(), n.into(), k.into(), 1];
        (0..count as usize)
            .map(|i| unsafe {
                let (a, b, c) = (*a.add(i), *b.add(i), *c.add(i));
                gemm(handle, [ta, tb], extents, alpha, (a, lda.into(), 0), (b, ldb.into(), 0), beta, (c, ldc.into(), 0))
            })
            .max()
            .unwrap_or(SUCCESS)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemmEx(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const f32,
        a: *const c_void,
        at: c_int,
        lda: c_int,
        b: *const c_void,
        bt: c_int,
        ldb: c_int,
        beta: *const f32,
        c: *mut c_void,
        ct: c_int,
        ldc: c_int,
    ) -> c_int {
        record!(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc);
        if [at, bt, ct] != [0; 3] {
            return NOT_SUPPORTED;
        }
        let extents = [m.into(), n.into(), k.into(), 1];
        gemm(
            handle,
            [ta, tb],
            extents,
            alpha,
            (a.cast(), lda.into(), 0),
            (b.cast(), ldb.into(), 0),
            beta,
            (c.cast(), ldc.into(), 0),
        )
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasGemmEx(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        at: c_int,
        lda: c_int,
        b: *const c_void,
        bt: c_int,
        ldb: c_int,
        beta: *const c_void,
        c: *mut c_void,
        ct: c_int,
        ldc: c_int,
        compute: c_int,
        algorithm: c_int,
    ) -> c_int {
        record!(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algorithm);
        if [at, bt, ct] != [0; 3] {
            return NOT_SUPPORTED;
        }
        let extents = [m.into(), n.into(), k.into(), 1];
        gemm(
            handle,
            [ta, tb],
            extents,
            alpha.cast(),
            (a.cast(), lda.into(), 0),
            (b.cast(), ldb.into(), 0),
            beta.cast(),
            (c.cast(), ldc.into(), 0),
        )
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasGemmStridedBatchedEx(
        handle: *mut c_void,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        at: c_int,
        lda: c_int,
        sa: c_longlong,
        b: *const c_void,
        bt: c_int,
        ldb: c_int,
        sb: c_longlong,
        beta: *const c_void,
        c: *mut c_void,
        ct: c_int,
        ldc: c_int,
        sc: c_longlong,
        count: c_int,
        compute: c_int,
        algorithm: c_int,
    ) -> c_int {
        record!(
            handle, ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count, compute,
            algorithm
        );
        if [at, bt, ct] != [0; 3] {
            return NOT_SUPPORTED;
        }
        let extents = [m.into(), n.into(), k.into(), count.into()];
        gemm(
            handle,
            [ta, tb],
            extents,
            alpha.cast(),
            (a.cast(), lda.into(), sa),
            (b.cast(), ldb.into(), sb),
            beta.cast(),
            (c.cast(), ldc.into(), sc),
        )
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasSgemv_v2(
        handle: *mut c_void,
        trans: c_int,
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
        record!(handle, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);
        if handle.is_null() {
            return NOT_INITIALIZED;
        }
        if m < 0 || n < 0 || lda < m.max(1) || incx == 0 || incy == 0 {
            return INVALID_VALUE;
        }
        let (rows, cols) = if trans == 0 { (m, n) } else { (n, m) };
        // From the end where the increment is negative.
        let begin = |len: c_int, increment: c_int| if increment < 0 { -((len - 1) * increment) as isize } else { 0 };
        let x = Matrix {
            pointer: x.cast_mut().wrapping_offset(begin(cols, incx)),
            row_stride: incx.into(),
            col_stride: 0,
            batch_stride: 0,
        };
        let y = Matrix {
            pointer: y.wrapping_offset(begin(rows, incy)),
            row_stride: incy.into(),
            col_stride: 0,
            batch_stride: 0,
        };
        let a = Matrix::columns(a, lda.into(), 0).op(trans);
        multiply([rows.into(), 1, cols.into(), 1], unsafe { *alpha }, a, x, unsafe { *beta }, y)
    }
}

#[cfg(lt)]
mod lt {
    use super::*;

    /// A descriptor or a layout: 64 bits for each attribute.
    type Attributes = [i64; 40];

    /// The bytes of attributes of descriptors that are no numbers of 32 bits, and of layouts.
    fn bytes(is_layout: bool, attribute: c_int) -> usize {
        match (is_layout, attribute) {
            (false, 8 | 10..=14 | 17..=21) | (true, 2..=4 | 6 | 7) => 8,
            _ => 4,
        }
    }

    fn make(object: *mut *mut c_void, attributes: Attributes) -> c_int {
        unsafe { *object = Box::into_raw(Box::new(attributes)).cast() };
        SUCCESS
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasLtMatmulDescCreate(object: *mut *mut c_void, compute: c_int, scale: c_int) -> c_int {
        let mut attributes = [0; 40];
        (attributes[0], attributes[1], attributes[6], attributes[7]) = (compute.into(), scale.into(), 2, 1);
        attributes[26] = -1;
        make(object, attributes)
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasLtMatrixLayoutCreate(
        object: *mut *mut c_void,
        kind: c_int,
        rows: u64,
        cols: u64,
        leading: i64,
    ) -> c_int {
        let mut attributes = [0; 40];
        (attributes[0], attributes[2], attributes[3], attributes[4], attributes[5]) =
            (kind.into(), rows as i64, cols as i64, leading, 1);
        make(object, attributes)
    }

    fn set(is_layout: bool, object: *mut c_void, attribute: c_int, value: *const c_void, size: usize) -> c_int {
        if size != bytes(is_layout, attribute) {
            return INVALID_VALUE;
        }
        unsafe {
            let value = if size == 4 { i64::from(*value.cast::<i32>()) } else { *value.cast::<i64>() };
            (*object.cast::<Attributes>())[attribute as usize] = value;
        }
        SUCCESS
    }

    fn get(
        is_layout: bool,
        object: *mut c_void,
        attribute: c_int,
        value: *mut c_void,
        size: usize,
        written: *mut usize,
    ) -> c_int {
        if size != bytes(is_layout, attribute) {
            return INVALID_VALUE;
        }
        unsafe {
            let found = (*object.cast::<Attributes>())[attribute as usize];
            if size == 4 {
                *value.cast::<i32>() = found as i32
            } else {
                *value.cast::<i64>() = found
            }
            *written = size;
        }
        SUCCESS
    }

    macro_rules! attributes {
        ($($set:ident, $get:ident, $is_layout:literal;)*) => { $(
            #[unsafe(no_mangle)]
            extern "C" fn $set(object: *mut c_void, attribute: c_int, value: *const c_void, size: usize) -> c_int {
                set($is_layout, object, attribute, value, size)
            }
            #[unsafe(no_mangle)]
            extern "C" fn $get(object: *mut c_void, attribute: c_int, value: *mut c_void, size: usize, written: *mut usize) -> c_int {
                get($is_layout, object, attribute, value, size, written)
            }
        )* };
    }
    attributes! {
        cublasLtMatmulDescSetAttribute, cublasLtMatmulDescGetAttribute, false;
        cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayoutGetAttribute, true;
    }

    #[unsafe(no_mangle)]
    extern "C" fn cublasLtMatmul(
        handle: *mut c_void,
        desc: *mut c_void,
        alpha: *const c_void,
        a: *const c_void,
        la: *mut c_void,
        b: *const c_void,
        lb: *mut c_void,
        beta: *const c_void,
        c: *const c_void,
        lc: *mut c_void,
        d: *mut c_void,
        ld: *mut c_void,
        algorithm: *const c_void,
        workspace: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) -> c_int {
        record!(handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, bytes, stream);
        if handle.is_null() {
            return NOT_INITIALIZED;
        }
        let attributes = |object: *mut c_void| unsafe { *object.cast::<Attributes>() };
        // Matrices that pointers lead to.
        if [la, lb, lc, ld].into_iter().any(|layout| attributes(layout)[8] != 0) {
            return NOT_SUPPORTED;
        }
        let desc = attributes(desc);
        let matrix = |pointer: *const c_void, layout: *mut c_void| {
            let layout = attributes(layout);
            let columns = Matrix::columns(pointer.cast(), layout[4], layout[6]);
            if layout[1] == 0 { columns } else { columns.op(1) }
        };
        let (a, b) = (matrix(a, la).op(desc[3] as c_int), matrix(b, lb).op(desc[4] as c_int));
        let (c, d, layout) = (matrix(c, lc), matrix(d, ld), attributes(ld));
        let a_layout = attributes(la);
        let k = if desc[3] == 0 { a_layout[3] } else { a_layout[2] };
        let (alpha, beta) = unsafe { (*alpha.cast::<f32>(), *beta.cast::<f32>()) };
        let (m, n, count) = (layout[2], layout[3], layout[5]);
        for batch in 0..count {
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                if beta != 0.0 {
                    unsafe { *d.at(batch, row, col) = *c.at(batch, row, col) };
                }
            }
        }
        let status = multiply([m, n, k, count], alpha, a, b, beta, d);
        let (epilogue, bias, bias_stride) = (desc[7], desc[8] as *const f32, desc[10]);
        for batch in 0..count {
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                unsafe {
                    let place = d.at(batch, row, col);
                    if epilogue & 4 != 0 && !bias.is_null() {
                        *place += *bias.offset((batch * bias_stride + row) as isize);
                    }
                    let x = f64::from(*place);
                    *place = match epilogue & !4 {
                        2 => x.max(0.0) as f32,
                        32 => (x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh()) / 2.0) as f32,
                        _ => x as f32,
                    };
                }
            }
        }
        status
    }
}
