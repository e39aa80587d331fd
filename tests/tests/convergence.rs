//! What the threads of a warp or a block have to execute together, such as a barrier, stands in the kernels as often as in
//! their source: the compiler has not copied it into both arms of a branch that only some of the threads take.
//!
//! rustc knows no instruction that it must not copy, and LLVM does not know which inline assembly is one. So the kernels are
//! compiled a second time, by passes that copy none ([`Pipeline::Convergent`]), and both must have as many of each. That
//! copies are found, a test of cuda_builder's shows.

use std::path::{Path, PathBuf};

use cuda_builder::inspect::parted;
use cuda_builder::{Arch, Build, CudaBuilder, Pipeline};

fn build(crate_dir: &str, pipeline: Pipeline) -> Build {
    let target_dir: PathBuf =
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory").join("cuda-builder");
    let builder = CudaBuilder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_dir)).target_dir(target_dir);
    // A missing toolchain is an error that names `cargo xtask setup`.
    let built = builder.archs(&[Arch::Sm80, Arch::Sm90a]).pipeline(pipeline).build();
    built.unwrap_or_else(|error| panic!("{crate_dir}: {error}"))
}

#[test]
fn no_kernel_has_other_barriers_than_its_source() {
    for crate_dir in ["../gpu-kernels", "fixtures/device-features", "fixtures/instructions"] {
        let (fast, convergent) = (build(crate_dir, Pipeline::Fast), build(crate_dir, Pipeline::Convergent));
        for (fast, convergent) in fast.modules.iter().zip(&convergent.modules) {
            assert!(!fast.kernels.is_empty());
            let found = parted(&fast.kernels, &convergent.kernels);
            assert!(found.is_empty(), "for {}:\n{}", fast.arch, found.join("\n"));
        }
    }
}
