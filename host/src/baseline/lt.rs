//! `cublasLtMatmul`, with the algorithm that its heuristics name first.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::api::{self, CublasLt, HeuristicResult, Object, Status};
use super::product::{ColumnMajor, Operand};
use super::{BaselineError, Math, WORKSPACE_BYTES};

/// The descriptors of a product, and the algorithm for it, on a handle that outlives it.
pub(super) struct LtCall {
    lt: CublasLt,
    handle: Object,
    // In the order of the arguments of `cublasLtMatmul`.
    desc: Descriptor,
    first: Descriptor,
    second: Descriptor,
    result: Descriptor,
    algorithm: [u64; 8],
    workspace_bytes: usize,
}

/// An object of cuBLASLt, with the function that destroys it.
struct Descriptor {
    object: Object,
    destroy: unsafe extern "C" fn(Object) -> Status,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the object is live and of this kind. Calls that are queued have copied what they need of it.
        unsafe { (self.destroy)(self.object) };
    }
}

impl Descriptor {
    /// Has `create` make an object.
    fn new(
        function: &'static str,
        destroy: unsafe extern "C" fn(Object) -> Status,
        create: impl FnOnce(*mut Object) -> Status,
    ) -> Result<Self, BaselineError> {
        let mut object = ptr::null_mut();
        check(function, create(&mut object))?;
        Ok(Self { object, destroy })
    }

    /// Sets an attribute of the type that cuBLASLt's header names for it.
    ///
    /// # Safety
    /// `set` is for objects of this kind, and `attribute` has type `T` there.
    unsafe fn set<T>(
        &self,
        function: &'static str,
        set: unsafe extern "C" fn(Object, c_int, *const c_void, usize) -> Status,
        attribute: c_int,
        value: T,
    ) -> Result<(), BaselineError> {
        // SAFETY: the caller's promise; the value is copied.
        check(function, unsafe { set(self.object, attribute, ptr::from_ref(&value).cast(), size_of::<T>()) })
    }
}

impl LtCall {
    /// Describes a product of operands at addresses that are aligned as these are, and asks for an algorithm.
    ///
    /// # Errors
    /// [`BaselineError::NoAlgorithm`], [`BaselineError::Call`].
    pub(super) fn new(
        lt: &CublasLt,
        handle: Object,
        math: Math,
        words: &ColumnMajor,
        addresses: [usize; 3],
    ) -> Result<Self, BaselineError> {
        let compute = match math {
            Math::Fp32 => api::COMPUTE_32F,
            Math::Tf32 => api::COMPUTE_32F_FAST_TF32,
        };
        let desc = Descriptor::new("cublasLtMatmulDescCreate", lt.desc_destroy, |object| {
            // SAFETY: the object may be written to.
            unsafe { (lt.desc_create)(object, compute, api::REAL_32F) }
        })?;
        for (attribute, operand) in [(api::DESC_TRANSA, words.first), (api::DESC_TRANSB, words.second)] {
            let operation = if operand.transpose { api::OP_TRANSPOSE } else { api::OP_NONE };
            // SAFETY: both attributes are `int32_t`.
            unsafe { desc.set("cublasLtMatmulDescSetAttribute", lt.desc_set, attribute, operation)? };
        }
        let layout = |operand: Operand| -> Result<Descriptor, BaselineError> {
            let layout = Descriptor::new("cublasLtMatrixLayoutCreate", lt.layout_destroy, |object| {
                let (rows, cols) = (u64::from(operand.rows), u64::from(operand.cols));
                // SAFETY: the object may be written to.
                unsafe { (lt.layout_create)(object, api::REAL_32F, rows, cols, i64::from(operand.leading_dimension)) }
            })?;
            if words.count != 1 {
                let function = "cublasLtMatrixLayoutSetAttribute";
                // SAFETY: the attributes are `int32_t` and `int64_t`.
                unsafe {
                    layout.set(function, lt.layout_set, api::LAYOUT_BATCH_COUNT, words.count as i32)?;
                    layout.set(function, lt.layout_set, api::LAYOUT_STRIDED_BATCH_OFFSET, operand.batch_stride)?;
                }
            }
            Ok(layout)
        };
        let (first, second, result) = (layout(words.first)?, layout(words.second)?, layout(words.result)?);

        let preference = Descriptor::new("cublasLtMatmulPreferenceCreate", lt.preference_destroy, |object| {
            // SAFETY: the object may be written to.
            unsafe { (lt.preference_create)(object) }
        })?;
        let function = "cublasLtMatmulPreferenceSetAttribute";
        // SAFETY: the attribute is `uint64_t`.
        unsafe {
            preference.set(function, lt.preference_set, api::PREFERENCE_MAX_WORKSPACE_BYTES, WORKSPACE_BYTES as u64)?;
        }
        let of_operands = [addresses[0], addresses[1], addresses[2], addresses[2]].map(alignment);
        for (attribute, bytes) in api::PREFERENCE_MIN_ALIGNMENT_BYTES.into_iter().zip(of_operands) {
            // SAFETY: the attributes are `uint32_t`.
            unsafe { preference.set(function, lt.preference_set, attribute, bytes)? };
        }
        let (mut found, mut best) = (0, HeuristicResult::default());
        // SAFETY: all objects are live, one result may be written to `best`, and how many there are to `found`.
        let status = unsafe {
            (lt.heuristic)(
                handle,
                desc.object,
                first.object,
                second.object,
                result.object,
                result.object,
                preference.object,
                1,
                &mut best,
                &mut found,
            )
        };
        // What cuBLASLt cannot do at all is a status of its own: CUBLAS_STATUS_NOT_SUPPORTED.
        const NOT_SUPPORTED: Status = 15;
        if status == NOT_SUPPORTED || (status == 0 && (found < 1 || best.state != 0)) {
            return Err(BaselineError::NoAlgorithm);
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let lt = *lt;
        Ok(Self {
            lt,
            handle,
            desc,
            first,
            second,
            result,
            algorithm: best.algorithm,
            workspace_bytes: best.workspace_bytes,
        })
    }

    /// Queues the product.
    ///
    /// # Safety
    /// The handle is live. The operands are laid out as described, in memory of its device; the result overlaps nothing. The
    /// workspace is memory of [`WORKSPACE_BYTES`] there that nothing else uses until the product is done.
    pub(super) unsafe fn run(
        &self,
        alpha: f32,
        beta: f32,
        (first, second, result): (*const f32, *const f32, *mut f32),
        workspace: *mut c_void,
        stream: *mut c_void,
    ) -> Status {
        // SAFETY: the caller's promise; the algorithm was named for these descriptors and this much workspace.
        unsafe {
            (self.lt.matmul)(
                self.handle,
                self.desc.object,
                ptr::from_ref(&alpha).cast(),
                first.cast(),
                self.first.object,
                second.cast(),
                self.second.object,
                ptr::from_ref(&beta).cast(),
                result.cast_const().cast(),
                self.result.object,
                result.cast(),
                self.result.object,
                &self.algorithm,
                workspace,
                self.workspace_bytes.min(WORKSPACE_BYTES),
                stream,
            )
        }
    }
}

/// The largest power of two, at most 256, that an address is a multiple of.
fn alignment(address: usize) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// Turns a status into an error. (cuBLASLt has no names for its statuses.)
fn check(function: &'static str, status: Status) -> Result<(), BaselineError> {
    if status == 0 { Ok(()) } else { Err(BaselineError::Call { function, status, name: None }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_powers_of_two_up_to_256() {
        assert_eq!([0x1000, 0x1100, 0x1010, 0x1004, 0].map(alignment), [256, 256, 16, 4, 256]);
    }
}
