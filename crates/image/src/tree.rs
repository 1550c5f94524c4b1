//! The tree that an image becomes, below a descriptor.
//!
//! Nothing here takes a path of the host's. A folder within the tree is opened by the kernel's own
//! resolution beneath the root's descriptor, and what is made in it is made by its last name,
//! which follows no link. Links that the image has on the way to a folder are followed as the
//! sandbox would: within the root, which is their `/`. Images with layers rely on it (`lib` is a
//! link into `usr` in one, and a later one adds to `lib`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chownat, fstat, mkdirat,
    openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

use crate::bounds::Bounds;
use crate::entry::Path;
use crate::error::{ImageError, Step};

/// Who owns what has an owner that this tree cannot have.
pub(crate) const NOBODY: u32 = 65_534;

/// A folder that an image is unpacked into.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    pub(crate) bounds: Bounds,
}

impl Tree {
    pub(crate) fn new(root: OwnedFd, bounds: Bounds) -> Self {
        Self { root, bounds }
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a folder of the tree, to make things in it.
    pub(crate) fn folder(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    /// Opens what is there, which may be anything.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let name: &[u8] = if path.is_root() { b"." } else { path.bytes() };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&self.root, name, flags, Mode::empty(), inside) {
                // Something was renamed meanwhile, which cannot be told from a way out.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Opens what is there and is reached without any link.
    pub(crate) fn open_plainly(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let name: &[u8] = if path.is_root() { b"." } else { path.bytes() };
        let plain = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, name, flags | OFlags::NOFOLLOW, Mode::empty(), plain)
    }

    /// Opens a folder; what is missing of it is made, and told to `made`.
    pub(crate) fn make_folder(
        &self,
        path: &Path,
        made: &mut dyn FnMut(&OwnedFd),
    ) -> Result<OwnedFd, ImageError> {
        match self.folder(path) {
            Ok(folder) => return Ok(folder),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(in_the_way(path, error)),
        }
        let mut reached = Path::default();
        let mut folder = self.folder(&reached).step("open", b"/")?;
        for name in path.names() {
            reached = reached.join(name);
            folder = match self.folder(&reached) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    // A link that leads nowhere is there and is not made into a folder.
                    mkdirat(&folder, name, Mode::from_raw_mode(0o755))
                        .map_err(|error| in_the_way(&reached, error))?;
                    let next = open_own_folder(&folder, name).step("open", reached.bytes())?;
                    made(&next);
                    next
                }
                Err(error) => return Err(in_the_way(&reached, error)),
            };
        }
        Ok(folder)
    }

    /// Removes what has this name, with all that is in it. Nothing to remove is a success.
    pub(crate) fn remove(&self, folder: impl AsFd, name: &[u8]) -> Result<(), ImageError> {
        remove(folder.as_fd(), name, 2 * self.bounds.depth + 8)
    }

    /// Removes what is in a folder, but for what is `kept`, by its number.
    pub(crate) fn clear(&self, folder: &OwnedFd, kept: &HashSet<u64>) -> Result<u64, ImageError> {
        let mut removed = 0;
        for name in names_in(folder).step("read", b"")? {
            let stat = look(folder, &name).step("look at", &name)?;
            if stat.is_some_and(|stat| !kept.contains(&stat.st_ino)) {
                self.remove(folder, &name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// What has this name, if anything; a link itself, not where it leads.
pub(crate) fn look(folder: impl AsFd, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a folder by the last part of its path.
pub(crate) fn open_own_folder(parent: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// The names in a folder, read before anything in it is changed.
pub(crate) fn names_in(folder: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Gives what has this name to its owner, or to nobody if there is none with that id here:
/// `false` then.
pub(crate) fn give_to(
    folder: impl AsFd,
    name: &[u8],
    (user, group): (u64, u64),
) -> rustix::io::Result<bool> {
    let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
    let set = |user: u32, group: u32| {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        chownat(&folder, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
    };
    if let (Some(user), Some(group)) = (id(user), id(group)) {
        match set(user, group) {
            Ok(()) => return Ok(true),
            Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    match set(NOBODY, NOBODY) {
        // There is one id alone: everything is its own.
        Ok(()) | Err(Errno::INVAL | Errno::PERM) => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove(
    folder: std::os::fd::BorrowedFd<'_>,
    name: &[u8],
    depth: usize,
) -> Result<(), ImageError> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // POSIX and Linux disagree about which.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error).step("remove", name),
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(error) => return Err(error).step("remove", name),
    }
    if depth == 0 {
        return Err(ImageError::refused(name, "it is too deep to be removed"));
    }
    let inner = open_own_folder(folder, name).step("open", name)?;
    for inner_name in names_in(&inner).step("read", name)? {
        remove(inner.as_fd(), &inner_name, depth - 1)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR).step("remove", name)
}

/// Why a path cannot be a folder.
fn in_the_way(path: &Path, error: Errno) -> ImageError {
    let reason = match error {
        Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {
            "a file, or a link that leads to no folder of the image, is where it needs a folder"
        }
        _ => {
            return ImageError::Write {
                step: format!("open `{}`", crate::error::shown(path.bytes())),
                source: error.into(),
            };
        }
    };
    ImageError::refused(path.bytes(), reason)
}

/// The number of a file, by which it is told from others of the tree.
pub(crate) fn number_of(file: impl AsFd) -> rustix::io::Result<u64> {
    Ok(fstat(file)?.st_ino)
}

/// A name for the kernel.
pub(crate) fn text(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}
