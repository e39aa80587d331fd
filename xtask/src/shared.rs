//! Whether the packages of this workspace are made of the same parts, each by itself and all together.
//!
//! Cargo compiles a crate once more wherever a feature of anything that it is made of differs, and then all that is made of it. The kernels take
//! minutes. What others in the workspace ask of foreign crates, `crates/tilewright/Cargo.toml` asks of them, too, and this test says where that is
//! not enough.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use crate::workspace::cargo;

/// What cargo would compile, by what tells one from another.
struct Units(HashMap<u64, String>);

impl Units {
    fn of(arguments: &[&str]) -> Self {
        let mut command = cargo(arguments);
        // Cargo tells what it would compile only on request, and compiles nothing then.
        command.args(["--offline", "--unit-graph", "-Z", "unstable-options"]).env("RUSTC_BOOTSTRAP", "1");
        let output = command.output().expect("cargo runs");
        let graph: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        let units = graph["units"].as_array().expect("a list of units");
        let mut known = HashMap::new();
        let named = |(index, unit): (usize, &Value)| {
            let text = format!("{} {} {}", unit["pkg_id"], unit["target"]["name"], unit["features"]);
            (digest(units, index, &mut known), text)
        };
        Self(units.iter().enumerate().map(named).collect())
    }

    /// Those of the others that are none of these, but for one package's own.
    fn lack<'a>(&self, others: &'a Self, but_of: &str) -> Vec<&'a str> {
        let lacking = others.0.iter().filter(|(digest, _)| !self.0.contains_key(digest)).map(|(_, text)| text.as_str());
        lacking.filter(|text| !text.contains(&format!("#{but_of}@"))).collect()
    }
}

/// A digest of a unit and of all that it is made of.
fn digest(units: &[Value], index: usize, known: &mut HashMap<usize, u64>) -> u64 {
    if let Some(&digest) = known.get(&index) {
        return digest;
    }
    let unit = &units[index];
    let mut hasher = DefaultHasher::new();
    for field in ["pkg_id", "target", "platform", "mode", "features"] {
        unit[field].to_string().hash(&mut hasher);
    }
    // `cargo test` calls its profile by another name.
    for field in ["opt_level", "debuginfo", "debug_assertions", "overflow_checks", "panic"] {
        unit["profile"][field].to_string().hash(&mut hasher);
    }
    let dependencies = unit["dependencies"].as_array().into_iter().flatten();
    let indices = dependencies.filter_map(|dependency| usize::try_from(dependency["index"].as_u64()?).ok());
    let mut made_of: Vec<_> = indices.map(|index| digest(units, index, known)).collect();
    made_of.sort_unstable();
    made_of.hash(&mut hasher);
    known.insert(index, hasher.finish());
    hasher.finish()
}

#[test]
fn what_is_compiled_for_the_tests_serves_the_python_package_and_the_library_for_cublas() {
    let tests = Units::of(&["test", "--workspace", "--no-run"]);
    for (arguments, package) in [
        (["rustc", "--package", "tilewright-python", "--lib"], "tilewright-python"),
        (["build", "--package", "tilewright-cublas", "--lib"], "tilewright-cublas"),
    ] {
        let units = Units::of(&arguments);
        assert!(units.0.len() > 100, "{package}: {} units", units.0.len());
        let lacking = tests.lack(&units, package);
        assert!(
            lacking.is_empty(),
            "of {package} these are compiled once more, because features of one of them differ; let crates/tilewright/Cargo.toml ask for those \
             that the whole workspace has (`cargo tree --workspace -e features -i CRATE`):\n{}",
            lacking.join("\n")
        );
    }
}
