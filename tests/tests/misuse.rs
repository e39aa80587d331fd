//! What must not compile: launches that do not fit the kernel, and functions that cannot be kernels. Beside each program
//! lies what the compiler says; `TRYBUILD=overwrite cargo test -p tests --test misuse` writes that anew.

#[test]
fn misuse_does_not_compile() {
    // The programs use the library that is the subject here, and so build all others; but no PTX.
    // SAFETY: this is the only test of the program, so no other thread reads the environment.
    unsafe { std::env::set_var("TILEWRIGHT_SKIP_PTX", "1") };
    let programs = trybuild::TestCases::new();
    programs.compile_fail("misuse/*.rs");
}
