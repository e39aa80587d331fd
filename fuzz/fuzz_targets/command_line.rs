//! Feeds [`fuzz::command_line`] with what the engine makes up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::command_line::check(data));
