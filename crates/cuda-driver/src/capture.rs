//! Queries for programs that share a GPU with other libraries in one process: whether a stream is being captured into a CUDA graph,
//! in which device's memory an address is, and of which GPU the context is that is current on a thread.

use std::ffi::c_void;

use cust::sys::{self, CUpointer_attribute, CUstreamCaptureMode, CUstreamCaptureStatus};

use crate::call::call;
use crate::error::Error;

/// Whether what is started on a stream, a `CUstream`, becomes a part of a graph instead of running.
///
/// # Errors
/// [`Error::NoDriver`] without a driver; [`Error::Call`] for the default stream while another stream is captured.
///
/// # Safety
/// The stream is valid, and of the context that is current on this thread.
pub unsafe fn is_capturing(stream: *mut c_void) -> Result<bool, Error> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: `status` may be written to; the stream is the caller's promise.
    call(|| unsafe { sys::cuStreamIsCapturing(stream.cast(), &mut status) })?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Lets this thread allocate and load until the result is dropped, also while a stream is captured: otherwise that ends the
/// capture with an error.
///
/// # Errors
/// [`Error::NoDriver`] without a driver.
pub fn relax_capture() -> Result<RelaxedCapture, Error> {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` may be read and written to.
    call(|| unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) })?;
    Ok(RelaxedCapture { before: mode, on_this_thread: std::marker::PhantomData })
}

/// Makes the thread's mode what it was when it is dropped: see [`relax_capture`].
#[derive(Debug)]
#[must_use = "the mode is what it was again when this is dropped"]
pub struct RelaxedCapture {
    before: CUstreamCaptureMode,
    /// The mode is this thread's.
    on_this_thread: std::marker::PhantomData<*mut ()>,
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: the mode may be read and written to. If this fails, nobody is left to tell.
        let _ = call(|| unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.before) });
    }
}

/// The number of the GPU whose memory an address is in.
///
/// # Errors
/// [`Error::Call`] if it is in no memory that the driver knows; [`Error::NoDriver`] without a driver.
pub fn gpu_of_address(address: usize) -> Result<usize, Error> {
    let mut ordinal = 0i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: the attribute is a number of this type, and `ordinal` may be written to. The address is only looked up.
    call(|| unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address as u64) })?;
    Ok(usize::try_from(ordinal).unwrap_or(0))
}

/// The context that is current on a thread, and its GPU. Two are equal if they are of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentGpu {
    ordinal: usize,
    /// The address of the context, which is compared and nothing else.
    context: usize,
}

impl CurrentGpu {
    /// The GPU's number.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }
}

/// The context that is current on this thread; none if there is none.
///
/// ```no_run
/// use tilewright_cuda_driver::{Gpu, current_gpu};
///
/// # fn main() -> Result<(), tilewright_cuda_driver::Error> {
/// let gpu = Gpu::open(1)?;
/// gpu.make_current()?;
/// assert_eq!(current_gpu()?.map(|current| current.ordinal()), Some(1));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::NoDriver`] without a driver; [`Error::Call`] before anybody has initialized it.
pub fn current_gpu() -> Result<Option<CurrentGpu>, Error> {
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` may be written to.
    call(|| unsafe { sys::cuCtxGetCurrent(&mut context) })?;
    if context.is_null() {
        return Ok(None);
    }
    let mut device = 0;
    // SAFETY: `device` may be written to. Devices are numbers from 0, in the order of ordinals.
    call(|| unsafe { sys::cuCtxGetDevice(&mut device) })?;
    Ok(Some(CurrentGpu { ordinal: usize::try_from(device).unwrap_or(0), context: context.addr() }))
}
