//! Whether the checks notice when a kernel orders its threads less: each barrier, fence, arrival, wait and commit is left out in turn.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cuda_std::executor::{Changes, Checks, Executor};
use runtime::Device;
use serde::Serialize;

use crate::Error;
use crate::operation::Operation;
use crate::trial::Trial;

/// What has come of the mutants of an operation.
#[derive(Clone, Debug, Serialize)]
pub struct Mutants {
    /// The operation.
    pub operation: &'static str,
    /// For each call that orders threads, what came of leaving it out.
    pub mutants: Vec<Mutant>,
}

/// A call that was left out.
#[derive(Clone, Debug, Serialize)]
pub struct Mutant {
    /// The place in the source, the function, and what was done about it.
    pub call: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What has come of leaving out a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A check of the executor has told, in these words.
    Check(String),
    /// A result was wrong.
    WrongResult(String),
    /// The cases did not end in time.
    NoEnd,
    /// Nobody has told.
    Survived,
}

impl Mutants {
    /// Those that nobody has noticed.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.mutants.iter().filter(|mutant| mutant.outcome == Outcome::Survived)
    }
}

impl fmt::Display for Mutants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, mutants } = self;
        let caught = mutants.len() - self.survivors().count();
        write!(
            f,
            "{operation}: {caught} of {} calls that order threads are missed when they are left out",
            mutants.len()
        )?;
        for Mutant { call, outcome } in mutants {
            match outcome {
                Outcome::Check(message) => write!(f, "\n  {call}: {message}")?,
                Outcome::WrongResult(message) => write!(f, "\n  {call}: wrong result: {message}")?,
                Outcome::NoEnd => write!(f, "\n  {call}: does not end")?,
                Outcome::Survived => write!(f, "\n  SURVIVED {call}: all cases pass without it")?,
            }
        }
        Ok(())
    }
}

/// Leaves out each call in turn that orders threads in the kernels of an operation, and runs the small cases, until one fails, or
/// `limit` is over. What does not end then keeps a thread of this program busy.
///
/// # Errors
/// What is wrong with the operation without any change; [`Error::UnlistedKernel`].
pub fn mutants(operation: &'static dyn Operation, seed: u64, limit: Duration) -> Result<Mutants, Error> {
    mutants_but(operation, seed, limit, &mut HashSet::new())
}

/// The same, without the calls that are in `known`; then all of this operation are.
fn mutants_but(
    operation: &'static dyn Operation,
    seed: u64,
    limit: Duration,
    known: &mut HashSet<String>,
) -> Result<Mutants, Error> {
    let changes = Arc::new(Changes::default());
    run(operation, seed, changes.clone())?;
    let description = operation.describe();
    let is_listed = |kernel: &&str| description.kernels.iter().any(|known| known.name == *kernel);
    if let Some(kernel) = changes.kernels().into_iter().find(|kernel| !is_listed(kernel)) {
        return Err(Error::UnlistedKernel { operation: description.name, kernel: kernel.to_owned() });
    }
    let mutant = |call: String| Mutant { outcome: without(operation, seed, call.clone(), limit), call };
    let met = changes.take_met();
    let calls = met.iter().filter(|call| call.change.only_orders_less()).map(ToString::to_string);
    let calls: Vec<_> = calls.filter(|call| known.insert(call.clone())).collect();
    Ok(Mutants { operation: description.name, mutants: calls.into_iter().map(mutant).collect() })
}

/// What comes of leaving out a call, on threads of its own: a kernel that waits for memory to change may never end.
fn without(operation: &'static dyn Operation, seed: u64, call: String, limit: Duration) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let changes = Arc::new(Changes::making(&call).expect("a change is read as it is displayed"));
        let result = match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
            Ok(pool) => pool.install(|| run(operation, seed, changes)),
            // On the threads of everybody, then.
            Err(_) => run(operation, seed, changes),
        };
        // Nobody may be there any more.
        _ = sender.send(match result {
            Ok(()) => Outcome::Survived,
            Err(Error::Runtime(error)) => Outcome::Check(error.to_string()),
            Err(error) => Outcome::WrongResult(error.to_string()),
        });
    });
    match receiver.recv_timeout(limit) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => Outcome::NoEnd,
        Err(mpsc::RecvTimeoutError::Disconnected) => Outcome::Check("a panic, whose message is above".to_owned()),
    }
}

fn run(operation: &dyn Operation, seed: u64, changes: Arc<Changes>) -> Result<(), Error> {
    let device = Device::with_executor(Executor::new(Checks::Full).with_changes(changes));
    for sizes in operation.describe().cases(false)? {
        let trial = Trial::new(operation, sizes, seed)?;
        trial.judge(&trial.run(&device)?)?;
    }
    Ok(())
}

/// The whole of a test: [`mutants`], with a panic if one survives.
///
/// # Panics
/// If leaving out a call is noticed by nobody, or the operation is wrong without any change.
pub fn assert_mutants(operation: &'static dyn Operation) {
    assert_mutants_of(&[operation]);
}

/// The same of several operations. Some may have the same kernels, with other numbers: then each call is left out in the first of them that
/// comes to it.
///
/// # Panics
/// Those of [`assert_mutants`].
pub fn assert_mutants_of(operations: &[&'static dyn Operation]) {
    let mut known: HashMap<Vec<&str>, HashSet<String>> = HashMap::new();
    for operation in operations {
        let kernels = operation.describe().kernels.iter().map(|kernel| kernel.name).collect();
        match mutants_but(*operation, 1, Duration::from_secs(60), known.entry(kernels).or_default()) {
            Ok(mutants) => assert!(mutants.survivors().next().is_none(), "{mutants}"),
            Err(error) => panic!("{error}"),
        }
    }
}
