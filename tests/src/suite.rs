//! The products by which every kernel of the registry is tried on the executor, with all its checks and with guard words around
//! operands and workspace: what `gpu.rs` does on a GPU, for few and small products, because the executor is slow.
//!
//! Small as they are, each kernel comes to every call of its source by them: rings go round more than once, blocks compute more than
//! one tile, sums are divided, and operands are such that tiles have to be computed in another way.

use tilewright::kernels::{self, KernelInfo, Scheme};
use tilewright::{Device, Precision};

use crate::{Batch, Layouts, Planned, Problem, Sizes, planned, special};

/// Products, how to compare them, and among how many blocks to divide their sums, if not what is fastest.
pub struct Trial {
    /// Makes the products, which takes longer than many a kernel does.
    batch: Box<dyn Fn() -> Batch>,
    splits: Option<u32>,
    /// Whether it takes so long that a kernel is tried in one layout only.
    is_long: bool,
    /// Its extents and layouts, if it is for kernels alone whose blocks share the looking for operands that are too small: it takes long.
    if_scans_are_shared: Option<(Sizes, Layouts)>,
    against: Against,
}

/// What results are compared with.
#[derive(Clone, Copy)]
enum Against {
    /// Double precision, where they may be off by what rounding in fp32 could make of them.
    Rounding,
    /// The same, where they may be off by less: by so large a part of the sum of magnitudes.
    Bound(f64),
    /// What steps make of results without them.
    Steps,
}

/// Makes one product.
fn one(problem: impl Fn() -> Problem + 'static) -> Box<dyn Fn() -> Batch> {
    Box::new(move || problem().into())
}

/// The trials of a kernel, small ones first; those among them that it can compute, depend on how it needs its operands to be stored.
pub fn trials(kernel: &KernelInfo) -> Vec<Trial> {
    let shape = |m, n, k| kernel.within(Sizes { m, n, k });
    let mut trials = Vec::new();
    for layouts in Layouts::ALL {
        let mut add = |batch, splits| trials.push(Trial::new(batch, splits));
        // Rows with gaps as no tensor map allows.
        for splits in [None, Some(2)] {
            let sizes = shape(37, 35, 70);
            add(one(move || Problem::new(sizes, layouts.padded(), 3).scaled(-0.7, 0.3)), splits);
        }
        let small = shape(5, 6, 40);
        add(Box::new(move || Batch::new(2, [true, false], small, layouts, 4)), None);
        add(Box::new(move || Batch::new(2, [false, true], small, layouts, 13)), None);
        // Rows that end within a vector.
        let odd = shape(37, 35, 71);
        add(one(move || Problem::new(odd, layouts.aligned(odd), 14)), None);
        // Few terms, and not a multiple of four.
        let sizes = shape(37, 35, 13);
        add(one(move || Problem::new(sizes, layouts.padded(), 19)), None);
        // Rows of whole vectors that begin anywhere.
        let sizes = shape(5, 8, 12);
        add(one(move || Problem::new(sizes, layouts.padded(), 18)), None);
        // Lines that are scaled in different ways, where operands are scaled.
        let sizes = shape(37, 36, 60);
        add(one(move || Problem::new(sizes, layouts, 15).graded()), None);
        // Results that a tensor map can describe, and few terms.
        add(one(move || Problem::new(sizes, layouts, 5).scaled(-0.7, 0.0)), None);
        let mut add = |batch, splits| trials.push(Trial { is_long: true, ..Trial::new(batch, splits) });
        // More steps than there are places in any ring, and lines that are scaled in different ways, by what stands in any place.
        let sizes = shape(33, 36, 648);
        add(one(move || Problem::new(sizes, layouts, 6).graded()), None);
        // So many partial sums that several threads share their adding up.
        let sizes = shape(6, 8, 648);
        add(one(move || Problem::new(sizes, layouts, 9)), Some(20));
        // Lines of more terms than a warp holds.
        let sizes = shape(3, 4, 1100);
        add(one(move || Problem::new(sizes, layouts, 10)), None);
        // Sums that only grow, and lose something in every step that is not rounded to nearest.
        if kernel.a.is_some() && kernel.scheme.precision() == Precision::Fp32 {
            let sizes = shape(16, 8, 1536);
            let growing = one(move || Problem::new(sizes, layouts, 12).with_magnitudes());
            let against = Against::Bound(special::bound(kernel.scheme));
            trials.push(Trial { is_long: true, against, ..Trial::new(growing, Some(1)) });
        }
        let mut add = |batch, splits, is_long| {
            trials.push(Trial { is_long, ..Trial::new(batch, splits) });
        };
        // More than one tile in either direction, of which one block of the executor computes several, and more than one group of lines that are
        // scaled in different ways.
        let sizes = shape(260, 264, 60);
        add(one(move || Problem::new(sizes, layouts, 7).graded()), None, true);
        // Operands too small to be split into parts, or to be scaled together with others.
        if !matches!(kernel.scheme, Scheme::Tf32 | Scheme::Bf16 | Scheme::Fp16) {
            // And so many tiles in a row that they share the looking for such operands.
            for (sizes, seed, is_long) in
                [(shape(37, 36, 60), 8, false), (shape(37, 1100, 40), 11, true), (shape(2060, 36, 40), 16, true)]
            {
                add(one(move || Problem::new(sizes, layouts, seed).with_tiny_elements()), None, is_long);
            }
        }
        // The same in one of some products, which may have one operand for all; and with more than one group of its lines, or of the others'.
        // (Kernels without tensor maps read a shared operand as any other one.)
        if kernel.loads_by_tensor_maps() && !matches!(kernel.scheme, Scheme::Tf32 | Scheme::Bf16 | Scheme::Fp16) {
            for (shared, sizes, layouts) in [
                ([true, false], shape(37, 300, 60), layouts),
                ([false, true], shape(37, 36, 70), layouts.padded()),
                ([true, false], shape(300, 36, 70), layouts.padded()),
                ([true, true], shape(37, 36, 60), layouts.padded()),
                // Copied in the other order.
                ([false, false], shape(37, 36, 60), layouts.spread()),
            ] {
                let batch = move || Batch::new(3, shared, sizes, layouts, 24).with_tiny_elements_in_the_last();
                add(Box::new(batch), None, true);
            }
        }
        // Operands with few such elements, which are left out when the others are packed.
        if matches!(kernel.scheme, Scheme::Fp32ThreeFp16 | Scheme::Fp32ScaledFp16) {
            let sizes = shape(70, 72, 130);
            add(one(move || Problem::new(sizes, layouts, 21).with_single_tiny_elements()), None, false);
            let sizes = shape(70, 68, 60);
            add(
                one(move || Problem::new(sizes, layouts.padded(), 22).with_single_tiny_elements().scaled(-0.7, 0.3)),
                None,
                true,
            );
            // Their products, and then α, of results that TMA can store.
            let sizes = shape(70, 68, 60);
            add(
                one(move || Problem::new(sizes, layouts, 28).with_single_tiny_elements().scaled(-0.7, 0.0)),
                None,
                true,
            );
            // Several in a group of lines.
            let sizes = shape(150, 71, 200);
            add(one(move || Problem::new(sizes, layouts.padded(), 23).with_single_tiny_elements()), Some(2), true);
        }
        // Groups of lines that every thread of a block has one of: left to the fallback, or not and of several steps.
        if kernel.scheme == Scheme::Fp32TenInt8 {
            let (tiny, fit) = (shape(256, 256, 40), shape(256, 36, 264));
            add(one(move || Problem::new(tiny, layouts, 22).with_tiny_elements()), None, true);
            add(one(move || Problem::new(fit, layouts, 23).graded()), None, true);
        }
        // Operands that select elements of the other one, which keep all their bits.
        if matches!(kernel.scheme.precision(), Precision::Fp32 | Precision::Fp32Strict | Precision::Fp32Rounded) {
            let mut add = |sizes, layouts, in_a, splits| {
                let batch = one(move || Problem::new(sizes, layouts, 20).selecting(in_a));
                trials.push(Trial { against: Against::Bound(0.0), ..Trial::new(batch, splits) });
            };
            add(shape(37, 36, 60), layouts, false, Some(1));
            add(shape(37, 35, 70), layouts.padded(), true, Some(2));
            // So small that the first numbers of an operand, which tell that it does not select, are the last ones of lines, too.
            add(shape(20, 24, 5), layouts.padded(), false, Some(1));
            add(shape(20, 24, 5), layouts.padded(), true, Some(1));
            // What a block finds is found by its first warp alone, or by its last.
            for (sizes, is_long) in [(shape(37, 36, 60), false), (shape(64, 64, 128), true)] {
                let Sizes { m, n, k } = sizes;
                let place = if is_long { [m - 1, k - 1, n - 1] } else { [0, 3.min(k - 1), 0] };
                let batch = one(move || Problem::new(sizes, layouts, 21).selecting_one(place));
                trials.push(Trial { is_long, against: Against::Bound(0.0), ..Trial::new(batch, Some(1)) });
            }
        }
        // And so many terms that this is worth while.
        if kernel.a.is_some() && kernel.scheme.precision() == Precision::Fp32 {
            let sizes = shape(37, 900, 1024);
            for in_a in [true, false] {
                let batch = one(move || Problem::new(sizes, layouts, 17).with_rare_tiny_elements(in_a));
                let if_scans_are_shared = Some((sizes, layouts));
                trials.push(Trial { if_scans_are_shared, ..Trial::new(batch, Some(1)) });
            }
        }
        // Whole tiles, and tiles that are none, of matrices and rows that begin anywhere.
        let sizes = shape(70, 68, 75);
        let batch = one(move || Problem::new(sizes, layouts.padded().moved(), 25));
        trials.push(Trial { is_long: true, ..Trial::new(batch, None) });
        // Steps behind a product, and behind one that is added to what is there.
        let sizes = shape(37, 36, 60);
        let batch = Box::new(move || Batch::new(2, [false; 2], sizes, layouts, 26));
        trials.push(Trial { against: Against::Steps, ..Trial::new(batch, None) });
        let sizes = shape(150, 70, 75);
        let batch = one(move || Problem::new(sizes, layouts.padded(), 27).scaled(-0.7, 0.3));
        trials.push(Trial { is_long: true, against: Against::Steps, ..Trial::new(batch, None) });
    }
    trials
}

impl Trial {
    /// One that is not long, whose results are compared with double precision.
    fn new(batch: Box<dyn Fn() -> Batch>, splits: Option<u32>) -> Self {
        Self { batch, splits, is_long: false, if_scans_are_shared: None, against: Against::Rounding }
    }

    /// Computes the products with a kernel and compares them with double precision; whether the kernel can compute them.
    ///
    /// # Errors
    /// As for [`Planned::check_one`].
    pub fn run(&self, device: &Device, kernel: &'static KernelInfo) -> Result<bool, String> {
        // Before the products are made, which takes longer than all else for a kernel that does not.
        if let Some((sizes, layouts)) = self.if_scans_are_shared
            && !planned::repairs_tiles(device, kernel, self.splits, sizes, layouts)?
        {
            return Ok(false);
        }
        let batch = (self.batch)();
        match self.against {
            Against::Rounding => Planned::check_one(device, kernel, self.splits, &batch),
            Against::Steps => Planned::check_steps(device, kernel, self.splits, &batch),
            Against::Bound(bound) => Planned::check_closely(device, kernel, self.splits, &batch, bound),
        }
    }
}

/// How many trials a kernel could compute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Computed {
    /// All of them.
    pub trials: usize,
    /// Those for kernels alone whose blocks share the looking for operands that are too small.
    pub that_share_scans: usize,
}

/// Runs the trials of a kernel; how many it could compute. Each long one is run by every other kernel (kernels that differ in their layouts
/// alone are neighbours), in the first layout that the kernel takes, which is not the same for all trials, nor for all kernels; the program
/// `suite` runs all of them, in all layouts.
///
/// # Errors
/// What the first one reports that fails; if there is none that the kernel can compute.
pub fn run(device: &Device, kernel: &'static KernelInfo) -> Result<Computed, String> {
    let mut computed = Computed::default();
    let trials = trials(kernel);
    let layouts = Layouts::ALL.len();
    let own = kernels::ALL.iter().position(|other| other.name == kernel.name).unwrap_or(0);
    let in_each_layout = trials.len() / layouts;
    for number in 0..in_each_layout {
        if trials[number].is_long && !(own + number).is_multiple_of(2) {
            continue;
        }
        for turn in 0..layouts {
            let layout = (own + number + turn) % layouts;
            let trial = &trials[layout * in_each_layout + number];
            if trial.run(device, kernel)? {
                computed.trials += 1;
                computed.that_share_scans += usize::from(trial.if_scans_are_shared.is_some());
                if trial.is_long {
                    break;
                }
            }
        }
    }
    if computed.trials == 0 { Err(format!("{} has computed nothing", kernel.name)) } else { Ok(computed) }
}
