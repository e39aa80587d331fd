//! What can be passed to a kernel.

/// A type that a kernel takes by value.
///
/// Implemented for numbers and views; derived for structs of such (`#[derive(KernelParam)]` on a `#[repr(C)]` struct).
///
/// # Safety
/// The type has the same size, alignment (at most 16) and meaning of its bytes on the GPU and on the CPU, and
/// [`KernelParam::visit_views`] reports every view in it; there is none if [`KernelParam::HAS_VIEWS`] says so.
pub unsafe trait KernelParam: Copy + Send + Sync {
    /// Whether the GPU receives it as the 128 bytes of a tensor map. `#[kernel]` asks the type, so that an alias of
    /// [`TensorMap`](crate::TensorMap) is one, too.
    const IS_TENSOR_MAP: bool = false;

    /// Whether there can be a view in it. Where there is none, a launch does not ask.
    #[cfg(not(target_arch = "nvptx64"))]
    const HAS_VIEWS: bool = true;

    /// Calls `visit` for every view of memory in this parameter. `name` is the parameter's own; a derived struct appends
    /// its fields' names to it (`gemm.a.data`).
    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: &str, visit: &mut dyn FnMut(View<'_>));
}

/// One view of memory among the arguments of a launch.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The path of the view among the kernel's parameters, such as `gemm.a.data`.
    pub name: &'a str,
    /// The address of its first byte, on the device that the launch is meant for.
    pub address: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// What the kernel may do to it.
    pub access: ViewAccess,
}

/// What a kernel may do to a view.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAccess {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
    /// Stores to memory that one of the views before it in the launch, which is [`ViewAccess::ReadWrite`], is of, too.
    StoreWithin,
}

macro_rules! number {
    ($($number:ty),*) => { $(
        // SAFETY: a primitive number: the same on both sides, and no view.
        unsafe impl KernelParam for $number {
            #[cfg(not(target_arch = "nvptx64"))]
            const HAS_VIEWS: bool = false;

            #[cfg(not(target_arch = "nvptx64"))]
            fn visit_views(&self, _name: &str, _visit: &mut dyn FnMut(View<'_>)) {}
        }
    )* };
}

number!(f32, f64, u32, i32, u64, i64);
