//! Products with few columns: the time is that of reading A once. A product with few rows is one of these, transposed.
//!
//! | module | columns | what multiplies |
//! |---|---|---|
//! | [`cuda_cores`] | at most 16 | fused multiply-adds in fp32 |
//! | [`tensor_cores`] | some tens | three TF32 products of high and low parts |
//!
//! In both, threads load A straight into registers, in vectors of 16 bytes, with many loads under way before the first is used: no
//! element of A is used by two warps, so shared memory would only be a detour.

pub mod cuda_cores;
pub mod tensor_cores;
