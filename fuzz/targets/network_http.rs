//! What a client of anything says first.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::fuzzing::http_head(bytes));
