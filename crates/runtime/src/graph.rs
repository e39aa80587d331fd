//! Graphs: launches, copies and fills that are put together once, and started by one call any number of times.
//!
//! ```text
//!  GraphBuilder ── launch, copy_on_device, fill_bytes ──▶ finish ──▶ Graph ── device.launch_graph(&graph), again and again
//!       step 0   fill a ───┐
//!       step 1   launch, reads x, writes b ──┐        a step comes after those before it that it conflicts with, and
//!       step 2   launch, reads a and b, ◀────┘        beside the others
//! ```
//!
//! A graph holds addresses, and borrows nothing: between its launches the program uses the buffers as it likes. So each launch checks that
//! all of them are still there, the same allocations, by their number; and it is one operation in the order of the streams
//! ([`order`](crate::order)) that uses all that its steps use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use cuda_driver::{ExecutableGraph, GraphLaunch};
use cuda_std::executor::Executor;
use cuda_std::{AnyGrid, Dim3, Element, ErasedKernel, Grid, Kernel, ViewAccess};

use crate::Error;
use crate::allocations::{Live, Place};
use crate::buffer::{Buffer, Memory};
use crate::device::{Backend, Device};
use crate::lane::Lane;
use crate::order::{Operation, Use};
use crate::short_list::ShortList;

/// A graph that is being put together: see [`Device::new_graph`].
#[derive(Debug)]
pub struct GraphBuilder {
    /// On its own stream.
    device: Device,
    steps: Vec<Step>,
    /// `None` on the CPU executor.
    graph: Option<cuda_driver::Graph>,
    /// Why a step could not be added.
    failure: Option<String>,
}

/// Launches, copies and fills that are started together: see [`Device::launch_graph`].
#[derive(Debug)]
pub struct Graph {
    device: Device,
    steps: Vec<Step>,
    /// What the steps use.
    uses: Vec<Use>,
    graph: Option<ExecutableGraph>,
    /// The last launch, which comes after those before it.
    launched: Mutex<Option<Arc<Operation>>>,
}

/// What a step does on the CPU executor, with views of some lifetime.
type RunWithin<'a> = Box<dyn Fn(&Executor) -> Result<(), Error> + Send + Sync + 'a>;
type Run = RunWithin<'static>;

struct Step {
    what: What,
    uses: Vec<StepUse>,
    /// The steps that it comes after, directly or by others: a bit for each.
    behind: Vec<u64>,
    /// `None` on a GPU.
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Launch(&'static str),
    Copy,
    Fill,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(kernel) => write!(f, "kernel `{kernel}`"),
            Self::Copy => f.write_str("a copy"),
            Self::Fill => f.write_str("a fill"),
        }
    }
}

/// Memory that a step uses.
struct StepUse {
    name: String,
    memory: Use,
    place: Place,
}

impl Step {
    fn is_behind(&self, step: usize) -> bool {
        self.behind.get(step / 64).is_some_and(|bits| bits >> (step % 64) & 1 == 1)
    }

    /// Puts the step behind another, and so behind all that that is behind.
    fn put_behind(&mut self, step: usize, other: &Self) {
        self.behind.resize(self.behind.len().max(step / 64 + 1), 0);
        self.behind[step / 64] |= 1 << (step % 64);
        self.behind.iter_mut().zip(&other.behind).for_each(|(bits, others)| *bits |= others);
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)
    }
}

impl Device {
    /// An empty graph, to add steps to.
    ///
    /// ```
    /// # use tilewright_runtime as runtime;
    /// # use runtime::Device;
    /// # use cuda_std::executor::Checks;
    /// use cuda_std::prelude::*;
    ///
    /// /// `y[i] = x[i] + 1`
    /// #[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32, requires(x.len() == y.len()))]
    /// fn next(x: GlobalSlice<'_, u32>, y: DisjointSlice<'_, u32>) {
    ///     if let Some(y) = y.own()
    ///         && let Some(x) = x.get(y.index())
    ///     {
    ///         y.set(x + 1);
    ///     }
    /// }
    ///
    /// let device = Device::cpu(Checks::Full);
    /// let (mut a, mut b) = (device.upload(&[0u32; 100])?, device.allocate(100)?);
    /// let mut builder = device.new_graph()?;
    /// builder.launch(next { x: a.view(), y: b.view_disjoint() })?;
    /// builder.launch(next { x: b.view(), y: a.view_disjoint() })?; // After the first, because it reads what that writes.
    /// let graph = builder.finish()?;
    /// for _ in 0..10 {
    ///     device.launch_graph(&graph)?;
    /// }
    /// let mut result = [0; 100];
    /// a.copy_to(&mut result)?;
    /// assert_eq!(result, [20; 100]);
    /// # Ok::<(), runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed.
    pub fn new_graph(&self) -> Result<GraphBuilder, Error> {
        let graph = match &self.inner.backend {
            Backend::Cuda(cuda) => {
                // From now on what uses the buffers is recorded.
                cuda.order.track();
                Some(cuda.gpu.new_graph()?)
            }
            Backend::Cpu(_) => None,
        };
        Ok(GraphBuilder { device: self.on_own_stream(), steps: Vec::new(), graph, failure: None })
    }

    /// Starts a graph on this stream, behind its earlier launches and everything else that its buffers have to wait for. The host does
    /// not wait.
    ///
    /// # Errors
    /// [`Error::DeadGraphBuffer`] if a buffer that it uses has been dropped, or shortened, and [`Error::ForeignGraph`] for one of another
    /// device: then nothing runs. [`Error::Driver`] if an earlier kernel has failed; [`Error::Executor`] if the CPU executor caught a kernel
    /// doing something wrong.
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), Error> {
        if !self.is_same(&graph.device) {
            return Err(Error::ForeignGraph { graph: graph.device.name(), device: self.name() });
        }
        match (&self.inner.backend, &graph.graph) {
            (Backend::Cuda(cuda), Some(executable)) => {
                let is_lent = matches!(self.lane, Lane::Lent(_));
                let _launching = cuda.prints.launching(self.gpu(cuda), is_lent)?;
                // On another library's stream, whoever made the handle sees to the order.
                let uses = if is_lent { Vec::new() } else { graph.uses.clone() };
                let operation = self.in_recorded_order(
                    cuda,
                    uses,
                    None,
                    |live| graph.check_live(live),
                    // SAFETY: the graph is of this GPU. Its buffers are there, and what else uses them comes before or after; they wait for this
                    // when they are dropped. Of each step was checked, when it was added, what a launch of it alone would have been.
                    |gpu| unsafe { Ok(executable.launch(gpu)?) },
                )?;
                *graph.launched.lock().unwrap_or_else(PoisonError::into_inner) = Some(operation);
                Ok(())
            }
            (Backend::Cpu(executor), _) => {
                let _claim = self.inner.claims.claim(format_args!("a graph"), graph.uses.clone())?;
                // Whoever drops a buffer claims it before it is taken from the list.
                graph.check_live(&self.inner.allocations.lock())?;
                let executor = self.inner.printing(executor);
                graph.steps.iter().filter_map(|step| step.run.as_ref()).try_for_each(|run| run(&executor))
            }
            (Backend::Cuda(_), None) => unreachable!("a graph of a GPU's device has one of the driver's"),
        }
    }
}

impl GraphBuilder {
    /// Adds a launch of a kernel on its own grid.
    ///
    /// # Errors
    /// Those of [`Device::launch`], but for what shows only when the kernel runs.
    pub fn launch<K: Grid>(&mut self, kernel: K) -> Result<(), Error> {
        self.device.check(&kernel)?;
        let grid = kernel.grid();
        // SAFETY: the arguments are checked, and the grid is the kernel's own.
        unsafe { self.add_launch(grid, &kernel, run_launch(&self.device, grid, kernel)) }
    }

    /// Adds a launch of a kernel that is right on every grid.
    ///
    /// # Errors
    /// Those of [`GraphBuilder::launch`].
    pub fn launch_any_grid<K: AnyGrid>(&mut self, grid: impl Into<Dim3>, kernel: K) -> Result<(), Error> {
        self.device.check(&kernel)?;
        let grid = grid.into();
        // SAFETY: the arguments are checked; the kernel says that it does not matter which grid it runs on.
        unsafe { self.add_launch(grid, &kernel, run_launch(&self.device, grid, kernel)) }
    }

    /// Adds a copy from a buffer to another.
    ///
    /// # Errors
    /// Those of [`Device::copy_on_device`].
    pub fn copy_on_device<T: Element + Pod>(
        &mut self,
        source: &Buffer<T>,
        target: &mut Buffer<T>,
    ) -> Result<(), Error> {
        let owners = [source.device(), target.device()];
        self.device.check_copy("a copy of a graph", owners, [source.len(), target.len()])?;
        let uses = [("the source", source.uses(false)), ("the target", target.uses(true))];
        let run: Option<Run> = match (&source.memory, &target.memory) {
            (Memory::Cpu(from), Memory::Cpu(to)) => {
                // SAFETY: elements of the buffers, of which a launch of the graph checks that they are there, and which it claims.
                let (from, to) = unsafe { (from.alias(), to.alias()) };
                Some(Box::new(move |_| {
                    // SAFETY: as above.
                    unsafe { to.copy(&from) };
                    Ok(())
                }))
            }
            _ => None,
        };
        self.add(What::Copy, self.step_uses(&uses), run, |graph, after| {
            match (&source.memory, &target.memory) {
                // SAFETY: both are of this GPU; for each launch of the graph they are there, and in order: `launch_graph`.
                (Memory::Cuda(from), Memory::Cuda(to)) => Ok(unsafe { graph.add_copy(from, to, after) }?),
                _ => unreachable!("the buffers of a GPU's device are of its memory"),
            }
        })
    }

    /// Adds a fill, which sets every byte of a buffer.
    ///
    /// # Errors
    /// Those of [`Device::fill_bytes`].
    pub fn fill_bytes<T: Element + Pod>(&mut self, target: &mut Buffer<T>, value: u8) -> Result<(), Error> {
        self.device.check_copy("a fill of a graph", [target.device(); 2], [0; 2])?;
        let uses = [("the target", target.uses(true))];
        let run: Option<Run> = match &target.memory {
            Memory::Cpu(to) => {
                // SAFETY: as for a copy.
                let to = unsafe { to.alias() };
                Some(Box::new(move |_| {
                    // SAFETY: as for a copy.
                    unsafe { to.fill_bytes(value) };
                    Ok(())
                }))
            }
            Memory::Cuda(_) => None,
        };
        self.add(What::Fill, self.step_uses(&uses), run, |graph, after| match &target.memory {
            // SAFETY: as for a copy.
            Memory::Cuda(to) => Ok(unsafe { graph.add_fill(to, value, after) }?),
            Memory::Cpu(_) => unreachable!("the buffers of a GPU's device are of its memory"),
        })
    }

    /// The number of steps so far. The next one has this number.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no steps yet.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Makes the graph ready for launches.
    ///
    /// # Errors
    /// [`Error::IncompleteGraph`] if the driver has refused a step; [`Error::Driver`] if it has no room for the graph, or an earlier kernel
    /// has failed.
    pub fn finish(self) -> Result<Graph, Error> {
        let Self { device, steps, graph, failure } = self;
        if let Some(reason) = failure {
            return Err(Error::IncompleteGraph { reason });
        }
        let graph = graph.map(cuda_driver::Graph::instantiate).transpose()?;
        let uses = all_uses(&steps);
        Ok(Graph { device, steps, uses, graph, launched: Mutex::default() })
    }

    /// # Safety
    /// As for [`Device::launch_on`], for each launch of the graph; [`Device::check`] has passed the arguments, and `run` is
    /// [`run_launch`]'s.
    unsafe fn add_launch(&mut self, grid: Dim3, kernel: &dyn ErasedKernel, run: Option<Run>) -> Result<(), Error> {
        let device = self.device.clone();
        let uses = launch_uses(&device, kernel);
        self.add(What::Launch(kernel.declared().name), uses, run, |graph, after| {
            // SAFETY: for each launch of the graph the buffers are there, and in order: `launch_graph`. The rest is the caller's promise.
            with_launch(&device, grid, kernel, |launch| Ok(unsafe { graph.add_launch(launch, after) }?))
        })
    }

    /// Adds a step that comes after those that it conflicts with.
    fn add(
        &mut self,
        what: What,
        uses: Vec<StepUse>,
        run: Option<Run>,
        add: impl FnOnce(&mut cuda_driver::Graph, &[usize]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut step = Step { what, uses, behind: Vec::new(), run };
        let mut after = Vec::new();
        for (number, before) in self.steps.iter().enumerate().rev() {
            let conflicts = |own: &StepUse| before.uses.iter().any(|other| own.memory.conflicts_with(&other.memory));
            if !step.is_behind(number) && step.uses.iter().any(conflicts) {
                step.put_behind(number, before);
                after.push(number);
            }
        }
        if let Some(graph) = &mut self.graph {
            add(graph, &after).inspect_err(|error| {
                self.failure.get_or_insert_with(|| format!("step {} ({what}): {error}", self.steps.len()));
            })?;
        }
        self.steps.push(step);
        Ok(())
    }

    fn step_uses(&self, uses: &[(&str, Vec<Use>)]) -> Vec<StepUse> {
        let live = self.device.inner.allocations.lock();
        let all = uses.iter().flat_map(|(name, uses)| uses.iter().map(move |memory| (*name, memory)));
        all.map(|(name, memory)| step_use(&live, name.to_owned(), memory.clone())).collect()
    }
}

impl Graph {
    /// The number of its steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Replaces the arguments of a launch, from the next launch of the graph on: `step` counts the builder's steps from 0. That costs far
    /// less than another graph.
    ///
    /// # Errors
    /// [`Error::GraphStep`] if the step is no launch of this kernel, or if it would have to come after or before others than it does; those
    /// of [`GraphBuilder::launch`]. Then the graph is as it was.
    pub fn set_launch<K: Grid>(&mut self, step: usize, kernel: K) -> Result<(), Error> {
        self.device.check(&kernel)?;
        let grid = kernel.grid();
        // SAFETY: the arguments are checked, and the grid is the kernel's own.
        unsafe { self.set(step, grid, &kernel, run_launch(&self.device, grid, kernel)) }
    }

    /// The same for a kernel that is right on every grid, with its grid.
    ///
    /// # Errors
    /// Those of [`Graph::set_launch`].
    pub fn set_launch_any_grid<K: AnyGrid>(
        &mut self,
        step: usize,
        grid: impl Into<Dim3>,
        kernel: K,
    ) -> Result<(), Error> {
        self.device.check(&kernel)?;
        let grid = grid.into();
        // SAFETY: the arguments are checked; the kernel says that it does not matter which grid it runs on.
        unsafe { self.set(step, grid, &kernel, run_launch(&self.device, grid, kernel)) }
    }

    /// # Safety
    /// As for [`GraphBuilder::add_launch`].
    unsafe fn set(
        &mut self,
        step: usize,
        grid: Dim3,
        kernel: &dyn ErasedKernel,
        run: Option<Run>,
    ) -> Result<(), Error> {
        let declared = kernel.declared();
        let refused = |reason: String| Err(Error::GraphStep { step, kernel: declared.name, reason });
        match self.steps.get(step).map(|step| step.what) {
            None => return refused(format!("it has {} steps, which count from 0", self.steps.len())),
            Some(What::Launch(name)) if name == declared.name => {}
            Some(what) => return refused(format!("it is {what}")),
        }
        let uses = launch_uses(&self.device, kernel);
        let is_live = |other: &&StepUse| self.device.inner.allocations.lock().is_live(&other.place);
        for (number, other) in self.steps.iter().enumerate() {
            // What is gone has to be replaced before the graph is launched, and is looked at then.
            let mut live = other.uses.iter().filter(is_live);
            let conflicts = live.any(|other| uses.iter().any(|own| own.memory.conflicts_with(&other.memory)));
            let is_in_order = if number < step { self.steps[step].is_behind(number) } else { other.is_behind(step) };
            if number != step && conflicts && !is_in_order {
                return refused(format!("it would use memory of step {number}, which is in no order with it"));
            }
        }
        if let Some(graph) = &mut self.graph {
            with_launch(&self.device, grid, kernel, |launch| {
                // SAFETY: as where it was added.
                Ok(unsafe { graph.set_launch(step, launch) }?)
            })?;
        }
        let changed = &mut self.steps[step];
        changed.uses = uses;
        changed.run = run;
        self.uses = all_uses(&self.steps);
        Ok(())
    }

    fn check_live(&self, live: &Live) -> Result<(), Error> {
        for (number, step) in self.steps.iter().enumerate() {
            if let Some(dead) = step.uses.iter().find(|use_| !live.is_live(&use_.place)) {
                return Err(Error::DeadGraphBuffer {
                    step: format!("step {number} ({})", step.what),
                    view: dead.name.clone(),
                    address: dead.memory.range.start,
                    bytes: dead.memory.range.len(),
                });
            }
        }
        Ok(())
    }
}

impl Drop for Graph {
    /// Waits for its last launch. Where that fails, the driver keeps the graph: nobody knows whether it still runs.
    fn drop(&mut self) {
        let launched = self.launched.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if launched.is_some_and(|operation| operation.synchronize().is_err())
            && let Some(graph) = self.graph.take()
        {
            graph.leave();
        }
    }
}

/// What all steps use, each memory once for the same access.
fn all_uses(steps: &[Step]) -> Vec<Use> {
    let mut all: Vec<Use> = Vec::new();
    for StepUse { memory, .. } in steps.iter().flat_map(|step| &step.uses) {
        match all.iter_mut().find(|use_| use_.range == memory.range) {
            Some(same) => same.is_written |= memory.is_written,
            None => all.push(memory.clone()),
        }
    }
    all
}

/// The memory that a launch uses, all of it in live buffers: its views are checked, and borrow them.
fn launch_uses(device: &Device, kernel: &dyn ErasedKernel) -> Vec<StepUse> {
    let live = device.inner.allocations.lock();
    let mut uses = Vec::new();
    kernel.visit_views(&mut |view| {
        if view.bytes > 0 {
            let memory = Use::new(view.address, view.bytes, view.access != ViewAccess::Read);
            uses.push(step_use(&live, view.name.to_string(), memory));
        }
    });
    uses
}

fn step_use(live: &Live, name: String, memory: Use) -> StepUse {
    let place = live.place(memory.range.clone()).expect("it has been checked that this is in a live buffer");
    StepUse { name, memory, place }
}

/// Makes a launch for the driver.
fn with_launch(
    device: &Device,
    grid: Dim3,
    kernel: &dyn ErasedKernel,
    add: impl FnOnce(GraphLaunch<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Backend::Cuda(cuda) = &device.inner.backend else {
        unreachable!("only a GPU's device has graphs of the driver's")
    };
    let function = cuda.loader(kernel.declared())?.function(kernel.declared())?;
    let facts = kernel.facts();
    let mut params = ShortList::<_, 16>::new(std::ptr::null_mut());
    kernel.visit_params(&mut |address| params.push(address.cast_mut()));
    add(GraphLaunch {
        function: &function,
        grid: grid.into(),
        block: facts.block,
        dynamic_shared_bytes: facts.dynamic_shared_bytes,
        params: params.as_mut_slice(),
    })
}

/// What a launch is on the CPU executor, if that is the device.
///
/// # Safety
/// As for [`Device::launch_on`], whenever it runs; and when it runs, the buffers of the views are there, and nobody else uses them
/// otherwise than in order, as [`Device::launch_graph`] sees to.
unsafe fn run_launch<K: Kernel>(device: &Device, grid: Dim3, kernel: K) -> Option<Run> {
    if !device.is_cpu() {
        return None;
    }
    // SAFETY: the caller's promise.
    let run: RunWithin<'_> = Box::new(move |executor| unsafe { Ok(executor.launch(kernel, grid)?) });
    // SAFETY: the kernel holds nothing but numbers and views, plain data whose drop does nothing. Beyond the views' lifetime it is used only
    // when it runs, and then their memory is there: the caller's promise.
    Some(unsafe { std::mem::transmute::<RunWithin<'_>, Run>(run) })
}
