//! Feeds [`fuzz::table`] with what the engine makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::table::check(data));
