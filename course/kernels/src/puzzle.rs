//! What a puzzle is: an operation, the fault that its blank has before it is filled, and what a
//! good solution costs. It is compiled for the host only.

use kernel_trace::Trace;
use testkit::Operation;

/// What the modules of puzzles need.
pub mod prelude {
    pub use kernel_trace::{Barrier, Kind, Trace};
    pub use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation,
        Sizes, Units, Values, Views,
    };

    pub use super::{Limits, Puzzle, Score, sum, swizzled_map};
}

/// A puzzle: a kernel with a blank, and what is to come of it.
pub struct Puzzle {
    /// What `cargo tilewright learn check` takes.
    pub name: &'static str,
    /// The file, from the directory of the course.
    pub file: &'static str,
    /// What stood in it when it was compiled.
    pub source: &'static str,
    /// What the kernel is for: cases, arguments, what shall come of them.
    pub operation: &'static dyn Operation,
    /// How the kernel fails before the blank is filled: the name of a fault, of what is wrong with
    /// a result, `Score`, or `Judge`.
    pub fails: &'static str,
    /// What that means, in one sentence.
    pub lesson: &'static str,
    /// What the repository's solution costs, in the largest of the small cases.
    pub reference: Score,
    /// What a solution may cost at most.
    pub limits: Limits,
    /// What is asked for besides right results, where results cannot tell: it looks at what the
    /// first block does, step by step, in the largest of the small cases.
    pub judge: Option<Judge>,
}

/// Looks at the steps of a block: what is wrong with them, and where.
pub type Judge = fn(&Trace) -> Result<(), String>;

/// What a kernel costs, as the executor counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Sectors of 32 bytes of global memory, read or written.
    pub sectors: u64,
    /// Instructions of warps that read or write global memory.
    pub global: u64,
    /// Instructions of warps that read shared memory.
    pub shared: u64,
    /// Passes through shared memory more than without bank conflicts.
    pub conflicts: u64,
    /// How often warps stop at barriers, and wait for phases or flags.
    pub waits: u64,
}

/// What a solution may cost at most; `None` where it is shown, and not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// As [`Score::sectors`].
    pub sectors: Option<u64>,
    /// As [`Score::global`].
    pub global: Option<u64>,
    /// As [`Score::shared`].
    pub shared: Option<u64>,
    /// As [`Score::conflicts`].
    pub conflicts: Option<u64>,
}

impl Limits {
    /// Any solution that is right will do.
    pub const NONE: Self = Self { sectors: None, global: None, shared: None, conflicts: None };
}

/// The blocks for so many elements, `of_block` for each. More than a grid can have are refused by
/// the launch.
pub fn blocks(elements: usize, of_block: usize) -> u32 {
    u32::try_from(elements.div_ceil(of_block).max(1)).unwrap_or(u32::MAX)
}

/// A tensor map of a matrix of `lines` × `length` elements, in tiles of `tile_lines` × 32 with the
/// 128-byte swizzle that tensor cores read.
///
/// # Errors
/// Those of [`Device::tensor_map`](runtime::Device::tensor_map): for example a length that is no
/// multiple of 4.
pub fn swizzled_map<'a>(
    device: &testkit::Device,
    matrix: cuda_std::GlobalSlice<'a, f32>,
    [lines, length]: [u32; 2],
    tile_lines: u32,
    element: cuda_driver::TensorElement,
) -> Result<cuda_std::TensorMap<'a>, testkit::Error> {
    let (lines, length) = (u64::from(lines), u64::from(length));
    let matrix_stride = lines * length;
    let layout =
        runtime::TensorLayout { length, lines, line_stride: length, matrices: 1, matrix_stride };
    let swizzle = cuda_driver::TensorSwizzle::Bytes128;
    let tile = runtime::TensorTile { element, length: 32, lines: tile_lines, swizzle };
    Ok(device.tensor_map(matrix, &layout, &tile)?)
}

/// The sum, from +0 on: that of no numbers, and of zeros, is +0, as a kernel's is.
pub fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    terms.fold(0.0, |sum, term| sum + term)
}
