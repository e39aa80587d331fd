//! The functions of cuBLAS and cuBLASLt that baselines call, as their headers declare them (CUDA 12 and 13 agree).

use std::ffi::{c_char, c_int, c_longlong, c_void};

use libloading::Library;

/// `cublasStatus_t`. 0 is success.
pub(super) type Status = c_int;
/// `cublasHandle_t`, `cublasLtHandle_t` and the other objects that only cuBLAS looks into.
pub(super) type Object = *mut c_void;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
pub(super) const OP_NONE: c_int = 0;
pub(super) const OP_TRANSPOSE: c_int = 1;

/// `cublasMath_t`: `CUBLAS_DEFAULT_MATH`, `CUBLAS_TF32_TENSOR_OP_MATH`.
pub(super) const DEFAULT_MATH: c_int = 0;
pub(super) const TF32_TENSOR_OP_MATH: c_int = 3;

/// `cublasComputeType_t`: `CUBLAS_COMPUTE_32F`, `CUBLAS_COMPUTE_64F`, `CUBLAS_COMPUTE_32F_FAST_TF32`.
pub(super) const COMPUTE_32F: c_int = 68;
pub(super) const COMPUTE_64F: c_int = 70;
pub(super) const COMPUTE_32F_FAST_TF32: c_int = 77;

/// `cudaDataType_t`: `CUDA_R_32F`, `CUDA_R_64F`, `CUDA_R_16BF`.
pub(super) const REAL_32F: c_int = 0;
pub(super) const REAL_64F: c_int = 1;
pub(super) const REAL_16BF: c_int = 14;

/// `CUBLAS_GEMM_DEFAULT`.
pub(super) const GEMM_DEFAULT: c_int = -1;

/// `cublasLtMatmulDescAttributes_t`: `…_TRANSA`, `…_TRANSB`.
pub(super) const DESC_TRANSA: c_int = 3;
pub(super) const DESC_TRANSB: c_int = 4;

/// `cublasLtMatrixLayoutAttribute_t`: `…_BATCH_COUNT`, `…_STRIDED_BATCH_OFFSET`.
pub(super) const LAYOUT_BATCH_COUNT: c_int = 5;
pub(super) const LAYOUT_STRIDED_BATCH_OFFSET: c_int = 6;

/// `cublasLtMatmulPreferenceAttributes_t`: `…_MAX_WORKSPACE_BYTES`, `…_MIN_ALIGNMENT_A_BYTES` to `…_D_BYTES`.
pub(super) const PREFERENCE_MAX_WORKSPACE_BYTES: c_int = 1;
pub(super) const PREFERENCE_MIN_ALIGNMENT_BYTES: [c_int; 4] = [5, 6, 7, 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct HeuristicResult {
    /// `cublasLtMatmulAlgo_t`.
    pub(super) algorithm: [u64; 8],
    pub(super) workspace_bytes: usize,
    pub(super) state: Status,
    pub(super) waves: f32,
    pub(super) reserved: [c_int; 4],
}

macro_rules! functions {
    ($table:ident, $doc:literal: $($field:ident = $symbol:literal ($($parameter:ty),*) -> $result:ty;)*) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(super) struct $table {
            $(pub(super) $field: unsafe extern "C" fn($($parameter),*) -> $result,)*
        }

        impl $table {
            /// Looks all functions up.
            ///
            /// # Errors
            /// The name of the first one that the library lacks.
            ///
            /// # Safety
            /// Functions of these names in the library are what its header declares.
            pub(super) unsafe fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the caller's promise.
                Ok(Self { $($field: *unsafe { library.get($symbol) }.map_err(|_| $symbol)?,)* })
            }
        }
    };
}

functions! {
    Cublas, "Functions of libcublas.":
    create = "cublasCreate_v2" (*mut Object) -> Status;
    destroy = "cublasDestroy_v2" (Object) -> Status;
    version = "cublasGetVersion_v2" (Object, *mut c_int) -> Status;
    set_stream = "cublasSetStream_v2" (Object, *mut c_void) -> Status;
    set_workspace = "cublasSetWorkspace_v2" (Object, *mut c_void, usize) -> Status;
    set_math_mode = "cublasSetMathMode" (Object, c_int) -> Status;
    status_string = "cublasGetStatusString" (Status) -> *const c_char;
    sgemm = "cublasSgemm_v2" (
        Object, c_int, c_int, c_int, c_int, c_int, *const f32, *const f32, c_int, *const f32, c_int, *const f32, *mut f32,
        c_int
    ) -> Status;
    sgemm_strided_batched = "cublasSgemmStridedBatched" (
        Object, c_int, c_int, c_int, c_int, c_int, *const f32, *const f32, c_int, c_longlong, *const f32, c_int, c_longlong,
        *const f32, *mut f32, c_int, c_longlong, c_int
    ) -> Status;
    sgemv = "cublasSgemv_v2" (
        Object, c_int, c_int, c_int, *const f32, *const f32, c_int, *const f32, c_int, *const f32, *mut f32, c_int
    ) -> Status;
    gemm_ex = "cublasGemmEx" (
        Object, c_int, c_int, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_int, *const c_void, c_int, c_int,
        *const c_void, *mut c_void, c_int, c_int, c_int, c_int
    ) -> Status;
}

functions! {
    CublasLt, "Functions of libcublasLt.":
    create = "cublasLtCreate" (*mut Object) -> Status;
    destroy = "cublasLtDestroy" (Object) -> Status;
    desc_create = "cublasLtMatmulDescCreate" (*mut Object, c_int, c_int) -> Status;
    desc_destroy = "cublasLtMatmulDescDestroy" (Object) -> Status;
    desc_set = "cublasLtMatmulDescSetAttribute" (Object, c_int, *const c_void, usize) -> Status;
    layout_create = "cublasLtMatrixLayoutCreate" (*mut Object, c_int, u64, u64, i64) -> Status;
    layout_destroy = "cublasLtMatrixLayoutDestroy" (Object) -> Status;
    layout_set = "cublasLtMatrixLayoutSetAttribute" (Object, c_int, *const c_void, usize) -> Status;
    preference_create = "cublasLtMatmulPreferenceCreate" (*mut Object) -> Status;
    preference_destroy = "cublasLtMatmulPreferenceDestroy" (Object) -> Status;
    preference_set = "cublasLtMatmulPreferenceSetAttribute" (Object, c_int, *const c_void, usize) -> Status;
    heuristic = "cublasLtMatmulAlgoGetHeuristic" (
        Object, Object, Object, Object, Object, Object, Object, c_int, *mut HeuristicResult, *mut c_int
    ) -> Status;
    matmul = "cublasLtMatmul" (
        Object, Object, *const c_void, *const c_void, Object, *const c_void, Object, *const c_void, *const c_void, Object,
        *mut c_void, Object, *const [u64; 8], *mut c_void, usize, *mut c_void
    ) -> Status;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heuristic_result_is_laid_out_as_in_the_header() {
        assert_eq!((size_of::<HeuristicResult>(), align_of::<HeuristicResult>()), (96, 8));
        assert_eq!(std::mem::offset_of!(HeuristicResult, workspace_bytes), 64);
        assert_eq!(std::mem::offset_of!(HeuristicResult, state), 72);
    }
}
