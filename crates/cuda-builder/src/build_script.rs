//! For build scripts: PTX, and machine code, inside a program, and when to make it again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process;

use crate::cubin::{self, Cubin};
use crate::files::write_atomically;
use crate::inspect::{CUBINS_VARIABLE, CUDA_BIN_VARIABLE, CudaTool};
use crate::toolchain::{LLVM_BIN_VARIABLE, Missing, RUSTC_VARIABLE, Toolchain};
use crate::{Arch, Build, CudaBuilder, Error};

/// If this environment variable is set, [`embed`] makes no PTX: for jobs that only look at the code.
pub const SKIP_VARIABLE: &str = "TILEWRIGHT_SKIP_PTX";
/// The environment variable that has [`embed`] keep the lines of Rust that instructions come from.
pub const LINES_VARIABLE: &str = "TILEWRIGHT_LINES";

/// The whole of a build script that puts the PTX of the crate in `crate_dir` (relative to the package's directory) into a
/// program.
///
/// It writes a file into `OUT_DIR` that is called as the directory, with underscores: `gpu_kernels.rs` for `../gpu-kernels`. It has four
/// items: the constants `CRATE`, the name of the kernels' crate, and `DIGEST`, [`Build::digest`] if there is PTX, and
///
/// ```text
/// /// For each architecture its name, such as "sm_80", and its kernels, each with its name and a PTX module of its own; or
/// /// why there is none, and what to do about it.
/// pub const PTX: Result<&[(&str, &[(&str, &str)])], &str> = …;
/// /// The architecture of PTX, that of machine code that was made of it, and the kernels, each with its cubin, compressed.
/// pub const CUBINS: &[(&str, &str, &[(&str, &[u8])])] = …;
/// ```
///
/// which the program takes in with `include!(concat!(env!("OUT_DIR"), "/gpu_kernels.rs"));`. A machine that cannot compile
/// kernels, or the environment variable [`SKIP_VARIABLE`], makes it the reason. A build script may embed several crates, also with
/// kernels of the same names, from directories that are called differently.
///
/// Each kernel has a module of its own, so that a program has the driver compile what it runs and nothing else: for a
/// crate with many unrolled kernels that is the difference between a fraction of a second and most of a minute. Kernels that do not compile, or do not
/// pass the checks, fail the build: the script prints the error and ends with exit code 1.
///
/// # Machine code
///
/// The driver compiles the PTX of a kernel at its first use, which takes seconds for a large one. The environment variable
/// [`CUBINS_VARIABLE`] names architectures whose machine code is embedded, too: `TILEWRIGHT_CUBINS=sm_80,sm_90a cargo build --release`.
/// That needs NVIDIA's `ptxas` ([`CudaTool::Ptxas`]), and fails without. A GPU runs machine code for its own compute capability, or for
/// a lower one of the same major number (that for sm_86 runs on 8.6 and 8.9); every other GPU, and a driver older than `ptxas`, gets
/// the PTX.
///
/// # Lines
///
/// With the environment variable [`LINES_VARIABLE`] PTX and machine code say which line of Rust each instruction comes from, as
/// [`CudaBuilder::lines`] describes, for profilers: `TILEWRIGHT_LINES=1 cargo build --release`.
///
/// The script runs again if a source of the kernels changes, and if a toolchain appears where there was none.
///
/// # Panics
/// If it is not called from a build script.
pub fn embed(crate_dir: impl AsRef<Path>, archs: &[Arch]) {
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("`embed` is for build scripts: OUT_DIR is not set"));
    for variable in [SKIP_VARIABLE, CUBINS_VARIABLE, LINES_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Err(error) = embed_into(&out_dir, crate_dir.as_ref(), archs) {
        eprintln!("error: {error}");
        process::exit(1);
    }
}

fn embed_into(out_dir: &Path, crate_dir: &Path, archs: &[Arch]) -> Result<(), Error> {
    let directory = crate_dir.canonicalize().map_err(Error::io("find", crate_dir))?;
    let name = directory.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
    let files = Files { out_dir, name: &name };
    if std::env::var_os(SKIP_VARIABLE).is_some() {
        // No other line: an unchanged environment needs no second look.
        files.write_reason(&format!(
            "the environment variable {SKIP_VARIABLE} was set when this program was built, so its kernels were not \
             compiled to PTX; build it again without"
        ))
    } else {
        let machine_code = cubin::wanted()?;
        let with_lines = std::env::var_os(LINES_VARIABLE).is_some();
        match CudaBuilder::new(crate_dir).archs(archs).lines(with_lines).build() {
            Ok(build) => {
                build.emit_cargo_directives();
                if !machine_code.is_empty() {
                    emit_assembler_directives();
                }
                files.write_modules(&build, &cubin::make(&build.modules, &machine_code)?)
            }
            // Who asks for machine code does not want a program without.
            Err(Error::MissingToolchain(missing)) if machine_code.is_empty() => {
                missing.emit_cargo_directives();
                files.write_reason(&missing.to_string())
            }
            Err(error) => Err(error),
        }
    }
}

impl Build {
    /// Tells the cargo that runs this build script when to run it again, and shows the compiler's warnings.
    pub fn emit_cargo_directives(&self) {
        // A new file changes the digest, and so the host's compile, even if nothing names it.
        let sources = self.sources.iter().chain(&self.digest.sources);
        for line in directives(sources.chain(&toolchain_files(&self.toolchain))) {
            println!("{line}");
        }
        for line in self.warnings.iter().flat_map(|warning| warning.lines()) {
            println!("cargo::warning={line}");
        }
    }
}

impl Missing {
    /// Tells the cargo that runs this build script to run it again when a toolchain appears, but not before.
    ///
    /// ```
    /// # use std::path::Path;
    /// # use tilewright_cuda_builder::toolchain::Toolchain;
    /// // A build script of one's own, which goes on without kernels where they cannot be compiled; `embed` does the same.
    /// match Toolchain::find(Path::new("../gpu-kernels")) {
    ///     Ok(toolchain) => println!("cargo::rustc-env=KERNELS_BY={}", toolchain.rust_version),
    ///     Err(missing) => missing.emit_cargo_directives(),
    /// }
    /// ```
    pub fn emit_cargo_directives(&self) {
        for line in directives(self.candidates.iter().flat_map(|candidate| &candidate.watch)) {
            println!("{line}");
        }
    }
}

/// Tells cargo to run this build script again when there is another assembler.
fn emit_assembler_directives() {
    println!("cargo::rerun-if-env-changed={CUDA_BIN_VARIABLE}");
    if let Some(path) = CudaTool::Ptxas.find() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// What changes when a package or a component of the toolchain is replaced.
fn toolchain_files(toolchain: &Toolchain) -> [PathBuf; 2] {
    [toolchain.rustc.clone(), toolchain.llvm_tool("llc")]
}

fn directives<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<String> {
    let mut lines: Vec<String> = paths.map(|path| format!("cargo::rerun-if-changed={}", path.display())).collect();
    lines.sort();
    lines.dedup();
    lines.extend([RUSTC_VARIABLE, LLVM_BIN_VARIABLE].map(|name| format!("cargo::rerun-if-env-changed={name}")));
    lines
}

const ITEM: &str = "\
/// For each architecture its name, such as \"sm_80\", and its kernels, each with its name and a PTX module of its own; or
/// why there is none, and what to do about it.
#[allow(clippy::type_complexity, reason = \"a list of lists\")]
pub const PTX: ::core::result::Result<&[(&str, &[(&str, &str)])], &str> = ";

const CUBINS_ITEM: &str = "\
/// The architecture of PTX, that of machine code that was made of it, and the kernels, each with its cubin, compressed.
#[allow(clippy::type_complexity, reason = \"a list of lists\")]
pub const CUBINS: &[(&str, &str, &[(&str, &[u8])])] = &[";

/// The items that say which crate's kernels they are.
fn identity(crate_name: &str, digest: Option<&str>) -> String {
    let digest = digest.map_or_else(|| "None".to_owned(), |digest| format!("Some({digest:?})"));
    format!(
        "/// The crate whose kernels they are.\npub const CRATE: &str = {crate_name:?};\n\
         /// The digest of the sources that they were made from.\n\
         pub const DIGEST: ::core::option::Option<&str> = ::core::option::Option::{digest};\n"
    )
}

/// What is written of a crate: a file with the items, and a directory with the PTX and the machine code.
struct Files<'a> {
    out_dir: &'a Path,
    name: &'a str,
}

impl Files<'_> {
    fn write_modules(&self, build: &Build, cubins: &[Cubin<'_>]) -> Result<(), Error> {
        let mut code = format!("{}{ITEM}Ok(&[\n", identity(&build.name, Some(&build.digest.hex)));
        for module in &build.modules {
            let arch = module.arch.name();
            writeln!(code, "    ({arch:?}, &[").expect("writing to a String");
            for kernel in &module.kernels {
                let path = self.write(arch, &format!("{}.ptx", kernel.name), kernel.ptx.as_bytes())?;
                writeln!(code, "        ({:?}, include_str!({path:?})),", kernel.name).expect("writing to a String");
            }
            code.push_str("    ]),\n");
        }
        code.push_str("]);\n");
        code.push_str(CUBINS_ITEM);
        for group in cubins.chunk_by(|a, b| (a.ptx_arch, a.arch) == (b.ptx_arch, b.arch)) {
            let (ptx_arch, arch) = (group[0].ptx_arch.name(), group[0].arch.name());
            writeln!(code, "\n    ({ptx_arch:?}, {arch:?}, &[").expect("writing to a String");
            for Cubin { kernel, compressed, .. } in group {
                let path = self.write(ptx_arch, &format!("{kernel}.{arch}.cubin.zlib"), compressed)?;
                writeln!(code, "        ({kernel:?}, include_bytes!({path:?})),").expect("writing to a String");
            }
            code.push_str("    ]),");
        }
        code.push_str("];\n");
        self.write_item(&code)
    }

    /// Writes a file of a kernel.
    fn write(&self, arch: &str, name: &str, contents: &[u8]) -> Result<PathBuf, Error> {
        let path = self.out_dir.join(self.name).join(arch).join(name);
        write_atomically(&path, contents)?;
        Ok(path)
    }

    fn write_reason(&self, reason: &str) -> Result<(), Error> {
        let identity = identity(self.name, None);
        self.write_item(&format!("{identity}{ITEM}Err({reason:?});\n{CUBINS_ITEM}];\n"))
    }

    fn write_item(&self, code: &str) -> Result<(), Error> {
        write_atomically(&self.out_dir.join(format!("{}.rs", self.name)), code.as_bytes())
    }
}
