//! Puts the PTX of the kernels into the program.

fn main() {
    cuda_builder::embed("kernels", &[cuda_builder::Arch::Sm80]);
}
