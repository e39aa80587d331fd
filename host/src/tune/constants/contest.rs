//! Which constants make the best plans: estimates that are nearer on the whole may still put the wrong kernel first.
//!
//! ```text
//!  shapes of the atlas, by a seed ──► the plan that each of the constants would make ──► where these differ: times
//!                                                                                         │
//!                              of each of the constants: the mean of time / least time ◄──┘
//! ```

use std::time::Instant;

use crate::Error;
use crate::bench::atlas::{CLASSES, Shape};
use tilewright::plan::GemmPlan;

/// How many shapes of each class of the atlas there are.
const OF_A_CLASS: usize = 8;

/// The most bytes that operands and result lie in.
const MOST_BYTES: u64 = 512 << 20;

/// By how much constants have to be better than those before them, which are nearer to what is built in.
const CLEARLY: f64 = 0.01;

/// The fewest products whose plans differ that tell something.
const FEWEST: usize = 8;

/// What was found of some constants.
#[derive(Clone, Debug, Default)]
pub(super) struct Contest {
    /// The shapes that were planned.
    pub(super) shapes: usize,
    /// Those of them whose plans are not all the same, and which were measured.
    pub(super) differing: usize,
    /// For each of the constants, the geometric mean of the times of its plans, each as a multiple of the least for its shape.
    pub(super) means: Vec<f64>,
}

impl Contest {
    /// The constants to go by: the first, unless others are clearly better.
    pub(super) fn best(&self) -> usize {
        let mut best = 0;
        for (index, mean) in self.means.iter().enumerate() {
            if self.differing >= FEWEST && *mean < (1.0 - CLEARLY) * self.means[best] {
                best = index;
            }
        }
        best
    }
}

/// The shapes for a seed, one of each class after the other.
pub(super) fn shapes(seed: u64) -> Vec<Shape> {
    // (Seed 0 stands for the atlas itself.)
    let of_classes: Vec<Vec<Shape>> = CLASSES.iter().map(|class| class.shapes(seed.max(1), Some(OF_A_CLASS))).collect();
    let turn = |number: usize| of_classes.iter().filter_map(move |shapes| shapes.get(number).copied());
    (0..OF_A_CLASS).flat_map(turn).filter(|shape| shape.bytes() <= MOST_BYTES).collect()
}

/// Compares `count` constants by their plans for some shapes, until `deadline`. `plan` makes the plan by one of them, and `time` measures one, in
/// milliseconds; shapes that cannot be planned or measured do not count.
///
/// # Errors
/// What a kernel does wrong.
pub(super) fn contest(
    shapes: &[Shape],
    count: usize,
    plan: impl Fn(&Shape, usize) -> Result<GemmPlan, Error>,
    mut time: impl FnMut(&Shape, &GemmPlan) -> Result<f64, Error>,
    deadline: Option<Instant>,
) -> Result<Contest, Error> {
    let mut logarithms = vec![0.0; count];
    let mut contest = Contest::default();
    for shape in shapes {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let Ok(plans) = (0..count).map(|index| plan(shape, index)).collect::<Result<Vec<_>, _>>() else { continue };
        contest.shapes += 1;
        let way = |plan: &GemmPlan| (plan.kernel().name, plan.splits());
        if plans.iter().all(|plan| way(plan) == way(&plans[0])) {
            continue;
        }
        let mut times: Vec<f64> = Vec::new();
        for plan in &plans {
            // Each way is measured once.
            let known =
                plans.iter().position(|other| way(other) == way(plan)).and_then(|first| times.get(first).copied());
            match known.map_or_else(|| time(shape, plan), Ok) {
                Ok(ms) => times.push(ms),
                Err(error) if error.is_kernel_fault() => return Err(error),
                Err(_) => break,
            }
        }
        if times.len() == count && times.iter().all(|ms| ms.is_finite() && *ms > 0.0) {
            contest.differing += 1;
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            for (sum, ms) in logarithms.iter_mut().zip(times) {
                *sum += (ms / least).ln();
            }
        }
    }
    let products = contest.differing.max(1) as f64;
    contest.means = logarithms.into_iter().map(|sum| (sum / products).exp()).collect();
    Ok(contest)
}
