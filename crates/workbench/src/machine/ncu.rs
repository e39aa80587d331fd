//! NVIDIA's Nsight Compute, which counts on a GPU.

use std::ffi::OsStr;
use std::process::Command;

/// How to get Nsight Compute.
pub(crate) const ADVICE: &str = "missing: it comes with NVIDIA's CUDA toolkit, alone from developer.nvidia.com/nsight-compute, or as Debian's \
                                     package nsight-compute (non-free)";

/// The first line of `ncu --version` that has one.
pub(crate) fn version(ncu: &OsStr) -> Option<String> {
    let output = Command::new(ncu).arg("--version").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find(|line| line.contains("Version")).or_else(|| text.lines().next())?;
    Some(version.trim().to_owned())
}
