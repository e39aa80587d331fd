//! The device's half of a round: the kernel is compiled, and NVIDIA's tools say what it needs.

use cuda_builder::{CudaBuilder, Error};
use serde::Serialize;

use super::round::Wanted;
use crate::code::Code;

/// What the kernel was compiled to.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Compiled {
    Code(Box<Code>),
    /// This machine cannot compile kernels; nothing is wrong with them.
    NoToolchain {
        why: String,
    },
    Failed {
        why: String,
    },
}

impl Compiled {
    pub(super) fn code(&self) -> Option<&Code> {
        match self {
            Self::Code(code) => Some(code),
            _ => None,
        }
    }
}

pub(super) fn run(wanted: &Wanted<'_>) -> Compiled {
    let directory = wanted.project.target_dir.join("cuda-builder");
    let builder = CudaBuilder::new(&wanted.project.kernels).arch(wanted.arch).kernels(&[wanted.kernel]);
    match builder.target_dir(&directory).quiet(true).build() {
        Ok(build) => {
            let kernels = build.modules.iter().flat_map(|module| &module.kernels);
            match kernels.into_iter().find(|kernel| kernel.name == wanted.kernel) {
                Some(kernel) => {
                    let code = Code::of(kernel, wanted.arch, build.warnings.clone(), &directory.join("examined"));
                    Compiled::Code(Box::new(code))
                }
                None => Compiled::Failed { why: format!("the PTX has no kernel `{}`", wanted.kernel) },
            }
        }
        Err(error @ Error::MissingToolchain(_)) => Compiled::NoToolchain { why: error.to_string() },
        // Without cargo's line about the crate: the messages name their files.
        Err(Error::Compile { diagnostics, .. }) => Compiled::Failed { why: diagnostics },
        Err(error) => Compiled::Failed { why: error.to_string() },
    }
}
