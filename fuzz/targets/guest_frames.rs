//! What a kernel, or a cell in its place, writes to the guest.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| soma_guest::fuzzing::frames(bytes));
