//! The choice: all kernels, those that can compute a product, the one that should.

use std::ops::Range;

use gpu_kernels::Triangle;

use crate::kernels::{self, CLEAR, Family, KernelInfo, Launch, REDUCTION, REPAIR, Scheme};
use crate::plan::explanation::{Candidate, Explanation, Reason};
use crate::plan::preparation::{Operand, Preparation};
use crate::plan::workspace::Layout;
use crate::plan::{Description, DeviceFacts, GemmPlan, Options, Refusal, Storage, Table, model};
use crate::{Bytes, Error, Precision};

/// Makes a plan for a device that need not be there.
///
/// # Errors
/// As for [`GemmPlan::new`].
pub fn plan(device: &DeviceFacts, product: &Description, options: &Options) -> Result<GemmPlan, Error> {
    choose(device, product, options, |_| true)
}

/// A kernel, and how it would compute the product.
struct Way {
    kernel: &'static KernelInfo,
    fallback: Option<&'static KernelInfo>,
    transposed: bool,
    splits: u32,
    preparations: [Preparation; 2],
    partials: Range<usize>,
    marks: Range<usize>,
    workspace_bytes: usize,
    estimated_ms: f64,
}

/// What a choice is made from.
struct Question<'a> {
    device: &'a DeviceFacts,
    product: &'a Description,
    precision: Precision,
    splits: Option<u32>,
}

/// As [`plan`], of kernels that the device has loaded.
pub(super) fn choose(
    device: &DeviceFacts,
    product: &Description,
    options: &Options,
    is_loaded: impl Fn(&KernelInfo) -> bool,
) -> Result<GemmPlan, Error> {
    if options.splits == Some(0) {
        return Err(Error::Usage("splits is 0: sums are divided among at least one block".to_owned()));
    }
    let precision = (options.precision).or(options.kernel.map(KernelInfo::precision)).unwrap_or_default();
    let table = options.tables.table(device)?;
    let question = Question { device, product, precision, splits: options.splits };
    let mut ways: Vec<(&'static KernelInfo, Result<Way, Refusal>)> = (kernels::ALL.iter())
        .map(|&kernel| {
            let way = match is_loaded(kernel) {
                true => question.way(kernel, options.kernel.is_some_and(|named| std::ptr::eq(named, kernel))),
                false => Err(Refusal::NotInPtx { device: device.to_string() }),
            };
            (kernel, way)
        })
        .collect();

    let (chosen, reason) = match options.kernel {
        Some(named) => match ways.iter().position(|(kernel, _)| std::ptr::eq(*kernel, named)) {
            Some(index) if ways[index].1.is_ok() => (index, Reason::Name),
            Some(_) | None => return Err(question.ineligible(named, &ways)),
        },
        None => match table.and_then(|table| question.measured(&mut ways, table)) {
            Some(choice) => choice,
            None => question.preferred(&ways).ok_or_else(|| question.no_kernel(&ways))?,
        },
    };
    Ok(question.plan(ways, chosen, reason))
}

impl Question<'_> {
    /// How a kernel would compute the product.
    fn way(&self, kernel: &'static KernelInfo, named: bool) -> Result<Way, Refusal> {
        // Where operands may have to be copied, of the transposes perhaps less.
        if kernel.transposing {
            let ways = [false, true].map(|transposed| {
                let product = if transposed { self.product.transposed() } else { *self.product };
                self.way_of(kernel, named, &product, transposed)
            });
            return match ways {
                [Ok(one), Ok(other)] => Ok(if other.estimated_ms < one.estimated_ms { other } else { one }),
                [Err(_), Ok(way)] => Ok(way),
                [way, Err(_)] => way,
            };
        }
        // The transposes, too, where C is stored by columns, or is a row that is a column then.
        let by_columns = self.product.c.storage() == Storage::ByColumns || self.product.m == 1;
        if by_columns && let Ok(way) = self.way_of(kernel, named, &self.product.transposed(), true) {
            return Ok(way);
        }
        self.way_of(kernel, named, self.product, false)
    }

    fn way_of(
        &self,
        kernel: &'static KernelInfo,
        named: bool,
        product: &Description,
        transposed: bool,
    ) -> Result<Way, Refusal> {
        match kernel.refusal(self.device, product, self.precision, self.splits) {
            Some(refusal) if !(named && refusal.yields_to_name()) => return Err(refusal),
            Some(_) | None => {}
        }
        let operands = operands(kernel, product);
        let candidates = match self.splits {
            Some(splits) => vec![splits],
            None if self.device.is_cpu() => vec![1],
            None => model::candidate_splits(kernel, self.device, product),
        };
        let ways = candidates.into_iter().map(|splits| {
            let mut layout = Layout::default();
            let preparations = operands.map(|operand| match kernel.one_by_one() || product.terms() == 0 {
                true => Some(Preparation::InPlace),
                false => operand.prepare(kernel, &mut layout),
            });
            // One product at a time can use the same partial sums as the one before.
            let products = if kernel.one_by_one() { 1 } else { product.batch };
            let elements = match splits {
                _ if kernel.varies => 0,
                1 => 0,
                _ => product.m as u128 * product.n as u128 * products as u128 * u128::from(splits),
            };
            let memory = self.device.memory_bytes.unwrap_or(u64::MAX);
            let refused = |bytes: u128| Refusal::Workspace { needs: Bytes(bytes), has: Bytes(memory.into()) };
            let (partials, marks) = (layout.part(elements), layout.part(kernel.marks(product, splits)));
            let ([Some(a), Some(b)], Some(partials), Some(marks)) = (preparations, partials, marks) else {
                return Err(refused(u128::MAX));
            };
            let preparations = [a, b];
            if layout.bytes() as u64 > memory {
                return Err(refused(layout.bytes() as u128));
            }
            let estimated_ms = model::estimate(kernel, self.device, product, splits, &preparations);
            let storages = operands.map(|operand| operand.storage_of_fallback());
            Ok(Way {
                kernel,
                fallback: kernel.fallback(storages, product.terms() / splits.max(1) as usize),
                transposed,
                splits,
                preparations,
                partials,
                marks,
                workspace_bytes: layout.bytes(),
                estimated_ms,
            })
        });
        // The fastest; if there is none, the reason of the first.
        ways.reduce(|best, way| match (&best, &way) {
            (Ok(one), Ok(other)) if other.estimated_ms < one.estimated_ms => way,
            (Err(_), Ok(_)) => way,
            _ => best,
        })
        .unwrap_or(Err(Refusal::NoTerms))
    }

    /// The way that a table has as the fastest of those that there are, and why.
    fn measured(
        &self,
        ways: &mut [(&'static KernelInfo, Result<Way, Refusal>)],
        table: &Table,
    ) -> Option<(usize, Reason)> {
        // A kernel that is newer than the table, and should be faster than all others.
        if self.preferred(ways).is_some_and(|(index, _)| !table.has(ways[index].0.name)) {
            return None;
        }
        let (entry, exact) = table.nearest(self.product, self.precision)?;
        let position = |name: &str| ways.iter().position(|(kernel, way)| kernel.name == name && way.is_ok());
        let (index, time) = entry.times.iter().find_map(|time| Some((position(&time.kernel)?, time)))?;
        if exact && self.splits.is_none() {
            let splits = Some(time.splits);
            if let Ok(way) = (Question { splits, ..*self }).way(ways[index].0, false) {
                ways[index].1 = Ok(way);
            }
        }
        let (source, measured, median_us) = (table.source(), entry.product(), time.median_us);
        Some((index, Reason::Table { source, measured, median_us }))
    }

    /// The way that is taken if no kernel is named and nothing is measured, and why.
    fn preferred(&self, ways: &[(&'static KernelInfo, Result<Way, Refusal>)]) -> Option<(usize, Reason)> {
        let possible = || ways.iter().enumerate().filter_map(|(index, (_, way))| Some((index, way.as_ref().ok()?)));
        if self.device.is_cpu() {
            let (index, _) = possible().max_by_key(|(index, way)| (way.kernel.family() == Family::Gemv, *index))?;
            return Some((index, Reason::Ladder));
        }
        let (index, _) = possible().min_by(|(_, one), (_, other)| one.estimated_ms.total_cmp(&other.estimated_ms))?;
        Some((index, Reason::Model))
    }

    fn ineligible(&self, named: &'static KernelInfo, ways: &[(&KernelInfo, Result<Way, Refusal>)]) -> Error {
        let refusal =
            ways.iter().find(|(kernel, _)| std::ptr::eq(*kernel, named)).and_then(|(_, way)| way.as_ref().err());
        Error::Ineligible {
            kernel: named.name,
            product: self.product.to_string(),
            reason: Box::new(refusal.cloned().unwrap_or(Refusal::NotInPtx { device: self.device.to_string() })),
            others: ways.iter().filter(|(_, way)| way.is_ok()).map(|(kernel, _)| kernel.name).collect(),
        }
    }

    fn no_kernel(&self, ways: &[(&KernelInfo, Result<Way, Refusal>)]) -> Error {
        let of_the_precision = ways.iter().filter_map(|(kernel, way)| match way {
            Err(Refusal::Precision { .. }) | Ok(_) => None,
            Err(refusal) => Some((kernel.name, refusal.clone())),
        });
        let precisions = Precision::ALL.into_iter().filter(|&precision| {
            let question = Question { precision, ..*self };
            kernels::ALL.iter().any(|kernel| question.way(kernel, false).is_ok())
        });
        Error::NoKernel {
            precision: self.precision,
            product: self.product.to_string(),
            device: self.device.to_string(),
            refusals: of_the_precision.collect(),
            precisions: precisions.collect(),
        }
    }

    fn plan(
        &self,
        mut ways: Vec<(&'static KernelInfo, Result<Way, Refusal>)>,
        chosen: usize,
        reason: Reason,
    ) -> GemmPlan {
        let timed = !self.device.is_cpu();
        let mut candidates: Vec<Candidate> = (ways.iter())
            .map(|(kernel, way)| Candidate {
                kernel: kernel.name.to_owned(),
                splits: way.as_ref().map_or(1, |way| way.splits),
                estimated_ms: way.as_ref().ok().filter(|_| timed).map(|way| way.estimated_ms),
                refusal: way.as_ref().err().map(Refusal::to_string),
            })
            .collect();
        candidates.sort_by(|one, other| {
            let key = |it: &Candidate| (it.refusal.is_some(), it.estimated_ms.unwrap_or(0.0));
            let ((refused, estimate), (other_refused, other_estimate)) = (key(one), key(other));
            refused.cmp(&other_refused).then(estimate.total_cmp(&other_estimate))
        });
        let Ok(way) = ways.swap_remove(chosen).1 else { unreachable!("what is chosen can compute the product") };
        let computed = if way.transposed { self.product.transposed() } else { *self.product };
        let explanation = Explanation {
            product: *self.product,
            device: self.device.clone(),
            precision: self.precision,
            kernel: way.kernel.name.to_owned(),
            scheme: way.kernel.scheme.words().to_owned(),
            reason,
            notes: self.notes(&way, &computed),
            tile: way.kernel.tile.map(|tile| [tile.m, tile.n, tile.k]),
            splits: way.splits,
            blocks: u64::try_from(way.kernel.blocks(&computed, way.splits)).unwrap_or(u64::MAX),
            workspace_bytes: way.workspace_bytes as u64,
            steps: steps(&way, &computed),
            estimated_ms: timed.then_some(way.estimated_ms),
            candidates,
        };
        GemmPlan {
            product: *self.product,
            transposed: way.transposed,
            kernel: way.kernel,
            fallback: way.fallback,
            splits: way.splits,
            preparations: way.preparations,
            partials: way.partials,
            marks: way.marks,
            workspace_bytes: way.workspace_bytes,
            explanation,
        }
    }

    fn notes(&self, way: &Way, computed: &Description) -> Vec<String> {
        let mut notes = Vec::new();
        if way.transposed {
            notes.push("computed as the transpose, C' = B'·A': the same numbers in the same places".to_owned());
        }
        for (operand, preparation) in operands(way.kernel, computed).iter().zip(&way.preparations) {
            notes.extend(preparation.note(operand.name));
        }
        if let Some(fallback) = way.fallback {
            let what = if way.kernel.scheme == Scheme::Fp32ScaledFp16 {
                "with infinities, NaN or a largest element that is very large or small"
            } else {
                "with infinities, NaN, or elements too small beside their largest"
            };
            notes.push(format!("rows of A and columns of B {what} are left to {}", fallback.name));
        }
        if self.precision == Precision::Fp32 && way.kernel.scheme == Scheme::Fp32 {
            notes.push("no tensor cores: all operations are fused fp32 ones, as for fp32-strict".to_owned());
        }
        if let Some(refusal) = way.kernel.refusal(self.device, computed, self.precision, self.splits) {
            notes.push(format!("not chosen unasked: {refusal}"));
        }
        if self.product.is_empty() {
            notes.push("there is no element to compute, so nothing runs".to_owned());
        }
        notes
    }
}

/// The operands of a product, and how a kernel needs them.
fn operands(kernel: &KernelInfo, product: &Description) -> [Operand; 2] {
    let Description { m, n, k, batch, a, b, .. } = *product;
    [
        Operand { name: "A", placement: a, rows: m, cols: k, batch, needs: kernel.a, lines_are_rows: true },
        Operand { name: "B", placement: b, rows: k, cols: n, batch, needs: kernel.b, lines_are_rows: false },
    ]
}

/// What runs, in words.
fn steps(way: &Way, product: &Description) -> Vec<String> {
    let Way { kernel, splits, .. } = way;
    let times = if kernel.one_by_one() && product.batch != 1 {
        format!(", once for each of {} products", product.batch)
    } else {
        String::new()
    };
    let name = kernel.name;
    let mut steps = Vec::new();
    for (operand, preparation) in operands(kernel, product).iter().zip(&way.preparations) {
        steps.extend(preparation.steps(operand.name));
    }
    let to = if *splits == 1 { "" } else { ", to partial sums in the workspace" };
    let fallback = way.fallback.map(|fallback| {
        format!("multiply the tiles of unfit rows and columns, if there are any, with {}{to}", fallback.name)
    });
    match kernel.launch {
        Launch::AtomicGemv { .. } => {
            steps.push(format!("scale the result by beta with {}{times}", REDUCTION.name));
            steps.push(format!("multiply with {name}, {splits} splits, and add to the result{times}"));
        }
        _ if *splits == 1 => {
            steps.push(format!("multiply with {name}{times}"));
            steps.extend(fallback);
        }
        _ => {
            steps.push(format!("multiply with {name}, {splits} splits{to}{times}"));
            steps.extend(fallback);
            steps.push(format!("add up the partial sums, in order, with {}{times}", REDUCTION.name));
        }
    }
    if !way.marks.is_empty() {
        steps.push(format!(
            "compute tiles again whose operands cannot be split, if there are any, with {}",
            REPAIR.name
        ));
    }
    if product.part != Triangle::All {
        steps.push(format!("set to zero what is not wanted of the result, with {}", CLEAR.name));
    }
    steps
}
