//! The PTX that the build has embedded, and which of it a GPU can run.

use std::path::Path;

use cuda_driver::{ComputeCapability, DriverVersion, Properties, PtxSummary, PtxTarget};

use crate::Error;

#[allow(unreachable_pub, reason = "the generated item is `pub`, for whoever wants it so")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/gpu_kernels.rs"));
}

/// The kernels for one architecture, such as `sm_90a`: the name of each, and its PTX.
pub(super) type ArchPtx = (&'static str, &'static [(&'static str, &'static str)]);

/// One PTX module from a file.
#[derive(Clone, Debug)]
pub(super) struct Ptx {
    /// The architecture it is for, such as `sm_90a`.
    pub(super) arch: String,
    /// The source.
    pub(super) text: String,
}

/// The embedded PTX that a GPU runs, the best first: all of it, or that for one architecture.
///
/// # Errors
/// [`Error::NoPtx`] if the build has none, [`Error::Usage`] if it has none for the architecture,
/// [`Error::IncapableDevice`] if none runs on the GPU.
pub(super) fn embedded_for(gpu: &Properties, arch: Option<&str>) -> Result<Vec<ArchPtx>, Error> {
    let all = embedded::PTX.map_err(|reason| Error::NoPtx { reason: reason.to_owned() })?;
    let names = |archs: &[ArchPtx]| archs.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ");
    let offered: Vec<ArchPtx> = all.iter().copied().filter(|(name, _)| arch.is_none_or(|arch| arch == *name)).collect();
    if let (Some(arch), true) = (arch, offered.is_empty()) {
        return Err(Error::Usage(format!("this build has no PTX for `{arch}`: it has that for {}", names(all))));
    }
    let runnable = choose(&offered, gpu.compute_capability, gpu.driver);
    if runnable.is_empty() {
        let lowest = offered.iter().filter_map(|(arch, _)| Some(PtxTarget::parse(arch)?.capability())).min();
        return Err(Error::IncapableDevice {
            device: format!("CUDA device {} ({})", gpu.ordinal, gpu.name),
            compute_capability: gpu.compute_capability.to_string(),
            lowest: lowest.map_or_else(|| "none".to_owned(), |lowest| lowest.to_string()),
            available: names(&offered),
        });
    }
    Ok(runnable)
}

/// The architectures that there is PTX of a kernel for.
pub(super) fn archs_with(kernel: &str) -> Vec<&'static str> {
    let all = embedded::PTX.unwrap_or_default();
    let having = all.iter().filter(|(_, kernels)| kernels.iter().any(|(name, _)| *name == kernel));
    having.map(|(arch, _)| *arch).collect()
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
    let bytes = crate::files::read(path)?;
    let bad = |reason: &str| Error::BadPtxFile { path: path.to_owned(), reason: reason.to_owned() };
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not text"))?;
    if text.contains('\0') {
        return Err(bad("it contains a NUL byte"));
    }
    let summary = PtxSummary::of(&text);
    if summary.version.is_none() {
        return Err(bad("it has no `.version` directive"));
    }
    let arch = summary.target.ok_or_else(|| bad("it has no `.target` directive"))?;
    Ok(Ptx { arch, text })
}

/// What of the PTX runs on a GPU: the newest architecture first, the more specific one among equals. What the driver does not
/// read comes last, and only if it reads none of it, for the error that says so.
fn choose(archs: &[ArchPtx], capability: ComputeCapability, driver: DriverVersion) -> Vec<ArchPtx> {
    let mut runnable: Vec<(bool, PtxTarget, ArchPtx)> = (archs.iter())
        .filter_map(|&arch| {
            let target = PtxTarget::parse(arch.0).filter(|target| target.runs_on(capability))?;
            // All modules for an architecture are written in one version.
            let (_, ptx) = arch.1.first()?;
            Some((PtxSummary::of(ptx).is_read_by(driver), target, arch))
        })
        .collect();
    runnable.sort_by_key(|&(is_read, target, _)| std::cmp::Reverse((is_read, target)));
    let any_is_read = runnable.iter().any(|(is_read, ..)| *is_read);
    runnable.retain(|(is_read, ..)| *is_read || !any_is_read);
    runnable.into_iter().map(|(_, _, arch)| arch).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The architectures whose PTX, written in these versions, a GPU with such a driver takes, best first.
    fn chosen(archs: &[(&'static str, &'static str)], gpu: [u32; 2], driver: [u32; 2]) -> Vec<&'static str> {
        let archs: Vec<ArchPtx> = (archs.iter())
            .map(|(arch, version)| {
                let ptx = format!("//\n\n.version {version}\n.target {arch}\n");
                let kernels: &[_] = Box::leak(Box::new([("k", &*ptx.leak())]));
                (*arch, kernels)
            })
            .collect();
        let capability = ComputeCapability { major: gpu[0], minor: gpu[1] };
        let driver = DriverVersion { major: driver[0], minor: driver[1] };
        choose(&archs, capability, driver).into_iter().map(|(arch, _)| arch).collect()
    }

    #[test]
    fn a_driver_gets_ptx_that_it_reads() {
        let chosen = |versions: [&'static str; 2], major, minor| {
            chosen(&[("sm_80", versions[0]), ("sm_90a", versions[1])], [9, 0], [major, minor])
        };
        assert_eq!(chosen(["7.0", "8.0"], 11, 8), ["sm_80"]);
        assert_eq!(chosen(["7.0", "8.0"], 12, 0), ["sm_90a", "sm_80"]);
        assert_eq!(chosen(["7.0", "7.8"], 11, 8), ["sm_90a", "sm_80"]);
        assert_eq!(chosen(["7.0", "7.8"], 11, 7), ["sm_80"]);
        assert_eq!(chosen(["8.0", "9.0"], 12, 9), ["sm_80"]);
        assert_eq!(chosen(["8.0", "8.1"], 11, 8), ["sm_90a", "sm_80"], "neither is read: the driver will say so");
    }

    #[test]
    fn a_gpu_gets_what_runs_on_it_the_newest_first() {
        let chosen = |archs: &[&'static str], major, minor| {
            let archs: Vec<_> = archs.iter().map(|&arch| (arch, "7.0")).collect();
            chosen(&archs, [major, minor], [11, 4])
        };
        let archs = ["sm_80", "sm_90a"];
        assert!(chosen(&archs, 7, 5).is_empty());
        assert_eq!(chosen(&archs, 8, 0), ["sm_80"]);
        assert_eq!(chosen(&archs, 8, 9), ["sm_80"]);
        assert_eq!(chosen(&archs, 9, 0), ["sm_90a", "sm_80"]);
        assert_eq!(chosen(&archs, 10, 0), ["sm_80"]);
        assert_eq!(chosen(&archs, 12, 0), ["sm_80"]);
        assert_eq!(chosen(&["sm_90", "sm_90a", "sm_80"], 9, 0), ["sm_90a", "sm_90", "sm_80"]);
        assert_eq!(chosen(&["sm_90", "sm_90a", "sm_100"], 12, 1), ["sm_100", "sm_90"]);
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
