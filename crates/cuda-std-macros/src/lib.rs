//! The attribute and the derives of `cuda_std`. Their documentation for users is where they are re-exported; what they
//! expand to is described in the modules `kernel`, `param` and `element`.
//!
//! All refer to `::cuda_std`: a crate that uses them imports the library under that name.

mod arguments;
mod constant;
mod element;
mod entry;
mod entry_points;
mod instances;
mod kernel;
mod param;
mod shared;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a function a kernel: a PTX entry point on the GPU, a launchable value on the CPU.
///
/// ```standalone_crate
/// use cuda_std::Grid as _;
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// `y = a·x + y`, one thread for each element.
/// #[kernel(block = 256, grid = y.len().div_ceil(256).max(1) as u32, requires(x.len() == y.len(), a.is_finite()))]
/// pub fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
///     if let Some(y) = y.own()
///         && let Some(x) = x.get(y.index())
///     {
///         y.set(math::fma(a, x, y.get()));
///     }
/// }
///
/// let (executor, x, mut y) = (Executor::new(Checks::Full), [1.0; 300], [0.5; 300]);
/// let arguments = axpy { a: 2.0, x: GlobalSlice::new(&x), y: DisjointSlice::new(&mut y) };
/// let grid = arguments.grid();
/// assert_eq!((axpy::BLOCK, grid), (Dim3::from(256), Dim3::from(2)));
/// // SAFETY: the views are of arrays of this program.
/// unsafe { executor.launch(arguments, grid) }.unwrap();
/// assert_eq!(y, [2.5; 300]);
///
/// let shorter = axpy { a: 2.0, x: GlobalSlice::new(&x[..299]), y: DisjointSlice::new(&mut y) };
/// // SAFETY: as above.
/// let refused = unsafe { executor.launch(shorter, grid) }.unwrap_err();
/// assert!(refused.to_string().contains("x.len() == y.len()"), "{refused}");
/// ```
///
/// | argument | meaning |
/// |---|---|
/// | `block = x`, `(x, y)` or `(x, y, z)` | the shape of every block; becomes the launch bounds (`.reqntid`) and the constant `BLOCK` |
/// | `block <= n` | each launch chooses the shape, of at most `n` threads (`.maxntid`), in the field `block: Dim3` |
/// | `min_blocks = n` | ask the assembler for registers few enough that `n` blocks fit on a multiprocessor (`.minnctapersm`) |
/// | `arch = "sm_90a"` | compile for this architecture only |
/// | `dynamic_shared = bytes` | the dynamic shared memory of a block; becomes the constant `DYNAMIC_SHARED_BYTES` |
/// | `dynamic_shared` | each launch chooses how much it is, in the field `dynamic_shared_bytes: u32` |
/// | `local_memory` | arrays may be indexed by what is not known at compile time, and so be in local memory, which the build refuses otherwise |
/// | `stack = bytes` | functions may call themselves, which the build refuses otherwise: a launch gives each thread a stack of so many bytes. Whether that is enough on a GPU nobody checks before: the executor has 64 KiB in any case, because functions take more of a stack there, and reports when those or `bytes`, whichever is more, are not enough |
/// | `grid = expression` | the grid of a launch, worked out from the parameters: a `Dim3`, or what becomes one |
/// | `any_grid` | the kernel is right on every grid, and a launch chooses it |
/// | `cooperative` | all blocks of a launch run at the same time, or the launch is refused: they may meet (`cuda_std::grid::sync`) |
/// | `cluster = x`, `(x, y)` or `(x, y, z)` | so many blocks, 8 at most, run together and reach one another's shared memory (`cuda_std::cluster`; `.reqnctapercluster`); becomes the constant `CLUSTER`; left out of modules for architectures before sm_90; grids are multiples of it |
/// | `requires(condition, …)` | what a launch checks of the arguments before it runs; the body may rely on it |
/// | `instances(name = <…>, …)` | of a generic function: the entry points, each with the types and constants that it is compiled for |
///
/// Numbers are constant expressions of type `u32`; those of a generic kernel may depend on its parameters. `grid` and `requires` see the
/// parameters of the function, and what the launch chooses.
///
/// The function takes its parameters by value, each of a type that implements `KernelParam`, with `'_` for lifetimes; it
/// is not `unsafe`, and returns nothing. Each `static` of type `Shared<…>` in its body becomes an array in shared memory.
///
/// # Generic kernels
///
/// ```text
/// /// Adds up rows of elements, by blocks of as many threads.
/// #[kernel(block = THREADS, instances(row_sums_f32 = <f32, 256, 256>, row_sums_u64 = <u64, 128, 128>))]
/// pub fn row_sums<T: Number, const THREADS: u32, const LEN: usize>(x: GlobalSlice<'_, T>, y: GlobalSliceMut<'_, T>) {
///     static ROW: Shared<[T; LEN]> = Shared::new();
///     …
/// }
///
/// device.launch(row_sums_f32 { x, y })?;
/// ```
///
/// An instance is a kernel like any other: its name is that of the entry point, and on the CPU that of the struct of its arguments. The
/// compiler checks the body once, with what the bounds promise. The name of the generic function is that of a type, which has the
/// constants: `row_sums::<f32, 256, 256>::BLOCK`. Unlike other statics of a generic function, shared arrays may depend on its parameters,
/// as far as types may: `[T; LEN]`, not `[T; 2 * LEN]`.
///
/// The name of the function is the name of the entry point, so it must be unique among the kernels of a program. On the
/// CPU it is the name of a struct with the parameters as public fields, which implements `Kernel`.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as arguments::Arguments);
    let function = parse_macro_input!(item as syn::ItemFn);
    kernel::expand(&arguments, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Places a `static` array in constant memory, of 64 KiB, which all threads read:
///
/// ```standalone_crate
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// #[constant]
/// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
///
/// #[kernel(block = 32)]
/// pub fn weights(y: DisjointSlice<'_, f32>) {
///     if let Some(y) = y.own() {
///         y.set(WEIGHTS.get(y.index()).unwrap_or(0.0));
///     }
/// }
///
/// let mut y = [9.0; 4];
/// // SAFETY: the view is of an array of this program.
/// unsafe { Executor::new(Checks::Full).launch(weights { y: DisjointSlice::new(&mut y) }, Dim3::from(1)) }.unwrap();
/// assert_eq!(y, [0.25, 0.5, 0.25, 0.0]);
/// ```
///
/// Its elements are those of global memory, its type becomes `Constant<[f32; 3]>`, and its value is a constant expression.
#[proc_macro_attribute]
pub fn constant(arguments: TokenStream, item: TokenStream) -> TokenStream {
    parse_macro_input!(arguments as syn::parse::Nothing);
    let item = parse_macro_input!(item as syn::ItemStatic);
    constant::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `KernelParam` for a `#[repr(C)]` struct all of whose fields implement it.
///
/// A view in field `data` of a parameter `a` is reported as `a.data`:
///
/// ```standalone_crate
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// #[derive(Clone, Copy, KernelParam)]
/// #[repr(C)]
/// pub struct Column<'a> {
///     data: GlobalSliceMut<'a, f32>,
///     stride: u32,
/// }
///
/// #[kernel(block = 32)]
/// pub fn clear(a: Column<'_>) {
///     let i = (thread::thread_idx_x() * a.stride) as usize;
///     // SAFETY: no other thread has this i. But is it below a.data.len()?
///     unsafe { a.data.set_unchecked(i, 0.0) }
/// }
///
/// let mut data = [1.0; 100];
/// let a = Column { data: GlobalSliceMut::new(&mut data), stride: 4 };
/// // SAFETY: the view is of an array of this program.
/// let error = unsafe { Executor::new(Checks::Full).launch(clear { a }, Dim3::from(1)) }.unwrap_err();
/// assert!(error.to_string().contains("element 100 is out of bounds of view `a.data`"), "{error}");
/// ```
#[proc_macro_derive(KernelParam)]
pub fn kernel_param(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    param::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `Element` for a `#[repr(C)]` struct all of whose fields implement it, so that global and shared memory can hold it. A
/// kernel's views of it need `KernelParam`, too, which compares the layouts of the GPU and of the CPU at each launch:
///
/// ```standalone_crate
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// #[derive(Clone, Copy, Element, KernelParam)]
/// #[repr(C)]
/// pub struct Pair {
///     key: u32,
///     value: f32,
/// }
///
/// #[kernel(block = 32)]
/// pub fn halves(pairs: DisjointSlice<'_, Pair>) {
///     if let Some(pair) = pairs.own() {
///         let Pair { key, value } = pair.get();
///         pair.set(Pair { key, value: value / 2.0 });
///     }
/// }
///
/// let mut pairs = [Pair { key: 7, value: 3.0 }; 5];
/// // SAFETY: the view is of an array of this program.
/// unsafe { Executor::new(Checks::Full).launch(halves { pairs: DisjointSlice::new(&mut pairs) }, Dim3::from(1)) }.unwrap();
/// assert_eq!((pairs[4].key, pairs[4].value), (7, 1.5));
/// ```
///
/// A field may be an array, written as one: `position: [f32; 3]`. What has padding, type parameters or lifetimes, or a field that is no
/// element and no array of elements, does not compile. The struct is loaded and stored
/// field by field, and the compiler joins neighbours of one size as far as the struct is aligned: four `f32` under `#[repr(C, align(16))]` are one
/// access of 16 bytes, as CUDA's `float4`. A vector of one struct (`get_vector_unchecked::<1>`) is one access whatever its fields are, if the
/// struct has 2, 4, 8 or 16 bytes. On the CPU the struct is `bytemuck::Pod`, as buffers need it.
#[proc_macro_derive(Element)]
pub fn element(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    element::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
