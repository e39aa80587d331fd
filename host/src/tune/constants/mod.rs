//! Measures what the [model](tilewright::plan) knows of a GPU: `tilewright tune --constants`.
//!
//! ```text
//!  probes    launches, bandwidth ──────────────────────────────────┐
//!  design    a few products for each kernel ──► measure ──► times ──┼──► tilewright::plan::fit ──► storing: the user's file
//!                                               │                  │
//!                                               └─ held out ───────┴──► text: how far estimates are, before and now
//! ```
//!
//! A [table](super) has the times of some products, and says nothing of others. Constants say something of all products, and are measured
//! in about a minute. Kernels that most plans are made with come first, so that a shorter time is well spent.
//!
//! Times are taken as the atlas takes them: operands come from memory, not from the cache, and short products are timed in batches.

pub mod design;
mod measure;
mod probes;
mod storing;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Error;
use crate::provenance::{commit, now};
use storing::Target;
use tilewright::Device;
use tilewright::device::DeviceInfo;
use tilewright::plan::fit::{FitErrors, Observation, fit};
use tilewright::plan::{Constants, MeasuredConstants};

/// What it takes if nobody says how long it may.
pub const LIMIT: Duration = Duration::from_secs(60);

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
    let measured = measure::measure(device, options.seed, start + options.limit)?;
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
    let constants = MeasuredConstants::new(here, driver, commit(), date, found.constants);
    if options.output.is_none() && !are_better(&built_in, &constants.constants, &measured.held_out) {
        print(
            "Nothing is stored: on held-out times, these constants are no better than those that are built in. --output FILE stores \
             them all the same\n",
        );
        return Ok(constants);
    }
    target.write(&constants)?;
    print(&target.text());
    Ok(constants)
}

/// Whether constants are worth having: in the middle, estimates are nearer to times that nothing was fitted to. Without such times, nobody can
/// tell.
fn are_better(built_in: &Constants, found: &Constants, held_out: &[Observation]) -> bool {
    match [built_in, found].map(|constants| FitErrors::of(constants, held_out)) {
        [Some(before), Some(now)] => now.median < before.median,
        _ => false,
    }
}
