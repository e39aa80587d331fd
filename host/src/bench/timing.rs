//! Times that can be compared: contestants take turns, so that clocks, heat and whatever else changes meets all of them.
//!
//! ```text
//!  warm up     rounds of A B A B … until no median moves any more: the clocks have settled
//!  measure     A │ B │ A │ B │ …          on one stream, nothing waits in between; each │ is an event
//!
//!  short ones  busy │ A A A … A │ busy │ B B B … B │ …      a batch between two events; while the GPU is kept busy
//!                                                           before it, the host queues the batch
//! ```
//!
//! Launch `i` of a contestant works on operand set `i` modulo the number of sets, which together exceed twice the
//! second-level cache: nothing finds its operands there that would not find them there in a real program.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use tilewright::device::Device;

/// What is shorter than this, in milliseconds, is timed in batches: between two events there is always half a microsecond
/// that is nobody's.
pub const BATCH_BELOW_MS: f64 = 0.05;

/// What a batch should take, in milliseconds.
const BATCH_MS: f64 = 0.5;

/// The most launches of a batch: a stream takes about a thousand before it makes the host wait.
const MAX_BATCH: usize = 256;

/// The time that the host gets for queuing each launch of a batch, in milliseconds. It takes a few microseconds.
const QUEUE_MS: f64 = 0.01;

/// The runs of each contestant in a round of warming up.
const WARM_UP_RUNS: usize = 5;

/// The runs of each contestant in a round of a short warm-up.
const ROUGH_RUNS: usize = 3;

/// Medians that differ by less than this from one round to the next have settled.
const SETTLED: f64 = 0.01;

/// As many rounds in a row have to be settled.
const SETTLED_ROUNDS: usize = 3;

/// The shortest and the longest warm-up.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(3000));

/// The times of one contestant, in milliseconds for each launch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How often it was measured.
    pub runs: usize,
    /// The launches of each run: more than one where a launch is too short to be timed alone.
    pub launches_per_run: usize,
    /// The time in the middle.
    pub median_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The spread: the interquartile range, from the time that a quarter of the runs do not exceed to the one that three
    /// quarters do not.
    pub spread_ms: f64,
}

impl Times {
    /// Sums up runs of `launches_per_run` launches; `None` for no runs.
    pub fn of(runs: &[Duration], launches_per_run: usize) -> Option<Self> {
        let mut sorted: Vec<f64> =
            runs.iter().map(|time| time.as_secs_f64() * 1e3 / launches_per_run.max(1) as f64).collect();
        sorted.sort_by(f64::total_cmp);
        let min_ms = *sorted.first()?;
        let spread_ms = quantile(&sorted, 0.75) - quantile(&sorted, 0.25);
        Some(Self { runs: runs.len(), launches_per_run, median_ms: quantile(&sorted, 0.5), min_ms, spread_ms })
    }
}

/// The quantile of sorted numbers, of which there is at least one: between two neighbours by a straight line.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Whether medians have stopped moving.
#[derive(Debug, Default)]
struct Settling {
    last: Vec<f64>,
    settled_rounds: usize,
}

impl Settling {
    /// Takes the medians of a round. `true` once none of them has moved for some rounds.
    fn has_settled(&mut self, medians: Vec<f64>) -> bool {
        let still = self.last.len() == medians.len()
            && self.last.iter().zip(&medians).all(|(last, now)| (now - last).abs() <= SETTLED * last);
        self.settled_rounds = if still { self.settled_rounds + 1 } else { 0 };
        self.last = medians;
        self.settled_rounds >= SETTLED_ROUNDS
    }
}

/// One that takes part in a measurement: queues its work on the operand set of this number.
pub type Contestant<'a> = Box<dyn FnMut(usize) -> Result<(), Error> + 'a>;

/// Work that keeps the GPU busy for about as many milliseconds as it is told.
pub type Busy<'a> = Box<dyn FnMut(f64) -> Result<(), Error> + 'a>;

/// Measures contestants in turns.
pub struct Race<'a> {
    /// The device.
    pub device: &'a Device,
    /// The measured runs of each contestant.
    pub runs: usize,
    /// The operand sets that launches go through.
    pub sets: usize,
    /// Keeps the GPU busy while the host queues a batch.
    pub busy: Busy<'a>,
}

impl Race<'_> {
    /// The times of each contestant, after a warm-up.
    ///
    /// # Errors
    /// Those of the contestants; [`Error::Usage`] for no runs; [`DeviceError::Driver`](runtime::Error::Driver) if a kernel has failed.
    pub fn run(&mut self, contestants: &mut [Contestant<'_>]) -> Result<Vec<Times>, Error> {
        if self.runs == 0 {
            return Err(no_runs());
        }
        let mut turn = 0;
        // The first launches are slow: that is when a kernel is loaded, and when a library sets itself up.
        for contestant in contestants.iter_mut() {
            contestant(0)?;
        }
        self.device.synchronize()?;
        let ones = vec![1; contestants.len()];
        let start = Instant::now();
        let (mut settling, mut medians);
        settling = Settling::default();
        loop {
            let times = self.round(contestants, &ones, WARM_UP_RUNS, &mut turn)?;
            medians = times.iter().map(|times| times.median_ms).collect::<Vec<_>>();
            let settled = settling.has_settled(medians.clone());
            if (settled && start.elapsed() >= WARM_UP.0) || start.elapsed() >= WARM_UP.1 {
                break;
            }
        }
        let batches: Vec<usize> = medians.iter().map(|&median| launches_per_run(median)).collect();
        self.round(contestants, &batches, self.runs, &mut turn)
    }

    /// The times of each contestant in about so much time, after a warm-up that is as short: for many products, where
    /// [`Race::run`] would take too long for each. There are at least `fewest` runs of each, and at most `self.runs`.
    ///
    /// # Errors
    /// As for [`Race::run`].
    pub fn run_within(
        &mut self,
        budget: Duration,
        fewest: usize,
        contestants: &mut [Contestant<'_>],
    ) -> Result<Vec<Times>, Error> {
        if self.runs == 0 {
            return Err(no_runs());
        }
        for contestant in contestants.iter_mut() {
            contestant(0)?;
        }
        self.device.synchronize()?;
        let (start, mut turn, ones) = (Instant::now(), 0, vec![1; contestants.len()]);
        let times = loop {
            let times = self.round(contestants, &ones, ROUGH_RUNS, &mut turn)?;
            if start.elapsed() >= budget / 4 {
                break times;
            }
        };
        let batches: Vec<usize> = times.iter().map(|times| launches_per_run(times.median_ms)).collect();
        let batched = batches.iter().any(|&launches| launches > 1);
        let each = |(times, &launches): (&Times, &usize)| {
            launches as f64 * (times.median_ms + if batched { QUEUE_MS } else { 0.0 })
        };
        let turn_ms: f64 = times.iter().zip(&batches).map(each).sum();
        let affordable = (budget.as_secs_f64() * 1e3 / turn_ms.max(1e-3)) as usize;
        self.round(contestants, &batches, affordable.max(fewest).min(self.runs), &mut turn)
    }

    /// `runs` of each contestant in turns, of as many launches as `batches` says.
    fn round(
        &mut self,
        contestants: &mut [Contestant<'_>],
        batches: &[usize],
        runs: usize,
        turn: &mut usize,
    ) -> Result<Vec<Times>, Error> {
        let count = contestants.len();
        let batched = batches.iter().any(|&launches| launches > 1);
        // With batches every turn is two measurements: that of keeping busy, which nobody wants, and that of the batch.
        let (parts, sets, first_turn) = (if batched { 2 } else { 1 }, self.sets.max(1), *turn);
        let (mut step, busy) = (0, &mut self.busy);
        let times = self.device.time(parts * count * runs, || {
            let (part, contestant, run) = (step % parts, step / parts % count, step / parts / count);
            step += 1;
            let launches = batches[contestant];
            if parts == 2 && part == 0 {
                return busy(QUEUE_MS * launches as f64);
            }
            (0..launches).try_for_each(|i| contestants[contestant]((first_turn + run * launches + i) % sets))
        })?;
        *turn += runs * batches.iter().copied().max().unwrap_or(1);
        let of_contestant = |contestant: usize| {
            let own: Vec<Duration> =
                times.iter().skip(contestant * parts + parts - 1).step_by(parts * count).copied().collect();
            Times::of(&own, batches[contestant]).ok_or_else(no_runs)
        };
        (0..count).map(of_contestant).collect()
    }
}

fn no_runs() -> Error {
    Error::Usage("runs is 0: a measurement needs at least one run".to_owned())
}

/// The launches to time together, for a launch that takes so long.
fn launches_per_run(median_ms: f64) -> usize {
    if median_ms >= BATCH_BELOW_MS {
        return 1;
    }
    ((BATCH_MS / median_ms.max(1e-4)).ceil() as usize).clamp(1, MAX_BATCH)
}

/// The operand sets that together exceed twice the second-level cache, as far as memory allows; at least one.
///
/// `bytes` are those of one set, `free` those that may be used for all of them.
pub fn sets_for(bytes: u128, l2_bytes: u128, free: u128) -> usize {
    let bytes = bytes.max(1);
    // One more than fit: what is used next has been pushed out by then.
    let wanted = if bytes > 2 * l2_bytes { 1 } else { 2 * l2_bytes / bytes + 1 };
    wanted.min((free / bytes).max(1)) as usize
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;

    fn times(microseconds: &[u64], launches: usize) -> Times {
        let times: Vec<_> = microseconds.iter().map(|&us| Duration::from_micros(us)).collect();
        Times::of(&times, launches).unwrap()
    }

    #[test]
    fn spread_is_the_interquartile_range() {
        let five = times(&[5000, 1000, 3000, 2000, 4000], 1);
        assert_eq!((five.runs, five.median_ms, five.min_ms, five.spread_ms), (5, 3.0, 1.0, 2.0));
        let four = times(&[1000, 2000, 3000, 4000], 1);
        assert_eq!((four.median_ms, four.spread_ms), (2.5, 1.5));
        assert_eq!(times(&[7000], 1).spread_ms, 0.0);
        assert!(Times::of(&[], 1).is_none());
    }

    #[test]
    fn a_batch_is_divided_by_its_launches() {
        let batch = times(&[100, 300, 200], 10);
        assert!((batch.median_ms - 0.02).abs() < 1e-12 && (batch.min_ms - 0.01).abs() < 1e-12);
        assert_eq!(batch.launches_per_run, 10);
    }

    #[test]
    fn only_short_launches_are_batched() {
        assert_eq!(launches_per_run(0.05), 1);
        assert_eq!(launches_per_run(2.0), 1);
        assert_eq!(launches_per_run(0.049), 11);
        assert_eq!(launches_per_run(0.005), 100);
        assert_eq!(launches_per_run(0.0), MAX_BATCH);
    }

    #[test]
    fn clocks_have_settled_when_no_median_moves() {
        let mut settling = Settling::default();
        assert!(!settling.has_settled(vec![2.0, 3.0]));
        assert!(!settling.has_settled(vec![2.0, 3.0]));
        assert!(!settling.has_settled(vec![2.0, 3.2]), "one of the two moved");
        for _ in 0..2 {
            assert!(!settling.has_settled(vec![2.01, 3.19]));
        }
        assert!(settling.has_settled(vec![2.02, 3.2]));
    }

    #[test]
    fn sets_go_past_twice_the_cache_as_far_as_there_is_memory() {
        let (l2, much) = (50 << 20, 100 << 30);
        for mib in [1u128, 3, 7, 50, 99, 100] {
            let sets = sets_for(mib << 20, l2, much) as u128;
            assert!(sets * mib > 100 && (sets - 1) * mib <= 100, "{mib} MiB: {sets}");
        }
        assert_eq!(sets_for(101 << 20, l2, much), 1);
        assert_eq!(sets_for(1 << 20, l2, 8 << 20), 8);
        assert_eq!(sets_for(1 << 30, l2, 0), 1);
        assert_eq!(sets_for(0, l2, 4), 4);
    }

    #[test]
    fn contestants_take_turns_through_the_sets() {
        let device = Device::cpu(Checks::Bounds);
        let calls = std::cell::RefCell::new(Vec::new());
        let contestant = |name: char| -> Contestant<'_> {
            let calls = &calls;
            Box::new(move |set| {
                calls.borrow_mut().push((name, set));
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            })
        };
        let mut race = Race { device: &device, runs: 3, sets: 2, busy: Box::new(|_| Ok(())) };
        let times = race.round(&mut [contestant('a'), contestant('b')], &[1, 2], 3, &mut 1).unwrap();
        assert_eq!((times[0].runs, times[0].launches_per_run, times[1].launches_per_run), (3, 1, 2));
        assert!(times[0].min_ms >= 1.0 && times[1].min_ms >= 1.0);
        let expected = "a1 b1 b0 a0 b1 b0 a1 b1 b0";
        let seen: Vec<String> = calls.borrow().iter().map(|(name, set)| format!("{name}{set}")).collect();
        assert_eq!(seen.join(" "), expected);
    }

    #[test]
    fn a_short_race_has_as_many_runs_as_there_is_time_for() {
        let device = Device::cpu(Checks::Bounds);
        let runs = |milliseconds, budget, fewest, most| {
            let contestant: Contestant<'_> = Box::new(move |_| {
                std::thread::sleep(Duration::from_millis(milliseconds));
                Ok(())
            });
            let mut race = Race { device: &device, runs: most, sets: 1, busy: Box::new(|_| Ok(())) };
            let times = race.run_within(Duration::from_millis(budget), fewest, &mut [contestant]).unwrap();
            (times[0].runs, times[0].launches_per_run)
        };
        assert_eq!(runs(5, 1, 2, 30), (2, 1), "no time for more than the fewest");
        assert_eq!(runs(1, 1000, 2, 7), (7, 1), "the most");
        let (some, _) = runs(4, 60, 1, 1000);
        assert!((1..=15).contains(&some), "{some}: 60 ms have 15 times 4 ms at most");
        assert_eq!(runs(3, 1, 5, 4).0, 4, "the most counts, whatever the fewest are");
    }

    #[test]
    fn a_race_without_runs_is_refused_and_errors_get_out() {
        let device = Device::cpu(Checks::Bounds);
        let mut none = Race { device: &device, runs: 0, sets: 1, busy: Box::new(|_| Ok(())) };
        assert!(none.run(&mut [Box::new(|_| Ok(()))]).unwrap_err().to_string().contains("runs is 0"));
        let refused = none.run_within(Duration::from_millis(1), 1, &mut [Box::new(|_| Ok(()))]).unwrap_err();
        assert!(refused.to_string().contains("runs is 0"));
        let mut race = Race { device: &device, runs: 1, sets: 1, busy: Box::new(|_| Ok(())) };
        let failing: Contestant<'_> = Box::new(|_| Err(Error::Usage("no".to_owned())));
        assert_eq!(race.run(&mut [failing]).unwrap_err().to_string(), "no");
    }
}
