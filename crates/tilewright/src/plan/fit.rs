//! Finds the [constants](Constants) by which the [model](super::Features) has the times that were measured. No GPU is needed for that.
//!
//! ```text
//!  (features, ms)  ──►  repeat:  of each kernel      share and block      two unknowns in which the time is linear: least squares
//!                                                    unaligned            one unknown: median of ratios
//!                                of the whole GPU    one after the other  one unknown: median of what each time asks for
//!                  ──►  rates:   what all kernels of a unit have in common is the unit's, and holds for those without times, too
//! ```
//!
//! All errors are relative ones: a time of 10 µs counts as much as one of 10 ms, which is, for small errors, to fit logarithms of times.
//! Times that are far off, as when something else used the GPU, count less (Huber's weights), and medians hardly heed them.
//!
//! A constant of the whole GPU is fitted to those times alone that depend on it noticeably. Where there are too few, it stays as it was.

use std::collections::BTreeMap;

use super::model::{Features, Line, MUCH_FASTER, beside, both, kernel_constants};
use crate::constants::{Constants, KernelConstants, Machine};
use crate::kernels::{Family, KernelInfo, Scheme};

/// How often kernels and the whole GPU are fitted in turns.
const ROUNDS: usize = 8;

/// How often the constants of the whole GPU are refined, one after the other.
const REFINED: usize = 2;

/// How often kernels are fitted again for a value of a constant of the GPU that is tried.
const REFITTED: usize = 2;

/// A time that is further off than this counts as if it was as far.
const MOST_OFF: f64 = 0.3;

/// How often weights follow from what a fit leaves.
const REWEIGHTED: usize = 6;

/// How far measured times of a kernel are from a fit by chance, at the least: relative.
const NOISE: f64 = 0.02;

/// Times that are so many times [`NOISE`] off, or what is found in its place, count less.
const HUBER: f64 = 1.345;

/// How much what is known before counts beside a time: a time says as much of a constant as it depends on it.
const PRIOR: f64 = 0.03;

/// How many times as much as anything else the kernel has to take that a time says something of.
const ABOVE_FLOOR: f64 = 1.05;

/// The fewest times that a kernel's constants are fitted to.
const FEWEST: usize = 2;

/// The fewest times that a constant of the whole GPU is fitted to.
const FEWEST_OF_MACHINE: usize = 4;

/// The least share of a time's change in that of a constant for which the time says something of the constant.
const NOTICEABLE: f64 = 0.2;

/// The most by which a share can differ from what was known before, as a factor, and a constant of the whole GPU.
const MOST: (f64, f64) = (50.0, 8.0);

/// What a block costs at the least and at the most, in seconds.
const BLOCK_SECONDS: (f64, f64) = (0.02e-6, 50e-6);

/// How many times as long operands take that begin anywhere, at the least and at the most.
const UNALIGNED: (f64, f64) = (0.9, 10.0);

/// A time that was measured.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// // A product of 4096×4096 matrices that has taken 3.1 ms.
/// let observation = Observation { features: features(4096)?, ms: 3.1 };
/// println!("{}: {} ms, and {:.2} by the model", observation.features.kernel().name, observation.ms, observation.features.ms(&known));
/// # assert!(observation.features.ms(&known) > 0.1);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Observation {
    /// What the time depends on.
    pub features: Features,
    /// The time, in milliseconds.
    pub ms: f64,
}

/// What was found of a kernel.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
/// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
/// // Each time is a fifth longer than the constants say that are known.
/// for KernelFit { kernel, before, after, times, .. } in fit(&known, &observations).kernels {
///     println!("{kernel}: share of the peak {:.2}, was {:.2}", after.share_of_peak, before.share_of_peak);
///     assert!(times >= 2, "fewer say nothing of a kernel");
/// }
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KernelFit {
    /// Its name.
    pub kernel: &'static str,
    /// Its constants before, with rates as they were then.
    pub before: KernelConstants,
    /// Its constants now, with the rates that were found.
    pub after: KernelConstants,
    /// How many times as fast as before its steps are, with rates and bandwidth as they are now.
    pub speed: f64,
    /// How many times it was fitted to.
    pub times: usize,
}

/// What was found of the whole GPU: one constant.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
/// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
/// for MachineFit { name, before, after, times } in fit(&known, &observations).machine {
///     println!("{name}: {after:.3e}, was {before:.3e}, by {times} times");
///     # assert!(times > 0 || before == after);
/// }
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineFit {
    /// Its name, a field of [`Machine`].
    pub name: &'static str,
    /// Its value before.
    pub before: f64,
    /// Its value now: the same where too few times depend on it.
    pub after: f64,
    /// How many times depend on it.
    pub times: usize,
}

/// Constants, and what they were found from.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
/// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
/// let Fit { constants, kernels, machine } = fit(&known, &observations);
/// println!("{} kernels, {} constants of the whole GPU", kernels.len(), machine.len());
/// assert!(constants != known && !kernels.is_empty());
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fit {
    /// The constants: those of the kernels that have times, and of the whole GPU.
    pub constants: Constants,
    /// What was found of each kernel.
    pub kernels: Vec<KernelFit>,
    /// What was found of the whole GPU.
    pub machine: Vec<MachineFit>,
}

/// How far estimated times are from measured ones: the absolute values of the logarithms of their ratios, so that 0.1 stands for a tenth.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
/// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
/// let FitErrors { times, median, most } = FitErrors::of(&known, &observations).unwrap();
/// println!("{times} times, off by {:.0} % in the middle, by {:.0} % at most", 100.0 * median, 100.0 * most);
/// assert!((median - 1.2f64.ln()).abs() < 1e-9);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitErrors {
    /// How many times there are.
    pub times: usize,
    /// The error in the middle.
    pub median: f64,
    /// The error that 95 percent do not exceed.
    pub most: f64,
}

impl FitErrors {
    /// The errors of constants for some times; none for no times.
    ///
    /// ```
    /// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
    /// # use tilewright::{Error, Precision, Sizes};
    /// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    /// # let known = Constants::built_in(Some((9, 0)), 132);
    /// # let features = |size: usize| {
    /// #     let placed = Placement::row_major(size);
    /// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
    /// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
    /// # };
    /// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
    /// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
    /// assert_eq!(FitErrors::of(&known, &observations).unwrap().times, 4);
    /// assert_eq!(FitErrors::of(&known, []), None);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn of<'a>(constants: &Constants, observations: impl IntoIterator<Item = &'a Observation>) -> Option<Self> {
        let error = |observation: &Observation| (observation.features.ms(constants) / observation.ms).ln().abs();
        let mut errors: Vec<f64> = observations.into_iter().map(error).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors.get(((errors.len().max(1) - 1) as f64 * share).round() as usize).copied();
        Some(Self { times: errors.len(), median: at(0.5)?, most: at(0.95)? })
    }
}

/// A constant of the whole GPU that is fitted to times of products.
struct Parameter {
    name: &'static str,
    of: fn(&mut Machine) -> &mut f64,
    /// Whether it is a share, of which there is no more than 1.
    is_share: bool,
}

impl Parameter {
    const fn new(name: &'static str, of: fn(&mut Machine) -> &mut f64) -> Self {
        Self { name, of, is_share: false }
    }

    const fn share(name: &'static str, of: fn(&mut Machine) -> &mut f64) -> Self {
        Self { name, of, is_share: true }
    }

    /// Between which values it is looked for.
    fn range(&self, known: &Constants) -> (f64, f64) {
        let before = *(self.of)(&mut known.machine.clone());
        let most = before * MOST.1;
        (before / MOST.1, if self.is_share { most.min(1.0) } else { most })
    }
}

const PARAMETERS: [Parameter; 8] = [
    Parameter::new("next_launch_seconds", |machine| &mut machine.next_launch_seconds),
    Parameter::share("preparing_share", |machine| &mut machine.preparing_share),
    Parameter::share("storing_share", |machine| &mut machine.storing_share),
    Parameter::new("stored_one_by_one", |machine| &mut machine.stored_one_by_one),
    Parameter::new("stored_in_lines", |machine| &mut machine.stored_in_lines),
    Parameter::new("wave_seconds", |machine| &mut machine.wave_seconds),
    Parameter::new("term_seconds", |machine| &mut machine.term_seconds),
    Parameter::new("idle_block_seconds", |machine| &mut machine.idle_block_seconds),
];

/// The units that multiply, each with its rate.
const UNITS: [fn(&mut Machine) -> &mut f64; 3] =
    [|machine| &mut machine.fp32_rate, |machine| &mut machine.tf32_rate, |machine| &mut machine.fp64_rate];

/// Which of [`UNITS`] a kernel's share is of; none if it is of the bandwidth.
fn unit(kernel: &KernelInfo) -> Option<usize> {
    match (kernel.family(), kernel.scheme) {
        (Family::Gemv, _) => None,
        (Family::Gemm, Scheme::Fp32) => Some(0),
        (Family::Gemm, Scheme::Fp32Fp64) => Some(2),
        (Family::Gemm, _) => Some(1),
    }
}

/// The constants by which the model has these times, as well as it can. `known` are those before: the bandwidth and the cost of a launch,
/// which are measured by themselves, stay as they are there, and so does everything that too few times depend on.
///
/// ```
/// # use tilewright::plan::{self, Constants, Description, DeviceFacts, Features, Options, Placement, fit::*};
/// # use tilewright::{Error, Precision, Sizes};
/// # let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
/// # let known = Constants::built_in(Some((9, 0)), 132);
/// # let features = |size: usize| {
/// #     let placed = Placement::row_major(size);
/// #     let product = Description::new(Sizes { m: size, n: size, k: size }, 1, placed, placed, placed)?;
/// #     Ok::<_, Error>(Features::of(&plan::plan(&h200, &product, &Options::from(Precision::Fp32Strict))?))
/// # };
/// # let slower = |size| features(size).map(|features| Observation { ms: 1.2 * features.ms(&known), features });
/// # let observations: Vec<Observation> = [2048, 4096, 6144, 8192].into_iter().map(slower).collect::<Result<_, _>>()?;
/// // Times that are a fifth longer than the constants say that are known: others are found by which they are right.
/// let off_by = |constants: &Constants| FitErrors::of(constants, &observations).unwrap().most;
/// let found = fit(&known, &observations).constants;
/// assert!(off_by(&known) > 0.18 && off_by(&found) < 0.05);
/// # Ok::<(), tilewright::Error>(())
/// ```
pub fn fit(known: &Constants, observations: &[Observation]) -> Fit {
    let usable = |observation: &&Observation| observation.ms.is_finite() && observation.ms > 0.0;
    let mut of_kernels: BTreeMap<&'static str, Vec<&Observation>> = BTreeMap::new();
    for observation in observations.iter().filter(usable) {
        of_kernels.entry(observation.features.kernel().name).or_default().push(observation);
    }
    of_kernels.retain(|_, times| times.len() >= FEWEST);
    let all: Vec<&Observation> = of_kernels.values().flatten().copied().collect();

    let mut constants = known.clone();
    let mut machine = [0; PARAMETERS.len()];
    for _ in 0..ROUNDS {
        // First what kernels alone could not explain: they would take a thread's slow terms for costly blocks.
        for (parameter, times) in PARAMETERS.iter().zip(&mut machine) {
            *times = fit_parameter(known, &mut constants, parameter, &all);
        }
        fit_kernels(known, &mut constants, &of_kernels);
    }
    for _ in 0..REFINED {
        for (parameter, _) in PARAMETERS.iter().zip(&machine).filter(|(_, times)| **times >= FEWEST_OF_MACHINE) {
            refine_parameter(known, &mut constants, parameter, &of_kernels);
        }
    }
    share_rates(known, &mut constants, &of_kernels);

    let kernels = of_kernels.iter().map(|(name, times)| {
        let kernel = times[0].features.kernel();
        let rate = |constants: &Constants| {
            let rate =
                unit(kernel).map_or(constants.machine.bandwidth, |unit| *UNITS[unit](&mut constants.machine.clone()));
            rate * kernel_constants(constants, kernel).share_of_peak
        };
        let [before, after] = [known, &constants].map(|constants| kernel_constants(constants, kernel));
        KernelFit { kernel: name, before, after, speed: rate(&constants) / rate(known), times: times.len() }
    });
    let machine = PARAMETERS.iter().zip(machine).map(|(parameter, times)| MachineFit {
        name: parameter.name,
        before: *(parameter.of)(&mut known.machine.clone()),
        after: *(parameter.of)(&mut constants.machine.clone()),
        times,
    });
    Fit { kernels: kernels.collect(), machine: machine.collect(), constants }
}

/// Fits the constants of all kernels.
fn fit_kernels(known: &Constants, constants: &mut Constants, of_kernels: &BTreeMap<&'static str, Vec<&Observation>>) {
    for (name, times) in of_kernels {
        let before = kernel_constants(known, times[0].features.kernel());
        let now = kernel_constants(constants, times[0].features.kernel());
        constants.kernels.insert((*name).to_owned(), fit_kernel(&constants.machine, before, now, times));
    }
}

/// Finds the value of a constant of the whole GPU near the one that there is with which kernels explain the times best, each with constants that
/// were fitted for that value. In turns alone, a kernel with one such time would have explained what the GPU's constant leaves, and the constant what
/// the kernel leaves, wherever they began.
fn refine_parameter(
    known: &Constants,
    constants: &mut Constants,
    parameter: &Parameter,
    of_kernels: &BTreeMap<&'static str, Vec<&Observation>>,
) {
    let (least, most) = parameter.range(known);
    let tried = |value: f64| {
        let mut tried = constants.clone();
        *(parameter.of)(&mut tried.machine) = value.clamp(least, most);
        for _ in 0..REFITTED {
            fit_kernels(known, &mut tried, of_kernels);
        }
        let off = |time: &&Observation| (time.features.ms(&tried) / time.ms).ln().abs().min(MOST_OFF);
        let off: f64 = of_kernels.values().flatten().map(off).sum();
        (off, tried)
    };
    let mut value = *(parameter.of)(&mut constants.clone().machine);
    let (mut step, mut best) = (1.25, tried(value));
    while step > 1.02 {
        let near = [value * step, value / step].map(|value| (value, tried(value)));
        match near.into_iter().min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0)) {
            Some((at, found)) if found.0 < best.0 => (value, best) = (at, found),
            _ => step = f64::sqrt(step),
        }
    }
    *constants = best.1;
}

/// The constants of a kernel on a machine.
fn fit_kernel(
    machine: &Machine,
    before: KernelConstants,
    now: KernelConstants,
    times: &[&Observation],
) -> KernelConstants {
    let lines: Vec<(Line, &Observation)> = times.iter().map(|&time| (time.features.line(machine), time)).collect();
    let is_aligned = |time: &Observation| time.features.is_aligned();
    let any_aligned = times.iter().filter(|time| is_aligned(time)).count() >= FEWEST;
    let rows = lines
        .iter()
        .filter(|(_, time)| is_aligned(time) || !any_aligned)
        .filter_map(|(line, time)| Row::of(line, now, time.ms * 1e-3, time.features.times(now.unaligned)));
    let (share_of_peak, block_seconds) = solve(before, &rows.collect::<Vec<_>>());
    let times_of_unaligned = |(line, time): &(Line, &Observation)| {
        let (times, part) = line.times_of(time.ms * 1e-3 - line.before, share_of_peak, block_seconds)?;
        Some((time.features.of_unaligned(times), part)).filter(|_| any_aligned && !is_aligned(time))
    };
    let unaligned = weighted_median(lines.iter().filter_map(times_of_unaligned).collect());
    let unaligned = unaligned.map_or(now.unaligned, |times| times.clamp(UNALIGNED.0, UNALIGNED.1));
    KernelConstants { share_of_peak, block_seconds, unaligned }
}

/// An equation for a kernel's constants: `per_share / share + blocks · block = seconds`, as far as `scale · seconds` is known to.
#[derive(Clone, Copy, Debug)]
struct Row {
    per_share: f64,
    blocks: f64,
    seconds: f64,
    /// Makes an error in seconds one relative to the whole time.
    scale: f64,
}

impl Row {
    /// What a time says of the kernel, if anything.
    fn of(line: &Line, now: KernelConstants, seconds: f64, unaligned: f64) -> Option<Self> {
        let scale = 1.0 / seconds;
        let kernel = seconds - line.before - line.scattered;
        let per_share = unaligned * line.per_share;
        // What is measured decides what the kernel was busy with, because what is estimated may be far off. But a time that is a little above
        // the floor, by chance or for what the model leaves out, would say of a kernel that is much faster that it is slow.
        let estimated = per_share / now.share_of_peak + line.blocks * now.block_seconds;
        let is_busy = kernel > ABOVE_FLOOR * line.floor && estimated > MUCH_FASTER * line.floor;
        let row = match is_busy {
            // Near the floor, a little more time says much of the kernel, and so little.
            true => {
                let busy = beside(kernel - line.blocks_after * now.block_seconds, line.floor);
                let seconds = busy + line.blocks_after * now.block_seconds;
                let scale = scale * (busy / both(busy, line.floor)).powi(2);
                Self { per_share, blocks: line.blocks + line.blocks_after, seconds, scale }
            }
            false => Self { per_share: 0.0, blocks: line.blocks_after, seconds: kernel - line.floor, scale },
        };
        (row.per_share > 0.0 || row.blocks > 0.0).then_some(row)
    }
}

/// Share and block by least squares, with weights that follow from what a fit leaves. What no time says anything of stays as it was.
fn solve(before: KernelConstants, rows: &[Row]) -> (f64, f64) {
    let (inverse, block) = (1.0 / before.share_of_peak, before.block_seconds);
    let most = |value: f64| value.clamp(inverse / MOST.0, inverse * MOST.0);
    let (mut x, mut y) = (inverse, block);
    for step in 0..REWEIGHTED {
        let left = |row: &Row| row.scale * (row.per_share * x + row.blocks * y - row.seconds);
        let mut sizes: Vec<f64> = rows.iter().map(|row| left(row).abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let spread = (1.4826 * sizes.get(sizes.len() / 2).copied().unwrap_or(0.0)).max(NOISE);
        let weight = |row: &Row| match (step, left(row).abs() / (HUBER * spread)) {
            // Nothing is known yet of what is far off.
            (0, _) => 1.0,
            (_, off) => 1.0 / off.max(1.0),
        };
        // Normal equations: the first line is what was known before, of either unknown.
        let (prior_x, prior_y) = (PRIOR / inverse, PRIOR / block);
        let mut xx = prior_x * prior_x;
        let mut yy = prior_y * prior_y;
        let (mut xy, mut xs, mut ys) = (0.0, PRIOR * prior_x, PRIOR * prior_y);
        for row in rows {
            let weight = weight(row) * row.scale * row.scale;
            xx += weight * row.per_share * row.per_share;
            yy += weight * row.blocks * row.blocks;
            xy += weight * row.per_share * row.blocks;
            xs += weight * row.per_share * row.seconds;
            ys += weight * row.blocks * row.seconds;
        }
        let determinant = xx * yy - xy * xy;
        let free = ((xs * yy - ys * xy) / determinant, (ys * xx - xs * xy) / determinant);
        // At a bound of the one, the other is alone.
        y = if free.1.is_finite() { free.1.clamp(BLOCK_SECONDS.0, BLOCK_SECONDS.1) } else { y };
        x = most((xs - xy * y) / xx);
        y = ((ys - xy * x) / yy).clamp(BLOCK_SECONDS.0, BLOCK_SECONDS.1);
    }
    (1.0 / x, y)
}

/// Fits one constant of the whole GPU, and tells how many times depend on it.
fn fit_parameter(known: &Constants, constants: &mut Constants, parameter: &Parameter, all: &[&Observation]) -> usize {
    let value = *(parameter.of)(&mut constants.machine);
    let before = *(parameter.of)(&mut known.machine.clone());
    let mut trial = constants.clone();
    let mut ms = |features: &Features, value: f64| {
        *(parameter.of)(&mut trial.machine) = value;
        features.ms(&trial)
    };
    let (least, most) = parameter.range(known);
    let mut wanted = Vec::new();
    for time in all {
        let step = 1.1;
        let mut change = |at: f64| (ms(&time.features, at * step) / ms(&time.features, at)).ln().abs() / f64::ln(step);
        // What was found in an earlier round may be wrong so far that nothing depends on it any more.
        let change = change(value).max(change(before));
        if change < NOTICEABLE {
            continue;
        }
        // The time grows with the constant, or shrinks with it: the value that gives this time lies between two.
        let [shortest, longest] = [least, most].map(|at| ms(&time.features, at));
        let grows = longest > shortest;
        if time.ms < shortest.min(longest) || time.ms > shortest.max(longest) {
            // No value gives it. One at the end is a vote for more, or for less.
            wanted.push((if (time.ms < shortest) == grows { least } else { most }, change));
            continue;
        }
        let (mut low, mut high) = (least, most);
        for _ in 0..40 {
            let middle = (low * high).sqrt();
            match (ms(&time.features, middle) < time.ms) == grows {
                true => low = middle,
                false => high = middle,
            }
        }
        wanted.push(((low * high).sqrt(), change));
    }
    let times = wanted.len();
    let found = if times >= FEWEST_OF_MACHINE { weighted_median(wanted) } else { None };
    *(parameter.of)(&mut constants.machine) = found.unwrap_or(before);
    times
}

/// Gives the units what all kernels that use them have in common.
fn share_rates(known: &Constants, constants: &mut Constants, of_kernels: &BTreeMap<&'static str, Vec<&Observation>>) {
    for (number, rate) in UNITS.iter().enumerate() {
        let of_unit =
            || of_kernels.values().map(|times| times[0].features.kernel()).filter(|it| unit(it) == Some(number));
        let gain = |kernel: &'static KernelInfo| {
            let [before, after] =
                [known, &*constants].map(|constants| kernel_constants(constants, kernel).share_of_peak);
            (after / before, 1.0)
        };
        let Some(gain) = weighted_median(of_unit().map(gain).collect()) else { continue };
        *rate(&mut constants.machine) *= gain;
        for kernel in of_unit() {
            if let Some(kernel) = constants.kernels.get_mut(kernel.name) {
                kernel.share_of_peak /= gain;
            }
        }
    }
}

/// The median of numbers, each of which counts as much as its weight; none of no numbers.
fn weighted_median(mut numbers: Vec<(f64, f64)>) -> Option<f64> {
    numbers.sort_by(|one, other| one.0.total_cmp(&other.0));
    let half = numbers.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let middle = numbers.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    middle.map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weighted_median_heeds_weights_and_not_what_is_far_off() {
        assert_eq!(weighted_median(vec![(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
        assert_eq!(weighted_median(vec![(1e9, 1.0), (1.0, 1.0), (2.0, 3.0)]), Some(2.0));
        assert_eq!(weighted_median(vec![(1.0, 5.0), (2.0, 1.0), (3.0, 1.0)]), Some(1.0));
        assert_eq!(weighted_median(Vec::new()), None);
    }

    #[test]
    fn share_and_block_come_from_times_of_which_one_is_far_off() {
        let before = KernelConstants { share_of_peak: 0.3, block_seconds: 3e-6, unaligned: 1.0 };
        let (share, block) = (0.8, 1e-6);
        let row = |per_share: f64, blocks: f64, factor: f64| {
            let seconds = factor * (per_share / share + blocks * block);
            Row { per_share, blocks, seconds, scale: 1.0 / seconds }
        };
        let mut rows = vec![row(1e-3, 1.0, 1.0), row(1e-4, 1.0, 1.0), row(1e-5, 10.0, 1.0), row(1e-6, 4.0, 1.0)];
        let close = |rows: &[Row]| {
            let (found, cost) = solve(before, rows);
            ((found / share).ln().abs(), (cost / block).ln().abs())
        };
        let (of_share, of_block) = close(&rows);
        assert!(of_share < 0.01 && of_block < 0.02, "{of_share} {of_block}");
        rows.push(row(1e-3, 1.0, 2.0));
        let (of_share, of_block) = close(&rows);
        assert!(of_share < 0.1 && of_block < 0.1, "{of_share} {of_block}");
        let (share, block) = solve(before, &[]);
        assert!((share - before.share_of_peak).abs() < 1e-9 && (block - before.block_seconds).abs() < 1e-12);
    }
}
