//! Puts the PTX of the kernels in `fixtures/device-features` into the test programs, so that they can be carried to a GPU.

use cuda_builder::Arch;

fn main() {
    cuda_builder::embed("fixtures/device-features", &[Arch::Sm80]);
}
