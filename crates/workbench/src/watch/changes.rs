//! Which sources have changed: told by the operating system, and looked up again, because editors write a file in several steps, or another
//! file that takes its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// So long the sources have to stay as they are before what has changed counts as all of it.
const QUIET: Duration = Duration::from_millis(30);
/// After so long it counts in any case.
const LATEST: Duration = Duration::from_millis(400);

/// What a source is taken for, to see whether it is another one.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// The sources of some packages, and what happens to them.
pub(super) struct Changes {
    /// Ends watching when it is dropped.
    _watcher: RecommendedWatcher,
    told: Receiver<notify::Result<notify::Event>>,
    packages: Vec<PathBuf>,
    known: Contents,
}

impl Changes {
    /// Watches the packages in these directories.
    pub(super) fn of(packages: &[PathBuf]) -> anyhow::Result<Self> {
        let (sender, told) = channel();
        let failed = "the operating system does not tell of changed files: `watch --once` looks at the kernel once";
        let mut watcher = notify::recommended_watcher(move |event| {
            // The receiver is gone at the end only.
            let _ = sender.send(event);
        })
        .context(failed)?;
        for package in packages {
            let mut watch = |path: &Path, mode| {
                watcher.watch(path, mode).with_context(|| format!("cannot watch {}: {failed}", path.display()))
            };
            // Manifests and build scripts; the target directory may be beside them, and much happens there.
            watch(package, RecursiveMode::NonRecursive)?;
            if package.join("src").is_dir() {
                watch(&package.join("src"), RecursiveMode::Recursive)?;
            }
        }
        let known = contents(packages);
        Ok(Self { _watcher: watcher, told, packages: packages.to_vec(), known })
    }

    /// Whether a source is another one than at the last [`wait`](Self::wait). Takes no notice: the next wait has it still. The sources are only
    /// read if something was told of one, so that this may be asked often.
    pub(super) fn has_some(&self) -> bool {
        let told = self.told.try_iter().filter(is_of_interest).count();
        told > 0 && contents(&self.packages) != self.known
    }

    /// Waits until a source is another one than it was, and stays so for a moment; which ones are.
    pub(super) fn wait(&mut self) -> anyhow::Result<Vec<PathBuf>> {
        loop {
            let mut now = contents(&self.packages);
            let first = Instant::now();
            while now != self.known {
                thread::sleep(QUIET);
                let next = contents(&self.packages);
                if next == now || first.elapsed() > LATEST {
                    let is_new = |path: &&PathBuf| self.known.get(*path) != next.get(*path);
                    let changed: BTreeSet<PathBuf> =
                        next.keys().chain(self.known.keys()).filter(is_new).cloned().collect();
                    self.known = next;
                    return Ok(changed.into_iter().collect());
                }
                now = next;
            }
            while !is_of_interest(&self.told.recv().context("watching has ended")?) {}
        }
    }
}

/// Not what is only read, and not what is no source. An error may hide anything, and so may an event about no file, or about a directory.
fn is_of_interest(event: &notify::Result<notify::Event>) -> bool {
    let Ok(event) = event else { return true };
    let may_be_source =
        |path: &PathBuf| path.extension().is_none_or(|extension| extension == "rs" || extension == "toml");
    !matches!(event.kind, EventKind::Access(_)) && (event.paths.is_empty() || event.paths.iter().any(may_be_source))
}

/// The sources of packages: Rust, and manifests. A file that is just being replaced is not there.
fn contents(packages: &[PathBuf]) -> Contents {
    let mut all = Contents::new();
    for package in packages {
        let mut take = |path: PathBuf| {
            if let Ok(text) = fs::read(&path) {
                all.insert(path, text);
            }
        };
        take(package.join("Cargo.toml"));
        take(package.join("build.rs"));
        let mut left = vec![package.join("src")];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                match path.extension() {
                    Some(extension) if extension == "rs" => take(path),
                    _ if path.is_dir() => left.push(path),
                    _ => {}
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernels");
        fs::create_dir_all(path.join("src/deep")).unwrap();
        for file in ["Cargo.toml", "src/lib.rs", "src/deep/one.rs"] {
            fs::write(path.join(file), "old").unwrap();
        }
        (directory, path)
    }

    #[test]
    fn writes_renames_and_new_files_are_noticed_and_each_once() {
        let (_directory, path) = package();
        let mut changes = Changes::of(std::slice::from_ref(&path)).unwrap();
        assert!(!changes.has_some());
        fs::write(path.join("src/lib.rs"), "new").unwrap();
        // What was told is told a moment later.
        let told = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            changes.has_some()
        });
        assert!(told);
        assert_eq!(changes.wait().unwrap(), [path.join("src/lib.rs")]);
        // As editors do that keep the old file until the new one is whole.
        fs::write(path.join("src/deep/.one.rs.swp"), "newer").unwrap();
        fs::rename(path.join("src/deep/.one.rs.swp"), path.join("src/deep/one.rs")).unwrap();
        assert_eq!(changes.wait().unwrap(), [path.join("src/deep/one.rs")]);
        fs::write(path.join("src/two.rs"), "x").unwrap();
        assert_eq!(changes.wait().unwrap(), [path.join("src/two.rs")]);
        fs::remove_file(path.join("src/two.rs")).unwrap();
        assert_eq!(changes.wait().unwrap(), [path.join("src/two.rs")]);
        assert!(!changes.has_some());
    }

    /// As by an editor that first takes the old file away.
    #[test]
    fn a_file_that_is_gone_for_a_moment_is_waited_for() {
        let (_directory, path) = package();
        let mut changes = Changes::of(std::slice::from_ref(&path)).unwrap();
        let source = path.join("src/lib.rs");
        fs::rename(&source, path.join("src/lib.rs~")).unwrap();
        let later = thread::spawn({
            let source = source.clone();
            move || {
                thread::sleep(QUIET / 3);
                fs::write(source, "new").unwrap();
            }
        });
        assert_eq!(changes.wait().unwrap(), std::slice::from_ref(&source));
        later.join().unwrap();
        // Either it was seen as it is now, or, on a busy machine, as gone first: then there is another change.
        assert!(changes.known.contains_key(&source) || changes.wait().unwrap() == [source]);
    }

    #[test]
    fn what_is_written_as_it_was_and_what_is_no_source_is_no_change() {
        let (_directory, path) = package();
        let mut changes = Changes::of(std::slice::from_ref(&path)).unwrap();
        fs::write(path.join("src/lib.rs"), "old").unwrap();
        fs::write(path.join("src/notes.txt"), "x").unwrap();
        assert!(!changes.has_some());
        let later = thread::spawn({
            let path = path.clone();
            move || {
                thread::sleep(Duration::from_millis(100));
                fs::write(path.join("Cargo.toml"), "new").unwrap();
            }
        });
        assert_eq!(changes.wait().unwrap(), [path.join("Cargo.toml")]);
        later.join().unwrap();
    }
}
