//! One round: both halves at the same time, and what differs from the last good one.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cuda_builder::Arch;
use serde::Serialize;

use super::compiled::{self, Compiled};
use super::host::{self, Checks, Host};
use crate::Project;
use crate::code::{Class, Code, Machine};

/// What is looked at in every round.
pub(super) struct Wanted<'a> {
    pub(super) project: &'a Project,
    pub(super) kernel: &'a str,
    pub(super) operation: Option<&'a str>,
    pub(super) arch: Arch,
    pub(super) limit: Duration,
}

/// What has come of it.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) kernel: String,
    pub(super) checks: Checks,
    pub(super) compiled: Compiled,
    /// The compiler's, of both halves, each once.
    pub(super) warnings: Vec<String>,
    pub(super) checked_after: Duration,
    pub(super) compiled_after: Duration,
    /// The operations that there are, if the one that was asked for is not.
    pub(super) refused: Option<Vec<String>>,
}

/// A number that is another one than in the last good round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) what: String,
    pub(super) before: u64,
    pub(super) now: u64,
    /// Whether more of it is better, worse, or neither.
    #[serde(skip)]
    pub(super) more: More,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    Better,
    Worse,
    Neither,
}

/// The last round in which everything was right.
#[derive(Default)]
pub(super) struct Last {
    good: Option<Code>,
}

impl Round {
    /// Builds, checks, compiles. None, if meanwhile there is something newer to look at.
    pub(super) fn run(wanted: &Wanted<'_>, is_superseded: &dyn Fn() -> bool) -> Option<Self> {
        let start = Instant::now();
        let (host, compiled) = thread::scope(|scope| {
            let compiled = scope.spawn(|| (compiled::run(wanted), start.elapsed()));
            let host = host::run(wanted, is_superseded).map(|host| (host, start.elapsed()));
            (host, compiled.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let (Host { checks, mut warnings, refused }, checked_after) = host?;
        let (compiled, compiled_after) = compiled;
        for warning in compiled.code().into_iter().flat_map(|code| &code.warnings) {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        let kernel = wanted.kernel.to_owned();
        Some(Self { kernel, checks, compiled, warnings, checked_after, compiled_after, refused })
    }

    /// Whether there is nothing to mend.
    pub(super) fn is_right(&self) -> bool {
        self.checks.is_right() && !matches!(self.compiled, Compiled::Failed { .. })
    }

    /// What the device's half has to say if the host's does not compile, and what not: the same source has the same errors.
    pub(super) fn has_the_same_errors(&self) -> bool {
        matches!((&self.checks, &self.compiled), (Checks::DoesNotCompile { .. }, Compiled::Failed { .. }))
    }

    /// One line.
    pub(super) fn json(&self, difference: &[Change]) -> anyhow::Result<String> {
        #[derive(Serialize)]
        struct Line<'a> {
            kernel: &'a str,
            right: bool,
            checks: &'a Checks,
            compiled: &'a Compiled,
            difference: &'a [Change],
            warnings: &'a [String],
            seconds: f64,
            checked_after_seconds: f64,
            compiled_after_seconds: f64,
        }
        let Self { kernel, checks, compiled, warnings, checked_after, compiled_after, .. } = self;
        let line = Line {
            kernel,
            right: self.is_right(),
            checks,
            compiled,
            difference,
            warnings,
            seconds: self.seconds(),
            checked_after_seconds: checked_after.as_secs_f64(),
            compiled_after_seconds: compiled_after.as_secs_f64(),
        };
        serde_json::to_string(&line).context("a round cannot be written as JSON")
    }

    /// How long it took.
    pub(super) fn seconds(&self) -> f64 {
        self.checked_after.max(self.compiled_after).as_secs_f64()
    }
}

impl Last {
    /// What differs from the last good round.
    pub(super) fn difference(&self, round: &Round) -> Vec<Change> {
        match (&self.good, round.compiled.code()) {
            (Some(good), Some(now)) => difference(good, now),
            _ => Vec::new(),
        }
    }

    /// Remembers the round, if it was good.
    pub(super) fn remember(&mut self, round: Round) {
        if round.is_right()
            && let Compiled::Code(code) = round.compiled
        {
            self.good = Some(*code);
        }
    }
}

fn difference(before: &Code, now: &Code) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut compare = |what: &str, before: u64, now: u64, more: More| {
        if before != now {
            changes.push(Change { what: what.to_owned(), before, now, more });
        }
    };
    if let (Ok(before), Ok(now)) = (&before.machine, &now.machine) {
        let of = |machine: &Machine| machine.resources;
        compare("registers", of(before).registers.into(), of(now).registers.into(), More::Worse);
        compare("bytes of spills", of(before).spill_bytes(), of(now).spill_bytes(), More::Worse);
        compare("bytes of stack", of(before).stack_bytes.into(), of(now).stack_bytes.into(), More::Worse);
        if let (Some(before), Some(now)) = (&before.occupancy, &now.occupancy) {
            compare("warps on a multiprocessor", before.warps.into(), now.warps.into(), More::Better);
        }
    }
    let threads = |code: &Code| code.block.iter().map(|&count| u64::from(count)).product();
    compare("threads of a block", threads(before), threads(now), More::Neither);
    let shared = |code: &Code| code.static_shared_bytes + u64::from(code.dynamic_shared_bytes);
    compare("bytes of shared memory", shared(before), shared(now), More::Worse);
    if let (Ok(before), Ok(now)) = (&before.machine, &now.machine) {
        compare("instructions", before.instructions as u64, now.instructions as u64, More::Neither);
        for class in Class::ALL {
            let of = |machine: &Machine| machine.of_class(class) as u64;
            compare(&format!("{} instructions", class.name()), of(before), of(now), More::Neither);
        }
    }
    changes
}
