//! Torch's own functions, looked up in its libraries when the switch is first used, so that one wheel goes with any torch that has them.
//!
//! ```text
//!  libtorch_cpu.so   aoti_torch_…              torch's C interface: reads and makes tensors, copies, registers libraries of kernels
//!                    c10::…, torch::Library    what that interface has no function for, by its mangled name: the kernel that an
//!                                              operator has, and a kernel that takes arguments as C++ passes them
//!                    at::Context               whether TF32 was asked for
//!  libtorch_cuda.so  aoti_torch_get_current_cuda_stream
//! ```
//!
//! Torch's C interface has no form for arguments of the type `Scalar`, which `addmm` has, so kernels are registered as torch's own are.
//! The few layouts that this takes are those of `layouts`.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::layouts::{
    CppFunction, Handle, KernelFunction, NoSignature, OperatorHandle, Scalar, ScalarValue, TensorPointer, Value,
};

/// Everything that is looked up. All of it stays valid: the libraries are never closed.
pub(super) struct Symbols {
    pub(super) get_dim: unsafe extern "C" fn(Handle, *mut i64) -> i32,
    pub(super) get_sizes: unsafe extern "C" fn(Handle, *mut *const i64) -> i32,
    pub(super) get_strides: unsafe extern "C" fn(Handle, *mut *const i64) -> i32,
    pub(super) get_dtype: unsafe extern "C" fn(Handle, *mut i32) -> i32,
    pub(super) get_device_type: unsafe extern "C" fn(Handle, *mut i32) -> i32,
    pub(super) get_device_index: unsafe extern "C" fn(Handle, *mut i32) -> i32,
    pub(super) get_data: unsafe extern "C" fn(Handle, *mut *mut c_void) -> i32,
    pub(super) get_const_data: unsafe extern "C" fn(Handle, *mut *const c_void) -> i32,
    pub(super) copy: unsafe extern "C" fn(Handle, Handle, i32) -> i32,
    empty_strided:
        unsafe extern "C-unwind" fn(i64, *const i64, *const i64, i32, i32, i32, *mut *mut TensorPointer) -> i32,
    new_undefined: unsafe extern "C" fn(*mut *mut TensorPointer) -> i32,
    delete: unsafe extern "C" fn(*mut TensorPointer) -> i32,
    pub(super) library_init:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut *mut c_void) -> i32,
    pub(super) library_delete: unsafe extern "C" fn(*mut c_void) -> i32,
    /// `torch::Library::_impl(const char*, CppFunction&&, _RegisterOrVerify) &`.
    pub(super) library_impl:
        unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *mut CppFunction, i32) -> *mut c_void,
    /// `torch::CppFunction::CppFunction(KernelFunction, std::optional<CppSignature>, std::unique_ptr<FunctionSchema>)`: what is not
    /// trivial to copy is passed by its address.
    pub(super) cpp_function_new:
        unsafe extern "C-unwind" fn(*mut CppFunction, *mut KernelFunction, NoSignature, *mut *mut c_void),
    pub(super) cpp_function_delete: unsafe extern "C-unwind" fn(*mut CppFunction),
    dispatcher: unsafe extern "C-unwind" fn() -> *mut c_void,
    /// `OperatorHandle c10::Dispatcher::findSchemaOrThrow(const char*, const char*)`.
    find_operator: unsafe extern "C-unwind" fn(
        *mut OperatorHandle,
        *mut c_void,
        *const c_char,
        *const c_char,
    ) -> *mut OperatorHandle,
    has_kernel: unsafe extern "C-unwind" fn(*const c_void, u16) -> bool,
    kernel: unsafe extern "C-unwind" fn(*const c_void, u16) -> *const KernelFunction,
    context: unsafe extern "C-unwind" fn() -> *const c_void,
    fp32_precision: unsafe extern "C-unwind" fn(*const c_void, i32, i32) -> i32,
    /// Not there in a torch without names of extents, such as 2.15.
    has_names: Option<unsafe extern "C-unwind" fn(TensorPointer) -> bool>,
    item: unsafe extern "C-unwind" fn(*mut Scalar, Handle) -> *mut Scalar,
    /// `TypePtr c10::IValue::TagType<c10::Type>::get(const IValue&)`: a type's address, and nothing behind it for types of which there is one.
    type_of: unsafe extern "C-unwind" fn(*mut [usize; 8], *const Value) -> *mut [usize; 8],
    /// `FloatTypePtr c10::FloatType::get()`, and the same of integers: an address. They are called with memory, too, which they would
    /// use if they gave more than that.
    float_type: unsafe extern "C-unwind" fn(*mut [usize; 8]) -> *const c_void,
    integer_type: unsafe extern "C-unwind" fn(*mut [usize; 8]) -> *const c_void,
    pub(super) get_warning_handler: unsafe extern "C-unwind" fn() -> *mut c_void,
    pub(super) set_warning_handler: unsafe extern "C-unwind" fn(*mut c_void),
    /// Not there in a torch without CUDA.
    current_stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> i32>,
    pub(super) float32: i32,
    float64: i32,
    pub(super) cpu: i32,
    pub(super) cuda: i32,
    /// What an undefined tensor points to.
    undefined: TensorPointer,
}

/// Torch's error code for success.
pub(super) const SUCCESS: i32 = 0;

/// `Float32Backend::CUDA`, `Float32Op::MATMUL`, and the precisions that mean fp32: `NONE` and `IEEE`.
const CUDA_BACKEND: i32 = 1;
const MATMUL: i32 = 3;
const FULL: [i32; 2] = [0, 1];

static SYMBOLS: OnceLock<&'static Symbols> = OnceLock::new();

impl Symbols {
    /// The functions of the torch whose libraries are in this directory.
    ///
    /// # Errors
    /// What is missing, or not as it is stated here, in words.
    pub(super) fn open(directory: &Path) -> Result<&'static Self, String> {
        if let Some(symbols) = SYMBOLS.get() {
            return Ok(symbols);
        }
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("kernels can be put in the place of torch's on Linux on x86-64 alone".to_owned());
        }
        let symbols: &'static Self = Box::leak(Box::new(Self::find(directory)?));
        symbols.check()?;
        Ok(SYMBOLS.get_or_init(|| symbols))
    }

    /// Those that [`Symbols::open`] has found.
    pub(super) fn get() -> Option<&'static Self> {
        SYMBOLS.get().copied()
    }

    fn find(directory: &Path) -> Result<Self, String> {
        let library = |name: &str| {
            let path = directory.join(name);
            // SAFETY: the process has loaded torch from there, so no code runs now.
            let opened = unsafe { Library::new(&path) };
            opened.map_err(|error| format!("torch's library {} cannot be opened: {error}", path.display()))
        };
        let torch = library("libtorch_cpu.so")?;
        let cuda = if directory.join("libtorch_cuda.so").exists() { Some(library("libtorch_cuda.so")?) } else { None };
        let number = |name: &CStr| -> Result<i32, String> {
            // SAFETY: torch's header declares these as functions without arguments that return an `int32_t`.
            Ok(unsafe { symbol::<unsafe extern "C" fn() -> i32>(&torch, name)?() })
        };
        // SAFETY: the types are those of the declarations in torch's headers `aoti_torch/c/shim.h`, `stable/c/shim.h`, `torch/library.h`,
        // `ATen/Context.h` and `ATen/core/dispatch/*.h`, with references as pointers, results in memory as the first argument, and
        // `enum class` as the integer that it is.
        let mut symbols = unsafe {
            Self {
                get_dim: symbol(&torch, c"aoti_torch_get_dim")?,
                get_sizes: symbol(&torch, c"aoti_torch_get_sizes")?,
                get_strides: symbol(&torch, c"aoti_torch_get_strides")?,
                get_dtype: symbol(&torch, c"aoti_torch_get_dtype")?,
                get_device_type: symbol(&torch, c"aoti_torch_get_device_type")?,
                get_device_index: symbol(&torch, c"aoti_torch_get_device_index")?,
                get_data: symbol(&torch, c"aoti_torch_get_data_ptr")?,
                get_const_data: symbol(&torch, c"torch_get_const_data_ptr")?,
                copy: symbol(&torch, c"aoti_torch_copy_")?,
                empty_strided: symbol(&torch, c"aoti_torch_empty_strided")?,
                new_undefined: symbol(&torch, c"aoti_torch_new_uninitialized_tensor")?,
                delete: symbol(&torch, c"aoti_torch_delete_tensor_object")?,
                library_init: symbol(&torch, c"aoti_torch_library_init_impl")?,
                library_delete: symbol(&torch, c"aoti_torch_delete_library_object")?,
                library_impl: symbol(&torch, c"_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE")?,
                cpp_function_new: symbol(
                    &torch,
                    c"_ZN5torch11CppFunctionC1EN3c1014KernelFunctionESt8optionalINS1_4impl12CppSignatureEESt10unique_ptrINS1_14FunctionSchemaESt14default_deleteIS8_EE",
                )?,
                cpp_function_delete: symbol(&torch, c"_ZN5torch11CppFunctionD1Ev")?,
                dispatcher: symbol(&torch, c"_ZN3c1010Dispatcher13realSingletonEv")?,
                find_operator: symbol(&torch, c"_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_")?,
                has_kernel: symbol(
                    &torch,
                    c"_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE",
                )?,
                kernel: symbol(&torch, c"_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE")?,
                context: symbol(&torch, c"_ZN2at13globalContextEv")?,
                fp32_precision: symbol(
                    &torch,
                    c"_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE",
                )?,
                has_names: symbol(&torch, c"_ZN2at4impl9has_namesEPKN3c1010TensorImplE").ok(),
                item: symbol(&torch, c"_ZN2at4_ops4item4callERKNS_6TensorE")?,
                type_of: symbol(&torch, c"_ZN3c106IValue7TagTypeINS_4TypeEE3getERKS0_")?,
                float_type: symbol(&torch, c"_ZN3c109FloatType3getEv")?,
                integer_type: symbol(&torch, c"_ZN3c107IntType3getEv")?,
                // Of libc10.so, which is among what libtorch_cpu.so needs.
                get_warning_handler: symbol(&torch, c"_ZN3c1012WarningUtils19get_warning_handlerEv")?,
                set_warning_handler: symbol(
                    &torch,
                    c"_ZN3c1012WarningUtils19set_warning_handlerEPNS_14WarningHandlerE",
                )?,
                current_stream: match &cuda {
                    Some(cuda) => Some(symbol(cuda, c"aoti_torch_get_current_cuda_stream")?),
                    None => None,
                },
                float32: number(c"aoti_torch_dtype_float32")?,
                float64: number(c"aoti_torch_dtype_float64")?,
                cpu: number(c"aoti_torch_device_type_cpu")?,
                cuda: number(c"aoti_torch_device_type_cuda")?,
                undefined: TensorPointer::from_bits(0),
            }
        };
        let mut undefined = ptr::null_mut();
        // SAFETY: the function makes a tensor, whose pointer is read before the tensor is deleted; what it points to is static.
        unsafe {
            if (symbols.new_undefined)(&mut undefined) != SUCCESS {
                return Err("torch cannot make an undefined tensor".to_owned());
            }
            symbols.undefined = *undefined;
            (symbols.delete)(undefined);
        }
        // They stay open as long as the process runs, as they do for torch.
        std::mem::forget((torch, cuda));
        Ok(symbols)
    }

    /// Compares the layouts of numbers with those that torch makes and reads.
    fn check(&'static self) -> Result<(), String> {
        let refused = "numbers are arranged otherwise in memory in this torch than in 2.11";
        let tensor = self.empty(&[], &[], self.float64, self.cpu, 0).ok_or("torch cannot allocate a number")?;
        let mut address = ptr::null_mut();
        let mut scalar = Scalar { tag: -1, value: ScalarValue([0; 2]) };
        // SAFETY: the tensor is of one element of fp64 in this process's memory, and the scalar has room for one of torch's.
        unsafe {
            if (self.get_data)(tensor.handle(), &mut address) != SUCCESS {
                return Err("torch does not say where a tensor is".to_owned());
            }
            address.cast::<f64>().write(-2.75);
            (self.item)(&mut scalar, tensor.handle());
        }
        if scalar.number() != Some(-2.75) {
            return Err(refused.to_owned());
        }
        for (tag, expected) in [(Value::DOUBLE, self.float_type), (Value::INTEGER, self.integer_type)] {
            let value = Value { content: 1, tag };
            let (mut found, mut memory) = ([0; 8], [0; 8]);
            // SAFETY: the value is a number, of which torch reads the tag alone, and there is room for what both functions give.
            let expected = unsafe {
                (self.type_of)(&mut found, &value);
                expected(&mut memory)
            };
            if found[0] != expected.addr() || found[1] != 0 {
                return Err(refused.to_owned());
            }
        }
        Ok(())
    }

    /// A new tensor in memory that torch allocates; none if it cannot.
    pub(super) fn empty(
        &'static self,
        sizes: &[i64],
        strides: &[i64],
        dtype: i32,
        device: i32,
        index: i32,
    ) -> Option<Owned> {
        let mut made = ptr::null_mut();
        let (rank, sizes, strides) = (sizes.len() as i64, sizes.as_ptr(), strides.as_ptr());
        // SAFETY: as many sizes and strides as are said; the function makes a tensor on the heap, and reports errors by its result.
        // What that holds is moved out of it, and an undefined tensor left behind, which is deleted.
        unsafe {
            if (self.empty_strided)(rank, sizes, strides, dtype, device, index, &mut made) != SUCCESS {
                return None;
            }
            let pointer = std::mem::replace(&mut *made, self.undefined);
            (self.delete)(made);
            Some(Owned { symbols: self, pointer })
        }
    }

    /// Gives up a counted pointer.
    ///
    /// # Safety
    /// It is one, and is not used again.
    pub(super) unsafe fn release(&self, pointer: TensorPointer) {
        let mut made = ptr::null_mut();
        // SAFETY: the new tensor is undefined, so nothing is lost when it becomes the one to be given up.
        unsafe {
            if (self.new_undefined)(&mut made) == SUCCESS {
                *made = pointer;
                (self.delete)(made);
            }
        }
    }

    /// Whether products of fp32 on GPUs are to be as precise as fp32: nobody has asked for TF32.
    pub(super) fn wants_full_precision(&self) -> bool {
        // SAFETY: the context is static.
        unsafe { FULL.contains(&(self.fp32_precision)((self.context)(), CUDA_BACKEND, MATMUL)) }
    }

    /// Whether the extents of a tensor have names.
    ///
    /// # Safety
    /// Somebody holds the tensor.
    pub(super) unsafe fn has_names(&self, tensor: TensorPointer) -> bool {
        // SAFETY: the caller's promise.
        self.has_names.is_some_and(|has_names| unsafe { has_names(tensor) })
    }

    /// Whether this torch was built for CUDA.
    pub(super) fn has_cuda(&self) -> bool {
        self.current_stream.is_some()
    }

    /// Torch's current stream of a GPU, as a number.
    pub(super) fn current_stream(&self, ordinal: i32) -> Option<usize> {
        let mut stream = ptr::null_mut();
        // SAFETY: the stream may be written to.
        let found = unsafe { self.current_stream?(ordinal, &mut stream) };
        (found == SUCCESS).then(|| stream.addr())
    }

    /// The entry of an operator of torch's own.
    pub(super) fn entry(&self, name: &CStr, overload: &CStr) -> *const c_void {
        let mut handle = OperatorHandle([ptr::null(); 8]);
        // SAFETY: the handle has room for one, which is two pointers; torch has the operator, so nothing is thrown.
        unsafe { (self.find_operator)(&mut handle, (self.dispatcher)(), name.as_ptr(), overload.as_ptr()) };
        handle.0[0]
    }

    /// The kernel that an operator has for a key, if there is one.
    ///
    /// # Safety
    /// The entry is an operator's.
    pub(super) unsafe fn kernel(&self, entry: *const c_void, key: u16) -> Option<KernelFunction> {
        // SAFETY: the caller's promise; where there is a kernel, it is of at least the first words that are read.
        unsafe {
            if !(self.has_kernel)(entry, key) {
                return None;
            }
            let kernel = (self.kernel)(entry, key).cast::<[*mut c_void; 4]>().read();
            let [functor, boxed, unboxed, symbolic] = kernel;
            Some(KernelFunction { functor, boxed, unboxed, symbolic, rest: [0; 8] })
        }
    }
}

/// A tensor that is given up when this is dropped.
pub(super) struct Owned {
    pub(super) symbols: &'static Symbols,
    pointer: TensorPointer,
}

impl Owned {
    pub(super) fn handle(&self) -> Handle {
        &raw const self.pointer
    }

    /// The counted pointer, which is the caller's now.
    pub(super) fn into_pointer(self) -> TensorPointer {
        let pointer = self.pointer;
        std::mem::forget(self);
        pointer
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this owns the pointer.
        unsafe { self.symbols.release(self.pointer) };
    }
}

/// What a library calls by this name.
///
/// # Safety
/// It is of this type.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, String> {
    // SAFETY: the caller's promise.
    match unsafe { library.get::<T>(name.to_bytes_with_nul()) } {
        Ok(found) => Ok(*found),
        Err(_) => Err(format!("this torch has no function {}", name.to_string_lossy())),
    }
}

// SAFETY: functions and numbers, and a pointer to what is static and never written to.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}
