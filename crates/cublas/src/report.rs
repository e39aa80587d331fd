//! What `TILEWRIGHT_VERBOSE=1` shows on standard error: a line for each call, and counts when the process ends.
//!
//! ```text
//! TILEWRIGHT cublasSgemm_v2(m=4096 n=4096 k=4096, batch 1, strides …, alpha 1, beta 0) stream 0x0: gemm_…, estimated …, workspace 0 bytes; 9 us
//! TILEWRIGHT cublasSgemm_v2: cuBLAS, for the math mode is not the default: 3
//! TILEWRIGHT at the end: 120 calls taken; passed on: 7 for the math mode is not the default
//! ```

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::io::Write as _;
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// How many calls were taken, and how many passed on, by reason.
static COUNTS: Mutex<(u64, BTreeMap<&'static str, u64>)> = Mutex::new((0, BTreeMap::new()));

/// Whether lines are wanted.
pub(crate) fn is_verbose() -> bool {
    static VERBOSE: OnceLock<bool> = OnceLock::new();
    *VERBOSE.get_or_init(|| env::var("TILEWRIGHT_VERBOSE").is_ok_and(|value| !matches!(value.as_str(), "" | "0")))
}

/// A line on standard error.
pub(crate) fn warn(line: &str) {
    write(&format!("TILEWRIGHT {line}\n"));
}

fn write(text: &str) {
    // Who has closed standard error does not want to be told.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Shows a call that was taken.
pub(crate) fn taken(function: impl Display, what: impl Display) {
    if is_verbose() {
        count(|counts| counts.0 += 1);
        warn(&format!("{function}{what}"));
    }
}

/// Shows a call that was passed on.
pub(crate) fn passed_on(function: impl Display, reason: &'static str, why: impl Display) {
    if is_verbose() {
        count(|counts| *counts.1.entry(reason).or_default() += 1);
        warn(&format!("{function}: cuBLAS, for {why}"));
    }
}

fn count(change: impl FnOnce(&mut (u64, BTreeMap<&'static str, u64>))) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: a function without arguments, of a library that is never unloaded. Where there is no room for it, there are no counts.
        unsafe { libc::atexit(show_counts) };
    });
    change(&mut COUNTS.lock().unwrap_or_else(PoisonError::into_inner));
}

extern "C" fn show_counts() {
    // A thread that was ended halfway may hold the lock.
    let Ok(counts) = COUNTS.try_lock() else { return };
    let (taken, passed_on) = &*counts;
    let passed_on: Vec<String> = passed_on.iter().map(|(reason, count)| format!("{count} for {reason}")).collect();
    let passed_on = if passed_on.is_empty() { "none".to_owned() } else { passed_on.join(", ") };
    write(&format!("TILEWRIGHT at the end: {taken} calls taken; passed on: {passed_on}\n"));
}
