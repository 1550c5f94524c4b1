//! What the guest, its spawner and its keepers tell each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| soma_guest::fuzzing::messages(bytes));
