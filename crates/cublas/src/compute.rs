//! Queues a product on the caller's stream.
//!
//! ```text
//!  captured?  plan  ─► workspace: none │ the caller's │ allocated on the stream ─► launches ─► freed on the stream
//!                            ▲                                │
//!                            └── a plan that needs less ◄─────┴ too little memory
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_driver::OrderedMemory;
use tilewright::plan::{Description, GemmPlan, Workspace};
use tilewright::{Bytes, Device, DeviceError, DeviceMatrix, Epilogue, Error};

use crate::choose::{Choice, Request, require_something_to_gain};
use crate::loader::WAS_LOOKED_UP;
use crate::place::Place;
use crate::product::{Operand, Product};
use crate::settings::{Settings, settings};
use crate::state::Call;
use crate::why::Why;

/// What parts of a plan's workspace begin at multiples of, in bytes.
const ALIGNMENT: usize = 256;

/// What was done, for a line.
pub(crate) struct Done {
    product: Product,
    stream: usize,
    plan: Arc<GemmPlan>,
    least_of_cublas: Option<f64>,
}

impl fmt::Display for Done {
    /// The row-major product that was computed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { count, alpha, beta, a, b, c, finish } = &self.product;
        let Self { stream, plan, least_of_cublas, .. } = self;
        let (m, n, k) = (c.rows, c.cols, a.cols);
        write!(f, "(m={m} n={n} k={k}, batch {count}, strides {:?} {:?} {:?}, ", a.strides, b.strides, c.strides)?;
        write!(f, "alpha {alpha}, beta {beta}")?;
        if finish.bias.is_some() {
            write!(f, ", bias")?;
        }
        if let Some(activation) = finish.activation {
            write!(f, ", {activation:?}")?;
        }
        write!(f, ") stream {stream:#x}: {}", plan.kernel().name)?;
        if let (Some(ours), Some(least)) = (plan.explanation().estimated_ms, least_of_cublas) {
            write!(f, ", estimated {ours:.4} ms, cuBLAS at least {least:.4} ms")?;
        }
        write!(f, ", workspace {}", Bytes(plan.workspace_bytes() as u128))
    }
}

/// Queues the product of a call.
///
/// # Safety
/// The pointers are what cuBLAS demands: matrices in memory that the GPU can use, until the product has been computed, and a stream of the
/// context that is current.
pub(crate) unsafe fn compute(call: &Call) -> Result<Done, Why> {
    let settings = settings().map_err(|error| Why::with("the settings are wrong", error))?;
    let place = Place::current(settings)?;
    require_something_to_gain(place, settings, &call.product)?;
    // SAFETY: the caller's promise; the handle ends with this function.
    let (device, is_captured) = unsafe { on_stream(place, call)? };
    // SAFETY: the caller's promise.
    let matrix = |operand: &Operand| unsafe { matrix(&device, operand, call.product.count) };
    let Product { alpha, a, b, beta, c, finish, .. } = &call.product;
    let (a, b, mut c) = (matrix(a)?, matrix(b)?, matrix(c)?);
    let bias = finish.bias.as_ref().map(matrix).transpose()?;
    let epilogue = bias.iter().fold(Epilogue::new(), |epilogue, bias| epilogue.add(1.0, bias));
    let epilogue = finish.activation.iter().fold(epilogue, |epilogue, &activation| epilogue.activation(activation));
    let product = Description::of(*alpha, &a, &b, *beta, &c)?.with_epilogue(!epilogue.is_empty());
    let request = Request { place, device: &device, is_captured, settings, product };
    let most = request.most_workspace(call);
    let mut limit = most;
    loop {
        let Choice { plan, least_of_cublas } = request.choose(limit)?;
        // SAFETY: the caller's promise for its own workspace.
        let memory = match unsafe { request.workspace(call, &plan) } {
            Ok(memory) => memory,
            // What needs less may fit.
            Err(_) if plan.workspace_bytes() > 0 => {
                limit = plan.workspace_bytes() - 1;
                continue;
            }
            Err(why) => return Err(why),
        };
        let (mut workspace, _memory) = memory;
        let queued = plan.run_with(&device, &epilogue, *alpha, &a, &b, *beta, &mut c, &mut workspace);
        queued.map_err(|error| after_start(error, &plan, *beta))?;
        let stream = call.stream.addr();
        return Ok(Done { product: call.product, stream, plan, least_of_cublas });
    }
}

/// The device with the caller's stream, and whether that is captured.
///
/// # Safety
/// As for [`compute`]; the handle is not used after the call.
unsafe fn on_stream(place: &Place, call: &Call) -> Result<(Device, bool), Why> {
    if place.gpu.is_none() {
        return Ok((place.device.clone(), false));
    }
    // SAFETY: the caller's promise. An error here is one of a capture that forbids the stream, which cuBLAS reports.
    let is_captured = unsafe { cuda_driver::is_capturing(call.stream) }?;
    // SAFETY: the caller's promise.
    Ok((unsafe { place.device.on_stream(call.stream) }?, is_captured))
}

/// A matrix in the caller's memory.
///
/// # Safety
/// As for [`compute`].
unsafe fn matrix(device: &Device, operand: &Operand, count: usize) -> Result<DeviceMatrix, Why> {
    let too_far = || Why::new("a matrix ends beyond what can be addressed");
    let len = operand.span(count).ok_or_else(too_far)?;
    // SAFETY: the caller's promise. Matrices may be blocks of one, which lie between each other's columns; that no element of C is one of A or B
    // is what cuBLAS demands.
    let buffer = unsafe { device.lent_between(operand.address, len) };
    Ok(DeviceMatrix::new(buffer, operand.rows, operand.cols, operand.strides)?
        .into_batch(count, operand.batch_stride)?)
}

/// What an error of a run means: whether C may have been changed.
fn after_start(error: Error, plan: &GemmPlan, beta: f32) -> Why {
    // Arguments are checked before anything is launched, and where the context is lost cuBLAS says so, too. The old C is needed if β is not zero,
    // and with one launch it is there as long as that has failed.
    let from_driver = matches!(&error, Error::Device(DeviceError::Driver(error)) if !matches!(error, cuda_driver::Error::ContextLost { .. }));
    let too_late = from_driver && beta != 0.0 && plan.launches() > 1;
    let mut why = Why::from(error);
    why.too_late = too_late;
    why
}

impl Request<'_> {
    /// The bytes of workspace that a plan may need.
    fn most_workspace(&self, call: &Call) -> usize {
        let Settings { workspace_bytes, capture_workspace_bytes, .. } = *self.settings;
        let ours = match (self.is_captured, capture_workspace_bytes) {
            (false, _) => workspace_bytes,
            (true, Some(bytes)) => bytes,
            // A graph with nodes that allocate cannot become a part of another one, as XLA has it, which looks functions up.
            (true, None) if WAS_LOOKED_UP.load(Ordering::Relaxed) => 0,
            (true, None) => workspace_bytes,
        };
        ours.max(usable(call.workspace).map_or(0, |(_, bytes)| bytes))
    }

    /// The workspace for a plan, and what is freed when the plan has been queued.
    ///
    /// # Safety
    /// As for [`compute`].
    unsafe fn workspace(&self, call: &Call, plan: &GemmPlan) -> Result<(Workspace, Option<OrderedMemory>), Why> {
        let bytes = plan.workspace_bytes();
        if bytes == 0 {
            return Ok((Workspace::none(), None));
        }
        let elements = bytes.div_ceil(size_of::<f32>());
        // SAFETY: of the caller's memory, that promise; of ours, it is freed in the order of the stream, behind all launches.
        let within = |address: usize| Workspace::within(unsafe { self.device.lent(address, elements) }, 0..elements);
        if let Some((address, _)) =
            usable(call.workspace).filter(|&(_, has)| has >= bytes.next_multiple_of(size_of::<f32>()))
        {
            return Ok((within(address), None));
        }
        let Some(gpu) = &self.place.gpu else { return Ok((Workspace::new(self.device, bytes)?, None)) };
        let Some(pool) = &gpu.pool else { return Err(Why::new("the GPU has no memory in the order of streams")) };
        // SAFETY: the caller's stream, until the memory has been freed there, at the end of the call.
        let stream = unsafe { gpu.gpu.on_stream(call.stream) };
        let memory = pool.allocate(&stream, bytes.next_multiple_of(size_of::<f32>()))?;
        let address = usize::try_from(memory.address()).map_err(|_| Why::new("an address of more than 64 bits"))?;
        Ok((within(address), Some(memory)))
    }
}

/// The part of a workspace that begins where plans need it.
fn usable((address, bytes): (usize, usize)) -> Option<(usize, usize)> {
    if address == 0 {
        return None;
    }
    let begin = address.checked_next_multiple_of(ALIGNMENT)?;
    Some((begin, bytes.checked_sub(begin - address)?))
}
