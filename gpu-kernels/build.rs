//! Gives the compile the digest of what the kernels are made from.

fn main() {
    kernel_digest::emit();
}
