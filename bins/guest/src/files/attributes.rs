//! Changes mode, owner and group of a file, and makes folders with a mode.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::error::{FileError, FileErrorKind};
use super::{folders, remove};
use crate::users::{self, User};

/// All that a mode can say.
const WHOLE_MODE: u32 = 0o7777;

/// The mode of a folder for which none was asked.
const USUAL_MODE: u32 = 0o755;

/// What is to be changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    /// A name or a number.
    pub(crate) owner: Option<String>,
    /// A name or a number.
    pub(crate) group: Option<String>,
}

/// Changes what `path` leads to: links are followed, as by `chmod` and `chown`.
pub(crate) fn change(path: &Path, changes: &Changes) -> Result<(), FileError> {
    let mode = changes.mode.map(checked_mode).transpose()?;
    let user = changes.owner.as_deref().map(user_id).transpose()?;
    let group = changes.group.as_deref().map(group_id).transpose()?;
    if mode.is_none() && user.is_none() && group.is_none() {
        return Err(FileError::invalid("nothing to change: say a mode, an owner or a group"));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| FileError::from_errno(errno, path))?;
    // The owner first: a change of owner takes the set-user-id bit away.
    if user.is_some() || group.is_some() {
        rustix::fs::chownat(&file, "", user, group, AtFlags::EMPTY_PATH).map_err(|errno| {
            match errno {
                Errno::INVAL => FileError::invalid("this sandbox does not have such an id"),
                errno => FileError::from_errno(errno, path),
            }
        })?;
    }
    if let Some(mode) = mode {
        change_mode(&file, mode).map_err(|errno| FileError::from_errno(errno, path))?;
    }
    Ok(())
}

/// Changes the mode of what is open, also if only its place is (`O_PATH`).
pub(crate) fn change_mode(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::chmodat(CWD, link, Mode::from_raw_mode(mode), AtFlags::empty())
}

/// A mode, if it is one.
pub(crate) fn checked_mode(mode: u32) -> Result<u32, FileError> {
    if mode <= WHOLE_MODE {
        return Ok(mode);
    }
    Err(FileError::invalid(format!("{mode:o} is no mode: it is at most 7777, in octal")))
}

/// Makes the folder `path`. With `parents` those above it too, and one that is there is fine.
pub(crate) fn make_folder(
    path: &Path,
    parents: bool,
    mode: Option<u32>,
    user: &User,
) -> Result<(), FileError> {
    let mode = checked_mode(mode.unwrap_or(USUAL_MODE))?;
    let failed = |errno| FileError::from_errno(errno, path);
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            return if parents { Ok(()) } else { Err(failed(Errno::EXIST)) };
        }
        Ok(_) => {
            return Err(FileError::new(
                FileErrorKind::AlreadyExists,
                format!("path '{}' already exists and is not a directory", path.display()),
            ));
        }
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno)),
    }
    if parents && let Some(parent) = path.parent() {
        folders::open_or_create(parent, user)?;
    }
    let (parent, name) = remove::open_parent(path)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        // Somebody else was faster.
        Err(Errno::EXIST) if parents => return folders::open_or_create(path, user).map(drop),
        result => result.map_err(failed)?,
    }
    // What the process masks of modes is not what was asked for.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(failed)?;
    change_mode(&folder, mode).map_err(failed)
}

fn user_id(name: &str) -> Result<Uid, FileError> {
    let id = users::find(name).map(|user| user.uid).or_else(|| users::parse_id(name));
    let unknown = || FileError::invalid(format!("there is no user '{name}' in this sandbox"));
    id.map(Uid::from_raw).ok_or_else(unknown)
}

fn group_id(name: &str) -> Result<Gid, FileError> {
    let id = users::group_id(name).or_else(|| users::parse_id(name));
    let unknown = || FileError::invalid(format!("there is no group '{name}' in this sandbox"));
    id.map(Gid::from_raw).ok_or_else(unknown)
}
