//! Feeds [`fuzz::constants`] with what the engine makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::constants::check(data));
