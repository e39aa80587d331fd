//! Compiles the kernels to PTX.

use cuda_builder::Arch;

fn main() {
    cuda_builder::embed("../../gpu-kernels", &[Arch::Sm80, Arch::Sm90a]);
}
