//! The Python package: a virtual environment with what it is built and tested by, the wheel, its tests, and the check of its types.
//!
//! ```text
//!  python3 -m venv ─► pip install -r requirements ─► maturin build ─► pip install the wheel ─► pytest, pyright
//! ```
//!
//! The wheel is for this machine, and for its glibc or newer ones, and made of what `cargo test` has compiled, so that only the package itself is
//! compiled for it; `--release` makes a fast one. Those that are given away are [`wheels`](crate::wheels).
//!
//! Everything is under the target directory. What is installed there stays, until the requirements change.

use std::fs;
use std::path::{Path, PathBuf};
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
    /// Build the wheel as it is given away, for which the library is compiled anew.
    #[arg(long)]
    pub(crate) release: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let requirements = if arguments.with_torch { Requirements::Torch } else { Requirements::Base };
    let environment = Environment::create(requirements)?;
    // Else of the parts that the tests have, which have the kernels optimized, too.
    let profile = if arguments.release { "release" } else { "dev" };
    let wheel = environment.build(&target_dir().join("python/wheels"), &["--profile", profile], &[])?;
    println!("{} has {:.1} MB", wheel.display(), fs::metadata(&wheel)?.len() as f64 / 1e6);
    environment.execute("pip", &["install", "--quiet", "--force-reinstall", "--no-deps", &wheel.to_string_lossy()])?;
    // Not from the package's directory, where Python would take the sources for the package that is installed.
    let mut tests = environment.module("pytest");
    tests.current_dir(root().join("python/tests"));
    if arguments.with_torch {
        tests.env("KERNELBENCH", environment.kernelbench()?);
    }
    execute(tests)?;
    let interpreter = environment.interpreter();
    environment.execute_in("python", "pyright", &["--project", ".", "--pythonpath", &interpreter.to_string_lossy()])
}

/// What is installed in an environment: a file in `python`.
#[derive(Clone, Copy)]
pub(crate) enum Requirements {
    /// What the wheel is built and tested by.
    Base,
    /// And torch.
    Torch,
    /// And what links wheels for other systems.
    Wheels,
}

impl Requirements {
    /// The name of the environment, and the file.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Base => ("base", "requirements.txt"),
            Self::Torch => ("torch", "requirements-torch.txt"),
            Self::Wheels => ("manylinux", "requirements-wheels.txt"),
        }
    }
}

/// A virtual environment.
pub(crate) struct Environment {
    directory: PathBuf,
}

impl Environment {
    /// The environment with what the requirements name, made anew if they have changed.
    ///
    /// # Errors
    /// If there is no Python, or pip cannot install what is required.
    pub(crate) fn create(requirements: Requirements) -> anyhow::Result<Self> {
        let Some((python, version)) = find() else {
            bail!("there is no Python for the tests of the package: {ADVICE}")
        };
        let (name, file) = requirements.names();
        let environment = Self { directory: target_dir().join("python").join(name) };
        let requirements = root().join("python").join(file);
        let base = fs::read_to_string(root().join("python/requirements.txt"))?;
        let wanted = format!("{version}\n{base}{}", fs::read_to_string(&requirements)?);
        let mark = environment.directory.join("installed.txt");
        if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(environment);
        }
        let directory = environment.directory.to_string_lossy();
        execute(command(&python, &["-m", "venv", "--clear", &directory]))?;
        environment.execute("pip", &["install", "--quiet", "--requirement", &requirements.to_string_lossy()])?;
        fs::write(mark, wanted)?;
        Ok(environment)
    }

    /// Builds the wheel with cargo's own target directory, so that the library is compiled once, into a directory that has nothing else
    /// afterwards. `options` are maturin's.
    ///
    /// # Errors
    /// If the directory cannot be emptied, or maturin fails.
    pub(crate) fn build(&self, wheels: &Path, options: &[&str], cubins: &[Arch]) -> anyhow::Result<PathBuf> {
        // There is to be one wheel, whatever an older one was called.
        if wheels.exists() {
            fs::remove_dir_all(wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
        }
        let mut maturin = self.module("maturin");
        maturin.args(["build", "--manifest-path", "python/Cargo.toml", "--out"]).arg(wheels);
        maturin.arg("--target-dir").arg(target_dir()).args(options);
        // The linker of `--zig` is a package of this environment.
        maturin.env("CARGO_ZIGBUILD_PYTHON_PATH", self.interpreter());
        if !cubins.is_empty() {
            let names: Vec<_> = cubins.iter().map(|arch| arch.name()).collect();
            maturin.env(CUBINS_VARIABLE, names.join(","));
        }
        execute(maturin)?;
        let mut built = fs::read_dir(wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
        let wheel = built.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
        wheel.with_context(|| format!("maturin has left no wheel in {}", wheels.display()))
    }

    /// A copy of KernelBench, whose problems some tests read. It stays.
    ///
    /// # Errors
    /// If it cannot be got.
    fn kernelbench(&self) -> anyhow::Result<PathBuf> {
        let directory = target_dir().join("python/kernelbench");
        if !directory.join("KernelBench").is_dir() {
            // What an attempt that failed has left.
            if directory.exists() {
                fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
            }
            let script = root().join("python/kernelbench/source.py");
            let arguments = [script.to_string_lossy(), directory.to_string_lossy()].map(|text| text.into_owned());
            execute(command(&self.interpreter().to_string_lossy(), &arguments.each_ref().map(String::as_str)))?;
        }
        Ok(directory)
    }

    pub(crate) fn interpreter(&self) -> PathBuf {
        self.directory.join("bin/python")
    }

    /// A command that runs a module of Python in the environment.
    fn module(&self, module: &str) -> Command {
        let mut command = command(&self.interpreter().to_string_lossy(), &["-m", module]);
        // maturin finds the environment by this.
        command.env("VIRTUAL_ENV", &self.directory).env_remove("PYTHONPATH");
        command
    }

    /// Runs a module of Python in the environment.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn execute(&self, module: &str, arguments: &[&str]) -> anyhow::Result<()> {
        self.execute_in("", module, arguments)
    }

    /// In a directory of the repository.
    fn execute_in(&self, directory: &str, module: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.module(module);
        command.args(arguments).current_dir(root().join(directory));
        execute(command)
    }
}

/// Shows a command and runs it.
///
/// # Errors
/// If it fails.
pub(crate) fn execute(mut command: Command) -> anyhow::Result<()> {
    let shown = [command.get_program()].into_iter().chain(command.get_args());
    let shown = shown.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("`{shown}` cannot be run"))?;
    if status.success() { Ok(()) } else { bail!("`{shown}` failed ({status})") }
}
