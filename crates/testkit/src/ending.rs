//! How a program ends early: by Ctrl-C, or because a supervisor or a terminal that is closed tells it to.

use std::io::Read;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

/// What a shell reports for a program that a signal has ended: this, and the signal's number.
pub const SIGNALLED: i32 = 128;

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
    let Ok((mut reader, writer)) = std::io::pipe() else { return };
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
