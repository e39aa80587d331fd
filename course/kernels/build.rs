//! Gives the compile the digest of what the kernels are made from, so that a launch can see that the PTX is of the same sources.

fn main() {
    kernel_digest::emit();
}
