//! What must not compile: page-locked memory that is looked at while it is copied, and the like. Beside each program lies what the compiler
//! says; `TRYBUILD=overwrite cargo test -p tilewright-runtime --test misuse` writes that anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/misuse/*.rs"));
}
