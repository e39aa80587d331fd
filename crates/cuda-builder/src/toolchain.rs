//! Finding a compiler, the source of `core` and LLVM's tools: what compiling kernels needs besides the host toolchain.
//!
//! Rust has no prebuilt `core` that could be linked into kernels, and rustc does not make PTX of a static library. So it
//! takes, from one source or two, all of:
//!
//! | what | from rustup | from Debian |
//! |---|---|---|
//! | rustc and cargo, at least 1.95 | the toolchain of `rust-toolchain.toml` | `rustc-web`, `cargo-web`, `rust-web-llvm` |
//! | the source of `core` | component `rust-src` | `rust-web-src` |
//! | `llvm-link`, `opt`, `llc` of rustc's LLVM version or a later one | component `llvm-tools` | `llvm-22` |
//!
//! Candidates for the compiler, in this order: the one that the environment variable `TILEWRIGHT_RUSTC` names, and then
//! no other; the `rustc` on `PATH`, which under rustup is the toolchain that the kernel crate pins; `/usr/bin/rustc`.
//! LLVM's tools are those in the directory that `TILEWRIGHT_LLVM_BIN` names, and then no others; else the compiler's own;
//! else those in `/usr/lib/llvm-N/bin` with the lowest N that fits.

use std::fmt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use crate::environment;

/// Names the compiler to use: the path of a `rustc`, with its `cargo` beside it.
pub const RUSTC_VARIABLE: &str = "TILEWRIGHT_RUSTC";
/// Names the directory of LLVM's tools.
pub const LLVM_BIN_VARIABLE: &str = "TILEWRIGHT_LLVM_BIN";

/// The tools of LLVM that the link step runs.
pub const LLVM_TOOLS: [&str; 3] = ["llvm-link", "opt", "llc"];

/// The oldest compiler that the kernels and `cuda_std` are written for.
const OLDEST: (u32, u32) = (1, 95);

/// Everything that compiling kernels needs.
///
/// ```
/// # use std::path::{Path, PathBuf};
/// # use tilewright_cuda_builder::toolchain::*;
/// if let Ok(Toolchain { source, rustc, llvm_bin, llvm_version, .. }) = Toolchain::find(Path::new(".")) {
///     println!("{source}: LLVM {llvm_version}");
///     assert!(rustc.is_file() && llvm_bin.is_dir());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Where it was found, for people.
    pub source: String,
    /// The compiler itself, not rustup's proxy.
    pub rustc: PathBuf,
    /// The cargo that belongs to it.
    pub cargo: PathBuf,
    /// The directory with [`LLVM_TOOLS`].
    pub llvm_bin: PathBuf,
    /// The compiler's version: `1.96.0`.
    pub rust_version: String,
    /// The version of the compiler's own LLVM: `22.1.8`.
    pub llvm_version: String,
}

/// A compiler that cannot be used, and why.
///
/// ```
/// # use std::path::{Path, PathBuf};
/// # use tilewright_cuda_builder::toolchain::*;
/// for unusable in Toolchain::survey(Path::new(".")).into_iter().filter_map(Result::err) {
///     assert!(!unusable.lacks.is_empty());
///     println!("{} lacks {}", unusable.source, unusable.lacks.join(" and "));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Which compiler.
    pub source: String,
    /// What it lacks. Not empty.
    pub lacks: Vec<String>,
    /// Existing files and directories of which at least one changes when what it lacks appears.
    pub(crate) watch: Vec<PathBuf>,
}

/// No candidate can compile kernels.
///
/// ```
/// # use std::path::{Path, PathBuf};
/// # use tilewright_cuda_builder::toolchain::*;
/// if let Err(missing) = Toolchain::find(Path::new(".")) {
///     assert!(missing.to_string().ends_with("`cargo tilewright setup` gets what is missing"));
///     println!("{} compilers were looked at", missing.candidates.len());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Missing {
    /// Every candidate, in the order in which they were considered.
    pub candidates: Vec<Unusable>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no toolchain that compiles kernels to PTX")?;
        for Unusable { source, lacks, .. } in &self.candidates {
            write!(f, "; {source} lacks {}", lacks.join(" and "))?;
        }
        write!(f, ". `cargo tilewright setup` gets what is missing")
    }
}

impl Toolchain {
    /// The first candidate that has everything, for a kernel crate in `crate_dir`.
    ///
    /// ```
    /// # use std::path::{Path, PathBuf};
    /// # use tilewright_cuda_builder::toolchain::*;
    /// match Toolchain::find(Path::new("../gpu-kernels")) {
    ///     Ok(toolchain) => assert!(LLVM_TOOLS.iter().all(|tool| toolchain.llvm_tool(tool).is_file())),
    ///     Err(missing) => println!("kernels cannot be compiled here: {missing}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Missing`], with what each candidate lacks.
    pub fn find(crate_dir: &Path) -> Result<Self, Missing> {
        let mut candidates = Vec::new();
        for result in Self::survey(crate_dir) {
            match result {
                Ok(toolchain) => return Ok(toolchain),
                Err(unusable) => candidates.push(unusable),
            }
        }
        Err(Missing { candidates })
    }

    /// Every candidate, usable or not.
    ///
    /// ```
    /// # use std::path::{Path, PathBuf};
    /// # use tilewright_cuda_builder::toolchain::*;
    /// // `find` takes the first that is usable, and names all if none is.
    /// let survey = Toolchain::survey(Path::new("."));
    /// match Toolchain::find(Path::new(".")) {
    ///     Ok(first) => assert_eq!(survey.iter().flatten().next(), Some(&first)),
    ///     Err(missing) => assert_eq!(missing.candidates.len(), survey.len()),
    /// }
    /// ```
    pub fn survey(crate_dir: &Path) -> Vec<Result<Self, Unusable>> {
        // At the same time, because each of them is asked twice and takes its time to answer.
        thread::scope(|scope| {
            let examine = |source: Source| scope.spawn(move || source.examine(crate_dir));
            let examined: Vec<_> = Source::all().into_iter().map(examine).collect();
            examined.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// Whether the compiler is of this version or a later one.
    pub(crate) fn is_at_least(&self, version: (u32, u32)) -> bool {
        numbers(&self.rust_version) >= version
    }

    /// The path of one of [`LLVM_TOOLS`].
    ///
    /// ```
    /// # use std::path::{Path, PathBuf};
    /// # use tilewright_cuda_builder::toolchain::*;
    /// let toolchain = Toolchain {
    ///     source: "rustup's".to_owned(),
    ///     rustc: PathBuf::from("toolchain/bin/rustc"),
    ///     cargo: PathBuf::from("toolchain/bin/cargo"),
    ///     llvm_bin: PathBuf::from("toolchain/llvm/bin"),
    ///     rust_version: "1.96.0".to_owned(),
    ///     llvm_version: "22.1.8".to_owned(),
    /// };
    /// assert_eq!(toolchain.llvm_tool("opt"), Path::new("toolchain/llvm/bin/opt"));
    /// ```
    pub fn llvm_tool(&self, name: &str) -> PathBuf {
        self.llvm_bin.join(name)
    }
}

/// A place where a compiler may be.
#[derive(Debug)]
struct Source {
    name: String,
    rustc: PathBuf,
    /// The directory that changes when the compiler appears there.
    appears_in: Option<PathBuf>,
    /// The only place to look for LLVM's tools, if there is one.
    llvm_bin: Option<PathBuf>,
}

/// What a compiler says of itself.
struct Version {
    release: String,
    host: String,
    llvm: String,
}

impl Source {
    fn all() -> Vec<Self> {
        let llvm_bin = std::env::var_os(LLVM_BIN_VARIABLE).map(PathBuf::from);
        if let Some(rustc) = std::env::var_os(RUSTC_VARIABLE) {
            let rustc = PathBuf::from(rustc);
            let name = format!("the compiler that {RUSTC_VARIABLE} names, {},", rustc.display());
            return vec![Self { name, appears_in: rustc.parent().map(Path::to_owned), rustc, llvm_bin }];
        }
        let packaged = PathBuf::from("/usr/bin/rustc");
        let packaged = Self {
            name: "the packaged compiler /usr/bin/rustc".to_owned(),
            rustc: packaged,
            appears_in: Some(PathBuf::from("/usr/bin")),
            llvm_bin: llvm_bin.clone(),
        };
        match find_on_path("rustc") {
            Some(rustc) if rustc != packaged.rustc => {
                let name = "the active `rustc` on PATH".to_owned();
                vec![Self { name, rustc, appears_in: None, llvm_bin }, packaged]
            }
            _ => vec![packaged],
        }
    }

    fn examine(&self, crate_dir: &Path) -> Result<Toolchain, Unusable> {
        let mut lacks = Vec::new();
        let mut watch = Vec::new();
        let unusable = |lacks: Vec<String>, watch: Vec<PathBuf>| Unusable {
            source: self.name.clone(),
            lacks,
            watch: existing(watch),
        };

        if !self.rustc.is_file() {
            return Err(unusable(vec!["rustc and cargo".to_owned()], self.appears_in.iter().cloned().collect()));
        }
        // Through rustup's proxy the first answer depends on the directory, so that what the crate pins is what counts.
        // The second is asked of the compiler itself.
        let sysroot = match output(&self.rustc, &["--print", "sysroot"], crate_dir) {
            Ok(sysroot) => PathBuf::from(sysroot.trim()),
            Err(reason) => {
                return Err(unusable(vec![format!("a rustc that runs ({reason})")], vec![self.rustc.clone()]));
            }
        };
        let direct = sysroot.join("bin/rustc");
        let rustc = if direct.is_file() { direct } else { self.rustc.clone() };
        let version = match output(&rustc, &["-vV"], crate_dir).map(|text| Version::parse(&text)) {
            Ok(Some(version)) => version,
            Ok(None) => return Err(unusable(vec!["a `rustc -vV` that names its LLVM".to_owned()], vec![rustc])),
            Err(reason) => return Err(unusable(vec![format!("a rustc that runs ({reason})")], vec![rustc])),
        };

        if !version.is_new_enough() {
            let (major, minor) = OLDEST;
            lacks.push(format!("a new enough rustc (it is {}, the kernels need {major}.{minor})", version.release));
            watch.extend([rustc.clone()].into_iter().chain(self.appears_in.clone()));
        }
        let cargo = rustc.with_file_name("cargo");
        if !cargo.is_file() {
            lacks.push(format!("cargo ({})", cargo.display()));
            watch.extend(rustc.parent().map(Path::to_owned));
        }
        let rustlib = sysroot.join("lib/rustlib");
        if !rustlib.join("src/rust/library/Cargo.lock").is_file() {
            lacks.push("the source of `core` (rust-src)".to_owned());
            watch.push(rustlib.clone());
        }
        let own_tools = rustlib.join(&version.host).join("bin");
        let llvm_bin = match &self.llvm_bin {
            Some(only) => Some(only.clone()).filter(|only| is_complete(only)),
            None if is_complete(&own_tools) => Some(own_tools),
            None => packaged_llvm_bin(version.llvm_major()),
        };
        if llvm_bin.is_none() {
            match &self.llvm_bin {
                Some(directory) => {
                    let (tools, directory_name) = (LLVM_TOOLS.join(", "), directory.display());
                    lacks.push(format!(
                        "LLVM's tools (not all of {tools} are in {directory_name}, which {LLVM_BIN_VARIABLE} names)"
                    ));
                    watch.push(directory.clone());
                }
                None => {
                    lacks.push(format!("LLVM's tools (llvm-tools, or llvm-{} or later)", version.llvm_major()));
                    // A package of LLVM also puts versioned names such as `opt-22` into the second.
                    watch.extend([rustlib.join(&version.host), PathBuf::from("/usr/bin")]);
                }
            }
        }
        match llvm_bin {
            Some(llvm_bin) if lacks.is_empty() => Ok(Toolchain {
                source: self.name.clone(),
                rustc,
                cargo,
                llvm_bin,
                rust_version: version.release,
                llvm_version: version.llvm,
            }),
            _ => Err(unusable(lacks, watch)),
        }
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        Some(Self { release: field("release:")?, host: field("host:")?, llvm: field("LLVM version:")? })
    }

    fn is_new_enough(&self) -> bool {
        numbers(&self.release) >= OLDEST
    }

    fn llvm_major(&self) -> u32 {
        self.llvm.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(u32::MAX)
    }
}

/// The first two numbers of a version.
fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether all of LLVM's tools are in a directory.
fn is_complete(directory: &Path) -> bool {
    LLVM_TOOLS.iter().all(|tool| directory.join(tool).is_file())
}

/// The packaged tools that can read the bitcode of a compiler with LLVM `major`: later versions read what older ones write.
fn packaged_llvm_bin(major: u32) -> Option<PathBuf> {
    let mut packaged: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(number, directory)| *number >= major && is_complete(directory))
        .collect();
    packaged.sort();
    packaged.into_iter().next().map(|(_, directory)| directory)
}

/// The first file called `name` in the directories of `PATH`.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Those of `paths` that are there. (To cargo a path that is not has always changed.)
fn existing(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.retain(|path| path.exists());
    paths.sort();
    paths.dedup();
    paths
}

fn output(program: &Path, arguments: &[&str], directory: &Path) -> Result<String, String> {
    let output = environment::command(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let message = String::from_utf8_lossy(&output.stderr);
        Err(message.lines().next().unwrap_or("no message").trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use tempfile::TempDir;

    use super::*;

    /// For tests that write a script and run it: a process that another test starts between the two would inherit the file
    /// while it is open for writing, and such a file cannot be run.
    fn one_at_a_time() -> MutexGuard<'static, ()> {
        static RUNNING: Mutex<()> = Mutex::new(());
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory with the layout of a toolchain, whose rustc is a script.
    fn sysroot(release: &str, llvm: &str) -> TempDir {
        let sysroot = tempfile::tempdir().unwrap();
        let root = sysroot.path().display().to_string();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --print ] && echo {root} && exit\n\
             printf 'rustc {release}\\nrelease: {release}\\nhost: x\\nLLVM version: {llvm}\\n'\n"
        );
        add(&sysroot, "bin/rustc", &script);
        add(&sysroot, "bin/cargo", "");
        fs::create_dir_all(sysroot.path().join("lib/rustlib/x/bin")).unwrap();
        sysroot
    }

    fn add(sysroot: &TempDir, file: &str, text: &str) {
        let path = sysroot.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn add_core(sysroot: &TempDir) {
        add(sysroot, "lib/rustlib/src/rust/library/Cargo.lock", "");
    }

    fn add_llvm(sysroot: &TempDir) {
        LLVM_TOOLS.iter().for_each(|tool| add(sysroot, &format!("lib/rustlib/x/bin/{tool}"), ""));
    }

    fn examine(sysroot: &TempDir) -> Result<Toolchain, Unusable> {
        let rustc = sysroot.path().join("bin/rustc");
        Source { name: "the fake".to_owned(), rustc, appears_in: None, llvm_bin: None }.examine(Path::new("/"))
    }

    #[test]
    fn takes_a_complete_toolchain() {
        let _guard = one_at_a_time();
        let sysroot = sysroot("1.95.0", "22.1.2");
        add_core(&sysroot);
        add_llvm(&sysroot);
        let toolchain = examine(&sysroot).unwrap();
        assert_eq!(toolchain.cargo, sysroot.path().join("bin/cargo"));
        assert_eq!(toolchain.llvm_tool("llc"), sysroot.path().join("lib/rustlib/x/bin/llc"));
        assert_eq!((toolchain.rust_version.as_str(), toolchain.llvm_version.as_str()), ("1.95.0", "22.1.2"));
    }

    #[test]
    fn says_what_is_missing_and_watches_where_it_will_appear() {
        let _guard = one_at_a_time();
        // No package has an LLVM of this version.
        let sysroot = sysroot("1.95.0", "999.0.0");
        let rustlib = sysroot.path().join("lib/rustlib");
        let unusable = examine(&sysroot).unwrap_err();
        assert_eq!(unusable.lacks.len(), 2, "{unusable:?}");
        assert!(unusable.lacks[0].contains("rust-src") && unusable.lacks[1].contains("llvm-999"), "{unusable:?}");
        for directory in [rustlib.join("x"), rustlib, PathBuf::from("/usr/bin")] {
            assert!(unusable.watch.contains(&directory), "{unusable:?}");
        }

        add_core(&sysroot);
        assert_eq!(examine(&sysroot).unwrap_err().lacks.len(), 1);
        add(&sysroot, "lib/rustlib/x/bin/llc", "");
        assert_eq!(examine(&sysroot).unwrap_err().lacks.len(), 1, "one of three tools is not enough");
        add_llvm(&sysroot);
        examine(&sysroot).unwrap();
        fs::remove_file(sysroot.path().join("bin/cargo")).unwrap();
        assert!(examine(&sysroot).unwrap_err().lacks[0].contains("cargo"));
    }

    #[test]
    fn refuses_an_old_compiler_and_one_that_does_not_run() {
        let _guard = one_at_a_time();
        let old = sysroot("1.94.1", "22.1.2");
        add_core(&old);
        add_llvm(&old);
        let unusable = examine(&old).unwrap_err();
        assert_eq!(unusable.lacks, ["a new enough rustc (it is 1.94.1, the kernels need 1.95)"]);

        let broken = sysroot("1.95.0", "22.1.2");
        add(&broken, "bin/rustc", "#!/bin/sh\necho broken >&2\nexit 1\n");
        assert_eq!(examine(&broken).unwrap_err().lacks, ["a rustc that runs (broken)"]);

        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(examine(&nowhere).unwrap_err().lacks, ["rustc and cargo"]);
    }

    #[test]
    fn the_message_names_every_candidate_and_the_command() {
        let unusable = |source: &str, lacks: &str| Unusable {
            source: source.to_owned(),
            lacks: vec![lacks.to_owned()],
            watch: Vec::new(),
        };
        let missing = Missing { candidates: vec![unusable("the first", "a"), unusable("the second", "b")] };
        assert_eq!(
            missing.to_string(),
            "there is no toolchain that compiles kernels to PTX; the first lacks a; the second lacks b. \
             `cargo tilewright setup` gets what is missing"
        );
    }
}
