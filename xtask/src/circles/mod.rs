//! `cargo xtask circles`: whether the modules of a crate use one another in a circle.
//!
//! A node is a file with a module; inline modules belong to their file. Modules and functions for tests are left out. An edge leads
//! from A to B if a path in A leads to an item that B defines: in a `use`, an expression, a type, a pattern, an attribute, or what a
//! macro is given, whatever it is called there and however often it was handed on. To declare a module is no edge, and neither is to
//! hand a name on by `pub use`.
//!
//! Only syntax is read, so this cannot see
//!
//! - methods that are called on values (`plan.run()`), and functions of traits: these need types. A function that has its type's path
//!   before it (`Plan::new`) counts for the type's file, and for that of the `impl` where it is;
//! - what a procedural macro or another crate's macro writes. Of a `macro_rules!` of the same crate, the paths it expands to count
//!   for its own file and for those who call it. An item that a macro makes is found if its name is among what the macro was given, and a
//!   module that it declares counts as used where it is called;
//! - links in documentation, which are not meant to be an edge.
//!
//! A path that leads nowhere is counted, and shown by `--verbose`.

mod graph;
mod syntax;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod uses;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::workspace::{cargo, root};

/// The options of `circles`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The crates, by the names of their directories [default: those that must have no circle, and some for information].
    #[arg(value_name = "CRATE")]
    crates: Vec<String>,
    /// Show every edge, and the paths that lead nowhere.
    #[arg(long)]
    verbose: bool,
}

/// Crates whose modules must have no circle.
const WITHOUT: &[&str] = &["runtime", "tilewright", "gpu-kernels", "cuda-driver", "host", "pages"];
/// Crates that are shown besides.
const SHOWN: &[&str] = &["blocks", "operations", "testkit", "cuda-std", "cuda-builder"];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let packages = packages()?;
    let names: Vec<&str> = if arguments.crates.is_empty() {
        [WITHOUT, SHOWN].concat()
    } else {
        arguments.crates.iter().map(String::as_str).collect()
    };
    let mut with_circles = Vec::new();
    for name in names {
        let package = packages.iter().find(|package| package.name == name).with_context(|| {
            let known: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
            format!("there is no crate in a directory `{name}`; there are {}", known.join(", "))
        })?;
        let targets = package.examine()?;
        for (target, modules) in &targets {
            print!("{}", modules.report(target, arguments.verbose));
        }
        for file in sources(&package.directory.join("src"))? {
            if !targets.iter().any(|(_, modules)| modules.tree.knows(&file)) {
                println!("  in no module, so not read: {}", shown(&file));
            }
        }
        let circles = targets.iter().any(|(_, modules)| !modules.circles().is_empty());
        if circles && (WITHOUT.contains(&name) || !arguments.crates.is_empty()) {
            with_circles.push(name);
        }
    }
    ensure!(with_circles.is_empty(), "the modules of {} use one another in a circle", with_circles.join(", "));
    Ok(())
}

/// A package of the workspace.
struct Package {
    /// The name of its directory.
    name: String,
    directory: PathBuf,
    /// Its library and programs: what they are called here, and the files of their roots.
    targets: Vec<(String, PathBuf)>,
    /// What other crates are called in it.
    externs: HashSet<String>,
}

/// The packages of the workspace.
fn packages() -> anyhow::Result<Vec<Package>> {
    let output = cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("what cargo metadata prints")?;
    array(&metadata, "packages")?.iter().map(Package::new).collect()
}

fn array<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list `{key}`"))
}

fn string<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no string `{key}`"))
}

impl Package {
    fn new(package: &Value) -> anyhow::Result<Self> {
        let manifest = Path::new(string(package, "manifest_path")?);
        let directory = manifest.parent().context("a manifest without a directory")?.to_owned();
        let name = directory.file_name().context("a directory without a name")?.to_string_lossy().into_owned();
        let crate_name = |name: &str| name.replace('-', "_");
        let mut externs: HashSet<String> =
            ["std", "core", "alloc", "proc_macro", "test"].into_iter().map(str::to_owned).collect();
        for dependency in array(package, "dependencies")? {
            externs.insert(crate_name(dependency["rename"].as_str().unwrap_or(string(dependency, "name")?)));
        }
        let mut targets = Vec::new();
        for target in array(package, "targets")? {
            let source = PathBuf::from(string(target, "src_path")?);
            let kinds: Vec<&str> = array(target, "kind")?.iter().filter_map(Value::as_str).collect();
            if kinds.contains(&"bin") {
                targets.push((format!("{name}, program {}", string(target, "name")?), source));
            } else if !["test", "bench", "example", "custom-build"].iter().any(|other| kinds.contains(other)) {
                externs.insert(crate_name(string(target, "name")?));
                targets.push((name.clone(), source));
            }
        }
        Ok(Self { name, directory, targets, externs })
    }

    /// The modules of its library and programs.
    fn examine(&self) -> anyhow::Result<Vec<(String, Modules)>> {
        let examined: Vec<(String, Modules)> = (self.targets.iter())
            .map(|(name, source)| Ok((name.clone(), Modules::read(source, self.externs.clone())?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(examined)
    }
}

/// The source files below a directory.
fn sources(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The modules of a crate, and which uses which.
struct Modules {
    tree: tree::Tree,
    uses: uses::Uses,
}

impl Modules {
    fn read(source: &Path, externs: HashSet<String>) -> anyhow::Result<Self> {
        let mut tree = tree::Tree::read(source, externs)?;
        let uses = uses::read(&mut tree)?;
        Ok(Self { tree, uses })
    }

    fn edges(&self) -> BTreeSet<(usize, usize)> {
        self.uses.edges.keys().copied().collect()
    }

    fn circles(&self) -> Vec<BTreeSet<usize>> {
        graph::circles(self.tree.files.len(), &self.edges())
    }

    fn report(&self, title: &str, verbose: bool) -> String {
        let circles = self.circles();
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let names = |files: &mut dyn Iterator<Item = &usize>| -> String {
            files.map(|&file| self.tree.files[file].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!(
            "{title}: {}, {}, {}, {}\n",
            count(self.tree.files.len(), "module"),
            count(self.uses.edges.len(), "edge"),
            if circles.is_empty() { "no circle".to_owned() } else { count(circles.len(), "CIRCLE") },
            count(self.uses.unresolved.len(), "path") + " unresolved",
        );
        if circles.is_empty() {
            for (level, files) in graph::levels(self.tree.files.len(), &self.edges()).iter().enumerate() {
                let _ = writeln!(text, "  level {level}: {}", names(&mut files.iter()));
            }
        }
        for circle in &circles {
            let _ = writeln!(text, "  a circle of {}: {}", circle.len(), names(&mut circle.iter()));
            for (&(from, to), example) in &self.uses.edges {
                if circle.contains(&from) && circle.contains(&to) {
                    self.edge(&mut text, from, to, example);
                }
            }
        }
        if verbose {
            text.push_str("  edges:\n");
            for (&(from, to), example) in &self.uses.edges {
                self.edge(&mut text, from, to, example);
            }
            for (file, example) in &self.uses.unresolved {
                let _ = writeln!(text, "  unresolved: {}: {}", self.place(*file, example), example.written);
            }
        }
        text
    }

    fn edge(&self, text: &mut String, from: usize, to: usize, example: &uses::Example) {
        let [from_name, to_name] = [from, to].map(|file| &self.tree.files[file].name);
        let _ = writeln!(text, "    {from_name} -> {to_name}: {}: {}", self.place(from, example), example.written);
    }

    fn place(&self, file: usize, example: &uses::Example) -> String {
        format!("{}:{}", shown(&self.tree.files[file].path), example.line)
    }
}

/// A path from the repository's root.
fn shown(path: &Path) -> impl std::fmt::Display {
    path.strip_prefix(root()).unwrap_or(path).display()
}
