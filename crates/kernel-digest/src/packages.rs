//! What cargo says of packages that lie on this machine, without asking a registry for anything.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Error;

/// How crates of kernels declare what only the host's half needs, such as operations. Whatever is declared in another way, a GPU may see.
const FOR_HOSTS: &str = "cfg(not(target_arch=\"nvptx64\"))";

/// A package in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) edition: String,
    pub(crate) directory: PathBuf,
    /// The root of its workspace.
    pub(crate) workspace: PathBuf,
    /// Where the root of its library lies.
    pub(crate) library_dir: PathBuf,
    pub(crate) build_script: Option<PathBuf>,
    /// Those that are there at run time, for whatever target, by name.
    pub(crate) dependencies: Vec<Dependency>,
    /// What each feature enables.
    features: HashMap<String, Vec<String>>,
}

/// A dependency as a package declares it.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Where it is, if not in a registry.
    pub(crate) path: Option<PathBuf>,
    /// Whether no GPU sees it, because it is declared for hosts alone.
    pub(crate) is_for_hosts: bool,
    /// Whether a feature brings it in.
    pub(crate) is_optional: bool,
    /// Everything about it but the path.
    pub(crate) declaration: String,
}

/// All packages that have been asked for, by their manifests.
pub(crate) struct Packages<'a> {
    cargo: &'a Path,
    known: HashMap<PathBuf, Package>,
}

impl<'a> Packages<'a> {
    pub(crate) fn new(cargo: &'a Path) -> Self {
        Self { cargo, known: HashMap::new() }
    }

    /// The package in a directory.
    pub(crate) fn at(&mut self, directory: &Path) -> Result<Package, Error> {
        let manifest = directory.join("Cargo.toml");
        let manifest = manifest.canonicalize().map_err(Error::io(&manifest))?;
        if !self.known.contains_key(&manifest) {
            self.ask(&manifest)?;
        }
        self.known.get(&manifest).cloned().ok_or_else(|| Error::Cargo {
            directory: directory.to_owned(),
            message: "it is not among those of its workspace".to_owned(),
        })
    }

    /// Takes in all packages of the workspace that a manifest belongs to.
    fn ask(&mut self, manifest: &Path) -> Result<(), Error> {
        let mut command = Command::new(self.cargo);
        command.args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"]).arg(manifest);
        let output = command.stdin(Stdio::null()).output().map_err(Error::io(self.cargo))?;
        let Ok(metadata) = serde_json::from_slice::<Value>(&output.stdout) else {
            let directory = manifest.parent().unwrap_or(manifest).to_owned();
            return Err(Error::Cargo { directory, message: String::from_utf8_lossy(&output.stderr).trim().to_owned() });
        };
        let workspace = PathBuf::from(text(&metadata, "workspace_root"));
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let package = Package::parse(package, &workspace);
            self.known.insert(package.directory.join("Cargo.toml"), package);
        }
        Ok(())
    }
}

impl Package {
    fn parse(package: &Value, workspace: &Path) -> Self {
        let manifest = PathBuf::from(text(package, "manifest_path"));
        let manifest = manifest.canonicalize().unwrap_or(manifest);
        let directory = manifest.parent().unwrap_or(&manifest).to_owned();
        let targets = || package["targets"].as_array().into_iter().flatten();
        let root = |kinds: &[&str]| {
            let is_one = |target: &&Value| {
                let mut all = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
                all.any(|kind| kinds.contains(&kind))
            };
            let root = PathBuf::from(text(targets().find(is_one)?, "src_path"));
            Some(root.canonicalize().unwrap_or(root))
        };
        let library = root(&["lib", "rlib", "staticlib", "cdylib", "dylib", "proc-macro"]);
        let library_dir =
            library.as_deref().and_then(Path::parent).map_or_else(|| directory.join("src"), Path::to_owned);
        let mut dependencies: Vec<_> =
            package["dependencies"].as_array().into_iter().flatten().filter_map(Dependency::parse).collect();
        dependencies.sort_by(|a, b| a.declaration.cmp(&b.declaration));
        let features = package["features"].as_object().into_iter().flatten();
        let enables = |list: &Value| {
            list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
        };
        Self {
            name: text(package, "name").to_owned(),
            version: text(package, "version").to_owned(),
            edition: text(package, "edition").to_owned(),
            directory,
            workspace: workspace.to_owned(),
            library_dir,
            build_script: root(&["custom-build"]),
            dependencies,
            features: features.map(|(name, list)| (name.clone(), enables(list))).collect(),
        }
    }

    /// A feature and all that it enables of this package; nothing if there is no such feature.
    pub(crate) fn with_what_they_enable(&self, feature: &str) -> BTreeSet<String> {
        let mut enabled = BTreeSet::new();
        let mut open = vec![feature.to_owned()];
        while let Some(name) = open.pop() {
            let Some(list) = self.features.get(&name) else { continue };
            if enabled.insert(name) {
                // `dep:x` and `x?/y` enable no feature of this package, `x/y` enables `x`.
                let own = list.iter().filter(|one| !one.starts_with("dep:") && !one.contains("?/"));
                open.extend(own.map(|one| one.split('/').next().unwrap_or(one).to_owned()));
            }
        }
        enabled
    }
}

impl Dependency {
    /// One that is there at run time.
    fn parse(dependency: &Value) -> Option<Self> {
        if !dependency["kind"].is_null() {
            return None;
        }
        let fields = ["name", "req", "rename", "optional", "uses_default_features", "features", "target"];
        let declaration = fields.map(|field| format!("{field}={}", dependency[field])).join(" ");
        let path = dependency["path"].as_str().map(PathBuf::from);
        let is_optional = dependency["optional"] == true;
        let is_for_hosts = text(dependency, "target").replace(char::is_whitespace, "") == FOR_HOSTS;
        Some(Self { name: text(dependency, "name").to_owned(), path, is_for_hosts, is_optional, declaration })
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
