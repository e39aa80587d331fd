//! What blocks of a GPU kernel do, step by step: the file that a program writes, what follows from it, and how it is shown.
//!
//! ```text
//!  the executor ──▶ Trace ──▶ JSON ──▶ Trace ──▶ replay     where each warp is, and what is in flight, after a step
//!  (testkit)                                ├──▶ summary    roles, storage, hand-offs, lifetimes
//!                                           └──▶ text, HTML, Chrome's format for Perfetto
//! ```
//!
//! Nothing here knows a kernel, or the executor: a trace is read from its file as well as it was before it was written.

mod chrome;
mod describe;
mod html;
pub mod replay;
mod summary;
mod text;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use summary::{Fill, Handoff, Role, Stage, Storage, Summary};

/// What the file says that it is.
///
/// ```
/// # use kernel_trace::*;
/// let results = r#"{ "format": "tilewright-results", "version": 1 }"#;
/// let message = Trace::from_json(results).unwrap_err().to_string();
/// assert!(message.contains("not `tilewright-trace`") && FORMAT == "tilewright-trace");
/// ```
pub const FORMAT: &str = "tilewright-trace";

/// The version of the file. It changes whenever a reader of the one before would misunderstand it.
///
/// ```
/// # use kernel_trace::*;
/// let newer = format!(r#"{{ "format": "{FORMAT}", "version": {} }}"#, VERSION + 1);
/// assert!(matches!(Trace::from_json(&newer), Err(Error::Version { found }) if found == VERSION + 1));
/// ```
pub const VERSION: u32 = 1;

/// Why a file is no trace that this program can read.
///
/// ```
/// # use kernel_trace::*;
/// let read = |text| match Trace::from_json(text) {
///     Ok(trace) => trace.kernel,
///     Err(Error::Version { found }) => format!("to be recorded again: of version {found}"),
///     Err(Error::NoTrace(reason)) => format!("no trace: {reason}"),
/// };
/// assert!(read("some text").starts_with("no trace: expected value"));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is another file.
    #[error("this is no trace: {0}")]
    NoTrace(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "this trace has version {found} of the format, and this program reads version {VERSION}: record it again by `trace --format json`"
    )]
    Version {
        /// What it says.
        found: u32,
    },
}

/// What a step does.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// // How many bytes TMA has brought into the block.
/// let loaded = block.steps.iter().filter(|step| step.kind == Kind::TmaLoaded);
/// assert_eq!(loaded.map(|step| step.bytes).sum::<u64>(), 256);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of the executor's `StepKind`, which says what they are")]
pub enum Kind {
    GlobalLoad,
    GlobalStore,
    GlobalAtomic,
    SharedLoad,
    SharedStore,
    SharedAtomic,
    ClusterLoad,
    ClusterStore,
    ClusterAtomic,
    Arrive,
    Wait,
    Complete,
    Passed,
    MbarrierInit,
    MbarrierFence,
    TmaLoad,
    TmaLoaded,
    TmaStore,
    TmaStoreCommit,
    TmaStoreWait,
    AsyncCopy,
    AsyncCopyCommit,
    AsyncCopyWait,
    WgmmaFence,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
    Mma,
    Ldmatrix,
    Shuffle,
    Vote,
    SyncWarp,
    Elect,
    Fence,
    FenceAsync,
    Clock,
    Print,
    RegistersReleased,
    RegistersAcquired,
    End,
    Fault,
}

impl Kind {
    /// The kind of this name, if there is one.
    ///
    /// ```
    /// # use kernel_trace::Kind;
    /// assert_eq!(Kind::of_name("tma-load"), Some(Kind::TmaLoad));
    /// assert_eq!(Kind::of_name("tma"), None);
    /// ```
    pub fn of_name(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// The name, as files have it.
    ///
    /// ```
    /// # use kernel_trace::Kind;
    /// assert_eq!(Kind::MbarrierInit.name(), "mbarrier-init");
    /// ```
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("a kind is a string, not {other:?}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// A barrier.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// // Which barriers warp 0 waits at.
/// let waits = block.steps.iter().filter(|step| step.kind == Kind::Wait && step.warp == Some(0));
/// assert_eq!(Vec::from_iter(waits.map(|step| step.barrier)), [Some(Barrier::Mbarrier(136))]);
/// assert_eq!(Barrier::Mbarrier(136).to_string(), "mbarrier at byte 136");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// That of the block.
    Block,
    /// One with a number.
    Named(u32),
    /// The `mbarrier` at a byte of the dynamic shared memory.
    Mbarrier(usize),
    /// That of the cluster.
    Cluster,
    /// Registers that others give.
    Registers,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("the barrier of the block"),
            Self::Named(number) => write!(f, "named barrier {number}"),
            Self::Mbarrier(byte) => write!(f, "mbarrier at byte {byte}"),
            Self::Cluster => f.write_str("the barrier of the cluster"),
            Self::Registers => f.write_str("registers"),
        }
    }
}

/// What memory a step is about.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// // Each memory that some step accesses, by its name.
/// let mut memory: Vec<Memory> = block.steps.iter().filter_map(|step| step.memory).collect();
/// memory.dedup();
/// assert_eq!(memory, [Memory::Shared(0)]);
/// assert_eq!(block.memory(memory[0]), "the dynamic shared memory");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// One of [`Block::views`].
    View(usize),
    /// Global memory of no view.
    Global,
    /// One of [`Block::arrays`].
    Shared(usize),
    /// The same of the block of this rank in the cluster.
    Cluster(u32, usize),
}

/// A step of lanes of a warp, of TMA, or of others.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// let step: &Step = &block.steps[1];
/// assert_eq!((step.kind, step.warp, step.bytes), (Kind::TmaLoad, Some(0), 128));
/// assert_eq!(step.lanes, 1, "lane 0 alone");
/// assert_eq!(trace.place(step.place), "k.rs:1");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 1 on: one order for all blocks of the trace.
    pub step: u64,
    /// What it does.
    pub kind: Kind,
    /// The warp, if lanes of one make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warp: Option<usize>,
    /// The lanes that take part, a bit for each.
    #[serde(default = "all_lanes", skip_serializing_if = "is_all_lanes")]
    pub lanes: u32,
    /// Who makes it, if it is no warp: `TMA`, `block`, or another block of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Where that is in the source: the number in [`Trace::places`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// The line of the kernel by which the place was come to, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<usize>,
    /// How often in a row.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u64,
    /// The memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The bytes there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<[usize; 2]>,
    /// How many bytes lanes access together, or a transfer has, or an arrival has its phase expect.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// The barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
    /// Its phase; of groups of copies, stores or products the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u64>,
    /// The number of a transfer by TMA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<u64>,
    /// More, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

fn all_lanes() -> u32 {
    u32::MAX
}

fn is_all_lanes(lanes: &u32) -> bool {
    *lanes == u32::MAX
}

fn one() -> u64 {
    1
}

fn is_one(times: &u64) -> bool {
    *times == 1
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Step {
    /// A step of this kind of all lanes of a warp, with nothing else.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// let new = Step::new(1, Kind::SharedStore, Some(0));
    /// let store = Step { memory: Some(Memory::Shared(0)), ranges: vec![[0, 128]], bytes: 128, ..new };
    /// assert_eq!((store.who(), store.lanes), ("warp 0".to_owned(), u32::MAX));
    /// ```
    pub fn new(step: u64, kind: Kind, warp: Option<usize>) -> Self {
        Self {
            step,
            kind,
            warp,
            lanes: u32::MAX,
            by: String::new(),
            place: None,
            caller: None,
            times: 1,
            memory: None,
            ranges: Vec::new(),
            bytes: 0,
            barrier: None,
            phase: None,
            transfer: None,
            text: String::new(),
        }
    }

    /// The bytes.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// let step = Step { ranges: vec![[0, 4], [64, 68]], ..Step::new(1, Kind::SharedLoad, Some(0)) };
    /// assert_eq!(step.ranges().map(|bytes| bytes.len()).sum::<usize>(), 8);
    /// ```
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ranges.iter().map(|[start, end]| *start..*end)
    }

    /// Whether it accesses bytes of this memory that are among these.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// # let block = &trace.blocks[0];
    /// // Who accesses the first 16 bytes of shared memory, and how.
    /// let touches = block.steps.iter().filter(|step| step.touches(Memory::Shared(0), &(0..16)));
    /// let touches = Vec::from_iter(touches.map(|step| format!("{} {}", step.who(), step.kind)));
    /// assert_eq!(touches[..3], ["warp 0 lane 0 tma-load", "TMA tma-loaded", "warp 1 wgmma"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn touches(&self, memory: Memory, bytes: &Range<usize>) -> bool {
        self.memory == Some(memory) && self.ranges().any(|range| range.start < bytes.end && bytes.start < range.end)
    }
}

/// A view among the kernel's parameters.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// let View { name, element_bytes, bytes } = &block.views[0];
/// assert_eq!((&**name, bytes / element_bytes), ("x", 128), "a view of 128 elements");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its path among the parameters.
    pub name: String,
    /// The bytes of an element.
    pub element_bytes: usize,
    /// The bytes of all.
    pub bytes: usize,
}

/// An array in shared memory.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// let Array { name, bytes } = &block.arrays[0];
/// assert_eq!((&**name, *bytes), ("the dynamic shared memory", 144));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// What it is called.
    pub name: String,
    /// Its size.
    pub bytes: usize,
}

/// Threads of a warp that have not returned when the block has ended.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// // Who has not returned, and why.
/// let Left { warp, threads, place, waits } = &block.left[0];
/// let line = format!("{threads} threads of warp {warp}, at {}: {waits}", trace.place(*place));
/// assert_eq!(line, "32 threads of warp 2, at k.rs:3: waits for phase 2");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The warp.
    pub warp: usize,
    /// How many threads.
    pub threads: usize,
    /// Where in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// What they wait for.
    pub waits: String,
}

/// What a block has done.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// let Block { steps, more, fault, .. } = block;
/// println!("{} steps are kept, {more} were left out", steps.len());
/// assert!(fault.as_ref().is_some_and(|report| report.contains("k.rs:9")));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its coordinates in the grid.
    pub block: [u32; 3],
    /// The views among the kernel's parameters.
    pub views: Vec<View>,
    /// The arrays in shared memory that it has used.
    pub arrays: Vec<Array>,
    /// What it has done.
    pub steps: Vec<Step>,
    /// How many steps of threads there were besides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// What was wrong with it: the whole report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Threads that have not returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

/// What blocks of a launch have done.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// assert_eq!((&*trace.kernel, trace.blocks.len()), ("k", 1));
/// for block in &trace.blocks {
///     println!("block {:?}: {} steps, then {:?}", block.block, block.steps.len(), block.fault);
/// }
/// # assert!(trace.blocks[0].fault.is_some());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What the kernel was launched for, and with what sizes.
    pub operation: String,
    /// The sizes, as `--sizes` takes them.
    pub sizes: String,
    /// What numbers were generated from.
    pub seed: u64,
    /// What decides the order of blocks that can wait for one another.
    pub schedule_seed: u64,
    /// The kernel.
    pub kernel: String,
    /// The extents of the grid, in blocks.
    pub grid: [u32; 3],
    /// The extents of a block, in threads.
    pub block: [u32; 3],
    /// The extents of a cluster, in blocks.
    pub cluster: [u32; 3],
    /// How the launch ended, if not well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Lines of source that steps name: `file:line`.
    pub places: Vec<String>,
    /// The blocks.
    pub blocks: Vec<Block>,
}

impl Trace {
    /// Reads a file.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// let file = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json"));
    /// let trace = Trace::from_json(file)?;
    /// assert_eq!(trace.kernel, "k");
    /// assert!(matches!(Trace::from_json("[]"), Err(Error::NoTrace(_))));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is no trace, or one of another version.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let Head { format, version } = serde_json::from_str(text)?;
        if format != FORMAT {
            let message = format!("its format is `{format}`, not `{FORMAT}`");
            return Err(Error::NoTrace(serde::de::Error::custom(message)));
        }
        if version != VERSION {
            return Err(Error::Version { found: version });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The file: an object, with each step on a line of its own.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let file = trace.to_json();
    /// assert!(file.lines().count() > trace.blocks[0].steps.len(), "a step on a line");
    /// assert_eq!(Trace::from_json(&file)?, trace);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_json(&self) -> String {
        let Ok(text) = serde_json::to_string(self) else { unreachable!("a trace has strings for keys") };
        // Lines that a person, and a comparison of two files, can look at. A brace in a string is never behind a comma alone.
        let mut lines = String::with_capacity(text.len() + text.len() / 64);
        let (mut in_string, mut is_escaped) = (false, false);
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            lines.push(character);
            match character {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = in_string,
                '"' => in_string = !in_string,
                ',' if !in_string && characters.peek() == Some(&'{') => lines.push('\n'),
                '[' if !in_string && characters.peek() == Some(&'{') => lines.push('\n'),
                _ => {}
            }
        }
        lines.push('\n');
        lines
    }

    /// How many warps a block has.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// assert_eq!((trace.block, trace.warps()), ([96, 1, 1], 3));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn warps(&self) -> usize {
        (self.block.iter().map(|extent| *extent as usize).product::<usize>()).div_ceil(32)
    }

    /// A line of source by its number.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let last = trace.blocks[0].steps.last().unwrap();
    /// assert_eq!(trace.place(last.place), "k.rs:3");
    /// assert_eq!(trace.place(None), "", "a step that has no line");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn place(&self, place: Option<usize>) -> &str {
        place.and_then(|place| self.places.get(place)).map_or("", String::as_str)
    }

    /// The same, in which files of a directory are named as from there: a trace that says the same wherever it was recorded.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// # use std::path::Path;
    /// let elsewhere = Trace { places: vec!["/home/me/mine/src/k.rs:1".to_owned()], ..trace };
    /// assert_eq!(elsewhere.relative_to(Path::new("/home/me/mine")).places, ["src/k.rs:1"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn relative_to(mut self, directory: &Path) -> Self {
        let prefix = format!("{}/", directory.display());
        let shorten = |text: &mut String| {
            if text.contains(&prefix) {
                *text = text.replace(&prefix, "");
            }
        };
        self.places.iter_mut().chain(&mut self.error).for_each(shorten);
        for block in &mut self.blocks {
            block.fault.iter_mut().chain(block.arrays.iter_mut().map(|array| &mut array.name)).for_each(shorten);
            block.steps.iter_mut().map(|step| &mut step.text).for_each(shorten);
            block.left.iter_mut().map(|left| &mut left.waits).for_each(shorten);
        }
        self
    }

    /// The trace as text.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let text = trace.to_text();
    /// assert!(text.contains("tma-load") && text.contains("mbarrier at byte 128, phase 0"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_text(&self) -> String {
        text::text(self, true)
    }

    /// What the trace is of, and its tables, without the steps.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let tables = trace.to_tables();
    /// assert!(tables.contains("producer") && tables.len() < trace.to_text().len());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_tables(&self) -> String {
        text::text(self, false)
    }

    /// The trace in the format of Chrome's tracing, which Perfetto shows: a row for each warp, spans for waits, transfers and phases, and
    /// counters of bytes in flight and of filled stages.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let file = trace.to_chrome(); // for <https://ui.perfetto.dev>
    /// assert!(file.contains("\"traceEvents\"") && file.contains("bytes in flight"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_chrome(&self) -> String {
        chrome::chrome(self)
    }

    /// The trace as an HTML page that needs nothing else.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// let page = trace.to_html();
    /// assert!(page.to_lowercase().starts_with("<!doctype html>") && !page.contains("src=\"http"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn to_html(&self) -> String {
        html::html(self)
    }
}

#[cfg(test)]
mod tests;
