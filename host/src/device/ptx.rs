//! The PTX that the build has embedded, and which of it a GPU can run.

use std::path::Path;

use cuda_driver::{ComputeCapability, DriverVersion, Properties};

use crate::Error;

#[allow(unreachable_pub, reason = "the generated item is `pub`, for whoever wants it so")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// One PTX module.
#[derive(Clone, Debug)]
pub(super) struct Ptx {
    /// The architecture it is for, such as `sm_90a`.
    pub(super) arch: String,
    /// The source.
    pub(super) text: String,
}

/// The best embedded PTX for a GPU.
///
/// # Errors
/// [`Error::NoPtx`] if the build has none, [`Error::IncapableDevice`] if none of it runs on the GPU.
pub(super) fn embedded_for(gpu: &Properties) -> Result<Ptx, Error> {
    let modules = embedded::PTX.map_err(|reason| Error::NoPtx { reason: reason.to_owned() })?;
    let archs: Vec<&str> = modules.iter().map(|(arch, _)| *arch).collect();
    match choose(modules, gpu.compute_capability, gpu.driver) {
        Some(index) => Ok(Ptx { arch: modules[index].0.to_owned(), text: modules[index].1.to_owned() }),
        None => Err(Error::IncapableDevice {
            device: format!("CUDA device {} ({})", gpu.ordinal, gpu.name),
            compute_capability: gpu.compute_capability.to_string(),
            lowest: archs
                .iter()
                .filter_map(|arch| Target::parse(arch))
                .map(|target| target.capability)
                .min()
                .map_or_else(|| "none".to_owned(), |lowest| lowest.to_string()),
            available: archs.join(", "),
        }),
    }
}

/// Why the build has no PTX, if it has none.
pub fn missing_ptx() -> Option<&'static str> {
    embedded::PTX.err()
}

/// Reads PTX from a file, and refuses what cannot be PTX before any driver sees it.
///
/// # Errors
/// [`Error::File`], [`Error::BadPtxFile`].
pub(super) fn from_file(path: &Path) -> Result<Ptx, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::File { action: "read", path: path.to_owned(), source })?;
    let bad = |reason: &str| Error::BadPtxFile { path: path.to_owned(), reason: reason.to_owned() };
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not text"))?;
    if text.contains('\0') {
        return Err(bad("it contains a NUL byte"));
    }
    if directive(&text, ".version").is_none() {
        return Err(bad("it has no `.version` directive"));
    }
    let arch = directive(&text, ".target").ok_or_else(|| bad("it has no `.target` directive"))?.to_owned();
    Ok(Ptx { arch, text })
}

/// The first word after a directive that begins a line.
fn directive<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let line = text.lines().map(str::trim_start).find_map(|line| line.strip_prefix(name))?;
    line.split([' ', '\t', ',']).find(|word| !word.is_empty())
}

/// Whether a driver reads the PTX, by the version of the PTX language that it is written in. CUDA 11.0 reads PTX 7.0 and
/// what is older, CUDA 11.8 PTX 7.8, CUDA 12.0 PTX 8.0, CUDA 13.0 PTX 9.0. (From CUDA 12.6 on, the minor version of PTX
/// lags behind by one, which makes a driver seem to read more than it does.)
fn is_read_by(text: &str, driver: DriverVersion) -> bool {
    let version = directive(text, ".version").and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    version.is_some_and(|(major, minor)| (major + 4, minor) <= (driver.major, driver.minor))
}

/// Which GPUs PTX for an architecture runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    capability: ComputeCapability,
    /// `sm_90a`: only on exactly this compute capability, not on later ones.
    exact: bool,
}

impl Target {
    /// `sm_90a` is compute capability 9.0, exactly; `sm_120` is 12.0 or later.
    fn parse(arch: &str) -> Option<Self> {
        let rest = arch.strip_prefix("sm_")?;
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        let capability = ComputeCapability { major: number / 10, minor: number % 10 };
        Some(Self { capability, exact: digits.len() < rest.len() })
    }

    fn runs_on(self, gpu: ComputeCapability) -> bool {
        if self.exact { self.capability == gpu } else { self.capability <= gpu }
    }
}

/// The position of the best module for a GPU: the newest architecture that runs on it, the more specific one among equals.
/// What the driver does not read is taken only if it reads none of them, for the error that says so.
fn choose(modules: &[(&str, &str)], gpu: ComputeCapability, driver: DriverVersion) -> Option<usize> {
    let targets = modules.iter().enumerate().filter_map(|(index, (arch, _))| Some((index, Target::parse(arch)?)));
    targets
        .filter(|(_, target)| target.runs_on(gpu))
        .max_by_key(|&(index, target)| (is_read_by(modules[index].1, driver), target.capability, target.exact))
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn chosen(archs: &[&'static str], major: u32, minor: u32) -> Option<&'static str> {
        let modules: Vec<_> = archs.iter().map(|&arch| (arch, ".version 7.0")).collect();
        let driver = DriverVersion { major: 11, minor: 4 };
        choose(&modules, ComputeCapability { major, minor }, driver).map(|index| archs[index])
    }

    #[test]
    fn a_driver_gets_ptx_that_it_reads() {
        let chosen = |versions: [&str; 2], major, minor| {
            let texts = versions.map(|version| format!("//\n\n.version {version}\n.target sm_0\n"));
            let modules = [("sm_80", texts[0].as_str()), ("sm_90a", &texts[1])];
            let hopper = ComputeCapability { major: 9, minor: 0 };
            choose(&modules, hopper, DriverVersion { major, minor }).map(|index| modules[index].0)
        };
        assert_eq!(chosen(["7.0", "8.0"], 11, 8), Some("sm_80"));
        assert_eq!(chosen(["7.0", "8.0"], 12, 0), Some("sm_90a"));
        assert_eq!(chosen(["7.0", "7.8"], 11, 8), Some("sm_90a"));
        assert_eq!(chosen(["7.0", "7.8"], 11, 7), Some("sm_80"));
        assert_eq!(chosen(["8.0", "9.0"], 12, 9), Some("sm_80"));
        assert_eq!(chosen(["8.0", "9.0"], 13, 0), Some("sm_90a"));
        assert_eq!(chosen(["8.0", "8.1"], 11, 8), Some("sm_90a"), "neither is read: the driver will say so");
    }

    #[test]
    fn a_gpu_gets_the_newest_ptx_that_runs_on_it() {
        let archs = ["sm_80", "sm_90a"];
        assert_eq!(chosen(&archs, 7, 5), None);
        assert_eq!(chosen(&archs, 8, 0), Some("sm_80"));
        assert_eq!(chosen(&archs, 8, 9), Some("sm_80"));
        assert_eq!(chosen(&archs, 9, 0), Some("sm_90a"));
        assert_eq!(chosen(&archs, 10, 0), Some("sm_80"));
        assert_eq!(chosen(&archs, 12, 0), Some("sm_80"));
        assert_eq!(chosen(&["sm_90", "sm_90a", "sm_80"], 9, 0), Some("sm_90a"));
        assert_eq!(chosen(&["sm_90", "sm_90a", "sm_100"], 12, 1), Some("sm_100"));
    }

    #[test]
    fn a_file_that_is_not_ptx_is_refused_with_a_reason() {
        let refused = |content: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(content).unwrap();
            from_file(file.path()).map(|ptx| ptx.arch).map_err(|error| error.to_string())
        };
        assert_eq!(refused(b"// comment\n.version 7.1\n.target sm_80, debug\n"), Ok("sm_80".to_owned()));
        assert!(refused(b"\x7fELF\xff").unwrap_err().contains("not text"));
        assert!(refused(b".version 7.1\n\0").unwrap_err().contains("NUL"));
        assert!(refused(b"hello").unwrap_err().contains(".version"));
        assert!(refused(b".version 7.1\n").unwrap_err().contains(".target"));
        assert!(from_file(Path::new("/no/such/file.ptx")).unwrap_err().to_string().contains("cannot read"));
    }
}
