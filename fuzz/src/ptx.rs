//! PTX, and what NVIDIA's tools say of it.

use cuda_builder::inspect::{Ptx, executed_together, read_listing, read_report, split_by_kernel};
use cuda_driver::{ComputeCapability, DriverVersion, PtxSummary, PtxTarget};

/// Whatever the text is: it is refused with a reason, or what is made of it agrees with itself.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    summary(text);
    module(text);
    let _ = executed_together(text);
    match read_report(text) {
        Ok((kernels, _)) => assert!(kernels.iter().all(|kernel| text.contains(&kernel.name))),
        Err(error) => crate::has_reason(error),
    }
    for kernel in read_listing(text) {
        assert_eq!(
            kernel.opcodes().count(),
            kernel
                .instructions
                .iter()
                .filter(|it| it.split_ascii_whitespace().any(|word| !word.starts_with('@')))
                .count()
        );
    }
}

fn summary(text: &str) {
    let summary = PtxSummary::of(text);
    assert!(summary.kernels.iter().chain(&summary.target).all(|name| text.contains(name.as_str())));
    for (major, minor) in [(0, 0), (9, 0), (u32::MAX, u32::MAX)] {
        let _ = summary.is_read_by(DriverVersion { major, minor });
        let target = summary.target.as_deref().and_then(PtxTarget::parse);
        let device = ComputeCapability { major, minor };
        assert_eq!(summary.excludes(device), target.is_some_and(|target| !target.runs_on(device)));
    }
}

fn module(text: &str) {
    let whole = match Ptx::parse(text) {
        Ok(module) => module,
        Err(error) => {
            crate::has_reason(error);
            assert!(split_by_kernel(text).is_err(), "what cannot be read is split");
            return;
        }
    };
    let kernels: Vec<String> = whole.kernels().map(|kernel| kernel.name.clone()).collect();
    if let Err(error) = whole.check(&kernels) {
        crate::has_reason(error);
    }
    match split_by_kernel(text) {
        Ok(modules) => {
            assert!(modules.iter().map(|(name, _)| name).eq(&kernels), "{modules:?} of {kernels:?}");
            for (name, module) in &modules {
                // There is nothing left to split.
                let again = split_by_kernel(module).expect("a module of one kernel");
                assert!(matches!(&again[..], [(same, _)] if same == name), "{again:?}");
            }
        }
        Err(error) => crate::has_reason(error),
    }
}
