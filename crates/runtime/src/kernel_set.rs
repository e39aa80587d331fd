//! The kernels of a crate as PTX, and perhaps as machine code, embedded in the program for each architecture, and the choice of
//! what a GPU can run.

use std::path::Path;

use cuda_driver::{ComputeCapability, DriverVersion, Properties, PtxSummary, PtxTarget};

use crate::Error;

/// The kernels of one crate as PTX, and perhaps as machine code: what [`kernel_set!`](crate::kernel_set) makes of what `cuda_builder::embed` has embedded.
#[derive(Debug)]
pub struct KernelSet {
    crate_name: &'static str,
    digest: Option<&'static str>,
    ptx: Source,
    cubins: &'static [ArchCubins],
}

/// Where the PTX of a set is.
#[derive(Debug)]
pub(crate) enum Source {
    /// A module for each kernel of each architecture.
    Embedded(&'static [ArchPtx]),
    /// There is none, for this reason.
    Missing(&'static str),
    /// One module with all kernels, for this architecture.
    File { arch: String, text: String },
}

/// The kernels for one architecture, such as `sm_90a`: the name of each, and its PTX.
pub(crate) type ArchPtx = (&'static str, &'static [(&'static str, &'static str)]);

/// Machine code of kernels: the architecture of the PTX that it was made of, its own, and the name of each kernel with its cubin,
/// compressed.
pub(crate) type ArchCubins = (&'static str, &'static str, &'static [(&'static str, &'static [u8])]);

/// A [`KernelSet`] of what the build script has embedded of the crate in this directory: the name of the file that
/// `cuda_builder::embed` has written, which is the directory's with underscores.
///
/// ```ignore
/// // build.rs:  fn main() { cuda_builder::embed("../gpu-kernels", &[Arch::Sm80]) }
/// static KERNELS: KernelSet = runtime::kernel_set!("gpu_kernels");
/// ```
#[macro_export]
macro_rules! kernel_set {
    ($directory:literal) => {{
        #[allow(unreachable_pub, reason = "the generated items are `pub`, for whoever wants them so")]
        mod embedded {
            include!(concat!(env!("OUT_DIR"), "/", $directory, ".rs"));
        }
        $crate::KernelSet::embedded(embedded::CRATE, embedded::DIGEST, embedded::PTX, embedded::CUBINS)
    }};
}

impl KernelSet {
    /// The kernels of a crate: for each architecture its name and its kernels, each with its name and a PTX module of its own;
    /// or why there are none. `digest` is that of the sources that the PTX was made from. `cubins` is machine code that `ptxas` has
    /// made of that PTX: the architectures of both, and the kernels, each as a file compressed in zlib's format.
    #[doc(hidden)]
    pub const fn embedded(
        crate_name: &'static str,
        digest: Option<&'static str>,
        ptx: Result<&'static [ArchPtx], &'static str>,
        cubins: &'static [ArchCubins],
    ) -> Self {
        let ptx = match ptx {
            Ok(archs) => Source::Embedded(archs),
            Err(reason) => Source::Missing(reason),
        };
        Self { crate_name, digest, ptx, cubins }
    }

    /// The kernels of a crate from a file of PTX, in place of what is embedded. They stay in memory for good.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::BadPtxFile`] for what cannot be PTX, before any driver sees it.
    ///
    /// # Safety
    /// Kernels in the file that have the names of the crate's kernels have been compiled from the same sources as these.
    pub unsafe fn from_file(crate_name: &'static str, path: &Path) -> Result<&'static Self, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
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
        Ok(Box::leak(Box::new(Self { crate_name, digest: None, ptx: Source::File { arch, text }, cubins: &[] })))
    }

    /// The crate whose kernels they are, with underscores.
    pub fn crate_name(&self) -> &'static str {
        self.crate_name
    }

    /// The digest of the sources that the PTX was made from.
    pub fn digest(&self) -> Option<&'static str> {
        self.digest
    }

    /// Whether it is from a file, which brings no digest.
    pub(crate) fn is_from_file(&self) -> bool {
        matches!(self.ptx, Source::File { .. })
    }

    /// Why there is no PTX, if there is none.
    pub fn missing(&self) -> Option<&'static str> {
        match self.ptx {
            Source::Missing(reason) => Some(reason),
            Source::Embedded(_) | Source::File { .. } => None,
        }
    }

    /// The architectures that there is PTX of a kernel for.
    pub(crate) fn archs_with(&self, kernel: &str) -> Vec<&'static str> {
        let Source::Embedded(all) = self.ptx else { return Vec::new() };
        let having = all.iter().filter(|(_, kernels)| kernels.iter().any(|(name, _)| *name == kernel));
        having.map(|(arch, _)| *arch).collect()
    }

    /// The machine code of a kernel that a GPU runs, from the PTX for `ptx_arch`: for its own compute capability if there is that, else
    /// for the nearest lower one of the same major number. Its architecture, and the compressed cubin.
    pub(crate) fn cubin(
        &self,
        kernel: &str,
        ptx_arch: &str,
        gpu: ComputeCapability,
    ) -> Option<(&'static str, &'static [u8])> {
        let of_ptx = self.cubins.iter().filter(|(of, ..)| *of == ptx_arch);
        let fitting = of_ptx.filter_map(|&(_, arch, kernels)| {
            let target = PtxTarget::parse(arch).filter(|target| target.code_runs_on(gpu))?;
            let &(_, cubin) = kernels.iter().find(|(name, _)| *name == kernel)?;
            Some((target, arch, cubin))
        });
        fitting.max_by_key(|(target, ..)| *target).map(|(_, arch, cubin)| (arch, cubin))
    }

    pub(crate) fn source(&self) -> &Source {
        &self.ptx
    }

    /// The embedded PTX that a GPU runs, the best first: all of it, or that for one architecture.
    ///
    /// # Errors
    /// [`Error::NoPtx`] if there is none; [`Error::NoSuchArch`] if there is none for the architecture;
    /// [`Error::IncapableDevice`] if none runs on the GPU.
    pub(crate) fn runnable(&self, gpu: &Properties, arch: Option<&str>) -> Result<Vec<ArchPtx>, Error> {
        let all = match self.ptx {
            Source::Embedded(all) => all,
            Source::Missing(reason) => return Err(Error::NoPtx { reason: reason.to_owned() }),
            Source::File { .. } => return Ok(Vec::new()),
        };
        let names = |archs: &[ArchPtx]| archs.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ");
        let is_wanted = |name: &str| arch.is_none_or(|arch| arch == name);
        let offered: Vec<ArchPtx> = all.iter().copied().filter(|(name, _)| is_wanted(name)).collect();
        if let (Some(arch), true) = (arch, offered.is_empty()) {
            return Err(Error::NoSuchArch { arch: arch.to_owned(), available: names(all) });
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
    fn a_gpu_gets_the_nearest_machine_code_of_its_generation() {
        static SET: KernelSet = KernelSet::embedded(
            "k",
            None,
            Ok(&[]),
            &[
                ("sm_80", "sm_80", &[("a", b"a80"), ("p", b"p80")]),
                ("sm_80", "sm_86", &[("a", b"a86")]),
                ("sm_80", "sm_90", &[("a", b"a90")]),
                ("sm_80", "sm_120", &[("a", b"a120")]),
                ("sm_90a", "sm_90a", &[("a", b"a90a"), ("w", b"w90a")]),
            ],
        );
        let chosen = |kernel, ptx_arch, major, minor| {
            SET.cubin(kernel, ptx_arch, ComputeCapability { major, minor })
                .map_or("", |(_, cubin)| std::str::from_utf8(cubin).unwrap())
        };
        assert_eq!(chosen("a", "sm_80", 8, 0), "a80");
        assert_eq!(chosen("a", "sm_80", 8, 6), "a86");
        assert_eq!(chosen("a", "sm_80", 8, 9), "a86");
        assert_eq!(chosen("p", "sm_80", 8, 9), "p80", "the nearest that has the kernel");
        assert_eq!(chosen("w", "sm_80", 8, 9), "");
        assert_eq!(chosen("a", "sm_90a", 9, 0), "a90a");
        assert_eq!(chosen("a", "sm_80", 9, 0), "a90", "never that of other PTX");
        assert_eq!(chosen("p", "sm_80", 9, 0), "");
        assert_eq!(chosen("a", "sm_90a", 10, 0), "");
        assert_eq!(chosen("a", "sm_80", 10, 0), "", "of the same major number only");
        assert_eq!(chosen("a", "sm_80", 12, 1), "a120");
    }

    #[test]
    fn a_file_that_is_not_ptx_is_refused_with_a_reason() {
        let refused = |content: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(content).unwrap();
            // SAFETY: nothing of it is ever launched.
            let set = unsafe { KernelSet::from_file("k", file.path()) }.map_err(|error| error.to_string())?;
            let Source::File { arch, .. } = &set.ptx else { panic!("{set:?}") };
            Ok::<_, String>(arch.clone())
        };
        assert_eq!(refused(b"// comment\n.version 7.1\n.target sm_80, debug\n"), Ok("sm_80".to_owned()));
        assert!(refused(b"\x7fELF\xff").unwrap_err().contains("not text"));
        assert!(refused(b".version 7.1\n\0").unwrap_err().contains("NUL"));
        assert!(refused(b"hello").unwrap_err().contains(".version"));
        assert!(refused(b".version 7.1\n").unwrap_err().contains(".target"));
        // SAFETY: there is nothing.
        let missing = unsafe { KernelSet::from_file("k", Path::new("/no/such/file.ptx")) };
        assert!(missing.unwrap_err().to_string().contains("cannot read"));
    }
}
