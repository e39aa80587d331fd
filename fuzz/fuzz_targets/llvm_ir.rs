//! Feeds [`fuzz::llvm_ir`] with what the engine makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::llvm_ir::check(data));
