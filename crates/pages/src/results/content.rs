//! A file of results: where it is from, and what it says.

use super::kinds::{Agreeing, Atlas, Bench, Conformance, Counted, KernelBench, Operation, Run};

/// What is said of a file's making. What the file does not say is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// The file's name, as it was given.
    pub file: String,
    /// What wrote it: a command.
    pub written_by: String,
    /// The schema and its version.
    pub schema: String,
    /// When, in UTC (RFC 3339); where the file does not say it, the day that its name begins with.
    pub date: String,
    /// The commit of the program.
    pub commit: String,
    /// The GPU's name.
    pub gpu: String,
    /// Its driver's release, and the CUDA version.
    pub driver: String,
    /// What was measured beside, with its version.
    pub beside: String,
    /// Clocks, power and temperature before.
    pub clocks: String,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Products beside cuBLAS.
    Bench(Bench),
    /// The atlas of shapes.
    Atlas(Atlas),
    /// Problems, each by several kernels.
    Run(Run),
    /// Operations, perhaps beside a baseline.
    Operations(Vec<Operation>),
    /// Counters of a GPU beside the executor's.
    Counters(Counted),
    /// KernelBench's problems.
    KernelBench(KernelBench),
    /// Kernels on a GPU and on the executor.
    Agreement(Vec<Agreeing>),
    /// Instructions on both.
    Conformance(Conformance),
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Where it is from.
    pub source: Source,
    /// What it says.
    pub content: Content,
}
