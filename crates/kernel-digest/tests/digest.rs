//! What changes the digest of a crate of kernels, and what does not.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tilewright_kernel_digest::{Digest, Features, of};

const KERNELS: &str = "\
[package]
name = \"kernels\"
version = \"0.1.0\"
edition = \"2024\"

[workspace]

[features]
default = [\"fast-math\", \"published?/x\"]
fast-math = [\"inner\"]
inner = []
other = [\"dep:absent\"]

[dependencies]
helper = { path = \"../helper\" }
published = { version = \"1\", optional = true }
absent = { version = \"1\", optional = true }
direct = \"1\"

[target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]
operations = { path = \"../operations\" }

[dev-dependencies]
for-tests = \"1\"
";

const HELPER: &str = "[package]\nname = \"helper\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[target.'cfg(windows)'.dependencies]\nfar = \"2\"\n";

const LOCK: &str = r#"version = 4

[[package]]
name = "direct"
version = "1.0.1"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "11"
dependencies = [
 "far",
]

[[package]]
name = "far"
version = "2.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "22"

[[package]]
name = "for-tests"
version = "1.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "33"

[[package]]
name = "helper"
version = "0.1.0"
dependencies = [
 "far",
]

[[package]]
name = "kernels"
version = "0.1.0"
dependencies = [
 "direct",
 "for-tests",
 "helper",
]
"#;

/// A checkout with a crate of kernels and a path dependency. None of the published packages is on this machine.
struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        for (file, text) in [
            ("kernels/Cargo.toml", KERNELS),
            ("kernels/Cargo.lock", LOCK),
            ("kernels/build.rs", "fn main() {}"),
            ("kernels/src/lib.rs", "mod a;"),
            ("kernels/src/a.rs", ""),
            ("kernels/tests/t.rs", ""),
            ("kernels/target/junk.rs", ""),
            ("helper/Cargo.toml", HELPER),
            ("helper/src/lib.rs", ""),
            ("helper/src/deep/inside.txt", "1"),
            ("operations/Cargo.toml", "[package]\nname = \"operations\"\nversion = \"0.1.0\"\nedition = \"2024\"\n"),
            ("operations/src/lib.rs", ""),
        ] {
            checkout.write(file, text);
        }
        checkout
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn with(&self, features: &Features) -> Digest {
        of(&self.0.path().join("kernels"), Path::new(env!("CARGO")), features).unwrap()
    }

    fn hex(&self) -> String {
        self.with(&Features::Default).hex
    }
}

fn only(features: &[&str]) -> Features {
    Features::Only(features.iter().map(|&feature| feature.to_owned()).collect())
}

#[test]
fn the_place_of_the_checkout_makes_no_difference() {
    let (one, other) = (Checkout::new(), Checkout::new());
    assert_eq!(one.hex(), one.hex());
    assert_eq!(one.hex(), other.hex());
    assert_eq!(one.hex().len(), 64);
}

#[test]
fn whatever_compiles_into_the_kernels_makes_one() {
    let before = Checkout::new().hex();
    for (file, text) in [
        ("kernels/src/a.rs", "pub fn f() {}".to_owned()),
        ("kernels/src/new.rs", String::new()),
        ("kernels/build.rs", "fn main() { }".to_owned()),
        ("kernels/Cargo.toml", KERNELS.replace("inner = []", "inner = [\"other\"]")),
        ("kernels/Cargo.lock", LOCK.replace("\"22\"", "\"23\"")),
        ("kernels/Cargo.lock", LOCK.replace("1.0.1", "1.0.2")),
        ("helper/src/lib.rs", "pub fn f() {}".to_owned()),
        ("helper/src/deep/inside.txt", "2".to_owned()),
        ("helper/src/deep/new.rs", String::new()),
        ("helper/Cargo.toml", HELPER.replace("2024", "2021")),
    ] {
        let checkout = Checkout::new();
        checkout.write(file, &text);
        assert_ne!(checkout.hex(), before, "{file}: {text}");
    }
}

#[test]
fn what_does_not_makes_none() {
    let before = Checkout::new().hex();
    for (file, text) in [
        ("kernels/tests/t.rs", "#[test] fn t() {}".to_owned()),
        ("kernels/target/junk.rs", "junk".to_owned()),
        ("kernels/src/.a.rs.swp", "junk".to_owned()),
        ("kernels/README.md", "# Kernels".to_owned()),
        ("operations/src/lib.rs", "pub fn f() {}".to_owned()),
        ("kernels/Cargo.lock", LOCK.replace("\"33\"", "\"34\"")),
    ] {
        let checkout = Checkout::new();
        checkout.write(file, &text);
        assert_eq!(checkout.hex(), before, "{file}: {text}");
    }
}

/// Of a dependency that is not for hosts alone, a GPU may see something.
#[test]
fn a_dependency_for_other_targets_makes_one() {
    let with = |text: &str| {
        let checkout = Checkout::new();
        let manifest = KERNELS.replace("not(target_arch = \"nvptx64\")", "not(target_arch = \"x86_64\")");
        checkout.write("kernels/Cargo.toml", &manifest);
        checkout.write("operations/src/lib.rs", text);
        checkout.hex()
    };
    assert_ne!(with(""), with("pub fn f() {}"));
}

#[test]
fn the_enabled_features_make_one() {
    let checkout = Checkout::new();
    let default = only(&["DEFAULT", "FAST_MATH", "INNER"]);
    assert_eq!(checkout.with(&Features::Default), checkout.with(&default));
    assert_ne!(checkout.with(&only(&["FAST_MATH", "INNER"])), checkout.with(&default));
    assert_ne!(checkout.with(&only(&["DEFAULT", "FAST_MATH", "INNER", "OTHER"])), checkout.with(&default));
}

/// For `cargo::rerun-if-changed`: cargo looks into directories for anything new.
#[test]
fn the_sources_are_named_and_the_directories_that_they_are_in() {
    let checkout = Checkout::new();
    let root = fs::canonicalize(checkout.0.path()).unwrap();
    let sources = checkout.with(&Features::Default).sources;
    for file in [
        "kernels/src",
        "kernels/src/a.rs",
        "kernels/Cargo.lock",
        "kernels/build.rs",
        "helper/src/deep",
        "helper/Cargo.toml",
    ] {
        assert!(sources.contains(&root.join(file)), "{file}: {sources:?}");
    }
    let all_there = sources.iter().all(|path: &PathBuf| path.exists());
    assert!(all_there && !sources.contains(&root.join("kernels")), "{sources:?}");
}

#[test]
fn what_is_missing_is_named() {
    let checkout = Checkout::new();
    checkout.write("kernels/Cargo.lock", &LOCK.replace(" \"direct\",\n", ""));
    let error =
        of(&checkout.0.path().join("kernels"), Path::new(env!("CARGO")), &Features::Default).unwrap_err().to_string();
    assert!(error.contains("`direct`") && error.contains("Cargo.lock"), "{error}");
    let error =
        of(&checkout.0.path().join("nowhere"), Path::new(env!("CARGO")), &Features::Default).unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
}
