//! What JSON says beside its figures: which schema it has, when it was written, from which sources, on which GPU.
//!
//! ```text
//!  {"schema": "tilewright-operation", "schema_version": 1, "date": …, "commit": …, "kernels": …, "driver": …, "peak": …, <the measurement>}
//! ```

use std::fmt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::{Device, DeviceInfo, KernelSet};
use serde::Serialize;

use crate::{Measurement, Peak};

/// The version of the schema of measurements. It changes when a field changes its meaning or goes away.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Where a program's figures are from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Provenance {
    /// When, in UTC (RFC 3339).
    pub(crate) date: String,
    /// The commit of the crate's directory, with `-dirty` if files had been changed: only where cargo has built and started the program, for
    /// nobody else can tell that it is what the program was built from.
    pub(crate) commit: Option<String>,
    /// The digests of the sources of its kernels.
    pub(crate) kernels: Vec<KernelSources>,
    /// The release of the GPU's driver.
    pub(crate) driver: Option<String>,
    /// What the GPU can do at most, by its driver's figures.
    pub(crate) peak: Option<Peak>,
}

/// What a crate's kernels were made from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KernelSources {
    #[serde(rename = "crate")]
    name: &'static str,
    digest: Option<&'static str>,
}

impl Provenance {
    /// That of a program with these kernels, which runs now, on this device.
    pub(crate) fn of(kernel_sets: &[&'static KernelSet], device: &Device) -> Self {
        let driver = match device.describe() {
            DeviceInfo::Cuda { driver_release, driver_cuda_version, .. } => {
                let release = driver_release.map(|release| format!("{release} (CUDA {driver_cuda_version})"));
                release.or(Some(format!("CUDA {driver_cuda_version}")))
            }
            DeviceInfo::Cpu { .. } => None,
        };
        let sources = |set: &&'static KernelSet| KernelSources { name: set.crate_name(), digest: set.digest() };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            date: rfc3339(seconds),
            commit: std::env::var("CARGO_MANIFEST_DIR").ok().and_then(|directory| commit_of(&directory)),
            kernels: kernel_sets.iter().map(sources).collect(),
            driver,
            peak: Peak::of(device),
        }
    }
}

/// A measurement as a line of JSON.
#[derive(Serialize)]
pub(crate) struct WrittenMeasurement<'a> {
    pub(crate) schema: &'static str,
    pub(crate) schema_version: u32,
    #[serde(flatten)]
    pub(crate) provenance: &'a Provenance,
    #[serde(flatten)]
    pub(crate) measurement: Measurement,
}

impl<'a> WrittenMeasurement<'a> {
    pub(crate) fn new(provenance: &'a Provenance, measurement: Measurement) -> Self {
        Self { schema: "tilewright-operation", schema_version: SCHEMA_VERSION, provenance, measurement }
    }
}

impl fmt::Display for WrittenMeasurement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.measurement.fmt(f)
    }
}

/// The commit that is checked out in a directory, if git knows it.
fn commit_of(directory: &str) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(["-C", directory]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"]);
    let dirty = changes.is_none_or(|changes| !changes.is_empty());
    Some(commit + if dirty { "-dirty" } else { "" })
}

/// Seconds since 1970 as a time in UTC.
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day that a leap year has more is the last one; 719,468 days before 1970 begins the year 0.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;
    use crate::Operation;
    use crate::bench;
    use crate::testing::Twice;

    #[test]
    fn times_are_those_of_calendars() {
        for (seconds, time) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_795_651_200, "2026-11-26T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), time);
        }
    }

    #[test]
    fn a_line_says_what_it_is_and_has_the_measurement() {
        let (operation, device) = (Twice { wrong: false }, Device::cpu(Checks::Bounds));
        let sizes = operation.describe().sizes_of(&[100]).unwrap();
        let measurement = bench(&operation, &device, sizes, 3, 1).unwrap();
        let provenance = Provenance::of(&[], &device);
        let line = serde_json::to_value(WrittenMeasurement::new(&provenance, measurement)).unwrap();
        assert_eq!((line["schema"].as_str(), line["schema_version"].as_u64()), (Some("tilewright-operation"), Some(1)));
        assert_eq!((line["operation"].as_str(), line["sizes"].as_str()), (Some("twice"), Some("n=100")));
        assert!(
            line["median_ms"].as_f64().is_some()
                && line["peak"].is_null()
                && line["date"].as_str().unwrap().len() == 20
        );
        assert_eq!(line["is_of_executor"], true);
        assert_eq!(
            (line["accuracy"]["elements"].as_u64(), line["accuracy"]["part_of_bound"].as_f64()),
            (Some(100), Some(0.0))
        );
    }

    #[test]
    fn the_commit_is_that_of_the_directory() {
        assert_eq!(commit_of("/no/such/directory"), None);
        // A package from a registry has none, a checkout has.
        let commit = commit_of(env!("CARGO_MANIFEST_DIR"));
        assert!(commit.is_none_or(|commit| commit.trim_end_matches("-dirty").len() == 12));
    }
}
