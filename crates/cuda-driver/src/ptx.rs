//! Reads the head of a PTX module and the names of its kernels from its text, for a check before the module is loaded and for error
//! messages.

use gpu_facts::ComputeCapability;

use crate::version::DriverVersion;

/// The head of a PTX module and the names of its kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PtxSummary {
    /// The operand of `.version`.
    pub version: Option<(u32, u32)>,
    /// The first operand of `.target`.
    pub target: Option<String>,
    /// The names after `.entry`.
    pub kernels: Vec<String>,
}

impl PtxSummary {
    /// Reads what can be read. PTX that the driver refuses may be anything, so nothing here fails.
    pub fn of(ptx: &str) -> PtxSummary {
        let mut summary = PtxSummary::default();
        for line in ptx.lines() {
            let line = line.split("//").next().unwrap_or_default();
            // Most lines are instructions.
            if !line.contains(".version") && !line.contains(".target") && !line.contains(".entry") {
                continue;
            }
            let mut words = line.split([' ', '\t', ',', '(', ')']).filter(|word| !word.is_empty());
            while let Some(word) = words.next() {
                match word {
                    ".version" if summary.version.is_none() => summary.version = words.next().and_then(parse_version),
                    ".target" if summary.target.is_none() => summary.target = words.next().map(str::to_owned),
                    ".entry" => summary.kernels.extend(words.next().map(str::to_owned)),
                    _ => {}
                }
            }
        }
        summary
    }

    /// Whether the module's target rules out a GPU of this compute capability. A target that cannot be read rules out
    /// none: the driver has to say.
    pub fn excludes(&self, device: ComputeCapability) -> bool {
        let target = self.target.as_deref().and_then(PtxTarget::parse);
        target.is_some_and(|target| !target.runs_on(device))
    }

    /// Whether a driver reads the PTX, by the version of the language. CUDA 11.0 reads PTX 7.0 and what is older, CUDA 11.8
    /// PTX 7.8, CUDA 12.0 PTX 8.0, CUDA 13.0 PTX 9.0. (From CUDA 12.6 on, the minor version of PTX lags behind by one, which
    /// makes a driver seem to read more than it does.)
    pub fn is_read_by(&self, driver: DriverVersion) -> bool {
        self.version.is_some_and(|(major, minor)| (major.saturating_add(4), minor) <= (driver.major, driver.minor))
    }
}

/// The GPUs that PTX, or machine code, for a target runs on. The greater of two that run on a GPU is the better one for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtxTarget {
    capability: ComputeCapability,
    scope: Scope,
}

/// On which other GPUs than those of its own compute capability PTX runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// `sm_80`: on all later ones.
    Later,
    /// `sm_100f`: on those of later minor versions.
    Family,
    /// `sm_90a`: on none.
    Exact,
}

impl PtxTarget {
    /// Reads the operand of `.target`: `sm_90a` is compute capability 9.0, `sm_120` is 12.0. `None` for what is no such
    /// name.
    pub fn parse(name: &str) -> Option<PtxTarget> {
        let rest = name.strip_prefix("sm_")?;
        let digits = rest.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        let scope = match &rest[digits.len()..] {
            "" => Scope::Later,
            "f" => Scope::Family,
            _ => Scope::Exact,
        };
        Some(PtxTarget { capability: ComputeCapability { major: number / 10, minor: number % 10 }, scope })
    }

    /// The lowest compute capability that it runs on.
    pub fn capability(self) -> ComputeCapability {
        self.capability
    }

    /// Whether it runs on a GPU. PTX for `sm_80` runs on everything from 8.0 on, that for `sm_90a` only on 9.0, and that for
    /// `sm_100f` on 10.0 and later minor versions.
    pub fn runs_on(self, device: ComputeCapability) -> bool {
        match self.scope {
            Scope::Later => self.capability <= device,
            Scope::Family => self.capability <= device && self.capability.major == device.major,
            Scope::Exact => self.capability == device,
        }
    }

    /// Whether machine code for it runs on a GPU: on those of the same major compute capability from its own minor one on, and
    /// that for `sm_90a` only on 9.0.
    pub fn code_runs_on(self, device: ComputeCapability) -> bool {
        self.runs_on(device) && self.capability.major == device.major
    }

    /// Whether it also runs on all GPUs of later compute capabilities.
    pub fn is_portable(self) -> bool {
        self.scope == Scope::Later
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_version_target_and_kernels() {
        let summary = PtxSummary::of(
            "// .version 1.0\n.version 8.3\n.target sm_90a, debug\n.visible .entry first(\n.param .u64 p)\n\
             .func helper\n.visible .entry second ()\n",
        );
        assert_eq!(summary.version, Some((8, 3)));
        assert_eq!(summary.target.as_deref(), Some("sm_90a"));
        assert_eq!(summary.kernels, ["first", "second"]);
    }

    #[test]
    fn reads_nothing_from_what_is_not_ptx() {
        assert_eq!(PtxSummary::of(""), PtxSummary::default());
        assert_eq!(PtxSummary::of(".version x.y\n.target\n.entry").version, None);
        assert_eq!(PtxSummary::of("\u{7f}ELF .version").kernels, Vec::<String>::new());
    }

    #[test]
    fn targets_exclude_devices() {
        let excludes = |target: &str, major, minor| {
            PtxSummary { target: Some(target.to_owned()), ..PtxSummary::default() }
                .excludes(ComputeCapability { major, minor })
        };
        assert!(!excludes("sm_80", 8, 0));
        assert!(!excludes("sm_80", 9, 0));
        assert!(excludes("sm_90", 8, 9));
        assert!(!excludes("sm_90a", 9, 0));
        assert!(excludes("sm_90a", 10, 0));
        assert!(!excludes("sm_100f", 10, 3));
        assert!(excludes("sm_100f", 12, 0));
        assert!(excludes("sm_100f", 9, 0));
        assert!(!excludes("nonsense", 8, 0));
        assert!(!excludes("sm_", 8, 0));
    }

    #[test]
    fn the_better_of_two_targets_is_the_newer_or_more_specific_one() {
        let target = |name| PtxTarget::parse(name).unwrap();
        assert!(target("sm_80") < target("sm_90") && target("sm_90") < target("sm_90a"));
        assert!(target("sm_90a") < target("sm_100") && target("sm_100") < target("sm_100f"));
        assert!(target("sm_86").is_portable() && !target("sm_90a").is_portable() && !target("sm_100f").is_portable());
        assert_eq!(target("sm_120").capability(), ComputeCapability { major: 12, minor: 0 });
        for nonsense in ["", "sm_", "compute_90", "sm_9x0"] {
            assert_eq!(PtxTarget::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn machine_code_stays_within_its_generation() {
        let runs =
            |target, major, minor| PtxTarget::parse(target).unwrap().code_runs_on(ComputeCapability { major, minor });
        assert!(runs("sm_80", 8, 0) && runs("sm_80", 8, 9) && !runs("sm_80", 9, 0));
        assert!(!runs("sm_86", 8, 0) && runs("sm_86", 8, 6) && runs("sm_86", 8, 9));
        assert!(runs("sm_90a", 9, 0) && !runs("sm_90a", 9, 1) && !runs("sm_90a", 10, 0));
        assert!(runs("sm_100", 10, 3) && !runs("sm_100", 12, 0) && runs("sm_120", 12, 1));
        assert!(runs("sm_100f", 10, 3) && !runs("sm_100f", 11, 0));
    }

    #[test]
    fn a_driver_reads_the_language_of_its_time() {
        let reads = |version: &str, major, minor| {
            PtxSummary::of(&format!(".version {version}\n")).is_read_by(DriverVersion { major, minor })
        };
        assert!(reads("7.0", 11, 0) && !reads("7.1", 11, 0));
        assert!(reads("7.8", 11, 8) && !reads("8.0", 11, 8));
        assert!(reads("8.0", 12, 0) && reads("8.9", 13, 0) && !reads("9.0", 12, 9));
        assert!(!reads("4294967295.0", 13, 0) && !reads("x", 13, 0));
    }
}
