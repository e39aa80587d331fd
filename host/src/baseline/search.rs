//! Where libcublas may be.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The environment variable that names the libcublas to open: a path, or a name that the dynamic loader searches for.
/// Nothing else is tried if it is set.
pub const LIBRARY_VARIABLE: &str = "TILEWRIGHT_LIBCUBLAS";

/// The libraries to look for, newest first. Both have the functions that are called.
const NAMES: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];

/// Folders of a Python environment's `site-packages` in which NVIDIA's packages for CUDA 13 and 12 have their libraries.
const IN_SITE_PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cublas/lib"];

/// What the search depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// [`LIBRARY_VARIABLE`].
    pub(super) named: Option<OsString>,
    /// Folders in which CUDA is installed.
    pub(super) toolkits: Vec<PathBuf>,
    /// Prefixes of Python environments: what has `lib/python3.*/site-packages` in it.
    pub(super) python_prefixes: Vec<PathBuf>,
}

impl Places {
    /// The places that this process's environment gives.
    pub(super) fn of_environment() -> Self {
        let folder = |variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut toolkits: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder).collect();
        toolkits.push("/usr/local/cuda".into());
        toolkits.extend(entries("/usr/local".as_ref()).into_iter().filter(|path| starts_with(path, "cuda-")).rev());

        let mut python_prefixes: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder).collect();
        // An interpreter is in the folder `bin` of its environment.
        let on_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
        let with_python = on_path.iter().filter(|folder| folder.join("python3").exists());
        python_prefixes.extend(with_python.filter_map(|folder| folder.parent()).map(Path::to_owned));
        python_prefixes.extend(folder("HOME").map(|home| home.join(".local")));
        python_prefixes.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
        python_prefixes.extend(entries("/opt".as_ref()));
        Self { named: env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty()), toolkits, python_prefixes }
    }

    /// What to try, in this order: the library that is named, and nothing else; what the dynamic loader finds; CUDA
    /// installations; Python environments. Apart from the loader's, only files that are there.
    pub(super) fn candidates(&self) -> Vec<PathBuf> {
        if let Some(name) = &self.named {
            return vec![name.into()];
        }
        let toolkits = (self.toolkits.iter())
            .flat_map(|toolkit| ["lib64", "targets/x86_64-linux/lib", "lib"].map(|folder| toolkit.join(folder)));
        let python = self
            .python_prefixes
            .iter()
            .flat_map(|prefix| site_packages(prefix))
            .flat_map(|packages| IN_SITE_PACKAGES.map(|folder| packages.join(folder)));
        let folders: Vec<PathBuf> = toolkits.chain(python).collect();
        let files = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))).filter(|file| file.exists());
        let mut found: Vec<PathBuf> = Vec::new();
        for file in NAMES.map(PathBuf::from).into_iter().chain(files) {
            if !found.contains(&file) {
                found.push(file);
            }
        }
        found
    }
}

/// `lib/python3.12/site-packages` and the like of a prefix.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let versions = ["lib", "lib64"]
        .into_iter()
        .flat_map(|lib| entries(&prefix.join(lib)))
        .filter(|path| starts_with(path, "python3"));
    versions
        .flat_map(|version| ["site-packages", "dist-packages"].map(|packages| version.join(packages)))
        .filter(|packages| packages.is_dir())
        .collect()
}

/// What is in a folder, sorted; nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

/// The libcublasLt that belongs to a libcublas: the same name with `Lt`, in the same place.
pub(super) fn companion(library: &Path) -> Option<PathBuf> {
    let name = library.file_name()?.to_str()?;
    Some(library.with_file_name(name.replacen("libcublas", "libcublasLt", 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn a_library_that_is_named_is_the_only_candidate() {
        let places = Places { named: Some("/somewhere/libcublas.so".into()), ..Places::default() };
        assert_eq!(places.candidates(), [PathBuf::from("/somewhere/libcublas.so")]);
    }

    #[test]
    fn the_loader_comes_first_then_toolkits_then_python() {
        let root = tempfile::tempdir().unwrap();
        let (cuda, env) = (root.path().join("cuda"), root.path().join("env"));
        let in_cuda = cuda.join("lib64/libcublas.so.12");
        let in_env = env.join("lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13");
        let older = env.join("lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12");
        for file in [&in_cuda, &in_env, &older, &env.join("lib/python3.12/site-packages/nvidia/cu13/lib/other.so")] {
            touch(file);
        }
        let places = Places { named: None, toolkits: vec![cuda.clone(), cuda], python_prefixes: vec![env] };
        let expected: Vec<PathBuf> =
            ["libcublas.so.13".into(), "libcublas.so.12".into(), in_cuda, in_env, older].into_iter().collect();
        assert_eq!(places.candidates(), expected);
    }

    #[test]
    fn where_nothing_is_installed_only_the_loader_is_asked() {
        let places = Places { toolkits: vec!["/no/such".into()], ..Places::default() };
        assert_eq!(places.candidates(), NAMES.map(PathBuf::from));
    }

    #[test]
    fn the_companion_lies_beside_the_library() {
        assert_eq!(companion("/a/libcublas.so.13".as_ref()), Some("/a/libcublasLt.so.13".into()));
        assert_eq!(companion("libcublas.so.12".as_ref()), Some("libcublasLt.so.12".into()));
    }
}
