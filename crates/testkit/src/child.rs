//! Programs in a process of their own, which can be ended whatever they do: after a time limit, and with this one.
//!
//! A kernel that never ends cannot be stopped from within its process: every call of the driver waits for it. When the process
//! ends, so does the kernel.
//!
//! | what happens | what ends the program |
//! |---|---|
//! | the limit is reached | SIGINT to its process group, and SIGKILL two seconds later |
//! | this program is told to end, and calls [`end_all`] | the same |
//! | this program is gone without a word, as by SIGKILL | SIGTERM to its first process, by the system |

use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a program has ended.
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

/// The process groups of the programs that run now. Each has the number of its first process, which is nobody else's until that
/// process has been waited for: that happens with this locked.
static RUNNING: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Whether all programs have been told to end, and this one is about to.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Nothing that holds the lock leaves the list half changed, so a poisoned one is in order.
fn running() -> MutexGuard<'static, Vec<libc::pid_t>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end, or to the limit. What it starts itself is ended with it then, unless it has left its process group.
///
/// # Errors
/// If the program cannot be started, or nobody can wait for its end because this process ignores SIGCHLD.
pub fn run(command: &mut Command, limit: Option<Duration>) -> io::Result<Ended> {
    // The standard library has made this of a `pid_t`.
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: `prepare` makes system calls only, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || prepare(parent)) };
    let mut groups = running();
    let mut child = command.process_group(0).spawn()?;
    let group = child.id() as libc::pid_t;
    groups.push(group);
    drop(groups);
    let start = Instant::now();
    loop {
        let mut groups = running();
        let is_late = limit.is_some_and(|limit| start.elapsed() >= limit);
        if is_late {
            // Not waited for before the end: what it has started may be in need of it.
            signal(group, libc::SIGINT);
            std::thread::sleep(GRACE);
            signal(group, libc::SIGKILL);
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

/// Runs in the new process, before its program does.
///
/// Signals that the program may be ended by come through, and the ends of its own processes do, whatever `nohup`, a shell's `&` or a
/// supervisor have had this program ignore or block. SIGHUP is not among them: `nohup` means the program, too.
///
/// When the parent is gone, the system sends SIGTERM, and not SIGKILL: a program that listens then ends what it has started itself. To be
/// exact, it does so when the thread is gone that has started this process, and that is in [`run`] as long as the program runs.
fn prepare(parent: libc::pid_t) -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGCHLD] {
        // SAFETY: may be called between fork and exec, and installs no function.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: may be called between fork and exec. The set is plain data for which zeros are valid, and borrowed for the calls.
    let parent_now = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::getppid()
    };
    // It may have been gone before that was asked for.
    if parent_now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Ends all programs that [`run`] runs, before this one ends. None of those calls returns any more.
pub fn end_all() {
    ENDING.store(true, Ordering::Relaxed);
    running().iter().for_each(|group| signal(*group, libc::SIGINT));
    let start = Instant::now();
    while start.elapsed() < GRACE && !running().is_empty() {
        std::thread::sleep(PAUSE);
    }
    running().iter().for_each(|group| signal(*group, libc::SIGKILL));
}

/// Sends a signal to all processes of a group. That there are none any more is fine.
fn signal(group: libc::pid_t, signal: libc::c_int) {
    // SAFETY: touches no memory. The group is that of a child which has not been waited for, so the number is still its.
    let _ = unsafe { libc::kill(-group, signal) };
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_program_whose_parent_is_gone_does_not_begin() {
        let somebody_else = std::process::id() as libc::pid_t + 1;
        let mut command = shell("exit 0");
        // SAFETY: as in `run`.
        let spawned = unsafe { command.pre_exec(move || prepare(somebody_else)) }.spawn();
        assert_eq!(spawned.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
