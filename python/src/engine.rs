//! Where products are computed, and by which plans: each device of the process keeps those that were made, for any thread.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cuda_driver::{DriverVersion, KeptContext, keep_context};
use tilewright::Sizes;
use tilewright::plan::{Description, GemmPlan, Options, Placement, Workspace};
use tilewright::{Activation, Device, DeviceMatrix, Epilogue, Operand, PackedMatrix, Precision, Side};

use crate::error::{Failure, Kind};
use crate::shape::{MOST_OPERANDS, Products, Strides};

/// Where memory is, and kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The CPU executor.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

/// A stream of CUDA, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(pub(crate) usize);

/// From this driver on, kernels can be loaded while a stream is captured.
const LOADS_IN_CAPTURES: DriverVersion = DriverVersion { major: 12, minor: 3 };

/// What addresses of operands are multiples of in descriptions, at most. More makes no difference to any kernel, and would
/// make more plans.
const ALIGNMENT: usize = 16;

impl Stream {
    /// The default stream, behind which all others wait that are not made otherwise.
    pub(crate) const LEGACY: Self = Self(0);

    fn raw(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("the CPU"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl Place {
    /// Notes the context that is current on this thread, so that code which uses the driver besides finds it as it was.
    pub(crate) fn keep_context(self) -> Result<Option<KeptContext>, Failure> {
        match self {
            Self::Cpu => Ok(None),
            Self::Cuda(_) => Ok(Some(keep_context()?)),
        }
    }

    /// The device, by a handle with which everything runs on a stream.
    ///
    /// # Safety
    /// The stream is the GPU's, and valid as long as there are handles made from this one, or buffers made by them.
    pub(crate) unsafe fn device_on(self, stream: Stream) -> Result<Device, Failure> {
        let device = self.device()?;
        match self {
            Self::Cpu => Ok(device),
            // SAFETY: the caller's promise.
            Self::Cuda(_) => Ok(unsafe { device.on_stream(stream.raw())? }),
        }
    }
}

/// What becomes of products before they are stored: α times them, and then one step after the other.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    pub(crate) alpha: f32,
    pub(crate) steps: Vec<Step>,
    /// Where what steps read is, in their order: with the strides that the products were made with.
    pub(crate) addresses: Vec<usize>,
}

/// A step of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Scale(f32),
    Offset(f32),
    /// The sum with so many times the next operand.
    Add(f32),
    /// The product with the next operand.
    Multiply,
    Activation(Activation),
}

impl Finish {
    /// The products as they are.
    pub(crate) const NONE: Self = Self { alpha: 1.0, steps: Vec::new(), addresses: Vec::new() };

    /// Whether steps do anything at all.
    pub(crate) fn has_effect(steps: &[Step]) -> bool {
        steps.iter().any(|step| *step != Step::Add(0.0))
    }

    /// The steps with what they read.
    fn epilogue<'a>(&self, operands: &'a [DeviceMatrix]) -> Epilogue<'a> {
        let mut operands = operands.iter();
        let mut next = || operands.next().expect("there is an operand for each step that reads one");
        self.steps.iter().fold(Epilogue::new(), |epilogue, step| match *step {
            Step::Scale(factor) => epilogue.scale(factor),
            Step::Offset(summand) => epilogue.offset(summand),
            // As in every BLAS, what is multiplied by zero is not read.
            Step::Add(0.0) => {
                next();
                epilogue
            }
            Step::Add(factor) => epilogue.add(factor, next()),
            Step::Multiply => epilogue.multiply(next()),
            Step::Activation(activation) => epilogue.activation(activation),
        })
    }
}

/// Products of tensors in memory that is somebody else's, planned: for any addresses that are aligned as those it was made for.
pub(crate) struct Planned {
    place: Place,
    pub(crate) products: Products,
    /// Whether what is in c is added.
    adds: bool,
    /// One for each time that the batch is computed.
    pub(crate) plans: Vec<Arc<GemmPlan>>,
}

impl Planned {
    /// Plans the products of what is at these addresses, times α; plus β·c, if that is added. Kernels are loaded here.
    ///
    /// # Safety
    /// The device is a handle of the place's, made for this stream, which is valid.
    pub(crate) unsafe fn new(
        place: Place,
        device: &Device,
        stream: Stream,
        options: &Options,
        products: Products,
        addresses: [usize; 3],
        adds: bool,
    ) -> Result<Self, Failure> {
        let mut plans: Vec<Arc<GemmPlan>> = Vec::new();
        for product in descriptions(&products, addresses, adds) {
            let product = product?;
            let plan = match plans.last() {
                Some(plan) if *plan.product() == product => plan.clone(),
                // SAFETY: the caller's promise.
                _ => unsafe { planned(place, device, stream, product, options)? },
            };
            plans.push(plan);
        }
        Ok(Self { place, products, adds, plans })
    }

    /// The memory that [`Planned::run`] needs besides the tensors.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.plans.iter().map(|plan| plan.workspace_bytes()).max().unwrap_or(0)
    }

    /// Queues `c = α·a·b`, or `c = α·a·b + β·c` if that is added, on the device's stream; on the CPU executor, computes it. α is not
    /// zero. `workspace` is the address of memory of at least [`Planned::workspace_bytes`]; without it, memory is allocated, and
    /// this waits before it is freed.
    ///
    /// # Safety
    /// As [`Device::lent`] demands, for all memory of a, b and c that the views span from these addresses on, and for the
    /// workspace: it is the device's, and stays allocated until what was queued has finished; until then nobody writes to it, or
    /// reads c, except in order behind it on the stream.
    pub(crate) unsafe fn run(
        &self,
        device: &Device,
        addresses: [usize; 3],
        [alpha, beta]: [f32; 2],
        workspace: Option<usize>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.run_with(device, addresses, [None; 2], &Finish { alpha, ..Finish::NONE }, beta, workspace) }
    }

    /// The same, and the steps behind it, if the products were made to have some. Of a and b that were packed before, `packed` says where.
    ///
    /// # Safety
    /// As for [`Planned::run`], also for what steps read and for what is packed, which has the numbers of a and b.
    unsafe fn run_with(
        &self,
        device: &Device,
        addresses: [usize; 3],
        packed: [Option<PackedMemory>; 2],
        finish: &Finish,
        beta: f32,
        workspace: Option<usize>,
    ) -> Result<(), Failure> {
        let _kept = self.place.keep_context()?;
        let bytes = self.workspace_bytes();
        let mut workspace = match workspace {
            Some(address) => {
                let elements = bytes.div_ceil(size_of::<f32>());
                // SAFETY: the caller's promise.
                Workspace::within(unsafe { device.lent(address, elements) }, 0..elements)
            }
            None => Workspace::new(device, bytes)?,
        };
        let beta = if self.adds { beta } else { 0.0 };
        let starts = self.products.offsets().zip(self.products.operand_offsets());
        for ((offsets, operand_offsets), plan) in starts.zip(&self.plans) {
            let Products { m, n, k, count, a, b, c, operands, .. } = self.products;
            let matrices = |first: usize, offset: usize, [rows, cols, count]: [usize; 3], strides: Strides| {
                let address = first + offset * size_of::<f32>();
                let len = span(rows, cols, count, strides);
                // SAFETY: the caller's promise. These elements are among those that the view spans.
                let buffer = unsafe { device.lent(address, len) };
                DeviceMatrix::new(buffer, rows, cols, [strides.rows, strides.cols])?.into_batch(count, strides.batch)
            };
            let matrix = |operand: usize, rows, cols, strides| {
                matrices(addresses[operand], offsets[operand], [rows, cols, count], strides)
            };
            let (a, b, mut c) = (matrix(0, m, k, a)?, matrix(1, k, n, b)?, matrix(2, m, n, c)?);
            let held = |place: usize, side, matrix| match (self.products.packed[place], packed[place]) {
                (Some(precision), Some(memory)) => {
                    // SAFETY: the caller's promise.
                    unsafe { memory.with(device, precision, side, matrix) }.map(Held::Packed)
                }
                _ => Ok(Held::Plain(matrix)),
            };
            let (a, b) = (held(0, Side::Left, a)?, held(1, Side::Right, b)?);
            let operand = |(place, &address): (usize, &usize)| {
                let strides: Strides = operands[place];
                // What it has once, it has for all.
                let once = |extent: usize, stride: usize| if stride == 0 { 1 } else { extent };
                let extents = [once(m, strides.rows), once(n, strides.cols), once(count, strides.batch)];
                matrices(address, operand_offsets[place], extents, strides)
            };
            let read = finish.addresses.iter().take(MOST_OPERANDS).enumerate().map(operand);
            let read = read.collect::<Result<Vec<_>, tilewright::Error>>()?;
            let epilogue = finish.epilogue(&read);
            plan.run_with(device, &epilogue, finish.alpha, a.operand(), b.operand(), beta, &mut c, &mut workspace)?;
        }
        Ok(())
    }
}

/// Memory that a matrix has been packed into before, and that is somebody else's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMemory {
    pub(crate) address: usize,
    /// How many elements of float32 it has.
    pub(crate) elements: usize,
}

impl PackedMemory {
    /// What its address is a multiple of, in bytes.
    pub(crate) const ALIGNMENT: usize = 256;

    /// None: for plans that nothing is run by.
    pub(crate) const NOWHERE: Self = Self { address: 0, elements: 0 };

    /// A matrix, and this, which has been packed of it for a precision and a side.
    ///
    /// # Safety
    /// That is so, and as for [`Device::lent`].
    unsafe fn with(
        self,
        device: &Device,
        precision: Precision,
        side: Side,
        matrix: DeviceMatrix,
    ) -> Result<PackedMatrix, tilewright::Error> {
        // SAFETY: the caller's promise.
        unsafe { PackedMatrix::from_packed(device.lent(self.address, self.elements), device, precision, side, matrix) }
    }
}

/// An operand, as it is or packed before.
enum Held {
    Plain(DeviceMatrix),
    Packed(PackedMatrix),
}

impl Held {
    fn operand(&self) -> Operand<'_> {
        match self {
            Self::Plain(matrix) => matrix.into(),
            Self::Packed(packed) => packed.into(),
        }
    }
}

/// A product of tensors in memory that is somebody else's, planned for these tensors.
pub(crate) struct Job {
    place: Place,
    device: Device,
    /// Of a, b and c.
    addresses: [usize; 3],
    planned: Planned,
}

impl Job {
    /// Plans the products of what is at these addresses. Kernels are loaded here, not when the job runs.
    ///
    /// # Safety
    /// The stream is the GPU's, and valid until the job has been run.
    pub(crate) unsafe fn new(
        place: Place,
        stream: Stream,
        options: &Options,
        products: Products,
        addresses: [usize; 3],
    ) -> Result<Self, Failure> {
        // SAFETY: the caller's promise; the handle and what it makes do not outlive the job.
        let device = unsafe { place.device_on(stream)? };
        // SAFETY: the handle was made just now, for this stream.
        let planned = unsafe { Planned::new(place, &device, stream, options, products, addresses, false)? };
        Ok(Self { place, device, addresses, planned })
    }

    /// Whether a and b are read as they were packed before, by all plans.
    pub(crate) fn reads_packed(&self) -> [bool; 2] {
        [0, 1].map(|operand| self.planned.plans.iter().all(|plan| plan.reads_packed()[operand]))
    }

    /// The memory that [`Job::run`] needs besides the tensors.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.planned.workspace_bytes()
    }

    /// What is computed and why so, once for each plan.
    pub(crate) fn explanation(&self) -> String {
        // A batch may be computed many times, by few plans.
        let mut plans: Vec<(&Arc<GemmPlan>, usize)> = Vec::new();
        for plan in &self.planned.plans {
            match plans.iter_mut().find(|(known, _)| Arc::ptr_eq(known, plan)) {
                Some((_, times)) => *times += 1,
                None => plans.push((plan, 1)),
            }
        }
        let mut texts: Vec<(String, usize)> = Vec::new();
        for (plan, times) in plans {
            let text = plan.explanation().to_string();
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, known)) => *known += times,
                None => texts.push((text, times)),
            }
        }
        let shown = texts.into_iter().map(|(text, times)| match times {
            1 => text,
            _ => format!("{times} times, one after the other:\n{text}"),
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    /// As [`Planned::run`], with the steps behind the product, and with what was packed before.
    ///
    /// # Safety
    /// As for [`Planned::run`], also for what steps read and for what is packed, which has the numbers of a and b.
    pub(crate) unsafe fn run(
        &self,
        packed: [Option<PackedMemory>; 2],
        finish: &Finish,
        workspace: Option<usize>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.planned.run_with(&self.device, self.addresses, packed, finish, 0.0, workspace) }
    }

    /// Waits until what was queued has finished.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let _kept = self.place.keep_context()?;
        Ok(self.device.synchronize()?)
    }
}

/// Waits for a stream of a GPU.
///
/// # Safety
/// The stream is the GPU's, and valid.
pub(crate) unsafe fn wait_for(ordinal: usize, stream: Stream) -> Result<(), Failure> {
    let device = Place::Cuda(ordinal).device()?;
    let _kept = keep_context()?;
    // SAFETY: the caller's promise.
    Ok(unsafe { device.on_stream(stream.raw())? }.synchronize()?)
}

/// The elements from the first to the last of a batch of matrices.
pub(crate) fn span(rows: usize, cols: usize, count: usize, strides: Strides) -> usize {
    if rows == 0 || cols == 0 || count == 0 {
        return 0;
    }
    // No overflow: less than the view spans, which has been counted.
    (rows - 1) * strides.rows + (cols - 1) * strides.cols + (count - 1) * strides.batch + 1
}

/// What plans are made for, once for each time that the batch is computed.
pub(crate) fn descriptions(
    products: &Products,
    addresses: [usize; 3],
    adds: bool,
) -> impl Iterator<Item = Result<Description, Failure>> + '_ {
    products.offsets().map(move |offsets| description(products, addresses, offsets, adds))
}

/// What a plan is made for.
fn description(
    products: &Products,
    addresses: [usize; 3],
    offsets: [usize; 3],
    adds: bool,
) -> Result<Description, Failure> {
    let placement = |operand: usize, strides: Strides| {
        let address = addresses[operand] + offsets[operand] * size_of::<f32>();
        // What has no elements is nowhere.
        let is_empty = products.k == 0 && operand < 2;
        let alignment = if is_empty { align_of::<f32>() } else { 1 << (ALIGNMENT | address).trailing_zeros() };
        let Strides { rows, cols, batch } = strides;
        Placement { row_stride: rows, col_stride: cols, batch_stride: batch, alignment }
    };
    let Products { m, n, k, count, a, b, c, part, has_steps, packed, .. } = *products;
    let (a, b, c) = (placement(0, a), placement(1, b), placement(2, c));
    Ok(Description::new(Sizes { m, n, k }, count, a, b, c)?
        .with_factors(1.0, f32::from(u8::from(adds)))
        .with_part(part)
        .with_epilogue(has_steps)
        .with_packed(packed))
}

/// The plan for a product, with its kernels loaded.
///
/// # Safety
/// The stream is the GPU's, and valid.
unsafe fn planned(
    place: Place,
    device: &Device,
    stream: Stream,
    product: Description,
    options: &Options,
) -> Result<Arc<GemmPlan>, Failure> {
    device.plan_with(&product, options, |plan| {
        // SAFETY: the caller's promise.
        unsafe { load(place, device, stream, || Ok(plan.load(device)?)) }
    })
}

/// Has a GPU load kernels, also while its stream is captured if the driver can do that.
///
/// # Safety
/// The stream is the GPU's, and valid.
pub(crate) unsafe fn load(
    place: Place,
    device: &Device,
    stream: Stream,
    load: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(properties) = device.gpu_properties() else { return Ok(()) };
    let _kept = place.keep_context()?;
    device.make_current()?;
    // A driver that refuses to tell is one that captures another stream.
    // SAFETY: the caller's promise, and the GPU's context is current.
    let captures = || unsafe { cuda_driver::is_capturing(stream.raw()) }.unwrap_or(true);
    if properties.driver < LOADS_IN_CAPTURES && captures() {
        let driver = properties.driver;
        return Err(Failure::new(
            Kind::Device,
            format!(
                "kernels for this product are not loaded yet, and a driver for CUDA {driver} cannot load them while a stream is \
                 captured: compute the product once before the capture, with operands of the same shapes, strides and precision"
            ),
        ));
    }
    let _relaxed = cuda_driver::relax_capture()?;
    load()
}
