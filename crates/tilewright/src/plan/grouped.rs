//! [`GroupedPlan`]: products that each have an m, n and k, memory, strides and a layout of their own, by as many launches as kernels.

use std::ops::Range;

use cuda_std::{GlobalSlice, KernelFacts};
use gpu_kernels::gemm::grouped::{Group, GroupedProduct, Products};

use super::grouped_choice::{Assigned, GroupedChoice, choose};
use super::grouped_explanation::GroupedExplanation;
use super::options::Options;
use super::used_constants::UsedConstants;
use crate::description::Description;
use crate::device::Buffer;
use crate::device_facts::DeviceFacts;
use crate::kernels::{GROUPED, GroupedKernel};
use crate::{Device, DeviceMatrix, Error};

/// The words that a table begins at a multiple of: 128 bytes.
const LINE: usize = 16;

/// The words of a product in a table, besides the end of its tiles.
const WORDS_OF_A_PRODUCT: usize = 16;

/// Grouped products that are ready to be computed, `C = α·A·B + β·C` each: a table of them in the device's memory, and the kernels.
///
/// The plan borrows the operands, and the results mutably, so their numbers can be had when it is gone. It may run any number of times.
///
/// ```
/// use ndarray::array;
/// use tilewright::plan::{GroupedPlan, Options};
/// use tilewright::{Device, DeviceMatrix, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let upload = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let (a, b) = (upload(array![[1.0, 2.0]])?, upload(array![[3.0], [4.0]])?);
/// let (mut inner, mut outer) = (upload(array![[100.0]])?, upload(ndarray::Array2::zeros((2, 2)))?);
///
/// let mut plan = GroupedPlan::new(&device, &Precision::Fp32.into(), [(&a, &b, &mut inner), (&b, &a, &mut outer)])?;
/// println!("{}", plan.explanation());
/// plan.run(1.0, 1.0)?;
/// plan.run(1.0, 1.0)?;
/// let (mut one, mut four) = (array![[0.0]], ndarray::Array2::zeros((2, 2)));
/// drop(plan);
/// inner.download(one.view_mut())?;
/// outer.download(four.view_mut())?;
/// assert_eq!((one, four), (array![[122.0]], array![[6.0, 12.0], [8.0, 16.0]]));
/// # Ok::<(), tilewright::Error>(())
/// ```
pub struct GroupedPlan<'a> {
    device: Device,
    launches: Vec<Launch<'a>>,
    /// The tables of all launches, as the fp32 numbers that have their bits.
    tables: Buffer<f32>,
    assigned: Vec<Option<Assigned>>,
    explanation: GroupedExplanation,
}

/// A kernel, and the products that it computes.
struct Launch<'a> {
    kernel: &'static GroupedKernel,
    group: Group<'a>,
    /// Where its table is, in words.
    table: Range<usize>,
}

impl<'a> GroupedPlan<'a> {
    /// Chooses kernels for products of A, B and C each, which are numbered from 0, and copies the table to the device.
    ///
    /// Each kernel is launched once, however many products it computes: there are one for each layout of A and B on tensor cores, and
    /// those for small products, which take any. C of a product may share no element with another matrix.
    ///
    /// # Errors
    /// [`Error::InGroup`], which names the product, with [`Error::Operands`] or [`Error::Shape`] if its matrices make none,
    /// [`Error::Usage`] if one of them is a batch or in memory of another device, [`Error::NoKernel`], [`Error::NoAccuracy`] or
    /// [`Error::Ineligible`] if no grouped kernel can compute it so; [`Error::Group`] if a C shares elements with another matrix, or
    /// there are too many tiles for a grid; [`Error::Usage`] for a kernel without a grouped form and for splits;
    /// [`Error::Device`] where there is no memory for the table, or an earlier kernel has failed.
    pub fn new(
        device: &Device,
        options: &Options,
        products: impl IntoIterator<Item = (&'a DeviceMatrix, &'a DeviceMatrix, &'a mut DeviceMatrix)>,
    ) -> Result<Self, Error> {
        Self::new_in(device, |len| Ok(device.allocate(len)?), options, products)
    }

    /// The elements that the tables of so many products take, at most.
    pub const fn most_table_elements(products: usize) -> usize {
        let words = products * (1 + WORDS_OF_A_PRODUCT) + GROUPED.len() * 2 * LINE;
        words * (size_of::<u64>() / size_of::<f32>())
    }

    /// The same with the tables in a buffer of as many elements as it is asked for, at most
    /// [`GroupedPlan::most_table_elements`]. Another library may have allocated its memory.
    ///
    /// # Errors
    /// Those of [`GroupedPlan::new`] and of `buffer`; [`DeviceError::LengthMismatch`](runtime::Error::LengthMismatch) for a buffer of
    /// another length.
    ///
    /// # Panics
    /// Never, unless [`GroupedPlan::most_table_elements`] is wrong.
    pub fn new_in(
        device: &Device,
        buffer: impl FnOnce(usize) -> Result<Buffer<f32>, Error>,
        options: &Options,
        products: impl IntoIterator<Item = (&'a DeviceMatrix, &'a DeviceMatrix, &'a mut DeviceMatrix)>,
    ) -> Result<Self, Error> {
        let (mut matrices, mut descriptions) = (Vec::new(), Vec::new());
        for (product, (a, b, c)) in products.into_iter().enumerate() {
            let in_group = |source| Error::InGroup { product, source: Box::new(source) };
            descriptions.push(describe(device, [a, b, c]).map_err(in_group)?);
            matrices.push(views(a, b, c).map_err(in_group)?);
        }
        let is_loaded = |kernel: &GroupedKernel| device.has_kernel(&kernel.facts).is_ok();
        let used = UsedConstants::on(device, &options.constants)?;
        let choice = choose(&DeviceFacts::of(device), &descriptions, options, used.constants(), is_loaded)?;
        for (matrices, assigned) in matrices.iter_mut().zip(&choice.assigned) {
            if assigned.is_some_and(|assigned| assigned.transposed) {
                *matrices = matrices.transposed();
            }
        }
        let products = Products::new(matrices)?;
        let (mut launches, mut words): (_, Vec<u64>) = (Vec::new(), Vec::new());
        for kernel in &GROUPED {
            let group = products.group(&numbers(kernel, &choice.assigned, &descriptions), kernel.tile)?;
            if group.tiles() == 0 {
                continue;
            }
            words.resize(words.len().next_multiple_of(LINE), 0);
            let table = words.len()..words.len() + group.words().len();
            words.extend(group.words());
            launches.push(Launch { kernel, group, table });
        }
        let elements = words.len() * (size_of::<u64>() / size_of::<f32>());
        assert!(elements <= Self::most_table_elements(descriptions.len()));
        let mut tables = buffer(elements)?;
        tables.copy_from(bytemuck::cast_slice(&words))?;
        let GroupedChoice { assigned, explanation } = choice;
        Ok(Self { device: device.clone(), launches, tables, assigned, explanation })
    }

    /// Queues `C = α·A·B + β·C` for each product, and does not wait for it. Copies nothing, and allocates nothing. As in every BLAS, no C
    /// is read if β is zero, and neither A nor B if α is zero. No two threads may run a plan at a time, because both would write to C.
    ///
    /// # Errors
    /// Those of [`Device::launch`].
    pub fn run(&mut self, alpha: f32, beta: f32) -> Result<(), Error> {
        for launch in &self.launches {
            let (all, Range { start, end }) = (self.tables.view(), launch.table.clone());
            // SAFETY: the words from `start` to below `end` are in the buffer, which is aligned as all memory of a device, and the view
            // is of a part of it, borrowed as the whole is. All bits are a word.
            let table =
                unsafe { GlobalSlice::from_raw_parts(all.as_ptr().cast::<u64>().wrapping_add(start), end - start) };
            // SAFETY: the group's words have been copied there, and nothing else writes to the buffer. The memory of every matrix is the
            // device's, as `describe` has found, and is borrowed for as long as the plan is there.
            let gemm = unsafe { launch.group.gemm(alpha, table, beta) };
            launch.kernel.launch(&self.device, gemm)?;
        }
        Ok(())
    }

    /// The kernels that [`GroupedPlan::run`] launches, in their order, each once.
    pub fn kernels(&self) -> Vec<KernelFacts> {
        self.launches.iter().map(|launch| launch.kernel.facts).collect()
    }

    /// The kernel that computes a product; none if the product has no results, or there is none of this number.
    pub fn kernel_of(&self, product: usize) -> Option<&'static GroupedKernel> {
        self.assigned.get(product).copied().flatten().map(|assigned| assigned.kernel)
    }

    /// Has the device load the kernels of the plan, so that no run has to. Does nothing if they are loaded, or on the CPU.
    ///
    /// # Errors
    /// Those of [`Device::prepare`](runtime::Device::prepare).
    pub fn load(&self) -> Result<(), Error> {
        self.kernels().iter().try_for_each(|kernel| Ok(self.device.prepare(kernel).map(drop)?))
    }

    /// What the plan does, and why.
    pub fn explanation(&self) -> &GroupedExplanation {
        &self.explanation
    }

    /// The memory of the tables, to be used for something else. What was queued is done before that.
    pub(crate) fn into_tables(self) -> Buffer<f32> {
        self.tables
    }
}

/// Makes the plan of grouped products for a device that need not be there: which kernels compute them, and why.
///
/// # Errors
/// Those of [`GroupedPlan::new`] that do not depend on memory.
pub fn grouped_plan(
    device: &DeviceFacts,
    products: &[Description],
    options: &Options,
) -> Result<GroupedExplanation, Error> {
    let used = UsedConstants::without_device(device, &options.constants)?;
    Ok(choose(device, products, options, used.constants(), |_| true)?.explanation)
}

/// The matrices of one product as kernels take them.
fn views<'a>(a: &'a DeviceMatrix, b: &'a DeviceMatrix, c: &'a mut DeviceMatrix) -> Result<GroupedProduct<'a>, Error> {
    Ok(GroupedProduct { a: a.matrix()?, b: b.matrix()?, c: c.matrix_mut()? })
}

/// One product as plans see it.
fn describe(device: &Device, [a, b, c]: [&DeviceMatrix; 3]) -> Result<Description, Error> {
    for (name, matrix) in [("A", a), ("B", b), ("C", c)] {
        if matrix.count() != 1 {
            return Err(Error::Usage(format!(
                "{name} is a batch of {} matrices: give each a product of its own",
                matrix.count()
            )));
        }
        if !device.is_same(matrix.buffer().device()) {
            return Err(Error::Usage(format!(
                "{name} is in memory of {}, and the products run on {}: upload it there",
                matrix.buffer().device().name(),
                device.name()
            )));
        }
    }
    Description::of(1.0, a, b, 0.0, c)
}

/// The products that a kernel computes. Those with the largest k come first, so that no block that has much to do begins last.
fn numbers(kernel: &GroupedKernel, assigned: &[Option<Assigned>], products: &[Description]) -> Vec<usize> {
    let is_its_own = |number: &usize| assigned[*number].is_some_and(|it| std::ptr::eq(it.kernel, kernel));
    let mut numbers: Vec<usize> = (0..assigned.len()).filter(is_its_own).collect();
    numbers.sort_by_key(|&number| std::cmp::Reverse(products[number].k));
    numbers
}
