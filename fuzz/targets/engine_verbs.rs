//! What the engine is asked and told.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| provider_native::fuzzing::verbs(bytes));
