//! What `bench` is asked to measure.

use std::path::PathBuf;

use tilewright::device::DeviceChoice;
use tilewright::plan::{ConstantsChoice, Tables};

use super::inputs::Inputs;
use super::suite::Case;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The products.
    pub cases: Vec<Case>,
    /// The kinds of inputs for errors; the first is what times are measured on.
    pub inputs: Vec<Inputs>,
    /// The tables of measured times by which kernels are chosen.
    pub tables: Tables,
    /// The constants that the model goes by.
    pub constants: ConstantsChoice,
    /// What operands are made from.
    pub seed: u64,
    /// The measured runs of each contestant.
    pub runs: usize,
    /// The device, which has to be a GPU.
    pub device: DeviceChoice,
    /// Whether to measure cuBLAS.
    pub baseline: bool,
    /// Times of torch to show.
    pub torch: Option<PathBuf>,
    /// Where to write the report as JSON.
    pub json: Option<PathBuf>,
    /// An older report to compare with.
    pub compare: Option<PathBuf>,
}
