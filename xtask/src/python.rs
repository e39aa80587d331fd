//! The Python package: a virtual environment with what it is built and tested by, the wheel, its tests, and the check of its types.
//!
//! ```text
//!  python3 -m venv ─► pip install -r requirements ─► maturin build ─► pip install the wheel ─► pytest, pyright
//! ```
//!
//! Everything is under the target directory. What is installed there stays, until the requirements change.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use cuda_builder::Arch;
use cuda_builder::inspect::CUBINS_VARIABLE;

use workbench::python::{ADVICE, find};

use crate::workspace::{command, root, target_dir};

/// The options of `python`.
#[derive(clap::Args)]
#[group(id = "python")]
pub(crate) struct Arguments {
    /// Run the tests that need torch, too: installs it with its CUDA libraries, about 3 GB.
    #[arg(long)]
    pub(crate) with_torch: bool,
    /// Put machine code of the kernels into the wheel, for architectures separated by commas, so that the driver need not compile at
    /// a first call [without a list: sm_80,sm_86,sm_90a,sm_100,sm_120]. Needs ptxas.
    #[arg(long, value_name = "ARCHS", value_delimiter = ',', num_args = 0..=1, default_missing_values = CUBIN_ARCHS)]
    pub(crate) cubins: Vec<Arch>,
}

/// What wheels have machine code for unless told otherwise: every compute capability from 8.0 on that GPUs for computers have.
/// Those of 8.9 run what is for sm_86; what `ptxas` makes of the kernels for sm_89 has the same instructions. All others get PTX.
const CUBIN_ARCHS: [&str; 5] = ["sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some((python, version)) = find() else { bail!("there is no Python for the tests of the package: {ADVICE}") };
    let environment = Environment::create(&python, &version, arguments.with_torch)?;
    let wheel = environment.build(&arguments.cubins)?;
    environment.execute("pip", &["install", "--quiet", "--force-reinstall", "--no-deps", &wheel.to_string_lossy()])?;
    // Not from the package's directory, where Python would take the sources for the package that is installed.
    environment.execute_in("python/tests", "pytest", &[])?;
    let interpreter = environment.interpreter();
    environment.execute_in("python", "pyright", &["--project", ".", "--pythonpath", &interpreter.to_string_lossy()])
}

/// A virtual environment.
struct Environment {
    directory: PathBuf,
}

impl Environment {
    /// The environment with what the requirements name, made anew if they have changed.
    fn create(python: &str, version: &str, with_torch: bool) -> anyhow::Result<Self> {
        let (name, file) = if with_torch { ("torch", "requirements-torch.txt") } else { ("base", "requirements.txt") };
        let environment = Self { directory: target_dir().join("python").join(name) };
        let requirements = root().join("python").join(file);
        let base = fs::read_to_string(root().join("python/requirements.txt"))?;
        let wanted = format!("{version}\n{base}{}", fs::read_to_string(&requirements)?);
        let mark = environment.directory.join("installed.txt");
        if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(environment);
        }
        let directory = environment.directory.to_string_lossy();
        execute(command(python, &["-m", "venv", "--clear", &directory]))?;
        environment.execute("pip", &["install", "--quiet", "--requirement", &requirements.to_string_lossy()])?;
        fs::write(mark, wanted)?;
        Ok(environment)
    }

    /// Builds the wheel with cargo's own target directory, so that the library is compiled once.
    fn build(&self, cubins: &[Arch]) -> anyhow::Result<PathBuf> {
        let wheels = target_dir().join("python/wheels");
        // There is to be one wheel, whatever an older one was called.
        if wheels.exists() {
            fs::remove_dir_all(&wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
        }
        let (target, out) = (target_dir(), wheels.to_string_lossy().into_owned());
        let mut maturin = self.module("maturin");
        maturin
            .args(["build", "--release", "--manifest-path", "python/Cargo.toml", "--out", &out, "--target-dir"])
            .arg(target);
        if !cubins.is_empty() {
            let names: Vec<_> = cubins.iter().map(|arch| arch.name()).collect();
            maturin.env(CUBINS_VARIABLE, names.join(","));
        }
        execute(maturin)?;
        let mut built = fs::read_dir(&wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
        let wheel = built.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
        let wheel = wheel.with_context(|| format!("maturin has left no wheel in {}", wheels.display()))?;
        println!("{} has {:.1} MB", wheel.display(), fs::metadata(&wheel)?.len() as f64 / 1e6);
        Ok(wheel)
    }

    fn interpreter(&self) -> PathBuf {
        self.directory.join("bin/python")
    }

    /// A command that runs a module of Python in the environment.
    fn module(&self, module: &str) -> Command {
        let mut command = command(&self.interpreter().to_string_lossy(), &["-m", module]);
        // maturin finds the environment by this.
        command.env("VIRTUAL_ENV", &self.directory).env_remove("PYTHONPATH");
        command
    }

    fn execute(&self, module: &str, arguments: &[&str]) -> anyhow::Result<()> {
        self.execute_in("", module, arguments)
    }

    /// In a directory of the repository.
    fn execute_in(&self, directory: &str, module: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.module(module);
        command.args(arguments).current_dir(root().join(directory));
        execute(command)
    }
}

fn execute(mut command: Command) -> anyhow::Result<()> {
    let shown = [command.get_program()].into_iter().chain(command.get_args());
    let shown = shown.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("`{shown}` cannot be run"))?;
    if status.success() { Ok(()) } else { bail!("`{shown}` failed ({status})") }
}
