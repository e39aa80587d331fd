//! Puts the PTX of the kernels into the program.

use cuda_builder::Arch;

fn main() {
    // There are clusters from sm_90 on: a kernel that has some is left out for sm_80.
    cuda_builder::embed("kernels", &[Arch::Sm90, Arch::Sm80]);
}
