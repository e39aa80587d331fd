//! Writing files so that no other process ever sees half of one.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::Error;

/// Writes a file by renaming a finished one, together with the directories above it. A file that has these contents
/// already is left alone, and its time with it.
///
/// # Errors
/// [`Error::Io`].
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|present| present == contents) {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(Error::io("create the directory", directory))?;
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(directory)
        .map_err(Error::io("create a file in", directory))?;
    file.write_all(contents).map_err(Error::io("write", path))?;
    // Some file systems notice only now that there is no room.
    file.as_file().sync_all().map_err(Error::io("write", path))?;
    file.persist(path).map_err(|error| error.error).map_err(Error::io("write", path))?;
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn says_which_file_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomically(directory.path(), b"1").unwrap_err().to_string();
        assert!(error.contains(&directory.path().display().to_string()), "{error}");
    }
}
