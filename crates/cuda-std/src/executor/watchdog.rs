//! Threads of a kernel that never stop. A thread keeps its turn until it waits for others, makes an atomic operation or returns; a loop of
//! arithmetic alone does none of these, and nothing in this process can end it. So a thread of the operating system looks at the
//! workers of a launch now and then, if the launch has a limit, and ends the process with a report if a thread of the kernel has had its
//! turn for longer:
//!
//! ```text
//!  worker     ●─stop─●──stop──●───────────────────────────────── … a loop
//!  watchdog       ▲        ▲        ▲        ▲        ▲   the same turn as a limit ago: a report, and the end
//! ```

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::boxed::Box;
use std::io::Write as _;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use std::vec::Vec;
use std::{format, io, thread};

use super::cluster::position;
use super::fault::{Fault, FaultKind};
use crate::Dim3;

/// How the process ends: as a test program does whose test has panicked.
const EXIT_CODE: i32 = 101;

/// How often is looked at the workers, at least.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks at the workers of a launch, until it is dropped.
pub(super) struct Watchdog {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

/// What is looked at.
struct Watched {
    kernel: &'static str,
    grid: Dim3,
    block: Dim3,
    limit: Duration,
    turns: Mutex<Vec<Arc<CurrentTurn>>>,
    is_over: AtomicBool,
}

/// The turn that a thread of the kernel has on a worker.
#[derive(Default)]
pub(super) struct CurrentTurn {
    /// How many turns have begun and ended: an odd number while a thread has one. Written last, so that who finds the same number again has
    /// read the rest of that turn.
    changes: AtomicU64,
    /// The number of its block in the grid, its own in the block, and where it has stopped last in this block, or null.
    block: AtomicU64,
    thread: AtomicUsize,
    last_stop: AtomicPtr<Location<'static>>,
}

impl CurrentTurn {
    /// A thread has its turn from now on.
    pub(super) fn begin(&self, block: u64, thread: usize, last_stop: Option<&'static Location<'static>>) {
        self.block.store(block, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.last_stop
            .store(last_stop.map_or(ptr::null_mut(), |stop| ptr::from_ref(stop).cast_mut()), Ordering::Relaxed);
        self.change();
    }

    /// It has stopped.
    pub(super) fn end(&self) {
        self.change();
    }

    /// Only the worker itself writes the number.
    fn change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Watchdog {
    /// One for a launch. `None` if the system has no thread for it: then the launch has no limit.
    pub(super) fn new(kernel: &'static str, grid: Dim3, block: Dim3, limit: Duration) -> Option<Self> {
        let (turns, is_over) = (Mutex::default(), AtomicBool::new(false));
        let watched = Arc::new(Watched { kernel, grid, block, limit, turns, is_over });
        let looks = Arc::clone(&watched);
        let thread = thread::Builder::new().name("watchdog".into()).spawn(move || looks.look()).ok()?;
        Some(Self { watched, thread: Some(thread) })
    }

    /// Has another worker be looked at: it says what turns it gives.
    pub(super) fn watch(&self) -> Arc<CurrentTurn> {
        let turn = Arc::<CurrentTurn>::default();
        self.watched.turns.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&turn));
        turn
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watched.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic, and if it did, the launch would be none the worse for it.
            _ = thread.join();
        }
    }
}

impl Watched {
    /// Looks at all workers until the launch is over.
    fn look(&self) {
        let mut seen: Vec<(u64, Instant)> = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(PAUSE.min(self.limit / 4));
            let (now, turns) = (Instant::now(), self.turns.lock().unwrap_or_else(PoisonError::into_inner));
            seen.resize(turns.len(), (0, now));
            for (turn, (changes, since)) in turns.iter().zip(&mut seen) {
                let now_at = turn.changes.load(Ordering::Acquire);
                if now_at != *changes {
                    (*changes, *since) = (now_at, now);
                } else if now_at % 2 == 1 && now - *since >= self.limit {
                    self.end(turn);
                }
            }
        }
    }

    /// Ends the process with a report.
    fn end(&self, turn: &CurrentTurn) -> ! {
        // SAFETY: null, or made from a reference that lives as long as the program.
        let last_stop = unsafe { turn.last_stop.load(Ordering::Relaxed).as_ref() };
        let fault = Box::new(Fault {
            kernel: self.kernel,
            block: position(self.grid, turn.block.load(Ordering::Relaxed)),
            thread: position(self.block, turn.thread.load(Ordering::Relaxed) as u64),
            location: None,
            callers: Vec::new(),
            kind: FaultKind::ThreadLimit { seconds: self.limit.as_secs(), last_stop: last_stop.map(Into::into) },
            old_value: None,
        });
        // Not by `eprintln!`: tests would keep it to themselves. What cannot be written is left unsaid, as the process ends in any case.
        _ = io::stderr().write_all(format!("\nerror: {fault}\n").as_bytes());
        process::exit(EXIT_CODE)
    }
}
