//! Programs in a process of their own, which can be ended whatever they do: after a time limit, and with this one.
//!
//! A kernel that never ends cannot be stopped from within its process: every call of the driver waits for it. When the process
//! ends, so does the kernel.
//!
//! | what happens | what ends the program |
//! |---|---|
//! | the limit is reached | SIGINT to its process group, and SIGKILL two seconds later |
//! | this program is told to end, and calls [`end_all`] | the same |
//! | this program is gone without a word, as by SIGKILL | on Linux, SIGTERM to its first process, by the system |
//!
//! Where there are no signals, it ends two seconds after the limit.

use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::system::{self, Group};

/// How a program has ended.
///
/// ```
/// # use testkit::child::{self, Ended};
/// # use std::{process::Command, time::Duration};
/// # fn main() -> std::io::Result<()> {
/// let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
/// let ended = child::run(Command::new(cargo).arg("--version"), Some(Duration::from_secs(60)))?;
/// assert!(matches!(ended, Ended::Exited(status) if status.success()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended, because it took too long.
    TimeLimit,
}

/// How long a program may take to end after it has been told to, as by Ctrl-C. Then it is ended without being asked.
const GRACE: Duration = Duration::from_secs(2);

/// How often is looked whether a program has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// The programs that run now. The number of each is nobody else's until its process has been waited for: that happens with this locked.
static RUNNING: Mutex<Vec<Group>> = Mutex::new(Vec::new());

/// Whether all programs have been told to end, and this one is about to.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Nothing that holds the lock leaves the list half changed, so a poisoned one is in order.
fn running() -> MutexGuard<'static, Vec<Group>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end, or to the limit. What it starts itself is ended with it then, unless it has left its process group.
///
/// ```
/// # use testkit::child::{self, Ended};
/// # use std::{process::Command, time::Duration};
/// # fn main() -> std::io::Result<()> {
/// let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
/// let ended = child::run(Command::new(cargo).arg("no-such-command"), Some(Duration::from_secs(60)))?;
/// assert!(matches!(ended, Ended::Exited(status) if !status.success()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the program cannot be started, or nobody can wait for its end because this process ignores SIGCHLD.
pub fn run(command: &mut Command, limit: Option<Duration>) -> io::Result<Ended> {
    system::separate(command);
    let mut groups = running();
    let mut child = command.spawn()?;
    let group = system::group(&child);
    groups.push(group);
    drop(groups);
    let start = Instant::now();
    loop {
        let mut groups = running();
        let is_late = limit.is_some_and(|limit| start.elapsed() >= limit);
        if is_late {
            // Not waited for before the end: what it has started may be in need of it.
            system::interrupt(group);
            std::thread::sleep(GRACE);
            system::kill(group);
        }
        let status = if is_late { child.wait().map(Some) } else { child.try_wait() };
        if let Some(status) = status.transpose() {
            groups.retain(|other| *other != group);
            drop(groups);
            while ENDING.load(Ordering::Relaxed) {
                std::thread::park();
            }
            return Ok(if is_late { Ended::TimeLimit } else { Ended::Exited(status?) });
        }
        drop(groups);
        std::thread::sleep(PAUSE);
    }
}

/// Runs a program for a limited time: how it has ended, and what it has written to its standard output and its standard error.
pub(crate) fn output_of(command: &mut Command, limit: Duration) -> io::Result<(Ended, String)> {
    // Not a pipe: what the program has started may hold the other end for longer than it runs itself.
    let mut file = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let ended = run(command, Some(limit))?;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((ended, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Ends all programs that [`run`] runs, before this one ends. None of those calls returns any more.
///
/// ```no_run
/// # use testkit::child;
/// // When the user has pressed Ctrl-C, say.
/// child::end_all();
/// std::process::exit(130);
/// ```
pub fn end_all() {
    ENDING.store(true, Ordering::Relaxed);
    running().iter().for_each(|group| system::interrupt(*group));
    let start = Instant::now();
    while start.elapsed() < GRACE && !running().is_empty() {
        std::thread::sleep(PAUSE);
    }
    running().iter().for_each(|group| system::kill(*group));
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    /// A limit within which a shell has come to its second command, also on a machine that has much else to do.
    const LONG_ENOUGH: Duration = Duration::from_secs(3);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_ends_by_itself_is_left_to_it() {
        let Ended::Exited(status) = run(&mut shell("exit 7"), Some(Duration::from_secs(60))).unwrap() else { panic!() };
        assert_eq!(status.code(), Some(7));
        let Ended::Exited(status) = run(&mut shell("exit 0"), None).unwrap() else { panic!() };
        assert!(status.success());
        assert!(run(&mut Command::new("/no/such/program"), None).is_err());
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        // Neither listens; the one that was started by the other has written its number.
        let script =
            format!("trap '' INT; sh -c \"trap '' INT; echo \\$\\$ > {}; sleep 1000\"; sleep 1000", file.display());
        assert_eq!(run(&mut shell(&script), Some(LONG_ENOUGH)).unwrap(), Ended::TimeLimit);
        let number: libc::pid_t = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let start = Instant::now();
        // Until whoever inherits it has waited for it.
        let is_there =
            || std::fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while is_there() {
            assert!(start.elapsed() < Duration::from_secs(10), "{number} goes on");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn a_program_may_end_in_order_when_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("told");
        // It has nothing left to start when the signal comes, on a machine that has much else to do.
        let script = format!("trap 'echo told > {}; exit 0' INT; sleep 1000 & wait", file.display());
        assert_eq!(run(&mut shell(&script), Some(LONG_ENOUGH)).unwrap(), Ended::TimeLimit);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "told\n");
    }

    /// `nohup`, and `&` in a script, have programs ignore signals, and so all that those start.
    #[test]
    fn so_it_may_where_this_program_ignores_or_blocks_the_signal() {
        let ignore = || {
            // SAFETY: no function is installed; the set is plain data for which zeros are valid, and borrowed for the calls.
            unsafe {
                libc::signal(libc::SIGINT, libc::SIG_IGN);
                let mut blocked: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&raw mut blocked, libc::SIGINT);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            }
            Ok(())
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::tests::a_program_may_end_in_order_when_it_is_told_to"]);
        // SAFETY: both calls may be made between fork and exec.
        let output = unsafe { command.pre_exec(ignore) }.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
