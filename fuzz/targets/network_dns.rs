//! Questions and answers about names, as packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::fuzzing::dns(bytes));
