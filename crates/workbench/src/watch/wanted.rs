//! What is asked for.

use std::time::Duration;

use cuda_builder::Arch;

use crate::project::Project;

/// What is looked at in every round.
pub(super) struct Wanted<'a> {
    pub(super) project: &'a Project,
    pub(super) kernel: &'a str,
    pub(super) operation: Option<&'a str>,
    pub(super) arch: Arch,
    pub(super) limit: Duration,
}
