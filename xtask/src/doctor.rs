//! `cargo xtask doctor`: what is on this machine, and what is missing for what.

use anyhow::bail;
use comfy_table::Table;
use cuda_builder::inspect::CudaTool;
use cuda_builder::toolchain::Toolchain;

use crate::python;
use crate::workspace::{command, first_line, kernel_crate, table};

pub(crate) fn run() -> anyhow::Result<()> {
    let mut rows = Rows { table: table(["", "what", "found", "needed for"]) };
    let host_works = host(&mut rows);
    let ptx_works = ptx(&mut rows);
    let tools_work = cuda_tools(&mut rows);
    others(&mut rows);
    println!("{}\n", rows.table);

    if !host_works {
        bail!("the host toolchain does not work: https://rustup.rs installs one");
    }
    if ptx_works && tools_work {
        println!("Everything is there.");
    } else {
        println!("`cargo xtask setup` gets what is missing. Until then the kernels run on the CPU.");
    }
    Ok(())
}

struct Rows {
    table: Table,
}

impl Rows {
    fn found(&mut self, what: &str, found: &str, needed_for: &str) {
        self.table.add_row(["ok", what, found, needed_for]);
    }

    fn missing(&mut self, what: &str, why: &str, needed_for: &str) {
        self.table.add_row(["--", what, why, needed_for]);
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

fn ptx(rows: &mut Rows) -> bool {
    let purpose = "compiling kernels to PTX";
    let candidates = Toolchain::survey(&kernel_crate());
    // One is enough: of the others only says something who has none.
    match candidates.iter().find_map(|candidate| candidate.as_ref().ok()) {
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
    }
}

fn cuda_tools(rows: &mut Rows) -> bool {
    let mut all = true;
    for tool in CudaTool::ALL {
        let purpose = match tool {
            CudaTool::Ptxas => "registers and spills, machine code in programs (TILEWRIGHT_CUBINS), the tests",
            CudaTool::Nvdisasm => "cargo xtask sass, the tests",
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
    // SAFETY: the driver's library is made to be loaded by any program; its initialisers run once, here at the latest.
    match unsafe { libloading::Library::new("libcuda.so.1") } {
        Ok(_) => rows.found("NVIDIA driver", "libcuda.so.1 can be loaded", "running on a GPU"),
        Err(_) => rows.missing("NVIDIA driver", "libcuda.so.1 cannot be loaded", "running on a GPU"),
    }
    match python::find() {
        Some((_, version)) => rows.found("python", &version, "the Python package and its tests"),
        None => rows.missing("python", python::ADVICE, "the Python package and its tests"),
    }
    rows.program("rustup", "rustup", &["--version"], "setup, one of two ways to get a compiler for kernels");
    rows.program("pip", "python3", &["-m", "pip", "--version"], "setup, to get ptxas without a CUDA toolkit");
    rows.program("cargo-deny", "cargo", &["deny", "--version"], "the check of licences and advisories");
}
