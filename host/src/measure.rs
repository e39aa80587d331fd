//! How long a kernel takes.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use tilewright::device::Device;

/// Work to do before measuring on a GPU, so that its clocks have settled. (The measurement itself warms the caches.)
const WARM_UP: Duration = Duration::from_millis(300);

/// The most launches that are queued for warming up at a time.
const WARM_UP_LAUNCHES: usize = 256;

/// The runs that are measured on a GPU and on the CPU unless the user says otherwise. On the CPU a time tells nothing about
/// a GPU's, so a few are enough.
const GPU_RUNS: usize = 20;
const CPU_RUNS: usize = 3;

/// The times of a kernel, in milliseconds. Transfers and the PTX compiler are not in them. For what is, see [`measure`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// How often it was run.
    pub runs: usize,
    /// The time in the middle.
    pub median_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
    /// The time that nine of ten runs do not exceed.
    pub p90_ms: f64,
    /// The longest time.
    pub max_ms: f64,
}

impl Timing {
    /// Sums up at least one time.
    fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let runs = sorted.len();
        let (min_ms, max_ms) = (*sorted.first()?, *sorted.last()?);
        let middle = runs / 2;
        let median_ms = if runs % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        let p90_ms = sorted[(9 * runs).div_ceil(10) - 1];
        Some(Self { runs, median_ms, min_ms, p90_ms, max_ms })
    }
}

/// Measures what `launch` puts on the device, which should not wait for it. A GPU is kept busy for a while first; nothing
/// waits between the measured runs, of which there are as many as asked for, or 20 on a GPU and 3 on the CPU.
///
/// On a GPU a time is what lies between two events, one queued before the launch and one after it. The GPU runs one kernel
/// while the host queues the next, so the host's part does not show, unless the kernel is the shorter of the two: queuing
/// takes the host some microseconds, and a kernel that needs less is measured as that gap.
///
/// ```text
///  long kernel:   event ████████████ event ████████████ event     the time is the kernel's
///  short kernel:  event ██·········· event ██·········· event     the time is that of queuing it
/// ```
///
/// # Errors
/// Those of `launch`; [`Error::Usage`] for no runs at all; [`DeviceError::Driver`](runtime::Error::Driver) if a kernel has failed.
pub fn measure(
    device: &Device,
    runs: Option<usize>,
    mut launch: impl FnMut() -> Result<(), Error>,
) -> Result<Timing, Error> {
    let runs = runs.unwrap_or(if device.is_cpu() { CPU_RUNS } else { GPU_RUNS });
    if !device.is_cpu() {
        warm_up(device, &mut launch)?;
    }
    let times = device.time(runs, launch)?;
    Timing::of(&times).ok_or_else(|| Error::Usage("runs is 0: a measurement needs at least one run".to_owned()))
}

/// Launches until [`WARM_UP`] has passed, a single time at first, then as often as it takes by what was seen.
fn warm_up(device: &Device, launch: &mut impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    let start = Instant::now();
    let (mut launches, mut done) = (1, 0);
    while start.elapsed() < WARM_UP {
        for _ in 0..launches {
            launch()?;
        }
        device.synchronize()?;
        done += launches;
        let each = start.elapsed().as_secs_f64() / done as f64;
        let left = WARM_UP.saturating_sub(start.elapsed()).as_secs_f64();
        launches = ((left / each).ceil() as usize).clamp(1, WARM_UP_LAUNCHES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;

    fn timing(times: &[u64]) -> Timing {
        let times: Vec<_> = times.iter().map(|&ms| Duration::from_millis(ms)).collect();
        Timing::of(&times).unwrap()
    }

    #[test]
    fn median_and_percentile_are_of_the_sorted_times() {
        assert_eq!(timing(&[9, 1, 5]), Timing { runs: 3, median_ms: 5.0, min_ms: 1.0, p90_ms: 9.0, max_ms: 9.0 });
        assert_eq!(timing(&[4, 1]), Timing { runs: 2, median_ms: 2.5, min_ms: 1.0, p90_ms: 4.0, max_ms: 4.0 });
        let twenty: Vec<u64> = (1..=20).rev().collect();
        assert_eq!(timing(&twenty), Timing { runs: 20, median_ms: 10.5, min_ms: 1.0, p90_ms: 18.0, max_ms: 20.0 });
        assert!(Timing::of(&[]).is_none());
    }

    #[test]
    fn the_kernel_runs_as_often_as_asked() {
        let device = Device::cpu(Checks::Bounds);
        let mut count = 0;
        let timing = measure(&device, Some(7), || {
            count += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((count, timing.runs), (7, 7));
        assert_eq!(measure(&device, None, || Ok(())).unwrap().runs, CPU_RUNS);
        assert!(measure(&device, Some(0), || Ok(())).is_err());
    }
}
