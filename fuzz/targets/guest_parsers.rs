//! Forms, queries, ranges, paths and the kernel's tables, as the guest reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    soma_guest::fuzzing::http_parsers(bytes);
    soma_guest::fuzzing::texts(bytes);
});
