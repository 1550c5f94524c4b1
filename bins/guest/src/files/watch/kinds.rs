//! What the kernel says, in the protocol's words.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use guest_proto::filesystem::EventType;
use rustix::fs::inotify::ReadFlags;
use rustix::fs::{AtFlags, FileType};

use super::lock;
use super::queue::Queue;

/// File systems whose changes are made elsewhere: NFS, CIFS, SMB, SMB2 and FUSE.
const NETWORK: [u32; 5] = [0x6969, 0xff53_4d42, 0x517b, 0xfe53_4d42, 0x6573_5546];

/// What an entry is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// A file that has content.
    Full,
    Other,
}

pub(super) fn kind_of(folder: &OwnedFd, entry: &rustix::fs::DirEntry, is_told: bool) -> Kind {
    let told = entry.file_type();
    if told == FileType::Directory {
        return Kind::Folder;
    }
    if told != FileType::Unknown && (told != FileType::RegularFile || !is_told) {
        return Kind::Other;
    }
    match rustix::fs::statat(folder.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Folder,
            FileType::RegularFile if stat.st_size > 0 => Kind::Full,
            _ => Kind::Other,
        },
        Err(_) => Kind::Other,
    }
}

pub(super) const APPEARS_OR_GOES: ReadFlags = ReadFlags::CREATE
    .union(ReadFlags::MOVED_TO)
    .union(ReadFlags::DELETE)
    .union(ReadFlags::MOVED_FROM);

/// The protocol's words for the kernel's, in the order in which they are told.
const KINDS: [(ReadFlags, EventType); 5] = [
    (ReadFlags::CREATE.union(ReadFlags::MOVED_TO), EventType::EVENT_TYPE_CREATE),
    (ReadFlags::MOVED_FROM.union(ReadFlags::MOVE_SELF), EventType::EVENT_TYPE_RENAME),
    (ReadFlags::ATTRIB, EventType::EVENT_TYPE_CHMOD),
    (ReadFlags::MODIFY, EventType::EVENT_TYPE_WRITE),
    (ReadFlags::DELETE.union(ReadFlags::DELETE_SELF), EventType::EVENT_TYPE_REMOVE),
];

pub(super) fn tell(queue: &Mutex<Queue>, path: &Path, flags: ReadFlags) {
    let shown = path.to_string_lossy();
    for (asked, kind) in KINDS {
        if flags.intersects(asked) {
            lock(queue).push(&shown, kind);
        }
    }
}

/// Compares the lower half, because the upper one is filled up with the sign on some machines.
pub(super) fn is_network<T>(kind: T) -> bool
where
    T: TryInto<i64>,
{
    let kind: i64 = kind.try_into().unwrap_or(0);
    NETWORK.iter().any(|known| kind & 0xffff_ffff == i64::from(*known))
}
