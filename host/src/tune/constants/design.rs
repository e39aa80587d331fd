//! Which products are measured with which kernel: a few for each, so that their times tell its constants apart. No GPU is needed to say
//! which, only what there is to know of one.
//!
//! ```text
//!  all steps     about one block for each multiprocessor, many steps       the share of the peak
//!  all blocks    many waves of blocks, few steps                           what a block costs
//!  unaligned     the same with operands that begin anywhere                what that costs
//!  odd rows      results whose rows begin anywhere, few steps              how results are stored
//!  spread        an operand with gaps, or packed, and few columns          copying and packing
//!  alone         one block, which memory does not keep waiting             both, where the memory is slow
//!  split         few tiles, long sums                                      partial results, more launches
//!  by chance     as programs have them                                     that the model is right on the whole, where it is not in all
//!  held out      others by chance, by a seed                               how far the model is from what it was not fitted to
//! ```

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::Error;
use crate::bench::atlas::{Operand, Shape};
use tilewright::kernels::{BATCHED, Family, KernelInfo, WHOLE, WHOLE_ROWS};
use tilewright::plan::{
    ConstantsChoice, Description, DeviceFacts, Features, GemmPlan, Options, candidate_splits, resident_blocks,
};
use tilewright::{Order, Orders, Precision};

/// What a product should take at the most, by the constants that are built in, in milliseconds: larger ones are made smaller.
const LONGEST_MS: f64 = 2.5;

/// The most bytes that operands and result lie in.
const MOST_BYTES: u64 = 160 << 20;

/// How many products of a kernel are drawn by chance to fit its constants to, and how many are held out.
const BY_CHANCE: usize = 4;
const HELD_OUT: usize = 4;

/// What those are drawn by that constants are fitted to.
const SEED: u64 = 0x7116;

/// A product to measure by a kernel.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The product.
    pub shape: Shape,
    /// How the kernel computes it.
    pub plan: GemmPlan,
    /// What its time depends on.
    pub features: Features,
    /// Whether constants are not fitted to it, but tried on it.
    pub held_out: bool,
}

/// Makes plans: for a device, or for what is known of one.
pub type Planner<'a> = &'a dyn Fn(&Description, &Options) -> Result<GemmPlan, tilewright::Error>;

/// The products to measure by a kernel; none where it cannot run on the GPU.
///
/// # Errors
/// Those of a planner, other than that the kernel cannot compute a product.
pub fn trials(
    facts: &DeviceFacts,
    plan: Planner<'_>,
    kernel: &'static KernelInfo,
    seed: u64,
) -> Result<Vec<Trial>, Error> {
    let mut trials = Vec::new();
    let mut add = |wanted: Wanted, held_out: bool| -> Result<(), Error> {
        trials.extend(trial(facts, plan, kernel, wanted, held_out)?);
        Ok(())
    };
    for wanted in fitted(facts, kernel) {
        add(wanted, false)?;
    }
    for (count, seed, held_out) in [(BY_CHANCE, SEED, false), (HELD_OUT, !seed, true)] {
        let mut generator = generator(kernel, seed);
        for _ in 0..count {
            add(by_chance(&mut generator, facts, kernel), held_out)?;
        }
    }
    Ok(trials)
}

/// All kernels, those first that most plans are made with.
pub fn kernels_in_order() -> Vec<&'static KernelInfo> {
    let place = |precision: Precision| match precision {
        Precision::Fp32 => 0,
        Precision::Fp32Strict => 1,
        Precision::Tf32 => 2,
        _ => 3,
    };
    let mut kernels = tilewright::kernels::ALL.to_vec();
    kernels.sort_by_key(|kernel| place(kernel.precision()));
    kernels
}

/// A product that a kernel should compute, as far as it can.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    batch: usize,
    extents: [usize; 3],
    placed: Placed,
    splits: Splits,
}

/// Among how many blocks sums are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Splits {
    /// As few as the kernel can.
    Fewest,
    /// As many as fill some waves.
    Many,
    /// What a plan would have.
    Planned,
}

/// How the operands and the result lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Placed {
    /// Without gaps, in extents that are made multiples of four.
    Dense,
    /// Operands begin anywhere, and so do their lines.
    Anywhere,
    /// Rows of the result begin anywhere.
    OddRows,
    /// A has gaps between all elements.
    Spread,
}

/// The products that constants are fitted to.
fn fitted(facts: &DeviceFacts, kernel: &KernelInfo) -> Vec<Wanted> {
    let multiprocessors = facts.multiprocessors.max(1) as usize;
    let one = |extents: [usize; 3], placed: Placed| Wanted { batch: 1, extents, placed, splits: Splits::Fewest };
    let tile = match (kernel.family(), kernel.tile) {
        (Family::Gemv, _) => {
            let sizes = [
                [512 * multiprocessors, 1, 256],
                [64 * multiprocessors, 1, 2048],
                [8 * multiprocessors, 1, 8192],
                [256, 1, 32_768],
                [8 * multiprocessors, 1, 512],
                [512, 1, 512],
                [2048 * multiprocessors, 1, 16],
                [1024 * multiprocessors, 1, 32],
            ];
            let dense = sizes.map(|extents| one(extents, Placed::Dense));
            let anywhere = sizes[..3].iter().map(|&extents| one(extents, Placed::Anywhere));
            return dense.into_iter().chain(anywhere).collect();
        }
        (Family::Gemm, None) if is_for_whole_products(kernel) => {
            let batches = [
                (multiprocessors, [12, 20, 12]),
                (multiprocessors, [32, 32, 32]),
                (4 * multiprocessors, [48, 48, 16]),
                (8 * multiprocessors, [24, 40, 8]),
                (16 * multiprocessors, [8, 8, 8]),
                (40 * multiprocessors, [8, 32, 32]),
                (64 * multiprocessors, [16, 16, 16]),
                (200 * multiprocessors, [4, 4, 4]),
            ];
            return batches.map(|(batch, extents)| Wanted { batch, ..one(extents, Placed::Dense) }).into();
        }
        (Family::Gemm, None) => {
            let sizes = [
                [256, 256, 256],
                [512, 512, 512],
                [1024, 1024, 64],
                [512, 256, 1024],
                [64, 64, 4096],
                [32, 64, 8192],
                [64, 32, 2048],
            ];
            return sizes.map(|extents| one(extents, Placed::Dense)).into();
        }
        (Family::Gemm, Some(tile)) => tile,
    };
    let [rows, cols, terms] = [tile.m, tile.n, tile.k].map(|extent| extent as usize);
    let is_small = is_for_batches(kernel);
    let grid = |blocks: usize, steps: usize, placed: Placed| {
        let blocks = blocks.max(1);
        if is_small {
            return Wanted { batch: blocks, extents: [rows, cols, steps * terms], placed, splits: Splits::Fewest };
        }
        // About a square, as far as the kernel takes as many columns.
        let high = ((blocks as f64 * cols as f64 / rows as f64).sqrt().round() as usize).clamp(1, blocks);
        let high = if kernel.most().n <= cols { blocks } else { high };
        one([high * rows, blocks.div_ceil(high) * cols, steps * terms], placed)
    };
    // As many blocks as run at a time; and one on each multiprocessor, where steps are faster than the model has it if there could be more.
    let (all, each) = (multiprocessors * resident_blocks(kernel, facts) as usize, multiprocessors);
    let mut products = vec![
        grid(all, 8, Placed::Dense),
        grid(all, 64, Placed::Dense),
        grid(all, 192, Placed::Dense),
        grid(2 * all, 32, Placed::Dense),
        grid(4 * all, 4, Placed::Dense),
        grid(4 * all, 16, Placed::Dense),
        grid(8 * all, 2, Placed::Dense),
        grid(each / 4, 4, Placed::Dense),
        grid(each / 4, 24, Placed::Dense),
        grid(each / 4, 160, Placed::Dense),
        grid(all, 64, Placed::Anywhere),
        grid(4 * all, 12, Placed::Anywhere),
        grid(2 * all, 24, Placed::Anywhere),
        grid(4 * all, 2, Placed::OddRows),
        grid(2 * all, 6, Placed::OddRows),
        // As one of those above: what it takes longer is for storing.
        grid(8 * all, 2, Placed::OddRows),
        Wanted { batch: 1, extents: [32 * each, cols.min(64), 1024], placed: Placed::Spread, splits: Splits::Planned },
    ];
    if all == each {
        products.extend([grid(1, 16, Placed::Dense), grid(1, 256, Placed::Dense)]);
    }
    if kernel.divides_sums {
        products.extend(
            [(each / 8, 512), (each / 3, 128), (1, 16), (1, 64), (3, 24)]
                .map(|(blocks, steps)| Wanted { splits: Splits::Many, ..grid(blocks, steps, Placed::Dense) }),
        );
    }
    products
}

/// Whether a kernel is for batches of small products.
fn is_for_batches(kernel: &KernelInfo) -> bool {
    BATCHED.iter().any(|one| std::ptr::eq(one, kernel))
}

/// Whether a kernel is for batches whose products a block has as a whole.
fn is_for_whole_products(kernel: &KernelInfo) -> bool {
    std::ptr::eq(kernel, &WHOLE)
}

/// A product by chance.
fn by_chance(generator: &mut SmallRng, facts: &DeviceFacts, kernel: &KernelInfo) -> Wanted {
    let mut between = |least: f64, most: f64| {
        let share: f64 = generator.random();
        (least * (most / least).powf(share)).round().max(1.0) as usize
    };
    let multiprocessors = f64::from(facts.multiprocessors.max(1));
    let (batch, extents) = match (kernel.family(), kernel.tile) {
        (Family::Gemv, _) => (1, [between(128.0, 512.0 * multiprocessors), 1, between(128.0, 32_768.0)]),
        (Family::Gemm, None) if is_for_whole_products(kernel) => (
            between(multiprocessors, 64.0 * multiprocessors),
            [between(4.0, 32.0), between(4.0, 32.0), between(4.0, 32.0)],
        ),
        (Family::Gemm, None) if std::ptr::eq(kernel, &WHOLE_ROWS) => {
            (1, [between(32.0 * multiprocessors, 4096.0 * multiprocessors), between(4.0, 48.0), between(2.0, 48.0)])
        }
        (Family::Gemm, None) => (1, [between(32.0, 1024.0), between(32.0, 1024.0), between(32.0, 1024.0)]),
        (Family::Gemm, Some(tile)) => {
            let [rows, cols, terms] = [tile.m, tile.n, tile.k].map(f64::from);
            // Sides of a square grid of a fraction of the multiprocessors, up to sixteen times as many.
            let side = (16.0 * multiprocessors).sqrt();
            if is_for_batches(kernel) {
                let sides = [between(rows / 2.0, rows), between(cols / 2.0, cols)];
                (
                    between(multiprocessors / 2.0, 16.0 * multiprocessors),
                    [sides[0], sides[1], between(terms, 24.0 * terms)],
                )
            } else {
                (1, [between(rows, rows * side), between(cols, cols * side), between(2.0 * terms, 160.0 * terms)])
            }
        }
    };
    let placed = if generator.random_range(0..4) == 0 { Placed::Anywhere } else { Placed::Dense };
    Wanted { batch, extents, placed, splits: Splits::Planned }
}

/// A generator for a kernel alone: what is drawn for one does not depend on which others there are.
fn generator(kernel: &KernelInfo, seed: u64) -> SmallRng {
    let name = kernel.name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    SmallRng::seed_from_u64(name)
}

impl Wanted {
    /// The shape, as far as the kernel takes such.
    fn shape(&self, kernel: &KernelInfo) -> Shape {
        let [m, n, k] = self.extents;
        let within = kernel.within(tilewright::Sizes { m, n, k });
        let round = |extent: usize, most: usize| match self.placed {
            Placed::Dense if extent.next_multiple_of(4) <= most => extent.next_multiple_of(4),
            _ => extent,
        };
        let most = kernel.most();
        let extents = [round(within.m, most.m), round(within.n, most.n), round(within.k, most.k)];
        let orders = Orders { a: kernel.a.unwrap_or(Order::RowMajor), b: kernel.b.unwrap_or(Order::RowMajor) };
        let plain = Shape::dense(self.batch, extents, orders);
        let apart = |operand: Operand, order: Order, gap| Operand::with_gaps(order, operand.rows, operand.cols, gap);
        match self.placed {
            Placed::Dense => plain,
            Placed::Anywhere => Shape {
                a: apart(plain.a, orders.a, 1).moved_by(1),
                b: apart(plain.b, orders.b, 1).moved_by(1),
                ..plain
            },
            Placed::OddRows => Shape { c: apart(plain.c, Order::RowMajor, 1), ..plain },
            Placed::Spread => Shape { a: plain.a.spread(2), ..plain },
        }
    }

    /// A smaller one: with half of the terms, or half of the results where there are few.
    fn smaller(self) -> Option<Self> {
        let [m, n, k] = self.extents;
        let halved = |extent: usize| extent.div_ceil(2);
        match (k > 256, self.batch > 1, m.max(n) > 64) {
            (true, ..) => Some(Self { extents: [m, n, halved(k)], ..self }),
            (_, true, _) => Some(Self { batch: halved(self.batch), ..self }),
            (.., true) if m >= n => Some(Self { extents: [halved(m), n, k], ..self }),
            (.., true) => Some(Self { extents: [m, halved(n), k], ..self }),
            _ => None,
        }
    }
}

/// How a kernel computes a product that is small enough; nothing if it does not compute such.
fn trial(
    facts: &DeviceFacts,
    plan: Planner<'_>,
    kernel: &'static KernelInfo,
    wanted: Wanted,
    held_out: bool,
) -> Result<Option<Trial>, Error> {
    let mut wanted = wanted;
    loop {
        let shape = wanted.shape(kernel);
        let product = shape.description()?;
        let known = candidate_splits(kernel, facts, &product);
        let splits = match wanted.splits {
            Splits::Fewest => known.first().copied(),
            Splits::Many => known.last().copied(),
            Splits::Planned => None,
        };
        let options = Options { splits, constants: ConstantsChoice::BuiltIn, ..Options::from(kernel) };
        let plan = match plan(&product, &options) {
            Ok(plan) => plan,
            Err(tilewright::Error::Ineligible { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_small = plan.explanation().estimated_ms.is_none_or(|ms| ms <= LONGEST_MS) && shape.bytes() <= MOST_BYTES;
        if is_small {
            let features = Features::of(&plan);
            return Ok(Some(Trial { shape, plan, features, held_out }));
        }
        match wanted.smaller() {
            Some(smaller) => wanted = smaller,
            None => return Ok(None),
        }
    }
}
