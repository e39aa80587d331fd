//! Interpreters, and the emulator, from Debian: packages that are unpacked into the target directory. Nothing is installed.
//!
//! ```text
//!  the sources of packages that apt has here ─► a list of one suite and one architecture ─► apt-get, download only ─► dpkg-deb -x ─► root
//! ```
//!
//! apt gets a state of its own, in which nothing is installed, so it downloads all that a package depends on, for any architecture, and changes
//! nothing of the machine's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::workspace::target_dir;

/// Packages of a suite for an architecture, unpacked.
pub(super) struct Root {
    pub(super) path: PathBuf,
}

/// Where the machine's own apt gets Debian's packages.
struct Archive {
    address: String,
    keyring: &'static str,
}

/// The keys of Debian's archive, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The directories of a system that are links into `usr`.
const LINKS: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

impl Root {
    /// Downloads and unpacks packages with what they depend on, unless that has been done.
    ///
    /// # Errors
    /// If the machine is not Debian's, or the packages cannot be had.
    pub(super) fn get(suite: &str, architecture: &str, packages: &[&str]) -> anyhow::Result<Self> {
        let directory = target_dir().join("wheels/debian").join(format!("{suite}-{architecture}"));
        let root = directory.join("root");
        let (mark, wanted) = (directory.join("unpacked.txt"), packages.join("\n"));
        if fs::read_to_string(&mark).is_ok_and(|unpacked| unpacked == wanted) {
            return Ok(Self { path: root });
        }
        println!("getting {} of Debian's {suite} for {architecture}", packages.join(", "));
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
        }
        let archives = download(&Archive::find()?, &directory, suite, architecture, packages)?;
        for link in LINKS {
            let target = root.join("usr").join(link);
            fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
            symlink(Path::new("usr").join(link), root.join(link))?;
        }
        for archive in archives {
            succeed(Command::new("dpkg-deb").arg("-x").args([&archive, &root]))?;
        }
        fs::write(&mark, wanted).with_context(|| format!("cannot write {}", mark.display()))?;
        Ok(Self { path: root })
    }
}

impl Archive {
    fn find() -> anyhow::Result<Self> {
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is not there: interpreters come from Debian's archive, on a machine with Debian's package manager"
        );
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Identifier: Packages"]);
        let text = succeed(&mut targets)?;
        // The label of security updates, which lie elsewhere, is another one.
        let address = text.lines().find_map(|line| line.strip_prefix("Debian Debian ")).with_context(|| {
            "apt has no list of Debian's packages, so their address is not known: `apt-get update`, on a machine with Debian"
        })?;
        Ok(Self { address: address.to_owned(), keyring: KEYRING })
    }
}

/// Downloads packages and what they depend on, and returns their files.
fn download(
    Archive { address, keyring }: &Archive,
    directory: &Path,
    suite: &str,
    architecture: &str,
    packages: &[&str],
) -> anyhow::Result<Vec<PathBuf>> {
    let (lists, cache) = (directory.join("lists"), directory.join("cache"));
    for parents in [lists.join("partial"), cache.join("archives/partial")] {
        fs::create_dir_all(&parents).with_context(|| format!("cannot make {}", parents.display()))?;
    }
    let (sources, status) = (directory.join("sources.list"), directory.join("status"));
    fs::write(&sources, format!("deb [signed-by={keyring}] {address} {suite} main\n"))?;
    fs::write(&status, "")?;
    let options = [
        ("Dir::Etc::sourcelist", sources.to_string_lossy()),
        ("Dir::Etc::sourceparts", "-".into()),
        ("Dir::State::lists", lists.to_string_lossy()),
        ("Dir::State::status", status.to_string_lossy()),
        ("Dir::Cache", cache.to_string_lossy()),
        ("APT::Architecture", architecture.into()),
        ("APT::Architectures", architecture.into()),
        // apt's own user may not enter the target directory.
        ("APT::Sandbox::User", "root".into()),
        ("Acquire::Languages", "none".into()),
    ];
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        for (name, value) in &options {
            apt.arg("-o").arg(format!("{name}={value}"));
        }
        succeed(apt.args(arguments))
    };
    apt(&["update", "--quiet", "--quiet"])?;
    apt(&[&["install", "--download-only", "--yes", "--quiet", "--no-install-recommends"], packages].concat())?;
    let files =
        fs::read_dir(cache.join("archives"))?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "deb")).collect())
}

/// What a command prints.
fn succeed(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().with_context(|| format!("`{program}` cannot be run: it is part of Debian and Ubuntu"))?;
    if !output.status.success() {
        let arguments = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        bail!("`{program} {arguments}` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
