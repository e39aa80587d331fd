//! Windows: no signals, and process trees in place of groups.

use std::process::{Child, Command, Stdio};

/// The number of a process.
pub(crate) type Group = u32;

/// Nothing has to be done before.
pub(crate) fn separate(_: &mut Command) {}

/// The number of a process.
pub(crate) fn group(child: &Child) -> Group {
    child.id()
}

/// There is no signal that means it. A program on the same console gets its own Ctrl-C.
pub(crate) fn interrupt(_: Group) {}

/// Ends a process, and all that it has started.
pub(crate) fn kill(group: Group) {
    let mut command = Command::new("taskkill");
    command.args(["/F", "/T", "/PID", &group.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    // That it is gone already is fine.
    let _ = command.status();
}

/// Does nothing: there is no signal for a closed pipe.
pub fn end_with_the_reader() {}

/// Does nothing: Ctrl-C ends the process, and those on the same console with it.
pub fn listen(_: fn(i32)) {}

/// Ends the process.
pub fn exit(code: i32) -> ! {
    std::process::exit(code)
}
