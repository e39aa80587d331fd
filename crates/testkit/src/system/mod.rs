//! What systems do differently: how a program is ended with all that it has started, and how this one learns that it is to end.

#[cfg(not(unix))]
mod elsewhere;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use elsewhere::{Group, group, interrupt, kill, separate};
#[cfg(not(unix))]
pub use elsewhere::{end_with_the_reader, exit, listen};
#[cfg(unix)]
pub(crate) use unix::{Group, group, interrupt, kill, separate};
#[cfg(unix)]
pub use unix::{end_with_the_reader, exit, listen};
