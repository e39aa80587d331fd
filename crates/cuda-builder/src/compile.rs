//! The compile: one run of cargo that leaves the bitcode of the kernel crate, and of all it depends on, in an archive.
//!
//! A static library is never linked, so no linker for PTX is needed, and the link step is free to do what it must. One
//! compile serves all architectures: the link step starts from code for the oldest.

use std::io::{BufRead, BufReader, IsTerminal};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{fs, io, thread};

use kernel_digest::PROFILE;
use serde_json::Value;

use crate::explain::{is_crash, math_functions, with_hints};
use crate::toolchain::Toolchain;
use crate::{Arch, Error, Pipeline, environment, features, write_atomically};

pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";
/// What the code is compiled for before the link step knows better.
pub(crate) const BASE: Arch = Arch::Sm80;

/// LLVM's passes are left to the link step, which marks first what threads have to come to together.
const NO_PASSES: &str = "-Cno-prepopulate-passes";

/// A manifest's `[profile.release.package]` overrules cargo's variables, but no flags. There it has the executor check what a GPU
/// does not.
const NO_CHECKS: [&str; 2] = ["-Coverflow-checks=off", "-Cdebug-assertions=off"];

/// rustc's own jump threading copies whatever stands between two branches on the same condition, a barrier too, into both
/// arms. Marks keep LLVM's passes from that; rustc's know nothing of it, and this is the one that copies calls. Loops over
/// iterators are the better for it, so it is left out only where it has copied what threads have to come to together.
const NO_JUMP_THREADING: &str = "-Zmir-enable-passes=-JumpThreading";

/// What rustc says of a constant that panics, such as one in a function that is called for a vector of three elements; and of that call.
const CONSTANT_PANICS: &str = "error[E0080]";
const INSTANTIATED: &str = "encountered while instantiating";

/// It names the call only if it has not inlined the function before. So a crate with such an error is compiled once more, for the message.
const NO_INLINING: &str = "-Zinline-mir=no";

/// How far `opt`'s full unrolling may go, in LLVM's units. At the default (300) a loop over an array of
/// accumulators can stay a loop, and then the array is in local memory, because registers cannot be indexed.
pub(crate) const UNROLL_THRESHOLD: u32 = 2000;

/// `core` alone takes most of a first build. Its share of the module is merged with the rest before it is optimized for
/// good, so it may as well be compiled in pieces, on all processors.
const PROFILE_OF_CORE: [&str; 4] = [
    "--config",
    "profile.release.package.core.codegen-units=16",
    "--config",
    "profile.release.package.compiler_builtins.codegen-units=16",
];

/// By this the attribute macro knows which kernels become entry points: `*` for all those of the crate that is built, or their
/// names. It makes none of a dependency's.
const ENTRY_POINTS: &str = "TILEWRIGHT_ENTRY_POINTS";

/// What the compile left.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The library's name, with underscores.
    pub(crate) name: String,
    /// The static library.
    pub(crate) archive: PathBuf,
    /// The warnings, as the compiler shows them.
    pub(crate) warnings: Vec<String>,
    /// The sources and manifests of the crate and its path dependencies.
    pub(crate) sources: Vec<PathBuf>,
}

/// What to compile, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compile<'a> {
    pub(crate) toolchain: &'a Toolchain,
    /// The crate, whose library it is.
    pub(crate) crate_dir: &'a Path,
    pub(crate) target_dir: &'a Path,
    pub(crate) pipeline: Pipeline,
    /// The kernels that are wanted, if not all.
    pub(crate) kernels: Option<&'a [String]>,
    /// Whether what cargo says of itself is kept back.
    pub(crate) quiet: bool,
}

/// Compiles the library of a crate.
pub(crate) fn compile(request: Compile<'_>) -> Result<Compiled, Error> {
    let Compile { toolchain, crate_dir, target_dir, pipeline, kernels, quiet } = request;
    let mut flags = vec![format!("-Ctarget-cpu={BASE}"), NO_PASSES.to_owned()];
    flags.extend(NO_CHECKS.map(str::to_owned));
    if pipeline == Pipeline::Convergent {
        flags.push(NO_JUMP_THREADING.to_owned());
    }
    // What is no name of Rust's is the name of no kernel, and is found missing after the link.
    let is_name = |name: &&String| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let names = |kernels: &[String]| kernels.iter().filter(is_name).cloned().collect::<Vec<_>>().join(",");
    let entry_points = kernels.map_or_else(|| "*".to_owned(), names);
    let wrapper = features::wrapper(toolchain, target_dir)?;
    let mut command = environment::command(&toolchain.cargo);
    command
        .args(["rustc", "--lib", "--crate-type", "staticlib", "--release", "--target", TARGET])
        // `core` has no prebuilt library for this target, and building it is unstable: hence also RUSTC_BOOTSTRAP.
        .args(["-Zbuild-std=core", "--message-format=json", "--target-dir"])
        .arg(target_dir)
        .args(PROFILE_OF_CORE)
        // For the crate alone, and not for what it depends on. To cargo, which knows nothing of the environment variable, this
        // makes it another crate: each choice of kernels has results of its own.
        .args(["--", "--cfg", &format!("tilewright_entry_points={entry_points:?}")])
        .env(ENTRY_POINTS, &entry_points)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", &toolchain.rustc)
        // They also overrule what a configuration file of cargo says. With an empty one cargo would not remember what the
        // compiler says of itself, and ask it for a third of a second every time; run by itself, the wrapper adds nothing.
        .env("RUSTC_WRAPPER", &wrapper)
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .envs(PROFILE.iter().copied())
        .current_dir(crate_dir)
        .stdin(Stdio::null());
    let Output { status, stdout, crash, unsaid } =
        run(&mut command, quiet).map_err(Error::io("run", &toolchain.cargo))?;

    let mut messages = Messages::read(&stdout);
    let is_without_call = |error: &String| error.starts_with(CONSTANT_PANICS) && !error.contains(INSTANTIATED);
    if messages.errors.iter().any(is_without_call) {
        let again = run(command.arg(NO_INLINING), true).map_err(Error::io("run", &toolchain.cargo))?;
        let again = Messages::read(&again.stdout);
        if !again.errors.is_empty() {
            messages.errors = of_outer_calls(again.errors);
        }
    }
    let (Some((name, archive)), true) = (messages.library, status.success()) else {
        let mut diagnostics = match &messages.errors[..] {
            [] if !crash.is_empty() => String::new(),
            [] if quiet => unsaid,
            [] => format!("{} ({status}) says why above", toolchain.cargo.display()),
            errors => with_hints(errors, || math_functions(toolchain, crate_dir)),
        };
        if !crash.is_empty() {
            let log = target_dir.join("rustc-crash.log");
            write_atomically(&log, crash.as_bytes())?;
            let known = if diagnostics.is_empty() { "" } else { "\n" };
            diagnostics += known;
            diagnostics += &format!("the compiler has crashed, by a fault of its own: see {}", log.display());
        }
        return Err(Error::Compile { crate_dir: crate_dir.to_owned(), diagnostics });
    };
    let sources = sources(&archive, crate_dir).map_err(Error::io("read the list of sources beside", &archive))?;
    Ok(Compiled { name, archive, warnings: messages.warnings, sources })
}

/// Of each constant that panics the first error with a call, which is the outermost one, or the first: functions that this one calls have the same
/// constant, and errors of their own.
fn of_outer_calls(errors: Vec<String>) -> Vec<String> {
    let panicking = |error: &String| {
        let function = error.split_once("\nnote: inside `").and_then(|(_, rest)| rest.lines().next());
        function.filter(|_| error.starts_with(CONSTANT_PANICS)).map(str::to_owned)
    };
    let mut kept: Vec<String> = Vec::new();
    for error in errors {
        let same = panicking(&error).and_then(|of| kept.iter_mut().find(|kept| panicking(kept).as_ref() == Some(&of)));
        match same {
            Some(kept) if !kept.contains(INSTANTIATED) => *kept = error,
            Some(_) => {}
            None => kept.push(error),
        }
    }
    kept
}

/// What came of cargo.
struct Output {
    status: ExitStatus,
    stdout: Vec<u8>,
    /// What the compiler has said of its own crash.
    crash: String,
    /// What else was said and kept back.
    unsaid: String,
}

/// Runs cargo and passes on what it says on its standard error stream as it comes, but for the stack of a compiler that crashes. With
/// `quiet` nothing is passed on.
fn run(command: &mut Command, quiet: bool) -> io::Result<Output> {
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().map(BufReader::new);
    let reader = thread::spawn(move || {
        let (mut crash, mut unsaid) = (String::new(), String::new());
        let mut say = |line: &str| {
            if quiet {
                unsaid += &format!("{line}\n");
            } else {
                eprintln!("{line}");
            }
        };
        for line in stderr.into_iter().flat_map(|stderr| stderr.split(b'\n')).map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if crash.is_empty() && !is_crash(&line) {
                say(&line);
            } else if line.starts_with("error: could not compile") {
                // Cargo's own words, at the end.
                say(&line);
            } else {
                crash += &format!("{line}\n");
            }
        }
        (crash, unsaid)
    });
    let output = child.wait_with_output()?;
    let (crash, unsaid) = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
    Ok(Output { status: output.status, stdout: output.stdout, crash, unsaid })
}

/// What cargo reports in `--message-format=json`.
#[derive(Debug, Default)]
struct Messages {
    library: Option<(String, PathBuf)>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

impl Messages {
    fn read(stdout: &[u8]) -> Self {
        let mut messages = Self::default();
        let lines = stdout.split(|&byte| byte == b'\n');
        for value in lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
            match value["reason"].as_str() {
                Some("compiler-message") => {
                    let message = &value["message"];
                    let rendered = message["rendered"].as_str().unwrap_or_default().trim_end().to_owned();
                    // A message about no place is the count at the end.
                    let is_count = message["spans"].as_array().is_none_or(Vec::is_empty) && message["code"].is_null();
                    match message["level"].as_str() {
                        Some("warning") if !is_count => messages.warnings.push(rendered),
                        Some(level) if level.starts_with("error") => messages.errors.push(rendered),
                        // Which call a constant belongs to that cannot be worked out: a message of its own, behind the error.
                        Some("note") if rendered.contains(INSTANTIATED) => {
                            messages.errors.last_mut().into_iter().for_each(|error| *error += &format!("\n{rendered}"));
                        }
                        _ => {}
                    }
                }
                Some("compiler-artifact") => {
                    let files = value["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
                    let archive = files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "a"));
                    if let (Some(archive), Some(name)) = (archive, value["target"]["name"].as_str()) {
                        messages.library = Some((name.replace('-', "_"), archive));
                    }
                }
                _ => {}
            }
        }
        messages
    }
}

/// The sources that cargo lists beside the archive, and the manifests that belong to them.
fn sources(archive: &Path, crate_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut sources = parse_dep_info(&fs::read_to_string(archive.with_extension("d"))?);
    let manifests: Vec<PathBuf> = sources
        .iter()
        .map(PathBuf::as_path)
        .chain([crate_dir])
        .flat_map(|source| source.ancestors().map(|directory| directory.join("Cargo.toml")).find(|path| path.is_file()))
        .collect();
    sources.extend(manifests);
    // The workspace's lock file decides the versions of everything else.
    sources.extend(crate_dir.ancestors().map(|directory| directory.join("Cargo.lock")).find(|path| path.is_file()));
    sources.sort();
    sources.dedup();
    Ok(sources)
}

/// The prerequisites in a makefile of one rule, where spaces in names are escaped.
fn parse_dep_info(text: &str) -> Vec<PathBuf> {
    let Some((_, rule)) = text.lines().next().and_then(|line| line.split_once(": ")) else { return Vec::new() };
    let mut paths = vec![String::new()];
    let mut characters = rule.chars();
    while let Some(character) = characters.next() {
        let path = paths.len() - 1;
        match character {
            '\\' => paths[path].extend(characters.next()),
            ' ' => paths.push(String::new()),
            _ => paths[path].push(character),
        }
    }
    paths.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dep_info_with_spaces() {
        let text = "/t/libk.a: /k/src/lib.rs /a\\ b/src/lib.rs\n\n/k/src/lib.rs:\n";
        assert_eq!(parse_dep_info(text), [PathBuf::from("/k/src/lib.rs"), PathBuf::from("/a b/src/lib.rs")]);
    }

    #[test]
    fn reads_cargos_messages() {
        let text = r#"
{"reason":"compiler-artifact","target":{"name":"core"},"filenames":["/t/libcore.rlib"]}
{"reason":"compiler-message","message":{"level":"warning","rendered":"unused\n","spans":[{}],"code":{"code":"unused"}}}
{"reason":"compiler-message","message":{"level":"warning","rendered":"1 warning emitted","spans":[],"code":null}}
{"reason":"compiler-message","message":{"level":"error","rendered":"mismatched types","spans":[{}],"code":null}}
{"reason":"compiler-message","message":{"level":"note","rendered":"encountered while instantiating `f`\n","spans":[{}],"code":null}}
not json
{"reason":"compiler-artifact","target":{"name":"gpu-kernels"},"filenames":["/t/libgpu_kernels.a"]}
"#;
        let messages = Messages::read(text.as_bytes());
        assert_eq!(messages.library, Some(("gpu_kernels".to_owned(), PathBuf::from("/t/libgpu_kernels.a"))));
        assert_eq!(messages.warnings, ["unused"]);
        assert_eq!(messages.errors, ["mismatched types\nencountered while instantiating `f`"]);
    }
}
