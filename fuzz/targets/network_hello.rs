//! What a TLS client says first.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::fuzzing::hello(bytes));
