//! Types and values of cuBLAS and cuBLASLt, as the headers of CUDA 11.4 to 13 declare them.

use std::ffi::{c_int, c_void};

/// `cublasStatus_t`.
pub(crate) type Status = c_int;
pub(crate) const SUCCESS: Status = 0;
pub(crate) const NOT_INITIALIZED: Status = 1;
pub(crate) const EXECUTION_FAILED: Status = 13;

/// `cublasHandle_t`, `cublasLtHandle_t` and the descriptors: objects that only cuBLAS looks into.
pub(crate) type Object = *mut c_void;

/// `cublasOperation_t`: `CUBLAS_OP_N`, `CUBLAS_OP_T`, `CUBLAS_OP_C`.
pub(crate) const OP_NONE: c_int = 0;
pub(crate) const OP_TRANSPOSE: c_int = 1;
pub(crate) const OP_CONJUGATE_TRANSPOSE: c_int = 2;

/// `cublasPointerMode_t` and `cublasLtPointerMode_t`: α and β are in the host's memory.
pub(crate) const POINTER_MODE_HOST: c_int = 0;

/// `cublasMath_t`: `CUBLAS_DEFAULT_MATH`, and the flag `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`, which is about 16-bit products.
pub(crate) const DEFAULT_MATH: c_int = 0;
pub(crate) const DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;

/// `cublasComputeType_t`: `CUBLAS_COMPUTE_32F`.
pub(crate) const COMPUTE_32F: c_int = 68;

/// `cudaDataType_t`: `CUDA_R_32F`.
pub(crate) const REAL_32F: c_int = 0;

/// `cublasGemmAlgo_t`: `CUBLAS_GEMM_DEFAULT`, `CUBLAS_GEMM_DEFAULT_TENSOR_OP`.
pub(crate) const ALGO_DEFAULT: [c_int; 2] = [-1, 99];

/// `cublasLtOrder_t`: `CUBLASLT_ORDER_COL`, `CUBLASLT_ORDER_ROW`.
pub(crate) const ORDER_COLUMN: c_int = 0;
pub(crate) const ORDER_ROW: c_int = 1;

/// `cublasLtMatmulDescAttributes_t`.
pub(crate) mod desc {
    use super::c_int;

    pub(crate) const COMPUTE_TYPE: c_int = 0;
    pub(crate) const SCALE_TYPE: c_int = 1;
    pub(crate) const POINTER_MODE: c_int = 2;
    pub(crate) const TRANSA: c_int = 3;
    pub(crate) const TRANSB: c_int = 4;
    pub(crate) const TRANSC: c_int = 5;
    pub(crate) const FILL_MODE: c_int = 6;
    pub(crate) const EPILOGUE: c_int = 7;
    pub(crate) const BIAS_POINTER: c_int = 8;
    pub(crate) const BIAS_BATCH_STRIDE: c_int = 10;
    pub(crate) const SM_COUNT_TARGET: c_int = 15;
    pub(crate) const BIAS_DATA_TYPE: c_int = 26;

    /// `CUBLAS_FILL_MODE_FULL`.
    pub(crate) const FILL_FULL: c_int = 2;

    /// `cublasLtEpilogue_t`: `CUBLASLT_EPILOGUE_DEFAULT`, and what can be asked for instead, the bias together with either activation.
    pub(crate) const EPILOGUE_DEFAULT: c_int = 1;
    pub(crate) const EPILOGUE_RELU: c_int = 2;
    pub(crate) const EPILOGUE_BIAS: c_int = 4;
    pub(crate) const EPILOGUE_GELU: c_int = 32;

    /// The bias is of the type of D's elements.
    pub(crate) const BIAS_AS_D: c_int = -1;
}

/// `cublasLtMatrixLayoutAttribute_t`.
pub(crate) mod layout {
    use super::c_int;

    pub(crate) const TYPE: c_int = 0;
    pub(crate) const ORDER: c_int = 1;
    pub(crate) const ROWS: c_int = 2;
    pub(crate) const COLS: c_int = 3;
    pub(crate) const LD: c_int = 4;
    pub(crate) const BATCH_COUNT: c_int = 5;
    pub(crate) const STRIDED_BATCH_OFFSET: c_int = 6;
    pub(crate) const PLANE_OFFSET: c_int = 7;
    pub(crate) const BATCH_MODE: c_int = 8;

    /// `CUBLASLT_BATCH_MODE_STRIDED`: the pointer is that of the first matrix, and not of pointers to all.
    pub(crate) const BATCH_STRIDED: c_int = 0;
}
