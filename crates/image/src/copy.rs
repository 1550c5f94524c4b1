//! A copy of a tree whose files belong to other ids.
//!
//! Where no mount can shift ids, each sandbox needs a tree whose files have its own. Both trees
//! are walked by descriptors, and no link is followed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, fchmod, linkat,
    mkdirat, mknodat, openat, readlinkat, symlinkat, utimensat,
};

use crate::tree::{kind_of, look, names_in, open_own_folder};

/// From which ids to which: what is `from` and above becomes `to` and above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// The first id of the tree that is there.
    pub from: u32,
    /// The first id of the copy.
    pub to: u32,
}

impl Shift {
    fn apply(self, id: u32) -> u32 {
        id.wrapping_sub(self.from).wrapping_add(self.to)
    }
}

/// Deeper than this is no tree that [`unpack`](crate::unpack()) made.
const DEEPEST: usize = 512;

/// Copies what is in one folder into another, which is there and empty.
pub fn copy(from: &OwnedFd, to: &OwnedFd, shift: Shift) -> io::Result<()> {
    copy_folder(from, to, shift, &mut HashMap::new(), (to, &mut Vec::new()), DEEPEST)?;
    let stat = rustix::fs::fstat(from)?;
    let (user, group) = (shift.apply(stat.st_uid), shift.apply(stat.st_gid));
    rustix::fs::fchown(to, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode))?;
    Ok(())
}

type Names = HashMap<u64, Vec<u8>>;

fn copy_folder(
    from: &OwnedFd,
    to: &OwnedFd,
    shift: Shift,
    linked: &mut Names,
    (top, path): (&OwnedFd, &mut Vec<u8>),
    depth: usize,
) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("the tree is too deep"));
    }
    for name in names_in(from)? {
        let Some(stat) = look(from, &name)? else { continue };
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        match kind_of(&stat) {
            FileType::Directory => {
                mkdirat(to, name.as_slice(), Mode::RWXU)?;
                let (inner, new) = (open_own_folder(from, &name)?, open_own_folder(to, &name)?);
                copy_folder(&inner, &new, shift, linked, (top, path), depth - 1)?;
            }
            FileType::RegularFile if stat.st_nlink > 1 && linked.contains_key(&stat.st_ino) => {
                let first = linked[&stat.st_ino].as_slice();
                linkat(top, first, to, name.as_slice(), AtFlags::empty())?;
                path.truncate(length);
                continue;
            }
            FileType::RegularFile => {
                if stat.st_nlink > 1 {
                    linked.insert(stat.st_ino, path.clone());
                }
                copy_file(from, to, &name)?;
            }
            FileType::Symlink => {
                let target = readlinkat(from, name.as_slice(), Vec::new())?;
                symlinkat(target, to, name.as_slice())?;
            }
            FileType::Fifo => mknodat(to, name.as_slice(), FileType::Fifo, mode, 0)?,
            _ => {
                path.truncate(length);
                continue;
            }
        }
        finish(to, &name, &stat, shift, mode)?;
        path.truncate(length);
    }
    Ok(())
}

fn copy_file(from: &OwnedFd, to: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source = File::from(openat(from, name, flags, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        io::copy(&mut source, &mut target)?;
    }
    Ok(())
}

fn finish(
    to: impl AsFd,
    name: &[u8],
    stat: &rustix::fs::Stat,
    shift: Shift,
    mode: Mode,
) -> io::Result<()> {
    let (user, group) = (shift.apply(stat.st_uid), shift.apply(stat.st_gid));
    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    chownat(&to, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    if !kind_of(stat).is_symlink() {
        // Its kind was looked at by name, and only we change this tree.
        rustix::fs::chmodat(&to, name, mode, AtFlags::empty())?;
    }
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    let modified = time(stat.st_mtime, stat.st_mtime_nsec);
    let times = Timestamps { last_access: modified, last_modification: modified };
    utimensat(&to, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
