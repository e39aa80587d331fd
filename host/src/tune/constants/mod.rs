//! Measures what the [model](tilewright::plan) knows of a GPU: `tilewright tune --constants`.
//!
//! ```text
//!  probes    launches, bandwidth ──────────────────────────────────┐
//!  design    a few products for each kernel ──► measure ──► times ──┼──► tilewright::plan::fit ──► contest: whose plans are the best?
//!                                               │                  │                              │
//!                                               │                  │                              └──► storing: the user's file
//!                                               └─ held out ───────┴──► text: how far estimates are, before and now
//! ```
//!
//! A [table](super) has the times of some products, and says nothing of others. Constants say something of all products, and are measured
//! in about a minute. Kernels that most plans are made with come first, so that a shorter time is well spent.
//!
//! Times are taken as the atlas takes them: operands come from memory, not from the cache, and short products are timed in batches.

mod contest;
pub mod design;
mod measure;
mod probes;
mod storing;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::bench::atlas::Shape;
use crate::provenance::{commit, now};
use contest::Contest;
use storing::Target;
use tilewright::device::DeviceInfo;
use tilewright::plan::fit::fit;
use tilewright::plan::{Constants, ConstantsChoice, GemmPlan, MeasuredConstants, Options as PlanOptions};
use tilewright::{Device, Precision};

/// What it takes if nobody says how long it may.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The part of that for measuring single kernels; the others are for comparing plans.
const SINGLE_KERNELS: f64 = 0.75;

/// What is compared: see [`contest`].
const CONTESTANTS: [&str; 3] = ["built in", "with launches and bandwidth as measured", "fitted"];

/// How to measure, and where to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file that is written; where there is none, the one that is looked for on this GPU.
    pub output: Option<PathBuf>,
    /// When to stop measuring.
    pub limit: Duration,
    /// What the products are drawn by that constants are tried on.
    pub seed: u64,
}

/// Measures a GPU, gives `print` what was found, and writes it.
///
/// # Errors
/// [`Error::Usage`] on the CPU executor, or where there is no place for the file; [`Error::ConstantsPlace`], before anything is measured
/// where possible; [`DeviceError::NotEnoughMemory`](runtime::Error::NotEnoughMemory) and
/// [`DeviceError::Driver`](runtime::Error::Driver) if the GPU fails.
pub fn run(device: &Device, options: &Options, mut print: impl FnMut(&str)) -> Result<MeasuredConstants, Error> {
    let info = device.describe();
    let (DeviceInfo::Cuda { driver_release, driver_cuda_version, .. }, Some(here)) = (&info, device.measured_on())
    else {
        return Err(Error::Usage(
            "times on the CPU executor say nothing about a GPU: `tilewright tune` needs one".to_owned(),
        ));
    };
    let (start, date) = (Instant::now(), now());
    let target = Target::of(options.output.as_deref(), &here)?;
    print(&format!("{info}\n"));
    let measured = measure::measure(device, options.seed, start + options.limit.mul_f64(SINGLE_KERNELS))?;
    let measuring = start.elapsed();

    let built_in = Constants::built_in(Some(here.compute_capability), here.multiprocessors);
    let mut known = built_in.clone();
    // A clock that says nothing took no time is not believed.
    for (constant, probed) in [
        (&mut known.machine.launch_seconds, measured.probed.launch_seconds),
        (&mut known.machine.bandwidth, measured.probed.bandwidth),
    ] {
        if probed.is_finite() && probed > 0.0 {
            *constant = probed;
        }
    }
    let found = fit(&known, &measured.fitted);
    print(&text::of_machine(&built_in, &found, &measured));
    print(&text::of_kernels(&built_in, &found, &measured));
    print(&text::of_gaps(&found, &measured));
    print(&format!(
        "Measured in {:.1} s, of which loading kernels took {:.1} s (the driver keeps what it has compiled for the next time); fitted in \
         {:.1} s\n",
        measuring.as_secs_f64(),
        measured.loading.as_secs_f64(),
        (start.elapsed() - measuring).as_secs_f64()
    ));

    let release = driver_release.as_ref().map(|release| format!("{release}, ")).unwrap_or_default();
    let driver = format!("{release}CUDA {driver_cuda_version}");
    let of = |constants: Constants| {
        Arc::new(MeasuredConstants::new(here.clone(), driver.clone(), commit(), date.clone(), constants))
    };
    let contestants = [built_in, known, found.constants].map(of);
    let contest = compare(device, &contestants, options.seed, start + options.limit)?;
    print(&text::of_contest(&CONTESTANTS, &contest));
    let best = contest.best();
    if options.output.is_none() && best == 0 {
        print(
            "Nothing is stored: plans by these constants are no better than by those that are built in. --output FILE stores what was \
             fitted all the same\n",
        );
        return Ok((*contestants[2]).clone());
    }
    let constants = if best == 0 { &contestants[2] } else { &contestants[best] };
    target.write(constants)?;
    print(&target.text());
    Ok((**constants).clone())
}

/// Compares constants by the plans that they make.
fn compare(
    device: &Device,
    contestants: &[Arc<MeasuredConstants>],
    seed: u64,
    deadline: Instant,
) -> Result<Contest, Error> {
    let shapes = contest::shapes(seed);
    let mut bench = measure::Bench::new(device, &shapes, seed)?;
    let options: Vec<PlanOptions> = (contestants.iter())
        .map(|constants| PlanOptions {
            constants: ConstantsChoice::This(Arc::clone(constants)),
            ..PlanOptions::from(Precision::Fp32)
        })
        .collect();
    let plan = |shape: &Shape, index: usize| Ok(GemmPlan::new(device, &shape.description()?, &options[index])?);
    contest::contest(&shapes, contestants.len(), plan, |shape, plan| bench.time(shape, plan), Some(deadline))
}
