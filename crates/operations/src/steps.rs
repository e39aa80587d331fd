//! What a block of a kernel does, step by step: one case of an operation on the executor, recorded.

use cuda_std::Dim3;
use cuda_std::executor::{
    Checks, RecordedBlock, RecordedLaunch, SourceLine, Step, StepActor, StepBarrier, StepMemory, StepOptions, Steps,
};
use kernel_trace::{Array, Barrier, Block, FORMAT, Kind, Left, Memory, Trace, VERSION, View};
use runtime::Device;
use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::error::Nearest;
use crate::executor::executor;
use crate::operation::{Operation, Sizes};
use crate::trial::Trial;

/// Runs one case of an operation on the executor with all its checks, and records what blocks of a launch do. Whether the results are right
/// does not matter, and a kernel that does something wrong has a trace, too: [`Trace::error`] says what. `schedule` decides the order of
/// blocks that can wait for one another.
///
/// ```
/// # use cuda_std::prelude::*;
/// # use operations::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};
/// # #[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32)]
/// # pub fn doubles(x: DisjointSlice<'_, f32>) {
/// #     if let Some(x) = x.own() {
/// #         x.set(2.0 * x.get());
/// #     }
/// # }
/// # struct Twice;
/// # impl Operation for Twice {
/// #     fn describe(&self) -> Description {
/// #         Description { name: "twice", idea: "x = 2·x", sizes: &["n"], kernels: vec![doubles::FACTS],
/// #             small: vec![vec![100]], large: vec![], bits: Bits::Same }
/// #     }
/// #     fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
/// #         let [n] = sizes.get(["n"])?;
/// #         Ok(vec![Argument::in_out("x", &[n], Distribution::Uniform(-1.0, 1.0))])
/// #     }
/// #     fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
/// #         Ok(device.launch(doubles { x: views.disjoint("x")? })?)
/// #     }
/// #     fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
/// #         Ok(vec![values.of("x")?.iter().map(|x| Expected::exact(2.0 * x)).collect()])
/// #     }
/// #     fn operations(&self, _: &Sizes) -> f64 { 0.0 }
/// # }
/// let sizes = Twice.describe().parse_sizes("n=100")?;
/// let trace = operations::record_steps(&Twice, sizes, 1, 0, Default::default())?;
/// assert_eq!(trace.kernel, "doubles");
/// println!("{}", trace.to_text());
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// What is wrong with the case; [`Error::NotRecorded`]; [`Error::NoSuchBlock`].
pub fn record_steps(
    operation: &dyn Operation,
    sizes: Sizes,
    seed: u64,
    schedule: u64,
    options: StepOptions,
) -> Result<Trace, Error> {
    let (text, description) = (sizes.to_string(), operation.describe());
    let (kernel, number, wanted) = (options.kernel.clone(), options.launch, options.blocks.clone());
    let steps = Arc::new(Steps::new(options));
    let executor = executor(Checks::Full)?.schedule(schedule).with_steps(Arc::clone(&steps));
    let result = Trial::new(operation, sizes, seed)?.run(&Device::with_executor(executor));
    let Some(launch) = steps.launch() else {
        // A kernel that was not launched because of this is no other mistake.
        result?;
        let known: Vec<_> = description.kernels.iter().map(|kernel| kernel.name).collect();
        let misspelt = kernel.as_deref().filter(|kernel| !known.contains(kernel));
        let nearest = misspelt.map(|kernel| Nearest::of(kernel, &known));
        return Err(Error::NotRecorded { operation: description.name, kernel, launch: number, sizes: text, nearest });
    };
    let is_inside = |block: &Dim3| block.x < launch.grid.x && block.y < launch.grid.y && block.z < launch.grid.z;
    if let Some(block) = wanted.into_iter().find(|block| !is_inside(block)) {
        return Err(Error::NoSuchBlock { kernel: launch.kernel, block, grid: launch.grid });
    }
    let steps = launch.blocks.iter().flat_map(|block| &block.steps);
    let mut places = Places { lines: Vec::new(), root: steps.filter_map(root_of).next() };
    let blocks = launch.blocks.iter().map(|block| block_of(block, &mut places)).collect();
    let RecordedLaunch { kernel, grid, block, cluster, seed: schedule_seed, .. } = launch;
    Ok(Trace {
        format: FORMAT.to_owned(),
        version: VERSION,
        operation: description.name.to_owned(),
        sizes: text,
        seed,
        schedule_seed,
        kernel: kernel.to_owned(),
        grid: grid.into(),
        block: block.into(),
        cluster: cluster.into(),
        error: result.err().map(|error| error.to_string()),
        places: places.lines,
        blocks,
    })
}

/// Compares a trace with files that are kept of it: `FILE.json`, from which everything else is made, and `FILE.txt` with its tables. Files of the directory
/// `root` are named as from there, so that it does not matter where the repository is. With the variable `TILEWRIGHT_BLESS` set, the files
/// are written anew.
///
/// # Panics
/// If a file says something else, or cannot be read or written.
pub fn assert_trace_files(trace: &Trace, root: &Path, file: &Path) {
    let trace = trace.clone().relative_to(root);
    for (end, found) in [("json", trace.to_json()), ("txt", trace.to_tables())] {
        let path = file.with_extension(end);
        if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
            std::fs::write(&path, &found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        require_same(&path, &found);
    }
}

fn require_same(path: &Path, found: &str) {
    let kept = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differ = kept.lines().zip(found.lines()).position(|(kept, found)| kept != found);
    let line = differ.unwrap_or_else(|| kept.lines().count().min(found.lines().count())) + 1;
    assert!(kept == found, "{}:{line} is not what the kernel does: TILEWRIGHT_BLESS=1 writes it anew", path.display());
}

/// The directory by which the compiler was given the kernel's file, with a slash behind it: lines that the executor knows are relative to
/// that, and lines that debug information has are not.
fn root_of(step: &Step) -> Option<String> {
    let (line, caller) = (step.line.as_ref()?, step.caller.as_ref()?);
    let root = caller.file.strip_suffix(&*line.file).filter(|root| root.ends_with('/') && line.line == caller.line)?;
    Some(root.to_owned())
}

/// Lines of source, each once.
struct Places {
    lines: Vec<String>,
    /// See [`root_of`].
    root: Option<String>,
}

impl Places {
    fn number(&mut self, line: &Option<SourceLine>) -> Option<usize> {
        let text = line.as_ref()?.to_string();
        let text = self.root.as_ref().and_then(|root| text.strip_prefix(root)).unwrap_or(&text).to_owned();
        let known = self.lines.iter().position(|known| *known == text);
        Some(known.unwrap_or_else(|| {
            self.lines.push(text);
            self.lines.len() - 1
        }))
    }
}

fn block_of(recorded: &RecordedBlock, places: &mut Places) -> Block {
    let RecordedBlock { block, views, arrays, steps, more, fault, left } = recorded;
    let view = |(name, element_bytes, bytes): &(String, usize, usize)| View {
        name: name.clone(),
        element_bytes: *element_bytes,
        bytes: *bytes,
    };
    Block {
        block: (*block).into(),
        views: views.iter().map(view).collect(),
        arrays: arrays.iter().map(|array| Array { name: array.name.clone(), bytes: array.bytes }).collect(),
        steps: steps.iter().map(|step| step_of(step, places)).collect(),
        more: *more,
        fault: fault.as_ref().map(|fault| fault.to_string()),
        left: (left.iter())
            .map(|left| Left {
                warp: left.warp,
                threads: left.threads,
                place: places.number(&left.line),
                waits: left.place.clone(),
            })
            .collect(),
    }
}

fn step_of(step: &Step, places: &mut Places) -> kernel_trace::Step {
    let (warp, lanes, by) = match step.by {
        StepActor::Warp { warp, lanes } => (Some(warp), lanes, String::new()),
        StepActor::Tma => (None, u32::MAX, "TMA".to_owned()),
        StepActor::Block => (None, u32::MAX, "block".to_owned()),
        // One thread of it.
        StepActor::Cluster(block) => (None, 1, format!("block {block}")),
    };
    kernel_trace::Step {
        step: step.number,
        kind: Kind::of_name(step.kind.name()).expect("a test compares all names"),
        warp,
        lanes,
        by,
        place: places.number(&step.line),
        caller: places.number(&step.caller),
        times: step.times,
        memory: step.memory.map(|memory| match memory {
            StepMemory::View(view) => Memory::View(view),
            StepMemory::Global => Memory::Global,
            StepMemory::Shared(array) => Memory::Shared(array),
            StepMemory::Cluster(rank, array) => Memory::Cluster(rank, array),
        }),
        ranges: step.ranges.iter().map(|range| [range.start, range.end]).collect(),
        bytes: step.bytes,
        barrier: step.barrier.map(|barrier| match barrier {
            StepBarrier::Block => Barrier::Block,
            StepBarrier::Named(number) => Barrier::Named(number),
            StepBarrier::Mbarrier(byte) => Barrier::Mbarrier(byte),
            StepBarrier::Cluster => Barrier::Cluster,
            StepBarrier::Registers => Barrier::Registers,
        }),
        phase: step.phase,
        transfer: step.transfer,
        text: step.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::StepKind;

    use super::*;
    use crate::testing::Twice;

    #[test]
    fn every_kind_of_the_executor_is_one_of_the_file() {
        for kind in StepKind::ALL {
            let of_file = Kind::of_name(kind.name()).unwrap_or_else(|| panic!("the file has no `{}`", kind.name()));
            assert_eq!(of_file.name(), kind.name());
        }
    }

    fn record(options: StepOptions) -> Result<Trace, Error> {
        let operation = Twice { wrong: false };
        let sizes = operation.describe().parse_sizes("n=100").unwrap();
        record_steps(&operation, sizes, 1, 0, options)
    }

    #[test]
    fn a_case_is_recorded_and_read_again() {
        let blocks = vec![Dim3::new(3, 0, 0), Dim3::new(0, 0, 0)];
        let trace = record(StepOptions { blocks, ..StepOptions::default() }).unwrap();
        assert_eq!((trace.kernel.as_str(), trace.grid, trace.blocks.len()), ("doubles", [4, 1, 1], 2));
        let [first, last] = &trace.blocks[..] else { panic!() };
        assert_eq!((first.block, last.block), ([0; 3], [3, 0, 0]));
        // Of the last block four threads have an element.
        assert_eq!((first.steps[0].bytes, last.steps[0].bytes, last.steps[0].lanes), (128, 16, 0b1111));
        assert_eq!(last.steps[0].ranges, [[384, 400]]);
        assert!(trace.place(last.steps[0].place).contains("testing.rs:"), "{:?}", trace.places);
        assert_eq!(Trace::from_json(&trace.to_json()).unwrap(), trace);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let kernel = Some("double".to_owned());
        let message = record(StepOptions { kernel, ..StepOptions::default() }).unwrap_err().to_string();
        assert!(message.contains("`double` (did you mean `doubles`?)") && message.contains("n=100"), "{message}");
        let blocks = vec![Dim3::new(4, 0, 0)];
        let message = record(StepOptions { blocks, ..StepOptions::default() }).unwrap_err().to_string();
        assert!(message.contains("no block (4, 0, 0)"), "{message}");
        let message = record(StepOptions { launch: 1, ..StepOptions::default() }).unwrap_err().to_string();
        assert!(message.contains("no launch 1, counted from 0, of any kernel"), "{message}");
    }

    #[test]
    fn a_file_that_says_something_else_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.txt");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        require_same(&path, "one\ntwo\n");
        for (found, line) in [("one\nthree\n", 2), ("one\ntwo\nthree\n", 3), ("one\n", 2)] {
            let panic = std::panic::catch_unwind(|| require_same(&path, found)).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains(&format!("trace.txt:{line} is not what")), "{message}");
        }
        assert!(std::panic::catch_unwind(|| require_same(&directory.path().join("none"), "")).is_err());
    }
}
