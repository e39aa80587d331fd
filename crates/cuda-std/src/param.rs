//! What can be passed to a kernel.

/// A type that a kernel takes by value.
///
/// Implemented for numbers, views and arrays of such; derived for structs of them (`#[derive(KernelParam)]` on a `#[repr(C)]` struct).
///
/// # Safety
/// The type has the same size, alignment (at most 16) and meaning of its bytes on the GPU and on the CPU, for which
/// [`KernelParam::LAYOUT`] stands; and [`KernelParam::visit_views`] reports every view in it; there is none if
/// [`KernelParam::HAS_VIEWS`] says so.
#[diagnostic::on_unimplemented(
    message = "a kernel takes no `{Self}`",
    note = "it takes numbers (u32 for bool, u64 for usize), arrays of them, views of memory (`GlobalSlice`, `DisjointSlice`, `GlobalSliceMut`, \
            `GlobalAtomics`), tensor maps, and structs of such: `#[derive(Clone, Copy, KernelParam)] #[repr(C)]`"
)]
pub unsafe trait KernelParam: Copy + Send + Sync {
    /// Stands for the layout: types that are laid out differently have different ones. What was compiled for the GPU and what was
    /// compiled for the CPU are of one source, but not always the same, because of a `#[cfg]` for example. Where these numbers
    /// differ, they do not fit. See [`Layout`].
    const LAYOUT: u64;

    /// Whether the GPU receives it as the 128 bytes of a tensor map. `#[kernel]` asks the type, so that an alias of
    /// [`TensorMap`](crate::TensorMap) is one, too.
    const IS_TENSOR_MAP: bool = false;

    /// Whether there can be a view in it. Where there is none, a launch does not ask.
    #[cfg(not(target_arch = "nvptx64"))]
    const HAS_VIEWS: bool = true;

    /// Calls `visit` for every view of memory in this parameter. `name` is the parameter's own; a derived struct appends
    /// its fields' names to it (`gemm.a.data`).
    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: ViewName<'_>, visit: &mut dyn FnMut(View<'_>));
}

/// A fingerprint of a parameter's layout: of its type's name, and, for a struct, of each field's name, offset, size and layout, and of
/// its own size and alignment. What stands for a view or a number is its kind alone, which is the same on the GPU and on the CPU.
///
/// `#[derive(KernelParam)]` makes it. By hand:
///
/// ```standalone_crate
/// # extern crate tilewright_cuda_std as cuda_std;
/// use cuda_std::{KernelParam, Layout};
///
/// #[repr(C)]
/// struct Scaled { factor: f32, count: u64 }
///
/// let layout = Layout::new("Scaled")
///     .field::<f32>("factor", core::mem::offset_of!(Scaled, factor))
///     .field::<u64>("count", core::mem::offset_of!(Scaled, count))
///     .sized::<Scaled>()
///     .fingerprint();
/// assert_ne!(layout, f32::LAYOUT);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout(u64);

impl Layout {
    /// That of a type, or of a kind of types, of this name, without anything else.
    pub const fn new(name: &str) -> Self {
        // FNV-1a: good enough for what is not made to deceive, and simple enough for a constant.
        Self(0xCBF2_9CE4_8422_2325).text(name)
    }

    /// With a field of type `T` at an offset.
    pub const fn field<T: KernelParam>(self, name: &str, offset: usize) -> Self {
        self.text(name).number(offset as u64).number(size_of::<T>() as u64).number(T::LAYOUT)
    }

    /// With elements of type `T`, which are not in it but in the memory that it is a view of.
    pub const fn elements<T: KernelParam>(self) -> Self {
        self.number(T::LAYOUT)
    }

    /// With another layout, of something that belongs to the type.
    pub(crate) const fn with(self, other: Self) -> Self {
        self.number(other.0)
    }

    /// With the size and the alignment of the type itself.
    pub const fn sized<T>(self) -> Self {
        self.number(size_of::<T>() as u64).number(align_of::<T>() as u64)
    }

    /// What [`KernelParam::LAYOUT`] is.
    pub const fn fingerprint(self) -> u64 {
        self.0
    }

    /// Its length comes first, so that no two lists of texts are the same bytes.
    const fn text(self, text: &str) -> Self {
        let (mut with, bytes, mut i) = (self.number(text.len() as u64), text.as_bytes(), 0);
        while i < bytes.len() {
            with = with.byte(bytes[i]);
            i += 1;
        }
        with
    }

    const fn number(self, number: u64) -> Self {
        let (mut with, bytes, mut i) = (self, number.to_le_bytes(), 0);
        while i < bytes.len() {
            with = with.byte(bytes[i]);
            i += 1;
        }
        with
    }

    const fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3))
    }
}

/// One view of memory among the arguments of a launch.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The path of the view among the kernel's parameters, such as `gemm.a.data`.
    pub name: ViewName<'a>,
    /// The address of its first byte, on the device that the launch is meant for.
    pub address: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The size of one of its elements, in bytes.
    pub element_bytes: usize,
    /// What the kernel may do to it.
    pub access: ViewAccess,
}

/// The path of a view among a kernel's parameters, such as `gemm.a.data`. Every launch visits all views, and only an error shows
/// their names, so none is put together before it is shown.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub struct ViewName<'a> {
    within: Option<&'a ViewName<'a>>,
    part: &'a str,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> ViewName<'a> {
    /// That of a parameter.
    pub const fn of(parameter: &'a str) -> Self {
        Self { within: None, part: parameter }
    }

    /// That of a field of what has this name.
    pub const fn field(&'a self, field: &'a str) -> Self {
        Self { within: Some(self), part: field }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl core::fmt::Display for ViewName<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(within) = self.within {
            write!(f, "{within}.")?;
        }
        f.write_str(self.part)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl core::fmt::Debug for ViewName<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What a kernel may do to a view.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAccess {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
    /// Loads and stores that are atomic, and by which blocks may wait for one another.
    Atomic,
    /// Stores to memory that one of the views before it in the launch, which is [`ViewAccess::ReadWrite`], is of, too.
    StoreWithin,
}

#[cfg(not(target_arch = "nvptx64"))]
impl ViewAccess {
    /// Whether the memory belongs to this view alone, because the kernel may change it.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Atomic)
    }
}

/// The bytes of a kernel's parameters that every driver passes.
const PARAMETER_BYTES: usize = 4096;

/// What the GPU receives of a tensor map.
const TENSOR_MAP_BYTES: usize = 128;

/// Fails to compile, where it is called in a constant, if parameters are more than a launch can pass: of each its size, its alignment, and whether
/// it is a tensor map.
#[doc(hidden)]
pub const fn assert_parameters_fit(parameters: &[(usize, usize, bool)]) {
    let (mut bytes, mut i) = (0usize, 0);
    while i < parameters.len() {
        let (size, alignment, is_tensor_map) = parameters[i];
        let (size, alignment) = if is_tensor_map { (TENSOR_MAP_BYTES, TENSOR_MAP_BYTES) } else { (size, alignment) };
        bytes = bytes.next_multiple_of(alignment) + size;
        i += 1;
    }
    assert!(
        bytes <= PARAMETER_BYTES,
        "a kernel has at most 4096 bytes of parameters: keep what is larger in a buffer, and pass a view of it"
    );
}

macro_rules! number {
    ($($number:ty),*) => { $(
        // SAFETY: a primitive number: the same on both sides, and no view.
        unsafe impl KernelParam for $number {
            const LAYOUT: u64 = Layout::new(stringify!($number)).fingerprint();

            #[cfg(not(target_arch = "nvptx64"))]
            const HAS_VIEWS: bool = false;

            #[cfg(not(target_arch = "nvptx64"))]
            fn visit_views(&self, _name: ViewName<'_>, _visit: &mut dyn FnMut(View<'_>)) {}
        }
    )* };
}

number!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

// SAFETY: elements of one type, one after the other on both sides; each of them is visited.
unsafe impl<T: KernelParam, const N: usize> KernelParam for [T; N] {
    const LAYOUT: u64 = Layout::new("array").elements::<T>().sized::<Self>().fingerprint();

    #[cfg(not(target_arch = "nvptx64"))]
    const HAS_VIEWS: bool = T::HAS_VIEWS;

    #[cfg(not(target_arch = "nvptx64"))]
    fn visit_views(&self, name: ViewName<'_>, visit: &mut dyn FnMut(View<'_>)) {
        self.iter().for_each(|element| element.visit_views(name, visit));
    }
}
