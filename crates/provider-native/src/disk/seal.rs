//! Disks that nobody writes to any more, and that many sandboxes stand on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::{mount, mount_as, open};
use crate::failure::{Failure, Step};

/// Where the superblock has what a reader must understand, and the bit for a journal that is yet to
/// be put in order.
const INCOMPATIBLE: u64 = 1024 + 0x60;
const NEEDS_RECOVERY: u32 = 4;

/// Makes a disk one that is only read: whole, with nothing left to be put in order.
///
/// It must be nobody's any more; what is returned keeps it so.
pub(crate) fn seal(path: &Path) -> Result<File, Failure> {
    let step = "seal the sandbox's disk";
    let disk = open(path)?;
    let mut features = [0; 4];
    disk.read_exact_at(&mut features, INCOMPATIBLE).step(step)?;
    if u32::from_le_bytes(features) & NEEDS_RECOVERY != 0 {
        // After the host's death. The mount puts it in order, and its end leaves it so.
        drop(mount(&disk)?);
    }
    disk.sync_all().step(step)?;
    Ok(disk)
}

/// Mounts a sealed disk, of which there may be many mounts, attached nowhere.
pub(crate) fn mount_sealed(path: &Path) -> Result<OwnedFd, Failure> {
    let step = "open a sealed disk";
    let disk = OpenOptions::new().read(true).open(path).step(step)?;
    flock(&disk, FlockOperation::NonBlockingLockShared).step(step)?;
    mount_as(&disk, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// The length of a disk's file and a checksum of what is in it: of every block that is not empty,
/// with where it is. Holes are not read, and a copy without them has the same sum.
pub(crate) fn sum(disk: &File) -> io::Result<(u64, String)> {
    const BLOCK: usize = 4096;
    let length = disk.metadata()?.len();
    let (mut position, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 32;
    };
    let mut buffer = vec![0; 256 * BLOCK];
    while position < length {
        position = match seek(disk, SeekFrom::Data(position)) {
            Ok(start) => start,
            // No data behind here.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(disk, SeekFrom::Hole(position))?;
        while position < end {
            let wanted = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
            disk.read_exact_at(&mut buffer[..wanted], position)?;
            for (index, block) in buffer[..wanted].chunks(BLOCK).enumerate() {
                if block.iter().all(|byte| *byte == 0) {
                    continue;
                }
                add(position + (index * BLOCK) as u64);
                for word in block.chunks(8) {
                    let mut bytes = [0; 8];
                    bytes[..word.len()].copy_from_slice(word);
                    add(u64::from_le_bytes(bytes));
                }
            }
            position += wanted as u64;
        }
    }
    Ok((length, format!("{hash:016x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_depends_on_what_is_where_and_not_on_holes() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, filled: bool, at: u64| {
            let disk = File::create_new(folder.path().join(name)).unwrap();
            if filled {
                disk.write_all_at(&vec![0; 1 << 20], 0).unwrap();
            }
            disk.set_len(1 << 20).unwrap();
            disk.write_all_at(b"something", at).unwrap();
            sum(&File::open(folder.path().join(name)).unwrap()).unwrap()
        };
        let holey = make("holey", false, 70_000);
        assert_eq!(holey, make("filled", true, 70_000));
        assert_ne!(holey, make("elsewhere", false, 70_000 + 4096));
    }
}
