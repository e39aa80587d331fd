//! The attribute and the derives of `cuda_std`. Their documentation for users is where they are re-exported; what they
//! expand to is described in the modules `kernel`, `param` and `element`.
//!
//! All refer to `::cuda_std`: a crate that uses them imports the library under that name.

mod element;
mod entry_points;
mod kernel;
mod param;

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
/// | `block = x`, `(x, y)` or `(x, y, z)` | the shape of every block, in integer literals; becomes the launch bounds (`.reqntid`) and the constant `BLOCK` |
/// | `min_blocks = n` | ask the assembler for registers few enough that `n` blocks fit on a multiprocessor (`.minnctapersm`) |
/// | `arch = "sm_90a"` | compile for this architecture only |
/// | `dynamic_shared = bytes` | the dynamic shared memory of a block, a constant expression; becomes the constant `DYNAMIC_SHARED_BYTES` |
/// | `grid = expression` | the grid of a launch, worked out from the parameters: a `Dim3`, or what becomes one |
/// | `any_grid` | the kernel is right on every grid, and a launch chooses it |
/// | `cooperative` | all blocks of a launch run at the same time, or the launch is refused: they may meet (`cuda_std::grid::sync`) |
/// | `requires(condition, …)` | what a launch checks of the arguments before it runs; the body may rely on it |
///
/// The function takes its parameters by value, each of a type that implements `KernelParam`, with `'_` for lifetimes; it
/// is not generic, not `unsafe`, and returns nothing. Each `static` of type `Shared<…>` in its body becomes an array in
/// shared memory.
///
/// The name of the function is the name of the entry point, so it must be unique among the kernels of a program. On the
/// CPU it is the name of a struct with the parameters as public fields, which implements `Kernel`.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as kernel::Arguments);
    let function = parse_macro_input!(item as syn::ItemFn);
    kernel::expand(arguments, function).unwrap_or_else(|error| error.to_compile_error()).into()
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
