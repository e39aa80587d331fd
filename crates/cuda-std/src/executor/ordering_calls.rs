//! For tests of the checks themselves: records where kernels call barriers, fences, arrivals, waits and commits, and runs launches
//! in which one such call is left out, to see whether the checks notice.

use core::cell::RefCell;
use core::fmt;
use core::panic::Location;
use core::ptr;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

/// A call that orders what threads do, in the source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderingCall {
    /// The name of the kernel that was launched.
    pub kernel: &'static str,
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1.
    pub column: u32,
    /// What is called.
    pub function: &'static str,
}

impl fmt::Display for OrderingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, file, line, column, function } = self;
        write!(f, "{kernel} {file}:{line}:{column} {function}")
    }
}

/// Notes which calls kernels make to order what they do, and has one of them left out if wanted:
/// [`Executor::with_ordering_calls`](super::Executor::with_ordering_calls).
#[derive(Debug, Default)]
pub struct OrderingCalls {
    left_out: Option<String>,
    met: Mutex<BTreeSet<OrderingCall>>,
}

impl OrderingCalls {
    /// Has the call left out that is displayed like this, by whatever thread comes to it.
    pub fn without(call: String) -> Self {
        Self { left_out: Some(call), ..Self::default() }
    }

    /// The calls that kernels have come to, the one that is left out among them.
    pub fn met(&self) -> Vec<OrderingCall> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Notes a call. Whether it is the one to be left out.
    fn note(&self, call: OrderingCall) -> bool {
        let is_left_out = self.left_out.as_ref().is_some_and(|left_out| *left_out == call.to_string());
        self.met.lock().unwrap_or_else(PoisonError::into_inner).insert(call);
        is_left_out
    }
}

/// The calls as one worker has met them.
pub(super) struct Met<'a> {
    calls: &'a OrderingCalls,
    kernel: &'static str,
    /// Where they are, and whether they are left out.
    places: RefCell<Vec<(&'static Location<'static>, bool)>>,
}

impl<'a> Met<'a> {
    pub(super) fn new(calls: &'a OrderingCalls, kernel: &'static str) -> Self {
        Self { calls, kernel, places: RefCell::default() }
    }

    /// Whether the call of a function at a place is to be left out.
    pub(super) fn is_left_out(&self, function: &'static str, location: &'static Location<'static>) -> bool {
        let mut places = self.places.borrow_mut();
        match places.iter().find(|(place, _)| ptr::eq(*place, location)) {
            Some((_, is_left_out)) => *is_left_out,
            None => {
                let (file, line, column) = (location.file(), location.line(), location.column());
                let is_left_out = self.calls.note(OrderingCall { kernel: self.kernel, file, line, column, function });
                places.push((location, is_left_out));
                is_left_out
            }
        }
    }
}
