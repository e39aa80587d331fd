//! Process groups and signals.

use std::io::{self, Read};
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

/// The number of a process group, which is that of its first process.
pub(crate) type Group = libc::pid_t;

/// Has a command run in a process group of its own, ended with this process where the system can do that.
pub(crate) fn separate(command: &mut Command) {
    // The standard library has made this of a `pid_t`.
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: `prepare` makes system calls only, allocates nothing and takes no lock.
    unsafe { command.process_group(0).pre_exec(move || prepare(parent)) };
}

/// The group of a process that was started by a [separate] command.
pub(crate) fn group(child: &Child) -> Group {
    child.id() as libc::pid_t
}

/// Tells all processes of a group to end, as Ctrl-C does.
pub(crate) fn interrupt(group: Group) {
    signal(group, libc::SIGINT);
}

/// Ends all processes of a group.
pub(crate) fn kill(group: Group) {
    signal(group, libc::SIGKILL);
}

/// Sends a signal to all processes of a group. That there are none any more is fine.
fn signal(group: libc::pid_t, signal: libc::c_int) {
    // SAFETY: touches no memory. The group is that of a child which has not been waited for, so the number is still its.
    let _ = unsafe { libc::kill(-group, signal) };
}

/// Has this program end when nobody reads what it prints any more, as with `| head`. Rust's programs otherwise go on, and panic where they
/// print. For a program's `main`: [`main`](crate::main) does it.
///
/// ```
/// testkit::ending::end_with_the_reader();
/// println!("read, or not");
/// ```
pub fn end_with_the_reader() {
    // SAFETY: no handler is set, only what happens by default; nothing here relies on a write to a closed pipe being an error.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Runs in the new process, before its program does.
///
/// Signals that the program may be ended by come through, and the ends of its own processes do, whatever `nohup`, a shell's `&` or a
/// supervisor have had this program ignore or block. SIGHUP is not among them: `nohup` means the program, too.
///
/// When the parent is gone, Linux sends SIGTERM, and not SIGKILL: a program that listens then ends what it has started itself. To be
/// exact, it does so when the thread is gone that has started this process, and that is in [`run`](crate::child::run) as long as the program runs.
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
        #[cfg(target_os = "linux")]
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::getppid()
    };
    // It may have been gone before that was asked for.
    if parent_now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// The pipe that a signal's number is written to.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// Whether a signal has come.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM and SIGHUP call `end` with their number, once, in a thread of its own: it ends the program in order, with
/// all that it has started ([`child::end_all`](crate::child::end_all), then [`exit`]). SIGHUP stays ignored if it is, as under `nohup`.
/// Where this fails, signals end the program all the same, only without that.
///
/// For a program's `main`, once, before anything else runs.
pub fn listen(end: fn(i32)) {
    let Ok((mut reader, writer)) = io::pipe() else { return };
    PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
    let listening = thread::Builder::new().spawn(move || {
        let mut number = [0];
        // The other end is never closed.
        if reader.read_exact(&mut number).is_ok() {
            end(number[0].into());
        }
    });
    if listening.is_err() {
        return;
    }
    // SAFETY: `told` is a signal handler, see there. `action` and `unblocked` are plain data for which zeros are valid, and are
    // borrowed for the calls only. The default disposition of SIGCHLD is what `std::process` needs to wait for a process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = told as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        let mut unblocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut unblocked);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            if signal != libc::SIGHUP || old.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
                libc::sigaddset(&raw mut unblocked, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const unblocked, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Runs wherever the program is when a signal comes, so it may do next to nothing: hands the number over. Atomics and `write` are
/// among what it may use. Only the first signal is written, to an empty pipe with a reader: that does not wait, and does not fail,
/// so it leaves `errno` as it was.
extern "C" fn told(signal: libc::c_int) {
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let (number, pipe): (u8, RawFd) = (signal as u8, PIPE.load(Ordering::Relaxed));
    // SAFETY: one byte is read, which is there.
    unsafe { libc::write(pipe, (&raw const number).cast(), 1) };
}

/// Ends the process. Nothing is run that waits for a GPU, as the driver's own clean-up would, for a kernel that may never end.
pub fn exit(code: i32) -> ! {
    // SAFETY: has no conditions.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_parent_is_gone_does_not_begin() {
        let somebody_else = std::process::id() as libc::pid_t + 1;
        let mut command = Command::new("true");
        // SAFETY: as in `separate`.
        let spawned = unsafe { command.pre_exec(move || prepare(somebody_else)) }.spawn();
        assert_eq!(spawned.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
