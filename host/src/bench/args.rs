//! The command line of `tilewright bench`.

use std::path::PathBuf;

use clap::Args;

use super::BenchOptions;
use super::atlas::{self, AtlasFlags, AtlasOptions};
use super::epilogue::{self, EpilogueOptions};
use super::gpu::open;
use super::inputs::Inputs;
use super::suite::{self, Case};
use super::torch;
use crate::tables::TableFlag;
use crate::{Error, operations};
use testkit::{BenchTask, Common, Wanted};
use tilewright::device::DeviceChoice;
use tilewright::{Orders, Precision, Sizes, UnknownOrders};

/// The flags of `bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchFlags {
    /// What to measure: targets, problems, shapes, atlas or epilogue
    #[arg(long, value_name = "NAME", default_value = "targets")]
    suite: String,

    /// An operation to measure in place of a suite: bytes and operations a second, on any device (`list` shows all)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["suite", "problem", "precision", "kernel", "portable", "m", "AtlasFlags"])]
    op: Option<String>,

    /// The sizes of the operation, as `rows=3,cols=4` [default: its last large case on a GPU, its last small one on the CPU]
    #[arg(long, value_name = "SIZES", requires = "op")]
    sizes: Option<String>,

    /// Only these problems of the suite; may be repeated
    #[arg(long, value_name = "NAME")]
    problem: Vec<String>,

    /// Only these precisions of the suite, or those of a product given by --m, --n and --k; may be repeated
    #[arg(long, value_name = "NAME")]
    precision: Vec<Precision>,

    /// This kernel instead of what the plan chooses
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,

    #[command(flatten)]
    table: TableFlag,

    /// Use PTX for sm_80, whatever the GPU
    #[arg(long)]
    portable: bool,

    /// Rows of a product of its own, in place of a suite
    #[arg(long, value_name = "COUNT", requires = "n", requires = "k", help_heading = "Sizes")]
    m: Option<usize>,

    /// Columns of that product
    #[arg(long, value_name = "COUNT", requires = "m", help_heading = "Sizes")]
    n: Option<usize>,

    /// Terms of its sums
    #[arg(long, value_name = "COUNT", requires = "m", help_heading = "Sizes")]
    k: Option<usize>,

    /// How A and B of that product are stored: NN, NT, TN or TT
    #[arg(long, value_name = "LAYOUT", requires = "m", help_heading = "Sizes", ignore_case = true)]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["NN", "NT", "TN", "TT"]))]
    layout: Option<String>,

    /// Inputs for errors: uniform-01, uniform-11, log-uniform, graded, one-hot, one-product, log-normal, alternating, one-huge,
    /// cancelling, bf16-values, integers or subnormal; the first is timed, too; may be repeated [default: the first four]
    #[arg(long, value_name = "NAME", help_heading = "Inputs")]
    inputs: Vec<Inputs>,

    /// What the random inputs are made from
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs", default_value_t = 0)]
    seed: u64,

    /// How often to measure each kernel and each baseline
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// The GPU to measure: auto or cuda for the first one, cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Measure without cuBLAS: no ratios, and no ceilings of tensor cores
    #[arg(long)]
    no_baseline: bool,

    /// Show the times of torch.matmul in this file, which the script of --print-torch-script prints
    #[arg(long, value_name = "FILE")]
    torch: Option<PathBuf>,

    /// Print the Python script that times torch.matmul, and do nothing else
    #[arg(long)]
    print_torch_script: bool,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Compare with an older report; exit with 1 if something got slower by more than the spread
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,

    #[command(flatten)]
    atlas: AtlasFlags,
}

impl BenchFlags {
    /// The operation to measure, if one is named.
    pub fn operation(&self) -> Option<BenchTask> {
        let wanted = Wanted { op: Some(self.op.clone()?), kernel: None };
        let common = Common { seed: self.seed, device: operations::device_name(self.device), json: false };
        Some(BenchTask { wanted, common, sizes: self.sizes.clone(), runs: self.runs as usize })
    }

    /// Does what the flags say, on the GPU that they name. Whether nothing got slower than in the report to compare with.
    ///
    /// # Errors
    /// Those of [`BenchFlags::options`], [`Device::cuda`](tilewright::Device::cuda) and [`bench`](super::bench).
    pub fn run(self, mut print: impl FnMut(&str)) -> Result<bool, Error> {
        if self.print_torch_script {
            print(torch::SCRIPT);
            return Ok(true);
        }
        if self.suite == suite::ATLAS {
            return atlas::run(&self.atlas_options()?, print).map(|()| true);
        }
        if self.suite == suite::EPILOGUE {
            return epilogue::run(&self.epilogue_options()?, print).map(|()| true);
        }
        let options = self.options()?;
        let device = open(options.device)?;
        let (_, comparison) = super::bench(&device, &options, print)?;
        Ok(comparison.is_none_or(|comparison| comparison.passes()))
    }

    /// What to measure of epilogues.
    ///
    /// # Errors
    /// [`Error::Usage`] for flags that are for other suites; those of [`TableFlag::tables`] and [`TableFlag::constants`].
    fn epilogue_options(self) -> Result<EpilogueOptions, Error> {
        self.atlas.refuse_for(&self.suite)?;
        let others = [
            ("--problem", !self.problem.is_empty()),
            ("--kernel", self.kernel.is_some()),
            ("--portable", self.portable),
            ("--layout", self.layout.is_some()),
            ("--inputs", !self.inputs.is_empty()),
            ("--torch", self.torch.is_some()),
            ("--compare", self.compare.is_some()),
            ("a second --precision", self.precision.len() > 1),
        ];
        if let Some((flag, _)) = others.into_iter().find(|(_, is_there)| *is_there) {
            return Err(Error::Usage(format!("{flag} is not for epilogues: leave it out, or choose another --suite")));
        }
        let sizes = match (self.m, self.n, self.k) {
            (Some(m), Some(n), Some(k)) => Some(Sizes { m, n, k }),
            _ => None,
        };
        Ok(EpilogueOptions {
            sizes,
            precision: self.precision.first().copied().unwrap_or(Precision::Fp32),
            runs: self.runs as usize,
            seed: self.seed,
            device: self.device,
            tables: self.table.tables()?,
            constants: self.table.constants()?,
            json: self.json,
        })
    }

    /// What to measure of the atlas.
    ///
    /// # Errors
    /// [`Error::Usage`] for flags that are for other suites; those of [`AtlasFlags::options`], [`TableFlag::tables`] and
    /// [`TableFlag::constants`].
    fn atlas_options(self) -> Result<AtlasOptions, Error> {
        let others = [
            ("--problem", !self.problem.is_empty()),
            ("--kernel", self.kernel.is_some()),
            ("--m", self.m.is_some()),
            ("--inputs", !self.inputs.is_empty()),
            ("--torch", self.torch.is_some()),
            ("--compare", self.compare.is_some()),
        ];
        if let Some((flag, _)) = others.into_iter().find(|(_, is_there)| *is_there) {
            return Err(Error::Usage(format!("{flag} is not for the atlas: leave it out, or choose another --suite")));
        }
        self.atlas.options(atlas::Common {
            seed: self.seed,
            precision: self.precision,
            tables: self.table.tables()?,
            constants: self.table.constants()?,
            runs: self.runs as usize,
            device: self.device,
            portable: self.portable,
            baseline: !self.no_baseline,
            json: self.json,
        })
    }

    /// What to measure.
    ///
    /// # Errors
    /// [`UnknownName`](tilewright::Error::UnknownName) for a suite or a problem that there is none of; [`Error::Usage`] where nothing is left to
    /// measure; [`ExtentTooLarge`](tilewright::Error::ExtentTooLarge); those of [`TableFlag::tables`] and
    /// [`TableFlag::constants`].
    pub fn options(self) -> Result<BenchOptions, Error> {
        self.atlas.refuse_for(&self.suite)?;
        let inputs = if self.inputs.is_empty() { Inputs::ORDINARY.to_vec() } else { self.inputs.clone() };
        Ok(BenchOptions {
            cases: self.cases()?,
            tables: self.table.tables()?,
            constants: self.table.constants()?,
            inputs,
            seed: self.seed,
            runs: self.runs as usize,
            device: self.device,
            baseline: !self.no_baseline,
            torch: self.torch,
            json: self.json,
            compare: self.compare,
        })
    }

    fn cases(&self) -> Result<Vec<Case>, Error> {
        let mut cases = match (self.m, self.n, self.k) {
            (Some(m), Some(n), Some(k)) => self.own(Sizes { m, n, k })?,
            _ => {
                let cases = suite::suite(&self.suite)?;
                for name in &self.problem {
                    if !cases.iter().any(|case| case.problem == *name) {
                        let known: Vec<&'static str> = KNOWN_PROBLEMS
                            .into_iter()
                            .filter(|known| cases.iter().any(|case| case.problem == *known))
                            .collect();
                        return Err(Error::unknown_name("problem", name, known));
                    }
                }
                let wanted = |case: &Case| {
                    (self.problem.is_empty() || self.problem.contains(&case.problem))
                        && (self.precision.is_empty() || self.precision.contains(&case.precision))
                };
                cases.into_iter().filter(wanted).collect()
            }
        };
        if let Some(kernel) = &self.kernel {
            let precision = tilewright::kernels::find(kernel)?.precision();
            // The targets are for what the plan, or the suite, would have chosen.
            for case in &mut cases {
                (case.kernel, case.target) = (Some(kernel.clone()), None);
                if !(case.precision == Precision::Fp32 && precision == Precision::Fp32Strict) {
                    case.precision = precision;
                }
            }
            let mut ids = Vec::new();
            cases.retain(|case| {
                !ids.contains(&case.id()) && {
                    ids.push(case.id());
                    true
                }
            });
        }
        if self.portable {
            cases.iter_mut().for_each(|case| case.portable = true);
        }
        if cases.is_empty() {
            return Err(Error::Usage(format!(
                "nothing is left to measure: the suite `{}` has no such problem in such a precision",
                self.suite
            )));
        }
        Ok(cases)
    }

    /// A product of the user's own, in each precision.
    fn own(&self, sizes: Sizes) -> Result<Vec<Case>, Error> {
        if !self.problem.is_empty() {
            return Err(Error::Usage(
                "--problem selects from a suite, and --m, --n and --k are in place of one".to_owned(),
            ));
        }
        for (what, extent) in [("m", sizes.m), ("n", sizes.n), ("k", sizes.k)] {
            if extent > i32::MAX as usize {
                return Err(tilewright::Error::ExtentTooLarge { what, extent }.into());
            }
            if extent == 0 {
                return Err(Error::Usage(format!("{what} is 0: there would be nothing to measure")));
            }
        }
        let orders = self.layout.as_ref().map_or(Ok(Orders::NN), |layout| layout.parse());
        let orders = orders.map_err(|error: UnknownOrders| Error::Usage(error.to_string()))?;
        let precisions = if self.precision.is_empty() { vec![Precision::Fp32] } else { self.precision.clone() };
        let case = |precision| Case {
            problem: "custom".to_owned(),
            sizes,
            orders,
            precision,
            kernel: None,
            portable: false,
            target: None,
        };
        Ok(precisions.into_iter().map(case).collect())
    }
}

/// The problems of all suites.
const KNOWN_PROBLEMS: [&str; 9] =
    ["matvec", "large-k", "at-b", "a-bt", "a-b", "at-bt", "irregular", "square", "short-k"];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: BenchFlags,
    }

    fn options(arguments: &[&str]) -> Result<BenchOptions, String> {
        let line = Line::try_parse_from(["bench"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        line.flags.options().map_err(|error| error.to_string())
    }

    fn ids(arguments: &[&str]) -> Vec<String> {
        options(arguments).unwrap().cases.iter().map(Case::id).collect()
    }

    #[test]
    fn everything_with_a_target_is_measured_unless_something_is_named() {
        let all = options(&[]).unwrap();
        assert_eq!(all.cases, suite::suite("targets").unwrap());
        assert_eq!((all.inputs.len(), all.runs, all.baseline), (4, 30, true));
        assert_eq!(ids(&["--suite", "problems"]).len(), 4);
        assert_eq!(ids(&["--problem", "a-bt", "--precision", "tf32"]), ["a-bt NT m=2048 n=4096 k=8192 tf32"]);
        assert_eq!(ids(&["--problem", "matvec", "--problem", "irregular"]).len(), 2);
    }

    #[test]
    fn a_product_of_ones_own_takes_the_place_of_a_suite() {
        let own = ["--m", "5", "--n", "6", "--k", "7", "--layout", "tn", "--precision", "tf32", "--precision", "fp32"];
        assert_eq!(ids(&own), ["custom TN m=5 n=6 k=7 tf32", "custom TN m=5 n=6 k=7 fp32"]);
        assert!(options(&["--m", "5"]).unwrap_err().contains("--n"));
        assert!(options(&["--m", "5", "--n", "6", "--k", "0"]).unwrap_err().contains("k is 0"));
        assert!(options(&["--m", "5", "--n", "6", "--k", "2147483648"]).unwrap_err().contains("k is 2147483648"));
        assert!(options(&["--m", "5", "--n", "6", "--k", "7", "--problem", "a-bt"]).unwrap_err().contains("in place"));
    }

    #[test]
    fn a_kernel_by_name_has_its_own_precision_and_no_target() {
        let forced = options(&["--suite", "problems", "--problem", "a-bt", "--kernel", "gemm_tiled_32_fp32"]).unwrap();
        assert_eq!(forced.cases.len(), 1);
        assert!(forced.cases[0].target.is_none() && forced.cases[0].kernel.is_some());
        assert!(options(&["--kernel", "gemm_tiled_23_fp32"]).unwrap_err().contains("did you mean"));
        let portable = options(&["--suite", "problems", "--portable"]).unwrap();
        assert!(portable.cases.iter().all(|case| case.portable));
    }

    #[test]
    fn the_atlas_has_flags_of_its_own() {
        let atlas = |arguments: &[&str]| {
            let line = Line::try_parse_from(["bench", "--suite", "atlas"].iter().chain(arguments));
            let options = line.map_err(|error| error.to_string()).map(|line| line.flags.atlas_options());
            options.and_then(|options| options.map_err(|error| error.to_string()))
        };
        let all = atlas(&[]).unwrap();
        assert_eq!((all.classes.len(), all.seed, all.precision), (atlas::CLASSES.len(), 0, Precision::Fp32));
        let some = atlas(&["--class", "outer", "--class", "squares", "--sample", "3", "--seed", "5"]).unwrap().chosen();
        let counts: Vec<_> = some.iter().map(|chosen| (chosen.class.name, chosen.shapes.len())).collect();
        assert_eq!(counts, [("outer", 3), ("squares", 3)]);
        assert!(atlas(&["--class", "square"]).err().unwrap().contains("did you mean `squares`"));
        assert!(atlas(&["--sample", "0"]).err().unwrap().contains("--sample is 0"));
        assert!(atlas(&["--beta", "-1"]).err().unwrap().contains("--beta is -1"));
        assert!(atlas(&["--precision", "fp32", "--precision", "tf32"]).err().unwrap().contains("fp32, tf32"));
        assert!(atlas(&["--portable"]).unwrap().portable && !atlas(&[]).unwrap().portable);
        assert!(atlas(&["--compare", "old.json"]).err().unwrap().contains("--compare is not for the atlas"));
        for flags in [&["--list"][..], &["--sample", "3"], &["--svg", "a.svg"]] {
            assert!(options(flags).unwrap_err().contains("say --suite atlas"), "{flags:?}");
            let with_operation = [&["--op", "scale"][..], flags].concat();
            assert!(options(&with_operation).unwrap_err().contains("cannot be used with"), "{flags:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(options(&["--suite", "target"]).unwrap_err().contains("did you mean `targets`"));
        assert!(options(&["--problem", "square2"]).unwrap_err().contains("did you mean `square`"));
        assert!(options(&["--runs", "0"]).is_err());
        assert!(options(&["--problem", "matvec", "--precision", "bf16"]).unwrap_err().contains("nothing is left"));
        assert!(options(&["--inputs", "normal"]).unwrap_err().contains("log-uniform"));
    }
}
