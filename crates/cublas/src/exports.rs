//! The functions of cuBLAS and cuBLASLt that this library stands in for, by their names there.
//!
//! Each is there with 32-bit numbers and, as `…_64` since CUDA 12, with 64-bit ones. A function says what it finds in its arguments; what it
//! does not take, cuBLAS's function of the same name gets as it is.

use std::ffi::{c_int, c_longlong, c_void};
use std::mem;

use crate::abi::{Object, Status};
use crate::intercept::intercept;
use crate::loader::Original;
use crate::product::{Columns, Gemm, Gemv, Product, Vector};
use crate::state::{Call, LtGetters, Matmul, all_fp32, factor, plain, stream_of};
use crate::why::Why;

/// Exports functions. In the parameters `Int` is `c_int`, or `i64` in the function of the second name, and `Stride` the type of strides of batches.
/// What finds the call is given the original function.
macro_rules! exports {
    ($($name:ident $(/ $wide:ident)?: fn $parameters:tt |$original:ident| $call:expr;)*) => {
        $(
            exports!(@one $name, c_int, c_longlong, $parameters, $original, $call);
            $(exports!(@one $wide, i64, i64, $parameters, $original, $call);)?
        )*

        /// What all of them stand in for.
        pub(crate) static ORIGINALS: &[&Original] = &[$(&$name::ORIGINAL, $(&$wide::ORIGINAL)?),*];
    };
    (@one $name:ident, $int:ty, $stride:ty, ($($parameter:ident: $kind:ty),* $(,)?), $original:ident, $call:expr) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "they are cuBLAS's")]
        mod $name {
            use super::*;

            #[allow(dead_code, reason = "not every function has such parameters")]
            type Int = $int;
            #[allow(dead_code, reason = "as above")]
            type Stride = $stride;

            pub(super) static ORIGINAL: Original = Original::new(
                // The name with the zero that ends it.
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                || $name as *mut c_void,
            );

            /// # Safety
            /// As for cuBLAS's function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($parameter: $kind),*) -> Status {
                let pass_on = |address: *mut c_void| {
                    // SAFETY: it is cuBLAS's function of this name, which has these parameters.
                    let function = unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> Status>(address) };
                    // SAFETY: the caller's promise.
                    unsafe { function($($parameter),*) }
                };
                // SAFETY: what cuBLAS demands of its callers for these arguments.
                unsafe { intercept(&ORIGINAL, |$original| $call, pass_on) }
            }
        }
    };
}

/// A matrix by columns.
fn columns<T>(pointer: *const T, leading: impl Into<i64>, batch_stride: impl Into<i64>) -> Columns<T> {
    Columns { pointer, leading: leading.into(), batch_stride: batch_stride.into() }
}

/// Numbers of 64 bits.
fn wide<const N: usize>(numbers: [impl Into<i64>; N]) -> [i64; N] {
    numbers.map(Into::into)
}

/// A vector.
fn vector(pointer: *const f32, increment: impl Into<i64>) -> Vector {
    Vector { pointer, increment: increment.into() }
}

/// The call of a function of cuBLAS, which has no workspace of the caller's that anybody could ask for.
fn on_stream(stream: *mut c_void, product: Product) -> Call {
    Call { product, stream, workspace: (0, 0) }
}

/// Matrices that pointers in device memory lead to: the host does not know where they are.
fn by_pointers() -> Result<Call, Why> {
    Err(Why::new("the matrices are given by pointers in device memory"))
}

exports! {
    cublasSgemm_v2 / cublasSgemm_v2_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const f32, a: *const f32, lda: Int, b: *const f32, ldb: Int,
        beta: *const f32, c: *mut f32, ldc: Int,
    ) |original| {
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, b, c) = (columns(a, lda, 0), columns(b, ldb, 0), columns(c.cast_const(), ldc, 0));
        let [m, n, k] = wide([m, n, k]);
        let product = Gemm { operations: [transa, transb], m, n, k, alpha, a, b, beta, c, count: 1 }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasSgemmStridedBatched / cublasSgemmStridedBatched_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const f32, a: *const f32, lda: Int, stride_a: Stride,
        b: *const f32, ldb: Int, stride_b: Stride, beta: *const f32, c: *mut f32, ldc: Int, stride_c: Stride, count: Int,
    ) |original| {
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, b, c) = (columns(a, lda, stride_a), columns(b, ldb, stride_b), columns(c.cast_const(), ldc, stride_c));
        let [m, n, k, count] = wide([m, n, k, count]);
        let product = Gemm { operations: [transa, transb], m, n, k, alpha, a, b, beta, c, count }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasSgemmBatched / cublasSgemmBatched_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const f32, a: *const *const f32, lda: Int,
        b: *const *const f32, ldb: Int, beta: *const f32, c: *const *mut f32, ldc: Int, count: Int,
    ) |_original| by_pointers();
    cublasSgemmEx / cublasSgemmEx_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const f32, a: *const c_void, a_type: c_int, lda: Int,
        b: *const c_void, b_type: c_int, ldb: Int, beta: *const f32, c: *mut c_void, c_type: c_int, ldc: Int,
    ) |original| {
        all_fp32([a_type, b_type, c_type])?;
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, b, c) = (columns(a, lda, 0), columns(b, ldb, 0), columns(c.cast_const(), ldc, 0));
        let [m, n, k] = wide([m, n, k]);
        let product = Gemm { operations: [transa, transb], m, n, k, alpha, a, b, beta, c, count: 1 }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasGemmEx / cublasGemmEx_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const c_void, a: *const c_void, a_type: c_int, lda: Int,
        b: *const c_void, b_type: c_int, ldb: Int, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: Int, compute_type: c_int,
        algorithm: c_int,
    ) |original| {
        all_fp32([a_type, b_type, c_type])?;
        plain(compute_type, algorithm)?;
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, b, c) = (columns(a, lda, 0), columns(b, ldb, 0), columns(c.cast_const(), ldc, 0));
        let [m, n, k] = wide([m, n, k]);
        let product = Gemm { operations: [transa, transb], m, n, k, alpha, a, b, beta, c, count: 1 }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasGemmStridedBatchedEx / cublasGemmStridedBatchedEx_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const c_void, a: *const c_void, a_type: c_int, lda: Int,
        stride_a: Stride, b: *const c_void, b_type: c_int, ldb: Int, stride_b: Stride, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: Int,
        stride_c: Stride, count: Int, compute_type: c_int, algorithm: c_int,
    ) |original| {
        all_fp32([a_type, b_type, c_type])?;
        plain(compute_type, algorithm)?;
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, b, c) = (columns(a, lda, stride_a), columns(b, ldb, stride_b), columns(c.cast_const(), ldc, stride_c));
        let [m, n, k, count] = wide([m, n, k, count]);
        let product = Gemm { operations: [transa, transb], m, n, k, alpha, a, b, beta, c, count }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasGemmBatchedEx / cublasGemmBatchedEx_64: fn(
        handle: Object, transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: *const c_void, a: *const *const c_void, a_type: c_int,
        lda: Int, b: *const *const c_void, b_type: c_int, ldb: Int, beta: *const c_void, c: *const *mut c_void, c_type: c_int, ldc: Int,
        count: Int, compute_type: c_int, algorithm: c_int,
    ) |_original| all_fp32([a_type, b_type, c_type]).and_then(|()| by_pointers());
    cublasSgemv_v2 / cublasSgemv_v2_64: fn(
        handle: Object, trans: c_int, m: Int, n: Int, alpha: *const f32, a: *const f32, lda: Int, x: *const f32, incx: Int, beta: *const f32,
        y: *mut f32, incy: Int,
    ) |original| {
        let stream = stream_of(handle, original)?;
        let (alpha, beta) = (factor(alpha)?, factor(beta)?);
        let (a, x, y) = (columns(a, lda, 0), vector(x, incx), vector(y.cast_const(), incy));
        let [m, n] = wide([m, n]);
        let product = Gemv { operation: trans, m, n, alpha, a, x, beta, y }.product()?;
        Ok(on_stream(stream, product))
    };
    cublasLtMatmul: fn(
        handle: Object, desc: Object, alpha: *const c_void, a: *const c_void, a_layout: Object, b: *const c_void, b_layout: Object,
        beta: *const c_void, c: *const c_void, c_layout: Object, d: *mut c_void, d_layout: Object, algorithm: *const c_void,
        workspace: *mut c_void, workspace_bytes: usize, stream: *mut c_void,
    ) |original| {
        if handle.is_null() {
            return Err(Why::new("the handle is null"));
        }
        let getters = LtGetters::beside(original).ok_or_else(|| Why::new("cuBLASLt's getters cannot be found"))?;
        let matrices = [(a, a_layout), (b, b_layout), (c, c_layout), (d.cast_const(), d_layout)];
        let product = Matmul { desc, alpha, matrices, beta }.product(getters)?;
        Ok(Call { product, stream, workspace: (workspace.addr(), workspace_bytes) })
    };
}
