//! How the program ends early: by Ctrl-C, or because a supervisor or a terminal that is closed tells it to.

use std::io::Write;
use std::thread;
use std::time::Duration;

use testkit::child;
use testkit::ending::{SIGNALLED, exit};

use crate::files::without_half_written_files;
use crate::progress;

/// How long the program goes on for the sake of what it has to say, to a pipe that nobody reads, for example.
const PATIENCE: Duration = Duration::from_millis(500);

/// From now on signals end the program in order, with all that it has started.
pub(super) fn listen() {
    testkit::ending::listen(end);
}

/// Ends the program, and before it what it has started. Files are whole, or as they were.
fn end(signal: i32) {
    child::end_all();
    let _whole = without_half_written_files();
    let code = SIGNALLED + signal;
    // Whatever happens to the message: a terminal may be stopped, a pipe full, and another thread at a progress bar wait for that.
    let _ = thread::Builder::new().spawn(move || {
        thread::sleep(PATIENCE);
        exit(code);
    });
    progress::clear();
    let _ = writeln!(std::io::stderr(), "interrupted: what was not finished is not written");
    exit(code);
}
