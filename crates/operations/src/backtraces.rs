//! From where the accesses of a report were called: a case that has failed is run again, with that in view.

use std::sync::Arc;

use cuda_std::executor::{Backtraces, Callers, Checks, Fault, LaunchError};
use runtime::Device;

use crate::Error;
use crate::check::{Case, Report};
use crate::executor::executor;
use crate::operation::Operation;
use crate::trial::Trial;

impl Report {
    /// The same report, whose failures say from which functions of a kernel the accesses were called that they are about
    /// ([`Fault::callers`]), as far as `callers` finds them: each is run again. It is of [`check_schedules`](crate::check_schedules).
    ///
    /// ```
    /// # use operations::{Error, Operation, check_executor};
    /// # use cuda_std::executor::Callers;
    /// # fn with_calls(operation: &dyn Operation, callers: Callers) -> Result<(), Error> {
    /// println!("{}", check_executor(operation, 1)?.with_callers(operation, callers));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_callers(mut self, operation: &dyn Operation, callers: Callers) -> Self {
        for case in self.cases.iter_mut().filter(|case| case.failure.is_some()).take(Self::SHOWN) {
            if let Some(fault) = with_callers(operation, case, self.seed, callers) {
                case.failure = Some(runtime::Error::Executor(LaunchError::Fault(fault)).into());
            }
        }
        self
    }
}

/// The fault of a case, if it has one that comes up again.
fn with_callers(operation: &dyn Operation, case: &Case, seed: u64, callers: Callers) -> Option<Box<Fault>> {
    let fault = fault_of(case.failure.as_ref()?)?;
    let schedule = case.schedules?.first;
    let backtraces = Arc::new(Backtraces::of(fault, callers));
    let again = || {
        let executor = executor(Checks::Full)?.schedule(schedule).with_backtraces(backtraces);
        let sizes = operation.describe().parse_sizes(&case.sizes)?;
        Trial::new(operation, sizes, seed)?.run(&Device::with_executor(executor))
    };
    let Err(Error::Runtime(runtime::Error::Executor(LaunchError::Fault(again)))) = again() else { return None };
    let is_same = |one: &Fault, other: &Fault| {
        (one.kernel, one.block, one.thread, &one.location) == (other.kernel, other.block, other.thread, &other.location)
            && one.kind.name() == other.kind.name()
    };
    is_same(fault, &again).then_some(again)
}

fn fault_of(error: &Error) -> Option<&Fault> {
    match error {
        Error::Runtime(runtime::Error::Executor(LaunchError::Fault(fault))) => Some(fault),
        _ => None,
    }
}
