//! How the program ends that does not end by itself: by Ctrl-C or another signal at any moment, by a time limit, and with the
//! program that has started it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tests::program;

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Waits for a program that should end soon.
fn end(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(start.elapsed() < Duration::from_secs(3), "it took {:?}", start.elapsed());
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it goes on after ten seconds");
}

fn send(child: &Child, signal: libc::c_int) {
    let id = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: sends a signal to a child that has not been waited for, so the number is still its.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

fn interrupt(child: &Child) {
    send(child, libc::SIGINT);
}

/// Has a program start with a signal ignored, or not, whatever holds for this test.
fn with_signal(mut command: Command, signal: libc::c_int, disposition: libc::sighandler_t) -> Command {
    let set = move || {
        // SAFETY: the disposition is no function.
        unsafe { libc::signal(signal, disposition) };
        Ok(())
    };
    // SAFETY: `signal` may be called between fork and exec.
    unsafe { command.pre_exec(set) };
    command
}

/// Waits until a program has started one of its own.
fn wait_for_child_of(child: &Child) {
    let start = Instant::now();
    let is_child = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // After the name, which may have anything in it: the state, and the number of the parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent == Some(&child.id().to_string())
    };
    while !fs::read_dir("/proc").unwrap().any(|entry| entry.is_ok_and(is_child)) {
        assert!(start.elapsed() < Duration::from_secs(10), "it starts nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Time for the new one to come to its kernel.
    std::thread::sleep(Duration::from_millis(300));
}

/// All that can be read until nobody has the other end any more, which has to be soon.
fn rest_of(mut output: impl Read + Send + 'static) -> String {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        sender.send(text).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(5)).expect("a process is left that has the other end")
}

/// What the program says when it is interrupted.
const MESSAGE: &str = "interrupted: what was not finished is not written";

#[test]
fn ctrl_c_ends_a_long_run_with_code_130_and_leaves_no_file() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("report.json");
    let arguments = ["--device", "cpu", "--problem", "a-bt", "--runs", "1000000", "--json", file.to_str().unwrap()];
    let mut child = program(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut heading = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut heading).unwrap();
    assert!(heading.contains("tilewright"), "{heading}");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    assert_eq!(end(&mut child), Some(130));
    assert_eq!(std::io::read_to_string(child.stderr.take().unwrap()).unwrap().trim(), MESSAGE);
    assert!(entries(directory.path()).is_empty());
}

/// As Ctrl-C does, those end the program that a supervisor sends, and a terminal that is closed.
#[test]
fn sigterm_and_sighup_end_a_run_with_their_codes_and_leave_no_file() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("report.json");
        let arguments = ["--device", "cpu", "--problem", "a-bt", "--runs", "1000000", "--json", file.to_str().unwrap()];
        let mut command = with_signal(program(&arguments), signal, libc::SIG_DFL);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut heading = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut heading).unwrap();
        send(&child, signal);
        assert_eq!(end(&mut child), Some(code));
        assert_eq!(std::io::read_to_string(child.stderr.take().unwrap()).unwrap().trim(), MESSAGE);
        assert!(entries(directory.path()).is_empty());
    }
}

/// `nohup` has a program ignore it.
#[test]
fn sighup_that_is_ignored_from_the_start_stays_ignored() {
    let arguments = ["--device", "cpu", "--problem", "a-bt", "--runs", "1000000"];
    let mut command = with_signal(program(&arguments), libc::SIGHUP, libc::SIG_IGN);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut heading = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut heading).unwrap();
    send(&child, libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    interrupt(&child);
    assert_eq!(end(&mut child), Some(130));
}

/// The message can wait for ever for somebody to read it; the program does not.
#[test]
fn ctrl_c_ends_the_program_though_nobody_reads_what_it_says() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let stderr = writer.try_clone().unwrap();
    // More than a pipe holds, so what follows has to wait. The thread ends with the reader.
    let full = std::thread::spawn(move || writer.write_all(&vec![b'x'; 1 << 20]));
    std::thread::sleep(Duration::from_millis(100));
    let mut command = program(&["planted", "endless", "--device", "cpu"]);
    let mut child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    assert_eq!(end(&mut child), Some(130));
    drop(reader);
    assert!(full.join().unwrap().is_err());
}

/// Whenever the program is interrupted: the older report is there, or the new one, and nothing else.
#[test]
fn ctrl_c_at_any_moment_leaves_whole_files() {
    const MOMENTS: u32 = 40;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("report.json");
    let arguments = [
        "--device=cpu",
        "--problem=large-k",
        "--m=17",
        "--n=33",
        "--k=40",
        "--runs=2",
        "--json",
        file.to_str().unwrap(),
    ];
    let start = || program(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Built by the first use.
    start().wait().unwrap();
    let began = Instant::now();
    start().wait().unwrap();
    let whole = began.elapsed();
    let mut interrupted = 0;
    for moment in 0..MOMENTS {
        fs::write(&file, "older").unwrap();
        let mut child = start();
        std::thread::sleep(whole * moment / MOMENTS);
        interrupt(&child);
        let code = end(&mut child);
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        let found = fs::read_to_string(&file).unwrap();
        match code {
            // Before it listens, the signal itself ends it.
            None => assert_eq!((found.as_str(), said.as_str()), ("older", "")),
            Some(130) => {
                assert_eq!(said.trim(), MESSAGE);
                interrupted += 1;
            }
            Some(0) => assert_ne!(found, "older"),
            Some(other) => panic!("code {other}: {said}"),
        }
        assert!(found == "older" || serde_json::from_str::<serde_json::Value>(&found).is_ok(), "half a file: {found}");
        assert_eq!(entries(directory.path()), ["report.json"], "after {:?} of {whole:?}", whole * moment / MOMENTS);
    }
    assert!(interrupted > 0, "the program has never been interrupted");
}

/// A kernel that never ends is ended with its process: by the limit, or with the program that has set it.
#[test]
fn a_kernel_that_never_ends_is_ended_by_the_time_limit() {
    let endless = ["planted", "endless", "--device", "cpu"];
    let output = program(&[&endless[..], &["--time-limit", "1"]].concat()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.contains("not finished after 1 s") && said.contains("--time-limit"), "{said}");

    for (signal, code) in [
        (libc::SIGINT, Some(130)),
        (libc::SIGTERM, Some(143)),
        (libc::SIGHUP, Some(129)),
        // Nothing can be done about these, so the process that it has started has to see for itself.
        (libc::SIGQUIT, None),
        (libc::SIGKILL, None),
    ] {
        let limited = program(&[&endless[..], &["--time-limit", "1000"]].concat());
        let mut command = with_signal(limited, signal, libc::SIG_DFL);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_child_of(&child);
        send(&child, signal);
        assert_eq!(end(&mut child), code, "signal {signal}");
        assert_eq!(rest_of(child.stdout.take().unwrap()), "");
    }
}

/// Nobody would hear of the end of a process, were that so.
#[test]
fn a_time_limit_works_where_the_ends_of_processes_are_ignored() {
    let endless = program(&["planted", "endless", "--device", "cpu", "--time-limit", "1"]);
    let output = with_signal(endless, libc::SIGCHLD, libc::SIG_IGN).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", String::from_utf8_lossy(&output.stderr));
    let list = program(&["--list", "--time-limit", "600"]);
    let output = with_signal(list, libc::SIGCHLD, libc::SIG_IGN).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn within_its_time_limit_a_program_is_as_without() {
    let small = ["--device=cpu", "--problem=large-k", "--m=17", "--n=33", "--k=40", "--runs=2", "--time-limit=600"];
    let output = program(&small).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.code() == Some(0) && output.stderr.is_empty() && text.contains("All 5 checks passed"),
        "{text}"
    );
    for (arguments, code, part) in [
        (&["run", "--problem", "mat", "--time-limit", "600"][..], 2, "unknown problem `mat`"),
        (&["planted", "trap", "--device", "cpu", "--time-limit=600"], 1, "planted_trap"),
        (&["--time-limit", "0"], 2, "--time-limit"),
    ] {
        let output = program(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

/// The two ends of a new terminal of 80 columns: the one of the person before it, and the one of the program.
fn terminal() -> [OwnedFd; 2] {
    let (mut person, mut program) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the two numbers are written to; no name and no modes are asked for or given.
    let opened = unsafe {
        libc::openpty(&raw mut person, &raw mut program, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(opened, 0, "there are no terminals: {}", std::io::Error::last_os_error());
    // SAFETY: `openpty` has just opened both, and nothing else has them.
    [person, program].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[test]
fn ctrl_c_takes_the_progress_bar_off_the_terminal() {
    // What every bar ends with.
    const BAR: &str = " left";
    let [person, at_program] = terminal();
    // Either the inputs or the reference take long enough for a bar, with and without optimization.
    let arguments = ["--device", "cpu", "--problem", "a-bt", "--m", "4096", "--n", "4096", "--k", "8192"];
    let mut child = program(&arguments).stdout(Stdio::null()).stderr(at_program).spawn().unwrap();
    let mut person = fs::File::from(person);
    let mut seen = String::new();
    let start = Instant::now();
    while !seen.contains(BAR) {
        assert!(start.elapsed() < Duration::from_secs(60), "there is no progress bar: {seen:?}");
        let mut bytes = [0; 4096];
        let count = person.read(&mut bytes).unwrap();
        seen += &String::from_utf8_lossy(&bytes[..count]);
    }
    interrupt(&child);
    assert_eq!(end(&mut child), Some(130));
    let mut rest = Vec::new();
    // At its end a terminal gives an error.
    let _ = person.read_to_end(&mut rest);
    seen += &String::from_utf8_lossy(&rest);
    let after_the_bar = seen.rsplit_once(BAR).unwrap().1;
    assert!(after_the_bar.contains("\x1b[2K"), "the line was not erased: {after_the_bar:?}");
    let left = after_the_bar.rsplit_once("\x1b[2K").unwrap().1;
    assert_eq!(left.trim(), MESSAGE, "something else is left");
}
