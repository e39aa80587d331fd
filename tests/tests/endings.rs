//! How the program ends that does not end by itself: by Ctrl-C at any moment, and by a time limit.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};
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

fn interrupt(child: &Child) {
    let id = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: sends a signal to a child that has not been waited for, so the number is still its.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
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

    let mut command = program(&[&endless[..], &["--time-limit", "1000"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    assert_eq!(end(&mut child), Some(130));
    // Ends only when nobody has the other end any more: no process is left.
    assert_eq!(std::io::read_to_string(child.stdout.take().unwrap()).unwrap(), "");
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
