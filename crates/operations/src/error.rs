//! What is wrong with an operation, with what it was asked for, or with what it has computed.

use std::fmt;
use std::path::PathBuf;

use cuda_std::Dim3;

use crate::argument::{Distribution, Element};
use crate::numbers::given_whole_numbers;

/// An error of this library. Its message is complete and stands on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A launch was refused, a kernel did something wrong, or a device does not work.
    #[error("{0}")]
    Runtime(#[from] runtime::Error),

    /// What an operation itself finds wrong: its arguments do not make what its kernels take.
    #[error("{0}")]
    Operation(Box<dyn std::error::Error + Send + Sync>),

    /// There is no operation of this name.
    #[error("there is no operation `{name}`{nearest}: `list` shows all")]
    UnknownOperation {
        /// The name.
        name: String,
        /// Those that there are.
        nearest: Nearest,
    },

    /// No operation launches a kernel of this name.
    #[error("no operation launches a kernel `{name}`{nearest}: `list` shows all")]
    UnknownKernel {
        /// The name.
        name: String,
        /// Those that there are.
        nearest: Nearest,
    },

    /// The launch that was to be recorded has not been made.
    #[error(
        "operation `{operation}` with {sizes} makes no launch {launch}, counted from 0, of {}{}: choose other sizes, another kernel (`list` \
         shows them) or an earlier launch",
        .kernel.as_ref().map_or_else(|| "any kernel".to_owned(), |name| format!("kernel `{name}`")),
        .nearest.as_ref().map_or_else(String::new, Nearest::to_string)
    )]
    NotRecorded {
        /// The operation.
        operation: &'static str,
        /// The kernel, if one was named.
        kernel: Option<String>,
        /// Which launch of it.
        launch: u64,
        /// The sizes.
        sizes: String,
        /// Kernels of similar names, if there is none of this one.
        nearest: Option<Nearest>,
    },

    /// A block was to be recorded that the grid does not have.
    #[error(
        "`{kernel}` is launched with a grid of {grid} blocks, and there is no block {block} in it: coordinates count from 0"
    )]
    NoSuchBlock {
        /// The kernel.
        kernel: &'static str,
        /// The block.
        block: Dim3,
        /// The extents of the grid.
        grid: Dim3,
    },

    /// A program without operations has nothing to record.
    #[error("this program has no operations")]
    NothingToTrace,

    /// A trace could not be written.
    #[error("cannot write the trace to {}: {source}", .path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },

    /// An order of blocks was asked for where the executor does not run them.
    #[error(
        "a GPU has blocks take turns in an order of its own, and `{device}` is one: leave out `--schedules` and `--schedule-seed`, or take \
         `--device cpu`"
    )]
    SchedulesOnGpu {
        /// The device.
        device: String,
    },

    /// An operation has no size of this name.
    #[error("operation `{operation}` has no size `{name}`{nearest}")]
    UnknownSize {
        /// The operation.
        operation: &'static str,
        /// The name.
        name: String,
        /// Those that there are.
        nearest: Nearest,
    },

    /// An operation has no argument of this name that could be meant.
    #[error(
        "operation `{operation}` has no argument `{name}` that can be used like this{nearest}: `arguments` names it; only inputs \
         have values before a launch, and inputs are not written"
    )]
    UnknownArgument {
        /// The operation.
        operation: &'static str,
        /// The name.
        name: String,
        /// Those that there are.
        nearest: Nearest,
    },

    /// These are not the sizes of an operation.
    #[error("the sizes of operation `{operation}` are {names}, and `{given}` does not give each of them once: write {}", shown(.names))]
    SizesMismatch {
        /// The operation.
        operation: &'static str,
        /// What was given.
        given: String,
        /// The names of the sizes.
        names: String,
    },

    /// A size that the operation's kernels cannot have.
    #[error("operation `{operation}` takes sizes of at most {}, and `{name}` is {size}", u32::MAX)]
    SizeTooLarge {
        /// The operation.
        operation: &'static str,
        /// The size.
        name: String,
        /// What it is.
        size: usize,
    },

    /// An operation without any case would pass whatever it does.
    #[error("operation `{operation}` has no cases: name some in `small`")]
    NoCases {
        /// The operation.
        operation: &'static str,
    },

    /// An operation without any output would pass whatever it does.
    #[error(
        "operation `{operation}` has no output to compare: make an argument one with `Argument::output` or `in_out`"
    )]
    NoOutputs {
        /// The operation.
        operation: &'static str,
    },

    /// An argument is used as one of other elements.
    #[error(
        "argument `{argument}` of operation `{operation}` has elements of {element:?}, and the launch takes it as one of {asked:?}: \
         `Argument::of` says which they are"
    )]
    ElementMismatch {
        /// The operation.
        operation: &'static str,
        /// The argument.
        argument: &'static str,
        /// What its elements are.
        element: Element,
        /// What they were taken for.
        asked: Element,
    },

    /// An argument has more elements than there are addresses.
    #[error("argument `{argument}` of {extents:?} elements does not fit any memory: choose smaller sizes")]
    TooLarge {
        /// The argument.
        argument: &'static str,
        /// Its extents.
        extents: Vec<usize>,
    },

    /// Numbers that an argument cannot have.
    #[error(
        "argument `{argument}` cannot have numbers of {distribution:?}, because its elements are {element:?}, or the limits are not in \
         order: whole numbers take `Integers` that they can be, and `LogUniform` takes positive limits"
    )]
    BadDistribution {
        /// The argument.
        argument: &'static str,
        /// What its elements are.
        element: Element,
        /// The numbers.
        distribution: Distribution,
    },

    /// More or fewer numbers are given for an argument than it has elements.
    #[error(
        "argument `{argument}` has extents {extents:?}, so {len} elements, and is given {given} numbers: give one for each element"
    )]
    GivenCount {
        /// The argument.
        argument: &'static str,
        /// Its extents.
        extents: Vec<usize>,
        /// How many elements these are.
        len: usize,
        /// How many numbers are given.
        given: usize,
    },

    /// A number is given for an argument that its elements cannot be.
    #[error(
        "argument `{argument}`, element {position}: {number} is given, which no element of type {element:?} can be: {}",
        possible(*element)
    )]
    GivenNumber {
        /// The argument.
        argument: &'static str,
        /// What its elements are.
        element: Element,
        /// Where the element is, by the argument's extents.
        position: String,
        /// The number.
        number: f64,
    },

    /// A reference is of another number of outputs than there are.
    #[error(
        "the reference of operation `{operation}` is of {found} outputs, and the operation has {outputs}: give one list for each"
    )]
    ReferenceCount {
        /// The operation.
        operation: &'static str,
        /// The lists that it gives.
        found: usize,
        /// The outputs.
        outputs: usize,
    },

    /// A reference has another length than its output.
    #[error(
        "the reference of output `{argument}` of operation `{operation}` has {found} elements, and the output has {len}: \
         `expected` gives one for each element, `arguments` says how many there are"
    )]
    ReferenceLength {
        /// The operation.
        operation: &'static str,
        /// The output.
        argument: &'static str,
        /// The elements of the reference.
        found: usize,
        /// Those of the output.
        len: usize,
    },

    /// A bound that says nothing.
    #[error(
        "the reference of output `{argument}` of operation `{operation}` allows element {position}, which shall be {value:e}, an error of \
         {bound:e}: a bound is a finite number from 0 on"
    )]
    BadBound {
        /// The operation.
        operation: &'static str,
        /// The output.
        argument: &'static str,
        /// The element.
        position: String,
        /// Its value.
        value: f64,
        /// The bound.
        bound: f64,
    },

    /// A kernel was launched that the operation does not name.
    #[error("operation `{operation}` launches kernel `{kernel}` and does not name it: add its `FACTS` to `kernels`")]
    UnlistedKernel {
        /// The operation.
        operation: &'static str,
        /// The kernel.
        kernel: String,
    },

    /// An element is not what it shall be.
    #[error(
        "output `{argument}`, element {position}: found {found:e} (bits {bits:#x}), expected {value:e}{}; {wrong} of {len} elements are wrong",
        how_far(*error, *bound)
    )]
    Wrong {
        /// The output.
        argument: &'static str,
        /// The first element that is wrong.
        position: String,
        /// What it is.
        found: f64,
        /// Its bits.
        bits: u64,
        /// What it shall be.
        value: f64,
        /// How far off it is.
        error: f64,
        /// How far off it may be.
        bound: f64,
        /// How many are wrong.
        wrong: usize,
        /// Of how many.
        len: usize,
    },

    /// An element of an output is what it was before the launch.
    #[error(
        "output `{argument}`, element {position} is not written ({count} of {len} are not), or has been given the value that stands around \
         the arguments: see that the grid covers the output, and that nothing is read outside of its argument"
    )]
    Unwritten {
        /// The output.
        argument: &'static str,
        /// The first such element.
        position: String,
        /// How many there are.
        count: usize,
        /// Of how many.
        len: usize,
    },

    /// Memory around an argument was written to.
    #[error(
        "a word of 4 bytes {place} argument `{argument}` was written to: it is {bits:#x} now. A kernel writes outside of what it was \
         given"
    )]
    Guard {
        /// The argument.
        argument: &'static str,
        /// How far from it, in words.
        place: String,
        /// What is there now.
        bits: u32,
    },

    /// An input is no longer what it was.
    #[error(
        "input `{argument}`, element {position} was {before:e} and is {after:e} now: a kernel writes to what it is to read"
    )]
    InputChanged {
        /// The input.
        argument: &'static str,
        /// The element.
        position: String,
        /// What it was.
        before: f64,
        /// What it is.
        after: f64,
    },

    /// Two runs gave different bits.
    #[error(
        "output `{argument}`, element {position} is {first:e} and {other:e}, {runs}: {count} of {len} elements have other bits. If that \
         is as it has to be, let `bits` say so"
    )]
    Varies {
        /// The output.
        argument: &'static str,
        /// The first element that differs.
        position: String,
        /// Its value in one run.
        first: f64,
        /// And in the other.
        other: f64,
        /// Which runs these are.
        runs: String,
        /// How many elements differ.
        count: usize,
        /// Of how many.
        len: usize,
    },

    /// A launch was not refused that a GPU would refuse, or the other way round.
    #[error("with the limits of compute capability {capability}: {source}")]
    OnCapability {
        /// The compute capability.
        capability: String,
        /// What is wrong there.
        source: Box<Error>,
    },

    /// The variable that limits how long a thread of a kernel runs is no number of seconds.
    #[error(
        "{variable} is `{value}`: write after how many seconds without a stop a thread of a kernel ends the program, or 0 for no such limit"
    )]
    ThreadLimit {
        /// The variable.
        variable: &'static str,
        /// What it is.
        value: String,
    },

    /// What only a GPU can tell was asked where there is none.
    #[error("{what} needs a GPU with kernels of this program: {reason}")]
    NeedsGpu {
        /// What was asked for.
        what: &'static str,
        /// Why there is none.
        reason: String,
    },

    /// A measurement of nothing.
    #[error("nothing can be said of {runs} runs: measure at least one")]
    NoRuns {
        /// The runs asked for.
        runs: usize,
    },

    /// There is no such device.
    #[error("there is no device `{name}`: write `cpu`, or `cuda:N` or N for GPU number N, counted from 0")]
    UnknownDevice {
        /// What was given.
        name: String,
    },

    /// `compute-sanitizer` has no such tool.
    #[error("there is no tool `{name}`{nearest}")]
    UnknownTool {
        /// What was given.
        name: String,
        /// Those that there are.
        nearest: Nearest,
    },

    /// A program that is needed cannot be run, or is another one.
    #[error("cannot use {}: {reason}. Install it, or name it by its path", .program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },

    /// A file could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    File {
        /// The file, or the directory that it was to be in.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Which numbers can be given for an element.
fn possible(element: Element) -> String {
    given_whole_numbers(element)
        .map_or_else(|| "any".to_owned(), |(least, greatest)| format!("whole numbers from {least} to {greatest}"))
}

/// How far off an element is, if it is off by a number at all: a NaN in place of a number is not.
fn how_far(error: f64, bound: f64) -> String {
    if error.is_finite() { format!(", which is {error:.3e} off, more than {bound:.3e}") } else { String::new() }
}

impl Error {
    /// What an operation itself finds wrong, in its own words: for `map_err`.
    pub fn operation(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Operation(error.into())
    }
}

/// How sizes of these names are written.
fn shown(names: &str) -> String {
    let written: Vec<_> = names.split(", ").filter(|name| !name.is_empty()).map(|name| format!("{name}=1")).collect();
    if written.is_empty() { "none".to_owned() } else { format!("--sizes {}", written.join(",")) }
}

/// The names that are nearest to an unknown one: three at most, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest(Vec<String>);

impl Nearest {
    /// Those of the known names that are nearest to a name.
    pub fn of(name: &str, known: &[&str]) -> Self {
        let name = name.to_lowercase();
        let mut ranked: Vec<_> =
            known.iter().map(|known| (strsim::jaro_winkler(&name, &known.to_lowercase()), *known)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        ranked.dedup_by_key(|(_, known)| *known);
        Self(ranked.into_iter().take(3).map(|(_, known)| known.to_owned()).collect())
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<_> = self.0.iter().map(|name| format!("`{name}`")).collect();
        match quoted.split_last() {
            None => f.write_str(" (there are none)"),
            Some((only, [])) => write!(f, " (did you mean {only}?)"),
            Some((last, others)) => write!(f, " (did you mean {} or {last}?)", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_nearest_names_are_told() {
        let known = ["softmax", "axpy", "column-sums", "row-sums", "sums"];
        let nearest = Nearest::of("row-sum", &known);
        assert_eq!(nearest.names()[0], "row-sums");
        assert_eq!(nearest.names().len(), 3);
        assert!(nearest.to_string().starts_with(" (did you mean `row-sums`, "), "{nearest}");
        assert_eq!(Nearest::of("AXPY", &["axpy"]).to_string(), " (did you mean `axpy`?)");
        assert_eq!(Nearest::of("x", &[]).to_string(), " (there are none)");
    }
}
