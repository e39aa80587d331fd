//! Times of the products of the [design](super::design), one after the other, until time is up.

use std::time::{Duration, Instant};

use super::design::{Trial, kernels_in_order, trials};
use super::probes::{Probed, probe};
use crate::Error;
use crate::bench::atlas::{Arena, Sets, Shape, elements_for};
use crate::bench::roofline::{Stall, fma};
use crate::bench::timing::{Contestant, Race};
use crate::progress::Progress;
use tilewright::kernels::KernelInfo;
use tilewright::plan::fit::Observation;
use tilewright::plan::{DeviceFacts, GemmPlan, Workspace};
use tilewright::{Bytes, Device};

/// What measuring a product may take, without loading its kernels.
const BUDGET: Duration = Duration::from_millis(6);

/// The fewest and the most runs of a product.
const RUNS: (usize, usize) = (3, 15);

/// The part of the free memory that operands may take: workspaces need some, too.
const SHARE_OF_MEMORY: f64 = 0.5;

/// What was measured.
pub(super) struct Measured {
    /// What probes say.
    pub(super) probed: Probed,
    /// The times that constants are fitted to.
    pub(super) fitted: Vec<Observation>,
    /// The times that they are tried on.
    pub(super) held_out: Vec<Observation>,
    /// Kernels that can run, and that time was not left for.
    pub(super) not_reached: Vec<&'static str>,
    /// Products that could not be measured, and why.
    pub(super) failed: Vec<String>,
    /// What it took to load kernels: the driver compiles what it has not compiled before.
    pub(super) loading: Duration,
}

/// Measures a GPU until `deadline`.
///
/// # Errors
/// [`DeviceError::Driver`](runtime::Error::Driver) where there is too little memory, or the GPU fails; what a kernel does wrong.
pub(super) fn measure(device: &Device, seed: u64, deadline: Instant) -> Result<Measured, Error> {
    let facts = DeviceFacts::of(device);
    let plan = |product: &_, options: &_| GemmPlan::new(device, product, options);
    let mut stall = Stall::new(device, &fma(device)?)?;
    let probed = probe(device, Box::new(|ms| stall.run(ms)))?;

    let l2_bytes = l2_bytes(device);
    let kernels: Vec<(&'static KernelInfo, Vec<Trial>)> = (kernels_in_order().into_iter())
        .map(|kernel| Ok((kernel, trials(&facts, &plan, kernel, seed)?)))
        .collect::<Result<_, Error>>()?;
    let free = device.free_memory()?.unwrap_or(Bytes(0)).0 as f64;
    let (elements, room) = memory_for(kernels.iter().flat_map(|(_, trials)| trials), l2_bytes, SHARE_OF_MEMORY * free);
    let mut bench = Bench::with(device, elements, seed, stall)?;

    let mut measured = Measured {
        probed,
        fitted: Vec::new(),
        held_out: Vec::new(),
        not_reached: Vec::new(),
        failed: Vec::new(),
        loading: Duration::ZERO,
    };
    let progress = Progress::new("kernels", kernels.len());
    for (kernel, trials) in &kernels {
        if Instant::now() >= deadline && !trials.is_empty() {
            measured.not_reached.push(kernel.name);
        }
        for trial in trials.iter().filter(|trial| trial.shape.bytes() <= room) {
            if Instant::now() >= deadline {
                break;
            }
            match bench.time(&trial.shape, &trial.plan) {
                Ok(ms) => {
                    let times = if trial.held_out { &mut measured.held_out } else { &mut measured.fitted };
                    times.push(Observation { features: trial.features.clone(), ms });
                }
                Err(error) if error.is_kernel_fault() => return Err(error),
                Err(error) => measured.failed.push(format!("{} on {}: {error}", kernel.name, trial.shape.id())),
            }
        }
        progress.step();
    }
    measured.loading = bench.loading;
    Ok(measured)
}

/// The elements of A, B and C that all products need, and the most bytes that one may have: where there are too few, the largest go
/// without.
fn memory_for<'a>(trials: impl Iterator<Item = &'a Trial> + Clone, l2_bytes: u64, usable: f64) -> ([u64; 3], u64) {
    let mut room = u64::MAX;
    loop {
        let fitting = || trials.clone().map(|trial| &trial.shape).filter(|shape| shape.bytes() <= room);
        let elements = elements_for(fitting(), l2_bytes);
        match fitting().map(|shape| shape.bytes()).max() {
            Some(largest) if 4.0 * elements.iter().sum::<u64>() as f64 > usable => room = largest - 1,
            _ => return (elements, room),
        }
    }
}

/// The bytes of the second-level cache.
fn l2_bytes(device: &Device) -> u64 {
    device.gpu_properties().map_or(0, |properties| u64::from(properties.l2_bytes))
}

/// What products are measured with.
pub(super) struct Bench<'a> {
    device: &'a Device,
    arena: Arena,
    workspace: Workspace,
    l2_bytes: u64,
    stall: Stall,
    loading: Duration,
}

impl<'a> Bench<'a> {
    /// With room for these shapes.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) where there is too little memory.
    pub(super) fn new(device: &'a Device, shapes: &[Shape], seed: u64) -> Result<Self, Error> {
        let stall = Stall::new(device, &fma(device)?)?;
        Self::with(device, elements_for(shapes, l2_bytes(device)), seed, stall)
    }

    fn with(device: &'a Device, elements: [u64; 3], seed: u64, stall: Stall) -> Result<Self, Error> {
        let arena = Arena::new(device, elements, seed)?;
        let (workspace, loading) = (Workspace::none(), Duration::ZERO);
        Ok(Self { device, arena, workspace, l2_bytes: l2_bytes(device), stall, loading })
    }

    /// The median time of a product, in milliseconds.
    ///
    /// # Errors
    /// Those of launches.
    pub(super) fn time(&mut self, shape: &Shape, plan: &GemmPlan) -> Result<f64, Error> {
        let Self { device, arena, workspace, l2_bytes, stall, loading } = self;
        let start = Instant::now();
        plan.load(device)?;
        *loading += start.elapsed();
        if workspace.bytes() < plan.workspace_bytes() {
            // The old one first: there may be no room for both.
            *workspace = Workspace::none();
            *workspace = plan.workspace(device)?;
        }
        let sets = Sets::of(shape, *l2_bytes);
        let contestant: Contestant<'_> = Box::new(|set| {
            let (a, b, c) = arena.views(shape, sets, set)?;
            Ok(plan.run_views(device, 1.0, a, b, 0.0, c, workspace)?)
        });
        let (fewest, runs) = RUNS;
        let mut race = Race { device, runs, sets: sets.pool, busy: Box::new(|ms| stall.run(ms)) };
        Ok(race.run_within(BUDGET, fewest, &mut [contestant])?[0].median_ms)
    }
}
