//! The digest of a kernel crate is the same in the host's compile of it and beside its PTX.
//!
//! Builds crates for real, as `build.rs` does.

mod crates;

use std::path::Path;
use std::process::Command;

use crates::{builder, target_dir, write_crate};
use tilewright_cuda_builder::write_atomically;

const SOURCE: &str = r#"
#![no_std]
use cuda_std::{GlobalSliceMut, kernel, thread};

pub const DIGEST: &str = env!("TILEWRIGHT_KERNEL_DIGEST");

#[kernel(block = 32)]
pub fn one(x: GlobalSliceMut<'_, f32>) {
    let i = thread::thread_idx_x() as usize;
    if i < x.len() {
        // SAFETY: inside, and every thread has its own element.
        unsafe { x.set_unchecked(i, 1.0) };
    }
}
"#;

/// What the host's compile names, and what the builder does.
fn both(directory: &Path, features: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--target-dir"])
        .arg(target_dir())
        .args(features)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let host = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let copy = tempfile::tempdir().unwrap();
    let built = builder(directory).copy_to(copy.path()).build().unwrap();
    let ptx = std::fs::read_to_string(&built.modules[0].path).unwrap();
    assert!(ptx.starts_with(&format!("// digest of the kernels' sources: {}\n", built.digest.hex)), "{ptx}");
    (host, built.digest.hex)
}

#[test]
fn both_compiles_have_the_same_digest() {
    let digest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel-digest");
    let more = format!(
        "[build-dependencies]\nkernel_digest = {{ package = \"tilewright-kernel-digest\", path = {digest:?} }}\n\
         [features]\ndefault = [\"fast-math\"]\nfast-math = []\nother = []\n"
    );
    let directory = write_crate("digest", "kernels", SOURCE, &more);
    let write = |file: &str, text: &str| write_atomically(&directory.join(file), text.as_bytes()).unwrap();
    write("build.rs", "fn main() { kernel_digest::emit() }");
    write("src/main.rs", "fn main() { println!(\"{}\", digest_kernels::DIGEST) }");
    let _ = std::fs::remove_file(directory.join("src/new.rs"));

    let (host, gpu) = both(&directory, &[]);
    assert_eq!(host, gpu);
    let (host, _) = both(&directory, &["--features", "other"]);
    assert_ne!(host, gpu, "a program that enables more features has other kernels on its side");

    // The file system's clock is coarser than the time between two compiles.
    std::thread::sleep(std::time::Duration::from_millis(50));
    write("src/new.rs", "// Nothing names this file yet.\n");
    let (host, changed) = both(&directory, &[]);
    assert_eq!(host, changed);
    assert_ne!(changed, gpu);
}
