//! What a puzzle's kernel needs of registers, beside the solution of the repository: both are compiled for Hopper, and no GPU is needed.

use std::path::Path;

use cuda_builder::{Arch, Error};
use serde::Serialize;

use super::course::Course;
use super::puzzle::Puzzle;
use crate::code::{Code, Compile, Resources};

/// What a kernel and the one of the repository need.
#[derive(Serialize)]
pub(super) struct Registers {
    puzzle: String,
    kernel: String,
    arch: String,
    /// What each needs; or why that is not known, and what to do.
    #[serde(flatten)]
    found: Found,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    Resources { yours: Resources, reference: Resources },
    Error(String),
}

impl Registers {
    /// Compiles the learner's kernel, and the repository's.
    ///
    /// # Errors
    /// If the learner's does not compile for a GPU. Without the toolchain there is nothing wrong, and nothing known.
    pub(super) fn of(course: &Course, puzzle: &Puzzle) -> Result<Self, Error> {
        let arch = Arch::Sm90a;
        // Both in one place: what they depend on is compiled once.
        let compile = |crate_dir: &Path| {
            Code::compile(&Compile {
                target_dir: Some(course.directory.join("target")),
                ..Compile::new(crate_dir.join("kernels"), puzzle.kernel.clone(), arch)
            })
        };
        let found = match compile(&course.directory) {
            Ok(yours) => match (yours.machine, compile(&crate::place::repository().join("course"))?.machine) {
                (Ok(yours), Ok(theirs)) => Found::Resources { yours: yours.resources, reference: theirs.resources },
                (Err(why), _) | (_, Err(why)) => Found::Error(why),
            },
            Err(error @ Error::MissingToolchain(_)) => Found::Error(error.to_string()),
            Err(error) => return Err(error),
        };
        Ok(Self { puzzle: puzzle.name.clone(), kernel: puzzle.kernel.clone(), arch: arch.to_string(), found })
    }

    /// For people.
    pub(super) fn show(&self) {
        let Self { kernel, arch, found, .. } = self;
        match found {
            Found::Resources { yours, reference } => {
                println!("`{kernel}`, compiled for {arch}:\n\n  {:<32} {:>9} {:>9}", "", "yours", "reference");
                println!("  {:<32} {:>9} {:>9}", "registers of a thread", yours.registers, reference.registers);
                println!("  {:<32} {:>9} {:>9}\n", "bytes spilled", yours.spill_bytes(), reference.spill_bytes());
            }
            Found::Error(why) => println!("The registers of `{kernel}` are not known: {why}\n"),
        }
    }
}
