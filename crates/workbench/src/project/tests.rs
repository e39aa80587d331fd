//! Every layout that there is, by packages that are written for it.

use std::fs;

use super::*;

/// A directory with workspaces, whose packages depend on stand-ins for this repository's crates.
struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self { root: tempfile::tempdir().unwrap() };
        for name in ["tilewright-cuda-std", "tilewright-kernel-digest", "tilewright-testkit"] {
            tree.write(&format!("lib/{name}/Cargo.toml"), &manifest(name, &[], ""));
            tree.write(&format!("lib/{name}/src/lib.rs"), "");
        }
        tree
    }

    fn path(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A crate of kernels with these, each a function.
    fn kernels(&self, directory: &str, name: &str, kernels: &[&str], more: &str) {
        let lib = self.path().join("lib");
        let lib = lib.display();
        let dependencies = format!(
            "[dependencies]\ntilewright-cuda-std = {{ path = \"{lib}/tilewright-cuda-std\" }}\n[build-dependencies]\n\
             tilewright-kernel-digest = {{ path = \"{lib}/tilewright-kernel-digest\" }}\n{more}"
        );
        self.write(&format!("{directory}/Cargo.toml"), &manifest(name, &[], &dependencies));
        let text: String =
            kernels.iter().map(|kernel| format!("#[kernel(block = 32)]\npub fn {kernel}() {{}}\n")).collect();
        self.write(&format!("{directory}/src/lib.rs"), &text);
    }

    /// A package with a program, which depends on packages in these directories.
    fn program(&self, directory: &str, name: &str, on: &[&str], more: &str) {
        let testkit = format!("tilewright-testkit = {{ path = \"{}/lib/tilewright-testkit\" }}", self.path().display());
        self.write(&format!("{directory}/Cargo.toml"), &manifest(name, on, &more.replace("{{testkit}}", &testkit)));
        self.write(&format!("{directory}/src/main.rs"), "fn main() {}");
    }

    fn find(&self, directory: &str, kernel: Option<&str>) -> anyhow::Result<Project> {
        let here = self.path().join(directory);
        // Cargo goes by its current directory, which all tests of a process share.
        let nearest = here.ancestors().map(|path| path.join("Cargo.toml")).find(|path| path.is_file());
        let nearest = nearest.unwrap_or_else(|| here.join("Cargo.toml"));
        Project::among(&Metadata::of(Some(&nearest))?, &here, kernel)
    }

    /// Both directories, from the root.
    fn found(&self, directory: &str, kernel: Option<&str>) -> (String, String) {
        let project = self.find(directory, kernel).unwrap_or_else(|error| panic!("{directory}: {error:#}"));
        let root = self.path();
        let short = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
        (short(&project.kernels), project.program.map_or_else(String::new, |path| short(path.parent().unwrap())))
    }

    fn message(&self, directory: &str, kernel: Option<&str>) -> String {
        format!("{:#}", self.find(directory, kernel).unwrap_err())
    }
}

fn manifest(name: &str, on: &[&str], more: &str) -> String {
    let on: Vec<_> =
        on.iter().map(|path| format!("{} = {{ path = \"{path}\" }}", path.rsplit('/').next().unwrap())).collect();
    let dependencies = if on.is_empty() { String::new() } else { format!("[dependencies]\n{}\n", on.join("\n")) };
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{dependencies}{more}\n")
}

fn pair(kernels: &str, program: &str) -> (String, String) {
    (kernels.to_owned(), program.to_owned())
}

#[test]
fn a_crate_that_new_writes_from_anywhere_within() {
    let tree = Tree::new();
    tree.program("mine", "mine", &["kernels"], "{{testkit}}\n[workspace]\nmembers = [\"kernels\"]");
    tree.kernels("mine/kernels", "kernels", &["axpy", "axpy_wide"], "");
    for directory in ["mine", "mine/src", "mine/kernels", "mine/kernels/src"] {
        assert_eq!(tree.found(directory, None), pair("mine/kernels", "mine"), "{directory}");
        assert_eq!(tree.found(directory, Some("axpy")), pair("mine/kernels", "mine"), "{directory}");
    }
    let message = tree.message("mine", Some("axpi"));
    assert_eq!(message, "there is no kernel `axpi` (did you mean `axpy` or `axpy_wide`?)");
    let project = tree.find("mine", None).unwrap();
    assert_eq!(project.target_dir, tree.path().join("mine/target"));
    assert!(project.packages.contains(&tree.path().join("mine/kernels")), "{project:?}");
    assert!(project.packages.contains(&tree.path().join("lib/tilewright-cuda-std")), "{project:?}");
}

#[test]
fn a_crate_of_kernels_alone_has_no_program_and_says_so_when_one_is_needed() {
    let tree = Tree::new();
    tree.kernels("alone", "alone", &["axpy"], "");
    assert_eq!(tree.found("alone/src", Some("axpy")), pair("alone", ""));
    let message = tree.find("alone", None).unwrap().program(&[]).unwrap_err().to_string();
    assert!(message.contains("alone has kernels, but no package with a program"), "{message}");
    // One outside of its workspace that depends on it.
    tree.program("beside", "beside", &["../alone"], "{{testkit}}");
    assert_eq!(tree.found("beside", Some("axpy")), pair("alone", "beside"));
}

#[test]
fn in_a_virtual_workspace_a_kernel_or_a_place_or_a_manifest_decides() {
    let tree = Tree::new();
    let root =
        |more: &str| tree.write("ws/Cargo.toml", &format!("[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n{more}"));
    root("");
    tree.kernels("ws/first", "first", &["scan", "both"], "");
    tree.kernels("ws/second", "second", &["sort", "both"], "");
    tree.program("ws/one", "one", &["../first"], "{{testkit}}");
    // By way of a library.
    tree.write("ws/library/Cargo.toml", &manifest("library", &["../second"], ""));
    tree.write("ws/library/src/lib.rs", "");
    tree.program("ws/two", "two", &["../library"], "{{testkit}}");
    for directory in ["ws", "ws/one", "ws/second/src"] {
        assert_eq!(tree.found(directory, Some("scan")), pair("ws/first", "ws/one"), "{directory}");
        assert_eq!(tree.found(directory, Some("sort")), pair("ws/second", "ws/two"), "{directory}");
    }
    assert_eq!(tree.found("ws/two", Some("both")), pair("ws/second", "ws/two"));
    assert_eq!(tree.found("ws/first", None), pair("ws/first", "ws/one"));
    assert_eq!(tree.found("ws/one", None), pair("ws/first", "ws/one"));
    assert!(tree.message("ws", None).contains("several packages have kernels: first, second. Name a kernel"));
    assert!(tree.message("ws", Some("both")).starts_with("several crates have `both`: several packages"));

    // A second program over the same kernels.
    tree.program("ws/other", "other", &["../library"], "{{testkit}}");
    assert!(tree.message("ws", Some("sort")).contains("several packages have a program over the kernels of `second`"));
    assert_eq!(tree.found("ws/other", Some("sort")), pair("ws/second", "ws/other"));
    root("[workspace.metadata.tilewright]\nprogram = \"two\"\nkernels = \"second\"");
    assert_eq!(tree.found("ws", Some("sort")), pair("ws/second", "ws/two"));
    assert_eq!(tree.found("ws", None), pair("ws/second", "ws/two"));
    root("[workspace.metadata.tilewright]\nprogram = \"too\"");
    assert!(tree.message("ws", Some("sort")).contains("there is no package with a program `too` (did you mean `two`"));
    root("[workspace.metadata.tilewright]\nprogramm = \"two\"");
    assert!(tree.message("ws", None).contains("cannot be read; `[package.metadata.tilewright]` has `kernels`"));
}

#[test]
fn other_workspaces_are_looked_into_where_the_manifest_names_them() {
    let tree = Tree::new();
    let also = "[workspace.metadata.tilewright]\nalso = [\"examples/*\", \"patterns\"]";
    let workspace =
        format!("[workspace]\nmembers = [\"gpu\", \"host\"]\nexclude = [\"examples\", \"patterns\"]\n{also}");
    tree.write("repo/Cargo.toml", &workspace);
    tree.kernels("repo/gpu", "gpu", &["gemm"], "");
    tree.program("repo/host", "host", &["../gpu"], "{{testkit}}");
    let others =
        [("repo/examples/01-axpy", "axpy"), ("repo/examples/02-softmax", "softmax"), ("repo/patterns", "scan")];
    for (directory, kernel) in others {
        tree.program(directory, "program", &["kernels"], "{{testkit}}\n[workspace]\nmembers = [\"kernels\"]");
        tree.kernels(&format!("{directory}/kernels"), "kernels", &[kernel], "");
    }
    for (directory, kernel) in others {
        for from in ["repo", "repo/host", directory, &format!("{directory}/kernels/src")] {
            assert_eq!(tree.found(from, Some(kernel)), pair(&format!("{directory}/kernels"), directory), "{from}");
        }
        assert_eq!(tree.found(directory, None), pair(&format!("{directory}/kernels"), directory));
    }
    assert_eq!(tree.found("repo/host", Some("gemm")), pair("repo/gpu", "repo/host"));
    let message = tree.message("repo", Some("softmaks"));
    assert!(message.starts_with("there is no kernel `softmaks` (did you mean `softmax`,"), "{message}");
}

#[test]
fn elsewhere_it_says_what_to_do() {
    let tree = Tree::new();
    tree.write("plain/Cargo.toml", &manifest("plain", &[], ""));
    tree.write("plain/src/lib.rs", "");
    let message = tree.message("plain", None);
    assert!(
        message.contains("no package of this workspace has kernels") && message.contains("cargo tilewright new"),
        "{message}"
    );
    let message = tree.message("plain", Some("axpy"));
    assert!(message.contains("no package of this workspace has kernels"), "{message}");
    let message = tree.message("", None);
    assert!(
        message.contains("Cargo.toml` does not exist") && message.contains("cargo tilewright new DIR"),
        "{message}"
    );
}
