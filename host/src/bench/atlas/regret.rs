//! The regret of a plan: its time divided by that of the best plan among all that the planner knows.

use std::time::Duration;

use super::super::timing::Times;
use super::report::{PlanTime, Regret};
use super::run::{Bench, Launch, Ready};
use crate::Error;
use tilewright::kernels;
use tilewright::plan::{GemmPlan, Options, Tables};

/// Plans that the model expects to take so many times as long as the fastest are measured for one shape in [`SOME`] only.
const FAR_BEHIND: f64 = 4.0;
const SOME: usize = 20;

/// What the model expects to take longer, in milliseconds, is never measured if it is far behind.
const TOO_LONG_MS: f64 = 25.0;

/// What it may take to find the best plan, and to compare it with the chosen one.
const BUDGETS: [Duration; 2] = [Duration::from_millis(80), Duration::from_millis(120)];

/// The fewest runs for the one and for the other.
const FEWEST_RUNS: [usize; 2] = [3, 5];

impl Bench<'_> {
    /// The regret of a plan; none if there is no other one.
    ///
    /// # Errors
    /// Those of a launch.
    pub(super) fn regret(&self, ready: &Ready<'_>, chosen: &GemmPlan) -> Result<Option<Regret>, Error> {
        let others = self.others(ready, chosen)?;
        if others.is_empty() {
            return Ok(None);
        }
        let launch = |plan| -> Launch<'_> { Box::new(move |views| self.run_plan(plan, views)) };
        let all: Vec<Launch<'_>> = others.iter().chain([chosen]).map(launch).collect();
        let times = self.race(ready, BUDGETS[0], FEWEST_RUNS[0], &all)?;
        let plan_time = |(plan, times): (&GemmPlan, &Times)| PlanTime {
            kernel: plan.kernel().name.to_owned(),
            splits: plan.splits(),
            estimated_ms: plan.explanation().estimated_ms,
            median_ms: times.median_ms,
        };
        let measured = others.iter().chain([chosen]).zip(&times).map(plan_time).collect();
        let best = others.iter().zip(&times).min_by(|(_, one), (_, other)| one.median_ms.total_cmp(&other.median_ms));
        let Some((best, _)) = best else { return Ok(None) };
        // Once more, these two alone: the least of many times is a lucky one.
        let times = self.race(ready, BUDGETS[1], FEWEST_RUNS[1], &[launch(chosen), launch(best)])?;
        let [chosen_ms, best_ms] = [times[0].median_ms, times[1].median_ms];
        Ok(Some(Regret {
            plans: others.len() + 1,
            ratio: (chosen_ms / best_ms).max(1.0),
            best_kernel: best.kernel().name.to_owned(),
            best_splits: best.splits(),
            best_ms,
            chosen_ms,
            times: measured,
        }))
    }

    /// The other plans: of each kernel with the splits that the model has for it, and of the chosen kernel with half and twice
    /// its splits.
    fn others(&self, ready: &Ready<'_>, chosen: &GemmPlan) -> Result<Vec<GemmPlan>, Error> {
        let explanation = chosen.explanation();
        let possible = || {
            let able = explanation.candidates.iter().filter(|candidate| candidate.refusal.is_none());
            able.map(|candidate| (candidate.kernel.as_str(), candidate.splits, candidate.estimated_ms.unwrap_or(0.0)))
        };
        let least = possible().map(|(.., estimated_ms)| estimated_ms).fold(f64::INFINITY, f64::min);
        let every = ready.number.is_multiple_of(SOME);
        let wanted = |estimated_ms: f64| estimated_ms <= FAR_BEHIND * least || (every && estimated_ms <= TOO_LONG_MS);
        let (kernel, splits) = (chosen.kernel(), chosen.splits());
        let mut ways: Vec<(&str, u32)> = possible()
            .filter(|(.., estimated_ms)| wanted(*estimated_ms))
            .map(|(kernel, splits, _)| (kernel, splits))
            .collect();
        if kernel.divides_sums {
            ways.extend([(kernel.name, splits / 2), (kernel.name, splits.saturating_mul(2))]);
        }
        ways.sort_unstable();
        ways.dedup();
        let most = kernel.pieces(chosen.product());
        ways.retain(|&way| way != (kernel.name, splits) && way.1 >= 1 && (way.0 != kernel.name || way.1 <= most));
        let mut plans = Vec::new();
        for (kernel, splits) in ways {
            let options = Options {
                kernel: Some(kernels::find(kernel)?),
                splits: Some(splits),
                tables: Tables::None,
                ..self.plan_options.clone()
            };
            match GemmPlan::new(self.device(), chosen.product(), &options) {
                Ok(plan) => {
                    self.reserve(&plan)?;
                    plan.load(self.device())?;
                    plans.push(plan);
                }
                Err(tilewright::Error::Ineligible { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(plans)
    }
}
