//! How long an operation takes.

use std::fmt;
use std::time::Duration;

use runtime::Device;
use serde::Serialize;

use crate::Error;
use crate::operation::{Operation, Sizes};
use crate::trial::Trial;

/// Launches below this, in milliseconds, are timed several at a time: between two events there is always half a microsecond that is
/// nobody's.
const BATCH_BELOW_MS: f64 = 0.05;

/// What several launches at a time shall take, in milliseconds.
const BATCH_MS: f64 = 0.5;

/// The most of them: a stream takes about a thousand before it makes the host wait.
const MOST_LAUNCHES: usize = 256;

/// How long a GPU is kept busy before anything counts, so that its clocks have settled.
const WARM_UP_MS: f64 = 300.0;

/// The most copies of the arguments.
const MOST_SETS: usize = 64;

/// What a measurement has given.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The operation.
    pub operation: &'static str,
    /// Its sizes, as `--sizes` takes them.
    pub sizes: String,
    /// Where it ran.
    pub device: String,
    /// Whether these are times of the executor, by the clock on the wall, which say nothing about a GPU.
    pub is_of_executor: bool,
    /// How often it was measured.
    pub runs: usize,
    /// The launches of each run: more than one where one is too short to be timed alone.
    pub launches_per_run: usize,
    /// The copies of the arguments that launches go through: together they exceed twice the second-level cache.
    pub sets: usize,
    /// The time in the middle, for one launch.
    pub median_ms: f64,
    /// The interquartile range.
    pub spread_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
    /// What has to be moved at least.
    pub bytes: f64,
    /// The floating-point operations.
    pub operations: f64,
}

impl Measurement {
    /// Billions of bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes / self.median_ms / 1e6
    }

    /// Billions of floating-point operations a second.
    pub fn gigaflops(&self) -> f64 {
        self.operations / self.median_ms / 1e6
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, sizes, device, runs, median_ms, spread_ms, .. } = self;
        write!(
            f,
            "{operation} {sizes} on {device}: {median_ms:.4} ms ± {spread_ms:.4} ms (median and interquartile range of {runs})"
        )?;
        write!(f, ", {:.1} GB/s, {:.1} GFLOP/s", self.gigabytes_per_second(), self.gigaflops())?;
        if self.is_of_executor {
            f.write_str("; wall clock of the executor, which checks what kernels do: it says nothing about a GPU")?;
        }
        Ok(())
    }
}

/// Measures an operation, after one run whose result is compared with the reference. On a GPU the launches go through copies of the
/// arguments that together exceed twice the second-level cache. Launches of less than about 10 µs are as fast as the host queues them.
///
/// # Errors
/// What is wrong with the operation; [`Error::NoRuns`]; where memory is short, that.
pub fn bench(
    operation: &dyn Operation,
    device: &Device,
    sizes: Sizes,
    runs: usize,
    seed: u64,
) -> Result<Measurement, Error> {
    if runs == 0 {
        return Err(Error::NoRuns { runs });
    }
    let trial = Trial::new(operation, sizes, seed)?;
    trial.judge(&trial.run(device)?)?;
    let cache = device.gpu_properties().map_or(0, |properties| properties.l2_bytes as usize);
    let sets = (2 * cache).div_ceil(trial.total_bytes().max(1)).clamp(1, MOST_SETS - 1) + usize::from(!device.is_cpu());
    let mut memory = (0..sets).map(|_| trial.upload(device)).collect::<Result<Vec<_>, _>>()?;
    let mut turn = 0;
    let mut measure = |runs: usize, launches: usize| {
        device.time(runs, || -> Result<(), Error> {
            for _ in 0..launches {
                turn += 1;
                trial.launch(device, &mut memory[turn % sets])?;
            }
            Ok(())
        })
    };
    let first = measure(3, 1)?;
    let estimate = milliseconds(&first, 1)[1].max(1e-4);
    let mut launches_per_run = 1;
    if !device.is_cpu() {
        if estimate < BATCH_BELOW_MS {
            launches_per_run = ((BATCH_MS / estimate) as usize).clamp(1, MOST_LAUNCHES);
        }
        let times = (WARM_UP_MS / (estimate * launches_per_run as f64)).ceil() as usize;
        measure(times.clamp(3, 10_000), launches_per_run)?;
    }
    let times = milliseconds(&measure(runs, launches_per_run)?, launches_per_run);
    let description = operation.describe();
    Ok(Measurement {
        operation: description.name,
        sizes: trial.sizes.to_string(),
        device: device.name(),
        is_of_executor: device.is_cpu(),
        runs,
        launches_per_run,
        sets,
        median_ms: quantile(&times, 0.5),
        spread_ms: quantile(&times, 0.75) - quantile(&times, 0.25),
        min_ms: times[0],
        bytes: operation.bytes(&trial.sizes)?,
        operations: operation.operations(&trial.sizes),
    })
}

/// The times of one launch, in order.
fn milliseconds(times: &[Duration], launches: usize) -> Vec<f64> {
    let mut times: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3 / launches as f64).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The quantile of sorted numbers, of which there is at least one: between two neighbours by a straight line.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let times = milliseconds(&[4u64, 2, 8, 6].map(Duration::from_millis), 2);
        assert_eq!(times, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| quantile(&times, part)), [1.0, 2.5, 3.25, 4.0]);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
