//! Copies a file or a tree by descriptors, for moves between file systems.
//!
//! Kept: content, mode, owner, times, links as links, pipes and sockets. Not kept: hard links
//! between files of the tree become files of their own, and holes are filled. A device is refused.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

/// The deepest tree that is copied: two descriptors are open for every level.
const DEEPEST: usize = 128;

/// Copies the entry `from_name` to a new entry `to_name`.
pub(crate) fn copy(
    from: BorrowedFd<'_>,
    from_name: &OsStr,
    to: BorrowedFd<'_>,
    to_name: &OsStr,
) -> Result<(), Errno> {
    copy_at(from, from_name, to, to_name, DEEPEST)
}

fn copy_at(
    from: BorrowedFd<'_>,
    from_name: &OsStr,
    to: BorrowedFd<'_>,
    to_name: &OsStr,
    levels_left: usize,
) -> Result<(), Errno> {
    let stat = rustix::fs::statat(from, from_name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let mut source = File::from(rustix::fs::openat(from, from_name, flags, Mode::empty())?);
            // The name may stand for something else by now.
            let stat = rustix::fs::fstat(&source)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Errno::BUSY);
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(0o600);
            let mut target = File::from(rustix::fs::openat(to, to_name, flags, mode)?);
            std::io::copy(&mut source, &mut target)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            dress(&target, &stat)
        }
        FileType::Directory => {
            let levels_left = levels_left.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = rustix::fs::openat(from, from_name, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&source)?;
            rustix::fs::mkdirat(to, to_name, Mode::from_raw_mode(0o700))?;
            let target = rustix::fs::openat(to, to_name, flags, Mode::empty())?;
            for entry in Dir::read_from(&source)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name != "." && name != ".." {
                    copy_at(source.as_fd(), name, target.as_fd(), name, levels_left)?;
                }
            }
            dress(&target, &stat)
        }
        FileType::Symlink => {
            let text = rustix::fs::readlinkat(from, from_name, Vec::new())?;
            rustix::fs::symlinkat(text.as_c_str(), to, to_name)?;
            dress_link(to, to_name, &stat)
        }
        kind @ (FileType::Fifo | FileType::Socket) => {
            rustix::fs::mknodat(to, to_name, kind, Mode::from_raw_mode(stat.st_mode & 0o777), 0)?;
            dress_link(to, to_name, &stat)
        }
        _ => Err(Errno::PERM),
    }
}

/// Gives a copy the owner, the mode and the times of the original, in this order: a change of
/// owner takes the set-user-id bit away.
fn dress(target: impl AsFd, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    rustix::fs::fchown(&target, Some(uid), Some(gid))?;
    rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(&target, &times(stat))
}

/// As [`dress`], for what cannot be opened.
fn dress_link(folder: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(folder, name, Some(uid), Some(gid), flags)?;
    rustix::fs::utimensat(folder, name, &times(stat), flags)
}

fn times(stat: &Stat) -> Timestamps {
    let nanoseconds = |part| i64::try_from(part).unwrap_or(0);
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: nanoseconds(stat.st_atime_nsec) },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: nanoseconds(stat.st_mtime_nsec),
        },
    }
}
