//! Rules as text, and what follows from them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::fuzzing::policy(bytes));
