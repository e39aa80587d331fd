//! `cargo xtask wheels`: the Python package for all machines that it is given away for, what is in each wheel, and a trial of each.
//!
//! ```text
//!  for each machine: maturin ─► cargo, zig as linker ─► wheel ─┬─► contents: sizes, and whether it asks for more than glibc 2.28
//!                                                              └─► --run: interpreters ─► tests, and the bits of some products
//! ```
//!
//! All of them are built on one machine. zig has the symbols of each version of glibc for each machine, so the wheel runs on systems that are
//! older than the one that built it; gcc would link against the glibc that is there. A wheel is for Python 3.10 and all later versions,
//! because it uses Python's stable interface alone. Interpreters without the global lock do not have that one: pip finds no wheel for them.

mod contents;
mod debian;
mod trial;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::ValueEnum;
use cuda_builder::Arch;

use crate::python::{Environment, Requirements};
use crate::workspace::{command, first_line, target_dir};
use contents::{Contents, Version};

/// The options of `wheels`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The machines that wheels are built for, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Machine::value_variants())]
    machine: Vec<Machine>,
    /// Put machine code of the kernels into the wheels, for architectures separated by commas, so that the driver need not compile at
    /// a first call [without a list: sm_80,sm_86,sm_90a,sm_100,sm_120]. Needs ptxas.
    #[arg(long, value_name = "ARCHS", value_delimiter = ',', num_args = 0..=1, default_missing_values = CUBIN_ARCHS)]
    pub(crate) cubins: Vec<Arch>,
    /// Install each wheel for every Python that can be had, run the package's tests with it, and compare bits. Those for another machine run
    /// under qemu. Needs Debian's package manager; what it fetches stays in the target directory.
    #[arg(long)]
    run: bool,
    /// Build nothing: look into these wheels.
    #[arg(long, value_name = "WHEEL", num_args = 1.., conflicts_with_all = ["machine", "cubins"])]
    inspect: Vec<PathBuf>,
}

/// The oldest glibc that wheels are for: Ubuntu 20.04 has 2.31, RHEL 8 has 2.28.
const OLDEST_GLIBC: Version = Version { major: 2, minor: 28 };

/// What wheels have machine code for unless told otherwise: every compute capability from 8.0 on that GPUs for computers have.
/// Those of 8.9 run what is for sm_86; what `ptxas` makes of the kernels for sm_89 has the same instructions. All others get PTX.
const CUBIN_ARCHS: [&str; 5] = ["sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"];

/// What a wheel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Machine {
    /// Intel's and AMD's processors.
    #[value(name = "x86_64")]
    X86_64,
    /// Arm's with 64 bits: Grace in a GH200 or GB200.
    Aarch64,
}

impl Machine {
    /// As the names of wheels and of Rust's targets begin.
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As rustc names it, with the system.
    fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }

    /// The machine that a wheel is for, by its file's name.
    fn of_wheel(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|machine| name.ends_with(&format!("_{}.whl", machine.name())))
    }

    /// The one that this program runs on.
    fn of_host() -> anyhow::Result<Self> {
        let this = Self::value_variants().iter().copied().find(|machine| machine.is_this());
        this.with_context(|| format!("no wheel is for this machine, whose processor is {}", std::env::consts::ARCH))
    }

    /// Whether it is the one that this program runs on.
    fn is_this(self) -> bool {
        self.name() == std::env::consts::ARCH
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let wheels = match arguments.inspect.as_slice() {
        [] => build(arguments)?,
        wheels => wheels.to_vec(),
    };
    let contents = wheels.iter().map(|wheel| Contents::read(wheel)).collect::<anyhow::Result<Vec<_>>>()?;
    println!("\n{}", contents::table_of(&contents));
    let faults: Vec<_> = contents.iter().flat_map(Contents::faults).collect();
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("no wheel asks for more than glibc {OLDEST_GLIBC}, or for other libraries than manylinux allows");
    if arguments.run {
        trial::run(&contents)?;
    }
    println!("took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Builds a wheel for each machine.
fn build(arguments: &Arguments) -> anyhow::Result<Vec<PathBuf>> {
    let environment = Environment::create(Requirements::Wheels)?;
    let tag = format!("manylinux_{}_{}", OLDEST_GLIBC.major, OLDEST_GLIBC.minor);
    let build = |machine: &Machine| {
        let target = machine.target();
        // Where there is no rustup, the compiler's distribution may have the standard library for it, and cargo says if not.
        if first_line(command("rustup", &["--version"])).is_some() {
            let added = command("rustup", &["target", "add", &target]).status().context("rustup cannot be run")?;
            if !added.success() {
                bail!("rustup cannot get the standard library for {target}");
            }
        }
        let options = ["--release", "--target", &target, "--zig", "--compatibility", &tag];
        environment.build(&target_dir().join("wheels").join(machine.name()), &options, &arguments.cubins)
    };
    arguments.machine.iter().map(build).collect()
}
