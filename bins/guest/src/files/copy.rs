//! Copies a file or a tree by descriptors.
//!
//! Links are copied as links, and nothing is followed. Within a folder everything but folders is
//! copied at once and the names of folders are kept for later, so that what is held grows with
//! the folders alone, and has a bound. Down to [`KEPT_OPEN`] levels descriptors are kept for each
//! folder; below that the way back is `..`, which is only taken when it is the folder we came
//! from. Not kept: hard links between files of the tree become files of their own, and holes are
//! filled.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::error::FileError;
use super::memory;

/// Levels for which descriptors are kept, two for each.
const KEPT_OPEN: usize = 64;

/// The most bytes that are held as names of folders still to be copied.
const MOST_HELD: usize = 16 << 20;

/// Bytes of a file that are copied at once.
const CHUNK: u64 = 8 << 20;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What becomes of what the original has beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// All of it is kept, as far as the kernel permits: mode, owner, times, pipes and sockets.
    Move,
    /// The mode is kept. Owner and times are those of a new file; a pipe or socket is refused.
    Copy,
}

/// What is copied where, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) source: &'a Path,
    pub(crate) destination: &'a Path,
}

/// Copies the entry `from_name` to a new entry `to_name`. What was made stays when it fails.
pub(crate) fn copy(
    (from, from_name): (BorrowedFd<'_>, &OsStr),
    (to, to_name): (BorrowedFd<'_>, &OsStr),
    names: Names<'_>,
    manner: Manner,
) -> Result<(), FileError> {
    let mut copying =
        Copying { names, path: names.source.to_path_buf(), manner, held: 0, first: None };
    let stat = rustix::fs::statat(from, from_name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| copying.at_source(errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return copying.single((from, from_name), (to, to_name), &stat);
    }
    let first = copying.enter((from, from_name), (to, to_name))?;
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.folders.pop() else {
            copying.leave(&mut levels)?;
            continue;
        };
        copying.held -= name.len();
        copying.path.push(&name);
        let (Some(source), Some(target)) = (&level.source, &level.target) else {
            return Err(copying.at_source(Errno::BADF));
        };
        let below = copying.enter((source.as_fd(), &name), (target.as_fd(), &name))?;
        if levels.len() > KEPT_OPEN
            && let Some(level) = levels.last_mut()
        {
            (level.source, level.target) = (None, None);
        }
        levels.push(below);
    }
    Ok(())
}

/// A copy on its way.
struct Copying<'a> {
    names: Names<'a>,
    /// Where we are in the source.
    path: PathBuf,
    manner: Manner,
    /// Bytes of names that are held.
    held: usize,
    /// The folder that was made first, which must not be met in the source.
    first: Option<Identity>,
}

/// Device and number, by which a folder is known again.
type Identity = (u64, u64);

/// A folder that is being copied.
struct Level {
    source: Option<OwnedFd>,
    target: Option<OwnedFd>,
    source_identity: Identity,
    target_identity: Identity,
    stat: Stat,
    /// The folders in it that are still to be copied.
    folders: Vec<OsString>,
}

impl Copying<'_> {
    /// Makes a folder, and copies everything into it but folders.
    fn enter(
        &mut self,
        (from, from_name): (BorrowedFd<'_>, &OsStr),
        (to, to_name): (BorrowedFd<'_>, &OsStr),
    ) -> Result<Level, FileError> {
        let source = rustix::fs::openat(from, from_name, OPEN, Mode::empty())
            .map_err(|errno| self.at_source(errno))?;
        let stat = rustix::fs::fstat(&source).map_err(|errno| self.at_source(errno))?;
        if self.first == Some(identity(&stat)) {
            return Err(into_itself(self.names));
        }
        let failed = |errno| FileError::from_errno(errno, self.names.destination);
        rustix::fs::mkdirat(to, to_name, Mode::from_raw_mode(0o700)).map_err(failed)?;
        let target = rustix::fs::openat(to, to_name, OPEN, Mode::empty()).map_err(failed)?;
        let made = rustix::fs::fstat(&target).map_err(failed)?;
        self.first.get_or_insert(identity(&made));

        let mut folders = Vec::new();
        for entry in Dir::read_from(&source).map_err(|errno| self.at_source(errno))? {
            let entry = entry.map_err(|errno| self.at_source(errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.path.push(name);
            let stat = rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.at_source(errno))?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.hold(name)?;
                folders.push(name.to_owned());
            } else {
                self.single((source.as_fd(), name), (target.as_fd(), name), &stat)?;
            }
            self.path.pop();
        }
        Ok(Level {
            source: Some(source),
            target: Some(target),
            source_identity: identity(&stat),
            target_identity: identity(&made),
            stat,
            folders,
        })
    }

    /// Goes from a folder that was copied back to the one it is in, and gives it its mode: not
    /// earlier, because a folder that may not be entered has no way back either.
    fn leave(&mut self, levels: &mut Vec<Level>) -> Result<(), FileError> {
        let Some(done) = levels.pop() else { return Ok(()) };
        let (Some(source), Some(target)) = (done.source, done.target) else {
            return Err(self.at_source(Errno::BADF));
        };
        if let Some(above) = levels.last_mut()
            && above.source.is_none()
        {
            let up = |folder: &OwnedFd, known: Identity| {
                let up = rustix::fs::openat(folder, "..", OPEN, Mode::empty())?;
                // The folder was moved away while we were in it: up there is not our tree.
                let is_known = identity(&rustix::fs::fstat(&up)?) == known;
                if is_known { Ok(up) } else { Err(Errno::BUSY) }
            };
            let opened = up(&source, above.source_identity);
            above.source = Some(opened.map_err(|errno| self.at_source(errno))?);
            let opened = up(&target, above.target_identity);
            above.target = Some(opened.map_err(|errno| self.at_destination(errno))?);
        }
        self.path.pop();
        self.dress(&target, &done.stat).map_err(|errno| self.at_destination(errno))
    }

    /// Copies what is no folder.
    fn single(
        &self,
        (from, from_name): (BorrowedFd<'_>, &OsStr),
        (to, to_name): (BorrowedFd<'_>, &OsStr),
        stat: &Stat,
    ) -> Result<(), FileError> {
        let failed = |errno| self.at_destination(errno);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file((from, from_name), (to, to_name)),
            FileType::Symlink => {
                let text = rustix::fs::readlinkat(from, from_name, Vec::new())
                    .map_err(|errno| self.at_source(errno))?;
                rustix::fs::symlinkat(text.as_c_str(), to, to_name).map_err(failed)?;
                self.dress_closed(to, to_name, stat).map_err(failed)
            }
            kind @ (FileType::Fifo | FileType::Socket) if self.manner == Manner::Move => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
                rustix::fs::mknodat(to, to_name, kind, mode, 0).map_err(failed)?;
                self.dress_closed(to, to_name, stat).map_err(failed)
            }
            kind => Err(FileError::invalid(format!(
                "'{}' is a {} and cannot be copied",
                self.path.display(),
                match kind {
                    FileType::Fifo => "pipe",
                    FileType::Socket => "socket",
                    _ => "device",
                }
            ))),
        }
    }

    fn file(
        &self,
        (from, from_name): (BorrowedFd<'_>, &OsStr),
        (to, to_name): (BorrowedFd<'_>, &OsStr),
    ) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from, from_name, flags, Mode::empty())
            .map_err(|errno| self.at_source(errno))?;
        let source = File::from(source);
        // The name may stand for something else by now.
        let stat = rustix::fs::fstat(&source).map_err(|errno| self.at_source(errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.at_source(Errno::BUSY));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let failed = |errno| self.at_destination(errno);
        let target = rustix::fs::openat(to, to_name, flags, Mode::from_raw_mode(0o600));
        let target = File::from(target.map_err(failed)?);
        let in_memory = memory::holds(&target);
        loop {
            // The library lets the kernel copy, or share, where it can.
            let copied = std::io::copy(&mut (&source).take(CHUNK), &mut &target)
                .map_err(|error| FileError::from_io(&error, self.names.destination))?;
            if copied == 0 {
                break;
            }
            if in_memory {
                memory::take(&target, copied, self.names.destination)?;
            }
        }
        self.dress(&target, &stat).map_err(failed)
    }

    /// Gives a copy what it has of the original, the owner first: a change of owner takes the
    /// set-user-id bit away. That bit is for one owner, and is not given to another.
    fn dress(&self, target: impl AsFd, stat: &Stat) -> Result<(), Errno> {
        if self.manner == Manner::Move {
            let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            permitted(rustix::fs::fchown(&target, Some(uid), Some(gid)))?;
        }
        let made = rustix::fs::fstat(&target)?;
        let is_owners = (made.st_uid, made.st_gid) == (stat.st_uid, stat.st_gid);
        let kept = if is_owners { 0o7777 } else { 0o1777 };
        rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & kept))?;
        if self.manner == Manner::Move {
            rustix::fs::futimens(&target, &times(stat))?;
        }
        Ok(())
    }

    /// As [`Self::dress`], for what cannot be opened.
    fn dress_closed(&self, folder: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> Result<(), Errno> {
        if self.manner == Manner::Copy {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        permitted(rustix::fs::chownat(folder, name, Some(uid), Some(gid), flags))?;
        rustix::fs::utimensat(folder, name, &times(stat), flags)
    }

    fn hold(&mut self, name: &OsStr) -> Result<(), FileError> {
        self.held += name.len();
        if self.held <= MOST_HELD {
            return Ok(());
        }
        Err(FileError::in_the_way(format!(
            "'{}' has too many directories to be copied at once; copy parts of it",
            self.names.source.display()
        )))
    }

    fn at_source(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, &self.path)
    }

    fn at_destination(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, self.names.destination)
    }
}

/// What is said of a folder whose copy would hold itself.
pub(crate) fn into_itself(names: Names<'_>) -> FileError {
    FileError::invalid(format!(
        "'{}' cannot be copied into itself, to '{}'",
        names.source.display(),
        names.destination.display()
    ))
}

/// A user who may not give files away keeps them.
fn permitted(changed: Result<(), Errno>) -> Result<(), Errno> {
    if changed == Err(Errno::PERM) { Ok(()) } else { changed }
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
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
