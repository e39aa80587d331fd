//! Puts the PTX of the kernels into the program, if it is built for a GPU.

fn main() {
    #[cfg(feature = "gpu")]
    cuda_builder::embed("kernels", &[cuda_builder::Arch::Sm90a, cuda_builder::Arch::Sm80]);
}
