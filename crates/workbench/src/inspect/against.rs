//! The same crate at another commit, in a worktree that is there meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A worktree of a repository, which ends with the value.
pub(super) struct Worktree {
    repository: PathBuf,
    path: PathBuf,
}

fn git(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().context("cannot run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Worktree {
    /// The repository that a directory is in, at a commit, below `place`; and where in it that directory is.
    pub(super) fn new(directory: &Path, commit: &str, place: &Path) -> anyhow::Result<(Self, PathBuf)> {
        let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
        let repository = PathBuf::from(git(&directory, &["rev-parse", "--show-toplevel"])?);
        let hash = git(&directory, &["rev-parse", "--verify", "--end-of-options", &format!("{commit}^{{commit}}")])
            .with_context(|| format!("`{commit}` is no commit of {}", repository.display()))?;
        let inside = directory.strip_prefix(&repository).context("git names another directory")?.to_owned();
        let worktree = Self { repository, path: place.join("worktree") };
        worktree.remove();
        fs::create_dir_all(place).with_context(|| place.display().to_string())?;
        let path = worktree.path.display().to_string();
        git(&worktree.repository, &["worktree", "add", "--quiet", "--force", "--detach", &path, &hash])?;
        let crate_dir = worktree.path.join(inside);
        ensure!(crate_dir.is_dir(), "commit {commit} has no {}", crate_dir.display());
        Ok((worktree, crate_dir))
    }

    fn remove(&self) {
        // It may not be there: then there is nothing to do.
        let path = self.path.display().to_string();
        let _ = git(&self.repository, &["worktree", "remove", "--force", "--force", &path]);
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_there_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let (repository, place) = (directory.path().join("repository"), directory.path().join("place"));
        let kernels = repository.join("kernels");
        fs::create_dir_all(&kernels).unwrap();
        let commit = |text: &str| {
            fs::write(kernels.join("lib.rs"), text).unwrap();
            git(&repository, &["add", "."]).unwrap();
            let author = ["-c", "user.name=n", "-c", "user.email=e@example.com"];
            git(&repository, &[&author[..], &["commit", "--quiet", "-m", text]].concat()).unwrap();
        };
        git(&repository, &["init", "--quiet"]).unwrap();
        commit("first");
        commit("second");
        let (worktree, inside) = Worktree::new(&kernels, "HEAD~1", &place).unwrap();
        assert_eq!(fs::read_to_string(inside.join("lib.rs")).unwrap(), "first");
        drop(worktree);
        assert!(!inside.exists());
        let error = format!("{:#}", Worktree::new(&kernels, "HEAD~9", &place).err().unwrap());
        assert!(error.contains("`HEAD~9` is no commit"), "{error}");
    }
}
