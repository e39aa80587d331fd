//! Has the linker export what this crate exports, and nothing of the crates that it is made of: `cuda_driver` defines the driver's functions.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        // The program that it is loaded into may be one without threads of its own to wait for those here.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
