//! Puts the PTX of the kernels in `fixtures/device-features` and `fixtures/instructions` into the test programs, so that they can be
//! carried to a GPU: `device_features.rs` and `instructions.rs` in `OUT_DIR`.

use std::env;
use std::fs;
use std::path::PathBuf;

use cuda_builder::Arch;

fn main() {
    embed("device-features", &[Arch::Sm80]);
    embed("instructions", &[Arch::Sm90a, Arch::Sm80]);
}

fn embed(fixture: &str, archs: &[Arch]) {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    cuda_builder::embed(format!("fixtures/{fixture}"), archs);
    // All crates' PTX comes as a file of one name.
    fs::rename(out_dir.join("kernels.rs"), out_dir.join(fixture.replace('-', "_") + ".rs"))
        .unwrap_or_else(|error| panic!("renaming kernels.rs in {}: {error}", out_dir.display()));
}
