//! Functions of the libraries that are loaded: those of the dynamic loader itself, and cuBLAS's.
//!
//! This library exports a `dlsym` of its own, so it asks the loader by `dlvsym` for the one behind it, with the version that glibc's symbol has had
//! since the beginning.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The type of `dlsym`.
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The version of `dlsym` in the first glibc for this processor.
#[cfg(target_arch = "x86_64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(target_arch = "aarch64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.17";

/// The loader's `dlsym`, once it has been looked up. The exported one jumps there.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether somebody has got a function of this library by its name, from the exported `dlsym`.
pub(crate) static WAS_LOOKED_UP: AtomicBool = AtomicBool::new(false);

/// Looks the loader's `dlsym` up. It may be called before anything else of this process, so it allocates nothing and cannot panic.
pub(crate) fn find_dlsym() -> *mut c_void {
    let known = DLSYM.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: both are strings. The loader looks behind this library, in which the call is.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), FIRST_VERSION.as_ptr()) };
    if found.is_null() {
        // No glibc lacks it, and without it nothing can be looked up at all.
        // SAFETY: it has no arguments.
        unsafe { libc::abort() };
    }
    DLSYM.store(found, Ordering::Release);
    found
}

/// The address of a symbol, by the loader's own `dlsym`; null if there is none.
///
/// # Safety
/// `handle` is one of `dlopen`'s, or `RTLD_NEXT`, which means behind this library.
pub(crate) unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: this is the loader's function, of this type.
    let dlsym = unsafe { mem::transmute::<*mut c_void, Dlsym>(find_dlsym()) };
    // SAFETY: the caller's promise; the name is a string.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// A function of cuBLAS that this library stands in for.
pub(crate) struct Original {
    pub(crate) name: &'static CStr,
    /// The address of the function of this name here.
    ours: fn() -> *mut c_void,
    /// What it stands in for, once that is known.
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr, ours: fn() -> *mut c_void) -> Self {
        Self { name, ours, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The address of the function of this name here.
    pub(crate) fn ours(&self) -> *mut c_void {
        (self.ours)()
    }

    /// Takes an address that a program has looked up for the function behind this one, if none is known. Whether it is that now: a program can have
    /// two cuBLAS, and one of them is left alone.
    pub(crate) fn adopt(&self, address: *mut c_void) -> bool {
        let unknown = self.address.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire);
        unknown.map_or_else(|known| known == address, |_| true)
    }

    /// The address of cuBLAS's function: what comes behind this library, or else what a library has that is loaded for somebody else alone, as
    /// `dlopen` does it.
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        // SAFETY: this is no handle, but a place to begin.
        let next = unsafe { symbol(libc::RTLD_NEXT, self.name) };
        let found = if self.is_other(next) { Some(next) } else { self.in_loaded_libraries() };
        let found = found?;
        self.adopt(found);
        Some(self.address.load(Ordering::Acquire))
    }

    fn is_other(&self, address: *mut c_void) -> bool {
        !address.is_null() && address != self.ours()
    }

    fn in_loaded_libraries(&self) -> Option<*mut c_void> {
        let mut names: Vec<CString> = Vec::new();
        // SAFETY: the function gets what it is told to, for each object, and does not unwind: it makes a copy of a string.
        unsafe { libc::dl_iterate_phdr(Some(note_cublas), (&raw mut names).cast()) };
        names
            .iter()
            .filter_map(|name| Library::loaded(name))
            .map(|library| library.symbol(self.name))
            .find(|&found| self.is_other(found))
    }
}

/// Notes the name of an object if it is cuBLAS or cuBLASLt.
unsafe extern "C" fn note_cublas(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
    // SAFETY: the loader passes an object, whose name is a string or null.
    let name = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if file.starts_with(b"libcublas.so") || file.starts_with(b"libcublasLt.so") {
        // SAFETY: `in_loaded_libraries` passes its list.
        unsafe { (*names.cast::<Vec<CString>>()).push(name.to_owned()) };
    }
    0
}

/// A library that is loaded. It is not given back: cuBLAS stays as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// The one of this name, if it is loaded.
    fn loaded(name: &CStr) -> Option<Self> {
        // SAFETY: a string. Nothing is loaded, so no initializer runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// The one in which an address is.
    pub(crate) fn of(address: *mut c_void) -> Option<Self> {
        // SAFETY: all zeros is an information that says nothing.
        let mut info: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: the information may be written to; the address is only looked up.
        if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the loader's own string.
        Self::loaded(unsafe { CStr::from_ptr(info.dli_fname) })
    }

    /// The address of a symbol of the library, or of those that it needs; null if there is none.
    pub(crate) fn symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is `dlopen`'s, and has not been closed.
        unsafe { symbol(self.0, name) }
    }
}
