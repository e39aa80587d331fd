//! Programmatic dependent launch: a kernel whose blocks are sent to the multiprocessors while the kernel before it in the stream ends.
//!
//! ```text
//!  without    │ kernel 1 ──────────┤ 1 to 1.5 us │ kernel 2 ──────────┤
//!  with       │ kernel 1 ──────────┤│ wait │ kernel 2 ──────────┤          its first instruction waits until all that kernel 1 has written
//!                                                                       can be seen
//! ```
//!
//! `cuLaunchKernelEx` and its types are declared here, as `cust` declares the interface of CUDA 11.4.

use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;

use cust::sys::{CUfunction, CUresult, CUstream};

use crate::library::Entry;
use crate::version::DriverVersion;

/// The lowest driver by which it is done: from CUDA 12.3 on, such launches can be captured into graphs.
pub(crate) const DRIVER: DriverVersion = DriverVersion { major: 12, minor: 3 };

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

/// `CUlaunchAttribute`: its number, and a union of 64 bytes, aligned to 8, of which a number is all that is used here.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: c_uint,
    gap: [u8; 4],
    value: c_uint,
    rest_of_value: [u8; 60],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: CUstream,
    attributes: *const LaunchAttribute,
    attribute_count: c_uint,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && size_of::<LaunchConfig>() == 56);

/// The type of `cuLaunchKernelEx`, in all drivers from CUDA 11.8 on.
type LaunchKernelEx = unsafe extern "C" fn(
    config: *const LaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32;

static LAUNCH_KERNEL_EX: Entry = Entry::new("cuLaunchKernelEx");

/// Launches a kernel that may begin while the one before it in the stream ends.
///
/// # Safety
/// As for `cuLaunchKernel` with these arguments; and the kernel waits for the kernels before it before it accesses memory that they access.
pub(crate) unsafe fn launch(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
    params: &mut [*mut c_void],
) -> CUresult {
    let attribute =
        LaunchAttribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, gap: [0; 4], value: 1, rest_of_value: [0; 60] };
    let config =
        LaunchConfig { grid, block, shared_bytes, stream, attributes: &raw const attribute, attribute_count: 1 };
    LAUNCH_KERNEL_EX.forward(|address: NonNull<c_void>| {
        // SAFETY: the driver's function of this name has had this type since it exists.
        let launch: LaunchKernelEx = unsafe { std::mem::transmute(address.as_ptr()) };
        // SAFETY: the configuration and its attribute are there until it returns; the rest is the caller's promise.
        unsafe { launch(&raw const config, function, params.as_mut_ptr(), std::ptr::null_mut()) }
    })
}
