//! The tools, and what each is for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Nearest};

/// A tool of `compute-sanitizer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// Accesses to memory that is not there, and calls of the driver that fail.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Barriers that not all threads reach, or reach together.
    Synccheck,
    /// Reads of global memory that nobody has written.
    Initcheck,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Racecheck, Self::Synccheck, Self::Initcheck];

    /// The name that `--tool` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Synccheck => "synccheck",
            Self::Initcheck => "initcheck",
        }
    }

    /// Whether it sees everything that it has to know of a kernel, which may go by tensor maps. What TMA stores to global memory,
    /// `initcheck` does not see (version 2025.3): for it, nobody has written that.
    pub fn can_judge(self, by_tensor_maps: bool) -> bool {
        self != Self::Initcheck || !by_tensor_maps
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|tool| tool.name() == name);
        found.ok_or_else(|| Error::UnknownTool {
            name: name.to_owned(),
            nearest: Nearest::of(name, &Self::ALL.map(Self::name)),
        })
    }
}
