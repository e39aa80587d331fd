//! The lock file: which versions of published packages there are, and what each depends on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::packages::{Dependency, Package};

/// A lock file.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) path: PathBuf,
    packages: Vec<Locked>,
}

/// A package in it.
#[derive(Debug, Default)]
struct Locked {
    name: String,
    version: String,
    source: String,
    checksum: String,
    /// `name`, `name version` or `name version (source)`: as much as it takes to tell it from others.
    dependencies: Vec<String>,
}

impl Lock {
    /// Reads the lock file of a workspace. Where there is none, cargo writes one, as it would for the compile.
    pub(crate) fn read(workspace: &Path, cargo: &Path) -> Result<Self, Error> {
        let path = workspace.join("Cargo.lock");
        if !path.is_file() {
            let mut command = Command::new(cargo);
            command.args(["generate-lockfile", "--offline", "--manifest-path"]).arg(workspace.join("Cargo.toml"));
            let output = command.stdin(Stdio::null()).output().map_err(Error::io(cargo))?;
            if !output.status.success() {
                let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::Cargo { directory: workspace.to_owned(), message });
            }
        }
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        Ok(Self { packages: parse(&text), path })
    }

    /// The published packages that a package of this workspace comes to through one of its dependencies.
    pub(crate) fn reached_from(&self, package: &Package, dependency: &Dependency) -> Result<BTreeSet<String>, Error> {
        let lacking = |name: &str| Error::Lock { path: self.path.clone(), package: name.to_owned() };
        let own = |locked: &&Locked| {
            locked.name == package.name && locked.version == package.version && locked.source.is_empty()
        };
        let Some(own) = self.packages.iter().find(own) else { return Err(lacking(&package.name)) };
        let names = own.dependencies.iter().filter(|reference| reference.split(' ').next() == Some(&dependency.name));
        let mut open: Vec<&str> = names.map(String::as_str).collect();
        // Of a feature that nobody has asked for, the file knows nothing.
        if open.is_empty() && !dependency.is_optional {
            return Err(lacking(&dependency.name));
        }
        let mut reached = BTreeSet::new();
        while let Some(reference) = open.pop() {
            let locked = self.packages.iter().find(|locked| locked.is(reference)).ok_or_else(|| lacking(reference))?;
            if reached.insert(format!("{} {} {} {}", locked.name, locked.version, locked.source, locked.checksum)) {
                open.extend(locked.dependencies.iter().map(String::as_str));
            }
        }
        Ok(reached)
    }
}

impl Locked {
    fn is(&self, reference: &str) -> bool {
        let mut words = reference.splitn(3, ' ');
        words.next() == Some(self.name.as_str())
            && words.next().is_none_or(|version| version == self.version)
            && words.next().is_none_or(|source| source.trim_matches(['(', ')']) == self.source)
    }
}

/// The packages in the text of a lock file, which cargo always writes in the same way.
fn parse(text: &str) -> Vec<Locked> {
    let mut packages: Vec<Locked> = Vec::new();
    for line in text.lines() {
        if line == "[[package]]" {
            packages.push(Locked::default());
            continue;
        }
        let Some(package) = packages.last_mut() else { continue };
        let unquoted = |text: &str| text.trim().trim_end_matches(',').trim_matches('"').to_owned();
        match line.split_once(" = ") {
            Some(("name", value)) => package.name = unquoted(value),
            Some(("version", value)) => package.version = unquoted(value),
            Some(("source", value)) => package.source = unquoted(value),
            Some(("checksum", value)) => package.checksum = unquoted(value),
            None if line.starts_with(" \"") => package.dependencies.push(unquoted(line)),
            _ => {}
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_lock_file() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\n \"b 2.0.0\",\n \"c\",\n]\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"registry+x\"\nchecksum = \"12\"\n";
        let packages = parse(text);
        assert_eq!(packages[0].dependencies, ["b 2.0.0", "c"]);
        assert_eq!((packages[1].source.as_str(), packages[1].checksum.as_str()), ("registry+x", "12"));
        assert!(packages[1].is("b") && packages[1].is("b 2.0.0") && packages[1].is("b 2.0.0 (registry+x)"));
        assert!(!packages[1].is("b 1.0.0") && !packages[1].is("b 2.0.0 (git+y)") && !packages[1].is("c"));
    }
}
