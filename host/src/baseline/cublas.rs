//! An open cuBLAS.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use gpu_kernels::{MatrixBatch, MatrixBatchMut};
use libloading::Library;

use super::api::{self, Cublas, CublasLt, Object, Status};
use super::lt::LtCall;
use super::product::ColumnMajor;
use super::search::{Places, companion};
use super::{BaselineError, Math, Routine, WORKSPACE_BYTES};
use crate::Error;
use tilewright::device::{Buffer, Device};

/// cuBLAS and cuBLASLt, with handles on the stream of a device. For the thread that has opened it.
pub struct CuBlas {
    // Dropped from the top: the handles before the memory that they work in.
    handles: Handles,
    workspace: Buffer<f32>,
    device: Device,
    path: PathBuf,
    version: String,
}

/// The functions, and the handles that have been created with them.
struct Handles {
    cublas: Cublas,
    lt: CublasLt,
    handle: Object,
    lt_handle: Object,
}

impl Drop for Handles {
    fn drop(&mut self) {
        // SAFETY: the handles are live, and of these libraries; null is for one that was never created. What was queued goes
        // on: destroying a handle waits for it.
        unsafe {
            if !self.lt_handle.is_null() {
                (self.lt.destroy)(self.lt_handle);
            }
            if !self.handle.is_null() {
                (self.cublas.destroy)(self.handle);
            }
        }
    }
}

impl CuBlas {
    /// Opens the first libcublas that works with the device's driver. Searched are, in this order: what the environment
    /// variable [`LIBRARY_VARIABLE`](super::LIBRARY_VARIABLE) names, and nothing else if it is set; the dynamic loader's
    /// path; CUDA installations; the `nvidia` folders of Python environments.
    ///
    /// # Errors
    /// [`BaselineError::NoGpu`] for the CPU executor, [`BaselineError::NoLibrary`]; [`DeviceError::Driver`](runtime::Error::Driver) where the GPU has no
    /// memory for the workspace.
    pub fn open(device: &Device) -> Result<Self, Error> {
        if device.is_cpu() {
            return Err(BaselineError::NoGpu { device: device.name() }.into());
        }
        let mut tried = Vec::new();
        for path in Places::of_environment().candidates() {
            match Self::load(device, &path)? {
                Ok(opened) => return Ok(opened),
                Err(reason) => tried.push(format!("{}: {reason}", path.display())),
            }
        }
        Err(BaselineError::NoLibrary { tried }.into())
    }

    /// Opens one library. The inner error is why it cannot be used.
    pub(super) fn load(device: &Device, path: &Path) -> Result<Result<Self, String>, Error> {
        let workspace = device.allocate(WORKSPACE_BYTES / size_of::<f32>())?;
        let stream = stream_of(device)?;
        Ok(Self::load_on(device, path, workspace, stream))
    }

    fn load_on(device: &Device, path: &Path, workspace: Buffer<f32>, stream: *mut c_void) -> Result<Self, String> {
        let lt_path = companion(path).ok_or("this is no name of a libcublas")?;
        // The one that libcublas needs is then already there, wherever the loader would have looked for it.
        let lt_library = open(&lt_path)?;
        let library = open(path)?;
        // SAFETY: libcublas and libcublasLt of CUDA 12 or 13 by their names; whoever names another library answers for it.
        let tables = unsafe { (Cublas::of(&library), CublasLt::of(&lt_library)) };
        let lacks = |symbol: &str| format!("it has no function {symbol}");
        let (cublas, lt) = (tables.0.map_err(lacks)?, tables.1.map_err(lacks)?);

        let mut handles = Handles { cublas, lt, handle: ptr::null_mut(), lt_handle: ptr::null_mut() };
        let mut workspace = workspace;
        let memory = workspace.view_mut().as_mut_ptr().cast();
        let mut version: c_int = 0;
        // SAFETY: the out-parameters may be written to. The stream is the device's, whose context is current; the workspace
        // is memory of that device, of this many bytes, and outlives the handle.
        unsafe {
            let call = |function, status| call(&cublas, function, status).map_err(|error| error.to_string());
            call("cublasCreate", (cublas.create)(&mut handles.handle))?;
            call("cublasLtCreate", (lt.create)(&mut handles.lt_handle))?;
            call("cublasGetVersion", (cublas.version)(handles.handle, &mut version))?;
            call("cublasSetStream", (cublas.set_stream)(handles.handle, stream))?;
            call("cublasSetWorkspace", (cublas.set_workspace)(handles.handle, memory, WORKSPACE_BYTES))?;
        }
        Ok(Self { handles, workspace, device: device.clone(), path: loaded_path(path), version: version_text(version) })
    }

    /// The library's file, or the name that the dynamic loader has found it by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version, such as `13.1.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The device whose memory it works in.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes ready to compute products of operands that are laid out like these: of the same shapes, strides, number and
    /// alignment.
    ///
    /// # Errors
    /// [`BaselineError::Shape`], [`BaselineError::Layout`], [`BaselineError::NoVector`], [`BaselineError::NoAlgorithm`],
    /// [`BaselineError::Call`].
    pub fn prepare(
        &self,
        routine: Routine,
        math: Math,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        c: MatrixBatchMut<'_>,
    ) -> Result<Prepared<'_>, Error> {
        stream_of(&self.device)?;
        let words = ColumnMajor::new(&a, &b, &c)?;
        let n = c.first().cols();
        if routine == Routine::Gemv && (n != 1 || c.count() != 1) {
            return Err(BaselineError::NoVector { count: c.count(), n }.into());
        }
        let pointers =
            [a.first().data().as_ptr().addr(), b.first().data().as_ptr().addr(), c.first().data().as_mut_ptr().addr()];
        let (first, second) = words.in_order(pointers[0], pointers[1]);
        let lt = match routine {
            Routine::Lt => {
                Some(LtCall::new(&self.handles.lt, self.handles.lt_handle, math, &words, [first, second, pointers[2]])?)
            }
            Routine::Gemm | Routine::Gemv => None,
        };
        Ok(Prepared { blas: self, routine, math, words, lt })
    }

    /// Queues the product of two square matrices by `cublasGemmEx`: what a peak of the tensor cores is measured with.
    ///
    /// # Errors
    /// [`BaselineError::Shape`] unless there are as many words of each matrix as [`SquareFormat::words`] says;
    /// [`BaselineError::OtherDevice`]; [`BaselineError::Call`]; [`DeviceError::Driver`](runtime::Error::Driver) if an earlier
    /// kernel has failed.
    pub fn square(
        &self,
        format: SquareFormat,
        size: usize,
        a: &Buffer<u32>,
        b: &Buffer<u32>,
        c: &mut Buffer<u32>,
    ) -> Result<(), Error> {
        let shape = |len: usize| [1, size as u32, (len / size.max(1)) as u32];
        if [a.len(), b.len(), c.len()] != format.words(size) {
            return Err(BaselineError::Shape { a: shape(a.len()), b: shape(b.len()), c: shape(c.len()) }.into());
        }
        let devices = [a.device(), b.device(), c.device()];
        if devices.into_iter().any(|device| device.raw_stream() != self.device.raw_stream()) {
            return Err(BaselineError::OtherDevice { device: self.device.name() }.into());
        }
        let extent = c_int::try_from(size)
            .map_err(|_| tilewright::Error::ExtentTooLarge { what: "the matrix", extent: size })?;
        stream_of(&self.device)?;
        let (operands, result, sums) = match format {
            SquareFormat::Bf16 => (api::REAL_16BF, api::REAL_32F, api::COMPUTE_32F),
            SquareFormat::Fp64 => (api::REAL_64F, api::REAL_64F, api::COMPUTE_64F),
        };
        // The factors are what the sums are.
        let (fp32, fp64) = ([1.0f32, 0.0], [1.0f64, 0.0]);
        let factors: [*const c_void; 2] = match format {
            SquareFormat::Bf16 => fp32.each_ref().map(|factor| ptr::from_ref(factor).cast()),
            SquareFormat::Fp64 => fp64.each_ref().map(|factor| ptr::from_ref(factor).cast()),
        };
        // SAFETY: all three are memory of this device, with the elements that the extents and the types say (just compared),
        // and borrowed, C mutably; dropping a buffer waits for the stream. The factors are read before the call returns.
        let status = unsafe {
            (self.handles.cublas.gemm_ex)(
                self.handles.handle,
                api::OP_TRANSPOSE,
                api::OP_NONE,
                extent,
                extent,
                extent,
                factors[0],
                a.view().as_ptr().cast(),
                operands,
                extent,
                b.view().as_ptr().cast(),
                operands,
                extent,
                factors[1],
                c.view_mut().as_mut_ptr().cast(),
                result,
                extent,
                sums,
                api::GEMM_DEFAULT,
            )
        };
        Ok(call(&self.handles.cublas, "cublasGemmEx", status)?)
    }
}

/// What [`CuBlas::square`] multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SquareFormat {
    /// bf16 numbers, two to a word; sums and results are fp32.
    Bf16,
    /// fp64 numbers, each two words; so are sums and results.
    Fp64,
}

impl SquareFormat {
    /// The words of A, B and C.
    pub fn words(self, size: usize) -> [usize; 3] {
        let elements = size * size;
        match self {
            Self::Bf16 => [elements / 2, elements / 2, elements],
            Self::Fp64 => [2 * elements; 3],
        }
    }
}

impl fmt::Display for SquareFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::Fp64 => "fp64",
        })
    }
}

/// A product that cuBLAS is ready to compute.
pub struct Prepared<'blas> {
    blas: &'blas CuBlas,
    routine: Routine,
    math: Math,
    words: ColumnMajor,
    lt: Option<LtCall>,
}

impl Prepared<'_> {
    /// The routine.
    pub fn routine(&self) -> Routine {
        self.routine
    }

    /// Queues `C = α·A·B + β·C` for each product of the batch, behind everything launched before.
    ///
    /// # Errors
    /// [`BaselineError::Unprepared`] for operands that are laid out otherwise than those that this was prepared for;
    /// [`BaselineError::Shape`], [`BaselineError::Layout`]; [`BaselineError::Call`] if cuBLAS refuses, [`DeviceError::Driver`](runtime::Error::Driver) if
    /// an earlier kernel has failed.
    ///
    /// # Safety
    /// The views are of live buffers of the device that cuBLAS was opened on, and C overlaps neither A nor B.
    pub unsafe fn run(
        &self,
        alpha: f32,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        beta: f32,
        c: MatrixBatchMut<'_>,
    ) -> Result<(), Error> {
        let words = ColumnMajor::new(&a, &b, &c)?;
        if words != self.words {
            return Err(BaselineError::Unprepared.into());
        }
        let stream = stream_of(&self.blas.device)?;
        let Handles { cublas, handle, .. } = &self.blas.handles;
        let (first, second) = words.in_order(a.first().data().as_ptr(), b.first().data().as_ptr());
        let result = c.first().data().as_mut_ptr();
        let mode = match self.math {
            Math::Fp32 => api::DEFAULT_MATH,
            Math::Tf32 => api::TF32_TENSOR_OP_MATH,
        };
        // SAFETY: the handle is live.
        call(cublas, "cublasSetMathMode", unsafe { (cublas.set_math_mode)(*handle, mode) })?;
        let [m, n, k, count] = [words.m, words.n, words.k, words.count].map(|extent| extent as c_int);
        let operation = |transpose| if transpose { api::OP_TRANSPOSE } else { api::OP_NONE };
        let (op_first, op_second) = (operation(words.first.transpose), operation(words.second.transpose));
        let [ld_first, ld_second, ld_result] =
            [words.first, words.second, words.result].map(|operand| operand.leading_dimension);
        let [next_first, next_second, next_result] =
            [words.first, words.second, words.result].map(|operand| operand.batch_stride);
        // SAFETY (all): extents, leading dimensions and distances are those of the views, which lie inside live memory of
        // this device, with a result that overlaps nothing, by the caller's promise. The factors are read before the calls
        // return: the pointer mode is the default, for factors in this processor's memory. Work is queued on the device's own
        // stream, for which the end of a buffer waits.
        let (function, status) = match (self.routine, &self.lt) {
            (Routine::Lt, Some(prepared)) => {
                let workspace = self.blas.workspace.view().as_ptr().cast_mut().cast();
                let pointers = (first, second, result);
                // SAFETY: see above; the workspace is this device's, and as large as the preparation was told. Nothing else
                // uses it at the same time: all users are on one stream.
                let status = unsafe { prepared.run(alpha, beta, pointers, workspace, stream) };
                ("cublasLtMatmul", status)
            }
            (Routine::Gemv, _) => {
                // The matrix is A, whichever of the two it is; the vectors are matrices of one column.
                let (matrix, x) = (a.first().data().as_ptr(), b.first().data().as_ptr());
                let stored = if words.exchanged { words.second } else { words.first };
                // In column-major words A is op(stored) or, where the operands changed places, its transpose.
                let operation = operation(stored.transpose != words.exchanged);
                let step = |stride: u64| c_int::try_from(stride.max(1)).map_err(|_| BaselineError::Unprepared);
                let (step_x, step_y) = (step(b.first().row_stride())?, step(c.first().row_stride())?);
                let (rows, cols) = (stored.rows as c_int, stored.cols as c_int);
                // SAFETY: see above.
                let status = unsafe {
                    (cublas.sgemv)(
                        *handle,
                        operation,
                        rows,
                        cols,
                        &alpha,
                        matrix,
                        stored.leading_dimension,
                        x,
                        step_x,
                        &beta,
                        result,
                        step_y,
                    )
                };
                ("cublasSgemv", status)
            }
            (Routine::Gemm | Routine::Lt, _) if count == 1 => {
                // SAFETY: see above.
                let status = unsafe {
                    (cublas.sgemm)(
                        *handle, op_first, op_second, m, n, k, &alpha, first, ld_first, second, ld_second, &beta,
                        result, ld_result,
                    )
                };
                ("cublasSgemm", status)
            }
            (Routine::Gemm | Routine::Lt, _) => {
                // SAFETY: see above.
                let status = unsafe {
                    (cublas.sgemm_strided_batched)(
                        *handle,
                        op_first,
                        op_second,
                        m,
                        n,
                        k,
                        &alpha,
                        first,
                        ld_first,
                        next_first,
                        second,
                        ld_second,
                        next_second,
                        &beta,
                        result,
                        ld_result,
                        next_result,
                        count,
                    )
                };
                ("cublasSgemmStridedBatched", status)
            }
        };
        Ok(call(cublas, function, status)?)
    }
}

/// The stream of the device, whose context is made current on this thread; null for the CPU executor.
fn stream_of(device: &Device) -> Result<*mut c_void, Error> {
    device.make_current()?;
    Ok(device.raw_stream().unwrap_or(ptr::null_mut()))
}

/// Opens a library, for good: cuBLAS has threads of its own, which may run until the process ends.
fn open(path: &Path) -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: opening a library runs its initializers. Those of cuBLAS may run on any thread; whoever names another library
    // in the environment, or puts one where cuBLAS is looked for, answers for it, as with LD_LIBRARY_PATH.
    let library = unsafe { Library::new(path) };
    library.map(ManuallyDrop::new).map_err(|error| {
        // The loader's own words, such as "cannot open shared object file", are the source of the error.
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    })
}

/// Where the dynamic loader has found a library that was asked for by name alone, as the kernel lists what is mapped.
fn loaded_path(asked: &Path) -> PathBuf {
    if asked.is_absolute() {
        return asked.to_owned();
    }
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let file = asked.to_string_lossy();
    let stem = file.split(".so").next().unwrap_or_default();
    (mapped.lines())
        .filter_map(|line| line.find('/').map(|start| PathBuf::from(&line[start..])))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{stem}.so"))))
        .unwrap_or_else(|| asked.to_owned())
}

/// `130100` is 13.1.0; before CUDA 12, one digit less stood for the major version, which is not a version that is opened.
fn version_text(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// Turns a status into an error.
pub(super) fn call(cublas: &Cublas, function: &'static str, status: Status) -> Result<(), BaselineError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: a function without preconditions, which returns a constant text that ends with a NUL, or null.
    let name = unsafe {
        let text = (cublas.status_string)(status);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Err(BaselineError::Call { function, status, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_as_people_write_them() {
        assert_eq!(version_text(130_100), "13.1.0");
        assert_eq!(version_text(120_805), "12.8.5");
    }
}
