//! rust-cuda's `CudaBuilder`: from a crate of kernels to PTX.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use crate::compile::{Compile, Compiled, compile};
use crate::explain::explained;
use crate::files::write_atomically;
use crate::inspect::Ptx;
use crate::link::{Link, Linked};
use crate::metadata::metadata;
use crate::toolchain::Toolchain;
use crate::{Arch, Error};
use gpu_facts::{ComputeCapability, KernelFacts, Limits, ptx_facts};

/// Builds the kernels of a crate. See the [crate's documentation](crate).
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    crate_dir: PathBuf,
    archs: Vec<Arch>,
    target_dir: Option<PathBuf>,
    copy_to: Option<PathBuf>,
    ptx_version: Option<(u32, u32)>,
    pipeline: Pipeline,
    kernels: Option<Vec<String>>,
    with_lines: bool,
    quiet: bool,
}

/// Which of the compilers' passes run on kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipeline {
    /// All of rustc's and of LLVM's. If rustc's jump threading has copied what threads have to come to together, such as a
    /// barrier, the crate is compiled once more, as [`Convergent`](Self::Convergent).
    #[default]
    Fast,
    /// All but rustc's jump threading. What comes out does the same, with more registers here and there.
    Convergent,
}

/// What a build has made.
#[derive(Clone, Debug)]
pub struct Build {
    /// The name of the kernel crate's library, with underscores.
    pub name: String,
    /// What files are called that have these kernels: the name; if only some [kernels](CudaBuilder::kernels) were asked for,
    /// with theirs.
    pub title: String,
    /// The passes that ran.
    pub pipeline: Pipeline,
    /// One module for each architecture asked for, in that order.
    pub modules: Vec<PtxModule>,
    /// The compiler's warnings about the kernels, as it shows them.
    pub warnings: Vec<String>,
    /// The sources and manifests of the kernel crate and its path dependencies.
    pub sources: Vec<PathBuf>,
    /// The digest of everything that the kernels were compiled from: what [`digest::emit`](kernel_digest::emit) gives the host's
    /// compile of the same crate.
    pub digest: kernel_digest::Digest,
    /// What the kernels were compiled with.
    pub toolchain: Toolchain,
}

/// The PTX for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxModule {
    /// The architecture.
    pub arch: Arch,
    /// The PTX of all kernels. A program loads [`KernelEntry::ptx`] instead, one kernel at a time.
    pub ptx: String,
    /// The file that holds it: in the directory of [`CudaBuilder::copy_to`], else in the target directory.
    pub path: PathBuf,
    /// The file with the optimized LLVM IR that it was made from.
    pub llvm_ir: PathBuf,
    /// The version of the PTX language: `(7, 0)`. The driver must know it.
    pub ptx_version: (u32, u32),
    /// The kernels, in the order of the PTX.
    pub kernels: Vec<KernelEntry>,
}

/// A kernel in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEntry {
    /// The entry point's name.
    pub name: String,
    /// The shape of every block: x, y, z. Where launches choose it, the most threads that it can have, in a row.
    pub block: [u32; 3],
    /// How many blocks have to fit on a multiprocessor, where the kernel says so.
    pub min_blocks: Option<u32>,
    /// The static shared memory of a block, in bytes, without what alignment adds.
    pub shared_bytes: u64,
    /// Whether the kernel may have local memory.
    pub allows_local: bool,
    /// The blocks of a cluster, if the kernel has any.
    pub cluster: Option<[u32; 3]>,
    /// The dynamic shared memory that a launch gives each block, in bytes; 0 where each launch chooses.
    pub dynamic_shared_bytes: u32,
    /// The fingerprint of the parameters' layout.
    pub layout: u64,
    /// A module with this kernel alone and what it needs, cut out of [`PtxModule::ptx`]: see
    /// [`split_by_kernel`](crate::inspect::split_by_kernel).
    pub ptx: String,
}

impl CudaBuilder {
    /// Builds the crate whose `Cargo.toml` is in `crate_dir`, for [`Arch::Sm80`] unless told otherwise.
    pub fn new(crate_dir: impl Into<PathBuf>) -> Self {
        let archs = vec![Arch::Sm80];
        let (crate_dir, pipeline) = (crate_dir.into(), Pipeline::Fast);
        Self {
            crate_dir,
            archs,
            target_dir: None,
            copy_to: None,
            ptx_version: None,
            pipeline,
            kernels: None,
            with_lines: false,
            quiet: false,
        }
    }

    /// Builds for one architecture.
    pub fn arch(self, arch: Arch) -> Self {
        self.archs(&[arch])
    }

    /// Builds for several architectures, from one compile.
    ///
    /// # Panics
    /// If there are none.
    pub fn archs(mut self, archs: &[Arch]) -> Self {
        assert!(!archs.is_empty(), "CudaBuilder::archs: at least one architecture is needed");
        self.archs = archs.to_vec();
        self
    }

    /// Where cargo and the link step keep what they make; never the target directory of an outer cargo, which that one
    /// has locked. By default `cuda-builder` in the workspace's target directory.
    pub fn target_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(directory.into());
        self
    }

    /// Also puts the PTX here, as `<crate>.<arch>.ptx`, or `<crate>.<kernel>.<arch>.ptx` if only some [kernels](Self::kernels)
    /// are asked for.
    pub fn copy_to(mut self, directory: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(directory.into());
        self
    }

    /// Asks for at least this version of the PTX language, for instructions written as inline assembly that need it. By
    /// default it is [`Arch::ptx_version`], so that as many drivers as possible take the module.
    pub fn ptx_version(mut self, major: u32, minor: u32) -> Self {
        self.ptx_version = Some((major, minor));
        self
    }

    /// Whether the PTX says for each instruction which line of Rust it comes from (`.loc`), so that profilers and `nvdisasm` show these
    /// lines. The instructions are the same; the PTX is longer by half and more, and names files of this machine, so it is off unless told
    /// otherwise.
    pub fn lines(mut self, with_lines: bool) -> Self {
        self.with_lines = with_lines;
        self
    }

    /// Whether cargo's own words (what it compiles, waits for, or cannot do) stay unsaid on the standard error stream, for programs that show
    /// what comes of a build in their own way. The compiler's messages are in [`Error::Compile`] and in [`Build::warnings`] all the same.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Which passes run.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = pipeline;
        self
    }

    /// Builds these kernels of the crate and compiles no others, which takes two seconds where all of them take half a minute.
    ///
    /// The PTX of a kernel is the same as in a build of all of them, unless the compiler uses what it knows of all callers of a
    /// function: of 72 kernels of this repository, 3 then differ in an instruction. What programs run is built with all of them.
    ///
    /// For an architecture that none of the kernels is for, there is an error, as always.
    ///
    /// # Panics
    /// If there are none.
    pub fn kernels(mut self, names: &[impl AsRef<str>]) -> Self {
        assert!(!names.is_empty(), "CudaBuilder::kernels: at least one kernel is needed");
        let mut names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        names.sort();
        names.dedup();
        self.kernels = Some(names);
        self
    }

    /// Compiles, links and checks. With nothing changed since the last time this takes a fraction of a second.
    ///
    /// # Errors
    /// [`Error::MissingToolchain`] if this machine cannot compile kernels; any other error is one of the kernels, or of the
    /// file system.
    pub fn build(&self) -> Result<Build, Error> {
        let crate_dir = fs::canonicalize(&self.crate_dir).map_err(Error::io("find the crate", &self.crate_dir))?;
        let toolchain = Toolchain::find(&crate_dir)?;
        let target_dir = match &self.target_dir {
            Some(directory) => std::path::absolute(directory).map_err(Error::io("find", directory))?,
            None => default_target_dir(&toolchain, &crate_dir)?,
        };
        // Each pipeline has its own flags for rustc, and its own results.
        let target_dir = match self.pipeline {
            Pipeline::Fast => target_dir,
            Pipeline::Convergent => target_dir.join("convergent"),
        };
        let _lock = lock(&target_dir)?;
        let kernels = self.kernels.as_deref();
        let request = Compile {
            toolchain: &toolchain,
            crate_dir: &crate_dir,
            target_dir: &target_dir,
            pipeline: self.pipeline,
            kernels,
            quiet: self.quiet,
        };
        let Compiled { name, archive, warnings, sources } = compile(request)?;
        let title = kernels.map_or_else(|| name.clone(), |kernels| format!("{name}.{}", title(kernels)));
        let directory = target_dir.join(if self.with_lines { "ptx-with-lines" } else { "ptx" }).join(&title);
        let link = Link {
            toolchain: &toolchain,
            crate_dir: &crate_dir,
            archive: &archive,
            directory: &directory,
            ptx_version: self.ptx_version,
            pipeline: self.pipeline,
            kernels,
            with_lines: self.with_lines,
        };
        if self.pipeline == Pipeline::Fast && link.is_copied()? {
            return self.clone().pipeline(Pipeline::Convergent).build();
        }
        let (digest, linked) = thread::scope(|scope| {
            let of = || kernel_digest::of(&crate_dir, &toolchain.cargo, &kernel_digest::Features::Default);
            let digest = scope.spawn(of);
            let link = |&arch: &Arch| Ok((arch, link.link(arch).map_err(|error| explained(error, arch, link))?));
            let linked: Result<Vec<_>, Error> = self.archs.iter().map(link).collect();
            (digest.join().unwrap_or_else(|panic| resume_unwind(panic)), linked)
        });
        // What is wrong with the kernels comes first.
        let (linked, digest) = (linked?, digest?);
        let mut modules = Vec::new();
        for (arch, linked) in linked {
            let mut module = PtxModule::new(arch, linked);
            if let Some(directory) = &self.copy_to {
                module.path = directory.join(format!("{title}.{arch}.ptx"));
                let text = format!("// digest of the kernels' sources: {}\n{}", digest.hex, module.ptx);
                write_atomically(&module.path, text.as_bytes())?;
            }
            modules.push(module);
        }
        Ok(Build { name, title, pipeline: self.pipeline, modules, warnings, sources, digest, toolchain })
    }
}

impl PtxModule {
    fn new(arch: Arch, Linked { ptx: module, parsed, kernels, path, llvm_ir }: Linked) -> Self {
        let Ptx { version: ptx_version, functions, .. } = parsed;
        let kernels = functions
            .into_iter()
            .filter(|function| function.is_kernel)
            .zip(kernels)
            .map(|(kernel, (name, ptx))| {
                debug_assert_eq!(kernel.name, name, "both are in the order of the PTX");
                let facts = ptx_facts::find(&module, &name).unwrap_or_default();
                KernelEntry {
                    dynamic_shared_bytes: facts.dynamic_shared_bytes,
                    allows_local: facts.allows_local,
                    layout: facts.layout,
                    block: kernel.block.unwrap_or([1; 3]),
                    min_blocks: kernel.min_blocks,
                    cluster: kernel.cluster,
                    shared_bytes: kernel.shared_bytes,
                    ptx: format!("{}\n{ptx}", ptx_facts::line(&name, facts)),
                    name,
                }
            })
            .collect();
        Self { arch, ptx: module, path, llvm_ir, ptx_version, kernels }
    }
}

impl KernelEntry {
    /// What the kernel needs of a GPU.
    pub fn facts(&self) -> KernelFacts {
        KernelFacts {
            block: self.block,
            min_blocks: self.min_blocks.unwrap_or(0),
            cluster: self.cluster,
            static_shared_bytes: u32::try_from(self.shared_bytes).unwrap_or(u32::MAX),
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            layout: self.layout,
            ..KernelFacts::new("")
        }
    }

    /// The compute capabilities that run PTX for an architecture and whose GPUs can launch the kernel, lowest first.
    pub fn fits(&self, arch: Arch) -> Vec<ComputeCapability> {
        let facts = self.facts();
        let fits = |capability| Limits::of(capability).is_some_and(|limits| limits.check(&facts).is_ok());
        Limits::known().filter(|&capability| arch.runs_on(capability) && fits(capability)).collect()
    }
}

/// What files with some kernels alone are called: as the kernel, or, if there are several, as the first of them and by a number.
fn title(kernels: &[String]) -> String {
    let mut hasher = DefaultHasher::new();
    kernels.hash(&mut hasher);
    match kernels {
        [kernel] => kernel.clone(),
        _ => format!("{}.{:016x}", kernels.first().map_or("", String::as_str), hasher.finish()),
    }
}

/// One build at a time in a target directory: cargo's own lock ends with the compile, and the archive must not change
/// under the link.
fn lock(target_dir: &Path) -> Result<File, Error> {
    fs::create_dir_all(target_dir).map_err(Error::io("create the directory", target_dir))?;
    let path = target_dir.join("cuda-builder.lock");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    file.lock().map_err(Error::io("lock", &path))?;
    Ok(file)
}

fn default_target_dir(toolchain: &Toolchain, crate_dir: &Path) -> Result<PathBuf, Error> {
    // A build script's directory lies in the outer cargo's target directory, which bears cargo's cache tag.
    let out_dir = std::env::var_os("OUT_DIR").map(PathBuf::from);
    let outer =
        out_dir.iter().flat_map(|directory| directory.ancestors()).find(|path| path.join("CACHEDIR.TAG").is_file());
    if let Some(outer) = outer {
        return Ok(outer.join("cuda-builder"));
    }
    let metadata = metadata(toolchain, crate_dir, &["--no-deps"])?;
    let directory = metadata["target_directory"].as_str().map_or_else(|| crate_dir.join("target"), PathBuf::from);
    Ok(directory.join("cuda-builder"))
}
