//! `cargo tilewright doctor`: what is on this machine, and what is missing for what.

use anyhow::{Context as _, ensure};
use cuda_builder::inspect::CudaTool;
use cuda_builder::toolchain::Toolchain;
use serde::Serialize;

use super::{command, first_line, has_driver, is_in_repository, ncu, python, table};
use crate::place::Place;

/// The options of `doctor`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON, one line for each tool.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<()> {
    let mut rows = Rows { rows: Vec::new() };
    let host_works = host(&mut rows);
    let ptx_works = ptx(&mut rows, place)?;
    let tools_work = cuda_tools(&mut rows);
    others(&mut rows);
    rows.print(arguments.json)?;

    ensure!(host_works, "the host toolchain does not work: https://rustup.rs installs one");
    if arguments.json {
    } else if ptx_works && tools_work {
        println!("{}", rows.summary());
    } else {
        println!("`cargo tilewright setup` gets what is missing. Until then the kernels run on the CPU.");
    }
    Ok(())
}

struct Rows {
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    there: bool,
    what: String,
    /// Which it is, or why there is none.
    found: String,
    needed_for: String,
}

impl Rows {
    fn add(&mut self, there: bool, what: &str, found: &str, needed_for: &str) {
        let [what, found, needed_for] = [what, found, needed_for].map(str::to_owned);
        self.rows.push(Row { there, what, found, needed_for });
    }

    fn found(&mut self, what: &str, found: &str, needed_for: &str) {
        self.add(true, what, found, needed_for);
    }

    fn missing(&mut self, what: &str, why: &str, needed_for: &str) {
        self.add(false, what, why, needed_for);
    }

    /// What to say where kernels can be compiled and looked at. On a machine without a GPU that is not all that the table asks for.
    fn summary(&self) -> String {
        let missing: Vec<&str> = self.rows.iter().filter(|row| !row.there).map(|row| row.what.as_str()).collect();
        match &missing[..] {
            [] => "Everything is there.".to_owned(),
            missing => format!(
                "What compiling and checking kernels needs is there. Missing, and the table says for what: {}.",
                missing.join(", ")
            ),
        }
    }

    fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            for row in &self.rows {
                println!("{}", serde_json::to_string(row).context("a row cannot be written as JSON")?);
            }
            return Ok(());
        }
        let mut table = table(["", "what", "found", "needed for"]);
        for Row { there, what, found, needed_for } in &self.rows {
            table.add_row([if *there { "ok" } else { "--" }, what, found, needed_for]);
        }
        println!("{table}\n");
        Ok(())
    }

    /// A row for a program that prints its version; whether it runs.
    fn program(&mut self, what: &str, program: &str, arguments: &[&str], needed_for: &str) -> bool {
        let version = first_line(command(program, arguments));
        match &version {
            Some(version) => self.found(what, version, needed_for),
            None => self.missing(what, "missing", needed_for),
        }
        version.is_some()
    }
}

fn host(rows: &mut Rows) -> bool {
    let everything = "everything";
    let rustc = rows.program("rustc", "rustc", &["--version"], everything);
    let cargo = rows.program("cargo", "cargo", &["--version"], everything);
    let linker = rows.program("C linker", "cc", &["--version"], everything);
    rustc && cargo && linker
}

fn ptx(rows: &mut Rows, place: &Place) -> anyhow::Result<bool> {
    let purpose = "compiling kernels to PTX";
    let candidates = Toolchain::survey(&place.directory()?);
    // One is enough: of the others only says something who has none.
    Ok(match candidates.iter().find_map(|candidate| candidate.as_ref().ok()) {
        Some(toolchain) => {
            let found = format!("{}, {}", toolchain.source, toolchain.rust_version);
            rows.found("compiler for kernels", &found, purpose);
            let found = format!("{} (rustc's own is {})", toolchain.llvm_bin.display(), toolchain.llvm_version);
            rows.found("LLVM tools", &found, purpose);
            true
        }
        None => {
            for unusable in candidates.iter().filter_map(|candidate| candidate.as_ref().err()) {
                let why = format!("{} lacks {}", unusable.source, unusable.lacks.join(" and "));
                rows.missing("compiler for kernels", &why, purpose);
            }
            false
        }
    })
}

fn cuda_tools(rows: &mut Rows) -> bool {
    let mut all = true;
    for tool in CudaTool::ALL {
        let purpose = match tool {
            CudaTool::Ptxas => "registers and spills: inspect, watch; machine code in programs (TILEWRIGHT_CUBINS)",
            CudaTool::Nvdisasm => "the instructions of kernels: inspect, watch",
            CudaTool::Cuobjdump => "looking into cubins by hand",
        };
        match tool.find() {
            Some(path) => rows.found(tool.name(), &path.display().to_string(), purpose),
            None => {
                rows.missing(tool.name(), "missing", purpose);
                all = false;
            }
        }
    }
    all
}

/// What is not needed, or not to be had from us.
fn others(rows: &mut Rows) {
    match has_driver() {
        true => rows.found("NVIDIA driver", "its library can be loaded", "running on a GPU"),
        false => rows.missing("NVIDIA driver", "libcuda.so.1 cannot be loaded", "running on a GPU"),
    }
    match ncu::version("ncu".as_ref()) {
        Some(version) => rows.found("ncu", &version, "profile, on a GPU"),
        None => rows.missing("ncu", ncu::ADVICE, "profile, on a GPU"),
    }
    rows.program("rustup", "rustup", &["--version"], "setup, one of two ways to get a compiler for kernels");
    rows.program("pip", "python3", &["-m", "pip", "--version"], "setup, to get ptxas without a CUDA toolkit");
    if is_in_repository() {
        match python::find() {
            Some((_, version)) => rows.found("python", &version, "the Python package and its tests"),
            None => rows.missing("python", python::ADVICE, "the Python package and its tests"),
        }
        rows.program("cargo-deny", "cargo", &["deny", "--version"], "the check of licences and advisories");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_to_be_there_that_is_missing() {
        let mut rows = Rows { rows: Vec::new() };
        rows.found("rustc", "rustc 1.95.0", "everything");
        assert_eq!(rows.summary(), "Everything is there.");
        rows.missing("NVIDIA driver", "libcuda.so.1 cannot be loaded", "running on a GPU");
        rows.missing("ncu", "missing", "profile");
        let summary = rows.summary();
        assert!(!summary.contains("Everything") && summary.ends_with("for what: NVIDIA driver, ncu."), "{summary}");
    }
}
