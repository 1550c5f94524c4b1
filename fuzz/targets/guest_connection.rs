//! Requests, and what only looks like them, into the guest's real router.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| soma_guest::fuzzing::connection(bytes));
