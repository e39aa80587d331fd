//! How a program ends early: by Ctrl-C, or because a supervisor or a terminal that is closed tells it to.

pub use crate::system::{end_with_the_reader, exit, listen};

/// What a shell reports for a program that a signal has ended: this, and the signal's number.
pub const SIGNALLED: i32 = 128;
