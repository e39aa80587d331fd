//! Has the linker export what this crate exports, and nothing of the crates that it is made of: `cuda_driver` defines the driver's functions.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        // Addresses that programs have looked up stay valid after a `dlclose`, and so does what is called at the end of the process.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
