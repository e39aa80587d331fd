//! Feeds [`fuzz::ptx`] with what the engine makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ptx::check(data));
