//! Writing files so that no other process ever sees half of one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// How many links may lead from one to the next, as on Linux.
const MOST_LINKS: usize = 40;

/// Writes a file by renaming a finished one, together with the directories above it. A file that has these contents
/// already is left alone, and its time with it. One that is replaced keeps its permissions.
///
/// Links stay: the file that they lead to is written. Devices, FIFOs, sockets and directories are refused, and stay.
///
/// # Errors
/// [`Error::Io`].
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let (target, present) = regular_file(path).map_err(Error::io("write", path))?;
    if present.is_some() && fs::read(&target).is_ok_and(|present| present == contents) {
        return Ok(());
    }
    let directory = directory_of(&target);
    fs::create_dir_all(directory).map_err(Error::io("create the directory", directory))?;
    let mut file = for_everybody().tempfile_in(directory).map_err(Error::io("create a file in", directory))?;
    file.write_all(contents).map_err(Error::io("write", path))?;
    if let Some(present) = present {
        file.as_file().set_permissions(present).map_err(Error::io("write", path))?;
    }
    // Some file systems notice only now that there is no room.
    file.as_file().sync_all().map_err(Error::io("write", path))?;
    file.persist(&target).map_err(|error| error.error).map_err(Error::io("write", path))?;
    Ok(())
}

/// A temporary file that others may read, as the umask says; by itself it would be this user's alone.
#[cfg(unix)]
fn for_everybody() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut builder = tempfile::Builder::new();
    builder.permissions(fs::Permissions::from_mode(0o666));
    builder
}

#[cfg(not(unix))]
fn for_everybody() -> tempfile::Builder<'static, 'static> {
    tempfile::Builder::new()
}

/// The name, which is no link, under which the file is that a path leads to, and its permissions if it is there.
fn regular_file(path: &Path) -> io::Result<(PathBuf, Option<fs::Permissions>)> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(next) = fs::read_link(&target) {
            target = directory_of(&target).join(next);
            continue;
        }
        // Not opened: who opens a FIFO waits for another process.
        return match fs::symlink_metadata(&target) {
            Ok(present) if present.is_file() => Ok((target, Some(present.permissions()))),
            Ok(_) => Err(io::Error::other("it is not a regular file: name one, or a file that is not there yet")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((target, None)),
            Err(error) => Err(error),
        };
    }
    Err(io::Error::other(format!("more than {MOST_LINKS} links lead from one to the next, perhaps in a circle")))
}

/// The directory that a file is in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn writes_replaces_and_leaves_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b.txt");
        write_atomically(&path, b"1").unwrap();
        let first = fs::metadata(&path).unwrap();
        write_atomically(&path, b"1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), first.modified().unwrap());
        write_atomically(&path, b"2").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }

    /// In a process of its own that the system lets write to no file, as where a disk is full.
    #[test]
    fn where_nothing_can_be_written_an_older_file_stays_whole() {
        const PLACE: &str = "TILEWRIGHT_TEST_WITHOUT_ROOM";
        if let Some(path) = std::env::var_os(PLACE) {
            let error = write_atomically(Path::new(&path), b"new").unwrap_err().to_string();
            assert!(error.contains("older.txt") && error.contains("File too large"), "{error}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("older.txt");
        fs::write(&path, "older").unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["where_nothing_can_be_written_an_older_file_stays_whole", "--test-threads=1"])
            .env(PLACE, &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "older");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn a_link_stays_and_its_target_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("other")).unwrap();
        fs::write(path("other/target"), "older").unwrap();
        symlink("other/target", path("first")).unwrap();
        symlink("first", path("second")).unwrap();
        fs::set_permissions(path("other/target"), fs::Permissions::from_mode(0o640)).unwrap();
        write_atomically(&path("second"), b"new").unwrap();
        let mode = fs::metadata(path("other/target")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "permissions stay");
        assert_eq!(fs::read_to_string(path("other/target")).unwrap(), "new");
        assert!(path("first").is_symlink() && path("second").is_symlink());
        assert_eq!(fs::read_dir(path("other")).unwrap().count(), 1, "no temporary file stays");

        symlink("other/none", path("dangling")).unwrap();
        write_atomically(&path("dangling"), b"new").unwrap();
        assert_eq!(fs::read_to_string(path("other/none")).unwrap(), "new");
        symlink("circle", path("circle")).unwrap();
        let error = write_atomically(&path("circle"), b"new").unwrap_err().to_string();
        assert!(error.contains("circle") && path("circle").is_symlink(), "{error}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (fifo, link) = (directory.path().join("fifo"), directory.path().join("link"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        symlink(&fifo, &link).unwrap();
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&fifo, &link, &socket] {
            let error = write_atomically(path, b"new").unwrap_err().to_string();
            assert!(error.contains("not a regular file") && error.contains(&path.display().to_string()), "{error}");
        }
        assert!(fs::metadata(&link).unwrap().file_type().is_fifo() && link.is_symlink());
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "no temporary file stays");
    }

    #[test]
    fn says_which_file_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomically(directory.path(), b"1").unwrap_err().to_string();
        assert!(error.contains(&directory.path().display().to_string()), "{error}");
    }
}
