//! Puts the PTX of the kernels in `fixtures/device-features`, `fixtures/printing`, `fixtures/streams` and `fixtures/instructions` into the test
//! programs, so that they can be carried to a GPU: `device_features.rs`, `printing.rs`, `streams.rs` and `instructions.rs` in `OUT_DIR`.

use cuda_builder::Arch;

fn main() {
    cuda_builder::embed("fixtures/device-features", &[Arch::Sm80]);
    cuda_builder::embed("fixtures/printing", &[Arch::Sm80]);
    // Both, because on Hopper kernels of the first begin while those before them end.
    cuda_builder::embed("fixtures/streams", &[Arch::Sm90a, Arch::Sm80]);
    cuda_builder::embed("fixtures/instructions", &[Arch::Sm90a, Arch::Sm80]);
}
