//! Two runs side by side: what got slower, and what cannot be compared.
//!
//! A case is slower if its median is larger by more than the spread, which is the larger of the two runs' interquartile
//! ranges, and by more than half a percent. cuBLAS, measured in the same runs, is shown beside it: where that has
//! changed likewise, it is the GPU that differs and not the kernel.

use super::report::{BenchReport, CaseReport, Measured};
use tilewright::device::DeviceInfo;

/// Changes below this part of the older median count as none.
const LEAST_CHANGE: f64 = 0.005;

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It got slower by more than the spread.
    Slower,
    /// It got faster by more than the spread.
    Faster,
    /// Neither.
    Same,
}

/// A case in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What tells it from all others.
    pub id: String,
    /// The kernels, if another one ran.
    pub kernels: Option<(String, String)>,
    /// The medians before and now, in milliseconds.
    pub medians_ms: (f64, f64),
    /// The larger spread, in milliseconds.
    pub spread_ms: f64,
    /// The fastest baseline's median now divided by that before, if both runs have one.
    pub baseline: Option<f64>,
    /// What became of it.
    pub change: Change,
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What differs between the runs as a whole, in a sentence each.
    pub differences: Vec<String>,
    /// The cases that both have measured.
    pub compared: Vec<Compared>,
    /// The others, with the reason.
    pub not_comparable: Vec<(String, String)>,
}

impl Comparison {
    /// Compares a run with an older one.
    pub fn new(old: &BenchReport, new: &BenchReport) -> Self {
        let mut differences = Vec::new();
        let (old_gpu, new_gpu) = (gpu(&old.device), gpu(&new.device));
        let same_gpu = old_gpu == new_gpu;
        let mut differ = |what: &str, old: String, new: String| {
            if old != new {
                differences.push(format!("{what}: {old} before, {new} now"));
            }
        };
        differ("GPU", old_gpu, new_gpu);
        differ("driver", driver(&old.device), driver(&new.device));
        let text = |option: Option<&String>| option.cloned().unwrap_or_else(|| "none".to_owned());
        let cublas = |report: &BenchReport| text(report.cublas.as_ref().map(|cublas| &cublas.version));
        differ("cuBLAS", cublas(old), cublas(new));
        differ("inputs", old.timed_inputs.to_string(), new.timed_inputs.to_string());
        differ("runs", old.runs.to_string(), new.runs.to_string());

        let mut comparison = Self { differences, compared: Vec::new(), not_comparable: Vec::new() };
        for case in &new.results {
            let outcome = match old.results.iter().find(|known| known.id == case.id) {
                _ if !same_gpu => Err("the runs are of different GPUs".to_owned()),
                _ if old.timed_inputs != new.timed_inputs => Err("the times are on different inputs".to_owned()),
                None => Err("it is not in the older run".to_owned()),
                Some(known) => compare(known, case),
            };
            match outcome {
                Ok(compared) => comparison.compared.push(compared),
                Err(reason) => comparison.not_comparable.push((case.id.clone(), reason)),
            }
        }
        let gone = old.results.iter().filter(|known| new.results.iter().all(|case| case.id != known.id));
        comparison.not_comparable.extend(gone.map(|case| (case.id.clone(), "it is not in this run".to_owned())));
        comparison
    }

    /// Whether nothing got slower.
    pub fn passes(&self) -> bool {
        self.compared.iter().all(|compared| compared.change != Change::Slower)
    }

    /// The comparison on some lines.
    pub fn text(&self) -> String {
        let mut text = "\nCompared with the older run:\n".to_owned();
        for difference in &self.differences {
            text += &format!("  {difference}\n");
        }
        for compared in &self.compared {
            let (old, new) = compared.medians_ms;
            let change = match compared.change {
                Change::Slower => "SLOWER",
                Change::Faster => "faster",
                Change::Same => "same  ",
            };
            let baseline = compared.baseline.map(|factor| format!(", cuBLAS {:+.1} %", 100.0 * (factor - 1.0)));
            let kernels = compared.kernels.as_ref().map(|(old, new)| format!(", {new} instead of {old}"));
            text += &format!(
                "  {change} {:+.1} %: {old:.4} ms before, {new:.4} ms now, spread {:.4} ms{}{}: {}\n",
                100.0 * (new / old - 1.0),
                compared.spread_ms,
                baseline.unwrap_or_default(),
                kernels.unwrap_or_default(),
                compared.id
            );
        }
        for (id, reason) in &self.not_comparable {
            text += &format!("  not comparable, {reason}: {id}\n");
        }
        let slower = self.compared.iter().filter(|compared| compared.change == Change::Slower).count();
        text + &format!("{slower} of {} slower by more than the spread.\n", self.compared.len())
    }
}

/// A case in both runs, or why it cannot be compared.
fn compare(old: &CaseReport, new: &CaseReport) -> Result<Compared, String> {
    let (before, now) = match (old.measured(), new.measured()) {
        (Some(before), Some(now)) => (before, now),
        (None, _) => return Err("it did not run before".to_owned()),
        (Some(_), None) => return Err("it did not run now".to_owned()),
    };
    let baseline = |measured: &Measured| measured.baselines.first().map(|baseline| baseline.times.median_ms);
    let (old_ms, new_ms) = (before.times.median_ms, now.times.median_ms);
    let spread_ms = before.times.spread_ms.max(now.times.spread_ms);
    let least = spread_ms.max(LEAST_CHANGE * old_ms);
    let change = match new_ms - old_ms {
        more if more > least => Change::Slower,
        less if less < -least => Change::Faster,
        _ => Change::Same,
    };
    Ok(Compared {
        id: new.id.clone(),
        kernels: (before.kernel != now.kernel).then(|| (before.kernel.clone(), now.kernel.clone())),
        medians_ms: (old_ms, new_ms),
        spread_ms,
        baseline: baseline(before).zip(baseline(now)).map(|(before, now)| now / before),
        change,
    })
}

/// The kind of GPU, whichever one of them.
fn gpu(device: &DeviceInfo) -> String {
    match device {
        DeviceInfo::Cuda { name, multiprocessors, .. } => format!("{name} with {multiprocessors} multiprocessors"),
        DeviceInfo::Cpu { .. } => "none".to_owned(),
    }
}

fn driver(device: &DeviceInfo) -> String {
    match device {
        DeviceInfo::Cuda { driver_cuda_version, driver_release, .. } => {
            format!("{} (CUDA {driver_cuda_version})", driver_release.as_deref().unwrap_or("unknown release"))
        }
        DeviceInfo::Cpu { .. } => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::inputs::Inputs;
    use super::super::report::tests::{report, times};
    use super::super::report::{Measured, Outcome};
    use super::*;

    fn measured(case: &mut CaseReport) -> &mut Measured {
        match &mut case.outcome {
            Outcome::Measured(measured) => measured,
            Outcome::NotRun { reason } => panic!("{reason}"),
        }
    }

    #[test]
    fn slower_is_slower_by_more_than_the_larger_spread() {
        let (mut old, mut new) = (report(2.0), report(2.0));
        for (index, (before, now)) in [
            ((1.0, 0.01), (1.02, 0.03)),
            ((1.0, 0.01), (1.04, 0.03)),
            ((1.0, 0.05), (0.9, 0.0)),
            ((1.0, 0.0), (1.004, 0.0)),
        ]
        .into_iter()
        .enumerate()
        {
            measured(&mut old.results[index]).times = times(before.0, before.1);
            measured(&mut new.results[index]).times = times(now.0, now.1);
        }
        let comparison = Comparison::new(&old, &new);
        let changes: Vec<Change> = comparison.compared.iter().take(5).map(|compared| compared.change).collect();
        assert_eq!(changes, [Change::Same, Change::Slower, Change::Faster, Change::Same, Change::Same]);
        assert!(!comparison.passes() && comparison.differences.is_empty() && comparison.not_comparable.is_empty());
        let text = comparison.text();
        assert!(text.contains("SLOWER +4.0 %: 1.0000 ms before, 1.0400 ms now, spread 0.0300 ms"), "{text}");
        assert!(text.contains(&format!("1 of {} slower", new.results.len())));
        assert!(Comparison::new(&new, &new).passes());
    }

    #[test]
    fn what_only_one_run_has_is_named() {
        let (mut old, mut new) = (report(2.0), report(2.0));
        let gone = new.results.remove(0).id;
        let unknown = old.results.remove(3).id;
        new.results[0].outcome = Outcome::NotRun { reason: "no kernel".to_owned() };
        let comparison = Comparison::new(&old, &new);
        let reason = |id: &str| &comparison.not_comparable.iter().find(|(known, _)| known == id).unwrap().1;
        assert_eq!(reason(&gone), "it is not in this run");
        assert_eq!(reason(&unknown), "it is not in the older run");
        assert_eq!(reason(&new.results[0].id), "it did not run now");
        assert!(comparison.passes(), "nothing that was compared is slower");
    }

    #[test]
    fn times_of_other_gpus_and_inputs_are_not_compared() {
        let old = report(2.0);
        let mut other = report(2.0);
        other.timed_inputs = Inputs::Graded;
        let comparison = Comparison::new(&old, &other);
        assert!(comparison.compared.is_empty() && comparison.text().contains("different inputs"));
        other = report(2.0);
        other.device = DeviceInfo::Cuda {
            ordinal: 0,
            name: "another GPU".to_owned(),
            uuid: String::new(),
            compute_capability: "8.0".to_owned(),
            multiprocessors: 108,
            memory_bytes: 1,
            driver_cuda_version: "13.0".to_owned(),
            driver_release: None,
            ptx_arch: "sm_80".to_owned(),
        };
        let comparison = Comparison::new(&old, &other);
        assert!(comparison.compared.is_empty() && comparison.text().contains("different GPUs"));
        assert!(comparison.differences[0].starts_with("GPU: none before, another GPU"), "{:?}", comparison.differences);
    }

    #[test]
    fn another_kernel_and_a_baseline_that_moved_are_shown() {
        let (old, mut new) = (report(2.0), report(2.2));
        measured(&mut new.results[1]).kernel = "gemm_new_fp32".to_owned();
        let text = Comparison::new(&old, &new).text();
        assert!(
            text.contains("cuBLAS +10.0 %") && text.contains("gemm_new_fp32 instead of gemm_mma_nt_fp32_3xtf32"),
            "{text}"
        );
    }
}
