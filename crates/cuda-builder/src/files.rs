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

    #[test]
    fn says_which_file_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_atomically(directory.path(), b"1").unwrap_err().to_string();
        assert!(error.contains(&directory.path().display().to_string()), "{error}");
    }
}
