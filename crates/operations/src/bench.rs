//! How long an operation takes.

use std::fmt;
use std::time::Duration;

use runtime::Device;
use serde::Serialize;

use crate::Error;
use crate::operation::{Operation, Sizes};
use crate::peak::{Least, Peak};
use crate::trial::{Accuracy, Memory, Trial};

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

/// In how many turns an operation and its baseline are measured, one after the other.
const TURNS: usize = 5;

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
    /// The copies of the arguments that launches go through: together they exceed twice the second-level cache.
    pub sets: usize,
    /// How far the result of the run before was from the reference.
    pub accuracy: Accuracy,
    /// The operation's times.
    #[serde(flatten)]
    pub times: Times,
    /// What has to be moved at least.
    pub bytes: f64,
    /// The floating-point operations.
    pub operations: f64,
    /// The least time by the rates that the GPU cannot exceed; none of the executor.
    pub least: Option<Least>,
    /// What it was measured beside, in turns, if the operation has something.
    pub baseline: Option<MeasuredBaseline>,
    /// Why there is no baseline, where the operation has one.
    pub no_baseline: Option<String>,
}

/// The times of one launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The launches of each run: more than one where one is too short to be timed alone.
    pub launches_per_run: usize,
    /// The time in the middle.
    pub median_ms: f64,
    /// The interquartile range.
    pub spread_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
}

/// What an operation was measured beside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredBaseline {
    /// What it is.
    pub name: String,
    /// Its times.
    #[serde(flatten)]
    pub times: Times,
    /// What is wrong with its results, by the operation's own bound, if something is.
    pub wrong: Option<String>,
}

impl Measurement {
    /// Billions of bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes / self.times.median_ms / 1e6
    }

    /// Billions of floating-point operations a second.
    pub fn gigaflops(&self) -> f64 {
        self.operations / self.times.median_ms / 1e6
    }

    /// The least time as a part of the measured one.
    pub fn share_of_peak(&self) -> Option<f64> {
        Some(self.least?.ms / self.times.median_ms)
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, sizes, device, runs, times, least, baseline, no_baseline, .. } = self;
        write!(f, "{operation} {sizes} on {device}: {times} (median and interquartile range of {runs})")?;
        write!(f, ", {:.1} GB/s, {:.1} GFLOP/s", self.gigabytes_per_second(), self.gigaflops())?;
        if let (Some(share), Some(Least { bound_by, .. })) = (self.share_of_peak(), least) {
            write!(f, ", {:.1} % of the peak of {bound_by}", 100.0 * share)?;
        }
        if self.is_of_executor {
            f.write_str("; wall clock of the executor, which checks what kernels do: it says nothing about a GPU")?;
        }
        if let Some(MeasuredBaseline { name, times: theirs, wrong }) = baseline {
            let ratio = theirs.median_ms / times.median_ms;
            write!(f, "\n  beside {name}, in turns: {theirs}; {operation} is {ratio:.2} times as fast")?;
            if let Some(wrong) = wrong {
                write!(f, "; its results are not within the bound of {operation}: {wrong}")?;
            }
        }
        if let Some(reason) = no_baseline {
            write!(f, "\n  no baseline: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ms ± {:.4} ms", self.median_ms, self.spread_ms)
    }
}

/// Measures an operation, after one run whose result is compared with the reference; on a GPU beside its baseline, if it has one, in
/// turns. On a GPU the launches go through copies of the arguments that together exceed twice the second-level cache. Launches of
/// less than about 10 µs are as fast as the host queues them.
///
/// # Errors
/// What is wrong with the operation; [`Error::NoRuns`]; where memory is short, that. What is wrong with a baseline is told in the
/// measurement.
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
    let accuracy = trial.judge(&trial.run(device)?)?;
    let (mut baseline, mut no_baseline) = match operation.baseline(device, &trial.sizes) {
        Ok(baseline) => (baseline, None),
        Err(why) => (None, Some(why.to_string())),
    };
    let mut wrong = None;
    if let Some(launch) = &mut baseline {
        match trial.run_with(device, |views| launch.launch(&trial.sizes, views)) {
            Ok(outputs) => wrong = trial.judge(&outputs).err().map(|error| error.to_string()),
            Err(error) => (baseline, no_baseline) = (None, Some(error.to_string())),
        }
    }
    let cache = device.gpu_properties().map_or(0, |properties| properties.l2_bytes as usize);
    let sets = (2 * cache).div_ceil(trial.total_bytes().max(1)).clamp(1, MOST_SETS - 1) + usize::from(!device.is_cpu());
    let (bytes, operations) = (operation.bytes(&trial.sizes)?, operation.operations(&trial.sizes));
    let measurement = |times, baseline, no_baseline| Measurement {
        operation: trial.description.name,
        sizes: trial.sizes.to_string(),
        device: device.name(),
        is_of_executor: device.is_cpu(),
        runs,
        sets,
        accuracy,
        times,
        bytes,
        operations,
        least: Peak::of(device).map(|peak| peak.least(bytes, operations, operation.units())),
        baseline,
        no_baseline,
    };
    let mut arguments =
        Arguments { memory: (0..sets).map(|_| trial.upload(device)).collect::<Result<Vec<_>, _>>()?, turn: 0 };
    let mut ours = |memory: &mut Memory| trial.launch(device, memory);
    let launches = arguments.warm_up(device, &mut ours)?;
    let Some(mut baseline) = baseline else {
        let times = Times::of(arguments.measure(device, runs, launches, &mut ours)?, launches);
        return Ok(measurement(times, None, no_baseline));
    };
    let name = baseline.name();
    let mut beside = |memory: &mut Memory| trial.with_views(memory, |views| baseline.launch(&trial.sizes, views));
    let their_launches = arguments.warm_up(device, &mut beside)?;
    let (mut times, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..TURNS.min(runs) {
        // As many as there are, in parts that differ by one at most. The first of each turn is not counted.
        let part = (runs + turn) / TURNS.min(runs);
        times.extend(arguments.measure(device, 1 + part, launches, &mut ours)?.into_iter().skip(1));
        theirs.extend(arguments.measure(device, 1 + part, their_launches, &mut beside)?.into_iter().skip(1));
    }
    let theirs = MeasuredBaseline { name, times: Times::of(theirs, their_launches), wrong };
    Ok(measurement(Times::of(times, launches), Some(theirs), None))
}

/// Copies of the arguments, which launches go through one after the other.
struct Arguments {
    memory: Vec<Memory>,
    turn: usize,
}

impl Arguments {
    /// The times of runs of so many launches each.
    fn measure(
        &mut self,
        device: &Device,
        runs: usize,
        launches: usize,
        launch: &mut impl FnMut(&mut Memory) -> Result<(), Error>,
    ) -> Result<Vec<Duration>, Error> {
        device.time(runs, || {
            for _ in 0..launches {
                self.turn += 1;
                let set = self.turn % self.memory.len();
                launch(&mut self.memory[set])?;
            }
            Ok(())
        })
    }

    /// Keeps a GPU busy until its clocks have settled. How many launches a run shall have.
    fn warm_up(
        &mut self,
        device: &Device,
        launch: &mut impl FnMut(&mut Memory) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let mut first = milliseconds(self.measure(device, 3, 1, launch)?, 1);
        if device.is_cpu() {
            return Ok(1);
        }
        first.sort_by(f64::total_cmp);
        let estimate = first[1].max(1e-4);
        let launches =
            if estimate < BATCH_BELOW_MS { ((BATCH_MS / estimate) as usize).clamp(1, MOST_LAUNCHES) } else { 1 };
        let runs = (WARM_UP_MS / (estimate * launches as f64)).ceil() as usize;
        self.measure(device, runs.clamp(3, 10_000), launches, launch)?;
        Ok(launches)
    }
}

impl Times {
    /// Those of runs of so many launches each, of which there is one at least.
    fn of(runs: Vec<Duration>, launches_per_run: usize) -> Self {
        let times = milliseconds(runs, launches_per_run);
        Self {
            launches_per_run,
            median_ms: quantile(&times, 0.5),
            spread_ms: quantile(&times, 0.75) - quantile(&times, 0.25),
            min_ms: times[0],
        }
    }
}

/// The times of one launch, in order.
fn milliseconds(times: Vec<Duration>, launches: usize) -> Vec<f64> {
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
    use cuda_std::executor::Checks;

    use super::*;
    use crate::testing::Twice;
    use crate::{Argument, Baseline, Description, Expected, Values, Views};

    /// `Twice` as another program would compute it.
    struct Another {
        device: Device,
        as_it_is: Twice,
    }

    impl Baseline for Another {
        fn name(&self) -> String {
            "another program".to_owned()
        }

        fn launch(&mut self, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            self.as_it_is.launch(&self.device, sizes, views)
        }
    }

    /// `Twice` with a baseline that is wrong or not, or that is not there.
    struct Beside(Result<bool, ()>);

    const TWICE: Twice = Twice { wrong: false };

    impl Operation for Beside {
        fn describe(&self) -> Description {
            TWICE.describe()
        }
        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            TWICE.arguments(sizes)
        }
        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            TWICE.launch(device, sizes, views)
        }
        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            TWICE.expected(sizes, values)
        }
        fn operations(&self, sizes: &Sizes) -> f64 {
            TWICE.operations(sizes)
        }
        fn baseline(&self, device: &Device, _: &Sizes) -> Result<Option<Box<dyn Baseline>>, Error> {
            match self.0 {
                Ok(wrong) => Ok(Some(Box::new(Another { device: device.clone(), as_it_is: Twice { wrong } }))),
                Err(()) => Err(Error::operation(std::io::Error::other("there is no such library"))),
            }
        }
    }

    fn beside(baseline: Result<bool, ()>) -> (Measurement, String) {
        let (operation, device) = (Beside(baseline), Device::cpu(Checks::Bounds));
        let sizes = operation.describe().sizes_of(&[100]).unwrap();
        let measured = bench(&operation, &device, sizes, 7, 1).unwrap();
        let text = measured.to_string();
        (measured, text)
    }

    #[test]
    fn a_baseline_is_measured_in_turns_and_its_results_are_judged() {
        let (right, text) = beside(Ok(false));
        assert_eq!(right.baseline.as_ref().map(|it| (it.name.as_str(), &it.wrong)), Some(("another program", &None)));
        assert!(text.contains("beside another program, in turns: "), "{text}");
        let (wrong, text) = beside(Ok(true));
        assert!(wrong.baseline.unwrap().wrong.is_some() && text.contains("not within the bound of twice"), "{text}");
        let (none, text) = beside(Err(()));
        assert_eq!(none.baseline, None);
        assert!(text.contains("no baseline: ") && text.contains("there is no such library"), "{text}");
    }

    #[test]
    fn shares_are_parts_of_the_least_time() {
        let (mut measured, _) = beside(Err(()));
        assert_eq!(measured.share_of_peak(), None);
        measured.least = Some(Least { ms: measured.times.median_ms / 4.0, bound_by: "memory" });
        assert_eq!(measured.share_of_peak(), Some(0.25));
        assert!(measured.to_string().contains(", 25.0 % of the peak of memory"));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let times = milliseconds([4u64, 2, 8, 6].map(Duration::from_millis).to_vec(), 2);
        assert_eq!(times, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| quantile(&times, part)), [1.0, 2.5, 3.25, 4.0]);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
