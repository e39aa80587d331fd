//! What this process has made: devices with the plans that they keep, the threads of the CPU executor. A forked child makes its own.
//!
//! ```text
//!  parent, process 100                     child of a fork, process 101
//!  State { process: 100, … } ◄── CURRENT   CURRENT ──► State { process: 100, … }   the parent's: its threads do not exist
//!                                                      here, and a lock that one of them held is never released
//!                                          CURRENT ──► State { process: 101, … }   made by the first call in the child
//! ```
//!
//! The child never touches what the parent has made, so it waits for no thread and no lock of the parent. What the library makes
//! once for all, such as its tables of measured times, is made in [`prepare`], while the thread holds the interpreter: whoever forks
//! holds it, too, so that no child finds it half made.
//!
//! CUDA cannot be used in the child of a process that has used it. [`initialize_driver`] says so.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cuda_driver::{Gpu, keep_context};
use cuda_std::executor::{Checks, Stop};
use pyo3::exceptions::PyImportError;
use pyo3::{PyErr, PyResult, Python, ffi};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tilewright::Sizes;
use tilewright::plan::{Description, GemmPlan, Options, Placement};
use tilewright::{Device, Precision};

use crate::engine::Place;
use crate::error::{Failure, Kind};

/// How long the CPU executor works until signals are looked at.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// What a process has made. Never dropped.
pub(crate) struct State {
    /// The process that has made it.
    process: u32,
    executor: OnceLock<Executor>,
    /// By their numbers.
    gpus: Mutex<Vec<Option<Device>>>,
}

/// The CPU executor.
struct Executor {
    device: Device,
    /// There is one at least.
    pools: Mutex<Vec<Pool>>,
}

/// As many threads as there are processors, for one call or several at a time.
struct Pool {
    threads: Arc<ThreadPool>,
    /// How many calls use them.
    users: usize,
}

/// The most pools. More calls than that at a time share them, and may wait for each other.
const MOST_POOLS: usize = 8;

impl Pool {
    fn new(number: usize) -> Result<Self, Failure> {
        let threads = ThreadPoolBuilder::new().thread_name(move |index| format!("tilewright-{number}-{index}")).build();
        let threads = threads.map_err(|error| {
            Failure::new(Kind::Device, format!("cannot start the threads of the CPU executor: {error}"))
        })?;
        Ok(Self { threads: Arc::new(threads), users: 0 })
    }
}

/// A pool while a call uses it.
struct Used<'a> {
    executor: &'a Executor,
    number: usize,
    threads: Arc<ThreadPool>,
}

impl Executor {
    /// Threads for a call: ones that no other call uses, so that a small product need not wait for a large one, nor Ctrl-C.
    fn threads(&self) -> Used<'_> {
        let mut pools = lock(&self.pools);
        if pools.len() < MOST_POOLS
            && pools.iter().all(|pool| pool.users > 0)
            // Where no more threads can be had, it waits.
            && let Ok(pool) = Pool::new(pools.len())
        {
            pools.push(pool);
        }
        let (number, pool) =
            pools.iter_mut().enumerate().min_by_key(|(_, pool)| pool.users).expect("there is one pool at least");
        pool.users += 1;
        Used { executor: self, number, threads: pool.threads.clone() }
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        lock(&self.executor.pools)[self.number].users -= 1;
    }
}

/// The state of this process, or of one that it was forked from.
static CURRENT: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());

/// The process that has initialized CUDA's driver: this one, one that it was forked from, or none if 0.
static DRIVER_USER: AtomicU32 = AtomicU32::new(0);

impl State {
    /// That of this process.
    pub(crate) fn get() -> &'static Self {
        let process = process::id();
        loop {
            let known = CURRENT.load(Ordering::Acquire);
            // SAFETY: null, or from `Box::into_raw` below, and never freed. It is only shared.
            if let Some(state) = unsafe { known.as_ref() }
                && state.process == process
            {
                return state;
            }
            let made = Box::into_raw(Box::new(Self { process, executor: OnceLock::new(), gpus: Mutex::default() }));
            if CURRENT.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread of this process was faster, and nobody has seen this one.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }

    /// The CPU executor, with threads of its own: those of rayon's global pool would be missing in a forked child.
    fn executor(&self) -> Result<&Executor, Failure> {
        if let Some(executor) = self.executor.get() {
            return Ok(executor);
        }
        let pools = Mutex::new(vec![Pool::new(0)?]);
        Ok(self.executor.get_or_init(|| Executor { device: Device::cpu(Checks::Bounds), pools }))
    }

    fn gpu(&self, ordinal: usize) -> Result<Device, Failure> {
        let mut gpus = lock(&self.gpus);
        if let Some(Some(device)) = gpus.get(ordinal) {
            return Ok(device.clone());
        }
        // The driver has to be initialized before there can be a context to keep.
        initialize_driver()?;
        let _kept = keep_context()?;
        let _relaxed = cuda_driver::relax_capture()?;
        let device = Device::cuda(ordinal)?;
        if gpus.len() <= ordinal {
            gpus.resize(ordinal + 1, None);
        }
        gpus[ordinal] = Some(device.clone());
        Ok(device)
    }
}

impl Place {
    /// The device, opened if it has not been.
    pub(crate) fn device(self) -> Result<Device, Failure> {
        match self {
            Self::Cpu => Ok(State::get().executor()?.device.clone()),
            Self::Cuda(ordinal) => State::get().gpu(ordinal),
        }
    }

    /// Does this where kernels are launched from: on the CPU, on a thread of the executor.
    pub(crate) fn on_its_threads<R: Send>(
        self,
        work: impl FnOnce() -> Result<R, Failure> + Send,
    ) -> Result<R, Failure> {
        match self {
            Self::Cpu => State::get().executor()?.threads().threads.install(work),
            Self::Cuda(_) => work(),
        }
    }
}

impl Place {
    /// Does this where kernels are launched from, while other threads of Python go on. The CPU executor can take minutes: meanwhile
    /// signals are looked at, and if one raises an exception, as Ctrl-C does, the work ends early, with that. A result is half
    /// computed then.
    pub(crate) fn compute<R: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<R, Failure> + Send,
    ) -> Result<R, Failure> {
        let Self::Cpu = self else { return py.detach(work) };
        let stop = Stop::new();
        let (sender, mut receiver) = mpsc::channel();
        let used = State::get().executor()?.threads();
        used.threads.in_place_scope(|scope| {
            let asked = stop.clone();
            // The receiver is there until this has sent, or panicked.
            scope.spawn(move |_| drop(sender.send(asked.listen(work))));
            let mut interrupted = None;
            loop {
                let receiver = &mut receiver;
                match py.detach(move || receiver.recv_timeout(BETWEEN_SIGNALS)) {
                    Ok(result) => return interrupted.map_or(result, |error| Err(Failure::Python(error))),
                    Err(RecvTimeoutError::Timeout) if interrupted.is_none() => {
                        interrupted = py.check_signals().err();
                        if interrupted.is_some() {
                            stop.ask();
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    // The scope goes on with the panic, and nobody sees this.
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Failure::new(Kind::Device, "a thread of the CPU executor has panicked"));
                    }
                }
            }
        })
    }
}

/// Readies the CPU executor, if that is the place. To be called before the interpreter is given up.
pub(crate) fn prepare(_holds_interpreter: Python<'_>, place: Place) -> Result<(), Failure> {
    let state = State::get();
    if place != Place::Cpu || state.executor.get().is_some() {
        return Ok(());
    }
    // A product of one element: it makes whatever is made once.
    place.on_its_threads(|| {
        let device = place.device()?;
        let one = Placement::row_major(1);
        let product = Description::new(Sizes { m: 1, n: 1, k: 1 }, 1, one, one, one)?;
        let plan = GemmPlan::new(&device, &product, &Options::from(Precision::Fp32))?;
        let number = tilewright::DeviceMatrix::new(device.upload(&[1.0])?, 1, 1, [1, 1])?;
        let mut result = tilewright::DeviceMatrix::new(device.upload(&[0.0])?, 1, 1, [1, 1])?;
        Ok(plan.run(&device, 1.0, &number, &number, 0.0, &mut result, &mut plan.workspace(&device)?)?)
    })
}

/// Refuses a second interpreter of this process: what is kept of Python's objects, such as the classes of exceptions, is of the first one, and goes
/// with it.
pub(crate) fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    /// No interpreter has this number.
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: this thread holds an interpreter, which both functions are about.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if this < 0 {
        return Err(PyErr::fetch(py));
    }
    match FIRST.compare_exchange(NONE, this, Ordering::AcqRel, Ordering::Acquire) {
        Err(first) if first != this => Err(PyImportError::new_err(format!(
            "tilewright is imported by interpreter {this} of this process, and interpreter {first} has it: one interpreter of a process can, \
             so import it in that one, or start another process"
        ))),
        _ => Ok(()),
    }
}

/// Initializes CUDA's driver, unless a process that this one was forked from has done so: then everything that the driver is asked
/// for fails, or waits for ever.
pub(crate) fn initialize_driver() -> Result<(), Failure> {
    let process = process::id();
    let user = DRIVER_USER.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
    if let Err(parent) = user
        && parent != process
    {
        return Err(Failure::new(
            Kind::Device,
            format!(
                "this process, {process}, was forked after process {parent} had used a GPU, and CUDA cannot be used in it: start \
                 processes that use GPUs by the method \"spawn\", such as multiprocessing.get_context(\"spawn\") or \
                 DataLoader(multiprocessing_context=\"spawn\"), or use no GPU before they are started"
            ),
        ));
    }
    let initialized = Gpu::count();
    if initialized.is_err() && user.is_ok() {
        // Without a driver or a GPU, there is nothing that a child could not use. The next call finds out again.
        DRIVER_USER.store(0, Ordering::Release);
    }
    initialized?;
    Ok(())
}

/// Whether something that was made in a process belongs to this one, and not to one that it was forked from.
pub(crate) fn is_this(process: u32) -> bool {
    process == process::id()
}

/// No code that holds one of these locks can panic halfway through a change, so a poisoned one guards what is in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
