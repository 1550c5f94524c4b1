//! What callers mean by paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| soma_guest::fuzzing::paths(bytes));
