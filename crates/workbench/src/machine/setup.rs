//! `cargo tilewright setup`: gets what is missing for compiling kernels to PTX, and for assembling the PTX.
//!
//! The compiler comes from rustup where rustup can fetch the two components and may (`RUSTUP_AUTO_INSTALL` is not 0), and
//! else from Debian's packages. NVIDIA's assembler comes from its Python packages; in Tilewright's repository Python itself, for the
//! Python package, from Debian. What is there already is not touched, so a second run does nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use cuda_builder::inspect::CudaTool;
use cuda_builder::toolchain::Toolchain;

use super::{command, first_line, is_in_repository, python, tools_directory};
use crate::place::Place;

/// The options of `setup`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// Rust 1.96, its source, and LLVM 22, as Debian 12's security updates carry them for building browsers.
const PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-llvm", "llvm-22"];
const COMPONENTS: [&str; 2] = ["rust-src", "llvm-tools"];
/// For the Python package and its tests.
const PYTHON_PACKAGES: [&str; 2] = ["python3", "python3-venv"];
/// NVIDIA's tools as Python packages, each with its version and checksums.
const CUDA_TOOLS: &str = include_str!("cuda-tools.txt");

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<()> {
    let here = place.directory()?;
    let mut steps = Vec::new();
    if let Err(missing) = Toolchain::find(&here) {
        println!("{missing}.");
        steps.push(Step::Compiler { ways: compiler_ways()? });
    }
    let absent: Vec<_> = CudaTool::ALL.into_iter().filter(|tool| tool.find().is_none()).map(CudaTool::name).collect();
    if !absent.is_empty() {
        println!("Missing of NVIDIA's tools: {}.", absent.join(", "));
        steps.push(cuda_tools()?);
    }
    if is_in_repository() && python::find().is_none() {
        println!("Missing: Python 3.10 or newer, with venv.");
        steps.push(Step::Python(apt(&PYTHON_PACKAGES).unwrap_or_default()));
    }
    if steps.is_empty() {
        println!("Nothing to do: everything that compiling and assembling kernels needs is there.");
        return Ok(());
    }

    println!("To do:");
    for step in &steps {
        step.print();
    }
    if arguments.dry_run {
        return Ok(());
    }
    if !arguments.yes && !confirmed()? {
        bail!("nothing was done");
    }
    steps.into_iter().try_for_each(|step| step.carry_out(&here))?;
    println!("Done: kernels can be compiled and assembled.");
    Ok(())
}

enum Step {
    /// Ways to get a compiler, to be tried in order.
    Compiler {
        ways: Vec<Vec<Command>>,
    },
    CudaTools {
        directory: PathBuf,
        commands: Vec<Command>,
    },
    Python(Vec<Command>),
}

impl Step {
    fn print(&self) {
        match self {
            Self::Compiler { ways } => {
                for (number, way) in ways.iter().enumerate() {
                    let lines: Vec<_> = way.iter().map(shown).collect();
                    let otherwise = if number > 0 { "or, if that fails, " } else { "" };
                    println!("  {otherwise}{}", lines.join(" && "));
                }
            }
            Self::Python(commands) if commands.is_empty() => println!("  by hand: {}", python::ADVICE),
            Self::CudaTools { commands, .. } | Self::Python(commands) => {
                commands.iter().for_each(|command| println!("  {}", shown(command)));
            }
        }
    }

    fn carry_out(self, here: &Path) -> anyhow::Result<()> {
        match self {
            Self::Compiler { ways } => {
                for way in ways {
                    let done = way.into_iter().try_for_each(execute);
                    if let Err(error) = &done {
                        println!("{error:#}");
                    }
                    if Toolchain::find(here).is_ok() {
                        return Ok(());
                    }
                }
                let missing = Toolchain::find(here).map(|_| ()).expect_err("looked for it just now");
                bail!("{missing}, but it could not. {}", by_hand());
            }
            Self::CudaTools { directory, commands } => {
                fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
                let list = requirements(&directory);
                fs::write(&list, CUDA_TOOLS).with_context(|| format!("cannot write {}", list.display()))?;
                commands
                    .into_iter()
                    .try_for_each(execute)
                    .context("NVIDIA's tools come as Python packages, by python3 and pip")?;
                match CudaTool::ALL.into_iter().find(|tool| tool.find().is_none()) {
                    Some(tool) => bail!("`{}` is still missing after the installation", tool.name()),
                    None => Ok(()),
                }
            }
            Self::Python(commands) => {
                commands.into_iter().try_for_each(execute)?;
                match python::find() {
                    Some(_) => Ok(()),
                    None => bail!("there is no Python that could be used: {}", python::ADVICE),
                }
            }
        }
    }
}

/// The ways to a compiler that this machine offers.
fn compiler_ways() -> anyhow::Result<Vec<Vec<Command>>> {
    let mut ways = Vec::new();
    // Who sets this has told rustup to fetch nothing on its own.
    let may_fetch = std::env::var_os("RUSTUP_AUTO_INSTALL").is_none_or(|value| value != "0");
    let mut active = command("rustup", &["show", "active-toolchain"]);
    // Not the toolchain that this program was started with, but the one that the repository pins.
    active.env_remove("RUSTUP_TOOLCHAIN");
    if !may_fetch {
        println!("RUSTUP_AUTO_INSTALL=0 is set, so rustup is not asked to fetch components.");
    } else if let Some(toolchain) = first_line(active).as_deref().and_then(|line| line.split(' ').next()) {
        let mut add = command("rustup", &["component", "add", "--toolchain", toolchain]);
        add.args(COMPONENTS);
        ways.push(vec![add]);
    }
    if first_line(command("apt-get", &["--version"])).is_some() {
        match apt(&PACKAGES) {
            Some(way) => ways.push(way),
            None => println!("Debian's packages can only be installed by root: there is no sudo."),
        }
    }
    if ways.is_empty() {
        bail!("there is neither a rustup nor an apt-get that could be used here. {}", by_hand());
    }
    Ok(ways)
}

/// Installs Debian packages, if this user may: as root, or through sudo.
pub fn apt(packages: &[&str]) -> Option<Vec<Command>> {
    let (program, arguments): (_, &[&str]) = if first_line(command("id", &["-u"])).as_deref() == Some("0") {
        ("env", &[])
    } else if first_line(command("sudo", &["--version"])).is_some() {
        ("sudo", &["env"])
    } else {
        return None;
    };
    let apt = |rest: &[&str]| {
        let mut apt = command(program, arguments);
        apt.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(rest);
        apt
    };
    let mut install = apt(&["install", "-y", "--no-install-recommends"]);
    install.args(packages);
    Some(vec![apt(&["update"]), install])
}

/// The way to NVIDIA's tools: by pip, which Debian has as a package of its own.
fn cuda_tools() -> anyhow::Result<Step> {
    let directory = tools_directory().context(
        "there is no directory for NVIDIA's tools: neither HOME nor XDG_DATA_HOME is set; set one, or set TILEWRIGHT_CUDA_BIN to a directory \
         that has them",
    )?;
    let has_pip = first_line(command("python3", &["-m", "pip", "--version"])).is_some();
    let has_apt = first_line(command("apt-get", &["--version"])).is_some();
    let mut commands = if !has_pip && has_apt { apt(&["python3-pip"]).unwrap_or_default() } else { Vec::new() };
    let mut pip =
        command("python3", &["-m", "pip", "install", "--no-deps", "--upgrade", "--require-hashes", "--target"]);
    pip.arg(&directory).arg("--requirement").arg(requirements(&directory));
    commands.push(pip);
    Ok(Step::CudaTools { directory, commands })
}

/// The list of NVIDIA's tools that pip reads.
fn requirements(directory: &Path) -> PathBuf {
    directory.join("cuda-tools.txt")
}

fn by_hand() -> String {
    format!(
        "What is needed: Rust 1.95 or later with the components {}; or, on Debian 12 with its security updates, the packages \
         {}. `cargo tilewright doctor` shows what has been found, and the documentation of `cuda_builder::toolchain` which \
         environment variables name a compiler elsewhere",
        COMPONENTS.join(" and "),
        PACKAGES.join(", ")
    )
}

fn confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("this is no terminal to ask on: pass --yes to go ahead");
    }
    print!("Go ahead? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn execute(mut command: Command) -> anyhow::Result<()> {
    println!("$ {}", shown(&command));
    let status = command.status().with_context(|| format!("`{}` cannot be run", shown(&command)))?;
    if status.success() { Ok(()) } else { bail!("`{}` failed ({status})", shown(&command)) }
}

/// A command as it would be typed here.
fn shown(command: &Command) -> String {
    let here = std::env::current_dir().map_or_else(|_| String::new(), |here| format!("{}/", here.display()));
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let short = |word: &OsStr| {
        let word = word.to_string_lossy();
        word.strip_prefix(&here).map_or_else(|| word.clone().into_owned(), str::to_owned)
    };
    words.map(short).collect::<Vec<_>>().join(" ")
}
