//! The flags of `bench` that are for the atlas alone, and what all flags come to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tilewright::Precision;
use tilewright::device::DeviceChoice;
use tilewright::plan::{ConstantsChoice, Tables};

use super::super::suite::ATLAS;
use super::class::{Chosen, Class};
use super::classes::CLASSES;
use crate::Error;

/// The flags of `bench --suite atlas`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "The atlas (--suite atlas)")]
pub(in super::super) struct AtlasFlags {
    /// Only this class of shapes; may be repeated (--list shows all)
    #[arg(long, value_name = "NAME")]
    class: Vec<String>,

    /// As many shapes of each class [default: all of the atlas, or 32 for a --seed other than 0, which draws shapes by chance]
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,

    /// Show the shapes, as JSON with --json, and measure nothing: no GPU is needed
    #[arg(long)]
    list: bool,

    /// Also measure the other kernels that the planner knows for each shape: by how much the best of them is faster
    #[arg(long)]
    regret: bool,

    /// Measure nothing, and tell the regret that this build's plans would have by the times of such a report: no GPU is needed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "regret"])]
    replan: Option<PathBuf>,

    /// Add so many times what C was, in ours and in cuBLAS's products [default: 0]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with_all = ["list", "replan"])]
    beta: Option<f32>,

    /// Stop after so many seconds, and say how many shapes were left out
    #[arg(long, value_name = "SECONDS")]
    limit_seconds: Option<u64>,

    /// Draw the ratios as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What to measure of the atlas, or to list.
#[derive(Clone)]
pub struct AtlasOptions {
    /// The classes.
    pub classes: Vec<&'static Class>,
    /// How many shapes of each class, unless all.
    pub sample: Option<usize>,
    /// What shapes are drawn by, and operands made from; 0 for the shapes of the atlas itself.
    pub seed: u64,
    /// How precise ours has to be.
    pub precision: Precision,
    /// The tables of measured times by which kernels are chosen.
    pub tables: Tables,
    /// The constants that the model goes by.
    pub constants: ConstantsChoice,
    /// The most runs of each contestant.
    pub runs: usize,
    /// The device, which has to be a GPU unless shapes are only listed.
    pub device: DeviceChoice,
    /// Whether ours has to be PTX for sm_80, whatever the GPU.
    pub portable: bool,
    /// Whether to measure cuBLAS.
    pub baseline: bool,
    /// Whether to list shapes and measure nothing.
    pub list: bool,
    /// Whether to measure other kernels, too.
    pub regret: bool,
    /// The factor of what C was: below 1, because the same C is added to again and again.
    pub beta: f32,
    /// A report with the times of several plans for each shape, to plan these shapes again instead.
    pub replan: Option<PathBuf>,
    /// When to stop.
    pub limit: Option<Duration>,
    /// Where to write the report, or the list, as JSON.
    pub json: Option<PathBuf>,
    /// Where to draw the ratios.
    pub svg: Option<PathBuf>,
}

/// The flags that `bench` has for all suites, as far as the atlas takes them.
pub(in super::super) struct Common {
    pub(in super::super) seed: u64,
    pub(in super::super) precision: Vec<Precision>,
    pub(in super::super) tables: Tables,
    pub(in super::super) constants: ConstantsChoice,
    pub(in super::super) runs: usize,
    pub(in super::super) device: DeviceChoice,
    pub(in super::super) portable: bool,
    pub(in super::super) baseline: bool,
    pub(in super::super) json: Option<PathBuf>,
}

impl AtlasFlags {
    /// Refuses flags of the atlas for another suite.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub(in super::super) fn refuse_for(&self, suite: &str) -> Result<(), Error> {
        if *self == Self::default() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "--class, --sample, --list, --regret, --replan, --beta, --limit-seconds and --svg are for the shapes of the atlas, and the suite is {suite}: \
             say --suite {ATLAS}, or leave them out"
        )))
    }

    /// What to do.
    ///
    /// # Errors
    /// [`UnknownName`](tilewright::Error::UnknownName) for a class; [`Error::Usage`] for no shapes, or several precisions.
    pub(in super::super) fn options(self, common: Common) -> Result<AtlasOptions, Error> {
        let classes = match self.class.is_empty() {
            true => CLASSES.iter().collect(),
            false => self.class.iter().map(|name| Class::find(name)).collect::<Result<_, _>>()?,
        };
        if self.sample == Some(0) {
            return Err(Error::Usage("--sample is 0: nothing is left to measure".to_owned()));
        }
        let beta = self.beta.unwrap_or(0.0);
        if beta.is_nan() || beta.abs() >= 1.0 {
            return Err(Error::Usage(format!(
                "--beta is {beta}: the same C is added to again and again, so that a factor of 1 or more would make it infinite"
            )));
        }
        let Common { seed, precision, tables, constants, runs, device, portable, baseline, json } = common;
        let precision = match precision.as_slice() {
            [] => Precision::Fp32,
            [one] => *one,
            several => {
                let names: Vec<_> = several.iter().map(|precision| precision.name()).collect();
                return Err(Error::Usage(format!(
                    "the atlas is measured in one precision at a time, and --precision names {}",
                    names.join(", ")
                )));
            }
        };
        let (list, regret, limit) = (self.list, self.regret, self.limit_seconds.map(Duration::from_secs));
        let (sample, svg, replan) = (self.sample, self.svg, self.replan);
        Ok(AtlasOptions {
            classes,
            sample,
            seed,
            precision,
            tables,
            constants,
            runs,
            device,
            portable,
            baseline,
            list,
            regret,
            replan,
            beta,
            limit,
            json,
            svg,
        })
    }
}

impl AtlasOptions {
    /// The shapes that are asked for.
    pub fn chosen(&self) -> Vec<Chosen> {
        let shapes = |class: &&'static Class| Chosen { class, shapes: class.shapes(self.seed, self.sample) };
        self.classes.iter().map(shapes).collect()
    }
}
