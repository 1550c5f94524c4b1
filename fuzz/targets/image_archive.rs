//! Images as the unpacker reads them: tar with all of its extensions, compressed or not, and what
//! describes layers. Whatever comes, nothing lands beside the folder.
#![no_main]

use std::os::fd::OwnedFd;

use image::{Bounds, unpack};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let staging = folder.path().join("staging");
    if std::fs::create_dir(&staging).is_err() {
        return;
    }
    let Ok(opened) = std::fs::File::open(&staging) else { return };
    let bounds = Bounds { bytes: 1 << 20, entries: 64, depth: 16, metadata: 4096 };
    // The first half of a tar file that a fuzzer invents has wrong sums: mend them, or nothing
    // behind the first header is ever reached.
    let _ = unpack(mended(bytes).as_slice(), &OwnedFd::from(opened), bounds);
    let beside = std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    assert_eq!(beside, 1, "something lies beside the folder");
});

/// The same bytes with the sum of every block that could be a header put right.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}
