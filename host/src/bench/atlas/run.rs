//! One shape after the other: a plan, cuBLAS's ways, errors, times in turns, the time of a call.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::report::BaselineTimes;
use super::super::roofline::{Roofline, Stall, Work};
use super::super::suite::math_for;
use super::super::timing::{Contestant, Race, Times};
use super::arena::{Arena, Sets, Views};
use super::args::AtlasOptions;
use super::errors::Sample;
use super::report::{Measured, Outcome};
use super::shape::Shape;
use crate::Error;
use crate::baseline::{BaselineError, CuBlas, Prepared, Routine};
use tilewright::device::Device;
use tilewright::plan::{Description, GemmPlan, Options, Reason, Workspace};

/// What measuring a shape may take: the contestants in turns, without their warm-up.
const BUDGET: Duration = Duration::from_millis(120);

/// The fewest runs of each contestant.
const FEWEST_RUNS: usize = 5;

/// The fewest and the most calls whose time is taken, and what their kernels should take together.
const CALLS: (usize, usize) = (5, 50);
const CALLS_MS: f64 = 20.0;

/// What all shapes are measured with.
pub(super) struct Bench<'a> {
    device: &'a Device,
    blas: Option<&'a CuBlas>,
    roofline: &'a Roofline,
    pub(super) options: &'a AtlasOptions,
    pub(super) plan_options: Options,
    /// None on the CPU executor, in tests.
    stall: Option<RefCell<Stall>>,
    arena: RefCell<Arena>,
    workspace: RefCell<Workspace>,
}

/// A shape with what has to be made ready before it is measured.
pub(super) struct Ready<'a> {
    pub(super) shape: &'a Shape,
    pub(super) sets: Sets,
    /// Counts the shapes.
    pub(super) number: usize,
}

/// Queues a product of the operands that it is given.
pub(super) type Launch<'a> = Box<dyn Fn(Views<'_>) -> Result<(), Error> + 'a>;

/// One of cuBLAS's ways.
struct Theirs<'blas> {
    call: Prepared<'blas>,
    /// Whether it computes Cᵀ = Bᵀ·Aᵀ, the same numbers in the same places: a row is a column then.
    transposed: bool,
}

impl Theirs<'_> {
    fn launch(&self, (a, b, c): Views<'_>, beta: f32) -> Result<(), Error> {
        let (a, b, c) = exchanged((a, b, c), self.transposed);
        // SAFETY: the arena's three buffers are of the device that cuBLAS was opened on, borrowed for as long as the views live;
        // their end waits for what is queued.
        unsafe { self.call.run(1.0, a, b, beta, c) }
    }
}

/// The operands of the transposed product, or these.
pub(super) fn exchanged((a, b, c): Views<'_>, transposed: bool) -> Views<'_> {
    if transposed { (b.transposed(), a.transposed(), c.transposed()) } else { (a, b, c) }
}

impl<'a> Bench<'a> {
    /// With memory for shapes that need so many elements of A, B and C.
    ///
    /// # Errors
    /// Those of [`Arena::new`].
    pub(super) fn new(
        (device, blas): (&'a Device, Option<&'a CuBlas>),
        roofline: &'a Roofline,
        options: &'a AtlasOptions,
        elements: [u64; 3],
    ) -> Result<Self, Error> {
        let stall = (!device.is_cpu()).then(|| Stall::new(device, &roofline.fma)).transpose()?.map(RefCell::new);
        let plan_options = Options {
            precision: Some(options.precision),
            tables: options.tables.clone(),
            constants: options.constants.clone(),
            ..Options::default()
        };
        let mut arena = Arena::new(device, elements, options.seed)?;
        if options.beta != 0.0 {
            arena.clear()?;
        }
        let workspace = RefCell::new(Workspace::none());
        let arena = RefCell::new(arena);
        Ok(Self { device, blas, roofline, options, plan_options, stall, arena, workspace })
    }

    /// The device.
    pub(super) fn device(&self) -> &'a Device {
        self.device
    }

    /// Measures a shape, the one of this number. What keeps it from that is in the outcome.
    ///
    /// # Errors
    /// What a kernel does wrong: it ends the GPU's context, and with it the run.
    pub(super) fn measure(&self, shape: &Shape, number: usize) -> Result<Outcome, Error> {
        let l2_bytes = self.device.gpu_properties().map_or(0, |properties| properties.l2_bytes);
        let ready = Ready { shape, sets: Sets::of(shape, l2_bytes.into()), number };
        match self.measured(&ready) {
            Ok(measured) => Ok(Outcome::Measured(Box::new(measured))),
            Err(error) if error.is_kernel_fault() => Err(error),
            Err(error) => Ok(Outcome::NotRun { reason: one_line(&error) }),
        }
    }

    fn measured(&self, ready: &Ready<'_>) -> Result<Measured, Error> {
        let Ready { shape, sets, .. } = *ready;
        let plan = {
            let mut arena = self.arena.borrow_mut();
            let (a, b, c) = arena.views(shape, sets, 0)?;
            self.device.plan(&Description::of_views(1.0, &a, &b, self.options.beta, &c)?, &self.plan_options)?
        };
        self.reserve(&plan)?;

        let sample = Sample::new(shape, &self.arena.borrow(), self.options.seed);
        let errors_of = |launch: &dyn Fn(Views<'_>) -> Result<(), Error>| {
            let mut arena = self.arena.borrow_mut();
            // NaN, so that an element that nothing writes does not look like a result; or nothing to add.
            arena.fill(sample.places(), if self.options.beta == 0.0 { 0xFF } else { 0 })?;
            launch(arena.views(shape, sets, 0)?)?;
            Ok::<_, Error>(sample.errors(&arena.results(sample.places())?))
        };
        let error = errors_of(&|views| self.run_plan(&plan, views))?;
        let (mut ways, mut no_baseline) = self.ways(ready)?;
        let mut cublas_errors = Vec::new();
        let mut failure = None;
        ways.retain(|way| match errors_of(&|views| way.launch(views, self.options.beta)) {
            Ok(errors) => {
                cublas_errors.push((way.call.routine().name(), errors));
                true
            }
            Err(Error::Baseline(error)) => {
                no_baseline = Some(error.to_string());
                false
            }
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }

        let times = {
            let mut launches: Vec<Launch<'_>> = vec![Box::new(|views| self.run_plan(&plan, views))];
            launches.extend(
                ways.iter().map(|way| -> Launch<'_> { Box::new(|views| way.launch(views, self.options.beta)) }),
            );
            self.race(ready, BUDGET, FEWEST_RUNS, &launches)?
        };
        let baseline = |(way, &times): (&Theirs<'_>, &Times)| BaselineTimes {
            routine: way.call.routine().name().to_owned(),
            times,
        };
        let mut baselines: Vec<BaselineTimes> = ways.iter().zip(&times[1..]).map(baseline).collect();
        baselines.sort_by(|one, other| one.times.median_ms.total_cmp(&other.times.median_ms));
        let fastest = baselines.first().map(|baseline| baseline.routine.as_str());
        let cublas_error =
            cublas_errors.into_iter().find(|(routine, _)| Some(*routine) == fastest).map(|(_, errors)| errors);

        let [read, written] = shape.traffic();
        let read = if self.options.beta == 0.0 { read } else { read + written };
        let explanation = plan.explanation();
        Ok(Measured {
            kernel: plan.kernel().name.to_owned(),
            kernels: plan.kernels().iter().map(|kernel| kernel.name.to_owned()).collect(),
            splits: plan.splits(),
            chosen_by: match explanation.reason {
                Reason::Table { .. } => "table".to_owned(),
                Reason::Model => "model".to_owned(),
                Reason::Name | Reason::Ladder => "rule".to_owned(),
            },
            estimated_ms: explanation.estimated_ms,
            workspace_bytes: plan.workspace_bytes() as u64,
            operand_sets: sets.pool,
            times: times[0],
            call_us: self.call_us(ready, times[0].median_ms)?,
            least: self.roofline.least(Work {
                read,
                written,
                operations: shape.operations(),
                scheme: plan.kernel().scheme,
            }),
            no_baseline: no_baseline.filter(|_| baselines.is_empty()),
            baselines,
            compared: sample.len(),
            error,
            cublas_error,
            regret: if self.options.regret { self.regret(ready, &plan)? } else { None },
        })
    }

    /// Has a workspace that is enough for a plan.
    ///
    /// # Errors
    /// Those of [`GemmPlan::workspace`].
    pub(super) fn reserve(&self, plan: &GemmPlan) -> Result<(), Error> {
        let mut workspace = self.workspace.borrow_mut();
        if workspace.bytes() < plan.workspace_bytes() {
            // The old one first: there may be no room for both.
            *workspace = Workspace::none();
            *workspace = plan.workspace(self.device)?;
        }
        Ok(())
    }

    /// Queues a plan, for which the workspace is enough.
    pub(super) fn run_plan(&self, plan: &GemmPlan, (a, b, c): Views<'_>) -> Result<(), Error> {
        Ok(plan.run_views(self.device, 1.0, a, b, self.options.beta, c, &mut self.workspace.borrow_mut())?)
    }

    /// The times of some in turns, each of which queues its work on the set that it is given.
    pub(super) fn race(
        &self,
        ready: &Ready<'_>,
        budget: Duration,
        fewest: usize,
        launches: &[Launch<'_>],
    ) -> Result<Vec<Times>, Error> {
        let Ready { shape, sets, .. } = *ready;
        let contestant = |(number, launch)| -> Contestant<'_> {
            let launch: &Launch<'_> = launch;
            Box::new(move |told| {
                let set = sets.set_of(number, launches.len(), told);
                launch(self.arena.borrow_mut().views(shape, sets, set)?)
            })
        };
        let mut contestants: Vec<_> = launches.iter().enumerate().map(contestant).collect();
        let busy = |ms| self.stall.as_ref().map_or(Ok(()), |stall| stall.borrow_mut().run(ms));
        let mut race = Race { device: self.device, runs: self.options.runs, sets: sets.pool, busy: Box::new(busy) };
        race.run_within(budget, fewest, &mut contestants)
    }

    /// The median time of a call on the host, in microseconds: to describe the product, to find its plan, and to queue that.
    fn call_us(&self, ready: &Ready<'_>, kernel_ms: f64) -> Result<f64, Error> {
        let (fewest, most) = CALLS;
        let calls = ((CALLS_MS / kernel_ms.max(1e-3)) as usize).clamp(fewest, most);
        self.device.synchronize()?;
        let (mut arena, mut workspace) = (self.arena.borrow_mut(), self.workspace.borrow_mut());
        let mut times = Vec::with_capacity(calls);
        for call in 0..calls {
            let (a, b, c) = arena.views(ready.shape, ready.sets, call % ready.sets.pool)?;
            let start = Instant::now();
            let product = Description::of_views(1.0, &a, &b, self.options.beta, &c)?;
            let plan: Arc<GemmPlan> = self.device.plan(&product, &self.plan_options)?;
            plan.run_views(self.device, 1.0, a, b, self.options.beta, c, &mut workspace)?;
            times.push(start.elapsed());
        }
        self.device.synchronize()?;
        Ok(Times::of(&times, 1).map_or(0.0, |times| 1e3 * times.median_ms))
    }

    /// cuBLAS's ways for a shape, and why the last of those is missing that it does not have.
    fn ways(&self, ready: &Ready<'_>) -> Result<(Vec<Theirs<'a>>, Option<String>), Error> {
        let (mut ways, mut reason) = (Vec::new(), None);
        let Some(blas) = self.blas else { return Ok((ways, reason)) };
        let mut arena = self.arena.borrow_mut();
        let shape = ready.shape;
        let mut routines = vec![(Routine::Gemm, false), (Routine::Lt, false)];
        if shape.batch == 1 && (shape.m == 1 || shape.n == 1) {
            routines.push((Routine::Gemv, shape.n != 1));
        }
        for (routine, transposed) in routines {
            let (a, b, c) = exchanged(arena.views(shape, ready.sets, 0)?, transposed);
            match blas.prepare(routine, math_for(self.options.precision), a, b, c) {
                Ok(call) => ways.push(Theirs { call, transposed }),
                Err(Error::Baseline(error)) => reason = Some(BaselineError::to_string(&error)),
                Err(error) => return Err(error),
            }
        }
        Ok((ways, reason))
    }
}

/// An error on one line.
pub(super) fn one_line(error: &Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
