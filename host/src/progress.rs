//! A progress bar for what takes more than a second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is quicker than this goes by without a bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bar that is on the terminal, for [`clear`].
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// The progress of one piece of work. Drawn to the standard error, if that is a terminal, once a second has passed; taken
/// off it at the end.
pub(crate) struct Progress {
    start: Instant,
    bar: ProgressBar,
}

impl Progress {
    /// Begins work of `length` steps, described by `what`.
    pub(crate) fn new(what: &'static str, length: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}%, {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        Self { start: Instant::now(), bar }
    }

    /// Notes that one step is done. May be called from any thread.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
        if self.start.elapsed() < PATIENCE {
            return;
        }
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none() {
            // Hidden all the same if the standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            *shown = Some(self.bar.clone());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Takes the bar off the terminal, if there is one: for whoever ends the program early.
pub(crate) fn clear() {
    if let Some(bar) = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take() {
        bar.finish_and_clear();
    }
}
