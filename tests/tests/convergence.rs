//! The kernels of this repository are compiled with all of rustc's passes: none of these has copied what threads have to come to
//! together, such as a barrier.
//!
//! Where one has, the builder compiles without it, so the kernels are right in any case. But they are measured as they are now, and those
//! without have other registers.

use std::path::{Path, PathBuf};

use cuda_builder::{Arch, CudaBuilder, Pipeline};

#[test]
fn no_crate_of_kernels_is_compiled_without_jump_threading() {
    let target: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory").to_owned();
    // Where other tests build them, so that they are compiled once.
    for crate_dir in
        ["../gpu-kernels", "../gpu-kernels/patterns/kernels", "fixtures/device-features", "fixtures/instructions"]
    {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_dir);
        let builder =
            CudaBuilder::new(directory).target_dir(target.join("cuda-builder")).archs(&[Arch::Sm80, Arch::Sm90a]);
        // A missing toolchain is an error that names `cargo tilewright setup`.
        let built = builder.build().unwrap_or_else(|error| panic!("{crate_dir}: {error}"));
        assert_eq!(built.pipeline, Pipeline::Fast, "{crate_dir}");
    }
}
