//! What tells one disk from another. All are copies of one blank, and an overlay whose layers cannot
//! be told apart has no handles for its files, so each is given an identity when it is made.
//!
//! The blank's checksums depend on a seed of its own (`metadata_csum_seed`), so only the superblock's
//! has to be computed anew.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where the superblock is, and how long.
const SUPERBLOCK: u64 = 1024;
const LENGTH: usize = 1024;

/// Where it has what a reader must understand, its identity, and its checksum.
const INCOMPATIBLE: usize = 0x60;
const IDENTITY: usize = 0x68;
const CHECKSUM: usize = 0x3fc;

/// The checksums have a seed of their own.
const HAS_SEED: u32 = 0x2000;

/// Gives a disk that nobody has yet this identity. One of an earlier version is left as it is.
pub(super) fn identify(disk: &File, identity: [u8; 16]) -> io::Result<()> {
    let mut block = [0; LENGTH];
    disk.read_exact_at(&mut block, SUPERBLOCK)?;
    let mut features = [0; 4];
    features.copy_from_slice(&block[INCOMPATIBLE..INCOMPATIBLE + 4]);
    if u32::from_le_bytes(features) & HAS_SEED == 0 {
        return Ok(());
    }
    block[IDENTITY..IDENTITY + 16].copy_from_slice(&identity);
    let sum = checksum(&block[..CHECKSUM]);
    block[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    disk.write_all_at(&block, SUPERBLOCK)
}

/// CRC-32C as ext4 has it: begun with all ones, and not turned over at the end.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |mut sum, byte| {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg());
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(checksum(b"123456789"), !0xe306_9283);
    }

    #[test]
    fn a_disk_with_another_identity_is_still_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let run = |program: &str, words: &[&str]| {
            let mut command = sys_linux::command::command(program);
            command.args(words).arg(&path).stdin(Stdio::null()).output().unwrap()
        };
        let made = run("mkfs.ext4", &["-q", "-F", "-O", "metadata_csum,metadata_csum_seed"]);
        assert!(made.status.success(), "{made:?}");
        let disk = File::options().read(true).write(true).open(&path).unwrap();
        identify(&disk, *b"0123456789abcdef").unwrap();
        let seen = run("dumpe2fs", &["-h"]);
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(seen.contains("30313233-3435-3637-3839-616263646566"), "{seen}");
        assert!(seen.contains("metadata_csum_seed"), "{seen}");
        let checked = run("e2fsck", &["-f", "-n"]);
        assert!(checked.status.success(), "{checked:?}");
    }
}
