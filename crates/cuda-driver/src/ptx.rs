//! What error messages need to know of a PTX module, read from its text.

use crate::gpu::ComputeCapability;

/// The head of a PTX module and the names of its kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PtxSummary {
    /// The operand of `.version`.
    pub(crate) version: Option<(u32, u32)>,
    /// The first operand of `.target`.
    pub(crate) target: Option<String>,
    /// The names after `.entry`.
    pub(crate) kernels: Vec<String>,
}

impl PtxSummary {
    /// Reads what can be read. PTX that the driver refuses may be anything, so nothing here fails.
    pub(crate) fn of(ptx: &str) -> PtxSummary {
        let mut summary = PtxSummary::default();
        for line in ptx.lines() {
            let line = line.split("//").next().unwrap_or_default();
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

    /// Whether the module's target rules out a GPU of this compute capability. PTX for `sm_80` runs on everything from
    /// 8.0 on, that for `sm_90a` only on 9.0, and that for `sm_100f` on 10.0 and later minor versions.
    pub(crate) fn excludes(&self, device: ComputeCapability) -> bool {
        let Some(target) = self.target.as_deref().and_then(|target| target.strip_prefix("sm_")) else { return false };
        let digits = target.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let Ok(number) = digits.parse::<u32>() else { return false };
        let device_number = device.major * 10 + device.minor;
        match &target[digits.len()..] {
            "" => number > device_number,
            "f" => number > device_number || number / 10 != device.major,
            _ => number != device_number,
        }
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
        assert!(!excludes("nonsense", 8, 0));
        assert!(!excludes("sm_", 8, 0));
    }
}
