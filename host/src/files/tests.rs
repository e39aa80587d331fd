use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use tempfile::TempDir;

use super::*;

/// A directory, and a path in it.
fn scratch(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    (directory, path)
}

fn entries(directory: &TempDir) -> usize {
    fs::read_dir(directory.path()).unwrap().count()
}

/// As a command does that looks first and writes after a long run.
fn check_and_write(path: &Path, content: &[u8]) -> Result<(), String> {
    let looked = check_writable(path).map_err(|error| error.to_string());
    let written = looked.clone().and_then(|()| write(path, content).map_err(|error| error.to_string()));
    assert_eq!(looked.is_ok(), written.is_ok(), "it is known before");
    written
}

/// A special file: a device, or a FIFO.
fn make_node(path: &Path, kind: libc::mode_t, device: libc::dev_t) -> io::Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the string ends with a zero and lives until the end of the call.
    match unsafe { libc::mknod(name.as_ptr(), kind | 0o666, device) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn a_file_is_replaced_in_one_step_and_keeps_its_mode_and_owner() {
    let (directory, path) = scratch("report.json");
    check_and_write(&path, b"1").unwrap();
    let new = fs::metadata(&path).unwrap();
    fs::write(directory.path().join("other"), "").unwrap();
    let other = fs::metadata(directory.path().join("other")).unwrap();
    assert_eq!(new.mode(), other.mode(), "as any new file");

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Only the superuser can do that.
    let is_given_away = std::os::unix::fs::chown(&path, Some(12345), Some(23456)).is_ok();
    let reader = File::open(&path).unwrap();
    check_and_write(&path, b"2").unwrap();
    let now = fs::metadata(&path).unwrap();
    assert_eq!((fs::read(&path).unwrap(), now.mode() & 0o7777), (b"2".to_vec(), 0o640));
    assert!(!is_given_away || (now.uid(), now.gid()) == (12345, 23456));
    assert_eq!(io::read_to_string(reader).unwrap(), "1", "who reads the old one reads all of it");
    assert_eq!(entries(&directory), 2, "a temporary file is left");
}

#[test]
fn a_link_stays_and_its_target_is_written() {
    let (directory, link) = scratch("link");
    let inside = |name: &str| directory.path().join(name);
    fs::create_dir(inside("below")).unwrap();
    fs::write(inside("below/report.json"), "old").unwrap();
    symlink("below/second", &link).unwrap();
    symlink("report.json", inside("below/second")).unwrap();
    check_and_write(&link, b"new").unwrap();
    assert_eq!(fs::read(inside("below/report.json")).unwrap(), b"new");
    for link in [&link, &inside("below/second")] {
        assert!(fs::symlink_metadata(link).unwrap().is_symlink(), "{} is replaced", link.display());
    }
    // Nothing is there yet.
    fs::remove_file(inside("below/report.json")).unwrap();
    check_and_write(&link, b"newer").unwrap();
    assert_eq!(fs::read(inside("below/report.json")).unwrap(), b"newer");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(inside("below")).unwrap().count(), 2, "a temporary file is left");

    for (target, part) in [("below", "is a directory"), ("loop", "symbolic links"), ("no/such/directory/x", "No such")]
    {
        let link = inside("loop");
        symlink(target, &link).unwrap();
        let message = check_and_write(&link, b"").unwrap_err();
        assert!(message.contains("cannot write") && message.contains(part), "{target}: {message}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_file(&link).unwrap();
    }
}

/// Nodes of this test's own: what replaces a device replaces these.
#[test]
fn a_device_is_written_to_and_stays() {
    let (directory, null) = scratch("null");
    let full = directory.path().join("full");
    let made = make_node(&null, libc::S_IFCHR, libc::makedev(1, 3));
    if made.and_then(|()| make_node(&full, libc::S_IFCHR, libc::makedev(1, 7))).is_err() || File::open(&null).is_err() {
        eprintln!("skipped: devices cannot be made, or not be opened, in {}", directory.path().display());
        return;
    }
    check_and_write(&null, b"x").unwrap();
    check_writable(&full).unwrap();
    let message = write(&full, b"x").unwrap_err().to_string();
    assert!(message.contains("No space left on device"), "{message}");
    let link = directory.path().join("link");
    symlink("null", &link).unwrap();
    check_and_write(&link, b"x").unwrap();
    for device in [null, full] {
        assert!(fs::symlink_metadata(&device).unwrap().file_type().is_char_device(), "{}", device.display());
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(entries(&directory), 3);
}

#[test]
fn a_fifo_and_a_socket_get_what_is_written_and_nothing_before() {
    let (directory, fifo) = scratch("fifo");
    make_node(&fifo, libc::S_IFIFO, 0).unwrap();
    // Neither waits for a reader nor lets one think that this was all.
    check_writable(&fifo).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    std::thread::sleep(Duration::from_millis(50));
    check_and_write(&fifo, b"all").unwrap();
    assert_eq!(reader.join().unwrap(), b"all");
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());

    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let reader = std::thread::spawn(move || io::read_to_string(listener.accept().unwrap().0).unwrap());
    check_and_write(&socket, b"all").unwrap();
    assert_eq!(reader.join().unwrap(), "all");
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
}

/// What `/dev/stdout` leads to, with numbers of this test's own.
#[test]
fn a_descriptor_of_this_process_is_written_to_after_what_was_written_before() {
    use std::os::fd::AsRawFd;
    let (directory, path) = scratch("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"table, ").unwrap();
    let name = format!("/dev/fd/{}", file.as_raw_fd());
    let link = directory.path().join("link");
    symlink(&name, &link).unwrap();
    check_and_write(Path::new(&name), b"report, ").unwrap();
    check_and_write(&link, b"report").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"table, report, report");
    assert!(is_replaced(&path) && !is_replaced(&link));

    let (reader, writer) = io::pipe().unwrap();
    check_and_write(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())), b"report").unwrap();
    let name = format!("/dev/fd/{}", reader.as_raw_fd());
    assert!(check_and_write(Path::new(&name), b"").unwrap_err().contains("Bad file descriptor"));
    drop(writer);
    assert_eq!(io::read_to_string(reader).unwrap(), "report");
    assert!(check_and_write(Path::new("/dev/fd/99999"), b"").is_err());
}

#[test]
fn what_cannot_be_written_is_refused_before_and_named() {
    let (directory, file) = scratch("file");
    fs::write(&file, "old").unwrap();
    let inside = |name: &str| directory.path().join(name).display().to_string();
    for (path, part) in [
        (inside(""), "it is a directory"),
        (inside("missing/x"), "No such file"),
        (inside("file/x"), "Not a directory"),
        (inside("file/"), "Not a directory"),
        (inside("missing/"), "No such file"),
        (inside("missing/.."), "No such file"),
        (inside(&"x".repeat(300)), "name too long"),
        (String::new(), "No such file"),
    ] {
        let message = check_and_write(Path::new(&path), b"").unwrap_err();
        assert!(message.contains(&format!("cannot write {path}")) && message.contains(part), "{message}");
    }
    assert_eq!((fs::read(&file).unwrap(), entries(&directory)), (b"old".to_vec(), 1));
}

#[test]
fn who_ends_the_program_waits_until_no_file_is_half_written() {
    let (directory, path) = scratch("report.json");
    let (sender, receiver) = mpsc::channel();
    let half_written = temporary(&path, None).unwrap();
    let waiting = std::thread::spawn(move || {
        sender.send(()).unwrap();
        drop(without_half_written_files());
        sender.send(()).unwrap();
    });
    receiver.recv().unwrap();
    assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err(), "it has not waited");
    drop(half_written);
    waiting.join().unwrap();
    receiver.recv().unwrap();
    assert_eq!(entries(&directory), 0);
}

#[test]
fn what_never_ends_is_not_read_to_its_end() {
    let endless = Path::new("/dev/zero");
    if endless.exists() {
        let message = read_text(endless).unwrap_err().to_string();
        assert!(message.contains("cannot read /dev/zero: it has more than 64 MiB"), "{message}");
    }
}
