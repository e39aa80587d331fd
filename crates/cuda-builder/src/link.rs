//! The link: from the archive of bitcode to checked PTX for one architecture.
//!
//! ```text
//! archive ─llvm-link→ IR ─pass→ IR ─opt→ <arch>.ll ─llc→ <arch>.ptx ─check, split→ a module for each kernel
//! ```
//!
//! The results stay beside a stamp that names everything they were made from, so that a link with the same inputs is a
//! comparison of the stamp.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustc_demangle::demangle;

use gpu_facts::ptx_facts;

use crate::compile::{BASE, UNROLL_THRESHOLD};
use crate::explain::{LlvmLog, has_other_bits, unsupported, with_lines_of_the_crate};
use crate::files::write_atomically;
use crate::inspect::{Allowed, Ptx, loops, split};
use crate::pass::{Entry, Rewritten};
use crate::toolchain::Toolchain;
use crate::{Arch, Error, Pipeline, environment, inspect, pass};

/// For [`Pipeline::Convergent`]: LLVM's jump threading in place of rustc's, and what shows it its chances. Code with iterators
/// needs it, and LLVM has it do nothing for targets where the lanes of a warp may part; so these passes run on a module that does
/// not say for what target it is. What is marked `convergent` is left where it is.
const THREADING: &str = "internalize,globaldce,cgscc(devirt<4>(inline,function<eager-inv>(sroa<modify-cfg>,\
    early-cse<memssa>,jump-threading,correlated-propagation,simplifycfg,instcombine<no-verify-fixpoint>,\
    jump-threading,simplifycfg)))";

/// How much [`THREADING`] inlines, in LLVM's units. For our target they are worth eleven times as much.
const THREADING_INLINES: u32 = 60;

/// The passes that rustc would run, and leaves to us.
const PASSES_OF_RUSTC: &str = "internalize,globaldce,lto-pre-link<O3>,lto<O3>";

/// The passes of LLVM that follow. Address-space inference comes first, because the cleanup at the beginning of the pipeline
/// would remove the casts that it follows.
const PASSES: &str = "internalize,globaldce,function(infer-address-spaces),default<O3>";

/// Has `llc` take every function for a huge one when it prepares it, where it would otherwise begin again after every change. What
/// comes out is the same to the last bit, for a large kernel half a second earlier.
const NO_REPETITION: &str = "-cgpp-huge-func=0";

/// What PTX says of the lines of Rust that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Nothing.
    None,
    /// The innermost line of the kernel crate.
    OfTheCrate,
    /// The number of a list of lines.
    Numbered,
}

impl Lines {
    /// Where the results are, below the target directory.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::None => "ptx",
            Self::OfTheCrate => "ptx-with-lines",
            Self::Numbered => "ptx-with-places",
        }
    }
}

/// What to link, and with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<'a> {
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) crate_dir: &'a Path,
    pub(crate) archive: &'a Path,
    /// Where the results stay.
    pub(crate) directory: &'a Path,
    pub(crate) ptx_version: Option<(u32, u32)>,
    pub(crate) pipeline: Pipeline,
    /// The kernels that are wanted, if not all.
    pub(crate) kernels: Option<&'a [String]>,
    /// What the PTX says of the lines of Rust that its instructions come from. The archive knows them.
    pub(crate) lines: Lines,
}

/// The results for one architecture.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) ptx: String,
    pub(crate) parsed: Ptx,
    /// The kernels, each with a module of its own, in the order of the PTX.
    pub(crate) kernels: Vec<(String, String)>,
    pub(crate) path: PathBuf,
    pub(crate) llvm_ir: PathBuf,
}

impl Link<'_> {
    pub(crate) fn link(&self, arch: Arch) -> Result<Linked, Error> {
        let file = |extension| self.directory.join(format!("{arch}.{extension}"));
        let (ptx_path, ir_path) = (file("ptx"), file("ll"));
        let stamp = format!("{}arch {arch}\nptx version {:?}\n", self.stamp()?, self.ptx_version);
        let mut parsed = None;
        let analysis = loops::analysis_path(&ir_path);
        let mut files: Vec<&Path> = vec![&ptx_path, &ir_path];
        if self.lines == Lines::Numbered {
            files.push(&analysis);
        }
        let ptx = kept(&files, &stamp, || {
            let (ptx, checked) = self.make(arch, &ir_path, &ptx_path)?;
            parsed = Some(checked);
            Ok(ptx)
        })?;
        let refuse = |reason| Error::Check { arch, ptx: ptx_path.clone(), place: None, reason };
        let parsed = parsed.map_or_else(|| Ptx::parse(&ptx), Ok).map_err(refuse)?;
        let kernels = split(&ptx, &parsed).map_err(refuse)?;
        Ok(Linked { ptx, parsed, kernels, path: ptx_path, llvm_ir: ir_path })
    }

    /// Makes the PTX, and checks it.
    fn make(&self, arch: Arch, ir_path: &Path, ptx_path: &Path) -> Result<(String, Ptx), Error> {
        let (mut optimized, rewritten) = self.optimized(arch)?;
        if self.lines == Lines::OfTheCrate {
            optimized = with_lines_of_the_crate(&optimized, self.crate_dir);
        }
        write_atomically(ir_path, optimized.as_bytes())?;
        if has_other_bits(&optimized) {
            let found = unsupported(&optimized, self.crate_dir, None);
            return Err(Error::Unsupported { arch, found, log: ir_path.to_owned() });
        }
        // The numbers can be worked out from what has just been written, and from nothing else.
        let numbered_path = ir_path.with_extension("numbered.ll");
        let input = if self.lines == Lines::Numbered {
            write_atomically(&numbered_path, inspect::numbered(&optimized).as_bytes())?;
            self.analyse_loops(ir_path)?;
            &numbered_path
        } else {
            ir_path
        };
        let names = rewritten.names();

        let ptx = self.run("llc", |tool| {
            let (major, minor) = self.ptx_version.map_or(arch.ptx_version(), |version| version.max(arch.ptx_version()));
            tool.arg(format!("-mattr=+ptx{major}{minor}"));
            tool.args([NO_REPETITION, "-O3", &format!("-mcpu={arch}"), "-o", "-"]).arg(input)
        })?;
        let ptx = if self.lines != Lines::None { without_marks(&ptx) } else { ptx };
        let ptx = with_facts(&rewritten.kernels, &ptx);
        write_atomically(ptx_path, ptx.as_bytes())?;
        let refuse = |reason| Error::Check { arch, ptx: ptx_path.to_owned(), place: None, reason };
        let parsed = Ptx::parse(&ptx).map_err(refuse)?;
        let those = |may: fn(&Entry) -> bool| {
            let kernels = rewritten.kernels.iter().filter(|(_, entry)| may(entry));
            kernels.map(|(name, _)| name.clone()).collect()
        };
        let allowed = Allowed { local: those(|entry| entry.allows_local), recursion: those(|entry| entry.has_stack) };
        parsed.check_with(&names, &allowed).map_err(refuse)?;
        Ok((ptx, parsed))
    }

    /// The LLVM IR from which the PTX is made, and what the pass has found.
    pub(crate) fn optimized(&self, arch: Arch) -> Result<(String, Rewritten), Error> {
        let linked = self.linked()?;
        self.check_names(&linked)?;
        let rewritten = pass::rewrite(&linked, arch).map_err(|reason| Error::Pass { arch, place: None, reason })?;
        let names = rewritten.names();
        if names.is_empty() {
            return Err(Error::NoKernel { crate_dir: self.crate_dir.to_owned(), arch });
        }
        let mut options = for_arch(arch).to_vec();
        if self.lines == Lines::Numbered {
            let path = loops::remarks_path(&self.directory.join(format!("{arch}.ll")));
            options.push(format!("-pass-remarks-output={}", path.display()));
            options.push(format!("-pass-remarks-filter={}", loops::PASSES));
        }
        let optimized = self.optimize(&rewritten.ir, PASSES, &options, &names)?;
        Ok((pass::with_channel(&optimized), rewritten))
    }

    /// Has LLVM say how often the loops of a module go round.
    fn analyse_loops(&self, ir_path: &Path) -> Result<(), Error> {
        let path = self.toolchain.llvm_tool("opt");
        let output = environment::command(&path)
            .args(["-disable-output", "--passes=print<scalar-evolution>", "-scalar-evolution-classify-expressions=0"])
            .arg(ir_path)
            .output()
            .map_err(Error::io("run", &path))?;
        // What it says goes to its standard error, and nothing that programs run depends on it.
        write_atomically(&loops::analysis_path(ir_path), &output.stderr)
    }

    /// Fails if a kernel that is wanted is in neither list: those that are there, and those that the macro has left out.
    fn check_names(&self, linked: &str) -> Result<(), Error> {
        let Some(wanted) = self.kernels else { return Ok(()) };
        let mut kernels = pass::kernels(linked);
        let unknown: Vec<String> = wanted.iter().filter(|name| !kernels.contains(name)).cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        kernels.extend(pass::left_out(linked));
        Err(Error::UnknownKernels { crate_dir: self.crate_dir.to_owned(), unknown, kernels })
    }

    /// Whether rustc has copied what threads have to come to together.
    pub(crate) fn is_copied(&self) -> Result<bool, Error> {
        Ok(!self.copied()?.is_empty())
    }

    /// The whole crate as one module of LLVM IR, after the passes that come before ours.
    pub(crate) fn linked(&self) -> Result<String, Error> {
        self.copied()?;
        let path = self.linked_path();
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    }

    fn linked_path(&self) -> PathBuf {
        self.directory.join("linked.ll")
    }

    /// Makes that module, and gives the functions in which rustc has copied what it must not, a line for each: then the module is empty. The
    /// same for all architectures, so both are kept.
    fn copied(&self) -> Result<String, Error> {
        let (path, linked_path) = (self.directory.join("copied.txt"), self.linked_path());
        kept(&[&path, &linked_path], &self.stamp()?, || {
            let linked = self.run("llvm-link", |tool| {
                // The archive also holds an object that is no bitcode: rustc's list of exported symbols.
                tool.args(["-S", "--ignore-non-bitcode", "-o", "-"]).arg(self.archive)
            })?;
            let copied = if self.pipeline == Pipeline::Fast { pass::copied(&linked) } else { Vec::new() };
            let module = match &copied[..] {
                [] => self.before_ours(&pass::with_reports(&linked))?,
                _ => String::new(),
            };
            write_atomically(&linked_path, module.as_bytes())?;
            let copied = copied.join("\n");
            write_atomically(&path, copied.as_bytes())?;
            Ok(copied)
        })
    }

    /// Marks what threads have to come to together, and runs the passes that rustc would run.
    fn before_ours(&self, linked: &str) -> Result<String, Error> {
        let kernels = pass::kept(linked);
        let mut module = pass::mark_convergent(linked);
        if self.pipeline == Pipeline::Convergent {
            let (nameless, target) = pass::without_target(&module);
            let inline = format!("-inline-threshold={THREADING_INLINES}");
            module = pass::with_target(&self.optimize(&nameless, THREADING, &[inline], &kernels)?, &target);
        }
        let mut options = for_arch(BASE).to_vec();
        if self.lines == Lines::None {
            options.push("-strip-debug".to_owned());
        }
        self.optimize(&module, PASSES_OF_RUSTC, &options, &kernels)
    }

    /// Runs passes of LLVM. Only what has these names has to stay.
    fn optimize(&self, ir: &str, passes: &str, options: &[String], names: &[String]) -> Result<String, Error> {
        fs::create_dir_all(self.directory).map_err(Error::io("create the directory", self.directory))?;
        let scratch = tempfile::tempdir_in(self.directory).map_err(Error::io("create a file in", self.directory))?;
        let input = scratch.path().join("input.ll");
        fs::write(&input, ir).map_err(Error::io("write", &input))?;
        self.run("opt", |tool| {
            tool.args(["-S", "-o", "-", &format!("--passes={passes}")])
                .args(options)
                .arg(format!("--internalize-public-api-list={}", names.join(",")))
                .arg(&input)
        })
    }

    /// Runs one of LLVM's tools and gives what it writes to its standard output.
    fn run(&self, tool: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<String, Error> {
        let path = self.toolchain.llvm_tool(tool);
        let output = arguments(&mut environment::command(&path)).output().map_err(Error::io("run", &path))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let log = self.directory.join(format!("{tool}.log"));
        write_atomically(&log, said.as_bytes())?;
        let (said, log) = (LlvmLog(&said), Some(log.into()));
        let function = said.function().map(|name| format!("{:#}", demangle(name)));
        let (tool, message) = (tool.to_owned(), said.message());
        Err(Error::Tool { tool, status: output.status, place: None, message, function, log })
    }

    /// Everything that the results depend on, apart from the architecture.
    fn stamp(&self) -> Result<String, Error> {
        let archive = fs::metadata(self.archive).map_err(Error::io("read", self.archive))?;
        let modified = archive.modified().map_err(Error::io("read", self.archive))?;
        Ok(format!(
            "builder {:016x}\n{:?}\n{} {} {modified:?}\n",
            builder_hash(),
            self.toolchain,
            self.archive.display(),
            archive.len(),
        ))
    }
}

/// PTX without what LLVM adds for debuggers beside `.loc` and `.file`: an empty section, and labels that nothing names.
fn without_marks(ptx: &str) -> String {
    let is_mark = |line: &&str| {
        let line = line.trim();
        let marks = ["$L__tmp", "$L__func_begin", "$L__func_end"];
        line.starts_with(".section") || line.ends_with(':') && marks.iter().any(|mark| line.starts_with(mark))
    };
    ptx.lines().filter(|line| !is_mark(line)).map(|line| format!("{line}\n")).collect()
}

/// PTX that begins with what its kernels need besides what PTX has words for: see [`ptx_facts`].
fn with_facts(kernels: &[(String, Entry)], ptx: &str) -> String {
    let line = |(name, entry): &(String, Entry)| ptx_facts::line(name, entry.ptx_facts()) + "\n";
    kernels.iter().map(line).collect::<String>() + ptx
}

/// What `opt` has to be told about the target.
fn for_arch(arch: Arch) -> [String; 2] {
    [format!("-mcpu={arch}"), format!("-unroll-threshold={UNROLL_THRESHOLD}")]
}

/// What is in the first of these files, if all are there and the stamp beside it says that they were made from the same
/// things; otherwise `make` makes them, and gives it.
fn kept(files: &[&Path], stamp: &str, make: impl FnOnce() -> Result<String, Error>) -> Result<String, Error> {
    let stamp_path = files[0].with_extension("stamp");
    let made = fs::read_to_string(&stamp_path).is_ok_and(|made| made == stamp);
    if made && files.iter().all(|file| file.is_file()) {
        return fs::read_to_string(files[0]).map_err(Error::io("read", files[0]));
    }
    // Without the stamp, whatever an interrupted or a failed link leaves is made again.
    if stamp_path.exists() {
        fs::remove_file(&stamp_path).map_err(Error::io("remove", &stamp_path))?;
    }
    let text = make()?;
    write_atomically(&stamp_path, stamp.as_bytes())?;
    Ok(text)
}

/// Changes with the parts of this crate that decide what comes out, so that no result of older code is taken for current.
fn builder_hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    [
        include_str!("arch.rs"),
        include_str!("compile.rs"),
        include_str!("explain/lines.rs"),
        include_str!("explain/metadata.rs"),
        include_str!("explain/mod.rs"),
        include_str!("features.rs"),
        include_str!("link.rs"),
        include_str!("pass/arguments.rs"),
        include_str!("pass/convergence.rs"),
        include_str!("pass/copies.rs"),
        include_str!("pass/entry.rs"),
        include_str!("pass/ir.rs"),
        include_str!("pass/marker.rs"),
        include_str!("pass/mod.rs"),
        include_str!("pass/panics.rs"),
        include_str!("pass/parameters.rs"),
        include_str!("inspect/check.rs"),
        include_str!("inspect/check_error.rs"),
        include_str!("inspect/loops.rs"),
        include_str!("inspect/places.rs"),
        include_str!("inspect/ptx.rs"),
        include_str!("inspect/split.rs"),
        include_str!("inspect/targets.rs"),
        include_str!("inspect/text.rs"),
    ]
    .hash(&mut hasher);
    UNROLL_THRESHOLD.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_debuggers_is_left_out() {
        let kept = ".version 7.4\n.entry k() {\n\t.loc\t1 54 0\n$L__BB0_1:\n\tret;\n}\n\t.file\t1 \"src/lib.rs\"\n";
        let marked = kept.replace("\tret;", "$L__tmp7:\n\tret;\n$L__func_end0:") + "\t.section\t.debug_macinfo\t{\t}\n";
        assert_eq!((without_marks(&marked), without_marks(kept)), (kept.to_owned(), kept.to_owned()));
    }
}
