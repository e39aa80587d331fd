//! The driver that only pretends, `fake_libcuda.rs`, as a library. Also a part of tests of the package `tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file to compile, and those of its modules, where they are seen from each other.
const SOURCES: [(&str, &str); 8] = [
    ("cuda-driver/tests/driver/fake_libcuda.rs", include_str!("fake_libcuda.rs")),
    ("cuda-driver/tests/driver/fake_faults.rs", include_str!("fake_faults.rs")),
    ("cuda-driver/tests/driver/fake_graphs.rs", include_str!("fake_graphs.rs")),
    ("cuda-driver/tests/driver/fake_kernels.rs", include_str!("fake_kernels.rs")),
    ("cuda-driver/tests/driver/fake_memory.rs", include_str!("fake_memory.rs")),
    ("cuda-driver/tests/driver/fake_printing.rs", include_str!("fake_printing.rs")),
    ("cuda-driver/tests/driver/fake_streams.rs", include_str!("fake_streams.rs")),
    ("cuda-std/src/print_record.rs", include_str!("../../../cuda-std/src/print_record.rs")),
];

/// What GPUs offer: the crate that everybody else asks, too.
const FACTS: [(&str, &str); 5] = [
    ("lib.rs", include_str!("../../../gpu-facts/src/lib.rs")),
    ("kernel.rs", include_str!("../../../gpu-facts/src/kernel.rs")),
    ("limits.rs", include_str!("../../../gpu-facts/src/limits.rs")),
    ("occupancy.rs", include_str!("../../../gpu-facts/src/occupancy.rs")),
    ("ptx_facts.rs", include_str!("../../../gpu-facts/src/ptx_facts.rs")),
];

/// Compiles the fake driver, with further options for `rustc`, to a library of this file name. To be called once for each name in a
/// process; other processes may compile one of the same name at the same time.
pub(crate) fn compile(name: &str, options: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Each process compiles in its own folder and moves the result into place, so that none opens what another writes.
    let folder = target.with_extension(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    for (file, source) in SOURCES {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, source).unwrap();
    }
    let facts = folder.join("gpu_facts");
    fs::create_dir_all(&facts).unwrap();
    for (file, source) in FACTS {
        fs::write(facts.join(file), source).unwrap();
    }
    let library = folder.join("libgpu_facts.rlib");
    // No crate outside of these: the feature `serde` is not set.
    rustc(
        &["--crate-type=rlib", "--crate-name=gpu_facts", "--check-cfg=cfg(feature,values(any()))"],
        &facts.join("lib.rs"),
        &library,
    );
    let compiled = folder.join(name);
    let fixed = ["--crate-type=cdylib", "--crate-name=cuda", "--check-cfg=cfg(without_uuid,without_tensor_maps)"];
    let external = format!("--extern=gpu_facts={}", library.display());
    let allowed = ["-Adead_code", "-Anon_snake_case", &external];
    rustc(&[&fixed[..], &allowed, options].concat(), &folder.join(SOURCES[0].0), &compiled);
    fs::rename(&compiled, &target).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    target
}

fn rustc(options: &[&str], source: &Path, target: &Path) {
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-Cpanic=abort"]).args(options).arg("-o").args([target, source]);
    let output = rustc.output().expect("rustc can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
