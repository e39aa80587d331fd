//! The command line's grammar.
// What stands above a type here, or above flags of another type, would be the help of the program.
#![allow(missing_docs, reason = "flags and commands are documented: that is the help of the program")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use testkit::CheckTask;
use tilewright::device::DeviceChoice;
use tilewright::{Order, Precision, Wanted};

use crate::bench::args::BenchFlags;
use crate::html::ReportFlags;
use crate::input::Distribution;
use crate::planted::Fault;
use crate::problem::Overrides;
use crate::run::{Options, What};
use crate::sanitize::SanitizeFlags;
use crate::tables::TableFlag;
use crate::{Error, tune};

/// Matrix products by kernels written in Rust: run, checked and timed on a GPU, or on the CPU without one.
#[derive(Debug, Parser)]
#[command(name = "tilewright", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 all checks passed; 1 a check failed, or a kernel did something wrong; 2 bad input, or \
                        something is missing; 124 the time limit was reached; 130 interrupted (or 128 + \
                        N: told to end by signal N)."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Without a subcommand, its flags belong to `run`.
    #[command(flatten)]
    pub run: RunFlags,

    /// Run in a process of its own that is ended after so many seconds, also while a kernel runs
    #[arg(long, value_name = "SECONDS", global = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub time_limit: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run kernels on the named problems, check every element of the results, and time them (the default)
    Run(RunFlags),
    /// Measure kernels beside cuBLAS on a GPU: times in turns, shares of what the GPU can do, errors; compare with older runs
    Bench(BenchFlags),
    /// Measure on a GPU which kernel is the fastest for which product, and write that to a table; or what the planner's model has to
    /// know of the GPU, in a minute (--constants)
    Tune(TuneFlags),
    /// Run kernels under the tools of NVIDIA's compute-sanitizer, each of which has to report a planted fault first
    Sanitize(SanitizeFlags),
    /// Make one HTML page of files of results: roofline, sizes, errors, history; and its pictures as SVG. No GPU is needed
    Report(ReportFlags),
    #[command(flatten)]
    Operations(CheckTask),
    /// Run a kernel with a fault
    #[command(hide = true)]
    Planted(PlantedFlags),
}

#[derive(Debug, Args)]
pub struct PlantedFlags {
    /// The fault
    pub fault: Fault,

    /// Where to run: auto (a GPU if there is one), cpu, cuda, or cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
}

#[derive(Debug, Args)]
pub struct TuneFlags {
    /// The file to write to, as JSON: a table; or constants, which plans on this GPU go by if the file is not named
    #[arg(long, value_name = "FILE", required_unless_present = "constants")]
    output: Option<PathBuf>,

    /// Measure the constants of the planner's model in place of a table: launches, bandwidth, and for each kernel its speed and
    /// what a block costs. They are stored for this GPU in the user's configuration (~/.config/tilewright/constants), or in the
    /// file that TILEWRIGHT_CONSTANTS names
    #[arg(long, conflicts_with_all = ["op", "precision"])]
    constants: bool,

    /// With --constants: stop measuring after so many seconds; kernels without times keep what is built in [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "constants", value_parser = clap::value_parser!(u64).range(1..))]
    limit_seconds: Option<u64>,

    /// With --constants: what the products are drawn by on which the constants are tried [default: 0]
    #[arg(long, value_name = "NUMBER", requires = "constants")]
    seed: Option<u64>,

    /// An operation to tune: one that is planned; may be repeated [default: all that are]
    #[arg(long, value_name = "NAME", conflicts_with = "precision")]
    op: Vec<String>,

    /// A precision to measure; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    precision: Vec<Precision>,

    /// The GPU: auto (the first), cuda, or cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
}

/// What `tune` measures.
#[derive(Clone, Debug)]
pub enum TuneTask {
    /// Which kernel is the fastest for which product.
    Table(tune::Options),
    /// What the model has to know of the GPU.
    Constants(tune::constants::Options),
}

impl TuneFlags {
    /// What to measure, apart from the device.
    ///
    /// # Errors
    /// Those of [`tune::products_of`].
    pub fn task(self) -> Result<TuneTask, Error> {
        let Some(output) = self.output.clone().filter(|_| !self.constants) else {
            let limit = self.limit_seconds.map_or(tune::constants::LIMIT, Duration::from_secs);
            let seed = self.seed.unwrap_or_default();
            return Ok(TuneTask::Constants(tune::constants::Options { output: self.output, limit, seed }));
        };
        let products = if self.op.is_empty() {
            self.precision.into_iter().map(tune::Products::all).collect()
        } else {
            tune::products_of(&self.op)?
        };
        Ok(TuneTask::Table(tune::Options { products, output }))
    }
}

/// The flags that only problems have.
const FOR_PROBLEMS: [&str; 21] = [
    "problem",
    "kernel",
    "precision",
    "splits",
    "invariant",
    "table",
    "constants",
    "explain",
    "list",
    "m",
    "n",
    "k",
    "batch",
    "trans_a",
    "trans_b",
    "lda",
    "ldb",
    "ldc",
    "alpha",
    "beta",
    "inputs",
];

#[derive(Debug, Args)]
pub struct RunFlags {
    /// A problem to run; may be repeated [default: those that the kernels are for]
    #[arg(long, value_name = "NAME")]
    problem: Vec<String>,

    /// A kernel to run; may be repeated [default: those that are for the problem]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// How precise products have to be: fp32-rounded, fp32-ozaki, fp32-strict, fp32, fp32-normwise, tf32,
    /// bf16 or fp16; or
    /// guarantee=1e-6 or tolerance=1e-5, for the fastest of those whose errors are at most that part of the sum of |a||b|,
    /// for all operands or for what is usual [default: that of the kernels, or fp32]
    #[arg(long, value_name = "NAME")]
    precision: Option<Wanted>,

    /// Among how many blocks to divide each sum [default: what is fastest]
    #[arg(long, value_name = "COUNT")]
    splits: Option<u32>,

    /// Give rows of C bits that do not depend on how many rows come with them, nor on which
    #[arg(long)]
    invariant: bool,

    #[command(flatten)]
    table: TableFlag,

    /// An operation to run in place of problems: one case, checked element by element (`list` shows all)
    #[arg(long, value_name = "NAME", conflicts_with_all = FOR_PROBLEMS)]
    pub op: Option<String>,

    /// The sizes of the operation, as `rows=3,cols=4` [default: its last large case on a GPU, its last small one on the CPU]
    #[arg(long, value_name = "SIZES", requires = "op")]
    pub sizes: Option<String>,

    /// Say which kernels could compute each product, which is chosen and why, its tiles, splits and workspace
    #[arg(long)]
    explain: bool,

    /// List problems, kernels and precisions, and do nothing else
    #[arg(long)]
    pub list: bool,

    /// Rows of op(A) and C
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    m: Option<usize>,

    /// Columns of op(B) and C
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    n: Option<usize>,

    /// Columns of op(A) and rows of op(B)
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    k: Option<usize>,

    /// The number of products, each of matrices of its own [default: 1]
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    batch: Option<usize>,

    /// Whether A is stored transposed, as k rows of m
    #[arg(long, value_name = "BOOL", help_heading = "Sizes", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = false, default_missing_value = "true")]
    trans_a: Option<bool>,

    /// Whether B is stored transposed, as n rows of k
    #[arg(long, value_name = "BOOL", help_heading = "Sizes", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = false, default_missing_value = "true")]
    trans_b: Option<bool>,

    /// Elements from one stored row of A to the next [default: no gaps]
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    lda: Option<usize>,

    /// Elements from one stored row of B to the next [default: no gaps]
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    ldb: Option<usize>,

    /// Elements from one row of C to the next [default: no gaps]
    #[arg(long, value_name = "COUNT", help_heading = "Sizes")]
    ldc: Option<usize>,

    /// The factor of the product [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs", allow_negative_numbers = true)]
    alpha: Option<f32>,

    /// The factor of the old C, which is not read if this is zero [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs", allow_negative_numbers = true)]
    beta: Option<f32>,

    /// What the random inputs are made from
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs", default_value_t = 0)]
    seed: u64,

    /// How inputs are distributed: uniform-11 for [-1, 1], uniform-01 for [0, 1]
    #[arg(long, value_name = "NAME", help_heading = "Inputs", default_value = "uniform-11")]
    inputs: Distribution,

    /// How often to run each kernel for its times, from 1 to 1000000 [default: 20 on a GPU, 3 on the CPU]
    #[arg(long, value_name = "COUNT", conflicts_with = "op")]
    runs: Option<usize>,

    /// Where to run: auto (a GPU if there is one), cpu, cuda, or cuda:N for GPU number N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,

    /// Run on the CPU, and report races in shared memory and reads of what nobody wrote, too
    #[arg(long)]
    pub check: bool,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Run the kernels of this PTX file, which must have been built from the same sources (`cargo xtask build-ptx`)
    #[arg(long, value_name = "FILE")]
    pub ptx: Option<PathBuf>,

    /// Run kernels compiled for this architecture only, such as sm_80: the portable kernels on any GPU
    #[arg(long, value_name = "ARCH", conflicts_with = "ptx")]
    pub arch: Option<String>,
}

impl RunFlags {
    /// What runs: an operation that is named; everything, if nothing says which products are meant.
    fn what(&self) -> What {
        if let Some(name) = &self.op {
            return What::Operation { name: name.clone(), sizes: self.sizes.clone() };
        }
        let names_none = self.problem.is_empty() && self.kernel.is_empty();
        let is_any_product = names_none && self.precision.is_none() && self.splits.is_none() && !self.invariant;
        if is_any_product && self.overrides() == Overrides::default() { What::Everything } else { What::Problems }
    }

    /// What to change about the problems.
    fn overrides(&self) -> Overrides {
        Overrides {
            m: self.m,
            n: self.n,
            k: self.k,
            batch: self.batch,
            a: self.trans_a.map(Order::of_transposed),
            b: self.trans_b.map(Order::of_transposed),
            lda: self.lda,
            ldb: self.ldb,
            ldc: self.ldc,
            alpha: self.alpha,
            beta: self.beta,
        }
    }

    /// What to run, apart from the device.
    ///
    /// # Errors
    /// Those of [`TableFlag::tables`] and [`TableFlag::constants`].
    pub fn options(self) -> Result<Options, Error> {
        Ok(Options {
            what: self.what(),
            overrides: self.overrides(),
            problems: self.problem,
            kernels: self.kernel,
            precision: self.precision,
            splits: self.splits,
            invariant: self.invariant,
            tables: self.table.tables()?,
            constants: self.table.constants()?,
            explain: self.explain,
            runs: self.runs,
            seed: self.seed,
            inputs: self.inputs,
            note: None,
            json: self.json,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_what_there_is_without_a_subcommand() {
        let bare =
            Cli::try_parse_from(["tilewright", "--problem", "at-b", "--trans-a", "false", "--beta", "-2"]).unwrap();
        assert!(bare.command.is_none());
        let bare = bare.run.options().unwrap();
        let Some(Command::Run(named)) =
            Cli::try_parse_from(["tilewright", "run", "--problem", "at-b", "--trans-a=false", "--beta=-2"])
                .unwrap()
                .command
        else {
            panic!("`run` is a subcommand");
        };
        let named = named.options().unwrap();
        assert_eq!(format!("{bare:?}"), format!("{named:?}"));
        assert_eq!(
            (bare.overrides.a, bare.overrides.b, bare.overrides.beta),
            (Some(Order::RowMajor), None, Some(-2.0))
        );
        let flag = Cli::try_parse_from(["tilewright", "--trans-b"]).unwrap().run.options().unwrap();
        assert_eq!(flag.overrides.b, Some(Order::ColumnMajor));
    }

    #[test]
    fn operations_run_unless_products_are_asked_for() {
        let what = |words: &[&str]| {
            Cli::try_parse_from(["tilewright"].iter().chain(words)).unwrap().run.options().unwrap().what
        };
        for words in [&[][..], &["--device", "cpu", "--seed", "3", "--json", "x"], &["--check"], &["--runs=1"]] {
            assert_eq!(what(words), What::Everything, "{words:?}");
        }
        for words in
            ["--problem=at-b", "--kernel=x", "--precision=tf32", "--splits=2", "--m=1", "--batch=2", "--beta=1"]
        {
            assert_eq!(what(&[words]), What::Problems, "{words}");
        }
        let operation =
            |sizes: Option<&str>| What::Operation { name: "rms-norm".to_owned(), sizes: sizes.map(str::to_owned) };
        assert_eq!(what(&["--op", "rms-norm"]), operation(None));
        assert_eq!(what(&["--op", "rms-norm", "--sizes", "rows=1"]), operation(Some("rows=1")));
        // What an operation would not heed is refused.
        for flag in FOR_PROBLEMS.into_iter().chain(["runs"]) {
            let flag = format!("--{}", flag.replace('_', "-"));
            let value = match flag.as_str() {
                "--explain" | "--list" | "--trans-a" | "--trans-b" => None,
                "--precision" => Some("fp32"),
                "--inputs" => Some("uniform-01"),
                _ => Some("1"),
            };
            let words = ["tilewright", "--op", "rms-norm", &flag].into_iter().chain(value);
            let refusal = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(refusal.contains("cannot be used with"), "{flag}: {refusal}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in
            [&["--device", "tpu"][..], &["--device", "cuda:x"], &["--m", "-1"], &["--inputs", "normal"], &["x"]]
        {
            let all = ["tilewright"].iter().chain(arguments);
            assert_eq!(Cli::try_parse_from(all).unwrap_err().exit_code(), 2, "{arguments:?}");
        }
    }

    /// Any of the flags that there are, and what may stand after one.
    fn words() -> impl Strategy<Value = Vec<String>> {
        const VALUES: [&str; 28] = [
            "",
            "0",
            "1",
            "-1",
            "2147483647",
            "2147483648",
            "18446744073709551615",
            "18446744073709551616",
            "1e39",
            "-inf",
            "nan",
            "1e-46",
            "true",
            "no",
            "cpu",
            "cuda:",
            "cuda:18446744073709551615",
            "cuda:-1",
            "at-b",
            "matvec",
            "gemm_tiled_16_fp32",
            "fp32",
            "none",
            "/nonexistent/file",
            "=",
            "--",
            "-",
            "\u{1b}[2J",
        ];
        fn flags(command: &clap::Command) -> Vec<String> {
            let own = command.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?)));
            let below = command
                .get_subcommands()
                .flat_map(|below| flags(below).into_iter().chain([below.get_name().to_owned()]));
            own.chain(below).collect()
        }
        let flag = || proptest::sample::select(flags(&Cli::command()));
        let value = || prop_oneof![4 => proptest::sample::select(&VALUES[..]).prop_map(str::to_owned), 1 => ".{0,12}"];
        let word = prop_oneof![
            4 => (flag(), value()).prop_map(|(flag, value)| vec![flag, value]),
            2 => (flag(), value()).prop_map(|(flag, value)| vec![format!("{flag}={value}")]),
            1 => flag().prop_map(|flag| vec![flag]),
            1 => value().prop_map(|value| vec![value]),
        ];
        prop::collection::vec(word, 0..6).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 3000, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
        })]

        /// Whatever is asked for: it is refused with a reason, or it makes products whose memory can be told.
        #[test]
        fn any_words_are_understood_or_refused(words in words()) {
            let Cli { command, run, .. } = match Cli::try_parse_from(std::iter::once("tilewright".to_owned()).chain(words)) {
                Ok(parsed) => parsed,
                Err(error) => {
                    prop_assert!(matches!(error.exit_code(), 0 | 2) && !error.to_string().is_empty());
                    return Ok(());
                }
            };
            let flags = match command {
                None => run,
                Some(Command::Run(flags)) => flags,
                Some(_) => return Ok(()),
            };
            let options = match flags.options() {
                Ok(options) => options,
                Err(error) => {
                    prop_assert!(!error.to_string().is_empty());
                    return Ok(());
                }
            };
            for problem in &crate::problem::ALL {
                for reduced in [false, true] {
                    let product = problem.product(reduced, &options.overrides);
                    let described = product.and_then(|product| {
                        check_bytes(product.device_bytes());
                        product.description()
                    });
                    if let Err(error) = described {
                        prop_assert!(!error.to_string().is_empty());
                    }
                }
            }
        }
    }

    /// Three operands of less than 2⁶³ bytes each.
    fn check_bytes(bytes: tilewright::Bytes) {
        assert!(bytes.0 < 3 << 63, "{bytes}");
    }
}
