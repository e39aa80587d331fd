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
/// ```text
/// #[kernel(block = (32, 8))]
/// #[kernel(block = 256, min_blocks = 2, arch = "sm_90a", requires(x.len() == y.len(), n > 0))]
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
/// | `stack = bytes` | functions may call themselves: a launch gives each thread a stack of so many bytes |
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
/// ```text
/// #[constant]
/// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
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
/// A view in field `data` of a parameter `a` is reported as `a.data`.
#[proc_macro_derive(KernelParam)]
pub fn kernel_param(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    param::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `Element` for a `#[repr(C)]` struct all of whose fields implement it, so that global and shared memory can hold it. A
/// kernel's views of it need `KernelParam`, too, which compares the layouts of the GPU and of the CPU at each launch:
///
/// ```text
/// #[derive(Clone, Copy, Element, KernelParam)]
/// #[repr(C)]
/// pub struct Pair { key: u32, value: f32 }
/// ```
///
/// What has padding, type parameters or lifetimes, or a field that is no element, does not compile. The struct is loaded and stored
/// field by field, and the compiler joins fields where it can; a vector of one struct (`get_vector_unchecked::<1>`) is one access, if the
/// struct has 2, 4, 8 or 16 bytes. On the CPU the struct is `bytemuck::Pod`, as buffers need it.
#[proc_macro_derive(Element)]
pub fn element(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    element::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
