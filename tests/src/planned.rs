//! The kernels of the registry, each by a plan that was made for it, in memory of a device with guard words.
//!
//! ```text
//!  operand    │ guard │ matrix with its gaps │ guard │ guard │ next of the batch │ guard │ …
//!  workspace  │ guard │ copy of A │ gap │ copy of B │ gap │ partial sums │ gap │ marks │ guard │
//! ```
//!
//! After every run, all that a kernel may not write to is compared with what it was: guards, gaps, and the operands.

mod with_steps;

use std::ops::Range;

use gpu_kernels::gemm::repair::gemm_repair_fp32;
use ndarray::{Array2, Axis};
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::plan::{Description, GemmPlan, Options, Placement, Triangle, Workspace};
use tilewright::{Device, DeviceMatrix, Epilogue};

use crate::operand::GUARD;
use crate::{Error, Layout, Layouts, MmaPrecision, Operand, Problem, SENTINEL, Sizes, special, special_values};

/// The rounding error of one fp32 operation, relative to its result.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// Products of one shape and layout.
#[derive(Clone, Debug)]
pub struct Batch {
    problems: Vec<Problem>,
    /// Whether all of them have the same A, and the same B, which then is in memory once.
    shared: [bool; 2],
    /// What is wanted of the results.
    part: Triangle,
}

impl From<Problem> for Batch {
    /// A batch of one.
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem], shared: [false; 2], part: Triangle::All }
    }
}

impl Batch {
    /// `count` products of random matrices, with α = 1 and β = 0; `shared` says whether they have A and B in common.
    pub fn new(count: usize, shared: [bool; 2], shape: Sizes, layouts: Layouts, seed: u64) -> Self {
        let mut problems: Vec<_> =
            (0..count).map(|index| Problem::new(shape, layouts, seed.wrapping_add(101 * index as u64))).collect();
        if let Some((first, others)) = problems.split_first_mut() {
            for other in others {
                if shared[0] {
                    other.a = first.a.clone();
                }
                if shared[1] {
                    other.b = first.b.clone();
                }
            }
        }
        Self { problems, shared, part: Triangle::All }
    }

    /// A copy of A, B and C on a device.
    fn upload(&self, device: &Device) -> Result<[DeviceMatrix; 3], Error> {
        let of = |operand: fn(&Problem) -> &Operand| self.problems.iter().map(operand).collect::<Vec<_>>();
        let [shared_a, shared_b] = self.shared;
        Ok([
            upload(device, &of(|problem| &problem.a), shared_a)?,
            upload(device, &of(|problem| &problem.b), shared_b)?,
            upload(device, &of(|problem| &problem.c), false)?,
        ])
    }

    /// The products.
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What is wanted of the results.
    pub(crate) fn part(&self) -> Triangle {
        self.part
    }

    /// The same with other factors.
    pub fn scaled(self, alpha: f32, beta: f32) -> Self {
        let problems = self.problems.into_iter().map(|problem| problem.scaled(alpha, beta)).collect();
        Self { problems, ..self }
    }

    /// The same, where the last product has a row of subnormal numbers in A, or one in B, or both: in what it does not share with the others. All of B
    /// is so large that no result is subnormal.
    pub fn with_tiny_elements_in_the_last(mut self) -> Self {
        let power = |exponent: i32| 2f32.powi(exponent);
        for Problem { b, .. } in &mut self.problems {
            let (terms, cols) = (b.rows(), b.cols());
            for (l, col) in (0..terms).flat_map(|l| (0..cols).map(move |col| (l, col))) {
                b.set(l, col, b.at(l, col) * power(50));
            }
        }
        let Some(Problem { a, b, .. }) = self.problems.last_mut() else { return self };
        if !self.shared[0] {
            let row = a.rows() / 2;
            (0..a.cols()).for_each(|l| a.set(row, l, a.at(row, l) * power(-128)));
        }
        if !self.shared[1] {
            b.set(b.rows() / 2, b.cols() / 2, power(-128));
        }
        self
    }

    /// The same, of which only a part is wanted.
    pub fn with_part(self, part: Triangle) -> Self {
        Self { part, ..self }
    }

    /// The same, with zeros in A and in B outside of a part.
    pub fn with_operands_of_part(mut self, part: Triangle) -> Self {
        for Problem { a, b, .. } in &mut self.problems {
            for operand in [a, b] {
                let (rows, cols) = (operand.rows(), operand.cols());
                for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                    if !part.contains(row as u32, col as u32) {
                        operand.set(row, col, 0.0);
                    }
                }
            }
        }
        self
    }
}

/// The results of a batch.
#[derive(Clone, Debug)]
pub struct Results(Vec<Operand>);

impl Results {
    /// The result of each product.
    pub fn iter(&self) -> impl Iterator<Item = &Operand> {
        self.0.iter()
    }

    /// The bits of all elements of all results.
    pub fn bits(&self) -> Vec<u32> {
        self.0.iter().flat_map(Operand::bits).collect()
    }
}

/// A plan that uses `kernel` for `C = α·A·B + β·C`, and its operands in memory of a device.
#[derive(Debug)]
pub struct Planned<'a> {
    device: &'a Device,
    plan: GemmPlan,
    batch: &'a Batch,
    a: DeviceMatrix,
    b: DeviceMatrix,
    c: DeviceMatrix,
}

/// The memory of operands, guard words included, one after the other.
fn memory(operands: &[&Operand]) -> Vec<f32> {
    operands.iter().flat_map(|operand| operand.memory.iter().copied()).collect()
}

/// A copy of the operands of a batch on a device; of the first if they are `shared`.
fn upload(device: &Device, operands: &[&Operand], shared: bool) -> Result<DeviceMatrix, Error> {
    let first = operands.first().ok_or("a batch of nothing")?;
    let buffer = device.upload(&memory(if shared { &operands[..1] } else { operands }))?;
    let matrix = DeviceMatrix::new(buffer, first.rows(), first.cols(), first.strides())?;
    let stride = if shared { 0 } else { first.memory.len() };
    Ok(matrix.moved_by(first.extent().start)?.into_batch(operands.len(), stride)?)
}

/// What a device has where `before` was put; fails if something around the elements has changed.
fn download(there: &DeviceMatrix, before: &[&Operand]) -> Result<Vec<Operand>, Error> {
    let mut copies: Vec<Operand> = before.iter().map(|&operand| operand.clone()).collect();
    let mut all = vec![0.0; there.buffer().len()];
    there.buffer().copy_to(&mut all)?;
    for (index, copy) in copies.iter_mut().enumerate() {
        let len = copy.memory.len();
        let start = (index * len) % all.len(); // a shared one is there once
        copy.memory.copy_from_slice(&all[start..start + len]);
        copy.check_surroundings()?;
    }
    Ok(copies)
}

/// Whether everything outside of the parts of a workspace is as it was made. The parts are counted from the end of the first
/// guard on.
fn check_around_parts(memory: &[f32], parts: &[Range<usize>]) -> Result<(), String> {
    let is_inside = |position: usize| parts.iter().any(|part| position >= GUARD && part.contains(&(position - GUARD)));
    let written =
        (0..memory.len()).find(|&position| memory[position].to_bits() != SENTINEL.to_bits() && !is_inside(position));
    match written {
        Some(position) => Err(format!(
            "word {} of the workspace is in none of its parts, {parts:?}, but is now {}",
            position as isize - GUARD as isize,
            memory[position]
        )),
        None => Ok(()),
    }
}

impl<'a> Planned<'a> {
    /// Plans products. `None` if the kernel cannot compute them.
    ///
    /// # Errors
    /// What placing the operands reports, or planning apart from a refusal.
    pub fn new(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
    ) -> Result<Option<Self>, Error> {
        Self::described(device, kernel, splits, batch, false)
    }

    /// The same, with steps behind the products or without.
    fn described(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
        has_steps: bool,
    ) -> Result<Option<Self>, Error> {
        let [a, b, c] = batch.upload(device)?;
        let Problem { alpha, beta, .. } = batch.problems[0];
        let product = Description::of(alpha, &a, &b, beta, &c)?.with_part(batch.part).with_epilogue(has_steps);
        let options = Options { kernel: Some(kernel), splits, ..Options::default() };
        match GemmPlan::new(device, &product, &options) {
            Ok(plan) => Ok(Some(Self { device, plan, batch, a, b, c })),
            Err(tilewright::Error::Ineligible { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The same plan for another device: one that is made there may multiply the transposes, whose low parts are added in another order.
    ///
    /// # Errors
    /// What placing the operands reports.
    pub fn on<'b>(&self, device: &'b Device) -> Result<Planned<'b>, Error>
    where
        'a: 'b,
    {
        let [a, b, c] = self.batch.upload(device)?;
        Ok(Planned { device, plan: self.plan.clone(), batch: self.batch, a, b, c })
    }

    /// The plan.
    pub fn plan(&self) -> &GemmPlan {
        &self.plan
    }

    /// Runs the plan on a C as it was, and looks at what is around it, at the operands, and at what is around the parts of
    /// the workspace.
    ///
    /// # Errors
    /// What the plan reports, or what is wrong, in words.
    pub fn run(&mut self) -> Result<Results, Error> {
        self.run_with(&Epilogue::new())
    }

    /// The same, with these steps.
    fn run_with(&mut self, epilogue: &Epilogue<'_>) -> Result<Results, Error> {
        let Self { device, plan, batch, a, b, c } = self;
        let of = |operand: fn(&Problem) -> &Operand| batch.problems.iter().map(operand).collect::<Vec<_>>();
        let (all_a, all_b, all_c) = (of(|problem| &problem.a), of(|problem| &problem.b), of(|problem| &problem.c));
        c.buffer_mut().copy_from(&memory(&all_c))?;

        // Of NaNs, and unwritten, so that what is read before it is written shows.
        let len = plan.workspace_bytes().div_ceil(size_of::<f32>());
        let mut around = vec![SENTINEL; GUARD + len + GUARD];
        let mut memory_of_workspace = device.upload(&around)?;
        memory_of_workspace.take_as_unwritten(GUARD..GUARD + len);
        let mut workspace = Workspace::within(memory_of_workspace, GUARD..GUARD + len);
        let Problem { alpha, beta, .. } = batch.problems[0];
        plan.run_with(device, epilogue, alpha, &*a, &*b, beta, c, &mut workspace)?;
        let memory_of_workspace = workspace.buffer_mut().ok_or("the workspace has lost its memory")?;
        memory_of_workspace.take_as_written();
        memory_of_workspace.copy_to(&mut around)?;
        check_around_parts(&around, &plan.workspace_parts())?;

        for (name, there, before) in [("A", &*a, all_a), ("B", &*b, all_b)] {
            for (index, (after, before)) in download(there, &before)?.iter().zip(before).enumerate() {
                if after.bits() != before.bits() {
                    return Err(format!("{name} of product {index} was changed").into());
                }
            }
        }
        Ok(Results(download(c, &all_c)?))
    }

    /// Runs the plan and compares every element with the product in double precision.
    ///
    /// With T the terms of a sum, an element may be off by `(p + 4·√T·2⁻²⁴)·S`: S is `|α|·Σ|a||b| + |β||c|`, and p what the
    /// kernel's scheme does to operands.
    ///
    /// # Errors
    /// As for [`Planned::run`]; what is wrong, in words.
    pub fn check(&mut self) -> Result<(), Error> {
        let scheme = self.plan.kernel().scheme;
        let Results(results) = self.run()?;
        for (index, (result, problem)) in results.iter().zip(&self.batch.problems).enumerate() {
            compare(scheme, problem, self.batch.part, result).map_err(|reason| format!("product {index}: {reason}"))?;
        }
        Ok(())
    }

    /// Plans products, and has them looked at; whether the kernel could compute them. What is wrong, in words, with the products.
    fn try_one(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
        look: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<bool, String> {
        let look = || match Self::new(device, kernel, splits, batch)? {
            Some(mut planned) => look(&mut planned).map(|()| true),
            None => Ok(false),
        };
        look().map_err(|reason: Error| format!("{}: {batch:?}, splits {splits:?}: {reason}", kernel.name))
    }

    /// Runs the plan, and compares each result with its product by `compare`.
    fn compare_each(&mut self, compare: impl Fn(&Problem, &Operand) -> Result<(), String>) -> Result<(), Error> {
        let results = self.run()?;
        Ok(results.iter().zip(&self.batch.problems).try_for_each(|(result, problem)| compare(problem, result))?)
    }

    /// Plans products, and compares their results as [`special::check`](crate::special::check) does; whether the kernel could compute
    /// them.
    ///
    /// # Errors
    /// As for [`Planned::new`] and [`Planned::run`]; what is wrong, in words, with the products.
    pub fn check_closely(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
        bound: f64,
    ) -> Result<bool, String> {
        let compare = |problem: &Problem, result: &Operand| special::check(problem, result, kernel.scheme, bound);
        Self::try_one(device, kernel, splits, batch, |planned| planned.compare_each(compare))
    }

    /// Plans a product of [`special_values`], and compares it; whether the kernel could compute it.
    ///
    /// # Errors
    /// As for [`Planned::new`] and [`Planned::run`]; what is wrong, in words, with the product.
    pub fn check_special_values(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
    ) -> Result<bool, String> {
        let compare = |problem: &Problem, result: &Operand| special_values::check(kernel.scheme, problem, result);
        Self::try_one(device, kernel, splits, batch, |planned| planned.compare_each(compare))
    }

    /// Plans products, and checks them; whether the kernel could compute them.
    ///
    /// # Errors
    /// As for [`Planned::new`] and [`Planned::check`], with the products.
    pub fn check_one(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        batch: &'a Batch,
    ) -> Result<bool, String> {
        Self::try_one(device, kernel, splits, batch, Self::check)
    }
}

/// Whether a kernel can compute a product of these extents, with β = 0, and leaves tiles to be repaired to [`gemm_repair_fp32`].
///
/// # Errors
/// What planning reports apart from a refusal, in words.
pub(crate) fn repairs_tiles(
    device: &Device,
    kernel: &'static KernelInfo,
    splits: Option<u32>,
    sizes: Sizes,
    layouts: Layouts,
) -> Result<bool, String> {
    let placed = |layout: Layout, rows: usize, cols: usize| {
        let [row_stride, col_stride] = layout.strides(rows, cols);
        let alignment = if layout.offset == 0 { GUARD * size_of::<f32>() } else { size_of::<f32>() };
        Placement { row_stride, col_stride, batch_stride: 0, alignment }
    };
    let Sizes { m, n, k } = sizes;
    let (a, b, c) = (placed(layouts.a, m, k), placed(layouts.b, k, n), placed(layouts.c, m, n));
    let product = Description::new(sizes, 1, a, b, c).map_err(|error| error.to_string())?.with_factors(1.0, 0.0);
    let options = Options { kernel: Some(kernel), splits, ..Options::default() };
    match GemmPlan::new(device, &product, &options) {
        Ok(plan) => Ok(plan.kernels().iter().any(|kernel| kernel.name == gemm_repair_fp32::FACTS.name)),
        Err(tilewright::Error::Ineligible { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Plans products of which only a part is wanted, of operands of which only a part is not zero, and checks them; how many of them
/// the kernel could compute.
///
/// # Errors
/// As for [`Planned::check_one`].
pub fn check_parts(
    device: &Device,
    kernel: &'static KernelInfo,
    shapes: &[Sizes],
    layouts: Layouts,
) -> Result<usize, String> {
    const PARTS: [Triangle; 3] = [Triangle::All, Triangle::Upper, Triangle::Lower];
    let mut computed = 0;
    for (seed, &shape) in shapes.iter().enumerate() {
        for (wanted, filled) in PARTS.into_iter().flat_map(|wanted| PARTS.map(|filled| (wanted, filled))) {
            // The last one is a product alone, without gaps.
            for ((alpha, beta), layouts, count) in
                [((1.0, 0.0), layouts, 2), ((-0.7, 0.3), layouts.padded(), 2), ((0.5, 0.2), layouts, 1)]
            {
                let batch = Batch::new(count, [false, true], shape, layouts, seed as u64).scaled(alpha, beta);
                let batch = batch.with_part(wanted).with_operands_of_part(filled);
                computed += usize::from(Planned::check_one(device, kernel, None, &batch)?);
            }
        }
    }
    Ok(computed)
}

/// Compares one result, which has zeros outside of a part.
fn compare(scheme: Scheme, problem: &Problem, part: Triangle, result: &Operand) -> Result<(), String> {
    error_of(scheme, problem, part, result).map(|_| ())
}

/// The errors of a result, which has zeros outside of a part, as parts of the sums of magnitudes, and what they may be.
///
/// # Errors
/// What is wrong, in words, if an error is larger than that.
pub(crate) fn error_of(
    scheme: Scheme,
    problem: &Problem,
    part: Triangle,
    result: &Operand,
) -> Result<(Array2<f64>, f64), String> {
    let result = result.to_f64();
    let Problem { alpha, a, b, beta, c } = problem;
    let terms = (a.cols() + 2) as f64;
    let (alpha, beta) = (f64::from(*alpha), f64::from(*beta));
    let (mut value, mut magnitude) = (Array2::zeros(result.dim()), Array2::zeros(result.dim()));
    if alpha != 0.0 {
        let (a, b) = (a.to_f64(), b.to_f64());
        value.scaled_add(alpha, &a.dot(&b));
        magnitude.scaled_add(alpha.abs(), &magnitudes(scheme, &a).dot(&magnitudes_of_columns(scheme, &b)));
    }
    if beta != 0.0 {
        value.scaled_add(beta, &c.to_f64());
        magnitude.scaled_add(beta.abs(), &c.to_f64().mapv(f64::abs));
    }
    let bound = loss(scheme) + 4.0 * terms.sqrt() * ROUNDING;
    let mut errors = Array2::zeros(result.dim());
    for (index, &found) in result.indexed_iter() {
        if !part.contains(index.0 as u32, index.1 as u32) {
            if found.to_bits() != 0 {
                return Err(format!("element {index:?} is {found} and should be zero: it is not wanted"));
            }
            continue;
        }
        let off = (found - value[index]).abs();
        errors[index] = if off == 0.0 { 0.0 } else { (found - value[index]) / magnitude[index] };
        if off.is_nan() || off > bound * magnitude[index] {
            return Err(format!(
                "element {index:?} is {found} and should be {}: {:.3e} of the sum of magnitudes, beyond {bound:.3e}",
                value[index],
                off / magnitude[index]
            ));
        }
    }
    Ok((errors, bound))
}

/// What a scheme loses of the operands, as a part of `Σ|a||b|`.
fn loss(scheme: Scheme) -> f64 {
    // The tensor core truncates its sums of 32 terms: about as much as the issue allows for all, 10⁻⁶.
    let on_tensor_cores = |precision: MmaPrecision| precision.element_bound().max(1e-6);
    match scheme {
        // It adds up without errors, and may be wrong by the roundings of α and β.
        Scheme::Fp32 | Scheme::Fp32Fp64 => 0.0,
        // Of the maxima of rows and columns: see `gpu_kernels::pack::digits`.
        Scheme::Fp32TenInt8 => 4.02 / f64::from(1 << 28),
        Scheme::Fp32ThreeTf32 => on_tensor_cores(MmaPrecision::Fp32ThreeTf32),
        // Each operand keeps 22 bits: see `gpu_kernels::pack::scaled`.
        Scheme::Fp32ThreeFp16 => 1e-6,
        // Of the maxima of rows and columns: two halves of a unit in the last of 22 bits, and what two low parts give.
        Scheme::Fp32ScaledFp16 => 1e-6,
        Scheme::Tf32 => on_tensor_cores(MmaPrecision::Tf32),
        Scheme::Bf16 => on_tensor_cores(MmaPrecision::Bf16),
        Scheme::Fp16 => on_tensor_cores(MmaPrecision::Fp16),
    }
}

/// By what an error is measured: magnitudes of elements, or for schemes that scale rows, the largest of its row.
pub(crate) fn magnitudes(scheme: Scheme, a: &Array2<f64>) -> Array2<f64> {
    let mut magnitudes = a.mapv(f64::abs);
    if scheme.scales_lines() {
        for mut row in magnitudes.axis_iter_mut(Axis(0)) {
            let largest = row.iter().fold(0.0, |largest: f64, &element| largest.max(element));
            row.fill(largest);
        }
    }
    magnitudes
}

/// The same for the columns of B.
pub(crate) fn magnitudes_of_columns(scheme: Scheme, b: &Array2<f64>) -> Array2<f64> {
    magnitudes(scheme, &b.t().to_owned()).reversed_axes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_beside_the_parts_of_a_workspace_is_found() {
        let parts = [0..5, 64..70];
        let mut memory = vec![SENTINEL; GUARD + 70 + GUARD];
        for part in &parts {
            memory[GUARD + part.start..GUARD + part.end].fill(1.0);
        }
        assert_eq!(check_around_parts(&memory, &parts), Ok(()));
        for (position, word) in [(GUARD - 1, "word -1 "), (GUARD + 5, "word 5 "), (GUARD + 70, "word 70 ")] {
            let mut written = memory.clone();
            written[position] = f32::from_bits(SENTINEL.to_bits() + 1);
            assert!(check_around_parts(&written, &parts).is_err_and(|error| error.starts_with(word)));
        }
    }
}
