//! Files that are read and written, whatever their paths lead to.
//!
//! | a path leads to | who writes there |
//! |---|---|
//! | nothing yet | makes a file, which gets its name when all of it has reached the disk |
//! | a regular file | replaces it in the same way: whoever looks finds the old one or the new one, whole. Mode and owner stay |
//! | a link | does with its target what stands here, and the link stays |
//! | a device, a FIFO, a socket | writes to it |
//! | a descriptor of this process, as `/dev/stdout` does | writes to it, after what has been written there before |
//! | a directory | refuses |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;

/// The most that a file of a report, a table or PTX may have, in bytes: many times what any has.
const MAX_FILE: u64 = 64 << 20;

/// How many links may lead from one to the next, as on Linux.
const MOST_LINKS: usize = 40;

/// The mode that a new file has, less what the user's mask takes from it.
const NEW_FILE: u32 = 0o666;

/// What of a mode a file that replaces another one takes over: nobody gets the rights of its owner by running it.
const KEPT_MODE: u32 = 0o777;

/// What a path leads to, as far as writing is concerned.
enum Target {
    /// A regular file, or nothing yet, under a name that is no link.
    File { path: PathBuf, present: Option<fs::Metadata> },
    /// A descriptor that this process has open.
    Descriptor(RawFd),
    /// A device, or a FIFO.
    Stream,
    /// A socket in the file system.
    Socket,
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let end = follow_links(path)?;
        if let Some(number) = own_descriptor(&end) {
            return Ok(Self::Descriptor(number));
        }
        let present = match fs::metadata(path) {
            Ok(present) => present,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_name(&end) => {
                return Ok(Self::File { path: end, present: None });
            }
            Err(error) => return Err(error),
        };
        let kind = present.file_type();
        match (kind.is_file(), kind.is_dir(), kind.is_socket()) {
            (true, ..) => Ok(Self::File { path: fs::canonicalize(path)?, present: Some(present) }),
            (_, true, _) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory: name a file")),
            (_, _, true) => Ok(Self::Socket),
            _ => Ok(Self::Stream),
        }
    }
}

/// Where the links lead that a path ends with: to nothing, perhaps. Not beyond a descriptor of this process.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(next) if own_descriptor(&path).is_none() => path = directory_of(&path).join(next),
            _ => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Whether a file could have this name.
fn may_be_name(path: &Path) -> bool {
    path.file_name().is_some() && !path.as_os_str().as_bytes().ends_with(b"/")
}

/// The number of the descriptor that a path of the form `/proc/self/fd/1` stands for.
fn own_descriptor(path: &Path) -> Option<RawFd> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    (fs::canonicalize(directory_of(path)).ok()? == own).then_some(number)
}

/// The directory that a file is in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Finds out whether a file could be written, before a long run. What is there stays as it is, and a FIFO is not opened: whoever
/// reads it would take that for all there is.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn check_writable(path: &Path) -> Result<(), Error> {
    let check = || match Target::of(path)? {
        Target::File { path, present } => temporary(&path, present.as_ref()).map(drop),
        Target::Descriptor(number) => duplicate(number).map(drop),
        Target::Stream | Target::Socket => may_be_written(path),
    };
    check().map_err(|source| Error::File { action: "write", path: path.to_owned(), source })
}

/// Writes a file, as the head of this module says.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let write = || match Target::of(path)? {
        Target::File { path, present } => replace(&path, present.as_ref(), content),
        Target::Descriptor(number) => duplicate(number)?.write_all(content),
        // A terminal does not become this process's own.
        Target::Stream => OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?.write_all(content),
        Target::Socket => UnixStream::connect(path)?.write_all(content),
    };
    write().map_err(|source| Error::File { action: "write", path: path.to_owned(), source })
}

/// Whether a second [`write()`] takes the place of the first, rather than follow it.
pub(crate) fn is_replaced(path: &Path) -> bool {
    matches!(Target::of(path), Ok(Target::File { .. }))
}

/// Writes something as JSON.
///
/// # Errors
/// As for [`write()`].
pub(crate) fn write_json(path: &Path, content: &impl Serialize) -> Result<(), Error> {
    let mut text = serde_json::to_vec_pretty(content).map_err(|error| Error::File {
        action: "write",
        path: path.to_owned(),
        source: error.into(),
    })?;
    text.push(b'\n');
    write(path, &text)
}

/// Replaces a regular file in one step, or makes it.
fn replace(path: &Path, present: Option<&fs::Metadata>, content: &[u8]) -> io::Result<()> {
    let Temporary { mut file, writing: _writing } = temporary(path, present)?;
    file.write_all(content)?;
    // Some file systems notice only now that there is no room.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A descriptor of this process once more, if it can be written to.
fn duplicate(number: RawFd) -> io::Result<File> {
    // SAFETY: takes and gives numbers only.
    let (flags, copy) = unsafe { (libc::fcntl(number, libc::F_GETFL), libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0)) };
    if copy == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has just been opened, and nothing else has it.
    let copy = File::from(unsafe { OwnedFd::from_raw_fd(copy) });
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Err(io::Error::from_raw_os_error(libc::EBADF)),
        _ => Ok(copy),
    }
}

/// Refuses what this user may not write to.
fn may_be_written(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the string ends with a zero and lives until the end of the call.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file that has a temporary name. Dropped from the top, which removes it.
struct Temporary {
    file: tempfile::NamedTempFile,
    /// Nobody who ends the program by [`without_half_written_files`] does so before this is dropped.
    writing: MutexGuard<'static, ()>,
}

/// Locked while there is a temporary file.
static WRITING: Mutex<()> = Mutex::new(());

/// A file in the directory of `path`, so that it can take that name in one step, with the mode and the owner of what is there.
fn temporary(path: &Path, present: Option<&fs::Metadata>) -> io::Result<Temporary> {
    let directory = directory_of(path);
    fs::metadata(directory)?;
    if present.is_some() {
        // The directory may let a file be replaced that does not let itself be written.
        may_be_written(path)?;
    }
    // As any new file: the default would be readable by its owner only.
    let mode = fs::Permissions::from_mode(NEW_FILE);
    let writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let file = tempfile::Builder::new().prefix(".tilewright-").permissions(mode).tempfile_in(directory)?;
    if let Some(present) = present {
        // Where only the superuser may, the file belongs to whoever writes it.
        let _ = fchown(file.as_file(), None, Some(present.gid()));
        let _ = fchown(file.as_file(), Some(present.uid()), None);
        file.as_file().set_permissions(fs::Permissions::from_mode(present.mode() & KEPT_MODE))?;
    }
    Ok(Temporary { file, writing })
}

/// Waits until this program writes no file, and lets it begin none while there is the result: for whoever ends the program early,
/// and should leave no temporary files. A disk on which nothing moves is not waited for.
pub fn without_half_written_files() -> impl Sized {
    const PATIENCE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    loop {
        match WRITING.try_lock() {
            Ok(none) => return Some(none),
            Err(TryLockError::Poisoned(none)) => return Some(none.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Reads a file, of which no more is looked at than a report, a table or PTX can have: what a path leads to may be a device that
/// never ends, and memory does.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 {
            0..=MAX_FILE => Ok(bytes),
            _ => Err(io::Error::other(format!(
                "it has more than {} MiB, and nothing that is read here has",
                MAX_FILE >> 20
            ))),
        }
    };
    read().map_err(|source| Error::File { action: "read", path: path.to_owned(), source })
}

/// The same for what has to be text.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is not text");
        Error::File { action: "read", path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests;
