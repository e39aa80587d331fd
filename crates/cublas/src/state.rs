//! What a handle of cuBLAS, or the descriptors of cuBLASLt, say of a call. cuBLAS's own getters are asked each time, so nothing is kept twice.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use tilewright::Activation;

use crate::abi::{self, Object, Status, desc, layout};
use crate::loader::{Library, Original};
use crate::product::{Finish, Operand, Product, transposes};
use crate::why::Why;

/// A product, and where it is to run.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) product: Product,
    /// A `CUstream`.
    pub(crate) stream: *mut c_void,
    /// The caller's workspace: address and bytes.
    pub(crate) workspace: (usize, usize),
}

/// `cublasStatus_t get(handle, value *)`.
type Getter<T> = unsafe extern "C" fn(Object, *mut T) -> Status;

/// The getters of a handle.
struct Getters {
    stream: Getter<*mut c_void>,
    pointer_mode: Getter<c_int>,
    math_mode: Getter<c_int>,
    /// Since CUDA 11.5.
    sm_count_target: Option<Getter<c_int>>,
}

impl Getters {
    /// Those of the library in which a function is.
    fn beside(function: &Original) -> Option<Self> {
        let library = Library::of(function.address()?)?;
        // SAFETY: functions of these names are what `Getter` says, in every cuBLAS since CUDA 11.
        unsafe {
            Some(Self {
                stream: getter(library, c"cublasGetStream_v2")?,
                pointer_mode: getter(library, c"cublasGetPointerMode_v2")?,
                math_mode: getter(library, c"cublasGetMathMode")?,
                sm_count_target: getter(library, c"cublasGetSmCountTarget"),
            })
        }
    }
}

/// # Safety
/// A function of this name is a [`Getter`] of this type.
unsafe fn getter<T>(library: Library, name: &CStr) -> Option<Getter<T>> {
    let address = library.symbol(name);
    // SAFETY: the caller's promise, for an address that is not null.
    (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Getter<T>>(address) })
}

/// The stream of a handle on which fp32 products may be taken.
///
/// # Safety
/// The handle is cuBLAS's, or null.
pub(crate) unsafe fn stream_of(handle: Object, function: &Original) -> Result<*mut c_void, Why> {
    static GETTERS: OnceLock<Option<Getters>> = OnceLock::new();
    if handle.is_null() {
        return Err(Why::new("the handle is null"));
    }
    let Some(getters) = GETTERS.get_or_init(|| Getters::beside(function)) else {
        return Err(Why::new("cuBLAS's getters cannot be found"));
    };
    let (mut stream, mut pointer_mode, mut math_mode, mut sm_count_target) = (std::ptr::null_mut(), -1, -1, 0);
    // SAFETY: the caller's promise; each value may be written to.
    let statuses = unsafe {
        [
            (getters.stream)(handle, &mut stream),
            (getters.pointer_mode)(handle, &mut pointer_mode),
            (getters.math_mode)(handle, &mut math_mode),
            getters.sm_count_target.map_or(abi::SUCCESS, |get| get(handle, &mut sm_count_target)),
        ]
    };
    if let Some(status) = statuses.into_iter().find(|&status| status != abi::SUCCESS) {
        return Err(Why::with("the handle cannot be asked", format!("status {status}")));
    }
    if pointer_mode != abi::POINTER_MODE_HOST {
        return Err(Why::new("alpha and beta are in device memory"));
    }
    if math_mode & !abi::DISALLOW_REDUCED_PRECISION_REDUCTION != abi::DEFAULT_MATH {
        return Err(Why::with("the math mode is not the default", math_mode.to_string()));
    }
    if sm_count_target != 0 {
        return Err(Why::new("a number of multiprocessors is asked for"));
    }
    Ok(stream)
}

/// α or β.
///
/// # Safety
/// The pointer is null, or that of an fp32 number in the host's memory.
pub(crate) unsafe fn factor<T>(pointer: *const T) -> Result<f32, Why> {
    if pointer.is_null() {
        return Err(Why::new("alpha or beta is null"));
    }
    // SAFETY: the caller's promise. Nothing is known of its alignment.
    Ok(unsafe { pointer.cast::<f32>().read_unaligned() })
}

/// Refuses matrices that are not fp32.
pub(crate) fn all_fp32(types: [c_int; 3]) -> Result<(), Why> {
    if types == [abi::REAL_32F; 3] { Ok(()) } else { Err(Why::new("matrices are not all fp32")) }
}

/// Refuses what is not to be computed in fp32 by whatever algorithm is best.
pub(crate) fn plain(compute_type: c_int, algorithm: c_int) -> Result<(), Why> {
    if compute_type != abi::COMPUTE_32F {
        return Err(Why::with("the compute type is not CUBLAS_COMPUTE_32F", compute_type.to_string()));
    }
    if !abi::ALGO_DEFAULT.contains(&algorithm) {
        return Err(Why::with("an algorithm is asked for", algorithm.to_string()));
    }
    Ok(())
}

/// `cublasStatus_t get(object, attribute, value *, bytes, written *)`.
type AttributeGetter = unsafe extern "C" fn(Object, c_int, *mut c_void, usize, *mut usize) -> Status;

/// The getters of descriptors of cuBLASLt.
pub(crate) struct LtGetters {
    desc: AttributeGetter,
    layout: AttributeGetter,
}

impl LtGetters {
    /// Those of the library in which a function is.
    pub(crate) fn beside(function: &Original) -> Option<&'static Self> {
        static GETTERS: OnceLock<Option<LtGetters>> = OnceLock::new();
        let find = || {
            let library = Library::of(function.address()?)?;
            let get = |name| {
                let address = library.symbol(name);
                // SAFETY: functions of these names are what `AttributeGetter` says, in every cuBLASLt since CUDA 11.
                (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, AttributeGetter>(address) })
            };
            Some(LtGetters {
                desc: get(c"cublasLtMatmulDescGetAttribute")?,
                layout: get(c"cublasLtMatrixLayoutGetAttribute")?,
            })
        };
        GETTERS.get_or_init(find).as_ref()
    }
}

/// The value of an attribute; none if there is no such attribute in this cuBLASLt.
///
/// # Safety
/// The object is a live one of the kind that the getter is for, and the attribute is a number of type `T`.
unsafe fn attribute<T: Default>(get: AttributeGetter, object: Object, attribute: c_int) -> Option<T> {
    let (mut value, mut written) = (T::default(), 0);
    // SAFETY: the caller's promise; both may be written to.
    let status = unsafe { get(object, attribute, (&raw mut value).cast(), size_of::<T>(), &mut written) };
    (status == abi::SUCCESS && written == size_of::<T>()).then_some(value)
}

/// The arguments of `cublasLtMatmul`, but for the algorithm, the workspace and the stream.
pub(crate) struct Matmul {
    pub(crate) desc: Object,
    pub(crate) alpha: *const c_void,
    /// A, B, C and D.
    pub(crate) matrices: [(*const c_void, Object); 4],
    pub(crate) beta: *const c_void,
}

/// A matrix of cuBLASLt, and how many there are.
struct LtMatrix {
    operand: Operand,
    count: i32,
}

impl Matmul {
    /// The product, if there is nothing to compute but that, a bias and an activation.
    ///
    /// # Safety
    /// As for `cublasLtMatmul`.
    pub(crate) unsafe fn product(&self, getters: &LtGetters) -> Result<Product, Why> {
        let unreadable = || Why::new("a descriptor cannot be read");
        if self.desc.is_null() || self.matrices.iter().any(|(_, layout)| layout.is_null()) {
            return Err(unreadable());
        }
        // SAFETY: the caller's promise; all these are numbers of 32 bits, as the header says.
        let number = |name: c_int| unsafe { attribute::<c_int>(getters.desc, self.desc, name) };
        let expected = [
            (desc::COMPUTE_TYPE, abi::COMPUTE_32F, "the compute type is not CUBLAS_COMPUTE_32F"),
            (desc::SCALE_TYPE, abi::REAL_32F, "alpha and beta are not fp32"),
            (desc::POINTER_MODE, abi::POINTER_MODE_HOST, "alpha and beta are in device memory"),
            (desc::TRANSC, abi::OP_NONE, "C is transposed"),
            (desc::FILL_MODE, desc::FILL_FULL, "a triangle of the result is asked for"),
        ];
        for (name, value, reason) in expected {
            let found = number(name).ok_or_else(unreadable)?;
            if found != value {
                return Err(Why::with(reason, found.to_string()));
            }
        }
        // Not in the first cuBLASLt; then nobody can ask for it either.
        if number(desc::SM_COUNT_TARGET).unwrap_or(0) != 0 {
            return Err(Why::new("a number of multiprocessors is asked for"));
        }
        // SAFETY: the caller's promise.
        let matrix = |index: usize| unsafe { self.matrix(getters, index) };
        let transposed = |matrix: LtMatrix, name: c_int| {
            let transposes = transposes(number(name).ok_or_else(unreadable)?)?;
            let operand = matrix.operand;
            Ok::<_, Why>(LtMatrix { operand: if transposes { operand.transposed() } else { operand }, ..matrix })
        };
        let (a, b) = (transposed(matrix(0)?, desc::TRANSA)?, transposed(matrix(1)?, desc::TRANSB)?);
        let d = matrix(3)?;
        // SAFETY: the caller's promise, for α and β in the host's memory.
        let (alpha, beta) = unsafe { (factor(self.alpha)?, factor(self.beta)?) };
        if beta != 0.0 {
            let c = matrix(2)?;
            if c.operand != d.operand || c.count != d.count {
                return Err(Why::new("C is not D"));
            }
        }
        let fits = a.operand.cols == b.operand.rows
            && a.operand.rows == d.operand.rows
            && b.operand.cols == d.operand.cols
            && a.count == d.count
            && b.count == d.count;
        if !fits {
            return Err(Why::new("the extents do not fit together"));
        }
        let count = usize::try_from(d.count).map_err(|_| unreadable())?;
        // SAFETY: the caller's promise.
        let finish = unsafe { self.finish(getters, d.operand, count) }?;
        Product::new(count, alpha, a.operand, b.operand, beta, d.operand, finish)
    }

    /// What is done to the result before it is stored in D.
    ///
    /// # Safety
    /// As for `cublasLtMatmul`.
    unsafe fn finish(&self, getters: &LtGetters, d: Operand, count: usize) -> Result<Finish, Why> {
        let unreadable = || Why::new("a descriptor cannot be read");
        // SAFETY: the caller's promise; the attribute is a number of 32 bits.
        let epilogue = unsafe { attribute::<c_int>(getters.desc, self.desc, desc::EPILOGUE) }.ok_or_else(unreadable)?;
        let activation = match epilogue & !desc::EPILOGUE_BIAS {
            // A bias alone, too.
            0 | desc::EPILOGUE_DEFAULT => None,
            desc::EPILOGUE_RELU => Some(Activation::Relu),
            // Measured: it is the approximation by the hyperbolic tangent.
            desc::EPILOGUE_GELU => Some(Activation::GeluTanh),
            _ => {
                return Err(Why::with(
                    "another epilogue than a bias, relu and gelu is asked for",
                    epilogue.to_string(),
                ));
            }
        };
        if epilogue & desc::EPILOGUE_BIAS == 0 {
            return Ok(Finish { bias: None, activation });
        }
        if d.strides[0] != 1 {
            return Err(Why::new("a bias is asked for, and D is not by columns"));
        }
        // SAFETY: as above; the types are those of the header. The type of a bias can be told since CUDA 11.8, its stride since 11.4.
        let (pointer, batch_stride, kind) = unsafe {
            (
                attribute::<usize>(getters.desc, self.desc, desc::BIAS_POINTER).ok_or_else(unreadable)?,
                attribute::<i64>(getters.desc, self.desc, desc::BIAS_BATCH_STRIDE).unwrap_or(0),
                attribute::<c_int>(getters.desc, self.desc, desc::BIAS_DATA_TYPE).unwrap_or(desc::BIAS_AS_D),
            )
        };
        if kind != desc::BIAS_AS_D && kind != abi::REAL_32F {
            return Err(Why::with("the bias is not fp32", kind.to_string()));
        }
        let pointer = std::ptr::without_provenance::<f32>(pointer);
        let columns = crate::product::Columns { pointer, leading: d.rows as i64, batch_stride };
        Ok(Finish { bias: Some(Operand::of_columns(&columns, d.rows, 1, count)?), activation })
    }

    /// One of the matrices.
    ///
    /// # Safety
    /// As for `cublasLtMatmul`.
    unsafe fn matrix(&self, getters: &LtGetters, index: usize) -> Result<LtMatrix, Why> {
        let (pointer, object) = self.matrices[index];
        let unreadable = || Why::new("a descriptor cannot be read");
        // SAFETY: the caller's promise; the types are those of the header.
        let (kind, order, rows, cols, leading, count, batch_stride, plane, batch_mode) = unsafe {
            (
                attribute::<c_int>(getters.layout, object, layout::TYPE).ok_or_else(unreadable)?,
                attribute::<c_int>(getters.layout, object, layout::ORDER).ok_or_else(unreadable)?,
                attribute::<u64>(getters.layout, object, layout::ROWS).ok_or_else(unreadable)?,
                attribute::<u64>(getters.layout, object, layout::COLS).ok_or_else(unreadable)?,
                attribute::<i64>(getters.layout, object, layout::LD).ok_or_else(unreadable)?,
                attribute::<i32>(getters.layout, object, layout::BATCH_COUNT).ok_or_else(unreadable)?,
                attribute::<i64>(getters.layout, object, layout::STRIDED_BATCH_OFFSET).ok_or_else(unreadable)?,
                attribute::<i64>(getters.layout, object, layout::PLANE_OFFSET).unwrap_or(0),
                // Since CUDA 13.
                attribute::<c_int>(getters.layout, object, layout::BATCH_MODE).unwrap_or(layout::BATCH_STRIDED),
            )
        };
        if kind != abi::REAL_32F {
            return Err(Why::new("matrices are not all fp32"));
        }
        if batch_mode != layout::BATCH_STRIDED {
            return Err(Why::new("the matrices are given by pointers in device memory"));
        }
        if plane != 0 || !matches!(order, abi::ORDER_COLUMN | abi::ORDER_ROW) {
            return Err(Why::with("a matrix is neither by columns nor by rows", order.to_string()));
        }
        let by_rows = order == abi::ORDER_ROW;
        let extent =
            |extent: u64| usize::try_from(extent).ok().filter(|extent| (1..=i32::MAX as usize).contains(extent));
        let (Some(rows), Some(cols), 1..) = (extent(rows), extent(cols), count) else {
            return Err(Why::new("there is nothing to compute, or more than can be counted"));
        };
        let (rows, cols) = if by_rows { (cols, rows) } else { (rows, cols) };
        let columns = crate::product::Columns { pointer, leading, batch_stride };
        let operand = Operand::of_columns(&columns, rows, cols, count as usize)?;
        Ok(LtMatrix { operand: if by_rows { operand.transposed() } else { operand }, count })
    }
}
