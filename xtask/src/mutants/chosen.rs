//! Changes of the kernels' source of which each makes them wrong.

/// A change of one place.
pub(super) struct Mutant {
    /// What is wrong then, in a few words.
    pub(super) what: &'static str,
    /// The file, in `gpu-kernels/src`.
    pub(super) file: &'static str,
    /// What stands there, once in the file.
    pub(super) from: &'static str,
    /// What stands there instead.
    pub(super) to: &'static str,
    /// The kernels that are to tell.
    pub(super) kernels: &'static [&'static str],
}

pub(super) const CHOSEN: &[Mutant] = &[Mutant {
    what: "waits for the other phase of a full place",
    file: "gemm/wgmma/ring.rs",
    from: "unsafe { self.full().wait(self.parity) }",
    to: "unsafe { self.full().wait(self.parity ^ 1) }",
    kernels: &["gemm_wgmma_packed_fp16", "gemm_wgmma_nt_fp32_3xtf32"],
}];
